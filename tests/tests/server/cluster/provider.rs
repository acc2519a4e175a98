//! Nodes of one database as providers of its content: to consumers they are one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_port;
use larix_testkit::{Kind, SetAtEnd, until_some};
use larix_tests::http;
use larix_tests::relay::{Passage, Relay};
use larix_tests::replicas::{ADMIN, Member, SUFFIX};
use larix_tests::sync::{Consumer, SearchEnd, SyncSearch};

use super::{change, change_at, describe, fill, larix, nodes, nodes_with, until};

/// What consumers are equal to at the end of each round.
pub(super) const CHANGES: usize = 30;

pub(super) fn syncrepl(port: u16) -> String {
    format!(
        "syncrepl rid=001 provider=ldap://127.0.0.1:{port} type=refreshAndPersist retry=\"1 +\" searchbase={SUFFIX} \
         bindmethod=simple binddn={ADMIN} credentials=secret\n"
    )
}

/// Has the node that writes carry out a change, whichever it is.
pub(super) fn apply(nodes: &[SocketAddr], request: &str) {
    let is_taken = |answer: String| {
        let refusals = ["gone", "=> 10", "=> 51", "=> 52", "=> 80"];
        !refusals.iter().any(|refusal| answer.starts_with(refusal))
    };
    until(request, || nodes.iter().any(|node| is_taken(change_at(*node, request))));
}

/// Entries come, change, are renamed and go.
pub(super) fn churn(nodes: &[SocketAddr], number: usize) {
    let dn = |letter: char, number: usize| format!("cn={letter}{number},ou=people,{SUFFIX}");
    apply(nodes, &format!("add {}\n  objectClass: person\n  cn: c{number}\n  sn: x", dn('c', number)));
    if let Some(before) = number.checked_sub(1) {
        apply(nodes, &format!("modify {}\n  replace sn: y{number}", dn('c', before)));
    }
    match number % 4 {
        1 => apply(nodes, &format!("delete {}", dn('c', number - 1))),
        3 => apply(nodes, &format!("modrdn {} cn=d{number} delete", dn('c', number - 1))),
        _ => {}
    }
    apply(nodes, &describe(&format!("change {number}")));
}

/// Kills the node that writes while `next` makes one change after another, and waits until the other node goes on with them.
/// `number`: of changes made.
pub(super) fn kill_amid_changes(node: &mut Member, number: &AtomicUsize, next: &(impl Fn() + Sync)) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                next();
            }
        });
        let reached = number.load(Ordering::Acquire) + CHANGES / 2;
        until("changes go on", || number.load(Ordering::Acquire) >= reached);
        node.kill();
        let reached = number.load(Ordering::Acquire) + CHANGES / 2;
        until("the other node writes", || number.load(Ordering::Acquire) >= reached);
    });
}

/// contextCSN as a server shows it.
pub(super) fn context(server: &Member) -> Option<String> {
    server.client().value(SUFFIX, "contextCSN")
}

#[test]
fn consumers_follow_whichever_node_they_ask() {
    let Some(engine) = Engine::start() else { return };
    follow_nodes(&engine.database().1);
}

