//! The one thread of a database that talks to its targets: it connects, sends, reads, and never waits for one of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use larix_client::dial::{begin_tcp, begin_unix};
use larix_client::{Ambient, Channel, Credentials, MessageLimits, Opening, PeerFault, Security, TlsClient};
use larix_engine::time::Clock;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{LdapResult, MessageId, Response, ResultCode, limits};
use rustix::event::epoll;
use rustix::event::{Timespec, epoll::EventFlags};
use socket2::SockRef;

use crate::connection::{Connection, Numbered, Stage};
use crate::job::{FEED_HIGH, FEED_MAX, Job, Outcome, Owner, Sink, body, envelope};
use crate::settings::{NETWORK_TIMEOUT, ProxySettings, TlsBegins};
use crate::shared::{Command, Shared};
use crate::targets::Targets;

/// Requests under way on each connection of a pool before another is opened.
const CONNECTION_BUSY: usize = 32;
/// Requests under way on one connection.
const CONNECTION_OPERATIONS: usize = 4096;
/// Requests that a target has not taken, bytes.
const CONNECTION_OUTPUT: usize = 4 << 20;
/// Binds under way at once; others wait.
const BINDS_MAX: usize = 64;
/// Connections of one identity, with those that clients have for themselves who read slowly.
const POOL_CEILING: usize = 512;
const READ_BYTES: usize = 64 * 1024;
/// Reads of one connection before others have their turn.
const READS_IN_TURN: usize = 4;
const EVENTS: usize = 256;
const SWEEP: Duration = Duration::from_secs(1);
/// The event of who hands requests over.
const WAKE: u64 = u64::MAX;
/// Where `ldapi:///` leads.
const DEFAULT_SOCKET: &str = "/var/run/slapd/ldapi";

/// What the thread is given.
pub(crate) struct Given {
    pub(crate) settings: Arc<ProxySettings>,
    pub(crate) tls: Option<TlsClient>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ambient: Ambient,
    /// Says something to the log.
    pub(crate) tell: Box<dyn Fn(&str) + Send>,
}

/// Starts it.
///
/// # Errors
/// No descriptor or no thread is left.
pub(crate) fn start(given: Given) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &given.shared.wake, epoll::EventData::new_u64(WAKE), EventFlags::IN)?;
    let resolver = start_resolver(Arc::clone(&given.shared))?;
    let targets = Targets::new(given.settings.targets.len(), given.settings.quarantine.clone());
    let state = Proxy {
        given,
        poll,
        resolver,
        targets,
        connections: HashMap::new(),
        pools: HashMap::new(),
        places: HashMap::new(),
        binds: VecDeque::new(),
        next: 0,
        swept: Duration::ZERO,
        alarm: Duration::ZERO,
    };
    thread::Builder::new().name("proxy".to_owned()).spawn(move || state.serve()).map(|_| ())
}

/// Names are looked up beside the loop: that waits for others.
fn start_resolver(shared: Arc<Shared>) -> io::Result<Sender<(u64, String, u16)>> {
    let (sender, asked) = channel::<(u64, String, u16)>();
    thread::Builder::new().name("proxy-names".to_owned()).spawn(move || {
        for (connection, host, port) in asked {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            shared.command(Command::Resolved(connection, found));
        }
    })?;
    Ok(sender)
}

struct Proxy {
    given: Given,
    poll: std::os::fd::OwnedFd,
    resolver: Sender<(u64, String, u16)>,
    targets: Targets,
    connections: HashMap<u64, Connection>,
    pools: HashMap<Owner, Vec<u64>>,
    /// The connection of each request.
    places: HashMap<u64, u64>,
    /// Binds that wait for a connection.
    binds: VecDeque<Numbered>,
    next: u64,
    swept: Duration,
    /// Before then nothing is late.
    alarm: Duration,
}

