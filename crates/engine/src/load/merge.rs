//! Into a database that may hold entries: ordinary changes, many in a commit.

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};

use larix_proto::ldif::{LocalFiles, Reader};
use larix_schema::NormalDn;
use larix_store::{Layered, PostingCursor, Snapshot, Store, WriteSet};

use super::bulk::Counted;
use super::error::{LoadError, RecordError, RecordFault};
use super::orphans::Orphans;
use super::prepare::{CheckedEntry, Checker, Local};
use super::{LoadContext, LoadObserver, LoadOptions, LoadReport, Phase, Progress};
use crate::catalog::CatalogEdit;
use crate::csn::Csn;
use crate::database::{Database, commit_alone};
use crate::entry::EntryId;
use crate::entry::encode::{self, Placement};
use crate::fault::Fault;
use crate::index::keys;
use crate::log;
use crate::tables::{INDEX, META, meta};
use crate::tree;

/// Changes that are committed together, in bytes. An LDIF that makes no more is stored as a whole or not at all.
pub const ATOMIC_BYTES: usize = if cfg!(test) { 8 << 20 } else { 512 << 20 };
/// The same in an engine that servers share: a commit there is sent as a whole, and an engine takes so much of it.
const SHARED_BYTES: usize = 8 << 20;
const PROGRESS_ENTRIES: u64 = 1024;

pub(super) fn load<S: Store>(
    database: &Database<S>,
    input: impl BufRead,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut dyn LoadObserver,
) -> Result<LoadReport, LoadError> {
    let checker = Checker::new(context, options, CatalogEdit::new(database.catalog()))?;
    let bytes = AtomicU64::new(0);
    let reader = Reader::new(Counted { input, bytes: &bytes }).with_files(LocalFiles);
    let orphans = Orphans::new(options.memory_bytes);
    let mut run = Run { orphans, progress: Progress::default(), options, observer };
    let group_bytes = if S::SHARED { SHARED_BYTES } else { ATOMIC_BYTES };
    let mut source = Source {
        reader,
        checker: &checker,
        local: checker.local(),
        bytes: &bytes,
        group_bytes,
        ended: false,
    };
    while !source.ended {
        if options.dry_run {
            // Nothing is written: a store that another process serves will do.
            let snapshot = database.store().snapshot()?;
            let mut group = Group { names_only: true, ..Group::new(&snapshot)? };
            source.fill(&mut group, &snapshot, &mut run)?;
            break;
        }
        let transaction = database.store().transaction()?;
        let mut group = Group::new(&transaction)?;
        source.fill(&mut group, &transaction, &mut run)?;
        run.observer.progress(&Progress { phase: Phase::Syncing, ..run.progress });
        group.commit(transaction, database, &source.local)?;
    }
    let bytes = bytes.load(Ordering::Relaxed);
    Ok(LoadReport { entries: run.progress.entries, failed: run.progress.failed, bytes })
}

/// Where the records come from.
struct Source<'a, I> {
    reader: Reader<Counted<'a, I>>,
    checker: &'a Checker<'a>,
    local: Local,
    bytes: &'a AtomicU64,
    /// Changes that are committed together.
    group_bytes: usize,
    ended: bool,
}

impl<I: BufRead> Source<'_, I> {
    /// Stores records in the group until it is full or there are no more. One that is not committed is never full.
    fn fill<T: Snapshot>(
        &mut self,
        group: &mut Group,
        snapshot: &T,
        run: &mut Run<'_>,
    ) -> Result<(), LoadError> {
        let start_line = run.options.start_line;
        while !self.ended && (group.names_only || group.set.byte_len() < self.group_bytes) {
            let record = match self.reader.read_sharing() {
                Ok(Some(record)) if record.line < start_line => continue,
                Ok(Some(record)) => self.checker.check(&mut self.local, record),
                Ok(None) => {
                    run.refuse_orphans()?;
                    self.ended = true;
                    continue;
                }
                Err(error) if error.line < start_line && error.is_recoverable() => continue,
                Err(error) => {
                    self.ended = !error.is_recoverable();
                    Err(RecordError { line: error.line, dn: String::new(), fault: RecordFault::Ldif(error) })
                }
            };
            let local = &mut self.local;
            run.record(record, |checked| group.store(snapshot, self.checker, local, checked))?;
            run.progress.bytes = self.bytes.load(Ordering::Relaxed);
            if (run.progress.entries + run.progress.failed).is_multiple_of(PROGRESS_ENTRIES) {
                run.observer.progress(&run.progress);
            }
        }
        Ok(())
    }
}

/// What becomes of the records.
struct Run<'a> {
    orphans: Orphans<NormalDn, CheckedEntry>,
    progress: Progress,
    options: &'a LoadOptions,
    observer: &'a mut dyn LoadObserver,
}

