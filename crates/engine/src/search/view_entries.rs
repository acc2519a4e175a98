//! The entries of a view, as they are passed to overlays.

use larix_proto::{LdapResult, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn};
use larix_store::Snapshot;

use super::computed::{LOOK_STEPS, Sight};
use super::rule_facts::{RuleFacts, suffix_depth};
use super::{internal, named, references};
use crate::access::{AccessTarget, EntryFacts, EntrySet, GroupQuery, Item, Privilege, Subject};
use crate::budget::{LimitExceeded, Meter, RequestLimit};
use crate::database::{View, is_altered};
use crate::entry::reader::OwnedSource;
use crate::entry::{AttributeNumber, Entry, EntryId};
use crate::failure::Failure;
use crate::filter::{charge, unless_overdrawn};
use crate::index::Kinds;
use crate::overlay::internal_search::{InternalSearch, SearchEnd, SearchOutcome, Visit};
use crate::overlay::{Dependencies, Entries, ReferenceTarget, Referrer};
use crate::tree;

/// The entries that an overlay may look at.
pub(crate) struct ViewEntries<'p, 's, V> {
    pub(crate) view: &'p View<'s, V>,
    pub(crate) sight: Sight<'p>,
}

impl<'p, 's, V> ViewEntries<'p, 's, V> {
    /// With all that overlays compute.
    pub(crate) fn of(view: &'p View<'s, V>) -> Self {
        Self { view, sight: Sight::of(view) }
    }
}

impl<V: Snapshot> ViewEntries<'_, '_, V> {
    /// Asks the rules about an entry. Where no request pays for it, that may take as much as one.
    fn judged(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        ask: impl FnOnce(&AccessTarget<'_>) -> bool,
    ) -> Result<bool, Failure> {
        let own = self.own_meter();
        let source = OwnedSource { schema: &self.view.schema, entry };
        let facts = RuleFacts::new(self.view, self.charged_to(&own), dn, &source);
        let answer = ask(&AccessTarget { dn, entry: &facts });
        self.unless_too_much(&own, answer)
    }

    fn own_meter(&self) -> Meter {
        Meter::new(self.view.settings.request_limits.most(RequestLimit::Steps))
    }

    fn charged_to<'m>(&'m self, own: &'m Meter) -> Sight<'m> {
        Sight { meter: Some(self.sight.meter.unwrap_or(own)), ..self.sight }
    }

    fn unless_too_much(&self, own: &Meter, answer: bool) -> Result<bool, Failure> {
        if own.is_overdrawn() {
            let most = self.view.settings.request_limits.most(RequestLimit::Steps);
            return Err(LdapResult::from(LimitExceeded { limit: RequestLimit::Steps, most }).into());
        }
        Ok(unless_overdrawn(self.sight.meter, answer)?)
    }

    /// The numbers of the attributes, if indexes tell of every change of them.
    fn indexed_numbers(&self, dependencies: &Dependencies<'_>) -> Option<Vec<AttributeNumber>> {
        let (schema, settings) = (&self.view.schema, &self.view.settings);
        let is_indexed =
            |attribute: &AttributeDescription| settings.index.kinds(schema, attribute).has(Kinds::EQUALITY);
        if !dependencies.attributes.iter().all(is_indexed) {
            return None;
        }
        let covered =
            dependencies.attributes.iter().map(|attribute| self.view.catalog.covered(schema, attribute));
        Some(covered.flat_map(|covered| covered.as_slice().to_vec()).collect())
    }
}

impl<V> std::fmt::Debug for ViewEntries<'_, '_, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewEntries").finish_non_exhaustive()
    }
}

impl<V: Snapshot> Entries for ViewEntries<'_, '_, V> {
    fn entry(&self, dn: &NormalDn) -> Result<Option<Entry>, Failure> {
        let Some(id) = self.view.resolve(dn)?.and_then(|resolved| resolved.id) else {
            let own_depth = suffix_depth(self.view, dn).unwrap_or(0);
            let others = self.view.others.as_ref();
            return Ok(others.map_or(Ok(None), |others| others.entry(dn, own_depth))?);
        };
        let Some(record) = self.view.record(id)? else { return Ok(None) };
        let reader = self.view.reader(id, &record)?;
        Ok(Some(reader.to_owned(self.view.dn(&reader.view)?, false)?))
    }

    fn id_of(&self, dn: &NormalDn) -> Result<Option<EntryId>, Failure> {
        charge(self.sight.meter, LOOK_STEPS)?;
        Ok(self.view.resolve(dn)?.and_then(|resolved| resolved.id))
    }

    fn name_of(&self, id: EntryId) -> Result<Option<NormalDn>, Failure> {
        charge(self.sight.meter, LOOK_STEPS)?;
        let Some(record) = self.view.record(id)? else { return Ok(None) };
        Ok(Some(self.view.names.normal_dn(&self.view.reader(id, &record)?.view)?))
    }

    fn named_by(&self, id: EntryId, attribute: &AttributeDescription) -> Result<Vec<u64>, Failure> {
        Ok(named::named_by(self.view, self.sight.meter, id, attribute)?)
    }

    fn indexed_ids(&self, filter: &BoundFilter) -> Result<Option<Vec<u64>>, Failure> {
        Ok(internal::indexed_ids(self.view, self.sight, filter)?)
    }

