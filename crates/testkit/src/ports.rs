//! Loopback ports for servers that cannot say which port the kernel gave them, or whose address has to be known before they start.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType};

/// Below the range from which the kernel takes ports for connections and for port 0: in that range, a port that was free a
/// moment ago may be another test's connection or listener when the server binds it.
const PORTS: Range<u16> = 15_000..32_000;
/// How far apart processes begin to look: more than one needs.
const PORTS_A_PROCESS: u32 = 97;

/// Where this process looks on, and the locks on the ports that it has.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { next: None, locks: Vec::new() });

struct Taken {
    next: Option<u16>,
    locks: Vec<File>,
}

/// A loopback port without a listener, which no other call gives out while this process runs.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    let mut state = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut port = state.next.unwrap_or_else(first);
    for _ in PORTS {
        let candidate = port;
        port = if candidate + 1 < PORTS.end { candidate + 1 } else { PORTS.start };
        state.next = Some(port);
        if let Some(lock) = lock(candidate).filter(|_| is_unused(candidate)) {
            state.locks.push(lock);
            return candidate;
        }
    }
    panic!("no loopback port of {PORTS:?} is free");
}

/// Different ports, each as [`free_port`] gives it.
///
/// # Panics
/// As [`free_port`].
pub fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| free_port()).collect()
}

/// Processes that run at the same time begin at different ports.
fn first() -> u16 {
    let places = u32::from(PORTS.end - PORTS.start);
    let place = std::process::id().wrapping_mul(PORTS_A_PROCESS) % places;
    PORTS.start + u16::try_from(place).unwrap_or_default()
}

/// Whether nobody listens there. It does not listen itself: a child that another thread starts at this moment has the socket until it
/// runs its program, and a server could not have the port meanwhile.
fn is_unused(port: u16) -> bool {
    let bind = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
    };
    bind().is_ok()
}

/// The right to a port among the processes of one user that test; it ends with the process.
fn lock(port: u16) -> Option<File> {
    let folder =
        std::env::temp_dir().join(format!("larix-test-ports-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let path = folder.join(port.to_string());
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once_also_after_it_was_closed() {
        let ports = free_ports(50);
        let more = free_ports(50);
        assert!(ports.iter().all(|port| PORTS.contains(port) && !more.contains(port)), "{ports:?} {more:?}");
        for port in ports {
            assert!(lock(port).is_none(), "{port} is not locked");
        }
    }
}
