//! State shared by the writer and the threads that follow the change log to derive something from it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::LogKey;

type Wake = Arc<dyn Fn() + Send + Sync>;

/// Records that stay for a follower that does not read them ([`Hold::Bounded`]), whatever the log's retention: a follower that
/// stands still must not let the log grow for ever.
pub const HELD_RECORDS_MAX: u64 = 1_048_576;

/// How long records stay for a follower that has not read them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Until it has.
    Unbounded,
    /// The newest [`HELD_RECORDS_MAX`]. What goes before it was read is a gap, which the reader finds.
    Bounded,
}

/// Those who follow a database's change log, and how far they may read.
#[derive(Default)]
pub struct Following {
    /// Changes up to here are committed and answered.
    answered: AtomicU64,
    /// Under whose id the records are.
    server_id: AtomicU16,
    /// Whether there are any followers; what a writer that has none looks at.
    any: AtomicBool,
    readers: Mutex<Vec<Weak<LogReader>>>,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("answered", &self.answered).field("readers", &self.readers).finish()
    }
}

/// One follower of a change log. It follows until [`Self::leave`], or until it is dropped.
pub struct LogReader {
    /// The first record that is still needed.
    needed: AtomicU64,
    hold: Hold,
    wake: Mutex<Option<Wake>>,
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("needed", &self.needed).field("hold", &self.hold).finish()
    }
}

impl Following {
    /// Changes up to here are committed, and their requesters were answered.
    pub fn answered(&self) -> LogKey {
        let sequence = self.answered.load(Ordering::Acquire);
        LogKey { server_id: self.server_id.load(Ordering::Acquire), sequence }
    }

    /// Has `wake` called after changes were answered, or a contextCSN was raised, on the writer's thread: it must not block.
    /// Records from `needed` on stay as long as `hold` says.
    pub fn join(&self, wake: Wake, needed: u64, hold: Hold) -> Arc<LogReader> {
        let reader =
            Arc::new(LogReader { needed: AtomicU64::new(needed), hold, wake: Mutex::new(Some(wake)) });
        let mut readers = self.lock();
        readers.retain(|known| known.strong_count() > 0);
        readers.push(Arc::downgrade(&reader));
        self.any.store(true, Ordering::Release);
        reader
    }

    /// The first record that has to stay for a follower, in a log that ends with `last`.
    pub(crate) fn needed(&self, last: u64) -> u64 {
        if !self.any.load(Ordering::Acquire) {
            return u64::MAX;
        }
        let oldest_held = (last + 1).saturating_sub(HELD_RECORDS_MAX);
        let needed = |reader: Arc<LogReader>| {
            let needed = reader.needed.load(Ordering::Acquire);
            if reader.hold == Hold::Bounded { needed.max(oldest_held) } else { needed }
        };
        self.lock().iter().filter_map(Weak::upgrade).map(needed).min().unwrap_or(u64::MAX)
    }

    /// `contexts_rose`: how far this server has come with others' changes is news, too.
    pub(crate) fn set_answered(&self, LogKey { server_id, sequence }: LogKey, contexts_rose: bool) {
        self.server_id.store(server_id, Ordering::Release);
        let is_news = self.answered.swap(sequence, Ordering::AcqRel) != sequence || contexts_rose;
        if !is_news || !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut wakes: Vec<Wake> = Vec::new();
        let mut readers = self.lock();
        readers.retain(|known| {
            let Some(reader) = known.upgrade() else { return false };
            wakes.extend(reader.wake().clone());
            true
        });
        self.any.store(!readers.is_empty(), Ordering::Release);
        drop(readers);
        wakes.iter().for_each(|wake| wake());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<LogReader>>> {
        // The list is whole at every step.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogReader {
    /// Records before this sequence are no longer needed.
    pub fn needs_from(&self, sequence: u64) {
        self.needed.store(sequence, Ordering::Release);
    }

    /// Follows no more: it is not woken again, and keeps no record.
    pub fn leave(&self) {
        *self.wake() = None;
        self.needed.store(u64::MAX, Ordering::Release);
    }

    fn wake(&self) -> MutexGuard<'_, Option<Wake>> {
        // A handle is set or it is not.
        self.wake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stay_for_the_slowest_follower_up_to_a_limit() {
        let following = Following::default();
        assert_eq!(following.needed(100), u64::MAX);
        let woken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&woken);
        let wake: Wake = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let patient = following.join(Arc::clone(&wake), 7, Hold::Bounded);
        let other = following.join(wake, 9, Hold::Unbounded);
        for (last, expected) in
            [(20, 7), (HELD_RECORDS_MAX + 6, 7), (HELD_RECORDS_MAX + 7, 8), (3 * HELD_RECORDS_MAX, 9)]
        {
            assert_eq!(following.needed(last), expected, "{last}");
        }
        following.set_answered(LogKey { server_id: 1, sequence: 20 }, false);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        // No news.
        following.set_answered(LogKey { server_id: 1, sequence: 20 }, false);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        other.leave();
        following.set_answered(LogKey { server_id: 1, sequence: 20 }, true);
        assert_eq!((woken.load(Ordering::Relaxed), following.needed(20)), (3, 7));
        patient.needs_from(15);
        assert_eq!(following.needed(20), 15);
        drop(patient);
        assert_eq!(following.needed(20), u64::MAX);
    }
}
