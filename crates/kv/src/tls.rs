//! TLS towards engines.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use larix_client::{ClientError, SettingNames, TlsOptions};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How connections are secured.
#[derive(Debug)]
pub(crate) struct TlsSettings {
    pub(crate) options: TlsOptions,
    /// The file with the authorities; none: those that this machine trusts.
    pub(crate) root: Option<String>,
    /// What the settings are called in an address.
    pub(crate) names: &'static SettingNames<'static>,
}

impl TlsSettings {
    fn fault(&self, fault: &ClientError) -> TlsFault {
        let SettingNames { trust, certificate, key, .. } = self.names;
        TlsFault::refusal(match fault {
            ClientError::Usage(_) if self.root.is_none() => {
                format!("this machine has no file with authorities: name the one of the engine in {trust}")
            }
            other => format!("{trust}, {certificate} or {key}: {other}"),
        })
    }

    fn trust(&self) -> String {
        let trust = self.names.trust;
        match &self.root {
            Some(file) => format!("{trust} (now {file})"),
            None => format!("{trust} (without it, authorities are those that this machine trusts)"),
        }
    }

    /// Makes the handshake with `host`. `protocols`: what is to be spoken in it, if the engine has to agree to that.
    pub(crate) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
        protocols: &[&[u8]],
    ) -> Result<TlsStream<S>, TlsFault> {
        let handshake = self.options.handshake().map_err(|error| self.fault(&error))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|_| TlsFault::refusal(format!("\"{host}\" is no name that a certificate can have")))?;
        let mut config = Arc::clone(handshake.config());
        if !protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        }
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(session) => Ok(session),
            Err(error) => {
                let names = SettingNames { trust: &self.trust(), ..*self.names };
                let is_interruption = !error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
                Err(TlsFault { why: handshake.fault(&error, host, &names), is_interruption })
            }
        }
    }
}

/// Why there is no TLS with the engine.
#[derive(Clone, Debug)]
pub(crate) struct TlsFault {
    pub(crate) why: String,
    /// The connection ended in the handshake, or nothing came: that may pass by itself.
    pub(crate) is_interruption: bool,
}

impl TlsFault {
    pub(crate) fn refusal(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_interruption: false }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for TlsFault {}
