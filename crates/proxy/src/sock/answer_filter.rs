//! Entries that a program answers, on their way to a client.

use std::sync::Arc;

use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_engine::access::{AccessPolicy, Item, Privilege, Subject};
use larix_engine::entry::Entry;
use larix_proto::ldif::LdifAttribute;
use larix_proto::{DerefAliases, LdapResult, ResultCode, Scope};
use larix_schema::{NormalDn, Schema};

/// What becomes of entries.
#[derive(Debug)]
pub(super) struct AnswerFilter {
    pub(super) schema: Arc<Schema>,
    pub(super) policy: Arc<AccessPolicy>,
    pub(super) subject: Arc<Subject>,
    pub(super) search: OneByOne,
    pub(super) base: NormalDn,
    pub(super) scope: Scope,
    pub(super) deref: DerefAliases,
    /// How many more may be sent; none: any number.
    pub(super) remaining: Option<u32>,
}

impl AnswerFilter {
    /// The message with what the requester may read of an entry. None if the search is not about the entry or the requester may not
    /// read it.
    ///
    /// # Errors
    /// How the search ends before it: a name that is no DN, or as many entries as may be sent.
    pub(super) fn message(
        &mut self,
        dn: &str,
        attributes: Vec<LdifAttribute>,
    ) -> Result<Option<Vec<u8>>, LdapResult> {
        let normal = self.schema.parse_dn(dn).map_err(|_| {
            let text = "the program behind the socket answered with an entry whose name is no DN";
            LdapResult::with(ResultCode::OTHER, text)
        })?;
        // Where aliases lead elsewhere, entries are elsewhere.
        if self.deref == DerefAliases::Never && !normal.is_in_scope(&self.base, self.scope) {
            return Ok(None);
        }
        let mut entry = Entry::new(dn);
        for LdifAttribute { description, values } in attributes {
            // What the schema does not know cannot be shown.
            let Ok(description) = self.schema.describe(&description) else { continue };
            entry.attribute_or_insert(&description).values.extend(values);
        }
        let tree = MemoryTree::empty(&self.schema, &self.policy, &self.subject);
        if !tree.allows(&normal, &entry, Item::Entry, Privilege::Read) {
            return Ok(None);
        }
        match &mut self.remaining {
            Some(0) => return Err(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED)),
            Some(remaining) => *remaining -= 1,
            None => {}
        }
        let mut message = Vec::new();
        self.search.write(&tree, &normal, &entry, &mut message);
        Ok(Some(message))
    }
}
