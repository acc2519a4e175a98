//! Records of access logs are merged by the states of entries: what several members did to one entry ends alike in whatever
//! order its records come, and whether they come one by one or within an entry that comes whole.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use crate::common::{self, Fixture, SUFFIX, TREE, memory, schema, settings};
use crate::replicated::{Memory, apply, batch, csn, filled, find_nothing, orders, put, raise, uuid, word};
use larix_engine::access::Subject;
use larix_engine::csn::Csn;
use larix_engine::log::{
    self, LogKey, LogRetention, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification, RecordForm,
};
use larix_engine::replica::{
    DeleteLimit, DeleteOutcome, EntryPlace, EntryPlaces, ReplicaRules, ReplicatedBatch, ReplicatedChange,
    Share, UuidSet, entry_of, state_of,
};
use larix_engine::time::{ManualClock, SeededRandom};
use larix_engine::write::AttributeValues;
use larix_engine::{Database, DatabaseSettings, ServedDatabase};
use larix_proto::Scope;
use larix_store::Store as _;
use larix_store::fault::{FaultPlan, FaultStore};
use larix_store::memory::MemoryStore;

pub(crate) const A: &str = "cn=a,dc=example,dc=com";

fn member() -> Memory {
    member_of(1)
}

/// With this server id.
fn member_of(server_id: u16) -> Memory {
    member_keeping(server_id, LogRetention::default())
}

/// Its change log is trimmed so.
pub(crate) fn member_keeping(server_id: u16, log_retention: LogRetention) -> Memory {
    let schema = schema("");
    let settings = DatabaseSettings { merges_records: true, log_retention, ..settings(&schema) };
    let (clock, random) = (Arc::new(ManualClock::new(common::START)), Arc::new(SeededRandom::new(7)));
    let database = Database::open(memory(), Arc::clone(&schema), settings, &*random).unwrap();
    let environment = common::environment(Arc::clone(&clock) as _, random, server_id);
    let served = Arc::new(ServedDatabase::start(Arc::new(database), environment.clone()).unwrap());
    let subject = Arc::new(Subject::default().bound_as(schema.parse_dn(common::ROOT).unwrap(), common::ROOT));
    let directory = common::directory(&schema, vec![served]);
    let fixture = Memory { directory, schema, clock, subject, environments: vec![environment] };
    fixture.apply(TREE);
    fixture
}

fn modification(kind: LoggedKind, name: &str, values: &[&str]) -> LoggedModification {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    LoggedModification { kind, attribute: LoggedAttribute { description: name.to_owned(), values } }
}

pub(crate) fn record(
    dn: &str,
    csn: Csn,
    change: LoggedChange,
    place: Option<EntryPlace>,
) -> ReplicatedChange {
    ReplicatedChange::Delta { entry_uuid: Some(uuid(1)), dn: dn.to_owned(), csn, change, place, whole: false }
}

pub(crate) fn modify(csn: Csn, kind: LoggedKind, values: &[&str]) -> ReplicatedChange {
    let stamp = modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]);
    let mods = vec![modification(kind, "description", values), stamp];
    record(A, csn, LoggedChange::Modify(mods), None)
}

/// As a record tells it: what the rename does to the naming values is among the modifications.
fn rename(csn: Csn, to: &str, keeps: bool, superior: uuid::Uuid) -> ReplicatedChange {
    let mut mods = vec![modification(LoggedKind::SoftAdd, "cn", &[to])];
    if !keeps {
        mods.insert(0, modification(LoggedKind::Delete, "cn", &["a"]));
    }
    mods.push(modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]));
    let new_rdn = format!("cn={to}");
    let place = EntryPlace { superior, name: new_rdn.clone() };
    let change =
        LoggedChange::ModifyDn { new_rdn, delete_old_rdn: !keeps, new_superior: None, modifications: mods };
    record(A, csn, change, Some(place))
}

