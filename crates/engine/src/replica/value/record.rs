//! A change that came by itself, as a record of an access log tells it, beside what the entry has: it is merged by the same
//! registers as whole versions are, so that it does not matter in which order, on which way and how often records come
//! (`docs/adr/0052-records-are-merged-by-registers.md`).

use std::collections::BTreeMap;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::merge::{content_of, put_of};
use super::registers::{
    AttributeState, Content, EntryState, Rule, Value, Version, merge, registers, value_key,
};
use super::{attribute_changes, derived, rows, rule_of};
use crate::EntryId;
use crate::change::prepare::{Change, ChangeKind, naming_changes};
use crate::csn::Csn;
use crate::entry::split_rdn;
use crate::failure::Failure;
use crate::replica::apply::Applier;
use crate::replica::difference;
use crate::replica::prepare::{Delta, DeltaChange, Put, names};
use crate::replica::steps::LocalEntry;
use crate::replica::{ApplyOutcome, ConflictKind};
use crate::write::entry_state::without_passing_values;
use crate::write::operator::{CurrentEntry, Operator};
use crate::write::values;

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// Merges what a record tells with the entry that is here.
    pub(in crate::replica) fn merge_record(
        &mut self,
        delta: &Delta,
        local: LocalEntry,
    ) -> Result<ApplyOutcome, Failure> {
        if delta.whole {
            // No change that anybody made: who needs what is in it is sent the entry with its state.
            return Ok(ApplyOutcome::Older);
        }
        let ours = self.step(|op| Ok(rows::read(op.schema(), op.snapshot(), &local.uuid, local.csn)?))?;
        let is_newest = ours.newest() < Some(delta.csn);
        match &delta.change {
            DeltaChange::Delete => self.delete(&local.uuid, Some(delta.csn)),
            _ if ours.seen.covers(&delta.csn) => Ok(ApplyOutcome::Older),
            DeltaChange::Modify(changes) => {
                let changes = without_passing_values(self.schema(), changes.clone());
                match is_newest {
                    // All there is to merge with is older: it is what a client's change would be.
                    true => self.modify_newer(delta, &local, &changes),
                    false => self.merge_changes(delta, local, (ours, changes, None)),
                }
            }
            DeltaChange::Rename { new_rdn, delete_old_rdn, new_superior, mods } => {
                let mut changes = mods.clone();
                if !delete_old_rdn {
                    changes.extend(naming_changes(
                        self.schema(),
                        split_rdn(&delta.pretty_dn).0,
                        ChangeKind::SoftAdd,
                    )?);
                }
                let name = self.step(|op| {
                    let superior = match new_superior {
                        Some(superior) => superior.clone(),
                        None => split_rdn(&op.view.dn(&op.current_entry(local.id)?.view()?)?).1.to_owned(),
                    };
                    if superior.is_empty() {
                        Ok(new_rdn.clone())
                    } else {
                        Ok(format!("{new_rdn},{superior}"))
                    }
                })?;
                self.merge_changes(delta, local, (ours, changes, Some(name)))
            }
        }
    }

    /// `name`: that a rename gives the entry.
    fn merge_changes(
        &mut self,
        delta: &Delta,
        local: LocalEntry,
        (ours, changes, name): (EntryState, Vec<Change>, Option<String>),
    ) -> Result<ApplyOutcome, Failure> {
        let changes = self.with_own_csn(changes, &delta.csn);
        let renames = name.is_some();
        let takes_name = renames && ours.named < Some(delta.csn);
        // What the contextCSN covers is not sent again.
        let may_ask = !self.is_covered(&delta.csn);
        let (put, lost) = self.step(|op| {
            let current = op.current_entry(local.id)?;
            let (schema, known) = (op.schema(), op.context.known);
            let own_pretty_dn = op.view.dn(&current.view()?)?;
            let mine = Version { state: ours.clone(), content: content_of(op, &current)? };
            let theirs = recorded_version(op, (&current, &mine), &changes, (delta.csn, renames))?;
            let rule = |description: &AttributeDescription| rule_of(schema, known, description);
            if may_ask
                && rows::forgotten(op.snapshot())? >= Some(delta.csn)
                && brings_unknown(&rule, &mine, &theirs, delta.csn)
            {
                return Err(cannot_tell(delta).into());
            }
            let mut merged = merge(&rule, &mine, &theirs);
            if mine.state.newest() < Some(delta.csn) {
                let newest = changes.iter().filter(|change| rule(&change.description) == Rule::Newest);
                for change in newest {
                    merged.version.content.insert(change.description.clone(), sent(change).collect());
                }
            }
            merged.version.state.seen.note(delta.csn);
            keep_order(&mine.content, &mut merged.version.content);
            let name = name.as_ref().filter(|_| takes_name).unwrap_or(&own_pretty_dn);
            let (dn, pretty_dn) = names(schema, name)?;
            derived::complete(schema, known, &mut merged.version, split_rdn(&pretty_dn).0)?;
            let as_sent = put_as_sent(delta, local.uuid, (dn, pretty_dn), takes_name);
            let mut put = put_of(known, &as_sent, merged.version);
            // Clients see attributes in the order in which the entry has them.
            let entry = op.reader(&current)?.owned_in_part(own_pretty_dn, |_| false)?;
            let places =
                difference::order_of(entry.attributes.iter().map(|attribute| &attribute.description));
            let place = |description: &AttributeDescription| places.get(description).copied();
            put.attributes.sort_by_cached_key(|change| place(&change.description).unwrap_or(usize::MAX));
            Ok((put, merged.lost_theirs))
        })?;
        let state = put.state.as_deref().cloned().unwrap_or_default();
        let (local_uuid, local_csn) = (local.uuid, local.csn);
        let applied = self.at_place(&put, |applier, put| {
            let applied = match !takes_name || put.dn == local.dn && local.parent == EntryId::ROOT {
                true => applier.put_in_place(put, &local)?,
                false => applier.put_named(put, local)?,
            };
            applier.step(|op| {
                let sequence = op.counters.last_log_sequence;
                let of = (&put.uuid, &state);
                Ok(rows::replace(op.schema(), op.snapshot(), &mut op.set, of, sequence)?)
            })?;
            Ok(applied)
        })?;
        if lost.is_empty() && takes_name == renames {
            return Ok(applied);
        }
        let lost = self.lost_values(lost, (takes_name != renames).then(|| delta.pretty_dn.clone()));
        let note = self.note_of_record(ConflictKind::Modify, delta, (local_uuid, local_csn), lost);
        self.note(note)
    }
}

