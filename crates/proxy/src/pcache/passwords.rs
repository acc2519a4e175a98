//! Passwords that the remote server has let in (`pcacheBind`): for a while the same ones are let in here.
//!
//! The cache keeps keyed hashes, in memory alone: a reader of that memory can read the key, too, and passwords as they come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use larix_engine::time::Monotonic;
use larix_schema::NormalDn;
use sha2::Sha256;
use zeroize::Zeroizing;

#[derive(Debug)]
struct CachedPassword {
    /// The name as the remote server shows it.
    shown: Arc<str>,
    hash: [u8; 32],
    refresh: Monotonic,
    expires: Monotonic,
}

/// The passwords of one database.
pub(super) struct CachedPasswords {
    secret: Zeroizing<[u8; 32]>,
    passwords: Mutex<HashMap<NormalDn, CachedPassword>>,
}

/// Without anything that helps to find a password.
impl CachedPasswords {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret: Zeroizing::new(secret), passwords: Mutex::default() }
    }

    fn passwords(&self) -> MutexGuard<'_, HashMap<NormalDn, CachedPassword>> {
        self.passwords.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hashed(&self, dn: &NormalDn, password: &[u8]) -> Option<Hmac<Sha256>> {
        // HMAC takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.secret).ok()?;
        mac.update(dn.as_str().as_bytes());
        mac.update(&[0]);
        mac.update(password);
        Some(mac)
    }

    /// Whether this is the password that the remote server has let in not long ago: then the name as it is shown.
    pub(super) fn lets_in(
        &self,
        dn: &NormalDn,
        password: &[u8],
        now: Monotonic,
        offline: bool,
    ) -> Option<Arc<str>> {
        let (hash, shown) = {
            let passwords = self.passwords();
            let found = passwords.get(dn)?;
            if !offline && (now >= found.refresh || now >= found.expires) {
                return None;
            }
            (found.hash, Arc::clone(&found.shown))
        };
        self.hashed(dn, password).is_some_and(|mac| mac.verify_slice(&hash).is_ok()).then_some(shown)
    }

    /// The name as it is shown, where a password is known.
    pub(super) fn shown(&self, dn: &NormalDn) -> Option<Arc<str>> {
        self.passwords().get(dn).map(|cached| Arc::clone(&cached.shown))
    }

    /// Keeps a password; `most`: how many of them.
    pub(super) fn keep(
        &self,
        (dn, shown): (&NormalDn, &Arc<str>),
        password: &[u8],
        (refresh, expires): (Monotonic, Monotonic),
        most: usize,
    ) -> bool {
        let Some(mac) = self.hashed(dn, password) else { return false };
        let hash = mac.finalize().into_bytes().into();
        let mut passwords = self.passwords();
        if passwords.len() >= most && !passwords.contains_key(dn) {
            return false;
        }
        passwords.insert(dn.clone(), CachedPassword { shown: Arc::clone(shown), hash, refresh, expires });
        true
    }

    /// Forgets the passwords of an entry and of those below it.
    pub(super) fn forget(&self, dn: &NormalDn) {
        self.passwords().retain(|cached, _| !cached.is_within(dn));
    }

    /// Forgets what has expired.
    pub(super) fn check(&self, now: Monotonic) {
        self.passwords().retain(|_, cached| now < cached.expires);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_password_is_let_in_for_a_while() {
        let binds = CachedPasswords::new([7; 32]);
        let (ann, bob) = (NormalDn::from_normal("uid=ann"), NormalDn::from_normal("uid=bob"));
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let shown: Arc<str> = "uid=Ann".into();
        assert!(binds.lets_in(&ann, b"secret", at(0), false).is_none());
        assert!(binds.keep((&ann, &shown), b"secret", (at(10), at(20)), 1));
        assert!(!binds.keep((&bob, &shown), b"secret", (at(10), at(20)), 1), "there is room for one");
        for (dn, password, now, offline, expected) in [
            (&ann, &b"secret"[..], at(1), false, true),
            (&ann, b"Secret", at(1), false, false),
            (&ann, b"", at(1), false, false),
            (&bob, b"secret", at(1), false, false),
            (&ann, b"secret", at(10), false, false),
            (&ann, b"secret", at(30), true, true),
        ] {
            assert_eq!(binds.lets_in(dn, password, now, offline).is_some(), expected, "{password:?} {now:?}");
        }
        binds.check(at(19));
        assert_eq!(binds.shown(&ann).as_deref(), Some("uid=Ann"));
        binds.forget(&NormalDn::root());
        assert!(binds.shown(&ann).is_none());
    }
}
