//! Where a thread of the node leaves what it has done for a search, and where the search finds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larix_engine::log::Follower;
use larix_proto::LdapResult;

use super::too_many;
use crate::cluster::{EnginePool, Turn};

/// Where a thread leaves a slice that is over.
struct Desk<O> {
    over: Option<Box<O>>,
    /// No slice comes any more.
    lost: bool,
    follower: Option<Arc<Follower>>,
    /// Nobody waits for it any more.
    given_up: bool,
}

/// The desk of a search and of the thread that has its work.
pub(super) struct SharedDesk<O>(Arc<Mutex<Desk<O>>>);

/// What there is on a desk.
pub(super) enum Left<O> {
    Nothing,
    Slice(Box<O>),
    /// The thread has panicked.
    Lost,
}

impl<O> Default for SharedDesk<O> {
    fn default() -> Self {
        let desk = Desk { over: None, lost: false, follower: None, given_up: false };
        Self(Arc::new(Mutex::new(desk)))
    }
}

fn lock<O>(desk: &Mutex<Desk<O>>) -> MutexGuard<'_, Desk<O>> {
    // Each change of it is whole before anything can panic.
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<O: Send + 'static> SharedDesk<O> {
    /// Has a thread of the node run a slice, which it leaves here.
    ///
    /// # Errors
    /// Too many operations wait for a thread.
    pub(super) fn send_out(
        &self,
        pool: &EnginePool,
        slice: impl FnOnce(Turn) -> O + Send + 'static,
    ) -> Result<(), LdapResult> {
        let permit = pool.permit().ok_or_else(too_many)?;
        let leaving = Leaving { desk: Self(Arc::clone(&self.0)), over: None };
        permit.take(move |turn| {
            if !leaving.is_given_up() {
                leaving.leave(slice(turn));
            }
        });
        Ok(())
    }
}

impl<O> SharedDesk<O> {
    /// For who wakes the search for another reason.
    pub(super) fn waker(&self) -> Waker<O> {
        Waker(Arc::downgrade(&self.0))
    }

    pub(super) fn follow(&self, follower: Arc<Follower>) {
        lock(&self.0).follower = Some(follower);
    }

    /// The search looks now; what comes from now on wakes it.
    pub(super) fn looks(&self) {
        if let Some(follower) = &lock(&self.0).follower {
            follower.looks();
        }
    }

    pub(super) fn take(&self) -> Left<O> {
        let mut desk = lock(&self.0);
        match desk.over.take() {
            Some(over) => Left::Slice(over),
            None if desk.lost => Left::Lost,
            None => Left::Nothing,
        }
    }

    /// Nobody waits any more.
    pub(super) fn give_up(&self) {
        let mut desk = lock(&self.0);
        desk.given_up = true;
        let over = desk.over.take();
        drop(desk);
        drop(over);
    }
}

/// Wakes a search as long as there is one.
pub(super) struct Waker<O>(Weak<Mutex<Desk<O>>>);

impl<O> Waker<O> {
    pub(super) fn wake(&self) {
        let desk = self.0.upgrade();
        let follower = desk.and_then(|desk| lock(&desk).follower.clone());
        follower.into_iter().for_each(|follower| follower.tell());
    }
}

/// Leaves word even where the thread panics.
struct Leaving<O> {
    desk: SharedDesk<O>,
    over: Option<Box<O>>,
}

impl<O> Leaving<O> {
    fn is_given_up(&self) -> bool {
        lock(&self.desk.0).given_up
    }

    fn leave(mut self, over: O) {
        self.over = Some(Box::new(over));
    }
}

impl<O> Drop for Leaving<O> {
    fn drop(&mut self) {
        let over = self.over.take();
        let mut desk = lock(&self.desk.0);
        if desk.given_up {
            drop(desk);
            return;
        }
        desk.lost = over.is_none();
        desk.over = over;
        let follower = desk.follower.clone();
        drop(desk);
        follower.into_iter().for_each(|follower| follower.tell());
    }
}
