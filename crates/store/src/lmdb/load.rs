//! Bulk load: every page is filled and written once.

use std::fmt;
use std::sync::MutexGuard;

use heed::{PutFlags, RwTxn};

use super::LmdbStore;
use crate::error::CommitError;
use crate::ordered::{OrderedRead, check_key, check_posting_key};
use crate::posting::BlockBuilder;
use crate::store::{CommitId, Durability, Loader, Store};
use crate::table::{Direction, KeyRange, TableId, VALUE_BYTES_MAX};
use crate::write_set::WriteSet;

/// Pages of a transaction stay in memory until its commit; this many bytes of records end one. More would touch fresh
/// memory for pages that are soon given back, and make the list longer in which each page is looked up.
const TRANSACTION_BYTES: usize = 1 << 20;

/// A bulk load into an [`LmdbStore`].
pub struct LmdbLoader<'s> {
    store: &'s LmdbStore,
    txn: Option<RwTxn<'s>>,
    bytes: usize,
    builders: Vec<BlockBuilder>,
    /// What is put together with the end.
    last: WriteSet,
    /// Of each transaction but the last.
    durability: Durability,
    _writer: MutexGuard<'s, ()>,
}

/// The transaction under way.
struct LoadTransaction<'l, 's> {
    store: &'s LmdbStore,
    txn: &'l mut Option<RwTxn<'s>>,
    bytes: &'l mut usize,
    durability: Durability,
}

impl LmdbStore {
    /// Copies all records of a view of another store with the same tables, posting blocks as they are, into this one, which is empty.
    /// Nothing is synced: for a copy that lasts no longer than the process.
    ///
    /// # Errors
    /// The view cannot be read, or there is no room.
    pub fn copy_unsynced(&self, from: &impl OrderedRead) -> Result<(), CommitError> {
        let mut loader = LmdbLoader::begin(self, Durability::NoSync)?;
        let LmdbLoader { txn, bytes, durability, .. } = &mut loader;
        let mut filling = LoadTransaction { store: self, txn, bytes, durability: *durability };
        for spec in self.tables() {
            for record in from.records(spec.id, KeyRange::all(), Direction::Forward)? {
                let (key, value) = record?;
                filling.append(spec.id, &key, &value)?;
            }
        }
        if let Some(txn) = loader.txn.take() {
            self.commit(txn, Durability::NoSync)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LmdbLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbLoader").field("store", &self.store).finish_non_exhaustive()
    }
}

impl<'s> LmdbLoader<'s> {
    pub(super) fn begin(store: &'s LmdbStore, durability: Durability) -> Result<Self, CommitError> {
        let (writer, txn) = store.begin_write()?;
        let builders = store.tables().iter().map(|_| BlockBuilder::default()).collect();
        Ok(Self {
            store,
            txn: Some(txn),
            bytes: 0,
            builders,
            last: WriteSet::new(),
            durability,
            _writer: writer,
        })
    }

    /// The builder of a table's postings, and where its blocks go.
    fn posting(
        &mut self,
        table: TableId,
    ) -> Result<(&mut BlockBuilder, LoadTransaction<'_, 's>), CommitError> {
        let Self { store, txn, bytes, builders, durability, .. } = self;
        let builder = store.catalog.position(table).and_then(|position| builders.get_mut(position));
        let builder = builder.ok_or(CommitError::WrongTable(table))?;
        Ok((builder, LoadTransaction { store, txn, bytes, durability: *durability }))
    }
}

impl LoadTransaction<'_, '_> {
    fn append(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        self.put(table, key, value, PutFlags::APPEND)
    }

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8], flags: PutFlags) -> Result<(), CommitError> {
        *self.bytes += key.len() + value.len();
        self.store.writes(*self.bytes);
        if *self.bytes > TRANSACTION_BYTES
            && let Some(full) = self.txn.take()
        {
            *self.bytes = 0;
            self.store.commit(full, self.durability)?;
        }
        let store = self.store;
        let txn = match self.txn {
            Some(txn) => txn,
            None => self.txn.insert(store.env.write_txn().map_err(|error| store.write_error(error))?),
        };
        store.put(txn, table, key, value, flags)
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
        let Self { store, txn, bytes, durability, .. } = self;
        LoadTransaction { store, txn, bytes, durability: *durability }.append(table, key, value)
    }

    fn append_posting(&mut self, table: TableId, key: &[u8], id: u64) -> Result<(), CommitError> {
        check_posting_key(&self.store.catalog, table, key)?;
        let (builder, mut filling) = self.posting(table)?;
        let mut emit = |key: &[u8], value: &[u8]| filling.append(table, key, value);
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
        let (builder, mut filling) = self.posting(table)?;
        let mut emit = |key: &[u8], value: &[u8]| filling.append(table, key, value);
        if builder.push_all(key, runs, &mut emit)? { Ok(()) } else { Err(CommitError::Unordered { table }) }
    }

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        check_key(&self.store.catalog, table, key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(CommitError::ValueLength { table, bytes: value.len() });
        }
        self.last.put(table, key, value);
        Ok(())
    }

    fn finish(mut self) -> Result<CommitId, CommitError> {
        let Self { store, txn, bytes, builders, last, durability, .. } = &mut self;
        let store = *store;
        for (spec, builder) in store.tables().iter().zip(builders) {
            let mut filling = LoadTransaction { store, txn, bytes, durability: *durability };
            builder.finish(&mut |key: &[u8], value: &[u8]| filling.append(spec.id, key, value))?;
        }
        let mut filling = LoadTransaction { store, txn, bytes, durability: *durability };
        for table in last.tables() {
            for (key, value) in last.records(table) {
                filling.put(table, key, value.unwrap_or_default(), PutFlags::empty())?;
            }
        }
        if let Some(txn) = self.txn.take() {
            store.commit(txn, self.durability)?;
        }
        // The sync takes the writer's lock, which is ours.
        store.env.force_sync().map_err(|error| store.commit_error(error))?;
        Ok(CommitId(store.commit_counter()))
    }
}
