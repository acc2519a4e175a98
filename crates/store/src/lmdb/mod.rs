//! The engine that serves: LMDB through `heed`, memory-mapped, one writer, readers without locks.
//!
//! docs/disk-format.md describes the files.

mod directory;
mod errors;
mod load;
mod open;
mod options;
mod owner;
mod pages;
mod parked;
mod readers;
mod replace;
mod room;
mod scan;
mod tables;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use heed::types::Bytes;
use heed::{
    Database, Env, EnvFlags, EnvInfo, FlagSetMode, MdbError, PutFlags, RoTxn, RwTxn, WithTls, WithoutTls,
};

use crate::error::{CommitError, ReadError};
use crate::ordered::{ChangeBlock, OrderedRead, OrderedWrite};
use crate::snapshot;
use crate::store::{CommitId, Durability, KeyValue, Statistics, Store, TableStatistics, Transaction};
use crate::table::{Catalog, Direction, KeyRange, TableId, TableKind, TableSpec};
use crate::write_set::WriteSet;

pub use directory::{DATA_FILE, DirectoryLock, wait_for_readers};
pub use load::LmdbLoader;
pub use open::is_there;
pub use options::{LmdbOptions, MAP_BYTES_DEFAULT, MAX_READERS_DEFAULT};
pub use owner::give_to_owner;
pub use pages::{DamagedPage, PageEvent};
use parked::{Begun, ReadTransaction};
pub use parked::{keep_snapshots, release_snapshots, rest_snapshots};
use readers::Readers;
pub use replace::{LOADING, Old, REPLACED_FILE, RESTORING, Replacement, UNPACKING};
use room::Room;
pub use scan::LmdbRecords;
pub use tables::FORMAT;

type Records = Database<'static, Bytes, Bytes>;

/// A directory with an LMDB environment.
pub struct LmdbStore {
    env: Env<WithTls>,
    /// In the order of the catalog; a store opened for reading may lack a table.
    tables: Vec<Option<Records>>,
    catalog: Catalog,
    path: PathBuf,
    /// Of the data file, as the system takes it: each commit asks.
    data: CString,
    /// Tells the stores of this process apart.
    number: u64,
    commits: Arc<AtomicU64>,
    readers: Readers,
    read_only: bool,
    /// Set by a failed sync.
    failed: AtomicBool,
    /// Set when LMDB could not write the root page of a commit, to the reason: it begins no transaction any more.
    unusable: OnceLock<String>,
    /// A commit found no room, and none as large has found some since.
    full: AtomicBool,
    /// Bytes that the largest of those was to write.
    full_bytes: AtomicU64,
    /// The disk had no room then: when it has some, commits find it.
    disk_full: AtomicBool,
    /// Bytes that the open transaction is to write.
    written_bytes: AtomicU64,
    /// One has found none since somebody asked.
    was_full: AtomicBool,
    /// The last one that found none came to the end of the map. Room on the disk does not help then.
    map_full: AtomicBool,
    /// Set when the data file was found to be another one than was opened.
    displaced: AtomicBool,
    /// Held by the one open transaction or loader of this process, and with it the right to set flags.
    writer: Mutex<()>,
    /// None of a store that is open for reading.
    room: Option<Mutex<Room>>,
    page_bytes: u64,
    /// What a reader holds of its files. Behind the environment, too.
    _held: Option<File>,
    /// Locked while the store is open for writing. Last, so that it is released after the environment is closed.
    lock: Option<DirectoryLock>,
}

impl fmt::Debug for LmdbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl LmdbStore {
    /// Opens or creates the store in the directory `path`, which exists.
    ///
    /// Unless `options.read_only` is set, an advisory lock keeps other processes from opening it for writing.
    pub fn open(
        path: impl AsRef<Path>,
        tables: &[TableSpec],
        options: &LmdbOptions,
    ) -> Result<Self, crate::error::OpenError> {
        open::open(path.as_ref(), tables, options)
    }

