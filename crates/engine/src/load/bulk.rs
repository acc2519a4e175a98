//! Into an empty store: one thread cuts the input into chunks, several read, check and encode the entries, the calling
//! one puts them in order and appends.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use larix_proto::ldif::{Chunk, Chunks, LocalFiles};
use larix_store::memory::MemoryStore;
use larix_store::{Loader, Store, WriteSet};
use uuid::Uuid;

use super::error::{LoadError, RecordError, RecordFault};
use super::names::{Fingerprint, Names};
use super::orphans::Orphans;
use super::packing::{Made, Packing, Records};
use super::prepare::Checker;
use super::runs::{Merge, Run};
use super::sort::Sorter;
use super::worker::{Batch, Content, Encoded, EncodedEntry, Turns, Worker};
use super::{LoadContext, LoadObserver, LoadOptions, LoadReport, Phase, Progress, joined};
use crate::catalog::CatalogEdit;
use crate::csn::Csn;
use crate::database::{Database, commit_alone, settled, unmade};
use crate::entry::EntryId;
use crate::index::{KeyKind, key};
use crate::log;
use crate::tables::{BLOBS, ENTRIES, INDEX, META, TABLES, TREE, VALUES, meta};
use crate::tree;

/// Bytes of LDIF handed from thread to thread at once, at least: some 60 entries of 2 KB. Tests have more chunks.
const CHUNK_BYTES: usize = if cfg!(test) { 4 << 10 } else { 128 << 10 };
/// Batches that wait for a thread.
const BATCHES_WAITING: usize = 8;
/// Batches between the reader and the last one in order: what waits for a slow one stays bounded.
const BATCHES_UNDERWAY: usize = 64;
/// Entries between two reports of progress.
const PROGRESS_ENTRIES: u64 = 4096;
/// Postings between two reports of progress.
const PROGRESS_POSTINGS: u64 = 1 << 20;
/// Where the id of the superior stands in a record: behind codec and flags.
const PARENT_IN_RECORD: std::ops::Range<usize> = 2..10;
/// The tree's rows gathered in memory at once, as a share of the memory for postings.
const TREE_SHARE: usize = 8;
/// What the lines of entries take, as a share of the memory for postings: 2 million lines by default. Errors name no lines of later entries.
const LINES_SHARE: usize = 8;

pub(super) fn load<S: Store>(
    store: &S,
    scratch: &Path,
    input: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut dyn LoadObserver,
) -> Result<LoadReport, LoadError> {
    let catalog =
        crate::catalog::Catalog::load(&store.snapshot()?, context.schema, context.settings.index.clone())
            .map_err(|error| LoadError::Fault(error.into()))?;
    let packing = Packing::new(catalog.dictionaries());
    let checker = Checker::new(context, options, CatalogEdit::new(Arc::new(catalog)))?;
    let bytes = AtomicU64::new(0);
    let loader = if options.dry_run { None } else { Some(store.loader()?) };
    let loading = Loading { checker: &checker, packing: &packing, scratch, bytes: &bytes };
    let chunks = Chunks::new(Counted { input, bytes: &bytes }).with_files(LocalFiles);
    let (report, loader) = loading.run(loader, observer, |out| read(chunks, options, out), &mut || Ok(()))?;
    if let Some(mut loader) = loader {
        let mut set = WriteSet::new();
        report.csns.values().for_each(|csn| log::put_context_csn(&mut set, csn));
        write_meta(&mut set, &mut checker.into_catalog(), packing, report.last_id);
        put_all(&mut loader, &set)?;
        settled(store, loader.finish())?.ok_or_else(unmade)?;
    }
    Ok(report.load)
}

