//! What a change log has forgotten together with its records, and who notices: removed values and deleted entries are
//! remembered as long as the log has their records.

use crate::replica_records::{A, content, member_keeping, modify, record, whole};
use crate::replicated::{Memory, apply, batch, csn, delete, find_nothing, put, raise, uuid, word};
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogRetention, LoggedAttribute, LoggedChange, LoggedKind};
use larix_engine::replica::{ReplicaRules, ReplicatedBatch, ReplicatedChange, deletes_after, entry_of};
use larix_store::Store as _;

/// Its log keeps what is ten seconds old.
fn member() -> Memory {
    member_keeping(1, LogRetention { age: Some(10), size: None })
}

/// Changes something else until the log has nothing of what came before.
fn forget(f: &Memory) {
    let known = || {
        let snapshot = f.database().store().snapshot().unwrap();
        (log::first_sequence(&snapshot, 1).unwrap(), log::last_sequence(&snapshot, 1).unwrap())
    };
    let (_, last) = known();
    for number in 0..200 {
        f.clock.advance_micros(1_000_000);
        let dn = "ou=People,dc=example,dc=com";
        f.apply(&format!("dn: {dn}\nchangetype: modify\nreplace: description\ndescription: {number}\n-\n"));
        if known().0 > last {
            return;
        }
    }
    panic!("the log keeps {:?}", known());
}

/// What an access log tells, or a refresh: each is judged by what is here.
fn applied(f: &Memory, change: ReplicatedChange) -> String {
    let rules = ReplicaRules { drop_covered: false, ..ReplicaRules::default() };
    let outcome = batch(f, ReplicatedBatch { changes: vec![change], context_csns: Vec::new(), rules });
    word(&outcome.changes[0])
}

fn is_here(f: &Memory) -> bool {
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    entry_of(&view, &uuid(1)).unwrap().is_some()
}

#[test]
fn a_value_that_may_have_been_removed_since_is_asked_for() {
    let begun = || {
        let f = member();
        apply(&f, [put(1, A, csn(2, 1), &[("description", "p"), ("description", "q")])]);
        f
    };
    let (early, late) = (csn(3, 10), csn(4, 20));
    let (adds, removes) =
        (modify(early, LoggedKind::SoftAdd, &["q"]), modify(late, LoggedKind::Delete, &["q"]));
    let provider = begun();
    assert_eq!(applied(&provider, adds.clone()), "done");
    assert_eq!(applied(&provider, removes.clone()), "done");
    // Remembered, the removal counts.
    let f = begun();
    assert_eq!([applied(&f, removes.clone()), applied(&f, adds.clone())], ["done", "modify ours"]);
    assert_eq!(content(&f).1["description"], ["p"]);
    // Forgotten, nothing here tells whether the value was removed.
    let f = begun();
    assert_eq!(applied(&f, removes), "done");
    forget(&f);
    let outcome = applied(&f, adds.clone());
    assert!(outcome.starts_with("53 ") && outcome.contains("has to be sent whole"), "{outcome}");
    assert_eq!(content(&f).1["description"], ["p"]);
    // What is known to be here, and what was set behind all that is forgotten, needs nobody's word.
    assert_eq!(applied(&f, modify(csn(5, 9), LoggedKind::SoftAdd, &["p"])), "done");
    assert_eq!(applied(&f, modify(csn(6, 30), LoggedKind::Add, &["r"])), "done");
    assert_eq!(applied(&f, modify(csn(7, 25), LoggedKind::Add, &["s"])), "done");
    // The entry as a whole says it.
    assert_eq!(applied(&f, whole(&provider)), "done");
    assert_eq!(content(&f).1["description"], ["p", "r", "s"]);
    assert_eq!(applied(&f, adds), "older");
    find_nothing(&f);
}