/// The entry as the record has it: its attributes and states come from the merge.
fn put_as_sent(delta: &Delta, uuid: Uuid, name: (NormalDn, String), takes_name: bool) -> Put {
    Put {
        place: delta.place.clone().filter(|_| takes_name),
        record: Some(Some(delta.received.clone())),
        ..Put::new(uuid, name, None, String::new(), Vec::new())
    }
}

/// Whether the record sets a value without any known state here: it may have been removed since.
fn brings_unknown(
    rule: &dyn Fn(&AttributeDescription) -> Rule,
    mine: &Version,
    theirs: &Version,
    csn: Csn,
) -> bool {
    theirs.content.iter().any(|(description, values)| {
        let known = registers(mine, description);
        let is_unknown = |value: &Value| !known.contains_key(&value_key(&value.normal));
        rule(description) == Rule::Values
            && mine.state.cleared(description) <= Some(csn)
            && values.iter().any(is_unknown)
    })
}

fn cannot_tell(delta: &Delta) -> LdapResult {
    let text = format!(
        "\"{}\": values that were removed since {} are not remembered any more: the entry has to be sent whole",
        delta.dn.as_str(),
        delta.csn
    );
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
}

/// What the record tells, as a version of the entry that has nothing else.
fn recorded_version<V: Snapshot>(
    op: &Operator<'_, V>,
    (current, mine): (&CurrentEntry<'_>, &Version),
    changes: &[Change],
    (csn, renames): (Csn, bool),
) -> Result<Version, Failure> {
    let (schema, known) = (op.schema(), op.context.known);
    let all: Vec<&Change> = changes.iter().collect();
    let mut by_attribute = attribute_changes(op, current, &all)?;
    let mut content = Content::new();
    // Values that the record takes away: one that comes again is written as the record adds it.
    let mut removed: BTreeMap<&AttributeDescription, foldhash::HashSet<&[u8]>> = BTreeMap::new();
    for change in changes {
        let rule = rule_of(schema, known, &change.description);
        if matches!(rule, Rule::Newest | Rule::Ours) {
            continue;
        }
        let ours = mine.content.get(&change.description);
        let values = content.entry(change.description.clone()).or_default();
        match change.kind {
            ChangeKind::Increment => {
                if mine.state.cleared(&change.description) > Some(csn) {
                    // To what it was counted on is not known any more.
                    by_attribute.remove(&change.description);
                }
                *values =
                    ours.into_iter().flatten().filter_map(|value| increased(op, change, value)).collect();
            }
            ChangeKind::Delete if change.values.is_empty() => values.clear(),
            // Of what the same record adds, before it or after it, nothing else goes.
            ChangeKind::Delete => {
                let gone: foldhash::HashSet<&[u8]> = change.keys.iter().map(Vec::as_slice).collect();
                values.retain(|value| !gone.contains(value.normal.as_slice()));
                removed.entry(&change.description).or_default().extend(gone);
            }
            ChangeKind::Replace => *values = sent(change).collect(),
            ChangeKind::Add | ChangeKind::SoftAdd => {
                if rule == Rule::Whole {
                    values.clear();
                }
                let ours = ours.map(Vec::as_slice).filter(|_| change.kind == ChangeKind::SoftAdd);
                let gone = removed.get(&change.description);
                let stays = |value: &&Value| gone.is_none_or(|gone| !gone.contains(value.normal.as_slice()));
                add_values(values, ours.unwrap_or_default().iter().filter(stays), change);
            }
        }
    }
    content.retain(|description, _| by_attribute.contains_key(description));
    let mut state = EntryState { named: renames.then_some(csn), ..EntryState::default() };
    for (description, change) in by_attribute {
        let cleared = change.whole.then_some(csn);
        let registers = AttributeState { cleared, values: change.registers(csn).collect() };
        state.attributes.insert(description, registers);
    }
    Ok(Version { state, content })
}

/// Values stay in the order in which the entry has them; those that are new follow, as they would in a client's change.
fn keep_order(ours: &Content, merged: &mut Content) {
    for (description, values) in merged {
        let ours = ours.get(description).map(Vec::as_slice).unwrap_or_default();
        let places: foldhash::HashMap<_, _> = ours.iter().map(|known| &known.normal).zip(0_usize..).collect();
        values.sort_by_cached_key(|value| places.get(&value.normal).copied().unwrap_or(usize::MAX));
    }
}

/// Adds what is sent and not there yet. What is in `known` already keeps its spelling.
fn add_values<'v>(values: &mut Vec<Value>, known: impl Iterator<Item = &'v Value>, change: &Change) {
    let known: foldhash::HashMap<&[u8], &Value> =
        known.map(|value| (value.normal.as_slice(), value)).collect();
    let mut present: foldhash::HashSet<Vec<u8>> = values.iter().map(|value| value.normal.clone()).collect();
    for value in sent(change) {
        if present.insert(value.normal.clone()) {
            values.push(known.get(value.normal.as_slice()).map_or(value, |known| (*known).clone()));
        }
    }
}

fn sent(change: &Change) -> impl Iterator<Item = Value> + '_ {
    let pairs = change.keys.iter().zip(&change.values);
    pairs.map(|(normal, value)| Value { normal: normal.clone(), value: value.clone() })
}

fn increased<V: Snapshot>(op: &Operator<'_, V>, change: &Change, value: &Value) -> Option<Value> {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i128>().ok();
    let sum = number(&value.value)?.checked_add(number(change.values.first()?)?)?;
    let value = sum.to_string().into_bytes();
    let kind = op.schema().attribute(change.description.attribute);
    Some(Value { normal: values::key(op.schema(), kind, &value).ok()?, value })
}
