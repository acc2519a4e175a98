//! What a writer tells of itself: how large its groups are, how long their commits take, how far the change log goes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::{Durations, Histogram};

/// The writer's counters; any thread may read them.
#[derive(Debug, Default)]
pub struct WriteBoard {
    groups: AtomicU64,
    changes: AtomicU64,
    largest_group: AtomicU64,
    commits: Histogram,
    log_first: AtomicU64,
    log_last: AtomicU64,
}

/// What a writer has done since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteFigures {
    /// Groups that were committed, and the requests in them, refused ones included.
    pub groups: u64,
    pub changes: u64,
    pub largest_group: u64,
    /// From the begin of a commit to its end, the sync included.
    pub commits: Durations,
    /// Sequences of the oldest and the newest record of the change log; 0: none.
    pub log_first: u64,
    pub log_last: u64,
}

impl WriteBoard {
    /// A group was committed.
    pub(crate) fn committed(&self, changes: usize, nanoseconds: u64) {
        let changes = changes as u64;
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(changes, Ordering::Relaxed);
        self.largest_group.fetch_max(changes, Ordering::Relaxed);
        self.commits.record(nanoseconds);
    }

    pub(crate) fn log_extent(&self, first: u64, last: u64) {
        self.log_first.store(first.min(last), Ordering::Relaxed);
        self.log_last.store(last, Ordering::Release);
    }

    /// The sequence of the last committed record. It is set before any of its requesters is answered.
    pub fn log_last(&self) -> u64 {
        self.log_last.load(Ordering::Acquire)
    }

    pub fn figures(&self) -> WriteFigures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut commits = Durations::default();
        self.commits.add_to(&mut commits);
        WriteFigures {
            groups: read(&self.groups),
            changes: read(&self.changes),
            largest_group: read(&self.largest_group),
            commits,
            log_first: read(&self.log_first),
            log_last: read(&self.log_last),
        }
    }
}
