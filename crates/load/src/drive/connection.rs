//! One driven connection: requests out, answers in, nothing kept but what is out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use larix_proto::{Frame, MessageId, Response, ResultCode, client, frame};
use larix_sasl::scram::{self, ClientBinding};

use super::answer::{self, Answer};
use super::placeholder::MESSAGE_ID_MIN;
use super::requests::RequestSpec;
use super::transport::{Dialer, Transport};
use super::{IN_FLIGHT_MAX, Identity, Security};

/// The largest answer that is taken.
const PDU_MAX: usize = 64 << 20;
/// The name of the StartTLS operation (RFC 4511 section 4.14.1).
const START_TLS: &str = "1.3.6.1.4.1.1466.20037";
/// The low bits of a message id say which place of its connection the request has.
const PLACE_BITS: u32 = 7;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const _: () = assert!(IN_FLIGHT_MAX <= 1 << PLACE_BITS);

#[derive(Debug)]
pub(super) struct Connection {
    transport: Transport,
    /// The start of an answer whose end has not come.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    /// The part of the next message id above the place.
    turn: u32,
    places: Vec<Option<Outstanding>>,
    free: Vec<u32>,
}

/// Makes nonces that are used once. They can be guessed, which would help a false server alone: what is measured is no
/// secret.
static NONCES: AtomicU64 = AtomicU64::new(0);

/// A request that has no result yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    id: u32,
    /// Nanoseconds on the worker's clock.
    pub(super) start: u64,
    pub(super) entries: u64,
    pub(super) spec: RequestSpec,
}

impl Connection {
    /// Connects and binds, waiting for both.
    pub(super) fn open(dialer: &Dialer, identity: &Identity, in_flight: usize) -> anyhow::Result<Self> {
        let mut transport = dialer.connect()?;
        if matches!(dialer.server.security, Security::StartTls(_)) {
            ask(&mut transport, "StartTLS", |out, id| client::extended(out, id, START_TLS, None, &[]))?;
            transport = dialer.secure(transport)?;
        }
        match identity {
            Identity::Anonymous => {}
            Identity::Simple { dn, password } => {
                ask(&mut transport, &format!("the bind as {dn:?}"), |out, id| {
                    client::simple_bind(out, id, dn, password.as_bytes(), &[]);
                })?;
            }
            Identity::Plain { user, password } => {
                let credentials = format!("\0{user}\0{password}");
                ask(&mut transport, &format!("SASL PLAIN as {user:?}"), |out, id| {
                    client::sasl_bind(out, id, "", "PLAIN", Some(credentials.as_bytes()), &[]);
                })?;
            }
            Identity::Scram { hash, user, password } => {
                let nonce = NONCES.fetch_add(1, Ordering::Relaxed);
                let nonce = format!("{}x{nonce}", std::process::id());
                scram(&mut transport, *hash, user, password, &nonce)?;
            }
            Identity::External => ask(&mut transport, "SASL EXTERNAL", |out, id| {
                client::sasl_bind(out, id, "", "EXTERNAL", Some(b""), &[]);
            })?,
        }
        transport.set_nonblocking()?;
        Ok(Self::new(transport, in_flight))
    }

    fn new(transport: Transport, in_flight: usize) -> Self {
        Self {
            transport,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            turn: MESSAGE_ID_MIN >> PLACE_BITS,
            places: vec![None; in_flight],
            free: (0..u32::try_from(in_flight).unwrap_or(0)).rev().collect(),
        }
    }

    /// A further connection in the place of this one, whose requests are all answered. It is not open yet when this
    /// returns.
    pub(super) fn reopen(&mut self, dialer: &Dialer) -> anyhow::Result<()> {
        self.unbind();
        self.transport.abort_on_close()?;
        self.transport = dialer.start()?;
        self.input.clear();
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    pub(super) fn has_free_slot(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.places.len()
    }

    pub(super) fn wants_write(&self) -> bool {
        self.sent < self.output.len() || self.transport.holds_output()
    }

    /// A place for one more request: its message id, and the buffer to which the request must be appended.
    pub(super) fn reserve(&mut self, spec: RequestSpec, start: u64) -> Option<(u32, &mut Vec<u8>)> {
        let place = self.free.pop()?;
        let id = self.turn << PLACE_BITS | place;
        self.turn += 1;
        if self.turn > i32::MAX as u32 >> PLACE_BITS {
            self.turn = MESSAGE_ID_MIN >> PLACE_BITS;
        }
        *self.places.get_mut(place as usize)? = Some(Outstanding { id, start, entries: 0, spec });
        Some((id, &mut self.output))
    }

    /// Sends what is there to be sent, as far as the socket takes it.
    #[inline]
    pub(super) fn send(&mut self) -> anyhow::Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.transport.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if is_patient(&error) => return Ok(()),
                Err(error) => return Err(self.broken(error)),
            }
        }
        self.output.clear();
        self.sent = 0;
        self.transport.flush().map_err(|error| self.broken(error))
    }

    /// Reads what has come; `answered` is called with each result. `scratch` is room for reading.
    #[inline]
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut answered: impl FnMut(Outstanding, u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        loop {
            let count = match self.transport.read(scratch) {
                Ok(0) => return Err(self.broken(io::ErrorKind::ConnectionReset.into())),
                Ok(count) => count,
                Err(error) if is_patient(&error) => return Ok(()),
                Err(error) => return Err(self.broken(error)),
            };
            let read = scratch.get(..count).unwrap_or_default();
            if self.input.is_empty() {
                let consumed = self.take(read, &mut answered)?;
                self.input.extend_from_slice(read.get(consumed..).unwrap_or_default());
            } else {
                let mut input = std::mem::take(&mut self.input);
                input.extend_from_slice(read);
                let consumed = self.take(&input, &mut answered)?;
                input.drain(..consumed);
                self.input = input;
            }
            if !self.transport.has_more() {
                return Ok(());
            }
        }
    }

    /// Takes the whole answers at the start of `bytes` and says how many bytes they were.
    #[inline]
    fn take(
        &mut self,
        bytes: &[u8],
        answered: &mut impl FnMut(Outstanding, u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let mut done = 0;
        while let Frame::Complete { len } = frame(bytes.get(done..).unwrap_or_default(), PDU_MAX)? {
            let pdu = bytes.get(done..done + len).unwrap_or_default();
            done += len;
            let Some(answer) = answer::read(pdu) else { return Err(undecodable(pdu)) };
            let place = self.places.get_mut((answer.id & PLACE_MASK) as usize);
            let Some(place) = place.filter(|place| place.is_some_and(|out| out.id == answer.id)) else {
                return Err(unasked(pdu, &answer));
            };
            match (answer.code, place.as_mut()) {
                (None, Some(outstanding)) => {
                    outstanding.entries += u64::from(answer.operation == answer::SEARCH_RESULT_ENTRY);
                }
                (Some(code), Some(outstanding)) => {
                    let outstanding = *outstanding;
                    *place = None;
                    self.free.push(answer.id & PLACE_MASK);
                    answered(outstanding, code)?;
                }
                (_, None) => {}
            }
        }
        Ok(done)
    }

    /// What the end of the connection is called.
    #[cold]
    fn broken(&self, error: io::Error) -> anyhow::Error {
        let out = self.places.len() - self.free.len();
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                anyhow::anyhow!("the server closed a connection with {out} requests out")
            }
            _ => anyhow::Error::new(error).context(format!("a connection with {out} requests out")),
        }
    }

    pub(super) fn unbind(&mut self) {
        client::unbind(&mut self.output, MessageId(1));
        // A server that is already gone needs no goodbye.
        let _ = self.send();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

/// Whether the socket will be ready later.
fn is_patient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
    )
}

