//! Transactions (RFC 5805).

use super::{ExtendedValue, absent};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::control::Controls;
use crate::control::{ControlBuf, required, write_value};
use crate::message_id::MessageId;
use crate::oid;

/// The request to begin a transaction. It has no value.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct StartTransaction;

/// The answer to a start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StartTransactionResponse<'a> {
    pub identifier: &'a [u8],
}

/// The request to commit a transaction, or to drop it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EndTransaction<'a> {
    pub commit: bool,
    pub identifier: &'a [u8],
}

/// The answer to an end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EndTransactionResponse {
    /// The update that failed.
    pub failed: Option<MessageId>,
    /// Response controls of the updates.
    pub controls: Vec<UpdateControls>,
}

/// The response controls of one update of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateControls {
    pub id: MessageId,
    pub controls: Vec<ControlBuf>,
}

/// The unsolicited notice that the server gave a transaction up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AbortedTransaction<'a> {
    pub identifier: &'a [u8],
}

impl ExtendedValue<'_> for StartTransaction {
    const OID: &'static str = oid::START_TRANSACTION;

    fn decode(value: Option<&[u8]>) -> Result<Self, DecodeError> {
        absent(value).map(|()| Self)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        None
    }
}

impl<'a> StartTransactionResponse<'a> {
    /// The value is the identifier itself, without a BER header.
    pub fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { identifier: required(value, "transactionIdentifier")? })
    }
}

impl<'a> AbortedTransaction<'a> {
    /// The notice's name.
    pub const OID: &'static str = oid::ABORTED_TRANSACTION_NOTICE;

    /// The value is the identifier itself, without a BER header.
    pub fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        Ok(Self { identifier: required(value, "transactionIdentifier")? })
    }
}

impl<'a> ExtendedValue<'a> for EndTransaction<'a> {
    const OID: &'static str = oid::END_TRANSACTION;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "txnEndReq")?).sequence("txnEndReq")?;
        let commit = match value.peek() {
            Some(Tag::BOOLEAN) => value.boolean("commit")?,
            _ => true,
        };
        // Some clients send the identifier under another tag than OCTET STRING, and OpenLDAP takes any.
        Ok(Self { commit, identifier: value.element("identifier")?.1 })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            if !self.commit {
                write::boolean(out, Tag::BOOLEAN, false);
            }
            write::octets(out, Tag::OCTET_STRING, self.identifier);
        })
    }
}

impl EndTransactionResponse {
    pub fn decode(value: Option<&[u8]>) -> Result<Self, DecodeError> {
        let Some(value) = value else { return Ok(Self::default()) };
        let mut value = Reader::new(value).sequence("txnEndRes")?;
        let failed = match value.peek() {
            Some(Tag::INTEGER) => Some(MessageId(value.unsigned("messageID")?)),
            _ => None,
        };
        let mut controls = Vec::new();
        let mut updates = Reader::new(value.optional(Tag::SEQUENCE, "updatesControls")?.unwrap_or_default());
        while !updates.is_empty() {
            let mut update = updates.sequence("updateControls")?;
            let id = MessageId(update.unsigned("messageID")?);
            // Controls ::= SEQUENCE; only in the message's envelope is it tagged [0].
            let list = Controls::check(update.expect(Tag::SEQUENCE, "controls")?)?;
            controls.push(UpdateControls {
                id,
                controls: list.iter().map(|control| control.to_owned()).collect(),
            });
        }
        Ok(Self { failed, controls })
    }

    /// The response's value; none where there is nothing to tell.
    pub fn encode(&self) -> Option<Vec<u8>> {
        if *self == Self::default() {
            return None;
        }
        write_value(Tag::SEQUENCE, |out| {
            if let Some(failed) = self.failed {
                write::integer(out, Tag::INTEGER, i64::from(failed.0));
            }
            if !self.controls.is_empty() {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    self.controls.iter().for_each(|update| update.encode(out));
                });
            }
        })
    }
}

impl UpdateControls {
    fn encode(&self, out: &mut Vec<u8>) {
        write::constructed(out, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(self.id.0));
            write::constructed(out, Tag::SEQUENCE, |out| {
                self.controls.iter().for_each(|control| control.encode(out));
            });
        });
    }
}
