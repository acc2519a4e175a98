//! Random steps against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use super::{INTEGER, ORDERED, POSTINGS, ids, keys, scanned};
use crate::layered::Layered;
use crate::store::{Durability, PostingCursor, Snapshot, Store, Transaction};
use crate::table::{Direction, KeyRange};
use crate::write_set::WriteSet;

/// One change of a write set. Keys and ids are drawn small, so that they meet.
#[derive(Clone, Debug)]
pub enum Step {
    Put {
        key: u8,
        value: u8,
    },
    Delete {
        key: u8,
    },
    PutInteger {
        id: u8,
        value: u8,
    },
    DeleteInteger {
        id: u8,
    },
    /// `count` ids from `first` on, `stride` apart.
    Add {
        key: u8,
        first: u16,
        stride: u16,
        count: u16,
    },
    Remove {
        key: u8,
        first: u16,
        stride: u16,
        count: u16,
    },
}

/// What a store ought to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    ordered: BTreeMap<Vec<u8>, Vec<u8>>,
    integer: BTreeMap<Vec<u8>, Vec<u8>>,
    postings: BTreeMap<Vec<u8>, BTreeSet<u64>>,
}

/// Applies groups of operations, each a list of steps, one commit a group, and compares the store with the model
/// before each commit through overlays, and after it.
pub fn replay<S: Store>(store: &S, groups: &[Vec<Vec<Step>>]) {
    let mut model = Model::default();
    for group in groups {
        let transaction = store.transaction().expect("transaction");
        let mut changes = WriteSet::new();
        for operation in group {
            let mut own = WriteSet::new();
            for step in operation {
                step.apply(&mut own, &mut model);
            }
            let grouped = Layered::new(&transaction, &changes);
            model.compare(&Layered::new(&grouped, &own));
            changes.merge(own);
        }
        transaction.commit(&changes, Durability::NoSync).expect("commit");
        model.compare(&store.snapshot().expect("snapshot"));
    }
}

impl Step {
    fn apply(&self, set: &mut WriteSet, model: &mut Model) {
        match *self {
            Self::Put { key, value } => {
                let (key, value) = (ordered_key(key), vec![value; usize::from(value)]);
                set.put(ORDERED, &key, value.clone());
                model.ordered.insert(key, value);
            }
            Self::Delete { key } => {
                set.delete(ORDERED, &ordered_key(key));
                model.ordered.remove(&ordered_key(key));
            }
            Self::PutInteger { id, value } => {
                let key = integer_key(id);
                set.put(INTEGER, &key, vec![value]);
                model.integer.insert(key, vec![value]);
            }
            Self::DeleteInteger { id } => {
                set.delete(INTEGER, &integer_key(id));
                model.integer.remove(&integer_key(id));
            }
            Self::Add { key, first, stride, count } => {
                let ids = model.postings.entry(posting_key(key)).or_default();
                for id in strided(first, stride, count) {
                    set.add_posting(POSTINGS, &posting_key(key), id);
                    ids.insert(id);
                }
            }
            Self::Remove { key, first, stride, count } => {
                let ids = model.postings.entry(posting_key(key)).or_default();
                for id in strided(first, stride, count) {
                    set.remove_posting(POSTINGS, &posting_key(key), id);
                    ids.remove(&id);
                }
            }
        }
    }
}

impl Model {
    fn compare(&self, source: &impl Snapshot) {
        for (table, want) in [(ORDERED, &self.ordered), (INTEGER, &self.integer)] {
            let got = scanned(source, table, KeyRange::all(), Direction::Forward);
            assert!(
                got.iter().map(|(key, value)| (key, value)).eq(want),
                "table {table:?}: {got:?} {want:?}"
            );
            let middle = want.keys().nth(want.len() / 2).cloned().unwrap_or_default();
            let got = scanned(source, table, KeyRange::at_most(&middle), Direction::Backward);
            let want_back = want.iter().rev().filter(|(key, _)| middle.is_empty() || **key <= middle);
            assert!(got.iter().map(|(key, value)| (key, value)).eq(want_back), "table {table:?} backward");
        }
        let lists: Vec<(Vec<u8>, &BTreeSet<u64>)> = self
            .postings
            .iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(key, ids)| (key.clone(), ids))
            .collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let got = keys(source, KeyRange::all(), direction);
            let mut want: Vec<&Vec<u8>> = lists.iter().map(|(key, _)| key).collect();
            if direction == Direction::Backward {
                want.reverse();
            }
            assert!(got.iter().map(|(key, _)| key).eq(want), "{got:?}");
            assert!(got.iter().all(|(_, count)| *count > 0), "{got:?}");
        }
        for (key, want) in &self.postings {
            let got = ids(source, key);
            assert!(got.iter().eq(want), "postings of {key:?}: {got:?}, not {want:?}");
            let mut cursor = source.postings(POSTINGS, key).expect("postings");
            for min in (0..).step_by(937).take_while(|min| *min < 140_000) {
                let found = cursor.seek(min).expect("seek");
                assert_eq!(found, want.range(min..).next().copied(), "seek {min} in {key:?}");
            }
        }
    }
}

fn ordered_key(key: u8) -> Vec<u8> {
    // Some keys are prefixes of others.
    vec![key / 4; usize::from(key % 4) + 1]
}

fn integer_key(id: u8) -> Vec<u8> {
    u64::from(id).pow(7).to_be_bytes().to_vec()
}

fn posting_key(key: u8) -> Vec<u8> {
    [&vec![b'k'; usize::from(key % 3)][..], &[key, 0]].concat()
}

fn strided(first: u16, stride: u16, count: u16) -> impl Iterator<Item = u64> {
    (0..u64::from(count)).map(move |n| u64::from(first) + n * u64::from(stride % 64 + 1))
}
