//! Guessing passwords against a real server under a password policy.

use std::io::Read;

use larix_proto::control::{AccountUsability, ControlValue, Unusable};
use larix_proto::{ControlBuf, FilterBuf, Frame, MessageId, Response, Scope, client, frame, oid};
use larix_testkit::{Kind, Server, Site};
use larix_tests::client::{Client, run};
use larix_tests::raw::{Raw, bind};
use larix_tests::scenario::Step;

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const MAX_FAILURE: usize = 5;

fn site() -> Site {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             overlay ppolicy\nppolicy_default cn=policy,{SUFFIX}\n"
        ),
    );
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=policy,{SUFFIX}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: {MAX_FAILURE}\n\n\
         dn: cn=ann,{SUFFIX}\nobjectClass: person\ncn: ann\nsn: a\nuserPassword: right\n\n\
         dn: cn=bob,{SUFFIX}\nobjectClass: person\ncn: bob\nsn: b\nuserPassword: right\n"
    ));
    site
}

fn ask(server: &Server, name: &str, password: &str) -> u32 {
    let mut connection = Raw::connect(server.address).unwrap();
    connection.ask(&bind(1, &format!("cn={name},{SUFFIX}"), password)).unwrap().code
}

#[test]
fn entries_show_the_policy_that_holds_for_them() {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\noverlay ppolicy\n\
             ppolicy_default cn=policy,{SUFFIX}\nppolicy_rules dn.base=cn=rule,{SUFFIX} policy_dn=cn=other,{SUFFIX}\n\
             ppolicy_rules dn.base=cn=none,{SUFFIX} no_policy\n"
        ),
    );
    let person = |name: &str, more: &str| {
        format!("dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: s\n{more}\n\n")
    };
    let password = "userPassword: pw";
    let policies = ["policy", "other", "mine"].map(|name| {
        format!(
            "dn: cn={name},{SUFFIX}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: {name}\n\
             pwdAttribute: userPassword\n\n"
        )
    });
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n{}{}{}{}{}{}",
        policies.concat(),
        person("ann", password),
        person("nobody", "description: has no password"),
        person("rule", password),
        person("none", password),
        person("own", &format!("{password}\npwdPolicySubentry: cn=mine,{SUFFIX}"))
    ));
    let server = site.start().unwrap();
    let mut connection = Client::connect(server.address);
    let mut found = |filter: &str, rest: &str| {
        let request = format!("search {SUFFIX} sub {filter} {rest}\n");
        let answer = connection.run(&Step { request, ..Step::default() });
        let mut all = Vec::new();
        for line in answer.lines() {
            match (line.strip_prefix("-> cn="), line.trim().strip_prefix("pwdPolicySubentry: cn=")) {
                (Some(dn), _) => all.push(dn.split(',').next().unwrap().to_owned()),
                (_, Some(policy)) => {
                    let entry = all.last_mut().unwrap();
                    *entry += &format!(" {}", policy.split(',').next().unwrap());
                }
                _ => {}
            }
        }
        all.sort();
        all
    };
    let mut shown = |rest: &str| found("(sn=s)", rest);
    // By the rules of OpenLDAP 2.7.
    let computed = ["ann policy", "nobody", "none", "own mine", "rule other"];
    assert_eq!(shown("pwdPolicySubentry"), computed);
    assert_eq!(shown("+"), computed);
    let stored = ["ann", "nobody", "none", "own mine", "rule"];
    assert_eq!(shown("pwdPolicySubentry with manageDSAit"), stored);
    assert_eq!(shown("*"), ["ann", "nobody", "none", "own", "rule"]);
    let other = format!("(pwdPolicySubentry=CN=other, {SUFFIX})");
    assert_eq!(found(&other, "1.1"), ["rule"]);
    assert_eq!(found("(&(sn=s)(!(pwdPolicySubentry=*)))", "1.1"), ["nobody", "none"]);
    assert_eq!(found("(pwdPolicySubentry=*)", "1.1 with manageDSAit"), ["own"]);
    let mut compared = |value: &str| {
        let request = format!("compare cn=rule,{SUFFIX} \"pwdPolicySubentry:{value}\"\n");
        connection.run(&Step { request, ..Step::default() }).lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(compared(&format!("cn=other,{SUFFIX}")), "=> 6");
    assert_eq!(compared(&format!("cn=policy,{SUFFIX}")), "=> 5");
}

#[test]
fn a_counted_guess_outlives_the_server() {
    let site = site();
    let server = site.start().unwrap();
    for _ in 1..MAX_FAILURE {
        assert_eq!(ask(&server, "ann", "wrong"), 49);
    }
    server.kill();
    let server = site.start().unwrap();
    // The last one that the policy allows.
    assert_eq!(ask(&server, "ann", "wrong"), 49);
    assert_eq!(ask(&server, "ann", "right"), 49);
    assert_eq!(ask(&server, "bob", "right"), 0);
}

#[test]
fn guesses_on_many_connections_lock_the_account() {
    let site = site();
    let server = site.start().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| assert_eq!(ask(&server, "ann", "wrong"), 49));
        }
    });
    assert_eq!(ask(&server, "ann", "right"), 49);
    // No more were counted than it took.
    let mut admin = Client::connect(server.address);
    assert_eq!(run(&mut admin, &format!("as {ADMIN} secret")), "=> 0\n");
    let counted =
        run(&mut admin, &format!("search cn=ann,{SUFFIX} base (pwdAccountLockedTime=*) pwdFailureTime"));
    assert_eq!(counted.matches("pwdFailureTime: ").count(), MAX_FAILURE, "{counted}");
}

