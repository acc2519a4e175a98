//! Groups that were looked for, with their stored members: those by URL together, once for each commit, and others one by one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use foldhash::HashMap;
use larix_engine::Fault;
use larix_engine::entry::{EntryId, EntrySource};
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_engine::overlay::{Dependencies, Entries, Failure};
use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::{BoundFilter, NormalDn, ObjectClassId, Schema};

use super::identity::Identity;
use super::{AttributeSet, DynList};

/// The groups by URL as of one commit.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    commit: Option<u64>,
    pub(super) groups: Vec<Arc<Group>>,
}

/// What was found under names that were asked for, each as of a commit of its own.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    by_name: HashMap<Box<str>, Arc<CachedGroup>>,
    members: Arc<AtomicUsize>,
}

/// What was found under one name.
#[derive(Debug)]
struct CachedGroup {
    commit: u64,
    group: Option<Arc<Group>>,
    /// It is, or may become, a group by URL: every commit may change what it is.
    is_dynamic: bool,
}

/// The entries with the class of a group, where groups are nested, as of one commit.
#[derive(Debug)]
pub(super) struct OfGroups {
    commit: u64,
    /// Ascending.
    ids: Arc<Vec<u64>>,
}

/// Names that are remembered.
const NAMES_MAX: usize = 10_000;

/// Members that are remembered: 8 bytes each.
const MEMBERS_MAX: usize = 1_000_000;

/// The stored members of a group, without regard to access.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Those that have entries in this database, ascending.
    pub(super) ids: Vec<u64>,
    /// The names of those that have the class of a group, where groups are nested.
    pub(super) groups: Vec<NormalDn>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: EntryId,
    pub(super) dn: NormalDn,
    /// The name as it is shown.
    pub(super) shown: String,
    /// The set that it is a group of, by its place.
    pub(super) set: usize,
    /// Of a dynamic group.
    pub(super) urls: Vec<MemberUrl>,
    pub(super) identity: Option<Identity>,
    /// Its members are stored.
    pub(super) is_static: bool,
    members: OnceLock<Arc<Members>>,
    /// Members that are remembered, of all groups that share this; `None`: of a state that changes are laid over.
    remembered: Option<Arc<AtomicUsize>>,
}

/// What a URL of a list or group looks for.
#[derive(Clone, Debug)]
pub(super) struct MemberUrl {
    pub(super) base: NormalDn,
    pub(super) scope: Scope,
    pub(super) filter: BoundFilter,
    /// Attributes that a list takes over; none for all.
    pub(super) attributes: Vec<String>,
}

impl Group {
    /// The stored members; `find` looks them up where they are not known. In a state that changes are laid over it is asked each time.
    pub(super) fn members(
        &self,
        find: impl FnOnce() -> Result<Members, Failure>,
    ) -> Result<Arc<Members>, Failure> {
        if let Some(cached) = self.members.get() {
            return Ok(Arc::clone(cached));
        }
        let found = Arc::new(find()?);
        let count = found.ids.len() + found.groups.len();
        if let Some(remembered) = &self.remembered {
            let cached = remembered.fetch_add(count, Ordering::Relaxed);
            // Of two threads that asked at once, one has found the same for nothing.
            if cached.saturating_add(count) > MEMBERS_MAX || self.members.set(Arc::clone(&found)).is_err() {
                remembered.fetch_sub(count, Ordering::Relaxed);
            }
        }
        Ok(found)
    }
}

impl MemberUrl {
    /// A URL that names no server and no extension.
    pub(super) fn parse(schema: &Schema, class: ObjectClassId, text: &str) -> Option<Self> {
        let url = LdapUrl::parse(text)
            .ok()
            .or_else(|| LdapUrl::parse(text.split(' ').next().unwrap_or_default()).ok())?;
        // An empty base is no database's, as in slapd.
        if url.scheme != UrlScheme::Ldap
            || !url.host.is_empty()
            || !url.extensions.is_empty()
            || url.dn.is_empty()
        {
            return None;
        }
        let base = schema.parse_dn(&url.dn).ok()?;
        let own = url.filter.map(|filter| schema.bind_filter(filter.as_filter()));
        // Lists within lists are not expanded.
        let no_list = || of_class(schema, class).map(|of_class| BoundFilter::Not(Box::new(of_class)));
        let filter = match own {
            None => no_list()?,
            Some(own) if url.attributes.is_empty() => own,
            Some(own) => BoundFilter::And(vec![no_list()?, own]),
        };
        let attributes = url.attributes.into_iter().filter(|name| !name.is_empty()).collect();
        Some(Self { base, scope: url.scope.unwrap_or(Scope::Base), filter, attributes })
    }
}

