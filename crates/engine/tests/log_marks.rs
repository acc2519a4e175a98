//! Where in the change log a consumer's news begin.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

mod common;

use common::{Fixture, SUFFIX, TREE, memory, schema, settings};
use larix_engine::csn::Csn;
use larix_engine::log::{CsnVector, LogKey, LogRetention, MARK_EVERY, begin_after, visit_outlines_after};
use larix_engine::time::Timestamp;
use larix_store::Store;
use larix_store::memory::MemoryStore;

const SERVER: u16 = 1;

fn csns(fixture: &Fixture<MemoryStore>) -> Vec<(u64, Csn)> {
    let snapshot = fixture.database().store().snapshot().unwrap();
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
    let kept = csns(&fixture);
    assert!(kept[0].0 > 1);
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
    let database = fixture.database();
    let silent = larix_engine::DatabaseSettings { log: false, ..logged.clone() };
    database.publish_settings(silent).unwrap();
    modify(&fixture, 1);
    assert_eq!(begin(&fixture, &[known]), None);
    database.publish_settings(logged).unwrap();
    modify(&fixture, 3);
    assert_eq!(begin(&fixture, &[known]), None);
    let (_, newest) = *csns(&fixture).last().unwrap();
    assert!(begin(&fixture, &[newest]).is_some());
}
