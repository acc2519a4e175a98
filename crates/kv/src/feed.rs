//! Hearing of other nodes' commits as they are made, so that reads which do not ask see them soon. It makes nothing valid: a node that
//! hears of a commit [asks](KvStore::hear), and one that must not miss any asks at intervals, too.

use std::time::Duration;

use larix_store::ReadError;

use crate::engine::CommitListener;
use crate::error::Fault;
use crate::store::KvStore;

/// A connection to the engine that hears of commits.
#[derive(Debug)]
pub struct CommitFeed(Box<dyn CommitListener>);

impl KvStore {
    /// Begins to hear of commits; this handle's own may be among them.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn commit_feed(&self) -> Result<CommitFeed, ReadError> {
        self.engine.listen_to_commits().map(CommitFeed).map_err(Fault::into_read)
    }
}

impl CommitFeed {
    /// Waits until there may be new commits, up to `time`; whether there may.
    ///
    /// # Errors
    /// The feed hears nothing any more: commits may have been missed, and another one is to be begun.
    pub fn wait(&self, time: Duration) -> Result<bool, ReadError> {
        self.0.wait(time).map_err(Fault::into_read)
    }

    /// Ends a [wait](Self::wait) at once.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Looks whether the engine is still there. A connection that hangs hears nothing, and does not say so by itself.
    ///
    /// # Errors
    /// Those of [`Self::wait`].
    pub fn check(&self) -> Result<(), ReadError> {
        self.0.check().map_err(Fault::into_read)
    }
}
