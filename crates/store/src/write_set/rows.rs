//! Changes to many records of one table, in key order and in one piece of memory.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use crate::table::{Direction, KeyRange};

/// A change to a record: its key, and its new value or none if it is removed.
pub(crate) type RecordChange<'a> = (&'a [u8], Option<&'a [u8]>);

/// Changes to records in ascending key order. They take no memory of their own, one by one: for thousands of records at once.
#[derive(Clone, Debug, Default)]
pub struct SortedRows {
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// A key was not above the one before it.
    is_unsorted: bool,
}

/// Where a row is: its key, directly behind it its value.
#[derive(Copy, Clone, Debug)]
struct Row {
    start: usize,
    key_end: usize,
    end: usize,
    is_put: bool,
}

impl SortedRows {
    /// With room for so many rows and bytes of keys and values.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), rows: Vec::with_capacity(rows), is_unsorted: false }
    }

    /// Appends a row whose key is `head` and `tail` joined; without a value the record is removed.
    pub fn push(&mut self, head: &[u8], tail: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(tail);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let row = Row { start, key_end, end: self.bytes.len(), is_put: value.is_some() };
        if let Some(last) = self.rows.last() {
            self.is_unsorted |= self.key(last) >= self.key(&row);
        }
        self.rows.push(row);
    }

    /// The rows in the order in which they came.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&[u8]>)> + Clone {
        self.rows.iter().map(|row| self.change(row))
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of keys and values.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the keys ascend and differ: only then [`Self::get`] finds them.
    pub fn is_sorted(&self) -> bool {
        !self.is_unsorted
    }

    /// The row with this key: a new value, or a removal.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let at = self.rows.binary_search_by(|row| self.key(row).cmp(key)).ok()?;
        self.rows.get(at).map(|row| self.change(row).1)
    }

    /// The first and the last key.
    pub(super) fn bounds(&self) -> Option<(&[u8], &[u8])> {
        Some((self.key(self.rows.first()?), self.key(self.rows.last()?)))
    }

    /// Whether `key` lies between the first and the last one.
    pub(super) fn spans(&self, key: &[u8]) -> bool {
        self.bounds().is_some_and(|(first, last)| first <= key && key <= last)
    }

    /// The rows whose keys are in `range`.
    pub(super) fn within(&self, range: &KeyRange<'_>) -> RowRange<'_> {
        let below = |key: &[u8], and_equal: bool| {
            self.rows.partition_point(|row| match self.key(row).cmp(key) {
                Ordering::Less => true,
                Ordering::Equal => and_equal,
                Ordering::Greater => false,
            })
        };
        let start = match &range.start {
            Bound::Unbounded => 0,
            Bound::Included(key) => below(key, false),
            Bound::Excluded(key) => below(key, true),
        };
        let end = match &range.end {
            Bound::Unbounded => self.rows.len(),
            Bound::Included(key) => below(key, true),
            Bound::Excluded(key) => below(key, false),
        };
        RowRange { rows: self, remaining: start..end }
    }

    fn key(&self, row: &Row) -> &[u8] {
        self.bytes.get(row.start..row.key_end).unwrap_or_default()
    }

    fn change(&self, row: &Row) -> RecordChange<'_> {
        let value = self.bytes.get(row.key_end..row.end).filter(|_| row.is_put);
        (self.key(row), value)
    }
}

/// Rows that follow each other.
#[derive(Debug)]
pub(super) struct RowRange<'a> {
    rows: &'a SortedRows,
    remaining: Range<usize>,
}

impl<'a> RowRange<'a> {
    fn at(&self, at: usize) -> Option<RecordChange<'a>> {
        self.rows.rows.get(at).map(|row| self.rows.change(row))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remaining.is_empty()
    }

    /// The next one, which stays.
    pub(super) fn peek(&self, direction: Direction) -> Option<RecordChange<'a>> {
        let at = match direction {
            _ if self.remaining.is_empty() => return None,
            Direction::Forward => self.remaining.start,
            Direction::Backward => self.remaining.end - 1,
        };
        self.at(at)
    }

    pub(super) fn take(&mut self, direction: Direction) -> Option<RecordChange<'a>> {
        let at = match direction {
            Direction::Forward => self.remaining.next(),
            Direction::Backward => self.remaining.next_back(),
        };
        self.at(at?)
    }
}
