//! What went wrong with reads on a thread, for a caller that has to know although something between swallowed it: a rule that
//! cannot be read denies, and an entry would be missing from an answer without a word.

use std::cell::Cell;

/// The worst that reads on this thread have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noted {
    /// What a view had read was changed before the engine was asked for more: read again.
    Stale,
    /// The engine could not be asked.
    Unavailable,
    /// The engine answered something that no store of ours holds.
    Broken,
}

thread_local! {
    static WORST: Cell<Option<Noted>> = const { Cell::new(None) };
}

pub(crate) fn note(what: Noted) {
    WORST.set(WORST.get().max(Some(what)));
}

/// What reads on this thread have met since this was asked last.
pub fn take_noted() -> Option<Noted> {
    WORST.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_told_once() {
        assert_eq!(take_noted(), None);
        note(Noted::Unavailable);
        note(Noted::Stale);
        assert_eq!((take_noted(), take_noted()), (Some(Noted::Unavailable), None));
    }
}
