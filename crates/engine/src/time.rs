//! Time and randomness as parameters: the engine reads no clock and no entropy of its own, so that every run can be
//! replayed from a seed.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub use larix_passwords::random::{RandomSource, SeededRandom};
use larix_proto::calendar::{civil_from_days, days_from_civil, days_in_month};
use uuid::Uuid;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// The first moment of the year 0, and the last of 9999.
const YEARS_BEGIN: i64 = -62_167_219_200_000_000;
const YEARS_END: i64 = 253_402_300_799_999_999;

/// A point in time: microseconds since 1970-01-01T00:00:00Z, without leap seconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A reading of a clock that never goes back: nanoseconds since an arbitrary start. For deadlines, never for storage.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// So many seconds later.
    #[must_use]
    pub fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(u64::from(seconds) * 1_000_000_000))
    }

    /// The deadline of a request that has a limit of so many seconds; 0: it has none.
    pub fn with_limit(self, seconds: u32) -> Option<Self> {
        (seconds > 0).then(|| self.plus_seconds(seconds))
    }
}

/// Where the engine learns what time it is.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time of day. May jump either way when an administrator sets the clock.
    fn now(&self) -> Timestamp;
    /// The time since some start; never decreases.
    fn monotonic(&self) -> Monotonic;
}

impl Timestamp {
    pub fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS_PER_SECOND))
    }

    /// Whole seconds since the epoch, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(MICROS_PER_SECOND)
    }

    /// The microseconds within the second, 0..=999_999.
    pub(crate) fn subsec_micros(self) -> u32 {
        u32::try_from(self.0.rem_euclid(MICROS_PER_SECOND)).unwrap_or(0)
    }

    /// The calendar fields in UTC (proleptic Gregorian).
    pub fn civil(self) -> CivilTime {
        let seconds = self.seconds();
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY) as u32;
        CivilTime {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            micros: self.subsec_micros(),
        }
    }

    /// The time of these calendar fields in UTC; `None` when a field is out of its range.
    pub fn from_civil(t: CivilTime) -> Option<Self> {
        let valid = (1..=12).contains(&t.month)
            && (1..=days_in_month(t.year, t.month)).contains(&t.day)
            && t.hour < 24
            && t.minute < 60
            && t.second < 60
            && t.micros < 1_000_000;
        if !valid {
            return None;
        }
        let days = days_from_civil(t.year, t.month, t.day);
        let seconds =
            days.checked_mul(SECONDS_PER_DAY)? + i64::from(t.hour * 3600 + t.minute * 60 + t.second);
        seconds.checked_mul(MICROS_PER_SECOND)?.checked_add(i64::from(t.micros)).map(Timestamp)
    }

    /// The nearest time that generalizedTime, whose years have four digits, can tell.
    fn writable(self) -> Self {
        Self(self.0.clamp(YEARS_BEGIN, YEARS_END))
    }

    /// `YYYYMMDDHHMMSSZ`: generalizedTime to the second, as in createTimestamp (RFC 4517 section 3.3.13). A time before the
    /// year 0 or after 9999 is written as the first or the last moment of this range.
    pub fn generalized(self) -> String {
        let mut text = String::with_capacity(15);
        self.writable().push_seconds(&mut text);
        text.push('Z');
        text
    }

    /// `YYYYMMDDHHMMSS.ffffffZ`: the same to the microsecond, as it stands in a CSN.
    pub fn generalized_micros(self) -> String {
        // What a CSN has behind it finds room.
        let mut text = String::with_capacity(40);
        let time = self.writable();
        time.push_seconds(&mut text);
        text.push('.');
        push_digits(&mut text, time.subsec_micros(), 6);
        text.push('Z');
        text
    }

    /// Appends `YYYYMMDDHHMMSS`. Each thread remembers the last second that it wrote: a change writes the same one several times, and
    /// so do those that come with it.
    fn push_seconds(self, text: &mut String) {
        let seconds = self.seconds();
        LAST_SECOND.with_borrow_mut(|(known, digits)| {
            if *known != seconds {
                digits.clear();
                self.civil().push_seconds(digits);
                *known = seconds;
            }
            text.push_str(digits);
        });
    }

    /// Reads `YYYYMMDDHHMMSS[.f{1,6}]Z`, the two forms written above; other generalizedTime forms are the schema's.
    pub fn parse_generalized(text: &str) -> Option<Self> {
        let (whole, rest) = text.as_bytes().split_at_checked(14)?;
        let field = |range: std::ops::Range<usize>| digits(whole.get(range)?);
        let micros = match rest {
            b"Z" => 0,
            [b'.', fraction @ .., b'Z'] if (1..=6).contains(&fraction.len()) => {
                digits(fraction)? * 10u32.pow(6 - fraction.len() as u32)
            }
            _ => return None,
        };
        Self::from_civil(CivilTime {
            year: i64::from(field(0..4)?),
            month: field(4..6)?,
            day: field(6..8)?,
            hour: field(8..10)?,
            minute: field(10..12)?,
            second: field(12..14)?,
            micros,
        })
    }
}

