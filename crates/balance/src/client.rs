//! What the balancer knows of a client.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use larix_proto::control::{ControlValue, ProxiedAuthorization};

use crate::counters::OperationCounts;
use crate::upstream::Pool;
use crate::wire::Wire;

/// How a client connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// TLS begins with the first byte, or the first behind the header.
    pub(crate) is_tls: bool,
    /// A header of the PROXY protocol comes first.
    pub(crate) is_proxied: bool,
    /// The other end of the socket; none: a local one.
    pub(crate) address: Option<SocketAddr>,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Where it is, as far as the socket or the PROXY header says.
    pub(crate) address: Option<SocketAddr>,
    /// What has come of its PROXY header, while that is awaited.
    pub(crate) header: Option<Vec<u8>>,
    pub(crate) wire: Wire,
    /// Requests that have come, the next of them first.
    pub(crate) input: Vec<u8>,
    pub(crate) state: State,
    /// The DN that it is bound as, and the identity that this is for others (RFC 4513 section 5.2.1.8); empty: anonymous.
    pub(crate) name: String,
    pub(crate) identity: String,
    /// The proxied authorization control with its identity, encoded; empty: none is needed.
    pub(crate) authorization: Vec<u8>,
    /// It is bound as the balancer itself.
    pub(crate) is_privileged: bool,
    /// Where its operations are under way, by its message ids.
    pub(crate) pending: HashMap<u32, PendingOperation>,
    pub(crate) restriction: Restriction,
    /// Its operations go to this connection, whatever the restriction.
    pub(crate) context: Option<Context>,
    /// Connections that are not read until it takes its answers.
    pub(crate) pauses: HashSet<u64>,
    /// The connection of a SASL bind that goes on.
    pub(crate) sasl: Option<u64>,
    /// When it last sent something.
    pub(crate) last_received: Duration,
    /// Since when the socket has taken nothing of what waits, as far as was noticed.
    pub(crate) stalled: Option<Duration>,
    pub(crate) is_touched: bool,
    /// By which cn=Monitor names it: the first is 1.
    pub(crate) number: u64,
    pub(crate) counts: OperationCounts,
    /// It has a notice that its connection ends: it takes no new operation, and closes behind the last.
    pub(crate) is_leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// A bind is under way: nothing goes beside it (RFC 4511 section 4.2.1).
    Binding,
    /// Its next request waits for a connection since then.
    Waiting(Pool, Duration),
    /// What is to be written is the last.
    Closing,
}

/// Where an operation is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingOperation {
    pub(crate) upstream: u64,
    pub(crate) message: u32,
}

/// Where operations of a client may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Restriction {
    #[default]
    None,
    /// To this server until then; none: until the next bind.
    Write(usize, Option<Duration>),
    Backend(usize),
    /// To a server that is not there any more: the next one is refused.
    Lost,
}

/// What a server remembers of a client by connection: a page of a paged search, the order of a virtual list view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) upstream: u64,
    /// Paged searches that have not ended.
    pub(crate) pages: u32,
    /// There is something whose end no answer shows.
    pub(crate) is_lasting: bool,
}

/// What a request has a server remember by connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextUse {
    None,
    /// A page of a search; the first of them.
    Page {
        is_first: bool,
    },
    /// Something whose end no answer shows.
    Lasting,
}

impl Client {
    pub(crate) fn new(arrival: Arrival, now: Duration) -> Self {
        Self {
            address: arrival.address,
            header: arrival.is_proxied.then(Vec::new),
            wire: Wire::default(),
            input: Vec::new(),
            state: State::Open,
            name: String::new(),
            identity: String::new(),
            authorization: Vec::new(),
            is_privileged: false,
            pending: HashMap::new(),
            restriction: Restriction::None,
            context: None,
            pauses: HashSet::new(),
            sasl: None,
            last_received: now,
            stalled: None,
            is_touched: false,
            number: 0,
            counts: OperationCounts::default(),
            is_leaving: false,
        }
    }

    /// As the log names it.
    pub(crate) fn name(&self) -> impl fmt::Display + use<> {
        ClientName(self.address)
    }

    /// Whether its connection ends when what is to be written is written.
    pub(crate) fn closes(&self) -> bool {
        self.state == State::Closing || (self.is_leaving && self.pending.is_empty())
    }

    /// Its operations go on behalf of this identity (RFC 4513 section 5.2.1.8), empty for anonymous.
    pub(crate) fn authorize(&mut self, identity: &str) {
        self.is_privileged = false;
        self.authorization.clear();
        ProxiedAuthorization { authorization_id: identity }.to_control(true).encode(&mut self.authorization);
    }

    /// Its operations go as the balancer's own.
    pub(crate) fn authorize_as_balancer(&mut self) {
        self.is_privileged = true;
        self.authorization.clear();
    }
}

/// `client IP=192.0.2.1:4711`.
struct ClientName(Option<SocketAddr>);

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // An IPv4 client of a dual-stack socket is shown as what it is.
            Some(address) => {
                write!(f, "client IP={}", SocketAddr::new(address.ip().to_canonical(), address.port()))
            }
            None => f.write_str("client of a local socket"),
        }
    }
}
