//! A store in memory to which several handles commit, as several servers commit to a distributed one: for tests.
//!
//! A transaction reads what stood when it began and holds no lock. It commits if nothing was committed since, else it gets
//! [`CommitError::Conflict`]. A handle that [takes over](SharedStore::take_over) fences off those of before it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{CommitError, OpenError, ReadError};
use crate::memory::{MemoryLoader, MemoryRecords, MemorySnapshot, MemoryStore};
use crate::ordered::OrderedRead;
use crate::store::{CommitId, Durability, KeyValue, Snapshot, Statistics, Store, Transaction};
use crate::table::{Catalog, Direction, KeyRange, TableId, TableSpec};
use crate::write_set::WriteSet;

/// A handle of the store.
#[derive(Debug)]
pub struct SharedStore {
    common: Arc<Common>,
    /// Only handles of the latest epoch commit.
    epoch: u64,
}

#[derive(Debug)]
struct Common {
    store: MemoryStore,
    /// Raised while no commit is made: under the store's lock.
    epoch: AtomicU64,
    trips: AtomicU64,
}

impl SharedStore {
    /// The first handle of an empty store with these tables.
    ///
    /// # Errors
    /// Two tables of one name or number.
    pub fn new(tables: &[TableSpec]) -> Result<Self, OpenError> {
        let common =
            Common { store: MemoryStore::new(tables)?, epoch: AtomicU64::new(0), trips: AtomicU64::new(0) };
        Ok(Self { common: Arc::new(common), epoch: 0 })
    }

    /// Another handle with the same rights.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { common: Arc::clone(&self.common), epoch: self.epoch }
    }

    /// Another handle, which alone may commit from now on. Commits of those before it end with [`CommitError::Fenced`].
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn take_over(&self) -> Result<Self, CommitError> {
        let _no_commit = self.common.store.transaction()?;
        let epoch = self.common.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(Self { common: Arc::clone(&self.common), epoch })
    }

    /// How many round trips reads would have taken so far, through all handles.
    pub fn trips(&self) -> u64 {
        self.common.trips.load(Ordering::Relaxed)
    }

    fn is_fenced(&self) -> bool {
        self.common.epoch.load(Ordering::Acquire) != self.epoch
    }

    fn check_fence(&self) -> Result<(), CommitError> {
        if self.is_fenced() { Err(CommitError::Fenced) } else { Ok(()) }
    }
}

impl Store for SharedStore {
    type Snapshot<'s> = SharedSnapshot<'s>;
    type Transaction<'s> = SharedTransaction<'s>;
    type Loader<'s> = MemoryLoader<'s>;

    const SHARED: bool = true;

    fn tables(&self) -> &[TableSpec] {
        self.common.store.tables()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        Ok(SharedSnapshot { state: self.common.store.snapshot()?, common: &self.common })
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        self.check_fence()?;
        Ok(SharedTransaction { store: self, began: self.snapshot()? })
    }

    fn commit_counter(&self) -> u64 {
        self.common.store.commit_counter()
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        self.common.store.statistics()
    }

    fn sync(&self) -> Result<(), CommitError> {
        self.common.store.sync()
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        self.check_fence()?;
        self.common.store.loader()
    }

    fn is_read_only(&self) -> bool {
        self.is_fenced()
    }
}

/// What stood when it was taken.
#[derive(Debug)]
pub struct SharedSnapshot<'s> {
    state: MemorySnapshot<'s>,
    common: &'s Common,
}

/// An open transaction: what stood when it began.
#[derive(Debug)]
pub struct SharedTransaction<'s> {
    store: &'s SharedStore,
    began: SharedSnapshot<'s>,
}

impl SharedSnapshot<'_> {
    fn trip(&self) -> &MemorySnapshot<'_> {
        self.common.trips.fetch_add(1, Ordering::Relaxed);
        &self.state
    }
}

impl OrderedRead for SharedSnapshot<'_> {
    type Records<'a>
        = MemoryRecords<'a>
    where
        Self: 'a;

    const IS_DISTANT: bool = true;

    fn catalog(&self) -> &Catalog {
        self.state.catalog()
    }

    fn version(&self) -> u64 {
        self.state.version()
    }

    fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        self.trip().value(table, key)
    }

    fn values<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        self.trip().values(table, keys)
    }

    fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.trip().at_least(table, key)
    }

    fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.trip().at_most(table, key)
    }

    fn records<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Records<'a>, ReadError> {
        self.trip().records(table, range, direction)
    }
}

crate::read_through!(SharedTransaction<'s>.began, MemoryRecords<'a>, true);

impl Transaction for SharedTransaction<'_> {
    fn commit(self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError> {
        let Self { store, began } = self;
        let version = began.version();
        // Given back before the change, so that the tables are not copied for our own sake.
        drop(began);
        let current = store.common.store.transaction()?;
        store.check_fence()?;
        if current.commit_counter() != version {
            return Err(CommitError::Conflict);
        }
        current.commit(changes, durability)
    }
}
