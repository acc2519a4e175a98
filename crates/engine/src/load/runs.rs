//! Sorted runs of keys and their ids, in files or in memory, and reading many of them together in key order.
//!
//! A key in a run: bytes shared with the key before, bytes that follow, bytes of the list (three varints), those bytes,
//! the list. A list: for each run of ids a varint of the ids missing before it, times two, plus one if a varint of the
//! run's length minus 2 follows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// What a run is read and written by.
const BUFFER_BYTES: usize = 128 << 10;
/// Three varints.
const HEAD_BYTES_MAX: usize = 30;

/// Bytes that order most keys. Attribute numbers and ids begin with zeros: these bytes distinguish at most 2^16 attributes and
/// 2^48 parents, which is enough for speed. Order is that of the bytes: what is left out is equal, or the key
/// is above all others.
pub(super) fn significant(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let (high, low) = key.split_at_checked(2).unwrap_or((key, &[]));
    if high.iter().any(|byte| *byte != 0) {
        return u128::MAX;
    }
    match low.first_chunk() {
        Some(first) => bytes = *first,
        None => bytes.iter_mut().zip(low).for_each(|(to, from)| *to = *from),
    }
    // The largest value stands for every key that does not begin with two zeros.
    u128::from_be_bytes(bytes).min(u128::MAX - 1)
}

/// Ids in ascending order, encoded.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    bytes: Vec<u8>,
    /// The first id after the last run that is encoded.
    end: u64,
    /// The run being gathered; empty at the start.
    start: u64,
    length: u64,
    count: u64,
}

impl List {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.end, self.start, self.length, self.count) = (0, 0, 0, 0);
    }

    /// Takes the next id; one equal to the last is dropped.
    pub(super) fn push(&mut self, id: u64) {
        let next = self.start + self.length;
        if id == next && self.length > 0 {
            self.length += 1;
        } else if self.length == 0 || id > next {
            self.flush();
            (self.start, self.length) = (id, 1);
        } else {
            debug_assert!(id + 1 == next, "ids of a key ascend");
        }
    }

    fn flush(&mut self) {
        if self.length == 0 {
            return;
        }
        let gap = (self.start - self.end) << 1;
        if self.length == 1 {
            push_varint(&mut self.bytes, gap);
        } else {
            push_varint(&mut self.bytes, gap | 1);
            push_varint(&mut self.bytes, self.length - 2);
        }
        self.end = self.start + self.length;
        self.count += self.length;
        self.length = 0;
    }
}

/// The runs of ids of an encoded list: their starts and lengths.
#[derive(Clone, Copy, Debug)]
struct Ids<'a> {
    end: u64,
    bytes: &'a [u8],
}

impl Iterator for Ids<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let gap = take_varint(&mut self.bytes)?;
        let length = if gap & 1 == 0 { 1 } else { take_varint(&mut self.bytes)? + 2 };
        let start = self.end + (gap >> 1);
        self.end = start + length;
        Some((start, length))
    }
}

/// Writes a run: each key with its list, in key order.
#[derive(Debug)]
pub(super) struct RunWriter {
    /// None: the run stays in memory.
    file: Option<RunFile>,
    /// Where the run begins in its file, and what comes next.
    begin: u64,
    at: u64,
    out: Vec<u8>,
    key: Vec<u8>,
    /// Of the key, how much it shares with the one before.
    shared: usize,
    ids: u64,
}

impl RunWriter {
    /// With room for about so many bytes.
    pub(super) fn to_memory(bytes: usize) -> Self {
        let out = Vec::with_capacity(bytes);
        Self { file: None, begin: 0, at: 0, out, key: Vec::new(), shared: 0, ids: 0 }
    }

    /// Behind the runs that the file has already.
    pub(super) fn to_file(file: &RunFile) -> Self {
        let begin = file.0.end.load(Ordering::Relaxed);
        let out = Vec::with_capacity(BUFFER_BYTES);
        Self { file: Some(file.clone()), begin, at: begin, out, key: Vec::new(), shared: 0, ids: 0 }
    }

    /// The next key; its list comes next.
    pub(super) fn key(&mut self, key: &[u8]) -> io::Result<()> {
        self.shared = equal_bytes(&self.key, key);
        self.key.truncate(self.shared);
        self.key.extend_from_slice(key.get(self.shared..).unwrap_or_default());
        Ok(())
    }

