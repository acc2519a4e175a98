//! Responses as a client reads them (RFC 4511 sections 4.1.9 to 4.13).

use crate::ber::{self, DecodeError, Fault, Reader, Tag};
use crate::control::Controls;
use crate::list::{Attributes, Strings};
use crate::message::trailing_controls;
use crate::message_id::MessageId;
use crate::result::{LdapResult, ResponseOp, ResultCode};

/// A response with its envelope.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ResponseMessage<'a> {
    pub id: MessageId,
    pub response: Response<'a>,
    pub controls: Controls<'a>,
}

/// The operation of a response (RFC 4511 section 4.2 on).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    Bind {
        result: ResultView<'a>,
        server_sasl: Option<&'a [u8]>,
    },
    Entry(SearchResultEntry<'a>),
    /// URLs at which the search must be continued.
    Reference(Strings<'a>),
    SearchDone(ResultView<'a>),
    Modify(ResultView<'a>),
    Add(ResultView<'a>),
    Delete(ResultView<'a>),
    ModifyDn(ResultView<'a>),
    Compare(ResultView<'a>),
    Extended {
        result: ResultView<'a>,
        name: Option<&'a str>,
        value: Option<&'a [u8]>,
    },
    Intermediate {
        name: Option<&'a str>,
        value: Option<&'a [u8]>,
    },
}

/// An entry of a search (RFC 4511 section 4.5.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SearchResultEntry<'a> {
    pub dn: &'a str,
    pub attributes: Attributes<'a>,
}

/// An [`LdapResult`], borrowed from the message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ResultView<'a> {
    pub code: ResultCode,
    pub matched_dn: &'a str,
    pub diagnostic: &'a str,
    pub referrals: Strings<'a>,
}

impl ResultView<'_> {
    pub fn to_owned(&self) -> LdapResult {
        LdapResult {
            code: self.code,
            matched_dn: self.matched_dn.into(),
            diagnostic: self.diagnostic.into(),
            referrals: self.referrals.iter().map(str::to_owned).collect(),
        }
    }
}

impl<'a> Response<'a> {
    /// Decodes the whole PDU that [`frame`](crate::frame) found.
    pub fn decode_message(pdu: &'a [u8]) -> Result<ResponseMessage<'a>, DecodeError> {
        let mut reader = Reader::new(pdu);
        let mut message = reader.sequence("LDAPMessage")?;
        reader.finish("LDAPMessage")?;
        let id = MessageId(message.unsigned("messageID")?);
        let (tag, contents) = message.element("protocolOp")?;
        let response = Self::decode(tag, contents)?;
        Ok(ResponseMessage { id, response, controls: trailing_controls(&mut message)? })
    }

    /// The DN of the entry that a whole PDU has, if it is one. What is behind the DN is not looked at.
    pub fn entry_name(pdu: &'a [u8]) -> Option<&'a str> {
        let mut message = Reader::new(pdu).sequence("LDAPMessage").ok()?;
        message.unsigned("messageID").ok()?;
        let (tag, contents) = message.element("protocolOp").ok()?;
        if tag.0 != 0x64 {
            return None;
        }
        Reader::new(contents).string("objectName").ok()
    }

    fn decode(tag: Tag, contents: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(contents);
        let response = match tag.0 {
            0x61 => {
                let result = result(&mut reader)?;
                let server_sasl = reader.optional(Tag::context(7), "serverSaslCreds")?;
                Self::Bind { result, server_sasl }
            }
            0x64 => {
                let dn = reader.string("objectName")?;
                let attributes = Attributes::check(reader.expect(Tag::SEQUENCE, "attributes")?)?;
                Self::Entry(SearchResultEntry { dn, attributes })
            }
            0x73 => Self::Reference(Strings::check(contents, "uri")?),
            0x65 => Self::SearchDone(result(&mut reader)?),
            0x67 => Self::Modify(result(&mut reader)?),
            0x69 => Self::Add(result(&mut reader)?),
            0x6b => Self::Delete(result(&mut reader)?),
            0x6d => Self::ModifyDn(result(&mut reader)?),
            0x6f => Self::Compare(result(&mut reader)?),
            0x78 => {
                let result = result(&mut reader)?;
                let name = text(&mut reader, Tag::context(10), "responseName")?;
                let value = reader.optional(Tag::context(11), "responseValue")?;
                Self::Extended { result, name, value }
            }
            0x79 => {
                let name = text(&mut reader, Tag::context(0), "responseName")?;
                Self::Intermediate { name, value: reader.optional(Tag::context(1), "responseValue")? }
            }
            other => return Err(DecodeError::new("protocolOp", Fault::UnknownChoice(i64::from(other)))),
        };
        // A reference is a list: it has no end to extend.
        if tag.0 != 0x73 {
            reader.ignore_rest("protocolOp")?;
        }
        Ok(response)
    }

    /// The result that ends the operation, if this response carries one.
    pub fn result(&self) -> Option<(ResponseOp, ResultView<'a>)> {
        Some(match *self {
            Self::Bind { result, .. } => (ResponseOp::Bind, result),
            Self::SearchDone(result) => (ResponseOp::SearchDone, result),
            Self::Modify(result) => (ResponseOp::Modify, result),
            Self::Add(result) => (ResponseOp::Add, result),
            Self::Delete(result) => (ResponseOp::Delete, result),
            Self::ModifyDn(result) => (ResponseOp::ModifyDn, result),
            Self::Compare(result) => (ResponseOp::Compare, result),
            Self::Extended { result, .. } => (ResponseOp::Extended, result),
            Self::Entry(_) | Self::Reference(_) | Self::Intermediate { .. } => return None,
        })
    }
}

fn result<'a>(reader: &mut Reader<'a>) -> Result<ResultView<'a>, DecodeError> {
    let code = reader.enumerated("resultCode")?;
    let code = u32::try_from(code).map_err(|_| {
        DecodeError::new("resultCode", Fault::OutOfRange { value: code, min: 0, max: i64::from(u32::MAX) })
    })?;
    Ok(ResultView {
        code: ResultCode(code),
        matched_dn: reader.string("matchedDN")?,
        diagnostic: reader.string("diagnosticMessage")?,
        referrals: match reader.optional(Tag::context_constructed(3), "referral")? {
            Some(contents) => Strings::check(contents, "referral")?,
            None => Strings::default(),
        },
    })
}

fn text<'a>(reader: &mut Reader<'a>, tag: Tag, field: &'static str) -> Result<Option<&'a str>, DecodeError> {
    reader.optional(tag, field)?.map(|contents| ber::utf8(contents, field)).transpose()
}
