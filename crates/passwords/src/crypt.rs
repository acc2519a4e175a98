//! `{CRYPT}` and a string of crypt(3): the method is told by its prefix.

use super::scheme::Scheme;
use super::sha_crypt_text::{self, ShaCrypt};
use super::{Unusable, Verification, cost_limits, des_crypt, md5_crypt, too_costly, yescrypt_text};

/// The 64 characters of crypt(3), six bits each.
pub(super) const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Appends the lowest `6 * characters` bits of `bits`, least significant first.
pub(super) fn push_bits(out: &mut String, bits: u32, characters: usize) {
    for place in 0..characters {
        let six = (bits >> (6 * place)) & 0x3f;
        out.push(ALPHABET.get(six as usize).copied().map_or('.', char::from));
    }
}

pub(super) fn verify(stored: &[u8], password: &[u8]) -> Option<Verification> {
    let text = std::str::from_utf8(stored).ok()?.trim_end();
    let method = text.strip_prefix('$').and_then(|rest| rest.split('$').next());
    match method {
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

fn bcrypt(text: &str, password: &[u8]) -> Option<Verification> {
    let cost: u32 = text.get(4..6)?.parse().ok()?;
    if cost > cost_limits::BCRYPT_COST_MAX {
        return Some(too_costly(Scheme::Crypt));
    }
    match bcrypt::verify(password, text) {
        Ok(true) => Some(Verification::Match),
        Ok(false) => Some(Verification::Mismatch),
        Err(_) => None,
    }
}
