//! The writer of a database: one thread that takes all waiting changes, carries out each on a view of the ones before it, commits once, and
//! answers. If nobody else waits, the thread that asks for a change may carry it out itself ([`own_thread`]).
//!
//! **An answer means durable.** A change that fails leaves no trace and harms no other of its group. While a group is synced, the next one
//! gathers. A storage error fails the group. After a failed sync the store, and so the writer, refuses every commit until it is opened
//! again.
//!
//! Changes come in at the [`entrance`] and wait in the [`queue`], large ones in a [lane](lanes) of their own. The [`core`](self::core) has the
//! writer's state, [`commit`] carries out a group, [`upkeep`] does the work beside changes, and [`task`] has the tasks between two groups.

mod commit;
mod core;
mod entrance;
mod filling;
mod gathering;
mod lanes;
mod log_upkeep;
mod own_thread;
mod queue;
mod task;
mod upkeep;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use larix_proto::{LdapResult, ResultCode};
use larix_store::Store;

pub(crate) use entrance::{Job, RETIRED, Submitter};
pub use own_thread::{carry_out_deferred, hand_over_deferred, has_deferred, has_deferred_shared, may_defer};
pub(crate) use task::WriterTask;
pub use task::{Preparation, Reconfiguration};

use self::core::Core;
use crate::database::Database;
use crate::fault::Fault;
use crate::write::WriterEnvironment;
use crate::write::known::MissingElement;
use crate::write::request::WriteOutcome;
use entrance::{Entrance, Work};
use queue::{Queue, WaitOutcome};

/// Most changes that wait for the writer. Others are answered busy.
pub const QUEUE_LIMIT: usize = 65_536;
/// Most changes in one commit.
pub(crate) const GROUP_LIMIT: usize = 4_096;
/// Bytes of changed records and postings above which a commit takes no further change.
pub const GROUP_BYTES: usize = 64 << 20;
/// The same for a store that other machines serve. etcd refuses more than 64 MB at once, which includes keys and postings that are not
/// counted here, and all changes of the group fail then.
pub(crate) const SHARED_GROUP_BYTES: usize = 16 << 20;

const _: () = assert!(GROUP_LIMIT <= QUEUE_LIMIT);

/// A handle of the writer's thread. Dropping it carries out the waiting changes, then ends the thread.
#[derive(Debug)]
pub struct Writer {
    entrance: Arc<Entrance>,
    thread: Mutex<Option<JoinHandle<()>>>,
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
        let queue = Arc::new(Queue::new(QUEUE_LIMIT, Arc::clone(&environment.clock)));
        let mut core = Core::new(database, environment)?;
        core.claim_content();
        let core = Arc::new(Mutex::new(core));
        let (jobs, here) = (Arc::clone(&queue), Arc::clone(&core));
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .stack_size(larix_proto::limits::FILTER_STACK)
            .spawn(move || run(&core, &jobs))
            .map_err(WriterStartError::Thread)?;
        let entrance = Arc::new(Entrance::new(queue, here));
        Ok(Self { entrance, thread: Mutex::new(Some(thread)) })
    }

    /// Submits a change behind the waiting ones: to the writer's thread, or, if that is idle and this thread [may defer
    /// it](own_thread::may_defer), to this thread.
    pub(crate) fn submit(&self, job: Job) {
        own_thread::defer_or_put(&self.entrance, job);
    }

    /// Wakes the writer, so that it looks for upkeep to do.
    pub(crate) fn wake(&self) {
        self.submit(Job::nothing());
    }

    /// A way to submit changes that may outlive the writer. They are refused once the writer has ended.
    pub(crate) fn submitter(&self) -> Submitter {
        Submitter::new(Arc::clone(&self.entrance.queue))
    }

    /// Runs a task behind the waiting changes, and waits for it. `None`: the writer has ended.
    ///
    /// # Panics
    /// The writer panicked at the task: the requester must not take that for an answer.
    pub(crate) fn send<A>(&self, task: impl FnOnce(SyncSender<A>) -> WriterTask) -> Option<A> {
        let (reply, answer) = sync_channel(1);
        // The limit is for changes; tasks come one at a time.
        self.entrance.queue.push_beyond(Work::WriterTask(task(reply))).ok()?;
        let answer = answer.recv().ok();
        assert!(answer.is_some() || self.entrance.queue.is_closed(), "the writer panicked at a task");
        answer
    }

    /// Carries out the waiting changes and ends the writer: the database is no longer served.
    pub fn retire(&self) {
        self.entrance.retire();
        self.end();
    }

    /// The same where `next` takes its place: that one carries out what still comes to this one.
    pub(crate) fn retire_for(&self, next: &Self) {
        self.entrance.hand_on_to(&next.entrance);
        self.retire();
    }

    /// Whether the database was taken out of the configuration.
    pub fn is_retired(&self) -> bool {
        self.entrance.is_retired()
    }

    fn end(&self) {
        self.entrance.queue.close();
        // A panic of another thread leaves the handle consistent.
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
            Self::Thread(error) => {
                write!(
                    f,
                    "no thread for the writer: {error} (ulimit -u, TasksMax= or pids.max limits them, and ulimit -v or -d their memory)"
                )
            }
        }
    }
}

