//! The pages of a data file as they stand there: whether LMDB can read them.
//!
//! LMDB trusts what stands in a page. One that a disk has damaged ends the process that comes to it, by a signal or an assertion. So
//! this reads the file and not the map, and looks at every page that the root of a commit leads to. The reader of that commit keeps its
//! pages from being used again meanwhile.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;

/// A page that is not what the tree above it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPage {
    pub page: u64,
    /// Whose tree leads to it.
    pub table: String,
    pub what: String,
}

impl fmt::Display for DamagedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of data.mdb ({}) {}", self.page, self.table, self.what)
    }
}

/// What comes of looking at pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageEvent {
    /// So many bytes were read.
    Bytes(u64),
    Damaged(DamagedPage),
}

/// Gets what comes of it. `Break` ends it.
pub(super) type OnEvent<'h> = dyn FnMut(PageEvent) -> ControlFlow<()> + 'h;

/// Bytes in front of what is in a page, and of a record in it.
const PAGE_HEAD: usize = 16;
const RECORD_HEAD: usize = 8;
/// Kinds of pages.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const KINDS: u16 = 0x6f;
/// A record's value stands on pages of its own; it is the root of a table; it is a list of duplicates.
const APART: u16 = 0x01;
const TABLE: u16 = 0x02;
const DUPLICATES: u16 = 0x04;
/// Of a table's root.
const INTEGER_KEYS: u16 = 0x08;
const NO_PAGE: u64 = u64::MAX;
const KEY_BYTES_MAX: usize = 511;
/// The pages of roots stand in front of all others.
const FIRST_PAGE: u64 = 2;
/// Where the page of a commit's root has the roots of the free pages and of the tables, the last page and its own number. Where the
/// first of them has the size of pages.
const FREE_ROOT: usize = 40;
const TABLES_ROOT: usize = 88;
const LAST_PAGE: usize = 136;
const COMMIT: usize = 144;
const ROOTS_END: usize = 152;

/// Looks at the pages of a commit. `false`: the file has only later ones any more.
///
/// # Errors
/// The roots cannot be read.
pub(super) fn check(data: &File, commit: u64, on_event: &mut OnEvent<'_>) -> io::Result<bool> {
    let page_bytes = page_bytes(data)?;
    let Some(roots) = Roots::read(data, (commit & 1) * u64::from(page_bytes))?.filter(|r| r.commit == commit)
    else {
        return Ok(false);
    };
    let mut walk = Walk::new(data, page_bytes, roots.last, on_event)?;
    walk.free_pages(roots.free);
    let tables = walk.tree("the table of tables", roots.tables, true);
    // Of the tables of another program nothing is known. Who opens the store says whose it is.
    let is_ours = tables.iter().any(|record| record.key == super::tables::STORE_TABLE.as_bytes());
    for record in tables.iter().filter(|_| is_ours) {
        let root = Root::parse(&record.value, 0).filter(|_| record.flags & TABLE != 0);
        if let Some(root) = root {
            walk.tree(&String::from_utf8_lossy(&record.key), root, false);
        }
    }
    Ok(true)
}

