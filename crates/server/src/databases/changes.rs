//! The newest changes of a database, from its change log, for the page that takes one back.

use larix_engine::Fault;
use larix_engine::log::{self, LogKey, LogRecord, LoggedChange};
use larix_schema::NormalDn;
use larix_store::Store as _;

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
    pub(crate) fn newest_changes(&self, dn: &NormalDn, most: u64) -> Result<Vec<(LogKey, LogRecord)>, Fault> {
        let Some(served) = self.stored(dn) else { return Ok(Vec::new()) };
        let snapshot = served.database().store().snapshot()?;
        let Some(end) = log::end(&snapshot)? else { return Ok(Vec::new()) };
        let after = LogKey { sequence: end.sequence.saturating_sub(most), ..end };
        let mut found = Vec::new();
        log::visit_after(&snapshot, after, &mut |key, record| {
            found.push((key, without_values(record)));
            true
        })?;
        found.reverse();
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
        let Some(end) = log::end(&snapshot)? else { return Ok(None) };
        if sequence == 0 || sequence > end.sequence {
            return Ok(None);
        }
        let mut record = None;
        log::visit_after(&snapshot, LogKey { sequence: sequence - 1, ..end }, &mut |key, found| {
            record = (key.sequence == sequence).then_some(found);
            false
        })?;
        let Some(record) = record else { return Ok(None) };
        let mut earlier = Vec::new();
        let after = LogKey { sequence: sequence.saturating_sub(LOOKED_AT_MAX), ..end };
        let mut bytes = 0;
        log::visit_stored_after(&snapshot, after, &mut |key, found, stored| {
            if key.sequence < sequence && found.entry_uuid == record.entry_uuid {
                bytes += stored.len();
                earlier.push(found);
            }
            // With more than that, what was before is taken for unknown.
            if bytes > OF_ENTRY_BYTES_MAX {
                earlier.clear();
                return false;
            }
            key.sequence < sequence
        })?;
        Ok(Some(LoggedWithHistory { record, earlier }))
    }
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