impl Run<'_> {
    /// Stores the entry and what waited for it, or lets it wait for its superior.
    fn record(
        &mut self,
        record: Result<CheckedEntry, RecordError>,
        mut store: impl FnMut(&CheckedEntry) -> Result<Result<(), RecordError>, LoadError>,
    ) -> Result<(), LoadError> {
        let mut ready = match record {
            Ok(checked) => vec![checked],
            Err(error) => return self.failed(error),
        };
        while let Some(checked) = ready.pop() {
            match (store(&checked)?, checked.superior()) {
                (Ok(()), _) => {
                    self.progress.entries += 1;
                    ready.extend(self.orphans.take(&checked.dn).into_iter().rev());
                }
                (Err(RecordError { fault: RecordFault::NoSuperior, .. }), Some(superior)) => {
                    let bytes = checked.bytes();
                    if let Err(checked) = self.orphans.add(superior, checked, bytes) {
                        self.failed(checked.fails(RecordFault::TooManyWait))?;
                    }
                }
                (Err(error), _) => self.failed(error)?,
            }
        }
        Ok(())
    }

    fn failed(&mut self, error: RecordError) -> Result<(), LoadError> {
        self.progress.pass_over(error, self.options, self.observer)
    }

    /// Superiors that never came.
    fn refuse_orphans(&mut self) -> Result<(), LoadError> {
        let mut orphans = self.orphans.take_all();
        orphans.sort_unstable_by_key(|checked| checked.line);
        orphans.into_iter().try_for_each(|checked| self.failed(checked.fails(RecordFault::NoSuperior)))
    }
}

/// What is committed at once.
struct Group {
    set: WriteSet,
    /// It is not committed: `set` has what later records ask for.
    names_only: bool,
    last_id: u64,
    csns: Vec<Csn>,
}

impl Group {
    fn new<T: Snapshot>(transaction: &T) -> Result<Self, LoadError> {
        let last_id = match transaction.get(META, meta::LAST_ENTRY_ID)? {
            None => 0,
            Some(bytes) => {
                EntryId::from_prefix(&bytes).ok_or(Fault::Damaged { what: "the last entry id" })?.0
            }
        };
        let csns = log::context_csns(transaction)?;
        Ok(Self { set: WriteSet::new(), names_only: false, last_id, csns })
    }

    fn store<T: Snapshot>(
        &mut self,
        transaction: &T,
        checker: &Checker<'_>,
        local: &mut Local,
        checked: &CheckedEntry,
    ) -> Result<Result<(), RecordError>, LoadError> {
        let view = Layered::new(transaction, &self.set);
        let suffixes = &checker.context.settings.suffixes;
        let suffix =
            suffixes.iter().find(|s| s.normal == checked.dn || checked.dn.is_descendant_of(&s.normal));
        let Some(suffix) = suffix else { return Ok(Err(checked.fails(RecordFault::OutsideSuffixes))) };
        let found = tree::resolve(&view, &suffix.normal, &checked.dn)?;
        let parent = match (found.id, found.missing, checked.superior()) {
            (Some(_), ..) => return Ok(Err(checked.fails(RecordFault::Exists))),
            (None, _, None) => EntryId::ROOT,
            (None, 1, Some(_)) if found.nearest != EntryId::ROOT => found.nearest,
            _ => return Ok(Err(checked.fails(RecordFault::NoSuperior))),
        };
        if !checker.knows(local, &checked.entry) {
            checker.number(local, &checked.entry);
        }
        let uuid_key = checker.uuid_key(&checked.entry, local.catalog.catalog());
        if let Some((uuid, key)) = &uuid_key
            && view.postings(INDEX, key)?.next()?.is_some()
        {
            return Ok(Err(checked.fails(RecordFault::SameUuid { uuid: *uuid, line: 0 })));
        }
        let id = EntryId(self.last_id + 1);
        let (rdn, normal_rdn) = checked.rdn();
        let place = Placement { id, parent, rdn, normal_rdn };
        let mut own = WriteSet::new();
        let schema = checker.schema();
        encode::store(&mut own, &view, schema, &mut local.catalog, place, None, &checked.entry)?;
        tree::put(&mut own, parent, normal_rdn, id);
        keys::changes::<T>(schema, local.catalog.catalog(), None, Some(&checked.entry))?.apply(&mut own, id);
        if self.names_only {
            tree::put(&mut self.set, parent, normal_rdn, id);
            uuid_key.iter().for_each(|(_, key)| self.set.add_posting(INDEX, key, id.0));
        } else {
            self.set.merge(own);
        }
        self.last_id = id.0;
        for csn in &checked.csns {
            match self.csns.iter_mut().find(|known| known.server_id == csn.server_id) {
                Some(known) => *known = (*known).max(*csn),
                None => self.csns.push(*csn),
            }
        }
        Ok(Ok(()))
    }

    fn commit<S: Store>(
        mut self,
        transaction: S::Transaction<'_>,
        database: &Database<S>,
        local: &Local,
    ) -> Result<(), LoadError> {
        self.set.put(META, meta::LAST_ENTRY_ID, self.last_id.to_be_bytes());
        self.csns.iter().for_each(|csn| log::put_context_csn(&mut self.set, csn));
        // What is loaded is not in the change log, and no overlay saw it.
        log::end_history(&mut self.set);
        self.set.delete(META, meta::BACK_LINKS);
        let catalog = local.catalog.catalog();
        local.catalog.write_new(&mut self.set);
        database.publish_catalog(catalog.clone());
        commit_alone(database.store(), transaction, &self.set)?;
        if let Some(committed) = CatalogEdit::new(catalog.clone()).committed() {
            database.publish_catalog(committed);
        }
        Ok(())
    }
}
