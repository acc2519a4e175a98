//! What stands between the writer and whoever follows the change log to derive something from it.

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::LogKey;

type Wake = Arc<dyn Fn() + Send + Sync>;

/// One follower of a database's change log. Records that it has not read are not trimmed.
pub struct Following {
    /// Up to here changes are committed and their requesters were told.
    answered: AtomicU64,
    /// Under whose id the records are.
    server_id: AtomicU16,
    /// The first record that is still needed.
    needed: AtomicU64,
    wake: Mutex<Option<Wake>>,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("answered", &self.answered).field("needed", &self.needed).finish()
    }
}

impl Default for Following {
    fn default() -> Self {
        Self {
            answered: AtomicU64::new(0),
            server_id: AtomicU16::new(0),
            needed: AtomicU64::new(u64::MAX),
            wake: Mutex::default(),
        }
    }
}

impl Following {
    /// Changes up to here are committed, and whoever asked for them was told.
    pub fn answered(&self) -> LogKey {
        let sequence = self.answered.load(Ordering::Acquire);
        LogKey { server_id: self.server_id.load(Ordering::Acquire), sequence }
    }

    /// Has `wake` called after changes were answered, or a contextCSN was raised, on the writer's thread: it must not block. Records from `needed` on
    /// stay.
    pub fn follow(&self, wake: Wake, needed: u64) {
        self.needed.store(needed, Ordering::Release);
        *self.lock() = Some(wake);
    }

    /// Records before this sequence are no longer needed.
    pub fn needs_from(&self, sequence: u64) {
        self.needed.store(sequence, Ordering::Release);
    }

    /// Nobody follows any more.
    pub fn leave(&self) {
        *self.lock() = None;
        self.needed.store(u64::MAX, Ordering::Release);
    }

    pub(crate) fn needed(&self) -> u64 {
        self.needed.load(Ordering::Acquire)
    }

    /// `contexts_rose`: how far this server has come with others' changes is news, too.
    pub(crate) fn set_answered(&self, LogKey { server_id, sequence }: LogKey, contexts_rose: bool) {
        self.server_id.store(server_id, Ordering::Release);
        if self.answered.swap(sequence, Ordering::AcqRel) == sequence && !contexts_rose {
            return;
        }
        let wake = self.lock().clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Wake>> {
        // The handle is whole whoever panicked.
        self.wake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
