//! The core without I/O: bytes of clients and servers in, bytes out; the time is a parameter, counted from a start that the caller chooses.

mod answers;
mod binds;
mod choice;
mod clients;
mod connections;
mod contexts;
mod ends;
mod queues;
mod reload;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larix_client::{Ambient, Credentials, TlsClient};

use crate::backend::{Backend, Tier};
use crate::client::Client;
use crate::counters::Counters;
use crate::upstream::{Pool, Upstream};
use crate::wire::ClientTls;
use larix_configuration::balancer::BalanceSettings;

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
