//! A stretch of network between two servers that can be cut, or swallow what is sent, while they run.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What happens to bytes on the way.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    Open,
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections stay and nothing arrives until the passage is opened again, as behind a router that drops packets.
    Silent,
}

/// Listens on loopback and passes on to an address that may change. Its threads end with the process.
#[derive(Debug)]
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    passage: Passage,
    target: Option<SocketAddr>,
    /// Bytes to clients until it falls silent by itself.
    left: Option<usize>,
    /// Both ends of every connection, to be closed by a cut.
    ends: Vec<TcpStream>,
}

impl Relay {
    /// A relay to nowhere yet.
    ///
    /// # Panics
    /// When loopback gives no port.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the address of a bound socket");
        let inner = Inner { passage: Passage::Open, target: None, left: None, ends: Vec::new() };
        let state = Arc::new(State { inner: Mutex::new(inner), changed: Condvar::new() });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.accept(client);
            }
        });
        Self { address, state }
    }

    /// Connections made from now on go there.
    pub fn lead_to(&self, target: SocketAddr) {
        self.state.lock().target = Some(target);
    }

    /// Falls silent when so many bytes have gone to clients.
    pub fn silent_after(&self, bytes: usize) {
        self.state.lock().left = Some(bytes);
    }

    /// Waits until it has fallen silent.
    pub fn wait_for_silence(&self) {
        let mut inner = self.state.lock();
        while inner.passage != Passage::Silent {
            inner = self.state.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn set(&self, passage: Passage) {
        let mut inner = self.state.lock();
        inner.passage = passage;
        if passage == Passage::Cut {
            for end in inner.ends.drain(..) {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
        self.state.changed.notify_all();
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, client: TcpStream) {
        let mut inner = self.lock();
        let target = inner.target.filter(|_| inner.passage != Passage::Cut);
        let Some(server) = target.and_then(|target| TcpStream::connect(target).ok()) else { return };
        let clones = || Some([client.try_clone().ok()?, server.try_clone().ok()?]);
        let (Some(kept), Some([client_reads, server_reads])) = (clones(), clones()) else { return };
        inner.ends.extend(kept);
        drop(inner);
        for (from, to, counts) in [(client_reads, server, false), (server_reads, client, true)] {
            let state = Arc::clone(self);
            thread::spawn(move || state.pass_on(from, to, counts));
        }
    }

    fn pass_on(&self, mut from: TcpStream, mut to: TcpStream, counts: bool) {
        let mut chunk = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            let mut inner = self.lock();
            if let Some(left) = inner.left.as_mut().filter(|_| counts) {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    (inner.left, inner.passage) = (None, Passage::Silent);
                    self.changed.notify_all();
                }
            }
            while inner.passage == Passage::Silent {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            drop(inner);
            if to.write_all(&chunk[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_wait_or_are_lost() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let relay = Relay::start();
        relay.lead_to(echo.local_addr().expect("an address"));
        thread::spawn(move || {
            for mut stream in echo.incoming().flatten() {
                let mut byte = [0; 1];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            }
        });
        let mut stream = TcpStream::connect(relay.address).expect("the relay");
        let mut byte = [0; 1];
        stream.write_all(b"a").expect("sent");
        stream.read_exact(&mut byte).expect("echoed");
        relay.set(Passage::Silent);
        stream.write_all(b"b").expect("sent, and not refused");
        relay.set(Passage::Open);
        stream.read_exact(&mut byte).expect("held back, then echoed");
        assert_eq!(byte, *b"b");
        relay.set(Passage::Cut);
        assert!(!matches!(stream.read(&mut byte), Ok(1)));
        let mut refused = TcpStream::connect(relay.address).expect("the relay still listens");
        assert!(!matches!(refused.read(&mut byte), Ok(1)));
    }
}
