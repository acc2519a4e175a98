//! What is wanted ahead comes along with the question that a view begins with, and changes no answer: over any engine.

use std::borrow::Cow;
use std::sync::Arc;

use larix_kv::KvStore;
use larix_store::contract::{INTEGER, ORDERED, POSTINGS};
use larix_store::{
    Durability, KeyRange, Path, PostingCursor, Snapshot, StepLists, Store, TableId, Transaction, Wanted,
    WriteSet,
};

const LIST: &[u8] = b"list\0";

fn row(parent: u64, name: &str) -> Vec<u8> {
    [&parent.to_be_bytes()[..], name.as_bytes()].concat()
}

fn path(names: &[&str]) -> Wanted {
    let steps = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    Wanted::Path(Path { table: ORDERED, records: INTEGER, from: [0; 8], steps, guesses: None })
}

/// A list for each step, by its name.
#[derive(Debug)]
struct Lists;

impl StepLists for Lists {
    fn list(&self, step: &[u8]) -> Option<(TableId, Vec<u8>)> {
        (step != b"x").then(|| (POSTINGS, [step, b"\0"].concat()))
    }
}

fn guessed_path(names: &[&str]) -> Wanted {
    match path(names) {
        Wanted::Path(path) => Wanted::Path(Path { guesses: Some(Arc::new(Lists)), ..path }),
        wanted => wanted,
    }
}

fn commit(store: &KvStore, set: &WriteSet) {
    store.transaction().expect("a transaction").commit(set, Durability::Sync).expect("a commit");
}

/// `writer` has nothing in it, and `reader` is another handle of the same store with a strict view. `trips`: how many round trips a
/// path of three steps takes.
pub(crate) fn comes_at_once(writer: &KvStore, reader: &KvStore, trips: u64) {
    let mut set = WriteSet::new();
    for (parent, name, id) in [(0, "a", 1u64), (1, "b", 2), (2, "c", 3)] {
        set.put(ORDERED, &row(parent, name), [&id.to_be_bytes()[..], b"more"].concat());
        set.put(INTEGER, &id.to_be_bytes(), format!("entry {id}").into_bytes());
    }
    (0..9000).for_each(|id| set.add_posting(POSTINGS, LIST, id * 3));
    commit(writer, &set);

    let wanted = [
        path(&["a", "b", "c"]),
        // One that ends early, and one with nothing.
        path(&["a", "x", "y"]),
        path(&["z"]),
        Wanted::Record { table: INTEGER, key: 9u64.to_be_bytes().to_vec() },
        Wanted::List { table: POSTINGS, key: LIST.to_vec() },
        Wanted::List { table: POSTINGS, key: b"none\0".to_vec() },
        Wanted::Range { table: ORDERED, range: KeyRange::prefix(b"none").into_owned() },
    ];
    let read = |expected: u64, third: Option<&[u8]>| {
        let before = reader.figures().trips;
        let snapshot = reader.snapshot_with(&wanted).expect("a snapshot");
        let get = |table, key: &[u8]| snapshot.get(table, key).expect("an answer").map(Cow::into_owned);
        let is_third = get(ORDERED, &row(2, "c")).is_some_and(|value| value.starts_with(&3u64.to_be_bytes()));
        assert!(is_third);
        assert_eq!(get(INTEGER, &1u64.to_be_bytes()).as_deref(), Some(&b"entry 1"[..]));
        assert_eq!(get(INTEGER, &3u64.to_be_bytes()).as_deref(), third);
        assert_eq!(get(ORDERED, &row(1, "x")), None);
        assert_eq!(get(ORDERED, &row(0, "z")), None);
        assert_eq!(get(INTEGER, &9u64.to_be_bytes()), None);
        assert_eq!(snapshot.posting_estimate(POSTINGS, LIST).expect("a number"), 9000);
        assert_eq!(snapshot.postings(POSTINGS, LIST).expect("a list").next().expect("an id"), Some(0));
        assert_eq!(snapshot.posting_estimate(POSTINGS, b"none\0").expect("a number"), 0);
        assert_eq!(reader.figures().trips - before, expected, "round trips");
    };
    read(trips, Some(b"entry 3"));
    read(1, Some(b"entry 3"));
    // What another handle has changed is asked for again.
    let mut set = WriteSet::new();
    set.put(INTEGER, &3u64.to_be_bytes(), *b"another");
    commit(writer, &set);
    read(2, Some(b"another"));
    // Later in a view, too.
    let mut set = WriteSet::new();
    set.delete(INTEGER, &3u64.to_be_bytes());
    commit(writer, &set);
    let snapshot = reader.snapshot().expect("a snapshot");
    let before = reader.figures().trips;
    snapshot.fetch_ahead(&wanted);
    snapshot.fetch_ahead(&wanted);
    assert_eq!(snapshot.get(INTEGER, &3u64.to_be_bytes()).expect("an answer"), None);
    assert_eq!(reader.figures().trips - before, 1);
}

