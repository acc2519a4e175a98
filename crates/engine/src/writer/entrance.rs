//! How changes enter a writer: the type of a queued change, the queue, and the answer when the queue is full or closed.
//!
//! **Every change that comes in is answered once**: by the writer, or here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use larix_proto::{LdapResult, ResultCode};

use super::lanes::Waits;
use super::own_thread::OwnThread;
use super::queue::{Queue, QueueError};
use super::task::WriterTask;
use crate::change::prepare::{Change, PreparedChange};
use crate::replica::ReplicatedJob;
use crate::write::request::Completion;
use crate::write::task::{Follow, Task};

/// The answer to requests of a database that is no longer served.
pub(crate) const RETIRED: &str = "the database was removed from the configuration, opened anew under another one, or is being restored: try again";

/// Changes that are made together or not at all, and the call that answers them.
pub(crate) struct Job {
    pub(crate) tasks: Vec<Task>,
    /// Changes of other servers; there are no tasks then.
    pub(crate) replicated: Option<Box<ReplicatedJob>>,
    /// Consequences of a change in another database, carried out after the tasks.
    pub(crate) follow: Option<Follow>,
    pub(crate) completion: Completion,
}

impl Job {
    /// A job without changes, which wakes the writer for its upkeep.
    pub(super) fn nothing() -> Self {
        Self { tasks: Vec::new(), replicated: None, follow: None, completion: Box::new(|_| {}) }
    }

    /// The work of the job, in values.
    pub(super) fn weight(&self) -> usize {
        self.tasks.iter().map(|task| values(&task.operation)).sum()
    }

    /// About how many bytes its values have.
    pub(super) fn bytes(&self) -> usize {
        self.tasks.iter().map(|task| bytes(&task.operation)).sum()
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.tasks.is_empty() && self.replicated.is_none() && self.follow.is_none()
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// What a writer's queue holds.
#[derive(Debug)]
pub(super) enum Work {
    Change(Job),
    /// Ends the group that gathers, and is carried out behind it.
    WriterTask(WriterTask),
}

impl Waits for Work {
    fn weight(&self) -> usize {
        let Self::Change(job) = self else { return 1 };
        job.weight()
    }

    /// `None` for changes of other servers, whose batches come one after another anyway.
    fn identity(&self) -> Option<&Arc<str>> {
        let Self::Change(job) = self else { return None };
        job.tasks.first().map(|task| &task.subject.authz_text)
    }

    fn is_barrier(&self) -> bool {
        matches!(self, Self::WriterTask(_))
    }
}

/// How many values a change names, and as many more as it has parts.
fn values(operation: &PreparedChange) -> usize {
    let of = |mods: &[Change]| mods.iter().map(|change| 1 + change.values.len()).sum::<usize>();
    match operation {
        PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. } => of(mods),
        PreparedChange::ModifyDn(rename) => of(&rename.mods),
        PreparedChange::Delete { .. } | PreparedChange::Authenticate(_) | PreparedChange::Record(_) => 1,
    }
}

/// How many bytes the values of a change have.
fn bytes(operation: &PreparedChange) -> usize {
    let of = |mods: &[Change]| mods.iter().flat_map(|change| &change.values).map(Vec::len).sum::<usize>();
    match operation {
        PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. } => of(mods),
        PreparedChange::ModifyDn(rename) => of(&rename.mods),
        PreparedChange::Delete { .. } | PreparedChange::Authenticate(_) | PreparedChange::Record(_) => 0,
    }
}

/// The way to a writer, for the owner of its handle.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) queue: Arc<Queue<Work>>,
    pub(super) here: Arc<dyn OwnThread>,
    retired: AtomicBool,
    /// That of the writer which gets what comes behind the end of this one.
    successor: OnceLock<Weak<Self>>,
}

impl Entrance {
    pub(super) fn new(queue: Arc<Queue<Work>>, here: Arc<dyn OwnThread>) -> Self {
        Self { queue, here, retired: AtomicBool::new(false), successor: OnceLock::new() }
    }

    /// Puts a change into the queue or, behind its end, into that of the successor, or answers why it cannot wait there.
    pub(super) fn put(&self, job: Job) {
        let Err((error, Work::Change(job))) = self.queue.push(Work::Change(job)) else { return };
        let successor = self.successor.get().filter(|_| error == QueueError::Closed);
        match successor.and_then(Weak::upgrade) {
            Some(successor) => successor.put(job),
            None if self.is_retired() => refuse(job, error, RETIRED),
            None => refuse(job, error, "the server is shutting down"),
        }
    }

