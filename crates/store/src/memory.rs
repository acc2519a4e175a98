//! The engine in memory: for tests and for directories that need not outlive the process.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{CommitError, OpenError, ReadError};
use crate::ordered::{OrderedRead, OrderedWrite, check_key, check_posting_key};
use crate::posting::BlockBuilder;
use crate::snapshot;
use crate::store::{CommitId, Durability, KeyValue, Loader, Statistics, Store, TableStatistics, Transaction};
use crate::table::{Catalog, Direction, KeyRange, TableId, TableSpec};
use crate::write_set::WriteSet;

/// A store in memory.
///
/// A commit changes the tables in place while no snapshot is held, and copies each table that it changes (all of its
/// keys, with shared values) while one is.
#[derive(Debug)]
pub struct MemoryStore {
    /// Held by the one open transaction or loader.
    writer: Mutex<()>,
    current: Mutex<Arc<State>>,
    catalog: Arc<Catalog>,
    commits: AtomicU64,
}

type Table = BTreeMap<Box<[u8]>, Arc<[u8]>>;
type Range<'a> = btree_map::Range<'a, Box<[u8]>, Arc<[u8]>>;
/// A record's value before a change.
type Before = (TableId, Box<[u8]>, Option<Arc<[u8]>>);

#[derive(Clone, Debug)]
struct State {
    tables: Vec<Arc<Table>>,
    catalog: Arc<Catalog>,
    version: u64,
}

impl MemoryStore {
    /// An empty store with these tables.
    pub fn new(tables: &[TableSpec]) -> Result<Self, OpenError> {
        let catalog = Catalog::new(tables).map_err(|spec| OpenError::Table { name: spec.name })?;
        let catalog = Arc::new(catalog);
        let state = State {
            tables: tables.iter().map(|_| Arc::default()).collect(),
            catalog: Arc::clone(&catalog),
            version: 0,
        };
        Ok(Self {
            writer: Mutex::new(()),
            current: Mutex::new(Arc::new(state)),
            catalog,
            commits: AtomicU64::new(0),
        })
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&lock(&self.current))
    }
}

impl Store for MemoryStore {
    type Snapshot<'s> = MemorySnapshot<'s>;
    type Transaction<'s> = MemoryTransaction<'s>;
    type Loader<'s> = MemoryLoader<'s>;

    fn tables(&self) -> &[TableSpec] {
        self.catalog.specs()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        Ok(MemorySnapshot { state: self.state(), store: PhantomData })
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        let writer = lock(&self.writer);
        Ok(MemoryTransaction { store: self, state: self.state(), _writer: writer })
    }

    fn commit_counter(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        let state = self.state();
        let tables = self.catalog.specs().iter().zip(&state.tables);
        Ok(Statistics {
            tables: tables
                .map(|(spec, table)| TableStatistics {
                    name: spec.name,
                    records: table.len() as u64,
                    ..TableStatistics::default()
                })
                .collect(),
            commit_counter: state.version,
            ..Statistics::default()
        })
    }

    fn sync(&self) -> Result<(), CommitError> {
        Ok(())
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        let writer = lock(&self.writer);
        let state = self.state();
        Ok(MemoryLoader {
            store: self,
            state: (*state).clone(),
            builders: self.catalog.specs().iter().map(|_| BlockBuilder::default()).collect(),
            _writer: writer,
        })
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl State {
    fn table(&self, table: TableId) -> Result<&Table, ReadError> {
        let position = self.catalog.position(table).and_then(|position| self.tables.get(position));
        position.map(AsRef::as_ref).ok_or(ReadError::WrongTable(table))
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut Table, ReadError> {
        let position = self.catalog.position(table).and_then(|position| self.tables.get_mut(position));
        position.map(Arc::make_mut).ok_or(ReadError::WrongTable(table))
    }
}

impl OrderedRead for State {
    type Records<'a> = MemoryRecords<'a>;

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        Ok(self.table(table)?.get(key).map(|value| Cow::Borrowed(&**value)))
    }

    fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        let mut range = self.table(table)?.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        Ok(range.next().map(borrow))
    }

    fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        let mut range = self.table(table)?.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        Ok(range.next_back().map(borrow))
    }

    fn records<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Records<'a>, ReadError> {
        let table = self.table(table)?;
        if range.is_empty() {
            return Ok(MemoryRecords { range: None, direction });
        }
        let bounds = (range.start.as_ref().map(AsRef::as_ref), range.end.as_ref().map(AsRef::as_ref));
        Ok(MemoryRecords { range: Some(table.range::<[u8], _>(bounds)), direction })
    }
}

/// The records of a range.
#[derive(Debug)]
pub struct MemoryRecords<'a> {
    range: Option<Range<'a>>,
    direction: Direction,
}

impl<'a> Iterator for MemoryRecords<'a> {
    type Item = Result<KeyValue<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.range.as_mut()?;
        let record = match self.direction {
            Direction::Forward => range.next(),
            Direction::Backward => range.next_back(),
        };
        record.map(|record| Ok(borrow(record)))
    }
}

