//! What a node knows when it begins to serve.

use larix_testkit::postgresql::Engine;
use larix_testkit::process::{Server, free_port};
use larix_testkit::{Kind, until, until_some};
use larix_tests::replicas::{Member, ask};

use super::{change, describe, fill, nodes_with};

/// So long a lease, in seconds, that it does not end during the test.
const LEASE: u32 = 300;
/// How often a node is restarted: one that has to find out who writes behind that is slow enough only now and then.
const STARTS: usize = 8;

#[test]
fn a_node_knows_who_writes_before_it_serves() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = nodes_with(&engine.database().1, 2, LEASE, ("", ""));
    nodes[0].start();
    fill(&nodes[0]);
    for _ in 0..STARTS {
        nodes[1].start();
        let referred = change(&nodes[1], &describe("in vain"));
        assert!(referred.starts_with("=> 10") && referred.contains(&nodes[0].url()), "{referred}");
        nodes[1].stop();
    }
    // What it was before leaves a lease behind: nobody is there, and least of all is a client to come back here.
    nodes[0].kill();
    nodes[0].start();
    let refused = ask(&mut nodes[0].client(), &describe("in vain"));
    assert!(!refused.starts_with("=> 10"), "{refused}");
    nodes[0].stop();
}

/// One of the nodes makes the database. The others, which do not ask the engine before each read, see it at once.
#[test]
fn nodes_that_start_together_find_the_database_that_one_of_them_makes() {
    let Some(engine) = Engine::start() else { return };
    // Which one comes first, and whether another one looks just before it, is chance.
    for _ in 0..4 {
        let mut nodes = nodes_with(&engine.database().1, 3, 4, ("", "read-consistency session"));
        std::thread::scope(|scope| {
            for node in &mut nodes {
                scope.spawn(|| node.start());
            }
        });
        for node in &nodes {
            assert!(!node.log().contains("the database is empty"), "{}", node.log());
        }
        nodes.iter_mut().for_each(Member::stop);
    }
}

/// A second directory that was given the store of a first one is refused, and does not take the right to write where both have begun on an empty
/// store.
#[test]
fn a_store_of_another_directory_is_left_alone() {
    const FOREIGN: &str = "the entries in the engine are those of another directory (\"dc=example,dc=com\")";
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let mut own = nodes_with(&address, 1, 2, ("", "")).remove(0);
    let port = free_port();
    let body = format!(
        "database kv\nengine {address}\nnode ldap://127.0.0.1:{port}\nlease 2\nsuffix dc=other\n\
         rootdn cn=admin,dc=other\nrootpw secret\n"
    );
    let mut other = Member::with(Kind::Larix, port, &body).arguments(&["-d", "256"]);
    own.start();
    other.start();
    fill(&own);
    own.kill();
    until("it leaves the store alone", || other.log().contains(FOREIGN));
    own.start();
    until("the directory has it again", || change(&own, &describe("again")) == "=> 0\n");
    other.stop();
    // While the engine does not answer, a server starts.
    let start = || Server::start_at(Kind::Larix, &other.site.configuration(), port, &["-d", "256"]);
    let why = until_some("it does not start", || start().err()).to_string();
    assert!(why.contains(FOREIGN), "{why}");
    own.stop();
}
