//! A consumer's search (RFC 4533): over a database whose content is provided, and those glued below it.

use std::sync::Arc;

use larix_engine::controls::ContentSync;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_proto::{DerefAliases, LdapResult, ResultCode};
use larix_replication::provider::SyncPeer;
use larix_replication::provider::{ConsumerRequest, Start, Stepped, SyncSearch};
use larix_store::lmdb::LmdbStore;

use super::Stored;
use larix_backend::{Context, Cursor, Effort, End, Search, Slice};

/// The refusal for a consumer whose `conflict-mode` differs from that of the content.
pub(in crate::backends) fn another_mode(consumer: bool) -> LdapResult {
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

/// Begins it.
pub(super) fn start(
    stored: &Stored,
    context: &Context<'_>,
    search: Search<'_>,
    asked: &ContentSync,
) -> Result<Box<dyn Cursor>, Box<End>> {
    let ended = |result: LdapResult| Box::new((result, Vec::new()));
    let Search { request, base, controls, message } = search;
    if matches!(request.deref, DerefAliases::InSearching | DerefAliases::Always) {
        return Err(ended(LdapResult::with(ResultCode::PROTOCOL_ERROR, "illegal value for derefAliases")));
    }
    // The order is the provider's, and nothing goes by pages.
    let controls = controls.with(|values| (values.sort, values.vlv, values.paged) = (None, None, None));
    let whole = Search { request, base, controls: controls.clone(), message };
    let mut parts = vec![(Arc::clone(&stored.served), stored.task_later(context, whole)?)];
    for (backend, suffix, scope) in context.router.glued_below(base, request.scope) {
        let Some(below) = Stored::of(backend) else { continue };
        let mut request = request;
        request.scope = scope;
        let part = Search { request, base: suffix, controls: controls.clone(), message };
        parts.push((Arc::clone(&below.served), below.task_later(context, part)?));
    }
    let values = controls.value_conflicts;
    if parts.iter().any(|(served, _)| served.database().current_settings().value_conflicts != values) {
        return Err(ended(another_mode(values)));
    }
    let any_entry = request.filter.to_string().eq_ignore_ascii_case("(objectClass=*)");
    let services = &stored.common.services;
    let queue = services.refreshes.clone();
    let asked = ConsumerRequest::new(asked);
    let now = services.now();
    let peer = services.sync_peers.add(context.subject, request.base, now, asked.rid);
    let search = SyncSearch::new(Start { asked, parts, any_entry, values, states: controls.states, queue });
    Ok(Box::new(Synchronised { search, peer }))
}

/// A consumer's search, and where it is shown how it stands.
#[derive(Debug)]
struct Synchronised {
    search: SyncSearch<LmdbStore>,
    peer: Arc<SyncPeer>,
}

impl Cursor for Synchronised {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Slice {
        let stepped = self.search.step(budget, out);
        self.peer.reached(&self.search);
        match stepped {
            Stepped::More => Slice::More,
            Stepped::Waiting => Slice::Waiting,
            Stepped::Done(result, controls) => Slice::Done(result, controls),
        }
    }

    fn effort(&self) -> Effort {
        let (entries, candidates) = self.search.effort();
        Effort { entries, candidates }
    }

    fn waits(&self) -> bool {
        true
    }

    fn waits_for_changes(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.search.follow(follower);
    }

    fn pause(&mut self) {
        self.search.pause();
    }
}
