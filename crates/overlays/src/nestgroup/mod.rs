//! The nested group overlay (slapo-nestgroup(5)): members of groups that are members themselves, and the groups that an
//! entry's groups are in, in answers and in filters.
//!
//! Groups lie below the configured bases. Each step is a look-up in the equality index of the member attribute, or of one
//! group by its name; a group is looked at once, so that circles end. All is found with the requester's rights.

mod config;
mod nested;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};

use larix_engine::index::Kinds;
use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders, StoredEntry};
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::shown::{ShownEntries, ShownEntry, ShownRequest};
use larix_engine::overlay::{Descriptor, Failure, Interests, Overlay, OverlayDirective};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use nested::Nested;

pub static DESCRIPTOR: Descriptor = Descriptor::new("nestgroup", "olcNestGroupConfig", config::build)
    .directives(&[
        OverlayDirective::whole("nestgroup-member", "olcNestGroupMember").checked(config::check_attribute),
        OverlayDirective::whole("nestgroup-memberof", "olcNestGroupMemberOf")
            .checked(config::check_attribute),
        OverlayDirective::whole("nestgroup-base", "olcNestGroupBase")
            .with_blanks()
            .many()
            .checked(config::check_base),
        OverlayDirective::each("nestgroup-flags", "olcNestGroupFlags").checked(config::check_flags),
    ]);

/// The overlay on one database.
#[derive(Debug)]
pub struct NestGroup {
    member: AttributeDescription,
    member_of: AttributeDescription,
    bases: Vec<NormalDn>,
    member_flags: NestGroupFlags,
    member_of_flags: NestGroupFlags,
    nested: Nested,
}

/// `nestgroup-flags` of one attribute.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct NestGroupFlags {
    values: bool,
    filter: bool,
}

impl NestGroupFlags {
    /// Filters do not see what answers have.
    fn is_for_answers_alone(self) -> bool {
        self.values && !self.filter
    }
}

impl Overlay for NestGroup {
    fn name(&self) -> &'static str {
        "nestgroup"
    }

    fn interests(&self) -> Interests {
        let (member, member_of) = (self.member_flags, self.member_of_flags);
        let mut interests = Interests::NONE;
        if member.filter || member_of.filter {
            interests |= Interests::COMPUTE;
        }
        if member.is_for_answers_alone() || member_of.is_for_answers_alone() {
            interests |= Interests::SHOW;
        }
        interests
    }

    /// Each step is a look-up.
    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        let mut looked_up = Vec::new();
        if !self.interests().is_empty() {
            looked_up.push(&self.member);
        }
        if self.member_of_flags.filter {
            looked_up.push(&self.member_of);
        }
        looked_up.into_iter().map(|attribute| (attribute.clone(), Kinds::EQUALITY)).collect()
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        self.interests().has(Interests::COMPUTE).then_some(self)
    }

    fn shown(&self) -> Option<&dyn ShownEntries> {
        self.interests().has(Interests::SHOW).then_some(self)
    }
}

impl NestGroup {
    fn flags(&self, attribute: &AttributeDescription) -> NestGroupFlags {
        if *attribute == self.member {
            self.member_flags
        } else if *attribute == self.member_of {
            self.member_of_flags
        } else {
            NestGroupFlags::default()
        }
    }

    fn is_within_base(&self, dn: &NormalDn) -> bool {
        self.bases.iter().any(|base| dn.is_within(base))
    }

    /// Groups below the bases that have the name as a member.
    fn parents(&self, within: &ComputedIn<'_>, dn: &NormalDn) -> Result<Vec<(NormalDn, String)>, Failure> {
        let mut parents = Vec::new();
        let Some(filter) = equals(within.schema, &self.member, dn) else { return Ok(parents) };
        for base in &self.bases {
            let query = InternalSearch::new(base, Scope::Subtree, &filter).of(within.whose());
            within.entries.search(&query, &mut |found| {
                parents.push((found.dn()?.clone(), found.shown_dn()?));
                Ok(true)
            })?;
        }
        Ok(parents)
    }

    /// The members that a group names.
    fn children(
        &self,
        within: &ComputedIn<'_>,
        group: &NormalDn,
    ) -> Result<Vec<(NormalDn, String)>, Failure> {
        let mut children = Vec::new();
        let query = InternalSearch::new(group, Scope::Base, &BoundFilter::True).of(within.whose());
        within.entries.search(&query, &mut |found| {
            found.visit_readable(&self.member, &mut |value| {
                children.extend(name(within.schema, value));
                true
            })?;
            Ok(false)
        })?;
        Ok(children)
    }

