//! Sorting postings by key in bounded memory: pairs of a key and an id are gathered, sorted, and written as runs, which
//! [`super::runs`] merges in the end.
//!
//! Three sorts for three kinds of key. Three-byte grams, the most frequent by far, fit a number together with the id and
//! are sorted by their digits. Keys that many entries share (object classes, hosts) are looked up in a dictionary, so
//! that again numbers are sorted. The others, nearly all different, are compared.

use std::hash::BuildHasher;
use std::io;
use std::path::Path;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::runs::{List, Run, RunFile, RunWriter, significant};
use crate::entry::AttributeNumber;
use crate::index::{KeyKind, key, substrings};

/// Bits of a number that hold the distance of the id from the first one of the run.
const DISTANCE_BITS: u32 = 28;
const DISTANCE_END: u64 = 1 << DISTANCE_BITS;
/// Bits of a number that hold a gram and the attribute's number.
const GRAM_BITS: u32 = 24;
const NUMBER_BITS: u32 = 64 - DISTANCE_BITS - GRAM_BITS;
/// Bits of a number sorted at once.
const DIGIT_BITS: u32 = 12;
/// Keys in one dictionary at most.
const WORDS_MAX: usize = 1 << 20;
/// Keys of one kind after which it is known whether they repeat.
const TRIAL_KEYS: u32 = 512;
/// Attributes with higher numbers are not tried.
const SLOTS_MAX: u32 = 1 << 16;
/// A run in memory takes about so much less than what it is made of.
const RUN_SHARE: usize = 4;
/// Keys in the arena that are looked at together.
const FETCHED: usize = 32;
/// What a key in the dictionary costs beside its bytes.
const WORD_BYTES: usize = 40;

const _: () = assert!(NUMBER_BITS >= 8 && GRAM_BITS.is_multiple_of(DIGIT_BITS));

/// Pairs of a key and an id being gathered. Ids come in ascending order.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// The first id of the run.
    base: Option<u64>,
    grams: Vec<u64>,
    words: Words,
    /// Pairs of a word's number and a distance.
    word_items: Vec<u64>,
    items: Vec<Item>,
    /// The keys of `items`.
    arena: Vec<u8>,
    /// By attribute number and kind of key.
    slots: Vec<Slot>,
    /// Sorting exchanges a list and its scratch: each list has its own, of the same capacity.
    gram_scratch: Vec<u64>,
    word_scratch: Vec<u64>,
    key: Vec<u8>,
    /// Where runs are written.
    file: Option<RunFile>,
}

/// A pair whose key is likely to be the only one of its kind.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// What decides most comparisons.
    significant: u128,
    start: u32,
    length: u16,
    distance: u32,
}

/// Whether the keys of one attribute and kind repeat.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    seen: u32,
    different: u32,
    /// They do not: they are not looked up.
    unique: bool,
}

/// Keys that come often, by number.
#[derive(Debug, Default)]
struct Words {
    table: HashTable<(u64, u32)>,
    places: Vec<(u32, u16)>,
    arena: Vec<u8>,
    hasher: FixedState,
}

