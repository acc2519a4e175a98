//! Which index keys an entry has, and how a change changes them.

use std::collections::BTreeSet;

use larix_schema::{MatchingRule, Schema};
use larix_store::{Snapshot, WriteSet};
use smallvec::SmallVec;

use super::{KeyKind, Kinds, key, substrings};
use crate::catalog::{Catalog, CatalogRow};
use crate::entry::patch::Patch;
use crate::entry::record::{Form, StoredValue, ValuesView};
use crate::entry::{AttributeNumber, Entry, EntryAttribute, EntryId, EntryReader, LargeValues, values};
use crate::fault::Fault;
use crate::key::HEAD_LENGTH;
use crate::tables::INDEX;

type Keys = BTreeSet<Vec<u8>>;

/// Keys of substrings fit in, and most others.
const KEY_BYTES: usize = 24;

/// A key of an entry: most of them are so short that they need no memory of their own.
pub type EntryKey = SmallVec<[u8; KEY_BYTES]>;

/// The postings that a change adds and removes. No key is in both, and those of one attribute ascend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexChanges {
    pub added: Vec<EntryKey>,
    pub removed: Vec<EntryKey>,
}

impl IndexChanges {
    pub fn apply(&self, set: &mut WriteSet, entry: EntryId) {
        self.removed.iter().for_each(|key| set.remove_posting(INDEX, key, entry.0));
        self.added.iter().for_each(|key| set.add_posting(INDEX, key, entry.0));
    }

    fn difference(&mut self, old: &Keys, new: &Keys) {
        self.added.extend(new.difference(old).map(|key| EntryKey::from_slice(key)));
        self.removed.extend(old.difference(new).map(|key| EntryKey::from_slice(key)));
    }
}

/// What changes when the stored entry `old` becomes `new` (`None`: there is none). Attributes whose values did not
/// change cost a comparison. Every description of `new` is numbered in `catalog` already ([`entry::encode::store`]).
///
/// Of a value removed from a large set only the equality posting goes: whether another member has the same substring
/// or sound would take reading all. What stays is found and dismissed when candidates are verified.
///
/// [`entry::encode::store`]: crate::entry::encode::store
pub fn changes<S: Snapshot>(
    schema: &Schema,
    catalog: &Catalog,
    old: Option<&EntryReader<'_, S>>,
    new: Option<&Entry>,
) -> Result<IndexChanges, Fault> {
    let mut changes = IndexChanges::default();
    let mut seen = SmallVec::<[_; 32]>::new();
    if let Some(old) = old {
        // In the order of the stored ones.
        let mut kept = new.into_iter().flat_map(|new| &new.attributes).filter_map(|a| a.kept).peekable();
        for attribute in old.view.attributes() {
            let (number, stored) = attribute?;
            if kept.next_if(|kept| kept.number == number).is_some() {
                continue;
            }
            seen.push(number);
            let Some(row) = catalog.row(number).filter(|row| !row.wanted.is_empty()) else { continue };
            let new = new.and_then(|new| new.attribute(row.description.as_ref()?));
            change_attribute(schema, row, old, &stored, new, &mut changes)?;
        }
    }
    for attribute in new.into_iter().flat_map(|new| &new.attributes).filter(|a| a.kept.is_none()) {
        let row = catalog.number(&attribute.description).and_then(|number| catalog.row(number));
        let Some(row) = row.filter(|row| !row.wanted.is_empty() && !seen.contains(&row.number)) else {
            continue;
        };
        changes.added.extend(attribute_keys(schema, row, attribute));
    }
    Ok(changes)
}

/// As [`changes`], where it is known which attributes change.
pub(crate) fn patch_changes<S: Snapshot>(
    schema: &Schema,
    catalog: &Catalog,
    old: &EntryReader<'_, S>,
    patch: &Patch<'_>,
) -> Result<IndexChanges, Fault> {
    let mut changes = IndexChanges::default();
    for (number, stored) in &patch.touched {
        let Some(row) = catalog.row(*number).filter(|row| !row.wanted.is_empty()) else { continue };
        change_attribute(schema, row, old, stored, patch.attribute(row), &mut changes)?;
    }
    for (row, attribute) in patch.new_ones(catalog).filter(|(row, _)| !row.wanted.is_empty()) {
        changes.added.extend(attribute_keys(schema, row, attribute));
    }
    Ok(changes)
}

/// All keys of a stored entry: what the index must hold for it.
pub fn stored_keys<S: Snapshot>(
    schema: &Schema,
    catalog: &Catalog,
    entry: &EntryReader<'_, S>,
) -> Result<Keys, Fault> {
    let mut keys = Keys::new();
    for attribute in entry.view.attributes() {
        let (number, stored) = attribute?;
        let Some(row) = catalog.row(number).filter(|row| !row.wanted.is_empty()) else { continue };
        keys.append(&mut stored_attribute_keys(schema, row, row.wanted, entry, &stored)?);
    }
    Ok(keys)
}

