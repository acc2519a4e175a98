//! Sockets: connecting without waiting, reading and writing what there is.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use larix_client::KeepAlive;
use rustix::event::epoll::{self, EventFlags};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::settings::BindSettings;

/// A socket that the poll knows.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) socket: Socket,
    token: u64,
    /// Reading, writing.
    interest: (bool, bool),
}

impl Polled {
    /// Adds a socket to the poll.
    ///
    /// # Errors
    /// The poll takes no more.
    pub(crate) fn new(
        poll: &impl std::os::fd::AsFd,
        socket: Socket,
        token: u64,
        reads: bool,
        writes: bool,
    ) -> io::Result<Self> {
        epoll::add(poll, &socket, epoll::EventData::new_u64(token), flags(reads, writes))?;
        Ok(Self { socket, token, interest: (reads, writes) })
    }

    pub(crate) fn set_interest(&mut self, poll: &impl std::os::fd::AsFd, reads: bool, writes: bool) {
        if self.interest != (reads, writes) {
            self.interest = (reads, writes);
            // It fails for a socket that the poll does not know; all are added when they are made.
            let _ = epoll::modify(
                poll,
                &self.socket,
                epoll::EventData::new_u64(self.token),
                flags(reads, writes),
            );
        }
    }

    /// Gives it another token.
    pub(crate) fn set_token(&mut self, poll: &impl std::os::fd::AsFd, token: u64) {
        self.token = token;
        let (reads, writes) = self.interest;
        let _ = epoll::modify(poll, &self.socket, epoll::EventData::new_u64(token), flags(reads, writes));
    }

    /// Reads once; none: nothing is there. 0 is the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        none_if_blocked(self.socket.read(buffer))
    }

    /// Writes once; none: nothing is taken now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        none_if_blocked(self.socket.write(bytes))
    }
}

fn none_if_blocked(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn flags(reads: bool, writes: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, reads);
    flags.set(EventFlags::OUT, writes);
    flags
}

/// Begins to connect to an address.
pub(crate) fn begin_tcp(address: SocketAddr, settings: &BindSettings) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(KeepAlive { idle, probes, interval }) = settings.keep_alive {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let mut wanted = TcpKeepalive::new();
        if idle > 0 {
            wanted = wanted.with_time(seconds(idle));
        }
        if interval > 0 {
            wanted = wanted.with_interval(seconds(interval));
        }
        if probes > 0 {
            wanted = wanted.with_retries(probes);
        }
        socket.set_tcp_keepalive(&wanted)?;
    }
    if settings.user_timeout.is_some() {
        socket.set_tcp_user_timeout(settings.user_timeout)?;
    }
    begin(socket, &address.into())
}

/// Begins to connect to a local socket.
pub(crate) fn begin_unix(path: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    begin(socket, &SockAddr::unix(path)?)
}

fn begin(socket: Socket, address: &SockAddr) -> io::Result<Socket> {
    match socket.connect(address) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Ok(socket)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(socket),
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}
