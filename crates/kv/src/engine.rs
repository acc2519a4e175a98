//! What a store wants of an engine. Whatever keeps this interface is one: [`crate::postgresql`], [`crate::etcd`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larix_store::CommitError;

use crate::changes::Keys;
use crate::error::Fault;

/// Longest URL of a node, in bytes.
pub const NODE_BYTES_MAX: usize = 400;
/// Messages older than this are dropped: nobody waits for them any more.
pub(crate) const OLDEST_MESSAGE: Duration = Duration::from_secs(10);
/// Commits that one validation tells at most. Who is further behind forgets what it knows.
pub(crate) const COMMITS_LISTED_MAX: u64 = 256;
/// Rows of this many commits are kept, for nodes that are behind.
pub(crate) const COMMITS_KEPT: u64 = 16_384;
/// Records of one answer are cut off where they come to this many bytes, but for the first one.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Records of one range that an answer to [`Question::Firsts`] has at most. Most posting lists have one block, or none: where fewer records
/// come than this, or one beyond the list, all of the list is known.
pub(crate) const FIRSTS: u32 = 2;

/// A large commit takes longer than the deadline of one answer: so much longer for each of these.
const BYTES_A_DEADLINE: usize = 2 << 20;
const ROWS_A_DEADLINE: usize = 4_000;

/// How long a commit of so many rows and bytes may take, where one answer may take `deadline`.
pub(crate) fn commit_deadline(deadline: Duration, rows: usize, bytes: usize) -> Duration {
    let more = 1 + rows / ROWS_A_DEADLINE + bytes / BYTES_A_DEADLINE;
    deadline * u32::try_from(more).unwrap_or(u32::MAX)
}

/// Times and sizes of a pool of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    #[cfg_attr(not(feature = "postgresql"), expect(dead_code, reason = "etcd has one connection"))]
    pub(crate) connections: usize,
    pub(crate) deadline: Duration,
}

/// What an engine takes at once.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) value_bytes_max: usize,
    pub(crate) commit_bytes_max: usize,
    /// What is said of a value that is too long.
    pub(crate) why: String,
}

impl Sizes {
    /// Whether a value can be stored.
    pub(crate) fn check(&self, value: &[u8]) -> Result<(), CommitError> {
        if value.len() <= self.value_bytes_max {
            return Ok(());
        }
        let text = format!("a value of {} bytes: {}", value.len(), self.why);
        Err(CommitError::Io(std::io::Error::other(text)))
    }
}

/// A question about rows.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// The values of keys.
    Values { table: u8, keys: Vec<Vec<u8>> },
    /// Up to `limit` records from the first one of a range on.
    Forward { table: u8, from: Vec<u8>, to: Vec<u8>, limit: u32 },
    /// Up to `limit` records from the last one of a range back.
    Backward { table: u8, from: Vec<u8>, to: Vec<u8>, limit: u32 },
    /// For each range its first records, [`FIRSTS`] of them.
    Firsts { table: u8, ranges: Vec<(Vec<u8>, Vec<u8>)> },
    /// For each range its last record.
    Lasts { table: u8, ranges: Vec<(Vec<u8>, Vec<u8>)> },
    /// Rows that lead from one to the next, as [`larix_store::Path`] has them: places from 0 on, and behind the last step's the
    /// records with their ids. An engine that does not [walk](Engine::walks) answers the first row.
    Path {
        table: u8,
        #[cfg_attr(
            not(feature = "postgresql"),
            expect(dead_code, reason = "etcd answers the first row alone")
        )]
        records: u8,
        from: Vec<u8>,
        steps: Vec<Vec<u8>>,
    },
}

/// A record of an answer. `place`: which of the keys or ranges it answers, from 0 on.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) place: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A commit as the engine has it: its number, the keys that it changed unless there were too many, and what made it.
#[derive(Clone, Debug)]
pub(crate) struct StoredCommit {
    pub(crate) version: u64,
    pub(crate) keys: Option<Keys>,
    pub(crate) epoch: u64,
    pub(crate) attempt: Vec<u8>,
}

