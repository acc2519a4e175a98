//! What a unit of changes did to groups and their members.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use larix_schema::NormalDn;
use larix_store::{Snapshot, WriteSet};

use super::{Edits, GroupName, Rules, change_of, corrections, has_value, is_group, members, name_of};
use crate::database::View;
use crate::entry::record::Form;
use crate::entry::{AttributeNumber, EntryId, EntryReader, EntryView, ValuesView};
use crate::fault::Fault;
use crate::overlay::MembershipRule;
use crate::tables::{ENTRIES, META, VALUES, meta};
use crate::tree;
use crate::write::prepare::{Change, ChangeKind};

/// What changes in one attribute of a member.
#[derive(Default)]
struct Edit {
    gone: Vec<Rc<GroupName>>,
    come: Vec<Rc<GroupName>>,
}

/// The changes that a unit asks for, and whether no index tells yet which groups name the entries that are new in it. None:
/// there is too much of it.
pub(super) fn difference<B: Snapshot, A: Snapshot>(
    rules: &Rules<'_>,
    was: &View<'_, B>,
    now: &View<'_, A>,
    unit: &WriteSet,
) -> Result<Option<(Edits, bool)>, Fault> {
    let members = rules.rules.iter().map(|(rule, _)| &rule.member);
    let attributes = members.chain(rules.targets.iter().copied());
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

/// What a unit of changes did to groups and members.
struct Difference<'v, 'b, 'a, B, A> {
    rules: &'v Rules<'v>,
    was: &'v View<'b, B>,
    now: &'v View<'a, A>,
    rows: Rows<'v>,
    /// Members that are not `anew`, by entry and place of the attribute.
    edits: BTreeMap<(EntryId, usize), Edit>,
    /// Entries that are new, have another name, or whose values somebody else changed.
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
        for (place, (rule, target)) in rules.rules.iter().enumerate() {
            let old = old.as_ref().map(|old| Ok::<_, Fault>((old, is_group(was, old, rule)?))).transpose()?;
            let new = new.as_ref().map(|new| Ok::<_, Fault>((new, is_group(now, new, rule)?))).transpose()?;
            let old = old.filter(|(_, is_group)| *is_group).map(|(old, _)| old);
            let now_group = new.filter(|(_, is_group)| *is_group).map(|(new, _)| new);
            let (gone, come) = match (old, now_group) {
                (None, None) => continue,
                (Some(old), Some(new)) if !renamed => self.members_between(rule, old, new)?,
                (old, new) => {
                    let gone = old.map(|old| members(was, old, rule)).transpose()?.unwrap_or_default();
                    let come = new.map(|new| members(now, new, rule)).transpose()?.unwrap_or_default();
                    (gone, come)
                }
            };
            if let Some(old) = old.filter(|_| !gone.is_empty()) {
                let name = GroupName::of(was, old)?;
                let stays = new.map(|(new, _)| new).filter(|_| !renamed);
                self.gone(&name, (place, *target), gone, stays)?;
            }
            if let Some(new) = now_group.filter(|_| !come.is_empty()) {
                let name = GroupName::of(now, new)?;
                for member in come {
                    self.edit(&member, *target, |edit| edit.come.push(Rc::clone(&name)))?;
                }
            }
        }
        Ok(())
    }

    /// Members that a group has no longer by one rule; by another one it may have them still.
    fn gone(
        &mut self,
        name: &Rc<GroupName>,
        (place, target): (usize, usize),
        members: Vec<NormalDn>,
        stays: Option<&EntryReader<'_, A>>,
    ) -> Result<(), Fault> {
        let mut others = Vec::new();
        for (at, (rule, of)) in self.rules.rules.iter().enumerate() {
            if let Some(stays) = stays.filter(|_| at != place && *of == target)
                && is_group(self.now, stays, rule)?
            {
                others.push((*rule, stays));
            }
        }
        'members: for member in members {
            for (rule, group) in &others {
                if has_value(self.now, group, &rule.member, &member)? {
                    continue 'members;
                }
            }
            self.edit(&member, target, |edit| edit.gone.push(Rc::clone(name)))?;
        }
        Ok(())
    }

    /// Notes a change of who is a member, if there is such an entry.
    fn edit(&mut self, member: &NormalDn, target: usize, note: impl FnOnce(&mut Edit)) -> Result<(), Fault> {
        if let Some(id) = self.now.resolve(member)?.and_then(|resolved| resolved.id) {
            note(self.edits.entry((id, target)).or_default());
        }
        Ok(())
    }

    /// Whether somebody changed what an entry says of its groups.
    fn differs(&self, old: &EntryReader<'_, B>, new: &EntryReader<'_, A>) -> bool {
        self.rules.targets.iter().any(|target| {
            let Some(number) = self.now.catalog.number(target) else { return false };
            if self.rows.contains_key(&(new.view.id(), number)) {
                return true;
            }
            let (Ok(old), Ok(new)) = (old.view.get(number), new.view.get(number)) else { return true };
            old.map(|values| (values.len(), values.as_ber()))
                != new.map(|values| (values.len(), values.as_ber()))
        })
    }

    /// Members that went and members that came.
    fn members_between(
        &self,
        rule: &MembershipRule,
        old: &EntryReader<'_, B>,
        new: &EntryReader<'_, A>,
    ) -> Result<(Vec<NormalDn>, Vec<NormalDn>), Fault> {
        let Some(number) = self.now.catalog.number(&rule.member) else { return Ok(Default::default()) };
        let (before, after) = (old.view.get(number)?, new.view.get(number)?);
        if is_large(before) && is_large(after) {
            return self.rows_between(rule, (new.view.id(), number));
        }
        if let Some(before) = before.and_then(|values| values.as_ber())
            && Some(before) == after.and_then(|values| values.as_ber())
        {
            return Ok(Default::default());
        }
        let (before, after) = (members(self.was, old, rule)?, members(self.now, new, rule)?);
        let (had, has): (HashSet<&NormalDn>, HashSet<&NormalDn>) =
            (before.iter().collect(), after.iter().collect());
        let gone = before.iter().filter(|member| !has.contains(member)).cloned().collect();
        let come = after.iter().filter(|member| !had.contains(member)).cloned().collect();
        Ok((gone, come))
    }

    fn rows_between(
        &self,
        rule: &MembershipRule,
        set: (EntryId, AttributeNumber),
    ) -> Result<(Vec<NormalDn>, Vec<NormalDn>), Fault> {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let schema = &self.now.schema;
        for (key, value) in self.rows.get(&set).map(Vec::as_slice).unwrap_or_default() {
            match (self.was.snapshot.get(VALUES, key)?, value) {
                (None, Some(value)) => come.extend(name_of(schema, &rule.member, value)),
                (Some(value), None) => gone.extend(name_of(schema, &rule.member, &value)),
                _ => {}
            }
        }
        Ok((gone, come))
    }

    /// The changes of members, whoever is one.
    fn changes(self) -> Result<Edits, Fault> {
        let mut all: BTreeMap<EntryId, Vec<Change>> = BTreeMap::new();
        for ((id, target), edit) in self.edits {
            if self.anew.contains(&id) {
                continue;
            }
            let Some(description) = self.rules.targets.get(target) else { continue };
            let Some(record) = self.now.record(id)? else { continue };
            let reader = self.now.reader(id, &record)?;
            let says = |group: &Rc<GroupName>| has_value(self.now, &reader, description, &group.normal);
            // By several rules a group comes or goes several times.
            let (mut gone, mut come) = (Vec::new(), Vec::new());
            let (mut left, mut known) = (HashSet::new(), HashSet::new());
            for group in edit.gone {
                if left.insert(group.normal.as_str().to_owned()) && says(&group)? {
                    gone.push(group);
                }
            }
            for group in edit.come {
                if !known.insert(group.normal.as_str().to_owned()) {
                    continue;
                }
                // The same group may have got another spelling.
                if left.contains(group.normal.as_str()) || !says(&group)? {
                    come.push(group);
                }
            }
            let changes = all.entry(id).or_default();
            for (kind, groups) in [(ChangeKind::Delete, gone), (ChangeKind::SoftAdd, come)] {
                if !groups.is_empty() {
                    changes.push(change_of(description, kind, &groups));
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
