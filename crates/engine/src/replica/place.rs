//! Places of entries in a form that means the same on every server: the entryUUID of the nearest superior that is an
//! entry, and the names from there down.
//!
//! **The invariant.** A version of an entry (entryUUID and CSN of its name) has one place. It goes with the entry to
//! servers of our kind. Where an entry cannot stand there, or stands elsewhere because of what became of others, a row
//! remembers the place that its version has; when a batch is complete the entry goes there, or the server makes the place
//! that it has known under a CSN of its own. Servers that have the same versions then have the same tree
//! (`docs/adr/0042-places-by-entryuuid.md`).

use larix_schema::NormalDn;
use larix_store::{Snapshot, Store};

use super::apply::Applier;
use super::names::wins;
use super::prepare::{Put, names};
use super::state::{self, PendingPlace, stands};
use super::steps::{self, LocalEntry};
use super::{ApplyOutcome, decided};
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, split_rdn};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::log::EntryPlace;
use crate::tree;
use crate::write::operator::Operator;

/// What stands on glue, and on glue that stands on that.
fn on_glue<V: Snapshot>(op: &Operator<'_, V>, glue: EntryId) -> Result<Vec<EntryId>, Failure> {
    let (mut open, mut found) = (vec![glue], Vec::new());
    while let Some(at) = open.pop() {
        let mut below = Vec::new();
        tree::visit_children(op.snapshot(), at, |child| {
            below.push(child);
            true
        })?;
        for child in below {
            let is_glue = op.current_entry(child)?.view()?.flags().has(RecordFlags::GLUE);
            if is_glue { open.push(child) } else { found.push(child) }
        }
    }
    Ok(found)
}

/// Remembers where an entry stands that is about to be moved without a change of its own; of glue, what stands on it.
pub(super) fn keep<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId) -> Result<(), Failure> {
    let local = steps::local_entry(op, id)?;
    if local.glue {
        return on_glue(op, id)?.into_iter().try_for_each(|entry| keep(op, entry));
    }
    let Some(csn) = local.named else { return Ok(()) };
    if state::pending_place(op.snapshot(), id)?.is_some_and(|known| known.csn == csn) {
        return Ok(());
    }
    if let Some(place) = stands(&op.view, id)? {
        state::put_pending_place(&mut op.set, id, &PendingPlace { csn, place });
    }
    Ok(())
}