/// Whether the engine still has a commit that it acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitPresence {
    Present,
    /// Another commit has its number.
    Replaced,
    /// There is no such row. `newest` is the number of the newest commit, read after that.
    Absent {
        newest: u64,
    },
}

impl CommitPresence {
    /// Whether so many others have come since that the row of `version` would not be kept: nobody can say any more what it was.
    pub(crate) fn is_too_old(self, version: u64) -> bool {
        matches!(self, Self::Absent { newest } if newest.saturating_sub(version) > COMMITS_KEPT)
    }
}

/// What a moment shows of the commits from a known one on.
#[derive(Clone, Debug)]
pub(crate) enum NewCommits {
    /// The newest first, down to the known one unless the engine lacks that.
    Listed(Vec<StoredCommit>),
    /// There are more than [`COMMITS_LISTED_MAX`] behind the known one. The newest, and what made the known one, unless the engine has no
    /// such row.
    TooMany { newest: StoredCommit, known: Option<Vec<u8>> },
}

/// One moment of the engine, asked further questions.
pub(crate) trait EngineSnapshot: fmt::Debug + Send {
    /// Answers in one round trip, as long as every question is about few rows.
    fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Vec<Answer>>, Fault>;

    /// Its server lacks what was acknowledged, so another one may have taken its place: from now on another one is asked first,
    /// where the address names any.
    fn leave(self: Box<Self>) {}
}

/// A moment, what it shows of commits, and the answers to the first questions.
pub(crate) type OpenedSnapshot<'e> = (Box<dyn EngineSnapshot + 'e>, NewCommits, Vec<Vec<Answer>>);

/// A commit that is to be made.
#[derive(Debug)]
pub(crate) struct Proposal {
    /// The version that it continues.
    pub(crate) version: u64,
    /// What made that one: behind another commit of this number it is not let in, as after a failover that lost commits. None: whatever did.
    pub(crate) continues: Option<Vec<u8>>,
    pub(crate) epoch: u64,
    pub(crate) attempt: Vec<u8>,
    /// The list of [`crate::changes`].
    pub(crate) keys: Option<Vec<u8>>,
    pub(crate) deletes: Vec<RowKey>,
    pub(crate) puts: Vec<(RowKey, std::sync::Arc<[u8]>)>,
    /// Rows of commits below this one may go; 0: none.
    pub(crate) trimmed: u64,
}

/// Number of a table, and key.
pub(crate) type RowKey = (u8, Box<[u8]>);

/// A row that is loaded: number of the table, key, value.
pub(crate) type LoadedRow = (u8, Vec<u8>, Vec<u8>);

/// A bulk load. Nothing of it is there before it is finished; dropped, it leaves no trace.
pub(crate) trait Load: fmt::Debug {
    /// The version that it continues.
    fn version(&self) -> u64;
    /// Of a table its last key.
    fn last(&self, table: u8) -> Option<&[u8]>;
    fn clear(&mut self, table: u8) -> Result<(), Fault>;
    /// Writes rows, each key once, whatever is there.
    fn append(&mut self, rows: Vec<LoadedRow>) -> Result<(), Fault>;
    fn finish(self: Box<Self>, attempt: &[u8]) -> Result<(), LoadFault>;
}

/// Why a load was not finished.
#[derive(Debug)]
pub(crate) enum LoadFault {
    /// Before it was to be made durable.
    #[cfg(feature = "postgresql")]
    Before(Fault),
    /// While it was made durable: it may have been.
    Within(Fault),
    Fenced,
}

/// Whose the lease is after a handle has asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Somebody else's, or the handle is kept away.
    Others,
    /// The handle's, as it was before: nobody else has held it since.
    Still,
    /// The handle's from now on: another one may have held it until now, and may have committed.
    Anew,
}

