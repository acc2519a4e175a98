//! What makes an entry of the target the provider's version of it.

use std::collections::HashSet;

use larix_engine::replica::{AttributeShare, is_computed};
use larix_engine::write::{AttributeValues, Modification};
use larix_proto::ModifyOperation;
use larix_schema::{Schema, Usage};

/// Whether an attribute of the provider is written to the target: not what every server computes for itself, and not
/// where its access log is.
pub(super) fn is_written(description: &str) -> bool {
    !is_computed(description) && !description.eq_ignore_ascii_case("auditContext")
}

/// The changes from what an entry has to what it is to have. What the share leaves out stays as it is.
pub(super) fn difference(
    schema: &Schema,
    known: &[AttributeValues],
    wanted: &[AttributeValues],
    share: &AttributeShare,
) -> Vec<Modification> {
    let same = |one: &str, other: &str| match (schema.describe(one), schema.describe(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    };
    let is_shared = |description: &str| {
        schema.describe(description).map_or(true, |description| share.covers(schema, &description))
    };
    let mut changes = Vec::new();
    for one in wanted.iter().filter(|one| is_shared(&one.description)) {
        let before = known.iter().find(|known| same(&known.description, &one.description));
        changes_of(schema, before, one, &mut changes);
    }
    for one in known {
        let is_gone = !wanted.iter().any(|wanted| same(&wanted.description, &one.description));
        if is_gone
            && is_written(&one.description)
            && is_shared(&one.description)
            && is_kept(schema, &one.description)
        {
            let attribute = AttributeValues { description: one.description.clone(), values: Vec::new() };
            changes.push(Modification { operation: ModifyOperation::Delete, attribute });
        }
    }
    // Who changed what when: the target would say so itself of what is not said here.
    let is_said = |name: &str, changes: &[Modification]| {
        changes.iter().any(|change| same(&change.attribute.description, name))
    };
    if !changes.is_empty() {
        for one in wanted.iter().filter(|one| STAMPS.iter().any(|stamp| same(stamp, &one.description))) {
            if is_shared(&one.description) && !is_said(&one.description, &changes) {
                changes.push(Modification { operation: ModifyOperation::Replace, attribute: one.clone() });
            }
        }
    }
    changes
}

/// What every change of an entry sets.
const STAMPS: [&str; 3] = ["entryCSN", "modifiersName", "modifyTimestamp"];

/// Whether replication has a say in an attribute that the provider has not: what a server keeps for itself it has not.
fn is_kept(schema: &Schema, description: &str) -> bool {
    schema.describe(description).is_ok_and(|description| {
        let usage = schema.attribute(description.attribute).usage;
        !matches!(usage, Usage::DsaOperation)
    })
}

fn changes_of(
    schema: &Schema,
    before: Option<&AttributeValues>,
    wanted: &AttributeValues,
    changes: &mut Vec<Modification>,
) {
    let mut change = |operation, values: Vec<Vec<u8>>| {
        let attribute = AttributeValues { description: wanted.description.clone(), values };
        changes.push(Modification { operation, attribute });
    };
    let Some(before) = before else { return change(ModifyOperation::Add, wanted.values.clone()) };
    let had: HashSet<&[u8]> = before.values.iter().map(Vec::as_slice).collect();
    let has: HashSet<&[u8]> = wanted.values.iter().map(Vec::as_slice).collect();
    let less = |from: &AttributeValues, others: &HashSet<&[u8]>| -> Vec<Vec<u8>> {
        from.values.iter().filter(|value| !others.contains(value.as_slice())).cloned().collect()
    };
    let (gone, new) = (less(before, &has), less(wanted, &had));
    if gone.is_empty() && new.is_empty() {
        return;
    }
    // Single values are sent where that is less than all of them. The target compares them by its equality rule.
    let is_comparable = schema
        .describe(&wanted.description)
        .is_ok_and(|description| schema.attribute(description.attribute).equality.is_some());
    if !is_comparable || gone.len() + new.len() >= wanted.values.len() {
        return change(ModifyOperation::Replace, wanted.values.clone());
    }
    if !gone.is_empty() {
        change(ModifyOperation::Delete, gone);
    }
    if !new.is_empty() {
        change(ModifyOperation::Add, new);
    }
}
