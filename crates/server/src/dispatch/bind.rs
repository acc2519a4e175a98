//! Bind requests (RFC 4511 section 4.2, RFC 4513), with OpenLDAP's codes and texts.

use std::sync::Arc;

use larix_engine::access::Operation;
use larix_engine::budget::RequestLimit;
use larix_engine::controls::{self, RequestControls};
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::password::{self, Cost};
use larix_engine::write::WriteOutcome;
use larix_proto::{
    Authentication, BindRequest, CompareRequest, ControlBuf, Controls, Dn, LdapResult, Message, ResultCode,
    encode, oid,
};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use super::sasl::SaslLogin;
use super::sasl::exchange::Exchange;
use crate::connection::Started;
use crate::databases::{Credentials, Databases};
use crate::dispatch::{Begun, Completion, Dispatcher, Running};
use crate::log::printable;
use crate::operation_rules::Restricted;
use crate::password_check::{Elsewhere, PasswordCheck};
use crate::password_pool::JobSource;
use crate::session::Method;

/// How a request may name userPassword (RFC 4519 section 2.41).
const PASSWORD_NAMES: [&str; 2] = ["userPassword", "2.5.4.35"];

/// A password that was compared off the loop.
#[derive(Debug)]
pub struct BindOutcome {
    verdict: BindConclusion,
    login: Login,
}

/// Somebody whose password is being verified, and what he becomes when it is right.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) dn: NormalDn,
    pub(crate) shown: String,
    pub(crate) way: Way,
}

