//! How a local change updates the entry's state.

use std::collections::{BTreeMap, BTreeSet};

use larix_schema::{AttributeDescription, Schema, Usage};
use larix_store::Snapshot;
use uuid::Uuid;

use super::operator::{CurrentEntry, Operator};
use super::{KnownSchema, values};
use crate::change::prepare::{Change, ChangeKind, naming_changes};
use crate::entry::{Entry, EntrySource};
use crate::failure::Failure;
use crate::replica_state::registers::{AttributeChange, Rule, value_key};
use crate::replica_state::rows;

/// How two versions of an attribute become one.
pub(crate) fn rule_of(schema: &Schema, known: &KnownSchema, description: &AttributeDescription) -> Rule {
    let id = description.attribute;
    if [known.entry_csn, known.modifiers_name, known.modify_timestamp].contains(&id) {
        return Rule::Newest;
    }
    let kind = schema.attribute(id);
    // Each server derives or keeps these by itself (RFC 4512 section 3.4.2): memberOf, for one.
    if kind.usage == Usage::DsaOperation {
        return Rule::Ours;
    }
    match kind.single_value || kind.equality.is_none() {
        true => Rule::Whole,
        false => Rule::Values,
    }
}

/// What the entry was called, when the change gives it another name.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Renamed<'r> {
    pub(crate) old_rdn: &'r str,
}

/// Notes a change of an entry, after it was logged. `current`: the entry as it was, `entry`: as it is now.
///
/// # Errors
/// A store that cannot be read.
pub(crate) fn note_change<V: Snapshot>(
    op: &mut Operator<'_, V>,
    (current, entry): (&CurrentEntry<'_>, &Entry),
    changes: &[&Change],
    renamed: Option<Renamed<'_>>,
) -> Result<(), Failure> {
    // What an overlay derives has no CSN of its own: every server derives it.
    if !op.context.settings.keeps_states() || !op.stamps() {
        return Ok(());
    }
    let uuid = op.entry_uuid(current)?;
    if uuid.is_nil() {
        return Ok(());
    }
    let (known, csn) = (op.context.known, op.stamp.csn);
    let text = csn.text();
    let is_stamped = changes.iter().any(|change| {
        change.description.attribute == known.entry_csn
            && change.values.first().is_some_and(|value| value == text.as_bytes())
    });
    if !is_stamped {
        // A client that sets the entryCSN itself sets the whole entry under it.
        return Ok(rows::forget(op.snapshot(), &mut op.set, &uuid)?);
    }
    let before = op.first_value(current, known.entry_csn)?;
    let before = before.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
    let (mut state, is_kept) = rows::head(op.snapshot(), &uuid, before)?;
    if !is_kept {
        rows::forget(op.snapshot(), &mut op.set, &uuid)?;
    }
    state.seen.note(csn);
    if renamed.is_some() {
        state.named = Some(csn);
    }
    rows::put_head(&mut op.set, &uuid, &state);
    let mut by_attribute = attribute_changes(op, current, changes)?;
    if op.context.settings.merges_records {
        // A record says all by its content. A rename away from a name whose values stay is recorded as a change of these values.
        if let Some(renamed) = renamed {
            keep_old_name(op, renamed, &mut by_attribute)?;
        }
    } else if is_kept {
        confirm(op, (&uuid, entry), renamed, &mut by_attribute)?;
    }
    let sequence = op.counters.last_log_sequence;
    for (description, change) in &by_attribute {
        let text = description.to_text(op.schema());
        rows::put_change(op.snapshot(), &mut op.set, (&uuid, &text, is_kept), (change, csn, sequence))?;
    }
    Ok(())
}

pub(crate) type AttributeChanges = BTreeMap<AttributeDescription, AttributeChange>;

pub(crate) fn attribute_changes<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    changes: &[&Change],
) -> Result<AttributeChanges, Failure> {
    let known = op.context.known;
    let passing = passing_values(op.schema(), changes.iter().copied());
    let mut by_attribute = AttributeChanges::new();
    for (at, change) in changes.iter().enumerate() {
        let is_passing = |position: usize| passing.contains(&(at, position));
        if !change.values.is_empty() && (0..change.values.len()).all(is_passing) {
            continue;
        }
        let rule = rule_of(op.schema(), known, &change.description);
        if matches!(rule, Rule::Newest | Rule::Ours) {
            continue;
        }
        let of = by_attribute.entry(change.description.clone()).or_default();
        // A record of it does not say what it found.
        let merges_records = op.context.settings.merges_records;
        if change.description.attribute == known.object_class
            && change.kind == ChangeKind::Replace
            && !merges_records
        {
            // Classes are always changed one by one: two servers that each send the whole list mean to add or to remove
            // some.
            let before = class_keys(op, current)?;
            let removed = before.iter().filter(|key| !change.keys.contains(key));
            let added = change.keys.iter().filter(|key| !before.contains(key));
            of.values.extend(removed.map(|key| (value_key(key), false)));
            of.values.extend(added.map(|key| (value_key(key), true)));
        } else {
            of.take(rule, change);
        }
    }
    Ok(by_attribute)
}

