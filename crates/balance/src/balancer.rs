//! The core without I/O: bytes of clients and servers in, bytes out; the time is a parameter, counted from a start that the caller chooses.

mod answers;
mod binds;
mod choice;
mod contexts;
mod ends;
mod reload;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larix_client::{Ambient, Channel, Credentials, MessageLimits, Opening, PeerFault, Security, TlsClient};
use larix_proto::proxy_header::{self, HeaderProgress};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{Frame, LdapResult, MessageId, ResultCode, encode, frame};

use crate::backend::{Backend, Tier};
use crate::client::{Arrival, Client, Restriction, State};
use crate::counters::Counters;
use crate::upstream::{Pool, Upstream};
use crate::wire::ClientTls;
use larix_configuration::balancer::{BalanceSettings, ProxyHeader, StartTls};

pub use self::reload::Reloaded;

/// Operations under way on one connection to a server.
const CONNECTION_OPERATIONS: usize = 4096;
/// Requests that a server has not taken on one connection, bytes.
const CONNECTION_OUTPUT: usize = 1 << 20;
/// Answers that wait for a client, bytes, from which on its connections pause and its next request waits.
const OUTPUT_HIGH: usize = 256 * 1024;
/// How long a connection may take to be ready, when `network-timeout` does not say.
const OPENING: Duration = Duration::from_secs(10);
/// A connection that a server closes within this time counts as one that could not be made.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// How long a SASL bind may be idle between two steps while other binds wait.
const SASL_PAUSE: Duration = Duration::from_secs(1);

/// The core. The caller moves bytes between it and sockets, and asks [`Self::take_touched`] after each event.
pub struct Balancer {
    settings: Arc<BalanceSettings>,
    upstream_tls: Option<TlsClient>,
    client_tls: Option<ClientTls>,
    ambient: Ambient,
    tell: Box<dyn Fn(&str) + Send>,
    clients: HashMap<u64, Client>,
    /// Clients whose PROXY header is awaited.
    awaited: usize,
    /// Clients of which a server remembers something by connection.
    contexts: usize,
    upstreams: HashMap<u64, Upstream>,
    backends: Vec<Backend>,
    tiers: Vec<Tier>,
    /// Clients whose next request waits for any server, by [`Pool`].
    waiting: [VecDeque<u64>; 2],
    /// Clients whose next request waits for the server that they have to stay at, by that. They hold up nobody who can go elsewhere.
    pinned: BTreeMap<usize, VecDeque<u64>>,
    /// A connection of this [`Pool`] may take a request again.
    freed: [bool; 2],
    /// A request that has waited since then is being tried again.
    waking: Option<Duration>,
    /// Set when the balancer stops: no new client, no new operation.
    is_stopping: bool,
    next: u64,
    /// The last numbers by which cn=Monitor names clients, and connections to servers.
    client_number: u64,
    upstream_number: u64,
    /// A state of a generator of numbers by chance.
    chance: u64,
    touched: Touched,
    /// Connections to servers with an exchange half done that the server is to forget.
    midway: Vec<u64>,
    counters: Counters,
}

/// Connections whose output, interest or existence may have changed.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) clients: Vec<u64>,
    pub(crate) upstreams: Vec<u64>,
    /// These are gone: their sockets are to be closed.
    pub(crate) ended_upstreams: Vec<u64>,
}

/// A connection that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedConnection {
    pub(crate) backend: usize,
    pub(crate) pool: Pool,
    /// By which cn=Monitor is to name it.
    pub(crate) number: u64,
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("clients", &self.clients.len())
            .field("upstreams", &self.upstreams.len())
            .finish_non_exhaustive()
    }
}

