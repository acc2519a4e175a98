//! Which groups an entry is in, kept in the entry (`overlay memberof`): a function of the groups that there are.
//!
//! What a unit of changes did to groups is read off its write set: records before and behind it are compared, of large sets the
//! rows that changed. So it is the same for a request, for what plugins added to it, for a transaction, and for what another
//! server did; a member that comes costs the same in a group of ten as in one of a million. Changes of members are local: each
//! server makes its own, nothing of them is sent, and no operational attribute of a member changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use larix_schema::{AttributeDescription, NormalDn, Schema};
use larix_store::{Overlay, Snapshot, Store, WriteSet};

use super::failure::Failure;
use super::group::Group;
use super::membership_walk;
use super::modify;
use super::operational::Stamp;
use super::operator::{Envelope, Ground, Operator, StoredSets, logged};
use super::prepare::{Change, ChangeKind, Standing};
use super::{change, values};
use crate::access::Subject;
use crate::controls::RequestControls;
use crate::csn::Csn;
use crate::database::{DatabaseSettings, View, next_instance};
use crate::entry::record::Form;
use crate::entry::values::member_key_of_normal;
use crate::entry::{AttributeNumber, Entry, EntryId, EntryReader, EntryView, ValuesView};
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::log::LoggedChange;
use crate::plan::Plan;
use crate::plugins::MembershipRule;
use crate::tables::{ENTRIES, META, VALUES, meta};
use crate::tree;

/// Members that change in the commit of the change that asks for it, and entries below a renamed one that are looked at there.
/// Of more, all entries are gone through afterwards, slice by slice.
pub const MEMBERS_LIMIT: usize = 250_000;

/// The rules of a database.
pub(super) struct Rules<'s> {
    /// Each with the place of its attribute of members in `targets`.
    rules: Vec<(&'s MembershipRule, usize)>,
    targets: Vec<&'s AttributeDescription>,
    /// Members that change at once.
    at_once: usize,
}

impl<'s> Rules<'s> {
    pub(super) fn of(settings: &'s DatabaseSettings) -> Self {
        let (mut rules, mut at_once) = (Vec::new(), MEMBERS_LIMIT);
        let mut targets: Vec<&AttributeDescription> = Vec::new();
        for rule in settings.plugins.iter().filter_map(|plugin| plugin.membership()) {
            let place = targets.iter().position(|target| **target == rule.member_of);
            let place = place.unwrap_or_else(|| {
                targets.push(&rule.member_of);
                targets.len() - 1
            });
            rules.push((rule, place));
            at_once = at_once.min(rule.at_once);
        }
        Self { rules, targets, at_once }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What it depends on which groups an entry is in.
    pub(super) fn text(&self, schema: &Schema) -> String {
        let line = |(rule, _): &(&MembershipRule, usize)| {
            let class = schema.class(rule.group_class).name();
            format!("{class} {} {}\n", rule.member.to_text(schema), rule.member_of.to_text(schema))
        };
        self.rules.iter().map(line).collect()
    }

    /// Whether an index tells who names an entry.
    pub(super) fn are_indexed(&self, catalog: &crate::catalog::Catalog) -> bool {
        self.rules.iter().all(|(rule, _)| {
            // What has no number no entry has.
            let row = catalog.number(&rule.member).and_then(|number| catalog.row(number));
            row.is_none_or(|row| row.usable().has(Kinds::EQUALITY) && row.equality.is_some())
        })
    }
}

/// What a group is called.
struct GroupName {
    normal: NormalDn,
    shown: String,
}

impl GroupName {
    fn of<N: Snapshot>(view: &View<'_, N>, reader: &EntryReader<'_, N>) -> Result<Rc<Self>, Fault> {
        let (normal, shown) = (view.names.normal_dn(&reader.view)?, view.dn(&reader.view)?);
        Ok(Rc::new(Self { normal, shown }))
    }
}

/// What changes in one attribute of a member.
#[derive(Default)]
struct Edit {
    gone: Vec<Rc<GroupName>>,
    come: Vec<Rc<GroupName>>,
}

/// What is to be changed, by entries.
pub(super) type Edits = Vec<(EntryId, Vec<Change>)>;

/// The changes that make an entry say which groups it is in; none where it does.
pub(super) fn corrections<N: Snapshot>(
    view: &View<'_, N>,
    rules: &Rules<'_>,
    id: EntryId,
) -> Result<Vec<Change>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(Vec::new()) };
    let reader = view.reader(id, &record)?;
    let name = view.names.normal_dn(&reader.view)?;
    let mut changes = Vec::new();
    for (place, target) in rules.targets.iter().enumerate() {
        let mut groups: BTreeMap<EntryId, Rc<GroupName>> = BTreeMap::new();
        for (rule, _) in rules.rules.iter().filter(|(_, of)| *of == place) {
            let Some(number) = view.catalog.number(&rule.member) else { continue };
            let key = key::make(number, KeyKind::Equality, name.as_str().as_bytes());
            let found = Plan::of_key(view.snapshot, key)?.into_candidates(view.snapshot)?.ids;
            let mut ids: Vec<EntryId> = Vec::new();
            found.read_after(EntryId::ROOT, usize::MAX, &mut ids);
            for group in ids {
                let Some(record) = view.record(group)? else { continue };
                let reader = view.reader(group, &record)?;
                if !groups.contains_key(&group) && is_group(view, &reader, rule)? {
                    groups.insert(group, GroupName::of(view, &reader)?);
                }
            }
        }
        let mut present: HashSet<Vec<u8>> = HashSet::new();
        visit(view, &reader, target, &mut |value| {
            present.insert(value.to_vec());
            true
        })?;
        let is_right = present.len() == groups.len()
            && groups.values().all(|group| present.contains(group.shown.as_bytes()));
        if !is_right {
            let groups: Vec<Rc<GroupName>> = groups.into_values().collect();
            changes.push(change_of(target, ChangeKind::Replace, &groups));
        }
    }
    Ok(changes)
}

