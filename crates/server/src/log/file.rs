//! The log file: appended to, put aside when it is large or old, opened anew after a move, and never a
//! reason for the server to stop.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::time_of_day;
use larix_configuration::values::LogRotation;
use rustix::fs::OFlags;

/// How often it is looked for a file that was moved away.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a file could not be put aside, until the next try.
const STUCK_PAUSE: Duration = Duration::from_secs(60);

/// A log file that cannot be opened.
#[derive(Debug)]
pub struct LogFileError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl fmt::Display for LogFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open the log file {}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for LogFileError {}

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    rotation: Option<LogRotation>,
    open: Open,
    /// When it was last looked at, by the time of day.
    looked: Duration,
    /// When putting it aside failed, by the time of day: it is not tried with each line.
    stuck: Option<Duration>,
    /// The file was moved, and none can be made in its place.
    homeless: bool,
    /// What an administrator has to mend, and has not been told.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Open {
    file: File,
    device: u64,
    inode: u64,
    bytes: u64,
    /// By the time of day.
    since: Duration,
    /// A line was cut short by an error: the next begins on a line of its own.
    torn: bool,
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        // A pipe that nobody reads is refused, and one whose reader is late loses lines: neither has the server wait.
        let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        let (device, inode, bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        Ok(Self { file, device, inode, bytes, since: born(&metadata), torn: false })
    }

    fn is(&self, metadata: &Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }
}

/// When a file was made; now where the file system does not tell.
fn born(metadata: &Metadata) -> Duration {
    let created = metadata.created().ok().filter(|_| metadata.len() > 0);
    created.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()).unwrap_or_else(time_of_day)
}

impl LogFile {
    /// # Errors
    /// A file that cannot be opened for appending.
    pub(super) fn open(path: &Path, rotation: Option<LogRotation>) -> Result<Self, LogFileError> {
        let open = Open::new(path).map_err(|source| LogFileError { path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            rotation,
            open,
            looked: time_of_day(),
            stuck: None,
            homeless: false,
            trouble: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// When not all could be written: a full disk. What was not is lost; the next lines are tried again.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let now = time_of_day();
        // A clock that was set back must not keep it from looking.
        if now.abs_diff(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.follow();
        }
        // A file that was moved is not put aside again.
        if !self.homeless && self.is_full(lines.len(), now) {
            // Somebody may have moved it just now: what is there in its place is not put aside.
            self.follow();
        }
        if !self.homeless && self.is_full(lines.len(), now) {
            self.put_aside(now);
        }
        let open = &mut self.open;
        if open.torn {
            open.file.write_all(b"\n")?;
            open.bytes += 1;
            open.torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match open.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    open.bytes += count as u64;
                    open.torn = rest.get(count.wrapping_sub(1)) != Some(&b'\n');
                    rest = rest.get(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes on in the file of the configured name, if that is another by now.
    pub(super) fn follow(&mut self) {
        let moved = match std::fs::metadata(&self.path) {
            Ok(metadata) => !self.open.is(&metadata),
            // The second where a file stands in the place of a directory above it.
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        if moved {
            self.reopen();
        }
    }

    /// The old file stays in use if a new one cannot be had: better there than nowhere.
    fn reopen(&mut self) {
        match Open::new(&self.path) {
            Ok(open) => {
                self.open = open;
                self.stuck = None;
                self.homeless = false;
            }
            Err(error) if !self.homeless => {
                self.homeless = true;
                let path = self.path.display();
                self.trouble = Some(format!(
                    "log: {path} was moved, and a new file cannot be made in its place ({error}): lines go on into the moved \
                     file, and are lost when that is removed. Let the server's user write to the directory"
                ));
            }
            Err(_) => {}
        }
    }

    /// What the file's last steps met, for the administrator; once each.
    pub(super) fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    fn is_full(&self, more: usize, now: Duration) -> bool {
        let waits = self.stuck.is_some_and(|since| now.abs_diff(since) < STUCK_PAUSE);
        let Some(rotation) = self.rotation.filter(|_| !waits && self.open.bytes > 0) else {
            return false;
        };
        rotation.bytes.is_some_and(|most| self.open.bytes.saturating_add(more as u64) > most)
            || rotation.age.is_some_and(|most| now.saturating_sub(self.open.since) >= most)
    }

    /// `log` becomes `log.01`, that `log.02`, and so on; the oldest goes.
    fn put_aside(&mut self, now: Duration) {
        let Some(rotation) = self.rotation else { return };
        // Nothing goes for a place that is free: a try that fails again and again moves no file to its end.
        let is_free = |&number: &u8| self.numbered(number).symlink_metadata().is_err();
        let last = (1..rotation.keep).find(is_free).unwrap_or(rotation.keep);
        for number in (1..last).rev() {
            // If it fails, so does the next.
            let _ = std::fs::rename(self.numbered(number), self.numbered(number + 1));
        }
        let again = self.stuck.is_some();
        let (inode, aside) = (self.open.inode, std::fs::rename(&self.path, self.numbered(1)));
        self.reopen();
        if self.open.inode != inode {
            return;
        }
        self.stuck = Some(now);
        // One that is not there was moved, and that no other can be had is reported already.
        if let Err(error) = aside
            && error.kind() != io::ErrorKind::NotFound
            && !again
        {
            let (path, to) = (self.path.display(), self.numbered(1));
            self.trouble = Some(format!(
                "log: {path} cannot be renamed to {} ({error}), and grows beyond logfile-rotate: let the server's user write \
                 to the directory",
                to.display()
            ));
        }
    }

    fn numbered(&self, number: u8) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number:02}"));
        name.into()
    }
}

#[cfg(test)]
mod tests;