impl Sorter {
    /// With room for what `bytes` usually hold: three grams in four bytes, the rest keys of all kinds. Room costs nothing
    /// until it is used; growing would copy, and touch memory that is given back at once.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            grams: Vec::with_capacity(bytes / 2 / size_of::<u64>()),
            items: Vec::with_capacity(bytes / 4 / size_of::<Item>()),
            arena: Vec::with_capacity(bytes / 4),
            ..Self::default()
        }
    }

    /// With room for `bytes` of keys that are not likely to repeat.
    pub(super) fn for_single_keys(bytes: usize) -> Self {
        let (items, arena) = (Vec::with_capacity(bytes / size_of::<Item>()), Vec::with_capacity(bytes));
        Self { items, arena, ..Self::default() }
    }

    /// About how much memory is used, what sorting takes included.
    pub(super) fn bytes(&self) -> usize {
        (self.grams.len() + self.word_items.len()) * 2 * size_of::<u64>()
            + self.items.len() * size_of::<Item>()
            + self.arena.len()
            + self.words.places.len() * WORD_BYTES
            + self.words.arena.len()
    }

    /// Whether a run has to be made before the next entry is added.
    pub(super) fn is_full(&self, id: u64) -> bool {
        // What one entry adds to the arenas stays below the other half of their 32 bits: a record is limited.
        self.base.is_some_and(|base| id.saturating_sub(base) >= DISTANCE_END)
            || self.grams.len().max(self.word_items.len()) > (u32::MAX / 2) as usize
            || self.arena.len() > (u32::MAX / 2) as usize
            || self.words.arena.len() > (u32::MAX / 2) as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.base.is_none()
    }

    /// Takes an index key and an id. A pair that comes several times is one.
    pub(super) fn add_index_key(&mut self, number: AttributeNumber, kind: KeyKind, value: &[u8], id: u64) {
        if kind == KeyKind::Any
            && number.0 >> NUMBER_BITS == 0
            && let &[a, b, c] = value
            && a != 0
            && b != 0
            && c != 0
        {
            let distance = self.distance(id);
            let gram = u64::from(number.0) << GRAM_BITS | u64::from(u32::from_be_bytes([0, a, b, c]));
            self.grams.push(gram << DISTANCE_BITS | distance);
            return;
        }
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key::put(&mut key, number, kind, value);
        if number.0 < SLOTS_MAX {
            self.add_tried((number.0 as usize) << 3 | kind as usize, &key, id);
        } else {
            self.add(&key, id);
        }
        self.key = key;
    }

    /// Takes the grams of a normalized value and an id.
    pub(super) fn add_grams(&mut self, number: AttributeNumber, normal: &[u8], id: u64) {
        if number.0 >> NUMBER_BITS != 0 || normal.contains(&0) {
            return substrings::grams(normal)
                .for_each(|gram| self.add_index_key(number, KeyKind::Any, gram, id));
        }
        let mut grams = normal.array_windows().map(|&[a, b, c]| u32::from_be_bytes([0, a, b, c])).peekable();
        if grams.peek().is_some() {
            let distance = self.distance(id);
            let number = u64::from(number.0) << GRAM_BITS;
            self.grams.extend(grams.map(|gram| (number | u64::from(gram)) << DISTANCE_BITS | distance));
        }
    }

    /// Takes a pair whose key is not likely to come again.
    pub(super) fn add(&mut self, key: &[u8], id: u64) {
        let distance = self.distance(id) as u32;
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(key);
        self.items.push(Item { significant: significant(key), start, length: key.len() as u16, distance });
    }

    fn add_tried(&mut self, slot: usize, key: &[u8], id: u64) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Slot::default());
        }
        let distance = self.distance(id);
        let Some(slot) = self.slots.get_mut(slot).filter(|slot| !slot.unique) else {
            return self.add(key, id);
        };
        let (word, is_new) = self.words.number(key);
        slot.seen += 1;
        slot.different += u32::from(is_new);
        if slot.seen >= TRIAL_KEYS {
            slot.unique = slot.different > slot.seen / 4;
            // Recent keys count for more.
            slot.seen /= 2;
            slot.different /= 2;
        }
        slot.unique |= self.words.places.len() >= WORDS_MAX;
        self.word_items.push(u64::from(word) << DISTANCE_BITS | distance);
    }

    /// The number of a key in the dictionary of this run.
    pub(super) fn word(&self, number: AttributeNumber, kind: KeyKind, value: &[u8]) -> Option<u32> {
        self.words.find(&key::make(number, kind, value))
    }

    /// Takes pairs of keys that are in the dictionary and an id, unless keys of the attribute [go elsewhere].
    ///
    /// [go elsewhere]: Self::has_single_keys
    pub(super) fn add_words(&mut self, words: &[u32], id: u64) {
        let distance = self.distance(id);
        self.word_items.extend(words.iter().map(|word| u64::from(*word) << DISTANCE_BITS | distance));
    }

    /// Whether some keys of an attribute are no longer looked up in the dictionary.
    pub(super) fn has_single_keys(&self, number: AttributeNumber) -> bool {
        let slots = (number.0 as usize) << 3..(number.0 as usize + 1) << 3;
        self.slots.iter().take(slots.end).skip(slots.start).any(|slot| slot.unique)
    }

    fn distance(&mut self, id: u64) -> u64 {
        let base = *self.base.get_or_insert(id);
        debug_assert!(
            id >= base && id - base < DISTANCE_END,
            "ids ascend, and a full sorter is emptied first"
        );
        (id - base) & (DISTANCE_END - 1)
    }

    /// A sorted run in a file in `directory` that has no name; the pairs are forgotten.
    pub(super) fn spill(&mut self, directory: &Path) -> io::Result<Run> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(RunFile::create(directory)?),
        };
        let mut out = RunWriter::to_file(file);
        self.write(&mut out)?;
        out.finish()
    }

    /// A sorted run in memory; the pairs are forgotten.
    pub(super) fn run(&mut self) -> io::Result<Run> {
        let mut out = RunWriter::to_memory(self.bytes() / RUN_SHARE);
        self.write(&mut out)?;
        // A run in memory is the last one.
        *self = Self::default();
        out.finish()
    }

    fn write(&mut self, out: &mut RunWriter) -> io::Result<()> {
        let base = self.base.take().unwrap_or_default();
        sort_by_digits(&mut self.grams, &mut self.gram_scratch, DISTANCE_BITS, 64);
        let ranked = self.words.rank(&mut self.word_items, &mut self.word_scratch);
        let Self { items, arena, .. } = self;
        let of = |item: &Item| key_at(arena, item.start, item.length);
        items.sort_unstable_by(|a, b| {
            let by_key = a.significant.cmp(&b.significant).then_with(|| of(a).cmp(of(b)));
            by_key.then(a.distance.cmp(&b.distance))
        });
        let mut sorted = Sorted {
            near: 0,
            grams: &self.grams,
            words: &self.word_items,
            ranked: &ranked,
            words_arena: &self.words.arena,
            items,
            arena,
            base,
        };
        sorted.write(out)?;
        self.grams.clear();
        self.word_items.clear();
        self.words.clear();
        self.items.clear();
        self.arena.clear();
        Ok(())
    }
}

