//! Who is a member of which group.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use larix_engine::fault::Fault;
use larix_engine::overlay::Failure;
use larix_engine::overlay::computed::{ComputedIn, ComputedOf, StoredEntry};
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::identity::{As, Identity};
use super::known::{Group, MemberUrl, Members, urls};
use super::{AttributeSet, DynList, Map, Shared};

/// A question about groups, in one state of the database.
pub(super) struct Question<'a> {
    pub(super) overlay: &'a DynList,
    pub(super) within: ComputedIn<'a>,
    pub(super) known: Shared,
    /// Groups by their places: whether the requester may see them.
    visible: RefCell<HashMap<usize, bool>>,
}

/// An entry that may be a member: at hand, or by its name.
#[derive(Copy, Clone)]
pub(super) struct Candidate<'a> {
    pub(super) dn: &'a NormalDn,
    pub(super) entry: Option<&'a dyn StoredEntry>,
}

/// What is done with a member, until it answers false: its normalized name, and the name as it is shown.
type OnMember<'f> = dyn FnMut(&str, &str) -> bool + 'f;

impl<'a> Question<'a> {
    pub(super) fn new(overlay: &'a DynList, within: ComputedIn<'a>) -> Result<Self, Failure> {
        let known = overlay.known(within.schema, within.entries)?;
        Ok(Self { overlay, within, known, visible: RefCell::default() })
    }

    /// A question about the groups that an attribute says entries are in, of which one is named.
    pub(super) fn of_one(
        overlay: &'a DynList,
        within: ComputedIn<'a>,
        attribute: &AttributeDescription,
        name: &str,
    ) -> Result<Self, Failure> {
        let known = overlay.known_of(within.schema, within.entries, (attribute, name))?;
        Ok(Self { overlay, within, known, visible: RefCell::default() })
    }

    fn set(&self, group: &Group) -> Option<(&'a AttributeSet, &'a Map)> {
        let set = self.overlay.sets.get(group.set)?;
        Some((set, set.group()?))
    }

    /// Whether the requester may see the entry of a group. Others are told of nowhere, and lead nowhere.
    fn is_visible(&self, number: usize) -> Result<bool, Failure> {
        let known = self.visible.borrow().get(&number).copied();
        if let Some(visible) = known {
            return Ok(visible);
        }
        let visible = match (self.within.requester, self.known.groups.get(number)) {
            (None, _) => true,
            (_, None) => false,
            (Some(_), Some(group)) => {
                let query = InternalSearch::new(&group.dn, Scope::Base, &BoundFilter::True);
                self.within.entries.finds_any(&query.of(self.within.whose()))?.entries > 0
            }
        };
        self.visible.borrow_mut().insert(number, visible);
        Ok(visible)
    }

    /// The group of this name, if the requester may see it.
    fn visible_named(&self, name: &str) -> Result<Option<&Group>, Failure> {
        match self.known.index_of(name) {
            Some(number) if self.is_visible(number)? => Ok(self.known.groups.get(number)),
            _ => Ok(None),
        }
    }

    fn is_nested(&self, group: &Group) -> bool {
        self.set(group).is_some_and(|(_, map)| map.is_nested())
    }

    /// The groups, of sets that pass `wanted`, that an entry is directly a member of; by their places.
    fn direct(
        &self,
        candidate: Candidate<'_>,
        wanted: &dyn Fn(&Map) -> bool,
    ) -> Result<BTreeSet<usize>, Failure> {
        let mut direct = BTreeSet::new();
        let sets = self.overlay.sets.iter().enumerate();
        for (at, set) in sets.filter(|(_, set)| set.group().is_some_and(wanted)) {
            let Some(map) = set.group() else { continue };
            if self.known.groups.iter().any(|group| group.set == at && group.is_static) {
                self.add_static(at, map, candidate.dn, &mut direct)?;
            }
            for (number, group) in self.known.groups.iter().enumerate().filter(|(_, group)| group.set == at) {
                if !group.urls.is_empty() && self.is_found(group, candidate)? {
                    direct.insert(number);
                }
            }
        }
        let mut visible = BTreeSet::new();
        for number in direct {
            if self.is_visible(number)? {
                visible.insert(number);
            }
        }
        Ok(visible)
    }

