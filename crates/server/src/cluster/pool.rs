//! The threads that wait for the engine of one database, so that no event loop does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larix_engine::time::Clock;

use crate::clock::SystemClock;
use crate::thread_pool::{Job, ThreadPool, Threads, run_job};

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

/// The threads. They end, each after what it is at, when this is dropped.
pub(crate) struct EnginePool {
    pool: ThreadPool<Job>,
    /// Operations that wait for a thread, and permits that have no operation yet.
    taken: Arc<AtomicUsize>,
    clock: Arc<SystemClock>,
}

/// Room for one operation.
pub(crate) struct Permit<'p> {
    engine: &'p EnginePool,
    slot: Slot,
}

/// One of [`WAITING_MAX`] slots of the queue, until it is dropped.
struct Slot(Arc<AtomicUsize>);

impl EnginePool {
    pub(crate) fn start(clock: Arc<SystemClock>) -> io::Result<Self> {
        let pool = ThreadPool::new(Threads {
            name: "engine-reads",
            max: THREADS,
            stack_bytes: Some(larix_proto::limits::FILTER_STACK),
            first: || {},
            work: run_job,
        });
        pool.start()?;
        Ok(Self { pool, taken: Arc::default(), clock })
    }

    /// Room for an operation; none where too many wait already.
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        let others = self.taken.fetch_add(1, Ordering::Relaxed);
        let slot = Slot(Arc::clone(&self.taken));
        (others < WAITING_MAX).then_some(Permit { engine: self, slot })
    }

    /// Operations that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.pool.waiting()
    }
}

impl Permit<'_> {
    pub(crate) fn take(self, job: impl FnOnce(Turn) + Send + 'static) {
        let Self { engine, slot } = self;
        let (clock, since) = (Arc::clone(&engine.clock), engine.clock.monotonic());
        // A panic ends the operation, and what it owes is dropped, which says so.
        engine.pool.push(Box::new(move || {
            drop(slot);
            let waited = clock.monotonic().0.saturating_sub(since.0);
            job(if waited > PATIENCE { Turn::Late } else { Turn::Go });
        }));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
