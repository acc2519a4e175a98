//! `overlay mep`: an entry that is kept in step with another one, as by the managed entries plug-in of 389 Directory Server. The usual
//! one is the private group of a user.
//!
//! The origin and its managed entry are one commit: what cannot be done to the one is not done to the other. A template, an entry
//! of the directory, says what managed entries have.

mod config;
mod follow;
mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{
    Additions, Change, Descriptor, Entries, Failure, Interests, Overlay, OverlayDirective, PendingChange,
    PreparedChange, Refusal,
};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use follow::{Follow, Moved};
use template::Template;

pub static DESCRIPTOR: Descriptor = Descriptor::new("mep", "olcLarixMepConfig", config::build)
    .once()
    .schema(
        "attributetype ( 2.16.840.1.113730.3.1.2086 NAME 'mepManagedBy' DESC 'the origin of a managed entry' \
         EQUALITY distinguishedNameMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.12 )\n\
         attributetype ( 2.16.840.1.113730.3.1.2087 NAME 'mepManagedEntry' DESC 'the managed entry of an origin' \
         EQUALITY distinguishedNameMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.12 )\n\
         attributetype ( 2.16.840.1.113730.3.1.2088 NAME 'mepStaticAttr' DESC 'attribute: value' \
         SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )\n\
         attributetype ( 2.16.840.1.113730.3.1.2089 NAME 'mepMappedAttr' DESC 'attribute: $attribute of the origin' \
         SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )\n\
         attributetype ( 2.16.840.1.113730.3.1.2090 NAME 'mepRDNAttr' DESC 'the attribute that names managed entries' \
         EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )\n\
         objectclass ( 2.16.840.1.113730.3.2.319 NAME 'mepManagedEntry' SUP top AUXILIARY MAY mepManagedBy )\n\
         objectclass ( 2.16.840.1.113730.3.2.320 NAME 'mepOriginEntry' SUP top AUXILIARY MAY mepManagedEntry )\n\
         objectclass ( 2.16.840.1.113730.3.2.321 NAME 'mepTemplateEntry' SUP top AUXILIARY \
         MAY ( cn $ mepStaticAttr $ mepMappedAttr $ mepRDNAttr ) )",
    )
    .directives(&[OverlayDirective::words("mep-definition", "olcLarixMepDefinition").many().arguments(5, 5)]);

/// The overlay of one database.
#[derive(Debug)]
struct ManagedEntries(Arc<Rules>);

/// What is configured.
#[derive(Debug)]
struct Rules {
    definitions: Vec<Definition>,
    names: Names,
}

/// `mep-definition`
#[derive(Debug)]
struct Definition {
    name: String,
    /// Of origins.
    scope: NormalDn,
    filter: BoundFilter,
    /// Of managed entries.
    base: NormalDn,
    base_text: String,
    template: NormalDn,
    template_text: String,
}

/// Attributes of 389's schema.
#[derive(Debug)]
struct Names {
    managed_entry: AttributeDescription,
    managed_by: AttributeDescription,
    rdn: AttributeDescription,
    fixed: AttributeDescription,
    mapped: AttributeDescription,
    object_class: AttributeDescription,
    /// `(objectClass=mepOriginEntry)`
    origins: BoundFilter,
    /// `(objectClass=mepManagedEntry)`
    managed: BoundFilter,
}

fn unwilling(text: impl Into<String>) -> Refusal {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text.into()).into()
}

impl Overlay for ManagedEntries {
    fn name(&self) -> &'static str {
        "mep"
    }

    fn interests(&self) -> Interests {
        if self.0.definitions.is_empty() { Interests::NONE } else { Interests::PREPARE }
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let rules = &self.0;
        if !change.derived {
            rules.check_template(change)?;
            rules.check_managed(change)?;
        }
        let moved = match change.operation {
            PreparedChange::Add { dn, .. } => Moved { before: None, after: Some(dn.clone()), all: false },
            PreparedChange::Modify { dn, .. } => {
                Moved { before: Some(dn.clone()), after: Some(dn.clone()), all: false }
            }
            PreparedChange::Delete { dn } => {
                Moved { before: Some(dn.clone()), after: None, all: change.controls.tree_delete }
            }
            PreparedChange::ModifyDn(rename) => {
                let all = change.entries.has_subordinates(&rename.dn)?;
                Moved { before: Some(rename.dn.clone()), after: Some(rename.target()), all }
            }
            _ => return Ok(Additions::default()),
        };
        if !rules.concerns(&moved) {
            return Ok(Additions::default());
        }
        let follow = Follow { rules: Arc::clone(rules), moved };
        Ok(Additions { follow_up: Some(Box::new(follow)), ..Additions::default() })
    }
}

impl Rules {
    /// Whether a name is one of origins, or may be above some.
    fn concerns(&self, moved: &Moved) -> bool {
        let is_near = |dn: &NormalDn| {
            let near = |definition: &Definition| {
                dn.is_within(&definition.scope) || moved.all && definition.scope.is_within(dn)
            };
            self.definitions.iter().any(near)
        };
        moved.before.iter().chain(&moved.after).any(is_near)
    }

