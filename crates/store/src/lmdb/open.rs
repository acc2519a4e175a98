//! Opening, for writing or for a tool that reads beside a serving process, and what is refused.

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use heed::{Env, EnvFlags, EnvOpenOptions, WithTls};
use rustix::fs::{FallocateFlags, FlockOperation, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::directory::{
    DATA_FILE, DirectoryLock, check_directory, is_open_for_writing, lock_directory, pause,
};
use super::errors::{address_space, corrupt, file_error, is_no_memory, lmdb_error, os_error};
use super::options::{LmdbOptions, MAP_BYTES_DEFAULT};
use super::owner::give_to_owner;
use super::parked::release_snapshots;
use super::room::Room;
use super::tables::{open_tables, page_bytes};
use super::{DamagedPage, LmdbStore, PageEvent, Readers, pages, replace};
use crate::error::{OpenError, ReadError};
use crate::store::Store as _;
use crate::table::{Catalog, TableSpec};

/// Where halving the map ends when the system has no address space to give.
const MAP_BYTES_FLOOR: usize = 1 << 30;
/// Where the address space is limited (`ulimit -v`), a map begins with this part of what is left of it: other databases and the threads need
/// some, too.
const ADDRESS_SPACE_PART: u64 = 4;

const _: () = assert!(MAP_BYTES_FLOOR < MAP_BYTES_DEFAULT);

/// Where LMDB has the size of a page: behind the page's header, magic, version, address and size of the map.
const PAGE_SIZE_AT: u64 = 40;
/// Free pages at the end need not be in the file: LMDB does not write them, and [`Room`] makes the file longer behind a commit. Other
/// programs leave fewer than these.
pub(super) const TAIL_BYTES_MAX: u64 = 1 << 20;

/// What LMDB's lock file takes: its head with the first reader, and each further one. The unit in which files have room.
const READERS_HEAD_BYTES: u64 = 192;
const READER_BYTES: u64 = 64;
const BLOCK_BYTES: u64 = 512;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// How often a reader tries to open files that are replaced while it does, or whose last commit is not known yet.
const READER_ATTEMPTS: u32 = 500;
/// How often a reader finds that a writer does not see it, before it believes that.
const UNSEEN_MAX: u32 = 20;
/// Pauses in which event loops of this process end the read transactions that they keep of a store that was closed, and of which each
/// holds the environment.
const KEPT_PAUSES: u32 = 500;

/// Whether a directory has a store, be it one that is put in its place when it is opened.
///
/// # Errors
/// The directory cannot be looked at.
pub fn is_there(directory: &Path) -> io::Result<bool> {
    Ok(directory.join(DATA_FILE).try_exists()? || replace::is_pending(directory)?)
}

pub(super) fn open(path: &Path, tables: &[TableSpec], options: &LmdbOptions) -> Result<LmdbStore, OpenError> {
    let catalog = Catalog::new(tables).map_err(|spec| OpenError::Table { name: spec.name })?;
    check_directory(path, options)?;
    if options.read_only {
        let (env, held) = open_for_reading(path, tables.len() as u32, options)?;
        let store = finish(path, env, catalog, options, None)?;
        return Ok(LmdbStore { _held: held, ..store });
    }
    let data = path.join(DATA_FILE);
    let found = || data.try_exists().map_err(|error| file_error(path, DATA_FILE, error));
    if !options.create && !found()? && !replace::is_pending(path).map_err(|error| os_error(path, error))? {
        return Err(OpenError::NotAStore { path: path.to_owned() });
    }
    let lock = lock_directory(path, options)?;
    open_locked(lock, catalog, options)
}

/// Opens for writing, in a directory that is locked and thereby settled.
pub(super) fn open_locked(
    lock: DirectoryLock,
    catalog: Catalog,
    options: &LmdbOptions,
) -> Result<LmdbStore, OpenError> {
    let path = lock.path().to_owned();
    let is_new = !path.join(DATA_FILE).try_exists().map_err(|error| file_error(&path, DATA_FILE, error))?;
    if is_new {
        if !options.create {
            return Err(OpenError::NotAStore { path });
        }
        // An empty store in the place of one that is lost looks like a store that was emptied.
        if let Some(left) = replace::left_over(&path).map_err(|error| os_error(&path, error))? {
            return Err(OpenError::Unfinished { path, left });
        }
    }
    let tables = catalog.specs().len() as u32;
    let env = match is_new {
        true => make(&path, tables, options).inspect_err(|_| remove_unmade(&path))?,
        false => open_for_writing(&path, tables, options)?,
    };
    give_to_owner(&path, &[DATA_FILE, replace::READERS_FILE]);
    finish(&path, env, catalog, options, Some(lock))
}

/// A new environment, whose first pages are on the disk.
fn make(path: &Path, tables: u32, options: &LmdbOptions) -> Result<Env<WithTls>, OpenError> {
    let env = open_for_writing(path, tables, options)?;
    set_file_mode(path, options.file_mode).map_err(|error| os_error(path, error))?;
    // LMDB has written its first pages. A power loss must not leave the file without them: it would be refused.
    let synced = File::open(path.join(DATA_FILE)).and_then(|data| data.sync_all());
    synced.map_err(|error| file_error(path, DATA_FILE, error))?;
    Ok(env)
}

/// Removes the data file that could not be made, as on a full disk: nothing is in it yet, and half of its first pages would be refused as
/// damaged.
fn remove_unmade(path: &Path) {
    let data = path.join(DATA_FILE);
    // A link is somebody else's.
    if fs::symlink_metadata(&data).is_ok_and(|found| found.is_file()) {
        let _ = fs::remove_file(&data);
    }
}

fn finish(
    path: &Path,
    env: Env<WithTls>,
    catalog: Catalog,
    options: &LmdbOptions,
    lock: Option<DirectoryLock>,
) -> Result<LmdbStore, OpenError> {
    let tables = open_tables(&env, path, &catalog, options)?;
    // Slots of processes that died would otherwise keep old pages from being reused.
    env.clear_stale_readers().map_err(|error| lmdb_error(path, error))?;
    let last = env.info().last_txn_id as u64;
    let data = path.join(DATA_FILE);
    let room = match options.read_only {
        true => None,
        false => Some(Mutex::new(Room::open(&data).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { path: path.to_owned(), holder: None },
            _ => file_error(path, DATA_FILE, error),
        })?)),
    };
    let page_bytes = page_bytes(&env, &tables).map_err(|error| lmdb_error(path, error))?;
    // LMDB has opened it by this name.
    let data = CString::new(data.into_os_string().into_encoded_bytes())
        .map_err(|error| file_error(path, DATA_FILE, error.into()))?;
    Ok(LmdbStore {
        env,
        tables,
        catalog,
        path: path.to_owned(),
        data,
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        commits: Arc::new(AtomicU64::new(last)),
        readers: Readers::default(),
        read_only: options.read_only,
        failed: AtomicBool::new(false),
        unusable: OnceLock::new(),
        full: AtomicBool::new(false),
        full_bytes: AtomicU64::new(0),
        disk_full: AtomicBool::new(false),
        written_bytes: AtomicU64::new(0),
        was_full: AtomicBool::new(false),
        map_full: AtomicBool::new(false),
        displaced: AtomicBool::new(false),
        writer: Mutex::new(()),
        room,
        page_bytes,
        _held: None,
        lock,
    })
}

