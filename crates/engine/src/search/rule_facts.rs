//! What access rules can see beside the entry they protect: other entries of its database, in the same state.

use std::cell::Cell;

use larix_schema::{AttributeDescription, BoundFilter, Match, NearestSuffix, NormalDn, Schema};
use larix_store::Snapshot;

use super::computed::{ComposedEntry, EntryIdentity, Sight};
use super::internal;
use crate::access::{AccessTarget, EntryFacts, EntrySearch, Item, Memo, Privilege, Reach, Subject};
use crate::budget::Meter;
use crate::database::View;
use crate::entry::{Entry, EntryAttribute, EntryId, EntrySource, Target};
use crate::fault::Fault;
use crate::filter::{Filter, FilterContext, unless_overdrawn, value_steps};
use crate::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use crate::tree;

/// What access rules may ask of an entry, stored or not, in a view.
pub(crate) struct RuleFacts<'a, V> {
    view: &'a View<'a, V>,
    dn: &'a NormalDn,
    entry: &'a dyn EntrySource,
    sight: Sight<'a>,
    failed: Cell<bool>,
    memo: Memo,
}

impl<'a, V: Snapshot> RuleFacts<'a, V> {
    pub(crate) fn new(
        view: &'a View<'a, V>,
        sight: Sight<'a>,
        dn: &'a NormalDn,
        entry: &'a dyn EntrySource,
    ) -> Self {
        Self { view, dn, entry, sight, failed: Cell::new(false), memo: Memo::default() }
    }

    /// Asks something of the entry's values, with those that are computed.
    pub(crate) fn with_source<T>(&self, ask: impl FnOnce(&dyn EntrySource) -> T) -> T {
        self.seen_in(self.sight, ask)
    }

    fn for_rule<T>(&self, ask: impl FnOnce(&dyn EntrySource) -> T) -> T {
        self.seen_in(self.sight.of_rules(), ask)
    }

    fn seen_in<T>(&self, sight: Sight<'_>, ask: impl FnOnce(&dyn EntrySource) -> T) -> T {
        if sight.computed.is_empty() {
            return ask(self.entry);
        }
        ask(&ComposedEntry { view: self.view, sight, entry: self, stored: self.entry })
    }

    fn or_failed<T>(&self, answer: Result<T, Fault>, otherwise: T) -> T {
        answer.unwrap_or_else(|fault| {
            if let (Fault::StepsSpent, Some(meter)) = (&fault, self.sight.meter) {
                meter.overdraw();
            }
            self.failed.set(true);
            otherwise
        })
    }
}

impl<V: Snapshot> EntryFacts for RuleFacts<'_, V> {
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.or_failed(self.for_rule(|entry| entry.visit_description(attribute, visit)), ());
    }

    fn visit_exact(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.or_failed(self.for_rule(|entry| entry.visit_exact(attribute, visit)), ());
    }

    fn matches(&self, filter: &BoundFilter) -> Match {
        let filter = Filter::new(&self.view.schema, &self.view.catalog, filter.clone());
        self.or_failed(self.for_rule(|entry| filter.matches(self, entry)), Match::Undefined)
    }

    fn has_dn(&self, schema: &Schema, attribute: &AttributeDescription, dn: &NormalDn) -> bool {
        let asked = (dn, self.sight.meter);
        self.or_failed(self.for_rule(|entry| has_dn(self.view, entry, schema, attribute, asked)), false)
    }

    fn with_entry(&self, dn: &NormalDn, read: &mut dyn FnMut(&dyn EntryFacts)) -> Reach {
        self.or_failed(with_entry(self.view, self.sight.of_rules(), dn, read), Reach::Elsewhere)
    }

    fn search(
        &self,
        request: &EntrySearch<'_>,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Reach {
        self.or_failed(search(self.view, self.sight.of_rules(), request, visit), Reach::Elsewhere)
    }

    fn charge(&self, steps: u64) -> bool {
        let is_paid = self.sight.meter.is_none_or(|meter| meter.take(steps));
        if !is_paid {
            self.failed.set(true);
        }
        is_paid
    }

    fn steps_left(&self) -> u64 {
        self.sight.meter.map_or(u64::MAX, Meter::remaining)
    }

    fn memo(&self) -> Option<&Memo> {
        Some(&self.memo)
    }

    fn failed(&self) -> bool {
        self.failed.get()
    }
}

impl<V: Snapshot> EntryIdentity for RuleFacts<'_, V> {
    fn id(&self) -> Option<EntryId> {
        self.view.resolve(self.dn).ok().flatten().and_then(|resolved| resolved.id)
    }

    fn name(&self) -> Result<&NormalDn, Fault> {
        Ok(self.dn)
    }

    fn copy(&self) -> Result<Entry, Fault> {
        let mut copy = Entry::new(self.dn.as_str());
        self.entry.descriptions(&mut |description| {
            copy.attributes.push(EntryAttribute::new(description.clone(), Vec::new()));
        })?;
        for attribute in &mut copy.attributes {
            self.entry.visit_exact(&attribute.description, &mut |value| {
                attribute.values.push(value.to_vec());
                true
            })?;
        }
        Ok(copy)
    }

    fn matches(
        &self,
        filter: &Filter,
        values: &dyn EntrySource,
        requester: Option<&Subject>,
    ) -> Result<bool, Fault> {
        Ok(match requester {
            Some(subject) => filter.matches(&FilterAccess { facts: self, subject }, values)?.is_true(),
            None => filter.matches(self, values)?.is_true(),
        })
    }
}

