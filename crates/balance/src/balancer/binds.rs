//! Binds: on connections of their own, one at a time on each.

use std::time::Duration;

use larix_client::PeerFault;
use larix_proto::extended::VerifyCredentialsResponse;
use larix_proto::{
    Authentication, BindRequest, Dn, LdapResult, Message, MessageId, Response, ResponseOp, ResultCode,
    client, encode, oid,
};

use super::Balancer;
use super::choice::Need;
use super::requests::Forwarded;
use crate::client::{Restriction, State};
use crate::envelope;
use crate::upstream::{Binding, Kind, Operation, Pool};

/// Mechanisms whose exchange is about the connection itself, or that put a security layer on it.
const NOT_FORWARDED: &[&str] = &["GSSAPI", "GSS-SPNEGO", "DIGEST-MD5", "KERBEROS_V4"];

/// Bytes that a bind grows by at most where it becomes a request to verify its credentials.
const VERIFICATION_BYTES: usize = 64;

/// The answer to a bind, taken out of its connection.
pub(super) struct BindAnswer {
    pub(super) code: ResultCode,
    pub(super) behind_id: Vec<u8>,
    /// Of "Who am I?".
    pub(super) identity: Option<String>,
    /// The server does not know Verify Credentials.
    pub(super) is_unknown: bool,
}

const NOT_VERIFIED: &str = "the server does not verify credentials (feature vc): \
    have it load its module vc, or take the feature out";

impl BindAnswer {
    pub(super) fn of(kind: &Kind, response: &Response<'_>, pdu: &[u8]) -> Self {
        if let Kind::Verify(_) = kind {
            return Self::of_verification(response);
        }
        Self {
            code: response.result().map_or(ResultCode::OTHER, |(_, result)| result.code),
            behind_id: envelope::behind_id(pdu).to_vec(),
            identity: identity_of(response),
            is_unknown: false,
        }
    }

    /// The answer to a bind whose credentials were verified. What says nothing of them is no success.
    fn of_verification(response: &Response<'_>) -> Self {
        let refused = |code, text: &str| (LdapResult::with(code, text), Vec::new());
        let (mut is_unknown, other) = (false, ResultCode::OTHER);
        let (result, controls) = match response {
            Response::Extended { result, value, .. } => match VerifyCredentialsResponse::decode(*value) {
                Ok(verdict) if verdict.code == ResultCode::SUCCESS && result.code != ResultCode::SUCCESS => {
                    refused(result.code, "")
                }
                Ok(verdict) if verdict.code == ResultCode::SASL_BIND_IN_PROGRESS => {
                    refused(other, "the server answered a simple bind with a step of another mechanism")
                }
                Ok(verdict) => (LdapResult::with(verdict.code, verdict.diagnostic), verdict.controls),
                Err(_) if result.code == ResultCode::PROTOCOL_ERROR => {
                    is_unknown = true;
                    refused(other, NOT_VERIFIED)
                }
                Err(_) if result.code != ResultCode::SUCCESS => refused(result.code, result.diagnostic),
                Err(_) => refused(other, "the server does not say whether the credentials are right"),
            },
            _ => refused(other, "the server did not answer whether the credentials are right"),
        };
        let mut pdu = Vec::new();
        encode::bind_result(&mut pdu, MessageId(1), &result, None, &controls);
        let behind_id = envelope::behind_id(&pdu).to_vec();
        Self { code: result.code, behind_id, identity: None, is_unknown }
    }
}

