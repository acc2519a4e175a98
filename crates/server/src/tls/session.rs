//! The TLS of one connection.

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;

use larix_proto::part_last;
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

    /// Takes plain bytes to be sent. The last message of them gets a record of its own ([`part_last`]).
    pub(crate) fn send(&mut self, plain: &[u8]) {
        if let Stage::Established(connection) = &mut self.stage {
            let (before, last) = part_last(plain);
            for part in [before, last] {
                // Without a limit of its buffer it takes all there is.
                let _ = connection.writer().write_all(part);
            }
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

#[cfg(test)]
mod tests {
    use larix_configuration::values::TlsSettings;
    use larix_engine::time::Timestamp;
    use larix_testkit::Authority;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// The server's end and a client, as a handshake leaves them.
    fn both_ends() -> (TlsSession, ClientConnection) {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("Root"));
        authority.server().write(folder.path(), "server");
        let settings = TlsSettings {
            certificate_file: Some(folder.path().join("server.pem")),
            certificate_key_file: Some(folder.path().join("server.key")),
            ..TlsSettings::default()
        };
        let loaded = TlsState::load(&settings, Timestamp::from_seconds(1_800_000_000)).unwrap();
        let mut server = TlsSession::new(loaded.state.unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        while client.is_handshaking() || client.wants_write() || server.wants_write() {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut there).unwrap();
            }
            server.receive(&there, &mut Vec::new()).unwrap();
            server.flush(&mut back).unwrap();
            let mut back = back.as_slice();
            while !back.is_empty() {
                client.read_tls(&mut back).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        (server, client)
    }

    /// How many bytes of content each record has that goes out.
    fn records(server: &mut TlsSession) -> Vec<usize> {
        /// A byte that tells the kind, and the tag (RFC 8446 section 5.2).
        const MORE: usize = 17;
        let (mut out, mut sizes) = (Vec::new(), Vec::new());
        server.flush(&mut out).unwrap();
        let mut rest = out.as_slice();
        while let [_, _, _, high, low, content @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            sizes.push(length - MORE);
            rest = &content[length..];
        }
        sizes
    }

    #[test]
    fn the_last_message_has_a_record_of_its_own() {
        let (mut server, _client) = both_ends();
        let entry: Vec<u8> = [&[0x30_u8, 0x82, 0x10, 0x00][..], &[7; 0x1000]].concat();
        let done = b"\x30\x03\x02\x01\x01";
        for (plain, expected) in [
            (done.to_vec(), vec![5]),
            ([&entry[..], done].concat(), vec![0x1004, 5]),
            ([&entry[..], &entry[..], &entry[..], &entry[..], done].concat(), vec![0x4000, 0x10, 5]),
            ([&entry[..4], done].concat(), vec![9]),
            (Vec::new(), vec![]),
        ] {
            server.send(&plain);
            assert_eq!(records(&mut server), expected);
        }
    }
}
