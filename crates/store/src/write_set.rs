//! Changes to apply together.

use std::collections::BTreeMap;
use std::collections::btree_map;

use smallvec::SmallVec;

use crate::table::{Direction, KeyRange, TableId};

mod records;
mod rows;
mod single;

pub(crate) use records::RecordRange;
use records::{RecordChanges, Records, record_bytes};
pub use rows::SortedRows;

/// Bytes of a key that take no memory of their own: most keys of a directory fit.
const KEY_BYTES: usize = 32;

/// A key of a change.
pub(crate) type Key = SmallVec<[u8; KEY_BYTES]>;

/// Puts, deletes and posting changes for one commit. The last change to a key, or to a (key, id) pair, counts.
///
/// A write set does not know the kinds of tables; a change that does not fit its table is refused at commit.
#[derive(Clone, Debug, Default)]
pub struct WriteSet {
    records: ByTable<RecordChanges>,
    postings: ByTable<BTreeMap<Key, PostingEdits>>,
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

    /// As [`Self::put`] and [`Self::delete`] for many keys of a table. Where nothing else between the first and the last of them
    /// changes, and they ascend, they cost much less than one by one.
    pub fn set_rows(&mut self, table: TableId, rows: SortedRows) {
        self.bytes += rows.iter().map(|(key, value)| record_bytes(key, value)).sum::<usize>();
        self.bytes -= self.records.with(table, |changes| changes.set_rows(rows));
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
        self.bytes += self.postings.with(table, |keys| {
            // Looked up before it is inserted: the second id of a long key must not cost a copy of the key. That of a short one
            // costs less than a second search.
            if key.len() > KEY_BYTES
                && let Some(known) = keys.get_mut(key)
            {
                let new = edits.iter().filter(|(id, present)| known.set(*id, *present)).count();
                return new * POSTING_OVERHEAD_BYTES;
            }
            let mut bytes = 0;
            let known = match keys.entry(Key::from_slice(key)) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(new) => {
                    bytes += RECORD_OVERHEAD_BYTES + key.len();
                    new.insert(PostingEdits::default())
                }
            };
            let new = edits.iter().filter(|(id, present)| known.set(*id, *present)).count();
            bytes + new * POSTING_OVERHEAD_BYTES
        });
    }

    /// Adds the changes of `later`, which count where both change the same.
    pub fn merge(&mut self, later: Self) {
        if self.is_empty() {
            *self = later;
            return;
        }
        for (table, changes) in later.records.0 {
            let (single, rows) = changes.into_parts();
            let (mut more, mut less) = (0, 0);
            self.records.with(table, |known| {
                single.into_each(|key, value| {
                    more += record_bytes(&key, value.as_deref());
                    less += known.set(key, value).unwrap_or_default();
                });
                for rows in rows {
                    more += rows.iter().map(|(key, value)| record_bytes(key, value)).sum::<usize>();
                    less += known.set_rows(rows);
                }
            });
            self.bytes = self.bytes + more - less;
        }
        for (table, keys) in later.postings.0 {
            for (key, edits) in keys {
                for (id, present) in edits.iter() {
                    self.edit(table, &key, id, present);
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        let (mut records, mut postings) = (self.records.0.iter(), self.postings.0.iter());
        records.all(|(_, changes)| changes.is_empty()) && postings.all(|(_, keys)| keys.is_empty())
    }

    /// Forgets all changes, and keeps the memory.
    pub fn clear(&mut self) {
        self.records.0.clear();
        self.postings.0.clear();
        self.bytes = 0;
    }

    /// About how much memory the changes take, in bytes; what a group of operations is capped by.
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The bytes of the longest new value of a record.
    pub fn longest_value(&self) -> usize {
        let values = self.all_records().flat_map(|(_, records)| records.filter_map(|(_, value)| value));
        values.map(<[u8]>::len).max().unwrap_or_default()
    }

    /// The change to `key`: none, a new value, or a removal.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<Option<&[u8]>> {
        self.records.get(table)?.get(key)
    }

    /// Takes back the new value of `key`, if there is one: the set no longer changes it.
    pub fn take(&mut self, table: TableId, key: &[u8]) -> Option<Box<[u8]>> {
        let value = self.records.get_mut(table)?.take(key)?;
        self.bytes -= record_bytes(key, value.as_deref());
        value
    }

    /// The changes to records of `table` in key order; a removal has no value.
    pub fn records(&self, table: TableId) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.records.get(table).map_or_else(Records::default, RecordChanges::iter)
    }

    /// The changes to posting lists of `table` in key order.
    pub fn postings(&self, table: TableId) -> impl Iterator<Item = (&[u8], &PostingEdits)> {
        self.postings.get(table).into_iter().flatten().map(|(key, edits)| (key.as_slice(), edits))
    }

    /// The tables whose records change, ascending, with what [`Self::records`] gives of each.
    pub(crate) fn all_records(
        &self,
    ) -> impl Iterator<Item = (TableId, impl Iterator<Item = (&[u8], Option<&[u8]>)>)> {
        self.records.0.iter().map(|(table, changes)| (*table, changes.iter()))
    }

    /// The tables whose posting lists change, ascending, with what [`Self::postings`] gives of each.
    pub(crate) fn all_postings(
        &self,
    ) -> impl Iterator<Item = (TableId, impl Iterator<Item = (&[u8], &PostingEdits)>)> {
        let postings = self.postings.0.iter();
        postings.map(|(table, keys)| (*table, keys.iter().map(|(key, edits)| (key.as_slice(), edits))))
    }

    /// Whether posting lists change whose keys begin so.
    pub fn edits_postings_below(&self, table: TableId, prefix: &[u8]) -> bool {
        let Some(keys) = self.postings.get(table) else { return false };
        let from = (std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded);
        keys.range::<[u8], _>(from).next().is_some_and(|(key, _)| key.starts_with(prefix))
    }

    /// The tables with changes, ascending.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        let (records, postings) = (self.records.0.iter(), self.postings.0.iter());
        let mut tables: SmallVec<[TableId; 16]> =
            records.map(|(table, _)| *table).chain(postings.map(|(table, _)| *table)).collect();
        tables.sort_unstable();
        tables.dedup();
        tables.into_iter()
    }

    pub(crate) fn record_range(
        &self,
        table: TableId,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Option<RecordRange<'_>> {
        self.records.get(table).filter(|_| !range.is_empty()).map(|changes| changes.range(range, direction))
    }

    pub(crate) fn posting_edits(&self, table: TableId, key: &[u8]) -> Option<&PostingEdits> {
        self.postings.get(table)?.get(key)
    }

    pub(crate) fn posting_range(&self, table: TableId, range: &KeyRange<'_>) -> PostingRange<'_> {
        self.postings
            .get(table)
            .filter(|_| !range.is_empty())
            .map(|keys| keys.range::<[u8], _>(bounds(range)))
    }

    fn change(&mut self, table: TableId, key: &[u8], value: Option<Box<[u8]>>) {
        self.bytes += record_bytes(key, value.as_deref());
        let replaced = self.records.with(table, |changes| changes.set(Key::from_slice(key), value));
        self.bytes -= replaced.unwrap_or_default();
    }

    fn edit(&mut self, table: TableId, key: &[u8], id: u64, present: bool) {
        self.edit_postings(table, key, &[(id, present)]);
    }
}

