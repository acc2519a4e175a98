//! The two persistent containers of a schema: cloning them is cheap whatever they hold, and adding to a clone copies
//! only the few small blocks that it touches.

use std::sync::Arc;

const CHUNK: usize = 64;
const LEAVES: usize = 1024;

/// An append-only vector of shared items, in chunks.
#[derive(Debug)]
pub(crate) struct Chunks<T: ?Sized> {
    chunks: Vec<Arc<Vec<Arc<T>>>>,
    len: usize,
}

impl<T: ?Sized> Clone for Chunks<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T: ?Sized> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: ?Sized> Chunks<T> {
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

    /// Items of `self` that `other` does not share, without a look into blocks that it does.
    pub(crate) fn unshared_items<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<T>> {
        let blocks = self.chunks.iter().enumerate();
        let differ =
            blocks.filter(|(at, chunk)| !other.chunks.get(*at).is_some_and(|o| Arc::ptr_eq(o, chunk)));
        differ.flat_map(move |(at, chunk)| {
            let theirs = other.chunks.get(at).map_or(&[][..], |chunk| chunk.as_slice());
            let shares = move |n: usize, item: &Arc<T>| theirs.get(n).is_some_and(|o| Arc::ptr_eq(o, item));
            chunk.iter().enumerate().filter(move |(n, item)| !shares(*n, item)).map(|(_, item)| item)
        })
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

/// The hash stands beside the number of the name, so that other names are passed over without being looked at, and
/// copying a leaf touches nothing but the leaf.
#[derive(Clone, Debug)]
struct Slot<V> {
    hash: u64,
    name: usize,
    value: V,
}

type Leaf<V> = Vec<Slot<V>>;

/// A map from names, in any case of ASCII letters, to small values: a table of leaves, each of which is copied when a
/// clone changes it. 100 classes more cost 1.2 times as much at 10,000 classes as at none (`cargo bench -p larix-schema`).
#[derive(Debug)]
pub(crate) struct NameTable<V> {
    leaves: Vec<Option<Arc<Leaf<V>>>>,
    names: Chunks<str>,
}

impl<V: Clone> Clone for NameTable<V> {
    fn clone(&self) -> Self {
        Self { leaves: self.leaves.clone(), names: self.names.clone() }
    }
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        Self { leaves: Vec::new(), names: Chunks::default() }
    }
}

impl<V: Clone> NameTable<V> {
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.get_octets(name.as_bytes())
    }

    /// The same where nobody has looked whether the name is text.
    pub(crate) fn get_octets(&self, name: &[u8]) -> Option<&V> {
        let hash = folded_hash(name);
        let leaf = self.leaves.get(leaf_index(hash))?.as_ref()?;
        leaf.iter().find(|slot| is(&self.names, slot, hash, name)).map(|slot| &slot.value)
    }

    /// Sets the value of `name`, replacing an earlier one.
    pub(crate) fn insert(&mut self, name: &str, value: V) {
        let hash = folded_hash(name.as_bytes());
        if self.leaves.is_empty() {
            self.leaves.resize(LEAVES, None);
        }
        let Some(leaf) = self.leaves.get_mut(leaf_index(hash)) else { return };
        let leaf = Arc::make_mut(leaf.get_or_insert_with(Arc::default));
        match leaf.iter_mut().find(|slot| is(&self.names, slot, hash, name.as_bytes())) {
            Some(slot) => slot.value = value,
            None => {
                leaf.push(Slot { hash, name: self.names.len(), value });
                self.names.push(name.into());
            }
        }
    }

    /// How many names sit in leaves that `self` does not share with `other`.
    #[cfg(test)]
    pub(crate) fn unshared(&self, other: &Self) -> usize {
        let theirs = |i: usize| other.leaves.get(i).and_then(Option::as_ref);
        let leaves = self.leaves.iter().enumerate().filter_map(|(i, leaf)| Some((i, leaf.as_ref()?)));
        leaves
            .filter(|(i, leaf)| !theirs(*i).is_some_and(|other| Arc::ptr_eq(other, leaf)))
            .map(|(_, leaf)| leaf.len())
            .sum()
    }
}

fn is<V>(names: &Chunks<str>, slot: &Slot<V>, hash: u64, name: &[u8]) -> bool {
    // Nearly always letters have the case that the schema gives them.
    let is_equal = |known: &[u8]| known == name || known.eq_ignore_ascii_case(name);
    slot.hash == hash && names.get(slot.name).is_some_and(|known| is_equal(known.as_bytes()))
}

fn leaf_index(hash: u64) -> usize {
    (hash as usize) % LEAVES
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
        match name.last_chunk() {
            Some(last) => mix(u64::from_le_bytes(*last)),
            None => mix(tail.iter().fold(0, |word, &byte| (word << 8) | u64::from(byte))),
        }
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
        for name in
            ["n", "telephone", "telephoneNumber", "a-name-of-24-octets-long", "a-name-of-25-octets-long-"]
        {
            table.insert(name, name.len());
            let capitals = name.to_ascii_uppercase();
            let found = [table.get(name), table.get(&capitals), table.get_octets(capitals.as_bytes())];
            assert_eq!(found, [Some(&name.len()); 3], "{name}");
            assert_eq!(table.get_octets(&[name.as_bytes(), &[0xff]].concat()), None, "{name}");
        }
    }
}