    /// Opens or creates the store in a directory that the caller has locked, and keeps locked.
    pub fn open_locked(
        lock: &DirectoryLock,
        tables: &[TableSpec],
        options: &LmdbOptions,
    ) -> Result<Self, crate::error::OpenError> {
        let catalog =
            Catalog::new(tables).map_err(|spec| crate::error::OpenError::Table { name: spec.name })?;
        open::open_locked(lock.clone(), catalog, &LmdbOptions { read_only: false, ..options.clone() })
    }

    /// Looks at every page of the store in the directory `path` as it stands in the file, without the map, which may be used by another
    /// process. A store with damaged pages is not to be read by LMDB.
    ///
    /// # Errors
    /// As of [`Self::open`] for reading.
    pub fn check_pages(
        path: &Path,
        report: &mut dyn FnMut(DamagedPage),
    ) -> Result<(), crate::error::OpenError> {
        open::check_pages(path, report)
    }

    /// The same of a store that is open, and that may go on to serve: a copy by LMDB ends the process at a damaged page. `on_event` ends it
    /// by `Break`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn check_last_commit(
        &self,
        on_event: &mut dyn FnMut(PageEvent) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        open::check_last_commit(self, on_event)
    }

    /// The directory of the files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lock of its directory, for who replaces its files: it stays locked until the last copy of this is dropped. None of a store
    /// that is open for reading.
    pub fn directory_lock(&self) -> Option<DirectoryLock> {
        self.lock.clone()
    }

    /// Copies a snapshot into `file` while the store serves, with `compact` without its free pages. See [`Self::check_last_commit`].
    pub fn copy_to(&self, file: &mut File, compact: bool) -> Result<(), ReadError> {
        let option = if compact { heed::CompactionOption::Enabled } else { heed::CompactionOption::Disabled };
        let _reading = self.readers.begin(self.number);
        self.env.copy_to_file(file, option).map_err(|error| self.read_error(error))
    }

    /// Gives the store's files another mode, as [`LmdbOptions::file_mode`] does when it is opened.
    ///
    /// # Errors
    /// Files of another owner.
    pub fn set_file_mode(&self, mode: u32) -> io::Result<()> {
        open::set_file_mode(&self.path, mode)
    }

    /// Frees the slots of readers whose process has died; returns how many there were.
    pub fn clear_stale_readers(&self) -> Result<usize, ReadError> {
        self.env.clear_stale_readers().map_err(|error| self.read_error(error))
    }

    fn records(&self, table: TableId) -> Result<Option<Records>, ReadError> {
        let position = self.catalog.position(table).and_then(|position| self.tables.get(position));
        position.copied().ok_or(ReadError::WrongTable(table))
    }

    fn is_integer(&self, table: TableId) -> bool {
        self.catalog.spec(table).is_some_and(|spec| spec.kind == TableKind::Integer)
    }

    fn is_appended(&self, table: TableId) -> bool {
        self.catalog.spec(table).is_some_and(|spec| spec.appended)
    }

    fn begin_write(&self) -> Result<(MutexGuard<'_, ()>, RwTxn<'_>), CommitError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.demand_writable()?;
        self.written_bytes.store(0, Ordering::Relaxed);
        let txn = self.env.write_txn().map_err(|error| self.write_error(error))?;
        // The commit that LMDB remembers is not in the file: somebody has written over it, and the roots there are of other pages.
        if txn.id().saturating_sub(1) != self.env.info().last_txn_id {
            return Err(self.displaced());
        }
        Ok((writer, txn))
    }

    fn demand_writable(&self) -> Result<(), CommitError> {
        match self.refusal() {
            Some(refusal) => Err(refusal),
            None if self.read_only => Err(CommitError::ReadOnly { after_failed_sync: false }),
            None => Ok(()),
        }
    }

    /// Why a store that was opened for writing takes no commit until it is opened again; `None` while it takes them.
    pub fn refusal(&self) -> Option<CommitError> {
        if self.displaced.load(Ordering::Acquire) {
            return Some(CommitError::Displaced);
        }
        if let Some(error) = self.unusable.get() {
            return Some(CommitError::Read(ReadError::Unusable { error: error.clone() }));
        }
        self.failed.load(Ordering::Acquire).then_some(CommitError::ReadOnly { after_failed_sync: true })
    }

    /// Whether the disk or the map had no room for a commit, and no more is known of since: a smaller commit may find
    /// some while larger ones do not. The store takes commits again as soon as there is room.
    pub fn is_full(&self) -> bool {
        let has_room = || self.disk_full.load(Ordering::Acquire) && self.bytes_left() >= ROOM_AGAIN_BYTES;
        self.full.load(Ordering::Acquire) && !has_room()
    }

    /// Whether it is full, or was since this was last asked.
    pub fn was_full(&self) -> bool {
        self.was_full.swap(false, Ordering::AcqRel) || self.is_full()
    }

    /// The size of the map, if the last commit that found no room came to its end: the store is to be opened with a larger one.
    pub fn full_map(&self) -> Option<u64> {
        self.map_full.load(Ordering::Acquire).then(|| self.env.info().map_size as u64)
    }

    /// Looks whether the data file still has its name. Where it has not, the store takes no commits any more: they would go to a file
    /// that nobody opens again.
    pub fn look_after_file(&self) -> Result<(), CommitError> {
        let Some(room) = &self.room else { return Ok(()) };
        let room = room.lock().unwrap_or_else(PoisonError::into_inner);
        if open::is_displaced(&self.data, room.file()) { Err(self.displaced()) } else { Ok(()) }
    }

    fn displaced(&self) -> CommitError {
        self.displaced.store(true, Ordering::Release);
        CommitError::Displaced
    }

    /// Commits `txn`, whose writer lock is held.
    fn commit(&self, txn: RwTxn<'_>, durability: Durability) -> Result<CommitId, CommitError> {
        self.set_durability(durability)?;
        self.look_after_file()?;
        txn.commit().map_err(|error| self.commit_error(error))?;
        let info = self.env.info();
        let done = self.publish(&info);
        if durability != Durability::NoSync {
            self.make_room(&info);
        }
        Ok(done)
    }

    /// For the next commits, while the writer's lock is held.
    fn make_room(&self, info: &EnvInfo) {
        let Some(room) = &self.room else { return };
        let pages = info.last_page_number as u64 + 1;
        room.lock().unwrap_or_else(PoisonError::into_inner).make(pages * self.page_bytes);
    }

    /// Tells readers of the last commit. LMDB does not count a transaction that changed nothing.
    fn publish(&self, info: &EnvInfo) -> CommitId {
        let last = info.last_txn_id as u64;
        let bytes = self.written_bytes.swap(0, Ordering::Relaxed);
        if self.commits.swap(last, Ordering::AcqRel) != last && self.full.load(Ordering::Acquire) {
            let is_full = bytes < self.full_bytes.load(Ordering::Acquire) && self.is_full();
            self.full.store(is_full, Ordering::Release);
        }
        CommitId(last)
    }

    fn set_durability(&self, durability: Durability) -> Result<(), CommitError> {
        let wanted = match durability {
            Durability::Sync => EnvFlags::empty(),
            Durability::NoMetaSync => EnvFlags::NO_META_SYNC,
            Durability::NoSync => EnvFlags::NO_SYNC,
        };
        for flag in [EnvFlags::NO_META_SYNC, EnvFlags::NO_SYNC] {
            let mode = if wanted.contains(flag) { FlagSetMode::Enable } else { FlagSetMode::Disable };
            // SAFETY: LMDB asks that one thread at a time sets flags: the caller holds `self.writer`, and nothing
            // else in this process sets flags of this environment. NO_SYNC is unsafe for the data on disk alone,
            // which is what `Durability::NoSync` says.
            unsafe { self.env.set_flags(flag, mode) }.map_err(|error| self.write_error(error))?;
        }
        Ok(())
    }

    fn read_error(&self, error: heed::Error) -> ReadError {
        match error {
            heed::Error::Mdb(MdbError::ReadersFull) => {
                ReadError::ReadersFull { max_readers: self.env.max_readers() }
            }
            heed::Error::Mdb(MdbError::BadRslot) => ReadError::SnapshotHeld,
            heed::Error::Mdb(MdbError::Panic) => self.unusable(error),
            error => ReadError::Io(into_io(error)),
        }
    }

    /// An error before the commit: nothing was written that counts.
    fn write_error(&self, error: heed::Error) -> CommitError {
        match error {
            heed::Error::Mdb(MdbError::MapFull) => self.no_room(true),
            // Smaller changes find room.
            heed::Error::Mdb(MdbError::TxnFull) => CommitError::Full,
            heed::Error::Mdb(MdbError::Panic) => CommitError::Read(self.unusable(error)),
            heed::Error::Io(error) if is_full(&error) => self.no_room(false),
            heed::Error::Io(error) if is_short_write(&error) && self.has_no_room() => self.no_room(false),
            error => CommitError::Io(into_io(error)),
        }
    }

    fn unusable(&self, error: heed::Error) -> ReadError {
        let error = self.unusable.get_or_init(|| into_io(error).to_string());
        ReadError::Unusable { error: error.clone() }
    }

    fn no_room(&self, in_map: bool) -> CommitError {
        self.map_full.store(in_map, Ordering::Release);
        self.disk_full.store(!in_map && self.has_no_room(), Ordering::Release);
        let bytes = self.written_bytes.load(Ordering::Relaxed);
        match self.full.load(Ordering::Acquire) {
            true => self.full_bytes.fetch_max(bytes, Ordering::AcqRel),
            false => self.full_bytes.swap(bytes, Ordering::AcqRel),
        };
        self.full.store(true, Ordering::Release);
        self.was_full.store(true, Ordering::Release);
        CommitError::Full
    }

    /// Whether the file system, or the limit on the size of files, has nothing left for us. LMDB tells a page that could be
    /// written only in part, which is what the last page before a full disk is, as an input/output error.
    fn has_no_room(&self) -> bool {
        self.bytes_left() < NO_ROOM_BYTES
    }

    /// What the file system, and the limit on the size of files, have left for us. A quota is not seen here.
    fn bytes_left(&self) -> u64 {
        let on_disk =
            rustix::fs::statvfs(&self.path).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        let length = std::fs::metadata(self.path.join(DATA_FILE)).map_or(0, |file| file.len());
        on_disk.min(limit.map_or(u64::MAX, |limit| limit.saturating_sub(length)))
    }

    /// The open transaction is to write so many bytes.
    fn writes(&self, bytes: usize) {
        self.written_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// An error of the commit itself; the writer's lock is held. With no room LMDB gives up before it writes the new root, or at that: then it
    /// begins no transaction any more, and whether the commit is on the disk is unknown. After any other failure it is unknown which
    /// pages of this and of earlier commits reached the disk: no commit may build on them.
    fn commit_error(&self, error: heed::Error) -> CommitError {
        if let Err(heed::Error::Mdb(MdbError::Panic)) = self.env.write_txn() {
            return CommitError::Read(self.unusable(error));
        }
        match self.write_error(error) {
            CommitError::Io(error) => {
                self.failed.store(true, Ordering::Release);
                CommitError::Sync(error)
            }
            error => error,
        }
    }
}

