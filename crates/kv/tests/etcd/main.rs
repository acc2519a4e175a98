//! The store over a real etcd: the contract, and what goes wrong with engines.

#![allow(clippy::disallowed_methods, reason = "deadlines of tests")]

mod secure;
#[macro_use]
#[path = "../shared/mod.rs"]
mod shared;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use larix_kv::{Address, KvOptions, KvStore, OpenError, Recipient};
use larix_store::contract::{INTEGER, ORDERED, POSTINGS, TABLES};
use larix_store::{
    CommitError, Direction, Durability, KeyRange, Loader, PostingCursor, ReadError, Snapshot, Store,
    Transaction, WriteSet,
};
use larix_testkit::SetAtEnd;
use larix_testkit::etcd::Etcd;
use shared::{StoreAddress, TestEngine, commit, get, in_time, put, unhurried, until};

impl TestEngine for Etcd {
    /// One for each step, and one for the record at the end.
    const PATH_TRIPS: u64 = 4;

    fn place(&self) -> StoreAddress {
        StoreAddress { address: self.prefix(), schema: "larix".to_owned() }
    }

    fn narrow(&self) -> StoreAddress {
        StoreAddress {
            address: format!("{}?max-txn-ops=32&max-request-bytes=262144", self.prefix()),
            ..self.place()
        }
    }
}

over!(Etcd::start());

fn open(address: &str, options: &KvOptions) -> Result<KvStore, OpenError> {
    KvStore::open(&Address::parse(address).expect("an address"), &TABLES, options)
}

fn fresh(etcd: &Etcd) -> (KvStore, String) {
    let address = etcd.prefix();
    (open(&address, &unhurried()).expect("open"), address)
}

/// What answers at the address of a member may be another etcd: one that was begun anew, or from an older copy.
#[test]
fn an_etcd_that_holds_something_else_is_left_for_a_member() {
    let (Some(mut etcd), Some(other)) = (Etcd::start(), Etcd::start()) else { return };
    let address = format!("etcd://127.0.0.1:{},127.0.0.1:{}/p", etcd.port(), other.port());
    let store = open(&address, &unhurried()).expect("open");
    commit(&store, &put(b"a", b"1")).expect("commit");
    etcd.crash(0);
    assert!(store.snapshot().is_err(), "it holds nothing");
    etcd.run();
    until("the member is asked again", || store.snapshot().is_ok());
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));

    let elsewhere = format!("etcd://127.0.0.1:{}/p", other.port());
    drop(open(&elsewhere, &unhurried()).expect("open"));
    etcd.crash(0);
    let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("it lacks a commit") };
    assert!(error.to_string().contains("does not hold commit"), "{error}");
    etcd.run();
    until("the member is asked again", || store.snapshot().is_ok());
    commit(&store, &put(b"a", b"2")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"2"[..]));
}

/// A member that takes the place of another one is a learner first, or for as long as nobody promotes it.
#[test]
fn a_learner_is_passed_over() {
    let Some(mut etcd) = Etcd::start() else { return };
    let learner = etcd.add_learner();
    let address = |servers: &str| format!("etcd://{servers}/p");
    let store = open(&address(&format!("127.0.0.1:{learner},127.0.0.1:{}", etcd.port())), &unhurried());
    commit(&store.expect("open"), &put(b"a", b"1")).expect("commit");
    // Until it has joined, it says that it has no leader.
    until("it says what to do", || {
        let opened = open(&address(&format!("127.0.0.1:{learner}")), &unhurried());
        matches!(opened, Err(OpenError::Unavailable(error)) if error.contains("member promote"))
    });
}

/// Rows of one commit, more than a transaction may have.
fn whole(value: u64) -> WriteSet {
    let mut set = WriteSet::new();
    (0..WHOLE_ROWS).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), value.to_be_bytes()));
    set
}

const WHOLE_ROWS: u64 = 700;

/// The value that all rows have.
fn value_of_all(store: &KvStore) -> Result<Option<u64>, ReadError> {
    let snapshot = store.snapshot()?;
    let mut values = BTreeSet::new();
    for row in snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward)? {
        values.insert(row?.1.into_owned());
    }
    assert!(values.len() <= 1, "half of a commit is seen: {values:?}");
    let value = values.pop_first().and_then(|value| value.try_into().ok());
    Ok(value.map(u64::from_be_bytes))
}

