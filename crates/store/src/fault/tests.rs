use super::*;
use crate::contract::{ORDERED, TABLES};
use crate::memory::MemoryStore;

#[test]
fn faults_come_when_planned() {
    let plan = FaultPlan::new().at(2, Fault::Full).at(3, Fault::Conflict).at(4, Fault::Io);
    let store = FaultStore::new(MemoryStore::new(&TABLES).expect("open"), plan.clone());
    let commit = |key: &[u8]| {
        let mut set = WriteSet::new();
        set.put(ORDERED, key, *b"v");
        store.transaction()?.commit(&set, Durability::Sync)
    };
    assert!(commit(b"1").is_ok());
    assert!(matches!(commit(b"2"), Err(CommitError::Full)));
    assert!(matches!(commit(b"3"), Err(CommitError::Conflict)));
    assert!(matches!(commit(b"4"), Err(CommitError::Io(_))));
    assert!(commit(b"5").is_ok());
    assert!(!store.is_read_only());
    plan.next(Fault::Sync);
    assert!(matches!(commit(b"6"), Err(CommitError::Sync(_))));
    assert!(store.is_read_only());
    assert!(matches!(commit(b"7"), Err(CommitError::ReadOnly { after_failed_sync: true })));
    assert!(matches!(store.sync(), Err(CommitError::ReadOnly { .. })));
    assert_eq!(keys(&store), "15", "reads go on");
    assert_eq!(plan.commits(), 6);
}

#[test]
fn a_lost_answer_can_be_asked_for() {
    let lost = |made, silent| Fault::Lost { made, silent };
    for (fault, silent, there) in [
        (lost(true, 0), 0, true),
        (lost(false, 0), 0, false),
        (lost(true, 2), 2, true),
        (lost(false, 3), 3, false),
    ] {
        let store = FaultStore::new(MemoryStore::new(&TABLES).expect("open"), FaultPlan::new().at(1, fault));
        let mut set = WriteSet::new();
        set.put(ORDERED, b"k", *b"v");
        let lost = store.transaction().expect("a transaction").commit(&set, Durability::Sync);
        let Err(CommitError::OutcomeUnknown(attempt)) = lost else { panic!("{fault:?}: {lost:?}") };
        for _ in 0..silent {
            assert!(matches!(store.outcome(attempt), Err(ReadError::Unavailable(_))), "{fault:?}");
        }
        let outcome = store.outcome(attempt).expect("an outcome");
        assert_eq!(
            (outcome, keys(&store).as_str()),
            if there { (Some(CommitId(1)), "k") } else { (None, "") }
        );
    }
}

#[test]
fn a_late_commit_comes_before_the_next_transaction() {
    let store = FaultStore::new(
        crate::shared::SharedStore::new(&TABLES).expect("open"),
        FaultPlan::new().at(1, Fault::Late),
    );
    let mut set = WriteSet::new();
    set.put(ORDERED, b"a", *b"v");
    let lost = store.transaction().expect("a transaction").commit(&set, Durability::Sync);
    let Err(CommitError::OutcomeUnknown(attempt)) = lost else { panic!("{lost:?}") };
    assert!(store.outcome(attempt).is_err());
    assert_eq!(keys(&store), "");
    let next = store.transaction().expect("a transaction");
    assert_eq!((next.commit_counter(), keys(&store).as_str()), (1, "a"));
    assert_eq!(store.outcome(attempt).expect("an outcome"), Some(CommitId(1)));
}

#[test]
fn faults_by_chance_are_those_of_the_seed() {
    let failed = |seed| {
        let plan = FaultPlan::new().by_chance(Fault::Conflict, 3, seed);
        let store = FaultStore::new(MemoryStore::new(&TABLES).expect("open"), plan);
        let commit = || store.transaction()?.commit(&WriteSet::new(), Durability::Sync);
        (0..100).filter(|_| commit().is_err()).collect::<Vec<_>>()
    };
    assert_eq!(failed(1), failed(1));
    assert_ne!(failed(1), failed(2));
    assert!((20..50).contains(&failed(1).len()), "{:?}", failed(1));
}

#[test]
fn nothing_reaches_a_store_that_is_offline() {
    let plan = FaultPlan::new().at(1, Fault::Unavailable);
    let store = FaultStore::new(MemoryStore::new(&TABLES).expect("open"), plan.clone());
    let refused = store.transaction().expect("a transaction").commit(&WriteSet::new(), Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
    plan.set_offline(true);
    assert!(matches!(store.snapshot().map(drop), Err(ReadError::Unavailable(_))));
    assert!(matches!(store.transaction().map(drop), Err(CommitError::Unavailable(_))));
    plan.set_offline(false);
    assert_eq!(keys(&store), "");
}

/// The keys, of one letter each.
fn keys(store: &impl Store) -> String {
    let snapshot = store.snapshot().expect("a snapshot");
    let records = snapshot.scan(ORDERED, KeyRange::all(), Direction::Forward).expect("scan");
    records.map(|record| char::from(record.expect("record").0[0])).collect()
}

fn volatile(plan: FaultPlan) -> FaultStore<MemoryStore> {
    FaultStore::volatile(MemoryStore::new(&TABLES).expect("open"), plan)
}

/// Commits one key after another, those in capitals with a sync; `!` is a sync by itself.
fn commit(store: &impl Store, keys: &str) {
    for key in keys.chars() {
        if key == '!' {
            store.sync().expect("a sync");
            continue;
        }
        let durability = if key.is_uppercase() { Durability::Sync } else { Durability::NoMetaSync };
        let mut set = WriteSet::new();
        set.put(ORDERED, &[key as u8], *b"v");
        // One that fails was planned.
        let _ = store.transaction().expect("a transaction").commit(&set, durability);
    }
}

#[test]
fn a_machine_that_dies_loses_the_last_that_was_not_synced() {
    for (commits, fault, left) in [
        ("", None, &[""][..]),
        ("A", None, &["A"]),
        ("a", None, &["a", ""]),
        ("abC", None, &["Cab"]),
        ("abCde", None, &["Cabde", "Cabd", "Cab"]),
        ("ab!c", None, &["abc", "ab"]),
        // What failed was never there, and its sync covers nothing.
        ("abC", Some((3, Fault::Full)), &["ab", "a", ""]),
        ("abC", Some((3, Fault::Sync)), &["ab", "a", ""]),
    ] {
        let plan = fault.map_or_else(FaultPlan::new, |(at, fault)| FaultPlan::new().at(at, fault));
        let store = volatile(plan);
        commit(&store, commits);
        assert_eq!(store.at_risk() + 1, left.len(), "{commits}");
        for (lost, left) in left.iter().enumerate() {
            let empty = MemoryStore::new(&TABLES).expect("open");
            let after = store.after_loss(lost, empty).expect("what was committed before");
            assert_eq!((keys(&after).as_str(), after.at_risk()), (*left, 0), "{commits} without {lost}");
            // It goes on, and may die again.
            commit(&after, "z");
            let empty = MemoryStore::new(&TABLES).expect("open");
            assert_eq!(keys(&after.after_loss(1, empty).expect("the same")), *left);
        }
    }
    assert!(volatile(FaultPlan::new()).loader().is_err(), "what is loaded is not kept for the next life");
}
