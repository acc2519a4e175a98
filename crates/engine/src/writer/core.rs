//! What a writer keeps between two groups. The thread that carries out a change uses it.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use larix_schema::Schema;
use larix_store::{
    Attempt, CommitError, CommitId, Direction, Durability, KeyRange, Snapshot, Store, Transaction, WriteSet,
};

use super::WriterStartError;
use super::commit::GroupError;
use super::log_upkeep::LogUpkeep;
use crate::database::{Database, next_instance, retried};
use crate::fault::{Fault, commit_fault};
use crate::index::merge::Merger;
use crate::log;
use crate::tables::{ENTRIES, META, meta};
use crate::time::Monotonic;
use crate::tree;
use crate::write::RetiringDefinitions;
use crate::write::WriterEnvironment;
use crate::write::back_link_walk::BackLinkWalk;
use crate::write::index_work::IndexWork;
use crate::write::known::{KnownSchema, MissingElement};
use crate::write::operator::Counters;
use crate::write::training::{self, Trainer};

/// How often the writer asks the store for the outcome of a commit whose answer was lost, before it reports the outcome as unknown.
const OUTCOME_TRIES: usize = 3;
/// A commit that a store did not answer and did not make is made anew so often, and no longer than this behind the first time.
const UNMADE_MAX: u32 = 16;
const UNMADE_NANOS: u64 = 10_000_000_000;

/// All of it holds as of one commit. What a group makes of it is taken over once that is committed; where it was not, or
/// where somebody else has committed since, it is [read again](Core::follow_store) before it is used.
#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) database: Arc<Database<S>>,
    pub(super) environment: WriterEnvironment,
    pub(super) counters: Counters,
    /// What no change may use any more, while it is found out whether it can leave the schema.
    pub(super) retiring: RetiringDefinitions,
    /// What the rules and names of a schema are, looked up once.
    pub(super) known: (Arc<Schema>, Arc<KnownSchema>),
    pub(super) merger: Merger,
    pub(super) index_work: IndexWork,
    pub(super) back_link_walk: BackLinkWalk,
    /// Nothing has come for a while, and what is pending is being brought in.
    pub(super) quiet: bool,
    pub(super) log: LogUpkeep,
    /// Under which this thread caches names: those of changes that are not committed are nobody else's business.
    pub(super) instance: u64,
    pub(super) trainer: Trainer,
    /// A fill may have left something that is to be thrown away first.
    pub(super) unfinished: bool,
    /// A panic came amid something: what is known here is to be read again first.
    pub(super) doubtful: bool,
    /// The commit that what is known here holds for; none: it is to be read again.
    pub(super) as_of: Option<u64>,
    /// The thread that carried out something last: what another one remembers of names is no longer to be trusted.
    thread: Option<ThreadId>,
    /// Changes that other threads carried out themselves.
    pub(super) changes_elsewhere: u64,
    /// A contextCSN was raised: followers of the log have to be notified.
    pub(super) contexts_rose: bool,
    pub(super) generation: KnownGeneration,
    /// Whether the writer's thread waits no longer than until something is to be done beside changes.
    pub(super) looks_again: bool,
    /// Commits of one group in a row that the store did not answer and did not make: when the first one was, and how many.
    pub(super) unmade: Option<(Monotonic, u32)>,
}

/// The tree's generation behind the last group, with the commit that made it: it holds as long as no other commit was made.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct KnownGeneration(pub(super) Option<(u64, u64)>);

impl KnownGeneration {
    /// In this transaction, before it changes anything.
    pub(super) fn at<T: Snapshot>(self, transaction: &T) -> Option<u64> {
        self.0.filter(|(commit, _)| *commit == transaction.commit_counter()).map(|(_, generation)| generation)
    }
}

impl<S: Store> Core<S> {
    /// Learns what the database holds, and tells it where its log is.
    ///
    /// # Errors
    /// A store that cannot be read, or a schema that lacks what changes need.
    pub(super) fn new(
        database: Arc<Database<S>>,
        environment: WriterEnvironment,
    ) -> Result<Self, WriterStartError> {
        let server_id = environment.order.server_id();
        let snapshot = database.store().snapshot().map_err(Fault::from)?;
        let as_of = Some(snapshot.commit_counter());
        database.follow_catalog(&snapshot)?;
        let StoredState { counters, log, merger } = StoredState::read(&snapshot, &environment)?;
        let sampled = training::sampled(&snapshot)?;
        drop(snapshot);
        let sequence = counters.last_log_sequence;
        database.writes().log_extent(log.first(), sequence);
        database.following().set_answered(log::LogKey { server_id, sequence }, false);
        database.set_server_id(server_id);
        let schema = database.schema();
        let known = Arc::new(KnownSchema::of(&schema).map_err(WriterStartError::Schema)?);
        let trainer = trainer(&database, &counters, sampled);
        let mut back_link_walk = BackLinkWalk::default();
        back_link_walk.look(&database);
        Ok(Self {
            index_work: IndexWork::new(environment.index_watch.clone(), Arc::clone(&environment.clock)),
            back_link_walk,
            database,
            environment,
            counters,
            retiring: RetiringDefinitions::default(),
            known: (schema, known),
            merger,
            quiet: false,
            log,
            instance: next_instance(),
            trainer,
            unfinished: false,
            doubtful: false,
            as_of,
            thread: None,
            changes_elsewhere: 0,
            contexts_rose: false,
            generation: KnownGeneration::default(),
            looks_again: false,
            unmade: None,
        })
    }

