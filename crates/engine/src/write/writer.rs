//! The writer of a database: one thread that takes all changes that wait, carries each out on a view of what came
//! before it, commits once, and answers. Where nobody else waits, the thread that asks for a change may carry it out itself
//! (`own_thread.rs`).
//!
//! **An answer means durable.** A change that fails leaves no trace and harms no other of its group. While a group is
//! being synced the next one gathers. A storage error fails the group; after a failed sync the store refuses every
//! commit, and so does the writer, until it is opened again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use larix_store::{
    CommitError, Direction, Durability, KeyRange, Overlay, Snapshot, Store, Transaction, WriteSet,
};
use uuid::Uuid;

use super::errand::{Errand, Retiring};
use super::failure::{Failure, commit_failed};
use super::group::{Group, Ready};
use super::index_work::{IndexWatch, IndexWork};
use super::known::{KnownSchema, MissingElement};
use super::membership_walk::MembershipWalk;
use super::operator::Counters;
use super::own_thread::{self, Here};
use super::prepare::Prepared;
use super::queue::{Queue, QueueError, Waited};
use super::request::{Completion, WriteOutcome};
use super::training;
use crate::access::Subject;
use crate::controls::RequestControls;
use crate::database::{Database, DatabaseSettings, next_instance};
use crate::fault::Fault;
use crate::index::build::Slice;
use crate::index::merge::{IDLE_SLICE_KEYS, Merger, SLICE_KEYS};
use crate::log;
use crate::mirror;
use crate::order::CommitOrder;
use crate::plugins::PasswordWork;
use crate::replica::{self, ReplicatedJob};
use crate::tables::{ENTRIES, META, meta};
use crate::time::{Clock, RandomSource};
use crate::tree;

/// Changes that wait for the writer; more are answered busy.
pub const QUEUE_LIMIT: usize = 65_536;
/// Changes committed together.
pub const GROUP_LIMIT: usize = 4_096;
/// Bytes of changed records and postings committed together, about. A single change may be larger.
pub const GROUP_BYTES: usize = 64 << 20;

/// How often a group is tried again after another server's commit to the same store was first.
const CONFLICT_RETRIES: usize = 16;

/// After so long without a change, what is pending is brought into the indexes.
const QUIET: Duration = Duration::from_millis(250);
/// Records of the log that are removed at once when nothing else is to be done.
const LOG_SLICE: u64 = 1024;
/// The answer to changes of a database that is no longer there.
pub const REMOVED: &str = "the database was removed from the configuration";
/// What a pending key takes in its row, about.
const PENDING_KEY_BYTES: usize = 3;

const _: () = assert!(GROUP_LIMIT <= QUEUE_LIMIT);

/// A change that is ready for the writer.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) operation: Prepared,
    /// The DN of the target as the request had it.
    pub(crate) target: String,
    pub(crate) subject: Arc<Subject>,
    pub(crate) controls: RequestControls,
    pub(crate) passwords: Option<Arc<PasswordWork>>,
}

/// Changes that happen together or not at all, and whom to tell.
pub(crate) struct Job {
    pub(crate) tasks: Vec<Task>,
    /// Changes of other servers; there are no tasks then.
    pub(crate) replicated: Option<Box<ReplicatedJob>>,
    pub(crate) done: Completion,
}

/// What a writer's queue holds.
#[derive(Debug)]
pub(crate) enum Work {
    Change(Job),
    /// Ends the group that gathers, and is carried out behind it.
    Errand(Errand),
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// What a writer takes from around it.
#[derive(Clone, Debug)]
pub struct WriterEnvironment {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn RandomSource>,
    /// Shared by databases glued under one suffix.
    pub order: Arc<CommitOrder>,
    pub default_referrals: Arc<[String]>,
    pub auxiliary_needs_rule: bool,
    /// Who hears of work on indexes; `None`: this process leaves incomplete indexes as they are.
    pub index_watch: Option<Arc<dyn IndexWatch>>,
}

/// What the rules and names of a schema are, looked up once.
type KnownOf = (Arc<Schema>, Arc<KnownSchema>);

/// A handle of the writer's thread. Dropping it lets the changes that wait be carried out, then ends the thread.
#[derive(Debug)]
pub struct Writer {
    entrance: Arc<Entrance>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Where changes come in.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) queue: Arc<Queue<Work>>,
    pub(super) here: Arc<dyn Here>,
    retired: AtomicBool,
}