/// The environment, with a lock file that belongs to the data. Another one, kept alive by a reader of a file that was here
/// before, however it was replaced, would name a root of other data.
fn open_for_writing(path: &Path, tables: u32, options: &LmdbOptions) -> Result<Env<WithTls>, OpenError> {
    let failed = |error| lmdb_error(path, error);
    let env = open_environment(path, tables, options)?;
    // LMDB mends here what a writer has left that was killed between its commit and telling of it.
    env.write_txn().map_err(failed)?.abort();
    if last_commit_is_visible(&env).map_err(failed)? {
        return Ok(env);
    }
    drop(env);
    replace::remove_readers_file(path).map_err(|error| os_error(path, error))?;
    let env = open_environment(path, tables, options)?;
    match last_commit_is_visible(&env).map_err(failed)? {
        true => Ok(env),
        false => Err(OpenError::Replaced { path: path.to_owned() }),
    }
}

/// The environment for a tool beside a serving process, and a file to hold until that is closed: the data file where LMDB cannot keep it
/// still, otherwise its lock file, since to close it gives up all locks of this process on it. The files may be replaced meanwhile, and
/// may be what a process left that was killed while it replaced them.
fn open_for_reading(
    path: &Path,
    tables: u32,
    options: &LmdbOptions,
) -> Result<(Env<WithTls>, Option<File>), OpenError> {
    let system = |error| os_error(path, error);
    let mut unseen = 0;
    for _ in 0..READER_ATTEMPTS {
        if replace::is_pending(path).map_err(system)? {
            mend(path, tables, false)?;
            continue;
        }
        let before = data_inode(path)?;
        let kept_still = keep_still(path)?;
        let env = match open_environment(path, tables, options) {
            // Of a file and the one that took its place meanwhile nothing can be said.
            Err(_) if is_pending_or_replaced(path, before).map_err(system)? => continue,
            opened => opened?,
        };
        give_to_owner(path, &[replace::READERS_FILE]);
        let agrees = last_commit_is_visible(&env).map_err(|error| lmdb_error(path, error))?;
        if agrees && !replace::is_pending(path).map_err(system)? && data_inode(path)? == before {
            let (held, is_seen) = match kept_still {
                None if !options.own_copy => {
                    // Who replaces the data removes this one first.
                    let file = File::open(path.join(replace::READERS_FILE)).ok();
                    let is_seen = file.as_ref().is_some_and(|file| is_seen_by_writer(path, file));
                    (file, is_seen)
                }
                // There is no writer, or none that could be in the way.
                held => (held, true),
            };
            if is_seen {
                return Ok((env, held));
            }
            drop((env, held));
            // A process that is closing the store gives up the lock file first.
            unseen += 1;
            if unseen > UNSEEN_MAX {
                return Err(OpenError::Unseen { path: path.to_owned() });
            }
            pause();
            continue;
        }
        // The process may open it again, for writing even.
        drop(env);
        if !agrees {
            mend(path, tables, true)?;
        }
    }
    Err(OpenError::Replaced { path: path.to_owned() })
}

