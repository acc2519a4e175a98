//! A stretch of network between two servers that can be cut, or swallow what is sent, while they run.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use larix_testkit::until;

/// What happens to bytes on the way.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    Open,
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections stay and nothing arrives until the passage is opened again, as behind a router that drops packets.
    Silent,
}

/// Bytes that have passed.
#[derive(Clone, Debug)]
pub struct RelayedChunk {
    /// When, in seconds and nanoseconds as servers write it: hexadecimal.
    pub at: String,
    /// By the order in which they were made.
    pub connection: usize,
    pub to_client: bool,
    pub bytes: Vec<u8>,
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
    /// What has passed, if that is wanted.
    record: Option<Vec<RelayedChunk>>,
    connections: usize,
    /// Both ends of every connection, to be closed by a cut.
    ends: Vec<TcpStream>,
}

impl Relay {
    /// A relay to nowhere yet.
    ///
    /// # Panics
    /// When loopback gives no port.
    pub fn start() -> Self {
        Self::begin(None)
    }

    /// One that keeps what passes.
    ///
    /// # Panics
    /// As [`Relay::start`].
    pub fn recording() -> Self {
        Self::begin(Some(Vec::new()))
    }

    fn begin(record: Option<Vec<RelayedChunk>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the address of a bound socket");
        let (passage, ends) = (Passage::Open, Vec::new());
        let inner = Inner { passage, target: None, left: None, record, connections: 0, ends };
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
    ///
    /// # Panics
    /// It does not.
    pub fn wait_for_silence(&self) {
        until("the relay has fallen silent", || self.state.lock().passage == Passage::Silent);
    }

    /// What has passed so far.
    pub fn recorded(&self) -> Vec<RelayedChunk> {
        self.state.lock().record.clone().unwrap_or_default()
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
        let (Some(both_ends), Some([client_reads, server_reads])) = (clones(), clones()) else { return };
        inner.ends.extend(both_ends);
        let connection = inner.connections;
        inner.connections += 1;
        drop(inner);
        for (from, to, counts) in [(client_reads, server, false), (server_reads, client, true)] {
            let state = Arc::clone(self);
            thread::spawn(move || state.pass_on((from, to), connection, counts));
        }
    }

    fn pass_on(&self, (mut from, mut to): (TcpStream, TcpStream), connection: usize, to_client: bool) {
        let mut chunk = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            let mut inner = self.lock();
            if let Some(left) = inner.left.as_mut().filter(|_| to_client) {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    (inner.left, inner.passage) = (None, Passage::Silent);
                }
            }
            while inner.passage == Passage::Silent {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(record) = &mut inner.record {
                #[allow(clippy::disallowed_methods, reason = "to be compared with the servers' logs")]
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let at = format!("{:08x}.{:08x}", since.as_secs(), since.subsec_nanos());
                record.push(RelayedChunk { at, connection, to_client, bytes: chunk[..count].to_vec() });
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
        let relay = Relay::recording();
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
        let recorded = relay.recorded();
        let of = |to_client| -> Vec<u8> {
            let chunk = recorded.iter().filter(|chunk| chunk.to_client == to_client);
            chunk.flat_map(|chunk| chunk.bytes.clone()).collect()
        };
        assert_eq!((of(false), of(true)), (b"ab".to_vec(), b"ab".to_vec()));
        relay.set(Passage::Cut);
        assert!(!matches!(stream.read(&mut byte), Ok(1)));
        let mut refused = TcpStream::connect(relay.address).expect("the relay still listens");
        assert!(!matches!(refused.read(&mut byte), Ok(1)));
    }
}
