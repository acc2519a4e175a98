//! The PROXY protocol, at listeners and towards servers.

use std::net::SocketAddr;

use super::*;

const PROXY: &str = "10.0.0.1:4000";

impl World {
    fn proxied(&mut self) -> Option<u64> {
        let address: SocketAddr = PROXY.parse().unwrap();
        let arrival = Arrival { is_tls: false, is_proxied: true, address: Some(address) };
        self.balancer.open_client(arrival, self.now)
    }

    fn receive_of(&mut self, client: u64, bytes: &[u8]) {
        self.balancer.client_received(client, bytes, self.now);
        self.settle();
    }

    fn place(&self, client: u64) -> String {
        self.balancer.clients[&client].name().to_string()
    }
}

fn delete() -> Vec<u8> {
    let mut out = Vec::new();
    client::delete(&mut out, MessageId(7), "dc=x", &[]);
    out
}

#[test]
fn a_header_says_who_the_client_is() {
    let second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\x12\x67\x01\x85";
    let look = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (name, header, place) in [
        ("1", &b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 389\r\n"[..], "client IP=192.0.2.1:4711"),
        ("1, mapped", b"PROXY TCP6 ::ffff:192.0.2.1 ::1 4711 389\r\n", "client IP=192.0.2.1:4711"),
        ("1, unknown", b"PROXY UNKNOWN\r\n", "client IP=10.0.0.1:4000"),
        ("2", second, "client IP=192.0.2.7:4711"),
        ("2, a look", look, "client IP=10.0.0.1:4000"),
    ] {
        let mut world = World::new(&conf(1, 1, ""));
        // With the request behind it, and byte by byte.
        let whole = world.proxied().unwrap();
        world.receive_of(whole, &[header, &delete()].concat());
        assert_eq!(world.one_request().1.what, "delete dc=x", "{name}");
        assert_eq!(world.place(whole), place, "{name}");
        let slow = world.proxied().unwrap();
        for byte in [header, &delete()].concat() {
            world.receive_of(slow, &[byte]);
        }
        assert_eq!(world.one_request().1.what, "delete dc=x", "{name}, byte by byte");
        assert_eq!(world.place(slow), place, "{name}, byte by byte");
        assert_eq!(world.balancer.awaited, 0);
    }
}

#[test]
fn without_a_header_a_client_is_closed() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.proxied().unwrap();
    world.receive_of(client, &delete());
    assert!(world.balancer.client_closes(client));
    assert_eq!(world.answers(client), [""; 0]);
    let line = "refused client IP=10.0.0.1:4000: no PROXY header: it begins like neither version";
    assert_eq!(world.log_lines.lock().unwrap().last().unwrap(), line);
    // It has five seconds, however it trickles.
    let late = world.proxied().unwrap();
    for byte in b"PROXY " {
        world.receive_of(late, &[*byte]);
        world.pass(Duration::from_millis(900));
    }
    assert!(world.balancer.client_closes(late));
    let line = "refused client IP=10.0.0.1:4000: the PROXY header did not come in time";
    assert_eq!(world.log_lines.lock().unwrap().last().unwrap(), line);
    // Where no header is awaited, one is garbage.
    let plain = world.client();
    world.receive_of(plain, b"PROXY UNKNOWN\r\n");
    assert!(world.balancer.client_closes(plain));
}

#[test]
fn few_headers_are_awaited() {
    let mut world = World::new(&conf(1, 1, ""));
    let mut open: Vec<u64> = (0..proxy_header::AWAITED_MAX).map(|_| world.proxied().unwrap()).collect();
    assert_eq!(world.proxied(), None);
    let line = world.log_lines.lock().unwrap().last().unwrap().clone();
    assert!(line.contains("too many connections wait for their PROXY header"), "{line}");
    world.balancer.client_gone(open.pop().unwrap());
    let next = world.proxied().unwrap();
    world.receive_of(next, b"PROXY UNKNOWN\r\n");
    assert!(world.proxied().is_some());
}

#[test]
fn a_server_is_sent_the_header_that_names_no_client() {
    let text = conf(1, 1, "").replace("retry=1000", "retry=1000 proxyprotocol=local");
    let mut world = World::unconnected(&text);
    while let Some(planned) = world.balancer.next_connection(world.now) {
        let id = world.balancer.opened(planned, world.now).unwrap();
        world.settle();
        // The socket takes it in two parts.
        let header = world.balancer.upstream_output(id).to_vec();
        assert_eq!(header, proxy_header::LOCAL_HEADER);
        world.balancer.upstream_sent(id, 5);
        assert_eq!(world.balancer.upstream_output(id), &proxy_header::LOCAL_HEADER[5..]);
        world.balancer.upstream_sent(id, 11);
        let requests = world.requests(id);
        let expected = if planned.pool == Pool::Shared { 1 } else { 0 };
        assert_eq!(requests.len(), expected, "the bind of the balancer: {requests:?}");
        for request in requests {
            world.answer(id, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
        }
    }
    let client = world.client();
    world.delete(client, 1, "dc=x");
    assert_eq!(world.one_request().1.what, "delete dc=x");
}
