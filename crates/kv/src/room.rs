//! Whether the engine has room for changes, as far as commits have shown it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So long behind the last commit that found none, one of any size shows that there is some.
const LASTS: Duration = Duration::from_secs(60);

/// The largest commit that found no room since one has, and when one did last.
#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<Option<(usize, Duration)>>);

impl Room {
    fn lock(&self) -> MutexGuard<'_, Option<(usize, Duration)>> {
        // It is whole at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There was none for a commit of so many bytes.
    pub(crate) fn lacks(&self, bytes: usize, now: Duration) {
        let mut refused = self.lock();
        let most = refused.map_or(bytes, |(most, _)| most.max(bytes));
        *refused = Some((most, now));
    }

    /// There was some for a commit of so many bytes: smaller ones find room where larger ones do not.
    pub(crate) fn found(&self, bytes: usize, now: Duration) {
        let mut refused = self.lock();
        if refused.is_some_and(|(most, at)| bytes >= most || now.saturating_sub(at) >= LASTS) {
            *refused = None;
        }
    }

    pub(crate) fn is_lacking(&self) -> bool {
        self.lock().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_commit_that_finds_room_says_little() {
        let at = Duration::from_secs;
        let room = Room::default();
        room.found(1, at(1));
        assert!(!room.is_lacking());
        room.lacks(100, at(2));
        room.lacks(10, at(3));
        room.found(99, at(4));
        assert!(room.is_lacking(), "one as large has found none");
        room.found(100, at(5));
        assert!(!room.is_lacking());
        room.lacks(100, at(10));
        room.lacks(100, at(50));
        room.found(1, at(109));
        assert!(room.is_lacking());
        room.found(1, at(110));
        assert!(!room.is_lacking(), "none has been refused for a minute");
    }
}
