//! SASL binds (RFC 4422, RFC 4513 section 5.2).
//!
//! The mechanisms' messages are `larix-sasl`'s. Here is what they need of a directory: secrets, names, layers. Nothing that
//! is answered, and no work that is done, tells whether a user exists.

pub(super) mod exchange;
#[cfg(feature = "gssapi")]
mod gssapi;

use std::sync::Arc;

use larix_backend::Routing;
use larix_configuration::values::Mechanism;
use larix_engine::access::Subject;
use larix_engine::password::{ScramSecret, scram_secret};
use larix_engine::time::{Clock, RandomSource};
use larix_proto::{Controls, LdapResult, ResultCode};
use larix_sasl::digest_md5::{self, Quality};
use larix_sasl::plain::Plain;
use larix_sasl::scram::{self, ClientFirst, ServerBinding};
use larix_sasl::{Fault, cram_md5};
use larix_schema::NormalDn;

use super::bind::{BindStep, Login, LoginKind};
use super::identities::{IdentityResolver, none_missed};
use super::{Completion, Dispatcher, RequestInFlight};
use crate::background_pool::Turns;
use crate::clock::SystemRandom;
use crate::connection::RemoteLookups;
use crate::log::printable;
use crate::operation_rules::RestrictedOperation;
use crate::sasl::external;
use crate::sasl::identity::{normal_text, user_name};
use crate::sasl_mechanisms::{self, MechanismContext};
use crate::security_layer::SecurityLayer;
use crate::server::Server;
use crate::session::Method;
use crate::waiting_thread::{take_missed_lookup, while_waiting};
use exchange::{Claim, DigestLayer, Exchange, ScramStart, State, TOKEN_MAX};

/// Random bytes in a nonce.
const NONCE_BYTES: usize = 18;

/// A SASL bind whose mechanism has done its part.
#[derive(Debug)]
pub(crate) struct SaslLogin {
    mechanism: Mechanism,
    authcid: String,
    authzid: String,
    /// Server credentials of a success.
    answer: Option<Vec<u8>>,
    layer: Option<Box<dyn SecurityLayer>>,
    /// As whom the user is to act, where that was looked up before.
    acting: Option<Acting>,
}

/// As whom a user acts: another identity, or none; else the refusal.
type Acting = Result<Option<NormalDn>, LdapResult>;

impl SaslLogin {
    fn new(mechanism: Mechanism, authcid: impl Into<String>, authzid: impl Into<String>) -> Self {
        Self {
            mechanism,
            authcid: authcid.into(),
            authzid: authzid.into(),
            answer: None,
            layer: None,
            acting: None,
        }
    }

    fn asks_for_another(&self) -> bool {
        !self.authzid.is_empty() && self.authzid != self.authcid
    }

    /// Looks up as whom the user with this name acts.
    fn look_up(&self, server: &Server, anonymous: &Arc<Subject>, dn: &NormalDn) -> Acting {
        if !self.asks_for_another() {
            return Ok(None);
        }
        let resolver = IdentityResolver { server, anonymous, subject: anonymous, who: None };
        let refuse = |text: &str| {
            let text = format!("SASL(-14): authorization failure: {text}");
            LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text)
        };
        let realm = server.config().global.sasl.realm.clone().unwrap_or_default();
        take_missed_lookup();
        let whom = resolver.authorization(&self.authzid, &realm, base_name(self.mechanism));
        let is_allowed = whom.as_ref().is_ok_and(|whom| resolver.allows(Some(dn), whom));
        none_missed()?;
        let whom = whom.map_err(|fault| refuse(fault.text()))?;
        if is_allowed { Ok(Some(whom)) } else { Err(refuse("not authorized")) }
    }

    /// What is answered when the proof is wrong, and when there is no such user.
    pub(crate) fn wrong_password(&self) -> LdapResult {
        failure(match self.mechanism {
            Mechanism::Plain => "Password verification failed",
            Mechanism::Scram { .. } => "StoredKey mismatch",
            Mechanism::DigestMd5 => "client response doesn't match what we generated (tried bogus)",
            Mechanism::CramMd5 => "incorrect digest response",
            _ => "not recognized",
        })
    }
}

/// What of a SASL bind was done off the loop.
#[derive(Debug)]
pub(crate) struct SaslOutcome(Prepared);

#[derive(Debug)]
enum Prepared {
    /// The verifier of a SCRAM exchange is made.
    Scram(Box<ScramStart>, scram::Verifier),
    #[cfg(feature = "gssapi")]
    Gssapi(Box<gssapi::Acceptor>, gssapi::Step),
}

