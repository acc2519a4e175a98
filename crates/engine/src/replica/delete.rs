//! Deletes of other servers: the last word, unless the entry began anew behind it.

use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::apply::Applier;
use super::steps::{self, LocalEntry};
use super::{ApplyOutcome, ConflictKind, ConflictNote, KeptSide, ReplicatedPart, state};
use crate::csn::Csn;
use crate::entry::EntryId;
use crate::failure::Failure;
use crate::log::LoggedChange;
use crate::write::operational::Stamp;
use crate::write::operator::LogMark;

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    pub(super) fn delete(&mut self, uuid: &Uuid, csn: Option<Csn>) -> Result<ApplyOutcome, Failure> {
        if let Some(csn) = &csn {
            self.follow(csn);
        }
        let (local, tombstone) = self.step(|op| {
            let local = steps::find(op, uuid)?.map(|id| steps::local_entry(op, id)).transpose()?;
            let tombstone = state::tombstone(op.snapshot(), uuid)?;
            Ok((local, tombstone))
        })?;
        let Some(local) = local else {
            if self.rules.elsewhere {
                return Ok(ApplyOutcome::Older);
            }
            let stamp = match csn.or(self.newest) {
                Some(csn) if tombstone.is_none_or(|tombstone| tombstone.csn < csn) => {
                    Stamp { csn, name: String::new() }
                }
                // The time of the delete is unknown: it is sent on with the current time.
                None if tombstone.is_none() && self.rules.multi_provider => self.own_stamp(),
                _ => return Ok(ApplyOutcome::Older),
            };
            self.stamp = stamp;
            self.bury_absent(uuid)?;
            return Ok(ApplyOutcome::Done);
        };
        let has_moved = |part: &ReplicatedPart| {
            let is_newer = csn.is_some() && local.csn >= csn;
            is_newer || !local.dn.is_in_scope(&part.base, part.scope)
        };
        // On a member a delete is the last word.
        let part = self.rules.part.as_ref().filter(|_| !self.rules.multi_provider);
        if part.is_some_and(has_moved) {
            // It left the part of this line, and another line has brought it.
            return Ok(ApplyOutcome::Older);
        }
        let delete_csn = csn.or(self.newest);
        let csn = match self.rules.elsewhere {
            true => delete_csn.max(local.csn),
            false => delete_csn.or(local.csn),
        };
        let csn = csn.unwrap_or(Csn::ZERO);
        self.stamp = Stamp { csn, name: String::new() };
        self.delete_local(local, csn)
    }

    /// Logs the delete of an entry that is not here, and remembers it.
    pub(super) fn bury_absent(&mut self, uuid: &Uuid) -> Result<(), Failure> {
        self.step(|op| {
            let mark = LogMark { absent: true, ..LogMark::default() };
            // An id that no entry has: who reads the log tells entries by their ids.
            let nowhere = (op.next_entry_id(), EntryId::ROOT);
            op.log_marked(nowhere, *uuid, "", mark, |_| LoggedChange::Delete);
            op.bury(uuid);
            Ok(())
        })
    }

    fn delete_local(&mut self, local: LocalEntry, csn: Csn) -> Result<ApplyOutcome, Failure> {
        let newer = local.csn.filter(|ours| *ours > csn);
        if newer.is_some() && (!self.rules.multi_provider && self.is_covered(&csn)) {
            return Ok(ApplyOutcome::Older);
        }
        let born = self.step(|op| {
            let current = op.current_entry(local.id)?;
            op.first_value(&current, op.context.known.create_timestamp).map_err(Failure::from)
        })?;
        let born =
            born.and_then(|text| crate::time::Timestamp::parse_generalized(std::str::from_utf8(&text).ok()?));
        if newer.is_some() && born.is_some_and(|born| born.seconds() > csn.time.seconds()) {
            return Ok(ApplyOutcome::Older);
        }
        let mut applied = ApplyOutcome::Done;
        let is_conflict = newer.is_some() && !self.is_covered(&csn);
        if is_conflict {
            let (dn, lost) = self.step(|op| steps::values_of(op, local.id))?;
            applied = self.note(ConflictNote {
                kind: ConflictKind::Delete,
                kept: KeptSide::Theirs,
                dn,
                winner_uuid: local.uuid,
                winner_csn: Some(csn),
                loser_uuid: local.uuid,
                loser_csn: local.csn,
                lost,
            })?;
        }
        let left = self.step(|op| steps::hollow(op, local.id, true))?;
        if !left {
            self.clear_glue(local.parent)?;
        }
        if is_conflict && self.rules.multi_provider || self.rules.tells_deletes_again {
            // The server that made the delete did not know of the change, and may have forgotten the delete when the
            // change reaches it. So the delete is sent again, as where the change comes later. Who follows logs is
            // not sent what has a CSN of its own.
            self.stamp = self.own_stamp();
            self.bury_absent(&local.uuid)?;
        }
        Ok(applied)
    }
}
