//! The status of the backups that the server makes by its schedule.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use larix_engine::time::Timestamp;

use super::Until;

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
    /// What somebody asked for beside the schedule; it waits or runs.
    pub(crate) requested: Option<BackupRequest>,
    /// The last backup that was verified on request, since the start of the server.
    pub verified: Option<Verified>,
    /// The last restore by the server itself, since its start.
    pub(crate) put_back: Option<PutBack>,
}

/// Work beside the schedule, one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackupRequest {
    Full,
    /// What has changed since the last backup; a full one where that is not possible.
    Increment,
    /// Reads this backup and compares its checksums.
    Verify(PathBuf),
    /// Puts its databases back.
    Restore(RestoreRequest),
}

/// What is to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoreRequest {
    /// The backup.
    pub(crate) directory: PathBuf,
    pub(crate) until: Until,
    /// Of the one database; empty: all that the backup has.
    pub(crate) suffix: String,
}

/// How a restore by the server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PutBack {
    pub(crate) directory: PathBuf,
    pub(crate) at: Timestamp,
    /// In the databases as they are now.
    pub(crate) entries: u64,
    /// How long clients got no answers from them.
    pub(crate) unavailable: Duration,
    pub(crate) fault: Option<String>,
}

/// How the verification of a backup ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub directory: PathBuf,
    pub at: Timestamp,
    /// Up to where its changes were read: increments may have followed.
    pub covers: Option<Timestamp>,
    /// What is wrong with it.
    pub fault: Option<String>,
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

    /// Asks for work beside the schedule. `false`: something else that was asked for is not done yet.
    pub(crate) fn request(&self, request: BackupRequest) -> bool {
        let mut status = self.lock();
        let free = status.requested.is_none();
        if free {
            status.requested = Some(request);
            self.wake.notify_all();
        }
        free
    }

    /// Waits so long, or until something is asked for, or the backups are to end.
    pub(crate) fn wait(&self, longest: Duration) {
        let status = self.lock();
        if !self.is_stopped() && status.requested.is_none() {
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
