//! Who is a member of which group.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::entry::EntryId;
use larix_engine::overlay::Failure;
use larix_engine::overlay::computed::{ComputedIn, ComputedOf, StoredEntry};
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::cache::{Dynamic, Group, MemberUrl, Members, of_class, urls};
use super::identity::{As, Identity};
use super::{AttributeSet, DynList, Map};

/// A question about groups, in one state of the database.
pub(super) struct Question<'a> {
    pub(super) overlay: &'a DynList,
    pub(super) within: ComputedIn<'a>,
    /// Whether the requester may see a group.
    visible: RefCell<HashMap<EntryId, bool>>,
    /// Entries with the class of a group, where groups are nested; looked up once.
    of_groups: OnceCell<Option<Arc<Vec<u64>>>>,
}

/// Groups in slapd's order: short names first.
type InOrder = BTreeMap<(usize, NormalDn), Arc<Group>>;

/// An entry that may be a member: at hand, or by its name.
#[derive(Copy, Clone)]
pub(super) struct Candidate<'a> {
    pub(super) dn: &'a NormalDn,
    pub(super) entry: Option<&'a dyn StoredEntry>,
}

/// What is done with a member, until it answers false: its normalized name, and the name as it is shown.
type OnMember<'f> = dyn FnMut(&str, &str) -> bool + 'f;

impl<'a> Question<'a> {
    pub(super) fn new(overlay: &'a DynList, within: ComputedIn<'a>) -> Self {
        Self { overlay, within, visible: RefCell::default(), of_groups: OnceCell::new() }
    }

    /// The group of this name, without regard to access.
    pub(super) fn named(&self, dn: &NormalDn) -> Result<Option<Arc<Group>>, Failure> {
        self.overlay.named(self.within.schema, self.within.entries, dn)
    }

    /// The groups by URL.
    fn dynamic(&self) -> Result<Arc<Dynamic>, Failure> {
        self.overlay.dynamic(self.within.schema, self.within.entries)
    }

    fn set(&self, group: &Group) -> Option<(&'a AttributeSet, &'a Map)> {
        let set = self.overlay.sets.get(group.set)?;
        Some((set, set.group()?))
    }

    /// Whether the requester may see the entry of a group. Others appear nowhere, and lead nowhere.
    fn is_visible(&self, group: &Group) -> Result<bool, Failure> {
        if self.within.requester.is_none() {
            return Ok(true);
        }
        let known = self.visible.borrow().get(&group.id).copied();
        if let Some(visible) = known {
            return Ok(visible);
        }
        let query = InternalSearch::new(&group.dn, Scope::Base, &BoundFilter::True);
        let visible = self.within.entries.finds_any(&query.of(self.within.whose()))?.entries > 0;
        self.visible.borrow_mut().insert(group.id, visible);
        Ok(visible)
    }

    /// The group of this name, if the requester may see it.
    fn visible_named(&self, dn: &NormalDn) -> Result<Option<Arc<Group>>, Failure> {
        match self.named(dn)? {
            Some(group) if self.is_visible(&group)? => Ok(Some(group)),
            _ => Ok(None),
        }
    }

    fn is_nested(&self, group: &Group) -> bool {
        self.set(group).is_some_and(|(_, map)| map.is_nested())
    }

    /// The groups, of sets that pass `wanted`, that an entry is directly a member of.
    fn direct(&self, candidate: Candidate<'_>, wanted: &dyn Fn(&Map) -> bool) -> Result<InOrder, Failure> {
        let mut direct = InOrder::new();
        let sets = self.overlay.sets.iter().enumerate();
        for (at, set) in sets.filter(|(_, set)| set.group().is_some_and(wanted)) {
            let Some(map) = set.group() else { continue };
            self.add_static(at, map, candidate.dn, &mut direct)?;
            for group in self.dynamic()?.groups.iter().filter(|group| group.set == at) {
                if self.is_found(group, candidate)? {
                    direct.insert((group.dn.as_str().len(), group.dn.clone()), Arc::clone(group));
                }
            }
        }
        let mut visible = InOrder::new();
        for (place, group) in direct {
            if self.is_visible(&group)? {
                visible.insert(place, group);
            }
        }
        Ok(visible)
    }