/// Commits in parts while the engine hangs and is killed, and while writers take over from each other: no reader sees half of one, none
/// that was acknowledged is lost, and none is made that was said not to be.
#[test]
fn large_commits_stay_whole() {
    const ROUNDS: u64 = 12;
    let Some(mut etcd) = Etcd::start() else { return };
    let address = format!("{}?max-txn-ops=32", etcd.prefix());
    let options = KvOptions { deadline: Duration::from_millis(700), ..unhurried() };
    let plain = KvOptions { cache_bytes: 0, ..options.clone() };
    let opened = |options: &KvOptions| in_time("it opens", || open(&address, options).ok());
    let mut writer = Arc::new(opened(&options));
    let (reader, uncached) = (opened(&options), opened(&plain));
    let (stop, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut last = 0;
    thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        for store in [&reader, &uncached] {
            scope.spawn(|| {
                let mut seen = 0;
                while !stop.load(Ordering::Acquire) {
                    if let Ok(Some(value)) = value_of_all(store) {
                        assert!(value >= seen, "{value} behind {seen}");
                        seen = value;
                        reads.fetch_add(1, Ordering::AcqRel);
                    }
                }
            });
        }
        let mut unknown = 0;
        for round in 1..=ROUNDS {
            let writing = scope.spawn({
                let writer = Arc::clone(&writer);
                move || commit(&writer, &whole(round))
            });
            // Amid it, at another moment each time.
            thread::sleep(Duration::from_millis(3 * round));
            match round % 3 {
                0 => {
                    etcd.crash(0);
                    thread::sleep(Duration::from_millis(200));
                    etcd.run();
                }
                1 => {
                    etcd.hang(0);
                    thread::sleep(Duration::from_millis(900));
                    etcd.go_on(0);
                }
                _ => {}
            }
            let made = match writing.join().expect("the writer ends") {
                Ok(_) => Some(true),
                Err(CommitError::OutcomeUnknown(attempt)) => {
                    unknown += 1;
                    if round % 2 == 0 {
                        // The writer is gone; whoever takes over brings it to its end, or makes it impossible.
                        writer = Arc::new(opened(&options));
                        until("another one takes over", || writer.take_over().is_ok());
                        None
                    } else {
                        Some(in_time("an outcome", || writer.outcome(attempt).ok()).is_some())
                    }
                }
                Err(error) => {
                    assert!(!matches!(error, CommitError::Fenced), "{error}");
                    Some(false)
                }
            };
            let shown = in_time("the engine answers", || value_of_all(&reader).ok()).unwrap_or(0);
            match made {
                Some(true) => assert_eq!(shown, round, "acknowledged"),
                Some(false) => assert_eq!(shown, last, "said not to be made"),
                None => assert!([last, round].contains(&shown), "{shown} behind {last}"),
            }
            last = shown;
        }
        println!("{unknown} outcomes of {ROUNDS} were unknown at first");
        until("there were readers", || reads.load(Ordering::Acquire) > 10);
    });
    until("it goes on", || commit(&writer, &whole(1000)).is_ok());
    assert_eq!(in_time("the engine answers", || value_of_all(&uncached).ok()), Some(1000));
    // Nothing is left of those that came to no end.
    until("it takes over", || writer.take_over().is_ok());
    let prefix = address.split('?').next().and_then(|address| address.rsplit('/').next()).expect("a prefix");
    let parts = etcd.ctl(&["get", "--prefix", &format!("/{prefix}/larix/s/"), "--keys-only"]);
    assert_eq!(parts.as_deref(), Some(""));
}