/// Whether another handle may have held the lease between two renewals, and what it committed is not asked for yet. The engine says
/// that once: an answer that is lost, or a question that fails behind it, must not pass for a lease without a gap.
#[derive(Debug, Default)]
pub(crate) struct LeaseGap(AtomicBool);

impl LeaseGap {
    pub(crate) fn renew<E>(
        &self,
        hold: impl FnOnce() -> Result<Holding, E>,
        hear: impl FnOnce() -> Result<(), E>,
    ) -> Result<Holding, E> {
        let may_be_open = self.0.swap(true, Ordering::AcqRel);
        let holding = hold()?;
        let has_gap = holding == Holding::Anew || may_be_open && holding == Holding::Still;
        if has_gap {
            hear()?;
        }
        if holding != Holding::Others {
            self.0.store(false, Ordering::Release);
        }
        Ok(holding)
    }
}

/// The lease as the engine has it.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) holder: Vec<u8>,
    pub(crate) node: String,
    pub(crate) left: Duration,
}

/// What a node lost when it was [removed](crate::KvStore::remove).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedNode {
    pub held_lease: bool,
    /// Connections to the engine.
    pub connections: u64,
}

/// A node that is connected to the engine's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// As its connections are named there.
    pub name: String,
    pub connections: u64,
}

/// What a node has said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The node's URL.
    pub node: String,
    pub words: Vec<u8>,
    /// How long ago, by the engine's clock; with etcd in whole seconds.
    pub ago: Duration,
}

/// Whom a message is for.
#[derive(Clone, Copy, Debug)]
pub enum Recipient<'a> {
    /// The node that writes, whichever it is.
    Leader,
    /// The sender of a message.
    Node(&'a [u8]),
}

/// A message that has come.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Whether it is for the node that writes; else it answers a message of this node's.
    pub to_leader: bool,
    pub sender: Vec<u8>,
    /// What the sender knows it by; of an answer the number of the message that it answers.
    pub number: u64,
    pub body: Vec<u8>,
}

/// Its body stays out of logs.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Hears that something was sent.
pub(crate) trait MessageListener: fmt::Debug + Send + Sync {
    /// Waits up to `time`; whether something was sent, as far as is known.
    fn wait(&self, time: Duration) -> Result<bool, Fault>;
    /// As if something had been sent.
    fn wake(&self);
    /// Takes the messages to a node, and those to the node that writes if it `leads`, in the order of their sending.
    fn take(&self, own: &[u8], leads: bool) -> Result<Vec<Message>, Fault>;
}

/// Hears that somebody has committed. What it hears may be lost with its connection: who has to know asks.
pub(crate) trait CommitListener: fmt::Debug + Send + Sync {
    /// Waits up to `time`; whether there may be new commits.
    ///
    /// # Errors
    /// It hears nothing any more.
    fn wait(&self, time: Duration) -> Result<bool, Fault>;
    /// As if there were.
    fn wake(&self);
    /// Looks whether it still hears.
    ///
    /// # Errors
    /// It does not.
    fn check(&self) -> Result<(), Fault>;
}

/// An engine with one store in it. Every call ends within the deadline of the engine, and counts the round trips that it takes.
pub(crate) trait Engine: fmt::Debug + Send + Sync {
    /// Round trips so far that somebody has waited for, without those of connecting.
    fn trips(&self) -> u64;

