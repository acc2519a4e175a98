//! Answers that are read again in the background, so that no search waits for it (the time to refresh of `pcacheTemplate`).
//!
//! Nothing here has a clock or a thread of its own: a search that finds an answer whose time has come has it read again and goes on
//! with what there is, and each check of the cache does so for the answers that were used since they were read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_engine::controls::RequestControls;

use super::flights::Boarding;
use super::projection::Projection;
use super::store::{Cache, Query};
use super::{CachingBackend, PATIENCE, RemoteRead};
use crate::identity::Asker;
use crate::job::Owner;
use crate::lookup;

/// Answers of one cache that are read again at a time.
const AT_ONCE: usize = 8;

/// Who a requester is to the remote server.
pub(super) type Identity = (Owner, Option<String>);

/// What it takes to ask for an answer once more.
#[derive(Debug)]
pub(super) struct AskAgain {
    pub(super) asker: Asker,
    /// Who that was to the remote server: the answer is for no other one.
    pub(super) identity: Identity,
    /// By the filter of the search, with rules that let everything through: nobody sees what is read.
    pub(super) projection: Arc<Projection>,
    /// As the client sent it.
    pub(super) base: String,
    pub(super) controls: RequestControls,
}

/// Answers whose time to be read again has come.
#[derive(Debug, Default)]
pub(super) struct Refreshes {
    due: Mutex<Due>,
    /// Some wait, as far as a search has to know.
    has_waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct Due {
    /// The numbers of stored answers, the first one to come first.
    waiting: VecDeque<u64>,
    under_way: usize,
    /// A thread begins them: another one leaves it to that.
    is_begun: bool,
}

impl Refreshes {
    fn due(&self) -> MutexGuard<'_, Due> {
        // Each change of it is whole before anything can panic.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes answers, as far as no more than `most` wait: the others are read again when a search finds them late.
    pub(super) fn note(&self, numbers: impl IntoIterator<Item = u64>, most: usize) {
        let mut due = self.due();
        let room = most.saturating_sub(due.waiting.len());
        due.waiting.extend(numbers.into_iter().take(room));
        self.has_waiting.store(!due.waiting.is_empty(), Ordering::Relaxed);
    }

    /// Whether this thread is to begin those that wait.
    fn begin(&self) -> bool {
        if !self.has_waiting.load(Ordering::Relaxed) {
            return false;
        }
        let mut due = self.due();
        let begins = !due.is_begun && !due.waiting.is_empty() && due.under_way < AT_ONCE;
        due.is_begun |= begins;
        begins
    }

    /// The next one; none: as many are under way as may be, or none waits. Then this thread has begun all that it can.
    fn next(&self) -> Option<u64> {
        let mut due = self.due();
        let next = if due.under_way < AT_ONCE { due.waiting.pop_front() } else { None };
        match next {
            Some(_) => due.under_way += 1,
            None => due.is_begun = false,
        }
        self.has_waiting.store(!due.waiting.is_empty(), Ordering::Relaxed);
        next
    }
}

/// One of those under way.
pub(super) struct Turn(Arc<Cache>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.refreshes.due().under_way -= 1;
    }
}

impl Cache {
    /// Takes the next answer that is to be read again, with the search that it answers.
    pub(super) fn next_refresh(self: &Arc<Self>) -> Option<(Query, Turn)> {
        loop {
            let number = self.refreshes.next()?;
            let turn = Turn(Arc::clone(self));
            // It may have expired, or made room for another one.
            if let Some(query) = self.query_of(number) {
                return Some((query, turn));
            }
        }
    }
}

impl CachingBackend {
    /// Begins to read again what is to be read again.
    pub(super) fn refresh(&self) {
        if !self.cache.refreshes.begin() {
            return;
        }
        while let Some((query, turn)) = self.cache.next_refresh() {
            self.read_again(query, turn);
        }
    }

    /// Reads one answer again. If nothing can be read, what is known stays until it expires.
    fn read_again(&self, query: Query, turn: Turn) {
        let Some(again) = query.again.clone() else { return };
        let asker = Asker { began: self.now(), ..again.asker.clone() };
        // A client that has gone cannot be asked for again by its own connection.
        if self.identity(&asker, again.controls.hops).as_ref() != Some(&again.identity) {
            return;
        }
        let Boarding::Leads(leading) = self.cache.board(&query) else { return };
        let changes = self.cache.changes();
        let remote_read = RemoteRead {
            base: again.base.clone(),
            controls: again.controls.clone(),
            // Entries are kept, and shown to nobody.
            size_limit: Some(0),
            time_limit: 0,
            patience: Some(PATIENCE),
            projection: Arc::clone(&again.projection),
            asker,
            query,
        };
        let Ok(cursor) = self.read(&remote_read, changes, None, Some(leading)) else { return };
        let itself = self.clone();
        let then: lookup::Then = Box::new(move |_| {
            drop(turn);
            itself.refresh();
        });
        // Nobody gives it up: it ends by its own patience.
        drop(lookup::read(cursor, Arc::clone(&self.clock), then));
    }
}
