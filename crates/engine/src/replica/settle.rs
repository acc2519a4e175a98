//! Names that two servers changed at once: superiors that were renamed, entries moved below each other.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::{Snapshot, Store};

use super::apply::Applier;
use super::prepare::Put;
use super::state;
use super::state::Former;
use super::steps::{self, LocalEntry, TreePosition};
use crate::entry::EntryId;
use crate::failure::Failure;
use crate::tree;

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// Glue that nothing filled in: if who had its name is elsewhere now, what is below goes there. Another server added
    /// it before it knew of the rename. An entry that stands there by a place that was sent has a row for that then.
    pub(super) fn settle(&mut self, id: EntryId, has_place: bool) -> Result<(), Failure> {
        let found = self.step(|op| {
            state::forget_glue(&mut op.set, id);
            if op.view.stored(id)?.is_none() {
                return Ok(None);
            }
            let glue = steps::local_entry(op, id)?;
            let Some(former) = state::former(op.snapshot(), &glue.dn)?.filter(|_| glue.glue) else {
                return Ok(None);
            };
            let Some(heir) = steps::find(op, &former.uuid)? else { return Ok(None) };
            let below = steps::is_within(op, heir, id)?;
            Ok(Some((glue, steps::local_entry(op, heir)?, below)))
        })?;
        let Some((glue, heir, below)) = found else { return Ok(()) };
        if below {
            return self.settle_loop(&glue, &heir);
        }
        self.fill_glue(id, has_place, |applier| applier.merge(id, heir.id))?;
        self.clear_glue(id)
    }

    /// Two entries were moved below each other: the older move is taken back, to the name that the newer one knew.
    fn settle_loop(&mut self, glue: &LocalEntry, heir: &LocalEntry) -> Result<(), Failure> {
        let (above, at, passing_position) = self.step(|op| {
            let mut top = heir.id;
            loop {
                let parent = op.current_entry(top)?.view()?.parent();
                if parent == glue.id || parent == EntryId::ROOT {
                    break;
                }
                top = parent;
            }
            let current = op.current_entry(glue.id)?;
            let view = current.view()?;
            let at = TreePosition {
                parent: glue.parent,
                rdn: view.rdn().to_owned(),
                normal_rdn: String::from_utf8_lossy(view.normal_rdn()).into_owned(),
            };
            let passing_position = steps::passing_place(op.schema(), glue.parent, &heir.uuid);
            Ok((steps::local_entry(op, top)?, at, passing_position))
        })?;
        if above.id == heir.id || heir.named > above.named {
            return Ok(());
        }
        self.step(|op| steps::move_to(op, heir.id, &passing_position))?;
        self.merge(glue.id, heir.id)?;
        self.drop_glue(glue.id)?;
        self.step(|op| steps::move_to(op, heir.id, &at))
    }

    /// Whether a move goes below an entry that was itself moved below this one, later.
    pub(super) fn was_moved_below(&mut self, put: &Put, local: &LocalEntry) -> Result<bool, Failure> {
        self.step(|op| {
            let mut above = put.dn.parent();
            let mut missing: Option<NormalDn> = None;
            while let Some(dn) = above.filter(|dn| !dn.is_root()) {
                if op.resolve(&dn)?.id.is_some() {
                    break;
                }
                above = dn.parent();
                missing = Some(dn);
            }
            let Some(former) = missing.map(|dn| state::former(op.snapshot(), &dn)).transpose()?.flatten()
            else {
                return Ok(false);
            };
            let Former { uuid, .. } = former;
            let Some(heir) = steps::find(op, &uuid)? else { return Ok(false) };
            if heir == local.id || !steps::is_within(op, heir, local.id)? {
                return Ok(false);
            }
            Ok(steps::local_entry(op, heir)?.named > put.named)
        })
    }

    /// The place below `parent` whose name only this entry has. Glue that stands there goes.
    pub(super) fn own_place(&mut self, local: &LocalEntry, parent: EntryId) -> Result<TreePosition, Failure> {
        let place = steps::own_place(self.schema(), parent, &local.uuid);
        let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
        if let Some(glue) = glue.filter(|glue| *glue != local.id) {
            self.through_glue(local, &place, glue)?;
        }
        Ok(place)
    }

    /// The entry moves to where glue stands: it gets what is below that. Where it stands there itself it goes out of the way
    /// first.
    pub(super) fn through_glue(
        &mut self,
        local: &LocalEntry,
        place: &TreePosition,
        glue: EntryId,
    ) -> Result<(), Failure> {
        let inside = self.step(|op| Ok(steps::is_within(op, local.id, glue)?))?;
        if inside {
            let passing_position = steps::passing_place(self.schema(), place.parent, &local.uuid);
            self.step(|op| steps::move_to(op, local.id, &passing_position))?;
        }
        self.merge(glue, local.id)?;
        self.step(|op| {
            if tree::has_children(op.snapshot(), glue)? {
                let text = "the name of a replicated entry cannot be cleared";
                return Err(LdapResult::with(ResultCode::OTHER, text).into());
            }
            steps::remove_glue(op, glue)
        })
    }
}
