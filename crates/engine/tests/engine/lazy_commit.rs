//! `lazycommit`: what the machine takes with it was never claimed. A crash may undo the last commit, whose root need not be on
//! disk yet; the contextCSN goes with the changes that it stands for, and a consumer asks for them again.

use std::fs;
use std::path::Path;
use std::sync::mpsc;

use larix_engine::csn::Csn;
use larix_engine::log;
use larix_engine::replica::{ApplyOutcome, ReplicaRules, ReplicatedBatch, ReplicatedChange};
use larix_engine::tables::TABLES;
use larix_engine::time::Timestamp;
use larix_engine::write::AttributeValues;
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use uuid::Uuid;

use crate::common::{self, Fixture, SUFFIX, assert_sound, schema, settings};

const BATCHES: usize = 12;
const EACH: usize = 5;
/// LMDB's two roots take turns in the first pages.
const ROOTS: usize = 2 * 4_096;

fn csn(batch: usize) -> Csn {
    let time = Timestamp(common::START.0 + batch as i64 * 1_000_000);
    Csn { time, count: 0, server_id: 7, modification: 0 }
}

fn dn(batch: usize, number: usize) -> String {
    format!("cn=b{batch}n{number},{SUFFIX}")
}

fn put(number: usize, dn: &str, class: &str, batch: usize) -> ReplicatedChange {
    let (name, value) = dn.split(',').next().unwrap().split_once('=').unwrap();
    let attributes = [
        ("objectClass", class.to_owned()),
        ("structuralObjectClass", class.to_owned()),
        (name, value.to_owned()),
        ("entryCSN", csn(batch).to_string()),
        ("createTimestamp", "20200101000000Z".to_owned()),
    ];
    let attributes = attributes.into_iter().map(|(name, value)| AttributeValues {
        description: name.to_owned(),
        values: vec![value.into_bytes()],
    });
    let entry_uuid = Uuid::from_u128(number as u128 + 1);
    ReplicatedChange::Put {
        entry_uuid,
        dn: dn.to_owned(),
        attributes: attributes.collect(),
        state: None,
        place: None,
    }
}

/// A batch as a consumer hands it over, and what it stands for.
fn changes(batch: usize) -> Vec<ReplicatedChange> {
    let entries = (0..EACH).map(|n| put(1 + batch * EACH + n, &dn(batch, n), "device", batch));
    let suffix = (batch == 0).then(|| put(0, SUFFIX, "domain", batch));
    suffix.into_iter().chain(entries).collect()
}

fn replicate<S: Store>(fixture: &Fixture<S>, batch: usize) {
    let (sender, receiver) = mpsc::channel();
    let rules = ReplicaRules { lazy: true, ..ReplicaRules::default() };
    let batch = ReplicatedBatch { changes: changes(batch), context_csns: vec![csn(batch)], rules };
    fixture.directory.databases()[0].replicate(batch, Box::new(move |done| sender.send(done).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
    assert!(outcome.changes.iter().all(|applied| *applied == ApplyOutcome::Done), "{outcome:?}");
}

fn opened(folder: &Path) -> Fixture<LmdbStore> {
    let schema = schema("");
    let settings = settings(&schema);
    let store = LmdbStore::open(folder, &TABLES, &LmdbOptions::default()).unwrap();
    Fixture::of(schema, vec![(store, settings)])
}

/// How many batches there are: the contextCSN says so, and the entries do.
fn batches(fixture: &Fixture<LmdbStore>) -> usize {
    let claimed = log::context_csns(&fixture.database().store().snapshot().unwrap()).unwrap();
    let there = |batch: usize| (0..EACH).filter(|n| fixture.entry(&dn(batch, *n)).is_some()).count();
    let whole = (0..BATCHES).take_while(|batch| there(*batch) == EACH).count();
    assert!((whole..BATCHES).all(|batch| there(batch) == 0), "a part of a batch");
    let expected: Vec<Csn> = whole.checked_sub(1).map(csn).into_iter().collect();
    assert_eq!(claimed, expected, "{whole} batches are there");
    assert_sound(fixture.database(), "after a crash");
    whole
}

#[test]
fn what_a_crash_undoes_was_never_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, file) = (opened(folder.path()), folder.path().join("data.mdb"));
    let mut undone = 0;
    for batch in 0..BATCHES {
        let before = fs::read(&file).unwrap();
        replicate(&fixture, batch);
        let mut after = fs::read(&file).unwrap();
        // The pages of the last commit are on disk, its root is not.
        after[..ROOTS].copy_from_slice(&before[..ROOTS]);
        let crashed = tempfile::tempdir().unwrap();
        fs::write(crashed.path().join("data.mdb"), after).unwrap();
        let crashed = opened(crashed.path());
        let left = batches(&crashed);
        assert!(left <= batch + 1, "{left}");
        undone += batch + 1 - left;
        // It asks with what it has, and is sent the rest.
        (left..=batch).for_each(|batch| replicate(&crashed, batch));
        assert_eq!(batches(&crashed), batch + 1);
    }
    assert_eq!(batches(&fixture), BATCHES);
    assert!(undone > 0, "nothing was lost: the test loses nothing");
}
