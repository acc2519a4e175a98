//! The store over a real PostgreSQL: the contract, and what goes wrong with engines.

#![allow(clippy::disallowed_methods, reason = "deadlines of tests")]

mod figures;
mod in_front;
#[macro_use]
#[path = "../shared/mod.rs"]
mod shared;
mod tls;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larix_kv::{Address, KvOptions, KvStore, OpenError, Recipient};
use larix_store::contract::{INTEGER, ORDERED, OTHER, POSTINGS, TABLES};
use larix_store::{
    CommitError, CommitId, Direction, Durability, KeyRange, PostingCursor, ReadError, Snapshot, Store,
    TableId, TableKind, TableSpec, Transaction, WriteSet,
};
use larix_testkit::postgresql::Engine;
use shared::{StoreAddress, TestEngine, commit, get, in_time, put, unhurried, until};

/// A database, and how many schemas in it have stores: they cost less than databases.
struct Database {
    engine: Engine,
    address: String,
    stores: AtomicU32,
}

impl Database {
    fn start() -> Option<Self> {
        let engine = Engine::start()?;
        let address = engine.database().1;
        Some(Self { engine, address, stores: AtomicU32::new(0) })
    }
}

impl TestEngine for Database {
    const PATH_TRIPS: u64 = 1;

    fn place(&self) -> StoreAddress {
        let _runs = &self.engine;
        let schema = format!("s{}", self.stores.fetch_add(1, Ordering::Relaxed));
        StoreAddress { address: self.address.clone(), schema }
    }
}

over!(Database::start());

fn open(engine: &Engine, database: &str, options: &KvOptions) -> Result<KvStore, OpenError> {
    KvStore::open(&address(engine, database), &TABLES, options)
}

fn address(engine: &Engine, database: &str) -> Address {
    Address::parse(&engine.address(database)).expect("an address")
}

fn fresh(engine: &Engine) -> (KvStore, String) {
    let (name, _) = engine.database();
    (open(engine, &name, &unhurried()).expect("open"), name)
}

/// Ends the connections of servers that wait for this, while they do.
fn end_those_that_wait(engine: &Engine, name: &str, wait: &str) {
    interrupt(engine, name, wait, "pg_terminate_backend");
}

fn interrupt(engine: &Engine, name: &str, wait: &str, function: &str) {
    until("somebody waits", || {
        let text = format!(
            "SELECT count({function}(pid)) FROM pg_stat_activity WHERE application_name = 'larix' AND \
             datname = '{name}' AND wait_event = '{wait}'"
        );
        engine.sql("postgres", &text).is_some_and(|count| count != "0")
    });
}

#[test]
fn an_answer_is_lost_and_the_commit_was_made() {
    let Some(engine) = Engine::start() else { return };
    made_and_not_replicated(&engine, "pg_terminate_backend");
}

/// The engine answers that it has committed, and that it has not waited.
#[test]
fn the_wait_for_the_standby_is_cancelled() {
    let Some(engine) = Engine::start() else { return };
    made_and_not_replicated(&engine, "pg_cancel_backend");
}

fn made_and_not_replicated(engine: &Engine, interruption: &str) {
    let (name, _) = engine.database();
    // What the engine's people want to see of it makes no difference.
    let quiet = format!("ALTER DATABASE \"{name}\" SET client_min_messages = error");
    engine.sql("postgres", &quiet).expect("set");
    let options = KvOptions { deadline: Duration::from_secs(5), ..unhurried() };
    let store = in_time("it opens", || open(engine, &name, &options).ok());
    let other = in_time("it opens", || open(engine, &name, &options).ok());
    let feed = other.commit_feed().expect("a feed");
    let mut last = in_time("it commits", || commit(&store, &put(b"a", b"1")).ok());
    until("another node hears of it", || feed.wait(Duration::from_secs(1)).expect("a feed"));
    // The engine commits, and waits for a standby that never answers.
    engine.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'").expect("set");
    engine.sql("postgres", "SELECT pg_reload_conf()").expect("reload");
    until("the setting", || {
        engine.sql("postgres", "SHOW synchronous_standby_names").as_deref() == Some("nobody")
    });
    let lost = thread::scope(|scope| {
        // The process of the engine that says who waits hears of the setting a moment later than others.
        let writer = scope.spawn(|| {
            loop {
                match commit(&store, &put(b"a", b"2")) {
                    Ok(made) => last = made,
                    Err(lost) => break lost,
                }
            }
        });
        interrupt(engine, &name, "SyncRep", interruption);
        writer.join().expect("the writer ends")
    });
    let CommitError::OutcomeUnknown(attempt) = lost else { panic!("{lost:?}") };
    // It is there, but the standby may lack it: not yet a success.
    assert!(matches!(store.outcome(attempt), Err(ReadError::Unavailable(_))));
    engine.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names").expect("reset");
    engine.sql("postgres", "SELECT pg_reload_conf()").expect("reload");
    let outcome = in_time("the outcome", || store.outcome(attempt).ok());
    assert_eq!(outcome, Some(CommitId(last.0 + 1)));
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"2"[..]));
    until("another node hears of that one, too", || feed.wait(Duration::from_secs(1)).expect("a feed"));
    in_time("it commits", || commit(&store, &put(b"a", b"3")).ok());
}

