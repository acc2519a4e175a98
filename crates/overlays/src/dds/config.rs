//! The directives of `overlay dds`.

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_proto::FilterBuf;
use larix_schema::Schema;

use super::refresh::Refresh;
use super::{DynamicObjects, Lifetimes};

/// RFC 2589 section 4.1.2: a year and six hours.
pub(super) const TTL_MAX: u64 = 31_557_600;
/// RFC 2589 section 5.1: servers allow a day.
const DAY: u64 = 86_400;
const INTERVAL: u64 = 3_600;

const HELP: &str = "write seconds, or a number with each unit: `1d`, `12h`, `1h30m`, `10s`";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let described = |name| described(schema, "overlay dds", name);
    let filter = |text| {
        let parsed = FilterBuf::parse(text);
        let parsed = parsed.map_err(|error| SettingError::new(format!("overlay dds: {error}")))?;
        Ok::<_, SettingError>(schema.bind_filter(parsed.as_filter()))
    };
    Ok(Arc::new(DynamicObjects {
        lifetimes: lifetimes(settings)?,
        dynamic: filter("(objectClass=dynamicObject)")?,
        misplaced: filter("(&(entryTtl=*)(!(objectClass=dynamicObject)))")?,
        object_class: described("objectClass")?,
        ttl: described("entryTtl")?,
        expires: described("entryExpireTimestamp")?,
    }))
}

/// What stands in front of the database.
///
/// # Errors
/// As for the overlay of the database.
pub fn intercept(settings: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    Ok(Arc::new(Refresh(lifetimes(settings)?)))
}

fn lifetimes(settings: &Settings) -> Result<Lifetimes, SettingError> {
    let time = |keyword: &str, attribute: &str, check: fn(u64) -> Result<(), String>| {
        let Some(text) = settings.text(attribute) else { return Ok(None) };
        let words = [text.to_owned()];
        let checked = seconds(text).and_then(|seconds| check(seconds).map(|()| seconds));
        checked.map(Some).map_err(|why| WordFault::new(0, why).with_help(HELP).of_setting(keyword, &words))
    };
    let most = time("dds-max-ttl", "olcDDSmaxTtl", is_most)?.unwrap_or(DAY);
    let least = time("dds-min-ttl", "olcDDSminTtl", is_ttl)?.unwrap_or(0);
    let usual = time("dds-default-ttl", "olcDDSdefaultTtl", is_ttl)?.filter(|usual| *usual > 0);
    let usual = usual.unwrap_or(most);
    let exceeds = |what: &str, bound: &str| {
        let error = SettingError::new(format!("overlay dds: {what} is longer than {bound}"));
        error.with_help("the order is dds-min-ttl, dds-default-ttl, dds-max-ttl; the last is 1d by default")
    };
    if usual > most {
        return Err(exceeds("dds-default-ttl", "dds-max-ttl"));
    }
    if least > usual {
        return Err(exceeds("dds-min-ttl", "dds-default-ttl or dds-max-ttl"));
    }
    let limit = settings.number::<u64>("dds-max-dynamicObjects", "olcDDSmaxDynamicObjects")?;
    Ok(Lifetimes {
        on: settings.switch("olcDDSstate").unwrap_or(true),
        most,
        least,
        usual,
        interval: time("dds-interval", "olcDDSinterval", is_interval)?.unwrap_or(INTERVAL),
        tolerance: time("dds-tolerance", "olcDDStolerance", is_ttl)?.unwrap_or(0),
        limit: limit.filter(|limit| *limit > 0),
    })
}

pub(super) fn check_most(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    check(words, is_most)
}

pub(super) fn check_ttl(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    check(words, is_ttl)
}

pub(super) fn check_interval(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    check(words, is_interval)
}

fn check(words: &[String], bounds: fn(u64) -> Result<(), String>) -> Result<(), WordFault> {
    let Some(text) = words.first() else { return Ok(()) };
    seconds(text).and_then(bounds).map_err(|why| WordFault::new(0, why).with_help(HELP))
}

fn is_most(seconds: u64) -> Result<(), String> {
    let fits = (DAY..=TTL_MAX).contains(&seconds);
    fits.then_some(()).ok_or_else(|| format!("{seconds} seconds are not between a day and {TTL_MAX} seconds"))
}

fn is_ttl(seconds: u64) -> Result<(), String> {
    let fits = seconds <= TTL_MAX;
    fits.then_some(()).ok_or_else(|| format!("{seconds} seconds are more than {TTL_MAX}"))
}

fn is_interval(seconds: u64) -> Result<(), String> {
    let fits = (1..=TTL_MAX).contains(&seconds);
    fits.then_some(()).ok_or_else(|| format!("{seconds} seconds are not between 1 and {TTL_MAX}"))
}

/// Reads seconds, or numbers with the units `d`, `h`, `m` and `s` in this order, the last of which may be left out.
fn seconds(text: &str) -> Result<u64, String> {
    let invalid = || format!("`{text}` is not a time");
    let (mut rest, mut total) = (text.trim(), 0_u64);
    let mut units = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)].into_iter();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at_checked(digits).ok_or_else(invalid)?;
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let mut chars = behind.chars();
        let unit = chars.next().map_or('s', |unit| unit.to_ascii_lowercase());
        let (_, factor) = units.find(|(known, _)| *known == unit).ok_or_else(invalid)?;
        total = number.checked_mul(factor).and_then(|part| total.checked_add(part)).ok_or_else(invalid)?;
        rest = chars.as_str();
    }
    if text.trim().is_empty() { Err(invalid()) } else { Ok(total) }
}
