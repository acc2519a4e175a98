//! What there is to say of a database's indexes: which are complete, how far a build is, what they are used for.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::Kinds;
use super::uses::IndexUse;

/// The indexes of one attribute description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStatus {
    /// The description as it is shown, with its options.
    pub attribute: String,
    /// What the index lines ask for; empty while an index that was dropped gives back its pages.
    pub kinds: Kinds,
    /// What searches use: the rest is being built or waits for it.
    pub complete: Kinds,
    /// Kinds that are being worked on.
    pub working: Kinds,
    /// While the attribute is worked on: entries done, and how many there are, about.
    pub done: u64,
    pub total: u64,
    /// Entries a second; 0 while that is not known.
    pub per_second: u64,
    /// Seconds that are left, about.
    pub seconds_left: Option<u64>,
    /// By kind, since the database was opened.
    pub uses: Vec<IndexUse>,
}

impl IndexStatus {
    /// Whether searches use all that the index lines ask for.
    pub fn is_complete(&self) -> bool {
        self.complete.has(self.kinds)
    }
}

/// What is being done to the indexes of a database.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum WorkPhase {
    /// Pages of indexes that are not kept, or are about to be made anew, are given back.
    Clearing,
    /// Entries are gone through.
    #[default]
    Filling,
}

impl fmt::Display for WorkPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clearing => "clearing",
            Self::Filling => "filling",
        })
    }
}

/// How far work on indexes is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkStatus {
    pub phase: WorkPhase,
    /// The attribute numbers and kinds that are worked on.
    pub parts: Vec<(crate::entry::AttributeNumber, Kinds)>,
    /// Entries done and how many there are, about.
    pub done: u64,
    pub total: u64,
    /// Nanoseconds since this process began or resumed, and entries done since then.
    pub nanos: u64,
    pub since: u64,
    /// Why it does not go on, for now.
    pub failure: Option<String>,
}

impl WorkStatus {
    /// Entries a second since it began or was resumed; 0 while that is not known.
    pub fn per_second(&self) -> u64 {
        let rate = u128::from(self.since) * 1_000_000_000 / u128::from(self.nanos.max(1));
        if self.nanos == 0 { 0 } else { u64::try_from(rate).unwrap_or(u64::MAX) }
    }

    pub fn seconds_left(&self) -> Option<u64> {
        self.total.saturating_sub(self.done).checked_div(self.per_second())
    }
}

/// The writer's progress with indexes; any thread may read it.
#[derive(Debug, Default)]
pub struct WorkBoard(Mutex<Option<WorkStatus>>);

impl WorkBoard {
    pub fn set(&self, status: Option<WorkStatus>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// What is being done; none when nothing is.
    pub fn get(&self) -> Option<WorkStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