#[test]
fn an_answer_is_lost_and_the_commit_was_not_made() {
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    let first = commit(&store, &put(b"a", b"1")).expect("commit");
    let done = &AtomicBool::new(false);
    let lost = thread::scope(|scope| {
        let engine = &engine;
        let name = &name;
        let lock = scope.spawn(move || {
            let text = "BEGIN; LOCK TABLE larix.rows IN SHARE MODE; SELECT pg_sleep(3600)";
            engine.sql(name, text)
        });
        until("the lock", || {
            let text =
                "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND granted AND relation IS NOT NULL";
            engine.sql(name, text).is_some_and(|count| count != "0")
        });
        let store = &store;
        let writer = scope.spawn(move || {
            let lost = commit(store, &put(b"a", b"2"));
            done.store(true, Ordering::Release);
            lost
        });
        end_those_that_wait(engine, name, "relation");
        until("an answer", || done.load(Ordering::Acquire));
        let unlock = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)%' AND \
                      pid <> pg_backend_pid()";
        engine.sql("postgres", unlock).expect("unlock");
        assert_eq!(lock.join().expect("the lock ends"), None);
        writer.join().expect("the writer ends")
    });
    let Err(CommitError::OutcomeUnknown(attempt)) = lost else { panic!("{lost:?}") };
    assert_eq!(store.outcome(attempt).expect("outcome"), None);
    assert_eq!(store.outcome(attempt).expect("outcome"), None, "for ever");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
    // The place that it wanted is taken, so that it can never be made.
    assert_eq!(commit(&store, &put(b"a", b"3")).expect("commit").0, first.0 + 2);
}

/// A commit of many rows takes the engine longer than the deadline of one answer.
#[test]
fn a_large_commit_has_more_time() {
    const ROWS: u64 = 150_000;
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let options = KvOptions { deadline: Duration::from_millis(500), ..unhurried() };
    let store = in_time("it opens", || open(&engine, &name, &options).ok());
    let mut set = WriteSet::new();
    (0..ROWS).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), *b"value"));
    in_time("it has the time that it takes", || commit(&store, &set).ok());
    // The next one on the same connection has the usual time again.
    let held = engine.sql(&name, "SELECT count(*) FROM larix.rows");
    assert_eq!(held.as_deref(), Some("150000"));
    in_time("a small one", || commit(&store, &put(b"a", b"1")).ok());
}

#[test]
fn the_engine_is_gone_and_comes_back() {
    let Some(mut engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    commit(&store, &put(b"a", b"1")).expect("commit");
    let held = store.snapshot().expect("snapshot");
    let feed = store.commit_feed().expect("a feed");
    engine.crash();
    until("the feed has ended", || feed.wait(Duration::from_secs(1)).is_err());
    assert!(feed.check().is_err() && store.commit_feed().is_err());
    assert!(matches!(held.get(ORDERED, b"z"), Err(ReadError::Unavailable(_))));
    drop(held);
    assert!(matches!(store.snapshot(), Err(ReadError::Unavailable(_))));
    assert!(matches!(store.transaction(), Err(CommitError::Unavailable(_))));
    assert!(matches!(store.take_over(), Err(CommitError::Unavailable(_))));
    engine.run();
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
    let feed = store.commit_feed().expect("a feed");
    let other = open(&engine, &name, &unhurried()).expect("open");
    commit(&other, &put(b"a", b"2")).expect("commit");
    until("it hears again", || feed.wait(Duration::from_secs(1)).expect("a feed"));
}

#[test]
fn a_node_is_not_woken_by_its_own_commits() {
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    let other = open(&engine, &name, &unhurried()).expect("open");
    let (own, others) = (store.commit_feed().expect("a feed"), other.commit_feed().expect("a feed"));
    for number in 0..5_u8 {
        commit(&store, &put(b"a", &[number])).expect("commit");
        until("the other one hears of it", || others.wait(Duration::from_secs(1)).expect("a feed"));
        // What has come on this connection has come before the answer.
        own.check().expect("it hears");
        assert!(!own.wait(Duration::ZERO).expect("a feed"));
    }
}

/// The system of a server that hangs accepts connections.
#[test]
fn a_server_that_hangs_is_passed_over() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let frozen = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let text =
        engine.address(&name).replacen('@', &format!("@{},", frozen.local_addr().expect("its address")), 1);
    let address = Address::parse(&text).expect("an address");
    let options = KvOptions { deadline: Duration::from_secs(1), ..unhurried() };
    let store = in_time("it opens", || KvStore::open(&address, &TABLES, &options).ok());
    in_time("it commits", || commit(&store, &put(b"a", b"1")).ok());
}

