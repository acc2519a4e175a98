//! The note in a store that content is coming ([`meta::FILLING`]), and how what came is thrown away.

use larix_store::{CommitError, Durability, Loader, Snapshot, Store, TableId, Transaction, WriteSet};

use crate::tables::{BLOBS, ENTRIES, INDEX, META, REPLICA, TREE, VALUES, meta};
use crate::tree;

/// What a fill puts into a store.
const FILLED: [TableId; 6] = [ENTRIES, TREE, INDEX, VALUES, BLOBS, REPLICA];

/// Notes that content is coming.
pub(crate) fn begin_fill<S: Store>(store: &S) -> Result<(), CommitError> {
    let mut set = WriteSet::new();
    set.put(META, meta::FILLING, []);
    store.transaction()?.commit(&set, Durability::Sync).map(|_| ())
}

/// Throws away what a fill left that did not come to its end. Answers whether there was one.
pub(crate) fn discard_fill<S: Store>(store: &S) -> Result<bool, CommitError> {
    if store.snapshot()?.get(META, meta::FILLING)?.is_none() {
        return Ok(false);
    }
    let mut loader = store.live_loader()?;
    FILLED.iter().try_for_each(|table| loader.clear(*table))?;
    loader.finish()?;
    let transaction = store.transaction()?;
    let mut set = WriteSet::new();
    set.delete(META, meta::FILLING);
    // Ids are given again: no cache may keep a name.
    tree::bump_generation(&mut set, &transaction).map_err(|_| damaged())?;
    transaction.commit(&set, Durability::Sync).map(|_| true)
}

fn damaged() -> CommitError {
    CommitError::Io(std::io::Error::other("the tree's generation cannot be read"))
}
