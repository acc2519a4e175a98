//! What a replicated change does to entries, one write at a time: stores, moves, removes, makes glue. What is decided is
//! decided in [`super::apply`].

use larix_schema::{AttributeDescription, NormalDn, Schema};
use larix_store::Snapshot;
use uuid::Uuid;

use super::prepare::Put;
use super::state;
use super::{ReplicaRules, conflicts, difference, place, value};
use crate::change::prepare::Change;
use crate::csn::Csn;
use crate::entry::encode::{self, Placement};
use crate::entry::record::RecordFlags;
use crate::entry::{Entry, EntryAttribute, EntryId, split_rdn};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::index::new_entry;
use crate::index::pending::Writing;
use crate::log::{LoggedAttribute, LoggedChange, RecordForm};
use crate::tree;
use crate::write::AttributeValues;
use crate::write::change::NoLargeSets;
use crate::write::operator::{CurrentEntry, LogMark, Operator, logged};
use crate::write::schema_check::{CheckMode, check_entry};
use crate::write::{delete, modify};

const LOCAL: LogMark = LogMark { local: true, absent: false, form: RecordForm::AsDone };
pub(super) const SENT: LogMark = LogMark { local: false, absent: false, form: RecordForm::AsDone };

/// Where an entry is to stand.
#[derive(Clone, Debug)]
pub(super) struct TreePosition {
    pub(super) parent: EntryId,
    /// As it is shown; of a suffix the whole DN.
    pub(super) rdn: String,
    pub(super) normal_rdn: String,
}

/// An entry that is here, as far as decisions need it.
#[derive(Clone, Debug)]
pub(super) struct LocalEntry {
    pub(super) id: EntryId,
    pub(super) parent: EntryId,
    pub(super) uuid: Uuid,
    pub(super) csn: Option<Csn>,
    /// Since when it has its name, as far as conflicts go: where they are settled by entries that is the entryCSN.
    pub(super) named: Option<Csn>,
    pub(super) glue: bool,
    pub(super) dn: NormalDn,
}

/// The entry with this entryUUID.
pub(super) fn find<V: Snapshot>(op: &Operator<'_, V>, uuid: &Uuid) -> Result<Option<EntryId>, Failure> {
    op.entry_with_uuid(uuid)
}

pub(super) fn local_entry<V: Snapshot>(op: &Operator<'_, V>, id: EntryId) -> Result<LocalEntry, Failure> {
    let current = op.current_entry(id)?;
    let view = current.view()?;
    let csn = op.first_value(&current, op.context.known.entry_csn)?;
    let csn = csn.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
    let uuid = op.entry_uuid(&current)?;
    let named = match op.context.settings.keeps_states() {
        true => value::named_csn(op.snapshot(), &uuid, csn)?,
        false => csn,
    };
    Ok(LocalEntry {
        id,
        parent: view.parent(),
        uuid,
        csn,
        named,
        glue: view.flags().has(RecordFlags::GLUE),
        dn: op.view.names.normal_dn(&view)?,
    })
}

/// The place of a DN whose superior is there; `None` when that is missing.
pub(super) fn place_of<V: Snapshot>(
    op: &Operator<'_, V>,
    dn: &NormalDn,
    pretty_dn: &str,
) -> Result<Option<TreePosition>, Failure> {
    let resolved = op.resolve(dn)?;
    let suffix = op.is_suffix(dn);
    if suffix || (resolved.id.is_none() && resolved.nearest == EntryId::ROOT && resolved.missing == 1) {
        return Ok(Some(TreePosition {
            parent: EntryId::ROOT,
            rdn: pretty_dn.to_owned(),
            normal_rdn: dn.as_str().to_owned(),
        }));
    }
    let parent = match resolved.id {
        Some(id) => op.current_entry(id)?.view()?.parent(),
        None if resolved.missing == 1 => resolved.nearest,
        None => return Ok(None),
    };
    let normal = dn.rdn().map_or_else(|| dn.as_str().to_owned(), |rdn| rdn.as_str().to_owned());
    Ok(Some(TreePosition { parent, rdn: split_rdn(pretty_dn).0.to_owned(), normal_rdn: normal }))
}

/// Who stands at a place.
pub(super) fn occupant<V: Snapshot>(
    op: &Operator<'_, V>,
    place: &TreePosition,
) -> Result<Option<EntryId>, Fault> {
    tree::child(op.snapshot(), place.parent, place.normal_rdn.as_bytes())
}

