//! Searches of a log wait until it has what was done before them.

use std::sync::{Arc, Weak};

use larix_backend::StepOutcome;
use larix_engine::log::Follower;
use larix_engine::time::{Clock, Monotonic};

use super::follower::LogWriter;
use super::{Source, StoredDatabase};
use crate::clock::SystemClock;
use crate::overlay_threads::OverlayHost;

/// What a search of a log waits for. It keeps no database open, and what is gone is not waited for.
#[derive(Debug)]
pub(crate) struct Gate<H: OverlayHost = StoredDatabase> {
    pub(super) sources: Vec<(Weak<Source<H>>, u64)>,
    pub(super) log: Weak<LogWriter<H>>,
    pub(super) handed_over: u64,
    pub(super) until: Monotonic,
    pub(super) clock: Arc<SystemClock>,
    /// Who waits.
    pub(super) follower: Option<Arc<Follower>>,
}

impl<H: OverlayHost> Gate<H> {
    /// Whom to tell when it may be open.
    pub(crate) fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(log) = self.log.upgrade() {
            log.watch().follow(&follower);
        }
        self.follower = Some(follower);
    }

    /// What a search answers in front of a closed gate. One that is open is taken away.
    pub(crate) fn closed(gate: &mut Option<Self>) -> Option<StepOutcome> {
        let closed = gate.as_ref().filter(|gate| !gate.is_open());
        // A search with a follower hears when the gate opens, and need not ask before.
        let answer =
            closed.map(|gate| if gate.follower.is_some() { StepOutcome::Waiting } else { StepOutcome::More });
        if answer.is_none() {
            *gate = None;
        }
        answer
    }

    /// Whether all of it is recorded, this server records no longer, or it has taken too long.
    fn is_open(&self) -> bool {
        self.follower.iter().for_each(|follower| follower.looks());
        let has_recorded = |(source, committed): &(Weak<Source<H>>, u64)| {
            source.upgrade().is_none_or(|source| source.has_recorded(*committed))
        };
        let has_handled =
            |log: Arc<LogWriter<H>>| log.host().term().is_none() || log.handled() >= self.handed_over;
        (self.sources.iter().all(has_recorded) && self.log.upgrade().is_none_or(has_handled))
            || self.clock.monotonic() >= self.until
    }
}