/// A Larix and a slapd follow the node that does not write, while the other one is killed; then the other one, with what they know.
pub(super) fn follow_nodes(address: &str) {
    let mut nodes = nodes(address, 2, "server-id 7\noverlay syncprov");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let relay = Relay::start();
    relay.lead_to(nodes[1].address());
    let line = syncrepl(relay.address.port());
    let mut consumers = vec![Member::new(Kind::Larix, "", &line)];
    if !Kind::Slapd.is_lacking() {
        consumers.push(Member::new(Kind::Slapd, "", &line));
    }
    consumers.iter_mut().for_each(Member::start);
    let addresses: Vec<SocketAddr> = nodes.iter().map(Member::address).collect();
    let number = AtomicUsize::new(0);
    let next = || churn(&addresses, number.fetch_add(1, Ordering::AcqRel));
    let all_equal = |node: &Member| {
        let whole = until_some("it is readable", || node.content(SUFFIX));
        assert!(whole.len() > number.load(Ordering::Acquire) / 2, "{} entries", whole.len());
        for consumer in &consumers {
            consumer.wait_until_like(node);
            until("it has come as far", || context(consumer) == context(node));
        }
        let csn = context(node).expect("a contextCSN");
        assert!(csn.contains("#007#"), "all nodes have the database's server id: {csn}");
    };
    (0..CHANGES).for_each(|_| next());
    all_equal(&nodes[1]);

    // The node that writes dies amid changes.
    kill_amid_changes(&mut nodes[0], &number, &next);
    nodes[0].start();
    all_equal(&nodes[1]);

    // They come to the other node with what they know.
    relay.set(Passage::Cut);
    (0..CHANGES).for_each(|_| next());
    relay.lead_to(nodes[0].address());
    relay.set(Passage::Open);
    all_equal(&nodes[0]);
    (0..4).for_each(|_| next());
    all_equal(&nodes[0]);
    consumers.iter_mut().for_each(Member::stop);
    nodes.iter_mut().for_each(Member::stop);
}

fn poll(consumer: &mut Consumer, node: &Member) -> SearchEnd {
    consumer.ask(node.address(), &SyncSearch { persist: false, ..SyncSearch::default() });
    consumer.refresh().expect("an end")
}

/// A node that has not heard of a commit is asked with a cookie that covers it.
#[test]
fn a_cookie_of_one_node_is_good_at_another_that_is_behind() {
    const LISTENERS: &str =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN larix_commits%'";
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    // Nobody looks at the lease meanwhile.
    let mut nodes = nodes_with(&address, 2, 300, ("", "read-consistency session\noverlay syncprov"));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let mut consumer = Consumer::default();
    assert_eq!(poll(&mut consumer, &nodes[1]).code, 0);
    assert_eq!(consumer.entries.len(), 3, "{:?}", consumer.messages);
    for round in ["one", "two", "three"] {
        let before = consumer.cookie.clone();
        // All of it is in the cache of the other node, which hears nothing for a while.
        assert_eq!(poll(&mut consumer, &nodes[1]).code, 0);
        engine.sql(&name, LISTENERS).expect("an end");
        assert_eq!(change(&nodes[0], &describe(round)), "=> 0\n");
        assert_eq!(poll(&mut consumer, &nodes[0]).code, 0);
        assert_eq!(consumer.messages[0], format!("add cn=ann,ou=people,{SUFFIX}"), "the change alone");
        let end = poll(&mut consumer, &nodes[1]);
        assert_eq!((end.code, consumer.messages.len()), (0, 1), "{}: {:?}", end.text, consumer.messages);
        // One that lacks the change receives it there, too.
        let mut late = Consumer::default();
        late.cookie = before;
        assert_eq!(poll(&mut late, &nodes[1]).code, 0);
        assert_eq!(late.messages[0], format!("add cn=ann,ou=people,{SUFFIX}"), "{:?}", late.messages);
        assert_eq!(late.cookie, consumer.cookie);
    }
    nodes.iter_mut().for_each(Member::stop);
}

