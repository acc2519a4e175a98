//! The directory of a store: what it has to be, and the right to write it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::errors::{corrupt, file_error, os_error};
use super::options::LmdbOptions;
use super::owner::give_to_owner;
use super::replace;
use crate::error::OpenError;

/// Locked by the process that may write. LMDB's own lock file lets several in.
const LOCK_FILE: &str = "larix.lock";

/// The file of the environment in its directory.
pub const DATA_FILE: &str = "data.mdb";

/// How often a writer tries to lock the data file, which others lock for a moment to learn whether there is a writer.
const WRITER_ATTEMPTS: u32 = 5;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn check_directory(path: &Path, options: &LmdbOptions) -> Result<(), OpenError> {
    match fs::metadata(path) {
        // No other machine writes there, and this one sees in its map what it wrote.
        Ok(metadata) if metadata.is_dir() && options.own_copy => return refuse_other_kinds(path),
        Ok(metadata) if metadata.is_dir() => refuse_other_kinds(path)?,
        Ok(_) => return Err(OpenError::NotADirectory { path: path.to_owned() }),
        Err(error) => return Err(os_error(path, error)),
    }
    match rustix::fs::statfs(path) {
        Ok(found) => match network_file_system(found.f_type as u64 & 0xffff_ffff) {
            Some(kind) => Err(OpenError::NetworkFileSystem { path: path.to_owned(), kind }),
            None => Ok(()),
        },
        Err(error) => Err(os_error(path, error.into())),
    }
}

/// Anything else than a file in the place of the data: a process that opens a pipe waits for its other end, and none of these
/// has pages.
fn refuse_other_kinds(path: &Path) -> Result<(), OpenError> {
    // Whether it is there, and may be read, is seen when it is opened.
    let Ok(found) = fs::metadata(path.join(DATA_FILE)).map(|found| found.file_type()) else { return Ok(()) };
    let kind = match found {
        _ if found.is_file() => return Ok(()),
        _ if found.is_dir() => "a directory",
        _ if found.is_fifo() => "a named pipe",
        _ if found.is_socket() => "a socket",
        _ => "a device",
    };
    Err(corrupt(path, format!("{DATA_FILE} is {kind}, not a file: put a backup back, or move it away")))
}

/// The data file for looking at its locks, where it is a file. It waits for nobody, whatever has taken its place.
fn open_data(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let data = options.open(path.join(DATA_FILE)).ok()?;
    data.metadata().is_ok_and(|found| found.is_file()).then_some(data)
}

/// File systems on which a map is not coherent between machines, by the magic numbers of statfs(2).
fn network_file_system(magic: u64) -> Option<&'static str> {
    const NETWORK: [(u64, &str); 9] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x00c3_6400, "Ceph"),
        (0x7375_7245, "Coda"),
        (0x0bd0_0bd0, "Lustre"),
    ];
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// The right to write a store's directory; given back when the last one of it is dropped.
/// [`LmdbStore::open`](super::LmdbStore::open) takes it for itself. A directory that is locked is settled: no replacement of its store is
/// half done.
#[derive(Clone, Debug)]
pub struct DirectoryLock(Arc<Locked>);

#[derive(Debug)]
struct Locked {
    file: File,
    path: PathBuf,
}

impl Drop for Locked {
    /// Closing the file would do, were it not for children that are between fork and exec on another thread: they hold
    /// the same open file, and with it the lock.
    fn drop(&mut self) {
        // The lock goes with the file at the latest when the process ends.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl DirectoryLock {
    /// Locks the directory, as opening its store for writing does.
    pub fn acquire(path: &Path, options: &LmdbOptions) -> Result<Self, OpenError> {
        check_directory(path, options)?;
        lock_directory(path, options)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

pub(super) fn lock_directory(path: &Path, options: &LmdbOptions) -> Result<DirectoryLock, OpenError> {
    let failed = |error| file_error(path, LOCK_FILE, error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(options.file_mode)
        .open(path.join(LOCK_FILE))
        .map_err(failed)?;
    give_to_owner(path, &[LOCK_FILE]);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // Who holds it is a courtesy; a file that cannot be read or parsed only costs the number.
            let holder = match file.read_to_string(&mut text) {
                Ok(_) => text.trim().parse().ok(),
                Err(_) => None,
            };
            return Err(OpenError::InUse { path: path.to_owned(), holder });
        }
        Err(error) => return Err(failed(error.into())),
    }
    if is_open_for_writing(path) {
        return Err(OpenError::InUse { path: path.to_owned(), holder: None });
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    written.map_err(failed)?;
    let lock = DirectoryLock(Arc::new(Locked { file, path: path.to_owned() }));
    replace::settle(path).map_err(|error| os_error(path, error))?;
    refuse_dangling_link(path)?;
    Ok(lock)
}

/// An administrator has put the file on another disk, which is not there: an empty store in its place would be served as if it were all
/// there is, and hide the other one later.
fn refuse_dangling_link(path: &Path) -> Result<(), OpenError> {
    let data = path.join(DATA_FILE);
    let is_link = fs::symlink_metadata(&data).is_ok_and(|found| found.is_symlink());
    match is_link && data.try_exists().is_ok_and(|is_there| !is_there) {
        true => Err(corrupt(
            path,
            format!(
                "{DATA_FILE} is a symbolic link to a file that is not there: mount its disk, or remove the link to begin with an empty \
                 database"
            ),
        )),
        false => Ok(()),
    }
}

/// Locks the data file as a store that is open for writing does.
pub(super) fn lock_as_writer(data: &File) -> Result<(), Errno> {
    let mut attempts = WRITER_ATTEMPTS;
    loop {
        attempts -= 1;
        match rustix::fs::flock(data, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if attempts > 0 => pause(),
            locked => return locked,
        }
    }
}

/// Whether a store has the data file open for writing though the lock file is free: somebody removed that of a process which still works.
/// A second writer would give the same ids to other entries.
pub(super) fn is_open_for_writing(directory: &Path) -> bool {
    // One that is not there yet, or may not be read, is looked at again where it is needed.
    let Some(data) = open_data(directory) else { return false };
    match lock_as_writer(&data) {
        Err(Errno::WOULDBLOCK) => true,
        Err(_) => false,
        Ok(()) => {
            // It goes with the file at the latest.
            let _ = rustix::fs::flock(&data, FlockOperation::Unlock);
            false
        }
    }
}

/// Waits, without a limit, until no process reads the store in `directory` by a read-only mount, which keeps writers out. Calls `waits`
/// first if it has to wait. Returns at once where a writer has the store: opening it reports that writer.
pub fn wait_for_readers(directory: &Path, waits: impl FnOnce()) {
    let Some(data) = open_data(directory) else { return };
    let lock = |operation| rustix::fs::flock(&data, operation);
    let is_locked = lock(FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    if is_locked && lock(FlockOperation::NonBlockingLockShared).is_ok() {
        waits();
        let _ = lock(FlockOperation::LockExclusive);
    }
    // It goes with the file at the latest.
    let _ = lock(FlockOperation::Unlock);
}

#[expect(clippy::disallowed_methods, reason = "no event tells that another process has opened the store")]
pub(super) fn pause() {
    std::thread::sleep(PAUSE);
}
