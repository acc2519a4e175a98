//! Where entries stand, told so that it means the same on every server: the entryUUID of the nearest superior that is an
//! entry, and the names from there down.
//!
//! **The invariant.** A version of an entry (entryUUID and CSN of its name) has one place. It goes with the entry to
//! servers of our kind. Where an entry cannot stand there, or stands elsewhere because of what became of others, a row
//! remembers the place that its version has; when a batch is complete the entry goes there, or the server makes the place
//! that it has known under a CSN of its own. Servers that have the same versions then have the same tree
//! (`docs/adr/0042-places-by-entryuuid.md`).

use larix_schema::{AttributeDescription, NormalDn, Schema};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::apply::{Applier, wins};
use super::prepare::{Put, names};
use super::state::{self, Wanted};
use super::steps::{self, Here};
use super::value;
use crate::csn::Csn;
use crate::database::View;
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, EntryReader, EntrySource};
use crate::fault::Fault;
use crate::tree;
use crate::write::Failure;
use crate::write::operator::Operator;

/// The control that says where an entry stands: sixteen bytes of the superior's entryUUID, then the DN from there down.
pub const ENTRY_PLACE_OID: &str = "2.25.87610412117718157885716886434399491440.3.3";

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The entryUUID of the nearest superior that is no glue.
    pub superior: Uuid,
    /// The DN below that: the RDN, then those of glue between.
    pub name: String,
}

impl EntryPlace {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.superior.as_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// `None`: it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (superior, name) = bytes.split_first_chunk::<16>()?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        Some(Self { superior: Uuid::from_bytes(*superior), name })
    }

    /// Whether both mean the same place, however they are spelt.
    fn is(&self, schema: &Schema, other: &Self) -> bool {
        let same_name = || {
            let normal = schema.parse_dn(&self.name).ok();
            normal.is_some() && normal == schema.parse_dn(&other.name).ok()
        };
        self.superior == other.superior && (self.name == other.name || same_name())
    }
}

/// The place of this version of an entry, as others are told. `None`: it has no superior that is an entry.
///
/// # Errors
/// A store that cannot be read.
pub fn place_of<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<EntryPlace>, Fault> {
    if let Some(wanted) = state::wanted(view.snapshot, id)? {
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let reader = view.reader(id, &record)?;
        let csn = first(view, &reader, "entryCSN")?.and_then(|text| text.parse::<Csn>().ok());
        let named = match (view.settings.value_conflicts, first(view, &reader, "entryUUID")?) {
            (true, Some(uuid)) => match Uuid::try_parse(&uuid) {
                Ok(uuid) => value::named_csn(view.snapshot, &uuid, csn)?,
                Err(_) => csn,
            },
            _ => csn,
        };
        if named == Some(wanted.csn) {
            return Ok(Some(wanted.place));
        }
    }
    standing(view, id)
}

/// Where an entry stands here.
fn standing<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<EntryPlace>, Fault> {
    let (mut name, mut at) = (String::new(), id);
    loop {
        let record = view.record(at)?.ok_or(Fault::Missing { entry: at, what: "the record" })?;
        let reader = view.reader(at, &record)?;
        let entry = &reader.view;
        if at != id && !entry.flags().has(RecordFlags::GLUE) {
            let uuid = first(view, &reader, "entryUUID")?.and_then(|text| Uuid::try_parse(&text).ok());
            return Ok(uuid.map(|superior| EntryPlace { superior, name }));
        }
        if entry.parent() == EntryId::ROOT {
            return Ok(None);
        }
        if !name.is_empty() {
            name.push(',');
        }
        name.push_str(entry.rdn());
        at = entry.parent();
    }
}

fn first<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    attribute: &str,
) -> Result<Option<String>, Fault> {
    let Some(kind) = view.schema.attribute_type(attribute) else { return Ok(None) };
    let mut found = None;
    reader.visit_exact(&AttributeDescription::plain(kind.id), &mut |value| {
        found = std::str::from_utf8(value).ok().map(str::to_owned);
        false
    })?;
    Ok(found)
}

