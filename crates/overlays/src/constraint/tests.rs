//! Rules about values that OpenLDAP 2.5 has not, and rules that do not parse.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;

use larix_store::memory::MemoryStore;

use super::{ConstraintSettings, Constraints, DESCRIPTOR};
use crate::ppolicy;
use crate::testing::{self as common, Fixture, SUFFIX, TREE, memory};

fn lines(rules: &[&[&str]]) -> Vec<Vec<String>> {
    rules.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect()
}

fn fixture(rules: &[&[&str]], allow_empty: bool) -> Fixture<MemoryStore> {
    let schema = common::schema("");
    let mut settings = common::settings(&schema);
    let suffix = schema.parse_dn(SUFFIX).unwrap();
    let parsed =
        ConstraintSettings::parse(&schema, std::slice::from_ref(&suffix), &lines(rules), allow_empty);
    settings.overlays.push(Arc::new(Constraints::new(parsed.unwrap(), suffix)));
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture
}

#[test]
fn rules_are_negated() {
    const URI: &[&str] = &["mail", "neguri", "ldap:///ou=People,dc=example,dc=com?mail,description?sub"];
    const SET: &[&str] = &["description", "negset", "this/description & this/cn"];
    let modify = |lines: &str| format!("dn: cn=Bo,ou=People,{SUFFIX}\nchangetype: modify\n{lines}");
    for (change, expected) in [
        ("add: mail\nmail: ANN@example.com\n", "19 modify breaks constraint on mail"),
        ("add: mail\nmail: bo@example.com\n", "0"),
        ("add: description\ndescription: BO\n", "19 modify breaks constraint on description"),
        ("add: description\ndescription: Bob\n", "0"),
        // What a change leaves counts, not what was there.
        (
            "add: cn\ncn: x\n-\nadd: description\ndescription: x\n",
            "19 modify breaks constraint on description",
        ),
        ("delete: mail\n", "16 modify/delete: mail: no such attribute"),
    ] {
        assert_eq!(fixture(&[URI, SET], false).change(&modify(change)), expected, "{change}");
    }
}

#[test]
fn a_set_that_is_too_large_to_be_told_does_not_hold() {
    for (kind, set) in
        [("negset", "(this/cn + this/sn) & [forbidden]"), ("set", "(this/cn + this/sn) | [all]")]
    {
        let fixture = fixture(&[&["cn,sn", kind, set]], false);
        let person = |values: u32| {
            let lines: String = (0..values).map(|number| format!("cn: {number}\nsn: {number}\n")).collect();
            fixture.change(&format!("dn: cn=Di,ou=People,{SUFFIX}\nobjectClass: person\ncn: Di\n{lines}"))
        };
        assert_eq!(person(300), "19 add breaks constraint on cn", "{kind}");
        assert_eq!(person(3), "0", "{kind}");
    }
}

#[test]
fn values_that_an_entry_has_left_in_the_store_count() {
    let rules: &[&[&str]] = &[
        &["cn", "negset", "this/cn & this/description"],
        &["title", "size", "3", "restrict=ldap:///dc=example,dc=com??sub?(description=strict)"],
    ];
    for many in [10, 1_000] {
        let fixture = fixture(rules, false);
        let lines: String = (0..many).map(|number| format!("description: {number}\n")).collect();
        let modify = |lines: &str| {
            fixture.change(&format!("dn: cn=Bo,ou=People,{SUFFIX}\nchangetype: modify\n{lines}"))
        };
        assert_eq!(modify(&format!("add: description\ndescription: strict\n{lines}")), "0");
        assert_eq!(modify("add: cn\ncn: 7\n"), "19 modify breaks constraint on cn", "{many}");
        assert_eq!(modify("add: cn\ncn: other\n"), "0", "{many}");
        assert_eq!(modify("add: title\ntitle: boss\n"), "19 modify breaks constraint on title", "{many}");
    }
}

#[test]
fn counts_are_those_of_what_is_left() {
    let fixture = fixture(&[&["description", "count", "2"]], false);
    let modify =
        |lines: &str| fixture.change(&format!("dn: cn=Bo,ou=People,{SUFFIX}\nchangetype: modify\n{lines}"));
    let broken = "19 modify breaks constraint on description";
    assert_eq!(modify("add: description\ndescription: 1\ndescription: 2\n"), "0");
    assert_eq!(modify("add: description\ndescription: 3\n"), broken);
    assert_eq!(modify("delete: description\ndescription: 1\n-\nadd: description\ndescription: 3\n"), "0");
    assert_eq!(modify("delete: description\n-\nadd: description\ndescription: 3\ndescription: 4\n"), "0");
    assert_eq!(modify("replace: description\ndescription: 1\ndescription: 2\ndescription: 3\n"), broken);
    // Attributes that a change does not touch are not counted.
    assert_eq!(modify("add: title\ntitle: x\n"), "0");
}

/// Also where the permissive modify control takes values that are there, or gone, already.
#[test]
fn many_values_are_counted_as_they_are() {
    let fixture = fixture(&[&["description", "count", "320"]], false);
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("description: {number}\n")).collect()
    };
    let user = format!("cn=Di,ou=People,{SUFFIX}");
    fixture.apply(&format!("dn: {user}\nobjectClass: person\nsn: x\n{}", lines(0..300)));
    let modify = |modifications: &str| {
        let control = "control: 1.2.840.113556.1.4.1413 true";
        fixture.change(&format!("dn: {user}\n{control}\nchangetype: modify\n{modifications}"))
    };
    let broken = "19 modify breaks constraint on description";
    let (gone, new) = (lines(1_000..1_100), lines(300..321));
    assert_eq!(modify(&format!("delete: description\n{gone}-\nadd: description\n{new}")), broken);
    assert_eq!(modify(&format!("add: description\n{}", lines(0..100))), "0");
    assert_eq!(modify(&format!("add: description\n{}", lines(200..320))), "0");
    assert_eq!(modify(&format!("add: description\n{}", lines(319..321))), broken);
}

