//! Passwords of a request, and what was computed about them: comparing and hashing take long by design, and the writer
//! has no time.
//!
//! A request is shown to the overlays twice: once on a thread of the password pool, against what is committed then, and
//! once on the writer's. Both run the same code and share this; the second time every answer is known, unless the account
//! changed in between, and then it is computed again. Users may store hashes that others pay for: what is compared has a limit, and a
//! lower one on the writer's thread.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use crate::password::{self, HashError, Hasher};
use crate::time::RandomSource;

type Secret = Zeroizing<Vec<u8>>;

/// Rounds ([`password::rounds`]) that the comparisons of one request may take beforehand: some sixteen seconds.
const ROUNDS_MAX: u64 = 32_000_000;
/// Those that they may take on the writer's thread: as many as a bind.
const LATE_ROUNDS_MAX: u64 = 2_000_000;

/// Why passwords are in the request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// An ordinary change, which may set a password among other things.
    #[default]
    Change,
    /// A password modify request (RFC 3062).
    PasswordModify,
    /// The server stores the same password under a better scheme: no change to any policy.
    Rehash,
}

/// The passwords of one request. Wiped when it is gone.
#[derive(Default)]
pub struct PasswordWork {
    pub purpose: Purpose,
    /// The password to replace, as the user gave it.
    pub old: Option<Secret>,
    /// The new one as the user gave it, where the change has its hash.
    pub new: Option<Secret>,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    /// Stored value, password, whether they match.
    compared: Vec<(Secret, Secret, bool)>,
    /// Stored value, password: what another program is to be asked about.
    unasked: Vec<(Secret, Secret)>,
    /// Password, scheme, stored value.
    hashed: Vec<(Secret, Hasher, Secret)>,
    /// Password, whether it is in a list.
    listed: Vec<(Secret, Option<bool>)>,
    /// Password, label, what an overlay derives of it.
    derived: Vec<(Secret, Box<[u8]>, Secret)>,
    /// What comparisons have taken beforehand, and on the writer's thread.
    rounds: u64,
    late_rounds: u64,
    /// The writer asks.
    is_late: bool,
    has_exceeded: bool,
}

impl Results {
    /// Counts what a comparison takes, if it may.
    fn may_take(&mut self, rounds: u64) -> bool {
        let (spent, most) = match self.is_late {
            true => (&mut self.late_rounds, LATE_ROUNDS_MAX),
            false => (&mut self.rounds, ROUNDS_MAX),
        };
        let sum = spent.saturating_add(rounds);
        if sum > most {
            self.has_exceeded = true;
            return false;
        }
        *spent = sum;
        true
    }
}

impl PasswordWork {
    pub fn of(purpose: Purpose, old: Option<Secret>, new: Option<Secret>) -> Self {
        Self { purpose, old, new, results: Mutex::default() }
    }

    /// For a request that nothing was computed for beforehand.
    pub fn late() -> Self {
        Self { results: Mutex::new(Results { is_late: true, ..Results::default() }), ..Self::default() }
    }

    /// What is asked from now on, is asked beforehand.
    pub fn begin(&self) {
        self.lock().is_late = false;
    }

    /// What is asked from now on, the writer asks.
    pub fn finish(&self) {
        self.lock().is_late = true;
    }

    /// Whether a comparison was left out because of what it would have taken: then nobody knows whether the password matches.
    pub fn has_exceeded(&self) -> bool {
        self.lock().has_exceeded
    }

    /// Whether a password matches a stored value. Beyond the limit none does, and none that another program alone can compare (`{SASL}`),
    /// unless that is [known](Self::learn).
    pub fn matches(&self, stored: &[u8], password: &[u8]) -> bool {
        let found = |results: &Results| {
            let same =
                results.compared.iter().find(|(s, p, _)| s.as_slice() == stored && p.as_slice() == password);
            same.map(|(.., matches)| *matches)
        };
        if let Some(matches) = found(&self.lock()) {
            return matches;
        }
        if password::pass_through(stored).is_some() {
            return false;
        }
        if !self.lock().may_take(password::rounds(stored)) {
            return false;
        }
        let matches = password::verify(stored, password).is_match();
        self.lock().compared.push((secret(stored), secret(password), matches));
        matches
    }

    /// Notes that another program is to be asked whether an old password matches a stored value, if it alone knows and has not been
    /// asked: see [`Self::take_unasked`].
    pub fn leave_to_program(&self, stored: &[u8], password: &[u8]) {
        if password::pass_through(stored).is_none() {
            return;
        }
        let mut results = self.lock();
        let is_known =
            results.compared.iter().any(|(s, p, _)| s.as_slice() == stored && p.as_slice() == password);
        if !is_known {
            results.unasked.push((secret(stored), secret(password)));
        }
    }

    /// Stored values and old passwords that another program is to be asked about. The caller asks it, notes the answers
    /// ([`Self::learn`]), and has the overlays look at the request again.
    pub fn take_unasked(&self) -> Vec<(Secret, Secret)> {
        std::mem::take(&mut self.lock().unasked)
    }

    /// Notes what another program says of a stored value that it alone can compare (`{SASL}`).
    pub fn learn(&self, stored: &[u8], password: &[u8], matches: bool) {
        self.lock().compared.push((secret(stored), secret(password), matches));
    }

