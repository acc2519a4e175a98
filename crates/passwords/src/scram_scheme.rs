//! `{SCRAM-SHA-256}<rounds>:<salt>$<StoredKey>:<ServerKey>` (RFC 5803): verifiers of SCRAM as stored passwords, and what a
//! SCRAM bind finds among the stored values of a user.

use larix_sasl::scram::{Hash, ITERATIONS, Verifier};
use zeroize::Zeroizing;

use super::scheme::Scheme;
use super::verification::{PASSWORD_MAX, Unusable, Verification};

pub(super) fn verify(hash: Hash, stored: &[u8], password: &[u8]) -> Option<Verification> {
    let verifier = Verifier::parse(hash, std::str::from_utf8(stored).ok()?)?;
    Some(if verifier.is_of(password) { Verification::Match } else { Verification::Mismatch })
}

/// What is wrong with the text.
pub(super) fn unusable(hash: Hash, stored: &[u8]) -> Option<Unusable> {
    let verifier = std::str::from_utf8(stored).ok().and_then(|text| Verifier::parse(hash, text));
    if verifier.is_some() { None } else { Some(Unusable::Malformed(Scheme::Scram(hash))) }
}

pub(super) fn encode(hash: Hash, salt: &[u8], password: &[u8]) -> String {
    Verifier::derive(hash, password, salt, ITERATIONS).to_text()
}

/// What the stored values of a user offer to a mechanism that needs more than a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScramSecret {
    /// Stored as SCRAM wants it.
    Verifier(Verifier),
    /// The password itself: a verifier can be made of it.
    Password(Zeroizing<Vec<u8>>),
}

/// The first stored verifier for this hash function, or else the first password that is stored as it is; `None` where
/// there are only hashes, which no challenge can be made of.
pub fn scram_secret<'v>(
    values: impl IntoIterator<Item = &'v [u8]> + Clone,
    hash: Option<Hash>,
) -> Option<ScramSecret> {
    let verifier = |value: &[u8]| {
        let (Some(Scheme::Scram(of)), text) = Scheme::split(value)? else { return None };
        let hash = hash.filter(|hash| *hash == of)?;
        Verifier::parse(hash, std::str::from_utf8(text).ok()?).map(ScramSecret::Verifier)
    };
    values.clone().into_iter().find_map(verifier).or_else(|| {
        let password = values.into_iter().find_map(cleartext)?;
        Some(ScramSecret::Password(Zeroizing::new(password.to_vec())))
    })
}

/// The password of a value that is one: without a scheme, or behind `{CLEARTEXT}`.
fn cleartext(value: &[u8]) -> Option<&[u8]> {
    let password = match Scheme::split(value) {
        Some((Some(Scheme::Cleartext), rest)) => rest,
        // What `{SASL}` and schemes that are not known stand for is elsewhere, and many can guess the value itself.
        Some(_) => return None,
        None => value,
    };
    (1..=PASSWORD_MAX).contains(&password.len()).then_some(password)
}
