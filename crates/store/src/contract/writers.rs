//! Several writers: versions, conflicts, and handles of one store.

use std::thread;

use super::{ORDERED, OTHER, changes, commit, try_commit};
use crate::error::{Attempt, CommitError, ReadError};
use crate::store::{CommitId, Durability, Snapshot, Store, Transaction};
use crate::write_set::WriteSet;

const THREADS: u64 = 4;
const COMMITS: u64 = 25;
/// A transaction that always meets others does so no more often in these cases.
const TRIES_MAX: usize = 100_000;

/// Runs the cases of a [shared](Store::SHARED) store. `make` gives two handles of an empty store, and what keeps it alive;
/// `take_over` another handle, which alone may commit from then on.
pub fn run_shared<S: Store, K>(make: impl Fn() -> (S, S, K), take_over: impl Fn(&S) -> S) {
    assert!(S::SHARED, "others commit to this store");
    let (one, other, _keep) = make();
    see_each_other(&one, &other);
    let (one, other, _keep) = make();
    conflict(&one, &other);
    let (one, _, _keep) = make();
    conflict(&one, &one);
    let (one, other, _keep) = make();
    count([&one, &other]);
    let (one, other, _keep) = make();
    fence(&one, &other, take_over(&other));
}

/// What a transaction began behind, and what its commit is numbered, tell whether another writer committed.
pub(super) fn versions<S: Store>(store: &S) {
    let put = |value: u8| changes(|set| set.put(ORDERED, b"a", [value]));
    let mut last = commit(store, &put(0));
    for value in 1..5 {
        let transaction = store.transaction().expect("transaction");
        assert_eq!(transaction.commit_counter(), last.0, "nobody else has committed");
        let done = transaction.commit(&put(value), Durability::Sync).expect("commit");
        assert_eq!(done.0, last.0 + 1);
        last = done;
    }
    drop(store.transaction().expect("transaction"));
    assert!(try_commit(store, &changes(|set| set.put(ORDERED, b"", *b"no key"))).is_err());
    let transaction = store.transaction().expect("transaction");
    assert_eq!(transaction.commit_counter(), last.0, "what was not committed does not count");
}

pub(super) fn outcome<S: Store>(store: &S) {
    let outcome = store.outcome(Attempt(u64::MAX));
    assert!(matches!(outcome, Err(ReadError::Unavailable(_)) | Ok(None)), "{outcome:?}");
}

pub(super) fn no_lost_update<S: Store>(store: &S) {
    count([store, store]);
}

/// Raises one number by many threads.
fn count<S: Store>(handles: [&S; 2]) {
    let before = handles[0].commit_counter();
    thread::scope(|scope| {
        for at in 0..THREADS {
            let store = if at % 2 == 0 { handles[0] } else { handles[1] };
            scope.spawn(move || {
                for _ in 0..COMMITS {
                    again(store, |transaction, set| {
                        let next = number(transaction, b"count") + 1;
                        set.put(ORDERED, b"count", next.to_be_bytes());
                        // Each in a row of its own, too.
                        set.put(OTHER, &next.to_be_bytes(), []);
                    });
                }
            });
        }
    });
    let snapshot = handles[0].snapshot().expect("snapshot");
    assert_eq!(number(&snapshot, b"count"), THREADS * COMMITS);
    assert_eq!(snapshot.commit_counter() - before, THREADS * COMMITS, "each commit counts once");
}

/// Two threads write different keys, each only as long as the other's is what it was when it was read.
pub(super) fn no_write_skew<S: Store>(store: &S) {
    thread::scope(|scope| {
        for own in [b"left".as_slice(), b"right"] {
            scope.spawn(move || {
                for _ in 0..COMMITS {
                    again(store, |transaction, set| {
                        let sum = number(transaction, b"left") + number(transaction, b"right");
                        if sum < COMMITS {
                            set.put(ORDERED, own, (number(transaction, own) + 1).to_be_bytes());
                        }
                    });
                }
            });
        }
    });
    let snapshot = store.snapshot().expect("snapshot");
    assert_eq!(number(&snapshot, b"left") + number(&snapshot, b"right"), COMMITS);
}

