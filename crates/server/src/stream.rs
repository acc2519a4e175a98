//! Sockets of either kind: as they are accepted, and as a worker's loop has them.

use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A socket just accepted, not yet registered with a loop.
#[derive(Debug)]
pub(crate) enum AcceptedStream {
    Tcp(StdTcpStream),
    Unix(StdUnixStream),
}

impl AcceptedStream {
    /// The descriptor, as the log shows it.
    pub(crate) fn as_raw_fd(&self) -> i32 {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Sends what fits the socket's buffer at once, and closes. A client that is gone does not hear it.
    pub(crate) fn say_goodbye(self, notice: &[u8]) {
        let _ = match self {
            Self::Tcp(mut stream) => stream.write(notice),
            Self::Unix(mut stream) => stream.write(notice),
        };
    }
}

/// A socket to write to as long as it takes something.
pub(crate) struct Writer<'s>(pub(crate) &'s Stream);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that knows whether it has taken anything, also where it takes no more then.
pub(crate) struct Noting<W> {
    inner: W,
    pub(crate) has_taken: bool,
}

impl<W> Noting<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, has_taken: false }
    }

    fn note(&mut self, written: io::Result<usize>) -> io::Result<usize> {
        self.has_taken |= matches!(written, Ok(count) if count > 0);
        written
    }
}

impl<W: io::Write> io::Write for Noting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        self.note(written)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let written = self.inner.write_vectored(parts);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A registered socket of either kind.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn register(stream: AcceptedStream) -> io::Result<Self> {
        match stream {
            AcceptedStream::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                TcpStream::from_std(stream).map(Self::Tcp)
            }
            AcceptedStream::Unix(stream) => {
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream).map(Self::Unix)
            }
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(crate) fn try_write_vectored(&self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(parts),
            Self::Unix(stream) => stream.try_write_vectored(parts),
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    /// Whether something has come that nobody has read: asks the kernel, whatever the loop knows.
    pub(crate) fn has_input(&self) -> bool {
        let mut first = [MaybeUninit::<u8>::uninit()];
        let peeked = match self {
            Self::Tcp(stream) => SockRef::from(stream).peek(&mut first),
            Self::Unix(stream) => SockRef::from(stream).peek(&mut first),
        };
        peeked.is_ok_and(|count| count > 0)
    }

    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(context),
            Self::Unix(stream) => stream.poll_write_ready(context),
        }
    }
}
