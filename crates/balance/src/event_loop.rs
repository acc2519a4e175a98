//! The loop that drives the core with sockets, on one thread, which never waits for one of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use larix_client::dial::{HostLookUp, begin_tcp, begin_unix, look_up_beside};
use larix_client::{Ambient, PeerFault};
use larix_proto::url::UrlScheme;
use larix_proto::{LdapResult, ResultCode, encode};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use socket2::Socket;

use crate::balancer::{Balancer, PlannedConnection, Reloaded};
use crate::client::Arrival;
use crate::figures::Figures;
use crate::sockets::{Polled, clients_max, raise_descriptor_limit};

const READ_BYTES: usize = 64 * 1024;
/// Reads of one server's connection before others have their turn.
const READS_IN_TURN: usize = 4;
/// Connections accepted at one listener before others have their turn.
const ACCEPTS_IN_TURN: usize = 64;
const EVENTS: usize = 256;
/// What is late is looked for so often.
const SWEEP: Duration = Duration::from_millis(250);
/// How often the counts go to the log, if there are new ones, and that there is no room for clients.
const REPORT: Duration = Duration::from_secs(60);
/// How long a connection may take, when `network-timeout` does not say.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long clients have for what is under way when the balancer stops.
const STOPPING: Duration = Duration::from_secs(10);
/// How long another thread waits for the loop's word: it never waits itself, but it may be at work.
const ANSWERING: Duration = Duration::from_secs(2);

// Tokens of the poll: a kind, and a number.
const WAKE: u64 = u64::MAX;
const LISTENER: u64 = 1 << 62;
const CONNECTING_BIT: u64 = 1 << 61;
const UPSTREAM: u64 = 1 << 60;
const NUMBER: u64 = UPSTREAM - 1;

/// A socket that listens.
#[derive(Debug)]
pub struct Listening {
    /// The URL that it came from.
    pub url: String,
    pub socket: Socket,
    /// TLS from the first byte on, or from the first behind the header.
    pub is_tls: bool,
    /// Each connection begins with a header of the PROXY protocol.
    pub is_proxied: bool,
}

/// What becomes of the listeners.
#[derive(Debug, Default)]
pub struct Listeners {
    pub opened: Vec<Listening>,
    /// URLs whose sockets are closed; connections that were accepted there stay.
    pub closed: Vec<String>,
}

/// What a loop needs of the world around it.
pub struct Surroundings {
    pub ambient: Ambient,
    /// The time since any start.
    pub clock: Box<dyn Fn() -> Duration + Send>,
    /// Gets lines for the log.
    pub tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// Reaches a loop from another thread.
#[derive(Clone, Debug)]
pub struct LoopHandle {
    shared: Arc<Shared>,
    orders: Sender<Order>,
}

/// What another thread asks of a loop.
#[derive(Debug)]
enum Order {
    Reload(Box<Reloaded>, Listeners),
    /// With every connection by itself, or not.
    Figures(bool, SyncSender<Figures>),
    /// The sender gets whether there was one of this number.
    Close(ConnectionOf, u64, SyncSender<bool>),
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOf {
    Client,
    Server,
}

#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    is_stopped: AtomicBool,
}

impl Shared {
    fn wake_up(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_le_bytes());
    }
}

impl LoopHandle {
    /// Clients with nothing under way are closed at once, the others when they have their answers.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.shared.wake_up();
    }

    /// Other settings, certificates and listeners; connections of clients stay.
    pub fn reload(&self, new: Reloaded, listeners: Listeners) {
        // Without a loop there is nothing to tell.
        let _ = self.orders.send(Order::Reload(Box::new(new), listeners));
        self.shared.wake_up();
    }

    /// What there is to watch now. None: the loop has ended, or has not answered within two seconds.
    pub fn figures(&self) -> Option<Figures> {
        self.query(ANSWERING, |sender| Order::Figures(false, sender))
    }

    /// The same with every connection by itself, if the loop answers within this time.
    pub fn all_figures(&self, patience: Duration) -> Option<Figures> {
        self.query(patience, |sender| Order::Figures(true, sender))
    }

    /// Has a connection take no new operation, and close behind its last one. None: the loop does not answer within this time; false: there
    /// is no such connection.
    pub fn close(&self, of: ConnectionOf, number: u64, patience: Duration) -> Option<bool> {
        self.query(patience, |sender| Order::Close(of, number, sender))
    }

    fn query<T>(&self, patience: Duration, order: impl FnOnce(SyncSender<T>) -> Order) -> Option<T> {
        let (sender, answer) = sync_channel(1);
        self.orders.send(order(sender)).ok()?;
        self.shared.wake_up();
        answer.recv_timeout(patience).ok()
    }
}

