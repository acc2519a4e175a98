//! Databases of older disk formats become the present one in place; newer ones are refused.

use std::sync::Arc;

use larix_engine::Database;
use larix_engine::log::{self, LogKey};
use larix_engine::tables::{FORMAT, FORMAT_OLDEST, FORMAT_SHARED, LOG, META, TABLES, meta};
use larix_engine::time::SeededRandom;
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;
use larix_store::{Direction, Durability, KeyRange, Snapshot, Store, Transaction, WriteSet};

use crate::common::{Fixture, SUFFIX, TREE, memory, schema, settings};

/// A store as format 3 had it: without a history, with shorter records in the log. What 1 and 2 had less is not in it
/// either: packed records, and keys that wait.
fn old_store(format: u32) -> Arc<MemoryStore> {
    let store = Arc::new(memory());
    let schema = schema("");
    let settings = settings(&schema);
    Fixture::of(schema, vec![(Arc::clone(&store), settings)]).apply(TREE);
    let mut set = WriteSet::new();
    let transaction = store.transaction().unwrap();
    for row in transaction.scan(LOG, KeyRange::all(), Direction::Forward).unwrap() {
        let (key, record) = row.unwrap();
        let mut rest = &record[11..];
        for _ in 0..3 {
            let length = 1 + rest.iter().take_while(|byte| **byte & 0x80 != 0).count();
            rest = &rest[length..];
        }
        set.put(LOG, &key, [&[1], &record[1..11], rest].concat());
    }
    set.put(META, meta::FORMAT, format.to_be_bytes());
    set.delete(META, meta::LOG_HISTORY);
    set.delete(META, meta::WRITTEN_BY);
    transaction.commit(&set, Durability::Sync).unwrap();
    store
}

#[test]
fn an_older_format_becomes_the_present_one_in_place() {
    for format in FORMAT_OLDEST..FORMAT {
        let store = old_store(format);
        let schema = schema("");
        let settings = settings(&schema);
        let fixture = Fixture::of(schema, vec![(Arc::clone(&store), settings)]);
        fixture.apply(&format!("dn: ou=New,{SUFFIX}\nobjectClass: organizationalUnit\nou: New\n"));
        assert!(fixture.entry(&format!("cn=Bo,ou=People,{SUFFIX}")).is_some());
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.get(META, meta::FORMAT).unwrap().as_deref(), Some(&FORMAT.to_be_bytes()[..]));
        assert!(snapshot.get(META, meta::WRITTEN_BY).unwrap().is_some());
        assert!(log::history(&snapshot).unwrap().is_some());
        let mut seen = Vec::new();
        log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 0 }, &mut |key, record, _| {
            seen.push((key.sequence, record.entry.0));
            true
        })
        .unwrap();
        // Records of before do not know their entries.
        assert_eq!(seen, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 6)]);
        let view = fixture.database().view(&snapshot).unwrap();
        larix_engine::check::check(&view, &mut |finding| panic!("format {format}: {finding}")).unwrap();
    }
}

#[test]
fn a_newer_format_is_refused_with_the_version_that_wrote_it() {
    let store = old_store(FORMAT + 1);
    let mut set = WriteSet::new();
    set.put(META, meta::WRITTEN_BY, *b"7.8.9");
    store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
    let schema = schema("");
    let settings = settings(&schema);
    let error = Database::open(store, schema, settings, &SeededRandom::new(1)).unwrap_err().to_string();
    let part = format!("disk format {}, written by Larix 7.8.9, is not one of those", FORMAT + 1);
    assert!(error.contains(&part), "{error}");
}

/// A server beside one of a later version neither reads what that has made of the store, nor takes it back.
#[test]
fn a_shared_store_of_a_newer_format_is_left_alone() {
    let store = SharedStore::new(&TABLES).unwrap();
    let schema = schema("");
    let open = |store: SharedStore| {
        Database::open(store, Arc::clone(&schema), settings(&schema), &SeededRandom::new(1))
    };
    let database = open(store.another()).unwrap();
    for newer in [FORMAT_SHARED + 1, FORMAT + 1] {
        let mut set = WriteSet::new();
        set.put(META, meta::FORMAT, newer.to_be_bytes());
        set.put(META, meta::WRITTEN_BY, *b"7.8.9");
        store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
        let snapshot = store.snapshot().unwrap();
        let read = database.view(&database.store().snapshot().unwrap()).map(drop).unwrap_err().to_string();
        let opened = open(store.another()).map(drop).unwrap_err().to_string();
        let part = format!("disk format {newer}, written by Larix 7.8.9, is not one of those");
        for error in [read, opened] {
            assert!(error.contains(&part) && error.contains(&format!("to {FORMAT_SHARED})")), "{error}");
        }
        assert_eq!(snapshot.get(META, meta::FORMAT).unwrap().as_deref(), Some(&newer.to_be_bytes()[..]));
    }
}