impl Entrance {
    /// Puts a change into the queue, or answers why it cannot wait there.
    pub(super) fn put(&self, job: Job) {
        if let Err((error, Work::Change(job))) = self.queue.push(Work::Change(job)) {
            let (code, text) = match error {
                QueueError::Full => (ResultCode::BUSY, "too many changes are waiting"),
                QueueError::Closed if self.retired.load(Ordering::Acquire) => {
                    (ResultCode::UNAVAILABLE, REMOVED)
                }
                QueueError::Closed => (ResultCode::UNAVAILABLE, "the server is shutting down"),
            };
            (job.done)(LdapResult::with(code, text).into());
        }
    }
}

impl Writer {
    /// Starts the writer's thread.
    ///
    /// # Errors
    /// A store that cannot be read, or no thread to be had.
    pub fn start<S: Store>(
        database: Arc<Database<S>>,
        environment: WriterEnvironment,
    ) -> Result<Self, WriterStartError> {
        let queue = Arc::new(Queue::new(QUEUE_LIMIT));
        if environment.index_watch.is_some() {
            let waiting = Arc::downgrade(&queue);
            database.set_listener(Box::new(move || {
                if let Some(queue) = waiting.upgrade() {
                    // One that is full or closed has a writer that is awake, or none.
                    let _ = queue.push(Work::Change(Job {
                        tasks: Vec::new(),
                        replicated: None,
                        done: Box::new(|_| {}),
                    }));
                }
            }));
        }
        let mut core = Core::new(database, environment)?;
        core.claim_content();
        let core = Arc::new(Mutex::new(core));
        let (jobs, here) = (Arc::clone(&queue), Arc::clone(&core));
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .stack_size(larix_proto::limits::FILTER_STACK)
            .spawn(move || run(&core, &jobs))
            .map_err(WriterStartError::Thread)?;
        let entrance = Arc::new(Entrance { queue, here, retired: AtomicBool::new(false) });
        Ok(Self { entrance, thread: Mutex::new(Some(thread)) })
    }

    /// Has the change carried out behind what waits: by the writer's thread, or where that rests and this thread [may keep
    /// it](own_thread::may_keep), by this one.
    pub(crate) fn submit(&self, job: Job) {
        own_thread::keep_or_put(&self.entrance, job);
    }

    /// For who outlives the call: changes put in by it are refused once the writer has ended.
    pub(crate) fn submitter(&self) -> Submitter {
        Submitter(Arc::clone(&self.entrance.queue))
    }

    /// Has an errand run behind what waits, and waits for it; `None` when the writer has ended.
    pub(crate) fn send<A>(&self, errand: impl FnOnce(SyncSender<A>) -> Errand) -> Option<A> {
        let (done, answer) = sync_channel(1);
        // One at a time is on its way: the limit is for changes.
        self.entrance.queue.push_beyond(Work::Errand(errand(done))).ok()?;
        answer.recv().ok()
    }

    /// Lets what waits be carried out and ends the writer: the database is no longer served.
    pub fn retire(&self) {
        self.entrance.retired.store(true, Ordering::Release);
        self.end();
    }

    /// Whether the database was taken out of the configuration.
    pub fn is_retired(&self) -> bool {
        self.entrance.retired.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.entrance.queue.close();
        // The handle is whole whoever panicked.
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A completion may own the last handle: a thread cannot wait for itself, nor for one that waits for it. A panic
            // was reported already.
            if thread.thread().id() != thread::current().id() && !own_thread::is_busy() {
                let _ = thread.join();
            }
        }
    }

    /// Changes that wait.
    pub fn waiting(&self) -> usize {
        self.entrance.queue.len()
    }
}

/// Puts changes into a writer's queue.
#[derive(Clone, Debug)]
pub(crate) struct Submitter(Arc<Queue<Work>>);