/// The writer and the engine die amid a large commit. Whoever takes over brings it to its end, in as many of its deadlines as that takes.
#[test]
fn a_large_commit_is_brought_to_its_end_in_several_deadlines() {
    const ROWS: u64 = 60_000;
    let Some(mut etcd) = Etcd::start() else { return };
    let prefix = etcd.prefix();
    let address = format!("{prefix}?max-txn-ops=32&max-request-bytes=262144");
    let pending = format!("/{}/larix/h/pending", prefix.rsplit('/').next().expect("a prefix"));
    let is_pending = |etcd: &Etcd| {
        let found = etcd.ctl(&["get", &pending, "--keys-only"]);
        found.is_some_and(|found| !found.trim().is_empty())
    };
    let writer = open(&address, &unhurried()).expect("open");
    let filled = |value: u8| {
        let mut set = WriteSet::new();
        (0..ROWS).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), vec![value; 100]));
        set
    };
    // Who takes over has a fourth of the time that this machine takes for all of it: more than enough for one of its 44 parts.
    let began = Instant::now();
    commit(&writer, &filled(7)).expect("commit");
    let deadline = began.elapsed() / 4;
    drop(writer);
    let set = filled(8);
    // The commit may be at its end before the engine is: then there is another one.
    until("one is half done", || {
        let writer = open(&address, &unhurried()).expect("open");
        let done = AtomicBool::new(false);
        let lost = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let _end = SetAtEnd(&done);
                commit(&writer, &set)
            });
            until("it is being carried out", || done.load(Ordering::Acquire) || is_pending(&etcd));
            etcd.crash(0);
            writing.join().expect("the writer ends")
        });
        assert!(matches!(lost, Ok(_) | Err(CommitError::OutcomeUnknown(_))), "{lost:?}");
        etcd.run();
        lost.is_err() && is_pending(&etcd)
    });
    let short = KvOptions { deadline, ..unhurried() };
    let next = in_time("it opens", || open(&address, &short).ok());
    until("it takes over", || next.take_over().is_ok());
    assert!(!is_pending(&etcd));
    let reader = open(&address, &unhurried()).expect("open");
    let snapshot = reader.snapshot().expect("snapshot");
    let rows = snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward).expect("scan");
    let whole = rows.filter(|row| matches!(row, Ok((_, value)) if value.first() == Some(&8)));
    assert_eq!(whole.count(), 60_000);
}

/// The bytes that the engine has sent to clients.
fn sent_bytes(etcd: &Etcd) -> f64 {
    metric(etcd, "etcd_network_client_grpc_sent_bytes_total")
}

/// A number that the engine counts.
fn metric(etcd: &Etcd, name: &str) -> f64 {
    let mut socket = TcpStream::connect(("127.0.0.1", etcd.port())).expect("etcd");
    socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asked");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("answered");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

/// Who commits in parts has its rows still, and does not have the engine send them.
#[test]
fn a_commit_in_parts_is_not_read_back() {
    const ROWS: u64 = 300;
    const ROW_BYTES: usize = 500;
    let Some(etcd) = Etcd::start() else { return };
    let (store, address) = fresh(&etcd);
    commit(&store, &put(b"a", b"1")).expect("commit");
    let mut set = WriteSet::new();
    (0..ROWS).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), vec![7; ROW_BYTES]));
    let before = sent_bytes(&etcd);
    commit(&store, &set).expect("commit");
    let sent = sent_bytes(&etcd) - before;
    assert!(sent < 50e3, "{sent} bytes for a commit of {} bytes", ROWS * ROW_BYTES as u64);
    let reader = open(&address, &unhurried()).expect("open");
    let snapshot = reader.snapshot().expect("snapshot");
    let rows = snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward).expect("scan");
    assert_eq!(rows.filter(|row| matches!(row, Ok((_, value)) if value.len() == ROW_BYTES)).count(), 300);
}

/// A commit asks once for each posting list that it changes and does not know, as long as the list is short.
#[test]
fn short_lists_are_asked_for_once() {
    const LISTS: u64 = 50;
    let Some(etcd) = Etcd::start() else { return };
    let (store, address) = fresh(&etcd);
    let list = |number: u64| [b"k", &number.to_be_bytes()[..]].concat();
    let change = |store: &KvStore, id: u64| {
        let mut set = WriteSet::new();
        // Every other one is new.
        (0..LISTS).for_each(|number| set.add_posting(POSTINGS, &list(number * id), 100 + id));
        commit(store, &set).expect("commit");
    };
    change(&store, 2);
    let other = open(&address, &unhurried()).expect("open");
    let before = metric(&etcd, "etcd_mvcc_range_total");
    change(&other, 1);
    let asked = metric(&etcd, "etcd_mvcc_range_total") - before;
    assert!(asked < 80.0, "{asked} questions for 50 lists");
    let snapshot = other.snapshot().expect("snapshot");
    let ids = |number: u64| snapshot.posting_estimate(POSTINGS, &list(number)).expect("a number");
    assert_eq!([ids(1), ids(2), ids(48), ids(49), ids(50), ids(98)], [1, 2, 2, 1, 1, 1]);
}

