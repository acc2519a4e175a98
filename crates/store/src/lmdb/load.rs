//! Bulk load: every page is filled and written once.

use std::fmt;
use std::sync::MutexGuard;

use heed::{PutFlags, RwTxn};

use super::LmdbStore;
use crate::error::CommitError;
use crate::ordered::{check_key, check_posting_key};
use crate::posting::BlockBuilder;
use crate::store::{CommitId, Durability, Loader, Store};
use crate::table::{TableId, VALUE_BYTES_MAX};

/// Pages of a transaction stay in memory until its commit; this many bytes of records end one. More would touch fresh
/// memory for pages that are soon given back, and make the list longer in which each page is looked up.
const TRANSACTION_BYTES: usize = 4 << 20;

/// A bulk load into an [`LmdbStore`].
pub struct LmdbLoader<'s> {
    store: &'s LmdbStore,
    txn: Option<RwTxn<'s>>,
    bytes: usize,
    builders: Vec<BlockBuilder>,
    _writer: MutexGuard<'s, ()>,
}

impl fmt::Debug for LmdbLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbLoader").field("store", &self.store).finish_non_exhaustive()
    }
}

impl<'s> LmdbLoader<'s> {
    pub(super) fn begin(store: &'s LmdbStore) -> Result<Self, CommitError> {
        let (writer, txn) = store.begin_write()?;
        let builders = store.tables().iter().map(|_| BlockBuilder::default()).collect();
        Ok(Self { store, txn: Some(txn), bytes: 0, builders, _writer: writer })
    }

    fn append_record(
        store: &'s LmdbStore,
        txn: &mut Option<RwTxn<'s>>,
        bytes: &mut usize,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), CommitError> {
        *bytes += key.len() + value.len();
        if *bytes > TRANSACTION_BYTES
            && let Some(full) = txn.take()
        {
            *bytes = 0;
            store.commit(full, Durability::NoSync)?;
        }
        let txn = match txn {
            Some(txn) => txn,
            None => txn.insert(store.env.write_txn().map_err(|error| store.write_error(error))?),
        };
        store.put(txn, table, key, value, PutFlags::APPEND)
    }
}

impl Loader for LmdbLoader<'_> {
    fn clear(&mut self, table: TableId) -> Result<(), CommitError> {
        let Some(records) = self.store.records(table)? else { return Err(CommitError::WrongTable(table)) };
        let txn = match &mut self.txn {
            Some(txn) => txn,
            None => {
                self.txn.insert(self.store.env.write_txn().map_err(|error| self.store.write_error(error))?)
            }
        };
        records.clear(txn).map_err(|error| self.store.write_error(error))
    }

    fn append(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        check_key(&self.store.catalog, table, key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(CommitError::ValueLength { table, bytes: value.len() });
        }
        Self::append_record(self.store, &mut self.txn, &mut self.bytes, table, key, value)
    }

    fn append_posting(&mut self, table: TableId, key: &[u8], id: u64) -> Result<(), CommitError> {
        check_posting_key(&self.store.catalog, table, key)?;
        let builder = self.store.catalog.position(table).and_then(|position| self.builders.get_mut(position));
        let Some(builder) = builder else { return Err(CommitError::WrongTable(table)) };
        let (store, txn, bytes) = (self.store, &mut self.txn, &mut self.bytes);
        let mut emit = |key: &[u8], value: &[u8]| Self::append_record(store, txn, bytes, table, key, value);
        if builder.push(key, id, &mut emit)? { Ok(()) } else { Err(CommitError::Unordered { table }) }
    }

    fn append_postings(
        &mut self,
        table: TableId,
        key: &[u8],
        ids: &mut dyn Iterator<Item = u64>,
    ) -> Result<(), CommitError> {
        self.append_posting_runs(table, key, &mut ids.map(|id| (id, 1)))
    }

    fn append_posting_runs(
        &mut self,
        table: TableId,
        key: &[u8],
        runs: &mut dyn Iterator<Item = (u64, u64)>,
    ) -> Result<(), CommitError> {
        check_posting_key(&self.store.catalog, table, key)?;
        let builder = self.store.catalog.position(table).and_then(|position| self.builders.get_mut(position));
        let Some(builder) = builder else { return Err(CommitError::WrongTable(table)) };
        let (store, txn, bytes) = (self.store, &mut self.txn, &mut self.bytes);
        let mut emit = |key: &[u8], value: &[u8]| Self::append_record(store, txn, bytes, table, key, value);
        if builder.push_all(key, runs, &mut emit)? { Ok(()) } else { Err(CommitError::Unordered { table }) }
    }

    fn finish(mut self) -> Result<CommitId, CommitError> {
        let (store, txn, bytes) = (self.store, &mut self.txn, &mut self.bytes);
        for (spec, builder) in store.tables().iter().zip(&mut self.builders) {
            builder.finish(&mut |key: &[u8], value: &[u8]| {
                Self::append_record(store, txn, bytes, spec.id, key, value)
            })?;
        }
        if let Some(txn) = self.txn.take() {
            store.commit(txn, Durability::NoSync)?;
        }
        // The sync takes the writer's lock, which is ours.
        store.env.force_sync().map_err(|error| store.commit_error(error))?;
        Ok(CommitId(store.commit_counter()))
    }
}
