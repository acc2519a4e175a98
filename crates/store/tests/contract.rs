//! The contract suite over every engine.

use larix_store::contract::{self, Step, TABLES};
use larix_store::fault::{FaultPlan, FaultStore};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;
use larix_store::{CommitError, Durability, Store, Transaction, WriteSet};
use proptest::prelude::*;
use tempfile::TempDir;

fn lmdb() -> (LmdbStore, TempDir) {
    let directory = TempDir::new().expect("a temporary directory");
    let store = LmdbStore::open(directory.path(), &TABLES, &LmdbOptions::default()).expect("open");
    (store, directory)
}

fn memory() -> (MemoryStore, ()) {
    (MemoryStore::new(&TABLES).expect("open"), ())
}

#[test]
fn memory_keeps_the_contract() {
    contract::run(memory);
}

#[test]
fn lmdb_keeps_the_contract() {
    contract::run(lmdb);
}

#[test]
fn fault_over_memory_keeps_the_contract() {
    contract::run(|| (FaultStore::new(memory().0, FaultPlan::new()), ()));
}

#[test]
fn fault_over_lmdb_keeps_the_contract() {
    contract::run(|| {
        let (store, directory) = lmdb();
        (FaultStore::new(store, FaultPlan::new()), directory)
    });
}

fn shared() -> (SharedStore, ()) {
    (SharedStore::new(&TABLES).expect("open"), ())
}

#[test]
fn shared_keeps_the_contract() {
    contract::run(shared);
}

#[test]
fn fault_over_shared_keeps_the_contract() {
    contract::run(|| (FaultStore::new(shared().0, FaultPlan::new()), ()));
}

#[test]
fn handles_of_one_store_keep_the_contract() {
    contract::run_shared(
        || {
            let (one, ()) = shared();
            let other = one.another();
            (one, other, ())
        },
        |handle| handle.take_over().expect("the epoch rises"),
    );
}

/// Taking over ends a transaction that is under way, too.
#[test]
fn a_transaction_is_fenced_at_its_commit() {
    let (one, ()) = shared();
    let under_way = one.transaction().expect("transaction");
    let _leader = one.take_over().expect("the epoch rises");
    let refused = under_way.commit(&WriteSet::new(), Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
}

fn step() -> impl Strategy<Value = Step> {
    let ids = || (0..9u8, 0..4000u16, 0..96u16, 1..1500u16);
    prop_oneof![
        (0..24u8, any::<u8>()).prop_map(|(key, value)| Step::Put { key, value }),
        (0..24u8).prop_map(|key| Step::Delete { key }),
        (0..24u8, any::<u8>()).prop_map(|(id, value)| Step::PutInteger { id, value }),
        (0..24u8).prop_map(|id| Step::DeleteInteger { id }),
        ids().prop_map(|(key, first, stride, count)| Step::Add { key, first, stride, count }),
        ids().prop_map(|(key, first, stride, count)| Step::Remove { key, first, stride, count }),
        (0..9u8, 0..4000u16).prop_map(|(key, first)| Step::Add { key, first, stride: 0, count: 1 }),
        (0..9u8, 0..4000u16).prop_map(|(key, first)| Step::Remove { key, first, stride: 0, count: 1 }),
    ]
}

fn groups() -> impl Strategy<Value = Vec<Vec<Vec<Step>>>> {
    let operation = prop::collection::vec(step(), 1..6);
    let group = prop::collection::vec(operation, 1..4);
    prop::collection::vec(group, 1..8)
}

/// How many ids a list under two layers of changes has is an estimate of an estimate: that it has any is not.
#[test]
fn a_list_cut_down_in_two_operations_of_a_group_is_still_there() {
    let groups = [
        vec![vec![Step::Add { key: 1, first: 0, stride: 5, count: 514 }]],
        vec![
            vec![Step::Remove { key: 1, first: 0, stride: 6, count: 506 }],
            vec![Step::Remove { key: 1, first: 22, stride: 67, count: 30 }],
        ],
    ];
    contract::replay(&lmdb().0, &groups);
    contract::replay(&memory().0, &groups);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_follows_the_model(groups in groups()) {
        contract::replay(&memory().0, &groups);
    }

    #[test]
    fn shared_follows_the_model(groups in groups()) {
        contract::replay(&shared().0, &groups);
    }

    #[test]
    fn lmdb_follows_the_model(groups in groups()) {
        let (store, _directory) = lmdb();
        contract::replay(&store, &groups);
    }
}
