//! The time of the last bind, as binds end.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::mpsc;

use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, TREE, directory};

const ANN: &str = "cn=Ann Lee,ou=People,dc=example,dc=com";

fn bind(fixture: &Fixture<MemoryStore>, matched: bool) {
    let dn = fixture.schema.parse_dn(ANN).unwrap();
    let (sender, receiver) = mpsc::channel();
    let attempt = BindAttempt { dn, matched, policy_control: false, code: GivenCode::NotAsked };
    let done = Box::new(move |conclusion: BindConclusion| sender.send(conclusion.result.code.0).unwrap());
    fixture.directory.conclude_bind(attempt, done);
    assert_eq!(receiver.recv().unwrap(), if matched { 0 } else { 49 });
}

#[test]
fn binds_that_succeed_are_remembered() {
    let fixture = directory(&[(&DESCRIPTOR, "lastbind-precision 3600")]);
    fixture.apply(TREE);
    let stamp = || fixture.value(ANN, "authTimestamp");
    let csn = fixture.value(ANN, "entryCSN");
    bind(&fixture, false);
    assert_eq!(stamp(), None);
    bind(&fixture, true);
    let first = stamp();
    assert!(first.is_some());
    // Not before an hour is over.
    fixture.clock.advance_micros(1_000_000_000);
    bind(&fixture, true);
    assert_eq!(stamp(), first);
    fixture.clock.advance_micros(3_000_000_000);
    bind(&fixture, true);
    assert!(stamp() > first);
    assert_eq!(fixture.value(ANN, "pwdLastSuccess"), None);
    // Who may write what is there otherwise is no matter.
    assert_ne!(csn, None);
    let refused = fixture.change(&format!(
        "dn: {ANN}\nchangetype: modify\nadd: authTimestamp\nauthTimestamp: 20260101000000Z\n"
    ));
    assert!(refused.starts_with("19 "), "{refused}");
}