    /// Values beside those that the entry has already; nothing for one that has none.
    fn visit_values(
        &self,
        within: &ComputedIn<'_>,
        entry: &dyn StoredEntry,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut own: Vec<NormalDn> = Vec::new();
        entry.source().visit_exact(attribute, &mut |value| {
            own.extend(name(within.schema, value).map(|(dn, _)| dn));
            true
        })?;
        if *attribute == self.member {
            self.visit_members(within, (entry, own), visit)
        } else {
            self.visit_parents(within, (entry, own), visit)
        }
    }

    /// Whether the requester may search for a value that the entry has itself: what rules hide leads nowhere.
    fn may_follow(
        within: &ComputedIn<'_>,
        entry: &dyn StoredEntry,
        attribute: &AttributeDescription,
        dn: &NormalDn,
    ) -> Result<bool, Failure> {
        if within.requester.is_none_or(|requester| within.entries.is_root(requester)) {
            return Ok(true);
        }
        match equals(within.schema, attribute, dn) {
            Some(filter) => Ok(entry.matches(&filter)?),
            None => Ok(false),
        }
    }

    /// Members of groups among the members, and of groups among these, in slapd's order.
    fn visit_members(
        &self,
        within: &ComputedIn<'_>,
        (entry, own): (&dyn StoredEntry, Vec<NormalDn>),
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut seen: HashSet<NormalDn> = own.iter().cloned().collect();
        let mut done: HashSet<NormalDn> = HashSet::new();
        for member in own {
            let (mut round, mut is_own) = (vec![member], true);
            while !round.is_empty() {
                let mut next = Vec::new();
                // What was found last comes first.
                for group in round.into_iter().rev() {
                    if !self.is_within_base(&group) || !done.insert(group.clone()) {
                        continue;
                    }
                    let children = self.children(within, &group)?;
                    // Most members are no groups: only where one leads somewhere are the rules asked.
                    if is_own
                        && !children.is_empty()
                        && !Self::may_follow(within, entry, &self.member, &group)?
                    {
                        // Another member may lead to it.
                        done.remove(&group);
                        continue;
                    }
                    for (dn, shown) in children {
                        if seen.insert(dn.clone()) && !visit(shown.as_bytes()) {
                            return Ok(());
                        }
                        next.push(dn);
                    }
                }
                (round, is_own) = (next, false);
            }
        }
        Ok(())
    }

    /// Groups that have the groups as members, and groups that have these, with short names first.
    fn visit_parents(
        &self,
        within: &ComputedIn<'_>,
        (entry, own): (&dyn StoredEntry, Vec<NormalDn>),
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut seen: HashSet<NormalDn> = own.iter().cloned().collect();
        let mut own_left = own.len();
        let mut todo: VecDeque<NormalDn> = own.into();
        let mut found: Vec<(NormalDn, String)> = Vec::new();
        while let Some(group) = todo.pop_front() {
            let parents = self.parents(within, &group)?;
            let is_own = own_left > 0;
            own_left = own_left.saturating_sub(1);
            if is_own && !parents.is_empty() && !Self::may_follow(within, entry, &self.member_of, &group)? {
                continue;
            }
            for (dn, shown) in parents {
                if seen.insert(dn.clone()) {
                    todo.push_back(dn.clone());
                    found.push((dn, shown));
                }
            }
        }
        found.sort_by(|(a, _), (b, _)| (a.as_str().len(), a.as_str()).cmp(&(b.as_str().len(), b.as_str())));
        for (_, shown) in found {
            if !visit(shown.as_bytes()) {
                break;
            }
        }
        Ok(())
    }

    /// The members of a group that are within the bases, as far as the requester may read them.
    fn inner_readable(&self, within: &ComputedIn<'_>, group: &NormalDn) -> Result<Vec<NormalDn>, Failure> {
        let inner = self.inner(within, group)?;
        let reads_all = within.requester.is_none_or(|requester| within.entries.is_root(requester));
        if inner.is_empty() || reads_all {
            return Ok(inner.to_vec());
        }
        let children = self.children(within, group)?.into_iter().map(|(dn, _)| dn);
        Ok(children.filter(|dn| self.is_within_base(dn)).collect())
    }

