//! Refreshes that run at once are limited: the others wait for their turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_engine::log::Follower;

use super::passes::{ENTRIES_MAX, MOVED_MAX};

/// Refreshes that run at once. More wait: together they would only slow down each other and all other clients.
pub const REFRESHES_MAX: usize = 8;

/// The refreshes that run, and those that wait.
#[derive(Clone, Debug)]
pub struct RefreshQueue {
    turns: Arc<Mutex<Turns>>,
    entries_max: usize,
    moved_max: usize,
}

impl Default for RefreshQueue {
    fn default() -> Self {
        Self::keeping(ENTRIES_MAX)
    }
}

#[derive(Debug, Default)]
struct Turns {
    running: usize,
    waiting: VecDeque<Arc<Follower>>,
}

/// The right to refresh; given back by being dropped.
#[derive(Debug)]
pub(super) struct Turn(RefreshQueue);

/// A place among those who wait. Given up before its turn came, or when it had come and was not taken, it goes to the next.
#[derive(Debug)]
pub(super) struct QueueTicket {
    queue: RefreshQueue,
    follower: Arc<Follower>,
    is_taken: bool,
}

impl RefreshQueue {
    /// Each refresh keeps so many changed entries of a database in mind at once.
    pub fn keeping(entries_max: usize) -> Self {
        Self { turns: Arc::default(), entries_max, moved_max: MOVED_MAX }
    }

    /// With so many entries of a moved subtree, its top included, a consumer of a part of the tree goes through the content.
    #[must_use]
    pub fn moving(self, moved_max: usize) -> Self {
        Self { moved_max, ..self }
    }

    pub(super) fn entries_max(&self) -> usize {
        self.entries_max
    }

    pub(super) fn moved_max(&self) -> usize {
        self.moved_max
    }

    /// Refreshes that run, and that wait.
    pub fn figures(&self) -> (usize, usize) {
        let turns = self.lock();
        (turns.running, turns.waiting.len())
    }

    /// A turn, if one is free; otherwise the follower is notified when it is worth asking again, as long as `ticket` is kept.
    pub(super) fn ask(
        &self,
        follower: Option<&Arc<Follower>>,
        ticket: &mut Option<QueueTicket>,
    ) -> Option<Turn> {
        let mut turns = self.lock();
        // Without a search to notify there is no waiting.
        let Some(follower) = follower.filter(|_| turns.running >= REFRESHES_MAX) else {
            turns.running += 1;
            if let Some(mut ticket) = ticket.take() {
                turns.leave(&ticket.follower);
                ticket.is_taken = true;
            }
            return Some(Turn(self.clone()));
        };
        if !turns.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, follower)) {
            turns.waiting.push_back(Arc::clone(follower));
        }
        if ticket.is_none() {
            *ticket =
                Some(QueueTicket { queue: self.clone(), follower: Arc::clone(follower), is_taken: false });
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        // A panic of another thread leaves the numbers consistent.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    fn wake_next(&mut self) {
        if let Some(next) = self.waiting.pop_front() {
            next.tell();
        }
    }

    /// Answers whether it was waiting still.
    fn leave(&mut self, follower: &Arc<Follower>) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !Arc::ptr_eq(waiting, follower));
        self.waiting.len() < before
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.0.lock();
        turns.running = turns.running.saturating_sub(1);
        turns.wake_next();
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let mut turns = self.queue.lock();
        // Told, and gone before it came to ask: its connection was closed at that moment.
        if !turns.leave(&self.follower) {
            turns.wake_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A follower, and how often it was notified.
    fn follower() -> (Arc<Follower>, Arc<AtomicUsize>) {
        let notified = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&notified);
        let follower = Follower::new(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        (follower, notified)
    }

    #[test]
    fn turns_are_limited_and_given_on() {
        let queue = RefreshQueue::default();
        let (follower, notified) = follower();
        let mut ticket = None;
        let ask = |ticket: &mut Option<QueueTicket>| queue.ask(Some(&follower), ticket);
        let mut turns: Vec<Turn> = (0..REFRESHES_MAX).filter_map(|_| ask(&mut ticket)).collect();
        assert_eq!(turns.len(), REFRESHES_MAX);
        assert!(ask(&mut ticket).is_none());
        assert_eq!(queue.figures(), (REFRESHES_MAX, 1));
        assert!(turns.pop().is_some());
        assert_eq!(notified.load(Ordering::SeqCst), 1);
        assert!(ask(&mut ticket).is_some());
        assert!(ticket.is_none());
    }

    #[test]
    fn a_turn_that_nobody_takes_goes_to_the_next() {
        let queue = RefreshQueue::default();
        let mut turns: Vec<Turn> = (0..REFRESHES_MAX).filter_map(|_| queue.ask(None, &mut None)).collect();
        let waiting: Vec<_> = (0..4).map(|_| follower()).collect();
        let mut tickets: Vec<Option<QueueTicket>> = Vec::new();
        for (follower, _) in &waiting {
            let mut ticket = None;
            assert!(queue.ask(Some(follower), &mut ticket).is_none());
            tickets.push(ticket);
        }
        let notified =
            || waiting.iter().map(|(_, notified)| notified.load(Ordering::SeqCst)).collect::<Vec<_>>();
        // One that ends while it waits takes no other turn with it.
        tickets[1] = None;
        assert_eq!((notified(), queue.figures()), (vec![0; 4], (REFRESHES_MAX, 3)));
        assert!(turns.pop().is_some());
        assert_eq!(notified(), [1, 0, 0, 0]);
        // Told, and gone.
        tickets[0] = None;
        assert_eq!(notified(), [1, 0, 1, 0]);
        let turn = queue.ask(Some(&waiting[2].0), &mut tickets[2]);
        assert!(turn.is_some() && tickets[2].is_none());
        assert_eq!(notified(), [1, 0, 1, 0]);
        drop(turn);
        assert_eq!(notified(), [1, 0, 1, 1]);
    }
}