/// Puts what is written beside the entries.
fn put_all(loader: &mut impl Loader, set: &WriteSet) -> Result<(), LoadError> {
    for table in set.tables() {
        for (key, value) in set.records(table) {
            loader.put(table, key, value.unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Facts about the database, last: a store without them is no database.
pub(super) fn write_meta(set: &mut WriteSet, catalog: &mut CatalogEdit, packing: Packing, last_id: u64) {
    set.put(META, meta::LAST_ENTRY_ID, last_id.to_be_bytes());
    let known = catalog.catalog().dictionaries().len();
    let Made { dictionaries, sampled } = packing.into_made();
    for dictionary in dictionaries.iter().skip(known) {
        catalog.add_dictionary(Arc::clone(dictionary));
    }
    if let Some(sampled) = sampled {
        set.put(META, meta::DICTIONARY_SAMPLED, sampled.to_bytes());
    }
    catalog.write_new(set);
}

/// What the threads of a load share.
pub(super) struct Loading<'a, 'c> {
    pub(super) checker: &'a Checker<'c>,
    pub(super) packing: &'a Packing,
    /// Where temporary files go.
    pub(super) scratch: &'a Path,
    /// What of the input was read.
    pub(super) bytes: &'a AtomicU64,
}

impl Loading<'_, '_> {
    /// Stores what `feed` hands out, on a thread of its own, until it returns. `named` is called when all is stored but the
    /// names of entries, by which alone they are found. The loader comes back, to be finished.
    pub(super) fn run<L: Loader>(
        &self,
        loader: Option<L>,
        observer: &mut dyn LoadObserver,
        feed: impl FnOnce(Batches) + Send,
        named: &mut dyn FnMut() -> Result<(), LoadError>,
    ) -> Result<(Loaded, Option<L>), LoadError> {
        let Self { checker, packing, scratch, bytes } = *self;
        let empty = MemoryStore::new(&TABLES)?;
        let threads = checker.options.threads.max(1);
        let (to_workers, batches) = sync_channel::<Batch>(BATCHES_WAITING);
        let (to_writer, results) = sync_channel::<Encoded>(BATCHES_WAITING);
        let (begun, underway) = sync_channel::<()>(BATCHES_UNDERWAY);
        let (used, spare) = sync_channel::<Chunk>(BATCHES_WAITING);
        let turns = Turns::default();
        // Owned by the workers alone: when they have ended, so does the reader.
        let batches = Arc::new(Mutex::new(batches));
        let mut writer = InOrder::new(loader, checker, packing, scratch, observer, bytes);
        let gathered = thread::scope(|scope| -> Result<Vec<_>, LoadError> {
            let feeding = move || feed(Batches { begun, out: to_workers, spare });
            thread::Builder::new().spawn_scoped(scope, feeding).map_err(|error| no_thread(&error))?;
            let mut workers = Vec::new();
            for _ in 0..threads {
                let (empty, turns) = (&empty, &turns);
                let (batches, to_writer, used) = (Arc::clone(&batches), to_writer.clone(), used.clone());
                let begun = thread::Builder::new().spawn_scoped(scope, move || {
                    let worker = Worker::new(checker, packing, empty, scratch)?;
                    worker.run(&batches, turns, (&to_writer, &used))
                });
                match begun {
                    Ok(worker) => workers.push(worker),
                    Err(error) if workers.is_empty() => return Err(no_thread(&error)),
                    // Those that there are do all of it.
                    Err(_) => break,
                }
            }
            drop((batches, to_writer, used));
            let written = writer.run(&results, &underway);
            // Threads that still send find no receiver and end.
            drop((results, underway));
            let gathered: Vec<_> = workers.into_iter().map(joined).collect();
            written.map(|()| gathered)
        })?;
        writer.unique = checker.unique_uuid().map(|number| {
            let mut head = Vec::new();
            key::put_prefix(&mut head, number, KeyKind::Equality, &[]);
            head
        });
        writer.finish(gathered.into_iter().collect::<Result<_, _>>()?, named)
    }
}

/// The system says no more than that it may be tried again.
fn no_thread(error: &io::Error) -> LoadError {
    let what = format!(
        "no thread for the load: {error} (ulimit -u, TasksMax= or pids.max limits them, and ulimit -v or -d their memory)"
    );
    LoadError::Io(io::Error::new(error.kind(), what))
}

/// An input that counts what is read.
pub(super) struct Counted<'a, R> {
    pub(super) input: R,
    pub(super) bytes: &'a AtomicU64,
}

impl<R: BufRead> Read for Counted<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(out)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes.fetch_add(amount as u64, Ordering::Relaxed);
        self.input.consume(amount);
    }
}

/// The reader's way out.
pub(super) struct Batches {
    begun: SyncSender<()>,
    out: SyncSender<Batch>,
    /// Chunks that were read: their memory is used again.
    spare: Receiver<Chunk>,
}

impl Batches {
    /// False when no receiver wants more.
    pub(super) fn send(&self, batch: Batch) -> bool {
        self.begun.send(()).is_ok() && self.out.send(batch).is_ok()
    }
}

fn read<R: BufRead>(mut chunks: Chunks<R>, options: &LoadOptions, out: Batches) {
    for number in 0.. {
        if let Ok(spare) = out.spare.try_recv() {
            chunks.recycle(spare);
        }
        let content = loop {
            match chunks.next_chunk(CHUNK_BYTES) {
                Ok(Some(chunk)) => break Content::Chunk(chunk),
                Ok(None) => return,
                Err(error) if error.line < options.start_line && error.is_recoverable() => {}
                Err(error) => break Content::Failed(error),
            }
        };
        let more = match &content {
            Content::Failed(error) => options.continue_on_error && error.is_recoverable(),
            _ => true,
        };
        if !out.send(Batch { number, content }) || !more {
            return;
        }
    }
}

/// The result of the load, for the last commit.
pub(super) struct Loaded {
    pub(super) load: LoadReport,
    /// The highest id of an entry.
    pub(super) last_id: u64,
    /// The highest CSN of each server.
    csns: BTreeMap<u16, Csn>,
}

/// The ids of entries by their ids in the file, which are those that postings were gathered with. They are the same
/// up to the first entry that came before its superior; from there on ids are given in the order of storing, superiors
/// first.
#[derive(Default)]
struct Numbers {
    /// The first id of the file that is not the entry's.
    parted: Option<EntryId>,
    /// From there on. 0: none.
    given: Vec<u64>,
    /// Ids of the file whose postings were gathered though the entry failed later.
    failed: roaring::RoaringTreemap,
}

impl Numbers {
    /// The record with this id in the file has to wait.
    fn part(&mut self, id: EntryId) {
        self.parted.get_or_insert(id);
    }

    fn give(&mut self, in_file: EntryId, last: EntryId) -> EntryId {
        let Some(parted) = self.parted else { return in_file };
        let at = in_file.0.saturating_sub(parted.0) as usize;
        if self.given.len() <= at {
            self.given.resize(at + 1, 0);
        }
        if let Some(given) = self.given.get_mut(at) {
            *given = last.0 + 1;
        }
        EntryId(last.0 + 1)
    }

    fn are_those_of_the_file(&self) -> bool {
        self.parted.is_none() && self.failed.is_empty()
    }

    fn of(&self, in_file: u64) -> Option<u64> {
        if self.failed.contains(in_file) {
            return None;
        }
        match self.parted {
            Some(parted) if in_file >= parted.0 => {
                self.given.get((in_file - parted.0) as usize).copied().filter(|id| *id != 0)
            }
            _ => Some(in_file),
        }
    }
}

/// Puts entries in order, finds their superiors, and appends them.
struct InOrder<'a, L> {
    loader: Option<L>,
    records: Records<'a>,
    options: &'a LoadOptions,
    scratch: &'a Path,
    observer: &'a mut dyn LoadObserver,
    bytes: &'a AtomicU64,
    ids: Names,
    orphans: Orphans<Fingerprint, EncodedEntry>,
    tree: Sorter,
    tree_runs: Vec<Run>,
    numbers: Numbers,
    /// The lines of the entries by their ids in the file, as far as 32 bits and [`LINES_SHARE`] hold them; 0 is none.
    lines: Vec<u32>,
    /// How those keys in the index begin that one entry alone may have.
    unique: Option<Vec<u8>>,
    progress: Progress,
    report: Loaded,
}

