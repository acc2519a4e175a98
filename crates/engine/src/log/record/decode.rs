//! Bytes to records: whole, in outline, or what retention asks alone.

use uuid::Uuid;

use super::{
    FLAG_ABSENT, FLAG_CLAIMS, FLAG_CONTINUES, FLAG_LOCAL, FLAG_OLD, FLAG_RECEIVED, FLAG_WHOLE, LogHead,
    LogOutline, LogRecord, LogRecordError, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification,
    OutlineKind, ReceivedChange, RecordForm, VERSION_BEFORE,
};
use crate::csn::Csn;
use crate::entry::EntryId;
use crate::entry::record::take_varint;
use crate::log::EntryPlace;
use crate::time::Timestamp;

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

/// The CSN that the contextCSN of the record's server has come to by it; none if the record says nothing of that.
///
/// # Errors
/// Bytes that do not begin as a record does.
pub(in crate::log) fn claimed(bytes: &[u8]) -> Result<Option<Csn>, LogRecordError> {
    let mut reader = Reader(bytes);
    let &[version, _, flags] = reader.array::<3>().ok_or(LogRecordError::Damaged)?;
    if flags & FLAG_CLAIMS == 0 {
        return Ok(None);
    }
    reader.csn(version).map(|(csn, ..)| Some(csn)).ok_or(LogRecordError::Damaged)
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

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn head(&mut self) -> Option<Head> {
        let &[version, kind, flags] = self.array::<3>()?;
        let (csn, offset, entry, superior) = self.csn(version)?;
        let entry_uuid = Uuid::from_bytes(*self.array::<16>()?);
        let (dn, requester) = (self.text()?, self.text()?);
        Some(Head { kind, flags, offset, entry, superior, csn, entry_uuid, dn, requester })
    }

    /// The CSN, and among its parts offset, entry and superior.
    fn csn(&mut self, version: u8) -> Option<(Csn, u64, EntryId, EntryId)> {
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
        Some((csn, offset, entry, superior))
    }

    pub(super) fn record(&mut self) -> Option<LogRecord> {
        let Head { kind, flags, offset, entry, superior, csn, entry_uuid, dn, requester } = self.head()?;
        let change = self.change(kind)?;
        let absent = flags & FLAG_ABSENT != 0;
        let (local, continues) = (flags & FLAG_LOCAL != 0, flags & FLAG_CONTINUES != 0);
        let old = if flags & FLAG_OLD == 0 { Vec::new() } else { self.list(Self::attribute)? };
        let form = match (flags & FLAG_WHOLE != 0, flags & FLAG_RECEIVED != 0) {
            (false, false) => RecordForm::AsDone,
            (true, false) => RecordForm::Whole,
            (false, true) => self.as_received()?,
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
            form,
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

    fn as_received(&mut self) -> Option<RecordForm> {
        let place = match self.bytes()? {
            [] => None,
            place => Some(EntryPlace::decode(place)?),
        };
        let change = match self.array::<1>()? {
            [0] => None,
            _ => {
                let &[kind] = self.array::<1>()?;
                Some(Box::new(ReceivedChange { dn: self.text()?, change: self.change(kind)? }))
            }
        };
        Some(RecordForm::AsReceived { change, place })
    }

    pub(super) fn outline(&mut self) -> Option<LogOutline> {
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
