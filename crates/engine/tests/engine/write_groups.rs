//! The writer: groups, failures of the store, the change log, large sets.

use std::sync::{Arc, mpsc};

use larix_engine::DatabaseSettings;
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey, LoggedChange};
use larix_engine::overlay::{Additions, Interests, Overlay, PendingChange, PreparedChange, Refusal};
use larix_engine::time::SeededRandom;
use larix_engine::write::{AttributeValues, Modification, WriteOperation, WriteOutcome};
use larix_engine::writer::Reconfiguration;
use larix_proto::{LdapResult, ModifyOperation, ResultCode};
use larix_store::fault::{Fault, FaultPlan, FaultStore};
use larix_store::memory::MemoryStore;
use larix_store::{Snapshot, Store};

use crate::common::{
    self, Fixture, SUFFIX, TREE, assert_sound, describe, memory, operation, records, schema, settings,
};

fn faulty() -> (Fixture<FaultStore<MemoryStore>>, FaultPlan) {
    let plan = FaultPlan::new();
    let schema = schema("");
    let settings = settings(&schema);
    let fixture = Fixture::of(schema, vec![(FaultStore::new(memory(), plan.clone()), settings)]);
    (fixture, plan)
}

const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";

fn replace_sn(value: &str) -> String {
    format!("dn: {BO}\nchangetype: modify\nreplace: sn\nsn: {value}\n-\n")
}

#[test]
fn a_failed_commit_changes_nothing() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    plan.next(Fault::Full);
    assert_eq!(fixture.change(&replace_sn("x")), "80 no space left for the database: nothing was changed");
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("Bo"));
    plan.next(Fault::Io);
    assert!(fixture.change(&replace_sn("y")).starts_with("80 commit failed: "));
    fixture.apply(&replace_sn("z"));
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("z"));
}

#[test]
fn a_conflict_is_tried_again() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    plan.next(Fault::Conflict);
    fixture.apply(&replace_sn("x"));
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("x"));
}

#[test]
fn after_a_failed_sync_nothing_is_written_any_more() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    plan.next(Fault::Sync);
    let text = fixture.change(&replace_sn("x"));
    assert!(text.starts_with("53 the store could not be synced"), "{text}");
    let later = fixture.change(&replace_sn("y"));
    assert_eq!(later, "53 the store is read-only since a failed sync, until it is opened again");
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("Bo"));
}

#[test]
fn a_failed_rename_leaves_no_name_behind() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    let rename =
        |to: &str| format!("dn: ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: ou={to}\ndeleteoldrdn: 1\n");
    let read = "control: 1.3.6.1.1.13.1 true:: MAQEAmNu\n";
    plan.next(Fault::Io);
    assert!(fixture.change(&rename("Folk")).starts_with("80 commit failed: "));
    fixture.apply(&rename("Crowd"));
    let (change, controls) =
        operation(records(&format!("dn: cn=Bo,ou=Crowd,{SUFFIX}\n{read}changetype: delete\n")).remove(0));
    let outcome = fixture.submit(fixture.request(change, &controls));
    let value = outcome.controls[0].value.clone().unwrap();
    assert!(String::from_utf8_lossy(&value).contains("cn=Bo,ou=Crowd,dc=example,dc=com"), "{outcome:?}");
}

#[test]
fn changes_of_many_threads_are_grouped_and_all_answered() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    let before = plan.commits();
    let (sender, receiver) = mpsc::channel::<WriteOutcome>();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, sender) = (&fixture, sender.clone());
            scope.spawn(move || {
                for n in 0..100 {
                    let entry = format!("dn: cn=u{thread}-{n},ou=People,{SUFFIX}\nobjectClass: person\ncn: u{thread}-{n}\nsn: s\n");
                    let (operation, controls) = operation(records(&entry).remove(0));
                    let sender = sender.clone();
                    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
                    fixture.directory.submit(fixture.request(operation, &controls), done);
                }
            });
        }
    });
    drop(sender);
    let answers: Vec<String> = receiver.iter().map(|outcome| describe(&outcome)).collect();
    assert_eq!((answers.len(), answers.iter().all(|answer| answer == "0")), (400, true));
    assert!(plan.commits() - before <= 400);
    assert!(fixture.entry(&format!("cn=u3-99,ou=People,{SUFFIX}")).is_some());
}

