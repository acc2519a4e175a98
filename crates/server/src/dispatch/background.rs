//! Long searches leave their worker for threads of low priority, so that small requests do not wait for their slices,
//! neither in the worker's loop nor for the processor.
//!
//! The connection keeps a [`BackgroundSearch`] in place of its search. The search comes back with its answers, and goes to a thread
//! again when the client has read them: a search whose client does not read takes no thread. Each slice has a snapshot, and with it
//! access rules, of its own; the limits of size and time are those that the search began with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larix_engine::injected;
use larix_engine::time::Clock;
use larix_proto::{ControlBuf, LdapResult, ResponseOp, encode};
use tokio::sync::mpsc::UnboundedSender;

use super::{Dispatcher, RequestInFlight, RunningSearch};
use crate::background_pool::Turns;
use crate::connection::{OUTPUT_HIGH, Operation, SearchLocation};
use crate::dispatch::ConnectionEvent;
use crate::panics;
use crate::server::Server;
use larix_backend::{Effort, StepOutcome, slice};

/// Slices of a search that its worker computes, each of 100 us at most, its last candidates aside. Nearly all searches end within them.
/// While they run, no other thread gets the worker's processor, not even a client on the same machine: with 20 slices and eight huge
/// searches a second, the p99 of small searches was the time that the huge ones took here.
pub(super) const SLICES_HERE: u32 = 4;
/// How long one search is worked at while others wait.
const TURN_NANOS: u64 = 4_000_000;
/// Bytes of answers with which a search comes back: twice as many fill a connection's output.
const ANSWERS_BYTES: usize = OUTPUT_HIGH / 2;

/// Stands for a search that a thread has. If it is dropped, the search ends after its current slice.
#[derive(Debug)]
pub(crate) struct BackgroundSearch {
    in_flight: RequestInFlight,
    /// Entries that have come back.
    answered: u64,
    watch: Arc<Watch>,
}

/// What connection and thread tell each other about a search.
#[derive(Debug, Default)]
struct Watch {
    unwanted: AtomicBool,
    candidates: AtomicU64,
}

impl BackgroundSearch {
    pub(super) fn in_flight(&self) -> RequestInFlight {
        self.in_flight
    }

    /// Its effort so far, without the entries that will not be sent.
    pub(super) fn effort(&self) -> Effort {
        Effort { entries: self.answered, candidates: self.watch.candidates.load(Ordering::Relaxed) }
    }
}

impl Drop for BackgroundSearch {
    fn drop(&mut self) {
        self.watch.unwanted.store(true, Ordering::Relaxed);
    }
}

/// A search on its way back from a thread, with its answers.
#[derive(Debug)]
pub(crate) struct ReturnedSearch {
    running: RunningSearch,
    answers: Vec<u8>,
    end: Option<(LdapResult, Vec<ControlBuf>)>,
}

/// A search that a thread has. If it is dropped before it went back, as by a panic, it goes back with an internal error.
struct Journey {
    server: Arc<Server>,
    /// There until it goes back.
    running: Option<RunningSearch>,
    answers: Vec<u8>,
    watch: Arc<Watch>,
    events: UnboundedSender<ConnectionEvent>,
}

impl Turns for Journey {
    fn turn(mut self: Box<Self>, _thread: usize) -> Option<Box<dyn Turns>> {
        let until = self.server.clock.monotonic().0.saturating_add(TURN_NANOS);
        loop {
            if self.watch.unwanted.load(Ordering::Relaxed) {
                self.running = None;
                return None;
            }
            let end = self.slice();
            let is_over = self.server.clock.monotonic().0 >= until;
            if end.is_some() || self.answers.len() >= ANSWERS_BYTES || (is_over && !self.answers.is_empty()) {
                self.go_back(end);
                return None;
            }
            if is_over {
                return Some(self);
            }
        }
    }
}

impl Journey {
    fn slice(&mut self) -> Option<(LdapResult, Vec<ControlBuf>)> {
        let whole = self.answers.len();
        let Self { server, running, answers, .. } = self;
        let running = running.as_mut()?;
        let slice = panics::contained(|| {
            injected::panic_at("slice");
            match running.search.step(slice(&*server.clock), answers) {
                StepOutcome::Done(result, controls) => Some((result, controls)),
                StepOutcome::More | StepOutcome::Waiting => None,
            }
        });
        self.watch.candidates.store(running.search.effort().candidates, Ordering::Relaxed);
        slice.unwrap_or_else(|_| {
            self.answers.truncate(whole);
            Some(internal_error())
        })
    }

    fn go_back(&mut self, end: Option<(LdapResult, Vec<ControlBuf>)>) {
        let Some(running) = self.running.take() else { return };
        let serial = running.in_flight.operation.serial;
        let returned = ReturnedSearch { running, answers: std::mem::take(&mut self.answers), end };
        // A connection that is gone has no use for it.
        let _ = self.events.send(ConnectionEvent::Returned(serial, Box::new(returned)));
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        self.go_back(Some(internal_error()));
    }
}

fn internal_error() -> (LdapResult, Vec<ControlBuf>) {
    (LdapResult::internal_error(), Vec::new())
}

impl RunningSearch {
    pub(super) fn is_long(&self) -> bool {
        let is_dear = self.slices > 0 && self.search.is_dear();
        (self.slices >= SLICES_HERE || is_dear) && !self.search.waits()
    }
}

impl Dispatcher {
    pub(super) fn send_search_to_background(
        &self,
        mut running: RunningSearch,
    ) -> SearchLocation<RunningSearch, BackgroundSearch> {
        let pool = &self.server.long_searches;
        if !pool.has_thread() {
            // It asks for threads again when it has been worked at for as long once more.
            running.slices = 0;
            return SearchLocation::OnLoop(running);
        }
        let watch = Arc::<Watch>::default();
        watch.candidates.store(running.search.effort().candidates, Ordering::Relaxed);
        let background_search = BackgroundSearch {
            in_flight: running.in_flight,
            answered: running.counted,
            watch: Arc::clone(&watch),
        };
        let answers = std::mem::take(&mut running.spare);
        let (server, events) = (Arc::clone(&self.server), self.events.clone());
        pool.push(Box::new(Journey { server, running: Some(running), answers, watch, events }));
        SearchLocation::InBackground(background_search)
    }

    pub(super) fn search_returned(
        &self,
        operation: Operation,
        returned: ReturnedSearch,
        out: &mut Vec<u8>,
    ) -> Option<RunningSearch> {
        let ReturnedSearch { mut running, mut answers, end } = returned;
        if out.is_empty() {
            std::mem::swap(out, &mut answers);
        } else {
            out.append(&mut answers);
        }
        self.count_new_entries(&mut running);
        if let Some((result, controls)) = end {
            encode::result(out, operation.id, ResponseOp::SearchDone, &result, &controls);
            self.finish(&running.in_flight, &result, Some(running.search.effort()));
            return None;
        }
        running.spare = answers;
        Some(running)
    }
}

#[cfg(test)]
mod tests;
