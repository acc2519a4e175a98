//! A pass over the whole content: everything is sent, or named as present.

use std::collections::BTreeSet;

use larix_engine::entry::EntryId;
use larix_engine::log::{self, LogKey, OutlineKind};
use larix_engine::search::synchronised::Send;
use larix_engine::search::{Budget, Step};
use larix_engine::{EntryView, View};
use larix_proto::control::EntryState;
use larix_proto::{LdapResult, ResultCode};
use larix_store::{Snapshot, Store};

use super::fate;
use crate::provider::session::{DatabaseSearch, SyncSearch, failed};
use crate::provider::tombstones::Tombstones;

/// A pass over the whole content.
#[derive(Debug)]
pub(in crate::provider) struct Walk {
    part: usize,
    /// The last record of the part's log that was looked at, once it was.
    late: Option<u64>,
    tombstones: Tombstones,
    present: bool,
}

impl Walk {
    pub(in crate::provider) fn new(present: bool) -> Self {
        Self { part: 0, late: None, tombstones: Tombstones::default(), present }
    }

    /// Whether consumers drop what was neither sent nor named.
    pub(in crate::provider) fn present(&self) -> bool {
        self.present
    }

    /// Goes on; answers whether it is done.
    pub(in crate::provider) fn slice<S: Store>(
        &mut self,
        search: &mut SyncSearch<S>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let (message, peer, server_id) = (search.message, search.request.peer, search.server_id());
        if self.part >= search.parts.len() {
            return self.tombstones.slice(search, budget, out);
        }
        let Some(part) = search.parts.get_mut(self.part) else { return Ok(true) };
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        if !peer {
            self.send_late(part, &view, server_id, out)?;
        }
        let Step::Done(result, _) = part.task.step(&view, out, budget) else { return Ok(false) };
        if !(result.is_success() || (self.part > 0 && result.code == ResultCode::NO_SUCH_OBJECT)) {
            return Err(result);
        }
        if let Some(mut refresh) = part.task.take_refresh() {
            refresh.flush(message, out);
            part.view = refresh.view.unwrap_or_default();
        }
        let remaining = part.task.size_limit().map(|limit| limit.saturating_sub(part.task.entries()));
        self.part += 1;
        self.late = None;
        if let (Some(remaining), Some(next)) = (remaining, search.parts.get_mut(self.part)) {
            next.task.limit_size(remaining);
        }
        Ok(false)
    }

    /// Sends what was renamed since the pass began, with what is above it: what comes from here on may be below it. A slapd makes a glue
    /// entry in the place of a superior that it does not know, and then can rename nothing to that name.
    fn send_late<S: Store, N: Snapshot>(
        &mut self,
        part: &mut DatabaseSearch<S>,
        view: &View<'_, N>,
        server_id: u16,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let late = self.late.get_or_insert(part.position);
        let mut renamed = Vec::new();
        let after = LogKey { server_id, sequence: *late };
        let visited = log::visit_outlines_after(view.snapshot, after, &mut |key, outline| {
            *late = key.sequence;
            if matches!(outline.kind, OutlineKind::ModifyDn { .. }) && !outline.local {
                renamed.push(outline.entry);
            }
            true
        });
        visited.map_err(|fault| failed(&fault))?;
        let mut sent = BTreeSet::new();
        for id in renamed {
            for id in path_of(view, id)?.into_iter().rev().filter(|id| sent.insert(*id)) {
                let add = Send { state: EntryState::Add, cookie: None, name: None };
                fate(part, self.part, view, id, out, &mut |_| Some(add.clone()))?;
            }
        }
        Ok(())
    }
}

/// An entry, and those above it.
fn path_of<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Vec<EntryId>, LdapResult> {
    let (mut path, mut at) = (Vec::new(), id);
    while at != EntryId::ROOT {
        let Some(stored) = view.stored(at).map_err(|fault| failed(&fault))? else { break };
        let entry = EntryView::parse(at, &stored).map_err(|error| failed(&error.into()))?;
        path.push(at);
        at = entry.parent();
    }
    Ok(path)
}