/// Commits what `make` writes, as often as another commit is first.
fn again<S: Store>(store: &S, make: impl Fn(&S::Transaction<'_>, &mut WriteSet)) -> CommitId {
    for _ in 0..TRIES_MAX {
        let transaction = store.transaction().expect("transaction");
        let mut set = WriteSet::new();
        make(&transaction, &mut set);
        match transaction.commit(&set, Durability::NoSync) {
            Ok(done) => return done,
            Err(CommitError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{TRIES_MAX} conflicts");
}

fn number(source: &impl Snapshot, key: &[u8]) -> u64 {
    let stored = source.get(ORDERED, key).expect("get");
    stored.map_or(0, |bytes| u64::from_be_bytes(bytes.as_ref().try_into().expect("a number")))
}

fn see_each_other<S: Store>(one: &S, other: &S) {
    for value in 0..4u8 {
        let (writer, reader) = if value % 2 == 0 { (one, other) } else { (other, one) };
        let done = commit(writer, &changes(|set| set.put(ORDERED, b"a", [value])));
        let snapshot = reader.snapshot().expect("snapshot");
        assert_eq!(snapshot.get(ORDERED, b"a").expect("get").as_deref(), Some(&[value][..]));
        assert_eq!(snapshot.commit_counter(), done.0);
        assert!(reader.commit_counter() <= done.0 && writer.commit_counter() >= done.0);
        let transaction = reader.transaction().expect("transaction");
        assert_eq!(transaction.commit_counter(), done.0);
    }
}

/// A transaction that another commit came before, whatever that changed, leaves nothing, and succeeds once it is made anew.
fn conflict<S: Store>(one: &S, other: &S) {
    let theirs = changes(|set| set.put(OTHER, b"theirs", *b"1"));
    let ours = changes(|set| {
        set.put(ORDERED, b"ours", *b"1");
        set.put(OTHER, b"theirs", *b"2");
    });
    let late = one.transaction().expect("transaction");
    let began = late.commit_counter();
    let first = commit(other, &theirs);
    assert_eq!(late.commit_counter(), began, "it shows what it began with");
    assert_eq!(late.get(OTHER, b"theirs").expect("get"), None);
    let refused = late.commit(&ours, Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Conflict)), "{refused:?}");
    {
        let snapshot = one.snapshot().expect("snapshot");
        assert_eq!(snapshot.commit_counter(), first.0);
        assert_eq!(snapshot.get(ORDERED, b"ours").expect("get"), None);
        assert_eq!(snapshot.get(OTHER, b"theirs").expect("get").as_deref(), Some(&b"1"[..]));
    }
    assert_eq!(commit(one, &ours).0, first.0 + 1);
    // One that is given up is in no other's way.
    let given_up = one.transaction().expect("transaction");
    let next = other.transaction().expect("transaction");
    drop(given_up);
    assert!(next.commit(&theirs, Durability::Sync).is_ok());
}

/// Handles of before can read, and commit nothing: neither what began before nor anything later.
fn fence<S: Store>(one: &S, other: &S, leader: S) {
    let set = changes(|set| set.put(ORDERED, b"a", *b"1"));
    let began = leader.transaction().expect("transaction");
    drop(began);
    for fenced in [one, other] {
        let refused = try_commit(fenced, &set);
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        assert!(fenced.is_read_only());
    }
    assert!(!leader.is_read_only());
    let done = commit(&leader, &set);
    let snapshot = one.snapshot().expect("snapshot");
    assert_eq!(snapshot.commit_counter(), done.0);
    assert_eq!(snapshot.get(ORDERED, b"a").expect("get").as_deref(), Some(&b"1"[..]));
}