impl Submitter {
    pub(crate) fn submit(&self, job: Job) {
        if let Err((error, Work::Change(job))) = self.0.push(Work::Change(job)) {
            let (code, text) = match error {
                QueueError::Full => (ResultCode::BUSY, "too many changes are waiting"),
                QueueError::Closed => (ResultCode::UNAVAILABLE, "the database is no longer served"),
            };
            (job.done)(LdapResult::with(code, text).into());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why a writer could not start.
#[derive(Debug)]
pub enum WriterStartError {
    Fault(Fault),
    Schema(MissingElement),
    Thread(std::io::Error),
}

impl std::fmt::Display for WriterStartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Schema(missing) => missing.fmt(f),
            Self::Thread(error) => write!(f, "no thread for the writer: {error}"),
        }
    }
}

impl std::error::Error for WriterStartError {}

impl From<Fault> for WriterStartError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What a writer knows, and whoever carries out a change has the use of.
#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) database: Arc<Database<S>>,
    pub(super) environment: WriterEnvironment,
    pub(super) counters: Counters,
    /// What no change may use any more, while it is found out whether it can leave the schema.
    pub(super) retiring: Retiring,
    pub(super) known: KnownOf,
    merger: Merger,
    pub(super) index_work: IndexWork,
    pub(super) membership_walk: MembershipWalk,
    /// Nothing has come for [`QUIET`], and what is pending is being brought in.
    quiet: bool,
    /// What of the change log has to go.
    pub(super) trimmer: log::Trimmer,
    /// Whether the log tells a history.
    pub(super) has_history: bool,
    pub(super) marker: log::Marker,
    /// Under which this thread caches names: those of changes that are not committed are nobody else's business.
    pub(super) instance: u64,
    /// The entry id from which on records are looked at for a new dictionary.
    pub(super) next_training: u64,
    /// A fill may have left something that is to be thrown away first.
    pub(super) unfinished: bool,
    /// The thread that carried out something last: what another one remembers of names is no longer to be trusted.
    thread: Option<ThreadId>,
    /// Changes that other threads carried out themselves.
    pub(super) changes_elsewhere: u64,
    /// A contextCSN was raised, which whoever follows the log is to be told.
    contexts_rose: bool,
    /// Whether the writer's thread waits no longer than until something is to be done beside changes.
    pub(super) looks_again: bool,
}

impl<S: Store> Core<S> {
    fn new(database: Arc<Database<S>>, environment: WriterEnvironment) -> Result<Self, WriterStartError> {
        let snapshot = database.store().snapshot().map_err(Fault::from)?;
        let mut counters = read_counters(&snapshot)?;
        let (marker, highest) = log::Marker::new(&snapshot, environment.order.server_id())?;
        counters.highest = highest;
        let merger = Merger::new(&snapshot)?;
        let trimmer = log::Trimmer::new(&snapshot, environment.order.server_id())?;
        let has_history = log::history(&snapshot)?.is_some();
        // What came in a refresh that was broken off is not covered by the contextCSN.
        let logged = counters.highest.as_slice().iter().copied();
        for csn in log::context_csns(&snapshot)?.into_iter().chain(logged) {
            environment.order.follow(&csn, environment.clock.now());
        }
        drop(snapshot);
        database.writes().log_extent(trimmer.first(), counters.last_log_sequence);
        let (server_id, sequence) = (environment.order.server_id(), counters.last_log_sequence);
        database.following().set_answered(log::LogKey { server_id, sequence }, false);
        database.set_server_id(server_id);
        let schema = database.schema();
        let known = Arc::new(KnownSchema::of(&schema).map_err(WriterStartError::Schema)?);
        let instance = next_instance();
        let next_training = match database.catalog().dictionaries().is_empty() {
            true => training::FIRST,
            false => training::next_after(counters.last_entry_id),
        };
        let known = (schema, known);
        let watch = environment.index_watch.clone();
        let mut membership_walk = MembershipWalk::default();
        membership_walk.look(&database);
        Ok(Self {
            index_work: IndexWork::new(watch, Arc::clone(&environment.clock)),
            membership_walk,
            database,
            environment,
            counters,
            retiring: Retiring::default(),
            known,
            merger,
            quiet: false,
            trimmer,
            has_history,
            marker,
            instance,
            next_training,
            unfinished: false,
            thread: None,
            changes_elsewhere: 0,
            contexts_rose: false,
            looks_again: false,
        })
    }

    /// To be called before anything is done on this thread.
    fn take_up(&mut self) {
        let this = thread::current().id();
        if self.thread.replace(this) != Some(this) {
            tree::forget(self.instance);
        }
    }

