//! Assertion (RFC 4528).

use super::{ControlValue, required};
use crate::ber::DecodeError;
use crate::filter::Filter;
use crate::limits;
use crate::oid;

/// The operation goes on only if the target entry matches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Assertion<'a> {
    pub filter: Filter<'a>,
}

impl<'a> ControlValue<'a> for Assertion<'a> {
    const OID: &'static str = oid::ASSERTION;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { filter: Filter::decode(required(value, "Filter")?, limits::FILTER_DEPTH)? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        Some(self.filter.as_ber().to_vec())
    }
}
