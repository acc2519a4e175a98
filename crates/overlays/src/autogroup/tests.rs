//! Members that come and go.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::mpsc;

use larix_engine::csn::Csn;
use larix_engine::index::Kinds;
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange};
use larix_engine::time::Timestamp;
use larix_engine::write::AttributeValues;
use larix_store::memory::MemoryStore;
use uuid::Uuid;

use super::DESCRIPTOR;
use crate::testing::{Fixture, START, SUFFIX, TREE, build, found, memory, ruled_with, schema, settings};

const CLASSES: &str = "attributetype ( 1.2.3.4.1 NAME 'findsURL' SUP labeledURI )\n\
    objectclass ( 1.2.3.4.2 NAME 'findingGroup' SUP top STRUCTURAL MUST cn MAY ( findsURL $ member $ ou ) )\n\
    objectclass ( 1.2.3.4.3 NAME 'emptyGroup' SUP top STRUCTURAL MUST cn MAY findsURL )\n\
    objectclass ( 1.2.3.4.4 NAME 'finding' SUP top AUXILIARY MAY ( findsURL $ member ) )";
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
fn entries_that_are_moved_away_leave_whatever_referential_integrity_does() {
    let (own, other) = ((&DESCRIPTOR, LINES), (&crate::refint::DESCRIPTOR, "refint_attributes member"));
    for (overlays, count) in [([own, other], 1), ([other, own], 1), ([own, other], 20), ([other, own], 20)] {
        let fixture = ruled_with(CLASSES, &overlays, &[]);
        fixture.apply(TREE);
        fixture.apply(&group("g", &[&format!("ldap:///ou=People,{SUFFIX}??sub?(sn=x)")]));
        fixture.apply(&format!(
            "dn: ou=Moving,ou=People,{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\nou: Moving\n"
        ));
        for number in 0..count {
            fixture.apply(&person(&format!("p{number}"), "x").replace("ou=People", "ou=Moving,ou=People"));
        }
        fixture.apply(&person("stays", "x"));
        fixture.apply(&format!(
            "dn: ou=Moving,ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: ou=Moved\ndeleteoldrdn: 1\nnewsuperior: {SUFFIX}\n"
        ));
        assert_eq!(members(&fixture, "g"), "stays", "{count} behind {overlays:?}");
    }
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

/// As memberUid of a posixGroup. What the attribute does not take is left out, and is no reason to refuse the person's change.
#[test]
fn members_need_not_be_names() {
    let fixture = ruled_with(CLASSES, &[(&DESCRIPTOR, "autogroup-attrset findingGroup findsURL ou")], &[]);
    fixture.apply(TREE);
    let ous = || {
        let shown = fixture.show(&format!("cn=g,{SUFFIX}"));
        shown.lines().filter(|line| line.starts_with("ou: ")).collect::<Vec<_>>().join("|")
    };
    fixture.apply(&(person("p", "x") + "title: one\ntitle: two\n"));
    fixture.apply(&group(
        "g",
        &[
            &format!("ldap:///ou=People,{SUFFIX}?title?sub?(sn=x)"),
            &format!("ldap:///ou=People,{SUFFIX}?userPassword?sub?(sn=x)"),
        ],
    ));
    let people = format!("ou=People,{SUFFIX}");
    for (change, expected) in [
        (person("q", "x") + "title: Two\ntitle: three\nuserPassword:: /w==\n", "ou: one|ou: two|ou: three"),
        (format!("dn: cn=p,{people}\nchangetype: modify\ndelete: title\ntitle: one\n"), "ou: two|ou: three"),
        (format!("dn: cn=p,{people}\nchangetype: delete\n"), "ou: two|ou: three"),
        (format!("dn: cn=q,{people}\nchangetype: modify\nreplace: sn\nsn: y\n"), ""),
    ] {
        fixture.apply(&change);
        assert_eq!(ous(), expected, "{change}");
    }
}

/// The attribute that they come from may heed case where the member attribute does not, and the other way round.
#[test]
fn a_member_in_other_letters_stays() {
    let other = |source: &str, member: &str, expected: &str| {
        let line = format!("autogroup-attrset findingGroup findsURL {member}");
        let classes = CLASSES.replace("$ ou )", &format!("$ ou $ {member} )"));
        let fixture = ruled_with(&classes, &[(&DESCRIPTOR, &line)], &[]);
        fixture.apply(TREE);
        fixture.apply(&(person("p", "x") + &format!("{source}: One\n")));
        fixture.apply(&(person("q", "x") + &format!("{source}: one\n")));
        fixture.apply(&group("g", &[&format!("ldap:///ou=People,{SUFFIX}?{source}?sub?(sn=x)")]));
        let change = format!("dn: cn=p,ou=People,{SUFFIX}\nchangetype: modify\ndelete: {source}\n");
        fixture.apply(&change);
        let shown = fixture.show(&format!("cn=g,{SUFFIX}"));
        let head = format!("{member}: ");
        let left: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix(&head)).collect();
        assert_eq!(left.join("|"), expected, "{source}: {member}");
    };
    other("labeledURI", "description", "One");
    other("title", "labeledURI", "one");
}

