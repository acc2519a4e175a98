//! `{SHA}`, `{SSHA}` and their kin: base64 of the hash of password and salt, followed by the salt.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha1::Sha1;
use sha2::digest::FixedOutputReset;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::scheme::Algorithm;
use super::verification::Verification;

/// `None` if the stored text is not of this form.
pub(super) fn verify(
    algorithm: Algorithm,
    salted: bool,
    stored: &[u8],
    password: &[u8],
) -> Option<Verification> {
    let decoded = decoded(stored)?;
    let (expected, salt) = decoded.split_at_checked(algorithm.output_len())?;
    if !salted && !salt.is_empty() {
        return None;
    }
    let computed = hash(algorithm, &[password, salt]);
    Some(Verification::of(computed.ct_eq(expected)))
}

/// Base64, in which white space means nothing wherever it stands, as in OpenLDAP: values come with line breaks, too.
pub(super) fn decoded(stored: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let written = stored.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let written = Zeroizing::new(written.collect::<Vec<u8>>());
    Some(Zeroizing::new(STANDARD.decode(&*written).ok()?))
}

pub(super) fn encode(algorithm: Algorithm, salt: &[u8], password: &[u8]) -> String {
    let mut bytes = hash(algorithm, &[password, salt]);
    bytes.extend_from_slice(salt);
    STANDARD.encode(&*bytes)
}

fn hash(algorithm: Algorithm, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    fn run<D: Digest + FixedOutputReset>(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let mut hasher = D::new();
        for part in parts {
            Digest::update(&mut hasher, part);
        }
        // Where it stands: what is moved leaves a copy of its last block, which has the password, on the stack.
        Zeroizing::new(Digest::finalize_reset(&mut hasher).to_vec())
    }
    match algorithm {
        Algorithm::Md5 => run::<Md5>(parts),
        Algorithm::Sha1 => run::<Sha1>(parts),
        Algorithm::Sha256 => run::<Sha256>(parts),
        Algorithm::Sha384 => run::<Sha384>(parts),
        Algorithm::Sha512 => run::<Sha512>(parts),
    }
}
