//! What has to change for a stored entry to become another.

use larix_schema::AttributeDescription;
use larix_store::Snapshot;

use super::AttributeShare;
use crate::budget::RequestLimits;
use crate::change::prepare::{Change, ChangeKind, RequiredAccess};
use crate::entry::record::Form;
use crate::entry::{Entry, EntrySource};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::write::change;
use crate::write::operator::{CurrentEntry, Operator, StoredSets};
use crate::write::values;

/// Above so many values an attribute is changed value by value rather than replaced.
const REPLACED_MAX: u64 = 64;

/// The modifications that make the share's attributes of a stored entry those of `new`. Values are compared as they are
/// sent: a change of spelling counts.
pub(super) fn changes<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    new: &[Change],
    share: &AttributeShare,
) -> Result<Vec<Change>, Failure> {
    let reader = op.reader(current)?;
    let view = current.view()?;
    let catalog = op.catalog.catalog();
    let mut changes = Vec::new();
    let sent: foldhash::HashMap<_, _> =
        new.iter().rev().map(|change| (&change.description, change)).collect();
    let mut seen: foldhash::HashSet<&AttributeDescription> = foldhash::HashSet::default();
    for attribute in view.attributes() {
        let (number, stored) = attribute?;
        let Some(description) = catalog.row(number).and_then(|row| row.description.as_ref()) else {
            continue;
        };
        let Some(wanted) = sent.get(description) else {
            // A provider that sends no operational attributes says nothing about this one.
            if share.covers(op.schema(), description)
                && description.attribute != op.context.known.structural_object_class
            {
                changes.push(replaced(description, Vec::new(), Vec::new()));
            }
            continue;
        };
        seen.insert(&wanted.description);
        let mut values: Vec<Vec<u8>> = Vec::new();
        reader.visit_values(number, &stored, &mut |value| {
            values.push(value.to_vec());
            true
        })?;
        let few = stored.form() != Form::Large && stored.len() <= REPLACED_MAX;
        // Of few values the order is the provider's, too.
        if values == wanted.values || !few && are_same(&values, &wanted.values) {
            continue;
        }
        // Without an equality rule no value can be named.
        if few || op.schema().attribute(description.attribute).equality.is_none() {
            changes.push(replaced(description, wanted.values.clone(), wanted.keys.clone()));
        } else {
            by_value(op, description, values, wanted, &mut changes);
        }
    }
    // A consumer that receives these changes one by one (delta-syncrepl) may have other values than there are here, and an older
    // change that comes later is merged with what they say: they say what is, not what was missing here.
    let added = new.iter().filter(|change| !seen.contains(&change.description));
    changes.extend(
        added.map(|change| replaced(&change.description, change.values.clone(), change.keys.clone())),
    );
    Ok(changes)
}

/// The ends of what a shadow has counted of an account by itself, if the changes bring a password. The provider has not counted it: its
/// records end nothing, and a share may leave these attributes out. `whole`: the changes make an entry what the provider has, as far as
/// this share goes, so that a lock which they do not name is the provider's, too.
pub(super) fn ends_of_account_state<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    changes: &[Change],
    whole: Option<&AttributeShare>,
) -> Result<Vec<Change>, Fault> {
    let settings = op.context.settings;
    let are_about =
        |description: &AttributeDescription| changes.iter().any(|change| change.description == *description);
    let mut ends = Vec::new();
    if !settings.shadow || !are_about(&AttributeDescription::plain(op.context.known.user_password)) {
        return Ok(ends);
    }
    for name in settings.overlays.iter().flat_map(|overlay| overlay.account_state()) {
        let Some(attribute) = op.schema().attribute_type_id(name) else { continue };
        let description = AttributeDescription::plain(attribute);
        let is_said =
            are_about(&description) || whole.is_some_and(|share| share.covers(op.schema(), &description));
        if !is_said && op.first_value(current, attribute)?.is_some() {
            ends.push(replaced(&description, Vec::new(), Vec::new()));
        }
    }
    Ok(ends)
}