/// Said of a data file.
const NO_ROOT: &str = "has no root of the last commit";

/// See [`LmdbStore::check_pages`].
pub(super) fn check_pages(path: &Path, report: &mut dyn FnMut(DamagedPage)) -> Result<(), OpenError> {
    let options = LmdbOptions::for_reading();
    check_directory(path, &options)?;
    let failed = |error| file_error(path, DATA_FILE, error);
    for _ in 0..READER_ATTEMPTS {
        let before = data_inode(path).ok();
        let opened = open_for_reading(path, 0, &options)?;
        let data = File::open(path.join(DATA_FILE)).map_err(failed)?;
        let found = data.metadata().map_err(failed)?;
        let reading = opened.0.read_txn().map_err(|error| lmdb_error(path, error))?;
        let mut on_event = |event: PageEvent| {
            if let PageEvent::Damaged(page) = event {
                report(page);
            }
            ControlFlow::Continue(())
        };
        // Another file may take the place in between, and a writer that commits twice takes the root away: then nothing is reported.
        let is_same = before == Some((found.dev(), found.ino()));
        if is_same && pages::check(&data, reading.id() as u64, &mut on_event).map_err(failed)? {
            return Ok(());
        }
    }
    Err(corrupt(path, format!("{DATA_FILE} {NO_ROOT}")))
}

/// See [`LmdbStore::check_last_commit`].
pub(super) fn check_last_commit(
    store: &LmdbStore,
    on_event: &mut pages::OnEvent<'_>,
) -> Result<(), ReadError> {
    let data = store.env.try_clone_inner_file().map_err(|error| store.read_error(error))?;
    for _ in 0..READER_ATTEMPTS {
        let snapshot = store.snapshot()?;
        if pages::check(&data, snapshot.version, on_event).map_err(ReadError::Io)? {
            return Ok(());
        }
    }
    Err(ReadError::Io(io::Error::other(format!("{DATA_FILE} {NO_ROOT}"))))
}

/// Whether a process that writes the store has this lock file open, where there is such a process. One that has another, because
/// somebody removed its own, does not see readers, and writes to their pages.
fn is_seen_by_writer(path: &Path, readers_file: &File) -> bool {
    // Everybody who has an environment open holds a lock on its lock file, which a lock for writing is in the way of. Where that
    // cannot be asked, nothing is known.
    let others = fcntl_getlk(readers_file, &Flock::from(FlockType::WriteLock));
    let is_alone = others.is_ok_and(|lock| lock.is_none());
    !(is_alone && is_open_for_writing(path))
}

/// On a file system that is mounted for reading alone LMDB does without its lock file. A process that has the directory mounted otherwise
/// would then write to pages that are being read. So that there is none, this locks the data file, as a writer does.
fn keep_still(path: &Path) -> Result<Option<File>, OpenError> {
    let mounted = rustix::fs::statvfs(path).map_err(|error| os_error(path, error.into()))?;
    if !mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(None);
    }
    let data = File::open(path.join(DATA_FILE)).map_err(|error| file_error(path, DATA_FILE, error))?;
    match rustix::fs::flock(&data, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Err(OpenError::ServedElsewhere { path: path.to_owned() }),
        // Without such locks on this file system there is no writer, who needs one.
        Ok(()) | Err(_) => Ok(Some(data)),
    }
}