    /// Has another writer get what comes behind the end of this one.
    pub(super) fn hand_on_to(&self, successor: &Arc<Self>) {
        // The first one counts.
        let _known = self.successor.set(Arc::downgrade(successor));
    }

    /// Notes that the database has left the configuration.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// The way to a writer that may have ended: it holds only the queue.
#[derive(Clone, Debug)]
pub(crate) struct Submitter(Arc<Queue<Work>>);

impl Submitter {
    pub(super) fn new(queue: Arc<Queue<Work>>) -> Self {
        Self(queue)
    }

    /// Puts a change into the queue, or answers why it cannot wait there.
    pub(crate) fn submit(&self, job: Job) {
        let Err((error, Work::Change(job))) = self.0.push(Work::Change(job)) else { return };
        refuse(job, error, "the database is no longer served");
    }
}

fn refuse(job: Job, error: QueueError, why_closed: &'static str) {
    let (code, text) = match error {
        QueueError::Full => (ResultCode::BUSY, "too many changes are waiting"),
        QueueError::Closed => (ResultCode::UNAVAILABLE, why_closed),
    };
    (job.completion)(LdapResult::with(code, text).into());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl OwnThread for Nowhere {
        fn carry_out(&self, job: Job, _: &Queue<Work>) -> Result<(), Job> {
            Err(job)
        }

        fn is_shared(&self) -> bool {
            false
        }
    }

    fn answered(put: impl FnOnce(Job)) -> Option<(ResultCode, String)> {
        let (sender, receiver) = mpsc::channel();
        let completion: Completion = Box::new(move |outcome| {
            let _ = sender.send((outcome.result.code, outcome.result.diagnostic));
        });
        put(Job { completion, ..Job::nothing() });
        receiver.try_recv().ok()
    }

    #[test]
    fn what_cannot_wait_is_told_why() {
        const BUSY: &str = "too many changes are waiting";
        const STOPS: &str = "the server is shutting down";
        const CLOSED: &str = "the database is no longer served";
        let check = |limit, closed, retired, expected: Option<(ResultCode, &str)>, outlived| {
            let queue = Arc::new(Queue::new(limit, Arc::new(crate::time::ManualClock::default())));
            let entrance = Entrance::new(Arc::clone(&queue), Arc::new(Nowhere));
            if retired {
                entrance.retire();
            }
            if closed {
                queue.close();
            }
            let text =
                |answer: Option<(ResultCode, &str)>| answer.map(|(code, text)| (code, text.to_owned()));
            let case = format!("limit {limit}, closed {closed}, retired {retired}");
            assert_eq!(answered(|job| entrance.put(job)), text(expected), "{case}");
            while queue.try_any().is_some() {}
            let submitter = Submitter::new(Arc::clone(&queue));
            assert_eq!(answered(|job| submitter.submit(job)), text(outlived), "{case}");
        };
        let unavailable = |text| Some((ResultCode::UNAVAILABLE, text));
        check(1, false, false, None, None);
        // What is retired takes what comes before it is closed.
        check(1, false, true, None, None);
        check(0, false, false, Some((ResultCode::BUSY, BUSY)), Some((ResultCode::BUSY, BUSY)));
        check(1, true, false, unavailable(STOPS), unavailable(CLOSED));
        check(1, true, true, unavailable(RETIRED), unavailable(CLOSED));
    }

    #[test]
    fn what_comes_behind_the_end_goes_to_the_successor() {
        let entrance = |limit| {
            let queue = Queue::new(limit, Arc::new(crate::time::ManualClock::default()));
            Arc::new(Entrance::new(Arc::new(queue), Arc::new(Nowhere)))
        };
        let (before, next) = (entrance(1), entrance(1));
        before.hand_on_to(&next);
        assert_eq!(answered(|job| before.put(job)), None);
        assert_eq!((before.queue.len(), next.queue.len()), (1, 0), "what comes before the end stays");
        let busy = Some((ResultCode::BUSY, "too many changes are waiting".to_owned()));
        assert_eq!(answered(|job| before.put(job)), busy);
        before.retire();
        before.queue.close();
        assert_eq!(answered(|job| before.put(job)), None);
        assert_eq!(next.queue.len(), 1);
        // Where that one has ended, too, it is as without it.
        drop(next);
        assert_eq!(answered(|job| before.put(job)), Some((ResultCode::UNAVAILABLE, RETIRED.to_owned())));
    }
}
