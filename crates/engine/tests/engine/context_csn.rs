//! The contextCSN of a server's own changes: the last record of the log says it where it can, and a row where it cannot.

use std::sync::Arc;

use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey};
use larix_engine::tables::{META, TABLES};
use larix_engine::time::{ManualClock, SeededRandom};
use larix_engine::{Database, ServedDatabase};
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;
use larix_store::{Snapshot, Store};

use crate::common::{Fixture, START, SUFFIX, TREE, environment, memory, schema, settings};
use crate::replicated::{Memory, apply, csn, find_nothing, put, raise};

const OWN: u16 = 1;
const OTHERS: u16 = 2;

fn add(name: &str) -> String {
    format!("dn: cn={name},{SUFFIX}\nobjectClass: device\ncn: {name}\n")
}

fn replace(name: &str) -> String {
    format!("dn: cn={name},{SUFFIX}\nchangetype: modify\nreplace: description\ndescription: x\n")
}

fn delete(name: &str) -> String {
    format!("dn: cn={name},{SUFFIX}\nchangetype: delete\n")
}

fn rename(name: &str, new: &str) -> String {
    format!("dn: cn={name},{SUFFIX}\nchangetype: modrdn\nnewrdn: cn={new}\ndeleteoldrdn: 1\n")
}

/// The row of this server's contextCSN.
fn row<S: Store>(fixture: &Fixture<S>) -> Option<Csn> {
    let snapshot = fixture.database().store().snapshot().unwrap();
    let key = format!("context-csn/{OWN:03x}");
    let row = snapshot.get(META, key.as_bytes()).unwrap()?;
    Some(std::str::from_utf8(&row).unwrap().parse().unwrap())
}

fn known<S: Store>(fixture: &Fixture<S>, server_id: u16) -> Option<Csn> {
    let snapshot = fixture.database().store().snapshot().unwrap();
    log::context_csns(&snapshot).unwrap().into_iter().find(|csn| csn.server_id == server_id)
}

/// The CSN of the last change of this server's own.
fn last<S: Store>(fixture: &Fixture<S>) -> Csn {
    let mut last = None;
    let snapshot = fixture.database().store().snapshot().unwrap();
    log::visit_stored_after(&snapshot, LogKey { server_id: OWN, sequence: 0 }, &mut |_, record, _| {
        last = last.max(Some(record.csn).filter(|csn| csn.server_id == OWN));
        true
    })
    .unwrap();
    last.unwrap()
}

#[test]
fn it_is_that_of_the_last_change_whatever_comes_behind() {
    let f = Memory::new();
    f.apply(TREE);
    // What is done, and whether a row says how far it has come afterwards.
    let changes = [
        (add("a"), false),
        (replace("a"), false),
        (rename("a", "b"), true),
        (replace("b"), false),
        (delete("b"), true),
        (add("c"), false),
    ];
    for (change, has_row) in changes {
        f.apply(&change);
        assert_eq!(known(&f, OWN), Some(last(&f)), "{change}");
        assert_eq!(row(&f) == Some(last(&f)), has_row, "{change}");
        find_nothing(&f);
    }
    // A change that came from elsewhere is behind it in the log.
    let own = last(&f);
    assert_eq!(apply(&f, [put(1, &format!("cn=x,{SUFFIX}"), csn(OTHERS, 1), &[])]), "done");
    assert_eq!((known(&f, OWN), row(&f), known(&f, OTHERS)), (Some(own), Some(own), None));
    raise(&f, &[csn(OTHERS, 1)]);
    assert_eq!((known(&f, OWN), known(&f, OTHERS)), (Some(own), Some(csn(OTHERS, 1))));
    f.apply(&replace("c"));
    assert!(known(&f, OWN) > Some(own) && known(&f, OWN) == Some(last(&f)) && row(&f) == Some(own));
    // Nothing is logged: the record stays the last one.
    let own = last(&f);
    raise(&f, &[csn(OTHERS, 2)]);
    assert_eq!((known(&f, OWN), known(&f, OTHERS)), (Some(own), Some(csn(OTHERS, 2))));
    find_nothing(&f);
}

#[test]
fn a_change_that_is_refused_claims_nothing() {
    let f = Memory::new();
    f.apply(TREE);
    f.apply(&add("a"));
    let own = last(&f);
    let refused =
        format!("dn: cn=a,{SUFFIX}\nchangetype: modify\nreplace: objectClass\nobjectClass: domain\n");
    assert_ne!(f.change(&refused), f.change(&replace("a")));
    assert!(known(&f, OWN) > Some(own) && known(&f, OWN) == Some(last(&f)));
}

fn opened(store: &Arc<MemoryStore>, is_logged: bool) -> Fixture<Arc<MemoryStore>> {
    let schema = schema("");
    let mut settings = settings(&schema);
    settings.log = is_logged;
    Fixture::of(schema, vec![(Arc::clone(store), settings)])
}

#[test]
fn it_outlives_the_process_and_the_log() {
    let store = Arc::new(memory());
    let first = {
        let f = opened(&store, true);
        f.apply(TREE);
        f.apply(&add("a"));
        last(&f)
    };
    let f = opened(&store, true);
    assert_eq!((known(&f, OWN), row(&f)), (Some(first), None));
    f.apply(&replace("a"));
    let second = last(&f);
    assert!(second > first && known(&f, OWN) == Some(second));
    drop(f);
    // Without a log each change has its row, and what the last record says is below it.
    let f = opened(&store, false);
    f.apply(&replace("a"));
    let third = known(&f, OWN);
    assert!(third > Some(second) && row(&f) == third);
    drop(f);
    let f = opened(&store, true);
    assert_eq!(known(&f, OWN), third);
    f.apply(&replace("a"));
    assert!(known(&f, OWN) > third && known(&f, OWN) == Some(last(&f)));
}

#[test]
fn where_others_write_too_each_change_has_its_row() {
    let schema = schema("");
    let settings = settings(&schema);
    let store = SharedStore::new(&TABLES).unwrap();
    let f = Fixture::of(schema, vec![(store, settings)]);
    f.apply(TREE);
    for change in [add("a"), replace("a"), delete("a")] {
        f.apply(&change);
        assert_eq!((known(&f, OWN), row(&f)), (Some(last(&f)), Some(last(&f))), "{change}");
    }
}

#[test]
fn a_server_id_that_was_retired_stays_so() {
    let store = Arc::new(memory());
    let f = opened(&store, true);
    f.apply(TREE);
    assert!(known(&f, OWN).is_some() && row(&f).is_none());
    drop(f);
    // As another server, for which the log goes on under its own id.
    let (schema, clock, random) =
        (schema(""), Arc::new(ManualClock::new(START)), Arc::new(SeededRandom::new(7)));
    let database = Database::open(Arc::clone(&store), Arc::clone(&schema), settings(&schema), &*random);
    let served =
        ServedDatabase::start(Arc::new(database.unwrap()), environment(clock, random, OTHERS)).unwrap();
    let contexts = || log::context_csns(&store.snapshot().unwrap()).unwrap();
    assert_eq!(contexts().iter().map(|csn| csn.server_id).collect::<Vec<_>>(), [OWN]);
    assert!(served.retire_server_id(OWN).is_success());
    assert_eq!(contexts(), []);
    assert!(!served.retire_server_id(OWN).is_success(), "there is none any more");
}
