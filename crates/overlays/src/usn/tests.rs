//! Numbers of changes.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::refint;
use crate::testing::{SUFFIX, TREE, build, directory, schema};

#[test]
fn each_change_has_the_next_number() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    fixture.apply(TREE);
    let number =
        |dn: &str, name: &str| -> u64 { fixture.value(dn, name).map_or(0, |value| value.parse().unwrap()) };
    let highest = || number(SUFFIX, "uSNChanged");
    let first = highest();
    assert!(first > 1, "each entry of the tree has one");
    let dn = format!("cn=v,{SUFFIX}");
    let add = format!("dn: {dn}\nchangetype: add\nobjectClass: person\ncn: v\nsn: v\n");
    fixture.apply(&add);
    assert_eq!(
        (number(&dn, "uSNCreated"), number(&dn, "uSNChanged"), highest()),
        (first + 1, first + 1, first + 1)
    );
    fixture.apply(&format!("dn: {dn}\nchangetype: modify\nreplace: sn\nsn: w\n"));
    assert_eq!(
        (number(&dn, "uSNCreated"), number(&dn, "uSNChanged"), highest()),
        (first + 1, first + 2, first + 2)
    );
    fixture.apply(&format!("dn: {dn}\nchangetype: modrdn\nnewrdn: cn=w\ndeleteoldrdn: 1\n"));
    let dn = format!("cn=w,{SUFFIX}");
    assert_eq!((number(&dn, "uSNChanged"), highest()), (first + 3, first + 3));
    // A change that is refused takes none, and nobody gives himself one.
    let refused = fixture.change(&format!("dn: {dn}\nchangetype: modify\nadd: sn\nsn: w\n"));
    assert!(refused.starts_with("20 "), "{refused}");
    let refused =
        fixture.change(&format!("dn: {dn}\nchangetype: modify\nreplace: uSNChanged\nuSNChanged: 1\n"));
    assert!(refused.starts_with("19 "), "{refused}");
    assert_eq!(highest(), first + 3);
    // The number of an entry that is gone is not given again.
    fixture.apply(&format!("dn: {dn}\nchangetype: delete\n"));
    assert_eq!(highest(), first + 4);
    fixture.apply(&add);
    assert_eq!(number(&format!("cn=v,{SUFFIX}"), "uSNCreated"), first + 5);
    fixture.apply(&format!("dn: {SUFFIX}\nchangetype: modify\nreplace: description\ndescription: x\n"));
    assert_eq!(highest(), first + 6);
}

#[test]
fn what_follows_from_a_change_has_a_number_of_its_own() {
    for usn_first in [true, false] {
        let mut overlays = vec![(&DESCRIPTOR, ""), (&refint::DESCRIPTOR, "refint_attributes member")];
        if !usn_first {
            overlays.reverse();
        }
        let fixture = directory(&overlays);
        fixture.apply(TREE);
        let number = |dn: &str| fixture.value(dn, "uSNChanged").unwrap().parse::<u64>().unwrap();
        let (bo, group) = (format!("cn=Bo,ou=People,{SUFFIX}"), format!("cn=g,{SUFFIX}"));
        let members = format!("member: {bo}\nmember: cn=Ann,ou=People,{SUFFIX}");
        fixture
            .apply(&format!("dn: {group}\nchangetype: add\nobjectClass: groupOfNames\ncn: g\n{members}\n"));
        let before = number(SUFFIX);
        assert_eq!(number(&group), before);
        fixture.apply(&format!("dn: {bo}\nchangetype: delete\n"));
        assert!(number(&group) > before, "the group has lost a member");
        assert!(number(SUFFIX) >= number(&group), "nothing is above the highest number");
    }
}

#[test]
fn attributes_of_active_directory_are_refused() {
    let definition = |oid: u8, name: &str| {
        format!(
            "attributetype ( 1.2.840.113556.1.2.{oid} NAME '{name}' EQUALITY integerMatch \
             ORDERING integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE )"
        )
    };
    let definitions = [definition(19, "uSNCreated"), definition(120, "uSNChanged")].join("\n");
    let error = build(&DESCRIPTOR, &schema(&definitions), "").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("<uSNCreated>") && error.contains("take out `schema msuser`"), "{error}");
    assert!(build(&DESCRIPTOR, &schema(DESCRIPTOR.schema), "").is_ok());
}
