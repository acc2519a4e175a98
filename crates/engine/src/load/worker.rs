//! What each thread of a bulk load does: reads the records of a chunk, checks and encodes them, gathers their postings.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use larix_proto::ldif::{Chunk, LdifError, LocalFiles, Reader, Record};
use larix_store::memory::{MemorySnapshot, MemoryStore};
use larix_store::{Store, WriteSet};

use super::LoadOptions;
use super::error::{LoadError, RecordError, RecordFault};
use super::names::Fingerprint;
use super::packing::Packing;
use super::prepare::{CheckedEntry, Checker, Local};
use super::runs::Run;
use super::sort::Sorter;
use larix_schema::Schema;

use crate::catalog::CatalogRow;
use crate::csn::Csn;
use crate::entry::encode::{self, Placement};
use crate::entry::{AttributeNumber, Entry, EntryAttribute, EntryId};
use crate::index::KeyKind;
use crate::index::keys::{self, KeySink};
use crate::tables::{BLOBS, ENTRIES, VALUES};

/// Records in the order of the file, or what came instead of them.
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) content: Content,
}

/// What a thread is given.
pub(super) enum Content {
    Chunk(Chunk),
    Records(Vec<Record<Arc<str>>>),
    Failed(LdifError),
}

/// Entries of a batch, ready but for the id of their superior.
pub(super) struct Encoded {
    pub(super) number: u64,
    /// An error that ends the load, or what became of each record.
    pub(super) entries: Result<Vec<Result<EncodedEntry, RecordError>>, LoadError>,
}

pub(super) struct EncodedEntry {
    pub(super) id: EntryId,
    pub(super) line: u64,
    pub(super) given_dn: String,
    pub(super) name: Fingerprint,
    /// None where the entry stands under the root.
    pub(super) superior: Option<Fingerprint>,
    pub(super) normal_rdn: Vec<u8>,
    pub(super) record: Vec<u8>,
    /// Rows of the tables `blobs` and `values`, which begin with the entry's id, in order.
    pub(super) blobs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) values: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) csns: Vec<Csn>,
}

impl EncodedEntry {
    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.blobs.iter().chain(&self.values).map(|(key, value)| key.len() + value.len());
        size_of::<Self>()
            + self.given_dn.len()
            + self.normal_rdn.len()
            + self.record.len()
            + rows.sum::<usize>()
    }

    pub(super) fn fails(self, fault: RecordFault) -> RecordError {
        RecordError { line: self.line, dn: self.given_dn, fault }
    }
}

/// The order in which batches are given their ids, and new attribute descriptions their numbers: that of the file. So
/// the same LDIF makes the same database, whatever the number of threads. How many records a batch has is known when it
/// has been read.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turn {
    batch: u64,
    last_id: u64,
    /// All batches below this one are encoded, and those.
    encoded: u64,
    encoded_early: BTreeSet<u64>,
    /// A thread ended before its turn was over.
    broken: bool,
}

/// The turn of one batch. Ends all waiting when it is dropped before the batch is encoded.
struct Ticket<'t> {
    turns: &'t Turns,
    batch: u64,
    encoded: bool,
}

impl Turns {
    fn ticket(&self, batch: u64) -> Ticket<'_> {
        Ticket { turns: self, batch, encoded: false }
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `wait` says so; None when the load has failed.
    fn wait(&self, wait: impl Fn(&Turn) -> bool) -> Option<MutexGuard<'_, Turn>> {
        let waited = self.changed.wait_while(self.lock(), |turn| wait(turn) && !turn.broken);
        Some(waited.unwrap_or_else(PoisonError::into_inner)).filter(|turn| !turn.broken)
    }
}

impl Ticket<'_> {
    /// Waits until all batches before have their ids, then gives the id before the first of `records`. None when the load
    /// has failed.
    fn take_ids(&self, records: u64) -> Option<u64> {
        let mut turn = self.turns.wait(|turn| turn.batch != self.batch)?;
        let before = turn.last_id;
        turn.batch += 1;
        turn.last_id += records;
        self.turns.changed.notify_all();
        Some(before)
    }

    /// Waits until all batches before are encoded. False when the load has failed.
    fn wait_for_earlier(&self) -> bool {
        self.turns.wait(|turn| turn.encoded != self.batch).is_some()
    }

    fn encoded(mut self) {
        self.encoded = true;
        let mut turn = self.turns.lock();
        turn.encoded_early.insert(self.batch);
        let mut next = turn.encoded;
        while turn.encoded_early.remove(&next) {
            next += 1;
        }
        turn.encoded = next;
        self.turns.changed.notify_all();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.encoded {
            self.turns.lock().broken = true;
            self.turns.changed.notify_all();
        }
    }
}

