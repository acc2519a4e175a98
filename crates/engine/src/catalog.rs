//! The catalog: attribute descriptions by number, and which indexes each number has.
//!
//! Numbers are given in the change's own transaction and never change. A [`Catalog`] is immutable; the writer extends
//! a copy through [`CatalogEdit`] and publishes it before the commit becomes visible, so that a reader who takes its
//! snapshot first and the catalog second always knows every number that it meets.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use foldhash::HashMap;
use larix_proto::encode::AttributeHead;
use larix_schema::{AttributeDescription, AttributeTypeId, MatchingRule, Schema};
use larix_store::{Direction, KeyRange, Snapshot, WriteSet};
use smallvec::SmallVec;

use crate::codec::{Dictionaries, Dictionary};
pub(crate) use crate::fault::CatalogError;
use crate::ids::AttributeNumber;
use crate::index_config::{IndexConfig, Kinds};
use crate::record::{RecordFlags, digest};
use crate::tables::ATTRIBUTES;

/// One numbered attribute description.
#[derive(Clone, Debug)]
pub struct CatalogRow {
    pub number: AttributeNumber,
    /// The description as it is shown: the type's name and its options.
    pub text: Box<str>,
    /// How it begins in answers.
    pub head: AttributeHead,
    /// `None` when the schema no longer has the type: such values are kept and shown, but not searched.
    pub description: Option<AttributeDescription>,
    /// Kinds that the index lines ask for.
    pub wanted: Kinds,
    /// Kinds whose postings are complete.
    pub built: Kinds,
    pub equality: Option<&'static MatchingRule>,
    pub substring: Option<&'static MatchingRule>,
    /// Whether superior classes count as values: the attribute is objectClass.
    pub classes: bool,
    pub operational: bool,
    /// Its type has no other row.
    only_one: bool,
}

impl CatalogRow {
    /// Tells apart what keys were made with.
    pub(crate) fn rules(&self) -> [u8; 4] {
        let name = |rule: Option<&'static MatchingRule>| match rule.map(|rule| (rule.oid, rule.revision())) {
            None => String::new(),
            Some((oid, 0)) => oid.to_owned(),
            Some((oid, revision)) => format!("{oid}/{revision}"),
        };
        let text = format!("{NORMALIZATION} {} {}", name(self.equality), name(self.substring));
        let [a, b, c, d, ..] = digest(text.as_bytes());
        [a, b, c, d]
    }

    /// Kinds that a search may use.
    pub fn usable(&self) -> Kinds {
        self.wanted.and(self.built)
    }
}

/// Raised when keys are made otherwise than before: all indexes are rebuilt. Where one matching rule makes other keys, its
/// [revision](MatchingRule::revision) is raised, and only its indexes are.
const NORMALIZATION: u32 = 2;

/// Between a reader's snapshot and its look at the catalog no more builds come to their end.
const COMPLETIONS_KEPT: usize = 8;

/// Numbers of attribute descriptions.
pub(crate) type Numbers = SmallVec<[AttributeNumber; 4]>;

/// Numbers of the descriptions that one description covers. Many are shared: clients can make the options of a type
/// many, and a filter can name the type often.
#[derive(Clone, Debug)]
pub enum Covered {
    Few(Numbers),
    /// Ascending.
    Many(Arc<[AttributeNumber]>),
}

impl Covered {
    pub fn none() -> Self {
        Self::Few(Numbers::new())
    }

    #[inline]
    pub fn as_slice(&self) -> &[AttributeNumber] {
        match self {
            Self::Few(numbers) => numbers,
            Self::Many(numbers) => numbers,
        }
    }

    #[inline]
    pub fn contains(&self, number: AttributeNumber) -> bool {
        match self {
            Self::Few(numbers) => numbers.contains(&number),
            Self::Many(numbers) => numbers.binary_search(&number).is_ok(),
        }
    }
}

/// Finds what descriptions cover, each of those that take many rows once, and counts the rows gone through.
#[derive(Debug)]
pub struct CoveredOnce<'c> {
    schema: &'c Schema,
    catalog: &'c Catalog,
    /// Made when it is needed first.
    many: Option<HashMap<AttributeDescription, Covered>>,
    rows: u64,
    rows_max: u64,
}

impl<'c> CoveredOnce<'c> {
    pub fn new(schema: &'c Schema, catalog: &'c Catalog) -> Self {
        Self { schema, catalog, many: None, rows: 0, rows_max: u64::MAX }
    }

