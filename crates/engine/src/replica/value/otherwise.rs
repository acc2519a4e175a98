//! Differences between this server's entries and those of a provider that keeps no states.
//!
//! A slapd merges the changes of the logs that it follows value by value, and its entryCSN says nothing of older ones that
//! came late. Its cookie covers them, so no server sends them again. How old a value of it is, is not known; but how far it
//! had come before it was asked, and how far what was not heard of here may reach:
//!
//! * a word of ours that it had not heard of stands: we send it, and send it again where its entry has a later change, which need
//!   not be of the same attribute;
//! * of one that it had heard of it may have a later one that is not known here: its value counts;
//! * where no change unknown here is later, the provider has lost our word, and we send it again.
//!
//! What is said once more, and the last two, are changes of this server under a CSN of its own: everybody hears of them, and who
//! decides the same at the same time does no harm.

use std::collections::{BTreeMap, BTreeSet};

use larix_schema::{AttributeDescription, Usage};
use larix_store::{Snapshot, Store};

use super::merge::{content_of, content_of_put};
use super::registers::{Content, Rule, Value, Version, registers, value_key};
use super::{rows, rule_of};
use crate::change::prepare::{Change, ChangeKind, RequiredAccess};
use crate::csn::Csn;
use crate::failure::Failure;
use crate::log::CsnVector;
use crate::replica::apply::Applier;
use crate::replica::prepare::Put;
use crate::replica::steps::{self, LocalEntry};
use crate::replica::{ApplyOutcome, ConflictKind, ConflictNote, KeptSide, decided, difference};
use crate::write::operator::Operator;

/// Which side a value is taken from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Winner {
    /// Ours: it is sent to the provider.
    OursUnsent,
    Theirs,
    /// Ours, which the provider has lost.
    Ours,
}

/// What is known of the provider.
struct Provider<'p> {
    /// How far it had come before the request.
    csns: &'p CsnVector,
    /// The latest change that it may have and that is not known here.
    reach: Option<Csn>,
}

impl<'p> Provider<'p> {
    /// `covered`: our contextCSN. `entry`: the CSN of the entry that it sent.
    fn new(csns: &'p CsnVector, covered: &CsnVector, entry: Option<Csn>) -> Self {
        let unknown = |csn: &&Csn| !covered.covers(csn);
        Self { csns, reach: csns.as_slice().iter().chain(&entry).filter(unknown).max().copied() }
    }

    fn winner(&self, ours: Csn) -> Winner {
        match self.csns.covers(&ours) {
            false => Winner::OursUnsent,
            true if self.reach > Some(ours) => Winner::Theirs,
            true => Winner::Ours,
        }
    }
}

/// An entry as it was before its provider's version came, where that is one to be settled.
#[derive(Debug)]
pub(in crate::replica) struct Before(Version);

/// What to do about an entry.
#[derive(Default)]
struct Settled {
    changes: Vec<Change>,
    /// Values of ours that gave way, and values of the provider's that did.
    lost_ours: Content,
    lost_theirs: Content,
}

impl<S: Store, T: Snapshot> Applier<'_, '_, S, T> {
    /// The entry as it is, if a version of it that comes is to be settled: `None` where the two are merged by what is known of
    /// both.
    pub(in crate::replica) fn before_settling(
        &mut self,
        put: &Put,
        local: &LocalEntry,
    ) -> Result<Option<Before>, Failure> {
        let is_told_by_state = put.state.is_some() || put.record.is_some();
        let rules = self.rules;
        let is_judged = rules.provider_had.is_some() && rules.multi_provider && !is_told_by_state;
        if !is_judged || !self.merges_records() {
            return Ok(None);
        }
        self.step(|op| {
            let current = op.current_entry(local.id)?;
            if difference::changes(op, &current, &put.attributes, &rules.attributes)?.is_empty() {
                return Ok(None);
            }
            let state = rows::read(op.schema(), op.snapshot(), &put.uuid, local.csn)?;
            Ok(Some(Before(Version { state, content: content_of(op, &current)? })))
        })
    }

