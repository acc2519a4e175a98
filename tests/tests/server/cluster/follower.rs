//! Nodes of one database that follow a provider: the one that writes does, and the next one goes on from there.

use larix_testkit::Kind;
use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_ports;
use larix_tests::replicas::{ADMIN, LOG, Member, SUFFIX};

use super::provider::syncrepl;
use super::{BASE, change, describe, nodes, until};

/// Entries come, change and go at the provider.
fn churn(provider: &Member, round: usize) {
    for number in 0..20 {
        let dn = format!("cn=c{round}-{number},ou=people,{SUFFIX}");
        provider.change(&format!("add {dn}\n  objectClass: person\n  cn: c{round}-{number}\n  sn: x"));
        match number % 3 {
            0 => provider.change(&format!("modify {dn}\n  replace sn: y")),
            1 => provider.change(&format!("delete {dn}")),
            _ => provider.change(&format!("modrdn {dn} cn=d{round}-{number} delete")),
        }
    }
    provider.change(&describe(&format!("round {round}")));
}

#[test]
fn the_node_that_writes_follows_and_the_next_one_goes_on() {
    let Some(engine) = Engine::start() else { return };
    follow_a_provider(&engine.database().1);
}

/// A node that follows an access log, and the next one goes on in it.
#[test]
fn the_next_node_goes_on_in_an_access_log() {
    let Some(engine) = Engine::start() else { return };
    let kind = if Kind::Slapd.is_lacking() { Kind::Larix } else { Kind::Slapd };
    let log = format!(
        "serverID 5\ndatabase mdb\nsuffix {LOG}\nrootdn {ADMIN}\ndirectory @DATA@/changes\n\
         index entryCSN,objectClass,reqEnd,reqResult,reqStart eq\noverlay syncprov\nsyncprov-nopresent TRUE\n\
         syncprov-reloadhint TRUE\n"
    );
    let records = format!("overlay syncprov\noverlay accesslog\nlogdb {LOG}\nlogops writes\nlogsuccess TRUE");
    let mut provider = Member::new(kind, &log, &records);
    provider.start();
    BASE.split("\n\n").for_each(|request| provider.change(request));
    let follow = syncrepl(provider.port).trim_end().to_owned()
        + &format!(
            "\n    syncdata=accesslog logbase={LOG} logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\"\n"
        );
    let nodes = nodes(&engine.database().1, 2, &format!("server-id 7\n{follow}"));
    let mut nodes: Vec<Member> = nodes.into_iter().map(|node| node.arguments(&["-d", "16640"])).collect();
    nodes.iter_mut().for_each(Member::start);
    churn(&provider, 1);
    nodes.iter().for_each(|node| node.wait_until_like(&provider));
    nodes[0].kill();
    churn(&provider, 2);
    nodes[1].wait_until_like(&provider);
    // What follows is read from the log: a refresh would bring whole entries.
    let refreshes = nodes[1].log().matches("starting refresh at").count();
    churn(&provider, 3);
    nodes[1].wait_until_like(&provider);
    assert_eq!(nodes[1].log().matches("starting refresh at").count(), refreshes, "{}", nodes[1].log());
    [&mut nodes[1], &mut provider].into_iter().for_each(Member::stop);
}