impl Balancer {
    /// A bind. False: it waits.
    pub(super) fn bind(&mut self, sent: &Forwarded<'_>, bind: &BindRequest<'_>, now: Duration) -> bool {
        let id = sent.id;
        let sasl = self.leave_identity(id);
        if !self.clients.contains_key(&id) {
            return true;
        }
        if bind.version != 3 {
            self.release(sasl, id);
            let text = "requested protocol version not supported: the balancer speaks version 3";
            self.refused(id, sent.message, ResponseOp::Bind, ResultCode::PROTOCOL_ERROR, text);
            return true;
        }
        let kind = match bind.authentication {
            Authentication::Simple(password) if bind.name.is_empty() || password.is_empty() => {
                Binding::Anonymous
            }
            // Some servers take other names than DNs.
            Authentication::Simple(_) if Dn::parse(bind.name).is_ok() => Binding::Name(bind.name.to_owned()),
            Authentication::Simple(_) => Binding::Unknown,
            Authentication::Sasl { mechanism, credentials } => {
                if mechanism.eq_ignore_ascii_case("EXTERNAL") {
                    self.release(sasl, id);
                    self.external(id, sent.message, credentials.unwrap_or_default());
                    return true;
                }
                let bound_to_tls = mechanism.to_ascii_uppercase().ends_with("-PLUS");
                if bound_to_tls || NOT_FORWARDED.iter().any(|known| known.eq_ignore_ascii_case(mechanism)) {
                    self.release(sasl, id);
                    let text = "the balancer does not forward this mechanism: bind with simple, PLAIN, SCRAM or EXTERNAL";
                    let code = ResultCode::AUTH_METHOD_NOT_SUPPORTED;
                    self.refused(id, sent.message, ResponseOp::Bind, code, text);
                    return true;
                }
                Binding::Unknown
            }
            Authentication::Other(_) => {
                self.release(sasl, id);
                let text = "authentication method not supported: bind with simple or SASL";
                let code = ResultCode::AUTH_METHOD_NOT_SUPPORTED;
                self.refused(id, sent.message, ResponseOp::Bind, code, text);
                return true;
            }
        };
        match bind.authentication {
            // Of other names than DNs an answer would not say whose they are.
            Authentication::Simple(_)
                if self.settings.verifies_credentials && !matches!(kind, Binding::Unknown) =>
            {
                self.release(sasl, id);
                self.verify(sent, bind, kind, now)
            }
            _ => self.bind_at_server(sent, kind, sasl, now),
        }
    }

    /// Whatever comes of a bind, the client is anonymous until then, and what it had under way is over (RFC 4511 section 4.2.1).
    /// Answers the connection that it had for the exchange before.
    fn leave_identity(&mut self, id: u64) -> Option<u64> {
        self.abandon_all(id);
        self.identify(id, "", "");
        let client = self.clients.get_mut(&id)?;
        client.restriction = Restriction::None;
        let sasl = client.sasl.take();
        self.leave_context(id);
        sasl
    }

    /// A bind cannot be read: it fails as any other.
    pub(super) fn bind_is_malformed(&mut self, id: u64) {
        let sasl = self.leave_identity(id);
        self.release(sasl, id);
    }

    /// Has a server verify the credentials of a simple bind, over a connection that clients share. False: it waits.
    fn verify(&mut self, sent: &Forwarded<'_>, bind: &BindRequest<'_>, kind: Binding, now: Duration) -> bool {
        if self.refuses_for_size(sent, VERIFICATION_BYTES) {
            return true;
        }
        let choice = self.choose(Need::Operations(Pool::Shared));
        let upstream = match self.chosen(sent, (choice, false), Pool::Shared, now) {
            Ok(upstream) => upstream,
            Err(is_over) => return is_over,
        };
        let mut pdu = Vec::new();
        sent.request.verification(&mut pdu, sent.message, bind);
        let Ok(request) = Message::decode(&pdu)
            .map_err(|error| error.error)
            .and_then(|message| envelope::Request::of(&pdu, message.controls))
        else {
            let text = "the credentials cannot be verified (feature vc)";
            self.refused(sent.id, sent.message, ResponseOp::Bind, ResultCode::OTHER, text);
            return true;
        };
        let verification = Forwarded { request, is_write: false, ..*sent };
        let is_sent = self.send(upstream, &verification, Kind::Verify(kind), now);
        if is_sent {
            self.bind_is_sent(sent);
        }
        is_sent
    }

    fn bind_at_server(
        &mut self,
        sent: &Forwarded<'_>,
        kind: Binding,
        sasl: Option<u64>,
        now: Duration,
    ) -> bool {
        let id = sent.id;
        // The next step of an exchange goes to the connection of the one before.
        let own = sasl.filter(|number| {
            let reserved = self.upstreams.get(number).and_then(|upstream| upstream.reserved);
            reserved.is_some_and(|(owner, _)| owner == id)
        });
        let upstream = match own {
            Some(number) => number,
            None => {
                let choice = self.choose(Need::Operations(Pool::Bind));
                match self.chosen(sent, (choice, false), Pool::Bind, now) {
                    Ok(number) => number,
                    Err(is_over) => return is_over,
                }
            }
        };
        if let Some(found) = self.upstreams.get_mut(&upstream) {
            found.reserved = None;
        }
        let is_sent = self.send(upstream, sent, Kind::Bind(kind), now);
        if own.is_some() && self.upstreams.get(&upstream).is_some_and(|found| found.pending.is_empty()) {
            // The connection did not take the step.
            self.abort_exchange(upstream);
        }
        if is_sent {
            self.bind_is_sent(sent);
        }
        is_sent
    }