/// How a password came.
#[derive(Debug)]
pub(crate) enum Way {
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
        begun: Begun,
        request: &BindRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        // RFC 4513 section 4: whatever comes of it, the session is anonymous while it binds.
        // A version that is refused leaves the session's as it is.
        let spoken =
            request.version == 3 || request.version == 2 && self.server.config().global.allow.bind_v2;
        self.session.reset(spoken.then_some(request.version));
        let continued = self.sasl.take();
        self.transaction = None;
        self.record.set_identity("");
        self.record.protocol.store(request.version, std::sync::atomic::Ordering::Relaxed);
        let step = self.try_bind(begun, request, message, continued);
        self.answer_step(&begun, step, out)
    }

    /// The password was compared elsewhere.
    pub(crate) fn bind_verified(&mut self, begun: &Begun, outcome: BindOutcome, out: &mut Vec<u8>) {
        let BindOutcome { verdict, login } = outcome;
        let BindConclusion { result, controls, must_change_password, .. } = verdict;
        let step = match result.code {
            ResultCode::SUCCESS => self.conclude_login(begun, login, true),
            ResultCode::INVALID_CREDENTIALS => self.conclude_login(begun, login, false),
            _ => Err(result),
        };
        self.session.must_change_password = must_change_password && step.is_ok();
        self.answer_step_with(begun, step, &controls, out);
    }

    /// Answers what can be answered.
    pub(crate) fn answer_step(
        &self,
        begun: &Begun,
        step: Result<BindStep, LdapResult>,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        self.answer_step_with(begun, step, &[], out)
    }

    fn answer_step_with(
        &self,
        begun: &Begun,
        step: Result<BindStep, LdapResult>,
        controls: &[ControlBuf],
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        let (result, credentials) = match step {
            Ok(BindStep::Waiting) => return Started::WaitingAlone,
            Ok(BindStep::Disconnect(result)) => return Started::Disconnect(result),
            Ok(BindStep::Bound(credentials)) => (LdapResult::success(), credentials),
            Ok(BindStep::Challenge(challenge)) => {
                (LdapResult::new(ResultCode::SASL_BIND_IN_PROGRESS), Some(challenge))
            }
            Err(result) => (result, None),
        };
        encode::bind_result(out, begun.operation.id, &result, credentials.as_deref(), controls);
        self.finish(begun, &result, None);
        Started::Answered
    }

    fn try_bind(
        &mut self,
        begun: Begun,
        request: &BindRequest<'_>,
        message: &Message<'_>,
        continued: Option<Box<Exchange>>,
    ) -> Result<BindStep, LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        let controls = RequestControls::parse(message.controls, controls::OperationKind::Bind)?;
        self.session.asks_password_policy = controls.password_policy;
        let invalid = |_| LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN");
        let parsed = Dn::parse(request.name).map_err(|_| invalid(()))?;
        let databases = self.server.databases();
        let schema = databases.schema();
        let dn = schema.parse_dn(request.name).map_err(|_| invalid(()))?;
        let shown = schema.pretty_dn(&parsed).map_err(|_| invalid(()))?;
        let method = match request.authentication {
            Authentication::Simple(_) => 128,
            Authentication::Sasl { .. } => 163,
            Authentication::Other(number) => 128 + u32::from(number),
        };
        self.log_operation(&begun, format_args!("BIND dn=\"{shown}\" method={method}"));
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
        match request.authentication {
            Authentication::Simple(password) => {
                self.simple_bind(begun, dn, shown, password, message.controls)
            }
            Authentication::Sasl { .. } if request.version < 3 => {
                let text = "SASL bind requires LDAPv3";
                Ok(BindStep::Disconnect(LdapResult::with(ResultCode::PROTOCOL_ERROR, text)))
            }
            Authentication::Sasl { mechanism, credentials } => {
                self.sasl_bind(begun, mechanism, credentials, continued, message.controls)
            }
            Authentication::Other(_) => {
                refuse(ResultCode::AUTH_METHOD_NOT_SUPPORTED, "unknown authentication method")
            }
        }
    }

    fn simple_bind(
        &mut self,
        begun: Begun,
        dn: NormalDn,
        shown: String,
        password: &[u8],
        sent: Controls<'_>,
    ) -> Result<BindStep, LdapResult> {
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
            self.may_bind("", Restricted::AnonymousBind, sent)?;
            return Ok(BindStep::Bound(None));
        }
        if disallow.bind_simple {
            let text = "unwilling to perform simple authentication";
            return refuse(ResultCode::UNWILLING_TO_PERFORM, text);
        }
        self.may_bind(dn.as_str(), Restricted::SimpleBind, sent)?;
        self.verify_password(begun, Login { dn, shown, way: Way::Simple }, password)
    }

    /// Whether the configuration lets this session bind there.
    pub(crate) fn may_bind(
        &mut self,
        dn: &str,
        operation: Restricted<'_>,
        sent: Controls<'_>,
    ) -> Result<(), LdapResult> {
        let dropped = self.permitted(dn, operation, sent)?;
        if dropped.iter().any(|control| control == oid::PASSWORD_POLICY) {
            self.session.asks_password_policy = false;
        }
        Ok(())
    }

    /// Looks the stored passwords of a login up and compares: at once, or on the pool when one of them takes long.
    pub(crate) fn verify_password(
        &mut self,
        begun: Begun,
        mut login: Login,
        password: &[u8],
    ) -> Result<BindStep, LdapResult> {
        let anonymous = Arc::clone(self.session.anonymous());
        let databases = self.server.databases();
        let subject = self.in_request(&databases, anonymous, || Operation::Bind, Controls::default());
        let mut stored = match databases.credentials(&subject, &login.dn) {
            Ok(Credentials::Stored { passwords, shown }) => {
                login.shown = shown.unwrap_or(login.shown);
                passwords
            }
            Ok(Credentials::Granted) => return self.conclude_login(&begun, login, true),
            Err(result) if matches!(login.way, Way::Simple) => return Err(result),
            // A name that leads to no database is nobody's, like any other.
            Err(_) => Vec::new(),
        };
        self.drop_costly(&mut stored, &login.dn);
        match stored.first() {
            Some(first) => self.server.decoy.learn(first),
            // Nobody learns from the time it takes that there is no such account, or that it has no password.
            None => stored.push(self.server.decoy.get()),
        }
        let judged = databases.directory().judges_binds(&login.dn);
        let heavy = stored.iter().any(|value| password::cost(value) == Cost::Heavy);
        let source = self.job_source(&login.dn);
        let rehasher = {
            let config = self.server.config();
            config.frontend.password_costs.rehash.then(|| config.hasher())
        };
        let elsewhere = Elsewhere::of(&self.server);
        // Who only waits for another program's word takes no thread from those who compute.
        let asks = elsewhere.is_some() && stored.iter().any(|value| password::pass_through(value).is_some());
        let check =
            PasswordCheck { stored, password: Zeroizing::new(password.to_vec()), elsewhere, rehasher };
        if !heavy && !judged {
            let (verdict, rehash) = (check.outright(), check.rehash(None));
            if let Some(rehash) = rehash {
                rehash.submit(&self.server, login.dn.clone(), source);
            }
            return self.conclude_login(&begun, login, verdict.result.is_success());
        }
        let completer = self.completer(&begun);
        let server = self.server.clone();
        let policy_control = self.session.asks_password_policy;
        let job = move || {
            check.conclude(server, source, (login.dn.clone(), judged, policy_control), |verdict| {
                completer.complete(Completion::Bind(Box::new(BindOutcome { verdict, login })));
            });
        };
        if heavy {
            let pool = if asks { &self.server.askers } else { &self.server.passwords };
            pool.submit(source, job).map_err(|_| {
                LdapResult::with(ResultCode::BUSY, "too many binds wait for their password check")
            })?;
        } else {
            job();
        }
        self.wait_for(begun);
        Ok(BindStep::Waiting)
    }

    /// Leaves the stored passwords, in their order, that may all be computed together (`request-limits hash.cost`). The
    /// others match nothing: an account must not cost the others theirs.
    pub(crate) fn drop_costly(&self, stored: &mut Vec<Zeroizing<Vec<u8>>>, dn: &NormalDn) {
        let most = self.server.config().global.request_limits.most(RequestLimit::HashCost);
        let (mut sum, before) = (0_u64, stored.len());
        stored.retain(|value| {
            let with = sum.saturating_add(password::rounds(value));
            let fits = with <= most;
            sum = if fits { with } else { sum };
            fits
        });
        let dropped = before - stored.len();
        if dropped > 0 {
            let dn = printable(dn.as_str());
            self.server.log.notice(format_args!(
                "{dropped} of {before} passwords of \"{dn}\" are not compared: they take more than {most} rounds together \
                 (request-limits hash.cost=)"
            ));
        }
    }

    /// Lets whoever has a say in binds judge one whose proof is no password to compare.
    pub(crate) fn judge_login(
        &mut self,
        begun: &Begun,
        login: Login,
        matched: bool,
    ) -> Result<BindStep, LdapResult> {
        let databases = self.server.databases();
        let directory = databases.directory();
        if !directory.judges_binds(&login.dn) {
            return self.conclude_login(begun, login, matched);
        }
        let policy_control = self.session.asks_password_policy;
        let attempt = BindAttempt { dn: login.dn.clone(), matched, policy_control };
        let completer = self.completer(begun);
        let done = move |verdict| {
            completer.complete(Completion::Bind(Box::new(BindOutcome { verdict, login })));
        };
        directory.conclude_bind(attempt, Box::new(done));
        self.wait_for(*begun);
        Ok(BindStep::Waiting)
    }

    /// A compare of a password that asks for the policy's word is judged as a bind is: what is wrong counts (slapo-ppolicy).
    /// Whether it is, and the answer follows.
    pub(crate) fn judge_compare(
        &mut self,
        begun: &Begun,
        databases: &Databases,
        request: &CompareRequest<'_>,
        code: ResultCode,
    ) -> bool {
        let matched = match code {
            ResultCode::COMPARE_TRUE => true,
            ResultCode::COMPARE_FALSE => false,
            _ => return false,
        };
        let is_password = PASSWORD_NAMES.iter().any(|name| request.attribute.eq_ignore_ascii_case(name));
        let Ok(dn) = databases.schema().parse_dn(request.entry) else { return false };
        let directory = databases.directory();
        if !is_password || !directory.judges_binds(&dn) {
            return false;
        }
        let completer = self.completer(begun);
        let done = move |verdict: BindConclusion| {
            let BindConclusion { result, controls, .. } = verdict;
            let result = match result.code {
                ResultCode::SUCCESS => LdapResult::new(ResultCode::COMPARE_TRUE),
                ResultCode::INVALID_CREDENTIALS => LdapResult::new(ResultCode::COMPARE_FALSE),
                _ => result,
            };
            completer.complete(Completion::Write(WriteOutcome { controls, ..WriteOutcome::from(result) }));
        };
        directory.conclude_bind(BindAttempt { dn, matched, policy_control: true }, Box::new(done));
        self.wait_for(*begun);
        true
    }

    /// Whom the work on a password is done for.
    pub(crate) fn job_source(&self, account: &NormalDn) -> JobSource {
        self.server.passwords.source(&self.session.anonymous().peer.peer_name, account.as_str())
    }

    /// A password, or whatever the mechanism asks for, was judged.
    pub(crate) fn conclude_login(
        &mut self,
        begun: &Begun,
        login: Login,
        matched: bool,
    ) -> Result<BindStep, LdapResult> {
        let Login { dn, shown, way } = login;
        match way {
            _ if !matched => Err(way.wrong_password()),
            Way::Simple => {
                self.bound(begun, dn, &shown, Method::Simple, "SIMPLE");
                Ok(BindStep::Bound(None))
            }
            Way::Sasl(login) => self.sasl_bound(begun, dn, &shown, *login),
        }
    }

    /// The session is this identity's from here on.
    pub(crate) fn bound(
        &mut self,
        begun: &Begun,
        dn: NormalDn,
        shown: &str,
        method: Method,
        mechanism: &'static str,
    ) {
        self.session.bind(dn, shown, method, mechanism);
        self.record.set_identity(shown);
        if self.logs_stats() {
            let ssf = self.session.standing().ssf;
            let bind_ssf = if method == Method::Sasl { self.session.standing().sasl_ssf } else { 0 };
            let shown = printable(shown);
            self.log_operation(
                begun,
                format_args!("BIND dn=\"{shown}\" mech={mechanism} bind_ssf={bind_ssf} ssf={ssf}"),
            );
        }
    }
}

impl Way {
    /// The answer to a wrong password, and to one of nobody.
    fn wrong_password(&self) -> LdapResult {
        match self {
            Self::Simple => LdapResult::new(ResultCode::INVALID_CREDENTIALS),
            Self::Sasl(login) => login.wrong_password(),
        }
    }
}