    /// To be called before anything is done on this thread.
    pub(super) fn take_up(&mut self) {
        let this = thread::current().id();
        if self.thread.replace(this) != Some(this) {
            tree::forget(self.instance);
        }
    }

    /// After a panic: reads again what the store holds.
    ///
    /// # Errors
    /// A store that cannot be read: nothing is written before.
    pub(super) fn renew(&mut self) -> Result<(), GroupError> {
        if !self.doubtful {
            return Ok(());
        }
        tree::forget(self.instance);
        self.database.set_filling(false);
        let (database, environment) = (Arc::clone(&self.database), self.environment.clone());
        // What was committed may not have been published.
        database.learn(&database.store().snapshot().map_err(Fault::from)?)?;
        let fresh = Self::new(database, environment).map_err(|error| GroupError::Again(error.to_string()))?;
        let retiring = std::mem::take(&mut self.retiring);
        let (unfinished, thread) = (self.unfinished, self.thread);
        let (changes_elsewhere, looks_again) = (self.changes_elsewhere, self.looks_again);
        *self = Self { retiring, unfinished, thread, changes_elsewhere, looks_again, ..fresh };
        Ok(())
    }

    /// Has what is known here be what the transaction shows, if it is not: another writer has committed since, or what this one
    /// had begun came to nothing. Answers whether it was not.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn follow_store<T: Snapshot>(&mut self, transaction: &T) -> Result<bool, Fault> {
        let commit = transaction.commit_counter();
        let is_known = match self.as_of {
            Some(known) => !S::SHARED || known == commit,
            None => false,
        };
        let database = Arc::clone(&self.database);
        if is_known {
            database.follow_catalog(transaction)?;
            return Ok(false);
        }
        tree::forget(self.instance);
        self.as_of = None;
        database.learn(transaction)?;
        let StoredState { counters, log, merger } = StoredState::read(transaction, &self.environment)?;
        database.writes().log_extent(log.first(), counters.last_log_sequence);
        (self.counters, self.log, self.merger) = (counters, log, merger);
        self.index_work.look_again();
        if S::SHARED {
            self.trainer = trainer(&database, &self.counters, self.trainer.sampled());
            self.back_link_walk.look(&database);
            database.log_watch().tell();
        }
        self.as_of = Some(commit);
        Ok(true)
    }

    /// Commits, and finds out what became of it where the store's answer was lost.
    ///
    /// # Errors
    /// Nothing was committed, or [`CommitError::OutcomeUnknown`]: the requester has to get exactly that answer.
    pub(super) fn commit(
        &mut self,
        transaction: S::Transaction<'_>,
        set: &WriteSet,
        durability: Durability,
    ) -> Result<CommitId, CommitError> {
        let began = transaction.commit_counter();
        self.database.current_attribute_commits().note(began, set);
        self.as_of = None;
        let committed = match transaction.commit(set, durability) {
            Err(CommitError::OutcomeUnknown(attempt)) => match find_out(self.database.store(), attempt) {
                Err(CommitError::Conflict) => Err(self.not_made()),
                found => found,
            },
            committed => committed,
        }?;
        self.unmade = None;
        // No other writer committed between the two.
        self.as_of = (committed.0 <= began + 1).then_some(committed.0);
        Ok(committed)
    }

    /// What a commit comes to that had no answer and was not made: it is made anew, unless the store seems to be too slow for it. All other
    /// changes wait meanwhile.
    fn not_made(&mut self) -> CommitError {
        let now = self.environment.clock.monotonic();
        let (since, times) = self.unmade.get_or_insert((now, 0));
        *times += 1;
        let is_late = now.0.saturating_sub(since.0) > UNMADE_NANOS;
        if *times < UNMADE_MAX && !is_late {
            return CommitError::Conflict;
        }
        let text = format!(
            "it did not answer {times} times, and made nothing of it; if it was a large change, make it in smaller parts"
        );
        self.unmade = None;
        CommitError::Unavailable(std::io::Error::other(text))
    }

    /// Commits what `make` writes, if anything, from what the store holds now; once more where another commit was first.
    /// Nothing is committed where `make` answers nothing.
    ///
    /// # Errors
    /// Those of [`Self::commit`].
    pub(super) fn commit_own<A>(
        &mut self,
        durability: Durability,
        mut make: impl FnMut(&mut Self, &S::Transaction<'_>, &mut WriteSet) -> Result<Option<A>, CommitError>,
    ) -> Result<Option<A>, CommitError> {
        let database = Arc::clone(&self.database);
        self.unmade = None;
        retried(|| {
            let transaction = database.store().transaction()?;
            self.follow_store(&transaction).map_err(commit_fault)?;
            let mut set = WriteSet::new();
            let made = make(self, &transaction, &mut set)?;
            if made.is_some() && !set.is_empty() {
                self.commit(transaction, &set, durability)?;
            }
            Ok(made)
        })
    }

    /// Follows a change of the schema.
    pub(super) fn renew_known(&mut self) -> Result<(), MissingElement> {
        let schema = self.database.schema();
        if !Arc::ptr_eq(&schema, &self.known.0) {
            self.known = (Arc::clone(&schema), Arc::new(KnownSchema::of(&schema)?));
        }
        Ok(())
    }

    /// Tells who follows the log how far it may go: what is answered is durable.
    pub(super) fn note_answered(&mut self) {
        let server_id = self.environment.order.server_id();
        let answered = log::LogKey { server_id, sequence: self.counters.last_log_sequence };
        self.database.following().set_answered(answered, std::mem::take(&mut self.contexts_rose));
    }

    /// Content that is provided and of which nothing says how far it has come, as after a load, gets a contextCSN of ours:
    /// consumers can tell what comes later by it. A replica learns it from its provider.
    pub(super) fn claim_content(&mut self) {
        let settings = self.database.settings();
        if settings.provider.is_none() || settings.shadow || self.database.store().is_read_only() {
            return;
        }
        let durability = settings.durability();
        let order = Arc::clone(&self.environment.order);
        let _turn = order.turn_to_commit(self.database.store());
        let claimed = self.commit_own(durability, |own, transaction, set| {
            if !is_unclaimed(transaction).map_err(commit_fault)? {
                return Ok(None);
            }
            let csn = own.environment.order.next_csn(own.environment.clock.now());
            log::put_context_csn(set, &csn);
            Ok(Some(csn))
        });
        // What could not be written now is tried again at the next start; the first change brings a contextCSN, too.
        if let Ok(Some(csn)) = claimed {
            self.counters.highest.note(csn);
            self.database.log_watch().tell();
        }
    }
}

