//! The newest changes of a database, from its change log, for the page that takes one back.

use larix_engine::Fault;
use larix_engine::log::{LogKey, LogRecord, LoggedChange, NumberedRows};
use larix_schema::NormalDn;
use larix_store::{Direction, Store as _};

use super::Databases;

/// Records that are looked through for one that is asked for and for what was before it.
const LOOKED_AT_MAX: u64 = 100_000;
/// Bytes of records of one entry that are kept meanwhile.
const OF_ENTRY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A record, and those of the same entry before it, the oldest first.
#[derive(Debug)]
pub(crate) struct LoggedWithHistory {
    pub(crate) record: LogRecord,
    pub(crate) earlier: Vec<LogRecord>,
}

impl Databases {
    /// The newest `most` records of the database that holds this name, the newest first, without values.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn newest_changes(
        &self,
        dn: &NormalDn,
        most: usize,
    ) -> Result<Vec<(LogKey, LogRecord)>, Fault> {
        let Some(served) = self.stored(dn) else { return Ok(Vec::new()) };
        let snapshot = served.database().store().snapshot()?;
        let mut found = Vec::new();
        for row in NumberedRows::after(&snapshot, 0, Direction::Backward)?.take(most) {
            let (key, stored) = row?;
            found.push((key, without_values(decoded(&stored)?)));
        }
        Ok(found)
    }

    /// One record with the history of its entry, as far as the log has it. `None`: it is not there any more.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn change_with_history(
        &self,
        dn: &NormalDn,
        sequence: u64,
    ) -> Result<Option<LoggedWithHistory>, Fault> {
        let Some(served) = self.stored(dn) else { return Ok(None) };
        let snapshot = served.database().store().snapshot()?;
        let Some(before) = sequence.checked_sub(1) else { return Ok(None) };
        let row = NumberedRows::after(&snapshot, before, Direction::Forward)?.next().transpose()?;
        let Some((_, stored)) = row.filter(|(key, _)| key.sequence == sequence) else { return Ok(None) };
        let record = decoded(&stored)?;
        let mut earlier = Vec::new();
        let after = sequence.saturating_sub(LOOKED_AT_MAX);
        let mut bytes = 0;
        for row in NumberedRows::after(&snapshot, after, Direction::Forward)? {
            let (key, stored) = row?;
            if key.sequence >= sequence {
                break;
            }
            let found = decoded(&stored)?;
            if found.entry_uuid == record.entry_uuid {
                bytes += stored.len();
                earlier.push(found);
            }
            // With more than that, what was before is taken for unknown.
            if bytes > OF_ENTRY_BYTES_MAX {
                earlier.clear();
                break;
            }
        }
        Ok(Some(LoggedWithHistory { record, earlier }))
    }
}

fn decoded(stored: &[u8]) -> Result<LogRecord, Fault> {
    LogRecord::decode(stored).map_err(|_| Fault::Damaged { what: "a record of the change log" })
}

/// A list needs the names of attributes alone: values may be large, and are nobody's business.
fn without_values(mut record: LogRecord) -> LogRecord {
    record.old = Vec::new();
    match &mut record.change {
        LoggedChange::Add(attributes) => attributes.iter_mut().for_each(|one| one.values = Vec::new()),
        LoggedChange::Modify(list) | LoggedChange::ModifyDn { modifications: list, .. } => {
            list.iter_mut().for_each(|one| one.attribute.values = Vec::new());
        }
        LoggedChange::Delete => {}
    }
    record
}
