//! Extended operations, and the messages of their kind: each in a file of its own.

use crate::ber::{DecodeError, Fault};
use crate::request::ExtendedRequest;

mod cancel;
mod password_modify;
mod start_tls;
mod sync_info;
mod transaction;
mod verify_credentials;
mod who_am_i;

pub use cancel::Cancel;
pub use password_modify::{PasswordModify, PasswordModifyResponse};
pub use start_tls::StartTls;
pub use sync_info::SyncInfo;
pub use transaction::{
    AbortedTransaction, EndTransaction, EndTransactionResponse, StartTransaction, StartTransactionResponse,
    UpdateControls,
};
pub use verify_credentials::{VerifyCredentials, VerifyCredentialsResponse};
pub use who_am_i::{WhoAmI, WhoAmIResponse};

/// The value of a known extended request.
pub trait ExtendedValue<'a>: Sized {
    const OID: &'static str;

    /// Reads the request's value; `None` is a request without one.
    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError>;

    /// The request's value; `None` where the definition has none.
    fn encode(&self) -> Option<Vec<u8>>;

    /// Reads the request if it is of this operation.
    fn from_request(request: &ExtendedRequest<'a>) -> Option<Result<Self, DecodeError>> {
        (request.name == Self::OID).then(|| Self::decode(request.value))
    }
}

fn absent(value: Option<&[u8]>) -> Result<(), DecodeError> {
    match value {
        None => Ok(()),
        Some(_) => Err(DecodeError::new("requestValue", Fault::Invalid("present where there must be none"))),
    }
}

#[cfg(test)]
mod tests;