/// Remembers where an entry stands that is about to be moved without a change of its own; of glue, what stands on it.
pub(super) fn keep<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId) -> Result<(), Failure> {
    let here = steps::here(op, id)?;
    if here.glue {
        let mut below = Vec::new();
        tree::visit_children(op.snapshot(), id, |child| {
            below.push(child);
            true
        })?;
        return below.into_iter().try_for_each(|child| keep(op, child));
    }
    let Some(csn) = here.named else { return Ok(()) };
    if state::wanted(op.snapshot(), id)?.is_some_and(|known| known.csn == csn) {
        return Ok(());
    }
    if let Some(place) = standing(&op.view, id)? {
        state::want(&mut op.set, id, &Wanted { csn, place });
    }
    Ok(())
}

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// The put under the name that its place has here, if that is another than the one that came.
    pub(super) fn located(&mut self, put: &Put) -> Result<Option<Put>, Failure> {
        let Some(place) = put.place.as_ref().filter(|_| self.rules.places) else { return Ok(None) };
        let found = self.step(|op| name_of(op, place))?;
        let other = found.filter(|(dn, shown)| *dn != put.dn || *shown != put.shown);
        Ok(other.map(|(dn, shown)| Put { dn, shown, ..put.clone() }))
    }

    /// After a put: whether what is here now stands where it is to stand.
    pub(super) fn note_place(&mut self, put: &Put) -> Result<(), Failure> {
        if !self.rules.places {
            return Ok(());
        }
        self.step(|op| {
            let Some(id) = steps::find(op, &put.uuid)? else { return Ok(()) };
            let here = steps::here(op, id)?;
            let Some(csn) = here.named.filter(|_| here.named == put.named) else { return Ok(()) };
            let wanted = match &put.place {
                Some(place) if !stands_at(op, id, place)? => Some(place.clone()),
                _ => None,
            };
            match wanted {
                Some(place) => state::want(&mut op.set, id, &Wanted { csn, place }),
                None if state::wanted(op.snapshot(), id)?.is_some() => state::forget_wanted(&mut op.set, id),
                None => {}
            }
            Ok(())
        })
    }

    /// An entry that stands elsewhere than its version says: it goes there if it can; otherwise the place that it has is
    /// told as a change of this server.
    pub(super) fn settle_place(&mut self, id: EntryId, wanted: &Wanted) -> Result<(), Failure> {
        let places = self.rules.places;
        let found = self.step(|op| {
            let done = !places || op.view.stored(id)?.is_none() || {
                let here = steps::here(op, id)?;
                here.named != Some(wanted.csn) || stands_at(op, id, &wanted.place)?
            };
            if done {
                state::forget_wanted(&mut op.set, id);
                return Ok(None);
            }
            Ok(Some((steps::here(op, id)?, steps::find(op, &wanted.place.superior)?)))
        })?;
        let Some((here, superior)) = found else { return Ok(()) };
        let Some(superior) = superior else { return self.stays(id) };
        let below = self.step(|op| Ok(steps::is_within(op, superior, id)?))?;
        if below && !self.open_loop(&here, superior)? {
            return self.stays(id);
        }
        if self.goes(&here, wanted)? {
            return Ok(());
        }
        self.stays(id)
    }

    /// Puts an entry where it is to stand. Answers whether it does then.
    fn goes(&mut self, here: &Here, wanted: &Wanted) -> Result<bool, Failure> {
        let id = here.id;
        let Some((dn, shown)) = self.step(|op| name_of(op, &wanted.place))? else { return Ok(false) };
        let (place, occupant) = self.make_place(&dn, &shown)?;
        let is_loop = self.step(|op| Ok(steps::is_within(op, place.parent, id)?))?;
        if is_loop {
            return Ok(false);
        }
        if let Some(occupant) = occupant.filter(|occupant| occupant.id != id) {
            if !occupant.glue && !wins((here.named, here.uuid), (occupant.named, occupant.uuid)) {
                let aside = self.own_place(here, place.parent)?;
                self.step(|op| steps::move_to(op, id, &aside))?;
                self.clear_glue(here.parent)?;
                return Ok(false);
            }
            if !occupant.glue {
                self.set_aside(&occupant, (here.uuid, here.csn))?;
            }
            let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
            if let Some(glue) = glue {
                self.through_glue(here, &place, glue)?;
            }
        }
        self.step(|op| steps::move_to(op, id, &place))?;
        self.clear_glue(here.parent)?;
        self.step(|op| {
            let stands = stands_at(op, id, &wanted.place)?;
            if stands {
                state::forget_wanted(&mut op.set, id);
            }
            Ok(stands)
        })
    }

    /// The place that an entry has is its place from now on, for all.
    fn stays(&mut self, id: EntryId) -> Result<(), Failure> {
        if !self.rules.multi_provider {
            return Ok(());
        }
        self.stamp = self.own_stamp();
        self.step(|op| {
            state::forget_wanted(&mut op.set, id);
            state::forget_displaced(&mut op.set, id);
            steps::keep_name(op, id)
        })
    }

    /// An entry is to stand below one that is below it. The oldest of these moves is taken back: that entry comes to stand
    /// beside. Answers whether the way is free; otherwise the entry's own move is the oldest.
    fn open_loop(&mut self, here: &Here, superior: EntryId) -> Result<bool, Failure> {
        let oldest = self.step(|op| {
            let (mut oldest, mut at): (Option<Here>, _) = (None, superior);
            while at != here.id && at != EntryId::ROOT {
                let above = steps::here(op, at)?;
                at = above.parent;
                let is_older =
                    oldest.as_ref().is_none_or(|known| (above.named, above.uuid) < (known.named, known.uuid));
                if !above.glue && is_older {
                    oldest = Some(above);
                }
            }
            Ok(oldest)
        })?;
        let Some(oldest) = oldest.filter(|oldest| (oldest.named, oldest.uuid) < (here.named, here.uuid))
        else {
            return Ok(false);
        };
        let is_free = self.step(|op| steps::is_free(op, oldest.id, here.parent))?;
        match is_free {
            true => self.step(|op| steps::hand_over(op, oldest.id, here.parent))?,
            false => {
                let aside = self.own_place(&oldest, here.parent)?;
                self.step(|op| steps::move_to(op, oldest.id, &aside))?;
            }
        }
        self.stays(oldest.id)?;
        Ok(true)
    }
}

/// What a place is called here; `None` when its superior is not here.
fn name_of<V: Snapshot>(
    op: &Operator<'_, V>,
    place: &EntryPlace,
) -> Result<Option<(NormalDn, String)>, Failure> {
    let Some(superior) = steps::find(op, &place.superior)? else { return Ok(None) };
    let held = op.hold(superior)?;
    let shown = format!("{},{}", place.name, op.view.dn(&held.view()?)?);
    Ok(Some(names(op.schema(), &shown)?))
}

fn stands_at<V: Snapshot>(op: &Operator<'_, V>, id: EntryId, place: &EntryPlace) -> Result<bool, Fault> {
    Ok(standing(&op.view, id)?.is_some_and(|standing| standing.is(op.schema(), place)))
}