    pub(super) fn list(&mut self, list: &mut List) -> io::Result<()> {
        list.flush();
        self.ids += list.count;
        let own = self.key.get(self.shared..).unwrap_or_default();
        push_varint(&mut self.out, self.shared as u64);
        push_varint(&mut self.out, own.len() as u64);
        push_varint(&mut self.out, list.bytes.len() as u64);
        self.out.extend_from_slice(own);
        self.out.extend_from_slice(&list.bytes);
        if self.file.is_some() && self.out.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.0.file.write_all_at(&self.out, self.at)?;
            self.at += self.out.len() as u64;
            self.out.clear();
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<Run> {
        self.flush()?;
        let file = self.file.map(|file| {
            file.0.end.store(self.at, Ordering::Relaxed);
            (file, self.begin..self.at)
        });
        let (buffer, ids_total) = (self.out, self.ids);
        Ok(Run { file, buffer, at: 0, key: Vec::new(), list: 0..0, significant: 0, ids_total })
    }
}

/// A temporary file for the runs of one thread, one behind the other.
#[derive(Clone, Debug)]
pub(super) struct RunFile(Arc<Runs>);

#[derive(Debug)]
struct Runs {
    file: File,
    end: AtomicU64,
}

impl RunFile {
    /// In `directory`, without a name.
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        let (file, end) = (unnamed_file(directory)?, AtomicU64::new(0));
        Ok(Self(Arc::new(Runs { file, end })))
    }
}

/// A file that is gone with its last handle, whatever becomes of the process.
pub(super) fn unnamed_file(directory: &Path) -> io::Result<File> {
    /// Threads make such files at the same time.
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("run-{}-{number}.tmp", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A sorted run being read.
#[derive(Debug)]
pub(super) struct Run {
    /// What follows the buffer; none when that is all.
    file: Option<(RunFile, std::ops::Range<u64>)>,
    buffer: Vec<u8>,
    /// Where the next key begins in the buffer.
    at: usize,
    /// The key read last.
    key: Vec<u8>,
    /// Where its list stands in the buffer.
    list: std::ops::Range<usize>,
    significant: u128,
    ids_total: u64,
}

impl Run {
    /// Reads the next key and its list; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        self.fill(HEAD_BYTES_MAX)?;
        let mut head = self.buffer.get(self.at..).unwrap_or_default();
        if head.is_empty() {
            return Ok(false);
        }
        let before = head.len();
        let cut_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut number = || take_varint(&mut head).map(|number| number as usize).ok_or_else(cut_off);
        let (shared, own, list) = (number()?, number()?, number()?);
        self.at += before - head.len();
        self.fill(own + list)?;
        let key = self.buffer.get(self.at..self.at + own).ok_or_else(cut_off)?;
        self.key.truncate(shared);
        self.key.extend_from_slice(key);
        self.significant = significant(&self.key);
        self.at += own + list;
        self.list = self.at - list..self.at;
        if self.at > self.buffer.len() { Err(cut_off()) } else { Ok(true) }
    }

    /// Reads on until the buffer has `wanted` bytes from `at` on, or all there are.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.buffer.len() - self.at >= wanted {
            return Ok(());
        }
        let Some((RunFile(runs), rest)) = &mut self.file else { return Ok(()) };
        self.buffer.drain(..self.at);
        self.at = 0;
        let begin = self.buffer.len();
        let missing = (wanted.max(BUFFER_BYTES) - begin) as u64;
        let more = missing.min(rest.end - rest.start);
        self.buffer.resize(begin + more as usize, 0);
        runs.file.read_exact_at(self.buffer.get_mut(begin..).unwrap_or_default(), rest.start)?;
        rest.start += more;
        if rest.is_empty() {
            self.file = None;
        }
        Ok(())
    }

    fn ids(&self) -> Ids<'_> {
        Ids { end: 0, bytes: self.buffer.get(self.list.clone()).unwrap_or_default() }
    }

    fn is_below(&self, other: &Self) -> bool {
        self.significant < other.significant
            || (self.significant == other.significant && self.key < other.key)
    }
}

/// Sorted runs, read together in key order: a heap, the run with the least key first.
#[derive(Debug, Default)]
pub(super) struct Merge {
    #[allow(clippy::vec_box, reason = "a sift swaps pointers instead of whole runs")]
    heap: Vec<Box<Run>>,
    ids_total: u64,
}

