//! Binds that a policy judges, at nodes that write and at nodes that do not.

use std::time::Duration;

use larix_testkit::postgresql::Engine;
use larix_testkit::until_some;
use larix_tests::client::Client;
use larix_tests::replicas::{Member, SUFFIX, ask};

use super::{LEASE, change, fill, leader, nodes_with, until};

/// So long a lease, in seconds, that the node that writes keeps it.
const LONG: u32 = 120;
const MAX_FAILURE: usize = 4;
const ANN: &str = "cn=ann,ou=people,dc=example,dc=com";
const POLICY: &str = "overlay ppolicy\nppolicy_default cn=policy,dc=example,dc=com\nppolicy_use_lockout\nlastbind on\n\
    access to attrs=userPassword by self write by * auth\naccess to * by * read";

fn policy() -> String {
    format!(
        "add cn=policy,{SUFFIX}\n  objectClass: applicationProcess\n  objectClass: pwdPolicy\n  cn: policy\n  \
         pwdAttribute: userPassword\n  pwdLockout: TRUE\n  pwdMaxFailure: {MAX_FAILURE}\n  pwdInHistory: 2\n  \
         pwdCheckQuality: 2\n  pwdMinLength: 5\n  pwdMustChange: TRUE\n  pwdAllowUserChange: TRUE"
    )
}

/// Two nodes with a policy, the one that writes first.
fn judging(address: &str, lease: u32) -> Vec<Member> {
    let mut nodes = nodes_with(address, 2, lease, ("", POLICY));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let at = leader(&nodes);
    nodes.swap(0, at);
    until("the policy is there", || {
        ["=> 0", "=> 68"].iter().any(|code| change(&nodes[0], &policy()).starts_with(code))
    });
    // The node that does not write knows the other one, and can ask it.
    until("it judges binds", || bind(&nodes[1], "right").starts_with("=> 0"));
    nodes
}

fn bind(node: &Member, password: &str) -> String {
    ask(&mut Client::connect(node.address()), &format!("as {ANN} {password}"))
}

/// What a node answers that has not heard in time from the one that writes.
fn is_unjudged(answer: &str) -> bool {
    answer.starts_with("=> 52") && answer.contains("cannot be judged")
}

/// As [`bind`], again where nobody has judged it in time: the machine may be busy.
fn judged(node: &Member, password: &str) -> String {
    until_some("it is judged", || Some(bind(node, password)).filter(|answer| !is_unjudged(answer)))
}

/// A connection of somebody whose password is right.
fn bound(node: &Member, password: &str) -> Client {
    until_some("it is judged", || {
        let mut client = Client::connect(node.address());
        let answer = ask(&mut client, &format!("as {ANN} {password}"));
        assert!(answer == "=> 0\n" || is_unjudged(&answer), "{answer}");
        (answer == "=> 0\n").then_some(client)
    })
}

fn values(node: &Member, attribute: &str) -> Vec<String> {
    let found = ask(&mut node.client(), &format!("search {ANN} base (objectClass=*) {attribute}"));
    found.lines().filter(|line| line.trim().starts_with(attribute)).map(str::to_owned).collect()
}

#[test]
fn wrong_passwords_are_counted_whichever_node_is_asked() {
    let Some(engine) = Engine::start() else { return };
    count_wrong_passwords(&engine.database().1);
}

pub(super) fn count_wrong_passwords(address: &str) {
    let mut nodes = judging(address, LONG);
    let first = values(&nodes[1], "pwdLastSuccess");
    assert_eq!(first.len(), 1, "{first:?}");
    // A right password clears what was counted, at either node.
    for (at, wrong) in [(1, 2), (0, 3), (1, 3)] {
        // One that is not judged in time may be counted later: then it begins anew.
        until("all are judged in time", || {
            let answers: Vec<String> = (0..wrong).map(|_| bind(&nodes[at], "wrong")).collect();
            let counted = values(&nodes[1 - at], "pwdFailureTime").len();
            assert_eq!(judged(&nodes[at], "right"), "=> 0\n");
            if answers.iter().any(|answer| is_unjudged(answer)) {
                return false;
            }
            assert_eq!(answers, vec!["=> 49\n"; wrong]);
            assert_eq!(counted, wrong, "it is seen everywhere at once");
            assert_eq!(values(&nodes[1 - at], "pwdFailureTime").len(), 0);
            true
        });
    }
    // Of any number of guesses at both nodes at the same time the policy's number is judged.
    std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..24)
            .map(|n| {
                let node = &nodes[n % 2];
                scope.spawn(move || bind(node, "wrong"))
            })
            .collect();
        for guess in guesses {
            let answer = guess.join().expect("an answer");
            assert!(answer == "=> 49\n" || is_unjudged(&answer), "{answer}");
        }
    });
    for node in &nodes {
        assert_eq!(values(node, "pwdFailureTime").len(), MAX_FAILURE);
        assert_eq!(values(node, "pwdAccountLockedTime").len(), 1);
        assert_eq!(judged(node, "right"), "=> 49\n", "it is locked at both");
    }
    let unlock = format!("modify {ANN}\n  delete pwdAccountLockedTime");
    assert_eq!(change(&nodes[0], &unlock), "=> 0\n");
    assert_eq!(judged(&nodes[1], "right"), "=> 0\n");
    nodes.iter_mut().for_each(Member::stop);
}