/// The entry as it is, under its name, with its state beside it.
pub(crate) fn whole(f: &Memory) -> ReplicatedChange {
    let (dn, content) = content(f);
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    let id = entry_of(&view, &uuid(1)).unwrap().unwrap();
    let stored = view.record(id).unwrap().unwrap();
    let reader = view.reader(id, &stored).unwrap();
    let csn = content["entryCSN"][0].parse().ok();
    let state = state_of(&view, &reader, &uuid(1), csn).unwrap();
    let place = EntryPlaces::default().place_of(&view, &reader).unwrap();
    let values = |values: Vec<String>| values.into_iter().map(String::into_bytes).collect();
    let attributes = content
        .into_iter()
        .map(|(description, of)| AttributeValues { description, values: values(of) })
        .collect();
    ReplicatedChange::Put { entry_uuid: uuid(1), dn, attributes, state: Some(state), place }
}

pub(crate) fn content(f: &Memory) -> (String, BTreeMap<String, Vec<String>>) {
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    let id = entry_of(&view, &uuid(1)).unwrap().unwrap();
    let stored = view.record(id).unwrap().unwrap();
    let reader = view.reader(id, &stored).unwrap();
    let entry = reader.to_owned(view.dn(&reader.view).unwrap(), true).unwrap();
    let attributes = entry.attributes.iter().map(|attribute| {
        let mut values: Vec<String> =
            attribute.values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        values.sort();
        (attribute.description.to_text(&f.schema), values)
    });
    (entry.dn, attributes.collect())
}

#[test]
fn records_end_alike_in_any_order_and_on_any_way() {
    let begun = || {
        let f = member();
        apply(&f, [put(1, A, csn(2, 1), &[("description", "p"), ("cn", "a")])]);
        f
    };
    let suffix: uuid::Uuid = member().value(SUFFIX, "entryUUID").unwrap().parse().unwrap();
    let people: uuid::Uuid =
        member().value("ou=People,dc=example,dc=com", "entryUUID").unwrap().parse().unwrap();
    // Each is made at another server that knows of none of the others.
    let records = [
        modify(csn(3, 10), LoggedKind::Replace, &["a", "b"]),
        rename(csn(4, 20), "b", false, people),
        modify(csn(5, 30), LoggedKind::Add, &["x"]),
        rename(csn(6, 15), "c", true, suffix),
        modify(csn(7, 25), LoggedKind::Delete, &["b"]),
    ];
    for order in orders(records.len()) {
        for way in 0..=order.len() {
            let (f, g) = (begun(), begun());
            let (mine, others) = order.split_at(way);
            let take = |f: &Memory, numbers: &[usize]| {
                for number in numbers {
                    let outcome = apply(f, [records[*number].clone()]);
                    assert!(["done", "modify ours"].contains(&outcome.as_str()), "{order:?}: {outcome}");
                }
            };
            take(&f, mine);
            take(&g, others);
            apply(&f, [whole(&g)]);
            let (dn, content) = content(&f);
            let shown = (dn.as_str(), content["description"].join(" "), content["cn"].join(" "));
            let expected = ("cn=b,ou=People,dc=example,dc=com", "a x".to_owned(), "b c".to_owned());
            assert_eq!(shown, expected, "{mine:?} as records, {others:?} as an entry");
            assert_eq!(content["entryCSN"], [csn(5, 30).to_string()]);
            // Neither way tells it again.
            assert_eq!(apply(&f, [whole(&g), records[order[0]].clone()]), "older, older");
            find_nothing(&f);
        }
    }
}

/// What the change log says that others are to be told of the entry, behind `after`.
fn sent_changes(f: &Memory) -> Vec<(LoggedChange, Option<String>, bool)> {
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    let mut all = Vec::new();
    let server_id = f.database().server_id();
    log::visit_stored_after(&snapshot, LogKey { server_id, sequence: 0 }, &mut |_, record, _| {
        if record.entry_uuid == uuid(1) && !record.local {
            let place = EntryPlaces::default().of_record(&view, &record).unwrap();
            all.push((
                record.as_sent().1.clone(),
                place.map(|place| place.name),
                record.form == RecordForm::Whole,
            ));
        }
        true
    })
    .unwrap();
    all
}

