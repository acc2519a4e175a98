//! A blocking connection: requests out, responses in.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{Frame, MessageId, Response, ResponseMessage, frame, limits};
use larix_sasl::scram::ClientBinding;

use super::error::ClientError;
use super::tls::{self, TlsOptions, TlsStream};

/// Where `ldapi:///` leads.
const DEFAULT_SOCKET: &str = "/var/run/slapd/ldapi";
const READ_SIZE: usize = 64 * 1024;

pub(super) struct Connection {
    stream: Stream,
    /// The name that the server's certificate must have.
    host: String,
    /// `SASL_CBINDING`
    wanted_binding: Option<String>,
    buffer: Vec<u8>,
    /// Where in the buffer the next response starts.
    start: usize,
    last_id: u32,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
    /// Between a socket and the TLS over it.
    Lost,
}

impl Connection {
    /// Connects to the first of some servers that answers.
    pub(super) fn open(
        urls: &[LdapUrl],
        timeout: Option<Duration>,
        tls: &TlsOptions,
    ) -> Result<Self, ClientError> {
        let mut last = ClientError::Usage("no server is given".to_owned());
        for url in urls {
            match connect(url, timeout, tls) {
                Ok(stream) => {
                    let host = host(url).to_owned();
                    let wanted_binding = tls.channel_binding().map(str::to_owned);
                    return Ok(Self {
                        stream,
                        host,
                        wanted_binding,
                        buffer: Vec::new(),
                        start: 0,
                        last_id: 0,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// TLS from here on: StartTLS was answered with success.
    pub(super) fn secure(&mut self, tls: &TlsOptions) -> Result<(), ClientError> {
        if self.start < self.buffer.len() {
            // Somebody may have put them there, for us to take them for protected ones.
            return Err(ClientError::Unexpected("bytes behind the answer to StartTLS"));
        }
        self.stream = match std::mem::replace(&mut self.stream, Stream::Lost) {
            Stream::Tcp(socket) => Stream::Tls(Box::new(tls.secure(socket, &self.host)?)),
            other => other,
        };
        Ok(())
    }

    pub(super) fn is_secure(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// What ties a SASL exchange to this connection's TLS.
    pub(super) fn channel_binding(&self) -> Result<ClientBinding, ClientError> {
        match &self.stream {
            Stream::Tls(stream) => tls::channel_binding(&stream.conn, self.wanted_binding.as_deref()),
            _ => Err(ClientError::Usage("-PLUS binds to TLS: use ldaps:// or -Z".to_owned())),
        }
    }

    pub(super) fn next_id(&mut self) -> MessageId {
        self.last_id += 1;
        MessageId(self.last_id)
    }

    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), ClientError> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(request),
            Stream::Unix(stream) => stream.write_all(request),
            Stream::Tls(stream) => stream.write_all(request).and_then(|()| stream.flush()),
            Stream::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
        .map_err(ClientError::Io)
    }

    /// The next response. A notice of disconnection is an error.
    pub(super) fn receive(&mut self) -> Result<ResponseMessage<'_>, ClientError> {
        let len = loop {
            let waiting = self.buffer.get(self.start..).unwrap_or_default();
            match frame(waiting, limits::PDU_CEILING)? {
                Frame::Complete { len } => break len,
                Frame::Incomplete { needed } => self.fill(needed)?,
            }
        };
        let start = self.start;
        self.start += len;
        let pdu = self.buffer.get(start..self.start).unwrap_or_default();
        let message = Response::decode_message(pdu)?;
        match message.response {
            Response::Extended { result, .. } if message.id == MessageId(0) => {
                Err(ClientError::Disconnected(result.to_owned()))
            }
            _ => Ok(message),
        }
    }

    /// Reads until `needed` bytes wait.
    fn fill(&mut self, needed: usize) -> Result<(), ClientError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        while self.buffer.len() < needed {
            let held = self.buffer.len();
            self.buffer.resize(held + READ_SIZE, 0);
            let space = self.buffer.get_mut(held..).unwrap_or_default();
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(space),
                Stream::Unix(stream) => stream.read(space),
                Stream::Tls(stream) => stream.read(space),
                Stream::Lost => Ok(0),
            };
            let count = match read {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(ClientError::Io(error)),
            };
            self.buffer.truncate(held + count);
            if count == 0 {
                return Err(ClientError::Closed);
            }
        }
        Ok(())
    }
}

fn host(url: &LdapUrl) -> &str {
    if url.host.is_empty() { "localhost" } else { &url.host }
}

fn connect(url: &LdapUrl, timeout: Option<Duration>, tls: &TlsOptions) -> Result<Stream, ClientError> {
    let failed = |source| ClientError::Connect { url: url.to_string(), source };
    match url.scheme {
        UrlScheme::Ldapi => {
            let path = if url.host.is_empty() { DEFAULT_SOCKET } else { &url.host };
            UnixStream::connect(path).map(Stream::Unix).map_err(failed)
        }
        UrlScheme::Ldap => connect_tcp(url, 389, timeout).map(Stream::Tcp).map_err(failed),
        UrlScheme::Ldaps => {
            let socket = connect_tcp(url, 636, timeout).map_err(failed)?;
            Ok(Stream::Tls(Box::new(tls.secure(socket, host(url))?)))
        }
        _ => {
            Err(ClientError::Usage(format!("{url}: this client speaks ldap://, ldaps:// and ldapi:// only")))
        }
    }
}

fn connect_tcp(url: &LdapUrl, port: u16, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let port = url.effective_port().unwrap_or(port);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host(url), port).to_socket_addrs()? {
        let connected = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
