//! What a server stores instead of a password (RFC 5802 section 3, RFC 5803).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{ClientKeys, Hash, ITERATIONS_MAX, SALT_BYTES};

/// Longest salt that is taken, in bytes.
const SALT_MAX: usize = 256;

/// Salt, rounds and the two keys of one password under one hash function.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub hash: Hash,
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub(super) stored_key: Zeroizing<Vec<u8>>,
    pub(super) server_key: Zeroizing<Vec<u8>>,
}

/// Keys stay out of logs.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("hash", &self.hash)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// Makes a verifier of a password; takes as long as `iterations` rounds do.
    pub fn derive(hash: Hash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let keys = ClientKeys::derive(hash, password, salt, iterations);
        Self {
            hash,
            iterations,
            salt: salt.to_vec(),
            stored_key: keys.stored_key,
            server_key: keys.server_key,
        }
    }

    /// A verifier that no password fits, for an unknown name: the same name gets the same salt each time, as a
    /// real user does. `secret` is the server's own.
    pub fn of_nobody(hash: Hash, secret: &[u8], name: &str, iterations: u32) -> Self {
        Self {
            hash,
            iterations,
            salt: salt_for(hash, secret, name),
            stored_key: hash.hmac(secret, &[b"stored key of nobody", name.as_bytes()]),
            server_key: hash.hmac(secret, &[b"server key of nobody", name.as_bytes()]),
        }
    }

    /// Reads `iterations:salt$StoredKey:ServerKey` (RFC 5803 section 2), all but the first in base64. Dovecot's form
    /// with commas between the four is read as well. `None` if it is neither, or asks for too many rounds.
    pub fn parse(hash: Hash, text: &str) -> Option<Self> {
        let separator = |c| matches!(c, ':' | '$' | ',');
        let mut parts = text.trim_end().split(separator);
        let (iterations, salt) = (parts.next()?.parse().ok()?, parts.next()?);
        let (stored_key, server_key) = (parts.next()?, parts.next()?);
        let salt = STANDARD.decode(salt).ok()?;
        let stored_key = Zeroizing::new(STANDARD.decode(stored_key).ok()?);
        let server_key = Zeroizing::new(STANDARD.decode(server_key).ok()?);
        let fits = parts.next().is_none()
            && (1..=ITERATIONS_MAX).contains(&iterations)
            && (1..=SALT_MAX).contains(&salt.len())
            && [&stored_key, &server_key].iter().all(|key| key.len() == hash.output_len());
        fits.then_some(Self { hash, iterations, salt, stored_key, server_key })
    }

    /// The form that [`parse`](Self::parse) reads, as RFC 5803 writes it.
    pub fn to_text(&self) -> String {
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        format!(
            "{}:{}${}:{}",
            self.iterations,
            encode(&self.salt),
            encode(&self.stored_key),
            encode(&self.server_key)
        )
    }

    /// Whether this is the verifier of the password: for binds that bring one. Takes as long as its rounds do.
    pub fn is_of(&self, password: &[u8]) -> bool {
        let keys = ClientKeys::derive(self.hash, password, &self.salt, self.iterations);
        bool::from(keys.stored_key.ct_eq(&self.stored_key))
    }
}

/// The salt for a name whose verifier is not stored: made of the server's secret, so that it is always the same.
pub fn salt_for(hash: Hash, secret: &[u8], name: &str) -> Vec<u8> {
    let parts: [&[u8]; 3] = [b"salt", hash.mechanism().as_bytes(), name.as_bytes()];
    let mut salt = Hash::Sha256.hmac(secret, &parts).to_vec();
    salt.truncate(SALT_BYTES);
    salt
}