/// A standby, or a primary with this setting.
#[test]
fn a_server_that_takes_no_writes_is_named() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let setting = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    engine.sql("postgres", &setting).expect("set");
    let Err(OpenError::Unavailable(error)) = open(&engine, &name, &unhurried()) else {
        panic!("it takes no writes")
    };
    for text in [":5432: ", "takes no writes", "default_transaction_read_only", "promoted"] {
        assert!(error.contains(text), "{error}");
    }
}

/// Where nothing was sent, it is known that nothing was made.
#[test]
fn a_commit_that_reaches_no_server_is_not_made() {
    let Some(mut engine) = Engine::start() else { return };
    let (store, _) = fresh(&engine);
    store.take_over().expect("take over");
    commit(&store, &put(b"a", b"1")).expect("commit");
    let transaction = store.transaction().expect("transaction");
    engine.crash();
    let result = transaction.commit(&put(b"a", b"2"), Durability::Sync);
    assert!(matches!(&result, Err(CommitError::Unavailable(_))), "{result:?}");
    engine.run();
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
}

/// A primary that hung answers again, until it hears that another server has taken its place.
#[test]
fn a_server_that_lacks_commits_is_refused_until_it_has_them() {
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    for value in [b"1", b"2"] {
        commit(&store, &put(b"a", value)).expect("commit");
    }
    let newest = "version = (SELECT max(version) FROM larix.commits)";
    let lose = format!(
        "CREATE TABLE larix.lost AS SELECT * FROM larix.commits WHERE {newest}; DELETE FROM larix.commits WHERE {newest}"
    );
    engine.sql(&name, &lose).expect("lose");
    for _ in 0..2 {
        let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("it lacks a commit") };
        assert!(error.to_string().contains("does not hold commit"), "{error}");
        assert!(matches!(store.take_over(), Err(CommitError::Unavailable(_))));
    }
    engine.sql(&name, "INSERT INTO larix.commits SELECT * FROM larix.lost").expect("find");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"2"[..]));
    commit(&store, &put(b"a", b"3")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"3"[..]));
}

/// Reads hold all connections that there may be, and the node that writes keeps its right to.
#[test]
fn the_lease_waits_for_no_read() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let deadline = Duration::from_millis(500);
    let options = KvOptions { connections: 2, deadline, ..unhurried() };
    let store = in_time("it opens", || open(&engine, &name, &options).ok());
    let lease = Duration::from_secs(600);
    for round in 0..3 {
        let read = || in_time("a snapshot", || store.snapshot().ok());
        let reads = [read(), read()];
        let third = store.snapshot().map(|_| ()).expect_err("no connection is left");
        assert!(third.to_string().contains("all 2 connections"), "{third}");
        let is_held = in_time("it is renewed", || store.hold_lease("ldap://one", lease).ok());
        assert!(is_held, "round {round}");
        assert!(in_time("the lease", || store.lease().ok()).is_own);
        if round == 1 {
            // Its connection ends unnoticed, and another one takes the place.
            let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%lease%' AND \
                          pid <> pg_backend_pid()";
            assert_ne!(engine.sql("postgres", others).as_deref(), Some("0"));
            until("it is renewed", || store.hold_lease("ldap://one", lease).is_ok());
        }
        drop(reads);
        until("it is released", || store.release_lease().is_ok());
    }
}

/// An engine that lets fewer connections in than the store would have: who finds none waits for the next one.
#[test]
fn an_engine_with_few_connections_is_enough() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let role =
        format!("CREATE ROLE few LOGIN CONNECTION LIMIT 3; GRANT CREATE ON DATABASE \"{name}\" TO few");
    engine.sql(&name, &role).expect("a role");
    let address = Address::parse(&engine.address(&name).replace("larix:", "few:")).expect("an address");
    // It connects to make its tables, and the engine may count that for a moment.
    let store = in_time("it opens", || KvStore::open(&address, &TABLES, &unhurried()).ok());
    commit(&store, &put(b"a", b"1")).expect("commit");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]))));
        }
    });
    // Not each of them has tried to connect.
    let refused = engine.log().matches("too many connections for role").count();
    assert!(refused < 400, "{refused} of 1,600 reads");
}

#[test]
fn a_node_is_removed() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let node = |node: &str| {
        let options = KvOptions { name: format!("{node} larix"), writes: false, ..unhurried() };
        open(&engine, &name, &options).expect("open")
    };
    let (one, two) = (node("ldap://one"), node("ldap://two"));
    let lease = Duration::from_secs(600);
    assert!(one.hold_lease("ldap://one", lease).expect("lease"));
    assert!(!two.hold_lease("ldap://two", lease).expect("lease"));
    let none = two.remove("ldap://three", "ldap://three larix", lease).expect("removed");
    assert_eq!((none.held_lease, none.connections), (false, 0));
    let removed = two.remove("ldap://one", "ldap://one larix", lease).expect("removed");
    assert!(removed.held_lease && removed.connections > 0, "{removed:?}");
    until("its connections are gone", || {
        two.sessions().expect("sessions").iter().all(|session| !session.name.contains("ldap://one"))
    });
    // It comes back as one that reads.
    until("it connects again", || one.lease().is_ok());
    assert!(!one.hold_lease("ldap://one", lease).expect("lease"));
    assert!(two.hold_lease("ldap://two", lease).expect("lease"));
    shared::a_lost_lease_comes_anew(&two, &node("ldap://three"));
}

