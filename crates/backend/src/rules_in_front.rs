//! Access rules for entries that another server or another database answers: what may be read of each.

use std::sync::Arc;

use larix_engine::access::{AccessPolicy, Item, Privilege, Subject};
use larix_engine::entry::{Entry, EntryAttribute};
use larix_proto::ber::{Tag, write};
use larix_proto::{Response, SearchResultEntry, oid};
use larix_schema::{NormalDn, Schema};

use crate::backend::Context;
use crate::cursor::{AnswerFilter, Cursor, End, FilteredSearch};
use crate::intercept::{Interceptor, Next, Operations};
use crate::memory_tree::{MemoryTree, SyncSelection};
use crate::operation::Search;

/// The tag of an entry (RFC 4511 section 4.5.2).
const ENTRY: u8 = 0x64;
/// `objectClass` (RFC 4512 section 3.3).
const OBJECT_CLASS: &str = "2.5.4.0";

/// What a requester may read.
#[derive(Clone, Debug)]
pub struct ReadRights {
    pub schema: Arc<Schema>,
    pub policy: Arc<AccessPolicy>,
    pub subject: Arc<Subject>,
    /// Values were not asked for.
    pub types_only: bool,
}

impl ReadRights {
    /// Whether everything may be read.
    pub fn are_all(&self) -> bool {
        self.policy.lets_all_read() || self.policy.is_root(&self.subject)
    }

    /// Appends what may be seen of an entry's message, and of that what the schema knows; none: nothing may.
    pub fn filter(&self, message: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let decoded = Response::decode_message(message).ok()?;
        let Response::Entry(found) = decoded.response else { return None };
        let dn = self.schema.parse_dn(found.dn).ok()?;
        let entry = self.entry(&found);
        let tree = MemoryTree::empty(&self.schema, &self.policy, &self.subject);
        if !tree.allows(&dn, &entry, Item::Entry, Privilege::Read) {
            return None;
        }
        // Attributes of other entries stand in the dereference control: to those the rules have not been applied.
        let shown = decoded.controls.iter().filter(|control| control.oid != oid::DEREF);
        let controls: Vec<_> = shown.map(|control| control.to_owned()).collect();
        if self.types_only {
            self.names_only(&dn, &entry, &tree, (decoded.id.0, &found), out);
            return Some(());
        }
        let names = ["*".to_owned(), "+".to_owned()];
        let (schema, policy, subject) = (&*self.schema, &*self.policy, &*self.subject);
        let selection = SyncSelection { schema, policy, subject, names: &names, types_only: false };
        selection.write(&dn, &entry, (decoded.id, &controls), out);
        Some(())
    }

    /// An entry of attribute types without values.
    fn names_only(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        tree: &MemoryTree<'_>,
        (id, found): (u32, &SearchResultEntry<'_>),
        out: &mut Vec<u8>,
    ) {
        write::constructed(out, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(id));
            write::constructed(out, Tag(ENTRY), |out| {
                write::string(out, found.dn);
                write::constructed(out, Tag::SEQUENCE, |out| {
                    for attribute in found.attributes.iter() {
                        let Ok(description) = self.schema.describe(attribute.description) else { continue };
                        let item = Item::Attribute { description: &description, value: None };
                        if tree.allows(dn, entry, item, Privilege::Read) {
                            write::constructed(out, Tag::SEQUENCE, |out| {
                                write::string(out, attribute.description);
                                write::constructed(out, Tag::SET, |_| {});
                            });
                        }
                    }
                });
            });
        });
    }

    /// What of it is known to the schema.
    fn entry(&self, found: &SearchResultEntry<'_>) -> Entry {
        let mut entry = Entry::new(found.dn);
        for attribute in found.attributes.iter() {
            let Ok(description) = self.schema.describe(attribute.description) else { continue };
            let is_class = self.schema.attribute(description.attribute).oid == OBJECT_CLASS;
            let known = |value: &&[u8]| {
                !is_class
                    || std::str::from_utf8(value)
                        .is_ok_and(|name| self.schema.object_class_id(name).is_some())
            };
            let values: Vec<Vec<u8>> = attribute.values.iter().filter(known).map(<[u8]>::to_vec).collect();
            if !values.is_empty() || attribute.values.is_empty() {
                entry.attributes.push(EntryAttribute::new(description, values));
            }
        }
        entry
    }
}

impl AnswerFilter for ReadRights {
    fn message(&mut self, message: &[u8], out: &mut Vec<u8>) {
        match Response::decode_message(message).map(|decoded| decoded.response) {
            Ok(Response::Entry(_)) => {
                self.filter(message, out);
            }
            _ => out.extend_from_slice(message),
        }
    }
}

/// The access rules of a database in front of its overlays: they hold for entries as clients see them.
#[derive(Debug)]
pub struct RulesInFront {
    pub schema: Arc<Schema>,
    pub policy: Arc<AccessPolicy>,
}

impl Interceptor for RulesInFront {
    fn requests(&self) -> Operations {
        Operations::SEARCH
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let rights = ReadRights {
            schema: Arc::clone(&self.schema),
            policy: Arc::clone(&self.policy),
            subject: Arc::clone(context.subject),
            types_only: search.request.types_only,
        };
        let inner = next.open(context, search)?;
        if rights.are_all() {
            return Ok(inner);
        }
        Ok(Box::new(FilteredSearch::new(inner, rights)))
    }
}
