//! A record of the change log as an entry.

use larix_engine::access::{AccessPolicy, Item, Privilege};
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::log::{LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_proto::ModifyOperation;
use larix_proto::ldif::{Modification, Writer};
use larix_schema::Schema;

use super::NAME;
use crate::secrets::is_secret_in;
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::MemoryTree;

/// What a subject sees of changes.
#[derive(Debug)]
pub(super) struct ChangeView<'a> {
    /// The subject, and the rules of cn=changelog.
    pub(super) tree: &'a MemoryTree<'a>,
    /// The rules of the database that was changed.
    pub(super) source: &'a AccessPolicy,
    pub(super) subschema_dn: &'a str,
}

impl ChangeView<'_> {
    /// The entry, without secret values that the subject may not read.
    pub(super) fn entry(&self, number: u64, record: &LogRecord) -> Entry {
        let schema = self.tree.schema;
        let dn = format!("changeNumber={number},{NAME}");
        let (kind, changes) = self.changes(&dn, record);
        let mut built = Builder::new(schema, dn.clone())
            .classes(&["top", "changeLogEntry"])
            .one("changeNumber", number.to_string())
            .one("targetDN", record.dn.clone())
            .one("changeTime", record.csn.time.generalized())
            .one("changeType", kind)
            .add("changes", Some(changes).filter(|changes| !changes.is_empty()));
        if let LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, .. } = &record.change {
            built = built
                .one("newRDN", new_rdn.clone())
                .one("deleteOldRDN", if *delete_old_rdn { "TRUE" } else { "FALSE" })
                .add("newSuperior", new_superior.clone());
        }
        let uuid = Some(record.entry_uuid).filter(|uuid| !uuid.is_nil());
        let who = Some(&record.requester).filter(|who| !who.is_empty() && schema.parse_dn(who).is_ok());
        built
            .add("targetUniqueId", uuid.map(|uuid| uuid.to_string()))
            .add("changeInitiatorsName", who.cloned())
            .one("entryDN", dn)
            .one("subschemaSubentry", self.subschema_dn.to_owned())
            .build()
    }

    /// changeType and changes.
    fn changes(&self, dn: &str, record: &LogRecord) -> (&'static str, Vec<u8>) {
        let mut out = Vec::new();
        let writer = Writer::new(None);
        let kind = match &record.change {
            LoggedChange::Add(attributes) => {
                for LoggedAttribute { description, values } in attributes {
                    if self.may_show(dn, record, description) {
                        values.iter().for_each(|value| writer.value(&mut out, description, value));
                    }
                }
                "add"
            }
            LoggedChange::Modify(modifications) => {
                let shown =
                    modifications.iter().filter(|it| self.may_show(dn, record, &it.attribute.description));
                shown.for_each(|it| writer.modification(&mut out, &modification(it)));
                "modify"
            }
            LoggedChange::Delete => "delete",
            LoggedChange::ModifyDn { modifications, .. } => {
                // The new name implies the changes of its own values.
                let implied = |it: &&LoggedModification| {
                    !matches!(it.kind, LoggedKind::SoftAdd | LoggedKind::Delete)
                        && self.may_show(dn, record, &it.attribute.description)
                };
                let shown = modifications.iter().filter(implied);
                shown.for_each(|it| writer.modification(&mut out, &modification(it)));
                "modrdn"
            }
        };
        (kind, out)
    }

    /// Whether the subject sees values of this attribute. Secret ones need more than the right to read `changes`: to read the attribute
    /// below cn=changelog, and in the entry that was changed, by the rules of its own database.
    fn may_show(&self, dn: &str, record: &LogRecord, attribute: &str) -> bool {
        let schema = self.tree.schema;
        if !is_secret_in(schema, attribute) {
            return true;
        }
        let Ok(description) = schema.describe(attribute) else { return false };
        let item = || Item::Attribute { description: &description, value: None };
        let (Ok(own), Ok(target)) = (schema.parse_dn(dn), schema.parse_dn(&record.dn)) else { return false };
        let source = MemoryTree::empty(schema, self.source, self.tree.subject);
        self.tree.allows(&own, &Entry::new(dn), item(), Privilege::Read)
            && source.allows(&target, &target_of(schema, record), item(), Privilege::Read)
    }
}

/// What is known of the entry that was changed, for rules that ask about its attributes.
fn target_of(schema: &Schema, record: &LogRecord) -> Entry {
    let mut entry = Entry::new(record.dn.clone());
    if let LoggedChange::Add(attributes) = &record.change {
        let known = attributes.iter().filter_map(|it| Some((schema.describe(&it.description).ok()?, it)));
        entry
            .attributes
            .extend(known.map(|(description, it)| EntryAttribute::new(description, it.values.clone())));
    }
    entry
}

fn modification(logged: &LoggedModification) -> Modification {
    Modification {
        operation: match logged.kind {
            LoggedKind::Add | LoggedKind::SoftAdd => ModifyOperation::Add,
            LoggedKind::Delete => ModifyOperation::Delete,
            LoggedKind::Replace => ModifyOperation::Replace,
            LoggedKind::Increment => ModifyOperation::Increment,
        },
        description: logged.attribute.description.clone(),
        values: logged.attribute.values.clone(),
    }
}