    /// Settles what the entry was otherwise at its provider, after the two were merged by what was known of them. `applied`:
    /// what came of that.
    pub(in crate::replica) fn settle_otherwise(
        &mut self,
        put: &Put,
        Before(before): Before,
        applied: ApplyOutcome,
    ) -> Result<ApplyOutcome, Failure> {
        let rules = self.rules;
        let Some(provider_csns) = rules.provider_had.as_ref() else { return Ok(applied) };
        let covered = self.covered.iter().copied().collect();
        let provider = Provider::new(provider_csns, &covered, put.csn);
        let found = self.step(|op| {
            let Some(id) = steps::find(op, &put.uuid)? else { return Ok(None) };
            let local = steps::local_entry(op, id)?;
            // Names are settled by themselves, and their values with them.
            if local.glue || local.dn != put.dn {
                return Ok(None);
            }
            let current = op.current_entry(id)?;
            let state = rows::read(op.schema(), op.snapshot(), &put.uuid, local.csn)?;
            let ours = Version { state, content: content_of(op, &current)? };
            let mut settled = settled(op, &provider, &ours, content_of_put(put));
            settled.say_again(op, &provider, &before, &ours.content);
            Ok(Some((local, settled)))
        })?;
        let Some((local, settled)) = found else { return Ok(applied) };
        let Settled { mut changes, lost_ours, lost_theirs } = settled;
        // It had heard of the latest change, and says of an older one that this is the latest.
        let went_back = local.csn.is_some_and(|ours| put.csn < Some(ours) && provider_csns.covers(&ours));
        if changes.is_empty() && !went_back {
            return Ok(applied);
        }
        self.stamp = self.own_stamp();
        changes.extend(self.step(|op| decided::stamped(op, &op.current_entry(local.id)?))?);
        self.store_changes(&local, changes)?;
        let mut applied = ApplyOutcome::Done;
        for (kept, lost) in [(KeptSide::Theirs, lost_ours), (KeptSide::Ours, lost_theirs)] {
            if !lost.is_empty() {
                applied = self.note_settled(put, &local, kept, lost)?;
            }
        }
        Ok(applied)
    }

    fn note_settled(
        &mut self,
        put: &Put,
        local: &LocalEntry,
        kept: KeptSide,
        lost: Content,
    ) -> Result<ApplyOutcome, Failure> {
        let (winner_csn, loser_csn) = match kept {
            KeptSide::Ours => (local.csn, put.csn),
            KeptSide::Theirs => (put.csn, local.csn),
        };
        self.note(ConflictNote {
            kind: ConflictKind::Modify,
            kept,
            dn: put.pretty_dn.clone(),
            winner_uuid: put.uuid,
            winner_csn,
            loser_uuid: put.uuid,
            loser_csn,
            lost: self.lost_values(lost, None),
        })
    }
}

/// What the entry becomes where it is otherwise at the provider. Attributes that are no user's are each server's.
fn settled<V: Snapshot>(
    op: &Operator<'_, V>,
    provider: &Provider<'_>,
    ours: &Version,
    theirs: Content,
) -> Settled {
    let (schema, known) = (op.schema(), op.context.known);
    let mut settled = Settled::default();
    let names: BTreeSet<&AttributeDescription> = ours.content.keys().chain(theirs.keys()).collect();
    for name in names {
        if schema.attribute(name.attribute).usage != Usage::UserApplications {
            continue;
        }
        let sides = (values_of(&ours.content, name), values_of(&theirs, name));
        match rule_of(schema, known, name) {
            Rule::Newest | Rule::Ours => {}
            Rule::Values => settled.by_value(provider, name, ours, sides),
            Rule::Whole => settled.whole(provider, name, ours, sides),
        }
    }
    settled
}

type Sides = (BTreeMap<Vec<u8>, Value>, BTreeMap<Vec<u8>, Value>);

/// The values of an attribute by their normal forms.
fn values_of(content: &Content, name: &AttributeDescription) -> BTreeMap<Vec<u8>, Value> {
    let values = content.get(name).into_iter().flatten();
    values.map(|value| (value.normal.clone(), value.clone())).collect()
}

impl Settled {
    fn by_value(
        &mut self,
        provider: &Provider<'_>,
        name: &AttributeDescription,
        ours: &Version,
        (mine, others): Sides,
    ) {
        let known = registers(ours, name);
        let cleared = ours.state.cleared(name).unwrap_or(Csn::ZERO);
        let winner = |normal: &[u8]| {
            provider.winner(known.get(&value_key(normal)).map_or(cleared, |register| register.csn))
        };
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for (value, is_mine) in alone(&mine, &others).chain(alone(&others, &mine).map(|(v, _)| (v, false))) {
            match (winner(&value.normal), is_mine) {
                (Winner::OursUnsent, _) => {}
                (Winner::Theirs, true) => {
                    self.lost_ours.entry(name.clone()).or_default().push(value.clone());
                    absent.push(value.clone());
                }
                (Winner::Ours, false) => {
                    self.lost_theirs.entry(name.clone()).or_default().push(value.clone());
                    absent.push(value.clone());
                }
                (Winner::Theirs, false) | (Winner::Ours, true) => present.push(value.clone()),
            }
        }
        self.set(name, present, absent);
    }

