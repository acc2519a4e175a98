//! `database kv`: several servers on one PostgreSQL, or on an etcd.

mod access_log;
mod beginning;
mod binds;
mod consistency;
mod digests;
mod etcd;
mod follower;
mod forwarding;
mod glued;
mod identities;
mod join;
mod lone_client;
mod overlays;
mod provider;
mod round_trips;
mod settings;
mod status;
mod tools;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use larix_testkit::postgresql::Engine;
use larix_testkit::process::{free_ports, freeze};
use larix_testkit::{Kind, Running, SetAtEnd, until, until_some};
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

const PAUSE: Duration = Duration::from_millis(20);
/// How often a change is asked for until a node is known that writes: a minute.
const LOOKS: usize = 3_000;
const BASE: &str = "add dc=example,dc=com\n  objectClass: domain\n  dc: example\n\n\
    add ou=people,dc=example,dc=com\n  objectClass: organizationalUnit\n  ou: people\n\n\
    add cn=ann,ou=people,dc=example,dc=com\n  objectClass: person\n  cn: ann\n  sn: Lee\n  userPassword: right";

/// Seconds of a lease that a busy machine lets a node keep, and that a test waits for when a node is killed.
const LEASE: u32 = 4;

/// Nodes of one database, not started.
fn nodes(address: &str, count: usize, more: &str) -> Vec<Member> {
    nodes_with(address, count, LEASE, ("", more))
}

/// `global` stands before the databases, `more` behind the lines of the one in the engine.
fn nodes_with(address: &str, count: usize, lease: u32, (global, more): (&str, &str)) -> Vec<Member> {
    let ports = free_ports(count);
    let node = |port: &u16| {
        let body = format!(
            "{global}database monitor\ndatabase kv\nengine {address}\nnode ldap://127.0.0.1:{port}\nlease {lease}\nsuffix {SUFFIX}\n\
             rootdn {ADMIN}\nrootpw secret\nindex objectClass,cn eq\n{more}\n"
        );
        Member::with(Kind::Larix, *port, &body).arguments(&["-d", "256"])
    };
    ports.iter().map(node).collect()
}

fn describe(text: &str) -> String {
    format!("modify cn=ann,ou=people,{SUFFIX}\n  replace description: {text}")
}

/// What a node answers where the one that writes has lost its lease for a moment, as on a busy machine.
const BETWEEN_TWO: &str = "another one is about to: try again";

/// What a change is answered, on a connection of its own, once a node is known that writes.
fn change(node: &Member, request: &str) -> String {
    change_at(node.address(), request)
}

fn change_at(address: SocketAddr, request: &str) -> String {
    let mut answer = "gone".to_owned();
    for _ in 0..LOOKS {
        let Ok(mut client) = Client::try_connect(address) else { return "gone".to_owned() };
        ask(&mut client, &format!("as {ADMIN} secret"));
        answer = ask(&mut client, request);
        if !answer.contains(BETWEEN_TWO) {
            break;
        }
        std::thread::park_timeout(PAUSE);
    }
    answer
}

/// Adds the first entries. The node leads, but on a busy machine it may lose its lease for a moment, or serve before the engine has
/// answered it.
fn fill(node: &Member) {
    const NOT_YET: [&str; 2] =
        ["no node of this database takes changes", "has not let this server in since it started"];
    for request in BASE.split("\n\n") {
        until("it takes changes", || {
            let answer = change(node, request);
            let is_late = NOT_YET.iter().any(|text| answer.contains(text));
            assert!(answer == "=> 0\n" || is_late, "{answer}");
            !is_late
        });
    }
}

fn description(node: &Member) -> Option<String> {
    node.client().value(&format!("cn=ann,ou=people,{SUFFIX}"), "description")
}

/// Which of them writes, found out by a change.
fn leader(nodes: &[Member]) -> usize {
    let mut found = None;
    until("a leader", || {
        found = nodes.iter().position(|node| change(node, &describe("found")).starts_with("=> 0"));
        found.is_some()
    });
    found.expect("a leader")
}

#[test]
fn one_node_writes_and_all_read() {
    let Some(engine) = Engine::start() else { return };
    write_at_one_and_read_at_all(&engine.database().1);
}

