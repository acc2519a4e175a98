//! The consumers that are connected to this server, and how far behind each is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use larix_engine::Fault;
use larix_engine::access::Subject;
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey};
use larix_engine::time::Timestamp;
use larix_store::{Snapshot, Store};

use super::session::{ConsumerProgress, SyncSearch};

/// The consumers that are connected.
#[derive(Debug, Default)]
pub struct SyncPeers(Mutex<Vec<Weak<SyncPeer>>>);

/// One of them; it is gone when its search is.
#[derive(Debug)]
pub struct SyncPeer {
    rid: u16,
    /// As access rules name it.
    address: String,
    identity: String,
    base: String,
    since: Timestamp,
    reached: Mutex<ConsumerProgress>,
}

/// How one consumer stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncPeerFigures {
    pub rid: u16,
    pub address: String,
    pub identity: String,
    pub base: String,
    pub since: Timestamp,
    pub phase: &'static str,
    /// The CSNs of the last cookie that was sent to it.
    pub csns: Vec<Csn>,
    /// The place in the change log up to which it has been served.
    pub position: u64,
    /// Records of the change log behind that.
    pub behind: u64,
    /// How long ago the first of them was made, in microseconds; 0 when there is none.
    pub behind_micros: u64,
}

impl SyncPeers {
    /// Notes a consumer whose search begins.
    pub fn add(&self, subject: &Subject, base: &str, now: Timestamp, rid: u16) -> Arc<SyncPeer> {
        let peer = Arc::new(SyncPeer {
            rid,
            address: subject.peer.peer_name.clone(),
            identity: subject.authz_text.strip_prefix("dn:").unwrap_or_default().to_owned(),
            base: base.to_owned(),
            since: now,
            reached: Mutex::default(),
        });
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|known| known.strong_count() > 0);
        peers.push(Arc::downgrade(&peer));
        peer
    }

    fn connected(&self) -> Vec<Arc<SyncPeer>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// In the order in which they came. `behind`: what is behind a place in the log of the database of an instance; none where there is
    /// no such database, or nothing is known of its log.
    pub fn figures(
        &self,
        mut behind: impl FnMut(u64, u64) -> Option<Behind>,
        now: Timestamp,
    ) -> Vec<SyncPeerFigures> {
        self.connected().iter().map(|peer| peer.figures(&mut behind, now)).collect()
    }

    /// The places in the log of this database, by its instance, up to which consumers have been served.
    pub fn positions(&self, instance: u64) -> BTreeSet<u64> {
        let of = |peer: &Arc<SyncPeer>| {
            let reached = peer.reached.lock().unwrap_or_else(PoisonError::into_inner);
            let own = reached.positions.iter().filter(|(of, _)| *of == instance);
            own.map(|(_, position)| *position).collect::<Vec<_>>()
        };
        self.connected().iter().flat_map(of).collect()
    }
}

/// What is behind a place in a change log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    pub records: u64,
    /// When the change of the first of them was made; none where there is none.
    pub since: Option<Timestamp>,
}

impl Behind {
    /// What is behind this place, as a snapshot shows it.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn of<N: Snapshot>(snapshot: &N, at: LogKey) -> Result<Self, Fault> {
        let last = log::last_sequence(snapshot, at.server_id)?;
        Ok(Self { records: last.saturating_sub(at.sequence), since: log::time_after(snapshot, at)? })
    }
}

impl SyncPeer {
    /// Notes how far its search has come.
    pub fn reached<S: Store>(&self, search: &SyncSearch<S>) {
        search.reached(&mut self.reached.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn figures(
        &self,
        behind: &mut impl FnMut(u64, u64) -> Option<Behind>,
        now: Timestamp,
    ) -> SyncPeerFigures {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut figures = SyncPeerFigures {
            rid: self.rid,
            address: self.address.clone(),
            identity: self.identity.clone(),
            base: self.base.clone(),
            since: self.since,
            phase: reached.phase,
            csns: reached.csns,
            position: reached.positions.first().map_or(0, |(_, position)| *position),
            behind: 0,
            behind_micros: 0,
        };
        for (instance, position) in reached.positions {
            let Some(behind) = behind(instance, position) else { continue };
            figures.behind += behind.records;
            if let Some(time) = behind.since {
                let micros = u64::try_from(now.0.saturating_sub(time.0)).unwrap_or(0);
                figures.behind_micros = figures.behind_micros.max(micros);
            }
        }
        figures
    }
}
