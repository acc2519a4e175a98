//! What a unit of changes did to links.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use larix_schema::NormalDn;
use larix_store::{Snapshot, WriteSet};

use super::{Edits, Rules, SourceName, change_of, corrections, has_value, is_source, name_of, targets_of};
use crate::change::prepare::{Change, ChangeKind};
use crate::database::View;
use crate::entry::record::Form;
use crate::entry::{AttributeNumber, EntryId, EntryReader, EntryView, ValuesView};
use crate::fault::Fault;
use crate::overlay::BackLinkRule;
use crate::tables::{ENTRIES, META, VALUES, meta};
use crate::tree;

/// What changes in one back link of a target.
#[derive(Default)]
struct Edit {
    removed: Vec<Rc<SourceName>>,
    added: Vec<Rc<SourceName>>,
}

/// The changes that a unit asks for, and whether no index tells yet which sources name the entries that are new in it. None:
/// there is too much of it.
pub(super) fn difference<B: Snapshot, A: Snapshot>(
    rules: &Rules<'_>,
    was: &View<'_, B>,
    now: &View<'_, A>,
    unit: &WriteSet,
) -> Result<Option<(Edits, bool)>, Fault> {
    let forward = rules.rules.iter().map(|(rule, _)| &rule.forward);
    let attributes = forward.chain(rules.backs.iter().copied());
    let numbers: Vec<AttributeNumber> =
        attributes.filter_map(|description| now.catalog.number(description)).collect();
    let mut rows = Rows::new();
    for (key, value) in unit.records(VALUES) {
        let number = key.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        if let (Some(id), Some(number)) = (EntryId::from_prefix(key), number.map(AttributeNumber))
            && numbers.contains(&number)
        {
            rows.entry((id, number)).or_default().push((key, value));
        }
    }
    let (edits, anew) = (BTreeMap::new(), BTreeSet::new());
    let mut difference = Difference { rules, was, now, rows, edits, anew };
    if !difference.read(unit)? {
        return Ok(None);
    }
    let waits = !difference.anew.is_empty() && !rules.are_indexed(&now.catalog);
    difference.changes().map(|edits| Some((edits, waits)))
}

fn is_large(values: Option<ValuesView<'_>>) -> bool {
    values.is_some_and(|values| values.form() == Form::Large)
}

/// Rows of a large set that a unit changed: key, and value if it is not removed.
type Rows<'u> = BTreeMap<(EntryId, AttributeNumber), Vec<(&'u [u8], Option<&'u [u8]>)>>;

/// What a unit of changes did to links.
struct Difference<'v, 'b, 'a, B, A> {
    rules: &'v Rules<'v>,
    was: &'v View<'b, B>,
    now: &'v View<'a, A>,
    rows: Rows<'v>,
    /// Targets that are not `anew`, by entry and place of the back link.
    edits: BTreeMap<(EntryId, usize), Edit>,
    /// Entries that are new, have another name, or whose values another change touched.
    anew: BTreeSet<EntryId>,
}