/// A socket that is being connected.
#[derive(Debug)]
struct Connecting {
    planned: PlannedConnection,
    /// Not tried yet.
    addresses: VecDeque<SocketAddr>,
    socket: Option<Polled>,
    until: Duration,
}

/// A number, and the host and port that are looked up under it.
type Resolution = (u64, io::Result<Vec<SocketAddr>>);

/// A socket that listens, and what is known beforehand of those who connect there.
#[derive(Debug)]
struct OpenListener {
    url: String,
    polled: Polled,
    arrival: Arrival,
}

/// The loop.
pub struct EventLoop {
    core: Balancer,
    poll: OwnedFd,
    shared: Arc<Shared>,
    /// Kept for [`Self::handle`].
    order: Sender<Order>,
    orders: Receiver<Order>,
    clock: Box<dyn Fn() -> Duration + Send>,
    tell: Arc<dyn Fn(&str) + Send + Sync>,
    listeners: HashMap<u64, OpenListener>,
    clients: HashMap<u64, Polled>,
    upstreams: HashMap<u64, Polled>,
    connecting: HashMap<u64, Connecting>,
    next: u64,
    resolver: Sender<HostLookUp>,
    resolved: Receiver<Resolution>,
    /// Listeners rest: no descriptor is left.
    is_resting: bool,
    /// The limit of open files.
    descriptors: usize,
    /// When the log last said that there is no room for clients.
    complained: Option<Duration>,
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("core", &self.core).finish_non_exhaustive()
    }
}