impl Store for LmdbStore {
    type Snapshot<'s> = LmdbSnapshot<'s>;
    type Transaction<'s> = LmdbTransaction<'s>;
    type Loader<'s> = LmdbLoader<'s>;

    fn tables(&self) -> &[TableSpec] {
        self.catalog.specs()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        let txn = parked::transaction(self.number, self.commit_counter(), || {
            let txn = self.env.clone().static_read_txn().map_err(|error| self.read_error(error))?;
            Ok(Begun::new(txn, Arc::clone(&self.commits), self.readers.begin(self.number)))
        })?;
        let version = txn.as_ref().as_ref().map_or(0, Begun::id);
        Ok(LmdbSnapshot { store: self, version, txn })
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        let (writer, txn) = self.begin_write()?;
        Ok(LmdbTransaction { store: self, txn, _writer: writer })
    }

    fn commit_counter(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        // Before this one's own.
        let oldest_read = self.readers.oldest();
        let snapshot = self.snapshot()?;
        let mut tables = Vec::new();
        let mut page_bytes = 0;
        for (spec, records) in self.catalog.specs().iter().zip(&self.tables) {
            let mut table = TableStatistics { name: spec.name, ..TableStatistics::default() };
            if let Some(records) = records {
                let stat = records.stat(snapshot.reader()?.txn).map_err(|error| self.read_error(error))?;
                page_bytes = u64::from(stat.page_size);
                table.records = stat.entries as u64;
                table.depth = stat.depth;
                table.branch_pages = stat.branch_pages as u64;
                table.leaf_pages = stat.leaf_pages as u64;
                table.overflow_pages = stat.overflow_pages as u64;
            }
            tables.push(table);
        }
        let info = self.env.info();
        // Two pages hold the roots, and the table of tables has a few of its own.
        let in_tables: u64 =
            tables.iter().map(|table| table.branch_pages + table.leaf_pages + table.overflow_pages).sum();
        let pages_used = info.last_page_number as u64 + 1;
        Ok(Statistics {
            tables,
            page_bytes,
            pages_used,
            pages_free: pages_used.saturating_sub(in_tables),
            map_bytes: info.map_size as u64,
            readers: info.number_of_readers,
            max_readers: info.maximum_number_of_readers,
            oldest_read,
            commit_counter: self.commit_counter(),
        })
    }

