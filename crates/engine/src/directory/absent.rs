//! Present phase: what the provider did not name is gone there (RFC 4533 section 3.3.1).
//!
//! The share is read in slices, each under a snapshot of its own, on a thread of its own; first all of it is looked
//! through, then what is absent is deleted in batches like any other replicated delete.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, Match, NormalDn, Schema};
use larix_store::{Direction, KeyRange, Snapshot, Store};
use uuid::Uuid;

use crate::csn::Csn;
use crate::database::{Database, View};
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, EntryReader};
use crate::fault::Fault;
use crate::filter::{Filter, FilterContext};
use crate::replica::{
    ApplyOutcome, DeleteCompletion, DeleteLimit, DeleteOutcome, Ready, ReplicaRules, ReplicatedJob, Share,
    UuidSet,
};
use crate::tables::ENTRIES;
use crate::tree;
use crate::write::KnownSchema;
use crate::writer::{Job, Submitter};

/// Entries looked at under one snapshot.
const SLICE: usize = 4_096;
/// Deletes that go into one batch.
const BATCH: usize = 1_024;

/// What [`ServedDatabase::delete_absent`](crate::ServedDatabase::delete_absent) does.
pub(crate) fn delete_absent<S: Store>(
    database: &Arc<Database<S>>,
    submitter: Submitter,
    share: &Share,
    present: &UuidSet,
    limit: DeleteLimit,
    completion: DeleteCompletion,
) {
    let failed = |text: String| DeleteOutcome::Failed {
        deleted: 0,
        result: LdapResult::with(ResultCode::OTHER, text),
    };
    let schema = database.schema();
    let known = match KnownSchema::of(&schema) {
        Ok(known) => known,
        Err(missing) => return completion(failed(missing.to_string())),
    };
    let mut present = present.clone();
    present.settle();
    let base = match schema.parse_dn(&share.base) {
        Ok(base) => base,
        Err(error) => return completion(failed(format!("\"{}\": {error}", share.base))),
    };
    let sweep = Sweep {
        database: Arc::clone(database),
        submitter,
        share: share.clone(),
        base,
        known,
        present,
        limit,
    };
    // Whichever of the two calls it.
    let completion = Arc::new(Mutex::new(Some(completion)));
    let theirs = Arc::clone(&completion);
    let answer = |completion: &Mutex<Option<DeleteCompletion>>, outcome| {
        if let Some(completion) = completion.lock().unwrap_or_else(PoisonError::into_inner).take() {
            completion(outcome);
        }
    };
    let started = thread::Builder::new()
        .name("delete-absent".to_owned())
        .stack_size(larix_proto::limits::FILTER_STACK)
        .spawn(move || answer(&theirs, sweep.run()));
    if let Err(error) = started {
        answer(&completion, failed(format!("no thread to delete what is absent: {error}")));
    }
}

struct Sweep<S> {
    database: Arc<Database<S>>,
    submitter: Submitter,
    share: Share,
    base: NormalDn,
    known: KnownSchema,
    present: UuidSet,
    limit: DeleteLimit,
}

/// What a look through the share found.
#[derive(Default)]
struct AbsenceReport {
    entries: u64,
    absent: Vec<Absent>,
}

struct Absent {
    uuid: Uuid,
    depth: usize,
}

