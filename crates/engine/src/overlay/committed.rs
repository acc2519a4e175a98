//! The hooks beside operations: [`Committed`] sees changes once they are durable, [`Tick`] has a turn at an interval. Both are
//! called on a thread of the overlay's own, so that they may wait for files and other servers: no answer waits for them.

use std::cell::RefCell;
use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use larix_proto::FilterBuf;
use larix_schema::{NormalDn, Schema};

use super::{Entries, FollowUpElsewhere};
use crate::change::WriteOperation;
use crate::entry::split_rdn;
use crate::failure::Failure;
use crate::log::{LogKey, LogRecord, LoggedChange};
use crate::time::Timestamp;

/// Changes that one tick may bring; a tick that has more says so, and has its next turn at once.
pub const TICK_CHANGES_MAX: usize = 1_000;

/// The hook behind commits.
pub trait Committed: Debug + Send + Sync {
    /// Called before the first changes, with what is committed by then.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn begin(&self, _schema: &Schema, _committed: &dyn CommittedEntries) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes changes in the order in which they were made, replicated ones included. Each comes once; after a crash of the
    /// server those of its last seconds may come again. Called before the requesters' next changes or long after them.
    ///
    /// # Errors
    /// What went wrong, and whether the same changes are to come again.
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken>;

    /// Makes the position durable: a crash does not repeat earlier records.
    ///
    /// # Errors
    /// What went wrong; the position before stays remembered.
    fn settle(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether it asks who was connected: otherwise no [`ChangeOrigin`] is noted.
    fn asks_origin(&self) -> bool {
        false
    }
}

/// Changes in their order.
#[derive(Debug)]
pub struct CommittedBatch<'a> {
    pub changes: &'a [CommittedChange],
    /// What is missing before the first of them.
    pub gap: Option<Gap>,
    pub schema: &'a Schema,
    /// The first suffix of the database, as configured.
    pub suffix: &'a str,
    pub others: &'a dyn OtherWriters,
    /// The database as it is committed; `None`: it cannot be looked at.
    pub committed: Option<&'a dyn CommittedEntries>,
    /// What an administrator is to know: [`Self::report`].
    pub reports: &'a RefCell<Vec<String>>,
}

impl CommittedBatch<'_> {
    /// Has the log tell something that the overlay found out, as a warning.
    pub fn report(&self, text: String) {
        self.reports.borrow_mut().push(text);
    }
}

/// What is committed, for a look at a time: nothing of the store is held meanwhile.
pub trait CommittedEntries: Debug {
    /// Hands `look` the entries of the latest commit.
    ///
    /// # Errors
    /// A store that cannot be read, or what `look` answers.
    fn look(&self, look: &mut dyn FnMut(&dyn Entries) -> Result<(), Failure>) -> Result<(), Failure>;
}

/// The writers of the server's other databases, for what changes of one lead to in another.
pub trait OtherWriters: Debug + Send + Sync {
    /// Has all of it carried out in the database that has this suffix, in order, and waits until it is durable. Nothing is done
    /// where there is no such database, in a shadow (its provider does it), and in one that is read-only. Not to be called on the
    /// thread of a writer.
    ///
    /// # Errors
    /// What was not done: to try again, the overlay has to ask for everything again.
    fn follow(&self, suffix: &NormalDn, follow_ups: Vec<Arc<dyn FollowUpElsewhere>>) -> Result<(), NotTaken>;
}

/// For a server with one database.
#[derive(Debug)]
pub struct NoOtherWriters;

impl OtherWriters for NoOtherWriters {
    fn follow(&self, _: &NormalDn, _: Vec<Arc<dyn FollowUpElsewhere>>) -> Result<(), NotTaken> {
        Ok(())
    }
}

/// A change that is durable.
#[derive(Clone, Debug)]
pub struct CommittedChange {
    pub key: LogKey,
    pub record: LogRecord,
    /// Who sent it; `None` for what the server did by itself, what came by replication, and where it is not known any more.
    pub origin: Option<Arc<ChangeOrigin>>,
}

impl CommittedChange {
    /// What the entry is called behind the change; `None`: it is gone, or its name is none under this schema.
    pub fn name_behind(&self, schema: &Schema) -> Option<NormalDn> {
        match &self.record.change {
            LoggedChange::Delete => None,
            LoggedChange::Add(_) | LoggedChange::Modify(_) => schema.parse_dn(&self.record.dn).ok(),
            LoggedChange::ModifyDn { new_rdn, new_superior, .. } => {
                let superior = new_superior.as_deref().unwrap_or_else(|| split_rdn(&self.record.dn).1);
                let separator = if superior.is_empty() { "" } else { "," };
                schema.parse_dn(&format!("{new_rdn}{separator}{superior}")).ok()
            }
        }
    }

    /// Whether another server made it.
    pub fn is_replicated(&self) -> bool {
        self.record.csn.server_id != self.key.server_id
    }
}

/// The connection that a change came on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeOrigin {
    /// `conn=` in the log.
    pub connection: u64,
    /// `IP=192.0.2.1:40000` or `PATH=/run/ldapi`.
    pub peer: String,
    /// The DN that is bound there, as it is shown; empty: anonymous.
    pub bound: String,
}

/// Changes that an overlay is not shown.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// So many records left the change log unread, or met a panic of the overlay.
    Records(u64),
    /// Changes were made that are in no log, as by a load while the server was down.
    Unknown,
}

impl Gap {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Records(one), Self::Records(other)) => Self::Records(one.saturating_add(other)),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(count) => write!(f, "{count} changes"),
            Self::Unknown => f.write_str("changes that are not in the change log"),
        }
    }
}

/// Why changes were not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    pub message: String,
    /// The same changes are to come again; otherwise they are left out.
    pub again: bool,
}

impl NotTaken {
    /// The same changes are to come again.
    pub fn yet(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: true }
    }

    /// The changes are left out.
    pub fn ever(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: false }
    }
}

/// The hook of time: a turn at an interval, in which changes may be asked for. They go through the ordinary writer in the name
/// of the root DN. A shadow, a read-only database, and one whose first content is coming have no ticks.
pub trait Tick: Debug + Send + Sync {
    /// From the end of one turn to the next. Asked after each turn.
    fn interval(&self) -> Duration;

    /// Has its turn.
    ///
    /// # Errors
    /// A store that cannot be read; the next turn comes as usual.
    fn tick(&self, turn: &Turn<'_>) -> Result<TickChanges, Failure>;
}

/// What a tick may look at.
#[derive(Debug)]
pub struct Turn<'a> {
    /// As committed.
    pub entries: &'a dyn Entries,
    pub schema: &'a Schema,
    /// Of the database.
    pub suffixes: &'a [NormalDn],
    pub now: Timestamp,
}

/// What a tick comes to.
#[derive(Debug, Default)]
pub struct TickChanges {
    /// Carried out one after another, each in a commit with others; one that is refused is counted and left.
    pub changes: Vec<TickChange>,
    /// There is more to do at once.
    pub more: bool,
}

/// A change that a tick asks for.
#[derive(Debug)]
pub struct TickChange {
    pub operation: WriteOperation,
    /// Made only if the entry matches when the writer comes to it: what the tick has seen may be out of date by then. Otherwise
    /// nothing is done, which is no refusal.
    pub only_if: Option<FilterBuf>,
}

impl From<WriteOperation> for TickChange {
    fn from(operation: WriteOperation) -> Self {
        Self { operation, only_if: None }
    }
}
