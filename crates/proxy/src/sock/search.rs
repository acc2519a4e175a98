//! A search that a program answers.

use std::sync::Arc;

use larix_backend::{Cursor, Effort, StepOutcome, lowered};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;

use super::answer_filter::AnswerFilter;
use super::calls::{Call, CallState, Calls, FeedEnd, Sink};
use crate::job::{Feed, FeedItem};

use zeroize::Zeroizing;

/// A search that is not asked yet: limits may still be lowered.
#[derive(Debug)]
pub(super) struct PendingSearch {
    pub(super) text: Zeroizing<Vec<u8>>,
    pub(super) filter: AnswerFilter,
    pub(super) began: Monotonic,
}

/// A search under way.
#[derive(Debug)]
pub(super) struct SocketSearch {
    calls: Arc<Calls>,
    feed: Arc<Feed>,
    state: Arc<CallState>,
    pending: Option<Box<PendingSearch>>,
    deadline: Option<Monotonic>,
    size_limit: Option<u32>,
    sent: u64,
}

impl SocketSearch {
    pub(super) fn new(calls: &Arc<Calls>, pending: PendingSearch, deadline: Option<Monotonic>) -> Self {
        Self {
            calls: Arc::clone(calls),
            feed: Arc::default(),
            state: Arc::default(),
            size_limit: pending.filter.remaining,
            pending: Some(Box::new(pending)),
            deadline,
            sent: 0,
        }
    }
}

impl SocketSearch {
    /// Whether it has ended because the program lets the search go on behind it.
    pub(super) fn goes_on(&self) -> bool {
        self.state.goes_on()
    }

    /// How many entries it has sent.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }
}

impl Cursor for SocketSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(pending) = self.pending.take() {
            let PendingSearch { text, mut filter, began } = *pending;
            filter.remaining = self.size_limit;
            let sink = Sink::Entries(Box::new(filter), FeedEnd(Arc::clone(&self.feed)));
            self.calls.submit(Call { text, began, sink, state: Arc::clone(&self.state) });
        }
        while out.len() < budget.bytes {
            let (item, has_room) = self.feed.take();
            if has_room {
                self.state.has_room();
            }
            match item {
                FeedItem::Message(mut message) => {
                    out.append(&mut message);
                    self.sent += 1;
                }
                FeedItem::Nothing => return StepOutcome::Waiting,
                FeedItem::End((result, controls)) => return StepOutcome::Done(result, controls),
            }
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.sent }
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.feed.follow(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}

impl Drop for SocketSearch {
    fn drop(&mut self) {
        self.state.give_up();
    }
}
