//! An entry with what overlays compute of it, as a source of values; and where to look for entries by what is computed.

use larix_schema::{AttributeDescription, BoundFilter, NormalDn};
use larix_store::Snapshot;

use super::view_entries::ViewEntries;
use crate::access::{AccessPolicy, Subject};
use crate::budget::Meter;
use crate::database::View;
use crate::entry::{Entry, EntryId, EntrySource, Target};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::filter::Filter;
use crate::overlay::computed::{
    ComputedAttribute, ComputedAttributes, ComputedIn, ComputedOf, Holders, StoredEntry,
};
use crate::plan::ComputedHolders;

/// How entries are looked at.
#[derive(Copy, Clone, Debug)]
pub struct Sight<'a> {
    pub policy: &'a AccessPolicy,
    /// What overlays compute is seen, as far as it is listed here.
    pub computed: &'a [ComputedAttribute],
    /// As whom overlays compute; `None`: rights do not matter.
    pub requester: Option<&'a Subject>,
    /// What the work of overlays and access rules is charged to; `None`: no request waits for it.
    pub meter: Option<&'a Meter>,
}

/// Steps that an overlay's look at another entry costs.
pub(crate) const LOOK_STEPS: u64 = 8;

impl<'a> Sight<'a> {
    /// All that overlays of the database compute is seen, without regard to access.
    pub fn of<V>(view: &'a View<'_, V>) -> Self {
        Self { policy: &view.policy, computed: &view.computed, requester: None, meter: None }
    }

    /// For access rules: without a requester. A rule that looked with the requester's rights would have to judge itself.
    pub(crate) fn of_rules(self) -> Self {
        Self { requester: None, ..self }
    }

    fn before(self, attribute: &ComputedAttribute) -> Self {
        Self { computed: attribute.before(self.computed), ..self }
    }
}

/// What is asked about an entry beside its values.
pub(crate) trait EntryIdentity {
    /// `None`: it is not stored yet.
    fn id(&self) -> Option<EntryId>;
    fn name(&self) -> Result<&NormalDn, Fault>;
    /// A copy of what is stored.
    fn copy(&self) -> Result<Entry, Fault>;
    /// Whether the filter matches these values, as the requester may search for them; without one rights do not matter.
    fn matches(
        &self,
        filter: &Filter,
        values: &dyn EntrySource,
        requester: Option<&Subject>,
    ) -> Result<bool, Fault>;
}

/// An entry's stored values, and those that overlays compute.
pub(crate) struct ComposedEntry<'a, 's, V> {
    pub(crate) view: &'a View<'s, V>,
    pub(crate) sight: Sight<'a>,
    pub(crate) entry: &'a dyn EntryIdentity,
    pub(crate) stored: &'a dyn EntrySource,
}

impl<V> Clone for ComposedEntry<'_, '_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ComposedEntry<'_, '_, V> {}

/// The entry as one overlay may look at it.
pub(crate) struct Before<'a, 's, V>(pub(crate) ComposedEntry<'a, 's, V>);

impl<V: Snapshot> StoredEntry for Before<'_, '_, V> {
    fn id(&self) -> Option<EntryId> {
        self.0.entry.id()
    }

    fn dn(&self) -> Result<&NormalDn, Fault> {
        self.0.entry.name()
    }

    fn source(&self) -> &dyn EntrySource {
        if self.0.sight.computed.is_empty() { self.0.stored } else { &self.0 }
    }

    fn owned(&self) -> Result<Entry, Fault> {
        self.0.entry.copy()
    }

    fn matches(&self, filter: &BoundFilter) -> Result<bool, Fault> {
        let filter = Filter::new(&self.0.view.schema, &self.0.view.catalog, filter.clone());
        self.0.entry.matches(&filter, self.source(), self.0.sight.requester)
    }
}

