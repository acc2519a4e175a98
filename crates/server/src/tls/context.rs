//! What all TLS connections of the server share, and what a finished handshake says.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{ServerConfig, ServerConnection};

use super::TlsFacts;

/// The server's side of every handshake. Replaced as a whole: connections that stand keep what they began with.
#[derive(Debug, Default)]
pub struct TlsContext {
    current: ArcSwapOption<TlsState>,
}

/// Certificate, key and rules as one configuration and its files gave them.
#[derive(Debug)]
pub struct TlsState {
    config: Arc<ServerConfig>,
}

impl TlsContext {
    /// Whether a certificate is there, so that StartTLS and `ldaps://` can be had.
    pub fn is_available(&self) -> bool {
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
}

impl TlsState {
    pub(super) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// What a finished handshake established.
    pub(super) fn facts(&self, _connection: &ServerConnection) -> TlsFacts {
        TlsFacts::default()
    }
}
