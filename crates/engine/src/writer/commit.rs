//! A group's way to its commit: each change on a view of the ones before it, upkeep that goes along, one commit, and the answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_store::{CommitError, CommitId, Durability, ReadError, Snapshot, Store, Transaction as _, Wanted};

use super::core::{Core, KnownGeneration};
use super::entrance::{Job, Work};
use super::gathering::Gathering;
use super::log_upkeep::{GroupLog, LogUpkeep};
use super::queue::Queue;
use super::task::WriterTask;
use super::{GROUP_BYTES, SHARED_GROUP_BYTES};
use crate::catalog::CatalogEdit;
use crate::change::prepare::PreparedChange;
use crate::database::{Database, MayConflict, retried};
use crate::failure::{Failure, commit_failed};
use crate::fault::Fault;
use crate::index::build::Slice;
use crate::injected;
use crate::log;
use crate::mirror;
use crate::tree;
use crate::write::back_link_walk::WalkSlice;
use crate::write::group::{Group, ReadyGroup};
use crate::write::known::MissingElement;
use crate::write::operator::Counters;
use crate::write::request::WriteOutcome;

/// Why a group was not committed.
#[derive(Debug)]
pub(super) enum GroupError {
    Fault(Fault),
    Commit(CommitError),
    /// The files that the store is an image of could not be written.
    Mirror(String),
    Schema(MissingElement),
    /// The store could not be read again after a panic.
    Again(String),
}

impl From<Fault> for GroupError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<CommitError> for GroupError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<MissingElement> for GroupError {
    fn from(missing: MissingElement) -> Self {
        Self::Schema(missing)
    }
}

impl MayConflict for GroupError {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Commit(error) => error.is_conflict(),
            Self::Fault(Fault::Store(ReadError::Stale)) => true,
            _ => false,
        }
    }
}

impl GroupError {
    fn into_result(self) -> LdapResult {
        match self {
            Self::Fault(fault) => Failure::Storage(fault).into_result(),
            Self::Commit(error) => commit_failed(&error),
            Self::Mirror(why) | Self::Again(why) => LdapResult::with(ResultCode::OTHER, why),
            Self::Schema(missing) => LdapResult::with(ResultCode::OTHER, missing.to_string()),
        }
    }
}

/// The state of the writer once a group is committed.
struct CommittedGroup {
    committed: CommitId,
    counters: Counters,
    catalog: CatalogEdit,
    log: LogUpkeep,
    index_slice: Option<Slice>,
    walked: Option<WalkSlice>,
    /// The group changed too much for the walk over back links, which begins again.
    walks_anew: bool,
    contexts_rose: bool,
    /// The last entry id before the group.
    last_entry_id: u64,
}

impl<S: Store> Core<S> {
    /// Carries out `first` and the changes that wait in `queue`, commits them, and answers. Returns the task that ended the group.
    pub(super) fn group(&mut self, first: Job, queue: Option<&Queue<Work>>) -> Option<WriterTask> {
        self.take_up();
        self.quiet = false;
        let wakes = first.is_nothing();
        let bytes_max = if S::SHARED { SHARED_GROUP_BYTES } else { GROUP_BYTES };
        let mut gathering = Gathering::new(first, queue, bytes_max);
        // A panic fails the group. The writer reads its state again.
        let attempted = catch_unwind(AssertUnwindSafe(|| self.attempt_in_turn(&mut gathering)));
        let failed = match attempted {
            Ok(attempted) => attempted.err().map(GroupError::into_result),
            Err(_) => {
                self.doubtful = true;
                Some(LdapResult::internal_error())
            }
        };
        if failed.is_some() && !self.doubtful {
            // This thread's cache may have names that the failed changes gave to entries.
            tree::forget(self.instance);
            self.as_of = None;
            self.index_work.forget();
            self.back_link_walk.failed(&*self.environment.clock);
        }
        let behind = gathering.answer(failed.as_ref(), !S::SHARED);
        if self.doubtful && !S::SHARED {
            // Followers hear of what was committed without a change behind it. If that fails, too, the next change tries again.
            let renewed = catch_unwind(AssertUnwindSafe(|| self.renew()));
            if let Ok(Ok(())) = renewed {
                self.database.log_watch().tell();
            }
        }
        if !self.doubtful {
            self.note_answered();
        }
        if S::SHARED && wakes && failed.is_none() {
            // This server writes from now on. When it opened the database it could not, and a tool may have loaded since.
            self.claim_content();
        }
        behind
    }

    /// Holds the turn of all databases that are glued to this one, and tries again if another server's commit came first.
    fn attempt_in_turn(&mut self, gathering: &mut Gathering<'_>) -> Result<(), GroupError> {
        let (order, database) = (Arc::clone(&self.environment.order), Arc::clone(&self.database));
        let _turn = order.turn_to_commit(database.store());
        let mut again = false;
        self.unmade = None;
        retried(|| {
            if std::mem::replace(&mut again, true) {
                tree::forget(self.instance);
                self.as_of = None;
                gathering.begin_again();
            }
            self.attempt(gathering)
        })
    }

