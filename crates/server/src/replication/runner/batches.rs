//! What a consumer writes: batches of changes, one of which may be on its way to the disk while the next is read, and deletes of
//! what the provider does not have.
//!
//! **A contextCSN is handed over behind all that it stands for.** A change that was refused ends the session, so that it is
//! asked for again.

use std::sync::mpsc::{Receiver, sync_channel};

use larix_configuration::Present;
use larix_engine::csn::Csn;
use larix_engine::replica::{
    ApplyOutcome, DeleteOutcome, ReplicaRules, ReplicatedBatch, ReplicatedChange, ReplicatedOutcome, UuidSet,
};
use larix_engine::time::Timestamp;
use larix_proto::ResultCode;

use super::Runner;
use super::log_state::LogState;

/// A batch that the writer has.
pub(super) struct Underway {
    outcome: Receiver<ReplicatedOutcome>,
    names: Vec<String>,
    newest: Option<Timestamp>,
    refreshing: bool,
}

/// How changes came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) refreshing: bool,
    /// In a session that asked for everything.
    pub(super) full: bool,
    /// The end of a pass over the provider's content, which does not name what is gone.
    pub(super) by_content: bool,
    /// The provider had sent its own changes up to this one before.
    pub(super) provider: Option<Csn>,
    /// Another server than the provider keeps the entries.
    pub(super) elsewhere: bool,
}

impl Runner {
    /// Hands a batch to the writer. One of a refresh that nothing is said of yet is written while the next is read.
    pub(super) fn apply(
        &mut self,
        mut changes: Vec<ReplicatedChange>,
        mut csns: Vec<Csn>,
        manner: Manner,
    ) -> Result<(), String> {
        match self.keep_first_hand(&mut changes, &mut csns, manner)? {
            true => self.write(changes, csns, manner),
            false => Ok(()),
        }
    }

    /// The same with nothing left out.
    pub(super) fn write(
        &mut self,
        changes: Vec<ReplicatedChange>,
        csns: Vec<Csn>,
        Manner { refreshing, full, by_content, provider, elsewhere }: Manner,
    ) -> Result<(), String> {
        let newest = csns.iter().map(|csn| csn.time).max();
        let names: Vec<String> = changes.iter().map(name).collect();
        let logged = self.log.as_ref().is_some_and(LogState::is_logged);
        // Records of a log may come in any order: each is judged by what is here.
        let rules = self.task.rules(&self.schema(), refreshing || logged || full);
        let by_content = by_content && rules.multi_provider;
        let rules = ReplicaRules {
            by_content,
            whole: (refreshing || self.task.merges_records()) && !logged,
            provider,
            elsewhere,
            provider_had: self.provider_had.clone().filter(|_| refreshing),
            ..rules
        };
        let alone = !refreshing || logged || !csns.is_empty();
        if alone {
            // What these CSNs stand for is to be there.
            self.settle()?;
        }
        let batch = ReplicatedBatch { changes, context_csns: csns, rules };
        let (done, outcome) = sync_channel(1);
        // The receiver still waits.
        match &self.task.database {
            _ if self.task.target.is_some() => {
                let outcome = self.with_push(|push| push.apply(&batch));
                drop(done.send(outcome.ok_or_else(closed)?));
            }
            Some(database) => database.replicate(batch, Box::new(move |outcome| drop(done.send(outcome)))),
            None => {
                let done = Box::new(move |outcome, _| drop(done.send(outcome)));
                self.server.configuration.replicate(batch, None, done);
            }
        }
        let before = self.underway.replace(Underway { outcome, names, newest, refreshing });
        before.map_or(Ok(()), |before| self.stored(before))?;
        if alone { self.settle() } else { Ok(()) }
    }

