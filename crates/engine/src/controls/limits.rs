//! What requests and their controls may ask for, before anything is made of it.

use larix_proto::{Filter, FilterBuf, FilterNode, LdapResult, ResultCode, SearchRequest, Strings};

use super::RequestControls;
use crate::budget::{LimitExceeded, RequestLimit, RequestLimits};

impl RequestLimits {
    /// What a search and its controls ask for.
    ///
    /// # Errors
    /// What is answered to too much.
    pub fn check_search(
        &self,
        request: &SearchRequest<'_>,
        controls: &RequestControls,
    ) -> Result<(), LdapResult> {
        self.check_strings(request.attributes)?;
        if controls.is_none() {
            return self.check_filters(std::iter::once(request.filter)).map_err(LdapResult::from);
        }
        let matched = controls.matched_values.iter().flatten();
        let filters = matched.chain(&controls.assertion).map(FilterBuf::as_filter);
        self.check_filters(filters.chain([request.filter]))?;
        if let Some(dereference) = &controls.deref {
            let wanted = dereference.specs.iter().map(|(_, wanted)| wanted.len() + 1).sum();
            self.check(RequestLimit::Selectors, wanted)?;
        }
        // The code and the text are OpenLDAP's, who knows no other limit of one request.
        if let Some(sort) = &controls.sort
            && self.check(RequestLimit::SortKeys, sort.keys.len()).is_err()
        {
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "Too many sort keys"));
        }
        Ok(())
    }

    /// What the controls of a compare or an update ask for.
    ///
    /// # Errors
    /// What is answered to too much.
    pub fn check_controls(&self, controls: &RequestControls) -> Result<(), LdapResult> {
        self.check_filters(controls.assertion.iter().map(FilterBuf::as_filter)).map_err(LdapResult::from)
    }

    fn check_filters<'f>(
        &self,
        filters: impl Iterator<Item = Filter<'f>> + Clone,
    ) -> Result<(), LimitExceeded> {
        let most = self.most(RequestLimit::FilterTerms);
        // The usual case: there can be no more terms in so few bytes.
        let bytes: usize = filters.clone().map(|filter| filter.as_ber().len()).sum();
        if (bytes / TERM_BYTES_MIN) as u64 <= most {
            return Ok(());
        }
        let mut terms = Terms { remaining: most };
        let mut filters = filters;
        if filters.all(|filter| terms.count(filter)) {
            Ok(())
        } else {
            Err(self.exceeded(RequestLimit::FilterTerms))
        }
    }

    /// The terms of a filter, as [`RequestLimit::FilterTerms`] counts them.
    ///
    /// # Errors
    /// They are more than that.
    pub fn terms_of(&self, filter: Filter<'_>) -> Result<u64, LimitExceeded> {
        let most = self.most(RequestLimit::FilterTerms);
        let mut terms = Terms { remaining: most };
        if terms.count(filter) {
            Ok(most - terms.remaining)
        } else {
            Err(self.exceeded(RequestLimit::FilterTerms))
        }
    }

    fn exceeded(&self, limit: RequestLimit) -> LimitExceeded {
        LimitExceeded { limit, most: self.most(limit) }
    }

    fn check_strings(&self, names: Strings<'_>) -> Result<(), LimitExceeded> {
        let most = self.most(RequestLimit::Selectors);
        if names.count_at_most() as u64 <= most {
            return Ok(());
        }
        // An empty list is gone through no further than a long one.
        let beyond = usize::try_from(most).unwrap_or(usize::MAX);
        if names.iter().nth(beyond).is_some() { Err(self.exceeded(RequestLimit::Selectors)) } else { Ok(()) }
    }
}

/// Terms of filters that may still come.
struct Terms {
    remaining: u64,
}

/// A term is a tag, a length, and what they say.
const TERM_BYTES_MIN: usize = 2;

impl Terms {
    /// False if the filter has more.
    fn count(&mut self, filter: Filter<'_>) -> bool {
        let own = match filter.node() {
            FilterNode::Substrings(substrings) => 1 + substrings.any.iter().count() as u64,
            _ => 1,
        };
        let Some(remaining) = self.remaining.checked_sub(own) else { return false };
        self.remaining = remaining;
        match filter.node() {
            FilterNode::And(set) | FilterNode::Or(set) => set.iter().all(|filter| self.count(filter)),
            FilterNode::Not(inner) => self.count(inner),
            _ => true,
        }
    }
}
