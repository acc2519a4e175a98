//! Changes of accounts by their logins that a shadow hands on to its provider.

use larix_proto::ModifyOperation;
use larix_schema::{NormalDn, Schema};

use crate::change::prepare::{Change, ChangeKind};
use crate::change::{AttributeValues, Modification, WriteOperation};
use crate::entry::Entry;

/// A change of an account's state as a request. What is to go may be gone there.
pub(super) fn request(schema: &Schema, dn: &NormalDn, changes: &[Change]) -> WriteOperation {
    let changes = changes.iter().map(|change| {
        let kind = match change.kind {
            ChangeKind::Delete if change.values.is_empty() => ModifyOperation::Replace,
            kind => operation(kind),
        };
        modification(schema, change, kind, change.values.clone())
    });
    WriteOperation::Modify { object: dn.as_str().to_owned(), changes: changes.collect() }
}

/// The same of one that must not be made twice: instead of a value in the place of another it takes away the values that were
/// seen, so that of two servers that have seen the same only the first succeeds.
pub(super) fn exact_request(
    schema: &Schema,
    dn: &NormalDn,
    changes: &[Change],
    seen: Option<&Entry>,
) -> WriteOperation {
    let mut requested = Vec::with_capacity(changes.len() * 2);
    for change in changes {
        if change.kind != ChangeKind::Replace {
            requested.push(modification(schema, change, operation(change.kind), change.values.clone()));
            continue;
        }
        let present = seen.map_or(&[][..], |entry| entry.values(change.description.attribute));
        if !present.is_empty() {
            requested.push(modification(schema, change, ModifyOperation::Delete, present.to_vec()));
        }
        requested.push(modification(schema, change, ModifyOperation::Add, change.values.clone()));
    }
    WriteOperation::Modify { object: dn.as_str().to_owned(), changes: requested }
}

fn modification(
    schema: &Schema,
    change: &Change,
    operation: ModifyOperation,
    values: Vec<Vec<u8>>,
) -> Modification {
    Modification {
        operation,
        attribute: AttributeValues { description: change.description.to_text(schema), values },
    }
}

const fn operation(kind: ChangeKind) -> ModifyOperation {
    match kind {
        ChangeKind::Add | ChangeKind::SoftAdd => ModifyOperation::Add,
        ChangeKind::Delete => ModifyOperation::Delete,
        ChangeKind::Replace => ModifyOperation::Replace,
        ChangeKind::Increment => ModifyOperation::Increment,
    }
}
