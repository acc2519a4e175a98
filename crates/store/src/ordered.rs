//! The small seam inside the embedded engines: ordered byte strings. The logic of posting blocks is written once on
//! it, and whatever implements it is a [`Snapshot`].

use std::borrow::Cow;

use crate::error::{CommitError, ReadError};
use crate::posting::{self, BlockCursor, KeyScan};
use crate::store::{KeyValue, Snapshot};
use crate::table::{
    Catalog, Direction, KEY_BYTES_MAX, KeyRange, POSTING_KEY_BYTES_MAX, TableId, TableKind, VALUE_BYTES_MAX,
};
use crate::write_set::WriteSet;

/// Reads of ordered byte strings. Tables of any kind are addressed alike: a table of postings by its block keys.
pub trait OrderedRead {
    type Records<'a>: Iterator<Item = Result<KeyValue<'a>, ReadError>>
    where
        Self: 'a;

    /// As [`Snapshot::IS_DISTANT`].
    const IS_DISTANT: bool = false;

    fn catalog(&self) -> &Catalog;

    fn version(&self) -> u64;

    fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError>;

    /// The values of several keys, in their order; no value of a key that could not be stored.
    fn values<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        let value = |key: &K| match check_key(self.catalog(), table, key.as_ref()) {
            Ok(()) => self.value(table, key.as_ref()),
            Err(_) => Ok(None),
        };
        keys.iter().map(value).collect()
    }

    /// The first record with a key `>= key`.
    fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError>;

    /// The last record with a key `<= key`.
    fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError>;

    fn records<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Records<'a>, ReadError>;
}

/// Writes of ordered byte strings, seen by the reads of the same value.
pub trait OrderedWrite: OrderedRead {
    fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError>;

    fn erase(&mut self, table: TableId, key: &[u8]) -> Result<(), CommitError>;
}

/// Applies a write set, table by table in key order.
pub fn apply<W: OrderedWrite>(target: &mut W, changes: &WriteSet) -> Result<(), CommitError> {
    for table in changes.tables() {
        for (key, value) in changes.records(table) {
            check_key(target.catalog(), table, key)?;
            match value {
                Some(value) if value.len() > VALUE_BYTES_MAX => {
                    return Err(CommitError::ValueLength { table, bytes: value.len() });
                }
                Some(value) => target.write(table, key, value)?,
                None => target.erase(table, key)?,
            }
        }
        for (key, edits) in changes.postings(table) {
            check_posting_key(target.catalog(), table, key)?;
            posting::edit(target, table, key, edits)?;
        }
    }
    Ok(())
}

/// Whether a record may have this key.
pub fn check_key(catalog: &Catalog, table: TableId, key: &[u8]) -> Result<(), CommitError> {
    let fits = match catalog.spec(table).map(|spec| spec.kind) {
        Some(TableKind::Integer) => key.len() == 8,
        Some(TableKind::Ordered) => (1..=KEY_BYTES_MAX).contains(&key.len()),
        Some(TableKind::Postings) | None => return Err(CommitError::WrongTable(table)),
    };
    if fits { Ok(()) } else { Err(CommitError::KeyLength { table, bytes: key.len() }) }
}

/// Whether a posting list may have this key.
pub fn check_posting_key(catalog: &Catalog, table: TableId, key: &[u8]) -> Result<(), CommitError> {
    match catalog.spec(table).map(|spec| spec.kind) {
        Some(TableKind::Postings) if (1..=POSTING_KEY_BYTES_MAX).contains(&key.len()) => Ok(()),
        Some(TableKind::Postings) => Err(CommitError::KeyLength { table, bytes: key.len() }),
        _ => Err(CommitError::WrongTable(table)),
    }
}

fn expect_records(catalog: &Catalog, table: TableId) -> Result<(), ReadError> {
    match catalog.spec(table).map(|spec| spec.kind) {
        Some(TableKind::Integer | TableKind::Ordered) => Ok(()),
        _ => Err(ReadError::WrongTable(table)),
    }
}

fn expect_postings(catalog: &Catalog, table: TableId) -> Result<(), ReadError> {
    match catalog.spec(table).map(|spec| spec.kind) {
        Some(TableKind::Postings) => Ok(()),
        _ => Err(ReadError::WrongTable(table)),
    }
}

impl<R: OrderedRead> Snapshot for R {
    type Scan<'a>
        = R::Records<'a>
    where
        Self: 'a;
    type Cursor<'a>
        = BlockCursor<'a, R>
    where
        Self: 'a;
    type PostingKeys<'a>
        = KeyScan<'a, R>
    where
        Self: 'a;

    const IS_DISTANT: bool = R::IS_DISTANT;

    fn commit_counter(&self) -> u64 {
        self.version()
    }

    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        expect_records(self.catalog(), table)?;
        if check_key(self.catalog(), table, key).is_err() {
            return Ok(None);
        }
        self.value(table, key)
    }

    fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        expect_records(self.catalog(), table)?;
        self.values(table, keys)
    }

    fn scan<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Scan<'a>, ReadError> {
        expect_records(self.catalog(), table)?;
        self.records(table, range, direction)
    }

    fn postings<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Self::Cursor<'a>, ReadError> {
        expect_postings(self.catalog(), table)?;
        BlockCursor::open(self, table, key)
    }

    fn posting_estimate(&self, table: TableId, key: &[u8]) -> Result<u64, ReadError> {
        expect_postings(self.catalog(), table)?;
        posting::count(self, table, key)
    }

    fn posting_head(
        &self,
        table: TableId,
        key: &[u8],
        limit: u64,
        out: &mut Vec<u64>,
    ) -> Result<u64, ReadError> {
        expect_postings(self.catalog(), table)?;
        posting::head(self, table, key, limit, out)
    }

    fn posting_keys<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::PostingKeys<'a>, ReadError> {
        expect_postings(self.catalog(), table)?;
        KeyScan::open(self, table, range, direction)
    }
}