/// What each counted on is another value: the record has what came of it.
#[test]
fn increments_at_two_members_end_alike() {
    let begun = |server_id| {
        let f = member_of(server_id);
        let account = [
            ("objectClass", "device"),
            ("objectClass", "posixAccount"),
            ("uid", "a"),
            ("uidNumber", "5"),
            ("gidNumber", "1"),
            ("homeDirectory", "/"),
        ];
        apply(&f, [put(1, A, csn(2, 1), &account)]);
        f
    };
    let increment = |f: &Memory, amounts: &[i32]| {
        let one = |amount: &i32| format!("increment: uidNumber\nuidNumber: {amount}\n-\n");
        let all: String = amounts.iter().map(one).collect();
        f.apply(&format!("dn: {A}\nchangetype: modify\n{all}"));
    };
    let told = |f: &Memory| {
        let change = sent_changes(f).pop().expect("a change").0;
        record(A, content(f).1["entryCSN"][0].parse().unwrap(), change, None)
    };
    let number = |f: &Memory| content(f).1["uidNumber"].join(" ");
    let (f, g) = (begun(3), begun(4));
    increment(&f, &[1]);
    increment(&g, &[-3, 1]);
    assert_eq!((number(&f), number(&g)), ("6".to_owned(), "3".to_owned()));
    let (of_f, of_g) = (told(&f), told(&g));
    apply(&f, [of_g]);
    apply(&g, [of_f]);
    // The later one counts.
    assert_eq!((number(&f), number(&g)), ("3".to_owned(), "3".to_owned()));
    [&f, &g].into_iter().for_each(find_nothing);
}

/// The record says nothing of the add, which changed nothing: a value that is added and taken away would be one that only passes.
#[test]
fn a_value_that_was_there_is_told_as_taken_away() {
    let (f, g) = (member_of(3), member_of(4));
    for member in [&f, &g] {
        apply(member, [put(1, A, csn(2, 1), &[("displayName", "one")])]);
    }
    let mods = "add: displayName\ndisplayName: one\n-\ndelete: displayName\ndisplayName: one\n-\n";
    f.apply(&format!("dn: {A}\ncontrol: 1.2.840.113556.1.4.1413 true\nchangetype: modify\n{mods}"));
    let change = sent_changes(&f).pop().expect("a change").0;
    apply(&g, [record(A, content(&f).1["entryCSN"][0].parse().unwrap(), change, None)]);
    for member in [&f, &g] {
        assert_eq!(member.value(A, "displayName"), None);
        find_nothing(member);
    }
}

#[test]
fn who_passes_a_late_record_on_tells_it_as_it_came() {
    let f = member();
    let suffix: uuid::Uuid = f.value(SUFFIX, "entryUUID").unwrap().parse().unwrap();
    let late = rename(csn(6, 15), "c", true, suffix);
    let ReplicatedChange::Delta { change: expected, .. } = late.clone() else { panic!("no record") };
    apply(&f, [put(1, A, csn(2, 1), &[])]);
    apply(&f, [modify(csn(3, 30), LoggedKind::Replace, &["a"]), late]);
    let g = member();
    apply(&g, [put(1, A, csn(2, 1), &[]), modify(csn(4, 35), LoggedKind::Add, &["x"])]);
    // What makes an entry another server's version of it is nobody's change.
    apply(&f, [whole(&g)]);
    let sent_changes = sent_changes(&f);
    assert!(sent_changes.iter().any(|(change, place, is_whole)| {
        *change == expected && place.as_deref() == Some("cn=c") && !is_whole
    }));
    assert!(
        sent_changes
            .iter()
            .any(|(change, _, is_whole)| matches!(change, LoggedChange::Modify(_)) && *is_whole)
    );
    assert!(
        sent_changes.iter().any(|(change, _, is_whole)| matches!(change, LoggedChange::Add(_)) && !is_whole)
    );
    let record = ReplicatedChange::Delta {
        entry_uuid: Some(uuid(1)),
        dn: A.to_owned(),
        csn: csn(8, 40),
        change: LoggedChange::Modify(vec![modification(LoggedKind::Replace, "description", &["no"])]),
        place: None,
        whole: true,
    };
    let before = content(&f);
    assert_eq!(apply(&f, [record]), "older");
    assert_eq!(content(&f), before);
}

