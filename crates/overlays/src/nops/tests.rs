//! Modifies that change nothing.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::constraint;
use crate::testing::{SUFFIX, TREE, directory};

#[test]
fn what_is_replaced_by_itself_is_not_changed() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    fixture.apply(TREE);
    let dn = format!("cn=Bo,ou=People,{SUFFIX}");
    let modify = |lines: &str| fixture.change(&format!("dn: {dn}\nchangetype: modify\n{lines}"));
    assert_eq!(modify("replace: description\ndescription: one\ndescription: two\n"), "0");
    // Each: whether the entry is another one afterwards.
    for (lines, changes) in [
        ("replace: description\ndescription: one\ndescription: two\n", false),
        ("replace: description\ndescription: two\ndescription: one\n", false),
        // Equal values that are written otherwise are other values.
        ("replace: description\ndescription: ONE\ndescription: two\n", true),
        ("replace: description\ndescription: one\ndescription: two\n", true),
        ("replace: description\ndescription: one\n", true),
        ("replace: description\ndescription: one\ndescription: two\n", true),
        ("replace: description\ndescription: one\ndescription: two\n-\nreplace: title\ntitle: x\n", true),
        (
            "add: description\ndescription: 3\n-\nreplace: description\ndescription: one\ndescription: two\n",
            true,
        ),
        ("replace: seeAlso\n", true),
    ] {
        let before = format!("{:?}", fixture.entry(&dn));
        assert_eq!(modify(lines), "0", "{lines}");
        assert_eq!(format!("{:?}", fixture.entry(&dn)) != before, changes, "{lines}");
    }
}

/// `constraint` refuses a modify that is empty.
#[test]
fn other_overlays_do_not_hear_of_what_changes_nothing() {
    let (nops, count) = ((&DESCRIPTOR, ""), (&constraint::DESCRIPTOR, "constraint_attribute title count 1"));
    for overlays in [[count, nops], [nops, count]] {
        let fixture = directory(&overlays);
        fixture.apply(TREE);
        let dn = format!("cn=Bo,ou=People,{SUFFIX}");
        let modify = |lines: &str| fixture.change(&format!("dn: {dn}\nchangetype: modify\n{lines}"));
        assert_eq!(modify("replace: title\ntitle: one\n"), "0", "{overlays:?}");
        let before = format!("{:?}", fixture.entry(&dn));
        assert_eq!(modify("replace: title\ntitle: one\n"), "0", "{overlays:?}");
        assert_eq!(format!("{:?}", fixture.entry(&dn)), before, "{overlays:?}");
        assert_eq!(
            modify("add: title\ntitle: two\n"),
            "19 modify breaks constraint on title",
            "{overlays:?}"
        );
    }
}
