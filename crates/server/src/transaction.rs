//! Transactions (RFC 5805): updates are kept until the client ends the transaction, then carried out together.

use larix_engine::write::{WriteOutcome, WriteRequest};
use larix_proto::extended::{EndTransaction, EndTransactionResponse, ExtendedValue, UpdateControls};
use larix_proto::{ExtendedRequest, LdapResult, MessageId, ResultCode};

use crate::connection::Started;
use crate::dispatch::{Begun, Completion, Dispatcher, Running};

/// Updates that one transaction may have.
pub const UPDATES: usize = 1_000;

/// A transaction that a client has started and not ended. A connection has one at a time, so that its identifier can
/// be empty, as OpenLDAP's is.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    requests: Vec<WriteRequest>,
    last: Option<MessageId>,
}

/// A transaction has ended.
#[derive(Debug)]
pub struct TransactionOutcome {
    outcome: WriteOutcome,
    /// The message whose response controls these are.
    last: Option<MessageId>,
}

fn refuse<T>(code: ResultCode, text: &str) -> Result<T, LdapResult> {
    Err(LdapResult::with(code, text))
}

impl Dispatcher {
    pub(crate) fn start_transaction(
        &mut self,
        begun: &Begun,
        request: &ExtendedRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Started<Running>, LdapResult> {
        self.log_operation(begun, format_args!("TXN START"));
        if request.value.is_some() {
            return refuse(ResultCode::PROTOCOL_ERROR, "no request data expected");
        }
        if self.transaction.is_some() {
            return refuse(ResultCode::BUSY, "too many transactions");
        }
        self.transaction = Some(Transaction::default());
        self.answer_extended(begun, &LdapResult::success(), Some(b""), out);
        Ok(Started::Answered)
    }

    /// Keeps an update for the end of its transaction; the answer says that it is kept.
    pub(crate) fn keep_update(
        &mut self,
        begun: &Begun,
        request: WriteRequest,
        identifier: &[u8],
    ) -> LdapResult {
        match &mut self.transaction {
            Some(transaction) if identifier.is_empty() => {
                if transaction.requests.len() >= UPDATES {
                    let text = "too many updates in one transaction";
                    return LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text);
                }
                transaction.requests.push(request);
                transaction.last = Some(begun.operation.id);
                LdapResult::new(ResultCode::TXN_SPECIFY_OKAY)
            }
            _ => LdapResult::with(ResultCode::TXN_ID_INVALID, "invalid transaction identifier"),
        }
    }

    pub(crate) fn end_transaction(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Started<Running>, LdapResult> {
        self.log_operation(&begun, format_args!("TXN END"));
        let end = EndTransaction::decode(request.value)
            .map_err(|error| LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string()))?;
        let Some(transaction) = self.transaction.take().filter(|_| end.identifier.is_empty()) else {
            return refuse(ResultCode::TXN_ID_INVALID, "invalid transaction identifier");
        };
        if !end.commit || transaction.requests.is_empty() {
            self.answer_extended(&begun, &LdapResult::success(), None, out);
            return Ok(Started::Answered);
        }
        let completer = self.completer(&begun);
        let last = transaction.last;
        let done = move |outcome| {
            completer.complete(Completion::Transaction(Box::new(TransactionOutcome { outcome, last })));
        };
        self.server.databases.submit_all(transaction.requests, Box::new(done));
        self.wait_for(begun);
        Ok(Started::Waiting)
    }

    pub(crate) fn transaction_ended(&self, begun: &Begun, ended: TransactionOutcome, out: &mut Vec<u8>) {
        let controls = ended.outcome.controls;
        let updates = ended.last.filter(|_| !controls.is_empty()).map(|id| UpdateControls { id, controls });
        let response = EndTransactionResponse { failed: None, controls: updates.into_iter().collect() };
        self.answer_extended(begun, &ended.outcome.result, response.encode().as_deref(), out);
    }
}
