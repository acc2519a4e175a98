//! Threads that share one queue of work: when they start, what a panic ends and what the end leaves. `aside`, `background_pool` and
//! `cluster/pool` say what the work is.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::panics;

/// Work that is done in one turn.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The work of threads that have jobs.
pub(crate) fn run_job(job: Job, _: usize) -> Option<Job> {
    job();
    None
}

/// What the threads of a pool are and do.
pub(crate) struct Threads<W> {
    pub(crate) name: &'static str,
    /// At most so many; at least one.
    pub(crate) max: usize,
    /// The size of each stack; none: the platform's default.
    pub(crate) stack_bytes: Option<usize>,
    /// What each thread does first.
    pub(crate) first: fn(),
    /// Does some work on the thread of this number. What it returns waits for another turn.
    pub(crate) work: fn(W, usize) -> Option<W>,
}

/// A queue and its threads. Dropping this ends each thread after the turn it is at and drops what waits; it does not wait for the threads.
pub(crate) struct ThreadPool<W> {
    /// Threads that start from now on are like this.
    pub(crate) threads: Threads<W>,
    shared: Arc<Shared<W>>,
}

struct Shared<W> {
    state: Mutex<State<W>>,
    ready: Condvar,
}

struct State<W> {
    waiting: VecDeque<W>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    ended: bool,
}

impl<W: Send + 'static> ThreadPool<W> {
    /// A pool whose threads start when they are first needed.
    pub(crate) fn new(mut threads: Threads<W>) -> Self {
        threads.max = threads.max.max(1);
        let state = State { waiting: VecDeque::new(), threads: Vec::new(), idle: 0, ended: false };
        Self { threads, shared: Arc::new(Shared { state: Mutex::new(state), ready: Condvar::new() }) }
    }

    /// Starts all threads now.
    ///
    /// # Errors
    /// The system has no thread to give.
    #[cfg(feature = "kv")]
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        while state.threads.len() < self.threads.max {
            let thread = self.thread(state.threads.len())?;
            state.threads.push(thread);
        }
        Ok(())
    }

    /// Whether there is a thread to take some work. It starts one if those that are there have enough to do.
    pub(crate) fn has_thread(&self) -> bool {
        let mut state = self.shared.lock();
        if state.ended {
            return false;
        }
        if state.idle <= state.waiting.len() && state.threads.len() < self.threads.max {
            // Fewer threads than wanted will do.
            let started = self.thread(state.threads.len());
            state.threads.extend(started);
        }
        !state.threads.is_empty()
    }

    fn thread(&self, number: usize) -> io::Result<JoinHandle<()>> {
        let Threads { name, stack_bytes, first, work, .. } = self.threads;
        let mut builder = Builder::new().name(name.to_owned());
        if let Some(bytes) = stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let shared = Arc::clone(&self.shared);
        builder.spawn(move || {
            first();
            shared.serve(number, work);
        })
    }

    /// Adds work, which has its first turn after what waits.
    pub(crate) fn push(&self, work: W) {
        let mut state = self.shared.lock();
        if !state.ended {
            state.waiting.push_back(work);
            drop(state);
            self.shared.ready.notify_one();
        }
    }

    /// How much work waits for a turn; what has one does not count.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Whether no thread works and no work waits.
    #[cfg(test)]
    pub(crate) fn are_idle(&self) -> bool {
        let state = self.shared.lock();
        state.waiting.is_empty() && state.idle == state.threads.len()
    }

    /// How many threads have started.
    #[cfg(test)]
    pub(crate) fn started(&self) -> usize {
        self.shared.lock().threads.len()
    }

    /// Ends the threads, each after the turn it is at, and waits for them; what waits is dropped.
    pub(crate) fn finish(&self) {
        for thread in self.shared.end() {
            // Panics of the work are contained.
            let _ = thread.join();
        }
    }
}

