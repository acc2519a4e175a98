//! How fast a backup may go, and how far it is.

use std::time::Duration;

use larix_configuration::values::Throttle;
use larix_engine::time::{Clock, Monotonic, Timestamp};

use super::BackupError;
use crate::clock::SystemClock;

/// How far something is, for people.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress<'p> {
    /// A file, or what is done.
    pub what: &'p str,
    pub done: u64,
    /// 0: unknown.
    pub total: u64,
    pub per_second: u64,
    pub seconds_left: Option<u64>,
}

/// Tells how far a backup is, and holds it back.
pub struct Pace<'p> {
    clock: SystemClock,
    /// The time of day.
    wall: Box<dyn Fn() -> Timestamp + 'p>,
    /// Bytes a second.
    limit: Option<u64>,
    /// Whether it rests as long as it worked.
    rests: bool,
    show: Box<dyn FnMut(&Progress<'_>) + 'p>,
    stop: Box<dyn Fn() -> bool + 'p>,
    what: String,
    total: u64,
    done: u64,
    started: Monotonic,
    shown: Monotonic,
    /// The end of the last rest.
    rested: Monotonic,
}

impl std::fmt::Debug for Pace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("what", &self.what).field("done", &self.done).finish_non_exhaustive()
    }
}

/// How often progress is shown.
const SHOW_EVERY: u64 = 500_000_000;
const SECOND: u64 = 1_000_000_000;
/// The longest a throttled backup waits before it looks whether it is to stop.
const NAP: u64 = SECOND / 4;
/// Work of less than this needs no rest: some pages read, summed up and written.
const WORK: u64 = SECOND / 1_000;

impl<'p> Pace<'p> {
    /// `show` is called twice a second.
    pub fn new(throttle: Throttle, show: impl FnMut(&Progress<'_>) + 'p) -> Self {
        let clock = SystemClock;
        let now = clock.monotonic();
        Self {
            clock,
            wall: Box::new(|| SystemClock.now()),
            limit: match throttle {
                Throttle::AtMost(rate) => Some(rate),
                Throttle::Considerate | Throttle::Unlimited => None,
            },
            rests: throttle != Throttle::Unlimited,
            show: Box::new(show),
            stop: Box::new(|| false),
            what: String::new(),
            total: 0,
            done: 0,
            started: now,
            shown: now,
            rested: now,
        }
    }

    /// Without limit, silent.
    pub fn quiet() -> Self {
        Self::new(Throttle::Unlimited, |_| {})
    }

    /// Asks now and then whether to give up.
    pub(crate) fn stopped_by(mut self, stop: impl Fn() -> bool + 'p) -> Self {
        self.stop = Box::new(stop);
        self
    }

    /// Takes the time of day, which backups carry, from there.
    pub(crate) fn with_times_of(mut self, wall: impl Fn() -> Timestamp + 'p) -> Self {
        self.wall = Box::new(wall);
        self
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// Begins something of so many bytes (0: unknown).
    pub(super) fn begin(&mut self, what: impl Into<String>, total: u64) {
        (self.what, self.total, self.done) = (what.into(), total, 0);
        self.started = self.clock.monotonic();
        (self.shown, self.rested) = (self.started, self.started);
    }

    /// Counts bytes, and waits: half of the time others have processor and disk for themselves, and where a rate is given the
    /// bytes must not come faster.
    ///
    /// # Errors
    /// [`BackupError::Stopped`].
    pub(super) fn advance(&mut self, bytes: u64) -> Result<(), BackupError> {
        self.done += bytes;
        self.rest();
        loop {
            if (self.stop)() {
                return Err(BackupError::Stopped);
            }
            let now = self.clock.monotonic();
            if now.0.saturating_sub(self.shown.0) >= SHOW_EVERY {
                self.shown = now;
                self.tell(now);
            }
            let passed = now.0.saturating_sub(self.started.0);
            let due = self.limit.map_or(0, |rate| {
                u64::try_from(u128::from(self.done) * u128::from(SECOND) / u128::from(rate))
                    .unwrap_or(u64::MAX)
            });
            match due.saturating_sub(passed) {
                0 => return Ok(()),
                ahead => nap(Duration::from_nanos(ahead.min(NAP))),
            }
        }
    }

    /// As long as it worked since the last rest: where the disk is busy, or the processor, it takes longer, and so does this.
    fn rest(&mut self) {
        let worked = self.clock.monotonic().0.saturating_sub(self.rested.0);
        if self.rests && worked >= WORK {
            nap(Duration::from_nanos(worked.min(NAP)));
            self.rested = self.clock.monotonic();
        }
    }

    fn tell(&mut self, now: Monotonic) {
        let passed = now.0.saturating_sub(self.started.0).max(1);
        let rate = u128::from(self.done) * u128::from(SECOND) / u128::from(passed);
        let per_second = u64::try_from(rate).unwrap_or(u64::MAX);
        let left = self.total.saturating_sub(self.done);
        let seconds_left = left.checked_div(per_second).filter(|_| self.total > 0);
        (self.show)(&Progress {
            what: &self.what,
            done: self.done,
            total: self.total,
            per_second,
            seconds_left,
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "to be slower is what was asked for")]
fn nap(time: Duration) {
    std::thread::sleep(time);
}