impl Dispatcher {
    /// One step of a SASL bind.
    pub(crate) fn sasl_bind(
        &mut self,
        in_flight: RequestInFlight,
        mechanism: &str,
        credentials: Option<&[u8]>,
        continued: Option<Box<Exchange>>,
        sent: Controls<'_>,
    ) -> Result<BindStep, LdapResult> {
        let unsupported = |text: &str| Err(LdapResult::with(ResultCode::AUTH_METHOD_NOT_SUPPORTED, text));
        if mechanism.is_empty() {
            return unsupported("no SASL mechanism provided");
        }
        self.may_bind("", RestrictedOperation::SaslBind, sent)?;
        let Some(known) = Mechanism::from_name(mechanism) else {
            return unsupported(&sasl_mechanisms::not_found(&printable(mechanism)));
        };
        if credentials.is_some_and(|token| token.len() > TOKEN_MAX) {
            return Err(malformed(&format!("token longer than {TOKEN_MAX} bytes")));
        }
        {
            let config = self.server.config();
            let context = MechanismContext::of_subject(self.session.subject(), &config.global.sasl);
            sasl_mechanisms::check(known, &config.global.sasl, context)?;
        }
        // Another mechanism begins anew (RFC 4513 section 5.2.1.4).
        let state = continued.filter(|exchange| exchange.mechanism == known).map(|exchange| exchange.state);
        match state {
            None => self.sasl_begin(in_flight, known, credentials),
            Some(state) => self.sasl_continue(in_flight, known, state, credentials.unwrap_or_default()),
        }
    }

    fn sasl_begin(
        &mut self,
        in_flight: RequestInFlight,
        mechanism: Mechanism,
        credentials: Option<&[u8]>,
    ) -> Result<BindStep, LdapResult> {
        match (mechanism, credentials) {
            (Mechanism::External, credentials) => self.external(&in_flight, credentials.unwrap_or_default()),
            (Mechanism::DigestMd5, _) => self.digest_challenge(),
            (Mechanism::CramMd5, _) => {
                let host = self.server.config().global.sasl.host.clone();
                let challenge = cram_md5::challenge(&nonce(), host.as_deref().unwrap_or("localhost"));
                let sent = challenge.clone().into_bytes();
                Ok(self.challenge(mechanism, State::CramMd5 { challenge }, sent))
            }
            #[cfg(feature = "gssapi")]
            (Mechanism::Gssapi, credentials) => self.gssapi_begin(in_flight, credentials.unwrap_or_default()),
            // The client's to begin: it is asked to.
            (_, None | Some([])) => Ok(self.challenge(mechanism, State::Begin, Vec::new())),
            (Mechanism::Plain, Some(message)) => self.plain(in_flight, message),
            (Mechanism::Scram { hash, plus }, Some(message)) => {
                self.scram_first(in_flight, hash, plus, message)
            }
        }
    }

    fn sasl_continue(
        &mut self,
        in_flight: RequestInFlight,
        mechanism: Mechanism,
        state: State,
        message: &[u8],
    ) -> Result<BindStep, LdapResult> {
        match state {
            State::Begin if message.is_empty() => Err(malformed("an empty message")),
            State::Begin => self.sasl_begin(in_flight, mechanism, Some(message)),
            State::Scram { server, claim, secret } => {
                self.scram_final(&in_flight, mechanism, (server.as_ref(), secret.as_ref()), *claim, message)
            }
            State::DigestMd5(server) => self.digest_response(&in_flight, &server, message),
            State::CramMd5 { challenge } => self.cram_response(&in_flight, &challenge, message),
            #[cfg(feature = "gssapi")]
            State::Gssapi(acceptor) => self.gssapi_continue(in_flight, acceptor, message),
        }
    }

    fn challenge(&mut self, mechanism: Mechanism, state: State, challenge: Vec<u8>) -> BindStep {
        self.sasl = Some(Box::new(Exchange { mechanism, state }));
        BindStep::Challenge(challenge)
    }

    fn external(&mut self, in_flight: &RequestInFlight, authzid: &[u8]) -> Result<BindStep, LdapResult> {
        let databases = self.server.databases();
        let schema = databases.schema();
        let not_there = || sasl_mechanisms::not_found(Mechanism::External.name());
        let identity = external::identity(&self.session, schema)
            .ok_or_else(|| LdapResult::with(ResultCode::AUTH_METHOD_NOT_SUPPORTED, not_there()))?;
        let authzid = std::str::from_utf8(authzid).map_err(|_| malformed("UTF-8"))?;
        let (dn, shown_dn) = self.map_identity(&identity)?;
        let login = SaslLogin::new(Mechanism::External, identity, authzid);
        self.sasl_bound(in_flight, dn, &shown_dn, login)
    }

