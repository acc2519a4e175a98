//! Which index keys an entry has, and how a change changes them.

use std::collections::BTreeSet;

use larix_schema::{MatchingRule, Schema};
use larix_store::{Direction, KeyRange, Snapshot, WriteSet};
use smallvec::SmallVec;

use super::{KeyKind, Kinds, key, substrings};
use crate::catalog::{Catalog, CatalogRow};
use crate::entry::patch::Patch;
use crate::entry::record::{Form, StoredValue, ValuesView};
use crate::entry::{AttributeNumber, Entry, EntryAttribute, EntryId, EntryReader, LargeValues, values};
use crate::fault::Fault;
use crate::tables::{INDEX, META, meta};

/// Keys of substrings fit in, and most others.
const KEY_BYTES: usize = 24;

/// A key of an entry: most of them are so short that they need no memory of their own.
pub type EntryKey = SmallVec<[u8; KEY_BYTES]>;

/// The postings that a change adds and removes. No key is in both, and those of one attribute ascend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexChanges {
    pub added: Vec<EntryKey>,
    pub removed: Vec<EntryKey>,
    /// Attributes with large sets of which keys may stay whose values are gone.
    pub leaving: Vec<AttributeNumber>,
}

/// The note that keys of an attribute may be in the index though no value has them. `larix index` takes it away with the keys.
pub(crate) fn left_keys_note(number: AttributeNumber) -> Vec<u8> {
    [meta::LEFT_KEYS, &number.0.to_be_bytes()].concat()
}

/// Attributes with that note.
pub(crate) fn with_left_keys<S: Snapshot>(snapshot: &S) -> Result<BTreeSet<AttributeNumber>, Fault> {
    let mut numbers = BTreeSet::new();
    for row in snapshot.scan(META, KeyRange::prefix(meta::LEFT_KEYS), Direction::Forward)? {
        let (key, _) = row?;
        let number = key.strip_prefix(meta::LEFT_KEYS).and_then(|number| number.try_into().ok());
        numbers.extend(number.map(|number| AttributeNumber(u32::from_be_bytes(number))));
    }
    Ok(numbers)
}

impl IndexChanges {
    pub fn apply(&self, set: &mut WriteSet, entry: EntryId) {
        self.removed.iter().for_each(|key| set.remove_posting(INDEX, key, entry.0));
        self.added.iter().for_each(|key| set.add_posting(INDEX, key, entry.0));
    }

