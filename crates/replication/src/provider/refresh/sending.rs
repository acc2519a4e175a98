//! The last stage of a refresh from the log: everything is sent in the order of CSNs, but for what has to be out of the way.
//!
//! When a slapd receives a delete it assumes that it has seen everything up to the delete's CSN. It then passes over older entries
//! that come later, and tells others that it has them. **So an entry goes before every delete that came after any of its changes.**

use larix_engine::View;
use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::log::{self, LogKey, OutlineKind};
use larix_engine::search::Budget;
use larix_engine::search::synchronised::{Fate, Send, state_control};
use larix_proto::control::EntryState;
use larix_proto::encode::EntryEncoder;
use larix_proto::extended::SyncInfo;
use larix_proto::{LdapResult, MessageId, ResultCode, encode};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::changed::{Change, Changed, name_of, note, note_above, topmost};
use super::pending_deletes::Tombstone;
use super::scan::SCAN_RECORDS;
use super::{LATE_NAMES_MAX, LogRefresh, fate};
use crate::provider::decide::cookie;
use crate::provider::passes::PassProgress;
use crate::provider::proof::proved;
use crate::provider::session::{DatabaseSearch, failed};

/// Entries that wait for each other's names at most.
const RING_MAX: usize = 64;

impl LogRefresh {
    /// Tells what was gone before a change, or all of it. Answers whether that is done.
    pub(super) fn send_deletes(
        &mut self,
        message: MessageId,
        before: Option<Csn>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        while let Some(tombstone) = self.pending_deletes.first(before) {
            if out.len() >= budget.bytes {
                return false;
            }
            // What a later pass tells may have changed before this, too.
            let is_proved = self.high.is_none() && self.start.covers(&tombstone.0);
            self.send_tombstone(message, tombstone, is_proved, out);
        }
        true
    }

