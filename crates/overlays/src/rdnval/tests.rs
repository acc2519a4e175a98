//! Values of names.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{SUFFIX, TREE, directory, found};

#[test]
fn the_values_of_a_name_are_kept_and_are_one_entrys() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    fixture.apply(TREE);
    let add = |rdn: &str, class: &str, rest: &str| {
        format!("dn: {rdn},ou=People,{SUFFIX}\nchangetype: add\nobjectClass: {class}\n{rest}\n")
    };
    let rename = |from: &str, to: &str, superior: &str| {
        format!(
            "dn: {from},ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: {to}\ndeleteoldrdn: 1\nnewsuperior: {superior}\n"
        )
    };
    let people = format!("ou=People,{SUFFIX}");
    for (change, expected) in [
        (add("ou=BO", "organizationalUnit", "ou: BO"), "19 rdnValue not unique within siblings"),
        (add("cn=Cid+sn=Cid", "person", "cn: Cid\nsn: Cid"), "0"),
        (add("cn=Dan+sn=Lee", "person", "cn: Dan\nsn: Lee"), "0"),
        // All values have to be another's.
        (add("cn=Dan+sn=Poe", "person", "cn: Dan\nsn: Poe"), "0"),
        (add("ou=Box", "organizationalUnit", "ou: Box"), "0"),
        (rename("ou=Box", "ou=Bo", &people), "19 rdnValue not unique within siblings"),
        // An entry may get its own name again.
        (rename("ou=Box", "ou=BOX", &people), "0"),
        // Elsewhere the name is free.
        (rename("ou=Box", "ou=Bo", SUFFIX), "0"),
    ] {
        assert_eq!(fixture.change(&change), expected, "{change}");
    }
    for (filter, values) in [
        ("(cn=cid)", "Cid+sn: rdnValue=Cid"),
        ("(&(cn=dan)(sn=lee))", "Dan+sn: rdnValue=Dan|Lee"),
        ("(ou=bo)", "Bo: rdnValue=Bo"),
        ("(rdnValue=bo)", "Bo: rdnValue=Bo; Bo: rdnValue=Bo"),
    ] {
        assert_eq!(found(&fixture, filter, &["rdnValue"]), values, "{filter}");
    }
}
