//! Read transactions that a thread keeps between two reads, so that a batch of requests shares one.
//!
//! On a thread that has asked for it ([`keep_snapshots`]) a snapshot's read transaction stays when the snapshot is
//! dropped, and the next snapshot takes it up unless something was committed since. [`release_snapshots`] ends what is
//! kept: an event loop calls it some milliseconds after it first waited with what [`rest_snapshots`] left, so that pages are not
//! kept from being reused for longer.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::{RoTxn, WithTls};

use super::readers::Reading;

/// `None`: it has ended, and no snapshot has it.
pub(super) type ReadTransaction = Rc<Option<Begun>>;

/// A read transaction that is counted as long as it is open.
pub(super) struct Begun {
    txn: RoTxn<'static, WithTls>,
    /// The number of the commit that it shows.
    id: u64,
    /// The number of the store's last commit.
    commits: Arc<AtomicU64>,
    _reading: Reading,
}

impl Begun {
    pub(super) fn new(txn: RoTxn<'static, WithTls>, commits: Arc<AtomicU64>, reading: Reading) -> Self {
        let id = txn.id() as u64;
        Self { txn, id, commits, _reading: reading }
    }

    /// The number of the commit that it shows.
    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn is_outdated(&self) -> bool {
        self.id != self.commits.load(Ordering::Acquire)
    }
}

impl Deref for Begun {
    type Target = RoTxn<'static, WithTls>;

    fn deref(&self) -> &Self::Target {
        &self.txn
    }
}

/// Stores whose transaction leaves its memory to the next one; more than one process serves.
const STORES_MAX: usize = 64;

thread_local! {
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    /// One for each store, whose number stands beside it. Those that were begun since the last release stand in front.
    static PARKED: RefCell<Vec<(u64, ReadTransaction)>> = const { RefCell::new(Vec::new()) };
}

/// From now on this thread keeps its read transactions.
pub fn keep_snapshots() {
    KEEPS.set(true);
}

/// To be called before the thread waits: ends the read transactions that it has kept if any is outdated. Answers whether it keeps
/// one.
pub fn rest_snapshots() -> bool {
    let (keeps, is_outdated) = PARKED.with_borrow(|parked| {
        // Those that are open stand in front.
        let mut open = parked.iter().map_while(|(_, transaction)| transaction.as_ref().as_ref());
        (parked.first().is_some_and(|(_, transaction)| transaction.is_some()), open.any(Begun::is_outdated))
    });
    if is_outdated {
        release_snapshots();
    }
    keeps && !is_outdated
}

/// Ends the read transactions that this thread has kept. Their memory stays for the next ones.
pub fn release_snapshots() {
    PARKED.with_borrow_mut(|parked| {
        let mut has_held = false;
        for (_, transaction) in parked.iter_mut().take_while(|(_, transaction)| transaction.is_some()) {
            match Rc::get_mut(transaction) {
                Some(open) => *open = None,
                // One that a snapshot still has ends with that.
                None => has_held = true,
            }
        }
        if has_held {
            parked.retain(|(_, transaction)| transaction.is_none());
        }
        if parked.len() > STORES_MAX {
            parked.clear();
        }
    });
}

/// The thread's transaction on a store if it is of this commit, else one that `begin` begins: then the thread's own has ended before.
pub(super) fn transaction<E>(
    store: u64,
    commit: u64,
    begin: impl FnOnce() -> Result<Begun, E>,
) -> Result<ReadTransaction, E> {
    if !KEEPS.get() {
        return Ok(Rc::new(Some(begin()?)));
    }
    PARKED.with_borrow_mut(|parked| {
        match parked.iter().position(|(number, _)| *number == store) {
            Some(0) => {}
            Some(at) => parked.get_mut(..=at).unwrap_or_default().rotate_right(1),
            None => parked.insert(0, (store, Rc::default())),
        }
        let Some((_, transaction)) = parked.first_mut() else { return Ok(Rc::new(Some(begin()?))) };
        if transaction.as_ref().as_ref().is_none_or(|open| open.id() != commit) {
            if Rc::get_mut(transaction).is_none() {
                *transaction = Rc::default();
            }
            if let Some(open) = Rc::get_mut(transaction) {
                *open = None;
                match begin() {
                    Ok(begun) => *open = Some(begun),
                    Err(error) => {
                        parked.remove(0);
                        return Err(error);
                    }
                }
            }
        }
        Ok(Rc::clone(transaction))
    })
}

/// Transactions that this thread keeps.
#[cfg(test)]
pub(super) fn count() -> usize {
    PARKED.with_borrow(|parked| parked.iter().filter(|(_, transaction)| transaction.is_some()).count())
}
