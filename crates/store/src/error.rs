//! Errors by phase: opening, reading, committing.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::table::TableId;

/// A commit that was tried and got no answer, as its store numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// Why a read failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// What is stored under this table does not follow the disk format: damage, or a bug of ours.
    Corrupt { table: TableId, what: &'static str },
    /// The operating system or the engine failed.
    Io(io::Error),
    /// Every slot for concurrent snapshots is taken.
    ReadersFull { max_readers: u32 },
    /// This thread holds a snapshot of this store already; the engine allows one a thread.
    SnapshotHeld,
    /// The store no longer has the state that this snapshot shows: take another snapshot and read again. LMDB never
    /// answers so.
    Stale,
    /// The store cannot be reached now: its servers are down, or elect a leader. LMDB never answers so.
    Unavailable(io::Error),
    /// The root page of a commit could not be written: LMDB begins no transaction until the store is opened again.
    Unusable { error: String },
    /// The table was not declared when the store was opened, or is of another kind.
    WrongTable(TableId),
}

/// Why a commit failed. Nothing of the transaction is in the store, with one exception: [`Self::OutcomeUnknown`].
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// Another transaction was first: run the operations again on a new snapshot. LMDB never answers so.
    Conflict,
    /// The data file that is served was replaced, moved, removed or written over: what is committed would end with the process. The
    /// store is read-only until it is opened again.
    Displaced,
    /// Another handle has taken over the right to commit. This handle is read-only for good. LMDB never answers so.
    Fenced,
    /// Disk or quota or map is full. The store stays usable; try again when there is room.
    Full,
    /// The operating system or the engine failed before anything was made durable.
    Io(io::Error),
    /// A key is empty, too long, or of the wrong length for its table.
    KeyLength { table: TableId, bytes: usize },
    /// The answer to the commit was lost: whether it was made is unknown, and it may still be made.
    /// [`Store::outcome`](crate::Store::outcome) finds out. Not to be answered as success, nor as a plain failure. LMDB
    /// never answers so.
    OutcomeUnknown(Attempt),
    /// A posting id above the largest one allowed.
    PostingId(u64),
    /// Reading what is stored failed while changes were applied.
    Read(ReadError),
    /// The store was opened for reading, or has been read-only since a failed sync.
    ReadOnly { after_failed_sync: bool },
    /// The sync failed: what reached the disk is unknown. The store is read-only until it is opened again.
    Sync(io::Error),
    /// The store could not be reached before the commit was sent: it was not made. LMDB never answers so.
    Unavailable(io::Error),
    /// A bulk load got a key out of order, or the table is not empty.
    Unordered { table: TableId },
    /// A value is longer than the limit.
    ValueLength { table: TableId, bytes: usize },
    /// The table was not declared when the store was opened, or is of another kind.
    WrongTable(TableId),
}

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The store is open in this process already.
    AlreadyOpen { path: PathBuf },
    /// The file is not a store, or is damaged.
    Corrupt { path: PathBuf, what: String },
    /// No room to create the files.
    Full { path: PathBuf },
    /// Written by another version of the format.
    Format { path: PathBuf, found: u64, supported: u64 },
    /// Another process serves or writes this store.
    InUse { path: PathBuf, holder: Option<u32> },
    /// The operating system refused.
    Io { path: PathBuf, error: io::Error },
    /// No such directory.
    Missing { path: PathBuf },
    /// On a network file system memory maps and locks are not reliable.
    NetworkFileSystem { path: PathBuf, kind: &'static str },
    /// The path is not a directory.
    NotADirectory { path: PathBuf },
    /// There is no store in this directory and the options forbid to create one.
    NotAStore { path: PathBuf },
    /// The store's directory, or a file in it, may not be read or written by this user.
    Permission { path: PathBuf, directory: PathBuf, error: io::Error },
    /// The files were replaced while they were opened, or a process was killed that replaced them, and only who may write
    /// can mend it.
    Replaced { path: PathBuf },
    /// The directory is mounted for reading alone, and a process that has it mounted otherwise writes the store: it would not know of
    /// a reader here.
    ServedElsewhere { path: PathBuf },
    /// Two tables of one name or number, or a number too high: a bug of the caller.
    Table { name: &'static str },
    /// A process that writes the store has another lock file open than the one that is there: it would not know of a reader here.
    Unseen { path: PathBuf },
    /// No store, but what a restore or a load has left that did not come to its end.
    Unfinished { path: PathBuf, left: &'static str },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { table, what } => write!(f, "table {} is damaged: {what}", table.0),
            Self::Io(error) => write!(f, "reading the store failed: {error}"),
            Self::ReadersFull { max_readers } => {
                write!(f, "all {max_readers} reader slots of the store are taken")
            }
            Self::SnapshotHeld => f.write_str("this thread holds a snapshot of the store already"),
            Self::Stale => f.write_str("the store no longer has the state that was being read: try again"),
            Self::Unavailable(error) => write!(f, "the store cannot be reached: {error}"),
            Self::Unusable { error } => write!(
                f,
                "the disk refused the last page of a commit ({error}): nothing is read or written here until the server is started again"
            ),
            Self::WrongTable(table) => write!(f, "table {} is not declared for this use", table.0),
        }
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another transaction was first"),
            Self::Displaced => f.write_str(
                "data.mdb was replaced, moved, removed or written over behind the server, which takes no changes until it is started again",
            ),
            Self::Fenced => f.write_str("another server has taken over writing to this store"),
            Self::Full => f.write_str("no space left for the store"),
            Self::Io(error) => write!(f, "writing the store failed: {error}"),
            Self::KeyLength { table, bytes } => {
                write!(f, "a key of {bytes} bytes does not fit into table {}", table.0)
            }
            Self::OutcomeUnknown(_) => f.write_str(
                "the store did not answer the commit: it is unknown whether the changes were made",
            ),
            Self::PostingId(id) => write!(f, "posting id {id} is above the limit"),
            Self::Read(error) => write!(f, "{error}"),
            Self::ReadOnly { after_failed_sync: true } => {
                f.write_str("the store is read-only since a failed sync, until it is opened again")
            }
            Self::ReadOnly { after_failed_sync: false } => f.write_str("the store is open for reading only"),
            Self::Sync(error) => {
                write!(f, "the store could not be synced ({error}) and is read-only until it is opened again")
            }
            Self::Unavailable(error) => write!(f, "the store cannot be reached: {error}"),
            Self::Unordered { table } => {
                write!(f, "bulk load of table {}: key out of order or table not empty", table.0)
            }
            Self::ValueLength { table, bytes } => {
                write!(f, "a value of {bytes} bytes does not fit into table {}", table.0)
            }
            Self::WrongTable(table) => write!(f, "table {} is not declared for this use", table.0),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyOpen { path } => write!(f, "{}: already open in this process", path.display()),
            Self::Corrupt { path, what } => write!(f, "{}: not a store, or damaged: {what}", path.display()),
            Self::Full { path } => write!(f, "{}: no space left on device", path.display()),
            Self::Format { path, found, supported } => write!(
                f,
                "{}: format {found}, but this version reads and writes format {supported}; dump it with the \
                 version that wrote it and load it again",
                path.display()
            ),
            Self::InUse { path, holder: Some(pid) } if *pid == std::process::id() => write!(
                f,
                "{}: in use by process {pid}: where it is this one, which has the same directory by this path or another, give each database \
                 its own; where not, it is process {pid} of another container: wait until it has ended, or stop it",
                path.display()
            ),
            Self::InUse { path, holder: Some(pid) } => {
                write!(
                    f,
                    "{}: in use by process {pid}, a server or a tool: wait until it has ended, or stop it (kill {pid})",
                    path.display()
                )
            }
            Self::InUse { path, holder: None } => write!(
                f,
                "{}: in use by another process, a server or a tool (fuser {} says which): wait until it has ended, or stop it",
                path.display(),
                path.join("data.mdb").display()
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Missing { path } => write!(f, "{}: no such directory", path.display()),
            Self::NetworkFileSystem { path, kind } => write!(
                f,
                "{}: on a network file system ({kind}), where the store cannot be kept safely",
                path.display()
            ),
            Self::NotADirectory { path } => write!(f, "{}: not a directory", path.display()),
            Self::NotAStore { path } => write!(f, "{}: no store in this directory", path.display()),
            Self::Permission { path, directory, error }
                if error.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                write!(
                    f,
                    "{}: {error}; who writes the database has to write in {}: mount that for writing",
                    path.display(),
                    directory.display()
                )
            }
            Self::Permission { path, directory, error } => write!(
                f,
                "{}: {error}; the server's user has to own the directory and what is in it: chown -R USER: {}",
                path.display(),
                directory.display()
            ),
            Self::Replaced { path } => write!(
                f,
                "{}: its files are being replaced, or a restore or load was ended while it replaced them: start the \
                 server, or open it as the server's user, which completes that",
                path.display()
            ),
            Self::ServedElsewhere { path } => write!(
                f,
                "{}: mounted read-only here, while a server or a tool writes the database by another mount and would not know of a \
                 reader: read it by that mount, or read a snapshot of the file system or a backup",
                path.display()
            ),
            Self::Table { name } => write!(f, "table {name} is declared twice or numbered too high"),
            Self::Unseen { path } => write!(
                f,
                "{}: lock.mdb was removed or replaced while a server or a tool has the database open, which would write to the pages \
                 that are read here: start the server again",
                path.display()
            ),
            Self::Unfinished { path, left } => write!(
                f,
                "{}: there is no data.mdb, but {left}, so that no empty database is made here: carry out the restore or \
                 load again that was ended (a data.mdb.replaced is the database of before: rename it to data.mdb), or \
                 remove {left} to begin with an empty database",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ReadError {}
impl std::error::Error for CommitError {}
impl std::error::Error for OpenError {}

impl From<ReadError> for CommitError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::WrongTable(table) => Self::WrongTable(table),
            error => Self::Read(error),
        }
    }
}
