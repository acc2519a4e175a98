//! Changes that the thread that asks for them carries out itself.

use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};

use larix_engine::index::IndexConfig;
use larix_engine::tables::{PENDING, TABLES};
use larix_engine::write::WriteOutcome;
use larix_engine::writer;
use larix_store::fault::{Fault, FaultPlan, FaultStore};
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;
use larix_store::{Direction, KeyRange, Snapshot, Store};

use crate::common::{Fixture, SUFFIX, TREE, describe, memory, operation, records, schema, settings};

const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";

type Answers = mpsc::Receiver<(WriteOutcome, ThreadId)>;

/// Asks for a change; it is deferred where the writer rests and `may_defer` allows it.
fn ask<S: Store>(fixture: &Fixture<S>, ldif: &str, may_defer: bool) -> Answers {
    let (sender, receiver) = mpsc::channel();
    let (operation, controls) = operation(records(ldif).remove(0));
    writer::may_defer(may_defer);
    fixture.directory.submit(
        fixture.request(operation, &controls),
        Box::new(move |outcome| {
            // A receiver that has gone needs no answer.
            let _ = sender.send((outcome, thread::current().id()));
        }),
    );
    receiver
}

/// Asks for a change that this thread defers. The writer has to rest for that, and does for good unless substring keys wait
/// for it: its change was deferred when a requester gets noSuchObject.
fn ask_and_defer<S: Store>(fixture: &Fixture<S>, ldif: &str) -> Answers {
    loop {
        let nobody = format!("dn: cn=Nobody,{SUFFIX}\nchangetype: delete\n");
        let answers = ask(fixture, &nobody, true);
        let is_deferred = writer::has_deferred();
        writer::carry_out_deferred();
        answers.recv().unwrap();
        if is_deferred {
            break;
        }
    }
    let answers = ask(fixture, ldif, true);
    assert!(writer::has_deferred());
    answers
}

/// The answer to a change that this thread carries out.
fn here<S: Store>(fixture: &Fixture<S>, ldif: &str) -> String {
    let answers = ask_and_defer(fixture, ldif);
    writer::carry_out_deferred();
    let (outcome, by) = answers.try_recv().expect("answered when it was carried out");
    assert_eq!(by, thread::current().id());
    describe(&outcome)
}

fn replace_sn(value: &str) -> String {
    format!("dn: {BO}\nchangetype: modify\nreplace: sn\nsn: {value}\n-\n")
}

fn rename(from: &str, to: &str) -> String {
    format!("dn: ou={from},{SUFFIX}\nchangetype: modrdn\nnewrdn: ou={to}\ndeleteoldrdn: 1\n")
}

fn faulty() -> (Fixture<FaultStore<MemoryStore>>, FaultPlan) {
    let plan = FaultPlan::new();
    let schema = schema("");
    let settings = settings(&schema);
    let fixture = Fixture::of(schema, vec![(FaultStore::new(memory(), plan.clone()), settings)]);
    fixture.apply(TREE);
    (fixture, plan)
}

#[test]
fn a_deferred_change_waits_for_this_thread() {
    let (fixture, plan) = faulty();
    let answers = ask_and_defer(&fixture, &replace_sn("x"));
    let before = plan.commits();
    assert!(answers.try_recv().is_err());
    writer::carry_out_deferred();
    assert_eq!((plan.commits() - before, fixture.value(BO, "sn").as_deref()), (1, Some("x")));
    assert_eq!(answers.try_recv().unwrap().1, thread::current().id());
    // What has been carried out is not deferred any more.
    writer::carry_out_deferred();
    assert_eq!(plan.commits() - before, 1);
}

/// As one that is glued to it, or recorded in the same log: this thread does not wait for its commit.
#[test]
fn while_another_database_commits_the_writer_gets_the_change() {
    let (fixture, _) = faulty();
    let answers = ask_and_defer(&fixture, &replace_sn("x"));
    let turn = fixture.environments[0].order.turn();
    writer::carry_out_deferred();
    assert!(!writer::has_deferred() && answers.try_recv().is_err());
    drop(turn);
    let (outcome, by) = answers.recv().unwrap();
    assert_eq!(describe(&outcome), "0");
    assert_ne!(by, thread::current().id());
}

#[test]
fn without_leave_nothing_is_deferred() {
    let (fixture, _) = faulty();
    let answers = ask(&fixture, &replace_sn("x"), false);
    assert!(!writer::has_deferred());
    assert_ne!(answers.recv().unwrap().1, thread::current().id());
}

/// A thread that must not wait for other machines asks before it carries out what it deferred.
#[test]
fn a_change_of_a_shared_store_is_known_as_one() {
    fn check<S: Store>(fixture: &Fixture<S>) {
        assert!(!writer::has_deferred_shared(), "nothing is deferred");
        let answers = ask_and_defer(fixture, &replace_sn("x"));
        assert_eq!(writer::has_deferred_shared(), S::SHARED);
        writer::carry_out_deferred();
        assert_eq!(answers.try_recv().unwrap().1, thread::current().id());
    }
    check(&faulty().0);
    let schema = schema("");
    let settings = settings(&schema);
    let shared = Fixture::of(schema, vec![(SharedStore::new(&TABLES).unwrap(), settings)]);
    shared.apply(TREE);
    check(&shared);
}

