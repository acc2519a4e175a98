//! Entries on their way out: overlays order, alter, drop or add values of what a search answers.
//!
//! An overlay is asked once for each slice of a search whether it wants to look at entries, and for each entry whether
//! this one concerns it. Entries that concern no overlay are copied as they are stored.

use std::fmt::Debug;

use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::Entries;
use super::computed::{ComputedIn, StoredEntry};
use crate::access::Subject;
use crate::controls::RequestControls;
use crate::failure::Failure;
use crate::fault::Fault;
use crate::time::Timestamp;

/// The hook on entries that a search answers. A consumer's search (RFC 4533) does not come here.
pub trait ShownEntries: Debug + Send + Sync {
    /// Whether to look at the entries in the answer to this request.
    fn wants(&self, request: &ShownRequest<'_>) -> bool;

    /// Whether to look at an entry.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn concerns(&self, entry: &dyn StoredEntry, schema: &Schema) -> Result<bool, Failure>;

    /// Alters what is answered of an entry.
    ///
    /// # Errors
    /// A store that cannot be read. A refusal leaves the entry as it is.
    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure>;

    /// Whether it orders values: then it comes behind those that add some, wherever it is configured.
    fn orders_values(&self) -> bool {
        false
    }
}

/// What a request wants to see of entries.
#[derive(Copy, Clone, Debug)]
pub struct ShownRequest<'a> {
    pub controls: &'a RequestControls,
    pub types_only: bool,
    /// No attribute is asked for by name, not even by `*`.
    pub names_none: bool,
    /// One attribute is wanted, to be compared with.
    pub compares: bool,
}

/// What is about to be answered of an entry.
pub struct ShownEntry<'a> {
    pub entry: &'a dyn StoredEntry,
    pub schema: &'a Schema,
    /// Whose request it is.
    pub requester: Option<&'a Subject>,
    pub entries: &'a dyn Entries,
    pub types_only: bool,
    /// When the slice of the search began, or the change that answers the entry was made. `None`: one attribute is compared with.
    pub now: Option<Timestamp>,
    /// The normal form of the value that is compared with.
    pub asserted: Option<&'a [u8]>,
    /// What was asked for and may be read, in the order of the answer.
    pub attributes: Vec<ShownAttribute>,
    pub(crate) gate: &'a dyn AttributeGate,
}

/// An attribute that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownAttribute {
    pub description: AttributeDescription,
    /// None with typesOnly.
    pub values: Vec<Box<[u8]>>,
}

/// What the request and the access rules say about additional attributes.
pub(crate) trait AttributeGate {
    /// Whether the request asks for it.
    fn asks_for(&self, description: &AttributeDescription) -> bool;

    /// Whether a value may be read, and matches the filters of the matched values control (RFC 3876).
    fn admits(&self, description: &AttributeDescription, value: &[u8]) -> Result<bool, Fault>;

    /// Whether the attribute may be read as a whole.
    fn may_read(&self, description: &AttributeDescription) -> Result<bool, Fault>;
}

impl<'a> ShownEntry<'a> {
    /// Where an overlay looks at other entries on behalf of the requester.
    pub fn within(&self) -> ComputedIn<'a> {
        ComputedIn { schema: self.schema, entries: self.entries, requester: self.requester }
    }

    /// The entry's name.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn dn(&self) -> Result<&NormalDn, Fault> {
        self.entry.dn()
    }

    pub fn attribute_mut(&mut self, description: &AttributeDescription) -> Option<&mut ShownAttribute> {
        self.attributes.iter_mut().find(|shown| shown.description == *description)
    }

    /// Whether the request asks for an attribute, which the entry need not have.
    pub fn asks_for(&self, description: &AttributeDescription) -> bool {
        self.gate.asks_for(description)
    }

    /// Adds values of an attribute, if they are asked for and the requester may read them in this entry. Those that are
    /// there already stay alone.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn add(
        &mut self,
        description: &AttributeDescription,
        values: impl IntoIterator<Item = Box<[u8]>>,
    ) -> Result<(), Fault> {
        if !self.gate.asks_for(description) || !self.gate.may_read(description)? {
            return Ok(());
        }
        let at = self.attributes.iter().position(|shown| shown.description == *description);
        let mut shown = match at {
            Some(at) => self.attributes.remove(at),
            None => ShownAttribute { description: description.clone(), values: Vec::new() },
        };
        let mut known: std::collections::HashSet<Box<[u8]>> = shown.values.iter().cloned().collect();
        let mut any = at.is_some();
        for value in values {
            if self.gate.admits(description, &value)? {
                any = true;
                if !self.types_only && known.insert(value.clone()) {
                    shown.values.push(value);
                }
            }
        }
        if any {
            self.attributes.insert(at.unwrap_or(self.attributes.len()), shown);
        }
        Ok(())
    }
}

impl Debug for ShownEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShownEntry").field("attributes", &self.attributes).finish_non_exhaustive()
    }
}
