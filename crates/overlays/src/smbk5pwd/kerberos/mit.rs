//! Principals of MIT's KDC (kldap): krbPrincipalAux.

use larix_engine::entry::Entry;
use larix_engine::overlay::{Failure, PendingChange};
use larix_engine::time::Timestamp;
use larix_schema::{AttributeDescription, NormalDn, ObjectClassId, Schema};

use super::super::{Account, Settled};
use super::encryption::EncryptionType;
use super::names::{
    CANONICAL, EXPIRATION, FAILURES, FLAGS, HISTORY, KEYS, LAST_CHANGE, POLICY, POLICY_HISTORY, POLICY_LIFE,
    PRINCIPAL,
};
use super::principal::Principal;
use super::stash::MasterKeys;
use super::{history, key_set, keys_of, number};

/// The bit of krbTicketFlags that asks for another password (KRB5_KDB_REQUIRES_PWCHANGE).
const MUST_CHANGE: i64 = 0x200;

/// Keys of MIT's principals.
pub(in super::super) struct Mit {
    /// krbPrincipalAux.
    pub(in super::super) class: ObjectClassId,
    pub(in super::super) masters: MasterKeys,
    pub(in super::super) kinds: Vec<EncryptionType>,
    pub(in super::super) principal_name: AttributeDescription,
}

/// Keys stay out of logs.
impl std::fmt::Debug for Mit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mit").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl Mit {
    /// What a principal's entry has with a new password: values of attributes, none for those that go. Nothing if it is no principal of
    /// this realm.
    pub(in super::super) fn settled(
        &self,
        change: &PendingChange<'_>,
        account: &Account<'_>,
        password: &[u8],
    ) -> Result<Settled, Failure> {
        let names = [CANONICAL, PRINCIPAL].map(|name| account.values(name));
        let mut principals = names.iter().flatten().filter_map(|name| Principal::parse(name));
        let Some(principal) = principals.find(|own| own.realm == self.masters.realm) else {
            return Ok(Vec::new());
        };
        let keys = keys_of(change, &self.kinds, &principal.salt, password);
        let sets = account.values(KEYS);
        let version = sets.iter().filter_map(|set| key_set::version(set)).max();
        let version = version.unwrap_or(0).saturating_add(1);
        let set = key_set::encode(&self.masters.newest, version, &principal.salt, &keys, change.random);
        let now = change.now.seconds();
        let time = |seconds: i64| vec![Timestamp::from_seconds(seconds).generalized().into_bytes()];
        let mut settled = vec![(KEYS, vec![set]), (LAST_CHANGE, time(now))];
        let value = |name| account.values(name).first().and_then(|value| number(value));
        let policy = Policy::of(change, account)?;
        match policy.life {
            Some(life) => settled.push((EXPIRATION, time(now.saturating_add(life)))),
            None if !account.values(EXPIRATION).is_empty() => settled.push((EXPIRATION, Vec::new())),
            None => {}
        }
        if let Some(past) = history::with_the_last(self, change, &policy, &sets, account.values(HISTORY))? {
            settled.push((HISTORY, past));
        }
        if let Some(flags) = value(FLAGS).filter(|flags| flags & MUST_CHANGE != 0) {
            settled.push((FLAGS, vec![(flags & !MUST_CHANGE).to_string().into_bytes()]));
        }
        if value(FAILURES).is_some_and(|failures| failures != 0) {
            settled.push((FAILURES, vec![b"0".to_vec()]));
        }
        Ok(settled)
    }
}

/// What krbPwdPolicyReference says of passwords.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// How many seconds a password is good for.
    life: Option<i64>,
    /// How many passwords are not to be used again, the present one among them.
    pub(super) history: usize,
}

impl Policy {
    fn of(change: &PendingChange<'_>, account: &Account<'_>) -> Result<Self, Failure> {
        let schema = change.schema;
        let dn =
            |value: &Vec<u8>| -> Option<NormalDn> { schema.parse_dn(std::str::from_utf8(value).ok()?).ok() };
        let policy = match account.values(POLICY).first().and_then(dn) {
            Some(policy) => change.entries.entry(&policy)?,
            None => None,
        };
        let Some(policy) = policy else { return Ok(Self::default()) };
        Ok(Self {
            life: positive(schema, &policy, POLICY_LIFE),
            history: positive(schema, &policy, POLICY_HISTORY)
                .map_or(0, |own| usize::try_from(own).unwrap_or(usize::MAX)),
        })
    }
}

fn positive(schema: &Schema, policy: &Entry, name: &str) -> Option<i64> {
    let described = schema.describe(name).ok()?;
    let value = policy.values(described.attribute).first().and_then(|value| number(value));
    value.filter(|number| *number > 0)
}
