//! Simple paged results (RFC 2696).

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::oid;

/// Both the request's and the response's value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PagedResults<'a> {
    /// In a request the entries wanted, in a response an estimate of all, 0 if unknown.
    pub size: u32,
    /// Empty in the first request and the last response.
    pub cookie: &'a [u8],
}

impl<'a> ControlValue<'a> for PagedResults<'a> {
    const OID: &'static str = oid::PAGED_RESULTS;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value =
            Reader::new(required(value, "pagedResultsControl")?).sequence("realSearchControlValue")?;
        Ok(Self { size: value.unsigned("size")?, cookie: value.octets("cookie")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(self.size));
            write::octets(out, Tag::OCTET_STRING, self.cookie);
        })
    }
}
