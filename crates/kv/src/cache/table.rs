//! What is known of one table: a map of keys, and behind each key whether the way to the next one of the map is empty.
//!
//! The map has no key that says nothing: an absent one stays only at an end of what is known, and where it lies in the middle, the ways
//! before and behind it are one. So a read looks at three keys at most, however many were removed between two records, and a
//! range that is filled takes as long as the records that it brings and the ends that it closes, however much of it was known.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What an entry costs beside its key and value, in bytes, about.
const ENTRY_BYTES: usize = 112;

/// An answer out of what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CacheLookup<T> {
    Nothing,
    Some(T),
    /// It has to be asked.
    Unknown,
}

pub(crate) type Record = (Arc<[u8]>, Arc<[u8]>);

#[derive(Debug)]
enum State {
    Absent,
    Record(Arc<[u8]>),
    /// The key itself is not known; it is here for what is known around it.
    Unknown,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// The commit since which the state is known to hold.
    since: u64,
    /// The commit since which nothing is known to lie between this key and the next one of the map.
    gap: Option<u64>,
    used: AtomicBool,
}

impl Entry {
    fn new(state: State, since: u64, gap: Option<u64>) -> Self {
        Self { state, since, gap, used: AtomicBool::new(false) }
    }

    fn holds(&self, as_of: u64) -> bool {
        self.since <= as_of && !matches!(self.state, State::Unknown)
    }

    fn is_gap(&self, as_of: u64) -> bool {
        self.gap.is_some_and(|since| since <= as_of)
    }

    fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    fn bytes(&self, key: &[u8]) -> usize {
        let value = match &self.state {
            State::Record(value) => value.len(),
            State::Absent | State::Unknown => 0,
        };
        ENTRY_BYTES + key.len() + value
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<Arc<[u8]>, Entry>,
    bytes: usize,
    /// Where sweeping goes on.
    hand: Vec<u8>,
}

impl Table {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    pub(crate) fn get(&self, key: &[u8], as_of: u64) -> CacheLookup<Arc<[u8]>> {
        match self.entries.get(key) {
            Some(entry) if !entry.holds(as_of) => CacheLookup::Unknown,
            Some(entry) => {
                entry.touch();
                match &entry.state {
                    State::Record(value) => CacheLookup::Some(Arc::clone(value)),
                    State::Absent | State::Unknown => CacheLookup::Nothing,
                }
            }
            None if self.is_empty_before(key, as_of) => CacheLookup::Nothing,
            None => CacheLookup::Unknown,
        }
    }

    pub(crate) fn first(&self, from: &[u8], to: Option<&[u8]>, as_of: u64) -> CacheLookup<Record> {
        let mut gap = match self.entries.get(from) {
            Some(_) => true,
            None => self.is_empty_before(from, as_of),
        };
        for (key, entry) in self.entries.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            step();
            if !gap {
                return CacheLookup::Unknown;
            }
            if to.is_some_and(|to| &**key >= to) {
                return CacheLookup::Nothing;
            }
            if !entry.holds(as_of) {
                return CacheLookup::Unknown;
            }
            entry.touch();
            if let State::Record(value) = &entry.state {
                return CacheLookup::Some((Arc::clone(key), Arc::clone(value)));
            }
            gap = entry.is_gap(as_of);
        }
        if gap { CacheLookup::Nothing } else { CacheLookup::Unknown }
    }

