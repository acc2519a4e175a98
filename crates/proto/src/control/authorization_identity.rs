//! Authorization identity, both ways (RFC 3829).

use super::{ControlValue, required};
use crate::ber::{self, DecodeError};
use crate::oid;

super::flag_control!(
    /// Asks a bind to tell the identity that it established.
    AuthorizationIdentityRequest,
    oid::AUTHORIZATION_IDENTITY_REQUEST
);

/// The identity that a bind established.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationIdentityResponse<'a> {
    /// `dn:...`, `u:...`, or empty for anonymous (RFC 4513 section 5.2.1.8).
    pub authorization_id: &'a str,
}

impl<'a> ControlValue<'a> for AuthorizationIdentityResponse<'a> {
    const OID: &'static str = oid::AUTHORIZATION_IDENTITY_RESPONSE;

    /// The value is the identity itself, without a BER header.
    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { authorization_id: ber::utf8(required(value, "AuthzId")?, "AuthzId")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        Some(self.authorization_id.as_bytes().to_vec())
    }
}
