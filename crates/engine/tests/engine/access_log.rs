//! What an access log stands on: old values in the change log, records that are not trimmed before they are read, and
//! recordings, which are one commit with how far they go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use larix_engine::audit::{self, AuditFacts, Request};
use larix_engine::csn::Csn;
use larix_engine::database::{OldValues, ProviderSettings};
use larix_engine::log::{self, LogKey, LogRecord};
use larix_engine::tables::META;
use larix_engine::time::Timestamp;
use larix_engine::write::{NewRecord, Recording};
use larix_engine::{DatabaseSettings, EntryId};
use larix_proto::FilterBuf;
use larix_store::{Snapshot, Store};

use crate::common::{Fixture, SUFFIX, TREE, assert_sound, memory, schema, settings};

const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";
const CSN: &str = "20990101000000.000000Z#000000#005#000000";

fn replace_sn(value: &str) -> String {
    format!("dn: {BO}\nchangetype: modify\nreplace: sn\nsn: {value}\n-\n")
}

fn logged<S: Store>(fixture: &Fixture<S>) -> Vec<LogRecord> {
    let snapshot = fixture.database().store().snapshot().unwrap();
    let mut all = Vec::new();
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 0 }, &mut |_, record, _| {
        all.push(record);
        true
    })
    .unwrap();
    all
}

#[test]
fn old_values_are_logged_where_they_are_asked_for() {
    let schema = schema("");
    let old = OldValues {
        filter: schema.bind_filter(FilterBuf::parse("(objectClass=person)").unwrap().as_filter()),
        attributes: vec![schema.describe("cn").unwrap()],
    };
    let settings = DatabaseSettings { old_values: Some(Arc::new(old)), ..settings(&schema) };
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    let lines = || -> Vec<String> {
        let last = logged(&fixture).pop().unwrap();
        let lines = audit::old_lines(&last.old).into_iter().map(|line| String::from_utf8(line).unwrap());
        let mut lines: Vec<_> =
            lines.filter(|line| line.starts_with("cn: ") || line.starts_with("sn: ")).collect();
        lines.sort();
        lines
    };
    fixture.apply(&replace_sn("x"));
    assert_eq!(lines(), ["cn: Bo", "sn: Bo"]);
    fixture.apply(&format!("dn: {BO}\nchangetype: modify\nadd: description\ndescription: d\n-\n"));
    assert_eq!(lines(), ["cn: Bo"]);
    fixture.apply(&format!("dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 1\n"));
    assert_eq!(lines(), ["cn: Bo"]);
    fixture
        .apply("dn: ou=People,dc=example,dc=com\nchangetype: modify\nadd: description\ndescription: d\n-\n");
    assert!(logged(&fixture).pop().unwrap().old.is_empty(), "not one of those that match");
    fixture.apply("dn: cn=Bob,ou=People,dc=example,dc=com\nchangetype: delete\n");
    assert_eq!(lines(), ["cn: Bob", "sn: x"]);
}

#[test]
fn what_the_follower_has_not_read_is_not_trimmed() {
    let schema = schema("");
    let retention = log::LogRetention { age: Some(10), size: None };
    let fixture = Fixture::of(
        Arc::clone(&schema),
        vec![(memory(), DatabaseSettings { log_retention: retention, ..settings(&schema) })],
    );
    let woken = Arc::new(AtomicU64::new(0));
    let wakes = Arc::clone(&woken);
    let following = fixture.database().following();
    let wake = Arc::new(move || {
        wakes.fetch_add(1, Ordering::Relaxed);
    });
    let reader = following.join(wake, 0, log::Hold::Unbounded);
    let change = |count: u32| {
        for number in 0..count {
            fixture.clock.advance_micros(1_000_000);
            fixture.apply(&replace_sn(&number.to_string()));
        }
        let snapshot = fixture.database().store().snapshot().unwrap();
        log::first_sequence(&snapshot, 1).unwrap()
    };
    fixture.apply(TREE);
    assert_eq!(change(50), 1);
    // Requesters hear first: the last may not be told to the follower yet.
    assert!((54..=55).contains(&following.answered().sequence));
    assert!((54..=55).contains(&woken.load(Ordering::Relaxed)));
    reader.needs_from(20);
    assert_eq!(change(50), 20);
    reader.leave();
    assert!(change(50) > 100);
}

fn record<S: Store>(fixture: &Fixture<S>, recording: Recording) {
    let (done, ended) = mpsc::channel();
    fixture.directory.databases()[0].record(recording, Box::new(move |outcome| done.send(outcome).unwrap()));
    let outcome = ended.recv().unwrap();
    assert!(outcome.result.is_success(), "{}", outcome.result);
}

