//! Encoding what a server sends; everything is appended to a buffer.

mod entry;

use crate::ber::Tag;
use crate::ber::write::{self, Open};
use crate::control::ControlBuf;
use crate::message_id::MessageId;
use crate::oid;
use crate::result::{LdapResult, ResponseOp, ResultCode};

pub use entry::{AttributeHead, AttributeRun, EntryEncoder, VALUES_ROOM};

/// A response that is nothing but a result (RFC 4511 section 4.1.9).
pub fn result(
    out: &mut Vec<u8>,
    id: MessageId,
    op: ResponseOp,
    result: &LdapResult,
    controls: &[ControlBuf],
) {
    if result.code == ResultCode::UNANSWERED || bare_result(out, id, tag(op), result, controls) {
        return;
    }
    message(out, id, controls, |out| {
        write::constructed(out, tag(op), |out| components(out, result));
    });
}

/// Appends a result that is nothing but its code, as nearly all are; false, with nothing appended, if it is another one.
fn bare_result(
    out: &mut Vec<u8>,
    id: MessageId,
    tag: Tag,
    result: &LdapResult,
    controls: &[ControlBuf],
) -> bool {
    let LdapResult { code, matched_dn, diagnostic, referrals } = result;
    let is_bare =
        matched_dn.is_empty() && diagnostic.is_empty() && referrals.is_empty() && controls.is_empty();
    let Some(code @ 0..0x80) = u8::try_from(code.0).ok().filter(|_| is_bare) else { return false };
    let string = Tag::OCTET_STRING.0;
    let tail = [tag.0, 7, Tag::ENUMERATED.0, 1, code, string, 0, string, 0];
    let Some((octets, [a, b, c, d])) = id_octets(id) else { return false };
    // Behind the length stand two octets of the id, its own and the nine of the tail.
    let head = [Tag::SEQUENCE.0, 11 + octets, Tag::INTEGER.0, octets, a, b, c, d];
    let end = out.len() + 4 + usize::from(octets);
    out.extend_from_slice(&head);
    out.truncate(end);
    out.extend_from_slice(&tail);
    true
}

/// The octets of a message id, with zeros behind them, and how many they are; `None` for a number that is no message id.
#[inline]
fn id_octets(id: MessageId) -> Option<(u8, [u8; 4])> {
    // The highest bit is not set, so that it is no more than four octets.
    let zeros = id.0.leading_zeros().checked_sub(1)?;
    let skip = (zeros / 8).min(3);
    Some((4 - skip as u8, (id.0 << (8 * skip)).to_be_bytes()))
}

/// Appends the number of a message.
#[inline]
pub(crate) fn message_id(out: &mut Vec<u8>, id: MessageId) {
    let Some((octets, [a, b, c, d])) = id_octets(id) else {
        return write::integer(out, Tag::INTEGER, i64::from(id.0));
    };
    let end = out.len() + 2 + usize::from(octets);
    out.extend_from_slice(&[Tag::INTEGER.0, octets, a, b, c, d]);
    out.truncate(end);
}

/// RFC 4511 section 4.2.2.
pub fn bind_result(
    out: &mut Vec<u8>,
    id: MessageId,
    result: &LdapResult,
    server_sasl: Option<&[u8]>,
    controls: &[ControlBuf],
) {
    if result.code == ResultCode::UNANSWERED {
        return;
    }
    if server_sasl.is_none() && bare_result(out, id, tag(ResponseOp::Bind), result, controls) {
        return;
    }
    message(out, id, controls, |out| {
        write::constructed(out, tag(ResponseOp::Bind), |out| {
            components(out, result);
            write::optional(out, Tag::context(7), server_sasl);
        });
    });
}

/// RFC 4511 section 4.12.
pub fn extended_result(
    out: &mut Vec<u8>,
    id: MessageId,
    result: &LdapResult,
    name: Option<&str>,
    value: Option<&[u8]>,
    controls: &[ControlBuf],
) {
    if result.code == ResultCode::UNANSWERED {
        return;
    }
    message(out, id, controls, |out| {
        write::constructed(out, tag(ResponseOp::Extended), |out| {
            components(out, result);
            write::optional(out, Tag::context(10), name.map(str::as_bytes));
            write::optional(out, Tag::context(11), value);
        });
    });
}

/// RFC 4511 section 4.13.
pub fn intermediate(
    out: &mut Vec<u8>,
    id: MessageId,
    name: Option<&str>,
    value: Option<&[u8]>,
    controls: &[ControlBuf],
) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(25), |out| {
            write::optional(out, Tag::context(0), name.map(str::as_bytes));
            write::optional(out, Tag::context(1), value);
        });
    });
}

/// RFC 4511 section 4.5.3.
pub fn search_reference(out: &mut Vec<u8>, id: MessageId, urls: &[String], controls: &[ControlBuf]) {
    message(out, id, controls, |out| {
        write::constructed(out, Tag::application_constructed(19), |out| {
            urls.iter().for_each(|url| write::string(out, url));
        });
    });
}

/// The unsolicited notification before a server closes a connection (RFC 4511 section 4.4.1).
pub fn notice_of_disconnection(out: &mut Vec<u8>, result: &LdapResult) {
    extended_result(out, MessageId(0), result, Some(oid::NOTICE_OF_DISCONNECTION), None, &[]);
}

/// Appends an LDAPMessage around the operation that `operation` appends.
pub(crate) fn message(
    out: &mut Vec<u8>,
    id: MessageId,
    controls: &[ControlBuf],
    operation: impl FnOnce(&mut Vec<u8>),
) {
    let message = Open::short(out, Tag::SEQUENCE);
    message_id(out, id);
    operation(out);
    self::controls(out, controls);
    message.close(out);
}

pub(crate) fn controls(out: &mut Vec<u8>, controls: &[ControlBuf]) {
    if !controls.is_empty() {
        write::constructed(out, Tag::context_constructed(0), |out| {
            controls.iter().for_each(|control| control.encode(out));
        });
    }
}

fn components(out: &mut Vec<u8>, result: &LdapResult) {
    write::integer(out, Tag::ENUMERATED, i64::from(result.code.0));
    write::string(out, &result.matched_dn);
    write::string(out, &result.diagnostic);
    if !result.referrals.is_empty() {
        write::constructed(out, Tag::context_constructed(3), |out| {
            result.referrals.iter().for_each(|url| write::string(out, url));
        });
    }
}

const fn tag(op: ResponseOp) -> Tag {
    Tag::application_constructed(match op {
        ResponseOp::Bind => 1,
        ResponseOp::SearchDone => 5,
        ResponseOp::Modify => 7,
        ResponseOp::Add => 9,
        ResponseOp::Delete => 11,
        ResponseOp::ModifyDn => 13,
        ResponseOp::Compare => 15,
        ResponseOp::Extended => 24,
    })
}

#[cfg(test)]
mod tests;
