//! What there is to watch: counts and times by server, and a picture of everything at one moment.

use std::net::SocketAddr;

use larix_client::PeerFault;
use larix_engine::histogram::{Durations, Histogram};
use larix_proto::{ResponseOp, ResultCode};

use crate::counters::{Counters, OperationCounts};

/// The kinds of operations, as figures are given by them.
pub const OPERATIONS: [&str; 8] =
    ["bind", "search", "compare", "modify", "modrdn", "add", "delete", "extended"];
/// Result codes with a figure each: those from 0 to one less than the last, which stands for all others.
pub const CODES: usize = 128;

/// Counts and times of one server.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// By [`OPERATIONS`].
    started: [u64; OPERATIONS.len()],
    durations: [Histogram; OPERATIONS.len()],
    results: Box<[u64; CODES]>,
    /// Operations that ended because the connection was lost.
    pub(crate) lost: u64,
    /// Operations that ended because no answer came in time.
    pub(crate) late: u64,
    /// Tries to connect that failed.
    pub(crate) unreached: u64,
    faults: [u64; PeerFault::NAMES.len()],
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            started: [0; OPERATIONS.len()],
            durations: std::array::from_fn(|_| Histogram::default()),
            results: Box::new([0; CODES]),
            lost: 0,
            late: 0,
            unreached: 0,
            faults: [0; PeerFault::NAMES.len()],
        }
    }
}

/// Where a kind of operation stands in [`OPERATIONS`].
const fn index_of(operation: ResponseOp) -> usize {
    match operation {
        ResponseOp::Bind => 0,
        ResponseOp::SearchDone => 1,
        ResponseOp::Compare => 2,
        ResponseOp::Modify => 3,
        ResponseOp::ModifyDn => 4,
        ResponseOp::Add => 5,
        ResponseOp::Delete => 6,
        ResponseOp::Extended => 7,
    }
}

impl Recorder {
    pub(crate) fn count_start(&mut self, operation: ResponseOp) {
        if let Some(count) = self.started.get_mut(index_of(operation)) {
            *count += 1;
        }
    }

    /// An operation has its last answer.
    pub(crate) fn count_end(&mut self, operation: ResponseOp, code: ResultCode, took: std::time::Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(histogram) = self.durations.get(index_of(operation)) {
            histogram.record(nanoseconds);
        }
        let at = usize::try_from(code.0).unwrap_or(CODES).min(CODES - 1);
        if let Some(count) = self.results.get_mut(at) {
            *count += 1;
        }
    }

    pub(crate) fn fault(&mut self, fault: &PeerFault) {
        if let Some(count) = self.faults.get_mut(fault.number()) {
            *count += 1;
        }
    }

    /// Completes the figures of a server with what was counted.
    pub(crate) fn show(&self, figures: &mut ServerFigures) {
        figures.started = self.started;
        for (sums, histogram) in figures.durations.iter_mut().zip(&self.durations) {
            histogram.add_to(sums);
        }
        figures.results = self.results.to_vec();
        (figures.lost, figures.late, figures.unreached) = (self.lost, self.late, self.unreached);
        figures.faults = self.faults;
    }
}

/// A balancer at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub counters: Counters,
    /// Connections of clients.
    pub clients: usize,
    /// Clients whose request waits for a connection, by [`POOLS`].
    pub waiting: [usize; 2],
    /// It stops: it takes no new operation.
    pub is_stopping: bool,
    /// The names of the tiers, in the order in which they are tried.
    pub tiers: Vec<String>,
    pub servers: Vec<ServerFigures>,
    /// Those of clients, where each was asked for.
    pub connections: Vec<ConnectionFigures>,
}

/// One connection at one moment.
#[derive(Clone, Debug, Default)]
pub struct ConnectionFigures {
    pub(crate) id: u64,
    /// From 1 in the order in which they were made, those of clients and those to servers each by themselves.
    pub number: u64,
    /// As OpenLDAP names it: `regular`, `bind`, `preparing` or `privileged`.
    pub kind: &'static str,
    /// `ready`, `active`, `binding`, `closing` or `dying`.
    pub state: &'static str,
    /// None of a local socket.
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    /// The DN that a client is bound as; empty: anonymous.
    pub authorization: String,
    /// Operations under way.
    pub pending: usize,
    pub counts: OperationCounts,
}

/// The kinds of connections to servers: those that all operations share, and those of binds.
pub const POOLS: [&str; 2] = ["shared", "bind"];

/// One server at one moment.
#[derive(Clone, Debug, Default)]
pub struct ServerFigures {
    /// Which of all servers.
    pub(crate) at: usize,
    /// The name that the configuration has for it, and the URL as it was given.
    pub name: String,
    pub uri: String,
    pub url: String,
    /// From 1, in the order in which they are tried.
    pub tier: usize,
    /// Connections that may be used, by [`POOLS`].
    pub ready: [usize; 2],
    /// Those that there are to be.
    pub wanted: [usize; 2],
    /// Those that are being made.
    pub coming: usize,
    pub counts: OperationCounts,
    /// Where each was asked for.
    pub connections: Vec<ConnectionFigures>,
    /// Operations under way on shared connections.
    pub under_way: usize,
    /// Seconds on average to the first answer, by which `bestof` chooses.
    pub latency: f64,
    /// By [`OPERATIONS`].
    pub started: [u64; OPERATIONS.len()],
    /// From the request to the last answer, by [`OPERATIONS`].
    pub durations: [Durations; OPERATIONS.len()],
    /// By result code: see [`CODES`].
    pub results: Vec<u64>,
    pub lost: u64,
    pub late: u64,
    pub unreached: u64,
    /// Connections that ended with a fault, by [`PeerFault::NAMES`].
    pub faults: [u64; PeerFault::NAMES.len()],
}

impl Figures {
    /// Why no client should be sent here; empty: clients are served.
    pub fn unready(&self) -> String {
        if self.is_stopping {
            return "the balancer stops\n".to_owned();
        }
        let mut text = String::new();
        for (at, what) in ["operations", "binds"].into_iter().enumerate() {
            let has_one = |server: &ServerFigures| server.ready.get(at).is_some_and(|ready| *ready > 0);
            if !self.servers.iter().any(has_one) {
                text.push_str(&format!("no server has a connection for {what}\n"));
            }
        }
        text
    }
}
