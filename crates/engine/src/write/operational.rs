//! The operational attributes that every change keeps (RFC 4512 section 3.4, RFC 4530).

use larix_schema::{AttributeDescription, AttributeTypeId};
use uuid::Uuid;

use super::known::KnownSchema;
use crate::change::prepare::{Change, ChangeKind, RequiredAccess};
use crate::csn::Csn;
use crate::entry::{Entry, EntryAttribute};
use crate::time::Timestamp;

/// The value of creatorsName and modifiersName for an anonymous requester.
pub const ANONYMOUS: &str = "cn=anonymous";

/// Who changed what when.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub csn: Csn,
    /// The DN of the requester as it is shown; [`ANONYMOUS`] for none.
    pub name: String,
}

impl Stamp {
    /// `requester`: the DN as it is shown; empty for nobody.
    pub fn new(csn: Csn, requester: &str) -> Self {
        let name = if requester.is_empty() { ANONYMOUS } else { requester };
        Self { csn, name: name.to_owned() }
    }
}

/// Says who makes a new entry, as [`complete_entry`] will: for access rules that are asked beforehand. `requester`: the DN as it is
/// shown; empty for nobody.
pub(crate) fn name_creator(known: &KnownSchema, entry: &mut Entry, requester: &str) {
    let name = if requester.is_empty() { ANONYMOUS } else { requester };
    for attribute in [known.creators_name, known.modifiers_name] {
        if entry.values(attribute).is_empty() {
            let description = AttributeDescription::plain(attribute);
            entry.attributes.push(EntryAttribute::new(description, vec![name.as_bytes().to_vec()]));
        }
    }
}

/// Gives a new entry its operational attributes; those it has already (a dump is loaded, or the relax control set
/// them) stay. Call it after the schema check, which sets structuralObjectClass.
pub fn complete_entry(known: &KnownSchema, entry: &mut Entry, stamp: &Stamp, uuid: Uuid) {
    let time = stamp.csn.time.generalized();
    for (attribute, value) in [
        (known.entry_uuid, uuid.to_string()),
        (known.creators_name, stamp.name.clone()),
        (known.create_timestamp, time.clone()),
        (known.entry_csn, stamp.csn.text()),
        (known.modifiers_name, stamp.name.clone()),
        (known.modify_timestamp, time),
    ] {
        if entry.values(attribute).is_empty() {
            let description = AttributeDescription::plain(attribute);
            entry.attributes.push(EntryAttribute::new(description, vec![value.into_bytes()]));
        }
    }
}

/// Sets the createTimestamp of a new entry behind the delete of an entry with the same entryUUID, also if the request sets an earlier
/// one. The other members know of the delete. The time tells them that this is a new entry and no change of the deleted one.
pub(crate) fn begin_behind(known: &KnownSchema, entry: &mut Entry, stamp: &Stamp, delete: &Csn) {
    let first = delete.time.seconds().saturating_add(1);
    let given = entry.values(known.create_timestamp).first();
    let given = given.and_then(|text| Timestamp::parse_generalized(std::str::from_utf8(text).ok()?));
    if given.is_some_and(|given| given.seconds() >= first) {
        return;
    }
    let begun = stamp.csn.time.max(Timestamp::from_seconds(first)).generalized();
    let description = AttributeDescription::plain(known.create_timestamp);
    match entry.attributes.iter_mut().find(|attribute| attribute.description == description) {
        // It stays in its place.
        Some(attribute) => attribute.values = vec![begun.into_bytes()],
        None => entry.attributes.push(EntryAttribute::new(description, vec![begun.into_bytes()])),
    }
}

/// The changes that go with a modify or a rename, but for attributes that the request sets itself. None has its
/// [equality keys](key_changes) yet: who replaces whole attributes asks for none.
pub fn modification_changes(known: &KnownSchema, requested: &[Change], stamp: &Stamp) -> Vec<Change> {
    let sets = |attribute: AttributeTypeId| {
        requested.iter().any(|change| {
            change.description.attribute == attribute
                && matches!(change.kind, ChangeKind::Add | ChangeKind::SoftAdd | ChangeKind::Replace)
        })
    };
    let mut changes = Vec::with_capacity(3);
    for (attribute, value) in [
        (known.entry_csn, stamp.csn.text()),
        (known.modifiers_name, stamp.name.clone()),
        (known.modify_timestamp, stamp.csn.time.generalized()),
    ] {
        if !sets(attribute) {
            changes.push(Change {
                kind: ChangeKind::Replace,
                description: AttributeDescription::plain(attribute),
                keys: Vec::new(),
                values: vec![value.into_bytes()],
                access: RequiredAccess::Internal,
            });
        }
    }
    changes
}

/// Gives [those changes](modification_changes) their equality keys: their values are normal.
pub(crate) fn key_changes(changes: &mut [Change]) {
    changes.iter_mut().for_each(|change| change.keys.clone_from(&change.values));
}
