//! Extended operations (RFC 4511 section 4.12): who am I, password modify, cancel, StartTLS, verify credentials; all others are refused.

use larix_engine::controls::{self, RequestControls};
use larix_proto::extended::{Cancel, ExtendedValue};
use larix_proto::{ControlBuf, Controls, ExtendedRequest, LdapResult, Message, ResultCode, encode, oid};
use larix_replication::digest;
use larix_replication::{CONFLICTS_OID, RETIRE_OID};

use crate::connection::StartOutcome;
use crate::dispatch::{Dispatcher, LayerChange, RequestInFlight, RunningSearch};
use crate::log::printable;
use crate::operation_rules::RestrictedOperation;

impl Dispatcher {
    pub(crate) fn extended(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        if self.session.state().version < 3 {
            let result = LdapResult::with(ResultCode::PROTOCOL_ERROR, "requires LDAPv3");
            self.finish(&in_flight, &result, None);
            return StartOutcome::Disconnect(result);
        }
        self.log_operation(&in_flight, format_args!("EXT oid={}", printable(request.name)));
        let started = self
            .controls(message.controls, controls::OperationKind::Extended(request.name))
            .and_then(|controls| match request.name {
                // RFC 4532 section 2.1.
                oid::WHO_AM_I if request.value.is_some() => {
                    Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "no request data expected"))
                }
                oid::WHO_AM_I => self.who_am_i(in_flight, request, &controls, message.controls, out),
                oid::PASSWORD_MODIFY => {
                    self.password_modify(in_flight, request, controls, message.controls, out)
                }
                oid::VERIFY_CREDENTIALS if self.server.config().global.verify_credentials => {
                    self.verify_credentials(in_flight, request, (&controls, message.controls), out)
                }
                oid::CANCEL => self.cancel(in_flight, request, message.controls),
                oid::START_TRANSACTION => self.start_transaction(&in_flight, request, message.controls, out),
                oid::END_TRANSACTION => self.end_transaction(in_flight, request, message.controls, out),
                digest::OID | CONFLICTS_OID | RETIRE_OID => {
                    self.database_operation(in_flight, request, &controls, message.controls, out)
                }
                oid::START_TLS if self.server.tls.is_available() => {
                    self.start_tls_request(in_flight, request, message.controls)
                }
                _ => self.overlay_operation(in_flight, request, &controls, message.controls, out),
            });
        match started {
            Ok(started) => started,
            Err(result) => {
                self.answer_extended(&in_flight, &result, None, out);
                StartOutcome::Answered
            }
        }
    }

    pub(crate) fn answer_extended(
        &self,
        in_flight: &RequestInFlight,
        result: &LdapResult,
        value: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        self.answer_extended_with(in_flight, result, value, &[], out);
    }

    pub(crate) fn answer_extended_with(
        &self,
        in_flight: &RequestInFlight,
        result: &LdapResult,
        value: Option<&[u8]>,
        controls: &[ControlBuf],
        out: &mut Vec<u8>,
    ) {
        encode::extended_result(out, in_flight.operation.id, result, None, value, controls);
        self.finish(in_flight, result, None);
    }

    fn who_am_i(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        self.log_operation(&in_flight, format_args!("WHOAMI"));
        let subject = self.subject_for(&in_flight, controls)?;
        // The database of the session's own identity has a say.
        let own = self.session.subject().dn.clone();
        let name = own.as_ref().map_or("", |dn| dn.as_str());
        self.permitted_as(&subject, name, RestrictedOperation::Extended(oid::WHO_AM_I), sent)?;
        if own != subject.dn && own.as_ref().is_some_and(|own| self.server.databases().ask_target_who(own)) {
            return self.extended_in(in_flight, request, name.to_owned(), (controls, sent), out);
        }
        let authz = subject.authz_text.clone();
        self.answer_extended(&in_flight, &LdapResult::success(), Some(authz.as_bytes()), out);
        Ok(StartOutcome::Answered)
    }

    fn start_tls_request(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        sent: Controls<'_>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        self.log_operation(&in_flight, format_args!("STARTTLS"));
        self.permitted("", RestrictedOperation::Extended(oid::START_TLS), sent)?;
        if request.value.is_some() {
            return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "no request data expected"));
        }
        self.wait_for(in_flight);
        Ok(StartOutcome::Securing)
    }

    /// RFC 4511 section 4.14.1, in OpenLDAP's order and words.
    pub(crate) fn answer_start_tls(
        &mut self,
        in_flight: &RequestInFlight,
        outstanding: bool,
        out: &mut Vec<u8>,
    ) {
        let result = self.start_tls(in_flight, outstanding).err().unwrap_or_else(LdapResult::success);
        self.answer_extended(in_flight, &result, None, out);
    }

    fn start_tls(&mut self, in_flight: &RequestInFlight, outstanding: bool) -> Result<(), LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        if self.session.tls.is_some() {
            return refuse(ResultCode::OPERATIONS_ERROR, "TLS already started");
        }
        if outstanding {
            let text = "cannot start TLS when operations are outstanding";
            return refuse(ResultCode::OPERATIONS_ERROR, text);
        }
        let disallow = self.server.config().global.disallow;
        if !disallow.tls_2_anon && self.session.is_authenticated() {
            self.log_operation(in_flight, format_args!("AUTHZ anonymous mech=starttls ssf=0"));
            self.session.forget();
            self.record.set_identity("");
        }
        if disallow.tls_authc && self.session.is_authenticated() {
            return refuse(ResultCode::OPERATIONS_ERROR, "cannot start TLS after authentication");
        }
        self.layer_change = Some(LayerChange::Tls);
        Ok(())
    }

    fn cancel(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        sent: Controls<'_>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        let protocol = |text: &str| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        match request.value {
            None => return Err(protocol("no message ID supplied")),
            Some([]) => return Err(protocol("empty request data field")),
            Some(_) => {}
        }
        let cancel = Cancel::decode(request.value).map_err(|_| protocol("message ID parse failed"))?;
        self.log_operation(&in_flight, format_args!("CANCEL msg={}", cancel.id));
        self.permitted("", RestrictedOperation::Extended(oid::CANCEL), sent)?;
        self.wait_for(in_flight);
        Ok(StartOutcome::Cancel(cancel.id))
    }
}
