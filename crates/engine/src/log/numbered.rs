//! The change log by number: a sequence is the place of a record among those of all server IDs, and each is there once.

use std::borrow::Cow;
use std::fmt;
use std::iter::Peekable;

use larix_store::{Direction, KeyRange, KeyValue, ReadError, Snapshot};

use super::{LogKey, LogOutline, LogRecord, first_sequence, positions};
use crate::fault::Fault;
use crate::tables::LOG;

/// The lowest number that is kept; 0 of an empty log.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn first_number<S: Snapshot>(snapshot: &S) -> Result<u64, Fault> {
    let mut first: Option<u64> = None;
    for LogKey { server_id, .. } in positions(snapshot)? {
        let own = first_sequence(snapshot, server_id)?;
        first = Some(first.map_or(own, |first| first.min(own)));
    }
    Ok(first.unwrap_or(0))
}

/// The highest number; 0 of an empty log.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn last_number<S: Snapshot>(snapshot: &S) -> Result<u64, Fault> {
    Ok(super::end(snapshot)?.map_or(0, |end| end.sequence))
}

/// Records that each server derives by itself, which are passed over to find a change: more in a row hide it.
const PASSED_OVER_MAX: usize = 1_000;

/// The newest change that is not this server's own bookkeeping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastChange {
    pub number: u64,
    pub outline: LogOutline,
    /// Who asked for it, as in modifiersName.
    pub requester: String,
}

/// The newest change that is not this server's own bookkeeping; none of an empty log.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn last_change<S: Snapshot>(snapshot: &S) -> Result<Option<LastChange>, Fault> {
    let mut ends = positions(snapshot)?;
    ends.sort_by_key(|end| std::cmp::Reverse(end.sequence));
    let mut last: Option<LastChange> = None;
    // One for each server ID that wrote here: usually one.
    for end in ends {
        if last.as_ref().is_some_and(|last| last.number > end.sequence) {
            break;
        }
        let prefix = end.server_id.to_be_bytes();
        let rows = snapshot.scan(LOG, KeyRange::prefix(&prefix), Direction::Backward)?;
        for row in rows.take(PASSED_OVER_MAX) {
            let (key, value) = row?;
            let number = LogKey::from_bytes(&key).ok_or(DAMAGED)?.sequence;
            let outline = LogOutline::decode(&value).map_err(|_| DAMAGED)?;
            if outline.local || outline.absent {
                continue;
            }
            if last.as_ref().is_none_or(|last| last.number < number) {
                let requester = LogRecord::decode(&value).map_err(|_| DAMAGED)?.requester;
                last = Some(LastChange { number, outline, requester });
            }
            break;
        }
    }
    Ok(last)
}

/// Calls `visit` with the records from a number on as they are stored, in the order of their numbers, until it answers false. What was
/// before that number is not read.
///
/// # Errors
/// A store that cannot be read, or a key that is damaged.
pub fn visit_numbered<S: Snapshot>(
    snapshot: &S,
    from: u64,
    visit: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> Result<(), Fault> {
    for row in NumberedRows::after(snapshot, from.saturating_sub(1), Direction::Forward)? {
        let (key, value) = row?;
        if !visit(key.sequence, &value) {
            break;
        }
    }
    Ok(())
}

/// The records behind a number as they are stored, in the order of their numbers or against it: those of all server IDs.
pub struct NumberedRows<'s, S: Snapshot + 's> {
    /// One for each server ID that wrote here: usually one.
    scans: Vec<Peekable<S::Scan<'s>>>,
    direction: Direction,
}

impl<S: Snapshot> fmt::Debug for NumberedRows<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NumberedRows").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl<'s, S: Snapshot> NumberedRows<'s, S> {
    /// # Errors
    /// A store that cannot be read, or a key that is damaged.
    pub fn after(snapshot: &'s S, sequence: u64, direction: Direction) -> Result<Self, Fault> {
        let mut scans = Vec::new();
        for last in positions(snapshot)?.into_iter().filter(|last| last.sequence > sequence) {
            let (prefix, after) = (last.server_id.to_be_bytes(), LogKey { sequence, ..last }.to_bytes());
            let rows = snapshot.scan(LOG, KeyRange::prefix(&prefix).after(&after), direction)?;
            scans.push(rows.peekable());
        }
        Ok(Self { scans, direction })
    }

    /// The same of those of one server ID.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn of_one(snapshot: &'s S, after: LogKey, direction: Direction) -> Result<Self, Fault> {
        let (prefix, after) = (after.server_id.to_be_bytes(), after.to_bytes());
        let rows = snapshot.scan(LOG, KeyRange::prefix(&prefix).after(&after), direction)?;
        Ok(Self { scans: vec![rows.peekable()], direction })
    }

    /// Which scan has the next row; none if all are at their end.
    fn next_scan(&mut self) -> Result<Option<usize>, Fault> {
        let mut next: Option<(u64, usize)> = None;
        for (at, scan) in self.scans.iter_mut().enumerate() {
            let number = match scan.peek() {
                None => continue,
                // It comes first, so that the caller meets it.
                Some(Err(_)) => return Ok(Some(at)),
                Some(Ok((key, _))) => LogKey::from_bytes(key).ok_or(DAMAGED)?.sequence,
            };
            let is_first = next.is_none_or(|(known, _)| match self.direction {
                Direction::Forward => number < known,
                Direction::Backward => number > known,
            });
            if is_first {
                next = Some((number, at));
            }
        }
        Ok(next.map(|(_, at)| at))
    }
}

