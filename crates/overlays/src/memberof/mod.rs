//! `overlay memberof`: an attribute of members that says which groups name them.
//!
//! What it says is a function of the groups that there are, whatever the way that led to them: the entries of the group class
//! that have the entry's name as a member. It is a back link, which the writer keeps (`larix_engine::overlay::back_links`), with every change and for
//! changes of other servers, too. What is done here is what only requests of clients are asked about: whether members are there,
//! and what becomes of groups whose members go. Of an overlay that is meant for all databases groups of the others count, too: those
//! are computed ([`other_databases`]).

mod config;
mod other_databases;
#[cfg(test)]
mod tests;

use larix_engine::index::Kinds;
use larix_engine::overlay::committed::Committed;
use larix_engine::overlay::computed::ComputedAttributes;
use larix_engine::overlay::{
    Additions, BackLinkRule, Change, ChangeKind, Descriptor, InGluedDatabases, Interests, Overlay,
    OverlayDirective, PendingChange, PreparedChange, Refusal,
};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use other_databases::OtherDatabaseGroups;

use crate::refint::{OtherDatabase, ReferentialIntegrity, ReferentialIntegritySettings};

pub static DESCRIPTOR: Descriptor = Descriptor::new("memberof", "olcMemberOfConfig", config::build)
    .over_glue(InGluedDatabases::Each)
    .maintains(config::maintained)
    .shows(&["memberOf"])
    .local(&["memberOf"])
    .directives(&[
        OverlayDirective::whole("memberof-dn", "olcMemberOfDN").with_blanks(),
        OverlayDirective::words("memberof-dangling", "olcMemberOfDangling").default("ignore"),
        OverlayDirective::switch("memberof-refint", "olcMemberOfRefInt").default("FALSE"),
        OverlayDirective::words("memberof-group-oc", "olcMemberOfGroupOC"),
        OverlayDirective::whole("memberof-member-ad", "olcMemberOfMemberAD"),
        OverlayDirective::whole("memberof-memberof-ad", "olcMemberOfMemberOfAD"),
        OverlayDirective::switch("memberof-reverse", "olcMemberOfReverse")
            .noted("who is a member of what follows from the groups alone"),
        OverlayDirective::words("memberof-dangling-error", "olcMemberOfDanglingError"),
        OverlayDirective::switch("memberof-addcheck", "olcMemberOfAddCheck")
            .noted("an entry that is added says which groups name it already, always"),
    ]);

/// What becomes of members of which there is no entry (`memberof-dangling`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Dangling {
    #[default]
    Ignore,
    Drop,
    /// The change is refused with this result (`memberof-dangling-error`).
    Error(ResultCode),
}

/// `overlay memberof` with its directives.
#[derive(Clone, Debug)]
pub struct MembershipSettings {
    pub rule: BackLinkRule,
    pub dangling: Dangling,
    /// `memberof-refint`: groups follow when members are deleted or renamed.
    pub integrity: bool,
    /// `memberof-dn`: modifiersName of such groups; `None` where the database keeps no operational attributes.
    pub modifier: Option<String>,
    /// The other databases of an overlay that is meant for all: their groups count, and follow.
    pub others: Vec<OtherDatabase>,
}

/// Groups and their members.
#[derive(Debug)]
pub struct Membership {
    rule: BackLinkRule,
    dangling: Dangling,
    integrity: Option<ReferentialIntegrity>,
    other_groups: Option<OtherDatabaseGroups>,
}

impl Membership {
    pub fn new(settings: MembershipSettings) -> Self {
        let MembershipSettings { rule, dangling, integrity, modifier, others } = settings;
        let suffixes = others.iter().map(|other| other.suffix.clone()).collect();
        let other_groups = OtherDatabaseGroups::new(&rule, suffixes);
        let integrity = integrity.then(|| {
            ReferentialIntegrity::new(ReferentialIntegritySettings {
                attributes: vec![rule.forward.clone()],
                nothing: None,
                modifier,
                others,
            })
        });
        Self { rule, dangling, integrity, other_groups }
    }

    /// Whether the change names members of a group.
    fn names_members(&self, change: &PendingChange<'_>) -> Result<bool, Refusal> {
        let schema = change.schema;
        let is_group = |classes: &[Vec<u8>]| self.rule.is_source(schema, classes.iter().map(Vec::as_slice));
        let Some(object_class) = schema.attribute_type_id("objectClass") else { return Ok(false) };
        Ok(match change.operation {
            PreparedChange::Add { entry, .. } => is_group(entry.values(object_class)),
            PreparedChange::Modify { dn, mods }
                if mods.iter().any(|change| self.adds_members(schema, change)) =>
            {
                change.entries.entry(dn)?.is_some_and(|entry| is_group(entry.values(object_class)))
            }
            _ => false,
        })
    }

