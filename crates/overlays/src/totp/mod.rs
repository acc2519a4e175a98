//! `overlay totp`: values of userPassword that take codes of RFC 6238, `{TOTP1}`, `{TOTP1ANDPW}` and the same for SHA-256 and SHA-512
//! (OpenLDAP's module pw-totp).
//!
//! The thread that compares the password hands on the values of which the password before the code was right. The writer judges the code, and
//! keeps when it was used in authTimestamp, durably before the answer. As with pw-totp every other login is kept there, too.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larix_engine::Entry;
use larix_engine::overlay::second_factor::{FactorJudgement, GivenCode, LoginPassword, SecondFactor};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    Authentication, BuildContext, Change, ChangeKind, Descriptor, Failure, Interests, Judgement, NobodysBind,
    Overlay, PendingBind, internal_change,
};
use larix_engine::password;
use larix_engine::time::Timestamp;
use larix_schema::Schema;

use crate::lastbind::{AUTH_TIMESTAMP, AUTH_TIMESTAMP_DEFINITION};

const PASSWORD: &str = "userPassword";

pub static DESCRIPTOR: Descriptor = Descriptor::new("totp", "olcOverlayConfig", build)
    .once()
    .local(&[AUTH_TIMESTAMP])
    .schema(AUTH_TIMESTAMP_DEFINITION);

/// The overlay on one database.
#[derive(Debug, Default)]
struct TimeBasedPasswords {
    /// Whether an account was seen whose password takes codes.
    takes_codes: AtomicBool,
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(TimeBasedPasswords::default()))
}

impl Overlay for TimeBasedPasswords {
    fn name(&self) -> &'static str {
        "totp"
    }

    fn interests(&self) -> Interests {
        Interests::SECOND_FACTOR | Interests::BIND
    }

    fn second_factor(&self) -> Option<&dyn SecondFactor> {
        Some(self)
    }

    fn authentication(&self) -> Option<&dyn Authentication> {
        Some(self)
    }
}

impl SecondFactor for TimeBasedPasswords {
    fn code_length(&self, _: &LoginPassword<'_>) -> Result<Option<usize>, Failure> {
        // What stands behind the password depends on the value: it is not taken off for all of them.
        Ok(None)
    }

    fn judge(&self, bind: &PendingBind<'_>) -> Result<FactorJudgement, Failure> {
        let GivenCode::OfPasswords { stored, code } = &bind.attempt.code else {
            // A wrong password waits as long as a wrong code.
            let ordered = !bind.matched && self.counts_failures();
            return Ok(FactorJudgement { ordered, ..FactorJudgement::default() });
        };
        self.takes_codes.store(true, Ordering::Relaxed);
        let refused = FactorJudgement { refused: true, ordered: true, ..FactorJudgement::default() };
        let Some(last_used) = last_login(bind.schema, bind.entry) else { return Ok(refused) };
        let Some(attribute) = bind.schema.attribute_type(PASSWORD) else { return Ok(refused) };
        // The password may have been changed since it was compared.
        let present = bind.entry.values(attribute.id);
        let mut is_valid = false;
        for value in stored.iter().filter(|value| present.contains(&***value)) {
            let check = |value: password::TimeBased<'_>| value.takes(code, bind.now.seconds(), last_used);
            is_valid |= password::time_based(value).is_some_and(check);
        }
        if !is_valid {
            return Ok(refused);
        }
        let changes = vec![(bind.attempt.dn.clone(), vec![login_at(bind)?])];
        Ok(FactorJudgement { refused: false, ordered: true, redeemed: true, changes })
    }
}

impl Authentication for TimeBasedPasswords {
    fn judge(&self, bind: &PendingBind<'_>) -> Result<Judgement, Failure> {
        let mut judgement = Judgement::default();
        let by_code = matches!(bind.attempt.code, GivenCode::OfPasswords { .. });
        if bind.matched && !by_code && !matches!(bind.attempt.code, GivenCode::NotAsked) {
            judgement.changes = vec![login_at(bind)?];
        }
        Ok(judgement)
    }

    fn judge_nobody(&self, _: &NobodysBind<'_>) -> Result<Judgement, Failure> {
        Ok(Judgement { ordered: self.counts_failures(), ..Judgement::default() })
    }

    fn counts_failures(&self) -> bool {
        self.takes_codes.load(Ordering::Relaxed)
    }
}

/// Keeps that somebody logs in now.
fn login_at(bind: &PendingBind<'_>) -> Result<Change, Failure> {
    let now = bind.now.generalized().into_bytes();
    Ok(internal_change(bind.schema, ChangeKind::Replace, AUTH_TIMESTAMP, vec![now])?)
}

/// When the account last logged in, in seconds since 1970, `Some(None)` if never; `None`: it cannot be told, and no code may be taken.
fn last_login(schema: &Schema, entry: &Entry) -> Option<Option<i64>> {
    let attribute = schema.attribute_type(AUTH_TIMESTAMP)?.id;
    let Some(value) = entry.values(attribute).first() else { return Some(None) };
    let time = Timestamp::parse_generalized(std::str::from_utf8(value).ok()?)?;
    Some(Some(time.seconds()))
}