/// A node that knows of commits that the engine has lost serves nothing, and leaves it to others to write.
#[test]
fn a_node_that_misses_commits_does_not_keep_the_right_to_write() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = nodes(&address, 2, "");
    nodes[0].start();
    fill(&nodes[0]);
    let lose = "UPDATE larix.commits SET attempt = 'by hand' WHERE version = (SELECT max(version) FROM larix.commits)";
    engine.sql(&name, lose).expect("a loss");
    let refused = change(&nodes[0], &describe("lost"));
    assert!(refused.starts_with("=> 52"), "{refused}");
    nodes[1].start();
    until("the other node writes", || change(&nodes[1], &describe("on")) == "=> 0\n");
    nodes.iter_mut().for_each(Member::stop);
}

/// A node that gets the lease and can do no more with it does not keep it from the others.
#[test]
fn a_node_that_cannot_take_over_leaves_it_to_others() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = nodes(&address, 1, "");
    nodes[0].start();
    fill(&nodes[0]);
    let rights = "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA larix TO reader; \
                  GRANT SELECT ON ALL TABLES IN SCHEMA larix TO reader; \
                  GRANT INSERT, UPDATE ON larix.lease TO reader";
    engine.sql(&name, rights).expect("a role");
    let mut reader = self::nodes(&address.replace("larix:", "reader:"), 1, "").remove(0);
    reader.start();
    nodes[0].kill();
    until("it has tried", || reader.log().contains("leaves it to others"));
    nodes[0].start();
    until("the other node writes", || change(&nodes[0], &describe("again")) == "=> 0\n");
    assert_eq!(description(&reader).as_deref(), Some("again"));
    nodes[0].stop();
    reader.stop();
}

fn write_at_one_and_read_at_all(address: &str) {
    let mut nodes = nodes(address, 2, "");
    nodes.iter_mut().for_each(Member::start);
    // The first one made the database, and leads.
    fill(&nodes[0]);
    assert_eq!(
        nodes[1].content(SUFFIX),
        nodes[0].content(SUFFIX),
        "what is acknowledged is seen everywhere at once"
    );
    let mut ann = Client::connect(nodes[1].address());
    assert_eq!(ask(&mut ann, &format!("as cn=ann,ou=people,{SUFFIX} wrong")), "=> 49\n");
    assert_eq!(ask(&mut ann, &format!("as cn=ann,ou=people,{SUFFIX} right")), "=> 0\n");
    assert_eq!(ask(&mut ann, &format!("compare cn=ann,ou=people,{SUFFIX} sn:lee")), "=> 6\n");
    let referred = change(&nodes[1], &describe("two"));
    assert!(referred.starts_with("=> 10"), "{referred}");
    assert!(referred.contains(&format!("{}/cn=ann,ou=people,{SUFFIX}", nodes[0].url())), "{referred}");

    // The leader is killed amid everything; what it acknowledged is there, and the other takes over.
    assert_eq!(change(&nodes[0], &describe("three")), "=> 0\n");
    nodes[0].kill();
    until("the other node writes", || change(&nodes[1], &describe("four")) == "=> 0\n");
    nodes[0].start();
    assert_eq!(description(&nodes[0]).as_deref(), Some("four"));
    let referred = change(&nodes[0], &describe("five"));
    assert!(referred.starts_with("=> 10") && referred.contains(&nodes[1].url()), "{referred}");

    // One that is stopped hands over.
    nodes[1].stop();
    until("the first node writes again", || change(&nodes[0], &describe("six")) == "=> 0\n");
    assert_eq!(description(&nodes[0]).as_deref(), Some("six"));
    nodes[0].stop();
}

