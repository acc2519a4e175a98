//! Reasons that have been logged, so that a fault that lasts is not logged with every attempt.

use std::collections::VecDeque;
use std::time::Duration;

use larix_engine::time::Monotonic;

/// So many are remembered.
const REASONS_MAX: usize = 16;

/// What has been logged. Reasons that differ in their numbers alone are the same: a time, a port, a count of milliseconds.
#[derive(Default)]
pub(super) struct Reasons {
    said: VecDeque<(String, Monotonic)>,
}

impl Reasons {
    /// Whether to log this: none like it was since the last [clear](Self::clear), or for so long.
    pub(super) fn is_new(&mut self, why: &str, now: Monotonic, again: Option<Duration>) -> bool {
        let reason: String = why.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if let Some(again) = again {
            self.said.retain(|(_, at)| u128::from(now.0.saturating_sub(at.0)) < again.as_nanos());
        }
        if self.said.iter().any(|(said, _)| *said == reason) {
            return false;
        }
        if self.said.len() >= REASONS_MAX {
            self.said.pop_front();
        }
        self.said.push_back((reason, now));
        true
    }

    /// The fault has passed: whatever comes next is logged.
    pub(super) fn clear(&mut self) {
        self.said.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_whatever_its_numbers() {
        let mut reasons = Reasons::default();
        for (second, why, expected) in [
            (0, "expired (the clock says 15:31:09)", true),
            (1, "expired (the clock says 15:31:10)", false),
            (2, "the connection ended", true),
            (3, "expired (the clock says 15:31:12)", false),
            (4, "the connection ended", false),
        ] {
            assert_eq!(reasons.is_new(why, Monotonic(second), None), expected, "{second}: {why}");
        }
        reasons.clear();
        assert!(reasons.is_new("the connection ended", Monotonic(5), None));
    }

    #[test]
    fn a_reason_is_logged_again_when_its_time_is_over() {
        let mut reasons = Reasons::default();
        let again = Some(Duration::from_nanos(60));
        for (at, expected) in [(0, true), (59, false), (60, true), (61, false)] {
            assert_eq!(reasons.is_new("no room", Monotonic(at), again), expected, "{at}");
        }
        // The oldest are forgotten.
        let names = ('a'..='z').map(String::from);
        assert!(names.clone().all(|name| reasons.is_new(&name, Monotonic(62), None)));
        assert!(names.take(1).all(|name| reasons.is_new(&name, Monotonic(63), None)));
    }
}
