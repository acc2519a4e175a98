//! Changes in one transaction (RFC 5805): the server makes all of them or none.

use larix_client::{ClientError, Reply, Session};
use larix_proto::extended::{EndTransaction, ExtendedValue, StartTransactionResponse};
use larix_proto::{ControlBuf, ResultCode, client, oid};

/// A transaction that a server has begun.
pub(super) struct Transaction(Vec<u8>);

impl Transaction {
    /// Begins one. If the server refuses, `otherwise` tells the user what to do.
    pub(super) fn start(session: &mut Session, otherwise: &str) -> Result<Self, ClientError> {
        let started = session
            .call(|out, id, controls| client::extended(out, id, oid::START_TRANSACTION, None, controls))?;
        if started.result.code != ResultCode::SUCCESS {
            eprintln!("larix: {otherwise}");
            return Err(ClientError::Refused { step: "start of a transaction", result: started.result });
        }
        Ok(Self(StartTransactionResponse::decode(started.value.as_deref())?.identifier.to_vec()))
    }

    /// The control of each change in it.
    pub(super) fn member(&self) -> ControlBuf {
        let value = Some(self.0.clone());
        ControlBuf { oid: oid::TRANSACTION_SPECIFICATION.into(), critical: true, value }
    }

    pub(super) fn commit(self, session: &mut Session) -> Result<Reply, ClientError> {
        let end = EndTransaction { commit: true, identifier: &self.0 }.encode();
        session.call(|out, id, controls| {
            client::extended(out, id, oid::END_TRANSACTION, end.as_deref(), controls)
        })
    }
}