#[test]
fn a_password_is_judged_and_has_to_be_changed_at_any_node() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = judging(&engine.database().1, LONG);
    // The root DN sets a password: its owner has to change it before anything else, at either node.
    assert_eq!(change(&nodes[0], &format!("modify {ANN}\n  replace userPassword: given")), "=> 0\n");
    let read = format!("search {SUFFIX} base (objectClass=*) dc");
    for node in &nodes {
        let mut client = bound(node, "given");
        assert!(ask(&mut client, &read).starts_with("=> 50"), "nothing but that");
    }
    let mut client = bound(&nodes[1], "given");
    let replace = |password: &str| format!("modify {ANN}\n  replace userPassword: {password}");
    let referred = ask(&mut client, &replace("second"));
    assert!(referred.starts_with("=> 10") && referred.contains(&nodes[0].url()), "{referred}");
    let mut client = bound(&nodes[0], "given");
    assert!(ask(&mut client, &replace("tiny")).starts_with("=> 19"), "it is too short");
    assert_eq!(ask(&mut client, &replace("second")), "=> 0\n");
    assert!(ask(&mut client, &replace("given")).starts_with("=> 19"), "the history has it");
    let mut client = bound(&nodes[1], "second");
    assert!(ask(&mut client, &read).ends_with("=> 0\n"), "it is changed");
    nodes.iter_mut().for_each(Member::stop);
}

/// The next leader judges the binds that wait; nobody guesses uncounted.
#[test]
fn the_next_node_that_writes_judges_binds() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = judging(&engine.database().1, LEASE);
    nodes[0].kill();
    let (mut unjudged, mut wrong) = (0, 0);
    until("the other node judges", || {
        match bind(&nodes[1], "wrong").as_str() {
            "=> 49\n" => wrong += 1,
            other => {
                assert!(is_unjudged(other), "{other}");
                unjudged += 1;
            }
        }
        wrong > 0
    });
    // Each guess that was answered as wrong was counted. One that was not answered may have been.
    let counted = values(&nodes[1], "pwdFailureTime").len();
    assert!((wrong..=wrong + unjudged).contains(&counted), "{counted} of {wrong} and {unjudged}");
    assert_eq!(judged(&nodes[1], "right"), "=> 0\n");
    nodes[0].start();
    until("the first node asks the other", || {
        if bind(&nodes[0], "right") != "=> 0\n" {
            return false;
        }
        let answer = bind(&nodes[0], "wrong");
        if is_unjudged(&answer) {
            return false;
        }
        assert_eq!((answer.as_str(), values(&nodes[1], "pwdFailureTime").len()), ("=> 49\n", 1));
        true
    });
    nodes.iter_mut().for_each(Member::stop);
}

/// As long as no node writes, a bind that has to be counted is refused, and nobody waits for long.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long a client waits is what it is about")]
fn without_a_node_that_writes_no_bind_is_judged() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = judging(&engine.database().1, LONG);
    nodes[0].kill();
    for password in ["wrong", "right"] {
        // On a busy machine the engine may be late itself. Whatever the reason, no bind is judged.
        until("the node that writes is missed", || {
            let start = std::time::Instant::now();
            let answer = bind(&nodes[1], password);
            assert!(answer.starts_with("=> 52"), "{password}: {answer}");
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
            answer.contains("has not answered")
        });
    }
    assert_eq!(values(&nodes[1], "sn").len(), 1, "reads go on");
    nodes[1].stop();
}

/// The connection that hears of answers may end at any time, and no bind is refused because of that.
#[test]
fn a_bind_outlasts_the_connection_that_hears_of_its_answer() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = judging(&address, LONG);
    for round in 0..3 {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                   AND (query LIKE 'LISTEN%' OR query LIKE 'WITH off AS%') AND pid <> pg_backend_pid()";
        let ended = engine.sql(&name, end).expect("an answer");
        assert_ne!(ended, "0", "a connection of each node");
        assert_eq!(bind(&nodes[1], "wrong"), "=> 49\n", "round {round}");
        assert_eq!(bind(&nodes[1], "right"), "=> 0\n", "round {round}");
    }
    nodes.iter_mut().for_each(Member::stop);
}