/// What a put finds of the place that came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placing {
    /// The entry stands there already.
    Same,
    /// Its superior is here.
    Superior,
    /// Its superior is not here.
    Missing,
}

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// A put goes to the place that came with it, whatever that is called here; without one it goes by its name.
    pub(super) fn put_at_place(&mut self, put: &Put) -> Result<ApplyOutcome, Failure> {
        self.at_place(put, Self::put_by_name)
    }

    /// As [`Self::put_at_place`]; `carry_out` puts it where its name says, which is that of the place here.
    pub(super) fn at_place(
        &mut self,
        put: &Put,
        carry_out: impl FnOnce(&mut Self, &Put) -> Result<ApplyOutcome, Failure>,
    ) -> Result<ApplyOutcome, Failure> {
        let Some(place) = put.place.as_ref().filter(|_| self.rules.places) else {
            return carry_out(self, put);
        };
        let (name, context) = self.step(|op| locate(op, put, place))?;
        let located = name.map(|(dn, pretty_dn)| Put { dn, pretty_dn, ..put.clone() });
        let applied = carry_out(self, located.as_ref().unwrap_or(put))?;
        // Of a name of several RDNs the superiors may be glue there and entries here.
        let is_below = context == Placing::Superior && split_rdn(&place.name).1.is_empty();
        if !(context == Placing::Same || is_below && applied == ApplyOutcome::Done) {
            self.note_place(put, place)?;
        }
        Ok(applied)
    }

    /// Remembers the place of a put where what is here now does not stand there.
    fn note_place(&mut self, put: &Put, place: &EntryPlace) -> Result<(), Failure> {
        self.step(|op| {
            let Some(id) = steps::find(op, &put.uuid)? else { return Ok(()) };
            let local = steps::local_entry(op, id)?;
            // The entry of a suffix has its place by that, whatever it stands on elsewhere.
            let is_free = local.parent != EntryId::ROOT;
            let Some(csn) = local.named.filter(|_| is_free && local.named == put.named) else {
                return Ok(());
            };
            if !stands_at(op, id, place)? {
                state::put_pending_place(&mut op.set, id, &PendingPlace { csn, place: place.clone() });
            } else if state::pending_place(op.snapshot(), id)?.is_some() {
                state::forget_pending_place(&mut op.set, id);
            }
            Ok(())
        })
    }

    /// Glue gives way to an entry, which gets what stands on it. `has_place`: a place came with the entry. Otherwise it is from a
    /// server that knows names alone: what came without a place, too, has that of its superior from now on.
    pub(super) fn fill_glue<R>(
        &mut self,
        glue: EntryId,
        has_place: bool,
        fill: impl FnOnce(&mut Self) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if has_place {
            return fill(self);
        }
        let placeless = self.step(|op| {
            let mut found = Vec::new();
            for id in on_glue(op, glue)? {
                if state::pending_place(op.snapshot(), id)?.is_none() {
                    found.push(id);
                }
            }
            Ok(found)
        })?;
        let filled = fill(self)?;
        self.step(|op| {
            placeless.iter().for_each(|id| state::forget_pending_place(&mut op.set, *id));
            Ok(())
        })?;
        Ok(filled)
    }

    /// An entry that stands elsewhere than its version says: it goes there if it can; otherwise the place that it has is
    /// told as a change of this server. False: its superior is below it, and may be on its way elsewhere. With `opens` such a loop is
    /// opened.
    pub(super) fn settle_place(
        &mut self,
        id: EntryId,
        pending: &PendingPlace,
        opens: bool,
    ) -> Result<bool, Failure> {
        let places = self.rules.places;
        let found = self.step(|op| {
            let done = !places || op.view.stored(id)?.is_none() || {
                let local = steps::local_entry(op, id)?;
                local.named != Some(pending.csn) || stands_at(op, id, &pending.place)?
            };
            if done {
                state::forget_pending_place(&mut op.set, id);
                return Ok(None);
            }
            Ok(Some((steps::local_entry(op, id)?, steps::find(op, &pending.place.superior)?)))
        })?;
        let Some((local, superior)) = found else { return Ok(true) };
        let Some(superior) = superior else { return self.stays(id).map(|()| true) };
        let below = self.step(|op| Ok(steps::is_within(op, superior, id)?))?;
        if below && !opens {
            return Ok(false);
        }
        let is_free = !below || self.open_loop(&local, superior)?;
        if !(is_free && self.goes(&local, pending)?) {
            self.stays(id)?;
        }
        Ok(true)
    }

    /// Puts an entry where it is to stand. Answers whether it does then.
    fn goes(&mut self, local: &LocalEntry, pending: &PendingPlace) -> Result<bool, Failure> {
        let id = local.id;
        let Some((dn, pretty_dn)) = self.step(|op| name_of(op, &pending.place))? else { return Ok(false) };
        let (place, occupant) = self.make_place((&dn, &pretty_dn), true)?;
        let is_loop = self.step(|op| Ok(steps::is_within(op, place.parent, id)?))?;
        if is_loop {
            return Ok(false);
        }
        if let Some(occupant) = occupant.filter(|occupant| occupant.id != id) {
            // Who is to stand elsewhere gives way, however new its name is.
            let gives_way = occupant.glue || self.step(|op| is_on_its_way(op, &occupant))?;
            if !gives_way && !wins((local.named, local.uuid), (occupant.named, occupant.uuid)) {
                let own_position = self.own_place(local, place.parent)?;
                self.step(|op| steps::move_to(op, id, &own_position))?;
                self.clear_glue(local.parent)?;
                return Ok(false);
            }
            if !occupant.glue {
                self.set_aside(&occupant, (local.uuid, local.csn))?;
            }
            let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
            if let Some(glue) = glue {
                self.through_glue(local, &place, glue)?;
            }
        }
        self.step(|op| steps::move_to(op, id, &place))?;
        self.clear_glue(local.parent)?;
        self.step(|op| {
            let stands = stands_at(op, id, &pending.place)?;
            if stands {
                state::forget_pending_place(&mut op.set, id);
            }
            Ok(stands)
        })
    }

    /// The place that an entry has is its place from now on, for all. Who takes no changes says nothing: its provider decides.
    fn stays(&mut self, id: EntryId) -> Result<(), Failure> {
        let decides = self.rules.multi_provider;
        if decides {
            self.stamp = self.own_stamp();
        }
        self.step(|op| {
            state::forget_pending_place(&mut op.set, id);
            if decides {
                state::forget_displaced(&mut op.set, id);
                decided::keep_name(op, id)?;
            }
            Ok(())
        })
    }

    /// An entry is to stand below one that is below it. The oldest of these moves is taken back: that entry comes to stand
    /// beside. Answers whether the way is free; otherwise the entry's own move is the oldest.
    fn open_loop(&mut self, local: &LocalEntry, superior: EntryId) -> Result<bool, Failure> {
        let oldest = self.step(|op| {
            let (mut oldest, mut at): (Option<LocalEntry>, _) = (None, superior);
            while at != local.id && at != EntryId::ROOT {
                let above = steps::local_entry(op, at)?;
                at = above.parent;
                let is_older =
                    oldest.as_ref().is_none_or(|known| (above.named, above.uuid) < (known.named, known.uuid));
                if !above.glue && is_older {
                    oldest = Some(above);
                }
            }
            Ok(oldest)
        })?;
        let Some(oldest) = oldest.filter(|oldest| (oldest.named, oldest.uuid) < (local.named, local.uuid))
        else {
            return Ok(false);
        };
        let is_free = self.step(|op| steps::is_free(op, oldest.id, local.parent))?;
        match is_free {
            true => self.step(|op| steps::hand_over(op, oldest.id, local.parent))?,
            false => {
                let own_position = self.own_place(&oldest, local.parent)?;
                self.step(|op| steps::move_to(op, oldest.id, &own_position))?;
            }
        }
        self.stays(oldest.id)?;
        Ok(true)
    }
}