    fn charge(&self, steps: u64) -> Result<(), Failure> {
        Ok(charge(self.sight.meter, steps)?)
    }

    fn is_root(&self, subject: &Subject) -> bool {
        self.sight.policy.is_root(subject)
    }

    fn commit(&self) -> Option<u64> {
        self.view.facts.is_some().then(|| self.view.snapshot.commit_counter())
    }

    fn found_at(&self, dependencies: &Dependencies<'_>) -> Option<u64> {
        let commit = self.view.snapshot.commit_counter();
        if self.view.facts.is_some() {
            return Some(commit);
        }
        let numbers = self.indexed_numbers(dependencies)?;
        let mut altered = false;
        self.view.snapshot.visit_changes(&mut |set| {
            let scope = (dependencies.entries, dependencies.names);
            altered = altered || is_altered(set, scope, numbers.iter().copied());
        });
        (!altered).then_some(commit)
    }

    fn is_computed(&self, attribute: &AttributeDescription) -> bool {
        self.sight.computed.iter().any(|computed| {
            let own = &computed.description;
            own == attribute || own.is_subdescription_of(&self.view.schema, attribute)
        })
    }

    fn is_as_at(&self, commit: u64, dependencies: &Dependencies<'_>) -> bool {
        let Some(now) = self.found_at(dependencies) else { return false };
        if now <= commit {
            return now == commit;
        }
        let Some(numbers) = self.indexed_numbers(dependencies) else { return false };
        let scope = (dependencies.entries, dependencies.names);
        self.view.attribute_commits.is_unchanged((commit, now), scope, numbers.into_iter())
    }

    fn exists(&self, dn: &NormalDn) -> Result<bool, Failure> {
        if self.view.resolve(dn)?.is_some_and(|resolved| resolved.id.is_some()) {
            return Ok(true);
        }
        let own_depth = suffix_depth(self.view, dn).unwrap_or(0);
        let others = self.view.others.as_ref();
        Ok(others.map_or(Ok(None), |others| others.entry(dn, own_depth))?.is_some())
    }

    fn allows(
        &self,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
        attribute: &AttributeDescription,
        privilege: Privilege,
    ) -> Result<bool, Failure> {
        if self.sight.policy.is_root(subject) {
            return Ok(true);
        }
        let item = Item::Attribute { description: attribute, value: None };
        self.judged(dn, entry, |target| self.sight.policy.check(subject, target, item, privilege))
    }

    fn manages(&self, subject: &Subject, dn: &NormalDn, entry: &Entry) -> Result<bool, Failure> {
        if self.sight.policy.is_root(subject) {
            return Ok(true);
        }
        self.judged(dn, entry, |target| {
            self.sight.policy.check(subject, target, Item::Entry, Privilege::Manage)
        })
    }

    fn has_any(
        &self,
        set: &EntrySet,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<Option<bool>, Failure> {
        let own = self.own_meter();
        let source = OwnedSource { schema: &self.view.schema, entry };
        let facts = RuleFacts::new(self.view, self.charged_to(&own), dn, &source);
        let has_any = self.sight.policy.has_any(set, subject, &AccessTarget { dn, entry: &facts });
        Ok(unless_overdrawn(self.sight.meter, has_any)?)
    }

    fn matches(&self, dn: &NormalDn, entry: &Entry, filter: &BoundFilter) -> Result<bool, Failure> {
        if entry.attributes.iter().any(|attribute| attribute.large.is_some()) {
            // Values that are not in the copy count as well.
            let query = InternalSearch::new(dn, Scope::Base, filter);
            let searched = internal::search_in(self.view, self.sight, &query, &mut |_| Ok(false))?;
            if searched.ended != SearchEnd::NoBase {
                return Ok(searched.entries > 0);
            }
        }
        let source = OwnedSource { schema: &self.view.schema, entry };
        let matches = RuleFacts::new(self.view, self.sight, dn, &source).matches(filter).is_true();
        Ok(unless_overdrawn(self.sight.meter, matches)?)
    }

    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> Result<bool, Failure> {
        let own = self.own_meter();
        let member = self.view.is_member_seen(self.charged_to(&own), group, member);
        // What cannot be told is no membership.
        self.unless_too_much(&own, member.unwrap_or(false))
    }

    fn has_subordinates(&self, dn: &NormalDn) -> Result<bool, Failure> {
        let Some(id) = self.view.resolve(dn)?.and_then(|resolved| resolved.id) else { return Ok(false) };
        Ok(tree::has_children(self.view.snapshot, id)?)
    }

    fn search(&self, query: &InternalSearch<'_>, visit: &mut Visit<'_>) -> Result<SearchOutcome, Failure> {
        let searched = internal::search_in(self.view, self.sight, query, visit)?;
        if searched.ended == SearchEnd::NoBase
            && let Some(others) = &self.view.others
        {
            let own_depth = suffix_depth(self.view, query.base).unwrap_or(0);
            let searched = others.search(query, own_depth, visit)?.unwrap_or(searched);
            charge(self.sight.meter, LOOK_STEPS.saturating_mul(searched.looked))?;
            return Ok(searched);
        }
        Ok(searched)
    }

    fn referrers(
        &self,
        attributes: &[AttributeDescription],
        sought: ReferenceTarget<'_>,
    ) -> Result<Vec<Referrer>, Failure> {
        references::referrers(self.view, attributes, sought)
    }
}
