//! Stored passwords (RFC 3112 style `{SCHEME}...` values of userPassword): verifying them and making new ones.
//!
//! **Understood:** `{SSHA} {SHA} {SMD5} {MD5}`, the same for SHA-256, 384 and 512, `{PBKDF2}` and its `-SHA1 -SHA256
//! -SHA512`, `{ARGON2}` (i, d and id), `{SCRAM-SHA-1}` and its -256 and -512 (RFC 5803), `{CLEARTEXT}` and values without a scheme,
//! and `{CRYPT}` with MD5 (`$1$`), bcrypt (`$2a$ $2b$ $2x$ $2y$`), SHA-256 (`$5$`), SHA-512 (`$6$`), and, verified only, yescrypt
//! (`$y$`) and DES (the traditional and BSDi's). `{APR1}`, `{BSDMD5}` and `{NS-MTA-MD5}` are those of contributed modules. `{TOTP1}` and its kin take codes that hold for a time: see [`time_based`]. `{SASL}` names a user whose password another program knows: see
//! [`pass_through`]. Others that ask another program (`{KERBEROS}`, `{UNIX}`) are not understood. Here such values never match, and
//! [`Verification::Unusable`] says so.
//!
//! Comparisons take the same time whatever the bytes; what was computed is wiped.

mod argon2id;
mod contrib_md5;
mod cost_limits;
mod crypt;
mod des_crypt;
mod digest;
mod hasher;
mod md5_crypt;
pub mod one_time;
mod pbkdf2_scheme;
mod radix64;
pub mod random;
mod scheme;
mod scram_scheme;
mod sha_crypt_text;
mod strength;
mod totp_scheme;
mod verification;
mod yescrypt_text;

use subtle::ConstantTimeEq;
use zeroize::Zeroize as _;

pub use argon2id::Argon2Cost;
pub use hasher::{CryptMethod, HashError, Hasher};
pub use scheme::{Algorithm, Scheme};
pub use scram_scheme::{ScramSecret, scram_secret};
pub use strength::{better, decoy, rounds, settings_of, unusable};
pub use totp_scheme::{CODE_DIGITS, TIME_STEP, TimeBased, password_behind, time_based, to_base32};
pub use verification::{PASSWORD_MAX, Unusable, Verification};

/// Roughly how long a verification takes, so that the server knows which to move off its event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Microseconds.
    Light,
    /// From tenths of a millisecond to seconds.
    Heavy,
}

/// The name in a `{SASL}NAME` value: the server decides where it is checked.
pub fn pass_through(stored: &[u8]) -> Option<&[u8]> {
    let (scheme, name) = stored.split_at_checked(b"{SASL}".len())?;
    scheme.eq_ignore_ascii_case(b"{SASL}").then_some(name)
}

/// The cost of verifying against a stored value, or against the password behind one that takes codes.
pub fn cost(stored: &[u8]) -> Cost {
    let stored = compared(stored);
    if pass_through(stored).is_some() {
        return Cost::Heavy;
    }
    match Scheme::split(stored) {
        Some((Some(scheme), _)) => match scheme {
            Scheme::Argon2
            | Scheme::Crypt
            | Scheme::Apr1
            | Scheme::BsdMd5
            | Scheme::Pbkdf2(_)
            | Scheme::Scram(_) => Cost::Heavy,
            Scheme::Cleartext | Scheme::Digest { .. } | Scheme::NsMtaMd5 | Scheme::Totp { .. } => Cost::Light,
        },
        _ => Cost::Light,
    }
}

/// What of a stored value takes the time when a password is compared with it: the password behind a value that takes codes, or all.
/// A value that takes codes behind another one does not count: no password matches it.
pub(crate) fn compared(stored: &[u8]) -> &[u8] {
    if !Scheme::may_be_time_based(stored) {
        return stored;
    }
    password_behind(stored).unwrap_or(stored)
}

/// Compares a password with one stored value.
pub fn verify(stored: &[u8], password: &[u8]) -> Verification {
    if password.len() > PASSWORD_MAX {
        return Verification::Mismatch;
    }
    let Some((scheme, rest)) = Scheme::split(stored) else {
        return cleartext(stored, password);
    };
    match scheme {
        None => Verification::Unusable(Unusable::UnknownScheme),
        Some(Scheme::Cleartext) => cleartext(rest, password),
        Some(scheme) => {
            let verification =
                verify_hash(scheme, rest, password).unwrap_or_else(|| Verification::malformed(scheme));
            overwrite_stack();
            verification
        }
    }
}

/// Calls of its own, so that all of their stack is below the caller's. `None` if the value is malformed.
#[inline(never)]
fn verify_hash(scheme: Scheme, stored: &[u8], password: &[u8]) -> Option<Verification> {
    match scheme {
        Scheme::Cleartext => Some(cleartext(stored, password)),
        Scheme::Digest { algorithm, salted } => digest::verify(algorithm, salted, stored, password),
        Scheme::Pbkdf2(algorithm) => pbkdf2_scheme::verify(algorithm, stored, password),
        Scheme::Argon2 => argon2id::verify(stored, password),
        Scheme::Crypt => crypt::verify(stored, password),
        Scheme::Apr1 => contrib_md5::verify(contrib_md5::APR1, stored, password),
        Scheme::BsdMd5 => contrib_md5::verify(contrib_md5::BSD, stored, password),
        Scheme::NsMtaMd5 => contrib_md5::verify_netscape(stored, password),
        Scheme::Scram(hash) => scram_scheme::verify(hash, stored, password),
        Scheme::Totp { .. } => Some(Verification::Unusable(Unusable::TimeBased(scheme))),
    }
}

/// How much of the stack hashes are reckoned to use, in 8 bytes: 16 KiB, also where the compiler does not optimise.
const STACK_WORDS: usize = 2048;

/// Overwrites what the calls before left on the stack: libraries copy a block that has the password when they move a
/// hasher, and overwrite their own copy alone.
#[inline(never)]
fn overwrite_stack() {
    let mut below = [0_u64; STACK_WORDS];
    below.zeroize();
}

/// Schemes of slapd and its modules whose values say where the password is, beside `{SASL}`. Many can guess them: they are no passwords.
const ELSEWHERE: [&str; 4] = ["{K5KEY}", "{KERBEROS}", "{RADIUS}", "{UNIX}"];

/// Whether a value is hashed already: it begins with a `{SCHEME}` that is known, or holds none itself.
pub fn is_hashed(value: &[u8]) -> bool {
    let begins_with =
        |name: &str| value.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name.as_bytes()));
    matches!(Scheme::split(value), Some((Some(_), _)))
        || pass_through(value).is_some()
        || ELSEWHERE.into_iter().any(begins_with)
}

/// The password that a value has in the clear; `None`: a hash, or a value that no password matches by itself.
pub fn clear_text(value: &[u8]) -> Option<&[u8]> {
    match Scheme::split(value) {
        None => Some(value),
        Some((Some(Scheme::Cleartext), password)) => Some(password),
        Some(_) => None,
    }
}

fn cleartext(stored: &[u8], password: &[u8]) -> Verification {
    Verification::of(stored.ct_eq(password))
}

#[cfg(test)]
mod tests;
