//! A change that the thread which asks for it carries out itself, without the way to the writer's thread and back.
//!
//! That saves two wake-ups, which matters to a client that waits for each of its changes. If several clients change something, the writer's
//! thread gathers their changes into groups, which is worth far more. So an event loop says, before it takes a client's requests, whether
//! nobody else would wait for its change ([`may_defer`]). If the writer is idle, a change is then deferred until the loop has flushed its
//! output and would wait ([`carry_out_deferred`]), or goes on with something else ([`hand_over_deferred`]). A second change sends both to
//! the writer's thread, where they share a commit.
//!
//! A change of a shared store waits for other machines ([`has_deferred_shared`]). An event loop carries it out only if nobody but its client
//! waits meanwhile.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, Mutex};

use larix_store::Store;

use super::core::Core;
use super::entrance::{Entrance, Job, Work};
use super::lanes::LARGE;
use super::queue::Queue;

/// Carries out a change on the calling thread.
pub(super) trait OwnThread: fmt::Debug + Send + Sync {
    /// Carries out the change, commits and answers. Gives the job back if the writer's thread has to do that.
    fn carry_out(&self, job: Job, queue: &Queue<Work>) -> Result<(), Job>;

    /// Whether that waits for other machines.
    fn is_shared(&self) -> bool;
}

struct DeferredJob {
    entrance: Arc<Entrance>,
    job: Job,
}

thread_local! {
    static MAY_DEFER: Cell<bool> = const { Cell::new(false) };
    static DEFERRED: RefCell<Option<DeferredJob>> = const { RefCell::new(None) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Says whether changes that this thread asks for may be deferred. If so, it must call [`carry_out_deferred`] or [`hand_over_deferred`]
/// before it waits for anything.
pub fn may_defer(yes: bool) {
    MAY_DEFER.set(yes);
}

/// Whether this thread has a deferred change.
pub fn has_deferred() -> bool {
    DEFERRED.with_borrow(Option::is_some)
}

/// Whether this thread has a deferred change of a store that other machines serve. [`carry_out_deferred`] waits for them, up to the
/// deadline of a commit.
pub fn has_deferred_shared() -> bool {
    DEFERRED
        .with_borrow(|deferred| deferred.as_ref().is_some_and(|deferred| deferred.entrance.here.is_shared()))
}

/// Carries out the deferred change of this thread, if any: it is committed and answered when this returns. If the writer was woken
/// meanwhile, that gets the change.
///
/// The thread should hold no snapshot, which would delay the reuse of the pages that the commit frees.
pub fn carry_out_deferred() {
    let Some(DeferredJob { entrance, job }) = DEFERRED.take() else { return };
    MAY_DEFER.set(false);
    let busy = Busy::begin();
    let carried_out = entrance.here.carry_out(job, &entrance.queue);
    drop(busy);
    if let Err(job) = carried_out {
        entrance.put(job);
    }
}

/// Gives the deferred change of this thread, if any, to the writer's thread.
pub fn hand_over_deferred() {
    if let Some(DeferredJob { entrance, job }) = DEFERRED.take() {
        entrance.put(job);
    }
}

/// Defers a small change, if that is allowed and it is the first. Otherwise puts it into the queue, behind the deferred one.
pub(super) fn defer_or_put(entrance: &Arc<Entrance>, job: Job) {
    let is_small = job.replicated.is_none() && job.weight() < LARGE;
    if is_small && MAY_DEFER.get() && !has_deferred() && entrance.queue.is_resting() {
        DEFERRED.set(Some(DeferredJob { entrance: Arc::clone(entrance), job }));
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

impl<S: Store> OwnThread for Mutex<Core<S>> {
    fn carry_out(&self, job: Job, queue: &Queue<Work>) -> Result<(), Job> {
        // After a panic the writer's thread reads its state again.
        let Ok(mut core) = self.try_lock() else { return Err(job) };
        if core.doubtful || !queue.is_resting() || core.unfinished {
            return Err(job);
        }
        // Where this server is about to get the right to write, the writer's thread waits for that.
        if S::SHARED && core.database.store().is_read_only() {
            return Err(job);
        }
        // Another database that has the same order commits. The writer's thread waits for that; this one has others to serve.
        if core.environment.order.is_taken() {
            return Err(job);
        }
        core.group(job, None);
        core.changes_elsewhere += 1;
        // The writer waits without a limit, but now it has upkeep to do once it is quiet.
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
