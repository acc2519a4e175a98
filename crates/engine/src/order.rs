//! The order of commits that one replicated suffix has, whatever databases are glued under it, and that databases have whose changes
//! consumers follow in one access log.
//!
//! CSNs are given out and committed under one lock, so that a contextCSN never covers a change that is not committed
//! yet. Any other database has an order of its own, for which no other database waits.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use larix_store::Store;

use crate::csn::{Csn, CsnGenerator};
use crate::time::Timestamp;

/// CSNs in commit order.
#[derive(Debug)]
pub struct CommitOrder {
    generator: CsnGenerator,
    turn: Mutex<()>,
}

/// The right to give out CSNs and commit them.
#[derive(Debug)]
pub struct Turn<'o>(#[allow(dead_code, reason = "held for its drop")] MutexGuard<'o, ()>);

impl CommitOrder {
    pub fn new(server_id: u16) -> Self {
        Self { generator: CsnGenerator::new(server_id), turn: Mutex::new(()) }
    }

    pub fn server_id(&self) -> u16 {
        self.generator.server_id()
    }

    /// Waits for the writers of the other databases that have this order.
    pub fn turn(&self) -> Turn<'_> {
        // The lock guards no data: a writer that panicked left nothing half done.
        Turn(self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same for a commit to this store. Who has yet to get the right to commit waits for it outside the turn, which the one that gives it up
    /// needs for its last commits.
    pub(crate) fn turn_to_commit<S: Store>(&self, store: &S) -> Turn<'_> {
        loop {
            store.await_right();
            let turn = self.turn();
            if !store.awaits_right() {
                return turn;
            }
        }
    }

    /// Whether a writer has the turn just now.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub fn next_csn(&self, now: Timestamp) -> Csn {
        self.generator.next(now)
    }

    /// Learns of a CSN that is stored.
    pub fn observe(&self, csn: &Csn) {
        self.generator.observe(csn);
    }

    /// As [`CsnGenerator::follow`].
    pub fn follow(&self, csn: &Csn, now: Timestamp) -> i64 {
        self.generator.follow(csn, now)
    }

    /// As [`CsnGenerator::left_ahead`].
    pub fn left_ahead(&self) -> bool {
        self.generator.left_ahead()
    }

    /// As [`CsnGenerator::rise_above`].
    pub fn rise_above(&self, csn: &Csn) {
        self.generator.rise_above(csn);
    }
}
