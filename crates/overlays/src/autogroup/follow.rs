//! What follows for groups from a change.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{
    AroundChange, ChangeKind, Consequence, Entries, Failure, FollowUp, PreparedChange, Refusal,
    internal_change,
};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::compiled::{Compiled, Group};
use super::members::{self, ByGroup, Members, Side};
use super::{GroupSet, Settings};

/// Members that one change of a group takes out or puts in, where many come and go.
const MEMBERS_EACH: usize = 10_000;

/// Up to so many members are taken out one by one: one that is not there leaves the others to be taken out.
const ONE_BY_ONE_MAX: usize = 16;

/// Values of an attribute of which it is asked one by one whether another entry has them. Of more, the group is filled again.
const VALUES_MAX: usize = 64;

/// A change that is made, and whose it was.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) settings: Arc<Settings>,
    /// The entry's name; `None`: it is new.
    pub(super) before: Option<NormalDn>,
    /// The entry's name; `None`: it is gone.
    pub(super) after: Option<NormalDn>,
    /// It may have made the entry another group, or a group at all.
    pub(super) defines: bool,
    /// Entries below may have gone or come with it.
    pub(super) below: bool,
}

/// The groups that are kept have other names by now.
struct OutOfDate;

/// Whether the entry of this name matches.
pub(super) fn matches(entries: &dyn Entries, dn: &NormalDn, filter: &BoundFilter) -> Result<bool, Failure> {
    Ok(entries.finds_any(&InternalSearch::new(dn, Scope::Base, filter))?.entries > 0)
}

impl FollowUp for Follow {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let (mut all, mut own) = (Vec::new(), None);
        if self.defines || self.before.is_none() {
            if let Some(dn) = &self.after
                && let Some(group) = self.settings.group_named(around.after, schema, dn)?
                && let Some(set) = self.settings.sets.get(group.set)
            {
                all.push(refreshed((set, schema), &group, dn, around.after)?);
                own = Some(group.id);
            }
            if self.defines {
                // An entry with URLs may have got the class now.
                self.settings.cached.store(None);
            }
        }
        let compiled = self.settings.compiled(around.before, schema)?;
        if compiled.groups.is_empty() {
            return Ok(all);
        }
        let is_other = |group: &Group| own != Some(group.id);
        let (old, new) = self.made((around, schema), &compiled, &is_other)?;
        match self.written((around, schema), &compiled, (old, new))? {
            Ok(written) => all.extend(written),
            Err(OutOfDate) => {
                let compiled = self.settings.compile(around.before, schema)?;
                let sides = self.made((around, schema), &compiled, &is_other)?;
                // A group that still is not where it was found has gone.
                if let Ok(written) = self.written((around, schema), &compiled, sides)? {
                    all.extend(written);
                }
            }
        }
        Ok(all)
    }
}

