//! A large set of entryUUIDs: those that a provider said are present.

use uuid::Uuid;

/// A set of entryUUIDs, 16 bytes each: made for millions. Looking one up takes a binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UuidSet {
    /// Ascending without repetition up to `sorted`; behind it as they came.
    ids: Vec<[u8; 16]>,
    sorted: usize,
}

/// How many may wait to be sorted, at least.
const UNSORTED_MIN: usize = 4_096;

impl UuidSet {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, uuid: Uuid) {
        self.ids.push(uuid.into_bytes());
        // A refresh may name an entry again and again: what repeats must not grow the set without bound.
        if self.ids.len() - self.sorted > UNSORTED_MIN.max(self.sorted) {
            self.settle();
        }
    }

    /// Sorts what was inserted: before anything is looked up.
    pub fn settle(&mut self) {
        self.ids.sort_unstable();
        self.ids.dedup();
        self.sorted = self.ids.len();
    }

    /// Whether it is in the set. What was inserted since the last [`Self::settle`] is looked through one by one.
    pub fn contains(&self, uuid: &Uuid) -> bool {
        let (sorted, rest) = self.ids.split_at_checked(self.sorted).unwrap_or((&self.ids, &[]));
        sorted.binary_search(uuid.as_bytes()).is_ok() || rest.contains(uuid.as_bytes())
    }

    /// How many; exact after [`Self::settle`].
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub fn clear(&mut self) {
        self.ids.clear();
        self.sorted = 0;
    }
}

impl FromIterator<Uuid> for UuidSet {
    fn from_iter<I: IntoIterator<Item = Uuid>>(uuids: I) -> Self {
        let mut set = Self::new();
        uuids.into_iter().for_each(|uuid| set.insert(uuid));
        set.settle();
        set
    }
}

impl Extend<Uuid> for UuidSet {
    fn extend<I: IntoIterator<Item = Uuid>>(&mut self, uuids: I) {
        uuids.into_iter().for_each(|uuid| self.insert(uuid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let mut set = UuidSet::new();
        assert!(set.is_empty());
        for number in (0..20_000u128).rev() {
            set.insert(Uuid::from_u128(number % 7_000 * 3));
        }
        assert!(set.contains(&Uuid::from_u128(0)) && set.contains(&Uuid::from_u128(20_997)));
        set.settle();
        assert_eq!(set.len(), 7_000);
        assert!((0..7_000).all(|n| set.contains(&Uuid::from_u128(n * 3))));
        assert!(!set.contains(&Uuid::from_u128(4)));
        set.clear();
        assert!(set.is_empty() && !set.contains(&Uuid::from_u128(3)));
    }
}
