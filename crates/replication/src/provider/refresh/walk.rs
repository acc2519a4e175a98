//! A pass over the whole content: everything is sent, or named as present.

use std::collections::BTreeMap;

use larix_engine::View;
use larix_engine::entry::EntryId;
use larix_engine::log::{self, LogKey, OutlineKind};
use larix_engine::search::synchronised::{Fate, Send};
use larix_engine::search::{Budget, Step};
use larix_proto::control::EntryState;
use larix_proto::{LdapResult, ResultCode};
use larix_store::{Snapshot, Store};

use super::changed::{name_of, path_of};
use super::scan::SCAN_RECORDS;
use super::{LATE_NAMES_MAX, fate};
use crate::provider::session::{DatabaseSearch, SyncSearch, failed};
use crate::provider::tombstones::Tombstones;

/// A pass over the whole content.
#[derive(Debug)]
pub(in crate::provider) struct Walk {
    part: usize,
    /// The last record of the part's log that was looked at, once it was.
    late: Option<u64>,
    /// Names that entries of the part have left since the pass began, and may have for the consumer still.
    late_names: BTreeMap<String, EntryId>,
    tombstones: Tombstones,
    present: bool,
}

impl Walk {
    pub(in crate::provider) fn new(present: bool) -> Self {
        let late_names = BTreeMap::new();
        Self { part: 0, late: None, late_names, tombstones: Tombstones::default(), present }
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
        if !(peer || self.send_late((part, &view), server_id, budget, out)?) {
            return Ok(false);
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
        self.late_names.clear();
        if let (Some(remaining), Some(next)) = (remaining, search.parts.get_mut(self.part)) {
            next.task.limit_size(remaining);
        }
        Ok(false)
    }

    /// Sends what was renamed since the pass began, with what is above it: what comes from here on may be below it. A slapd makes a glue
    /// entry in the place of a superior that it does not know, and then can rename nothing to that name. False: there is more of it.
    fn send_late<S: Store, N: Snapshot>(
        &mut self,
        (part, view): (&mut DatabaseSearch<S>, &View<'_, N>),
        server_id: u16,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        if self.late_names.len() > LATE_NAMES_MAX {
            return Ok(true);
        }
        let late = *self.late.get_or_insert(part.position);
        let (mut records, mut reached, mut count) = (Vec::new(), late, 0);
        let after = LogKey { server_id, sequence: late };
        let visited = log::visit_outlines_after(view.snapshot, after, &mut |key, outline| {
            if count == SCAN_RECORDS {
                return false;
            }
            count += 1;
            reached = key.sequence;
            let leaves = matches!(outline.kind, OutlineKind::ModifyDn { .. } | OutlineKind::Delete);
            if leaves && !(outline.local || outline.absent) {
                records.push((key.sequence, outline));
            }
            true
        });
        visited.map_err(|fault| failed(&fault))?;
        for (_, outline) in &records {
            self.late_names.entry(outline.dn.to_lowercase()).or_insert(outline.entry);
        }
        let mut sent = BTreeMap::new();
        for (sequence, outline) in records {
            if out.len() >= budget.bytes {
                return Ok(false);
            }
            let (id, name) = (outline.entry, outline.dn.to_lowercase());
            if outline.kind != OutlineKind::Delete
                && self.send_renamed((part, view), id, &mut sent, out)?
                && self.late_names.get(&name) == Some(&id)
            {
                self.late_names.remove(&name);
            }
            self.late = Some(sequence);
        }
        self.late = Some(reached);
        Ok(count < SCAN_RECORDS)
    }

    /// Sends an entry that was renamed, with what is above it. False: it belongs to no content, or it waits for the persist stage, since
    /// another one may have such a name for the consumer still, and has to leave it first. `sent`: what was, and whether it belongs to
    /// the content.
    fn send_renamed<S: Store, N: Snapshot>(
        &self,
        (part, view): (&mut DatabaseSearch<S>, &View<'_, N>),
        id: EntryId,
        sent: &mut BTreeMap<EntryId, bool>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let mut path = path_of(view, id)?;
        path.retain(|at| !sent.contains_key(at));
        for at in &path {
            let name = name_of(view, *at)?.unwrap_or_default();
            if self.late_names.get(&name).is_some_and(|holder| holder != at) {
                return Ok(false);
            }
        }
        for at in path.into_iter().rev() {
            let add = Send { state: EntryState::Add, cookie: None, name: None };
            let fate = fate(part, self.part, view, at, out, &mut |_| Some(add.clone()))?;
            if fate == Fate::Content {
                part.task.note_sent(at);
            }
            sent.insert(at, fate == Fate::Content);
        }
        Ok(sent.get(&id).copied().unwrap_or_default())
    }
}