/// Whether nothing leads to a page behind the end of the file. LMDB does not write free pages there, and a process that reads another one
/// ends by a signal.
///
/// # Errors
/// The roots cannot be read.
pub(super) fn is_tail_unused(data: &File) -> io::Result<bool> {
    let page_bytes = page_bytes(data)?;
    let both = [Roots::read(data, 0)?, Roots::read(data, u64::from(page_bytes))?];
    let Some(roots) = both.into_iter().flatten().max_by_key(|roots| roots.commit) else { return Ok(false) };
    let begin = data.metadata()?.len() / u64::from(page_bytes);
    let mut is_whole = true;
    let mut on_event = |event: PageEvent| {
        is_whole = is_whole && matches!(event, PageEvent::Bytes(_));
        if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let mut walk = Walk::new(data, page_bytes, roots.last, &mut on_event)?;
    walk.free_pages(roots.free);
    if (begin..=roots.last).all(|page| walk.is_seen(page)) && is_whole {
        return Ok(true);
    }
    // Nothing says that they are free: then all of the commit is read.
    let mut is_whole = true;
    let mut on_event = |event: PageEvent| {
        is_whole = is_whole && matches!(event, PageEvent::Bytes(_));
        if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    check(data, roots.commit, &mut on_event)?;
    Ok(is_whole)
}

/// The size of pages, as the first of them says.
fn page_bytes(data: &File) -> io::Result<u32> {
    let mut roots = [0; ROOTS_END];
    data.read_exact_at(&mut roots, 0)?;
    let page_bytes = number32(&roots, FREE_ROOT).filter(|bytes| (512..=65_536).contains(bytes));
    page_bytes.ok_or_else(|| io::Error::other("the size of pages is damaged"))
}

/// What a commit begins with.
struct Roots {
    free: Root,
    tables: Root,
    last: u64,
    commit: u64,
}

impl Roots {
    fn read(data: &File, at: u64) -> io::Result<Option<Self>> {
        let mut bytes = [0; ROOTS_END];
        data.read_exact_at(&mut bytes, at)?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            free: Root::parse(bytes, FREE_ROOT)?,
            tables: Root::parse(bytes, TABLES_ROOT)?,
            last: number64(bytes, LAST_PAGE)?,
            commit: number64(bytes, COMMIT)?,
        })
    }
}

/// A tree, as what leads to it says.
#[derive(Clone, Copy)]
struct Root {
    has_integer_keys: bool,
    /// From the root to the leaves.
    depth: u16,
    records: u64,
    page: u64,
}

impl Root {
    fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            has_integer_keys: number16(bytes, at + 4)? & INTEGER_KEYS != 0,
            depth: number16(bytes, at + 6)?,
            records: number64(bytes, at + 32)?,
            page: number64(bytes, at + 40)?,
        })
    }
}

struct LeafRecord {
    key: Vec<u8>,
    flags: u16,
    value: Vec<u8>,
}

/// A record in its page.
struct Node {
    key: Range<usize>,
    flags: u16,
    /// In a branch.
    child: u64,
    /// In a leaf: the length of the value, and where it begins.
    length: usize,
    value: usize,
}

struct Walk<'w> {
    data: &'w File,
    page_bytes: usize,
    last: u64,
    /// A bit for each page that something leads to.
    seen: Vec<u64>,
    /// Read and not told yet.
    bytes: u64,
    on_event: &'w mut OnEvent<'w>,
    has_ended: bool,
}

impl<'w> Walk<'w> {
    fn new(data: &'w File, page_bytes: u32, last: u64, on_event: &'w mut OnEvent<'w>) -> io::Result<Self> {
        // A damaged root may say anything.
        let length = data.metadata()?.len();
        let last = last.min(length.saturating_add(super::open::TAIL_BYTES_MAX) / u64::from(page_bytes));
        let seen = vec![0; usize::try_from(last / 64 + 1).map_err(io::Error::other)?];
        Ok(Self { data, page_bytes: page_bytes as usize, last, seen, bytes: 0, on_event, has_ended: false })
    }

