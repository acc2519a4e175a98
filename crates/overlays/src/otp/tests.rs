//! Logins with codes, under a clock that stands still until it is moved.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::mpsc;

use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::password::one_time::{Algorithm, code};
use larix_engine::time::Clock as _;
use larix_store::memory::MemoryStore;
use zeroize::Zeroizing;

use super::DESCRIPTOR;
use crate::ppolicy;
use crate::testing::{Fixture, SUFFIX, ruled_with};

const SECRET: &[u8] = b"12345678901234567890";
/// The password of every account.
const PASSWORD: &str = "secret";
/// The time step at which the clock of a fixture stands.
const NOW: u64 = 1_767_225_600 / 30;

fn directory(definitions: &str, before: &str, after: &str) -> Fixture<MemoryStore> {
    let policy: (_, _) = (&ppolicy::DESCRIPTOR, "ppolicy_default cn=policy,dc=example,dc=com");
    let mut overlays = vec![(&DESCRIPTOR, "")];
    if before == "ppolicy" {
        overlays.insert(0, policy);
    }
    if after == "ppolicy" {
        overlays.push(policy);
    }
    let fixture = ruled_with(definitions, &overlays, &[]);
    let token = |name: &str, class: &str, more: &str| {
        format!(
            "dn: cn={name},{SUFFIX}\nobjectClass: device\nobjectClass: {class}\ncn: {name}\n\
             oathSecret: 12345678901234567890\n{more}\n\n"
        )
    };
    let user = |name: &str, more: &str| {
        format!(
            "dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: x\nuserPassword: {PASSWORD}\n{more}\n\n"
        )
    };
    let parameters = |name: &str, class: &str, more: &str| {
        format!("dn: cn={name},{SUFFIX}\nobjectClass: device\nobjectClass: {class}\ncn: {name}\n{more}\n\n")
    };
    fixture.apply(
        &[
            format!("dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\n"),
            format!(
                "dn: cn=policy,{SUFFIX}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n\
                 pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 5\n\n"
            ),
            parameters(
                "hotp",
                "oathHOTPParams",
                "oathOTPLength: 6\noathHMACAlgorithm: 1.2.840.113549.2.7\noathHOTPLookAhead: 3",
            ),
            parameters(
                "totp",
                "oathTOTPParams",
                "oathOTPLength: 8\noathHMACAlgorithm: 1.2.840.113549.2.9\noathTOTPTimeStepPeriod: 30\n\
                 oathTOTPTimeStepWindow: 1",
            ),
            parameters(
                "long",
                "oathHOTPParams",
                "oathOTPLength: 9\noathHMACAlgorithm: 1.2.840.113549.2.7\noathHOTPLookAhead: 3",
            ),
            token("counter", "oathHOTPToken", &format!("oathHOTPParams: cn=hotp,{SUFFIX}")),
            token("clock", "oathTOTPToken", &format!("oathTOTPParams: cn=totp,{SUFFIX}")),
            token("unusable", "oathHOTPToken", &format!("oathHOTPParams: cn=long,{SUFFIX}")),
            user("plain", ""),
            user("hal", &format!("objectClass: oathHOTPUser\noathHOTPToken: cn=counter,{SUFFIX}")),
            user("tom", &format!("objectClass: oathTOTPUser\noathTOTPToken: cn=clock,{SUFFIX}")),
            user(
                "both",
                &format!(
                    "objectClass: oathTOTPUser\noathTOTPToken: cn=clock,{SUFFIX}\nobjectClass: oathHOTPUser\n\
                     oathHOTPToken: cn=counter,{SUFFIX}"
                ),
            ),
            user("bare", "objectClass: oathHOTPUser"),
            user("broken", &format!("objectClass: oathHOTPUser\noathHOTPToken: cn=unusable,{SUFFIX}")),
            user("lost", &format!("objectClass: oathHOTPUser\noathHOTPToken: cn=nobody,{SUFFIX}")),
        ]
        .concat(),
    );
    fixture
}

fn plain() -> Fixture<MemoryStore> {
    directory("", "", "")
}

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