/// The records of a chunk from the line on that the load begins with, up to an error that ends it.
pub(super) fn records(
    chunk: &Chunk,
    options: &LoadOptions,
) -> impl Iterator<Item = Result<Record<Arc<str>>, LdifError>> {
    let mut reader = Reader::of_chunk(chunk).with_files(LocalFiles);
    let mut ended = false;
    std::iter::from_fn(move || {
        while !ended {
            match reader.read_sharing().transpose()? {
                Ok(record) if record.line < options.start_line => {}
                Ok(record) => return Some(Ok(record)),
                Err(error) if error.line < options.start_line && error.is_recoverable() => {}
                Err(error) => {
                    ended = !(options.continue_on_error && error.is_recoverable());
                    return Some(Err(error));
                }
            }
        }
        None
    })
}

/// Gathers the keys of one attribute of an entry.
pub(super) struct Gathering<'s> {
    pub(super) sorter: &'s mut Sorter,
    pub(super) number: AttributeNumber,
    pub(super) id: EntryId,
}

impl KeySink for Gathering<'_> {
    fn key(&mut self, kind: KeyKind, value: &[u8]) {
        self.sorter.add_index_key(self.number, kind, value, self.id.0);
    }

    fn grams(&mut self, normal: &[u8]) {
        self.sorter.add_grams(self.number, normal, self.id.0);
    }
}

/// The keys of a list of object classes as words of the sorter's dictionary, until its next run: entries that have the
/// list have the same keys.
struct ClassWords {
    values: Vec<Vec<u8>>,
    words: Vec<u32>,
}

/// Lists of classes that are kept for one run.
const CLASS_LISTS_MAX: usize = 8;

impl ClassWords {
    /// None when a key is not in the dictionary.
    fn of(schema: &Schema, row: &CatalogRow, attribute: &EntryAttribute, sorter: &Sorter) -> Option<Self> {
        let mut words = Some(Vec::new());
        keys::visit_attribute_keys(schema, row, attribute, &mut |kind: KeyKind, value: &[u8]| match sorter
            .word(row.number, kind, value)
        {
            Some(word) => words.as_mut().into_iter().for_each(|words| words.push(word)),
            None => words = None,
        });
        let mut words = words?;
        words.sort_unstable();
        words.dedup();
        Some(Self { values: attribute.values.clone(), words })
    }
}

/// Checks and encodes entries and gathers their postings.
pub(super) struct Worker<'a, 'c> {
    checker: &'a Checker<'c>,
    packing: &'a Packing,
    local: Local,
    /// The store as an add would see it, were there anything of the entry.
    empty: MemorySnapshot<'a>,
    scratch: &'a Path,
    sorter: Sorter,
    spilled: Vec<Run>,
    classes: Vec<ClassWords>,
    limit: usize,
    /// The normalized name of the last superior: most entries have the same as the one before.
    superior: (String, Fingerprint),
}

impl<'a, 'c> Worker<'a, 'c> {
    pub(super) fn new(
        checker: &'a Checker<'c>,
        packing: &'a Packing,
        empty: &'a MemoryStore,
        scratch: &'a Path,
    ) -> Result<Self, LoadError> {
        let limit = checker.options.memory_bytes / checker.options.threads.max(1);
        Ok(Self {
            checker,
            packing,
            local: checker.local(),
            empty: empty.snapshot()?,
            scratch,
            sorter: Sorter::with_room(limit),
            spilled: Vec::new(),
            classes: Vec::new(),
            limit,
            superior: (String::new(), Fingerprint::of("")),
        })
    }