impl EventLoop {
    /// A loop over sockets that listen and do not block.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub fn new(read: Reloaded, listening: Vec<Listening>, around: Surroundings) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        epoll::add(&poll, &wake, epoll::EventData::new_u64(WAKE), EventFlags::IN)?;
        let shared = Arc::new(Shared { wake, is_stopped: AtomicBool::new(false) });
        let (answer, resolved) = channel();
        let own = Arc::clone(&shared);
        let resolver = look_up_beside("balance-names", move |number, found| {
            answer.send((number, found)).map(|()| own.wake_up()).is_ok()
        })?;
        let Surroundings { ambient, clock, tell } = around;
        let Reloaded { settings, upstream_tls, client_tls } = read;
        let (order, orders) = channel();
        let teller = Arc::clone(&tell);
        let core =
            Balancer::new(settings, upstream_tls, client_tls, ambient, Box::new(move |line| teller(line)));
        let mut made = Self {
            core,
            poll,
            shared,
            order,
            orders,
            clock,
            tell,
            listeners: HashMap::new(),
            clients: HashMap::new(),
            upstreams: HashMap::new(),
            connecting: HashMap::new(),
            next: 0,
            resolver,
            resolved,
            is_resting: false,
            descriptors: raise_descriptor_limit(),
            complained: None,
        };
        listening.into_iter().try_for_each(|listening| made.listen(listening))?;
        Ok(made)
    }

    /// Accepts connections at a socket.
    fn listen(&mut self, listening: Listening) -> io::Result<()> {
        let Listening { url, socket, is_tls, is_proxied } = listening;
        self.next += 1;
        let polled = Polled::new(&self.poll, socket, LISTENER | self.next, true, false)?;
        let arrival = Arrival { is_tls, is_proxied, address: None };
        self.listeners.insert(self.next, OpenListener { url, polled, arrival });
        Ok(())
    }

    /// By which other threads reach it.
    pub fn handle(&self) -> LoopHandle {
        LoopHandle { shared: Arc::clone(&self.shared), orders: self.order.clone() }
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// The poll is broken.
    pub fn run(mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        let (mut swept, mut reported) = ((self.clock)(), (self.clock)());
        let mut last = String::new();
        let mut stopping: Option<Duration> = None;
        loop {
            let now = (self.clock)();
            self.connect(now);
            self.flush_touched(now);
            self.wait(&mut events, now)?;
            let now = (self.clock)();
            for event in &events {
                self.happened(event.data.u64(), event.flags, &mut buffer, now);
            }
            if now.saturating_sub(swept) >= SWEEP {
                swept = now;
                self.sweep(now);
            }
            if now.saturating_sub(reported) >= REPORT {
                reported = now;
                let line = self.core.counters().line();
                if line != last {
                    (self.tell)(&line);
                    last = line;
                }
            }
            if self.shared.is_stopped.load(Ordering::SeqCst) && stopping.is_none() {
                stopping = Some(now + STOPPING);
                self.listeners.clear();
                self.core.stop();
            }
            if let Some(until) = stopping {
                let left = self.core.close_idle();
                self.flush_touched(now);
                if left == 0 || self.clients.is_empty() || now >= until {
                    break;
                }
            }
        }
        self.core.unbind_all();
        self.flush_touched((self.clock)());
        (self.tell)(&format!("stopped: {}", self.core.counters().line()));
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, now: Duration) -> io::Result<()> {
        let next_try = self.core.next_try(now).map_or(SWEEP, |at| at.saturating_sub(now));
        let pause = next_try.clamp(Duration::from_millis(1), SWEEP);
        let timeout = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        };
        events.clear();
        match epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::INTR) => {
                events.clear();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn happened(&mut self, token: u64, flags: EventFlags, buffer: &mut [u8], now: Duration) {
        let number = token & NUMBER;
        if token == WAKE {
            self.woken(now);
        } else if token & LISTENER != 0 {
            self.accept(number, now);
        } else if token & CONNECTING_BIT != 0 {
            self.connected(number, now);
        } else if token & UPSTREAM != 0 {
            self.upstream_happened(number, flags, buffer, now);
        } else {
            self.client_happened(number, flags, buffer, now);
        }
    }

    // --- clients ---

    fn accept(&mut self, number: u64, now: Duration) {
        let Some(OpenListener { polled: listener, arrival, .. }) = self.listeners.get(&number) else {
            return;
        };
        let arrival = *arrival;
        let mut accepted = Vec::new();
        for _ in 0..ACCEPTS_IN_TURN {
            match listener.socket.accept() {
                Ok((socket, address)) => accepted.push((socket, address.as_socket())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client is gone already.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    let line = format!(
                        "cannot accept a connection: {error}; the limit of open files may be too low"
                    );
                    self.complain(&line, now);
                    self.rest(true);
                    break;
                }
            }
        }
        let most = clients_max(self.descriptors, self.core.connections_max());
        for (socket, address) in accepted {
            if self.clients.len() >= most {
                self.turn_away(&socket, arrival, most, now);
                continue;
            }
            // Local sockets have no delay to turn off.
            let _ = socket.set_tcp_nodelay(true);
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let Some(id) = self.core.open_client(Arrival { address, ..arrival }, now) else { continue };
            match Polled::new(&self.poll, socket, id, true, false) {
                Ok(polled) => {
                    self.clients.insert(id, polled);
                }
                Err(_) => self.core.client_gone(id),
            }
        }
    }

    /// Without descriptors no connection to a server that is lost could be made again.
    fn turn_away(&mut self, socket: &Socket, arrival: Arrival, most: usize, now: Duration) {
        let text = format!("all {most} connections are in use, as the limit of open files allows");
        if !arrival.is_tls {
            let mut notice = Vec::new();
            let result = LdapResult::with(ResultCode::UNAVAILABLE, format!("{text}; try again later"));
            encode::notice_of_disconnection(&mut notice, &result);
            // A client that is gone already needs none.
            let _ = socket.send(&notice);
        }
        self.complain(&format!("clients are turned away: {text}"), now);
    }

    /// Says that there is no room for clients, unless it was said a moment ago.
    fn complain(&mut self, line: &str, now: Duration) {
        if self.complained.is_none_or(|before| now.saturating_sub(before) >= REPORT) {
            self.complained = Some(now);
            (self.tell)(line);
        }
    }

    /// Listeners rest until the next sweep, or serve again.
    fn rest(&mut self, rests: bool) {
        self.is_resting = rests;
        for listener in self.listeners.values_mut() {
            listener.polled.set_interest(&self.poll, !rests, false);
        }
    }

    fn client_happened(&mut self, id: u64, flags: EventFlags, buffer: &mut [u8], now: Duration) {
        let Some(polled) = self.clients.get_mut(&id) else { return };
        if flags.contains(EventFlags::IN) && self.core.client_reads(id) {
            match polled.read(buffer) {
                Ok(None) => {}
                Ok(Some(0)) | Err(_) => return self.drop_client(id),
                Ok(Some(count)) => {
                    self.core.client_received(id, buffer.get(..count).unwrap_or_default(), now)
                }
            }
        } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.drop_client(id);
        }
        if flags.contains(EventFlags::OUT) {
            self.flush_client(id, now);
        }
    }

    fn drop_client(&mut self, id: u64) {
        self.core.client_gone(id);
        self.clients.remove(&id);
    }

    fn flush_client(&mut self, id: u64, now: Duration) {
        let Some(polled) = self.clients.get_mut(&id) else { return };
        let waits = loop {
            let output = self.core.client_output(id);
            if output.is_empty() {
                break false;
            }
            match polled.write(output) {
                Ok(Some(count)) => self.core.client_sent(id, count, now),
                Ok(None) => break true,
                Err(_) => return self.drop_client(id),
            }
        };
        if self.core.client_closes(id) && !waits {
            return self.drop_client(id);
        }
        polled.set_interest(&self.poll, self.core.client_reads(id), waits);
    }

    // --- servers ---

    fn upstream_happened(&mut self, id: u64, flags: EventFlags, buffer: &mut [u8], now: Duration) {
        let is_over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        for _ in 0..READS_IN_TURN {
            let Some(polled) = self.upstreams.get_mut(&id) else { return };
            if !is_over && !flags.contains(EventFlags::IN) {
                break;
            }
            if !self.core.upstream_reads(id) {
                if is_over {
                    // The poll says so again and again, whatever it is asked for, until the socket is closed.
                    let fault = match polled.socket.take_error() {
                        Ok(Some(error)) | Err(error) => PeerFault::Socket(error.to_string()),
                        Ok(None) => PeerFault::Closed,
                    };
                    self.core.lost(id, &fault, now);
                }
                break;
            }
            let fault = match polled.read(buffer) {
                Ok(None) => break,
                Ok(Some(0)) => PeerFault::Closed,
                Ok(Some(count)) => {
                    self.core.upstream_received(id, buffer.get(..count).unwrap_or_default(), now);
                    if count < buffer.len() {
                        break;
                    }
                    continue;
                }
                Err(error) => PeerFault::Socket(error.to_string()),
            };
            self.core.lost(id, &fault, now);
            break;
        }
        if flags.contains(EventFlags::OUT) {
            self.flush_upstream(id, now);
        }
    }

    fn flush_upstream(&mut self, id: u64, now: Duration) {
        let Some(polled) = self.upstreams.get_mut(&id) else { return };
        let waits = loop {
            let output = self.core.upstream_output(id);
            if output.is_empty() {
                break false;
            }
            match polled.write(output) {
                Ok(Some(count)) => self.core.upstream_sent(id, count),
                Ok(None) => break true,
                Err(error) => {
                    return self.core.lost(id, &PeerFault::Socket(error.to_string()), now);
                }
            }
        };
        polled.set_interest(&self.poll, self.core.upstream_reads(id), waits);
    }

    /// Writes what is to be written, until nothing changes any more.
    fn flush_touched(&mut self, now: Duration) {
        loop {
            let touched = self.core.take_touched(now);
            if touched.clients.is_empty()
                && touched.upstreams.is_empty()
                && touched.ended_upstreams.is_empty()
            {
                return;
            }
            for id in touched.ended_upstreams {
                self.upstreams.remove(&id);
            }
            for id in touched.upstreams {
                self.flush_upstream(id, now);
            }
            for id in touched.clients {
                self.flush_client(id, now);
            }
        }
    }

    // --- connecting ---

    /// Begins the connections that are lacking.
    fn connect(&mut self, now: Duration) {
        while let Some(planned) = self.core.next_connection(now) {
            let Some(url) = self.core.url(planned.backend).cloned() else { return };
            self.next += 1;
            let number = self.next;
            let patience = self.core.settings().bind.network_timeout.unwrap_or(CONNECTING);
            let mut connecting =
                Connecting { planned, addresses: VecDeque::new(), socket: None, until: now + patience };
            let host = url.effective_host().trim_start_matches('[').trim_end_matches(']');
            let port = url.effective_port().unwrap_or_default();
            if url.scheme == UrlScheme::Ldapi {
                self.connecting.insert(number, connecting);
                self.note_connecting(number, begin_unix(url.socket_path()), now);
            } else if let Ok(address) = host.parse::<IpAddr>() {
                connecting.addresses.push_back(SocketAddr::new(address, port));
                self.connecting.insert(number, connecting);
                self.try_next(number, "", now);
            } else {
                self.connecting.insert(number, connecting);
                // The thread for names lives as long as this one.
                let _ = self.resolver.send((number, host.to_owned(), port));
            }
        }
    }

    /// Names that were looked up, and what other threads want.
    fn woken(&mut self, now: Duration) {
        let mut drained = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut drained);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Reload(new, listeners) => self.reload(*new, listeners),
                // Who asked may have gone.
                Order::Figures(false, to) => {
                    let _ = to.try_send(self.core.figures());
                }
                Order::Figures(true, to) => {
                    let _ = to.try_send(self.all_figures());
                }
                Order::Close(of, number, to) => {
                    let was_there = match of {
                        ConnectionOf::Client => self.core.close_client(number),
                        ConnectionOf::Server => self.core.close_upstream(number),
                    };
                    let _ = to.try_send(was_there);
                }
            }
        }
        while let Ok((number, found)) = self.resolved.try_recv() {
            let why = match found {
                Ok(addresses) => {
                    if let Some(connecting) = self.connecting.get_mut(&number) {
                        connecting.addresses.extend(addresses);
                    }
                    "the name has no address".to_owned()
                }
                Err(error) => error.to_string(),
            };
            self.try_next(number, &why, now);
        }
    }

    /// The core's, with the addresses of the sockets.
    fn all_figures(&self) -> Figures {
        let mut figures = self.core.all_figures();
        for client in &mut figures.connections {
            let socket = self.clients.get(&client.id).map(|polled| &polled.socket);
            client.local = socket.and_then(|socket| socket.local_addr().ok()?.as_socket());
        }
        for connection in figures.servers.iter_mut().flat_map(|server| &mut server.connections) {
            let Some(polled) = self.upstreams.get(&connection.id) else { continue };
            connection.local = polled.socket.local_addr().ok().and_then(|address| address.as_socket());
            connection.peer = polled.socket.peer_addr().ok().and_then(|address| address.as_socket());
        }
        figures
    }

    fn reload(&mut self, new: Reloaded, Listeners { opened, closed }: Listeners) {
        self.core.reload(new);
        // Closed, a socket leaves the poll.
        self.listeners.retain(|_, listener| !closed.contains(&listener.url));
        for listening in opened {
            let url = listening.url.clone();
            if let Err(error) = self.listen(listening) {
                (self.tell)(&format!("{url}: cannot listen: {error}"));
            }
        }
        (self.tell)("the configuration was read again");
    }

    fn try_next(&mut self, number: u64, why: &str, now: Duration) {
        let Some(connecting) = self.connecting.get_mut(&number) else { return };
        match connecting.addresses.pop_front() {
            Some(address) => {
                let bind = &self.core.settings().bind;
                let socket = begin_tcp(address, bind.keep_alive, bind.user_timeout);
                self.note_connecting(number, socket, now);
            }
            None => {
                let planned = connecting.planned;
                self.connecting.remove(&number);
                self.core.not_opened(planned, why, now);
            }
        }
    }

    fn note_connecting(&mut self, number: u64, socket: io::Result<Socket>, now: Duration) {
        let polled =
            socket.and_then(|socket| Polled::new(&self.poll, socket, CONNECTING_BIT | number, false, true));
        match (polled, self.connecting.get_mut(&number)) {
            (Ok(polled), Some(connecting)) => connecting.socket = Some(polled),
            (Err(error), _) => self.try_next(number, &error.to_string(), now),
            (Ok(_), None) => {}
        }
    }

    /// A socket is connected, or not.
    fn connected(&mut self, number: u64, now: Duration) {
        let Some(connecting) = self.connecting.get_mut(&number) else { return };
        let Some(polled) = &connecting.socket else { return };
        if let Ok(Some(error)) | Err(error) = polled.socket.take_error() {
            // Closed, it leaves the poll.
            connecting.socket = None;
            return self.try_next(number, &error.to_string(), now);
        }
        let Some(Connecting { planned, socket: Some(mut polled), .. }) = self.connecting.remove(&number)
        else {
            return;
        };
        if let Some(id) = self.core.opened(planned, now) {
            polled.set_token(&self.poll, UPSTREAM | id);
            self.upstreams.insert(id, polled);
        }
    }

    fn sweep(&mut self, now: Duration) {
        if self.is_resting {
            self.rest(false);
        }
        let late: Vec<u64> = self
            .connecting
            .iter()
            .filter(|(_, connecting)| connecting.until <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(connecting) = self.connecting.remove(&number) {
                self.core.not_opened(connecting.planned, "it took too long (network-timeout)", now);
            }
        }
        for id in self.core.unanswered_binds(now) {
            if self.clients.get(&id).is_some_and(Polled::is_left) {
                self.drop_client(id);
            }
        }
        self.core.expire(now);
    }
}