fn change_of(description: &AttributeDescription, kind: ChangeKind, groups: &[Rc<GroupName>]) -> Change {
    Change {
        kind,
        description: description.clone(),
        values: groups.iter().map(|group| group.shown.clone().into_bytes()).collect(),
        keys: groups.iter().map(|group| group.normal.as_str().as_bytes().to_vec()).collect(),
        standing: Standing::Internal,
    }
}

fn is_group<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    rule: &MembershipRule,
) -> Result<bool, Fault> {
    let Some(number) = view.catalog.object_class() else { return Ok(false) };
    let Some(stored) = reader.view.get(number)? else { return Ok(false) };
    let mut found = false;
    reader.visit_values(number, &stored, &mut |value| {
        found = rule.is_group(&view.schema, std::iter::once(value));
        !found
    })?;
    Ok(found)
}

fn visit<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    description: &AttributeDescription,
    see: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), Fault> {
    let Some(number) = view.catalog.number(description) else { return Ok(()) };
    if let Some(stored) = reader.view.get(number)? {
        reader.visit_values(number, &stored, see)?;
    }
    Ok(())
}

/// The name that a value is.
fn name_of(schema: &Schema, description: &AttributeDescription, value: &[u8]) -> Option<NormalDn> {
    let normal = values::key(schema, schema.attribute(description.attribute), value).ok()?;
    String::from_utf8(normal).ok().map(|text| NormalDn::from_normal(&text))
}

/// All members of a group.
fn members<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    rule: &MembershipRule,
) -> Result<Vec<NormalDn>, Fault> {
    let mut all = Vec::new();
    visit(view, reader, &rule.member, &mut |value| {
        all.extend(name_of(&view.schema, &rule.member, value));
        true
    })?;
    Ok(all)
}

