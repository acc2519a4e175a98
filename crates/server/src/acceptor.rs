//! Takes connections from the listeners and gives each to the worker that has the fewest.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::injected;
use larix_engine::time::Clock;
use larix_proto::encode;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;

use crate::admission::Refusal;
use crate::listener::{ListenSocket, Listener};
use crate::log::LogLevel;
use crate::panics::{Panicked, contained_part};
use crate::proxy_header;
use crate::server::Server;
use crate::session::{Peer, PeerCredentials};
use crate::statistics::{ConnectionRecord, ListenerInfo};
use crate::stream::AcceptedStream;
use crate::worker::{AcceptedConnection, Worker};

/// How long to wait when the process has no descriptor left, before trying again.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Everything that accepting needs, on the main thread.
pub(crate) struct Acceptor {
    pub(crate) server: Arc<Server>,
    pub(crate) workers: Rc<Vec<Worker>>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// Accepts on one listener until the task is dropped.
    pub(crate) async fn run(self: Rc<Self>, listener: Listener, info: Arc<ListenerInfo>) -> io::Result<()> {
        let socket = match listener.socket {
            ListenSocket::Tcp(socket) => Socket::Tcp(TcpListener::from_std(socket)?),
            ListenSocket::Unix(socket, _) => Socket::Unix(UnixListener::from_std(socket)?),
        };
        let mut complained = false;
        loop {
            // A panic costs the connection that it came with, no more.
            match contained_part(self.accept(&socket, &info, listener.proxied)).await {
                Ok(Ok(())) => complained = false,
                Err(Panicked) => {}
                Ok(Err(error)) if is_per_connection(&error) => {}
                Ok(Err(error)) => {
                    if !complained {
                        self.server
                            .log
                            .notice(format_args!("daemon: accept on {} failed: {error}", info.name));
                        complained = true;
                    }
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }

    async fn accept(
        self: &Rc<Self>,
        socket: &Socket,
        info: &Arc<ListenerInfo>,
        proxied: bool,
    ) -> io::Result<()> {
        match socket {
            Socket::Tcp(socket) => {
                let (stream, address) = socket.accept().await?;
                injected::panic_at("accept");
                // Without keep-alive a client that lost its network holds its connection for ever.
                socket2::SockRef::from(&stream).set_keepalive(true)?;
                match proxied {
                    true => self.await_header(stream, address, info),
                    false => self.take_tcp(stream, address, info)?,
                }
            }
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                let credentials = stream.peer_cred()?;
                let credentials = PeerCredentials { uid: credentials.uid(), gid: credentials.gid() };
                let stream = stream.into_std()?;
                // A client's end of a Unix socket has no name: OpenLDAP shows the listener's.
                let peer = Peer { name: info.name.clone(), credentials: Some(credentials) };
                let name = info.name.clone();
                self.hand_over(AcceptedStream::Unix(stream), None, name, peer, info);
            }
        }
        Ok(())
    }

    fn take_tcp(&self, stream: TcpStream, address: SocketAddr, info: &Arc<ListenerInfo>) -> io::Result<()> {
        let address = plain(address);
        let name = format!("IP={address}");
        let peer = Peer { name: name.clone(), credentials: None };
        self.hand_over(AcceptedStream::Tcp(stream.into_std()?), Some(address.ip()), name, peer, info);
        Ok(())
    }

    /// Reads the PROXY header of a connection beside the others; then it goes on as one from the client.
    fn await_header(self: &Rc<Self>, mut stream: TcpStream, balancer: SocketAddr, info: &Arc<ListenerInfo>) {
        static AWAITED: Semaphore = Semaphore::const_new(proxy_header::AWAITED_MAX);
        let Ok(permit) = AWAITED.try_acquire() else {
            self.refused(balancer, info, &"too many connections wait for their PROXY header");
            return;
        };
        // It is nobody's yet, and holds a descriptor as any other does.
        let held = match self.server.admission.admit(None, self.server.clock.monotonic()) {
            Ok(held) => held,
            Err(refusal) => {
                // A socket that cannot be had is closed without a word.
                if let Ok(stream) = stream.into_std() {
                    let name = format!("IP={}", plain(balancer));
                    self.turn_away(AcceptedStream::Tcp(stream), &name, info, refusal);
                }
                return;
            }
        };
        let (acceptor, info) = (self.clone(), info.clone());
        tokio::task::spawn_local(async move {
            let header = tokio::time::timeout(proxy_header::PATIENCE, proxy_header::read(&mut stream)).await;
            drop((permit, held));
            let taken = match header {
                Ok(Ok(source)) => acceptor.take_tcp(stream, source.unwrap_or(balancer), &info),
                Ok(Err(error)) => {
                    acceptor.refused(balancer, &info, &error);
                    return;
                }
                Err(_) => {
                    acceptor.refused(balancer, &info, &"the PROXY header did not come in time");
                    return;
                }
            };
            if let Err(error) = taken {
                acceptor.refused(balancer, &info, &error);
            }
        });
    }

    fn refused(&self, from: SocketAddr, info: &ListenerInfo, why: &dyn std::fmt::Display) {
        let from = plain(from);
        self.server
            .log
            .line(LogLevel::STATS, format_args!("daemon: refused IP={from} ({}): {why}", info.name));
    }

    fn hand_over(
        &self,
        stream: AcceptedStream,
        address: Option<IpAddr>,
        name: String,
        peer: Peer,
        info: &Arc<ListenerInfo>,
    ) {
        let fd = stream.as_raw_fd();
        let statistics = &self.server.statistics;
        let admitted = match self.server.admission.admit(address, self.server.clock.monotonic()) {
            Ok(admitted) => admitted,
            Err(refusal) => return self.turn_away(stream, &name, info, refusal),
        };
        let number = statistics.next_connection();
        self.server
            .log
            .line(LogLevel::STATS, format_args!("conn={number} fd={fd} ACCEPT from {name} ({})", info.name));
        let mut record = ConnectionRecord::new(number, fd, info.clone(), name, self.server.both_clocks());
        record.admitted = Some(admitted);
        let record = Arc::new(record);
        let now = self.server.clock.monotonic();
        let workers = self.workers.iter().map(Worker::handle);
        let Some(worker) = workers.min_by_key(|worker| worker.load(now)) else { return };
        statistics.opened(record.clone());
        if !worker.serve(AcceptedConnection { stream, record, peer, secured: None }) {
            statistics.closed(number);
        }
    }
}

impl Acceptor {
    /// Closes a connection that exceeds a limit; where the client can read a reason, it gets one.
    fn turn_away(&self, stream: AcceptedStream, name: &str, info: &ListenerInfo, refusal: Refusal) {
        self.server
            .log
            .line(LogLevel::STATS, format_args!("daemon: refused {name} ({}): {refusal}", info.name));
        if !info.is_tls() {
            let mut notice = Vec::new();
            encode::notice_of_disconnection(&mut notice, &refusal.result());
            stream.say_goodbye(&notice);
        }
    }
}

/// An IPv4 client of a dual-stack socket is shown as what it is.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The client went away before it was accepted: nothing to report.
fn is_per_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | NotConnected)
}
