//! Bind requests (RFC 4511 section 4.2, RFC 4513), with OpenLDAP's codes and texts.

use std::sync::Arc;

use larix_engine::access::Operation;
use larix_engine::controls;
use larix_proto::{
    Authentication, BindRequest, ControlBuf, Controls, LdapResult, Message, ResultCode, encode, oid,
};
use larix_schema::{DnError, NormalDn};

use super::sasl::exchange::Exchange;
use super::sasl::{SaslLogin, look_up_acting};
use crate::connection::StartOutcome;
use crate::dispatch::{Completion, Dispatcher, RequestInFlight, RunningSearch};
use crate::log::printable;
use crate::operation_rules::RestrictedOperation;
use crate::password_pool::JobSource;
use crate::session::Method;
use larix_backend::{Bind, BoundSession, Done, PendingAnswer, Proof, Reply, Verdict};

/// A password that was compared off the loop.
#[derive(Debug)]
pub(crate) struct BindOutcome {
    verdict: Verdict,
    login: Login,
}

/// A bind whose password is being verified, and the identity that the client gets if it is right.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) dn: NormalDn,
    pub(crate) shown_dn: String,
    pub(crate) kind: LoginKind,
}

/// How a password came.
#[derive(Debug)]
pub(crate) enum LoginKind {
    Simple,
    /// By a SASL mechanism.
    Sasl(Box<SaslLogin>),
}

/// What of a bind is answered at once.
#[derive(Debug)]
pub(crate) enum BindStep {
    /// Success, with server credentials.
    Bound(Option<Vec<u8>>),
    /// SASL goes on: the server's challenge.
    Challenge(Vec<u8>),
    /// A completion follows.
    Waiting,
    Disconnect(LdapResult),
}

impl Dispatcher {
    pub(crate) fn bind(
        &mut self,
        in_flight: RequestInFlight,
        request: &BindRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        // A version that is refused leaves the session's as it is.
        let spoken =
            request.version == 3 || request.version == 2 && self.server.config().global.allow.bind_v2;
        let continued = self.sasl.take();
        if self.session.is_authenticated() {
            let ssf = self.session.state().ssf;
            self.log_operation(&in_flight, format_args!("BIND anonymous mech=implicit bind_ssf=0 ssf={ssf}"));
        }
        self.leave_identity(spoken.then_some(request.version));
        self.record.protocol.store(request.version, std::sync::atomic::Ordering::Relaxed);
        let step = self.try_bind(in_flight, request, message, continued);
        self.answer_step(&in_flight, step, out)
    }

    /// RFC 4513 section 4: whatever comes of a bind, the session is anonymous while it binds.
    fn leave_identity(&mut self, version: Option<u8>) {
        self.session.reset(version);
        self.transaction = None;
        self.record.set_identity("");
    }

    /// A bind has failed before anything of it was looked at.
    pub(super) fn bind_failed_unread(&mut self) {
        self.sasl = None;
        self.leave_identity(None);
    }

    /// The password was compared elsewhere.
    pub(crate) fn bind_verified(
        &mut self,
        in_flight: &RequestInFlight,
        outcome: BindOutcome,
        out: &mut Vec<u8>,
    ) {
        let (step, controls) = self.judged(in_flight, outcome);
        self.answer_step_with(in_flight, step, &controls, out);
    }

    /// Answers what can be answered.
    pub(crate) fn answer_step(
        &self,
        in_flight: &RequestInFlight,
        step: Result<BindStep, LdapResult>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        self.answer_step_with(in_flight, step, &[], out)
    }