    /// Waits for the batch that the writer has.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.underway.take().map_or(Ok(()), |underway| self.stored(underway))
    }

    /// Waits for what came of a batch.
    fn stored(&mut self, underway: Underway) -> Result<(), String> {
        let Underway { outcome, names, newest, refreshing } = underway;
        let outcome = outcome.recv().map_err(|_| closed())?;
        self.judge(&outcome, &names)?;
        let now = self.server.now();
        self.status.change(|status| {
            status.last_change = newest.max(status.last_change);
            if let Some(newest) = newest.filter(|_| !refreshing) {
                status.last_delay = Some(now.0.saturating_sub(newest.0));
            }
        });
        Ok(())
    }

    /// Counts what came of the changes; one that was refused ends the session, so that it is asked for again.
    fn judge(&mut self, outcome: &ReplicatedOutcome, names: &[String]) -> Result<(), String> {
        if outcome.result.code != ResultCode::SUCCESS {
            // Whatever came of each change until then is undone.
            return Err(format!("a change could not be stored: {}", outcome.result));
        }
        self.count(&outcome.changes);
        if outcome
            .changes
            .iter()
            .any(|change| matches!(change, ApplyOutcome::Done | ApplyOutcome::Conflict(_)))
        {
            self.log.iter_mut().for_each(LogState::note_stored);
        }
        let mut refused = None;
        for (change, name) in outcome.changes.iter().zip(names) {
            match change {
                ApplyOutcome::Done | ApplyOutcome::Older => {}
                ApplyOutcome::Conflict(note) => {
                    self.tell(&format!("conflict at \"{}\": {:?}, kept {:?}", note.dn, note.kind, note.kept));
                }
                ApplyOutcome::Refused(result) => refused = refused.or(Some((name, result))),
            }
        }
        match refused {
            Some((name, result)) => {
                self.log.iter_mut().for_each(LogState::note_refused);
                Err(format!("{name}: {result}"))
            }
            None => Ok(()),
        }
    }

    fn count(&self, changes: &[ApplyOutcome]) {
        self.status.change(|status| {
            let counts = &mut status.counts;
            for change in changes {
                *match change {
                    ApplyOutcome::Done => &mut counts.applied,
                    ApplyOutcome::Older => &mut counts.older,
                    ApplyOutcome::Conflict(_) => &mut counts.conflicts,
                    ApplyOutcome::Refused(_) => &mut counts.refused,
                } += 1;
            }
        });
    }

    /// Deletes what a present phase did not name. `whole`: of content that other servers keep in part, too; `subentries`: of these, too.
    pub(super) fn delete_absent(
        &self,
        present: &UuidSet,
        csns: &[Csn],
        (whole, subentries): (bool, bool),
    ) -> Result<(), String> {
        let (mut share, limit) = self.task.line().share(csns);
        share.subentries = subentries;
        // Where several servers write, an entry may have come from another one meanwhile.
        share.whole = whole && !self.task.rules(&self.schema(), true).multi_provider;
        let Some(database) = &self.task.database else {
            return match self.with_push(|push| push.delete_absent(&share, present, limit)) {
                Some(outcome) => self.absent_deleted(outcome),
                None => self.delete_absent_in_config(present, csns),
            };
        };
        let (done, outcome) = sync_channel(1);
        database.delete_absent(
            &share,
            present,
            limit,
            Box::new(move |outcome| {
                // The receiver still waits.
                let _ = done.send(outcome);
            }),
        );
        self.absent_deleted(outcome.recv().map_err(|_| closed())?)
    }

    fn absent_deleted(&self, outcome: DeleteOutcome) -> Result<(), String> {
        let line = &self.task.line;
        match outcome {
            DeleteOutcome::Deleted(count) => {
                if count > 0 {
                    self.tell(&format!("deleted {count} entries that the provider does not have"));
                }
                self.status.change(|status| status.counts.absent += count);
                Ok(())
            }
            DeleteOutcome::TooMany { absent, entries } => Err(format!(
                "{} has {absent} of our {entries} entries no longer: nothing was deleted, as that is more than \
                 maxdelete={}% allows. If the provider is right, let maxdelete=100 stand in the syncrepl line once",
                self.task.provider(),
                line.delete_percent
            )),
            DeleteOutcome::Failed { result, .. } => {
                Err(format!("entries that the provider does not have could not be deleted: {result}"))
            }
        }
    }

    /// The configuration is small: no share of it is too much to go, and what would be needed may not.
    fn delete_absent_in_config(&self, present: &UuidSet, csns: &[Csn]) -> Result<(), String> {
        let (done, outcome) = sync_channel(1);
        let batch = ReplicatedBatch { context_csns: csns.to_vec(), ..ReplicatedBatch::default() };
        let done = Box::new(move |outcome: ReplicatedOutcome, absent: u64| {
            // The receiver still waits.
            let _ = done.send((outcome.result, absent));
        });
        let present = Present { base: self.task.line.local_base().normal.clone(), uuids: present.clone() };
        self.server.configuration.replicate(batch, Some(present), done);
        let (result, absent) =
            outcome.recv().map_err(|_| "the configuration's thread has ended".to_owned())?;
        if result.code != ResultCode::SUCCESS {
            return Err(format!("entries that the provider does not have could not be deleted: {result}"));
        }
        self.status.change(|status| status.counts.absent += absent);
        Ok(())
    }
}

fn closed() -> String {
    "the database is being closed".to_owned()
}

/// What a message calls a change.
fn name(change: &ReplicatedChange) -> String {
    match change {
        ReplicatedChange::Put { dn, .. } | ReplicatedChange::Delta { dn, .. } => format!("entry \"{dn}\""),
        ReplicatedChange::Delete { entry_uuid, .. } => format!("the delete of the entry {entry_uuid}"),
    }
}
