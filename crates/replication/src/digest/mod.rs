//! Digests: proof that two replicas hold the same.
//!
//! Every entry has a digest over its entryUUID, its superior's entryUUID, its RDN, its entryCSN and its replicated
//! attributes: not over its DN, so that moving a subtree changes the digest of one entry. What each server derives or
//! keeps for itself is left out ([`is_local`]). The order of attributes and of values has no part in it.
//!
//! Entries are identified by the hash of their entryUUID, which is spread evenly whatever made the UUIDs. A *range* is
//! all entries whose hash begins with some bits; its digest is the sum of its entries' digests, so that entries may come
//! in any order. To compare two servers, one asks both for the digests of 4,096 ranges, then for what is in those that
//! differ: two questions find one difference among a million entries ([`Difference`]).
//!
//! The question is an extended operation ([`OID`]) that needs the `manage` privilege on the suffix entry.

mod cache;
mod difference;
mod gather;
mod scan;
#[cfg(test)]
mod tests;
mod wire;

use larix_engine::csn::Csn;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use cache::{DigestCache, KEPT_IDS_MAX};
pub use difference::{Difference, DifferentEntry, Question};
pub use gather::DigestBuilder;
pub use scan::{ScanError, Scanner};
pub use wire::WireError;

/// The extended operation that asks for digests.
pub const OID: &str = "2.25.87610412117718157885716886434399491440.2.1";

/// Ranges that one request may ask for.
pub(crate) const RANGES_MAX: usize = 256;
/// Digests of parts of ranges that one request may ask for, and entries that its answer lists.
pub(crate) const CELLS_MAX: usize = 65_536;
/// A range with so many entries, or fewer, is answered by listing them.
pub(crate) const LIST_MAX: usize = 256;
/// Bits of an entryUUID's hash that tell entries apart.
pub const HASH_BITS: u32 = 32;

/// Where an entry is among the ranges.
#[must_use]
pub(crate) fn hash_of(uuid: &Uuid) -> u32 {
    let digest = Sha256::digest(uuid.as_bytes());
    digest.iter().take(4).fold(0, |hash, byte| hash << 8 | u32::from(*byte))
}

/// The entries whose hash begins with these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The bits, from the highest on; the rest is zero.
    pub prefix: u32,
    /// How many bits count: 0 (all entries) to [`HASH_BITS`].
    pub bits: u32,
}

impl Range {
    pub const ALL: Self = Self { prefix: 0, bits: 0 };

    #[must_use]
    pub fn holds(self, hash: u32) -> bool {
        self.bits == 0 || (hash ^ self.prefix) >> (HASH_BITS - self.bits) == 0
    }

    /// Which of its `1 << split` parts a hash is in.
    #[must_use]
    pub fn part_of(self, hash: u32, split: u32) -> usize {
        if split == 0 {
            return 0;
        }
        let below = u64::from(hash) & ((1u64 << (HASH_BITS - self.bits)) - 1);
        (below >> (HASH_BITS - self.bits - split)) as usize
    }

    /// One of its `1 << split` parts.
    #[must_use]
    pub fn part(self, number: usize, split: u32) -> Self {
        let bits = self.bits + split;
        let below = if bits == 0 { 0 } else { (number as u64) << (HASH_BITS - bits) };
        Self { prefix: self.prefix | below as u32, bits }
    }
}

/// What is asked of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestRequest {
    /// The entry at and below which entries are compared: a suffix, or below one.
    pub base: String,
    /// Attributes that are left out beside those that never count: what a fractional replica does not have.
    pub without: Vec<String>,
    /// Each range, and by how many bits it is split where it is not listed.
    pub ranges: Vec<(Range, u32)>,
}

impl DigestRequest {
    /// # Errors
    /// Says which limit is exceeded.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.ranges.is_empty() || self.ranges.len() > RANGES_MAX {
            return Err("1 to 256 ranges can be asked for at once");
        }
        if self.ranges.iter().any(|(range, split)| range.bits.saturating_add(*split) > HASH_BITS) {
            return Err("a range is split to 32 bits at most");
        }
        let cells = self.ranges.iter().try_fold(0usize, |sum, (_, split)| {
            1usize.checked_shl(*split).and_then(|cells| sum.checked_add(cells))
        });
        match cells {
            Some(cells) if cells <= CELLS_MAX => Ok(()),
            _ => Err("65536 digests can be asked for at once"),
        }
    }
}

/// The sum of the digests of some entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub entries: u64,
    pub digest: u128,
}

impl Cell {
    pub fn add(&mut self, digest: u128) {
        self.entries += 1;
        self.digest = self.digest.wrapping_add(digest);
    }
}

/// One entry of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub uuid: Uuid,
    pub csn: Option<Csn>,
    pub digest: u128,
}

/// What is in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Few entries, by entryUUID.
    Listed(Vec<Row>),
    /// Its parts, as many as were asked for.
    Split(Vec<Cell>),
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestResponse {
    /// Entries at and below the base.
    pub entries: u64,
    /// contextCSN before the first entry was read and after the last.
    pub context: [Vec<Csn>; 2],
    /// One for each range, in their order.
    pub ranges: Vec<Content>,
}

/// Whether each server derives or keeps an attribute by itself, whatever its overlays are: it has no part in digests. Neither have
/// attributes of the server's own (`dSAOperation`), and those of overlays.
#[must_use]
pub fn is_local(name: &str) -> bool {
    const LOCAL: &[&str] = &[
        "authTimestamp",
        "contextCSN",
        "dynamicSubtrees",
        "entryCSN",
        "entryDN",
        "entryExpireTimestamp",
        "entryTtl",
        "entryUUID",
        "hasSubordinates",
        "minCSN",
        "numSubordinates",
        "pwdLastSuccess",
        "subschemaSubentry",
        "syncreplCookie",
    ];
    LOCAL.iter().any(|local| local.eq_ignore_ascii_case(name))
}

/// The digest of one entry, from its parts.
#[derive(Debug)]
pub struct EntryDigest {
    head: Sha256,
    /// The sum of the values' digests: their order is none of our business, and a group's members fill no memory.
    values: [u64; 4],
}

impl EntryDigest {
    /// `superior`: the entryUUID of the entry above; for a suffix entry, none.
    #[must_use]
    pub fn new(uuid: &Uuid, superior: Option<&Uuid>, normal_rdn: &[u8], csn: Option<&Csn>) -> Self {
        let mut head = Sha256::new();
        head.update(uuid.as_bytes());
        head.update(superior.map_or([0; 16], |superior| *superior.as_bytes()));
        part(&mut head, normal_rdn);
        part(&mut head, csn.map(Csn::text).unwrap_or_default().as_bytes());
        Self { head, values: [0; 4] }
    }

    /// Adds a value; `description` in lower case.
    pub fn value(&mut self, description: &str, value: &[u8]) {
        let mut hash = Sha256::new();
        part(&mut hash, description.as_bytes());
        part(&mut hash, value);
        for (sum, word) in self.values.iter_mut().zip(words(&hash.finalize())) {
            *sum = sum.wrapping_add(word);
        }
    }

    #[must_use]
    pub fn finish(mut self) -> u128 {
        for sum in self.values {
            self.head.update(sum.to_be_bytes());
        }
        let [high, low, ..] = words(&self.head.finalize());
        u128::from(high) << 64 | u128::from(low)
    }
}

fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

fn words(digest: &[u8]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.chunks(8)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}
