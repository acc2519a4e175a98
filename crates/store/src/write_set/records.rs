//! The changes to the records of one table: single ones, and many in a row.

use std::ops::Bound;

use super::rows::{RecordChange, RowRange, SortedRows};
use super::single::{Changes, Single};
use super::{Key, bounds};
use crate::table::{Direction, KeyRange};

/// Fewer rows are single changes.
const ROWS_MIN: usize = 16;

/// What becomes of each key: a new value, or its removal.
///
/// Between the first and the last key of some rows there is no other change: they need not be compared with each other.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordChanges {
    single: Single,
    /// In key order.
    rows: Vec<SortedRows>,
}

impl RecordChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.rows.is_empty()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(value) = self.single.get(key) {
            return Some(value.as_deref());
        }
        self.rows.iter().find(|rows| rows.spans(key))?.get(key)
    }

    /// Makes a change, and returns how large the one was that it replaces.
    pub(super) fn set(&mut self, key: Key, value: Option<Box<[u8]>>) -> Option<usize> {
        self.dissolve_around(&key);
        let length = key.len();
        let replaced = self.single.insert(key, value)?;
        Some(bytes_of(length, replaced.as_deref()))
    }

    /// Takes a change back.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<Option<Box<[u8]>>> {
        self.dissolve_around(key);
        self.single.remove(key)
    }

    /// Makes many changes. Returns how large the ones were that they replace.
    pub(super) fn set_rows(&mut self, rows: SortedRows) -> usize {
        let overlaps = || {
            let Some((first, last)) = rows.bounds() else { return true };
            let span = (Bound::Included(first), Bound::Included(last));
            let meets =
                |other: &SortedRows| other.bounds().is_some_and(|(low, high)| low <= last && first <= high);
            self.single.range(span).next().is_some() || self.rows.iter().any(meets)
        };
        if rows.len() < ROWS_MIN || !rows.is_sorted() || overlaps() {
            return rows
                .iter()
                .filter_map(|(key, value)| self.set(Key::from_slice(key), value.map(Into::into)))
                .sum();
        }
        let at = self.rows.partition_point(|other| other.bounds() < rows.bounds());
        self.rows.insert(at, rows);
        0
    }

    /// All changes, to be made elsewhere.
    pub(super) fn into_parts(self) -> (Single, Vec<SortedRows>) {
        (self.single, self.rows)
    }

    /// All changes in key order.
    pub(super) fn iter(&self) -> Records<'_> {
        match self.rows.is_empty() {
            true => Records::Single(self.single.iter()),
            false => Records::Merged(self.range(&KeyRange::all(), Direction::Forward)),
        }
    }

    pub(super) fn range(&self, range: &KeyRange<'_>, direction: Direction) -> RecordRange<'_> {
        let mut rows: Vec<RowRange<'_>> = Vec::new();
        if !self.rows.is_empty() {
            rows.extend(self.rows.iter().map(|rows| rows.within(range)).filter(|rows| !rows.is_empty()));
            // The next ones are taken from the end.
            if direction == Direction::Forward {
                rows.reverse();
            }
        }
        let single = self.single.range(bounds(range));
        RecordRange { single, ahead: None, rows, direction }
    }

    /// Makes single changes of rows with this key in their midst.
    fn dissolve_around(&mut self, key: &[u8]) {
        if self.rows.is_empty() {
            return;
        }
        while let Some(at) = self.rows.iter().position(|rows| rows.spans(key)) {
            let rows = self.rows.remove(at);
            for (key, value) in rows.iter() {
                self.single.insert(Key::from_slice(key), value.map(Into::into));
            }
        }
    }
}

pub(super) fn record_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    bytes_of(key.len(), value)
}

/// The same of a key of this length.
fn bytes_of(key_length: usize, value: Option<&[u8]>) -> usize {
    super::RECORD_OVERHEAD_BYTES + key_length + value.map_or(0, <[u8]>::len)
}

/// All changes to the records of a table. Most tables of a commit have single changes alone.
#[derive(Debug)]
pub(super) enum Records<'a> {
    Single(Changes<'a>),
    Merged(RecordRange<'a>),
}

/// No change.
impl Default for Records<'_> {
    fn default() -> Self {
        Self::Single(Changes::default())
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordChange<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Single(changes) => changes.next(),
            Self::Merged(changes) => changes.next(),
        }
    }
}

/// Changes to records in one direction.
#[derive(Debug)]
pub(crate) struct RecordRange<'a> {
    single: Changes<'a>,
    /// A single change that was read before its turn.
    ahead: Option<RecordChange<'a>>,
    /// The next ones last; none of them is empty.
    rows: Vec<RowRange<'a>>,
    direction: Direction,
}

impl<'a> RecordRange<'a> {
    fn next_single(&mut self) -> Option<RecordChange<'a>> {
        match self.direction {
            Direction::Forward => self.single.next(),
            Direction::Backward => self.single.next_back(),
        }
    }
}

impl<'a> Iterator for RecordRange<'a> {
    type Item = RecordChange<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let single = self.ahead.take().or_else(|| self.next_single());
        let Some(rows) = self.rows.last_mut() else { return single };
        if let (Some((single_key, _)), Some((key, _))) = (&single, rows.peek(self.direction)) {
            let is_first = match self.direction {
                Direction::Forward => *single_key < key,
                Direction::Backward => *single_key > key,
            };
            if is_first {
                return single;
            }
        }
        self.ahead = single;
        let row = rows.take(self.direction);
        if rows.is_empty() {
            self.rows.pop();
        }
        row
    }
}