    fn plain(&mut self, in_flight: RequestInFlight, message: &[u8]) -> Result<BindStep, LdapResult> {
        let plain = Plain::parse(message).map_err(|fault| faulty(&fault))?;
        let claim = self.claim(Mechanism::Plain, plain.authcid, plain.authzid)?;
        let shown_dn = claim.dn.as_str().to_owned();
        let kind = LoginKind::Sasl(Box::new(SaslLogin::new(Mechanism::Plain, claim.authcid, claim.authzid)));
        let login = Login { dn: claim.dn, shown_dn, kind };
        self.verify_password(in_flight, login, plain.password.as_bytes())
    }

    /// Finds the user and has the verifier made, which takes long.
    fn scram_first(
        &mut self,
        in_flight: RequestInFlight,
        hash: scram::Hash,
        plus: bool,
        message: &[u8],
    ) -> Result<BindStep, LdapResult> {
        let first = ClientFirst::parse(message).map_err(|fault| faulty(&fault))?;
        let claim = self.claim(Mechanism::Scram { hash, plus }, &first.authcid, &first.authzid)?;
        let secret = self.secret_of(&claim.dn, Some(hash))?;
        let source = self.job_source(&claim.dn);
        let server_secret = self.server.sasl_secret;
        let start = ScramStart { first, hash, plus, claim, secret, server_secret };
        let completer = self.completer(&in_flight);
        let job = move || {
            let verifier = start.verifier();
            completer.complete(Completion::Sasl(Box::new(SaslOutcome(Prepared::Scram(
                Box::new(start),
                verifier,
            )))));
        };
        self.server.passwords.submit(source, job).map_err(|_| {
            LdapResult::with(ResultCode::BUSY, "too many binds wait for their password check")
        })?;
        self.wait_for(in_flight);
        Ok(BindStep::Waiting)
    }

    /// What takes long is done.
    pub(crate) fn sasl_prepared(
        &mut self,
        in_flight: &RequestInFlight,
        outcome: SaslOutcome,
    ) -> Result<BindStep, LdapResult> {
        // Only Kerberos may end here.
        let _ = in_flight;
        match outcome.0 {
            Prepared::Scram(start, verifier) => self.scram_challenge(*start, verifier),
            #[cfg(feature = "gssapi")]
            Prepared::Gssapi(acceptor, step) => self.gssapi_stepped(in_flight, acceptor, step),
        }
    }

    /// The verifier is there: the client is challenged.
    fn scram_challenge(
        &mut self,
        start: ScramStart,
        verifier: scram::Verifier,
    ) -> Result<BindStep, LdapResult> {
        let ScramStart { first, hash, plus, claim, secret, .. } = start;
        let (configured, offers) = {
            let config = self.server.config();
            let settings = &config.global.sasl;
            let context = MechanismContext::of_subject(self.session.subject(), settings);
            (settings.channel_binding, sasl_mechanisms::offers_channel_binding(settings, context))
        };
        let channels = self.session.tls.as_deref().map(|tls| sasl_mechanisms::channels(tls, configured));
        let channels = channels.unwrap_or_default();
        let channels: Vec<(&str, &[u8])> = channels.iter().map(|(name, data)| (*name, &data[..])).collect();
        let binding = ServerBinding { plus, offered: offers && !channels.is_empty(), channels: &channels };
        let started = scram::Server::start(&first, verifier, &nonce(), &binding);
        let (server, challenge) = started.map_err(|fault| faulty(&fault))?;
        let state = State::Scram { server: Box::new(server), claim: Box::new(claim), secret };
        Ok(self.challenge(Mechanism::Scram { hash, plus }, state, challenge.into_bytes()))
    }

    fn scram_final(
        &mut self,
        in_flight: &RequestInFlight,
        mechanism: Mechanism,
        (server, begun_with): (&scram::Server, Option<&ScramSecret>),
        claim: Claim,
        message: &[u8],
    ) -> Result<BindStep, LdapResult> {
        let answer = match server.finish(message) {
            Ok(answer) => Some(answer.into_bytes()),
            Err(Fault::Proof) => None,
            Err(fault) => return Err(faulty(&fault)),
        };
        let hash = match mechanism {
            Mechanism::Scram { hash, .. } => Some(hash),
            _ => None,
        };
        // A client may take its time to answer: what counts is the password that the user has now.
        let is_current = self.secret_of(&claim.dn, hash)?.as_ref() == begun_with;
        let matched = answer.is_some() && is_current;
        self.conclude_claim(in_flight, mechanism, claim, matched, answer, None)
    }

