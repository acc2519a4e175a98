//! Searches from inside: the server, its overlays and access rules look for entries by filters as values, and are handed
//! entries, by the same planner and under the same access rules as clients' searches. Nothing is encoded.
//!
//! An internal search reads one view, in one go: a snapshot, or what the writer is about to commit. Aliases are not
//! dereferenced, and no continuation references come up. `crate::search::internal` carries it out.

use std::fmt::Debug;

use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn};

use crate::access::Subject;
use crate::entry::{Entry, EntryId, EntrySource};
use crate::fault::Fault;

/// What is looked for.
#[derive(Copy, Clone, Debug)]
pub struct InternalSearch<'q> {
    /// The root stands for all entries of the database, whatever its suffixes are.
    pub base: &'q NormalDn,
    pub scope: Scope,
    pub filter: &'q BoundFilter,
    pub whose: Whose<'q>,
    pub limits: InternalLimits,
    /// Referral objects and glue are entries like any other (RFC 3296). Otherwise they are passed over.
    pub manage_dsa_it: bool,
    /// Subentries below the base are found, too (RFC 3672).
    pub subentries: bool,
    /// What overlays compute is not seen: neither by the filter nor in entries that are found.
    pub stored_alone: bool,
}

impl<'q> InternalSearch<'q> {
    /// A search as the server, of all kinds of entries, without limits.
    pub fn new(base: &'q NormalDn, scope: Scope, filter: &'q BoundFilter) -> Self {
        let (whose, limits) = (Whose::Server, InternalLimits::default());
        let stored_alone = false;
        Self { base, scope, filter, whose, limits, manage_dsa_it: true, subentries: true, stored_alone }
    }

    /// A search that identifies a user, with the rights of `subject`: of entries that are neither referral objects nor subentries.
    pub fn for_identity(
        base: &'q NormalDn,
        scope: Scope,
        filter: &'q BoundFilter,
        subject: &'q Subject,
    ) -> Self {
        let whose = Whose::Identity(subject);
        Self { manage_dsa_it: false, subentries: false, ..Self::new(base, scope, filter).of(whose) }
    }

    /// The same search of what is stored. An overlay that computes from other databases asks so: theirs may compute from its own.
    #[must_use]
    pub fn of_what_is_stored(self) -> Self {
        Self { stored_alone: true, ..self }
    }

    /// The same search under another identity.
    #[must_use]
    pub fn of(self, whose: Whose<'q>) -> Self {
        Self { whose, ..self }
    }

    /// The same search within limits.
    #[must_use]
    pub fn within(self, limits: InternalLimits) -> Self {
        Self { limits, ..self }
    }
}

/// Whose search it is. Access rules apply to requesters alone.
#[derive(Copy, Clone, Debug)]
pub enum Whose<'q> {
    /// The server looks for what is stored.
    Server,
    /// The search is the database's root DN's.
    Root,
    /// Filters need `search`, and entries that may not be read are not found.
    Requester(&'q Subject),
    /// The search identifies a user: filters need `auth`, and entries are named without being read.
    Identity(&'q Subject),
}

/// How much an internal search may take.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InternalLimits {
    /// Entries visited.
    pub entries: u64,
    /// Candidates looked at.
    pub candidates: u32,
    /// Candidates that it may begin with (`size.unchecked`).
    pub unchecked: Option<u32>,
}

impl Default for InternalLimits {
    fn default() -> Self {
        Self { entries: u64::MAX, candidates: u32::MAX, unchecked: None }
    }
}

/// What became of an internal search.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SearchOutcome {
    pub ended: SearchEnd,
    /// Entries visited.
    pub entries: u64,
    /// Candidates looked at.
    pub looked: u64,
    /// Whether indexes or a small scope gave the candidates. Otherwise it went over all entries.
    pub indexed: bool,
}

/// Why an internal search ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// All that matches was visited.
    Complete,
    /// The visitor wanted no more.
    Stopped,
    /// There is more than the limit of entries.
    TooManyEntries,
    /// It met a limit of work: more candidates than it may look at or begin with, or one that takes more steps than one entry may.
    TooMuchWork,
    /// The base does not exist, or the requester may not search there.
    NoBase,
}

/// An entry that an internal search found.
pub trait FoundEntry {
    fn id(&self) -> EntryId;

    /// # Errors
    /// A store that cannot be read.
    fn dn(&self) -> Result<&NormalDn, Fault>;

    /// The DN as it is shown.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn shown_dn(&self) -> Result<String, Fault>;

    /// All values, without regard to access.
    fn source(&self) -> &dyn EntrySource;

    /// Calls `visit` with each value of exactly this description that the searching identity may read, until `visit` answers false.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn visit_readable(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault>;

    /// A copy without regard to access, large sets left in the store.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn owned(&self) -> Result<Entry, Fault>;
}

/// What is called with each entry found, until it answers false.
pub type Visit<'f> = dyn FnMut(&dyn FoundEntry) -> Result<bool, Fault> + 'f;

/// The server's databases, for what is in another one than the one at hand.
pub trait OtherDatabases: Debug + Send + Sync {
    /// A copy of an entry, if it is in a database whose suffix has more RDNs than `own_depth`; large sets are left in the store.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn entry(&self, dn: &NormalDn, own_depth: usize) -> Result<Option<Entry>, Fault>;

    /// Searches the database that holds the base, if its suffix has more RDNs than `own_depth`; its own access rules hold there.
    /// `None`: there is no such database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn search(
        &self,
        query: &InternalSearch<'_>,
        own_depth: usize,
        visit: &mut Visit<'_>,
    ) -> Result<Option<SearchOutcome>, Fault>;
}
