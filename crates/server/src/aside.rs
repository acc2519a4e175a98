//! Work that an event loop has done beside it: what would keep it from its clients for too long.
//!
//! **No thread is no panic.** The runtime's own threads for what blocks panic where the system has none to give (`ulimit -u`,
//! `TasksMax=`). Here the caller hears of it, or the loop does the work itself.

use std::fmt;

use tokio::sync::oneshot;

use crate::panics;
use crate::thread_pool::{Job, ThreadPool, Threads, run_job};

/// Threads of one event loop. They start with the work; dropping this waits for what they are doing, and drops what they have not begun.
pub(crate) struct Aside {
    pool: ThreadPool<Job>,
}

/// Why some work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// The system has no thread to give. The work was not begun.
    NoThread,
    /// It ended by a panic, which was reported.
    Panicked,
}

impl Aside {
    /// Up to so many threads of this name, one at least.
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        let threads = Threads { name, max: threads_max, stack_bytes: None, first: || {}, work: run_job };
        Self { pool: ThreadPool::new(threads) }
    }

    /// Has each thread begin with this.
    pub(crate) fn beginning_with(mut self, first: fn()) -> Self {
        self.pool.threads.first = first;
        self
    }

    /// Has some work done on a thread.
    ///
    /// # Errors
    /// It was not begun, or not ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (job, done) = job(work);
        self.submit(job).map_err(|_| NotDone::NoThread)?;
        done.await.map_err(|_| NotDone::Panicked)
    }

    /// The same. Where the system has no thread to give, the caller's does it, and its clients wait.
    ///
    /// # Errors
    /// It ended by a panic.
    pub(crate) async fn run_or_here<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (job, done) = job(work);
        if let Err(job) = self.submit(job) {
            // The one who waits hears of a panic.
            let _ = panics::contained(job);
        }
        done.await.map_err(|_| NotDone::Panicked)
    }

    /// Gives the work back if there is no thread for it.
    fn submit(&self, job: Job) -> Result<(), Job> {
        if !self.pool.has_thread() {
            return Err(job);
        }
        self.pool.push(job);
        Ok(())
    }
}

fn job<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> (Job, oneshot::Receiver<T>) {
    let (done, awaited) = oneshot::channel();
    let job = move || {
        // Who asked may not wait any longer.
        let _ = done.send(work());
    };
    (Box::new(job), awaited)
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.pool.finish();
    }
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThread => f.write_str(
                "the system has no thread for it (ulimit -u, TasksMax= or pids.max limits threads, and ulimit -v or -d their memory)",
            ),
            Self::Panicked => fmt::Display::fmt(&panics::Panicked, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn work_is_done_beside_the_loop_and_its_panic_ends_nothing_else() {
        let aside = Aside::new("aside", 2);
        let own = std::thread::current().id();
        block_on(async {
            assert_ne!(aside.run(|| std::thread::current().id()).await, Ok(own));
            for _ in 0..4 {
                assert_eq!(aside.run(|| -> u32 { panic!("as work might") }).await, Err(NotDone::Panicked));
            }
            assert_eq!(aside.run_or_here(|| 3).await, Ok(3));
        });
        assert!(aside.pool.started() <= 2);
    }

    #[test]
    fn without_a_thread_the_loop_does_it_or_hears_of_it() {
        let mut aside = Aside::new("aside", 2);
        // No machine has the address space for such a stack.
        aside.pool.threads.stack_bytes = Some(1 << 60);
        let own = std::thread::current().id();
        block_on(async {
            assert_eq!(aside.run(|| 3).await, Err(NotDone::NoThread));
            assert_eq!(aside.run_or_here(|| std::thread::current().id()).await, Ok(own));
            let panicked = aside.run_or_here(|| -> u32 { panic!("as work might") }).await;
            assert_eq!(panicked, Err(NotDone::Panicked));
            aside.pool.threads.stack_bytes = None;
            assert_ne!(aside.run_or_here(|| std::thread::current().id()).await, Ok(own));
        });
    }

    #[test]
    fn dropping_waits_for_what_was_begun() {
        let aside = Aside::new("aside", 1);
        let (begun, awaited) = std::sync::mpsc::channel();
        let done = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&done);
        let (work, _) = job(move || {
            begun.send(()).unwrap();
            (0..1_000).for_each(|_| std::thread::yield_now());
            its.store(true, Ordering::Release);
        });
        assert!(aside.submit(work).is_ok());
        awaited.recv().unwrap();
        drop(aside);
        assert!(done.load(Ordering::Acquire));
    }
}
