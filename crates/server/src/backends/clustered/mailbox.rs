//! The mailbox of a search: a thread of the node puts there what it has done for the search, and the search takes it out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larix_engine::log::Follower;
use larix_proto::LdapResult;

use super::too_many;
use crate::cluster::{EnginePool, Turn};

/// Holds a finished slice until the search takes it.
struct Mailbox<S> {
    slice: Option<Box<S>>,
    /// No slice comes any more.
    lost: bool,
    follower: Option<Arc<Follower>>,
    /// Nobody waits for it any more.
    given_up: bool,
}

/// The mailbox that a search shares with the thread that has its work.
pub(super) struct SharedMailbox<S>(Arc<Mutex<Mailbox<S>>>);

/// What is in a mailbox.
pub(super) enum MailboxContent<S> {
    Nothing,
    Slice(Box<S>),
    /// The thread has panicked.
    Lost,
}

impl<S> Default for SharedMailbox<S> {
    fn default() -> Self {
        let mailbox = Mailbox { slice: None, lost: false, follower: None, given_up: false };
        Self(Arc::new(Mutex::new(mailbox)))
    }
}

fn lock<S>(mailbox: &Mutex<Mailbox<S>>) -> MutexGuard<'_, Mailbox<S>> {
    // Each change of it is whole before anything can panic.
    mailbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Send + 'static> SharedMailbox<S> {
    /// Has a thread of the node run a slice, which it sends here.
    ///
    /// # Errors
    /// Too many operations wait for a thread.
    pub(super) fn send_out(
        &self,
        pool: &EnginePool,
        slice: impl FnOnce(Turn) -> S + Send + 'static,
    ) -> Result<(), LdapResult> {
        let permit = pool.permit().ok_or_else(too_many)?;
        let sender = self.sender();
        permit.take(move |turn| {
            if !sender.is_given_up() {
                sender.send(slice(turn));
            }
        });
        Ok(())
    }
}

impl<S> SharedMailbox<S> {
    pub(super) fn sender(&self) -> Sender<S> {
        Sender { mailbox: Self(Arc::clone(&self.0)), slice: None }
    }

    /// For who wakes the search for another reason.
    pub(super) fn waker(&self) -> Waker<S> {
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

    pub(super) fn take(&self) -> MailboxContent<S> {
        let mut mailbox = lock(&self.0);
        match mailbox.slice.take() {
            Some(slice) => MailboxContent::Slice(slice),
            None if mailbox.lost => MailboxContent::Lost,
            None => MailboxContent::Nothing,
        }
    }

    /// Nobody waits any more.
    pub(super) fn give_up(&self) {
        let mut mailbox = lock(&self.0);
        mailbox.given_up = true;
        let slice = mailbox.slice.take();
        drop(mailbox);
        drop(slice);
    }
}

/// Wakes a search as long as there is one.
pub(super) struct Waker<S>(Weak<Mutex<Mailbox<S>>>);

impl<S> Waker<S> {
    pub(super) fn wake(&self) {
        let mailbox = self.0.upgrade();
        let follower = mailbox.and_then(|mailbox| lock(&mailbox).follower.clone());
        follower.into_iter().for_each(|follower| follower.tell());
    }
}

/// Tells the search even where the thread panics.
pub(super) struct Sender<S> {
    mailbox: SharedMailbox<S>,
    slice: Option<Box<S>>,
}

impl<S> Sender<S> {
    fn is_given_up(&self) -> bool {
        lock(&self.mailbox.0).given_up
    }

    pub(super) fn send(mut self, slice: S) {
        self.slice = Some(Box::new(slice));
    }
}

impl<S> Drop for Sender<S> {
    fn drop(&mut self) {
        let slice = self.slice.take();
        let mut mailbox = lock(&self.mailbox.0);
        if mailbox.given_up {
            drop(mailbox);
            return;
        }
        mailbox.lost = slice.is_none();
        mailbox.slice = slice;
        let follower = mailbox.follower.clone();
        drop(mailbox);
        follower.into_iter().for_each(|follower| follower.tell());
    }
}