    /// Static groups by the equality index of their members; without one each group is looked at.
    fn add_static(
        &self,
        at: usize,
        map: &Map,
        dn: &NormalDn,
        direct: &mut BTreeSet<usize>,
    ) -> Result<(), Failure> {
        let Some(filter) = has_member(self.within.schema, &map.attribute, dn) else { return Ok(()) };
        let is_own = |number: usize| {
            self.known.groups.get(number).is_some_and(|group| group.is_static && group.set == at)
        };
        if self.overlay.is_indexed() {
            let root = NormalDn::root();
            let query = InternalSearch::new(&root, Scope::Subtree, &filter);
            let mut numbers = Vec::new();
            let searched = self.within.entries.search(&query, &mut |found| {
                numbers.extend(self.known.index_of(found.dn()?.as_str()));
                Ok(true)
            })?;
            direct.extend(numbers.into_iter().filter(|number| is_own(*number)));
            if !searched.indexed {
                self.overlay.note_unindexed();
            }
            return Ok(());
        }
        for (number, group) in self.known.groups.iter().enumerate() {
            let query = InternalSearch::new(&group.dn, Scope::Base, &filter);
            if is_own(number) && self.within.entries.finds_any(&query)?.entries > 0 {
                direct.insert(number);
            }
        }
        Ok(())
    }

