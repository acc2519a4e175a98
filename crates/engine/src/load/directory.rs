//! A load into a directory: a new store beside the old one, which it replaces in one rename.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use larix_store::Store;
use larix_store::lmdb::{DATA_FILE, DirectoryLock, LOADING, LmdbOptions, LmdbStore, Old};

use super::error::LoadError;
use super::{LoadContext, LoadObserver, LoadOptions, LoadReport, bulk, merge};
use crate::database::Database;
use crate::tables::TABLES;

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
    // From the look at what is there until the new store is in its place: no other process fills the old one meanwhile.
    let lock = DirectoryLock::acquire(path, lmdb)?;
    let open = |store| {
        let schema = Arc::clone(context.schema);
        Database::open(store, schema, context.settings.clone(), context.random)
    };
    if path.join(DATA_FILE).try_exists()? {
        let database = open(LmdbStore::open_locked(&lock, &TABLES, lmdb)?)?;
        if !bulk::is_empty(&database)? {
            return merge::load(&database, input, context, options, observer);
        }
    }
    let loading = lock.begin_replacement(LOADING)?;
    let store = LmdbStore::open(loading.path(), &TABLES, lmdb)?;
    // Gives the store its format and its secret; what it knows of the catalog is written by the load.
    let database = open(store)?;
    let report = bulk::load(database.store(), loading.path(), input, context, options, observer)?;
    database.store().sync()?;
    drop(database);
    if !options.dry_run {
        loading.publish(Old::Removed).map_err(LoadError::Publish)?;
    }
    Ok(report)
}