    /// The first definition that is about the entry.
    fn of_origin(
        &self,
        entries: &dyn Entries,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<Option<&Definition>, Failure> {
        for definition in &self.definitions {
            if dn.is_within(&definition.scope) && entries.matches(dn, entry, &definition.filter)? {
                // A managed entry has none of its own: each might make another one, without end.
                let is_managed = entries.matches(dn, entry, &self.names.managed)?;
                return Ok((!is_managed).then_some(definition));
            }
        }
        Ok(None)
    }

    fn template(
        &self,
        definition: &Definition,
        entries: &dyn Entries,
        schema: &Schema,
    ) -> Result<Template, Refusal> {
        let Definition { name, template_text, .. } = definition;
        let Some(entry) = entries.entry(&definition.template)? else {
            return Err(unwilling(format!(
                "managed entries: the template \"{template_text}\" of the definition \"{name}\" does not exist; add it first"
            )));
        };
        Template::of(&entry, &self.names, schema)
            .map_err(|why| unwilling(format!("managed entries: the template \"{template_text}\": {why}")))
    }

    /// A template in use stays where it is, and stays one.
    fn check_template(&self, change: &PendingChange<'_>) -> Result<(), Refusal> {
        let dn = change.operation.dn();
        let is_above = |definition: &&Definition| definition.template.is_within(dn);
        let Some(definition) = self.definitions.iter().find(is_above) else { return Ok(()) };
        let is_template = definition.template == *dn;
        match change.operation {
            PreparedChange::Delete { .. } if is_template || change.controls.tree_delete => Err(unwilling(
                "Deleting an active managed entries template is not allowed. Delete the associated config entry first.",
            )),
            PreparedChange::ModifyDn(_) => Err(unwilling(
                "Renaming an active managed entries template is not allowed. Create a new template and modify the associated \
                 config entry instead.",
            )),
            _ => Ok(()),
        }
    }

    /// Managed entries are changed with their origins.
    fn check_managed(&self, change: &PendingChange<'_>) -> Result<(), Refusal> {
        let dn = change.operation.dn();
        let is_near = |definition: &Definition| {
            dn.is_within(&definition.base) || change.controls.tree_delete && definition.base.is_within(dn)
        };
        if !self.definitions.iter().any(is_near) {
            return Ok(());
        }
        match change.operation {
            PreparedChange::Modify { mods, .. } => self.check_mapped(change, dn, mods),
            PreparedChange::Delete { .. } if !change.entries.is_root(change.subject) => {
                let text = "Deleting a managed entry is not allowed. It needs to be manually unlinked first.";
                self.check_unmanaged(change, dn, change.controls.tree_delete, text)
            }
            PreparedChange::ModifyDn(_) if !change.entries.is_root(change.subject) => {
                let text = "Renaming a managed entry is not allowed. It needs to be manually unlinked first.";
                self.check_unmanaged(change, dn, false, text)
            }
            _ => Ok(()),
        }
    }

    fn check_mapped(
        &self,
        change: &PendingChange<'_>,
        dn: &NormalDn,
        mods: &[Change],
    ) -> Result<(), Refusal> {
        let Some(entry) = change.entries.entry(dn)? else { return Ok(()) };
        let Some(origin_dn) = self.origin_of(&entry, change.schema) else { return Ok(()) };
        let Some(origin) = change.entries.entry(&origin_dn)? else { return Ok(()) };
        let Some(definition) = self.of_origin(change.entries, &origin_dn, &origin)? else { return Ok(()) };
        let template = self.template(definition, change.entries, change.schema)?;
        for one in mods {
            let name = one.description.to_text(change.schema);
            if template.maps(&name) {
                return Err(unwilling(format!(
                    "Modifying a mapped attribute in a managed entry is not allowed. The \"{name}\" attribute is mapped for this \
                     entry."
                )));
            }
        }
        Ok(())
    }

    /// Refuses what is about managed entries whose origins stay.
    fn check_unmanaged(
        &self,
        change: &PendingChange<'_>,
        dn: &NormalDn,
        tree: bool,
        text: &str,
    ) -> Result<(), Refusal> {
        let scope = if tree { Scope::Subtree } else { Scope::Base };
        let query = InternalSearch::new(dn, scope, &self.names.managed);
        let mut stays = false;
        change.entries.search(&query, &mut |found| {
            let origin = self.origin_of(&found.owned()?, change.schema);
            stays = !origin.is_some_and(|origin| tree && origin.is_within(dn));
            Ok(!stays)
        })?;
        if stays { Err(unwilling(text)) } else { Ok(()) }
    }

    /// `mepManagedBy` of a managed entry.
    fn origin_of(&self, entry: &Entry, schema: &Schema) -> Option<NormalDn> {
        self.name_in(entry, &self.names.managed_by, schema)
    }

    fn name_in(&self, entry: &Entry, attribute: &AttributeDescription, schema: &Schema) -> Option<NormalDn> {
        let value = entry.attribute(attribute)?.values.first()?;
        schema.parse_dn(std::str::from_utf8(value).ok()?).ok()
    }
}
