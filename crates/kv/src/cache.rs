//! What is known of the engine's rows: records, absent keys and the gaps between keys, so that a look-up, the next key, the
//! one before and a scan share it. Bounded in bytes.
//!
//! All of it is true of one commit, [`Cache::version`]. A later commit is taken in by [`Cache::advance`], with the keys that
//! it changed. What is known carries the commit since which it is known to hold, so that a view of an older commit uses it
//! where it was true then, too.

mod table;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::changes::Keys;
use table::Table;
pub(crate) use table::{CacheLookup, Record};

/// Commits whose changed keys are kept for views of before.
const RECENT_COMMITS_MAX: usize = 4096;
/// Bytes that those keys may take.
const RECENT_BYTES_MAX: usize = 1 << 20;
/// What a key in that list costs beside its bytes.
const RECENT_KEY_BYTES: usize = 40;

/// A commit as the engine tells it: its number, and the keys that it changed unless there were too many.
pub(crate) type Commit = (u64, Option<Keys>);

/// Half-open: from the first key to the one behind the last, or to the end.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    /// Number of the table in the engine.
    pub(crate) table: u8,
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

impl Range {
    pub(crate) fn key(table: u8, key: &[u8]) -> Self {
        Self { table, from: key.to_vec(), to: Some(after(key)) }
    }

    pub(crate) fn contains(&self, table: u8, key: &[u8]) -> bool {
        self.table == table && *self.from <= *key && self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// The first key behind `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after
}

#[derive(Debug)]
pub(crate) struct Cache {
    version: u64,
    tables: Vec<Table>,
    recent: VecDeque<Commit>,
    recent_bytes: usize,
    bytes_max: usize,
    /// The table to be swept next.
    hand: usize,
    /// Whether the beginnings of tables that everybody reads were fetched since all was forgotten.
    is_begun: bool,
}

impl Cache {
    /// Of tables numbered below `tables`, as of commit `version`.
    pub(crate) fn new(tables: usize, bytes_max: usize, version: u64) -> Self {
        Self {
            version,
            tables: std::iter::repeat_with(Table::default).take(tables).collect(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            bytes_max,
            hand: 0,
            is_begun: false,
        }
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }

    pub(crate) fn set_begun(&mut self) {
        self.is_begun = true;
    }

    fn clear(&mut self) {
        self.tables.iter_mut().for_each(Table::clear);
        self.is_begun = false;
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().map(Table::bytes).sum()
    }

    pub(crate) fn get(&self, table: u8, key: &[u8], as_of: u64) -> CacheLookup<Arc<[u8]>> {
        self.tables.get(usize::from(table)).map_or(CacheLookup::Unknown, |known| known.get(key, as_of))
    }

    /// The first record of `range`.
    pub(crate) fn first(&self, range: &Range, as_of: u64) -> CacheLookup<Record> {
        let table = self.tables.get(usize::from(range.table));
        table.map_or(CacheLookup::Unknown, |known| known.first(&range.from, range.to.as_deref(), as_of))
    }

    /// The last record of `range`.
    pub(crate) fn last(&self, range: &Range, as_of: u64) -> CacheLookup<Record> {
        let table = self.tables.get(usize::from(range.table));
        table.map_or(CacheLookup::Unknown, |known| known.last(&range.from, range.to.as_deref(), as_of))
    }

    /// Takes in commits that follow each other, the first one right behind the version. Those that are known are passed
    /// over. `None`: there was something between.
    pub(crate) fn advance(&mut self, commits: Vec<Commit>) {
        for (version, keys) in commits {
            if version <= self.version {
                continue;
            }
            if version != self.version + 1 {
                self.forget(version);
                continue;
            }
            match &keys {
                Some(keys) => {
                    for (table, key) in keys {
                        if let Some(known) = self.tables.get_mut(usize::from(*table)) {
                            known.forget(key);
                        }
                    }
                }
                None => self.clear(),
            }
            self.version = version;
            self.remember((version, keys));
        }
        self.shrink();
    }

    /// Nothing is known as of `version`.
    pub(crate) fn forget(&mut self, version: u64) {
        self.clear();
        self.recent.clear();
        self.recent_bytes = 0;
        self.version = version;
    }

    /// A commit of this node, with what it wrote: it is known from then on. `rows`: number of the table, key, value.
    pub(crate) fn committed(
        &mut self,
        version: u64,
        keys: Option<Keys>,
        rows: &mut dyn Iterator<Item = Row>,
    ) {
        if version != self.version + 1 {
            // Somebody has taken it in from the engine already.
            return;
        }
        for (table, key, value) in rows {
            if let Some(known) = self.tables.get_mut(usize::from(table)) {
                known.set(&key, value, version);
            }
        }
        self.version = version;
        self.remember((version, keys));
        self.shrink();
    }

    /// All records of `range` as of commit `as_of`, in ascending order. Taken in if nothing of it has changed since.
    pub(crate) fn fill(&mut self, range: &Range, records: &[Record], as_of: u64) {
        if self.changed(range, as_of) {
            return;
        }
        if let Some(known) = self.tables.get_mut(usize::from(range.table)) {
            known.fill(&range.from, range.to.as_deref(), records, as_of);
        }
        self.shrink();
    }

    /// Whether something in `range` may have changed behind commit `as_of`.
    pub(crate) fn changed(&self, range: &Range, as_of: u64) -> bool {
        if as_of >= self.version {
            return as_of > self.version;
        }
        let newer = self.recent.iter().rev().take_while(|(version, _)| *version > as_of);
        let mut seen = 0;
        for (_, keys) in newer {
            seen += 1;
            match keys {
                Some(keys) if !keys.iter().any(|(table, key)| range.contains(*table, key)) => {}
                _ => return true,
            }
        }
        seen < self.version - as_of
    }

    fn remember(&mut self, commit: Commit) {
        self.recent_bytes += size(&commit);
        self.recent.push_back(commit);
        while self.recent.len() > RECENT_COMMITS_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.recent_bytes -= size(&oldest);
        }
    }

    /// Gives up what was not used since the last time around, until it fits.
    fn shrink(&mut self) {
        let mut bytes = self.bytes();
        // Twice around at most: the first time takes away the marks of use.
        let mut turns = 0;
        while bytes > self.bytes_max && turns < self.tables.len() * 3 {
            let Some(table) = self.tables.get_mut(self.hand) else {
                self.hand = 0;
                continue;
            };
            let before = table.bytes();
            let at_end = table.sweep(bytes - self.bytes_max);
            bytes -= before - table.bytes();
            if at_end {
                self.hand += 1;
                turns += 1;
            }
        }
    }
}

/// Number of the table, key, new value.
pub(crate) type Row = (u8, Box<[u8]>, Option<Arc<[u8]>>);

fn size((_, keys): &Commit) -> usize {
    RECENT_KEY_BYTES + keys.iter().flatten().map(|(_, key)| RECENT_KEY_BYTES + key.len()).sum::<usize>()
}

#[cfg(test)]
mod tests;