    /// The names from which the attribute leads to `dn` through groups, without itself.
    fn reaching(
        &self,
        within: &ComputedIn<'_>,
        attribute: &AttributeDescription,
        dn: NormalDn,
    ) -> Result<HashSet<NormalDn>, Failure> {
        let mut all = HashSet::new();
        let mut todo = VecDeque::from([dn]);
        while let Some(dn) = todo.pop_front() {
            let next: Vec<NormalDn> = if *attribute == self.member {
                self.parents(within, &dn)?.into_iter().map(|(dn, _)| dn).collect()
            } else {
                self.inner_readable(within, &dn)?
            };
            for dn in next {
                if all.insert(dn.clone()) {
                    todo.push_back(dn);
                }
            }
        }
        Ok(all)
    }
}

impl ComputedAttributes for NestGroup {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        let both = [&self.member, &self.member_of];
        both.into_iter().filter(|attribute| self.flags(attribute).filter).cloned().collect()
    }

    fn is_answered(&self, attribute: &AttributeDescription) -> bool {
        self.flags(attribute).values
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        self.visit_values(&of.within(), of.entry, attribute, visit)
    }

    fn has_value(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<bool>, Failure> {
        let Ok(normal) = std::str::from_utf8(normal) else { return Ok(None) };
        let target = NormalDn::from_normal(normal);
        if *attribute != self.member_of {
            return Ok(None);
        }
        if !self.is_within_base(&target) {
            return Ok(Some(false));
        }
        let leading = self.reaching(&of.within(), attribute, target)?;
        let mut through: Vec<NormalDn> = Vec::new();
        if !leading.is_empty() {
            of.entry.source().visit_exact(attribute, &mut |value| {
                let own = name(of.schema, value).map(|(dn, _)| dn);
                through.extend(own.filter(|dn| leading.contains(dn)));
                true
            })?;
        }
        for own in through {
            if Self::may_follow(&of.within(), of.entry, attribute, &own)? {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        attribute: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        let Ok(normal) = std::str::from_utf8(normal) else { return Ok(None) };
        let (root, target) = (NormalDn::root(), NormalDn::from_normal(normal));
        let mut ids = Vec::new();
        if *attribute == self.member_of && !self.is_within_base(&target) {
            // No entry has it through others.
            return Ok(Some(Holders { ids, exact: true }));
        }
        for dn in self.reaching(within, attribute, target)? {
            let Some(filter) = equals(within.schema, attribute, &dn) else { return Ok(None) };
            let query = InternalSearch::new(&root, Scope::Subtree, &filter);
            within.entries.search(&query, &mut |found| {
                ids.push(found.id().0);
                Ok(true)
            })?;
        }
        Ok(Some(Holders { ids, exact: true }))
    }
}

impl ShownEntries for NestGroup {
    fn wants(&self, request: &ShownRequest<'_>) -> bool {
        !request.controls.manage_dsa_it && !request.compares
    }

    fn concerns(&self, entry: &dyn StoredEntry, _: &Schema) -> Result<bool, Failure> {
        let mut any = false;
        for attribute in [&self.member, &self.member_of] {
            if self.flags(attribute).is_for_answers_alone() {
                entry.source().visit_exact(attribute, &mut |_| {
                    any = true;
                    false
                })?;
            }
        }
        Ok(any)
    }

    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure> {
        let within = shown.within();
        for attribute in [&self.member, &self.member_of] {
            if !self.flags(attribute).is_for_answers_alone() || !shown.asks_for(attribute) {
                continue;
            }
            let mut values: Vec<Box<[u8]>> = Vec::new();
            self.visit_values(&within, shown.entry, attribute, &mut |value| {
                values.push(value.into());
                true
            })?;
            shown.add(attribute, values)?;
        }
        Ok(())
    }
}

/// A name, in its normal form and as it is shown.
fn name(schema: &Schema, value: &[u8]) -> Option<(NormalDn, String)> {
    let text = std::str::from_utf8(value).ok()?;
    Some((schema.parse_dn(text).ok()?, text.to_owned()))
}

fn equals(schema: &Schema, attribute: &AttributeDescription, dn: &NormalDn) -> Option<BoundFilter> {
    schema.bind_equality(attribute, dn.as_str().as_bytes()).ok().map(BoundFilter::Equality)
}
