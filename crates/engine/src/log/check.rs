//! Checks that the change log can be read, and that its changes are in order.

use larix_store::{Direction, KeyRange, Snapshot};

use super::{LogKey, LogRecord, LoggedChange, context_csns, positions};
use crate::csn::Csn;
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::tables::LOG;

/// Goes through all records and reports what does not fit, by the record's key. Answers how many there are. `first_here`:
/// what bears the server's own id was changed here first, one after the other; not so on a shadow, which may share the id
/// of whom it follows, nor where others have our changes, too: they come back to a server that was restored, in any order.
pub fn check<S: Snapshot>(
    snapshot: &S,
    (last_entry, first_here): (EntryId, bool),
    report: &mut dyn FnMut(LogKey, String),
) -> Result<u64, Fault> {
    let known = context_csns(snapshot)?;
    let mut count = 0;
    let mut before: Option<(LogKey, Option<Csn>, u64)> = None;
    // Of a server whose id was changed, the records of one id leave numbers to those of the other.
    let has_one_id = positions(snapshot).is_ok_and(|positions| positions.len() <= 1);
    let mut expected: Option<u64> = None;
    for row in snapshot.scan(LOG, KeyRange::all(), Direction::Forward)? {
        let (key, value) = row?;
        count += 1;
        let Some(key) = LogKey::from_bytes(&key) else {
            report(LogKey { server_id: 0, sequence: 0 }, "a key that is none of the log's".to_owned());
            continue;
        };
        let missing = expected.map_or(0, |expected| key.sequence.saturating_sub(expected));
        if has_one_id && missing > 0 {
            report(key, format!("{missing} of the changes before it are missing"));
        }
        expected = Some(key.sequence.saturating_add(1));
        let record = match LogRecord::decode(&value) {
            Ok(record) => record,
            Err(error) => {
                report(key, error.to_string());
                continue;
            }
        };
        if record.entry > last_entry {
            report(key, format!("entry {} is above the last id given", record.entry));
        }
        if let Some((last, csn, end)) = before.filter(|(last, ..)| last.server_id == key.server_id) {
            let is_own = |csn: Csn| csn.server_id == key.server_id;
            // A delete that came back from elsewhere may have any CSN of ours.
            let is_delete = matches!(record.change, LoggedChange::Delete);
            // What is never sent has the CSN of what brought it about, or of the time.
            let is_told = !record.local && !is_delete;
            let is_early = csn.is_some_and(|csn| is_own(csn) && record.csn < csn);
            if first_here && is_early && is_own(record.csn) && is_told {
                report(key, format!("its CSN {} is before that of record {}", record.csn, last.sequence));
            }
            if record.entry != EntryId::ROOT && record.offset < end {
                report(key, format!("its offset {} is within record {}", record.offset, last.sequence));
            }
        }
        // What came from another server is covered once all of its batch is in; what is never sent need not be.
        let latest = known.iter().find(|csn| csn.server_id == key.server_id);
        let is_covered = latest.is_some_and(|latest| *latest >= record.csn);
        if first_here && record.csn.server_id == key.server_id && !record.local && !is_covered {
            report(key, format!("its CSN {} is after the contextCSN", record.csn));
        }
        let csn = (!record.local).then_some(record.csn);
        before = Some((key, csn, record.offset + value.len() as u64));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use larix_store::memory::MemoryStore;
    use larix_store::{Durability, Store, Transaction, WriteSet};
    use uuid::Uuid;

    use super::*;
    use crate::log::append;
    use crate::tables::TABLES;
    use crate::time::Timestamp;

    /// Of a log with these records, of server ids and sequences.
    fn findings(records: &[(u16, u64)]) -> Vec<(u64, String)> {
        let store = MemoryStore::new(&TABLES).unwrap();
        let mut set = WriteSet::new();
        for &(server_id, sequence) in records {
            let record = LogRecord {
                csn: Csn { time: Timestamp(1_000_000), count: 0, server_id, modification: 0 },
                offset: sequence * 1_000,
                entry: EntryId(1),
                superior: EntryId::ROOT,
                entry_uuid: Uuid::nil(),
                dn: "cn=a".to_owned(),
                requester: "cn=b".to_owned(),
                local: false,
                continues: false,
                absent: false,
                change: LoggedChange::Delete,
                old: Vec::new(),
                form: crate::log::RecordForm::AsDone,
            };
            append(&mut set, LogKey { server_id, sequence }, &record);
        }
        store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
        let mut found = Vec::new();
        let mut note = |key: LogKey, fault| found.push((key.sequence, fault));
        let count = check(&store.snapshot().unwrap(), (EntryId(1), false), &mut note).unwrap();
        assert_eq!(count, records.len() as u64);
        found
    }

    #[test]
    fn records_that_are_missing_in_between_are_found() {
        // The oldest ones are trimmed.
        assert_eq!(findings(&[(1, 3), (1, 4), (1, 5)]), []);
        let missing = |count: u32| format!("{count} of the changes before it are missing");
        assert_eq!(findings(&[(1, 3), (1, 5), (1, 9)]), [(5, missing(1)), (9, missing(3))]);
        assert_eq!(findings(&[(1, 3), (2, 4), (1, 5)]), []);
    }
}
