//! The same on an etcd.

use larix_testkit::etcd::Etcd;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{
    access_log, binds, change, consistency, describe, description, fill, follower, larix, leader,
    lose_nothing, nodes, overlays, provider, round_trips, settings, tools, until,
    write_at_one_and_read_at_all,
};

#[test]
fn one_node_writes_and_all_read() {
    let Some(etcd) = Etcd::start() else { return };
    write_at_one_and_read_at_all(&etcd.prefix());
}

#[test]
fn nodes_hear_of_changes_without_asking() {
    let Some(etcd) = Etcd::start() else { return };
    consistency::hear_of_changes(&etcd.prefix(), "bounded 3600");
}

#[test]
fn wrong_passwords_are_counted_whichever_node_is_asked() {
    let Some(etcd) = Etcd::start() else { return };
    binds::count_wrong_passwords(&etcd.prefix());
}

#[test]
#[ignore = "each run has it with PostgreSQL; the engine makes no difference above the store"]
fn consumers_follow_whichever_node_they_ask() {
    let Some(etcd) = Etcd::start() else { return };
    provider::follow_nodes(&etcd.prefix());
}

#[test]
#[ignore = "each run has it with PostgreSQL; the engine makes no difference above the store"]
fn the_node_that_writes_follows_and_the_next_one_goes_on() {
    let Some(etcd) = Etcd::start() else { return };
    follower::follow_a_provider(&etcd.prefix());
}

#[test]
#[ignore = "each run has it with PostgreSQL; the engine makes no difference above the store"]
fn the_next_node_audits_what_the_one_before_had_no_time_for() {
    let Some(etcd) = Etcd::start() else { return };
    overlays::audit(&etcd.prefix());
}

#[test]
#[ignore = "each run has it with PostgreSQL; the engine makes no difference above the store"]
fn each_change_is_in_the_access_log_once() {
    let Some(etcd) = Etcd::start() else { return };
    access_log::record_once(&etcd.prefix());
}

#[test]
fn tools_write_where_no_node_does() {
    let Some(etcd) = Etcd::start() else { return };
    tools::write_with_tools(&etcd.prefix());
}

#[test]
fn a_node_goes_on_writing_under_another_configuration() {
    let Some(etcd) = Etcd::start() else { return };
    settings::go_on_writing(&etcd.prefix());
}

#[test]
fn changes_wait_for_a_database_that_is_opened_anew() {
    let Some(etcd) = Etcd::start() else { return };
    settings::wait_for_another_opening(&etcd.prefix());
}

/// etcd answers one step of a path at a time; indexes of the naming attributes say where the other steps lead.
#[test]
fn operations_take_few_round_trips() {
    let Some(etcd) = Etcd::start() else { return };
    let most = round_trips::Most { read: 2, search: 2, bind: 3, modify: 4, add: 3 };
    round_trips::count(&etcd.prefix(), &most);
}

/// Writers while the node that writes and the member of etcd that leads are killed again and again.
#[test]
fn nothing_acknowledged_is_lost_when_leaders_die() {
    let rounds = std::env::var("LARIX_ETCD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let Some(mut etcd) = Etcd::start_members(3) else { return };
    let address = etcd.prefix();
    lose_nothing(&address, rounds, |_| {
        // Those that were killed in the round before.
        etcd.run();
        let mut leader = None;
        until("etcd has a leader", || {
            leader = etcd.leader();
            leader.is_some()
        });
        etcd.crash(leader.expect("a leader"));
    });
}

#[test]
fn an_engine_without_a_majority_takes_no_changes() {
    let Some(mut etcd) = Etcd::start_members(3) else { return };
    let mut nodes = nodes(&etcd.prefix(), 1, "read-consistency session");
    nodes[0].start();
    fill(&nodes[0]);
    assert_eq!(description(&nodes[0]), None, "it is in the cache now");
    etcd.crash(0);
    until("two of three take changes", || change(&nodes[0], &describe("two")) == "=> 0\n");
    assert_eq!(description(&nodes[0]).as_deref(), Some("two"));
    etcd.crash(1);
    let mut answer = String::new();
    until("it has noticed", || {
        answer = change(&nodes[0], &describe("in vain"));
        answer.starts_with("=> 52")
    });
    assert!(answer.contains("cannot be reached") || answer.contains("takes changes"), "{answer}");
    assert_eq!(description(&nodes[0]).as_deref(), Some("two"), "a session goes on with what is cached");
    etcd.run();
    until("it writes without a restart", || change(&nodes[0], &describe("three")) == "=> 0\n");
    nodes[0].stop();
}

#[test]
fn tools_work_beside_nodes() {
    let Some(mut etcd) = Etcd::start() else { return };
    let mut nodes = nodes(&etcd.prefix(), 2, "");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let (whole, text) = larix(&["cat"], &nodes[1]);
    assert!(whole && text.contains("dn: cn=ann,ou=people,dc=example,dc=com\n"), "{text}");
    let (whole, text) = larix(&["cluster", "check"], &nodes[1]);
    assert!(whole, "{text}");
    let at = leader(&nodes);
    let url = nodes[at].url();
    let mut status = String::new();
    until("both are connected", || {
        status = larix(&["cluster", "status"], &nodes[0]).1;
        nodes.iter().all(|node| status.contains(&node.url()))
    });
    let (whole, text) = larix(&["cluster", "remove", &url], &nodes[1 - at]);
    assert!(whole && text.contains(&format!("{url} has lost the lease")), "{text}");
    until("the other node writes", || change(&nodes[1 - at], &describe("taken over")) == "=> 0\n");
    until("the node that was removed reads", || description(&nodes[at]).as_deref() == Some("taken over"));
    etcd.crash_all();
    let (whole, text) = larix(&["cat"], &nodes[0]);
    assert!(!whole && text.contains("the engine cannot be reached: 127.0.0.1:"), "{text}");
    nodes.iter_mut().for_each(Member::kill);
}

/// An add of an entry larger than etcd's requests is refused, and the limit is named; a group is a commit in parts.
#[test]
fn limits_are_named_and_large_entries_come_whole() {
    let Some(etcd) = Etcd::start() else { return };
    let mut nodes = nodes(&etcd.prefix(), 2, "");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let members: String =
        (0..2000).map(|number| format!("  member: cn=p{number},ou=people,{SUFFIX}\n")).collect();
    let group =
        format!("add cn=all,{SUFFIX}\n  objectClass: groupOfNames\n  cn: all\n{}", members.trim_end());
    until("it takes changes", || change(&nodes[0], &group) == "=> 0\n");
    let mut client = Client::connect(nodes[1].address());
    ask(&mut client, &format!("as {ADMIN} secret"));
    let found = ask(&mut client, &format!("search cn=all,{SUFFIX} base (objectClass=*) member"));
    assert_eq!(found.matches("member: ").count(), 2000);
    nodes.iter_mut().for_each(Member::stop);
}
