//! What a change costs beside a large schema. Run with
//! `cargo test -p larix-configuration --lib growth -- --ignored --nocapture`.

use larix_engine::controls::RequestControls;
use rustix::time::{ClockId, clock_gettime};

use super::super::load::convert;
use super::super::model::{Config, Source};
use super::fixture::{START, TestSources, entries, operations};

const CLASSES: usize = 10_000;
const CHANGES: usize = 20;

/// Classes in a section of their own.
fn config(classes: usize, folder: &std::path::Path) -> Config {
    let mut text = START.to_owned()
        + "\ndn: cn={2}many,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: {2}many\n";
    for number in 0..classes {
        text += &format!(
            "olcObjectClasses: {{{number}}}( 1.3.9999.20.{number} NAME 'many{number}' SUP top AUXILIARY MAY ( larch $ needle ) )\n"
        );
    }
    let config = Config::from_entries(entries(&text), Source::QuickStart).unwrap();
    convert(&config, folder, &TestSources::new().stamp()).unwrap();
    Config::from_slapd_d(folder).unwrap()
}

/// Microseconds of this thread a change.
fn cost(mut config: Config, change: &dyn Fn(usize) -> String) -> u128 {
    let sources = TestSources::new();
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u128 * 1_000_000 + time.tv_nsec as u128 / 1_000
    };
    let mut before = 0;
    for number in 0..=CHANGES {
        if number == 1 {
            // What the first change of a process writes anew is kept for those behind it.
            before = now();
        }
        for operation in operations(&change(number)) {
            let changed = sources.change(&config, operation, RequestControls::default()).unwrap();
            changed.commit().unwrap();
            config = changed.config;
        }
    }
    (now() - before) / CHANGES as u128
}

#[test]
#[ignore = "a measurement"]
fn a_change_beside_many_classes() {
    let class = |section: &'static str| {
        move |number: usize| {
            format!(
                "dn: {section},cn=schema,cn=config\nchangetype: modify\nadd: olcObjectClasses\n\
                 olcObjectClasses: ( 1.3.9999.30.{number} NAME 'more{number}' SUP top AUXILIARY MAY larch )\n"
            )
        }
    };
    let last = class("cn={2}many");
    let other = class("cn={1}two");
    let other_attribute = |number: usize| {
        format!("dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: {number}\n")
    };
    let changes: [(&str, &dyn Fn(usize) -> String); 3] = [
        ("a class in the same section", &last),
        ("a class in another section", &other),
        ("a number", &other_attribute),
    ];
    for (name, change) in changes {
        let costs = [0, CLASSES].map(|classes| {
            let folder = tempfile::tempdir().unwrap();
            cost(config(classes, folder.path()), change)
        });
        println!("{name}: {} us without, {} us with {CLASSES} classes", costs[0], costs[1]);
    }
}