    fn sync(&self) -> Result<(), CommitError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.demand_writable()?;
        self.env.force_sync().map_err(|error| {
            self.failed.store(true, Ordering::Release);
            CommitError::Sync(into_io(error))
        })
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        LmdbLoader::begin(self, Durability::NoSync)
    }

    fn live_loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        LmdbLoader::begin(self, Durability::NoMetaSync)
    }

    fn is_read_only(&self) -> bool {
        self.read_only || self.refusal().is_some()
    }
}

/// A read transaction. It keeps pages from being reused: hold it for a batch or a slice, not longer.
pub struct LmdbSnapshot<'s> {
    store: &'s LmdbStore,
    version: u64,
    txn: ReadTransaction,
}

/// A write transaction.
pub struct LmdbTransaction<'s> {
    store: &'s LmdbStore,
    txn: RwTxn<'s>,
    _writer: MutexGuard<'s, ()>,
}

impl fmt::Debug for LmdbSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbSnapshot").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LmdbTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbTransaction").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl Transaction for LmdbTransaction<'_> {
    fn commit(mut self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError> {
        self.store.writes(changes.byte_len());
        snapshot::apply(&mut self, changes)?;
        let Self { store, txn, _writer } = self;
        store.commit(txn, durability)
    }
}

/// What both kinds of transaction read by.
#[derive(Clone, Copy)]
struct Reader<'a> {
    store: &'a LmdbStore,
    txn: &'a RoTxn<'a>,
}

