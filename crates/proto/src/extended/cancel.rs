//! Cancel (RFC 3909).

use super::ExtendedValue;
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::control::{required, write_value};
use crate::message_id::MessageId;
use crate::oid;

/// The request to cancel an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The operation to cancel.
    pub id: MessageId,
}

impl ExtendedValue<'_> for Cancel {
    const OID: &'static str = oid::CANCEL;

    fn decode(value: Option<&[u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "cancelRequestValue")?).sequence("cancelRequestValue")?;
        Ok(Self { id: MessageId(value.unsigned("cancelID")?) })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| write::integer(out, Tag::INTEGER, i64::from(self.id.0)))
    }
}
