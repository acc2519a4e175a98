//! The one place where measurements ask the machine for the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use larix_proto::calendar::civil_from_days;

#[allow(clippy::disallowed_methods)] // a measurement is about this machine's time
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// This moment as RFC 3339 in UTC, to the second.
#[allow(clippy::disallowed_methods)] // the date of a report
pub(crate) fn date() -> String {
    rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970 as a date.
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(i64::try_from(days).unwrap_or_default());
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_240_216, "2026-11-21T05:50:16Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
    }
}
