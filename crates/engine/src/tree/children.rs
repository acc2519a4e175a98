//! Where entries were found by their names before, so that the tree need not be asked again.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

use crate::entry::EntryId;

/// Names remembered, as a power of two: eight bytes each.
const SLOTS_BITS: u32 = 16;
/// Bits of a slot for the id. A higher id is not remembered.
const ID_BITS: u32 = 48;

/// Entries found by superior and RDN, for all threads of a database.
///
/// Each is a hint: who follows it looks whether the record that it leads to has this superior and this RDN. Of these there is one
/// record at most in any snapshot, so nothing has to be forgotten when entries are renamed, moved or deleted.
#[derive(Default)]
pub struct FoundChildren {
    hash: RandomState,
    /// In each an id, and above it bits of the name's hash; 0 is none. Made when the first name is looked up.
    slots: OnceLock<Box<[AtomicU64]>>,
}

impl fmt::Debug for FoundChildren {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundChildren").finish_non_exhaustive()
    }
}

/// The slot that a name has.
pub(super) struct Slot<'a> {
    slot: Option<&'a AtomicU64>,
    hash: u64,
}

impl FoundChildren {
    pub(super) fn slot(&self, parent: EntryId, normal_rdn: &[u8]) -> Slot<'_> {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u64(parent.0);
        hasher.write(normal_rdn);
        let hash = hasher.finish();
        let slots = self.slots.get_or_init(|| (0..1 << SLOTS_BITS).map(|_| AtomicU64::new(0)).collect());
        Slot { slot: slots.get(hash as usize & ((1 << SLOTS_BITS) - 1)), hash }
    }
}

impl Slot<'_> {
    /// The entry that was found last, if that was most likely by this name.
    pub(super) fn id(&self) -> Option<EntryId> {
        let slot_value = self.slot?.load(Ordering::Relaxed);
        let (own, id) = ((slot_value ^ self.hash) >> ID_BITS == 0, slot_value & ((1 << ID_BITS) - 1));
        (own && id != 0).then_some(EntryId(id))
    }

    pub(super) fn note(&self, id: EntryId) {
        if let Some(slot) = self.slot.filter(|_| id.0 >> ID_BITS == 0) {
            slot.store(id.0 | self.hash >> ID_BITS << ID_BITS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use larix_store::Store;

    use super::*;
    use crate::fixture::{Checks, Fixture, TWO_BRANCHES, on_every_store, schema};
    use crate::record::{RecordFlags, RecordWriter, is_child};

    const X: &str = "cn=x,ou=a,dc=example,dc=com";

    /// The entry of a name, and whether it was known where it is.
    fn found<S: Store>(fixture: &Fixture<S>, snapshot: &S::Snapshot<'_>, dn: &str) -> (Option<u64>, bool) {
        let view = fixture.database.view(snapshot).expect("a view");
        let located = view.locate(&schema().parse_dn(dn).expect(dn)).expect("no fault").expect("a suffix");
        (located.resolved.id.map(|id| id.0), located.stored.is_some())
    }

    fn now<S: Store>(fixture: &Fixture<S>, dn: &str) -> (Option<u64>, bool) {
        found(fixture, &fixture.database.store().snapshot().expect("a snapshot"), dn)
    }

    struct KnownNames;

    impl Checks for KnownNames {
        fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
            let is_known = |dn: &str| {
                let results: Vec<_> = (0..3).map(|_| now(fixture, dn)).collect();
                let (id, _) = results[0];
                assert!(results.iter().all(|(other, _)| *other == id), "{dn}: {results:?}");
                assert!(!results[0].1 && results[2].1, "{dn}: {results:?}");
                id.expect(dn)
            };
            let first = is_known(X);
            let beside = is_known("cn=x,ou=b,dc=example,dc=com");
            assert_ne!(first, beside, "the same RDN below another superior");

            // What leads to another entry is not believed.
            let state = fixture.database.state();
            let parent = EntryId(now(fixture, "ou=a,dc=example,dc=com").0.expect("ou=a"));
            for wrong in [beside, parent.0, 1, 4_711] {
                state.found.slot(parent, b"cn=x").note(EntryId(wrong));
                assert_eq!(now(fixture, X), (Some(first), false), "{wrong}");
            }

            fixture.delete(X);
            assert_eq!(now(fixture, X), (None, false));
            fixture.load(&format!("dn: {X}\nobjectClass: device\ncn: x\n"));
            assert!(is_known(X) > first);
        }
    }

    #[test]
    fn names_that_were_found_are_proved_by_records() {
        on_every_store(&[], TWO_BRANCHES, &KnownNames);
    }

    #[test]
    fn a_snapshot_shows_what_was_there_then() {
        let fixture = Fixture::memory(&[], TWO_BRANCHES);
        let snapshot = || fixture.database.store().snapshot().expect("a snapshot");
        let (first, _) = (now(&fixture, X), now(&fixture, X));
        let before = snapshot();
        fixture.delete(X);
        let between = snapshot();
        fixture.load(&format!("dn: {X}\nobjectClass: device\ncn: x\n"));
        let after = snapshot();
        for _ in 0..3 {
            assert_eq!(found(&fixture, &before, X).0, first.0);
            assert_eq!(found(&fixture, &between, X).0, None);
            assert!(found(&fixture, &after, X).0 > first.0);
        }
    }

    #[test]
    fn records_say_whose_children_they_are() {
        let record = |rdn: &str, normal: &str| {
            RecordWriter::new(EntryId(3), rdn, normal.as_bytes(), RecordFlags::default()).finish()
        };
        let check = |record: &[u8], parent: u64, rdn: &str, want: bool| {
            assert_eq!(is_child(record, EntryId(parent), rdn.as_bytes()), want, "{parent} {rdn} {record:?}");
        };
        for (shown, normal) in [("cn=A", "cn=a"), ("cn=a", "cn=a")] {
            let record = record(shown, normal);
            check(&record, 3, "cn=a", true);
            check(&record, 4, "cn=a", false);
            check(&record, 3, "cn=A", false);
            check(&record, 3, "cn=", false);
            check(&record, 3, "cn=ab", false);
            for length in 0..record.len() {
                check(&record[..length], 3, "cn=a", false);
            }
        }
    }

    #[test]
    fn an_id_that_has_no_room_is_not_remembered() {
        let found = FoundChildren::default();
        let slot = found.slot(EntryId(1), b"cn=a");
        assert_eq!(slot.id(), None);
        slot.note(EntryId(1 << ID_BITS));
        assert_eq!(slot.id(), None);
        slot.note(EntryId((1 << ID_BITS) - 1));
        assert_eq!(slot.id(), Some(EntryId((1 << ID_BITS) - 1)));
        assert_eq!(found.slot(EntryId(2), b"cn=a").id(), None);
    }
}
