//! Values that several entries have already.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use larix_engine::Fault;
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_engine::overlay::{Entries, Failure, Violation};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::{Area, Domain, Unique};

/// Entries that are named for one value; the rest is counted.
const NAMED_MAX: usize = 10;

/// Looks at a value by the equality key of its attribute.
type VisitKey<'v> = dyn FnMut(&dyn FoundEntry, &AttributeDescription, &[u8]) -> Result<(), Fault> + 'v;

/// Who has a value: how many, and the names of some.
#[derive(Default)]
struct Holders {
    count: usize,
    named: Vec<String>,
}

impl Unique {
    /// Reports values of each domain that more than one entry has. Goes over the entries of a domain twice; memory: eight bytes for each
    /// value, and the keys of those that several entries have.
    pub(super) fn report_shared(
        &self,
        entries: &dyn Entries,
        schema: &Schema,
        report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        for domain in &self.settings.domains {
            for area in &domain.areas {
                self.report_area((domain, area), entries, schema, report)?;
            }
        }
        Ok(())
    }

    fn report_area(
        &self,
        place: (&Domain, &Area),
        entries: &dyn Entries,
        schema: &Schema,
        report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        let hasher = RandomState::new();
        let (mut seen, mut twice) = (HashSet::new(), HashSet::new());
        self.visit_keys(place, entries, schema, &mut |_, description, key| {
            let hash = hasher.hash_one((description, key));
            if !seen.insert(hash) {
                twice.insert(hash);
            }
            Ok(())
        })?;
        drop(seen);
        if twice.is_empty() {
            return Ok(());
        }
        let mut holders: BTreeMap<(AttributeDescription, Vec<u8>), Holders> = BTreeMap::new();
        self.visit_keys(place, entries, schema, &mut |found, description, key| {
            if twice.contains(&hasher.hash_one((description, key))) {
                let holders = holders.entry((description.clone(), key.to_vec())).or_default();
                holders.count += 1;
                if holders.named.len() < NAMED_MAX {
                    holders.named.push(found.shown_dn()?);
                }
            }
            Ok(())
        })?;
        for ((description, _), Holders { count, named }) in holders {
            let Some((dn, others)) = named.split_first().filter(|_| count > 1) else { continue };
            let mut what = format!("unique: a value of {} is also in", description.to_text(schema));
            others.iter().for_each(|other| what += &format!(" \"{other}\""));
            if count > named.len() {
                what += &format!(" and {} more entries", count - named.len());
            }
            report(Violation { dn: dn.clone(), what });
        }
        Ok(())
    }

    /// Calls `visit` with each value that the area is about.
    fn visit_keys(
        &self,
        (domain, area): (&Domain, &Area),
        entries: &dyn Entries,
        schema: &Schema,
        visit: &mut VisitKey<'_>,
    ) -> Result<(), Failure> {
        let root = NormalDn::root();
        let base = match (&area.base, area.scope) {
            (Some(base), _) => base,
            (None, Scope::Subtree | Scope::Children) => &root,
            (None, Scope::OneLevel | Scope::Base) => &self.suffix,
        };
        let all = BoundFilter::And(Vec::new());
        let filter = area.filter.as_ref().map_or(&all, |(filter, _)| filter);
        let query = InternalSearch::new(base, area.scope, filter);
        let mut key = Vec::new();
        entries.search(&query, &mut |found| {
            for attribute in found.owned()?.attributes {
                let description = attribute.description;
                let Some(rule) = schema.attribute(description.attribute).equality else { continue };
                if !domain.covers(schema, area, &description) {
                    continue;
                }
                let mut result = Ok(());
                found.visit_readable(&description, &mut |value| {
                    key.clear();
                    if rule.normalize_value(schema, value, &mut key).is_ok() {
                        result = visit(found, &description, &key);
                    }
                    result.is_ok()
                })?;
                result?;
            }
            Ok(true)
        })?;
        Ok(())
    }
}
