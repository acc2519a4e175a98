//! What a client sees of entries that have more than it has asked for.

use std::sync::Arc;

use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::{Entry, EntryAttribute};
use larix_proto::encode::EntryEncoder;
use larix_proto::{LdapResult, MessageId, SearchResultEntry};
use larix_schema::{NormalDn, Schema};

/// A client's search, as it is answered here.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) schema: Arc<Schema>,
    /// Of the database.
    pub(super) policy: Arc<AccessPolicy>,
    /// Lets everything through.
    pub(super) open_policy: Arc<AccessPolicy>,
    pub(super) subject: Arc<Subject>,
    /// The filter and the list of attributes.
    pub(super) search: OneByOne,
    /// The list as it was sent.
    pub(super) names: Vec<String>,
    pub(super) types_only: bool,
    pub(super) message: MessageId,
}

impl Projection {
    /// What the schema knows of an entry; none: an attribute has no values, or there is one twice.
    pub(super) fn entry_of(&self, found: &SearchResultEntry<'_>) -> Option<Entry> {
        let mut entry = Entry::new(found.dn);
        for attribute in found.attributes.iter() {
            if attribute.values.is_empty() {
                return None;
            }
            let Ok(description) = self.schema.describe(attribute.description) else { continue };
            let values = attribute.values.iter().map(<[u8]>::to_vec).collect();
            entry.attributes.push(EntryAttribute::new(description, values));
        }
        let mut descriptions: Vec<_> = entry.attributes.iter().map(|one| &one.description).collect();
        descriptions.sort_unstable();
        let is_twice = descriptions.windows(2).any(|pair| pair.first() == pair.last());
        (!is_twice).then_some(entry)
    }

    /// Whether the filter is true of an entry, for any requester.
    pub(super) fn is_found(&self, dn: &NormalDn, entry: &Entry) -> bool {
        self.matches((&self.open_policy, &Subject::default()), dn, entry).unwrap_or(false)
    }

    /// Whether it is true of what the requester may search of it, and the entry may be read.
    ///
    /// # Errors
    /// The filter costs more steps than one request may.
    pub(super) fn may_find(&self, dn: &NormalDn, entry: &Entry) -> Result<bool, LdapResult> {
        self.matches((&self.policy, &self.subject), dn, entry)
    }

    fn matches(
        &self,
        (policy, subject): (&AccessPolicy, &Subject),
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<bool, LdapResult> {
        let tree = MemoryTree::empty(&self.schema, policy, subject);
        // An entry that may not be read does not count.
        let matched = self.search.finds(&tree, dn, entry);
        matched.map_err(|fault| fault.to_result())
    }

    /// Appends the message with what was asked for. What may be read of it is judged in front.
    pub(super) fn write(&self, found: &SearchResultEntry<'_>, out: &mut Vec<u8>) {
        let mut encoder = EntryEncoder::begin(out, self.message, found.dn);
        for attribute in found.attributes.iter() {
            if !self.is_requested(attribute.description) {
                continue;
            }
            encoder.begin_attribute(attribute.description);
            if !self.types_only {
                attribute.values.iter().for_each(|value| encoder.value(value));
            }
            encoder.end_attribute();
        }
        encoder.finish(&[]);
    }

    fn is_requested(&self, name: &str) -> bool {
        match self.schema.describe(name) {
            Ok(description) => self.search.selects(&self.schema, &description),
            // Every attribute that the schema does not know may be a user attribute.
            Err(_) if self.names.is_empty() => true,
            Err(_) => {
                let base = name.split(';').next().unwrap_or(name);
                let is_it = |own: &String| {
                    own == "*" || own.eq_ignore_ascii_case(name) || own.eq_ignore_ascii_case(base)
                };
                self.names.iter().any(is_it)
            }
        }
    }
}