#[test]
fn a_recording_is_one_commit_with_how_far_it_goes() {
    let fixture = Fixture::new();
    let schema = Arc::clone(&fixture.schema);
    let csn: Csn = CSN.parse().unwrap();
    let start = Timestamp(1_795_229_207_123_456);
    let facts = AuditFacts { start, dn: Some("dc=b".to_owned()), ..AuditFacts::default() };
    let local = audit::of_request(&schema, &Request::Delete, &facts);
    let of_change = NewRecord { csn: Some(csn), ..local.clone() };
    let suffix = schema.parse_dn(SUFFIX).unwrap();
    let new = || Recording::new(suffix.clone(), SUFFIX.to_owned());
    let first = Recording {
        container: Some(audit::container(&schema, SUFFIX, &[csn])),
        // The name of the first is taken when the second comes.
        records: vec![local, of_change],
        context_csns: vec![csn],
        marks: vec![(b"mark".to_vec(), b"1".to_vec())],
        ..new()
    };
    record(&fixture, first);
    let names = ["456", "457"].map(|end| format!("reqStart=20261121024647.123{end}Z,{SUFFIX}"));
    assert!(fixture.value(&names[0], "entryCSN").is_some());
    assert_eq!(fixture.value(&names[1], "entryCSN").as_deref(), Some(CSN));
    assert_eq!(fixture.value(&names[1], "reqStart").as_deref(), Some("20261121024647.123457Z"));
    let snapshot = fixture.database().store().snapshot().unwrap();
    assert_eq!(snapshot.get(META, b"mark").unwrap().as_deref(), Some(b"1".as_slice()));
    assert!(log::context_csns(&snapshot).unwrap().contains(&csn));
    let view = fixture.database().view(&snapshot).unwrap();
    assert_eq!(audit::min_csns(&view).unwrap(), Some(vec![csn]));
    let id = view.resolve(&schema.parse_dn(&names[0]).unwrap()).unwrap().unwrap().id.unwrap();
    // The container and what concerns this server alone are not sent.
    let local: Vec<bool> = logged(&fixture).iter().map(|record| record.local).collect();
    assert_eq!(local, [true, true, false]);

    let later: Csn = CSN.replace("2099", "2100").parse().unwrap();
    // One that is gone already is no reason to fail.
    record(&fixture, Recording { removed: vec![id, EntryId(77)], min_csns: Some(vec![later]), ..new() });
    assert!(fixture.entry(&names[0]).is_none() && fixture.entry(&names[1]).is_some());
    let snapshot = fixture.database().store().snapshot().unwrap();
    let view = fixture.database().view(&snapshot).unwrap();
    assert_eq!(audit::min_csns(&view).unwrap(), Some(vec![later]));
    larix_engine::check::check(&view, &mut |finding| panic!("{finding}")).unwrap();
}

/// Names of records are times, and the last that can be written is that of the year 9999: a record that finds it taken has the time
/// at which it is written.
#[test]
fn records_behind_the_last_time_have_names_too() {
    let fixture = Fixture::new();
    let schema = Arc::clone(&fixture.schema);
    let csn: Csn = "99991231235959.999999Z#ffffff#005#000000".parse().unwrap();
    let facts = AuditFacts { start: csn.time, ..AuditFacts::default() };
    let of_change = NewRecord { csn: Some(csn), ..audit::of_request(&schema, &Request::Delete, &facts) };
    let new = || Recording::new(schema.parse_dn(SUFFIX).unwrap(), SUFFIX.to_owned());
    let container = Some(audit::container(&schema, SUFFIX, &[csn]));
    let records = vec![of_change.clone(), of_change.clone(), of_change];
    record(&fixture, Recording { container, records, ..new() });
    for time in ["99991231235959.999999Z", "20260101000000.000000Z", "20260101000000.000001Z"] {
        let name = format!("reqStart={time},{SUFFIX}");
        assert_eq!(fixture.value(&name, "reqStart").as_deref(), Some(time));
    }
}

/// Where several servers share a store, one that has stood still may come with what another one has recorded since.
#[test]
fn nothing_is_recorded_behind_another_server_that_has_recorded() {
    let fixture = Fixture::new();
    let schema = Arc::clone(&fixture.schema);
    let csn: Csn = CSN.parse().unwrap();
    let facts = AuditFacts { start: Timestamp(1_795_229_207_123_456), ..AuditFacts::default() };
    let record_of =
        |csn| NewRecord { csn: Some(csn), ..audit::of_request(&schema, &Request::Delete, &facts) };
    let row = || b"turn".to_vec();
    let recording = |expected: Option<&[u8]>, turn: &[u8]| Recording {
        container: Some(audit::container(&schema, SUFFIX, &[csn])),
        records: vec![record_of(csn)],
        marks: vec![(row(), turn.to_vec())],
        expected: Some((row(), expected.map(<[u8]>::to_vec))),
        ..Recording::new(schema.parse_dn(SUFFIX).unwrap(), SUFFIX.to_owned())
    };
    let outcome = |recording| {
        let (done, ended) = mpsc::channel();
        let done =
            Box::new(move |outcome: larix_engine::write::WriteOutcome| done.send(outcome.result).unwrap());
        fixture.directory.databases()[0].record(recording, done);
        ended.recv().unwrap()
    };
    let count = || {
        let snapshot = fixture.database().store().snapshot().unwrap();
        let rows = snapshot.get(META, b"turn").unwrap().map(|row| row.into_owned());
        (logged(&fixture).len(), rows)
    };
    assert!(outcome(recording(None, b"1")).is_success());
    assert_eq!(count(), (2, Some(b"1".to_vec())));
    for expected in [None, Some(b"0".as_slice()), Some(b"11")] {
        let refused = outcome(recording(expected, b"2"));
        assert!(refused.diagnostic.contains("another server has recorded meanwhile"), "{refused}");
        assert_eq!(count(), (2, Some(b"1".to_vec())), "{expected:?}");
    }
    assert!(outcome(recording(Some(b"1"), b"2")).is_success());
    assert_eq!(count(), (3, Some(b"2".to_vec())));
}