/// A bind as the server carries one out, up to its judgement: whether the password is the right one, and the code.
fn attempt(fixture: &Fixture<MemoryStore>, name: &str, sent: &str) -> BindAttempt {
    let dn = fixture.schema.parse_dn(&dn(name)).unwrap();
    let served = &fixture.directory.databases()[0];
    let length = fixture.directory.at(served).code_length(&dn, sent.as_bytes()).unwrap();
    let (password, code) = match length {
        Some(length) => {
            let (password, code) = sent.split_at(sent.len() - length);
            (password, GivenCode::Given(Zeroizing::new(code.as_bytes().to_vec())))
        }
        None => (sent, GivenCode::Missing),
    };
    BindAttempt { dn, matched: password == PASSWORD, policy_control: false, code }
}

fn conclude(fixture: &Fixture<MemoryStore>, attempt: BindAttempt) -> BindConclusion {
    let (sender, receiver) = mpsc::channel();
    fixture.directory.conclude_bind(attempt, Box::new(move |conclusion| sender.send(conclusion).unwrap()));
    receiver.recv().unwrap()
}

/// The code that a bind is answered with.
fn bind(fixture: &Fixture<MemoryStore>, name: &str, sent: &str) -> u32 {
    conclude(fixture, attempt(fixture, name, sent)).result.code.0
}

fn counter(number: u64) -> String {
    format!("{PASSWORD}{}", *code(Algorithm::Sha1, SECRET, number, 6))
}

fn step(number: u64) -> String {
    format!("{PASSWORD}{}", *code(Algorithm::Sha256, SECRET, number, 8))
}

#[test]
fn counters_go_forward() {
    let fixture = plain();
    let last = || fixture.value(&dn("counter"), "oathHOTPCounter");
    for (who, sent, expected, counted) in [
        ("hal", PASSWORD.to_owned(), 49, None),
        ("hal", "x".to_owned(), 49, None),
        // Four codes may come next: this one, and three that are skipped.
        ("hal", counter(4), 49, None),
        ("hal", counter(0), 0, Some("0")),
        ("hal", counter(0), 49, Some("0")),
        ("hal", counter(4), 0, Some("4")),
        ("hal", counter(3), 49, Some("4")),
        // A code is used up with a wrong password, too.
        ("hal", counter(5).replace(PASSWORD, "other"), 49, Some("5")),
        ("hal", counter(5), 49, Some("5")),
        // A code alone is no password.
        ("hal", counter(6).replace(PASSWORD, ""), 49, Some("5")),
        // Somebody else with the same token.
        ("both", counter(6), 0, Some("6")),
        ("hal", counter(6), 49, Some("6")),
        ("plain", PASSWORD.to_owned(), 0, Some("6")),
        ("plain", counter(7), 49, Some("6")),
    ] {
        assert_eq!(bind(&fixture, who, &sent), expected, "{who} {sent}");
        assert_eq!(last().as_deref(), counted, "{who} {sent}");
    }
}

#[test]
fn a_token_that_is_not_whole_lets_nobody_in() {
    let fixture = plain();
    for who in ["bare", "broken", "lost"] {
        for sent in [PASSWORD.to_owned(), counter(0), format!("{PASSWORD}0")] {
            assert_eq!(bind(&fixture, who, &sent), 49, "{who} {sent}");
        }
    }
    for change in [
        "replace: oathHOTPCounter\noathHOTPCounter: 99999999999999999999",
        "replace: oathHOTPCounter\noathHOTPCounter: 9223372036854775807",
        "delete: oathSecret",
    ] {
        let fixture = plain();
        fixture.apply(&format!("dn: {}\nchangetype: modify\n{change}\n", dn("counter")));
        assert_eq!(bind(&fixture, "hal", &counter(0)), 49, "{change}");
    }
}