    fn adds_members(&self, schema: &Schema, change: &Change) -> bool {
        matches!(change.kind, ChangeKind::Add | ChangeKind::Replace | ChangeKind::SoftAdd)
            && !change.values.is_empty()
            && change.description.is_subdescription_of(schema, &self.rule.forward)
    }

    /// The change without members that are not there, or a refusal; `None` when it can stay as it is.
    fn checked(&self, change: &PendingChange<'_>) -> Result<Option<PreparedChange>, Refusal> {
        if self.dangling == Dangling::Ignore
            || change.derived
            || change.controls.relax
            || !self.names_members(change)?
        {
            return Ok(None);
        }
        let schema = change.schema;
        let (PreparedChange::Add { dn, mods, .. } | PreparedChange::Modify { dn, mods }) = change.operation
        else {
            return Ok(None);
        };
        let mut remaining = Vec::with_capacity(mods.len());
        let mut dropped = false;
        for requested in mods {
            if !self.adds_members(schema, requested) {
                remaining.push(requested.clone());
                continue;
            }
            let mut existing = Change { values: Vec::new(), keys: Vec::new(), ..requested.clone() };
            for (value, key) in requested.values.iter().zip(&requested.keys) {
                if is_there(change, dn, key)? {
                    existing.values.push(value.clone());
                    existing.keys.push(key.clone());
                } else if let Dangling::Error(code) = self.dangling {
                    let text = "adding non-existing object as group member";
                    return Err(LdapResult::with(code, text).into());
                } else {
                    dropped = true;
                }
            }
            if !existing.values.is_empty() {
                remaining.push(existing);
            }
        }
        Ok(dropped.then(|| self.with(schema, change.operation, remaining)))
    }

    /// The change with these modifications in the place of its own. What overlays before made of other attributes of a new entry stays.
    fn with(&self, schema: &Schema, operation: &PreparedChange, remaining: Vec<Change>) -> PreparedChange {
        let mut altered = operation.clone();
        match &mut altered {
            PreparedChange::Add { entry, mods, .. } => {
                entry.attributes.retain_mut(|attribute| {
                    if !attribute.description.is_subdescription_of(schema, &self.rule.forward) {
                        return true;
                    }
                    let reduced = remaining.iter().find(|change| change.description == attribute.description);
                    reduced.is_some_and(|reduced| {
                        attribute.values.clone_from(&reduced.values);
                        true
                    })
                });
                *mods = remaining;
            }
            PreparedChange::Modify { mods, .. } => *mods = remaining,
            _ => {}
        }
        altered
    }
}

/// Whether there is an entry that a value names, or the group names itself.
fn is_there(change: &PendingChange<'_>, group: &NormalDn, key: &[u8]) -> Result<bool, Refusal> {
    let Ok(text) = std::str::from_utf8(key) else { return Ok(false) };
    let name = NormalDn::from_normal(text);
    Ok(name == *group || change.entries.exists(&name)?)
}

impl Overlay for Membership {
    fn name(&self) -> &'static str {
        "memberof"
    }

    fn interests(&self) -> Interests {
        let prepares = self.dangling != Dangling::Ignore || self.integrity.is_some();
        let follows = self.integrity.as_ref().is_some_and(ReferentialIntegrity::follows_elsewhere);
        let mut interests = Interests::BACK_LINK;
        for (hook, wanted) in [
            (Interests::PREPARE, prepares),
            (Interests::COMMITTED, follows),
            (Interests::COMPUTE, self.other_groups.is_some()),
        ] {
            interests |= if wanted { hook } else { Interests::NONE };
        }
        interests
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        self.other_groups.as_ref().map(|other_groups| other_groups as &dyn ComputedAttributes)
    }

    fn committed(&self) -> Option<&dyn Committed> {
        self.integrity.as_ref().and_then(Overlay::committed)
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        // Who names an entry as a member is looked up with every change of it.
        vec![(self.rule.forward.clone(), Kinds::EQUALITY)]
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let mut additions = match &self.integrity {
            Some(integrity) => integrity.prepare(change)?,
            None => Additions::default(),
        };
        additions.altered = self.checked(change)?;
        Ok(additions)
    }

    fn back_link(&self) -> Option<&BackLinkRule> {
        Some(&self.rule)
    }
}
