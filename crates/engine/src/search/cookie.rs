//! Cookies of paged results (RFC 2696). The server keeps nothing: a cookie says where to go on, and is authenticated
//! with the database's secret over the search, the identity and the database that it was given for.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::database::COOKIE_SECRET_LENGTH;
use crate::entry::EntryId;

const VERSION: u8 = 1;
const TAG_LENGTH: usize = 16;
const FIXED_LENGTH: usize = 1 + 4 + 8;

/// Longest sort key in a cookie; sort keys are cut to it.
pub(crate) const SORT_KEY_LIMIT: usize = 512;

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Entries on the pages so far.
    pub count: u32,
    /// Behind this entry, or where the search is sorted behind this match.
    pub last: EntryId,
    /// Its sort key, when the search is sorted.
    pub sort_key: Vec<u8>,
}

/// What a cookie is good for, as a digest.
#[derive(Clone, Debug)]
pub struct Binding(Sha256);

impl Binding {
    pub fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds one part; parts cannot run into each other.
    pub fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

impl Default for Binding {
    fn default() -> Self {
        Self::new()
    }
}

pub fn encode(secret: &[u8; COOKIE_SECRET_LENGTH], binding: &Binding, position: &Position) -> Vec<u8> {
    let mut out = Vec::with_capacity(FIXED_LENGTH + position.sort_key.len() + TAG_LENGTH);
    out.push(VERSION);
    out.extend_from_slice(&position.count.to_be_bytes());
    out.extend_from_slice(&position.last.to_bytes());
    out.extend_from_slice(&position.sort_key);
    let tag = tag(secret, binding, &out);
    out.extend_from_slice(&tag);
    out
}

/// `None` when the cookie was not given for this search.
pub fn decode(secret: &[u8; COOKIE_SECRET_LENGTH], binding: &Binding, cookie: &[u8]) -> Option<Position> {
    let (payload, given) = cookie.split_last_chunk::<TAG_LENGTH>()?;
    if !bool::from(tag(secret, binding, payload).ct_eq(given)) {
        return None;
    }
    let (version, rest) = payload.split_first()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (last, sort_key) = rest.split_first_chunk::<8>()?;
    (*version == VERSION).then(|| Position {
        count: u32::from_be_bytes(*count),
        last: EntryId(u64::from_be_bytes(*last)),
        sort_key: sort_key.to_vec(),
    })
}

fn tag(secret: &[u8; COOKIE_SECRET_LENGTH], binding: &Binding, payload: &[u8]) -> [u8; TAG_LENGTH] {
    let mut out = [0; TAG_LENGTH];
    // HMAC takes keys of any length.
    if let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) {
        mac.update(&binding.digest());
        mac.update(payload);
        out.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(to, from)| *to = from);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_search_reads_a_cookie() {
        let secret = [7; COOKIE_SECRET_LENGTH];
        let binding = |parts: &[&str]| {
            let mut binding = Binding::new();
            parts.iter().for_each(|part| binding.add(part.as_bytes()));
            binding
        };
        let position = Position { count: 100, last: EntryId(12345), sort_key: b"smith\0".to_vec() };
        let cookie = encode(&secret, &binding(&["dc=a", "cn=b"]), &position);
        assert_eq!(decode(&secret, &binding(&["dc=a", "cn=b"]), &cookie), Some(position));
        for (case, secret, parts) in [
            ("another search", [7; COOKIE_SECRET_LENGTH], ["dc=a", "cn=c"]),
            ("parts shifted", [7; COOKIE_SECRET_LENGTH], ["dc=ac", "n=b"]),
            ("another secret", [8; COOKIE_SECRET_LENGTH], ["dc=a", "cn=b"]),
        ] {
            assert_eq!(decode(&secret, &binding(&parts), &cookie), None, "{case}");
        }
        for at in 0..cookie.len() {
            let mut forged = cookie.clone();
            forged[at] ^= 1;
            assert_eq!(decode(&secret, &binding(&["dc=a", "cn=b"]), &forged), None, "byte {at}");
            assert_eq!(decode(&secret, &binding(&["dc=a", "cn=b"]), &cookie[..at]), None, "cut at {at}");
        }
    }
}