    /// Whether the next change waits for something that takes far longer than a change does.
    pub(super) fn has_a_long_pause_before_it(&self) -> bool {
        self.counters.last_entry_id >= self.next_training || self.unfinished
    }

    /// Whether there is something to do without any change.
    fn is_behind(&self) -> bool {
        self.merger.is_pending() || self.trimmer.is_behind()
    }

    /// How long to wait for changes before something else is done; without limit when there is nothing else.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.database.store().is_read_only() {
            return None;
        }
        // Once it is quiet what is left behind is brought in, slice by slice.
        let quiet = if self.quiet { Duration::ZERO } else { QUIET };
        let behind = self.is_behind().then_some(quiet);
        let walk = self.membership_walk.patience(&self.database, &*self.environment.clock);
        [self.index_work.patience(), walk, behind].into_iter().flatten().min()
    }

    fn use_the_time(&mut self) {
        if self.index_work.patience() == Some(Duration::ZERO) {
            if self.index_work.alone(&self.database) {
                self.forget_merge();
            }
        } else if self.membership_walk.patience(&self.database, &*self.environment.clock)
            == Some(Duration::ZERO)
        {
            // With no changes but those of the walk.
            self.group(Job { tasks: Vec::new(), replicated: None, done: Box::new(|_| {}) }, None);
        } else if self.is_behind() {
            self.catch_up();
        }
    }

    /// Brings a slice of what is pending into the indexes, and removes a slice of what the log need not keep.
    fn catch_up(&mut self) {
        let database = Arc::clone(&self.database);
        let done = (|| {
            let transaction = database.store().transaction().map_err(GroupError::Commit)?;
            let mut set = WriteSet::new();
            if self.merger.is_pending() {
                let slice =
                    self.merger.slice(&transaction, IDLE_SLICE_KEYS, true).map_err(GroupError::Fault)?;
                slice.write(&mut set);
            }
            let trimmer = if self.trimmer.is_behind() {
                self.trim_log(&transaction, &mut set, LOG_SLICE).map_err(GroupError::Fault)?
            } else {
                self.trimmer
            };
            transaction.commit(&set, durability(&database.settings())).map_err(GroupError::Commit)?;
            Ok::<_, GroupError>(trimmer)
        })();
        self.quiet = done.is_ok();
        match done {
            Ok(trimmer) => self.trimmer = trimmer,
            Err(_) => self.forget_merge(),
        }
    }

    /// After a failed commit: what is pending is read again, with nothing brought in. If not even that can be read, it
    /// stands for the next one to open the database.
    pub(super) fn forget_merge(&mut self) {
        let known = self.database.store().snapshot().map_err(Fault::from).and_then(|now| Merger::new(&now));
        self.merger = known.unwrap_or_default();
    }

    /// Carries out `first` and with a queue the changes that wait there, commits, and answers. Gives back the errand that
    /// ended the group.
    pub(super) fn group(&mut self, first: Job, queue: Option<&Queue<Work>>) -> Option<Errand> {
        self.take_up();
        let order = Arc::clone(&self.environment.order);
        self.quiet = false;
        let mut jobs = vec![first];
        let mut outcomes = Vec::new();
        let turn = order.turn();
        let mut behind = None;
        let mut committed = self.attempt(&mut jobs, &mut outcomes, queue.map(|queue| (queue, &mut behind)));
        for _ in 0..CONFLICT_RETRIES {
            if !matches!(committed, Err(GroupError::Commit(CommitError::Conflict))) {
                break;
            }
            tree::forget(self.instance);
            outcomes.clear();
            self.forget_merge();
            committed = self.attempt(&mut jobs, &mut outcomes, None);
        }
        drop(turn);
        let failed = committed.err().map(GroupError::into_result);
        if failed.is_some() {
            // Names that the failed changes gave to entries must not survive in this thread's cache.
            tree::forget(self.instance);
            self.forget_merge();
            self.index_work.forget();
            self.membership_walk.failed(&*self.environment.clock);
        }
        let mut outcomes = outcomes.into_iter();
        for job in jobs {
            let outcome = match (outcomes.next(), &failed) {
                (Some(outcome), None) => outcome,
                // What was refused was refused whatever became of the others.
                (Some(outcome), Some(_)) if !outcome.result.is_success() && !outcome.judged => outcome,
                (_, Some(failed)) => failed.clone().into(),
                (None, None) => {
                    LdapResult::with(ResultCode::OTHER, "internal error: change not carried out").into()
                }
            };
            (job.done)(outcome);
        }
        self.note_answered();
        behind
    }

    pub(super) fn note_answered(&mut self) {
        let server_id = self.environment.order.server_id();
        let answered = log::LogKey { server_id, sequence: self.counters.last_log_sequence };
        self.database.following().set_answered(answered, std::mem::take(&mut self.contexts_rose));
    }

    /// Carries out the jobs, and with a queue those that wait there, and commits. There is an outcome for each job that
    /// was come to.
    fn attempt(
        &mut self,
        jobs: &mut Vec<Job>,
        outcomes: &mut Vec<WriteOutcome>,
        mut queue: Option<(&Queue<Work>, &mut Option<Errand>)>,
    ) -> Result<(), GroupError> {
        self.clear_unfinished().map_err(GroupError::Commit)?;
        let database = Arc::clone(&self.database);
        let _still = database.hold_still();
        self.index_work.follow(&database);
        self.renew_known().map_err(GroupError::Schema)?;
        let transaction = database.store().transaction().map_err(GroupError::Commit)?;
        let mut group = Group::new(self, &database);
        let last_entry_id = group.counters.last_entry_id;
        if last_entry_id >= self.next_training {
            training::renew_dictionary(&transaction, &mut group.catalog, last_entry_id)
                .map_err(GroupError::Fault)?;
        }
        loop {
            if outcomes.len() == jobs.len() {
                let full = jobs.len() >= GROUP_LIMIT || group.set.byte_len() >= GROUP_BYTES;
                let next = queue.as_ref().filter(|_| !full).and_then(|(queue, _)| queue.try_next());
                match (next, &mut queue) {
                    (Some(Work::Change(job)), _) => jobs.push(job),
                    (Some(Work::Errand(errand)), Some((_, behind))) => {
                        **behind = Some(errand);
                        break;
                    }
                    _ => break,
                }
            }
            let Some(job) = jobs.get(outcomes.len()) else { break };
            let outcome = match &job.replicated {
                Some(batch) => group.replicate(&transaction, batch).map(WriteOutcome::from),
                None => group.carry_out(&transaction, &job.tasks),
            };
            outcomes.push(outcome.map_err(GroupError::Fault)?);
        }
        let alone = jobs.iter().all(|job| job.tasks.is_empty() && job.replicated.is_none());
        let walked =
            self.membership_walk.along(&mut group, &transaction, alone).map_err(GroupError::Fault)?;
        let walks_anew = group.walks;
        // What was given out stays so even if it is not committed: nothing is ever given twice.
        let counters = Counters { csn: None, ..group.counters.clone() };
        let logged = counters.last_log_sequence - self.counters.last_log_sequence;
        let ready = group.ready();
        let before = std::mem::replace(&mut self.counters, counters);
        let Some(mut ready) = ready else { return Ok(()) };
        let is_lazy = |job: &Job| job.replicated.as_ref().is_some_and(|batch| batch.rules.lazy);
        if ready.durability == Durability::Sync && !ready.decided && jobs.iter().all(is_lazy) {
            ready.durability = Durability::NoMetaSync;
        }
        let index_slice = self.index_along(&transaction, &mut ready);
        self.merge_along(&transaction, &mut ready.set).map_err(GroupError::Fault)?;
        let trimmer = self.trim_log(&transaction, &mut ready.set, 2 * logged).map_err(GroupError::Fault)?;
        let begun_history = self.settle_history(&mut ready.set, ready.logs);
        let marked = log::Marked {
            server_id: self.environment.order.server_id(),
            before: (before.last_log_sequence, &before.highest),
            behind: (self.counters.last_log_sequence, &self.counters.highest),
            first: trimmer.first(),
        };
        let marker = match ready.logs {
            true => self.marker.along(&transaction, &mut ready.set, begun_history, &marked),
            false => Ok(log::Marker::default()),
        }
        .map_err(GroupError::Fault)?;
        let begun = self.environment.clock.monotonic();
        self.reflect(&transaction, &ready)?;
        transaction.commit(&ready.set, ready.durability).map_err(GroupError::Commit)?;
        let taken = self.environment.clock.monotonic().0.saturating_sub(begun.0);
        database.writes().committed(outcomes.len(), taken);
        self.trimmer = trimmer;
        database.writes().log_extent(trimmer.first(), self.counters.last_log_sequence);
        (self.has_history, self.marker) = (ready.logs, marker);
        self.contexts_rose |= log::sets_context_csn(&ready.set);
        // Before, nothing of a dictionary was stored.
        self.next_training = self.next_training.max(training::next_after(last_entry_id));
        if let Some(catalog) = ready.catalog.committed() {
            database.publish_catalog(catalog);
        }
        if let Some(slice) = index_slice
            && self.index_work.committed(&database, &slice)
        {
            self.forget_merge();
        }
        self.membership_walk.committed(walked, walks_anew, self.environment.index_watch.as_deref());
        database.log_watch().tell();
        Ok(())
    }

    /// Writes a group's changes where the store is an image of something else.
    fn reflect<T: Snapshot>(&self, transaction: &T, ready: &Ready) -> Result<(), GroupError> {
        let Some(mirror) = self.database.mirror() else { return Ok(()) };
        let state = ready.catalog.state(&self.database.state());
        let changes = mirror::changes(transaction, &ready.set, state).map_err(GroupError::Fault)?;
        mirror.write(&changes).map_err(GroupError::Mirror)
    }

    /// Content that is provided and of which nothing says how far it has come, as after a load, gets a contextCSN of ours:
    /// consumers can tell what comes later by it. A replica learns it from its provider.
    pub(super) fn claim_content(&mut self) {
        let database = Arc::clone(&self.database);
        let settings = database.settings();
        if settings.provider.is_none() || settings.shadow || database.store().is_read_only() {
            return;
        }
        let order = Arc::clone(&self.environment.order);
        let turn = order.turn();
        let claimed = (|| {
            let transaction = database.store().transaction().map_err(GroupError::Commit)?;
            let is_empty = || {
                let mut rows = transaction.scan(ENTRIES, KeyRange::all(), Direction::Forward)?;
                Ok::<_, Fault>(rows.next().transpose()?.is_none())
            };
            let known = log::context_csns(&transaction).map_err(GroupError::Fault)?;
            let is_unproved = transaction.get(META, meta::UNPROVED).map_err(Fault::from);
            if is_unproved.map_err(GroupError::Fault)?.is_some() {
                return Ok(None);
            }
            if !known.is_empty() || is_empty().map_err(GroupError::Fault)? {
                return Ok(None);
            }
            let csn = order.next_csn(self.environment.clock.now());
            let mut set = WriteSet::new();
            log::put_context_csn(&mut set, &csn);
            transaction.commit(&set, durability(&settings)).map_err(GroupError::Commit)?;
            Ok::<_, GroupError>(Some(csn))
        })();
        drop(turn);
        // What could not be written now is tried again at the next start; the first change brings a contextCSN, too.
        if let Ok(Some(csn)) = claimed {
            self.counters.highest.note(csn);
            database.log_watch().tell();
        }
    }

    /// Adds a slice of work on indexes to a group's changes.
    fn index_along<T: Snapshot>(&mut self, transaction: &T, ready: &mut Ready) -> Option<Slice> {
        let view = Overlay::new(transaction, &ready.set);
        let mut slice = self.index_work.beside(&self.database, &view, ready.catalog.catalog())?;
        ready.set.merge(std::mem::take(&mut slice.set));
        Some(slice)
    }

    /// Removes the oldest records of the log beyond those that are kept, `limit` at most or what goes together: twice as many
    /// as a group logged, so that none pays for many before it.
    fn trim_log<T: Snapshot>(
        &self,
        transaction: &T,
        set: &mut WriteSet,
        limit: u64,
    ) -> Result<log::Trimmer, Fault> {
        let settings = self.database.current_settings();
        let now = log::Trimmed {
            retention: if settings.log { settings.log_retention } else { log::LogRetention::NOTHING },
            now: self.environment.clock.now(),
            last_sequence: self.counters.last_log_sequence,
            last_entry_id: self.counters.last_entry_id,
            logged_bytes: self.counters.logged_bytes,
            needed: self.database.following().needed(),
        };
        let trimmer = self.trimmer.slice(transaction, set, &now, limit)?;
        let gone = trimmer.first().saturating_sub(self.trimmer.first());
        if gone > 0 {
            // What is remembered of as many records, and of more, should some of it have been left.
            replica::trim(transaction, set, trimmer.first(), limit.max(2 * gone) as usize)?;
        }
        Ok(trimmer)
    }

    /// A group that is not logged ends the history that the log tells; the first one that is begins another, which is
    /// answered.
    fn settle_history(&self, set: &mut WriteSet, logs: bool) -> Option<Uuid> {
        match (logs, self.has_history) {
            (true, false) => return Some(log::put_history(set, &*self.environment.random)),
            (false, true) => log::end_history(set),
            _ => {}
        }
        None
    }

    /// Adds a slice of what is pending to a group's changes.
    fn merge_along<T: Snapshot>(&mut self, transaction: &T, set: &mut WriteSet) -> Result<(), Fault> {
        let bytes = self.merger.observe(set)?;
        let keys = SLICE_KEYS + 2 * bytes / PENDING_KEY_BYTES;
        let slice = self.merger.slice(&Overlay::new(transaction, &*set), keys, false)?;
        slice.write(set);
        Ok(())
    }
}

