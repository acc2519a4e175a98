//! What every store promises, as a suite: run [`run`] over a way to make an empty store with [`TABLES`].
//!
//! For tests; it panics where a promise is broken.

mod model;
mod postings;
mod records;
mod writers;

use std::fmt::Debug;

use crate::error::CommitError;
use crate::store::{CommitId, Durability, PostingCursor, Snapshot, Store, Transaction};
use crate::table::{Direction, KeyRange, TableId, TableKind, TableSpec};
use crate::write_set::WriteSet;

pub use model::{Model, Step, replay};
pub use writers::run_shared;

/// A table of records in byte order.
pub const ORDERED: TableId = TableId(1);
/// Another one, which most cases leave empty.
pub const OTHER: TableId = TableId(7);
/// A table by number, and one that an engine may fill as if its keys came in order.
pub const INTEGER: TableId = TableId(2);
/// A table of postings.
pub const POSTINGS: TableId = TableId(3);

/// The tables a store under test is made with.
pub const TABLES: [TableSpec; 4] = [
    TableSpec::new(ORDERED, "ordered", TableKind::Ordered),
    TableSpec::new(OTHER, "other", TableKind::Ordered),
    TableSpec::new(INTEGER, "integer", TableKind::Integer).appended(),
    TableSpec::new(POSTINGS, "postings", TableKind::Postings),
];

/// Runs the suite. `make` gives an empty store each time it is called, and what keeps it alive (a directory, say).
pub fn run<S: Store, K>(make: impl Fn() -> (S, K)) {
    #[expect(clippy::type_complexity, reason = "a table of cases")]
    let cases: [(&str, fn(&S)); 18] = [
        ("get and delete", records::get_and_delete),
        ("scan both ways", records::scan_both_ways),
        ("scan integers", records::scan_integers),
        ("limits", records::limits),
        ("wrong tables", records::wrong_tables),
        ("snapshot isolation", records::snapshot_isolation),
        ("commit counter", records::commit_counter),
        ("versions of transactions", writers::versions),
        ("an outcome that nobody asked about", writers::outcome),
        ("no update is lost", writers::no_lost_update),
        ("what was read still holds", writers::no_write_skew),
        ("abandoned and failed transactions", records::abandoned_and_failed),
        ("overlays", records::overlays),
        ("postings of few ids", postings::few_ids),
        ("postings of many ids", postings::many_ids),
        ("posting keys", postings::ranges_of_keys),
        ("posting lists shrink", postings::shrink),
        ("loader", postings::loader),
    ];
    for (name, case) in cases {
        let (store, keep) = make();
        // Shown by the test harness when the case fails.
        println!("contract: {name}");
        case(&store);
        drop(store);
        drop(keep);
    }
}

fn commit<S: Store>(store: &S, changes: &WriteSet) -> CommitId {
    try_commit(store, changes).expect("commit")
}

fn try_commit<S: Store>(store: &S, changes: &WriteSet) -> Result<CommitId, CommitError> {
    store.transaction()?.commit(changes, Durability::Sync)
}

fn changes(change: impl FnOnce(&mut WriteSet)) -> WriteSet {
    let mut set = WriteSet::new();
    change(&mut set);
    set
}

fn scanned(
    source: &impl Snapshot,
    table: TableId,
    range: KeyRange<'_>,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let scan = source.scan(table, range, direction).expect("scan");
    scan.map(|record| record.map(|(key, value)| (key.into_owned(), value.into_owned())).expect("record"))
        .collect()
}

fn ids(source: &impl Snapshot, key: &[u8]) -> Vec<u64> {
    let mut cursor = source.postings(POSTINGS, key).expect("postings");
    let mut ids = Vec::new();
    while cursor.read(100, &mut ids).expect("ids") {}
    ids
}

fn keys(source: &impl Snapshot, range: KeyRange<'_>, direction: Direction) -> Vec<(Vec<u8>, u64)> {
    let keys = source.posting_keys(POSTINGS, range, direction).expect("posting keys");
    keys.map(|item| item.map(|(key, count)| (key.into_owned(), count)).expect("posting key")).collect()
}

fn assert_same<T: PartialEq + Debug>(got: T, want: T, what: &str) {
    assert_eq!(got, want, "{what}");
}
