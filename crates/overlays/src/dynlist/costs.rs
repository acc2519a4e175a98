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

/// Groups, members of each, and how often one is asked for.
const SIZES: [(usize, usize, usize); 2] = [(1_000, 100, 200), (1, 100_000, 5)];

const WAYS: [(&str, &[(&Descriptor, &str)]); 4] = [
    ("stored (memberof)", &[(&memberof::DESCRIPTOR, "")]),
    (
        "dynlist, static groups",
        &[(&DESCRIPTOR, "dynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames")],
    ),
    (
        "dynlist, nested groups",
        &[(&DESCRIPTOR, "dynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames*")],
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

/// Groups of different people each, and one of all groups' people through groups.
fn directory(overlays: &[(&Descriptor, &str)], groups: usize, members_each: usize) -> Fixture<MemoryStore> {
    let fixture = ruled(overlays, &[]);
    let mut settings = DatabaseSettings::clone(&fixture.database().settings());
    for indexed in ["memberOf", "cn"] {
        settings.index.also(fixture.schema.describe(indexed).unwrap(), Kinds::EQUALITY);
    }
    fixture.reconfigure(settings);
    fixture.apply(TREE);
    for group in 0..groups {
        let mut ldif = String::new();
        let mut members = String::new();
        for member in group * members_each..(group + 1) * members_each {
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
    for (groups, members, rounds) in SIZES {
        let mut answers: Vec<String> = Vec::new();
        for (name, overlays) in WAYS {
            let fixture = directory(overlays, groups, members);
            let filter = |group: usize| format!("(memberOf=cn=g{group},ou=groups,dc=example,dc=com)");
            answers.push(found(&fixture, &filter(groups / 2), &["1.1"]));
            let pass = || {
                let began = Instant::now();
                for round in 0..rounds {
                    found(&fixture, &filter(round % groups), &["1.1"]);
                }
                began.elapsed() / u32::try_from(rounds).unwrap()
            };
            // Groups that were not asked for in this state of the directory, and those that were.
            let (first, again) = (pass(), pass());
            let change = |dn: &str, step: &str| {
                fixture.apply(&format!(
                    "dn: {dn},dc=example,dc=com\nchangetype: modify\n{step},dc=example,dc=com\n"
                ));
            };
            change("cn=p1,ou=People", "replace: seeAlso\nseeAlso: ou=People");
            let elsewhere = pass();
            change("cn=g0,ou=Groups", "add: member\nmember: ou=People");
            let of_groups = pass();
            // One filter behind each change of another group: the median.
            let mut each: Vec<_> = (1..12)
                .map(|round| {
                    let (verb, dn) = (if round % 2 == 1 { "delete" } else { "add" }, "ou=People");
                    change("cn=g0,ou=Groups", &format!("{verb}: member\nmember: {dn}"));
                    let began = Instant::now();
                    found(&fixture, &filter((round * 7) % groups), &["1.1"]);
                    began.elapsed()
                })
                .collect();
            each.sort();
            let behind_changes = each[each.len() / 2];
            let began = Instant::now();
            for round in 0..rounds {
                let (member, group) = (round % groups * members, round % groups);
                found(
                    &fixture,
                    &format!("(&(cn=p{member})(memberOf=cn=g{group},ou=groups,dc=example,dc=com))"),
                    &["1.1"],
                );
            }
            let one = began.elapsed() / u32::try_from(rounds).unwrap();
            println!(
                "{groups} groups of {members}, {name}: {first:?}, {again:?} again, {elsewhere:?} after a change of another entry, \
                 {of_groups:?} after one of a group, {behind_changes:?} each behind a change of a group, {one:?} for one of them"
            );
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]) && !answers[0].is_empty());
    }
}

/// One filter for a group of 100 behind a change of another group, among 1,000 groups. Its instructions are those of `found`, which is called here alone:
///
/// With `LARIX_COSTS_NEW` a person is added before each filter.
///
/// `LARIX_COSTS_WAY=2 valgrind --tool=callgrind --toggle-collect='*testing::found' TEST one_filter --ignored`
#[test]
#[ignore = "a measure"]
fn one_filter_behind_a_change_of_a_group() {
    let way = std::env::var("LARIX_COSTS_WAY").ok().and_then(|way| way.parse::<usize>().ok());
    let fixture = directory(WAYS[way.unwrap_or(0)].1, 2, 100);
    for group in 2..1_000 {
        fixture.apply(&format!(
            "dn: cn=g{group},ou=Groups,dc=example,dc=com\nobjectClass: groupOfNames\ncn: g{group}\n\
             member: cn=p{},ou=People,dc=example,dc=com\n",
            group % 200
        ));
    }
    let mut entries = 0;
    for round in 0..4 {
        let (verb, group) = (if round % 2 == 0 { "add" } else { "delete" }, (round + 1) % 2);
        fixture.apply(&format!(
            "dn: cn=g{},ou=Groups,dc=example,dc=com\nchangetype: modify\n{verb}: member\nmember: ou=People,dc=example,dc=com\n",
            500 + round / 2
        ));
        if std::env::var_os("LARIX_COSTS_NEW").is_some() {
            fixture.apply(&format!(
                "dn: cn=new{round},ou=People,dc=example,dc=com\nobjectClass: person\ncn: new{round}\nsn: s\n"
            ));
        }
        let told = found(&fixture, &format!("(memberOf=cn=g{group},ou=groups,dc=example,dc=com)"), &["1.1"]);
        entries += told.split("; ").count();
    }
    assert_eq!(entries, 400);
}
