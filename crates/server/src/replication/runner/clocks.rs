//! Finds servers whose clock is ahead of ours, by the changes that come. A clock that is behind looks like a slow change.

use std::collections::BTreeMap;

use larix_engine::csn::{Csn, SKEW_WARNED};
use larix_engine::time::Timestamp;

use super::MICROS;

/// That a server's clock is wrong is said so often, in seconds.
const WARNING_EVERY: i64 = 3_600;

/// Of whom it was said.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// When it may be said again, by the server's id.
    next_warning: BTreeMap<u16, Timestamp>,
}

/// A change from a clock that is ahead.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct ClockSkew {
    pub(super) micros: i64,
    /// The log has to say it now.
    pub(super) is_news: bool,
}

impl Clocks {
    /// `None`: the change is of a clock that is right, as far as can be seen.
    pub(super) fn judge(&mut self, csn: &Csn, now: Timestamp) -> Option<ClockSkew> {
        let micros = csn.time.0.saturating_sub(now.0);
        if micros <= SKEW_WARNED {
            return None;
        }
        let is_news = self.next_warning.get(&csn.server_id).is_none_or(|next| now >= *next);
        if is_news {
            self.next_warning.insert(csn.server_id, Timestamp(now.0.saturating_add(WARNING_EVERY * MICROS)));
        }
        Some(ClockSkew { micros, is_news })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_told_of_once_an_hour() {
        let mut clocks = Clocks::default();
        let mut check = |server_id, now: i64, ahead: i64, is_news: Option<bool>| {
            let csn = Csn { time: Timestamp(now + ahead), count: 0, server_id, modification: 0 };
            let judged = clocks.judge(&csn, Timestamp(now));
            let expected = is_news.map(|is_news| ClockSkew { micros: ahead, is_news });
            assert_eq!(judged, expected, "server {server_id} at {now}, {ahead} ahead");
        };
        let hour = WARNING_EVERY * MICROS;
        check(1, 0, SKEW_WARNED, None);
        check(1, 0, -hour, None);
        check(1, 0, SKEW_WARNED + 1, Some(true));
        check(1, 1, SKEW_WARNED + 1, Some(false));
        check(2, 1, SKEW_WARNED + 1, Some(true));
        check(1, hour - 1, hour, Some(false));
        check(1, hour, hour, Some(true));
        check(1, hour + 1, hour, Some(false));
    }
}
