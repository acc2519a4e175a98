//! Counts events, and writes a line to the log now and then.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use larix_engine::time::Monotonic;

/// Lines are this far apart, in nanoseconds; the number in them counts all events.
const TELL_INTERVAL: u64 = 1_000_000_000;

/// One kind of event.
pub struct Counted {
    count: AtomicU64,
    /// Before then no line is written.
    quiet_until: AtomicU64,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Counted {
    /// `tell` gets lines for the log.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { count: AtomicU64::new(0), quiet_until: AtomicU64::new(0), tell: Box::new(tell) }
    }

    /// Counts one. `text` is what the log gets before the number, unless it got a line just before.
    pub(super) fn count(&self, now: Monotonic, text: impl FnOnce() -> String) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        let next = now.0.saturating_add(TELL_INTERVAL);
        let is_mine = now.0 >= quiet_until
            && self
                .quiet_until
                .compare_exchange(quiet_until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            (self.tell)(&format!("{} ({count} since the start)", text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn all_are_counted_and_one_a_second_is_told() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lines);
        let counted = Counted::new(move |line| told.lock().unwrap().push(line.to_owned()));
        for (now, what) in
            [(0, "a"), (TELL_INTERVAL - 1, "b"), (TELL_INTERVAL, "c"), (TELL_INTERVAL + 1, "d")]
        {
            counted.count(Monotonic(now), || what.to_owned());
        }
        assert_eq!(*lines.lock().unwrap(), ["a (1 since the start)", "c (3 since the start)"]);
    }
}
