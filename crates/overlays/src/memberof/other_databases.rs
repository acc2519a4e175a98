//! Groups of other databases. What is stored of memberOf names groups of the entry's own database, for no commit is common to two. The
//! groups of other databases that name the entry are looked up there, by the index of members, whenever somebody asks.

use std::fmt::Debug;

use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders};
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{BackLinkRule, Failure};
use larix_proto::{Dn, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

/// Groups of other databases under one rule.
#[derive(Debug)]
pub(super) struct OtherDatabaseGroups {
    rule: BackLinkRule,
    /// A suffix of each of the databases.
    suffixes: Vec<NormalDn>,
}

impl OtherDatabaseGroups {
    /// None where there is no other database.
    pub(super) fn new(rule: &BackLinkRule, suffixes: Vec<NormalDn>) -> Option<Self> {
        (!suffixes.is_empty()).then(|| Self { rule: rule.clone(), suffixes })
    }

    /// Matches groups.
    fn groups(&self, schema: &Schema) -> Option<BoundFilter> {
        let object_class = schema.describe("objectClass").ok()?;
        let class = schema.class(self.rule.class).oid.as_bytes();
        schema.bind_equality(&object_class, class).ok().map(BoundFilter::Equality)
    }

    /// Matches groups that have this member.
    fn groups_with(&self, schema: &Schema, member: &NormalDn) -> Option<BoundFilter> {
        let named = schema.bind_equality(&self.rule.forward, member.as_str().as_bytes()).ok()?;
        // The index of members leaves few of which the class is asked.
        Some(BoundFilter::And(vec![BoundFilter::Equality(named), self.groups(schema)?]))
    }

    /// Whether a name may be one of a group in another database.
    fn is_in_other(&self, within: &ComputedIn<'_>, group: &NormalDn) -> Result<bool, Failure> {
        let is_below = self.suffixes.iter().any(|suffix| group.is_within(suffix));
        Ok(is_below && within.entries.id_of(group)?.is_none())
    }
}

impl ComputedAttributes for OtherDatabaseGroups {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        vec![self.rule.back.clone()]
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        _: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let Some(filter) = self.groups_with(of.schema, of.entry.dn()?) else { return Ok(()) };
        let mut more = true;
        for suffix in &self.suffixes {
            let query = InternalSearch::new(suffix, Scope::Subtree, &filter).of_what_is_stored();
            of.entries.search(&query, &mut |group| {
                more = visit(group.shown_dn()?.as_bytes());
                Ok(more)
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn has_value(
        &self,
        of: &ComputedOf<'_>,
        _: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<bool>, Failure> {
        let Some(group) = named(normal) else { return Ok(Some(false)) };
        if !self.is_in_other(&of.within(), &group)? {
            return Ok(Some(false));
        }
        let Some(filter) = self.groups_with(of.schema, of.entry.dn()?) else { return Ok(Some(false)) };
        let query = InternalSearch::new(&group, Scope::Base, &filter).of_what_is_stored();
        Ok(Some(of.entries.finds_any(&query)?.entries > 0))
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        _: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        let mut holders = Holders { ids: Vec::new(), exact: true };
        let Some(group) = named(normal) else { return Ok(Some(holders)) };
        if !self.is_in_other(within, &group)? {
            return Ok(Some(holders));
        }
        let Some(filter) = self.groups(within.schema) else { return Ok(Some(holders)) };
        let mut members: Vec<NormalDn> = Vec::new();
        let query = InternalSearch::new(&group, Scope::Base, &filter).of_what_is_stored();
        within.entries.search(&query, &mut |found| {
            found.source().visit_exact(&self.rule.forward, &mut |value| {
                let text = std::str::from_utf8(value).ok();
                let name = text.and_then(|text| Dn::parse(text).ok());
                members.extend(name.and_then(|name| within.schema.normalize_dn(&name).ok()));
                true
            })?;
            Ok(true)
        })?;
        for member in members {
            holders.ids.extend(within.entries.id_of(&member)?.map(|id| id.0));
        }
        Ok(Some(holders))
    }
}

fn named(normal: &[u8]) -> Option<NormalDn> {
    std::str::from_utf8(normal).ok().map(NormalDn::from_normal)
}
