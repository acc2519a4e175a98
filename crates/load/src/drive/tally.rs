//! What one thread counts.

use hdrhistogram::Histogram;

use super::report::{OperationReport, Unexpected, empty_latency};
use super::requests::Requests;

/// Most different wrong answers that are counted apart; the rest is counted as one.
const KINDS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Tally {
    pub(super) steps: Vec<StepTally>,
    pub(super) failures: Vec<(u32, u64)>,
    wrong: Vec<(usize, Wrong, u64)>,
    pub(super) samples: Vec<SampleTally>,
    /// Nanoseconds on the worker's clock; `u64::MAX` if it takes no more samples.
    next_sample: u64,
    every: u64,
    end: u64,
}

#[derive(Debug)]
pub(super) struct StepTally {
    pub(super) report: OperationReport,
    expected_entries: Option<u64>,
    /// The latencies since the last sample, which are then added to the report's.
    interval: Histogram<u64>,
}

/// What was answered in one interval.
#[derive(Debug)]
pub(super) struct SampleTally {
    pub(super) operations: u64,
    pub(super) latency_us: Histogram<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wrong {
    Code(u32),
    Entries { got: u64, expected: u64 },
    Other,
}

impl Tally {
    pub(super) fn new(requests: &Requests<'_>) -> Self {
        let steps = requests.steps().map(|step| StepTally {
            report: OperationReport {
                name: step.name.clone(),
                operations: 0,
                failures: 0,
                entries: 0,
                latency_us: empty_latency(),
            },
            expected_entries: step.expect.entries,
            interval: empty_latency(),
        });
        Self {
            steps: steps.collect(),
            failures: Vec::new(),
            wrong: Vec::new(),
            samples: Vec::new(),
            next_sample: u64::MAX,
            every: 0,
            end: 0,
        }
    }

    /// Takes a sample `every` so many nanoseconds from `begin` to `end`; 0 takes none.
    pub(super) const fn sample(&mut self, begin: u64, end: u64, every: u64) {
        self.every = every;
        self.end = end;
        self.next_sample = if every == 0 { u64::MAX } else { begin.saturating_add(every) };
    }

    pub(super) const fn next_sample(&self) -> u64 {
        self.next_sample
    }

    /// Counts one result.
    #[inline]
    pub(super) fn count(&mut self, step: usize, code: u32, expected: bool, entries: u64, micros: u64) {
        let Some(tally) = self.steps.get_mut(step) else { return };
        tally.report.operations += 1;
        tally.report.entries += entries;
        tally.interval.saturating_record(micros);
        if !expected {
            tally.report.failures += 1;
            add(&mut self.failures, &code);
            self.wrong(step, Wrong::Code(code));
        } else if let Some(expected) = tally.expected_entries
            && expected != entries
            && code == 0
        {
            self.wrong(step, Wrong::Entries { got: entries, expected });
        }
    }

    #[cold]
    fn wrong(&mut self, step: usize, wrong: Wrong) {
        let full = self.wrong.len() >= KINDS_MAX;
        let known = |wrong| self.wrong.iter().position(|(s, w, _)| (*s, *w) == (step, wrong));
        let at = known(wrong).or_else(|| if full { known(Wrong::Other) } else { None });
        match at.and_then(|at| self.wrong.get_mut(at)) {
            Some((_, _, count)) => *count += 1,
            None if full => self.wrong.push((step, Wrong::Other, 1)),
            None => self.wrong.push((step, wrong, 1)),
        }
    }

    /// Closes the intervals that ended before `now`.
    #[inline]
    pub(super) fn tick(&mut self, now: u64) {
        while now >= self.next_sample && self.next_sample <= self.end {
            self.close_interval();
        }
    }

    #[cold]
    fn close_interval(&mut self) {
        // Two digits are enough for a point on a chart.
        let mut latency_us = Histogram::new_with_bounds(1, super::report::LATENCY_US_MAX, 2)
            .unwrap_or_else(|_| unreachable!("the bounds and the precision are in range"));
        let mut operations = 0;
        for step in &mut self.steps {
            operations += step.interval.len();
            for value in step.interval.iter_recorded() {
                latency_us.saturating_record_n(value.value_iterated_to(), value.count_at_value());
            }
            step.fold();
        }
        self.samples.push(SampleTally { operations, latency_us });
        self.next_sample = self.next_sample.saturating_add(self.every);
        if self.next_sample > self.end {
            self.next_sample = u64::MAX;
        }
    }

    /// What was counted is complete.
    pub(super) fn finish(&mut self) {
        self.steps.iter_mut().for_each(StepTally::fold);
    }

    pub(super) fn unexpected(&self) -> impl Iterator<Item = Unexpected> {
        self.wrong.iter().filter_map(|(step, wrong, count)| {
            let step = self.steps.get(*step)?.report.name.clone();
            let what = match wrong {
                Wrong::Code(code) => format!("result {code}"),
                Wrong::Entries { got, expected } => {
                    format!("{got} {} instead of {expected}", if *got == 1 { "entry" } else { "entries" })
                }
                Wrong::Other => "other answers".to_owned(),
            };
            Some(Unexpected { step, what, count: *count })
        })
    }
}

impl StepTally {
    fn fold(&mut self) {
        // Both have the same bounds and precision.
        let _ = self.report.latency_us.add(&self.interval);
        self.interval.reset();
    }
}

/// One more of `key`.
fn add(counts: &mut Vec<(u32, u64)>, key: &u32) {
    match counts.iter_mut().find(|(known, _)| known == key) {
        Some((_, count)) => *count += 1,
        None => counts.push((*key, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Operation, Step, Workload};

    #[test]
    fn wrong_answers_are_told_apart_and_bounded() {
        let workload = Workload::new(1).with(Step::new(1, Operation::read("a=b")));
        let mut tally = Tally::new(&Requests::new(&workload, 0, 1).unwrap());
        tally.count(0, 0, true, 1, 5);
        tally.count(0, 0, true, 0, 5);
        tally.count(0, 32, false, 0, 5);
        tally.count(0, 32, false, 0, 5);
        for code in 100..200 {
            tally.count(0, code, false, 0, 5);
        }
        tally.finish();
        let unexpected: Vec<Unexpected> = tally.unexpected().collect();
        assert_eq!((unexpected[0].what.as_str(), unexpected[0].count), ("0 entries instead of 1", 1));
        assert_eq!((unexpected[1].what.as_str(), unexpected[1].count), ("result 32", 2));
        assert_eq!(unexpected.len(), KINDS_MAX + 1);
        assert_eq!(unexpected.iter().map(|unexpected| unexpected.count).sum::<u64>(), 103);
        assert_eq!((tally.steps[0].report.failures, tally.steps[0].report.latency_us.len()), (102, 104));
    }

    #[test]
    fn samples_are_full_intervals_within_the_measurement() {
        let workload = Workload::new(1).with(Step::new(1, Operation::read("a=b")));
        let mut tally = Tally::new(&Requests::new(&workload, 0, 1).unwrap());
        tally.sample(100, 135, 10);
        for now in [105, 109, 111, 131, 137] {
            tally.tick(now);
            tally.count(0, 0, true, 1, now);
        }
        tally.tick(200);
        tally.finish();
        let operations: Vec<u64> = tally.samples.iter().map(|sample| sample.operations).collect();
        assert_eq!(operations, [2, 1, 0]);
        assert_eq!(tally.samples[0].latency_us.max(), 109);
        assert_eq!(tally.steps[0].report.latency_us.len(), 5);
    }
}
