//! Connections that are told to close, and what cn=Monitor shows of connections and operations.

use super::*;
use crate::counters::OperationCounts;

#[test]
fn a_client_is_told_and_closes_behind_its_last_answer() {
    let mut world = World::new(&conf(1, 1, ""));
    let [idle, busy] = [world.client(), world.client()];
    world.delete(busy, 1, "dc=x");
    let (upstream, request) = world.one_request();
    let numbers: Vec<u64> =
        world.balancer.all_figures().connections.iter().map(|shown| shown.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert!(!world.balancer.close_client(3));
    for number in numbers {
        assert!(world.balancer.close_client(number));
    }
    world.settle();
    let notice = "0 Extended 52 connection closing";
    assert_eq!(world.answers(idle), [notice]);
    assert!(world.balancer.client_closes(idle) && !world.balancer.close_client(1));
    assert_eq!(world.answers(busy), [notice]);
    assert!(!world.balancer.client_closes(busy), "an answer is awaited");
    assert_eq!(world.balancer.all_figures().connections[1].state, "closing");
    // It is told once, and begins nothing more.
    assert!(world.balancer.close_client(2));
    world.delete(busy, 2, "dc=y");
    assert_eq!(world.answers(busy), ["2 Delete 52 the connection is closing"]);
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(busy), ["1 Delete 0"]);
    assert!(world.balancer.client_closes(busy));
}

#[test]
fn a_server_that_gives_notice_still_answers() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    world.delete(client, 1, "dc=x");
    let (upstream, request) = world.one_request();
    let mut notice = Vec::new();
    encode::notice_of_disconnection(&mut notice, &LdapResult::with(ResultCode::UNAVAILABLE, "closing"));
    world.receive(upstream, &notice);
    // Another is made in its place, and takes what comes next.
    assert!(world.log_lines.lock().unwrap().last().unwrap().contains("notice of disconnection"));
    world.connect_all();
    world.delete(client, 2, "dc=y");
    assert_ne!(world.one_request().0, upstream);
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(client), ["1 Delete 0"]);
    assert!(!world.upstreams(Pool::Shared).contains(&upstream), "it ends behind its last answer");
    // With nothing under way it ends at once.
    let bind = world.upstreams(Pool::Bind)[0];
    world.receive(bind, &notice);
    assert!(!world.upstreams(Pool::Bind).contains(&bind));
}

#[test]
fn operations_are_counted() {
    let mut world = World::unconnected(&conf(1, 2, ""));
    let client = world.client();
    world
        .balancer
        .next_connection(world.now)
        .map(|planned| world.balancer.not_opened(planned, "no", world.now))
        .unwrap();
    world.bind(client, 1, "cn=ann", "x");
    assert!(world.answers(client)[0].starts_with("1 Bind 52"));
    world.pass(Duration::from_secs(2));
    world.connect_all();
    world.bound(client, "cn=ann");
    world.delete(client, 2, "dc=x");
    let (upstream, request) = world.one_request();
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::NO_SUCH_OBJECT, "");
    world.delete(client, 3, "dc=y");
    let (lost, _) = world.one_request();
    world.balancer.lost(lost, &PeerFault::Closed, world.now);
    world.settle();
    world.search(client, 4, "dc=z");
    world.send(client, |out| client::abandon(out, MessageId(9), MessageId(4), &[]));
    let figures = world.balancer.all_figures();
    let [binds, others] = figures.counters.operations;
    assert_eq!(binds, OperationCounts { received: 2, forwarded: 1, rejected: 1, completed: 1, failed: 0 });
    assert_eq!(others, OperationCounts { received: 4, forwarded: 3, rejected: 0, completed: 2, failed: 1 });
    let server = &figures.servers[0];
    let counts = &server.counts;
    assert_eq!((counts.received, counts.completed, counts.failed), (4, 3, 1));
    assert_eq!((server.name.as_str(), figures.tiers.as_slice()), ("server 1", &["tier 1".to_owned()][..]));
    // One of each kind comes first; the number of the try that failed is nobody's.
    let kinds: Vec<(u64, &str)> = server.connections.iter().map(|shown| (shown.number, shown.kind)).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    assert!(kinds.contains(&(3, "bind")) && !kinds.iter().any(|(number, _)| *number == 1), "{kinds:?}");
    let [own] = figures.connections.as_slice() else { panic!("one client") };
    assert_eq!(
        (own.authorization.as_str(), own.kind, own.state, own.pending),
        ("cn=ann", "regular", "ready", 0)
    );
}
