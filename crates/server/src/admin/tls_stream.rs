//! A socket with the server's TLS over it, for hyper.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::{TlsFacts, TlsSession};

/// Encrypted bytes read at once.
const READ_BYTES: usize = 16 * 1024;

/// The server's end of one HTTPS connection.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: TcpStream,
    session: TlsSession,
    /// Decrypted, and not taken yet from `taken` on.
    plain: Vec<u8>,
    taken: usize,
    ended: bool,
}

/// Writes as much as the socket takes.
struct Writer<'s>(&'s TcpStream);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    /// Carries out the handshake.
    ///
    /// # Errors
    /// Those of the socket and of TLS. The caller bounds the time.
    pub(super) async fn accept(socket: TcpStream, session: TlsSession) -> io::Result<(Self, TlsFacts)> {
        let mut stream = Self { socket, session, plain: Vec::new(), taken: 0, ended: false };
        let facts = std::future::poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok((stream, facts))
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TlsFacts>> {
        loop {
            let facts = ready!(self.poll_receive(context))?;
            if let Some(facts) = facts {
                return Poll::Ready(Ok(facts));
            }
            if self.ended {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Reads once from the socket; sends what TLS has to say.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<TlsFacts>>> {
        let mut space = [0; READ_BYTES];
        let mut buffer = ReadBuf::new(&mut space);
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
        if buffer.filled().is_empty() {
            self.ended = true;
            return Poll::Ready(Ok(None));
        }
        let received = self.session.receive(buffer.filled(), &mut self.plain);
        // An alert is worth a try, and no more than that; the rest of it goes with what is written next.
        let flushed = self.session.flush(&mut Writer(&self.socket));
        let received = received.map_err(io::Error::other)?;
        match flushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
            _ => {}
        }
        self.ended |= received.closed;
        Poll::Ready(Ok(received.established))
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.flush(&mut Writer(&self.socket)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let waiting = self.plain.get(self.taken..).unwrap_or(&[]);
            if !waiting.is_empty() {
                let count = waiting.len().min(out.remaining());
                out.put_slice(waiting.get(..count).unwrap_or(&[]));
                self.taken += count;
                if self.taken == self.plain.len() {
                    // Passwords came this way.
                    zeroize::Zeroize::zeroize(&mut self.plain);
                    self.taken = 0;
                }
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(context))?;
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // What was given before goes first: no more than one buffer of hyper's is held here.
        ready!(self.poll_send(context))?;
        self.session.send(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.close();
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