#[test]
fn time_steps_go_forward_and_the_drift_is_followed() {
    let fixture = plain();
    let told = || {
        ["oathTOTPLastTimeStep", "oathTOTPTimeStepDrift"]
            .map(|name| fixture.value(&dn("clock"), name).unwrap_or_default())
            .join(" ")
    };
    let wait = |steps: u32| fixture.clock.advance_micros(steps * 30_000_000);
    assert_eq!(fixture.clock.now().seconds(), 1_767_225_600);
    assert_eq!(bind(&fixture, "tom", &step(NOW + 2)), 49);
    assert_eq!(bind(&fixture, "tom", &step(NOW - 2)), 49);
    assert_eq!((bind(&fixture, "tom", &step(NOW)), told()), (0, format!("{NOW} 0")));
    assert_eq!(bind(&fixture, "tom", &step(NOW)), 49, "once");
    assert_eq!(bind(&fixture, "tom", &step(NOW - 1)), 49, "none before it");
    wait(10);
    // A token whose clock is ahead is followed, beyond the window in the end.
    for (passed, ahead) in [(10, 1), (20, 2), (30, 3)] {
        let expected = (0, format!("{} {ahead}", NOW + passed + ahead));
        assert_eq!((bind(&fixture, "tom", &step(NOW + passed + ahead)), told()), expected);
        wait(10);
    }
    assert_eq!(bind(&fixture, "tom", &step(NOW + 40)), 49, "outside of the window");
    // Either token will do.
    assert_eq!(bind(&fixture, "both", &step(NOW + 42)), 0);
    assert_eq!(bind(&fixture, "both", &counter(1)), 0);
}

#[test]
fn one_code_lets_one_of_many_in() {
    let fixture = plain();
    let (sender, receiver) = mpsc::channel();
    // All of them were compared before the first was judged.
    let attempts: Vec<_> = (0..64).map(|_| attempt(&fixture, "hal", &counter(0))).collect();
    for attempt in attempts {
        let sender = sender.clone();
        let done = move |conclusion: BindConclusion| sender.send(conclusion.result.is_success()).unwrap();
        fixture.directory.conclude_bind(attempt, Box::new(done));
    }
    drop(sender);
    assert_eq!(receiver.iter().filter(|succeeded| *succeeded).count(), 1);
}

#[test]
fn a_wrong_code_counts_as_a_failure_wherever_ppolicy_stands() {
    let definitions = larix_schema::bundled("dyngroup").unwrap();
    for (before, after) in [("ppolicy", ""), ("", "ppolicy")] {
        let fixture = directory(definitions, before, after);
        let failures = || {
            let entry = fixture.entry(&dn("hal")).unwrap();
            entry.values(fixture.schema.attribute_type("pwdFailureTime").unwrap().id).len()
        };
        let wrong = format!("{PASSWORD}000000");
        for (sent, expected, counted) in [
            (&wrong, 49, 1),
            (&counter(0), 0, 0),
            (&counter(0), 49, 1),
            (&wrong, 49, 2),
            (&counter(1).replace(PASSWORD, "other"), 49, 3),
            (&PASSWORD.to_owned(), 49, 4),
            (&wrong, 49, 5),
            // Locked now.
            (&counter(2), 49, 5),
        ] {
            assert_eq!(bind(&fixture, "hal", sent), expected, "{before} {after} {sent}");
            assert_eq!(failures(), counted, "{before} {after} {sent}");
        }
        assert!(fixture.value(&dn("hal"), "pwdAccountLockedTime").is_some());
    }
}

#[test]
fn a_compare_with_a_token_uses_a_code_up() {
    let fixture = plain();
    let code_of = |number| code(Algorithm::Sha1, SECRET, number, 6).to_string();
    for (token, given, expected) in [
        ("counter", code_of(1), true),
        ("counter", code_of(1), false),
        ("counter", code_of(0), false),
        ("counter", "12345678901234567890".to_owned(), false),
        ("clock", code(Algorithm::Sha256, SECRET, NOW, 8).to_string(), true),
        ("unusable", code_of(0), false),
        ("hal", code_of(2), false),
    ] {
        assert_eq!(compare(&fixture, token, &given), expected, "{token} {given}");
    }
    assert_eq!(bind(&fixture, "hal", &counter(1)), 49, "a login does not get by with it either");
    assert_eq!(bind(&fixture, "hal", &counter(2)), 0);
    let served = &fixture.directory.databases()[0];
    for (entry, attribute, expected) in [
        ("counter", "oathSecret", true),
        ("counter", "1.3.6.1.4.1.5427.1.389.4226.4.1", true),
        ("counter", "oathHOTPCounter", false),
        ("hal", "oathSecret", false),
        ("nobody", "oathSecret", false),
        ("counter", "nosuch", false),
    ] {
        let dn = fixture.schema.parse_dn(&dn(entry)).unwrap();
        assert_eq!(
            fixture.directory.at(served).compares_code(&dn, attribute),
            expected,
            "{entry} {attribute}"
        );
    }
}