    fn bind_is_sent(&mut self, sent: &Forwarded<'_>) {
        self.counters.binds += 1;
        if let Some(client) = self.clients.get_mut(&sent.id)
            && client.state == State::Open
            && client.pending.contains_key(&sent.message.0)
        {
            client.state = State::Binding;
        }
    }

    /// A client does not go on with a SASL bind that had a connection for itself.
    pub(super) fn release(&mut self, upstream: Option<u64>, owner: u64) {
        let Some(number) = upstream else { return };
        let reserved = self.upstreams.get(&number).and_then(|upstream| upstream.reserved);
        if reserved.is_some_and(|(reserved, _)| reserved == owner) {
            self.abort_exchange(number);
        }
    }

    /// Nobody goes on with the exchange on this connection. The server would take the first message of the next client for the
    /// continuation: the connection is everybody's again when the server has forgotten it.
    pub(super) fn abort_exchange(&mut self, number: u64) {
        let Some(upstream) = self.upstreams.get_mut(&number) else { return };
        upstream.reserved = None;
        if !std::mem::replace(&mut upstream.is_midway, true) {
            self.midway.push(number);
        }
    }

    /// Has servers forget exchanges that are half done: another bind aborts them (RFC 4513 section 5.2.1.2). A new connection in place
    /// of each would let clients that begin and do not go on cost servers a handshake each time.
    pub(super) fn abort_exchanges(&mut self, now: Duration) {
        let deadline = self.settings.bind.timeout.map(|timeout| now + timeout);
        for number in std::mem::take(&mut self.midway) {
            let Some(upstream) = self.upstreams.get_mut(&number) else { continue };
            let given = upstream
                .channel
                .layer()
                .request(deadline, None, |out, id| client::simple_bind(out, id, "", b"", &[]));
            match given {
                Ok(message) => {
                    upstream.pending.insert(message.0, Operation::new(None, Kind::Abort, now));
                    self.touch_upstream(number);
                }
                Err(_) => self.retire(number),
            }
        }
    }

    /// The server has answered the bind that aborts an exchange.
    fn exchange_aborted(&mut self, number: u64, code: ResultCode) {
        // The latter is what servers answer that let nobody bind anonymously; the exchange is over all the same.
        if code != ResultCode::SUCCESS && code != ResultCode::INAPPROPRIATE_AUTHENTICATION {
            return self.retire(number);
        }
        if let Some(upstream) = self.upstreams.get_mut(&number) {
            upstream.is_midway = false;
        }
        self.free(Pool::Bind);
    }

    /// SASL EXTERNAL: by the certificate that the client has shown here.
    fn external(&mut self, id: u64, message: MessageId, authorization: &[u8]) {
        let dn = self.clients.get(&id).zip(self.client_tls.as_ref());
        let dn = dn.and_then(|(client, tls)| client.wire.peer_dn(tls));
        let op = ResponseOp::Bind;
        let Some(dn) = dn else {
            let text = "SASL EXTERNAL needs a certificate of the client that TLSVerifyClient accepts";
            return self.refused(id, message, op, ResultCode::INAPPROPRIATE_AUTHENTICATION, text);
        };
        if !authorization.is_empty() {
            let text = "SASL EXTERNAL takes no authorization identity at the balancer";
            return self.refused(id, message, op, ResultCode::UNWILLING_TO_PERFORM, text);
        }
        self.identify(id, &dn, &format!("dn:{dn}"));
        if let Some(client) = self.clients.get_mut(&id) {
            encode::bind_result(client.wire.answers(), message, &LdapResult::success(), None, &[]);
        }
    }

