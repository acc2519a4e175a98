//! The change log: one record a changed entry, written in the change's own transaction.
//!
//! Keys are `server id (u16, big-endian) ++ sequence (u64, big-endian)`, so that several servers on one store would not
//! contend. A record says all that it takes to repeat the change: replication, audit and point-in-time restore read it.

mod check;
mod extent;
mod following;
mod marks;
mod numbered;
mod parts;
mod place;
mod record;
mod retention;
mod watch;

use larix_store::{Direction, KeyRange, Layered, Snapshot, WriteSet};
use uuid::Uuid;

use crate::csn::{Csn, SERVER_ID_MAX};
use crate::fault::Fault;
use crate::tables::{LOG, META, meta};
use crate::time::{RandomSource, Timestamp};

pub use check::check;
pub use extent::times;
pub use following::{Following, HELD_RECORDS_MAX, Hold, LogReader};
pub use marks::{CsnVector, MARK_EVERY, Marked, Marker, begin_after};
pub use numbered::{LastChange, first_number, last_change, last_number, visit_numbered};
pub use parts::part_csns;
pub(crate) use parts::put_part_csn;
pub use place::EntryPlace;
pub use record::{
    Came, LogHead, LogOutline, LogRecord, LogRecordError, LoggedAttribute, LoggedChange, LoggedKind,
    LoggedModification, OutlineKind, RecordForm,
};
pub(crate) use record::{LogHeading, encode_add, encode_modify};

pub use retention::{LogRetention, RECORDS_MIN, TRIMMED_TOGETHER, Trimmed, Trimmer};
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

/// Calls `visit` with the records of one server after `sequence` in their order, until it answers false.
pub fn visit_after<S: Snapshot>(
    snapshot: &S,
    after: LogKey,
    visit: &mut dyn FnMut(LogKey, LogRecord) -> bool,
) -> Result<(), Fault> {
    visit_stored_after(snapshot, after, &mut |key, record, _| visit(key, record))
}

/// The same with each record as it is stored beside it.
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

const CONTEXT_CSN_PREFIX: &[u8] = b"context-csn/";

/// The contextCSN of a server in the table `meta`: its key is the server id in three hexadecimal digits.
fn context_csn_key(server_id: u16) -> Vec<u8> {
    let mut key = Vec::with_capacity(CONTEXT_CSN_PREFIX.len() + 3);
    key.extend_from_slice(CONTEXT_CSN_PREFIX);
    let digit =
        |place: u32| char::from_digit(u32::from(server_id.min(SERVER_ID_MAX)) >> (4 * place) & 0xf, 16);
    key.extend([2, 1, 0].into_iter().filter_map(digit).map(|digit| digit as u8));
    key
}

/// Notes that everything up to `csn` of its server is in the database. Of a server's own changes the last record of its log may say so
/// in the place of this row: who asks goes by [`context_csns`].
pub fn put_context_csn(set: &mut WriteSet, csn: &Csn) {
    set.put(META, &context_csn_key(csn.server_id), csn.text().into_bytes());
}

const CONTENT_CSN_PREFIX: &[u8] = b"content-csn/";

fn content_csn_key(server_id: u16) -> Vec<u8> {
    [CONTENT_CSN_PREFIX, format!("{:03x}", server_id.min(SERVER_ID_MAX)).as_bytes()].concat()
}

/// Notes that the contextCSN came to `csn` by a pass over another server's content: what was deleted until then is not
/// here, but the log need not tell of it. An entry that came and went between two passes was never heard of.
pub(crate) fn put_content_csn(set: &mut WriteSet, csn: &Csn) {
    set.put(META, &content_csn_key(csn.server_id), csn.to_string().into_bytes());
}

/// Up to which CSN of each server the log does not prove that it has all deletes; nothing of servers that were retired.
///
/// # Errors
/// A store that cannot be read.
pub fn content_csns<S: Snapshot>(snapshot: &S) -> Result<CsnVector, Fault> {
    let mut csns = CsnVector::default();
    for row in snapshot.scan(META, KeyRange::prefix(CONTENT_CSN_PREFIX), Direction::Forward)? {
        let text = row?.1;
        let csn = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<Csn>().ok());
        csns.note(csn.ok_or(Fault::Damaged { what: "a CSN of another server's content" })?);
    }
    if csns.is_empty() {
        return Ok(csns);
    }
    let known: CsnVector = context_csns(snapshot)?.into_iter().collect();
    Ok(csns.as_slice().iter().copied().filter(|csn| known.of(csn.server_id).is_some()).collect())
}

const WHOLE_CSN_PREFIX: &[u8] = b"whole-csn/";

/// Notes that the contextCSN came to `csn` in a refresh of entries as they are: what was changed in them one by one until then
/// is not in the log, and an entry may have more than the change whose CSN it came with.
pub(crate) fn put_whole_csn(set: &mut WriteSet, csn: &Csn) {
    let key = [WHOLE_CSN_PREFIX, format!("{:03x}", csn.server_id.min(SERVER_ID_MAX)).as_bytes()].concat();
    set.put(META, &key, csn.text().into_bytes());
}

/// Up to which CSN of each server entries came as they are, rather than change by change.
///
/// # Errors
/// A store that cannot be read.
pub fn whole_csns<S: Snapshot>(snapshot: &S) -> Result<Vec<Csn>, Fault> {
    let rows = snapshot.scan(META, KeyRange::prefix(WHOLE_CSN_PREFIX), Direction::Forward)?;
    let read = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<Csn>().ok();
    rows.map(|row| read(&row?.1).ok_or(Fault::Damaged { what: "a CSN of entries that came whole" })).collect()
}