/// Whether `id` is `top` or below it.
pub(super) fn is_within<V: Snapshot>(op: &Operator<'_, V>, id: EntryId, top: EntryId) -> Result<bool, Fault> {
    let mut at = id;
    while at != EntryId::ROOT {
        if at == top {
            return Ok(true);
        }
        at = op.current_entry(at)?.view()?.parent();
    }
    Ok(false)
}

/// The entry of a put, whole.
fn entry_of<V: Snapshot>(op: &Operator<'_, V>, put: &Put, rules: &ReplicaRules) -> Result<Entry, Failure> {
    let mut entry = Entry::new(put.pretty_dn.clone());
    entry.attributes = put
        .attributes
        .iter()
        .map(|change| EntryAttribute::new(change.description.clone(), change.values.clone()))
        .collect();
    let context = op.context;
    let mode = CheckMode { relax: true, add: true, dynamic_objects: true, ..CheckMode::default() };
    let is_classed = !entry.values(context.known.structural_object_class).is_empty();
    if rules.schema_checking {
        check_entry(context.schema, context.known, &mut entry, mode, &NoLargeSets)?;
    } else if !is_classed || rules.attributes.is_selection() {
        let mut checked = entry.clone();
        // A provider that sends no operational attributes leaves it to us; of an entry that breaks the rules it is
        // unknown. Nor do all send the values of the name.
        if check_entry(context.schema, context.known, &mut checked, mode, &NoLargeSets).is_ok() {
            entry = checked;
        }
    }
    Ok(entry)
}

/// Stores an entry that is not here: at a free place, or in the stead of the glue that stands there.
pub(super) fn add<V: Snapshot>(
    op: &mut Operator<'_, V>,
    put: &Put,
    rules: &ReplicaRules,
    place: &TreePosition,
    glue: Option<EntryId>,
) -> Result<EntryId, Failure> {
    let entry = entry_of(op, put, rules)?;
    let id = op.next_entry_id();
    if let Some(glue) = glue {
        let current = op.current_entry(glue)?;
        hand_all_over(op, glue, id, &put.pretty_dn)?;
        op.log_marked((glue, EntryId::ROOT), Uuid::nil(), &put.pretty_dn, LOCAL, |_| LoggedChange::Delete);
        state::forget_glue(&mut op.set, glue);
        delete::take_out(op, &current, Writing::Changed)?;
    }
    store_new(op, id, place, &entry)?;
    let mark = LogMark { form: record_form(op, put, true), ..SENT };
    op.log_marked((id, place.parent), put.uuid, &entry.dn, mark, |schema| {
        LoggedChange::Add(entry.attributes.iter().map(|a| logged_attribute(schema, a)).collect())
    });
    Ok(id)
}

/// What an access log tells of the entry that a put makes, or changes.
fn record_form<V: Snapshot>(op: &Operator<'_, V>, put: &Put, is_new: bool) -> RecordForm {
    if !op.context.settings.merges_records {
        return RecordForm::AsDone;
    }
    let place = put.place.clone();
    match &put.record {
        Some(change) if is_new != change.is_some() => {
            RecordForm::AsReceived { change: change.clone(), place }
        }
        // An entry that no server has changed since it was added is as the add was.
        None if is_new && put.state.as_ref().is_none_or(|state| state.is_begin()) => {
            RecordForm::AsReceived { change: None, place }
        }
        _ => RecordForm::Whole,
    }
}

fn store_new<V: Snapshot>(
    op: &mut Operator<'_, V>,
    id: EntryId,
    place: &TreePosition,
    entry: &Entry,
) -> Result<(), Failure> {
    let (schema, snapshot) = (op.schema(), op.snapshot());
    encode::store(&mut op.set, snapshot, schema, op.catalog, placement(id, place), None, entry)?;
    tree::put(&mut op.set, place.parent, place.normal_rdn.as_bytes(), id);
    Ok(new_entry::put(&mut op.set, snapshot, schema, op.catalog.catalog(), id, entry)?)
}

/// Everything below `from` gets another superior, which may be of this very step: ids are never given twice.
fn hand_all_over<V: Snapshot>(
    op: &mut Operator<'_, V>,
    from: EntryId,
    to: EntryId,
    superior: &str,
) -> Result<(), Failure> {
    let mut children = Vec::new();
    tree::visit_children(op.snapshot(), from, |id| {
        children.push(id);
        true
    })?;
    for child in children {
        let current = op.current_entry(child)?;
        let view = current.view()?;
        let place = TreePosition {
            parent: to,
            rdn: view.rdn().to_owned(),
            normal_rdn: String::from_utf8_lossy(view.normal_rdn()).into_owned(),
        };
        shift_local(op, &current, &place, superior.to_owned())?;
    }
    Ok(())
}

