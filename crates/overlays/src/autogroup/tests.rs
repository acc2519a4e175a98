//! Members that come and go.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, TREE, build, found, ruled_with, schema};

const CLASSES: &str = "attributetype ( 1.2.3.4.1 NAME 'findsURL' SUP labeledURI )\n\
    objectclass ( 1.2.3.4.2 NAME 'findingGroup' SUP top STRUCTURAL MUST cn MAY ( findsURL $ member $ ou ) )\n\
    objectclass ( 1.2.3.4.3 NAME 'emptyGroup' SUP top STRUCTURAL MUST cn MAY findsURL )";
const LINES: &str = "autogroup-attrset findingGroup findsURL member";

fn tree() -> Fixture<MemoryStore> {
    let fixture = ruled_with(CLASSES, &[(&DESCRIPTOR, LINES)], &[]);
    fixture.apply(TREE);
    fixture
}

fn group(name: &str, urls: &[&str]) -> String {
    let mut text =
        format!("dn: cn={name},{SUFFIX}\nchangetype: add\nobjectClass: findingGroup\ncn: {name}\n");
    urls.iter().for_each(|url| text += &format!("findsURL: {url}\n"));
    text
}

fn person(name: &str, sn: &str) -> String {
    format!(
        "dn: cn={name},ou=People,{SUFFIX}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: {name}\nsn: {sn}\n"
    )
}

fn members(fixture: &Fixture<MemoryStore>, name: &str) -> String {
    let told = found(fixture, &format!("(cn={name})"), &["member"]);
    told.split_once("member=").map_or(String::new(), |(_, members)| members.to_owned())
}

#[test]
fn members_follow_entries_and_urls() {
    let fixture = tree();
    let url = format!("ldap:///ou=People,{SUFFIX}??sub?(sn=x)");
    fixture.apply(&person("p", "x"));
    fixture.apply(&group("g", &[&url]));
    assert_eq!(members(&fixture, "g"), "p", "who was there already");
    let people = format!("ou=People,{SUFFIX}");
    for (change, expected) in [
        (person("q", "x"), "p|q"),
        (person("r", "y"), "p|q"),
        (format!("dn: cn=r,{people}\nchangetype: modify\nreplace: sn\nsn: x\n"), "p|q|r"),
        (format!("dn: cn=p,{people}\nchangetype: modify\nreplace: sn\nsn: y\n"), "q|r"),
        (format!("dn: cn=p,{people}\nchangetype: modify\nadd: title\ntitle: x\n"), "q|r"),
        (format!("dn: cn=q,{people}\nchangetype: modrdn\nnewrdn: cn=s\ndeleteoldrdn: 1\n"), "r|s"),
        (
            format!(
                "dn: cn=r,{people}\nchangetype: modrdn\nnewrdn: cn=r\ndeleteoldrdn: 1\nnewsuperior: {SUFFIX}\n"
            ),
            "s",
        ),
        (
            format!(
                "dn: cn=r,{SUFFIX}\nchangetype: modrdn\nnewrdn: cn=r\ndeleteoldrdn: 1\nnewsuperior: {people}\n"
            ),
            "r|s",
        ),
        (format!("dn: cn=s,{people}\nchangetype: delete\n"), "r"),
        // The group is asked for others.
        (
            format!(
                "dn: cn=g,{SUFFIX}\nchangetype: modify\nreplace: findsURL\nfindsURL: ldap:///{people}??one?(sn=y)\n"
            ),
            "p",
        ),
        (format!("dn: cn=g,{SUFFIX}\nchangetype: modify\nadd: findsURL\nfindsURL: {url}\n"), "p|r"),
        // An entry above is renamed.
        (format!("dn: {people}\nchangetype: modrdn\nnewrdn: ou=Folk\ndeleteoldrdn: 1\n"), ""),
        (format!("dn: cn=g,{SUFFIX}\nchangetype: modify\ndelete: findsURL\n"), ""),
    ] {
        fixture.apply(&change);
        assert_eq!(members(&fixture, "g"), expected, "{change}");
    }
}

#[test]
fn values_of_an_attribute_can_be_the_members() {
    let fixture = tree();
    let boss = |name: &str| format!("manager: cn={name},ou=People,{SUFFIX}\n");
    fixture.apply(&(person("p", "x") + &boss("b")));
    fixture.apply(&(person("q", "x") + &boss("B")));
    fixture.apply(&group("g", &[&format!("ldap:///{SUFFIX}?manager?sub?(sn=x)")]));
    assert_eq!(members(&fixture, "g"), "b");
    let p = format!("cn=p,ou=People,{SUFFIX}");
    fixture.apply(&format!("dn: {p}\nchangetype: modify\nreplace: manager\n{}", boss("c")));
    // A member that another entry still names stays as it was written first.
    assert_eq!(members(&fixture, "g"), "b|c");
    fixture.apply(&format!("dn: {p}\nchangetype: delete\n"));
    assert_eq!(members(&fixture, "g"), "b");
}

#[test]
fn members_are_nobodys_to_change() {
    let fixture = tree();
    fixture.apply(&group("g", &["ldap://other.example.com/??sub?(sn=*)"]));
    let g = format!("cn=g,{SUFFIX}");
    for (change, expected) in [
        (format!("add: member\nmember: {SUFFIX}"), "19 attempt to modify dynamic group member attribute"),
        ("replace: member".to_owned(), "19 attempt to modify dynamic group member attribute"),
        ("add: ou\nou: x".to_owned(), "0"),
    ] {
        assert_eq!(fixture.change(&format!("dn: {g}\nchangetype: modify\n{change}\n")), expected, "{change}");
    }
    assert_eq!(members(&fixture, "g"), "");
}

#[test]
fn mistakes_are_named() {
    let schema = schema(CLASSES);
    for (lines, fault) in [
        ("autogroup-attrset nobody findsURL member", "the object class \"nobody\" is unknown"),
        ("autogroup-attrset findingGroup sn member", "\"sn\" is no subtype of labeledURI"),
        ("autogroup-attrset findingGroup findsURL sn", "\"sn\" has no names as values"),
        (&format!("{LINES}\n{LINES}"), "the class is configured already"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
    let overlay = build(&DESCRIPTOR, &schema, "autogroup-attrset emptyGroup findsURL member").unwrap();
    assert!(
        overlay.notes(&schema, &larix_engine::index::IndexConfig::default())[0]
            .contains("does not allow member")
    );
}
