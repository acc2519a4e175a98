//! How long operations take: by kind, and by database.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use larix_engine::histogram::{Durations, Histogram};

use super::OperationKind;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Bounds in nanoseconds under which metrics tell how many operations there were.
pub(crate) const BOUNDS: [u64; 19] = [
    10 * MICROSECOND,
    20 * MICROSECOND,
    50 * MICROSECOND,
    100 * MICROSECOND,
    200 * MICROSECOND,
    500 * MICROSECOND,
    MILLISECOND,
    2 * MILLISECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    20 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    200 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
];

/// Databases that a worker tells apart; what others take is counted by operation alone.
pub(crate) const DATABASES_MAX: usize = 32;

type ByKind = [OnceLock<Box<Histogram>>; OperationKind::ALL.len()];

/// What one worker recorded.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// In no database, or in one too many.
    elsewhere: ByKind,
    databases: [OfDatabase; DATABASES_MAX],
}

#[derive(Debug, Default)]
struct OfDatabase {
    /// The database's instance; 0: none yet.
    instance: AtomicU64,
    kinds: ByKind,
}

impl Latencies {
    /// By the worker alone. `instance`: of the database that it was in; 0 for none.
    pub(super) fn record(&self, kind: OperationKind, instance: u64, nanoseconds: u64) {
        let histogram = self.kinds_of(instance).get(kind as usize);
        histogram.into_iter().for_each(|histogram| histogram.get_or_init(Box::default).record(nanoseconds));
    }

    fn kinds_of(&self, instance: u64) -> &ByKind {
        for slot in self.databases.iter().filter(|_| instance != 0) {
            match slot.instance.load(Ordering::Relaxed) {
                0 => slot.instance.store(instance, Ordering::Relaxed),
                other if other != instance => continue,
                _ => {}
            }
            return &slot.kinds;
        }
        &self.elsewhere
    }

    pub(super) fn add_to(&self, kind: OperationKind, sums: &mut Durations) {
        add(&self.elsewhere, kind, sums);
        self.databases.iter().for_each(|slot| add(&slot.kinds, kind, sums));
    }

    pub(super) fn add_database_to(&self, instance: u64, kind: OperationKind, sums: &mut Durations) {
        let slots = self.databases.iter();
        let own = slots.filter(|slot| slot.instance.load(Ordering::Relaxed) == instance);
        own.for_each(|slot| add(&slot.kinds, kind, sums));
    }
}

fn add(kinds: &ByKind, kind: OperationKind, sums: &mut Durations) {
    let histogram = kinds.get(kind as usize).and_then(OnceLock::get);
    histogram.into_iter().for_each(|histogram| histogram.add_to(sums));
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Notes which database the request at hand is in.
pub(crate) fn in_database(instance: u64) {
    CURRENT.set(instance);
}

/// The database that was noted last, and none from now on.
pub(crate) fn take_database() -> u64 {
    CURRENT.replace(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_kind_and_by_database() {
        let latencies = Latencies::default();
        latencies.record(OperationKind::Search, 0, 1_000);
        latencies.record(OperationKind::Search, 7, 1_000);
        latencies.record(OperationKind::Add, 8, 1_000);
        let check = |kind, instance: Option<u64>, expected| {
            let mut sums = Durations::default();
            match instance {
                Some(instance) => latencies.add_database_to(instance, kind, &mut sums),
                None => latencies.add_to(kind, &mut sums),
            }
            assert_eq!(sums.count(), expected, "{kind:?} {instance:?}");
        };
        check(OperationKind::Search, None, 2);
        check(OperationKind::Search, Some(7), 1);
        check(OperationKind::Search, Some(8), 0);
        check(OperationKind::Add, Some(8), 1);
        check(OperationKind::Delete, None, 0);
    }

    #[test]
    fn a_database_too_many_is_counted_by_operation_alone() {
        let latencies = Latencies::default();
        (1..=DATABASES_MAX as u64 + 1).for_each(|n| latencies.record(OperationKind::Search, n, 1));
        let mut sums = Durations::default();
        latencies.add_to(OperationKind::Search, &mut sums);
        assert_eq!(sums.count(), DATABASES_MAX as u64 + 1);
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.is_sorted());
    }
}
