//! Sorting by key in bounded memory: postings are gathered in hash tables, and written as sorted runs to temporary
//! files when they take too much memory; the runs are merged in the end.
//!
//! Most of a directory's postings share their keys with many others (three-byte grams, object classes): gathering
//! them by key first leaves a small part to sort.

use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// What a key costs beside its bytes and its ids: its entry, its place in the table, slack.
const KEY_OVERHEAD_BYTES: usize = 80;
const BUFFER_BYTES: usize = 256 << 10;

/// Pairs of a key and an id being gathered. Ids of one key come in ascending order.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Keys that fit a number, which is compared at once: three-byte grams, the most frequent by far.
    short: HashTable<(u128, u32)>,
    /// The others, by a part of their hash and then by their bytes.
    long: HashTable<(u64, u32)>,
    keys: Vec<Gathering>,
    arena: Vec<u8>,
    hasher: FixedState,
    bytes: usize,
}

/// Longest key that fits a number together with its length.
const SHORT_KEY_BYTES: usize = 15;

#[derive(Debug)]
struct Gathering {
    /// Where the key stands in the arena.
    start: u32,
    length: u32,
    first: u64,
    last: u64,
    count: u64,
    /// Varints of the distances after the first id.
    rest: Vec<u8>,
}

impl Gathered {
    pub(super) fn new() -> Self {
        Self {
            short: HashTable::new(),
            long: HashTable::new(),
            keys: Vec::new(),
            arena: Vec::new(),
            hasher: FixedState::with_seed(0),
            bytes: 0,
        }
    }

    /// About how much memory is used.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a pair; one equal to the last pair of its key is dropped.
    pub(super) fn add(&mut self, key: &[u8], id: u64) {
        match short_key(key) {
            Some(key) => self.add_short(key, id),
            None => {
                let at = self.find_long(key);
                self.put(at, key, id);
            }
        }
    }

    /// Takes a pair whose key is short. In key order this is faster by far: what is looked at is in the cache.
    pub(super) fn add_short(&mut self, key: u128, id: u64) {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(key);
        let at = match self.short.find(hash, |(other, _)| *other == key) {
            Some((_, at)) => *at,
            None => {
                let at = self.keys.len() as u32;
                self.short.insert_unique(hash, (key, at), |(other, _)| hasher.hash_one(other));
                at
            }
        };
        let bytes = key.to_be_bytes();
        let length = (key & 0xff) as usize;
        self.put(at, bytes.get(..length).unwrap_or_default(), id);
    }

    fn put(&mut self, at: u32, key: &[u8], id: u64) {
        match self.keys.get_mut(at as usize) {
            Some(known) => self.bytes += known.push(id),
            None => {
                let start = self.arena.len() as u32;
                self.arena.extend_from_slice(key);
                let length = key.len() as u32;
                self.keys.push(Gathering { start, length, first: id, last: id, count: 1, rest: Vec::new() });
                self.bytes += key.len() + KEY_OVERHEAD_BYTES;
            }
        }
    }

    /// The place of a key; of a new one, the next free place.
    fn find_long(&mut self, key: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(key);
        let Self { long, keys, arena, .. } = self;
        let same = |(other, at): &(u64, u32)| *other == hash && key_of(keys, arena, *at) == key;
        if let Some((_, at)) = long.find(hash, same) {
            return *at;
        }
        let at = keys.len() as u32;
        long.insert_unique(hash, (hash, at), |(other, _)| *other);
        at
    }

    /// Whether another key still fits the 32-bit places.
    pub(super) fn is_full(&self) -> bool {
        self.arena.len() > (u32::MAX / 2) as usize
    }

    /// The keys in order, with what belongs to them.
    pub(super) fn into_run(mut self) -> MemoryRun {
        self.short = HashTable::new();
        self.long = HashTable::new();
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(self.keys.len());
        for at in 0..self.keys.len() as u32 {
            order.push((significant(key_of(&self.keys, &self.arena, at)), at));
        }
        let of = |at: u32| key_of(&self.keys, &self.arena, at);
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| of(a.1).cmp(of(b.1))));
        MemoryRun { keys: self.keys, arena: self.arena, order, next: 0 }
    }

    /// Writes the keys in order to a file in `directory` that has no name, and forgets them.
    pub(super) fn spill(&mut self, directory: &Path) -> io::Result<FileRun> {
        let mut run = std::mem::replace(self, Self::new()).into_run();
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, unnamed_file(directory)?);
        let mut list = List::default();
        while run.next(&mut list)? {
            write_list(&mut out, &list)?;
        }
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(FileRun { input: BufReader::with_capacity(BUFFER_BYTES, file) })
    }
}