/// Whether the file is not the one of before any more, or is going to be another one.
fn is_pending_or_replaced(path: &Path, before: (u64, u64)) -> io::Result<bool> {
    Ok(replace::is_pending(path)? || data_inode(path).ok() != Some(before))
}

/// Does what a writer does when it opens the store, unless one is there, whom this waits for.
fn mend(path: &Path, tables: u32, open: bool) -> Result<(), OpenError> {
    match lock_directory(path, &LmdbOptions::default()) {
        Ok(_lock) if open => {
            drop(open_for_writing(path, tables, &LmdbOptions::default())?);
            Ok(())
        }
        // Who locks a directory settles it.
        Ok(_) => Ok(()),
        Err(OpenError::InUse { .. }) => {
            pause();
            Ok(())
        }
        // One who may only read cannot mend anything.
        Err(OpenError::Permission { .. }) => Err(OpenError::Replaced { path: path.to_owned() }),
        Err(error) => Err(error),
    }
}

/// Whether readers begin with the last commit in the file.
fn last_commit_is_visible(env: &Env<WithTls>) -> heed::Result<bool> {
    let visible = env.read_txn()?.id();
    Ok(visible == env.info().last_txn_id)
}

/// Whether another file than this one has its name, or none.
pub(super) fn is_displaced(path: &CStr, data: &File) -> bool {
    match (rustix::fs::stat(path), rustix::fs::fstat(data)) {
        // Both as the file system says now: not each one keeps its numbers, as behind a process that was moved to another machine.
        (Ok(there), Ok(open)) => (there.st_dev, there.st_ino) != (open.st_dev, open.st_ino),
        (Err(Errno::NOENT), _) => true,
        // It cannot be looked at now.
        _ => false,
    }
}

fn data_inode(path: &Path) -> Result<(u64, u64), OpenError> {
    match fs::metadata(path.join(DATA_FILE)) {
        Ok(data) => Ok((data.dev(), data.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OpenError::NotAStore { path: path.to_owned() })
        }
        Err(error) => Err(file_error(path, DATA_FILE, error)),
    }
}

/// LMDB makes an empty store of an empty file. Nobody leaves one but a disk or a person that has lost what was in it, or a process that was
/// killed while it made the file.
fn refuse_empty_file(path: &Path) -> Result<(), OpenError> {
    // Whether it is there, and may be read, is seen when it is opened.
    match fs::metadata(path.join(DATA_FILE)) {
        Ok(data) if data.len() == 0 => Err(corrupt(
            path,
            format!(
                "{DATA_FILE} has no bytes: put a backup back, or remove the file to begin with an empty database"
            ),
        )),
        _ => Ok(()),
    }
}

/// A page that is not in the file would end the process when it is read, by SIGBUS. A file that ends before the last page of its commit
/// is a rare one, whose pages are looked at.
#[expect(clippy::host_endian_bytes, reason = "LMDB's file is in the machine's byte order")]
fn refuse_cut_file(path: &Path, env: &Env<WithTls>) -> Result<(), OpenError> {
    let failed = |error| file_error(path, DATA_FILE, error);
    let data = File::open(path.join(DATA_FILE)).map_err(failed)?;
    let mut page_bytes = [0; 4];
    data.read_exact_at(&mut page_bytes, PAGE_SIZE_AT).map_err(failed)?;
    let page_bytes = u64::from(u32::from_ne_bytes(page_bytes));
    let mut attempts = READER_ATTEMPTS;
    loop {
        // Before the length: the process that serves makes the file longer before it makes a page the last one.
        let found = env.info();
        let needed = page_bytes.saturating_mul((found.last_page_number as u64).saturating_add(1));
        let length = data.metadata().map_err(failed)?.len();
        if length >= needed {
            return Ok(());
        }
        let is_near = length.saturating_add(TAIL_BYTES_MAX) >= needed;
        if is_near && pages::is_tail_unused(&data).map_err(failed)? {
            return Ok(());
        }
        attempts -= 1;
        // That process may have committed twice meanwhile, and written to pages that were read here.
        if attempts == 0 || env.info().last_txn_id == found.last_txn_id {
            let what = format!(
                "{DATA_FILE} was cut, as by a copy that was broken off: it has {length} bytes of {needed}; put a backup back"
            );
            return Err(corrupt(path, what));
        }
    }
}