/// The writer's thread.
fn run<S: Store>(core: &Mutex<Core<S>>, queue: &Queue<Work>) {
    let _closing = CloseAtEnd(queue);
    let mut behind = None;
    // A thread that panicked in the middle of a change left the counters in an unknown state: nothing is written any more.
    while let Ok(mut own) = core.lock() {
        if let Some(errand) = behind.take() {
            own.take_up();
            own.carry_out(errand, queue);
        }
        let database = Arc::clone(&own.database);
        own.index_work.follow(&database);
        let patience = own.patience();
        own.looks_again = patience.is_some();
        let elsewhere = own.changes_elsewhere;
        drop(own);
        let waited = match patience {
            Some(patience) => queue.wait_at_most(patience),
            None => queue.wait(),
        };
        // Also before the end: what another thread has begun is done then.
        let Ok(mut own) = core.lock() else {
            if let Waited::Item(Work::Change(job)) = waited {
                (job.done)(stopped());
            }
            break;
        };
        own.looks_again = true;
        match waited {
            Waited::Item(Work::Change(first)) => behind = own.group(first, Some(queue)),
            Waited::Item(Work::Errand(errand)) => {
                own.take_up();
                own.carry_out(errand, queue);
            }
            // It was not quiet.
            Waited::Nothing if own.changes_elsewhere != elsewhere => {}
            Waited::Nothing => own.use_the_time(),
            Waited::Closed => break,
        }
    }
}

