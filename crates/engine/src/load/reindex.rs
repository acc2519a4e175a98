//! Indexes made anew, offline: the postings of all entries are gathered, sorted in bounded memory and appended, as a bulk
//! load does it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use larix_schema::Schema;
use larix_store::{
    CommitError, Direction, KeyRange, Loader, PostingCursor, ReadError, Snapshot, Store, WriteSet,
};

use super::runs::{Merge, Run};
use super::sort::Sorter;
use super::worker::Gathering;
use super::{MEMORY_BYTES_DEFAULT, joined};
use crate::catalog::Catalog;
use crate::database::{Database, commit_alone, settled, unmade};
use crate::entry::{AttributeNumber, EntryId, EntryReader, EntryView};
use crate::fault::Fault;
use crate::index::merge::{self, DrainError};
use crate::index::{Kinds, keys};
use crate::tables::{ENTRIES, INDEX, META, PENDING, meta};

/// Ids of entries that a thread takes at once.
const RANGE_IDS: u64 = 4_096;
/// Entries or postings between two reports of progress.
const PROGRESS_STEP: u64 = 1 << 16;
/// Bytes of changes after which a rebuild of some indexes commits.
const COMMIT_BYTES: usize = 64 << 20;

/// What of the indexes is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// What the lines want and is not complete.
    Stale,
    /// These attributes, whatever their state.
    Attributes(Vec<AttributeNumber>),
    All,
}

/// How indexes are made anew.
#[derive(Clone, Copy, Debug)]
pub struct RebuildOptions<'a> {
    /// Where temporary files go.
    pub scratch: &'a Path,
    /// Threads that read entries.
    pub threads: usize,
    /// Memory for gathering postings, in bytes. More of them are sorted in temporary files.
    pub memory_bytes: usize,
    /// An entry that cannot be read is reported and passed over (`-c`).
    pub continue_on_error: bool,
}

impl<'a> RebuildOptions<'a> {
    pub fn new(scratch: &'a Path) -> Self {
        Self { scratch, threads: 2, memory_bytes: MEMORY_BYTES_DEFAULT, continue_on_error: false }
    }
}

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Entries read.
    pub entries: u64,
    /// Postings appended, of how many; none before all entries are read.
    pub postings: (u64, u64),
}

/// What a rebuild did.
#[derive(Debug, Default)]
pub struct Rebuilt {
    pub entries: u64,
    pub postings: u64,
    /// Entries that could not be read, and why.
    pub failed: Vec<(EntryId, Fault)>,
}

/// Why a rebuild ended early. The indexes that it was about are marked as incomplete: searches do without them, and the
/// server builds them when it is started.
#[derive(Debug)]
pub enum RebuildError {
    Read(Fault),
    /// An entry cannot be read.
    Entry(EntryId, Fault),
    Commit(CommitError),
    /// A temporary file.
    Scratch(io::Error),
}

impl fmt::Display for RebuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(fault) => fault.fmt(f),
            Self::Entry(entry, fault) => write!(f, "entry {entry}: {fault}"),
            Self::Commit(error) => error.fmt(f),
            Self::Scratch(error) => write!(f, "temporary file: {error}"),
        }
    }
}

impl std::error::Error for RebuildError {}

impl From<Fault> for RebuildError {
    fn from(fault: Fault) -> Self {
        Self::Read(fault)
    }
}

impl From<CommitError> for RebuildError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<ReadError> for RebuildError {
    fn from(error: ReadError) -> Self {
        Self::Read(error.into())
    }
}

impl From<io::Error> for RebuildError {
    fn from(error: io::Error) -> Self {
        Self::Scratch(error)
    }
}

/// Makes indexes anew. Nothing else may write meanwhile.
///
/// # Errors
/// A store, a temporary file or, unless [`RebuildOptions::continue_on_error`], an entry that cannot be read or written.
pub fn rebuild<S: Store>(
    database: &Database<S>,
    what: &Rebuild,
    options: &RebuildOptions<'_>,
    progress: &mut dyn FnMut(&RebuildProgress),
) -> Result<Rebuilt, RebuildError> {
    let mut catalog = (*database.catalog()).clone();
    let all: BTreeSet<AttributeNumber> = catalog.rows().iter().map(|row| row.number).collect();
    let chosen: BTreeSet<AttributeNumber> = match what {
        Rebuild::Stale => catalog.stale().map(|row| row.number).collect(),
        Rebuild::Attributes(numbers) => numbers.iter().copied().collect(),
        Rebuild::All => all,
    };
    if chosen.is_empty() {
        return Ok(Rebuilt::default());
    }
    // Nothing of the index stays when nothing else is indexed.
    let whole = catalog.rows().iter().all(|row| row.built.is_empty() || chosen.contains(&row.number));
    if !whole {
        // What is pending may be older than the index that is made.
        merge::drain(database.store()).map_err(|error| match error {
            DrainError::Read(fault) => RebuildError::Read(fault),
            DrainError::Commit(error) => RebuildError::Commit(error),
        })?;
    }
    // Until it is done the indexes are marked incomplete, so that a crash leaves no half index in use.
    let mut set = WriteSet::new();
    set.delete(META, meta::INDEX_WORK);
    for number in &chosen {
        set.delete(META, &keys::left_keys_note(*number));
        catalog.set_built(*number, Kinds::NONE);
        catalog.write_row(*number, &mut set);
    }
    if whole {
        // They say nothing that the entries do not say.
        let snapshot = database.store().snapshot()?;
        for row in snapshot.scan(PENDING, KeyRange::all(), Direction::Forward)? {
            set.delete(PENDING, &row?.0);
        }
    }
    publish(database, &catalog, &set)?;
    let (gathered, mut rebuilt) = gather(database, &catalog, &chosen, options, progress)?;
    rebuilt.postings = if whole {
        append(database, gathered, &rebuilt, progress)?
    } else {
        chosen.iter().try_for_each(|number| clear(database, *number))?;
        replace(database, gathered, &rebuilt, progress)?
    };
    let mut set = WriteSet::new();
    for number in &chosen {
        let wanted = catalog.row(*number).map_or(Kinds::NONE, |row| row.wanted);
        catalog.set_built(*number, wanted);
        catalog.write_row(*number, &mut set);
    }
    publish(database, &catalog, &set)?;
    Ok(rebuilt)
}

