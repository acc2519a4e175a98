//! The state of an entry's changes, and the merge of two versions of an entry. Nothing here needs a store.
//!
//! A *version* is an entry's content and its state. Every attribute has the CSN of when it was last set as a whole, every
//! value that of when it was last added or removed; the later one counts, a value that is older than the last setting of
//! the whole attribute is gone. What a state does not say is as old as the state's base, the entry's own CSN when the state
//! began: most entries never get a state.
//!
//! *Invariant:* a version has all changes of each server up to the CSN that `seen` has of that server. So a version whose
//! `seen` covers another's has all that the other one has.

use std::collections::{BTreeMap, BTreeSet};

use larix_schema::AttributeDescription;

use crate::change::prepare::{Change, ChangeKind};
use crate::csn::Csn;
use crate::log::CsnVector;
use crate::record::{DIGEST_LENGTH, digest};

/// Stands for a value: the digest of its normal form.
pub(crate) type ValueKey = [u8; DIGEST_LENGTH];

pub(crate) fn value_key(normal: &[u8]) -> ValueKey {
    digest(normal)
}

/// When a value was last added or removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Register {
    pub(crate) csn: Csn,
    pub(crate) present: bool,
}

/// What is known of one attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttributeState {
    /// When it was last set or removed as a whole, if that was after the base.
    pub(crate) cleared: Option<Csn>,
    /// Values that were added or removed since. A present value without a register is as old as the attribute.
    pub(crate) values: BTreeMap<ValueKey, Register>,
}

/// What is known of an entry's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryState {
    /// How old everything is that has nothing else to say; none of an entry that never had an entryCSN.
    pub(crate) base: Option<Csn>,
    /// When the entry got its name.
    pub(crate) named: Option<Csn>,
    /// The last change of each server that is in it.
    pub(crate) seen: CsnVector,
    pub(crate) attributes: BTreeMap<AttributeDescription, AttributeState>,
}

impl EntryState {
    /// Of an entry that nothing is remembered of.
    pub(crate) fn begin(entry_csn: Option<Csn>) -> Self {
        let seen = entry_csn.into_iter().collect();
        Self { base: entry_csn, named: entry_csn, seen, attributes: BTreeMap::new() }
    }

    /// Whether it says no more than the entryCSN does.
    pub(crate) fn is_begin(&self) -> bool {
        self.attributes.is_empty() && *self == Self::begin(self.base)
    }

    /// The latest of all changes: the entryCSN.
    pub(crate) fn newest(&self) -> Option<Csn> {
        self.seen.as_slice().iter().max().copied()
    }

    /// When the entry got its name.
    pub(crate) fn named(&self) -> Option<Csn> {
        self.named
    }

    pub(crate) fn cleared(&self, description: &AttributeDescription) -> Option<Csn> {
        let own = self.attributes.get(description).and_then(|attribute| attribute.cleared);
        own.max(self.base)
    }

    /// Whether it has all that `other` has.
    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        self.seen.covers_all(&other.seen)
    }

    /// The changes that it has and `other` has not: the last one of each server.
    pub(crate) fn news_for(&self, other: &Self) -> Vec<Csn> {
        self.seen.as_slice().iter().filter(|csn| !other.seen.covers(csn)).copied().collect()
    }
}

/// A value of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// The equality key.
    pub(crate) normal: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

pub(crate) type Content = BTreeMap<AttributeDescription, Vec<Value>>;

/// An entry's content, and what is known of its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) state: EntryState,
    pub(crate) content: Content,
}

/// How two versions of an attribute become one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Value by value.
    Values,
    /// The later one: of a single value, and where values cannot be compared.
    Whole,
    /// That of the version with the latest change: who changed it last, and when.
    Newest,
    /// Ours, whatever comes.
    Ours,
}

/// What became of two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergedVersion {
    pub(crate) version: Version,
    /// Values that gave way to a change whose author did not know of them.
    pub(crate) lost_ours: Content,
    pub(crate) lost_theirs: Content,
}

/// Makes one of two versions of an entry. But for [`Rule::Ours`] it does not matter which is whose, and in which order
/// several are merged.
pub(crate) fn merge(
    rule: &dyn Fn(&AttributeDescription) -> Rule,
    ours: &Version,
    theirs: &Version,
) -> MergedVersion {
    let mut state = EntryState {
        base: ours.state.base.max(theirs.state.base),
        named: ours.state.named.max(theirs.state.named),
        seen: ours.state.seen.as_slice().iter().chain(theirs.state.seen.as_slice()).copied().collect(),
        attributes: BTreeMap::new(),
    };
    let mut merged =
        MergedVersion { version: Version::default(), lost_ours: Content::new(), lost_theirs: Content::new() };
    let newest = if theirs.state.newest() > ours.state.newest() { theirs } else { ours };
    let names: BTreeSet<&AttributeDescription> = [ours, theirs]
        .into_iter()
        .flat_map(|version| version.state.attributes.keys().chain(version.content.keys()))
        .collect();
    for name in names {
        let content = match rule(name) {
            Rule::Newest => newest.content.get(name).cloned().unwrap_or_default(),
            Rule::Ours => ours.content.get(name).cloned().unwrap_or_default(),
            kept @ (Rule::Values | Rule::Whole) => {
                let (attribute, content) = merge_attribute(name, kept, &state, (ours, theirs), &mut merged);
                if attribute != AttributeState::default() {
                    state.attributes.insert(name.clone(), attribute);
                }
                content
            }
        };
        if !content.is_empty() {
            merged.version.content.insert(name.clone(), content);
        }
    }
    merged.version.state = state;
    merged
}