/// A scan of large records has the engine send each of them once, about.
#[test]
fn scans_of_large_records_ask_for_no_more_than_they_take() {
    const ROWS: u64 = 200;
    const ROW_BYTES: usize = 100_000;
    let Some(etcd) = Etcd::start() else { return };
    let (store, address) = fresh(&etcd);
    for first in (0..ROWS).step_by(10) {
        let mut set = WriteSet::new();
        (first..first + 10).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), vec![7; ROW_BYTES]));
        commit(&store, &set).expect("commit");
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let reader = open(&address, &KvOptions { cache_bytes: 0, ..unhurried() }).expect("open");
        let before = sent_bytes(&etcd);
        let snapshot = reader.snapshot().expect("snapshot");
        let rows = snapshot.scan(INTEGER, KeyRange::all(), direction).expect("scan");
        assert_eq!(rows.map(|row| row.expect("a row").1.len()).sum::<usize>(), 200 * ROW_BYTES);
        let sent = sent_bytes(&etcd) - before;
        assert!(sent < 40e6, "{sent} bytes for 20,000,000 in {direction:?}");
    }
}

#[test]
fn limits_are_named() {
    let Some(etcd) = Etcd::start() else { return };
    let (store, _) = fresh(&etcd);
    commit(&store, &put(b"a", &vec![1; 1_400_000])).expect("it fits");
    assert_eq!(get(&store, b"a").map(|value| value.len()), Some(1_400_000));
    let error = commit(&store, &put(b"a", &vec![1; 1_500_000])).expect_err("it does not").to_string();
    assert!(error.contains("1500000 bytes") && error.contains("--max-request-bytes"), "{error}");
    let mut set = WriteSet::new();
    (0..70u64).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), vec![7; 1_000_000]));
    let error = commit(&store, &set).expect_err("too much").to_string();
    assert!(error.contains("64 MB"), "{error}");
    // More than etcd takes, if it is told so wrongly.
    let wrong = format!("{}?max-txn-ops=4000", etcd.prefix());
    let store = open(&wrong, &unhurried()).expect("open");
    let error = commit(&store, &whole(1)).expect_err("too many operations").to_string();
    assert!(error.contains("--max-txn-ops"), "{error}");
    let wrong = format!("{}?max-request-bytes=9000000", etcd.prefix());
    let store = open(&wrong, &unhurried()).expect("open");
    let error = commit(&store, &put(b"a", &vec![1; 4_000_000])).expect_err("too large").to_string();
    assert!(error.contains("max-request-bytes"), "{error}");
    commit(&store, &put(b"a", b"small")).expect("it goes on");
}

#[test]
fn loads_come_whole_or_not() {
    let Some(etcd) = Etcd::start() else { return };
    let (store, address) = fresh(&etcd);
    commit(&store, &whole(1)).expect("commit");
    let mut loader = store.loader().expect("loader");
    loader.clear(INTEGER).expect("clear");
    (0..3000u64).for_each(|id| loader.append(INTEGER, &id.to_be_bytes(), b"loaded").expect("append"));
    let other = open(&address, &unhurried()).expect("open");
    assert_eq!(value_of_all(&other).expect("read"), Some(1), "not before its end");
    loader.finish().expect("finish");
    let snapshot = other.snapshot().expect("snapshot");
    assert_eq!(snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward).expect("scan").count(), 3000);
    assert_eq!(
        store.statistics().expect("statistics").tables.iter().map(|table| table.records).sum::<u64>(),
        3000
    );
    let mut posted = snapshot.postings(POSTINGS, b"k\0").expect("none");
    assert_eq!(posted.next().expect("none"), None);
}

