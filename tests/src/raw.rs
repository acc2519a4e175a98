//! Connections that send what they like: for tests of bad input and of attacks.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{FilterBuf, Frame, MessageId, ModifyOperation, Response, ResultView, Scope, client, frame};

/// How long an answer may take before it is missed, also of a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An answer that ends a request, or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 0: a notice of disconnection.
    pub id: u32,
    pub code: u32,
    pub matched: String,
    pub text: String,
    /// Entries before it.
    pub entries: usize,
    /// The OIDs of its controls.
    pub controls: Vec<String>,
}

impl Answer {
    /// Two of these tell an observer the same.
    pub fn what_is_told(&self) -> (u32, &str, &str, usize, &[String]) {
        (self.code, &self.matched, &self.text, self.entries, &self.controls)
    }
}

/// A connection.
#[derive(Debug)]
pub struct Raw {
    pub socket: TcpStream,
    /// Bytes that have come.
    pub received: usize,
    input: Vec<u8>,
}

impl Raw {
    /// Connects.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, received: 0, input: Vec::new() })
    }

    /// Sends bytes; false when the server has closed.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// The next result; `None` when the connection has ended.
    ///
    /// # Panics
    /// What came is no LDAP message.
    pub fn answer(&mut self) -> Option<Answer> {
        let mut entries = 0;
        loop {
            while let Ok(Frame::Complete { len }) = frame(&self.input, 64 << 20) {
                let pdu: Vec<u8> = self.input.drain(..len).collect();
                let message = Response::decode_message(&pdu)
                    .unwrap_or_else(|error| panic!("cannot decode {pdu:02x?}: {error}"));
                let Some((_, result)) = message.response.result() else {
                    entries += usize::from(matches!(message.response, Response::Entry(_)));
                    continue;
                };
                let controls = message.controls.iter().map(|control| control.oid.to_owned()).collect();
                return Some(Answer { controls, ..answer(message.id, result, entries) });
            }
            let mut chunk = [0; 65536];
            match self.socket.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(count) => {
                    self.received += count;
                    self.input.extend_from_slice(&chunk[..count]);
                }
            }
        }
    }

    /// Sends a request and waits for its result.
    pub fn ask(&mut self, request: &[u8]) -> Option<Answer> {
        self.send(request).then(|| self.answer()).flatten()
    }
}

fn answer(id: MessageId, result: ResultView<'_>, entries: usize) -> Answer {
    Answer {
        id: id.0,
        code: result.code.0,
        matched: result.matched_dn.to_owned(),
        text: result.diagnostic.to_owned(),
        entries,
        controls: Vec::new(),
    }
}

/// Everything up to the end of a connection, which the other side may also reset.
///
/// # Panics
/// It does not end before the socket's read timeout.
pub fn read_to_end(mut socket: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = socket.read_to_end(&mut bytes);
    let is_open =
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!is_open, "the connection does not end behind {} bytes", bytes.len());
    bytes
}

/// A search request.
///
/// # Panics
/// The filter is none.
pub fn search(id: u32, base: &str, scope: Scope, filter: &str) -> Vec<u8> {
    let filter = FilterBuf::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let mut out = Vec::new();
    let request =
        client::Search { attributes: &["1.1"], ..client::Search::new(base, scope, filter.as_filter()) };
    client::search(&mut out, MessageId(id), &request, &[]);
    out
}

/// A simple bind.
pub fn bind(id: u32, dn: &str, password: &str) -> Vec<u8> {
    let mut out = Vec::new();
    client::simple_bind(&mut out, MessageId(id), dn, password.as_bytes(), &[]);
    out
}

/// A modify request that replaces the values of an attribute by one.
pub fn replace(id: u32, dn: &str, attribute: &str, value: &str) -> Vec<u8> {
    let attribute = ClientAttribute { description: attribute, values: &[value.as_bytes()] };
    let change = ClientChange { operation: ModifyOperation::Replace, attribute };
    let mut out = Vec::new();
    client::modify(&mut out, MessageId(id), dn, &[change], &[]);
    out
}