/// The changes of one request without the values that it adds to an attribute with a single value and takes away again. Until the request
/// ends, such an attribute may have several values. Where an add replaces the one value, as it does in a merge, a value that passes would
/// take away the one that stays.
pub(crate) fn without_passing_values(schema: &Schema, changes: Vec<Change>) -> Vec<Change> {
    without_passing(schema, changes, |_| true)
}

/// The same where the deletes stay: under the permissive modify control a request may add a value that is there, and take it away. For
/// entries in which a delete of what is not there changes nothing.
pub(crate) fn without_passing_adds(schema: &Schema, changes: Vec<Change>) -> Vec<Change> {
    without_passing(schema, changes, |kind| kind == ChangeKind::Add)
}

fn without_passing(schema: &Schema, changes: Vec<Change>, goes: impl Fn(ChangeKind) -> bool) -> Vec<Change> {
    let passing = passing_values(schema, &changes);
    if passing.is_empty() {
        return changes;
    }
    let mut left = Vec::with_capacity(changes.len());
    for (at, mut change) in changes.into_iter().enumerate() {
        if !goes(change.kind) {
            left.push(change);
            continue;
        }
        let had_values = !change.values.is_empty();
        for values in [&mut change.values, &mut change.keys] {
            let numbered = std::mem::take(values).into_iter().enumerate();
            let stays = numbered.filter(|(position, _)| !passing.contains(&(at, *position)));
            *values = stays.map(|(_, value)| value).collect();
        }
        // A delete without values would take the whole attribute away.
        if !had_values || !change.values.is_empty() {
            left.push(change);
        }
    }
    left
}

/// The changes of a request under the permissive modify control, without the adds of values that are there and that it takes away
/// again: to others these would be values that only pass. `None`: it takes away nothing that it adds.
pub(crate) fn without_idle_adds<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    requested: &[Change],
) -> Result<Option<Vec<Change>>, Failure> {
    let passing = passing_values(op.schema(), requested);
    if passing.is_empty() {
        return Ok(None);
    }
    let mut left = Vec::with_capacity(requested.len());
    for (at, change) in requested.iter().enumerate() {
        let mut change = change.clone();
        if change.kind == ChangeKind::Add && passing.iter().any(|(passes, _)| *passes == at) {
            let there = keys_of(op, current, &change.description)?;
            let pairs = std::mem::take(&mut change.values).into_iter().zip(std::mem::take(&mut change.keys));
            let numbered = pairs.enumerate();
            let stays = numbered
                .filter(|(position, (_, key))| !passing.contains(&(at, *position)) || !there.contains(key));
            (change.values, change.keys) = stays.map(|(_, pair)| pair).unzip();
            if change.values.is_empty() {
                continue;
            }
        }
        left.push(change);
    }
    Ok(Some(left))
}