#[test]
fn an_engine_that_hangs_or_is_gone_holds_nobody_up() {
    let Some(mut engine) = Engine::start() else { return };
    // Its changes need not wait for a busy disk.
    let more =
        "database mdb\nsuffix dc=beside\nrootdn cn=root,dc=beside\nrootpw secret\ndirectory @DATA@\ndbnosync";
    let (_, address) = engine.database();
    let mut caching = nodes(&address, 1, "read-consistency session");
    let mut nodes = nodes(&address, 1, more);
    nodes[0].start();
    fill(&nodes[0]);
    caching[0].start();
    until("it has read", || description(&caching[0]).is_none());
    let mut beside = Client::connect(nodes[0].address());
    assert_eq!(ask(&mut beside, "as cn=root,dc=beside secret"), "=> 0\n");
    assert_eq!(ask(&mut beside, "add dc=beside\n  objectClass: domain\n  dc: beside"), "=> 0\n");
    let unavailable = |answer: String| {
        assert!(answer.starts_with("=> 52") && answer.contains("cannot be reached"), "{answer}");
    };
    let search = format!("search \"{SUFFIX}\" sub (cn=ann) cn");

    engine.hang();
    std::thread::scope(|scope| {
        // More of them than threads wait for the engine.
        let node = &nodes[0];
        let waiting: Vec<_> = (0..24)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::connect(node.address());
                    ask(&mut client, &format!("as {ADMIN} secret"));
                    ask(&mut client, &search)
                })
            })
            .collect();
        let mut answered = 0;
        while waiting.iter().any(|one| !one.is_finished()) {
            assert_eq!(ask(&mut beside, "modify dc=beside\n  replace description: x"), "=> 0\n");
            assert!(ask(&mut beside, "search dc=beside base (objectClass=*) dc").ends_with("=> 0\n"));
            answered += 1;
            std::thread::park_timeout(PAUSE);
        }
        assert!(answered > 10, "others were answered meanwhile");
        for one in waiting {
            let answer = one.join().expect("an answer");
            assert!(answer.starts_with("=> 52") || answer.starts_with("=> 51"), "{answer}");
        }
    });
    std::thread::scope(|scope| {
        let node = &caching[0];
        let waiting: Vec<_> = (0..24)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = Client::connect(node.address());
                    ask(&mut client, &format!("as {ADMIN} secret"));
                    ask(&mut client, &format!("search \"{SUFFIX}\" sub (cn=absent{number}) cn"))
                })
            })
            .collect();
        let mut client = Client::connect(node.address());
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
        let mut answered = 0;
        while waiting.iter().all(|one| !one.is_finished()) {
            let cached =
                ask(&mut client, &format!("search cn=ann,ou=people,{SUFFIX} base (objectClass=*) cn"));
            assert!(cached.contains("cn: ann"), "{cached}");
            answered += 1;
        }
        assert!(answered > 10, "what is cached waits for no thread: {answered} answers");
        for one in waiting {
            let answer = one.join().expect("an answer");
            assert!(answer.starts_with("=> 52") || answer.starts_with("=> 51"), "{answer}");
        }
    });
    unavailable(change(&nodes[0], &describe("in vain")));
    engine.go_on();
    // It may have the lease by now.
    caching[0].stop();
    until("it writes again", || change(&nodes[0], &describe("again")) == "=> 0\n");

    engine.crash();
    until("it has noticed", || change(&nodes[0], &describe("in vain")).starts_with("=> 52"));
    unavailable(ask(&mut nodes[0].client(), &search));
    engine.run();
    until("it writes without a restart", || change(&nodes[0], &describe("once more")) == "=> 0\n");
    assert_eq!(description(&nodes[0]).as_deref(), Some("once more"));
    nodes[0].stop();
}