/// Whether an entry has yet to go to the place of its version, whose superior is here.
fn is_on_its_way<V: Snapshot>(op: &Operator<'_, V>, local: &LocalEntry) -> Result<bool, Failure> {
    let pending = state::pending_place(op.snapshot(), local.id)?;
    let Some(pending) = pending.filter(|pending| local.named == Some(pending.csn)) else { return Ok(false) };
    let is_here = steps::find(op, &pending.place.superior)?.is_some();
    Ok(is_here && !stands_at(op, local.id, &pending.place)?)
}

/// Whether an entry that has lost `name` may yet get the place of its version: that has another name, or who has this one goes elsewhere.
pub(super) fn has_place_ahead<V: Snapshot>(
    op: &Operator<'_, V>,
    local: &LocalEntry,
    name: &NormalDn,
) -> Result<bool, Failure> {
    let pending = state::pending_place(op.snapshot(), local.id)?;
    let Some(pending) = pending.filter(|pending| local.named == Some(pending.csn)) else { return Ok(false) };
    if name_of(op, &pending.place)?.is_some_and(|(dn, _)| dn != *name) {
        return Ok(true);
    }
    match op.resolve(name)?.id {
        Some(occupant) => is_on_its_way(op, &steps::local_entry(op, occupant)?),
        None => Ok(false),
    }
}

/// What a place is called here; `None` when its superior is not here.
fn name_of<V: Snapshot>(
    op: &Operator<'_, V>,
    place: &EntryPlace,
) -> Result<Option<(NormalDn, String)>, Failure> {
    let Some(superior) = steps::find(op, &place.superior)? else { return Ok(None) };
    let current = op.current_entry(superior)?;
    let pretty_dn = format!("{},{}", place.name, op.view.dn(&current.view()?)?);
    Ok(Some(names(op.schema(), &pretty_dn)?))
}

fn stands_at<V: Snapshot>(op: &Operator<'_, V>, id: EntryId, place: &EntryPlace) -> Result<bool, Fault> {
    Ok(stands(&op.view, id)?.is_some_and(|standing| standing.is(op.schema(), place)))
}

/// What the place of a put is called here, where that is another name than the one that came, and what is known of it.
fn locate<V: Snapshot>(
    op: &Operator<'_, V>,
    put: &Put,
    place: &EntryPlace,
) -> Result<(Option<(NormalDn, String)>, Placing), Failure> {
    let other = |(dn, pretty_dn): (NormalDn, String)| (dn != put.dn).then_some((dn, pretty_dn));
    if let Some(id) = steps::find(op, &put.uuid)?
        && stands_at(op, id, place)?
    {
        let current = op.current_entry(id)?;
        let view = current.view()?;
        let superior = op.view.names.superior(view.parent())?;
        let mut pretty_dn = split_rdn(&place.name).0.to_owned();
        if let Some(superior) = superior {
            pretty_dn.push(',');
            pretty_dn.push_str(&superior.dn);
        }
        return Ok((other((op.view.names.normal_dn(&view)?, pretty_dn)), Placing::Same));
    }
    match name_of(op, place)? {
        Some(name) => Ok((other(name), Placing::Superior)),
        None => Ok((None, Placing::Missing)),
    }
}
