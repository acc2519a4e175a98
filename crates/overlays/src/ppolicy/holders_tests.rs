//! Filters for a policy find whom it holds for, and look at few others.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::DatabaseSettings;
use larix_engine::index::Kinds;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::search::internal;
use larix_proto::{FilterBuf, Scope};
use larix_store::Store as _;
use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, directory, found};

const PEOPLE: usize = 300;

const LINES: &str = "ppolicy_default cn=default,dc=example,dc=com\n\
    ppolicy_rules dn.base=cn=p1,ou=People,dc=example,dc=com no_policy\n\
    ppolicy_rules dn.children=ou=Admins,dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com\n\
    ppolicy_rules dn.base=cn=p2,ou=People,dc=example,dc=com policy_dn=cn=strict,dc=example,dc=com\n\
    ppolicy_rules group=cn=crew,dc=example,dc=com policy_dn=cn=crew's,dc=example,dc=com\n\
    ppolicy_rules filter=(title=boss) policy_dn=cn=bosses',dc=example,dc=com\n\
    ppolicy_rules group=cn=crew,dc=example,dc=com require_password=no policy_dn=cn=gone,dc=example,dc=com\n\
    ppolicy_rules dn.onelevel=ou=Nowhere,dc=example,dc=com policy_dn=cn=nobody's,dc=example,dc=com\n\
    ppolicy_rules dn.regex=cn=q(.),ou=People,dc=example,dc=com policy_dn.expand=cn=$1,dc=example,dc=com";

fn full(indexed: &[(&str, Kinds)]) -> Fixture<MemoryStore> {
    let fixture = directory(&[(&DESCRIPTOR, LINES)]);
    let mut settings = DatabaseSettings::clone(&fixture.database().settings());
    for (name, kinds) in indexed {
        settings.index.also(fixture.schema.describe(name).unwrap(), *kinds);
    }
    fixture.reconfigure(settings);
    let mut ldif =
        format!("dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n");
    for name in ["default", "strict", "crew's", "bosses'", "nobody's", "mine", "7"] {
        ldif += &format!(
            "\ndn: cn={name},{SUFFIX}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: {name}\n\
             pwdAttribute: userPassword\n"
        );
    }
    for name in ["People", "Admins"] {
        ldif += &format!("\ndn: ou={name},{SUFFIX}\nobjectClass: organizationalUnit\nou: {name}\n");
    }
    let person = |name: &str, above: &str, more: &str| {
        format!(
            "\ndn: cn={name},ou={above},{SUFFIX}\nobjectClass: organizationalPerson\ncn: {name}\nsn: s\n{more}\n"
        )
    };
    for number in 0..PEOPLE {
        let title = if number % 100 == 50 { "\ntitle: boss" } else { "" };
        let own = if number == 3 { "\npwdPolicySubentry: cn=mine,dc=example,dc=com" } else { "" };
        ldif += &person(&format!("p{number}"), "People", &format!("userPassword: pw{title}{own}"));
    }
    ldif += &person("q7", "People", "userPassword: pw");
    ldif += &person("without", "People", "title: boss");
    ldif += &person("root", "Admins", "userPassword: pw");
    ldif += &person("former", "Admins", "description: without a password");
    let crew = format!(
        "member: cn=p4,ou=People,{SUFFIX}\nmember: cn=p2,ou=People,{SUFFIX}\nmember: cn=x,dc=elsewhere"
    );
    ldif += &format!("\ndn: cn=crew,{SUFFIX}\nobjectClass: groupOfNames\ncn: crew\n{crew}\n");
    fixture.apply(&ldif);
    fixture
}

/// How many entries a search looks at.
fn looked(fixture: &Fixture<MemoryStore>, filter: &str) -> u64 {
    let filter = FilterBuf::parse(filter).unwrap();
    let filter = fixture.schema.bind_filter(filter.as_filter());
    let database = fixture.database();
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    let base = fixture.schema.parse_dn(SUFFIX).unwrap();
    let query = InternalSearch::new(&base, Scope::Subtree, &filter);
    internal::search(&view, &query, &mut |_| Ok(true)).unwrap().looked
}

#[test]
fn a_filter_for_a_policy_looks_at_those_who_may_have_it() {
    let fixture = full(&[]);
    let shown = |fixture: &Fixture<MemoryStore>, policy: &str| {
        let all = found(fixture, "(objectClass=*)", &["pwdPolicySubentry"]);
        let own = format!("pwdPolicySubentry={policy}");
        let under = all.split("; ").filter_map(|entry| entry.strip_suffix(&own)?.strip_suffix(": "));
        let mut under: Vec<&str> = under.collect();
        under.sort_unstable();
        under.join("; ")
    };
    let all = PEOPLE as u64;
    let few = 12;
    let check = |fixture: &Fixture<MemoryStore>, policy: &str, expected: Option<&str>, most: u64| {
        let filter = format!("(pwdPolicySubentry=cn={policy},{SUFFIX})");
        let under = found(fixture, &filter, &["1.1"]);
        assert_eq!(under, shown(fixture, policy), "{policy}");
        if let Some(expected) = expected {
            assert_eq!(under, expected, "{policy}");
        }
        let looked = looked(fixture, &filter);
        assert!(looked <= most && (most <= few || looked >= all), "{policy}: {looked} of {most}");
    };
    // What a submatch fills in may be any policy.
    for (policy, expected) in [("strict", "p2; root"), ("crew's", "p4"), ("mine", "p3"), ("7", "q7")] {
        check(&fixture, policy, Some(expected), 2 * all);
    }
    let mut lines: Vec<&str> = LINES.lines().collect();
    lines.pop();
    let without = lines.join("\n");
    let rebuilt = |fixture: &Fixture<MemoryStore>| {
        let mut settings = DatabaseSettings::clone(&fixture.database().settings());
        settings.overlays =
            vec![crate::testing::build(&DESCRIPTOR, &fixture.schema, &without).unwrap()].into();
        fixture.reconfigure(settings);
    };
    rebuilt(&fixture);
    for (policy, expected, most) in [
        ("strict", Some("p2; root"), few),
        ("crew's", Some("p4"), few),
        ("mine", Some("p3"), few),
        ("7", Some(""), few),
        ("gone", Some(""), few),
        // No index tells who is a boss, or has a password.
        ("bosses'", Some("p150; p250; p50"), 2 * all),
        ("default", None, 2 * all),
        // Where there is no container, the rule may be about what is above the database.
        ("nobody's", Some(""), 2 * all),
    ] {
        check(&fixture, policy, expected, most);
    }
    let fixture =
        full(&[("title", Kinds::EQUALITY), ("cn", Kinds::EQUALITY), ("userPassword", Kinds::PRESENCE)]);
    rebuilt(&fixture);
    check(&fixture, "bosses'", Some("p150; p250; p50"), few);
    let both = format!("(&(cn=p7)(pwdPolicySubentry=cn=default,{SUFFIX}))");
    assert_eq!((found(&fixture, &both, &["1.1"]).as_str(), looked(&fixture, &both)), ("p7", 1));
    check(&fixture, "default", None, 2 * all);
    let without = format!("(!(pwdPolicySubentry=cn=default,{SUFFIX}))");
    assert!(found(&fixture, &without, &["1.1"]).contains("root"));
}
