//! The decoy value that a password is compared with where there is no account.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use larix_engine::password::{self, Hasher};
use zeroize::Zeroizing;

use crate::clock::SystemRandom;

type Secret = Zeroizing<Vec<u8>>;

/// A value that nothing matches, of the scheme and at the cost of the one looked up last: an unknown account takes as
/// long as a known one. Before the first, of the configured scheme.
pub(crate) struct Decoy {
    value: Mutex<Secret>,
}

impl Decoy {
    pub(crate) fn new(hasher: &Hasher) -> Self {
        // A scheme that cannot be computed says so when a password is set.
        let value = hasher.hash(b"", &SystemRandom).map(|hash| password::decoy(&hash)).unwrap_or_default();
        Self { value: Mutex::new(value) }
    }

    /// Follows what accounts really have.
    pub(crate) fn learn(&self, stored: &[u8]) {
        let mut value = self.lock();
        if password::settings_of(&value) != password::settings_of(stored) {
            *value = password::decoy(stored);
        }
    }

    pub(crate) fn get(&self) -> Secret {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Secret> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
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

    use super::*;

    #[test]
    fn follows_the_scheme_of_the_last_account() {
        let decoy = Decoy::new(&Hasher::new(Scheme::SSHA));
        assert!(decoy.get().starts_with(b"{SSHA}"));
        assert_eq!(verify(&decoy.get(), b""), Verification::Mismatch);
        decoy.learn(b"{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=");
        assert_eq!(decoy.get().as_slice(), b"{SHA}AAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    }
}