/// Whether a name is among the values.
fn has_value<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    description: &AttributeDescription,
    name: &NormalDn,
) -> Result<bool, Fault> {
    let Some(number) = view.catalog.number(description) else { return Ok(false) };
    let Some(stored) = reader.view.get(number)? else { return Ok(false) };
    if stored.form() == Form::Large {
        return reader.member(number, &member_key_of_normal(name.as_str().as_bytes()));
    }
    let mut found = false;
    reader.visit_values(number, &stored, &mut |value| {
        found = name_of(&view.schema, description, value).is_some_and(|own| own == *name);
        !found
    })?;
    Ok(found)
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

impl<S: Store> Group<'_, S> {
    /// Has the members of groups that the unit changed say so, in the unit. `csn`: under which that is logged.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn follow_memberships<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        csn: Option<Csn>,
    ) -> Result<(), Fault> {
        let settings = std::sync::Arc::clone(&self.state.settings);
        if settings.plugins.is_empty() || unit.is_empty() {
            return Ok(());
        }
        let rules = Rules::of(&settings);
        if rules.is_empty() {
            return Ok(());
        }
        let edits = {
            let before = Overlay::new(transaction, &self.set);
            let snapshot = Overlay::new(&before, &*unit);
            // Names from before and names from behind are not to mix.
            let instance = next_instance();
            let was = View::over_changes(&before, instance, self.catalog.state(&self.state))?;
            let now = self.view(&snapshot)?;
            let edits = difference(&rules, &was, &now, unit);
            tree::forget(instance);
            edits?
        };
        match edits {
            Some((edits, waits)) => {
                if waits {
                    // Nobody can tell yet which groups name the new ones.
                    membership_walk::begin_anew(unit);
                    self.walks = true;
                }
                self.edit_members(transaction, unit, edits, csn)
            }
            None => {
                membership_walk::begin_anew(unit);
                self.walks = true;
                Ok(())
            }
        }
    }

    /// Carries out changes of members.
    pub(super) fn edit_members<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        edits: Edits,
        csn: Option<Csn>,
    ) -> Result<(), Fault> {
        if edits.is_empty() {
            return Ok(());
        }
        let now = self.environment.clock.now();
        let csn = csn.unwrap_or_else(|| self.environment.order.next_csn(now));
        let ground = Ground::of(&self.state, &self.known, &self.policy, self.environment);
        let before = Overlay::new(transaction, &self.set);
        let view = Overlay::new(&before, &*unit);
        let (subject, controls) = (Subject::default(), RequestControls::default());
        let envelope = Envelope { subject: &subject, target: "", controls: &controls, now, derived: true };
        let mut operator = Operator {
            ground: &ground,
            view: self.view(&view)?,
            instance: self.instance,
            catalog: &mut self.catalog,
            counters: &mut self.counters,
            envelope,
            stamp: Stamp::new(csn, &self.state.settings.root_dn_text),
            set: WriteSet::new(),
            controls: Vec::new(),
            continues: !unit.is_empty(),
            old: Vec::new(),
        };
        // Each changes another entry, so that none has to see the ones before it.
        for (id, changes) in edits {
            match edit_member(&mut operator, id, &changes) {
                Err(Failure::Storage(fault)) => return Err(fault),
                // What cannot be changed stays as it is.
                Err(Failure::Refused(_)) | Ok(()) => {}
            }
        }
        let done = operator.finish();
        unit.merge(done.set);
        Ok(())
    }
}

fn difference<B: Snapshot, A: Snapshot>(
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

/// Changes one member, without a look at the schema: whatever class it is of, it may say which groups it is in.
fn edit_member<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    id: EntryId,
    changes: &[Change],
) -> Result<(), Failure> {
    let held = operator.hold(id)?;
    let shown = operator.view.dn(&held.view()?)?;
    let reader = operator.reader(&held)?;
    let mut entry = reader.owned_in_part(shown, |description| {
        changes.iter().any(|change| change.description == *description)
    })?;
    let sets = StoredSets { reader };
    let places = places(&entry, changes);
    for change in changes {
        change::apply(operator.schema(), &mut entry, change, true, &sets)?;
    }
    put_back(&mut entry, places);
    modify::store(operator, &held, &entry)?;
    let uuid = operator.entry_uuid(&held)?;
    let changes: Vec<&Change> = changes.iter().collect();
    operator
        .log((id, EntryId::ROOT), uuid, &entry.dn, |schema| LoggedChange::Modify(logged(schema, &changes)));
    Ok(())
}

/// Where the attributes that are to change stand, first ones first.
fn places<'c>(entry: &Entry, changes: &'c [Change]) -> Vec<(usize, &'c AttributeDescription)> {
    let place = |change: &'c Change| {
        let of = &change.description;
        Some((entry.attributes.iter().position(|attribute| attribute.description == *of)?, of))
    };
    let mut places: Vec<_> = changes.iter().filter_map(place).collect();
    places.sort_unstable_by_key(|(at, _)| *at);
    places.dedup_by_key(|(at, _)| *at);
    places
}

/// Has attributes stand where they stood: one whose last value goes before the next one comes is at the end otherwise, though to a
/// client nothing was replaced.
fn put_back(entry: &mut Entry, places: Vec<(usize, &AttributeDescription)>) {
    let mut gone = 0;
    for (place, description) in places {
        match entry.remove(description) {
            Some(attribute) => entry.attributes.insert(place - gone, attribute),
            None => gone += 1,
        }
    }
}
