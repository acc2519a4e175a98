//! An engine that fails where a test wants it to, and one whose machine may die.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Attempt, CommitError, ReadError};
use crate::store::{CommitId, Durability, Snapshot, Statistics, Store, Transaction};
use crate::table::{Direction, KeyRange, TableId, TableSpec};
use crate::write_set::WriteSet;

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// As with another transaction that was first; nothing is committed.
    Conflict,
    /// No room; nothing is committed.
    Full,
    /// The operating system fails before the commit.
    Io,
    /// The answer is lost. `made`: whether the commit was. The next `silent` questions for its outcome get no answer,
    /// either.
    Lost { made: bool, silent: u64 },
    /// The answer is lost, and the commit comes in by itself before the next transaction begins. Until then questions for its
    /// outcome get no answer.
    Late,
    /// The sync fails: nothing is committed, and the store is read-only from then on.
    Sync,
    /// The store cannot be reached; nothing is committed.
    Unavailable,
}

/// Which commits fail, counted from 1 over the life of the store. Shared: a test keeps a clone and adds to it.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    inner: Arc<PlanState>,
}

#[derive(Debug, Default)]
struct PlanState {
    faults: Mutex<BTreeMap<u64, Fault>>,
    /// Faults that come by chance, each to one commit in so many, and the state of the generator.
    by_chance: Mutex<(Vec<(Fault, u64)>, u64)>,
    commits: AtomicU64,
    offline: AtomicBool,
    unbroken_since: AtomicU64,
    /// 0: that of the store.
    value_bytes_max: AtomicUsize,
}

impl FaultPlan {
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails commit number `commit`.
    pub fn at(self, commit: u64, fault: Fault) -> Self {
        self.faults().insert(commit, fault);
        self
    }

    /// Fails one commit in `one_in`, by chance: the same ones for each `seed`.
    #[must_use]
    pub fn by_chance(self, fault: Fault, one_in: u64, seed: u64) -> Self {
        let (faults, state) = &mut *lock(&self.inner.by_chance);
        faults.push((fault, one_in.max(1)));
        *state ^= seed;
        self.clone()
    }

    /// Whether the store can be reached: reads, commits and questions for outcomes fail while it is offline.
    pub fn set_offline(&self, offline: bool) {
        self.inner.offline.store(offline, Ordering::Release);
    }

    fn is_offline(&self) -> bool {
        self.inner.offline.load(Ordering::Acquire)
    }

    /// As if commits before this one may have been lost.
    pub fn break_before(&self, commit: u64) {
        self.inner.unbroken_since.store(commit, Ordering::Release);
    }

    /// Fails commits with longer values from now on.
    pub fn limit_values(&self, bytes: usize) {
        self.inner.value_bytes_max.store(bytes, Ordering::Release);
    }

    /// Fails the next commit.
    pub fn next(&self, fault: Fault) {
        let next = self.commits() + 1;
        self.faults().insert(next, fault);
    }

