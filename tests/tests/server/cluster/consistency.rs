//! What a node that does not write reads of what the other one has acknowledged, and what the monitor shows of both.

use std::time::{Duration, Instant};

use larix_testkit::postgresql::Engine;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, ask};

use super::{change, describe, description, fill, nodes, nodes_with, until};

/// So long a lease that nobody looks at it during the test: a node learns nothing with it.
const LEASE: u32 = 120;
const BOUND: Duration = Duration::from_secs(2);

/// What the node that does not write reads of a change, at once and when the bound is over.
#[expect(clippy::disallowed_methods, reason = "the age of what is read is what it is about")]
fn seen(engine: &Engine, consistency: &str) -> [bool; 2] {
    let mut nodes =
        nodes_with(&engine.database().1, 2, LEASE, ("", &format!("read-consistency {consistency}")));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    assert_eq!(change(&nodes[0], &describe("old")), "=> 0\n");
    until("it is read", || description(&nodes[1]).as_deref() == Some("old"));
    // All of it is in the cache now.
    assert_eq!(description(&nodes[1]).as_deref(), Some("old"));
    assert_eq!(change(&nodes[0], &describe("new")), "=> 0\n");
    let acknowledged = Instant::now();
    let at_once = description(&nodes[1]).expect("a value") == "new";
    while acknowledged.elapsed() <= BOUND {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let later = description(&nodes[1]).expect("a value") == "new";
    nodes.iter_mut().for_each(Member::stop);
    [at_once, later]
}

#[test]
fn nodes_read_what_their_consistency_promises() {
    let Some(engine) = Engine::start() else { return };
    assert_eq!(seen(&engine, "strict"), [true, true], "strict");
    // Without a question it learns nothing.
    assert_eq!(seen(&engine, "session"), [false, false], "session");
    let [_, later] = seen(&engine, &format!("bounded {}", BOUND.as_secs()));
    assert!(later, "what is older than the bound is seen");
}

fn monitored(node: &Member, base: &str, attribute: &str) -> String {
    let mut client = Client::connect(node.address());
    ask(&mut client, &format!("as {ADMIN} secret"));
    ask(&mut client, &format!("search \"{base}\" sub (objectClass=*) {attribute}"))
}

#[test]
fn the_monitor_shows_nodes() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = nodes(&engine.database().1, 2, "");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    until("each knows its role", || {
        let node = |node: &Member| monitored(node, "cn=Nodes,cn=Larix,cn=Monitor", "monitoredInfo");
        let shown = nodes.iter().map(node).collect::<Vec<_>>();
        let words = ["readOnly=FALSE", "epoch=", "leader=ldap://", "cacheHits=", "roundTrips=", "conflicts="];
        let whole = |shown: &String| words.iter().all(|word| shown.contains(word));
        let has = |role: &str| shown.iter().filter(|shown| shown.contains(role)).count() == 1;
        shown.iter().all(whole) && has("role=leader") && has("role=follower")
    });
    let own = monitored(&nodes[0], "cn=Databases,cn=Monitor", "readOnly");
    assert!(own.contains("readOnly: FALSE") && !own.contains("readOnly: TRUE"), "{own}");
    nodes.iter_mut().for_each(Member::stop);
}
