//! A client that is alone on its event loop and waits for each answer: the thread of that loop carries out its changes, and nobody else waits
//! for them.

use larix_proto::{FilterBuf, MessageId, Scope, client};
use larix_testkit::postgresql::Engine;
use larix_tests::raw::{Raw, bind, replace, search};
use larix_tests::replicas::{ADMIN, Member, SUFFIX};

use super::{PAUSE, description, fill, nodes_with, until};

/// The longest lease: nobody looks at it again during the test.
const LEASE: u32 = 300;
const CHANGES: u32 = 200;
/// Behind answers that their client does not read.
const BEHIND_ANSWERS: u32 = 50;
/// So many answers of so many bytes: more than the kernel takes, and no more than the server keeps for a client.
const UNREAD: (u32, usize) = (3, 100_000);

/// A node with two event loops that leads, and has the first entries.
fn node(engine: &Engine) -> Member {
    node_with(engine, "")
}

/// `global` stands before the databases.
fn node_with(engine: &Engine, global: &str) -> Member {
    node_at(&engine.database().1, global)
}

/// On the database with this address.
fn node_at(address: &str, global: &str) -> Member {
    let nodes = nodes_with(address, 1, LEASE, (global, ""));
    let mut node = nodes.into_iter().next().expect("a node").arguments(&["-d", "256", "--workers", "2"]);
    node.start();
    fill(&node);
    node
}

fn connect(node: &Member) -> Raw {
    let mut client = Raw::connect(node.address()).expect("a connection");
    assert_eq!(client.ask(&bind(1, ADMIN, "secret")).map(|answer| answer.code), Some(0));
    client
}

fn describe(number: u32) -> Vec<u8> {
    replace(number + 2, &format!("cn=ann,ou=people,{SUFFIX}"), "description", &number.to_string())
}

/// How often the writer's thread of a node has waited for something.
fn waits_of_writer(node: &Member) -> u64 {
    let process = node.process_id().expect("it runs");
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    let mut waits = Vec::new();
    for task in tasks.flatten() {
        // A thread may end meanwhile.
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "writer" {
            let status = read("status");
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            waits.push(count.and_then(|count| count.trim().parse::<u64>().ok()).expect("a number"));
        }
    }
    assert_eq!(waits.len(), 1, "one database, one writer");
    waits.iter().sum()
}

#[test]
fn changes_of_a_lone_client_go_through_no_other_thread() {
    let Some(engine) = Engine::start() else { return };
    let mut node = node(&engine);
    let mut lone = connect(&node);
    let before = waits_of_writer(&node);
    for number in 0..CHANGES {
        assert_eq!(lone.ask(&describe(number)).map(|answer| answer.code), Some(0));
    }
    // It would wait twice for each: for the change, and for the engine. What it does beside changes it looks for four times a second.
    let waited = waits_of_writer(&node) - before;
    assert!(waited < u64::from(CHANGES), "the writer's thread has waited {waited} times");
    assert_eq!(description(&node), Some((CHANGES - 1).to_string()));
    node.stop();
}

/// What it sends behind a change is answered without its commit.
#[test]
fn changes_of_a_client_that_waits_for_no_answer_go_to_the_writer() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut node = node_at(&address, "");
    let mut hurried = connect(&node);
    // Otherwise the client's kernel waits for an answer before it sends more.
    hurried.socket.set_nodelay(true).expect("a socket");
    assert_eq!(hurried.ask(&describe(0)).map(|answer| answer.code), Some(0));
    let counts = |text: &str| engine.sql(&name, text).is_some_and(|count| count != "0");
    let answers = std::thread::scope(|scope| {
        // The engine reads, and does not write.
        let lock = "BEGIN; LOCK TABLE larix.rows IN SHARE MODE; SELECT pg_sleep(3600)";
        let lock = scope.spawn(|| engine.sql(&name, lock));
        until("the lock", || {
            counts(
                "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND granted AND relation IS NOT NULL",
            )
        });
        assert!(hurried.send(&describe(1)));
        until("the loop is left for the commit", || {
            counts(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'relation'",
            )
        });
        assert!(hurried.send(&search(4, "", Scope::Base, "(objectClass=*)")));
        let unlock = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)%' AND \
                      pid <> pg_backend_pid()";
        engine.sql("postgres", unlock).expect("unlock");
        assert_eq!(lock.join().expect("the lock ends"), None);
        [(); 2].map(|()| hurried.answer())
    });
    assert!(answers.iter().all(Option::is_some), "{answers:?}");
    until("it writes", || hurried.ask(&describe(3)).map(|answer| answer.code) == Some(0));
    let before = waits_of_writer(&node);
    for number in 0..CHANGES {
        assert_eq!(hurried.ask(&describe(number)).map(|answer| answer.code), Some(0));
    }
    let waited = waits_of_writer(&node) - before;
    assert!(waited > u64::from(CHANGES), "the writer's thread has waited {waited} times");
    node.stop();
}