#[test]
fn a_value_that_the_store_does_not_take_fails_no_other_change() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    plan.limit_values(4_096);
    let (sender, receiver) = mpsc::channel::<(u32, String)>();
    let submit = |number: u32, value: &str, behind: Box<dyn FnOnce() + Send>| {
        let (operation, controls) = operation(records(&replace_sn(value)).remove(0));
        let sender = sender.clone();
        let done = Box::new(move |outcome: WriteOutcome| {
            sender.send((number, describe(&outcome))).unwrap();
            behind();
        });
        fixture.directory.submit(fixture.request(operation, &controls), done);
    };
    // The writer waits at its first answer until the others are there: they are one group.
    let (go_on, gate) = mpsc::channel::<()>();
    submit(0, "first", Box::new(move || gate.recv().unwrap()));
    let answer = receiver.recv().unwrap();
    assert_eq!(answer, (0, "0".to_owned()));
    let before = plan.commits();
    let long: String = (0..2_000_u32).map(|n| format!("{:08x}", n.wrapping_mul(0x9e37_79b1))).collect();
    for (number, value) in [(1, "before"), (2, &*long), (3, "behind")] {
        submit(number, value, Box::new(|| {}));
    }
    go_on.send(()).unwrap();
    for number in 1..=3 {
        let (answered, answer) = receiver.recv().unwrap();
        assert_eq!(answered, number);
        match number {
            2 => assert!(answer.starts_with("11 a value of ") && answer.contains("4096"), "{answer}"),
            _ => assert_eq!(answer, "0"),
        }
    }
    assert_eq!(plan.commits() - before, 1, "one group");
    assert_eq!(fixture.value(BO, "sn").as_deref(), Some("behind"));
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_eq!(log::last_sequence(&snapshot, 1).unwrap(), 8, "what is refused is not in the log");
}

#[test]
fn changes_in_one_unit_happen_together_or_not_at_all() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    let unit = |ldif: &str| {
        let requests = records(ldif)
            .into_iter()
            .map(|record| {
                let (operation, controls) = operation(record);
                fixture.request(operation, &controls)
            })
            .collect();
        let (sender, receiver) = mpsc::channel();
        fixture.directory.submit_all(requests, Box::new(move |outcome| sender.send(outcome).unwrap()));
        describe(&receiver.recv().unwrap())
    };
    let add = format!("dn: ou=New,{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\nou: New\n\n");
    let child = format!("dn: cn=c,ou=New,{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: c\nsn: c\n\n");
    let bad = format!("dn: cn=d,ou=None,{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: d\nsn: d\n");
    assert_eq!(unit(&format!("{add}{child}{bad}")), format!("32 <{SUFFIX}>"));
    assert!(fixture.entry(&format!("ou=New,{SUFFIX}")).is_none());
    assert_eq!(unit(&format!("{add}{child}")), "0");
    assert!(fixture.entry(&format!("cn=c,ou=New,{SUFFIX}")).is_some());
}