impl Words {
    /// The number of a key, and whether it is a new one.
    fn number(&mut self, key: &[u8]) -> (u32, bool) {
        let hash = self.hasher.hash_one(key);
        let Self { table, places, arena, .. } = self;
        let same = |(other, at): &(u64, u32)| *other == hash && word(places, arena, *at) == key;
        if let Some((_, at)) = table.find(hash, same) {
            return (*at, false);
        }
        let at = places.len() as u32;
        table.insert_unique(hash, (hash, at), |(other, _)| *other);
        places.push((arena.len() as u32, key.len() as u16));
        arena.extend_from_slice(key);
        (at, true)
    }

    fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let same = |(other, at): &(u64, u32)| *other == hash && word(&self.places, &self.arena, *at) == key;
        self.table.find(hash, same).map(|(_, at)| *at)
    }

    /// Replaces the words' numbers in `items` by their ranks and sorts; gives the words' places by rank.
    fn rank(&self, items: &mut Vec<u64>, scratch: &mut Vec<u64>) -> Vec<(u32, u16)> {
        let mut order: Vec<u32> = (0..self.places.len() as u32).collect();
        let of = |at: u32| word(&self.places, &self.arena, at);
        order.sort_unstable_by(|a, b| of(*a).cmp(of(*b)));
        let mut ranks = vec![0_u64; order.len()];
        for (rank, at) in order.iter().enumerate() {
            if let Some(slot) = ranks.get_mut(*at as usize) {
                *slot = rank as u64;
            }
        }
        for item in items.iter_mut() {
            let rank = ranks.get((*item >> DISTANCE_BITS) as usize).copied().unwrap_or_default();
            *item = rank << DISTANCE_BITS | (*item & (DISTANCE_END - 1));
        }
        let bits = usize::BITS - order.len().leading_zeros();
        sort_by_digits(items, scratch, DISTANCE_BITS, DISTANCE_BITS + bits);
        order.into_iter().filter_map(|at| self.places.get(at as usize).copied()).collect()
    }

    fn clear(&mut self) {
        self.table.clear();
        self.places.clear();
        self.arena.clear();
    }
}

fn word<'a>(places: &[(u32, u16)], arena: &'a [u8], at: u32) -> &'a [u8] {
    places.get(at as usize).map_or(&[], |&(start, length)| key_at(arena, start, length))
}

fn key_at(arena: &[u8], start: u32, length: u16) -> &[u8] {
    arena.get(start as usize..start as usize + usize::from(length)).unwrap_or_default()
}

/// The three sorted kinds of pairs, to be read together in key order.
struct Sorted<'a> {
    grams: &'a [u64],
    words: &'a [u64],
    /// The keys of words by rank.
    ranked: &'a [(u32, u16)],
    words_arena: &'a [u8],
    items: &'a [Item],
    arena: &'a [u8],
    /// So many of the first items have their keys in the processor's cache.
    near: usize,
    base: u64,
}