impl<'a> Reader<'a> {
    fn value(self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        let Some(records) = self.store.records(table)? else { return Ok(None) };
        let value = if self.store.is_integer(table) {
            let Some(id) = be_id(key) else { return Ok(None) };
            records.get(self.txn, NativeId::new(id).bytes())
        } else {
            records.get(self.txn, key)
        };
        Ok(value.map_err(|error| self.store.read_error(error))?.map(Cow::Borrowed))
    }

    fn at_least(self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        let Some(records) = self.bytes_only(table)? else { return Ok(None) };
        let found = if key.is_empty() {
            records.first(self.txn)
        } else {
            records.get_greater_than_or_equal_to(self.txn, key)
        };
        self.found(found)
    }

    fn at_most(self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        let Some(records) = self.bytes_only(table)? else { return Ok(None) };
        if key.is_empty() {
            return Ok(None);
        }
        let found = records.get_lower_than_or_equal_to(self.txn, key);
        self.found(found)
    }

    /// Neighbours are looked up by blocks alone, whose tables are never of integers.
    fn bytes_only(self, table: TableId) -> Result<Option<Records>, ReadError> {
        if self.store.is_integer(table) {
            return Err(ReadError::WrongTable(table));
        }
        self.store.records(table)
    }

    fn found(
        self,
        found: heed::Result<Option<(&'a [u8], &'a [u8])>>,
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        let found = found.map_err(|error| self.store.read_error(error))?;
        Ok(found.map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value))))
    }

    fn records(
        self,
        table: TableId,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Result<LmdbRecords<'a>, ReadError> {
        match self.store.records(table)? {
            None => Ok(LmdbRecords::none(self.store)),
            Some(records) if self.store.is_integer(table) => {
                LmdbRecords::integers(self.store, records, self.txn, range, direction)
            }
            Some(records) => LmdbRecords::bytes(self.store, records, self.txn, range, direction),
        }
    }
}

