//! Changes that a server makes by itself, for all: what an entry is, or is called, under a CSN of the server that
//! decided it (`docs/adr/0025-replicated-changes-and-conflicts.md`).

use larix_schema::AttributeDescription;
use larix_store::Snapshot;

use super::steps::SENT;
use super::{difference, state};
use crate::change::prepare::{Change, ChangeKind, RequiredAccess, naming_changes};
use crate::entry::{EntryId, EntrySource};
use crate::failure::Failure;
use crate::log::{LoggedChange, RecordForm};
use crate::write::operator::{CurrentEntry, LogMark, Operator, logged};
use crate::write::{entry_state, modify, values};

/// An entry has the name that it has by a change of this server, for all.
pub(super) fn keep_name<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId) -> Result<(), Failure> {
    stamp_again(op, id, true)
}

/// An entry is what it is by a change of this server, for all.
pub(super) fn keep_content<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId) -> Result<(), Failure> {
    stamp_again(op, id, false)
}

/// Writes an entry as it is under the CSN of the stamp; logged as a rename to its present name, or as a modification.
/// A name that the server chose brings its values, as one that a client gives does.
fn stamp_again<V: Snapshot>(op: &mut Operator<'_, V>, id: EntryId, named: bool) -> Result<(), Failure> {
    let current = op.current_entry(id)?;
    let view = current.view()?;
    let (uuid, pretty_dn) = (op.entry_uuid(&current)?, op.view.dn(&view)?);
    let mut changes = stamped(op, &current)?;
    if named {
        changes.extend(missing_naming_values(op, &current)?);
    }
    let entry = difference::changed(op, &current, pretty_dn.clone(), &changes)?;
    modify::store(op, &current, &entry)?;
    let all: Vec<&Change> = changes.iter().collect();
    let (rdn, parent) = (view.rdn().to_owned(), view.parent());
    let form = match named && op.context.settings.merges_records {
        // The glue entry above it may be gone when the record is sent.
        true => RecordForm::AsReceived { change: None, place: state::stands(&op.view, id)? },
        false => RecordForm::AsDone,
    };
    op.log_marked((id, parent), uuid, &pretty_dn, LogMark { form, ..SENT }, |schema| match named {
        true => LoggedChange::ModifyDn {
            new_rdn: rdn,
            delete_old_rdn: false,
            new_superior: None,
            modifications: logged(schema, &all),
        },
        false => LoggedChange::Modify(logged(schema, &all)),
    });
    let renamed = named.then(|| entry_state::Renamed { old_rdn: view.rdn() });
    entry_state::note_change(op, (&current, &entry), &all, renamed)
}

/// What an entry lacks of the values of its name. A move that is taken back gives it the name that it had before: the values
/// went with the rename, whose CSN the taking back has not.
fn missing_naming_values<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
) -> Result<Vec<Change>, Failure> {
    let (schema, reader, view) = (op.schema(), op.reader(current)?, current.view()?);
    let mut missing = Vec::new();
    // Values that cannot be compared are never missing: such a name came from elsewhere.
    for naming in naming_changes(schema, view.rdn(), ChangeKind::SoftAdd).unwrap_or_default() {
        let kind = schema.attribute(naming.description.attribute);
        let mut is_there = false;
        reader.visit_exact(&naming.description, &mut |value| {
            is_there = values::key(schema, kind, value).is_ok_and(|key| naming.keys.contains(&key));
            !is_there
        })?;
        if !is_there {
            // A single value gives way.
            let kind = if kind.single_value { ChangeKind::Replace } else { naming.kind };
            missing.push(Change { kind, ..naming });
        }
    }
    Ok(missing)
}

/// What a change that this server makes by itself sets beside its values: the CSN of the stamp.
pub(super) fn stamped<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
) -> Result<Vec<Change>, Failure> {
    let set = |id: larix_schema::AttributeTypeId, value: Vec<u8>| Change {
        kind: ChangeKind::Replace,
        description: AttributeDescription::plain(id),
        keys: vec![value.clone()],
        values: vec![value],
        access: RequiredAccess::Internal,
    };
    let mut changes = vec![set(op.context.known.entry_csn, op.stamp.csn.text().into_bytes())];
    if op.context.settings.merges_records {
        // The latest change says who changed the entry last, and when: this one says what is known here.
        for id in [op.context.known.modifiers_name, op.context.known.modify_timestamp] {
            changes.extend(op.first_value(current, id)?.map(|value| set(id, value)));
        }
    }
    Ok(changes)
}