    /// Carries out the changes and commits them. `gathering` gets an outcome for each change that was tried.
    fn attempt(&mut self, gathering: &mut Gathering<'_>) -> Result<(), GroupError> {
        self.renew()?;
        self.clear_unfinished()?;
        injected::panic_at("writer");
        let database = Arc::clone(&self.database);
        self.index_work.follow(&database);
        self.renew_known()?;
        let transaction = if S::SHARED {
            gathering.gather(0);
            database.store().transaction_with(&wanted(&database, gathering.gathered()))?
        } else {
            database.store().transaction()?
        };
        if self.follow_store(&transaction)? {
            self.index_work.follow(&database);
        }
        let mut group = Group::new(
            &database,
            &self.environment,
            &self.retiring,
            Arc::clone(&self.known.1),
            self.counters.clone(),
            (self.instance, self.generation.at(&transaction)),
        );
        let last_entry_id = group.counters.last_entry_id;
        let dictionaries = group.catalog.catalog().dictionaries();
        let changes = gathering.gathered().iter().map(|job| job.tasks.len()).sum();
        if let Some(made) = self.trainer.along(&transaction, dictionaries, last_entry_id, changes)? {
            group.catalog.add_dictionary(made);
        }
        carry_out_all((&database, gathering), &mut group, &transaction)?;
        let walked = self.back_link_walk.along(&mut group, &transaction, gathering.is_nothing())?;
        let walks_anew = group.walks;
        let counters = Counters { csn: None, claimed: None, ..group.counters.clone() };
        let generation = group.generation_behind();
        let Some(mut ready) = group.ready(&transaction)? else { return Ok(transaction.confirm()?) };
        if ready.durability == Durability::Sync && !ready.decided && gathering.is_lazy() {
            ready.durability = Durability::NoMetaSync;
        }
        let index_slice = self.index_along(&transaction, &mut ready);
        self.merge_along(&transaction, &mut ready.set)?;
        let log = self.log_along(&transaction, &mut ready, &counters)?;
        let begun = self.environment.clock.monotonic();
        self.reflect(&transaction, &ready)?;
        let committed = self.commit(transaction, &ready.set, ready.durability)?;
        injected::panic_at("writer-committed");
        let taken = self.environment.clock.monotonic().0.saturating_sub(begun.0);
        database.writes().committed(gathering.len(), taken);
        let contexts_rose = ready.claimed || log::sets_context_csn(&ready.set);
        let catalog = ready.catalog;
        self.generation = KnownGeneration(generation.map(|generation| (committed.0, generation)));
        self.settle(CommittedGroup {
            committed,
            counters,
            catalog,
            log,
            index_slice,
            walked,
            walks_anew,
            contexts_rose,
            last_entry_id,
        });
        Ok(())
    }

    /// Adds the upkeep of the change log to a group's changes.
    fn log_along<T: Snapshot>(
        &self,
        transaction: &T,
        ready: &mut ReadyGroup,
        behind: &Counters,
    ) -> Result<LogUpkeep, Fault> {
        let logged = GroupLog {
            server_id: self.environment.order.server_id(),
            is_logged: ready.logs,
            before: &self.counters,
            behind,
        };
        let random = &*self.environment.random;
        self.log.along(transaction, &mut ready.set, &logged, &self.trimmed(behind), random)
    }

    /// Writes a group's changes to the files that the store is an image of, if it is one.
    fn reflect<T: Snapshot>(&self, transaction: &T, ready: &ReadyGroup) -> Result<(), GroupError> {
        let Some(mirror) = self.database.mirror() else { return Ok(()) };
        let state = ready.catalog.state(&self.database.state());
        let changes = mirror::changes(transaction, &ready.set, state)?;
        mirror.write(&changes).map_err(GroupError::Mirror)
    }

    /// Takes over the committed state, and tells those who follow the change log.
    fn settle(&mut self, settled: CommittedGroup) {
        let database = Arc::clone(&self.database);
        (self.log, self.counters) = (settled.log, settled.counters);
        database.writes().log_extent(self.log.first(), self.counters.last_log_sequence);
        self.contexts_rose |= settled.contexts_rose;
        self.trainer.committed(settled.last_entry_id);
        database.publish_committed(settled.committed.0, settled.catalog.committed());
        if let Some(slice) = settled.index_slice
            && self.index_work.committed(&database, &slice, settled.committed)
        {
            self.forget_merge();
        }
        let watch = self.environment.index_watch.as_deref();
        self.back_link_walk.committed(settled.walked, settled.walks_anew, watch);
        database.log_watch().tell();
    }
}

/// The rows that find the entries which the changes name.
fn wanted<S: Store>(database: &Database<S>, jobs: &[Job]) -> Vec<Wanted> {
    let operations = jobs.iter().flat_map(|job| &job.tasks).map(|task| &task.operation);
    database.wanted(operations.flat_map(PreparedChange::names))
}

/// Carries out the gathered changes and those that wait.
fn carry_out_all<S: Store, T: Snapshot>(
    (database, gathering): (&Database<S>, &mut Gathering<'_>),
    group: &mut Group<'_, S>,
    transaction: &T,
) -> Result<(), Fault> {
    loop {
        let bytes = group.set.byte_len();
        if S::SHARED && gathering.len() == gathering.gathered().len() {
            let more = gathering.gather(bytes);
            if !more.is_empty() {
                transaction.fetch_ahead(&wanted(database, more));
            }
        }
        let Some(job) = gathering.next(bytes) else { return Ok(()) };
        let outcome = match &job.replicated {
            Some(batch) => group.replicate(transaction, batch).map(WriteOutcome::from),
            None => group.carry_out(transaction, &job.tasks, job.follow.as_ref()),
        };
        gathering.note(outcome?);
    }
}
