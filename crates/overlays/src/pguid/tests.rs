//! Whose UUID is told.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{SUFFIX, TREE, directory, found};

#[test]
fn the_uuid_of_the_entry_above_is_told() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    fixture.apply(TREE);
    let uuid = |dn: &str| fixture.value(dn, "entryUUID").unwrap();
    let people = uuid(&format!("ou=People,{SUFFIX}"));
    assert_eq!(found(&fixture, "(cn=bo)", &["parentUUID"]), format!("Bo: parentUUID={people}"));
    let suffix = uuid(SUFFIX);
    assert_eq!(found(&fixture, "(ou=people)", &["parentUUID"]), format!("People: parentUUID={suffix}"));
    assert!(!found(&fixture, "(objectClass=organization)", &["parentUUID"]).contains("parentUUID"));
    // In filters, too, and only for who asks.
    assert!(found(&fixture, &format!("(parentUUID={people})"), &["1.1"]).contains("Bo"));
    assert!(!found(&fixture, &format!("(parentUUID={suffix})"), &["1.1"]).contains("Bo"));
    assert_eq!(found(&fixture, "(parentUUID=00000000-0000-0000-0000-000000000000)", &["1.1"]), "");
    assert!(!found(&fixture, "(cn=bo)", &["*"]).contains("parentUUID"));
    // It follows a move.
    let bo = format!("cn=Bo,ou=People,{SUFFIX}");
    fixture.apply(&format!(
        "dn: {bo}\nchangetype: modrdn\nnewrdn: cn=Bo\ndeleteoldrdn: 1\nnewsuperior: {SUFFIX}\n"
    ));
    assert_eq!(found(&fixture, "(cn=bo)", &["parentUUID"]), format!("Bo: parentUUID={suffix}"));
}
