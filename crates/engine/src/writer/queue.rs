//! The queue in front of the writer: many threads put changes in, one takes all that wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lanes::{First, Lanes, Waits};
use crate::time::{Clock, Monotonic};

/// A queue with a limit that can be closed.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    limit: usize,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct State<T> {
    waiting: Lanes<T>,
    closed: bool,
    /// Threads that wait for an item: only these are woken, which is a system call.
    takers: usize,
    /// One that waits is to look around once more.
    nudged: bool,
}

/// What came of waiting for a while.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome<T> {
    Item(T),
    Nothing,
    Closed,
}

/// Why an item was not taken into the queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueError {
    Full,
    Closed,
}

impl<T: Waits> State<T> {
    /// The first item of another group. What waits in a closed queue makes no pauses.
    fn first(&mut self, now: Monotonic) -> First<T> {
        if self.closed {
            return self.waiting.first_at_once().map_or(First::Nothing, First::Item);
        }
        self.waiting.first(now)
    }
}

impl<T: Waits> Queue<T> {
    pub(super) fn new(limit: usize, clock: Arc<dyn Clock>) -> Self {
        let state = State { waiting: Lanes::default(), closed: false, takers: 0, nudged: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), limit, clock }
    }

    /// Puts an item at the end of its [lane](super::lanes), or gives it back.
    pub(super) fn push(&self, item: T) -> Result<(), (QueueError, T)> {
        let state = self.lock();
        if state.closed {
            return Err((QueueError::Closed, item));
        }
        if state.waiting.len() >= self.limit {
            return Err((QueueError::Full, item));
        }
        self.put(state, item);
        Ok(())
    }

    /// Puts an item at the end whatever waits there, or gives it back when the queue is closed.
    pub(super) fn push_beyond(&self, item: T) -> Result<(), T> {
        let state = self.lock();
        if state.closed {
            return Err(item);
        }
        self.put(state, item);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, item: T) {
        state.waiting.push(item);
        let is_awaited = state.takers > 0;
        drop(state);
        if is_awaited {
            self.filled.notify_one();
        }
    }

    /// Waits for an item, for the queue's end, or for a [nudge](Self::nudge).
    pub(super) fn wait(&self) -> WaitOutcome<T> {
        self.wait_with(None)
    }

    /// Waits for an item no longer than `patience`.
    pub(super) fn wait_at_most(&self, patience: Duration) -> WaitOutcome<T> {
        self.wait_with(Some(patience))
    }

    /// Ends after `patience` even where the clock stands still, as it does in tests: the condition variable has its own.
    fn wait_with(&self, mut patience: Option<Duration>) -> WaitOutcome<T> {
        let mut state = self.lock();
        loop {
            let now = self.clock.monotonic();
            let pause = match state.first(now) {
                First::Item(item) => return WaitOutcome::Item(item),
                First::Later(pause) => Some(pause),
                First::Nothing => None,
            };
            if state.closed {
                return WaitOutcome::Closed;
            }
            if std::mem::take(&mut state.nudged) && patience.is_none() || patience == Some(Duration::ZERO) {
                return WaitOutcome::Nothing;
            }
            state.takers += 1;
            let ended;
            (state, ended) = self.await_change(state, patience.into_iter().chain(pause).min());
            state.takers -= 1;
            let is_pause = pause.is_some_and(|pause| patience.is_none_or(|patience| pause < patience));
            match ended {
                true if is_pause => state.waiting.end_pause(),
                true => patience = Some(Duration::ZERO),
                false => {}
            }
            patience = patience.map(|patience| {
                let waited = Duration::from_nanos(self.clock.monotonic().0.saturating_sub(now.0));
                patience.saturating_sub(waited)
            });
        }
    }

    /// Whether the time is over comes with the lock.
    fn await_change<'q>(
        &self,
        state: MutexGuard<'q, State<T>>,
        patience: Option<Duration>,
    ) -> (MutexGuard<'q, State<T>>, bool) {
        let Some(patience) = patience else {
            return (self.filled.wait(state).unwrap_or_else(PoisonError::into_inner), false);
        };
        let waited = self.filled.wait_timeout(state, patience);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    /// The next item of the group that began with the item handed out last by a wait, if one waits.
    pub(super) fn try_next(&self) -> Option<T> {
        self.lock().waiting.another()
    }

    /// Any item that waits, whatever group it would be in.
    pub(super) fn try_any(&self) -> Option<T> {
        self.lock().waiting.first_at_once()
    }

    /// Whether one of those that wait is such.
    pub(super) fn find(&self, wanted: &dyn Fn(&T) -> bool) -> bool {
        self.lock().waiting.iter().any(wanted)
    }

    /// Has a thread that waits without a limit return with nothing.
    pub(super) fn nudge(&self) {
        self.lock().nudged = true;
        self.filled.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether it is open, nothing waits in it, and a thread waits for something.
    pub(super) fn is_resting(&self) -> bool {
        let state = self.lock();
        !state.closed && state.waiting.is_empty() && state.takers > 0
    }

    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes no more items; those that wait are still handed out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while the lock is held but allocation; the deque is whole in any case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ManualClock;

    impl Waits for u32 {
        fn weight(&self) -> usize {
            1
        }

        fn identity(&self) -> Option<&Arc<str>> {
            None
        }

        fn is_barrier(&self) -> bool {
            false
        }
    }

    #[test]
    fn keeps_order_limit_and_close() {
        let queue = Queue::<u32>::new(2, Arc::new(ManualClock::default()));
        assert!(queue.push(1).is_ok() && queue.push(2).is_ok());
        assert_eq!(queue.push(3), Err((QueueError::Full, 3)));
        assert_eq!(queue.push_beyond(3), Ok(()));
        queue.close();
        assert_eq!((queue.push_beyond(4), queue.wait()), (Err(4), WaitOutcome::Item(1)));
        assert_eq!(queue.push(4), Err((QueueError::Closed, 4)));
        let last = (queue.wait(), queue.try_next(), queue.wait());
        assert_eq!(last, (WaitOutcome::Item(2), Some(3), WaitOutcome::Closed));
        assert_eq!(queue.wait_at_most(Duration::ZERO), WaitOutcome::Closed);
    }

    #[test]
    fn a_waiting_thread_is_woken() {
        let queue = Queue::<u32>::new(2, Arc::new(ManualClock::default()));
        assert_eq!(queue.wait_at_most(Duration::ZERO), WaitOutcome::Nothing);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| (queue.wait(), queue.wait()));
            queue.push(7).unwrap();
            queue.close();
            assert_eq!(taker.join().unwrap(), (WaitOutcome::Item(7), WaitOutcome::Closed));
        });
    }

    #[test]
    fn a_nudge_ends_one_wait_without_a_limit() {
        let queue = Queue::<u32>::new(2, Arc::new(ManualClock::default()));
        assert!(!queue.is_resting());
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| (queue.wait(), queue.wait()));
            while !queue.is_resting() {
                std::thread::yield_now();
            }
            queue.nudge();
            queue.push(7).unwrap();
            // Whichever it saw first, it is nudged once at most.
            let seen = taker.join().unwrap();
            assert!(
                seen == (WaitOutcome::Nothing, WaitOutcome::Item(7))
                    || seen == (WaitOutcome::Item(7), WaitOutcome::Nothing)
            );
        });
    }
}
