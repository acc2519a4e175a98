//! The dynamic list overlay (slapo-dynlist(5)), with the semantics of OpenLDAP 2.5 to 2.7.
//!
//! * A dynamic **group** has an object class and URLs; the names of what they find are values of its member attribute. The
//!   attribute that says which groups an entry is in may be computed, too, of dynamic groups and of static ones, and
//!   through groups of groups. Both are computed attributes: filters and compares see them, and a filter for one value is
//!   answered from indexes.
//! * A dynamic **list** takes over attributes of what its URLs find. Those that are mapped, if only to themselves, are
//!   computed attributes; all others are added to what is answered, and a filter does not see them.
//!
//! URLs are evaluated with the rights of the requester, or of the group's dgIdentity. As in slapd no URL is expanded in
//! what another one finds.

mod cache;
mod config;
#[cfg(test)]
mod costs;
mod groups;
mod hooks;
mod identity;
mod lists;
mod numbers;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use arc_swap::ArcSwapOption;
use larix_engine::Fault;
use larix_engine::entry::EntrySource;
use larix_engine::index::Kinds;
use larix_engine::overlay::computed::{ComputedAttributes, StoredEntry};
use larix_engine::overlay::shown::ShownEntries;
use larix_engine::overlay::{
    Additions, Descriptor, Interests, Overlay, OverlayDirective, PendingChange, Piece, Refusal,
};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, ObjectClass, ObjectClassId, Schema};

use cache::{Dynamic, OfGroups, Remembered};

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("dynlist", "olcDynListConfig", config::build).once().shows(&["memberOf"]).directives(&[
        OverlayDirective::words("dynlist-attrset", "olcDynListAttrSet")
            .ordered()
            .attribute_alias(&["olcDlAttrSet"])
            .checked(config::check),
        OverlayDirective::words("dynlist-attrpair", "olcDynListAttrSet")
            .ordered()
            .alias(&["attrpair"])
            .arguments(2, 2)
            .standing_for(&[Piece::Word(config::USUAL_CLASS), Piece::Argument(1), Piece::Argument(0)])
            .checked(config::check_pair),
        OverlayDirective::switch("dynlist-simple", "olcDynListSimple"),
    ]);

/// The overlay on one database.
#[derive(Debug)]
pub struct DynList {
    sets: Vec<AttributeSet>,
    /// `dynlist-simple`: no memberOf, no filters; lists and groups are expanded in answers and compares alone.
    simple: bool,
    object_class: Option<AttributeDescription>,
    /// dgAuthz, whose values are numbered.
    authz: Option<AttributeDescription>,
    /// The groups by URL as of the latest commit that was looked at.
    dynamic: ArcSwapOption<Dynamic>,
    /// Entries that may be nested groups.
    of_groups: ArcSwapOption<OfGroups>,
    remembered: Mutex<Remembered>,
}

/// `dynlist-attrset`
#[derive(Clone, Debug)]
struct AttributeSet {
    class: ObjectClassId,
    /// What values of objectClass say of entries of the class.
    classes: ClassNames,
    /// The same of the static class of a group, if there is one.
    static_classes: ClassNames,
    /// The same for entries that may have members: of the class, or of the static one of a group.
    of_groups: ClassNames,
    restriction: Option<Restriction>,
    /// Whose values are URLs.
    url: AttributeDescription,
    maps: Vec<Map>,
}

/// Entries to which a set is restricted.
#[derive(Clone, Debug)]
struct Restriction {
    base: Option<NormalDn>,
    scope: Scope,
    filter: Option<BoundFilter>,
}

#[derive(Clone, Debug)]
struct Map {
    /// The member attribute of a group; of a list, what is found of other entries.
    attribute: AttributeDescription,
    /// What it is called in the list.
    mapped: Option<AttributeDescription>,
    member_of: Option<MemberOf>,
}

