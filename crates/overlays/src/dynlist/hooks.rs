//! The overlay's hooks: attributes that are computed, and what is added to answers.

use std::collections::HashSet;

use larix_engine::Fault;
use larix_engine::overlay::Failure;
use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders, StoredEntry};
use larix_engine::overlay::shown::{ShownAttribute, ShownEntries, ShownEntry, ShownRequest};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::groups::{Candidate, Question};
use super::{AttributeSet, DynList, Map};

impl DynList {
    fn group_sets(&self) -> impl Iterator<Item = (&AttributeSet, &Map)> {
        self.sets.iter().filter_map(|set| Some((set, set.group()?)))
    }

    fn lists(&self) -> impl Iterator<Item = &AttributeSet> {
        self.sets.iter().filter(|set| set.group().is_none())
    }

    fn tells_groups_by(&self, attribute: &AttributeDescription) -> bool {
        self.group_sets().any(|(_, map)| map.tells_by(attribute))
    }

    fn has_members_in(&self, attribute: &AttributeDescription) -> bool {
        self.group_sets().any(|(_, map)| map.attribute == *attribute)
    }

    fn may_have_members(&self, entry: &dyn StoredEntry) -> Result<bool, Fault> {
        for (set, _) in self.group_sets() {
            if set.of_groups.are_had_by(entry.source())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn maps_to(&self, attribute: &AttributeDescription) -> bool {
        self.lists().flat_map(|set| &set.maps).any(|map| map.target() == attribute)
    }

    /// Groups of an entry, beside those that its stored values name.
    fn visit_groups(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let question = Question::new(self, of.within());
        let candidate = Candidate { dn: of.entry.dn()?, entry: Some(of.entry) };
        let groups = question.groups_of(candidate, &|map| map.tells_by(attribute))?;
        if groups.is_empty() {
            return Ok(());
        }
        let mut stored: HashSet<NormalDn> = HashSet::new();
        of.entry.source().visit_exact(attribute, &mut |value| {
            let text = std::str::from_utf8(value).ok();
            stored.extend(text.and_then(|text| of.schema.parse_dn(text).ok()));
            true
        })?;
        for group in groups {
            if !stored.contains(&group.dn) && !visit(group.shown.as_bytes()) {
                break;
            }
        }
        Ok(())
    }

    /// Mapped attributes of a list.
    fn visit_mapped(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let maps_to = |set: &&AttributeSet| set.maps.iter().any(|map| map.target() == attribute);
        for set in self.lists().filter(maps_to) {
            if !set.is_about(of.entry)? {
                continue;
            }
            let mut seen: HashSet<Box<[u8]>> = HashSet::new();
            of.entry.source().visit_exact(attribute, &mut |value| {
                seen.insert(value.into());
                true
            })?;
            let single = of.schema.attribute(attribute.attribute).single_value;
            let wanted = |found: &AttributeDescription, name: &AttributeDescription| {
                name == attribute && set.is_mapped(found)
            };
            set.expand(&of.within(), of.entry, &wanted, &mut |_, value| {
                if single && !seen.is_empty() {
                    return false;
                }
                !seen.insert(value.into()) || visit(value)
            })?;
        }
        Ok(())
    }
}

impl ComputedAttributes for DynList {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        let mut all: Vec<AttributeDescription> = Vec::new();
        let of_groups = self.group_sets().flat_map(|(_, map)| {
            let member_of = map.member_of.as_ref().map(|own| &own.attribute);
            std::iter::once(&map.attribute).chain(member_of)
        });
        let of_lists = self.lists().flat_map(|set| &set.maps).map(Map::target);
        for attribute in of_groups.chain(of_lists) {
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
        let mut more = true;
        let mut visit = |value: &[u8]| {
            more = more && visit(value);
            more
        };
        if self.has_members_in(attribute) {
            let mut question: Option<Question<'_>> = None;
            for (set, map) in self.group_sets().filter(|(_, map)| map.attribute == *attribute) {
                // Groups are few among the entries that are asked.
                if !set.of_groups.are_had_by(of.entry.source())? {
                    continue;
                }
                let question = match &mut question {
                    Some(question) => question,
                    none => none.insert(Question::new(self, of.within())),
                };
                question.visit_members(of, set, map, &mut visit)?;
            }
        }
        if self.tells_groups_by(attribute) {
            self.visit_groups(of, attribute, &mut visit)?;
        }
        if self.maps_to(attribute) {
            self.visit_mapped(of, attribute, &mut visit)?;
        }
        Ok(())
    }

    fn has_value(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<bool>, Failure> {
        let tells = self.tells_groups_by(attribute);
        if self.maps_to(attribute) || !(tells || self.has_members_in(attribute)) {
            return Ok(None);
        }
        let Ok(normal) = std::str::from_utf8(normal) else { return Ok(None) };
        let (other, question) = (NormalDn::from_normal(normal), Question::new(self, of.within()));
        let own = of.entry.dn()?;
        if tells && let Some(group) = question.named(&other)? {
            let candidate = Candidate { dn: own, entry: Some(of.entry) };
            let wanted = |map: &Map| map.tells_by(attribute);
            if question.has(&group, candidate, &wanted)? {
                return Ok(Some(true));
            }
        }
        // Groups are few among the entries that are asked.
        if self.has_members_in(attribute)
            && self.may_have_members(of.entry)?
            && let Some(group) = question.named(own)?
        {
            let candidate = Candidate { dn: &other, entry: None };
            return Ok(Some(question.has(&group, candidate, &|map| map.attribute == *attribute)?));
        }
        Ok(Some(false))
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        attribute: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        if self.maps_to(attribute) {
            return Ok(None);
        }
        let Ok(normal) = std::str::from_utf8(normal) else { return Ok(None) };
        let (dn, question) = (NormalDn::from_normal(normal), Question::new(self, *within));
        let mut ids = Vec::new();
        if self.tells_groups_by(attribute)
            && let Some(group) = question.named(&dn)?
            && question.tells_by(&group, attribute)
        {
            ids.extend(question.holders(&group)?);
        }
        if self.has_members_in(attribute) {
            let candidate = Candidate { dn: &dn, entry: None };
            let groups = question.groups_of(candidate, &|map| map.attribute == *attribute)?;
            ids.extend(groups.iter().map(|group| group.id.0));
        }
        Ok(Some(Holders { ids, exact: true }))
    }
}

impl ShownEntries for DynList {
    fn wants(&self, request: &ShownRequest<'_>) -> bool {
        let has_any = self.simple || request.compares || self.lists().next().is_some();
        has_any && !request.controls.manage_dsa_it
    }

    fn concerns(&self, entry: &dyn StoredEntry, _: &Schema) -> Result<bool, Failure> {
        for set in &self.sets {
            // Groups are asked about by who compares: one without members has the attribute all the same.
            if set.is_about(entry)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure> {
        let within = shown.within();
        let of = ComputedOf {
            entry: shown.entry,
            schema: shown.schema,
            entries: shown.entries,
            requester: shown.requester,
        };
        for set in &self.sets {
            if !set.is_about(shown.entry)? {
                continue;
            }
            if let Some(map) = set.group() {
                if shown.asserted.is_some() && shown.asks_for(&map.attribute) {
                    let description = map.attribute.clone();
                    shown.attributes.push(ShownAttribute { description, values: Vec::new() });
                }
                if !self.simple {
                    continue;
                }
                let mut values: Vec<Box<[u8]>> = Vec::new();
                if shown.asks_for(&map.attribute) {
                    let question = Question::new(self, within);
                    question.visit_members(&of, set, map, &mut |value| {
                        values.push(value.into());
                        true
                    })?;
                }
                shown.add(&map.attribute, values)?;
                continue;
            }
            let mut taken: Vec<(AttributeDescription, Vec<Box<[u8]>>)> = Vec::new();
            let request = &*shown;
            let wanted = |found: &AttributeDescription, name: &AttributeDescription| {
                request.asks_for(name) && (self.simple || !set.is_mapped(found))
            };
            set.expand(&within, shown.entry, &wanted, &mut |name, value| {
                match taken.iter_mut().find(|(other, _)| other == name) {
                    Some((_, values)) => values.push(value.into()),
                    None => taken.push((name.clone(), vec![value.into()])),
                }
                true
            })?;
            for (name, mut values) in taken {
                if shown.schema.attribute(name.attribute).single_value {
                    if has_any(shown, &name)? {
                        continue;
                    }
                    values.truncate(1);
                }
                shown.add(&name, values)?;
            }
        }
        Ok(())
    }
}

/// Whether the entry has the attribute, without regard to access.
fn has_any(shown: &ShownEntry<'_>, name: &AttributeDescription) -> Result<bool, Failure> {
    let mut any = shown.attributes.iter().any(|own| own.description == *name);
    shown.entry.source().visit_exact(name, &mut |_| {
        any = true;
        false
    })?;
    Ok(any)
}