impl Proxy {
    fn serve(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        while !self.given.shared.is_stopped() {
            let timeout = self.pause().map(|pause| Timespec {
                tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: pause.subsec_nanos().into(),
            });
            events.clear();
            let waited =
                epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if waited.is_err() {
                // Interrupted: what is there is there the next time.
                events.clear();
            }
            for command in self.given.shared.take_commands() {
                self.carry_out(command);
            }
            for event in &events {
                let number = event.data.u64();
                if number != WAKE {
                    self.happened(number, event.flags, &mut buffer);
                }
            }
            self.expire();
        }
        let gone = LdapResult::with(ResultCode::UNAVAILABLE, "the server stops");
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            let held = connection.waiting.drain(..).chain(connection.sent.drain().map(|(_, job)| job));
            held.for_each(|(_, job)| job.sink.end(gone.clone()));
        }
        self.binds.drain(..).for_each(|(_, job)| job.sink.end(gone.clone()));
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.given.clock.monotonic().0)
    }

    /// How long nothing happens by itself.
    fn pause(&self) -> Option<Duration> {
        if self.connections.is_empty() && self.binds.is_empty() {
            return None;
        }
        Some(self.alarm.saturating_sub(self.now()).max(Duration::from_millis(1)))
    }

    /// When the first thing is late that is not done by then: all connections are looked at.
    fn first_deadline(&self) -> Duration {
        let deadlines = self.connections.values().filter_map(|connection| match &connection.stage {
            Stage::Open(channel) if channel.is_ready() => channel.next_deadline(),
            _ => Some(connection.opening_until),
        });
        deadlines.chain([self.swept + SWEEP]).min().unwrap_or_default()
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Submit(number, job) => self.place(number, job),
            Command::GiveUp(number) => self.give_up(number, None),
            Command::HasRoom(number) => {
                if let Some(id) = self.places.get(&number).copied() {
                    self.set_interest(id);
                }
            }
            Command::Resolved(id, Ok(addresses)) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.addresses.extend(addresses);
                    self.connect_next(id, "the name has no address".to_owned());
                }
            }
            Command::Resolved(id, Err(error)) => self.unreachable(id, &error.to_string()),
            Command::Lied(number) => {
                if let Some(id) = self.places.get(&number).copied() {
                    self.lost(
                        id,
                        &PeerFault::Socket("an entry outside the base that was searched".to_owned()),
                        true,
                    );
                }
            }
        }
    }

    // --- where requests go ---

    /// Finds a connection for a request, or opens one.
    fn place(&mut self, number: u64, job: Box<Job>) {
        let now = self.now();
        if job.owner == Owner::Spare {
            return self.place_bind(number, job);
        }
        let pool = self.pools.get(&job.owner).map(Vec::as_slice).unwrap_or_default();
        let loads = pool.iter().filter_map(|id| {
            let connection = self.connections.get(id)?;
            let takes = !connection.is_closing && !connection.is_reserved;
            takes.then(|| (connection.load(), *id))
        });
        let loads: Vec<(usize, u64)> = loads.collect();
        let least = loads.iter().min().copied();
        let may_open = match &job.owner {
            // Nobody else knows his password.
            Owner::User(_) => least.is_none() && job.credentials.is_some(),
            // Those that slow clients have for themselves do not count, up to a limit.
            _ => loads.len() < self.given.settings.pool_max as usize && pool.len() < POOL_CEILING,
        };
        match least {
            Some((load, id)) if load < CONNECTION_BUSY || !may_open => self.put(id, number, job, now),
            _ if may_open => self.open_for(number, job, now),
            _ if matches!(job.owner, Owner::User(_)) => {
                let text =
                    "the connection that was bound to the target is gone: bind again, or set rebind-as-user";
                self.end_unsent(number, job, LdapResult::with(ResultCode::UNAVAILABLE, text));
            }
            _ => {
                let text = "every connection to the target is taken by a client that reads slowly";
                self.end_unsent(number, job, LdapResult::with(ResultCode::BUSY, text));
            }
        }
    }

    /// A bind goes alone, on a connection that is nobody's.
    fn place_bind(&mut self, number: u64, job: Box<Job>) {
        let now = self.now();
        let pool = self.pools.get(&Owner::Spare).map(Vec::as_slice).unwrap_or_default();
        let free = pool.iter().copied().find(|id| {
            self.connections
                .get(id)
                .is_some_and(|connection| connection.load() == 0 && !connection.is_closing)
        });
        match free {
            Some(id) => self.put(id, number, job, now),
            None if pool.len() < BINDS_MAX => self.open_for(number, job, now),
            None => self.binds.push_back((number, job)),
        }
    }

    fn put(&mut self, id: u64, number: u64, job: Box<Job>, now: Duration) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.used = now;
        connection.waiting.push_back((number, job));
        self.places.insert(number, id);
        self.flush(id);
    }

    fn open_for(&mut self, number: u64, job: Box<Job>, now: Duration) {
        let Some(target) = self.targets.choose(now) else {
            let text = "no target can be reached";
            return self.end_unsent(number, job, LdapResult::with(ResultCode::UNAVAILABLE, text));
        };
        let id = self.next;
        self.next += 1;
        let patience = self.given.settings.network_timeout.unwrap_or(NETWORK_TIMEOUT);
        self.alarm = self.alarm.min(now + patience);
        self.pools.entry(job.owner.clone()).or_default().push(id);
        self.places.insert(number, id);
        self.connections.insert(
            id,
            Connection {
                owner: job.owner.clone(),
                credentials: job.credentials.clone(),
                target,
                stage: Stage::Resolving,
                socket: None,
                waiting: VecDeque::from([(number, job)]),
                sent: HashMap::new(),
                opened: now,
                used: now,
                opening_until: now + patience,
                interest: (false, false),
                is_reserved: false,
                is_shown: false,
                has_spoken: false,
                is_closing: false,
                addresses: VecDeque::new(),
            },
        );
        self.given.shared.counts.connections_opened.fetch_add(1, Ordering::Relaxed);
        self.begin(id, target);
    }

    fn url(&self, target: usize) -> Option<&LdapUrl> {
        self.given.settings.targets.get(target)
    }

    fn begin(&mut self, id: u64, target: usize) {
        let Some(url) = self.url(target).cloned() else { return };
        if url.scheme == UrlScheme::Ldapi {
            let path = if url.host.is_empty() { DEFAULT_SOCKET } else { &url.host };
            let begun = begin_unix(path);
            return self.connecting(id, begun);
        }
        let port = url.effective_port().unwrap_or(if url.scheme == UrlScheme::Ldaps { 636 } else { 389 });
        let host = if url.host.is_empty() { "localhost" } else { &url.host };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.addresses.push_back(SocketAddr::new(address, port));
                }
                self.connect_next(id, String::new());
            }
            Err(_) => {
                // The thread for names lives as long as this one.
                let _ = self.resolver.send((id, host.to_owned(), port));
            }
        }
    }

    fn connect_next(&mut self, id: u64, why: String) {
        let next = self.connections.get_mut(&id).and_then(|connection| connection.addresses.pop_front());
        match next {
            Some(address) => {
                let settings = &self.given.settings;
                let begun = begin_tcp(address, settings.keep_alive, settings.user_timeout);
                self.connecting(id, begun);
            }
            None => self.unreachable(id, &why),
        }
    }

    fn connecting(&mut self, id: u64, begun: io::Result<socket2::Socket>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let registered = begun.and_then(|socket| {
            epoll::add(&self.poll, &socket, epoll::EventData::new_u64(id), EventFlags::OUT)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => {
                connection.socket = Some(socket);
                connection.stage = Stage::Connecting;
                connection.interest = (false, true);
            }
            Err(error) => self.connect_next(id, error.to_string()),
        }
    }

    /// The socket is connected, or not.
    fn connected(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(socket) = &connection.socket else { return };
        let error = match SockRef::from(socket).take_error() {
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            // Closed, it leaves the poll.
            connection.socket = None;
            return self.connect_next(id, error);
        }
        let (owner, credentials, target) =
            (connection.owner.clone(), connection.credentials.clone(), connection.target);
        let credentials = if owner == Owner::Spare { None } else { credentials };
        match self.opening(target, credentials).and_then(Channel::begin) {
            Ok(channel) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.stage = Stage::Open(Box::new(channel));
                }
                self.flush(id);
            }
            Err(fault) => self.lost(id, &fault, false),
        }
    }

    fn opening(&self, target: usize, credentials: Option<Credentials>) -> Result<Opening, PeerFault> {
        let url = self.url(target).ok_or(PeerFault::Closed)?;
        let tls = || {
            self.given
                .tls
                .clone()
                .ok_or_else(|| PeerFault::Tls("the settings of TLS cannot be used".to_owned()))
        };
        let security = match (url.scheme, self.given.settings.tls.begins) {
            (UrlScheme::Ldaps, _) => Security::Ldaps(tls()?),
            (UrlScheme::Ldapi, _) | (_, TlsBegins::Never) => Security::Clear,
            (_, TlsBegins::Start) => Security::StartTls { client: tls()?, required: true },
            (_, TlsBegins::TryStart) => Security::StartTls { client: tls()?, required: false },
        };
        let host = if url.host.is_empty() { "localhost".to_owned() } else { url.host.clone() };
        Ok(Opening {
            host,
            security,
            credentials,
            limits: MessageLimits {
                message_bytes: limits::PDU_AUTHENTICATED.saturating_mul(4),
                operations: CONNECTION_OPERATIONS,
                output_bytes: CONNECTION_OUTPUT,
            },
            ambient: self.given.ambient,
        })
    }

    // --- what comes ---

    fn happened(&mut self, id: u64, flags: EventFlags, buffer: &mut [u8]) {
        let Some(connection) = self.connections.get(&id) else { return };
        if matches!(connection.stage, Stage::Connecting) {
            return self.connected(id);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP) {
            self.read(id, buffer);
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(id);
        }
    }

    fn read(&mut self, id: u64, buffer: &mut [u8]) {
        for _ in 0..READS_IN_TURN {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let read = connection.read(buffer);
            let count = match read {
                Ok(Some(count)) => count,
                Ok(None) => break,
                Err(fault) => return self.lost(id, &fault, false),
            };
            let received = match &mut connection.stage {
                Stage::Open(channel) => channel.receive(buffer.get(..count).unwrap_or_default()),
                Stage::Resolving | Stage::Connecting => Ok(()),
            };
            // Who never gets through TLS or the proxy's own bind is no better than who does not answer: the next one is tried.
            if !connection.has_spoken && connection.is_ready() {
                connection.has_spoken = true;
                self.targets.answered(connection.target);
            }
            if let Err(fault) = received.and_then(|()| self.take_answers(id)) {
                return self.lost(id, &fault, false);
            }
            if count < buffer.len() || !self.connections.get(&id).is_some_and(|c| c.interest.0) {
                break;
            }
        }
        self.flush(id);
    }

    /// Hands out what has come whole.
    fn take_answers(&mut self, id: u64) -> Result<(), PeerFault> {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let Stage::Open(channel) = &mut connection.stage else { return Ok(()) };
        // Messages in a row for one search go together.
        let mut gathered: (u32, Vec<u8>) = (0, Vec::new());
        let mut fed: Vec<u32> = Vec::new();
        let mut ended: Vec<(Numbered, Outcome)> = Vec::new();
        let fault = loop {
            let answer = match channel.next_answer() {
                Ok(Some(answer)) => answer,
                Ok(None) => break None,
                Err(fault) => break Some(fault),
            };
            let message = answer.message.id.0;
            if message != gathered.0 {
                hand_over(&connection.sent, &mut gathered);
            }
            if answer.is_last {
                hand_over(&connection.sent, &mut gathered);
                let Some(numbered) = connection.sent.remove(&message) else { continue };
                let result = answer.message.response.result().map(|(_, result)| result.to_owned());
                let value = match answer.message.response {
                    Response::Extended { value, .. } => value.map(<[u8]>::to_vec),
                    _ => None,
                };
                let controls = answer.message.controls.iter().map(|control| control.to_owned()).collect();
                let result = result.unwrap_or_else(|| LdapResult::new(ResultCode::OTHER));
                let outcome = Outcome { result, controls, value, is_unsent: false, is_of_target: true };
                ended.push((numbered, outcome));
                continue;
            }
            let Some((_, job)) = connection.sent.get(&message) else { continue };
            if matches!(answer.message.response, Response::Reference(_)) && self.given.settings.no_references
            {
                continue;
            }
            if let Sink::Feed(_) = &job.sink {
                gathered.0 = message;
                envelope(&mut gathered.1, job.message, body(answer.pdu));
                if fed.last() != Some(&message) {
                    fed.push(message);
                }
            }
        };
        hand_over(&connection.sent, &mut gathered);
        // A search that has had an answer may be silent for as long again.
        for message in &fed {
            if let Some((_, job)) = connection.sent.get(message)
                && let Some(patience) = job.patience
            {
                let deadline = job.deadline.into_iter().chain([now + patience]).min();
                channel.layer().set_deadline(MessageId(*message), deadline);
            }
        }
        let waiting: Vec<u64> = fed
            .iter()
            .filter_map(|message| connection.sent.get(message))
            .filter_map(|(number, job)| match &job.sink {
                Sink::Feed(feed) if feed.bytes() >= FEED_MAX => Some(*number),
                _ => None,
            })
            .collect();
        let is_alone = connection.sent.len() == waiting.len();
        for (numbered, outcome) in ended {
            self.answered(id, numbered, outcome);
        }
        if !is_alone {
            // Its client does not read, and others wait for this connection.
            for number in waiting {
                let text = "the client takes its answers too slowly for a connection that others use";
                self.give_up(number, Some(LdapResult::with(ResultCode::BUSY, text)));
            }
        }
        fault.map_or(Ok(()), Err)
    }

    fn answered(&mut self, id: u64, (number, mut job): Numbered, outcome: Outcome) {
        self.forget(number);
        if let Some(binds) = job.binds.take() {
            if outcome.result.code == ResultCode::SUCCESS {
                let owner = Owner::User(binds.dn.clone());
                let has_one = self.pools.get(&owner).is_some_and(|pool| {
                    pool.iter().any(|id| {
                        self.connections
                            .get(id)
                            .is_some_and(|c| !c.is_closing && !c.is_reserved && c.is_ready())
                    })
                });
                if let Some(client) = binds.client {
                    self.given.shared.note_bound(client, binds.dn, binds.password);
                    if !has_one {
                        self.change_owner(id, owner);
                    }
                }
            }
            if let Some((number, job)) = self.binds.pop_front() {
                self.place_bind(number, job);
            }
        }
        match job.sink {
            Sink::Once(done) => done(outcome),
            Sink::Feed(feed) => feed.end((outcome.result, outcome.controls)),
        }
    }

    fn change_owner(&mut self, id: u64, owner: Owner) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let old = std::mem::replace(&mut connection.owner, owner.clone());
        connection.is_shown = false;
        leave(&mut self.pools, &old, id);
        self.pools.entry(owner).or_default().push(id);
    }

    /// Sends what waits and looks again at what the connection waits for.
    fn flush(&mut self, id: u64) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.send_waiting(now);
        if !connection.is_shown
            && let Some(url) = self.given.settings.targets.get(connection.target)
            && let Some(shown) = connection.shown(url)
        {
            connection.is_shown = true;
            self.given.shared.open.show(id, shown);
        }
        if let Stage::Open(channel) = &connection.stage {
            self.alarm = channel.next_deadline().into_iter().chain([self.alarm]).min().unwrap_or_default();
        }
        match connection.write() {
            Ok(_) => self.set_interest(id),
            Err(fault) => return self.lost(id, &fault, false),
        }
        self.close_if_done(id);
    }

    fn set_interest(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (Stage::Open(channel), Some(socket)) = (&mut connection.stage, &connection.socket) else {
            return;
        };
        let is_full = |(_, job): &Numbered| matches!(&job.sink, Sink::Feed(feed) if feed.is_full());
        let full = connection.sent.values().filter(|numbered| is_full(numbered)).count();
        connection.is_reserved = full > 0;
        // Others that are under way are not kept waiting by one whose client does not read.
        let reads = full == 0 || full < connection.sent.len();
        let writes = channel.output().is_ok_and(|output| !output.is_empty());
        let interest = (reads, writes);
        if interest != connection.interest {
            connection.interest = interest;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, reads);
            flags.set(EventFlags::OUT, writes);
            let _ = epoll::modify(&self.poll, socket, epoll::EventData::new_u64(id), flags);
        }
    }

    // --- ends ---

    fn forget(&mut self, number: u64) {
        self.places.remove(&number);
        self.given.shared.jobs.fetch_sub(1, Ordering::Relaxed);
    }

    fn end(&mut self, number: u64, job: Box<Job>, result: LdapResult) {
        self.forget(number);
        job.sink.end(result);
    }

    /// Ends a request that was never sent.
    fn end_unsent(&mut self, number: u64, job: Box<Job>, result: LdapResult) {
        self.forget(number);
        job.sink.end_unsent(result);
    }

    /// Nobody waits for a request any more, or it gets this result.
    fn give_up(&mut self, number: u64, result: Option<LdapResult>) {
        let how = self.given.settings.giving_up;
        let Some(id) = self.places.get(&number).copied() else {
            let at = self.binds.iter().position(|(waiting, _)| *waiting == number);
            if let Some(removed) = at.and_then(|at| self.binds.remove(at)) {
                self.forget(number);
                answer(Some(removed), result);
            }
            return;
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(at) = connection.waiting.iter().position(|(waiting, _)| *waiting == number) {
            let removed = connection.waiting.remove(at);
            self.forget(number);
            answer(removed, result);
            return;
        }
        let message =
            connection.sent.iter().find(|(_, (sent, _))| *sent == number).map(|(message, _)| *message);
        let Some(message) = message else { return };
        if let Stage::Open(channel) = &mut connection.stage {
            channel.layer().give_up(MessageId(message), how);
        }
        let removed = connection.sent.remove(&message);
        self.forget(number);
        answer(removed, result);
        let ended = match self.connections.get(&id).map(|connection| &connection.stage) {
            Some(Stage::Open(channel)) => channel.messages().ended().cloned(),
            _ => None,
        };
        match ended {
            Some(fault) => self.lost(id, &fault, false),
            None => self.flush(id),
        }
    }

    /// A server could not be connected.
    fn unreachable(&mut self, id: u64, why: &str) {
        self.lost(id, &PeerFault::Socket(why.to_owned()), false);
    }

    /// A connection is of no use any more: what it had under way is sent elsewhere where that can be, or ends.
    fn lost(&mut self, id: u64, fault: &PeerFault, is_stray: bool) {
        let now = self.now();
        let Some(mut connection) = self.taken(id) else { return };
        let was_ready = connection.is_ready() && connection.has_spoken;
        let idle_end = was_ready
            && connection.load() == 0
            && matches!(fault, PeerFault::Closed | PeerFault::Disconnected(_));
        if !idle_end {
            self.given.shared.count_fault(fault);
            let url = self.url(connection.target).map(ToString::to_string).unwrap_or_default();
            (self.given.tell)(&format!("proxy: {url}: {fault} ({})", fault.name()));
        }
        let is_refused = matches!(fault, PeerFault::Refused { .. } | PeerFault::Sasl(_));
        if is_refused {
            self.targets.answered(connection.target);
        } else if !connection.has_spoken {
            let mut jitter = [0];
            (self.given.ambient.random)(&mut jitter);
            self.targets.failed(connection.target, now, jitter[0]);
        }
        let result = match (fault, &connection.owner) {
            // What the target says of his password is for him to know.
            (PeerFault::Refused { result, .. }, Owner::User(_)) => result.clone(),
            _ => LdapResult::with(ResultCode::UNAVAILABLE, format!("the target could not be used: {fault}")),
        };
        let is_lie = is_stray || fault.is_a_lie();
        let sent: Vec<Numbered> = connection.sent.drain().map(|(_, numbered)| numbered).collect();
        let waiting: Vec<Numbered> = connection.waiting.drain(..).collect();
        drop(connection);
        for (number, mut job) in sent {
            let untouched = match &job.sink {
                Sink::Feed(feed) => feed.is_untouched(),
                Sink::Once(_) => true,
            };
            if job.is_repeatable && untouched && !is_lie && job.tries_left() {
                self.place(number, job);
            } else {
                self.end(number, job, result.clone());
            }
        }
        if let Some((number, job)) = self.binds.pop_front() {
            self.place_bind(number, job);
        }
        for (number, mut job) in waiting {
            if is_refused || is_lie || (!was_ready && self.targets.choose(now).is_none()) || !job.tries_left()
            {
                self.end_unsent(number, job, result.clone());
            } else {
                self.place(number, job);
            }
        }
    }

    /// Takes a connection that is no longer used out of everything that knows it.
    fn taken(&mut self, id: u64) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        leave(&mut self.pools, &connection.owner, id);
        self.given.shared.open.hide(id);
        Some(connection)
    }

    fn close_if_done(&mut self, id: u64) {
        let is_done = self.connections.get(&id).is_some_and(|connection| {
            let worn = matches!(&connection.stage, Stage::Open(channel) if channel.messages().is_worn());
            (connection.is_closing || worn) && connection.sent.is_empty()
        });
        if is_done {
            self.close(id);
        }
    }

    /// Ends a connection that has nothing under way; what waits for it goes elsewhere.
    fn close(&mut self, id: u64) {
        let Some(mut connection) = self.taken(id) else { return };
        if let Stage::Open(channel) = &mut connection.stage {
            let _ = channel.layer().request(None, None, larix_proto::client::unbind);
            // Out of courtesy: the server sees the end of the connection as well.
            let _ = connection.write();
        }
        let waiting: Vec<Numbered> = connection.waiting.drain(..).collect();
        drop(connection);
        for (number, job) in waiting {
            self.place(number, job);
        }
    }

    /// What is late, idle or old.
    fn expire(&mut self) {
        let now = self.now();
        if now < self.alarm {
            return;
        }
        let mut late: Vec<(u64, MessageId)> = Vec::new();
        let mut unopened: Vec<u64> = Vec::new();
        for (id, connection) in &self.connections {
            match &connection.stage {
                Stage::Open(channel) if channel.is_ready() => {
                    late.extend(channel.messages().expired(now).map(|message| (*id, message)));
                }
                _ if connection.opening_until <= now => unopened.push(*id),
                _ => {}
            }
        }
        for id in unopened {
            self.lost(id, &PeerFault::Late("the connection"), false);
        }
        for (id, message) in late {
            let sent = self.connections.get(&id).and_then(|connection| connection.sent.get(&message.0));
            if let Some(number) = sent.map(|(number, _)| *number) {
                let text = "the target did not answer in time";
                self.give_up(number, Some(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)));
            }
        }
        if now >= self.swept + SWEEP {
            self.swept = now;
            self.sweep(now);
        }
        self.alarm = self.first_deadline();
    }

    fn sweep(&mut self, now: Duration) {
        let bound: HashSet<_> = self.given.shared.sweep_bound();
        let settings = Arc::clone(&self.given.settings);
        let mut closed = Vec::new();
        let is_late = |job: &Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let binds = self.binds.iter().filter(|(_, job)| is_late(job));
        let mut overdue: Vec<u64> = binds.map(|(number, _)| *number).collect();
        for (id, connection) in &mut self.connections {
            overdue
                .extend(connection.waiting.iter().filter(|(_, job)| is_late(job)).map(|(number, _)| *number));
            let is_old = settings.connection_ttl.is_some_and(|ttl| now >= connection.opened + ttl);
            let is_idle = settings.idle_timeout.is_some_and(|idle| now >= connection.used + idle);
            let is_nobodys = matches!(&connection.owner, Owner::User(dn) if !bound.contains(dn));
            connection.is_closing |= connection.is_ready() && (is_old || is_nobodys);
            if connection.load() == 0 && connection.is_ready() && (connection.is_closing || is_idle) {
                closed.push(*id);
            }
        }
        for id in closed {
            self.close(id);
        }
        for number in overdue {
            let text = "the target did not answer in time";
            self.give_up(number, Some(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)));
        }
    }
}

/// Ends a request that was taken from where it waited.
fn answer(removed: Option<Numbered>, result: Option<LdapResult>) {
    if let (Some((_, job)), Some(result)) = (removed, result) {
        job.sink.end(result);
    }
}

fn leave(pools: &mut HashMap<Owner, Vec<u64>>, owner: &Owner, id: u64) {
    if let Some(pool) = pools.get_mut(owner) {
        pool.retain(|other| *other != id);
        if pool.is_empty() {
            pools.remove(owner);
        }
    }
}

/// Gives a search what was gathered for it.
fn hand_over(sent: &HashMap<u32, Numbered>, gathered: &mut (u32, Vec<u8>)) {
    if gathered.1.is_empty() {
        return;
    }
    let messages = std::mem::take(&mut gathered.1);
    if let Some((_, job)) = sent.get(&gathered.0)
        && let Sink::Feed(feed) = &job.sink
    {
        feed.add(messages);
        feed.tell();
    }
}

const _: () = assert!(FEED_HIGH < FEED_MAX);