impl LmdbSnapshot<'_> {
    #[inline]
    fn reader(&self) -> Result<Reader<'_>, ReadError> {
        // That of a snapshot is never ended before it.
        let open = self.txn.as_ref().as_ref().ok_or(ReadError::SnapshotHeld)?;
        let txn: &RoTxn<'_, WithTls> = open;
        Ok(Reader { store: self.store, txn })
    }
}

impl LmdbTransaction<'_> {
    #[inline]
    fn reader(&self) -> Result<Reader<'_>, ReadError> {
        let txn: &RoTxn<'_, WithoutTls> = &self.txn;
        Ok(Reader { store: self.store, txn })
    }
}

macro_rules! read_through_reader {
    ($type:ident, $version:expr) => {
        impl OrderedRead for $type<'_> {
            type Records<'a>
                = LmdbRecords<'a>
            where
                Self: 'a;

            fn catalog(&self) -> &Catalog {
                &self.store.catalog
            }

            fn version(&self) -> u64 {
                let version: fn(&Self) -> u64 = $version;
                version(self)
            }

            fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
                self.reader()?.value(table, key)
            }

            fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
                self.reader()?.at_least(table, key)
            }

            fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
                self.reader()?.at_most(table, key)
            }

            fn records<'a>(
                &'a self,
                table: TableId,
                range: KeyRange<'_>,
                direction: Direction,
            ) -> Result<Self::Records<'a>, ReadError> {
                self.reader()?.records(table, &range, direction)
            }
        }
    };
}

read_through_reader!(LmdbSnapshot, |snapshot| snapshot.version);
// A write transaction has the number that its commit will have.
read_through_reader!(LmdbTransaction, |transaction| (transaction.txn.id() as u64).saturating_sub(1));

impl OrderedWrite for LmdbTransaction<'_> {
    fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        if self.store.is_appended(table) {
            // A page that is filled in order is filled to its end, and nobody looks for the place of the record.
            match self.store.put(&mut self.txn, table, key, value, PutFlags::APPEND) {
                // Its place is further to the front.
                Err(CommitError::Unordered { .. }) => {}
                put => return put,
            }
        }
        self.store.put(&mut self.txn, table, key, value, PutFlags::empty())
    }

    fn change_first_block(
        &mut self,
        table: TableId,
        _list: &[u8],
        key: &[u8],
        change: &mut ChangeBlock<'_>,
    ) -> Result<bool, CommitError> {
        let store = self.store;
        // Blocks are of tables that are never of integers.
        let records = store.records(table)?.filter(|_| !store.is_integer(table));
        let Some(records) = records else { return Err(CommitError::WrongTable(table)) };
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(key), Bound::Unbounded);
        let mut found =
            records.range_mut(&mut self.txn, &bounds).map_err(|error| store.write_error(error))?;
        let first = found.next().transpose().map_err(|error| store.write_error(error))?;
        let Some(block) = change(first)? else { return Ok(false) };
        if first.is_none_or(|(key, _)| *key != *block.key) {
            drop(found);
            self.write(table, &block.key, &block.value)?;
            return Ok(true);
        }
        // SAFETY: the cursor stands at the record with this key, which nothing has changed since it was read. What is written is the
        // block's own memory, and no reference to what was read is used any more.
        let written = unsafe { found.put_current(block.key.as_slice(), block.value.as_slice()) };
        match written.map_err(|error| store.write_error(error))? {
            true => Ok(true),
            false => Err(store.write_error(heed::Error::Mdb(MdbError::NotFound))),
        }
    }

    fn erase(&mut self, table: TableId, key: &[u8]) -> Result<(), CommitError> {
        let Some(records) = self.store.records(table)? else { return Err(CommitError::WrongTable(table)) };
        let erased = if self.store.is_integer(table) {
            let id = be_id(key).ok_or(CommitError::KeyLength { table, bytes: key.len() })?;
            records.delete(&mut self.txn, NativeId::new(id).bytes())
        } else {
            records.delete(&mut self.txn, key)
        };
        erased.map(|_| ()).map_err(|error| self.store.write_error(error))
    }
}

