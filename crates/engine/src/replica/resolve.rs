//! What is left of a modification that comes after newer ones of the same entry (delta-syncrepl between providers), value
//! by value, as OpenLDAP decides it:
//!
//! | older | newer | what is left of the older |
//! |---|---|---|
//! | any | replace, or delete of all | nothing |
//! | delete of all | delete of X | the delete |
//! | delete of X | delete or add of X | nothing |
//! | delete of all | add of X | replace by X |
//! | add of X | delete or add of X | nothing |
//! | add of X | add of Y | the add, unless the attribute has a single value |
//!
//! What is left is logged here under the older change's CSN: other servers receive it, and a change that is older still is
//! merged with it. So nothing of it depends on what the entry has here. OpenLDAP makes of the fourth row a delete of the
//! values that are there but X, which is the same for this entry and another change for all other servers; it logs the change
//! as it came instead.

use larix_schema::Schema;

use crate::change::prepare::{Change, ChangeKind};

/// Drops from `older` what `newer` changes, in the order of their CSNs, have overruled.
pub(super) fn resolve(schema: &Schema, older: Vec<Change>, newer: &[Change]) -> Vec<Change> {
    let mut remaining = split(older);
    for newer in newer {
        remaining = remaining.into_iter().filter_map(|older| against(schema, older, newer)).collect();
    }
    remaining
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

fn against(schema: &Schema, mut older: Change, newer: &Change) -> Option<Change> {
    if older.description != newer.description {
        return Some(older);
    }
    let deletes_all = newer.values.is_empty() && newer.kind == ChangeKind::Delete;
    if deletes_all || newer.kind == ChangeKind::Replace {
        return None;
    }
    if newer.kind != ChangeKind::Delete && schema.attribute(older.description.attribute).single_value {
        return None;
    }
    if newer.kind == ChangeKind::Increment {
        return Some(older);
    }
    // A replace is a delete of all that newer adds came behind.
    let of_all = match older.kind {
        ChangeKind::Replace => true,
        ChangeKind::Delete => older.values.is_empty(),
        _ => false,
    };
    let pairs = std::mem::take(&mut older.values).into_iter().zip(std::mem::take(&mut older.keys));
    let (values, keys): (Vec<_>, Vec<_>) = pairs.filter(|(_, key)| !newer.keys.contains(key)).unzip();
    (older.values, older.keys) = (values, keys);
    if of_all && newer.kind != ChangeKind::Delete {
        older.kind = ChangeKind::Replace;
        older.values.extend(newer.values.iter().cloned());
        older.keys.extend(newer.keys.iter().cloned());
    }
    // Without values another one would be a delete of all.
    (of_all || !older.values.is_empty()).then_some(older)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{change, schema};

    fn text(change: &Change) -> String {
        let kind = match change.kind {
            ChangeKind::Add => "add",
            ChangeKind::Delete => "delete",
            ChangeKind::Replace => "replace",
            _ => "other",
        };
        let values = change.values.iter().map(|value| format!(" {}", String::from_utf8_lossy(value)));
        format!("{kind} {}{}", change.description.to_text(&schema()), values.collect::<String>())
    }

    #[test]
    fn what_newer_changes_leave_of_an_older_one() {
        let check = |older: &str, newer: &str, expected: &str| {
            let newer: Vec<Change> = newer.split(", ").map(change).collect();
            let remaining = resolve(&schema(), vec![change(older)], &newer);
            assert_eq!(
                remaining.iter().map(text).collect::<Vec<_>>().join(", "),
                expected,
                "{older} / {newer:?}"
            );
        };
        check("delete cn", "delete cn", "");
        check("delete cn", "delete cn a", "delete cn");
        check("delete cn a b", "delete cn", "");
        check("delete cn a b", "delete cn A", "delete cn b");
        check("delete cn a", "delete cn b", "delete cn a");
        check("delete cn", "add cn p", "replace cn p");
        check("delete cn", "add cn p, delete cn x, add cn P q", "replace cn P q");
        check("delete cn", "add cn p, delete cn p", "replace cn");
        check("delete cn a b", "add cn a", "delete cn b");
        check("delete cn a", "add cn b", "delete cn a");
        check("add cn a b", "delete cn", "");
        check("add cn a b", "delete cn b", "add cn a");
        check("add cn a b", "add cn a", "add cn b");
        check("add cn a", "add cn b", "add cn a");
        check("add displayName a", "add displayName b", "");
        check("replace cn a", "replace cn b", "");
        check("replace cn a b", "add cn a", "replace cn a, add cn b");
        check("replace cn a", "delete cn a", "delete cn");
        check("replace sn a", "replace cn b", "delete sn, add sn a");
        check("add cn a b c", "delete cn a, add cn b", "add cn c");
    }
}
