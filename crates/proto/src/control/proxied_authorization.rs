//! Proxied authorization (RFC 4370), and its first version.

use super::{ControlValue, required};
use crate::ber::{self, DecodeError, Reader, Tag, write};
use crate::oid;

/// The operation is carried out under another identity.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ProxiedAuthorization<'a> {
    /// `dn:...`, `u:...`, or empty for anonymous (RFC 4513 section 5.2.1.8).
    pub authorization_id: &'a str,
}

impl<'a> ControlValue<'a> for ProxiedAuthorization<'a> {
    const OID: &'static str = oid::PROXIED_AUTHORIZATION;

    /// The value is the identity itself, without a BER header.
    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { authorization_id: ber::utf8(required(value, "authzId")?, "authzId")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        Some(self.authorization_id.as_bytes().to_vec())
    }
}

/// The same with a DN (draft-weltman-ldapv3-auth-proxy-04).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ProxiedAuthorizationV1<'a> {
    /// Empty for anonymous.
    pub dn: &'a str,
}

impl<'a> ControlValue<'a> for ProxiedAuthorizationV1<'a> {
    const OID: &'static str = oid::PROXIED_AUTHORIZATION_V1;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(required(value, "proxyAuthValue")?).sequence("proxyAuthValue")?;
        let dn = reader.string("proxyDN")?;
        reader.finish("proxyAuthValue")?;
        Ok(Self { dn })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        write::constructed(&mut value, Tag::SEQUENCE, |out| write::string(out, self.dn));
        Some(value)
    }
}
