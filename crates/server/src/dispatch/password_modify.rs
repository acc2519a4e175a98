//! Password modify (RFC 3062): one's own or another's password, given or made up.

use std::cell::Cell;

use larix_engine::access;
use larix_engine::controls::{OperationKind, RequestControls};
use larix_engine::write::WriteOperation;
use larix_proto::extended::{ExtendedValue, PasswordModify, PasswordModifyResponse};
use larix_proto::{Controls, ExtendedRequest, LdapResult, ResultCode, oid};
use larix_schema::{NormalDn, Schema};
use zeroize::Zeroizing;

use crate::admission::PaidToken;
use crate::connection::StartOutcome;
use crate::dispatch::{Completion, Dispatcher, RequestInFlight, RunningSearch};
use crate::log::printable;
use crate::operation_rules::RestrictedOperation;
use larix_backend::{Done, PasswordChange, PasswordChangeOutcome, Reply};

/// A password was changed, or was not.
#[derive(Debug)]
pub(crate) struct PasswordOutcome {
    changed: PasswordChangeOutcome,
    /// It was that of the session's login.
    own: bool,
    /// For a wrong old password, where failed binds are counted for the client's address.
    paid: Option<PaidToken>,
}

impl Dispatcher {
    /// A password change has ended.
    pub(crate) fn password_modified(
        &mut self,
        in_flight: &RequestInFlight,
        outcome: PasswordOutcome,
        out: &mut Vec<u8>,
    ) {
        let PasswordOutcome { changed, own, paid } = outcome;
        let PasswordChangeOutcome { result, controls, generated, proof, .. } = changed;
        if proof != Some(false) {
            self.proof_was_not_wrong(paid);
        }
        if own && result.is_success() {
            self.session.must_change_password = false;
        }
        let generated = generated.as_ref().filter(|_| result.is_success());
        let value = PasswordModifyResponse { generated: generated.map(|g| g.as_slice()) }.encode();
        self.answer_extended_with(in_flight, &result, value.as_deref(), &controls, out);
    }

    pub(crate) fn password_modify(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        mut controls: RequestControls,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        let kind = || access::Operation::Extended(oid::PASSWORD_MODIFY.to_owned());
        let databases = self.server.databases();
        let subject = self.in_request(&databases, self.subject_for(&in_flight, &controls)?, kind, sent);
        if subject.is_anonymous() {
            self.log_operation(&in_flight, format_args!("PASSMOD"));
            let text = "only authenticated users may change passwords";
            return Err(LdapResult::with(ResultCode::STRONGER_AUTH_REQUIRED, text));
        }
        let (request_value, target, dn) =
            self.read_password_modify(&in_flight, request, (&subject, databases.schema()))?;
        let operation = RestrictedOperation::Extended(oid::PASSWORD_MODIFY);
        let dropped = self.permitted(dn.as_str(), operation, sent)?;
        controls.forget(&dropped, sent, OperationKind::Extended(oid::PASSWORD_MODIFY))?;
        let secret = |given: &[u8]| Zeroizing::new(given.to_vec());
        let paid = Cell::new(None::<PaidToken>);
        let proof_begins = || -> Result<(), LdapResult> {
            // One request counts once, also where two backends compare.
            if paid.get().is_none() {
                paid.set(self.proof_begins()?);
            }
            Ok(())
        };
        let change = PasswordChange {
            dn: &dn,
            target,
            old: request_value.old.map(secret),
            new: request_value.new.map(secret),
            policy_control: controls.password_policy,
            hops: controls.hops,
            proof_begins: &proof_begins,
        };
        let own = self.is_of_login(&dn);
        let about = WriteOperation::Modify { object: change.target.clone(), changes: Vec::new() };
        let mut record = self.note_change(&about, &subject);
        let mut origin = self.note_origin(about.target());
        let mut later = || -> Done<PasswordChangeOutcome> {
            let (completer, record, origin) = (self.completer(&in_flight), record.take(), origin.take());
            let paid = paid.get();
            Box::new(move |changed| {
                if let Some(written) = &changed.written {
                    record.into_iter().for_each(|record| record.changed(written));
                    origin.into_iter().for_each(|origin| origin.changed(written));
                }
                completer.complete(Completion::Password(Box::new(PasswordOutcome { changed, own, paid })));
            })
        };
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        match databases.router().modify_password(&context, change, &mut later) {
            Reply::Now(changed) => {
                self.password_modified(&in_flight, PasswordOutcome { changed, own, paid: paid.get() }, out);
                Ok(StartOutcome::Answered)
            }
            Reply::Later(pending) => {
                self.wait_for_pending(in_flight, pending);
                Ok(StartOutcome::Waiting)
            }
        }
    }

    /// Reads a request: its value, and the name of the entry that it is about as it was sent and as it is compared.
    fn read_password_modify<'r>(
        &self,
        in_flight: &RequestInFlight,
        request: &ExtendedRequest<'r>,
        (subject, schema): (&access::Subject, &Schema),
    ) -> Result<(PasswordModify<'r>, String, NormalDn), LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        let request_value = PasswordModify::decode(request.value)
            .map_err(|error| LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string()))?;
        // It is no password: it counts as no wrong one.
        if request_value.old.is_some_and(<[u8]>::is_empty) {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "old password value is empty");
        }
        if request_value.new.is_some_and(<[u8]>::is_empty) {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "new password value is empty");
        }
        let user = request_value.user.map(String::from_utf8_lossy).filter(|user| !user.is_empty());
        self.log_password_modify(in_flight, user.as_deref(), &request_value);
        let target = match &user {
            Some(user) => user.strip_prefix("dn:").unwrap_or(user).to_owned(),
            None => subject.shown_dn().to_owned(),
        };
        let dn = schema
            .parse_dn(&target)
            .map_err(|_| LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, "Invalid DN"))?;
        if dn.is_root() {
            return refuse(ResultCode::UNWILLING_TO_PERFORM, "no password is associated with the Root DSE");
        }
        Ok((request_value, target, dn))
    }

    fn log_password_modify(
        &self,
        in_flight: &RequestInFlight,
        user: Option<&str>,
        request_value: &PasswordModify<'_>,
    ) {
        let old = if request_value.old.is_some() { " old" } else { "" };
        let new = if request_value.new.is_some() { " new" } else { "" };
        match user {
            Some(user) => {
                self.log_operation(in_flight, format_args!("PASSMOD id=\"{}\"{old}{new}", printable(user)))
            }
            None => self.log_operation(in_flight, format_args!("PASSMOD{old}{new}")),
        }
    }
}