/// What the program prints with a node's configuration, on both channels, and whether it succeeded.
fn larix(words: &[&str], node: &Member) -> (bool, String) {
    let (tool, rest) = words.split_first().expect("a tool");
    let mut command = Kind::Larix.tool(tool);
    let (front, back) = rest.split_at(usize::from(*tool == "cluster"));
    command.args(front).arg("-f").arg(node.site.configuration()).args(back);
    let output = command.output().expect("larix");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn tools_work_beside_nodes_from_any_machine() {
    let Some(mut engine) = Engine::start() else { return };
    let mut nodes = nodes(&engine.database().1, 2, "");
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    // Somebody who reads the beginning alone, as with `head`, makes no failure of it.
    let mut status = Kind::Larix.tool("cluster");
    let status = status.arg("status").arg("-f").arg(nodes[0].site.configuration());
    let mut child = status.stdout(Stdio::piped()).spawn().expect("larix");
    drop(child.stdout.take());
    assert!(child.wait().expect("its end").success());
    // The tools read a configuration and ask the engine: no node has to run where they do.
    for node in &nodes {
        let (whole, text) = larix(&["cat"], node);
        assert!(whole && text.contains("dn: cn=ann,ou=people,dc=example,dc=com\n"), "{text}");
        assert_eq!(text.matches("\ndn: ").count() + usize::from(text.starts_with("dn: ")), 3, "{text}");
        let (whole, one) = larix(&["cat", "-b", SUFFIX, "-a", "(cn=ann)"], node);
        assert!(whole && one.starts_with("dn: cn=ann,"), "{one}");
    }
    // Those that work on files say where the entries are, however the database is named.
    for words in [
        &["check"][..],
        &["check", "-b", SUFFIX],
        &["check", "-n", "2"],
        &["backup", "--to", "/nowhere/backup"],
    ] {
        let (whole, text) = larix(words, &nodes[0]);
        let expected = "the entries of \"dc=example,dc=com\" are in an engine that servers share";
        assert!(
            !whole && text.contains(expected) && text.contains("larix cluster check"),
            "{words:?}: {text}"
        );
    }
    let (whole, text) = larix(&["cluster", "status", "-b", "dc=none"], &nodes[1]);
    assert!(
        !whole && text.contains("the suffix \"dc=none\": -b names one of \"dc=example,dc=com\""),
        "{text}"
    );
    let (whole, text) = larix(&["cluster", "remove", "ldap://nobody"], &nodes[1]);
    assert!(!whole && text.contains("\"ldap://nobody\" is connected"), "{text}");
    let leader = leader(&nodes);
    let url = nodes[leader].url();
    let (whole, text) = larix(&["cluster", "remove", &url], &nodes[1 - leader]);
    assert!(whole && text.contains(&format!("{url} has lost the lease")), "{text}");
    until("the other node writes", || change(&nodes[1 - leader], &describe("taken over")) == "=> 0\n");
    until("the node that was removed reads", || description(&nodes[leader]).as_deref() == Some("taken over"));
    engine.crash();
    let (whole, text) = larix(&["cat"], &nodes[0]);
    assert!(!whole && text.contains("the engine cannot be reached"), "{text}");
    engine.run();
    nodes.iter_mut().for_each(Member::stop);
}

#[test]
fn nodes_start_while_the_engine_is_away() {
    let Some(mut engine) = Engine::start() else { return };
    let more = "access to * by group=\"cn=staff,dc=example,dc=com\" write by * read\n\
                database mdb\nsuffix dc=beside\nrootdn cn=root,dc=beside\nrootpw secret\ndirectory @DATA@";
    let mut nodes = nodes(&engine.database().1, 2, more);
    engine.crash();
    nodes.iter_mut().for_each(Member::start);
    let mut beside = Client::connect(nodes[0].address());
    assert_eq!(ask(&mut beside, "as cn=root,dc=beside secret"), "=> 0\n");
    assert_eq!(ask(&mut beside, "add dc=beside\n  objectClass: domain\n  dc: beside"), "=> 0\n");
    // The root DN's password is in the configuration.
    assert_eq!(ask(&mut beside, &format!("as {ADMIN} secret")), "=> 0\n");
    for request in [
        format!("search \"{SUFFIX}\" sub (cn=ann) cn"),
        format!("compare {SUFFIX} dc:example"),
        describe("in vain"),
        format!("as cn=ann,ou=people,{SUFFIX} right"),
    ] {
        let answer = ask(&mut beside, &request);
        assert!(answer.starts_with("=> 52") && answer.contains("has not let this server in"), "{answer}");
    }
    until("the log has it", || nodes[0].log().contains("it is tried again"));
    // One that is stopped does not wait for an engine.
    nodes[1].stop();
    nodes[1].start();

    engine.run();
    for request in BASE.split("\n\n") {
        until("a node takes changes", || {
            nodes
                .iter()
                .any(|node| ["=> 0", "=> 68"].iter().any(|code| change(node, request).starts_with(code)))
        });
    }
    for node in &nodes {
        until("it serves without a restart", || {
            node.client().value(&format!("cn=ann,ou=people,{SUFFIX}"), "sn").as_deref() == Some("Lee")
        });
    }
    let staff = format!(
        "add cn=staff,{SUFFIX}\n  objectClass: groupOfNames\n  cn: staff\n  member: cn=ann,ou=people,{SUFFIX}"
    );
    let at = leader(&nodes);
    until("it still leads", || {
        ["=> 0", "=> 68"].iter().any(|code| change(&nodes[at], &staff).starts_with(code))
    });
    // Rules see groups of a database that was opened late.
    until("ann may write", || {
        let mut ann = nodes[at].client();
        ask(&mut ann, &format!("as cn=ann,ou=people,{SUFFIX} right"));
        ask(&mut ann, &describe("her own word")) == "=> 0\n"
    });
    nodes.iter_mut().for_each(Member::stop);
}

#[test]
fn a_process_that_is_frozen_while_it_opens_the_store_holds_nobody_up() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut node = nodes(&address, 1, "").remove(0);
    node.start();
    fill(&node);
    node.stop();
    let is_there = |condition: &str| {
        let text = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND {condition}");
        engine.sql("postgres", &text).as_deref() == Some("1")
    };
    let frozen = std::thread::scope(|scope| {
        scope.spawn(|| engine.sql(&name, "BEGIN; LOCK TABLE larix.store; SELECT pg_sleep(240)"));
        until("the table is locked", || is_there("wait_event = 'PgSleep'"));
        let mut cat = Kind::Larix.tool("cat");
        cat.arg("-f").arg(node.site.configuration()).stdout(Stdio::null()).stderr(Stdio::null());
        let frozen = Running(cat.spawn().expect("larix"));
        until("it waits for the table", || is_there("wait_event_type = 'Lock'"));
        freeze(frozen.id());
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        engine.sql("postgres", end).expect("the table is free");
        frozen
    });
    until("the engine lets others in", || larix(&["cat"], &node).0);
    drop(frozen);
}

