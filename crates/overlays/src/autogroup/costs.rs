//! What a change costs a database with many groups by URL: reads of the store, which are the same on every machine.
//!
//! `cargo test -p larix-overlays autogroup::costs -- --ignored --nocapture` prints them.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::fmt::Write as _;

use larix_engine::tables::TABLES;
use larix_store::shared::SharedStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, TREE, build, schema, settings};

const CLASSES: &str = "attributetype ( 1.2.3.4.1 NAME 'findsURL' SUP labeledURI )\n\
    objectclass ( 1.2.3.4.2 NAME 'findingGroup' SUP top STRUCTURAL MUST cn MAY ( findsURL $ member $ ou ) )";

const GROUPS: usize = 1_000;
const PEOPLE: usize = 1_000;

#[test]
#[ignore = "a measure"]
fn reads_of_changes() {
    let schema = schema(CLASSES);
    let mut settings = settings(&schema);
    let overlay = build(&DESCRIPTOR, &schema, "autogroup-attrset findingGroup findsURL member").unwrap();
    for (attribute, kinds) in overlay.indexes() {
        settings.index.also(attribute, kinds);
    }
    settings.index.also(schema.describe("departmentNumber").unwrap(), larix_engine::index::Kinds::EQUALITY);
    settings.overlays.push(overlay);
    let store = SharedStore::new(&TABLES).unwrap();
    let fixture = Fixture::of(schema, vec![(store.another(), settings)]);
    fixture.apply(TREE);
    let mut ldif = format!("dn: ou=Old,{SUFFIX}\nobjectClass: organizationalUnit\nou: Old\n\n");
    for one in 0..PEOPLE {
        let place = if one < 10 { "ou=Old" } else { "ou=People" };
        write!(
            ldif,
            "dn: cn=p{one},{place},{SUFFIX}\nobjectClass: inetOrgPerson\ncn: p{one}\nsn: s\ndepartmentNumber: {one}\n\n"
        )
        .unwrap();
    }
    fixture.apply(&ldif);
    let mut ldif = String::new();
    for one in 0..GROUPS {
        write!(
            ldif,
            "dn: cn=g{one},ou=Groups,{SUFFIX}\nobjectClass: findingGroup\ncn: g{one}\n\
             findsURL: ldap:///{SUFFIX}??sub?(departmentNumber={one})\n\n"
        )
        .unwrap();
    }
    fixture.apply(&ldif);
    let p = format!("dn: cn=p20,ou=People,{SUFFIX}\nchangetype: modify\n");
    for round in 0..3 {
        for (what, change) in [
            ("a change of another attribute", format!("{p}replace: title\ntitle: {round}\n")),
            (
                "a change that moves a member",
                format!("{p}replace: departmentNumber\ndepartmentNumber: {}\n", 30 + round),
            ),
            (
                "an add of a member",
                format!(
                    "dn: cn=n{round},ou=People,{SUFFIX}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: n\nsn: s\ndepartmentNumber: 7\n"
                ),
            ),
            ("a delete of a member", format!("dn: cn=n{round},ou=People,{SUFFIX}\nchangetype: delete\n")),
            (
                "a rename of ten members' superior",
                format!(
                    "dn: ou={},{SUFFIX}\nchangetype: modrdn\nnewrdn: ou={}\ndeleteoldrdn: 1\n",
                    if round == 0 { "Old".to_owned() } else { format!("New{}", round - 1) },
                    format_args!("New{round}")
                ),
            ),
        ] {
            let before = store.trips();
            fixture.apply(&change);
            println!("round {round}: {what}: {} reads", store.trips() - before);
        }
    }
}
