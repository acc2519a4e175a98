//! How long operations take: counts by time, of one thread's making, that others only read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::add;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The upper bounds of the buckets in nanoseconds, each included; what took longer is in one more bucket.
pub const BOUNDS: [u64; 19] = [
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

/// Buckets with the one for what took longer than every bound.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// A histogram of durations. One thread records.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// A histogram at one moment; those of several threads add up.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyFigures {
    /// How many took at most the bound of the same place and more than the one before.
    pub buckets: [u64; BUCKETS],
    /// All durations together.
    pub nanoseconds: u64,
}

impl Latency {
    pub(crate) fn record(&self, nanoseconds: u64) {
        let place = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        self.buckets.get(place).into_iter().for_each(|bucket| add(bucket, 1));
        add(&self.nanoseconds, nanoseconds);
    }

    pub(crate) fn add_to(&self, figures: &mut LatencyFigures) {
        for (sum, bucket) in figures.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        figures.nanoseconds = figures.nanoseconds.wrapping_add(self.nanoseconds.load(Ordering::Relaxed));
    }
}

impl LatencyFigures {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_of_the_next_bound() {
        let check = |nanoseconds, place: usize| {
            let latency = Latency::default();
            latency.record(nanoseconds);
            let mut figures = LatencyFigures::default();
            latency.add_to(&mut figures);
            assert_eq!(figures.buckets.iter().position(|count| *count == 1), Some(place), "{nanoseconds} ns");
            assert_eq!((figures.count(), figures.nanoseconds), (1, nanoseconds));
        };
        check(0, 0);
        check(10 * MICROSECOND, 0);
        check(10 * MICROSECOND + 1, 1);
        check(MILLISECOND, 6);
        check(10 * SECOND, BUCKETS - 2);
        check(u64::MAX, BUCKETS - 1);
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.is_sorted());
    }
}