impl<'a, L: Loader> InOrder<'a, L> {
    fn new(
        loader: Option<L>,
        checker: &'a Checker<'_>,
        packing: &'a Packing,
        scratch: &'a Path,
        observer: &'a mut dyn LoadObserver,
        bytes: &'a AtomicU64,
    ) -> Self {
        Self {
            loader,
            records: Records::new(packing),
            options: checker.options,
            scratch,
            observer,
            bytes,
            ids: Names::new(),
            orphans: Orphans::new(checker.options.memory_bytes),
            tree: Sorter::for_single_keys(checker.options.memory_bytes / TREE_SHARE),
            tree_runs: Vec::new(),
            numbers: Numbers::default(),
            lines: Vec::new(),
            unique: None,
            progress: Progress::default(),
            report: Loaded { load: LoadReport::default(), last_id: 0, csns: BTreeMap::new() },
        }
    }

    fn run(&mut self, results: &Receiver<Encoded>, underway: &Receiver<()>) -> Result<(), LoadError> {
        // Batches that came before an earlier one.
        let mut early = BTreeMap::new();
        let mut next = 0;
        for encoded in results {
            early.insert(encoded.number, encoded.entries?);
            while let Some(entries) = early.remove(&next) {
                next += 1;
                // Each batch was announced before it was sent.
                let _ = underway.recv();
                for entry in entries {
                    self.take(entry)?;
                }
            }
        }
        self.refuse_orphans()
    }

    fn take(&mut self, entry: Result<EncodedEntry, RecordError>) -> Result<(), LoadError> {
        match entry {
            Ok(entry) => self.entry(entry)?,
            Err(error) => self.failed(error)?,
        }
        if (self.progress.entries + self.progress.failed).is_multiple_of(PROGRESS_ENTRIES) {
            self.tell(Phase::Reading);
        }
        Ok(())
    }

