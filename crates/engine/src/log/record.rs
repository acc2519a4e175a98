//! A record of the change log as bytes (`docs/disk-format.md`).
//!
//! Version, kind and flags take a byte each; numbers are base-128, low bits first; texts and values have their length
//! before them.

mod decode;
mod encode;

use std::fmt;

use uuid::Uuid;

use crate::csn::Csn;
use crate::entry::EntryId;
use crate::entry::split_rdn;
use crate::log::EntryPlace;
use crate::time::Timestamp;

use decode::Reader;
pub(super) use decode::claimed;
pub(crate) use encode::{LogHeading, encode_add, encode_modify};

const VERSION: u8 = 2;
/// Without offset, entry id and superior.
const VERSION_BEFORE: u8 = 1;
/// The kind of an add.
const ADD: u8 = 0;
/// The kind of a modify.
const MODIFY: u8 = 1;
const FLAG_LOCAL: u8 = 1;
const FLAG_CONTINUES: u8 = 2;
/// The entry as it was follows the change.
const FLAG_OLD: u8 = 4;
const FLAG_ABSENT: u8 = 8;
/// [`RecordForm::Whole`].
const FLAG_WHOLE: u8 = 16;
/// [`RecordForm::AsReceived`] follows.
const FLAG_RECEIVED: u8 = 32;
/// [`LogHeading::claims`].
const FLAG_CLAIMS: u8 = 64;

/// One changed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    pub csn: Csn,
    /// How many bytes of records were logged before this one.
    pub offset: u64,
    /// The entry's id; [`EntryId::ROOT`] in records that older versions wrote.
    pub entry: EntryId,
    /// The id of the superior below which an add or a rename put the entry; otherwise [`EntryId::ROOT`].
    pub superior: EntryId,
    pub entry_uuid: Uuid,
    /// The entry's DN before the change, as it is shown.
    pub dn: String,
    /// Who asked for it, as in modifiersName.
    pub requester: String,
    /// Derived on every server by itself: kept for restore, never sent.
    pub local: bool,
    /// Happens together with the record before it, or not at all.
    pub continues: bool,
    /// A replicated delete of an entry that was not here: nothing changed, and the next consumers that ask receive it.
    pub absent: bool,
    pub change: LoggedChange,
    /// Of the entry before the change, for the access log where that asks for it; empty otherwise.
    pub old: Vec<LoggedAttribute>,
    /// The form in which an access log sends it.
    pub form: RecordForm,
}

/// What an access log records of a change: a follower merges what was done where the change was made
/// (`docs/adr/0052-records-are-merged-by-registers.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordForm {
    /// What was done here.
    #[default]
    AsDone,
    /// The change gave the entry the content of another server's version: it is not a client's change.
    Whole,
    /// The change as another server's record has it. Here it was merged with newer ones, or the entry could not have
    /// the name.
    AsReceived {
        /// None: as it was done here.
        change: Option<Box<ReceivedChange>>,
        /// Where the change put the entry.
        place: Option<EntryPlace>,
    },
}

/// A change as in another server's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedChange {
    /// The entry's DN before the change, there.
    pub dn: String,
    pub change: LoggedChange,
}

/// What was changed, operational attributes included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedChange {
    Add(Vec<LoggedAttribute>),
    Modify(Vec<LoggedModification>),
    Delete,
    ModifyDn {
        new_rdn: String,
        delete_old_rdn: bool,
        new_superior: Option<String>,
        /// What the rename did to naming and operational attributes.
        modifications: Vec<LoggedModification>,
    },
}

/// An attribute with all its values, by names and not by numbers of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedAttribute {
    pub description: String,
    pub values: Vec<Vec<u8>>,
}

/// One modification, as it was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedModification {
    pub kind: LoggedKind,
    pub attribute: LoggedAttribute,
}

/// What a modification does to its attribute.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LoggedKind {
    Add = 0,
    Delete = 1,
    Replace = 2,
    Increment = 3,
    /// Adds what is not there yet.
    SoftAdd = 4,
}

/// Bytes that are no record: damage, or a newer version.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LogRecordError {
    Version(u8),
    Damaged,
}

impl fmt::Display for LogRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "log record of the unknown version {version}"),
            Self::Damaged => f.write_str("log record is damaged"),
        }
    }
}

impl std::error::Error for LogRecordError {}

impl LogRecord {
    /// A change that nobody asked for, of an entry without an id.
    pub fn new(csn: Csn, dn: String, change: LoggedChange) -> Self {
        Self {
            csn,
            offset: 0,
            entry: EntryId::ROOT,
            superior: EntryId::ROOT,
            entry_uuid: Uuid::nil(),
            dn,
            requester: String::new(),
            local: false,
            continues: false,
            absent: false,
            change,
            old: Vec::new(),
            form: RecordForm::AsDone,
        }
    }

    /// The change as it is sent to other servers, and the entry's DN before it.
    pub fn as_sent(&self) -> (&str, &LoggedChange) {
        match &self.form {
            RecordForm::AsReceived { change: Some(received), .. } => (&received.dn, &received.change),
            _ => (&self.dn, &self.change),
        }
    }

    /// # Errors
    /// Anything that [`Self::encode`] did not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, LogRecordError> {
        match bytes.first() {
            Some(&(VERSION | VERSION_BEFORE)) => Reader(bytes).record().ok_or(LogRecordError::Damaged),
            Some(&version) => Err(LogRecordError::Version(version)),
            None => Err(LogRecordError::Damaged),
        }
    }
}

