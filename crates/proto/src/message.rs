//! LDAPMessage on its way to a server (RFC 4511 section 4.1.1).

use std::fmt;

use crate::ber::{DecodeError, Fault, Reader, Tag};
use crate::control::Controls;
use crate::limits::DecodeLimits;
use crate::message_id::MessageId;
use crate::request::Request;

/// A request with its envelope.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub id: MessageId,
    pub request: Request<'a>,
    pub controls: Controls<'a>,
}

/// A message that could not be decoded, with what is known of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MessageError {
    /// The message id, if that much could be read.
    pub id: Option<MessageId>,
    /// The operation's tag, if that much could be read.
    pub operation: Option<Tag>,
    pub error: DecodeError,
}

impl<'a> Message<'a> {
    /// Decodes the whole PDU that [`frame`](crate::frame) found, under the default limits.
    ///
    /// # Errors
    /// Whatever is not a request of RFC 4511. See [`MessageError::is_answerable`] for what to do then.
    pub fn decode(pdu: &'a [u8]) -> Result<Self, MessageError> {
        Self::decode_with(pdu, &DecodeLimits::default())
    }

    /// As [`decode`](Self::decode), under these limits.
    pub fn decode_with(pdu: &'a [u8], limits: &DecodeLimits) -> Result<Self, MessageError> {
        let mut error =
            MessageError { id: None, operation: None, error: DecodeError::new("", Fault::Missing) };
        decode(pdu, limits, &mut error).map_err(|fault| {
            error.error = fault;
            error
        })
    }
}

fn decode<'a>(
    pdu: &'a [u8],
    limits: &DecodeLimits,
    known: &mut MessageError,
) -> Result<Message<'a>, DecodeError> {
    let mut reader = Reader::new(pdu);
    let mut message = reader.sequence("LDAPMessage")?;
    reader.finish("LDAPMessage")?;
    let id = MessageId(message.unsigned("messageID")?);
    known.id = Some(id);
    let (tag, contents) = message.element("protocolOp")?;
    known.operation = Some(tag);
    let request = Request::decode(tag, contents, limits)?;
    Ok(Message { id, request, controls: trailing_controls(&mut message)? })
}

/// The controls at the end of a message. Elements after them, or of another tag in their place, are extensions
/// that this implementation does not know; RFC 4511 section 4 has them ignored.
///
/// One exception: Ruby's net-ldap sends the controls of a delete under the tag SEQUENCE instead of `[0]`, so that a critical
/// tree delete would be ignored. No extension of LDAPMessage uses that tag, so a SEQUENCE that is a list of controls with
/// numeric OIDs to its last byte is read as what it is meant to be; any other is ignored.
pub(crate) fn trailing_controls<'a>(message: &mut Reader<'a>) -> Result<Controls<'a>, DecodeError> {
    let controls = match message.peek() {
        Some(tag) if tag == Tag::context_constructed(0) => Controls::check(message.expect(tag, "controls")?)?,
        Some(Tag::SEQUENCE) => mistagged_controls(message.expect(Tag::SEQUENCE, "controls")?),
        _ => Controls::default(),
    };
    message.ignore_rest("LDAPMessage")?;
    Ok(controls)
}

/// Controls in an element that is not tagged as such; none unless it can be nothing else.
fn mistagged_controls(contents: &[u8]) -> Controls<'_> {
    let is_oid = |text: &str| {
        text.contains('.')
            && text.split('.').all(|arc| !arc.is_empty() && arc.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match Controls::check(contents) {
        Ok(controls) if controls.into_iter().all(|control| is_oid(control.oid)) => controls,
        _ => Controls::default(),
    }
}

impl MessageError {
    /// Whether the message is whole and only a value in it is not acceptable, so that the operation can be
    /// answered with protocolError and the connection go on. Otherwise the stream cannot be trusted any more:
    /// notice of disconnection (RFC 4511 section 4.1.1).
    pub fn is_answerable(&self) -> bool {
        let value_only = matches!(
            self.error.fault,
            Fault::UnknownChoice(_)
                | Fault::OutOfRange { .. }
                | Fault::NotUtf8 { .. }
                | Fault::TooDeep { .. }
                | Fault::TooMany { .. }
                | Fault::Empty
                | Fault::Order
                | Fault::Invalid(_)
        );
        value_only && self.id.is_some() && self.operation.is_some() && self.error.field != "protocolOp"
    }
}

/// In OpenLDAP's words where it has some: clients and log readers may know them.
impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = known_text(&self.error) {
            return f.write_str(text);
        }
        if let Some(operation) = self.operation.and_then(operation_name) {
            write!(f, "{operation}: ")?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for MessageError {}

fn known_text(error: &DecodeError) -> Option<&'static str> {
    Some(match (error.field, error.fault) {
        ("scope", Fault::UnknownChoice(_)) => "invalid scope",
        ("derefAliases", Fault::UnknownChoice(_)) => "invalid deref",
        ("sizeLimit", Fault::OutOfRange { .. }) => "invalid size limit",
        ("timeLimit", Fault::OutOfRange { .. }) => "invalid time limit",
        ("filter", Fault::TooDeep { .. }) => "filter nested too deeply",
        ("extensibleMatch", Fault::Invalid(_)) => "no matching rule or type",
        ("operation", Fault::UnknownChoice(_)) => "unrecognized modify operation",
        ("version", Fault::OutOfRange { .. }) => "requested protocol version not supported",
        _ => return None,
    })
}

fn operation_name(tag: Tag) -> Option<&'static str> {
    Some(match tag.0 {
        0x60 => "bind request",
        0x42 => "unbind request",
        0x63 => "search request",
        0x66 => "modify request",
        0x68 => "add request",
        0x4a => "delete request",
        0x6c => "modify DN request",
        0x6e => "compare request",
        0x50 => "abandon request",
        0x77 => "extended request",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
