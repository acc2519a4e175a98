//! Files that a configuration names. A thread that reads a pipe waits for a writer that may never come, and a device may have no
//! end: only regular files are read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// What a file looks like: enough to see later that it was written, replaced, or given to another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLook {
    modified: SystemTime,
    /// When its owner or mode changed last: seconds and nanoseconds.
    changed: (i64, i64),
    bytes: u64,
    inode: u64,
}

impl FileLook {
    /// None: it is not there, or this process may not look.
    pub fn at(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Self { modified: found.modified().ok()?, changed, bytes: found.len(), inode: found.ino() })
    }
}

/// Opens a regular file for reading, and waits for nobody.
///
/// # Errors
/// A file that cannot be opened, and anything else than a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`], and a file that cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a regular file.
///
/// # Errors
/// As [`read`], and a file that is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn regular_files_alone_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        fs::write(&file, "text").unwrap();
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read(&file).unwrap(), b"text");
        assert_eq!(read_to_string(&file).unwrap(), "text");
        for other in [&*pipe, Path::new("/dev/zero")] {
            assert_eq!(
                read(other).unwrap_err().to_string(),
                "it is not a regular file",
                "{}",
                other.display()
            );
        }
        assert_eq!(read_to_string(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
