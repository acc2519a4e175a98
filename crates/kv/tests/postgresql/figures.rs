//! Times beside LMDB. Not a test that can fail: `cargo test -p larix-kv --test postgresql figures -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use larix_kv::{Freshness, KvOptions};
use larix_store::contract::{INTEGER, POSTINGS, TABLES};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::{Durability, Snapshot, Store, Transaction, WriteSet};

use crate::open;
use larix_testkit::postgresql::Engine;

const RECORDS: u64 = 10_000;
const RECORD_BYTES: usize = 1000;
const READS: u64 = 4000;
const COMMITS: u64 = 300;
/// An add of an entry changes about so many posting lists at once.
const LISTS: u64 = 24;

#[test]
#[ignore = "times, for docs/adr/0072"]
fn figures() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let lmdb = tempfile::TempDir::new().expect("a directory");
    let lmdb = LmdbStore::open(lmdb.path(), &TABLES, &LmdbOptions::default()).expect("open");
    let session = KvOptions { freshness: Freshness::Session, ..KvOptions::default() };
    let strict = KvOptions::default();
    let cold = KvOptions { cache_bytes: 0, ..session.clone() };
    let writer = open(&engine, &name, &session).expect("open");
    fill(&lmdb);
    fill(&writer);
    reads("LMDB, one record", &lmdb);
    reads("session, warm", &writer);
    let strict = open(&engine, &name, &strict).expect("open");
    fill_cache(&strict);
    reads("strict, warm", &strict);
    reads("session, no cache", &open(&engine, &name, &cold).expect("open"));
    commits("LMDB", &lmdb);
    commits("session", &writer);
    commits("strict", &strict);
}

fn key(number: u64) -> [u8; 8] {
    (number.wrapping_mul(7919) % RECORDS).to_be_bytes()
}

fn fill<S: Store>(store: &S) {
    for from in (0..RECORDS).step_by(1000) {
        let mut set = WriteSet::new();
        (from..from + 1000).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), vec![7; RECORD_BYTES]));
        store.transaction().expect("transaction").commit(&set, Durability::Sync).expect("commit");
    }
}

fn fill_cache<S: Store>(store: &S) {
    let snapshot = store.snapshot().expect("snapshot");
    let keys: Vec<_> = (0..RECORDS).map(u64::to_be_bytes).collect();
    assert!(snapshot.get_many(INTEGER, &keys).expect("get").iter().all(Option::is_some));
}

fn reads<S: Store>(what: &str, store: &S) {
    let read = |number| {
        let snapshot = store.snapshot().expect("snapshot");
        assert!(snapshot.get(INTEGER, &key(number)).expect("get").is_some());
    };
    show(what, READS, read);
}

fn commits<S: Store>(what: &str, store: &S) {
    let commit = |set: &WriteSet| {
        store.transaction().expect("transaction").commit(set, Durability::Sync).expect("commit");
    };
    show(&format!("{what}, a commit of one record"), COMMITS, |number| {
        let mut set = WriteSet::new();
        set.put(INTEGER, &key(number), vec![8; RECORD_BYTES]);
        commit(&set);
    });
    show(&format!("{what}, with {LISTS} posting lists"), COMMITS, |number| {
        let mut set = WriteSet::new();
        set.put(INTEGER, &key(number), vec![9; RECORD_BYTES]);
        (0..LISTS)
            .for_each(|list| set.add_posting(POSTINGS, &[b"k", &list.to_be_bytes()[..]].concat(), number));
        commit(&set);
    });
}

fn show(what: &str, times: u64, mut carry_out: impl FnMut(u64)) {
    let mut taken: Vec<Duration> = Vec::new();
    for number in 0..times {
        let before = Instant::now();
        carry_out(number);
        taken.push(before.elapsed());
    }
    taken.sort();
    let at = |part: usize| {
        taken.get(taken.len() * part / 100).copied().unwrap_or_default().as_nanos() as f64 / 1000.0
    };
    println!("{what:40} p50 {:9.1} us  p99 {:9.1} us", at(50), at(99));
}