    /// Beyond so many rows it finds nothing: the caller has to check [`Self::is_exceeded`].
    #[must_use]
    pub fn at_most(self, rows_max: u64) -> Self {
        Self { rows_max, ..self }
    }

    pub fn schema(&self) -> &'c Schema {
        self.schema
    }

    pub fn is_exceeded(&self) -> bool {
        self.rows > self.rows_max
    }

    pub fn covered(&mut self, description: &AttributeDescription) -> Covered {
        if let Some(covered) = self.many.as_ref().and_then(|many| many.get(description)) {
            return covered.clone();
        }
        if self.is_exceeded() {
            return Covered::none();
        }
        let (covered, rows) = self.catalog.covered_of_rows(self.schema, description);
        self.rows += rows as u64;
        if rows > FEW {
            self.many.get_or_insert_default().insert(description.clone(), covered.clone());
        }
        covered
    }
}

/// So many are gone through faster one by one than they are looked up.
const FEW: usize = 16;

/// Whether ascending numbers have this one.
#[inline]
pub(crate) fn has_number(numbers: &[AttributeNumber], number: AttributeNumber) -> bool {
    if numbers.len() <= FEW { numbers.contains(&number) } else { numbers.binary_search(&number).is_ok() }
}

/// All numbered attribute descriptions of a database.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    rows: Vec<CatalogRow>,
    by_description: HashMap<AttributeDescription, AttributeNumber>,
    /// Of descriptions without options, by the type's number: most are.
    plain: Vec<Option<AttributeNumber>>,
    by_type: HashMap<AttributeTypeId, Numbers>,
    /// Of descriptions with options, by each of these.
    by_option: BTreeMap<Box<str>, Vec<AttributeNumber>>,
    object_class: Option<AttributeNumber>,
    /// Rows from here on are not stored yet.
    stored: usize,
    config: IndexConfig,
    dictionaries: Dictionaries,
    /// Some indexes are complete only from a commit on: who reads an older one takes the catalog before.
    completed: Option<(u64, Arc<Self>)>,
}

impl Catalog {
    /// Reads the stored rows and binds them to the schema and the index lines.
    pub fn load(
        snapshot: &impl Snapshot,
        schema: &Schema,
        config: IndexConfig,
    ) -> Result<Self, CatalogError> {
        let dictionaries = Dictionaries::load(snapshot)?;
        let mut catalog = Self { config, dictionaries, ..Self::default() };
        for row in snapshot.scan(ATTRIBUTES, KeyRange::all(), Direction::Forward)? {
            let (key, value) = row?;
            let damaged = || CatalogError::Damaged { key: key.to_vec() };
            let number = u32::from_be_bytes(key.as_ref().try_into().map_err(|_| damaged())?);
            let (built, rest) = value.split_first().ok_or_else(damaged)?;
            let (rules, text) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
            let text = std::str::from_utf8(text).map_err(|_| damaged())?;
            if number as usize != catalog.rows.len() {
                return Err(damaged());
            }
            let number = catalog.push(schema, text, schema.describe(text).ok(), Kinds(*built));
            if catalog.row(number).is_some_and(|row| row.rules() != *rules) {
                // The keys were made by other rules.
                catalog.set_built(number, Kinds::NONE);
            }
        }
        catalog.stored = catalog.rows.len();
        Ok(catalog)
    }

    /// The same numbers, bound to another schema or other index lines.
    pub(crate) fn rebound(&self, schema: &Schema, config: IndexConfig) -> Self {
        let dictionaries = self.dictionaries.clone();
        let mut catalog = Self { config, stored: self.stored, dictionaries, ..Self::default() };
        for row in &self.rows {
            let number = catalog.push(schema, &row.text, schema.describe(&row.text).ok(), row.built);
            if catalog.row(number).is_some_and(|now| now.rules() != row.rules()) {
                // The keys were made by other rules.
                catalog.set_built(number, Kinds::NONE);
            }
        }
        let earlier = |(commit, earlier): &(u64, Arc<Self>)| {
            (*commit, Arc::new(earlier.rebound(schema, catalog.config.clone())))
        };
        catalog.completed = self.completed.as_ref().map(earlier);
        catalog
    }

    /// The catalog to read the state after a commit with, if it is an older one.
    pub(crate) fn for_commit(&self, commit: u64) -> Option<&Arc<Self>> {
        let (_, earlier) = self.completed.as_ref().filter(|(from, _)| commit < *from)?;
        Some(earlier.for_commit(commit).unwrap_or(earlier))
    }

