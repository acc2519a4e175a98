//! Searches of a log wait until it has what was done before them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use larix_engine::log::Follower;
use larix_engine::time::{Clock, Monotonic};

use super::follower::LogWriter;
use super::{Source, Stored};
use crate::clock::SystemClock;

/// What a search of a log waits for. It keeps no database open, and what is gone is not waited for.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(super) sources: Vec<(Weak<Source<Stored>>, u64)>,
    pub(super) log: Weak<LogWriter<Stored>>,
    pub(super) handed_over: u64,
    pub(super) until: Monotonic,
    /// Who waits.
    pub(super) follower: Option<Arc<Follower>>,
}

impl Gate {
    /// Whom to tell when it may be open.
    pub(crate) fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(log) = self.log.upgrade() {
            log.watch().follow(&follower);
        }
        self.follower = Some(follower);
    }

    /// Whether a follower will be notified, so that it need not ask before.
    pub(crate) fn tells(&self) -> bool {
        self.follower.is_some()
    }

    /// Whether all of it is recorded, or it has taken too long.
    pub(crate) fn is_open(&self, clock: &SystemClock) -> bool {
        self.follower.iter().for_each(|follower| follower.looks());
        let reached = |(source, committed): &(Weak<Source<Stored>>, u64)| {
            let has_reached = |source: Arc<Source<Stored>>| {
                source.reached.load(Ordering::Acquire) >= *committed || source.has_ended()
            };
            source.upgrade().is_none_or(has_reached)
        };
        let has_handled = |log: Arc<LogWriter<Stored>>| log.handled() >= self.handed_over;
        (self.sources.iter().all(reached) && self.log.upgrade().is_none_or(has_handled))
            || clock.monotonic() >= self.until
    }
}
