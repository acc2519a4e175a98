//! A connection to a server without I/O: TLS, what a connection begins with (StartTLS, a bind), and then its
//! [message layer](MessageLayer). Bytes in, bytes out; the time is a parameter.

use std::fmt;
use std::io::{Read, Write};
use std::time::Duration;

use larix_proto::{LdapResult, Response, ResultCode, client, oid};
use larix_sasl::scram::ClientBinding;
use rustls::ClientConnection;

use crate::bind::Credentials;
use crate::fault::{self, SettingNames};
use crate::messages::{Answer, MessageLayer, MessageLimits};
use crate::peer_fault::PeerFault;
use crate::sasl::{self, Mechanism, SaslExchange, Surroundings};
use crate::session::Ambient;
use crate::tls::{self, TlsClient};

/// Bytes that TLS has made of requests, above which no more is made of them.
const WIRE_HIGH: usize = 256 * 1024;
const PLAIN_BYTES: usize = 16 * 1024;

/// When TLS begins.
#[derive(Clone, Debug, Default)]
pub enum Security {
    /// Never.
    #[default]
    Clear,
    /// With the first byte.
    Ldaps(TlsClient),
    /// By StartTLS (RFC 4511 section 4.14).
    StartTls {
        client: TlsClient,
        /// Without it the connection is of no use.
        required: bool,
    },
}

/// How a connection begins.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The server's name.
    pub host: String,
    pub security: Security,
    /// None: anonymous.
    pub credentials: Option<Credentials>,
    /// Without credentials: it begins with an anonymous bind all the same, and goes on if that is refused.
    pub binds_anonymously: bool,
    pub limits: MessageLimits,
    pub ambient: Ambient,
}

/// A connection, without its socket.
pub struct Channel {
    layer: MessageLayer,
    tls: Option<Box<ClientConnection>>,
    /// What TLS has made of requests.
    wire: Vec<u8>,
    phase: Phase,
    opening: Opening,
}

#[derive(Debug)]
enum Phase {
    Handshake,
    StartTls,
    Binding { exchange: Option<Box<SaslExchange>>, name: &'static str },
    Ready,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("phase", &self.phase)
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Begins, over a socket that is connected.
    ///
    /// # Errors
    /// TLS or a mechanism that cannot be begun.
    pub fn begin(opening: Opening) -> Result<Self, PeerFault> {
        let tls = match &opening.security {
            Security::Ldaps(client) => Some(Box::new(client.begin(&opening.host)?)),
            Security::Clear | Security::StartTls { .. } => None,
        };
        let layer = MessageLayer::new(opening.limits);
        let mut channel = Self { layer, tls, wire: Vec::new(), phase: Phase::Ready, opening };
        match &channel.opening.security {
            Security::Ldaps(_) => channel.phase = Phase::Handshake,
            Security::Clear => channel.bind()?,
            Security::StartTls { .. } => {
                channel
                    .layer
                    .request(None, None, |out, id| client::extended(out, id, oid::START_TLS, None, &[]))
                    .map_err(|why| PeerFault::Socket(why.to_string()))?;
                channel.phase = Phase::StartTls;
            }
        }
        Ok(channel)
    }

    /// Takes what the socket has. What has come whole is to be taken by [`Self::next_answer`] before more is handed over.
    ///
    /// # Errors
    /// What ends the connection.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), PeerFault> {
        while !bytes.is_empty() {
            if self.tls.is_none() {
                self.layer.receive(bytes);
                bytes = &[];
            } else if !self.receive_protected(&mut bytes)? {
                // What stands behind the server's goodbye is ignored (RFC 8446 section 6.1), and TLS takes none of it.
                bytes = &[];
            }
            self.go_on()?;
        }
        Ok(())
    }

