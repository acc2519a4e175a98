//! Refreshes that run at once are limited: the others wait for their turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_engine::log::Follower;

/// Refreshes that run at once. More wait: together they would only make each other, and everybody else, slow.
pub const REFRESHES_MAX: usize = 8;

/// Who refreshes, and who waits for it.
#[derive(Clone, Debug, Default)]
pub struct RefreshQueue(Arc<Mutex<Turns>>);

#[derive(Debug, Default)]
struct Turns {
    running: usize,
    waiting: VecDeque<Arc<Follower>>,
}

/// The right to refresh; given back by being dropped.
#[derive(Debug)]
pub(super) struct Turn(RefreshQueue);

impl RefreshQueue {
    /// Refreshes that run, and that wait.
    pub fn figures(&self) -> (usize, usize) {
        let turns = self.lock();
        (turns.running, turns.waiting.iter().filter(|waiting| Arc::strong_count(waiting) > 1).count())
    }

    /// A turn, if one is free; otherwise the follower is told when it is worth asking again.
    pub(super) fn ask(&self, follower: Option<&Arc<Follower>>) -> Option<Turn> {
        let mut turns = self.lock();
        // Without anybody to be told there is no waiting.
        if turns.running < REFRESHES_MAX || follower.is_none() {
            turns.running += 1;
            return Some(Turn(self.clone()));
        }
        if let Some(follower) = follower
            && !turns.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, follower))
        {
            turns.waiting.push_back(Arc::clone(follower));
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        // The numbers are whole whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.0.lock();
        turns.running = turns.running.saturating_sub(1);
        // One that nobody else has any more belongs to a connection that is gone.
        while let Some(next) = turns.waiting.pop_front() {
            if Arc::strong_count(&next) > 1 {
                next.tell();
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn turns_are_limited_and_given_on() {
        let queue = RefreshQueue::default();
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let follower = Follower::new(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        let mut turns: Vec<Turn> = (0..REFRESHES_MAX).filter_map(|_| queue.ask(Some(&follower))).collect();
        assert_eq!(turns.len(), REFRESHES_MAX);
        assert!(queue.ask(Some(&follower)).is_none());
        assert_eq!(queue.figures(), (REFRESHES_MAX, 1));
        assert!(turns.pop().is_some());
        assert_eq!(told.load(Ordering::SeqCst), 1);
        assert!(queue.ask(Some(&follower)).is_some());
    }
}
