//! A connection to a server, and what is under way on it.

use std::collections::HashMap;
use std::time::Duration;

use larix_client::{Channel, GivingUp};
use larix_proto::{MessageId, ResponseOp};

use crate::counters::OperationCounts;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Operations of all clients.
    Shared,
    /// Binds, one at a time.
    Bind,
}

impl Pool {
    pub(crate) const ALL: [Self; 2] = [Self::Shared, Self::Bind];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Bind => "bind",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Upstream {
    /// Which of all servers.
    pub(crate) backend: usize,
    pub(crate) pool: Pool,
    /// What goes before everything else: the header of the PROXY protocol, as far as the socket has not taken it.
    pub(crate) preface: Vec<u8>,
    pub(crate) channel: Channel,
    /// By the message ids of this connection.
    pub(crate) pending: HashMap<u32, Operation>,
    pub(crate) is_ready: bool,
    /// It takes no new operation, and closes behind the last.
    pub(crate) is_retiring: bool,
    /// It is not read: the one client that uses it does not take its answers.
    pub(crate) is_paused: bool,
    /// Clients of which the server remembers something here, and whether something is left of those that were.
    pub(crate) contexts: usize,
    pub(crate) has_remains: bool,
    /// A SASL bind of this client goes on since then.
    pub(crate) reserved: Option<(u64, Duration)>,
    /// The server has an exchange half done here with which nobody goes on: it is to forget it before anybody else binds.
    pub(crate) is_midway: bool,
    pub(crate) opened: Duration,
    /// When an answer to an operation last came.
    pub(crate) last_received: Duration,
    /// Since when the socket has taken nothing of what waits, as far as was noticed.
    pub(crate) stalled: Option<Duration>,
    pub(crate) is_touched: bool,
    /// By which cn=Monitor names it: the first is 1.
    pub(crate) number: u64,
    pub(crate) counts: OperationCounts,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The client and its message id; none: the answer is thrown away.
    pub(crate) to: Option<(u64, u32)>,
    pub(crate) kind: Kind,
    pub(crate) sent: Duration,
    /// Something of its answer has come.
    pub(crate) is_answered: bool,
    /// It begins or prolongs the client's restriction to one server.
    pub(crate) is_write: bool,
    /// Its answer alone says whether the server has changed something.
    pub(crate) may_change: bool,
    /// It asks for a page of a search.
    pub(crate) is_page: bool,
    /// That was the last page.
    pub(crate) ends_pages: bool,
}

impl Operation {
    /// One of a bind: it is no write, and no part of a search.
    pub(crate) fn new(to: Option<(u64, u32)>, kind: Kind, sent: Duration) -> Self {
        Self {
            to,
            kind,
            sent,
            is_answered: false,
            is_write: false,
            may_change: false,
            is_page: false,
            ends_pages: false,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Kind {
    Plain(ResponseOp),
    Bind(Binding),
    /// The same by Verify Credentials, over a connection that clients share.
    Verify(Binding),
    /// Who a bind was that succeeded, and the answer that waits for it, from behind its message id.
    WhoAmI(Vec<u8>),
    /// An anonymous bind of the balancer's own, with which the server forgets an exchange that is half done.
    Abort,
}

/// What a bind asks for.
#[derive(Debug)]
pub(crate) enum Binding {
    /// Anonymous in the end: without a name or without a password.
    Anonymous,
    Name(String),
    /// Only the server knows.
    Unknown,
}

impl Kind {
    /// Whether others may be under way beside it: its connection is one that clients share.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Verify(_))
    }

    /// The type of the answer that its client gets.
    pub(crate) const fn response(&self) -> ResponseOp {
        match self {
            Self::Plain(op) => *op,
            Self::Bind(_) | Self::Verify(_) | Self::WhoAmI(_) | Self::Abort => ResponseOp::Bind,
        }
    }
}

impl Upstream {
    pub(crate) fn new(backend: usize, pool: Pool, channel: Channel, now: Duration) -> Self {
        Self {
            backend,
            pool,
            preface: Vec::new(),
            channel,
            pending: HashMap::new(),
            is_ready: false,
            is_retiring: false,
            is_paused: false,
            contexts: 0,
            has_remains: false,
            reserved: None,
            is_midway: false,
            opened: now,
            last_received: now,
            stalled: None,
            is_touched: false,
            number: 0,
            counts: OperationCounts::default(),
        }
    }

    /// Whether it takes an operation, below this many.
    pub(crate) fn takes(&self, limit: usize) -> bool {
        let is_free = match self.pool {
            Pool::Shared => self.pending.len() < limit,
            Pool::Bind => self.pending.is_empty() && self.reserved.is_none() && !self.is_midway,
        };
        is_free && self.is_ready && !self.is_retiring
    }

    /// Tells the server that nobody waits for an operation.
    pub(crate) fn abandon(&mut self, message: u32) -> Option<Operation> {
        let operation = self.pending.remove(&message)?;
        self.channel.layer().give_up(MessageId(message), GivingUp::Abandon);
        self.is_retiring |= self.channel.messages().is_worn();
        Some(operation)
    }
}
