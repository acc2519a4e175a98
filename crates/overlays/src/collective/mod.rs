//! Collective attributes (RFC 3671): entries have the values that subentries give to the collections that they are in.
//!
//! A subentry of the class collectiveAttributeSubentry says by its subtreeSpecification (RFC 3672 section 2.1) which entries
//! at and below its administrative point, which is its superior, are in its collection. Who may not read the subentry's
//! attribute is given nothing. Entries have no administrativeRole here, as in slapd: all areas are inner ones, and what
//! subentries above give counts as well.

mod config;
mod subtree;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larix_engine::Fault;
use larix_engine::entry::EntrySource;
use larix_engine::index::Kinds;
use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders};
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use larix_engine::overlay::{Descriptor, Failure, Interests, Overlay};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, ObjectClassId, Schema};

use subtree::Subtree;

pub static DESCRIPTOR: Descriptor = Descriptor::new("collective", "olcOverlayConfig", config::build)
    .once()
    .shows(&["collectiveAttributeSubentries", "collectiveExclusions", "subtreeSpecification"]);

/// Entries of a collection that are listed for a filter; where there are more it looks at all entries.
const HOLDERS_MAX: u64 = 1_000;

/// excludeAllCollectiveAttributes (RFC 3671 section 2.3).
const EXCLUDE_ALL: &str = "2.5.18.0";

/// The overlay on one database.
#[derive(Debug)]
pub struct Collective {
    names: Names,
    /// Types that are collective.
    attributes: Vec<AttributeDescription>,
    /// The collections as of the latest commit that was looked at.
    cached: ArcSwapOption<CachedCollections>,
}

/// What the system schema calls what.
#[derive(Debug)]
struct Names {
    object_class: AttributeDescription,
    specification: AttributeDescription,
    subentries: AttributeDescription,
    exclusions: AttributeDescription,
    subentry: ObjectClassId,
    collective_subentry: ObjectClassId,
}

/// The collections as of one commit.
#[derive(Debug, Default)]
struct CachedCollections {
    commit: Option<u64>,
    collections: Vec<Collection>,
}

#[derive(Debug)]
struct Collection {
    /// The subentry.
    dn: NormalDn,
    shown: String,
    subtree: Subtree,
    /// What it gives.
    attributes: Vec<AttributeDescription>,
}

impl Overlay for Collective {
    fn name(&self) -> &'static str {
        "collective"
    }

    fn interests(&self) -> Interests {
        Interests::COMPUTE
    }

    /// Subentries are found by their class.
    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        vec![(self.names.object_class.clone(), Kinds::EQUALITY)]
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        Some(self)
    }
}

impl Collective {
    fn cached(&self, within: &ComputedIn<'_>) -> Result<Arc<CachedCollections>, Failure> {
        let commit = within.entries.commit();
        let is_it = |cached: &Arc<CachedCollections>| commit.is_some() && cached.commit == commit;
        if let Some(cached) = self.cached.load_full().filter(is_it) {
            return Ok(cached);
        }
        let mut cached = CachedCollections { commit, ..CachedCollections::default() };
        self.find_collections(within, &mut cached)?;
        let cached = Arc::new(cached);
        // An older state that somebody still reads is not kept.
        if commit.is_some() && self.cached.load().as_ref().is_none_or(|before| before.commit < commit) {
            self.cached.store(Some(Arc::clone(&cached)));
        }
        Ok(cached)
    }