impl Balancer {
    /// A balancer without connections. `upstream_tls` is needed for servers with TLS, `client_tls` for listeners with it; `tell` gets lines for
    /// the log.
    pub fn new(
        settings: Arc<BalanceSettings>,
        upstream_tls: Option<TlsClient>,
        client_tls: Option<ClientTls>,
        ambient: Ambient,
        tell: Box<dyn Fn(&str) + Send>,
    ) -> Self {
        let mut backends = Vec::new();
        let mut tiers = Vec::new();
        for tier in &settings.tiers {
            let first = backends.len();
            backends.extend(tier.backends.iter().cloned().map(Backend::new));
            tiers.push(Tier::new(tier.strategy, (first..backends.len()).collect()));
        }
        let mut seed = [0; 8];
        (ambient.random)(&mut seed);
        Self {
            settings,
            upstream_tls,
            client_tls,
            ambient,
            tell,
            clients: HashMap::new(),
            awaited: 0,
            contexts: 0,
            upstreams: HashMap::new(),
            backends,
            tiers,
            waiting: [VecDeque::new(), VecDeque::new()],
            pinned: BTreeMap::new(),
            freed: [false; 2],
            waking: None,
            is_stopping: false,
            next: 0,
            client_number: 0,
            upstream_number: 0,
            chance: u64::from_le_bytes(seed) | 1,
            touched: Touched::default(),
            midway: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// What has happened since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections of clients now.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn settings(&self) -> &BalanceSettings {
        &self.settings
    }

    pub(crate) fn take_touched(&mut self, now: Duration) -> Touched {
        self.abort_exchanges(now);
        self.wake(now);
        let touched = std::mem::take(&mut self.touched);
        for id in &touched.clients {
            if let Some(client) = self.clients.get_mut(id) {
                client.is_touched = false;
            }
        }
        for id in &touched.upstreams {
            if let Some(upstream) = self.upstreams.get_mut(id) {
                upstream.is_touched = false;
            }
        }
        touched
    }

    /// A number by chance (xorshift64*): for choices, not for secrets.
    fn draw(chance: &mut u64) -> u64 {
        *chance ^= *chance >> 12;
        *chance ^= *chance << 25;
        *chance ^= *chance >> 27;
        chance.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn touch_client(&mut self, id: u64) {
        touch_client(&mut self.clients, &mut self.touched, id);
    }

    fn touch_upstream(&mut self, id: u64) {
        if let Some(upstream) = self.upstreams.get_mut(&id)
            && !upstream.is_touched
        {
            upstream.is_touched = true;
            self.touched.upstreams.push(id);
        }
    }

    // --- clients ---

    /// A client has connected. None: no TLS can be begun, or too many PROXY headers are awaited.
    pub(crate) fn open_client(&mut self, arrival: Arrival, now: Duration) -> Option<u64> {
        let mut client = Client::new(arrival, now);
        authorize(&self.settings, &mut client, "", "");
        if arrival.is_tls {
            client.wire.begin_tls(self.client_tls.as_ref()?).ok()?;
        }
        if arrival.is_proxied {
            if self.awaited >= proxy_header::AWAITED_MAX {
                (self.tell)(&format!(
                    "refused {}: too many connections wait for their PROXY header",
                    client.name()
                ));
                return None;
            }
            self.awaited += 1;
        }
        self.next += 1;
        self.counters.clients += 1;
        self.client_number += 1;
        client.number = self.client_number;
        self.clients.insert(self.next, client);
        Some(self.next)
    }

    /// Whether more is to be read of a client.
    pub(crate) fn client_reads(&self, id: u64) -> bool {
        self.clients
            .get(&id)
            .is_some_and(|client| client.state == State::Open && client.wire.waiting() < OUTPUT_HIGH)
    }

    /// Bytes have come of a client.
    pub(crate) fn client_received(&mut self, id: u64, bytes: &[u8], now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.state == State::Closing {
            return;
        }
        if client.header.is_some() {
            return self.header_received(id, bytes, now);
        }
        client.last_received = now;
        let mut input = std::mem::take(&mut client.input);
        let received = client.wire.receive(bytes, &mut input);
        client.input = input;
        match received {
            Ok(()) => self.advance(id, now),
            // The alert goes out, if there is one.
            Err(_) => self.end_client(id, None),
        }
        self.touch_client(id);
    }

    /// Bytes have come of a client that begins with a PROXY header.
    fn header_received(&mut self, id: u64, bytes: &[u8], now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(header) = &mut client.header else { return };
        header.extend_from_slice(bytes);
        match proxy_header::parse(header) {
            Ok(HeaderProgress::Incomplete { .. }) => {}
            Ok(HeaderProgress::Whole { bytes: len, source }) => {
                let behind = header.split_off(len);
                client.header = None;
                client.last_received = now;
                // Without one the proxy in front itself is the client.
                client.address = source.or(client.address);
                self.awaited = self.awaited.saturating_sub(1);
                if !behind.is_empty() {
                    self.client_received(id, &behind, now);
                }
            }
            Err(what) => self.refuse_header(id, &format!("no PROXY header: {what}")),
        }
    }

    /// Closes a client whose PROXY header is not there, without a word: there is nobody who speaks LDAP.
    fn refuse_header(&mut self, id: u64, why: &str) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        (self.tell)(&format!("refused {}: {why}", client.name()));
        self.counters.refused += 1;
        self.end_client(id, None);
        if let Some(client) = self.clients.get_mut(&id) {
            client.wire.forget();
        }
    }

    /// Carries out what has come whole, as far as may be now.
    fn advance(&mut self, id: u64, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        // Taken out while it is looked at: requests change everything else.
        let mut input = std::mem::take(&mut client.input);
        let mut start = 0;
        while let Some(client) = self.clients.get(&id) {
            if client.state != State::Open || client.wire.waiting() >= OUTPUT_HIGH {
                break;
            }
            let rest = input.get(start..).unwrap_or_default();
            match frame(rest, self.settings.client_message_bytes) {
                Ok(Frame::Complete { len }) => {
                    let has_more = rest.len() > len;
                    if !self.request(id, rest.get(..len).unwrap_or_default(), has_more, now) {
                        // It waits, and is looked at again.
                        break;
                    }
                    start += len;
                }
                Ok(Frame::Incomplete { .. }) => break,
                Err(error) => {
                    self.disconnect(id, ResultCode::PROTOCOL_ERROR, &error.to_string());
                }
            }
        }
        if let Some(client) = self.clients.get_mut(&id)
            && client.state != State::Closing
        {
            input.drain(..start);
            if input.is_empty() {
                input.shrink_to(4096);
            }
            client.input = input;
        }
        self.touch_client(id);
    }

    /// What is to be written to a client now.
    pub(crate) fn client_output(&mut self, id: u64) -> &[u8] {
        let Some(client) = self.clients.get_mut(&id) else { return &[] };
        // Broken TLS has nothing to write; reading ends the connection.
        client.wire.output().unwrap_or_default()
    }

    /// The socket of a client took so many bytes.
    pub(crate) fn client_sent(&mut self, id: u64, count: usize, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let was_full = client.wire.waiting() >= OUTPUT_HIGH;
        client.wire.sent(count);
        client.stalled = None;
        if client.wire.waiting() < OUTPUT_HIGH / 2 && !client.pauses.is_empty() {
            let paused = std::mem::take(&mut client.pauses);
            paused.into_iter().for_each(|upstream| self.resume(upstream, now));
        }
        if was_full && self.clients.get(&id).is_some_and(|client| client.wire.waiting() < OUTPUT_HIGH) {
            self.advance(id, now);
        }
    }

    /// Whether a client's connection ends when what is to be written is written.
    pub(crate) fn client_closes(&self, id: u64) -> bool {
        self.clients.get(&id).is_none_or(Client::closes)
    }

    // --- connections to servers ---

    /// The next connection that is to be made; it counts as being made from here on.
    pub(crate) fn next_connection(&mut self, now: Duration) -> Option<PlannedConnection> {
        if self.is_stopping {
            return None;
        }
        let lacking =
            self.backends.iter().enumerate().find_map(|(number, backend)| {
                Some((number, backend.lacks(now, self.with_contexts(backend))?))
            })?;
        self.upstream_number += 1;
        let lacking = PlannedConnection { backend: lacking.0, pool: lacking.1, number: self.upstream_number };
        if let Some(backend) = self.backends.get_mut(lacking.backend) {
            *backend.opening_mut(lacking.pool) += 1;
        }
        Some(lacking)
    }

    /// When a connection is to be tried again.
    pub(crate) fn next_try(&self, now: Duration) -> Option<Duration> {
        let later = self.backends.iter().map(Backend::next_try).filter(|at| *at > now);
        later.min()
    }

    pub(crate) fn url(&self, backend: usize) -> Option<&LdapUrl> {
        self.backends.get(backend).map(|backend| &backend.settings.url)
    }

    /// A connection could not be made.
    pub(crate) fn not_opened(&mut self, planned: PlannedConnection, why: &str, now: Duration) {
        let is_gone = self.backends.get(planned.backend).is_none_or(|backend| backend.is_gone);
        if !is_gone {
            let url = self.url(planned.backend).map(ToString::to_string).unwrap_or_default();
            (self.tell)(&format!("{url}: cannot connect: {why}"));
            self.counters.fault(&PeerFault::Socket(String::new()));
        }
        let chance = Self::draw(&mut self.chance);
        if let Some(backend) = self.backends.get_mut(planned.backend) {
            let opening = backend.opening_mut(planned.pool);
            *opening = opening.saturating_sub(1);
            backend.figures.unreached += 1;
            backend.failed(now, chance);
        }
        // Who waits for it learns that there is none.
        self.freed = [true; 2];
    }

    /// A socket is connected: its number, under which bytes go and come.
    pub(crate) fn opened(&mut self, planned: PlannedConnection, now: Duration) -> Option<u64> {
        let begun = self.opening(planned).and_then(Channel::begin);
        let channel = match begun {
            Ok(channel) => channel,
            Err(fault) => {
                self.not_opened(planned, &fault.to_string(), now);
                return None;
            }
        };
        let backend = self.backends.get_mut(planned.backend)?;
        let opening = backend.opening_mut(planned.pool);
        *opening = opening.saturating_sub(1);
        if backend.is_gone {
            // Other settings have come meanwhile.
            return None;
        }
        self.next += 1;
        let id = self.next;
        // In the order of their numbers, whichever was first.
        let own = backend.connections_mut(planned.pool);
        let number = |id: &u64| self.upstreams.get(id).map_or(0, |upstream| upstream.number);
        own.insert(own.partition_point(|id| number(id) < planned.number), id);
        let mut upstream = Upstream::new(planned.backend, planned.pool, channel, now);
        upstream.number = planned.number;
        if backend.settings.proxy_header == ProxyHeader::Local {
            upstream.preface = proxy_header::LOCAL_HEADER.to_vec();
        }
        self.upstreams.insert(id, upstream);
        self.note_ready(id);
        self.touch_upstream(id);
        Some(id)
    }

    fn opening(&self, planned: PlannedConnection) -> Result<Opening, PeerFault> {
        let backend = self.backends.get(planned.backend).ok_or(PeerFault::Closed)?;
        let url = &backend.settings.url;
        let tls = || {
            let client = self.upstream_tls.clone();
            client.ok_or_else(|| PeerFault::Tls("the settings of TLS cannot be used".to_owned()))
        };
        let security = match (url.scheme, backend.settings.start_tls) {
            (UrlScheme::Ldaps, _) => Security::Ldaps(tls()?),
            (UrlScheme::Ldapi, _) | (_, StartTls::No) => Security::Clear,
            // Passwords of clients would go in the clear.
            (_, StartTls::Yes) if planned.pool == Pool::Bind || self.settings.verifies_credentials => {
                Security::StartTls { client: tls()?, required: true }
            }
            (_, StartTls::Yes) => Security::StartTls { client: tls()?, required: false },
            (_, StartTls::Critical) => Security::StartTls { client: tls()?, required: true },
        };
        let credentials = match planned.pool {
            Pool::Shared => self.settings.bind.credentials.clone(),
            Pool::Bind => None,
        };
        Ok(Opening {
            host: if url.host.is_empty() { "localhost".to_owned() } else { url.host.clone() },
            security,
            credentials,
            binds_anonymously: false,
            limits: MessageLimits {
                message_bytes: self.settings.upstream_message_bytes,
                operations: CONNECTION_OPERATIONS,
                output_bytes: CONNECTION_OUTPUT,
                outlives_notice: true,
            },
            ambient: self.ambient,
        })
    }

    fn note_ready(&mut self, id: u64) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if upstream.is_ready || !upstream.channel.is_ready() {
            return;
        }
        upstream.is_ready = true;
        let pool = upstream.pool;
        if let Some(backend) = self.backends.get_mut(upstream.backend) {
            if backend.failures > 0 {
                (self.tell)(&format!("{}: connected again", backend.settings.url));
            }
            backend.failures = 0;
        }
        self.free(pool);
    }

