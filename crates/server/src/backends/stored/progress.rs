//! How far a shadow has come with the changes of its provider.

use std::sync::Arc;

use larix_backend::ReplicaProgress;
use larix_engine::log::{self, CsnVector, Follower};
use larix_engine::{DatabaseHandle, ServedDatabase};
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

/// Keeps no database open.
#[derive(Debug)]
struct Progress {
    served: DatabaseHandle<LmdbStore>,
    instance: u64,
    suffix: String,
}

/// None of a database that is no shadow.
pub(super) fn of(served: &Arc<ServedDatabase<LmdbStore>>) -> Option<Arc<dyn ReplicaProgress>> {
    let database = served.database();
    let settings = database.current_settings();
    let suffix = settings.suffixes.first().filter(|_| settings.shadow)?.text.clone();
    Some(Arc::new(Progress { served: DatabaseHandle::new(served), instance: database.instance(), suffix }))
}

impl ReplicaProgress for Progress {
    fn instance(&self) -> u64 {
        self.instance
    }

    fn suffix(&self) -> &str {
        &self.suffix
    }

    fn context_csns(&self) -> Option<CsnVector> {
        let database = self.served.database().ok()?;
        let snapshot = database.store().snapshot().ok()?;
        log::context_csns(&snapshot).ok().map(CsnVector::from_iter)
    }

    fn follow(&self, follower: &Arc<Follower>) {
        if let Ok(database) = self.served.database() {
            database.log_watch().follow(follower);
        }
    }
}