/// Entries of a class.
pub(super) fn of_class(schema: &Schema, class: ObjectClassId) -> Option<BoundFilter> {
    let object_class = schema.describe("objectClass").ok()?;
    let oid = schema.class(class).oid.as_bytes();
    schema.bind_equality(&object_class, oid).ok().map(BoundFilter::Equality)
}

/// The URLs of an entry of a set.
pub(super) fn urls(
    schema: &Schema,
    set: &AttributeSet,
    entry: &dyn EntrySource,
) -> Result<Vec<MemberUrl>, Fault> {
    let mut urls = Vec::new();
    entry.visit_exact(&set.url, &mut |value| {
        urls.extend(
            std::str::from_utf8(value).ok().and_then(|text| MemberUrl::parse(schema, set.class, text)),
        );
        true
    })?;
    Ok(urls)
}

/// Groups while they are looked for.
#[derive(Default)]
struct GroupsBuilder {
    groups: Vec<Group>,
    /// Where a group is among them.
    by_id: HashMap<EntryId, usize>,
    /// Some are, or may become, groups by URL.
    is_dynamic: bool,
    remembered: Option<Arc<AtomicUsize>>,
}

impl DynList {
    /// The groups by URL as they are in this state of the database.
    pub(super) fn dynamic(&self, schema: &Schema, entries: &dyn Entries) -> Result<Arc<Dynamic>, Failure> {
        let commit = entries.commit();
        let cached = self.dynamic.load_full();
        if let Some(cached) = cached.filter(|cached| commit.is_some() && cached.commit == commit) {
            return Ok(cached);
        }
        let remembered = self.room(commit);
        let mut builder = GroupsBuilder { remembered, ..GroupsBuilder::default() };
        let root = NormalDn::root();
        for (at, set) in self.sets.iter().enumerate() {
            self.gather(schema, entries, (at, set), (&root, Scope::Subtree), &mut builder)?;
        }
        let groups = builder.groups.into_iter().filter(|group| !group.urls.is_empty()).map(Arc::new);
        let found = Arc::new(Dynamic { commit, groups: groups.collect() });
        // An older state that somebody still reads is not kept.
        let is_newer = |before: &Arc<Dynamic>| before.commit < commit;
        if commit.is_some() && self.dynamic.load().as_ref().is_none_or(is_newer) {
            self.dynamic.store(Some(Arc::clone(&found)));
        }
        Ok(found)
    }

    /// The entries with the class of a nested group, ascending; `None`: no index tells.
    pub(super) fn of_groups(
        &self,
        schema: &Schema,
        entries: &dyn Entries,
    ) -> Result<Option<Arc<Vec<u64>>>, Failure> {
        let dependencies =
            Dependencies { attributes: self.object_class.as_slice(), entries: true, names: false };
        let cached = self.of_groups.load_full();
        if let Some(cached) = cached.filter(|cached| entries.is_as_at(cached.commit, &dependencies)) {
            return Ok(Some(Arc::clone(&cached.ids)));
        }
        let nested = self.sets.iter().filter_map(|set| Some((set, set.group()?)));
        let classes = nested.filter(|(_, map)| map.is_nested()).flat_map(|(set, map)| {
            let static_class = map.member_of.as_ref().and_then(|own| own.static_class);
            std::iter::once(set.class).chain(static_class)
        });
        let mut ids: Vec<u64> = Vec::new();
        for class in classes {
            let Some(filter) = of_class(schema, class) else { continue };
            let Some(found) = entries.indexed_ids(&filter)? else { return Ok(None) };
            ids.extend(found);
        }
        ids.sort_unstable();
        let ids = Arc::new(ids);
        // An older state that somebody still reads is not kept.
        if let Some(commit) = entries.commit().filter(|_| ids.len() <= MEMBERS_MAX)
            && self.of_groups.load().as_ref().is_none_or(|before| before.commit < commit)
        {
            self.of_groups.store(Some(Arc::new(OfGroups { commit, ids: Arc::clone(&ids) })));
        }
        Ok(Some(ids))
    }

    /// The group of this name, if it is one.
    pub(super) fn named(
        &self,
        schema: &Schema,
        entries: &dyn Entries,
        dn: &NormalDn,
    ) -> Result<Option<Arc<Group>>, Failure> {
        let (commit, name) = (entries.commit(), dn.as_str());
        let cached = {
            let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            remembered.by_name.get(name).cloned()
        };
        if let Some(cached) = cached.filter(|cached| self.holds(cached, commit, entries)) {
            return Ok(cached.group.clone());
        }
        let remembered = self.room(commit);
        let mut builder = GroupsBuilder { remembered, ..GroupsBuilder::default() };
        // Groups of other databases are theirs.
        if entries.id_of(dn)?.is_some() {
            self.look_at(schema, entries, dn, &mut builder)?;
        }
        let group = builder.groups.into_iter().next().map(Arc::new);
        if let Some(commit) = commit {
            let cached = CachedGroup { commit, group: group.clone(), is_dynamic: builder.is_dynamic };
            let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.by_name.get(name).is_none_or(|before| before.commit < commit) {
                remembered.by_name.insert(name.into(), Arc::new(cached));
            }
        }
        Ok(group)
    }