#[test]
fn a_store_that_somebody_took_away_is_no_engine_out_of_reach() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut node = nodes(&address, 1, "").remove(0);
    node.start();
    fill(&node);
    engine.sql(&name, "ALTER SCHEMA larix RENAME TO away").expect("renamed");
    let gone = "holds of this database is damaged or gone";
    until("the log says what is missing", || {
        let answer = ask(&mut node.client(), &format!("search \"{SUFFIX}\" sub (sn=absent) cn"));
        assert!(answer.starts_with("=> 80") && answer.contains(gone), "{answer}");
        let log = node.log();
        log.contains("what the engine holds cannot be read: relation ")
            && log.contains("restore it from its backup")
    });
    until("it does not take changes", || {
        let answer = change(&node, &describe("in vain"));
        assert!(!answer.starts_with("=> 0") && !answer.contains("cannot be reached"), "{answer}");
        answer.starts_with("=> 52") && answer.contains(gone)
    });
    engine.sql(&name, "ALTER SCHEMA away RENAME TO larix").expect("renamed");
    until("it goes on without a restart", || change(&node, &describe("restored")) == "=> 0\n");
    node.stop();
}

#[test]
fn a_node_logs_why_reads_have_no_answer() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let role = format!("CREATE ROLE few LOGIN; GRANT CREATE ON DATABASE {name} TO few");
    engine.sql(&name, &role).expect("a role");
    let mut node = nodes(&address.replace("larix:", "few:"), 1, "").remove(0);
    node.start();
    fill(&node);
    // One connection is left, which the thread of the lease keeps.
    engine.sql(&name, "ALTER ROLE few CONNECTION LIMIT 1").expect("fewer connections");
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'few'";
    engine.sql(&name, end).expect("ended");
    let search = format!("search \"{SUFFIX}\" sub (cn=ann) cn");
    until("it is logged", || {
        ask(&mut node.client(), &search);
        node.log().contains("reads had no answer: ") && node.log().contains("too many connections for role")
    });
    assert!(ask(&mut node.client(), &search).starts_with("=> 52"));
    engine.sql(&name, "ALTER ROLE few CONNECTION LIMIT -1").expect("more connections");
    until("it is answered", || ask(&mut node.client(), &search).ends_with("=> 0\n"));
    node.stop();
}

