//! A server for tests: it gives the answers that the test sets, as late as the test says, and counts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use larix_proto::{Frame, Message, Request, frame};

/// What is answered to one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reply {
    pub(super) entries: u64,
    pub(super) code: u8,
    /// How long nothing is answered on this connection.
    pub(super) delay: Duration,
    /// The connection is closed instead.
    pub(super) close: bool,
    /// A notice of disconnection is sent instead.
    pub(super) notice: bool,
}

impl Reply {
    pub(super) fn code(code: u8) -> Self {
        Self { code, ..Self::default() }
    }

    pub(super) fn entries(entries: u64) -> Self {
        Self { entries, ..Self::default() }
    }
}

#[derive(Debug)]
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    is_over: AtomicBool,
}

impl Fake {
    /// `answer` is given each request and its number from 0, over all connections.
    pub(super) fn start(answer: impl Fn(&Request<'_>, u64) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let (shared, answer) = (Arc::clone(&counts), Arc::new(answer));
        let listening = std::thread::spawn(move || {
            for socket in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (shared, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                // A client that goes away ends the thread.
                std::thread::spawn(move || serve(socket?, &shared, &*answer));
            }
        });
        Self { address, counts, listening: Some(listening) }
    }

    pub(super) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.listening.take().map(JoinHandle::join);
    }
}

fn serve(
    mut socket: TcpStream,
    counts: &Counts,
    answer: &impl Fn(&Request<'_>, u64) -> Reply,
) -> std::io::Result<()> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; 64 << 10];
    loop {
        let count = socket.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..count]);
        while let Ok(Frame::Complete { len }) = frame(&input, 1 << 20) {
            let message = Message::decode(&input[..len]).expect("the driver writes LDAP");
            if message.request == Request::Unbind {
                return Ok(());
            }
            let reply = answer(&message.request, counts.requests.fetch_add(1, Ordering::Relaxed));
            if reply.close {
                return Ok(());
            }
            if !reply.delay.is_zero() {
                socket.write_all(&output)?;
                output.clear();
                wait(reply.delay);
            }
            let id = if reply.notice { 0 } else { message.id.0 };
            append(&mut output, id, &message.request, reply);
            input.drain(..len);
        }
        socket.write_all(&output)?;
        output.clear();
    }
}

fn wait(delay: Duration) {
    let (_open, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(delay);
}

fn append(out: &mut Vec<u8>, id: u32, request: &Request<'_>, reply: Reply) {
    let id = id.to_be_bytes();
    let mut message = |operation: &[u8]| {
        out.extend_from_slice(&[0x30, 6 + operation.len() as u8, 0x02, 4]);
        out.extend_from_slice(&id);
        out.extend_from_slice(operation);
    };
    for _ in 0..reply.entries {
        message(&[0x64, 4, 0x04, 0, 0x30, 0]);
    }
    let operation = match request {
        _ if reply.notice => 0x78,
        Request::Bind(_) => 0x61,
        Request::Search(_) => 0x65,
        Request::Modify(_) => 0x67,
        Request::Add(_) => 0x69,
        Request::Delete(_) => 0x6b,
        Request::ModifyDn(_) => 0x6d,
        Request::Compare(_) => 0x6f,
        Request::Extended(_) | Request::Unbind | Request::Abandon(_) => 0x78,
    };
    message(&[operation, 7, 0x0a, 1, reply.code, 0x04, 0, 0x04, 0]);
}
