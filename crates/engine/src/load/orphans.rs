//! Records that came before their superiors.

use std::hash::Hash;

use foldhash::HashMap;

/// What waits for its superior, by the superior's name.
#[derive(Debug)]
pub(super) struct Orphans<K, E> {
    waiting: HashMap<K, Vec<E>>,
    /// What was ever added, in bytes: an entry that comes after the superior takes memory until the end as well.
    bytes: usize,
    limit: usize,
}

impl<K: Eq + Hash, E> Orphans<K, E> {
    pub(super) fn new(limit: usize) -> Self {
        Self { waiting: HashMap::default(), bytes: 0, limit }
    }

    /// Gives the record back when too much waits already.
    pub(super) fn add(&mut self, superior: K, record: E, bytes: usize) -> Result<(), E> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            return Err(record);
        }
        self.waiting.entry(superior).or_default().push(record);
        Ok(())
    }

    /// The superior has come.
    pub(super) fn take(&mut self, superior: &K) -> Vec<E> {
        if self.waiting.is_empty() { Vec::new() } else { self.waiting.remove(superior).unwrap_or_default() }
    }

    /// What still waits, in no order.
    pub(super) fn take_all(&mut self) -> Vec<E> {
        self.waiting.drain().flat_map(|(_, records)| records).collect()
    }
}