/// What is refused, or only tried, within a group has no place in the log, and leaves none empty.
#[test]
fn the_log_has_no_gaps() {
    const PAIRS: u64 = 100;
    let fixture = Fixture::new();
    fixture.apply(TREE);
    let (sender, receiver) = mpsc::channel();
    let submit = |ldif: &str, wanted: &'static str| {
        let requests = records(ldif).into_iter().map(|record| {
            let (operation, controls) = operation(record);
            fixture.request(operation, &controls)
        });
        let sender = sender.clone();
        let done = Box::new(move |outcome| sender.send((describe(&outcome), wanted)).unwrap());
        fixture.directory.submit_all(requests.collect(), done);
    };
    for n in 0..PAIRS {
        let absent = format!("dn: cn=none,{SUFFIX}\nchangetype: delete\n");
        submit(&format!("{}\n{absent}", replace_sn("refused")), "32 <dc=example,dc=com>");
        submit(&replace_sn(&format!("n{n}")), "0");
        let tried = replace_sn("tried").replacen('\n', "\ncontrol: 1.3.6.1.4.1.4203.666.5.2 true\n", 1);
        submit(&tried, "16654");
    }
    drop(sender);
    receiver.iter().for_each(|(answer, wanted)| assert_eq!(answer, wanted));
    let snapshot = fixture.database().store().snapshot().unwrap();
    let (mut sequences, mut end) = (Vec::new(), 0);
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 0 }, &mut |key, record, stored| {
        sequences.push(key.sequence);
        assert_eq!(record.offset, end, "record {}", key.sequence);
        end += stored.len() as u64;
        true
    })
    .unwrap();
    assert_eq!(sequences, (1..=5 + PAIRS).collect::<Vec<_>>());
}

#[test]
fn the_log_says_what_was_done() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    fixture.apply(&replace_sn("x"));
    fixture.change(&replace_sn(""));
    fixture.apply(&format!("dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 1\n"));
    fixture.apply(&format!("dn: cn=Bob,ou=People,{SUFFIX}\nchangetype: delete\n"));
    let snapshot = fixture.database().store().snapshot().unwrap();
    let mut seen = Vec::new();
    let mut last: Option<Csn> = None;
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 4 }, &mut |key, record, _| {
        assert!(last.is_none_or(|last| last < record.csn));
        last = Some(record.csn);
        let kind = match record.change {
            LoggedChange::Add(attributes) => format!("add {}", attributes.len()),
            LoggedChange::Modify(modifications) => format!("modify {}", modifications.len()),
            LoggedChange::Delete => "delete".to_owned(),
            LoggedChange::ModifyDn { new_rdn, modifications, .. } => {
                format!("rename {new_rdn} {}", modifications.len())
            }
        };
        seen.push(format!("{} {} {kind}", key.sequence, record.dn));
        true
    })
    .unwrap();
    let expected = [
        format!("5 {BO} add 10"),
        format!("6 {BO} modify 4"),
        format!("7 {BO} rename cn=Bob 5"),
        format!("8 cn=Bob,ou=People,{SUFFIX} delete"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(log::context_csns(&snapshot).unwrap(), [last.unwrap()]);
}

#[test]
fn numbers_go_on_after_a_restart() {
    let store = Arc::new(memory());
    let schema = schema("");
    let first = {
        let settings = settings(&schema);
        let fixture = Fixture::of(Arc::clone(&schema), vec![(Arc::clone(&store), settings)]);
        fixture.apply(TREE);
        fixture.value(BO, "entryCSN").unwrap()
    };
    let settings = settings(&schema);
    let fixture = Fixture::of(schema, vec![(store, settings)]);
    fixture.clock.set(common::START);
    fixture.apply(&replace_sn("x"));
    assert!(fixture.value(BO, "entryCSN").unwrap() > first);
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_eq!(log::last_sequence(&snapshot, 1).unwrap(), 6);
}

fn member(n: usize) -> String {
    format!("cn=Member {n},ou=People,{SUFFIX}")
}

#[test]
fn a_large_group_is_changed_without_being_read() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    let dn = format!("cn=all,ou=Groups,{SUFFIX}");
    let members: String = (0..5_000).map(|n| format!("member: {}\n", member(n))).collect();
    fixture.apply(&format!("dn: {dn}\nobjectClass: groupOfNames\ncn: all\n{members}"));
    let modify = |changes: &str| fixture.change(&format!("dn: {dn}\nchangetype: modify\n{changes}\n-\n"));
    let has = |n: usize| {
        let entry = fixture.entry(&dn).unwrap();
        let attribute = fixture.schema.attribute_type("member").unwrap().id;
        entry.values(attribute).iter().any(|value| *value == member(n).into_bytes())
    };
    let count = || {
        let entry = fixture.entry(&dn).unwrap();
        entry.values(fixture.schema.attribute_type("member").unwrap().id).len()
    };
    assert_eq!(modify(&format!("add: member\nmember: {}", member(5_000))), "0");
    assert_eq!(
        modify(&format!("add: member\nmember: {}", member(7).to_uppercase())),
        "20 modify/add: member: value #0 already exists"
    );
    assert_eq!(modify(&format!("delete: member\nmember: {}", member(7))), "0");
    assert_eq!(
        modify(&format!("delete: member\nmember: {}", member(7))),
        "16 modify/delete: member: no such value"
    );
    assert!(has(5_000) && !has(7));
    assert_eq!(count(), 5_000);
    // Away and back in one request, and the other way round.
    let back = format!("delete: member\nmember: {0}\n-\nadd: member\nmember: {0}", member(8));
    assert_eq!((modify(&back), has(8)), ("0".to_owned(), true));
    let forth = format!("add: member\nmember: {0}\n-\ndelete: member\nmember: {0}", member(9_999));
    assert_eq!((modify(&forth), has(9_999), count()), ("0".to_owned(), false, 5_000));
    assert_eq!(modify("delete: member"), "65 object class 'groupOfNames' requires attribute 'member'");
    assert_eq!(modify(&format!("replace: member\nmember: {}", member(1))), "0");
    assert_eq!((count(), has(1)), (1, true));
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_eq!(rows(&snapshot, larix_engine::tables::VALUES), 0);
}

