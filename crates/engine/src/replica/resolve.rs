//! What is left of a modification that comes after newer ones of the same entry (delta-syncrepl between providers), value
//! by value, as OpenLDAP decides it:
//!
//! | older | newer | what is left of the older |
//! |---|---|---|
//! | any | replace, or delete of all | nothing |
//! | delete of all | delete of X | the delete |
//! | delete of X | delete or add of X | nothing |
//! | delete of all | add of X | delete of all that is there but X |
//! | add of X | delete or add of X | nothing |
//! | add of X | add of Y | the add, unless the attribute has a single value |

use larix_schema::{AttributeDescription, Schema};

use crate::write::prepare::{Change, ChangeKind};

/// The values that an entry has of an attribute, with their equality keys.
pub(super) type Present<'p> = &'p dyn Fn(&AttributeDescription) -> Vec<(Vec<u8>, Vec<u8>)>;

/// Drops from `older` what `newer` changes have overruled.
pub(super) fn resolve(
    schema: &Schema,
    older: Vec<Change>,
    newer: &[Change],
    present: Present<'_>,
) -> Vec<Change> {
    let mut left = split(older);
    for newer in newer {
        left = left.into_iter().filter_map(|older| against(schema, older, newer, present)).collect();
    }
    left
}

/// A replace is a delete of all, and an add.
fn split(changes: Vec<Change>) -> Vec<Change> {
    let mut out = Vec::with_capacity(changes.len() + 1);
    for change in changes {
        match change.kind {
            ChangeKind::Replace => {
                let none = (Vec::new(), Vec::new());
                out.push(Change { kind: ChangeKind::Delete, values: none.0, keys: none.1, ..change.clone() });
                if !change.values.is_empty() {
                    out.push(Change { kind: ChangeKind::Add, ..change });
                }
            }
            _ => out.push(change),
        }
    }
    out
}

fn against(schema: &Schema, mut older: Change, newer: &Change, present: Present<'_>) -> Option<Change> {
    if older.description != newer.description {
        return Some(older);
    }
    let deletes_all = newer.values.is_empty() && newer.kind == ChangeKind::Delete;
    if deletes_all || newer.kind == ChangeKind::Replace {
        return None;
    }
    let is_delete = older.kind == ChangeKind::Delete;
    let all = is_delete && older.values.is_empty();
    match newer.kind {
        ChangeKind::Delete if all => return Some(older),
        ChangeKind::Delete => {}
        _ => {
            if schema.attribute(older.description.attribute).single_value {
                return None;
            }
            if all {
                (older.values, older.keys) = present(&older.description).into_iter().unzip();
            }
        }
    }
    let pairs = std::mem::take(&mut older.values).into_iter().zip(std::mem::take(&mut older.keys));
    let (values, keys): (Vec<_>, Vec<_>) = pairs.filter(|(_, key)| !newer.keys.contains(key)).unzip();
    (older.values, older.keys) = (values, keys);
    // Without values it would be a delete of all.
    (!older.values.is_empty()).then_some(older)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::schema;
    use crate::write::AttributeValues;
    use crate::write::prepare::check_change;

    /// `add cn a b`, `delete cn`, `replace sn c`
    fn change(text: &str) -> Change {
        let mut words = text.split(' ');
        let kind = match words.next().unwrap() {
            "add" => ChangeKind::Add,
            "delete" => ChangeKind::Delete,
            "replace" => ChangeKind::Replace,
            other => panic!("{other}"),
        };
        let description = words.next().unwrap().to_owned();
        let values = words.map(|word| word.as_bytes().to_vec()).collect();
        check_change(&schema(), kind, AttributeValues { description, values }).unwrap()
    }

    fn text(change: &Change) -> String {
        let kind = match change.kind {
            ChangeKind::Add => "add",
            ChangeKind::Delete => "delete",
            _ => "other",
        };
        let values = change.values.iter().map(|value| format!(" {}", String::from_utf8_lossy(value)));
        format!("{kind} {}{}", change.description.to_text(&schema()), values.collect::<String>())
    }

    #[test]
    fn what_newer_changes_leave_of_an_older_one() {
        let check = |older: &str, newer: &str, expected: &str| {
            let newer: Vec<Change> = newer.split(", ").map(change).collect();
            let present = |_: &AttributeDescription| {
                ["p", "q"].map(|value| (value.as_bytes().to_vec(), value.as_bytes().to_vec())).to_vec()
            };
            let left = resolve(&schema(), vec![change(older)], &newer, &present);
            assert_eq!(left.iter().map(text).collect::<Vec<_>>().join(", "), expected, "{older} / {newer:?}");
        };
        check("delete cn", "delete cn", "");
        check("delete cn", "delete cn a", "delete cn");
        check("delete cn a b", "delete cn", "");
        check("delete cn a b", "delete cn A", "delete cn b");
        check("delete cn a", "delete cn b", "delete cn a");
        check("delete cn", "add cn p", "delete cn q");
        check("delete cn a b", "add cn a", "delete cn b");
        check("delete cn a", "add cn b", "delete cn a");
        check("add cn a b", "delete cn", "");
        check("add cn a b", "delete cn b", "add cn a");
        check("add cn a b", "add cn a", "add cn b");
        check("add cn a", "add cn b", "add cn a");
        check("add displayName a", "add displayName b", "");
        check("replace cn a", "replace cn b", "");
        check("replace cn a b", "add cn a", "delete cn p q, add cn b");
        check("replace cn a", "delete cn a", "delete cn");
        check("replace sn a", "replace cn b", "delete sn, add sn a");
        check("add cn a b c", "delete cn a, add cn b", "add cn c");
    }
}