/// The keys of one stored attribute, of the given kinds.
pub fn stored_attribute_keys<S: Snapshot>(
    schema: &Schema,
    row: &CatalogRow,
    kinds: Kinds,
    entry: &EntryReader<'_, S>,
    stored: &ValuesView<'_>,
) -> Result<Keys, Fault> {
    let mut keys = Keys::new();
    visit_stored_keys(schema, row, kinds, entry, stored, &mut collect(row, &mut keys))?;
    Ok(keys)
}

/// Gives `sink` each key of one stored attribute; a key that several values share comes several times.
pub fn visit_stored_keys<S: Snapshot>(
    schema: &Schema,
    row: &CatalogRow,
    kinds: Kinds,
    entry: &EntryReader<'_, S>,
    stored: &ValuesView<'_>,
    sink: &mut dyn KeySink,
) -> Result<(), Fault> {
    let mut maker = KeyMaker::new(schema, row, kinds, sink);
    if !stored.is_empty() {
        maker.presence();
    }
    entry.visit_values(row.number, stored, &mut |value| {
        maker.value(value);
        true
    })?;
    Ok(())
}

/// Who takes the keys of values. A closure takes them one by one.
pub trait KeySink {
    /// The kind and the normalized value of one key.
    fn key(&mut self, kind: KeyKind, value: &[u8]);

    /// A normalized value whose grams are keys of the kind [`KeyKind::Any`].
    fn grams(&mut self, normal: &[u8]) {
        substrings::grams(normal).for_each(|gram| self.key(KeyKind::Any, gram));
    }
}

impl<F: FnMut(KeyKind, &[u8])> KeySink for F {
    fn key(&mut self, kind: KeyKind, value: &[u8]) {
        self(kind, value);
    }
}

/// Gives `sink` the kind and the normalized value of each key of an attribute of a new entry; a key that several
/// values share comes several times.
pub fn visit_attribute_keys(
    schema: &Schema,
    row: &CatalogRow,
    attribute: &EntryAttribute,
    sink: &mut dyn KeySink,
) {
    let mut maker = KeyMaker::new(schema, row, row.wanted, sink);
    if attribute.count() > 0 {
        maker.presence();
    }
    attribute.loaded().for_each(|value| maker.value(value));
    // Those of a set that is new are among the others.
    let stored = attribute.large.iter().filter(|large| large.fresh.is_none());
    stored.flat_map(|large| large.added.values()).for_each(|value| maker.value(value));
}

fn change_attribute<S: Snapshot>(
    schema: &Schema,
    row: &CatalogRow,
    old: &EntryReader<'_, S>,
    stored: &ValuesView<'_>,
    new: Option<&EntryAttribute>,
    changes: &mut IndexChanges,
) -> Result<(), Fault> {
    let large = new.and_then(|new| new.large.as_ref());
    if let Some(large) = large.filter(|large| large.fresh.is_none()) {
        change_large(schema, row, large, changes);
        return Ok(());
    }
    if let Some(new) = new.filter(|_| large.is_none())
        && (new.kept.is_some() || same_values(stored, &new.values))
    {
        return Ok(());
    }
    let old = stored_attribute_keys(schema, row, row.wanted, old, stored)?;
    let new = new.map(|new| attribute_keys(schema, row, new)).unwrap_or_default();
    let new = new.into_iter().map(SmallVec::into_vec).collect();
    changes.difference(&old, &new);
    Ok(())
}

fn change_large(schema: &Schema, row: &CatalogRow, large: &LargeValues, changes: &mut IndexChanges) {
    let mut added = Keys::new();
    let mut collect = collect(row, &mut added);
    let mut maker = KeyMaker::new(schema, row, row.wanted, &mut collect);
    if large.stored == 0 && large.count() > 0 {
        maker.presence();
    }
    large.added.values().for_each(|value| maker.value(value));
    drop(collect);
    let mut removed = Keys::new();
    if row.wanted.has(Kinds::EQUALITY) {
        removed.extend(large.removed.iter().map(|member| values::index_key_of_member(row.number, member)));
    }
    if large.count() == 0 && row.wanted.has(Kinds::PRESENCE) {
        removed.insert(key::make(row.number, KeyKind::Presence, &[]));
    }
    // A member that goes and comes back in another spelling keeps its posting.
    changes.removed.extend(removed.difference(&added).map(|key| EntryKey::from_slice(key)));
    changes.added.extend(added.into_iter().map(EntryKey::from_vec));
}

/// The keys of an attribute of a new entry, ascending.
fn attribute_keys(schema: &Schema, row: &CatalogRow, attribute: &EntryAttribute) -> Vec<EntryKey> {
    let mut sorted = Sorted { number: row.number, keys: Vec::new(), grams: SmallVec::new() };
    visit_attribute_keys(schema, row, attribute, &mut sorted);
    sorted.finish()
}

/// Sorts keys of one attribute. Most are grams, which it sorts as numbers before they become keys.
struct Sorted {
    number: AttributeNumber,
    keys: Vec<EntryKey>,
    grams: SmallVec<[u32; 64]>,
}

