//! The names of all entries of a load and their ids: any entry may have subordinates, and none may come twice.
//!
//! A name is known by its fingerprint: 112 bits of a SHA-256, of which the table that it is in tells some. Among 50
//! million names the chance that any two are taken for one is below 10^-14.

use crate::entry::EntryId;
use crate::entry::record::digest;

/// Stands for a normalized DN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    pub(super) fn of(normal_dn: &str) -> Self {
        Self(u128::from_be_bytes(digest(normal_dn.as_bytes())))
    }
}

const TABLES: usize = 256;
const ID_BITS: u32 = 40;
/// Highest id that fits.
pub(super) const ID_MAX: u64 = (1 << ID_BITS) - 1;
const SLOTS_MIN: usize = 16;
/// A table grows by a quarter when seven eighths of its slots are taken: between 18 and 23 bytes an entry.
const GROW_BY: usize = 4;

/// Many small tables, so that one at a time is made anew when it grows. An id of 0 is an empty slot.
#[derive(Debug)]
pub(super) struct Names {
    tables: Vec<Table>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    taken: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    high: u64,
    /// The lowest bits of the fingerprint, then the id.
    low_and_id: u64,
}

impl Slot {
    fn new(Fingerprint(name): Fingerprint, id: u64) -> Self {
        Self { high: (name >> 64) as u64, low_and_id: (name as u64) << ID_BITS | id }
    }

    fn id(self) -> u64 {
        self.low_and_id & ID_MAX
    }

    fn is(self, other: Self) -> bool {
        self.high == other.high && self.low_and_id >> ID_BITS == other.low_and_id >> ID_BITS
    }
}

impl Names {
    pub(super) fn new() -> Self {
        Self { tables: vec![Table::default(); TABLES] }
    }

    pub(super) fn get(&self, name: Fingerprint) -> Option<EntryId> {
        self.tables.get(Self::table(name))?.get(Slot::new(name, 0)).map(EntryId)
    }

    /// Takes a name that is not there yet. The id is above 0 and at most [`ID_MAX`].
    pub(super) fn insert(&mut self, name: Fingerprint, id: EntryId) {
        if let Some(table) = self.tables.get_mut(Self::table(name)) {
            table.insert(Slot::new(name, id.0));
        }
    }

    /// Bits that a slot does not hold.
    fn table(Fingerprint(name): Fingerprint) -> usize {
        (name >> (64 - ID_BITS)) as usize % TABLES
    }
}

impl Table {
    /// Where the search for a slot begins: slots in the order of fingerprints.
    fn start(&self, slot: Slot) -> usize {
        ((u128::from(slot.high) * self.slots.len() as u128) >> 64) as usize
    }

    fn get(&self, wanted: Slot) -> Option<u64> {
        let mut at = self.start(wanted);
        loop {
            let slot = self.slots.get(at)?;
            if slot.id() == 0 {
                return None;
            }
            if slot.is(wanted) {
                return Some(slot.id());
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }

    fn insert(&mut self, slot: Slot) {
        if (self.taken + 1) * 8 > self.slots.len() * 7 {
            let grown = (self.slots.len() + self.slots.len() / GROW_BY).max(SLOTS_MIN);
            let old = std::mem::replace(&mut self.slots, vec![Slot::default(); grown]);
            old.into_iter().filter(|slot| slot.id() != 0).for_each(|slot| self.put(slot));
        }
        self.put(slot);
        self.taken += 1;
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.start(slot);
        while self.slots.get(at).is_some_and(|other| other.id() != 0) {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        if let Some(free) = self.slots.get_mut(at) {
            *free = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_no_other() {
        let name = |n: u64| Fingerprint::of(&format!("cn=person {n},dc=example"));
        let mut names = Names::new();
        for n in 0..20_000 {
            assert_eq!(names.get(name(n)), None);
            names.insert(name(n), EntryId(n + 1));
        }
        assert!((0..20_000).all(|n| names.get(name(n)) == Some(EntryId(n + 1))));
        assert!((20_000..21_000).all(|n| names.get(name(n)).is_none()));
        names.insert(name(20_000), EntryId(ID_MAX));
        assert_eq!(names.get(name(20_000)), Some(EntryId(ID_MAX)));
        let bytes: usize = names.tables.iter().map(|table| table.slots.capacity() * size_of::<Slot>()).sum();
        assert!(bytes < 24 * 20_000, "{bytes}");
    }
}
