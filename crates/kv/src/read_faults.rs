//! What went wrong with reads on a thread, for a caller that has to know although something between swallowed it: a rule that
//! cannot be read denies, and an entry would be missing from an answer without a word.
//!
//! A thread that must not wait reads [at hand](crate::KvStore::at_hand): out of the cache alone.

use std::cell::Cell;

/// The worst that reads on this thread have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadFault {
    /// Something was not in the cache, and this thread was not to ask for it.
    NotAtHand,
    /// What a view had read was changed before the engine was asked for more: read again.
    Stale,
    /// The engine could not be asked.
    Unavailable,
    /// The engine answered something that no store of ours holds.
    Broken,
}

thread_local! {
    static WORST: Cell<Option<ReadFault>> = const { Cell::new(None) };
    static AT_HAND: Cell<bool> = const { Cell::new(false) };
    static ASKS_FIRST: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs reads whose views ask for the newest commits first, or do not, however the store was opened.
pub(crate) fn asking_first<T>(asks: bool, read: impl FnOnce() -> T) -> T {
    /// Puts back what held before, after a panic as well.
    struct Within(Option<bool>);
    impl Drop for Within {
        fn drop(&mut self) {
            ASKS_FIRST.set(self.0);
        }
    }
    let _within = Within(ASKS_FIRST.replace(Some(asks)));
    read()
}

/// Whether views of this thread are to ask for the newest commits first; `None`: as the store was opened.
pub(crate) fn asks_first() -> Option<bool> {
    ASKS_FIRST.get()
}

/// Runs reads whose views ask the engine nothing. `None` where anything was missing.
pub(crate) fn at_hand<T>(read: impl FnOnce() -> T) -> Option<T> {
    /// Ends the time in which this thread asks nothing, after a panic as well.
    struct Within;
    impl Drop for Within {
        fn drop(&mut self) {
            AT_HAND.set(false);
        }
    }
    take_read_fault();
    AT_HAND.set(true);
    let within = Within;
    let read = read();
    drop(within);
    take_read_fault().is_none().then_some(read)
}

/// Whether views of this thread are to ask nothing.
pub(crate) fn is_at_hand() -> bool {
    AT_HAND.get()
}

pub(crate) fn note(what: ReadFault) {
    WORST.set(WORST.get().max(Some(what)));
}

/// What reads on this thread have met since this was asked last.
pub fn take_read_fault() -> Option<ReadFault> {
    WORST.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_told_once() {
        assert_eq!(take_read_fault(), None);
        note(ReadFault::Unavailable);
        note(ReadFault::Stale);
        assert_eq!((take_read_fault(), take_read_fault()), (Some(ReadFault::Unavailable), None));
    }

    #[test]
    fn who_asks_first_does_so_for_a_time() {
        let within = asking_first(true, || (asking_first(false, asks_first), asks_first()));
        assert_eq!(within, (Some(false), Some(true)));
        assert!(std::panic::catch_unwind(|| asking_first(true, || panic!("a bug"))).is_err());
        assert_eq!(asks_first(), None);
    }

    #[test]
    fn what_is_at_hand_is_whole_or_not_there() {
        note(ReadFault::Stale);
        assert_eq!(at_hand(is_at_hand), Some(true));
        assert_eq!(at_hand(|| note(ReadFault::NotAtHand)), None);
        assert_eq!((is_at_hand(), take_read_fault()), (false, None));
        assert!(std::panic::catch_unwind(|| at_hand(|| panic!("a bug"))).is_err());
        assert!(!is_at_hand());
    }
}
