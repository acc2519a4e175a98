//! Encoding what a client sends; everything is appended to a buffer.

use crate::ber::Tag;
use crate::ber::write;
use crate::control::ControlBuf;
use crate::encode::message;
use crate::filter::Filter;
use crate::list::ModifyOperation;
use crate::message_id::MessageId;
use crate::request::{DerefAliases, Scope};

/// What a search asks for.
#[derive(Copy, Clone, Debug)]
pub struct Search<'a> {
    pub base: &'a str,
    pub scope: Scope,
    pub deref: DerefAliases,
    /// Entries; 0 is no limit.
    pub size_limit: u32,
    /// Seconds; 0 is no limit.
    pub time_limit: u32,
    pub types_only: bool,
    pub filter: Filter<'a>,
    /// None is all user attributes.
    pub attributes: &'a [&'a str],
}

impl<'a> Search<'a> {
    /// A search without limits for all user attributes.
    pub const fn new(base: &'a str, scope: Scope, filter: Filter<'a>) -> Self {
        Self {
            base,
            scope,
            deref: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter,
            attributes: &[],
        }
    }
}

/// An attribute to add: its description and values.
#[derive(Copy, Clone, Debug)]
pub struct ClientAttribute<'a, V> {
    pub description: &'a str,
    pub values: &'a [V],
}

/// One step of a modify.
#[derive(Copy, Clone, Debug)]
pub struct ClientChange<'a, V> {
    pub operation: ModifyOperation,
    pub attribute: ClientAttribute<'a, V>,
}

pub fn simple_bind(out: &mut Vec<u8>, id: MessageId, name: &str, password: &[u8], controls: &[ControlBuf]) {
    bind(out, id, name, controls, |out| write::octets(out, Tag::context(0), password));
}

pub fn sasl_bind(
    out: &mut Vec<u8>,
    id: MessageId,
    name: &str,
    mechanism: &str,
    credentials: Option<&[u8]>,
    controls: &[ControlBuf],
) {
    bind(out, id, name, controls, |out| {
        write::constructed(out, Tag::context_constructed(3), |out| {
            write::string(out, mechanism);
            write::optional(out, Tag::OCTET_STRING, credentials);
        });
    });
}

fn bind(
    out: &mut Vec<u8>,
    id: MessageId,
    name: &str,
    controls: &[ControlBuf],
    authentication: impl FnOnce(&mut Vec<u8>),
) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(0), |out| {
            write::integer(out, Tag::INTEGER, 3);
            write::string(out, name);
            authentication(out);
        });
    });
}

pub fn unbind(out: &mut Vec<u8>, id: MessageId) {
    message(out, id, &[], |out| write::octets(out, Tag::application(2), b""));
}

/// An operation that was encoded before, such as a search, with these controls.
pub fn encoded(out: &mut Vec<u8>, id: MessageId, operation: &[u8], controls: &[ControlBuf]) {
    message(out, id, controls, |out| out.extend_from_slice(operation));
}

pub fn search(out: &mut Vec<u8>, id: MessageId, search: &Search<'_>, controls: &[ControlBuf]) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(3), |out| {
            write::string(out, search.base);
            write::integer(out, Tag::ENUMERATED, search.scope as i64);
            write::integer(out, Tag::ENUMERATED, search.deref as i64);
            write::integer(out, Tag::INTEGER, i64::from(search.size_limit));
            write::integer(out, Tag::INTEGER, i64::from(search.time_limit));
            write::boolean(out, Tag::BOOLEAN, search.types_only);
            out.extend_from_slice(search.filter.as_ber());
            write::constructed(out, Tag::SEQUENCE, |out| {
                search.attributes.iter().for_each(|attribute| write::string(out, attribute));
            });
        });
    });
}

pub fn modify<V: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    id: MessageId,
    object: &str,
    changes: &[ClientChange<'_, V>],
    controls: &[ControlBuf],
) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(6), |out| {
            write::string(out, object);
            write::constructed(out, Tag::SEQUENCE, |out| {
                for change in changes {
                    write::constructed(out, Tag::SEQUENCE, |out| {
                        write::integer(out, Tag::ENUMERATED, change.operation as i64);
                        attribute(out, &change.attribute);
                    });
                }
            });
        });
    });
}

pub fn add<V: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    id: MessageId,
    entry: &str,
    attributes: &[ClientAttribute<'_, V>],
    controls: &[ControlBuf],
) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(8), |out| {
            write::string(out, entry);
            write::constructed(out, Tag::SEQUENCE, |out| {
                attributes.iter().for_each(|added| attribute(out, added));
            });
        });
    });
}

pub fn delete(out: &mut Vec<u8>, id: MessageId, entry: &str, controls: &[ControlBuf]) {
    message(out, id, controls, |out| write::octets(out, Tag::application(10), entry.as_bytes()));
}

pub fn modify_dn(
    out: &mut Vec<u8>,
    id: MessageId,
    entry: &str,
    new_rdn: &str,
    delete_old_rdn: bool,
    new_superior: Option<&str>,
    controls: &[ControlBuf],
) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(12), |out| {
            write::string(out, entry);
            write::string(out, new_rdn);
            write::boolean(out, Tag::BOOLEAN, delete_old_rdn);
            write::optional(out, Tag::context(0), new_superior.map(str::as_bytes));
        });
    });
}

pub fn compare(
    out: &mut Vec<u8>,
    id: MessageId,
    entry: &str,
    attribute: &str,
    value: &[u8],
    controls: &[ControlBuf],
) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(14), |out| {
            write::string(out, entry);
            write::constructed(out, Tag::SEQUENCE, |out| {
                write::string(out, attribute);
                write::octets(out, Tag::OCTET_STRING, value);
            });
        });
    });
}

pub fn abandon(out: &mut Vec<u8>, id: MessageId, abandoned: MessageId, controls: &[ControlBuf]) {
    message(out, id, controls, |out| write::integer(out, Tag::application(16), i64::from(abandoned.0)));
}

pub fn extended(out: &mut Vec<u8>, id: MessageId, name: &str, value: Option<&[u8]>, controls: &[ControlBuf]) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(23), |out| {
            write::octets(out, Tag::context(0), name.as_bytes());
            write::optional(out, Tag::context(1), value);
        });
    });
}

fn attribute<V: AsRef<[u8]>>(out: &mut Vec<u8>, attribute: &ClientAttribute<'_, V>) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        write::string(out, attribute.description);
        write::constructed(out, Tag::SET, |out| {
            attribute.values.iter().for_each(|value| {
                write::octets(out, Tag::OCTET_STRING, value.as_ref());
            });
        });
    });
}
