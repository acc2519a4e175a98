//! The decoy values that a password is compared with where there is no account.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larix_backend::Secret;
use larix_engine::password::{self, Hasher};
use larix_schema::NormalDn;

use crate::clock::SystemRandom;

/// Accounts whose schemes and costs are known at a time.
const PLACES: u64 = 64;
/// Most values that stand for those of one account.
const VALUES_MAX: usize = 4;

/// Values that nothing matches, of the schemes and at the costs of accounts that were looked up: an unknown account takes as long as a
/// known one. Which account a name is like is decided by a keyed hash of the name: a client that logs in elsewhere first, where it
/// knows the scheme, does not choose what the next name takes. Before the first account, of the configured scheme.
pub(crate) struct Decoy {
    keys: RandomState,
    configured: Secret,
    /// By the hash of the account's name; empty where none was looked up.
    learned: Mutex<Vec<Vec<Secret>>>,
}

impl Decoy {
    pub(crate) fn new(hasher: &Hasher) -> Self {
        // A scheme that cannot be computed says so when a password is set.
        let configured =
            hasher.hash(b"", &SystemRandom).map(|hash| password::decoy(&hash)).unwrap_or_default();
        let learned = (0..PLACES).map(|_| Vec::new()).collect();
        Self { keys: RandomState::new(), configured, learned: Mutex::new(learned) }
    }

    /// Follows what accounts really have: `stored` is all that the password of one is compared with.
    pub(crate) fn learn<'v>(&self, dn: &NormalDn, stored: impl Iterator<Item = &'v Secret> + Clone) {
        let stored = stored.take(VALUES_MAX);
        let place = self.place(dn);
        let mut learned = self.lock();
        let Some(values) = learned.get_mut(place) else { return };
        let known = values.iter().map(|value| password::settings_of(value));
        if !known.eq(stored.clone().map(|value| password::settings_of(value))) {
            *values = stored.map(|value| password::decoy(value)).collect();
        }
    }

    /// What stands for the values of a name without an account: those of the account that comes next behind it.
    pub(crate) fn values(&self, dn: &NormalDn) -> Vec<Secret> {
        let place = self.place(dn);
        let learned = self.lock();
        let (before, behind) = learned.split_at(place);
        let next = behind.iter().chain(before).find(|values| !values.is_empty());
        next.cloned().unwrap_or_else(|| vec![self.configured.clone()])
    }

    fn place(&self, dn: &NormalDn) -> usize {
        usize::try_from(self.keys.hash_one(dn.as_str()) % PLACES).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Secret>>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Decoy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoy").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::password::{Scheme, Verification, verify};
    use larix_schema::Schema;

    use super::*;

    fn secret(value: &[u8]) -> Secret {
        Secret::new(value.to_vec())
    }

    #[test]
    fn follows_the_schemes_of_accounts() {
        let dn = |number: u32| Schema::system().parse_dn(&format!("cn={number}")).unwrap();
        let decoy = Decoy::new(&Hasher::new(Scheme::SSHA));
        assert!(decoy.values(&dn(0))[0].starts_with(b"{SSHA}"));
        assert_eq!(verify(&decoy.values(&dn(0))[0], b""), Verification::Mismatch);
        // The first account is all that is known. All of its values are computed.
        let both = [secret(b"{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc="), secret(b"{MD5}Xr4ilOzQ4PCOq3aQ0qbuaQ==")];
        let sha_and_md5 =
            vec![secret(b"{SHA}AAAAAAAAAAAAAAAAAAAAAAAAAAA="), secret(b"{MD5}AAAAAAAAAAAAAAAAAAAAAA==")];
        decoy.learn(&dn(0), both.iter());
        assert!((0..1000).all(|number| decoy.values(&dn(number)) == sha_and_md5));
    }

    #[test]
    fn what_a_name_is_like_does_not_follow_the_last_account() {
        let dn = |number: u32| Schema::system().parse_dn(&format!("cn={number}")).unwrap();
        let decoy = Decoy::new(&Hasher::new(Scheme::SSHA));
        let sha = [secret(b"{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=")];
        let md5 = [secret(b"{MD5}Xr4ilOzQ4PCOq3aQ0qbuaQ==")];
        for account in 0..32 {
            let stored = if account % 2 == 0 { &sha } else { &md5 };
            decoy.learn(&dn(account), stored.iter());
        }
        let all = || (100..1100).map(|number| decoy.values(&dn(number))).collect::<Vec<_>>();
        decoy.learn(&dn(0), sha.iter());
        let behind_sha = all();
        decoy.learn(&dn(1), md5.iter());
        let differences = all().into_iter().zip(behind_sha).filter(|(one, other)| one != other).count();
        // Those alone whose place both accounts share.
        assert!(differences < 500, "{differences}");
        // Each is like some account.
        for scheme in [&b"{SHA}"[..], b"{MD5}"] {
            assert!(all().iter().any(|values| values[0].starts_with(scheme)));
        }
    }
}
