//! Which attributes, and pseudo-attributes, a rule is about.

use larix_schema::{AttributeDescription, AttributeTypeId, Schema};

use super::fault::{AccessPolicyFault, Outcome};
use super::item::ItemKind;
use super::rule::AttributeSelector;

/// The attributes, and pseudo-attributes, that a rule is about.
#[derive(Debug)]
pub(super) struct ItemSet(pub(super) Vec<Selector>);

#[derive(Debug)]
pub(super) enum Selector {
    Entry,
    Children,
    Description(AttributeDescription),
    Exactly(AttributeDescription),
    Everything,
    /// Types a class requires or allows; their subtypes count.
    Class(Vec<AttributeTypeId>),
    NotClass(Vec<AttributeTypeId>),
}

impl ItemSet {
    /// Elements are tried in order; one that excludes ends the search.
    pub(super) fn contains(&self, schema: &Schema, item: ItemKind<'_>) -> bool {
        for selector in &self.0 {
            let found = match (selector, item) {
                (Selector::Entry, ItemKind::Entry) | (Selector::Children, ItemKind::Children) => true,
                (Selector::Everything, _) => true,
                (Selector::Description(wanted), ItemKind::Attribute(description)) => {
                    description == wanted || description.is_subdescription_of(schema, wanted)
                }
                (Selector::Exactly(wanted), ItemKind::Attribute(description)) => description == wanted,
                (Selector::Class(types), ItemKind::Attribute(description)) => {
                    covers(schema, types, description)
                }
                (Selector::NotClass(types), ItemKind::Attribute(description)) => {
                    return !covers(schema, types, description);
                }
                (Selector::NotClass(_), _) => return true,
                _ => false,
            };
            if found {
                return true;
            }
        }
        false
    }
}

fn covers(schema: &Schema, types: &[AttributeTypeId], description: &AttributeDescription) -> bool {
    types
        .iter()
        .any(|&wanted| description.attribute == wanted || schema.is_subtype(description.attribute, wanted))
}

pub(super) fn selector(schema: &Schema, selector: &AttributeSelector) -> Outcome<Selector> {
    Ok(match selector {
        AttributeSelector::Named(name) if name.eq_ignore_ascii_case("entry") => Selector::Entry,
        AttributeSelector::Named(name) if name.eq_ignore_ascii_case("children") => Selector::Children,
        AttributeSelector::Named(name) => match description(schema, name) {
            Ok(description) => Selector::Description(description),
            // The old way to name a class.
            Err(fault) => {
                class_types(schema, name).map_err(|_| fault)?.map_or(Selector::Everything, Selector::Class)
            }
        },
        AttributeSelector::Exactly(name) => Selector::Exactly(description(schema, name)?),
        AttributeSelector::Class(name) => {
            class_types(schema, name)?.map_or(Selector::Everything, Selector::Class)
        }
        AttributeSelector::NotClass(name) => match class_types(schema, name)? {
            Some(types) => Selector::NotClass(types),
            // extensibleObject allows everything: nothing is outside of it.
            None => Selector::Class(Vec::new()),
        },
    })
}

/// What a class requires or allows; `None` for extensibleObject, which allows everything.
fn class_types(schema: &Schema, name: &str) -> Outcome<Option<Vec<AttributeTypeId>>> {
    let class = schema.object_class(name).ok_or_else(|| AccessPolicyFault::UnknownClass(name.to_owned()))?;
    if class.name().eq_ignore_ascii_case("extensibleObject") {
        return Ok(None);
    }
    Ok(Some(class.all_must().iter().chain(class.all_may()).copied().collect()))
}

impl ItemSet {
    /// Whether options decide anything here: then a description with options is not like its type.
    pub(super) fn asks_about_options(&self) -> bool {
        self.0.iter().any(|selector| match selector {
            Selector::Description(description) => !description.options().is_empty(),
            Selector::Exactly(_) => true,
            _ => false,
        })
    }

    /// Whether nothing at all is selected: a class without attributes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|selector| matches!(selector, Selector::Class(types) if types.is_empty()))
    }
}

pub(super) fn description(schema: &Schema, name: &str) -> Outcome<AttributeDescription> {
    schema.describe(name).map_err(|error| AccessPolicyFault::UnknownAttribute {
        name: name.to_owned(),
        why: error.to_string(),
    })
}
