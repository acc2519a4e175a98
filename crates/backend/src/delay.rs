//! Answers that are to come after a time: one thread of the process wakes for the earliest, and no loop waits.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// What waits at once; more is not taken.
pub const DELAYED_LIMIT: usize = 10_000;

/// What is done after a time. It must not block.
type Work = Box<dyn FnOnce() + Send>;

/// Work by when it is due, and a number.
type Waiting = BTreeMap<(Duration, u64), Work>;

/// What waits for its time.
pub struct Delays {
    start: Instant,
    /// The time of a test; none: the clock's.
    stopped: Option<Mutex<Duration>>,
    waiting: Mutex<(Waiting, u64)>,
    changed: Condvar,
}

impl Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delays").finish_non_exhaustive()
    }
}

/// Work that waits. It can be given up.
#[derive(Debug)]
pub struct Delayed {
    delays: Weak<Delays>,
    key: (Duration, u64),
}

impl Delayed {
    /// The work is not done, unless it has begun.
    pub fn give_up(self) {
        if let Some(delays) = self.delays.upgrade() {
            let work = delays.waiting.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&self.key);
            // Its drop may take locks of its own.
            drop(work);
        }
    }
}

impl Delays {
    #[expect(
        clippy::disallowed_methods,
        reason = "its thread waits by this clock; in a test time stands still"
    )]
    fn new(stopped: Option<Mutex<Duration>>) -> Arc<Self> {
        let (waiting, changed) = (Mutex::new((BTreeMap::new(), 0)), Condvar::new());
        Arc::new(Self { start: Instant::now(), stopped, waiting, changed })
    }

    /// Those of the process. Their thread begins with the first use.
    pub fn of_process() -> &'static Arc<Self> {
        static DELAYS: OnceLock<Arc<Delays>> = OnceLock::new();
        DELAYS.get_or_init(|| {
            let delays = Self::new(None);
            let served = Arc::clone(&delays);
            // Without the thread what waits is answered never, and can be given up.
            let _ = thread::Builder::new().name("delays".to_owned()).spawn(move || served.serve());
            delays
        })
    }

    /// Those of a test, which stand still until the test says how much time has passed.
    pub fn standing_still() -> Arc<Self> {
        Self::new(Some(Mutex::new(Duration::ZERO)))
    }

    /// Does the work after this time.
    ///
    /// # Errors
    /// The work, where too much waits.
    pub fn after(self: &Arc<Self>, delay: Duration, work: Work) -> Result<Delayed, Work> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.0.len() >= DELAYED_LIMIT {
            return Err(work);
        }
        let key = (self.now().saturating_add(delay), waiting.1);
        waiting.1 += 1;
        waiting.0.insert(key, work);
        drop(waiting);
        self.changed.notify_one();
        Ok(Delayed { delays: Arc::downgrade(self), key })
    }

    /// Lets time pass, for those that stand still.
    pub fn pass(&self, time: Duration) {
        if let Some(now) = &self.stopped {
            let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
            *now = now.saturating_add(time);
        }
        while let Some(work) = self.due() {
            work();
        }
    }

    fn now(&self) -> Duration {
        match &self.stopped {
            Some(now) => *now.lock().unwrap_or_else(PoisonError::into_inner),
            None => self.start.elapsed(),
        }
    }

    fn due(&self) -> Option<Work> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waiting.0.first_entry()?;
        (first.key().0 <= self.now()).then(|| first.remove())
    }

    fn serve(&self) {
        loop {
            while let Some(work) = self.due() {
                // What panics has lost its own answer, and no other's.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let until = waiting.0.first_key_value().map(|(key, _)| key.0.saturating_sub(self.now()));
            match until {
                Some(time) => drop(self.changed.wait_timeout(waiting, time)),
                None => drop(self.changed.wait(waiting)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use super::*;

    #[test]
    fn work_is_done_in_the_order_in_which_it_is_due() {
        let (delays, done) = (Delays::standing_still(), Arc::new(Mutex::new(Vec::new())));
        let work = |name: &'static str| -> Work {
            let done = Arc::clone(&done);
            Box::new(move || done.lock().unwrap().push(name))
        };
        let second = Duration::from_secs(1);
        let delayed: Vec<Delayed> = [(3, "c"), (1, "a"), (2, "b"), (2, "given up"), (2, "b again")]
            .into_iter()
            .map(|(seconds, name)| delays.after(second * seconds, work(name)).map_err(|_| ()).unwrap())
            .collect();
        delayed.into_iter().nth(3).unwrap().give_up();
        for expected in [&["a"][..], &["a", "b", "b again"], &["a", "b", "b again", "c"]] {
            delays.pass(second);
            assert_eq!(*done.lock().unwrap(), expected);
        }
    }

    #[test]
    fn too_much_is_handed_back() {
        let delays = Delays::standing_still();
        for _ in 0..DELAYED_LIMIT {
            assert!(delays.after(Duration::ZERO, Box::new(|| {})).is_ok());
        }
        assert!(delays.after(Duration::ZERO, Box::new(|| {})).is_err());
        delays.pass(Duration::ZERO);
        assert!(delays.after(Duration::ZERO, Box::new(|| {})).is_ok());
    }
}
