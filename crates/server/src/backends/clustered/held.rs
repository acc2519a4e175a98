//! The answer to a search that was made out of the cache, and is held back until the engine has said that nothing newer is there.

use std::sync::Arc;

use larix_engine::log::Follower;
use larix_kv::ReadFault;

use super::mailbox::{MailboxContent, SharedMailbox};
use crate::cluster::{Confirmed, Unconfirmed, Waiter};
use larix_backend::{Effort, End};

/// What is sent once it is confirmed.
pub(super) struct Answer {
    pub(super) out: Vec<u8>,
    pub(super) end: End,
    pub(super) effort: Effort,
}

/// An answer, and the commit that it is as of.
pub(super) struct HeldAnswer {
    mailbox: SharedMailbox<Confirmed>,
    as_of: u64,
    answer: Answer,
}

/// What became of one.
pub(super) enum Outcome {
    Waits(HeldAnswer),
    Confirmed(Answer),
    /// There is a newer commit, which is known here now: to be read again.
    Overtaken,
    Refused(Unconfirmed),
}

impl HeldAnswer {
    pub(super) fn new(as_of: u64, answer: Answer) -> Self {
        Self { mailbox: SharedMailbox::default(), as_of, answer }
    }

    pub(super) fn waiter(&self) -> Waiter {
        let sender = self.mailbox.sender();
        Box::new(move |confirmed| sender.send(confirmed))
    }

    pub(super) fn follow(&self, follower: Arc<Follower>) {
        self.mailbox.follow(follower);
    }

    pub(super) fn look(self) -> Outcome {
        self.mailbox.looks();
        match self.mailbox.take() {
            MailboxContent::Nothing => Outcome::Waits(self),
            MailboxContent::Slice(confirmed) => match *confirmed {
                Ok(newest) if newest == self.as_of => Outcome::Confirmed(self.answer),
                Ok(_) => Outcome::Overtaken,
                Err(why) => Outcome::Refused(why),
            },
            MailboxContent::Lost => Outcome::Refused(Unconfirmed::Fault(ReadFault::Unavailable)),
        }
    }
}
