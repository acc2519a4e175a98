//! The groups of a database, found once for each commit, and the entries that are members of static ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use foldhash::HashMap;
use larix_engine::entry::{EntryId, EntrySource};
use larix_engine::fault::Fault;
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_engine::overlay::{Entries, Failure, Lasting};
use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, ObjectClassId, Schema};

use super::identity::Identity;
use super::{AttributeSet, DynList, Shared};

/// The groups as of one commit.
#[derive(Debug, Default)]
pub(super) struct Known {
    commit: Option<u64>,
    /// Some groups are, or may become, dynamic: every commit may change what they are.
    is_dynamic: bool,
    pub(super) groups: Vec<Group>,
    by_name: HashMap<Box<str>, usize>,
    /// Members that are remembered, of all groups that share this.
    members: Arc<AtomicUsize>,
}

/// Groups that were asked about one by one, where the others have no say: each as of a commit of its own.
#[derive(Debug, Default)]
pub(super) struct Alone {
    by_name: HashMap<Box<str>, Shared>,
    members: Arc<AtomicUsize>,
}

/// Groups that are remembered one by one.
const ALONE_MAX: usize = 10_000;

/// Members that are remembered of the groups of one commit: 8 bytes each.
const MEMBERS_MAX: usize = 1_000_000;

/// The stored members of a group, whoever asks.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Those that have entries in this database, ascending.
    pub(super) ids: Vec<u64>,
    /// Those that are groups, by their places, where groups are nested.
    pub(super) groups: Vec<usize>,
}

/// A group.
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

impl Known {
    pub(super) fn named(&self, dn: &str) -> Option<&Group> {
        self.index_of(dn).and_then(|at| self.groups.get(at))
    }

