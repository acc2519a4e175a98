//! Sets outside of access rules: what `overlay constraint` asks of an entry.

use std::cell::Cell;

use larix_schema::{AttributeDescription, Schema};

use super::facts::AccessTarget;
use super::lookup::Lookup;
use super::policy::AccessPolicy;
use super::sets::Set;
use super::subject::Subject;

/// A set of an access rule (slapd.access(5), "set"), parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySet(Set);

impl EntrySet {
    /// # Errors
    /// What is wrong, with the byte of the text at which it is.
    pub fn parse(schema: &Schema, text: &str) -> Result<Self, (usize, String)> {
        Set::parse(schema, text).map(Self).map_err(|fault| (fault.at, fault.why))
    }

    /// Whether the result depends on the requester.
    pub fn mentions_requester(&self) -> bool {
        self.0.mentions_requester()
    }

    /// Whether the result may depend on values of this attribute, of any entry.
    pub fn mentions(&self, schema: &Schema, description: &AttributeDescription) -> bool {
        self.0.mentions(schema, description)
    }
}

impl AccessPolicy {
    /// Whether the set has any value for this entry and requester. `None`: unknown, or a limit was met.
    pub fn has_any(&self, set: &EntrySet, subject: &Subject, target: &AccessTarget<'_>) -> Option<bool> {
        if set.0.mentions_requester() && subject.dn.is_none() {
            return Some(false);
        }
        let failed = Cell::new(false);
        let lookup = Lookup { policy: self, target, failed: &failed };
        let found = lookup.is_set(&set.0, subject.dn.as_ref());
        (!failed.get() && !target.entry.failed()).then_some(found)
    }
}
