//! Changes: checked against what the configuration permits, and handed to the router.

use std::sync::Arc;

use larix_engine::access;
use larix_engine::controls;
use larix_engine::write::{Origin, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::Message;

use super::limits::PaidProof;
use super::{Completion, Dispatcher, RequestInFlight, RunningSearch, put_names};
use crate::connection::StartOutcome;
use crate::log::What;
use crate::operation_rules::RestrictedOperation;

impl Dispatcher {
    pub(super) fn write(
        &mut self,
        in_flight: RequestInFlight,
        operation: WriteOperation,
        restricted: RestrictedOperation<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        if self.logs_stats() {
            self.log_write(&in_flight, &operation);
        }
        let kind = match restricted {
            RestrictedOperation::Add => controls::OperationKind::Add,
            RestrictedOperation::Delete => controls::OperationKind::Delete,
            RestrictedOperation::Rename => controls::OperationKind::ModifyDn,
            _ => controls::OperationKind::Modify,
        };
        let generation = self.server.generation();
        let databases = &generation.databases;
        let prepared = self.controls(message.controls, kind).and_then(|mut controls| {
            generation.config.global.request_limits.check_controls(&controls)?;
            let subject = self.subject_for(&in_flight, &controls)?;
            // A name outside every database is refused or referred elsewhere, for every identity.
            let (target, sent) = (operation.target(), message.controls);
            let dropped =
                self.permitted_in(databases, &subject, target, restricted, sent).or_else(|refused| {
                    if databases.has_database(target) { Err(refused) } else { Ok(Vec::new()) }
                })?;
            controls.forget(&dropped, sent, kind)?;
            let kind = || match restricted {
                RestrictedOperation::Add => access::Operation::Add,
                RestrictedOperation::Delete => access::Operation::Delete,
                RestrictedOperation::Rename => access::Operation::Rename,
                _ => access::Operation::Modify,
            };
            Ok((controls, self.in_request(databases, subject, kind, message.controls)))
        });
        drop(generation);
        match prepared {
            Ok((mut controls, subject)) => {
                // In a transaction nothing is: whether the password is changed in the end is not known before its end.
                let first = self.session.must_change_password
                    && (controls.transaction.is_some() || !self.changes_password_alone(&operation));
                if first {
                    return self.refuse_until_changed(&in_flight, &controls, out);
                }
                let proof = match self.paid_proof(&operation) {
                    Ok(proof) => proof,
                    Err(busy) => return self.refuse(&in_flight, &busy, out),
                };
                let transaction = controls.values_mut().and_then(|values| values.transaction.take());
                let origin = Origin::Client;
                let request = WriteRequest { operation, subject, controls, origin, passwords: None };
                if let Some(identifier) = transaction {
                    let result = self.keep_update(&in_flight, request, proof, &identifier);
                    if result.is_success() {
                        // It changes nothing until the transaction ends: the access log records that.
                        self.take_recorded_request(in_flight.operation.serial);
                    }
                    return self.refuse(&in_flight, &result, out);
                }
                self.submit_change(in_flight, request, proof);
                StartOutcome::Waiting
            }
            Err(result) => self.refuse(&in_flight, &result, out),
        }
    }

    /// Hands a change to the router. The request waits for its outcome. `proof` is what an old password in it has paid.
    fn submit_change(&mut self, in_flight: RequestInFlight, request: WriteRequest, proof: Option<PaidProof>) {
        let databases = self.server.databases();
        let completer = self.completer(&in_flight);
        let mut record = self.take_recorded_request(in_flight.operation.serial);
        record.iter_mut().for_each(|record| record.acts_as(&request.subject));
        let origin = self.note_origin(request.operation.target());
        let done = move |outcome: WriteOutcome| {
            record.into_iter().for_each(|record| record.changed(&outcome));
            origin.into_iter().for_each(|origin| origin.changed(&outcome));
            proof.into_iter().for_each(|proof| proof.ended(&outcome));
            completer.complete(Completion::Write(outcome));
        };
        if self.session.must_change_password && self.brings_password(&request.operation) {
            let target = databases.schema().parse_dn(request.operation.target()).ok();
            if target.is_some_and(|target| self.is_of_login(&target)) {
                self.password_change = Some(in_flight.operation.serial);
            }
        }
        let subject = Arc::clone(&request.subject);
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        let pending = databases.router().update(&context, request, Box::new(done));
        self.wait_for_pending(in_flight, pending);
    }

    fn log_write(&self, in_flight: &RequestInFlight, operation: &WriteOperation) {
        let word = match operation {
            WriteOperation::Add { .. } => "ADD",
            WriteOperation::Delete { .. } => "DEL",
            WriteOperation::ModifyDn { .. } => "MODRDN",
            WriteOperation::Modify { .. } => "MOD",
        };
        self.log_later(in_flight, What::Change { word }, |texts| {
            texts.extend_from_slice(operation.target().as_bytes());
        });
        if let WriteOperation::Modify { changes, .. } = operation {
            let names = changes.iter().map(|change| change.attribute.description.as_str());
            self.log_later(in_flight, What::Attributes { word }, |texts| put_names(texts, names));
        }
    }
}
