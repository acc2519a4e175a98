//! What all TLS connections of the server share, and what a finished handshake says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use larix_client::ciphers;
use larix_engine::time::Timestamp;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::certificate::{Certificate, SignatureHash, name_to_dn};
use super::verify::ClientRules;
use super::{ChannelBindings, TlsFacts};

/// The label of `tls-exporter` (RFC 9266 section 2).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// The server's side of every handshake. Replaced as a whole: connections that stand keep what they began with.
#[derive(Debug, Default)]
pub struct TlsContext {
    current: ArcSwapOption<TlsState>,
    /// Handshakes that were completed, those of them that resumed an older session, and those that failed.
    pub established: AtomicU64,
    pub resumed: AtomicU64,
    pub failed: AtomicU64,
}

/// Certificate, key and rules as one configuration and its files gave them.
#[derive(Debug)]
pub struct TlsState {
    config: Arc<ServerConfig>,
    end_point: Option<Vec<u8>>,
    clients: ClientRules,
}

impl TlsContext {
    pub fn new(state: Option<Arc<TlsState>>) -> Self {
        Self { current: ArcSwapOption::new(state), ..Self::default() }
    }

    /// Whether a certificate is there, so that StartTLS and `ldaps://` can be had.
    pub(crate) fn is_available(&self) -> bool {
        self.current.load().is_some()
    }

    /// What a handshake that begins now goes by.
    pub fn current(&self) -> Option<Arc<TlsState>> {
        self.current.load_full()
    }

    /// Handshakes that begin from now on go by this.
    pub fn replace(&self, state: Option<Arc<TlsState>>) {
        self.current.store(state);
    }

    pub(crate) fn count(&self, facts: Option<&TlsFacts>) {
        match facts {
            Some(facts) => {
                self.established.fetch_add(1, Ordering::Relaxed);
                self.resumed.fetch_add(facts.resumed.into(), Ordering::Relaxed);
            }
            None => {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl TlsState {
    pub(super) fn new(config: Arc<ServerConfig>, end_point: Option<Vec<u8>>, clients: ClientRules) -> Self {
        Self { config, end_point, clients }
    }

    /// What a handshake goes by.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// What to say of revocation lists whose time is over: with `TLSCRLCheck peer` or `all`, no certificate of their authorities is
    /// believed.
    pub fn lists_over(&self, now: Timestamp) -> Vec<String> {
        self.clients.lists_over(now)
    }

    /// What a finished handshake established.
    pub fn facts(&self, connection: &ServerConnection) -> TlsFacts {
        let (cipher, ssf) = connection.negotiated_cipher_suite().map_or(("unknown", 0), ciphers::describe);
        let tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let peer_dn = connection
            .peer_certificates()
            .filter(|chain| self.clients.believes(chain, UnixTime::now()))
            .and_then(|chain| name_to_dn(Certificate::parse(chain.first()?)?.subject))
            .filter(|dn| !dn.is_empty());
        let exporter = || connection.export_keying_material([0; 32], EXPORTER_LABEL, None).ok();
        TlsFacts {
            ssf,
            protocol: if tls13 { "TLSv1.3" } else { "TLSv1.2" },
            cipher,
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            peer_dn,
            bindings: ChannelBindings {
                server_end_point: self.end_point.clone(),
                exporter: if tls13 { exporter() } else { None },
                unique: None,
            },
        }
    }
}

/// `tls-server-end-point` of a certificate (RFC 5929 section 4.1).
pub fn end_point_binding(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    Some(match Certificate::parse(certificate)?.signature_hash()? {
        SignatureHash::Sha256 => Sha256::digest(certificate).to_vec(),
        SignatureHash::Sha384 => Sha384::digest(certificate).to_vec(),
        SignatureHash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}
