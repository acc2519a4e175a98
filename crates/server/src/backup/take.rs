//! Makes backups: full copies, increments, streams.

use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

use larix_configuration::Config;
use larix_engine::database::check_format;
use larix_engine::log;
use larix_engine::tables::{ENTRIES, TABLES};
use larix_engine::time::Timestamp;
use larix_proto::ldif::Writer;
use larix_store::Store;
use larix_store::lmdb::{DATA_FILE, LmdbOptions, LmdbStore, PageEvent};
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use super::chain::{Chain, increment_name};
use super::copy_file::CopyFile;
use super::manifest::{DatabaseBackup, Manifest, Position, StoredFile};
use super::stream::StreamWriter;
use super::{
    BackupError, CONFIGURATION, INCREMENT_MANIFEST, MANIFEST, Pace, changes, hexadecimal, make_directory,
    sync_directory, write_private,
};

/// A database to be copied.
#[derive(Copy, Clone, Debug)]
pub struct Source<'s> {
    pub store: &'s LmdbStore,
    /// As configured.
    pub suffixes: &'s [String],
}

/// No group of changes takes longer from the CSN of its first change to its commit.
pub(super) const COMMIT_MARGIN_MICROS: i64 = 60_000_000;
/// Behind the name of a backup that is being made.
pub(super) const PART: &str = ".part";
/// Read from the copying thread at once.
const CHUNK: usize = 256 << 10;

