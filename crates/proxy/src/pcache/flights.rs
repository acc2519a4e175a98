//! Of searches that ask for the same at once, one alone asks the remote server; the others wait for what comes of it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_backend::{Cursor, Effort, StepOutcome, lowered};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::LdapResult;

use super::containment::Region;
use super::store::{Cache, Group, Query};

/// A search on its way to the remote server and back.
#[derive(Debug)]
pub(super) struct Flight {
    region: Region,
    unknown: Vec<String>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    has_landed: bool,
    followers: Vec<Arc<Follower>>,
}

impl Flight {
    pub(super) fn of(query: &Query) -> Self {
        Self { region: query.region.clone(), unknown: query.unknown.clone(), waiting: Mutex::default() }
    }

    /// Whether it asks for the same as another search with the same values.
    pub(super) fn is_for(&self, query: &Query) -> bool {
        self.region == query.region && self.unknown == query.unknown
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic of another thread leaves it whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_landed(&self) -> bool {
        self.waiting().has_landed
    }

    fn follow(&self, follower: Arc<Follower>) {
        self.waiting().followers.push(follower);
    }

    fn land(&self) {
        let followers = {
            let mut waiting = self.waiting();
            waiting.has_landed = true;
            std::mem::take(&mut waiting.followers)
        };
        followers.iter().for_each(|follower| follower.tell());
    }
}

/// Held by the search that asks the remote server. The others go on when it is dropped.
#[derive(Debug)]
pub(super) struct Leading {
    cache: Arc<Cache>,
    group: Group,
    values: Vec<u8>,
    flight: Arc<Flight>,
}

/// What a search does that was not found in the cache.
#[derive(Debug)]
pub(super) enum Boarding {
    /// It asks the remote server.
    Leads(Leading),
    /// Another one does.
    Waits(Arc<Flight>),
}

impl Leading {
    pub(super) fn new(cache: Arc<Cache>, query: &Query, flight: Arc<Flight>) -> Self {
        Self { cache, group: query.group(), values: query.values(), flight }
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.cache.land(&self.group, &self.values, &self.flight);
        self.flight.land();
    }
}

/// What goes on when the other search has ended: it is answered from the cache, or asks by itself.
pub(super) type GoOn = Box<dyn FnOnce() -> Result<Box<dyn Cursor>, LdapResult> + Send>;

/// A search that waits for another one's answer.
pub(super) struct Awaiting {
    flight: Arc<Flight>,
    go_on: Option<GoOn>,
    follower: Option<Arc<Follower>>,
    deadline: Option<Monotonic>,
    size_limit: Option<u32>,
    cursor: Option<Box<dyn Cursor>>,
}

impl fmt::Debug for Awaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaiting")
            .field("flight", &self.flight)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Awaiting {
    pub(super) fn new(
        flight: Arc<Flight>,
        (deadline, size_limit): (Option<Monotonic>, Option<u32>),
        go_on: GoOn,
    ) -> Self {
        Self { flight, go_on: Some(go_on), follower: None, deadline, size_limit, cursor: None }
    }
}

impl Cursor for Awaiting {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(cursor) = &mut self.cursor {
            return cursor.step(budget, out);
        }
        if let Some(follower) = &self.follower {
            follower.looks();
        }
        if !self.flight.has_landed() {
            return StepOutcome::Waiting;
        }
        let mut cursor = match self.go_on.take().map(|go_on| go_on()) {
            Some(Ok(cursor)) => cursor,
            Some(Err(result)) => return StepOutcome::Done(result, Vec::new()),
            // It was not to be asked again.
            None => return StepOutcome::Done(LdapResult::success(), Vec::new()),
        };
        if let Some(follower) = self.follower.take() {
            cursor.follow(follower);
        }
        if let Some(limit) = self.size_limit {
            cursor.limit_size(limit);
        }
        self.cursor.insert(cursor).step(budget, out)
    }

    fn effort(&self) -> Effort {
        self.cursor.as_ref().map(|cursor| cursor.effort()).unwrap_or_default()
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        match &mut self.cursor {
            Some(cursor) => cursor.follow(follower),
            None => {
                self.flight.follow(Arc::clone(&follower));
                self.follower = Some(follower);
            }
        }
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }

    fn pause(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.pause();
        }
    }

    fn size_limit(&self) -> Option<u32> {
        self.cursor.as_ref().map_or(self.size_limit, |cursor| cursor.size_limit())
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
        if let Some(cursor) = &mut self.cursor {
            cursor.limit_size(entries);
        }
    }
}