    fn free(&mut self, pool: Pool) {
        match pool {
            Pool::Shared => self.freed[0] = true,
            Pool::Bind => self.freed[1] = true,
        }
    }

    /// Whether more is to be read of a server.
    pub(crate) fn upstream_reads(&self, id: u64) -> bool {
        self.upstreams.get(&id).is_some_and(|upstream| !upstream.is_paused)
    }

    /// What is to be written to a server now.
    pub(crate) fn upstream_output(&mut self, id: u64) -> &[u8] {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return &[] };
        if !upstream.preface.is_empty() {
            return &upstream.preface;
        }
        // Broken TLS has nothing to write; reading ends the connection.
        upstream.channel.output().unwrap_or_default()
    }

    /// The socket of a server took so many bytes.
    pub(crate) fn upstream_sent(&mut self, id: u64, count: usize) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if upstream.preface.is_empty() {
            upstream.channel.sent(count);
        } else {
            upstream.preface.drain(..count.min(upstream.preface.len()));
        }
        upstream.stalled = None;
        let pool = upstream.pool;
        if !self.waiting.iter().all(VecDeque::is_empty) || !self.pinned.is_empty() {
            self.free(pool);
        }
    }

    // --- who waits ---

    /// Those that wait for a connection of this kind: to any server, or to this one.
    fn queue(&mut self, pool: Pool, pinned: Option<usize>) -> &mut VecDeque<u64> {
        match (pool, pinned) {
            (Pool::Shared, Some(backend)) => self.pinned.entry(backend).or_default(),
            (Pool::Shared, None) => &mut self.waiting[0],
            (Pool::Bind, _) => &mut self.waiting[1],
        }
    }

    /// All queues for connections of this kind: the one whose first client has waited longest comes first.
    fn queues(&self, pool: Pool) -> Vec<Option<usize>> {
        let since = |queue: &VecDeque<u64>| {
            let first = queue.front().and_then(|id| self.clients.get(id));
            first.map_or(Duration::ZERO, |client| match client.state {
                State::Waiting(_, since) => since,
                _ => Duration::ZERO,
            })
        };
        let [shared, binds] = &self.waiting;
        match pool {
            Pool::Bind if binds.is_empty() => Vec::new(),
            Pool::Bind => vec![None],
            Pool::Shared => {
                let any = (!shared.is_empty()).then(|| (since(shared), None));
                let pinned = self.pinned.iter().map(|(backend, queue)| (since(queue), Some(*backend)));
                let mut found: Vec<(Duration, Option<usize>)> = any.into_iter().chain(pinned).collect();
                found.sort_unstable();
                found.into_iter().map(|(_, pinned)| pinned).collect()
            }
        }
    }

    /// Forgets a queue of its own that has nobody any more.
    fn drop_if_empty(&mut self, pinned: Option<usize>) {
        if let Some(backend) = pinned
            && self.pinned.get(&backend).is_some_and(VecDeque::is_empty)
        {
            self.pinned.remove(&backend);
        }
    }

    /// The one server whose connections a client may use; none: all of them.
    fn pinned_to(&self, id: u64, pool: Pool) -> Option<usize> {
        if pool == Pool::Bind {
            return None;
        }
        let client = self.clients.get(&id)?;
        if let Some(context) = client.context {
            return self.upstreams.get(&context.upstream).map(|upstream| upstream.backend);
        }
        match client.restriction {
            Restriction::Write(backend, _) | Restriction::Backend(backend) => Some(backend),
            Restriction::None | Restriction::Lost => None,
        }
    }

    /// Whether others wait for what a client's request needs.
    fn is_behind_others(&self, id: u64, pool: Pool) -> bool {
        let queue = match (pool, self.pinned_to(id, pool)) {
            (Pool::Shared, Some(backend)) => self.pinned.get(&backend),
            (Pool::Shared, None) => Some(&self.waiting[0]),
            (Pool::Bind, _) => Some(&self.waiting[1]),
        };
        queue.is_some_and(|queue| !queue.is_empty())
    }

    /// The next request of a client waits for a connection.
    fn wait(&mut self, id: u64, pool: Pool, now: Duration) {
        let pinned = self.pinned_to(id, pool);
        if let Some(client) = self.clients.get_mut(&id) {
            client.state = State::Waiting(pool, self.waking.unwrap_or(now));
            self.queue(pool, pinned).push_back(id);
        }
    }

    /// Tries requests again that wait, the first first, as far as connections take them.
    fn wake(&mut self, now: Duration) {
        for pool in Pool::ALL {
            let freed = match pool {
                Pool::Shared => &mut self.freed[0],
                Pool::Bind => &mut self.freed[1],
            };
            if !std::mem::take(freed) {
                continue;
            }
            for pinned in self.queues(pool) {
                self.wake_queue(pool, pinned, now);
                self.drop_if_empty(pinned);
            }
        }
    }

    fn wake_queue(&mut self, pool: Pool, pinned: Option<usize>, now: Duration) {
        for _ in 0..self.queue(pool, pinned).len() {
            let Some(id) = self.queue(pool, pinned).pop_front() else { break };
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let State::Waiting(own, since) = client.state else { continue };
            if own != pool {
                continue;
            }
            client.state = State::Open;
            self.waking = Some(since);
            self.advance(id, now);
            self.waking = None;
            let waits_again = self
                .clients
                .get(&id)
                .is_some_and(|client| matches!(client.state, State::Waiting(again, _) if again == pool));
            let queue = self.queue(pool, pinned);
            // It may wait for another server now.
            if waits_again && queue.back() == Some(&id) {
                // It keeps its position.
                queue.pop_back();
                queue.push_front(id);
                break;
            }
        }
    }

    /// Refuses the request of a client that waits.
    fn refuse_waiting(&mut self, id: u64, result: &LdapResult, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.state = State::Open;
        let Ok(Frame::Complete { len }) = frame(&client.input, self.settings.client_message_bytes) else {
            return;
        };
        let pdu: Vec<u8> = client.input.drain(..len).collect();
        if let Ok(message) = larix_proto::Message::decode(&pdu)
            && let Some(op) = requests::response_of(&message.request)
        {
            self.count_received(id, op == larix_proto::ResponseOp::Bind);
            self.reject(id, message.id, op, result);
        }
        self.advance(id, now);
    }

    /// A request of a client is looked at for the last time.
    fn count_received(&mut self, id: u64, is_bind: bool) {
        self.counters.operations(is_bind).received += 1;
        if let Some(client) = self.clients.get_mut(&id) {
            client.counts.received += 1;
        }
    }

    /// Answers a request that no server has seen.
    fn reject(&mut self, id: u64, message: MessageId, op: larix_proto::ResponseOp, result: &LdapResult) {
        self.counters.operations(op == larix_proto::ResponseOp::Bind).rejected += 1;
        self.refuse(id, message, op, result);
    }

    /// Answers a request with a result of the balancer's own.
    fn refuse(&mut self, id: u64, message: MessageId, op: larix_proto::ResponseOp, result: &LdapResult) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.counts.completed += 1;
            encode::result(client.wire.answers(), message, op, result, &[]);
            self.touch_client(id);
        }
    }
}