#[test]
fn a_second_change_sends_both_to_the_writer_in_their_order() {
    let (fixture, _) = faulty();
    let first = ask_and_defer(&fixture, &replace_sn("first"));
    let second = ask(&fixture, &replace_sn("second"), true);
    assert!(!writer::has_deferred());
    for answers in [first, second] {
        let (outcome, by) = answers.recv().unwrap();
        assert_eq!(describe(&outcome), "0");
        assert_ne!(by, thread::current().id());
    }
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("second"));
    let third = ask_and_defer(&fixture, &replace_sn("third"));
    writer::hand_over_deferred();
    assert_ne!(third.recv().unwrap().1, thread::current().id());
}

#[test]
fn faults_are_answered_as_the_writer_does() {
    let (fixture, plan) = faulty();
    let answers = ask_and_defer(&fixture, &replace_sn("x"));
    plan.next(Fault::Full);
    writer::carry_out_deferred();
    let full = describe(&answers.try_recv().unwrap().0);
    assert_eq!(full, "80 no space left for the database: nothing was changed");
    let answers = ask_and_defer(&fixture, &replace_sn("y"));
    plan.next(Fault::Sync);
    writer::carry_out_deferred();
    let failed = describe(&answers.try_recv().unwrap().0);
    assert!(failed.starts_with("53 the store could not be synced"), "{failed}");
    let later = here(&fixture, &replace_sn("z"));
    assert_eq!(later, "53 the store is read-only since a failed sync, until it is opened again");
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("Bo"));
}

/// Names are remembered by thread: neither thread may go by what the other one has changed, or failed to.
#[test]
fn threads_in_turn_see_each_others_renames() {
    let (fixture, plan) = faulty();
    let add = |n: u32, parent: &str| {
        format!("dn: cn=e{n},ou={parent},{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: e{n}\nsn: s\n")
    };
    let mut parent = "People".to_owned();
    for n in 0..24 {
        let next = format!("Folk{n}");
        let there = |ldif: &str| describe(&ask(&fixture, ldif, false).recv().unwrap().0);
        let failing = ask_and_defer(&fixture, &rename(&parent, "Nobody"));
        plan.next(Fault::Full);
        writer::carry_out_deferred();
        assert!(describe(&failing.try_recv().unwrap().0).starts_with("80 "), "{n}");
        let (renamed, added) = match n % 3 {
            0 => (here(&fixture, &rename(&parent, &next)), there(&add(n, &next))),
            1 => (there(&rename(&parent, &next)), here(&fixture, &add(n, &next))),
            _ => (here(&fixture, &rename(&parent, &next)), here(&fixture, &add(n, &next))),
        };
        assert_eq!((renamed.as_str(), added.as_str()), ("0", "0"), "{n}");
        assert_eq!(there(&add(n + 100, &parent)), format!("32 <{SUFFIX}>"), "{n}");
        assert_eq!(here(&fixture, &add(n + 100, &parent)), format!("32 <{SUFFIX}>"), "{n}");
        assert!(fixture.entry(&format!("cn=e{n},ou={next},{SUFFIX}")).is_some(), "{n}");
        parent = next;
    }
}

#[test]
fn substring_keys_left_here_come_into_the_index_when_it_is_quiet() {
    let schema = schema("");
    let mut settings = settings(&schema);
    let mut index = IndexConfig::default();
    index.add_line(&schema, "sn", Some("sub")).unwrap();
    settings.index = index;
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    let pending = || {
        let snapshot = fixture.database().store().snapshot().unwrap();
        snapshot.scan(PENDING, KeyRange::all(), Direction::Forward).unwrap().count()
    };
    let is_brought_in = || {
        while pending() > 0 {
            thread::yield_now();
        }
    };
    is_brought_in();
    for n in 0.. {
        let answers = ask(&fixture, &replace_sn(&format!("substrings {n}")), true);
        let is_deferred = writer::has_deferred();
        writer::carry_out_deferred();
        assert_eq!(describe(&answers.recv().unwrap().0), "0");
        if is_deferred {
            break;
        }
    }
    is_brought_in();
}

/// A completion may own the last handle of the writer, whose thread waits for what this one is doing.
#[test]
fn the_last_handle_may_go_in_the_middle_of_a_change() {
    let (fixture, _) = faulty();
    let fixture = Arc::new(fixture);
    drop(ask_and_defer(&fixture, &replace_sn("x")));
    writer::carry_out_deferred();
    let (operation, controls) = operation(records(&replace_sn("y")).remove(0));
    let (last, request) = (Arc::clone(&fixture), fixture.request(operation, &controls));
    let (sender, answers) = mpsc::channel();
    writer::may_defer(true);
    fixture.directory.submit(
        request,
        Box::new(move |outcome| {
            drop(last);
            sender.send(describe(&outcome)).unwrap();
        }),
    );
    drop(fixture);
    writer::carry_out_deferred();
    assert_eq!(answers.recv().unwrap(), "0");
}
