//! Who tries to be the writer: one lease with a time by the engine's clock. It decides nothing but who tries: the fence in each
//! commit keeps everybody else out, whatever the lease says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_store::ReadError;

use crate::engine::{HeldLease, Holding, RemovedNode, Session};
use crate::error::Fault;
use crate::store::{KvStore, RESIGNED, now};
use crate::view::View;

/// What the engine says of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The URL of the node that holds it; none where no node holds it now.
    pub leader: Option<String>,
    /// Whether this handle does.
    pub is_own: bool,
    /// How long it still lasts.
    pub left: Duration,
}

impl KvStore {
    /// The lease as it is.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn lease(&self) -> Result<Lease, ReadError> {
        let held = self.engine.lease().map_err(Fault::into_read)?.filter(|held| !held.left.is_zero());
        Ok(match held {
            Some(HeldLease { holder, node, left }) => {
                Lease { leader: Some(node), is_own: holder == self.handle(), left }
            }
            None => Lease { leader: None, is_own: false, left: Duration::ZERO },
        })
    }

    /// Takes the lease for so long if nobody holds it, or makes its own last so long. Whether it is this handle's now.
    ///
    /// # Errors
    /// The engine cannot be asked. The lease may be this handle's all the same.
    pub fn hold_lease(&self, node: &str, time: Duration) -> Result<bool, ReadError> {
        self.hold(node, time).map(|holding| holding != Holding::Others)
    }

    /// The same, for one that holds it already. Where another one may have held it since, this asks what was committed.
    ///
    /// # Errors
    /// As [`Self::hold_lease`]; the next renewal asks then.
    pub fn renew_lease(&self, node: &str, time: Duration) -> Result<Holding, ReadError> {
        self.lease_gap.renew(|| self.hold(node, time), || self.hear().map(drop))
    }

    fn hold(&self, node: &str, time: Duration) -> Result<Holding, ReadError> {
        let held = self.engine.hold_lease(&self.handle(), node, time);
        held.map_err(|fault| self.noted(fault).into_read())
    }

    /// Gives the lease up, if it is this handle's: another one need not wait for its end.
    ///
    /// # Errors
    /// The engine cannot be asked. The lease ends by itself then.
    pub fn release_lease(&self) -> Result<(), ReadError> {
        self.engine.release_lease(&self.handle()).map_err(Fault::into_read)
    }

    /// Ends the lease, whose ever it is, and keeps its holder from taking it for so long. Whether somebody held it.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn end_lease(&self, kept_away: Duration) -> Result<bool, ReadError> {
        self.engine.end_lease(kept_away).map_err(Fault::into_read)
    }

    /// Takes a node out for now: ends its lease, keeps it from taking that for so long, and ends its connections to the engine.
    /// A server that still runs connects again. `name` is what [`crate::KvOptions::name`] was at the node.
    ///
    /// # Errors
    /// The engine cannot be asked, or does not let this user end connections of the other one's.
    pub fn remove(&self, node: &str, name: &str, kept_away: Duration) -> Result<RemovedNode, ReadError> {
        self.engine.remove(node, name, kept_away).map_err(Fault::into_read)
    }

    /// The servers that are connected to the engine's database, by the names of their connections.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn sessions(&self) -> Result<Vec<Session>, ReadError> {
        self.engine.sessions().map_err(Fault::into_read)
    }

    /// Has no right to commit any more, until it [takes over](KvStore::take_over) again.
    pub fn resign(&self) {
        self.forget_epoch();
    }

    /// Is about to take over from another handle of this process, which hands its right on. Who wants to commit through this one waits for
    /// that, for `time` at most, and is not refused. Nobody else's right is touched: the fence decides as ever.
    pub fn expect_take_over(&self, time: Duration) {
        // One that comes to nothing is as one that was lost.
        let _known = self.own_epoch().compare_exchange(0, RESIGNED, Ordering::AcqRel, Ordering::Relaxed);
        self.expectation.begin(now() + time);
        if self.epoch().is_ok() {
            self.expectation.end();
        }
    }

    /// Whether this handle is still about to take over.
    pub fn expects_take_over(&self) -> bool {
        self.expectation.is_on(now())
    }

    /// Does not take over: another one was first, or the engine is away. Who waits for it is refused.
    pub fn expect_no_take_over(&self) {
        self.expectation.end();
    }

    /// Asks the engine which commits are new, so that reads here see them. The number of the newest that it knew.
    ///
    /// # Errors
    /// The engine cannot be asked.
    pub fn hear(&self) -> Result<u64, ReadError> {
        // The first question brings what everybody reads.
        if !self.beginnings().is_empty() {
            return View::open(self, true).map(|view| view.version()).map_err(Fault::into_read);
        }
        self.newest_there().map_err(|fault| {
            self.note_trouble(&fault);
            fault.into_read()
        })
    }

    fn newest_there(&self) -> Result<u64, Fault> {
        self.sound()?;
        let (known, attempt) = {
            let known = self.known();
            (known.cache.version(), known.attempt.clone())
        };
        let sent = self.clock();
        let newest = self.take_in(self.engine.since(known)?, known, &attempt);
        match newest {
            Ok(_) => self.note_contact(sent),
            // To ask once more leaves the server that lacks what is known.
            Err(Fault::Behind { .. }) => self.sound()?,
            Err(_) => {}
        }
        newest
    }

    /// Whether this handle may commit, as far as it knows. One that the engine has lost commits of may not: another one is to.
    pub fn leads(&self) -> bool {
        self.is_sound() && self.epoch().is_ok()
    }

    /// The epoch in which this handle may commit, as far as it knows; none if it may not.
    pub fn held_epoch(&self) -> Option<u64> {
        self.epoch().ok()
    }

    /// Round trips so far that somebody has waited for.
    pub fn trips(&self) -> u64 {
        self.engine.trips()
    }
}

impl KvStore {
    fn forget_epoch(&self) {
        let own = self.own_epoch();
        if own.load(Ordering::Acquire) != 0 {
            own.store(RESIGNED, Ordering::Release);
        }
        self.doubt();
    }

    /// The engine has refused a commit of this epoch: this handle has no right to commit, unless it has taken over again since the
    /// transaction began.
    pub(crate) fn fenced(&self, epoch: u64) {
        let _newer = self.own_epoch().compare_exchange(epoch, RESIGNED, Ordering::AcqRel, Ordering::Relaxed);
        self.doubt();
    }
}
