//! A search that goes on with changes (draft-ietf-ldapext-psearch-03): over a database, and those glued below it that tell theirs.

use std::sync::Arc;

use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_proto::control::PersistentSearch;
use larix_replication::persistent::{Changes, SliceOutcome, Start};
use larix_store::lmdb::LmdbStore;

use super::StoredBackend;
use larix_backend::{Backend, Context, Cursor, Effort, End, Search, StepOutcome};

/// Begins it.
pub(super) fn start(
    stored: &StoredBackend,
    context: &Context<'_>,
    search: Search<'_>,
    asked: PersistentSearch,
) -> Result<Box<dyn Cursor>, Box<End>> {
    let Search { request, base, controls, message } = search;
    let whole = Search { request, base, controls: controls.clone(), message };
    let mut parts = vec![(Arc::clone(&stored.served), stored.task_later(context, whole)?)];
    for (backend, suffix, scope) in context.router.glued_below(base, request.scope) {
        let Some(below) = StoredBackend::of(backend).filter(|below| below.tells_changes()) else { continue };
        let mut request = request;
        request.scope = scope;
        let part = Search { request, base: suffix, controls: controls.clone(), message };
        parts.push((Arc::clone(&below.served), below.task_later(context, part)?));
    }
    let any_entry = request.filter.to_string().eq_ignore_ascii_case("(objectClass=*)");
    let changes = Changes::new(Start { asked, parts, any_entry, message });
    Ok(Box::new(Persistent { changes: changes.map_err(|result| Box::new((result, Vec::new())))? }))
}

#[derive(Debug)]
struct Persistent {
    changes: Changes<LmdbStore>,
}

impl Cursor for Persistent {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        match self.changes.step(budget, out) {
            SliceOutcome::More => StepOutcome::More,
            SliceOutcome::Waiting => StepOutcome::Waiting,
            SliceOutcome::Done(result, controls) => StepOutcome::Done(result, controls),
        }
    }

    fn effort(&self) -> Effort {
        let (entries, candidates) = self.changes.effort();
        Effort { entries, candidates }
    }

    fn waits(&self) -> bool {
        true
    }

    fn waits_for_changes(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.changes.follow(&follower);
    }
}
