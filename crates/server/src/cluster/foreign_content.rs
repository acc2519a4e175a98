//! Whether the entries in the engine are this database's. Two directories that were given one store would take turns in it: the one that writes
//! has its configuration in force for all, and clients of the other one could change nothing.

use larix_engine::tables::TREE;
use larix_engine::{Database, EntryId, Fault, tree};
use larix_store::{Direction, KeyRange, Snapshot, Store};

/// Why this database must not use what its store holds: there are entries, and none of its own suffixes is among them.
///
/// # Errors
/// The store cannot be read.
pub(super) fn why_foreign<S: Store>(database: &Database<S>) -> Result<Option<String>, Fault> {
    let (snapshot, settings) = (database.store().snapshot()?, database.settings());
    // The suffixes stand below the root with their whole names.
    let root = EntryId::ROOT.to_bytes();
    let first = snapshot.scan(TREE, KeyRange::prefix(&root), Direction::Forward)?.next().transpose()?;
    let Some((key, _)) = first else { return Ok(None) };
    for suffix in &settings.suffixes {
        let own = suffix.normal.as_str().as_bytes();
        if own.is_empty() || tree::child(&snapshot, EntryId::ROOT, own)?.is_some() {
            return Ok(None);
        }
    }
    let found = String::from_utf8_lossy(key.get(root.len()..).unwrap_or_default());
    let own = settings.suffixes.first().map(|suffix| suffix.text.as_str()).unwrap_or_default();
    Ok(Some(format!(
        "the entries in the engine are those of another directory ({found:?}), and none of {own:?}: give one of the two an \
         `engine-schema` of its own, or mend the suffix"
    )))
}