#[test]
fn stores_of_before_get_a_place_for_what_nodes_say() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let before = open(&engine, &name, &unhurried()).expect("open");
    engine.sql(&name, "DROP TABLE larix.nodes").expect("dropped");
    before.say("ldap://one", b"in vain").expect("nobody waits for it");
    assert!(before.unsay("ldap://one").is_err(), "it has no place");
    assert_eq!(before.said().expect("nothing"), []);
    commit(&before, &put(b"a", b"1")).expect("the store is as it was");
    let server = open(&engine, &name, &unhurried()).expect("open");
    let shows = |expected: &[&str]| {
        let said = before.said().expect("said");
        said.iter().map(|said| &*said.node).eq(expected.iter().copied())
    };
    server.say("ldap://one", b"said").expect("said");
    until("it is said", || shows(&["ldap://one"]));
    // One that was removed has said nothing.
    before.remove("ldap://one", "ldap://one larix", Duration::ZERO).expect("removed");
    assert_eq!(before.said().expect("said"), []);
    // What was said long ago goes with what is said next.
    server.say("ldap://old", b"said").expect("said");
    until("it is said", || shows(&["ldap://old"]));
    engine.sql(&name, "UPDATE larix.nodes SET said = said - interval '25 hours'").expect("aged");
    server.say("ldap://one", b"said").expect("said");
    until("it alone is there", || shows(&["ldap://one"]));
}

/// The node that writes says what it is, and goes on to renew its lease.
#[test]
fn what_cannot_be_said_holds_nobody_up() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    // So long that the test would not end if it were waited for.
    let long = Duration::from_secs(36_000);
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    other.set_nonblocking(true).expect("it does not wait");
    let text = engine.address(&name);
    let (servers, database) = text.rsplit_once('/').expect("a database");
    let text = format!("{servers},{}/{database}", other.local_addr().expect("its address"));
    let address = Address::parse(&text).expect("an address");
    let options = KvOptions { deadline: long, ..unhurried() };
    let store = KvStore::open(&address, &TABLES, &options).expect("open");
    let reader = KvStore::open(&address, &TABLES, &options).expect("open");
    let others = reader.commit_feed().expect("a feed");
    assert!(store.hold_lease("ldap://one", long).expect("lease"));
    let renews = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO larix.lease%'";
    let connection = engine.sql(&name, renews).expect("a connection");
    let locks = "BEGIN; LOCK TABLE larix.nodes; SELECT pg_sleep(36000)";
    thread::scope(|scope| {
        scope.spawn(|| engine.sql(&name, locks));
        let locked =
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(%' AND wait_event = 'PgSleep'";
        until("it is locked", || engine.sql(&name, locked).as_deref() == Some("1"));
        let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%larix.nodes%' AND wait_event_type = 'Lock'";
        until("the word waits", || {
            store.say("ldap://one", b"in vain").expect("nobody waits for it");
            engine.sql(&name, waits).as_deref() == Some("t")
        });
        assert!(store.hold_lease("ldap://one", long).expect("lease"));
        // The connection that a lease is renewed over is kept: to make another one takes long where answers are slow.
        assert_eq!(engine.sql(&name, renews).expect("a connection"), connection);
        commit(&store, &put(b"a", b"1")).expect("commit");
        until("commits are announced", || others.wait(Duration::from_secs(1)).expect("a feed"));
        let ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        engine.sql(&name, ends).expect("ended");
    });
    // A locked table is no sign that the server hangs: the lease would have to wait for another one.
    assert!(other.accept().is_err(), "the other server was asked");
    until("it is said", || {
        store.say("ldap://one", b"said").expect("nobody waits for it");
        store.said().expect("said").iter().any(|said| said.words == b"said")
    });
}

/// Somebody turns it off for the whole engine while nodes are connected.
#[test]
fn what_is_acknowledged_is_on_the_disk_whatever_the_engine_waits_for() {
    // The engine writes by itself so seldom that a crash loses what was not waited for.
    let Some(mut engine) = Engine::start_with(&["wal_writer_delay = 10s"]) else { return };
    let (store, _) = fresh(&engine);
    store.take_over().expect("take over");
    commit(&store, &put(b"a", &[0])).expect("commit");
    engine.sql("postgres", "ALTER SYSTEM SET synchronous_commit = off").expect("set");
    engine.sql("postgres", "SELECT pg_reload_conf()").expect("read");
    until("it is off", || engine.sql("postgres", "SHOW synchronous_commit").as_deref() == Some("off"));
    for value in 1..=20 {
        commit(&store, &put(b"a", &[value])).expect("commit");
    }
    engine.crash();
    engine.run();
    assert_eq!(get(&store, b"a").as_deref(), Some(&[20][..]));
}