/// What there is for each table, ascending. A commit changes a handful of tables.
#[derive(Clone, Debug)]
struct ByTable<T>(Vec<(TableId, T)>);

impl<T> Default for ByTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> ByTable<T> {
    fn get(&self, table: TableId) -> Option<&T> {
        self.0.iter().find(|(own, _)| *own == table).map(|(_, it)| it)
    }

    fn get_mut(&mut self, table: TableId) -> Option<&mut T> {
        self.0.iter_mut().find(|(own, _)| *own == table).map(|(_, it)| it)
    }

    /// Changes what there is for a table, which may be nothing yet.
    fn with<A: Default>(&mut self, table: TableId, change: impl FnOnce(&mut T) -> A) -> A {
        let at = self.0.iter().position(|(own, _)| *own >= table).unwrap_or(self.0.len());
        if self.0.get(at).is_none_or(|(own, _)| *own != table) {
            self.0.insert(at, (table, T::default()));
        }
        self.0.get_mut(at).map(|(_, it)| change(it)).unwrap_or_default()
    }
}

pub(crate) type PostingRange<'a> = Option<btree_map::Range<'a, Key, PostingEdits>>;

fn bounds<'a>(range: &'a KeyRange<'_>) -> (std::ops::Bound<&'a [u8]>, std::ops::Bound<&'a [u8]>) {
    (range.start.as_ref().map(AsRef::as_ref), range.end.as_ref().map(AsRef::as_ref))
}

