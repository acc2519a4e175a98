//! A database of the engine that follows a provider, wherever its store is.
//!
//! Of the nodes of a shared engine, the one that writes follows: its commits have the changes and how far they go, so that the
//! next one to write goes on from there. A node that has lost the right to write is refused by the fence.

use std::sync::Arc;

use larix_engine::csn::Csn;
use larix_engine::database::DatabaseSettings;
use larix_engine::load::{Fill, FillOptions};
#[cfg(feature = "kv")]
use larix_engine::replica::ReplicatedOutcome;
use larix_engine::replica::{
    DeleteCompletion, DeleteLimit, ReplicatedBatch, ReplicatedCompletion, Share, UuidSet,
};
use larix_engine::{Fault, ServedDatabase, log};
use larix_store::lmdb::LmdbStore;
use larix_store::{CommitError, Store};

#[cfg(feature = "kv")]
use crate::cluster::{Node, Role, SharedStore};

/// See the module's page.
#[derive(Clone)]
pub(crate) enum ConsumerDatabase {
    Stored(Arc<ServedDatabase<LmdbStore>>),
    #[cfg(feature = "kv")]
    Shared(Arc<Node>),
}

impl PartialEq for ConsumerDatabase {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(one), Self::Stored(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "kv")]
            (Self::Shared(one), Self::Shared(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "kv")]
            _ => false,
        }
    }
}

impl ConsumerDatabase {
    /// Whether it is this server that follows now.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Stored(_) => true,
            #[cfg(feature = "kv")]
            Self::Shared(node) => node.role() == Role::Leader,
        }
    }

    /// Whether that may change.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::Stored(_))
    }

    /// One with files of its own.
    pub(crate) fn stored(&self) -> Option<&Arc<ServedDatabase<LmdbStore>>> {
        match self {
            Self::Stored(served) => Some(served),
            #[cfg(feature = "kv")]
            Self::Shared(_) => None,
        }
    }

    pub(crate) fn settings(&self) -> Arc<DatabaseSettings> {
        match self {
            Self::Stored(served) => served.database().settings(),
            #[cfg(feature = "kv")]
            Self::Shared(node) => node.database_settings(),
        }
    }

    /// How far it may say that it has come ([`log::consumer_csns`]).
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn context_csns(&self) -> Result<Vec<Csn>, Fault> {
        match self {
            Self::Stored(served) => csns(served),
            #[cfg(feature = "kv")]
            Self::Shared(node) => {
                let served = served(node).ok_or(Fault::Store(larix_store::ReadError::Stale))?;
                // Another node may have written until now.
                served.database().store().afresh(|| csns(served))
            }
        }
    }

    /// How far the line of this name has come, where several bring parts of the database.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn part_csns(&self, line: &str) -> Result<Vec<Csn>, Fault> {
        match self {
            Self::Stored(served) => of_part(served, line),
            #[cfg(feature = "kv")]
            Self::Shared(node) => {
                let served = served(node).ok_or(Fault::Store(larix_store::ReadError::Stale))?;
                served.database().store().afresh(|| of_part(served, line))
            }
        }
    }

    /// As [`ServedDatabase::keep_states`].
    ///
    /// # Errors
    /// A commit that failed; nothing has changed.
    pub(crate) fn keep_states(&self) -> Result<bool, CommitError> {
        match self {
            Self::Stored(served) => served.keep_states(),
            #[cfg(feature = "kv")]
            Self::Shared(node) => {
                served(node).map_or(Err(CommitError::Fenced), |served| served.keep_states())
            }
        }
    }

    /// As [`ServedDatabase::replicate`].
    pub(crate) fn replicate(&self, batch: ReplicatedBatch, done: ReplicatedCompletion) {
        match self {
            Self::Stored(served) => served.replicate(batch, done),
            #[cfg(feature = "kv")]
            Self::Shared(node) => match served(node) {
                Some(served) => served.replicate(batch, done),
                None => done(ReplicatedOutcome { changes: Vec::new(), result: not_open() }),
            },
        }
    }

    /// As [`ServedDatabase::delete_absent`].
    pub(crate) fn delete_absent(
        &self,
        share: &Share,
        present: &UuidSet,
        limit: DeleteLimit,
        done: DeleteCompletion,
    ) {
        match self {
            Self::Stored(served) => served.delete_absent(share, present, limit, done),
            #[cfg(feature = "kv")]
            Self::Shared(node) => match served(node) {
                Some(served) => served.delete_absent(share, present, limit, done),
                None => done(larix_engine::replica::DeleteOutcome::Failed { deleted: 0, result: not_open() }),
            },
        }
    }

    /// As [`ServedDatabase::fill`]; a shared engine takes the first content in batches.
    pub(crate) fn fill(&self, options: FillOptions) -> Option<Fill> {
        self.stored()?.fill(options)
    }
}

fn csns<S: Store>(served: &ServedDatabase<S>) -> Result<Vec<Csn>, Fault> {
    log::consumer_csns(&served.database().store().snapshot()?)
}

fn of_part<S: Store>(served: &ServedDatabase<S>, line: &str) -> Result<Vec<Csn>, Fault> {
    Ok(log::part_csns(&served.database().store().snapshot()?, line)?.as_slice().to_vec())
}

#[cfg(feature = "kv")]
fn served(node: &Node) -> Option<&Arc<ServedDatabase<SharedStore>>> {
    node.served().filter(|_| node.role() == Role::Leader)
}

#[cfg(feature = "kv")]
fn not_open() -> larix_proto::LdapResult {
    larix_proto::LdapResult::with(
        larix_proto::ResultCode::UNAVAILABLE,
        "another node of this database follows the provider now",
    )
}
