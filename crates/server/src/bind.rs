//! Bind requests (RFC 4511 section 4.2, RFC 4513), with OpenLDAP's codes and texts.

use larix_engine::controls::{self, RequestControls};
use larix_engine::password::{self, Cost};
use larix_proto::{Authentication, BindRequest, Dn, LdapResult, Message, ResultCode, encode};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use crate::connection::Started;
use crate::databases::Credentials;
use crate::dispatch::{Begun, Completion, Dispatcher, Running};
use crate::restrictions::Restricted;
use crate::session::Method;
use crate::stats_log::printable;

/// A password that was compared off the loop.
#[derive(Debug)]
pub struct BindOutcome {
    matched: bool,
    dn: NormalDn,
    shown: String,
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
        self.session.reset(request.version);
        self.transaction = None;
        self.record.set_identity("");
        self.record.protocol.store(request.version, std::sync::atomic::Ordering::Relaxed);
        match self.try_bind(begun, request, message) {
            Ok(started) => {
                if matches!(started, Started::Answered) {
                    self.answer_bind(&begun, &LdapResult::success(), out);
                }
                started
            }
            Err(result) => {
                self.answer_bind(&begun, &result, out);
                Started::Answered
            }
        }
    }

    /// The password was compared elsewhere.
    pub(crate) fn bind_verified(&mut self, begun: &Begun, outcome: BindOutcome, out: &mut Vec<u8>) {
        let result = if outcome.matched {
            self.bound(begun, outcome.dn, &outcome.shown, Method::Simple, "SIMPLE");
            LdapResult::success()
        } else {
            LdapResult::new(ResultCode::INVALID_CREDENTIALS)
        };
        self.answer_bind(begun, &result, out);
    }

    fn answer_bind(&self, begun: &Begun, result: &LdapResult, out: &mut Vec<u8>) {
        encode::bind_result(out, begun.operation.id, result, None, &[]);
        self.finish(begun, result, None);
    }

    fn try_bind(
        &mut self,
        begun: Begun,
        request: &BindRequest<'_>,
        message: &Message<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        let refuse = |code, text: &str| Err(LdapResult::with(code, text));
        let controls = RequestControls::parse(message.controls, controls::OperationKind::Bind)?;
        let invalid = |_| LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN");
        let parsed = Dn::parse(request.name).map_err(|_| invalid(()))?;
        let schema = self.server.databases.schema();
        let dn = schema.normalize_dn(&parsed).map_err(|_| invalid(()))?;
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
            Authentication::Simple(password) => self.simple_bind(begun, dn, shown, password),
            Authentication::Sasl { .. } if request.version < 3 => {
                let text = "SASL bind requires LDAPv3";
                Ok(Started::Disconnect(LdapResult::with(ResultCode::PROTOCOL_ERROR, text)))
            }
            Authentication::Sasl { mechanism, credentials } => {
                self.sasl_bind(&begun, mechanism, credentials).map(|()| Started::Answered)
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
    ) -> Result<Started<Running>, LdapResult> {
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
            self.permitted("", Restricted::SimpleBind)?;
            return Ok(Started::Answered);
        }
        if disallow.bind_simple {
            let text = "unwilling to perform simple authentication";
            return refuse(ResultCode::UNWILLING_TO_PERFORM, text);
        }
        self.permitted(dn.as_str(), Restricted::SimpleBind)?;
        let databases = &self.server.databases;
        match databases.credentials(self.session.anonymous(), &dn)? {
            Credentials::Stored { passwords, shown: stored } => {
                let shown = stored.unwrap_or(shown);
                self.compare_password(begun, dn, shown, passwords, password)
            }
            Credentials::Granted => {
                self.bound(&begun, dn, &shown, Method::Simple, "SIMPLE");
                Ok(Started::Answered)
            }
        }
    }

    /// Compares with each stored password: at once, or on the pool when one of them takes long.
    fn compare_password(
        &mut self,
        begun: Begun,
        dn: NormalDn,
        shown: String,
        stored: Vec<Zeroizing<Vec<u8>>>,
        password: &[u8],
    ) -> Result<Started<Running>, LdapResult> {
        let wrong = || LdapResult::new(ResultCode::INVALID_CREDENTIALS);
        let (light, heavy): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|value| password::cost(value) == Cost::Light);
        if light.iter().any(|value| password::verify(value, password).is_match()) {
            self.bound(&begun, dn, &shown, Method::Simple, "SIMPLE");
            return Ok(Started::Answered);
        }
        if heavy.is_empty() {
            return Err(wrong());
        }
        let completer = self.completer(&begun);
        let password = Zeroizing::new(password.to_vec());
        let job = move || {
            let matched = heavy.iter().any(|value| password::verify(value, &password).is_match());
            completer.complete(Completion::Bind(Box::new(BindOutcome { matched, dn, shown })));
        };
        self.server.passwords.submit(job).map_err(|_| {
            LdapResult::with(ResultCode::BUSY, "too many binds wait for their password check")
        })?;
        self.wait_for(begun);
        Ok(Started::WaitingAlone)
    }

    /// The session is this identity's from here on.
    pub(crate) fn bound(
        &mut self,
        begun: &Begun,
        dn: NormalDn,
        shown: &str,
        method: Method,
        mechanism: &str,
    ) {
        self.session.bind(dn, shown, method);
        self.record.set_identity(shown);
        if self.logs_stats() {
            let ssf = self.session.standing().ssf;
            let shown = printable(shown);
            self.log_operation(
                begun,
                format_args!("BIND dn=\"{shown}\" mech={mechanism} bind_ssf=0 ssf={ssf}"),
            );
        }
    }
}