    /// Takes some of what the socket has; whether more of it may mean something.
    fn receive_protected(&mut self, bytes: &mut &[u8]) -> Result<bool, PeerFault> {
        let Some(session) = &mut self.tls else { return Ok(false) };
        let lost = |error: std::io::Error| PeerFault::Tls(error.to_string());
        let taken = session.read_tls(bytes).map_err(lost)?;
        let state = match session.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                let why = match &self.opening.security {
                    Security::Ldaps(client) | Security::StartTls { client, .. }
                        if session.is_handshaking() =>
                    {
                        client.fault(&error, &self.opening.host)
                    }
                    _ => fault::words(&error, &SettingNames::LDAP),
                };
                return Err(self.layer.end(PeerFault::Tls(why)));
            }
        };
        let mut remaining = state.plaintext_bytes_to_read();
        let mut plain = [0; PLAIN_BYTES];
        while remaining > 0 {
            let count = session.reader().read(&mut plain).map_err(lost)?;
            self.layer.receive(plain.get(..count).unwrap_or_default());
            remaining = remaining.saturating_sub(count.max(1));
        }
        Ok(taken > 0 && !state.peer_has_closed())
    }

    /// Carries on with what a connection begins with.
    fn go_on(&mut self) -> Result<(), PeerFault> {
        loop {
            match &self.phase {
                Phase::Ready => return Ok(()),
                Phase::Handshake => match &self.tls {
                    Some(session) if session.is_handshaking() => return Ok(()),
                    _ => self.bind()?,
                },
                Phase::StartTls => {
                    let Some(answer) = self.layer.next_answer()? else { return Ok(()) };
                    let Some((_, result)) = answer.message.response.result() else { continue };
                    let result = result.to_owned();
                    self.start_tls(result)?;
                }
                Phase::Binding { .. } => {
                    let Some(answer) = self.layer.next_answer()? else { return Ok(()) };
                    let Some((_, result)) = answer.message.response.result() else { continue };
                    let result = result.to_owned();
                    let server = match answer.message.response {
                        Response::Bind { server_sasl, .. } => server_sasl.unwrap_or_default().to_vec(),
                        _ => Vec::new(),
                    };
                    self.bound(result, &server)?;
                }
            }
        }
    }

    fn start_tls(&mut self, result: LdapResult) -> Result<(), PeerFault> {
        let Security::StartTls { client, required } = &self.opening.security else { return Ok(()) };
        if result.code == ResultCode::SUCCESS {
            self.tls = Some(Box::new(client.begin(&self.opening.host)?));
            self.phase = Phase::Handshake;
            return Ok(());
        }
        if *required {
            return Err(self.layer.end(PeerFault::Refused { step: "StartTLS", result }));
        }
        if self.opening.credentials.is_some() {
            // What is configured with TLS is given no secret without.
            let text = "TLS was refused, and credentials do not go in the clear";
            let result = LdapResult::with(ResultCode::CONFIDENTIALITY_REQUIRED, text);
            return Err(self.layer.end(PeerFault::Refused { step: "StartTLS", result }));
        }
        self.bind()
    }

    fn bind(&mut self) -> Result<(), PeerFault> {
        let opening = &self.opening;
        let anonymous = || Credentials::Simple { dn: String::new(), password: Vec::new().into() };
        let own = opening.credentials.clone().or_else(|| opening.binds_anonymously.then(anonymous));
        let Some(credentials) = &own else {
            self.phase = Phase::Ready;
            return Ok(());
        };
        let mut exchange = None;
        let (name, sent) = match credentials {
            Credentials::Simple { dn, password } => (
                "bind",
                self.layer.request(None, None, |out, id| client::simple_bind(out, id, dn, password, &[])),
            ),
            Credentials::External { authorization } => (
                "EXTERNAL",
                self.layer.request(None, None, |out, id| {
                    client::sasl_bind(out, id, "", "EXTERNAL", Some(authorization.as_bytes()), &[]);
                }),
            ),
            Credentials::Sasl(sasl_password) => {
                let name = sasl_password.mechanism.name();
                let binding = match (sasl_password.mechanism, &self.tls) {
                    (Mechanism::Scram { plus: true, .. }, Some(session)) => {
                        let binding_type = match &opening.security {
                            Security::Ldaps(client) | Security::StartTls { client, .. } => {
                                client.binding.as_deref()
                            }
                            Security::Clear => None,
                        };
                        tls::channel_binding(session, binding_type, opening.ambient.end_point_binding)
                            .map_err(|error| PeerFault::Sasl(error.to_string()))?
                    }
                    (Mechanism::Scram { plus: true, .. }, None) => {
                        return Err(PeerFault::Sasl("-PLUS binds to TLS, and there is none".to_owned()));
                    }
                    _ => ClientBinding::Unsupported,
                };
                let nonce = sasl::nonce(opening.ambient);
                let around = Surroundings { host: &opening.host, nonce, binding };
                let (begun, first) = SaslExchange::begin(sasl_password, around).map_err(PeerFault::Sasl)?;
                exchange = Some(Box::new(begun));
                let first = first.as_ref().map(|message| message.as_slice());
                let sent = self.layer.request(None, None, |out, id| {
                    client::sasl_bind(out, id, "", name, first, &[]);
                });
                (name, sent)
            }
        };
        sent.map_err(|why| PeerFault::Socket(why.to_string()))?;
        self.phase = Phase::Binding { exchange, name };
        Ok(())
    }

    fn bound(&mut self, result: LdapResult, server: &[u8]) -> Result<(), PeerFault> {
        let Phase::Binding { exchange, name } = &mut self.phase else { return Ok(()) };
        let name = *name;
        if let Some(exchange) = exchange {
            let next = exchange.answer(result.code, server);
            let next = next.map_err(|why| self.layer.end(PeerFault::Sasl(format!("{name}: {why}"))))?;
            if let Some(message) = next {
                let sent = self.layer.request(None, None, |out, id| {
                    client::sasl_bind(out, id, "", name, Some(&message), &[]);
                });
                sent.map_err(|why| PeerFault::Socket(why.to_string()))?;
                return Ok(());
            }
        }
        // Who has no name is anonymous all the same.
        if result.code != ResultCode::SUCCESS && self.opening.credentials.is_some() {
            return Err(self.layer.end(PeerFault::Refused { step: name, result }));
        }
        self.phase = Phase::Ready;
        Ok(())
    }

    /// Whether requests may be sent.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether TLS is on.
    pub fn is_secure(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| !session.is_handshaking())
    }

    /// The next answer to a request; none before it [is ready](Self::is_ready).
    ///
    /// # Errors
    /// As of [`MessageLayer::next_answer`].
    pub fn next_answer(&mut self) -> Result<Option<Answer<'_>>, PeerFault> {
        if self.is_ready() { self.layer.next_answer() } else { Ok(None) }
    }

    /// Its requests.
    pub fn layer(&mut self) -> &mut MessageLayer {
        &mut self.layer
    }

    /// The same, to look at.
    pub fn messages(&self) -> &MessageLayer {
        &self.layer
    }

    /// How long until something happens by itself: the first deadline of a request.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.layer.next_deadline()
    }

    /// The bytes to write to the socket now.
    ///
    /// # Errors
    /// TLS that is broken.
    pub fn output(&mut self) -> Result<&[u8], PeerFault> {
        let Some(session) = &mut self.tls else { return Ok(self.layer.output()) };
        let lost = |error: std::io::Error| PeerFault::Tls(error.to_string());
        while self.wire.len() < WIRE_HIGH {
            if !session.is_handshaking() && !self.layer.output().is_empty() {
                let count = session.writer().write(self.layer.output()).map_err(lost)?;
                self.layer.sent(count);
            }
            if !session.wants_write() {
                break;
            }
            session.write_tls(&mut self.wire).map_err(lost)?;
        }
        Ok(&self.wire)
    }

    /// The socket took so many bytes of it.
    pub fn sent(&mut self, count: usize) {
        match &self.tls {
            None => self.layer.sent(count),
            Some(_) => {
                self.wire.drain(..count.min(self.wire.len()));
            }
        }
    }
}
