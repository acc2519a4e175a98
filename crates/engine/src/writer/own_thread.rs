//! A change carried out by the thread that asks for it, without the way to the writer's thread and back.
//!
//! It saves two wake-ups, which is what a client feels that waits for each of its changes; where several clients change
//! something, the writer's thread gathers their changes into groups, which is worth far more. So an event loop says
//! before it takes a client's requests whether nobody else would have to wait for it ([`may_keep`]). A change is kept then, if
//! the writer rests, until the loop has sent what it has to send and would wait ([`carry_out_deferred`]), or goes on with something
//! else ([`hand_over_deferred`]). A second one sends both to the writer's thread: they share a commit.
//!
//! A change of a shared store waits for other machines ([`is_keeping_shared`]). An event loop carries it out only where nobody but its
//! client waits meanwhile.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, Mutex};

use larix_store::Store;

use super::core::Core;
use super::entrance::{Entrance, Job, Work};
use super::lanes::LARGE;
use super::queue::Queue;

/// Carries out a change on the calling thread.
pub(super) trait Here: fmt::Debug + Send + Sync {
    /// Carries out the change, commits and answers; gives it back when it has to go to the writer's thread.
    fn carry_out(&self, job: Job, queue: &Queue<Work>) -> Result<(), Job>;

    /// Whether that waits for other machines.
    fn is_shared(&self) -> bool;
}

struct QueuedJob {
    entrance: Arc<Entrance>,
    job: Job,
}

thread_local! {
    static MAY_KEEP: Cell<bool> = const { Cell::new(false) };
    static KEPT: RefCell<Option<QueuedJob>> = const { RefCell::new(None) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Says whether changes that this thread asks for may wait for its [`carry_out_deferred`]. A thread that says yes must call that or
/// [`hand_over_deferred`] before it waits for anything.
pub fn may_keep(yes: bool) {
    MAY_KEEP.set(yes);
}

/// Whether this thread keeps a change.
pub fn is_keeping() -> bool {
    KEPT.with_borrow(Option::is_some)
}

/// Whether this thread keeps a change of a store that other machines serve: [`carry_out_deferred`] waits for them, for as long as the store lets
/// a commit take.
pub fn is_keeping_shared() -> bool {
    KEPT.with_borrow(|kept| kept.as_ref().is_some_and(|kept| kept.entrance.here.is_shared()))
}

/// Carries out the change that this thread keeps, if any: it is committed, and answered, when this returns. A writer that was
/// woken meanwhile gets it instead.
///
/// The thread keeps no snapshot, or the pages that the commit frees stay for longer than they need.
pub fn carry_out_deferred() {
    let Some(QueuedJob { entrance, job }) = KEPT.take() else { return };
    MAY_KEEP.set(false);
    let busy = Busy::begin();
    let carried_out = entrance.here.carry_out(job, &entrance.queue);
    drop(busy);
    if let Err(job) = carried_out {
        entrance.put(job);
    }
}

/// Gives the change that this thread keeps, if any, to the writer's thread.
pub fn hand_over_deferred() {
    if let Some(QueuedJob { entrance, job }) = KEPT.take() {
        entrance.put(job);
    }
}

/// Keeps a small change if that is allowed and it is the first, or puts it into the queue behind the one that was kept.
pub(super) fn keep_or_put(entrance: &Arc<Entrance>, job: Job) {
    let is_small = job.replicated.is_none() && job.weight() < LARGE;
    if is_small && MAY_KEEP.get() && !is_keeping() && entrance.queue.is_resting() {
        KEPT.set(Some(QueuedJob { entrance: Arc::clone(entrance), job }));
        return;
    }
    hand_over_deferred();
    entrance.put(job);
}

/// Whether this thread is in the middle of a change: it does not wait for the writer's thread, which may wait for it.
pub(super) fn is_busy() -> bool {
    BUSY.get()
}

/// This thread is in the middle of a change until this is dropped, by a panic as well.
struct Busy;

impl Busy {
    fn begin() -> Self {
        BUSY.set(true);
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

impl<S: Store> Here for Mutex<Core<S>> {
    fn carry_out(&self, job: Job, queue: &Queue<Work>) -> Result<(), Job> {
        // After a panic it is the writer's thread that reads again what is known.
        let Ok(mut core) = self.try_lock() else { return Err(job) };
        if core.doubtful || !queue.is_resting() || core.unfinished {
            return Err(job);
        }
        core.group(job, None);
        core.changes_elsewhere += 1;
        // It waits without a limit, but now there is something to do when it is quiet.
        if !core.looks_again && core.patience().is_some() {
            core.looks_again = true;
            drop(core);
            queue.nudge();
        }
        Ok(())
    }

    fn is_shared(&self) -> bool {
        S::SHARED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_amid_a_change_leaves_the_thread_as_it_was() {
        let amid = std::panic::catch_unwind(|| {
            let _busy = Busy::begin();
            assert!(is_busy());
            panic!("as a change might");
        });
        assert!(amid.is_err() && !is_busy());
    }
}
