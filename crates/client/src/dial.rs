//! For event loops: sockets that connect without waiting, their options, and names that are looked up on another thread.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

/// When the system asks whether the other side is still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// Seconds of silence before the first probe; 0: the system's.
    pub idle: u32,
    /// Probes without an answer; 0: the system's.
    pub probes: u32,
    /// Seconds between probes; 0: the system's.
    pub interval: u32,
}

impl KeepAlive {
    /// As configurations have it, `idle:probes:interval`; a part that is empty is 0. `None`: it is not three numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Option<Vec<u32>> =
            text.split(':').map(|part| if part.is_empty() { Some(0) } else { part.parse().ok() }).collect();
        let Some([idle, probes, interval]) = parts.as_deref() else { return None };
        Some(Self { idle: *idle, probes: *probes, interval: *interval })
    }
}

/// A name to be looked up: the number of the connection that it is for, the name, and the port.
pub type HostLookUp = (u64, String, u16);

/// Starts a thread that looks names up for an event loop, which must not wait. `tell` gets what was found for each number. The thread ends
/// with the sender, or when `tell` answers that nobody listens any more.
///
/// # Errors
/// The system has no thread to give.
pub fn look_up_beside(
    name: &str,
    tell: impl Fn(u64, io::Result<Vec<SocketAddr>>) -> bool + Send + 'static,
) -> io::Result<Sender<HostLookUp>> {
    let (sender, look_ups) = channel::<HostLookUp>();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        for (number, host, port) in look_ups {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            if !tell(number, found) {
                return;
            }
        }
    })?;
    Ok(sender)
}

/// Begins to connect to an address. The socket is writable once it is connected, or has failed.
///
/// # Errors
/// Those of the system: no socket, an option that it refuses, an address that cannot be reached.
pub fn begin_tcp(
    address: SocketAddr,
    keep_alive: Option<KeepAlive>,
    user_timeout: Option<Duration>,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    set_options(&socket, keep_alive, user_timeout)?;
    begin(socket, &address.into())
}

/// Sets what a connection has by TCP: nothing waits to be sent together, and how a silent peer is noticed.
pub(crate) fn set_options(
    socket: &Socket,
    keep_alive: Option<KeepAlive>,
    user_timeout: Option<Duration>,
) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if let Some(KeepAlive { idle, probes, interval }) = keep_alive {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let mut options = TcpKeepalive::new();
        if idle > 0 {
            options = options.with_time(seconds(idle));
        }
        if interval > 0 {
            options = options.with_interval(seconds(interval));
        }
        if probes > 0 {
            options = options.with_retries(probes);
        }
        socket.set_tcp_keepalive(&options)?;
    }
    if user_timeout.is_some() {
        socket.set_tcp_user_timeout(user_timeout)?;
    }
    Ok(())
}

/// Begins to connect to a local socket.
///
/// # Errors
/// Those of the system.
pub fn begin_unix(path: &str) -> io::Result<Socket> {
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
