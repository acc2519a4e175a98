//! An entry as another server has it: whether it counts beside what is here, and how what is here becomes it.

use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::apply::Applier;
use super::prepare::Put;
use super::steps::{self, LocalEntry, TreePosition};
use super::{ApplyOutcome, AttributeShare, ConflictKind, ConflictNote, KeptSide, conflicts, decided, state};
use crate::csn::Csn;
use crate::entry::split_rdn;
use crate::failure::Failure;
use crate::write::AttributeValues;
use crate::write::operational::Stamp;

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    pub(super) fn put_by_name(&mut self, put: &Put) -> Result<ApplyOutcome, Failure> {
        if let Some(csn) = &put.csn {
            self.follow(csn);
        }
        self.stamp = Stamp { csn: put.csn.unwrap_or(self.stamp.csn), name: put.modifier.clone() };
        let look = self.step(|op| {
            let id = steps::find(op, &put.uuid)?;
            let local = id.map(|id| steps::local_entry(op, id)).transpose()?;
            let absent = local.is_none();
            let tombstone = if absent { state::tombstone(op.snapshot(), &put.uuid)? } else { None };
            Ok((local, tombstone))
        })?;
        let (local, tombstone) = look;
        let version = self.state_of_put(put)?;
        if let Some(tombstone) = tombstone {
            // What left one part may have come into another: the line of that part knows.
            let moved = self.rules.part.is_some() && !self.rules.multi_provider;
            let newer = self.rules.elsewhere || moved || put.csn.is_none_or(|csn| csn > tombstone.csn);
            let stays_dead = self.rules.multi_provider && !(newer && self.born_after(put, &tombstone.csn));
            if stays_dead && put.csn.is_some_and(|csn| self.tells_again(put, &csn, &tombstone.csn)) {
                // A server that still has the entry may never hear of the delete: a present phase deletes nothing that the provider
                // has not seen in this version, and its cookie covers the delete.
                self.stamp = self.own_stamp();
                self.bury_absent(&put.uuid)?;
            }
            if !newer {
                return Ok(ApplyOutcome::Older);
            }
            if stays_dead {
                let note = lost_put(
                    ConflictKind::Delete,
                    put,
                    (put.uuid, Some(tombstone.csn)),
                    self.conflict_values(put),
                );
                return self.note(note);
            }
            self.step(|op| {
                state::unbury(&mut op.set, &put.uuid);
                Ok(())
            })?;
        }
        match (local, version) {
            (Some(local), None) => self.put_local(put, local),
            (Some(local), Some(version)) => {
                let before = self.before_settling(put, &local)?;
                let applied = self.put_version(put, version, local)?;
                match before {
                    Some(before) => self.settle_otherwise(put, before, applied),
                    None => Ok(applied),
                }
            }
            (None, None) => {
                let is_covered = put.csn.is_some_and(|csn| self.is_covered(&csn));
                let is_over = self.rules.drop_covered && is_covered && !self.rules.elsewhere;
                if is_over { Ok(ApplyOutcome::Older) } else { self.put_new(put) }
            }
            (None, Some(version)) => {
                let is_over = self.rules.drop_covered && self.is_all_covered(&version);
                if is_over || self.is_own_add(put) {
                    Ok(ApplyOutcome::Older)
                } else {
                    self.put_new_version(put, &version)
                }
            }
        }
    }

    /// Whether this server sends a delete again to all, since another server still has the entry. It does so when a change
    /// that is new here shows that. It also does so when a server sends the entry in a refresh though all of it was here
    /// before: the servers that know of the delete may forget it before that server hears of it, and take the entry back
    /// from it. This happens once: a delete under a CSN of this server has already been sent to all.
    fn tells_again(&self, put: &Put, csn: &Csn, delete: &Csn) -> bool {
        let is_refresh = !self.rules.drop_covered && put.record.is_none();
        let own = self.group.environment.order.server_id();
        !self.is_covered(csn) || is_refresh && delete.server_id != own
    }

    /// Whether it is the record of an add that this server made, and has in its contextCSN: the entry was here, so that where
    /// it is not here it was deleted, even if that is forgotten with the log's record of it. An entry that comes whole is
    /// another matter: its sender has it in spite of all deletes that it has heard of.
    fn is_own_add(&self, put: &Put) -> bool {
        let own = self.group.environment.order.server_id();
        let is_own = |csn: &Csn| own != 0 && csn.server_id == own && self.is_covered(csn);
        put.record.is_some() && put.csn.as_ref().is_some_and(is_own)
    }

    /// Whether the entry was created after the delete: another life under the same entryUUID.
    fn born_after(&self, put: &Put, delete: &Csn) -> bool {
        let id = self.group.known.create_timestamp;
        let created = super::prepare::first_value(&put.attributes, id);
        let created = created.and_then(crate::time::Timestamp::parse_generalized);
        created.is_some_and(|created| created.seconds() > delete.time.seconds())
    }

    pub(super) fn conflict_values(&self, put: &Put) -> Vec<AttributeValues> {
        let schema = &self.group.state.schema;
        conflicts::cut(put.attributes.iter().map(|change| AttributeValues {
            description: change.description.to_text(schema),
            values: change.values.clone(),
        }))
    }

    pub(super) fn put_new(&mut self, put: &Put) -> Result<ApplyOutcome, Failure> {
        let (place, occupant) = self.make_place((&put.dn, &put.pretty_dn), put.place.is_some())?;
        let rules = self.rules;
        let Some(occupant) = occupant else {
            self.step(|op| steps::add(op, put, rules, &place, None))?;
            return Ok(ApplyOutcome::Done);
        };
        if occupant.glue {
            self.fill_glue(occupant.id, put.place.is_some(), |applier| {
                applier.step(|op| steps::add(op, put, rules, &place, Some(occupant.id)))
            })?;
            return Ok(ApplyOutcome::Done);
        }
        // What stands beside a suffix is not of the database: the other entry goes below the one that stays.
        let is_suffix = self.step(|op| Ok(op.is_suffix(&put.dn)))?;
        if self.gets_name(put, &occupant) {
            let note = self.set_aside(&occupant, (put.uuid, put.csn))?;
            let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
            let id = self.step(|op| steps::add(op, put, rules, &place, glue))?;
            if is_suffix {
                let below = self.own_place(&occupant, id)?;
                self.step(|op| steps::move_to(op, occupant.id, &below))?;
            }
            return Ok(note);
        }
        let above = if is_suffix { occupant.id } else { place.parent };
        let own_position = steps::own_place(self.schema(), above, &put.uuid);
        self.step(|op| {
            let glue = steps::occupant(op, &own_position)?;
            let id = steps::add(op, put, rules, &own_position, glue)?;
            state::displace(&mut op.set, id, &put.dn);
            Ok(())
        })?;
        let lost = self.conflict_values(put);
        self.note(lost_put(ConflictKind::Name, put, (occupant.uuid, occupant.csn), lost))
    }

    fn put_local(&mut self, put: &Put, local: LocalEntry) -> Result<ApplyOutcome, Failure> {
        if let (Some(theirs), Some(ours)) = (put.csn, local.csn)
            && theirs <= ours
            // Copies of what no log here tells of: what comes is how it is, whatever is older, and a rename need not change the entry.
            && !(self.rules.elsewhere && (theirs < ours || put.dn != local.dn))
        {
            let went_back = theirs < ours && self.lost_by_provider(&ours);
            if theirs == ours && self.has_merged(put, &local)? {
                return self.put_named(put, local);
            }
            if !went_back && (theirs == ours || self.is_covered(&theirs)) {
                return Ok(ApplyOutcome::Older);
            }
            let lost = self.step(|op| {
                let current = op.current_entry(local.id)?;
                // What is only noted is compared whole.
                super::difference::changes(op, &current, &put.attributes, &AttributeShare::default())
            })?;
            let (csn, entry_csn) = (self.group.known.entry_csn, self.group.known.modify_timestamp);
            let modifier = self.group.known.modifiers_name;
            let own = [csn, entry_csn, modifier];
            let schema = Arc::clone(&self.group.state.schema);
            let lost = conflicts::cut(
                lost.iter().filter(|change| !own.contains(&change.description.attribute)).map(|change| {
                    AttributeValues {
                        description: change.description.to_text(&schema),
                        values: change.values.clone(),
                    }
                }),
            );
            if went_back {
                self.stamp = self.own_stamp();
                self.step(|op| decided::keep_content(op, local.id))?;
            }
            self.keep_name_known(put, &local)?;
            if lost.is_empty() {
                return Ok(ApplyOutcome::Older);
            }
            return self.note(lost_put(ConflictKind::Modify, put, (local.uuid, local.csn), lost));
        }
        self.put_named(put, local)
    }

    /// Whether the provider has merged older changes with the version that is here: that leaves the entryCSN as it is. A
    /// consumer of several providers receives the states of entries, or its providers merge nothing.
    fn has_merged(&mut self, put: &Put, local: &LocalEntry) -> Result<bool, Failure> {
        let rules = self.rules;
        if rules.multi_provider {
            return Ok(false);
        }
        self.step(|op| {
            let current = op.current_entry(local.id)?;
            Ok(!super::difference::changes(op, &current, &put.attributes, &rules.attributes)?.is_empty())
        })
    }

    /// Whether this change was made by the provider, which had told of it before.
    fn lost_by_provider(&self, csn: &Csn) -> bool {
        let newest = self.rules.provider.filter(|newest| newest.server_id == csn.server_id);
        self.rules.multi_provider && newest.is_some_and(|newest| *csn <= newest)
    }

    /// Another name of the entry than the one that it has here: entries may come that know it by that.
    pub(super) fn keep_name_known(&mut self, put: &Put, local: &LocalEntry) -> Result<(), Failure> {
        if local.dn == put.dn {
            return Ok(());
        }
        self.step(|op| {
            op.left(&put.dn, &put.uuid);
            match op.resolve(&put.dn)?.id {
                Some(id) if steps::local_entry(op, id)?.glue => {
                    state::note_glue(&mut op.set, id, put.place.is_some());
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// Makes the entry what comes, name included.
    pub(super) fn put_named(&mut self, put: &Put, local: LocalEntry) -> Result<ApplyOutcome, Failure> {
        let same_name = self.step(|op| {
            let pretty_dn = op.view.dn(&op.current_entry(local.id)?.view()?)?;
            Ok(local.dn == put.dn && split_rdn(&pretty_dn).0 == split_rdn(&put.pretty_dn).0)
        })?;
        if same_name {
            return self.put_in_place(put, &local);
        }
        self.put_elsewhere(put, local)
    }

    /// The entry is here under another name.
    pub(super) fn put_elsewhere(&mut self, put: &Put, local: LocalEntry) -> Result<ApplyOutcome, Failure> {
        let is_suffix = self.step(|op| Ok(op.is_suffix(&put.dn) || op.is_suffix(&local.dn)))?;
        if is_suffix && put.dn != local.dn {
            let text = format!("\"{}\": a suffix cannot be renamed", put.pretty_dn);
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
        }
        let moved = self.was_moved_below(put, &local)?;
        if moved {
            return self.stay(put, &local);
        }
        let (place, occupant) = self.make_place((&put.dn, &put.pretty_dn), put.place.is_some())?;
        let is_loop = self.step(|op| Ok(steps::is_within(op, place.parent, local.id)?))?;
        if is_loop {
            return self.stay(put, &local);
        }
        let occupant = occupant.filter(|occupant| occupant.id != local.id);
        let mut applied = ApplyOutcome::Done;
        if let Some(occupant) = occupant {
            if !occupant.glue && !self.gets_name(put, &occupant) {
                return self.lose_name(put, &local, &place, &occupant);
            }
            if !occupant.glue {
                applied = self.set_aside(&occupant, (put.uuid, put.csn))?;
            }
            let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
            if let Some(glue) = glue {
                let has_place = put.place.is_some();
                self.fill_glue(glue, has_place, |applier| applier.through_glue(&local, &place, glue))?;
            }
        }
        self.relocate(put, &local, &place)?;
        Ok(applied)
    }

    /// All of a put but its name, which would make a loop.
    fn stay(&mut self, put: &Put, local: &LocalEntry) -> Result<ApplyOutcome, Failure> {
        let pretty_dn = self.step(|op| Ok(op.view.dn(&op.current_entry(local.id)?.view()?)?))?;
        let stays = Put { dn: local.dn.clone(), pretty_dn, ..put.clone() };
        self.put_in_place(&stays, local)?;
        self.note(lost_put(ConflictKind::Loop, put, (local.uuid, local.csn), Vec::new()))
    }

    pub(super) fn put_in_place(&mut self, put: &Put, local: &LocalEntry) -> Result<ApplyOutcome, Failure> {
        let rules = self.rules;
        self.step(|op| steps::change(op, local.id, put, rules, None))?;
        Ok(ApplyOutcome::Done)
    }

    pub(super) fn relocate(
        &mut self,
        put: &Put,
        local: &LocalEntry,
        place: &TreePosition,
    ) -> Result<(), Failure> {
        let rules = self.rules;
        let superior = (local.parent != place.parent).then(|| split_rdn(&put.pretty_dn).1.to_owned());
        self.step(|op| steps::change(op, local.id, put, rules, Some((place, superior))))?;
        self.clear_glue(local.parent)
    }
}

pub(super) fn lost_put(
    kind: ConflictKind,
    put: &Put,
    (winner_uuid, winner_csn): (Uuid, Option<Csn>),
    lost: Vec<AttributeValues>,
) -> ConflictNote {
    ConflictNote {
        kind,
        kept: KeptSide::Ours,
        dn: put.pretty_dn.clone(),
        winner_uuid,
        winner_csn,
        loser_uuid: put.uuid,
        loser_csn: put.csn,
        lost,
    }
}
