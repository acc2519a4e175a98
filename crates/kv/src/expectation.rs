//! The right to commit that a handle is about to get: who wants to commit before that waits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Until when a right is expected, if it is, by the clock of its users.
#[derive(Debug, Default)]
pub(crate) struct Expectation {
    until: Mutex<Option<Duration>>,
    changed: Condvar,
}

impl Expectation {
    fn lock(&self) -> MutexGuard<'_, Option<Duration>> {
        // It is whole at every step.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, until: Duration) {
        *self.lock() = Some(until);
    }

    /// Whether a right is still expected.
    pub(crate) fn is_on(&self, now: Duration) -> bool {
        self.lock().is_some_and(|until| until > now)
    }

    /// The right has come, or does not come: who waits looks.
    pub(crate) fn end(&self) {
        *self.lock() = None;
        self.changed.notify_all();
    }

    /// Waits while a right is expected and is not there. Whether it was to be there by now and is not.
    pub(crate) fn wait(&self, has_come: impl Fn() -> bool, now: impl Fn() -> Duration) -> bool {
        let mut until = self.lock();
        loop {
            let Some(end) = *until else { return false };
            if has_come() {
                return false;
            }
            let left = end.saturating_sub(now());
            if left.is_zero() {
                return true;
            }
            until = self.changed.wait_timeout(until, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_expected_is_waited_for_and_no_longer_than_that() {
        const HOUR: Duration = Duration::from_secs(3600);
        let (expectation, none) = (Expectation::default(), || Duration::ZERO);
        assert!(!expectation.wait(|| false, none) && !expectation.is_on(Duration::ZERO));
        expectation.begin(HOUR);
        assert!(expectation.is_on(Duration::ZERO) && !expectation.is_on(HOUR));
        assert!(!expectation.wait(|| true, none), "it has come");
        assert!(expectation.wait(|| false, || HOUR), "it is late");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| expectation.wait(|| false, none));
            expectation.end();
            assert!(!waiting.join().expect("an end"), "it does not come any more");
        });
        // The clock is asked each time.
        expectation.begin(Duration::from_millis(2));
        let asked = Cell::new(0);
        let now = || Duration::from_millis(asked.replace(asked.get() + 1));
        assert!(expectation.wait(|| false, now) && asked.get() > 1);
    }
}
