//! The digests of a database's entries, kept in memory from one question to the next. What has changed since is what the
//! change log says: no change of an entry costs anything here before a question comes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_engine::EntryId;
use larix_schema::Schema;
use uuid::Uuid;

/// Of a database with higher entry ids nothing is kept: 20 bytes for each id, deleted ones too.
pub const KEPT_IDS_MAX: u64 = 5_000_000;

/// What is kept of one database.
#[derive(Debug, Default)]
pub struct DigestCache(Mutex<Option<Table>>);

impl DigestCache {
    /// Nothing is kept any more: it may have been made of what could not be read.
    pub fn forget(&self) {
        *self.lock() = None;
    }

    /// Two questions about one database come one after the other: the second finds what the first one found out.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Table>> {
        // It is taken out while it is worked on: one that panicked left none.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Under what digests were made: others make them anew.
#[derive(Clone, Debug)]
pub(super) struct DigestBasis {
    pub(super) schema: Arc<Schema>,
    /// Which history the change log tells.
    pub(super) history: Uuid,
    /// Since when the store has lost no commit.
    pub(super) unbroken_since: u64,
}

impl PartialEq for DigestBasis {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.schema, &other.schema)
            && (self.history, self.unbroken_since) == (other.history, other.unbroken_since)
    }
}

/// The digests of all entries, by id.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) basis: DigestBasis,
    /// The last record of the change log that was taken in.
    pub(super) position: u64,
    /// 0: there is no such entry.
    digests: Vec<u128>,
    /// Of the entryUUIDs.
    hashes: Vec<u32>,
}

impl Table {
    pub(super) fn new(basis: DigestBasis, position: u64) -> Self {
        Self { basis, position, digests: Vec::new(), hashes: Vec::new() }
    }

    /// Takes an entry in, or that it is gone. False when there are too many to be kept.
    pub(super) fn set(&mut self, id: EntryId, entry: Option<(u32, u128)>) -> bool {
        if id.0 > KEPT_IDS_MAX {
            return false;
        }
        let at = id.0 as usize;
        if self.digests.len() <= at {
            if entry.is_none() {
                return true;
            }
            self.digests.resize(at + 1, 0);
            self.hashes.resize(at + 1, 0);
        }
        let (hash, digest) = entry.unwrap_or_default();
        if let Some((known, of)) = self.digests.get_mut(at).zip(self.hashes.get_mut(at)) {
            (*known, *of) = (digest, hash);
        }
        true
    }

    /// Hash and digest of each entry.
    pub(super) fn entries(&self) -> impl Iterator<Item = (EntryId, u32, u128)> {
        let rows = self.hashes.iter().zip(&self.digests).enumerate();
        rows.filter(|(_, (_, digest))| **digest != 0)
            .map(|(at, (hash, digest))| (EntryId(at as u64), *hash, *digest))
    }
}