    /// `is_proved`: the consumer has received everything up to this CSN, and this server has it.
    fn send_tombstone(
        &mut self,
        message: MessageId,
        (csn, uuid): Tombstone,
        is_proved: bool,
        out: &mut Vec<u8>,
    ) {
        self.pending_deletes.note_sent((csn, uuid));
        if !(is_proved || self.peer) {
            return self.send_unproved(message, uuid, out);
        }
        let cookie = cookie(self.rid, self.server_id, proved(&self.known, &self.start, &csn).as_slice());
        let cookie = format!("{cookie},delcsn={}", csn.text());
        let info =
            SyncInfo::IdSet { cookie: Some(cookie.as_bytes()), deletes: true, uuids: vec![*uuid.as_bytes()] };
        encode::intermediate(out, message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
    }

    /// A delete out of its turn: another entry takes the name. `is_new`: an entry that the consumer does not have
    /// yet. A slapd that has entries below the one that is gone refuses the delete of one entry, and asks for all
    /// again, each time. What a set names becomes glue there, which a new entry takes over.
    fn send_early(&mut self, message: MessageId, (csn, uuid): Tombstone, is_new: bool, out: &mut Vec<u8>) {
        if self.peer || !is_new {
            return self.send_tombstone(message, (csn, uuid), false, out);
        }
        self.pending_deletes.note_sent((csn, uuid));
        let info = SyncInfo::IdSet { cookie: None, deletes: true, uuids: vec![*uuid.as_bytes()] };
        encode::intermediate(out, message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
    }

    /// A delete that says nothing of how far the consumer has come. A slapd takes it in this form whatever it has; of a set
    /// of entryUUIDs it deletes only what the cookie beside it covers.
    fn send_unproved(&self, message: MessageId, uuid: Uuid, out: &mut Vec<u8>) {
        let control = state_control(EntryState::Delete, uuid, None);
        EntryEncoder::begin(out, message, &self.base).finish(&[control]);
    }

    /// Has an entry leave its name before it is sent anew. A slapd deletes what a set names only as the cookie beside it covers it:
    /// if another provider has sent the entry anew already, it stays.
    fn send_leaving(&self, message: MessageId, uuid: Uuid, out: &mut Vec<u8>) {
        let cookie = cookie(self.rid, self.server_id, self.known.as_slice());
        let info =
            SyncInfo::IdSet { cookie: Some(cookie.as_bytes()), deletes: true, uuids: vec![*uuid.as_bytes()] };
        encode::intermediate(out, message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
    }

    /// Sends a slice of what is there.
    pub(super) fn sends<S: Store>(
        &mut self,
        part: &mut DatabaseSearch<S>,
        number: usize,
        budget: Budget<'_>,
        changed: &mut Changed,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        if !self.note_late(number, &view, changed)? {
            return Ok(());
        }
        for _ in 0..budget.candidates {
            let Some(&(csn, _, id)) = self.order.front().filter(|(_, of, _)| *of == number) else { break };
            if out.len() >= budget.bytes || !self.send_deletes(part.task.message(), Some(csn), budget, out) {
                break;
            }
            // It is sent already where another asked for it; a superior that has to go before it goes alone.
            if changed.contains_key(&id) {
                self.send((part, number), &view, id, changed, &mut Vec::new(), out)?;
            } else {
                self.order.pop_front();
            }
        }
        Ok(())
    }

    /// Takes in what was renamed since the log was looked at: what is sent from here on may be below it. A slapd makes a glue entry in
    /// the place of a superior that it does not know, and then can rename nothing to that name. False: there is more of the log.
    fn note_late<N: Snapshot>(
        &mut self,
        number: usize,
        view: &View<'_, N>,
        changed: &mut Changed,
    ) -> Result<bool, LdapResult> {
        let (known, names, server_id) = (&self.known, &mut self.late_names, self.server_id);
        let Some(late) = self.late.get_mut(number) else { return Ok(true) };
        if self.peer || names.len() > LATE_NAMES_MAX {
            return Ok(true);
        }
        let (mut moved, mut count) = (Vec::new(), 0);
        let after = LogKey { server_id, sequence: *late };
        let visited = log::visit_outlines_after(view.snapshot, after, &mut |key, outline| {
            if count == SCAN_RECORDS {
                return false;
            }
            count += 1;
            *late = key.sequence;
            let leaves = matches!(outline.kind, OutlineKind::ModifyDn { .. } | OutlineKind::Delete);
            let is_known = outline.kind != OutlineKind::Delete && known.covers(&outline.csn);
            if !leaves || outline.local || outline.absent || is_known {
                return true;
            }
            // Its turn comes in the persist stage: nothing waits for its old name here, and it waits for that stage if its new name has
            // to be freed first.
            let is_free = !names.contains(&outline.dn_behind().to_lowercase());
            names.insert(outline.dn.to_lowercase());
            if let OutlineKind::ModifyDn { new_superior, .. } = &outline.kind
                && is_free
            {
                moved.extend(new_superior.as_ref().map(|_| outline.entry));
                note(changed, &outline, true);
            }
            true
        });
        visited.map_err(|fault| failed(&fault))?;
        let nothing = PassProgress::default();
        note_above(view, changed, (&self.start, self.passes.get(number).unwrap_or(&nothing)), &moved)?;
        Ok(count < SCAN_RECORDS)
    }

    /// Sends an entry; before it what has to be there, or out of its way.
    fn send<S: Store, N: Snapshot>(
        &mut self,
        (part, number): (&mut DatabaseSearch<S>, usize),
        view: &View<'_, N>,
        id: EntryId,
        changed: &mut Changed,
        under_way: &mut Vec<EntryId>,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        // A superior that has changed, too, comes first: it may have this entry's new place in its name.
        let nothing = PassProgress::default();
        let id = topmost(view, changed, self.passes.get(number).unwrap_or(&nothing), under_way, id)?;
        under_way.push(id);
        let name = self.contested_name(view, id)?;
        if let Some(tombstone) = name.as_ref().and_then(|name| self.pending_deletes.named(name)) {
            let is_new = changed.get(&id).is_some_and(|change| change.born);
            self.send_early(part.task.message(), tombstone, is_new, out);
        }
        if let Some(holder) = name.and_then(|name| self.holder(&name, number, id, changed)) {
            if under_way.contains(&holder) || under_way.len() > RING_MAX {
                // Names that go round: one of them leaves, and comes back as if it were new.
                if let Some(change) = changed.get(&holder) {
                    self.send_leaving(part.task.message(), change.uuid, out);
                }
                self.stale_names.retain(|_, of| *of != holder);
            } else {
                self.send((part, number), view, holder, changed, under_way, out)?;
            }
        }
        under_way.pop();
        self.send_one((part, number), view, id, changed.remove(&id), out)
    }

    /// Another that has this name for the consumer still, and will be told to have left it.
    fn holder(&self, name: &str, number: usize, id: EntryId, changed: &Changed) -> Option<EntryId> {
        let holder = self.stale_names.get(name).copied().filter(|holder| !self.peer && *holder != id)?;
        let is_left = || self.passes.get(number).is_some_and(|passes| passes.is_named(holder));
        (changed.contains_key(&holder) || is_left()).then_some(holder)
    }

    /// Sends an entry that nothing is in the way of. `change`: what is known of it, where it is its turn in this pass.
    fn send_one<S: Store, N: Snapshot>(
        &mut self,
        (part, number): (&mut DatabaseSearch<S>, usize),
        view: &View<'_, N>,
        id: EntryId,
        change: Option<Change>,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let (in_turn, is_moved) = (change.is_some(), change.as_ref().is_some_and(|change| change.moved));
        if in_turn && let Some(passes) = self.passes.get_mut(number) {
            passes.done(id);
        }
        match change.map(|change| change.old_name) {
            Some(Some(name)) => drop(self.stale_names.remove(&name)),
            Some(None) => {}
            // Before its turn: there are few.
            None => self.stale_names.retain(|_, of| *of != id),
        }
        if part.task.size_limit().is_some_and(|limit| part.task.entries() >= limit) {
            return Err(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED));
        }
        let each = &self.each_cookie;
        // What a glued database's base lacks was found out before.
        let fate = fate(part, 1, view, id, out, &mut |entry| {
            // Ahead of the contextCSN others may come yet that are older.
            let cookie = each.as_ref().zip(entry.csn.filter(|csn| self.start.covers(csn)));
            let cookie = cookie.map(|(begin, csn)| format!("{begin},csn={}", csn.text()));
            // It was moved, or an older change was merged with what the consumer knows.
            let is_known = entry.csn.is_some_and(|csn| self.known.covers(&csn));
            let come = self.cookie_moved.clone().filter(|_| is_moved || is_known);
            Some(Send { state: EntryState::Add, cookie: come.or(cookie), name: None })
        })?;
        if fate == Fate::Content {
            part.view.insert(id);
        }
        if let Some(passes) = self.passes.get_mut(number).filter(|_| !in_turn) {
            if fate == Fate::Content { passes.done(id) } else { passes.not_needed(id) }
        }
        Ok(())
    }

    /// What this entry is called, where another may be called so for the consumer still.
    fn contested_name<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        id: EntryId,
    ) -> Result<Option<String>, LdapResult> {
        if self.stale_names.is_empty() && !self.pending_deletes.has_names() {
            return Ok(None);
        }
        name_of(view, id)
    }
}
