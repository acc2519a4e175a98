//! An access log in the engine: the node that writes the database writes it, too, and it has each change once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use larix_testkit::etcd::Etcd;
use larix_testkit::postgresql::Engine;
use larix_testkit::{Kind, SetAtEnd, until_some};
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};
use larix_tests::sync::{Consumer, SyncSearch};

use super::provider::{CHANGES, apply, churn, context, kill_amid_changes, syncrepl};
use super::{LEASE, change, describe, fill, larix, leader, nodes_with, until};

const LOG: &str = "cn=log";

/// Nodes of a database and of its access log, not started. `more`: of the overlay.
fn logging(address: &str, count: usize, lease: u32, more: &str) -> Vec<Member> {
    let log = format!(
        "database kv\nengine {address}\nengine-schema log\nnode ldap://127.0.0.1:@PORT@\nlease {lease}\nserver-id 7\nsuffix {LOG}\n\
         rootdn {ADMIN}\nindex reqStart,reqType,reqResult,objectClass,entryCSN,entryUUID eq\n\
         overlay syncprov\nsyncprov-nopresent TRUE\nsyncprov-reloadhint TRUE\n"
    );
    let database = format!(
        "server-id 7\noverlay syncprov\noverlay accesslog\nlogdb {LOG}\nlogops writes\nlogsuccess TRUE\n{more}"
    );
    nodes_with(address, count, lease, (&log, &database))
}

/// A record of the log.
#[derive(Debug)]
struct Record {
    kind: String,
    dn: String,
    csn: String,
    session: String,
    requester: String,
    message: String,
    changes: Vec<String>,
}

/// The records as a node shows them, in the order of their names.
fn records(node: &Member) -> Vec<Record> {
    let content = node.content(LOG).unwrap_or_default();
    let texts = |values: Option<&Vec<Vec<u8>>>| -> Vec<String> {
        let values = values.into_iter().flatten();
        values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    };
    let entries = content.values().filter(|entry| entry.contains_key("reqtype"));
    entries
        .map(|entry| {
            let one = |name: &str| texts(entry.get(name)).pop().unwrap_or_default();
            Record {
                kind: one("reqtype"),
                dn: one("reqdn").to_lowercase(),
                csn: one("entrycsn"),
                session: one("reqsession"),
                requester: one("reqauthzid"),
                message: one("reqmessage"),
                changes: texts(entry.get("reqmod")),
            }
        })
        .collect()
}

/// Entries that were added and not changed since, with their CSNs.
fn unchanged(node: &Member) -> Vec<(String, String)> {
    let content = until_some("it is readable", || node.content(SUFFIX));
    let entries = content.iter().filter(|(dn, _)| dn.starts_with("cn=p"));
    let csn = |values: &Vec<Vec<u8>>| String::from_utf8_lossy(&values[0]).into_owned();
    let mut all: Vec<_> = entries.map(|(dn, entry)| (dn.clone(), csn(&entry["entrycsn"]))).collect();
    all.sort();
    all
}

/// Waits until a node shows that the log has all these entries, and nothing twice.
fn recorded_once(node: &Member) {
    let expected = unchanged(node);
    let mut recorded = Vec::new();
    let mut all = Vec::new();
    until("the log has everything", || {
        all = records(node);
        let added = all.iter().filter(|record| record.kind == "add" && record.dn.starts_with("cn=p"));
        recorded = added.map(|record| (record.dn.clone(), record.csn.clone())).collect();
        recorded.sort();
        // More than that is what the log must never have.
        recorded.len() >= expected.len()
    });
    assert_eq!(recorded, expected, "{}", node.log());
    let csns: Vec<&str> = all.iter().map(|record| record.csn.as_str()).collect();
    let mut sorted: Vec<&str> = csns.iter().copied().collect::<BTreeSet<&str>>().into_iter().collect();
    sorted.dedup();
    assert_eq!(csns, sorted, "each change once, in their order by the names of the records");
    assert!(csns.iter().all(|csn| csn.contains("#007#")), "{csns:?}");
}

