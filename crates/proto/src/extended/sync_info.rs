//! The sync info message (RFC 4533 section 2.5): an intermediate response.

use crate::ber::{self, DecodeError, Fault, Reader, Tag, write};
use crate::control::required;
use crate::oid;

/// What a provider tells between entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncInfo<'a> {
    NewCookie(&'a [u8]),
    /// The delete phase ends, or with `done` the refresh.
    RefreshDelete {
        cookie: Option<&'a [u8]>,
        done: bool,
    },
    /// The present phase ends, or with `done` the refresh.
    RefreshPresent {
        cookie: Option<&'a [u8]>,
        done: bool,
    },
    /// Many entries that are still there, or with `deletes` no longer.
    IdSet {
        cookie: Option<&'a [u8]>,
        deletes: bool,
        uuids: Vec<[u8; 16]>,
    },
}

const NEW_COOKIE: Tag = Tag::context(0);
const REFRESH_DELETE: Tag = Tag::context_constructed(1);
const REFRESH_PRESENT: Tag = Tag::context_constructed(2);
const ID_SET: Tag = Tag::context_constructed(3);

impl<'a> SyncInfo<'a> {
    /// The response's name.
    pub const OID: &'static str = oid::SYNC_INFO;

    pub fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(required(value, "syncInfoValue")?);
        let (tag, contents) = reader.element("syncInfoValue")?;
        reader.finish("syncInfoValue")?;
        let mut parts = Reader::new(contents);
        Ok(match tag {
            NEW_COOKIE => Self::NewCookie(contents),
            REFRESH_DELETE => {
                let (cookie, done) = refresh(&mut parts)?;
                Self::RefreshDelete { cookie, done }
            }
            REFRESH_PRESENT => {
                let (cookie, done) = refresh(&mut parts)?;
                Self::RefreshPresent { cookie, done }
            }
            ID_SET => {
                let cookie = parts.optional(Tag::OCTET_STRING, "cookie")?;
                let deletes = parts.boolean_or_false("refreshDeletes")?;
                Self::IdSet { cookie, deletes, uuids: uuids(parts.set("syncUUIDs")?)? }
            }
            Tag(other) => {
                return Err(DecodeError::new("syncInfoValue", Fault::UnknownChoice(i64::from(other))));
            }
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::NewCookie(cookie) => write::octets(&mut out, NEW_COOKIE, cookie),
            Self::RefreshDelete { cookie, done } => write_refresh(&mut out, REFRESH_DELETE, *cookie, *done),
            Self::RefreshPresent { cookie, done } => write_refresh(&mut out, REFRESH_PRESENT, *cookie, *done),
            Self::IdSet { cookie, deletes, uuids } => write::constructed(&mut out, ID_SET, |out| {
                write::optional(out, Tag::OCTET_STRING, *cookie);
                if *deletes {
                    write::boolean(out, Tag::BOOLEAN, true);
                }
                write::constructed(out, Tag::SET, |out| {
                    uuids.iter().for_each(|uuid| write::octets(out, Tag::OCTET_STRING, uuid));
                });
            }),
        }
        out
    }
}

/// `refreshDone` is true unless it says otherwise.
fn refresh<'a>(parts: &mut Reader<'a>) -> Result<(Option<&'a [u8]>, bool), DecodeError> {
    let cookie = parts.optional(Tag::OCTET_STRING, "cookie")?;
    let done = match parts.optional(Tag::BOOLEAN, "refreshDone")? {
        Some(contents) => ber::boolean(contents, "refreshDone")?,
        None => true,
    };
    Ok((cookie, done))
}

fn write_refresh(out: &mut Vec<u8>, tag: Tag, cookie: Option<&[u8]>, done: bool) {
    write::constructed(out, tag, |out| {
        write::optional(out, Tag::OCTET_STRING, cookie);
        if !done {
            write::boolean(out, Tag::BOOLEAN, false);
        }
    });
}

fn uuids(mut set: Reader<'_>) -> Result<Vec<[u8; 16]>, DecodeError> {
    let mut uuids = Vec::new();
    while !set.is_empty() {
        let uuid = <[u8; 16]>::try_from(set.octets("syncUUID")?);
        uuids.push(uuid.map_err(|_| DecodeError::new("syncUUID", Fault::Invalid("not 16 octets")))?);
    }
    Ok(uuids)
}
