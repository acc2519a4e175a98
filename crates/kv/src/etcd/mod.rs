//! etcd: every row is a key, and a transaction with conditions is the fence. [`keys`] says where everything lies, [`commits`] how a commit
//! that is larger than etcd's transactions stays whole.

mod address;
mod call;
mod commits;
mod keys;
mod load;
mod nodes;
mod opening;
mod reading;
mod wire;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use address::Address;
use call::Client;
use commits::{Change, Head};
use keys::Keys;
use larix_store::TableSpec;
use nodes::{MessageLease, Presence};
use wire::{Op, OpResponse, Range, Txn};

use crate::engine::{
    CommitListener, CommitPresence, Engine, HeldLease, Holding, Limits, Load, MessageListener,
    OpenedSnapshot, Proposal, Question, Recipient, RemovedNode, Said, Session, Sizes, StoredCommit,
    commit_deadline,
};
use crate::error::{Fault, OpenError};
use crate::runtime::Runtime;

/// Most bytes of one commit: its parts are read one by one, but a writer holds all of it.
const COMMIT_BYTES_MAX: usize = 64 << 20;
/// What a request has beside its keys and values, at most.
const REQUEST_ROOM: usize = 64 << 10;
/// What a part of a large commit leaves for what may go with it.
const PART_ROOM: usize = 32 << 10;

/// A prefix of an etcd.
#[derive(Debug)]
pub(crate) struct Etcd {
    // First, so that it is gone before what it runs on.
    presence: Option<Presence>,
    shared: Arc<Shared>,
    runtime: Runtime,
    deadline: Duration,
    /// The numbers of the tables.
    tables: Vec<u8>,
}

/// What calls take along to the thread that talks to etcd.
#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    keys: Keys,
    txn_ops: usize,
    /// Of keys and values in one request.
    request_bytes: usize,
    message_lease: MessageLease,
}

impl Etcd {
    /// Looks at what is there, or makes it; gives the number of each table, too.
    pub(crate) fn open(
        address: Address,
        schema: &str,
        name: &str,
        limits: Limits,
        tables: &[TableSpec],
        make: bool,
    ) -> Result<(Self, Vec<u8>), OpenError> {
        let runtime = Runtime::start()
            .map_err(|error| OpenError::Unavailable(format!("a thread could not be started: {error}")))?;
        let keys = Keys::new(&address.prefix, schema);
        let (txn_ops, request_bytes) = (address.txn_ops, address.request_bytes - REQUEST_ROOM);
        let client = Arc::new(Client::new(address, limits.deadline));
        let message_lease = MessageLease::default();
        let shared = Arc::new(Shared { client, keys, txn_ops, request_bytes, message_lease });
        let mut etcd =
            Self { presence: None, shared, runtime, deadline: limits.deadline, tables: Vec::new() };
        let (shared, wanted, schema) = (Arc::clone(&etcd.shared), tables.to_vec(), schema.to_owned());
        let opened = etcd.run(async move { Ok(shared.prepare(&schema, &wanted, make).await) });
        let numbers = opened.map_err(Fault::into_open)??;
        etcd.tables = numbers.clone();
        if !name.is_empty() {
            etcd.presence = Some(Presence::begin(&etcd.runtime.handle, &etcd.shared, name));
        }
        Ok((etcd, numbers))
    }

    /// Carries something out within the deadline.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.run_within(self.deadline, work)
    }

    fn run_within<T: Send + 'static>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let result = self.runtime.call(deadline, work);
        // One that hangs, or that holds something else than the members do.
        if let Err(Fault::Late(_) | Fault::Lie(_)) = &result {
            self.shared.client.move_on();
        }
        result
    }
}

impl Engine for Etcd {
    fn trips(&self) -> u64 {
        self.shared.client.trips()
    }

    fn walks(&self) -> bool {
        false
    }

    fn sizes(&self) -> Sizes {
        let value_bytes_max = self.shared.request_bytes - PART_ROOM - (4 << 10);
        Sizes {
            value_bytes_max,
            commit_bytes_max: COMMIT_BYTES_MAX,
            why: format!(
                "{value_bytes_max} are the most that fit into a request of etcd: raise its --max-request-bytes, and say the number as \
                 max-request-bytes=NUMBER in the address"
            ),
        }
    }

    fn newest(&self) -> Result<StoredCommit, Fault> {
        let shared = Arc::clone(&self.shared);
        self.run(async move {
            shared.client.trip();
            Ok(shared.head().await?.newest())
        })
    }

