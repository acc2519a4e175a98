//! A record of the change log as bytes (`docs/disk-format.md`).
//!
//! Version, kind and flags take a byte each; numbers are base-128, low bits first; texts and values have their length
//! before them.

use std::fmt;

use larix_schema::{AttributeDescription, Schema};
use uuid::Uuid;

use crate::csn::Csn;
use crate::entry::EntryId;
use crate::entry::record::{put_varint, take_varint};
use crate::replica::EntryPlace;
use crate::time::Timestamp;
use crate::write::split_rdn;

const VERSION: u8 = 2;
/// Without offset, entry id and superior.
const VERSION_BEFORE: u8 = 1;
/// The kind of a modify.
const MODIFY: u8 = 1;
/// Room for most records.
const USUAL_BYTES: usize = 256;
const FLAG_LOCAL: u8 = 1;
const FLAG_CONTINUES: u8 = 2;
/// The entry as it was follows the change.
const FLAG_OLD: u8 = 4;
const FLAG_ABSENT: u8 = 8;
/// [`Told::Whole`].
const FLAG_WHOLE: u8 = 16;
/// [`Told::AsItCame`] follows.
const FLAG_CAME: u8 = 32;

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
    /// A replicated delete of an entry that was not here: nothing changed, and who asks next is to hear of it.
    pub absent: bool,
    pub change: LoggedChange,
    /// Of the entry before the change, for the access log where that asks for it; empty otherwise.
    pub old: Vec<LoggedAttribute>,
    /// What an access log tells of it.
    pub told: Told,
}

/// What an access log tells of a change, so that whoever follows it merges what was done where the change was made
/// (`docs/adr/0052-records-are-merged-by-registers.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// What was done here.
    #[default]
    AsDone,
    /// What was done here is what it took to make the entry another server's version of it: no change that anybody made.
    Whole,
    /// What another server's record told of the change. Here it was merged with newer ones, or the entry could not have
    /// the name.
    AsItCame {
        /// None: as it was done here.
        change: Option<Box<Came>>,
        /// Where the change put the entry.
        place: Option<EntryPlace>,
    },
}

/// A change as another server's record told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedAttribute {
    pub description: String,
    pub values: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedModification {
    pub kind: LoggedKind,
    pub attribute: LoggedAttribute,
}

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
    /// The change as others are told of it, and the entry's DN before it.
    pub fn as_told(&self) -> (&str, &LoggedChange) {
        match &self.told {
            Told::AsItCame { change: Some(came), .. } => (&came.dn, &came.change),
            _ => (&self.dn, &self.change),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let heading = LogHeading {
            csn: self.csn,
            offset: self.offset,
            entry: self.entry,
            superior: self.superior,
            entry_uuid: self.entry_uuid,
            dn: &self.dn,
            requester: &self.requester,
            local: self.local,
            continues: self.continues,
            absent: self.absent,
        };
        let more = match self.told {
            Told::AsDone => 0,
            Told::Whole => FLAG_WHOLE,
            Told::AsItCame { .. } => FLAG_CAME,
        };
        let mut out =
            heading.encode(kind_of(&self.change), more | if self.old.is_empty() { 0 } else { FLAG_OLD });
        put_change(&mut out, &self.change);
        put_old(&mut out, &self.old);
        if let Told::AsItCame { change, place } = &self.told {
            put_bytes(&mut out, &place.as_ref().map(EntryPlace::encode).unwrap_or_default());
            out.push(u8::from(change.is_some()));
            if let Some(Came { dn, change }) = change.as_deref() {
                out.push(kind_of(change));
                put_bytes(&mut out, dn.as_bytes());
                put_change(&mut out, change);
            }
        }
        out
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

/// What all kinds of records begin with; the fields are those of [`LogRecord`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct LogHeading<'a> {
    pub(crate) csn: Csn,
    pub(crate) offset: u64,
    pub(crate) entry: EntryId,
    pub(crate) superior: EntryId,
    pub(crate) entry_uuid: Uuid,
    pub(crate) dn: &'a str,
    pub(crate) requester: &'a str,
    pub(crate) local: bool,
    pub(crate) continues: bool,
    pub(crate) absent: bool,
}

impl LogHeading<'_> {
    /// `more`: flags of what follows.
    fn encode(&self, kind: u8, more: u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.local, FLAG_LOCAL)
            | flag(self.continues, FLAG_CONTINUES)
            | flag(self.absent, FLAG_ABSENT)
            | more;
        out.extend_from_slice(&[VERSION, kind, flags]);
        out.extend_from_slice(&self.csn.time.0.to_be_bytes());
        put_varint(&mut out, self.offset);
        put_varint(&mut out, self.entry.0);
        put_varint(&mut out, self.superior.0);
        put_varint(&mut out, u64::from(self.csn.count));
        put_varint(&mut out, u64::from(self.csn.server_id));
        put_varint(&mut out, u64::from(self.csn.modification));
        out.extend_from_slice(self.entry_uuid.as_bytes());
        put_bytes(&mut out, self.dn.as_bytes());
        put_bytes(&mut out, self.requester.as_bytes());
        out
    }
}