/// Two sets are equal if they make the same changes.
impl PartialEq for WriteSet {
    fn eq(&self, other: &Self) -> bool {
        let mut tables: Vec<TableId> = self.tables().chain(other.tables()).collect();
        tables.dedup();
        self.bytes == other.bytes
            && tables.into_iter().all(|table| {
                self.records(table).eq(other.records(table)) && self.postings(table).eq(other.postings(table))
            })
    }
}

impl Eq for WriteSet {}

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

    /// What [`Self::iter`] gives, if it is not much.
    pub(crate) fn few(&self) -> Option<&[(u64, bool)]> {
        match &self.0 {
            Edits::Small(edits) => Some(edits.as_slice()),
            Edits::Large(_) => None,
        }
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
    fn keys_of_any_length_take_several_ids() {
        for length in [1, KEY_BYTES, KEY_BYTES + 1, 3 * KEY_BYTES] {
            let (key, other) = (vec![b'k'; length], vec![b'l'; length]);
            let mut set = WriteSet::new();
            set.add_posting(P, &other, 1);
            set.edit_postings(P, &key, &[(3, true), (5, false)]);
            let once = set.byte_len();
            set.edit_postings(P, &key, &[(3, false), (4, true)]);
            assert_eq!(set.byte_len(), once + POSTING_OVERHEAD_BYTES, "{length}");
            let edits = set.posting_edits(P, &key).expect("edits");
            assert!(edits.iter().eq([(3, false), (4, true), (5, false)]), "{length}");
            assert_eq!(set.postings(P).count(), 2, "{length}");
        }
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

    /// Does the same to a set with rows and to one with single changes, and compares them after each step.
    #[test]
    fn rows_do_what_single_changes_do() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..300 {
            let (mut one, mut other) = (WriteSet::new(), WriteSet::new());
            for _ in 0..8 {
                let (first, step, count) = (random(200), 1 + random(3), random(40));
                let mut rows = SortedRows::with_capacity(4, 16);
                let mut single = WriteSet::new();
                for at in 0..count {
                    let key = format!("{:03}", first + at * step);
                    let value = (random(4) > 0).then(|| format!("{round} {at}"));
                    let (head, tail) = key.split_at(1);
                    rows.push(head.as_bytes(), tail.as_bytes(), value.as_deref().map(str::as_bytes));
                    single.change(T, key.as_bytes(), value.map(|value| value.into_bytes().into()));
                }
                let key = format!("{:03}", random(300));
                match random(4) {
                    0 => {
                        let mut later = WriteSet::new();
                        later.put(T, key.as_bytes(), *b"later");
                        later.set_rows(T, rows);
                        one.merge(later);
                        other.put(T, key.as_bytes(), *b"later");
                    }
                    _ => one.set_rows(T, rows),
                }
                other.merge(single);
                match random(3) {
                    0 => assert_eq!(one.take(T, key.as_bytes()), other.take(T, key.as_bytes())),
                    1 => (one.delete(T, key.as_bytes()), other.delete(T, key.as_bytes())).0,
                    _ => {}
                }
                assert_eq!(one.get(T, key.as_bytes()), other.get(T, key.as_bytes()), "{key}");
                assert_eq!(one, other);
                let (low, high) = (format!("{:03}", random(200)), format!("{:03}", random(400)));
                let range = KeyRange {
                    start: std::ops::Bound::Included(low.as_bytes().into()),
                    end: std::ops::Bound::Excluded(high.as_bytes().into()),
                };
                for direction in [Direction::Forward, Direction::Backward] {
                    let all = |set: &WriteSet| -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
                        let changes = set.record_range(T, &range, direction).into_iter().flatten();
                        changes.map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect()
                    };
                    let mut expected: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
                    for (key, value) in other.records(T) {
                        if low.as_bytes() <= key && key < high.as_bytes() {
                            expected.push((key.to_vec(), value.map(<[u8]>::to_vec)));
                        }
                    }
                    if direction == Direction::Backward {
                        expected.reverse();
                    }
                    assert_eq!(all(&one), expected);
                    assert_eq!(all(&other), expected);
                }
            }
        }
    }

    #[test]
    fn rows_that_do_not_ascend_are_single_changes() {
        let mut set = WriteSet::new();
        let mut rows = SortedRows::default();
        (0..20).rev().for_each(|n: u8| rows.push(&[], &[n], Some(&[n])));
        rows.push(&[], &[7], None);
        assert!(!rows.is_sorted());
        set.set_rows(T, rows);
        assert_eq!((set.get(T, &[7]), set.get(T, &[8])), (Some(None), Some(Some(&[8_u8][..]))));
        assert_eq!(set.records(T).count(), 20);
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
