//! One logged change of another server (delta-syncrepl), carried out on what is here.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::AttributeDescription;
use larix_store::{Direction, Snapshot, Store};
use uuid::Uuid;

use super::apply::Applier;
use super::prepare::{Delta, DeltaChange, Put, modifications_of, names};
use super::steps::{self, LocalEntry};
use super::{ApplyOutcome, ConflictKind, ConflictNote, KeptSide, conflicts, difference, resolve, state};
use crate::change::prepare::{Change, ChangeKind, RequiredAccess, naming_changes};
use crate::csn::Csn;
use crate::entry::{Entry, EntrySource, split_rdn};
use crate::failure::Failure;
use crate::log::{LogRecord, LoggedChange, NumberedRows};
use crate::write::AttributeValues;
use crate::write::operational::Stamp;
use crate::write::operator::{CurrentEntry, LogMark, Operator, logged};
use crate::write::{entry_state, modify, values};

/// Records of the log that are looked through for newer changes of an entry.
const LOOKED_THROUGH_MAX: usize = 65_536;
/// Microseconds that a record may have come late: the search for newer changes goes back so far behind the change.
const LATE_MAX: i64 = 600_000_000;

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    pub(super) fn delta(&mut self, delta: &Delta) -> Result<ApplyOutcome, Failure> {
        self.follow(&delta.csn);
        if self.settles_values() {
            let text = "the conflict mode here is `value`: what an access log tells cannot be merged";
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
        }
        if self.rules.drop_covered && self.is_covered(&delta.csn) {
            return Ok(ApplyOutcome::Older);
        }
        self.stamp = Stamp { csn: delta.csn, name: self.modifier(delta) };
        let local = self.step(|op| {
            let id = match &delta.uuid {
                Some(uuid) => steps::find(op, uuid)?,
                None => op.resolve(&delta.dn)?.id,
            };
            id.map(|id| steps::local_entry(op, id)).transpose()
        })?;
        let Some(local) = local.filter(|local| !local.glue) else {
            // Known, and gone since.
            let is_over = self.is_covered(&delta.csn) && !matches!(delta.change, DeltaChange::Delete);
            return if is_over { Ok(ApplyOutcome::Older) } else { self.of_nothing(delta) };
        };
        if self.merges_records() {
            return self.merge_record(delta, local);
        }
        match &delta.change {
            DeltaChange::Delete => self.delete(&local.uuid, Some(delta.csn)),
            DeltaChange::Modify(changes) => {
                let changes = entry_state::without_passing_adds(self.schema(), changes.clone());
                self.modify(delta, local, &changes)
            }
            DeltaChange::Rename { .. } => self.rename(delta, local),
        }
    }

    fn modifier(&self, delta: &Delta) -> String {
        let (DeltaChange::Modify(changes) | DeltaChange::Rename { mods: changes, .. }) = &delta.change else {
            return String::new();
        };
        let id = self.known().modifiers_name;
        super::prepare::first_value(changes, id).unwrap_or_default().to_owned()
    }

    /// The entry is not here.
    fn of_nothing(&mut self, delta: &Delta) -> Result<ApplyOutcome, Failure> {
        let tombstone = match &delta.uuid {
            Some(uuid) => self.step(|op| Ok(state::tombstone(op.snapshot(), uuid)?))?,
            None => None,
        };
        if let (DeltaChange::Delete, Some(uuid)) = (&delta.change, &delta.uuid) {
            return self.delete(uuid, Some(delta.csn));
        }
        match tombstone {
            Some(_) if matches!(delta.change, DeltaChange::Delete) => Ok(ApplyOutcome::Older),
            Some(tombstone) if self.rules.multi_provider || tombstone.csn > delta.csn => {
                let uuid = delta.uuid.unwrap_or_default();
                let note = self.lost(ConflictKind::Delete, delta, (uuid, Some(tombstone.csn)), uuid);
                self.note(note)
            }
            _ => {
                let text = format!("\"{}\" is not here", delta.dn.as_str());
                Err(LdapResult::with(ResultCode::NO_SUCH_OBJECT, text).into())
            }
        }
    }

    fn lost(
        &self,
        kind: ConflictKind,
        delta: &Delta,
        (winner_uuid, winner_csn): (Uuid, Option<Csn>),
        loser_uuid: Uuid,
    ) -> ConflictNote {
        let (DeltaChange::Modify(changes) | DeltaChange::Rename { mods: changes, .. }) = &delta.change else {
            return self.note_of(kind, delta, (winner_uuid, winner_csn), loser_uuid, &[]);
        };
        self.note_of(kind, delta, (winner_uuid, winner_csn), loser_uuid, changes)
    }

    fn note_of(
        &self,
        kind: ConflictKind,
        delta: &Delta,
        winner: (Uuid, Option<Csn>),
        loser_uuid: Uuid,
        lost: &[Change],
    ) -> ConflictNote {
        let values = lost.iter().map(|change| AttributeValues {
            description: change.description.to_text(self.schema()),
            values: change.values.clone(),
        });
        let note = self.note_of_record(kind, delta, winner, conflicts::cut(values));
        ConflictNote { loser_uuid, ..note }
    }

    /// What was lost of a record that is about the winner itself.
    pub(super) fn note_of_record(
        &self,
        kind: ConflictKind,
        delta: &Delta,
        (winner_uuid, winner_csn): (Uuid, Option<Csn>),
        lost: Vec<AttributeValues>,
    ) -> ConflictNote {
        ConflictNote {
            kind,
            kept: KeptSide::Ours,
            dn: delta.dn.as_str().to_owned(),
            winner_uuid,
            winner_csn,
            loser_uuid: winner_uuid,
            loser_csn: Some(delta.csn),
            lost,
        }
    }

    fn modify(
        &mut self,
        delta: &Delta,
        local: LocalEntry,
        changes: &[Change],
    ) -> Result<ApplyOutcome, Failure> {
        match local.csn {
            Some(ours) if ours == delta.csn => Ok(ApplyOutcome::Older),
            Some(ours) if ours > delta.csn => {
                let Some(left) = self.left_of(delta, &local, changes)? else {
                    return Ok(ApplyOutcome::Older);
                };
                self.store_changes(&local, left)?;
                let note = self.lost(ConflictKind::Modify, delta, (local.uuid, local.csn), local.uuid);
                self.note(note)
            }
            _ => self.modify_newer(delta, &local, changes),
        }
    }

    /// A modification that is newer than all that the entry has.
    pub(super) fn modify_newer(
        &mut self,
        delta: &Delta,
        local: &LocalEntry,
        changes: &[Change],
    ) -> Result<ApplyOutcome, Failure> {
        let mut changes = self.with_own_csn(changes.to_vec(), &delta.csn);
        let ends = self.step(|op| {
            let current = op.current_entry(local.id)?;
            Ok(difference::ends_of_account_state(op, &current, &changes, None)?)
        })?;
        changes.extend(ends);
        self.store_changes(local, changes)?;
        Ok(ApplyOutcome::Done)
    }

    /// Carries out a modification, and logs it.
    pub(super) fn store_changes(&mut self, local: &LocalEntry, changes: Vec<Change>) -> Result<(), Failure> {
        let softened: Vec<Change> = changes.into_iter().map(|change| self.softened(change)).collect();
        if !softened.is_empty() {
            self.step(|op| {
                let current = op.current_entry(local.id)?;
                let pretty_dn = op.view.dn(&current.view()?)?;
                let entry = changed(op, &current, pretty_dn.clone(), &softened)?;
                modify::store(op, &current, &entry)?;
                let all: Vec<&Change> = softened.iter().collect();
                op.log_marked(
                    (local.id, crate::EntryId::ROOT),
                    local.uuid,
                    &pretty_dn,
                    LogMark::default(),
                    |schema| LoggedChange::Modify(logged(schema, &all)),
                );
                entry_state::note_change(op, (&current, &entry), &all, None)
            })?;
        }
        Ok(())
    }

    /// A log that tells no entryCSN means that of the change.
    pub(super) fn with_own_csn(&self, mut changes: Vec<Change>, csn: &Csn) -> Vec<Change> {
        let id = self.known().entry_csn;
        if !changes.iter().any(|change| change.description.attribute == id) {
            let value = csn.text().into_bytes();
            changes.push(Change {
                kind: ChangeKind::Replace,
                description: AttributeDescription::plain(id),
                values: vec![value.clone()],
                keys: vec![value],
                access: RequiredAccess::Internal,
            });
        }
        changes
    }

    /// Deletes of what is gone are no errors. A single value gives way to another, and so do values that cannot be compared:
    /// beside others none can be added, so that there were none where it was done.
    fn softened(&self, change: Change) -> Change {
        let kind = self.schema().attribute(change.description.attribute);
        match change.kind {
            ChangeKind::Add if kind.single_value || kind.equality.is_none() => {
                Change { kind: ChangeKind::Replace, ..change }
            }
            _ => change,
        }
    }

    /// What newer changes of the entry leave of this one; `None` when it was merged before.
    fn left_of(
        &mut self,
        delta: &Delta,
        local: &LocalEntry,
        changes: &[Change],
    ) -> Result<Option<Vec<Change>>, Failure> {
        // Who changed it last, and when, is settled as any attribute is: what a server decided by itself says nothing of it.
        let entry_csn = self.known().entry_csn;
        let is_recorded = |change: &&Change| change.description.attribute != entry_csn;
        let changes: Vec<Change> = changes.iter().filter(is_recorded).cloned().collect();
        let rules = self.rules;
        self.step(|op| {
            let Some(records) = newer_records(op, &local.uuid, &delta.csn)? else { return Ok(None) };
            let mut newer = Vec::new();
            for record in records {
                if has_it(&record, &delta.csn) {
                    return Ok(Some(Vec::new()));
                }
                let (LoggedChange::Modify(mods) | LoggedChange::ModifyDn { modifications: mods, .. }) =
                    record.change
                else {
                    continue;
                };
                let mods = modifications_of(op.schema(), rules, mods)?;
                newer.extend(entry_state::without_passing_adds(op.schema(), mods));
            }
            Ok(Some(resolve::resolve(op.schema(), changes, &newer)))
        })
    }

    fn rename(&mut self, delta: &Delta, local: LocalEntry) -> Result<ApplyOutcome, Failure> {
        let DeltaChange::Rename { new_rdn, delete_old_rdn, new_superior, mods } = &delta.change else {
            return Ok(ApplyOutcome::Older);
        };
        let older = local.csn.is_some_and(|ours| ours > delta.csn);
        if local.csn == Some(delta.csn) {
            return Ok(ApplyOutcome::Older);
        }
        if older {
            let renamed = self.step(|op| {
                let newer = newer_records(op, &local.uuid, &delta.csn)?;
                let is_over = |record: &LogRecord| {
                    matches!(record.change, LoggedChange::ModifyDn { .. }) || has_it(record, &delta.csn)
                };
                Ok(newer.map(|newer| newer.iter().any(is_over)))
            })?;
            let Some(renamed) = renamed else { return Ok(ApplyOutcome::Older) };
            if renamed {
                let note = self.lost(ConflictKind::Modify, delta, (local.uuid, local.csn), local.uuid);
                return self.note(note);
            }
        }
        let changes = match older {
            true => self.left_of(delta, &local, mods)?.unwrap_or_default(),
            false => self.with_own_csn(mods.clone(), &delta.csn),
        };
        let csn = if older { local.csn } else { Some(delta.csn) };
        let name = (new_rdn.as_str(), *delete_old_rdn, new_superior.as_deref());
        let put = self.step(|op| renamed(op, (&local, csn), name, &changes))?;
        if put.dn == local.dn && local.parent == crate::EntryId::ROOT {
            return self.put_in_place(&put, &local);
        }
        if put.dn == local.dn {
            // It has the name by this change from now on: an older rename that comes later is overruled by it.
            let rules = self.rules;
            self.step(|op| {
                let Some(place) = steps::place_of(op, &put.dn, &put.pretty_dn)? else {
                    return Err(crate::Fault::Damaged { what: "the superior of an entry" }.into());
                };
                steps::change(op, local.id, &put, rules, Some((&place, new_superior.clone())))
            })?;
            return Ok(ApplyOutcome::Done);
        }
        self.put_elsewhere(&put, local)
    }
}

