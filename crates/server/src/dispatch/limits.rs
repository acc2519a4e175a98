//! Refusals before a request is decoded further: `client-limits`, and any other request amid a SASL bind.

use std::sync::Arc;

use larix_engine::time::Clock;
use larix_engine::write::{WriteOperation, WriteOutcome};
use larix_proto::{LdapResult, Message, Request, ResponseOp, ResultCode, oid};

use super::{Dispatcher, RunningSearch};
use crate::admission::PaidToken;
use crate::connection::{Operation, StartOutcome};
use crate::server::Server;
use crate::statistics::{ConnectionRecord, OperationKind};

/// A change that names an old password has paid as a bind does. It gets that back when this is dropped.
#[derive(Debug)]
pub(super) struct PaidProof {
    server: Arc<Server>,
    record: Arc<ConnectionRecord>,
    /// None: it stays counted.
    paid: Option<PaidToken>,
}

impl PaidProof {
    /// The change has ended so. It stays counted if there is no such value, or a password policy does not take it as proof.
    pub(super) fn ended(mut self, outcome: &WriteOutcome) {
        if outcome.wrong_password || outcome.result.code == ResultCode::NO_SUCH_ATTRIBUTE {
            self.paid = None;
        }
    }
}

impl Drop for PaidProof {
    fn drop(&mut self) {
        if let (Some(paid), Some(admitted)) = (self.paid, &self.record.admitted) {
            self.server.admission.bind_did_not_fail(admitted, paid, self.server.clock.monotonic());
        }
    }
}

impl Dispatcher {
    /// Answers a request that is more than this client's address may ask for.
    pub(super) fn over_client_limits(
        &self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Option<StartOutcome<RunningSearch>> {
        let admitted = self.record.admitted.as_ref()?;
        let admission = &self.server.admission;
        let (kind, response) = match message.request {
            Request::Bind(_) => (OperationKind::Bind, ResponseOp::Bind),
            _ if self.session.is_authenticated() || !admission.counts_operations() => return None,
            Request::Extended(request) if request.name == oid::START_TLS => return None,
            _ => answered_by(&message.request)?,
        };
        let refused = if kind == OperationKind::Bind {
            self.proof_begins().map(|paid| self.bind_paid.set(paid))
        } else {
            admission.anonymous_operation(admitted, self.arrived)
        };
        let result = refused.err()?;
        let in_flight = self.begin(operation, kind, response);
        Some(self.refuse(&in_flight, &result, out))
    }

    /// Anything but a bind ends a SASL bind of several steps (RFC 4511 section 4.2.1), and is refused.
    pub(super) fn amid_sasl(
        &mut self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Option<StartOutcome<RunningSearch>> {
        let (kind, response) =
            answered_by(&message.request).filter(|(kind, _)| *kind != OperationKind::Bind)?;
        self.sasl = None;
        let in_flight = self.begin(operation, kind, response);
        let result = LdapResult::with(ResultCode::OPERATIONS_ERROR, "SASL bind in progress");
        Some(self.refuse(&in_flight, &result, out))
    }

    /// A request binds, or compares an old password. It counts as a failed bind until [`Self::proof_was_not_wrong`] gets back what this
    /// answers.
    ///
    /// # Errors
    /// The answer when too many binds of the address have failed.
    pub(crate) fn proof_begins(&self) -> Result<Option<PaidToken>, LdapResult> {
        let Some(admitted) = self.record.admitted.as_ref() else { return Ok(None) };
        // Requests before it may have been taken from the count since it arrived.
        self.server.admission.bind_begins(admitted, self.server.clock.monotonic())
    }

    pub(crate) fn proof_was_not_wrong(&self, paid: Option<PaidToken>) {
        if let (Some(paid), Some(admitted)) = (paid, &self.record.admitted) {
            self.server.admission.bind_did_not_fail(admitted, paid, self.server.clock.monotonic());
        }
    }

    /// The same for an old password in a change, which ends on another thread; none without one, or where failures are not limited.
    ///
    /// # Errors
    /// As [`Self::proof_begins`].
    pub(super) fn paid_proof(&self, operation: &WriteOperation) -> Result<Option<PaidProof>, LdapResult> {
        if !self.server.admission.counts_failures() || !self.names_old_password(operation) {
            return Ok(None);
        }
        let paid = self.proof_begins()?;
        Ok(paid.map(|paid| PaidProof {
            server: Arc::clone(&self.server),
            record: Arc::clone(&self.record),
            paid: Some(paid),
        }))
    }

    /// Only binds that fail for their credentials stay counted.
    pub(super) fn bind_judged(&self, code: ResultCode) {
        let paid = self.bind_paid.take();
        if code != ResultCode::INVALID_CREDENTIALS {
            self.proof_was_not_wrong(paid);
        }
    }
}

/// The kind under which a request counts, and that of its answer; `None`: it has no answer.
fn answered_by(request: &Request<'_>) -> Option<(OperationKind, ResponseOp)> {
    Some(match request {
        Request::Bind(_) => (OperationKind::Bind, ResponseOp::Bind),
        Request::Search(_) => (OperationKind::Search, ResponseOp::SearchDone),
        Request::Compare(_) => (OperationKind::Compare, ResponseOp::Compare),
        Request::Modify(_) => (OperationKind::Modify, ResponseOp::Modify),
        Request::Add(_) => (OperationKind::Add, ResponseOp::Add),
        Request::Delete(_) => (OperationKind::Delete, ResponseOp::Delete),
        Request::ModifyDn(_) => (OperationKind::ModifyDn, ResponseOp::ModifyDn),
        Request::Extended(_) => (OperationKind::Extended, ResponseOp::Extended),
        Request::Unbind | Request::Abandon(_) => return None,
    })
}
