//! What `larix cluster status` shows of nodes.

use std::net::{Ipv4Addr, SocketAddr};

use larix_testkit::etcd::Etcd;
use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_port;
use larix_tests::http::{figure, get};
use larix_tests::replicas::{Member, SUFFIX};

use super::{change, describe, fill, larix, nodes_with, until};

/// So long a lease, in seconds, that no node says anything again during the test unless it changes.
const LEASE: u32 = 300;

/// What the program prints of a node.
fn shown(node: &Member, of: &Member) -> Option<String> {
    let (whole, text) = larix(&["cluster", "status"], node);
    assert!(whole, "{text}");
    let title = format!("node:          {}, ", of.url());
    text.lines().find_map(|line| line.strip_prefix(&title)).map(str::to_owned)
}

fn shows(node: &Member, of: &Member, expected: &[&str]) {
    until("it is shown", || {
        shown(node, of).is_some_and(|text| expected.iter().all(|expected| text.contains(expected)))
    });
}

/// Nodes alike, and one that is configured otherwise.
fn started(address: &str) -> Vec<Member> {
    let mut nodes = nodes_with(address, 2, LEASE, ("", ""));
    nodes.extend(nodes_with(address, 1, LEASE, ("", "index sn eq")));
    nodes[0].start();
    fill(&nodes[0]);
    nodes[1..].iter_mut().for_each(Member::start);
    let version = format!("Larix {}, heard of ", env!("CARGO_PKG_VERSION"));
    shows(&nodes[1], &nodes[0], &[&version, " s ago, configuration: generation 1 in force"]);
    shows(&nodes[0], &nodes[1], &[&version, " s ago, configuration: generation 1 in force"]);
    shows(&nodes[0], &nodes[2], &[&version, "configuration: its own, which differs from generation 1"]);
    // One that ends is not one of them.
    nodes[2].stop();
    until("it is gone", || shown(&nodes[0], &nodes[2]).is_none());
    nodes
}

#[test]
fn nodes_are_shown_with_what_they_have() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = started(&address);
    // A node of an earlier version is connected, and says nothing.
    engine.sql(&name, "TRUNCATE larix.nodes").expect("emptied");
    shows(&nodes[0], &nodes[1], &["connected, of another version"]);
    engine.sql(&name, "DROP TABLE larix.nodes").expect("dropped");
    shows(&nodes[0], &nodes[1], &["connected, of another version"]);
    // One that was killed stays for a day.
    nodes[1].kill();
    nodes[1].start();
    shows(&nodes[0], &nodes[1], &["generation 1 in force"]);
    nodes[1].kill();
    until("it has no connections", || {
        !larix(&["cluster", "status"], &nodes[0]).1.contains(&format!(" {} larix", nodes[1].url()))
    });
    shows(&nodes[0], &nodes[1], &["heard of", "generation 1 in force"]);
    nodes[0].stop();
}

#[test]
fn nodes_of_an_etcd_are_shown_alike() {
    let Some(etcd) = Etcd::start() else { return };
    let mut nodes = started(&etcd.prefix());
    // With etcd, one that was killed is forgotten.
    nodes[1].kill();
    until("it is forgotten", || shown(&nodes[0], &nodes[1]).is_none());
    nodes[0].stop();
}

/// A node whose engine has no room says so where a server with a full disk does.
#[test]
fn an_engine_without_room_is_told() {
    const FULL: &str = "CREATE FUNCTION larix.full() RETURNS trigger LANGUAGE plpgsql AS \
        $$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END$$; \
        CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON larix.rows EXECUTE FUNCTION larix.full()";
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut node = nodes_with(&address, 1, LEASE, (&format!("http-listener http://{http}/\n"), "")).remove(0);
    node.start();
    fill(&node);
    let told = || {
        let (status, _, body) = get(http, "/health/ready");
        let full = format!("larix_cluster_full{{suffix=\"{SUFFIX}\"}}");
        (status, body, figure(&get(http, "/metrics").2, &full) > 0.0)
    };
    let ready = || (200, "ready\n".to_owned(), false);
    assert_eq!(told(), ready());
    engine.sql(&name, FULL).expect("a trigger");
    let refused = change(&node, &describe("in vain"));
    assert!(refused.starts_with("=> 80") && refused.contains("no space left"), "{refused}");
    let body = format!("ready\n{SUFFIX:?}: no room for changes, which are refused\n");
    assert_eq!(told(), (200, body, true), "reads go on");
    engine.sql(&name, "DROP TRIGGER no_room ON larix.rows").expect("room");
    // One as large.
    assert_eq!(change(&node, &describe(&"room".repeat(200))), "=> 0\n");
    assert_eq!(told(), ready());
    node.stop();
}
