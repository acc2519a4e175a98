//! What a node that does not write reads of what the other one has acknowledged, and what the monitor shows of both.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use larix_proto::oid;
use larix_testkit::postgresql::Engine;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{change, describe, description, fill, nodes, nodes_with, until};

/// So long a lease that nobody looks at it during the test: a node learns nothing with it.
const LEASE: u32 = 300;
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
    let [_, later] = seen(&engine, &format!("bounded {}", BOUND.as_secs()));
    assert!(later, "what is older than the bound is seen");
}

/// Nothing but a notification tells the node: it has all in its cache, the bound is an hour, and so is about the next look at the lease.
pub(super) fn hear_of_changes(address: &str, consistency: &str) {
    let mut nodes = nodes_with(address, 2, LEASE, ("", &format!("read-consistency {consistency}")));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    for round in ["one", "two", "three"] {
        assert_eq!(change(&nodes[0], &describe(round)), "=> 0\n");
        until("the other node shows it", || description(&nodes[1]).as_deref() == Some(round));
    }
    nodes.iter_mut().for_each(Member::stop);
}

/// While nodes differ in who writes, a change is not sent round in a circle: it is to be tried again. One that comes by way of balancers
/// and proxies is sent on.
#[test]
fn a_change_that_has_come_through_many_servers_is_not_referred_again() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = nodes_with(&engine.database().1, 2, LEASE, ("", ""));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let mut client = nodes[1].client();
    // If the engine did not answer in time when it began, it learns that later.
    until("it knows who writes", || ask(&mut client, &describe("in vain")).starts_with("=> 10"));
    for (hops, code) in [(1_u8, "=> 10"), (5, "=> 10"), (6, "=> 52"), (7, "=> 52")] {
        let counted = format!("with {}={}", oid::PROXY_HOPS, char::from(hops));
        let request = describe("in vain").replacen('\n', &format!(" {counted}\n"), 1);
        let answer = ask(&mut client, &request);
        assert!(answer.starts_with(code), "{hops}: {answer}");
        assert_eq!(
            code == "=> 52",
            answer.contains("another one is about to: try again"),
            "{hops}: {answer}"
        );
    }
    nodes.iter_mut().for_each(Member::stop);
}

#[test]
fn nodes_hear_of_changes_without_asking() {
    let Some(engine) = Engine::start() else { return };
    for consistency in ["session", "bounded 3600"] {
        hear_of_changes(&engine.database().1, consistency);
    }
}

/// A commit that nobody tells of is noticed at the next look at the lease; so it is where connections have gone.
#[test]
fn a_notification_that_is_lost_is_made_up_for() {
    const COMMIT: &str = "INSERT INTO larix.commits (version, epoch, attempt, keys) \
        SELECT version + 1, epoch, 'by hand', '' FROM larix.commits ORDER BY version DESC LIMIT 1 RETURNING version";
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = nodes_with(&address, 2, 2, ("", "read-consistency bounded 3600"));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let known = || {
        let shown = monitored(&nodes[1], "cn=Nodes,cn=Larix,cn=Monitor", "monitoredInfo");
        let number =
            shown.split("commit=").nth(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        number.flatten().and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{shown}"))
    };
    for _ in 0..3 {
        let mut made = None;
        // The node that writes may commit at the same time.
        until("a commit", || {
            made = engine.sql(&name, COMMIT).and_then(|version| version.parse::<u64>().ok());
            made.is_some()
        });
        until("it has noticed", || made.is_some_and(|made| known() >= made));
    }
    let listeners = || -> BTreeSet<String> {
        let pids = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN larix_commits%'";
        engine.sql(&name, pids).expect("connections").lines().map(str::to_owned).collect()
    };
    until("both nodes listen", || listeners().len() == 2);
    let before = listeners();
    for pid in &before {
        engine.sql(&name, &format!("SELECT pg_terminate_backend({pid})")).expect("an end");
    }
    until("both listen again", || listeners().len() == 2 && listeners().is_disjoint(&before));
    until("changes are shown", || {
        change(&nodes[0], &describe("again")) == "=> 0\n"
            && description(&nodes[1]).as_deref() == Some("again")
    });
    nodes.iter_mut().for_each(Member::stop);
}

/// Adds a unit with somebody below it.
fn add_bob(node: &Member, unit: &str) {
    let above = format!("add ou={unit},{SUFFIX}\n  objectClass: organizationalUnit\n  ou: {unit}");
    until("it takes changes", || change(node, &above) == "=> 0\n");
    let below = format!("add cn=bob,ou={unit},{SUFFIX}\n  objectClass: person\n  cn: bob\n  sn: {unit}");
    assert_eq!(change(node, &below), "=> 0\n");
}

fn bob(node: &Member, unit: &str) -> String {
    let mut client = Client::connect(node.address());
    ask(&mut client, &format!("as {ADMIN} secret"));
    ask(&mut client, &format!("search cn=bob,ou={unit},{SUFFIX} base (objectClass=*) sn"))
}

/// The engine has lost commits that a node had read, and others have made more since. The node refuses to serve where it can tell. Where their
/// rows are no longer kept it cannot, and takes nothing that it remembers of names for what is there.
#[test]
fn names_of_commits_that_were_lost_are_not_shown() {
    const SAVE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE larix.old_rows AS SELECT * FROM larix.rows; \
        CREATE TABLE larix.old_commits AS SELECT * FROM larix.commits; COMMIT";
    const LOSE: &str = "TRUNCATE larix.rows, larix.commits; INSERT INTO larix.rows SELECT * FROM larix.old_rows; \
        INSERT INTO larix.commits SELECT * FROM larix.old_commits; UPDATE larix.lease SET until = clock_timestamp()";
    let Some(engine) = Engine::start() else { return };
    for (others, is_served) in [(300, false), (20_000, true)] {
        let (name, address) = engine.database();
        let mut nodes = nodes_with(&address, 2, LEASE, ("", ""));
        nodes.iter_mut().for_each(Member::start);
        fill(&nodes[0]);
        engine.sql(&name, SAVE).expect("a copy");
        add_bob(&nodes[0], "lost");
        // Each thread remembers names by itself.
        for _ in 0..40 {
            let found = bob(&nodes[1], "lost");
            assert!(found.contains("sn: lost\n"), "{found}");
        }
        nodes[0].kill();
        engine.sql(&name, LOSE).expect("a loss");
        nodes[0].start();
        add_bob(&nodes[0], "other");
        let more = format!(
            "INSERT INTO larix.commits (version, epoch, attempt, keys) SELECT version + g, epoch, 'by hand', '' FROM \
             (SELECT version, epoch FROM larix.commits ORDER BY version DESC LIMIT 1) AS n, generate_series(1, {others}) AS g; \
             DELETE FROM larix.commits WHERE version + 16384 < (SELECT max(version) FROM larix.commits)"
        );
        engine.sql(&name, &more).expect("commits");
        for _ in 0..40 {
            let (lost, other) = (bob(&nodes[1], "lost"), bob(&nodes[1], "other"));
            if is_served {
                assert!(lost.contains("=> 32"), "{lost}");
                assert!(other.contains(&format!("cn=bob,ou=other,{SUFFIX}\n")), "{other}");
            } else {
                assert!(lost.contains("=> 52") && other.contains("=> 52"), "{lost} {other}");
            }
        }
        nodes.iter_mut().for_each(Member::stop);
    }
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