impl<S: Store> Sweep<S> {
    fn run(&self) -> DeleteOutcome {
        let fault = |fault: Fault, deleted| DeleteOutcome::Failed {
            deleted,
            result: LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}")),
        };
        let mut found = match self.look() {
            Ok(found) => found,
            Err(error) => return fault(error, 0),
        };
        let absent = found.absent.len() as u64;
        if self.limit.is_exceeded(absent, found.entries) {
            return DeleteOutcome::TooMany { absent, entries: found.entries };
        }
        // Subordinates first, so that no glue comes and goes.
        found.absent.sort_by_key(|absent| std::cmp::Reverse(absent.depth));
        let mut deleted = 0;
        for batch in found.absent.chunks(BATCH) {
            match self.delete(batch) {
                Ok(count) => deleted += count,
                Err(result) => return DeleteOutcome::Failed { deleted, result },
            }
        }
        DeleteOutcome::Deleted(deleted)
    }

    /// Looks through all entries, in slices.
    fn look(&self) -> Result<AbsenceReport, Fault> {
        let mut found = AbsenceReport::default();
        let mut after = EntryId::ROOT;
        loop {
            let snapshot = self.database.store().snapshot()?;
            let view = self.database.view(&snapshot)?;
            let bound = self.share.filter.as_ref().map(|f| view.schema.bind_filter(f.as_filter()));
            let filter = bound.map(|bound| Filter::new(&view.schema, &view.catalog, bound));
            let mut last = None;
            let range = KeyRange::all();
            let start = after.to_bytes();
            for row in snapshot.scan(ENTRIES, range.after(&start), Direction::Forward)?.take(SLICE) {
                let (key, stored) = row?;
                let id = EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "an entry's id" })?;
                last = Some(id);
                let record = view.unpacked(id, stored)?;
                self.one(&view, &view.reader(id, &record)?, filter.as_ref(), &mut found)?;
            }
            match last {
                Some(last) => after = last,
                None => return Ok(found),
            }
        }
    }

    fn one<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        reader: &EntryReader<'_, N>,
        filter: Option<&Filter>,
        found: &mut AbsenceReport,
    ) -> Result<(), Fault> {
        let flags = reader.view.flags();
        // A provider that names no subentries does not say which of them are gone.
        if flags.has(RecordFlags::GLUE) || (flags.has(RecordFlags::SUBENTRY) && !self.share.subentries) {
            return Ok(());
        }
        let Some(uuid) = text_of(reader, self.known.entry_uuid)?.and_then(|t| Uuid::try_parse(&t).ok())
        else {
            return Ok(());
        };
        let dn = view.names.normal_dn(&reader.view)?;
        if !in_scope(&dn, &self.base, self.share.scope) {
            return Ok(());
        }
        if let Some(filter) = filter {
            let context = Everything { view, reader, dn: &dn };
            if filter.matches(&context, reader)? != Match::True {
                return Ok(());
            }
        }
        found.entries += 1;
        if self.present.contains(&uuid) {
            return Ok(());
        }
        let csn = text_of(reader, self.known.entry_csn)?.and_then(|text| text.parse::<Csn>().ok());
        if csn.is_some_and(|csn| !self.share.has_seen(&csn)) {
            return Ok(());
        }
        found.absent.push(Absent { uuid, depth: dn.depth() });
        Ok(())
    }

    fn delete(&self, batch: &[Absent]) -> Result<u64, LdapResult> {
        // Who deleted them when is not told. It was not this server: that would be known.
        let own = self.database.server_id();
        let others = self.share.seen.iter().filter(|csn| csn.server_id != own).max();
        let csn = others.or_else(|| self.share.seen.iter().max()).copied();
        let changes = batch.iter().map(|absent| Ready::Delete { uuid: absent.uuid, csn }).collect();
        let applied = Arc::new(Mutex::new(Vec::new()));
        let elsewhere = self.share.whole;
        let settings = self.database.settings();
        let rules = ReplicaRules {
            multi_provider: false,
            elsewhere,
            tells_deletes_again: settings.merges_records && !settings.shadow && !elsewhere,
            ..ReplicaRules::default()
        };
        let job = ReplicatedJob { changes, context_csns: Vec::new(), rules, applied: Arc::clone(&applied) };
        let (sender, receiver) = sync_channel(1);
        let completion = Box::new(move |outcome: crate::write::WriteOutcome| {
            // The receiver still waits.
            let _ = sender.send(outcome.result);
        });
        self.submitter.submit(Job {
            tasks: Vec::new(),
            replicated: Some(Box::new(job)),
            follow: None,
            completion,
        });
        let stopped = || LdapResult::with(ResultCode::UNAVAILABLE, "the writer has stopped");
        let result = receiver.recv().map_err(|_| stopped())?;
        if !result.is_success() {
            return Err(result);
        }
        let applied = std::mem::take(&mut *applied.lock().unwrap_or_else(PoisonError::into_inner));
        let refused = applied.iter().find_map(|applied| match applied {
            ApplyOutcome::Refused(result) => Some(result.clone()),
            _ => None,
        });
        match refused {
            Some(refused) => Err(refused),
            None => Ok(applied.iter().filter(|applied| **applied != ApplyOutcome::Older).count() as u64),
        }
    }
}

fn in_scope(dn: &NormalDn, base: &NormalDn, scope: Scope) -> bool {
    dn.is_in_scope(base, scope)
}

fn text_of<N: Snapshot>(
    reader: &EntryReader<'_, N>,
    attribute: larix_schema::AttributeTypeId,
) -> Result<Option<String>, Fault> {
    use crate::entry::EntrySource;
    let mut found = None;
    reader.visit_exact(&AttributeDescription::plain(attribute), &mut |value| {
        found = std::str::from_utf8(value).ok().map(str::to_owned);
        false
    })?;
    Ok(found)
}

/// The filter of a share is not subject to access rules.
struct Everything<'a, N> {
    view: &'a View<'a, N>,
    reader: &'a EntryReader<'a, N>,
    dn: &'a NormalDn,
}

impl<N: Snapshot> FilterContext for Everything<'_, N> {
    fn schema(&self) -> &Schema {
        &self.view.schema
    }

    fn may_search(&self, _: &AttributeDescription, _: Option<&[u8]>) -> Result<bool, Fault> {
        Ok(true)
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        Ok(self.dn.clone())
    }

    fn shown_dn(&self) -> Result<String, Fault> {
        self.view.dn(&self.reader.view)
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        tree::has_children(self.view.snapshot, self.reader.view.id())
    }

    fn may_search_all(&self) -> bool {
        true
    }
}