/// What a follower of the log asks of a record: all but what was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutline {
    pub csn: Csn,
    pub entry: EntryId,
    pub entry_uuid: Uuid,
    /// The entry's DN before the change.
    pub dn: String,
    pub local: bool,
    /// As in [`LogRecord::absent`].
    pub absent: bool,
    pub kind: OutlineKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutlineKind {
    Add,
    Modify,
    Delete,
    ModifyDn { new_rdn: String, new_superior: Option<String> },
}

impl LogOutline {
    /// Reads the outline of a record.
    ///
    /// # Errors
    /// As [`LogRecord::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, LogRecordError> {
        match bytes.first() {
            Some(&(VERSION | VERSION_BEFORE)) => Reader(bytes).outline().ok_or(LogRecordError::Damaged),
            Some(&version) => Err(LogRecordError::Version(version)),
            None => Err(LogRecordError::Damaged),
        }
    }

    /// Whether the server put the entry below another superior by itself. What only gets another superior of the same name is not meant.
    pub fn is_settled(&self) -> bool {
        let is_moved = matches!(self.kind, OutlineKind::ModifyDn { new_superior: Some(_), .. });
        self.local && is_moved && !self.dn_behind().eq_ignore_ascii_case(&self.dn)
    }

    /// The entry's DN behind the change.
    pub fn dn_behind(&self) -> String {
        let OutlineKind::ModifyDn { new_rdn, new_superior } = &self.kind else { return self.dn.clone() };
        let superior = match new_superior {
            Some(superior) => superior.as_str(),
            None => split_rdn(&self.dn).1,
        };
        if superior.is_empty() { new_rdn.clone() } else { format!("{new_rdn},{superior}") }
    }
}

/// What retention asks of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    pub time: Timestamp,
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: LoggedChange) {
        let place = EntryPlace { superior: Uuid::from_u128(9), name: "cn=z,ou=a".to_owned() };
        let there = ReceivedChange { dn: "cn=b,dc=b".to_owned(), change: change.clone() };
        let received = RecordForm::AsReceived { change: Some(Box::new(there)), place: Some(place) };
        for form in [RecordForm::AsDone, RecordForm::Whole, received] {
            check_form(change.clone(), form);
        }
    }

    fn check_form(change: LoggedChange, form: RecordForm) {
        let record = LogRecord {
            csn: Csn {
                time: Timestamp(1_795_229_207_123_456),
                count: 300,
                server_id: 0xfff,
                modification: 0,
            },
            offset: 1 << 33,
            entry: EntryId(70_000),
            superior: EntryId(1),
            entry_uuid: Uuid::from_u128(7),
            dn: "cn=a,dc=b".to_owned(),
            requester: "cn=anonymous".to_owned(),
            local: matches!(change, LoggedChange::Delete),
            continues: matches!(change, LoggedChange::Modify(_)),
            absent: matches!(change, LoggedChange::Add(_)),
            form,
            old: match change {
                LoggedChange::Delete => vec![LoggedAttribute {
                    description: "sn".to_owned(),
                    values: vec![b"x".to_vec(), Vec::new()],
                }],
                _ => Vec::new(),
            },
            change,
        };
        let bytes = record.encode();
        assert_eq!(LogHead::of(&bytes), Some(LogHead { time: record.csn.time, offset: record.offset }));
        assert_eq!(LogRecord::decode(&bytes), Ok(record));
        for cut in 0..bytes.len() {
            assert!(LogRecord::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let attribute = |name: &str, values: &[&[u8]]| LoggedAttribute {
            description: name.to_owned(),
            values: values.iter().map(|v| v.to_vec()).collect(),
        };
        let modification =
            |kind| LoggedModification { kind, attribute: attribute("sn;lang-en", &[b"x", b""]) };
        check(LoggedChange::Add(vec![attribute("cn", &[b"a"]), attribute("photo", &[&[0xff; 300]])]));
        check(LoggedChange::Modify(vec![
            modification(LoggedKind::Increment),
            modification(LoggedKind::SoftAdd),
        ]));
        check(LoggedChange::Delete);
        for (delete_old_rdn, new_superior) in [(true, None), (false, Some("dc=c".to_owned()))] {
            let modifications = vec![modification(LoggedKind::Delete)];
            let new_rdn = "cn=z".to_owned();
            check(LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, modifications });
        }
        assert_eq!(LogRecord::decode(&[9]), Err(LogRecordError::Version(9)));
    }

    /// The example of `docs/disk-format.md`.
    #[test]
    fn the_documented_record() {
        let record = LogRecord {
            csn: Csn { time: Timestamp(1_000_000), count: 0, server_id: 1, modification: 0 },
            offset: 300,
            entry: EntryId(7),
            superior: EntryId::ROOT,
            entry_uuid: Uuid::nil(),
            dn: "cn=a".to_owned(),
            requester: "cn=b".to_owned(),
            local: false,
            continues: false,
            absent: false,
            change: LoggedChange::Delete,
            old: Vec::new(),
            form: RecordForm::AsDone,
        };
        let hex: String = record.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid = "0".repeat(32);
        assert_eq!(hex, format!("02020000000000000f4240ac020700000100{uuid}04636e3d6104636e3d62"));
        // As format 3 and older ones had it.
        let before = hex.replacen("0202", "0102", 1).replacen("ac020700", "", 1);
        let bytes: Vec<u8> = before
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let known = LogRecord { offset: 0, entry: EntryId::ROOT, ..record };
        assert_eq!(LogRecord::decode(&bytes), Ok(known));
    }
}
