//! Overlays that follow commits or act at intervals: those of the node that writes act, and the next one goes on.

use std::path::{Path, PathBuf};
use std::process::Command;

use larix_testkit::postgresql::Engine;
use larix_testkit::until_some;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{BASE, change, describe, fill, larix, nodes, until};

/// Nodes that write what they changed into files of this folder.
fn audited(address: &str, folder: &Path, count: usize) -> Vec<Member> {
    nodes(address, count, &format!("overlay auditlog\nauditlog {}/@PORT@.ldif", folder.display()))
}

fn file(folder: &Path, node: &Member) -> PathBuf {
    folder.join(format!("{}.ldif", node.port))
}

/// What a node has written; nothing where that is a pipe.
fn written(folder: &Path, node: &Member) -> String {
    let file = file(folder, node);
    let is_file = std::fs::metadata(&file).is_ok_and(|found| found.is_file());
    if is_file { std::fs::read_to_string(file).expect("text") } else { String::new() }
}

fn described(text: &str) -> String {
    format!("description: {text}\n")
}

#[test]
fn the_next_node_audits_what_the_one_before_had_no_time_for() {
    let Some(engine) = Engine::start() else { return };
    audit(&engine.database().1);
}

/// Nodes on this engine.
pub(super) fn audit(address: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut nodes = audited(address, folder, 2);
    // Nobody reads the first node's pipe: its overlay waits, and its changes do not.
    let pipe = file(folder, &nodes[0]);
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    nodes[0].start();
    fill(&nodes[0]);
    let values: Vec<String> = (0..20).map(|number| format!("one {number}")).collect();
    for value in &values {
        assert_eq!(change(&nodes[0], &describe(value)), "=> 0\n");
    }
    nodes[1].start();
    nodes[0].kill();
    until("the other node writes", || change(&nodes[1], &describe("two")) == "=> 0\n");
    until("it audits", || written(folder, &nodes[1]).contains(&described("two")));
    let text = written(folder, &nodes[1]);
    assert!(!text.contains("missing"), "{text}");
    let mut rest = text.as_str();
    let names = BASE.split("\n\n").map(|add| format!("dn: {}\n", add[4..].lines().next().expect("a name")));
    for wanted in names.chain(values.iter().map(|value| described(value))).chain([described("two")]) {
        let at = rest.find(&wanted).unwrap_or_else(|| panic!("no {wanted} in {rest} of {text}"));
        rest = &rest[at + wanted.len()..];
    }
    // Who sent a change is known at the node that took it.
    let (before, _) = text.split_once(&described("two")).expect("it is there");
    let head = before.lines().rfind(|line| line.starts_with("# modify ")).expect("a head");
    assert!(head.contains(ADMIN) && !head.ends_with("conn=-1"), "{head}");

    // One that hands over: the next goes on behind it, and so on.
    std::fs::remove_file(&pipe).expect("the pipe goes");
    nodes[0].start();
    assert_eq!(change(&nodes[1], &describe("three")), "=> 0\n");
    until("it audits", || written(folder, &nodes[1]).contains(&described("three")));
    nodes[1].stop();
    until("the first node writes again", || change(&nodes[0], &describe("four")) == "=> 0\n");
    until("it audits", || written(folder, &nodes[0]).contains(&described("four")));
    let text = written(folder, &nodes[0]);
    assert!(!text.contains("missing") && !text.contains(&described("three")), "{text}");
    nodes[1].start();
    let (is_done, output) = larix(&["cluster", "step-down"], &nodes[0]);
    assert!(is_done, "{output}");
    until("the other node writes", || change(&nodes[1], &describe("five")) == "=> 0\n");
    until("it audits", || written(folder, &nodes[1]).contains(&described("five")));
    nodes.iter_mut().for_each(Member::stop);
    for node in &nodes {
        assert!(!written(folder, node).contains("missing"), "{}", written(folder, node));
        assert!(!node.log().contains("overlay auditlog:"), "{}", node.log());
    }
}

#[test]
fn the_node_that_writes_deletes_what_has_expired() {
    let Some(engine) = Engine::start() else { return };
    let dds = "overlay dds\ndds-interval 1\ndds-default-ttl 2";
    let mut nodes = nodes(&engine.database().1, 2, dds);
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let add = |cn: &str| {
        format!(
            "add cn={cn},ou=people,{SUFFIX}\n  objectClass: person\n  objectClass: dynamicObject\n  cn: {cn}\n  sn: x"
        )
    };
    let has = |node: &Member, cn: &str| {
        // A search beside changes may be told to come again.
        let content = until_some("an answer", || node.content(SUFFIX));
        content.keys().any(|dn| dn.to_lowercase().starts_with(&format!("cn={cn},")))
    };
    assert_eq!(change(&nodes[0], &add("one")), "=> 0\n");
    until("it goes", || !has(&nodes[1], "one"));

    // Refreshes are changes: they go to the node that writes.
    let name = format!("cn=ann,ou=people,{SUFFIX}");
    let mut value = format!("30 {:x} 80 {:x}", name.len() + 5, name.len());
    name.bytes().for_each(|byte| value += &format!(" {byte:02x}"));
    let mut client = Client::connect(nodes[1].address());
    ask(&mut client, &format!("as {ADMIN} secret"));
    let referred = ask(&mut client, &format!("extended 1.3.6.1.4.1.1466.101.119.1 \"{value} 81 01 0a\""));
    assert!(referred.starts_with("=> 10") && referred.contains(&nodes[0].url()), "{referred}");

    assert_eq!(change(&nodes[0], &add("two")), "=> 0\n");
    nodes[0].kill();
    until("what the dead node has left goes", || !has(&nodes[1], "two"));
    until("the other node writes", || change(&nodes[1], &add("three")) == "=> 0\n");
    until("it goes", || !has(&nodes[1], "three"));
    assert!(has(&nodes[1], "ann"));
    nodes[1].stop();
}

/// A node with the overlay and one without it, as where an administrator has added it at one after the other.
#[test]
fn changes_of_a_node_without_the_overlay_are_audited_by_the_next_one_that_has_it() {
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut with = audited(&address, folder, 1).remove(0);
    let mut without = nodes(&address, 1, "overlay syncprov").remove(0);
    with.start();
    fill(&with);
    assert_eq!(change(&with, &describe("one")), "=> 0\n");
    until("it audits", || written(folder, &with).contains(&described("one")));
    without.start();
    with.stop();
    until("the other node writes", || change(&without, &describe("two")) == "=> 0\n");
    with.start();
    without.stop();
    until("the first node writes", || change(&with, &describe("three")) == "=> 0\n");
    until("it audits", || written(folder, &with).contains(&described("three")));
    let text = written(folder, &with);
    assert!(text.contains(&described("two")) && !text.contains("missing"), "{text}");
    with.stop();
}
