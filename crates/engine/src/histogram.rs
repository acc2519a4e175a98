//! Counts of durations by their size, a sixteenth of a power of two wide: percentiles are right within 6 %, from 64 ns to
//! twenty minutes. One thread records, without a lock; others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Durations are counted in so many nanoseconds.
const UNIT_BITS: u32 = 6;
/// Buckets of one power of two.
const PARTS_BITS: u32 = 4;
const PARTS: usize = 1 << PARTS_BITS;
/// The number of powers of two with buckets of their own.
const POWERS: usize = 31;
/// What took longer than all is in the last.
pub const BUCKETS: usize = PARTS * POWERS;

/// Durations of one thread's making.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], nanoseconds: AtomicU64::new(0) }
    }
}

/// A histogram at one moment; those of several threads add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    buckets: Box<[u64]>,
    /// All durations together.
    pub nanoseconds: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), nanoseconds: 0 }
    }
}

/// The bucket of a duration in nanoseconds.
fn bucket_of(nanoseconds: u64) -> usize {
    let units = nanoseconds >> UNIT_BITS;
    // Below the first power that is cut in parts, each unit has a bucket.
    let power = (units | (PARTS as u64 - 1)).ilog2() - (PARTS_BITS - 1);
    let part = (units >> power.saturating_sub(1)) as usize & (PARTS - 1);
    (power as usize * PARTS + part).min(BUCKETS - 1)
}

/// The longest duration, in nanoseconds, that is counted in a bucket.
fn end(bucket: usize) -> u64 {
    let (power, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    let units = match power.checked_sub(1) {
        None => part + 1,
        Some(shift) => (PARTS as u64 + part + 1) << shift,
    };
    (units << UNIT_BITS) - 1
}

impl Histogram {
    /// Counts a duration in nanoseconds. By one thread alone: others may read meanwhile.
    pub fn record(&self, nanoseconds: u64) {
        let add = |counter: &AtomicU64, count: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
        };
        self.buckets.get(bucket_of(nanoseconds)).into_iter().for_each(|bucket| add(bucket, 1));
        add(&self.nanoseconds, nanoseconds);
    }

    pub fn add_to(&self, sums: &mut Durations) {
        for (sum, bucket) in sums.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        sums.nanoseconds = sums.nanoseconds.wrapping_add(self.nanoseconds.load(Ordering::Relaxed));
    }
}

impl Durations {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The duration in nanoseconds that so many of a thousand did not exceed; 0 when nothing was counted.
    pub fn percentile(&self, per_mille: u64) -> u64 {
        let wanted = (self.count().saturating_mul(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, end)
    }

    /// How many durations are in the ranges that these bounds, rising, are the ends of, with one range more for what
    /// exceeds all. A bound that falls into a bucket counts that bucket into the next range.
    pub fn by_bounds(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let range = bounds.partition_point(|bound| *bound < end(bucket));
            counts.get_mut(range).into_iter().for_each(|sum| *sum += count);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_touch_and_are_narrow() {
        for bucket in 1..BUCKETS - 1 {
            let (first, last) = (end(bucket - 1) + 1, end(bucket));
            assert_eq!((bucket_of(first), bucket_of(last)), (bucket, bucket), "{first} to {last} ns");
            assert!(
                bucket < PARTS || (last - first) as f64 / first as f64 <= 1.0 / 16.0,
                "{first} to {last}"
            );
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
        assert!(end(BUCKETS - 2) > 1_000_000_000_000, "{} ns", end(BUCKETS - 2));
    }

    #[test]
    fn percentiles_are_near_the_exact_ones() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|n| histogram.record(n * 1_000));
        let mut sums = Durations::default();
        histogram.add_to(&mut sums);
        assert_eq!((sums.count(), sums.nanoseconds), (1000, 500_500_000));
        for (per_mille, exact) in [(500, 500_000), (900, 900_000), (990, 990_000), (1000, 1_000_000)] {
            let found = sums.percentile(per_mille);
            assert!((exact..exact + exact / 16 + 1).contains(&found), "{per_mille}: {found}");
        }
        assert_eq!(Durations::default().percentile(500), 0);
    }

    #[test]
    fn each_duration_is_below_the_next_bound() {
        let histogram = Histogram::default();
        [100, 1_000, 1_000_000, u64::MAX].into_iter().for_each(|n| histogram.record(n));
        let mut sums = Durations::default();
        histogram.add_to(&mut sums);
        assert_eq!(sums.by_bounds(&[500, 2_000, 3_000_000]), [1, 1, 1, 1]);
    }
}