#[test]
fn a_rename_leaves_values_and_attributes_in_their_order() {
    let f = member();
    let suffix: uuid::Uuid = f.value(SUFFIX, "entryUUID").unwrap().parse().unwrap();
    apply(&f, [put(1, A, csn(2, 1), &[("description", "z"), ("description", "y")])]);
    let names = |dn: &str| {
        let entry = f.entry(dn).unwrap();
        let names: Vec<String> = entry.attributes.iter().map(|a| a.description.to_text(&f.schema)).collect();
        let cn = f.schema.attribute_type("cn").unwrap().id;
        let values: Vec<String> =
            entry.values(cn).iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        (names, values)
    };
    let (before, _) = names(A);
    assert_eq!(apply(&f, [rename(csn(6, 15), "0", true, suffix)]), "done");
    assert_eq!(names("cn=0,dc=example,dc=com"), (before, vec!["a".to_owned(), "0".to_owned()]));
}

#[test]
fn a_rename_to_another_spelling_spells_the_value_so() {
    for (keeps, spelled) in [(false, "A"), (true, "a")] {
        let f = member();
        let suffix: uuid::Uuid = f.value(SUFFIX, "entryUUID").unwrap().parse().unwrap();
        apply(&f, [put(1, A, csn(2, 1), &[("cn", "a")])]);
        assert_eq!(apply(&f, [rename(csn(6, 15), "A", keeps, suffix)]), "done");
        let (dn, content) = content(&f);
        assert_eq!((dn.as_str(), content["cn"].join(" ")), ("cn=A,dc=example,dc=com", spelled.to_owned()));
        find_nothing(&f);
    }
}

#[test]
fn one_value_is_exchanged_for_another_by_two_members_at_once() {
    let exchange = |csn: Csn, to: &str| {
        let mods = vec![
            modification(LoggedKind::Add, "displayName", &[to]),
            modification(LoggedKind::Delete, "displayName", &["other"]),
            modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]),
        ];
        record(A, csn, LoggedChange::Modify(mods), None)
    };
    let later = modify(csn(3, 30), LoggedKind::Add, &["x"]);
    let records = [exchange(csn(3, 10), "one"), exchange(csn(4, 20), "two"), later];
    for order in orders(records.len()) {
        let f = member();
        apply(&f, [put(1, A, csn(2, 1), &[("displayName", "other")])]);
        // Those of one server come in its order.
        if order.iter().position(|at| *at == 0) > order.iter().position(|at| *at == 2) {
            continue;
        }
        order.iter().for_each(|at| _ = apply(&f, [records[*at].clone()]));
        assert_eq!(f.value(A, "displayName").as_deref(), Some("two"), "{order:?}");
    }
}

