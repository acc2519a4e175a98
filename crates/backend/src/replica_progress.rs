//! How far a shadow has come with the changes of its provider.

use std::fmt::Debug;
use std::sync::Arc;

use larix_engine::log::{CsnVector, Follower};

/// The state of one shadow, for who waits until a change has come by replication.
pub trait ReplicaProgress: Debug + Send + Sync {
    /// A number that no other database of this process has.
    fn instance(&self) -> u64;

    /// The suffix whose entry has the contextCSN, here and at the provider.
    fn suffix(&self) -> &str;

    /// The contextCSN: the highest CSN of each server whose changes are all here. None: the database is gone, or cannot be read.
    fn context_csns(&self) -> Option<CsnVector>;

    /// Has the follower called after commits, as long as somebody holds it. A database that is gone calls nobody.
    fn follow(&self, follower: &Arc<Follower>);
}
