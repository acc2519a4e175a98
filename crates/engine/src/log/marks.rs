//! Marks: how far every origin had come at some sequences of the log.
//!
//! A consumer says what it has by the highest CSN of each origin. A mark with none above these proves that whatever was
//! logged up to its sequence is known to the consumer: only what comes behind has to be read. Marks are few (one every
//! [`MARK_EVERY`] records), go with the records that they lead to, and belong to one history of the log.
//!
//! Sequences go on when the server gets another ID, and a server reads the records of its own ID alone. A mark leads to nothing if
//! records of another ID come behind it.

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};
use uuid::Uuid;

use super::{LogKey, context_csns, first_sequence, history, positions, visit_outlines_after};
use crate::csn::CsnVector;
use crate::fault::Fault;
use crate::tables::{META, meta};

/// Records between two marks.
pub const MARK_EVERY: u64 = 1_024;
const UUID_LENGTH: usize = 16;

fn key(at: LogKey) -> Vec<u8> {
    [meta::LOG_MARK, &at.to_bytes()].concat()
}

fn prefix(server_id: u16) -> Vec<u8> {
    [meta::LOG_MARK, &server_id.to_be_bytes()].concat()
}

/// One mark.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    sequence: u64,
    history: Uuid,
    csns: CsnVector,
}

impl Mark {
    fn write(&self, server_id: u16, set: &mut WriteSet) {
        set.put(META, &key(LogKey { server_id, sequence: self.sequence }), self.to_bytes());
    }

    fn to_bytes(&self) -> Vec<u8> {
        [self.history.as_bytes().as_slice(), self.csns.text().as_bytes()].concat()
    }

    fn read(stored_key: &[u8], value: &[u8]) -> Option<Self> {
        let at = LogKey::from_bytes(stored_key.strip_prefix(meta::LOG_MARK)?)?;
        let (history, csns) = value.split_at_checked(UUID_LENGTH)?;
        Some(Self {
            sequence: at.sequence,
            history: Uuid::from_slice(history).ok()?,
            csns: CsnVector::parse(csns)?,
        })
    }
}

/// The last records of other server IDs.
fn under_others<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<Vec<LogKey>, Fault> {
    Ok(positions(snapshot)?.into_iter().filter(|at| at.server_id != server_id).collect())
}

/// The sequence behind which everything is that a consumer with this knowledge may lack; `None` when the log cannot prove
/// it: it does not reach back so far, tells another history, or has records of another server ID in between.
///
/// # Errors
/// A store that cannot be read.
pub fn begin_after<S: Snapshot>(
    snapshot: &S,
    server_id: u16,
    known: &CsnVector,
) -> Result<Option<u64>, Fault> {
    let Some(history) = history(snapshot)? else { return Ok(None) };
    let first = first_sequence(snapshot, server_id)?;
    let elsewhere = under_others(snapshot, server_id)?.iter().map(|at| at.sequence).max().unwrap_or(0);
    for row in snapshot.scan(META, KeyRange::prefix(&prefix(server_id)), Direction::Backward)? {
        let (key, value) = row?;
        let mark = Mark::read(&key, &value).ok_or(Fault::Damaged { what: "a mark of the change log" })?;
        if mark.history != history || first > mark.sequence + 1 || elsewhere > mark.sequence {
            return Ok(None);
        }
        if known.covers_all(&mark.csns) {
            return Ok(Some(mark.sequence));
        }
    }
    Ok(None)
}

/// Where the writer is with its marks.
#[derive(Clone, Debug, Default)]
pub struct Marker {
    history: Option<Uuid>,
    /// The sequence of the last mark of this history.
    last: Option<u64>,
}

