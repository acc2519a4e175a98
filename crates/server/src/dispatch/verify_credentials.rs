//! Verify credentials (OpenLDAP's contributed module vc): a simple bind is judged as any other, and the connection stays who it is.

use larix_engine::access::Operation;
use larix_engine::controls::{OperationKind, RequestControls};
use larix_proto::extended::{ExtendedValue, VerifyCredentials, VerifyCredentialsResponse};
use larix_proto::{Authentication, Controls, ExtendedRequest, LdapResult, ResultCode, oid};
use larix_schema::NormalDn;

use crate::admission::PaidToken;
use crate::connection::StartOutcome;
use crate::dispatch::{Completion, Dispatcher, RequestInFlight, RunningSearch};
use crate::log::printable;
use crate::operation_rules::RestrictedOperation;
use larix_backend::{Bind, Done, Proof, Reply, Verdict};

/// Credentials were judged.
#[derive(Debug)]
pub(crate) struct VerifiedOutcome {
    verdict: Verdict,
    /// For the failure of a bind, where that is counted for the client's address.
    paid: Option<PaidToken>,
}

impl Dispatcher {
    pub(super) fn verify_credentials(
        &mut self,
        in_flight: RequestInFlight,
        request: &ExtendedRequest<'_>,
        (controls, sent): (&RequestControls, Controls<'_>),
        out: &mut Vec<u8>,
    ) -> Result<StartOutcome<RunningSearch>, LdapResult> {
        let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        if request.value.is_none_or(<[u8]>::is_empty) {
            return Err(protocol("empty request data field in VerifyCredentials exop".to_owned()));
        }
        let request_value =
            VerifyCredentials::decode(request.value).map_err(|error| protocol(error.to_string()))?;
        let dn = self.server.databases().schema().parse_dn(request_value.name);
        let dn = dn.map_err(|_| protocol("invalid DN".to_owned()))?;
        self.log_operation(
            &in_flight,
            format_args!("VERIFYCREDENTIALS dn=\"{}\"", printable(request_value.name)),
        );
        self.permitted(dn.as_str(), RestrictedOperation::Extended(oid::VERIFY_CREDENTIALS), sent)?;
        if request_value.cookie.is_some() {
            return Err(protocol("there is no SASL exchange with this cookie".to_owned()));
        }
        match self.judge_credentials(in_flight, &dn, &request_value, controls.hops) {
            Ok(Reply::Now(outcome)) => {
                self.verified(&in_flight, outcome, out);
                Ok(StartOutcome::Answered)
            }
            Ok(Reply::Later(pending)) => {
                self.wait_for_pending(in_flight, pending);
                Ok(StartOutcome::Waiting)
            }
            // The bind would be refused.
            Err(refused) => {
                self.verified(&in_flight, VerifiedOutcome { verdict: refused.into(), paid: None }, out);
                Ok(StartOutcome::Answered)
            }
        }
    }

    /// Judges credentials as a bind of this session would be. `hops`: the proxies that the request has come through.
    fn judge_credentials(
        &self,
        in_flight: RequestInFlight,
        dn: &NormalDn,
        request_value: &VerifyCredentials<'_>,
        hops: u8,
    ) -> Result<Reply<VerifiedOutcome>, LdapResult> {
        let Authentication::Simple(password) = request_value.authentication else {
            let text = "only simple authentication can be verified";
            return Err(LdapResult::with(ResultCode::AUTH_METHOD_NOT_SUPPORTED, text));
        };
        let mut controls = self.controls(request_value.controls, OperationKind::Bind)?;
        let (judged, dropped) = self.simple_credentials(dn, password, request_value.controls)?;
        controls.forget(&dropped, request_value.controls, OperationKind::Bind)?;
        let controls = controls.with(|values| values.hops = values.hops.max(hops));
        if !judged {
            let verdict = LdapResult::success().into();
            return Ok(Reply::Now(VerifiedOutcome { verdict, paid: None }));
        }
        let paid = self.proof_begins()?;
        let anonymous = std::sync::Arc::clone(self.session.anonymous());
        let databases = self.server.databases();
        let subject = self.in_request(&databases, anonymous, || Operation::Bind, Controls::default());
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        let bind = Bind {
            dn,
            proof: Proof::Password(password),
            by_mechanism: false,
            policy_control: controls.password_policy,
            controls: &controls,
        };
        let mut later = || -> Done<Verdict> {
            let completer = self.completer(&in_flight);
            Box::new(move |verdict| {
                let outcome = VerifiedOutcome { verdict, paid };
                completer.complete(Completion::Verified(Box::new(outcome)));
            })
        };
        Ok(match databases.router().bind(&context, &bind, &mut later) {
            Reply::Now(verdict) => Reply::Now(VerifiedOutcome { verdict, paid }),
            Reply::Later(pending) => Reply::Later(pending),
        })
    }

    /// Answers. As with OpenLDAP's module, the result has the code of the bind: a client that looks at nothing else takes no wrong
    /// password for a right one.
    pub(crate) fn verified(&self, in_flight: &RequestInFlight, outcome: VerifiedOutcome, out: &mut Vec<u8>) {
        let VerifiedOutcome { verdict, paid } = outcome;
        let Verdict { result, controls, .. } = verdict.settled();
        if result.code != ResultCode::INVALID_CREDENTIALS {
            self.proof_was_not_wrong(paid);
        }
        let (code, diagnostic) = (result.code, result.diagnostic);
        let value = VerifyCredentialsResponse { code, diagnostic, controls }.encode();
        self.answer_extended(in_flight, &LdapResult::new(code), value.as_deref(), out);
    }
}
