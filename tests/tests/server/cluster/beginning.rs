//! What a node knows when it begins to serve.

use larix_testkit::postgresql::Engine;

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
    let refused = change(&nodes[0], &describe("in vain"));
    assert!(!refused.starts_with("=> 10"), "{refused}");
    nodes[0].stop();
}
