//! What a writer does beside changes, and when: slices of work that go along with a group, and more of them while no change
//! waits.

use std::sync::Arc;
use std::time::Duration;

use larix_store::{CommitError, CommitId, Layered, Snapshot, Store, WriteSet};

use super::core::Core;
use super::entrance::Job;
use crate::database::is_conflict;
use crate::fault::{Fault, commit_fault};
use crate::index::build::Slice;
use crate::index::merge::{IDLE_SLICE_KEYS, Merger, SLICE_KEYS};
use crate::injected;
use crate::log;
use crate::time::Timestamp;
use crate::write::group::ReadyGroup;
use crate::write::operator::Counters;

/// After so long without a change, what is pending is brought into the indexes.
const QUIET: Duration = Duration::from_millis(250);
/// Records of the log that are removed at once when nothing else is to be done.
const LOG_SLICE: u64 = 1024;
/// What a pending key takes in its row, about.
const PENDING_KEY_BYTES: usize = 3;

impl<S: Store> Core<S> {
    /// Whether there is something to do without any change.
    fn is_behind(&self) -> bool {
        self.merger.is_pending() || self.log.is_behind() || self.trainer.is_working()
    }

    /// How long to wait for changes before something else is done; without limit when there is nothing else.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.database.store().is_read_only() {
            return None;
        }
        // Once it is quiet what is left behind is brought in, slice by slice.
        let quiet = if self.quiet { Duration::ZERO } else { QUIET };
        let behind = self.is_behind().then_some(quiet);
        [self.index_work.patience(), self.patience_of_walk(), behind].into_iter().flatten().min()
    }

    fn patience_of_walk(&self) -> Option<Duration> {
        self.back_link_walk.patience(&self.database, &*self.environment.clock)
    }

    /// Does what is due while no change waits.
    pub(super) fn use_the_time(&mut self) {
        injected::panic_at("upkeep");
        if self.index_work.patience() == Some(Duration::ZERO) {
            self.work_on_indexes();
        } else if self.patience_of_walk() == Some(Duration::ZERO) {
            // With no changes but those of the walk.
            self.group(Job::nothing(), None);
        } else if self.trainer.is_working() {
            self.quiet = self.train().is_ok();
        } else if self.is_behind() {
            self.quiet = self.catch_up().is_ok();
        }
    }

    /// A slice of work on indexes, with a commit of its own.
    fn work_on_indexes(&mut self) {
        let database = Arc::clone(&self.database);
        self.index_work.follow(&database);
        let begun = self.environment.clock.monotonic();
        let durability = database.settings().durability();
        let worked = self.commit_own(durability, |own, transaction, set| {
            own.index_work.follow(&database);
            let slice = own.index_work.alone(&database, transaction).map_err(commit_fault)?;
            Ok(slice.map(|mut slice| {
                *set = std::mem::take(&mut slice.set);
                slice
            }))
        });
        let changed = match worked {
            Ok(None) => false,
            Ok(Some(slice)) => {
                self.index_work.took_alone(begun);
                // With another's commit before it, it is complete from a later one on.
                let committed = self.as_of.unwrap_or_else(|| database.store().commit_counter());
                self.index_work.committed(&database, &slice, CommitId(committed))
            }
            Err(error) if is_conflict(&error) => {
                self.index_work.forget();
                false
            }
            Err(error) => {
                self.index_work.failed(&database, &error.to_string());
                self.as_of = None;
                false
            }
        };
        if changed {
            self.forget_merge();
        }
    }

    /// Goes on with a dictionary, so that what it is made of does not stay in memory. The next change stores it.
    fn train(&mut self) -> Result<(), Fault> {
        let snapshot = self.database.store().snapshot()?;
        let catalog = self.database.catalog();
        self.trainer.along(&snapshot, catalog.dictionaries(), self.counters.last_entry_id, 1)?;
        Ok(())
    }

    /// Brings a slice of what is pending into the indexes, and removes a slice of what the log need not keep.
    fn catch_up(&mut self) -> Result<(), CommitError> {
        let durability = self.database.settings().durability();
        let caught_up = self.commit_own(durability, |own, transaction, set| {
            if own.merger.is_pending() {
                own.merger.slice(transaction, IDLE_SLICE_KEYS, true).map_err(commit_fault)?.write(set);
            }
            if !own.log.is_behind() {
                return Ok(Some(own.log.clone()));
            }
            let now = own.trimmed(&own.counters);
            own.log.alone(transaction, set, &now, LOG_SLICE).map(Some).map_err(commit_fault)
        });
        match caught_up {
            Ok(log) => self.log = log.unwrap_or_else(|| self.log.clone()),
            Err(error) => {
                self.as_of = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// What is pending is read again, with nothing brought in. If not even that can be read, it stands for the next one to open
    /// the database.
    pub(super) fn forget_merge(&mut self) {
        let known = self.database.store().snapshot().map_err(Fault::from).and_then(|now| Merger::new(&now));
        self.merger = known.unwrap_or_default();
    }

    /// By what is judged which records of the log have to go.
    pub(super) fn trimmed(&self, counters: &Counters) -> log::TrimState {
        let settings = self.database.current_settings();
        let retention = if settings.log { settings.log_retention } else { log::LogRetention::NOTHING };
        // Only an age is judged by the time.
        let now = retention.age.map_or(Timestamp(0), |_| self.environment.clock.now());
        log::TrimState {
            retention,
            now,
            last_sequence: counters.last_log_sequence,
            last_entry_id: counters.last_entry_id,
            logged_bytes: counters.logged_bytes,
            needed: self.database.following().needed(counters.last_log_sequence),
        }
    }

    /// Adds a slice of work on indexes to a group's changes.
    pub(super) fn index_along<T: Snapshot>(
        &mut self,
        transaction: &T,
        ready: &mut ReadyGroup,
    ) -> Option<Slice> {
        let view = Layered::new(transaction, &ready.set);
        let mut slice = self.index_work.next_slice(&self.database, &view, ready.catalog.catalog())?;
        ready.set.merge(std::mem::take(&mut slice.set));
        Some(slice)
    }

    /// Adds a slice of what is pending to a group's changes.
    pub(super) fn merge_along<T: Snapshot>(
        &mut self,
        transaction: &T,
        set: &mut WriteSet,
    ) -> Result<(), Fault> {
        let bytes = self.merger.observe(set)?;
        let keys = SLICE_KEYS + 2 * bytes / PENDING_KEY_BYTES;
        let slice = self.merger.slice(&Layered::new(transaction, &*set), keys, false)?;
        slice.write(set);
        Ok(())
    }
}
