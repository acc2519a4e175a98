//! `overlay autogroup`: groups whose members are stored, and kept by the writer: who begins or ends to match one of a group's URLs
//! becomes a member or ends to be one in the same commit (slapo-autogroup(5)).

mod compiled;
mod config;
#[cfg(test)]
mod costs;
mod follow;
mod members;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larix_engine::index::Kinds;
use larix_engine::overlay::{
    Additions, Change, Descriptor, FollowUp, Interests, Overlay, OverlayDirective, PendingChange,
    PreparedChange, Refusal,
};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, BoundFilter, ObjectClassId, Schema};

use compiled::Compiled;
use follow::Follow;

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("autogroup", "olcAutoGroupConfig", config::build).once().directives(&[
        OverlayDirective::words("autogroup-attrset", "olcAutoGroupAttrSet")
            .ordered()
            .attribute_alias(&["olcAGattrSet"])
            .arguments(3, 3)
            .checked(config::check),
        OverlayDirective::words("autogroup-memberof-ad", "olcAutoGroupMemberOfAd")
            .attribute_alias(&["olcAGmemberOfAd"])
            .arguments(1, 1)
            .checked(config::check_attribute)
            .noted("a filter on it is looked at again with the next change of the entry itself"),
    ]);

/// The overlay on one database.
#[derive(Debug)]
struct AutoGroup(Arc<Settings>);

#[derive(Debug)]
struct Settings {
    sets: Vec<GroupSet>,
    /// The attributes with URLs of all sets, each once.
    urls: Vec<AttributeDescription>,
    /// The same, and objectClass.
    urls_and_class: Vec<AttributeDescription>,
    object_class: AttributeDescription,
    /// The groups as of the latest commit that the writer looked at.
    cached: ArcSwapOption<Compiled>,
}

/// `autogroup-attrset`
#[derive(Debug)]
struct GroupSet {
    class: ObjectClassId,
    class_name: String,
    /// `(objectClass=CLASS)`
    groups: BoundFilter,
    url: AttributeDescription,
    member: AttributeDescription,
}

impl Overlay for AutoGroup {
    fn name(&self) -> &'static str {
        "autogroup"
    }

    fn interests(&self) -> Interests {
        if self.0.sets.is_empty() { Interests::NONE } else { Interests::PREPARE }
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        // Groups are found by their URLs, and by their class where that index is not there yet. The equality index of URLs tells
        // which commits change any.
        let kinds = Kinds::PRESENCE.or(Kinds::EQUALITY);
        let urls = self.0.urls.iter().map(|attribute| (attribute.clone(), kinds));
        std::iter::once((self.0.object_class.clone(), Kinds::EQUALITY)).chain(urls).collect()
    }

    fn notes(&self, schema: &Schema) -> Vec<String> {
        let lacks = |set: &&GroupSet| !allows(schema, set.class, &set.member);
        let note = |set: &GroupSet| {
            let member = set.member.to_text(schema);
            format!(
                "overlay autogroup: the object class {} does not allow {member}: groups need another class that does, or have no members",
                set.class_name
            )
        };
        self.0.sets.iter().filter(lacks).map(note).collect()
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let (before, after, mods) = match change.operation {
            PreparedChange::Add { dn, .. } => (None, Some(dn.clone()), &[][..]),
            PreparedChange::Modify { dn, mods } => (Some(dn.clone()), Some(dn.clone()), mods.as_slice()),
            PreparedChange::Delete { dn } => (Some(dn.clone()), None, &[][..]),
            PreparedChange::ModifyDn(rename) => (Some(rename.dn.clone()), Some(rename.target()), &[][..]),
            _ => return Ok(Additions::default()),
        };
        if !change.derived && !mods.is_empty() {
            self.refuse_members(change, mods)?;
        }
        // Members that follow from a change make no other members: it would not have to end.
        if change.is_derived_about(|one| self.0.sets.iter().any(|set| set.member == one.description)) {
            return Ok(Additions::default());
        }
        let touches = |attribute: &AttributeDescription| mods.iter().any(|one| one.description == *attribute);
        let defines = touches(&self.0.object_class) || self.0.sets.iter().any(|set| touches(&set.url));
        let below = match change.operation {
            PreparedChange::Delete { .. } => change.controls.tree_delete,
            PreparedChange::ModifyDn(_) => true,
            _ => false,
        };
        let follow = Follow { settings: Arc::clone(&self.0), before, after, defines, below };
        Ok(Additions { follow_up: Some(Box::new(follow) as Box<dyn FollowUp>), ..Additions::default() })
    }
}

impl AutoGroup {
    /// Members of such groups are nobody's to change.
    fn refuse_members(&self, change: &PendingChange<'_>, mods: &[Change]) -> Result<(), Refusal> {
        let named = |set: &&GroupSet| mods.iter().any(|one| one.description == set.member);
        for set in self.0.sets.iter().filter(named) {
            let dn = change.operation.dn();
            if follow::matches(change.entries, dn, &set.groups)? {
                let text = "attempt to modify dynamic group member attribute";
                return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text).into());
            }
        }
        Ok(())
    }
}

/// Whether the class or one above it allows an attribute.
fn allows(schema: &Schema, class: ObjectClassId, attribute: &AttributeDescription) -> bool {
    let class = schema.class(class);
    class.must.iter().chain(&class.may).any(|id| *id == attribute.attribute)
        || class.superiors.iter().any(|superior| allows(schema, *superior, attribute))
}
