//! How long records stay in the change log, and how the oldest ones go: in slices, a few along with each change.
//!
//! Sequences go on when the server gets another ID, so the oldest records may be of an earlier one.

use larix_store::{Direction, Snapshot, WriteSet};

use super::{LogHead, LogKey, NumberedRows, first_number, keep_claimed, positions};
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

/// Where the log begins.
#[derive(Copy, Clone, Debug)]
pub struct Trimmer {
    server_id: u16,
    /// The oldest record's.
    first: u64,
    /// The last record's of another server ID; 0 without one.
    last_of_others: u64,
    /// The oldest record's, once it was read.
    head: Option<LogHead>,
    /// More has to go than the last slice took.
    behind: bool,
}

impl Trimmer {
    pub fn new<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<Self, Fault> {
        let first = first_number(snapshot)?.max(1);
        let others = positions(snapshot)?.into_iter().filter(|last| last.server_id != server_id);
        let last_of_others = others.map(|last| last.sequence).max().unwrap_or(0);
        Ok(Self { server_id, first, last_of_others, head: None, behind: false })
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
            return self.by_count(snapshot, set, now, limit);
        }
        if self.head.is_some_and(|head| !now.is_over(head)) {
            return Ok(Self { behind: false, ..*self });
        }
        let mut after = Self { head: None, behind: false, ..*self };
        let mut gone = Gone::of(self.server_id);
        for (removed, row) in (0..).zip(self.oldest(snapshot)?) {
            let (key, record) = row?;
            let damaged = Fault::Damaged { what: "a record of the change log" };
            let head = LogHead::of(&record).ok_or(damaged)?;
            after = Self { first: key.sequence, head: Some(head), ..after };
            if key.sequence >= last_sequence || key.sequence >= now.needed || !now.is_over(head) {
                break;
            }
            if removed == limit {
                after.behind = true;
                break;
            }
            gone.take(key, set);
            // What comes behind it may be of this very group and not be read yet.
            after = Self { first: key.sequence + 1, head: None, ..after };
        }
        gone.keep_claims(snapshot, set)?;
        Ok(after)
    }

    /// Needs to read nothing where all records are of one server ID: sequences have no gaps.
    fn by_count<S: Snapshot>(
        &self,
        snapshot: &S,
        set: &mut WriteSet,
        now: &TrimState,
        limit: u64,
    ) -> Result<Self, Fault> {
        let due = (now.last_sequence + 1).saturating_sub(LogRetention::records(now.last_entry_id));
        let due = due.min(now.needed);
        if due < self.first + TRIMMED_TOGETHER {
            return Ok(Self { head: None, behind: false, ..*self });
        }
        let first = due.clamp(self.first, self.first + limit.max(TRIMMED_TOGETHER));
        let mut gone = Gone::of(self.server_id);
        if self.is_of_one() {
            for sequence in self.first..first {
                gone.take(LogKey { server_id: self.server_id, sequence }, set);
            }
        } else {
            for row in self.oldest(snapshot)? {
                let (key, _) = row?;
                if key.sequence >= first {
                    break;
                }
                gone.take(key, set);
            }
        }
        gone.keep_claims(snapshot, set)?;
        Ok(Self { first, head: None, behind: false, ..*self })
    }

    /// Whether all records are of this server ID.
    fn is_of_one(&self) -> bool {
        self.first > self.last_of_others
    }

    fn oldest<'s, S: Snapshot>(&self, snapshot: &'s S) -> Result<NumberedRows<'s, S>, Fault> {
        let sequence = self.first.saturating_sub(1);
        if self.is_of_one() {
            let after = LogKey { server_id: self.server_id, sequence };
            return NumberedRows::of_one(snapshot, after, Direction::Forward);
        }
        NumberedRows::after(snapshot, sequence, Direction::Forward)
    }
}

/// Records that go.
struct Gone {
    server_id: u16,
    /// One is of another server ID.
    has_others: bool,
}

impl Gone {
    /// The log's writer has this server ID.
    fn of(server_id: u16) -> Self {
        Self { server_id, has_others: false }
    }

    fn take(&mut self, key: LogKey, set: &mut WriteSet) {
        self.has_others |= key.server_id != self.server_id;
        set.delete(LOG, &key.to_bytes());
    }

    /// The last record of a server ID may be all that says how far the server had come under it.
    fn keep_claims<S: Snapshot>(self, snapshot: &S, set: &mut WriteSet) -> Result<(), Fault> {
        if self.has_others { keep_claimed(snapshot, set) } else { Ok(()) }
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
