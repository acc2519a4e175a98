//! The bytes of a client's connection: in the clear or under TLS. Bytes in, bytes out.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use larix_proto::{Frame, frame, frames, part_last};
use rustls::{ServerConfig, ServerConnection};

/// Bytes that TLS has made of answers, above which no more is made of them.
const WIRE_HIGH: usize = 128 * 1024;
/// Behind so many bytes that were sent the buffer is moved together.
const COMPACT_BYTES: usize = 64 * 1024;
const PLAIN_BYTES: usize = 16 * 1024;

/// The subject of the certificate in a session, as a DN.
type PeerDn = Arc<dyn Fn(&ServerConnection) -> Option<String> + Send + Sync>;

/// TLS of the listeners.
#[derive(Clone)]
pub struct ClientTls {
    pub config: Arc<ServerConfig>,
    /// The subject of a client's certificate, if there is one that is believed: SASL EXTERNAL.
    pub peer_dn: PeerDn,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

/// Answers on their way to a client, and TLS.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    tls: Option<Box<ServerConnection>>,
    /// Answers.
    plain: Vec<u8>,
    /// So many bytes at their begin belong to one that TLS has the begin of.
    begun: usize,
    /// What TLS has made of them.
    protected: Vec<u8>,
    /// How much of the last of the two was sent.
    sent: usize,
}

impl Wire {
    /// TLS begins with the next byte that comes.
    ///
    /// # Errors
    /// TLS that cannot begin.
    pub(crate) fn begin_tls(&mut self, tls: &ClientTls) -> Result<(), rustls::Error> {
        let mut session = ServerConnection::new(Arc::clone(&tls.config))?;
        // What it holds is bounded by what is given to it: see `output`.
        session.set_buffer_limit(None);
        self.tls = Some(Box::new(session));
        Ok(())
    }

