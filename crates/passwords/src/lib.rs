//! Stored passwords (RFC 3112 style `{SCHEME}...` values of userPassword): verifying them and making new ones.
//!
//! **Understood:** `{SSHA} {SHA} {SMD5} {MD5}`, the same for SHA-256, 384 and 512, `{PBKDF2}` and its `-SHA1 -SHA256
//! -SHA512`, `{ARGON2}` (i, d and id), `{SCRAM-SHA-1}` and its -256 and -512 (RFC 5803), `{CLEARTEXT}` and values without a scheme, and `{CRYPT}` with MD5 (`$1$`), bcrypt
//! (`$2a$ $2b$ $2x$ $2y$`), SHA-256 (`$5$`), SHA-512 (`$6$`), and, verified only, yescrypt (`$y$`) and DES (the traditional
//! and BSDi's). `{SASL}` names somebody whose password another program knows: see [`pass_through`]. Others that ask
//! somebody else (`{KERBEROS}`, `{UNIX}`) are not understood. Here such values never match, and [`Verification::Unusable`] says so.
//!
//! Comparisons take the same time whatever the bytes; what was computed is wiped.

mod argon2id;
mod crypt;
mod des_crypt;
mod digest;
mod hasher;
mod md5_crypt;
mod pbkdf2_scheme;
pub mod random;
mod scheme;
mod scram_scheme;
mod sha_crypt_text;
mod strength;
mod yescrypt_text;

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroize as _;

pub use hasher::{Argon2Cost, CryptMethod, HashError, Hasher};
pub use scheme::{Algorithm, Scheme};
pub use scram_scheme::{ScramSecret, scram_secret};
pub use strength::{decoy, is_weaker, rounds, settings_of};

/// Longest password that is looked at, in bytes; longer ones match nothing and are refused for hashing.
pub const PASSWORD_MAX: usize = 4096;

/// Costs a stored value may ask for. Whoever may write a password value could otherwise occupy the server with a bind.
pub(crate) mod cost_limits {
    /// KiB
    pub(crate) const ARGON2_MEMORY_MAX: u32 = 1 << 20;
    pub(crate) const ARGON2_PASSES_MAX: u32 = 64;
    pub(crate) const ARGON2_LANES_MAX: u32 = 64;
    pub(crate) const PBKDF2_ROUNDS_MAX: u32 = 10_000_000;
    pub(crate) const SHA_CRYPT_ROUNDS_MAX: u32 = 10_000_000;
    pub(crate) const BCRYPT_COST_MAX: u32 = 17;
    /// Encryptions by DES; BSDi's own count is 725. Under a second.
    pub(crate) const BSDI_COUNT_MAX: u32 = 1 << 20;
    /// With the block size, 1 GiB.
    pub(crate) const YESCRYPT_BLOCKS_LOG2_MAX: u32 = 18;
    /// In units of 128 bytes.
    pub(crate) const YESCRYPT_BLOCK_SIZE_MAX: u32 = 32;
}

/// The outcome of comparing a password with a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    Match,
    Mismatch,
    /// The stored value can match no password here.
    Unusable(Unusable),
}

impl Verification {
    pub const fn is_match(self) -> bool {
        matches!(self, Self::Match)
    }

    fn of(matches: subtle::Choice) -> Self {
        if bool::from(matches) { Self::Match } else { Self::Mismatch }
    }
}

/// Why a stored value is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// `{NAME}` that is not known.
    UnknownScheme,
    /// Not what its scheme prescribes.
    Malformed(Scheme),
    /// A way of crypt(3) that is not supported.
    UnsupportedCrypt,
    /// It asks for more memory or time than allowed.
    TooCostly(Scheme),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme => f.write_str("the stored password has an unknown scheme"),
            Self::Malformed(scheme) => write!(f, "the stored {scheme} password is malformed"),
            Self::UnsupportedCrypt => f.write_str("the stored {CRYPT} password uses an unsupported method"),
            Self::TooCostly(scheme) => {
                write!(f, "the stored {scheme} password asks for too much memory or time")
            }
        }
    }
}

/// Roughly how long a verification takes, so that the server knows which to move off its event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Microseconds.
    Light,
    /// From tenths of a millisecond to seconds.
    Heavy,
}

/// The name in a `{SASL}NAME` value: whoever serves decides where it is asked about.
pub fn pass_through(stored: &[u8]) -> Option<&[u8]> {
    let (scheme, name) = stored.split_at_checked(b"{SASL}".len())?;
    scheme.eq_ignore_ascii_case(b"{SASL}").then_some(name)
}

/// The cost of verifying against a stored value.
pub fn cost(stored: &[u8]) -> Cost {
    if pass_through(stored).is_some() {
        return Cost::Heavy;
    }
    match Scheme::split(stored) {
        Some((Some(Scheme::Argon2 | Scheme::Crypt | Scheme::Pbkdf2(_) | Scheme::Scram(_)), _)) => Cost::Heavy,
        _ => Cost::Light,
    }
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
            let verification = verify_hash(scheme, rest, password).unwrap_or_else(|| malformed(scheme));
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
        Scheme::Scram(hash) => scram_scheme::verify(hash, stored, password),
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

/// Whether a value is hashed already: it begins with a `{SCHEME}` that is known, or holds none itself.
pub fn is_hashed(value: &[u8]) -> bool {
    matches!(Scheme::split(value), Some((Some(_), _))) || pass_through(value).is_some()
}

const fn malformed(scheme: Scheme) -> Verification {
    Verification::Unusable(Unusable::Malformed(scheme))
}

const fn too_costly(scheme: Scheme) -> Verification {
    Verification::Unusable(Unusable::TooCostly(scheme))
}

fn cleartext(stored: &[u8], password: &[u8]) -> Verification {
    Verification::of(stored.ct_eq(password))
}

#[cfg(test)]
mod tests;
