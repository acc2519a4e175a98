//! The TLS of one connection.

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;

use rustls::ServerConnection;

use super::TlsFacts;
use super::context::TlsState;

/// What came of bytes from the socket, beside the plain ones.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The handshake has just been completed.
    pub(crate) established: Option<TlsFacts>,
    /// The other side has said that it sends no more.
    pub(crate) closed: bool,
}

/// The server's end of one TLS connection. Bytes in, bytes out.
#[derive(Debug)]
pub(crate) struct TlsSession {
    state: Arc<TlsState>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Nothing has come: a client that only connects costs no more than one without TLS.
    Waiting,
    Handshake(Box<ServerConnection>),
    Established(Box<ServerConnection>),
}

impl TlsSession {
    pub(crate) fn new(state: Arc<TlsState>) -> Self {
        Self { state, stage: Stage::Waiting }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        !matches!(self.stage, Stage::Established(_))
    }

    /// Takes records as they came from the socket and appends what is in them to `plain`.
    pub(crate) fn receive(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Received, rustls::Error> {
        let mut received = Received::default();
        if matches!(self.stage, Stage::Waiting) {
            let mut connection = ServerConnection::new(self.state.config().clone())?;
            // What it holds is bounded by what a connection gives it before the last of it is sent.
            connection.set_buffer_limit(None);
            self.stage = Stage::Handshake(Box::new(connection));
        }
        let (Stage::Handshake(connection) | Stage::Established(connection)) = &mut self.stage else {
            return Ok(received);
        };
        while !bytes.is_empty() {
            // Reading from a slice cannot fail; what is full is a single message larger than TLS allows.
            let taken =
                connection.read_tls(&mut bytes).map_err(|error| rustls::Error::General(error.to_string()))?;
            let progress = connection.process_new_packets()?;
            take_plain(connection, plain);
            received.closed |= progress.peer_has_closed();
            if taken == 0 || received.closed {
                break;
            }
        }
        if matches!(self.stage, Stage::Handshake(ref connection) if !connection.is_handshaking())
            && let Stage::Handshake(connection) = std::mem::replace(&mut self.stage, Stage::Waiting)
        {
            received.established = Some(self.state.facts(&connection));
            self.stage = Stage::Established(connection);
        }
        Ok(received)
    }

    pub(crate) fn send(&mut self, plain: &[u8]) {
        if let Stage::Established(connection) = &mut self.stage {
            // Without a limit of its buffer it takes all there is.
            let _ = connection.writer().write_all(plain);
        }
    }

    pub(crate) fn wants_write(&self) -> bool {
        match &self.stage {
            Stage::Waiting => false,
            Stage::Handshake(connection) | Stage::Established(connection) => connection.wants_write(),
        }
    }

    pub(crate) fn flush(&mut self, socket: &mut dyn io::Write) -> io::Result<()> {
        if let Stage::Handshake(connection) | Stage::Established(connection) = &mut self.stage {
            while connection.wants_write() {
                connection.write_tls(socket)?;
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        if let Stage::Handshake(connection) | Stage::Established(connection) = &mut self.stage {
            connection.send_close_notify();
        }
    }
}

fn take_plain(connection: &mut ServerConnection, plain: &mut Vec<u8>) {
    let mut reader = connection.reader();
    // "Would block" is all that was decrypted, and a missing goodbye matters only where the socket ends.
    while let Ok(chunk) = reader.fill_buf() {
        if chunk.is_empty() {
            break;
        }
        let count = chunk.len();
        plain.extend_from_slice(chunk);
        reader.consume(count);
    }
}