/// Makes the directory `to` with a copy of every source. It is made beside and renamed: it has a whole backup or does not
/// exist. What a killed backup left beside is removed.
///
/// # Errors
/// Nothing is left behind.
pub fn take_full(
    config: &Config,
    sources: &[Source<'_>],
    to: &Path,
    pace: &mut Pace<'_>,
) -> Result<Manifest, BackupError> {
    if to.symlink_metadata().is_ok() {
        let mend = "a backup makes its directory; --incremental adds to one";
        return Err(BackupError::Exists { path: to.to_owned(), mend });
    }
    check_formats(sources)?;
    fill_and_rename(to, |part| {
        let mut databases = Vec::new();
        let configuration = write_configuration(config, part)?;
        let began = pace.now();
        for (number, source) in sources.iter().enumerate() {
            databases.push(copy(part, number + 1, source, pace)?);
        }
        let manifest = manifest((began, pace.now()), configuration, databases);
        manifest.write(&part.join(MANIFEST))?;
        Ok(manifest)
    })
}

/// Adds to the backup in `to` what was changed since the last one there.
///
/// # Errors
/// [`BackupError::NoFull`] when there is none, [`BackupError::NoIncrement`] when the change log does not lead on from it; nothing
/// is left behind.
pub fn take_increment(
    config: &Config,
    sources: &[Source<'_>],
    to: &Path,
    pace: &mut Pace<'_>,
) -> Result<Manifest, BackupError> {
    if !to.join(MANIFEST).exists() {
        return Err(BackupError::NoFull { path: to.to_owned() });
    }
    check_formats(sources)?;
    let _lock = lock(to)?;
    let chain = Chain::read(to)?;
    let last = chain.last();
    let mut pairs = Vec::new();
    for source in sources {
        let known = last.databases.iter().find(|known| is_same(known, source));
        pairs.push((
            source,
            known.ok_or_else(|| BackupError::NoIncrement {
                suffix: source.suffixes.join(", "),
                why: "the backup does not have it".to_owned(),
            })?,
        ));
    }
    if let Some(left_out) = last.databases.iter().find(|known| !sources.iter().any(|s| is_same(known, s))) {
        let why = "the configuration does not have it any more, or it was not chosen".to_owned();
        return Err(BackupError::NoIncrement { suffix: left_out.name(), why });
    }
    let directory = to.join(increment_name(chain.increments.len() + 1));
    fill_and_rename(&directory, |part| {
        let configuration = write_configuration(config, part)?;
        let began = pace.now();
        let mut databases = Vec::new();
        for (number, (source, known)) in pairs.iter().enumerate() {
            let name = PathBuf::from(format!("database-{}.changes", number + 1));
            databases.push(changes::write(source.store, known, (part, name), pace)?);
        }
        let mut manifest = manifest((began, pace.now()), configuration, databases);
        manifest.previous = Some(chain.last_digest().to_owned());
        manifest.write(&part.join(INCREMENT_MANIFEST))?;
        Ok(manifest)
    })
}

/// Writes a full backup as a stream; [`super::unpack`] makes a directory of it again.
///
/// # Errors
/// The reader of the stream sees that it is cut.
pub fn take_stream(
    config: &Config,
    sources: &[Source<'_>],
    out: &mut dyn Write,
    pace: &mut Pace<'_>,
) -> Result<Manifest, BackupError> {
    check_formats(sources)?;
    let began = pace.now();
    let mut out = StreamWriter::begin(out)?;
    let configuration = configuration(config);
    let stored = StoredFile::of_bytes(CONFIGURATION, &configuration);
    out.file(Path::new(CONFIGURATION), &configuration)?;
    let mut databases = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let path = PathBuf::from(format!("database-{}", number + 1)).join(DATA_FILE);
        out.begin_file(&path)?;
        let (bytes, sha256) = copy_through(source, pace, &mut |chunk| out.data(chunk))?;
        out.end_file()?;
        databases.push(DatabaseBackup {
            suffixes: source.suffixes.to_vec(),
            file: StoredFile { path, bytes, sha256 },
            // The copy has not been checked.
            entries: 0,
            context_csn: Vec::new(),
            history: None,
            positions: Vec::new(),
            last_record: None,
        });
    }
    let manifest = manifest((began, pace.now()), stored, databases);
    out.file(Path::new(MANIFEST), &manifest.to_bytes())?;
    out.end()?;
    Ok(manifest)
}

/// Of a store that this version does not understand, the manifest would say what is not so, and no restore would take it.
fn check_formats(sources: &[Source<'_>]) -> Result<(), BackupError> {
    for Source { store, .. } in sources {
        let failed = |error: &dyn std::fmt::Display| BackupError::database(store.path(), error);
        let snapshot = store.snapshot().map_err(|e| failed(&e))?;
        check_format::<LmdbStore>(&snapshot).map_err(|e| failed(&e))?;
    }
    Ok(())
}

fn manifest(
    (began, now): (Timestamp, Timestamp),
    configuration: StoredFile,
    databases: Vec<DatabaseBackup>,
) -> Manifest {
    // What was being committed when it began has earlier CSNs and may not be in it.
    let certain = Timestamp(began.0 - COMMIT_MARGIN_MICROS);
    let changed = databases.iter().filter(|database| database.last_csn().is_some());
    let own = changed.map(|database| database.last_own_csn().map_or(certain, |csn| csn.time.max(certain)));
    let covers = own.min().unwrap_or(certain);
    Manifest::new(now, covers, configuration, databases)
}

fn is_same(known: &DatabaseBackup, source: &Source<'_>) -> bool {
    known.suffixes.iter().any(|suffix| source.suffixes.iter().any(|own| own.eq_ignore_ascii_case(suffix)))
}

/// Fills a directory `NAME.part` and renames it to `NAME` once it is whole and on the disk. The name is on the disk, too, then.
fn fill_and_rename<T>(
    to: &Path,
    fill: impl FnOnce(&Path) -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    // Without the slash with which a shell completes the name.
    let to = to.components().as_path();
    let mut part = to.as_os_str().to_owned();
    part.push(PART);
    let part = PathBuf::from(part);
    if part.symlink_metadata().is_ok() {
        remove_left(&part)?;
    }
    make_directory(&part)?;
    let lock = lock(&part)?;
    let filled = fill(&part).and_then(|filled| {
        sync_directory(&part)?;
        fs::rename(&part, to).map_err(BackupError::io("make", to))?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or_else(|| Path::new("."))).inspect_err(|_| {
            // What is reported as failed must not look whole.
            let _ = fs::rename(to, &part);
        })?;
        Ok(filled)
    });
    if filled.is_err() {
        // What cannot be removed is removed by the next backup to the same place.
        let _ = fs::remove_dir_all(&part);
    }
    drop(lock);
    filled
}

/// Removes what a killed backup left.
///
/// # Errors
/// [`BackupError::Busy`] if it is still being made: who makes it holds it locked.
pub(crate) fn remove_left(part: &Path) -> Result<(), BackupError> {
    let _left = lock(part)?;
    fs::remove_dir_all(part).map_err(BackupError::io("remove", part))
}

/// A directory in which no other process works.
fn lock(path: &Path) -> Result<File, BackupError> {
    let directory = File::open(path).map_err(BackupError::io("read", path))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BackupError::Busy { path: path.to_owned() }),
        Err(error) => Err(BackupError::io("lock", path)(error.into())),
    }
}

fn write_configuration(config: &Config, directory: &Path) -> Result<StoredFile, BackupError> {
    let text = configuration(config);
    write_private(&directory.join(CONFIGURATION), &text)?;
    Ok(StoredFile::of_bytes(CONFIGURATION, &text))
}

fn configuration(config: &Config) -> Vec<u8> {
    let writer = Writer::new(None);
    let mut text = Vec::new();
    for entry in config.entries() {
        writer.value(&mut text, "dn", entry.dn.as_bytes());
        for attribute in &entry.attributes {
            attribute.values.iter().for_each(|value| writer.value(&mut text, &attribute.description, value));
        }
        text.push(b'\n');
    }
    text
}