    /// How many commits were tried.
    pub fn commits(&self) -> u64 {
        self.inner.commits.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Fault> {
        let commit = self.inner.commits.fetch_add(1, Ordering::AcqRel) + 1;
        self.faults().remove(&commit).or_else(|| self.draw())
    }

    fn draw(&self) -> Option<Fault> {
        let (faults, state) = &mut *lock(&self.inner.by_chance);
        faults.iter().find(|(_, one_in)| draw(state).is_multiple_of(*one_in)).map(|(fault, _)| *fault)
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<u64, Fault>> {
        lock(&self.inner.faults)
    }
}

/// The next number of SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread leaves each value consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Any store, with the faults of a plan.
#[derive(Debug)]
pub struct FaultStore<S> {
    inner: S,
    plan: FaultPlan,
    failed: AtomicBool,
    /// Where the machine may die.
    past: Option<Mutex<Past>>,
    /// Commits whose answer was lost.
    lost_answers: Mutex<LostAnswers>,
    /// Loads that may cost all that was stored before.
    careless_loads: AtomicU64,
}

#[derive(Debug, Default)]
struct LostAnswers {
    attempts: BTreeMap<u64, Option<CommitId>>,
    /// What is still on its way.
    late: Option<(u64, WriteSet, Durability)>,
    /// Questions for an outcome that get no answer.
    silent: u64,
}

impl LostAnswers {
    fn note(&mut self, outcome: Option<CommitId>) -> u64 {
        let attempt = self.attempts.len() as u64;
        self.attempts.insert(attempt, outcome);
        attempt
    }
}

/// What was committed, in its order.
#[derive(Clone, Debug, Default)]
struct Past {
    commits: Vec<WriteSet>,
    /// So many of them stay whatever happens.
    synced: usize,
}

impl<S: Store> FaultStore<S> {
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        Self {
            inner,
            plan,
            failed: AtomicBool::new(false),
            past: None,
            lost_answers: Mutex::default(),
            careless_loads: AtomicU64::new(0),
        }
    }

    /// The same over an empty store, on a machine that may die ([`Self::after_loss`]): what is committed is kept in memory
    /// for that, and nothing can be loaded.
    pub fn volatile(inner: S, plan: FaultPlan) -> Self {
        Self { past: Some(Mutex::default()), ..Self::new(inner, plan) }
    }

    /// How many of the last commits a machine that dies now may lose: those behind the last sync. None of a store that is
    /// not [volatile](Self::volatile).
    pub fn at_risk(&self) -> usize {
        self.past().map_or(0, |past| past.commits.len() - past.synced)
    }

    /// What is there after the machine died and has lost the last `lost` commits, in `empty`, which has nothing yet.
    ///
    /// # Panics
    /// If `lost` is more than are [at risk](Self::at_risk).
    ///
    /// # Errors
    /// What `empty` does not take.
    pub fn after_loss(&self, lost: usize, empty: S) -> Result<Self, CommitError> {
        assert!(lost <= self.at_risk(), "what was synced is not lost");
        let mut past = self.past().map_or_else(Past::default, |past| past.clone());
        past.commits.truncate(past.commits.len() - lost);
        past.synced = past.commits.len();
        for set in &past.commits {
            empty.transaction()?.commit(set, Durability::Sync)?;
        }
        Ok(Self { past: Some(Mutex::new(past)), ..Self::new(empty, self.plan.clone()) })
    }

    /// How many loads were begun of which a machine that dies may leave no store ([`Store::loader`]).
    pub fn careless_loads(&self) -> u64 {
        self.careless_loads.load(Ordering::Acquire)
    }

    fn past(&self) -> Option<MutexGuard<'_, Past>> {
        self.past.as_ref().map(lock)
    }

    fn check_online(&self) -> Result<(), ReadError> {
        if self.plan.is_offline() { Err(ReadError::Unavailable(planned())) } else { Ok(()) }
    }

    /// Lets a commit in that is still on its way; one that another commit came before is not made.
    fn let_in_late(&self) -> Result<(), CommitError> {
        let mut answers = lock(&self.lost_answers);
        let Some((attempt, changes, durability)) = answers.late.take() else { return Ok(()) };
        let transaction = FaultTransaction { store: self, inner: self.inner.transaction()? };
        let made = transaction.make(&changes, durability).ok();
        answers.attempts.insert(attempt, made);
        answers.silent = 0;
        Ok(())
    }

    fn check_loads(&self) -> Result<(), CommitError> {
        match self.past {
            None => Ok(()),
            Some(_) => Err(CommitError::Io(io::Error::other("what is loaded could not be lost"))),
        }
    }

    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Store> Store for FaultStore<S> {
    type Snapshot<'s> = S::Snapshot<'s>;
    type Transaction<'s> = FaultTransaction<'s, S>;
    type Loader<'s> = S::Loader<'s>;

    const SHARED: bool = S::SHARED;

    fn tables(&self) -> &[TableSpec] {
        self.inner.tables()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        self.check_online()?;
        self.inner.snapshot()
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(CommitError::ReadOnly { after_failed_sync: true });
        }
        if self.plan.is_offline() {
            return Err(CommitError::Unavailable(planned()));
        }
        self.let_in_late()?;
        Ok(FaultTransaction { store: self, inner: self.inner.transaction()? })
    }

    fn outcome(&self, attempt: Attempt) -> Result<Option<CommitId>, ReadError> {
        self.check_online()?;
        let mut answers = lock(&self.lost_answers);
        if answers.silent > 0 {
            answers.silent -= 1;
            return Err(ReadError::Unavailable(planned()));
        }
        match answers.attempts.get(&attempt.0) {
            Some(outcome) => Ok(*outcome),
            None => self.inner.outcome(attempt),
        }
    }

    fn commit_counter(&self) -> u64 {
        self.inner.commit_counter()
    }

    fn unbroken_since(&self) -> u64 {
        self.inner.unbroken_since().max(self.plan.inner.unbroken_since.load(Ordering::Acquire))
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        self.inner.statistics()
    }

