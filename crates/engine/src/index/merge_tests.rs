//! Pending keys against a naive model: whatever is merged when, the index and the rows together tell the truth.

use std::collections::{BTreeMap, BTreeSet};

use larix_store::memory::MemoryStore;
use larix_store::{Direction, Durability, KeyRange, Snapshot, Store, Transaction, WriteSet};

use super::merge::{Merger, drain};
use super::pending::{self, Need, ROW_KEYS_MAX, Writing};
use super::{IndexChanges, KeyKind, key};
use crate::entry::{AttributeNumber, EntryId};
use crate::tables::{INDEX, PENDING, TABLES};
use crate::time::SeededRandom;

const N: AttributeNumber = AttributeNumber(7);
const GRAMS: u64 = 40;

fn gram(number: u64) -> [u8; 3] {
    [b'a' + (number % 7) as u8, b'a' + (number / 7) as u8, 0]
}

fn any_key(number: u64) -> Vec<u8> {
    key::make(N, KeyKind::Any, &gram(number))
}

fn changes(old: &BTreeSet<u64>, new: &BTreeSet<u64>) -> IndexChanges {
    let sorted = |grams: &mut dyn Iterator<Item = &u64>| {
        let mut keys: Vec<_> = grams.map(|gram| any_key(*gram).into()).collect();
        keys.sort_unstable();
        keys
    };
    let (added, removed) = (sorted(&mut new.difference(old)), sorted(&mut old.difference(new)));
    IndexChanges { added, removed, ..IndexChanges::default() }
}

/// Each gram's entries are found, and of the others none that the index and the rows do not still owe.
fn check<S: Snapshot>(view: &S, entries: &BTreeMap<u64, BTreeSet<u64>>, context: &str) {
    for gram_number in 0..GRAMS {
        let in_index = view.posting_set(INDEX, &any_key(gram_number)).unwrap();
        let need = Need::new(KeyKind::Any, &gram(gram_number), false);
        let late = pending::candidates(view, N, &[need]).unwrap();
        for (id, grams) in entries {
            let found = in_index.contains(*id) || late.contains(id);
            assert!(found || !grams.contains(&gram_number), "{context}: gram {gram_number} of {id} is lost");
            let says =
                pending::row(view, EntryId(*id)).unwrap().and_then(|row| row.says(&any_key(gram_number)));
            let truth = says.unwrap_or_else(|| in_index.contains(*id));
            assert_eq!(truth, grams.contains(&gram_number), "{context}: gram {gram_number} of {id}");
        }
    }
}

#[test]
fn rows_and_index_tell_the_truth_at_any_time() {
    for seed in 1..=40 {
        let dice = SeededRandom::new(seed);
        let below = |limit: u64| dice.number() % limit;
        let store = MemoryStore::new(&TABLES).unwrap();
        let mut merger = Merger::new(&store.snapshot().unwrap()).unwrap();
        let mut entries: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for step in 0..60 {
            let transaction = store.transaction().unwrap();
            let mut set = WriteSet::new();
            let mut after = entries.clone();
            let id = 1 + below(12);
            let is_new = !after.contains_key(&id);
            let old = after.get(&id).cloned().unwrap_or_default();
            let new: BTreeSet<u64> = match below(5) {
                0 => BTreeSet::new(),
                count => (0..count * 3).map(|_| below(GRAMS)).collect(),
            };
            let writing = match below(6) {
                0 => Writing::OneOfMany,
                _ if is_new => Writing::New,
                _ => Writing::Changed,
            };
            pending::apply(&mut set, &transaction, EntryId(id), &changes(&old, &new), writing).unwrap();
            after.insert(id, new);
            merger.observe(&set).unwrap();
            let overlay = larix_store::Layered::new(&transaction, &set);
            let slice = merger.slice(&overlay, dice.below(30), below(3) == 0).unwrap();
            slice.write(&mut set);
            if below(10) == 0 {
                // The commit fails, or the server is killed: all that is known is what stands.
                drop(transaction);
                merger = Merger::new(&store.snapshot().unwrap()).unwrap();
            } else {
                transaction.commit(&set, Durability::Sync).unwrap();
                entries = after;
            }
            check(&store.snapshot().unwrap(), &entries, &format!("seed {seed}, step {step}"));
        }
        drain(&store).unwrap();
        let view = store.snapshot().unwrap();
        assert_eq!(view.scan(PENDING, KeyRange::all(), Direction::Forward).unwrap().count(), 0);
        check(&view, &entries, &format!("seed {seed}, drained"));
    }
}

#[test]
fn a_row_has_an_end() {
    let store = MemoryStore::new(&TABLES).unwrap();
    let key = |number: u64| key::make(N, KeyKind::Initial, format!("{number:06}").as_bytes());
    let added = (0..ROW_KEYS_MAX as u64 + 10).map(|number| key(number).into()).collect();
    let many = IndexChanges { added, ..IndexChanges::default() };
    let transaction = store.transaction().unwrap();
    let mut set = WriteSet::new();
    pending::apply(&mut set, &transaction, EntryId(5), &many, Writing::New).unwrap();
    transaction.commit(&set, Durability::Sync).unwrap();
    let view = store.snapshot().unwrap();
    let row = pending::row(&view, EntryId(5)).unwrap().unwrap();
    assert_eq!((row.keys.len(), row.whole), (ROW_KEYS_MAX, false));
    assert!(view.posting_contains(INDEX, &key(ROW_KEYS_MAX as u64 + 9), 5).unwrap());
}
