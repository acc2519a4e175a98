//! `larix replica check` with nodes: they prove what they hold as other servers do.

use std::process::Command;

use larix_testkit::Kind;
use larix_testkit::etcd::Etcd;
use larix_testkit::postgresql::Engine;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{change, describe, fill, larix, nodes_with, until};

const LEASE: u32 = 300;
const PEOPLE: usize = 40;

/// What the check of two servers says, and with which status, as this identity.
fn check_as((dn, password): (&str, &str), servers: [&Member; 2]) -> (Option<i32>, String) {
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    command
        .args(["replica", "check", "-x", "-D", dn, "-w", password, "-b", SUFFIX, "--settle", "0", "--json"]);
    let output = command.args(servers.map(Member::url)).output().expect("larix runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Compares two servers by their digests; how many entries differ.
#[track_caller]
fn differing(servers: [&Member; 2]) -> u64 {
    let (status, text) = check_as((ADMIN, "secret"), servers);
    assert!(text.contains("\"method\":\"digests\""), "{text}");
    let number = text.rsplit_once("\"different\":").and_then(|(_, rest)| rest.split([',', '}']).next());
    let number = number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(status, Some(if number == 0 { 0 } else { 5 }), "{text}");
    number
}

/// Nodes and a server of the other kind that holds the same, with and without a change log.
fn prove(address: &str, more: &str) {
    let mut nodes = nodes_with(address, 2, LEASE, ("", more));
    nodes[0].start();
    fill(&nodes[0]);
    let mut admin = Client::connect(nodes[0].address());
    assert_eq!(ask(&mut admin, &format!("as {ADMIN} secret")), "=> 0\n");
    for number in 0..PEOPLE {
        let dn = format!("cn=p{number},ou=people,{SUFFIX}");
        let added = ask(&mut admin, &format!("add {dn}\n  objectClass: person\n  cn: p{number}\n  sn: x"));
        assert_eq!(added, "=> 0\n");
    }
    nodes[1].start();
    let (whole, ldif) = larix(&["cat"], &nodes[1]);
    assert!(whole, "{ldif}");
    let mut plain = Member::new(Kind::Larix, "", "");
    plain.site.load_into(Some(SUFFIX), &ldif);
    plain.start();
    for node in &nodes {
        assert_eq!(differing([node, &plain]), 0);
    }
    // What has changed at the node that writes shows at the other one at once, also where digests are kept.
    assert_eq!(change(&nodes[0], &describe("another")), "=> 0\n");
    assert_eq!(differing([&nodes[1], &plain]), 1);
    assert_eq!(change(&nodes[0], &format!("delete cn=p7,ou=people,{SUFFIX}")), "=> 0\n");
    let (_, text) = check_as((ADMIN, "secret"), [&nodes[1], &plain]);
    assert!(text.contains(&format!("cn=ann,ou=people,{SUFFIX}")) && text.contains("cn=p7,"), "{text}");
    assert_eq!(differing([&nodes[1], &plain]), 2);
    assert_eq!(differing([&nodes[0], &nodes[1]]), 0);
    // Not for everybody.
    let ann = format!("cn=ann,ou=people,{SUFFIX}");
    let (status, text) = check_as((&ann, "right"), [&nodes[1], &nodes[0]]);
    assert!(status == Some(50) && text.contains("manage privilege"), "{status:?}: {text}");
    [nodes.as_mut_slice(), std::slice::from_mut(&mut plain)].into_iter().flatten().for_each(Member::stop);
}

#[test]
fn nodes_prove_what_they_hold() {
    let Some(engine) = Engine::start() else { return };
    prove(&engine.database().1, "");
    prove(&engine.database().1, "read-consistency session\nserver-id 7\noverlay syncprov");
}

#[test]
fn nodes_of_an_etcd_prove_what_they_hold() {
    let Some(etcd) = Etcd::start() else { return };
    prove(&etcd.prefix(), "read-consistency session\noverlay syncprov");
}

/// What an engine does not answer does not pass for what is not there.
#[test]
fn digests_are_whole_or_refused() {
    let Some(mut engine) = Engine::start() else { return };
    let mut nodes = nodes_with(&engine.database().1, 1, LEASE, ("", ""));
    nodes[0].start();
    fill(&nodes[0]);
    engine.crash();
    let (status, text) = check_as((ADMIN, "secret"), [&nodes[0], &nodes[0]]);
    assert!(status == Some(52) && text.contains("cannot be reached"), "{status:?}: {text}");
    engine.run();
    until("it answers", || check_as((ADMIN, "secret"), [&nodes[0], &nodes[0]]).0 == Some(0));
    nodes[0].stop();
}