    fn failed(&mut self, error: RecordError) -> Result<(), LoadError> {
        self.progress.pass_over(error, self.options, self.observer)
    }

    /// Stores the entry and what waited for it, or lets it wait for its superior.
    fn entry(&mut self, entry: EncodedEntry) -> Result<(), LoadError> {
        let parent = match entry.superior {
            None => EntryId::ROOT,
            Some(superior) => match self.ids.get(superior) {
                Some(parent) => parent,
                None => {
                    self.numbers.part(entry.id);
                    let bytes = entry.bytes();
                    return match self.orphans.add(superior, entry, bytes) {
                        Ok(()) => Ok(()),
                        Err(entry) => self.refuse(entry, RecordFault::TooManyWait),
                    };
                }
            },
        };
        let mut ready = vec![(entry, parent)];
        while let Some((entry, parent)) = ready.pop() {
            let name = entry.name;
            if self.ids.get(name).is_some() {
                self.refuse(entry, RecordFault::Exists)?;
                continue;
            }
            let id = self.numbers.give(entry.id, EntryId(self.report.last_id));
            self.ids.insert(name, id);
            self.report.last_id = id.0;
            if self.options.unique_uuids {
                self.note_line(&entry);
            }
            self.store(entry, id, parent)?;
            self.progress.entries += 1;
            ready.extend(self.orphans.take(&name).into_iter().rev().map(|waiting| (waiting, id)));
        }
        Ok(())
    }

    fn note_line(&mut self, entry: &EncodedEntry) {
        let at = entry.id.0 as usize;
        if at >= self.options.memory_bytes / LINES_SHARE / size_of::<u32>() {
            return;
        }
        if self.lines.len() <= at {
            self.lines.resize(at + 1, 0);
        }
        if let Some(line) = self.lines.get_mut(at) {
            *line = u32::try_from(entry.line).unwrap_or(0);
        }
    }

    fn refuse(&mut self, entry: EncodedEntry, fault: RecordFault) -> Result<(), LoadError> {
        self.numbers.failed.insert(entry.id.0);
        self.failed(entry.fails(fault))
    }

    /// Superiors that never came.
    fn refuse_orphans(&mut self) -> Result<(), LoadError> {
        let mut orphans = self.orphans.take_all();
        orphans.sort_unstable_by_key(|entry| entry.id);
        orphans.into_iter().try_for_each(|entry| self.refuse(entry, RecordFault::NoSuperior))
    }

    fn tell(&mut self, phase: Phase) {
        self.progress.bytes = self.bytes.load(Ordering::Relaxed);
        self.progress.phase = phase;
        self.observer.progress(&self.progress);
    }

    fn store(&mut self, entry: EncodedEntry, id: EntryId, parent: EntryId) -> Result<(), LoadError> {
        let EncodedEntry { normal_rdn, mut record, mut blobs, mut values, csns, .. } = entry;
        for csn in csns {
            let highest = self.report.csns.entry(csn.server_id).or_insert(csn);
            *highest = csn.max(*highest);
        }
        let Some(loader) = &mut self.loader else { return Ok(()) };
        if let Some(bytes) = record.get_mut(PARENT_IN_RECORD) {
            bytes.copy_from_slice(&parent.to_bytes());
        }
        self.records.append(loader, id, record)?;
        for (table, rows) in [(BLOBS, &mut blobs), (VALUES, &mut values)] {
            for (key, value) in rows {
                if let Some(bytes) = key.first_chunk_mut() {
                    *bytes = id.to_bytes();
                }
                loader.append(table, key, value)?;
            }
        }
        if self.tree.bytes() > self.options.memory_bytes / TREE_SHARE || self.tree.is_full(id.0) {
            self.tree_runs.push(self.tree.spill(self.scratch)?);
        }
        self.tree.add(&tree::key(parent, &normal_rdn), id.0);
        Ok(())
    }

    fn finish(
        mut self,
        gathered: Vec<Vec<Run>>,
        named: &mut dyn FnMut() -> Result<(), LoadError>,
    ) -> Result<(Loaded, Option<L>), LoadError> {
        self.tell(Phase::Indexing);
        self.ids = Names::new();
        let mut loader = self.loader.take();
        if let Some(loader) = &mut loader {
            self.records.finish(loader)?;
            if !self.tree.is_empty() {
                self.tree_runs.push(self.tree.run()?);
            }
        }
        self.append_postings(loader.as_mut(), gathered)?;
        if let Some(loader) = &mut loader {
            named()?;
            append_tree(loader, self.tree_runs.drain(..))?;
            self.tell(Phase::Syncing);
        }
        self.report.load = LoadReport {
            entries: self.progress.entries,
            failed: self.progress.failed,
            bytes: self.bytes.load(Ordering::Relaxed),
        };
        Ok((self.report, loader))
    }
}