impl Merge {
    pub(super) fn add(&mut self, mut run: Run) -> io::Result<()> {
        self.ids_total += run.ids_total;
        if run.advance()? {
            self.heap.push(Box::new(run));
        }
        Ok(())
    }

    /// Pairs of a key and an id in all runs.
    pub(super) fn ids_total(&self) -> u64 {
        self.ids_total
    }

    /// Calls `visit` with each key and the runs of its ids, ascending in both. The ids of one key differ from run to
    /// run.
    pub(super) fn for_each<E: From<io::Error>>(
        mut self,
        mut visit: impl FnMut(&[u8], &mut dyn Iterator<Item = (u64, u64)>) -> Result<(), E>,
    ) -> Result<(), E> {
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        // The places of the runs whose key is the least one, each before those below it.
        let mut least: Vec<usize> = Vec::new();
        loop {
            self.find_least(&mut least);
            let Some(first) = self.heap.first() else { return Ok(()) };
            if least.len() == 1 {
                visit(&first.key, &mut first.ids())?;
            } else {
                let lists = least.iter().filter_map(|at| self.heap.get(*at)).map(|run| run.ids()).collect();
                visit(&first.key, &mut Lists::new(lists))?;
            }
            // From the leaves on, so that what is below a place is a heap when it is its turn.
            least.sort_unstable();
            for &at in least.iter().rev() {
                let Some(run) = self.heap.get_mut(at) else { continue };
                if !run.advance()? {
                    drop(self.heap.swap_remove(at));
                }
                self.sift_down(at);
            }
        }
    }

    /// Equal keys are together at the heap's top.
    fn find_least(&self, least: &mut Vec<usize>) {
        least.clear();
        let Some(first) = self.heap.first() else { return };
        least.push(0);
        let mut next = 0;
        while let Some(at) = least.get(next).copied() {
            for child in [2 * at + 1, 2 * at + 2] {
                if self
                    .heap
                    .get(child)
                    .is_some_and(|run| run.significant == first.significant && run.key == first.key)
                {
                    least.push(child);
                }
            }
            next += 1;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        let is_below = |heap: &[Box<Run>], a: usize, b: usize| match (heap.get(a), heap.get(b)) {
            (Some(a), Some(b)) => a.is_below(b),
            _ => false,
        };
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if is_below(&self.heap, child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

/// Lists of one key, read together. Most follow each other: only those that overlap are compared.
struct Lists<'a> {
    /// By their first id, the last one first.
    waiting: SmallVec<[Current<'a>; 16]>,
    open: SmallVec<[Current<'a>; 4]>,
}

#[derive(Clone, Copy)]
struct Current<'a> {
    next: (u64, u64),
    rest: Ids<'a>,
}

impl<'a> Lists<'a> {
    fn new(lists: SmallVec<[Ids<'a>; 16]>) -> Self {
        let mut waiting: SmallVec<[Current<'a>; 16]> =
            lists.into_iter().filter_map(|mut rest| Some(Current { next: rest.next()?, rest })).collect();
        waiting.sort_unstable_by_key(|list| std::cmp::Reverse(list.next.0));
        Self { waiting, open: SmallVec::new() }
    }
}

impl Iterator for Lists<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut least = self.open.iter().enumerate().min_by_key(|(_, list)| list.next.0).map(|(at, _)| at);
        if let Some(first) = self.waiting.last().copied()
            && least.and_then(|at| self.open.get(at)).is_none_or(|open| first.next.0 < open.next.0)
        {
            self.waiting.pop();
            least = Some(self.open.len());
            self.open.push(first);
        }
        let at = least?;
        let list = self.open.get_mut(at)?;
        let run = list.next;
        match list.rest.next() {
            Some(next) => list.next = next,
            None => drop(self.open.swap_remove(at)),
        }
        Some(run)
    }
}

/// How many bytes two keys begin with alike.
fn equal_bytes(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let whole = words.take_while(|(a, b)| a == b).count() * 8;
    let rest = a.iter().zip(b).skip(whole);
    whole + rest.take_while(|(a, b)| a == b).count()
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    let mut value = u64::from(first & 0x7f);
    let mut shift = 7;
    let mut last = first;
    while last & 0x80 != 0 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        last = byte;
    }
    Some(value)
}
