//! The index keys of a new entry, written as they are made: into the index what comes at once, and substring keys straight into
//! the entry's row ([`super::pending`]). Most keys of an entry are grams: they are numbers until they stand in the row.

use larix_schema::Schema;
use larix_store::{Snapshot, WriteSet};
use smallvec::SmallVec;

use super::keys::{self, KeySink};
use super::pending::{self, NewRow, ROW_KEYS_MAX, Writing};
use super::substrings::{EDGE_LENGTH, GRAM_LENGTH};
use super::{KeyKind, key};
use crate::catalog::Catalog;
use crate::entry::{AttributeNumber, Entry, EntryId};
use crate::fault::Fault;
use crate::tables::{INDEX, PENDING};

/// Grams of one attribute that are gathered, repeated ones included. With more of them the keys are made the other way, which takes
/// repeated ones out on the way.
const GRAMS_MAX: usize = 8 * ROW_KEYS_MAX;

/// The head or the tail of a value.
type Edge = SmallVec<[u8; EDGE_LENGTH]>;

/// Adds the keys of an entry that is new. It does what [`pending::apply`] does with [`keys::changes`], at less cost.
///
/// # Errors
/// A store that cannot be read.
pub(crate) fn put<S: Snapshot>(
    set: &mut WriteSet,
    snapshot: &S,
    schema: &Schema,
    catalog: &Catalog,
    id: EntryId,
    entry: &Entry,
) -> Result<(), Fault> {
    let mut sink = NewKeys::new(set, id);
    for attribute in entry.attributes.iter().filter(|attribute| attribute.unchanged.is_none()) {
        let row = catalog.number(&attribute.description).and_then(|number| catalog.row(number));
        let Some(row) = row.filter(|row| !row.wanted.is_empty()) else { continue };
        sink.number = row.number;
        keys::visit_attribute_keys(schema, row, attribute, &mut sink);
        sink.finish_attribute();
    }
    match sink.into_row() {
        Some(row) if row.is_empty() => Ok(()),
        Some(row) => {
            set.put(PENDING, &id.to_bytes(), row.into_bytes());
            Ok(())
        }
        // What is in the index already is put there once more.
        None => {
            let changes = keys::changes::<S>(schema, catalog, None, Some(entry))?;
            pending::apply(set, snapshot, id, &changes, Writing::New)
        }
    }
}

/// Takes the keys of one attribute after the other.
struct NewKeys<'s> {
    set: &'s mut WriteSet,
    id: EntryId,
    number: AttributeNumber,
    heads: SmallVec<[Edge; 4]>,
    grams: SmallVec<[u32; 64]>,
    tails: SmallVec<[Edge; 4]>,
    row: NewRow,
    /// Room for a key.
    key: Vec<u8>,
    /// A value has a byte that is escaped in keys, or there are too many keys.
    is_unusual: bool,
}

impl KeySink for NewKeys<'_> {
    fn key(&mut self, kind: KeyKind, value: &[u8]) {
        match kind {
            KeyKind::Presence | KeyKind::Equality | KeyKind::Approx => {
                self.key.clear();
                key::put(&mut self.key, self.number, kind, value);
                self.set.add_posting(INDEX, &self.key, self.id.0);
            }
            KeyKind::Any => self.grams(value),
            KeyKind::Initial | KeyKind::Final if value.contains(&0) => self.is_unusual = true,
            KeyKind::Initial => self.heads.push(Edge::from_slice(value)),
            KeyKind::Final => self.tails.push(Edge::from_slice(value)),
        }
    }

    fn grams(&mut self, normal: &[u8]) {
        if normal.contains(&0) || self.grams.len() > GRAMS_MAX {
            self.is_unusual = true;
            return;
        }
        let grams = normal.array_windows().map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]));
        self.grams.extend(grams);
    }
}

impl<'s> NewKeys<'s> {
    fn new(set: &'s mut WriteSet, id: EntryId) -> Self {
        Self {
            set,
            id,
            number: AttributeNumber(0),
            heads: SmallVec::new(),
            grams: SmallVec::new(),
            tails: SmallVec::new(),
            row: NewRow::default(),
            key: Vec::new(),
            is_unusual: false,
        }
    }

    /// Puts the substring keys of the attribute into the row, in the order of keys.
    fn finish_attribute(&mut self) {
        put_edges(&mut self.row, (self.number, KeyKind::Initial), &mut self.heads);
        if !self.grams.is_empty() {
            self.grams.sort_unstable();
            self.grams.dedup();
            let tails = self.row.begin_run((self.number, KeyKind::Any), GRAM_LENGTH, self.grams.len());
            for gram in &self.grams {
                let [_, value @ ..] = gram.to_be_bytes();
                tails.extend_from_slice(&value);
            }
            self.grams.clear();
        }
        put_edges(&mut self.row, (self.number, KeyKind::Final), &mut self.tails);
    }