/// A key of at most [`SHORT_KEY_BYTES`] as a number, which orders as the keys do: its bytes, and its length last.
pub(super) fn short_key(key: &[u8]) -> Option<u128> {
    if key.len() > SHORT_KEY_BYTES {
        return None;
    }
    let mut number = [0; 16];
    for (to, from) in number.iter_mut().zip(key) {
        *to = *from;
    }
    Some(u128::from_be_bytes(number) | key.len() as u128)
}

fn key_of<'a>(keys: &[Gathering], arena: &'a [u8], at: u32) -> &'a [u8] {
    keys.get(at as usize)
        .and_then(|key| arena.get(key.start as usize..(key.start + key.length) as usize))
        .unwrap_or_default()
}

/// Eight bytes that order most keys: those after the head of an index key would say more, but order has to be kept.
fn significant(key: &[u8]) -> u64 {
    // Attribute numbers and ids begin with zeros; at most 2^16 attributes and 2^48 parents are told apart here, which
    // is enough for speed. Order is that of the bytes: what is left out is equal, or decides by being larger.
    let mut bytes = [0; 8];
    let (high, low) = key.split_at_checked(2).unwrap_or((key, &[]));
    if high.iter().any(|byte| *byte != 0) {
        return u64::MAX;
    }
    for (to, from) in bytes.iter_mut().zip(low) {
        *to = *from;
    }
    // The largest value stands for every key that does not begin with two zeros.
    u64::from_be_bytes(bytes).min(u64::MAX - 1)
}

impl Gathering {
    /// Returns the bytes it took.
    fn push(&mut self, id: u64) -> usize {
        if id == self.last {
            return 0;
        }
        debug_assert!(id > self.last, "ids of a key ascend");
        let before = self.rest.capacity();
        push_varint(&mut self.rest, id - self.last);
        self.last = id;
        self.count += 1;
        self.rest.capacity() - before
    }
}

/// A key and its ids.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) key: Vec<u8>,
    first: u64,
    count: u64,
    rest: Vec<u8>,
}

impl List {
    fn ids(&self) -> Ids<'_> {
        Ids { next: (self.count > 0).then_some(self.first), rest: &self.rest }
    }
}

#[derive(Clone, Debug)]
struct Ids<'a> {
    next: Option<u64>,
    rest: &'a [u8],
}

impl Iterator for Ids<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let id = self.next?;
        self.next = take_varint(&mut self.rest).map(|distance| id + distance);
        Some(id)
    }
}

/// A sorted run in memory.
#[derive(Debug)]
pub(super) struct MemoryRun {
    keys: Vec<Gathering>,
    arena: Vec<u8>,
    order: Vec<(u64, u32)>,
    next: usize,
}

impl MemoryRun {
    fn next(&mut self, list: &mut List) -> io::Result<bool> {
        let Some((_, at)) = self.order.get(self.next) else { return Ok(false) };
        self.next += 1;
        list.key.clear();
        list.key.extend_from_slice(key_of(&self.keys, &self.arena, *at));
        if let Some(key) = self.keys.get_mut(*at as usize) {
            list.first = key.first;
            list.count = key.count;
            list.rest = std::mem::take(&mut key.rest);
        }
        Ok(true)
    }
}

/// A sorted run in a file.
#[derive(Debug)]
pub(super) struct FileRun {
    input: BufReader<File>,
}