impl KeySink for Sorted {
    fn key(&mut self, kind: KeyKind, value: &[u8]) {
        self.keys.push(EntryKey::from_vec(key::make(self.number, kind, value)));
    }

    fn grams(&mut self, normal: &[u8]) {
        let grams = normal.array_windows().map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]));
        self.grams.extend(grams);
    }
}

impl Sorted {
    fn finish(self) -> Vec<EntryKey> {
        let Self { number, mut keys, mut grams } = self;
        keys.sort_unstable();
        keys.dedup();
        grams.sort_unstable();
        grams.dedup();
        let kind_of = |key: &EntryKey| key.get(HEAD_LENGTH - 1).copied();
        let behind = keys.partition_point(|key| kind_of(key) < Some(KeyKind::Any as u8));
        let grams = grams.iter().map(|gram| {
            let [_, value @ ..] = gram.to_be_bytes();
            let mut key = EntryKey::new();
            match key::of_gram(number, value) {
                Some(whole) => key.extend_from_slice(&whole),
                None => key.extend_from_slice(&key::make(number, KeyKind::Any, &value)),
            }
            key
        });
        keys.splice(behind..behind, grams);
        keys
    }
}

fn collect(row: &CatalogRow, keys: &mut Keys) -> impl FnMut(KeyKind, &[u8]) {
    let number = row.number;
    move |kind, value| {
        keys.insert(key::make(number, kind, value));
    }
}

fn same_values(stored: &ValuesView<'_>, new: &[Vec<u8>]) -> bool {
    if stored.form() == Form::Large || stored.len() != new.len() as u64 {
        return false;
    }
    stored.iter().zip(new).all(|(stored, new)| match stored {
        Ok(StoredValue::Inline(stored)) => stored == new.as_slice(),
        Ok(StoredValue::Blob { digest, length }) => {
            length == new.len() as u64 && *digest == crate::entry::record::digest(new)
        }
        Err(_) => false,
    })
}

/// Room for a normalized value, which may be longer than the value.
const NORMAL_BYTES: usize = 64;

/// Makes the keys of one attribute.
struct KeyMaker<'a> {
    schema: &'a Schema,
    row: &'a CatalogRow,
    kinds: Kinds,
    sink: &'a mut dyn KeySink,
    normal: Vec<u8>,
}

impl<'a> KeyMaker<'a> {
    fn new(schema: &'a Schema, row: &'a CatalogRow, kinds: Kinds, sink: &'a mut dyn KeySink) -> Self {
        Self { schema, row, kinds, sink, normal: Vec::new() }
    }

    fn presence(&mut self) {
        if self.kinds.has(Kinds::PRESENCE) {
            self.put(KeyKind::Presence, &[]);
        }
    }

    /// A value that its rule cannot normalize has no keys: no assertion matches it.
    fn value(&mut self, value: &[u8]) {
        let mut normalized_by = None;
        if self.kinds.has(Kinds::EQUALITY)
            && let Some(rule) = self.row.equality
        {
            if rule.has_several_index_keys() {
                let sink = &mut *self.sink;
                // A value that is not valid has no keys.
                let _ = rule.index_keys(self.schema, value, &mut |key| sink.key(KeyKind::Equality, key));
            } else if self.normalize(Some(rule), value) {
                self.sink.key(KeyKind::Equality, &self.normal);
                normalized_by = Some(rule);
            }
        }
        if self.kinds.intersects(Kinds::SUBSTRINGS)
            && (self.row.substring.zip(normalized_by).is_some_and(|(a, b)| a.normalizes_as(b))
                || self.normalize(self.row.substring, value))
        {
            let normal = std::mem::take(&mut self.normal);
            self.substrings(&normal);
            self.normal = normal;
        }
        if self.kinds.has(Kinds::APPROX) && self.normalize(self.row.equality.map(|r| r.approximate()), value)
        {
            let normal = std::mem::take(&mut self.normal);
            normal.split(|byte| *byte == b' ').for_each(|word| self.put(KeyKind::Approx, word));
            self.normal = normal;
        }
    }

    fn substrings(&mut self, normal: &[u8]) {
        if self.kinds.has(Kinds::INITIAL) {
            self.put(KeyKind::Initial, substrings::head(normal));
        }
        if self.kinds.has(Kinds::FINAL) {
            let (tail, length) = substrings::tail(normal);
            self.put(KeyKind::Final, tail.get(..length).unwrap_or_default());
        }
        if self.kinds.has(Kinds::ANY) {
            self.sink.grams(normal);
        }
    }

    fn normalize(&mut self, rule: Option<&MatchingRule>, value: &[u8]) -> bool {
        self.normal.clear();
        // One piece of memory for most values, where growing would take several.
        self.normal.reserve(value.len().max(NORMAL_BYTES));
        rule.is_some_and(|rule| rule.normalize_value(self.schema, value, &mut self.normal).is_ok())
    }

    fn put(&mut self, kind: KeyKind, value: &[u8]) {
        self.sink.key(kind, value);
    }
}