/// The nodes of an engine are one of several servers that all take changes.
#[test]
fn nodes_are_a_member_of_a_ring() {
    let Some(engine) = Engine::start() else { return };
    let ports = free_ports(1);
    let (_, address) = engine.database();
    let member = format!("multiprovider on\n{}overlay syncprov", syncrepl(ports[0]));
    let mut nodes = nodes(&address, 2, &format!("server-id 7\n{member}"));
    let both = |rid: u16, node: &Member| syncrepl(node.port).replace("rid=001", &format!("rid={rid:03}"));
    let other = format!("{}{}multiprovider on\noverlay syncprov", both(1, &nodes[0]), both(2, &nodes[1]));
    let mut other = Member::at(Kind::Larix, ports[0], "serverID 5", &other).started();
    nodes.iter_mut().for_each(Member::start);
    BASE.split("\n\n").for_each(|request| other.change(request));
    nodes.iter().for_each(|node| node.wait_until_like(&other));
    for round in 1..=3 {
        let writes = super::leader(&nodes);
        churn(&other, round * 10);
        // Of two changes of one value the later one stays, wherever it was made.
        other.change(&describe("there"));
        until("the other side has it", || super::description(&nodes[writes]).as_deref() == Some("there"));
        assert_eq!(change(&nodes[writes], &describe("here")), "=> 0\n");
        churn_at(&nodes[writes], round * 10 + 1);
        nodes.iter().for_each(|node| node.wait_until_like(&other));
        assert_eq!(super::description(&other).as_deref(), Some("here"));
        nodes[writes].kill();
        // Both sides go on without it.
        other.change(&describe(&format!("meanwhile {round}")));
        nodes[1 - writes].wait_until_like(&other);
        nodes[writes].start();
    }
    nodes.iter().for_each(|node| node.wait_until_like(&other));
    nodes.iter_mut().chain([&mut other]).for_each(Member::stop);
}

/// As [`churn`], at a node that may lose its lease for a moment.
fn churn_at(node: &Member, round: usize) {
    for number in 0..10 {
        let dn = format!("cn=n{round}-{number},ou=people,{SUFFIX}");
        let add = format!("add {dn}\n  objectClass: person\n  cn: n{round}-{number}\n  sn: x");
        assert_eq!(change(node, &add), "=> 0\n");
        if number % 2 == 0 {
            assert_eq!(change(node, &format!("delete {dn}")), "=> 0\n");
        }
    }
}

/// Nodes on this engine.
pub(super) fn follow_a_provider(address: &str) {
    let kind = if Kind::Slapd.is_lacking() { Kind::Larix } else { Kind::Slapd };
    let mut provider = Member::new(kind, "serverID 5", "overlay syncprov").started();
    BASE.split("\n\n").for_each(|request| provider.change(request));
    let follow =
        format!("server-id 7\n{}updateref {}\noverlay syncprov", syncrepl(provider.port), provider.url());
    let nodes = nodes(address, 2, &follow);
    let mut nodes: Vec<Member> = nodes.into_iter().map(|node| node.arguments(&["-d", "16640"])).collect();
    nodes.iter_mut().for_each(Member::start);
    // A replica of the node that does not write.
    let mut replica = Member::new(Kind::Larix, "", &syncrepl(nodes[1].port)).started();
    let all_equal = |nodes: &[Member]| {
        for one in nodes.iter().chain([&replica]) {
            one.wait_until_like(&provider);
        }
    };
    churn(&provider, 1);
    all_equal(&nodes);
    nodes[0].wait_for_log("starting refresh at");
    assert!(!nodes[1].log().contains("starting refresh at"), "one node follows: {}", nodes[1].log());
    for node in &nodes {
        let referred = change(node, &describe("here"));
        assert!(referred.starts_with("=> 10") && referred.contains(&provider.url()), "{referred}");
    }

    let refreshes = |node: &Member| node.log().matches("starting refresh at").count();
    let before = refreshes(&nodes[0]);
    nodes[0].kill();
    churn(&provider, 2);
    until("the other node follows", || nodes[1].log().contains("(sending cookie=rid=001,csn="));
    all_equal(&nodes[1..]);
    nodes[0].start();
    churn(&provider, 3);
    all_equal(&nodes);
    assert_eq!(refreshes(&nodes[0]), before, "one node follows: {}", nodes[0].log());

    // It is handed on.
    nodes[1].stop();
    churn(&provider, 4);
    nodes[0].wait_until_like(&provider);
    [&mut replica, &mut nodes[0], &mut provider].into_iter().for_each(Member::stop);
}
