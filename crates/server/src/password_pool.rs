//! Costly password hashes are computed off the event loops, by a few threads, in the order of arrival.
//!
//! A connection waits for its bind before it sends another, so that one that hammers the server holds one place in
//! the queue: first come, first served is fair between connections.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs that may wait; the next is refused with "busy".
pub const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that compute hashes. They start with the first job and end with the pool.
pub struct PasswordPool {
    shared: Arc<Shared>,
    threads: usize,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    started: usize,
    idle: usize,
    ended: bool,
}

/// The queue is full.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Busy;

impl PasswordPool {
    /// A pool of up to `threads` threads.
    pub fn new(threads: usize) -> Self {
        let state = State { jobs: VecDeque::new(), started: 0, idle: 0, ended: false };
        Self {
            shared: Arc::new(Shared { state: Mutex::new(state), ready: Condvar::new() }),
            threads: threads.max(1),
        }
    }

    /// Queues a job.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Busy> {
        let mut state = self.shared.lock();
        if state.jobs.len() >= QUEUE {
            return Err(Busy);
        }
        if state.idle == 0 && state.started < self.threads {
            let shared = self.shared.clone();
            match std::thread::Builder::new().name("passwords".to_owned()).spawn(move || shared.work()) {
                Ok(_) => state.started += 1,
                Err(_) if state.started == 0 => return Err(Busy),
                // Fewer threads than wanted will do.
                Err(_) => {}
            }
        }
        state.jobs.push_back(Box::new(job));
        drop(state);
        self.shared.ready.notify_one();
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so that a panic of one leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for PasswordPool {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.ready.notify_all();
    }
}

impl fmt::Debug for PasswordPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordPool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_run_in_order_and_a_full_queue_says_so() {
        let pool = PasswordPool::new(1);
        let (go, gate) = channel::<()>();
        let (done, results) = channel();
        let (entered, inside) = channel();
        pool.submit(move || {
            entered.send(()).unwrap();
            gate.recv().unwrap();
        })
        .unwrap();
        inside.recv().unwrap();
        for n in 0..QUEUE {
            let done = done.clone();
            pool.submit(move || done.send(n).unwrap()).unwrap();
        }
        assert_eq!(pool.submit(|| {}), Err(Busy));
        go.send(()).unwrap();
        drop(done);
        assert_eq!(results.iter().collect::<Vec<_>>(), (0..QUEUE).collect::<Vec<_>>());
    }
}
