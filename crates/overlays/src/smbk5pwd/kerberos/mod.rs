//! The module `krb5`: keys of principals as MIT's KDC keeps them in a directory (its database module kldap).

mod encryption;
mod key_set;
mod principal;
mod stash;

use larix_engine::overlay::{Failure, PendingChange};
use larix_engine::time::Timestamp;
use larix_schema::{AttributeDescription, NormalDn, ObjectClassId};
use zeroize::Zeroizing;

pub(super) use encryption::EncryptionType;
pub(super) use key_set::version as version_of;
pub(super) use stash::MasterKey;
#[cfg(test)]
pub(super) use stash::stash;

use super::{Account, Settled};
use principal::Principal;

/// Attributes of principals and policies that the module reads or writes.
pub(super) const KEYS: &str = "krbPrincipalKey";
pub(super) const PRINCIPAL: &str = "krbPrincipalName";
pub(super) const CANONICAL: &str = "krbCanonicalName";
pub(super) const LAST_CHANGE: &str = "krbLastPwdChange";
pub(super) const EXPIRATION: &str = "krbPasswordExpiration";
pub(super) const FLAGS: &str = "krbTicketFlags";
pub(super) const FAILURES: &str = "krbLoginFailedCount";
pub(super) const POLICY: &str = "krbPwdPolicyReference";
pub(super) const POLICY_LIFE: &str = "krbMaxPwdLife";

/// The bit of krbTicketFlags that asks for another password (KRB5_KDB_REQUIRES_PWCHANGE).
const MUST_CHANGE: i64 = 0x200;

/// Keys of principals.
pub(super) struct Kerberos {
    /// krbPrincipalAux.
    pub(super) class: ObjectClassId,
    pub(super) master: MasterKey,
    pub(super) kinds: Vec<EncryptionType>,
}

/// Keys stay out of logs.
impl std::fmt::Debug for Kerberos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kerberos").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl Kerberos {
    /// What a principal's entry has with a new password: values of attributes, none for those that go. Nothing if it is no principal of
    /// this realm.
    pub(super) fn settled(
        &self,
        change: &PendingChange<'_>,
        account: &Account<'_>,
        password: &[u8],
    ) -> Result<Settled, Failure> {
        let names = [CANONICAL, PRINCIPAL].map(|name| account.values(name));
        let mut principals = names.iter().flatten().filter_map(|name| Principal::parse(name));
        let Some(principal) = principals.find(|own| own.realm == self.master.realm) else {
            return Ok(Vec::new());
        };
        let keys: Vec<(EncryptionType, Zeroizing<Vec<u8>>)> = self
            .kinds
            .iter()
            .map(|kind| {
                let label = [kind.name().as_bytes(), &[0], &principal.salt].concat();
                let derive = || kind.key_of(password, &principal.salt, kind.iterations());
                (*kind, change.passwords.derived(password, &label, derive))
            })
            .collect();
        let version = account.values(KEYS).iter().filter_map(|set| version_of(set)).max();
        let version = version.unwrap_or(0).saturating_add(1);
        let set = key_set::encode(&self.master, version, &principal.salt, &keys, change.random);
        let now = change.now.seconds();
        let time = |seconds: i64| vec![Timestamp::from_seconds(seconds).generalized().into_bytes()];
        let mut settled = vec![(KEYS, vec![set]), (LAST_CHANGE, time(now))];
        let number = |name| account.values(name).first().and_then(|value| number(value));
        match policy_life(change, account)? {
            Some(life) => settled.push((EXPIRATION, time(now.saturating_add(life)))),
            None if !account.values(EXPIRATION).is_empty() => settled.push((EXPIRATION, Vec::new())),
            None => {}
        }
        if let Some(flags) = number(FLAGS).filter(|flags| flags & MUST_CHANGE != 0) {
            settled.push((FLAGS, vec![(flags & !MUST_CHANGE).to_string().into_bytes()]));
        }
        if number(FAILURES).is_some_and(|failures| failures != 0) {
            settled.push((FAILURES, vec![b"0".to_vec()]));
        }
        Ok(settled)
    }
}

/// How many seconds a password is good for, by the account's policy.
fn policy_life(change: &PendingChange<'_>, account: &Account<'_>) -> Result<Option<i64>, Failure> {
    let schema = change.schema;
    let dn = |value: &Vec<u8>| -> Option<NormalDn> { schema.parse_dn(std::str::from_utf8(value).ok()?).ok() };
    let Some(policy) = account.values(POLICY).first().and_then(dn) else { return Ok(None) };
    let described = |name: &str| -> Option<AttributeDescription> { schema.describe(name).ok() };
    let (Some(policy), Some(life)) = (change.entries.entry(&policy)?, described(POLICY_LIFE)) else {
        return Ok(None);
    };
    let life = policy.values(life.attribute).first().and_then(|value| number(value));
    Ok(life.filter(|seconds| *seconds > 0))
}

fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