#[test]
fn the_engine_is_gone_and_comes_back() {
    let Some(mut etcd) = Etcd::start() else { return };
    let (store, _) = fresh(&etcd);
    commit(&store, &put(b"a", b"1")).expect("commit");
    let held = store.snapshot().expect("snapshot");
    let feed = store.commit_feed().expect("a feed");
    etcd.crash_all();
    until("the feed has ended", || feed.wait(Duration::from_secs(1)).is_err());
    assert!(feed.check().is_err() && store.commit_feed().is_err());
    assert!(matches!(held.get(ORDERED, b"z"), Err(ReadError::Unavailable(_))));
    drop(held);
    let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("it is gone") };
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", etcd.port())), "{error}");
    assert!(matches!(store.transaction(), Err(CommitError::Unavailable(_))));
    assert!(matches!(store.take_over(), Err(CommitError::Unavailable(_))));
    etcd.run();
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
    let feed = store.commit_feed().expect("a feed");
    commit(&store, &put(b"a", b"2")).expect("commit");
    until("it hears again", || feed.wait(Duration::from_secs(1)).expect("a feed"));
}

#[test]
fn an_engine_that_hangs_holds_nobody_up() {
    let Some(etcd) = Etcd::start() else { return };
    let options = KvOptions { deadline: Duration::from_millis(500), ..unhurried() };
    let address = etcd.prefix();
    let store = in_time("it opens", || open(&address, &options).ok());
    until("it commits", || commit(&store, &put(b"a", b"1")).is_ok());
    let feed = in_time("it listens", || store.commit_feed().ok());
    let began = in_time("a transaction", || store.transaction().ok());
    etcd.hang(0);
    // On a busy machine its threads stop one after the other.
    until("it hangs", || store.snapshot().is_err());
    // Without its deadline it would wait for ever.
    for _ in 0..3 {
        let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("the engine hangs") };
        assert!(error.to_string().contains("did not answer within"), "{error}");
    }
    let lost = began.commit(&put(b"a", b"2"), Durability::Sync);
    let Err(CommitError::OutcomeUnknown(attempt)) = lost else { panic!("{lost:?}") };
    assert!(feed.check().is_err(), "the feed does not pass for one that hears");
    etcd.go_on(0);
    let made = in_time("an outcome", || store.outcome(attempt).ok()).is_some();
    let again = in_time("the same outcome", || store.outcome(attempt).ok());
    assert_eq!(again.is_some(), made, "for ever");
    let expected: &[u8] = if made { b"2" } else { b"1" };
    let value = in_time("the engine answers", || {
        let snapshot = store.snapshot().ok()?;
        snapshot.get(ORDERED, b"a").ok().map(|value| value.map(|value| value.into_owned()))
    });
    assert_eq!(value.as_deref(), Some(expected));
    until("it commits", || commit(&store, &put(b"a", b"3")).is_ok());
}

#[test]
fn history_that_is_compacted_is_not_missed() {
    let Some(etcd) = Etcd::start() else { return };
    let (store, _) = fresh(&etcd);
    commit(&store, &put(b"a", b"1")).expect("commit");
    let snapshot = store.snapshot().expect("snapshot");
    assert!(snapshot.get(ORDERED, b"a").expect("get").is_some());
    for number in 0..20u8 {
        commit(&store, &put(b"b", &[number])).expect("commit");
    }
    let status = etcd.ctl(&["get", "ready", "-w", "json"]).expect("json");
    let revision = status.split("\"revision\":").nth(1).expect("a revision");
    let revision: String = revision.chars().take_while(char::is_ascii_digit).collect();
    etcd.ctl(&["compact", &revision]).expect("compacted");
    // What it knows it still shows; for the rest it has to begin again.
    assert!(snapshot.get(ORDERED, b"a").expect("get").is_some());
    assert!(matches!(snapshot.get(ORDERED, b"zz"), Err(ReadError::Stale)));
    drop(snapshot);
    assert_eq!(get(&store, b"b").as_deref(), Some(&[19][..]));
}

