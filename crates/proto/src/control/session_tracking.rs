//! Session tracking (draft-wahl-ldap-session): whom a client acts for, for the log.

use super::{ControlValue, required, write_value};
use crate::ber::{self, DecodeError, Reader, Tag, write};
use crate::oid;

/// On a request: the user or program that the client acts for. The server believes nothing of it; the log shows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SessionTracking<'a> {
    pub source_ip: &'a str,
    pub source_name: &'a str,
    /// The OID of the identifier's format.
    pub format: &'a str,
    pub identifier: &'a str,
}

impl<'a> ControlValue<'a> for SessionTracking<'a> {
    const OID: &'static str = oid::SESSION_TRACKING;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "SessionIdentifierControlValue")?)
            .sequence("SessionIdentifierControlValue")?;
        Ok(Self {
            source_ip: value.string("sessionSourceIp")?,
            source_name: value.string("sessionSourceName")?,
            format: ber::utf8(value.octets("formatOID")?, "formatOID")?,
            identifier: value.string("sessionTrackingIdentifier")?,
        })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::string(out, self.source_ip);
            write::string(out, self.source_name);
            write::string(out, self.format);
            write::string(out, self.identifier);
        })
    }
}