fn replaced(description: &AttributeDescription, values: Vec<Vec<u8>>, keys: Vec<Vec<u8>>) -> Change {
    let (kind, description) = (ChangeKind::Replace, description.clone());
    Change { kind, description, values, keys, access: RequiredAccess::Internal }
}

fn are_same(old: &[Vec<u8>], new: &[Vec<u8>]) -> bool {
    if old.len() != new.len() {
        return false;
    }
    if old == new {
        return true;
    }
    let sorted = |values: &[Vec<u8>]| {
        let mut values: Vec<_> = values.to_vec();
        values.sort_unstable();
        values
    };
    sorted(old) == sorted(new)
}

fn by_value<V: Snapshot>(
    op: &Operator<'_, V>,
    description: &AttributeDescription,
    old: Vec<Vec<u8>>,
    new: &Change,
    changes: &mut Vec<Change>,
) {
    let kind = op.schema().attribute(description.attribute);
    let wanted: foldhash::HashSet<&Vec<u8>> = new.values.iter().collect();
    let present: foldhash::HashSet<&Vec<u8>> = old.iter().collect();
    let gone: Vec<Vec<u8>> = old.iter().filter(|value| !wanted.contains(value)).cloned().collect();
    let added = new.values.iter().zip(&new.keys).filter(|(value, _)| !present.contains(value));
    let (values, keys): (Vec<_>, Vec<_>) = added.map(|(value, key)| (value.clone(), key.clone())).unzip();
    let change = |kind, values, keys| Change {
        kind,
        description: description.clone(),
        values,
        keys,
        access: RequiredAccess::Internal,
    };
    if !gone.is_empty() {
        let keys = gone.iter().map(|value| values::key(op.schema(), kind, value).unwrap_or_default());
        let keys = keys.collect();
        changes.push(change(ChangeKind::Delete, gone, keys));
    }
    if !values.is_empty() {
        changes.push(change(ChangeKind::Add, values, keys));
    }
}

/// The stored entry with the changes made, unchecked.
pub(super) fn changed<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    pretty_dn: String,
    changes: &[Change],
) -> Result<Entry, Failure> {
    let reader = op.reader(current)?;
    let known = op.context.known;
    let all: Vec<&Change> = changes.iter().collect();
    let named: foldhash::HashSet<_> = changes.iter().map(|change| &change.description).collect();
    let mut entry = reader.owned_in_part(pretty_dn, |description| {
        description.attribute == known.object_class
            || description.attribute == known.structural_object_class
            || named.contains(description)
    })?;
    let sets = StoredSets::new(reader);
    change::apply_all(op.schema(), &mut entry, &all, true, &sets, &RequestLimits::UNLIMITED)?;
    Ok(entry)
}

/// Where each attribute stands among others, for an order that is not looked for again and again.
pub(super) fn order_of<'d>(
    descriptions: impl Iterator<Item = &'d AttributeDescription>,
) -> foldhash::HashMap<&'d AttributeDescription, usize> {
    descriptions.enumerate().map(|(place, description)| (description, place)).collect()
}

/// Whether the entry as it will be lacks a value of the name that it has now: a rename that deleted the old RDN.
pub(super) fn lacks_old_name<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    entry: &Entry,
) -> Result<bool, Fault> {
    let view = current.view()?;
    let Ok(parsed) = larix_proto::Dn::parse(view.rdn()) else { return Ok(false) };
    let Some(rdn) = parsed.rdns().first() else { return Ok(false) };
    let schema = op.schema();
    for ava in rdn.avas() {
        let Ok(description) = schema.describe(ava.attribute) else { continue };
        let Some(attribute) = entry.attribute(&description) else { return Ok(true) };
        if attribute.unchanged.is_some() || attribute.large.is_some() {
            continue;
        }
        let kind = schema.attribute(description.attribute);
        let wanted = values::key(schema, kind, &ava.value).unwrap_or_default();
        let mut found = false;
        let source = crate::entry::reader::OwnedSource { schema, entry };
        source.visit_exact(&description, &mut |value| {
            found = values::key(schema, kind, value).is_ok_and(|key| key == wanted);
            !found
        })?;
        if !found {
            return Ok(true);
        }
    }
    Ok(false)
}