/// The values of such an attribute that a request adds and takes away again: which change of the request, and which of its values.
fn passing_values<'c>(
    schema: &Schema,
    changes: impl IntoIterator<Item = &'c Change>,
) -> BTreeSet<(usize, usize)> {
    let mut passing = BTreeSet::new();
    let mut added: BTreeMap<&AttributeDescription, BTreeMap<&[u8], (usize, usize)>> = BTreeMap::new();
    for (at, change) in changes.into_iter().enumerate() {
        if !schema.attribute(change.description.attribute).single_value {
            continue;
        }
        let keys = change.keys.iter().map(Vec::as_slice).enumerate();
        match change.kind {
            ChangeKind::Add => {
                let of = added.entry(&change.description).or_default();
                of.extend(keys.map(|(position, key)| (key, (at, position))));
            }
            ChangeKind::Delete if !change.values.is_empty() => {
                let Some(of) = added.get_mut(&change.description) else { continue };
                for (position, key) in keys {
                    if let Some(add) = of.remove(key) {
                        passing.extend([add, (at, position)]);
                    }
                }
            }
            // It may have been there before.
            ChangeKind::SoftAdd => {}
            ChangeKind::Delete | ChangeKind::Replace | ChangeKind::Increment => {
                added.remove(&change.description);
            }
        }
    }
    passing
}

fn class_keys<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
) -> Result<Vec<Vec<u8>>, Failure> {
    keys_of(op, current, &AttributeDescription::plain(op.context.known.object_class))
}

fn keys_of<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    description: &AttributeDescription,
) -> Result<Vec<Vec<u8>>, Failure> {
    let (schema, kind) = (op.schema(), op.schema().attribute(description.attribute));
    let mut keys = Vec::new();
    op.reader(current)?.visit_exact(description, &mut |value| {
        keys.extend(values::key(schema, kind, value));
        true
    })?;
    Ok(keys)
}

/// The values of the name that the entry had are there, unless the change took them away.
fn keep_old_name<V: Snapshot>(
    op: &Operator<'_, V>,
    renamed: Renamed<'_>,
    by_attribute: &mut AttributeChanges,
) -> Result<(), Failure> {
    for naming in naming_changes(op.schema(), renamed.old_rdn, ChangeKind::SoftAdd)? {
        if rule_of(op.schema(), op.context.known, &naming.description) != Rule::Values {
            continue;
        }
        let of = by_attribute.entry(naming.description.clone()).or_default();
        if !of.whole {
            naming.keys.iter().for_each(|key| _ = of.values.entry(value_key(key)).or_insert(true));
        }
    }
    Ok(())
}

/// The merge kept some values though they had been removed (a class that is needed, a value of the name). The author of this
/// change saw them and left them, so they are present from now on.
fn confirm<V: Snapshot>(
    op: &Operator<'_, V>,
    (uuid, entry): (&Uuid, &Entry),
    renamed: Option<Renamed<'_>>,
    by_attribute: &mut AttributeChanges,
) -> Result<(), Failure> {
    let (schema, known) = (op.schema(), op.context.known);
    let mut candidates: Vec<(AttributeDescription, Vec<u8>)> = Vec::new();
    let classes = AttributeDescription::plain(known.object_class);
    if rows::has_attribute(op.snapshot(), uuid, &classes.to_text(schema))? {
        let kind = schema.attribute(known.object_class);
        let keys = entry.values(known.object_class).iter().flat_map(|value| values::key(schema, kind, value));
        candidates.extend(keys.map(|key| (classes.clone(), key)));
    }
    if let Some(renamed) = renamed {
        for naming in naming_changes(schema, renamed.old_rdn, ChangeKind::SoftAdd)? {
            if rule_of(schema, known, &naming.description) == Rule::Values {
                candidates.extend(naming.keys.into_iter().map(|key| (naming.description.clone(), key)));
            }
        }
    }
    for (description, key) in candidates {
        let (key, text) = (value_key(&key), description.to_text(schema));
        let changed = by_attribute.get(&description);
        if changed.is_some_and(|changed| changed.whole || changed.values.contains_key(&key)) {
            continue;
        }
        if rows::register(op.snapshot(), (uuid, &text), &key)?.is_some_and(|register| !register.present) {
            by_attribute.entry(description).or_default().values.insert(key, true);
        }
    }
    Ok(())
}