    /// Takes what is in one of these alone. Both ascend.
    fn difference(&mut self, old: Vec<EntryKey>, new: Vec<EntryKey>) {
        let mut old = old.into_iter().peekable();
        for new in new {
            while let Some(gone) = old.next_if(|old| *old < new) {
                self.removed.push(gone);
            }
            if old.next_if_eq(&new).is_none() {
                self.added.push(new);
            }
        }
        self.removed.extend(old);
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
        let mut unchanged =
            new.into_iter().flat_map(|new| &new.attributes).filter_map(|a| a.unchanged).peekable();
        for attribute in old.view.attributes() {
            let (number, stored) = attribute?;
            if unchanged.next_if(|unchanged| unchanged.number == number).is_some() {
                continue;
            }
            seen.push(number);
            let Some(row) = catalog.row(number).filter(|row| !row.wanted.is_empty()) else { continue };
            let new = new.and_then(|new| new.attribute(row.description.as_ref()?));
            change_attribute(schema, row, old, &stored, new, &mut changes)?;
        }
    }
    for attribute in new.into_iter().flat_map(|new| &new.attributes).filter(|a| a.unchanged.is_none()) {
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
    patch: &Patch<'_, '_>,
) -> Result<IndexChanges, Fault> {
    let mut changes = IndexChanges::default();
    for (number, stored) in &patch.touched {
        let Some(row) = catalog.row(*number).filter(|row| !row.wanted.is_empty()) else { continue };
        change_attribute(schema, row, old, stored, patch.attribute(row).as_ref(), &mut changes)?;
    }
    for (row, changed) in patch.new_ones(catalog).filter(|(row, _)| !row.wanted.is_empty()) {
        changes.added.extend(attribute_keys(schema, row, &changed.to_attribute()));
    }
    Ok(changes)
}

/// All keys of a stored entry: what the index must hold for it.
pub(crate) fn stored_keys<S: Snapshot>(
    schema: &Schema,
    catalog: &Catalog,
    entry: &EntryReader<'_, S>,
) -> Result<BTreeSet<EntryKey>, Fault> {
    let mut keys = BTreeSet::new();
    for attribute in entry.view.attributes() {
        let (number, stored) = attribute?;
        let Some(row) = catalog.row(number).filter(|row| !row.wanted.is_empty()) else { continue };
        keys.extend(stored_attribute_keys(schema, row, row.wanted, entry, &stored)?);
    }
    Ok(keys)
}

/// The keys of one stored attribute, of the given kinds, ascending.
pub(crate) fn stored_attribute_keys<S: Snapshot>(
    schema: &Schema,
    row: &CatalogRow,
    kinds: Kinds,
    entry: &EntryReader<'_, S>,
    stored: &ValuesView<'_>,
) -> Result<Vec<EntryKey>, Fault> {
    let mut sorted = Sorted::new(row.number);
    visit_stored_keys(schema, row, kinds, entry, stored, &mut sorted)?;
    Ok(sorted.finish())
}

/// Gives `sink` each key of one stored attribute; a key that several values share comes several times.
pub(crate) fn visit_stored_keys<S: Snapshot>(
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
pub(crate) fn visit_attribute_keys(
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
        && (new.unchanged.is_some() || same_values(stored, &new.values))
    {
        return Ok(());
    }
    let old_keys = stored_attribute_keys(schema, row, row.wanted, old, stored)?;
    let new = new.map(|new| attribute_keys(schema, row, new)).unwrap_or_default();
    if row.classes && has_unknown_class(schema, row, old, stored)? {
        let mut all: BTreeSet<EntryKey> = class_keys(row, old.snapshot)?.into_iter().collect();
        all.extend(old_keys.iter().cloned());
        changes.removed.extend(all.into_iter().filter(|key| new.binary_search(key).is_err()));
        changes.added.extend(new.into_iter().filter(|key| old_keys.binary_search(key).is_err()));
        return Ok(());
    }
    changes.difference(old_keys, new);
    Ok(())
}

/// Whether the schema has lost a class of the entry, and with it which superior classes the entry has keys of.
fn has_unknown_class<S: Snapshot>(
    schema: &Schema,
    row: &CatalogRow,
    entry: &EntryReader<'_, S>,
    stored: &ValuesView<'_>,
) -> Result<bool, Fault> {
    let mut all_known = true;
    entry.visit_values(row.number, stored, &mut |value| {
        all_known = std::str::from_utf8(value).is_ok_and(|name| schema.object_class_id(name).is_some());
        all_known
    })?;
    Ok(!all_known)
}

/// The equality keys of all classes that any entry has.
fn class_keys<S: Snapshot>(row: &CatalogRow, snapshot: &S) -> Result<Vec<EntryKey>, Fault> {
    let mut prefix = Vec::new();
    key::put_prefix(&mut prefix, row.number, KeyKind::Equality, &[]);
    let found = snapshot.posting_keys(INDEX, KeyRange::prefix(&prefix), Direction::Forward)?;
    found.map(|row| -> Result<EntryKey, Fault> { Ok(EntryKey::from_slice(&row?.0)) }).collect()
}

fn change_large(schema: &Schema, row: &CatalogRow, large: &LargeValues, changes: &mut IndexChanges) {
    let mut added = Sorted::new(row.number);
    let mut maker = KeyMaker::new(schema, row, row.wanted, &mut added);
    if large.stored == 0 && large.count() > 0 {
        maker.presence();
    }
    large.added.values().for_each(|value| maker.value(value));
    let mut removed = Vec::new();
    if large.count() == 0 && row.wanted.has(Kinds::PRESENCE) {
        removed.push(EntryKey::from_vec(key::make(row.number, KeyKind::Presence, &[])));
    }
    if row.wanted.has(Kinds::EQUALITY) {
        let keys = large.removed.iter().map(|member| values::index_key_of_member(row.number, member));
        removed.extend(keys.map(EntryKey::from_vec));
    }
    let by_parts = row.wanted.without(Kinds::PRESENCE.or(Kinds::EQUALITY));
    if !by_parts.is_empty() && !large.removed.is_empty() {
        changes.leaving.push(row.number);
    }
    // A member that goes and comes back in another spelling keeps its posting.
    let added = added.finish();
    removed.retain(|key| added.binary_search(key).is_err());
    changes.removed.extend(removed);
    changes.added.extend(added);
}

/// The keys of an attribute of a new entry, ascending.
fn attribute_keys(schema: &Schema, row: &CatalogRow, attribute: &EntryAttribute) -> Vec<EntryKey> {
    let mut sorted = Sorted::new(row.number);
    visit_attribute_keys(schema, row, attribute, &mut sorted);
    sorted.finish()
}

/// Sorts keys of one attribute, those of each kind apart: where values come in the order of their equality keys, as those of a large
/// set do, these are in order already. Most keys are grams, which it sorts as numbers before they become keys.
struct Sorted {
    number: AttributeNumber,
    /// Those of the kinds before [`KeyKind::Any`].
    before: SmallVec<[EntryKey; 2]>,
    heads: SmallVec<[EntryKey; 2]>,
    grams: SmallVec<[u32; 64]>,
    tails: SmallVec<[EntryKey; 2]>,
    words: Vec<EntryKey>,
    /// From so many grams on, repeated ones are taken out: values have few that differ.
    grams_max: usize,
}

/// Grams that are kept before repeated ones are taken out.
const GRAMS_KEPT: usize = 16 * 1024;

impl KeySink for Sorted {
    fn key(&mut self, kind: KeyKind, value: &[u8]) {
        let made = || EntryKey::from_vec(key::make(self.number, kind, value));
        match kind {
            KeyKind::Presence | KeyKind::Equality => self.before.push(made()),
            KeyKind::Initial => self.heads.push(made()),
            KeyKind::Any => self.grams(value),
            KeyKind::Final => self.tails.push(made()),
            KeyKind::Approx => self.words.push(made()),
        }
    }

    fn grams(&mut self, normal: &[u8]) {
        let grams = normal.array_windows().map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]));
        self.grams.extend(grams);
        if self.grams.len() > self.grams_max {
            self.sort_grams();
            self.grams_max = GRAMS_KEPT.max(2 * self.grams.len());
        }
    }
}

