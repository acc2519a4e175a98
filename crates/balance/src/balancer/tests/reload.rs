//! Other settings while clients are connected, and figures.

use larix_proto::ControlBuf;

use super::*;
use crate::figures::OPERATIONS;

impl World {
    fn reload(&mut self, conf: &str) -> Vec<u64> {
        let settings = Arc::new(read(conf));
        self.balancer.reload(Reloaded { settings, upstream_tls: None, client_tls: None });
        self.settle()
    }

    /// The addresses of servers with connections of a kind, one for each.
    fn connected(&self, pool: Pool) -> Vec<String> {
        let servers = self.upstreams(pool).into_iter().map(|id| {
            let backend = self.balancer.upstreams[&id].backend;
            self.balancer.backends[backend].settings.url.host.clone()
        });
        let mut servers: Vec<String> = servers.collect();
        servers.sort();
        servers
    }
}

/// Servers by the last part of their addresses.
fn with_servers(servers: &[u32], more: &str) -> String {
    let mut text =
        format!("bindconf bindmethod=simple binddn={BALANCER} credentials=secret\n{more}\ntier roundrobin\n");
    for server in servers {
        text += &format!("backend-server uri=ldap://192.0.2.{server} numconns=2 bindconns=1\n");
    }
    text
}

#[test]
fn servers_come_and_go_and_clients_stay() {
    let mut world = World::new(&with_servers(&[1, 2], ""));
    let client = world.client();
    world.bound(client, "cn=ann");
    let before = world.upstreams(Pool::Shared);
    let mut under_way = Vec::new();
    for id in 1..=4 {
        world.delete(client, id, "dc=x");
        under_way.push(world.one_request());
    }
    // Server 1 goes, 3 comes; 2 keeps its connections.
    world.reload(&with_servers(&[2, 3], ""));
    world.connect_all();
    assert_eq!(world.connected(Pool::Bind), ["192.0.2.2", "192.0.2.3"]);
    let after = world.upstreams(Pool::Shared);
    assert!(before.iter().all(|id| after.contains(id)), "all have something under way");
    // Each answer still comes; behind it the connections of server 1 end.
    for (upstream, request) in &under_way {
        world.answer(*upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    }
    let answers = world.answers(client);
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.ends_with("Delete 0")), "{answers:?}");
    assert_eq!(world.connected(Pool::Shared), ["192.0.2.2", "192.0.2.2", "192.0.2.3", "192.0.2.3"]);
    // The client is still who it was, and never at server 1.
    for id in 5..=12 {
        world.delete(client, id, "dc=x");
        let (upstream, request) = world.one_request();
        assert_eq!(request.identity.as_deref(), Some("dn:cn=ann"));
        let backend = world.balancer.upstreams[&upstream].backend;
        assert_ne!(world.balancer.backends[backend].settings.url.host, "192.0.2.1");
    }
    // The place of a server that is gone is another's.
    world.reload(&with_servers(&[2, 3, 4], ""));
    assert_eq!(world.balancer.backends.len(), 3);
}

#[test]
fn fewer_and_more_connections() {
    let mut world = World::new(&with_servers(&[1], ""));
    let fewer = with_servers(&[1], "").replace("numconns=2", "numconns=1");
    assert_eq!(world.reload(&fewer).len(), 1);
    assert_eq!(world.upstreams(Pool::Shared).len(), 1);
    world.reload(&fewer.replace("bindconns=1", "bindconns=4"));
    world.connect_all();
    assert_eq!((world.upstreams(Pool::Shared).len(), world.upstreams(Pool::Bind).len()), (1, 4));
    // Nothing changed: nothing ends.
    assert_eq!(world.reload(&fewer.replace("bindconns=1", "bindconns=4")), [0; 0]);
    assert_eq!(world.balancer.next_connection(world.now), None);
}

