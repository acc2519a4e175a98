//! Cached state of a database whose store other processes write, too: it is compared with what each snapshot shows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use larix_store::{
    CommitError, CommitId, Durability, ReadError, Snapshot, Store, Transaction as _, WriteSet,
};

use super::{Database, DatabaseOpenError, DatabaseState, check_format};
use crate::catalog::Catalog;
use crate::fault::Fault;
use crate::tables::{META, meta};

/// How often something is tried again after another commit to the same store was first.
pub(crate) const CONFLICT_RETRIES: usize = 64;
/// How often a tool asks for the outcome of a commit whose answer was lost, with a pause behind each question that has no answer: an engine
/// that is started again answers by then.
const TOOL_TRIES: usize = 20;
const TOOL_PAUSE: Duration = Duration::from_secs(1);
/// How often a tool makes a commit that was not answered and not made.
const UNMADE_MAX: usize = 3;

impl<S: Store> Database<S> {
    /// In a shared store: takes the catalog from the snapshot where another writer may have changed it since it was read.
    pub(crate) fn follow_catalog<N: Snapshot>(&self, snapshot: &N) -> Result<(), Fault> {
        if S::SHARED && snapshot.commit_counter() > self.catalog_commit.load(Ordering::Acquire) {
            self.read_catalog(snapshot)?;
        }
        Ok(())
    }

    /// Learns what the writer has to know of the database as a transaction shows it: that it was committed does not say that it
    /// was published here.
    pub(crate) fn learn<N: Snapshot>(&self, transaction: &N) -> Result<(), Fault> {
        self.read_catalog(transaction)?;
        if S::SHARED
            && !self.states_kept.load(Ordering::Acquire)
            && transaction.get(META, meta::STATES_KEPT)?.is_some()
        {
            self.publish_states();
        }
        Ok(())
    }

    fn read_catalog<N: Snapshot>(&self, snapshot: &N) -> Result<(), Fault> {
        let commit = snapshot.commit_counter();
        if S::SHARED {
            // Another writer may be of a later version, and have brought the store to a format that this one would misread.
            check_format::<S>(snapshot)?;
        }
        let read_with = self.state();
        let mut catalog = Catalog::load(snapshot, &read_with.schema, read_with.settings.index.clone())?;
        // Nothing is left half done by who panics here.
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if S::SHARED && self.catalog_commit.load(Ordering::Acquire) >= commit {
            return Ok(());
        }
        let now = self.state.load();
        let is_bound =
            Arc::ptr_eq(&now.schema, &read_with.schema) && Arc::ptr_eq(&now.settings, &read_with.settings);
        if !is_bound {
            catalog = catalog.rebound(&now.schema, now.settings.index.clone());
        }
        if !catalog.is_same(&now.catalog) {
            let catalog = Arc::new(catalog.behind(&now.catalog, commit));
            self.state.store(Arc::new(DatabaseState { catalog, ..DatabaseState::clone(&now) }));
            self.configuration.fetch_add(1, Ordering::Release);
        }
        self.catalog_commit.store(commit, Ordering::Release);
        Ok(())
    }

    /// The writer has committed. `catalog`: what it made of the catalog, if anything. In a shared store the next one to look
    /// reads that, so that it cannot hide what another writer has committed behind it.
    pub(crate) fn publish_committed(&self, commit: u64, catalog: Option<Arc<Catalog>>) {
        match catalog {
            None if S::SHARED => {
                let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
                if self.catalog_commit.load(Ordering::Acquire) + 1 == commit {
                    self.catalog_commit.store(commit, Ordering::Release);
                }
            }
            Some(catalog) if !S::SHARED => self.publish_catalog(catalog),
            _ => {}
        }
    }
}

/// Whether it failed because of another commit: then the caller tries again.
pub(crate) fn is_conflict(error: &CommitError) -> bool {
    matches!(error, CommitError::Conflict | CommitError::Read(ReadError::Stale))
}

/// An error that may be a conflict.
pub(crate) trait MayConflict {
    fn is_conflict(&self) -> bool;
}

impl MayConflict for CommitError {
    fn is_conflict(&self) -> bool {
        is_conflict(self)
    }
}

impl MayConflict for DatabaseOpenError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Commit(error) if is_conflict(error))
    }
}

/// Does it again as long as another commit is first, up to a limit.
pub(crate) fn retried<A, E: MayConflict>(mut attempt: impl FnMut() -> Result<A, E>) -> Result<A, E> {
    let mut result = attempt();
    for _ in 0..CONFLICT_RETRIES {
        match result {
            Err(error) if error.is_conflict() => result = attempt(),
            _ => break,
        }
    }
    result
}

/// What became of a tool's commit, also where the store's answer was lost. `None`: it was not made and never will be.
///
/// # Errors
/// Nothing was committed, or [`CommitError::OutcomeUnknown`].
pub(crate) fn settled<S: Store>(
    store: &S,
    committed: Result<CommitId, CommitError>,
) -> Result<Option<CommitId>, CommitError> {
    let Err(CommitError::OutcomeUnknown(attempt)) = committed else { return committed.map(Some) };
    for _ in 0..TOOL_TRIES {
        match store.outcome(attempt) {
            Ok(outcome) => return Ok(outcome),
            Err(_) => thread::park_timeout(TOOL_PAUSE),
        }
    }
    Err(CommitError::OutcomeUnknown(attempt))
}

/// What is said where that was `None`, and the tool does not make it once more.
pub(crate) fn unmade() -> CommitError {
    let text = "it did not answer the commit and did not make it: nothing of it is there, try again";
    CommitError::Unavailable(std::io::Error::other(text))
}

/// Commits changes of a tool that alone writes, so that they fit once more where a commit without an answer was not made.
///
/// # Errors
/// As [`settled`].
pub(crate) fn commit_alone<S: Store>(
    store: &S,
    transaction: S::Transaction<'_>,
    set: &WriteSet,
) -> Result<CommitId, CommitError> {
    let mut committed = transaction.commit(set, Durability::Sync);
    for _ in 1..UNMADE_MAX {
        if let Some(made) = settled(store, committed)? {
            return Ok(made);
        }
        committed = store.transaction()?.commit(set, Durability::Sync);
    }
    settled(store, committed)?.ok_or_else(unmade)
}
