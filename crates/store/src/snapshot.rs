//! What reads ordered byte strings is a [`Snapshot`], and what writes them takes write sets: records as they are, posting lists in
//! blocks.

use std::borrow::Cow;

use crate::ahead::Wanted;
use crate::error::{CommitError, ReadError};
use crate::ordered::{OrderedRead, OrderedWrite, check_key, check_posting_key};
use crate::posting::{self, BlockCursor, KeyScan};
use crate::store::Snapshot;
use crate::table::{Catalog, Direction, KeyRange, TableId, TableKind, VALUE_BYTES_MAX};
use crate::write_set::WriteSet;

/// Applies a write set: tables of records, then those of postings, each in key order.
pub fn apply<W: OrderedWrite>(target: &mut W, changes: &WriteSet) -> Result<(), CommitError> {
    for (table, records) in changes.all_records() {
        for (key, value) in records {
            check_key(target.catalog(), table, key)?;
            match value {
                Some(value) if value.len() > VALUE_BYTES_MAX => {
                    return Err(CommitError::ValueLength { table, bytes: value.len() });
                }
                Some(value) => target.write(table, key, value)?,
                None => target.erase(table, key)?,
            }
        }
    }
    for (table, postings) in changes.all_postings() {
        for (key, edits) in postings {
            check_posting_key(target.catalog(), table, key)?;
            posting::edit(target, table, key, edits)?;
        }
    }
    Ok(())
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

    fn fetch_ahead(&self, wanted: &[Wanted]) {
        self.fetch_wanted(wanted);
    }

    fn commit_counter(&self) -> u64 {
        self.version()
    }

    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        match self.catalog().spec(table).and_then(|spec| spec.kind.takes(key)) {
            Some(true) => self.value(table, key),
            Some(false) => Ok(None),
            None => Err(ReadError::WrongTable(table)),
        }
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