impl<B: Snapshot, A: Snapshot> Difference<'_, '_, '_, B, A> {
    /// Answers false when there is too much of it.
    fn read(&mut self, unit: &WriteSet) -> Result<bool, Fault> {
        let mut ids = BTreeMap::new();
        let moves = unit.get(META, meta::TREE_GENERATION).is_some();
        for (key, _) in unit.records(ENTRIES) {
            let id = EntryId::from_prefix(key).ok_or(Fault::Damaged { what: "a key of the entries" })?;
            ids.insert(id, moves && self.is_renamed(id)?);
        }
        let renamed: Vec<EntryId> = ids.iter().filter(|(_, renamed)| **renamed).map(|(id, _)| *id).collect();
        for id in renamed {
            let below = tree::subtree(self.now.snapshot, id, self.rules.at_once + 1)?;
            ids.extend(below.into_iter().map(|id| (id, true)));
            if ids.len() > self.rules.at_once {
                return Ok(false);
            }
        }
        for (id, renamed) in ids {
            self.entry(id, renamed)?;
            if self.edits.len() + self.anew.len() > self.rules.at_once {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_renamed(&self, id: EntryId) -> Result<bool, Fault> {
        // Names stand in the head, which is never packed.
        let (Some(old), Some(new)) = (self.was.stored(id)?, self.now.stored(id)?) else { return Ok(false) };
        let (old, new) = (EntryView::parse(id, &old)?, EntryView::parse(id, &new)?);
        if (old.parent(), old.rdn()) == (new.parent(), new.rdn()) {
            return Ok(false);
        }
        Ok(self.was.dn(&old)? != self.now.dn(&new)?)
    }

    fn entry(&mut self, id: EntryId, renamed: bool) -> Result<(), Fault> {
        let (was, now) = (self.was, self.now);
        let (old, new) = (was.record(id)?, now.record(id)?);
        let old = old.as_deref().map(|record| was.reader(id, record)).transpose()?;
        let new = new.as_deref().map(|record| now.reader(id, record)).transpose()?;
        if let Some(new) = &new
            && (renamed || old.as_ref().is_none_or(|old| self.differs(old, new)))
        {
            self.anew.insert(id);
        }
        let rules = self.rules;
        for (place, (rule, back)) in rules.rules.iter().enumerate() {
            let old =
                old.as_ref().map(|old| Ok::<_, Fault>((old, is_source(was, old, rule)?))).transpose()?;
            let new =
                new.as_ref().map(|new| Ok::<_, Fault>((new, is_source(now, new, rule)?))).transpose()?;
            let old = old.filter(|(_, is_source)| *is_source).map(|(old, _)| old);
            let now_source = new.filter(|(_, is_source)| *is_source).map(|(new, _)| new);
            let (removed, added) = match (old, now_source) {
                (None, None) => continue,
                (Some(old), Some(new)) if !renamed => self.targets_between(rule, old, new)?,
                (old, new) => {
                    let removed = old.map(|old| targets_of(was, old, rule)).transpose()?.unwrap_or_default();
                    let added = new.map(|new| targets_of(now, new, rule)).transpose()?.unwrap_or_default();
                    (removed, added)
                }
            };
            if let Some(old) = old.filter(|_| !removed.is_empty()) {
                let name = SourceName::of(was, old)?;
                let stays = new.map(|(new, _)| new).filter(|_| !renamed);
                self.note_removed(&name, (place, *back), removed, stays)?;
            }
            if let Some(new) = now_source.filter(|_| !added.is_empty()) {
                let name = SourceName::of(now, new)?;
                for target in added {
                    self.edit(&target, *back, |edit| edit.added.push(Rc::clone(&name)))?;
                }
            }
        }
        Ok(())
    }

    /// Targets that a source has no longer by one rule; by another one it may have them still.
    fn note_removed(
        &mut self,
        name: &Rc<SourceName>,
        (place, back): (usize, usize),
        targets: Vec<NormalDn>,
        stays: Option<&EntryReader<'_, A>>,
    ) -> Result<(), Fault> {
        let mut others = Vec::new();
        for (at, (rule, of)) in self.rules.rules.iter().enumerate() {
            if let Some(stays) = stays.filter(|_| at != place && *of == back)
                && is_source(self.now, stays, rule)?
            {
                others.push((*rule, stays));
            }
        }
        'targets: for target in targets {
            for (rule, source) in &others {
                if has_value(self.now, source, &rule.forward, &target)? {
                    continue 'targets;
                }
            }
            self.edit(&target, back, |edit| edit.removed.push(Rc::clone(name)))?;
        }
        Ok(())
    }

    /// Notes a change of what a back link is to say, if there is such an entry.
    fn edit(&mut self, target: &NormalDn, back: usize, note: impl FnOnce(&mut Edit)) -> Result<(), Fault> {
        if let Some(id) = self.now.resolve(target)?.and_then(|resolved| resolved.id) {
            note(self.edits.entry((id, back)).or_default());
        }
        Ok(())
    }

    /// Whether a change touched the back links of an entry.
    fn differs(&self, old: &EntryReader<'_, B>, new: &EntryReader<'_, A>) -> bool {
        self.rules.backs.iter().any(|back| {
            let Some(number) = self.now.catalog.number(back) else { return false };
            if self.rows.contains_key(&(new.view.id(), number)) {
                return true;
            }
            let (Ok(old), Ok(new)) = (old.view.get(number), new.view.get(number)) else { return true };
            old.map(|values| (values.len(), values.as_ber()))
                != new.map(|values| (values.len(), values.as_ber()))
        })
    }

    /// Targets that went and targets that came.
    fn targets_between(
        &self,
        rule: &BackLinkRule,
        old: &EntryReader<'_, B>,
        new: &EntryReader<'_, A>,
    ) -> Result<(Vec<NormalDn>, Vec<NormalDn>), Fault> {
        let Some(number) = self.now.catalog.number(&rule.forward) else { return Ok(Default::default()) };
        let (before, after) = (old.view.get(number)?, new.view.get(number)?);
        if is_large(before) && is_large(after) {
            return self.rows_between(rule, (new.view.id(), number));
        }
        if let Some(before) = before.and_then(|values| values.as_ber())
            && Some(before) == after.and_then(|values| values.as_ber())
        {
            return Ok(Default::default());
        }
        let (before, after) = (targets_of(self.was, old, rule)?, targets_of(self.now, new, rule)?);
        let (old_targets, new_targets): (HashSet<&NormalDn>, HashSet<&NormalDn>) =
            (before.iter().collect(), after.iter().collect());
        let removed = before.iter().filter(|target| !new_targets.contains(target)).cloned().collect();
        let added = after.iter().filter(|target| !old_targets.contains(target)).cloned().collect();
        Ok((removed, added))
    }

    fn rows_between(
        &self,
        rule: &BackLinkRule,
        set: (EntryId, AttributeNumber),
    ) -> Result<(Vec<NormalDn>, Vec<NormalDn>), Fault> {
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let schema = &self.now.schema;
        for (key, value) in self.rows.get(&set).map(Vec::as_slice).unwrap_or_default() {
            match (self.was.snapshot.get(VALUES, key)?, value) {
                (None, Some(value)) => added.extend(name_of(schema, &rule.forward, value)),
                (Some(value), None) => removed.extend(name_of(schema, &rule.forward, &value)),
                _ => {}
            }
        }
        Ok((removed, added))
    }

    /// The changes of targets, whatever they are.
    fn changes(self) -> Result<Edits, Fault> {
        let mut all: BTreeMap<EntryId, Vec<Change>> = BTreeMap::new();
        for ((id, back), edit) in self.edits {
            if self.anew.contains(&id) {
                continue;
            }
            let Some(description) = self.rules.backs.get(back) else { continue };
            let Some(record) = self.now.record(id)? else { continue };
            let reader = self.now.reader(id, &record)?;
            let says = |source: &Rc<SourceName>| has_value(self.now, &reader, description, &source.normal);
            // By several rules a source comes or goes several times.
            let (mut removed, mut added) = (Vec::new(), Vec::new());
            let (mut left, mut known) = (HashSet::new(), HashSet::new());
            for source in edit.removed {
                if left.insert(source.normal.as_str().to_owned()) && says(&source)? {
                    removed.push(source);
                }
            }
            for source in edit.added {
                if !known.insert(source.normal.as_str().to_owned()) {
                    continue;
                }
                // The same source may have got another spelling.
                if left.contains(source.normal.as_str()) || !says(&source)? {
                    added.push(source);
                }
            }
            let changes = all.entry(id).or_default();
            for (kind, sources) in [(ChangeKind::Delete, removed), (ChangeKind::SoftAdd, added)] {
                if !sources.is_empty() {
                    changes.push(change_of(description, kind, &sources));
                }
            }
        }
        if self.rules.are_indexed(&self.now.catalog) {
            for id in self.anew {
                all.insert(id, corrections(self.now, self.rules, id)?);
            }
        }
        Ok(all.into_iter().filter(|(_, changes)| !changes.is_empty()).collect())
    }
}
