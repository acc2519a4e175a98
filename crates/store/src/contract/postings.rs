//! Posting lists.

use super::{INTEGER, ORDERED, POSTINGS, changes, commit, ids, keys, scanned};
use crate::error::CommitError;
use crate::store::{Loader, PostingCursor, Snapshot, Store};
use crate::table::{Direction, KeyRange};

pub(super) fn few_ids<S: Store>(store: &S) {
    let seven = u64::from(u32::MAX) * 7;
    for id in [5, 3, seven, 4, 3] {
        commit(store, &changes(|set| set.add_posting(POSTINGS, b"k", id)));
    }
    commit(store, &changes(|set| set.remove_posting(POSTINGS, b"k", 99)));
    {
        let snapshot = store.snapshot().expect("snapshot");
        assert_eq!(ids(&snapshot, b"k"), [3, 4, 5, seven]);
        assert_eq!(snapshot.posting_estimate(POSTINGS, b"k").expect("estimate"), 4);
        assert!(snapshot.posting_contains(POSTINGS, b"k", 4).expect("contains"));
        assert!(!snapshot.posting_contains(POSTINGS, b"k", 6).expect("contains"));
        assert_eq!(ids(&snapshot, b"absent"), [0; 0]);
        let mut cursor = snapshot.postings(POSTINGS, b"k").expect("postings");
        assert_eq!(cursor.seek(4).expect("seek"), Some(4));
        assert_eq!(cursor.seek(1).expect("seek"), Some(4), "a seek never goes back");
        assert_eq!(cursor.next().expect("next"), Some(5));
        assert_eq!(cursor.seek(6).expect("seek"), Some(seven));
        assert_eq!(cursor.next().expect("next"), None);
        assert_eq!(cursor.seek(0).expect("seek"), None);
    }
    commit(
        store,
        &changes(|set| [3, 4, 5, seven].into_iter().for_each(|id| set.remove_posting(POSTINGS, b"k", id))),
    );
    let snapshot = store.snapshot().expect("snapshot");
    assert_eq!(ids(&snapshot, b"k"), [0; 0]);
    assert!(keys(&snapshot, KeyRange::all(), Direction::Forward).is_empty());
}

