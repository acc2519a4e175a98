//! The password policy under a clock that stands still until it is moved.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;
use std::sync::mpsc;

use larix_engine::DatabaseSettings;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::csn::Csn;
use larix_engine::database::Suffix;
use larix_engine::log::{LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion, PasswordWork, Purpose};
use larix_engine::password::{Hasher, Scheme};
use larix_engine::replica::{AttributeShare, ReplicaRules, ReplicatedBatch, ReplicatedChange};
use larix_engine::time::{Clock as _, Timestamp};
use larix_engine::write::{AttributeValues, Origin, WriteRequest};
use larix_proto::control::{ControlValue, PasswordError as Error, PasswordPolicyResponse, PasswordWarning};
use larix_proto::oid;
use larix_store::Store;
use larix_store::memory::MemoryStore;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::lists::{Breached, Words};
use super::{PasswordPolicy, PasswordPolicySettings, PolicyRule};
use crate::lastbind::LastBind;
use crate::testing::{
    self as common, Fixture, ROOT, SUFFIX, describe, memory, operation, records, schema, settings,
};

const USER: &str = "cn=user,dc=example,dc=com";
const POLICY: &str = "cn=policy,dc=example,dc=com";

/// A directory with one user, whose password is `right`, under the policy that these lines make.
fn fixture_of(lines: &str, change: impl FnOnce(&mut PasswordPolicySettings)) -> Fixture<MemoryStore> {
    let schema = schema("");
    let mut settings = settings(&schema);
    let mut policy = PasswordPolicySettings {
        default_policy: Some(schema.parse_dn(POLICY).unwrap()),
        use_lockout: true,
        hasher: Hasher::new(Scheme::SSHA),
        last_bind: true,
        ..PasswordPolicySettings::default()
    };
    change(&mut policy);
    settings.overlays.push(Arc::new(PasswordPolicy::new(policy)));
    settings.overlays.push(Arc::new(LastBind::of_database(0)));
    settings.policy = Some(common::policy(&schema, &["to * by self write by * read"]));
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(&format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\n\
         dn: {POLICY}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\n{lines}\n\n\
         dn: {USER}\nobjectClass: person\ncn: user\nsn: u\nuserPassword: right\n"
    ));
    fixture
}

fn fixture(lines: &str) -> Fixture<MemoryStore> {
    fixture_of(lines, |_| {})
}

fn conclude(fixture: &Fixture<MemoryStore>, matched: bool) -> BindConclusion {
    let dn = fixture.schema.parse_dn(USER).unwrap();
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |conclusion| sender.send(conclusion).unwrap());
    fixture
        .directory
        .conclude_bind(BindAttempt { dn, matched, policy_control: true, code: GivenCode::NotAsked }, done);
    receiver.recv().unwrap()
}

/// What a bind with the right or a wrong password is answered: code, warning, error.
fn bind(fixture: &Fixture<MemoryStore>, matched: bool) -> String {
    let BindConclusion { result, controls, must_change_password, .. } = conclude(fixture, matched);
    let mut text = result.code.0.to_string();
    for control in controls {
        assert_eq!(control.oid, oid::PASSWORD_POLICY);
        let said = PasswordPolicyResponse::decode(control.value.as_deref()).unwrap();
        match said.warning {
            Some(PasswordWarning::TimeBeforeExpiration(left)) => text += &format!(" expires={left}"),
            Some(PasswordWarning::GraceLoginsRemaining(left)) => text += &format!(" grace={left}"),
            None => {}
        }
        if let Some(error) = said.error {
            text += &format!(" {error:?}");
        }
    }
    if must_change_password { text + " must change" } else { text }
}

fn wait(fixture: &Fixture<MemoryStore>, seconds: u64) {
    (0..seconds).for_each(|_| fixture.clock.advance_micros(1_000_000));
}

/// A history: `wait N`, `right` or `wrong` and the expected answer, and how many values an attribute has.
fn check(lines: &str, history: &[(&str, &str)]) {
    let fixture = fixture(lines);
    for (number, (step, expected)) in history.iter().enumerate() {
        let answer = match step.split_once(' ') {
            Some(("wait", seconds)) => {
                wait(&fixture, seconds.parse().unwrap());
                String::new()
            }
            Some(("count", name)) => values(&fixture, name).len().to_string(),
            Some(("change", ldif)) => fixture.change(&format!("dn: {USER}\nchangetype: modify\n{ldif}\n")),
            _ => bind(&fixture, *step == "right"),
        };
        assert_eq!(answer, *expected, "step {number} of {lines:?}: {step}");
    }
}

