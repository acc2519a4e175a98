//! Passwords that are counted.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{SUFFIX, TREE, build, ruled_with, schema};

const PASSWORD: &str = "attributetype ( 1.2.840.113556.1.4.90 NAME 'unicodePwd' SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 SINGLE-VALUE )";

#[test]
fn every_change_of_the_password_counts() {
    let fixture = ruled_with(PASSWORD, &[(&DESCRIPTOR, "")], &[]);
    fixture.apply(TREE);
    let dn = format!("cn=v,{SUFFIX}");
    let number = || fixture.value(&dn, "msDS-KeyVersionNumber").unwrap_or_default();
    fixture.apply(&format!(
        "dn: {dn}\nchangetype: add\nobjectClass: person\nobjectClass: extensibleObject\ncn: v\nsn: v\nunicodePwd: a\n"
    ));
    assert_eq!(number(), "0");
    for (change, expected) in [
        ("replace: unicodePwd\nunicodePwd: b", "1"),
        ("replace: sn\nsn: w", "1"),
        ("delete: unicodePwd\n-\nadd: unicodePwd\nunicodePwd: c", "2"),
        ("delete: unicodePwd", "3"),
    ] {
        fixture.apply(&format!("dn: {dn}\nchangetype: modify\n{change}\n"));
        assert_eq!(number(), expected, "{change}");
    }
    // One that stood there before counts from its first change.
    let bo = format!("cn=Bo,ou=People,{SUFFIX}");
    let change = "add: objectClass\nobjectClass: extensibleObject\n-\nadd: unicodePwd\nunicodePwd: c";
    fixture.apply(&format!("dn: {bo}\nchangetype: modify\n{change}\n"));
    assert_eq!(fixture.value(&bo, "msDS-KeyVersionNumber").as_deref(), Some("1"));
}

#[test]
fn the_password_has_to_be_known() {
    let error = build(&DESCRIPTOR, &schema(DESCRIPTOR.schema), "").map(|_| ()).unwrap_err();
    assert!(error.awaits_schema && error.to_string().contains("write `schema msuser` before it"), "{error}");
}
