//! The groups of a database with their URLs as filters, kept in memory until a URL changes.

use std::sync::Arc;

use foldhash::HashMap;
use larix_engine::entry::EntryId;
use larix_engine::overlay::internal_search::{FoundEntry, InternalLimits, InternalSearch, SearchEnd};
use larix_engine::overlay::{Dependencies, Entries, Failure};
use larix_engine::{Entry, Fault};
use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::{AttributeDescription, BoundAssertion, BoundFilter, MatchingRule, NormalDn, Schema};

use super::Settings;

/// Bytes of URLs that are kept: each takes some six times as many in memory. Where there are more, they are read with each change.
const URL_BYTES_MAX: usize = 32 << 20;

/// Entries that are looked at for groups while no index tells which have URLs, before their class is asked for alone.
const UNINDEXED_MAX: u32 = 10_000;

/// Equality rules whose keys are equal exactly if the values are.
const EXACT_RULES: [&str; 9] = [
    "2.5.13.1",
    "2.5.13.2",
    "2.5.13.5",
    "2.5.13.8",
    "2.5.13.13",
    "2.5.13.14",
    "2.5.13.20",
    "1.3.6.1.4.1.1466.109.114.1",
    "1.3.6.1.4.1.1466.109.114.2",
];

/// The groups as of one commit.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    commit: Option<u64>,
    /// Entries that got URLs but not the class are not among the groups.
    by_class: bool,
    pub(super) groups: Vec<Group>,
    /// The URLs by their bases.
    by_base: HashMap<Box<str>, Bucket>,
}

/// An entry that has URLs. Its class is asked for where it matters, and its name may be another one by now.
#[derive(Debug)]
pub(super) struct Group {
    /// The set, by its place.
    pub(super) set: usize,
    pub(super) id: EntryId,
    pub(super) dn: NormalDn,
    pub(super) urls: Vec<Url>,
}

/// What makes a member.
#[derive(Debug)]
pub(super) struct Url {
    pub(super) base: NormalDn,
    pub(super) scope: Scope,
    pub(super) filter: BoundFilter,
    /// Whose values are the members, in the place of the entries' names.
    pub(super) values_of: Option<AttributeDescription>,
    /// While none of these changes, nor its name, an entry makes the same members; `None`: any change may make others.
    depends: Option<Vec<AttributeDescription>>,
}

/// A URL of a group, by their places.
#[derive(Copy, Clone, Debug)]
pub(super) struct At {
    pub(super) group: usize,
    pub(super) url: usize,
}

/// URLs of one base.
#[derive(Debug, Default)]
struct Bucket {
    by_value: Vec<ByValue>,
    others: Vec<At>,
}

/// URLs that find no entry without a certain value of one attribute.
#[derive(Debug)]
struct ByValue {
    description: AttributeDescription,
    rule: &'static MatchingRule,
    urls: HashMap<Box<[u8]>, Vec<At>>,
}

impl Settings {
    /// The groups as they are in this state of the database.
    pub(super) fn compiled(&self, entries: &dyn Entries, schema: &Schema) -> Result<Arc<Compiled>, Failure> {
        let cached = self.cached.load_full();
        let holds = |cached: &Arc<Compiled>| {
            cached.commit.is_some_and(|commit| entries.is_as_at(commit, &self.dependencies(cached.by_class)))
        };
        match cached.filter(holds) {
            Some(cached) => Ok(cached),
            None => self.compile(entries, schema),
        }
    }

    /// The same, whatever is kept.
    pub(super) fn compile(&self, entries: &dyn Entries, schema: &Schema) -> Result<Arc<Compiled>, Failure> {
        let (mut compiled, mut bytes, mut by_class) = (Compiled::default(), 0, false);
        for at in 0..self.sets.len() {
            by_class |= self.gather(entries, schema, at, &mut |group, text_bytes| {
                bytes += text_bytes;
                compiled.add(schema, entries, group);
            })?;
        }
        (compiled.commit, compiled.by_class) = (entries.found_at(&self.dependencies(by_class)), by_class);
        let compiled = Arc::new(compiled);
        if compiled.commit.is_some() && bytes <= URL_BYTES_MAX {
            self.cached.store(Some(Arc::clone(&compiled)));
        }
        Ok(compiled)
    }