fn placement(id: EntryId, place: &TreePosition) -> Placement<'_> {
    Placement { id, parent: place.parent, rdn: &place.rdn, normal_rdn: place.normal_rdn.as_bytes() }
}

fn logged_attribute(schema: &Schema, attribute: &EntryAttribute) -> LoggedAttribute {
    LoggedAttribute { description: attribute.description.to_text(schema), values: attribute.values.clone() }
}

/// Makes the entry what `put` says, where it stands or at `to`. Answers what was changed.
pub(super) fn change<V: Snapshot>(
    op: &mut Operator<'_, V>,
    id: EntryId,
    put: &Put,
    rules: &ReplicaRules,
    to: Option<(&TreePosition, Option<String>)>,
) -> Result<(), Failure> {
    // What it was to be called before is overruled.
    state::forget_displaced(&mut op.set, id);
    let current = op.current_entry(id)?;
    let mut changes = difference::changes(op, &current, &put.attributes, &rules.attributes)?;
    let ends = difference::ends_of_account_state(op, &current, &changes, Some(&rules.attributes))?;
    changes.extend(ends);
    let old_pretty_dn = op.view.dn(&current.view()?)?;
    let mut entry = difference::changed(op, &current, put.pretty_dn.clone(), &changes)?;
    // Clients are to see what they see at the provider: attributes in the order in which it has them, ours behind.
    let places = difference::order_of(put.attributes.iter().map(|sent| &sent.description));
    let place = |description: &AttributeDescription| places.get(description).copied();
    entry.attributes.sort_by_cached_key(|attribute| place(&attribute.description).unwrap_or(usize::MAX));
    if rules.schema_checking {
        let mode = CheckMode { relax: true, dynamic_objects: true, ..CheckMode::default() };
        let sets = crate::write::operator::StoredSets::new(op.reader(&current)?);
        check_entry(op.context.schema, op.context.known, &mut entry, mode, &sets)?;
    }
    let all: Vec<&Change> = changes.iter().collect();
    let mark = LogMark { form: record_form(op, put, false), ..SENT };
    match to {
        // Followers must also receive a record that changes nothing here.
        None if changes.is_empty() && put.record.is_none() => Ok(()),
        None => {
            modify::store(op, &current, &entry)?;
            op.log_marked((id, EntryId::ROOT), put.uuid, &old_pretty_dn, mark, |schema| {
                LoggedChange::Modify(logged(schema, &all))
            });
            Ok(())
        }
        Some((place, new_superior)) => {
            let deletes_old = difference::lacks_old_name(op, &current, &entry)?;
            shift(op, &current, place, &entry)?;
            let old_dn = op.view.names.normal_dn(&current.view()?)?;
            op.log_marked((id, place.parent), put.uuid, &old_pretty_dn, mark, |schema| {
                LoggedChange::ModifyDn {
                    new_rdn: place.rdn.clone(),
                    delete_old_rdn: deletes_old,
                    new_superior,
                    modifications: logged(schema, &all),
                }
            });
            if old_dn != put.dn {
                op.left(&old_dn, &put.uuid);
            }
            Ok(())
        }
    }
}

/// Puts the entry at another place.
fn shift<V: Snapshot>(
    op: &mut Operator<'_, V>,
    current: &CurrentEntry<'_>,
    place: &TreePosition,
    entry: &Entry,
) -> Result<(), Failure> {
    modify::store_at(op, current, placement(current.id, place), entry)?;
    let old = current.view()?;
    tree::delete(&mut op.set, old.parent(), old.normal_rdn());
    tree::put(&mut op.set, place.parent, place.normal_rdn.as_bytes(), current.id);
    Ok(op.bump_generation()?)
}

/// Moves an entry below another superior, with its name and all that is below it: what every server does by itself.
pub(super) fn hand_over<V: Snapshot>(
    op: &mut Operator<'_, V>,
    id: EntryId,
    parent: EntryId,
) -> Result<(), Failure> {
    let current = op.current_entry(id)?;
    let view = current.view()?;
    let place = TreePosition {
        parent,
        rdn: view.rdn().to_owned(),
        normal_rdn: String::from_utf8_lossy(view.normal_rdn()).into_owned(),
    };
    move_to(op, id, &place)
}

