//! The change log: one record a changed entry, written in the change's own transaction.
//!
//! Keys are `server id (u16, big-endian) ++ sequence (u64, big-endian)`: the id of the server that wrote the record. A record says all
//! that it takes to repeat the change: replication, audit and point-in-time restore read it.

mod check;
mod csns;
mod extent;
mod following;
mod marks;
mod numbered;
mod place;
mod record;
mod retention;
mod watch;

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};
use uuid::Uuid;

use crate::fault::Fault;
use crate::tables::{LOG, META, meta};
use crate::time::{RandomSource, Timestamp};

pub use crate::csn::CsnVector;
pub use check::check;
pub use csns::{
    consumer_csns, content_csns, context_csns, doubted_csns, is_retired, part_csns, put_context_csn,
    retired_csns, whole_csns,
};
pub(crate) use csns::{
    keep_claimed, put_content_csn, put_doubted_csn, put_part_csn, put_retired, put_whole_csn,
    retire_server_id, sets_context_csn,
};
pub use extent::times;
pub use following::{Following, HELD_RECORDS_MAX, Hold, LogReader};
pub use marks::{GroupMarks, MARK_EVERY, Marker, begin_after};
pub use numbered::{LastChange, NumberedRows, first_number, last_change, last_number, visit_numbered};
pub use place::EntryPlace;
pub use record::{
    LogHead, LogOutline, LogRecord, LogRecordError, LoggedAttribute, LoggedChange, LoggedKind,
    LoggedModification, OutlineKind, ReceivedChange, RecordForm,
};
pub(crate) use record::{LogHeading, encode_add, encode_modify};
pub use retention::{LogRetention, RECORDS_MIN, TRIMMED_TOGETHER, TrimState, Trimmer};
pub use watch::{Follower, LogWatch};

/// The place of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey {
    pub server_id: u16,
    /// From 1; never reused, without gaps unless the log was trimmed.
    pub sequence: u64,
}

const KEY_LENGTH: usize = 10;

impl LogKey {
    pub fn to_bytes(self) -> [u8; KEY_LENGTH] {
        let mut out = [0; KEY_LENGTH];
        let (server, sequence) = out.split_at_mut(2);
        server.copy_from_slice(&self.server_id.to_be_bytes());
        sequence.copy_from_slice(&self.sequence.to_be_bytes());
        out
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (server, sequence) = bytes.split_first_chunk::<2>()?;
        Some(Self {
            server_id: u16::from_be_bytes(*server),
            sequence: u64::from_be_bytes(sequence.try_into().ok()?),
        })
    }
}

/// Adds a record to the write set of its change. Answers its length in bytes.
pub fn append(set: &mut WriteSet, key: LogKey, record: &LogRecord) -> u64 {
    let bytes = record.encode();
    let length = bytes.len() as u64;
    append_encoded(set, key, bytes);
    length
}

/// The same with a record that is encoded.
pub(crate) fn append_encoded(set: &mut WriteSet, key: LogKey, record: Vec<u8>) {
    set.put(LOG, &key.to_bytes(), record);
}

/// Which history the log tells; `None` when changes were made that are not in it.
pub fn history<S: Snapshot>(snapshot: &S) -> Result<Option<Uuid>, Fault> {
    let damaged = || Fault::Damaged { what: "the history of the change log" };
    let stored = snapshot.get(META, meta::LOG_HISTORY)?;
    stored.map(|bytes| Uuid::from_slice(&bytes).map_err(|_| damaged())).transpose()
}

/// Begins a new history: what was logged before does not lead to what is logged from now on. Answers which.
pub fn put_history(set: &mut WriteSet, random: &dyn RandomSource) -> Uuid {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    set.put(META, meta::LOG_HISTORY, bytes);
    Uuid::from_bytes(bytes)
}

/// Ends the history: with changes that are not logged. The next to open the database for writing begins another.
pub fn end_history(set: &mut WriteSet) {
    set.delete(META, meta::LOG_HISTORY);
}

/// The last sequence of each server that has records.
pub fn positions<S: Snapshot>(snapshot: &S) -> Result<Vec<LogKey>, Fault> {
    let mut positions = Vec::new();
    let mut next = Some(0);
    while let Some(server_id) = next {
        let start = LogKey { server_id, sequence: 0 }.to_bytes();
        let row = snapshot.scan(LOG, KeyRange::at_least(&start), Direction::Forward)?.next().transpose()?;
        let Some((key, _)) = row else { break };
        let key = LogKey::from_bytes(&key).ok_or(Fault::Damaged { what: "a key of the change log" })?;
        let sequence = last_sequence(snapshot, key.server_id)?;
        positions.push(LogKey { server_id: key.server_id, sequence });
        next = key.server_id.checked_add(1);
    }
    Ok(positions)
}