    /// TLS begins behind the answers that are there already, which go in the clear.
    ///
    /// # Errors
    /// TLS that cannot begin.
    pub(crate) fn start_tls(&mut self, tls: &ClientTls) -> Result<(), rustls::Error> {
        self.begin_tls(tls)?;
        self.protected = std::mem::take(&mut self.plain);
        Ok(())
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The subject of the client's certificate.
    pub(crate) fn peer_dn(&self, tls: &ClientTls) -> Option<String> {
        self.tls
            .as_ref()
            .filter(|session| !session.is_handshaking())
            .and_then(|session| (tls.peer_dn)(session))
    }

    /// Takes what the socket has and appends what is in it to `plain`.
    ///
    /// # Errors
    /// TLS that is broken.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        let Some(session) = &mut self.tls else {
            plain.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            let taken = session.read_tls(&mut bytes).map_err(|error| error.to_string())?;
            let state = session.process_new_packets().map_err(|error| error.to_string())?;
            let mut left = state.plaintext_bytes_to_read();
            let mut chunk = [0; PLAIN_BYTES];
            while left > 0 {
                let count = session.reader().read(&mut chunk).map_err(|error| error.to_string())?;
                plain.extend_from_slice(chunk.get(..count).unwrap_or_default());
                left = left.saturating_sub(count.max(1));
            }
            if taken == 0 || state.peer_has_closed() {
                // What stands behind the client's goodbye is ignored (RFC 8446 section 6.1), and TLS takes none of it.
                break;
            }
        }
        Ok(())
    }

    /// Where answers are appended.
    pub(crate) fn answers(&mut self) -> &mut Vec<u8> {
        &mut self.plain
    }

    /// Answers that the socket has not taken, bytes.
    pub(crate) fn waiting(&self) -> usize {
        (self.plain.len() + self.protected.len()).saturating_sub(self.sent)
    }

    /// The bytes to write to the socket now.
    ///
    /// # Errors
    /// TLS that is broken.
    pub(crate) fn output(&mut self) -> Result<&[u8], String> {
        let Some(session) = &mut self.tls else {
            return Ok(self.plain.get(self.sent..).unwrap_or_default());
        };
        while self.protected.len() < WIRE_HIGH {
            if !session.is_handshaking() && !self.plain.is_empty() {
                let chunk = at_once(&self.plain, &mut self.begun);
                let (before, last) = part_last(chunk);
                for part in [before, last] {
                    session.writer().write_all(part).map_err(|error| error.to_string())?;
                }
                let count = chunk.len();
                self.plain.drain(..count);
            }
            if !session.wants_write() {
                break;
            }
            while session.wants_write() {
                session.write_tls(&mut self.protected).map_err(|error| error.to_string())?;
            }
        }
        Ok(self.protected.get(self.sent..).unwrap_or_default())
    }

    /// The socket took so many bytes of it.
    pub(crate) fn sent(&mut self, count: usize) {
        let buffer = if self.tls.is_some() { &mut self.protected } else { &mut self.plain };
        self.sent = (self.sent + count).min(buffer.len());
        if self.sent == buffer.len() {
            buffer.clear();
            buffer.shrink_to(COMPACT_BYTES);
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES && self.sent * 2 >= buffer.len() {
            buffer.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Forgets what was not sent.
    pub(crate) fn forget(&mut self) {
        self.plain = Vec::new();
        self.begun = 0;
        self.protected = Vec::new();
        self.sent = 0;
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&mut self) {
        if let Some(session) = &mut self.tls {
            session.send_close_notify();
        }
    }
}

/// The begin of answers that TLS takes at once: whole ones, or a part of one that is larger than that. `begun`: what is left of such a one.
fn at_once<'a>(answers: &'a [u8], begun: &mut usize) -> &'a [u8] {
    if *begun == 0
        && let Ok(Frame::Complete { len }) = frame(answers, usize::MAX)
        && len > WIRE_HIGH
    {
        *begun = len;
    }
    if *begun > 0 {
        let chunk = answers.get(..WIRE_HIGH.min(*begun)).unwrap_or(answers);
        *begun -= chunk.len();
        return chunk;
    }
    let Some(chunk) = answers.get(..WIRE_HIGH) else { return answers };
    let whole: usize = frames(chunk, usize::MAX).map(<[u8]>::len).sum();
    chunk.get(..whole).filter(|whole| !whole.is_empty()).unwrap_or(chunk)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use larix_testkit::Authority;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// TLS of a listener, and a client of it.
    fn both_ends() -> (ClientTls, ClientConnection) {
        let (authority, provider) = (Authority::new("Root"), Arc::new(ring::default_provider()));
        let issued = authority.server();
        let chain =
            CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let own = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let tls =
            ClientTls { config: Arc::new(config), peer_dn: Arc::new(|_: &ServerConnection| None::<String>) };
        (tls, ClientConnection::new(Arc::new(own), name).unwrap())
    }

    /// What a client has to send.
    fn sent(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn shake_hands(wire: &mut Wire, client: &mut ClientConnection) {
        loop {
            let bytes = sent(client);
            wire.receive(&bytes, &mut Vec::new()).unwrap();
            let answer = wire.output().unwrap().to_vec();
            wire.sent(answer.len());
            let mut rest = answer.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
            if bytes.is_empty() && answer.is_empty() {
                break;
            }
        }
    }

    #[test]
    fn the_last_answer_has_a_record_of_its_own() {
        let (tls, mut client) = both_ends();
        let mut wire = Wire::default();
        wire.begin_tls(&tls).unwrap();
        shake_hands(&mut wire, &mut client);
        // Fewer than are given to TLS at once, more, and single ones that are more.
        for (size, entries) in [(0x1_1000_u32, 1), (0x1_1000, 20), (0x3_0000, 1), (0x3_0000, 3)] {
            let [_, length @ ..] = size.to_be_bytes();
            let content = vec![7_u8; usize::try_from(size).unwrap()];
            let entry: Vec<u8> = [&[0x30_u8, 0x83][..], &length[..], &content[..]].concat();
            for _ in 0..entries {
                wire.answers().extend_from_slice(&entry);
            }
            wire.answers().extend_from_slice(b"\x30\x03\x02\x01\x01");
            let mut last = 0;
            loop {
                let out = wire.output().unwrap().to_vec();
                wire.sent(out.len());
                let mut rest = out.as_slice();
                while let [_, _, _, high, low, content @ ..] = rest {
                    last = usize::from(u16::from_be_bytes([*high, *low]));
                    rest = &content[last..];
                }
                if out.is_empty() {
                    break;
                }
            }
            // With a byte that tells the kind, and the tag (RFC 8446 section 5.2).
            assert_eq!(last, 5 + 17, "{size} {entries}");
        }
    }

    /// A client that says goodbye and goes on is heard no longer, and does not keep the loop.
    #[test]
    fn what_comes_behind_the_goodbye_is_ignored() {
        let (sender, ended) = channel();
        // A thread of its own: a loop without an end is a failure, not a test that never ends.
        std::thread::spawn(move || {
            let (tls, mut client) = both_ends();
            let (mut wire, mut plain) = (Wire::default(), Vec::new());
            wire.begin_tls(&tls).unwrap();
            shake_hands(&mut wire, &mut client);
            client.writer().write_all(b"a request").unwrap();
            client.send_close_notify();
            let mut bytes = sent(&mut client);
            // More than TLS takes at once.
            bytes.resize(bytes.len() + 20_000, 0);
            wire.receive(&bytes, &mut plain).unwrap();
            wire.receive(&[0; 64], &mut plain).unwrap();
            sender.send(plain).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)).as_deref(), Ok(&b"a request"[..]));
    }
}
