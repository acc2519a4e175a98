//! Large changes that were answered. Memory that one thread took and another gives back costs several times what it costs the
//! thread that took it, and a change has two pieces for each value: the writer leaves that to the next thread that brings a large
//! change, or does it while nothing waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::entrance::Task;
use super::lanes::{LARGE, LARGE_GROUP};

/// Holds no more than a group of large changes.
#[derive(Debug, Default)]
pub(super) struct Spent(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    tasks: Vec<Vec<Task>>,
    weight: usize,
}

impl Spent {
    /// Takes what is left of a change with this weight in values. Small ones, and what there is no room for, are dropped here.
    pub(super) fn take(&self, tasks: Vec<Task>, weight: usize) {
        if weight < LARGE {
            return;
        }
        let mut held = self.lock();
        if held.weight < LARGE_GROUP {
            held.weight = held.weight.saturating_add(weight);
            held.tasks.push(tasks);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().tasks.is_empty()
    }

    /// Drops all that is held, before a large change comes.
    pub(super) fn make_way(&self, weight: usize) {
        if weight >= LARGE {
            self.clear();
        }
    }

    /// Drops all that is held.
    pub(super) fn clear(&self) {
        let held = std::mem::take(&mut *self.lock());
        // The lock is free again: others need not wait for this.
        drop(held);
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // A panic leaves values that are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_changes_are_held_and_no_more_than_a_group() {
        let spent = Spent::default();
        spent.take(Vec::new(), LARGE - 1);
        assert!(spent.is_empty());
        for _ in 0..100 {
            spent.take(Vec::new(), LARGE);
        }
        assert_eq!(spent.lock().tasks.len(), LARGE_GROUP / LARGE);
        spent.make_way(LARGE - 1);
        assert!(!spent.is_empty());
        spent.make_way(LARGE);
        assert!(spent.is_empty());
        spent.take(Vec::new(), usize::MAX);
        spent.take(Vec::new(), usize::MAX);
        assert_eq!(spent.lock().tasks.len(), 1);
        spent.clear();
        assert!(spent.is_empty());
    }
}