#[test]
fn who_made_an_entry_that_is_not_here_does_not_add_it_again() {
    let add = |csn: Csn| {
        let ReplicatedChange::Put { attributes, .. } = put(1, A, csn, &[]) else { panic!("no put") };
        let values =
            attributes.into_iter().map(|a| LoggedAttribute { description: a.description, values: a.values });
        record(A, csn, LoggedChange::Add(values.collect()), None)
    };
    // Of another server's entry its own delete alone would tell, which is forgotten: it comes back.
    for (server_id, expected) in [(1, "older"), (2, "done")] {
        let made = csn(server_id, 1);
        let deleted = || {
            let f = member();
            apply(&f, [put(1, A, made, &[])]);
            raise(&f, &[made]);
            assert_eq!(apply(&f, [delete(1, csn(3, 5))]), "done");
            f
        };
        let f = deleted();
        assert_ne!(applied(&f, add(made)), "done", "remembered");
        forget(&f);
        assert_eq!(applied(&f, add(made)), expected, "{made}");
        assert_eq!(is_here(&f), expected == "done");
        // A server that sends the entry itself has it in spite of all deletes that it has heard of: all must end with it.
        let f = deleted();
        forget(&f);
        assert_eq!(applied(&f, put(1, A, made, &[])), "done");
        // What it has not got in its contextCSN it has lost: it was restored to a moment before.
        let f = member();
        assert_eq!(applied(&f, add(made)), "done");
    }
}

/// When the entry was deleted, as far as that is remembered.
fn deleted(f: &Memory) -> Option<Csn> {
    let found = deletes_after(&f.database().store().snapshot().unwrap(), None, 10).unwrap();
    assert!(found.iter().all(|(entry, _)| *entry == uuid(1)), "{found:?}");
    found.first().map(|(_, csn)| *csn)
}

/// The server that made the delete may have forgotten it when the change reaches it.
#[test]
fn a_delete_that_did_not_know_of_a_change_is_told_again() {
    for (changed, expected) in [(csn(2, 9), 1), (csn(2, 4), 3)] {
        let f = member();
        apply(&f, [put(1, A, changed, &[])]);
        applied(&f, delete(1, csn(3, 5)));
        assert!(!is_here(&f));
        assert_eq!(deleted(&f).map(|csn| csn.server_id), Some(expected), "{changed}");
    }
    // Who takes no changes decides nothing.
    let f = member();
    apply(&f, [put(1, A, csn(2, 9), &[])]);
    let rules = ReplicaRules { multi_provider: false, ..ReplicaRules::default() };
    let (changes, context_csns) = (vec![delete(1, csn(3, 5))], Vec::new());
    batch(&f, ReplicatedBatch { changes, context_csns, rules });
    assert_eq!(deleted(&f), Some(csn(3, 5)));
}

/// A server sends an entry of which all was here before: it has not heard of the delete, and the servers that reported the delete here may
/// forget it before that server hears of it.
#[test]
fn a_refresh_that_brings_a_deleted_entry_is_told_the_delete_once() {
    let (made, gone) = (csn(2, 1), csn(3, 5));
    let entry = || put(1, A, made, &[]);
    let f = member();
    apply(&f, [entry()]);
    raise(&f, &[made]);
    assert_eq!(apply(&f, [delete(1, gone)]), "done");
    // Late in the persist stage, or as the record of an add: the provider that sends it sends the delete next.
    apply(&f, [entry()]);
    let ReplicatedChange::Put { attributes, .. } = entry() else { panic!("no put") };
    let values =
        attributes.into_iter().map(|a| LoggedAttribute { description: a.description, values: a.values });
    assert_ne!(applied(&f, record(A, made, LoggedChange::Add(values.collect()), None)), "done");
    assert_eq!(deleted(&f), Some(gone));
    assert_ne!(applied(&f, entry()), "done");
    let again = deleted(&f).unwrap();
    assert_eq!(again.server_id, 1);
    assert_ne!(applied(&f, entry()), "done");
    assert_eq!((deleted(&f), is_here(&f)), (Some(again), false));
    find_nothing(&f);
}
