//! SCRAM (RFC 5802, RFC 7677): the server learns no password, the client learns whether the server knows its verifier,
//! and with a channel binding both know that there is no third party between them.

mod client;
mod message;
mod server;
mod verifier;

pub use client::{Client, ClientBinding};
pub use message::{BindingFlag, ClientFirst};
pub use server::{Server, ServerBinding};
pub use verifier::{Verifier, salt_for};

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroizing;

/// Rounds for a verifier that is made here. RFC 7677 asks for 4,096 at least; clients of Cyrus SASL take up to 65,536.
pub const ITERATIONS: u32 = 10_000;
/// Fewest rounds that a client accepts (RFC 5802 section 5.1), so that a false server gets no cheap guess.
pub const ITERATIONS_MIN: u32 = 4096;
/// Most rounds that a stored verifier or a server may ask for.
pub const ITERATIONS_MAX: u32 = 10_000_000;
/// Bytes of a salt that is made here.
pub const SALT_BYTES: usize = 16;

/// The hash function, which gives the mechanism its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hash {
    Sha1,
    Sha256,
    Sha512,
}

impl Hash {
    /// The weakest first.
    pub const ALL: [Self; 3] = [Self::Sha1, Self::Sha256, Self::Sha512];

    /// `SCRAM-SHA-256`.
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// `SCRAM-SHA-256-PLUS`: the same with a channel binding.
    pub const fn plus_mechanism(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1-PLUS",
            Self::Sha256 => "SCRAM-SHA-256-PLUS",
            Self::Sha512 => "SCRAM-SHA-512-PLUS",
        }
    }

    /// Bytes of its output.
    pub const fn output_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    fn hash(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }

    /// The keyed hash of several parts in a row.
    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        fn run<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
            // HMAC takes keys of every length; an empty result would match nothing.
            let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Zeroizing::default() };
            parts.iter().for_each(|part| mac.update(part));
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            Self::Sha1 => run::<Hmac<Sha1>>(key, parts),
            Self::Sha256 => run::<Hmac<Sha256>>(key, parts),
            Self::Sha512 => run::<Hmac<Sha512>>(key, parts),
        }
    }

    /// SaltedPassword of RFC 5802 section 3: `password` is prepared already.
    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<Vec<u8>> {
        let mut key = Zeroizing::new(vec![0; self.output_len()]);
        match self {
            Self::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut key),
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut key),
            Self::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut key),
        }
        key
    }
}

/// What the client knows: made once from password, salt and rounds, which take long.
#[derive(Clone)]
pub struct ClientKeys {
    client_key: Zeroizing<Vec<u8>>,
    stored_key: Zeroizing<Vec<u8>>,
    server_key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKeys").finish_non_exhaustive()
    }
}

impl ClientKeys {
    /// Derives the keys of a password.
    pub fn derive(hash: Hash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = hash.salted(&crate::prep::prepare_password(password), salt, iterations);
        let client_key = hash.hmac(&salted, &[b"Client Key"]);
        let stored_key = hash.hash(&client_key);
        Self { stored_key, server_key: hash.hmac(&salted, &[b"Server Key"]), client_key }
    }
}

fn xor(a: &[u8], b: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(a.iter().zip(b).map(|(a, b)| a ^ b).collect())
}

#[cfg(test)]
mod tests;
