//! Read transactions that a thread keeps between two reads, so that a batch of requests shares one.
//!
//! On a thread that has asked for it ([`keep_snapshots`]) a snapshot's read transaction stays when the snapshot is
//! dropped, and the next snapshot takes it up unless something was committed since. [`release_snapshots`] ends what is
//! kept: an event loop calls it before it waits, so that no page is kept from being reused while nothing is read.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use heed::{RoTxn, WithTls};

use super::readers::Reading;

pub(super) type ReadTransaction = Rc<Begun>;

/// A read transaction that is counted as long as it is open.
pub(super) struct Begun {
    txn: RoTxn<'static, WithTls>,
    _reading: Reading,
}

impl Begun {
    pub(super) fn new(txn: RoTxn<'static, WithTls>, reading: Reading) -> ReadTransaction {
        Rc::new(Self { txn, _reading: reading })
    }
}

impl Deref for Begun {
    type Target = RoTxn<'static, WithTls>;

    fn deref(&self) -> &Self::Target {
        &self.txn
    }
}

thread_local! {
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    /// One for each store; the number identifies the store.
    static PARKED: RefCell<Vec<(u64, ReadTransaction)>> = const { RefCell::new(Vec::new()) };
}

/// From now on this thread keeps its read transactions.
pub fn keep_snapshots() {
    KEEPS.set(true);
}

/// Ends the read transactions that this thread has kept.
pub fn release_snapshots() {
    PARKED.with_borrow_mut(Vec::clear);
}

/// The store's transaction if it is of this commit; one of another commit is ended.
pub(super) fn take(store: u64, commit: u64) -> Option<ReadTransaction> {
    if !KEEPS.get() {
        return None;
    }
    PARKED.with_borrow_mut(|parked| {
        let at = parked.iter().position(|(number, _)| *number == store)?;
        match parked.get(at) {
            Some((_, txn)) if txn.id() as u64 == commit => Some(Rc::clone(txn)),
            _ => {
                parked.swap_remove(at);
                None
            }
        }
    })
}

/// Notes a transaction that was just begun.
pub(super) fn keep(store: u64, txn: &ReadTransaction) {
    if KEEPS.get() {
        PARKED.with_borrow_mut(|parked| parked.push((store, Rc::clone(txn))));
    }
}

/// Transactions that this thread keeps.
#[cfg(test)]
pub(super) fn count() -> usize {
    PARKED.with_borrow(Vec::len)
}
