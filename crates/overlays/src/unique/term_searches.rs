//! The values of one change, by how entries that have them are found. A change may bring tens of thousands: what no index finds is
//! compared with each entry at once, not value by value.

use std::collections::{BTreeMap, HashSet};

use larix_engine::Fault;
use larix_engine::overlay::internal_search::FoundEntry;
use larix_engine::overlay::{Entries, Failure};
use larix_schema::{AttributeDescription, BoundAssertion, BoundFilter, MatchingRule, Schema};

use super::Term;

/// So few values are compared one by one, whatever indexes there are.
const ONE_BY_ONE_MAX: usize = 16;

/// The rule by which a class is equal to those above it, too: a key does not tell.
const CLASSES: &str = "objectIdentifierMatch";

/// How entries that have one of the terms are found.
pub(super) struct TermSearches<'t> {
    /// Searches, each for any of its terms.
    pub(super) searches: Vec<Vec<&'t Term>>,
    /// Values that no index finds, if they are many.
    pub(super) together: Together<'t>,
}

impl<'t> TermSearches<'t> {
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn of(terms: &'t [Term], entries: &dyn Entries) -> Result<Self, Failure> {
        if terms.len() <= ONE_BY_ONE_MAX {
            return Ok(Self { searches: vec![terms.iter().collect()], together: Together(Vec::new()) });
        }
        let (mut others, mut by_attribute) = (Vec::new(), BTreeMap::new());
        for term in terms {
            match &term.filter {
                BoundFilter::Equality(own) if own.rule.name != CLASSES => {
                    let of_attribute: &mut Vec<_> = by_attribute.entry(&own.description).or_default();
                    of_attribute.push((term, own));
                }
                _ => others.push(term),
            }
        }
        let (mut indexed, mut together) = (Vec::new(), Vec::new());
        for (description, own) in by_attribute {
            let Some((first, assertion)) = own.first() else { continue };
            if entries.indexed_ids(&first.filter)?.is_some() {
                indexed.extend(own.iter().map(|(term, _)| *term));
            } else {
                together.push(Values::new(description, assertion.rule, own.iter().map(|(_, own)| *own)));
            }
        }
        let searches = [indexed, others].into_iter().filter(|terms| !terms.is_empty()).collect();
        Ok(Self { searches, together: Together(together) })
    }
}

/// Values that are compared with those of an entry at once.
pub(super) struct Together<'t>(Vec<Values<'t>>);

/// Those of one attribute.
struct Values<'t> {
    description: &'t AttributeDescription,
    rule: &'static MatchingRule,
    keys: HashSet<&'t [u8]>,
}

impl<'t> Values<'t> {
    fn new(
        description: &'t AttributeDescription,
        rule: &'static MatchingRule,
        assertions: impl Iterator<Item = &'t BoundAssertion>,
    ) -> Self {
        Self { description, rule, keys: assertions.map(|own| own.value.key()).collect() }
    }
}

impl Together<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Entries that have any value of the attributes.
    pub(super) fn candidates(&self) -> BoundFilter {
        BoundFilter::Or(self.0.iter().map(|own| BoundFilter::Present(own.description.clone())).collect())
    }

    /// Whether an entry has one of the values.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn are_in(&self, found: &dyn FoundEntry, schema: &Schema) -> Result<bool, Fault> {
        let (mut key, mut any) = (Vec::new(), false);
        for own in &self.0 {
            found.source().visit_description(own.description, &mut |value| {
                key.clear();
                let is_value = own.rule.normalize_value(schema, value, &mut key).is_ok();
                any = is_value && own.keys.contains(key.as_slice());
                !any
            })?;
            if any {
                break;
            }
        }
        Ok(any)
    }
}
