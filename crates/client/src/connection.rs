//! A blocking connection: requests out, responses in.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{MessageId, ResponseMessage};
use larix_sasl::scram::ClientBinding;
use rustls::pki_types::CertificateDer;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::dial::{self, KeepAlive};
use crate::error::ClientError;
use crate::fault::{self, SettingNames};
use crate::messages::{MessageLayer, MessageLimits};
use crate::stop::Stop;
use crate::tls::{self, TlsOptions, TlsStream};

const READ_SIZE: usize = 64 * 1024;

/// How a connection is made and kept.
#[derive(Clone, Debug, Default)]
pub struct ConnectionOptions {
    /// How long one address may take to connect; none: as long as the system says.
    pub connect_timeout: Option<Duration>,
    pub keep_alive: Option<KeepAlive>,
    /// How long what was sent may stay unacknowledged (TCP_USER_TIMEOUT).
    pub user_timeout: Option<Duration>,
    /// Calls connecting and waiting off.
    pub stop: Stop,
}

/// A connection to one server, plain or under TLS.
pub struct Connection {
    stream: Stream,
    /// The name that the server's certificate must have.
    host: String,
    /// `SASL_CBINDING`
    wanted_binding: Option<String>,
    stop: Stop,
    messages: MessageLayer,
    buffer: Box<[u8]>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
    /// Between a socket and the TLS over it.
    Lost,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to the first of some servers that answers.
    pub(crate) fn open(
        urls: &[LdapUrl],
        options: &ConnectionOptions,
        tls: &TlsOptions,
    ) -> Result<Self, ClientError> {
        let mut last = ClientError::Usage("no server is given".to_owned());
        for url in urls {
            match connect(url, options, tls) {
                Ok(stream) => {
                    let host = url.effective_host().to_owned();
                    let wanted_binding = tls.channel_binding().map(str::to_owned);
                    return Ok(Self {
                        stream,
                        host,
                        wanted_binding,
                        stop: options.stop.clone(),
                        messages: MessageLayer::new(MessageLimits::default()),
                        buffer: vec![0; READ_SIZE].into_boxed_slice(),
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// TLS from here on: StartTLS was answered with success.
    pub(crate) fn secure(&mut self, tls: &TlsOptions) -> Result<(), ClientError> {
        self.stream = match std::mem::replace(&mut self.stream, Stream::Lost) {
            Stream::Tcp(socket) => Stream::Tls(Box::new(tls.secure(socket, &self.host)?)),
            other => other,
        };
        Ok(())
    }

    /// The server's name as it was asked for.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Whether a third party between here and the server cannot listen: TLS, or a local socket.
    pub fn is_private(&self) -> bool {
        self.is_secure() || matches!(self.stream, Stream::Unix(_))
    }

    pub fn is_secure(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// What ties a SASL exchange to this connection's TLS.
    pub(crate) fn channel_binding(
        &self,
        end_point: fn(&CertificateDer<'_>) -> Option<Vec<u8>>,
    ) -> Result<ClientBinding, ClientError> {
        match &self.stream {
            Stream::Tls(stream) => {
                tls::channel_binding(&stream.conn, self.wanted_binding.as_deref(), end_point)
            }
            _ => Err(ClientError::Usage("-PLUS binds to TLS: use ldaps:// or StartTLS".to_owned())),
        }
    }

    /// Sends a request.
    pub(crate) fn send(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, MessageId),
    ) -> Result<MessageId, ClientError> {
        let sent = self.messages.request(None, None, encode);
        let id = sent.map_err(|why| ClientError::Usage(why.to_string()))?;
        let request = self.messages.output();
        let written = match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(request),
            Stream::Unix(stream) => stream.write_all(request),
            Stream::Tls(stream) => stream.write_all(request).and_then(|()| stream.flush()),
            Stream::Lost => Err(io::ErrorKind::NotConnected.into()),
        };
        self.messages.sent(request.len());
        written.map_err(|error| self.lost(error))?;
        Ok(id)
    }

    /// Why nothing can be sent any more. With TLS 1.3 a server says only after the handshake what it has against a client's
    /// certificate, and closes: what it said may wait to be read.
    fn lost(&mut self, error: io::Error) -> ClientError {
        let mut why = fault::later(&error, &SettingNames::LDAP);
        let is_closed = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        if let (Stream::Tls(stream), true) = (&mut self.stream, is_closed) {
            while why.is_none() && stream.conn.read_tls(&mut stream.sock).is_ok_and(|count| count > 0) {
                why = stream
                    .conn
                    .process_new_packets()
                    .err()
                    .map(|error| fault::words(&error, &SettingNames::LDAP));
            }
        }
        match why {
            Some(why) => ClientError::Tls { host: self.host.clone(), why },
            None => ClientError::Io(error),
        }
    }

    /// This side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Tls(stream) => stream.sock.local_addr().ok(),
            Stream::Unix(_) | Stream::Lost => None,
        }
    }

    pub(crate) fn set_read_timeout(&self, time: Option<Duration>) -> Result<(), ClientError> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
            Stream::Tls(stream) => stream.sock.set_read_timeout(time),
            Stream::Lost => Ok(()),
        }
        .map_err(ClientError::Io)
    }

    /// Whether a whole response has come already.
    pub fn has_message(&self) -> bool {
        self.messages.has_answer()
    }

    /// Waits for the next response, up to so long; none: however long it takes. Whether there is one, to be received now.
    ///
    /// # Errors
    /// The connection ended.
    pub fn waits_within(&mut self, time: Option<Duration>) -> Result<bool, ClientError> {
        // A message may belong to no operation: behind it may be none that does.
        if self.messages.skip_unwanted()? {
            return Ok(true);
        }
        self.set_read_timeout(time)?;
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(ClientError::Io(error)) if is_timeout(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.messages.skip_unwanted()? {
                return Ok(true);
            }
        }
    }

    fn wait_for_message(&mut self) -> Result<(), ClientError> {
        while !self.has_message() {
            self.fill()?;
        }
        Ok(())
    }

    /// The next response. A notice of disconnection is an error.
    ///
    /// # Errors
    /// The connection ended, or what came answers nothing that was asked.
    pub fn receive(&mut self) -> Result<ResponseMessage<'_>, ClientError> {
        loop {
            self.wait_for_message()?;
            // A message may belong to no operation.
            if self.messages.skip_unwanted()? {
                break;
            }
        }
        let answer = self.messages.next_answer()?;
        answer.map(|answer| answer.message).ok_or(ClientError::Closed)
    }

    /// Reads once.
    fn fill(&mut self) -> Result<(), ClientError> {
        loop {
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut self.buffer),
                Stream::Unix(stream) => stream.read(&mut self.buffer),
                Stream::Tls(stream) => stream.read(&mut self.buffer),
                Stream::Lost => Ok(0),
            };
            match read {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => {
                    self.messages.receive(self.buffer.get(..count).unwrap_or_default());
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(match fault::later(&error, &SettingNames::LDAP) {
                        Some(why) => ClientError::Tls { host: self.host.clone(), why },
                        // Of TLS: without its goodbye.
                        None if error.kind() == io::ErrorKind::UnexpectedEof => ClientError::Closed,
                        None => ClientError::Io(error),
                    });
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.forget();
    }
}

/// Whether nothing came for so long as was waited. `TimedOut` is another matter: the other end answers no probe any more.
fn is_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn connect(url: &LdapUrl, options: &ConnectionOptions, tls: &TlsOptions) -> Result<Stream, ClientError> {
    let failed = |source| ClientError::Connect { url: url.to_string(), source };
    match url.scheme {
        UrlScheme::Ldapi => {
            let path = url.socket_path();
            connect_unix(path, options)
                .map(Stream::Unix)
                .map_err(|error| failed(name_socket(&error, url, path)))
        }
        UrlScheme::Ldap => connect_tcp(url, options).map(Stream::Tcp).map_err(failed),
        UrlScheme::Ldaps => {
            let socket = connect_tcp(url, options).map_err(failed)?;
            // A server that says nothing must not hold the handshake for ever.
            socket.set_read_timeout(options.connect_timeout).map_err(failed)?;
            let stream = tls.secure(socket, url.effective_host())?;
            stream.sock.set_read_timeout(None).map_err(failed)?;
            Ok(Stream::Tls(Box::new(stream)))
        }
        _ => {
            Err(ClientError::Usage(format!("{url}: this client speaks ldap://, ldaps:// and ldapi:// only")))
        }
    }
}

/// Says which socket it was, and which one was meant where the path stands in the place of the DN.
fn name_socket(error: &io::Error, url: &LdapUrl, path: &str) -> io::Error {
    let meant = match url.dn.as_str() {
        dn if dn.is_empty() || dn.contains('=') => String::new(),
        dn if !url.host.is_empty() => {
            let meant = format!("{}/{dn}", url.host).replace('/', "%2F");
            format!("; did you mean ldapi://{meant}?")
        }
        dn if dn.contains('/') => format!("; did you mean ldapi://%2F{}?", dn.replace('/', "%2F")),
        _ => String::new(),
    };
    io::Error::new(error.kind(), format!("socket {path}: {error}{meant}"))
}

fn connect_unix(path: &str, options: &ConnectionOptions) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    options.stop.watch(&socket)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}

fn connect_tcp(url: &LdapUrl, options: &ConnectionOptions) -> io::Result<TcpStream> {
    let port = url.effective_port().unwrap_or_default();
    let name = url.effective_host().trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match connect_address(address, options) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_address(address: SocketAddr, options: &ConnectionOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    options.stop.watch(&socket)?;
    match options.connect_timeout {
        Some(timeout) => socket.connect_timeout(&address.into(), timeout)?,
        None => socket.connect(&address.into())?,
    }
    dial::set_options(&socket, options.keep_alive, options.user_timeout)?;
    Ok(socket.into())
}
