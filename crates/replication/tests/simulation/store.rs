//! A store whose machine may die: what was committed and not synced is lost then, all of it or the last of it.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use larix_engine::tables::TABLES;
use larix_store::memory::{MemoryLoader, MemorySnapshot, MemoryStore, MemoryTransaction};
use larix_store::{
    CommitError, CommitId, Direction, Durability, KeyRange, ReadError, Snapshot, Statistics, Store, TableId,
    TableSpec, Transaction, WriteSet,
};

#[derive(Debug)]
pub(crate) struct Volatile {
    inner: MemoryStore,
    past: Mutex<Past>,
}

/// What was committed, in its order.
#[derive(Clone, Debug, Default)]
struct Past {
    commits: Vec<WriteSet>,
    /// So many of them stay whatever happens.
    synced: usize,
}

impl Volatile {
    pub(crate) fn new() -> Self {
        Self { inner: MemoryStore::new(&TABLES).unwrap(), past: Mutex::default() }
    }

    /// How many commits a machine that dies now may lose.
    pub(crate) fn at_risk(&self) -> usize {
        let past = self.past();
        past.commits.len() - past.synced
    }

    /// What is there after the machine died, which has lost so many commits.
    pub(crate) fn without_last(&self, lost: usize) -> Self {
        assert!(lost <= self.at_risk());
        let Past { mut commits, .. } = self.past().clone();
        commits.truncate(commits.len() - lost);
        let inner = MemoryStore::new(&TABLES).unwrap();
        for set in &commits {
            inner.transaction().unwrap().commit(set, Durability::Sync).unwrap();
        }
        let synced = commits.len();
        Self { inner, past: Mutex::new(Past { commits, synced }) }
    }

    fn past(&self) -> std::sync::MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Volatile {
    type Snapshot<'s> = MemorySnapshot<'s>;
    type Transaction<'s> = VolatileTransaction<'s>;
    type Loader<'s> = MemoryLoader<'s>;

    fn tables(&self) -> &[TableSpec] {
        self.inner.tables()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        self.inner.snapshot()
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        Ok(VolatileTransaction { store: self, inner: self.inner.transaction()? })
    }

    fn commit_counter(&self) -> u64 {
        self.inner.commit_counter()
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        self.inner.statistics()
    }

    fn sync(&self) -> Result<(), CommitError> {
        let mut past = self.past();
        past.synced = past.commits.len();
        Ok(())
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        panic!("nothing is loaded here")
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[derive(Debug)]
pub(crate) struct VolatileTransaction<'s> {
    store: &'s Volatile,
    inner: MemoryTransaction<'s>,
}

impl<'s> Snapshot for VolatileTransaction<'s> {
    type Scan<'a>
        = <MemoryTransaction<'s> as Snapshot>::Scan<'a>
    where
        Self: 'a;
    type Cursor<'a>
        = <MemoryTransaction<'s> as Snapshot>::Cursor<'a>
    where
        Self: 'a;
    type PostingKeys<'a>
        = <MemoryTransaction<'s> as Snapshot>::PostingKeys<'a>
    where
        Self: 'a;

    fn commit_counter(&self) -> u64 {
        self.inner.commit_counter()
    }

    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        self.inner.get(table, key)
    }

    fn scan<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Scan<'a>, ReadError> {
        self.inner.scan(table, range, direction)
    }

    fn postings<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Self::Cursor<'a>, ReadError> {
        self.inner.postings(table, key)
    }

    fn posting_estimate(&self, table: TableId, key: &[u8]) -> Result<u64, ReadError> {
        self.inner.posting_estimate(table, key)
    }

    fn posting_keys<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::PostingKeys<'a>, ReadError> {
        self.inner.posting_keys(table, range, direction)
    }
}

impl Transaction for VolatileTransaction<'_> {
    fn commit(self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError> {
        let mut past = self.store.past();
        let done = self.inner.commit(changes, durability)?;
        past.commits.push(changes.clone());
        if durability == Durability::Sync {
            past.synced = past.commits.len();
        }
        Ok(done)
    }
}