#[test]
fn engines_that_hold_something_else_are_refused() {
    let Some(etcd) = Etcd::start() else { return };
    let refused =
        |address: &str, options: &KvOptions| open(address, options).expect_err("refused").to_string();
    let no_make = KvOptions { make: false, ..unhurried() };
    let text = refused(&etcd.prefix(), &no_make);
    assert!(text.contains("no store in the schema"), "{text}");
    for (damage, expected) in [
        (&["put", "@format", "2"][..], "holds format 2, but this version reads and writes format 1"),
        (&["put", "@format", "x"], "the number of the format cannot be read"),
        (&["del", "@format"], "the number of the format is not there"),
        (&["put", "@tables", "0 postings ordered"], "the table \"ordered\" as another kind"),
        (&["put", "@tables", "x"], "the list of tables cannot be read"),
        (&["del", "@h/version"], "h/version is not there"),
        (&["put", "@h/epoch", "x"], "h/epoch is no number"),
        (&["put", "@h/pending", "x"], "h/pending cannot be read"),
    ] {
        let (store, address) = fresh(&etcd);
        drop(store);
        let prefix = format!("/{}/larix/", address.rsplit('/').next().expect("a prefix"));
        let words: Vec<String> = damage.iter().map(|word| word.replace('@', &prefix)).collect();
        etcd.ctl(&words.iter().map(String::as_str).collect::<Vec<_>>()).expect("damage");
        let text = refused(&address, &unhurried());
        assert!(text.contains(expected), "{damage:?}: {text}");
    }
}

/// What a restore of an older backup leaves: the newest commit is another, or is not there.
#[test]
fn an_engine_that_loses_commits_is_refused() {
    let Some(etcd) = Etcd::start() else { return };
    for others in [0, 2, 300u32] {
        let (store, address) = fresh(&etcd);
        for value in [b"1", b"2"] {
            commit(&store, &put(b"a", value)).expect("commit");
        }
        let prefix = format!("/{}/larix/", address.rsplit('/').next().expect("a prefix"));
        etcd.ctl(&["del", "--prefix", &prefix]).expect("deleted");
        // As far as before, by somebody else, or so far that what is between is not told.
        let other = open(&address, &unhurried()).expect("open");
        for value in 0..others {
            commit(&other, &put(b"a", &value.to_be_bytes())).expect("commit");
        }
        for _ in 0..2 {
            let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("{others}") };
            assert!(error.to_string().contains("does not hold commit 2"), "{error}");
        }
        assert!(matches!(store.transaction(), Err(CommitError::Unavailable(_))));
        assert!(open(&address, &unhurried()).is_ok(), "what is there is served after a restart");
    }
}

/// Where commits were lost, another writer may have come as far in an epoch of the same number.
#[test]
fn a_writer_continues_no_other_commit_of_the_same_number() {
    let Some(etcd) = Etcd::start() else { return };
    for rows in [1, WHOLE_ROWS] {
        let (store, address) = fresh(&etcd);
        let lead = |store: &KvStore| {
            store.take_over().expect("take over");
            commit(store, &put(b"a", b"1")).expect("commit")
        };
        let last = lead(&store);
        let prefix = format!("/{}/larix/", address.rsplit('/').next().expect("a prefix"));
        etcd.ctl(&["del", "--prefix", &prefix]).expect("deleted");
        let other = open(&address, &unhurried()).expect("open");
        assert_eq!(lead(&other), last);
        let mut set = WriteSet::new();
        (0..rows).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), *b"late"));
        // It asks nothing before it commits.
        let refused = commit(&store, &set);
        assert!(matches!(refused, Err(CommitError::Conflict)), "{refused:?}");
        let refused = commit(&store, &set);
        assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
        assert!(!store.leads(), "it leaves the right to write to others");
        assert_eq!(commit(&other, &put(b"a", b"2")).expect("commit").0, last.0 + 1);
    }
}

