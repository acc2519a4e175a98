//! The file of an audit log. It is opened for each batch of changes: who renames it, as logrotate does, finds the next ones in a new
//! file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larix_engine::overlay::committed::NotTaken;
use rustix::fs::{FlockOperation, OFlags};

/// Of a file that is made: the owner writes, the group reads, for it has what entries have. The umask takes away from that.
const MODE: u32 = 0o640;

/// When a file is put aside.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    /// How many files are kept beside the one in use: `.01` is the newest.
    pub(super) keep: u8,
    /// A file does not grow beyond this, unless one batch of changes is longer.
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct AuditFile {
    pub(super) path: PathBuf,
    /// Not to wait for who reads a named pipe.
    pub(super) non_blocking: bool,
    pub(super) rotation: Option<Rotation>,
}

impl AuditFile {
    /// Appends whole records: all of them, or nothing in an ordinary file. Answers what an administrator has to mend, though the file took
    /// them: why it could not be put aside.
    ///
    /// # Errors
    /// A file that cannot be opened or written now, a pipe without a reader.
    pub(super) fn append(&self, text: &[u8]) -> Result<Option<String>, NotTaken> {
        if text.is_empty() {
            return Ok(None);
        }
        self.write(text).map_err(|error| {
            let message = format!("auditlog {}: {error}", self.path.display());
            let is_unread = error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error());
            let is_full_pipe = error.kind() == io::ErrorKind::WouldBlock;
            if self.non_blocking && (is_unread || is_full_pipe) {
                NotTaken::ever(message)
            } else {
                NotTaken::yet(message)
            }
        })
    }

    fn write(&self, text: &[u8]) -> io::Result<Option<String>> {
        let (mut file, mut metadata) = self.open_alone()?;
        let mut trouble = None;
        let length = text.len() as u64;
        let is_full = |rotation: &Rotation| metadata.len() > 0 && metadata.len() + length > rotation.bytes;
        if metadata.is_file()
            && let Some(rotation) = self.rotation.filter(is_full)
        {
            // By its name it is not found any more when the others are made durable.
            file.sync_data()?;
            trouble = self.put_aside(rotation).err();
            // One that could not be renamed is opened again: it must not wait for itself.
            drop(file);
            (file, metadata) = self.open_alone()?;
        }
        let written = file.write_all(text);
        if written.is_err() && metadata.is_file() {
            // Half a record would be no LDIF, and all of them come again.
            let _ = file.set_len(metadata.len());
        }
        written.map(|()| trouble)
    }

    /// The file in use. A regular one is locked: the audit logs of other databases may write to it, too, and what one of them takes
    /// back or puts aside must not be another's.
    fn open_alone(&self) -> io::Result<(File, Metadata)> {
        loop {
            let file = self.open()?;
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Ok((file, metadata));
            }
            // A file system without locks is none of an obstacle.
            let _ = rustix::fs::flock(&file, FlockOperation::LockExclusive);
            let metadata = file.metadata()?;
            // Another one may have put it aside meanwhile.
            let is_same = |now: &Metadata| (now.dev(), now.ino()) == (metadata.dev(), metadata.ino());
            if fs::metadata(&self.path).is_ok_and(|now| is_same(&now)) {
                return Ok((file, metadata));
            }
        }
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(MODE);
        if self.non_blocking {
            options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        }
        options.open(&self.path)
    }

    /// `audit` becomes `audit.01`, that `audit.02`, and so on; the oldest goes. What cannot be renamed stays in use.
    ///
    /// # Errors
    /// Why it stays, for the administrator.
    pub(super) fn put_aside(&self, rotation: Rotation) -> Result<(), String> {
        // Nothing goes for a place that is free: a try that fails again and again moves no file to its end.
        let is_free = |number: &u8| self.numbered(*number).symlink_metadata().is_err();
        let last = (1..rotation.keep).find(is_free).unwrap_or(rotation.keep);
        for number in (1..last).rev() {
            // The one before it would take its place.
            renamed(&self.numbered(number), &self.numbered(number + 1))?;
        }
        renamed(&self.path, &self.numbered(1))
    }

    fn numbered(&self, number: u8) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number:02}"));
        name.into()
    }

    /// What was written is durable then.
    ///
    /// # Errors
    /// A file that cannot be synced.
    pub(super) fn sync(&self) -> Result<(), String> {
        let fault = |error: io::Error| format!("auditlog {}: {error}", self.path.display());
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => OpenOptions::new()
                .append(true)
                .open(&self.path)
                .and_then(|file| file.sync_data())
                .map_err(fault),
            // Moved away, or a pipe.
            _ => Ok(()),
        }
    }
}

/// # Errors
/// Why the file stays where it is. One that is not there has been put aside by another program.
fn renamed(from: &Path, to: &Path) -> Result<(), String> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!(
            "{} cannot be renamed to {} ({error}), and the audit log grows beyond auditlog-rotate: let the server's user write to the \
             directory, and take a mount or an attribute (chattr) away that keeps a file where it is",
            from.display(),
            to.display()
        )),
        _ => Ok(()),
    }
}
