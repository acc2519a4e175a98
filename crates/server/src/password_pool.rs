//! Costly password hashes are computed off the event loops, by a few threads that give way to them.
//!
//! **Fair between sources.** Jobs wait by the address that they come from, and within one address by the account that
//! they are about. Addresses have turns, and so have the accounts of an address: a client that floods the server with guesses
//! waits behind itself, and users behind one gateway do not wait for another's account.
//!
//! The threads leave a core to the event loops where there are two, and run at a lower priority: a flood of binds takes
//! what time searches leave.
//!
//! This is no `ThreadPool`: jobs wait by their source, a full queue refuses, and the end computes what waits.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use larix_engine::injected;

use crate::panics;
use crate::processor_time::{LOW, give_way};

/// Jobs that may wait; the next is refused with "busy".
pub(crate) const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that compute hashes. They start with the first job and end with the pool.
pub(crate) struct PasswordPool {
    shared: Arc<Shared>,
    threads: usize,
    /// Keyed hashes identify sources: a client cannot choose two that collide.
    keys: RandomState,
}

/// On whose behalf a job runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobSource {
    address: u64,
    account: u64,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    jobs: Waiting,
    started: usize,
    idle: usize,
    ended: bool,
}

/// The queue is full.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl PasswordPool {
    /// A pool of up to `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        let state = State { jobs: Waiting::default(), started: 0, idle: 0, ended: false };
        Self {
            shared: Arc::new(Shared { state: Mutex::new(state), ready: Condvar::new() }),
            threads: threads.max(1),
            keys: RandomState::new(),
        }
    }

    /// For a machine with so many cores: one is left to the event loops.
    pub(crate) fn for_cores(cores: usize) -> Self {
        Self::new(cores.saturating_sub(1))
    }

    /// The source of a request: the peer as its connection knows it (`IP=192.0.2.1:40000`), and the account.
    pub(crate) fn source(&self, peer: &str, account: &str) -> JobSource {
        let address = peer.rsplit_once(':').map_or(peer, |(address, _)| address);
        JobSource { address: self.keys.hash_one(address), account: self.keys.hash_one(account) }
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`Busy`] if [`QUEUE`] jobs wait, or no thread can start.
    pub(crate) fn submit(&self, source: JobSource, job: impl FnOnce() + Send + 'static) -> Result<(), Busy> {
        self.submit_made(source, || job)
    }

    /// Makes a job and queues it. It is not made where it cannot be queued, so that the caller can still answer the request.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(crate) fn submit_made<J: FnOnce() + Send + 'static>(
        &self,
        source: JobSource,
        make: impl FnOnce() -> J,
    ) -> Result<(), Busy> {
        let mut state = self.shared.lock();
        if state.jobs.len >= QUEUE {
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
        state.jobs.push(source, Box::new(make()));
        drop(state);
        self.shared.ready.notify_one();
        Ok(())
    }

    /// Jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().jobs.len
    }
}

/// Jobs by address and account, the next in turn first. There are never more than [`QUEUE`]: looking through them costs
/// less than one step of any hash.
#[derive(Default)]
struct Waiting {
    len: usize,
    addresses: VecDeque<(u64, Accounts)>,
}

type Accounts = VecDeque<(u64, VecDeque<Job>)>;

impl Waiting {
    fn push(&mut self, source: JobSource, job: Job) {
        self.len += 1;
        let accounts = entry(&mut self.addresses, source.address);
        entry(accounts, source.account).push_back(job);
    }

    /// The next job. Its address and its account go to the end of their queues.
    fn pop(&mut self) -> Option<Job> {
        let (address, mut accounts) = self.addresses.pop_front()?;
        let (account, mut jobs) = accounts.pop_front()?;
        let job = jobs.pop_front()?;
        self.len -= 1;
        if !jobs.is_empty() {
            accounts.push_back((account, jobs));
        }
        if !accounts.is_empty() {
            self.addresses.push_back((address, accounts));
        }
        Some(job)
    }
}

fn entry<T: Default>(queue: &mut VecDeque<(u64, T)>, key: u64) -> &mut T {
    let at = queue.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        queue.push_back((key, T::default()));
        queue.len() - 1
    });
    // The position was just found, or made.
    #[allow(clippy::indexing_slicing)]
    &mut queue[at].1
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so that a panic of one leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        give_way(LOW);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop() {
                drop(state);
                // Its thread has the next jobs to do. What the job owed its connection it drops, and that says so.
                let _ = panics::contained(|| {
                    injected::panic_at("password");
                    job();
                });
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
    fn sources_have_turns_and_a_full_queue_says_so() {
        let pool = PasswordPool::new(1);
        let (go, gate) = channel::<()>();
        let (done, results) = channel();
        let (entered, inside) = channel();
        let gatekeeper = pool.source("IP=192.0.2.9:1", "");
        pool.submit(gatekeeper, move || {
            entered.send(()).unwrap();
            gate.recv().unwrap();
        })
        .unwrap();
        inside.recv().unwrap();
        let flood = (0..4).map(|n| ("IP=192.0.2.1:1", "cn=a", format!("flood {n}")));
        let others = [
            ("IP=192.0.2.2:1", "cn=b", "other".to_owned()),
            ("IP=192.0.2.1:2", "cn=c", "neighbour".to_owned()),
        ];
        for (peer, account, name) in flood.chain(others) {
            let done = done.clone();
            pool.submit(pool.source(peer, account), move || done.send(name).unwrap()).unwrap();
        }
        for _ in pool.waiting()..QUEUE {
            pool.submit(gatekeeper, || {}).unwrap();
        }
        assert_eq!(pool.submit(gatekeeper, || {}), Err(Busy));
        go.send(()).unwrap();
        drop(done);
        let order: Vec<String> = results.iter().collect();
        assert_eq!(order, ["flood 0", "other", "neighbour", "flood 1", "flood 2", "flood 3"]);
    }

    #[test]
    fn a_job_that_panics_ends_neither_its_thread_nor_the_others() {
        let pool = PasswordPool::new(1);
        let source = pool.source("IP=192.0.2.1:1", "cn=a");
        let (done, results) = channel();
        for number in 0..6 {
            let done = done.clone();
            pool.submit(source, move || {
                assert!(number % 2 == 1, "as a hash might");
                done.send(number).unwrap();
            })
            .unwrap();
        }
        drop(done);
        assert_eq!(results.iter().collect::<Vec<_>>(), [1, 3, 5]);
    }
}