#[test]
fn the_lease_goes_from_node_to_node() {
    let Some(etcd) = Etcd::start() else { return };
    let address = etcd.prefix();
    let node = |node: &str| {
        let options = KvOptions { name: format!("{node} larix"), writes: false, ..unhurried() };
        open(&address, &options).expect("open")
    };
    let (one, two) = (node("ldap://one"), node("ldap://two"));
    let (long, short) = (Duration::from_secs(600), Duration::from_secs(2));
    assert_eq!(one.lease().expect("lease").leader, None);
    // On a busy machine a short one may be over before the other node asks.
    until("one has it, and two does not get it", || {
        two.release_lease().expect("released");
        let is_held = one.hold_lease("ldap://one", short).expect("lease");
        let is_refused = !two.hold_lease("ldap://two", long).expect("lease");
        let lease = two.lease().expect("lease");
        let is_shown =
            lease.leader.as_deref() == Some("ldap://one") && !lease.is_own && !lease.left.is_zero();
        is_held && is_refused && is_shown && one.lease().expect("lease").is_own
    });
    // It ends by itself.
    until("two has it, and one does not get it", || {
        let is_held = two.hold_lease("ldap://two", short).expect("lease");
        let is_refused = is_held && !one.hold_lease("ldap://one", long).expect("lease");
        if is_held && !is_refused {
            one.release_lease().expect("released");
        }
        is_refused
    });
    // One that is held for longer from now on.
    assert!(two.hold_lease("ldap://two", long).expect("lease"));
    assert!(two.lease().expect("lease").left > Duration::from_secs(500));
    two.release_lease().expect("released");
    one.release_lease().expect("not its own");
    assert!(one.hold_lease("ldap://one", long).expect("lease"));
    assert!(two.end_lease(long).expect("ended"));
    assert!(!one.hold_lease("ldap://one", long).expect("it is kept away"));
    assert!(two.hold_lease("ldap://two", long).expect("lease"));
    shared::a_lost_lease_comes_anew(&two, &node("ldap://three"));
    two.release_lease().expect("released");

    until("both are connected", || one.sessions().expect("sessions").len() == 2);
    let none = two.remove("ldap://three", "ldap://three larix", long).expect("removed");
    assert_eq!((none.held_lease, none.connections), (false, 0));
    let three = node("ldap://three");
    assert!(three.hold_lease("ldap://three", long).expect("lease"));
    until("it is connected", || one.sessions().expect("sessions").len() == 3);
    let removed = two.remove("ldap://three", "ldap://three larix", long).expect("removed");
    assert!(removed.held_lease && removed.connections == 1, "{removed:?}");
    assert!(!three.hold_lease("ldap://three", long).expect("lease"));
    drop(three);
    until("it is gone", || one.sessions().expect("sessions").len() == 2);
}