/// Whether a compare of a token's secret with codes is true.
fn compare(fixture: &Fixture<MemoryStore>, token: &str, codes: &str) -> bool {
    let dn = fixture.schema.parse_dn(&dn(token)).unwrap();
    let code = GivenCode::Compared(Zeroizing::new(codes.as_bytes().to_vec()));
    conclude(fixture, BindAttempt { dn, matched: true, policy_control: false, code }).result.is_success()
}

#[test]
fn two_codes_in_a_row_bring_a_token_back_in_step() {
    let fixture = plain();
    let counted = |number| code(Algorithm::Sha1, SECRET, number, 6).to_string();
    let timed = |number| code(Algorithm::Sha256, SECRET, number, 8).to_string();
    let state = || {
        [
            ("counter", "oathHOTPCounter"),
            ("clock", "oathTOTPLastTimeStep"),
            ("clock", "oathTOTPTimeStepDrift"),
        ]
        .map(|(entry, name)| fixture.value(&dn(entry), name).unwrap_or_default())
        .join(" ")
    };
    assert_eq!(bind(&fixture, "hal", &counter(500)), 49, "the button was pressed too often");
    let late = NOW - 60;
    for (token, codes, expected, after) in [
        ("counter", counted(500) + &counted(502), false, "  ".to_owned()),
        ("counter", counted(501) + &counted(500), false, "  ".to_owned()),
        ("counter", counted(500) + &counted(501), true, "501  ".to_owned()),
        ("counter", counted(500) + &counted(501), false, "501  ".to_owned()),
        // The code that was used last is the first of no pair.
        ("counter", counted(501) + &counted(502), false, "501  ".to_owned()),
        ("counter", counted(501 + 1001) + &counted(501 + 1002), false, "501  ".to_owned()),
        ("counter", counted(501 + 1000) + &counted(501 + 1001), true, "1502  ".to_owned()),
        ("clock", timed(late) + &timed(late + 2), false, "1502  ".to_owned()),
        ("clock", timed(late) + &timed(late + 1), true, format!("1502 {} -59", late + 1)),
        ("clock", timed(late) + &timed(late + 1), false, format!("1502 {} -59", late + 1)),
        ("clock", timed(NOW + 101) + &timed(NOW + 102), false, format!("1502 {} -59", late + 1)),
        ("clock", timed(NOW) + &timed(NOW + 1), true, format!("1502 {} 1", NOW + 1)),
    ] {
        assert_eq!(compare(&fixture, token, &codes), expected, "{token} {codes}");
        assert_eq!(state(), after, "{token} {codes}");
    }
    assert_eq!(bind(&fixture, "hal", &counter(1503)), 0);
    // No login takes two.
    assert_eq!(bind(&fixture, "hal", &(counter(1504) + &counted(1505))), 49);
}

#[test]
fn what_is_no_login_needs_no_code_and_a_mechanism_without_one_does_not_get_by() {
    let fixture = plain();
    let attempt = |code| BindAttempt {
        dn: fixture.schema.parse_dn(&dn("hal")).unwrap(),
        matched: true,
        policy_control: false,
        code,
    };
    assert!(conclude(&fixture, attempt(GivenCode::NotAsked)).result.is_success());
    assert_eq!(conclude(&fixture, attempt(GivenCode::Missing)).result.code.0, 49);
}
