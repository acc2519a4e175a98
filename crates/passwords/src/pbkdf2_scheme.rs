//! `{PBKDF2...}<rounds>$<salt>$<key>`, both in base64 with `.` for `+` and without padding.

use base64::alphabet::Alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::cost_limits;
use super::scheme::{Algorithm, Scheme};
use super::verification::{Unusable, Verification};

/// Written as base64 with `+`; `.` is put in afterwards.
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD_ALPHABET, CONFIG);
const STANDARD_ALPHABET: Alphabet = alphabet::STANDARD;
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_encode_padding(false)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);

pub(super) fn verify(algorithm: Algorithm, stored: &[u8], password: &[u8]) -> Option<Verification> {
    let Parts { rounds, salt, expected } = Parts::read(algorithm, stored)?;
    if rounds > cost_limits::PBKDF2_ROUNDS_MAX {
        return Some(Verification::too_costly(Scheme::Pbkdf2(algorithm)));
    }
    let computed = derive(algorithm, &salt, rounds, password)?;
    Some(Verification::of(computed.ct_eq(&expected)))
}

/// What is wrong with the text.
pub(super) fn unusable(algorithm: Algorithm, stored: &[u8]) -> Option<Unusable> {
    let scheme = Scheme::Pbkdf2(algorithm);
    match Parts::read(algorithm, stored) {
        None => Some(Unusable::Malformed(scheme)),
        Some(parts) if parts.rounds > cost_limits::PBKDF2_ROUNDS_MAX => Some(Unusable::TooCostly(scheme)),
        Some(_) => None,
    }
}

struct Parts {
    rounds: u32,
    salt: Vec<u8>,
    expected: Zeroizing<Vec<u8>>,
}

impl Parts {
    fn read(algorithm: Algorithm, stored: &[u8]) -> Option<Self> {
        let stored = std::str::from_utf8(stored).ok()?.trim_end();
        let mut parts = stored.splitn(3, '$');
        let rounds: u32 = parts.next()?.parse().ok().filter(|rounds| *rounds > 0)?;
        let salt = decode(parts.next()?)?;
        let expected = Zeroizing::new(decode(parts.next()?)?);
        (expected.len() == algorithm.output_len()).then_some(Self { rounds, salt, expected })
    }
}

/// `None` for a hash function the scheme does not have.
pub(super) fn encode(algorithm: Algorithm, salt: &[u8], rounds: u32, password: &[u8]) -> Option<String> {
    let key = derive(algorithm, salt, rounds, password)?;
    let text = |bytes: &[u8]| BASE64.encode(bytes).replace('+', ".");
    Some(format!("{rounds}${}${}", text(salt), text(&key)))
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.replace('.', "+")).ok()
}

fn derive(algorithm: Algorithm, salt: &[u8], rounds: u32, password: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut key = Zeroizing::new(vec![0; algorithm.output_len()]);
    match algorithm {
        Algorithm::Sha1 => pbkdf2_hmac::<Sha1>(password, salt, rounds, &mut key),
        Algorithm::Sha256 => pbkdf2_hmac::<Sha256>(password, salt, rounds, &mut key),
        Algorithm::Sha512 => pbkdf2_hmac::<Sha512>(password, salt, rounds, &mut key),
        Algorithm::Md5 | Algorithm::Sha384 => return None,
    }
    Some(key)
}
