//! Where images of LDIF files are kept: directories in the temporary directory, each locked by the process that uses it.
//!
//! A process that is killed removes nothing. The kernel gives its locks back, which is how the next one tells what was
//! left from what another server works on; the age of a directory says nothing.

use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use larix_store::lmdb::{DirectoryLock, LmdbOptions};
use rustix::fs::{FlockOperation, Mode, OFlags};
use tempfile::TempDir;

const PREFIX: &str = "larix-ldif-";
/// How many directories are made when others remove each before it is locked.
const TRIES_MAX: usize = 16;

/// A directory of this process; removed when dropped.
#[derive(Debug)]
pub(super) struct Image {
    /// Before the lock: no other process removes it meanwhile.
    directory: TempDir,
    _lock: File,
}

impl Image {
    /// A new directory in the temporary directory, where no image is left afterwards whose process is gone.
    ///
    /// # Errors
    /// The temporary directory cannot be written, or others removed every directory that was made.
    pub(super) fn create() -> io::Result<Self> {
        remove_left();
        Self::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        for _ in 0..TRIES_MAX {
            let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            // A process that starts at this moment may take it for one that was left.
            let lock = match lock(directory.path()) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            if let Some(image) = lock.and_then(|lock| Self::locked(directory, lock)) {
                return Ok(image);
            }
        }
        Err(io::Error::other(format!("{TRIES_MAX} directories were removed as they were made")))
    }

    /// None where the directory was removed before it was locked.
    fn locked(directory: TempDir, lock: File) -> Option<Self> {
        directory.path().exists().then_some(Self { directory, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the images of this user whose processes are gone, and says which they were. What cannot be read or removed stays:
/// it costs room, and the next start tries again.
pub(crate) fn remove_left() -> Vec<PathBuf> {
    remove_left_in(&std::env::temp_dir())
}

fn remove_left_in(parent: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(parent) else { return Vec::new() };
    let images = found.flatten().filter(is_own_image).map(|entry| entry.path());
    images.filter(|path| removed(path)).collect()
}

fn is_own_image(entry: &DirEntry) -> bool {
    let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
    is_named
        && entry
            .metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

/// Removes an unused image.
fn removed(path: &Path) -> bool {
    let Ok(Some(_lock)) = lock(path) else { return false };
    // Servers of before these locks hold that of the store alone.
    let Ok(_store) = DirectoryLock::acquire(path, &LmdbOptions::default()) else { return false };
    fs::remove_dir_all(path).is_ok()
}

/// The lock of a directory, as long as the file is open; none while another has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the directory.
    fn names(parent: &Path) -> Vec<PathBuf> {
        let mut names: Vec<_> = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_nobody_holds_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let of = |name: &str| parent.path().join(name);
        let used = Image::create_in(parent.path()).unwrap();
        // A server of before these locks, in the midst of its work.
        let older = of("larix-ldif-older");
        fs::create_dir(&older).unwrap();
        let serving = DirectoryLock::acquire(&older, &LmdbOptions::default()).unwrap();
        let left = of("larix-ldif-left");
        fs::create_dir_all(left.join("loading.tmp")).unwrap();
        fs::write(left.join("data.mdb"), "pages").unwrap();
        fs::create_dir(of("larix-else")).unwrap();
        fs::write(of("larix-ldif-file"), "no directory").unwrap();
        std::os::unix::fs::symlink(of("larix-else"), of("larix-ldif-link")).unwrap();

        assert_eq!(remove_left_in(parent.path()), [left]);
        drop(serving);
        assert_eq!(remove_left_in(parent.path()), [older]);
        let mut stays = ["larix-else", "larix-ldif-file", "larix-ldif-link"].map(of).to_vec();
        stays.push(used.path().to_owned());
        stays.sort();
        assert_eq!(names(parent.path()), stays);

        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_was_taken_for_one_left_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let new = || tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent.path()).unwrap();
        // The remover holds the directory's lock meanwhile.
        let directory = new();
        let held = lock(directory.path()).unwrap().unwrap();
        assert!(lock(directory.path()).unwrap().is_none());
        drop(held);
        // Opened before it was removed, locked afterwards.
        let late = lock(directory.path()).unwrap().unwrap();
        fs::remove_dir(directory.path()).unwrap();
        assert!(Image::locked(directory, late).is_none());
        let directory = new();
        let own = lock(directory.path()).unwrap().unwrap();
        assert!(Image::locked(directory, own).is_some());
    }
}
