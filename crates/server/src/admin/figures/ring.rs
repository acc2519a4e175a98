//! The samples of one range. The place of a sample follows from its time, so old ones are written over.

use std::collections::BTreeSet;

use super::Range;
use super::sample::Sample;

/// So many places; what is older than all of them is gone.
#[derive(Debug)]
pub(super) struct Ring {
    range: &'static Range,
    places: Vec<Option<Sample>>,
    /// Places that are not in the file yet.
    changed: BTreeSet<usize>,
}

impl Ring {
    pub(super) fn new(range: &'static Range) -> Self {
        let places = (0..range.samples).map(|_| None).collect();
        Self { range, places, changed: BTreeSet::new() }
    }

    pub(super) fn range(&self) -> &'static Range {
        self.range
    }

    /// Adds what was counted to the interval in which its time is.
    pub(super) fn add(&mut self, counted: &Sample) {
        let (at, place) = self.interval_of(counted.at);
        let Some(slot) = self.places.get_mut(place) else { return };
        match slot {
            Some(sample) if sample.at == at => sample.merge(counted),
            _ => *slot = Some(counted.beginning(at)),
        }
        self.changed.insert(place);
    }

    /// Samples that begin in a span of time, the oldest first.
    pub(super) fn between(&self, first: i64, last: i64) -> impl Iterator<Item = &Sample> {
        let mut samples: Vec<_> =
            self.places.iter().flatten().filter(|sample| (first..=last).contains(&sample.at)).collect();
        samples.sort_by_key(|sample| sample.at);
        samples.into_iter()
    }

    /// Puts a sample from a file where it belongs; false: that is not `place`.
    pub(super) fn put(&mut self, place: usize, sample: Sample) -> bool {
        let belongs = self.interval_of(sample.at) == (sample.at, place);
        if let Some(slot) = self.places.get_mut(place).filter(|_| belongs) {
            *slot = Some(sample);
        }
        belongs
    }

    /// Places to be written, with their samples: all, or those that changed.
    pub(super) fn to_write(&self, all: bool) -> impl Iterator<Item = (usize, &Sample)> {
        let places = self.places.iter().enumerate();
        places
            .filter(move |(place, _)| all || self.changed.contains(place))
            .filter_map(|(place, sample)| Some((place, sample.as_ref()?)))
    }

    pub(super) fn written(&mut self) {
        self.changed.clear();
    }

    pub(super) fn forget(&mut self) {
        self.places.fill(None);
        self.changed.clear();
    }

    /// When the interval of a moment begins, and its place.
    fn interval_of(&self, at: i64) -> (i64, usize) {
        let interval = i64::from(self.range.seconds) * 1_000;
        let number = at.div_euclid(interval);
        let place = number.rem_euclid(i64::from(self.range.samples));
        (number.saturating_mul(interval), usize::try_from(place).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { name: "test", title: "", each: "", seconds: 10, samples: 3 };
    static TEST: Range = RANGE;

    fn counted(ring: &Ring, first: i64, last: i64) -> Vec<(i64, u64, u64, u32)> {
        ring.between(first, last).map(Sample::counted).collect()
    }

    #[test]
    fn samples_meet_in_their_interval_and_the_oldest_goes() {
        let mut ring = Ring::new(&TEST);
        for (at, count, connections) in [(1_000, 1, 5), (9_999, 2, 3), (10_000, 4, 1), (25_000, 8, 2)] {
            ring.add(&Sample::searches(at, count, connections));
        }
        let all = [(0, 4_000, 3, 5), (10_000, 2_000, 4, 1), (20_000, 2_000, 8, 2)];
        assert_eq!(counted(&ring, 0, 100_000), all);
        assert_eq!(counted(&ring, 1, 10_000), all[1..2]);
        assert_eq!(ring.to_write(false).count(), 3);
        ring.written();
        assert_eq!((ring.to_write(false).count(), ring.to_write(true).count()), (0, 3));
        // The fourth interval has the place of the first one.
        ring.add(&Sample::searches(30_001, 16, 1));
        assert_eq!(counted(&ring, 0, 100_000)[2], (30_000, 2_000, 16, 1));
        assert_eq!(ring.to_write(false).map(|(place, _)| place).collect::<Vec<_>>(), [0]);
        // A clock before 1970 and one that went back find a place, too.
        ring.add(&Sample::searches(-1, 1, 1));
        assert_eq!(counted(&ring, -10_000, -1), [(-10_000, 2_000, 1, 1)]);
        assert!(!ring.put(1, Sample::searches(0, 1, 1)) && !ring.put(0, Sample::searches(1, 1, 1)));
        assert!(ring.put(0, Sample::searches(0, 1, 1)));
    }
}