    /// Static groups, by the index of their members or of their class.
    fn add_static(&self, at: usize, map: &Map, dn: &NormalDn, direct: &mut InOrder) -> Result<(), Failure> {
        let schema = self.within.schema;
        let class = map.member_of.as_ref().and_then(|own| own.static_class);
        let Some(of_class) = class.and_then(|class| of_class(schema, class)) else { return Ok(()) };
        let Some(has_member) = has_member(schema, &map.attribute, dn) else { return Ok(()) };
        let (root, filter) = (NormalDn::root(), BoundFilter::And(vec![has_member, of_class]));
        let mut names = Vec::new();
        self.within.entries.search(&InternalSearch::new(&root, Scope::Subtree, &filter), &mut |found| {
            names.push(found.dn()?.clone());
            Ok(true)
        })?;
        for dn in names {
            if let Some(group) = self.named(&dn)?.filter(|group| group.is_static && group.set == at) {
                direct.insert((dn.as_str().len(), dn), group);
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
    ) -> Result<Vec<Arc<Group>>, Failure> {
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        let mut todo: Vec<Arc<Group>> = self.direct(candidate, wanted)?.into_values().rev().collect();
        while let Some(group) = todo.pop() {
            if !seen.insert(group.id) {
                continue;
            }
            if self.is_nested(&group) {
                let inner = Candidate { dn: &group.dn, entry: None };
                let outer = self.direct(inner, &|map| wanted(map) && map.is_nested())?;
                todo.extend(outer.into_values().rev());
            }
            all.push(group);
        }
        Ok(all)
    }

    /// Whether an entry is a member of one group, of a set that passes `wanted`.
    pub(super) fn has(
        &self,
        group: &Group,
        candidate: Candidate<'_>,
        wanted: &dyn Fn(&Map) -> bool,
    ) -> Result<bool, Failure> {
        if !self.set(group).is_some_and(|(_, map)| wanted(map)) || !self.is_visible(group)? {
            return Ok(false);
        }
        if self.is_nested(group) {
            return Ok(self.groups_of(candidate, wanted)?.iter().any(|own| own.id == group.id));
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
    fn stored(&self, group: &Group) -> Result<Arc<Members>, Failure> {
        group.members(|| {
            let Some((_, map)) = self.set(group) else { return Ok(Members::default()) };
            let entries = self.within.entries;
            let mut members =
                Members { ids: entries.named_by(group.id, &map.attribute)?, ..Members::default() };
            if map.is_nested() {
                for id in self.among_groups(&members.ids)? {
                    members.groups.extend(entries.name_of(EntryId(id))?);
                }
            }
            Ok(members)
        })
    }

    /// The entries with the class of a group; `None`: no index tells.
    fn of_groups(&self) -> Result<Option<&[u64]>, Failure> {
        if self.of_groups.get().is_none() {
            let all = self.overlay.of_groups(self.within.schema, self.within.entries)?;
            return Ok(self.of_groups.get_or_init(|| all).as_deref().map(Vec::as_slice));
        }
        Ok(self.of_groups.get().and_then(Option::as_deref).map(Vec::as_slice))
    }

    /// Whether the entry may be a group.
    fn is_of_group(&self, id: EntryId) -> bool {
        let of_groups = self.of_groups.get().and_then(Option::as_deref);
        of_groups.is_none_or(|all| all.binary_search(&id.0).is_ok())
    }

    /// Those of these entries, whose ids ascend, that may be groups.
    fn among_groups(&self, ids: &[u64]) -> Result<Vec<u64>, Failure> {
        let Some(all) = self.of_groups()? else { return Ok(ids.to_vec()) };
        let (few, many) = if all.len() < ids.len() { (all, ids) } else { (ids, all) };
        Ok(few.iter().filter(|id| many.binary_search(id).is_ok()).copied().collect())
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
        let own = if map.is_nested() { self.named(of.entry.dn()?)? } else { None };
        if !is_dynamic && own.is_none() {
            return Ok(());
        }
        let mut seen: HashSet<Box<str>> = HashSet::new();
        source.visit_exact(&map.attribute, &mut |value| {
            on_stored(schema, value, &mut |normal, _| {
                seen.insert(normal.into());
                true
            })
        })?;
        let mut inner: VecDeque<NormalDn> = VecDeque::new();
        if map.is_nested() {
            self.of_groups()?;
            match own.as_ref().filter(|own| of.entry.id() == Some(own.id)) {
                Some(own) => inner.extend(self.stored(own)?.groups.iter().cloned()),
                // It is about to be stored.
                None => inner.extend(seen.iter().map(|name| NormalDn::from_normal(name))),
            }
        }
        let mut put = |normal: &str, shown: &str| !seen.insert(normal.into()) || visit(shown.as_bytes());
        if is_dynamic {
            let urls = urls(schema, set, source)?;
            let identity = Identity::of(schema, source)?;
            let more = self.expand(&urls, identity.as_ref(), &mut |found| {
                if map.is_nested() && self.is_of_group(found.id()) {
                    inner.push_back(found.dn()?.clone());
                }
                Ok(put(found.dn()?.as_str(), &found.shown_dn()?))
            })?;
            if !more {
                return Ok(());
            }
        }
        let mut done: HashSet<NormalDn> = HashSet::new();
        while let Some(name) = inner.pop_front() {
            if !done.insert(name.clone()) {
                continue;
            }
            let Some(group) = self.visible_named(&name)? else { continue };
            if !self.stored_members(&group, &mut put)? {
                return Ok(());
            }
            inner.extend(self.stored(&group)?.groups.iter().cloned());
            let more = self.expand(&group.urls, group.identity.as_ref(), &mut |found| {
                if self.is_of_group(found.id()) {
                    inner.push_back(found.dn()?.clone());
                }
                Ok(put(found.dn()?.as_str(), &found.shown_dn()?))
            })?;
            if !more {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The entries that are members of a group, through others where they are nested; by their ids.
    pub(super) fn holders(&self, group: &Arc<Group>) -> Result<Vec<u64>, Failure> {
        let mut ids = Vec::new();
        if !self.is_visible(group)? {
            return Ok(ids);
        }
        let mut todo: VecDeque<Arc<Group>> = VecDeque::from([Arc::clone(group)]);
        let mut done: HashSet<EntryId> = HashSet::from([group.id]);
        while let Some(group) = todo.pop_front() {
            let nested = self.is_nested(&group);
            if nested {
                self.of_groups()?;
            }
            let mut inner = Vec::new();
            // No memberOf says what a group by URL has stored besides.
            if group.is_static {
                let stored = self.stored(&group)?;
                ids.extend_from_slice(&stored.ids);
                inner.extend_from_slice(&stored.groups);
            }
            for url in &group.urls {
                // What another database has is none of the candidates.
                let is_here = self.within.entries.id_of(&url.base)?.is_some();
                self.expand(std::slice::from_ref(url), group.identity.as_ref(), &mut |found| {
                    if is_here {
                        ids.push(found.id().0);
                    }
                    if nested && self.is_of_group(found.id()) {
                        inner.push(found.dn()?.clone());
                    }
                    Ok(true)
                })?;
            }
            for dn in inner {
                if let Some(group) = self.visible_named(&dn)?
                    && done.insert(group.id)
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