#[expect(clippy::borrowed_box, reason = "an item of the map")]
fn borrow<'a>((key, value): (&'a Box<[u8]>, &'a Arc<[u8]>)) -> KeyValue<'a> {
    (Cow::Borrowed(key), Cow::Borrowed(value))
}

/// The state of a [`MemoryStore`] at one moment.
#[derive(Debug)]
pub struct MemorySnapshot<'s> {
    state: Arc<State>,
    store: PhantomData<&'s MemoryStore>,
}

/// An open transaction of a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryTransaction<'s> {
    store: &'s MemoryStore,
    state: Arc<State>,
    _writer: MutexGuard<'s, ()>,
}

crate::read_through!(MemorySnapshot<'s>.state, MemoryRecords<'a>, false);
crate::read_through!(MemoryTransaction<'s>.state, MemoryRecords<'a>, false);
crate::read_through!(Applied<'s>.state, MemoryRecords<'a>, false);

impl Transaction for MemoryTransaction<'_> {
    fn commit(self, changes: &WriteSet, _: Durability) -> Result<CommitId, CommitError> {
        let Self { store, state, _writer } = self;
        // Given back before the change, so that the tables are not copied for our own sake.
        drop(state);
        let mut current = lock(&store.current);
        let mut applied = Applied { state: Arc::make_mut(&mut current), undo: Vec::new() };
        if let Err(error) = snapshot::apply(&mut applied, changes) {
            applied.undo();
            return Err(error);
        }
        let version = applied.state.version + 1;
        applied.state.version = version;
        store.commits.store(version, Ordering::Release);
        Ok(CommitId(version))
    }
}

/// A state being changed, with what it takes to go back.
struct Applied<'a> {
    state: &'a mut State,
    undo: Vec<Before>,
}

impl Applied<'_> {
    fn undo(mut self) {
        while let Some((table, key, value)) = self.undo.pop() {
            let Ok(table) = self.state.table_mut(table) else { continue };
            match value {
                Some(value) => table.insert(key, value),
                None => table.remove(&key),
            };
        }
    }
}

impl OrderedWrite for Applied<'_> {
    fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        let old = self.state.table_mut(table)?.insert(key.into(), value.into());
        self.undo.push((table, key.into(), old));
        Ok(())
    }

    fn erase(&mut self, table: TableId, key: &[u8]) -> Result<(), CommitError> {
        if let Some(old) = self.state.table_mut(table)?.remove(key) {
            self.undo.push((table, key.into(), Some(old)));
        }
        Ok(())
    }
}

/// A bulk load into a [`MemoryStore`]; dropped unfinished it leaves no trace.
#[derive(Debug)]
pub struct MemoryLoader<'s> {
    store: &'s MemoryStore,
    state: State,
    builders: Vec<BlockBuilder>,
    _writer: MutexGuard<'s, ()>,
}

impl MemoryLoader<'_> {
    fn append_record(state: &mut State, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        let records = state.table_mut(table)?;
        if records.last_key_value().is_some_and(|(last, _)| &**last >= key) {
            return Err(CommitError::Unordered { table });
        }
        records.insert(key.into(), value.into());
        Ok(())
    }
}

impl Loader for MemoryLoader<'_> {
    fn clear(&mut self, table: TableId) -> Result<(), CommitError> {
        self.state.table_mut(table)?.clear();
        Ok(())
    }

    fn append(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        check_key(&self.store.catalog, table, key)?;
        Self::append_record(&mut self.state, table, key, value)
    }

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        check_key(&self.store.catalog, table, key)?;
        self.state.table_mut(table)?.insert(key.into(), value.into());
        Ok(())
    }

    fn append_posting(&mut self, table: TableId, key: &[u8], id: u64) -> Result<(), CommitError> {
        check_posting_key(&self.store.catalog, table, key)?;
        let builder = self.store.catalog.position(table).and_then(|position| self.builders.get_mut(position));
        let Some(builder) = builder else { return Err(CommitError::WrongTable(table)) };
        let state = &mut self.state;
        let mut emit = |key: &[u8], value: &[u8]| Self::append_record(state, table, key, value);
        if builder.push(key, id, &mut emit)? { Ok(()) } else { Err(CommitError::Unordered { table }) }
    }

    fn finish(mut self) -> Result<CommitId, CommitError> {
        for (spec, builder) in self.store.catalog.specs().iter().zip(&mut self.builders) {
            let state = &mut self.state;
            builder
                .finish(&mut |key: &[u8], value: &[u8]| Self::append_record(state, spec.id, key, value))?;
        }
        self.state.version += 1;
        let version = self.state.version;
        *lock(&self.store.current) = Arc::new(self.state);
        self.store.commits.store(version, Ordering::Release);
        Ok(CommitId(version))
    }
}

/// A panic during a commit is a bug of ours; who catches it and goes on finds the commit half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
