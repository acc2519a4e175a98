//! The state of an account, as its operational attributes tell it.

use std::borrow::Cow;

use larix_schema::{NormalDn, Schema};

use super::policy::Policy;
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::overlay::{Entries, Failure};
use larix_engine::time::{CivilTime, Timestamp};

/// The attribute that policies are about.
pub(super) const PASSWORD: &str = "userPassword";

/// What an account may have so many values of that they are left in the store.
const MANY: [&str; 4] = [PASSWORD, "pwdFailureTime", "pwdGraceUseTime", "pwdHistory"];

/// The entry of an account with all values of its state, also those that were left in the store.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn whole<'e>(
    schema: &Schema,
    dn: &NormalDn,
    entry: &'e Entry,
    entries: &dyn Entries,
) -> Result<Cow<'e, Entry>, Failure> {
    let is_left = |attribute: &EntryAttribute| {
        let of_state = MANY.iter().filter_map(|name| schema.attribute_type(name));
        attribute.large.is_some()
            && of_state.map(|known| known.id).any(|known| known == attribute.description.attribute)
    };
    if !entry.attributes.iter().any(is_left) {
        return Ok(Cow::Borrowed(entry));
    }
    let mut whole = entry.clone();
    for attribute in whole.attributes.iter_mut().filter(|attribute| is_left(attribute)) {
        entries.bring(dn, attribute)?;
    }
    Ok(Cow::Owned(whole))
}

/// An account's attributes, by name.
#[derive(Copy, Clone, Debug)]
pub(super) struct Account<'a> {
    schema: &'a Schema,
    entry: &'a Entry,
}

/// Whether an account is locked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Open,
    Locked,
    /// It was, and the time is over: the mark is to go.
    Over,
}

impl<'a> Account<'a> {
    pub(super) fn new(schema: &'a Schema, entry: &'a Entry) -> Self {
        Self { schema, entry }
    }

    pub(super) fn values(&self, name: &str) -> &'a [Vec<u8>] {
        self.schema.attribute_type(name).map_or(&[], |attribute| self.entry.values(attribute.id))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    /// `None` without the attribute, `Some(None)` when its value is no time.
    fn time(&self, name: &str) -> Option<Option<Timestamp>> {
        self.values(name).first().map(|value| parse_time(value))
    }

    pub(super) fn changed(&self) -> Option<Timestamp> {
        self.time("pwdChangedTime").flatten()
    }

    /// The password was set by somebody else, and has to be changed.
    pub(super) fn is_reset(&self) -> bool {
        self.values("pwdReset").first().is_some_and(|value| value.eq_ignore_ascii_case(b"TRUE"))
    }

    /// Whether the account may be used now. pwdMaxIdle counts only where the database keeps pwdLastSuccess.
    pub(super) fn lock(&self, policy: &Policy, now: Timestamp, last_bind: bool) -> Lock {
        if self.time("pwdStartTime").is_some_and(|start| start.is_none_or(|start| before(now, start))) {
            return Lock::Locked;
        }
        if self.time("pwdEndTime").is_some_and(|end| end.is_none_or(|end| !before(now, end))) {
            return Lock::Locked;
        }
        if !policy.lockout {
            return Lock::Open;
        }
        let delayed = self.time("pwdAccountTmpLockoutEnd");
        if delayed.is_some_and(|end| end.is_none_or(|end| before(now, end))) {
            return Lock::Locked;
        }
        if policy.max_idle > 0 && last_bind && self.idle(now).is_some_and(|idle| idle > policy.max_idle) {
            return Lock::Locked;
        }
        let Some(locked) = self.time("pwdAccountLockedTime") else { return Lock::Open };
        // The epoch and what is before it stand for ever (draft-behera-ldap-password-policy-10 section 5.3.3).
        let Some(locked) = locked.filter(|locked| locked.seconds() > 0) else { return Lock::Locked };
        if before(now, locked) {
            Lock::Open
        } else if policy.lockout_duration == 0
            || now.seconds() < locked.seconds().saturating_add(policy.lockout_duration)
        {
            Lock::Locked
        } else {
            Lock::Over
        }
    }

