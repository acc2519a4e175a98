//! A load into a directory: a new store beside the old one, which it replaces in one rename.

use std::fs::{self, File};
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use larix_store::Store;
use larix_store::lmdb::{DirectoryLock, LmdbOptions, LmdbStore};

use super::error::LoadError;
use super::{LoadContext, LoadObserver, LoadOptions, LoadReport, bulk, merge};
use crate::database::Database;
use crate::tables::TABLES;

/// Where the new store grows, within the database's directory: on the same file system. Only who holds the
/// directory's lock uses it, so that one left by a load that was killed can be thrown away.
const LOADING: &str = "loading.tmp";
const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "lock.mdb";

/// Loads an LDIF into the database in `path`.
///
/// If it has no entries, or there is none yet, a new store is built beside it and takes its place when all is
/// well: after an error, and after a crash, the directory is as it was. A database with entries is extended, see
/// [`super::load_into`]. The directory is locked for the time; a server that has it open refuses the load.
pub fn load_directory(
    path: &Path,
    lmdb: &LmdbOptions,
    input: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut dyn LoadObserver,
) -> Result<LoadReport, LoadError> {
    if path.join(DATA_FILE).try_exists()? {
        let store = LmdbStore::open(path, &TABLES, lmdb)?;
        let schema = std::sync::Arc::clone(context.schema);
        let database = Database::open(store, schema, context.settings.clone(), context.random)?;
        if !bulk::is_empty(&database)? {
            return merge::load(&database, input, context, options, observer);
        }
    }
    let lock = DirectoryLock::acquire(path, lmdb)?;
    let loading = Loading::begin(path)?;
    let store = LmdbStore::open(&loading.path, &TABLES, lmdb)?;
    let schema = std::sync::Arc::clone(context.schema);
    // Gives the store its format and its secret; what it knows of the catalog is written by the load.
    let database = Database::open(store, schema, context.settings.clone(), context.random)?;
    let report = bulk::load(database.store(), &loading.path, input, context, options, observer)?;
    database.store().sync()?;
    drop(database);
    if !options.dry_run {
        loading.publish(path)?;
    }
    drop(lock);
    Ok(report)
}

/// The directory of the new store; removed when it is dropped.
struct Loading {
    path: PathBuf,
}

impl Loading {
    fn begin(directory: &Path) -> io::Result<Self> {
        let path = directory.join(LOADING);
        match fs::remove_dir_all(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    /// Puts the new file in the place of the old one. Readers of the old one keep it until they close it.
    fn publish(self, directory: &Path) -> io::Result<()> {
        // The table of readers belongs to the old file: who opens the new one makes another.
        match fs::remove_file(directory.join(LOCK_FILE)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(self.path.join(DATA_FILE), directory.join(DATA_FILE))?;
        File::open(directory)?.sync_all()
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next load.
        let _ = fs::remove_dir_all(&self.path);
    }
}
