//! Dictionaries that the writer makes while a database grows.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use larix_engine::entry::Dictionaries;
use larix_engine::entry::record::{CODEC_LZ4, CODEC_PLAIN};
use larix_engine::tables::ENTRIES;
use larix_store::fault::{Fault, FaultPlan, FaultStore};
use larix_store::{Direction, KeyRange, Snapshot, Store};

use crate::common::{Fixture, TREE, assert_sound, memory, schema, settings};

/// Entry ids at which the first one is begun, and where it serves at the latest.
const BEGUN: u32 = 2_048;
const SERVES: u32 = 2_300;
/// Each some times as long as the writer waits for changes before it uses the time; the last ones are long enough for a machine that
/// has much else to do.
const PAUSE_SECONDS: [u64; 5] = [1, 1, 2, 5, 15];

fn dn(n: u32) -> String {
    format!("cn=user {n},ou=People,dc=example,dc=com")
}

fn add(n: u32) -> String {
    format!(
        "dn: {}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: user {n}\nsn: user\n\
         mail: user.{n}@mail.example.com\ndescription: one of many, all of them with the same description\n",
        dn(n)
    )
}

fn codecs<S: Store>(fixture: &Fixture<S>) -> Vec<u8> {
    let snapshot = fixture.database().store().snapshot().unwrap();
    let rows = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).unwrap();
    rows.map(|row| row.unwrap().1[0]).collect()
}

fn dictionaries<S: Store>(fixture: &Fixture<S>) -> usize {
    Dictionaries::load(&fixture.database().store().snapshot().unwrap()).unwrap().len()
}

/// Once there are enough records to learn from, new ones are packed and old ones are read as before.
#[test]
fn a_growing_database_learns_to_pack() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    (0..SERVES).for_each(|n| fixture.apply(&add(n)));
    let before = codecs(&fixture);
    assert!(before.starts_with(&[CODEC_PLAIN; 2_000]) && before.ends_with(&[CODEC_LZ4; 100]));
    for n in [3, SERVES - 1] {
        fixture.apply(&format!("dn: {}\nchangetype: modify\nreplace: sn\nsn: changed\n-\n", dn(n)));
        assert_eq!(fixture.value(&dn(n), "sn").as_deref(), Some("changed"));
        assert_eq!(fixture.value(&dn(n), "mail"), Some(format!("user.{n}@mail.example.com")));
    }
    let count = |codecs: &[u8]| codecs.iter().filter(|codec| **codec == CODEC_LZ4).count();
    assert_eq!(count(&codecs(&fixture)), count(&before) + 1);
    (SERVES..2 * SERVES).for_each(|n| fixture.apply(&add(n)));
    assert_eq!(dictionaries(&fixture), 1, "the first one still serves");
    assert_sound(fixture.database(), "with dictionaries");
}

/// The work goes along with the changes: no single one of them has to wait for all of it.
#[test]
fn changes_share_the_work() {
    // Where this thread has to wait for a processor between two changes, the writer may use the time: not three times.
    let are_few_enough = (0..3).any(|_| {
        let fixture = Fixture::new();
        fixture.apply(TREE);
        (0..BEGUN + 8).for_each(|n| fixture.apply(&add(n)));
        dictionaries(&fixture) == 0
    });
    assert!(are_few_enough, "a few changes have done all of it");
}

/// While no change comes, the writer goes on alone, and the next change stores what it has made. By changes alone it would take some
/// twenty.
#[test]
fn it_is_made_while_nothing_comes() {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    (0..BEGUN + 8).for_each(|n| fixture.apply(&add(n)));
    let (_never, nothing) = mpsc::channel::<()>();
    for (n, pause) in (BEGUN + 8..).zip(PAUSE_SECONDS.map(Duration::from_secs)) {
        assert_eq!(nothing.recv_timeout(pause), Err(RecvTimeoutError::Timeout));
        fixture.apply(&add(n));
        if dictionaries(&fixture) > 0 {
            assert_sound(fixture.database(), "with dictionaries");
            return;
        }
    }
    panic!("no dictionary");
}

/// A dictionary that a failed commit was to store comes with the next one.
#[test]
fn a_full_disk_puts_it_off() {
    let plan = FaultPlan::new();
    let schema = schema("");
    let settings = settings(&schema);
    let fixture = Fixture::of(schema, vec![(FaultStore::new(memory(), plan.clone()), settings)]);
    fixture.apply(TREE);
    (0..BEGUN).for_each(|n| fixture.apply(&add(n)));
    for n in BEGUN..SERVES {
        plan.next(Fault::Full);
        let refused = fixture.change(&add(n));
        assert_eq!(refused, "80 no space left for the database: nothing was changed");
        fixture.apply(&add(n));
    }
    assert_eq!(dictionaries(&fixture), 1);
    assert!(codecs(&fixture).ends_with(&[CODEC_LZ4; 100]));
    assert_sound(fixture.database(), "with dictionaries");
}