    /// What makes URLs others: nothing but their change. Names and classes are asked for when a group is written; but where groups were
    /// found by their class, an entry may get that, too.
    fn dependencies(&self, by_class: bool) -> Dependencies<'_> {
        let attributes = if by_class { &self.urls_and_class } else { &self.urls };
        Dependencies { attributes, entries: false, names: false }
    }

    /// Hands on the entries with URLs of a set. Answers whether it found them by the class alone.
    fn gather(
        &self,
        entries: &dyn Entries,
        schema: &Schema,
        at: usize,
        take: &mut dyn FnMut(Group, usize),
    ) -> Result<bool, Failure> {
        let Some(set) = self.sets.get(at) else { return Ok(false) };
        let (root, has_url) = (NormalDn::root(), BoundFilter::Present(set.url.clone()));
        let mut visit = |found: &dyn FoundEntry| {
            let (group, bytes) = group(schema, (at, &set.url), found)?;
            if !group.urls.is_empty() {
                take(group, bytes);
            }
            Ok(true)
        };
        let is_indexed = entries.indexed_ids(&has_url)?.is_some();
        let unchecked = (!is_indexed).then_some(UNINDEXED_MAX);
        let limits = InternalLimits { unchecked, ..InternalLimits::default() };
        let with_urls =
            InternalSearch::new(&root, Scope::Subtree, &has_url).of_what_is_stored().within(limits);
        let by_class = entries.search(&with_urls, &mut visit)?.ended == SearchEnd::TooMuchWork;
        if by_class {
            let of_class = InternalSearch::new(&root, Scope::Subtree, &set.groups).of_what_is_stored();
            entries.search(&of_class, &mut visit)?;
        }
        Ok(by_class)
    }

    /// The group that the entry of this name is, if it is one.
    pub(super) fn group_named(
        &self,
        entries: &dyn Entries,
        schema: &Schema,
        dn: &NormalDn,
    ) -> Result<Option<Group>, Failure> {
        let mut own = None;
        for (at, set) in self.sets.iter().enumerate() {
            entries.search(&InternalSearch::new(dn, Scope::Base, &set.groups), &mut |found| {
                own = Some(group(schema, (at, &set.url), found)?.0);
                Ok(false)
            })?;
            // An entry is a group of one class.
            if own.is_some() {
                break;
            }
        }
        Ok(own)
    }

    /// The set whose group the entry of this name is, by its place.
    pub(super) fn set_of(&self, entries: &dyn Entries, dn: &NormalDn) -> Result<Option<usize>, Failure> {
        for (at, set) in self.sets.iter().enumerate() {
            if super::follow::matches(entries, dn, &set.groups)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// The URLs of an entry, and how long they are.
fn group(
    schema: &Schema,
    (set, attribute): (usize, &AttributeDescription),
    found: &dyn FoundEntry,
) -> Result<(Group, usize), Fault> {
    let (mut urls, mut bytes) = (Vec::new(), 0);
    found.source().visit_exact(attribute, &mut |value| {
        bytes += value.len();
        urls.extend(std::str::from_utf8(value).ok().and_then(|text| Url::parse(schema, text)));
        true
    })?;
    Ok((Group { set, id: found.id(), dn: found.dn()?.clone(), urls }, bytes))
}

impl Compiled {
    fn add(&mut self, schema: &Schema, entries: &dyn Entries, mut group: Group) {
        let number = self.groups.len();
        for (at, url) in group.urls.iter_mut().enumerate() {
            let at = At { group: number, url: at };
            let lasts = |attribute: &AttributeDescription| {
                !schema.attribute(attribute.attribute).is_operational() && !entries.is_computed(attribute)
            };
            url.depends = url.depends.take().filter(|all| all.iter().all(&lasts));
            let bucket = self.by_base.entry(url.base.as_str().into()).or_default();
            match needed(&url.filter, &lasts) {
                Some(needed) => bucket.add(needed, at),
                None => bucket.others.push(at),
            }
        }
        self.groups.push(group);
    }

    pub(super) fn url(&self, at: At) -> Option<(&Group, &Url)> {
        let group = self.groups.get(at.group)?;
        Some((group, group.urls.get(at.url)?))
    }

    /// Hands on the URLs that may find an entry.
    pub(super) fn candidates(
        &self,
        schema: &Schema,
        (dn, entry): (&NormalDn, &Entry),
        visit: &mut dyn FnMut(At) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for bucket in (0..=dn.depth()).filter_map(|levels| self.by_base.get(dn.ancestor(levels)?.as_str())) {
            bucket.others.iter().try_for_each(|at| visit(*at))?;
            bucket.by_value.iter().try_for_each(|by_value| by_value.visit(schema, entry, visit))?;
        }
        Ok(())
    }

    /// Whether URLs may find entries below this one, or itself.
    pub(super) fn concerns(&self, base: &NormalDn) -> bool {
        self.by_base.keys().any(|own| {
            let own = NormalDn::from_normal(own);
            own.is_within(base) || base.is_within(&own)
        })
    }
}

impl Bucket {
    fn add(&mut self, needed: &BoundAssertion, at: At) {
        let is_it = |own: &&mut ByValue| own.description == needed.description && own.rule == needed.rule;
        if self.by_value.iter_mut().find(is_it).is_none() {
            let description = needed.description.clone();
            self.by_value.push(ByValue { description, rule: needed.rule, urls: HashMap::default() });
        }
        if let Some(own) = self.by_value.iter_mut().find(is_it) {
            own.urls.entry(needed.value.key().into()).or_default().push(at);
        }
    }
}

impl ByValue {
    fn visit(
        &self,
        schema: &Schema,
        entry: &Entry,
        visit: &mut dyn FnMut(At) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let covered = |own: &&larix_engine::entry::EntryAttribute| {
            own.description.is_subdescription_of(schema, &self.description)
        };
        let mut key = Vec::new();
        for attribute in entry.attributes.iter().filter(covered) {
            if attribute.large.is_some() {
                // Its values are in the store: each URL is asked.
                return self.urls.values().flatten().try_for_each(|at| visit(*at));
            }
        }
        for value in entry.attributes.iter().filter(covered).flat_map(|attribute| &attribute.values) {
            key.clear();
            if self.rule.normalize_value(schema, value, &mut key).is_ok() {
                self.urls.get(key.as_slice()).into_iter().flatten().try_for_each(|at| visit(*at))?;
            }
        }
        Ok(())
    }
}

/// An assertion without which the filter finds nothing.
fn needed<'f>(
    filter: &'f BoundFilter,
    lasts: &dyn Fn(&AttributeDescription) -> bool,
) -> Option<&'f BoundAssertion> {
    match filter {
        BoundFilter::Equality(one) => {
            (EXACT_RULES.contains(&one.rule.oid) && lasts(&one.description)).then_some(one)
        }
        BoundFilter::And(all) => all.iter().find_map(|one| needed(one, lasts)),
        _ => None,
    }
}

