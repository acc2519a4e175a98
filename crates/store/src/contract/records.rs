//! Records, ranges, limits, isolation.

use std::ops::Bound;

use super::{
    INTEGER, ORDERED, OTHER, POSTINGS, assert_same, changes, commit, ids, keys, scanned, try_commit,
};
use crate::error::{CommitError, ReadError};
use crate::layered::Layered;
use crate::store::{PostingCursor, Snapshot, Store, Transaction};
use crate::table::{Direction, KEY_BYTES_MAX, KeyRange, POSTING_ID_MAX, POSTING_KEY_BYTES_MAX, TableId};
use crate::write_set::WriteSet;

pub(super) fn get_and_delete<S: Store>(store: &S) {
    commit(
        store,
        &changes(|set| {
            set.put(ORDERED, b"a", *b"1");
            set.put(ORDERED, b"b", *b"");
            set.put(OTHER, b"a", *b"other");
            set.delete(ORDERED, b"never there");
        }),
    );
    {
        let snapshot = store.snapshot().expect("snapshot");
        let get = |key: &[u8]| snapshot.get(ORDERED, key).expect("get").map(|value| value.into_owned());
        assert_eq!(get(b"a"), Some(b"1".to_vec()));
        assert_eq!(get(b"b"), Some(Vec::new()));
        assert_eq!(get(b"c"), None);
        let many = snapshot.get_many(ORDERED, &[&b"c"[..], b"a"]).expect("get many");
        assert_eq!(many, [None, Some(b"1"[..].into())]);
    }
    commit(
        store,
        &changes(|set| {
            set.delete(ORDERED, b"a");
            set.put(ORDERED, b"b", vec![7; 100_000]);
        }),
    );
    let snapshot = store.snapshot().expect("snapshot");
    assert_eq!(snapshot.get(ORDERED, b"a").expect("get"), None);
    assert_eq!(snapshot.get(ORDERED, b"b").expect("get").as_deref(), Some(&[7; 100_000][..]));
    assert_eq!(snapshot.get(OTHER, b"a").expect("get").as_deref(), Some(&b"other"[..]));
}

pub(super) fn scan_both_ways<S: Store>(store: &S) {
    let all: [&[u8]; 6] = [b"\0", b"a", b"a\0", b"ab", b"b", b"\xff\xff"];
    commit(
        store,
        &changes(|set| {
            for key in all {
                set.put(ORDERED, key, key);
            }
        }),
    );
    let snapshot = store.snapshot().expect("snapshot");
    let bounds: Vec<Bound<&[u8]>> = std::iter::once(Bound::Unbounded)
        .chain(
            [&b"\0"[..], b"a", b"a\0", b"aa", b"ab", b"b", b"z", b"\xff", b"\xff\xff", b"\xff\xff\xff"]
                .into_iter()
                .flat_map(|key| [Bound::Included(key), Bound::Excluded(key)]),
        )
        .collect();
    for start in &bounds {
        for end in &bounds {
            let range = KeyRange { start: start.map(Into::into), end: end.map(Into::into) };
            let mut want: Vec<_> =
                all.iter().filter(|key| range.contains(key)).map(|key| key.to_vec()).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let got: Vec<_> = scanned(&snapshot, ORDERED, range.clone(), direction)
                    .into_iter()
                    .map(|(key, _)| key)
                    .collect();
                assert_same(&got, &want, &format!("{range:?} {direction:?}"));
                want.reverse();
            }
        }
    }
    let prefixed = scanned(&snapshot, ORDERED, KeyRange::prefix(b"a"), Direction::Forward);
    assert_eq!(prefixed.len(), 3);
    let rest = scanned(&snapshot, ORDERED, KeyRange::prefix(b"a").after(b"a"), Direction::Forward);
    assert_eq!(rest.len(), 2);
    let before = scanned(&snapshot, ORDERED, KeyRange::prefix(b"a").before(b"ab"), Direction::Backward);
    assert_eq!(before.len(), 2);
    assert!(scanned(&snapshot, OTHER, KeyRange::all(), Direction::Forward).is_empty());
}

