//! The classes of attributes that all rules treat alike.

use larix_schema::{AttributeDescription, AttributeTypeId, Schema};

use super::compile::CompiledRule;
use super::item::{ItemClass, ItemKind};
use super::items::ItemSet;

/// The rules by what they are about. Made once for a policy.
#[derive(Debug, Default)]
pub(super) struct ItemClasses {
    /// By the numbers of the schema.
    attributes: Box<[u16]>,
    /// The same without classes about which nothing is known.
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
