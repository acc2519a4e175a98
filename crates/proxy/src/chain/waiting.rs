//! Answers that wait until a change has come back to this shadow by replication (`chain-wait-replicated`).
//!
//! Waiters hold no thread. One thread for each overlay looks at the contextCSN of a shadow after its commits, as long as somebody waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use larix_backend::{Done, ReplicaProgress};
use larix_engine::csn::Csn;
use larix_engine::log::{CsnVector, Follower};
use larix_engine::time::{Clock, Monotonic};

use super::counted::Counted;

/// Answers of one overlay that wait. Beyond that, the next one is given at once.
pub(super) const WAITERS_MAX: usize = 4_096;
/// How long the thread stays without anybody who waits.
const IDLE: Duration = Duration::from_secs(10);

/// How a wait ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// The change has come back.
    Arrived,
    /// It has not in the time that there was.
    Late,
    /// The shadow is gone, or there is no thread to look at it.
    Unknown,
    /// Too many wait.
    TooMany,
}

/// The waiters of one shadow.
#[derive(Default)]
struct Waiters {
    /// By what each waits for next: the server id, the CSN, and a number of its own.
    by_csn: BTreeMap<(u16, Csn, u64), Waiter>,
    /// Where those are whose time is over at a moment of the monotonic clock.
    by_deadline: BTreeMap<(Duration, u64), (u16, Csn)>,
}

struct Waiter {
    /// What has to be here, too.
    rest: Vec<Csn>,
    deadline: Duration,
    done: Done<WaitOutcome>,
}

impl Waiters {
    fn len(&self) -> usize {
        self.by_csn.len()
    }

    /// Waits for all of these.
    fn add(&mut self, number: u64, mut csns: Vec<Csn>, deadline: Duration, done: Done<WaitOutcome>) {
        let Some(next) = csns.pop() else { return done(WaitOutcome::Arrived) };
        self.by_deadline.insert((deadline, number), (next.server_id, next));
        self.by_csn.insert((next.server_id, next, number), Waiter { rest: csns, deadline, done });
    }

    /// Takes those whose changes are all here.
    fn come(&mut self, known: &CsnVector, ended: &mut Vec<(Done<WaitOutcome>, WaitOutcome)>) {
        // In the order of the server ids: who waits for a higher one next is met there. The others are moved where they wait.
        let mut moved = Vec::new();
        for csn in known.as_slice() {
            let (first, last) = ((csn.server_id, Csn::ZERO, 0), (csn.server_id, *csn, u64::MAX));
            while let Some((&key, _)) = self.by_csn.range(first..=last).next() {
                let Some(mut waiter) = self.by_csn.remove(&key) else { break };
                self.by_deadline.remove(&(waiter.deadline, key.2));
                waiter.rest.retain(|csn| !known.covers(csn));
                match waiter.rest.is_empty() {
                    true => ended.push((waiter.done, WaitOutcome::Arrived)),
                    false => moved.push((key.2, waiter)),
                }
            }
        }
        for (number, Waiter { rest, deadline, done }) in moved {
            self.add(number, rest, deadline, done);
        }
    }

    /// Takes those whose time is over.
    fn expire(&mut self, now: Duration, ended: &mut Vec<(Done<WaitOutcome>, WaitOutcome)>) {
        while let Some(first) = self.by_deadline.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, number), (server_id, csn)) = first.remove_entry();
            let waiter = self.by_csn.remove(&(server_id, csn, number));
            ended.extend(waiter.map(|waiter| (waiter.done, WaitOutcome::Late)));
        }
    }

    /// Takes all.
    fn give_up(&mut self, ended: &mut Vec<(Done<WaitOutcome>, WaitOutcome)>) {
        self.by_deadline.clear();
        let all = std::mem::take(&mut self.by_csn);
        ended.extend(all.into_values().map(|waiter| (waiter.done, WaitOutcome::Unknown)));
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.by_deadline.keys().next().map(|(deadline, _)| *deadline)
    }
}

