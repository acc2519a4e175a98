//! TLS towards the engine, by libpq's parameters of an address: `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use larix_client::{SettingNames, TlsOptions, fault_after_handshake};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::client::TlsStream as Session;

use crate::tls::{TlsFault, TlsSettings};

/// What tokio-postgres says of a server that answers "no" to the question for TLS.
const NO_TLS_THERE: &str = "server does not support TLS";

const NAMES: SettingNames<'static> = SettingNames {
    trust: "sslrootcert",
    name: "sslmode=verify-ca accepts any name",
    certificate: "sslcert",
    key: "sslkey",
    client_authorities: "ssl_ca_file",
    common: "its ssl_ciphers and ssl_ecdh_curve have to allow what is usual with TLS 1.2 or 1.3",
    versions: "its ssl_min_protocol_version and ssl_max_protocol_version have to allow TLS 1.2 or 1.3",
    no_tls: "is a PostgreSQL at this port?",
    silent: "Is a PostgreSQL at this port?",
};

/// What the address says of TLS, as it was given.
#[derive(Debug, Default)]
pub(crate) struct TlsParameters {
    pub(crate) mode: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

impl TlsParameters {
    fn names_a_file(&self) -> bool {
        self.root.is_some() || self.certificate.is_some() || self.key.is_some()
    }

    /// None: in the clear. That is the default for an engine on this machine; for others it has to be said.
    ///
    /// # Errors
    /// Parameters that do not fit together.
    pub(crate) fn settings(self, is_local: bool) -> Result<Option<TlsSettings>, String> {
        let names_a_file = self.names_a_file();
        let Self { mode, root, certificate, key } = self;
        if key.is_some() && certificate.is_none() {
            return Err("sslkey without sslcert: name the certificate of this key in sslcert".to_owned());
        }
        // As PostgreSQL 16 calls the authorities that the machine believes.
        let is_system = root.as_deref() == Some("system");
        let root = root.filter(|_| !is_system);
        let mut options = Vec::new();
        let mut any_name = false;
        match mode.as_deref() {
            None if is_local && !names_a_file => return Ok(None),
            Some("disable") if names_a_file => {
                return Err(
                    "sslmode=disable with sslrootcert, sslcert or sslkey: leave these out, or say sslmode=verify-full"
                        .to_owned(),
                );
            }
            Some("disable") => return Ok(None),
            None | Some("verify-full") => options.push(("tls_reqsan", "try")),
            Some(weak @ ("require" | "verify-ca")) if is_system => {
                return Err(format!(
                    "sslmode={weak} with sslrootcert=system would accept a certificate of anybody: say sslmode=verify-full, \
                     or name the file of the engine's authority in sslrootcert"
                ));
            }
            // As libpq does: who names an authority wants it looked at.
            Some("require") if root.is_none() => options.push(("tls_reqcert", "never")),
            Some("require") => any_name = true,
            Some("verify-ca") if root.is_none() => {
                return Err(
                    "sslmode=verify-ca needs sslrootcert=FILE with the certificate of the engine's authority"
                        .to_owned(),
                );
            }
            Some("verify-ca") => any_name = true,
            Some(weak @ ("allow" | "prefer")) => {
                return Err(format!(
                    "sslmode={weak} may end in clear text: say verify-full, verify-ca or require, or disable on a trusted network"
                ));
            }
            Some(other) => {
                return Err(format!(
                    "sslmode={other} is unknown: one of disable, require, verify-ca, verify-full"
                ));
            }
        }
        let files = [("tls_cacert", &root), ("tls_cert", &certificate), ("tls_key", &key)];
        options.extend(files.into_iter().filter_map(|(name, file)| Some((name, file.as_deref()?))));
        let options = TlsOptions::new(options);
        let options = if any_name { options.with_any_name() } else { options };
        Ok(Some(TlsSettings { options, root, names: &NAMES }))
    }
}

/// What a failed call came to, if TLS is the reason.
pub(crate) fn fault_of(error: &tokio_postgres::Error) -> Option<TlsFault> {
    let source = error.source()?;
    if let Some(fault) = source.downcast_ref::<TlsFault>() {
        return Some(fault.clone());
    }
    if source.to_string() == NO_TLS_THERE {
        let text = "the server has no TLS: set ssl = on in its postgresql.conf, with a certificate, or say sslmode=disable on a \
                    trusted network";
        return Some(TlsFault::refusal(text));
    }
    fault_after_handshake(source.downcast_ref::<io::Error>()?, &NAMES).map(TlsFault::refusal)
}

/// Makes the TLS of each connection.
#[derive(Clone, Debug)]
pub(crate) struct EngineTls(pub(crate) Option<Arc<TlsSettings>>);

/// The TLS of one connection.
pub(crate) struct OneTls {
    /// None: it is never asked to make a handshake.
    settings: Option<Arc<TlsSettings>>,
    host: String,
}

impl MakeTlsConnect<Socket> for EngineTls {
    type Stream = EngineStream;
    type TlsConnect = OneTls;
    type Error = TlsFault;

    fn make_tls_connect(&mut self, host: &str) -> Result<OneTls, TlsFault> {
        Ok(OneTls { settings: self.0.clone(), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for OneTls {
    type Stream = EngineStream;
    type Error = TlsFault;
    type Future = Pin<Box<dyn Future<Output = Result<EngineStream, TlsFault>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(self.secure(socket))
    }
}

impl OneTls {
    async fn secure(self, socket: Socket) -> Result<EngineStream, TlsFault> {
        let Self { settings, host } = self;
        let settings = settings.ok_or_else(|| TlsFault::refusal("no TLS is configured"))?;
        settings.secure(socket, &host, &[]).await.map(EngineStream)
    }
}

/// A connection with TLS.
pub(crate) struct EngineStream(Session<Socket>);

impl TlsStream for EngineStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EngineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for EngineStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
