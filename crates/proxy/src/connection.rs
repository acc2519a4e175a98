//! A connection to a target with its socket: what waits for it and what is under way on it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larix_client::{Channel, Credentials, NotSent, PeerFault};
use larix_proto::url::LdapUrl;
use socket2::Socket;

use crate::job::{Numbered, Owner, Sorting, envelope};
use crate::open::{Activity, OpenConnection};

/// Sorted answers that are asked of one connection at a time. slapd has five at most, and keeps one of which a part was asked for until
/// the connection ends; to further sorting it answers `busy`. It still counts one for a moment after its end was sent.
pub(crate) const SORTED_MAX: usize = 3;
/// If nobody asks for the next page for so long, others may read an answer over the connection.
const PAGING_IDLE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) owner: Owner,
    pub(crate) credentials: Option<Credentials>,
    /// Which of the servers.
    pub(crate) target: usize,
    /// Which of its owner's connections it is, from 0.
    pub(crate) place: u32,
    pub(crate) stage: Stage,
    pub(crate) socket: Option<Socket>,
    /// Not sent yet.
    pub(crate) waiting: VecDeque<Numbered>,
    /// By message id.
    pub(crate) sent: HashMap<u32, Numbered>,
    pub(crate) opened: Duration,
    pub(crate) used: Duration,
    /// When an answer last came.
    pub(crate) last_received: Duration,
    /// Until then it is to be ready.
    pub(crate) opening_until: Duration,
    /// What the poll looks for: reading, writing.
    pub(crate) interest: (bool, bool),
    /// A search whose client takes its answers slowly has it for itself.
    pub(crate) is_reserved: bool,
    /// It is for one request that is too large for a shared one, and for the pages that follow it.
    pub(crate) is_for_one: bool,
    /// The request for a page that came last, and when, until the last page of the answer has come.
    pub(crate) paging: Option<(u64, Duration)>,
    /// Searches for parts of sorted answers that went over it.
    pub(crate) parts: usize,
    /// A search on it may have more answers than its client has taken.
    pub(crate) has_full: bool,
    /// The monitor shows it.
    pub(crate) is_shown: bool,
    /// The server has said something, and the connection was ready by then.
    pub(crate) has_spoken: bool,
    /// Takes no more requests.
    pub(crate) is_closing: bool,
    /// What the monitor shows of what it does.
    pub(crate) activity: Arc<Activity>,
    /// Addresses not tried yet.
    pub(crate) addresses: VecDeque<SocketAddr>,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Resolving,
    Connecting,
    Open(Box<Channel>),
}

impl Connection {
    pub(crate) fn load(&self) -> usize {
        self.waiting.len() + self.sent.len()
    }

    /// Whether the server may have as many sorted answers of this connection as it can.
    pub(crate) fn is_full_of_sorted(&self) -> bool {
        let under_way = self.waiting.iter().chain(self.sent.values());
        // Thousands may be under way.
        let whole = under_way.filter(|(_, job)| job.sorting == Sorting::Whole).take(SORTED_MAX).count();
        whole + self.parts >= SORTED_MAX
    }

    /// Whether a client reads an answer page by page over it: the cookies of pages are of no use elsewhere.
    pub(crate) fn is_paging(&self, now: Duration) -> bool {
        self.paging.is_some_and(|(_, last_request)| now < last_request + PAGING_IDLE)
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.stage, Stage::Open(channel) if channel.is_ready())
    }

    /// Whether a request can be given to it.
    pub(crate) const fn takes_more(&self) -> bool {
        !self.is_closing && !self.is_reserved && !self.is_for_one
    }

    /// Whether its one request is over, and no page is to follow.
    pub(crate) fn has_served_its_one(&self, now: Duration) -> bool {
        self.load() == 0 && !self.is_paging(now)
    }

    /// What the monitor shows of it, once it is ready.
    pub(crate) fn shown(&self, url: &LdapUrl, now: Duration) -> Option<OpenConnection> {
        let Stage::Open(channel) = &self.stage else { return None };
        if !channel.is_ready() {
            return None;
        }
        let bound = match (&self.owner, &self.credentials) {
            (Owner::User(dn), _) => Some(dn.as_str().to_owned()),
            (Owner::Assertion | Owner::Root, Some(Credentials::Simple { dn, .. })) => Some(dn.clone()),
            _ => None,
        };
        let peer = self.socket.as_ref().and_then(|socket| socket.peer_addr().ok()?.as_socket());
        let flags = OpenConnection::flags_of(&self.owner, self.credentials.is_some(), channel.is_secure());
        Some(OpenConnection {
            url: url.to_string(),
            bound,
            flags,
            peer: peer.map(|peer| format!("IP={peer}")),
            place: self.place,
            established: now,
            used: None,
            answered: None,
            under_way: 0,
            is_closing: false,
        })
    }

    /// Sends what waits, as far as may be.
    pub(crate) fn send_waiting(&mut self, now: Duration) {
        let Stage::Open(channel) = &mut self.stage else { return };
        if !channel.is_ready() {
            return;
        }
        while let Some((_, job)) = self.waiting.front() {
            let silent = job.patience.map(|patience| now + patience);
            let deadline = job.deadline.into_iter().chain(silent).min();
            let sent =
                channel.layer().request(deadline, job.entries_max, |out, id| envelope(out, id, &job.body));
            match sent {
                Ok(id) => {
                    if let Some((number, mut job)) = self.waiting.pop_front() {
                        job.sent_at = now;
                        self.sent.insert(id.0, (number, job));
                    }
                    self.used = now;
                    self.activity.sends(now);
                }
                Err(NotSent::Full | NotSent::Alone) => return,
                Err(NotSent::Worn | NotSent::NoRequest) => {
                    self.is_closing = true;
                    return;
                }
            }
        }
    }

    /// Writes what is to be written; whether more is left.
    pub(crate) fn write(&mut self) -> Result<bool, PeerFault> {
        let (Stage::Open(channel), Some(socket)) = (&mut self.stage, &mut self.socket) else {
            return Ok(false);
        };
        loop {
            let output = channel.output()?;
            if output.is_empty() {
                return Ok(false);
            }
            match socket.write(output) {
                Ok(count) => channel.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PeerFault::Socket(error.to_string())),
            }
        }
    }

    /// Reads once; none: nothing is there.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, PeerFault> {
        let Some(socket) = &mut self.socket else { return Ok(None) };
        match socket.read(buffer) {
            Ok(0) => Err(PeerFault::Closed),
            Ok(count) => Ok(Some(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(PeerFault::Socket(error.to_string())),
        }
    }
}