/// A node serves consumers only while the one that writes keeps the log that they are served from.
#[test]
fn nodes_that_are_configured_otherwise_say_so_to_consumers() {
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let mut silent = nodes(&address, 1, "").remove(0);
    silent.start();
    fill(&silent);
    let mut one = nodes(&address, 1, "server-id 1\noverlay syncprov").remove(0);
    one.start();
    let mut consumer = Consumer::default();
    let end = poll(&mut consumer, &one);
    assert!(end.code == 52 && end.text.contains("configure all nodes alike"), "{end:?}");
    silent.stop();
    until("the node that provides writes", || change(&one, &describe("one")) == "=> 0\n");
    assert_eq!(poll(&mut consumer, &one).code, 0);
    assert_eq!(consumer.entries.len(), 3);

    let mut two = nodes(&address, 1, "server-id 2\noverlay syncprov").remove(0);
    two.start();
    let mut other = Consumer::default();
    other.cookie.clone_from(&consumer.cookie);
    let end = poll(&mut other, &two);
    assert!(end.code == 52 && end.text.contains("give the database the same `server-id`"), "{end:?}");
    // Who follows under one id learns that the log goes on under another one.
    consumer.ask(one.address(), &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    let (is_done, text) = larix(&["cluster", "step-down"], &one);
    assert!(is_done, "{text}");
    until("the other node writes", || change(&two, &describe("two")) == "=> 0\n");
    let end = loop {
        if let Some(end) = consumer.step() {
            break end;
        }
    };
    assert_eq!(end.code, 4096, "a refresh is required: {end:?}");
    let end = poll(&mut consumer, &one);
    assert!(end.code == 52 && end.text.contains("has the server id 2, this one 1"), "{end:?}");
    assert_eq!(poll(&mut Consumer::default(), &two).code, 0);
    [&mut one, &mut two].into_iter().for_each(Member::stop);
}

/// What a node says of its only consumer: records of the log that it was not sent, and for how long that is so, in microseconds.
fn lag(node: &Member) -> Option<(u64, u64)> {
    let shown = change(node, "search cn=Replication,cn=Larix,cn=Monitor sub (cn=Peer*) monitoredInfo");
    let of = |word: &str| shown.split_once(word)?.1.lines().next()?.parse().ok();
    Some((of("behind_changes=")?, of("behind_us=")?))
}

/// The same as metrics have it, without the time.
fn behind_in_metrics(port: u16) -> Option<f64> {
    let (_, _, answer) = http::get(("127.0.0.1", port), "/metrics");
    let line = answer.lines().find(|line| line.starts_with("larix_replication_peer_behind_changes{"))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn nodes_tell_how_far_behind_consumers_are() {
    let Some(engine) = Engine::start() else { return };
    let address = engine.database().1;
    let ports = [free_port(), free_port()];
    let node = |port: &u16| {
        let global = format!("http-listener http://127.0.0.1:{port}/\n");
        nodes_with(&address, 1, 300, (&global, "server-id 7\noverlay syncprov")).remove(0)
    };
    let mut nodes: Vec<Member> = ports.iter().map(node).collect();
    nodes[0].start();
    fill(&nodes[0]);
    nodes[1].start();
    let mut consumers = [Consumer::default(), Consumer::default()];
    for (consumer, node) in consumers.iter_mut().zip(&nodes) {
        consumer.ask(node.address(), &SyncSearch::default());
        assert_eq!(consumer.refresh(), None);
        until("it has everything", || lag(node) == Some((0, 0)));
    }
    // They read nothing any more, and the nodes send until nothing more goes out.
    let large = "x".repeat(300_000);
    let (mut number, mut last) = (0, String::new());
    until("both are behind", || {
        number += 1;
        last = format!("{number}{large}");
        assert_eq!(change(&nodes[0], &describe(&last)), "=> 0\n");
        nodes.iter().all(|node| lag(node).is_some_and(|(changes, micros)| changes >= 3 && micros > 0))
    });
    for port in ports {
        until("metrics say so", || behind_in_metrics(port).is_some_and(|changes| changes >= 3.0));
    }
    for consumer in &mut consumers {
        let has_last = |consumer: &Consumer| {
            let mut all = consumer.entries.values();
            all.any(|(_, attributes)| {
                attributes.get("description").is_some_and(|values| values.contains(last.as_bytes()))
            })
        };
        consumer.until(has_last);
    }
    for (node, port) in nodes.iter_mut().zip(ports) {
        until("it has everything", || lag(node) == Some((0, 0)));
        until("metrics say so", || behind_in_metrics(port) == Some(0.0));
    }
    drop(consumers);
    nodes.iter_mut().for_each(Member::stop);
}
