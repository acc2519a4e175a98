//! Changes of the configuration at the node that writes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use larix_testkit::postgresql::Engine;
use larix_testkit::{SetAtEnd, until};
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, SUFFIX, ask};

use super::{describe, description, fill, nodes_with};

/// Seconds of a lease: nothing but a change of the configuration could take it away.
const LEASE: u32 = 120;
const SECTION: &str = "olcDatabase={2}kv,cn=config";

#[test]
fn a_node_goes_on_writing_under_another_configuration() {
    let Some(engine) = Engine::start() else { return };
    go_on_writing(&engine.database().1);
}

pub(super) fn go_on_writing(address: &str) {
    let mut node = nodes_with(address, 1, LEASE, ("database config\nrootpw secret\n", "")).remove(0);
    node.start();
    fill(&node);
    let admin = |who: &str| {
        let mut client = Client::connect(node.address());
        assert_eq!(ask(&mut client, &format!("as {who} secret")), "=> 0\n");
        client
    };
    let (mut configuring, mut writing) = (admin("cn=config"), admin(ADMIN));
    let of_section = |change: &str| format!("modify {SECTION}\n  {change}");
    let changes = [
        "modify cn=config\n  replace olcIdleTimeout: 900".to_owned(),
        of_section("replace olcSizeLimit: 77"),
        of_section("replace olcAccess: to * by * read"),
        of_section("add olcDbIndex: sn eq"),
        of_section("delete olcDbIndex: cn eq"),
        "modify cn=config\n  add olcAttributeTypes: ( 1.2.3.4.6 NAME 'laterThing' SUP name )".to_owned(),
        format!(
            "add olcOverlay=syncprov,{SECTION}\n  objectClass: olcOverlayConfig\n  objectClass: olcSyncProvConfig\n  \
             olcOverlay: syncprov"
        ),
        of_section("replace olcLarixKvServerId: 7"),
    ];
    for (number, request) in changes.iter().enumerate() {
        assert_eq!(ask(&mut configuring, request), "=> 0\n", "{request}");
        // At once, and once only.
        assert_eq!(ask(&mut writing, &describe(&format!("n{number}"))), "=> 0\n", "{request}");
    }
    assert_eq!(description(&node), Some(format!("n{}", changes.len() - 1)));
    assert_eq!(node.log().matches("this node writes now").count(), 1);
    // What was settled is what they say.
    let ann = format!("cn=ann,ou=people,{SUFFIX}");
    assert!(node.client().value(&ann, "entryCSN").is_some_and(|csn| csn.contains("#007#")));
    assert!(ask(&mut writing, &format!("search {SUFFIX} sub (sn=Lee) sn")).contains("sn: Lee"));
    node.stop();
}

#[test]
fn changes_wait_for_a_database_that_is_opened_anew() {
    let Some(engine) = Engine::start() else { return };
    wait_for_another_opening(&engine.database().1);
}

pub(super) fn wait_for_another_opening(address: &str) {
    const WRITES_NOW: &str = "this node writes now";
    const OPENED_ANEW: [&str; 6] = [
        "olcLarixKvCache: 32",
        "olcLarixKvLease: 100",
        "olcLarixKvReadConsistency: session",
        "olcLarixKvCache: 16",
        "olcLarixKvLease: 110",
        "olcLarixKvReadConsistency: strict",
    ];
    let mut node = nodes_with(address, 1, LEASE, ("database config\nrootpw secret\n", "")).remove(0);
    node.start();
    fill(&node);
    let mut openings = 1;
    // A client that is alone, whose changes its event loop carries out, and several, which share commits.
    for (clients, changes) in [(1, &OPENED_ANEW[..3]), (4, &OPENED_ANEW[3..])] {
        let (ended, made) = (&AtomicBool::new(false), &AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _end = SetAtEnd(ended);
            for client in 0..clients {
                let address = node.address();
                scope.spawn(move || {
                    let _end = SetAtEnd(ended);
                    let mut writing = Client::connect(address);
                    assert_eq!(ask(&mut writing, &format!("as {ADMIN} secret")), "=> 0\n");
                    for number in 0.. {
                        if ended.load(Ordering::Acquire) {
                            break;
                        }
                        let answer = ask(&mut writing, &describe(&format!("c{client} n{number}")));
                        assert_eq!(answer, "=> 0\n", "client {client}, change {number}");
                        made.fetch_add(1, Ordering::AcqRel);
                    }
                });
            }
            let go_on = || {
                let before = made.load(Ordering::Acquire);
                until("changes go on", || {
                    ended.load(Ordering::Acquire) || made.load(Ordering::Acquire) > before + 10
                });
            };
            let mut configuring = Client::connect(node.address());
            assert_eq!(ask(&mut configuring, "as cn=config secret"), "=> 0\n");
            for change in changes {
                go_on();
                let request = format!("modify {SECTION}\n  replace {change}");
                assert_eq!(ask(&mut configuring, &request), "=> 0\n", "{change}");
                openings += 1;
                until(&format!("it is opened anew: {change}"), || {
                    ended.load(Ordering::Acquire) || node.log().matches(WRITES_NOW).count() >= openings
                });
            }
            go_on();
        });
    }
    assert_eq!((openings, node.log().matches(WRITES_NOW).count()), (1 + OPENED_ANEW.len(), openings));
    node.stop();
}