    fn digest_challenge(&mut self) -> Result<BindStep, LdapResult> {
        let server = {
            let config = self.server.config();
            let settings = &config.global.sasl;
            let realm = settings.realm.clone().or_else(|| settings.host.clone());
            let external = MechanismContext::of_subject(self.session.subject(), settings).external_ssf;
            let properties = &settings.properties;
            let least = properties.min_ssf.saturating_sub(external);
            let most = properties.max_ssf.saturating_sub(external);
            let buffer = usize::try_from(properties.max_buffer).unwrap_or(0);
            let qualities = [Quality::Auth, Quality::Integrity, Quality::Confidentiality];
            let fits = |quality: &Quality| {
                let strength = quality.strength();
                (least..=most).contains(&strength) && (strength == 0 || buffer > 0)
            };
            let qualities: Vec<Quality> = qualities.into_iter().filter(fits).collect();
            let realm = realm.unwrap_or_else(host_name);
            digest_md5::Server::new(nonce(), realm, qualities, buffer.max(1024))
        };
        let challenge = server.challenge().into_bytes();
        Ok(self.challenge(Mechanism::DigestMd5, State::DigestMd5(Box::new(server)), challenge))
    }

    fn digest_response(
        &mut self,
        in_flight: &RequestInFlight,
        server: &digest_md5::Server,
        message: &[u8],
    ) -> Result<BindStep, LdapResult> {
        let mechanism = Mechanism::DigestMd5;
        let response = digest_md5::Response::parse(message).map_err(|fault| faulty(&fault))?;
        let authzid = response.authzid.as_deref().unwrap_or_default();
        let claim = self.claim(mechanism, &response.username, authzid)?;
        let secret = match self.secret_of(&claim.dn, None)? {
            Some(ScramSecret::Password(password)) => Some(password),
            _ => None,
        };
        let accepted = match server.finish(&response, secret.as_deref().map(Vec::as_slice)) {
            Ok(accepted) => accepted,
            Err(Fault::Proof) => return self.conclude_claim(in_flight, mechanism, claim, false, None, None),
            Err(fault) => return Err(faulty(&fault)),
        };
        let ssf = accepted.quality.strength();
        let layer =
            accepted.layer.map(|layer| -> Box<dyn SecurityLayer> { Box::new(DigestLayer { layer, ssf }) });
        self.conclude_claim(in_flight, mechanism, claim, true, Some(accepted.answer.into_bytes()), layer)
    }

    fn cram_response(
        &mut self,
        in_flight: &RequestInFlight,
        challenge: &str,
        message: &[u8],
    ) -> Result<BindStep, LdapResult> {
        let answer = cram_md5::Answer::parse(message).map_err(|fault| faulty(&fault))?;
        let claim = self.claim(Mechanism::CramMd5, answer.authcid, "")?;
        let secret = self.secret_of(&claim.dn, None)?;
        let password: &[u8] = match &secret {
            Some(ScramSecret::Password(password)) => password,
            _ => &[],
        };
        let matched = answer.is_of(password, challenge) && !password.is_empty();
        self.conclude_claim(in_flight, Mechanism::CramMd5, claim, matched, None, None)
    }

    fn conclude_claim(
        &mut self,
        in_flight: &RequestInFlight,
        mechanism: Mechanism,
        claim: Claim,
        matched: bool,
        answer: Option<Vec<u8>>,
        layer: Option<Box<dyn SecurityLayer>>,
    ) -> Result<BindStep, LdapResult> {
        let Claim { authcid, authzid, dn, .. } = claim;
        let login = SaslLogin { mechanism, authcid, authzid, answer, layer, acting: None };
        let shown_dn = dn.as_str().to_owned();
        self.judge_login(in_flight, Login { dn, shown_dn, kind: LoginKind::Sasl(Box::new(login)) }, matched)
    }