fn values(fixture: &Fixture<MemoryStore>, name: &str) -> Vec<String> {
    let entry = fixture.entry(USER).unwrap();
    let id = fixture.schema.attribute_type(name).unwrap().id;
    entry.values(id).iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

#[test]
fn failures_count_however_many_are_recorded() {
    let fixture = fixture("pwdLockout: TRUE\npwdMaxFailure: 300");
    for number in 0..300 {
        assert_eq!(bind(&fixture, false), "49", "{number}");
    }
    assert_eq!(bind(&fixture, true), "49 AccountLocked");
}

/// A provider's next change, a second later.
fn next_csn(fixture: &Fixture<MemoryStore>) -> Csn {
    wait(fixture, 1);
    Csn { time: fixture.clock.now(), count: 0, server_id: 2, modification: 0 }
}

/// The user as a provider has it.
fn put(fixture: &Fixture<MemoryStore>, password: &str, more: &[(&str, &str)]) -> ReplicatedChange {
    let csn = next_csn(fixture).to_string();
    let entry_uuid = Uuid::try_parse(&fixture.value(USER, "entryUUID").unwrap()).unwrap();
    let attributes = [
        ("objectClass", "person"),
        ("cn", "user"),
        ("sn", "u"),
        ("description", "other"),
        ("userPassword", password),
        ("entryCSN", csn.as_str()),
    ];
    let attributes = attributes.iter().chain(more).map(|(description, value)| AttributeValues {
        description: (*description).to_owned(),
        values: vec![value.as_bytes().to_vec()],
    });
    let (dn, attributes) = (USER.to_owned(), attributes.collect());
    ReplicatedChange::Put { entry_uuid, dn, attributes, state: None, place: None }
}

/// What a provider sends of the user: a record of its access log that replaces an attribute, or all of the entry but what the shadow
/// counts by itself.
fn receive(fixture: &Fixture<MemoryStore>, name: &str, value: &str, whole: bool) {
    let replicated = if whole {
        put(fixture, if name == "userPassword" { value } else { "right" }, &[])
    } else {
        let csn = next_csn(fixture);
        let (dn, text) = (USER.to_owned(), csn.to_string());
        let mods = [(name, value), ("entryCSN", &text)].map(|(description, value)| LoggedModification {
            kind: LoggedKind::Replace,
            attribute: LoggedAttribute {
                description: description.to_owned(),
                values: vec![value.as_bytes().to_vec()],
            },
        });
        let change = LoggedChange::Modify(mods.into());
        ReplicatedChange::Delta { entry_uuid: None, dn, csn, change, place: None, whole: false }
    };
    replicate(fixture, replicated, &["pwdFailureTime", "pwdAccountLockedTime"]);
}

/// Stores it, without these attributes (`exattrs`).
fn replicate(fixture: &Fixture<MemoryStore>, replicated: ReplicatedChange, except: &[&str]) {
    let except: Vec<String> = except.iter().map(ToString::to_string).collect();
    let attributes = Arc::new(AttributeShare::new(&fixture.schema, &[], &except));
    let rules = ReplicaRules { multi_provider: false, attributes, ..ReplicaRules::default() };
    let batch = ReplicatedBatch { changes: vec![replicated], rules, ..ReplicatedBatch::default() };
    let (sender, receiver) = mpsc::channel();
    fixture.directory.databases()[0].replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
}

/// The provider knows of neither, so nobody could take them away there.
#[test]
fn a_password_of_the_provider_ends_failures_and_lock_of_a_shadow() {
    let check = |shadow: bool, whole: bool, left: usize, answer: &str| {
        let fixture = fixture("pwdLockout: TRUE\npwdMaxFailure: 2");
        let settings = (*fixture.directory.databases()[0].database().settings()).clone();
        fixture.reconfigure(DatabaseSettings { shadow, ..settings });
        let counted = || ["pwdFailureTime", "pwdAccountLockedTime"].map(|name| values(&fixture, name).len());
        assert_eq!((bind(&fixture, false), bind(&fixture, false)), ("49".to_owned(), "49".to_owned()));
        receive(&fixture, "description", "other", whole);
        assert_eq!(counted(), [2, 1]);
        receive(&fixture, "userPassword", "new", whole);
        assert_eq!(values(&fixture, "userPassword"), ["new"]);
        assert_eq!(
            (counted(), bind(&fixture, true).as_str()),
            ([left * 2, left], answer),
            "{shadow} {whole}"
        );
    };
    for whole in [false, true] {
        check(true, whole, 0, "0");
        // Where other servers take changes, too, they hear of failures, and the one that takes the password ends them.
        check(false, whole, 1, "49 AccountLocked");
    }
}

/// It has set the password, and then locked the account again: the entry comes once, with a lock as it was before.
#[test]
fn a_lock_of_the_provider_outlives_its_new_password() {
    const FOR_GOOD: &str = "000001010000Z";
    let fixture = fixture("pwdLockout: TRUE");
    let settings = (*fixture.directory.databases()[0].database().settings()).clone();
    fixture.reconfigure(DatabaseSettings { shadow: true, ..settings });
    for password in ["right", "new"] {
        let user = put(&fixture, password, &[("pwdAccountLockedTime", FOR_GOOD)]);
        replicate(&fixture, user, &[]);
        assert_eq!(values(&fixture, "pwdAccountLockedTime"), [FOR_GOOD], "{password}");
        assert_eq!(bind(&fixture, true), "49 AccountLocked", "{password}");
    }
}

#[test]
fn a_number_below_zero_is_no_rule() {
    let change = "change replace: userPassword\nuserPassword: other";
    check("pwdInHistory: -1", &[(change, "0"), ("count pwdHistory", "0")]);
    check("pwdMaxFailure: -1\npwdLockout: TRUE", &[("wrong", "49"), ("count pwdFailureTime", "0")]);
}

#[test]
fn wrong_passwords_lock_for_a_while() {
    check(
        "pwdLockout: TRUE\npwdMaxFailure: 3\npwdLockoutDuration: 60\npwdFailureCountInterval: 30",
        &[
            ("wrong", "49"),
            ("wrong", "49"),
            ("right", "0"),
            ("count pwdFailureTime", "0"),
            ("wrong", "49"),
            ("wrong", "49"),
            // Old failures no longer count.
            ("wait 31", ""),
            ("wrong", "49"),
            ("right", "0"),
            ("wrong", "49"),
            ("wrong", "49"),
            ("wrong", "49"),
            ("count pwdFailureTime", "3"),
            ("wrong", "49 AccountLocked"),
            ("right", "49 AccountLocked"),
            ("count pwdFailureTime", "3"),
            ("wait 59", ""),
            ("right", "49 AccountLocked"),
            ("wait 1", ""),
            ("right", "0"),
            ("count pwdAccountLockedTime", "0"),
            // One failure after a lock that is over is one failure.
            ("wrong", "49"),
            ("right", "0"),
        ],
    );
}

/// slapo-ppolicy(5): the failures count until a login, or until their interval is over. That a lock is over ends none.
#[test]
fn failures_before_a_lock_that_is_over_count_on() {
    check(
        "pwdLockout: TRUE\npwdMaxFailure: 2\npwdLockoutDuration: 60",
        &[
            ("wrong", "49"),
            ("wrong", "49"),
            ("wait 60", ""),
            ("wrong", "49"),
            ("right", "49 AccountLocked"),
            ("wait 60", ""),
            ("right", "0"),
            ("wrong", "49"),
            ("right", "0"),
        ],
    );
    // With one failure allowed, each of them locks.
    check(
        "pwdLockout: TRUE\npwdMaxFailure: 1\npwdLockoutDuration: 60",
        &[("wrong", "49"), ("wait 60", ""), ("wrong", "49"), ("right", "49 AccountLocked")],
    );
}

#[test]
fn a_lock_may_last_for_ever_until_somebody_takes_it_away() {
    check(
        "pwdLockout: TRUE\npwdMaxFailure: 1",
        &[
            ("wrong", "49"),
            ("wait 100000", ""),
            ("right", "49 AccountLocked"),
            ("change delete: pwdAccountLockedTime", "0"),
            ("count pwdFailureTime", "0"),
            ("right", "0"),
            ("change replace: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z", "0"),
            ("right", "49 AccountLocked"),
        ],
    );
    // Without pwdLockout failures are written down, and lock nobody.
    check("pwdMaxFailure: 1", &[("wrong", "49"), ("count pwdAccountLockedTime", "1"), ("right", "0")]);
}

#[test]
fn delays_double_up_to_a_limit() {
    check(
        "pwdLockout: TRUE\npwdMinDelay: 2\npwdMaxDelay: 5",
        &[
            ("wrong", "49"),
            ("right", "49 AccountLocked"),
            ("wait 2", ""),
            ("wrong", "49"),
            ("wait 3", ""),
            ("right", "49 AccountLocked"),
            ("wait 1", ""),
            ("wrong", "49"),
            ("wait 4", ""),
            ("right", "49 AccountLocked"),
            ("wait 1", ""),
            ("right", "0"),
        ],
    );
}

#[test]
fn passwords_expire_with_a_warning_and_some_grace() {
    check(
        "pwdMaxAge: 100\npwdExpireWarning: 20\npwdGraceAuthNLimit: 2\npwdGraceExpiry: 50",
        &[
            ("right", "0"),
            ("wait 80", ""),
            ("right", "0"),
            ("wait 1", ""),
            ("right", "0 expires=19"),
            ("wait 19", ""),
            ("right", "0 expires=0"),
            ("wait 1", ""),
            ("right", "0 grace=1"),
            ("right", "0 grace=0"),
            ("right", "49 PasswordExpired"),
            ("count pwdGraceUseTime", "2"),
            ("change replace: userPassword\nuserPassword: right", "0"),
            ("count pwdGraceUseTime", "0"),
            ("right", "0"),
            ("wait 151", ""),
            ("right", "49 PasswordExpired"),
        ],
    );
}

#[test]
fn a_password_set_by_somebody_else_has_to_be_changed() {
    check(
        "pwdMustChange: TRUE",
        &[
            ("right", "0"),
            ("change replace: userPassword\nuserPassword: right", "0"),
            ("count pwdReset", "1"),
            ("wrong", "49"),
            ("right", "0 ChangeAfterReset must change"),
            ("change delete: pwdReset", "0"),
            ("right", "0"),
        ],
    );
}

#[test]
fn accounts_begin_end_and_rest() {
    check(
        "pwdLockout: TRUE\npwdMaxIdle: 100",
        &[
            ("right", "0"),
            ("wait 100", ""),
            ("right", "0"),
            ("wait 101", ""),
            ("right", "49 AccountLocked"),
            ("change replace: userPassword\nuserPassword: right", "0"),
            ("right", "0"),
            ("change add: pwdEndTime\npwdEndTime: 20260101000520Z", "0"),
            ("right", "0"),
            ("wait 119", ""),
            ("change replace: pwdStartTime\npwdStartTime: 20270101000520Z", "0"),
            ("right", "49 AccountLocked"),
        ],
    );
}

/// Sixty-four guesses at once, the right one among them: no more are judged than the policy allows.
#[test]
fn guesses_at_the_same_time_are_counted_one_by_one() {
    let fixture = fixture("pwdLockout: TRUE\npwdMaxFailure: 5");
    let dn = fixture.schema.parse_dn(USER).unwrap();
    let (sender, receiver) = mpsc::channel();
    for guess in 0..64 {
        let sender = sender.clone();
        let attempt = BindAttempt {
            dn: dn.clone(),
            matched: guess == 63,
            policy_control: true,
            code: GivenCode::NotAsked,
        };
        fixture.directory.conclude_bind(attempt, Box::new(move |end| sender.send(end).unwrap()));
    }
    drop(sender);
    let ends: Vec<BindConclusion> = receiver.iter().collect();
    let locked = |end: &BindConclusion| {
        let value = end.controls.first().and_then(|control| control.value.clone());
        PasswordPolicyResponse::decode(value.as_deref()).unwrap().error == Some(Error::AccountLocked)
    };
    assert_eq!((ends.len(), ends.iter().filter(|end| !locked(end)).count()), (64, 5));
    assert!(ends.iter().all(|end| end.result.code.0 == 49), "the right one came too late");
    assert_eq!(values(&fixture, "pwdFailureTime").len(), 5);
}

#[test]
fn stored_passwords_that_take_too_long_are_not_compared() {
    let fixture = fixture("pwdInHistory: 2");
    let by_root = |value: &str| {
        fixture.change(&format!(
            "dn: {USER}\nchangetype: modify\nreplace: userPassword\nuserPassword: {value}\n"
        ))
    };
    // Only an administrator may store it.
    assert_eq!(by_root("{PBKDF2-SHA512}33000000$AAAA$AAAA"), "0");
    let change = |ldif: &str| change_own(&fixture, ldif, None);
    let refused = "11 the stored passwords take too long to be compared; send the change by itself, or have an administrator set a new one";
    let with_old = "delete: userPassword\nuserPassword: right\n-\nadd: userPassword\nuserPassword: new";
    assert_eq!(change(with_old), refused);
    assert_eq!(change("replace: userPassword\nuserPassword: new"), refused);
    assert_eq!(by_root("other"), "0");
}

/// A change by the user himself: what is answered, with the control's error.
fn change_own(fixture: &Fixture<MemoryStore>, ldif: &str, work: Option<PasswordWork>) -> String {
    let subject = larix_engine::access::Subject::default();
    let subject = Arc::new(subject.bound_as(fixture.schema.parse_dn(USER).unwrap(), USER));
    let record = records(&format!("dn: {USER}\nchangetype: modify\n{ldif}\n")).pop().unwrap();
    let (operation, _) = operation(record);
    let controls = RequestControls::from(ControlValues { password_policy: true, ..ControlValues::default() });
    let passwords = work.map(Arc::new);
    let mut request = WriteRequest { operation, subject, controls, origin: Origin::Client, passwords };
    assert!(fixture.directory.has_password_work(&request.operation));
    fixture.directory.work_on_passwords(&mut request);
    let outcome = fixture.submit(request);
    let mut text = describe(&outcome);
    for control in &outcome.controls {
        let said = PasswordPolicyResponse::decode(control.value.as_deref()).unwrap();
        if let Some(error) = said.error {
            text += &format!(" / {error:?}");
        }
    }
    text
}

#[test]
fn changes_by_the_user_are_under_the_policy() {
    let replace = |new: &str| format!("replace: userPassword\nuserPassword: {new}");
    let safe = |old: &str, new: &str| {
        format!("delete: userPassword\nuserPassword: {old}\n-\nadd: userPassword\nuserPassword: {new}")
    };
    let quality = "19 Password fails quality checking policy / ";
    for (lines, ldif, expected) in [
        ("", replace("new"), "0".to_owned()),
        (
            "pwdAllowUserChange: FALSE",
            replace("new"),
            "50 User alteration of password is not allowed / PasswordModNotAllowed".to_owned(),
        ),
        (
            "pwdSafeModify: TRUE",
            replace("new"),
            "50 Must supply old password to be changed as well as new one / MustSupplyOldPassword".to_owned(),
        ),
        (
            "pwdSafeModify: TRUE",
            safe("wrong", "new"),
            "53 Must supply correct old password to change to new one / MustSupplyOldPassword".to_owned(),
        ),
        ("pwdSafeModify: TRUE", safe("right", "new"), "0".to_owned()),
        ("pwdMinAge: 10", replace("new"), "19 Password is too young to change / PasswordTooYoung".to_owned()),
        ("pwdMinLength: 8", replace("short"), "0".to_owned()),
        ("pwdCheckQuality: 1\npwdMinLength: 8", replace("short"), format!("{quality}PasswordTooShort")),
        (
            "pwdCheckQuality: 1\npwdMaxLength: 8",
            replace("much too long"),
            format!("{quality}PasswordTooLong"),
        ),
        ("pwdCheckQuality: 1", replace("{SSHA}hidden"), "0".to_owned()),
        ("pwdCheckQuality: 2", replace("{SSHA}hidden"), format!("{quality}InsufficientPasswordQuality")),
        (
            "pwdInHistory: 3",
            replace("right"),
            "19 Password is not being changed from existing value / PasswordInHistory".to_owned(),
        ),
        (
            "",
            "replace: userPassword\nuserPassword: a\nuserPassword: b".to_owned(),
            "19 Password policy only allows one password value".to_owned(),
        ),
    ] {
        // The rootdn's passwords are under no rule.
        let fixture = fixture(lines);
        assert_eq!(change_own(&fixture, &ldif, None), expected, "{lines:?} {ldif:?}");
    }
}

/// slapd takes the first value away, whichever it is that the old password matches.
#[test]
fn an_old_password_stands_for_the_value_that_it_matches() {
    let swap = |old: &str, new: &str| {
        format!("delete: userPassword\nuserPassword: {old}\n-\nadd: userPassword\nuserPassword: {new}")
    };
    for lines in ["", "pwdSafeModify: TRUE"] {
        let fixture = fixture(lines);
        let by_root = |change: &str| {
            assert_eq!(fixture.change(&format!("dn: {USER}\nchangetype: modify\n{change}\n")), "0");
        };
        by_root("replace: userPassword\nuserPassword: {SASL}ann");
        by_root("add: userPassword\nuserPassword: second");
        let shown = |password: &str| fixture.show(USER).contains(&format!("userPassword: {password}\n"));
        let own = |ldif: &str, work: Option<PasswordWork>| change_own(&fixture, ldif, work);
        // By itself it stands for nothing but itself.
        assert!(own("delete: userPassword\nuserPassword: annpw", None).starts_with("16"), "{lines}");
        let refused = "53 Must supply correct old password to change to new one / MustSupplyOldPassword";
        assert_eq!(own(&swap("annpw", "new"), None), refused, "{lines}: nobody knows");
        let work = PasswordWork::default();
        work.learn(b"{SASL}ann", b"annpw", true);
        assert_eq!(own(&swap("annpw", "new"), Some(work)), "0", "{lines}");
        assert!(shown("new") && shown("second") && !shown("{SASL}ann"), "{lines}");
        assert_eq!(own(&swap("second", "third"), None), "0", "{lines}");
        assert!(shown("new") && shown("third") && !shown("second"), "{lines}");
    }
}

#[test]
fn a_check_module_that_is_not_here_is_noted() {
    let schema = schema("");
    for (module, is_noted) in [("/usr/lib/ldap/ppm.so", false), ("pqchecker.so", true)] {
        let line = format!("ppolicy_check_module {module}");
        let overlay = common::build(&super::DESCRIPTOR, &schema, &line).unwrap();
        let notes = overlay.notes(&schema);
        assert_eq!(notes.iter().any(|note| note.contains(module)), is_noted, "{notes:?}");
    }
}

#[test]
fn a_policy_brings_rules_for_the_quality() {
    // minQuality 3, forbiddenChars `,`, checkRDN 1
    let rules = "pwdCheckModuleArg:: bWluUXVhbGl0eSAzCmZvcmJpZGRlbkNoYXJzICwKY2hlY2tSRE4gMQo=";
    let cracklib = "pwdCheckModuleArg:: dXNlQ3JhY2tsaWIgMQo=";
    let unreadable = "pwdCheckModuleArg:: bWluUXVhbGl0eSBtYW55Cg==";
    let folder = tempfile::tempdir().unwrap();
    let (words, breached) = (folder.path().join("words"), folder.path().join("breached"));
    std::fs::write(&words, "dragon\n").unwrap();
    // Of "Leaked-12".
    let leaked = "092E2F0E975EEC0A29DBC0C29CD674FD72B5455D";
    std::fs::write(&breached, format!("{:040}:1\n{leaked}:3\n{}:7\n", 0, "F".repeat(40))).unwrap();
    let ppm = "pwdCheckModule: /usr/lib/ldap/ppm.so";
    let used = "pwdUseCheckModule: TRUE";
    for (module, argument, lists, new, expected) in [
        (ppm, rules, false, "abcdef", "required number of strength checks (1 of 3)"),
        (ppm, rules, false, "Abc,def1", "contains 1 forbidden characters"),
        (ppm, rules, false, "Xuser1", "contains tokens from the RDN"),
        (ppm, rules, false, "Abcdef1", "0"),
        (ppm, "", false, "Abcdef1", "the policy has no pwdCheckModuleArg"),
        (ppm, unreadable, false, "Abcdef1", "`minQuality many`: \"many\" is not a number"),
        (ppm, cracklib, false, "Abcdef1", "no ppolicy_words are configured"),
        (ppm, cracklib, true, "Abcdef1", "0"),
        (ppm, cracklib, true, "Dragon-12", "a word that is easily guessed"),
        ("pwdCheckModule: pqchecker.so", rules, false, "Abcdef1", "no check module \"pqchecker.so\" here"),
        (used, rules, false, "abcdef", "required number"),
        ("", "", true, "Dragon-12", "a word that is easily guessed"),
        ("", "", true, "Leaked-12", "in a list of passwords that were stolen elsewhere"),
        ("", "", true, "Leaked-13", "0"),
        ("", "", false, "Leaked-12", "0"),
    ] {
        let lines = ["objectClass: pwdPolicyChecker", "pwdCheckQuality: 1", module, argument];
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let fixture = fixture_of(&lines.join("\n"), |settings| {
            if lists {
                settings.words = Some(Words::read(&words).unwrap());
                settings.breached = Some(Breached::open(&breached).unwrap());
            }
        });
        let answer = change_own(&fixture, &format!("replace: userPassword\nuserPassword: {new}"), None);
        assert!(answer.contains(expected) && (answer == "0") == (expected == "0"), "{new}: {answer}");
        // The rootdn's passwords are under no rule.
        let ldif = format!("dn: {USER}\nchangetype: modify\nreplace: userPassword\nuserPassword: {new}\n");
        assert_eq!(fixture.change(&ldif), "0");
    }
    // A list that cannot be read: the policy says whether that is a reason.
    for (quality, expected) in [(1, "0"), (2, "the list of stolen passwords cannot be read")] {
        let many = folder.path().join("many");
        std::fs::create_dir_all(&many).unwrap();
        std::fs::write(many.join("00000"), format!("{}:1\n", "0".repeat(35))).unwrap();
        let fixture = fixture_of(&format!("pwdCheckQuality: {quality}"), |settings| {
            settings.breached = Some(Breached::open(&many).unwrap());
        });
        let answer = change_own(&fixture, "replace: userPassword\nuserPassword: Any-12345", None);
        assert!(answer.contains(expected), "{answer}");
    }
}

#[test]
fn lists_of_passwords_are_read_at_the_start() {
    let schema = schema("");
    let error = |lines: &str| common::build(&super::DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err();
    assert!(error("ppolicy_words /nowhere/words").to_string().starts_with("ppolicy_words /nowhere/words: "));
    assert!(error("ppolicy_breached /nowhere").help.unwrap().contains("SHA-1"));
}

#[test]
fn former_passwords_are_kept_and_refused() {
    let fixture = fixture_of("pwdInHistory: 2", |settings| settings.hash_cleartext = true);
    for new in ["one", "two", "three"] {
        wait(&fixture, 1);
        assert_eq!(change_own(&fixture, &format!("replace: userPassword\nuserPassword: {new}"), None), "0");
    }
    assert!(values(&fixture, "userPassword")[0].starts_with("{SSHA}"));
    assert_eq!(values(&fixture, "pwdHistory").len(), 2);
    let again =
        |new: &str| change_own(&fixture, &format!("replace: userPassword\nuserPassword: {new}"), None);
    assert_eq!(again("two"), "19 Password is in history of old passwords / PasswordInHistory");
    assert_eq!(again("right"), "0");
}

#[test]
fn a_hash_may_be_stored_again_within_a_second() {
    let fixture = fixture("pwdInHistory: 5");
    let change =
        format!("dn: {USER}\nchangetype: modify\nreplace: userPassword\nuserPassword: {{SSHA}}hash\n");
    for _ in 0..4 {
        assert_eq!(fixture.change(&change), "0");
    }
    assert_eq!(values(&fixture, "pwdHistory").len(), 2);
}

#[test]
fn a_password_that_is_given_up_is_a_former_one() {
    let fixture = fixture("pwdInHistory: 2");
    let own = |ldif: &str| change_own(&fixture, ldif, None);
    let used = "19 Password is in history of old passwords / PasswordInHistory";
    for (ldif, expected) in [
        ("replace: userPassword", "0"),
        ("add: userPassword\nuserPassword: right", used),
        ("add: userPassword\nuserPassword: one", "0"),
        ("delete: userPassword\nuserPassword: one", "0"),
        ("add: userPassword\nuserPassword: one", used),
        ("replace: userPassword\nuserPassword: right", used),
        ("add: userPassword\nuserPassword: two", "0"),
    ] {
        wait(&fixture, 1);
        assert_eq!(own(ldif), expected, "{ldif:?}");
    }
    assert_eq!(values(&fixture, "pwdHistory").len(), 2);
}

#[test]
fn a_password_modify_request_says_both_passwords() {
    let fixture = fixture("pwdSafeModify: TRUE\npwdCheckQuality: 2\npwdMinLength: 5");
    let secret = |text: &str| Some(Zeroizing::new(text.as_bytes().to_vec()));
    let hash =
        Hasher::new(Scheme::SSHA).hash(b"brandnew", &larix_engine::time::SeededRandom::new(3)).unwrap();
    let ldif = format!("replace: userPassword\nuserPassword: {}", String::from_utf8_lossy(&hash));
    for (old, new, expected) in [
        ("right", "tiny", "19 Password fails quality checking policy / PasswordTooShort"),
        ("right", "brandnew", "0"),
    ] {
        let work = PasswordWork::of(Purpose::PasswordModify, secret(old), secret(new));
        assert_eq!(change_own(&fixture, &ldif, Some(work)), expected);
    }
}

#[test]
fn rules_choose_the_policy() {
    let strict = "cn=strict,dc=example,dc=com";
    for (rules, locks) in [
        (&[][..], false),
        (&["policy_dn=cn=strict,dc=example,dc=com"][..], true),
        (&["dn.children=dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com"], true),
        (&["dn.base=dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com"], false),
        (&["filter=(sn=u) policy_dn=cn=strict,dc=example,dc=com"], true),
        (&["filter=(sn=v) policy_dn=cn=strict,dc=example,dc=com"], false),
        (&["dn.regex=cn=user,(.*) policy_dn.expand=cn=strict,$1"], true),
        (&["dn.regex=cn=[r-u\\e]+,(.*) policy_dn.expand=cn=strict,$1"], true),
        (&["policy_dn=cn=strict,dc=example,dc=com continue", "no_policy"], false),
        (&["policy_dn=cn=nowhere,dc=example,dc=com", "policy_dn=cn=strict,dc=example,dc=com"], true),
        (&["group=cn=g,dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com"], true),
        (&["group/groupOfNames=cn=g,dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com"], true),
        (&["group//member=cn=g,dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com"], true),
        (&["group//owner=cn=g,dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com"], false),
    ] {
        let schema = schema("");
        let parse = |rule: &&str| PolicyRule::parse(&schema, rule.split(' ')).unwrap();
        let rules_parsed = rules.iter().map(parse).collect();
        let fixture = fixture_of("", |settings| settings.rules = rules_parsed);
        fixture.apply(&format!(
            "dn: {strict}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: strict\n\
             pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 1\n\n\
             dn: cn=g,{SUFFIX}\nobjectClass: groupOfNames\ncn: g\nmember: {USER}\n"
        ));
        bind(&fixture, false);
        assert_eq!(bind(&fixture, true) != "0", locks, "{rules:?}");
    }
    let schema = schema("");
    for (rule, fault) in [
        ("stop", "need to specify policy_dn or no_policy"),
        ("no_policy no_policy", "\"no_policy\": said more than once"),
        ("dn.wide=dc=x no_policy", "unknown dn style: wide"),
        ("policy_dn.expand=$1", "expansion needs dn.regex before it"),
        ("colour=blue", "unknown keyword \"colour\""),
    ] {
        assert_eq!(PolicyRule::parse(&schema, rule.split(' ')).unwrap_err().to_string(), fault);
    }
}

#[test]
fn the_last_success_is_written_down() {
    let fixture = fixture("");
    wait(&fixture, 5);
    assert_eq!(bind(&fixture, true), "0");
    assert_eq!(values(&fixture, "pwdLastSuccess"), ["20260101000005Z"]);
    assert_eq!(fixture.value(USER, "modifiersName").as_deref(), Some(ROOT));
    bind(&fixture, false);
    assert_eq!(values(&fixture, "pwdLastSuccess"), ["20260101000005Z"]);
}

/// slapd sets the time at the right password, before its overlay refuses an expired one.
#[test]
fn a_refused_login_is_no_success() {
    let fixture = fixture("pwdMaxAge: 100");
    assert_eq!(bind(&fixture, true), "0");
    wait(&fixture, 101);
    assert_eq!(bind(&fixture, true), "49 PasswordExpired");
    assert_eq!(values(&fixture, "pwdLastSuccess"), ["20260101000000Z"]);
}

#[test]
fn no_netscape_control_says_that_an_account_is_locked_unless_it_may() {
    for (use_lockout, expected) in [(false, None), (true, Some(oid::PASSWORD_EXPIRED))] {
        let fixture = fixture_of("pwdLockout: TRUE\npwdMaxFailure: 1", |settings| {
            settings.use_lockout = use_lockout;
            settings.send_netscape_controls = true;
        });
        let answer = |matched| {
            let dn = fixture.schema.parse_dn(USER).unwrap();
            let (sender, receiver) = mpsc::channel();
            let done = Box::new(move |conclusion: BindConclusion| sender.send(conclusion).unwrap());
            let attempt = BindAttempt { dn, matched, policy_control: false, code: GivenCode::NotAsked };
            fixture.directory.conclude_bind(attempt, done);
            receiver.recv().unwrap().controls
        };
        assert!(answer(false).is_empty());
        let controls = answer(true);
        let said: Vec<&str> = controls.iter().map(|control| &*control.oid).collect();
        assert_eq!(said, expected.as_slice());
    }
}

/// A wrong password for a name: on which thread its answer is given, what it says, and whether something was synced for it.
fn wrong_password(fixture: &Fixture<MemoryStore>, name: &str) -> (Option<String>, String, bool) {
    let store =
        |fixture: &Fixture<MemoryStore>| fixture.directory.databases()[0].database().store().commit_counter();
    let before = store(fixture);
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |end: BindConclusion| {
        let thread = std::thread::current().name().map(str::to_owned);
        sender.send((thread, format!("{} {:?}", end.result.code.0, end.controls))).unwrap();
    });
    let dn = fixture.schema.parse_dn(name).unwrap();
    fixture.directory.conclude_bind(
        BindAttempt { dn, matched: false, policy_control: true, code: GivenCode::NotAsked },
        done,
    );
    let (thread, said) = receiver.recv().unwrap();
    (thread.filter(|name| name == "writer"), said, store(fixture) > before)
}

#[test]
fn nobody_s_wrong_password_travels_as_anybody_s() {
    let nobody = "cn=nobody,dc=example,dc=com";
    let unmapped = "uid=nobody,cn=scram-sha-256,cn=auth";
    for (lines, counted) in [
        ("pwdLockout: TRUE\npwdMaxFailure: 2", true),
        ("pwdLockout: TRUE\npwdMinDelay: 1", true),
        ("pwdLockout: TRUE", false),
        ("pwdMaxFailure: 2", true),
    ] {
        let fixture = fixture(lines);
        // Before anybody else has been there, too.
        let unknown = wrong_password(&fixture, nobody);
        let known = wrong_password(&fixture, USER);
        assert_eq!(unknown, known, "{lines}");
        assert_eq!((known.0.is_some(), known.2), (counted, counted), "{lines}");
        assert_eq!(wrong_password(&fixture, nobody), known, "{lines}");
        if counted {
            let (thread, _, synced) = wrong_password(&fixture, unmapped);
            assert_eq!((thread, synced), (known.0.clone(), known.2), "{lines}");
        }
        // That an account is locked is told to those who ask, but for the time no different.
        assert_eq!(wrong_password(&fixture, USER).2, counted, "{lines}");
        assert_eq!(wrong_password(&fixture, USER).2, counted, "{lines}");
    }
    // A policy that only some accounts have is learned with the first of them.
    let fixture = fixture_of("pwdLockout: TRUE\npwdMaxFailure: 2", |settings| settings.default_policy = None);
    assert!(!wrong_password(&fixture, nobody).2);
    fixture.change(&format!(
        "dn: {USER}\nchangetype: modify\nreplace: pwdPolicySubentry\npwdPolicySubentry: {POLICY}\n"
    ));
    assert!(wrong_password(&fixture, USER).2);
    assert!(wrong_password(&fixture, nobody).2);
}

#[test]
fn a_policy_may_stand_in_another_database() {
    let schema = schema("");
    let (mut accounts, mut policies) = (settings(&schema), settings(&schema));
    let elsewhere = "cn=policy,dc=policies";
    let normal = schema.parse_dn("dc=policies").unwrap();
    policies.suffixes = vec![Suffix { normal, text: "dc=policies".to_owned() }];
    policies.root_dn = accounts.root_dn.clone();
    accounts.overlays.push(Arc::new(PasswordPolicy::new(PasswordPolicySettings {
        default_policy: Some(schema.parse_dn(elsewhere).unwrap()),
        use_lockout: true,
        ..PasswordPolicySettings::default()
    })));
    let fixture = Fixture::of(schema, vec![(memory(), accounts), (memory(), policies)]);
    fixture.apply(&format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\n\
         dn: {USER}\nobjectClass: person\ncn: user\nsn: u\nuserPassword: right\n\n\
         dn: dc=policies\nobjectClass: dcObject\nobjectClass: organization\ndc: policies\no: x\n\n\
         dn: {elsewhere}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 2\n"
    ));
    for (matched, expected) in [(false, "49"), (false, "49"), (true, "49 AccountLocked")] {
        assert_eq!(bind(&fixture, matched), expected);
    }
}

