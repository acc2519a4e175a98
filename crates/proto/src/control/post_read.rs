//! Post-read (RFC 4527): the entry as it is after the change.

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::list::{Attributes, Strings};
use crate::oid;

/// The request: the attributes wanted, selected as in a search.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PostReadRequest<'a> {
    pub attributes: Strings<'a>,
}

/// The response: the entry.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PostReadResponse<'a> {
    pub dn: &'a str,
    pub attributes: Attributes<'a>,
}

impl<'a> ControlValue<'a> for PostReadRequest<'a> {
    const OID: &'static str = oid::POST_READ;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let contents = Reader::new(required(value, "AttributeSelection")?)
            .expect(Tag::SEQUENCE, "AttributeSelection")?;
        Ok(Self { attributes: Strings::check(contents, "AttributeSelection")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| out.extend_from_slice(self.attributes.as_ber()))
    }
}

impl<'a> ControlValue<'a> for PostReadResponse<'a> {
    const OID: &'static str = oid::POST_READ;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(required(value, "SearchResultEntry")?);
        // The tag is a search result entry's; a plain sequence, which some servers send, is no less clear.
        let tag =
            reader.peek().filter(|&tag| tag == Tag::application_constructed(4)).unwrap_or(Tag::SEQUENCE);
        let mut entry = Reader::new(reader.expect(tag, "SearchResultEntry")?);
        let dn = entry.string("objectName")?;
        Ok(Self { dn, attributes: Attributes::check(entry.expect(Tag::SEQUENCE, "attributes")?)? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::application_constructed(4), |out| {
            write::string(out, self.dn);
            write::octets(out, Tag::SEQUENCE, self.attributes.as_ber());
        })
    }
}