/// The line of `larix cluster status` that says who writes.
fn writer(node: &Member, suffix: &str) -> String {
    let (is_done, text) = larix(&["cluster", "status", "-b", suffix], node);
    assert!(is_done, "{text}");
    let line = text.lines().find(|line| line.starts_with("leader:")).unwrap_or_default();
    line.split(" (").next().unwrap_or_default().to_owned()
}

#[test]
fn each_change_is_in_the_access_log_once() {
    let Some(engine) = Engine::start() else { return };
    record_once(&engine.database().1);
}

/// Adds at two nodes while the one that writes is killed again and again.
pub(super) fn record_once(address: &str) {
    const WRITERS: usize = 3;
    let mut nodes = logging(address, 2, LEASE, "logold (objectClass=*)");
    nodes[0].start();
    fill(&nodes[0]);
    nodes[1].start();
    let addresses: Vec<SocketAddr> = nodes.iter().map(Member::address).collect();
    apply(&addresses, &describe("known"));
    let has_it = |record: &Record| record.changes.contains(&"description:= known".to_owned());
    until("it is recorded", || records(&nodes[1]).iter().any(has_it));
    let all = records(&nodes[1]);
    let one = all.iter().find(|record| has_it(record)).expect("a record");
    assert!(one.session != "0" && one.requester == ADMIN && one.kind == "modify", "{one:?}");
    assert_eq!(nodes[1].client().value(SUFFIX, "auditContext").as_deref(), Some(LOG));

    let (stop, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        for _ in 0..WRITERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    let name = format!("cn=p{number},ou=people,{SUFFIX}");
                    apply(
                        &addresses,
                        &format!("add {name}\n  objectClass: person\n  cn: p{number}\n  sn: p"),
                    );
                }
            });
        }
        for _ in 0..2 {
            let reached = next.load(Ordering::Acquire) + 60;
            until("changes go on", || next.load(Ordering::Acquire) >= reached);
            let at = leader(&nodes);
            nodes[at].kill();
            until("the other one writes", || change(&nodes[1 - at], &describe("found")) == "=> 0\n");
            nodes[at].start();
        }
    });
    nodes.iter().for_each(recorded_once);
    until("one node writes both", || {
        let of_log = writer(&nodes[0], LOG);
        of_log.contains("ldap://") && of_log == writer(&nodes[0], SUFFIX)
    });

    // One that hands over, and one that stops.
    let at = leader(&nodes);
    let (is_done, text) = larix(&["cluster", "step-down", "-b", SUFFIX], &nodes[0]);
    assert!(is_done, "{text}");
    until("the other one writes", || change(&nodes[1 - at], &describe("handed over")) == "=> 0\n");
    let add = |node: &Member, number: usize| {
        let name = format!("cn=pp{number},ou=people,{SUFFIX}");
        apply(&[node.address()], &format!("add {name}\n  objectClass: person\n  cn: pp{number}\n  sn: p"));
    };
    add(&nodes[1 - at], 1);
    nodes.iter().for_each(recorded_once);
    nodes[1 - at].stop();
    add(&nodes[at], 2);
    recorded_once(&nodes[at]);
    nodes[at].stop();
}

#[test]
fn consumers_follow_the_access_log_whichever_node_writes() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = logging(&engine.database().1, 2, LEASE, "");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let addresses: Vec<SocketAddr> = nodes.iter().map(Member::address).collect();
    let number = AtomicUsize::new(0);
    let next = || churn(&addresses, number.fetch_add(1, Ordering::AcqRel));
    next();
    until("the log has come as far", || context_of_log(&nodes[1]) == context(&nodes[1]));
    let mut consumers = consumers_of_log(&nodes[1]);
    let all_equal = |node: &Member| come_as_far(&consumers, node);
    all_equal(&nodes[1]);
    (0..CHANGES).for_each(|_| next());
    all_equal(&nodes[1]);

    // The node that writes dies amid changes.
    kill_amid_changes(&mut nodes[0], &number, &next);
    all_equal(&nodes[1]);
    // The log has led them on: nothing was missing from it.
    let log = consumers[0].log();
    assert!(!log.contains("the entries themselves are asked for"), "{log}");
    nodes[1].stop();
    consumers.iter_mut().for_each(Member::stop);
}

