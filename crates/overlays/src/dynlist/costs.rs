//! What a filter for one group costs: by memberOf as it is stored, as dynlist tells it, and through nestgroup.
//!
//! `cargo test -p larix-overlays costs -- --ignored --nocapture` prints it, for a directory in memory.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]
#![allow(clippy::disallowed_methods, reason = "it measures time, and judges nothing by it")]

use std::fmt::Write as _;
use std::time::Instant;

use larix_engine::DatabaseSettings;
use larix_engine::index::Kinds;
use larix_engine::overlay::Descriptor;
use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, TREE, found, ruled};
use crate::{memberof, nestgroup};

const GROUPS: usize = 1_000;
const MEMBERS: usize = 100;
const ROUNDS: usize = 200;

/// Groups of different people each, and one of all groups' people through groups.
fn directory(overlays: &[(&Descriptor, &str)]) -> Fixture<MemoryStore> {
    let fixture = ruled(overlays, &[]);
    let mut settings = DatabaseSettings::clone(&fixture.database().settings());
    for indexed in ["memberOf", "cn"] {
        settings.index.also(fixture.schema.describe(indexed).unwrap(), Kinds::EQUALITY);
    }
    fixture.database().publish_settings(settings).unwrap();
    fixture.apply(TREE);
    for group in 0..GROUPS {
        let mut ldif = String::new();
        let mut members = String::new();
        for member in group * MEMBERS..(group + 1) * MEMBERS {
            write!(
                ldif,
                "dn: cn=p{member},ou=People,dc=example,dc=com\nobjectClass: person\ncn: p{member}\nsn: s\n\n"
            )
            .unwrap();
            writeln!(members, "member: cn=p{member},ou=People,dc=example,dc=com").unwrap();
        }
        write!(
            ldif,
            "dn: cn=g{group},ou=Groups,dc=example,dc=com\nobjectClass: groupOfNames\ncn: g{group}\n{members}"
        )
        .unwrap();
        fixture.apply(&ldif);
    }
    fixture
}

#[test]
#[ignore = "a measure"]
fn a_filter_for_one_group() {
    let ways: [(&str, &[(&Descriptor, &str)]); 3] = [
        ("stored (memberof)", &[(&memberof::DESCRIPTOR, "")]),
        (
            "dynlist, static groups",
            &[(&DESCRIPTOR, "dynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames")],
        ),
        (
            "memberof and nestgroup",
            &[
                (&memberof::DESCRIPTOR, ""),
                (
                    &nestgroup::DESCRIPTOR,
                    "nestgroup-base ou=Groups,dc=example,dc=com\nnestgroup-flags memberof-filter memberof-values",
                ),
            ],
        ),
    ];
    let mut answers: Vec<String> = Vec::new();
    for (name, overlays) in ways {
        let fixture = directory(overlays);
        let filter = |group: usize| format!("(memberOf=cn=g{group},ou=groups,dc=example,dc=com)");
        answers.push(found(&fixture, &filter(7), &["1.1"]));
        let pass = || {
            let began = Instant::now();
            for round in 0..ROUNDS {
                found(&fixture, &filter(round % GROUPS), &["1.1"]);
            }
            began.elapsed() / u32::try_from(ROUNDS).unwrap()
        };
        // Groups that were not asked for in this state of the directory, and those that were.
        let (first, again) = (pass(), pass());
        let began = Instant::now();
        for round in 0..ROUNDS {
            let member = round * MEMBERS;
            found(
                &fixture,
                &format!("(&(cn=p{member})(memberOf=cn=g{round},ou=groups,dc=example,dc=com))"),
                &["1.1"],
            );
        }
        let one = began.elapsed() / u32::try_from(ROUNDS).unwrap();
        println!("{name}: {first:?} for {MEMBERS} members, {again:?} again, {one:?} for one of them");
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]) && !answers[0].is_empty());
}
