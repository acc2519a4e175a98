//! The changes of one group: gathering them, the outcome of each, and the answers in the end.
//!
//! **Outcomes are those of the first jobs, in their order**: whatever ends a group early, each job is answered once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use larix_proto::{LdapResult, ResultCode};

use super::GROUP_LIMIT;
use super::entrance::{Job, Work};
use super::queue::Queue;
use super::task::WriterTask;
use crate::write::request::WriteOutcome;

/// Changes that are gathered at once, and bytes of their values.
const GATHERED_MAX: usize = 256;
const GATHERED_BYTES: usize = 1 << 20;

/// A group's changes.
#[derive(Debug)]
pub(super) struct Gathering<'q> {
    jobs: Vec<Job>,
    outcomes: Vec<WriteOutcome>,
    /// Where more of them wait.
    queue: Option<&'q Queue<Work>>,
    /// The bytes of changed records and postings from which on no more of them come.
    bytes_max: usize,
    /// The task that ended the group.
    behind: Option<WriterTask>,
}

impl<'q> Gathering<'q> {
    pub(super) fn new(first: Job, queue: Option<&'q Queue<Work>>, bytes_max: usize) -> Self {
        // Outcomes are large, and a group of one is frequent: growing would make room for four.
        Self { jobs: vec![first], outcomes: Vec::with_capacity(1), queue, bytes_max, behind: None }
    }

    /// The changes that were gathered so far.
    pub(super) fn gathered(&self) -> &[Job] {
        &self.jobs
    }

    /// The next change to be carried out: one that was gathered before, or with less than `bytes` of changes in the group one that
    /// waits.
    pub(super) fn next(&mut self, bytes: usize) -> Option<&Job> {
        if self.outcomes.len() == self.jobs.len() {
            self.take(bytes);
        }
        self.jobs.get(self.outcomes.len())
    }

    /// Gathers those that wait, so that what they need is fetched together, with `bytes` of changes in the group. The changes that came.
    pub(super) fn gather(&mut self, bytes: usize) -> &[Job] {
        let before = self.jobs.len();
        let mut taken = 0;
        while self.jobs.len() - before < GATHERED_MAX && taken < GATHERED_BYTES && self.take(bytes + taken) {
            taken += self.jobs.last().map_or(0, Job::bytes);
        }
        self.jobs.get(before..).unwrap_or_default()
    }

    /// Whether there was room for one more, and one waited.
    fn take(&mut self, bytes: usize) -> bool {
        if self.behind.is_some() || self.jobs.len() >= GROUP_LIMIT || bytes >= self.bytes_max {
            return false;
        }
        match self.queue.and_then(Queue::try_next) {
            Some(Work::Change(job)) => {
                self.jobs.push(job);
                true
            }
            Some(Work::WriterTask(task)) => {
                self.behind = Some(task);
                false
            }
            None => false,
        }
    }

    /// What came of the change that [`Self::next`] answered.
    pub(super) fn note(&mut self, outcome: WriteOutcome) {
        self.outcomes.push(outcome);
    }

    /// The same changes once more, and no others.
    pub(super) fn begin_again(&mut self) {
        self.outcomes.clear();
        self.queue = None;
    }

    /// Changes that were carried out.
    pub(super) fn len(&self) -> usize {
        self.outcomes.len()
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.jobs.iter().all(Job::is_nothing)
    }

    /// Whether no requester relies on any of it before a later commit.
    pub(super) fn is_lazy(&self) -> bool {
        let is_lazy = |job: &Job| job.replicated.as_ref().is_some_and(|batch| batch.rules.lazy);
        self.jobs.iter().all(is_lazy)
    }

    /// Tells everybody; `failed`: why nothing was committed. `reads_hold`: what a change was refused for holds all the same; in a shared store
    /// another server may have changed it. Gives back the task that ended the group.
    pub(super) fn answer(self, failed: Option<&LdapResult>, reads_hold: bool) -> Option<WriterTask> {
        let mut outcomes = self.outcomes.into_iter();
        for job in self.jobs {
            let (completion, outcome) = (job.completion, settled(outcomes.next(), failed, reads_hold));
            // One that panics at its answer keeps the others from none of theirs.
            let _ = catch_unwind(AssertUnwindSafe(|| completion(outcome)));
        }
        self.behind
    }
}