/// Copies one snapshot without its free pages, and looks into the copy.
fn copy(
    directory: &Path,
    number: usize,
    source: &Source<'_>,
    pace: &mut Pace<'_>,
) -> Result<DatabaseBackup, BackupError> {
    let name = PathBuf::from(format!("database-{number}"));
    let folder = directory.join(&name);
    make_directory(&folder)?;
    let path = folder.join(DATA_FILE);
    let mut file = CopyFile::create(&path)?;
    let (bytes, sha256) = copy_through(source, pace, &mut |chunk| file.write(chunk))?;
    file.finish()?;
    let mut backup = look_into(&folder)?;
    sync_directory(&folder)?;
    backup.suffixes = source.suffixes.to_vec();
    backup.file = StoredFile { path: name.join(DATA_FILE), bytes, sha256 };
    Ok(backup)
}

/// Lets the store copy itself into a pipe and hands over what comes out; answers length and checksum.
fn copy_through(
    source: &Source<'_>,
    pace: &mut Pace<'_>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(u64, String), BackupError> {
    let store = source.store;
    let failed = |error: io::Error| BackupError::database(store.path(), error);
    let (reader, writer) = io::pipe().map_err(failed)?;
    let size = store.statistics().map_or(0, |s| s.pages_used.saturating_sub(s.pages_free) * s.page_bytes);
    check_last_commit(store, size, pace)?;
    pace.begin(store.path().display().to_string(), size);
    thread::scope(|scope| {
        let copying = thread::Builder::new()
            .name("backup".to_owned())
            .spawn_scoped(scope, move || store.copy_to(&mut File::from(OwnedFd::from(writer)), true))
            .map_err(failed)?;
        let drained = drain(reader, pace, sink).map_err(|error| match error {
            Drain::Read(error) => failed(error),
            Drain::Sink(error) => error,
        });
        let copied = copying.join().map_err(|_| failed(io::Error::other("the copying thread panicked")))?;
        // A sink that failed closes the pipe: the copy's own error then only says so.
        let drained = drained?;
        copied.map_err(|error| BackupError::database(store.path(), error))?;
        Ok(drained)
    })
}

/// LMDB ends the process that copies a damaged page.
fn check_last_commit(store: &LmdbStore, size: u64, pace: &mut Pace<'_>) -> Result<(), BackupError> {
    pace.begin(format!("pages of {}", store.path().display()), size);
    let mut found = Ok(());
    let checked = store.check_last_commit(&mut |event| {
        found = match event {
            PageEvent::Bytes(bytes) => pace.advance(bytes),
            PageEvent::Damaged(page) => Err(BackupError::database(
                store.path(),
                format!(
                    "is damaged and not copied: {page}; `larix check` names all damaged pages; put a backup back, or load what \
                     `larix cat -c` can still read into an empty database"
                ),
            )),
        };
        if found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    checked.map_err(|error| BackupError::database(store.path(), error))?;
    found
}

enum Drain {
    Read(io::Error),
    Sink(BackupError),
}

fn drain(
    mut reader: PipeReader,
    pace: &mut Pace<'_>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(u64, String), Drain> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Drain::Read(error)),
        };
        let read = buffer.get(..count).unwrap_or(&[]);
        if read.is_empty() {
            return Ok((bytes, hexadecimal(&hash.finalize())));
        }
        hash.update(read);
        sink(read).map_err(Drain::Sink)?;
        bytes += count as u64;
        pace.advance(count as u64).map_err(Drain::Sink)?;
    }
}

/// What a copy has: it can be opened, then.
fn look_into(folder: &Path) -> Result<DatabaseBackup, BackupError> {
    let failed = |error: &dyn std::fmt::Display| BackupError::database(folder, error);
    let store = LmdbStore::open(folder, &TABLES, &LmdbOptions::for_own_copy()).map_err(|e| failed(&e))?;
    let statistics = store.statistics().map_err(|e| failed(&e))?;
    let table = TABLES.iter().position(|spec| spec.id == ENTRIES).and_then(|n| statistics.tables.get(n));
    let entries = table.map_or(0, |table| table.records);
    let snapshot = store.snapshot().map_err(|e| failed(&e))?;
    let csns = log::context_csns(&snapshot).map_err(|e| failed(&e))?;
    let history = log::history(&snapshot).map_err(|e| failed(&e))?;
    let positions = log::positions(&snapshot).map_err(|e| failed(&e))?;
    let last_record = changes::last_record(&snapshot, &positions).map_err(|e| failed(&e))?;
    drop(snapshot);
    drop(store);
    Ok(DatabaseBackup {
        suffixes: Vec::new(),
        file: StoredFile::of_bytes(DATA_FILE, &[]),
        entries,
        context_csn: csns.iter().map(ToString::to_string).collect(),
        history: history.map(|history| history.to_string()),
        positions: positions.into_iter().map(Position::from).collect(),
        last_record,
    })
}