/// A node does not begin on such an engine either.
#[test]
fn who_writes_gives_an_engine_up_that_waits_for_no_disk() {
    let Some(engine) = Engine::start() else { return };
    let (store, _) = fresh(&engine);
    let lease = Duration::from_secs(600);
    assert!(store.hold_lease("ldap://one", lease).expect("lease"));
    let set = |value: &str| {
        engine.sql("postgres", &format!("ALTER SYSTEM SET fsync = {value}")).expect("set");
        engine.sql("postgres", "SELECT pg_reload_conf()").expect("read");
    };
    set("off");
    until("it is noticed", || {
        let held = store.hold_lease("ldap://one", lease);
        held.is_err_and(|error| error.to_string().contains("fsync is off"))
    });
    set("on");
    until("it is on again", || store.hold_lease("ldap://one", lease).is_ok());
}

/// The engine knows the tables as they were when it looked at them last, with next to nothing in them.
#[test]
fn statements_go_by_keys_whatever_the_engine_knows_of_its_tables() {
    const ROWS: u64 = 4000;
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    drop(store);
    let settled = || {
        // The engine counts what a connection did when that ends.
        let connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'larix'";
        until("nobody is connected", || engine.sql(&name, connected).as_deref() == Some("0"));
    };
    let counted = |what: &str| -> u64 {
        let text = format!(
            "SELECT sum({what}) FROM pg_stat_user_tables WHERE schemaname = 'larix' AND relname IN ('rows', 'commits')"
        );
        engine.sql(&name, &text).and_then(|sum| sum.parse().ok()).expect("a number")
    };
    settled();
    engine.sql(&name, "ANALYZE larix.rows, larix.commits").expect("analyzed");
    let (whole, by_key, fetched) = (counted("seq_scan"), counted("idx_scan"), counted("idx_tup_fetch"));
    let opened = || open(&engine, &name, &unhurried()).expect("open");
    let (writer, reader) = (opened(), opened());
    let remove = || {
        let mut set = WriteSet::new();
        set.delete(ORDERED, b"nothing");
        commit(&writer, &set).expect("commit");
    };
    // From here on the plan is the same.
    remove();
    // Records, ranges, lists and paths are read, and rows are written and removed.
    shared::wanted::comes_at_once(&writer, &reader, Database::PATH_TRIPS);
    let mut set = WriteSet::new();
    (0..ROWS).for_each(|id| set.put(OTHER, &id.to_be_bytes(), *b"value"));
    commit(&writer, &set).expect("commit");
    remove();
    drop((writer, reader));
    settled();
    until("it is counted", || counted("idx_scan") > by_key);
    assert_eq!(counted("seq_scan"), whole, "a table was gone through");
    assert!(counted("idx_tup_fetch") - fetched < ROWS, "a key was gone through");
}

/// What others have made in the database is not carried out in the name of the store's role, and cannot change what statements mean.
#[test]
fn functions_and_operators_are_the_engines_own_whatever_the_path() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    for text in [
        "CREATE SCHEMA others",
        "CREATE FUNCTION others.same(bytea, bytea) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR others.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = others.same)",
        // The arguments fit better than those of the engine's own, so that these count behind pg_catalog, too.
        "CREATE FUNCTION others.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$",
        "CREATE FUNCTION others.times(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$",
        "CREATE OPERATOR others.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = others.times)",
    ] {
        engine.sql(&name, text).expect(text);
    }
    for path in ["others, pg_catalog", "pg_catalog, others"] {
        let text = format!("ALTER DATABASE {name} SET search_path = {path}");
        engine.sql("postgres", &text).expect("set");
        let opened = || open(&engine, &name, &unhurried()).expect("open");
        let (writer, reader) = (opened(), opened());
        for (key, value) in [(b"a", b"1"), (b"b", b"2")] {
            commit(&writer, &put(key, value)).expect("commit");
        }
        let mut set = WriteSet::new();
        set.delete(ORDERED, b"a");
        commit(&writer, &set).expect("commit");
        assert_eq!(get(&reader, b"a"), None, "{path}");
        assert_eq!(get(&reader, b"b").as_deref(), Some(&b"2"[..]), "{path}");
        writer.renew_lease("ldap://one", Duration::from_secs(600)).expect("lease");
        writer.release_lease().expect("released");
    }
}

/// A role may have a time for its statements and their locks that is too short for making tables.
#[test]
fn a_store_is_made_whatever_time_the_role_has() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let short = format!("ALTER DATABASE {name} SET lock_timeout = 1");
    engine.sql("postgres", &short).expect("set");
    let opened = thread::scope(|scope| {
        scope.spawn(|| engine.sql(&name, HOLDS_MAKING_LOCK));
        until("somebody has the lock", || has_making_lock(&engine, &name, "granted"));
        let opening = scope.spawn(|| open(&engine, &name, &unhurried()));
        until("it waits for the lock", || {
            has_making_lock(&engine, &name, "NOT granted") || opening.is_finished()
        });
        engine.sql("postgres", GIVES_MAKING_LOCK_BACK).expect("ended");
        opening.join().expect("it opens")
    });
    let store = opened.expect("open");
    commit(&store, &put(b"a", b"1")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
}