    /// The mechanism has said who is there, and nothing speaks against him: he becomes who he wants to be, if he may.
    pub(crate) fn sasl_bound(
        &mut self,
        in_flight: &RequestInFlight,
        dn: NormalDn,
        shown_dn: &str,
        login: SaslLogin,
    ) -> Result<BindStep, LdapResult> {
        let acting = match &login.acting {
            Some(known) => known.clone()?,
            None => login.look_up(&self.server, self.session.anonymous(), &dn)?,
        };
        let SaslLogin { mechanism, authcid, authzid, answer, layer, .. } = login;
        if self.logs_stats() {
            let effective = if authzid.is_empty() { &authcid } else { &authzid };
            let (authcid, authzid) = (printable(&authcid), printable(effective));
            self.log_operation(in_flight, format_args!("BIND authcid=\"{authcid}\" authzid=\"{authzid}\""));
        }
        if let Some(layer) = layer {
            self.install_layer(layer);
        }
        self.bound(in_flight, dn, shown_dn, Method::Sasl, mechanism.name());
        if let Some(whom) = acting {
            let shown_dn = whom.as_str().to_owned();
            self.session.act_as(whom, &shown_dn);
        }
        Ok(BindStep::Bound(answer))
    }

    /// The directory's name for a user of a mechanism. A realm that is configured is a part of it, as with Cyrus SASL.
    fn claim(&self, mechanism: Mechanism, authcid: &str, authzid: &str) -> Result<Claim, LdapResult> {
        let authcid = Claim::prepared(authcid);
        let realm = self.server.config().global.sasl.realm.clone().unwrap_or_default();
        let name = user_name(&authcid, &realm, base_name(mechanism));
        let identity = normal_text(self.server.databases().schema(), &name);
        let (dn, _) = self.map_identity(&name)?;
        Ok(Claim { authcid, authzid: authzid.to_owned(), identity, dn })
    }

    /// The secret that a challenge can be made of.
    ///
    /// # Errors
    /// The engine of a database that may have the entry does not answer.
    fn secret_of(&self, dn: &NormalDn, hash: Option<scram::Hash>) -> Result<Option<ScramSecret>, LdapResult> {
        let databases = self.server.databases();
        let clock = &*self.server.clock;
        let context = databases.context(self.session.anonymous(), (self, clock), clock.monotonic());
        take_missed_lookup();
        let backend = databases.router().backend(dn);
        let passwords = backend.map(|backend| backend.secrets(&context, dn)).unwrap_or_default();
        none_missed()?;
        Ok(scram_secret(passwords.iter().map(|value| value.as_slice()), hash))
    }
}

/// A login that has been judged and acts for another identity, which is looked up before the connection goes on.
struct ActingLookup {
    server: Arc<Server>,
    anonymous: Arc<Subject>,
    dn: NormalDn,
    login: Box<SaslLogin>,
    then: Box<dyn FnOnce(Box<SaslLogin>) + Send>,
}

impl Turns for ActingLookup {
    fn turn(self: Box<Self>, _: usize) -> Option<Box<dyn Turns>> {
        let Self { server, anonymous, dn, mut login, then } = *self;
        login.acting = Some(while_waiting(|| login.look_up(&server, &anonymous, &dn)));
        then(login);
        None
    }
}

/// Looks up as whom a login acts. If other machines may have to be asked, a thread that may wait for them does it. `then` is called once.
pub(super) fn look_up_acting(
    (server, anonymous): (Arc<Server>, Arc<Subject>),
    dn: NormalDn,
    login: Box<SaslLogin>,
    then: impl FnOnce(Box<SaslLogin>) + Send + 'static,
) {
    let waits = login.asks_for_another() && server.databases().looks_up() != RemoteLookups::None;
    if !waits || !server.lookups.has_thread() {
        return then(login);
    }
    let lookups = Arc::clone(&server);
    lookups.lookups.push(Box::new(ActingLookup { server, anonymous, dn, login, then: Box::new(then) }));
}

/// The mechanism's name in identities: a channel binding does not change the identity.
const fn base_name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Scram { hash, .. } => hash.mechanism(),
        other => other.name(),
    }
}

/// A nonce: random, in characters that need no quoting.
fn nonce() -> String {
    use base64::Engine;
    let mut bytes = [0; NONCE_BYTES];
    SystemRandom.fill(&mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A message that is not of the mechanism, or a proof that is wrong.
fn faulty(fault: &Fault) -> LdapResult {
    match fault {
        Fault::Proof | Fault::ChannelBinding(_) | Fault::Peer => failure(&fault.to_string()),
        Fault::TooLong { .. } | Fault::Malformed(_) | Fault::Unsupported(_) | Fault::Mismatch(_) => {
            malformed(&fault.to_string())
        }
    }
}

fn failure(text: &str) -> LdapResult {
    let text = format!("SASL(-13): authentication failure: {text}");
    LdapResult::with(ResultCode::INVALID_CREDENTIALS, text)
}

fn malformed(text: &str) -> LdapResult {
    LdapResult::with(ResultCode::OTHER, format!("SASL(-5): bad protocol / cancel: {text}"))
}
