//! The usual modify: it changes a few attributes that stand in the record, of an entry whose object classes have passed the
//! check before. Nothing else of the entry is looked at but its types, and all else goes into the next record as it stands.
//!
//! Whatever this does not settle goes the long way. Only the long way refuses a change because of the schema.

use larix_schema::{AttributeDescription, Schema, SyntaxKind};
use larix_store::Snapshot;
use smallvec::SmallVec;
use uuid::Uuid;

use super::change;
use super::checked_classes::CheckedList;
use super::operator::{CurrentEntry, Operator, StoredSets};
use super::schema_check::{CheckMode, unfit_for_naming};
use crate::catalog::{Catalog, CatalogRow};
use crate::change::prepare::{Change, ChangeKind};
use crate::entry::patch::{After, Patch, Touch, Touches};
use crate::entry::record::{INLINE_COUNT_LIMIT, StoredValue};
use crate::entry::{AttributeNumber, Entry, EntryView, ValuesView};
use crate::failure::Failure;
use crate::index::keys;
use crate::index::pending::{self, Writing};

/// An entry with its changes, checked.
#[derive(Default)]
pub(super) struct PatchedEntry<'r, 'c> {
    patch: Patch<'r, 'c>,
    /// The entryUUID; nil for an entry that never got any.
    pub(super) uuid: Uuid,
}

impl<'r, 'c> PatchedEntry<'r, 'c> {
    /// Applies the changes to a stored entry, once. `is_each_replaced` is what [the function](is_each_replaced) says of the requested
    /// changes. Answers false if the change has to go the long way; then nothing in here may be used.
    ///
    /// # Errors
    /// What [`change::apply`] refuses; a damaged record.
    pub(super) fn apply<V: Snapshot>(
        &mut self,
        operator: &Operator<'_, V>,
        old: &EntryView<'r>,
        changes: &[&'c Change],
        is_each_replaced: bool,
    ) -> Result<bool, Failure> {
        let (context, controls) = (operator.context, operator.envelope.controls);
        let known = context.known;
        let decides = [known.object_class, known.structural_object_class, known.entry_uuid];
        let changes_type = |change: &&Change| decides.contains(&change.description.attribute);
        // A large set does not stand in the record.
        let is_large =
            |change: &&Change| change.kind != ChangeKind::Delete && change.values.len() > INLINE_COUNT_LIMIT;
        if controls.relax
            || context.settings.keeps_states()
            || changes.iter().any(|change| changes_type(change) || is_large(change))
        {
            return Ok(false);
        }
        let catalog = &operator.view.catalog;
        let classes = catalog.object_class().map(|number| old.get(number)).transpose()?.flatten();
        let mode = context.check_mode();
        let list = classes.and_then(|classes| known.checked.find_stored(&classes, mode));
        let number = |attribute| catalog.number(&AttributeDescription::plain(attribute));
        let naming = NamingValue::of(context.schema, catalog, old.rdn_octets(), mode);
        let (Some(list), Some(naming), Some(structural)) =
            (list, naming, number(known.structural_object_class))
        else {
            return Ok(false);
        };
        let (mut changed, mut perhaps_changed) = (SmallVec::<[_; 8]>::new(), 0);
        for change in changes {
            let number = catalog.number(&change.description);
            perhaps_changed |= number.map_or(0, bit);
            changed.push((number, change.kind));
        }
        let uuid = number(known.entry_uuid);
        let mut scan = Scan {
            list,
            perhaps_asked: bit(structural) | bit(naming.number) | uuid.map_or(0, bit),
            naming,
            structural,
            uuid,
            perhaps_changed,
            changed,
            required: 0,
            is_structural: false,
            is_named: false,
            found: Uuid::nil(),
        };
        let Self { patch, uuid } = self;
        if !(patch.read(catalog, old, &mut scan)? && scan.is_structural && scan.is_named) {
            return Ok(false);
        }
        *uuid = scan.found;
        if is_each_replaced {
            let mut replaced = SmallVec::new();
            for (change, (number, _)) in changes.iter().zip(&scan.changed) {
                replaced.push((&change.description, *number, change.values.as_slice()));
            }
            patch.after = After::Replaced(replaced);
        } else if let After::Edited(attributes) = &mut patch.after {
            let sets = StoredSets::new(operator.reader_of(*old));
            let (budget, permissive) = (&context.settings.request_limits, controls.permissive_modify);
            let mut entry = Entry { dn: String::new(), attributes: std::mem::take(attributes) };
            change::apply_all(context.schema, &mut entry, changes, permissive, &sets, budget)?;
            *attributes = entry.attributes;
        }
        let after = patch.changed().map(|c| (c.description.attribute, c.values.len() as u64));
        Ok(patch.fits() && list.allows_all(scan.required, after))
    }

    /// Stores the changed entry in the place of the old one.
    ///
    /// # Errors
    /// An entry larger than `maxentrysize`; a damaged record, a store that cannot be read.
    pub(super) fn store<V: Snapshot>(
        &self,
        operator: &mut Operator<'_, V>,
        current: &CurrentEntry<'_>,
        old: &EntryView<'r>,
    ) -> Result<(), Failure> {
        let (schema, snapshot) = (operator.schema(), operator.snapshot());
        let bytes = self.patch.store(&mut operator.set, schema, operator.catalog, (old, current.record()))?;
        operator.check_size(bytes)?;
        let reader = operator.reader_of(*old);
        let changes = keys::patch_changes(schema, operator.catalog.catalog(), &reader, &self.patch)?;
        Ok(pending::apply(&mut operator.set, snapshot, current.id, &changes, Writing::Changed)?)
    }
}

/// Whether no change depends on stored values: each requested change replaces an attribute that no other one names. The changes that
/// go with them replace other attributes.
pub(super) fn is_each_replaced(requested: &[Change]) -> bool {
    let is_first = |(at, change): (usize, &Change)| {
        let before = requested.get(..at).unwrap_or_default();
        change.kind == ChangeKind::Replace
            && before.iter().all(|other| other.description != change.description)
    };
    requested.len() <= FEW_CHANGES && requested.iter().enumerate().all(is_first)
}

/// So many are compared with each other.
const FEW_CHANGES: usize = 8;

/// What is found out while the attributes of a record are gone through.
struct Scan<'l, 'r> {
    list: &'l CheckedList,
    naming: NamingValue<'r>,
    structural: AttributeNumber,
    uuid: Option<AttributeNumber>,
    /// The attributes that change; `None` for one that no entry has had yet.
    changed: SmallVec<[(Option<AttributeNumber>, ChangeKind); 8]>,
    /// The [bits](bit) of their numbers.
    perhaps_changed: u64,
    /// Those of the three whose values are looked at.
    perhaps_asked: u64,
    /// What of the required attributes stays, as [bits](CheckedList::allows).
    required: u64,
    is_structural: bool,
    is_named: bool,
    found: Uuid,
}

/// One of 64, the same for equal numbers.
fn bit(number: AttributeNumber) -> u64 {
    1 << (number.0 % 64)
}

impl Touches for Scan<'_, '_> {
    #[inline(always)]
    fn keeps(&mut self, row: &CatalogRow, values: u64) -> bool {
        let looked_at = self.perhaps_changed | self.perhaps_asked;
        let passed = row.description.as_ref().filter(|_| looked_at & bit(row.number) == 0);
        match passed.and_then(|description| self.list.allows(description.attribute, values)) {
            Some(required) => {
                self.required |= required;
                true
            }
            None => false,
        }
    }