/// A compare of a password, which asks for the policy's word or does not.
fn compare(connection: &mut Raw, password: &str, asks: bool) -> u32 {
    let control = ControlBuf { oid: oid::PASSWORD_POLICY.into(), critical: false, value: None };
    let controls = if asks { vec![control] } else { Vec::new() };
    let mut request = Vec::new();
    let name = format!("cn=ann,{SUFFIX}");
    client::compare(&mut request, MessageId(2), &name, "userPassword", password.as_bytes(), &controls);
    connection.ask(&request).unwrap().code
}

#[test]
fn compares_that_ask_for_the_policy_count() {
    let site = site();
    let server = site.start().unwrap();
    let mut connection = Raw::connect(server.address).unwrap();
    // Nobody else may compare passwords, unless a rule says so.
    assert_eq!(connection.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    for _ in 0..MAX_FAILURE {
        assert_eq!(compare(&mut connection, "wrong", false), 5);
    }
    assert_eq!(compare(&mut connection, "right", true), 6);
    for _ in 0..MAX_FAILURE {
        assert_eq!(compare(&mut connection, "wrong", true), 5);
    }
    // It is locked, for compares that ask and for binds.
    assert_eq!(compare(&mut connection, "right", true), 5);
    assert_eq!(compare(&mut connection, "right", false), 6);
    assert_eq!(ask(&server, "ann", "right"), 49);
}

/// What the account usability control says of an account to the administrator.
fn usability(server: &Server, name: &str) -> AccountUsability {
    let mut connection = Raw::connect(server.address).unwrap();
    assert_eq!(connection.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let control = ControlBuf { oid: oid::ACCOUNT_USABILITY.into(), critical: false, value: None };
    let (base, filter) = (format!("cn={name},{SUFFIX}"), FilterBuf::parse("(cn=*)").unwrap());
    let mut request = Vec::new();
    let search = client::Search::new(&base, Scope::Base, filter.as_filter());
    client::search(&mut request, MessageId(2), &search, &[control]);
    assert!(connection.send(&request));
    let mut input = Vec::new();
    loop {
        if let Ok(Frame::Complete { len }) = frame(&input, 1 << 20) {
            let message = Response::decode_message(&input[..len]).unwrap();
            let control = message.controls.iter().next().expect("a control with the entry");
            assert_eq!(control.oid, oid::ACCOUNT_USABILITY);
            return AccountUsability::decode(control.value).unwrap();
        }
        let mut chunk = [0; 4096];
        let count = connection.socket.read(&mut chunk).unwrap();
        assert!(count > 0, "the connection has ended");
        input.extend_from_slice(&chunk[..count]);
    }
}

/// An account that nobody used for long is no more and no less usable than a bind finds it.
#[test]
fn usability_of_an_idle_account_is_that_of_a_bind() {
    for (last_bind, lockout, is_locked) in
        [("lastbind on\n", "TRUE", true), ("lastbind on\n", "FALSE", false), ("", "TRUE", false)]
    {
        let site = Site::new(
            Kind::Larix,
            &format!(
                "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n{last_bind}\
                 overlay ppolicy\nppolicy_default cn=policy,{SUFFIX}\n"
            ),
        );
        site.load(&format!(
            "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
             dn: cn=policy,{SUFFIX}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
             pwdAttribute: userPassword\npwdLockout: {lockout}\npwdMaxIdle: 1000\npwdGraceAuthNLimit: 2\n\n\
             dn: cn=ann,{SUFFIX}\nobjectClass: person\ncn: ann\nsn: a\nuserPassword: right\n\
             pwdLastSuccess: 20200101000000Z\n"
        ));
        let server = site.start().unwrap();
        let expected = if is_locked {
            AccountUsability::NotAvailable(Unusable {
                inactive: false,
                reset: false,
                expired: true,
                remaining_grace: Some(-1),
                seconds_before_unlock: Some(-1),
            })
        } else {
            AccountUsability::Available { seconds_before_expiration: -1 }
        };
        let what = format!("{last_bind}pwdLockout: {lockout}");
        assert_eq!(usability(&server, "ann"), expected, "{what}");
        assert_eq!(ask(&server, "ann", "right"), if is_locked { 49 } else { 0 }, "{what}");
    }
}

/// Grace logins are of an account whose password has expired and that nothing else closes.
#[test]
fn a_locked_account_has_no_grace_logins() {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             overlay ppolicy\nppolicy_default cn=policy,{SUFFIX}\n"
        ),
    );
    let person = |name: &str, more: &str| {
        format!(
            "dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: s\nuserPassword: right\n\
             pwdChangedTime: 20200101000000Z\n{more}\n"
        )
    };
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=policy,{SUFFIX}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxAge: 1000\npwdGraceAuthNLimit: 2\n\n{}{}",
        person("ann", ""),
        person("bob", "pwdAccountLockedTime: 000001010000Z\n"),
    ));
    let server = site.start().unwrap();
    for (name, inactive, grace, code) in [("ann", false, 2, 0), ("bob", true, -1, 49)] {
        let expected = AccountUsability::NotAvailable(Unusable {
            inactive,
            reset: false,
            expired: true,
            remaining_grace: Some(grace),
            seconds_before_unlock: Some(-1),
        });
        assert_eq!(usability(&server, name), expected, "{name}");
        assert_eq!(ask(&server, name, "right"), code, "{name}");
    }
}
