//! The journal of a slapd.d: changes that are safe there, and in the files perhaps not yet.
//!
//! Each change is a record behind the others. A tool writes a journal of one record, carries it out and removes it. A server
//! keeps its journal ([`Keeper`]): a change is a record and one sync. Its files are written at once, so that readers see them,
//! and synced with those of others when the journal is full or no change has come for a while; then the journal goes.
//! Doing a change again, or half of it, leads to the same files, so that a process that finds the journal does all of them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::super::diagnostic::{ConfigError, Origin};
use super::super::text::Text;
use super::super::text::crc32;
use super::commit::{FileChanges, Lock, recover, split_line};
use super::disk::{Disk, RealDisk, Sync, make_directory, put, remove, sync_directory, sync_file};
use super::io_error;
use super::places::put_in_place;

pub(super) const JOURNAL: &str = "larix.journal";
const MAGIC: &str = "# Changes of this directory that may not be safe in its files yet. Do not remove.\n";
/// What earlier versions left: one change, and in front of it its CRC-32 alone.
const MAGIC_OF_ONE: &str = "# Changes of this directory that are not carried out yet. Do not remove.\n";
/// A server's journal has so many bytes from its beginning on: a record that overwrites zeros needs no other sync than
/// that of its bytes, where one that makes a file longer has to wait for the file system's own journal.
const ROOM_BYTES: usize = 128 * 1024;

/// A journal of one change.
pub(super) fn whole(changes: &FileChanges) -> Text {
    record(changes).with_header(MAGIC.as_bytes().to_vec())
}

/// `change LENGTH CRC`, and the change.
fn record(changes: &FileChanges) -> Text {
    let body = changes.to_record();
    let header = format!("change {} {:08x}\n", body.len(), body.crc());
    body.with_header(header.into_bytes())
}

/// Length and checksum of the record that begins here, and what stands behind that line.
fn record_header(text: &[u8]) -> Option<(usize, u32, &[u8])> {
    let (line, rest) = split_line(text)?;
    let (length, checksum) = line.strip_prefix("change ")?.split_once(' ')?;
    Some((length.parse().ok()?, u32::from_str_radix(checksum, 16).ok()?, rest))
}

/// The changes of a journal as one. What stands behind the last whole record was being written when the process or the
/// machine ended, and was never answered. `None`: it is damaged.
fn read(directory: &Path, text: &[u8]) -> Option<FileChanges> {
    if let Some(rest) = text.strip_prefix(MAGIC_OF_ONE.as_bytes()) {
        let (checksum, body) = split_line(rest)?;
        let fits = u32::from_str_radix(checksum, 16).ok()? == crc32(body);
        return if fits { FileChanges::from_record(directory, body) } else { None };
    }
    let mut rest = text.strip_prefix(MAGIC.as_bytes())?;
    let mut all: Option<FileChanges> = None;
    while let Some((length, checksum, body)) = record_header(rest) {
        let Some((body, tail)) = body.split_at_checked(length) else { break };
        if crc32(body) != checksum {
            if record_header(tail).is_some() {
                // It was whole once: the next one is written when it is safe.
                return None;
            }
            break;
        }
        let changes = FileChanges::from_record(directory, body)?;
        all = Some(match all {
            None => changes,
            Some(all) => all.then(changes)?,
        });
        rest = tail;
    }
    all
}

