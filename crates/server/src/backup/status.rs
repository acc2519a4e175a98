//! The status of the backups that the server makes by its schedule.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use larix_engine::time::Timestamp;

/// Microseconds in a second.
pub(crate) const MICROS: i64 = 1_000_000;

/// How scheduled backups stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupStatus {
    /// Whether the configuration has a schedule.
    pub scheduled: bool,
    pub running: bool,
    /// Every change up to this moment is in a backup.
    pub covers: Option<Timestamp>,
    /// When the last one was complete, also before this start of the server.
    pub last_success: Option<Timestamp>,
    /// Of these, the last full one.
    pub last_full: Option<Timestamp>,
    /// Of the last full backup and its increments.
    pub bytes: u64,
    /// How long the last one took.
    pub last_micros: u64,
    /// Since the start of the server.
    pub successes: u64,
    pub failures: u64,
    /// When and why the last one failed; `None` once one has succeeded.
    pub last_error: Option<(Timestamp, String)>,
    pub next: Option<Timestamp>,
    /// Of what is running: bytes done, and of how many if that is known.
    pub progress: (u64, u64),
}

impl BackupStatus {
    /// Seconds since the last backup was complete.
    pub fn age(&self, now: Timestamp) -> Option<u64> {
        let micros = u64::try_from(now.0.saturating_sub(self.last_success?.0)).unwrap_or(0);
        Some(micros / MICROS.unsigned_abs())
    }
}

/// Where others read how scheduled backups stand.
#[derive(Debug, Default)]
pub struct Backups {
    status: Mutex<BackupStatus>,
    stop: AtomicBool,
    wake: Condvar,
}

impl Backups {
    pub fn status(&self) -> BackupStatus {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BackupStatus> {
        // Every change of it is whole: nothing is left half done by who panics.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut BackupStatus)) {
        change(&mut self.lock());
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits so long, or until the backups are to end.
    pub(crate) fn wait(&self, longest: Duration) {
        let status = self.lock();
        if !self.is_stopped() {
            drop(self.wake.wait_timeout(status, longest));
        }
    }

    /// Ends the backups, and what is under way.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        drop(self.lock());
        self.wake.notify_all();
    }
}