/// A consumer that comes with what it has just heard of the entries is not ahead of the log, which is written a moment later.
#[test]
fn a_consumer_that_turns_from_the_entries_to_the_log_is_let_in() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = logging(&engine.database().1, 1, LEASE, "");
    nodes[0].start();
    fill(&nodes[0]);
    until("the log has come as far", || context_of_log(&nodes[0]) == context(&nodes[0]));
    let mut client = nodes[0].client();
    for number in 0..100 {
        until("it takes the change", || ask(&mut client, &describe(&number.to_string())) == "=> 0\n");
        let csn = client.value(SUFFIX, "contextCSN").expect("one");
        let mut consumer = Consumer::default();
        consumer.cookie = Some(format!("rid=001,csn={csn}"));
        consumer.ask(nodes[0].address(), &SyncSearch { base: LOG, ..SyncSearch::default() });
        assert_eq!(consumer.refresh(), None);
    }
    nodes[0].stop();
}

/// A Larix and a slapd that follow the log of a node.
fn consumers_of_log(node: &Member) -> Vec<Member> {
    let line = syncrepl(node.port);
    let line = format!(
        "{} logbase={LOG} logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\" syncdata=accesslog schemachecking=off\n",
        line.trim_end()
    );
    let member = |kind| Member::new(kind, "", &line).arguments(&["-d", "sync"]);
    let mut consumers = vec![member(Kind::Larix)];
    if !Kind::Slapd.is_lacking() {
        consumers.push(member(Kind::Slapd));
    }
    consumers.iter_mut().for_each(Member::start);
    consumers
}

/// Waits until consumers have what a node has.
fn come_as_far(consumers: &[Member], node: &Member) {
    for consumer in consumers {
        consumer.wait_until_like(node);
        until("it has come as far", || context(consumer) == context(node));
    }
}

/// etcd takes the change, and not its record beside what a record has more.
#[test]
fn a_change_that_no_record_has_room_for_does_not_end_the_log() {
    const BYTES: usize = 1_469_900;
    let Some(etcd) = Etcd::start() else { return };
    let mut nodes = logging(&etcd.prefix(), 1, LEASE, "");
    nodes[0].start();
    fill(&nodes[0]);
    assert_eq!(change(&nodes[0], &describe("first")), "=> 0\n");
    until("the log has come as far", || context_of_log(&nodes[0]) == context(&nodes[0]));
    let mut consumers = consumers_of_log(&nodes[0]);
    come_as_far(&consumers, &nodes[0]);

    assert_eq!(change(&nodes[0], &describe(&"x".repeat(BYTES))), "=> 0\n");
    assert_eq!(change(&nodes[0], &describe("last")), "=> 0\n");
    let is_last = |record: &Record| record.changes.contains(&"description:= last".to_owned());
    until("recording goes on", || records(&nodes[0]).iter().any(is_last));
    let all = records(&nodes[0]);
    let large = &all[all.len() - 2];
    assert!(large.changes.is_empty() && large.message.contains("reqMod with 147"), "{large:?}");
    assert_eq!(large.requester, ADMIN);
    // They were told that the log lacks something.
    come_as_far(&consumers, &nodes[0]);
    consumers[0].wait_for_log("the entries themselves are asked for");
    assert_eq!(change(&nodes[0], &describe("behind it")), "=> 0\n");
    come_as_far(&consumers, &nodes[0]);
    nodes[0].stop();
    consumers.iter_mut().for_each(Member::stop);
}

fn context_of_log(node: &Member) -> Option<String> {
    node.client().value(LOG, "contextCSN")
}

#[test]
fn the_node_that_writes_the_log_purges_it() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = logging(&engine.database().1, 2, LEASE, "logpurge 00:00:01 00:00:01");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    // What has gone last is what the log says that it lacks.
    let is_empty = |node: &Member| {
        let lacks = node.client().value(LOG, "minCSN");
        records(node).is_empty() && lacks.is_some() && lacks == context(node)
    };
    nodes.iter().for_each(|node| until("the log is empty", || is_empty(node)));
    let at = leader(&nodes);
    nodes[at].kill();
    let other = &nodes[1 - at];
    until("the other one writes", || change(other, &describe("two")) == "=> 0\n");
    until("the log is empty", || is_empty(other));
    nodes[1 - at].stop();
}