thread_local! {
    /// A second and what [`CivilTime::push_seconds`] writes of it. No timestamp is in the first one.
    static LAST_SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// Calendar fields in UTC.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CivilTime {
    pub year: i64,
    /// 1..=12
    pub month: u32,
    /// 1..=31
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    /// Microseconds within the second.
    pub micros: u32,
}

impl CivilTime {
    /// Appends `YYYYMMDDHHMMSS`.
    fn push_seconds(&self, text: &mut String) {
        match u32::try_from(self.year) {
            Ok(year @ ..10_000) => push_digits(text, year, 4),
            _ => text.push_str(&format!("{:04}", self.year)),
        }
        for field in [self.month, self.day, self.hour, self.minute, self.second] {
            push_digits(text, field, 2);
        }
    }
}

/// The numbers below a hundred, in two digits each.
const PAIRS: &str = "00010203040506070809101112131415161718192021222324252627282930313233343536373839\
                     40414243444546474849505152535455565758596061626364656667686970717273747576777879\
                     8081828384858687888990919293949596979899";

/// Appends the last `width` digits of a number, two at a time: `width` is 2, 4 or 6. Every change writes three times or more, and the
/// formatting of the standard library takes several times as long.
fn push_digits(text: &mut String, number: u32, width: u32) {
    for (digits, unit) in [(6, 10_000), (4, 100), (2, 1)] {
        if digits <= width {
            let pair = (number / unit % 100) as usize * 2;
            text.push_str(PAIRS.get(pair..pair + 2).unwrap_or_default());
        }
    }
}

fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0u32, |n, b| b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0')))
}

/// A version 7 UUID (RFC 9562 section 5.7): the milliseconds of `now`, then randomness. Entries added near each other
/// in time lie near each other in the entryUUID index.
pub fn new_uuid(now: Timestamp, random: &dyn RandomSource) -> Uuid {
    let mut bytes = [0; UUID_RANDOM_BYTES];
    random.fill(&mut bytes);
    uuid_of(now, &bytes)
}

/// Random bytes in an entryUUID.
pub(crate) const UUID_RANDOM_BYTES: usize = 10;

/// As [`new_uuid`], of random bytes that were fetched before.
pub(crate) fn uuid_of(now: Timestamp, random: &[u8; UUID_RANDOM_BYTES]) -> Uuid {
    let millis = u64::try_from(now.0.div_euclid(1000)).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid()
}

/// A clock that stands still until a test or simulation moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicI64,
    monotonic: AtomicU64,
}

impl ManualClock {
    pub fn new(now: Timestamp) -> Self {
        Self { micros: AtomicI64::new(now.0), monotonic: AtomicU64::new(0) }
    }

    /// Moves both clocks forward.
    pub fn advance_micros(&self, micros: u32) {
        self.micros.fetch_add(i64::from(micros), Ordering::SeqCst);
        self.monotonic.fetch_add(u64::from(micros) * 1000, Ordering::SeqCst);
    }

    /// Sets the time of day, also backwards; the monotonic clock is untouched.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.micros.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.monotonic.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generalized_time_round_trips() {
        let check = |micros: i64, text: &str| {
            assert_eq!(Timestamp(micros).generalized_micros(), text);
            assert_eq!(Timestamp::parse_generalized(text), Some(Timestamp(micros)));
        };
        check(0, "19700101000000.000000Z");
        check(-1, "19691231235959.999999Z");
        check(951_782_400_000_000, "20000229000000.000000Z");
        check(1_795_229_207_123_456, "20261121024647.123456Z");
        check(YEARS_END, "99991231235959.999999Z");
        check(YEARS_BEGIN, "00000101000000.000000Z");
        for (beyond, text) in
            [(i64::MAX, "99991231235959Z"), (YEARS_END + 1, "99991231235959Z"), (i64::MIN, "00000101000000Z")]
        {
            assert_eq!(Timestamp(beyond).generalized(), text);
        }
        assert_eq!(
            Timestamp::parse_generalized("20261121024647Z").map(Timestamp::seconds),
            Some(1_795_229_207)
        );
    }

    #[test]
    fn refuses_what_is_not_a_time() {
        for text in [
            "",
            "2026",
            "20261321024647Z",
            "20260229024647Z",
            "20261121024647",
            "20261121024660Z",
            "20261121024647.Z",
            "20261121024647.1234567Z",
            "2026112102464é",
        ] {
            assert_eq!(Timestamp::parse_generalized(text), None, "{text}");
        }
    }

    #[test]
    fn uuids_carry_the_time_and_the_version() {
        let uuid = new_uuid(Timestamp(1_795_229_207_123_456), &SeededRandom::new(7));
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(uuid.as_u128() >> 80, 1_795_229_207_123);
    }
}
