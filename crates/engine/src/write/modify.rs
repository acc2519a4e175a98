//! Modify (RFC 4511 section 4.6).

use larix_schema::{AttributeDescription, AttributeTypeId, NormalDn};
use larix_store::Snapshot;
use smallvec::SmallVec;

use super::change;
use super::entry_state;
use super::operational;
use super::operator::{CurrentEntry, Operator, StoredSets, insufficient};
use super::patched::{PatchedEntry, is_each_replaced};
use super::replicated;
use super::schema_check::{CheckMode, check_entry, check_part, renew_structural_class};
use crate::change::prepare::{Change, ChangeKind, RequiredAccess, internal_change};
use crate::entry::Entry;
use crate::entry::encode::{self, Placement};
use crate::failure::Failure;
use crate::index::keys;
use crate::index::pending::{self, Writing};

/// Bytes that most names take.
const USUAL_NAME: usize = 128;

/// The changes that were asked for, and those that go with them.
pub(crate) type Changes<'c> = SmallVec<[&'c Change; 8]>;

pub(crate) fn modify<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    dn: &NormalDn,
    requested: &[Change],
) -> Result<(), Failure> {
    let current = operator.find(dn)?;
    operator.check_referral(&current)?;
    operator.check_assertion(&current, dn)?;
    operator.pre_read(&current)?;
    operator.rise_above(&current)?;
    if operator.envelope.idle {
        return operator.post_read(current.id);
    }
    // If each change replaces an attribute, only the long way needs equality keys of the operational attributes.
    let is_each_replaced = is_each_replaced(requested);
    let mut own = match is_each_replaced {
        true => operator.own_changes_without_keys(requested),
        false => operator.own_changes(requested),
    };
    let context_csn = operator.context.known.context_csn;
    #[expect(clippy::needless_late_init, reason = "it outlives the references to it")]
    let counted;
    let mut changes = all_changes(requested, &own, context_csn);
    let old = current.view()?;
    if !operator.may_modify(dn, &operator.reader_of(old), requested)? {
        return Err(insufficient("").into());
    }
    if operator.envelope.replicated {
        replicated::raise_contexts(operator, dn, requested)?;
        if changes.is_empty() {
            return operator.post_read(current.id);
        }
    }
    counted = told_changes(operator, &current, requested)?;
    let requested = counted.as_deref().unwrap_or(requested);
    if counted.is_some() {
        changes = all_changes(requested, &own, context_csn);
    }
    let mut patched = PatchedEntry::default();
    if patched.apply(operator, &old, &changes, is_each_replaced)? {
        operator.keep_old(&current, Some(&changes))?;
        patched.store(operator, &current, &old)?;
        operator.post_read(current.id)?;
        let mut pretty_dn = Vec::with_capacity(USUAL_NAME);
        operator.view.names.append_octets(&old, None, &mut pretty_dn)?;
        operator.log_modify(current.id, patched.uuid, &pretty_dn, &changes);
        return Ok(());
    }
    drop((patched, changes));
    if is_each_replaced {
        operational::key_changes(&mut own);
    }
    let changes = all_changes(requested, &own, context_csn);
    let pretty_dn = operator.view.dn(&old)?;
    let entry = changed_entry(operator, &current, pretty_dn, (&changes, requested))?;
    // The schema check may record another structural class: the log has to tell it, too.
    let structural = structural_change(operator, &current, &entry, &changes)?;
    operator.keep_old(&current, Some(&changes))?;
    let bytes = store(operator, &current, &entry)?;
    operator.check_size(bytes)?;
    operator.post_read(current.id)?;
    let uuid = operator.entry_uuid(&current)?;
    let logged: Changes<'_> = changes.iter().copied().chain(&structural).collect();
    operator.log_modify(current.id, uuid, entry.dn.as_bytes(), &logged);
    entry_state::note_change(operator, (&current, &entry), &changes, None)
}

/// The requested changes as others are to merge them; `None`: as they are.
fn told_changes<V: Snapshot>(
    operator: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    requested: &[Change],
) -> Result<Option<Vec<Change>>, Failure> {
    if !operator.context.settings.merges_records {
        return Ok(None);
    }
    let told = match operator.envelope.controls.permissive_modify {
        true => entry_state::without_idle_adds(operator, current, requested)?,
        false => None,
    };
    Ok(counted_changes(operator, current, told.as_deref().unwrap_or(requested))?.or(told))
}