    /// Says again what the provider had not heard of and the merge took away: it knew of the entry no more than when it was
    /// changed last. `now`: what there is behind the merge.
    fn say_again<V: Snapshot>(
        &mut self,
        op: &Operator<'_, V>,
        provider: &Provider<'_>,
        before: &Version,
        now: &Content,
    ) {
        let (schema, known) = (op.schema(), op.context.known);
        let is_users =
            |name: &AttributeDescription| schema.attribute(name.attribute).usage == Usage::UserApplications;
        for name in before.state.attributes.keys().filter(|name| is_users(name)) {
            let (mine, theirs) = (values_of(&before.content, name), values_of(now, name));
            let registers = registers(before, name);
            let cleared = before.state.cleared(name);
            match rule_of(schema, known, name) {
                Rule::Newest | Rule::Ours => {}
                Rule::Whole => {
                    let last = registers.values().map(|register| register.csn).max().max(cleared);
                    let is_unsent = last.is_some_and(|last| provider.winner(last) == Winner::OursUnsent);
                    if is_unsent && !mine.keys().eq(theirs.keys()) {
                        self.note_theirs(name, theirs.into_values().collect());
                        self.changes.push(change(ChangeKind::Replace, name, mine.into_values().collect()));
                    }
                }
                Rule::Values => {
                    let winner = |normal: &[u8]| {
                        let register = registers.get(&value_key(normal));
                        register.map(|register| register.csn).or(cleared).map(|csn| provider.winner(csn))
                    };
                    let unsent = |of: &BTreeMap<Vec<u8>, Value>, other: &BTreeMap<Vec<u8>, Value>| {
                        let values = alone(of, other).map(|(value, _)| value);
                        let unsent = values.filter(|value| winner(&value.normal) == Some(Winner::OursUnsent));
                        unsent.cloned().collect::<Vec<_>>()
                    };
                    let (present, absent) = (unsent(&mine, &theirs), unsent(&theirs, &mine));
                    self.note_theirs(name, absent.clone());
                    self.set(name, present, absent);
                }
            }
        }
    }

    fn note_theirs(&mut self, name: &AttributeDescription, values: Vec<Value>) {
        if !values.is_empty() {
            self.lost_theirs.entry(name.clone()).or_default().extend(values);
        }
    }

    fn set(&mut self, name: &AttributeDescription, present: Vec<Value>, absent: Vec<Value>) {
        // A server that has a value already must take the change all the same: it is removed before it is added.
        let removed: Vec<Value> = absent.into_iter().chain(present.iter().cloned()).collect();
        for (kind, values) in [(ChangeKind::Delete, removed), (ChangeKind::Add, present)] {
            if !values.is_empty() {
                self.changes.push(change(kind, name, values));
            }
        }
    }

    fn whole(
        &mut self,
        provider: &Provider<'_>,
        name: &AttributeDescription,
        ours: &Version,
        (mine, others): Sides,
    ) {
        if mine.keys().eq(others.keys()) {
            return;
        }
        let last = registers(ours, name).into_values().map(|register| register.csn).max();
        let last = last.max(ours.state.cleared(name)).unwrap_or(Csn::ZERO);
        let (stays, goes, lost) = match provider.winner(last) {
            Winner::OursUnsent => return,
            Winner::Theirs => (others, mine, &mut self.lost_ours),
            Winner::Ours => (mine, others, &mut self.lost_theirs),
        };
        if !goes.is_empty() {
            lost.insert(name.clone(), goes.into_values().collect());
        }
        self.changes.push(change(ChangeKind::Replace, name, stays.into_values().collect()));
    }
}

/// The values that one side has and the other has not.
fn alone<'v>(
    of: &'v BTreeMap<Vec<u8>, Value>,
    other: &'v BTreeMap<Vec<u8>, Value>,
) -> impl Iterator<Item = (&'v Value, bool)> {
    of.iter().filter(|(normal, _)| !other.contains_key(*normal)).map(|(_, value)| (value, true))
}

fn change(kind: ChangeKind, description: &AttributeDescription, values: Vec<Value>) -> Change {
    let (keys, values) = values.into_iter().map(|value| (value.normal, value.value)).unzip();
    Change { kind, description: description.clone(), values, keys, access: RequiredAccess::Internal }
}
