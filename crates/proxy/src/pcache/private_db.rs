//! The control with which the root DN sees what is kept (OpenLDAP's privateDB): a search with it finds entries of the cache, each with
//! the UUIDs of the queries that it is kept for (`pcacheQueryID`).

use std::collections::BTreeMap;
use std::sync::Arc;

use larix_backend::memory_tree::MemoryTree;
use larix_backend::{Context, Cursor, Effort, Search, StepOutcome, lowered};
use larix_engine::controls::{OperationKind, OverlayControl, RequestControls};
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::search::task::Budget;
use larix_proto::{LdapResult, Response, ResultCode, Scope};
use larix_schema::NormalDn;

use super::CachingBackend;
use super::projection::Projection;
use super::query_urls::query_id_text;
use super::store::{Answer, CachedEntry, QueryId};

pub(super) static CONTROL: OverlayControl = OverlayControl {
    oid: "1.3.6.1.4.1.4203.666.11.9.5.1",
    name: "privateDB",
    // As in OpenLDAP.
    listed: false,
    goes_with: |operation| operation == OperationKind::Search,
    fault: |value| value.map(|_| "not absent"),
};

/// The attribute with the UUIDs of queries.
const QUERY_ID: &str = "pcacheQueryID";

/// Whether a request has the control.
pub(super) fn is_sent(controls: &RequestControls) -> bool {
    controls.of_overlay(CONTROL.oid).is_some()
}

/// An entry as the queries have it whose answers it is in.
type Copies = Vec<(QueryId, Arc<[CachedEntry]>, usize)>;

/// A search of what is kept.
#[derive(Debug)]
struct CacheSearch {
    /// Those in its scope that are still to be looked at.
    entries: std::collections::btree_map::IntoIter<NormalDn, Copies>,
    projection: Arc<Projection>,
    size_limit: Option<u32>,
    effort: Effort,
}

impl CachingBackend {
    /// Begins a search with the control.
    ///
    /// # Errors
    /// A requester that is not the root DN, a control that is not critical.
    pub(super) fn search_kept(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<Box<dyn Cursor>, LdapResult> {
        let is_critical = search.controls.of_overlay(CONTROL.oid).is_some_and(|sent| sent.critical);
        if !is_critical {
            let text = "privateDB control criticality required";
            return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, text));
        }
        if !self.inner.policy.is_root(context.subject) {
            let text = "pcachePrivDB: operation not allowed";
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        }
        let mut entries = BTreeMap::<NormalDn, Copies>::new();
        let mut has_base = search.base.depth() == 0;
        for cached in self.cache.all() {
            let Answer::Entries(answer) = &cached.answer else { continue };
            for (at, entry) in answer.iter().enumerate() {
                has_base |= entry.dn.is_within(search.base);
                if entry.dn.is_in_scope(search.base, search.request.scope) {
                    entries.entry(entry.dn.clone()).or_default().push((cached.id, Arc::clone(answer), at));
                }
            }
        }
        if !has_base && search.request.scope == Scope::Base {
            return Err(LdapResult::new(ResultCode::NO_SUCH_OBJECT));
        }
        Ok(Box::new(CacheSearch {
            entries: entries.into_iter(),
            projection: self.projection(context, search)?,
            size_limit: (search.request.size_limit > 0).then_some(search.request.size_limit),
            effort: Effort::default(),
        }))
    }
}

impl CacheSearch {
    /// The entry of all its copies: each may have other attributes.
    fn whole(&self, copies: &Copies) -> Option<Entry> {
        let schema = &self.projection.schema;
        let mut whole: Option<Entry> = None;
        for (_, answer, at) in copies {
            let message = &answer.get(*at)?.message;
            let Ok(Response::Entry(found)) =
                Response::decode_message(message).map(|decoded| decoded.response)
            else {
                continue;
            };
            let Some(known) = self.projection.entry_of(&found) else { continue };
            match &mut whole {
                None => whole = Some(known),
                Some(whole) => known.attributes.into_iter().for_each(|attribute| add(whole, attribute)),
            }
        }
        let mut whole = whole?;
        if let Ok(description) = schema.describe(QUERY_ID) {
            let ids = copies.iter().map(|(id, ..)| query_id_text(id).into_bytes()).collect();
            whole.attributes.push(EntryAttribute::new(description, ids));
        }
        Some(whole)
    }

    /// # Errors
    /// What the search ends with.
    fn answer(&mut self, dn: &NormalDn, copies: &Copies, out: &mut Vec<u8>) -> Result<(), LdapResult> {
        let Some(entry) = self.whole(copies) else { return Ok(()) };
        let Projection { schema, policy, subject, search, .. } = &*self.projection;
        let tree = MemoryTree::empty(schema, policy, subject);
        if !search.finds(&tree, dn, &entry).map_err(|fault| fault.to_result())? {
            return Ok(());
        }
        if self.size_limit.is_some_and(|limit| self.effort.entries >= u64::from(limit)) {
            return Err(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED));
        }
        search.write(&tree, dn, &entry, out);
        self.effort.entries += 1;
        Ok(())
    }
}

/// Adds the values that the entry lacks.
fn add(whole: &mut Entry, attribute: EntryAttribute) {
    match whole.attributes.iter_mut().find(|known| known.description == attribute.description) {
        Some(known) => {
            let is_new = |value: &Vec<u8>| !known.values.contains(value);
            let new: Vec<_> = attribute.values.into_iter().filter(is_new).collect();
            known.values.extend(new);
        }
        None => whole.attributes.push(attribute),
    }
}

impl Cursor for CacheSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        for _ in 0..budget.candidates.max(1) {
            let Some((dn, copies)) = self.entries.next() else {
                return StepOutcome::Done(LdapResult::success(), Vec::new());
            };
            self.effort.candidates += 1;
            if let Err(result) = self.answer(&dn, &copies, out) {
                return StepOutcome::Done(result, Vec::new());
            }
            if out.len() >= budget.bytes {
                break;
            }
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}