fn rows<S: Snapshot>(snapshot: &S, table: larix_store::TableId) -> usize {
    snapshot.scan(table, larix_store::KeyRange::all(), larix_store::Direction::Forward).unwrap().count()
}

#[test]
fn what_is_deleted_leaves_nothing_behind() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    let tables = |snapshot: &_| {
        use larix_engine::tables::{BLOBS, ENTRIES, TREE, VALUES};
        [ENTRIES, TREE, VALUES, BLOBS].map(|table| rows(snapshot, table))
    };
    let before = tables(&fixture.database().store().snapshot().unwrap());
    let members: String = (0..600).map(|n| format!("member: {}\n", member(n))).collect();
    let long = "x".repeat(5_000);
    let dn = format!("cn=all,ou=Groups,{SUFFIX}");
    fixture.apply(&format!("dn: {dn}\nobjectClass: groupOfNames\ncn: all\ndescription: {long}\n{members}"));
    fixture.apply(&format!("dn: {dn}\nchangetype: delete\n"));
    assert_eq!(tables(&fixture.database().store().snapshot().unwrap()), before);
}

/// Takes deleted entries out of one group, and keeps one entry from being deleted.
#[derive(Debug)]
struct Keeper {
    group: String,
    kept: String,
}

impl Overlay for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let nothing = Additions::default();
        let PreparedChange::Delete { dn } = change.operation else { return Ok(nothing) };
        if *dn == change.schema.parse_dn(&self.kept).unwrap() {
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "kept").into());
        }
        let Some(entry) = change.entries.entry(dn)? else { return Ok(nothing) };
        let attribute =
            AttributeValues { description: "member".to_owned(), values: vec![entry.dn.into_bytes()] };
        let modification = Modification { operation: ModifyOperation::Delete, attribute };
        let derived =
            vec![WriteOperation::Modify { object: self.group.clone(), changes: vec![modification] }];
        Ok(Additions { derived, ..nothing })
    }
}