    fn answer_step_with(
        &self,
        in_flight: &RequestInFlight,
        step: Result<BindStep, LdapResult>,
        controls: &[ControlBuf],
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        let mut own = Vec::new();
        let (result, credentials) = match step {
            Ok(BindStep::Waiting) => return StartOutcome::WaitingAlone,
            Ok(BindStep::Disconnect(result)) => {
                self.finish(in_flight, &result, None);
                return StartOutcome::Disconnect(result);
            }
            Ok(BindStep::Bound(credentials)) => {
                own = self.controls_when_bound();
                (LdapResult::success(), credentials)
            }
            Ok(BindStep::Challenge(challenge)) => {
                (LdapResult::new(ResultCode::SASL_BIND_IN_PROGRESS), Some(challenge))
            }
            Err(result) => (result, None),
        };
        let joined;
        let controls = if own.is_empty() {
            controls
        } else {
            joined = [controls, own.as_slice()].concat();
            &joined
        };
        encode::bind_result(out, in_flight.operation.id, &result, credentials.as_deref(), controls);
        self.finish(in_flight, &result, None);
        StartOutcome::Answered
    }

    /// What overlays add to the answer of a bind that has succeeded.
    fn controls_when_bound(&self) -> Vec<ControlBuf> {
        if self.bind_controls.overlays.is_empty() {
            return Vec::new();
        }
        let bound = BoundSession { controls: &self.bind_controls, subject: self.session.subject() };
        self.server.databases().router().bound(&bound)
    }