    fn is_seen(&self, page: u64) -> bool {
        let word = usize::try_from(page / 64).ok().and_then(|word| self.seen.get(word));
        word.is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    fn damaged(&mut self, page: u64, table: &str, what: String) {
        self.tell(PageEvent::Damaged(DamagedPage { page, table: table.to_owned(), what }));
    }

    fn tell(&mut self, event: PageEvent) {
        self.has_ended = self.has_ended || (self.on_event)(event).is_break();
    }

    /// Each page stands in one place.
    fn claim(&mut self, first: u64, count: u64) -> Result<(), String> {
        let end = first.saturating_add(count);
        if first < FIRST_PAGE || end > self.last.saturating_add(1) {
            return Err("is none of the file's".to_owned());
        }
        for number in first..end {
            let bit = 1_u64 << (number % 64);
            match usize::try_from(number / 64).ok().and_then(|word| self.seen.get_mut(word)) {
                Some(word) if *word & bit == 0 => *word |= bit,
                _ => return Err("is in use twice, or is free at the same time".to_owned()),
            }
        }
        Ok(())
    }

    fn read(&mut self, page: u64, at: usize, bytes: &mut [u8]) -> Result<(), String> {
        self.bytes += bytes.len() as u64;
        let begin = page.saturating_mul(self.page_bytes as u64).saturating_add(at as u64);
        self.data.read_exact_at(bytes, begin).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "is behind the end of the file".to_owned(),
            _ => format!("cannot be read: {error}"),
        })
    }

    fn free_pages(&mut self, root: Root) {
        let table = "the list of free pages";
        for record in self.tree(table, Root { has_integer_keys: true, ..root }, true) {
            let count = number64(&record.value, 0).and_then(|count| usize::try_from(count).ok());
            let ids = count.and_then(|count| record.value.get(8..count.checked_mul(8)?.checked_add(8)?));
            let Some(ids) = ids else {
                self.damaged(root.page, table, "leads to a list that is too short".to_owned());
                continue;
            };
            for id in ids.chunks_exact(8).filter_map(|id| number64(id, 0)) {
                if let Err(what) = self.claim(id, 1) {
                    self.damaged(id, table, what);
                }
            }
        }
    }

    /// Goes through a tree; answers its records if they are wanted.
    fn tree(&mut self, table: &str, root: Root, wanted: bool) -> Vec<LeafRecord> {
        let mut records = Vec::new();
        let mut to_come = Vec::from_iter((root.page != NO_PAGE).then_some((root.page, root.depth)));
        let (mut count, mut is_whole, mut before) = (0, true, Vec::new());
        let mut page = vec![0_u8; self.page_bytes];
        while let Some((number, height)) = to_come.pop() {
            let bytes = std::mem::take(&mut self.bytes);
            self.tell(PageEvent::Bytes(bytes));
            if self.has_ended {
                break;
            }
            let read = self.claim(number, 1).and_then(|()| self.read(number, 0, &mut page));
            let found = match read.and_then(|()| nodes(&page, number, height > 1)) {
                Ok(found) => found,
                Err(what) => {
                    is_whole = false;
                    self.damaged(number, table, what);
                    continue;
                }
            };
            if height > 1 {
                to_come.extend(found.iter().rev().map(|node| (node.child, height - 1)));
                continue;
            }
            for node in found {
                let key = page.get(node.key.clone()).unwrap_or_default();
                let fits = if root.has_integer_keys { key.len() == 8 } else { key.len() <= KEY_BYTES_MAX };
                if !fits || key.is_empty() || (count > 0 && !ascends(&before, key, root.has_integer_keys)) {
                    is_whole = false;
                    self.damaged(number, table, "has a key that is damaged or out of order".to_owned());
                    break;
                }
                before.clear();
                before.extend_from_slice(key);
                count += 1;
                match self.value(&page, &node, wanted) {
                    Ok(value) if wanted => {
                        records.push(LeafRecord { key: before.clone(), flags: node.flags, value });
                    }
                    Ok(_) => {}
                    Err((page, what)) => self.damaged(page, table, what),
                }
            }
        }
        if is_whole && count != root.records {
            let what = format!("leads to {count} records where {} are counted", root.records);
            self.damaged(root.page, table, what);
        }
        records
    }

    /// Looks at where a record's value stands. Answers the value if it is wanted; with an error, the page.
    fn value(&mut self, page: &[u8], node: &Node, wanted: bool) -> Result<Vec<u8>, (u64, String)> {
        if node.flags & APART == 0 {
            let value = page.get(node.value..node.value + node.length).filter(|_| wanted);
            return Ok(value.unwrap_or_default().to_vec());
        }
        let first = number64(page, node.value).unwrap_or(NO_PAGE);
        self.value_apart(first, node.length, wanted).map_err(|what| (first, what))
    }

    /// The same of a value on pages of its own.
    fn value_apart(&mut self, first: u64, length: usize, wanted: bool) -> Result<Vec<u8>, String> {
        let mut head = [0; PAGE_HEAD];
        self.read(first, 0, &mut head)?;
        let is_overflow = number16(&head, 10).is_some_and(|flags| flags & KINDS == OVERFLOW);
        if number64(&head, 0) != Some(first) || !is_overflow {
            return Err("is not the page of a long value that it should be".to_owned());
        }
        // It may have had a longer value before.
        let pages = number32(&head, 12).unwrap_or(0);
        if (pages as usize) <= (PAGE_HEAD - 1 + length) / self.page_bytes {
            return Err("is too short for its value".to_owned());
        }
        self.claim(first, u64::from(pages))?;
        // One that is not wanted has its end in the file at least.
        let mut value = vec![0; if wanted { length } else { length.min(1) }];
        self.read(first, PAGE_HEAD + length - value.len(), &mut value)?;
        Ok(value)
    }
}