/// The record of a modify: what [`LogRecord::encode`] makes of [`LoggedChange::Modify`].
pub(crate) fn encode_modify<'m>(
    schema: &Schema,
    heading: &LogHeading<'_>,
    modifications: impl ExactSizeIterator<Item = (LoggedKind, &'m AttributeDescription, &'m [Vec<u8>])>,
    old: &[LoggedAttribute],
) -> Vec<u8> {
    let mut out = heading.encode(MODIFY, if old.is_empty() { 0 } else { FLAG_OLD });
    put_varint(&mut out, modifications.len() as u64);
    for (kind, description, values) in modifications {
        out.push(kind as u8);
        let name = schema.attribute(description.attribute).name();
        let options = description.options();
        let length = name.len() + options.iter().map(|option| 1 + option.len()).sum::<usize>();
        put_varint(&mut out, length as u64);
        out.extend_from_slice(name.as_bytes());
        for option in options {
            out.push(b';');
            out.extend_from_slice(option.as_bytes());
        }
        put_varint(&mut out, values.len() as u64);
        values.iter().for_each(|value| put_bytes(&mut out, value));
    }
    put_old(&mut out, old);
    out
}

fn kind_of(change: &LoggedChange) -> u8 {
    match change {
        LoggedChange::Add(_) => 0,
        LoggedChange::Modify(_) => MODIFY,
        LoggedChange::Delete => 2,
        LoggedChange::ModifyDn { .. } => 3,
    }
}

fn put_change(out: &mut Vec<u8>, change: &LoggedChange) {
    match change {
        LoggedChange::Add(attributes) => {
            put_varint(out, attributes.len() as u64);
            attributes.iter().for_each(|a| put_attribute(out, a));
        }
        LoggedChange::Modify(modifications) => put_modifications(out, modifications),
        LoggedChange::Delete => {}
        LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, modifications } => {
            put_bytes(out, new_rdn.as_bytes());
            out.push(u8::from(*delete_old_rdn) | u8::from(new_superior.is_some()) << 1);
            if let Some(superior) = new_superior {
                put_bytes(out, superior.as_bytes());
            }
            put_modifications(out, modifications);
        }
    }
}

