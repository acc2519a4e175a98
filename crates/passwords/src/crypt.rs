//! `{CRYPT}` and a string of crypt(3): the prefix names the method.

use super::scheme::Scheme;
use super::sha_crypt_text::{self, ShaCrypt};
use super::verification::{Unusable, Verification};
use super::{cost_limits, des_crypt, md5_crypt, yescrypt_text};

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
        return Some(Verification::too_costly(Scheme::Crypt));
    }
    match bcrypt::verify(password, text) {
        Ok(true) => Some(Verification::Match),
        Ok(false) => Some(Verification::Mismatch),
        Err(_) => None,
    }
}