/// The stored entry with a record's changes made. A record that takes all classes away does not tell what its provider has.
fn changed<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    pretty_dn: String,
    changes: &[Change],
) -> Result<Entry, Failure> {
    let entry = difference::changed(op, current, pretty_dn, changes)?;
    if entry.values(op.context.known.object_class).is_empty() {
        let text = format!("\"{}\": no objectClass attribute", entry.dn);
        return Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text).into());
    }
    Ok(entry)
}

/// The entry under its new name, with what else is changed; `csn`: its own from then on.
fn renamed<V: Snapshot>(
    op: &Operator<'_, V>,
    (local, csn): (&LocalEntry, Option<Csn>),
    (new_rdn, delete_old_rdn, new_superior): (&str, bool, Option<&str>),
    changes: &[Change],
) -> Result<Put, Failure> {
    let current = op.current_entry(local.id)?;
    let old = op.view.dn(&current.view()?)?;
    let superior = new_superior.unwrap_or_else(|| split_rdn(&old).1);
    let pretty_dn = if superior.is_empty() { new_rdn.to_owned() } else { format!("{new_rdn},{superior}") };
    let (dn, pretty_dn) = names(op.schema(), &pretty_dn)?;
    // A log may leave it to us what the rename does to the naming values.
    let mut all = Vec::new();
    if delete_old_rdn {
        all.extend(naming_changes(op.schema(), split_rdn(&old).0, ChangeKind::Delete)?);
    }
    all.extend(naming_changes(op.schema(), split_rdn(&pretty_dn).0, ChangeKind::SoftAdd)?);
    all.extend(changes.iter().cloned());
    let entry = changed(op, &current, pretty_dn.clone(), &all)?;
    let attributes = whole(op, &current, &entry)?;
    let modifier = op.stamp.name.clone();
    Ok(Put::new(local.uuid, (dn, pretty_dn), csn, modifier, attributes))
}