#[derive(Clone, Debug)]
struct MemberOf {
    attribute: AttributeDescription,
    static_class: Option<ObjectClassId>,
    nested: bool,
}

impl Map {
    /// What the values are called in the list or group.
    fn target(&self) -> &AttributeDescription {
        self.mapped.as_ref().unwrap_or(&self.attribute)
    }
}

impl AttributeSet {
    /// The member attribute, if it is a set of groups.
    fn group(&self) -> Option<&Map> {
        match self.maps.as_slice() {
            [map] if map.mapped.is_none() => Some(map),
            _ => None,
        }
    }

    /// Whether it is about this entry.
    fn is_about(&self, entry: &dyn StoredEntry) -> Result<bool, Fault> {
        if !self.classes.are_had_by(entry.source())? {
            return Ok(false);
        }
        let Some(restriction) = &self.restriction else { return Ok(true) };
        if let Some(base) = &restriction.base
            && !entry.dn()?.is_in_scope(base, restriction.scope)
        {
            return Ok(false);
        }
        restriction.filter.as_ref().map_or(Ok(true), |filter| entry.matches(filter))
    }
}

/// The values of objectClass that say that an entry has one of some classes, or one below them. Almost all entries have none of these,
/// and each that is answered is asked: so the values are compared as they stand.
#[derive(Clone, Debug)]
struct ClassNames {
    object_class: Option<AttributeDescription>,
    /// Names and OIDs.
    names: Vec<Box<str>>,
}

impl ClassNames {
    fn of(schema: &Schema, wanted: &[ObjectClassId]) -> Self {
        let is_meant = |class: &&ObjectClass| {
            wanted.iter().any(|own| class.id == *own || schema.is_subclass(class.id, *own))
        };
        let meant = schema.object_classes().filter(is_meant);
        let names = meant.flat_map(|class| std::iter::once(&class.oid).chain(&class.names));
        Self {
            object_class: schema.describe("objectClass").ok(),
            names: names.map(|name| name.as_str().into()).collect(),
        }
    }

    fn are_had_by(&self, entry: &dyn EntrySource) -> Result<bool, Fault> {
        let Some(object_class) = &self.object_class else { return Ok(false) };
        let mut found = false;
        entry.visit_exact(object_class, &mut |value| {
            found = self.names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(value));
            !found
        })?;
        Ok(found)
    }
}

impl DynList {
    fn new(schema: &Schema, sets: Vec<AttributeSet>, simple: bool) -> Self {
        Self {
            sets,
            simple,
            object_class: schema.describe("objectClass").ok(),
            authz: schema.describe("dgAuthz").ok(),
            dynamic: ArcSwapOption::empty(),
            of_groups: ArcSwapOption::empty(),
            remembered: Mutex::default(),
        }
    }
}

impl Overlay for DynList {
    fn name(&self) -> &'static str {
        "dynlist"
    }

    fn interests(&self) -> Interests {
        let mut interests = Interests::SHOW;
        if !self.simple {
            interests |= Interests::COMPUTE;
        }
        if self.authz.is_some() {
            interests |= Interests::PREPARE;
        }
        interests
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        match &self.authz {
            Some(authz) if !change.derived => numbers::number(change, authz),
            _ => Ok(Additions::default()),
        }
    }

    /// Groups are found by their class, and those with stored members by these.
    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        let maps = self.sets.iter().filter_map(AttributeSet::group).filter(|_| !self.simple);
        let looked_up = |map: &&Map| map.member_of.as_ref().is_some_and(|own| own.static_class.is_some());
        let members = maps.clone().filter(looked_up).map(|map| &map.attribute);
        let classes = maps.take(1).filter_map(|_| self.object_class.as_ref());
        classes.chain(members).map(|attribute| (attribute.clone(), Kinds::EQUALITY)).collect()
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        (!self.simple).then_some(self)
    }

    fn shown(&self) -> Option<&dyn ShownEntries> {
        Some(self)
    }
}
