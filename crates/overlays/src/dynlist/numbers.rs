//! Values of dgAuthz are in an order, which they carry as `{n}` (X-ORDERED 'VALUES'): the overlay writes it, as slapd does.

use larix_engine::overlay::{Additions, Change, ChangeKind, PendingChange, PreparedChange, Refusal};
use larix_schema::{AttributeDescription, Schema};

/// The number, and what is behind it.
fn numbered(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.strip_prefix('{')?.split_once('}')?;
    Some((number.parse().ok()?, rest))
}

/// The value without the number.
pub(super) fn without_number(text: &str) -> &str {
    numbered(text).map_or(text, |(_, rest)| rest)
}

fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or_default()
}

/// The change with a number for each value that comes, and with the stored value for one that goes.
pub(super) fn number(
    change: &PendingChange<'_>,
    attribute: &AttributeDescription,
) -> Result<Additions, Refusal> {
    let (PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. }) = change.operation else {
        return Ok(Additions::default());
    };
    if mods.iter().all(|own| own.description != *attribute) {
        return Ok(Additions::default());
    }
    let mut altered = change.operation.clone();
    match &mut altered {
        PreparedChange::Add { entry, mods, .. } => {
            for own in mods.iter_mut().filter(|own| own.description == *attribute) {
                *own = with(change.schema, own, add_numbers(&own.values, 0));
            }
            for own in entry.attributes.iter_mut().filter(|own| own.description == *attribute) {
                own.values = add_numbers(&own.values, 0);
            }
        }
        PreparedChange::Modify { dn, mods } => {
            let entry = change.entries.entry(dn)?;
            let stored = entry.as_ref().and_then(|entry| entry.attribute(attribute));
            let mut there: Vec<Vec<u8>> = stored.map_or_else(Vec::new, |stored| stored.values.clone());
            for own in mods.iter_mut().filter(|own| own.description == *attribute) {
                *own = with(change.schema, own, values_of(own, &mut there));
            }
        }
        _ => {}
    }
    Ok(Additions { altered: Some(altered), ..Additions::default() })
}

/// The values of a modification as they are stored; `there` is what it finds, and then what it leaves.
fn values_of(own: &Change, there: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    match own.kind {
        ChangeKind::Delete if own.values.is_empty() => {
            there.clear();
            Vec::new()
        }
        ChangeKind::Delete => {
            let stored = |value: &Vec<u8>| {
                let found =
                    there.iter().find(|there| without_number(text(there)) == without_number(text(value)));
                found.unwrap_or(value).clone()
            };
            let gone: Vec<Vec<u8>> = own.values.iter().map(stored).collect();
            there.retain(|value| !gone.contains(value));
            gone
        }
        ChangeKind::Replace => {
            *there = add_numbers(&own.values, 0);
            there.clone()
        }
        ChangeKind::Add | ChangeKind::SoftAdd | ChangeKind::Increment => {
            let most = there.iter().filter_map(|value| Some(numbered(text(value))?.0)).max();
            let added = add_numbers(&own.values, most.map_or(0, |most| most.saturating_add(1)));
            there.extend(added.iter().cloned());
            added
        }
    }
}

/// The values with numbers from `next` on, in the order in which they came: numbers that a client sends mean nothing else.
fn add_numbers(values: &[Vec<u8>], next: usize) -> Vec<Vec<u8>> {
    let numbers = (next..).zip(values);
    numbers
        .map(|(number, value)| format!("{{{number}}}{}", without_number(text(value))).into_bytes())
        .collect()
}

/// The modification with other values, which stay as they are.
fn with(schema: &Schema, own: &Change, values: Vec<Vec<u8>>) -> Change {
    let rule = schema.attribute(own.description.attribute).equality;
    let key = |value: &Vec<u8>| {
        let mut key = Vec::new();
        match rule.map(|rule| rule.normalize_value(schema, value, &mut key)) {
            Some(Ok(())) => key,
            _ => value.clone(),
        }
    };
    let keys = values.iter().map(key).collect();
    Change { values, keys, ..own.clone() }
}
