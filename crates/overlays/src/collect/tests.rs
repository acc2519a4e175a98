//! What entries are lent, and to whom.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{SUFFIX, TREE, build, compared, found, ruled, schema};

const LINES: &str = "collectinfo ou=People,dc=example,dc=com l,telephoneNumber
    collectinfo ou=Inner,ou=People,dc=example,dc=com telephoneNumber";

const LENT: &str = "
    dn: ou=People,dc=example,dc=com
    changetype: modify
    add: l
    l: Here
    -
    add: telephoneNumber
    telephoneNumber: +1 1

    dn: ou=Inner,ou=People,dc=example,dc=com
    changetype: add
    objectClass: organizationalUnit
    ou: Inner
    telephoneNumber: +1 2

    dn: cn=Cid,ou=Inner,ou=People,dc=example,dc=com
    changetype: add
    objectClass: inetOrgPerson
    cn: Cid
    sn: Cid
    l: Here
    l: There
";

#[test]
fn values_are_lent_to_who_may_read_them() {
    const OPEN: &[&str] = &["to * by * read"];
    const HIDDEN: &[&str] = &["to dn.base=ou=People,dc=example,dc=com attrs=l by * none", "to * by * read"];
    const HIDDEN_HERE: &[&str] =
        &["to dn.onelevel=ou=People,dc=example,dc=com attrs=l by * none", "to * by * read"];
    for (rules, filter, expected) in [
        (
            OPEN,
            "(cn=*)",
            "Ann Lee: l=Here, telephoneNumber=+1 1; Bo: l=Here, telephoneNumber=+1 1; Cid: l=Here|There, telephoneNumber=+1 1|+1 2",
        ),
        (
            OPEN,
            "(l=here)",
            "Ann Lee: l=Here, telephoneNumber=+1 1; Bo: l=Here, telephoneNumber=+1 1; Cid: l=Here|There, telephoneNumber=+1 1|+1 2; Inner: l=Here, telephoneNumber=+1 1|+1 2; People: l=Here, telephoneNumber=+1 1",
        ),
        (
            OPEN,
            "(telephoneNumber=+12)",
            "Cid: l=Here|There, telephoneNumber=+1 1|+1 2; Inner: l=Here, telephoneNumber=+1 1|+1 2",
        ),
        (
            OPEN,
            "(&(cn=*)(l=h*))",
            "Ann Lee: l=Here, telephoneNumber=+1 1; Bo: l=Here, telephoneNumber=+1 1; Cid: l=Here|There, telephoneNumber=+1 1|+1 2",
        ),
        (OPEN, "(&(cn=bo)(!(l=here)))", ""),
        (HIDDEN, "(cn=bo)", "Bo: telephoneNumber=+1 1"),
        (HIDDEN, "(l=here)", "Cid: l=Here|There, telephoneNumber=+1 1|+1 2"),
        (HIDDEN_HERE, "(cn=bo)", "Bo: telephoneNumber=+1 1"),
        (HIDDEN_HERE, "(&(cn=bo)(l=here))", ""),
    ] {
        let mut fixture = ruled(&[(&DESCRIPTOR, LINES)], rules);
        fixture.apply(TREE);
        fixture.apply(LENT);
        fixture.bind("");
        assert_eq!(found(&fixture, filter, &["l", "telephoneNumber"]), expected, "{rules:?} {filter}");
    }
}

#[test]
fn compares_see_what_is_lent() {
    let mut fixture = ruled(
        &[(&DESCRIPTOR, LINES)],
        &["to dn.base=ou=People,dc=example,dc=com attrs=telephoneNumber by * none", "to * by * read"],
    );
    fixture.apply(TREE);
    fixture.apply(LENT);
    fixture.bind("");
    let bo = format!("cn=Bo,ou=People,{SUFFIX}");
    for (attribute, value, code) in
        [("l", "HERE", 6), ("l", "there", 5), ("telephoneNumber", "+1 1", 16), ("title", "x", 16)]
    {
        assert_eq!(compared(&fixture, &bo, attribute, value), code, "{attribute} {value}");
    }
}

#[test]
fn what_is_lent_cannot_be_changed_where_it_is_seen() {
    let fixture = ruled(&[(&DESCRIPTOR, LINES)], &[]);
    fixture.apply(TREE);
    fixture.apply(LENT);
    for (dn, attribute, expected) in [
        ("cn=Bo,ou=People", "l", "53 cannot change virtual attribute 'l'"),
        (
            "cn=Cid,ou=Inner,ou=People",
            "telephoneNumber",
            "53 cannot change virtual attribute 'telephoneNumber'",
        ),
        ("cn=Bo,ou=People", "sn", "0"),
        ("ou=People", "l", "0"),
    ] {
        let change = format!("dn: {dn},{SUFFIX}\nchangetype: modify\nreplace: {attribute}\n{attribute}: 1\n");
        assert_eq!(fixture.change(&change), expected, "{dn} {attribute}");
    }
}

#[test]
fn mistakes_are_named() {
    let schema = schema("");
    for (lines, fault) in [
        ("collectinfo dc=a", "write a DN and a list"),
        ("collectinfo nobody l", "invalid DN \"nobody\""),
        ("collectinfo dc=a l,nothing", "attribute description unknown: \"nothing\""),
        ("collectinfo dc=a l\ncollectinfo DC=A o", "DN already configured"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault) && error.contains("collectinfo"), "{lines}: {error}");
    }
}
