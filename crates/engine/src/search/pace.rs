//! How far a slice goes: a number of candidates, and a time, whichever ends first. Others wait for no longer than that.

use larix_proto::ResultCode;

use super::task::{Budget, End, Step};
use crate::time::Monotonic;

/// Candidates between two looks at the clock: some microseconds each, a look takes less than a tenth of one.
const LOOK_INTERVAL: u32 = 8;
/// After so many steps of work ([`crate::budget::Meter`]) a slice looks at the clock before the next candidate: some 20 us.
const LOOK_STEPS: u64 = 512;

/// Steps that one candidate may take on its worker, about as long as a slice. If a candidate needs more, the worker leaves it to a
/// thread for which no client waits.
pub(super) const STEPS_HERE: u64 = 4_000;

/// What is left of a slice.
#[derive(Debug)]
pub(super) struct Pace<'b> {
    budget: Budget<'b>,
    candidates: u32,
    /// Steps since the last look at the clock.
    steps: u64,
    /// When the slice began, or was first known to run.
    began: Option<Monotonic>,
    /// The end of the search's time.
    deadline: Option<Monotonic>,
}

impl<'b> Pace<'b> {
    /// `resumed`: it is not the first slice of its search. Most searches end in that one, before it is worth a look at
    /// the clock.
    ///
    /// # Errors
    /// timeLimitExceeded.
    pub(super) fn new(budget: Budget<'b>, deadline: Option<Monotonic>, resumed: bool) -> Result<Self, End> {
        let mut pace = Self { budget, candidates: 0, steps: 0, began: None, deadline };
        if resumed {
            pace.look()?;
        }
        Ok(pace)
    }

    /// Bytes of output after which the slice has to end.
    pub(super) fn bytes(&self) -> usize {
        self.budget.bytes
    }

    /// Takes up the next candidate. A step: the slice has to end before it.
    ///
    /// # Errors
    /// timeLimitExceeded.
    pub(super) fn next(&mut self) -> Result<Option<Step>, End> {
        if self.candidates >= self.budget.candidates {
            return Ok(Some(Step::More));
        }
        let is_time = self.candidates.is_multiple_of(LOOK_INTERVAL) || self.steps >= LOOK_STEPS;
        if self.candidates > 0 && is_time && self.look()? {
            return Ok(Some(Step::More));
        }
        self.candidates += 1;
        Ok(None)
    }

    /// Notes the work that the candidate took. One of very many steps ends the slice.
    #[inline]
    pub(super) fn spend(&mut self, steps: u64) {
        self.steps += steps;
        if self.steps >= STEPS_HERE {
            self.candidates = self.candidates.max(self.budget.candidates);
        }
    }

    /// Whether the slice's time is over.
    fn look(&mut self) -> Result<bool, End> {
        self.steps = 0;
        let now = self.budget.clock.monotonic();
        if self.deadline.is_some_and(|deadline| now > deadline) {
            return Err(ResultCode::TIME_LIMIT_EXCEEDED.into());
        }
        let began = *self.began.get_or_insert(now);
        Ok(now.0.saturating_sub(began.0) >= self.budget.nanos)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::time::{Clock, Timestamp};

    /// A clock that goes on by so many nanoseconds each time it is looked at.
    #[derive(Debug)]
    struct Ticking(AtomicU64, u64);

    impl Clock for Ticking {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn monotonic(&self) -> Monotonic {
            Monotonic(self.0.fetch_add(self.1, Ordering::Relaxed))
        }
    }

    #[test]
    fn a_slice_ends_by_candidates_or_by_time() {
        let check = |tick: u64, resumed: bool, most: u32, want: u32| {
            let clock = Ticking(AtomicU64::new(0), tick);
            let budget = Budget { candidates: most, bytes: 0, nanos: 100, clock: &clock };
            let mut pace = Pace::new(budget, None, resumed).ok().unwrap();
            let mut taken = 0;
            while let Ok(None) = pace.next() {
                taken += 1;
            }
            assert_eq!(taken, want, "{tick} {resumed} {most}");
        };
        check(0, false, 100, 100);
        check(0, true, 1, 1);
        // The first look of a first slice tells when it began.
        check(100, false, 100, 16);
        check(100, true, 100, 8);
        check(50, true, 100, 16);
        check(30, false, 100, 40);
        check(1_000, true, 5, 5);
    }

    #[test]
    fn the_time_limit_ends_a_search_however_short_its_slices() {
        let check = |candidates: u32, resumed: bool, want: u32| {
            let clock = Ticking(AtomicU64::new(1_000), 1);
            let budget = Budget { candidates, bytes: 0, nanos: 100, clock: &clock };
            let Ok(mut pace) = Pace::new(budget, Some(Monotonic(10)), resumed) else {
                return assert_eq!(0, want, "{candidates} {resumed}");
            };
            let mut taken = 0;
            let end = loop {
                match pace.next() {
                    Ok(None) => taken += 1,
                    Ok(Some(step)) => break Ok(step),
                    Err(end) => break Err(end),
                }
            };
            assert_eq!((taken, end.is_err()), (want, candidates > 8), "{candidates} {resumed}");
        };
        check(1, true, 0);
        check(100, true, 0);
        check(100, false, 8);
        check(4, false, 4);
    }
}
