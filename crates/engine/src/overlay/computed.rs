//! Attributes that overlays compute of entries.
//!
//! Filters, compares, assertion controls, sort keys, matched values, access rules and answers see them as they see stored
//! attributes, under the same access rules. They are never stored, replicated or exported, and a request with the
//! ManageDsaIT control does not see them.
//!
//! What an overlay looks at while it computes is what is stored, and what the overlays configured before it compute: no
//! overlay can come back to itself.

use std::fmt::Debug;
use std::sync::Arc;

use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::internal_search::Whose;
use super::{Entries, Interests, Overlay};
use crate::access::Subject;
use crate::entry::{Entry, EntryId, EntrySource};
use crate::failure::Failure;
use crate::fault::Fault;

/// The hook that computes attributes.
pub trait ComputedAttributes: Debug + Send + Sync {
    /// What it computes, of some entries or all: types without options. Asked whenever the configuration or the schema is another.
    fn attributes(&self, schema: &Schema) -> Vec<AttributeDescription>;

    /// Whether answers have the attribute, and not filters and compares alone.
    fn is_answered(&self, _attribute: &AttributeDescription) -> bool {
        true
    }

    /// Calls `visit` with each value of the attribute that the entry has beside its stored ones, each once, until it answers
    /// false.
    ///
    /// # Errors
    /// A store that cannot be read. A refusal leaves the entry as it is stored.
    fn visit(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure>;

    /// Whether [`Self::visit`] would give this value, by the normal form of the attribute's equality rule; `None`: look for
    /// it there.
    ///
    /// # Errors
    /// As for [`Self::visit`].
    fn has_value(
        &self,
        _of: &ComputedOf<'_>,
        _attribute: &AttributeDescription,
        _normal: &[u8],
    ) -> Result<Option<bool>, Failure> {
        Ok(None)
    }

    /// The entries of this database for which [`Self::visit`] gives the value; `None`: any may be.
    ///
    /// # Errors
    /// As for [`Self::visit`].
    fn holders(
        &self,
        _within: &ComputedIn<'_>,
        _attribute: &AttributeDescription,
        _normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        Ok(None)
    }
}

/// Entries for which a value is computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// In any order.
    pub ids: Vec<u64>,
    /// All of them have it. Otherwise each is asked.
    pub exact: bool,
}

/// The entry whose attributes are computed.
#[derive(Copy, Clone)]
pub struct ComputedOf<'a> {
    pub entry: &'a dyn StoredEntry,
    pub schema: &'a Schema,
    /// Other entries, in the same state.
    pub entries: &'a dyn Entries,
    /// Who searches or compares; `None`: rights do not matter, as where an access rule asks.
    pub requester: Option<&'a Subject>,
}

impl<'a> ComputedOf<'a> {
    pub fn within(&self) -> ComputedIn<'a> {
        ComputedIn { schema: self.schema, entries: self.entries, requester: self.requester }
    }
}

/// Where something is computed.
#[derive(Copy, Clone, Debug)]
pub struct ComputedIn<'a> {
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
    /// As in [`ComputedOf`].
    pub requester: Option<&'a Subject>,
}

impl<'a> ComputedIn<'a> {
    /// As whom an overlay searches on behalf of the requester.
    pub fn whose(&self) -> Whose<'a> {
        self.requester.map_or(Whose::Server, Whose::Requester)
    }
}

impl Debug for ComputedOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComputedOf").field("id", &self.entry.id()).finish_non_exhaustive()
    }
}

/// An entry as it is stored, or as a change is about to store it.
pub trait StoredEntry {
    /// `None`: it is not stored yet.
    fn id(&self) -> Option<EntryId>;

    /// # Errors
    /// A store that cannot be read.
    fn dn(&self) -> Result<&NormalDn, Fault>;

    /// Its values, and those that overlays configured before compute.
    fn source(&self) -> &dyn EntrySource;

    /// A copy of what is stored, large sets left in the store.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn owned(&self) -> Result<Entry, Fault>;

    /// Whether a filter matches the entry, as the requester may search it.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn matches(&self, filter: &BoundFilter) -> Result<bool, Fault>;
}

/// One attribute that one overlay computes.
#[derive(Clone, Debug)]
pub struct ComputedAttribute {
    pub description: AttributeDescription,
    /// As it is shown.
    pub text: Box<str>,
    pub operational: bool,
    /// The overlay's place in the configuration.
    at: usize,
    overlay: Arc<dyn Overlay>,
}

impl ComputedAttribute {
    /// What all overlays of a database compute, in the order of the configuration.
    pub(crate) fn all(schema: &Schema, overlays: &[Arc<dyn Overlay>]) -> Arc<[Self]> {
        let mut all = Vec::new();
        let computing = |overlay: &Arc<dyn Overlay>| overlay.interests().has(Interests::COMPUTE);
        for (at, overlay) in overlays.iter().enumerate().filter(|(_, overlay)| computing(overlay)) {
            let Some(computed) = overlay.computed() else { continue };
            all.extend(computed.attributes(schema).into_iter().map(|description| Self {
                text: description.to_text(schema).into(),
                operational: schema.attribute(description.attribute).is_operational(),
                description,
                at,
                overlay: Arc::clone(overlay),
            }));
        }
        all.into()
    }

    /// Who computes it.
    pub(crate) fn computed_by(&self) -> Option<&dyn ComputedAttributes> {
        self.overlay.computed()
    }

    /// Those of all that overlays configured before this one compute.
    pub(crate) fn before<'a>(&self, all: &'a [Self]) -> &'a [Self] {
        all.get(..all.partition_point(|other| other.at < self.at)).unwrap_or_default()
    }
}
