//! The collective attributes overlay (slapo-collect(5)): entries below an ancestor have the values of its attributes.
//!
//! As RFC 3671 has it, collective values are seen by filters, compares and access rules, too; slapd adds them to answers
//! alone. A requester who may not read the ancestor's attribute does not get them.

mod config;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use larix_engine::Fault;
use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders};
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use larix_engine::overlay::{
    Additions, Descriptor, Failure, Interests, Overlay, OverlayDirective, PendingChange, PreparedChange,
    Refusal,
};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

pub static DESCRIPTOR: Descriptor = Descriptor::new("collect", "olcCollectConfig", config::build)
    .once()
    .directives(&[OverlayDirective::words("collectinfo", "olcCollectInfo")
        .many()
        .arguments(2, 2)
        .checked(config::check)]);

/// Entries below an ancestor that are listed for a filter; where there are more it looks at all entries.
const HOLDERS_MAX: u64 = 1_000;

/// The overlay on one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Those with the longest names first.
    collections: Vec<Collection>,
}

/// `collectinfo`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Collection {
    ancestor: NormalDn,
    attributes: Vec<AttributeDescription>,
}

impl Collection {
    fn has(&self, attribute: &AttributeDescription) -> bool {
        self.attributes.contains(attribute)
    }
}

impl Overlay for Collect {
    fn name(&self) -> &'static str {
        "collect"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE.and(Interests::COMPUTE)
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let PreparedChange::Modify { dn, mods } = change.operation else { return Ok(Additions::default()) };
        for collection in self.collections.iter().filter(|own| dn.is_descendant_of(&own.ancestor)) {
            if let Some(virtual_one) = mods.iter().find(|change| collection.has(&change.description)) {
                let name = virtual_one.description.to_text(change.schema);
                let text = format!("cannot change virtual attribute '{name}'");
                return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
            }
        }
        Ok(Additions::default())
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        Some(self)
    }
}

impl Collect {
    /// Ancestors of an entry of this name that lend it values of the attribute.
    fn of<'a>(
        &'a self,
        dn: &'a NormalDn,
        attribute: &'a AttributeDescription,
    ) -> impl Iterator<Item = &'a NormalDn> {
        let of =
            self.collections.iter().filter(|own| own.has(attribute) && dn.is_descendant_of(&own.ancestor));
        of.map(|own| &own.ancestor)
    }
}

/// Calls `visit` with the ancestor's values that the requester may read, until it answers false. Answers false if it was
/// stopped.
fn lent(
    within: &ComputedIn<'_>,
    ancestor: &NormalDn,
    attribute: &AttributeDescription,
    visit: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, Failure> {
    let query = InternalSearch::new(ancestor, Scope::Base, &BoundFilter::True).of(within.whose());
    let mut more = true;
    within.entries.search(&query, &mut |found| -> Result<bool, Fault> {
        found.visit_readable(attribute, &mut |value| {
            more = more && visit(value);
            more
        })?;
        Ok(false)
    })?;
    Ok(more)
}

impl ComputedAttributes for Collect {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        let mut all: Vec<AttributeDescription> = Vec::new();
        for attribute in self.collections.iter().flat_map(|own| &own.attributes) {
            if !all.contains(attribute) {
                all.push(attribute.clone());
            }
        }
        all
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let dn = of.entry.dn()?;
        let mut known: HashSet<Box<[u8]>> = HashSet::new();
        for (at, ancestor) in self.of(dn, attribute).enumerate() {
            if at == 0 {
                of.entry.source().visit_exact(attribute, &mut |value| {
                    known.insert(value.into());
                    true
                })?;
            }
            let going = lent(&of.within(), ancestor, attribute, &mut |value| {
                !known.insert(value.into()) || visit(value)
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
        let Some(rule) = within.schema.attribute(attribute.attribute).equality else { return Ok(None) };
        let mut ids = Vec::new();
        for collection in self.collections.iter().filter(|own| own.has(attribute)) {
            // What is above this database lends to all of it.
            if within.entries.id_of(&collection.ancestor)?.is_none() {
                if within.entries.exists(&collection.ancestor)? {
                    return Ok(None);
                }
                continue;
            }
            let (mut is_lent, mut key) = (false, Vec::new());
            lent(within, &collection.ancestor, attribute, &mut |value| {
                key.clear();
                is_lent = rule.normalize_value(within.schema, value, &mut key).is_ok() && key == normal;
                !is_lent
            })?;
            if is_lent {
                let below = InternalSearch::new(&collection.ancestor, Scope::Children, &BoundFilter::True);
                let limits = InternalLimits { entries: HOLDERS_MAX, ..InternalLimits::default() };
                let searched = within.entries.search(&below.within(limits), &mut |found| {
                    ids.push(found.id().0);
                    Ok(true)
                })?;
                if searched.ended != SearchEnd::Complete {
                    return Ok(None);
                }
            }
        }
        Ok(Some(Holders { ids, exact: true }))
    }
}