#[test]
fn a_value_that_only_passes_leaves_the_one_that_is_there() {
    let request = |csn: Csn, mods: &[(LoggedKind, &str)]| {
        let mut mods: Vec<LoggedModification> =
            mods.iter().map(|(kind, value)| modification(*kind, "displayName", &[value])).collect();
        mods.push(modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]));
        record(A, csn, LoggedChange::Modify(mods), None)
    };
    let passes = [(LoggedKind::Add, "one"), (LoggedKind::Delete, "one")];
    let later = modify(csn(5, 40), LoggedKind::Add, &["x"]);
    for (request, shown) in [
        (request(csn(3, 10), &passes), "other"),
        // The change of another server's at the same time is not lost to one that changes nothing.
        (request(csn(3, 30), &passes), "two"),
        (
            request(
                csn(3, 10),
                &[passes[0], passes[1], (LoggedKind::Add, "three"), (LoggedKind::Delete, "other")],
            ),
            "three",
        ),
        (
            request(
                csn(3, 10),
                &[(LoggedKind::Delete, "other"), (LoggedKind::Add, "three"), passes[0], passes[1]],
            ),
            "three",
        ),
    ] {
        let mut records = vec![request, later.clone()];
        if shown == "two" {
            records.push(set(csn(4, 20), "displayName", "two"));
        }
        for order in orders(records.len()) {
            for merges in [true, false] {
                let f = if merges { member() } else { filled() };
                apply(&f, [put(1, A, csn(2, 1), &[("displayName", "other")])]);
                order.iter().for_each(|at| _ = apply(&f, [records[*at].clone()]));
                assert_eq!(f.value(A, "displayName").as_deref(), Some(shown), "{order:?}, merges: {merges}");
            }
        }
    }
}

/// Under the permissive modify control a request may add a value that is there, and take it away.
#[test]
fn a_value_that_was_there_goes_with_the_one_that_passes() {
    for (there, left) in [("one", None), ("other", Some("other"))] {
        let f = filled();
        apply(&f, [put(1, A, csn(2, 1), &[("displayName", there)])]);
        let mods = vec![
            modification(LoggedKind::Add, "displayName", &["one"]),
            modification(LoggedKind::Delete, "displayName", &["one"]),
            modification(LoggedKind::Replace, "entryCSN", &[&csn(3, 10).to_string()]),
        ];
        assert_eq!(apply(&f, [record(A, csn(3, 10), LoggedChange::Modify(mods), None)]), "done");
        assert_eq!(f.value(A, "displayName").as_deref(), left);
        find_nothing(&f);
    }
}

#[test]
fn values_that_cannot_be_compared_end_alike_in_any_order() {
    let change = |csn: Csn, kind, values: &[&str]| {
        let mods = vec![
            modification(kind, "facsimileTelephoneNumber", values),
            modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]),
        ];
        record(A, csn, LoggedChange::Modify(mods), None)
    };
    // Each is made at another server, which had none or took away what it had: beside others none can be added.
    let records = [
        change(csn(3, 10), LoggedKind::Add, &["1", "2"]),
        change(csn(4, 20), LoggedKind::Delete, &[]),
        change(csn(5, 30), LoggedKind::Add, &["3", "4"]),
        change(csn(6, 25), LoggedKind::Replace, &["5"]),
    ];
    for order in orders(records.len()) {
        for way in 0..=order.len() {
            let (mine, others) = order.split_at(way);
            let taken = |numbers: &[usize]| {
                let f = member();
                apply(&f, [put(1, A, csn(2, 1), &[])]);
                for number in numbers {
                    let outcome = apply(&f, [records[*number].clone()]);
                    assert!(["done", "modify ours"].contains(&outcome.as_str()), "{order:?}: {outcome}");
                }
                f
            };
            let f = taken(mine);
            apply(&f, [whole(&taken(others))]);
            let (_, content) = content(&f);
            assert_eq!(
                content["facsimileTelephoneNumber"],
                ["3", "4"],
                "{mine:?} as records, {others:?} as an entry"
            );
        }
    }
}

#[test]
fn how_far_a_server_has_come_is_no_change_of_its_suffix() {
    for f in [member(), filled()] {
        let before = f.value(SUFFIX, "entryCSN");
        let uuid = f.value(SUFFIX, "entryUUID").unwrap().parse().ok();
        let csn = csn(3, 10);
        let values = [csn.to_string()];
        let mods = |name| vec![modification(LoggedKind::Replace, name, &[values[0].as_str()])];
        let delta = |mods| ReplicatedChange::Delta {
            entry_uuid: uuid,
            dn: SUFFIX.to_owned(),
            csn,
            change: LoggedChange::Modify(mods),
            place: None,
            whole: false,
        };
        assert_eq!(apply(&f, [delta(mods("contextCSN"))]), "older");
        assert_eq!(f.value(SUFFIX, "entryCSN"), before);
        // The change of that CSN may come still.
        let both = [mods("contextCSN"), mods("description")].concat();
        assert_eq!(apply(&f, [delta(both)]), "done");
        assert_eq!(f.value(SUFFIX, "entryCSN").as_deref(), Some(values[0].as_str()));
    }
}

