//! What rules ask of other entries than the one that they protect.

use std::cell::Cell;

use larix_proto::{Filter, Scope};
use larix_schema::{AttributeDescription, NormalDn, ObjectClassId};

/// A group a rule names.
#[derive(Debug, Clone, Copy)]
pub struct GroupQuery<'a> {
    pub group: &'a NormalDn,
    pub class: ObjectClassId,
    pub attribute: &'a AttributeDescription,
}

/// A search on behalf of a rule, without regard to access.
#[derive(Debug, Clone, Copy)]
pub struct EntrySearch<'a> {
    pub base: &'a NormalDn,
    pub scope: Scope,
    /// `None`: every entry.
    pub filter: Option<Filter<'a>>,
    /// Attributes whose values are wanted; the DN as `entryDN`.
    pub wanted: &'a [AttributeDescription],
    /// Entries at most; more is a fault.
    pub limit: usize,
    /// Steps that the search may take in another database, and then what is left of them; none are left where they did not last.
    pub steps: &'a Cell<u64>,
}
