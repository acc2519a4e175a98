//! The consumers that are connected to this server, and how far behind each is.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use larix_engine::Served;
use larix_engine::access::Subject;
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey};
use larix_engine::time::Timestamp;
use larix_store::Store;

use super::session::{Reached, SyncSearch};

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
    reached: Mutex<Reached>,
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

    /// In the order in which they came.
    pub fn figures<'d, S: Store + 'd>(
        &self,
        databases: impl Iterator<Item = &'d Arc<Served<S>>> + Clone,
        now: Timestamp,
    ) -> Vec<SyncPeerFigures> {
        let peers: Vec<Arc<SyncPeer>> = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        peers.iter().map(|peer| peer.figures(databases.clone(), now)).collect()
    }
}

impl SyncPeer {
    /// Notes how far its search has come.
    pub fn reached<S: Store>(&self, search: &SyncSearch<S>) {
        search.reached(&mut self.reached.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn figures<'d, S: Store + 'd>(
        &self,
        databases: impl Iterator<Item = &'d Arc<Served<S>>> + Clone,
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
            csns: reached.told,
            position: reached.positions.first().map_or(0, |(_, position)| *position),
            behind: 0,
            behind_micros: 0,
        };
        for (instance, position) in reached.positions {
            let Some(served) = databases.clone().find(|served| served.database().instance() == instance)
            else {
                continue;
            };
            let database = served.database();
            let Ok(snapshot) = database.store().snapshot() else { continue };
            let at = LogKey { server_id: database.server_id(), sequence: position };
            let last = log::last_sequence(&snapshot, at.server_id).unwrap_or(position);
            figures.behind += last.saturating_sub(position);
            if let Ok(Some(time)) = log::time_after(&snapshot, at) {
                let micros = u64::try_from(now.0.saturating_sub(time.0)).unwrap_or(0);
                figures.behind_micros = figures.behind_micros.max(micros);
            }
        }
        figures
    }
}
