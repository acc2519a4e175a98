//! Compares with members that URLs find.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{SUFFIX, TREE, build, compared, found, ruled, schema};

const GROUPS: &str = "
    dn: cn=dyn,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    objectClass: extensibleObject
    cn: dyn
    memberURL: ldap:///ou=People,dc=example,dc=com??sub?(mail=*)
    memberURL: ldap:///cn=Bo,ou=People,dc=example,dc=com??base

    dn: cn=none,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    cn: none

    dn: cn=mixed,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    objectClass: extensibleObject
    cn: mixed
    member: cn=Bo,ou=People,dc=example,dc=com
    memberURL: ldap:///ou=People,dc=example,dc=com??sub?(mail=*)
";

const RULES: &[&[&str]] = &[&["to * by * read"], &["to attrs=mail by * none", "to * by * read"]];

#[test]
fn compares_are_answered_by_urls() {
    for (rules, group, member, code) in [
        (0, "dyn", "cn=ann lee,ou=people,dc=example,dc=com", 6),
        // No filter finds nobody.
        (0, "dyn", "cn=Bo,ou=People,dc=example,dc=com", 5),
        (0, "dyn", "cn=nobody,ou=People,dc=example,dc=com", 5),
        (0, "none", "cn=Bo,ou=People,dc=example,dc=com", 5),
        (1, "dyn", "cn=ann lee,ou=people,dc=example,dc=com", 5),
        // A group that has members stored is compared with these.
        (0, "mixed", "cn=ann lee,ou=people,dc=example,dc=com", 5),
        (0, "mixed", "cn=Bo,ou=People,dc=example,dc=com", 6),
    ] {
        let mut fixture = ruled(&[(&DESCRIPTOR, "attrpair member memberURL")], RULES[rules]);
        fixture.apply(TREE);
        fixture.apply(GROUPS);
        fixture.bind("");
        let group = format!("cn={group},ou=Groups,{SUFFIX}");
        assert_eq!(compared(&fixture, &group, "member", member), code, "{rules} {group} {member}");
        assert_eq!(compared(&fixture, &group, "uniqueMember", member), 16, "{group}");
        // Searches do not see them.
        assert_eq!(found(&fixture, "(cn=dyn)", &["member"]), "dyn");
        assert_eq!(found(&fixture, "(&(cn=dyn)(member=*))", &["member"]), "");
    }
}

#[test]
fn mistakes_are_named() {
    let schema = schema("");
    for (lines, fault) in [
        ("attrpair member", "write a member attribute"),
        ("attrpair nothing labeledURI", "attribute description unknown: \"nothing\""),
        ("attrpair member memberURL", "attribute description unknown: \"memberURL\""),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault) && error.contains("attrpair"), "{lines}: {error}");
    }
}
