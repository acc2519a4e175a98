//! Lists of object classes that passed the schema check before: entries that have the same list are checked by table.
//!
//! Nearly all entries of a directory have one of a few lists. What the check says of the list alone (the classes exist,
//! one chain of structural ones, places, obsolete ones) need not be asked again, and what the classes require and allow
//! is known by attribute number. Whatever the table does not settle is left to the check itself, which alone refuses.

use std::sync::{Arc, OnceLock};

use larix_schema::{AttributeTypeId, Schema};

use super::known::KnownSchema;
use super::schema_check::CheckMode;
use crate::entry::record::put_octet_string;
use crate::entry::{Entry, ValuesView};

/// Lists that are kept, the first ones that come. A table takes a byte an attribute type.
const LISTS_MAX: usize = 16;
/// Longer lists are not kept.
const CLASSES_MAX: usize = 32;
/// Nor are those that require more attributes.
const MUST_MAX: usize = 64;

/// The lists of one schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckedLists(Arc<[OnceLock<CheckedList>; LISTS_MAX]>);

/// A list without content rule, glue and relaxed rules that was found to be in order.
#[derive(Debug)]
pub(super) struct CheckedList {
    values: Vec<Vec<u8>>,
    /// The same as they stand in a record.
    stored: Vec<u8>,
    auxiliary_needs_rule: bool,
    /// What structuralObjectClass says, and as it stands in a record.
    structural: Vec<u8>,
    stored_structural: Vec<u8>,
    /// What the classes and their superiors require: all [bits](CheckedAttribute::required).
    must: u64,
    /// By number of the attribute type.
    attributes: Vec<CheckedAttribute>,
}

/// What is known of an attribute type.
#[derive(Copy, Clone, Debug)]
struct CheckedAttribute {
    allowed: AllowedValues,
    /// The bit of a required one, counted from 1; 0: it is not required.
    required: u8,
}

impl CheckedAttribute {
    /// The bit of a required type.
    #[inline]
    fn required(self) -> u64 {
        self.required.checked_sub(1).map_or(0, |bit| 1 << bit)
    }
}

/// What the table says of an attribute type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum AllowedValues {
    /// Nothing: it depends on more than the classes, or it is not allowed.
    Ask,
    OneValue,
    Values,
}

impl CheckedLists {
    /// The list with exactly these values.
    pub(super) fn find(&self, values: &[Vec<u8>], mode: CheckMode) -> Option<&CheckedList> {
        if mode.relax || values.is_empty() {
            return None;
        }
        let lists = self.0.iter().map_while(OnceLock::get);
        lists.into_iter().find(|list| {
            list.auxiliary_needs_rule == mode.auxiliary_needs_rule && list.values.as_slice() == values
        })
    }

    /// The list with exactly the values that an entry has stored.
    pub(super) fn find_stored(&self, values: &ValuesView<'_>, mode: CheckMode) -> Option<&CheckedList> {
        let values = values.as_ber().filter(|_| !mode.relax && !values.is_empty())?;
        let mut lists = self.0.iter().map_while(OnceLock::get);
        lists.find(|list| list.auxiliary_needs_rule == mode.auxiliary_needs_rule && list.stored == values)
    }

    /// Keeps a list that passed, if there is room. `allows` answers for attributes of user applications, `must` has what
    /// is required.
    pub(super) fn keep(
        &self,
        schema: &Schema,
        known: &KnownSchema,
        (values, mode): (&[Vec<u8>], CheckMode),
        (structural, must): (&str, Vec<AttributeTypeId>),
        allows: impl Fn(AttributeTypeId) -> bool,
    ) {
        let Some(place) = self.0.iter().find(|place| place.get().is_none()) else { return };
        if mode.relax
            || values.len() > CLASSES_MAX
            || must.len() > MUST_MAX
            || self.find(values, mode).is_some()
        {
            return;
        }
        let types = (0..).map_while(|number| schema.get_attribute(AttributeTypeId(number)));
        let attributes = types.map(|kind| {
            let allowed = kind.is_operational() || kind.id == known.object_class || allows(kind.id);
            let allowed = match allowed && !kind.collective && known.place_of(kind.id).is_none() {
                false => AllowedValues::Ask,
                true if kind.single_value => AllowedValues::OneValue,
                true => AllowedValues::Values,
            };
            let required = must.iter().position(|wanted| *wanted == kind.id);
            CheckedAttribute { allowed, required: required.map_or(0, |at| at as u8 + 1) }
        });
        let (mut stored, mut stored_structural) = (Vec::new(), Vec::new());
        values.iter().for_each(|value| put_octet_string(&mut stored, value));
        put_octet_string(&mut stored_structural, structural.as_bytes());
        // Another thread may have taken the place: then this list has to wait for the next entry.
        let _ = place.set(CheckedList {
            values: values.to_vec(),
            stored,
            auxiliary_needs_rule: mode.auxiliary_needs_rule,
            structural: structural.as_bytes().to_vec(),
            stored_structural,
            attributes: attributes.collect(),
            must: (0..must.len()).fold(0, |all, bit| all | 1 << bit),
        });
    }
}

impl CheckedList {
    pub(super) fn structural(&self) -> &[u8] {
        &self.structural
    }

    /// Whether an entry with these classes obeys the schema, its name aside. False does not mean that it is at fault.
    pub(super) fn covers(&self, known: &KnownSchema, entry: &Entry, mode: CheckMode) -> bool {
        let recorded = match entry.values(known.structural_object_class) {
            [] => mode.add,
            [value] => *value == self.structural,
            _ => false,
        };
        let attributes = entry.attributes.iter().map(|a| (a.description.attribute, a.count()));
        recorded && self.allows_all(0, attributes)
    }

    /// Whether a stored structuralObjectClass is the one of the list.
    pub(super) fn is_structural(&self, stored: &ValuesView<'_>) -> bool {
        stored.as_ber() == Some(&self.stored_structural)
    }

    /// The bit of a required type, 0 for another one, if so many values of it are allowed. `None` does not mean that they are not.
    #[inline]
    pub(super) fn allows(&self, attribute: AttributeTypeId, values: u64) -> Option<u64> {
        let checked = self.attributes.get(attribute.0 as usize)?;
        match checked.allowed {
            AllowedValues::Values => Some(checked.required()),
            AllowedValues::OneValue if values <= 1 => Some(checked.required()),
            AllowedValues::OneValue | AllowedValues::Ask => None,
        }
    }

    /// Whether so many values of these types are allowed, and each required type is among them or has its bit in `others`. False does
    /// not mean that the entry is at fault.
    pub(super) fn allows_all(
        &self,
        others: u64,
        mut attributes: impl Iterator<Item = (AttributeTypeId, u64)>,
    ) -> bool {
        let found = attributes.try_fold(others, |found, (id, values)| Some(found | self.allows(id, values)?));
        found == Some(self.must)
    }
}
