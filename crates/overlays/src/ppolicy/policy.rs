//! What a policy entry says.

use std::ops::RangeInclusive;

use larix_schema::Schema;

use larix_engine::entry::Entry;
use larix_engine::password::{Hasher, Scheme};

/// Failures that are remembered when only delays are asked for.
const RECORDED_FAILURES_DEFAULT: i64 = 5;

/// A password policy. Times are seconds; 0 is "no such rule" for every number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub min_age: i64,
    pub max_age: i64,
    pub max_idle: i64,
    pub in_history: i64,
    /// 0: not checked, 1: if it can be, 2: what cannot be checked is refused.
    pub check_quality: i64,
    /// Bytes.
    pub min_length: i64,
    /// Bytes.
    pub max_length: i64,
    pub expire_warning: i64,
    pub grace_expiry: i64,
    pub grace_limit: i64,
    pub lockout: bool,
    pub lockout_duration: i64,
    pub min_delay: i64,
    pub max_delay: i64,
    pub max_failure: i64,
    pub max_recorded_failure: i64,
    pub failure_count_interval: i64,
    pub must_change: bool,
    pub allow_user_change: bool,
    pub safe_modify: bool,
    /// The module that is to check the quality.
    pub check_module: Option<CheckModule>,
    /// `pwdDefaultHash`
    pub default_hash: Option<Scheme>,
    pub rehash_on_bind: bool,
}

/// A module that a policy wants the quality of passwords checked by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckModule {
    /// `pwdCheckModule`; none with `pwdUseCheckModule`: the overlay's settings name it.
    pub name: Option<String>,
    /// `pwdCheckModuleArg`
    pub argument: Option<Vec<u8>>,
}

fn check_module(
    name: Option<&str>,
    used: bool,
    argument: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<CheckModule> {
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    (used || name.is_some()).then(|| CheckModule { name, argument: argument() })
}

impl Default for Policy {
    /// What holds where there is no policy: users may change their passwords.
    fn default() -> Self {
        Self {
            min_age: 0,
            max_age: 0,
            max_idle: 0,
            in_history: 0,
            check_quality: 0,
            min_length: 0,
            max_length: 0,
            expire_warning: 0,
            grace_expiry: 0,
            grace_limit: 0,
            lockout: false,
            lockout_duration: 0,
            min_delay: 0,
            max_delay: 0,
            max_failure: 0,
            max_recorded_failure: 0,
            failure_count_interval: 0,
            must_change: false,
            allow_user_change: true,
            safe_modify: false,
            check_module: None,
            default_hash: None,
            rehash_on_bind: false,
        }
    }
}

impl Policy {
    /// Reads a policy entry; `None` for one with a number that is none.
    pub fn read(schema: &Schema, entry: &Entry) -> Option<Self> {
        let text = |name: &str| {
            let value = entry.values(schema.attribute_type(name)?.id).first()?;
            std::str::from_utf8(value).ok()
        };
        let number = |name: &str| match text(name) {
            None => Some(0),
            // Below 0 is no rule either.
            Some(text) => text.trim().parse::<i64>().ok().map(|number| number.max(0)),
        };
        let flag = |name: &str, otherwise: bool| {
            text(name).map_or(otherwise, |text| text.eq_ignore_ascii_case("TRUE"))
        };
        let mut policy = Self {
            min_age: number("pwdMinAge")?,
            max_age: number("pwdMaxAge")?,
            max_idle: number("pwdMaxIdle")?,
            in_history: number("pwdInHistory")?,
            check_quality: number("pwdCheckQuality")?,
            min_length: number("pwdMinLength")?,
            max_length: number("pwdMaxLength")?,
            expire_warning: number("pwdExpireWarning")?,
            grace_expiry: number("pwdGraceExpiry")?,
            grace_limit: number("pwdGraceAuthNLimit")?,
            lockout: flag("pwdLockout", false),
            lockout_duration: number("pwdLockoutDuration")?,
            min_delay: number("pwdMinDelay")?,
            max_delay: number("pwdMaxDelay")?,
            max_failure: number("pwdMaxFailure")?,
            max_recorded_failure: number("pwdMaxRecordedFailure")?,
            failure_count_interval: number("pwdFailureCountInterval")?,
            must_change: flag("pwdMustChange", false),
            allow_user_change: flag("pwdAllowUserChange", true),
            safe_modify: flag("pwdSafeModify", false),
            check_module: check_module(text("pwdCheckModule"), flag("pwdUseCheckModule", false), || {
                entry.values(schema.attribute_type("pwdCheckModuleArg")?.id).first().cloned()
            }),
            default_hash: text("pwdDefaultHash").and_then(Scheme::from_name),
            rehash_on_bind: flag("pwdRehashOnBind", false),
        };
        policy.max_recorded_failure = policy.max_recorded_failure.max(policy.max_failure);
        if policy.max_recorded_failure == 0 && policy.min_delay > 0 {
            policy.max_recorded_failure = RECORDED_FAILURES_DEFAULT;
        }
        if policy.min_delay > 0 && policy.max_delay == 0 {
            policy.max_delay = policy.min_delay;
        }
        Some(policy)
    }

    /// How many bytes a new password has at least and at most; `None`: nobody looks.
    pub fn length(&self) -> Option<RangeInclusive<usize>> {
        let least = usize::try_from(self.min_length).unwrap_or(0);
        let most = usize::try_from(self.max_length).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        (self.check_quality > 0).then_some(least..=most)
    }

    /// How a password is hashed under this policy.
    pub fn hasher(&self, configured: &Hasher) -> Hasher {
        match self.default_hash {
            Some(scheme) => Hasher { scheme, ..configured.clone() },
            None => configured.clone(),
        }
    }
}