/// As [`hand_over`], under another name.
pub(super) fn move_to<V: Snapshot>(
    op: &mut Operator<'_, V>,
    id: EntryId,
    place: &TreePosition,
) -> Result<(), Failure> {
    let current = op.current_entry(id)?;
    let superior = op.view.names.superior(place.parent)?.map(|superior| superior.dn.clone());
    shift_local(op, &current, place, superior.unwrap_or_default())
}

fn shift_local<V: Snapshot>(
    op: &mut Operator<'_, V>,
    current: &CurrentEntry<'_>,
    place: &TreePosition,
    superior: String,
) -> Result<(), Failure> {
    place::keep(op, current.id)?;
    let (uuid, pretty_dn) = (op.entry_uuid(current)?, op.view.dn(&current.view()?)?);
    let entry = op.reader(current)?.owned_in_part(pretty_dn.clone(), |_| false)?;
    shift(op, current, place, &entry)?;
    op.log_marked((current.id, place.parent), uuid, &pretty_dn, LOCAL, |_| LoggedChange::ModifyDn {
        new_rdn: place.rdn.clone(),
        delete_old_rdn: false,
        new_superior: Some(superior),
        modifications: Vec::new(),
    });
    Ok(())
}

/// Creates the superiors that are missing, as glue. Answers the lowest one.
pub(super) fn add_glue<V: Snapshot>(
    op: &mut Operator<'_, V>,
    dn: &NormalDn,
    pretty_dn: &str,
    has_place: bool,
) -> Result<(), Failure> {
    let mut missing = Vec::new();
    let (mut dn, mut pretty_dn) = (dn.clone(), pretty_dn);
    let mut parent = loop {
        if let Some(place) = place_of(op, &dn, pretty_dn)? {
            let found = occupant(op, &place)?;
            match found {
                Some(id) => break id,
                None => {
                    missing.push((place.rdn, place.normal_rdn, pretty_dn));
                    break place.parent;
                }
            }
        }
        let (rdn, rest) = split_rdn(pretty_dn);
        let normal = dn.rdn().map_or_else(String::new, |normal| normal.as_str().to_owned());
        missing.push((rdn.to_owned(), normal, pretty_dn));
        dn = dn.parent().unwrap_or_else(NormalDn::root);
        pretty_dn = rest;
        if pretty_dn.is_empty() {
            break EntryId::ROOT;
        }
    };
    for (rdn, normal_rdn, pretty_dn) in missing.into_iter().rev() {
        let entry = glue_entry(op, pretty_dn);
        let id = op.next_entry_id();
        let place = TreePosition { parent, rdn, normal_rdn };
        store_new(op, id, &place, &entry)?;
        log_glue(op, id, parent, &entry);
        state::note_glue(&mut op.set, id, has_place);
        parent = id;
    }
    Ok(())
}

fn glue_entry<V: Snapshot>(op: &Operator<'_, V>, pretty_dn: &str) -> Entry {
    let known = op.context.known;
    let mut entry = Entry::new(pretty_dn);
    let classes = vec![b"top".to_vec(), b"glue".to_vec()];
    entry.attributes.push(EntryAttribute::new(AttributeDescription::plain(known.object_class), classes));
    let structural = AttributeDescription::plain(known.structural_object_class);
    entry.attributes.push(EntryAttribute::new(structural, vec![b"glue".to_vec()]));
    entry
}

fn log_glue<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId, parent: EntryId, entry: &Entry) {
    op.log_marked((id, parent), Uuid::nil(), &entry.dn, LOCAL, |schema| {
        LoggedChange::Add(entry.attributes.iter().map(|a| logged_attribute(schema, a)).collect())
    });
}

/// Takes an entry away: with subordinates it becomes glue. `mark`: a delete that others hear of, or what every server does
/// by itself. Answers whether glue is left.
pub(super) fn hollow<V: Snapshot>(
    op: &mut Operator<'_, V>,
    id: EntryId,
    sent: bool,
) -> Result<bool, Failure> {
    let current = op.current_entry(id)?;
    let view = current.view()?;
    let (uuid, pretty_dn) = (op.entry_uuid(&current)?, op.view.dn(&view)?);
    let dn = op.view.names.normal_dn(&view)?;
    let mark = if sent { SENT } else { LOCAL };
    if sent {
        op.keep_old(&current, None)?;
    }
    op.log_marked((id, EntryId::ROOT), uuid, &pretty_dn, mark, |_| LoggedChange::Delete);
    if sent {
        op.bury(&uuid);
        value::forget(op.snapshot(), &mut op.set, &uuid)?;
    }
    if tree::has_children(op.snapshot(), id)? {
        let glue = glue_entry(op, &pretty_dn);
        let place = TreePosition {
            parent: view.parent(),
            rdn: view.rdn().to_owned(),
            normal_rdn: String::from_utf8_lossy(view.normal_rdn()).into_owned(),
        };
        let glue_id = op.next_entry_id();
        delete::take_out(op, &current, Writing::Changed)?;
        store_new(op, glue_id, &place, &glue)?;
        log_glue(op, glue_id, view.parent(), &glue);
        hand_all_over(op, id, glue_id, &pretty_dn)?;
        op.left(&dn, &uuid);
        return Ok(true);
    }
    delete::take_out(op, &current, Writing::Changed)?;
    Ok(false)
}