    fn completions(&self) -> usize {
        self.completed.as_ref().map_or(0, |(_, earlier)| 1 + earlier.completions())
    }

    /// The same with indexes that are complete from `commit` on.
    pub(crate) fn with_completed(this: &Arc<Self>, parts: &[(AttributeNumber, Kinds)], commit: u64) -> Self {
        let mut catalog = Self::clone(this);
        parts.iter().for_each(|(number, kinds)| catalog.add_built(*number, *kinds));
        let earlier = if this.completions() < COMPLETIONS_KEPT {
            Arc::clone(this)
        } else {
            Arc::new(Self { completed: None, ..Self::clone(this) })
        };
        catalog.completed = Some((commit, earlier));
        catalog
    }

    /// Whether it says the same of the same numbers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&CatalogRow, &CatalogRow)| {
            (own.built, own.wanted, &own.text) == (other.built, other.wanted, &other.text)
        };
        (self.rows.len(), self.stored, self.dictionaries.len())
            == (other.rows.len(), other.stored, other.dictionaries.len())
            && self.rows.iter().zip(&other.rows).all(is_same)
    }

    /// The same, read from the store as of `commit`, where `before` was in force here: who reads an older commit uses no
    /// index that became complete between them.
    pub(crate) fn behind(mut self, before: &Self, commit: u64) -> Self {
        let mut earlier = self.clone();
        for row in &mut earlier.rows {
            row.built = before.row(row.number).map_or(Kinds::NONE, |known| known.built.and(row.built));
        }
        let grew = self.rows.iter().zip(&earlier.rows).any(|(own, earlier)| own.built != earlier.built);
        if grew {
            earlier.completed = match before.completions() < COMPLETIONS_KEPT {
                true => before.completed.clone(),
                false => None,
            };
            self.completed = Some((commit, Arc::new(earlier)));
        } else {
            self.completed.clone_from(&before.completed);
        }
        self
    }

    /// Marks more kinds as complete.
    pub(crate) fn add_built(&mut self, number: AttributeNumber, kinds: Kinds) {
        if let Some(row) = self.rows.get_mut(number.0 as usize) {
            row.built = row.built.or(kinds);
        }
    }

    pub fn rows(&self) -> &[CatalogRow] {
        &self.rows
    }

    pub fn row(&self, number: AttributeNumber) -> Option<&CatalogRow> {
        self.rows.get(number.0 as usize)
    }

    /// What packed records are unpacked with.
    pub fn dictionaries(&self) -> &Dictionaries {
        &self.dictionaries
    }

    /// The name under which an attribute is answered.
    pub fn text(&self, number: AttributeNumber) -> &str {
        self.row(number).map_or("", |row| &row.text)
    }

    /// The number of objectClass; none before there is an entry.
    pub fn object_class(&self) -> Option<AttributeNumber> {
        self.object_class
    }

    /// The number of exactly this description, if any entry ever had it.
    pub fn number(&self, description: &AttributeDescription) -> Option<AttributeNumber> {
        if description.options().is_empty() {
            return self.plain.get(description.attribute.0 as usize).copied().flatten();
        }
        self.by_description.get(description).copied()
    }

    /// The numbers of the description and of all its subtypes and with more options (RFC 4512 section 2.5.2).
    pub fn covered(&self, schema: &Schema, description: &AttributeDescription) -> Covered {
        self.covered_of_rows(schema, description).0
    }

    /// The row of a description that covers no other one here.
    pub(crate) fn only(&self, schema: &Schema, description: &AttributeDescription) -> Option<&CatalogRow> {
        let number = match schema.subtypes(description.attribute) {
            // The usual case, which needs no list: each row of the type with more options is one that it covers.
            [_] if description.options().is_empty() => {
                let number = self.plain.get(description.attribute.0 as usize).copied().flatten()?;
                return self.row(number).filter(|row| row.only_one);
            }
            _ => match self.covered(schema, description).as_slice() {
                [number] => *number,
                _ => return None,
            },
        };
        self.row(number).filter(|row| row.description.as_ref() == Some(description))
    }

    /// Rows among which are all that have these options: those that have the rarest. None if there are no options.
    fn with_rarest(&self, options: &[Box<str>]) -> Option<Vec<&[AttributeNumber]>> {
        let lists = options.iter().map(|option| self.with_option(option));
        lists.min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>())
    }

    /// Rows with this option, or with one of a range: `lang-en-` is `lang-en` and all that begin with it and a hyphen.
    fn with_option(&self, option: &str) -> Vec<&[AttributeNumber]> {
        let list = |option: &str| self.by_option.get(option).map(Vec::as_slice);
        let Some(tag) = option.strip_suffix('-') else { return list(option).into_iter().collect() };
        let range = self.by_option.range::<str, _>((Bound::Included(option), Bound::Unbounded));
        let range = range.take_while(|(known, _)| known.starts_with(option)).map(|(_, list)| list.as_slice());
        list(tag).into_iter().chain(range).collect()
    }

    /// As [`Self::covered`], and how many rows that took.
    fn covered_of_rows(&self, schema: &Schema, description: &AttributeDescription) -> (Covered, usize) {
        let (mut numbers, mut rows) = (Numbers::new(), 0);
        let look = |number: &AttributeNumber| {
            rows += 1;
            let own = self.row(*number).and_then(|row| row.description.as_ref());
            if own.is_some_and(|own| own.is_subdescription_of(schema, description)) {
                numbers.push(*number);
            }
        };
        if let Some(few) = self.with_rarest(description.options()) {
            few.into_iter().flatten().for_each(look);
            // One that has two options of a range comes twice.
            numbers.sort_unstable();
            numbers.dedup();
        } else {
            let subtypes = schema.subtypes(description.attribute).iter();
            subtypes.filter_map(|subtype| self.by_type.get(subtype)).flatten().for_each(look);
        }
        if numbers.len() > FEW {
            numbers.sort_unstable();
            return (Covered::Many(numbers.as_slice().into()), rows);
        }
        (Covered::Few(numbers), rows)
    }

    /// Marks kinds as complete (after a rebuild) or not; [`Self::write_row`] stores that.
    pub fn set_built(&mut self, number: AttributeNumber, built: Kinds) {
        if let Some(row) = self.rows.get_mut(number.0 as usize) {
            row.built = built;
        }
    }

    /// Rows whose wanted indexes are not complete.
    pub fn stale(&self) -> impl Iterator<Item = &CatalogRow> {
        self.rows.iter().filter(|row| !row.built.has(row.wanted))
    }

    /// Marks as incomplete what is no longer wanted: from now on it is not kept.
    pub(crate) fn forget_unwanted(&mut self, set: &mut WriteSet) {
        for row in self.rows.iter_mut().filter(|row| !row.wanted.has(row.built)) {
            row.built = row.usable();
            write_row(row, set);
        }
    }

    /// Stores a row again, after [`Self::set_built`].
    pub fn write_row(&self, number: AttributeNumber, set: &mut WriteSet) {
        self.row(number).into_iter().for_each(|row| write_row(row, set));
    }

    fn push(
        &mut self,
        schema: &Schema,
        text: &str,
        description: Option<AttributeDescription>,
        built: Kinds,
    ) -> AttributeNumber {
        let number = AttributeNumber(self.rows.len() as u32);
        let wanted = description.as_ref().map_or(Kinds::NONE, |d| self.config.kinds(schema, d));
        let attribute = description.as_ref().map(|d| schema.attribute(d.attribute));
        let mut only_one = false;
        if let Some(description) = &description {
            self.by_description.insert(description.clone(), number);
            if description.options().is_empty() {
                let at = description.attribute.0 as usize;
                self.plain.resize(self.plain.len().max(at + 1), None);
                if let Some(slot) = self.plain.get_mut(at) {
                    *slot = Some(number);
                }
            }
            let of_type = self.by_type.entry(description.attribute).or_default();
            of_type.push(number);
            match of_type.as_slice() {
                [_] => only_one = true,
                // Of those behind the second one the first is none any more.
                [first, _] => {
                    self.rows.get_mut(first.0 as usize).into_iter().for_each(|row| row.only_one = false)
                }
                _ => {}
            }
            for option in description.options() {
                match self.by_option.get_mut(option) {
                    Some(numbers) => numbers.push(number),
                    None => drop(self.by_option.insert(option.clone(), vec![number])),
                }
            }
        }
        let classes = attribute.is_some_and(|a| a.name() == "objectClass");
        if classes {
            self.object_class = Some(number);
        }
        self.rows.push(CatalogRow {
            number,
            head: AttributeHead::new(text),
            text: text.into(),
            wanted,
            built,
            equality: attribute.and_then(|a| a.equality),
            substring: attribute.and_then(|a| a.substring),
            classes,
            operational: attribute.is_some_and(|a| a.is_operational()),
            only_one,
            description,
        });
        number
    }
}