impl LmdbStore {
    fn put(
        &self,
        txn: &mut RwTxn<'_>,
        table: TableId,
        key: &[u8],
        value: &[u8],
        flags: PutFlags,
    ) -> Result<(), CommitError> {
        let Some(records) = self.records(table)? else { return Err(CommitError::WrongTable(table)) };
        let put = if self.is_integer(table) {
            let id = be_id(key).ok_or(CommitError::KeyLength { table, bytes: key.len() })?;
            records.put_with_flags(txn, flags, NativeId::new(id).bytes(), value)
        } else {
            records.put_with_flags(txn, flags, key, value)
        };
        put.map_err(|error| match error {
            heed::Error::Mdb(MdbError::KeyExist) => CommitError::Unordered { table },
            error => self.write_error(error),
        })
    }
}

/// A key of LMDB's integer tables: in the machine's byte order, as the whole file is.
#[repr(align(8))]
struct NativeId([u8; 8]);

impl NativeId {
    #[expect(clippy::disallowed_methods, reason = "LMDB compares integer keys in the machine's byte order")]
    #[expect(clippy::host_endian_bytes, reason = "LMDB compares integer keys in the machine's byte order")]
    fn new(id: u64) -> Self {
        Self(id.to_ne_bytes())
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[expect(clippy::host_endian_bytes, reason = "LMDB compares integer keys in the machine's byte order")]
fn native_id(key: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(key.try_into().ok()?))
}

fn be_id(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// The ids in a range of 8-byte big-endian keys; its bounds may be of any length.
fn id_range(range: &KeyRange<'_>) -> (Bound<u64>, Bound<u64>) {
    let start = match &range.start {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) | Bound::Excluded(key) => {
            let (id, order) = padded(key);
            match (order, &range.start) {
                (std::cmp::Ordering::Greater, _) | (std::cmp::Ordering::Equal, Bound::Excluded(_)) => {
                    Bound::Excluded(id)
                }
                _ => Bound::Included(id),
            }
        }
    };
    let end = match &range.end {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) | Bound::Excluded(key) => {
            let (id, order) = padded(key);
            match (order, &range.end) {
                (std::cmp::Ordering::Less, _) | (std::cmp::Ordering::Equal, Bound::Excluded(_)) => {
                    Bound::Excluded(id)
                }
                _ => Bound::Included(id),
            }
        }
    };
    (start, end)
}

/// The id whose key begins as `key` does, and how `key` compares with that id's key.
fn padded(key: &[u8]) -> (u64, std::cmp::Ordering) {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(key) {
        *to = *from;
    }
    (u64::from_be_bytes(bytes), key.len().cmp(&8))
}

/// EIO: among others what LMDB makes of a short write.
fn is_short_write(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Less free space than this is a full disk: a commit writes at least a few pages.
const NO_ROOM_BYTES: u64 = 256 << 10;
/// With so much free space a disk that was full is not any more.
const ROOM_AGAIN_BYTES: u64 = 2 * NO_ROOM_BYTES;

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn into_io(error: heed::Error) -> io::Error {
    match error {
        heed::Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}
