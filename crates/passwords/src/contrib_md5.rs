//! `{APR1}`, `{BSDMD5}` and `{NS-MTA-MD5}`: what OpenLDAP's contributed modules pw-apr1 and pw-netscape store.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::verification::Verification;
use super::{digest, md5_crypt};

/// What `{APR1}` hashes beside password and salt.
pub(super) const APR1: &[u8] = b"$apr1$";
/// What `{BSDMD5}` hashes: that of crypt(3).
pub(super) const BSD: &[u8] = b"$1$";

/// Bytes of an MD5 hash.
const HASH_LEN: usize = 16;
/// Characters of the hash of `{NS-MTA-MD5}`, and of the salt behind it.
const NETSCAPE_PART_LEN: usize = 32;

/// Base64 of the hash of MD5-crypt and its salt. `None` if the stored text is not of this form.
pub(super) fn verify(magic: &[u8], stored: &[u8], password: &[u8]) -> Option<Verification> {
    let decoded = digest::decoded(stored)?;
    let (expected, salt) = decoded.split_at_checked(HASH_LEN).filter(|(_, salt)| !salt.is_empty())?;
    let computed = md5_crypt::compute(magic, salt, password);
    Some(Verification::of(computed[..].ct_eq(expected)))
}

pub(super) fn encode(magic: &[u8], salt: &[u8], password: &[u8]) -> String {
    let mut bytes = Zeroizing::new(md5_crypt::compute(magic, salt, password).to_vec());
    bytes.extend_from_slice(salt);
    STANDARD.encode(&*bytes)
}

/// The hash and its salt, in hexadecimal digits. `None` if the stored text has another length.
pub(super) fn verify_netscape(stored: &[u8], password: &[u8]) -> Option<Verification> {
    let (expected, salt) = stored.split_at_checked(NETSCAPE_PART_LEN)?;
    if salt.len() != NETSCAPE_PART_LEN {
        return None;
    }
    Some(Verification::of(netscape(salt, password).as_bytes().ct_eq(expected)))
}

pub(super) fn encode_netscape(salt: &[u8; HASH_LEN], password: &[u8]) -> String {
    let salt = digits(salt);
    format!("{}{}", &*netscape(salt.as_bytes(), password), &*salt)
}

fn netscape(salt: &[u8], password: &[u8]) -> Zeroizing<String> {
    let mut hasher = Md5::new();
    for part in [salt, &[0x59][..], password, &[0xf7][..], salt] {
        hasher.update(part);
    }
    digits(&hasher.finalize())
}

fn digits(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(NETSCAPE_PART_LEN));
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
