//! Logins with codes as passwords, under a clock that stands still until it is moved.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::mpsc;

use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::password::one_time::{Algorithm, code};
use larix_store::memory::MemoryStore;
use zeroize::Zeroizing;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, ruled_with};
use crate::{otp, ppolicy};

const SECRET: &[u8] = b"12345678901234567890";
const STORED: &str = "{TOTP1}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
const OTHER: &str = "{TOTP256ANDPW}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ|secret";
/// The time step at which the clock of a fixture stands.
const NOW: u64 = 1_767_225_600 / 30;

fn directory(overlays: &[(&'static larix_engine::overlay::Descriptor, &str)]) -> Fixture<MemoryStore> {
    let fixture = ruled_with(larix_schema::bundled("dyngroup").unwrap(), overlays, &[]);
    let user = |name: &str, password: &str| {
        format!("dn: {}\nobjectClass: person\ncn: {name}\nsn: x\nuserPassword: {password}\n\n", dn(name))
    };
    fixture.apply(
        &[
            format!("dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\n"),
            user("ann", STORED),
            user("ben", "plain"),
        ]
        .concat(),
    );
    fixture
}

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

fn attempt(fixture: &Fixture<MemoryStore>, name: &str, code: GivenCode) -> BindAttempt {
    let dn = fixture.schema.parse_dn(&dn(name)).unwrap();
    BindAttempt { dn, matched: true, policy_control: false, code }
}

fn coded(stored: &[&str], step: u64) -> GivenCode {
    let code = code(Algorithm::Sha1, SECRET, step, 6).as_bytes().to_vec();
    let stored = stored.iter().map(|stored| Zeroizing::new(stored.as_bytes().to_vec())).collect();
    GivenCode::OfPasswords { stored, code: Zeroizing::new(code) }
}

fn bind(fixture: &Fixture<MemoryStore>, attempt: BindAttempt) -> bool {
    let (sender, receiver) = mpsc::channel();
    let done = move |conclusion: BindConclusion| sender.send(conclusion.result.is_success()).unwrap();
    fixture.directory.conclude_bind(attempt, Box::new(done));
    receiver.recv().unwrap()
}

#[test]
fn a_code_is_good_once_and_for_two_steps() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    let last = || fixture.value(&dn("ann"), "authTimestamp");
    let login = |step| bind(&fixture, attempt(&fixture, "ann", coded(&[STORED], step)));
    let wait = |seconds: u32| fixture.clock.advance_micros(seconds * 1_000_000);
    for wrong in [NOW - 2, NOW + 1] {
        assert!(!login(wrong));
    }
    assert_eq!(last(), None);
    // Of the step before, and then nothing else in this one.
    assert!(login(NOW - 1));
    assert_eq!(last().as_deref(), Some("20260101000000Z"));
    assert!(!login(NOW - 1) && !login(NOW));
    wait(29);
    assert!(!login(NOW));
    wait(1);
    assert!(!login(NOW), "the step in which the last one was used");
    assert!(login(NOW + 1) && !login(NOW + 1));
    assert_eq!(last().as_deref(), Some("20260101000030Z"));
    wait(60);
    assert!(login(NOW + 2), "late");
}

#[test]
fn one_code_lets_one_of_many_in() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    let (sender, receiver) = mpsc::channel();
    for _ in 0..64 {
        let sender = sender.clone();
        let done = move |conclusion: BindConclusion| sender.send(conclusion.result.is_success()).unwrap();
        fixture.directory.conclude_bind(attempt(&fixture, "ann", coded(&[STORED], NOW)), Box::new(done));
    }
    drop(sender);
    assert_eq!(receiver.iter().filter(|succeeded| *succeeded).count(), 1);
}

#[test]
fn a_code_is_judged_by_the_values_that_the_account_still_has() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    fixture
        .apply(&format!("dn: {}\nchangetype: modify\nadd: userPassword\nuserPassword: {OTHER}\n", dn("ben")));
    assert!(!bind(&fixture, attempt(&fixture, "ben", coded(&[STORED], NOW))), "not ben's");
    assert!(!bind(&fixture, attempt(&fixture, "ben", coded(&[OTHER], NOW))), "another hash");
    assert!(!bind(&fixture, attempt(&fixture, "nobody", coded(&[STORED], NOW))));
    assert!(!bind(&fixture, attempt(&fixture, "ben", coded(&["plain"], NOW))));
    assert_eq!(fixture.value(&dn("ben"), "authTimestamp"), None);
    // A login with a password of another scheme is kept, as pw-totp keeps it.
    assert!(bind(&fixture, attempt(&fixture, "ben", GivenCode::Missing)));
    assert!(fixture.value(&dn("ben"), "authTimestamp").is_some());
    fixture.apply(&format!(
        "dn: {}\nchangetype: modify\nreplace: userPassword\nuserPassword: {STORED}\n",
        dn("ben")
    ));
    assert!(
        !bind(&fixture, attempt(&fixture, "ben", coded(&[STORED], NOW))),
        "in the step of the last login"
    );
    fixture.clock.advance_micros(30_000_000);
    assert!(bind(&fixture, attempt(&fixture, "ben", coded(&[OTHER, STORED], NOW + 1))));
}

#[test]
fn without_the_overlay_such_a_value_lets_nobody_in() {
    for overlays in [&[][..], &[(&otp::DESCRIPTOR, "")], &[(&ppolicy::DESCRIPTOR, "")]] {
        let fixture = directory(overlays);
        assert!(!bind(&fixture, attempt(&fixture, "ann", coded(&[STORED], NOW))));
        assert!(bind(&fixture, attempt(&fixture, "ann", GivenCode::Missing)));
    }
}

#[test]
fn a_wrong_code_counts_as_a_failure_wherever_ppolicy_stands() {
    let policy: (_, _) = (&ppolicy::DESCRIPTOR, "ppolicy_default cn=policy,dc=example,dc=com");
    for overlays in [[policy, (&DESCRIPTOR, "")], [(&DESCRIPTOR, ""), policy]] {
        let fixture = directory(&overlays);
        fixture.apply(&format!(
            "dn: cn=policy,{SUFFIX}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n\
             pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 2\n\n"
        ));
        let failures = || {
            let entry = fixture.entry(&dn("ann")).unwrap();
            entry.values(fixture.schema.attribute_type("pwdFailureTime").unwrap().id).len()
        };
        for (step, expected, counted) in
            [(NOW + 3, false, 1), (NOW, true, 0), (NOW, false, 1), (NOW, false, 2)]
        {
            assert_eq!(bind(&fixture, attempt(&fixture, "ann", coded(&[STORED], step))), expected, "{step}");
            assert_eq!(failures(), counted, "{step}");
        }
        fixture.clock.advance_micros(30_000_000);
        assert!(!bind(&fixture, attempt(&fixture, "ann", coded(&[STORED], NOW + 1))), "locked");
    }
}
