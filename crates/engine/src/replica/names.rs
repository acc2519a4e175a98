//! Conflicts of names: which of two entries gets a name, where the other one goes with its subordinates, and when it gets its own
//! name back.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::apply::Applier;
use super::place::has_place_ahead;
use super::prepare::Put;
use super::put::lost_put;
use super::steps::{self, LocalEntry, TreePosition};
use super::{ApplyOutcome, ConflictKind, ConflictNote, KeptSide, decided, state};
use crate::csn::Csn;
use crate::entry::{EntryId, split_rdn};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::tree;

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// The place of a name, with glue for superiors that are missing, and who stands there.
    pub(super) fn make_place(
        &mut self,
        (dn, pretty_dn): (&NormalDn, &str),
        has_place: bool,
    ) -> Result<(TreePosition, Option<LocalEntry>), Failure> {
        for _ in 0..2 {
            let found = self.step(|op| {
                if op.view.settings.suffixes.iter().all(|suffix| !dn.is_within(&suffix.normal)) {
                    let text = format!("\"{pretty_dn}\" is not within the database");
                    return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
                }
                let Some(place) = steps::place_of(op, dn, pretty_dn)? else { return Ok(None) };
                let occupant = steps::occupant(op, &place)?;
                let occupant = occupant.map(|id| steps::local_entry(op, id)).transpose()?;
                Ok(Some((place, occupant)))
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
            self.step(|op| {
                let superior = dn.parent().unwrap_or_else(NormalDn::root);
                let (_, pretty_dn) = split_rdn(pretty_dn);
                steps::add_glue(op, &superior, pretty_dn, has_place)
            })?;
        }
        Err(Fault::Damaged { what: "the superiors of a replicated entry" }.into())
    }

    /// Whether an entry that comes gets the name that another one has here: the newer one does. On a shadow of a part of the tree
    /// the one that comes does: the entry here may have left the name with a superior that is not sent, while the
    /// provider has that entry there.
    pub(super) fn gets_name(&self, put: &Put, occupant: &LocalEntry) -> bool {
        let is_shadow = self.group.state.settings.shadow;
        let goes_by_provider = is_shadow && !self.rules.multi_provider && !self.rules.places;
        goes_by_provider || wins((put.named, put.uuid), (occupant.named, occupant.uuid))
    }

    /// An entry whose name another one gets goes under a name of its own beside it. What is below it goes with it where
    /// superiors are sent by their entryUUIDs; otherwise it stays.
    pub(super) fn set_aside(
        &mut self,
        loser: &LocalEntry,
        (winner, csn): (Uuid, Option<Csn>),
    ) -> Result<ApplyOutcome, Failure> {
        self.set_aside_below(loser, loser.parent, &loser.dn, (winner, csn))
    }

    fn set_aside_below(
        &mut self,
        loser: &LocalEntry,
        parent: EntryId,
        name: &NormalDn,
        (winner_uuid, winner_csn): (Uuid, Option<Csn>),
    ) -> Result<ApplyOutcome, Failure> {
        let with_subordinates = self.rules.places;
        let own_position = self.own_place(loser, parent)?;
        let (dn, lost) = self.step(|op| {
            let lost = steps::values_of(op, loser.id)?;
            steps::set_aside(op, loser, &own_position, with_subordinates)?;
            state::displace(&mut op.set, loser.id, name);
            Ok(lost)
        })?;
        self.note(ConflictNote {
            kind: ConflictKind::Name,
            kept: KeptSide::Theirs,
            dn,
            winner_uuid,
            winner_csn,
            loser_uuid: loser.uuid,
            loser_csn: loser.csn,
            lost,
        })
    }

    /// The name that the entry gets is another's, which is newer.
    pub(super) fn lose_name(
        &mut self,
        put: &Put,
        local: &LocalEntry,
        place: &TreePosition,
        occupant: &LocalEntry,
    ) -> Result<ApplyOutcome, Failure> {
        let lost = self.conflict_values(put);
        let note = lost_put(ConflictKind::Name, put, (occupant.uuid, occupant.csn), lost);
        if !self.rules.places {
            // What is below it goes where it was to go.
            self.merge(local.id, occupant.id)?;
        }
        let own_position = self.own_place(local, place.parent)?;
        self.relocate(put, local, &own_position)?;
        self.step(|op| {
            state::displace(&mut op.set, local.id, &put.dn);
            Ok(())
        })?;
        self.note(note)
    }

    /// Gives everything below `from` to `to`. Where both have an entry of one name, the newer one stays.
    pub(super) fn merge(&mut self, from: EntryId, to: EntryId) -> Result<(), Failure> {
        let children = self.step(|op| {
            let mut children = Vec::new();
            tree::visit_children(op.snapshot(), from, |id| {
                children.push(id);
                true
            })?;
            Ok(children)
        })?;
        for child in children {
            let (mine, other) = self.step(|op| {
                let mine = steps::local_entry(op, child)?;
                if steps::is_within(op, to, child)? {
                    // It cannot go below itself.
                    return Ok((mine, None));
                }
                let current = op.current_entry(child)?;
                let other = tree::child(op.snapshot(), to, current.view()?.normal_rdn())?;
                let other = other.map(|id| steps::local_entry(op, id)).transpose()?;
                Ok((mine, other))
            })?;
            match other {
                None => self.step(|op| match steps::is_within(op, to, child)? {
                    true => Ok(()),
                    false => steps::hand_over(op, child, to),
                })?,
                Some(other) if mine.glue => {
                    self.merge(child, other.id)?;
                    self.drop_glue(child)?;
                }
                Some(other) => self.merge_named(&mine, other, to)?,
            }
        }
        Ok(())
    }

    fn merge_named(&mut self, mine: &LocalEntry, other: LocalEntry, to: EntryId) -> Result<(), Failure> {
        if !other.glue && !wins((mine.named, mine.uuid), (other.named, other.uuid)) {
            self.merge(mine.id, other.id)?;
            self.set_aside_below(mine, to, &other.dn, (other.uuid, other.csn))?;
            return Ok(());
        }
        if !other.glue {
            self.set_aside(&other, (mine.uuid, mine.csn))?;
        }
        let glue = self.step(|op| {
            let current = op.current_entry(mine.id)?;
            Ok(tree::child(op.snapshot(), to, current.view()?.normal_rdn())?)
        })?;
        if let Some(glue) = glue {
            self.merge(glue, mine.id)?;
            self.drop_glue(glue)?;
        }
        self.step(|op| match steps::is_free(op, mine.id, to)? {
            true => steps::hand_over(op, mine.id, to),
            false => Ok(()),
        })
    }

    /// Removes glue unless something is below it still.
    pub(super) fn drop_glue(&mut self, id: EntryId) -> Result<(), Failure> {
        self.step(|op| match tree::has_children(op.snapshot(), id)? {
            true => Ok(()),
            false => steps::remove_glue(op, id),
        })
    }

    /// Removes glue that has nothing below it any more, and so on upwards.
    pub(super) fn clear_glue(&mut self, from: EntryId) -> Result<(), Failure> {
        let mut at = from;
        while at != EntryId::ROOT {
            let next = self.step(|op| {
                let Some(stored) = op.view.stored(at)? else { return Ok(EntryId::ROOT) };
                drop(stored);
                let local = steps::local_entry(op, at)?;
                if !local.glue || tree::has_children(op.snapshot(), at)? {
                    return Ok(EntryId::ROOT);
                }
                steps::remove_glue(op, at)?;
                Ok(local.parent)
            })?;
            at = next;
        }
        Ok(())
    }

    /// An entry that was set aside: it gets its name if that is free again, otherwise it stays where it is. A server that
    /// takes changes says so to all.
    pub(super) fn settle_name(&mut self, id: EntryId, name: &NormalDn) -> Result<(), Failure> {
        let (own, places) = (self.rules.multi_provider, self.rules.places);
        let back = self.step(|op| {
            if op.view.stored(id)?.is_none() {
                state::forget_displaced(&mut op.set, id);
                return Ok(None);
            }
            let current = op.current_entry(id)?;
            let view = current.view()?;
            let local = steps::local_entry(op, id)?;
            let own_position = steps::own_place(op.schema(), view.parent(), &local.uuid);
            if view.normal_rdn() != own_position.normal_rdn.as_bytes() {
                state::forget_displaced(&mut op.set, id);
                return Ok(None);
            }
            if places && has_place_ahead(op, &local, name)? {
                // It goes there first if it can.
                return Ok(None);
            }
            let free = op.resolve(name)?;
            if free.id.is_none() && free.missing == 1 && free.nearest == view.parent() {
                state::forget_displaced(&mut op.set, id);
                return Ok(Some((true, steps::named(op, &local, name)?)));
            }
            if own {
                state::forget_displaced(&mut op.set, id);
            }
            Ok(Some((false, own_position)))
        })?;
        match back {
            Some((true, place)) => self.step(|op| {
                let is_pending = state::pending_place(op.snapshot(), id)?.is_some();
                steps::move_to(op, id, &place)?;
                if !is_pending {
                    // That it stood beside its name is the place of no version.
                    state::forget_pending_place(&mut op.set, id);
                }
                Ok(())
            })?,
            Some((false, _)) if own => {}
            _ => return Ok(()),
        }
        if own {
            // A consumer may have asked meanwhile and know it by either name.
            self.stamp = self.own_stamp();
            self.step(|op| decided::keep_name(op, id))?;
        }
        Ok(())
    }
}

/// Of two entries of one name, or two versions: the newer one stays. Of equals the one with the higher entryUUID, so that
/// every server decides alike.
pub(super) fn wins(first: (Option<Csn>, Uuid), second: (Option<Csn>, Uuid)) -> bool {
    first > second
}
