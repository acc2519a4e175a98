//! A new file in the place of a store's: the old store or the new one, whenever the process ends.
//!
//! LMDB has two files, and no call of the system exchanges both: the data, and a lock file that says which of the two
//! roots in the data is the current one. A lock file beside data that it does not belong to names a wrong root: an older
//! state, or an empty one. Hence a replacement has a name of its own before it begins:
//!
//! 1. The new store grows in a directory below the store's ([`RESTORING`], [`LOADING`]). Until it is whole and on the disk
//!    nothing else is touched.
//! 2. It is renamed to `data.mdb.next` (or, where the old file is kept, `data.mdb.next.keep`). With this rename the new store
//!    counts.
//! 3. The lock file is removed, the old file set aside or not, the new one renamed to `data.mdb` ([`settle`]).
//!
//! Every process that opens the store looks for the names of step 2 first, and does step 3 if one exists: each of its calls may
//! be the last of a process, and all can be repeated. Readers that have the old files open keep both of them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::directory::{DATA_FILE, DirectoryLock};
use super::owner::give_to_owner;

/// LMDB's table of readers and number of the last commit.
pub(super) const READERS_FILE: &str = "lock.mdb";

/// What [`Replacement::publish`] sets the old file aside as.
pub const REPLACED_FILE: &str = "data.mdb.replaced";

/// Where a restore puts a store together, in the store's directory.
pub const RESTORING: &str = "restore.tmp";
/// Where a restore unpacks a stream.
pub const UNPACKING: &str = "restore.stream";
/// Where a load puts a store together.
pub const LOADING: &str = "loading.tmp";

/// What becomes of the file that is replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Old {
    Removed,
    /// As [`REPLACED_FILE`], in the place of one that was kept earlier.
    Kept,
}

impl Old {
    const ALL: [Self; 2] = [Self::Removed, Self::Kept];

    /// The name of a file that is whole and on the disk, and counts from now on.
    fn next(self) -> &'static str {
        match self {
            Self::Removed => "data.mdb.next",
            Self::Kept => "data.mdb.next.keep",
        }
    }
}

/// A directory in which a new store grows; removed when it is dropped.
#[derive(Debug)]
pub struct Replacement<'l> {
    directory: PathBuf,
    path: PathBuf,
    /// Held as long as there is something to replace.
    _lock: &'l DirectoryLock,
}

impl DirectoryLock {
    /// An empty directory `name` below the one that is locked. One that is left of a process that was killed goes.
    pub fn begin_replacement(&self, name: &str) -> io::Result<Replacement<'_>> {
        let directory = self.path().to_owned();
        let path = directory.join(name);
        absent(fs::remove_dir_all(&path)).map_err(|error| named("remove", &path, &error))?;
        fs::create_dir(&path).map_err(|error| named("make", &path, &error))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
            .map_err(|error| named("make", &path, &error))?;
        Ok(Replacement { directory, path, _lock: self })
    }

    /// Removes the store of the directory, which no process has open.
    ///
    /// # Errors
    /// Names the file that cannot be removed.
    pub fn remove_store(&self) -> io::Result<()> {
        // First: beside other data it would name a wrong root.
        remove_readers_file(self.path())?;
        let data = self.path().join(DATA_FILE);
        absent(fs::remove_file(&data)).map_err(|error| named("remove", &data, &error))
    }
}

impl Replacement<'_> {
    /// Where the new store grows. It has to be closed and synced before it is published.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the new store in the place of the old one, durably. An error says which of the two counts.
    pub fn publish(self, old: Old) -> io::Result<()> {
        let made = self.path.join(DATA_FILE);
        let before = |error: io::Error| io::Error::new(error.kind(), format!("{error}: nothing was changed"));
        sync(&made).map_err(before)?;
        rename(&made, &self.directory.join(old.next())).map_err(before)?;
        let behind = |error: io::Error| {
            let text = "the new database counts all the same, and who opens it next completes this";
            io::Error::new(error.kind(), format!("{error}; {text}"))
        };
        sync(&self.directory).and_then(|()| settle(&self.directory)).map_err(behind)?;
        give_to_owner(&self.directory, &[DATA_FILE]);
        Ok(())
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next attempt.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Ends what a process has begun that was killed amid a replacement. The directory is locked.
pub(super) fn settle(directory: &Path) -> io::Result<()> {
    for old in Old::ALL {
        let next = directory.join(old.next());
        if !next.try_exists().map_err(|error| named("look for", &next, &error))? {
            continue;
        }
        if fs::metadata(&next).map_err(|error| named("look at", &next, &error))?.len() == 0 {
            let text = format!("{} has no bytes: remove it to keep the database of before", next.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        // First: as long as the new file has not its name yet, no process opens the old one without doing this again.
        remove_readers_file(directory)?;
        let data = directory.join(DATA_FILE);
        if old == Old::Kept {
            absent(fs::rename(&data, directory.join(REPLACED_FILE)))
                .map_err(|error| named("set aside", &data, &error))?;
        }
        rename(&next, &data)?;
        sync(directory)?;
    }
    Ok(())
}

/// Whether a replacement was begun and is not complete.
pub(super) fn is_pending(directory: &Path) -> io::Result<bool> {
    for old in Old::ALL {
        if directory.join(old.next()).try_exists()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is in a directory without a store that says that there was one, or was going to be.
pub(super) fn left_over(directory: &Path) -> io::Result<Option<&'static str>> {
    for name in [RESTORING, UNPACKING, LOADING, REPLACED_FILE] {
        if directory.join(name).try_exists()? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// A process that has it open keeps it; one that opens the store makes another.
pub(super) fn remove_readers_file(directory: &Path) -> io::Result<()> {
    let path = directory.join(READERS_FILE);
    absent(fs::remove_file(&path)).map_err(|error| named("remove", &path, &error))
}

/// What is not there needs no removing.
fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).map_err(|error| named("make", to, &error))
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| named("sync", path, &error))
}

fn named(action: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {action} {}: {error}", path.display()))
}
