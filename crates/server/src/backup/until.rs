//! The moment that a restore goes back to.

use std::str::FromStr;

use larix_engine::csn::Csn;
use larix_engine::log::LogRecord;
use larix_engine::time::{CivilTime, Timestamp};

/// Up to where changes are carried out again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// All that the chain has.
    End,
    /// Every change up to this moment, and none after it.
    Time(Timestamp),
    /// Every change up to this one.
    Csn(Csn),
}

impl Until {
    /// Whether the record is still part of it.
    pub(super) fn includes(&self, record: &LogRecord) -> bool {
        self.includes_csn(&record.csn)
    }

    /// Whether a state whose last change this is is not too late.
    pub(super) fn includes_csn(&self, csn: &Csn) -> bool {
        match self {
            Self::End => true,
            Self::Time(time) => csn.time <= *time,
            Self::Csn(until) => csn <= until,
        }
    }

    /// The moment, where there is one.
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            Self::End => None,
            Self::Time(time) => Some(*time),
            Self::Csn(csn) => Some(csn.time),
        }
    }

    /// A time as RFC 3339 has it (`2026-11-21T12:34:56Z`, with a fraction or an offset), or generalizedTime
    /// (`20261121123456Z`).
    ///
    /// # Errors
    /// Says what it should look like.
    pub fn parse_time(text: &str) -> Result<Self, String> {
        Timestamp::parse_generalized(text).or_else(|| rfc3339(text)).map(Self::Time).ok_or_else(|| {
            format!("`{text}` is not a time; write 2026-11-21T12:34:56Z or 20261121123456Z, in UTC")
        })
    }

    /// A CSN.
    ///
    /// # Errors
    /// Says what it should look like.
    pub fn parse_csn(text: &str) -> Result<Self, String> {
        Csn::from_str(text).map(Self::Csn).map_err(|error| error.to_string())
    }
}

/// `YYYY-MM-DDTHH:MM:SS[.f{1,6}](Z|+HH:MM|-HH:MM)`; a space may stand for the T.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| {
        let part = text.get(range)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u32>().ok()).flatten()
    };
    let mark = |at: usize, allowed: &[u8]| text.as_bytes().get(at).filter(|byte| allowed.contains(byte));
    for (at, allowed) in [(4, "-"), (7, "-"), (10, "Tt "), (13, ":"), (16, ":")] {
        mark(at, allowed.as_bytes())?;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=6).contains(&digits) {
            return None;
        }
        micros = fraction.get(..digits)?.parse::<u32>().ok()? * 10u32.pow(6 - digits as u32);
        rest = fraction.get(digits..)?;
    }
    let offset_minutes = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = rest.get(1..)?.split_once(':')?;
            if hours.len() != 2 || minutes.len() != 2 {
                return None;
            }
            let (hours, minutes) = (hours.parse::<u8>().ok()?, minutes.parse::<u8>().ok()?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * (i64::from(hours) * 60 + i64::from(minutes))
        }
    };
    let local = Timestamp::from_civil(CivilTime {
        year: i64::from(number(0..4)?),
        month: number(5..7)?,
        day: number(8..10)?,
        hour: number(11..13)?,
        minute: number(14..16)?,
        second: number(17..19)?,
        micros,
    })?;
    Some(Timestamp(local.0 - offset_minutes * 60_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_in_utc_and_with_offsets() {
        for (text, expected) in [
            ("20261121123456Z", Some("20261121123456.000000Z")),
            ("20261121123456.5Z", Some("20261121123456.500000Z")),
            ("2026-11-21T12:34:56Z", Some("20261121123456.000000Z")),
            ("2026-11-21 12:34:56.000001z", Some("20261121123456.000001Z")),
            ("2026-11-21T12:34:56+01:30", Some("20261121110456.000000Z")),
            ("2026-11-21T23:34:56-02:00", Some("20261122013456.000000Z")),
            ("2026-11-21T12:34:56", None),
            ("2026-11-21", None),
            ("2026-13-21T12:34:56Z", None),
            ("2026-11-21T12:34:56.Z", None),
            ("2026-11-21T12:34:56+1:30", None),
            ("+026-11-21T12:34:56Z", None),
            ("yesterday", None),
        ] {
            let found = Until::parse_time(text).ok().and_then(|until| until.time());
            assert_eq!(found.map(Timestamp::generalized_micros).as_deref(), expected, "{text}");
        }
    }
}