/// The number of the entry is 1, and so are the name and the class.
const SERIAL: &str = "serialNumber";

fn set(csn: Csn, name: &str, value: &str) -> ReplicatedChange {
    let mods = vec![
        modification(LoggedKind::Replace, name, &[value]),
        modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]),
    ];
    record(A, csn, LoggedChange::Modify(mods), None)
}

/// It has heard of the server 2 up to 1, of 3 up to 5 and of 4 up to 20, with which the serial number became `ours`.
fn caught_up_member(server_id: u16) -> Memory {
    let f = member_of(server_id);
    apply(&f, [put(1, A, csn(2, 1), &[("description", "p"), (SERIAL, "first")])]);
    assert_eq!(apply(&f, [set(csn(4, 20), SERIAL, "ours")]), "done");
    raise(&f, &[csn(2, 1), csn(3, 5), csn(4, 20)]);
    f
}

/// The entry as a provider sends it that keeps no states, and had come so far before.
fn sent(f: &Memory, entry: ReplicatedChange, had: &[Csn]) -> String {
    let provider_had = Some(had.iter().copied().collect());
    let rules = ReplicaRules { drop_covered: false, provider_had, ..ReplicaRules::default() };
    let outcome = batch(f, ReplicatedBatch { changes: vec![entry], context_csns: Vec::new(), rules });
    word(&outcome.changes[0])
}

#[test]
fn what_a_provider_without_states_has_otherwise_is_settled() {
    // How far it had come of 3 and 4; what it sends (entryCSN, description, serial number); what there is then, and whether
    // that is a change of ours.
    for (case, had, (csn_sent, description, serial), expected, is_own) in [
        ("the same", (5, 20), (csn(4, 20), "p", "ours"), ("p", "ours"), false),
        ("an older value that came late there", (10, 20), (csn(4, 20), "q", "ours"), ("q", "ours"), true),
        ("a newer one that is under way here", (30, 20), (csn(4, 20), "p", "other"), ("p", "other"), true),
        ("ours is not known there", (10, 15), (csn(2, 1), "p", "first"), ("p", "ours"), false),
        ("it has lost ours", (5, 20), (csn(2, 1), "p", "first"), ("p", "ours"), true),
        ("it has lost ours, and all else is older", (10, 20), (csn(2, 1), "p", "first"), ("p", "ours"), true),
        ("its entryCSN alone went back", (5, 20), (csn(2, 1), "p", "ours"), ("p", "ours"), true),
        ("both", (10, 20), (csn(3, 10), "q", "first"), ("q", "ours"), true),
        (
            "ours is not known there, a later change of it is",
            (30, 15),
            (csn(3, 30), "q", "first"),
            ("q", "ours"),
            true,
        ),
        ("the same, but it has ours all the same", (30, 15), (csn(3, 30), "q", "ours"), ("q", "ours"), false),
    ] {
        let f = caught_up_member(1);
        let had = [csn(2, 1), csn(3, had.0), csn(4, had.1)];
        let entry = put(1, A, csn_sent, &[("description", description), (SERIAL, serial)]);
        sent(&f, entry.clone(), &had);
        let (_, content) = content(&f);
        let shown = (content["description"].join(" "), content[SERIAL].join(" "));
        assert_eq!((shown.0.as_str(), shown.1.as_str()), expected, "{case}");
        let csn: Csn = content["entryCSN"][0].parse().unwrap();
        assert_eq!(csn.server_id == 1, is_own, "{case}");
        find_nothing(&f);
        // A provider that keeps states, or that is judged by its cookie, says what it means.
        let g = caught_up_member(1);
        apply(&g, [entry]);
        let csn: Csn = g.value(A, "entryCSN").unwrap().parse().unwrap();
        assert_ne!(csn.server_id, 1, "{case}");
    }
}

