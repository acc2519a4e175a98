//! Content that several servers have in one place, of which each remembers a part.

use std::fmt::Debug;
use std::sync::Arc;

/// A database whose entries other servers change in place. What it remembers of them may be older.
pub trait SharedContent: Debug + Send + Sync {
    /// Calls `then` once, when reads at this server see everything that any server acknowledged before. It is also called where this
    /// cannot be found out, after the time that the database gives its store for an answer.
    fn catch_up(self: Arc<Self>, then: Box<dyn FnOnce() + Send>);
}