#[test]
fn nodes_send_messages_to_each_other() {
    let Some(etcd) = Etcd::start() else { return };
    let (leader, address) = fresh(&etcd);
    let node = open(&address, &KvOptions { writes: false, ..unhurried() }).expect("open");
    let (at_leader, at_node) = (leader.mailbox().expect("mailbox"), node.mailbox().expect("mailbox"));
    // A busy machine may take so long to send them that the first are old: then they are sent again.
    let taken = in_time("all of them, none of them old", || {
        for number in 1..=200u64 {
            let body = vec![u8::try_from(number % 250).expect("small"); 10];
            node.send_message(Recipient::Leader, number, body).expect("sent");
        }
        assert!(leader.wait_for_messages(&at_leader, Duration::from_secs(60)).expect("heard"));
        let taken = leader.take_messages(&at_leader, true).expect("taken");
        (taken.len() == 200).then_some(taken)
    });
    assert_eq!(taken.iter().map(|message| message.number).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
    assert!(taken.iter().all(|message| message.to_leader && message.body.len() == 10));
    assert_eq!(leader.take_messages(&at_leader, true).expect("none"), [], "each is taken once");
    let sender = taken.first().expect("one").sender.clone();
    leader.send_message(Recipient::Node(&sender), 7, b"answer".to_vec()).expect("sent");
    until("the answer is there", || {
        node.wait_for_messages(&at_node, Duration::from_secs(1)).expect("heard");
        let answers = node.take_messages(&at_node, false).expect("taken");
        answers.iter().any(|answer| !answer.to_leader && answer.number == 7 && answer.body == b"answer")
    });
    assert_eq!(leader.take_messages(&at_leader, false).expect("none"), []);
    // Nobody waits for one that is old.
    node.send_message(Recipient::Leader, 8, b"late".to_vec()).expect("sent");
    let prefix = address.rsplit('/').next().expect("a prefix");
    let kept = || etcd.ctl(&["get", "--prefix", &format!("/{prefix}/larix/m/"), "--keys-only"]);
    until("it is kept", || kept().is_some_and(|keys| !keys.is_empty()));
    until("it has expired", || kept().as_deref() == Some(""));
    assert_eq!(leader.take_messages(&at_leader, true).expect("none"), []);
    while node.wait_for_messages(&at_node, Duration::from_millis(1)).expect("heard") {}
    at_node.wake();
    assert!(node.wait_for_messages(&at_node, Duration::from_secs(60)).expect("woken"));
}

/// Three members under mixed commits of two writers, whose leader is killed again and again: nothing acknowledged is lost, nothing is there that
/// was said not to be made, and nothing is there in part.
#[test]
fn nothing_is_lost_when_leaders_of_three_die() {
    let rounds = std::env::var("LARIX_ETCD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let Some(mut etcd) = Etcd::start_members(3) else { return };
    let address = format!("{}?max-txn-ops=64", etcd.prefix());
    let options = KvOptions { deadline: Duration::from_secs(3), ..unhurried() };
    let opened = || in_time("it opens", || open(&address, &options).ok());
    let stores = [opened(), opened()];
    let (stop, next) = (AtomicBool::new(false), AtomicU32::new(0));
    let (made, unknown) = (Mutex::new(BTreeSet::new()), Arc::new(Mutex::new(BTreeSet::new())));
    let slowest = Mutex::new(Duration::ZERO);
    thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        for store in &stores {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    // Every eighth is one in parts.
                    let rows = if number.is_multiple_of(8) { 150u32 } else { 3 };
                    let mut set = WriteSet::new();
                    for row in 0..rows {
                        set.put(ORDERED, &[number.to_be_bytes(), row.to_be_bytes()].concat(), *b"v");
                    }
                    let began = Instant::now();
                    let done = loop {
                        match commit(store, &set) {
                            Err(CommitError::Conflict) => {}
                            Err(CommitError::OutcomeUnknown(attempt)) => {
                                let settled = (0..100).find_map(|_| {
                                    let settled = store.outcome(attempt).ok();
                                    if settled.is_none() {
                                        thread::sleep(Duration::from_millis(100));
                                    }
                                    settled
                                });
                                match settled {
                                    Some(Some(_)) => break true,
                                    Some(None) => {}
                                    None => {
                                        unknown.lock().expect("whole").insert(number);
                                        break false;
                                    }
                                }
                            }
                            // The test is over or has failed, and nothing was made.
                            Err(_) if stop.load(Ordering::Acquire) => break false,
                            Err(_) => thread::sleep(Duration::from_millis(20)),
                            Ok(_) => break true,
                        }
                    };
                    if done {
                        made.lock().expect("whole").insert(number);
                    }
                    let mut slowest = slowest.lock().expect("whole");
                    *slowest = began.elapsed().max(*slowest);
                }
            });
        }
        let count = || made.lock().expect("whole").len();
        for _ in 0..rounds {
            let reached = count() + 30;
            until("commits go on", || count() >= reached);
            let mut leader = None;
            until("there is a leader", || {
                leader = etcd.leader();
                leader.is_some()
            });
            etcd.crash(leader.expect("a leader"));
            let reached = count() + 10;
            until("commits go on without it", || count() >= reached);
            etcd.run();
        }
    });
    let (made, unknown) = (made.into_inner().expect("whole"), unknown.lock().expect("whole").clone());
    println!(
        "{} commits acknowledged in {rounds} rounds, {} unknown, the slowest took {:?}",
        made.len(),
        unknown.len(),
        slowest.into_inner().expect("whole")
    );
    let last = open(&address, &unhurried()).expect("open");
    let snapshot = last.snapshot().expect("snapshot");
    let mut there = std::collections::BTreeMap::<u32, u32>::new();
    for row in snapshot.scan(ORDERED, KeyRange::all(), Direction::Forward).expect("scan") {
        let (key, _) = row.expect("a row");
        let number = u32::from_be_bytes(key[..4].try_into().expect("a number"));
        *there.entry(number).or_default() += 1;
    }
    for number in &made {
        assert!(there.contains_key(number), "{number} is lost");
    }
    for (number, rows) in there {
        assert_eq!(rows, if number.is_multiple_of(8) { 150 } else { 3 }, "{number} is whole");
        assert!(made.contains(&number) || unknown.contains(&number), "{number} was said not to be made");
    }
}
