//! Paged results (RFC 2696).

use larix_proto::{ControlBuf, LdapResult, ResultCode, oid};

use super::cookie::{self, Binding, Position};
use crate::controls::PagedResults;
use crate::database::COOKIE_SECRET_LENGTH;
use crate::entry::EntryId;

/// One page of a search.
#[derive(Debug)]
pub struct Pages {
    binding: Binding,
    secret: [u8; COOKIE_SECRET_LENGTH],
    size: u32,
    from: Option<Position>,
}

impl Pages {
    /// # Errors
    /// protocolError for a cookie that was not given for this search.
    pub fn new(
        binding: Binding,
        secret: [u8; COOKIE_SECRET_LENGTH],
        paged: &PagedResults,
    ) -> Result<Self, LdapResult> {
        let from = if paged.cookie.is_empty() {
            None
        } else {
            let position = cookie::decode(&secret, &binding, &paged.cookie);
            let invalid = || LdapResult::with(ResultCode::PROTOCOL_ERROR, "paged results cookie is invalid");
            Some(position.ok_or_else(invalid)?)
        };
        Ok(Self { binding, secret, size: paged.size, from })
    }

    /// Makes the page smaller: others have filled it in part.
    pub fn limit(&mut self, entries: u32) {
        self.size = self.size.min(entries);
    }

    /// Entries of this page.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Entries of the pages before.
    pub fn before(&self) -> u32 {
        self.from.as_ref().map_or(0, |position| position.count)
    }

    /// What the page before ended with.
    pub fn last(&self) -> Option<(&[u8], EntryId)> {
        self.from.as_ref().map(|position| (position.sort_key.as_slice(), position.last))
    }

    /// Whether the client wants no more.
    pub fn is_abandoned(&self) -> bool {
        self.size == 0 && self.from.is_some()
    }

    /// The control of a page after which there is more.
    pub fn more(&self, sent: u32, last: EntryId, sort_key: Vec<u8>, estimate: u32) -> ControlBuf {
        let position = Position { count: self.before().saturating_add(sent), last, sort_key };
        response(estimate, &cookie::encode(&self.secret, &self.binding, &position))
    }

    /// The control of the last page.
    pub fn end() -> ControlBuf {
        response(0, &[])
    }
}

fn response(estimate: u32, cookie: &[u8]) -> ControlBuf {
    use larix_proto::ber::{Tag, write};
    let mut value = Vec::with_capacity(cookie.len() + 16);
    write::constructed(&mut value, Tag::SEQUENCE, |out| {
        write::integer(out, Tag::INTEGER, i64::from(estimate.min(i32::MAX as u32)));
        write::octets(out, Tag::OCTET_STRING, cookie);
    });
    ControlBuf { oid: oid::PAGED_RESULTS.into(), critical: false, value: Some(value) }
}
