//! What a policy means for a bind (draft-behera-ldap-password-policy-10 sections 7.1 to 7.3).

use std::borrow::Cow;

use larix_proto::ControlBuf;
use larix_proto::control::{PasswordError, PasswordWarning};
use larix_proto::oid;

use super::account::{Account, Lock, PASSWORD};
use super::policy::Policy;
use super::{PasswordPolicySettings, response, seconds};
use larix_engine::overlay::{Change, ChangeKind, Failure, Judgement, PendingBind, internal_change};
use larix_engine::time::Timestamp;

const LOCKED_TIME: &str = "pwdAccountLockedTime";
const FAILURE_TIME: &str = "pwdFailureTime";

/// Judges a bind to an account under a policy.
pub(super) fn judge(
    settings: &PasswordPolicySettings,
    policy: &Policy,
    bind: &PendingBind<'_>,
) -> Result<Judgement, Failure> {
    let account = Account::new(bind.schema, bind.entry);
    let mut judge = Judge { policy, bind, account, changes: Vec::new() };
    let mut bind_response = BindResponse::default();
    let lock = account.lock(policy, bind.now, settings.last_bind);
    if lock == Lock::Locked {
        bind_response =
            BindResponse { refused: true, error: Some(PasswordError::AccountLocked), ..bind_response };
    } else if account.has(PASSWORD) {
        if lock == Lock::Over {
            judge.change(ChangeKind::Delete, LOCKED_TIME, Vec::new())?;
        }
        if bind.matched {
            bind_response = judge.succeeded()?;
        } else {
            judge.failed()?;
        }
    }
    if settings.disable_write {
        judge.changes.clear();
    }
    let forwarded = if settings.forward_updates { judge.changes.clone() } else { Vec::new() };
    Ok(Judgement {
        forwarded,
        forwarded_if: Vec::new(),
        refused: bind_response.refused,
        controls: bind_response.controls(settings, bind.attempt.policy_control),
        changes: judge.changes,
        must_change_password: bind_response.error == Some(PasswordError::ChangeAfterReset),
        rehash: policy.default_hash.filter(|_| {
            policy.rehash_on_bind && bind.matched && !bind_response.refused && bind_response.error.is_none()
        }),
        ordered: policy.lockout && records_failures(settings, policy),
    })
}

/// Whether wrong passwords are recorded, whatever follows from it.
pub(super) fn records_failures(settings: &PasswordPolicySettings, policy: &Policy) -> bool {
    policy.max_recorded_failure > 0 && !settings.disable_write
}

/// The controls of an answer to a wrong password, as of any account that is not locked.
pub(super) fn empty_response(settings: &PasswordPolicySettings, is_requested: bool) -> Vec<ControlBuf> {
    BindResponse::default().controls(settings, is_requested)
}

struct Judge<'a> {
    policy: &'a Policy,
    bind: &'a PendingBind<'a>,
    account: Account<'a>,
    changes: Vec<Change>,
}

/// What the answer to a bind says.
#[derive(Copy, Clone, Debug, Default)]
struct BindResponse {
    refused: bool,
    expired: bool,
    warning: Option<PasswordWarning>,
    error: Option<PasswordError>,
}

