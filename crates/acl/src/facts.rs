//! What rules can see of entries.

use std::fmt;

use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema};

use super::memo::Memo;
use super::query::EntrySearch;

/// Steps that a look at another entry costs.
pub(super) const LOOK_STEPS: u64 = 8;
/// Bytes of a value that cost a step.
const STEP_BYTES: usize = 256;

/// What it costs to look at a value.
pub(super) fn value_steps(value: &[u8]) -> u64 {
    1 + (value.len() / STEP_BYTES) as u64
}

/// What rules may ask about the entry they protect, and about others of its database.
///
/// A fault while reading is answered as if nothing was found there, with [`EntryFacts::failed`] true afterwards.
pub trait EntryFacts {
    /// Calls `visit` with each value of the attribute and its subtypes until it answers false.
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool);

    /// As [`Self::visit`], without subtypes.
    fn visit_exact(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.visit(attribute, visit);
    }

    /// Whether a filter matches the entry; without regard to access.
    fn matches(&self, filter: &BoundFilter) -> Match;

    /// Whether the DN is a value of the attribute, without subtypes.
    fn has_dn(&self, schema: &Schema, attribute: &AttributeDescription, dn: &NormalDn) -> bool {
        let mut found = false;
        self.visit_exact(attribute, &mut |value| {
            let value = std::str::from_utf8(value).unwrap_or_default();
            found = value == dn.as_str() || schema.parse_dn(value).is_ok_and(|value| value == *dn);
            !found
        });
        found
    }

    /// Hands another entry of the same database, as it is in the same state, to `read`.
    fn with_entry(&self, _dn: &NormalDn, _read: &mut dyn FnMut(&dyn EntryFacts)) -> Reach {
        Reach::Elsewhere
    }

    /// Calls `visit` with the wanted values of what a search of the same database finds, until it answers false.
    fn search(
        &self,
        _search: &EntrySearch<'_>,
        _visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Reach {
        Reach::Elsewhere
    }

    /// Takes steps from those that the request has left for the entry under protection; a step is about what it takes to compare one short
    /// value. False: they are more than that. [`EntryFacts::failed`] is true afterwards.
    fn charge(&self, _steps: u64) -> bool {
        true
    }

    /// Steps that [`EntryFacts::charge`] would still give.
    fn steps_left(&self) -> u64 {
        u64::MAX
    }

    /// Where answers that hold for all entries are kept.
    fn memo(&self) -> Option<&Memo> {
        None
    }

    /// Whether an answer was not to be had. The check is then denied.
    fn failed(&self) -> bool {
        false
    }
}

/// Whether a database has an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Found,
    /// The name is below a suffix of this database, of so many RDNs, but there is no such entry.
    Absent {
        suffix_depth: usize,
    },
    /// No suffix of this database is at or above the name.
    Elsewhere,
}

/// A database could not be read. The rules need no more than that: the check is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// The entries of all databases of a server.
pub trait OtherEntries: fmt::Debug + Send + Sync {
    /// Hands an entry to `read`, if it is in a database whose suffix has more RDNs than `own_depth`. Answers whether there
    /// is one.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn with_entry(
        &self,
        dn: &NormalDn,
        own_depth: usize,
        read: &mut dyn FnMut(&dyn EntryFacts),
    ) -> Result<bool, Unreadable>;

    /// As [`EntryFacts::search`], under the same condition. It takes what it costs from the steps of the search.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn search(
        &self,
        search: &EntrySearch<'_>,
        own_depth: usize,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Result<bool, Unreadable>;
}

/// An entry under access control.
#[derive(Clone, Copy)]
pub struct AccessTarget<'a> {
    pub dn: &'a NormalDn,
    pub entry: &'a dyn EntryFacts,
}

impl fmt::Debug for AccessTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessTarget").field("dn", &self.dn).finish_non_exhaustive()
    }
}
