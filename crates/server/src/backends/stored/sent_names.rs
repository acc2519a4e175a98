//! What a consumer was sent of entries that other servers keep: their names and entryUUIDs, so that a delete can be told.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use larix_schema::NormalDn;
use uuid::Uuid;

/// Entries kept in mind for one consumer, some 40 bytes each. With more, a change of one that is not kept ends the search.
pub(super) const SENT_MAX: usize = 1 << 18;

/// Entries kept in mind for all consumers of this process together: 40 MB.
const KEPT_MAX: usize = 1 << 20;

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Names are kept as hashes with a secret of this process.
#[derive(Debug)]
pub(super) struct SentNames {
    hasher: RandomState,
    entries: HashMap<u64, Uuid>,
    /// How many of them are below each name, at any depth.
    below: HashMap<u64, u32>,
    /// Not all that was sent is kept.
    overflowed: bool,
    most: usize,
}

impl SentNames {
    pub(super) fn new(most: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            entries: HashMap::new(),
            below: HashMap::new(),
            overflowed: false,
            most,
        }
    }

    /// Whether all that was sent is kept.
    pub(super) fn are_all(&self) -> bool {
        !self.overflowed
    }

    fn key(&self, dn: &NormalDn) -> u64 {
        self.hasher.hash_one(dn.as_str())
    }

    #[cfg(test)]
    fn get(&self, dn: &NormalDn) -> Option<Uuid> {
        self.entries.get(&self.key(dn)).copied()
    }

    /// Whether entries below this name were sent, as far as is known.
    pub(super) fn has_below(&self, dn: &NormalDn) -> bool {
        self.below.contains_key(&self.key(dn))
    }

    pub(super) fn insert(&mut self, dn: &NormalDn, uuid: Uuid) {
        let key = self.key(dn);
        let is_full = self.entries.len() >= self.most || KEPT.load(Ordering::Relaxed) >= KEPT_MAX;
        if is_full && !self.entries.contains_key(&key) {
            self.overflowed = true;
            return;
        }
        if self.entries.insert(key, uuid).is_none() {
            KEPT.fetch_add(1, Ordering::Relaxed);
            for superior in std::iter::successors(dn.parent(), NormalDn::parent) {
                *self.below.entry(self.key(&superior)).or_default() += 1;
            }
        }
    }

    pub(super) fn remove(&mut self, dn: &NormalDn) -> Option<Uuid> {
        let removed = self.entries.remove(&self.key(dn))?;
        KEPT.fetch_sub(1, Ordering::Relaxed);
        for superior in std::iter::successors(dn.parent(), NormalDn::parent) {
            let superior = self.key(&superior);
            if let Some(count) = self.below.get_mut(&superior) {
                *count -= 1;
                if *count == 0 {
                    self.below.remove(&superior);
                }
            }
        }
        Some(removed)
    }
}

impl Drop for SentNames {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.entries.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_found_by_its_name() {
        let dn = NormalDn::from_normal;
        let mut sent = SentNames::new(3);
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        sent.insert(&dn("ou=a,dc=x"), a);
        sent.insert(&dn("cn=b,ou=a,dc=x"), a);
        sent.insert(&dn("cn=b,ou=a,dc=x"), b);
        assert_eq!((sent.get(&dn("ou=a,dc=x")), sent.get(&dn("cn=b,ou=a,dc=x"))), (Some(a), Some(b)));
        assert!(sent.has_below(&dn("ou=a,dc=x")) && sent.has_below(&dn("dc=x")));
        // Superiors count that were not sent themselves.
        let deep = dn("cn=deep,ou=not,ou=sent,dc=x");
        sent.insert(&deep, a);
        assert!(sent.has_below(&dn("ou=sent,dc=x")) && sent.has_below(&dn("ou=not,ou=sent,dc=x")));
        assert!(!sent.has_below(&deep));
        assert_eq!(sent.remove(&deep), Some(a));
        assert!(!sent.has_below(&dn("ou=sent,dc=x")) && !sent.has_below(&dn("ou=not,ou=sent,dc=x")));
        assert_eq!(sent.remove(&dn("cn=b,ou=a,dc=x")), Some(b));
        assert_eq!(sent.remove(&dn("cn=b,ou=a,dc=x")), None);
        assert!(!sent.has_below(&dn("ou=a,dc=x")) && sent.has_below(&dn("dc=x")));
        sent.insert(&dn("cn=c,ou=a,dc=x"), b);
        sent.insert(&dn("cn=d,ou=a,dc=x"), b);
        assert!(sent.are_all());
        sent.insert(&dn("cn=d,ou=a,dc=x"), a);
        assert!(sent.are_all());
        sent.insert(&dn("cn=e,ou=a,dc=x"), b);
        assert!(!sent.are_all() && sent.get(&dn("cn=e,ou=a,dc=x")).is_none());
        // What all searches keep is counted, and no more once it is full.
        assert_eq!(KEPT.load(Ordering::Relaxed), 3);
        let mut other = SentNames::new(3);
        KEPT.fetch_add(KEPT_MAX, Ordering::Relaxed);
        other.insert(&dn("cn=f,dc=x"), a);
        KEPT.fetch_sub(KEPT_MAX, Ordering::Relaxed);
        assert!(!other.are_all() && other.get(&dn("cn=f,dc=x")).is_none());
        drop((sent, other));
        assert_eq!(KEPT.load(Ordering::Relaxed), 0);
    }
}
