//! What could be written, and by whom.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{SUFFIX, TREE, found, ruled};

const NAMES: [&str; 4] = [
    "allowedAttributes",
    "allowedAttributesEffective",
    "allowedChildClasses",
    "allowedChildClassesEffective",
];

#[test]
fn rights_decide_what_is_effective() {
    // Each: rules, who asks, attributes that are in each of the four, and some that are not.
    for (rules, has, lacks) in [
        (
            &["to attrs=sn,telephoneNumber by * write", "to * by * read"][..],
            [
                &["sn", "cn", "seeAlso"][..],
                &["sn", "telephoneNumber"],
                &["dcObject", "extensibleObject"],
                &[],
            ],
            [&["mail"][..], &["cn", "seeAlso"], &["person"], &["dcObject", "extensibleObject"]],
        ),
        (
            &["to attrs=objectClass,dc by * write", "to * by * read"],
            [&["cn"], &["objectClass"], &["dcObject"], &["dcObject", "extensibleObject"]],
            [&["mail"], &["cn"], &["person"], &["uidObject", "person"]],
        ),
        (
            &["to attrs=objectClass by * none", "to * by * write"],
            [&[], &[], &["dcObject"], &[]],
            [&["cn", "sn"], &["cn", "sn"], &["person"], &["dcObject"]],
        ),
    ] {
        let mut fixture = ruled(&[(&DESCRIPTOR, "")], rules);
        fixture.apply(TREE);
        fixture.apply(&format!("dn: cn=p,{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: p\nsn: p\n"));
        fixture.bind("");
        for ((name, has), lacks) in NAMES.iter().zip(has).zip(lacks) {
            let told = found(&fixture, "(cn=p)", &[name]);
            let values: Vec<&str> =
                told.split_once('=').map_or(Vec::new(), |(_, values)| values.split('|').collect());
            has.iter().for_each(|one| assert!(values.contains(one), "{rules:?} {name}: {one} in {told}"));
            lacks.iter().for_each(|one| assert!(!values.contains(one), "{rules:?} {name}: {one} in {told}"));
        }
    }
}

#[test]
fn who_does_not_ask_is_not_told() {
    let fixture = ruled(&[(&DESCRIPTOR, "")], &[]);
    fixture.apply(TREE);
    assert!(!found(&fixture, "(cn=bo)", &["*"]).contains("allowed"));
    assert!(found(&fixture, "(cn=bo)", &["+"]).contains("allowedAttributes="));
    assert!(found(&fixture, "(allowedAttributes=manager)", &["1.1"]).contains("Bo"));
}