fn publish<S: Store>(database: &Database<S>, catalog: &Catalog, set: &WriteSet) -> Result<(), RebuildError> {
    commit_alone(database.store(), database.store().transaction()?, set)?;
    database.publish_catalog(Arc::new(catalog.clone()));
    Ok(())
}

/// Reads the entries with several threads; what they gathered is sorted within each run.
fn gather<S: Store>(
    database: &Database<S>,
    catalog: &Catalog,
    chosen: &BTreeSet<AttributeNumber>,
    options: &RebuildOptions<'_>,
    progress: &mut dyn FnMut(&RebuildProgress),
) -> Result<(Vec<Run>, Rebuilt), RebuildError> {
    let last = {
        let snapshot = database.store().snapshot()?;
        let last = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Backward)?.next().transpose()?;
        last.and_then(|(id, _)| EntryId::from_prefix(&id)).unwrap_or(EntryId::ROOT)
    };
    let threads = options.threads.max(1);
    let (next, entries) = (AtomicU64::new(1), AtomicU64::new(0));
    let schema = database.schema();
    let part = ReindexShare {
        database,
        schema: &schema,
        catalog,
        chosen,
        options,
        limit: options.memory_bytes / threads,
        next: &next,
        last: last.0,
        entries: &entries,
    };
    let outcomes: Vec<Result<ReindexOutcome, RebuildError>> = thread::scope(|scope| {
        // Where the system has no more threads, fewer do the same.
        let workers: Vec<_> = (1..threads)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, || part.run(&mut |_| {})).ok())
            .collect();
        let own = part.run(progress);
        // Who fails takes no more, and the others find nothing left to take.
        workers.into_iter().map(joined).chain([own]).collect()
    });
    let (mut runs, mut rebuilt) = (Vec::new(), Rebuilt::default());
    for outcome in outcomes {
        let gathered = outcome?;
        runs.extend(gathered.runs);
        rebuilt.failed.extend(gathered.failed);
    }
    rebuilt.entries = entries.into_inner();
    rebuilt.failed.sort_by_key(|(entry, _)| *entry);
    Ok((runs, rebuilt))
}

/// What each thread works on.
struct ReindexShare<'a, S> {
    database: &'a Database<S>,
    schema: &'a Schema,
    catalog: &'a Catalog,
    chosen: &'a BTreeSet<AttributeNumber>,
    options: &'a RebuildOptions<'a>,
    limit: usize,
    /// The first free id.
    next: &'a AtomicU64,
    last: u64,
    entries: &'a AtomicU64,
}

#[derive(Default)]
struct ReindexOutcome {
    runs: Vec<Run>,
    failed: Vec<(EntryId, Fault)>,
}