/// Lists of different density, which take different forms.
fn lists() -> [(&'static [u8], Vec<u64>); 5] {
    [
        (b"all", (0..100_000).collect()),
        (b"dense", (0..100_000).filter(|id| id % 3 != 0).collect()),
        (b"few", (0..40).map(|id| id * 1_000_003).collect()),
        (b"mixed", (0..20_000).chain((30_000..90_000).step_by(7)).chain(200_000..200_100).collect()),
        (b"sparse", (0..20_000).map(|id| id * 977 + id % 13).collect()),
    ]
}

pub(super) fn many_ids<S: Store>(store: &S) {
    let lists = lists();
    // In three rounds, interleaved, so that blocks are split inside and at the end.
    for round in [1, 0, 2] {
        commit(
            store,
            &changes(|set| {
                for (key, ids) in &lists {
                    ids.iter().skip(round).step_by(3).for_each(|id| set.add_posting(POSTINGS, key, *id));
                }
            }),
        );
    }
    let snapshot = store.snapshot().expect("snapshot");
    for (key, want) in &lists {
        let name = String::from_utf8_lossy(key);
        assert!(ids(&snapshot, key) == *want, "{name}");
        assert_eq!(snapshot.posting_estimate(POSTINGS, key).expect("estimate"), want.len() as u64, "{name}");
        let set = snapshot.posting_set(POSTINGS, key).expect("set");
        assert!(set.iter().eq(want.iter().copied()), "{name}");
        for step in [1, 50, 999, 40_000] {
            let mut cursor = snapshot.postings(POSTINGS, key).expect("postings");
            let mut min = 0;
            loop {
                let found = cursor.seek(min).expect("seek");
                let want = want.get(want.partition_point(|id| *id < min)).copied();
                assert_eq!(found, want, "{name}: seek {min}");
                let Some(found) = found else { break };
                min = found + step;
            }
        }
    }
}

fn keys_in<S: Store>(store: &S) -> Vec<(Vec<u8>, u64)> {
    let all: Vec<(Vec<u8>, u64)> =
        [("a\0", 3u64), ("ab\0", 1), ("b\0", 5000), ("c\0\0", 2), ("c\0\u{1}", 3000), ("d\u{1}", 1)]
            .into_iter()
            .map(|(key, count)| (key.as_bytes().to_vec(), count))
            .collect();
    commit(
        store,
        &changes(|set| {
            for (key, count) in &all {
                (0..*count).for_each(|id| set.add_posting(POSTINGS, key, id * 50 + 1));
            }
        }),
    );
    all
}

pub(super) fn ranges_of_keys<S: Store>(store: &S) {
    let all = keys_in(store);
    let snapshot = store.snapshot().expect("snapshot");
    let mut bounds: Vec<Vec<u8>> = all.iter().map(|(key, _)| key.clone()).collect();
    for (key, _) in &all {
        bounds.push([&key[..], b"\0"].concat());
        bounds.push([&key[..], b"\0\0\0\0\0\0\0\x02"].concat());
        bounds.push([&key[..], b"\xff\xff"].concat());
        bounds.push(key.get(..1).unwrap_or(key).to_vec());
    }
    for start in &bounds {
        for end in &bounds {
            for range in [
                KeyRange::between(start, end),
                KeyRange::at_least(start),
                KeyRange::at_most(end),
                KeyRange::prefix(start),
                KeyRange::at_least(start).after(end),
            ] {
                let mut want: Vec<_> = all.iter().filter(|(key, _)| range.contains(key)).cloned().collect();
                for direction in [Direction::Forward, Direction::Backward] {
                    let got = keys(&snapshot, range.clone(), direction);
                    assert_eq!(got, want, "{range:?} {direction:?}");
                    want.reverse();
                }
            }
        }
    }
}

pub(super) fn shrink<S: Store>(store: &S) {
    let want: Vec<u64> = (0..20_000).map(|id| id * 100).collect();
    commit(store, &changes(|set| want.iter().for_each(|id| set.add_posting(POSTINGS, b"k", *id))));
    let blocks = store.statistics().expect("statistics").tables.get(3).map_or(0, |table| table.records);
    assert!(blocks > 15, "{blocks} blocks");
    // All but a few, from both ends and the middle; what is left must not stay scattered over as many blocks.
    let left: Vec<u64> = want.iter().copied().filter(|id| id % 10_000 == 0).collect();
    for part in [1, 0] {
        commit(
            store,
            &changes(|set| {
                let gone = want.iter().filter(|id| **id % 10_000 != 0 && **id / 100 % 2 == part);
                gone.for_each(|id| set.remove_posting(POSTINGS, b"k", *id));
            }),
        );
    }
    {
        let snapshot = store.snapshot().expect("snapshot");
        assert_eq!(ids(&snapshot, b"k"), left);
        assert_eq!(snapshot.posting_estimate(POSTINGS, b"k").expect("estimate"), left.len() as u64);
        drop(snapshot);
        let after = store.statistics().expect("statistics").tables.get(3).map_or(0, |table| table.records);
        assert!(after < blocks / 2, "{after} of {blocks} blocks are left");
    }
    commit(store, &changes(|set| left.iter().for_each(|id| set.remove_posting(POSTINGS, b"k", *id))));
    let records = store.statistics().expect("statistics").tables.get(3).map(|table| table.records);
    assert_eq!(records, Some(0), "nothing is left of an empty list");
}

pub(super) fn loader<S: Store>(store: &S) {
    let lists = lists();
    let mut loader = store.loader().expect("loader");
    for id in 0u64..1000 {
        loader.append(INTEGER, &id.to_be_bytes(), b"value").expect("append");
        loader.append(ORDERED, format!("{id:04}").as_bytes(), &[0; 300]).expect("append");
    }
    for (key, ids) in &lists {
        let (some, rest) = ids.split_at(ids.len() / 2);
        for id in some {
            loader.append_posting(POSTINGS, key, *id).expect("append posting");
        }
        loader.append_postings(POSTINGS, key, &mut rest.iter().copied()).expect("append postings");
        let last = ids.last().copied().unwrap_or_default();
        loader.append_posting(POSTINGS, key, last).expect("the same pair again is ignored");
    }
    loader.finish().expect("finish");
    {
        let snapshot = store.snapshot().expect("snapshot");
        assert_eq!(scanned(&snapshot, INTEGER, KeyRange::all(), Direction::Forward).len(), 1000);
        assert_eq!(scanned(&snapshot, ORDERED, KeyRange::all(), Direction::Backward).len(), 1000);
        for (key, want) in &lists {
            assert!(ids(&snapshot, key) == *want, "{}", String::from_utf8_lossy(key));
            assert_eq!(snapshot.posting_estimate(POSTINGS, key).expect("estimate"), want.len() as u64);
        }
    }
    // Lists built by a load are changed like any other.
    commit(
        store,
        &changes(|set| {
            for (key, _) in &lists {
                set.add_posting(POSTINGS, key, 1 << 40);
                set.remove_posting(POSTINGS, key, 0);
            }
        }),
    );
    {
        let snapshot = store.snapshot().expect("snapshot");
        for (key, want) in &lists {
            let want: Vec<u64> = want.iter().copied().filter(|id| *id != 0).chain([1 << 40]).collect();
            assert!(ids(&snapshot, key) == want, "{}", String::from_utf8_lossy(key));
        }
    }
    let mut loader = store.loader().expect("loader");
    let got = loader.append(ORDERED, b"0000", b"");
    assert!(matches!(got, Err(CommitError::Unordered { table: ORDERED })), "{got:?}");
    drop(loader);
    // What was there may be loaded anew.
    let mut loader = store.loader().expect("loader");
    loader.clear(POSTINGS).expect("clear");
    loader.append_posting(POSTINGS, b"a", 7).expect("append posting");
    // Where a record stands makes no difference to a put.
    for (key, value) in [(&b"0000"[..], &b"replaced"[..]), (b"0000+", b"between"), (b"0000+", b"put twice")] {
        loader.put(ORDERED, key, value).expect("put");
    }
    let got = loader.put(POSTINGS, b"a", b"");
    assert!(got.is_err(), "a posting list is no record: {got:?}");
    loader.finish().expect("finish");
    {
        let snapshot = store.snapshot().expect("snapshot");
        assert_eq!(ids(&snapshot, b"a"), [7]);
        let records = scanned(&snapshot, ORDERED, KeyRange::all(), Direction::Forward);
        assert_eq!(records.len(), 1001);
        let put = records.iter().take(2).map(|(key, value)| (&**key, &**value));
        assert_eq!(put.collect::<Vec<_>>(), [(&b"0000"[..], &b"replaced"[..]), (b"0000+", b"put twice")]);
        assert!(lists.iter().all(|(key, _)| key == b"a" || ids(&snapshot, key).is_empty()));
    }
    let mut loader = store.loader().expect("loader");
    loader.append_posting(POSTINGS, b"z", 5).expect("append posting");
    for (key, id) in [(&b"z"[..], 4), (b"y", 9)] {
        let got = loader.append_posting(POSTINGS, key, id);
        assert!(matches!(got, Err(CommitError::Unordered { table: POSTINGS })), "{got:?}");
    }
}