/// An identity asks whether a filter matches, and needs the privilege to search.
struct FilterAccess<'f, 'a, V> {
    facts: &'f RuleFacts<'a, V>,
    subject: &'f Subject,
}

impl<V: Snapshot> FilterContext for FilterAccess<'_, '_, V> {
    fn schema(&self) -> &Schema {
        self.facts.schema()
    }

    fn meter(&self) -> Option<&Meter> {
        self.facts.sight.meter
    }

    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault> {
        let target = AccessTarget { dn: self.facts.dn, entry: self.facts };
        let item = Item::Attribute { description, value };
        let sight = self.facts.sight;
        unless_overdrawn(sight.meter, sight.policy.check(self.subject, &target, item, Privilege::Search))
    }

    fn judges_values(&self, _: &AttributeDescription) -> Result<bool, Fault> {
        Ok(self.facts.sight.policy.asks_about_values())
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        self.facts.normal_dn()
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        FilterContext::has_subordinates(self.facts)
    }
}

/// Filters of access rules are evaluated without regard to access.
impl<V: Snapshot> FilterContext for RuleFacts<'_, V> {
    fn schema(&self) -> &Schema {
        &self.view.schema
    }

    fn meter(&self) -> Option<&Meter> {
        self.sight.meter
    }

    fn may_search(&self, _: &AttributeDescription, _: Option<&[u8]>) -> Result<bool, Fault> {
        Ok(true)
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        Ok(self.dn.clone())
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        // An entry that is to be added has no place yet, and slapd answers for the root of the tree then: true unless the
        // database is empty. Clients that were written against it are answered alike.
        let id = self.view.resolve(self.dn)?.and_then(|resolved| resolved.id).unwrap_or(EntryId::ROOT);
        tree::has_children(self.view.snapshot, id)
    }

    fn may_search_all(&self) -> bool {
        true
    }
}

/// Whether the DN is a value of the attribute, without its subtypes. It costs steps of the meter.
pub(crate) fn has_dn<V: Snapshot>(
    view: &View<'_, V>,
    entry: &dyn EntrySource,
    schema: &Schema,
    attribute: &AttributeDescription,
    (dn, meter): (&NormalDn, Option<&Meter>),
) -> Result<bool, Fault> {
    let target = Target::new(schema, &view.catalog, attribute.clone());
    if let Some(member) = entry.large_member(&target, dn.as_str().as_bytes())? {
        return Ok(member);
    }
    let (mut found, mut spent) = (false, false);
    entry.visit_exact(attribute, &mut |value| {
        spent = !meter.is_none_or(|meter| meter.take(value_steps(value)));
        let value = std::str::from_utf8(value).unwrap_or_default();
        found = value == dn.as_str() || schema.parse_dn(value).is_ok_and(|value| value == *dn);
        !found && !spent
    })?;
    if spent { Err(Fault::StepsSpent) } else { Ok(found) }
}

/// Hands an entry of the view's database to `read`.
pub(crate) fn with_entry<V: Snapshot>(
    view: &View<'_, V>,
    sight: Sight<'_>,
    dn: &NormalDn,
    read: &mut dyn FnMut(&dyn EntryFacts),
) -> Result<Reach, Fault> {
    let Some(suffix_depth) = suffix_depth(view, dn) else { return Ok(Reach::Elsewhere) };
    let absent = Ok(Reach::Absent { suffix_depth });
    let Some(id) = view.resolve(dn)?.and_then(|resolved| resolved.id) else { return absent };
    let Some(record) = view.record(id)? else { return absent };
    let reader = view.reader(id, &record)?;
    read(&RuleFacts::new(view, sight, dn, &reader));
    Ok(Reach::Found)
}

/// Gives the wanted values of all entries that a search of the view's database finds.
pub(crate) fn search<V: Snapshot>(
    view: &View<'_, V>,
    sight: Sight<'_>,
    request: &EntrySearch<'_>,
    visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
) -> Result<Reach, Fault> {
    let Some(suffix_depth) = suffix_depth(view, request.base) else { return Ok(Reach::Elsewhere) };
    if view.resolve(request.base)?.and_then(|resolved| resolved.id).is_none() {
        return Ok(Reach::Absent { suffix_depth });
    }
    let filter = request.filter.map_or(BoundFilter::True, |filter| view.schema.bind_filter(filter));
    let candidates = u32::try_from(request.limit).unwrap_or(u32::MAX);
    let query = InternalSearch {
        subentries: false,
        limits: InternalLimits { candidates, ..InternalLimits::default() },
        ..InternalSearch::new(request.base, request.scope, &filter)
    };
    let searched = internal::search_in(view, sight, &query, &mut |found| {
        let mut going = true;
        for attribute in request.wanted {
            if view.schema.attribute(attribute.attribute).name() == "entryDN" {
                going &= visit(attribute, found.dn()?.as_str().as_bytes());
            }
            found.source().visit_exact(attribute, &mut |value| {
                going &= visit(attribute, value);
                going
            })?;
        }
        Ok(going)
    })?;
    match searched.ended {
        SearchEnd::TooMuchWork => Err(Fault::TooMuch("a search of an access rule")),
        _ => Ok(Reach::Found),
    }
}

/// RDNs of the suffix at or above the name.
pub(crate) fn suffix_depth<V>(view: &View<'_, V>, dn: &NormalDn) -> Option<usize> {
    NearestSuffix::of(dn).depth(view.settings.suffixes.iter().map(|suffix| &suffix.normal))
}