/// Nothing that is not kept can lock an account, or be remembered of its passwords.
#[test]
fn without_writes_accounts_have_no_state() {
    let lines = "pwdLockout: TRUE\npwdMaxFailure: 1\npwdInHistory: 3";
    let fixture = fixture_of(lines, |settings| settings.disable_write = true);
    for _ in 0..3 {
        assert_eq!(bind(&fixture, false), "49");
    }
    assert_eq!(bind(&fixture, true), "0");
    let change = "replace: userPassword\nuserPassword: other";
    assert_eq!(fixture.change(&format!("dn: {USER}\nchangetype: modify\n{change}\n")), "0");
    for name in ["pwdFailureTime", "pwdAccountLockedTime", "pwdHistory"] {
        assert_eq!(values(&fixture, name), [""; 0], "{name}");
    }
}

#[test]
fn numbers_at_the_ends_of_their_range_are_rules_as_others_are() {
    let usual = [
        ("pwdLockout", "TRUE"),
        ("pwdMinAge", "0"),
        ("pwdMaxAge", "100"),
        ("pwdMaxIdle", "0"),
        ("pwdExpireWarning", "50"),
        ("pwdGraceAuthNLimit", "2"),
        ("pwdGraceExpiry", "10"),
        ("pwdLockoutDuration", "10"),
        ("pwdFailureCountInterval", "10"),
        ("pwdMaxFailure", "3"),
        ("pwdMaxRecordedFailure", "3"),
        ("pwdMinDelay", "1"),
        ("pwdMaxDelay", "2"),
        ("pwdInHistory", "1"),
        ("pwdMinLength", "0"),
        ("pwdMaxLength", "0"),
    ];
    let change = "replace: userPassword\nuserPassword: better";
    for (extreme, _) in &usual[1..] {
        for number in [i64::MIN, -1, i64::MAX] {
            let line = |(name, value): &(&str, &str)| match name == extreme {
                true => format!("{name}: {number}"),
                false => format!("{name}: {value}"),
            };
            let lines: Vec<String> = usual.iter().map(line).collect();
            let fixture = fixture(&lines.join("\n"));
            let began = fixture.clock.now();
            // Long before the password was changed, long behind it, and when a clock is as wrong as it can be.
            for time in [
                began,
                Timestamp(0),
                Timestamp::from_seconds(1 << 36),
                Timestamp(i64::MAX),
                Timestamp(i64::MIN),
            ] {
                fixture.clock.set(time);
                for answer in
                    [bind(&fixture, false), bind(&fixture, true), change_own(&fixture, change, None)]
                {
                    assert!(!answer.starts_with("80"), "{extreme}: {number} at {time:?}: {answer}");
                }
            }
        }
    }
    // What is longer than anything lasts for ever.
    let max = i64::MAX;
    check(&format!("pwdMaxAge: {max}\npwdExpireWarning: 50"), &[("wait 100", ""), ("right", "0")]);
    let lines = format!("pwdLockout: TRUE\npwdMaxFailure: 1\npwdLockoutDuration: {max}");
    check(&lines, &[("wrong", "49"), ("wait 100", ""), ("right", "49 AccountLocked")]);
    let lines = format!("pwdLockout: TRUE\npwdMinDelay: {max}\npwdMaxDelay: {max}\npwdMaxRecordedFailure: 5");
    check(&lines, &[("wrong", "49"), ("wait 100", ""), ("right", "49 AccountLocked")]);
    check(&format!("pwdMinAge: {max}"), &[("wait 100", ""), ("right", "0")]);
    check(&format!("pwdMaxAge: {}", i64::MIN), &[("wait 100", ""), ("right", "0")]);
}
