//! Since when threads read: this says how long pages have been kept from being reused.
//!
//! Each thread has a slot for each store, which it alone writes; overlapping transactions of a thread count from the
//! first of them on.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// By the store's number.
    static OWN: RefCell<Vec<(u64, Arc<Slot>)>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, Default)]
struct Slot {
    open: AtomicU32,
    /// Milliseconds of [`now`] at which the first of what is open began.
    since: AtomicU64,
}

/// The threads that read one store.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<Vec<Arc<Slot>>>);

/// A read transaction is open as long as this lives.
#[derive(Debug)]
pub(super) struct Reading(Arc<Slot>);

impl Readers {
    /// A transaction of this thread on the store of this number begins.
    pub(super) fn begin(&self, store: u64) -> Reading {
        let slot = OWN.with_borrow_mut(|own| match own.iter().find(|(number, _)| *number == store) {
            Some((_, slot)) => Arc::clone(slot),
            None => {
                let slot = self.register();
                // No other thread has the slot of a closed store.
                own.retain(|(_, slot)| Arc::strong_count(slot) > 1);
                own.push((store, Arc::clone(&slot)));
                slot
            }
        });
        let open = slot.open.load(Ordering::Relaxed);
        if open == 0 {
            slot.since.store(now(), Ordering::Relaxed);
        }
        slot.open.store(open + 1, Ordering::Release);
        Reading(slot)
    }

    fn register(&self) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of threads that have ended.
        slots.retain(|slot| Arc::strong_count(slot) > 1);
        let slot = Arc::new(Slot::default());
        slots.push(Arc::clone(&slot));
        slot
    }

    /// How long the oldest transaction of this process has been open; `None` without any.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = slots.iter().filter(|slot| slot.open.load(Ordering::Acquire) > 0);
        let since = open.map(|slot| slot.since.load(Ordering::Relaxed)).min()?;
        Some(Duration::from_millis(now().saturating_sub(since)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // Transactions do not leave their thread: no other thread writes here.
        let open = self.0.open.load(Ordering::Relaxed);
        self.0.open.store(open.saturating_sub(1), Ordering::Release);
    }
}

/// Milliseconds of a clock that only goes on; its beginning means nothing. A figure for people: nothing depends on it, so that no
/// clock has to be handed to every store. By way of the C library, which knows where a process has no vDSO: under valgrind there is
/// none.
#[expect(clippy::disallowed_methods, reason = "a figure for people alone")]
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed().as_millis();
    // Far from zero, so that what began earlier has a number, too.
    (1 << 40) + u64::try_from(passed).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_counts_while_it_is_open() {
        let readers = Readers::default();
        assert_eq!(readers.oldest(), None);
        let first = readers.begin(1);
        let second = readers.begin(1);
        let since = |time: u64| readers.0.lock().unwrap()[0].since.store(now() - time, Ordering::Relaxed);
        since(60_000);
        drop(second);
        let third = readers.begin(1);
        drop(first);
        assert!(readers.oldest().unwrap() >= Duration::from_secs(60), "they overlap");
        drop(third);
        assert_eq!(readers.oldest(), None);
        let fresh = readers.begin(1);
        assert!(readers.oldest().unwrap() < Duration::from_secs(60));
        drop(fresh);
        std::thread::scope(|threads| {
            threads.spawn(|| drop(readers.begin(1)));
        });
        drop(Readers::default().begin(2));
        assert_eq!(OWN.with_borrow(Vec::len), 2);
        let _open = Readers::default().begin(3);
        assert_eq!(OWN.with_borrow(Vec::len), 2, "the closed one is forgotten");
    }
}
