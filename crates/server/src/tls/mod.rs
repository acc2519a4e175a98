//! TLS: the server's certificate and rules, a connection's session, and what a handshake established.

mod certificate;
mod context;
mod files;
mod lists;
mod session;
mod setup;
mod verify;

pub use context::{EXPORTER_LABEL, TlsContext, TlsState, end_point_binding};
pub use files::{Source, TlsError};
pub(crate) use session::{Received, TlsSession};
pub use setup::Loaded;
pub(crate) use setup::watched;

/// What is known of a connection's TLS once its handshake is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// Bits of the symmetric key: what `tls_ssf` compares.
    pub ssf: u32,
    /// As the log shows it: `TLSv1.3`.
    pub protocol: &'static str,
    /// The cipher suite in OpenSSL's spelling: `TLS_AES_256_GCM_SHA384`, `ECDHE-RSA-AES128-GCM-SHA256`.
    pub cipher: &'static str,
    /// An older session was resumed.
    pub resumed: bool,
    /// Subject of the client's certificate as an LDAP DN (RFC 4514), most specific RDN first. `None` without a
    /// certificate, and with one that did not verify (`TLSVerifyClient allow` goes on without it).
    pub peer_dn: Option<String>,
    pub bindings: ChannelBindings,
}

/// What ties a SASL exchange to this very channel (RFC 5056), as bytes without the type's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelBindings {
    /// `tls-server-end-point` (RFC 5929 section 4): the hash of the server's certificate.
    pub server_end_point: Option<Vec<u8>>,
    /// `tls-exporter` (RFC 9266): TLS 1.3 alone.
    pub exporter: Option<[u8; 32]>,
    /// `tls-unique` (RFC 5929 section 3): TLS 1.2 alone, and only where the TLS library tells it. Ours does not.
    pub unique: Option<Vec<u8>>,
}