impl<L: Loader> InOrder<'_, L> {
    /// Without a loader, as of a dry run, they are only checked.
    fn append_postings(
        &mut self,
        mut loader: Option<&mut L>,
        gathered: Vec<Vec<Run>>,
    ) -> Result<(), LoadError> {
        let mut merge = Merge::default();
        for run in gathered.into_iter().flatten() {
            merge.add(run)?;
        }
        self.progress.postings = (0, merge.ids_total());
        let mut reported = 0;
        let (mut renumbered, mut few) = (Vec::new(), Vec::new());
        merge.for_each(|key, runs| -> Result<(), LoadError> {
            let done = &mut self.progress.postings.0;
            let mut counted = runs.inspect(|(_, length)| *done += length);
            let is_unique = self.unique.as_ref().is_some_and(|head| key.starts_with(head));
            let mut again;
            let runs: &mut dyn Iterator<Item = (u64, u64)> = if is_unique {
                few.clear();
                few.extend(counted);
                refuse_twins(key, &few, &self.numbers, &self.lines)?;
                again = few.iter().copied();
                &mut again
            } else {
                &mut counted
            };
            match &mut loader {
                None => runs.for_each(drop),
                Some(loader) if self.numbers.are_those_of_the_file() => {
                    loader.append_posting_runs(INDEX, key, runs)?;
                }
                Some(loader) => {
                    let ids = runs.flat_map(|(start, length)| start..start + length);
                    renumbered.clear();
                    renumbered.extend(ids.filter_map(|id| self.numbers.of(id)));
                    renumbered.sort_unstable();
                    if !renumbered.is_empty() {
                        loader.append_postings(INDEX, key, &mut renumbered.iter().copied())?;
                    }
                }
            }
            if self.progress.postings.0 >= reported + PROGRESS_POSTINGS {
                reported = self.progress.postings.0;
                self.tell(Phase::Indexing);
            }
            Ok(())
        })
    }
}

/// # Errors
/// Several entries have the key: names the second of them. Runs of ids are as they are in the file.
fn refuse_twins(key: &[u8], runs: &[(u64, u64)], numbers: &Numbers, lines: &[u32]) -> Result<(), LoadError> {
    if let [] | [(_, 1)] = runs {
        return Ok(());
    }
    let ids = runs.iter().flat_map(|(start, length)| *start..start + length);
    let mut stored = ids.filter(|id| numbers.of(*id).is_some());
    let (Some(first), Some(second)) = (stored.next(), stored.next()) else { return Ok(()) };
    // What is no UUID, which a load without checks of values takes, names no entry to consumers.
    let uuid = key::parse_value(key).and_then(|normal| Uuid::from_slice(&normal).ok());
    let Some(uuid) = uuid else { return Ok(()) };
    let line = |id: u64| lines.get(id as usize).copied().map_or(0, u64::from);
    let fault = RecordFault::SameUuid { uuid, line: line(first) };
    Err(RecordError { line: line(second), dn: String::new(), fault }.into())
}

fn append_tree(loader: &mut impl Loader, runs: impl Iterator<Item = Run>) -> Result<(), LoadError> {
    let mut merge = Merge::default();
    for run in runs {
        merge.add(run)?;
    }
    merge.for_each(|key, ids| {
        for (id, _) in ids {
            loader.append(TREE, key, &id.to_be_bytes())?;
        }
        Ok(())
    })
}

/// Where entries were deleted before the load: their ids are given again, so no cache may keep a name, and what is loaded is not in
/// the change log.
pub(super) fn forget_entries_before<S: Store>(store: &S) -> Result<(), LoadError> {
    let transaction = store.transaction()?;
    let mut set = WriteSet::new();
    tree::bump_generation(&mut set, &transaction)?;
    log::end_history(&mut set);
    set.delete(META, meta::BACK_LINKS);
    commit_alone(store, transaction, &set)?;
    Ok(())
}

/// Whether there is no entry.
pub(super) fn is_empty<S: Store>(database: &Database<S>) -> Result<bool, LoadError> {
    let snapshot = database.store().snapshot()?;
    let mut entries = larix_store::Snapshot::scan(
        &snapshot,
        ENTRIES,
        larix_store::KeyRange::all(),
        larix_store::Direction::Forward,
    )?;
    Ok(entries.next().transpose()?.is_none())
}