impl std::error::Error for WriterStartError {}

impl From<Fault> for WriterStartError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The writer's thread.
fn run<S: Store>(core: &Mutex<Core<S>>, queue: &Queue<Work>) {
    let _closing = CloseAtEnd(queue);
    let mut behind = None;
    // A panic ends what it came in: a task that is dropped tells so, and a group answers.
    while catch_unwind(AssertUnwindSafe(|| turn(core, queue, &mut behind))).unwrap_or(true) {}
}

/// What the writer knows. After a panic amid something it is to be read again, which the next change does.
fn take<S: Store>(core: &Mutex<Core<S>>) -> MutexGuard<'_, Core<S>> {
    core.lock().unwrap_or_else(|poisoned| {
        core.clear_poison();
        let mut core = poisoned.into_inner();
        core.doubtful = true;
        core
    })
}

/// Waits for something to do and does it. Whether there may be more.
fn turn<S: Store>(core: &Mutex<Core<S>>, queue: &Queue<Work>, behind: &mut Option<WriterTask>) -> bool {
    let mut own = take(core);
    if let Some(task) = behind.take() {
        own.take_up();
        own.carry_out(task, queue);
    }
    let patience = match own.doubtful {
        true => None,
        false => {
            let database = Arc::clone(&own.database);
            own.index_work.follow(&database);
            own.patience()
        }
    };
    own.looks_again = patience.is_some();
    let elsewhere = own.changes_elsewhere;
    drop(own);
    let waited = match patience {
        Some(patience) => queue.wait_at_most(patience),
        None => queue.wait(),
    };
    // Also before the end: what another thread has begun is done then.
    let mut own = take(core);
    own.looks_again = true;
    match waited {
        WaitOutcome::Item(Work::Change(first)) => *behind = own.group(first, Some(queue)),
        WaitOutcome::Item(Work::WriterTask(task)) => {
            own.take_up();
            own.carry_out(task, queue);
        }
        // It was not quiet.
        WaitOutcome::Nothing if own.doubtful || own.changes_elsewhere != elsewhere => {}
        WaitOutcome::Nothing => own.use_the_time(),
        WaitOutcome::Closed => return false,
    }
    true
}

/// However the writer's thread ends, every waiting requester gets an answer.
struct CloseAtEnd<'q>(&'q Queue<Work>);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
        // Dropping a task tells its waiting requester that the writer has ended.
        while let Some(work) = self.0.try_any() {
            let Work::Change(job) = work else { continue };
            (job.completion)(stopped());
        }
    }
}

fn stopped() -> WriteOutcome {
    LdapResult::with(ResultCode::UNAVAILABLE, "the writer has stopped").into()
}
