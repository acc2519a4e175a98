//! The account usability control: whether an entry could authenticate, and if not, why.

use larix_proto::ControlBuf;
use larix_proto::control::{AccountUsability, ControlValue, Unusable};

use super::PasswordPolicySettings;
use super::account::{Account, Lock, PASSWORD};
use super::policy::Policy;
use larix_engine::access::Privilege;
use larix_engine::overlay::{AnsweredEntry, Failure};

pub(super) fn controls(
    settings: &PasswordPolicySettings,
    policy: &Policy,
    answered: &AnsweredEntry<'_>,
) -> Result<Vec<ControlBuf>, Failure> {
    let AnsweredEntry { dn, entry, subject, schema, entries, now } = *answered;
    let account = Account::new(schema, entry);
    let Ok(password) = schema.describe(PASSWORD) else { return Ok(Vec::new()) };
    if !account.has(PASSWORD) || !entries.allows(subject, dn, entry, &password, Privilege::Compare)? {
        return Ok(Vec::new());
    }
    let mut left = None;
    let (mut expired, mut grace) = (false, -1);
    if let Some(changed) = account.changed().filter(|_| policy.max_age > 0) {
        let until = changed.seconds().saturating_add(policy.max_age).saturating_sub(now.seconds());
        left = Some(until);
        expired = until <= 0;
        if policy.grace_limit > 0
            && (policy.grace_expiry == 0 || until.saturating_add(policy.grace_expiry) > 0)
        {
            grace = account.grace_left(policy, until.saturating_neg());
        }
    }
    let mut idle = false;
    // As at a bind: where it counts there, and no login is left once it is over.
    let counts_idle = policy.lockout && policy.max_idle > 0 && settings.last_bind;
    if !expired && counts_idle && account.has("pwdLastSuccess") {
        let until = policy.max_idle.saturating_sub(account.idle(now).unwrap_or(0));
        idle = until < 0;
        left = Some(left.map_or(until, |left| left.min(until)));
    }
    let locked = account.lock(policy, now, settings.last_bind) == Lock::Locked;
    let usability = if expired || locked {
        let end = account.lock_end(policy, now);
        AccountUsability::NotAvailable(Unusable {
            inactive: end.is_some(),
            reset: policy.must_change && account.is_reset(),
            expired: expired || idle,
            // A bind looks at the lock first: none of these logins is left.
            remaining_grace: Some(if expired && !locked { grace } else { -1 }),
            seconds_before_unlock: Some(end.flatten().map_or(-1, |end| end.saturating_sub(now.seconds()))),
        })
    } else {
        AccountUsability::Available { seconds_before_expiration: left.unwrap_or(-1) }
    };
    Ok(vec![usability.to_control(false)])
}