#[test]
fn another_identity_of_the_balancer() {
    let mut world = World::new(&with_servers(&[1], ""));
    let (own, next) = (world.client(), world.client());
    world.bound(own, BALANCER);
    world.bound(next, "cn=next");
    world.delete(own, 1, "dc=x");
    assert_eq!(world.one_request().1.identity, None, "it has the rights of the balancer");
    let before = world.upstreams(Pool::Shared);
    world.reload(&with_servers(&[1], "").replace(BALANCER, "cn=next"));
    while let Some(planned) = world.balancer.next_connection(world.now) {
        let id = world.balancer.opened(planned, world.now).unwrap();
        world.settle();
        for request in world.requests(id) {
            assert_eq!(request.what, "bind cn=next");
            world.answer(id, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
        }
    }
    // Who was the balancer is a client among others now, and the other way about; both over new connections.
    for (client, identity) in [(own, Some(format!("dn:{BALANCER}"))), (next, None)] {
        world.delete(client, 2, "dc=y");
        let (upstream, request) = world.one_request();
        assert_eq!(request.identity, identity);
        assert!(!before.contains(&upstream));
    }
}

#[test]
fn a_client_that_has_to_stay_learns_that_it_cannot() {
    let rule = "restrict_control 1.2.3 backend";
    let mut world = World::new(&with_servers(&[1], rule));
    let client = world.client();
    let control = ControlBuf { oid: "1.2.3".into(), critical: false, value: None };
    world.send(client, |out| client::delete(out, MessageId(1), "dc=x", &[control]));
    let (upstream, request) = world.one_request();
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    world.reload(&with_servers(&[2], rule));
    world.connect_all();
    world.delete(client, 2, "dc=x");
    world.delete(client, 3, "dc=x");
    let answers = world.answers(client);
    assert_eq!(answers[0], "1 Delete 0");
    assert!(answers[1].starts_with("2 Delete 52 the server or connection"), "{answers:?}");
    assert_eq!(world.one_request().1.what, "delete dc=x", "the next one goes anywhere");
}

#[test]
fn a_write_that_ends_at_a_server_that_is_gone_keeps_nobody_there() {
    let coherent = "write_coherence 60";
    let mut world = World::new(&with_servers(&[1], coherent));
    let client = world.client();
    world.delete(client, 1, "dc=x");
    let (upstream, request) = world.one_request();
    world.reload(&with_servers(&[2], coherent));
    world.connect_all();
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(client), ["1 Delete 0"]);
    world.delete(client, 2, "dc=x");
    let (other, request) = world.one_request();
    assert_eq!((other == upstream, request.what.as_str()), (false, "delete dc=x"));
}

#[test]
fn figures_are_by_server() {
    let mut world = World::new(&format!(
        "{}tier bestof\nbackend-server uri=ldap://192.0.2.9 numconns=3 bindconns=2\n",
        conf(1, 1, "")
    ));
    let client = world.client();
    world.bound(client, "cn=ann");
    world.delete(client, 1, "dc=x");
    let (upstream, request) = world.one_request();
    world.now += Duration::from_millis(5);
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::NO_SUCH_OBJECT, "");
    world.search(client, 2, "dc=x");
    let figures = world.balancer.figures();
    let [first, second] = figures.servers.as_slice() else { panic!("{figures:?}") };
    assert_eq!((first.url.as_str(), first.tier), ("ldap://192.0.2.0:389/", 1));
    assert_eq!((second.tier, second.ready, second.wanted), (2, [3, 2], [3, 2]));
    assert_eq!((first.ready, first.under_way), ([1, 1], 1));
    let of = |name: &str| OPERATIONS.iter().position(|known| *known == name).unwrap();
    let started = |name: &str| first.started[of(name)];
    assert_eq!((started("bind"), started("delete"), started("search"), started("add")), (1, 1, 1, 0));
    let deletes = &first.durations[of("delete")];
    assert_eq!((deletes.count(), deletes.nanoseconds), (1, 5_000_000));
    assert_eq!((first.results[0], first.results[32]), (1, 1));
    assert_eq!(figures.unready(), "");
    world.balancer.lost(upstream, &PeerFault::Closed, world.now);
    let figures = world.balancer.figures();
    assert_eq!((figures.servers[0].lost, figures.servers[0].ready), (1, [0, 1]));
    let closed = PeerFault::NAMES.iter().position(|name| *name == "closed").unwrap();
    assert_eq!(figures.servers[0].faults[closed], 1);
    assert_eq!(figures.unready(), "", "there is another server");
    let none = World::unconnected(&conf(1, 1, "")).balancer.figures();
    assert_eq!(
        none.unready(),
        "no server has a connection for operations\nno server has a connection for binds\n"
    );
}