    /// Called from one place.
    #[inline(always)]
    fn touch(&mut self, row: &CatalogRow, stored: &ValuesView<'_>) -> Option<Touch> {
        let (number, attribute) = (row.number, row.description.as_ref()?.attribute);
        let bit = bit(number);
        // The values of an attribute whose first change replaces them need not be loaded.
        if self.perhaps_changed & bit != 0
            && let Some((_, kind)) = self.changed.iter().find(|(changed, _)| *changed == Some(number))
        {
            return Some(if *kind == ChangeKind::Replace { Touch::Drop } else { Touch::Load });
        }
        self.required |= self.list.allows(attribute, stored.len())?;
        if self.perhaps_asked & bit == 0 {
            return Some(Touch::Keep);
        }
        if number == self.structural {
            self.is_structural = self.list.is_structural(stored);
        } else if number == self.naming.number {
            self.is_named = self.naming.is_among(stored);
        } else if Some(number) == self.uuid {
            let value = stored.iter().next();
            if let Some(Ok(StoredValue::Inline(value))) = value {
                self.found = Uuid::try_parse_ascii(value).unwrap_or_default();
            }
        }
        Some(Touch::Keep)
    }
}

/// The value of a name that is written as any string is.
struct NamingValue<'r> {
    number: AttributeNumber,
    value: &'r [u8],
}

impl<'r> NamingValue<'r> {
    /// `None` for names with several values, escapes, or types of other syntaxes: there more is asked than whether the value is
    /// there byte by byte.
    fn of(schema: &Schema, catalog: &Catalog, rdn: &'r [u8], mode: CheckMode) -> Option<Self> {
        let equals = rdn.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (rdn.get(..equals)?, rdn.get(equals + 1..)?);
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'@' | b' ');
        if value.is_empty() || value.trim_ascii().len() != value.len() || !value.iter().copied().all(is_plain)
        {
            return None;
        }
        let description = schema.describe_octets(name).ok().filter(|plain| plain.options().is_empty())?;
        let kind = schema.attribute(description.attribute);
        let is_string = matches!(kind.syntax.kind, SyntaxKind::DirectoryString | SyntaxKind::Ia5String);
        if !is_string || unfit_for_naming(kind, mode).is_some() {
            return None;
        }
        let number = catalog.number(&description)?;
        Some(Self { number, value })
    }

    fn is_among(&self, stored: &ValuesView<'_>) -> bool {
        let is_it = |stored| matches!(stored, Ok(StoredValue::Inline(value)) if value == self.value);
        stored.iter().any(is_it)
    }
}