impl Sorted {
    fn new(number: AttributeNumber) -> Self {
        Self {
            number,
            before: SmallVec::new(),
            heads: SmallVec::new(),
            grams: SmallVec::new(),
            tails: SmallVec::new(),
            words: Vec::new(),
            grams_max: GRAMS_KEPT,
        }
    }

    fn sort_grams(&mut self) {
        self.grams.sort_unstable();
        self.grams.dedup();
    }

    fn finish(mut self) -> Vec<EntryKey> {
        self.sort_grams();
        let Self { number, mut before, mut heads, grams, mut tails, mut words, .. } = self;
        let lists: [&mut [EntryKey]; 4] = [&mut before, &mut heads, &mut tails, &mut words];
        lists.into_iter().for_each(<[EntryKey]>::sort_unstable);
        let count = before.len() + heads.len() + grams.len() + tails.len() + words.len();
        let mut keys = Vec::with_capacity(count);
        keys.extend(before);
        keys.extend(heads);
        keys.extend(grams.iter().map(|gram| {
            let [_, value @ ..] = gram.to_be_bytes();
            match key::of_gram(number, value) {
                Some(whole) => EntryKey::from_slice(&whole),
                None => EntryKey::from_vec(key::make(number, KeyKind::Any, &value)),
            }
        }));
        keys.extend(tails);
        keys.extend(words);
        keys.dedup();
        keys
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