#[test]
fn overlays_refuse_and_add() {
    let schema = schema("");
    let group = format!("cn=all,ou=Groups,{SUFFIX}");
    let ann = format!("cn=Ann Lee,ou=People,{SUFFIX}");
    let mut settings = settings(&schema);
    settings.overlays.push(Arc::new(Keeper { group: group.clone(), kept: ann.clone() }));
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture.apply(&format!("dn: {group}\nobjectClass: groupOfNames\ncn: all\nmember: {BO}\nmember: {ann}\n"));
    let csn = fixture.value(&group, "entryCSN");
    assert_eq!(fixture.change(&format!("dn: {ann}\nchangetype: delete\n")), "53 kept");
    fixture.apply(&format!("dn: {BO}\nchangetype: delete\n"));
    assert_eq!(
        fixture.show(&group),
        format!("dn: {group}\nobjectClass: groupOfNames\ncn: all\nmember: {ann}\n")
    );
    assert_eq!(fixture.value(&group, "entryCSN"), csn, "what is derived is no change of its own");
    let snapshot = fixture.database().store().snapshot().unwrap();
    let mut local = Vec::new();
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 6 }, &mut |_, record, _| {
        local.push(record.local);
        true
    })
    .unwrap();
    assert_eq!(local, [false, true]);
    // A group that is not there: what belongs together fails together.
    drop(snapshot);
    fixture.apply(&format!("dn: cn=c,ou=People,{SUFFIX}\nobjectClass: person\ncn: c\nsn: c\n"));
    assert_eq!(
        fixture.change(&format!("dn: cn=c,ou=People,{SUFFIX}\nchangetype: delete\n")),
        "16 modify/delete: member: no such value"
    );
    assert!(fixture.entry(&format!("cn=c,ou=People,{SUFFIX}")).is_some());
}

#[test]
fn the_log_keeps_its_newest_records() {
    let mut fixture = Fixture::new();
    fixture.apply(TREE);
    // The oldest are of another server ID: sequences go on under the next one.
    fixture.change_server_id(2);
    let (sender, receiver) = mpsc::channel();
    let changes = log::RECORDS_MIN + 2_000;
    for number in 0..changes {
        let (change, _) = operation(records(&replace_sn(&format!("Bo {number}"))).remove(0));
        let sender = sender.clone();
        let done = Box::new(move |outcome: WriteOutcome| sender.send(outcome).unwrap());
        fixture.directory.submit(fixture.request(change, &[]), done);
    }
    for outcome in receiver.iter().take(changes as usize) {
        assert_eq!(describe(&outcome), "0");
    }
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_eq!(server_ids(&snapshot), (vec![2], vec![1, 2]));
    let (first, last) = (log::first_number(&snapshot).unwrap(), log::last_number(&snapshot).unwrap());
    assert!(first > 1, "nothing was trimmed");
    let retained = log::RECORDS_MIN..log::RECORDS_MIN + log::TRIMMED_TOGETHER;
    assert!(retained.contains(&(last + 1 - first)), "{first} to {last}");
    let mut expected = first;
    log::visit_stored_after(&snapshot, LogKey { server_id: 2, sequence: 0 }, &mut |key, _, _| {
        assert_eq!(key.sequence, expected);
        expected += 1;
        true
    })
    .unwrap();
    assert_eq!(expected, last + 1);
}

/// What could not be read while the server got another ID is read before the next change.
#[test]
fn another_server_id_holds_though_the_store_was_away() {
    let (fixture, plan) = faulty();
    fixture.apply(TREE);
    let served = &fixture.directory.databases()[0];
    let environment = common::environment(Arc::clone(&fixture.clock) as _, Arc::new(SeededRandom::new(8)), 2);
    let settings = DatabaseSettings::clone(&fixture.database().current_settings());
    plan.set_offline(true);
    served.reconfigure(Reconfiguration { schema: Arc::clone(&fixture.schema), settings, environment });
    plan.set_offline(false);
    assert_eq!(fixture.database().server_id(), 2);
    let before = log::last_number(&fixture.database().store().snapshot().unwrap()).unwrap();
    fixture.apply(&replace_sn("x"));
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_eq!(log::last_number(&snapshot).unwrap(), before + 1);
    assert_eq!(server_ids(&snapshot), (vec![1, 2], vec![1, 2]));
}

