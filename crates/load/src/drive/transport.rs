//! Bytes to and from a server: TCP, a local socket, or TLS over TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, Error as TlsError, RootCertStore};

use super::any_certificate::AnyCertificate;
use super::{Address, Security, Server, Trust};

/// How long connecting, a handshake and a bind may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Tls>),
}

#[derive(Debug)]
pub(super) struct Tls {
    socket: TcpStream,
    session: ClientConnection,
    /// Bytes that were decrypted and not yet read.
    decrypted: usize,
}

/// What connections to one server have in common.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    pub(super) server: Server,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Dialer {
    /// # Errors
    /// Authorities that cannot be read, a name that no certificate can carry, TLS over a local socket.
    pub(super) fn new(server: &Server) -> anyhow::Result<Self> {
        let tls = match &server.security {
            Security::None => None,
            Security::Tls(trust) | Security::StartTls(trust) => {
                if matches!(server.address, Address::Unix(_)) {
                    bail!("{server}: TLS over a local socket is not driven");
                }
                let name = ServerName::try_from(trust.name.clone())
                    .with_context(|| format!("{:?} is no name of a server", trust.name))?;
                Some((Arc::new(configuration(trust)?), name))
            }
        };
        Ok(Self { server: server.clone(), tls })
    }

    /// Connects; the socket blocks.
    pub(super) fn connect(&self) -> anyhow::Result<Transport> {
        let server = &self.server;
        let address = match &server.address {
            Address::Unix(path) => {
                let socket =
                    UnixStream::connect(path).with_context(|| format!("cannot connect to {server}"))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                return Ok(Transport::Unix(socket));
            }
            Address::Tcp(address) => address,
        };
        let socket = TcpStream::connect_timeout(address, PATIENCE)
            .with_context(|| format!("cannot connect to {server}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        match &server.security {
            Security::Tls(_) => self.secure(Transport::Tcp(socket)),
            Security::None | Security::StartTls(_) => Ok(Transport::Tcp(socket)),
        }
    }

    /// Makes the TLS handshake on a socket that blocks.
    pub(super) fn secure(&self, transport: Transport) -> anyhow::Result<Transport> {
        let Transport::Tcp(mut socket) = transport else { bail!("{}: TLS needs TCP", self.server) };
        let mut session = self.session()?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| refused(&self.server, &error))?;
        }
        Ok(Transport::Tls(Box::new(Tls { socket, session, decrypted: 0 })))
    }

    /// Starts to connect; nothing blocks. What is written is sent as soon as the connection stands.
    pub(super) fn start(&self) -> anyhow::Result<Transport> {
        let failed = || format!("cannot connect to {}", self.server);
        let address = match &self.server.address {
            // A local socket is connected at once or not at all.
            Address::Unix(path) => {
                let socket = UnixStream::connect(path).with_context(failed)?;
                socket.set_nonblocking(true)?;
                return Ok(Transport::Unix(socket));
            }
            Address::Tcp(address) => address,
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, None).with_context(failed)?;
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error).with_context(failed),
        }
        let socket = TcpStream::from(socket);
        match &self.server.security {
            Security::None => Ok(Transport::Tcp(socket)),
            Security::Tls(_) => {
                Ok(Transport::Tls(Box::new(Tls { socket, session: self.session()?, decrypted: 0 })))
            }
            Security::StartTls(_) => bail!("binds that reconnect cannot use StartTLS: give ldaps://"),
        }
    }

    fn session(&self) -> anyhow::Result<ClientConnection> {
        let Some((configuration, name)) = &self.tls else { bail!("{}: no TLS is configured", self.server) };
        let mut session = ClientConnection::new(Arc::clone(configuration), name.clone())?;
        session.set_buffer_limit(None);
        Ok(session)
    }
}

fn configuration(trust: &Trust) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let Some(path) = &trust.authorities else {
        let any = Arc::new(AnyCertificate::new(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path)
        .with_context(|| format!("cannot read the authorities' certificates {}", path.display()))?;
    for certificate in certificates {
        let certificate = certificate.with_context(|| format!("{}", path.display()))?;
        // A bundle may hold what webpki does not take; the others are enough.
        let _ = roots.add(certificate);
    }
    anyhow::ensure!(!roots.is_empty(), "{} holds no certificate of an authority", path.display());
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Why there is no TLS, and which option changes that.
fn refused(server: &Server, error: &io::Error) -> anyhow::Error {
    let remedy = match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; --insecure takes any certificate",
        Some(TlsError::InvalidCertificate(_)) => {
            "; --ca names a file with the certificate of its authority, --insecure takes any certificate"
        }
        Some(TlsError::InvalidMessage(_)) => {
            "; the server speaks no TLS there: is it ldap://, with -Z for StartTLS?"
        }
        _ => "",
    };
    anyhow!("the TLS handshake with {server}: {error}{remedy}")
}

impl Transport {
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_nonblocking(true),
            Self::Unix(socket) => socket.set_nonblocking(true),
            Self::Tls(tls) => tls.socket.set_nonblocking(true),
        }
    }

    /// Whether there is something to read that the socket will not announce.
    pub(super) fn has_more(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.decrypted > 0)
    }

    /// Whether bytes that were taken by `write` are still to be sent.
    pub(super) fn holds_output(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.session.wants_write())
    }

    /// Lets closing cut the connection at once: no TIME_WAIT is left, which would use up the ports of a client that
    /// reconnects tens of thousands of times.
    pub(super) fn abort_on_close(&self) -> io::Result<()> {
        match self {
            Self::Unix(_) => Ok(()),
            Self::Tcp(_) | Self::Tls(_) => {
                Ok(rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO))?)
            }
        }
    }

    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
            Self::Tls(tls) => {
                let written = tls.session.writer().write(bytes)?;
                tls.flush()?;
                Ok(written)
            }
        }
    }

    /// Sends what `write` took and the socket did not.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }
}

impl Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decrypted == 0 {
            if self.session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            let state = self.session.process_new_packets().map_err(io::Error::other)?;
            self.decrypted = state.plaintext_bytes_to_read();
            self.flush()?;
            if self.decrypted == 0 && state.peer_has_closed() {
                return Ok(0);
            }
        }
        let count = self.session.reader().read(buffer)?;
        self.decrypted = self.decrypted.saturating_sub(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The connection does not stand yet.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.socket.as_fd(),
        }
    }
}

/// The address that `host` and `port` stand for.
///
/// # Errors
/// A name that has none.
pub fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("{host:?} cannot be resolved"))?;
    found.next().with_context(|| format!("{host:?} has no address"))
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn a_refused_handshake_names_the_option() {
        let shown = |error: TlsError| {
            let server = Server::from(SocketAddr::from(([127, 0, 0, 1], 636)));
            refused(&server, &io::Error::other(error)).to_string()
        };
        let unknown = shown(TlsError::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(unknown.contains("127.0.0.1:636") && unknown.contains("--ca"), "{unknown}");
        let other = shown(TlsError::InvalidCertificate(CertificateError::NotValidForName));
        assert!(other.contains("--insecure") && !other.contains("--ca"), "{other}");
        let no_tls = shown(TlsError::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(no_tls.contains("-Z"), "{no_tls}");
    }
}
