//! How long records stay in the change log, and how the oldest ones go: in slices, a few along with each change.

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};

use super::{LogHead, LogKey, first_sequence};
use crate::fault::Fault;
use crate::tables::LOG;
use crate::time::Timestamp;

/// Fewer records than this are never trimmed where the configuration sets neither age nor size.
pub const RECORDS_MIN: u64 = 16_384;

/// With neither age nor size, records go so many together: a few with each commit would have each of them write the oldest
/// pages of the log as well.
pub const TRIMMED_TOGETHER: u64 = 128;

/// What of the log is kept. With neither age nor size: 16,384 records, or a quarter as many as entries were ever added
/// if that is more.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRetention {
    /// Seconds: older records go.
    pub age: Option<u64>,
    /// Bytes of records: beyond them the oldest go, whatever their age.
    pub size: Option<u64>,
}

impl LogRetention {
    /// For a log that is switched off: what is left of it goes.
    pub const NOTHING: Self = Self { age: None, size: Some(0) };

    /// How many records are kept when neither age nor size is set.
    pub fn records(last_entry_id: u64) -> u64 {
        RECORDS_MIN.max(last_entry_id / 4)
    }
}

/// The state of the log and the rules for it when the writer trims.
#[derive(Copy, Clone, Debug)]
pub struct TrimState {
    pub retention: LogRetention,
    /// Not asked for without an age.
    pub now: Timestamp,
    pub last_sequence: u64,
    pub last_entry_id: u64,
    /// Bytes logged so far, as [`super::logged_bytes`].
    pub logged_bytes: u64,
    /// Records from this sequence on are still to be read by the database's follower.
    pub needed: u64,
}

/// Where the log of the server begins.
#[derive(Copy, Clone, Debug)]
pub struct Trimmer {
    server_id: u16,
    /// The oldest record's.
    first: u64,
    /// The oldest record's, once it was read.
    head: Option<LogHead>,
    /// More has to go than the last slice took.
    behind: bool,
}

impl Trimmer {
    pub fn new<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<Self, Fault> {
        let first = first_sequence(snapshot, server_id)?.max(1);
        Ok(Self { server_id, first, head: None, behind: false })
    }

    /// The sequence of the oldest record; beyond the last one when there is none.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Whether a slice is due without any change.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Removes up to `limit` of the oldest records that are not to be kept; the last record always stays, for its
    /// sequence and its offset. Answers what holds once the set is committed.
    pub fn slice<S: Snapshot>(
        &self,
        snapshot: &S,
        set: &mut WriteSet,
        now: &TrimState,
        limit: u64,
    ) -> Result<Self, Fault> {
        let TrimState { retention, last_sequence, .. } = *now;
        if retention.age.is_none() && retention.size.is_none() {
            return Ok(self.by_count(set, now, limit));
        }
        if self.head.is_some_and(|head| !now.is_over(head)) {
            return Ok(Self { behind: false, ..*self });
        }
        let mut after = Self { head: None, behind: false, ..*self };
        let prefix = self.server_id.to_be_bytes();
        let start = LogKey { server_id: self.server_id, sequence: self.first.saturating_sub(1) }.to_bytes();
        let rows = snapshot.scan(LOG, KeyRange::prefix(&prefix).after(&start), Direction::Forward)?;
        for (removed, row) in (0..).zip(rows) {
            let (key, record) = row?;
            let damaged = Fault::Damaged { what: "a record of the change log" };
            let Some((key, head)) = LogKey::from_bytes(&key).zip(LogHead::of(&record)) else {
                return Err(damaged);
            };
            after = Self { first: key.sequence, head: Some(head), ..after };
            if key.sequence >= last_sequence || key.sequence >= now.needed || !now.is_over(head) {
                break;
            }
            if removed == limit {
                after.behind = true;
                break;
            }
            set.delete(LOG, &key.to_bytes());
            // What comes behind it may be of this very group and not be read yet.
            after = Self { first: key.sequence + 1, head: None, ..after };
        }
        Ok(after)
    }

    /// Needs to read nothing: sequences have no gaps.
    fn by_count(&self, set: &mut WriteSet, now: &TrimState, limit: u64) -> Self {
        let due = (now.last_sequence + 1).saturating_sub(LogRetention::records(now.last_entry_id));
        let due = due.min(now.needed);
        if due < self.first + TRIMMED_TOGETHER {
            return Self { head: None, behind: false, ..*self };
        }
        let first = due.clamp(self.first, self.first + limit.max(TRIMMED_TOGETHER));
        for sequence in self.first..first {
            set.delete(LOG, &LogKey { server_id: self.server_id, sequence }.to_bytes());
        }
        Self { first, head: None, behind: false, ..*self }
    }
}

impl TrimState {
    fn is_over(&self, head: LogHead) -> bool {
        const MICROSECONDS: i64 = 1_000_000;
        let age = self.retention.age.is_some_and(|seconds| {
            let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(MICROSECONDS);
            head.time.0 < self.now.0.saturating_sub(micros)
        });
        age || self.retention.size.is_some_and(|size| self.logged_bytes.saturating_sub(head.offset) > size)
    }
}