/// The ends of the log before and behind a group, for the marks.
#[derive(Copy, Clone, Debug)]
pub struct GroupMarks<'a> {
    pub server_id: u16,
    /// The log's last sequence before the group and behind it, with the highest CSNs.
    pub before: (u64, &'a CsnVector),
    pub behind: (u64, &'a CsnVector),
    /// The oldest sequence that is kept.
    pub first: u64,
}

impl Marker {
    /// Where the marks of a database are, and the highest CSN of each origin.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn new<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<(Self, CsnVector), Fault> {
        let mut highest: CsnVector = context_csns(snapshot)?.into_iter().collect();
        let history = history(snapshot)?;
        let last = note_logged(snapshot, server_id, history, &mut highest)?;
        let elsewhere = under_others(snapshot, server_id)?;
        let last = last.filter(|last| elsewhere.iter().all(|at| at.sequence <= *last));
        if last.is_none() {
            for at in elsewhere {
                note_logged(snapshot, at.server_id, history, &mut highest)?;
            }
        }
        Ok((Self { history, last }, highest))
    }

    /// Adds the marks that are due to a group's changes. `begun`: the history that the group begins. Answers what holds
    /// once the set is committed.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn along<S: Snapshot>(
        &self,
        snapshot: &S,
        set: &mut WriteSet,
        begun: Option<Uuid>,
        now: &GroupMarks<'_>,
    ) -> Result<Self, Fault> {
        let mut marker = match begun {
            Some(history) => Self { history: Some(history), last: None },
            None => self.clone(),
        };
        let Some(history) = marker.history else { return Ok(marker) };
        let due = match marker.last {
            None => [Some(now.before), None],
            // One that leads to a record which has gone is of no use any more.
            Some(last) => {
                let is_due = |at: u64| at >= last + MARK_EVERY || now.first > last + 1;
                [None, Some(now.behind).filter(|(at, _)| is_due(*at))]
            }
        };
        for (sequence, csns) in due.into_iter().flatten() {
            Mark { sequence, history, csns: csns.clone() }.write(now.server_id, set);
            marker.last = Some(sequence);
            forget_before(snapshot, set, now)?;
        }
        Ok(marker)
    }
}

/// Notes what the newest mark of a server ID in this history says, and the records behind it. Answers where the mark is.
fn note_logged<S: Snapshot>(
    snapshot: &S,
    server_id: u16,
    history: Option<Uuid>,
    highest: &mut CsnVector,
) -> Result<Option<u64>, Fault> {
    let mut rows = snapshot.scan(META, KeyRange::prefix(&prefix(server_id)), Direction::Backward)?;
    let row = rows.next().transpose()?;
    let mark = row.and_then(|(key, value)| Mark::read(&key, &value));
    let Some(mark) = mark.filter(|mark| Some(mark.history) == history) else { return Ok(None) };
    highest.extend(mark.csns.as_slice().iter().copied());
    // What other servers' changes came since may be above what the contextCSN says of them.
    let after = LogKey { server_id, sequence: mark.sequence };
    visit_outlines_after(snapshot, after, &mut |_, outline| {
        if !outline.local {
            highest.note(outline.csn);
        }
        true
    })?;
    Ok(Some(mark.sequence))
}

/// Marks go when records behind them have gone.
fn forget_before<S: Snapshot>(snapshot: &S, set: &mut WriteSet, now: &GroupMarks<'_>) -> Result<(), Fault> {
    for row in snapshot.scan(META, KeyRange::prefix(&prefix(now.server_id)), Direction::Forward)? {
        let (stored, _) = row?;
        let at = stored.strip_prefix(meta::LOG_MARK).and_then(LogKey::from_bytes);
        match at {
            Some(at) if at.sequence + 1 < now.first => set.delete(META, &stored),
            _ => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csn::Csn;
    use crate::time::Timestamp;

    fn csn(server_id: u16, time: i64) -> Csn {
        Csn { time: Timestamp(time), count: 0, server_id, modification: 0 }
    }

    fn vector(csns: &[(u16, i64)]) -> CsnVector {
        csns.iter().map(|(id, time)| csn(*id, *time)).collect()
    }

    #[test]
    fn marks_survive_being_stored() {
        let mark = Mark { sequence: 7, history: Uuid::from_u128(9), csns: vector(&[(0, 1), (3, 4)]) };
        let stored = key(LogKey { server_id: 1, sequence: 7 });
        assert_eq!(Mark::read(&stored, &mark.to_bytes()), Some(mark));
    }
}