/// The server's own changes of this entry, as other servers receive them.
fn own_records(f: &Memory) -> Vec<ReplicatedChange> {
    let snapshot = f.database().store().snapshot().unwrap();
    let server_id = f.database().server_id();
    let mut all = Vec::new();
    log::visit_stored_after(&snapshot, LogKey { server_id, sequence: 0 }, &mut |_, found, _| {
        if found.entry_uuid == uuid(1) && found.csn.server_id == server_id {
            assert_eq!(found.form, RecordForm::AsDone);
            all.push(record(A, found.csn, found.change, None));
        }
        true
    })
    .unwrap();
    all
}

#[test]
fn who_settles_it_and_who_hears_of_the_changes_end_alike() {
    let late = set(csn(3, 10), "description", "q");
    let other = set(csn(5, 15), "description", "r");
    let had = [csn(2, 1), csn(3, 10), csn(4, 20)];
    let entry = || put(1, A, csn(4, 20), &[("description", "q"), (SERIAL, "ours")]);
    // Two settle it at once, one has heard of the change itself, and one of another that nobody else has heard of.
    let all = || {
        let (f, g, h, i) =
            (caught_up_member(1), caught_up_member(6), caught_up_member(7), caught_up_member(8));
        assert_eq!(sent(&f, entry(), &had), "modify theirs");
        assert_eq!(sent(&g, entry(), &had), "modify theirs");
        apply(&h, [late.clone()]);
        apply(&i, [other.clone()]);
        [f, g, h, i]
    };
    let records = {
        let [f, g, ..] = all();
        [own_records(&f), own_records(&g), vec![late.clone()], vec![other.clone()]].concat()
    };
    assert_eq!(records.len(), 4);
    let mut ends = std::collections::BTreeSet::new();
    for order in orders(records.len()) {
        for member in all() {
            order.iter().for_each(|at| _ = apply(&member, [records[*at].clone()]));
            let (_, content) = content(&member);
            ends.insert((
                content["description"].clone(),
                content[SERIAL].clone(),
                content["entryCSN"].clone(),
            ));
            find_nothing(&member);
        }
    }
    let [end] = Vec::from_iter(ends).try_into().unwrap();
    // What nobody had heard of who decided is not lost.
    assert_eq!((end.0, end.1), (vec!["q".to_owned(), "r".to_owned()], vec!["ours".to_owned()]));
}

#[test]
fn who_follows_one_provider_takes_what_that_one_merged() {
    let version = |description| put(1, A, csn(2, 1), &[("description", description)]);
    for (multi_provider, expected, then) in [(false, "done", "q"), (true, "older", "p")] {
        let f = filled();
        apply(&f, [version("p")]);
        let taken = |change| {
            let rules = ReplicaRules { multi_provider, drop_covered: false, ..ReplicaRules::default() };
            let batch_of = ReplicatedBatch { changes: vec![change], context_csns: vec![csn(2, 1)], rules };
            word(&batch(&f, batch_of).changes[0])
        };
        assert_eq!(taken(version("p")), "older");
        assert_eq!(taken(version("q")), expected, "several: {multi_provider}");
        assert_eq!(f.value(A, "description").as_deref(), Some(then), "several: {multi_provider}");
    }
}

