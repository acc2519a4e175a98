//! Which threads may wait for other machines, and what they could not look up there.

use std::cell::Cell;

thread_local! {
    /// Whether the thread may wait for other machines now, and whether one of them did not answer.
    static WAITING: Cell<(bool, bool)> = const { Cell::new((false, false)) };
}

/// Does something on this thread, which may wait for other machines meanwhile: identities are looked up in shared engines.
pub(crate) fn while_waiting<T>(work: impl FnOnce() -> T) -> T {
    let _ends = Waits(WAITING.replace((true, false)));
    work()
}

struct Waits((bool, bool));

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.set(self.0);
    }
}

/// Whether this thread may wait for other machines.
#[cfg(feature = "kv")]
pub(crate) fn may_wait() -> bool {
    WAITING.get().0
}

/// Something could not be looked up on this thread: it must not pass for what is not there.
#[cfg(feature = "kv")]
pub(crate) fn note_missed_lookup() {
    WAITING.set((WAITING.get().0, true));
}

/// Whether anything was missed since this was asked last.
pub(crate) fn take_missed_lookup() -> bool {
    let (waits, missed) = WAITING.get();
    WAITING.set((waits, false));
    missed
}