impl<'s, S: Snapshot> Iterator for NumberedRows<'s, S> {
    type Item = Result<(LogKey, Cow<'s, [u8]>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = match self.next_scan() {
            Ok(at) => at?,
            Err(fault) => return Some(Err(fault)),
        };
        self.scans.get_mut(at)?.next().map(read)
    }
}

fn read(row: Result<KeyValue<'_>, ReadError>) -> Result<(LogKey, Cow<'_, [u8]>), Fault> {
    let (key, value) = row?;
    Ok((LogKey::from_bytes(&key).ok_or(DAMAGED)?, value))
}

const DAMAGED: Fault = Fault::Damaged { what: "a key of the change log" };

#[cfg(test)]
mod tests {
    use larix_store::{Durability, Store, Transaction, WriteSet};

    use super::*;

    #[test]
    fn numbers_tell_the_order_of_all_server_ids() {
        let store = larix_store::memory::MemoryStore::new(&crate::tables::TABLES).unwrap();
        let mut set = WriteSet::new();
        // A server whose ID was 1, then 2, then 1 again; the oldest records were trimmed.
        for (server_id, sequence) in [(1, 3), (1, 4), (2, 5), (2, 6), (1, 7), (1, 8)] {
            set.put(LOG, &LogKey { server_id, sequence }.to_bytes(), vec![sequence as u8]);
        }
        let empty = store.snapshot().unwrap();
        assert_eq!((first_number(&empty).unwrap(), last_number(&empty).unwrap()), (0, 0));
        store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
        let snapshot = store.snapshot().unwrap();
        assert_eq!((first_number(&snapshot).unwrap(), last_number(&snapshot).unwrap()), (3, 8));
        for (from, expected) in
            [(0, &[3, 4, 5, 6, 7, 8][..]), (1, &[3, 4, 5, 6, 7, 8]), (5, &[5, 6, 7, 8]), (8, &[8]), (9, &[])]
        {
            let mut found = Vec::new();
            visit_numbered(&snapshot, from, &mut |number, record| {
                assert_eq!(record, [number as u8]);
                found.push(number);
                true
            })
            .unwrap();
            assert_eq!(found, expected, "{from}");
        }
        let backward = |after| {
            let rows = NumberedRows::after(&snapshot, after, Direction::Backward).unwrap();
            rows.map(|row| row.map(|(key, _)| (key.server_id, key.sequence)).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(backward(0), [(1, 8), (1, 7), (2, 6), (2, 5), (1, 4), (1, 3)]);
        assert_eq!(backward(5), [(1, 8), (1, 7), (2, 6)]);
        let mut found = Vec::new();
        let mut two = |number, _: &[u8]| {
            found.push(number);
            found.len() < 2
        };
        visit_numbered(&snapshot, 4, &mut two).unwrap();
        assert_eq!(found, [4, 5]);
    }
}