/// By a rename of the entry, of one above it, and by a change of the value that is the member.
#[test]
fn a_member_is_written_as_its_entry_has_it_now() {
    let fixture = tree();
    let stored = |name: &str| {
        let shown = fixture.show(&format!("cn={name},{SUFFIX}"));
        shown.lines().filter_map(|line| line.strip_prefix("member: ")).collect::<Vec<_>>().join("|")
    };
    fixture.apply(&(person("p", "x") + &format!("manager: cn=m,{SUFFIX}\n")));
    fixture.apply(&group("names", &[&format!("ldap:///ou=People,{SUFFIX}??sub?(sn=x)")]));
    fixture.apply(&group("values", &[&format!("ldap:///ou=People,{SUFFIX}?manager?sub?(sn=x)")]));
    let (p, people) = (format!("cn=p,ou=People,{SUFFIX}"), format!("ou=People,{SUFFIX}"));
    for (change, names, values) in [
        (
            format!("dn: {p}\nchangetype: modrdn\nnewrdn: cn=P\ndeleteoldrdn: 1\n"),
            format!("cn=P,ou=People,{SUFFIX}"),
            format!("cn=m,{SUFFIX}"),
        ),
        (
            format!("dn: {people}\nchangetype: modrdn\nnewrdn: ou=PEOPLE\ndeleteoldrdn: 1\n"),
            format!("cn=P,ou=PEOPLE,{SUFFIX}"),
            format!("cn=m,{SUFFIX}"),
        ),
        (
            format!("dn: {p}\nchangetype: modify\nreplace: manager\nmanager: cn=M,{SUFFIX}\n"),
            format!("cn=P,ou=PEOPLE,{SUFFIX}"),
            format!("cn=M,{SUFFIX}"),
        ),
    ] {
        fixture.apply(&change);
        assert_eq!((stored("names"), stored("values")), (names, values), "{change}");
    }
}

#[test]
fn members_that_follow_make_no_others() {
    let (own, numbers) = ((&DESCRIPTOR, LINES), (&crate::usn::DESCRIPTOR, ""));
    for overlays in [[own, numbers], [numbers, own]] {
        let fixture = ruled_with(CLASSES, &overlays, &[]);
        fixture.apply(TREE);
        // Where members made others, it would be one and none in turns.
        let dn = format!("cn=g,{SUFFIX}");
        fixture.apply(&group("g", &[&format!("ldap:///{dn}??base?(!(member={dn}))")]));
        assert_eq!(members(&fixture, "g"), "g", "{overlays:?}");
    }
}

