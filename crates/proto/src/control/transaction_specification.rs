//! Transaction specification (RFC 5805).

use super::{ControlValue, required};
use crate::ber::DecodeError;
use crate::oid;

/// The update belongs to a transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TransactionSpecification<'a> {
    /// What the start transaction operation answered.
    pub identifier: &'a [u8],
}

impl<'a> ControlValue<'a> for TransactionSpecification<'a> {
    const OID: &'static str = oid::TRANSACTION_SPECIFICATION;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { identifier: required(value, "transactionSpecification")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        Some(self.identifier.to_vec())
    }
}
