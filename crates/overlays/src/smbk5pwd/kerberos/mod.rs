//! The module `krb5`: keys of principals as MIT's KDC keeps them in a directory (its database module kldap), or Heimdal's (hdb-ldap). The
//! class of an entry says which.

mod encryption;
mod heimdal;
mod history;
mod key_set;
mod mit;
mod principal;
mod stash;

use larix_engine::overlay::PendingChange;
use zeroize::Zeroizing;

pub(super) use encryption::EncryptionType;
pub(super) use heimdal::Heimdal;
#[cfg(test)]
pub(super) use key_set::version as version_of;
pub(super) use mit::Mit;
pub(super) use stash::MasterKeys;
#[cfg(test)]
pub(super) use stash::stash;

/// Attributes of MIT's principals and policies that the module reads or writes.
pub(super) mod names {
    pub(in super::super) const KEYS: &str = "krbPrincipalKey";
    pub(in super::super) const HISTORY: &str = "krbPwdHistory";
    pub(in super::super) const PRINCIPAL: &str = "krbPrincipalName";
    pub(in super::super) const CANONICAL: &str = "krbCanonicalName";
    pub(in super::super) const LAST_CHANGE: &str = "krbLastPwdChange";
    pub(in super::super) const EXPIRATION: &str = "krbPasswordExpiration";
    pub(in super::super) const FLAGS: &str = "krbTicketFlags";
    pub(in super::super) const FAILURES: &str = "krbLoginFailedCount";
    pub(in super::super) const POLICY: &str = "krbPwdPolicyReference";
    pub(in super::super) const POLICY_LIFE: &str = "krbMaxPwdLife";
    pub(in super::super) const POLICY_HISTORY: &str = "krbPwdHistoryLength";
    pub(in super::super) const ALL: [&str; 11] = [
        KEYS,
        HISTORY,
        PRINCIPAL,
        CANONICAL,
        LAST_CHANGE,
        EXPIRATION,
        FLAGS,
        FAILURES,
        POLICY,
        POLICY_LIFE,
        POLICY_HISTORY,
    ];
}

/// Attributes of Heimdal's principals that the module reads or writes.
pub(super) mod heimdal_names {
    pub(in super::super) const KEYS: &str = "krb5Key";
    pub(in super::super) const VERSION: &str = "krb5KeyVersionNumber";
    pub(in super::super) const PRINCIPAL: &str = "krb5PrincipalName";
    pub(in super::super) const EXPIRATION: &str = "krb5PasswordEnd";
    pub(in super::super) const FLAGS: &str = "krb5KDCFlags";
    /// Read if the schema has it.
    pub(in super::super) const VALID_END: &str = "krb5ValidEnd";
    pub(in super::super) const ALL: [&str; 5] = [KEYS, VERSION, PRINCIPAL, EXPIRATION, FLAGS];
}

type Secret = Zeroizing<Vec<u8>>;

/// The keys of a password for a principal with this salt.
fn keys_of(
    change: &PendingChange<'_>,
    kinds: &[EncryptionType],
    salt: &[u8],
    password: &[u8],
) -> Vec<(EncryptionType, Secret)> {
    let key = |kind: &EncryptionType| {
        let label = [kind.name().as_bytes(), &[0], salt].concat();
        let derive = || kind.key_of(password, salt, kind.iterations());
        (*kind, change.passwords.derived(password, &label, derive))
    };
    kinds.iter().map(key).collect()
}

fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
