//! The threads that wait for the engine of one database, so that no event loop does.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use larix_engine::time::{Clock, Monotonic};

use crate::clock::SystemClock;
use crate::panics;

/// Threads of a database: reads that wait for the engine at once.
pub(crate) const THREADS: usize = 8;
/// Operations that wait for a thread; more are answered busy.
pub(crate) const WAITING_MAX: usize = 4_096;
/// So long an operation waits for a thread, in nanoseconds; after that it is not begun any more.
const PATIENCE: u64 = 5_000_000_000;

/// What a thread says to an operation whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Go,
    /// It has waited too long: it is to be answered, and nothing more.
    Late,
}

type Job = Box<dyn FnOnce(Turn) + Send>;

/// The threads. They end, each after what it is at, when this is dropped.
pub(crate) struct EnginePool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
    clock: Arc<SystemClock>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Monotonic, Job)>,
    /// Places that were taken and have no operation yet.
    promised: usize,
    ended: bool,
}

/// Room for one operation.
pub(crate) struct Permit<'p> {
    shared: &'p Shared,
}

impl EnginePool {
    pub(crate) fn start(clock: Arc<SystemClock>) -> io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), ready: Condvar::new(), clock });
        let pool = Self { shared: Arc::clone(&shared) };
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("engine-reads".to_owned())
                .stack_size(larix_proto::limits::FILTER_STACK)
                .spawn(move || shared.work())?;
        }
        Ok(pool)
    }

    /// Room for an operation; none where too many wait already.
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        let mut state = self.shared.lock();
        if state.ended || state.waiting.len() + state.promised >= WAITING_MAX {
            return None;
        }
        state.promised += 1;
        Some(Permit { shared: &self.shared })
    }

    /// Operations that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }
}

impl Permit<'_> {
    pub(crate) fn take(self, job: impl FnOnce(Turn) + Send + 'static) {
        let since = self.shared.clock.monotonic();
        self.shared.lock().waiting.push_back((since, Box::new(job)));
        self.shared.ready.notify_one();
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.shared.lock().promised -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Operations run outside the lock, so that a panic of one leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.ended {
            let Some((since, job)) = state.waiting.pop_front() else {
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let waited = self.clock.monotonic().0.saturating_sub(since.0);
            let turn = if waited > PATIENCE { Turn::Late } else { Turn::Go };
            // A panic ends the operation, and what it owes is dropped, which says so.
            let _reported = panics::contained(|| job(turn));
            state = self.lock();
        }
    }
}

impl Drop for EnginePool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.shared.ready.notify_all();
        // What is dropped says so to who waits for it.
        drop(waiting);
    }
}

impl fmt::Debug for EnginePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnginePool").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn operations_are_bounded_and_dropped_at_the_end() {
        let pool = EnginePool::start(Arc::new(SystemClock)).expect("threads");
        let (sender, turns) = channel();
        let gates: Vec<_> = (0..THREADS)
            .map(|_| {
                let (open, gate) = channel::<()>();
                let sender = sender.clone();
                pool.permit().expect("room").take(move |turn| {
                    sender.send(turn).expect("told");
                    // Until the other side is gone.
                    let _closed = gate.recv();
                });
                open
            })
            .collect();
        for _ in 0..THREADS {
            assert_eq!(turns.recv().expect("a turn"), Turn::Go);
        }
        // All threads are taken.
        let held: Vec<_> = std::iter::from_fn(|| pool.permit()).collect();
        assert_eq!(held.len(), WAITING_MAX);
        drop(held);
        let waits = sender.clone();
        pool.permit().expect("room again").take(move |turn| waits.send(turn).expect("told"));
        assert_eq!(pool.waiting(), 1);
        drop(sender);
        drop(pool);
        // Those that have a turn hold the other side until then.
        drop(gates);
        assert!(turns.recv().is_err(), "what waited has no turn");
    }
}