    /// The value to store for a password.
    ///
    /// # Errors
    /// As [`Hasher::hash`].
    pub fn hash(
        &self,
        hasher: &Hasher,
        password: &[u8],
        random: &dyn RandomSource,
    ) -> Result<Secret, HashError> {
        let found = |results: &Results| {
            let same = results.hashed.iter().find(|(p, h, _)| p.as_slice() == password && h == hasher);
            same.map(|(.., value)| value.clone())
        };
        if let Some(value) = found(&self.lock()) {
            return Ok(value);
        }
        let value = hasher.hash(password, random)?;
        self.lock().hashed.push((secret(password), hasher.clone(), value.clone()));
        Ok(value)
    }

    /// The password behind a value that the request stores: in the clear, or hashed for this request. `None`: the requester sent a hash.
    pub fn clear_text_of(&self, value: &[u8]) -> Option<Secret> {
        if let Some(password) = password::clear_text(value) {
            return Some(secret(password));
        }
        let results = self.lock();
        results
            .hashed
            .iter()
            .find(|(.., hash)| hash.as_slice() == value)
            .map(|(password, ..)| password.clone())
    }

    /// Whether a password is in an overlay's list, which `find` looks up where that is not known; `None`: the list cannot be read.
    pub fn is_listed(&self, password: &[u8], find: impl FnOnce() -> Option<bool>) -> Option<bool> {
        let listed = self.lock().listed.iter().find(|(p, _)| p.as_slice() == password).map(|(_, is)| *is);
        listed.unwrap_or_else(|| {
            let is_listed = find();
            self.lock().listed.push((secret(password), is_listed));
            is_listed
        })
    }

    /// What an overlay derives of a password. `label` says everything else that it depends on.
    pub fn derived(&self, password: &[u8], label: &[u8], derive: impl FnOnce() -> Secret) -> Secret {
        let found = |results: &Results| {
            let same = results.derived.iter().find(|(p, l, _)| p.as_slice() == password && **l == *label);
            same.map(|(.., value)| value.clone())
        };
        if let Some(value) = found(&self.lock()) {
            return value;
        }
        let value = derive();
        self.lock().derived.push((secret(password), label.into(), value.clone()));
        value
    }

    fn lock(&self) -> MutexGuard<'_, Results> {
        // Nothing is computed while the lock is held.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn secret(bytes: &[u8]) -> Secret {
    Zeroizing::new(bytes.to_vec())
}

/// Passwords stay out of logs.
impl fmt::Debug for PasswordWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordWork").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::Scheme;
    use crate::time::SeededRandom;

    #[test]
    fn comparisons_have_a_limit() {
        // They are reckoned before they are found to be damaged.
        let costly = |number: usize| format!("{{PBKDF2-SHA512}}900000${}$!", "!".repeat(number)).into_bytes();
        let stored = Hasher::new(Scheme::SSHA).hash(b"secret", &SeededRandom::new(1)).unwrap();
        let (late, early) = (PasswordWork::late(), PasswordWork::default());
        for (work, fit) in [(&late, 2), (&early, 35)] {
            for number in 1..=fit {
                assert!(!work.matches(&costly(number), b"x") && !work.has_exceeded(), "{number}");
            }
        }
        assert!(!late.matches(&costly(3), b"x") && late.has_exceeded());
        // What takes nothing is compared all the same.
        assert!(late.matches(&stored, b"secret"));
        // What was compared beforehand is known.
        early.finish();
        assert!(!early.matches(&costly(35), b"x") && !early.has_exceeded());
        assert!(
            !early.matches(&costly(36), b"x") && !early.matches(&costly(37), b"x") && !early.has_exceeded()
        );
        assert!(!early.matches(&costly(38), b"x") && early.has_exceeded());
    }

    #[test]
    fn what_another_program_says_is_known() {
        let work = PasswordWork::default();
        work.learn(b"{SASL}ann", b"right", true);
        assert!(work.matches(b"{SASL}ann", b"right"));
        assert!(!work.matches(b"{SASL}ann", b"wrong") && !work.matches(b"{SASL}bob", b"right"));
        // Nobody asks it about a new password: that would count as a guess.
        assert!(work.take_unasked().is_empty());
        for (stored, password, asked) in [
            (&b"{SASL}ann"[..], &b"right"[..], 0),
            (b"{SASL}bob", b"right", 1),
            (b"{CLEARTEXT}x", b"right", 0),
        ] {
            work.leave_to_program(stored, password);
            assert_eq!(work.take_unasked().len(), asked);
        }
    }

    #[test]
    fn what_was_computed_once_is_known() {
        let (work, random) = (PasswordWork::default(), SeededRandom::new(1));
        let hasher = Hasher::new(Scheme::SSHA);
        let stored = work.hash(&hasher, b"secret", &random).unwrap();
        assert_eq!(work.hash(&hasher, b"secret", &random).unwrap(), stored, "another salt would differ");
        for (password, expected) in [(&b"secret"[..], true), (b"other", false), (b"secret", true)] {
            assert_eq!(work.matches(&stored, password), expected);
        }
        assert_eq!(work.lock().compared.len(), 2);
        for (password, label, expected) in
            [(&b"a"[..], &b"x"[..], 1), (b"a", b"y", 2), (b"b", b"x", 3), (b"a", b"x", 1)]
        {
            assert_eq!(*work.derived(password, label, || secret(&[expected])), [expected]);
        }
        let clear = |value: &[u8]| work.clear_text_of(value).map(|password| password.to_vec());
        for (value, expected) in [
            (stored.as_slice(), Some("secret")),
            (b"{CLEARTEXT}open", Some("open")),
            (b"open", Some("open")),
            (b"{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", None),
            (b"{SASL}ann@EXAMPLE.COM", None),
        ] {
            assert_eq!(clear(value).as_deref(), expected.map(str::as_bytes));
        }
        assert!(!format!("{work:?}").contains("secret"));
    }
}
