//! Which entries have what subentries give.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, TREE, compared, found, ruled_with};

/// An area with two subentries, and an inner area with one.
const AREAS: &str = "
    dn: cn=place,dc=example,dc=com
    changetype: add
    objectClass: subentry
    objectClass: collectiveAttributeSubentry
    objectClass: extensibleObject
    cn: place
    subtreeSpecification: { base \"ou=People\", minimum 1, specificationFilter item:person }
    c-l: Here
    c-o: Example

    dn: cn=phone,dc=example,dc=com
    changetype: add
    objectClass: subentry
    objectClass: collectiveAttributeSubentry
    objectClass: extensibleObject
    cn: phone
    subtreeSpecification: { specificExclusions { chopBefore: \"ou=Groups\" } }
    c-TelephoneNumber: +1 1

    dn: ou=Own,ou=People,dc=example,dc=com
    changetype: add
    objectClass: organizationalUnit
    ou: Own

    dn: cn=own,ou=Own,ou=People,dc=example,dc=com
    changetype: add
    objectClass: subentry
    objectClass: collectiveAttributeSubentry
    objectClass: extensibleObject
    cn: own
    subtreeSpecification: {}
    c-l: There

    dn: cn=Cid,ou=Own,ou=People,dc=example,dc=com
    changetype: add
    objectClass: inetOrgPerson
    cn: Cid
    sn: Cid

    dn: cn=Bo,ou=People,dc=example,dc=com
    changetype: modify
    add: collectiveExclusions
    collectiveExclusions: c-l
";

fn directory(rules: &[&str]) -> Fixture<MemoryStore> {
    let mut fixture = ruled_with(larix_schema::bundled("collective").unwrap(), &[(&DESCRIPTOR, "")], rules);
    fixture.apply(TREE);
    fixture.apply(AREAS);
    fixture.bind("");
    fixture
}

const OPEN: &[&str] = &["to * by * read"];

#[test]
fn entries_have_what_their_collections_give() {
    let fixture = directory(OPEN);
    let all = &["c-l", "c-o", "c-TelephoneNumber"][..];
    for (filter, attributes, expected) in [
        ("(cn=ann lee)", all, "Ann Lee: c-TelephoneNumber=+1 1, c-l=Here, c-o=Example"),
        ("(cn=bo)", all, "Bo: c-TelephoneNumber=+1 1, c-o=Example"),
        ("(cn=cid)", all, "Cid: c-TelephoneNumber=+1 1, c-l=Here|There, c-o=Example"),
        ("(ou=own)", all, "Own: c-TelephoneNumber=+1 1, c-l=There"),
        ("(ou=people)", all, "People: c-TelephoneNumber=+1 1"),
        ("(ou=groups)", all, "Groups"),
        ("(c-l=here)", &["1.1"], "Ann Lee; Cid"),
        // A collective attribute is a subtype of the attribute that is not.
        ("(l=here)", &["l"], "Ann Lee: c-l=Here; Cid: c-l=Here|There"),
        ("(&(sn=*)(!(c-l=here)))", &["1.1"], "Bo"),
        ("(c-TelephoneNumber=+11)", &["1.1"], "Ann Lee; Bo; Cid; Own; People; suffix"),
        ("(c-o=*)", &["1.1"], "Ann Lee; Bo; Cid"),
        (
            "(cn=ann lee)",
            &["collectiveAttributeSubentries"],
            "Ann Lee: collectiveAttributeSubentries=phone|place",
        ),
        ("(collectiveAttributeSubentries=cn=place,dc=example,dc=com)", &["1.1"], "Ann Lee; Bo; Cid"),
        (
            "(cn=ann lee)",
            &["*"],
            "Ann Lee: c-TelephoneNumber=+1 1, c-l=Here, c-o=Example, cn=Ann Lee, mail=ann@example.com, objectClass=inetOrgPerson, sn=Lee",
        ),
    ] {
        assert_eq!(found(&fixture, filter, attributes), expected, "{filter}");
    }
    let ann = format!("cn=Ann Lee,ou=People,{SUFFIX}");
    for (attribute, value, code) in [("c-l", "HERE", 6), ("c-l", "there", 5), ("c-st", "x", 16)] {
        assert_eq!(compared(&fixture, &ann, attribute, value), code, "{attribute} {value}");
    }
}

#[test]
fn requesters_are_given_what_they_may_read() {
    for (rules, expected, by_filter) in [
        (&["to dn.base=cn=place,dc=example,dc=com by * none", "to * by * read"][..], "Ann Lee", ""),
        (
            &["to dn.base=cn=place,dc=example,dc=com attrs=c-l by * none", "to * by * read"],
            "Ann Lee: collectiveAttributeSubentries=place",
            "",
        ),
        (
            &["to dn.subtree=ou=People,dc=example,dc=com attrs=c-l by * none", "to * by * read"],
            "Ann Lee: collectiveAttributeSubentries=place",
            "",
        ),
        (OPEN, "Ann Lee: c-l=Here, collectiveAttributeSubentries=place", "Ann Lee; Cid"),
    ] {
        let fixture = directory(rules);
        let shown = found(&fixture, "(cn=ann lee)", &["c-l", "collectiveAttributeSubentries"]);
        assert_eq!(
            shown.replace("phone|", "").replace(": collectiveAttributeSubentries=phone", ""),
            expected
        );
        assert_eq!(found(&fixture, "(c-l=here)", &["1.1"]), by_filter, "{rules:?}");
    }
}

#[test]
fn changes_of_subentries_are_seen_at_once() {
    let mut fixture = directory(&[]);
    let given = |fixture: &Fixture<MemoryStore>| found(fixture, "(cn=ann lee)", &["c-l"]);
    assert_eq!(given(&fixture), "Ann Lee: c-l=Here");
    fixture.bind("cn=Manager,dc=example,dc=com");
    for (change, expected) in [
        ("cn=place,dc=example,dc=com\nchangetype: modify\nreplace: c-l\nc-l: There", "Ann Lee: c-l=There"),
        (
            "cn=Ann Lee,ou=People,dc=example,dc=com\nchangetype: modify\nadd: collectiveExclusions\n\
             collectiveExclusions: 2.5.18.0",
            "Ann Lee",
        ),
        (
            "cn=Ann Lee,ou=People,dc=example,dc=com\nchangetype: modify\ndelete: collectiveExclusions",
            "Ann Lee: c-l=There",
        ),
        // What nobody understands is nobody's.
        (
            "cn=place,dc=example,dc=com\nchangetype: modify\nreplace: subtreeSpecification\n\
             subtreeSpecification: { base nothing }",
            "Ann Lee",
        ),
        ("cn=place,dc=example,dc=com\nchangetype: delete", "Ann Lee"),
    ] {
        fixture.apply(&format!("dn: {change}\n"));
        assert_eq!(given(&fixture), expected, "{change}");
    }
}