/// The first key of one kind of pairs; what decides most comparisons comes first.
type Head<'k> = Option<(u128, &'k [u8])>;

impl<'a> Sorted<'a> {
    fn write(&mut self, out: &mut RunWriter) -> io::Result<()> {
        let mut list = List::default();
        let mut gram_key = Vec::new();
        let mut gram = self.gram_head(&mut gram_key);
        let (mut word, mut item) = (self.word_head(), self.item_head());
        loop {
            let gram_here: Head<'_> = gram.map(|significant| (significant, gram_key.as_slice()));
            let Some(least) = [gram_here, word, item].into_iter().flatten().min() else { return Ok(()) };
            let (is_gram, is_word, is_item) = (is(gram_here, least), is(word, least), is(item, least));
            out.key(least.1)?;
            list.clear();
            if is_gram {
                self.grams = self.take(self.grams, &mut list);
            }
            // Keys of a kind were looked up before they were found to be unique: words have the lower ids.
            if is_word {
                self.words = self.take(self.words, &mut list);
                word = self.word_head();
            }
            if is_item {
                self.take_items(&mut list);
                item = self.item_head();
            }
            out.list(&mut list)?;
            if is_gram {
                gram = self.gram_head(&mut gram_key);
            }
        }
    }

    /// Makes the key of the first gram.
    fn gram_head(&self, key: &mut Vec<u8>) -> Option<u128> {
        let gram = self.grams.first()? >> DISTANCE_BITS;
        let attribute = AttributeNumber((gram >> GRAM_BITS) as u32);
        let [_, bytes @ ..] = ((gram & ((1 << GRAM_BITS) - 1)) as u32).to_be_bytes();
        key.clear();
        key::put(key, attribute, KeyKind::Any, &bytes);
        Some(significant(key))
    }

    fn word_head(&self) -> Head<'a> {
        let place = self.ranked.get((self.words.first()? >> DISTANCE_BITS) as usize);
        let key = place.map_or(&[][..], |&(start, length)| key_at(self.words_arena, start, length));
        Some((significant(key), key))
    }

    fn item_head(&self) -> Head<'a> {
        let item = self.items.first()?;
        Some((item.significant, key_at(self.arena, item.start, item.length)))
    }

    /// Takes the pairs with the key of the first one.
    fn take<'n>(&self, numbers: &'n [u64], list: &mut List) -> &'n [u64] {
        let Some(first) = numbers.first() else { return numbers };
        let mut count = 0;
        for number in numbers.iter().take_while(|number| *number >> DISTANCE_BITS == first >> DISTANCE_BITS) {
            list.push(self.base + (number & (DISTANCE_END - 1)));
            count += 1;
        }
        numbers.get(count..).unwrap_or_default()
    }

    /// Reads a byte of each of the next keys. In key order they lie scattered over the arena, further apart than the
    /// processor's cache is large: so it waits for all of them at once instead of for one after the other.
    fn fetch_items(&mut self) {
        let keys = self.items.iter().take(FETCHED).map(|item| self.arena.get(item.start as usize));
        std::hint::black_box(keys.fold(0, |sum, byte| sum ^ byte.copied().unwrap_or_default()));
        self.near = FETCHED;
    }

    fn take_items(&mut self, list: &mut List) {
        if self.near == 0 {
            self.fetch_items();
        }
        let Some(first) = self.items.first() else { return };
        let key = key_at(self.arena, first.start, first.length);
        let mut count = 0;
        for item in self.items {
            let same =
                item.significant == first.significant && key_at(self.arena, item.start, item.length) == key;
            if !same {
                break;
            }
            list.push(self.base + u64::from(item.distance));
            count += 1;
        }
        self.items = self.items.get(count..).unwrap_or_default();
        self.near = self.near.saturating_sub(count);
    }
}

/// Whether a head has the least key. The least one itself is known by where it lies.
fn is(head: Head<'_>, least: (u128, &[u8])) -> bool {
    head.is_some_and(|head| head.0 == least.0 && (std::ptr::eq(head.1, least.1) || head.1 == least.1))
}

