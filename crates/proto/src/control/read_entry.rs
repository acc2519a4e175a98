//! Pre-read and post-read (RFC 4527): the entry as it is before and after the change. The two differ by their OID alone.

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::list::{Attributes, Strings};
use crate::oid;

macro_rules! read_entry {
    ($request:ident, $response:ident, $oid:expr) => {
        /// The request: the attributes wanted, selected as in a search.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct $request<'a> {
            pub attributes: Strings<'a>,
        }

        /// The response: the entry.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct $response<'a> {
            pub dn: &'a str,
            pub attributes: Attributes<'a>,
        }

        impl<'a> ControlValue<'a> for $request<'a> {
            const OID: &'static str = $oid;

            fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
                Ok(Self { attributes: selection(value)? })
            }

            fn encode(&self) -> Option<Vec<u8>> {
                write_value(Tag::SEQUENCE, |out| out.extend_from_slice(self.attributes.as_ber()))
            }
        }

        impl<'a> ControlValue<'a> for $response<'a> {
            const OID: &'static str = $oid;

            fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
                let (dn, attributes) = entry(value)?;
                Ok(Self { dn, attributes })
            }

            fn encode(&self) -> Option<Vec<u8>> {
                write_value(Tag::application_constructed(4), |out| {
                    write::string(out, self.dn);
                    write::octets(out, Tag::SEQUENCE, self.attributes.as_ber());
                })
            }
        }
    };
}

read_entry!(PreReadRequest, PreReadResponse, oid::PRE_READ);
read_entry!(PostReadRequest, PostReadResponse, oid::POST_READ);

fn selection(value: Option<&[u8]>) -> Result<Strings<'_>, DecodeError> {
    const WHAT: &str = "AttributeSelection";
    Strings::check(Reader::new(required(value, WHAT)?).expect(Tag::SEQUENCE, WHAT)?, WHAT)
}

fn entry(value: Option<&[u8]>) -> Result<(&str, Attributes<'_>), DecodeError> {
    const WHAT: &str = "SearchResultEntry";
    let mut reader = Reader::new(required(value, WHAT)?);
    // The tag is a search result entry's; a plain sequence, which some servers send, is no less clear.
    let tag = reader.peek().filter(|&tag| tag == Tag::application_constructed(4)).unwrap_or(Tag::SEQUENCE);
    let mut entry = Reader::new(reader.expect(tag, WHAT)?);
    let dn = entry.string("objectName")?;
    Ok((dn, Attributes::check(entry.expect(Tag::SEQUENCE, "attributes")?)?))
}
