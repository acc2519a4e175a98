//! Rules against questions; what slapd would answer to the same is compared in `slapacl_tests`.

use super::fixture::{ADMIN, ANN, BOB, Fixture, STAFF};
use super::*;

/// `attribute/privilege[=value]` or `entry/...`, `children/...`.
pub(super) fn check(
    fixture: &Fixture,
    policy: &AccessPolicy,
    who: &str,
    entry: &str,
    question: &str,
) -> bool {
    let (name, rest) = question.split_once('/').expect(question);
    let (privilege, value) =
        rest.split_once('=').map_or((rest, None), |(privilege, value)| (privilege, Some(value)));
    let privilege = privilege_of(privilege);
    let subject = fixture.subject(who);
    let entry = fixture.find(&fixture.dn(entry)).expect(entry);
    let facts = fixture.facts(entry);
    let target = AccessTarget { dn: &entry.dn, entry: &facts };
    let description;
    let (item, kind) = match name {
        "entry" => (Item::Entry, ItemKind::Entry),
        "children" => (Item::Children, ItemKind::Children),
        _ => {
            description = fixture.describe(name);
            let value = value.map(str::as_bytes);
            (Item::Attribute { description: &description, value }, ItemKind::Attribute(&description))
        }
    };
    let granted = policy.check(&subject, &target, item, privilege);
    let explained = policy.explain(&subject, &target, item, privilege);
    assert_eq!(explained.granted, granted, "{question} explained as {explained:?}");
    // Whatever is said beforehand must hold.
    for within in [None, Some(&entry.dn), entry.dn.parent().as_ref()] {
        match policy.verdict(&subject, within, kind, privilege) {
            Verdict::Granted => assert!(granted, "{question} granted within {within:?}"),
            Verdict::Denied => assert!(!granted, "{question} denied within {within:?}"),
            Verdict::PerEntry if value.is_some() => {
                let whole = match item {
                    Item::Attribute { description, .. } => Item::Attribute { description, value: None },
                    other => other,
                };
                assert_eq!(
                    policy.check(&subject, &target, whole, privilege),
                    granted,
                    "{question} per entry"
                );
            }
            Verdict::PerEntry | Verdict::PerValue => {}
        }
    }
    if policy.grants_all(&subject, privilege) {
        assert!(granted, "{question} although all is granted");
    }
    granted
}

pub(super) fn privilege_of(name: &str) -> Privilege {
    match name {
        "disclose" => Privilege::Disclose,
        "auth" => Privilege::Auth,
        "compare" => Privilege::Compare,
        "search" => Privilege::Search,
        "read" => Privilege::Read,
        "write" => Privilege::Write,
        "add" => Privilege::Add,
        "delete" => Privilege::Delete,
        "manage" => Privilege::Manage,
        other => panic!("{other}"),
    }
}

#[track_caller]
fn table(rules: &str, cases: &[(&str, &str, &str, bool)]) {
    let fixture = Fixture::new();
    let policy = fixture.policy(rules);
    for &(who, entry, question, expected) in cases {
        assert_eq!(
            check(&fixture, &policy, who, entry, question),
            expected,
            "{rules}\n{who} {question} of {entry}"
        );
    }
}

#[test]
fn without_rules_everybody_reads() {
    table(
        "",
        &[
            ("", ANN, "cn/read", true),
            ("", ANN, "userPassword/read", true),
            ("", ANN, "cn/write", false),
            (BOB, ANN, "entry/write", false),
            (BOB, ANN, "cn/manage", false),
            (ADMIN, ANN, "cn/manage", true),
        ],
    );
}

#[test]
fn the_usual_rules() {
    table(
        "access to attrs=userPassword by self write by anonymous auth by * none\naccess to * by self write by * read",
        &[
            ("", ANN, "userPassword/auth", true),
            ("", ANN, "userPassword/read", false),
            (ANN, ANN, "userPassword/write", true),
            (BOB, ANN, "userPassword/auth", false),
            (BOB, ANN, "cn/read", true),
            (BOB, ANN, "cn/write", false),
            (ANN, ANN, "cn/write", true),
            (ADMIN, ANN, "userPassword/read", true),
            ("", ANN, "entry/read", true),
        ],
    );
}

#[test]
fn nothing_is_granted_beyond_the_rules() {
    table(
        "access to attrs=cn by users read",
        &[
            (BOB, ANN, "cn/read", true),
            ("", ANN, "cn/read", false),
            (BOB, ANN, "sn/read", false),
            (BOB, ANN, "entry/read", false),
            // The server provides these, not the user.
            (BOB, ANN, "entryUUID/write", true),
            (BOB, ANN, "entryUUID/manage", false),
        ],
    );
}

#[test]
fn groups_and_values() {
    table(
        "access to attrs=member by dnattr=member selfwrite by group=cn=staff,dc=example,dc=com write by * read\n\
         access to attrs=title val.regex=^eng(.*)$ by dn.exact,expand=uid=bob,ou=people,dc=example,dc=com$9 write by users read",
        &[
            (ANN, STAFF, "member/add=uid=ann,ou=people,dc=example,dc=com", true),
            (ANN, STAFF, "member/add=uid=bob,ou=people,dc=example,dc=com", false),
            (BOB, STAFF, "member/add=uid=ann,ou=people,dc=example,dc=com", true),
            (BOB, STAFF, "member/write", true),
            (ANN, STAFF, "member/write", false),
            (ANN, ANN, "title/read=engineer", true),
            (ANN, ANN, "title/read=boss", false),
            (ANN, ANN, "title/read", false),
        ],
    );
}