/// What does not pass by itself is found at the start.
#[test]
fn faults_of_the_configuration_are_refusals_at_the_start() {
    let Some(engine) = Engine::start() else { return };
    engine.sql("postgres", "CREATE DATABASE other").expect("a database");
    let refused = |address: &str, expected: &str| {
        let node = &nodes(address, 1, "")[0];
        let started = node.site.start();
        let error = started.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{address}: {error}");
        assert!(!error.contains("never-shown"), "{error}");
    };
    refused(&engine.address("nowhere"), "does not exist");
    let stranger = engine.address("other").replace("larix:", "stranger:");
    refused(&stranger, "role \"stranger\" does not exist");
    let mut node = nodes(&engine.address("other"), 1, "").remove(0);
    node.start();
    node.stop();
    engine.sql("other", "UPDATE larix.store SET format = 7").expect("another format");
    refused(&engine.address("other"), "holds format 7");
}

/// Writers that follow the leader while it is killed again and again: nothing acknowledged is lost, and nothing is there twice.
#[test]
fn nothing_acknowledged_is_lost_when_leaders_die() {
    let Some(engine) = Engine::start() else { return };
    lose_nothing(&engine.database().1, 4, |_| {});
}

/// Adds at two nodes while the one that writes is killed again and again; `trouble` is made with the engine in each round.
fn lose_nothing(address: &str, rounds: usize, mut trouble: impl FnMut(usize)) {
    const WRITERS: usize = 4;
    // Each round waits for the lease of a node that was killed; who asks asks again.
    let mut nodes = nodes_with(address, 2, 1, ("", ""));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let addresses: Vec<_> = nodes.iter().map(Member::address).collect();
    let (stop, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (acknowledged, refused) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        for _ in 0..WRITERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    let request = format!(
                        "add cn=p{number},ou=people,{SUFFIX}\n  objectClass: person\n  cn: p{number}\n  sn: p"
                    );
                    for address in &addresses {
                        let Ok(mut client) = Client::try_connect(*address) else { continue };
                        ask(&mut client, &format!("as {ADMIN} secret"));
                        let answer = ask(&mut client, &request);
                        if answer == "=> 0\n" {
                            acknowledged.lock().expect("whole").insert(number);
                            break;
                        }
                        let nothing_changed = ["=> 10", "=> 51"].iter().any(|code| answer.starts_with(code));
                        if !nothing_changed
                            && !answer.contains("nothing was changed")
                            && !answer.contains("no node of")
                        {
                            // Unknown: it may be there or not.
                            refused.lock().expect("whole").insert(number);
                            break;
                        }
                    }
                }
            });
        }
        let count = || acknowledged.lock().expect("whole").len();
        for round in 0..rounds {
            let reached = count() + 30;
            until("writes go on", || count() >= reached);
            trouble(round);
            let at = leader(&nodes);
            nodes[at].kill();
            until("the other one leads", || change(&nodes[1 - at], &describe("found")) == "=> 0\n");
            nodes[at].start();
        }
    });
    let (acknowledged, refused) =
        (acknowledged.into_inner().expect("whole"), refused.into_inner().expect("whole"));
    for node in &nodes {
        let content = until_some("it is readable", || node.content(SUFFIX));
        let is_present = |number: &usize| content.contains_key(&format!("cn=p{number},ou=people,{SUFFIX}"));
        let lost: Vec<_> = acknowledged.iter().filter(|number| !is_present(number)).collect();
        assert!(lost.is_empty(), "{lost:?} of {}", acknowledged.len());
        let known = |number: &usize| acknowledged.contains(number) || refused.contains(number);
        let more: Vec<_> =
            (0..next.load(Ordering::Acquire)).filter(|number| is_present(number) && !known(number)).collect();
        assert!(more.is_empty(), "{more:?} were said not to be made");
    }
    assert_eq!(nodes[0].content(SUFFIX), nodes[1].content(SUFFIX));
    nodes.iter_mut().for_each(Member::stop);
}
