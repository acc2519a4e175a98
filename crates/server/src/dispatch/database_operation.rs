//! Extended operations that a backend carries out, or an overlay in front of one: those about replicas, which name a suffix, and
//! those that overlays bring.

use std::fmt::Display;

use larix_engine::access;
use larix_engine::controls::RequestControls;
use larix_proto::ber::{Reader, Tag};
use larix_proto::{Controls, ExtendedRequest, LdapResult, ResultCode, oid};
use larix_replication::digest::{self, DigestRequest};
use larix_replication::{CONFLICTS_OID, ConflictsRequest, RetireRequest};

use crate::connection::StartOutcome;
use crate::dispatch::{Completion, Dispatcher, RequestInFlight, RunningSearch};
use crate::log::printable;
use crate::operation_rules::RestrictedOperation;
use larix_backend::{Done, ExtendedAnswer, ExtendedOperation, Reply};

/// The entry that a refresh request (RFC 2589 section 4.1) is about.
fn refreshed(value: Option<&[u8]>) -> Result<String, LdapResult> {
    let fault = |text: &str| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
    let value = value.filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| fault("empty request data field in refresh exop"))?;
    let reader = Reader::new(value).sequence("refresh").ok();
    let name = reader.and_then(|mut reader| reader.expect(Tag::context(0), "entryName").ok());
    let name = name.and_then(|name| String::from_utf8(name.to_vec()).ok());
    name.ok_or_else(|| fault("data decoding error"))
}

impl Dispatcher {
    /// Has the database whose suffix the request names carry it out.
    pub(super) fn database_operation(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        let expected = || LdapResult::with(ResultCode::PROTOCOL_ERROR, "request data expected");
        let base = self.named(&in_flight, request.name, request.value.ok_or_else(expected)?)?;
        self.extended_in(in_flight, request, base, (controls, sent), out)
    }

    /// Has the overlay that brings the operation carry it out. A database on other servers passes a refresh of a dynamic entry on.
    pub(super) fn overlay_operation(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        let known = self.server.databases().router().overlay_operation(request.name);
        let target = match known {
            Some(known) => (known.target)(request.value)?,
            None if request.name == oid::REFRESH => refreshed(request.value)?,
            None => return Err(ExtendedOperation::unsupported()),
        };
        self.extended_in(in_flight, request, target, (controls, sent), out)
    }

    /// Has the database that holds a name, or an overlay in front of it, carry it out.
    pub(super) fn extended_in(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        base: String,
        (controls, sent): (&RequestControls, Controls<'_>),
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        self.permitted(&base, RestrictedOperation::Extended(request.name), sent)?;
        let subject = self.subject_for(&in_flight, controls)?;
        let databases = self.server.databases();
        let dn = databases.schema().parse_dn(&base).map_err(|_| LdapResult::invalid_dn())?;
        let kind = || access::Operation::Extended(request.name.to_owned());
        let subject = self.in_request(&databases, subject, kind, sent);
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        let operation = ExtendedOperation { oid: request.name, controls, dn: &dn, value: request.value };
        let mut later = || -> Done<ExtendedAnswer> {
            let completer = self.completer(&in_flight);
            Box::new(move |answer| completer.complete(Completion::Extended(Box::new(answer))))
        };
        match databases.router().extended(&context, &operation, &mut later) {
            Reply::Now(ExtendedAnswer { mut result, mut value, controls }) => {
                if request.name == oid::WHO_AM_I && result == ExtendedOperation::not_served() {
                    // The client has not bound through that database.
                    result = LdapResult::success();
                    value = Some(subject.authz_text.as_bytes().to_vec());
                }
                // An operation of an overlay that is not here: a database that other servers have would have passed it on.
                let is_known = request.name != oid::REFRESH
                    || databases.router().overlay_operation(request.name).is_some();
                if !is_known && result == ExtendedOperation::not_served() {
                    result = ExtendedOperation::unsupported();
                }
                self.answer_extended_with(&in_flight, &result, value.as_deref(), &controls, out);
                Ok(StartOutcome::Answered)
            }
            Reply::Later(pending) => {
                self.wait_for_pending(in_flight, pending);
                Ok(StartOutcome::Waiting)
            }
        }
    }

    /// The suffix that a request names, which is logged.
    fn named(&self, in_flight: &RequestInFlight, oid: &str, value: &[u8]) -> Result<String, LdapResult> {
        let damaged = |error: &dyn Display| LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string());
        match oid {
            digest::OID => {
                let base = DigestRequest::decode(value).map_err(|error| damaged(&error))?.base;
                self.log_operation(in_flight, format_args!("DIGESTS base=\"{}\"", printable(&base)));
                Ok(base)
            }
            CONFLICTS_OID => {
                let base = ConflictsRequest::decode(value).map_err(|error| damaged(&error))?.base;
                self.log_operation(in_flight, format_args!("CONFLICTS base=\"{}\"", printable(&base)));
                Ok(base)
            }
            _ => {
                let RetireRequest { base, server_id } =
                    RetireRequest::decode(value).map_err(|error| damaged(&error))?;
                let shown = printable(&base);
                self.log_operation(in_flight, format_args!("RETIRE base=\"{shown}\" sid={server_id:03x}"));
                Ok(base)
            }
        }
    }
}
