//! CSNs that a consumer does not receive for a while.
//!
//! Where the contextCSN came by a pass over another server's content, the log does not tell what was deleted meanwhile and
//! never came here. A consumer that has it from that server, and hears the delete late, would pass over it once a cookie
//! of ours says that it has seen so much. So it is not told; it learns so by itself, and says so when it comes again.

use larix_engine::time::Monotonic;

/// So many nanoseconds a search goes on that cannot tell all: who has other ways to that server has caught up by then, and who
/// has none goes through our content.
const WITHHELD_MAX: u64 = 60 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// Since when something is held back.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    since: Option<Monotonic>,
}

impl HeldBack {
    /// Notes whether something is held back now; answers whether that has lasted too long.
    pub(super) fn is_over(&mut self, withholds: bool, now: Monotonic) -> bool {
        if !withholds {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.0.saturating_sub(since.0) >= WITHHELD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_withholds_something_ends_in_time() {
        let mut held_back = HeldBack::default();
        let max = WITHHELD_MAX / SECOND;
        for (seconds, withholds, is_over) in [
            (0, true, false),
            (max - 1, true, false),
            (max, true, true),
            (max + 1, false, false),
            (max + 2, true, false),
            (2 * max + 1, true, false),
            (2 * max + 2, true, true),
        ] {
            let now = Monotonic(seconds * SECOND);
            assert_eq!(held_back.is_over(withholds, now), is_over, "{seconds}");
        }
    }
}
