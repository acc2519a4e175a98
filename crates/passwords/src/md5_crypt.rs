//! `$1$<salt>$<hash>`: the MD5-based method of crypt(3), which Apache has under another name, too. For old values only;
//! new ones are never written with it unless asked.

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::radix64;
use super::verification::Verification;

/// What the method is called in its values, and where it hashes.
const MAGIC: &str = "$1$";
const ROUNDS: u32 = 1_000;
/// Bytes; what is longer is cut.
const SALT_MAX: usize = 8;

pub(super) fn verify(text: &str, password: &[u8]) -> Option<Verification> {
    let (salt, expected) = text.strip_prefix(MAGIC)?.rsplit_once('$')?;
    let computed = hash_text(salt.as_bytes(), password);
    Some(Verification::of(computed.as_bytes().ct_eq(expected.as_bytes())))
}

pub(super) fn encode(salt: &str, password: &[u8]) -> String {
    format!("{MAGIC}{salt}${}", &*hash_text(salt.as_bytes(), password))
}

fn hash_text(salt: &[u8], password: &[u8]) -> Zeroizing<String> {
    let salt = salt.get(..SALT_MAX).unwrap_or(salt);
    let hash = compute(MAGIC.as_bytes(), salt, password);
    let byte = |index: usize| u32::from(hash.get(index).copied().unwrap_or_default());
    let mut text = Zeroizing::new(String::with_capacity(22));
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        radix64::push_bits(&mut text, byte(a) << 16 | byte(b) << 8 | byte(c), 4);
    }
    radix64::push_bits(&mut text, byte(11), 2);
    text
}

/// The hash itself, with a salt of any length.
pub(super) fn compute(magic: &[u8], salt: &[u8], password: &[u8]) -> Zeroizing<[u8; 16]> {
    let mut hash = Zeroizing::new(start(magic, salt, password));
    for round in 0..ROUNDS {
        let mut hasher = Md5::new();
        let odd = round % 2 == 1;
        hasher.update(if odd { password } else { &hash[..] });
        if round % 3 != 0 {
            hasher.update(salt);
        }
        if round % 7 != 0 {
            hasher.update(password);
        }
        hasher.update(if odd { &hash[..] } else { password });
        *hash = hasher.finalize().into();
    }
    hash
}

fn start(magic: &[u8], salt: &[u8], password: &[u8]) -> [u8; 16] {
    let inner = Zeroizing::new(<[u8; 16]>::from(
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize(),
    ));
    let mut hasher = Md5::new();
    hasher.update(password);
    hasher.update(magic);
    hasher.update(salt);
    for chunk in password.chunks(inner.len()) {
        hasher.update(inner.get(..chunk.len()).unwrap_or_default());
    }
    // One byte a bit of the length: NUL for ones, the first character of the password for zeros.
    let mut bits = password.len();
    while bits > 0 {
        hasher.update(if bits & 1 == 1 { &[0][..] } else { password.get(..1).unwrap_or_default() });
        bits >>= 1;
    }
    hasher.finalize().into()
}
