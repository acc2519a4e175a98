//! `$5$` and `$6$`: `$6$[rounds=<n>$]<salt>$<hash>`.

use sha_crypt::{Params, sha256_crypt, sha512_crypt};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::scheme::Scheme;
use super::verification::Verification;
use super::{cost_limits, radix64};

const ROUNDS_DEFAULT: u32 = 5_000;
const ROUNDS_MIN: u32 = 1_000;
/// Bytes; what is longer is cut.
const SALT_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShaCrypt {
    Sha256,
    Sha512,
}

pub(super) fn verify(method: ShaCrypt, text: &str, password: &[u8]) -> Option<Verification> {
    let (settings, expected) = text.rsplit_once('$')?;
    let settings = settings.get(3..)?;
    let (rounds, salt) = match settings.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, salt) = rest.split_once('$')?;
            (Some(rounds.parse::<u32>().ok()?), salt)
        }
        None => (None, settings),
    };
    if rounds.is_some_and(|rounds| rounds > cost_limits::SHA_CRYPT_ROUNDS_MAX) {
        return Some(Verification::too_costly(Scheme::Crypt));
    }
    let computed = hash_text(method, salt.as_bytes(), rounds, password)?;
    Some(Verification::of(computed.as_bytes().ct_eq(expected.as_bytes())))
}

/// The whole string for a new password.
pub(super) fn encode(method: ShaCrypt, salt: &str, rounds: Option<u32>, password: &[u8]) -> Option<String> {
    let hash = hash_text(method, salt.as_bytes(), rounds, password)?;
    let id = if method == ShaCrypt::Sha256 { '5' } else { '6' };
    let rounds = rounds.map(|rounds| format!("rounds={rounds}$")).unwrap_or_default();
    Some(format!("${id}${rounds}{salt}${}", &*hash))
}

fn hash_text(
    method: ShaCrypt,
    salt: &[u8],
    rounds: Option<u32>,
    password: &[u8],
) -> Option<Zeroizing<String>> {
    let params = Params::new(rounds.unwrap_or(ROUNDS_DEFAULT).max(ROUNDS_MIN)).ok()?;
    let salt = salt.get(..SALT_MAX).unwrap_or(salt);
    Some(Zeroizing::new(match method {
        ShaCrypt::Sha256 => {
            let hash = Zeroizing::new(sha256_crypt(password, salt, params));
            text_of(&*hash, 10, 10)
        }
        ShaCrypt::Sha512 => {
            let hash = Zeroizing::new(sha512_crypt(password, salt, params));
            text_of(&*hash, 21, 21)
        }
    }))
}

/// Both methods write the bytes in threes taken from three parts of the hash, in an order that rotates; what is left over
/// comes last.
fn text_of(hash: &[u8], groups: usize, part: usize) -> String {
    let byte = |index: usize| u32::from(hash.get(index).copied().unwrap_or_default());
    let mut text = String::with_capacity(groups * 4 + 3);
    let (mut a, mut b, mut c) = (0, part, 2 * part);
    for _ in 0..groups {
        radix64::push_bits(&mut text, byte(a) << 16 | byte(b) << 8 | byte(c), 4);
        // SHA-256 rotates one way, SHA-512 the other.
        (a, b, c) = if hash.len() == 32 { (c + 1, a + 1, b + 1) } else { (b + 1, c + 1, a + 1) };
    }
    if hash.len() == 32 {
        radix64::push_bits(&mut text, byte(31) << 8 | byte(30), 3);
    } else {
        radix64::push_bits(&mut text, byte(63), 2);
    }
    text
}