/// A provider that keeps states has its consumer keep them, where they say something: who changed what when, and what was
/// removed.
#[test]
fn states_are_kept_where_a_provider_keeps_them() {
    let check = |settings: &dyn Fn(DatabaseSettings) -> DatabaseSettings, kept: bool, merges: bool| {
        let schema = schema("");
        let f = Fixture::of(Arc::clone(&schema), vec![(memory(), settings(common::settings(&schema)))]);
        let merges_now = || f.database().current_settings().merges_records;
        assert!(!merges_now(), "nobody has said so");
        assert_eq!((f.directory.databases()[0].keep_states().unwrap(), merges_now()), (kept, merges));
    };
    check(&|settings| settings, true, true);
    check(&|settings| DatabaseSettings { shadow: true, ..settings }, true, true);
    check(&|settings| DatabaseSettings { log: false, ..settings }, false, false);
    check(&|settings| DatabaseSettings { last_modified: false, ..settings }, false, false);
    // Kept anyway, and merged by another rule.
    check(&|settings| DatabaseSettings { value_conflicts: true, ..settings }, true, false);
}

/// The tree, with entryUUIDs of its own.
fn seeded(seed: u64, plan: &FaultPlan) -> Fixture<FaultStore<MemoryStore>> {
    let schema = schema("");
    let (clock, random) = (Arc::new(ManualClock::new(common::START)), Arc::new(SeededRandom::new(seed)));
    let store = FaultStore::new(memory(), plan.clone());
    let database = Database::open(store, Arc::clone(&schema), settings(&schema), &*random).unwrap();
    let environment = common::environment(Arc::clone(&clock) as _, random, 1);
    let served = Arc::new(ServedDatabase::start(Arc::new(database), environment.clone()).unwrap());
    let subject = Arc::new(Subject::default().bound_as(schema.parse_dn(common::ROOT).unwrap(), common::ROOT));
    let directory = common::directory(&schema, vec![served]);
    let fixture = Fixture { directory, schema, clock, subject, environments: vec![environment] };
    fixture.apply(TREE);
    fixture
}

/// A shared store that was out of reach may be another one behind that, with other entries under the same ids.
#[test]
fn superiors_of_before_a_break_are_not_those_behind_it() {
    const PEOPLE: &str = "ou=People,dc=example,dc=com";
    let plan = FaultPlan::new();
    plan.break_before(1);
    let (before, behind) = (seeded(7, &FaultPlan::new()), seeded(8, &plan));
    let mut places = EntryPlaces::default();
    let mut seen = Vec::new();
    for f in [&before, &behind, &before] {
        let snapshot = f.database().store().snapshot().unwrap();
        let view = f.database().view(&snapshot).unwrap();
        let people = f.schema.parse_dn(PEOPLE).unwrap();
        let id = view.resolve(&people).unwrap().unwrap().id.unwrap();
        let stored = view.record(id).unwrap().unwrap();
        let place = places.place_of(&view, &view.reader(id, &stored).unwrap()).unwrap().unwrap();
        assert_eq!(Some(place.superior.to_string()), f.value(SUFFIX, "entryUUID"));
        seen.push((id, place.superior));
    }
    assert!(seen[0].0 == seen[1].0 && seen[0].1 != seen[1].1, "one id, two entries: {seen:?}");
}

/// The server that has the CSN of a delete is not sent it by a log: it would keep what a slapd lacks.
#[test]
fn a_delete_that_is_found_by_absence_is_told_under_an_own_csn() {
    let f = member();
    assert_eq!(apply(&f, [put(1, A, csn(3, 5), &[])]), "done");
    let share = Share {
        whole: false,
        subentries: true,
        base: SUFFIX.to_owned(),
        scope: Scope::Subtree,
        filter: None,
        seen: vec![csn(3, 9)],
    };
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    f.directory.databases()[0].delete_absent(&share, &UuidSet::new(), DeleteLimit::default(), done);
    assert_eq!(receiver.recv().unwrap(), DeleteOutcome::Deleted(1));
    assert!(f.entry(A).is_none());
    let snapshot = f.database().store().snapshot().unwrap();
    let mut deletes = Vec::new();
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 0 }, &mut |_, found, _| {
        if found.entry_uuid == uuid(1) && found.change == LoggedChange::Delete {
            deletes.push(found.csn.server_id);
        }
        true
    })
    .unwrap();
    assert_eq!(deletes, [3, 1]);
    find_nothing(&f);
}