/// What has happened and may not be carried out, if there is any.
pub(super) fn pending(directory: &Path) -> Result<Option<FileChanges>, ConfigError> {
    let path = directory.join(JOURNAL);
    match fs::read(&path) {
        Ok(text) => match read(directory, &text) {
            Some(changes) => Ok(Some(changes)),
            None => Err(ConfigError::new(
                Origin::BuiltIn,
                format!("`{}` is damaged: changes of the files there were half carried out", path.display()),
            )
            .with_help("restore the directory from a backup, or remove this file and check every entry")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", &path, &error)),
    }
}

/// The journal of a change that was refused, where the disk let it not be removed, either. Who made the change takes it back before the
/// next one; others would carry it out.
#[derive(Debug, Default)]
pub struct RefusedJournal {
    /// Its directory, and the journal. While it is open, no other file gets its number.
    left: Option<(PathBuf, File)>,
}

impl RefusedJournal {
    /// Removes it. No other process works in the directory.
    ///
    /// # Errors
    /// Names the journal that cannot be removed.
    pub(super) fn take_back(&mut self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        if let Some((directory, file)) = &self.left {
            let journal = directory.join(JOURNAL);
            if stands_at(file, &journal) {
                remove(disk, &journal).map_err(|error| io_error("remove", &journal, &error))?;
            }
            self.left = None;
        }
        Ok(())
    }
}

/// Writes a journal, safely: with that its changes have happened.
///
/// # Errors
/// They have not, and there is none, or it is in `refused`.
pub(super) fn begin(
    disk: &mut dyn Disk,
    directory: &Path,
    text: &Text,
    refused: &mut RefusedJournal,
) -> Result<File, ConfigError> {
    let journal = directory.join(JOURNAL);
    let owner = fs::metadata(directory).map_err(|error| io_error("read", directory, &error))?;
    let (file, error) = match put(disk, &journal, text, &owner, Sync::Now) {
        Ok(file) => match sync_directory(disk, directory) {
            Ok(()) => return Ok(file),
            Err(error) => (Some(file), error),
        },
        Err(error) => (None, error),
    };
    // It may stand under its name already, though not safely: then it must not be found there.
    let removed = remove(disk, &journal);
    let error = match file {
        Some(file) if removed.is_err() => {
            refused.left = Some((directory.to_owned(), file));
            may_come_back(&error)
        }
        _ => error,
    };
    Err(io_error("write", &journal, &error))
}

/// Whether a file has this name.
fn stands_at(file: &File, path: &Path) -> bool {
    let is_same = |there: fs::Metadata| {
        file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    };
    fs::metadata(path).is_ok_and(is_same)
}

/// The reason of a refusal where the disk keeps the change: who reads it from there finds it made.
fn may_come_back(error: &io::Error) -> io::Error {
    let text =
        format!("{error}; the disk did not let it be taken back, either: a restart may find the change made");
    io::Error::new(error.kind(), text)
}

/// Ends a journal whose files are safe, once their names are, too.
pub(super) fn end(disk: &mut dyn Disk, directory: &Path, touched: &BTreeSet<PathBuf>) -> io::Result<()> {
    for path in touched.iter().filter(|path| path.is_dir()) {
        sync_directory(disk, path)?;
    }
    // The removal need not be durable: a process that finds the journal again repeats what was carried out.
    remove(disk, &directory.join(JOURNAL))
}

/// Makes a server's changes, and keeps the journal between them.
#[derive(Debug, Default)]
pub struct Keeper {
    open: Option<Open>,
    /// The directory whose files stand where their entries belong.
    in_place: Option<PathBuf>,
    refused: RefusedJournal,
}

impl Keeper {
    /// As [`FileChanges::commit`], with one sync as a rule.
    ///
    /// # Errors
    /// Names the file or directory that could not be written; then nothing has changed.
    pub fn commit(&mut self, changes: &FileChanges) -> Result<(), ConfigError> {
        self.commit_on(changes, &mut RealDisk)
    }

    /// Makes the files safe, and removes the journal.
    ///
    /// # Errors
    /// Names the file or directory that could not be written; the journal stays.
    pub fn settle(&mut self) -> Result<(), ConfigError> {
        self.settle_on(&mut RealDisk)
    }

    pub(super) fn settle_on(&mut self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        match &self.open {
            Some(open) => {
                let _lock = Lock::exclusive(&open.directory)?;
                self.settle_locked(disk)
            }
            None => {
                let lock = self.refused.left.as_ref().map(|(directory, _)| Lock::exclusive(directory));
                let _lock = lock.transpose()?;
                self.refused.take_back(disk)
            }
        }
    }

    pub(super) fn commit_on(
        &mut self,
        changes: &FileChanges,
        disk: &mut dyn Disk,
    ) -> Result<(), ConfigError> {
        if changes.is_empty() {
            return Ok(());
        }
        let directory = changes.directory();
        make_directory(disk, directory).map_err(|error| io_error("make", directory, &error))?;
        let _lock = Lock::exclusive(directory)?;
        let goes_on = |open: &Open| open.stands() && open.directory == directory;
        self.open = self.open.take().filter(goes_on);
        if let Some(open) = &mut self.open {
            open.take_back(disk)?;
        }
        if self.open.as_ref().is_some_and(|open| open.failed) {
            self.settle_locked(disk)?;
        }
        if self.open.is_none() {
            self.refused.take_back(disk)?;
            recover(disk, directory)?;
            if self.in_place.as_deref() != Some(directory) {
                put_in_place(disk, directory)?;
                self.in_place = Some(directory.to_owned());
            }
        }
        let changes = changes.spliced();
        let record = record(&changes);
        if self.open.as_ref().is_some_and(|open| !open.has_room_for(&record)) {
            self.settle_locked(disk)?;
        }
        let open = match &mut self.open {
            Some(open) => {
                open.append(disk, &record)?;
                open
            }
            None => self.open.insert(Open::begin(disk, directory, record, &mut self.refused)?),
        };
        // It has happened. What cannot be carried out now, readers find in the journal and the next change carries out.
        open.carry_out(disk, &changes);
        Ok(())
    }

    /// No other process works in the directory.
    fn settle_locked(&mut self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.take_back(disk)?;
        if open.failed {
            recover(disk, &open.directory)?;
        } else if open.stands() {
            open.sync(disk)?;
        }
        self.open = None;
        Ok(())
    }
}

/// A journal that more changes are added to.
#[derive(Debug)]
struct Open {
    directory: PathBuf,
    file: File,
    length: usize,
    /// Where the next record begins.
    at: usize,
    /// So many bytes there may be those of a change that was refused.
    refused: usize,
    /// Written and not synced.
    files: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
    /// Something was not written, or not synced: what is in the journal has to be done again.
    failed: bool,
}

impl Open {
    fn begin(
        disk: &mut dyn Disk,
        directory: &Path,
        record: Text,
        refused: &mut RefusedJournal,
    ) -> Result<Self, ConfigError> {
        let mut text = record.with_header(MAGIC.as_bytes().to_vec());
        let at = text.len();
        text.push(vec![0; ROOM_BYTES.saturating_sub(at)]);
        let file = begin(disk, directory, &text, refused)?;
        let (directory, length) = (directory.to_owned(), text.len());
        let (files, directories) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { directory, file, length, at, refused: 0, files, directories, failed: false })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(JOURNAL)
    }

    /// False once another writer of the directory has carried out the journal and removed it.
    fn stands(&self) -> bool {
        stands_at(&self.file, &self.path())
    }

    fn has_room_for(&self, record: &Text) -> bool {
        self.length - self.at >= record.len()
    }

    fn append(&mut self, disk: &mut dyn Disk, record: &Text) -> Result<(), ConfigError> {
        let (path, bytes) = (self.path(), record.to_vec());
        let written = write_at(disk, (path.as_path(), &self.file), &bytes, self.at);
        if let Err(error) = written {
            self.refused = bytes.len();
            let error = match self.take_back(disk) {
                Ok(()) => error,
                Err(_) => may_come_back(&error),
            };
            return Err(io_error("write", &path, &error));
        }
        self.at += bytes.len();
        Ok(())
    }

    /// What was refused has not happened, so no reader may find it, complete or not.
    fn take_back(&mut self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        if self.refused > 0 {
            let (path, nothing) = (self.path(), vec![0; self.refused]);
            write_at(disk, (path.as_path(), &self.file), &nothing, self.at)
                .map_err(|error| io_error("write", &path, &error))?;
            self.refused = 0;
        }
        Ok(())
    }

    fn carry_out(&mut self, disk: &mut dyn Disk, changes: &FileChanges) {
        let (files, directories) = changes.touched();
        self.files.extend(files);
        self.directories.extend(directories);
        self.failed |= changes.carry_out(disk, Sync::Later).is_err();
    }

    fn sync(&mut self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        let mut files = self.files.iter();
        let files =
            files.try_for_each(|file| sync_file(disk, file).map_err(|error| io_error("write", file, &error)));
        let synced = files.and_then(|()| {
            end(disk, &self.directory, &self.directories)
                .map_err(|error| io_error("write", &self.directory, &error))
        });
        // What could not be synced may never be, and the next sync would not say so.
        self.failed |= synced.is_err();
        synced
    }
}

fn write_at(disk: &mut dyn Disk, (path, file): (&Path, &File), bytes: &[u8], at: usize) -> io::Result<()> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for (half, at) in [(first, at), (second, at + first.len())] {
        disk.step(path)?;
        file.write_all_at(half, at as u64)?;
    }
    disk.step(path)?;
    file.sync_data()
}
