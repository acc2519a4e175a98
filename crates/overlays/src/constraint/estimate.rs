//! What an entry has once a change is made, as far as rules ask.

use std::collections::BTreeMap;

use larix_engine::entry::Entry;
use larix_engine::overlay::{Change, ChangeKind};
use larix_schema::{AttributeDescription, Schema};

/// Values of an attribute by their equality keys.
type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// The entry with these changes made. A change that cannot be made is passed over: the engine refuses the request for it.
pub(super) fn after(schema: &Schema, entry: &Entry, changes: &[Change]) -> Entry {
    let mut entry = entry.clone();
    let mut touched: BTreeMap<AttributeDescription, Values> = BTreeMap::new();
    for change in changes {
        let is_large =
            entry.attribute(&change.description).is_some_and(|attribute| attribute.large.is_some());
        if is_large && change.kind != ChangeKind::Replace && !change.values.is_empty() {
            change_large(&mut entry, change);
            continue;
        }
        let values = touched
            .entry(change.description.clone())
            .or_insert_with(|| by_keys(schema, &entry, &change.description));
        match change.kind {
            ChangeKind::Delete if change.values.is_empty() => values.clear(),
            ChangeKind::Delete => change.keys.iter().for_each(|key| drop(values.remove(key))),
            ChangeKind::Replace | ChangeKind::Add | ChangeKind::SoftAdd => {
                if change.kind == ChangeKind::Replace {
                    values.clear();
                }
                for (key, value) in change.keys.iter().zip(&change.values) {
                    values.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            ChangeKind::Increment => {
                *values = incremented(schema, &change.description, values, &change.values)
            }
        }
    }
    for (description, values) in touched {
        let attribute = entry.attribute_or_insert(&description);
        attribute.values = values.into_values().collect();
        attribute.large = None;
    }
    entry
}

/// The sums of the values and an amount; the amount itself where there are none, as the permissive modify control has it. A value that is
/// no number stays: the engine refuses the request for it.
fn incremented(
    schema: &Schema,
    description: &AttributeDescription,
    values: &Values,
    amounts: &[Vec<u8>],
) -> Values {
    let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse::<i128>().ok();
    let amount = amounts.first().and_then(|amount| number(amount));
    if values.is_empty() {
        return keyed(schema, description, amounts.iter().cloned());
    }
    let sums = values.values().map(|value| {
        let sum = amount.zip(number(value)).and_then(|(amount, old)| old.checked_add(amount));
        sum.map_or_else(|| value.clone(), |sum| sum.to_string().into_bytes())
    });
    keyed(schema, description, sums)
}

fn by_keys(schema: &Schema, entry: &Entry, description: &AttributeDescription) -> Values {
    let Some(attribute) = entry.attribute(description) else { return Values::new() };
    keyed(schema, description, attribute.values.iter().cloned())
}

fn keyed(
    schema: &Schema,
    description: &AttributeDescription,
    values: impl Iterator<Item = Vec<u8>>,
) -> Values {
    let kind = schema.attribute(description.attribute);
    let keyed = values.filter_map(|value| {
        let mut key = Vec::with_capacity(value.len());
        match kind.equality {
            Some(rule) => rule.normalize_value(schema, &value, &mut key).ok()?,
            None => key.extend_from_slice(&value),
        }
        Some((key, value))
    });
    keyed.collect()
}

/// A set that stays in the store: this only counts the values that it will have.
fn change_large(entry: &mut Entry, change: &Change) {
    let attribute = entry.attribute_mut(&change.description);
    let Some(large) = attribute.and_then(|attribute| attribute.large.as_mut()) else { return };
    for (key, value) in change.keys.iter().zip(&change.values) {
        match change.kind {
            ChangeKind::Delete => drop(large.removed.insert(key.clone())),
            _ => drop(large.added.insert(key.clone(), value.clone())),
        }
    }
}