/// A catalog being extended by a group of writes. Cheap while nothing is new.
#[derive(Debug)]
pub struct CatalogEdit {
    catalog: Arc<Catalog>,
    /// What the object classes of the last new entry say about it: most have the same ones as the one before.
    class_flags: Option<(Vec<Vec<u8>>, RecordFlags)>,
}

impl CatalogEdit {
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, class_flags: None }
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The number of a description, given now if it has none. No entry has it yet, so its indexes are complete.
    pub fn number(&mut self, schema: &Schema, description: &AttributeDescription) -> AttributeNumber {
        if let Some(number) = self.catalog.number(description) {
            return number;
        }
        let catalog = Arc::make_mut(&mut self.catalog);
        let text = description.to_text(schema);
        let number = catalog.push(schema, &text, Some(description.clone()), Kinds::NONE);
        let wanted = catalog.config.kinds(schema, description);
        catalog.set_built(number, wanted);
        number
    }

    /// What object classes say about a new entry; `of` finds it out.
    pub(crate) fn class_flags(
        &mut self,
        classes: &[Vec<u8>],
        of: impl FnOnce(&[Vec<u8>]) -> RecordFlags,
    ) -> RecordFlags {
        match &self.class_flags {
            Some((known, flags)) if known == classes => *flags,
            _ => self.class_flags.insert((classes.to_vec(), of(classes))).1,
        }
    }

    /// Takes back the numbers given since the catalog was this one: nothing that is written has them.
    pub(crate) fn forget_since(&mut self, before: Arc<Catalog>) {
        self.catalog = before;
    }

    /// From now on records are packed with this dictionary.
    pub(crate) fn add_dictionary(&mut self, dictionary: Arc<Dictionary>) {
        Arc::make_mut(&mut self.catalog).dictionaries.add(dictionary);
    }

    /// Adds the rows and dictionaries that are not stored yet to the group's write set.
    pub fn write_new(&self, set: &mut WriteSet) {
        self.catalog.dictionaries.write_new(set);
        self.catalog.rows.iter().skip(self.catalog.stored).for_each(|row| write_row(row, set));
    }

    /// The catalog to publish when the group has been committed; `None` when nothing is new. Publish
    /// [`Self::catalog`] before the commit and this after it; after a failed commit neither is wrong.
    pub fn committed(mut self) -> Option<Arc<Catalog>> {
        if self.catalog.stored == self.catalog.rows.len() && self.catalog.dictionaries.all_stored() {
            return None;
        }
        let catalog = Arc::make_mut(&mut self.catalog);
        catalog.stored = catalog.rows.len();
        catalog.dictionaries.set_stored();
        Some(self.catalog)
    }
}