/// What the store holds of what a writer knows.
struct StoredState {
    counters: Counters,
    log: LogUpkeep,
    merger: Merger,
}

impl StoredState {
    /// CSNs are given out above those that are stored from then on.
    fn read<V: Snapshot>(snapshot: &V, environment: &WriterEnvironment) -> Result<Self, Fault> {
        let order = &environment.order;
        let (log, highest) = LogUpkeep::new(snapshot, order.server_id())?;
        let counters = Counters { highest, ..read_counters(snapshot)? };
        // What came in a refresh that was broken off is not covered by the contextCSN.
        let logged = counters.highest.as_slice().iter().copied();
        for csn in log::context_csns(snapshot)?.into_iter().chain(logged) {
            order.follow(&csn, environment.clock.now());
        }
        Ok(Self { counters, log, merger: Merger::new(snapshot)? })
    }
}

fn trainer<S: Store>(database: &Database<S>, counters: &Counters, sampled: u64) -> Trainer {
    Trainer::new(!database.catalog().dictionaries().is_empty(), counters.last_entry_id, sampled)
}

/// What became of a commit whose answer was lost: made, or [a conflict](CommitError::Conflict), since it has to be made anew.
fn find_out<S: Store>(store: &S, attempt: Attempt) -> Result<CommitId, CommitError> {
    for _ in 0..OUTCOME_TRIES {
        match store.outcome(attempt) {
            Ok(Some(committed)) => return Ok(committed),
            Ok(None) => return Err(CommitError::Conflict),
            // The store waits for itself before it says so.
            Err(_) => {}
        }
    }
    Err(CommitError::OutcomeUnknown(attempt))
}

/// Whether there are entries, and nothing says how far they have come, nor that this cannot be said.
fn is_unclaimed<V: Snapshot>(snapshot: &V) -> Result<bool, Fault> {
    if snapshot.get(META, meta::UNPROVED)?.is_some() || !log::context_csns(snapshot)?.is_empty() {
        return Ok(false);
    }
    let mut entries = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)?;
    Ok(entries.next().transpose()?.is_some())
}

/// What is stored of them: [`Counters::highest`] is the log's to say.
fn read_counters<V: Snapshot>(snapshot: &V) -> Result<Counters, Fault> {
    let last_entry_id = match snapshot.get(META, meta::LAST_ENTRY_ID)? {
        None => 0,
        Some(bytes) => {
            let damaged = Fault::Damaged { what: "the last entry id" };
            u64::from_be_bytes(bytes.as_ref().try_into().map_err(|_| damaged)?)
        }
    };
    let end = log::end(snapshot)?;
    let last_log_sequence = end.map_or(0, |end| end.sequence);
    let logged_bytes = end.map_or(Ok(0), |end| log::logged_bytes(snapshot, end.server_id))?;
    let highest = log::CsnVector::default();
    Ok(Counters { last_entry_id, last_log_sequence, logged_bytes, csn: None, claimed: None, highest })
}
