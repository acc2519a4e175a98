//! Changes to apply together.

use std::collections::BTreeMap;
use std::collections::btree_map;

use smallvec::SmallVec;

use crate::table::{KeyRange, TableId};

/// A key of a change. Most keys of a directory fit inline.
pub(crate) type Key = SmallVec<[u8; 32]>;

/// The new value of each key, or its removal.
type RecordChanges = BTreeMap<Key, Option<Box<[u8]>>>;

/// Puts, deletes and posting changes for one commit. The last change to a key, or to a (key, id) pair, counts.
///
/// A write set does not know the kinds of tables; a change that does not fit its table is refused at commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    records: BTreeMap<TableId, RecordChanges>,
    postings: BTreeMap<TableId, BTreeMap<Key, PostingEdits>>,
    bytes: usize,
}

/// What a change to a record costs beyond its key and value when [`WriteSet::byte_len`] is counted.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// What a posting change costs, about.
const POSTING_OVERHEAD_BYTES: usize = 16;

impl WriteSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, table: TableId, key: &[u8], value: impl Into<Box<[u8]>>) {
        self.change(table, key, Some(value.into()));
    }

    /// Removes `key`; a key that is not there is no error.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        self.change(table, key, None);
    }

    /// Adds `id` to the ids of `key`; an id that is there is no error.
    pub fn add_posting(&mut self, table: TableId, key: &[u8], id: u64) {
        self.edit(table, key, id, true);
    }

    /// Removes `id` from the ids of `key`; an id that is not there is no error.
    pub fn remove_posting(&mut self, table: TableId, key: &[u8], id: u64) {
        self.edit(table, key, id, false);
    }

    /// Adds ids to those of `key`, and removes some. In ascending order they cost the least.
    pub fn edit_postings(&mut self, table: TableId, key: &[u8], edits: &[(u64, bool)]) {
        let keys = self.postings.entry(table).or_default();
        let known = match keys.get_mut(key) {
            Some(known) => known,
            None => {
                self.bytes += RECORD_OVERHEAD_BYTES + key.len();
                keys.entry(Key::from_slice(key)).or_default()
            }
        };
        let new = edits.iter().filter(|(id, present)| known.set(*id, *present)).count();
        self.bytes += new * POSTING_OVERHEAD_BYTES;
    }

    /// Adds the changes of `later`, which count where both change the same.
    pub fn merge(&mut self, later: Self) {
        for (table, changes) in later.records {
            for (key, value) in changes {
                self.bytes += record_bytes(&key, value.as_deref());
                let replaced = self.records.entry(table).or_default().entry(key);
                if let Some(bytes) = replace(replaced, value) {
                    self.bytes -= bytes;
                }
            }
        }
        for (table, keys) in later.postings {
            for (key, edits) in keys {
                for (id, present) in edits.iter() {
                    self.edit(table, &key, id, present);
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.records.values().all(BTreeMap::is_empty) && self.postings.values().all(BTreeMap::is_empty)
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.postings.clear();
        self.bytes = 0;
    }

    /// About how much memory the changes take, in bytes; what a group of operations is capped by.
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The change to `key`: none, a new value, or a removal.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<Option<&[u8]>> {
        self.records.get(&table)?.get(key).map(Option::as_deref)
    }

    /// Takes back the new value of `key`, if there is one: the set no longer changes it.
    pub fn take(&mut self, table: TableId, key: &[u8]) -> Option<Box<[u8]>> {
        let value = self.records.get_mut(&table)?.remove(key)?;
        self.bytes -= record_bytes(key, value.as_deref());
        value
    }

    /// The changes to records of `table` in key order; a removal has no value.
    pub fn records(&self, table: TableId) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.records.get(&table).into_iter().flatten().map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    /// The changes to posting lists of `table` in key order.
    pub fn postings(&self, table: TableId) -> impl Iterator<Item = (&[u8], &PostingEdits)> {
        self.postings.get(&table).into_iter().flatten().map(|(key, edits)| (key.as_slice(), edits))
    }

    /// The tables with changes, ascending.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        let mut tables: Vec<TableId> = self.records.keys().chain(self.postings.keys()).copied().collect();
        tables.sort_unstable();
        tables.dedup();
        tables.into_iter()
    }

    pub(crate) fn record_range(&self, table: TableId, range: &KeyRange<'_>) -> RecordRange<'_> {
        self.records
            .get(&table)
            .filter(|_| !range.is_empty())
            .map(|changes| changes.range::<[u8], _>(bounds(range)))
    }

    pub(crate) fn posting_edits(&self, table: TableId, key: &[u8]) -> Option<&PostingEdits> {
        self.postings.get(&table)?.get(key)
    }

    pub(crate) fn posting_range(&self, table: TableId, range: &KeyRange<'_>) -> PostingRange<'_> {
        self.postings
            .get(&table)
            .filter(|_| !range.is_empty())
            .map(|keys| keys.range::<[u8], _>(bounds(range)))
    }

    fn change(&mut self, table: TableId, key: &[u8], value: Option<Box<[u8]>>) {
        self.bytes += record_bytes(key, value.as_deref());
        let entry = self.records.entry(table).or_default().entry(Key::from_slice(key));
        if let Some(bytes) = replace(entry, value) {
            self.bytes -= bytes;
        }
    }

    fn edit(&mut self, table: TableId, key: &[u8], id: u64, present: bool) {
        let keys = self.postings.entry(table).or_default();
        // Looked up before it is inserted: the second id of a key must not cost a copy of the key.
        let new = match keys.get_mut(key) {
            Some(edits) => edits.set(id, present),
            None => {
                self.bytes += RECORD_OVERHEAD_BYTES + key.len();
                let mut edits = PostingEdits::default();
                edits.set(id, present);
                keys.insert(Key::from_slice(key), edits);
                true
            }
        };
        if new {
            self.bytes += POSTING_OVERHEAD_BYTES;
        }
    }
}

pub(crate) type RecordRange<'a> = Option<btree_map::Range<'a, Key, Option<Box<[u8]>>>>;
pub(crate) type PostingRange<'a> = Option<btree_map::Range<'a, Key, PostingEdits>>;

fn bounds<'a>(range: &'a KeyRange<'_>) -> (std::ops::Bound<&'a [u8]>, std::ops::Bound<&'a [u8]>) {
    (range.start.as_ref().map(AsRef::as_ref), range.end.as_ref().map(AsRef::as_ref))
}

fn record_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    RECORD_OVERHEAD_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// Sets the value and returns the size of the change replaced.
fn replace(entry: btree_map::Entry<'_, Key, Option<Box<[u8]>>>, value: Option<Box<[u8]>>) -> Option<usize> {
    match entry {
        btree_map::Entry::Vacant(vacant) => {
            vacant.insert(value);
            None
        }
        btree_map::Entry::Occupied(mut occupied) => {
            let bytes = record_bytes(occupied.key(), occupied.get().as_deref());
            occupied.insert(value);
            Some(bytes)
        }
    }
}

/// Above this many ids a key's changes are kept in a tree: ids that come in descending order would otherwise cost
/// quadratic time.
const SMALL_EDITS_MAX: usize = 64;

/// The ids to add to one key and to remove from it, ascending.
#[derive(Clone, Debug)]
pub struct PostingEdits(Edits);

#[derive(Clone, Debug)]
enum Edits {
    Small(SmallVec<[(u64, bool); 2]>),
    Large(BTreeMap<u64, bool>),
}

impl PostingEdits {
    /// Each id that changes, ascending, and whether it is there afterwards.
    pub fn iter(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        self.range(0)
    }

    /// The same from the first id `>= min` on.
    pub fn range(&self, min: u64) -> impl Iterator<Item = (u64, bool)> + '_ {
        let (small, large) = match &self.0 {
            Edits::Small(edits) => {
                let start = edits.partition_point(|(id, _)| *id < min);
                (edits.get(start..), None)
            }
            Edits::Large(edits) => (None, Some(edits.range(min..))),
        };
        let small = small.into_iter().flatten().copied();
        small.chain(large.into_iter().flatten().map(|(id, present)| (*id, *present)))
    }

    /// Whether `id` is there afterwards; none if it does not change.
    pub fn get(&self, id: u64) -> Option<bool> {
        self.range(id).next().filter(|(found, _)| *found == id).map(|(_, present)| present)
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Edits::Small(edits) => edits.len(),
            Edits::Large(edits) => edits.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the id had no change before.
    fn set(&mut self, id: u64, present: bool) -> bool {
        let edits = match &mut self.0 {
            Edits::Large(edits) => return edits.insert(id, present).is_none(),
            Edits::Small(edits) => edits,
        };
        let position = edits.partition_point(|(other, _)| *other < id);
        if let Some((found, old)) = edits.get_mut(position)
            && *found == id
        {
            *old = present;
            return false;
        }
        if edits.len() < SMALL_EDITS_MAX {
            edits.insert(position, (id, present));
        } else {
            let mut large: BTreeMap<u64, bool> = edits.iter().copied().collect();
            large.insert(id, present);
            self.0 = Edits::Large(large);
        }
        true
    }
}

impl Default for PostingEdits {
    fn default() -> Self {
        Self(Edits::Small(SmallVec::new()))
    }
}

impl PartialEq for PostingEdits {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for PostingEdits {}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TableId = TableId(1);
    const P: TableId = TableId(2);

    #[test]
    fn later_change_counts() {
        let mut set = WriteSet::new();
        set.put(T, b"a", *b"1");
        set.put(T, b"b", *b"2");
        set.delete(T, b"a");
        let mut later = WriteSet::new();
        later.put(T, b"c", *b"3");
        later.put(T, b"b", *b"4");
        set.merge(later);
        let all: Vec<_> = set.records(T).collect();
        assert_eq!(all, [(&b"a"[..], None), (&b"b"[..], Some(&b"4"[..])), (&b"c"[..], Some(&b"3"[..]))]);
        assert_eq!(set.get(T, b"a"), Some(None));
        assert_eq!(set.get(T, b"x"), None);
    }

    #[test]
    fn posting_edits_stay_sorted_in_both_forms() {
        let mut set = WriteSet::new();
        for id in (0..500).rev() {
            set.add_posting(P, b"k", id);
            set.remove_posting(P, b"k", id / 2 * 2);
        }
        let edits = set.posting_edits(P, b"k").expect("edits");
        assert_eq!(edits.len(), 500);
        assert!(edits.iter().eq((0..500).map(|id| (id, id % 2 == 1))));
        assert_eq!(edits.get(3), Some(true));
        assert_eq!(edits.get(500), None);
    }

    #[test]
    fn byte_len_returns_to_zero_growth() {
        let mut set = WriteSet::new();
        set.put(T, b"key", vec![0; 100]);
        let once = set.byte_len();
        set.put(T, b"key", vec![1; 100]);
        assert_eq!(set.byte_len(), once);
        set.clear();
        assert_eq!((set.byte_len(), set.is_empty()), (0, true));
    }
}