    fn try_bind(
        &mut self,
        in_flight: RequestInFlight,
        request: &BindRequest<'_>,
        message: &Message<'_>,
        continued: Option<Box<Exchange>>,
    ) -> Result<BindStep, LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        let controls = self.controls(message.controls, controls::OperationKind::Bind)?;
        self.session.asks_password_policy = controls.password_policy;
        let goes_on = continued.is_some();
        let invalid = |_: DnError| LdapResult::invalid_dn();
        let databases = self.server.databases();
        let (dn, shown_dn) = databases.schema().parse_and_show_dn(request.name).map_err(invalid)?;
        let method = match request.authentication {
            Authentication::Simple(_) => 128,
            Authentication::Sasl { .. } => 163,
            Authentication::Other(number) => 128 + u32::from(number),
        };
        if self.logs_stats() {
            let printable_dn = printable(&shown_dn);
            self.log_operation(&in_flight, format_args!("BIND dn=\"{printable_dn}\" method={method}"));
        }
        match request.version {
            3 => {}
            2 if self.server.config().global.allow.bind_v2 => {}
            2 => {
                let text = "historical protocol version requested, use LDAPv3 instead";
                return refuse(ResultCode::PROTOCOL_ERROR, text);
            }
            _ => return refuse(ResultCode::PROTOCOL_ERROR, "requested protocol version not supported"),
        }
        if controls.manage_dsa_it_critical {
            return refuse(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, "manageDSAit control inappropriate");
        }
        // A SASL bind of several steps says in any of them what its answer is to tell.
        if !goes_on || !controls.overlays.is_empty() {
            self.bind_controls = controls;
        }
        match request.authentication {
            Authentication::Simple(password) => {
                self.simple_bind(in_flight, dn, shown_dn, password, message.controls)
            }
            Authentication::Sasl { .. } if request.version < 3 => {
                let text = "SASL bind requires LDAPv3";
                Ok(BindStep::Disconnect(LdapResult::with(ResultCode::PROTOCOL_ERROR, text)))
            }
            Authentication::Sasl { mechanism, credentials } => {
                self.sasl_bind(in_flight, mechanism, credentials, continued, message.controls)
            }
            Authentication::Other(_) => {
                refuse(ResultCode::AUTH_METHOD_NOT_SUPPORTED, "unknown authentication method")
            }
        }
    }

    fn simple_bind(
        &mut self,
        in_flight: RequestInFlight,
        dn: NormalDn,
        shown_dn: String,
        password: &[u8],
        sent: Controls<'_>,
    ) -> Result<BindStep, LdapResult> {
        let (judged, dropped) = self.simple_credentials(&dn, password, sent)?;
        self.forget_dropped(&dropped);
        if !judged {
            return Ok(BindStep::Bound(None));
        }
        self.verify_password(in_flight, Login { dn, shown_dn, kind: LoginKind::Simple }, password)
    }

    /// Whether name and password have to be judged; without one of them the bind is anonymous. Also answers the OIDs of the controls
    /// that the bind ignores.
    ///
    /// # Errors
    /// The configuration does not let this session bind so.
    pub(super) fn simple_credentials(
        &self,
        dn: &NormalDn,
        password: &[u8],
        sent: Controls<'_>,
    ) -> Result<(bool, Vec<String>), LdapResult> {
        let (allow, disallow) = {
            let config = self.server.config();
            (config.global.allow, config.global.disallow)
        };
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        if password.is_empty() || dn.is_root() {
            if !password.is_empty() && !allow.bind_anon_cred {
                return Err(LdapResult::new(ResultCode::INVALID_CREDENTIALS));
            }
            if !dn.is_root() && !allow.bind_anon_dn {
                let text = "unauthenticated bind (DN with no password) disallowed";
                return refuse(ResultCode::UNWILLING_TO_PERFORM, text);
            }
            if disallow.bind_anon {
                return refuse(ResultCode::INAPPROPRIATE_AUTHENTICATION, "anonymous bind disallowed");
            }
            return Ok((false, self.permitted("", RestrictedOperation::AnonymousBind, sent)?));
        }
        if disallow.bind_simple {
            let text = "unwilling to perform simple authentication";
            return refuse(ResultCode::UNWILLING_TO_PERFORM, text);
        }
        Ok((true, self.permitted(dn.as_str(), RestrictedOperation::SimpleBind, sent)?))
    }

    /// Whether the configuration lets this session bind there.
    pub(crate) fn may_bind(
        &mut self,
        dn: &str,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<(), LdapResult> {
        let dropped = self.permitted(dn, operation, sent)?;
        self.forget_dropped(&dropped);
        Ok(())
    }

    /// Drops controls of a bind that are ignored.
    fn forget_dropped(&mut self, dropped: &[String]) {
        if dropped.iter().any(|control| control == oid::PASSWORD_POLICY) {
            self.session.asks_password_policy = false;
        }
    }

    /// Has the password of a login judged.
    pub(super) fn verify_password(
        &mut self,
        in_flight: RequestInFlight,
        login: Login,
        password: &[u8],
    ) -> Result<BindStep, LdapResult> {
        self.judge(in_flight, login, Proof::Password(password))
    }

    /// Lets the overlays that judge binds judge one that has no password to compare.
    pub(super) fn judge_login(
        &mut self,
        in_flight: &RequestInFlight,
        login: Login,
        matched: bool,
    ) -> Result<BindStep, LdapResult> {
        self.judge(*in_flight, login, Proof::Judged(matched))
    }

    fn judge(
        &mut self,
        in_flight: RequestInFlight,
        login: Login,
        proof: Proof<'_>,
    ) -> Result<BindStep, LdapResult> {
        let anonymous = Arc::clone(self.session.anonymous());
        let databases = self.server.databases();
        let subject = self.in_request(&databases, anonymous, || Operation::Bind, Controls::default());
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        let dn = login.dn.clone();
        let bind = Bind {
            dn: &dn,
            proof,
            by_mechanism: !matches!(login.kind, LoginKind::Simple),
            policy_control: self.session.asks_password_policy,
            controls: &self.bind_controls,
        };
        let mut login = Some(login);
        let mut later = || -> Done<Verdict> {
            let (completer, login) = (self.completer(&in_flight), login.take());
            let whose = (Arc::clone(&self.server), Arc::clone(self.session.anonymous()));
            Box::new(move |verdict: Verdict| {
                // A completer that is dropped says that the outcome is lost.
                let Some(login) = login else { return };
                let complete = move |verdict, login| {
                    completer.complete(Completion::Bind(Box::new(BindOutcome { verdict, login })));
                };
                let Login { dn, shown_dn, kind } = login;
                match kind {
                    LoginKind::Sasl(sasl) if verdict.result.is_success() => {
                        let whom = verdict.identity.clone().unwrap_or_else(|| dn.clone());
                        look_up_acting(whose, whom, sasl, move |sasl| {
                            complete(verdict, Login { dn, shown_dn, kind: LoginKind::Sasl(sasl) });
                        });
                    }
                    kind => complete(verdict, Login { dn, shown_dn, kind }),
                }
            })
        };
        let pending = match databases.router().bind(&context, &bind, &mut later) {
            Reply::Now(verdict) if verdict.controls.is_empty() => match login {
                Some(login) => return self.judged(&in_flight, BindOutcome { verdict, login }).0,
                None => PendingAnswer::default(),
            },
            Reply::Now(verdict) => {
                later()(verdict);
                PendingAnswer::default()
            }
            Reply::Later(pending) => pending,
        };
        self.wait_for_pending(in_flight, pending);
        Ok(BindStep::Waiting)
    }

    /// What a verdict comes to, and the controls of the answer.
    fn judged(
        &mut self,
        in_flight: &RequestInFlight,
        outcome: BindOutcome,
    ) -> (Result<BindStep, LdapResult>, Vec<ControlBuf>) {
        let BindOutcome { verdict, mut login } = outcome;
        let Verdict { result, controls, must_change_password, shown: shown_dn, identity, .. } =
            verdict.settled();
        login.shown_dn = shown_dn.unwrap_or(login.shown_dn);
        login.dn = identity.unwrap_or(login.dn);
        let step = match result.code {
            ResultCode::SUCCESS => self.conclude_login(in_flight, login, true),
            ResultCode::INVALID_CREDENTIALS => self.conclude_login(in_flight, login, false),
            _ => Err(result),
        };
        self.session.must_change_password = must_change_password && step.is_ok();
        (step, controls)
    }

    /// Whom the work on a password is done for.
    pub(crate) fn job_source(&self, account: &NormalDn) -> JobSource {
        self.server.passwords.source(&self.session.anonymous().peer.peer_name, account.as_str())
    }

    /// A password, or whatever the mechanism asks for, was judged.
    pub(crate) fn conclude_login(
        &mut self,
        in_flight: &RequestInFlight,
        login: Login,
        matched: bool,
    ) -> Result<BindStep, LdapResult> {
        let Login { dn, shown_dn, kind } = login;
        match kind {
            _ if !matched => Err(kind.wrong_password()),
            LoginKind::Simple => {
                self.bound(in_flight, dn, &shown_dn, Method::Simple, "SIMPLE");
                Ok(BindStep::Bound(None))
            }
            LoginKind::Sasl(login) => self.sasl_bound(in_flight, dn, &shown_dn, *login),
        }
    }

    /// The session is this identity's from here on.
    pub(crate) fn bound(
        &mut self,
        in_flight: &RequestInFlight,
        dn: NormalDn,
        shown_dn: &str,
        method: Method,
        mechanism: &'static str,
    ) {
        self.session.bind(dn, shown_dn, method, mechanism);
        self.record.set_identity(shown_dn);
        if self.logs_stats() {
            let ssf = self.session.state().ssf;
            let bind_ssf = if method == Method::Sasl { self.session.state().sasl_ssf } else { 0 };
            let printable_dn = printable(shown_dn);
            self.log_operation(
                in_flight,
                format_args!("BIND dn=\"{printable_dn}\" mech={mechanism} bind_ssf={bind_ssf} ssf={ssf}"),
            );
        }
    }
}

impl LoginKind {
    /// The answer to a wrong password, and to a name without an account.
    fn wrong_password(&self) -> LdapResult {
        match self {
            Self::Simple => LdapResult::new(ResultCode::INVALID_CREDENTIALS),
            Self::Sasl(login) => login.wrong_password(),
        }
    }
}