/// The group has the other entry as long as that one does not name the group, which it does as long as it is a member.
#[test]
fn overlays_that_answer_each_other_come_to_an_end() {
    let definition = "automember-definition own dc=example,dc=com (member=cn=other,dc=example,dc=com) description:cn \
                      cn=other,dc=example,dc=com";
    let (own, other) = ((&DESCRIPTOR, LINES), (&crate::automember::DESCRIPTOR, definition));
    for overlays in [[own, other], [other, own]] {
        let fixture = ruled_with(CLASSES, &overlays, &[]);
        fixture.apply(TREE);
        fixture.apply(&format!("dn: cn=other,{SUFFIX}\nobjectClass: device\ncn: other\n"));
        let url = format!("ldap:///cn=other,{SUFFIX}??base?(!(description=g))");
        let answer = fixture.change(&group("g", &[&url]));
        assert_eq!(answer, "11 more than 100 changes follow one from the other", "{overlays:?}");
        assert!(fixture.entry(&format!("cn=g,{SUFFIX}")).is_none(), "{overlays:?}");
    }
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
        ("autogroup-attrset findingGroup findsURL displayName", "\"displayName\" has one value only"),
        ("autogroup-attrset findingGroup findsURL jpegPhoto", "\"jpegPhoto\" has no equality rule"),
        (&format!("{LINES}\n{LINES}"), "the class is configured already"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
    let overlay = build(&DESCRIPTOR, &schema, "autogroup-attrset emptyGroup findsURL member").unwrap();
    assert!(overlay.notes(&schema)[0].contains("does not allow member"));
}

/// An entry of this content comes from another server.
fn replicate(fixture: &Fixture<MemoryStore>, at: i64, dn: &str, values: &[(&str, &str)]) {
    let entry_uuid = Uuid::from_u128(7);
    let csn = Csn { time: Timestamp(START.0 + at * 1_000_000), count: 0, server_id: 2, modification: 0 };
    let (uuid, csn) = (entry_uuid.to_string(), csn.to_string());
    let mut attributes: Vec<AttributeValues> = Vec::new();
    for (name, value) in [("entryUUID", uuid.as_str()), ("entryCSN", &csn)].iter().chain(values) {
        let value = value.as_bytes().to_vec();
        match attributes.iter_mut().find(|own| own.description == *name) {
            Some(own) => own.values.push(value),
            None => attributes.push(AttributeValues { description: (*name).to_owned(), values: vec![value] }),
        }
    }
    let put = ReplicatedChange::Put { entry_uuid, dn: dn.to_owned(), attributes, state: None, place: None };
    let batch = ReplicatedBatch { changes: vec![put], ..ReplicatedBatch::default() };
    let (sender, receiver) = mpsc::channel();
    fixture.directory.databases()[0].replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
}

/// Nobody tells the overlay: the next change of a person finds the group, whether an index tells who has URLs or only the class does.
#[test]
fn a_class_that_comes_from_another_server_makes_a_group() {
    let lines = "autogroup-attrset finding findsURL member";
    for kinds in [Kinds::PRESENCE.or(Kinds::EQUALITY), Kinds::EQUALITY] {
        let schema = schema(&format!("{}\n{CLASSES}", larix_schema::bundled("dyngroup").unwrap()));
        let mut settings = settings(&schema);
        settings.index.also(schema.describe("findsURL").unwrap(), kinds);
        settings.index.also(schema.describe("objectClass").unwrap(), Kinds::EQUALITY);
        settings.overlays.push(build(&DESCRIPTOR, &schema, lines).unwrap());
        let fixture = Fixture::of(schema, vec![(memory(), settings)]);
        fixture.apply(TREE);
        let (dn, url) = (format!("cn=g,{SUFFIX}"), format!("ldap:///ou=People,{SUFFIX}??sub?(sn=x)"));
        let plain = [("objectClass", "emptyGroup"), ("cn", "g"), ("findsURL", &url)];
        replicate(&fixture, 1, &dn, &plain);
        // The URLs are kept from here on.
        fixture.apply(&person("p", "x"));
        fixture.apply(&person("q", "x"));
        assert_eq!(members(&fixture, "g"), "", "{kinds:?}");
        replicate(&fixture, 2, &dn, &[&[("objectClass", "finding")][..], &plain].concat());
        fixture.apply(&person("r", "x"));
        assert_eq!(members(&fixture, "g"), "r", "{kinds:?}");
    }
}