    /// Seconds since the account was used; since its password was changed when it never was.
    pub(super) fn idle(&self, now: Timestamp) -> Option<i64> {
        let last = self.time("pwdLastSuccess").or_else(|| self.time("pwdChangedTime")).flatten()?;
        Some(now.seconds().saturating_sub(last.seconds()))
    }

    /// When a lock ends; `None` when there is none, `Some(None)` when it never does.
    pub(super) fn lock_end(&self, policy: &Policy, now: Timestamp) -> Option<Option<i64>> {
        let lasting = match self.time("pwdAccountLockedTime") {
            None => None,
            Some(locked) => match locked.filter(|locked| locked.seconds() > 0) {
                None => return Some(None),
                Some(locked) if before(now, locked) => None,
                Some(_) if policy.lockout_duration == 0 => return Some(None),
                Some(locked) => Some(locked.seconds().saturating_add(policy.lockout_duration)),
            },
        };
        let delayed = self.time("pwdAccountTmpLockoutEnd").flatten().map(Timestamp::seconds);
        lasting.max(delayed).filter(|end| *end > now.seconds()).map(Some)
    }

    /// When binds failed, oldest first.
    pub(super) fn failures(&self) -> Vec<(Timestamp, &'a Vec<u8>)> {
        let parse = |value: &'a Vec<u8>| (parse_time(value).unwrap_or_default(), value);
        let mut failures: Vec<_> = self.values("pwdFailureTime").iter().map(parse).collect();
        failures.sort_by_key(|(time, _)| *time);
        failures
    }

    /// Seconds since the password expired; `None` if it has not. Without pwdChangedTime it never does.
    pub(super) fn expired_for(&self, policy: &Policy, now: Timestamp) -> Option<i64> {
        let age = now.seconds().saturating_sub(self.changed()?.seconds());
        Some(age.saturating_sub(policy.max_age)).filter(|over| policy.max_age > 0 && *over > 0)
    }

    /// How often the account may still be used with its expired password.
    pub(super) fn grace_left(&self, policy: &Policy, expired_for: i64) -> i64 {
        if policy.grace_expiry > 0 && expired_for > policy.grace_expiry {
            return 0;
        }
        let used = i64::try_from(self.values("pwdGraceUseTime").len()).unwrap_or(i64::MAX);
        policy.grace_limit.saturating_sub(used).max(0)
    }
}

/// Times are compared by the second.
fn before(a: Timestamp, b: Timestamp) -> bool {
    a.seconds() < b.seconds()
}

/// Any generalizedTime (RFC 4517 section 3.3.13).
pub(super) fn parse_time(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at_checked(digits.min(14))?;
    let field = |from: usize, to: usize| whole.get(from..to).map_or(Some(0), |part| part.parse::<u32>().ok());
    if whole.len() < 10 {
        return None;
    }
    let (mut micros, mut rest) = (0, rest);
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let (number, zone) = fraction.split_at_checked(length)?;
        micros = format!("{number:0<6}").get(..6)?.parse().ok()?;
        rest = zone;
    }
    let civil = CivilTime {
        year: i64::from(field(0, 4)?),
        month: field(4, 6)?,
        day: field(6, 8)?,
        hour: field(8, 10)?,
        minute: field(10, 12)?,
        second: field(12, 14)?.min(59),
        micros,
    };
    let time = Timestamp::from_civil(civil)?;
    let offset = match rest.as_bytes() {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), ..] => {
            let hours: i64 = rest.get(1..3)?.parse().ok()?;
            let minutes: i64 = rest.get(3..5).map_or(Some(0), |part| part.parse().ok())?;
            let offset = (hours * 60 + minutes) * 60_000_000;
            if *sign == b'+' { offset } else { -offset }
        }
        _ => return None,
    };
    Some(Timestamp(time.0.saturating_sub(offset)))
}