/// Should the writer ever panic, nobody waits for it in vain.
struct CloseAtEnd<'q>(&'q Queue<Work>);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
        // An errand that is dropped tells whoever waits for it that the writer has ended.
        while let Some(work) = self.0.try_next() {
            let Work::Change(job) = work else { continue };
            (job.done)(stopped());
        }
    }
}

fn stopped() -> WriteOutcome {
    LdapResult::with(ResultCode::UNAVAILABLE, "the writer has stopped").into()
}

/// Why a group was not committed.
#[derive(Debug)]
enum GroupError {
    Fault(Fault),
    Commit(CommitError),
    /// What the store is an image of could not be written.
    Mirror(String),
    Schema(MissingElement),
}

impl GroupError {
    fn into_result(self) -> LdapResult {
        match self {
            Self::Fault(fault) => Failure::Storage(fault).into_result(),
            Self::Commit(error) => commit_failed(&error),
            Self::Mirror(why) => LdapResult::with(ResultCode::OTHER, why),
            Self::Schema(missing) => LdapResult::with(ResultCode::OTHER, missing.to_string()),
        }
    }
}

impl<S: Store> Core<S> {
    /// Follows a change of the schema.
    fn renew_known(&mut self) -> Result<(), MissingElement> {
        let schema = self.database.schema();
        if !Arc::ptr_eq(&schema, &self.known.0) {
            self.known = (Arc::clone(&schema), Arc::new(KnownSchema::of(&schema)?));
        }
        Ok(())
    }
}

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
    Ok(Counters { last_entry_id, last_log_sequence, logged_bytes, csn: None, highest })
}

pub(super) fn durability(settings: &DatabaseSettings) -> Durability {
    if settings.durability_relaxed { Durability::NoMetaSync } else { Durability::Sync }
}
