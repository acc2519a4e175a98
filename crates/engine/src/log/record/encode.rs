//! Records to bytes.

use std::collections::BTreeMap;

use larix_schema::{AttributeDescription, Schema};
use uuid::Uuid;

use super::{
    ADD, FLAG_ABSENT, FLAG_CLAIMS, FLAG_CONTINUES, FLAG_LOCAL, FLAG_OLD, FLAG_RECEIVED, FLAG_WHOLE,
    LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification, MODIFY, ReceivedChange,
    RecordForm, VERSION,
};
use crate::change::prepare::Change;
use crate::csn::Csn;
use crate::entry::record::put_varint;
use crate::entry::{EntryAttribute, EntryId};
use crate::log::EntryPlace;

/// Room for most records.
const USUAL_BYTES: usize = 512;

impl LogRecord {
    pub fn encode(&self) -> Vec<u8> {
        let heading = LogHeading {
            csn: self.csn,
            offset: self.offset,
            entry: self.entry,
            superior: self.superior,
            entry_uuid: self.entry_uuid,
            dn: self.dn.as_bytes(),
            requester: &self.requester,
            local: self.local,
            continues: self.continues,
            absent: self.absent,
            claims: false,
        };
        let more = match self.form {
            RecordForm::AsDone => 0,
            RecordForm::Whole => FLAG_WHOLE,
            RecordForm::AsReceived { .. } => FLAG_RECEIVED,
        };
        let mut out =
            heading.encode(kind_of(&self.change), more | if self.old.is_empty() { 0 } else { FLAG_OLD });
        put_change(&mut out, &self.change);
        put_old(&mut out, &self.old);
        if let RecordForm::AsReceived { change, place } = &self.form {
            put_bytes(&mut out, &place.as_ref().map(EntryPlace::encode).unwrap_or_default());
            out.push(u8::from(change.is_some()));
            if let Some(ReceivedChange { dn, change }) = change.as_deref() {
                out.push(kind_of(change));
                put_bytes(&mut out, dn.as_bytes());
                put_change(&mut out, change);
            }
        }
        out
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
    /// It is text.
    pub(crate) dn: &'a [u8],
    pub(crate) requester: &'a str,
    pub(crate) local: bool,
    pub(crate) continues: bool,
    pub(crate) absent: bool,
    /// The contextCSN of this server has come to the CSN of the change: that needs no row of its own as long as this is the last
    /// record.
    pub(crate) claims: bool,
}

impl LogHeading<'_> {
    /// `more`: flags of what follows.
    fn encode(&self, kind: u8, more: u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.local, FLAG_LOCAL)
            | flag(self.continues, FLAG_CONTINUES)
            | flag(self.absent, FLAG_ABSENT)
            | flag(self.claims, FLAG_CLAIMS)
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
        put_bytes(&mut out, self.dn);
        put_bytes(&mut out, self.requester.as_bytes());
        out
    }
}

/// The record of an add: what [`LogRecord::encode`] makes of [`LoggedChange::Add`]. The values of a large set come in the order of
/// the modification in `mods` that they came by.
pub(crate) fn encode_add(
    schema: &Schema,
    heading: &LogHeading<'_>,
    attributes: &[EntryAttribute],
    mods: &[Change],
    old: &[LoggedAttribute],
) -> Vec<u8> {
    let mut out = heading.encode(ADD, if old.is_empty() { 0 } else { FLAG_OLD });
    put_varint(&mut out, attributes.len() as u64);
    for EntryAttribute { description, values, large, .. } in attributes {
        put_description(&mut out, schema, description);
        let came = mods.iter().filter(|_| large.is_some()).find(|change| change.description == *description);
        let came = came.map_or(&[][..], |change| &change.values);
        let added = large.as_ref().map(|large| &large.added);
        let count = values.len() + came.len() + added.map_or(0, BTreeMap::len);
        put_varint(&mut out, count as u64);
        put_values(&mut out, values);
        put_values(&mut out, came);
        added.into_iter().flat_map(BTreeMap::values).for_each(|value| put_bytes(&mut out, value));
    }
    put_old(&mut out, old);
    out
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
        put_description(&mut out, schema, description);
        put_varint(&mut out, values.len() as u64);
        put_values(&mut out, values);
    }
    put_old(&mut out, old);
    out
}

fn put_description(out: &mut Vec<u8>, schema: &Schema, description: &AttributeDescription) {
    let name = schema.attribute(description.attribute).name();
    let options = description.options();
    let length = name.len() + options.iter().map(|option| 1 + option.len()).sum::<usize>();
    put_varint(out, length as u64);
    out.extend_from_slice(name.as_bytes());
    for option in options {
        out.push(b';');
        out.extend_from_slice(option.as_bytes());
    }
}

fn put_values(out: &mut Vec<u8>, values: &[Vec<u8>]) {
    if values.len() > USUAL_VALUES {
        // One piece of memory at once, where growing would copy most of it several times.
        out.reserve(values.iter().map(|value| value.len() + LENGTH_BYTES).sum());
    }
    values.iter().for_each(|value| put_bytes(out, value));
}

/// More values than most attributes have.
const USUAL_VALUES: usize = 16;
/// What the length of a value takes, nearly always at most.
const LENGTH_BYTES: usize = 2;

fn kind_of(change: &LoggedChange) -> u8 {
    match change {
        LoggedChange::Add(_) => ADD,
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