    fn begin(&self, known: u64, questions: Vec<Question>) -> Result<OpenedSnapshot<'_>, Fault> {
        self.begin_at(known, questions)
    }

    fn commit(&self, proposal: Proposal) -> Result<bool, Fault> {
        let rows = proposal.puts.len() + proposal.deletes.len();
        let bytes: usize = proposal.puts.iter().map(|(_, value)| value.len()).sum();
        let deadline = self.deadline_for(rows, bytes);
        let shared = Arc::clone(&self.shared);
        self.run_within(deadline, async move { shared.commit(Change { proposal, clears: Vec::new() }).await })
    }

    fn take_over(&self, attempt: &[u8]) -> Result<u64, Fault> {
        let (shared, attempt) = (Arc::clone(&self.shared), attempt.to_vec());
        self.run(async move { shared.take_over(&attempt).await })
    }

    fn settle(&self, version: u64, attempt: &[u8], void: &[u8]) -> Result<bool, Fault> {
        let (shared, attempt, void) = (Arc::clone(&self.shared), attempt.to_vec(), void.to_vec());
        self.run(async move { shared.settle(version, &attempt, &void).await })
    }

    fn holds(&self, version: u64, attempt: &[u8]) -> Result<CommitPresence, Fault> {
        let (shared, attempt) = (Arc::clone(&self.shared), attempt.to_vec());
        let held = self.run(async move { shared.holds(version, &attempt).await })?;
        if held != CommitPresence::Present && !held.is_too_old(version) {
            self.shared.client.move_on();
        }
        Ok(held)
    }

    fn counts(&self) -> Result<Vec<(u8, u64)>, Fault> {
        let (shared, tables) = (Arc::clone(&self.shared), self.tables.clone());
        self.run(async move {
            let count = |table: &u8| {
                let (key, end) = shared.keys.table(*table);
                Op::Range(Range { key, end, count_only: true, ..Range::default() })
            };
            shared.client.trip();
            let outcome = shared.client.txn(&Txn::of(tables.iter().map(count).collect())).await?;
            let counted = tables.into_iter().zip(outcome.done).filter_map(|(table, done)| match done {
                OpResponse::Range { count, .. } => Some((table, count)),
                OpResponse::Put | OpResponse::Deleted(_) => None,
            });
            Ok(counted.collect())
        })
    }

    fn load(&self, epoch: u64, tables: &[u8]) -> Result<Option<Box<dyn Load + '_>>, Fault> {
        let load = load::Loading::begin(self, epoch, tables)?;
        Ok(load.map(|load| Box::new(load) as Box<dyn Load + '_>))
    }

    fn lease(&self) -> Result<Option<HeldLease>, Fault> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.lease().await })
    }

    fn hold_lease(&self, holder: &[u8], node: &str, time: Duration) -> Result<Holding, Fault> {
        let (shared, holder, node) = (Arc::clone(&self.shared), holder.to_vec(), node.to_owned());
        self.run(async move { shared.hold_lease(&holder, &node, time).await })
    }

    fn release_lease(&self, holder: &[u8]) -> Result<(), Fault> {
        let (shared, holder) = (Arc::clone(&self.shared), holder.to_vec());
        self.run(async move { shared.release_lease(&holder).await })
    }

    fn end_lease(&self, kept_away: Duration) -> Result<bool, Fault> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.end_lease(None, kept_away).await })
    }

    fn remove(&self, node: &str, name: &str, kept_away: Duration) -> Result<RemovedNode, Fault> {
        let (shared, node, name) = (Arc::clone(&self.shared), node.to_owned(), name.to_owned());
        self.run(async move { shared.remove(&node, &name, kept_away).await })
    }

    fn sessions(&self) -> Result<Vec<Session>, Fault> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.sessions().await })
    }

    fn say(&self, node: &str, words: &[u8]) -> Result<(), Fault> {
        let words = [node.as_bytes(), b"\n", words].concat();
        self.presence.iter().for_each(|presence| presence.say(Some(words.clone())));
        Ok(())
    }

    fn unsay(&self, _: &str) -> Result<(), Fault> {
        self.presence.iter().for_each(|presence| presence.say(None));
        Ok(())
    }

    fn said(&self) -> Result<Vec<Said>, Fault> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.said().await })
    }

    fn send(&self, own: &[u8], to: Recipient<'_>, number: u64, body: Vec<u8>) -> Result<(), Fault> {
        let recipient = match to {
            Recipient::Leader => None,
            Recipient::Node(node) => Some(node),
        };
        let key = [&*self.shared.keys.mailbox(recipient), own, &number.to_be_bytes()].concat();
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.send(key, body).await })
    }

    fn listen(&self) -> Result<Box<dyn MessageListener>, Fault> {
        Ok(Box::new(nodes::Listener::begin(self)?))
    }

    fn listen_to_commits(&self) -> Result<Box<dyn CommitListener>, Fault> {
        Ok(Box::new(nodes::Watch::of_commits(self)?))
    }
}

impl Etcd {
    fn deadline_for(&self, rows: usize, bytes: usize) -> Duration {
        commit_deadline(self.deadline, rows, bytes)
    }

    fn settled_head(&self) -> Result<Head, Fault> {
        let shared = Arc::clone(&self.shared);
        self.run(async move {
            shared.client.trip();
            shared.settled_head().await
        })
    }
}