impl<W> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        // Work is done outside the lock, so that a panic of it leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, number: usize, work: fn(W, usize) -> Option<W>) {
        let mut state = self.lock();
        while !state.ended {
            if let Some(next) = state.waiting.pop_front() {
                drop(state);
                // A panic ends the work, and what it owes is dropped, which says so; the thread has others' turns.
                let again = panics::contained(|| work(next, number));
                state = self.lock();
                if state.ended {
                    // What is dropped says so, and may ask for this pool: not under the lock.
                    drop(state);
                    return;
                }
                state.waiting.extend(again.ok().flatten());
            } else {
                state.idle += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn end(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        state.ended = true;
        let (waiting, threads) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.threads));
        drop(state);
        self.ready.notify_all();
        // What is dropped says so to who waits for it.
        drop(waiting);
        threads
    }
}

impl<W> Drop for ThreadPool<W> {
    fn drop(&mut self) {
        // Not waited for: it may be one of them that lets the last of the server go.
        self.shared.end();
    }
}

impl<W> fmt::Debug for ThreadPool<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("name", &self.threads.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Has so many turns, and tells of each; waits in each until it may go on, where that is wanted.
    struct Counted {
        name: &'static str,
        left: usize,
        sender: Sender<String>,
        gate: Option<Receiver<()>>,
    }

    fn turn(mut work: Counted, _: usize) -> Option<Counted> {
        work.sender.send(format!("{} {}", work.name, work.left)).unwrap();
        work.gate.iter().for_each(|gate| gate.recv().unwrap());
        work.left -= 1;
        (work.left > 0).then_some(work)
    }

    fn pool(max: usize) -> ThreadPool<Counted> {
        ThreadPool::new(Threads { name: "turns", max, stack_bytes: None, first: || {}, work: turn })
    }

    #[test]
    fn work_has_turns_in_order() {
        let pool = pool(1);
        let (sender, turns) = channel();
        let (open, gate) = channel();
        assert!(pool.has_thread());
        pool.push(Counted { name: "first", left: 1, sender: sender.clone(), gate: Some(gate) });
        assert_eq!(turns.recv().unwrap(), "first 1");
        for (name, left) in [("a", 3), ("b", 1), ("c", 2)] {
            assert!(pool.has_thread(), "one that is busy is there, too");
            pool.push(Counted { name, left, sender: sender.clone(), gate: None });
        }
        open.send(()).unwrap();
        drop(sender);
        let order: Vec<String> = turns.iter().collect();
        assert_eq!(order, ["a 3", "b 1", "c 2", "a 2", "c 1", "a 1"]);
    }

    #[test]
    fn the_end_waits_for_a_turn_and_drops_the_rest() {
        let pool = pool(1);
        let (sender, turns) = channel();
        let (open, gate) = channel();
        assert!(pool.has_thread());
        pool.push(Counted { name: "slow", left: 9, sender: sender.clone(), gate: Some(gate) });
        pool.push(Counted { name: "never", left: 9, sender, gate: None });
        assert_eq!(turns.recv().unwrap(), "slow 9");
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| pool.finish());
            while !pool.shared.lock().ended {
                std::thread::yield_now();
            }
            assert!(!ends.is_finished(), "a turn is under way");
            open.send(()).unwrap();
        });
        assert!(turns.recv().is_err(), "nobody has another turn");
        assert!(!pool.has_thread());
    }

    #[test]
    fn there_are_as_many_threads_as_are_needed() {
        let pool = pool(2);
        let (sender, turns) = channel();
        let mut gates = Vec::new();
        for started in [1, 2, 2] {
            let (open, gate) = channel();
            gates.push(open);
            assert!(pool.has_thread());
            pool.push(Counted { name: "w", left: 1, sender: sender.clone(), gate: Some(gate) });
            assert_eq!(pool.started(), started);
        }
        assert_eq!((turns.recv().unwrap(), turns.recv().unwrap()), ("w 1".to_owned(), "w 1".to_owned()));
        drop(sender);
        gates.iter().for_each(|open| open.send(()).unwrap());
        assert_eq!(turns.iter().count(), 1);
    }
}