    /// Whether a URL of the group finds an entry.
    fn is_found(&self, group: &Group, candidate: Candidate<'_>) -> Result<bool, Failure> {
        let mut identity: Option<As<'_>> = None;
        for url in group.urls.iter().filter(|url| url.attributes.is_empty()) {
            if !candidate.dn.is_in_scope(&url.base, url.scope) {
                continue;
            }
            let found = match candidate.entry.filter(|_| group.identity.is_none()) {
                Some(entry) => entry.matches(&url.filter)?,
                None => {
                    if identity.is_none() {
                        identity = Some(Identity::of_requester(group.identity.as_ref(), &self.within)?);
                    }
                    let whose = identity.as_ref().and_then(As::whose);
                    match whose {
                        Some(whose) => {
                            let query = InternalSearch::new(candidate.dn, Scope::Base, &url.filter).of(whose);
                            self.within.entries.finds_any(&query)?.entries > 0
                        }
                        None => false,
                    }
                }
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The groups that an entry is a member of, each followed by those that it is in itself where they are nested: in slapd's
    /// order.
    pub(super) fn groups_of(
        &self,
        candidate: Candidate<'_>,
        wanted: &dyn Fn(&Map) -> bool,
    ) -> Result<Vec<usize>, Failure> {
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        let mut todo = self.in_order(self.direct(candidate, wanted)?);
        todo.reverse();
        while let Some(number) = todo.pop() {
            if !seen.insert(number) {
                continue;
            }
            all.push(number);
            let group = self.known.groups.get(number).filter(|group| self.is_nested(group));
            let Some(group) = group else { continue };
            let inner = Candidate { dn: &group.dn, entry: None };
            let outer = self.direct(inner, &|map| wanted(map) && map.is_nested())?;
            todo.extend(self.in_order(outer).into_iter().rev());
        }
        Ok(all)
    }

    /// Short names first.
    fn in_order(&self, groups: BTreeSet<usize>) -> Vec<usize> {
        let name = |number: &usize| self.known.groups.get(*number).map_or("", |group| group.dn.as_str());
        let mut groups: Vec<usize> = groups.into_iter().collect();
        groups.sort_by_key(|number| (name(number).len(), name(number)));
        groups
    }

    /// Whether an entry is a member of one group, of a set that passes `wanted`.
    pub(super) fn has(
        &self,
        at: usize,
        candidate: Candidate<'_>,
        wanted: &dyn Fn(&Map) -> bool,
    ) -> Result<bool, Failure> {
        let Some(group) = self.known.groups.get(at) else { return Ok(false) };
        if !self.set(group).is_some_and(|(_, map)| wanted(map)) || !self.is_visible(at)? {
            return Ok(false);
        }
        if self.is_nested(group) {
            return Ok(self.groups_of(candidate, wanted)?.contains(&at));
        }
        self.is_direct(group, candidate)
    }

    /// Whether the attribute says who is in the group.
    pub(super) fn tells_by(&self, group: &Group, attribute: &AttributeDescription) -> bool {
        self.set(group).is_some_and(|(_, map)| map.tells_by(attribute))
    }

    /// Whether an entry is directly a member of one group.
    fn is_direct(&self, group: &Group, candidate: Candidate<'_>) -> Result<bool, Failure> {
        if group.is_static
            && let Some((_, map)) = self.set(group)
            && let Some(filter) = has_member(self.within.schema, &map.attribute, candidate.dn)
        {
            let query = InternalSearch::new(&group.dn, Scope::Base, &filter);
            if self.within.entries.finds_any(&query)?.entries > 0 {
                return Ok(true);
            }
        }
        self.is_found(group, candidate)
    }

    /// Hands what the URLs find to `visit`, until it answers false. Answers false if it was stopped.
    fn expand(
        &self,
        urls: &[MemberUrl],
        identity: Option<&Identity>,
        visit: &mut dyn FnMut(&dyn FoundEntry) -> Result<bool, Fault>,
    ) -> Result<bool, Failure> {
        let identity = Identity::of_requester(identity, &self.within)?;
        let Some(whose) = identity.whose() else { return Ok(true) };
        let mut more = true;
        for url in urls.iter().filter(|url| url.attributes.is_empty()) {
            let query = InternalSearch {
                subentries: false,
                ..InternalSearch::new(&url.base, url.scope, &url.filter).of(whose)
            };
            self.within.entries.search(&query, &mut |found| {
                more = visit(found)?;
                Ok(more)
            })?;
            if !more {
                break;
            }
        }
        Ok(more)
    }

    /// The members that a group has stored. Answers false if it was stopped.
    fn stored_members(&self, group: &Group, visit: &mut OnMember<'_>) -> Result<bool, Failure> {
        let Some((_, map)) = self.set(group) else { return Ok(true) };
        let (mut more, schema) = (true, self.within.schema);
        let query = InternalSearch::new(&group.dn, Scope::Base, &BoundFilter::True);
        self.within.entries.search(&query, &mut |found| {
            found.source().visit_exact(&map.attribute, &mut |value| {
                more = more && on_stored(schema, value, visit);
                more
            })?;
            Ok(false)
        })?;
        Ok(more)
    }

    /// The entries that are stored members of a group.
    fn stored_ids(&self, group: &Group) -> Result<Members, Failure> {
        let Some((_, map)) = self.set(group) else { return Ok(Members::default()) };
        let (mut names, schema) = (Vec::new(), self.within.schema);
        let query = InternalSearch::new(&group.dn, Scope::Base, &BoundFilter::True);
        self.within.entries.search(&query, &mut |found| {
            found.source().visit_exact(&map.attribute, &mut |value| {
                let name = std::str::from_utf8(value).ok().and_then(|text| schema.parse_dn(text).ok());
                names.extend(name);
                true
            })?;
            Ok(false)
        })?;
        let (nested, mut members) = (self.is_nested(group), Members::default());
        for name in names {
            members.ids.extend(self.within.entries.id_of(&name)?.map(|id| id.0));
            if nested {
                members.groups.extend(self.known.index_of(name.as_str()));
            }
        }
        members.ids.sort_unstable();
        Ok(members)
    }

    /// The members of a group itself, stored and found. Answers false if it was stopped.
    fn members(&self, group: &Group, visit: &mut OnMember<'_>) -> Result<bool, Failure> {
        if !self.stored_members(group, visit)? {
            return Ok(false);
        }
        self.expand(&group.urls, group.identity.as_ref(), &mut |found| {
            Ok(visit(found.dn()?.as_str(), &found.shown_dn()?))
        })
    }

    /// Values of the member attribute of an entry of the set, beside those that are stored in it.
    pub(super) fn visit_members(
        &self,
        of: &ComputedOf<'_>,
        set: &AttributeSet,
        map: &Map,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let (schema, source) = (self.within.schema, of.entry.source());
        let is_dynamic = set.is_about(of.entry)?;
        let own = self.known.named(of.entry.dn()?.as_str());
        if !(is_dynamic || map.is_nested() && own.is_some()) {
            return Ok(());
        }
        let mut seen: HashSet<Box<str>> = HashSet::new();
        source.visit_exact(&map.attribute, &mut |value| {
            on_stored(schema, value, &mut |normal, _| {
                seen.insert(normal.into());
                true
            })
        })?;
        let mut inner: VecDeque<Box<str>> = VecDeque::new();
        if map.is_nested() {
            inner.extend(seen.iter().filter(|name| self.known.named(name).is_some()).cloned());
        }
        let mut put = |normal: &str, shown: &str, inner: &mut VecDeque<Box<str>>| {
            if !seen.insert(normal.into()) {
                return true;
            }
            if map.is_nested() && self.known.named(normal).is_some() {
                inner.push_back(normal.into());
            }
            visit(shown.as_bytes())
        };
        if is_dynamic {
            let urls = urls(schema, set, source)?;
            let identity = Identity::of(schema, source)?;
            let more = self.expand(&urls, identity.as_ref(), &mut |found| {
                Ok(put(found.dn()?.as_str(), &found.shown_dn()?, &mut inner))
            })?;
            if !more {
                return Ok(());
            }
        }
        let mut done: HashSet<Box<str>> = HashSet::new();
        while let Some(name) = inner.pop_front() {
            if !done.insert(name.clone()) {
                continue;
            }
            let Some(group) = self.visible_named(&name)? else { continue };
            if !self.members(group, &mut |normal, shown| put(normal, shown, &mut inner))? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The entries that are members of a group, through others where they are nested; by their ids.
    pub(super) fn holders(&self, name: &str) -> Result<Vec<u64>, Failure> {
        let mut ids = Vec::new();
        let Some(group) = self.visible_named(name)? else { return Ok(ids) };
        let mut todo: VecDeque<&Group> = VecDeque::from([group]);
        let mut done: HashSet<&str> = HashSet::from([group.dn.as_str()]);
        while let Some(group) = todo.pop_front() {
            let nested = self.is_nested(group);
            let stored = self.known.members(group, || self.stored_ids(group))?;
            ids.extend_from_slice(&stored.ids);
            let mut inner = stored.groups.clone();
            let mut note = |name: &str| {
                if nested {
                    inner.extend(self.known.index_of(name));
                }
            };
            for url in &group.urls {
                // What another database has is none of the candidates.
                let is_here = self.within.entries.id_of(&url.base)?.is_some();
                self.expand(std::slice::from_ref(url), group.identity.as_ref(), &mut |found| {
                    if is_here {
                        ids.push(found.id().0);
                    }
                    note(found.dn()?.as_str());
                    Ok(true)
                })?;
            }
            for number in inner {
                if let Some(group) = self.known.groups.get(number)
                    && self.is_visible(number)?
                    && done.insert(group.dn.as_str())
                {
                    todo.push_back(group);
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

impl Map {
    pub(super) fn is_nested(&self) -> bool {
        self.member_of.as_ref().is_some_and(|own| own.nested)
    }

    /// Whether the attribute says which groups of this kind an entry is in.
    pub(super) fn tells_by(&self, attribute: &AttributeDescription) -> bool {
        self.member_of.as_ref().is_some_and(|own| own.attribute == *attribute)
    }
}

/// Hands a stored name on, in its normal form; values that are none are passed over.
fn on_stored(schema: &Schema, value: &[u8], visit: &mut OnMember<'_>) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return true };
    schema.parse_dn(text).map_or(true, |dn| visit(dn.as_str(), text))
}

/// Entries that have the name as a member.
fn has_member(schema: &Schema, attribute: &AttributeDescription, dn: &NormalDn) -> Option<BoundFilter> {
    schema.bind_equality(attribute, dn.as_str().as_bytes()).ok().map(BoundFilter::Equality)
}