fn undecodable(pdu: &[u8]) -> anyhow::Error {
    match Response::decode_message(pdu) {
        Err(error) => anyhow::Error::new(error).context("an answer that is not LDAP"),
        Ok(message) => anyhow::anyhow!("an answer that no request can have: {:?}", message.response),
    }
}

/// An answer that has no request: a notice of disconnection (RFC 4511 section 4.4.1) has the message id 0.
fn unasked(pdu: &[u8], answer: &Answer) -> anyhow::Error {
    let text = Response::decode_message(pdu).ok().and_then(|message| {
        let (_, result) = message.response.result()?;
        Some(format!("{:?} {}", result.code, result.diagnostic))
    });
    let text = text.unwrap_or_default();
    match answer.id {
        0 => anyhow::anyhow!("the server disconnects: {text}"),
        id => anyhow::anyhow!("an answer to the message {id}, which was not asked: {text}"),
    }
}

/// One request and its answer on a socket that blocks, for what stands before the measurement.
pub(super) fn ask(
    transport: &mut Transport,
    what: &str,
    append: impl FnOnce(&mut Vec<u8>, MessageId),
) -> anyhow::Result<()> {
    exchange(transport, what, append, |_| Ok(()))
}

/// Binds by SCRAM and makes sure that the server knows the password's verifier.
fn scram(
    transport: &mut Transport,
    hash: scram::Hash,
    user: &str,
    password: &str,
    nonce: &str,
) -> anyhow::Result<()> {
    let what = format!("SASL {} as {user:?}", hash.mechanism());
    let mut step = |message: &str| {
        let mut answer = Vec::new();
        exchange(
            transport,
            &what,
            |out, id| client::sasl_bind(out, id, "", hash.mechanism(), Some(message.as_bytes()), &[]),
            |response| {
                if let Response::Bind { server_sasl, .. } = response {
                    answer = server_sasl.unwrap_or_default().to_vec();
                }
                Ok(())
            },
        )?;
        anyhow::Ok(answer)
    };
    let mut client = scram::Client::new(hash, user, "", nonce, ClientBinding::Unsupported);
    let challenge = step(&client.first())?;
    let proof = client.respond(&challenge, password.as_bytes()).with_context(|| what.clone())?;
    client.verify(&step(&proof)?).with_context(|| what.clone())
}

/// The same for an operation that gives entries; `each` is shown every answer.
pub(super) fn exchange(
    transport: &mut Transport,
    what: &str,
    append: impl FnOnce(&mut Vec<u8>, MessageId),
    mut each: impl FnMut(&Response<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut request = Vec::new();
    append(&mut request, MessageId(1));
    let mut rest = request.as_slice();
    while !rest.is_empty() {
        let count = transport.write(rest).with_context(|| format!("{what}: cannot send"))?;
        rest = rest.get(count..).unwrap_or_default();
    }
    let mut input = Vec::new();
    loop {
        while let Frame::Complete { len } = frame(&input, PDU_MAX)? {
            let message = Response::decode_message(input.get(..len).unwrap_or_default())?;
            each(&message.response)?;
            if let Some((_, result)) = message.response.result() {
                if ![ResultCode::SUCCESS, ResultCode::SASL_BIND_IN_PROGRESS].contains(&result.code) {
                    let why = if result.diagnostic.is_empty() { "" } else { ": " };
                    bail!("{what} was refused: {}{why}{}", result.code, result.diagnostic);
                }
                return Ok(());
            }
            input.drain(..len);
        }
        let mut chunk = [0; 4096];
        let count = transport.read(&mut chunk).with_context(|| format!("{what}: no answer"))?;
        if count == 0 {
            bail!("{what}: the server closed the connection");
        }
        input.extend_from_slice(chunk.get(..count).unwrap_or_default());
    }
}