    fn sync(&self) -> Result<(), CommitError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(CommitError::ReadOnly { after_failed_sync: true });
        }
        let mut past = self.past();
        self.inner.sync()?;
        if let Some(past) = &mut past {
            past.synced = past.commits.len();
        }
        Ok(())
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        self.check_loads()?;
        self.careless_loads.fetch_add(1, Ordering::AcqRel);
        self.inner.loader()
    }

    fn live_loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        self.check_loads()?;
        self.inner.live_loader()
    }

    fn is_read_only(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.inner.is_read_only()
    }

    fn value_bytes_max(&self) -> usize {
        match self.plan.inner.value_bytes_max.load(Ordering::Acquire) {
            0 => self.inner.value_bytes_max(),
            most => most,
        }
    }
}

/// A transaction whose commit may be made to fail.
#[derive(Debug)]
pub struct FaultTransaction<'s, S: Store> {
    store: &'s FaultStore<S>,
    inner: S::Transaction<'s>,
}

impl<'s, S: Store> Snapshot for FaultTransaction<'s, S> {
    type Scan<'a>
        = <S::Transaction<'s> as Snapshot>::Scan<'a>
    where
        Self: 'a;
    type Cursor<'a>
        = <S::Transaction<'s> as Snapshot>::Cursor<'a>
    where
        Self: 'a;
    type PostingKeys<'a>
        = <S::Transaction<'s> as Snapshot>::PostingKeys<'a>
    where
        Self: 'a;

    const IS_DISTANT: bool = <S::Transaction<'s> as Snapshot>::IS_DISTANT;

    fn commit_counter(&self) -> u64 {
        self.inner.commit_counter()
    }

    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        self.inner.get(table, key)
    }

    fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        self.inner.get_many(table, keys)
    }

    fn scan<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Scan<'a>, ReadError> {
        self.inner.scan(table, range, direction)
    }

    fn postings<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Self::Cursor<'a>, ReadError> {
        self.inner.postings(table, key)
    }

    fn posting_estimate(&self, table: TableId, key: &[u8]) -> Result<u64, ReadError> {
        self.inner.posting_estimate(table, key)
    }

    fn posting_keys<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::PostingKeys<'a>, ReadError> {
        self.inner.posting_keys(table, range, direction)
    }
}

impl<S: Store> FaultTransaction<'_, S> {
    fn make(self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError> {
        // Held until it is noted: their order is that of the commits.
        let mut past = self.store.past();
        let done = self.inner.commit(changes, durability)?;
        if let Some(past) = &mut past {
            past.commits.push(changes.clone());
            if durability == Durability::Sync {
                past.synced = past.commits.len();
            }
        }
        Ok(done)
    }

    fn lose(self, changes: &WriteSet, durability: Durability, fault: Fault) -> CommitError {
        let store = self.store;
        let attempt = match fault {
            Fault::Lost { made, silent } => {
                let outcome = match made.then(|| self.make(changes, durability)) {
                    Some(Err(error)) => return error,
                    Some(Ok(done)) => Some(done),
                    None => None,
                };
                let mut answers = lock(&store.lost_answers);
                answers.silent = silent;
                answers.note(outcome)
            }
            _ => {
                let mut answers = lock(&store.lost_answers);
                let attempt = answers.note(None);
                answers.late = Some((attempt, changes.clone(), durability));
                // Nothing is said of it before.
                answers.silent = u64::MAX;
                attempt
            }
        };
        CommitError::OutcomeUnknown(Attempt(attempt))
    }
}

impl<S: Store> Transaction for FaultTransaction<'_, S> {
    fn get_for_update<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        self.inner.get_for_update(table, key)
    }

    fn commit(self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError> {
        if changes.longest_value() > self.store.value_bytes_max() {
            return Err(CommitError::Io(planned()));
        }
        match self.store.plan.take() {
            None => self.make(changes, durability),
            Some(fault @ (Fault::Lost { .. } | Fault::Late)) => Err(self.lose(changes, durability, fault)),
            Some(Fault::Unavailable) => Err(CommitError::Unavailable(planned())),
            Some(Fault::Conflict) => Err(CommitError::Conflict),
            Some(Fault::Full) => Err(CommitError::Full),
            Some(Fault::Io) => Err(CommitError::Io(planned())),
            Some(Fault::Sync) => {
                self.store.failed.store(true, Ordering::Release);
                Err(CommitError::Sync(planned()))
            }
        }
    }

    fn confirm(self) -> Result<(), CommitError> {
        self.inner.confirm()
    }
}

fn planned() -> io::Error {
    io::Error::other("a fault that was planned")
}

#[cfg(test)]
mod tests;