pub(super) fn scan_integers<S: Store>(store: &S) {
    let all = [0, 1, 255, 256, 65_536, 1 << 32, u64::MAX - 1, u64::MAX];
    commit(
        store,
        &changes(|set| {
            for id in all {
                set.put(INTEGER, &id.to_be_bytes(), id.to_string().into_bytes());
            }
        }),
    );
    let snapshot = store.snapshot().expect("snapshot");
    for id in all {
        let value = snapshot.get(INTEGER, &id.to_be_bytes()).expect("get");
        assert_eq!(value.as_deref(), Some(id.to_string().as_bytes()));
    }
    assert_eq!(snapshot.get(INTEGER, &2u64.to_be_bytes()).expect("get"), None);
    let mut bounds: Vec<Bound<Vec<u8>>> = vec![Bound::Unbounded];
    for id in [0, 1, 2, 256, 1 << 32, u64::MAX] {
        let key = u64::to_be_bytes(id).to_vec();
        let (short, long) = (key.get(..6).expect("part").to_vec(), [&key[..], b"\0"].concat());
        for key in [key, short, long] {
            bounds.extend([Bound::Included(key.clone()), Bound::Excluded(key)]);
        }
    }
    for start in &bounds {
        for end in &bounds {
            let range = KeyRange {
                start: start.as_ref().map(|key| key.as_slice().into()),
                end: end.as_ref().map(|key| key.as_slice().into()),
            };
            let mut want: Vec<Vec<u8>> =
                all.iter().map(|id| id.to_be_bytes().to_vec()).filter(|key| range.contains(key)).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let got: Vec<_> = scanned(&snapshot, INTEGER, range.clone(), direction)
                    .into_iter()
                    .map(|(key, _)| key)
                    .collect();
                assert_same(&got, &want, &format!("{range:?} {direction:?}"));
                want.reverse();
            }
        }
    }
}

pub(super) fn limits<S: Store>(store: &S) {
    let longest = vec![b'k'; KEY_BYTES_MAX];
    let longest_posting = vec![b'k'; POSTING_KEY_BYTES_MAX];
    commit(
        store,
        &changes(|set| {
            set.put(ORDERED, &longest, *b"v");
            set.add_posting(POSTINGS, &longest_posting, POSTING_ID_MAX);
            set.add_posting(POSTINGS, &longest_posting, 0);
        }),
    );
    let snapshot = store.snapshot().expect("snapshot");
    assert!(snapshot.get(ORDERED, &longest).expect("get").is_some());
    assert_eq!(ids(&snapshot, &longest_posting), [0, POSTING_ID_MAX]);
    let longer = vec![b'k'; KEY_BYTES_MAX + 1];
    assert_eq!(snapshot.get(ORDERED, &longer).expect("get"), None);
    assert_eq!(snapshot.get(ORDERED, b"").expect("get"), None);
    assert_eq!(ids(&snapshot, &longer), [0; 0]);
    assert_eq!(ids(&snapshot, b""), [0; 0]);
    assert_eq!(snapshot.posting_estimate(POSTINGS, b"").expect("estimate"), 0);
    assert_eq!(snapshot.get(INTEGER, b"seven b").expect("get"), None);
    drop(snapshot);
    let refused: [(&str, WriteSet); 6] = [
        ("empty key", changes(|set| set.put(ORDERED, b"", *b"v"))),
        ("long key", changes(|set| set.put(ORDERED, &longer, *b"v"))),
        ("long key removed", changes(|set| set.delete(ORDERED, &longer))),
        ("short integer", changes(|set| set.put(INTEGER, b"1234567", *b"v"))),
        ("long posting key", changes(|set| set.add_posting(POSTINGS, &longer, 1))),
        ("empty posting key", changes(|set| set.add_posting(POSTINGS, b"", 1))),
    ];
    for (what, set) in refused {
        let got = try_commit(store, &set);
        assert!(matches!(got, Err(CommitError::KeyLength { .. })), "{what}: {got:?}");
    }
    let got = try_commit(store, &changes(|set| set.add_posting(POSTINGS, b"k", u64::MAX)));
    assert!(matches!(got, Err(CommitError::PostingId(u64::MAX))), "{got:?}");
}