/// What a client's operations are sent with: it is bound as `name`, whose identity for others is `identity`.
fn authorize(settings: &BalanceSettings, client: &mut Client, name: &str, identity: &str) {
    (client.name, client.identity) = (name.to_owned(), identity.to_owned());
    let is_balancer = match &settings.bind.credentials {
        None => name.is_empty() && identity.is_empty(),
        Some(Credentials::Simple { dn, .. }) => !name.is_empty() && name == dn,
        Some(Credentials::External { authorization }) => is_named(authorization, name),
        Some(Credentials::Sasl(sasl)) => is_named(&sasl.authorization, name),
    };
    if is_balancer || !settings.proxy_authorization {
        client.authorize_as_balancer();
    } else {
        client.authorize(identity);
    }
}

/// Whether an authorization identity is this name. Of one without a DN nothing says here by which name the servers know it.
fn is_named(authorization: &str, name: &str) -> bool {
    let prefix = authorization.get(..3).filter(|prefix| prefix.eq_ignore_ascii_case("dn:"));
    prefix.is_some() && !name.is_empty() && authorization.get(3..) == Some(name)
}

fn touch_client(clients: &mut HashMap<u64, Client>, touched: &mut Touched, id: u64) {
    if let Some(client) = clients.get_mut(&id)
        && !client.is_touched
    {
        client.is_touched = true;
        touched.clients.push(id);
    }
}