/// A shadow that somebody waits for.
struct Shadow {
    progress: Arc<dyn ReplicaProgress>,
    /// Kept as long as it is to be called.
    follower: Arc<Follower>,
    waiters: Waiters,
}

#[derive(Default)]
struct State {
    /// By the instance of the database.
    shadows: BTreeMap<u64, Shadow>,
    /// Those with commits that nobody has looked at.
    news: BTreeSet<u64>,
    /// Numbers are given out once.
    next: u64,
    has_thread: bool,
}

impl State {
    fn count(&self) -> usize {
        self.shadows.values().map(|shadow| shadow.waiters.len()).sum()
    }
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    clock: Arc<dyn Clock>,
}

/// The waiters of one overlay.
pub struct Waiting {
    /// How long an answer waits at most.
    pub(super) time: Duration,
    shared: Arc<Shared>,
    /// Changes that had not come back.
    pub(super) late: Counted,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("time", &self.time).field("late", &self.late).finish_non_exhaustive()
    }
}

impl Waiting {
    /// `tell` gets lines for the log.
    pub fn new(time: Duration, clock: Arc<dyn Clock>, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let shared = Shared { state: Mutex::default(), wake: Condvar::new(), clock };
        Self { time, shared: Arc::new(shared), late: Counted::new(tell) }
    }

    /// When an answer that begins to wait now is given at the latest.
    pub(super) fn deadline(&self) -> Duration {
        moment(self.shared.clock.monotonic()).saturating_add(self.time)
    }

    /// Calls `done` once when the shadow has all changes up to these CSNs, or at the deadline, on another thread or here.
    pub(super) fn wait(
        &self,
        progress: Arc<dyn ReplicaProgress>,
        csns: Vec<Csn>,
        deadline: Duration,
        done: Done<WaitOutcome>,
    ) {
        let instance = progress.instance();
        let is_known = self.shared.lock().shadows.contains_key(&instance);
        // A writer that tells of a commit holds the list of followers: it is not asked for with the state locked.
        let follower = (!is_known).then(|| {
            let shared = Arc::downgrade(&self.shared);
            let follower = Follower::new(Box::new(move || note_news(&shared, instance)));
            progress.follow(&follower);
            follower
        });
        let mut state = self.shared.lock();
        if state.count() >= WAITERS_MAX {
            drop(state);
            return done(WaitOutcome::TooMany);
        }
        if !state.has_thread {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("chain-wait".to_owned());
            state.has_thread = builder.spawn(move || shared.serve()).is_ok();
        }
        if !state.has_thread {
            drop(state);
            return done(WaitOutcome::Unknown);
        }
        state.next += 1;
        let number = state.next;
        let shadow = match (state.shadows.get_mut(&instance), follower) {
            (Some(shadow), _) => shadow,
            (None, Some(follower)) => {
                let waiters = Waiters::default();
                state.shadows.entry(instance).or_insert(Shadow { progress, follower, waiters })
            }
            // The last waiter has gone meanwhile, and nobody is called: begin again.
            (None, None) => {
                drop(state);
                return self.wait(progress, csns, deadline, done);
            }
        };
        shadow.waiters.add(number, csns, deadline, done);
        // It may be here already.
        state.news.insert(instance);
        drop(state);
        self.shared.wake.notify_one();
    }
}

/// On a writer's thread: it does not wait.
fn note_news(shared: &Weak<Shared>, instance: u64) {
    if let Some(shared) = shared.upgrade() {
        shared.lock().news.insert(instance);
        shared.wake.notify_one();
    }
}

