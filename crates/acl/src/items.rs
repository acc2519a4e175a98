//! Which attributes, and pseudo-attributes, rules are about; and the classes of attributes that all rules treat alike.

use larix_schema::{AttributeDescription, AttributeTypeId, Schema};

use super::compile::{CompiledRule, Outcome, description};
use super::fault::AccessPolicyFault;
use super::policy::ItemKind;
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
    fn asks_about_options(&self) -> bool {
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

/// Attributes, `entry` or `children`, that the same rules speak about: whatever is said of one holds for the others, as
/// long as no value matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemClass(pub(super) u16);

impl ItemClass {
    #[inline]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The rules by what they are about. Made once for a policy.
#[derive(Debug, Default)]
pub(super) struct ItemClasses {
    /// By the numbers of the schema.
    attributes: Box<[u16]>,
    /// The same without classes of which nothing can be said.
    decidable: Box<[u16]>,
    entry: u16,
    children: u16,
    pub(super) lists: Vec<SpeakingRules>,
    asks_about_options: bool,
}

/// The rules that speak about a class, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SpeakingRules {
    pub(super) rules: Box<[u32]>,
    /// Whether a value can decide: what is said of the attribute does not hold for each value.
    pub(super) by_value: bool,
    /// Whether a clause looks at the attribute itself (`aci`, `selfwrite`): nothing can be said of the class.
    pub(super) individual: bool,
}

impl ItemClasses {
    pub(super) fn of(schema: &Schema, rules: &[CompiledRule]) -> Self {
        let mut classes = Self {
            asks_about_options: rules
                .iter()
                .filter_map(|rule| rule.items.as_ref())
                .any(ItemSet::asks_about_options),
            ..Self::default()
        };
        classes.entry = classes.number(schema, rules, ItemKind::Entry);
        classes.children = classes.number(schema, rules, ItemKind::Children);
        let attributes = schema.attribute_types().map(|attribute| attribute.id).map(|id: AttributeTypeId| {
            let description = AttributeDescription::plain(id);
            (id, classes.number(schema, rules, ItemKind::Attribute(&description)))
        });
        let numbered: Vec<(AttributeTypeId, u16)> = attributes.collect();
        let count = numbered.iter().map(|(id, _)| id.0 as usize + 1).max().unwrap_or(0);
        let mut table = vec![UNKNOWN; count];
        for (id, class) in numbered {
            if let Some(place) = table.get_mut(id.0 as usize) {
                *place = class;
            }
        }
        let individual =
            |class: u16| classes.lists.get(usize::from(class)).is_none_or(|list| list.individual);
        let decidable = table.iter().map(|&class| if individual(class) { UNKNOWN } else { class });
        classes.decidable = decidable.collect();
        classes.attributes = table.into();
        classes
    }

    #[inline]
    pub(super) const fn treats_options_alike(&self) -> bool {
        !self.asks_about_options
    }

    /// The class of an attribute, if something can be said of all of its class.
    #[inline]
    pub(super) fn decidable(&self, description: &AttributeDescription) -> Option<ItemClass> {
        if self.asks_about_options && !description.options().is_empty() {
            return None;
        }
        let number = *self.decidable.get(description.attribute.0 as usize)?;
        (number != UNKNOWN).then_some(ItemClass(number))
    }

    /// The class of an item; `None` if there is none: all rules have to be asked.
    #[inline]
    pub(super) fn class(&self, item: ItemKind<'_>) -> Option<ItemClass> {
        let number = match item {
            ItemKind::Entry => self.entry,
            ItemKind::Children => self.children,
            ItemKind::Attribute(description) => {
                if self.asks_about_options && !description.options().is_empty() {
                    return None;
                }
                *self.attributes.get(description.attribute.0 as usize)?
            }
        };
        (number != UNKNOWN).then_some(ItemClass(number))
    }

    #[inline]
    pub(super) fn list(&self, class: ItemClass) -> Option<&SpeakingRules> {
        self.lists.get(usize::from(class.0))
    }

    fn number(&mut self, schema: &Schema, rules: &[CompiledRule], item: ItemKind<'_>) -> u16 {
        let speaks =
            |rule: &CompiledRule| rule.items.as_ref().is_none_or(|items| items.contains(schema, item));
        let mut list = SpeakingRules::default();
        let mut numbers = Vec::new();
        for (number, rule) in (0u32..).zip(rules).filter(|(_, rule)| speaks(rule)) {
            numbers.push(number);
            list.by_value |= rule.value.is_some();
            list.individual |= rule.by.iter().any(|clause| clause.looks_at_attribute());
        }
        list.rules = numbers.into();
        let known = self.lists.iter().position(|other| *other == list).unwrap_or_else(|| {
            self.lists.push(list);
            self.lists.len() - 1
        });
        u16::try_from(known).unwrap_or(UNKNOWN)
    }
}

const UNKNOWN: u16 = u16::MAX;
