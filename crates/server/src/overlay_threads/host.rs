//! The databases whose overlays have threads, among them that of an access log.

use std::fmt;
use std::sync::Arc;

use larix_engine::{DatabaseSettings, ServedDatabase};
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

#[cfg(feature = "kv")]
use crate::cluster::{Node, SharedStore};

/// A database whose overlays have threads.
pub(crate) trait OverlayHost: Clone + fmt::Debug + Send + Sync + 'static {
    type Store: Store;

    fn is(&self, other: &Self) -> bool;
    /// None while it is not open.
    fn served(&self) -> Option<&Arc<ServedDatabase<Self::Store>>>;
    /// Whether it is open or not.
    fn settings(&self) -> Arc<DatabaseSettings>;
    /// The term in which its overlays act here; none while those of another server do.
    fn term(&self) -> Option<u64>;
    /// Has this called after each change of [`Self::term`], until it answers that nobody listens any more.
    fn on_change(&self, listener: Box<dyn Fn() -> bool + Send>);
}

/// A database of this server alone.
impl OverlayHost for Arc<ServedDatabase<LmdbStore>> {
    type Store = LmdbStore;

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn served(&self) -> Option<&Self> {
        Some(self)
    }

    fn settings(&self) -> Arc<DatabaseSettings> {
        self.database().settings()
    }

    fn term(&self) -> Option<u64> {
        Some(0)
    }

    fn on_change(&self, _: Box<dyn Fn() -> bool + Send>) {}
}

/// A database in a shared engine: overlays act at the node that writes.
#[cfg(feature = "kv")]
impl OverlayHost for Arc<Node> {
    type Store = SharedStore;

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn served(&self) -> Option<&Arc<ServedDatabase<SharedStore>>> {
        Node::served(self)
    }

    fn settings(&self) -> Arc<DatabaseSettings> {
        self.database_settings()
    }

    fn term(&self) -> Option<u64> {
        self.writes_in()
    }

    fn on_change(&self, listener: Box<dyn Fn() -> bool + Send>) {
        self.on_role_change(listener);
    }
}
