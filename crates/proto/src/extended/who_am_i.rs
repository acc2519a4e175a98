//! Who am I? (RFC 4532)

use super::{ExtendedValue, absent};
use crate::ber::{self, DecodeError};
use crate::oid;

/// The request for one's own authorization identity. It has no value.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct WhoAmI;

/// The answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WhoAmIResponse<'a> {
    /// `dn:...`, `u:...`, or empty for anonymous (RFC 4513 section 5.2.1.8).
    pub authorization_id: &'a str,
}

impl ExtendedValue<'_> for WhoAmI {
    const OID: &'static str = oid::WHO_AM_I;

    fn decode(value: Option<&[u8]>) -> Result<Self, DecodeError> {
        absent(value).map(|()| Self)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        None
    }
}

impl<'a> WhoAmIResponse<'a> {
    /// The value is the identity itself, without a BER header; absent is anonymous.
    pub fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { authorization_id: ber::utf8(value.unwrap_or_default(), "authzId")? })
    }

    pub fn encode(&self) -> Vec<u8> {
        self.authorization_id.as_bytes().to_vec()
    }
}