impl<S: Store> ReindexShare<'_, S> {
    fn run(&self, progress: &mut dyn FnMut(&RebuildProgress)) -> Result<ReindexOutcome, RebuildError> {
        let done = self.ranges(progress);
        if done.is_err() {
            self.next.store(u64::MAX / 2, Ordering::Relaxed);
        }
        done
    }

    fn ranges(&self, progress: &mut dyn FnMut(&RebuildProgress)) -> Result<ReindexOutcome, RebuildError> {
        let mut gathered = ReindexOutcome::default();
        let mut sorter = Sorter::with_room(self.limit);
        let mut reported = 0;
        loop {
            let first = self.next.fetch_add(RANGE_IDS, Ordering::Relaxed);
            if first > self.last {
                break;
            }
            let (low, high) = (first.to_be_bytes(), first.saturating_add(RANGE_IDS).to_be_bytes());
            let snapshot = self.database.store().snapshot()?;
            let mut count = 0;
            for row in snapshot.scan(ENTRIES, KeyRange::between(&low, &high), Direction::Forward)? {
                let (id, record) = row?;
                let id = EntryId::from_prefix(&id).ok_or(Fault::Damaged { what: "an entry id" })?;
                if sorter.bytes() > self.limit || sorter.is_full(id.0) {
                    gathered.runs.push(sorter.spill(self.options.scratch)?);
                }
                count += 1;
                let read = self.catalog.dictionaries().unpacked(&snapshot, id, record);
                match read.and_then(|record| self.entry(&snapshot, id, &record, &mut sorter)) {
                    Ok(()) => {}
                    Err(fault) if self.options.continue_on_error => gathered.failed.push((id, fault)),
                    Err(fault) => return Err(RebuildError::Entry(id, fault)),
                }
            }
            let entries = self.entries.fetch_add(count, Ordering::Relaxed) + count;
            if entries >= reported + PROGRESS_STEP {
                reported = entries;
                progress(&RebuildProgress { entries, postings: (0, 0) });
            }
        }
        if !sorter.is_empty() {
            gathered.runs.push(sorter.run()?);
        }
        Ok(gathered)
    }

    fn entry<N: Snapshot>(
        &self,
        snapshot: &N,
        id: EntryId,
        record: &[u8],
        sorter: &mut Sorter,
    ) -> Result<(), Fault> {
        let view = EntryView::parse(id, record)?;
        let reader = EntryReader::new(snapshot, self.schema, self.catalog, view);
        for attribute in view.attributes() {
            let (number, stored) = attribute?;
            let row = self.catalog.row(number).filter(|row| !row.wanted.is_empty());
            let Some(row) = row.filter(|_| self.chosen.contains(&number)) else { continue };
            let mut sink = Gathering { sorter, number, id };
            keys::visit_stored_keys(self.schema, row, row.wanted, &reader, &stored, &mut sink)?;
        }
        Ok(())
    }
}

/// The whole index anew: pages are filled in order, beside the entries, which no crash may cost. Answers how many postings there are.
fn append<S: Store>(
    database: &Database<S>,
    runs: Vec<Run>,
    rebuilt: &Rebuilt,
    progress: &mut dyn FnMut(&RebuildProgress),
) -> Result<u64, RebuildError> {
    let mut loader = database.store().live_loader()?;
    loader.clear(INDEX)?;
    let total = merged(runs, rebuilt, progress, |key, ids| Ok(loader.append_posting_runs(INDEX, key, ids)?))?;
    settled(database.store(), loader.finish())?.ok_or_else(unmade)?;
    Ok(total)
}

/// Some attributes' postings beside those of others. Answers how many there are.
fn replace<S: Store>(
    database: &Database<S>,
    runs: Vec<Run>,
    rebuilt: &Rebuilt,
    progress: &mut dyn FnMut(&RebuildProgress),
) -> Result<u64, RebuildError> {
    let mut set = WriteSet::new();
    let total = merged(runs, rebuilt, progress, |key, ids| {
        for id in ids.flat_map(|(start, length)| start..start + length) {
            set.add_posting(INDEX, key, id);
            if set.byte_len() >= COMMIT_BYTES {
                commit(database, &std::mem::take(&mut set))?;
            }
        }
        Ok(())
    })?;
    commit(database, &set)?;
    Ok(total)
}

/// Goes through the keys of all runs in order.
fn merged(
    runs: Vec<Run>,
    rebuilt: &Rebuilt,
    progress: &mut dyn FnMut(&RebuildProgress),
    mut put: impl FnMut(&[u8], &mut dyn Iterator<Item = (u64, u64)>) -> Result<(), RebuildError>,
) -> Result<u64, RebuildError> {
    let mut merge = Merge::default();
    for run in runs {
        merge.add(run)?;
    }
    let total = merge.ids_total();
    let (mut done, mut reported) = (0, 0);
    merge.for_each(|key, ids| -> Result<(), RebuildError> {
        put(key, &mut ids.inspect(|(_, length)| done += length))?;
        if done >= reported + 16 * PROGRESS_STEP {
            reported = done;
            progress(&RebuildProgress { entries: rebuilt.entries, postings: (done, total) });
        }
        Ok(())
    })?;
    Ok(total)
}

fn commit<S: Store>(database: &Database<S>, set: &WriteSet) -> Result<(), RebuildError> {
    if !set.is_empty() {
        commit_alone(database.store(), database.store().transaction()?, set)?;
    }
    Ok(())
}

/// Removes all postings of an attribute.
fn clear<S: Store>(database: &Database<S>, number: AttributeNumber) -> Result<(), RebuildError> {
    let prefix = number.0.to_be_bytes();
    loop {
        let mut set = WriteSet::new();
        {
            let snapshot = database.store().snapshot()?;
            'keys: for row in snapshot.posting_keys(INDEX, KeyRange::prefix(&prefix), Direction::Forward)? {
                let (key, _) = row?;
                let mut cursor = snapshot.postings(INDEX, &key)?;
                while let Some(id) = cursor.next()? {
                    set.remove_posting(INDEX, &key, id);
                    if set.byte_len() >= COMMIT_BYTES {
                        break 'keys;
                    }
                }
            }
        }
        if set.is_empty() {
            return Ok(());
        }
        commit(database, &set)?;
    }
}