    /// Works until there are no more batches; gives what it gathered: runs in files, and the last one in memory.
    pub(super) fn run(
        mut self,
        batches: &Mutex<Receiver<Batch>>,
        turns: &Turns,
        (out, used): (&SyncSender<Encoded>, &SyncSender<Chunk>),
    ) -> Result<Vec<Run>, LoadError> {
        loop {
            let batch = batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Batch { number, content }) = batch else { break };
            let ticket = turns.ticket(number);
            let Some(entries) = self.content(&ticket, content, used).transpose() else { break };
            let failed = entries.is_err();
            if !failed {
                ticket.encoded();
            }
            if out.send(Encoded { number, entries }).is_err() || failed {
                break;
            }
        }
        if !self.sorter.is_empty() {
            self.spilled.push(self.sorter.run()?);
        }
        Ok(self.spilled)
    }

    /// None when the load has failed elsewhere.
    fn content(
        &mut self,
        ticket: &Ticket<'_>,
        content: Content,
        used: &SyncSender<Chunk>,
    ) -> Result<Option<Vec<Result<EncodedEntry, RecordError>>>, LoadError> {
        let options = self.checker.options;
        let chunk = match content {
            Content::Chunk(chunk) => chunk,
            Content::Records(records) => {
                let count = records.len() as u64;
                let Some(before) = ticket.take_ids(count) else { return Ok(None) };
                return self.batch(ticket, before, count, records.into_iter().map(Ok));
            }
            Content::Failed(error) => {
                let Some(before) = ticket.take_ids(1) else { return Ok(None) };
                return self.batch(ticket, before, 1, std::iter::once(Err(error)));
            }
        };
        let entries = match chunk.records.filter(|_| options.start_line <= 1) {
            // One record at a time is read and stored away: what it takes stays in the processor's cache.
            Some(count) => {
                let Some(before) = ticket.take_ids(count) else { return Ok(None) };
                self.batch(ticket, before, count, records(&chunk, options))
            }
            None => {
                let records: Vec<_> = records(&chunk, options).collect();
                let count = records.len() as u64;
                let Some(before) = ticket.take_ids(count) else { return Ok(None) };
                self.batch(ticket, before, count, records.into_iter())
            }
        };
        // A chunk that finds no room, or no receiver, is given up.
        let _ = used.try_send(chunk);
        entries
    }

    /// The entries of `count` records at most. None when the load has failed elsewhere.
    fn batch(
        &mut self,
        ticket: &Ticket<'_>,
        before: u64,
        count: u64,
        records: impl Iterator<Item = Result<Record<Arc<str>>, LdifError>>,
    ) -> Result<Option<Vec<Result<EncodedEntry, RecordError>>>, LoadError> {
        let mut entries = Vec::with_capacity(count as usize);
        for (id, record) in (before + 1..).map(EntryId).zip(records) {
            if id.0 > before + count {
                let what = "a piece of the LDIF has more records than were counted";
                return Err(LoadError::Io(std::io::Error::other(what)));
            }
            if self.sorter.bytes() > self.limit || self.sorter.is_full(id.0) {
                self.spilled.push(self.sorter.spill(self.scratch)?);
                self.classes.clear();
            }
            entries.push(match record {
                Ok(record) => match self.checker.check(&mut self.local, record) {
                    Ok(checked) => {
                        let knows = self.checker.knows(&self.local, &checked.entry);
                        if !knows {
                            if !ticket.wait_for_earlier() {
                                return Ok(None);
                            }
                            self.checker.number(&mut self.local, &checked.entry);
                        }
                        Ok(self.entry(id, checked)?)
                    }
                    Err(error) => Err(error),
                },
                Err(error) => {
                    let line = error.line;
                    Err(RecordError { line, dn: String::new(), fault: RecordFault::Ldif(error) })
                }
            });
        }
        Ok(Some(entries))
    }

    fn entry(&mut self, id: EntryId, checked: CheckedEntry) -> Result<EncodedEntry, LoadError> {
        let mut set = self.encode(id, &checked)?;
        let record = set.take(ENTRIES, &id.to_bytes()).map_or_else(Vec::new, Vec::from);
        let record = self.packing.packed(record);
        let rows = |table| -> Vec<(Vec<u8>, Vec<u8>)> {
            set.records(table).filter_map(|(key, value)| Some((key.to_vec(), value?.to_vec()))).collect()
        };
        let (blobs, values) = (rows(BLOBS), rows(VALUES));
        let superior = self.superior(&checked);
        self.gather(id, &checked.entry);
        let (_, normal_rdn) = checked.rdn();
        Ok(EncodedEntry {
            id,
            line: checked.line,
            name: Fingerprint::of(checked.dn.as_str()),
            superior,
            normal_rdn: normal_rdn.to_vec(),
            record,
            blobs,
            values,
            csns: checked.csns,
            given_dn: checked.given_dn,
        })
    }

    /// The entry's rows. The superior's id is filled in where entries are in order.
    fn encode(&mut self, id: EntryId, checked: &CheckedEntry) -> Result<WriteSet, LoadError> {
        let (rdn, normal_rdn) = checked.rdn();
        let place = Placement { id, parent: EntryId::ROOT, rdn, normal_rdn };
        let mut set = WriteSet::new();
        let Self { checker, local, empty, .. } = self;
        encode::store(&mut set, empty, checker.schema(), &mut local.catalog, place, None, &checked.entry)?;
        Ok(set)
    }

    fn superior(&mut self, checked: &CheckedEntry) -> Option<Fingerprint> {
        let superior = checked.superior()?;
        let (known, fingerprint) = &mut self.superior;
        if *known != superior.as_str() {
            superior.as_str().clone_into(known);
            *fingerprint = Fingerprint::of(known);
        }
        Some(*fingerprint)
    }

    fn gather(&mut self, id: EntryId, entry: &Entry) {
        let Self { local, sorter, checker, classes, .. } = self;
        let catalog = local.catalog.catalog();
        for attribute in &entry.attributes {
            let row = catalog.number(&attribute.description).and_then(|number| catalog.row(number));
            let Some(row) = row.filter(|row| !row.wanted.is_empty()) else { continue };
            let known = classes.iter().find(|known| row.classes && known.values == attribute.values);
            if let Some(known) = known.filter(|_| !sorter.has_single_keys(row.number)) {
                sorter.add_words(&known.words, id.0);
                continue;
            }
            let mut sink = Gathering { sorter, number: row.number, id };
            keys::visit_attribute_keys(checker.schema(), row, attribute, &mut sink);
            if row.classes && known.is_none() && classes.len() < CLASS_LISTS_MAX {
                classes.extend(ClassWords::of(checker.schema(), row, attribute, sorter));
            }
        }
    }
}