    fn find_collections(
        &self,
        within: &ComputedIn<'_>,
        cached: &mut CachedCollections,
    ) -> Result<(), Failure> {
        let (schema, root) = (within.schema, NormalDn::root());
        let oid = schema.class(self.names.collective_subentry).oid.as_bytes();
        let Ok(class) = schema.bind_equality(&self.names.object_class, oid) else { return Ok(()) };
        let filter = BoundFilter::Equality(class);
        within.entries.search(&InternalSearch::new(&root, Scope::Subtree, &filter), &mut |found| {
            let (dn, source) = (found.dn()?, found.source());
            let Some(point) = dn.parent() else { return Ok(true) };
            let mut subtree = None;
            source.visit_exact(&self.names.specification, &mut |value| {
                subtree = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| Subtree::parse(schema, &point, text).ok());
                false
            })?;
            // Nobody knows what another specification means.
            let Some(subtree) = subtree else { return Ok(true) };
            let mut attributes = Vec::new();
            source.descriptions(&mut |description| {
                attributes.extend(self.attributes.contains(description).then(|| description.clone()));
            })?;
            let (dn, shown) = (dn.clone(), found.shown_dn()?);
            cached.collections.push(Collection { dn, shown, subtree, attributes });
            Ok(true)
        })?;
        Ok(())
    }

    /// Whether an entry is in a collection, as far as the attribute is concerned.
    fn is_in(
        &self,
        schema: &Schema,
        collection: &Collection,
        attribute: &AttributeDescription,
        (dn, entry): (&NormalDn, &dyn EntrySource),
    ) -> Result<bool, Fault> {
        if !collection.subtree.has_name(dn) {
            return Ok(false);
        }
        let mut classes: Vec<ObjectClassId> = Vec::new();
        entry.visit_exact(&self.names.object_class, &mut |value| {
            classes.extend(std::str::from_utf8(value).ok().and_then(|name| schema.object_class_id(name)));
            true
        })?;
        let is_subentry = classes.iter().any(|class| schema.is_subclass(*class, self.names.subentry));
        if is_subentry || !collection.subtree.has_classes(schema, &classes) {
            return Ok(false);
        }
        let mut excluded = false;
        entry.visit_exact(&self.names.exclusions, &mut |value| {
            let text = std::str::from_utf8(value).unwrap_or_default();
            let is_all = text == EXCLUDE_ALL || text.eq_ignore_ascii_case("excludeAllCollectiveAttributes");
            excluded = is_all || schema.describe(text).is_ok_and(|excluded| excluded == *attribute);
            !excluded
        })?;
        Ok(!excluded)
    }

    fn gives(&self, collection: &Collection, attribute: &AttributeDescription) -> bool {
        *attribute == self.names.subentries || collection.attributes.contains(attribute)
    }

    /// Calls `visit` with what a collection gives and the requester may read, until it answers false. Answers false if it was
    /// stopped.
    fn visit_values(
        &self,
        within: &ComputedIn<'_>,
        collection: &Collection,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, Failure> {
        if !self.gives(collection, attribute) {
            return Ok(true);
        }
        let is_named = *attribute == self.names.subentries;
        let query = InternalSearch::new(&collection.dn, Scope::Base, &BoundFilter::True).of(within.whose());
        let mut more = true;
        within.entries.search(&query, &mut |found| {
            if is_named {
                more = visit(collection.shown.as_bytes());
                return Ok(false);
            }
            found.visit_readable(attribute, &mut |value| {
                more = more && visit(value);
                more
            })?;
            Ok(false)
        })?;
        Ok(more)
    }
}

impl ComputedAttributes for Collective {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        let mut all = self.attributes.clone();
        all.push(self.names.subentries.clone());
        all
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let within = of.within();
        let cached = self.cached(&within)?;
        let mut seen: HashSet<Box<[u8]>> = HashSet::new();
        for collection in &cached.collections {
            let entry = (of.entry.dn()?, of.entry.source());
            if !self.gives(collection, attribute) || !self.is_in(of.schema, collection, attribute, entry)? {
                continue;
            }
            let going = self.visit_values(&within, collection, attribute, &mut |value| {
                !seen.insert(value.into()) || visit(value)
            })?;
            if !going {
                break;
            }
        }
        Ok(())
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        attribute: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        let schema = within.schema;
        let Some(rule) = schema.attribute(attribute.attribute).equality else { return Ok(None) };
        let cached = self.cached(within)?;
        let mut ids = Vec::new();
        for collection in &cached.collections {
            let (mut gives_it, mut key) = (false, Vec::new());
            self.visit_values(within, collection, attribute, &mut |value| {
                key.clear();
                gives_it = rule.normalize_value(schema, value, &mut key).is_ok() && key == normal;
                !gives_it
            })?;
            if !gives_it {
                continue;
            }
            let limits = InternalLimits { entries: HOLDERS_MAX, ..InternalLimits::default() };
            let base = collection.subtree.base();
            let query = InternalSearch::new(base, Scope::Subtree, &BoundFilter::True).within(limits);
            let searched = within.entries.search(&query, &mut |found| {
                let entry = (found.dn()?, found.source());
                if self.is_in(schema, collection, attribute, entry)? {
                    ids.push(found.id().0);
                }
                Ok(true)
            })?;
            if !matches!(searched.ended, SearchEnd::Complete | SearchEnd::NoBase) {
                return Ok(None);
            }
        }
        Ok(Some(Holders { ids, exact: true }))
    }
}
