//! Persistent search and entry change notification (draft-ietf-ldapext-psearch-03).

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Fault, Reader, Tag, write};
use crate::oid;

/// On a search request: the search goes on with changes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PersistentSearch {
    /// The kinds of changes that the client wants: a sum of [`ChangeType`]s, 1 to 15.
    pub change_types: u8,
    /// Entries that match already are not sent.
    pub changes_only: bool,
    /// Each changed entry goes with an [`EntryChangeNotification`].
    pub return_ecs: bool,
}

/// A kind of change: draft-ietf-ldapext-psearch-03 section 4.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeType {
    Add = 1,
    Delete = 2,
    Modify = 4,
    ModDn = 8,
}

/// On an entry: what was done to it. (`changeNumber` is not sent: it is optional.)
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EntryChangeNotification<'a> {
    pub change_type: ChangeType,
    /// Of a modify DN: the name before.
    pub previous_dn: Option<&'a str>,
}

/// All kinds of changes.
const ALL: u8 = 15;

impl<'a> ControlValue<'a> for PersistentSearch {
    const OID: &'static str = oid::PERSISTENT_SEARCH;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "PersistentSearch")?).sequence("PersistentSearch")?;
        let types = value.integer("changeTypes")?;
        let change_types = u8::try_from(types).ok().filter(|types| (1..=ALL).contains(types));
        let change_types = change_types
            .ok_or_else(|| DecodeError::new("changeTypes", Fault::Invalid("not a number from 1 to 15")))?;
        let changes_only = value.boolean("changesOnly")?;
        Ok(Self { change_types, changes_only, return_ecs: value.boolean("returnECs")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(self.change_types));
            write::boolean(out, Tag::BOOLEAN, self.changes_only);
            write::boolean(out, Tag::BOOLEAN, self.return_ecs);
        })
    }
}

impl<'a> ControlValue<'a> for EntryChangeNotification<'a> {
    const OID: &'static str = oid::ENTRY_CHANGE_NOTIFICATION;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let name = "EntryChangeNotification";
        let mut value = Reader::new(required(value, name)?).sequence(name)?;
        let change_type = match value.enumerated("changeType")? {
            1 => ChangeType::Add,
            2 => ChangeType::Delete,
            4 => ChangeType::Modify,
            8 => ChangeType::ModDn,
            other => return Err(DecodeError::new("changeType", Fault::UnknownChoice(other))),
        };
        let previous = value.optional(Tag::OCTET_STRING, "previousDN")?;
        let previous_dn = previous
            .map(|bytes| std::str::from_utf8(bytes))
            .transpose()
            .map_err(|_| DecodeError::new("previousDN", Fault::Invalid("not UTF-8")))?;
        Ok(Self { change_type, previous_dn })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::ENUMERATED, self.change_type as i64);
            write::optional(out, Tag::OCTET_STRING, self.previous_dn.map(str::as_bytes));
        })
    }
}
