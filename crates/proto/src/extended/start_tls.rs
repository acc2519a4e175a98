//! StartTLS (RFC 4511 section 4.14).

use super::{ExtendedValue, absent};
use crate::ber::DecodeError;
use crate::oid;

/// The request to begin TLS. It has no value.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct StartTls;

impl ExtendedValue<'_> for StartTls {
    const OID: &'static str = oid::START_TLS;

    fn decode(value: Option<&[u8]>) -> Result<Self, DecodeError> {
        absent(value).map(|()| Self)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        None
    }
}