/// Removes glue that has no subordinates.
pub(super) fn remove_glue<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId) -> Result<(), Failure> {
    let current = op.current_entry(id)?;
    delete::remove_glue(op, &current, Writing::Changed)
}

/// The entry as an add would log it: for the conflict log.
pub(super) fn values_of<V: Snapshot>(
    op: &Operator<'_, V>,
    id: EntryId,
) -> Result<(String, Vec<AttributeValues>), Failure> {
    let current = op.current_entry(id)?;
    let view = current.view()?;
    let entry = op.reader(&current)?.to_owned(op.view.dn(&view)?, true)?;
    let values = entry
        .attributes
        .into_iter()
        .map(|a| AttributeValues { description: a.description.to_text(op.schema()), values: a.values });
    Ok((entry.dn, conflicts::cut(values)))
}

/// A name that no other entry can have.
pub(super) fn own_place(schema: &Schema, parent: EntryId, uuid: &Uuid) -> TreePosition {
    let (rdn, normal_rdn) = state::own_rdn(schema, uuid);
    TreePosition { parent, rdn, normal_rdn }
}

/// Where an entry stands for a moment within one change: glue may have the name of [`own_place`].
pub(super) fn passing_place(schema: &Schema, parent: EntryId, uuid: &Uuid) -> TreePosition {
    own_place(schema, parent, &Uuid::from_u128(!uuid.as_u128()))
}

/// Whether no entry stands below `to` under the name of this one.
pub(super) fn is_free<V: Snapshot>(op: &Operator<'_, V>, id: EntryId, to: EntryId) -> Result<bool, Failure> {
    let current = op.current_entry(id)?;
    let found = tree::child(op.snapshot(), to, current.view()?.normal_rdn())?;
    Ok(found.is_none() && !is_within(op, to, id)?)
}

/// The place that an entry was to have: the spelling is that of its naming values.
pub(super) fn named<V: Snapshot>(
    op: &Operator<'_, V>,
    local: &LocalEntry,
    name: &NormalDn,
) -> Result<TreePosition, Failure> {
    let normal = name.rdn().map_or_else(|| name.as_str().to_owned(), |rdn| rdn.as_str().to_owned());
    let rdn = super::prepare::names(op.schema(), &normal)
        .map_or_else(|_| normal.clone(), |(_, pretty_dn)| pretty_dn);
    Ok(TreePosition { parent: local.parent, rdn, normal_rdn: normal })
}

/// Puts an entry at a place of its own. What is below it goes with it, or stays where it was, under glue.
pub(super) fn set_aside<V: Snapshot>(
    op: &mut Operator<'_, V>,
    loser: &LocalEntry,
    place: &TreePosition,
    with_subordinates: bool,
) -> Result<(), Failure> {
    let current = op.current_entry(loser.id)?;
    let view = current.view()?;
    let pretty_dn = op.view.dn(&view)?;
    let superior = op.view.names.superior(place.parent)?.map(|superior| superior.dn.clone());
    if !with_subordinates && tree::has_children(op.snapshot(), loser.id)? {
        let glue = glue_entry(op, &pretty_dn);
        let old = TreePosition {
            parent: view.parent(),
            rdn: view.rdn().to_owned(),
            normal_rdn: String::from_utf8_lossy(view.normal_rdn()).into_owned(),
        };
        let glue_id = op.next_entry_id();
        shift_local(op, &current, place, superior.unwrap_or_default())?;
        store_new(op, glue_id, &old, &glue)?;
        log_glue(op, glue_id, old.parent, &glue);
        return hand_all_over(op, loser.id, glue_id, &pretty_dn);
    }
    shift_local(op, &current, place, superior.unwrap_or_default())
}