#[test]
fn proxied_requests_have_two_identities() {
    let fixture = Fixture::new();
    let policy = fixture.policy("access to * by realself read by realdn.exact=uid=bob,ou=people,dc=example,dc=com write by self compare");
    let subject = fixture.subject(BOB).acting_as(fixture.dn(ANN), ANN);
    let entry = fixture.find(&fixture.dn(ANN)).expect("ann");
    let facts = fixture.facts(entry);
    let target = AccessTarget { dn: &entry.dn, entry: &facts };
    assert!(policy.check(&subject, &target, Item::Entry, Privilege::Write));
    assert_eq!(&*subject.authz_text, "dn:uid=ann,ou=people,dc=example,dc=com");
}

#[test]
fn verdicts_before_entries_are_known() {
    let fixture = Fixture::new();
    let verdict = |rules: &str, who: &str, within: Option<&str>, name: &str| {
        let (policy, subject) = (fixture.policy(rules), fixture.subject(who));
        let within = within.map(|dn| fixture.dn(dn));
        let description = fixture.describe(name);
        policy.verdict(&subject, within.as_ref(), ItemKind::Attribute(&description), Privilege::Read)
    };
    let usual =
        "access to attrs=userPassword by self write by anonymous auth by * none\naccess to * by * read";
    assert_eq!(verdict(usual, "", None, "cn"), Verdict::Granted);
    assert_eq!(verdict(usual, "", None, "userPassword"), Verdict::Denied);
    assert_eq!(verdict(usual, ANN, None, "userPassword"), Verdict::PerEntry);
    assert_eq!(verdict(usual, ANN, Some("cn=staff,dc=example,dc=com"), "userPassword"), Verdict::Denied);
    let people = "access to dn.subtree=ou=people,dc=example,dc=com by users read\naccess to * by * read";
    assert_eq!(verdict(people, "", None, "cn"), Verdict::PerEntry);
    assert_eq!(verdict(people, "", Some("ou=people,dc=example,dc=com"), "cn"), Verdict::Denied);
    assert_eq!(verdict(people, BOB, None, "cn"), Verdict::Granted);
    assert_eq!(verdict(people, "", Some(STAFF), "cn"), Verdict::Granted);
    let values = "access to attrs=title val=boss by * none\naccess to * by * read";
    assert_eq!(verdict(values, "", None, "title"), Verdict::PerValue);
    assert_eq!(verdict(values, "", None, "cn"), Verdict::Granted);

    let all = |rules: &str, who: &str, privilege| {
        fixture.policy(rules).grants_all(&fixture.subject(who), privilege)
    };
    assert!(all("", "", Privilege::Read));
    assert!(!all("", "", Privilege::Write));
    assert!(all("", ADMIN, Privilege::Manage));
    assert!(all("access to * by * read", "", Privilege::Search));
    assert!(!all(usual, "", Privilege::Read));
    assert!(all("access to attrs=cn by users read\naccess to * by users read", BOB, Privilege::Read));
}

#[test]
fn policies_refuse_what_the_schema_does_not_have() {
    let fixture = Fixture::new();
    let check = |line: &str, column: Option<usize>, shown: &str| {
        let rule = AccessRule::parse(line).expect(line);
        let error = AccessPolicy::new(fixture.schema.clone(), None, &[rule], &[]).expect_err(line);
        assert_eq!((error.column(), error.fault.to_string().as_str()), (column, shown), "{line}");
    };
    check("access to attrs=cn,foo by * read", Some(13), "attribute `foo`: attribute type undefined");
    check("access to attrs=@foo by * read", Some(11), "object class `foo` is not defined");
    check("access to attrs=cn val/foo=x by * read", Some(17), "matching rule `foo` is not defined");
    check("access to attrs=entry val=x by * read", Some(10), "`entry` has no values");
    check("access to attrs=cn val.children=x by * read", Some(10), "the values of `cn` are not DNs");
    check(
        "access to attrs=jpegPhoto val=x by * read",
        Some(10),
        "attribute `jpegPhoto` has no equality rule",
    );
    check("access to * by dnattr=cn read", Some(16), "the values of `cn` are not DNs");
    check("access to * by group/foo=cn=a read", Some(15), "object class `foo` is not defined");
    check(
        "access to * by group/groupOfNames/manager=cn=a read",
        Some(28),
        "object class `groupOfNames` does not allow `manager`",
    );
    check("access to * by users set=\"this\" read", None, "`set` clauses are not enforced yet");
    let parse = |line: &str| AccessRule::parse(line).expect(line);
    let bad_dn = AccessPolicy::new(fixture.schema.clone(), None, &[parse("to dn=foo=a by * read")], &[]);
    assert!(matches!(bad_dn.expect_err("bad DN").fault, AccessPolicyFault::BadDn { .. }));
    let bad_filter = AccessPolicy::new(fixture.schema.clone(), None, &[parse("to filter=(a by * read")], &[]);
    assert!(matches!(bad_filter.expect_err("bad filter").fault, AccessPolicyFault::BadFilter { .. }));
}