fn merge_attribute(
    name: &AttributeDescription,
    rule: Rule,
    state: &EntryState,
    (ours, theirs): (&Version, &Version),
    merged: &mut MergedVersion,
) -> (AttributeState, Vec<Value>) {
    let cleared = ours.state.cleared(name).max(theirs.state.cleared(name));
    let (mine, others) = (registers(ours, name), registers(theirs, name));
    let mut joined: BTreeMap<ValueKey, Register> = BTreeMap::new();
    for key in mine.keys().chain(others.keys()) {
        let register = match (mine.get(key), others.get(key)) {
            (Some(mine), Some(other)) => (*mine).max(*other),
            (Some(one), None) if !is_forgotten(one, &theirs.state) => *one,
            (None, Some(one)) if !is_forgotten(one, &ours.state) => *one,
            _ => continue,
        };
        if Some(register.csn) >= cleared {
            joined.insert(*key, register);
        }
    }
    if rule == Rule::Whole {
        // Several that were set together are all there is of an attribute whose values cannot be compared.
        let last = joined.values().filter(|register| register.present).map(|register| register.csn).max();
        joined.retain(|_, register| !register.present || Some(register.csn) == last);
    }
    let is_present = |key: &ValueKey| joined.get(key).is_some_and(|register| register.present);
    let mut content: Vec<Value> = Vec::new();
    let mut taken: BTreeSet<ValueKey> = BTreeSet::new();
    for (version, of, other) in [(ours, &mine, &others), (theirs, &others, &mine)] {
        for value in version.content.get(name).into_iter().flatten() {
            let key = value_key(&value.normal);
            // Of two spellings the later one.
            let is_its = of.get(&key) >= other.get(&key);
            if is_present(&key) && is_its && taken.insert(key) {
                content.push(value.clone());
            }
        }
    }
    note_lost(name, (ours, &mine), &theirs.state, &is_present, &mut merged.lost_ours);
    note_lost(name, (theirs, &others), &ours.state, &is_present, &mut merged.lost_theirs);
    // What is as old as the attribute needs no register.
    joined.retain(|_, register| register.csn != cleared.unwrap_or(Csn::ZERO));
    let cleared = cleared.filter(|cleared| Some(*cleared) > state.base);
    (AttributeState { cleared, values: joined }, content)
}

/// The registers of an attribute's values, those included that need none of their own.
pub(crate) fn registers(version: &Version, name: &AttributeDescription) -> BTreeMap<ValueKey, Register> {
    let own = version.state.attributes.get(name).map(|attribute| &attribute.values);
    // A value that was added and is not there was taken away by an overlay, which does so on every server.
    let removed = own.into_iter().flatten().filter(|(_, register)| !register.present);
    let mut all: BTreeMap<_, _> = removed.map(|(key, register)| (*key, *register)).collect();
    let csn = version.state.cleared(name).unwrap_or(Csn::ZERO);
    for value in version.content.get(name).into_iter().flatten() {
        let key = value_key(&value.normal);
        let known = own.and_then(|own| own.get(&key)).copied();
        all.entry(key).or_insert_with(|| known.unwrap_or(Register { csn, present: true }));
    }
    all
}

/// Whether a version that has no register of a value knew it: then it was removed there so long ago that this is
/// forgotten.
fn is_forgotten(register: &Register, by: &EntryState) -> bool {
    register.present && by.seen.covers(&register.csn)
}

/// Values of one version that are gone, although the author of the other version did not know of them.
fn note_lost(
    name: &AttributeDescription,
    (version, registers): (&Version, &BTreeMap<ValueKey, Register>),
    other: &EntryState,
    is_present: &dyn Fn(&ValueKey) -> bool,
    lost: &mut Content,
) {
    for value in version.content.get(name).into_iter().flatten() {
        let key = value_key(&value.normal);
        let register = registers.get(&key);
        let is_news = register.is_some_and(|register| register.present && !other.seen.covers(&register.csn));
        if is_news && !is_present(&key) {
            lost.entry(name.clone()).or_default().push(value.clone());
        }
    }
}

/// What one request does to an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttributeChange {
    /// It was set or removed as a whole.
    pub(crate) whole: bool,
    /// Values that were added (true) or removed after that.
    pub(crate) values: BTreeMap<ValueKey, bool>,
}

impl AttributeChange {
    /// Takes a modification in, after those before it.
    pub(crate) fn take(&mut self, rule: Rule, change: &Change) {
        let is_delete = change.kind == ChangeKind::Delete;
        let sets = matches!(change.kind, ChangeKind::Replace | ChangeKind::Increment);
        if rule == Rule::Whole || sets || is_delete && change.values.is_empty() {
            *self = Self { whole: true, values: BTreeMap::new() };
            return;
        }
        for normal in &change.keys {
            let key = value_key(normal);
            match (is_delete, self.whole) {
                // What was set together is as old as the attribute, and what went again was never there.
                (_, true) => _ = self.values.remove(&key),
                (removed, false) => _ = self.values.insert(key, !removed),
            }
        }
    }

    /// The registers that follow, under the CSN of the request.
    pub(crate) fn registers(&self, csn: Csn) -> impl Iterator<Item = (ValueKey, Register)> {
        self.values.iter().map(move |(key, present)| (*key, Register { csn, present: *present }))
    }
}

#[cfg(test)]
mod tests;