    /// Whether it follows a whole path in one round trip.
    fn walks(&self) -> bool;
    fn sizes(&self) -> Sizes;
    fn newest(&self) -> Result<StoredCommit, Fault>;
    /// Shows a moment with all that was acknowledged before.
    fn begin(&self, known: u64, questions: Vec<Question>) -> Result<OpenedSnapshot<'_>, Fault>;
    /// The commits from `known` on as [`Self::begin`] tells them, where nothing else is asked.
    fn since(&self, known: u64) -> Result<NewCommits, Fault> {
        self.begin(known, Vec::new()).map(|(_, new_commits, _)| new_commits)
    }
    /// Whether it was let in: not where the version that it continues is of a later epoch, or not the one that it continues.
    fn commit(&self, proposal: Proposal) -> Result<bool, Fault>;
    /// Makes a commit in a new epoch, which it gives.
    fn take_over(&self, attempt: &[u8]) -> Result<u64, Fault>;
    /// Whether `version` was made by `attempt`. If nobody has made it, `void` does, so that nobody else can.
    fn settle(&self, version: u64, attempt: &[u8], void: &[u8]) -> Result<bool, Fault>;
    /// Whether the engine still has `version`, made by `attempt`. A server that lacks it is [left](EngineSnapshot::leave).
    fn holds(&self, version: u64, attempt: &[u8]) -> Result<CommitPresence, Fault>;
    /// Of each table with records their number.
    fn counts(&self) -> Result<Vec<(u8, u64)>, Fault>;
    /// None where the newest commit is of a later epoch.
    fn load(&self, epoch: u64, tables: &[u8]) -> Result<Option<Box<dyn Load + '_>>, Fault>;

    fn lease(&self) -> Result<Option<HeldLease>, Fault>;
    fn hold_lease(&self, holder: &[u8], node: &str, time: Duration) -> Result<Holding, Fault>;
    fn release_lease(&self, holder: &[u8]) -> Result<(), Fault>;
    fn end_lease(&self, kept_away: Duration) -> Result<bool, Fault>;
    fn remove(&self, node: &str, name: &str, kept_away: Duration) -> Result<RemovedNode, Fault>;
    fn sessions(&self) -> Result<Vec<Session>, Fault>;
    /// What a node says of itself takes the place of what it said before, soon: who says it may have a lease to renew.
    fn say(&self, node: &str, words: &[u8]) -> Result<(), Fault>;
    fn unsay(&self, node: &str) -> Result<(), Fault>;
    fn said(&self) -> Result<Vec<Said>, Fault>;

    fn send(&self, own: &[u8], to: Recipient<'_>, number: u64, body: Vec<u8>) -> Result<(), Fault>;
    fn listen(&self) -> Result<Box<dyn MessageListener>, Fault>;
    fn listen_to_commits(&self) -> Result<Box<dyn CommitListener>, Fault>;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_was_committed_in_a_gap_is_asked_for_until_it_is_known() {
        let (gap, asked) = (LeaseGap::default(), Cell::new(0));
        let renew = |held: Result<Holding, ()>, heard: Result<(), ()>| {
            let holding = gap.renew(
                || held,
                || {
                    asked.set(asked.get() + 1);
                    heard
                },
            );
            (holding, asked.take())
        };
        for (held, heard, expected) in [
            (Ok(Holding::Still), Ok(()), (Ok(Holding::Still), 0)),
            (Ok(Holding::Anew), Ok(()), (Ok(Holding::Anew), 1)),
            (Ok(Holding::Still), Ok(()), (Ok(Holding::Still), 0)),
            // What was committed could not be asked for.
            (Ok(Holding::Anew), Err(()), (Err(()), 1)),
            (Ok(Holding::Still), Err(()), (Err(()), 1)),
            (Ok(Holding::Still), Ok(()), (Ok(Holding::Still), 1)),
            (Ok(Holding::Still), Ok(()), (Ok(Holding::Still), 0)),
            // The answer was lost that it came anew.
            (Err(()), Ok(()), (Err(()), 0)),
            (Ok(Holding::Still), Ok(()), (Ok(Holding::Still), 1)),
            (Ok(Holding::Others), Ok(()), (Ok(Holding::Others), 0)),
            (Ok(Holding::Still), Ok(()), (Ok(Holding::Still), 1)),
        ] {
            assert_eq!(renew(held, heard), expected, "{held:?} {heard:?}");
        }
    }
}