    /// Looks at one entry for all sets. Only a set that is restricted to what a filter finds asks once more.
    fn look_at(
        &self,
        schema: &Schema,
        entries: &dyn Entries,
        dn: &NormalDn,
        builder: &mut GroupsBuilder,
    ) -> Result<(), Failure> {
        let mut restricted = Vec::new();
        let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True);
        entries.search(&query, &mut |found| {
            for (at, set) in self.sets.iter().enumerate().filter(|(_, set)| set.group().is_some()) {
                builder.is_dynamic |= set.restriction.is_some();
                if set.restriction.as_ref().is_some_and(|own| own.filter.is_some()) {
                    restricted.push(at);
                } else if set.classes.are_had_by(found.source())? {
                    builder.is_dynamic = true;
                    add(schema, (at, set), found, false, builder)?;
                }
                if set.static_classes.are_had_by(found.source())? {
                    add(schema, (at, set), found, true, builder)?;
                }
            }
            Ok(false)
        })?;
        for at in restricted {
            let Some(set) = self.sets.get(at) else { continue };
            self.gather(schema, entries, (at, set), (dn, Scope::Base), builder)?;
        }
        Ok(())
    }

    /// Where members are counted, if they may be remembered.
    fn room(&self, commit: Option<u64>) -> Option<Arc<AtomicUsize>> {
        commit?;
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        // What is out of date makes room with all the rest.
        let members = remembered.members.load(Ordering::Relaxed);
        if remembered.by_name.len() >= NAMES_MAX || members >= MEMBERS_MAX {
            *remembered = Remembered::default();
        }
        Some(Arc::clone(&remembered.members))
    }

    /// Whether what was found holds in this state: static groups and their members do until an entry comes or goes, or one becomes a
    /// group or has other members.
    fn holds(&self, cached: &CachedGroup, commit: Option<u64>, entries: &dyn Entries) -> bool {
        let Some(until) = commit else { return false };
        if cached.commit >= until || cached.is_dynamic {
            return cached.commit == until;
        }
        let members = self.sets.iter().filter_map(AttributeSet::group).map(|map| &map.attribute);
        let attributes: Vec<_> = members.chain(&self.object_class).cloned().collect();
        entries.is_as_at(cached.commit, &Dependencies { attributes: &attributes, entries: true, names: true })
    }

    fn gather(
        &self,
        schema: &Schema,
        entries: &dyn Entries,
        (at, set): (usize, &AttributeSet),
        (base, scope): (&NormalDn, Scope),
        builder: &mut GroupsBuilder,
    ) -> Result<(), Failure> {
        if set.group().is_none() {
            return Ok(());
        }
        let Some(of_class) = of_class(schema, set.class) else { return Ok(()) };
        let restriction = set.restriction.as_ref().and_then(|own| own.filter.clone());
        let filter = BoundFilter::And(std::iter::once(of_class).chain(restriction).collect());
        entries.search(&InternalSearch::new(base, scope, &filter), &mut |found| {
            builder.is_dynamic = true;
            add(schema, (at, set), found, false, builder)?;
            Ok(true)
        })?;
        Ok(())
    }
}

fn add(
    schema: &Schema,
    (at, set): (usize, &AttributeSet),
    found: &dyn FoundEntry,
    is_static: bool,
    builder: &mut GroupsBuilder,
) -> Result<(), Fault> {
    let (dn, id) = (found.dn()?, found.id());
    if let Some(other) = builder.by_id.get(&id).and_then(|at| builder.groups.get_mut(*at)) {
        other.is_static |= is_static && other.set == at;
        return Ok(());
    }
    if !is_static
        && let Some(base) = set.restriction.as_ref().and_then(|restriction| restriction.base.as_ref())
        && !set.restriction.as_ref().is_some_and(|own| dn.is_in_scope(base, own.scope))
    {
        return Ok(());
    }
    let source = found.source();
    let (urls, identity) = match is_static {
        true => (Vec::new(), None),
        false => (urls(schema, set, source)?, Identity::of(schema, source)?),
    };
    if !is_static && urls.is_empty() {
        return Ok(());
    }
    let (dn, shown) = (dn.clone(), found.shown_dn()?);
    let remembered = builder.remembered.clone();
    builder.by_id.insert(id, builder.groups.len());
    builder.groups.push(Group {
        id,
        dn,
        shown,
        set: at,
        urls,
        identity,
        is_static,
        members: OnceLock::new(),
        remembered,
    });
    Ok(())
}