/// Takes the lock of a node that makes a store, and keeps it.
const HOLDS_MAKING_LOCK: &str = "SELECT pg_advisory_lock(7809649026153802614), pg_sleep(3600)";
const GIVES_MAKING_LOCK_BACK: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE \
     query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()";

/// Whether somebody has that lock (`granted`), or waits for it (`NOT granted`).
fn has_making_lock(engine: &Engine, name: &str, what: &str) -> bool {
    let text = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {what} AND \
         database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    engine.sql(name, &text).is_some_and(|count| count != "0")
}

/// Each try would leave a connection of the engine behind.
#[test]
fn the_engine_does_not_wait_for_a_node_that_has_given_up() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let options = KvOptions { deadline: Duration::from_millis(200), ..unhurried() };
    thread::scope(|scope| {
        scope.spawn(|| engine.sql(&name, HOLDS_MAKING_LOCK));
        until("somebody has the lock", || has_making_lock(&engine, &name, "granted"));
        let opened = open(&engine, &name, &options).map(drop);
        until("nobody waits for it", || !has_making_lock(&engine, &name, "NOT granted"));
        let is_held = has_making_lock(&engine, &name, "granted");
        engine.sql("postgres", GIVES_MAKING_LOCK_BACK).expect("ended");
        assert!(opened.is_err() && is_held, "{opened:?}, {is_held}");
    });
}

#[test]
fn an_engine_that_hangs_holds_nobody_up() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let options = KvOptions { deadline: Duration::from_millis(500), connections: 2, ..unhurried() };
    let store = in_time("it opens", || open(&engine, &name, &options).ok());
    until("it commits", || commit(&store, &put(b"a", b"1")).is_ok());
    let feed = in_time("it listens", || store.commit_feed().ok());
    let pids = engine
        .sql("postgres", "SELECT pid FROM pg_stat_activity WHERE application_name = 'larix'")
        .expect("connections");
    let all: Vec<String> = pids.lines().map(str::to_owned).chain([engine.pid().to_string()]).collect();
    let signal = |name: &str| {
        for pid in &all {
            std::process::Command::new("kill").args([name, pid]).status().expect("kill");
        }
    };
    signal("-STOP");
    // On a busy machine its processes stop one after the other.
    until("it hangs", || store.snapshot().is_err());
    for _ in 0..3 {
        let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("the engine hangs") };
        assert!(error.to_string().contains("did not answer within"), "{error}");
    }
    assert!(feed.check().is_err(), "the feed does not pass for one that hears");
    signal("-CONT");
    let value = in_time("the engine answers", || {
        let snapshot = store.snapshot().ok()?;
        snapshot.get(ORDERED, b"a").ok().map(|value| value.map(|value| value.into_owned()))
    });
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
    // All connections in use: others are told so.
    let one = in_time("one", || store.snapshot().ok());
    let two = in_time("two", || store.snapshot().ok());
    let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("there are two connections") };
    assert!(error.to_string().contains("all 2 connections"), "{error}");
    drop((one, two));
    until("a connection is free", || store.snapshot().is_ok());
}

#[test]
fn engines_that_hold_something_else_are_refused() {
    let Some(engine) = Engine::start() else { return };
    let options = unhurried();
    let refused =
        |name: &str, options: &KvOptions| open(&engine, name, options).expect_err("refused").to_string();
    let (empty, _) = engine.database();
    let no_make = KvOptions { make: false, ..unhurried() };
    assert!(refused(&empty, &no_make).contains("no store in the schema"), "{}", refused(&empty, &no_make));
    assert!(refused("nowhere", &options).contains("does not exist"));
    let bad = KvOptions { schema: "a; DROP".to_owned(), ..unhurried() };
    assert!(refused(&empty, &bad).contains("cannot name a schema"));
    for (damage, expected) in [
        ("DROP TABLE larix.rows", "only 4 of the tables"),
        ("UPDATE larix.store SET format = 2", "holds format 2, but this version reads and writes format 1"),
        ("DELETE FROM larix.store", "no single row"),
        (
            "UPDATE larix.tables SET kind = 'postings' WHERE name = 'ordered'",
            "the table \"ordered\" as another kind",
        ),
        ("DELETE FROM larix.commits", "no commit has a row"),
        ("UPDATE larix.commits SET version = -1", "a number below 0"),
        ("UPDATE larix.commits SET keys = 'x'", "cannot be read"),
        ("ALTER TABLE larix.rows RENAME COLUMN v TO w", "does not exist"),
    ] {
        let (store, name) = fresh(&engine);
        drop(store);
        engine.sql(&name, damage).expect(damage);
        let text = refused(&name, &options);
        assert!(text.contains(expected), "{damage}: {text}");
        assert!(!text.contains("never-shown"), "{text}");
    }
    let more = [TABLES.as_slice(), &[TableSpec::new(TableId(9), "new", TableKind::Ordered)]].concat();
    let (store, name) = fresh(&engine);
    drop(store);
    assert!(KvStore::open(&address(&engine, &name), &more, &no_make).is_err());
    assert!(KvStore::open(&address(&engine, &name), &more, &options).is_ok(), "a new table gets a number");
}