/// The records of a page.
fn nodes(page: &[u8], number: u64, is_branch: bool) -> Result<Vec<Node>, String> {
    let damaged = |what: &str| what.to_owned();
    if number64(page, 0) != Some(number) {
        return Err(damaged("does not have its number"));
    }
    let kind = if is_branch { BRANCH } else { LEAF };
    if number16(page, 10).is_none_or(|flags| flags & KINDS != kind) {
        return Err(damaged("is of another kind than its place in the tree"));
    }
    let bound = |at| number16(page, at).map_or(usize::MAX, usize::from);
    let (lower, upper) = (bound(12), bound(14));
    if lower <= PAGE_HEAD || !lower.is_multiple_of(2) || lower > upper || upper > page.len() {
        return Err(damaged("has damaged bounds"));
    }
    let places = (PAGE_HEAD..lower).step_by(2).map(bound);
    let nodes = places.map(|at| node(page, at, is_branch).filter(|_| at >= upper));
    nodes.collect::<Option<_>>().ok_or_else(|| damaged("has a record that leads out of it"))
}

fn node(page: &[u8], at: usize, is_branch: bool) -> Option<Node> {
    // Both halves of a number stand in the order of the machine.
    let (low, high) =
        if cfg!(target_endian = "big") { (at.checked_add(2)?, at) } else { (at, at.checked_add(2)?) };
    let length = u32::from(number16(page, low)?) | u32::from(number16(page, high)?) << 16;
    let flags = number16(page, at + 4)?;
    let key = at + RECORD_HEAD..at + RECORD_HEAD + usize::from(number16(page, at + 6)?);
    let value = key.end;
    page.get(key.clone())?;
    let node = Node {
        key,
        flags,
        child: u64::from(length) | u64::from(flags) << 32,
        length: usize::try_from(length).ok()?,
        value,
    };
    if is_branch {
        return Some(node);
    }
    let here = if flags & APART == 0 { node.length } else { 8 };
    page.get(value..value.checked_add(here)?)?;
    Some(node).filter(|_| flags & DUPLICATES == 0)
}

fn ascends(before: &[u8], key: &[u8], are_integers: bool) -> bool {
    if are_integers { number64(before, 0) < number64(key, 0) } else { before < key }
}

#[expect(clippy::host_endian_bytes, reason = "LMDB's file is in the machine's byte order")]
fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

#[expect(clippy::host_endian_bytes, reason = "LMDB's file is in the machine's byte order")]
fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[expect(clippy::host_endian_bytes, reason = "LMDB's file is in the machine's byte order")]
fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
