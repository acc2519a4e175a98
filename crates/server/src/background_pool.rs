//! A few threads of low priority that share long work in turns: no job waits for the end of another one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use larix_engine::injected;
use larix_store::lmdb;

use crate::panics;
use crate::processor_time::{LOW, give_way};

thread_local! {
    /// Whether the thread may wait for other machines now, and whether one of them did not answer.
    static WAITING: Cell<(bool, bool)> = const { Cell::new((false, false)) };
}

/// Does something on this thread, which may wait for other machines meanwhile: identities are looked up in shared engines.
pub(crate) fn while_waiting<T>(work: impl FnOnce() -> T) -> T {
    let _ends = Waits(WAITING.replace((true, false)));
    work()
}

struct Waits((bool, bool));

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.set(self.0);
    }
}

/// Whether this thread may wait for other machines.
#[cfg(feature = "kv")]
pub(crate) fn may_wait() -> bool {
    WAITING.get().0
}

/// Something could not be looked up on this thread: it must not pass for what is not there.
#[cfg(feature = "kv")]
pub(crate) fn note_missed_lookup() {
    WAITING.set((WAITING.get().0, true));
}

/// Whether anything was missed since this was asked last.
pub(crate) fn take_missed_lookup() -> bool {
    let (waits, missed) = WAITING.get();
    WAITING.set((waits, false));
    missed
}

/// Work that is done in turns.
pub(crate) trait Turns: Send {
    /// Has a turn, which is to take some milliseconds, on the thread of this number. Itself, if it wants another.
    fn turn(self: Box<Self>, thread: usize) -> Option<Box<dyn Turns>>;
}

/// The threads. They start when they are first needed, and end with this.
pub(crate) struct BackgroundPool {
    shared: Arc<Shared>,
    most: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<dyn Turns>>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    ended: bool,
}

impl BackgroundPool {
    /// Up to `most` threads.
    pub(crate) fn new(most: usize) -> Self {
        Self { shared: Arc::default(), most: most.max(1) }
    }

    /// Whether there is a thread to take some work.
    pub(crate) fn are_there(&self) -> bool {
        let mut state = self.shared.lock();
        if state.ended {
            return false;
        }
        if state.idle <= state.waiting.len() && state.threads.len() < self.most {
            let (shared, number) = (Arc::clone(&self.shared), state.threads.len());
            let builder = std::thread::Builder::new().name("long-searches".to_owned());
            // Fewer threads than wanted will do.
            let started =
                builder.stack_size(larix_proto::limits::FILTER_STACK).spawn(move || shared.work(number));
            state.threads.extend(started);
        }
        !state.threads.is_empty()
    }

    /// Takes work, which has its first turn after those that wait.
    pub(crate) fn take(&self, work: impl Turns + 'static) {
        let mut state = self.shared.lock();
        if !state.ended {
            state.waiting.push_back(Box::new(work));
            drop(state);
            self.shared.ready.notify_one();
        }
    }

    /// How much work waits for a turn; what has one does not count.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Whether no thread works and no job waits.
    #[cfg(test)]
    pub(crate) fn are_idle(&self) -> bool {
        let state = self.shared.lock();
        state.waiting.is_empty() && state.idle == state.threads.len()
    }

    /// Ends the threads, each after the turn it is at; what waits is dropped.
    pub(crate) fn finish(&self) {
        for thread in self.shared.end() {
            // One that panicked has printed why.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Work is done outside the lock, so that a panic of one leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, number: usize) {
        give_way(LOW);
        lmdb::keep_snapshots();
        let mut state = self.lock();
        while !state.ended {
            if let Some(work) = state.waiting.pop_front() {
                drop(state);
                // A panic ends the work, and what it owes is dropped, which says so; the thread has others' turns.
                let again = panics::contained(|| {
                    injected::panic_at("long");
                    work.turn(number)
                });
                // Whose turn comes next may be in another database, for as long as it likes.
                lmdb::release_snapshots();
                state = self.lock();
                if !state.ended {
                    state.waiting.extend(again.ok().flatten());
                }
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
        drop(waiting);
        threads
    }
}

impl Drop for BackgroundPool {
    fn drop(&mut self) {
        // Not waited for: it may be one of them that lets the last of the server go.
        self.shared.end();
    }
}

impl fmt::Debug for BackgroundPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundPool").field("most", &self.most).finish_non_exhaustive()
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

    impl Turns for Counted {
        fn turn(mut self: Box<Self>, _thread: usize) -> Option<Box<dyn Turns>> {
            self.sender.send(format!("{} {}", self.name, self.left)).unwrap();
            self.gate.iter().for_each(|gate| gate.recv().unwrap());
            self.left -= 1;
            (self.left > 0).then_some(self as Box<dyn Turns>)
        }
    }

    #[test]
    fn work_has_turns_in_order() {
        let pool = BackgroundPool::new(1);
        let (sender, turns) = channel();
        let (open, gate) = channel();
        assert!(pool.are_there());
        pool.take(Counted { name: "first", left: 1, sender: sender.clone(), gate: Some(gate) });
        assert_eq!(turns.recv().unwrap(), "first 1");
        for (name, left) in [("a", 3), ("b", 1), ("c", 2)] {
            assert!(pool.are_there(), "one that is busy is there, too");
            pool.take(Counted { name, left, sender: sender.clone(), gate: None });
        }
        open.send(()).unwrap();
        drop(sender);
        let order: Vec<String> = turns.iter().collect();
        assert_eq!(order, ["a 3", "b 1", "c 2", "a 2", "c 1", "a 1"]);
    }

    #[test]
    fn the_end_waits_for_a_turn_and_drops_the_rest() {
        let pool = BackgroundPool::new(1);
        let (sender, turns) = channel();
        let (open, gate) = channel();
        assert!(pool.are_there());
        pool.take(Counted { name: "slow", left: 9, sender: sender.clone(), gate: Some(gate) });
        pool.take(Counted { name: "never", left: 9, sender, gate: None });
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
        assert!(!pool.are_there());
    }

    #[test]
    fn there_are_as_many_threads_as_are_needed() {
        let pool = BackgroundPool::new(2);
        let (sender, turns) = channel();
        let mut gates = Vec::new();
        for started in [1, 2, 2] {
            let (open, gate) = channel();
            gates.push(open);
            assert!(pool.are_there());
            pool.take(Counted { name: "w", left: 1, sender: sender.clone(), gate: Some(gate) });
            assert_eq!(pool.shared.lock().threads.len(), started);
        }
        assert_eq!((turns.recv().unwrap(), turns.recv().unwrap()), ("w 1".to_owned(), "w 1".to_owned()));
        drop(sender);
        gates.iter().for_each(|open| open.send(()).unwrap());
        assert_eq!(turns.iter().count(), 1);
    }
}
