//! Searches of consumers (RFC 4533): where the content is provided, and by which of its databases.

use std::sync::Arc;

use larix_engine::controls::{ContentSync, RequestControls};
use larix_engine::log::Follower;
use larix_proto::{ControlBuf, DerefAliases, LdapResult, ResultCode};
use larix_replication::provider::{Asked, Start, Stepped, SyncSearch};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;

use super::config_sync::{self, ConfigSearch};
use super::search::{End, First, New, Search, budget, glued};
use crate::databases::Databases;
use crate::server::Server;
use crate::sync_peers::SyncPeer;

/// How a slice of a search ended.
#[derive(Debug)]
pub enum Slice {
    More,
    /// Nothing is to be done until its follower is told.
    Waiting,
    Done(LdapResult, Vec<ControlBuf>),
}

impl Databases {
    /// Whether any database has its content provided.
    pub(crate) fn provide(&self) -> bool {
        let mut databases = self.directory().databases().iter();
        databases.any(|served| served.database().current_settings().provider.is_some())
            || config_sync::is_provided(self.config())
    }
}

/// What is answered where content is not provided: nothing, if the control was not critical.
pub(super) fn refused(databases: &Databases, asked: Option<&ContentSync>) -> Option<LdapResult> {
    asked.filter(|asked| asked.critical).map(|_| {
        let text = match databases.provide() {
            true => "critical control unavailable in context",
            false => "critical extension is not recognized",
        };
        LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text)
    })
}

/// What a consumer is told whose way to settle conflicts is not that of the content.
fn another_mode(consumer: bool) -> LdapResult {
    let text = match consumer {
        true => {
            "the conflict mode of the content is `entry`, that of the consumer `value`: it has to be the same on all"
        }
        false => {
            "the conflict mode of the content is `value`: only Larix servers in that mode can be members or follow it"
        }
    };
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
}

/// Starts a consumer's search; `None` when the control is to be passed over.
pub(super) fn start(
    new: New<'_>,
    asked: &ContentSync,
    controls: &RequestControls,
    base: &NormalDn,
) -> Result<Option<First>, Box<End>> {
    let New { databases, request, .. } = new;
    let ended = |result: LdapResult| Box::new((result, Vec::new()));
    let provided = databases
        .directory()
        .select(base)
        .filter(|served| served.database().current_settings().provider.is_some());
    let Some(served) = provided else {
        return refused(databases, Some(asked)).map_or(Ok(None), |result| Err(ended(result)));
    };
    if matches!(request.deref, DerefAliases::InSearching | DerefAliases::Always) {
        return Err(ended(LdapResult::with(ResultCode::PROTOCOL_ERROR, "illegal value for derefAliases")));
    }
    // The order is the provider's, and nothing goes by pages.
    let controls = controls.with(|values| (values.sort, values.vlv, values.paged) = (None, None, None));
    let mut parts = vec![(served.clone(), new.task_in(served, controls.clone(), request.scope, base)?)];
    for (served, suffix, scope) in glued(databases, request.scope, base) {
        parts.push((served.clone(), new.task_in(served, controls.clone(), scope, &suffix)?));
    }
    let values = controls.value_conflicts;
    if parts.iter().any(|(served, _)| served.database().current_settings().value_conflicts != values) {
        return Err(ended(another_mode(values)));
    }
    let any_entry = request.filter.to_string().eq_ignore_ascii_case("(objectClass=*)");
    let queue = new.server.refreshes.clone();
    let asked = Asked::new(asked);
    let now = new.server.both_clocks().0;
    let peer = new.server.sync_peers.add(new.subject, request.base, now, asked.rid);
    let search = SyncSearch::new(Start { asked, parts, any_entry, values, states: controls.states, queue });
    let search = Box::new(search);
    Ok(Some(First::Running(Search::synchronising(Synchronised::Stored { search, peer }))))
}

/// The same below cn=config; `None` when that is not provided.
pub(super) fn start_in_config(new: New<'_>, asked: &ContentSync, base: &NormalDn) -> Option<First> {
    if !base.is_within(&NormalDn::from_normal("cn=config"))
        || !config_sync::is_provided(new.databases.config())
    {
        return None;
    }
    let watch = &new.server.configuration_watch;
    let asked = Asked::new(asked);
    let search = ConfigSearch::new(asked, (new.subject, watch), base, new.request, new.message());
    Some(First::Running(Search::synchronising(Synchronised::Configuration(search))))
}

/// A consumer's search, and where it is shown how it stands.
#[derive(Debug)]
pub(super) enum Synchronised {
    Stored { search: Box<SyncSearch<LmdbStore>>, peer: Arc<SyncPeer> },
    Configuration(ConfigSearch),
}

impl Synchronised {
    pub(super) fn follow(&mut self, follower: Arc<Follower>) {
        match self {
            Self::Stored { search, .. } => search.follow(follower),
            Self::Configuration(search) => search.follow(follower),
        }
    }

    /// Entries sent and looked at.
    pub(super) fn effort(&self) -> (u64, u64) {
        match self {
            Self::Stored { search, .. } => search.effort(),
            Self::Configuration(search) => (search.sent(), search.sent()),
        }
    }

    pub(super) fn pause(&mut self) {
        match self {
            Self::Stored { search, .. } => search.pause(),
            // It is sent in one piece.
            Self::Configuration(_) => {}
        }
    }

    pub(super) fn step(&mut self, server: &Server, out: &mut Vec<u8>) -> Slice {
        let (search, peer) = match self {
            Self::Stored { search, peer } => (search, peer),
            Self::Configuration(search) => return search.step(server, out),
        };
        let stepped = search.step(budget(server), out);
        peer.reached(search);
        match stepped {
            Stepped::More => Slice::More,
            Stepped::Waiting => Slice::Waiting,
            Stepped::Done(result, controls) => Slice::Done(result, controls),
        }
    }
}
