//! `{ARGON2}` and a PHC string: `$argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>`.

use argon2::{Algorithm, Argon2, MIN_SALT_LEN, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::cost_limits;
use super::scheme::Scheme;
use super::verification::{Unusable, Verification};

/// The cost of an Argon2 hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// KiB
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// 19 MiB, two passes, one lane: OWASP's least for Argon2id.
    fn default() -> Self {
        Self { memory_kib: 19 * 1024, passes: 2, lanes: 1 }
    }
}

/// Bytes.
const HASH_LEN: usize = 32;
/// Bytes. Longer outputs than any server writes are refused rather than computed.
const HASH_MAX: usize = 128;

pub(super) fn verify(stored: &[u8], password: &[u8]) -> Option<Verification> {
    let phc = Phc::parse(stored)?;
    let cost = &phc.cost;
    if phc.is_too_costly() {
        return Some(Verification::too_costly(Scheme::Argon2));
    }
    let computed = derive(phc.algorithm, phc.version, cost, &phc.salt, phc.hash.len(), password)?;
    Some(Verification::of(computed.ct_eq(&phc.hash)))
}

/// What is wrong with the text.
pub(super) fn unusable(stored: &[u8]) -> Option<Unusable> {
    let malformed = Some(Unusable::Malformed(Scheme::Argon2));
    let Some(phc) = Phc::parse(stored) else { return malformed };
    if phc.is_too_costly() {
        return Some(Unusable::TooCostly(Scheme::Argon2));
    }
    let Argon2Cost { memory_kib, passes, lanes } = phc.cost;
    let is_possible = Params::new(memory_kib, passes, lanes, Some(phc.hash.len())).is_ok();
    if is_possible && phc.salt.len() >= MIN_SALT_LEN { None } else { malformed }
}

/// `None` if the costs are outside of what Argon2 allows.
pub(super) fn encode(cost: &Argon2Cost, salt: &[u8], password: &[u8]) -> Option<String> {
    let hash = derive(Algorithm::Argon2id, Version::V0x13, cost, salt, HASH_LEN, password)?;
    Some(format!(
        "$argon2id$v=19$m={},t={},p={}${}${}",
        cost.memory_kib,
        cost.passes,
        cost.lanes,
        STANDARD_NO_PAD.encode(salt),
        STANDARD_NO_PAD.encode(&*hash)
    ))
}

fn derive(
    algorithm: Algorithm,
    version: Version,
    cost: &Argon2Cost,
    salt: &[u8],
    len: usize,
    password: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(len)).ok()?;
    let mut hash = Zeroizing::new(vec![0; len]);
    Argon2::new(algorithm, version, params).hash_password_into(password, salt, &mut hash).ok()?;
    Some(hash)
}

struct Phc {
    algorithm: Algorithm,
    version: Version,
    cost: Argon2Cost,
    salt: Vec<u8>,
    hash: Zeroizing<Vec<u8>>,
}

impl Phc {
    fn is_too_costly(&self) -> bool {
        let cost = &self.cost;
        cost.memory_kib > cost_limits::ARGON2_MEMORY_MAX
            || cost.passes > cost_limits::ARGON2_PASSES_MAX
            || cost.lanes > cost_limits::ARGON2_LANES_MAX
    }

    fn parse(stored: &[u8]) -> Option<Self> {
        // OpenLDAP's module, when built with libargon2, stores the string's terminating NUL.
        let text = std::str::from_utf8(stored).ok()?.trim_end_matches(['\0', ' ', '\n']);
        let mut parts = text.strip_prefix('$')?.split('$').peekable();
        let algorithm = match parts.next()? {
            "argon2d" => Algorithm::Argon2d,
            "argon2i" => Algorithm::Argon2i,
            "argon2id" => Algorithm::Argon2id,
            _ => return None,
        };
        // A string without a version is of the first one, 16.
        let version = match parts.next_if(|part| part.starts_with("v=")) {
            None | Some("v=16") => Version::V0x10,
            Some("v=19") => Version::V0x13,
            Some(_) => return None,
        };
        let mut cost = Argon2Cost { memory_kib: 0, passes: 0, lanes: 0 };
        for pair in parts.next()?.split(',') {
            let (name, value) = pair.split_once('=')?;
            let value = value.parse().ok()?;
            match name {
                "m" => cost.memory_kib = value,
                "t" => cost.passes = value,
                "p" => cost.lanes = value,
                _ => return None,
            }
        }
        let salt = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
        let hash = Zeroizing::new(STANDARD_NO_PAD.decode(parts.next()?).ok()?);
        if parts.next().is_some() || hash.len() > HASH_MAX {
            return None;
        }
        Some(Self { algorithm, version, cost, salt, hash })
    }
}