/// What is answered to a change with this outcome.
fn settled(outcome: Option<WriteOutcome>, failed: Option<&LdapResult>, reads_hold: bool) -> WriteOutcome {
    match (outcome, failed) {
        (Some(outcome), None) => outcome,
        // What was refused was refused whatever became of the others.
        (Some(outcome), Some(_)) if reads_hold && !outcome.result.is_success() && !outcome.judged => outcome,
        (_, Some(failed)) => failed.clone().into(),
        (None, None) => LdapResult::with(ResultCode::OTHER, "internal error: change not carried out").into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::write::RetiringDefinitions;
    use crate::writer::GROUP_BYTES;

    #[test]
    fn what_each_is_told() {
        const FAILED: ResultCode = ResultCode::BUSY;
        let refused = ResultCode::NO_SUCH_OBJECT;
        let check = |carried_out: Option<(ResultCode, bool)>, fails: bool, expected: ResultCode| {
            let outcome =
                carried_out.map(|(code, judged)| WriteOutcome { judged, ..LdapResult::new(code).into() });
            let failed = fails.then(|| LdapResult::new(FAILED));
            let answer = |reads_hold| settled(outcome.clone(), failed.as_ref(), reads_hold).result.code;
            assert_eq!(answer(true), expected, "{carried_out:?}, fails {fails}");
            // Nothing that another server may have undone stands.
            let expected = if fails { FAILED } else { expected };
            assert_eq!(answer(false), expected, "{carried_out:?}, fails {fails}");
        };
        check(Some((ResultCode::SUCCESS, false)), false, ResultCode::SUCCESS);
        check(Some((refused, false)), false, refused);
        check(None, false, ResultCode::OTHER);
        check(Some((ResultCode::SUCCESS, false)), true, FAILED);
        check(Some((refused, false)), true, refused);
        // The failure of a bind stands only once it is counted.
        check(Some((refused, true)), true, FAILED);
        check(None, true, FAILED);
    }

    fn job() -> Work {
        Work::Change(Job::nothing())
    }

    fn task() -> Work {
        Work::WriterTask(WriterTask::Retire(RetiringDefinitions::default(), mpsc::sync_channel(1).0))
    }

    fn filled(waiting: Vec<Work>) -> Queue<Work> {
        let queue = Queue::new(waiting.len(), Arc::new(crate::time::ManualClock::default()));
        for work in waiting {
            assert!(queue.push(work).is_ok());
        }
        queue
    }

    /// How many changes are carried out of a group that never has more than `bytes`, and how many wait afterwards.
    fn gathered(waiting: Vec<Work>, bytes: usize) -> (usize, usize, bool) {
        let queue = filled(waiting);
        let mut gathering = Gathering::new(Job::nothing(), Some(&queue), GROUP_BYTES);
        while gathering.next(bytes).is_some() {
            gathering.note(LdapResult::success().into());
        }
        let carried_out = gathering.len();
        gathering.begin_again();
        let again = std::iter::from_fn(|| {
            gathering.next(0)?;
            gathering.note(LdapResult::success().into());
            Some(())
        });
        assert_eq!(again.count(), carried_out, "the same once more");
        let behind = gathering.answer(None, true);
        (carried_out, queue.len(), behind.is_some())
    }

    #[test]
    fn a_group_ends_at_its_limits_and_before_a_task() {
        let jobs = |count| std::iter::repeat_with(job).take(count).collect::<Vec<_>>();
        assert_eq!(gathered(Vec::new(), 0), (1, 0, false));
        assert_eq!(gathered(jobs(3), GROUP_BYTES - 1), (4, 0, false));
        assert_eq!(gathered(jobs(3), GROUP_BYTES), (1, 3, false));
        assert_eq!(gathered(jobs(GROUP_LIMIT + 1), 0), (GROUP_LIMIT, 2, false));
        assert_eq!(gathered(vec![job(), task(), job()], 0), (2, 1, true));
    }

    #[test]
    fn what_waits_is_gathered_at_once() {
        let jobs = |count| std::iter::repeat_with(job).take(count).collect::<Vec<_>>();
        for (waiting, bytes, came) in [
            (jobs(3), 0, 3),
            (jobs(3), GROUP_BYTES, 0),
            (jobs(GATHERED_MAX + 1), 0, GATHERED_MAX),
            (vec![job(), task(), job()], 0, 1),
        ] {
            let all = waiting.len();
            let queue = filled(waiting);
            let mut gathering = Gathering::new(Job::nothing(), Some(&queue), GROUP_BYTES);
            assert_eq!(gathering.gather(bytes).len(), came, "{all} with {bytes} bytes");
            // Each of them is carried out, whatever the group has by then.
            let mut carried_out = 0;
            while gathering.next(GROUP_BYTES).is_some() {
                gathering.note(LdapResult::success().into());
                carried_out += 1;
            }
            assert_eq!(carried_out, 1 + came, "{all} with {bytes} bytes");
        }
    }
}