    pub(crate) fn last(&self, from: &[u8], to: Option<&[u8]>, as_of: u64) -> CacheLookup<Record> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        for (key, entry) in self.entries.range::<[u8], _>((Bound::Unbounded, end)).rev() {
            step();
            if !entry.is_gap(as_of) {
                return CacheLookup::Unknown;
            }
            if &**key < from {
                entry.touch();
                return CacheLookup::Nothing;
            }
            if !entry.holds(as_of) {
                return CacheLookup::Unknown;
            }
            entry.touch();
            if let State::Record(value) = &entry.state {
                return CacheLookup::Some((Arc::clone(key), Arc::clone(value)));
            }
            if &**key == from {
                return CacheLookup::Nothing;
            }
        }
        CacheLookup::Unknown
    }

    /// Whether the way from the entry before `key` to the one behind it is known to be empty.
    fn is_empty_before(&self, key: &[u8], as_of: u64) -> bool {
        match self.before(key) {
            Some((_, entry)) if entry.is_gap(as_of) => {
                entry.touch();
                true
            }
            _ => false,
        }
    }

    fn before(&self, key: &[u8]) -> Option<(&Arc<[u8]>, &Entry)> {
        self.entries.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()
    }

    fn before_mut(&mut self, key: &[u8]) -> Option<(&Arc<[u8]>, &mut Entry)> {
        self.entries.range_mut::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()
    }

    fn gap_before(&self, key: &[u8]) -> Option<u64> {
        self.before(key).and_then(|(_, entry)| entry.gap)
    }

    fn insert(&mut self, key: &[u8], entry: Entry) {
        self.bytes += entry.bytes(key);
        if let Some(old) = self.entries.insert(key.into(), entry) {
            self.bytes -= old.bytes(key);
        }
    }

    /// Takes `key` out of the map if it says nothing that its neighbours do not.
    fn tidy(&mut self, key: &[u8]) {
        let Some(entry) = self.entries.get(key) else { return };
        let before = self.before(key).and_then(|(_, before)| before.gap);
        let joined = match (&entry.state, before, entry.gap) {
            // Nothing was there since the youngest of the three. A view of before asks again.
            (State::Absent, Some(before), Some(behind)) => Some(before.max(entry.since).max(behind)),
            (State::Unknown, None, None) => None,
            _ => return,
        };
        self.bytes -= entry.bytes(key);
        self.entries.remove(key);
        if let Some((_, before)) = self.before_mut(key) {
            before.gap = joined;
        }
    }

    /// The value of `key` has changed to something unknown.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.bytes -= entry.bytes(key);
            entry.state = State::Unknown;
            self.bytes += entry.bytes(key);
            self.tidy(key);
        } else if let Some(gap) = self.gap_before(key) {
            // The way around it stays known.
            self.insert(key, Entry::new(State::Unknown, 0, Some(gap)));
        }
    }

    /// The value of `key` is this since the commit `since`.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<Arc<[u8]>>, since: u64) {
        let gap = match self.entries.get(key) {
            Some(entry) => entry.gap,
            None => self.gap_before(key),
        };
        let state = value.map_or(State::Absent, State::Record);
        self.insert(key, Entry::new(state, since, gap));
        self.tidy(key);
    }

    /// These are all records from `from` to before `to`, since the commit `since` and up to now.
    pub(crate) fn fill(&mut self, from: &[u8], to: Option<&[u8]>, records: &[Record], since: u64) {
        // Where the way to an end of the range is known to be empty, that way says the same of the end.
        let has_end = to.is_none_or(|to| self.entries.contains_key(to));
        let goes_on = !has_end && to.is_some_and(|to| self.gap_before(to).is_some());
        let begins_known = self.entries.contains_key(from) || self.gap_before(from).is_some();
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let mut touched: Vec<Arc<[u8]>> = Vec::new();
        // What was known is known longer; what was unknown is not needed any more.
        let mut within = self.entries.range_mut::<[u8], _>((Bound::Included(from), end)).peekable();
        while let Some((key, entry)) = within.next() {
            step();
            if matches!(entry.state, State::Unknown) {
                entry.state = State::Absent;
                entry.since = since;
            }
            entry.since = entry.since.min(since);
            // A way that goes on behind the range is known as a whole, or not at all.
            if within.peek().is_some() || !goes_on {
                entry.gap = Some(entry.gap.map_or(since, |known| known.min(since)));
            }
            if matches!(entry.state, State::Absent) {
                touched.push(Arc::clone(key));
            }
        }
        if let Some(to) = to.filter(|_| !has_end && !goes_on) {
            self.insert(to, Entry::new(State::Unknown, 0, None));
        }
        if !begins_known {
            self.insert(from, Entry::new(State::Absent, since, Some(since)));
        }
        for (key, value) in records {
            step();
            let known = self.entries.get(key);
            if known.is_some_and(|entry| matches!(entry.state, State::Record(_))) {
                continue;
            }
            let gap = known.map_or_else(|| self.gap_before(key), |entry| entry.gap).unwrap_or(since);
            self.insert(key, Entry::new(State::Record(Arc::clone(value)), since, Some(gap)));
        }
        for key in &touched {
            self.tidy(key);
        }
        if let Some(to) = to {
            self.tidy(to);
        }
    }

    /// Gives up to `wanted` bytes back out of what was not used since the last time, and says whether it has come to its end.
    pub(crate) fn sweep(&mut self, wanted: usize) -> bool {
        let mut given = 0;
        let mut gone = Vec::new();
        let mut end = true;
        for (key, entry) in self.entries.range::<[u8], _>((Bound::Included(&*self.hand), Bound::Unbounded)) {
            if given >= wanted {
                self.hand = key.to_vec();
                end = false;
                break;
            }
            if !entry.used.swap(false, Ordering::Relaxed) {
                given += entry.bytes(key);
                gone.push(Arc::clone(key));
            }
        }
        if end {
            self.hand.clear();
        }
        for key in gone {
            self.give_up(&key);
        }
        end
    }

    fn give_up(&mut self, key: &[u8]) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.bytes(key);
        // What lay between its neighbours is not known any more. If it was absent, one of the ways beside it was unknown, too.
        let behind = self.entries.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        let behind = behind.map(|(behind, _)| Arc::clone(behind));
        let before = self.before_mut(key).map(|(before, entry)| {
            entry.gap = None;
            Arc::clone(before)
        });
        [before, behind].into_iter().flatten().for_each(|key| self.tidy(&key));
    }

    /// Whether what the map says of itself is so.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut bytes = 0;
        let mut before = None;
        for (key, entry) in &self.entries {
            bytes += entry.bytes(key);
            let says_nothing = match entry.state {
                State::Record(_) => false,
                State::Absent => before.is_some() && entry.gap.is_some(),
                State::Unknown => before.is_none() && entry.gap.is_none(),
            };
            assert!(!says_nothing, "{key:?}: {entry:?} behind {before:?}");
            before = entry.gap;
        }
        assert_eq!(bytes, self.bytes);
    }
}

#[cfg(test)]
thread_local! {
    /// Entries that reads and fills of this thread have looked at.
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// An entry is looked at. Tests count them.
#[inline]
fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}