impl Follow {
    /// What the entry makes of the groups before the change and after it; with entries below it, what all of them do.
    fn made(
        &self,
        (around, schema): (&AroundChange<'_>, &Schema),
        compiled: &Compiled,
        is_other: &dyn Fn(&Group) -> bool,
    ) -> Result<(ByGroup, ByGroup), Refusal> {
        let about = (&*self.settings, schema);
        if self.below
            && let Some(before) = &self.before
            && around.before.has_subordinates(before)?
        {
            let old = members::of_tree(about, compiled, around.before, before)?;
            let new = match &self.after {
                Some(after) => members::of_tree(about, compiled, around.after, after)?,
                None => ByGroup::new(),
            };
            return Ok((old, new));
        }
        let of = |entries: &dyn Entries, dn: &Option<NormalDn>| match dn {
            Some(dn) => entries.entry(dn),
            None => Ok(None),
        };
        let (old, new) = (of(around.before, &self.before)?, of(around.after, &self.after)?);
        let changed = match (&old, &new) {
            (Some(old), Some(new)) if self.before == self.after && old.dn == new.dn => {
                Some(changed(old, new))
            }
            _ => None,
        };
        let wanted = |group: &Group| {
            let may_change = |changed: &Vec<AttributeDescription>| {
                group.urls.iter().any(|url| url.may_change(schema, changed))
            };
            is_other(group) && changed.as_ref().is_none_or(may_change)
        };
        let made = |entries, dn: &Option<NormalDn>, entry: &Option<Entry>| {
            let mut made = ByGroup::new();
            if let (Some(dn), Some(entry)) = (dn, entry) {
                Side { entries, dn, entry }.contribute(about, compiled, &wanted, &mut made)?;
            }
            Ok::<_, Failure>(made)
        };
        Ok((made(around.before, &self.before, &old)?, made(around.after, &self.after, &new)?))
    }

    /// The changes of the groups whose members are others now.
    fn written(
        &self,
        (around, schema): (&AroundChange<'_>, &Schema),
        compiled: &Compiled,
        (mut old, mut new): (ByGroup, ByGroup),
    ) -> Result<Result<Vec<Consequence>, OutOfDate>, Refusal> {
        let mut all = Vec::new();
        let groups: BTreeSet<usize> = old.keys().chain(new.keys()).copied().collect();
        for at in groups {
            let Some(group) = compiled.groups.get(at) else { continue };
            let Some(set) = self.settings.sets.get(group.set) else { continue };
            let (mut removed, mut added) =
                (old.remove(&at).unwrap_or_default(), new.remove(&at).unwrap_or_default());
            let both: Vec<Vec<u8>> = removed.keys().filter(|key| added.contains_key(*key)).cloned().collect();
            // Equal members in other letters are written anew.
            let mut respelled = Members::new();
            for key in both {
                let is_same = removed.get(&key) == added.get(&key);
                let Some(value) = removed.remove(&key) else { continue };
                if is_same {
                    added.remove(&key);
                } else {
                    respelled.insert(key, value);
                }
            }
            if removed.is_empty() && added.is_empty() {
                continue;
            }
            if around.before.id_of(&group.dn)? != Some(group.id) {
                return Ok(Err(OutOfDate));
            }
            let dn = self.name_after(&group.dn);
            let is_there = around.after.id_of(&dn)? == Some(group.id);
            if !is_there || self.settings.set_of(around.after, &dn)? != Some(group.set) {
                continue;
            }
            if group.urls.iter().any(|url| url.values_of.is_some()) {
                if removed.len() > VALUES_MAX {
                    all.push(refreshed((set, schema), group, &dn, around.after)?);
                    continue;
                }
                members::retain_last((set, schema), group, around.after, &mut removed)?;
            }
            let moved = self.moved((set, schema), &removed, &added);
            removed.extend(respelled);
            if removed.len() > ONE_BY_ONE_MAX {
                retain_stored((set, schema), &dn, around.after, &mut removed)?;
            }
            let is_many = removed.len().max(moved.len()) > ONE_BY_ONE_MAX;
            let permissive = is_many && !moved.is_empty();
            let each = if is_many { MEMBERS_EACH } else { 1 };
            let removed: Vec<Vec<u8>> = removed.into_values().chain(moved).collect();
            for values in removed.chunks(each) {
                let deletion = change((set, schema), &dn, ChangeKind::Delete, values.to_vec())?;
                all.push(Consequence { permissive, ..deletion });
            }
            let added: Vec<Vec<u8>> = added.into_values().collect();
            for values in added.chunks(MEMBERS_EACH) {
                all.push(change((set, schema), &dn, ChangeKind::SoftAdd, values.to_vec())?);
            }
        }
        Ok(Ok(all))
    }

    /// What those of the members that go are called behind a rename, if that is no member either: referential integrity may have put
    /// the new name there by then.
    fn moved(&self, (set, schema): (&GroupSet, &Schema), removed: &Members, added: &Members) -> Vec<Vec<u8>> {
        if self.after.is_none() || self.before == self.after {
            return Vec::new();
        }
        let names = removed.values().filter_map(|value| {
            let dn = schema.parse_dn(std::str::from_utf8(value).ok()?).ok()?;
            let new_name = self.name_after(&dn);
            let name = (new_name != dn).then(|| new_name.as_str().as_bytes().to_vec())?;
            let key = members::key(schema, set, &name)?;
            (!added.contains_key(&key)).then_some(name)
        });
        names.collect()
    }

    /// What an entry is called behind the change: it may be below the entry that is renamed, or be that entry.
    fn name_after(&self, dn: &NormalDn) -> NormalDn {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return dn.clone() };
        if before == after || before.is_root() || !dn.is_within(before) {
            return dn.clone();
        }
        let prefix = dn.as_str().strip_suffix(before.as_str()).unwrap_or_default();
        NormalDn::from_normal(&format!("{prefix}{}", after.as_str()))
    }
}

/// The attributes of which an entry has other values than before. Large ones may have.
fn changed(old: &Entry, new: &Entry) -> Vec<AttributeDescription> {
    let mut changed = Vec::new();
    for attribute in &old.attributes {
        let other = new.attribute(&attribute.description);
        let is_same = other.is_some_and(|other| {
            attribute.large.is_none() && other.large.is_none() && attribute.values == other.values
        });
        if !is_same {
            changed.push(attribute.description.clone());
        }
    }
    let is_new = |description: &&AttributeDescription| old.attribute(description).is_none();
    changed.extend(new.attributes.iter().map(|attribute| &attribute.description).filter(is_new).cloned());
    changed
}

/// Takes out of `removed` what the group does not have.
fn retain_stored(
    (set, schema): (&GroupSet, &Schema),
    dn: &NormalDn,
    entries: &dyn Entries,
    removed: &mut Members,
) -> Result<(), Failure> {
    let mut stored = HashSet::new();
    members::visit_values_of(entries, dn, &set.member, &mut |value| {
        stored.extend(members::key(schema, set, value).filter(|key| removed.contains_key(key)));
    })?;
    removed.retain(|key, _| stored.contains(key));
    Ok(())
}

/// All members anew.
fn refreshed(
    (set, schema): (&GroupSet, &Schema),
    group: &Group,
    dn: &NormalDn,
    entries: &dyn Entries,
) -> Result<Consequence, Refusal> {
    let (mut all, mut known): (Vec<Vec<u8>>, HashSet<Vec<u8>>) = (Vec::new(), HashSet::new());
    for url in &group.urls {
        let query = InternalSearch::new(&url.base, url.scope, &url.filter);
        entries.search(&query, &mut |found| {
            let mut take = |value: &[u8]| {
                if members::key(schema, set, value).is_some_and(|key| known.insert(key)) {
                    all.push(value.to_vec());
                }
                true
            };
            match &url.values_of {
                Some(attribute) => found.source().visit_exact(attribute, &mut take)?,
                None => {
                    take(found.shown_dn()?.as_bytes());
                }
            }
            Ok(true)
        })?;
    }
    change((set, schema), dn, ChangeKind::Replace, all)
}

fn change(
    (set, schema): (&GroupSet, &Schema),
    dn: &NormalDn,
    kind: ChangeKind,
    values: Vec<Vec<u8>>,
) -> Result<Consequence, Refusal> {
    let change = internal_change(schema, kind, &set.member.to_text(schema), values)?;
    let operation = PreparedChange::Modify { dn: dn.clone(), mods: vec![change] };
    Ok(Consequence { operation, local: false, permissive: false })
}