const RETIRED_PREFIX: &[u8] = b"retired/";

fn retired_key(server_id: u16) -> Vec<u8> {
    [RETIRED_PREFIX, format!("{:03x}", server_id.min(SERVER_ID_MAX)).as_bytes()].concat()
}

/// Removes the contextCSN of a server, and remembers it, so that no server that still has it brings it back. Answers whether
/// there is one.
pub(crate) fn retire_server_id<S: Snapshot>(
    snapshot: &S,
    set: &mut WriteSet,
    server_id: u16,
) -> Result<bool, Fault> {
    let known = context_csns(snapshot)?.into_iter().find(|csn| csn.server_id == server_id);
    let Some(csn) = known else { return Ok(false) };
    set.put(META, &retired_key(server_id), csn.text().into_bytes());
    set.delete(META, &context_csn_key(server_id));
    Ok(true)
}

/// Notes that a server was retired when it had come so far; its contextCSN goes, if it is not beyond.
pub(crate) fn put_retired<S: Snapshot>(snapshot: &S, set: &mut WriteSet, csn: &Csn) -> Result<(), Fault> {
    set.put(META, &retired_key(csn.server_id), csn.text().into_bytes());
    if context_csns(snapshot)?.iter().any(|known| known.server_id == csn.server_id && known <= csn) {
        set.delete(META, &context_csn_key(csn.server_id));
    }
    Ok(())
}

/// How far servers had come that were retired.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn retired_csns<S: Snapshot>(snapshot: &S) -> Result<Vec<Csn>, Fault> {
    let rows = snapshot.scan(META, KeyRange::prefix(RETIRED_PREFIX), Direction::Forward)?;
    rows.map(|row| retired_csn(&row?.1)).collect()
}

fn retired_csn(row: &[u8]) -> Result<Csn, Fault> {
    let csn = std::str::from_utf8(row).ok().and_then(|text| text.parse().ok());
    csn.ok_or(Fault::Damaged { what: "the CSN of a retired server" })
}

/// Whether the server of this CSN was retired when it had come so far: then it says nothing of who is behind.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn is_retired<S: Snapshot>(snapshot: &S, csn: &Csn) -> Result<bool, Fault> {
    let Some(row) = snapshot.get(META, &retired_key(csn.server_id))? else { return Ok(false) };
    Ok(*csn <= retired_csn(&row)?)
}

/// Whether these changes set a contextCSN.
pub(crate) fn sets_context_csn(set: &WriteSet) -> bool {
    set.records(META).any(|(key, _)| key.starts_with(CONTEXT_CSN_PREFIX))
}

/// The values of contextCSN, by server id: what the rows say, and beyond them the last record of each server's log.
pub fn context_csns<S: Snapshot>(snapshot: &S) -> Result<Vec<Csn>, Fault> {
    let mut known = stored_context_csns(snapshot)?;
    for csn in claimed_csns(snapshot)?.as_slice() {
        if !is_retired(snapshot, csn)? {
            known.note(*csn);
        }
    }
    Ok(known.as_slice().to_vec())
}

/// How far a consumer may say that it has come: the contextCSN, and nothing while the first content is not complete. What was changed
/// here meanwhile has a CSN of this server, which would stand for all that this server has ever changed.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn consumer_csns<S: Snapshot>(snapshot: &S) -> Result<Vec<Csn>, Fault> {
    match snapshot.get(META, meta::UNPROVED)? {
        Some(_) => Ok(Vec::new()),
        None => context_csns(snapshot),
    }
}

/// What the rows say.
fn stored_context_csns<S: Snapshot>(snapshot: &S) -> Result<CsnVector, Fault> {
    let damaged = || Fault::Damaged { what: "a contextCSN" };
    snapshot
        .scan(META, KeyRange::prefix(CONTEXT_CSN_PREFIX), Direction::Forward)?
        .map(|row| {
            let value = row?.1;
            std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)
        })
        .collect()
}

/// What the last record of each server's log [says](LogHeading::claims).
fn claimed_csns<S: Snapshot>(snapshot: &S) -> Result<CsnVector, Fault> {
    let mut csns = CsnVector::default();
    if S::IS_DISTANT {
        // There each change has its row.
        return Ok(csns);
    }
    let damaged = |what: &'static str| Fault::Damaged { what };
    let mut next: Option<[u8; 2]> = None;
    loop {
        let range = match &next {
            None => KeyRange::all(),
            Some(server) => KeyRange::all().before(server),
        };
        let Some(row) = snapshot.scan(LOG, range, Direction::Backward)?.next() else { return Ok(csns) };
        let (key, record) = row?;
        let key = LogKey::from_bytes(&key).ok_or_else(|| damaged("a key of the change log"))?;
        let claimed = record::claimed(&record).map_err(|_| damaged("a record of the change log"))?;
        csns.extend(claimed.filter(|csn| csn.server_id == key.server_id));
        next = Some(key.server_id.to_be_bytes());
    }
}

/// Gives rows to what the last records of the logs say in a state of the store, on which the set is to be committed: others come
/// behind them. What the set has higher stays.
///
/// # Errors
/// A store that cannot be read.
pub(crate) fn keep_claimed<S: Snapshot>(snapshot: &S, set: &mut WriteSet) -> Result<(), Fault> {
    for csn in claimed_csns(snapshot)?.as_slice() {
        let known = stored_context_csns(&Layered::new(snapshot, &*set))?.of(csn.server_id);
        if known.is_none_or(|known| known < *csn) && !is_retired(&Layered::new(snapshot, &*set), csn)? {
            put_context_csn(set, csn);
        }
    }
    Ok(())
}