fn put_old(out: &mut Vec<u8>, old: &[LoggedAttribute]) {
    if !old.is_empty() {
        put_varint(out, old.len() as u64);
        old.iter().for_each(|attribute| put_attribute(out, attribute));
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

impl LogHead {
    /// Reads no more of the record than that.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [version, ..] = *reader.array::<3>()?;
        let time = Timestamp(i64::from_be_bytes(*reader.array::<8>()?));
        let offset = if version == VERSION_BEFORE { 0 } else { reader.number()? };
        Some(Self { time, offset })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_attribute(out: &mut Vec<u8>, attribute: &LoggedAttribute) {
    put_bytes(out, attribute.description.as_bytes());
    put_varint(out, attribute.values.len() as u64);
    attribute.values.iter().for_each(|value| put_bytes(out, value));
}

fn put_modifications(out: &mut Vec<u8>, modifications: &[LoggedModification]) {
    put_varint(out, modifications.len() as u64);
    for modification in modifications {
        out.push(modification.kind as u8);
        put_attribute(out, &modification.attribute);
    }
}

/// What all kinds of records have in common.
struct Head {
    kind: u8,
    flags: u8,
    offset: u64,
    entry: EntryId,
    superior: EntryId,
    csn: Csn,
    entry_uuid: Uuid,
    dn: String,
    requester: String,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn head(&mut self) -> Option<Head> {
        let &[version, kind, flags] = self.array::<3>()?;
        let time = Timestamp(i64::from_be_bytes(*self.array::<8>()?));
        let (offset, entry, superior) = match version {
            VERSION_BEFORE => (0, EntryId::ROOT, EntryId::ROOT),
            _ => (self.number()?, EntryId(self.number()?), EntryId(self.number()?)),
        };
        let csn = Csn {
            time,
            count: u32::try_from(self.number()?).ok()?,
            server_id: u16::try_from(self.number()?).ok()?,
            modification: u32::try_from(self.number()?).ok()?,
        };
        let entry_uuid = Uuid::from_bytes(*self.array::<16>()?);
        let (dn, requester) = (self.text()?, self.text()?);
        Some(Head { kind, flags, offset, entry, superior, csn, entry_uuid, dn, requester })
    }

    fn record(&mut self) -> Option<LogRecord> {
        let Head { kind, flags, offset, entry, superior, csn, entry_uuid, dn, requester } = self.head()?;
        let change = self.change(kind)?;
        let absent = flags & FLAG_ABSENT != 0;
        let (local, continues) = (flags & FLAG_LOCAL != 0, flags & FLAG_CONTINUES != 0);
        let old = if flags & FLAG_OLD == 0 { Vec::new() } else { self.list(Self::attribute)? };
        let told = match (flags & FLAG_WHOLE != 0, flags & FLAG_CAME != 0) {
            (false, false) => Told::AsDone,
            (true, false) => Told::Whole,
            (false, true) => self.as_it_came()?,
            (true, true) => return None,
        };
        let record = LogRecord {
            csn,
            offset,
            entry,
            superior,
            entry_uuid,
            dn,
            requester,
            local,
            continues,
            absent,
            change,
            old,
            told,
        };
        self.0.is_empty().then_some(record)
    }

    fn change(&mut self, kind: u8) -> Option<LoggedChange> {
        Some(match kind {
            0 => LoggedChange::Add(self.list(Self::attribute)?),
            1 => LoggedChange::Modify(self.list(Self::modification)?),
            2 => LoggedChange::Delete,
            3 => {
                let new_rdn = self.text()?;
                let &[flags] = self.array::<1>()?;
                let new_superior = if flags & 2 == 0 { None } else { Some(self.text()?) };
                let modifications = self.list(Self::modification)?;
                LoggedChange::ModifyDn {
                    new_rdn,
                    delete_old_rdn: flags & 1 != 0,
                    new_superior,
                    modifications,
                }
            }
            _ => return None,
        })
    }

    fn as_it_came(&mut self) -> Option<Told> {
        let place = match self.bytes()? {
            [] => None,
            place => Some(EntryPlace::decode(place)?),
        };
        let change = match self.array::<1>()? {
            [0] => None,
            _ => {
                let &[kind] = self.array::<1>()?;
                Some(Box::new(Came { dn: self.text()?, change: self.change(kind)? }))
            }
        };
        Some(Told::AsItCame { change, place })
    }

    fn outline(&mut self) -> Option<LogOutline> {
        let head = self.head()?;
        let kind = match head.kind {
            0 => OutlineKind::Add,
            1 => OutlineKind::Modify,
            2 => OutlineKind::Delete,
            3 => {
                let new_rdn = self.text()?;
                let &[flags] = self.array::<1>()?;
                let new_superior = if flags & 2 == 0 { None } else { Some(self.text()?) };
                OutlineKind::ModifyDn { new_rdn, new_superior }
            }
            _ => return None,
        };
        let Head { csn, entry, entry_uuid, dn, flags, .. } = head;
        let (local, absent) = (flags & FLAG_LOCAL != 0, flags & FLAG_ABSENT != 0);
        Some(LogOutline { csn, entry, entry_uuid, dn, local, absent, kind })
    }

    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        take_varint(&mut self.0)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn list<T>(&mut self, item: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        // Each item takes a byte at least: a damaged count cannot ask for more memory than the record has.
        let room = usize::try_from(count).ok().filter(|count| *count <= self.0.len())?;
        let mut items = Vec::with_capacity(room);
        for _ in 0..room {
            items.push(item(self)?);
        }
        Some(items)
    }

    fn attribute(&mut self) -> Option<LoggedAttribute> {
        let description = self.text()?;
        Some(LoggedAttribute { description, values: self.list(|r| r.bytes().map(<[u8]>::to_vec))? })
    }

    fn modification(&mut self) -> Option<LoggedModification> {
        let kind = match self.array::<1>()? {
            [0] => LoggedKind::Add,
            [1] => LoggedKind::Delete,
            [2] => LoggedKind::Replace,
            [3] => LoggedKind::Increment,
            [4] => LoggedKind::SoftAdd,
            _ => return None,
        };
        Some(LoggedModification { kind, attribute: self.attribute()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: LoggedChange) {
        let place = EntryPlace { superior: Uuid::from_u128(9), name: "cn=z,ou=a".to_owned() };
        let there = Came { dn: "cn=b,dc=b".to_owned(), change: change.clone() };
        let came = Told::AsItCame { change: Some(Box::new(there)), place: Some(place) };
        for told in [Told::AsDone, Told::Whole, came] {
            check_told(change.clone(), told);
        }
    }

    fn check_told(change: LoggedChange, told: Told) {
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
            told,
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
            told: Told::AsDone,
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
