//! The time of the last bind, as binds end.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::mpsc;

use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion, BuildContext};
use larix_engine::time::Timestamp;
use larix_store::memory::MemoryStore;

use super::{DESCRIPTOR, LastBind, build};
use crate::testing::{Fixture, TREE, copied, directory, settings_of, with_context};

const ANN: &str = "cn=Ann Lee,ou=People,dc=example,dc=com";

/// The code that a bind with the right or a wrong password is answered with.
fn answer(fixture: &Fixture<MemoryStore>, matched: bool) -> u32 {
    let dn = fixture.schema.parse_dn(ANN).unwrap();
    let (sender, receiver) = mpsc::channel();
    let attempt = BindAttempt { dn, matched, policy_control: false, code: GivenCode::NotAsked };
    let done = Box::new(move |conclusion: BindConclusion| sender.send(conclusion.result.code.0).unwrap());
    fixture.directory.conclude_bind(attempt, done);
    receiver.recv().unwrap()
}

fn bind(fixture: &Fixture<MemoryStore>, matched: bool) {
    assert_eq!(answer(fixture, matched), if matched { 0 } else { 49 });
}

#[test]
fn a_precision_below_0_is_none() {
    let fixture = directory(&[(&DESCRIPTOR, "lastbind-precision -1")]);
    fixture.apply(TREE);
    bind(&fixture, true);
    let first = fixture.value(ANN, "authTimestamp");
    fixture.clock.advance_micros(2_000_000);
    bind(&fixture, true);
    assert_ne!(fixture.value(ANN, "authTimestamp"), first);
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

#[test]
fn a_login_that_the_policy_refuses_is_none() {
    let policy = "cn=policy,dc=example,dc=com";
    let lines = format!("ppolicy_default {policy}");
    let (own, other) = ((&DESCRIPTOR, ""), (&crate::ppolicy::DESCRIPTOR, lines.as_str()));
    for overlays in [[own, other], [other, own]] {
        let fixture = directory(&overlays);
        fixture.apply(TREE);
        fixture.apply(&format!(
            "dn: {policy}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\npwdAttribute: userPassword\n\
             pwdLockout: TRUE\npwdMaxFailure: 1\n"
        ));
        fixture.apply(&format!("dn: {ANN}\nchangetype: modify\nadd: userPassword\nuserPassword: secret\n"));
        bind(&fixture, false);
        assert!(fixture.value(ANN, "pwdAccountLockedTime").is_some());
        assert_eq!(answer(&fixture, true), 49);
        assert_eq!(fixture.value(ANN, "authTimestamp"), None, "{overlays:?}");
    }
}

#[test]
fn a_provider_is_asked_whether_its_time_is_within_the_precision() {
    let asserting = LastBind { asserts: true, ..LastBind::of_database(60) };
    let condition = asserting.unless_recent(Timestamp::from_seconds(1_000)).unwrap();
    assert_eq!(condition.to_string(), "(!(pwdLastSuccess>=19700101001540Z))");
    assert_eq!(LastBind::of_database(60).unless_recent(Timestamp::from_seconds(1_000)), None);
}

#[test]
fn a_shadow_that_can_send_nothing_is_noted() {
    let schema = std::sync::Arc::clone(&directory(&[]).schema);
    let notes = |lines: &str, forwards: Option<bool>| {
        with_context(&schema, |context| {
            let context = BuildContext { forwards, ..copied(context) };
            let overlay = build(&settings_of(&DESCRIPTOR, lines), &context).unwrap();
            overlay.notes(&schema).len()
        })
    };
    for (lines, forwards, expected) in [
        ("", Some(false), 0),
        ("lastbind_forward_updates", Some(false), 1),
        ("lastbind_forward_updates", Some(true), 0),
        ("lastbind_forward_updates", None, 0),
    ] {
        assert_eq!(notes(lines, forwards), expected, "{lines} {forwards:?}");
    }
}