impl Judge<'_> {
    fn change(&mut self, kind: ChangeKind, name: &str, values: Vec<Vec<u8>>) -> Result<(), Failure> {
        self.changes.push(internal_change(self.bind.schema, kind, name, values)?);
        Ok(())
    }

    /// Counts a wrong password, and locks the account when it was one too many.
    fn failed(&mut self) -> Result<(), Failure> {
        let (policy, now) = (self.policy, self.bind.now);
        if policy.max_recorded_failure <= 0 {
            return Ok(());
        }
        let failures = self.account.failures();
        let counts = |time: &Timestamp| {
            policy.failure_count_interval == 0
                || now.seconds() <= time.seconds().saturating_add(policy.failure_count_interval)
        };
        let counted = failures.iter().filter(|(time, _)| counts(time)).count();
        // Two failures within a microsecond are two: each has a time of its own.
        let latest = failures.last().map_or(now.0, |(time, _)| now.0.max(time.0.saturating_add(1)));
        let keep = usize::try_from(policy.max_recorded_failure - 1).unwrap_or(usize::MAX);
        let surplus = failures.len().saturating_sub(keep);
        if surplus > 0 {
            let oldest = failures.iter().take(surplus).map(|(_, value)| (*value).clone()).collect();
            self.change(ChangeKind::Delete, FAILURE_TIME, oldest)?;
        }
        let time = Timestamp(latest).generalized_micros().into_bytes();
        self.change(ChangeKind::Add, FAILURE_TIME, vec![time])?;
        let counted = i64::try_from(counted).unwrap_or(i64::MAX);
        if policy.max_failure > 0 && counted >= policy.max_failure - 1 {
            return self.change(ChangeKind::Replace, LOCKED_TIME, vec![now.generalized().into_bytes()]);
        }
        if policy.min_delay > 0 {
            let doublings = u32::try_from(counted).unwrap_or(u32::MAX).min(62);
            let wait = policy.min_delay.saturating_mul(1_i64 << doublings).min(policy.max_delay);
            let end = Timestamp::from_seconds(now.seconds().saturating_add(wait));
            self.change(
                ChangeKind::Replace,
                "pwdAccountTmpLockoutEnd",
                vec![end.generalized().into_bytes()],
            )?;
        }
        Ok(())
    }

    /// The password was right: what else stands in the way, and what to warn of.
    fn succeeded(&mut self) -> Result<BindResponse, Failure> {
        if self.account.has(FAILURE_TIME) {
            self.change(ChangeKind::Delete, FAILURE_TIME, Vec::new())?;
        }
        let (policy, now) = (self.policy, self.bind.now);
        let mut bind_response = BindResponse::default();
        if policy.must_change && self.account.is_reset() {
            bind_response.error = Some(PasswordError::ChangeAfterReset);
        } else if let Some(over) = self.account.expired_for(policy, now) {
            return self.expired(over);
        }
        let Some(changed) = self.account.changed() else { return Ok(bind_response) };
        if policy.max_age > 0 && policy.expire_warning > 0 {
            let remaining = policy.max_age.saturating_sub(now.seconds().saturating_sub(changed.seconds()));
            if remaining < policy.expire_warning {
                bind_response.warning = Some(PasswordWarning::TimeBeforeExpiration(seconds(remaining)));
            }
        }
        Ok(bind_response)
    }

    fn expired(&mut self, over: i64) -> Result<BindResponse, Failure> {
        let remaining = self.account.grace_left(self.policy, over);
        if remaining == 0 {
            let error = Some(PasswordError::PasswordExpired);
            return Ok(BindResponse { refused: true, expired: true, error, warning: None });
        }
        let used = self.account.values("pwdGraceUseTime").iter();
        let latest = used.filter_map(|value| super::account::parse_time(value)).max();
        let time = latest.map_or(self.bind.now.0, |latest| self.bind.now.0.max(latest.0.saturating_add(1)));
        let time = Timestamp(time).generalized_micros().into_bytes();
        self.change(ChangeKind::Add, "pwdGraceUseTime", vec![time])?;
        let warning = Some(PasswordWarning::GraceLoginsRemaining(seconds(remaining - 1)));
        Ok(BindResponse { refused: false, expired: true, warning, error: None })
    }
}

impl BindResponse {
    fn controls(mut self, settings: &PasswordPolicySettings, is_requested: bool) -> Vec<ControlBuf> {
        if self.error == Some(PasswordError::AccountLocked) && !settings.use_lockout {
            self.error = None;
        }
        if is_requested {
            return vec![response(self.warning, self.error)];
        }
        if !settings.send_netscape_controls {
            return Vec::new();
        }
        // draft-vchu-ldap-pwd-policy: a number in text.
        let control = |oid: &'static str, text: String| {
            vec![ControlBuf { oid: Cow::Borrowed(oid), critical: false, value: Some(text.into_bytes()) }]
        };
        match self.warning {
            _ if self.error.is_some() || self.expired => control(oid::PASSWORD_EXPIRED, "0".to_owned()),
            Some(PasswordWarning::TimeBeforeExpiration(remaining)) if remaining > 0 => {
                control(oid::PASSWORD_EXPIRING, remaining.to_string())
            }
            _ => Vec::new(),
        }
    }
}
