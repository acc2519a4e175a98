//! An engine that fails where a test wants it to.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{CommitError, ReadError};
use crate::store::{CommitId, Durability, Snapshot, Statistics, Store, Transaction};
use crate::table::{Direction, KeyRange, TableId, TableSpec};
use crate::write_set::WriteSet;

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// As with another transaction that was first; nothing is committed.
    Conflict,
    /// No room; nothing is committed.
    Full,
    /// The operating system fails before the commit.
    Io,
    /// The sync fails: nothing is committed, and the store is read-only from then on.
    Sync,
}

/// Which commits fail, counted from 1 over the life of the store. Shared: a test keeps a clone and adds to it.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    inner: Arc<PlanState>,
}

#[derive(Debug, Default)]
struct PlanState {
    faults: Mutex<BTreeMap<u64, Fault>>,
    commits: AtomicU64,
}

impl FaultPlan {
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails commit number `commit`.
    pub fn at(self, commit: u64, fault: Fault) -> Self {
        self.faults().insert(commit, fault);
        self
    }

    /// Fails the next commit.
    pub fn next(&self, fault: Fault) {
        let next = self.commits() + 1;
        self.faults().insert(next, fault);
    }

    /// How many commits were tried.
    pub fn commits(&self) -> u64 {
        self.inner.commits.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Fault> {
        let commit = self.inner.commits.fetch_add(1, Ordering::AcqRel) + 1;
        self.faults().remove(&commit)
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Fault>> {
        self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Any store, with the faults of a plan.
#[derive(Debug)]
pub struct FaultStore<S> {
    inner: S,
    plan: FaultPlan,
    failed: AtomicBool,
}

impl<S: Store> FaultStore<S> {
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        Self { inner, plan, failed: AtomicBool::new(false) }
    }

    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Store> Store for FaultStore<S> {
    type Snapshot<'s> = S::Snapshot<'s>;
    type Transaction<'s> = FaultTransaction<'s, S>;
    type Loader<'s> = S::Loader<'s>;

    fn tables(&self) -> &[TableSpec] {
        self.inner.tables()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        self.inner.snapshot()
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(CommitError::ReadOnly { after_failed_sync: true });
        }
        Ok(FaultTransaction { store: self, inner: self.inner.transaction()? })
    }

    fn commit_counter(&self) -> u64 {
        self.inner.commit_counter()
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        self.inner.statistics()
    }

    fn sync(&self) -> Result<(), CommitError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(CommitError::ReadOnly { after_failed_sync: true });
        }
        self.inner.sync()
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        self.inner.loader()
    }

    fn live_loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        self.inner.live_loader()
    }

    fn is_read_only(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.inner.is_read_only()
    }
}

/// A transaction whose commit may be made to fail.
#[derive(Debug)]
pub struct FaultTransaction<'s, S: Store> {
    store: &'s FaultStore<S>,
    inner: S::Transaction<'s>,
}

impl<'s, S: Store> Snapshot for FaultTransaction<'s, S> {
    type Scan<'a>
        = <S::Transaction<'s> as Snapshot>::Scan<'a>
    where
        Self: 'a;
    type Cursor<'a>
        = <S::Transaction<'s> as Snapshot>::Cursor<'a>
    where
        Self: 'a;
    type PostingKeys<'a>
        = <S::Transaction<'s> as Snapshot>::PostingKeys<'a>
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

impl<S: Store> Transaction for FaultTransaction<'_, S> {
    fn commit(self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError> {
        match self.store.plan.take() {
            None => self.inner.commit(changes, durability),
            Some(Fault::Conflict) => Err(CommitError::Conflict),
            Some(Fault::Full) => Err(CommitError::Full),
            Some(Fault::Io) => Err(CommitError::Io(planned())),
            Some(Fault::Sync) => {
                self.store.failed.store(true, Ordering::Release);
                Err(CommitError::Sync(planned()))
            }
        }
    }
}

fn planned() -> io::Error {
    io::Error::other("a fault that was planned")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ORDERED, TABLES};
    use crate::memory::MemoryStore;

    #[test]
    fn faults_come_when_planned() {
        let plan = FaultPlan::new().at(2, Fault::Full).at(3, Fault::Conflict).at(4, Fault::Io);
        let store = FaultStore::new(MemoryStore::new(&TABLES).expect("open"), plan.clone());
        let commit = |key: &[u8]| {
            let mut set = WriteSet::new();
            set.put(ORDERED, key, *b"v");
            store.transaction()?.commit(&set, Durability::Sync)
        };
        assert!(commit(b"1").is_ok());
        assert!(matches!(commit(b"2"), Err(CommitError::Full)));
        assert!(matches!(commit(b"3"), Err(CommitError::Conflict)));
        assert!(matches!(commit(b"4"), Err(CommitError::Io(_))));
        assert!(commit(b"5").is_ok());
        assert!(!store.is_read_only());
        plan.next(Fault::Sync);
        assert!(matches!(commit(b"6"), Err(CommitError::Sync(_))));
        assert!(store.is_read_only());
        assert!(matches!(commit(b"7"), Err(CommitError::ReadOnly { after_failed_sync: true })));
        assert!(matches!(store.sync(), Err(CommitError::ReadOnly { .. })));
        let snapshot = store.snapshot().expect("reads go on");
        let keys = snapshot.scan(ORDERED, KeyRange::all(), Direction::Forward).expect("scan");
        let keys: Vec<_> = keys.map(|record| record.expect("record").0.into_owned()).collect();
        assert_eq!(keys, [b"1", b"5"]);
        assert_eq!(plan.commits(), 6);
    }
}