/// All attributes of an entry as adds: kept ones are read.
fn whole<V: Snapshot>(
    op: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
    entry: &Entry,
) -> Result<Vec<Change>, Failure> {
    let reader = op.reader(current)?;
    let schema = op.schema();
    let mut all = Vec::with_capacity(entry.attributes.len());
    for attribute in &entry.attributes {
        let mut values = attribute.values.clone();
        if attribute.unchanged.is_some() || attribute.large.is_some() {
            reader.visit_exact(&attribute.description, &mut |value| {
                values.push(value.to_vec());
                true
            })?;
        }
        if values.is_empty() {
            continue;
        }
        let kind = schema.attribute(attribute.description.attribute);
        let keys = values.iter().map(|value| values::key(schema, kind, value).unwrap_or_default()).collect();
        let description = attribute.description.clone();
        let (kind, access) = (ChangeKind::Add, RequiredAccess::Internal);
        all.push(Change { kind, description, values, keys, access });
    }
    Ok(all)
}

/// Whether with this newer record the entry came whole, as the server of this CSN had made it later: the change is in it, and
/// nothing tells what was set again since.
fn has_it(newer: &LogRecord, csn: &Csn) -> bool {
    matches!(newer.change, LoggedChange::Add(_)) && newer.csn.server_id == csn.server_id
}