    /// The stored members of a group; `find` looks them up where they are not known. In a state that changes are laid over it is asked
    /// each time.
    pub(super) fn members(
        &self,
        group: &Group,
        find: impl FnOnce() -> Result<Members, Failure>,
    ) -> Result<Arc<Members>, Failure> {
        if let Some(known) = group.members.get() {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(find()?);
        let count = found.ids.len() + found.groups.len();
        if self.commit.is_some() {
            let known = self.members.fetch_add(count, Ordering::Relaxed);
            // Of two threads that asked at once, one has found the same for nothing.
            if known.saturating_add(count) > MEMBERS_MAX || group.members.set(Arc::clone(&found)).is_err() {
                self.members.fetch_sub(count, Ordering::Relaxed);
            }
        }
        Ok(found)
    }

    pub(super) fn index_of(&self, dn: &str) -> Option<usize> {
        self.by_name.get(dn).copied()
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

impl DynList {
    /// Whether static groups are found by an index, as far as is known.
    pub(super) fn is_indexed(&self) -> bool {
        !self.unindexed.load(Ordering::Relaxed)
    }

    pub(super) fn note_unindexed(&self) {
        self.unindexed.store(true, Ordering::Relaxed);
    }

    /// The groups as they are in this state of the database.
    pub(super) fn known(&self, schema: &Schema, entries: &dyn Entries) -> Result<Shared, Failure> {
        let commit = entries.commit();
        if let Some(known) = self.known.load_full().filter(|known| self.holds(known, commit, entries)) {
            return Ok(known);
        }
        let mut known = Known { commit, ..Known::default() };
        let root = NormalDn::root();
        for (at, set) in self.sets.iter().enumerate() {
            self.gather(schema, entries, (at, set), (&root, Scope::Subtree), &mut known)?;
        }
        let known = Arc::new(known);
        // An older state that somebody still reads is not kept.
        let is_newer = |before: &Shared| before.commit < commit;
        if commit.is_some() && self.known.load().as_ref().is_none_or(is_newer) {
            self.known.store(Some(Arc::clone(&known)));
        }
        Ok(known)
    }

    /// A group that the attribute may say entries are in: all groups where they are known or needed, and else this one alone.
    pub(super) fn known_of(
        &self,
        schema: &Schema,
        entries: &dyn Entries,
        (attribute, name): (&AttributeDescription, &str),
    ) -> Result<Shared, Failure> {
        let commit = entries.commit();
        let of_all = self.known.load_full().filter(|known| self.holds(known, commit, entries));
        if let Some(known) = of_all {
            return Ok(known);
        }
        if !self.is_told_alone(attribute) {
            return self.known(schema, entries);
        }
        let remembered = {
            let alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            alone.by_name.get(name).cloned()
        };
        if let Some(known) = remembered.filter(|known| self.holds(known, commit, entries)) {
            return Ok(known);
        }
        let dn = NormalDn::from_normal(name);
        let members = {
            let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            // What is out of date makes room with all the rest.
            if alone.by_name.len() >= ALONE_MAX || alone.members.load(Ordering::Relaxed) >= MEMBERS_MAX {
                *alone = Alone::default();
            }
            Arc::clone(&alone.members)
        };
        let mut known = Known { commit, members, ..Known::default() };
        // Groups of other databases are theirs.
        if entries.id_of(&dn)?.is_some() {
            for (at, set) in self.sets.iter().enumerate() {
                self.gather(schema, entries, (at, set), (&dn, Scope::Base), &mut known)?;
            }
        }
        let known = Arc::new(known);
        if commit.is_some() {
            let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            let is_newer = |before: &Shared| before.commit < commit;
            if alone.by_name.get(name).is_none_or(is_newer) {
                alone.by_name.insert(name.into(), Arc::clone(&known));
            }
        }
        Ok(known)
    }

    /// Whether the attribute says no more than the groups that it names: no group is in another one.
    fn is_told_alone(&self, attribute: &AttributeDescription) -> bool {
        let maps = || self.sets.iter().filter_map(AttributeSet::group);
        let is_nested = maps().any(|map| map.tells_by(attribute) && map.is_nested());
        !is_nested && !maps().any(|map| map.attribute == *attribute)
    }

    /// Whether what was found holds in this state: static groups and their members do until an entry comes or goes, or one becomes a
    /// group or has other members.
    fn holds(&self, known: &Known, commit: Option<u64>, entries: &dyn Entries) -> bool {
        let (Some(from), Some(until)) = (known.commit, commit) else { return false };
        if from >= until || known.is_dynamic {
            return from == until;
        }
        let members = self.sets.iter().filter_map(AttributeSet::group).map(|map| &map.attribute);
        let attributes: Vec<_> = members.chain(&self.object_class).cloned().collect();
        entries.is_as_at(from, &Lasting { attributes: &attributes, entries: true })
    }

    fn gather(
        &self,
        schema: &Schema,
        entries: &dyn Entries,
        (at, set): (usize, &AttributeSet),
        (base, scope): (&NormalDn, Scope),
        known: &mut Known,
    ) -> Result<(), Failure> {
        let Some(map) = set.group() else { return Ok(()) };
        let static_class = map.member_of.as_ref().and_then(|own| own.static_class);
        for (class, is_static) in [(Some(set.class), false), (static_class, true)] {
            let Some(filter) = class.and_then(|class| of_class(schema, class)) else { continue };
            let filter = match &set.restriction {
                Some(restriction) if !is_static => {
                    let own = restriction.filter.clone();
                    BoundFilter::And(std::iter::once(filter).chain(own).collect())
                }
                _ => filter,
            };
            known.is_dynamic |= set.restriction.is_some();
            let query = InternalSearch::new(base, scope, &filter);
            entries.search(&query, &mut |found| {
                known.is_dynamic |= !is_static;
                add(schema, (at, set), found, is_static, known)?;
                Ok(true)
            })?;
        }
        Ok(())
    }
}

fn add(
    schema: &Schema,
    (at, set): (usize, &AttributeSet),
    found: &dyn FoundEntry,
    is_static: bool,
    known: &mut Known,
) -> Result<(), Fault> {
    let dn = found.dn()?;
    if let Some(other) = known.by_name.get(dn.as_str()).and_then(|at| known.groups.get_mut(*at)) {
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
    known.by_name.insert(dn.as_str().into(), known.groups.len());
    let (dn, shown) = (dn.clone(), found.shown_dn()?);
    let members = OnceLock::new();
    known.groups.push(Group { id: found.id(), dn, shown, set: at, urls, identity, is_static, members });
    Ok(())
}