fn moment(time: Monotonic) -> Duration {
    Duration::from_nanos(time.0)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn serve(&self) {
        let mut ended = Vec::new();
        while let Some(news) = self.next(&mut ended) {
            for (instance, progress, follower) in news {
                follower.looks();
                let known = progress.context_csns();
                let mut state = self.lock();
                if let Some(shadow) = state.shadows.get_mut(&instance) {
                    match known {
                        Some(known) => shadow.waiters.come(&known, &mut ended),
                        None => shadow.waiters.give_up(&mut ended),
                    }
                }
            }
            for (done, waited) in ended.drain(..) {
                // A panic of who is answered ends no other wait.
                let _ = catch_unwind(AssertUnwindSafe(|| done(waited)));
            }
        }
    }

    /// Waits for shadows to look at, or for the end of somebody's time. None: nobody has waited for a while, and the thread ends.
    fn next(&self, ended: &mut Vec<(Done<WaitOutcome>, WaitOutcome)>) -> Option<Vec<News>> {
        let mut state = self.lock();
        loop {
            let now = moment(self.clock.monotonic());
            state.shadows.values_mut().for_each(|shadow| shadow.waiters.expire(now, ended));
            state.shadows.retain(|_, shadow| shadow.waiters.len() > 0);
            let news = std::mem::take(&mut state.news);
            let look = |instance| {
                let shadow = state.shadows.get(&instance)?;
                Some((instance, Arc::clone(&shadow.progress), Arc::clone(&shadow.follower)))
            };
            let looked: Vec<News> = news.into_iter().filter_map(look).collect();
            if !looked.is_empty() || !ended.is_empty() {
                return Some(looked);
            }
            let deadline = state.shadows.values().filter_map(|shadow| shadow.waiters.next_deadline()).min();
            let pause = deadline.map_or(IDLE, |deadline| deadline.saturating_sub(now));
            let (waited, timeout) =
                self.wake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if deadline.is_none() && timeout.timed_out() && state.shadows.is_empty() {
                state.has_thread = false;
                return None;
            }
        }
    }
}