/// The rest of the answers goes out although the engine makes the client wait for the one to its change.
#[test]
fn changes_of_a_client_that_has_not_taken_its_answers_go_to_the_writer() {
    let Some(engine) = Engine::start() else { return };
    let mut node = node_with(&engine, "tcp-buffer write=16384\n");
    let (ann, people) = (format!("cn=ann,ou=people,{SUFFIX}"), format!("ou=people,{SUFFIX}"));
    let mut slow = connect(&node);
    let long = replace(2, &people, "description", &"x".repeat(UNREAD.1));
    assert_eq!(slow.ask(&long).map(|answer| answer.code), Some(0));
    // On the other loop.
    let mut watcher = node.client();
    let filter = FilterBuf::parse("(objectClass=*)").expect("a filter");
    let search = client::Search {
        attributes: &["description"],
        ..client::Search::new(&people, Scope::Base, filter.as_filter())
    };
    let mut searches = Vec::new();
    for number in 0..UNREAD.0 {
        client::search(&mut searches, MessageId(number + 3), &search, &[]);
    }
    assert!(slow.send(&searches));
    let before = waits_of_writer(&node);
    for number in 0..BEHIND_ANSWERS {
        assert!(slow.send(&describe(number + 10)));
        until("it is made", || watcher.value(&ann, "description") == Some((number + 10).to_string()));
    }
    let waited = waits_of_writer(&node) - before;
    assert!(waited > u64::from(BEHIND_ANSWERS), "the writer's thread has waited {waited} times");
    for _ in 0..UNREAD.0 + BEHIND_ANSWERS {
        assert_eq!(slow.answer().map(|answer| answer.code), Some(0));
    }
    node.stop();
}

#[test]
fn nobody_waits_with_a_lone_client_for_an_engine_that_hangs() {
    let Some(engine) = Engine::start() else { return };
    let mut node = node(&engine);
    // One on each loop: then the next goes to the first, and one more to that of the second.
    let _first = connect(&node);
    let mut lone = connect(&node);
    assert_eq!(lone.ask(&describe(1)).map(|answer| answer.code), Some(0));
    engine.hang();
    assert!(lone.send(&describe(2)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lone.answer().map(|answer| answer.code));
        let (mut others, mut is_logged) = (Vec::new(), false);
        while !waiting.is_finished() {
            // A loop that was left just now still gets connections.
            std::thread::park_timeout(10 * PAUSE);
            let mut client = Raw::connect(node.address()).expect("a connection");
            let root = client.ask(&search(1, "", Scope::Base, "(objectClass=*)"));
            assert_eq!(root.map(|answer| answer.code), Some(0));
            others.push(client);
            let log = node.log();
            is_logged |= !waiting.is_finished() && log.contains(" op=2 MOD dn=");
        }
        assert!(is_logged, "the log does not have what waits");
        assert!(others.len() > 10, "{} others were answered meanwhile", others.len());
        assert_ne!(waiting.join().expect("an answer"), None);
    });
    engine.go_on();
    until("it writes again", || lone.ask(&describe(3)).map(|answer| answer.code) == Some(0));
    node.stop();
}