/// Other servers' changes come in any order: that one is recorded does not say that those before it are.
#[test]
fn a_log_has_come_as_far_as_it_is_told() {
    let (schema, store) = (schema(""), Arc::new(memory()));
    let settings = DatabaseSettings { provider: Some(ProviderSettings::default()), ..settings(&schema) };
    let open = || Fixture::of(Arc::clone(&schema), vec![(Arc::clone(&store), settings.clone())]);
    let csn = |server_id, time| Csn { time: Timestamp(time), count: 0, server_id, modification: 0 };
    let new = || Recording::new(schema.parse_dn(SUFFIX).unwrap(), SUFFIX.to_owned());
    let known = || log::context_csns(&store.snapshot().unwrap()).unwrap();
    // A log in which nothing is recorded yet claims nothing when it is opened again.
    record(&open(), Recording { container: Some(audit::container(&schema, SUFFIX, &[])), ..new() });
    drop(open());
    assert_eq!(known(), []);
    let fixture = open();
    let of_change = |csn: Csn| NewRecord {
        csn: Some(csn),
        ..audit::of_request(
            &schema,
            &Request::Delete,
            &AuditFacts { start: csn.time, ..AuditFacts::default() },
        )
    };
    let others = vec![of_change(csn(9, 20)), of_change(csn(9, 10))];
    record(&fixture, Recording { records: others, context_csns: vec![csn(1, 5)], ..new() });
    assert_eq!(known(), [csn(1, 5)]);
    record(&fixture, Recording { records: vec![of_change(csn(1, 30))], ..new() });
    assert_eq!(known(), [csn(1, 30)]);
    record(&fixture, Recording { context_csns: vec![csn(9, 20)], ..new() });
    assert_eq!(known(), [csn(1, 30), csn(9, 20)]);
    // A retired server does not come back with what was known before.
    record(&fixture, Recording { retired: vec![csn(9, 20)], ..new() });
    record(&fixture, Recording { context_csns: vec![csn(9, 20)], ..new() });
    assert_eq!(known(), [csn(1, 30)]);
    record(&fixture, Recording { context_csns: vec![csn(9, 21)], ..new() });
    assert_eq!(known(), [csn(1, 30), csn(9, 21)]);
}

/// What a log gets that is not sent has the CSN of the time while the log has no other; a change that was made a moment before may be
/// recorded behind it.
#[test]
fn what_is_not_sent_may_have_a_later_csn_than_what_follows() {
    let fixture = Fixture::new();
    let schema = Arc::clone(&fixture.schema);
    let csn = Csn { time: Timestamp(30), count: 0, server_id: 1, modification: 0 };
    let facts = AuditFacts { start: csn.time, ..AuditFacts::default() };
    let of_change = NewRecord { csn: Some(csn), ..audit::of_request(&schema, &Request::Delete, &facts) };
    let new = || Recording::new(schema.parse_dn(SUFFIX).unwrap(), SUFFIX.to_owned());
    record(&fixture, Recording { container: Some(audit::container(&schema, SUFFIX, &[])), ..new() });
    record(&fixture, Recording { records: vec![of_change], ..new() });
    let csns: Vec<Csn> = logged(&fixture).iter().map(|record| record.csn).collect();
    assert!(csns.len() == 2 && csns[1] == csn && csns[0] > csn, "{csns:?}");
    assert_sound(fixture.database(), "an access log");
}

/// The changes of a member that was restored, or is filled anew, come back to it in any order.
#[test]
fn a_log_tells_of_own_changes_that_came_back() {
    let fixture = Fixture::new();
    let schema = Arc::clone(&fixture.schema);
    let csn = |time| Csn { time: Timestamp(time), count: 0, server_id: 1, modification: 0 };
    let of_change = |csn: Csn| {
        let facts = AuditFacts { start: csn.time, ..AuditFacts::default() };
        NewRecord { csn: Some(csn), ..audit::of_request(&schema, &Request::Delete, &facts) }
    };
    let new = || Recording::new(schema.parse_dn(SUFFIX).unwrap(), SUFFIX.to_owned());
    let container = Some(audit::container(&schema, SUFFIX, &[csn(60)]));
    record(&fixture, Recording { container, records: vec![of_change(csn(60)), of_change(csn(30))], ..new() });
    assert_sound(fixture.database(), "an access log");
}