/// The changes of an entry that are newer than `csn`, oldest first; `None` where the change of that CSN was merged before. Who
/// merges it again tells it again: two members that follow each other's logs would never come to rest.
///
/// # Errors
/// Refused when the log does not go back far enough to tell.
fn newer_records<V: Snapshot>(
    op: &Operator<'_, V>,
    uuid: &Uuid,
    csn: &Csn,
) -> Result<Option<Vec<LogRecord>>, Failure> {
    let cannot_tell = || -> Failure {
        let text = "the change log does not tell what was changed since: the entry has to be sent whole";
        LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into()
    };
    if !op.context.settings.log {
        return Err(cannot_tell());
    }
    let mut found = Vec::new();
    let mut last: Option<(u64, Csn)> = None;
    for (looked, row) in NumberedRows::after(op.snapshot(), 0, Direction::Backward)?.enumerate() {
        let (key, value) = row?;
        if looked == LOOKED_THROUGH_MAX {
            return Err(cannot_tell());
        }
        if last.is_some_and(|(sequence, _)| key.sequence + 1 < sequence) {
            // What was between them has gone.
            break;
        }
        let damaged = crate::Fault::Damaged { what: "a record of the change log" };
        let record = LogRecord::decode(&value).map_err(|_| damaged)?;
        if record.csn.time.0 < csn.time.0 - LATE_MAX {
            last = None;
            break;
        }
        last = Some((key.sequence, record.csn));
        if record.entry_uuid != *uuid || record.local {
            continue;
        }
        if record.csn == *csn {
            return Ok(None);
        }
        if record.csn > *csn {
            found.push(record);
        }
    }
    if last.is_some_and(|(sequence, oldest)| sequence > 1 && oldest > *csn) {
        return Err(cannot_tell());
    }
    // Of one CSN in the order in which they were logged.
    found.reverse();
    found.sort_by_key(|record| record.csn);
    Ok(Some(found))
}
