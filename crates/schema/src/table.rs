//! The two persistent containers of a schema: cloning them is cheap whatever they hold, and adding to a clone copies
//! only the few small blocks that it touches.

use std::sync::Arc;

const CHUNK: usize = 64;
const FAN_OUT: usize = 64;

/// An append-only vector of shared items, in chunks.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Arc<Vec<Arc<T>>>>,
    len: usize,
}

impl<T> Clone for Chunks<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Arc<T>> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    pub(crate) fn push(&mut self, item: Arc<T>) {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        if let Some(last) = self.chunks.last_mut() {
            Arc::make_mut(last).push(item);
            self.len += 1;
        }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Arc<T>> {
        Arc::make_mut(self.chunks.get_mut(index / CHUNK)?).get_mut(index % CHUNK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// How many items sit in blocks that `self` does not share with `other`: the work that made the difference.
    #[cfg(test)]
    pub(crate) fn unshared(&self, other: &Self) -> usize {
        let same = |i: usize| match (self.chunks.get(i), other.chunks.get(i)) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        (0..self.chunks.len()).filter(|&i| !same(i)).map(|i| self.chunks[i].len()).sum()
    }
}

type Leaf<V> = Vec<Slot<V>>;
type Middle<V> = Vec<Option<Arc<Leaf<V>>>>;

/// The hash stands beside the name so that other names are passed over without being looked at.
#[derive(Clone, Debug)]
struct Slot<V> {
    hash: u64,
    name: Box<str>,
    value: V,
}

impl<V> Slot<V> {
    fn is(&self, hash: u64, name: &str) -> bool {
        self.hash == hash && self.name.eq_ignore_ascii_case(name)
    }
}

/// A map from names, in any case of ASCII letters, to small values: a hash trie of fixed depth.
#[derive(Debug)]
pub(crate) struct NameTable<V> {
    root: Vec<Option<Arc<Middle<V>>>>,
}

impl<V: Clone> Clone for NameTable<V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone() }
    }
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        Self { root: Vec::new() }
    }
}

impl<V: Clone> NameTable<V> {
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        let hash = folded_hash(name.as_bytes());
        let (i, j) = places(hash);
        let leaf = self.root.get(i)?.as_ref()?.get(j)?.as_ref()?;
        leaf.iter().find(|slot| slot.is(hash, name)).map(|slot| &slot.value)
    }

    /// Sets the value of `name`, replacing an earlier one.
    pub(crate) fn insert(&mut self, name: &str, value: V) {
        let hash = folded_hash(name.as_bytes());
        let (i, j) = places(hash);
        if self.root.is_empty() {
            self.root.resize(FAN_OUT, None);
        }
        let Some(slot) = self.root.get_mut(i) else { return };
        let middle = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(vec![None; FAN_OUT])));
        let Some(slot) = middle.get_mut(j) else { return };
        let leaf = Arc::make_mut(slot.get_or_insert_with(Arc::default));
        match leaf.iter_mut().find(|slot| slot.is(hash, name)) {
            Some(slot) => slot.value = value,
            None => leaf.push(Slot { hash, name: name.into(), value }),
        }
    }

    /// How many names sit in blocks that `self` does not share with `other`.
    #[cfg(test)]
    pub(crate) fn unshared(&self, other: &Self) -> usize {
        let mut count = 0;
        for (i, middle) in self.root.iter().enumerate() {
            let Some(middle) = middle else { continue };
            let theirs = other.root.get(i).and_then(Option::as_ref);
            if theirs.is_some_and(|theirs| Arc::ptr_eq(theirs, middle)) {
                continue;
            }
            for (j, leaf) in middle.iter().enumerate() {
                let Some(leaf) = leaf else { continue };
                let other_leaf = theirs.and_then(|t| t.get(j)).and_then(Option::as_ref);
                if !other_leaf.is_some_and(|o| Arc::ptr_eq(o, leaf)) {
                    count += leaf.len();
                }
            }
        }
        count
    }
}

fn places(hash: u64) -> (usize, usize) {
    ((hash as usize) % FAN_OUT, ((hash >> 16) as usize) % FAN_OUT)
}

/// A hash that takes eight bytes at a time and passes over the bit that tells the case of ASCII letters.
fn folded_hash(name: &[u8]) -> u64 {
    const CASE: u64 = 0x2020_2020_2020_2020;
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = name.len() as u64;
    let mut mix = |word: u64| {
        hash = (hash.rotate_left(23) ^ (word | CASE)).wrapping_mul(FACTOR);
    };
    let (words, tail) = name.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    if !tail.is_empty() {
        mix(tail.iter().fold(0, |word, &byte| (word << 8) | u64::from(byte)));
    }
    hash ^ (hash >> 32)
}

/// FNV-1a, 64 bits: the same on every machine and in every version.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Hashes `bytes` and their end, so that ("a", "bc") and ("ab", "c") differ.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.byte(byte);
        }
        self.byte(0xff);
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_clones_do_not_see_each_other() {
        let mut table = NameTable::default();
        for i in 0..5000 {
            table.insert(&format!("name{i}"), i);
        }
        let before = table.clone();
        table.insert("NAME7", 70);
        table.insert("fresh", 1);
        assert_eq!(table.get("Name7"), Some(&70));
        assert_eq!(before.get("name7"), Some(&7));
        assert_eq!(before.get("fresh"), None);
        assert_eq!(table.get("nAmE4999"), Some(&4999));
        assert!(table.unshared(&before) < 20);
    }
}