/// Where the log ends: the record with the highest sequence, whichever server ID wrote it. A server whose ID changes goes
/// on from there, so that sequences tell the order of all records.
pub fn end<S: Snapshot>(snapshot: &S) -> Result<Option<LogKey>, Fault> {
    Ok(positions(snapshot)?.into_iter().max_by_key(|position| position.sequence))
}

/// How many bytes of records a server has logged so far, those that were trimmed included.
pub fn logged_bytes<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<u64, Fault> {
    let prefix = server_id.to_be_bytes();
    match snapshot.scan(LOG, KeyRange::prefix(&prefix), Direction::Backward)?.next() {
        None => Ok(0),
        Some(row) => {
            let (_, record) = row?;
            let head = LogHead::of(&record).ok_or(Fault::Damaged { what: "a record of the change log" })?;
            Ok(head.offset + record.len() as u64)
        }
    }
}

/// The sequence of the last record of a server; 0 when there is none.
pub fn last_sequence<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<u64, Fault> {
    outermost_sequence(snapshot, server_id, Direction::Backward)
}

/// The sequence of the oldest record of a server that is kept; 0 when there is none.
pub fn first_sequence<S: Snapshot>(snapshot: &S, server_id: u16) -> Result<u64, Fault> {
    outermost_sequence(snapshot, server_id, Direction::Forward)
}

fn outermost_sequence<S: Snapshot>(snapshot: &S, server_id: u16, direction: Direction) -> Result<u64, Fault> {
    let prefix = server_id.to_be_bytes();
    let mut rows = snapshot.scan(LOG, KeyRange::prefix(&prefix), direction)?;
    match rows.next() {
        None => Ok(0),
        Some(row) => match LogKey::from_bytes(&row?.0) {
            Some(key) => Ok(key.sequence),
            None => Err(Fault::Damaged { what: "a key of the change log" }),
        },
    }
}

/// When the change was made that the first record behind this place tells of; `None` when there is none.
pub fn time_after<S: Snapshot>(snapshot: &S, after: LogKey) -> Result<Option<Timestamp>, Fault> {
    let (prefix, after) = (after.server_id.to_be_bytes(), after.to_bytes());
    let mut rows = snapshot.scan(LOG, KeyRange::prefix(&prefix).after(&after), Direction::Forward)?;
    let Some(row) = rows.next() else { return Ok(None) };
    let head = LogHead::of(&row?.1).ok_or(Fault::Damaged { what: "a record of the change log" })?;
    Ok(Some(head.time))
}

/// Calls `visit` with the records of one server after `after` in their order, each also as it is stored, until it answers false.
pub fn visit_stored_after<S: Snapshot>(
    snapshot: &S,
    after: LogKey,
    visit: &mut dyn FnMut(LogKey, LogRecord, &[u8]) -> bool,
) -> Result<(), Fault> {
    let (prefix, after) = (after.server_id.to_be_bytes(), after.to_bytes());
    for row in snapshot.scan(LOG, KeyRange::prefix(&prefix).after(&after), Direction::Forward)? {
        let (key, value) = row?;
        let damaged = Fault::Damaged { what: "a record of the change log" };
        let Some((key, record)) = LogKey::from_bytes(&key).zip(LogRecord::decode(&value).ok()) else {
            return Err(damaged);
        };
        if !visit(key, record, &value) {
            break;
        }
    }
    Ok(())
}

/// The same with the outlines of the records.
pub fn visit_outlines_after<S: Snapshot>(
    snapshot: &S,
    after: LogKey,
    visit: &mut dyn FnMut(LogKey, LogOutline) -> bool,
) -> Result<(), Fault> {
    let (prefix, after) = (after.server_id.to_be_bytes(), after.to_bytes());
    for row in snapshot.scan(LOG, KeyRange::prefix(&prefix).after(&after), Direction::Forward)? {
        let (key, value) = row?;
        let damaged = Fault::Damaged { what: "a record of the change log" };
        let Some((key, outline)) = LogKey::from_bytes(&key).zip(LogOutline::decode(&value).ok()) else {
            return Err(damaged);
        };
        if !visit(key, outline) {
            break;
        }
    }
    Ok(())
}