/// Of which server IDs there are records, and of which there is a contextCSN.
fn server_ids(snapshot: &impl Snapshot) -> (Vec<u16>, Vec<u16>) {
    let of_records = log::positions(snapshot).unwrap().iter().map(|last| last.server_id).collect();
    (of_records, log::context_csns(snapshot).unwrap().iter().map(|csn| csn.server_id).collect())
}

#[test]
fn old_records_of_former_server_ids_go() {
    let schema = schema("");
    let log_retention = log::LogRetention { age: Some(100), size: None };
    let settings = DatabaseSettings { log_retention, ..settings(&schema) };
    let mut fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    for server_id in [2, 1, 3] {
        fixture.change_server_id(server_id);
        for number in 0..30 {
            fixture.clock.advance_micros(10_000_000);
            fixture.apply(&replace_sn(&format!("Bo {number:08}")));
        }
    }
    let snapshot = fixture.database().store().snapshot().unwrap();
    // How far the server had come under them stays.
    assert_eq!(server_ids(&snapshot), (vec![3], vec![1, 2, 3]));
    let kept = log::last_number(&snapshot).unwrap() + 1 - log::first_number(&snapshot).unwrap();
    assert!((10..=12).contains(&kept), "{kept}");
    assert_sound(fixture.database(), "under another server id");
}

/// How many records of the log are left, and the last one's sequence, after `changes` changes, one every `seconds`.
fn retained(retention: log::LogRetention, changes: u64, seconds: u32) -> (u64, u64) {
    let schema = schema("");
    let settings = DatabaseSettings { log_retention: retention, ..settings(&schema) };
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    for number in 0..changes {
        fixture.clock.advance_micros(seconds * 1_000_000);
        fixture.apply(&replace_sn(&format!("Bo {number:08}")));
    }
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_sound(fixture.database(), "with a part of its log");
    let (first, last) =
        (log::first_sequence(&snapshot, 1).unwrap(), log::last_sequence(&snapshot, 1).unwrap());
    (last + 1 - first, last)
}

#[test]
fn the_log_keeps_what_the_configuration_says() {
    let by = |age, size| log::LogRetention { age, size };
    let check = |retention, seconds, expected: std::ops::RangeInclusive<u64>| {
        let (retained, last) = retained(retention, 200, seconds);
        assert!(expected.contains(&retained) && last == 205, "{retention:?}: {retained} of {last}");
    };
    check(by(None, None), 10, 205..=205);
    check(by(Some(100), None), 10, 10..=12);
    check(by(Some(100_000), None), 10, 205..=205);
    // A record of these changes takes some 400 bytes.
    check(by(None, Some(10_000)), 10, 20..=60);
    check(by(Some(100), Some(10_000)), 10, 10..=12);
    check(by(Some(100_000), Some(10_000)), 10, 20..=60);
    check(by(Some(100), None), 1_000, 1..=2);
}

#[test]
fn a_log_that_is_switched_off_ends_its_history() {
    let store = Arc::new(memory());
    let history = |log: bool, ldif: &str| {
        let schema = schema("");
        let settings = DatabaseSettings { log, ..settings(&schema) };
        let fixture = Fixture::of(schema, vec![(Arc::clone(&store), settings)]);
        fixture.apply(ldif);
        drop(fixture);
        let snapshot = store.snapshot().unwrap();
        log::history(&snapshot).unwrap()
    };
    let first = history(true, TREE);
    assert!(first.is_some());
    assert_eq!(history(true, &replace_sn("x")), first);
    assert_eq!(history(false, &replace_sn("y")), None);
    assert!(history(true, &replace_sn("z")).is_some());
}