/// Lists say where the steps of a path may lead. `trips`: how many round trips a path of three steps takes without them.
pub(crate) fn is_guessed(writer: &KvStore, open: &dyn Fn() -> KvStore, trips: u64) {
    let mut set = WriteSet::new();
    for (parent, name, id) in
        [(0, "a", 1u64), (1, "b", 2), (2, "c", 3), (3, "d", 4), (4, "x", 5), (5, "e", 6), (6, "many", 7)]
    {
        set.put(ORDERED, &row(parent, name), id.to_be_bytes());
        set.put(INTEGER, &id.to_be_bytes(), format!("entry {id}").into_bytes());
        if name != "x" && name != "e" {
            set.add_posting(POSTINGS, &[name.as_bytes(), b"\0"].concat(), id);
        }
    }
    // Others of the same name, and wrong ones: an id that there is not, and one that is elsewhere.
    set.add_posting(POSTINGS, b"c\0", 77);
    set.add_posting(POSTINGS, b"e\0", 2);
    (0..9000).for_each(|id| set.add_posting(POSTINGS, b"many\0", id * 3));
    commit(writer, &set);
    let read = |names: &[&str], ends: u64, expected: u64| {
        let reader = open();
        let before = reader.figures().trips;
        let snapshot = reader.snapshot_with(&[guessed_path(names)]).expect("a snapshot");
        let mut at = 0;
        for name in names {
            let Some(found) = snapshot.get(ORDERED, &row(at, name)).expect("an answer") else { break };
            at = u64::from_be_bytes(found[..8].try_into().expect("an id"));
            let entry = snapshot.get(INTEGER, &at.to_be_bytes()).expect("an answer").expect("a record");
            assert_eq!(entry, format!("entry {at}").into_bytes());
        }
        assert_eq!(at, ends, "{names:?}");
        assert_eq!(reader.figures().trips - before, expected, "round trips for {names:?}");
    };
    // An engine that follows paths itself has no use for lists.
    let trips_of = |own: u64| if trips == 1 { 1 } else { own };
    read(&["a"], 1, trips_of(2));
    read(&["a", "b"], 2, trips_of(2));
    read(&["a", "b", "c", "d"], 4, trips_of(2));
    // No list of x: what is behind it waits for its row. The list of e says nothing of its step, that of `many` is too long.
    read(&["a", "b", "c", "d", "x", "e"], 6, trips_of(4));
    read(&["a", "b", "c", "d", "x", "e", "many"], 7, trips_of(5));
    // Steps that lead nowhere.
    read(&["a", "b", "none", "d"], 2, trips_of(2));
    read(&["z", "b", "c"], 0, trips_of(1));
    // What is known of lists from before does not hide that a step leads elsewhere now.
    let reader = open();
    drop(reader.snapshot_with(&[guessed_path(&["a", "b", "c", "d"])]).expect("a snapshot"));
    let mut set = WriteSet::new();
    set.delete(ORDERED, &row(2, "c"));
    set.put(ORDERED, &row(2, "c"), 8u64.to_be_bytes());
    set.put(INTEGER, &8u64.to_be_bytes(), *b"entry 8");
    set.put(ORDERED, &row(8, "d"), 9u64.to_be_bytes());
    set.put(INTEGER, &9u64.to_be_bytes(), *b"entry 9");
    commit(writer, &set);
    let snapshot = reader.snapshot_with(&[guessed_path(&["a", "b", "c", "d"])]).expect("a snapshot");
    let get = |key: &[u8]| snapshot.get(ORDERED, key).expect("an answer").map(Cow::into_owned);
    assert_eq!(get(&row(2, "c")), Some(8u64.to_be_bytes().to_vec()));
    assert_eq!(get(&row(8, "d")), Some(9u64.to_be_bytes().to_vec()));
}
