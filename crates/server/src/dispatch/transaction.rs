//! Transactions (RFC 5805): updates are kept until the client ends the transaction, then carried out together.

use larix_engine::budget::RequestLimit;
use larix_engine::write::{WriteOutcome, WriteRequest};
use larix_proto::extended::{EndTransaction, EndTransactionResponse, ExtendedValue, UpdateControls};
use larix_proto::{Controls, ExtendedRequest, LdapResult, MessageId, ResultCode};

use super::limits::PaidProof;
use super::password_change::password_first;
use crate::access_log::RecordedRequest;
use crate::connection::StartOutcome;
use crate::dispatch::{Completion, Dispatcher, RequestInFlight, RunningSearch};
use crate::operation_rules::RestrictedOperation;

/// A transaction that a client has started and not ended. A connection has one at a time, so that its identifier can
/// be empty, as OpenLDAP's is.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Of all requests, with their controls.
    bytes: usize,
    requests: Vec<WriteRequest>,
    /// The message of each.
    messages: Vec<MessageId>,
    /// What old passwords in them have paid, and in which of them.
    proofs: Vec<(usize, PaidProof)>,
}

impl Transaction {
    /// Of all requests, with their controls.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A transaction has ended.
#[derive(Debug)]
pub(crate) struct TransactionOutcome {
    outcome: WriteOutcome,
    /// The messages of the updates.
    messages: Vec<MessageId>,
}

fn refuse<T>(code: ResultCode, text: &str) -> Result<T, LdapResult> {
    Err(LdapResult::with(code, text))
}

/// Records what was carried out, of which the change log has names and content; or the update that was refused.
fn record_transaction(noted: Vec<Option<RecordedRequest>>, outcome: &WriteOutcome) {
    let is_success = outcome.result.is_success();
    let at = outcome.refused.filter(|_| !is_success).unwrap_or(0);
    let Some(record) = noted.into_iter().nth(at).flatten() else { return };
    let record = if is_success { record.without_name() } else { record };
    record.changed(outcome);
}

impl Dispatcher {
    pub(crate) fn start_transaction(
        &mut self,
        in_flight: &RequestInFlight,
        request: &ExtendedRequest<'_>,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        self.log_operation(in_flight, format_args!("TXN START"));
        self.may_update(request.name, sent)?;
        if request.value.is_some() {
            return refuse(ResultCode::PROTOCOL_ERROR, "no request data expected");
        }
        if self.transaction.is_some() {
            return refuse(ResultCode::BUSY, "Too many transactions");
        }
        self.transaction = Some(Transaction::default());
        self.answer_extended(in_flight, &LdapResult::success(), Some(b""), out);
        Ok(StartOutcome::Answered)
    }

    /// Transactions are for those who may update, and who need not change their password first.
    fn may_update(&self, operation: &str, sent: Controls<'_>) -> Result<(), LdapResult> {
        if self.session.must_change_password {
            return Err(password_first());
        }
        // The database of the session's own identity has a say.
        let own = self.session.subject().dn.as_ref().map_or("", |dn| dn.as_str());
        self.permitted(own, RestrictedOperation::Extended(operation), sent)?;
        Ok(())
    }

    /// Keeps an update for the end of its transaction; success says that it is kept.
    pub(super) fn keep_update(
        &mut self,
        in_flight: &RequestInFlight,
        request: WriteRequest,
        proof: Option<PaidProof>,
        identifier: &[u8],
    ) -> LdapResult {
        match &mut self.transaction {
            Some(transaction) if identifier.is_empty() => {
                let limits = self.server.config().global.request_limits;
                let kept = request.operation.bytes().saturating_add(request.controls.sent.len());
                let bytes = transaction.bytes.saturating_add(kept);
                let exceeded = limits
                    .check(RequestLimit::TransactionUpdates, transaction.requests.len() + 1)
                    .and_then(|()| limits.check(RequestLimit::TransactionBytes, bytes));
                if let Err(exceeded) = exceeded {
                    return exceeded.into();
                }
                transaction.bytes = bytes;
                let number = transaction.requests.len();
                transaction.proofs.extend(proof.map(|proof| (number, proof)));
                transaction.requests.push(request);
                transaction.messages.push(in_flight.operation.id);
                LdapResult::success()
            }
            _ => LdapResult::with(ResultCode::TXN_ID_INVALID, "invalid transaction identifier"),
        }
    }

    pub(crate) fn end_transaction(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        self.log_operation(&in_flight, format_args!("TXN END"));
        self.may_update(request.name, sent)?;
        if request.value.is_none() {
            return refuse(ResultCode::PROTOCOL_ERROR, "request data expected");
        }
        let end = EndTransaction::decode(request.value)
            .map_err(|_| LdapResult::with(ResultCode::PROTOCOL_ERROR, "request data decoding error"))?;
        // A request with another identifier leaves the transaction as it is.
        let ended = if end.identifier.is_empty() { self.transaction.take() } else { None };
        let Some(transaction) = ended else {
            return refuse(ResultCode::TXN_ID_INVALID, "invalid transaction identifier");
        };
        if !end.commit {
            let aborted = LdapResult::with(ResultCode::SUCCESS, "transaction aborted");
            self.answer_extended(&in_flight, &aborted, None, out);
            return Ok(StartOutcome::Answered);
        }
        if transaction.requests.is_empty() {
            return refuse(ResultCode::OPERATIONS_ERROR, "no updates to commit");
        }
        let completer = self.completer(&in_flight);
        let Transaction { requests, messages, proofs, .. } = transaction;
        let noted = self.note_transaction(&requests);
        let first = requests.first();
        let origin = first.and_then(|first| self.note_origin(first.operation.target()));
        let done = move |outcome: WriteOutcome| {
            record_transaction(noted, &outcome);
            // Those before the update that was refused are right, and nobody looked at those behind it.
            let refused = outcome.refused;
            let judged = proofs.into_iter().filter(|(number, _)| refused.is_none_or(|at| at == *number));
            judged.for_each(|(_, proof)| proof.ended(&outcome));
            origin.into_iter().for_each(|origin| origin.changed(&outcome));
            completer.complete(Completion::Transaction(Box::new(TransactionOutcome { outcome, messages })));
        };
        let databases = self.server.databases();
        let context =
            databases.context(self.session.subject(), (self, &*self.server.clock), in_flight.started);
        let pending = databases.router().update_together(&context, requests, Box::new(done));
        self.wait_for_pending(in_flight, pending);
        Ok(StartOutcome::Waiting)
    }

    pub(crate) fn transaction_ended(
        &self,
        in_flight: &RequestInFlight,
        ended: TransactionOutcome,
        out: &mut Vec<u8>,
    ) {
        let controls = ended.outcome.controls;
        let last = ended.messages.last().copied().filter(|_| !controls.is_empty());
        let updates = last.map(|id| UpdateControls { id, controls });
        let failed = ended.outcome.refused.and_then(|at| ended.messages.get(at).copied());
        let failed = failed.filter(|_| !ended.outcome.result.is_success());
        let response = EndTransactionResponse { failed, controls: updates.into_iter().collect() };
        // The names are of an update, not of this operation.
        let result = LdapResult { matched_dn: String::new(), ..ended.outcome.result };
        self.answer_extended(in_flight, &result, response.encode().as_deref(), out);
    }
}
