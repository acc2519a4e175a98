//! How far this server and others have come, as CSNs in the table `meta`: a row for each server.

use larix_store::{Direction, KeyRange, Layered, Snapshot, WriteSet};

use super::{LogKey, record};
use crate::csn::{Csn, CsnVector, SERVER_ID_MAX};
use crate::fault::Fault;
use crate::tables::{LOG, META, meta};

/// What a damaged row of a retired server was.
const RETIRED: &str = "the CSN of a retired server";

/// The key of a server's row: behind the prefix the server id in three hexadecimal digits.
fn key(prefix: &[u8], server_id: u16) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + 3);
    key.extend_from_slice(prefix);
    let digit =
        |place: u32| char::from_digit(u32::from(server_id.min(SERVER_ID_MAX)) >> (4 * place) & 0xf, 16);
    key.extend([2, 1, 0].into_iter().filter_map(digit).map(|digit| digit as u8));
    key
}

fn put(set: &mut WriteSet, prefix: &[u8], csn: &Csn) {
    set.put(META, &key(prefix, csn.server_id), csn.text().into_bytes());
}

/// `what`: for the fault if the row is damaged.
fn read(row: &[u8], what: &'static str) -> Result<Csn, Fault> {
    let csn = std::str::from_utf8(row).ok().and_then(|text| text.parse().ok());
    csn.ok_or(Fault::Damaged { what })
}

/// The rows of all servers with a prefix.
fn read_all<S: Snapshot, C: FromIterator<Csn>>(
    snapshot: &S,
    prefix: &[u8],
    what: &'static str,
) -> Result<C, Fault> {
    let rows = snapshot.scan(META, KeyRange::prefix(prefix), Direction::Forward)?;
    rows.map(|row| read(&row?.1, what)).collect()
}

/// Notes that everything up to `csn` of its server is in the database. Of a server's own changes the last record of its log may say so
/// in the place of this row: who asks goes by [`context_csns`].
pub fn put_context_csn(set: &mut WriteSet, csn: &Csn) {
    put(set, meta::CONTEXT_CSN, csn);
}

/// Notes that the contextCSN came to `csn` by a pass over another server's content: what was deleted until then is not
/// here, but the log need not tell of it. An entry that came and went between two passes was never heard of.
pub(crate) fn put_content_csn(set: &mut WriteSet, csn: &Csn) {
    put(set, meta::CONTENT_CSN, csn);
}

/// Up to which CSN of each server the log does not prove that it has all deletes; nothing of servers that were retired.
///
/// # Errors
/// A store that cannot be read.
pub fn content_csns<S: Snapshot>(snapshot: &S) -> Result<CsnVector, Fault> {
    let csns: CsnVector = read_all(snapshot, meta::CONTENT_CSN, "a CSN of another server's content")?;
    if csns.is_empty() {
        return Ok(csns);
    }
    let known: CsnVector = context_csns(snapshot)?.into_iter().collect();
    Ok(csns.as_slice().iter().copied().filter(|csn| known.of(csn.server_id).is_some()).collect())
}

/// Notes that the contextCSN came to `csn` in a refresh of entries as they are: what was changed in them one by one until then
/// is not in the log, and an entry may have more than the change whose CSN it came with.
pub(crate) fn put_whole_csn(set: &mut WriteSet, csn: &Csn) {
    put(set, meta::WHOLE_CSN, csn);
}

/// Up to which CSN of each server entries came as they are, rather than change by change.
///
/// # Errors
/// A store that cannot be read.
pub fn whole_csns<S: Snapshot>(snapshot: &S) -> Result<Vec<Csn>, Fault> {
    read_all(snapshot, meta::WHOLE_CSN, "a CSN of entries that came whole")
}

/// Notes that an access log has gone past changes of this database which have lower CSNs: who has a cookie of it from before this one
/// may lack them.
pub(crate) fn put_doubted_csn(set: &mut WriteSet, csn: &Csn) {
    put(set, meta::DOUBTED_CSN, csn);
}

/// Before which CSN of each server a cookie says nothing of what was changed.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn doubted_csns<S: Snapshot>(snapshot: &S) -> Result<CsnVector, Fault> {
    read_all(snapshot, meta::DOUBTED_CSN, "a CSN of an access log that lacked changes")
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
    put(set, meta::RETIRED, &csn);
    set.delete(META, &key(meta::CONTEXT_CSN, server_id));
    Ok(true)
}

/// Notes that a server was retired when it had come so far; its contextCSN goes, if it is not beyond.
pub(crate) fn put_retired<S: Snapshot>(snapshot: &S, set: &mut WriteSet, csn: &Csn) -> Result<(), Fault> {
    put(set, meta::RETIRED, csn);
    if context_csns(snapshot)?.iter().any(|known| known.server_id == csn.server_id && known <= csn) {
        set.delete(META, &key(meta::CONTEXT_CSN, csn.server_id));
    }
    Ok(())
}

/// How far servers had come that were retired.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn retired_csns<S: Snapshot>(snapshot: &S) -> Result<Vec<Csn>, Fault> {
    read_all(snapshot, meta::RETIRED, RETIRED)
}

/// Whether the server of this CSN was retired when it had come so far: then it says nothing of who is behind.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn is_retired<S: Snapshot>(snapshot: &S, csn: &Csn) -> Result<bool, Fault> {
    let Some(row) = snapshot.get(META, &key(meta::RETIRED, csn.server_id))? else { return Ok(false) };
    Ok(*csn <= read(&row, RETIRED)?)
}

/// Whether these changes set a contextCSN.
pub(crate) fn sets_context_csn(set: &WriteSet) -> bool {
    set.records(META).any(|(key, _)| key.starts_with(meta::CONTEXT_CSN))
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
    read_all(snapshot, meta::CONTEXT_CSN, "a contextCSN")
}

/// What the last record of each server's log [says](super::LogHeading::claims).
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

/// The rows of a line that brings a part of the database, where several lines do: the contextCSN is that of all of them.
fn part_prefix(line: &str) -> Vec<u8> {
    [meta::PART_CSN, line.as_bytes(), b"/"].concat()
}

/// Notes that the line of this name has brought everything of its part up to `csn` of that server.
pub(crate) fn put_part_csn(set: &mut WriteSet, line: &str, csn: &Csn) {
    put(set, &part_prefix(line), csn);
}

/// How far the line of this name has come; nothing if it was never complete.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn part_csns<S: Snapshot>(snapshot: &S, line: &str) -> Result<CsnVector, Fault> {
    read_all(snapshot, &part_prefix(line), "a CSN of a part of the database")
}