/// LMDB makes its lock file without room on the disk, and writes to a map of it: on a full disk that ends the process by SIGBUS. Where there
/// is room already, the file is not opened: to close it would give up the locks of this process on it.
fn make_room_for_readers(path: &Path, max_readers: u32) -> Result<(), OpenError> {
    let file = path.join(replace::READERS_FILE);
    let bytes = READERS_HEAD_BYTES + u64::from(max_readers.saturating_sub(1)) * READER_BYTES;
    let found = fs::metadata(&file).ok();
    if found.as_ref().is_some_and(|found| found.blocks().saturating_mul(BLOCK_BYTES) >= bytes) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&file);
    // What LMDB needs of it, LMDB says.
    let Ok(opened) = opened else { return Ok(()) };
    match rustix::fs::fallocate(&opened, FallocateFlags::empty(), 0, bytes) {
        // One that served before has room for as many readers as it had.
        Err(Errno::NOSPC | Errno::DQUOT) if found.as_ref().is_none_or(|found| found.len() == 0) => {
            // Half of it would look like one that served. Who cannot remove it has not made it.
            let _ = fs::remove_file(&file);
            Err(OpenError::Full { path: path.to_owned() })
        }
        // Not every file system can do it.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn open_environment(path: &Path, tables: u32, options: &LmdbOptions) -> Result<Env<WithTls>, OpenError> {
    refuse_empty_file(path)?;
    if !options.own_copy {
        make_room_for_readers(path, options.max_readers)?;
    }
    let mut flags = EnvFlags::empty();
    if options.read_only {
        flags |= EnvFlags::READ_ONLY;
    }
    if !options.read_ahead {
        flags |= EnvFlags::NO_READ_AHEAD;
    }
    if options.own_copy {
        flags |= EnvFlags::NO_LOCK;
    }
    let mut map_size = map_at_first(path, options.map_size);
    let mut pauses = KEPT_PAUSES;
    loop {
        let mut open = EnvOpenOptions::new();
        open.map_size(map_size).max_readers(options.max_readers).max_dbs(tables + 1);
        // SAFETY: of these flags LMDB calls `NO_LOCK` alone unsafe, and nobody changes a copy of this process. The file is changed by
        // LMDB alone: writers hold our lock file, readers of other processes come through LMDB's, and network file systems, where maps
        // are not coherent, were refused. Who changes the file by other means than LMDB is outside what can be
        // guarded against.
        let opened = unsafe { open.flags(flags).open(path) };
        match opened {
            Ok(env) => return refuse_cut_file(path, &env).map(|()| env),
            Err(heed::Error::Io(error)) if is_no_memory(&error) && map_size / 2 >= MAP_BYTES_FLOOR => {
                map_size /= 2;
            }
            Err(heed::Error::EnvAlreadyOpened) if pauses > 0 => {
                pauses -= 1;
                release_snapshots();
                pause();
            }
            Err(error) => return Err(lmdb_error(path, error)),
        }
    }
}

/// As wanted, or less where the address space is limited.
fn map_at_first(path: &Path, wanted: usize) -> usize {
    let Some(limit) = address_space() else { return wanted };
    let bytes = fs::metadata(path.join(DATA_FILE)).map_or(0, |file| file.len());
    map_within(limit.saturating_sub(address_space_in_use()), bytes, wanted)
}

/// The map of a file of so many bytes where so much address space is left. The file has room to double, if that can be had.
pub(super) fn map_within(left: u64, bytes: u64, wanted: usize) -> usize {
    let part = (left / ADDRESS_SPACE_PART).max(MAP_BYTES_FLOOR as u64);
    let doubled = bytes.saturating_mul(2).checked_next_power_of_two().unwrap_or(1 << 63);
    // A power of two is a multiple of a page, also when it is halved.
    let map = doubled.max(1 << part.ilog2());
    usize::try_from(map).map_or(wanted, |map| map.min(wanted))
}

/// What the process has taken of its address space; 0 where the system does not say so, as in a root directory without /proc.
fn address_space_in_use() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = |line: &str| -> Option<u64> {
        line.strip_prefix("VmSize:")?.trim().strip_suffix("kB")?.trim_end().parse().ok()
    };
    status.lines().find_map(size).map_or(0, |kilobytes| kilobytes.saturating_mul(1_024))
}

pub(super) fn set_file_mode(path: &Path, mode: u32) -> io::Result<()> {
    let mode = fs::Permissions::from_mode(mode);
    [DATA_FILE, replace::READERS_FILE]
        .iter()
        .try_for_each(|name| fs::set_permissions(path.join(name), mode.clone()))
}
