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
    if let Item::Attribute { description, .. } = item {
        match policy.attribute_verdict(&subject, &target, description, privilege) {
            Verdict::Granted => assert!(granted, "{question} granted for all values"),
            Verdict::Denied => assert!(!granted, "{question} denied for all values"),
            Verdict::PerEntry | Verdict::PerValue => {}
        }
    }
    if policy.grants_all(&subject, privilege) {
        assert!(granted, "{question} although all is granted");
    }
    if let (Some(class), Some(decisions)) = (policy.class_of(kind), policy.decisions(&subject)) {
        let is_own = subject.dn.as_ref() == Some(&entry.dn);
        let of_others = decisions.of_others(class, privilege).filter(|_| !is_own);
        for decided in decisions.general(class, privilege).into_iter().chain(of_others) {
            assert_eq!(decided, granted, "{question} of {} decided", entry.dn);
        }
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
fn what_is_captured_of_a_value_decides_for_that_value() {
    let [bob, ann] = [BOB, ANN].map(|name| format!("manager/read={name}"));
    for clause in [
        "val.regex=^(.*)$ by dn.exact,expand=${v1} none",
        "val.regex=^uid=([^,]+), by dn.regex=^uid=${v1}, none",
        "val.regex=^uid=([^,]+), by set.expand=\"user/uid & [${v1}]\" none",
        "val.regex=^uid=(b[^,]+), by group.expand=cn=${v1},dc=example,dc=com read by dn.exact,expand=\"uid=${v1},ou=people,dc=example,dc=com\" none",
    ] {
        table(
            &format!("access to attrs=manager {clause} by * read\naccess to * by * read"),
            &[
                (BOB, ANN, bob.as_str(), false),
                (BOB, ANN, ann.as_str(), true),
                (STAFF, ANN, bob.as_str(), true),
            ],
        );
    }
}

#[test]
fn a_pattern_says_the_same_of_every_spelling_of_a_value() {
    table(
        "access to attrs=manager val.regex=^uid=bob,ou=people by users none\n\
         access to attrs=title val.regex=\"^top secret$\" by users none\n\
         access to attrs=telephoneNumber val.regex=^.1555 by users none\n\
         access to attrs=seeAlso val.regex=^uid=([^,]+),ou=people by dn.exact,expand=uid=${v1},ou=people,dc=example,dc=com write\n\
         access to * by * read",
        &[
            (BOB, ANN, "manager/search=uid=bob,ou=people,dc=example,dc=com", false),
            (BOB, ANN, "manager/search=UID=bob, OU=people, dc=example, dc=com", false),
            (BOB, ANN, "manager/search=2.5.4.3=bob,ou=people,dc=example,dc=com", true),
            (BOB, ANN, "manager/search=0.9.2342.19200300.100.1.1=bob,ou=people,dc=example,dc=com", false),
            (BOB, ANN, "title/read=Top Secret", false),
            (BOB, ANN, "title/read= top   secret ", false),
            (BOB, ANN, "title/read=top secrets", true),
            (BOB, ANN, "telephoneNumber/compare=+1 5-55", false),
            (BOB, ANN, "seeAlso/add=UID=Bob, ou=People, dc=example, dc=com", true),
            (ANN, ANN, "seeAlso/add=UID=Bob, ou=People, dc=example, dc=com", false),
        ],
    );
}

#[test]
fn many_rules_about_values_are_not_followed_both_ways_each() {
    // 2 to the power of 60 ways.
    let rules = (0..60).fold(String::new(), |rules, n| {
        rules + &format!("access to attrs=title val.regex=^x{n}$ by dnattr=manager none by * break\n")
    });
    let rules = rules + "access to * by dnattr=manager write by * read";
    table(
        &rules,
        &[
            (ANN, ANN, "title/read=x59", true),
            (BOB, ANN, "title/read=x59", false),
            (BOB, ANN, "cn/write", true),
        ],
    );
    let fixture = Fixture::new();
    let entry = fixture.find(&fixture.dn(ANN)).expect(ANN);
    let facts = fixture.facts(entry);
    let target = AccessTarget { dn: &entry.dn, entry: &facts };
    let (policy, title) = (fixture.policy(&rules), fixture.describe("title"));
    let verdict = policy.attribute_verdict(&fixture.subject(BOB), &target, &title, Privilege::Read);
    assert_eq!(verdict, Verdict::PerValue);
}

#[test]
fn what_a_rule_takes_is_charged() {
    let mut fixture = Fixture::new();
    let names: Vec<String> = (0..100).map(|n| format!("uid=u{n},ou=people,dc=example,dc=com")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fixture.add_values(ANN, "seeAlso", &names);
    fixture.add_values(ANN, "owner", &names);
    let value = "x".repeat(100_000);
    let by_value = format!("title/read={value}");
    // The rule, the question that it grants, and steps that do not suffice for it.
    for (rule, question, too_few) in [
        ("access to * by set=\"(this/seeAlso/cn | this/manager) & user\" read", "cn/read", 800),
        ("access to * by set=\"(this/seeAlso + [x]) | user\" read", "cn/read", 150),
        ("access to * by set=\"this/seeAlso/-* | user\" read", "cn/read", 300),
        ("access to * by dnattr=owner none by * read", "cn/read", 90),
        ("access to attrs=title val.regex=^x*$ by users read", by_value.as_str(), 300),
        ("access to attrs=title val=y by * none\naccess to * by * read", by_value.as_str(), 300),
    ] {
        let policy = fixture.policy(rule);
        fixture.steps.set(too_few);
        assert!(!check_alone(&fixture, &policy, question), "{rule}");
        assert_eq!(fixture.steps.get(), 0, "{rule}");
        fixture.steps.set(20_000);
        assert!(check_alone(&fixture, &policy, question), "{rule}");
    }
}

/// What Bob is granted of Ann's entry, with no other question.
fn check_alone(fixture: &Fixture, policy: &AccessPolicy, question: &str) -> bool {
    let (name, rest) = question.split_once('/').expect(question);
    let (privilege, value) =
        rest.split_once('=').map_or((rest, None), |(privilege, value)| (privilege, Some(value)));
    let entry = fixture.find(&fixture.dn(ANN)).expect(ANN);
    let facts = fixture.facts(entry);
    let target = AccessTarget { dn: &entry.dn, entry: &facts };
    let description = fixture.describe(name);
    let item = Item::Attribute { description: &description, value: value.map(str::as_bytes) };
    policy.check(&fixture.subject(BOB), &target, item, privilege_of(privilege))
}

/// Nothing doubles before a rule may be about some of the values.
#[test]
fn a_long_list_is_gone_through_once_for_all_values() {
    let clauses: String = (0..600).map(|n| format!(" by dn.exact=\"cn=somebody {n},dc=x\" none")).collect();
    let fixture = Fixture::new();
    let entry = fixture.find(&fixture.dn(ANN)).expect(ANN);
    let facts = fixture.facts(entry);
    let target = AccessTarget { dn: &entry.dn, entry: &facts };
    let (bob, title) = (fixture.subject(BOB), fixture.describe("title"));
    let long = format!("access to attrs=title{clauses} by * break");
    for (rules, expected) in [
        ("access to * by * read", Verdict::Granted),
        ("access to * by * none", Verdict::Denied),
        ("access to attrs=title val=x by * none\naccess to * by * read", Verdict::PerValue),
        ("access to attrs=title val=x by * read\naccess to * by * read", Verdict::Granted),
    ] {
        let policy = fixture.policy(&format!("{long}\n{rules}"));
        let verdict = policy.attribute_verdict(&bob, &target, &title, Privilege::Read);
        assert_eq!(verdict, expected, "{rules}");
    }
}

#[test]
fn sets_by_url() {
    // slapacl answers the first question of a run so, and no other: its offline database is searched once.
    table(
        "access to * by set=\"[ldap:///ou=people,dc=example,dc=com??one?(sn=B)]/entryDN & user\" write by * read",
        &[(BOB, ANN, "cn/write", true), (ANN, ANN, "cn/write", false), ("", ANN, "cn/read", true)],
    );
    table(
        "access to * by set=\"[ldap:///dc=example,dc=com?member?sub?(cn=staff)]/owner & user\" write by * read",
        &[(BOB, ANN, "cn/write", true), (ANN, ANN, "cn/write", false)],
    );
    table(
        "access to * by set=\"[ldap://other/dc=example,dc=com?member?sub?(cn=staff)]/owner & user\" write by * read",
        &[(BOB, ANN, "cn/write", false), (BOB, ANN, "cn/read", true)],
    );
    table(
        "access to * by set=\"[ldap:///ou=people, dc=example,dc=com??one?(sn=B)]/entryDN & user\" write by * read",
        &[(BOB, ANN, "cn/write", true), (ANN, ANN, "cn/write", false)],
    );
}

#[test]
fn spaces_in_the_urls_of_a_group_end_no_url() {
    let mut fixture = Fixture::new();
    let rule = "access to * by group/groupOfURLs/memberURL=\"cn=found,dc=example,dc=com\" write by * read";
    let policy = fixture.policy(rule);
    for (url, granted) in [
        ("ldap:///ou=staff,dc=example,dc=com??one?(sn=A) a label", false),
        ("ldap:///ou=staff, dc=example,dc=com??one?(sn=A)", false),
        ("ldap:///ou=people, dc=example,dc=com??one?(sn=A)", true),
    ] {
        fixture.add_values("cn=found,dc=example,dc=com", "memberURL", &[url]);
        assert_eq!(check(&fixture, &policy, ANN, BOB, "cn/write"), granted, "{url}");
    }
    let mut labelled = Fixture::new();
    let url = "ldap:///ou=people,dc=example,dc=com??one?(sn=A) a label";
    labelled.add_values("cn=found,dc=example,dc=com", "memberURL", &[url]);
    assert!(check(&labelled, &labelled.policy(rule), ANN, BOB, "cn/write"));
}

#[test]
fn sets_that_are_too_large_deny() {
    let fixture = Fixture::new();
    // Each step doubles the values.
    let doubled = "this/-* + this/-* + ".repeat(12) + "[x]";
    let book = "ou=book,uid=ann,ou=people,dc=example,dc=com";
    // It counts neither as one that has values nor as one that has none.
    for (set, clauses, granted) in [
        (doubled.as_str(), ("none", "write"), false),
        (&doubled, ("write", "none"), false),
        ("this/-* + [x]", ("none", "write"), false),
        ("this/-* + [x]", ("write", "none"), true),
    ] {
        let (matched, others) = clauses;
        let policy = fixture.policy(&format!("access to * by set=\"{set}\" {matched} by * {others}"));
        assert_eq!(check(&fixture, &policy, BOB, book, "ou/read"), granted, "{set} {clauses:?}");
    }
}

#[test]
fn rules_by_domain() {
    let fixture = Fixture::new();
    let rule = |who: &str| fixture.policy(&format!("access to * by {who} write by * none"));
    let check = |who: &str, host: Option<&str>, expected: bool| {
        let subject = fixture.subject(BOB);
        if let Some(host) = host {
            subject.peer.domain.set(host.to_owned()).expect("once");
        }
        let entry = fixture.find(&fixture.dn(ANN)).expect("ann");
        let facts = fixture.facts(entry);
        let target = AccessTarget { dn: &entry.dn, entry: &facts };
        let policy = rule(who);
        assert!(policy.asks_about_domain());
        assert_eq!(
            policy.check(&subject, &target, Item::Entry, Privilege::Read),
            expected,
            "{who} from {host:?}"
        );
    };
    check("domain=www.example.com", Some("www.example.com"), true);
    check("domain=WWW.example.com", Some("www.example.com"), true);
    check("domain=example.com", Some("www.example.com"), false);
    check("domain.subtree=example.com", Some("www.example.com"), true);
    check("domain.subtree=example.com", Some("example.com"), true);
    check("domain.subtree=example.com", Some("badexample.com"), false);
    check("domain.subtree=example.com", Some(".example.com"), false);
    check("domain.regex=^www[0-9]*\\\\.", Some("www7.example.com"), true);
    check("domain=*", None, true);
    check("domain=unknown", None, true);
    check("domain.subtree=example.com", None, false);
}

#[test]
fn rules_by_request() {
    let fixture = Fixture::new();
    let check = |what: &str, operation: Operation, controls: &[&str], expected: bool| {
        let policy = fixture.policy(&format!("access to {what} by * write"));
        assert!(policy.asks_about_request());
        let controls = controls.iter().map(|oid| (*oid).to_owned()).collect();
        let subject = fixture.subject(BOB).in_request(RequestFacts { operation, controls });
        let entry = fixture.find(&fixture.dn(ANN)).expect("ann");
        let facts = fixture.facts(entry);
        let target = AccessTarget { dn: &entry.dn, entry: &facts };
        assert_eq!(policy.check(&subject, &target, Item::Entry, Privilege::Read), expected, "{what}");
        assert!(!policy.check(&fixture.subject(BOB), &target, Item::Entry, Privilege::Read), "{what}");
    };
    check("op=search", Operation::Search, &[], true);
    check("op=search", Operation::Compare, &[], false);
    check("op=read", Operation::Compare, &[], true);
    check("op=write", Operation::Rename, &[], true);
    check("op=modrdn", Operation::Rename, &[], true);
    check("op=write", Operation::Search, &[], false);
    check("op=all", Operation::Bind, &[], true);
    check("op=extended", Operation::Extended("1.2".to_owned()), &[], true);
    check("op=1.2", Operation::Extended("1.2".to_owned()), &[], true);
    check("op=1.2", Operation::Extended("1.3".to_owned()), &[], false);
    check("control=1.3.6.1.1.12", Operation::Search, &["1.3.6.1.1.12"], true);
    check("control=1.3.6.1.1.12", Operation::Search, &["1.2"], false);
    check("control=assert", Operation::Search, &["1.3.6.1.1.12"], true);
    check("control=pagedResults", Operation::Search, &["1.3.6.1.1.12"], false);
    check("op=whoAmI", Operation::Extended("1.3.6.1.4.1.4203.1.11.3".to_owned()), &[], true);
    check("op=search control=1.2", Operation::Search, &["1.2"], true);
    check("op=search control=1.2", Operation::Compare, &["1.2"], false);
}

#[test]
fn rights_in_the_entries() {
    let mut fixture = Fixture::new();
    fixture.add_values(
        "dc=example,dc=com",
        "OpenLDAPaci",
        &["0#subtree#grant;d,c,s,r;[all]#group#cn=staff,dc=example,dc=com", "1#entry#grant;d;[all]#public#"],
    );
    fixture.add_values(
        "ou=people,dc=example,dc=com",
        "OpenLDAPaci",
        &[
            "0#subtree#grant;x;userPassword#public#",
            "1#subtree#grant;w;userPassword#self#",
            "2#children#grant;r,s;cn,entry$deny;s;cn#users#",
        ],
    );
    let policy = fixture.policy("access to * by dynacl/aci write");
    for (who, entry, question, expected) in [
        ("", ANN, "userPassword/auth", true),
        ("", ANN, "userPassword/read", false),
        (ANN, ANN, "userPassword/write", true),
        (BOB, ANN, "userPassword/write", false),
        // What ou=people says about it ends the climb, although dc=example would grant more.
        (BOB, ANN, "cn/read", true),
        (BOB, ANN, "cn/search", false),
        (ANN, ANN, "entry/search", true),
        (BOB, ANN, "sn/read", true),
        (ANN, ANN, "sn/read", false),
        ("", "dc=example,dc=com", "entry/disclose", true),
        ("", "dc=example,dc=com", "entry/search", false),
        (BOB, STAFF, "member/read", true),
        (ANN, STAFF, "member/read", false),
        (BOB, STAFF, "member/manage", false),
    ] {
        assert_eq!(check(&fixture, &policy, who, entry, question), expected, "{who} {question} of {entry}");
    }
    let narrow = fixture.policy("access to * by aci =c by * read");
    // The clause has no `read` to give: it is passed over.
    assert!(check(&fixture, &narrow, ANN, STAFF, "cn/read"));
    assert!(check(&fixture, &narrow, BOB, STAFF, "cn/compare"));
    assert!(!check(&fixture, &narrow, ANN, STAFF, "cn/compare"));
    // What is denied alone takes away only where the clause's privileges have a sign, either one (slapd's way).
    fixture.add_values(STAFF, "OpenLDAPaci", &["0#entry#deny;w;description#public#"]);
    for (access, expected) in [("-w", false), ("+w", false), ("=w", true), ("write", true), ("-r", true)] {
        // The last clause has the list end with what was collected.
        let rules = format!("access to * by * =wrs continue by dynacl/aci {access} by * +0");
        let policy = fixture.policy(&rules);
        assert_eq!(check(&fixture, &policy, ANN, STAFF, "description/write"), expected, "{access}");
    }
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

    // The value of ann's manager is bob.
    let manager = fixture.describe("manager");
    let item = Item::Attribute { description: &manager, value: Some(BOB.as_bytes()) };
    for (who, whom, clause, expected) in [
        (ANN, BOB, "dnattr=manager selfread", true),
        (ANN, BOB, "realdnattr=manager selfread", false),
        (BOB, ANN, "realdnattr=manager realselfread", true),
        (BOB, ANN, "dnattr=manager realselfread", false),
    ] {
        let policy = fixture.policy(&format!("access to attrs=manager by {clause}"));
        let subject = fixture.subject(who).acting_as(fixture.dn(whom), whom);
        assert_eq!(
            policy.check(&subject, &target, item, Privilege::Read),
            expected,
            "{who} as {whom} {clause}"
        );
    }
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
fn verdicts_on_entries_of_others() {
    let fixture = Fixture::new();
    let check = |clauses: &str, subject: &Subject, expected: (Option<bool>, Option<bool>)| {
        let policy = fixture.policy(&format!("access to attrs=userPassword {clauses}"));
        let description = fixture.describe("userPassword");
        let class = policy.class_of(ItemKind::Attribute(&description)).expect("a class");
        let decisions = policy.decisions(subject).expect("decisions");
        let found = [Privilege::Read, Privilege::Search, Privilege::Compare]
            .map(|privilege| (decisions.general(class, privilege), decisions.of_others(class, privilege)));
        assert_eq!(found, [expected; 3], "{clauses}");
    };
    let ann = || fixture.subject(ANN);
    let acting = || ann().acting_as(fixture.dn(BOB), BOB);
    check("by self write by anonymous auth by * none", &ann(), (None, Some(false)));
    check("by self none by users read", &ann(), (None, Some(true)));
    check("by self read by users read", &ann(), (Some(true), Some(true)));
    check("by self write by * none", &fixture.subject(""), (Some(false), Some(false)));
    check("by self write by * none", &acting(), (None, Some(false)));
    check("by realself write by * none", &acting(), (None, Some(false)));
    // Entries above or below one's own are others, and so is one that a value or a group tells of.
    check("by self.level{1} write by * none", &ann(), (None, None));
    check("by self.level{-1} write by * none", &ann(), (None, None));
    check("by self write by dnattr=manager read by * none", &ann(), (None, None));
    check("by self write by group=cn=staff,dc=example,dc=com read by * none", &ann(), (None, None));
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
    check(
        "access to * by dynacl/foo read",
        Some(16),
        "dynamic access control `foo` is not known; there is `aci`",
    );
    check("access to * by aci=cn read", Some(13), "the values of `cn` are not ACIs");
    check("access to control=nosuch by * read", Some(12), "`nosuch` is neither an OID nor a name of one");
    let parse = |line: &str| AccessRule::parse(line).expect(line);
    let bad_dn = AccessPolicy::new(fixture.schema.clone(), None, &[parse("to dn=foo=a by * read")], &[]);
    assert!(matches!(bad_dn.expect_err("bad DN").fault, AccessPolicyFault::BadDn { .. }));
    let bad_filter = AccessPolicy::new(fixture.schema.clone(), None, &[parse("to filter=(a by * read")], &[]);
    assert!(matches!(bad_filter.expect_err("bad filter").fault, AccessPolicyFault::BadFilter { .. }));
}

#[test]
fn rules_go_by_names_or_not() {
    let fixture = Fixture::new();
    let suffixes = [fixture.dn("dc=example,dc=com")];
    let check = |rules: &str, expected: bool| {
        assert_eq!(fixture.policy(rules).asks_about_names(&suffixes), expected, "{rules}");
    };
    check("", false);
    check("access to attrs=userPassword by self write by * auth\naccess to * by * read", false);
    check("access to dn.base=\"\" by * read\naccess to dn.subtree=cn=Subschema by * read", false);
    check("access to dn.subtree=dc=example,dc=com by * read", false);
    check("access to dn.children=dc=com by * read", false);
    check("access to filter=(title=x) by dnattr=manager read", false);
    check("access to dn.subtree=ou=people,dc=example,dc=com by * none", true);
    check("access to dn.regex=,ou=people, by * none", true);
    check("access to * by self.level{1} read", true);
}
