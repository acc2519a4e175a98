//! Content that several servers have in one place, of which each remembers a part.

use std::fmt::Debug;
use std::sync::Arc;

/// A database whose entries other servers change in place. What it remembers of them may be older.
pub trait SharedContent: Debug + Send + Sync {
    /// Calls `then` once, with true when reads at this server see everything that any server acknowledged before. It is called with false
    /// where that cannot be found out within the time that the database gives its store for an answer.
    fn catch_up(self: Arc<Self>, then: Box<dyn FnOnce(bool) + Send>);
}
