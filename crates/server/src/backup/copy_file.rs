//! The file that a copy goes to: written past the page cache.
//!
//! What a copy leaves in the page cache is written at a time of the kernel's choosing, in one go, and a commit at that moment
//! waits for it. So every piece is written to the disk as soon as it comes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{BackupError, private};

/// Memory, places and lengths are multiples of this, which is enough for every disk.
const BLOCK: usize = 4_096;
/// What is gathered at most.
const ROOM: usize = 512 << 10;

pub(super) struct CopyFile {
    file: File,
    path: PathBuf,
    /// Where the next byte goes.
    at: u64,
    /// What is not written yet begins at `start`, which is a multiple of [`BLOCK`] in memory.
    memory: Vec<u8>,
    start: usize,
    filled: usize,
    /// Whether the page cache is left out; some file systems have no such thing.
    direct: bool,
}

impl CopyFile {
    /// # Errors
    /// The file exists, or cannot be made.
    pub(super) fn create(path: &Path) -> Result<Self, BackupError> {
        let flag = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let (file, direct) = match private().custom_flags(flag).open(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                // It may have been made before the flag was looked at.
                let _ = std::fs::remove_file(path);
                (private().open(path), false)
            }
            opened => (opened, true),
        };
        let file = file.map_err(BackupError::io("write", path))?;
        let memory = vec![0_u8; ROOM + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Ok(Self { file, path: path.to_owned(), at: 0, memory, start, filled: 0, direct })
    }

    /// Writes all whole blocks that are there.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), BackupError> {
        while !bytes.is_empty() {
            let (from, until) = (self.start + self.filled, self.start + ROOM);
            let room = self.memory.get_mut(from..until).unwrap_or(&mut []);
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            if let Some(room) = room.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            self.filled += now.len();
            bytes = later;
            self.flush(self.filled - self.filled % BLOCK)?;
        }
        Ok(())
    }

    /// Writes what is left, and makes the file safe.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn finish(mut self) -> Result<(), BackupError> {
        if self.filled > 0 {
            self.leave_direct().map_err(BackupError::io("write", &self.path))?;
            self.flush(self.filled)?;
        }
        self.file.sync_all().map_err(BackupError::io("write", &self.path))
    }

    fn flush(&mut self, count: usize) -> Result<(), BackupError> {
        let mut done = self.write_out(count);
        let refused = |error: &io::Error| error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
        if self.direct && done.as_ref().is_err_and(refused) {
            // This disk wants more than multiples of a block.
            done = self.leave_direct().and_then(|()| self.write_out(count));
        }
        done.map_err(BackupError::io("write", &self.path))?;
        self.memory.copy_within(self.start + count..self.start + self.filled, self.start);
        self.filled -= count;
        self.at += count as u64;
        Ok(())
    }

    fn write_out(&self, count: usize) -> io::Result<()> {
        let bytes = self.memory.get(self.start..self.start + count).unwrap_or(&[]);
        self.file.write_all_at(bytes, self.at)
    }

    fn leave_direct(&mut self) -> io::Result<()> {
        if self.direct {
            let flags = rustix::fs::fcntl_getfl(&self.file)?;
            rustix::fs::fcntl_setfl(&self.file, flags.difference(OFlags::DIRECT))?;
            self.direct = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_as_they_went() {
        let directory = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| (n / 7 % 251) as u8).collect();
        for (number, (length, chunk)) in [
            (0, 1),
            (1, 1),
            (4_096, 4_096),
            (4_097, 1_000),
            (65_536, 65_536),
            (1_000_000, 100_000),
            (2_000_000, 2_000_000),
            (1_999_999, 7_777),
        ]
        .into_iter()
        .enumerate()
        {
            let path = directory.path().join(number.to_string());
            let mut file = CopyFile::create(&path).unwrap();
            bytes[..length].chunks(chunk).for_each(|chunk| file.write(chunk).unwrap());
            file.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes[..length], "{length} in pieces of {chunk}");
        }
        let there = directory.path().join("0");
        assert!(CopyFile::create(&there).is_err(), "a file that is there is not written over");
        assert!(there.exists());
    }
}
