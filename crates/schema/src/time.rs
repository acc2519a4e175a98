//! GeneralizedTime (RFC 4517 §3.3.13) and the UTC Time of old.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use larix_proto::calendar::{civil_from_days, days_from_civil, days_in_month};

/// The seconds of the years 0000 to 9999: others cannot be written, and their texts would be in no order.
const SECONDS: RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// An instant as GeneralizedTime writes it, moved to UTC.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct GeneralizedTime<'a> {
    /// Seconds since 1970-01-01T00:00:00Z; a leap second counts as the next minute's first second.
    pub(crate) seconds: i64,
    /// Decimal digits after the point, without trailing zeros.
    pub(crate) fraction: Cow<'a, str>,
}

impl<'a> GeneralizedTime<'a> {
    /// Parses `YYYYmmddHH[MM[SS]][(.|,)d...](Z|(+|-)HH[MM])`. A fraction is one of what stands before it: an hour, a minute or a second.
    /// It may have any length. `None` also for an instant whose year in UTC is not one of 0000 to 9999.
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (date, rest) = text.split_at_checked(digits)?;
        if !matches!(digits, 10 | 12 | 14) {
            return None;
        }
        let number = |from: usize, to: usize| date.get(from..to)?.parse::<i64>().ok();
        let minute = if digits >= 12 { number(10, 12)? } else { 0 };
        let second = if digits == 14 { number(12, 14)? } else { 0 };
        let (fraction, zone) = split_fraction(rest)?;
        let offset = zone_offset(zone)?;
        let civil = Civil {
            year: number(0, 4)?,
            month: u32::try_from(number(4, 6)?).ok()?,
            day: u32::try_from(number(6, 8)?).ok()?,
            hour: number(8, 10)?,
            minute,
            second,
        };
        let unit = match digits {
            10 => 3600,
            12 => 60,
            _ => 1,
        };
        let (whole, fraction) = part_of(fraction.trim_end_matches('0'), unit);
        let seconds = civil.seconds()? + whole - offset;
        SECONDS.contains(&seconds).then_some(Self { seconds, fraction })
    }

    /// `YYYYmmddHHMMSS[.fraction]Z`.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format_seconds(self.seconds);
        if !self.fraction.is_empty() {
            text.push('.');
            text.push_str(&self.fraction);
        }
        text.push('Z');
        text
    }
}

/// `YYYYmmddHHMMSS` in UTC, without the zone.
pub(crate) fn format_seconds(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// UTC Time, `YYmmddHHMM[SS](Z|(+|-)HHMM)`.
pub(crate) fn is_utc_time(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut full = b"20".to_vec();
    full.extend_from_slice(value);
    let has_fraction = value.iter().any(|b| matches!(b, b'.' | b','));
    matches!(digits, 10 | 12) && !has_fraction && GeneralizedTime::parse(&full).is_some()
}

/// A decimal fraction of a unit of so many seconds: the whole seconds, and the digits of what is left, without zeros at the end.
fn part_of(digits: &str, unit: u32) -> (i64, Cow<'_, str>) {
    if unit == 1 || digits.is_empty() {
        return (0, Cow::Borrowed(digits));
    }
    let mut left = Vec::with_capacity(digits.len());
    let mut carry = 0;
    for digit in digits.bytes().rev() {
        let product = u32::from(digit - b'0') * unit + carry;
        left.push(product % 10);
        carry = product / 10;
    }
    let left: String = left.iter().rev().filter_map(|digit| char::from_digit(*digit, 10)).collect();
    (i64::from(carry), Cow::Owned(left.trim_end_matches('0').to_owned()))
}

fn split_fraction(rest: &str) -> Option<(&str, &str)> {
    let Some(after) = rest.strip_prefix(['.', ',']) else { return Some(("", rest)) };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    after.split_at_checked(digits)
}

/// Seconds east of UTC.
fn zone_offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (sign, digits) = match zone.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, zone.strip_prefix('+')?),
    };
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = digits.get(..2)?.parse().ok()?;
    let minutes: i64 = digits.get(2..).filter(|m| !m.is_empty()).map_or(Some(0), |m| m.parse().ok())?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

struct Civil {
    year: i64,
    month: u32,
    day: u32,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Civil {
    fn seconds(&self) -> Option<i64> {
        let is_date =
            (1..=12).contains(&self.month) && (1..=days_in_month(self.year, self.month)).contains(&self.day);
        if !is_date || self.hour > 23 || self.minute > 59 || self.second > 60 {
            return None;
        }
        let days = days_from_civil(self.year, self.month, self.day);
        Some(days * 86_400 + self.hour * 3600 + self.minute * 60 + self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generalized_time() {
        let cases = [
            ("19700101000000Z", Some("19700101000000Z")),
            ("20240229235959Z", Some("20240229235959Z")),
            ("20240229235960Z", Some("20240301000000Z")),
            ("20230229000000Z", None),
            ("2024022912Z", Some("20240229120000Z")),
            ("202402291234Z", Some("20240229123400Z")),
            ("20240229123400+0130", Some("20240229110400Z")),
            ("20240229233400-05", Some("20240301043400Z")),
            ("20240101000000.500Z", Some("20240101000000.5Z")),
            ("20240101000000,5Z", Some("20240101000000.5Z")),
            ("20240101000000.000Z", Some("20240101000000Z")),
            ("20240101000000.Z", None),
            ("2024010100.Z", None),
            ("2024010100.5Z", Some("20240101003000Z")),
            ("2024010100,25+0100", Some("20231231231500Z")),
            ("2024010123.99999999Z", Some("20240101235959.999964Z")),
            ("2024010100.0001Z", Some("20240101000000.36Z")),
            ("202401010059.5Z", Some("20240101005930Z")),
            ("202401010059.0010Z", Some("20240101005900.06Z")),
            ("20240101000000", None),
            ("20241301000000Z", None),
            ("20240101240000Z", None),
            ("", None),
            ("99991231235959Z", Some("99991231235959Z")),
            ("00000101000000Z", Some("00000101000000Z")),
            ("99991231235959.9Z", Some("99991231235959.9Z")),
            ("99991231235959-0100", None),
            ("00000101000000+0100", None),
        ];
        for (text, expected) in cases {
            let parsed = GeneralizedTime::parse(text.as_bytes()).map(|time| time.to_text());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