pub(super) fn wrong_tables<S: Store>(store: &S) {
    let unknown = TableId(63);
    let snapshot = store.snapshot().expect("snapshot");
    assert!(matches!(snapshot.get(unknown, b"k"), Err(ReadError::WrongTable(table)) if table == unknown));
    assert!(matches!(snapshot.get(POSTINGS, b"k"), Err(ReadError::WrongTable(POSTINGS))));
    assert!(matches!(snapshot.postings(ORDERED, b"k"), Err(ReadError::WrongTable(ORDERED))));
    assert!(snapshot.scan(POSTINGS, KeyRange::all(), Direction::Forward).is_err());
    assert!(snapshot.posting_keys(ORDERED, KeyRange::all(), Direction::Forward).is_err());
    drop(snapshot);
    for set in [
        changes(|set| set.put(unknown, b"k", *b"v")),
        changes(|set| set.put(POSTINGS, b"k", *b"v")),
        changes(|set| set.add_posting(ORDERED, b"k", 1)),
    ] {
        assert!(matches!(try_commit(store, &set), Err(CommitError::WrongTable(_))), "{set:?}");
    }
}

pub(super) fn snapshot_isolation<S: Store>(store: &S) {
    commit(
        store,
        &changes(|set| {
            set.put(ORDERED, b"a", *b"1");
            (0..5000).for_each(|id| set.add_posting(POSTINGS, b"k", id * 3));
        }),
    );
    let old = store.snapshot().expect("snapshot");
    let mut cursor = old.postings(POSTINGS, b"k").expect("postings");
    assert_eq!(cursor.next().expect("id"), Some(0));
    // Another thread, since one thread holds one snapshot.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            commit(
                store,
                &changes(|set| {
                    set.put(ORDERED, b"a", *b"2");
                    set.put(ORDERED, b"b", *b"2");
                    (0..5000).for_each(|id| set.remove_posting(POSTINGS, b"k", id * 3));
                    set.add_posting(POSTINGS, b"k", 1);
                }),
            );
            let new = store.snapshot().expect("snapshot");
            assert_eq!(new.get(ORDERED, b"a").expect("get").as_deref(), Some(&b"2"[..]));
            assert_eq!(ids(&new, b"k"), [1]);
        });
        writer.join().expect("the writer ends");
    });
    assert_eq!(old.get(ORDERED, b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(scanned(&old, ORDERED, KeyRange::all(), Direction::Forward).len(), 1);
    assert_eq!(cursor.seek(9000).expect("seek"), Some(9000));
    assert_eq!(ids(&old, b"k").len(), 5000);
    assert_ne!(old.commit_counter(), store.commit_counter());
}

pub(super) fn commit_counter<S: Store>(store: &S) {
    let first = commit(store, &changes(|set| set.put(ORDERED, b"a", *b"1")));
    assert_eq!(store.commit_counter(), first.0);
    assert_eq!(store.snapshot().expect("snapshot").commit_counter(), first.0);
    let second = commit(store, &changes(|set| set.put(ORDERED, b"a", *b"1")));
    assert!(second > first);
    let transaction = store.transaction().expect("transaction");
    assert_eq!(Snapshot::commit_counter(&transaction), second.0);
    drop(transaction);
    assert_eq!(store.commit_counter(), second.0);
    let statistics = store.statistics().expect("statistics");
    assert_eq!(statistics.tables.len(), super::TABLES.len());
    assert_eq!(statistics.tables.first().map(|table| table.records), Some(1));
    store.sync().expect("sync");
}

pub(super) fn abandoned_and_failed<S: Store>(store: &S) {
    commit(
        store,
        &changes(|set| {
            set.put(ORDERED, b"a", *b"1");
            (0..3000).for_each(|id| set.add_posting(POSTINGS, b"k", id * 2));
        }),
    );
    let transaction = store.transaction().expect("transaction");
    assert_eq!(transaction.get_for_update(ORDERED, b"a").expect("get").as_deref(), Some(&b"1"[..]));
    drop(transaction);
    let before = store.commit_counter();
    let failing = changes(|set| {
        set.put(ORDERED, b"a", *b"2");
        set.delete(ORDERED, b"a");
        set.put(ORDERED, b"b", *b"2");
        (0..3000).for_each(|id| set.remove_posting(POSTINGS, b"k", id * 2));
        set.put(OTHER, &vec![b'k'; KEY_BYTES_MAX + 1], *b"too long");
    });
    assert!(try_commit(store, &failing).is_err());
    assert_eq!(store.commit_counter(), before);
    {
        let snapshot = store.snapshot().expect("snapshot");
        assert_eq!(scanned(&snapshot, ORDERED, KeyRange::all(), Direction::Forward).len(), 1);
        assert_eq!(ids(&snapshot, b"k").len(), 3000);
    }
    commit(store, &changes(|set| set.put(ORDERED, b"b", *b"3")));
    assert!(!store.is_read_only());
}

fn one(source: &impl Snapshot, key: &[u8]) -> Option<Vec<u8>> {
    source.get(ORDERED, key).expect("get").map(|value| value.into_owned())
}

fn many(source: &impl Snapshot, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let values = source.get_many(ORDERED, keys).expect("get many").into_iter();
    values.map(|value| value.map(|value| value.into_owned())).collect()
}

pub(super) fn overlays<S: Store>(store: &S) {
    commit(
        store,
        &changes(|set| {
            for key in [b"a", b"c", b"e"] {
                set.put(ORDERED, key, *b"base");
            }
            [1, 3, 5].into_iter().for_each(|id| set.add_posting(POSTINGS, b"k", id));
            set.add_posting(POSTINGS, b"only", 1);
        }),
    );
    let group = changes(|set| {
        set.put(ORDERED, b"b", *b"group");
        set.put(ORDERED, b"c", *b"group");
        set.delete(ORDERED, b"e");
        set.add_posting(POSTINGS, b"k", 4);
        set.remove_posting(POSTINGS, b"k", 1);
        set.remove_posting(POSTINGS, b"only", 1);
        set.add_posting(POSTINGS, b"new", 8);
    });
    let operation = changes(|set| {
        set.delete(ORDERED, b"b");
        set.put(ORDERED, b"e", *b"operation");
        set.add_posting(POSTINGS, b"k", 1);
        set.add_posting(POSTINGS, b"k", 9);
        set.remove_posting(POSTINGS, b"k", 4);
        set.remove_posting(POSTINGS, b"new", 8);
        set.add_posting(POSTINGS, b"only", 2);
    });
    let transaction = store.transaction().expect("transaction");
    let grouped = Layered::new(&transaction, &group);
    let both = Layered::new(&grouped, &operation);
    let text = |records: Vec<(Vec<u8>, Vec<u8>)>| {
        let parts = records.iter().map(|(key, value)| {
            format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
        });
        parts.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        text(scanned(&grouped, ORDERED, KeyRange::all(), Direction::Forward)),
        "a=base b=group c=group"
    );
    assert_eq!(
        text(scanned(&both, ORDERED, KeyRange::all(), Direction::Backward)),
        "e=operation c=group a=base"
    );
    assert_eq!(both.get(ORDERED, b"b").expect("get"), None);
    let lookup_keys = [&b"b"[..], b"a", b"e", b"", b"c", b"never there", b"a"];
    for layer in [0, 1, 2] {
        let (many, single): (Vec<_>, Vec<_>) = match layer {
            0 => (
                many(&transaction, &lookup_keys),
                lookup_keys.iter().map(|key| one(&transaction, key)).collect(),
            ),
            1 => (many(&grouped, &lookup_keys), lookup_keys.iter().map(|key| one(&grouped, key)).collect()),
            _ => (many(&both, &lookup_keys), lookup_keys.iter().map(|key| one(&both, key)).collect()),
        };
        assert_eq!(many, single, "layer {layer}");
    }
    assert!(both.get_many(POSTINGS, &lookup_keys).is_err());
    assert_eq!(ids(&grouped, b"k"), [3, 4, 5]);
    assert_eq!(ids(&both, b"k"), [1, 3, 5, 9]);
    let named = |keys: Vec<(Vec<u8>, u64)>| {
        keys.into_iter()
            .map(|(key, count)| (String::from_utf8_lossy(&key).into_owned(), count))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        named(keys(&grouped, KeyRange::all(), Direction::Forward)),
        [("k".to_owned(), 3), ("new".to_owned(), 1)]
    );
    assert_eq!(
        named(keys(&both, KeyRange::all(), Direction::Backward)),
        [("only".to_owned(), 1), ("k".to_owned(), 4)]
    );
    let mut merged = group.clone();
    merged.merge(operation.clone());
    transaction.commit(&merged, crate::store::Durability::Sync).expect("commit");
    let snapshot = store.snapshot().expect("snapshot");
    assert_eq!(
        text(scanned(&snapshot, ORDERED, KeyRange::all(), Direction::Forward)),
        "a=base c=group e=operation"
    );
    assert_eq!(ids(&snapshot, b"k"), [1, 3, 5, 9]);
    assert_eq!(ids(&snapshot, b"new"), [0; 0]);
}