/// The requested changes with what comes of increments in their place, where others merge the changes of this server one by one: what an
/// increment counts on may be another value there, and who hears of two in another order would end otherwise. `None`: they stay as
/// they are.
fn counted_changes<V: Snapshot>(
    operator: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    requested: &[Change],
) -> Result<Option<Vec<Change>>, Failure> {
    let settings = operator.context.settings;
    let increments = requested.iter().enumerate().filter(|(_, change)| change.kind == ChangeKind::Increment);
    // The last one of each attribute: its sum stands for what was asked of the attribute until then.
    let last: foldhash::HashMap<&AttributeDescription, usize> =
        increments.map(|(at, change)| (&change.description, at)).collect();
    if last.is_empty() {
        return Ok(None);
    }
    let last_of = |change: &Change| last.get(&change.description).copied();
    let up_to_it = requested.iter().enumerate().filter(|(at, change)| last_of(change) >= Some(*at));
    let counted: Changes<'_> = up_to_it.map(|(_, change)| change).collect();
    let (schema, permissive) = (operator.schema(), operator.envelope.controls.permissive_modify);
    let reader = operator.reader(current)?;
    let mut entry = reader.owned_in_part(String::new(), |description| last.contains_key(description))?;
    let sets = StoredSets::new(reader);
    match change::apply_all(schema, &mut entry, &counted, permissive, &sets, &settings.request_limits) {
        Ok(()) => {}
        // It is refused in its turn, with the others beside it.
        Err(Failure::Refused(_)) => return Ok(None),
        Err(failure) => return Err(failure),
    }
    let mut all = Vec::with_capacity(requested.len());
    for (at, change) in requested.iter().enumerate() {
        match last_of(change) {
            Some(end) if at < end => {}
            Some(end) if at == end => {
                let sum = entry.attribute(&change.description).map(|of| of.values.clone());
                let name = change.description.to_text(schema);
                all.push(internal_change(schema, ChangeKind::Replace, &name, sum.unwrap_or_default())?);
            }
            _ => all.push(change.clone()),
        }
    }
    Ok(Some(all))
}

/// The requested changes, without those of the contextCSN, which no entry holds, and the changes that go with them.
fn all_changes<'c>(requested: &'c [Change], own: &'c [Change], context_csn: AttributeTypeId) -> Changes<'c> {
    let mut changes = Changes::new();
    // One by one: a few steps each, where an iterator of several parts takes many.
    for change in requested {
        if change.description.attribute != context_csn {
            changes.push(change);
        }
    }
    for change in own {
        changes.push(change);
    }
    changes
}

/// The stored entry under the DN `pretty_dn` with the changes applied, checked by the schema. `requested` are the changes of the
/// operation itself.
pub(crate) fn changed_entry<V: Snapshot>(
    operator: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    pretty_dn: String,
    (changes, requested): (&[&Change], &[Change]),
) -> Result<Entry, Failure> {
    let context = operator.context;
    let controls = operator.envelope.controls;
    let reader = operator.reader(current)?;
    // Other attributes stay as they are and are not loaded. The check of the name looks their values up in `sets`.
    let known = context.known;
    let changed: foldhash::HashSet<&AttributeDescription> =
        changes.iter().map(|change| &change.description).collect();
    let mut entry = reader.owned_in_part(pretty_dn, |description| {
        description.attribute == known.object_class
            || description.attribute == known.structural_object_class
            || changed.contains(description)
    })?;
    let sets = StoredSets { reader, prepared: Some((requested, operator.envelope.prepared)) };
    let budget = &context.settings.request_limits;
    change::apply_all(context.schema, &mut entry, changes, controls.permissive_modify, &sets, budget)?;
    if context.settings.holds_parts {
        check_part(context.schema, &entry)?;
        return Ok(entry);
    }
    if controls.schema_unchecked {
        renew_structural_class(context.schema, known, &mut entry);
        return Ok(entry);
    }
    let mode = CheckMode { relax: controls.relax, add: false, ..context.check_mode() };
    let mode = if operator.envelope.replicated { replicated::mode(mode) } else { mode };
    check_entry(context.schema, known, &mut entry, mode, &sets)?;
    Ok(entry)
}

/// What a change of the object classes (under the relax control) made of the recorded structural class.
fn structural_change<V: Snapshot>(
    operator: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    entry: &Entry,
    changes: &[&Change],
) -> Result<Option<Change>, Failure> {
    let known = operator.context.known;
    if !changes.iter().any(|change| change.description.attribute == known.object_class) {
        return Ok(None);
    }
    let description = AttributeDescription::plain(known.structural_object_class);
    let after = entry.values(known.structural_object_class);
    let before = operator.reader(current)?.to_owned(String::new(), false)?;
    if before.values(known.structural_object_class) == after {
        return Ok(None);
    }
    let (values, keys) = (after.to_vec(), after.to_vec());
    Ok(Some(Change {
        kind: ChangeKind::Replace,
        description,
        values,
        keys,
        access: RequiredAccess::Internal,
    }))
}

/// Stores the changed entry in the place of the old one. Answers its [size](encode::store).
pub(crate) fn store<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    current: &CurrentEntry<'_>,
    entry: &Entry,
) -> Result<u64, Failure> {
    let old = current.view()?;
    let place =
        Placement { id: current.id, parent: old.parent(), rdn: old.rdn(), normal_rdn: old.normal_rdn() };
    store_at(operator, current, place, entry)
}

/// Stores the changed entry where `place` says.
pub(crate) fn store_at<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    current: &CurrentEntry<'_>,
    place: Placement<'_>,
    entry: &Entry,
) -> Result<u64, Failure> {
    let old = current.view()?;
    let (schema, snapshot) = (operator.schema(), operator.snapshot());
    let bytes =
        encode::store(&mut operator.set, snapshot, schema, operator.catalog, place, Some(&old), entry)?;
    let reader = operator.reader(current)?;
    let changes = keys::changes(schema, operator.catalog.catalog(), Some(&reader), Some(entry))?;
    pending::apply(&mut operator.set, snapshot, current.id, &changes, Writing::Changed)?;
    Ok(bytes)
}
