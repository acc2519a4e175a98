//! How far behind the consumers are that this node serves. A log in a shared engine is not read where that is asked: it would wait for the engine.
//! The thread that hears of commits looks while consumers are connected, and keeps what it has seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::log::LogKey;
use larix_engine::time::{Clock, Monotonic};
use larix_engine::{Database, Fault};
use larix_kv::take_read_fault;
use larix_replication::provider::{Behind, SyncPeers};
use larix_store::Store as _;

use super::SharedStore;
use crate::clock::SystemClock;

/// The shortest time between two looks.
pub(super) const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Places of consumers that one look is for, those furthest behind first. Of others the records are counted from the last of these.
const POSITIONS_MAX: usize = 256;

/// What was seen of the log behind the places of consumers.
#[derive(Debug, Default)]
pub(crate) struct Lags(Mutex<BTreeMap<u64, Behind>>);

impl Lags {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Behind>> {
        // Each change of it is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is behind this place, by the last look; none if that saw no consumer at or before it.
    pub(super) fn behind(&self, position: u64) -> Option<Behind> {
        let seen = self.lock();
        let (at, behind) = seen.range(..=position).next_back()?;
        let records = behind.records.saturating_sub(position - at);
        // A consumer that has moved on since: the next one that it lacks was made later.
        Some(Behind { records, since: behind.since.filter(|_| records > 0) })
    }

    fn look(&self, database: &Database<SharedStore>, peers: &SyncPeers) {
        let positions = peers.positions(database.instance());
        let look = || -> Result<BTreeMap<u64, Behind>, Fault> {
            if positions.is_empty() {
                return Ok(BTreeMap::new());
            }
            let (snapshot, server_id) = (database.store().snapshot()?, database.server_id());
            let seen = positions.into_iter().take(POSITIONS_MAX);
            seen.map(|sequence| Ok((sequence, Behind::of(&snapshot, LogKey { server_id, sequence })?)))
                .collect()
        };
        take_read_fault();
        let seen = look().ok();
        // What could not be read is not known.
        let is_whole = take_read_fault().is_none();
        *self.lock() = seen.filter(|_| is_whole).unwrap_or_default();
    }

    /// Nothing is known any more.
    fn forget(&self) {
        self.lock().clear();
    }
}

/// The thread's own.
pub(super) struct Looks {
    pub(super) lags: Arc<Lags>,
    pub(super) peers: Arc<SyncPeers>,
    pub(super) clock: Arc<SystemClock>,
    pub(super) last: Option<Monotonic>,
}

impl Looks {
    /// Looks, if that is due; whether consumers are connected.
    pub(super) fn look(&mut self, database: &Database<SharedStore>) -> bool {
        let now = self.clock.monotonic();
        let is_due =
            self.last.is_none_or(|last| u128::from(now.0.saturating_sub(last.0)) >= LOOK_PAUSE.as_nanos());
        if is_due {
            self.last = Some(now);
            self.lags.look(database, &self.peers);
        }
        !self.peers.positions(database.instance()).is_empty()
    }

    /// The engine does not answer.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.lags.forget();
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;

    use super::*;

    #[test]
    fn a_consumer_that_has_moved_on_since_is_less_behind() {
        let lags = Lags::default();
        assert_eq!(lags.behind(7), None);
        let since = Some(Timestamp(1_000));
        lags.lock().extend([(5, Behind { records: 4, since }), (9, Behind::default())]);
        for (position, records) in [(5, 4), (6, 3), (8, 1), (9, 0), (12, 0)] {
            let expected = Behind { records, since: since.filter(|_| records > 0) };
            assert_eq!(lags.behind(position), Some(expected), "{position}");
        }
        assert_eq!(lags.behind(4), None);
    }
}
