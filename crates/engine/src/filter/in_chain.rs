//! The assertion that goes along chains of names: [`chain`](crate::search::chain) follows them before the search begins.

use std::sync::Arc;

use larix_schema::{BoundExtensible, Match, Scratch};

use super::{FilterContext, Test};
use crate::entry::EntrySource;
use crate::fault::Fault;

/// An assertion with this rule.
#[derive(Clone, Debug)]
pub struct InChain {
    pub assertion: BoundExtensible,
    /// The asserted name and those of the entries between, ascending; `None` until the chain was followed.
    pub(crate) links: Option<Arc<[Box<[u8]>]>>,
}

impl InChain {
    pub fn new(assertion: BoundExtensible) -> Self {
        Self { assertion, links: None }
    }

    /// The normalized names; an entry with any of them matches. `None` as long as the chain has not been followed.
    pub fn links(&self) -> Option<&[Box<[u8]>]> {
        self.links.as_deref()
    }

    fn is_link(&self, key: &[u8]) -> bool {
        self.links().is_some_and(|links| links.binary_search_by(|link| (**link).cmp(key)).is_ok())
    }
}

impl Test {
    /// Whether the entry has a name of the chain. Where it has not been followed, only the first link is certain.
    pub(super) fn in_chain(
        &self,
        context: &dyn FilterContext,
        chain: &InChain,
        entry: &dyn EntrySource,
    ) -> Result<Match, Fault> {
        let schema = context.schema();
        let mut scratch = Scratch::default();
        let Some(links) = chain.links() else {
            let found =
                self.any(context, entry, |value| chain.assertion.matches(schema, value, &mut scratch))?;
            return Ok(found.or(Match::Undefined));
        };
        let may = |value: &[u8]| match self.target.description().filter(|_| !context.may_search_all()) {
            Some(description) => context.may_search(description, Some(value)),
            None => Ok(true),
        };
        if self.is_simple(context, entry) {
            let mut is_large = false;
            for link in links {
                let Some(member) = entry.large_member(&self.target, link)? else { break };
                is_large = true;
                if member && may(link)? {
                    return Ok(Match::True);
                }
            }
            if is_large {
                return Ok(Match::False);
            }
        }
        let mut fault = None;
        let (mut key, rule) = (Vec::new(), chain.assertion.rule);
        let found = self.any(context, entry, |value| {
            key.clear();
            if rule.normalize_value(schema, value, &mut key).is_err() || !chain.is_link(&key) {
                return Match::False;
            }
            match may(&key) {
                Ok(true) => Match::True,
                Ok(false) => Match::Undefined,
                Err(error) => {
                    fault = Some(error);
                    Match::Undefined
                }
            }
        })?;
        fault.map_or(Ok(found), Err)
    }
}
