//! A consumer's search (RFC 4533): over a database whose content is provided, and those glued below it.

use std::sync::Arc;

use larix_engine::controls::ContentSync;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{LdapResult, ResultCode};
use larix_replication::provider::{SliceOutcome, Start, SyncPeer, SyncSearch};
use larix_store::lmdb::LmdbStore;

use super::StoredBackend;
use super::glued_content::{Builder, GluedContent, Progress};
use crate::access_log::Gate;
use crate::backends::consumer_search::{self, ConsumerSearch};
use larix_backend::{Context, Cursor, Effort, End, Search, StepOutcome};

/// Begins it. `gate`: of an access log, what is to be there first. A consumer that has just been sent the entries knows changes that the
/// log may not have yet, and would be refused as one that is ahead of its provider.
pub(super) fn start(
    stored: &StoredBackend,
    context: &Context<'_>,
    search: Search<'_>,
    control: &ContentSync,
    gate: Option<Gate>,
) -> Result<Box<dyn Cursor>, Box<End>> {
    let ended = |result: LdapResult| Box::new((result, Vec::new()));
    let search = consumer_search::prepared(search).map_err(ended)?;
    let Search { request, base, ref controls, message } = search;
    let whole = Search { request, base, controls: controls.clone(), message };
    let mut glued_content = Builder::new(&search);
    let mut parts = vec![(Arc::clone(&stored.served), stored.task_later(context, whole)?)];
    for (backend, suffix, scope) in context.router.glued_below(base, request.scope) {
        let Some(below) = StoredBackend::of(backend) else {
            glued_content.add((backend, suffix, scope));
            continue;
        };
        let mut request = request;
        request.scope = scope;
        let part = Search { request, base: suffix, controls: controls.clone(), message };
        parts.push((Arc::clone(&below.served), below.task_later(context, part)?));
    }
    let values = controls.value_conflicts;
    if parts.iter().any(|(served, _)| served.database().current_settings().value_conflicts != values) {
        return Err(ended(consumer_search::another_mode(values)));
    }
    if values && !glued_content.is_empty() {
        let text = "the conflict mode is `value`: what other servers keep cannot be part of the content";
        return Err(ended(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)));
    }
    let services = &stored.common.services;
    let consumer = ConsumerSearch::new(services, context, &search, control);
    let ConsumerSearch { request, any_entry, queue, peer } = consumer;
    let states = controls.states;
    let has_glued = !glued_content.is_empty();
    let persist = request.persist;
    let search = SyncSearch::new(Start {
        asked: request,
        parts,
        any_entry,
        values,
        states,
        elsewhere: has_glued,
        queue,
    });
    let glued_content = has_glued.then(|| {
        let schema = Arc::clone(&stored.common.config.schema);
        let clock: Arc<dyn Clock> = services.clock.clone();
        Box::new(glued_content.build(context, (schema, clock), (persist, search.cookie_elsewhere())))
    });
    Ok(Box::new(Synchronised { search, glued_content, buffer: Vec::new(), peer, gate }))
}

/// A consumer's search, and where it is shown how it stands.
#[derive(Debug)]
struct Synchronised {
    search: SyncSearch<LmdbStore>,
    /// What of the content other servers keep.
    glued_content: Option<Box<GluedContent>>,
    /// Changes of what is stored here, until those are sent that other servers keep and that this server heard of before.
    buffer: Vec<u8>,
    peer: Arc<SyncPeer>,
    gate: Option<Gate>,
}

impl Synchronised {
    /// Goes on with what is stored here and with what other servers keep. A change is sent behind those that this server heard of before
    /// it: a consumer that judges an entry by its CSN passes over one that comes behind a later change (ADR 0105).
    fn go_on(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<SliceOutcome, LdapResult> {
        let Some(glued_content) = &mut self.glued_content else { return Ok(self.search.step(budget, out)) };
        let mut stepped = SliceOutcome::More;
        if !glued_content.is_busy() {
            stepped = self.search.step(budget, &mut self.buffer);
            if matches!(stepped, SliceOutcome::Elsewhere) {
                out.append(&mut self.buffer);
                return Ok(match glued_content.refresh(budget, out)? {
                    Progress::More => SliceOutcome::More,
                    Progress::Waiting => SliceOutcome::Waiting,
                    Progress::End => self.search.elsewhere_sent(out),
                });
            }
            if matches!(stepped, SliceOutcome::Done(..)) {
                out.append(&mut self.buffer);
                return Ok(stepped);
            }
            if self.search.persists() {
                glued_content.gather()?;
            }
        }
        Ok(match glued_content.persist(budget, out)? {
            Progress::More => SliceOutcome::More,
            Progress::Waiting => SliceOutcome::Waiting,
            Progress::End => {
                out.append(&mut self.buffer);
                stepped
            }
        })
    }
}

impl Cursor for Synchronised {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(answer) = Gate::closed(&mut self.gate) {
            return answer;
        }
        let stepped = self.go_on(budget, out);
        self.peer.reached(&self.search);
        match stepped.unwrap_or_else(|result| SliceOutcome::Done(result, Vec::new())) {
            SliceOutcome::More => StepOutcome::More,
            SliceOutcome::Waiting | SliceOutcome::Elsewhere => StepOutcome::Waiting,
            SliceOutcome::Done(result, controls) => StepOutcome::Done(result, controls),
        }
    }

    fn effort(&self) -> Effort {
        let (entries, candidates) = self.search.effort();
        let glued_entries = self.glued_content.as_ref().map_or(0, |glued_content| glued_content.entries());
        Effort { entries: entries + glued_entries, candidates: candidates.saturating_add(glued_entries) }
    }

    fn waits(&self) -> bool {
        true
    }

    fn waits_for_changes(&self) -> bool {
        self.gate.is_none()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(gate) = &mut self.gate {
            gate.follow(Arc::clone(&follower));
        }
        if let Some(glued_content) = &mut self.glued_content {
            glued_content.follow(&follower);
        }
        self.search.follow(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.glued_content.as_ref().and_then(|glued_content| glued_content.deadline())
    }

    fn pause(&mut self) {
        self.search.pause();
    }
}