#[test]
fn an_increment_is_judged_by_what_it_leads_to() {
    let user = format!("cn=Cy,ou=People,{SUFFIX}");
    let after = |modifications: &str| {
        let rules: &[&[&str]] =
            &[&["uidNumber", "regex", "^[0-9]{4}$"], &["gidNumber", "set", "this/gidNumber & [1001]"]];
        let fixture = fixture(rules, false);
        fixture.apply(&format!(
            "dn: {user}\nobjectClass: account\nobjectClass: posixAccount\nuid: cy\ncn: Cy\nuidNumber: 9998\ngidNumber: 1001\n\
             homeDirectory: /home/cy\n"
        ));
        let answer = fixture.change(&format!("dn: {user}\nchangetype: modify\n{modifications}"));
        (answer, fixture.value(&user, "uidNumber").unwrap_or_default())
    };
    let kept = |answer: &str, number: &str| (answer.to_owned(), number.to_owned());
    // The amount is no value: it has one digit.
    assert_eq!(after("increment: uidNumber\nuidNumber: 1\n"), kept("0", "9999"));
    let broken = "19 modify breaks constraint on uidNumber";
    assert_eq!(after("increment: uidNumber\nuidNumber: 2\n"), kept(broken, "9998"));
    // An amount that would be a good value makes no bad one good.
    assert_eq!(after("increment: uidNumber\nuidNumber: 1000\n"), kept(broken, "9998"));
    assert_eq!(
        after("increment: gidNumber\ngidNumber: 1\n"),
        kept("19 modify breaks constraint on gidNumber", "9998")
    );
}

#[test]
fn values_that_many_entries_are_looked_at_for_are_refused() {
    let fixture = fixture(&[&["mail", "neguri", "ldap:///?description?sub"]], false);
    for number in 0..500 {
        fixture.apply(&format!(
            "dn: cn={number},ou=People,{SUFFIX}\nobjectClass: person\nsn: x\ndescription: d\n"
        ));
    }
    let person = |values: u32| {
        let mails: String = (0..values).map(|number| format!("mail: {number}@x\n")).collect();
        fixture.change(&format!("dn: cn=Di,ou=People,{SUFFIX}\nobjectClass: inetOrgPerson\nsn: x\n{mails}"))
    };
    let refused = person(1_500);
    assert!(refused.starts_with("11 constraint: too many entries are looked at"), "{refused}");
    assert_eq!(person(500), "0");
}

/// As in slapd (slapd.overlays(5)): behind an overlay that hashes passwords it sees them in the clear.
#[test]
fn the_last_overlay_sees_a_change_first() {
    let hashing = (&ppolicy::DESCRIPTOR, "ppolicy_hash_cleartext on");
    let size = (&DESCRIPTOR, "constraint_attribute userPassword size 12");
    let refused = "19 modify breaks constraint on userPassword";
    for (overlays, expected) in [([hashing, size], "0"), ([size, hashing], refused)] {
        let fixture = common::directory(&overlays);
        fixture.apply(TREE);
        let dn = format!("cn=Bo,ou=People,{SUFFIX}");
        let set = format!("dn: {dn}\nchangetype: modify\nreplace: userPassword\nuserPassword: short\n");
        assert_eq!(fixture.change(&set), expected, "{overlays:?}");
        let is_hashed = fixture.value(&dn, "userPassword").is_some_and(|stored| stored.starts_with("{SSHA}"));
        assert_eq!(is_hashed, expected == "0", "{overlays:?}");
    }
}

#[test]
fn an_empty_modify_is_refused_unless_it_is_allowed() {
    let empty = format!("dn: cn=Bo,ou=People,{SUFFIX}\nchangetype: modify\n");
    let rules: &[&[&str]] = &[&["description", "count", "2"]];
    assert_eq!(fixture(rules, false).change(&empty), "21 constraint_update() got null modlist");
    let allowed = fixture(rules, true).change(&empty);
    assert!(!allowed.starts_with("21"), "{allowed}");
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    let schema = common::schema("");
    let suffix = schema.parse_dn(SUFFIX).unwrap();
    let table: &[(&[&str], &str)] = &[
        (&["mail", "regex"], "write attributes, one of regex"),
        (&["nonsense", "size", "1"], "<nonsense>"),
        (&["mail", "length", "1"], "the kind \"length\" is unknown"),
        (&["mail", "size", "1k"], "size \"1k\": not a number"),
        (&["mail", "regex", "(a"], "not a regular expression"),
        (&["mail", "regex", "(a)\\1"], "back-references"),
        (&["mail", "uri", "ldap:///dc=x??sub"], "names no attribute"),
        (&["mail", "uri", "ldap://host/dc=x?mail?sub"], "names a server"),
        (&["mail", "set", "this/mail & "], "this/mail & \n            ^"),
        (&["mail", "size", "1", "only=x"], "only restrict=URI may follow"),
        (&["mail", "size", "1", "restrict=ldap:///dc=other"], "not within this database"),
        (&["mail", "size", "1", "restrict=ldap:///?mail"], "attributes mean nothing here"),
    ];
    for (words, expected) in table {
        let parsed =
            ConstraintSettings::parse(&schema, std::slice::from_ref(&suffix), &lines(&[words]), false);
        let error = parsed.unwrap_err();
        assert!(error.contains(expected), "{error} lacks {expected}");
    }
}
