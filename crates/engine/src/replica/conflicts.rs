//! The conflict log: changes that lost a conflict, for the administrator. Bounded: the oldest records go.

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};
use uuid::Uuid;

use super::state::CONFLICT;
use super::{ConflictKind, ConflictNote, KeptSide};
use crate::csn::Csn;
use crate::fault::Fault;
use crate::log::{LogRecord, LoggedAttribute, LoggedChange};
use crate::tables::REPLICA;
use crate::time::Timestamp;
use crate::write::AttributeValues;

const VERSION: u8 = 1;
/// Conflicts that are kept.
pub const CONFLICTS_MAX: u64 = 10_000;
/// Bytes of values of one conflict: what is beyond is cut, value by value.
pub const LOST_BYTES_MAX: usize = 64 << 10;

/// A conflict as it was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictRecord {
    /// Ascending; never given twice while any record is kept.
    pub number: u64,
    /// When this server settled it.
    pub at: Timestamp,
    pub note: ConflictNote,
}

fn key(number: u64) -> [u8; 9] {
    let mut key = [CONFLICT; 9];
    for (to, from) in key.iter_mut().skip(1).zip(number.to_be_bytes()) {
        *to = from;
    }
    key
}

fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

/// The number of the last conflict; 0 when there is none.
pub fn last_conflict<S: Snapshot>(snapshot: &S) -> Result<u64, Fault> {
    let row =
        snapshot.scan(REPLICA, KeyRange::prefix(&[CONFLICT]), Direction::Backward)?.next().transpose()?;
    Ok(row.and_then(|(key, _)| number_of(&key)).unwrap_or(0))
}

/// The conflicts after the number `after`, oldest first, `limit` at most.
pub fn conflicts<S: Snapshot>(snapshot: &S, after: u64, limit: usize) -> Result<Vec<ConflictRecord>, Fault> {
    let after = key(after);
    let mut found = Vec::new();
    let range = KeyRange::prefix(&[CONFLICT]);
    for row in snapshot.scan(REPLICA, range.after(&after), Direction::Forward)?.take(limit) {
        let (key, value) = row?;
        let record = number_of(&key).and_then(|number| decode(number, &value));
        found.push(record.ok_or(Fault::Damaged { what: "a record of the conflict log" })?);
    }
    Ok(found)
}

/// Adds a record, and removes the one that is beyond the limit.
pub(super) fn append<S: Snapshot>(
    snapshot: &S,
    set: &mut WriteSet,
    at: Timestamp,
    note: &ConflictNote,
) -> Result<(), Fault> {
    let number = last_conflict(snapshot)? + 1;
    set.put(REPLICA, &key(number), encode(at, note));
    if let Some(beyond) = number.checked_sub(CONFLICTS_MAX) {
        set.delete(REPLICA, &key(beyond));
    }
    Ok(())
}

/// Values up to [`LOST_BYTES_MAX`].
pub(super) fn cut(attributes: impl Iterator<Item = AttributeValues>) -> Vec<AttributeValues> {
    let mut room = LOST_BYTES_MAX;
    let mut shortened = Vec::new();
    for mut attribute in attributes {
        attribute.values.retain(|value| {
            let fits = value.len() <= room;
            room -= if fits { value.len() } else { 0 };
            fits
        });
        shortened.push(attribute);
    }
    shortened
}

fn encode(at: Timestamp, note: &ConflictNote) -> Vec<u8> {
    let mut out = vec![VERSION, note.kind as u8, note.kept as u8];
    out.extend_from_slice(&at.0.to_be_bytes());
    out.extend_from_slice(note.winner_uuid.as_bytes());
    let winner = note.winner_csn.as_ref().map(Csn::text).unwrap_or_default();
    out.push(u8::try_from(winner.len()).unwrap_or(0));
    out.extend_from_slice(winner.as_bytes());
    out.push(u8::from(note.loser_csn.is_some()));
    let lost = note.lost.iter().map(|attribute| LoggedAttribute {
        description: attribute.description.clone(),
        values: attribute.values.clone(),
    });
    let csn = note.loser_csn.unwrap_or(Csn::ZERO);
    let record = LogRecord::new(csn, note.dn.clone(), LoggedChange::Add(lost.collect()));
    let record = LogRecord { entry_uuid: note.loser_uuid, ..record };
    out.extend_from_slice(&record.encode());
    out
}

/// Whether a row of the table is a conflict that can be read.
pub(crate) fn is_conflict(row: &[u8]) -> bool {
    decode(0, row).is_some()
}

pub(super) fn decode(number: u64, bytes: &[u8]) -> Option<ConflictRecord> {
    let ([VERSION, kind, kept], rest) = bytes.split_first_chunk::<3>()? else { return None };
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let (winner, rest) = rest.split_first_chunk::<16>()?;
    let (length, rest) = rest.split_first()?;
    let (winner_csn, rest) = rest.split_at_checked(usize::from(*length))?;
    let (has_csn, rest) = rest.split_first()?;
    let record = LogRecord::decode(rest).ok()?;
    let LoggedChange::Add(lost) = record.change else { return None };
    let kinds = [ConflictKind::Modify, ConflictKind::Name, ConflictKind::Delete, ConflictKind::Loop];
    let note = ConflictNote {
        kind: *kinds.get(usize::from(*kind))?,
        kept: if *kept == KeptSide::Ours as u8 { KeptSide::Ours } else { KeptSide::Theirs },
        dn: record.dn,
        winner_uuid: Uuid::from_bytes(*winner),
        winner_csn: std::str::from_utf8(winner_csn).ok()?.parse().ok(),
        loser_uuid: record.entry_uuid,
        loser_csn: (*has_csn == 1).then_some(record.csn),
        lost: lost
            .into_iter()
            .map(|attribute| AttributeValues { description: attribute.description, values: attribute.values })
            .collect(),
    };
    Some(ConflictRecord { number, at: Timestamp(i64::from_be_bytes(*at)), note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let note = ConflictNote {
            kind: ConflictKind::Name,
            kept: KeptSide::Theirs,
            dn: "cn=a,dc=x".to_owned(),
            winner_uuid: Uuid::from_u128(1),
            winner_csn: Some(Csn { time: Timestamp(5), count: 1, server_id: 2, modification: 0 }),
            loser_uuid: Uuid::from_u128(2),
            loser_csn: None,
            lost: vec![AttributeValues { description: "cn".to_owned(), values: vec![b"a".to_vec()] }],
        };
        let bytes = encode(Timestamp(9), &note);
        assert_eq!(decode(7, &bytes), Some(ConflictRecord { number: 7, at: Timestamp(9), note }));
        for length in 0..bytes.len() {
            assert_eq!(decode(7, &bytes[..length]), None);
        }
    }

    #[test]
    fn what_lost_is_cut_at_its_limit() {
        let attribute = |length: usize| AttributeValues {
            description: "jpegPhoto".to_owned(),
            values: vec![vec![0; length], vec![1; 3]],
        };
        let cut = cut([attribute(LOST_BYTES_MAX - 4), attribute(9)].into_iter());
        assert_eq!(cut.iter().map(|a| a.values.len()).collect::<Vec<_>>(), [2, 0]);
    }
}