    /// `None`: the keys have to be made another way.
    fn into_row(self) -> Option<NewRow> {
        let is_usual = !self.is_unusual && self.row.keys() <= ROW_KEYS_MAX;
        is_usual.then_some(self.row)
    }
}

/// Puts heads or tails into a row, those of one length as one run.
fn put_edges(row: &mut NewRow, of: (AttributeNumber, KeyKind), edges: &mut SmallVec<[Edge; 4]>) {
    edges.sort_unstable();
    edges.dedup();
    let mut done: u32 = 0;
    for length in edges.iter().map(SmallVec::len) {
        if done & (1 << length) != 0 {
            continue;
        }
        done |= 1 << length;
        let alike = edges.iter().filter(|edge| edge.len() == length);
        let tails = row.begin_run(of, length, alike.clone().count());
        alike.for_each(|edge| tails.extend_from_slice(edge));
    }
    edges.clear();
}

const _: () = assert!(EDGE_LENGTH < u32::BITS as usize);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larix_schema::{AttributeDescription, SchemaBuilder};
    use larix_store::Store;
    use larix_store::memory::MemoryStore;

    use super::*;
    use crate::catalog::CatalogEdit;
    use crate::entry::EntryAttribute;
    use crate::index::IndexConfig;
    use crate::tables::TABLES;

    /// What a set of the keys of an entry comes to by all its changes.
    fn by_changes<S: Snapshot>(snapshot: &S, schema: &Schema, catalog: &Catalog, entry: &Entry) -> WriteSet {
        let mut set = WriteSet::new();
        let changes = keys::changes::<S>(schema, catalog, None, Some(entry)).unwrap();
        pending::apply(&mut set, snapshot, EntryId(7), &changes, Writing::New).unwrap();
        set
    }

    #[test]
    fn a_new_entry_has_the_same_keys_both_ways() {
        let mut builder = SchemaBuilder::system();
        for name in ["core", "cosine", "inetorgperson"] {
            builder.add_bundled(name).unwrap();
        }
        let octets = "( 1.3.6.1.4.1.99999.1 NAME 'octets' EQUALITY octetStringMatch SUBSTR octetStringSubstringsMatch \
                      SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )";
        builder.add_attribute_type(octets).unwrap();
        let schema = builder.build();
        let store = MemoryStore::new(&TABLES).unwrap();
        let snapshot = store.snapshot().unwrap();
        let long: String = (0..3_000_u64).map(|n| format!("{:x} ", n * 7_919)).collect();
        let many: Vec<String> = (0..600_u64).map(|n| format!("{:x}@example.com", n * n * 7_919)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cases: [&[(&str, &[&str])]; 8] = [
            &[("cn", &["Ann Example"]), ("sn", &["Example"]), ("mail", &["ann@example.com"])],
            // Shared heads, tails and grams; heads of several lengths.
            &[(
                "cn",
                &["ab", "abc", "Ab d", "a name longer than an edge", "a name longer than an edge, too"],
            )],
            &[("cn", &["a"]), ("sn", &["bb"]), ("objectClass", &["inetOrgPerson", "person"])],
            &[("description", &["of no index"])],
            // Bytes that keys escape.
            &[("cn", &["x"]), ("octets", &["a\0b", "abc\0"])],
            &[("octets", &["abc", "ab"])],
            // More than a row takes: by one value, and by many.
            &[("cn", &[long.as_str()])],
            &[("mail", &many), ("cn", &["behind them"])],
        ];
        for case in cases {
            let mut index = IndexConfig::default();
            index.add_line(&schema, "cn,sn,mail", Some("pres,eq,sub,approx")).unwrap();
            index.add_line(&schema, "octets", Some("eq,sub")).unwrap();
            let catalog = Catalog::load(&snapshot, &schema, index).unwrap();
            let mut catalog = CatalogEdit::new(Arc::new(catalog));
            let mut entry = Entry::new("cn=x");
            for (name, values) in case {
                let description = AttributeDescription::plain(schema.attribute_type(name).unwrap().id);
                catalog.number(&schema, &description);
                let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
                entry.attributes.push(EntryAttribute::new(description, values));
            }
            let expected = by_changes(&snapshot, &schema, catalog.catalog(), &entry);
            let mut set = WriteSet::new();
            put(&mut set, &snapshot, &schema, catalog.catalog(), EntryId(7), &entry).unwrap();
            assert_eq!(set, expected, "{case:?}");
        }
    }
}
