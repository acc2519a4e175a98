//! The consumer of an Active Directory (`syncrepl type=dirsync`): searches with the DirSync control, whose answers say what changed
//! since a cookie, without I/O. What an answer makes of an entry here is [`merge`]'s.
//!
//! DirSync tells less than RFC 4533: of an entry that changed it sends the attributes that did, of attributes with links the values
//! that came and went, and of a deleted one its tombstone. It says nothing of entries that a filter no longer takes.

mod merge;

use larix_engine::write::AttributeValues;
use larix_proto::control::{ControlValue as _, DirSyncRequest, DirSyncResponse};
use larix_proto::{
    ControlBuf, FilterBuf, LdapResult, MessageId, Response, ResponseMessage, ResultCode, Scope,
    SearchResultEntry, client, oid,
};
use uuid::Uuid;

use crate::consumer::Line;

pub use merge::{Known, LeftOut, Merge, set_cookie, suffix_entry};

/// The attribute of the suffix that keeps the cookie, as slapd has it.
pub const COOKIE: &str = "dirSyncCookie";
/// What identifies an entry of an Active Directory: it becomes the entryUUID, byte by byte, as in slapd.
pub const GUID: &str = "objectGUID";
const DELETED: &str = "isDeleted";
const OBJECT_CLASS: &str = "objectClass";
/// What the schema has to know, as in slapd: its `msuser` does.
pub const NEEDED: [&str; 4] = [GUID, "instanceType", DELETED, "whenCreated"];

/// An entry that was added or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub uuid: Uuid,
    /// There.
    pub dn: String,
    /// Of one that changed, what did. Without values: it has the attribute no longer.
    pub attributes: Vec<AttributeValues>,
}

impl Received {
    /// Whether it says all of the entry. Of what only changed the classes do not come.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.attributes.iter().any(|one| one.description.eq_ignore_ascii_case(OBJECT_CLASS))
    }
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Entry(Received),
    /// The entry was deleted.
    Gone(Uuid),
    /// All up to this cookie has come.
    Page {
        cookie: Vec<u8>,
        more: bool,
    },
    Refused(LdapResult),
}

/// The searches of one pass: page after page, from a cookie to the present.
#[derive(Debug)]
pub struct Session {
    line: Line,
    cookie: Vec<u8>,
    message: MessageId,
}

impl Session {
    /// Without a cookie everything is asked for.
    #[must_use]
    pub fn new(line: Line, cookie: Vec<u8>) -> Self {
        Self { line, cookie, message: MessageId(0) }
    }

    fn attributes(&self) -> Vec<&str> {
        let mut attributes: Vec<&str> = self.line.attributes.iter().map(String::as_str).collect();
        if attributes.is_empty() {
            return vec!["*"];
        }
        for needed in NEEDED.into_iter().chain([OBJECT_CLASS]) {
            if !attributes.iter().any(|name| *name == "*" || name.eq_ignore_ascii_case(needed)) {
                attributes.push(needed);
            }
        }
        attributes
    }

    /// The filter of the line. A tombstone has few attributes: it comes whatever the filter says of others.
    fn filter(&self) -> FilterBuf {
        let own = &self.line.filter;
        if self.cookie.is_empty() || *own == FilterBuf::every_entry() {
            return own.clone();
        }
        FilterBuf::parse(&format!("(|{own}({DELETED}=TRUE))")).unwrap_or_else(|_| own.clone())
    }

    /// Writes the search for the next page.
    pub fn request(&mut self, out: &mut Vec<u8>, id: MessageId) {
        self.message = id;
        let flags = DirSyncRequest::INCREMENTAL_VALUES;
        let mut controls =
            vec![DirSyncRequest { flags, max_bytes: 0, cookie: &self.cookie }.to_control(true)];
        if !self.cookie.is_empty() {
            controls.push(ControlBuf { oid: oid::SHOW_DELETED.into(), critical: true, value: None });
        }
        controls.extend(self.line.controls.iter().cloned());
        let (filter, attributes) = (self.filter(), self.attributes());
        let search = client::Search {
            size_limit: self.line.size_limit,
            time_limit: self.line.time_limit,
            attributes: &attributes,
            ..client::Search::new(&self.line.base, self.line.scope, filter.as_filter())
        };
        client::search(out, id, &search, &controls);
    }

    /// Writes a search for all of one entry, of which a change alone came.
    pub fn read(&mut self, out: &mut Vec<u8>, id: MessageId, dn: &str) {
        self.message = id;
        let attributes = self.attributes();
        let search = client::Search {
            attributes: &attributes,
            ..client::Search::new(dn, Scope::Base, self.line.filter.as_filter())
        };
        client::search(out, id, &search, &self.line.controls);
    }

    /// What an answer to the last request means. `None`: nothing.
    ///
    /// # Errors
    /// An answer that cannot be.
    pub fn receive(&mut self, message: &ResponseMessage<'_>) -> Result<Option<Event>, String> {
        if message.id != self.message {
            return Ok(None);
        }
        match &message.response {
            Response::Entry(entry) => received(entry).map(Some),
            Response::SearchDone(result) => self.done(&result.to_owned(), message).map(Some),
            _ => Ok(None),
        }
    }

    fn done(&mut self, result: &LdapResult, message: &ResponseMessage<'_>) -> Result<Event, String> {
        if result.code != ResultCode::SUCCESS {
            return Ok(Event::Refused(result.clone()));
        }
        let Some(control) = message.controls.iter().find(|control| control.oid == oid::DIR_SYNC) else {
            // The end of a read; of a page it is none.
            return Ok(Event::Page { cookie: Vec::new(), more: false });
        };
        let answer = DirSyncResponse::decode(control.value).map_err(|error| error.to_string())?;
        if answer.more && answer.cookie == self.cookie {
            return Err("the server says that there is more, with the cookie that it was sent".to_owned());
        }
        self.cookie = answer.cookie.to_vec();
        Ok(Event::Page { cookie: self.cookie.clone(), more: answer.more })
    }
}

fn received(entry: &SearchResultEntry<'_>) -> Result<Event, String> {
    let named = |name: &str| {
        let found = entry.attributes.iter().find(|one| one.description.eq_ignore_ascii_case(name));
        found.and_then(|one| one.values.iter().next())
    };
    let uuid = named(GUID).and_then(|value| Uuid::from_slice(value).ok()).ok_or_else(|| {
        format!("entry \"{}\": no {GUID} of 16 bytes; is the provider an Active Directory?", entry.dn)
    })?;
    if named(DELETED).is_some_and(|value| value.eq_ignore_ascii_case(b"TRUE")) {
        return Ok(Event::Gone(uuid));
    }
    let attributes = entry.attributes.iter().map(|one| AttributeValues {
        description: one.description.to_owned(),
        values: one.values.iter().map(<[u8]>::to_vec).collect(),
    });
    Ok(Event::Entry(Received { uuid, dn: entry.dn.to_owned(), attributes: attributes.collect() }))
}

#[cfg(test)]
mod tests;