fn write_row(row: &CatalogRow, set: &mut WriteSet) {
    let mut value = vec![row.built.0];
    value.extend_from_slice(&row.rules());
    value.extend_from_slice(row.text.as_bytes());
    set.put(ATTRIBUTES, &row.number.0.to_be_bytes(), value);
}

#[cfg(test)]
mod tests {
    use larix_store::memory::MemoryStore;
    use larix_store::{Durability, Store, Transaction};

    use super::*;
    use crate::fixture;
    use crate::tables::TABLES;

    #[test]
    fn indexes_of_an_earlier_revision_of_a_rule_are_made_anew() {
        let schema = fixture::schema();
        let mut set = WriteSet::new();
        for (number, name) in (0_u32..).zip(["member", "authzTo", "authzFrom"]) {
            let rule = schema.attribute_type(name).unwrap().equality.unwrap();
            // As rows were written before any rule had a revision.
            let [a, b, c, d, ..] = digest(format!("{NORMALIZATION} {} ", rule.oid).as_bytes());
            let mut row = vec![Kinds::EQUALITY.0, a, b, c, d];
            row.extend_from_slice(name.as_bytes());
            set.put(ATTRIBUTES, &number.to_be_bytes(), row);
        }
        let store = MemoryStore::new(&TABLES).unwrap();
        store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
        let lines = fixture::index(&[("member,authzTo,authzFrom", "eq")]);
        let catalog = Catalog::load(&store.snapshot().unwrap(), &schema, lines).unwrap();
        let stale: Vec<&str> = catalog.stale().map(|row| &*row.text).collect();
        assert_eq!(stale, ["authzTo", "authzFrom"]);
    }
}