impl FileRun {
    fn next(&mut self, list: &mut List) -> io::Result<bool> {
        let mut head = [0; 24];
        match self.input.read_exact(head.get_mut(..8).unwrap_or_default()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        self.input.read_exact(head.get_mut(8..).unwrap_or_default())?;
        let (lengths, numbers) = head.split_at(8);
        let (key, rest) = lengths.split_at(4);
        let (first, count) = numbers.split_at(8);
        read_into(&mut self.input, &mut list.key, be32(key))?;
        read_into(&mut self.input, &mut list.rest, be32(rest))?;
        list.first = be64(first);
        list.count = be64(count);
        Ok(true)
    }
}

fn write_list(out: &mut impl Write, list: &List) -> io::Result<()> {
    out.write_all(&(list.key.len() as u32).to_be_bytes())?;
    out.write_all(&(list.rest.len() as u32).to_be_bytes())?;
    out.write_all(&list.first.to_be_bytes())?;
    out.write_all(&list.count.to_be_bytes())?;
    out.write_all(&list.key)?;
    out.write_all(&list.rest)
}

fn read_into(input: &mut impl Read, out: &mut Vec<u8>, length: u32) -> io::Result<()> {
    out.clear();
    out.resize(length as usize, 0);
    input.read_exact(out)
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn be64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// A file that is gone with its last handle, whatever becomes of the process.
fn unnamed_file(directory: &Path) -> io::Result<File> {
    /// Threads make such files at the same time.
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("run-{}-{number}.tmp", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[derive(Debug)]
enum Run {
    Memory(MemoryRun),
    File(FileRun),
}

impl Run {
    fn next(&mut self, list: &mut List) -> io::Result<bool> {
        match self {
            Self::Memory(run) => run.next(list),
            Self::File(run) => run.next(list),
        }
    }
}

/// Sorted runs, read together in key order.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// A run that has ended is removed.
    runs: Vec<Current>,
}

/// A run, the list that is next in it, and what orders most keys at a glance.
#[derive(Debug)]
struct Current {
    significant: u64,
    list: List,
    run: Run,
}

impl Merge {
    pub(super) fn add_memory(&mut self, gathered: Gathered) -> io::Result<()> {
        self.add(Run::Memory(gathered.into_run()))
    }

    pub(super) fn add_file(&mut self, run: FileRun) -> io::Result<()> {
        self.add(Run::File(run))
    }

    fn add(&mut self, run: Run) -> io::Result<()> {
        let mut current = Current { significant: 0, list: List::default(), run };
        if current.advance()? {
            self.runs.push(current);
        }
        Ok(())
    }

    /// Calls `visit` with each key and its ids, ascending in both.
    pub(super) fn for_each<E: From<io::Error>>(
        mut self,
        mut visit: impl FnMut(&[u8], &mut dyn Iterator<Item = u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        // The runs whose key is the least one.
        let mut least: Vec<usize> = Vec::new();
        loop {
            self.find_least(&mut least);
            let mut lists: smallvec::SmallVec<[Ids<'_>; 8]> =
                least.iter().filter_map(|at| self.runs.get(*at)).map(|current| current.list.ids()).collect();
            let Some(first) = least.first().and_then(|at| self.runs.get(*at)) else { return Ok(()) };
            match lists.as_mut_slice() {
                [only] => visit(&first.list.key, only)?,
                lists => visit(&first.list.key, &mut merged(lists))?,
            }
            drop(lists);
            for at in least.iter().rev() {
                if let Some(current) = self.runs.get_mut(*at)
                    && !current.advance()?
                {
                    drop(self.runs.swap_remove(*at));
                }
            }
        }
    }

    fn find_least(&self, least: &mut Vec<usize>) {
        least.clear();
        let mut best: Option<&Current> = None;
        for (at, current) in self.runs.iter().enumerate() {
            let order = best.map_or(std::cmp::Ordering::Less, |best| current.compare(best));
            if order.is_lt() {
                least.clear();
                best = Some(current);
            }
            if order.is_le() {
                least.push(at);
            }
        }
    }
}

impl Current {
    fn advance(&mut self) -> io::Result<bool> {
        let more = self.run.next(&mut self.list)?;
        self.significant = significant(&self.list.key);
        Ok(more)
    }

    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        self.significant.cmp(&other.significant).then_with(|| self.list.key.cmp(&other.list.key))
    }
}

/// The ids of several lists, each once.
fn merged(lists: &mut [Ids<'_>]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let least = lists.iter().filter_map(|ids| ids.next).min()?;
        for ids in lists.iter_mut().filter(|ids| ids.next == Some(least)) {
            ids.next();
        }
        Some(least)
    })
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    let mut shift = 0;
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Deterministic numbers that look random.
    fn scatter(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
    }

    #[test]
    fn runs_merge_to_what_was_gathered() {
        let directory = tempfile::tempdir().unwrap();
        let mut want: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
        let mut merge = Merge::default();
        for part in 0..4 {
            let mut gathered = Gathered::new();
            for id in (0..5000).filter(|id| id / 64 % 4 == part) {
                for n in 0..4 {
                    let word = scatter(id * 7 + n);
                    let key = match n {
                        0 => vec![0, 0, 0, 1, 2],
                        1 => [&[0, 0, 0, 2][..], &(word % 300).to_be_bytes()].concat(),
                        2 => word.to_be_bytes().to_vec(),
                        _ => vec![0xff; (word % 12) as usize],
                    };
                    gathered.add(&key, id);
                    gathered.add(&key, id);
                    want.entry(key).or_default().insert(id);
                }
            }
            assert!(gathered.bytes() > 0 && !gathered.is_full());
            if part % 2 == 0 {
                merge.add_file(gathered.spill(directory.path()).unwrap()).unwrap();
                assert_eq!(gathered.bytes(), 0);
            } else {
                merge.add_memory(gathered).unwrap();
            }
        }
        let mut got: Vec<(Vec<u8>, Vec<u64>)> = Vec::new();
        merge
            .for_each::<io::Error>(|key, ids| {
                got.push((key.to_vec(), ids.collect()));
                Ok(())
            })
            .unwrap();
        assert!(got.is_sorted());
        assert_eq!(got.len(), want.len());
        assert!(got.iter().all(|(key, ids)| want.get(key).is_some_and(|want| want.iter().eq(ids))));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