#[test]
fn an_engine_that_loses_commits_is_refused() {
    let Some(mut engine) = Engine::start_with(&["fsync = off"]) else { return };
    let (name, _) = engine.database();
    let text = open(&engine, &name, &unhurried()).expect_err("refused").to_string();
    assert!(text.contains("fsync is off"), "{text}");
    engine.crash();
    engine.setting("fsync = on");
    engine.run();
    // What a restore of an older backup leaves, or a failover without a synchronous standby.
    for damage in [
        "DELETE FROM larix.commits WHERE version > 1",
        "UPDATE larix.commits SET attempt = 'somebody else' WHERE version = 2",
        // So many more that they are not told one by one.
        "UPDATE larix.commits SET attempt = 'somebody else' WHERE version = 2;
         INSERT INTO larix.commits SELECT g, 1, 'somebody else', '' FROM generate_series(3, 400) AS g",
    ] {
        let (store, name) = fresh(&engine);
        for value in [b"1", b"2"] {
            commit(&store, &put(b"a", value)).expect("commit");
        }
        engine.sql(&name, damage).expect(damage);
        for _ in 0..2 {
            let Err(ReadError::Unavailable(error)) = store.snapshot() else { panic!("{damage}") };
            assert!(error.to_string().contains("does not hold commit 2"), "{error}");
        }
        assert!(matches!(store.transaction(), Err(CommitError::Unavailable(_))));
        assert!(open(&engine, &name, &unhurried()).is_ok(), "what is there is served after a restart");
    }
}

/// Where commits were lost, another writer may have come as far in an epoch of the same number.
#[test]
fn a_writer_continues_no_other_commit_of_the_same_number() {
    const NEWEST: &str = "(SELECT max(version) FROM larix.commits)";
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    store.take_over().expect("take over");
    let last = commit(&store, &put(b"a", b"1")).expect("commit");
    let other = format!("UPDATE larix.commits SET attempt = 'somebody else' WHERE version = {NEWEST}");
    engine.sql(&name, &other).expect("a loss");
    // It asks nothing before it commits.
    let refused = commit(&store, &put(b"a", b"2"));
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    assert!(!store.leads(), "it leaves the right to write to others");
    assert!(matches!(store.hear(), Err(ReadError::Unavailable(_))));
    assert!(matches!(store.take_over(), Err(CommitError::Unavailable(_))));
    assert_eq!(engine.sql(&name, &format!("SELECT {NEWEST}")), Some(last.0.to_string()));
}

/// Behind so many commits that the row of the known one is gone, nobody can say whether the engine has lost it. What is there is served, and
/// nothing that was known before counts.
#[test]
fn behind_all_commits_that_are_kept_nothing_before_counts() {
    const OTHERS: &str = "DELETE FROM larix.commits WHERE version = 2; \
        INSERT INTO larix.commits SELECT g, 1, 'somebody else', '' FROM generate_series(2, 20000) AS g; \
        DELETE FROM larix.commits WHERE version < 3000";
    let Some(engine) = Engine::start() else { return };
    for lacks_it_before in [false, true] {
        let (store, name) = fresh(&engine);
        for value in [b"1", b"2"] {
            commit(&store, &put(b"a", value)).expect("commit");
        }
        if lacks_it_before {
            engine.sql(&name, "DELETE FROM larix.commits WHERE version = 2").expect("lose");
            assert!(matches!(store.snapshot(), Err(ReadError::Unavailable(_))));
        }
        engine.sql(&name, OTHERS).expect("commits");
        assert_eq!(get(&store, b"a").as_deref(), Some(&b"2"[..]));
        assert_eq!((store.commit_counter(), store.unbroken_since()), (20_000, 20_000));
        commit(&store, &put(b"a", b"3")).expect("commit");
        assert_eq!((get(&store, b"a").as_deref(), store.unbroken_since()), (Some(&b"3"[..]), 20_000));
    }
}

