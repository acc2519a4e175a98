//! Tables, key ranges and the limits every engine keeps.

use std::borrow::Cow;
use std::ops::Bound;

/// Longest key in an [`TableKind::Ordered`] table, in bytes. LMDB's own limit; every engine keeps it, so that data
/// moves between engines.
pub const KEY_BYTES_MAX: usize = 511;

/// Longest posting key in bytes: an engine may append the 8-byte first id of a block to it.
pub const POSTING_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - 8;

/// Largest id a posting list holds. The id above it is reserved for the header of a list.
pub const POSTING_ID_MAX: u64 = u64::MAX - 1;

/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 31;

/// Most tables in one store.
pub const TABLES_MAX: usize = 64;

const _: () = assert!(POSTING_KEY_BYTES_MAX + 8 == KEY_BYTES_MAX);
const _: () = assert!(TABLES_MAX <= 1 + u8::MAX as usize);

/// The number of a table, unique in its store and below [`TABLES_MAX`]. It is part of the disk format only through
/// the table's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u8);

/// What a table's keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Keys of 8 bytes: a `u64`, big-endian in this API whatever the engine stores.
    Integer,
    /// Keys of 1 to [`KEY_BYTES_MAX`] bytes in byte order.
    Ordered,
    /// A set of `u64` ids for each key of 1 to [`POSTING_KEY_BYTES_MAX`] bytes. No key of such a table may be a
    /// proper prefix of another one: terminate keys of variable length.
    Postings,
}

impl TableKind {
    /// Whether a record can have this key; `None` for a table of posting lists, which has no records.
    #[inline]
    pub(crate) fn takes(self, key: &[u8]) -> Option<bool> {
        match self {
            Self::Integer => Some(key.len() == 8),
            Self::Ordered => Some((1..=KEY_BYTES_MAX).contains(&key.len())),
            Self::Postings => None,
        }
    }
}

/// A table as the owner of a store declares it at open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSpec {
    pub id: TableId,
    pub name: &'static str,
    pub kind: TableKind,
    /// Nearly every new key comes behind all others: an engine need leave no room in what it has filled.
    pub appended: bool,
}

impl TableSpec {
    pub const fn new(id: TableId, name: &'static str, kind: TableKind) -> Self {
        Self { id, name, kind, appended: false }
    }

    /// The same table, whose keys nearly always come in order.
    pub const fn appended(self) -> Self {
        Self { appended: true, ..self }
    }
}

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Backward,
    Forward,
}

/// A range of keys. An empty bound is the same as none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    pub start: Bound<Cow<'a, [u8]>>,
    pub end: Bound<Cow<'a, [u8]>>,
}

impl<'a> KeyRange<'a> {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Keys that start with `prefix`.
    pub fn prefix(prefix: &'a [u8]) -> Self {
        let end = match prefix_end(prefix) {
            Some(end) => Bound::Excluded(Cow::Owned(end)),
            None => Bound::Unbounded,
        };
        Self { start: included(prefix), end }
    }

    /// Keys from `start` on, itself included.
    pub fn at_least(start: &'a [u8]) -> Self {
        Self { start: included(start), end: Bound::Unbounded }
    }

    /// Keys up to `end`, itself included.
    pub fn at_most(end: &'a [u8]) -> Self {
        Self { start: Bound::Unbounded, end: included(end) }
    }

    /// Keys from `start`, included, to `end`, excluded.
    pub fn between(start: &'a [u8], end: &'a [u8]) -> Self {
        Self { start: included(start), end: Bound::Excluded(Cow::Borrowed(end)) }
    }

    /// The same range without the keys up to and including `key`: where a scan resumes.
    pub fn after(mut self, key: &'a [u8]) -> Self {
        if self.starts_before(key) {
            self.start = Bound::Excluded(Cow::Borrowed(key));
        }
        self
    }

    /// The same range without the keys from `key` on: where a backward scan resumes.
    pub fn before(mut self, key: &'a [u8]) -> Self {
        if self.ends_after(key) {
            self.end = Bound::Excluded(Cow::Borrowed(key));
        }
        self
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.starts_before(key) && self.ends_after(key)
    }

    /// Whether no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            _ => false,
        }
    }

    pub(crate) fn starts_before(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => start.as_ref() <= key,
            Bound::Excluded(start) => start.as_ref() < key,
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key <= end.as_ref(),
            Bound::Excluded(end) => key < end.as_ref(),
            Bound::Unbounded => true,
        }
    }

    /// The range without borrows.
    pub fn into_owned(self) -> KeyRange<'static> {
        KeyRange { start: own(self.start), end: own(self.end) }
    }
}

/// The first key above every key that starts with `prefix`; none if there is no such key.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=keep)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}

fn included(key: &[u8]) -> Bound<Cow<'_, [u8]>> {
    if key.is_empty() { Bound::Unbounded } else { Bound::Included(Cow::Borrowed(key)) }
}

fn own(bound: Bound<Cow<'_, [u8]>>) -> Bound<Cow<'static, [u8]>> {
    bound.map(|key| Cow::Owned(key.into_owned()))
}

/// The index of tables by number that engines keep.
#[derive(Clone, Debug)]
pub struct Catalog {
    specs: Vec<TableSpec>,
    by_id: Vec<Option<usize>>,
}

impl Catalog {
    /// Errors with the table that is declared twice or is numbered too high.
    pub fn new(specs: &[TableSpec]) -> Result<Self, TableSpec> {
        let mut by_id = vec![None; TABLES_MAX];
        for (position, spec) in specs.iter().enumerate() {
            if specs.iter().filter(|other| other.name == spec.name).count() > 1 {
                return Err(*spec);
            }
            match by_id.get_mut(usize::from(spec.id.0)) {
                Some(slot @ None) => *slot = Some(position),
                _ => return Err(*spec),
            }
        }
        Ok(Self { specs: specs.to_vec(), by_id })
    }

    pub fn specs(&self) -> &[TableSpec] {
        &self.specs
    }

    /// The table's position among the declared ones.
    #[inline]
    pub fn position(&self, table: TableId) -> Option<usize> {
        self.by_id.get(usize::from(table.0)).copied().flatten()
    }

    #[inline]
    pub fn spec(&self, table: TableId) -> Option<&TableSpec> {
        self.specs.get(self.position(table)?)
    }
}
