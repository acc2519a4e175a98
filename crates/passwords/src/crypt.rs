//! `{CRYPT}` and a string of crypt(3): the prefix names the method.

use super::scheme::Scheme;
use super::sha_crypt_text::{self, ShaCrypt};
use super::verification::{Unusable, Verification};
use super::{cost_limits, des_crypt, md5_crypt, yescrypt_text};

pub(super) fn verify(stored: &[u8], password: &[u8]) -> Option<Verification> {
    let text = std::str::from_utf8(stored).ok()?.trim_end();
    match method(text) {
        Some("1") => md5_crypt::verify(text, password),
        Some("5") => sha_crypt_text::verify(ShaCrypt::Sha256, text, password),
        Some("6") => sha_crypt_text::verify(ShaCrypt::Sha512, text, password),
        Some("y") => yescrypt_text::verify(text, password),
        Some("2a" | "2b" | "2x" | "2y") => bcrypt(text, password),
        Some(_) => Some(Verification::Unusable(Unusable::UnsupportedCrypt)),
        None => Some(
            des_crypt::verify(text, password).unwrap_or(Verification::Unusable(Unusable::UnsupportedCrypt)),
        ),
    }
}

/// What is wrong with the text, but for the costs of yescrypt.
pub(super) fn unusable(stored: &[u8]) -> Option<Unusable> {
    /// Characters of a value of BSDi.
    const EXTENDED_LEN: usize = 20;
    /// Characters of salt and hash, which bcrypt writes in one piece.
    const BCRYPT_LEN: usize = 53;
    let malformed = Some(Unusable::Malformed(Scheme::Crypt));
    let Ok(text) = std::str::from_utf8(stored) else { return malformed };
    let text = text.trim_end();
    let hash_len = match method(text) {
        Some("1") => 22,
        Some("5" | "y") => 43,
        Some("6") => 86,
        Some("2a" | "2b" | "2x" | "2y") => BCRYPT_LEN,
        Some(_) => return Some(Unusable::UnsupportedCrypt),
        // Some of these take long.
        None if text.starts_with('_') && text.len() == EXTENDED_LEN => return None,
        None if des_crypt::verify(text, b"").is_some() => return None,
        None => return Some(Unusable::UnsupportedCrypt),
    };
    let hash = text.rsplit('$').next().unwrap_or_default();
    let rounds = text.split_once("$rounds=").and_then(|(_, rest)| rest.split('$').next());
    let is_too_costly = match rounds {
        Some(rounds) => rounds.parse().is_ok_and(|rounds: u32| rounds > cost_limits::SHA_CRYPT_ROUNDS_MAX),
        None => {
            hash_len == BCRYPT_LEN
                && bcrypt_cost(text).is_some_and(|cost| cost > cost_limits::BCRYPT_COST_MAX)
        }
    };
    match is_too_costly {
        true => Some(Unusable::TooCostly(Scheme::Crypt)),
        false if hash.len() == hash_len => None,
        false => malformed,
    }
}

/// The name between the first two `$`.
fn method(text: &str) -> Option<&str> {
    text.strip_prefix('$').and_then(|rest| rest.split('$').next())
}

/// The binary logarithm of bcrypt's iterations.
fn bcrypt_cost(text: &str) -> Option<u32> {
    text.get(4..6)?.parse().ok()
}

fn bcrypt(text: &str, password: &[u8]) -> Option<Verification> {
    if bcrypt_cost(text)? > cost_limits::BCRYPT_COST_MAX {
        return Some(Verification::too_costly(Scheme::Crypt));
    }
    match bcrypt::verify(password, text) {
        Ok(true) => Some(Verification::Match),
        Ok(false) => Some(Verification::Mismatch),
        Err(_) => None,
    }
}