    /// The server has answered a bind, or said who it was.
    pub(super) fn bind_answered(
        &mut self,
        number: u64,
        operation: Operation,
        answer: BindAnswer,
        now: Duration,
    ) {
        match operation.kind {
            Kind::Bind(_) if answer.code == ResultCode::SASL_BIND_IN_PROGRESS => {
                let Some((id, _)) = operation.to.filter(|(id, _)| self.clients.contains_key(id)) else {
                    return self.abort_exchange(number);
                };
                if let Some(upstream) = self.upstreams.get_mut(&number) {
                    upstream.reserved = Some((id, now));
                }
                if let Some(client) = self.clients.get_mut(&id) {
                    client.sasl = Some(number);
                }
                self.finish_bind(operation.to, &answer.behind_id, now);
            }
            Kind::Bind(binding) => {
                self.free(Pool::Bind);
                if answer.code == ResultCode::SUCCESS
                    && let Some((id, message)) = operation.to
                {
                    match binding {
                        Binding::Anonymous => {}
                        Binding::Name(name) => self.identify(id, &name, &format!("dn:{name}")),
                        Binding::Unknown if !self.settings.proxy_authorization => {}
                        Binding::Unknown => {
                            return self.ask_who(number, (id, message), answer.behind_id, now);
                        }
                    }
                }
                self.finish_bind(operation.to, &answer.behind_id, now);
            }
            Kind::WhoAmI(bind) => {
                self.free(Pool::Bind);
                match (answer.identity, operation.to) {
                    (Some(identity), Some((id, _))) => {
                        self.identify(id, identity.strip_prefix("dn:").unwrap_or_default(), &identity);
                        self.finish_bind(operation.to, &bind, now);
                    }
                    _ => {
                        let text =
                            "the server does not say who is bound (RFC 4532), which the balancer needs";
                        self.fail_bind(operation.to, &LdapResult::with(ResultCode::OTHER, text), now);
                    }
                }
            }
            Kind::Verify(binding) => {
                let backend = self.upstreams.get(&number).map(|upstream| upstream.backend);
                if let Some(backend) = backend {
                    self.one_less(backend);
                    self.note_verification(backend, answer.is_unknown);
                }
                if answer.code == ResultCode::SUCCESS
                    && let (Some((id, _)), Binding::Name(name)) = (operation.to, binding)
                {
                    self.identify(id, &name, &format!("dn:{name}"));
                }
                self.finish_bind(operation.to, &answer.behind_id, now);
            }
            Kind::Abort => self.exchange_aborted(number, answer.code),
            Kind::Plain(_) => {}
        }
    }

    /// Says once that a server does not know Verify Credentials.
    fn note_verification(&mut self, backend: usize, is_unknown: bool) {
        let Some(backend) = self.backends.get_mut(backend) else { return };
        if !std::mem::replace(&mut backend.lacks_verification, is_unknown) && is_unknown {
            (self.tell)(&format!("{}: {}", backend.settings.url, NOT_VERIFIED));
        }
    }

    /// Asks on the same connection whom the bind was of; its answer waits for that.
    fn ask_who(&mut self, number: u64, to: (u64, u32), bind: Vec<u8>, now: Duration) {
        let Some(upstream) = self.upstreams.get_mut(&number) else { return };
        let deadline = self.settings.bind.timeout.map(|timeout| now + timeout);
        let given = upstream
            .channel
            .layer()
            .request(deadline, None, |out, id| client::extended(out, id, oid::WHO_AM_I, None, &[]));
        match given {
            Ok(message) => {
                upstream.pending.insert(message.0, Operation::new(Some(to), Kind::WhoAmI(bind), now));
                if let Some(client) = self.clients.get_mut(&to.0) {
                    let place = crate::client::PendingOperation { upstream: number, message: message.0 };
                    client.pending.insert(to.1, place);
                }
                self.touch_upstream(number);
            }
            Err(why) => {
                let result = LdapResult::with(ResultCode::UNAVAILABLE, why.to_string());
                self.fail_bind(Some(to), &result, now);
                self.lost(number, &PeerFault::Socket(why.to_string()), now);
            }
        }
    }

    fn finish_bind(&mut self, to: Option<(u64, u32)>, behind_id: &[u8], now: Duration) {
        let Some((id, message)) = to else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        envelope::answer(client.wire.answers(), message, behind_id);
        self.bind_is_over(id, message, now);
    }

    /// A bind failed here: the client stays anonymous.
    pub(super) fn fail_bind(&mut self, to: Option<(u64, u32)>, result: &LdapResult, now: Duration) {
        let Some((id, message)) = to else { return };
        self.identify(id, "", "");
        let Some(client) = self.clients.get_mut(&id) else { return };
        encode::bind_result(client.wire.answers(), MessageId(message), result, None, &[]);
        self.bind_is_over(id, message, now);
    }

    fn bind_is_over(&mut self, id: u64, message: u32, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.pending.remove(&message);
        if client.state == State::Binding {
            client.state = State::Open;
        }
        self.touch_client(id);
        // What came behind the bind.
        self.advance(id, now);
    }
}

/// What "Who am I?" was answered with (RFC 4532); none: a refusal.
fn identity_of(response: &Response<'_>) -> Option<String> {
    match response {
        Response::Extended { result, value, .. } if result.code == ResultCode::SUCCESS => {
            String::from_utf8(value.unwrap_or_default().to_vec()).ok()
        }
        _ => None,
    }
}