/// Sorts by the bits from `low` to `high`, the order of equal ones kept: least digit first.
fn sort_by_digits(numbers: &mut Vec<u64>, scratch: &mut Vec<u64>, low: u32, high: u32) {
    let shifts = || (low..high).step_by(DIGIT_BITS as usize);
    const DIGITS: usize = 1 << DIGIT_BITS;
    // The last mask changes nothing, but the compiler sees that there is a place for every digit.
    let digit = |number: u64, shift: u32| {
        (number >> shift & ((1_u64 << DIGIT_BITS.min(high - shift)) - 1)) as usize & (DIGITS - 1)
    };
    // How often each digit comes, for all places of the number in one pass.
    let mut counts = vec![[0_u32; DIGITS]; shifts().count()];
    for number in numbers.iter() {
        for (shift, counts) in shifts().zip(&mut counts) {
            counts[digit(*number, shift)] += 1;
        }
    }
    for (shift, counts) in shifts().zip(&mut counts) {
        if counts.contains(&(numbers.len() as u32)) {
            continue;
        }
        let mut next = 0;
        for place in counts.iter_mut() {
            next += std::mem::replace(place, next);
        }
        // What it had is overwritten. The list goes on growing in its place: it needs as much room.
        scratch.reserve(numbers.capacity().saturating_sub(scratch.len()));
        scratch.resize(numbers.len(), 0);
        for number in numbers.iter() {
            let place = &mut counts[digit(*number, shift)];
            if let Some(slot) = scratch.get_mut(*place as usize) {
                *slot = *number;
            }
            *place += 1;
        }
        std::mem::swap(numbers, scratch);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::runs::Merge;
    use super::*;

    /// Deterministic numbers that look random.
    fn scatter(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
    }

    #[test]
    fn digits_sort_and_keep_the_order_of_equals() {
        for count in [0, 1, 2, 1000] {
            let mut numbers: Vec<u64> = (0..count).map(|n| scatter(n) >> 3 << 8 | n & 0xff).collect();
            let mut want = numbers.clone();
            want.sort_by_key(|n| n >> 8);
            sort_by_digits(&mut numbers, &mut Vec::new(), 8, 64);
            assert_eq!(numbers, want);
        }
    }

    /// Pairs of several sorters, by the entry's id, and every kind of key.
    #[test]
    fn runs_merge_to_what_was_gathered() {
        let directory = tempfile::tempdir().unwrap();
        for spill_every in [50, 1000, 100_000] {
            let mut want: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
            let mut merge = Merge::default();
            for part in 0..3 {
                let mut sorter = Sorter::default();
                for id in (0..6000_u64).filter(|id| id / 64 % 3 == part) {
                    if id % spill_every == spill_every - 1 {
                        merge.add(sorter.spill(directory.path()).unwrap()).unwrap();
                        assert_eq!(sorter.bytes(), 0);
                    }
                    let mut add = |number: u32, kind, value: &[u8]| {
                        sorter.add_index_key(AttributeNumber(number), kind, value, id);
                        let key = key::make(AttributeNumber(number), kind, value);
                        want.entry(key).or_default().insert(id);
                    };
                    let word = scatter(id).to_be_bytes();
                    for _ in 0..2 {
                        add(1, KeyKind::Presence, &[]);
                        add(1, KeyKind::Equality, &word);
                        add(2, KeyKind::Equality, &[word[0] % 7, 0, 1]);
                        // Rare at first, then different every time.
                        add(3, KeyKind::Equality, &(id / 900 * id).to_be_bytes());
                        add(1 << 20, KeyKind::Initial, &word[..(id % 8) as usize]);
                    }
                    for gram in word.windows(3) {
                        add(2, KeyKind::Any, gram);
                        add(1 << 13, KeyKind::Any, gram);
                    }
                    add(2, KeyKind::Final, &[0xff; 300][..(id % 300) as usize]);
                }
                if part == 0 {
                    merge.add(sorter.spill(directory.path()).unwrap()).unwrap();
                } else {
                    merge.add(sorter.run().unwrap()).unwrap();
                }
            }
            let mut got: Vec<(Vec<u8>, Vec<u64>)> = Vec::new();
            merge
                .for_each::<io::Error>(|key, ids| {
                    let ids = ids.flat_map(|(start, length)| start..start + length).collect();
                    got.push((key.to_vec(), ids));
                    Ok(())
                })
                .unwrap();
            assert!(got.is_sorted());
            assert_eq!(got.len(), want.len());
            assert!(got.iter().all(|(key, ids)| want.get(key).is_some_and(|want| want.iter().eq(ids))));
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }
}
