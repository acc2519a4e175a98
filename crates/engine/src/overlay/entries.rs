//! What overlays may ask of entries, and the names that entries have as values.

use std::fmt::Debug;

use larix_schema::{AttributeDescription, BoundFilter, NormalDn};

use super::Failure;
use super::internal_search::{InternalSearch, SearchOutcome, Visit};
use crate::access::{EntrySet, GroupQuery, Privilege, Subject};
use crate::entry::{Entry, EntryAttribute, EntryId};

/// What something depends on that is remembered from one commit to the next.
#[derive(Copy, Clone, Debug)]
pub struct Dependencies<'a> {
    /// The values of these, in any entry. One without an equality index has always changed.
    pub attributes: &'a [AttributeDescription],
    /// That no entry is added.
    pub entries: bool,
    /// That no entry is renamed, moved or deleted.
    pub names: bool,
}

/// Entries by name: the database's in the state that the change finds, others as they are committed.
pub trait Entries: Debug {
    /// The entry of this DN, here or in another database, large sets left in the store; `None` when there is none.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn entry(&self, dn: &NormalDn) -> Result<Option<Entry>, Failure>;

    /// Brings the values of an attribute of this entry that were left in the store.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn bring(&self, dn: &NormalDn, attribute: &mut EntryAttribute) -> Result<(), Failure> {
        if attribute.large.is_none() {
            return Ok(());
        }
        let mut values = Vec::new();
        let query = InternalSearch::new(dn, larix_proto::Scope::Base, &BoundFilter::True).of_what_is_stored();
        self.search(&query, &mut |found| {
            found.source().visit_exact(&attribute.description, &mut |value| {
                values.push(value.to_vec());
                true
            })?;
            Ok(false)
        })?;
        (attribute.values, attribute.large) = (values, None);
        Ok(())
    }

    /// Whether there is an entry of this DN, here or in another database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn exists(&self, dn: &NormalDn) -> Result<bool, Failure> {
        Ok(self.entry(dn)?.is_some())
    }

    /// The entry of this DN in this database; `None` when there is none.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn id_of(&self, dn: &NormalDn) -> Result<Option<EntryId>, Failure>;

    /// Takes steps from those that the request has left for the entry that it looks at: what an overlay computes costs them. A step is about
    /// what it takes to compare one short value.
    ///
    /// # Errors
    /// There are none left.
    fn charge(&self, _steps: u64) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether it is the database's root DN.
    fn is_root(&self, subject: &Subject) -> bool;

    /// The name of an entry of this database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn name_of(&self, _id: EntryId) -> Result<Option<NormalDn>, Failure> {
        Ok(None)
    }

    /// The ids of the entries of this database that an attribute of an entry of it names, ascending, each once.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn named_by(&self, _id: EntryId, _attribute: &AttributeDescription) -> Result<Vec<u64>, Failure> {
        Ok(Vec::new())
    }

    /// The ids of the entries of this database that a filter matches, ascending, without regard to access; `None`: indexes alone do not
    /// tell.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn indexed_ids(&self, _filter: &BoundFilter) -> Result<Option<Vec<u64>>, Failure> {
        Ok(None)
    }

    /// Tells the state of this database that is read apart from others; `None`: changes are laid over it.
    fn commit(&self) -> Option<u64>;

    /// The commit in whose state, too, everything would be found that is found here and depends on this alone: changes that are laid over it
    /// do not alter that. `None` where they do, or where that is not known.
    fn found_at(&self, _dependencies: &Dependencies<'_>) -> Option<u64> {
        self.commit()
    }

    /// Whether overlays compute values of the attribute.
    fn is_computed(&self, _attribute: &AttributeDescription) -> bool {
        false
    }

    /// Whether what was found in the state of an earlier [`Self::commit`] or [`Self::found_at`] holds in this one, if it depends on this alone. False also where
    /// that is not known.
    fn is_as_at(&self, _commit: u64, _dependencies: &Dependencies<'_>) -> bool {
        false
    }

    /// Whether the subject has the privilege on an attribute of this entry, which need not be stored.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn allows(
        &self,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
        attribute: &AttributeDescription,
        privilege: Privilege,
    ) -> Result<bool, Failure>;

    /// Whether the subject has the privilege `manage` on this entry, which need not be stored.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn manages(&self, subject: &Subject, dn: &NormalDn, entry: &Entry) -> Result<bool, Failure>;

    /// Whether the set has any value for this entry, which need not be stored; without regard to access. `None`: that cannot be
    /// told, as where a limit is met.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn has_any(
        &self,
        set: &EntrySet,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<Option<bool>, Failure>;

    /// Whether a filter matches this entry, which need not be stored; without regard to access.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn matches(&self, dn: &NormalDn, entry: &Entry, filter: &BoundFilter) -> Result<bool, Failure>;

    /// An internal search: in this database as the change finds it, by its indexes, whatever of it is committed; in another one
    /// that holds the base as it is committed. Hands entries to `visit` until it answers false.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn search(&self, query: &InternalSearch<'_>, visit: &mut Visit<'_>) -> Result<SearchOutcome, Failure>;

    /// As [`Self::search`], until the first entry: whether there is any.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn finds_any(&self, query: &InternalSearch<'_>) -> Result<SearchOutcome, Failure> {
        self.search(query, &mut |_| Ok(false))
    }

    /// Whether the group has this member.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> Result<bool, Failure>;

    /// Whether there are entries below this one of the database.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn has_subordinates(&self, dn: &NormalDn) -> Result<bool, Failure>;

    /// The entries of this database that have any of the names as a value of any of the attributes. One name costs a look-up
    /// in the equality index of each attribute, all within one a look at every key there; an attribute without such an
    /// index a look at every entry.
    ///
    /// # Errors
    /// A store that cannot be read; adminLimitExceeded for more than [`crate::write::REFERENCES_LIMIT`] values.
    fn referrers(
        &self,
        attributes: &[AttributeDescription],
        sought: ReferenceTarget<'_>,
    ) -> Result<Vec<Referrer>, Failure>;
}

/// Names that are looked for among values, whether there are such entries or not.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReferenceTarget<'a> {
    /// This one alone.
    Name(&'a NormalDn),
    /// It and all below it.
    Within(&'a NormalDn),
}

impl ReferenceTarget<'_> {
    pub fn includes(&self, name: &NormalDn) -> bool {
        match self {
            Self::Name(sought) => name == *sought,
            Self::Within(top) => name.is_within(top),
        }
    }
}

/// A value that is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub normal: NormalDn,
    /// As it stands there, or its normal form: to take it out either will do.
    pub text: String,
}

/// An entry that has names of others as values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    pub dn: NormalDn,
    pub references: Vec<Reference>,
}

/// Names in one attribute of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub attribute: AttributeDescription,
    /// Those that were looked for, in the order of the values.
    pub names: Vec<Name>,
    /// How many values it has in all.
    pub values: u64,
}
