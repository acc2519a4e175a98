//! Content synchronization (RFC 4533): request, state, done.

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Fault, Reader, Tag, write};
use crate::oid;

/// On a search request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest<'a> {
    pub mode: SyncMode,
    pub cookie: Option<&'a [u8]>,
    /// Whether the client would rather load anew than get a refresh required result.
    pub reload_hint: bool,
}

/// How long the search goes on: RFC 4533 section 2.2.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum SyncMode {
    RefreshOnly = 1,
    RefreshAndPersist = 3,
}

/// On an entry or reference.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SyncState<'a> {
    pub state: EntryState,
    /// The entryUUID in binary.
    pub entry_uuid: [u8; 16],
    pub cookie: Option<&'a [u8]>,
}

/// What a message says of its entry: RFC 4533 section 2.3.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryState {
    Present = 0,
    Add = 1,
    Modify = 2,
    Delete = 3,
}

/// On the search's result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SyncDone<'a> {
    pub cookie: Option<&'a [u8]>,
    pub refresh_deletes: bool,
}

impl<'a> ControlValue<'a> for SyncRequest<'a> {
    const OID: &'static str = oid::SYNC_REQUEST;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "syncRequestValue")?).sequence("syncRequestValue")?;
        let mode = match value.enumerated("mode")? {
            1 => SyncMode::RefreshOnly,
            3 => SyncMode::RefreshAndPersist,
            other => return Err(DecodeError::new("mode", Fault::UnknownChoice(other))),
        };
        let cookie = value.optional(Tag::OCTET_STRING, "cookie")?;
        Ok(Self { mode, cookie, reload_hint: value.boolean_or_false("reloadHint")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::ENUMERATED, self.mode as i64);
            cookie(out, self.cookie);
            true_only(out, self.reload_hint);
        })
    }
}

impl<'a> ControlValue<'a> for SyncState<'a> {
    const OID: &'static str = oid::SYNC_STATE;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "syncStateValue")?).sequence("syncStateValue")?;
        let state = match value.enumerated("state")? {
            0 => EntryState::Present,
            1 => EntryState::Add,
            2 => EntryState::Modify,
            3 => EntryState::Delete,
            other => return Err(DecodeError::new("state", Fault::UnknownChoice(other))),
        };
        let entry_uuid = <[u8; 16]>::try_from(value.octets("entryUUID")?)
            .map_err(|_| DecodeError::new("entryUUID", Fault::Invalid("not 16 octets")))?;
        Ok(Self { state, entry_uuid, cookie: value.optional(Tag::OCTET_STRING, "cookie")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::ENUMERATED, self.state as i64);
            write::octets(out, Tag::OCTET_STRING, &self.entry_uuid);
            cookie(out, self.cookie);
        })
    }
}

impl<'a> ControlValue<'a> for SyncDone<'a> {
    const OID: &'static str = oid::SYNC_DONE;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "syncDoneValue")?).sequence("syncDoneValue")?;
        let cookie = value.optional(Tag::OCTET_STRING, "cookie")?;
        Ok(Self { cookie, refresh_deletes: value.boolean_or_false("refreshDeletes")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            cookie(out, self.cookie);
            true_only(out, self.refresh_deletes);
        })
    }
}

fn cookie(out: &mut Vec<u8>, cookie: Option<&[u8]>) {
    write::optional(out, Tag::OCTET_STRING, cookie);
}

/// A BOOLEAN DEFAULT FALSE.
fn true_only(out: &mut Vec<u8>, value: bool) {
    if value {
        write::boolean(out, Tag::BOOLEAN, true);
    }
}