impl Url {
    /// A URL that names this server; others, and those with more than one attribute, find nobody.
    fn parse(schema: &Schema, text: &str) -> Option<Self> {
        let url = LdapUrl::parse(text).ok()?;
        if url.scheme != UrlScheme::Ldap || !url.host.is_empty() || url.attributes.len() > 1 {
            return None;
        }
        let values_of = url.attributes.first().map(|name| schema.describe(name)).transpose().ok()?;
        let filter = url.filter.map_or(BoundFilter::True, |filter| schema.bind_filter(filter.as_filter()));
        let mut depends: Vec<AttributeDescription> = values_of.iter().cloned().collect();
        let depends = name_attributes(&filter, &mut depends).then_some(depends);
        Some(Self {
            base: schema.parse_dn(&url.dn).ok()?,
            scope: url.scope.unwrap_or(Scope::Base),
            filter,
            values_of,
            depends,
        })
    }

    /// Whether an entry with these changes may make other members than before.
    pub(super) fn may_change(&self, schema: &Schema, changed: &[AttributeDescription]) -> bool {
        self.depends.as_ref().is_none_or(|depends| {
            changed.iter().any(|own| depends.iter().any(|other| own.is_subdescription_of(schema, other)))
        })
    }
}

/// Collects the attributes of a filter; false if it may ask of others, too.
fn name_attributes(filter: &BoundFilter, into: &mut Vec<AttributeDescription>) -> bool {
    let description = match filter {
        BoundFilter::True | BoundFilter::False | BoundFilter::Undefined => return true,
        BoundFilter::And(all) | BoundFilter::Or(all) => {
            return all.iter().all(|one| name_attributes(one, into));
        }
        BoundFilter::Not(one) => return name_attributes(one, into),
        BoundFilter::Present(description) => Some(description),
        BoundFilter::Equality(one)
        | BoundFilter::Approx(one)
        | BoundFilter::GreaterOrEqual(one)
        | BoundFilter::LessOrEqual(one) => Some(&one.description),
        BoundFilter::Substrings(one) => Some(&one.description),
        BoundFilter::Extensible(one) => one.description.as_ref(),
    };
    into.extend(description.cloned());
    description.is_some()
}