/// A shadow to look at.
type News = (u64, Arc<dyn ReplicaProgress>, Arc<Follower>);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use larix_engine::log::LogWatch;
    use larix_engine::time::{ManualClock, Timestamp};

    use super::*;

    fn csn(server_id: u16, time: i64) -> Csn {
        Csn { time: Timestamp(time), count: 0, server_id, modification: 0 }
    }

    /// A shadow that has come as far as it is set; none: it is gone.
    #[derive(Debug, Default)]
    struct Toy {
        has: Mutex<Option<CsnVector>>,
        watch: LogWatch,
    }

    impl Toy {
        fn set(&self, has: Option<&[Csn]>) {
            *self.has.lock().unwrap() = has.map(|csns| csns.iter().copied().collect());
            self.watch.tell();
        }
    }

    impl ReplicaProgress for Toy {
        fn instance(&self) -> u64 {
            7
        }

        fn suffix(&self) -> &'static str {
            "dc=a"
        }

        fn context_csns(&self) -> Option<CsnVector> {
            self.has.lock().unwrap().clone()
        }

        fn follow(&self, follower: &Arc<Follower>) {
            self.watch.follow(follower);
        }
    }

    fn waiting(time: Duration) -> (Waiting, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        (Waiting::new(time, Arc::clone(&clock) as _, |_| {}), clock)
    }

    fn wait(waiting: &Waiting, toy: &Arc<Toy>, csns: &[Csn]) -> Receiver<WaitOutcome> {
        let (sender, ended) = channel();
        let done = Box::new(move |waited| sender.send(waited).unwrap());
        waiting.wait(Arc::clone(toy) as _, csns.to_vec(), waiting.deadline(), done);
        ended
    }

    #[test]
    fn all_csns_have_to_be_covered_in_whatever_order_they_come() {
        let mut waiters = Waiters::default();
        let (sender, ended) = channel();
        for (number, csns) in [
            (1, vec![csn(1, 10)]),
            (2, vec![csn(1, 11)]),
            (3, vec![csn(1, 5), csn(2, 5)]),
            (4, vec![csn(2, 5), csn(1, 12)]),
            (5, vec![]),
        ] {
            let sender = sender.clone();
            let done = Box::new(move |waited| sender.send((number, waited)).unwrap());
            waiters.add(number, csns, Duration::from_secs(number), done);
        }
        let come = |waiters: &mut Waiters, known: &[Csn]| {
            let mut all = Vec::new();
            waiters.come(&known.iter().copied().collect(), &mut all);
            all.into_iter().for_each(|(done, waited)| done(waited));
            let mut numbers: Vec<(u64, WaitOutcome)> = ended.try_iter().collect();
            numbers.sort_by_key(|(number, _)| *number);
            numbers.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(come(&mut waiters, &[csn(1, 9)]), [5], "who waits for nothing");
        assert_eq!(come(&mut waiters, &[csn(1, 10)]), [1]);
        assert_eq!(come(&mut waiters, &[csn(1, 11), csn(2, 4)]), [2]);
        assert_eq!(come(&mut waiters, &[csn(1, 11), csn(2, 5)]), [3]);
        assert_eq!(waiters.next_deadline(), Some(Duration::from_secs(4)));
        assert_eq!(come(&mut waiters, &[csn(1, 12), csn(2, 5)]), [4]);
        assert_eq!((waiters.len(), waiters.next_deadline()), (0, None));
    }

    #[test]
    fn those_whose_time_is_over_are_answered_and_the_others_wait() {
        let mut waiters = Waiters::default();
        let (sender, ended) = channel();
        for number in 1..=3 {
            let sender = sender.clone();
            let done = Box::new(move |waited| sender.send((number, waited)).unwrap());
            waiters.add(number, vec![csn(1, 10)], Duration::from_secs(number), done);
        }
        let mut all = Vec::new();
        waiters.expire(Duration::from_secs(2), &mut all);
        all.drain(..).for_each(|(done, waited)| done(waited));
        assert_eq!(ended.try_iter().collect::<Vec<_>>(), [(1, WaitOutcome::Late), (2, WaitOutcome::Late)]);
        waiters.give_up(&mut all);
        all.drain(..).for_each(|(done, waited)| done(waited));
        assert_eq!(ended.try_iter().collect::<Vec<_>>(), [(3, WaitOutcome::Unknown)]);
        assert_eq!((waiters.len(), waiters.next_deadline()), (0, None));
    }

    #[test]
    fn a_commit_that_brings_the_change_ends_the_wait() {
        let (waiting, _clock) = waiting(Duration::from_secs(3600));
        let toy = Arc::<Toy>::default();
        toy.set(Some(&[csn(1, 9)]));
        let late = wait(&waiting, &toy, &[csn(1, 11)]);
        // What is here already is answered, too.
        assert_eq!(wait(&waiting, &toy, &[csn(1, 9)]).recv(), Ok(WaitOutcome::Arrived));
        let soon = wait(&waiting, &toy, &[csn(1, 10)]);
        toy.set(Some(&[csn(1, 10)]));
        assert_eq!(soon.recv(), Ok(WaitOutcome::Arrived));
        toy.set(Some(&[csn(1, 12)]));
        assert_eq!(late.recv(), Ok(WaitOutcome::Arrived));
        // A shadow that is gone has nobody wait.
        let receiver = wait(&waiting, &toy, &[csn(1, 13)]);
        toy.set(None);
        assert_eq!(receiver.recv(), Ok(WaitOutcome::Unknown));
    }

    #[test]
    fn time_and_number_are_bounded() {
        let toy = Arc::<Toy>::default();
        toy.set(Some(&[]));
        let (none, _clock) = waiting(Duration::ZERO);
        assert_eq!(wait(&none, &toy, &[csn(1, 1)]).recv(), Ok(WaitOutcome::Late));
        let (many, clock) = waiting(Duration::from_secs(1));
        let all: Vec<_> = (0..WAITERS_MAX).map(|_| wait(&many, &toy, &[csn(1, 1)])).collect();
        assert_eq!(wait(&many, &toy, &[csn(1, 1)]).recv(), Ok(WaitOutcome::TooMany));
        clock.advance_micros(2_000_000);
        toy.set(Some(&[]));
        assert!(all.iter().all(|ended| ended.recv() == Ok(WaitOutcome::Late)));
    }
}
