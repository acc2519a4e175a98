//! Which targets a request may concern.

use std::sync::Arc;

use larix_proto::Scope;
use larix_schema::NormalDn;
use regex::Regex;

use crate::backend::Backend;

/// One of the backends whose entries are shown together.
#[derive(Debug)]
pub struct Target {
    pub backend: Arc<dyn Backend>,
    /// Where its entries are seen.
    pub suffix: NormalDn,
    pub subtrees: Subtrees,
    /// Searches go to it if their filter, as text (RFC 4515), matches one of these; empty: all do.
    pub filters: Vec<Regex>,
}

impl Target {
    /// Whether requests on this name go to it.
    pub(super) fn serves(&self, dn: &NormalDn) -> bool {
        self.candidate(dn, Scope::Base).is_some()
    }

    /// Whether searches with this filter go to it.
    pub(super) fn takes(&self, filter: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|pattern| pattern.is_match(filter))
    }

    /// The base and the scope that a search has in it; none if it has nothing for the search.
    pub(super) fn candidate<'a>(&'a self, base: &'a NormalDn, scope: Scope) -> Option<(&'a NormalDn, Scope)> {
        if base.is_within(&self.suffix) {
            return self.subtrees.serve(base, scope).then_some((base, scope));
        }
        if !self.suffix.is_descendant_of(base) {
            return None;
        }
        match scope {
            Scope::Subtree | Scope::Children => Some((&self.suffix, Scope::Subtree)),
            Scope::OneLevel if self.suffix.parent().as_ref() == Some(base) => {
                Some((&self.suffix, Scope::Base))
            }
            Scope::OneLevel | Scope::Base => None,
        }
    }
}

/// The names below a suffix that a target serves: bases of searches, and names of entries.
#[derive(Clone, Debug, Default)]
pub enum Subtrees {
    #[default]
    All,
    /// Those that a rule matches (`subtree-include`).
    Only(Vec<SubtreeRule>),
    /// Those that no rule matches (`subtree-exclude`).
    Except(Vec<SubtreeRule>),
}

impl Subtrees {
    fn serve(&self, dn: &NormalDn, scope: Scope) -> bool {
        let matched = |rules: &[SubtreeRule]| rules.iter().any(|rule| rule.matches(dn, scope));
        match self {
            Self::All => true,
            Self::Only(rules) => matched(rules),
            Self::Except(rules) => !matched(rules),
        }
    }
}

/// Some names.
#[derive(Clone, Debug)]
pub enum SubtreeRule {
    Subtree(NormalDn),
    /// Without the entry itself.
    Children(NormalDn),
    /// Of normal forms.
    Regex(Regex),
}

impl SubtreeRule {
    fn matches(&self, dn: &NormalDn, scope: Scope) -> bool {
        match self {
            Self::Subtree(top) => dn.is_within(top),
            Self::Children(top) => dn.is_descendant_of(top) || (dn == top && scope != Scope::Base),
            Self::Regex(pattern) => pattern.is_match(dn.as_str()),
        }
    }
}
