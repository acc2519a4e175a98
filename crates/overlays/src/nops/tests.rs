//! Modifies that change nothing.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
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
