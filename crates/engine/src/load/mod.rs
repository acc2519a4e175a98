//! Bulk load: an LDIF of whole entries becomes a database; and indexes made anew by the same sort.
//!
//! Into an empty database it is a sort: records are parsed, checked and encoded by several threads, entries are
//! appended as they come (their ids ascend), the tree and the postings are gathered, sorted in bounded memory and
//! appended at the end, and the new files take their place in one rename. A database that holds entries is extended
//! by ordinary changes. Either way the entries go through the checks of an add, by the same code.
//!
//! An entry that comes before its superior waits in memory, [`LoadOptions::memory_bytes`] of them at most; `slapcat`
//! writes superiors first.

mod bulk;
mod directory;
mod error;
mod fill;
mod merge;
mod names;
mod orphans;
mod packing;
mod prepare;
mod reindex;
mod runs;
mod sort;
mod states;
#[cfg(test)]
mod tests;
mod worker;

use std::io::BufRead;
use std::sync::Arc;

use larix_schema::Schema;
use larix_store::Store;

use crate::database::{Database, DatabaseSettings};
use crate::time::{Clock, RandomSource};

pub use crate::change::values::with_value;
pub use directory::load_directory;
pub use error::{LoadError, RecordError, RecordFault};
pub(crate) use fill::{Extent, FillContext, FillRemainder, FillRequest};
pub use fill::{Fill, FillOptions};
pub use merge::ATOMIC_BYTES;
pub use reindex::{Rebuild, RebuildError, RebuildOptions, RebuildProgress, Rebuilt, rebuild};

/// How to load, in the words of `slapadd`.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Entries obey the schema (`-o schema-check`).
    pub schema_check: bool,
    /// Values obey their syntaxes and are stored in their preferred form (`-o value-check`). A dump needs it not.
    pub value_check: bool,
    /// A record that fails is reported and passed over (`-c`).
    pub continue_on_error: bool,
    /// Records that begin before this line, counted from 1, are passed over (`-j`).
    pub start_line: u64,
    /// Everything is checked, nothing is stored (`-u`).
    pub dry_run: bool,
    /// No two entries have one entryUUID: consumers take them for one.
    pub unique_uuids: bool,
    /// contextCSN becomes the highest entryCSN of each server (`-w`).
    pub write_context_csn: bool,
    /// The server id of CSNs that are made here (`-S`).
    pub server_id: u16,
    /// Threads that parse and check beside the one that writes.
    pub threads: usize,
    /// Memory for gathering postings, in bytes. More of them are sorted in temporary files.
    pub memory_bytes: usize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            schema_check: true,
            value_check: false,
            continue_on_error: false,
            start_line: 1,
            dry_run: false,
            unique_uuids: true,
            write_context_csn: false,
            server_id: 0,
            threads: 2,
            memory_bytes: MEMORY_BYTES_DEFAULT,
        }
    }
}

/// Memory for gathering postings unless told otherwise: a run holds some 8,000 entries of the mail directory. More is not
/// faster: what is touched for the first time costs more than the merge gains by fewer runs.
pub const MEMORY_BYTES_DEFAULT: usize = 64 << 20;

/// What the load takes from its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct LoadContext<'a> {
    pub schema: &'a Arc<Schema>,
    pub settings: &'a DatabaseSettings,
    pub clock: &'a dyn Clock,
    pub random: &'a dyn RandomSource,
}

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries stored.
    pub entries: u64,
    /// Records that failed and were passed over.
    pub failed: u64,
    /// Bytes of LDIF read.
    pub bytes: u64,
    /// Postings appended, of how many: known when all entries have been read.
    pub postings: (u64, u64),
    pub phase: Phase,
}

impl Progress {
    /// Counts and reports a record that fails.
    ///
    /// # Errors
    /// The record's own, where it ends the load.
    fn pass_over(
        &mut self,
        error: RecordError,
        options: &LoadOptions,
        observer: &mut dyn LoadObserver,
    ) -> Result<(), LoadError> {
        if !options.continue_on_error {
            return Err(error.into());
        }
        self.failed += 1;
        observer.record_failed(&error);
        Ok(())
    }
}

/// What is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Reading,
    /// The postings are merged and appended.
    Indexing,
    Syncing,
}

/// Who watches a load.
pub trait LoadObserver {
    /// Called every few thousand entries and when the phase changes.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }

    /// A record was passed over ([`LoadOptions::continue_on_error`]).
    fn record_failed(&mut self, error: &RecordError) {
        let _ = error;
    }
}

/// An observer that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl LoadObserver for Unobserved {}

/// What a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Entries stored; with [`LoadOptions::dry_run`], those that would have been.
    pub entries: u64,
    /// Records that failed and were passed over.
    pub failed: u64,
    /// Bytes of LDIF read.
    pub bytes: u64,
}

/// Loads into a store without entries, through its [`larix_store::Loader`]. `scratch` is where temporary files go.
///
/// After an error the content of the store is not defined: [`load_directory`] is what an administrator wants.
pub fn load_empty<S: Store>(
    store: &S,
    scratch: &std::path::Path,
    input: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut dyn LoadObserver,
) -> Result<LoadReport, LoadError> {
    bulk::load(store, scratch, input, context, options, observer)
}

/// Adds to a database that may hold entries. Up to [`ATOMIC_BYTES`] of changes are committed at once, so that an error leaves
/// the database as it was; beyond that there are several commits, and what is committed before an error stays.
pub fn load_into<S: Store>(
    database: &Database<S>,
    input: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut dyn LoadObserver,
) -> Result<LoadReport, LoadError> {
    merge::load(database, input, context, options, observer)
}

/// Into a database of a [shared](Store::SHARED) store, which other processes read meanwhile. Where it has no entries, they see all or
/// nothing of the LDIF, and an error leaves nothing of it. Otherwise it is as [`load_into`], with smaller commits. `scratch` is where temporary files go.
pub fn load_shared<S: Store>(
    database: &Database<S>,
    scratch: &std::path::Path,
    input: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut dyn LoadObserver,
) -> Result<LoadReport, LoadError> {
    if !bulk::is_empty(database)? {
        return merge::load(database, input, context, options, observer);
    }
    if !options.dry_run {
        bulk::forget_entries_before(database.store())?;
    }
    bulk::load(database.store(), scratch, input, context, options, observer)
}

/// A thread that panicked takes the load with it.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
