//! Where in the change log a consumer's news begin.

use std::sync::{Arc, mpsc};

use larix_engine::Database;
use larix_engine::audit::{self, AuditFacts, Request};
use larix_engine::csn::Csn;
use larix_engine::log::{
    self, CsnVector, LogKey, LogRetention, MARK_EVERY, begin_after, visit_outlines_after,
};
use larix_engine::time::Timestamp;
use larix_engine::write::{NewRecord, Recording};
use larix_store::Store;
use larix_store::memory::MemoryStore;

use crate::common::{Fixture, SUFFIX, TREE, memory, schema, settings};

const SERVER: u16 = 1;

fn csns(fixture: &Fixture<MemoryStore>) -> Vec<(u64, Csn)> {
    all_csns(fixture.database())
}

fn all_csns<S: Store>(database: &Database<S>) -> Vec<(u64, Csn)> {
    let snapshot = database.store().snapshot().unwrap();
    let mut found = Vec::new();
    visit_outlines_after(&snapshot, LogKey { server_id: SERVER, sequence: 0 }, &mut |key, outline| {
        found.push((key.sequence, outline.csn));
        true
    })
    .unwrap();
    found
}

fn begin(fixture: &Fixture<MemoryStore>, known: &[Csn]) -> Option<u64> {
    let snapshot = fixture.database().store().snapshot().unwrap();
    begin_after(&snapshot, SERVER, &known.iter().copied().collect::<CsnVector>()).unwrap()
}

fn modify(fixture: &Fixture<MemoryStore>, count: u64) {
    for number in 0..count {
        fixture.apply(&format!(
            "dn: {SUFFIX}\nchangetype: modify\nreplace: description\ndescription: {number}\n"
        ));
    }
}

/// All that the consumer lacks is behind the place, and not much else.
fn check(fixture: &Fixture<MemoryStore>, known: &[Csn]) {
    let vector: CsnVector = known.iter().copied().collect();
    let place = begin(fixture, known).unwrap();
    let lacking = csns(fixture).into_iter().find(|(_, csn)| !vector.covers(csn)).map(|(at, _)| at);
    if let Some(first) = lacking {
        assert!(place < first && first - place <= MARK_EVERY + 1, "{place} for {first}");
    }
}

#[test]
fn a_cookie_leads_to_its_place_in_the_log() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    modify(&fixture, 3 * MARK_EVERY);
    let all = csns(&fixture);
    let foreign = Csn { time: Timestamp(1), count: 0, server_id: 9, modification: 0 };
    for at in [0, 5, 1_020, 1_030, 2_050, all.len() - 1] {
        check(&fixture, &[all[at].1]);
        // What another server did does not matter here.
        check(&fixture, &[all[at].1, foreign]);
    }
    // Who knows nothing begins at the beginning, as long as it is there.
    assert_eq!(begin(&fixture, &[]), Some(0));
    assert_eq!(begin(&fixture, &[foreign]), Some(0));
}

#[test]
fn what_the_log_does_not_have_is_not_proved() {
    let schema = schema("");
    let retention = LogRetention { age: None, size: Some(40_000) };
    let settings = larix_engine::DatabaseSettings { log_retention: retention, ..settings(&schema) };
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    let early = csns(&fixture).last().unwrap().1;
    modify(&fixture, 3 * MARK_EVERY);
    let csns = csns(&fixture);
    assert!(csns[0].0 > 1);
    assert_eq!(begin(&fixture, &[early]), None);
    assert_eq!(begin(&fixture, &[]), None);
}

#[test]
fn changes_that_are_not_logged_end_what_marks_prove() {
    let schema = schema("");
    let logged = settings(&schema);
    let fixture = Fixture::of(schema, vec![(memory(), logged.clone())]);
    fixture.apply(TREE);
    let known = csns(&fixture).last().unwrap().1;
    assert!(begin(&fixture, &[known]).is_some());
    let silent = larix_engine::DatabaseSettings { log: false, ..logged.clone() };
    fixture.reconfigure(silent);
    modify(&fixture, 1);
    assert_eq!(begin(&fixture, &[known]), None);
    fixture.reconfigure(logged);
    modify(&fixture, 3);
    assert_eq!(begin(&fixture, &[known]), None);
    let (_, newest) = *csns(&fixture).last().unwrap();
    assert!(begin(&fixture, &[newest]).is_some());
}

/// Sequences go on under the next server ID, and the log is read by one ID: what was logged under another one in between must
/// not be passed over.
#[test]
fn marks_do_not_lead_past_what_was_logged_under_another_server_id() {
    let mut fixture = Fixture::new();
    let context_csns = |fixture: &Fixture<MemoryStore>| {
        log::context_csns(&fixture.database().store().snapshot().unwrap()).unwrap()
    };
    fixture.apply(TREE);
    assert!(begin(&fixture, &context_csns(&fixture)).is_some());
    fixture.change_server_id(2);
    modify(&fixture, 1);
    let known = context_csns(&fixture);
    assert_eq!(known.len(), 2);
    // The consumer that knows so much lacks this change.
    modify(&fixture, 1);
    fixture.change_server_id(SERVER);
    assert_eq!(begin(&fixture, &known), None);
    let all = context_csns(&fixture);
    modify(&fixture, 1);
    assert_eq!(begin(&fixture, &known), None);
    // Who knows all that the server did under the other ID lacks what came behind that, and no more.
    let (last, _) = *csns(&fixture).last().unwrap();
    assert_eq!(begin(&fixture, &all), Some(last - 1));
}

/// Records of an access log that tell of no change, and its first entry, are nobody's news.
#[test]
fn what_a_server_does_by_itself_is_in_no_mark() {
    let (schema, store) = (schema(""), Arc::new(memory()));
    let settings = settings(&schema);
    let open = || Fixture::of(Arc::clone(&schema), vec![(Arc::clone(&store), settings.clone())]);
    let of_operation = audit::of_request(&schema, &Request::Unbind, &AuditFacts::default());
    let of_change = |time: u64| {
        let csn = Csn { time: Timestamp(time as i64), count: 0, server_id: 9, modification: 0 };
        NewRecord { csn: Some(csn), ..of_operation.clone() }
    };
    let record = |fixture: &Fixture<Arc<MemoryStore>>, records: Vec<NewRecord>| {
        let new = Recording::new(schema.parse_dn(SUFFIX).unwrap(), SUFFIX.to_owned());
        let container = Some(audit::container(&schema, SUFFIX, &[]));
        let (done, ended) = mpsc::channel();
        let recording = Recording { container, records, ..new };
        fixture.directory.databases()[0]
            .record(recording, Box::new(move |outcome| done.send(outcome).unwrap()));
        assert!(ended.recv().unwrap().result.is_success());
    };
    // Who knows all that the other server did, and nothing of this one, lacks nothing up to the newest mark.
    let leads_to_the_end = |round: u64| {
        let fixture = open();
        record(&fixture, vec![of_operation.clone()]);
        let times = (round * MARK_EVERY + 1)..=((round + 1) * MARK_EVERY);
        record(&fixture, times.map(of_change).collect());
        let (end, newest) = *all_csns(fixture.database()).last().unwrap();
        let snapshot = fixture.database().store().snapshot().unwrap();
        assert_eq!(begin_after(&snapshot, SERVER, &[newest].into_iter().collect()).unwrap(), Some(end));
    };
    leads_to_the_end(0);
    // A writer that begins reads what stands behind the last mark.
    record(&open(), vec![of_operation.clone()]);
    leads_to_the_end(1);
}
