//! Nodes of one database that follow a provider: the one that writes does, and the next one goes on from there.

use larix_testkit::Kind;
use larix_testkit::postgresql::Engine;
use larix_tests::replicas::{Member, SUFFIX};

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