impl<'a, V: Snapshot> ComposedEntry<'a, '_, V> {
    /// Asks the overlay that computes an attribute; `None`: it refuses, and the entry is as it is stored.
    fn ask<T>(
        &self,
        attribute: &ComputedAttribute,
        ask: impl FnOnce(&dyn ComputedAttributes, &ComputedOf<'_>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Fault> {
        let Some(overlay) = attribute.computed_by() else { return Ok(None) };
        let sight = self.sight.before(attribute);
        let entries = ViewEntries { view: self.view, sight };
        let entry = Before(Self { sight, ..*self });
        let (schema, requester) = (&self.view.schema, sight.requester);
        let of = ComputedOf { entry: &entry, schema, entries: &entries, requester };
        match ask(overlay, &of) {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Refused(_)) => Ok(None),
            Err(Failure::Storage(fault)) => Err(fault),
        }
    }

    /// Calls `visit` with the computed values of one attribute, until it answers false. Answers false if it was stopped.
    pub(crate) fn visit_computed(
        &self,
        attribute: &ComputedAttribute,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, Fault> {
        let mut more = true;
        self.ask(attribute, |overlay, of| {
            overlay.visit(of, &attribute.description, &mut |value| {
                more = more && visit(value);
                more
            })
        })?;
        Ok(more)
    }

    fn is_computed(&self, attribute: &ComputedAttribute) -> Result<bool, Fault> {
        Ok(!self.visit_computed(attribute, &mut |_| false)?)
    }

    /// What is computed of all that a description covers.
    fn covered(&self, description: &AttributeDescription) -> impl Iterator<Item = &'a ComputedAttribute> {
        let schema = &self.view.schema;
        self.sight
            .computed
            .iter()
            .filter(move |own| own.description.is_subdescription_of(schema, description))
    }

    fn visit_covered(
        &self,
        description: &AttributeDescription,
        more: bool,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        if more {
            for attribute in self.covered(description) {
                if !self.visit_computed(attribute, visit)? {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl<V: Snapshot> EntrySource for ComposedEntry<'_, '_, V> {
    fn visit(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        let mut more = true;
        self.stored.visit(target, &mut |value| {
            more = visit(value);
            more
        })?;
        target.description().map_or(Ok(()), |description| self.visit_covered(description, more, visit))
    }

    fn descriptions(&self, visit: &mut dyn FnMut(&AttributeDescription)) -> Result<(), Fault> {
        let mut stored = vec![false; self.sight.computed.len()];
        self.stored.descriptions(&mut |description| {
            for (own, stored) in self.sight.computed.iter().zip(&mut stored) {
                *stored |= own.description == *description;
            }
            visit(description);
        })?;
        for (own, _) in self.sight.computed.iter().zip(stored).filter(|(_, stored)| !stored) {
            if self.is_computed(own)? {
                visit(&own.description);
            }
        }
        Ok(())
    }

    fn visit_exact(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let mut more = true;
        self.stored.visit_exact(description, &mut |value| {
            more = visit(value);
            more
        })?;
        for attribute in self.sight.computed.iter().filter(|own| own.description == *description) {
            if !more {
                break;
            }
            more = self.visit_computed(attribute, visit)?;
        }
        Ok(())
    }

    fn visit_description(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let mut more = true;
        self.stored.visit_description(description, &mut |value| {
            more = visit(value);
            more
        })?;
        self.visit_covered(description, more, visit)
    }

    fn is_present(&self, target: &Target) -> Result<bool, Fault> {
        if self.stored.is_present(target)? {
            return Ok(true);
        }
        let Some(description) = target.description() else { return Ok(false) };
        for attribute in self.covered(description) {
            if self.is_computed(attribute)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_only_itself(&self, target: &Target) -> bool {
        let Some(description) = target.description() else { return false };
        self.stored.has_only_itself(target)
            && self.covered(description).all(|own| own.description == *description)
    }

    fn large_member(&self, target: &Target, normal: &[u8]) -> Result<Option<bool>, Fault> {
        let stored = self.stored.large_member(target, normal)?;
        let Some(description) = target.description().filter(|_| stored != Some(true)) else {
            return Ok(stored);
        };
        let mut any = false;
        for attribute in self.covered(description) {
            any = true;
            let found =
                self.ask(attribute, |overlay, of| overlay.has_value(of, &attribute.description, normal))?;
            match found {
                Some(Some(false)) | None => {}
                Some(known) => return Ok(known),
            }
        }
        if any && stored.is_none() && !self.stored.is_present(target)? { Ok(Some(false)) } else { Ok(stored) }
    }
}

/// Entries by what overlays compute of them.
pub(crate) struct HolderIndex<'a, 's, V> {
    pub(crate) view: &'a View<'s, V>,
    pub(crate) sight: Sight<'a>,
}

impl<V: Snapshot> ComputedHolders for HolderIndex<'_, '_, V> {
    fn concerns(&self, description: &AttributeDescription) -> bool {
        let schema = &self.view.schema;
        self.sight.computed.iter().any(|own| own.description.is_subdescription_of(schema, description))
    }

    fn holders(&self, description: &AttributeDescription, normal: &[u8]) -> Result<Option<Holders>, Fault> {
        let schema = &self.view.schema;
        let mut all = Holders { ids: Vec::new(), exact: true };
        for own in
            self.sight.computed.iter().filter(|own| own.description.is_subdescription_of(schema, description))
        {
            let Some(overlay) = own.computed_by() else { return Ok(None) };
            let entries = ViewEntries { view: self.view, sight: self.sight.before(own) };
            let within = ComputedIn { schema, entries: &entries, requester: self.sight.requester };
            match overlay.holders(&within, &own.description, normal) {
                Ok(Some(found)) => {
                    all.ids.extend(found.ids);
                    all.exact &= found.exact;
                }
                Ok(None) | Err(Failure::Refused(_)) => return Ok(None),
                Err(Failure::Storage(fault)) => return Err(fault),
            }
        }
        all.ids.sort_unstable();
        all.ids.dedup();
        Ok(Some(all))
    }
}