#[test]
fn damage_is_found_where_it_is_read() {
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    let mut set = put(b"a", b"1");
    set.put(OTHER, b"a", *b"1");
    set.put(INTEGER, &1u64.to_be_bytes(), *b"1");
    (0..5).for_each(|id| set.add_posting(POSTINGS, b"k\0", id));
    commit(&store, &set).expect("commit");
    let number = |table: &str| format!("(SELECT t FROM larix.tables WHERE name = '{table}')");
    let short = format!("UPDATE larix.rows SET k = 'short' WHERE t = {}", number("integer"));
    let block = format!("UPDATE larix.rows SET v = '\\xffff' WHERE t = {}", number("postings"));
    let gap = "DELETE FROM larix.commits WHERE version = 1";
    for text in [&short, &block] {
        engine.sql(&name, text).expect(text);
    }
    let store = open(&engine, &name, &unhurried()).expect("open");
    {
        let snapshot = store.snapshot().expect("snapshot");
        let mut scan = snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward).expect("scan");
        assert!(matches!(scan.next(), Some(Err(ReadError::Corrupt { table: INTEGER, .. }))));
        assert!(scan.next().is_none());
        let found = snapshot.postings(POSTINGS, b"k\0").and_then(|mut cursor| cursor.next());
        assert!(matches!(found, Err(ReadError::Corrupt { table: POSTINGS, .. })), "{found:?}");
    }
    let other = open(&engine, &name, &unhurried()).expect("open");
    commit(&other, &put(b"a", b"2")).expect("commit");
    commit(&other, &put(b"a", b"3")).expect("commit");
    engine.sql(&name, "DELETE FROM larix.commits WHERE version = 2").expect(gap);
    let Err(ReadError::Io(error)) = store.snapshot() else { panic!("a commit is missing") };
    assert!(error.to_string().contains("have a gap"), "{error}");
    engine.sql(&name, "DROP TABLE larix.rows").expect("drop");
    let snapshot = other.snapshot().expect("the commits are there");
    let Err(ReadError::Io(error)) = snapshot.get(OTHER, b"zz") else { panic!("there are no rows") };
    assert!(error.to_string().contains("restore it from its backup"), "{error}");
}

/// A node asks the one that writes, whichever that is, and is answered.
#[test]
fn nodes_send_messages_to_each_other() {
    let Some(engine) = Engine::start() else { return };
    let (leader, name) = fresh(&engine);
    let node = open(&engine, &name, &KvOptions { writes: false, ..unhurried() }).expect("open");
    let at_leader = leader.mailbox().expect("a mailbox");
    let at_node = node.mailbox().expect("a mailbox");
    assert_eq!(leader.take_messages(&at_leader, true).expect("none"), []);

    let asked = Instant::now();
    node.send_message(Recipient::Leader, 7, b"one".to_vec()).expect("sent");
    node.send_message(Recipient::Leader, u64::MAX, Vec::new()).expect("sent");
    assert!(leader.wait_for_messages(&at_leader, Duration::from_secs(120)).expect("heard"));
    assert!(asked.elapsed() < Duration::from_secs(120), "a notification ends the wait");
    // Who does not write leaves them to the one that does.
    assert_eq!(node.take_messages(&at_node, false).expect("none"), []);
    let taken = leader.take_messages(&at_leader, true).expect("taken");
    let said: Vec<_> = taken.iter().map(|one| (one.to_leader, one.number, one.body.as_slice())).collect();
    assert_eq!(said, [(true, 7, b"one".as_slice()), (true, u64::MAX, b"")]);
    assert_eq!(leader.take_messages(&at_leader, true).expect("none"), [], "each is taken once");

    let sender = &taken[0].sender;
    leader.send_message(Recipient::Node(sender), 7, b"answer".to_vec()).expect("sent");
    assert_eq!(leader.take_messages(&at_leader, true).expect("none"), [], "it is another's");
    let answer = node.take_messages(&at_node, true).expect("taken");
    assert!(matches!(answer.as_slice(), [one] if !one.to_leader && one.number == 7 && one.body == b"answer"));

    // Nobody waits for one that is old.
    node.send_message(Recipient::Leader, 8, b"late".to_vec()).expect("sent");
    engine.sql(&name, "UPDATE larix.messages SET made = made - interval '1 minute'").expect("older");
    assert_eq!(leader.take_messages(&at_leader, true).expect("none"), []);
    let left = engine.sql(&name, "SELECT count(*) FROM larix.messages");
    assert_eq!(left.as_deref(), Some("0"));

    let waits = Instant::now();
    at_node.wake();
    // What was sent meanwhile has been heard of as well.
    while node.wait_for_messages(&at_node, Duration::from_millis(1)).expect("heard") {
        assert!(waits.elapsed() < Duration::from_secs(60), "it ends");
    }
}

/// A store of before has no table for messages: a server that opens it makes one, and a tool makes nothing.
#[test]
fn stores_of_before_get_what_they_lack() {
    let Some(engine) = Engine::start() else { return };
    let (store, name) = fresh(&engine);
    drop(store);
    engine.sql(&name, "DROP TABLE larix.messages").expect("as before");
    let tool = open(&engine, &name, &KvOptions { make: false, ..unhurried() }).expect("open");
    assert!(tool.send_message(Recipient::Leader, 1, Vec::new()).is_err(), "there is no such table");
    let server = open(&engine, &name, &unhurried()).expect("open");
    server.send_message(Recipient::Leader, 1, Vec::new()).expect("sent");
}
