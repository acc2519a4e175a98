//! Servers that lie, fail or hang, and clients that send garbage or do not read.

use larix_proto::{ControlBuf, oid};

use super::*;

#[test]
fn a_server_that_lies_loses_its_connection_alone() {
    let wrong_type = |id: u32| {
        let mut out = Vec::new();
        encode::result(&mut out, MessageId(id), ResponseOp::Modify, &LdapResult::success(), &[]);
        out
    };
    let done = |id: u32| {
        let mut out = Vec::new();
        encode::result(&mut out, MessageId(id), ResponseOp::Delete, &LdapResult::success(), &[]);
        out
    };
    for (name, lie) in [
        ("unknown-id", done(4711)),
        ("wrong-type", vec![]),
        ("framing", b"HTTP/1.1 200 OK\r\n".to_vec()),
        ("framing", b"\x30\x84\x7f\xff\xff\xff".to_vec()),
        ("garbage", b"\x30\x05\x02\x01\x02\x65\x07".to_vec()),
        ("garbage", b"\x30\x03\x02\x01\x02".to_vec()),
    ] {
        let mut world = World::new(&conf(2, 1, ""));
        let (one, two) = (world.client(), world.client());
        world.delete(one, 1, "dc=one");
        let (liar, request) = world.one_request();
        world.delete(two, 1, "dc=two");
        let (honest, other) = world.one_request();
        assert_ne!(liar, honest);
        let lie = if name == "wrong-type" { wrong_type(request.id) } else { lie };
        world.balancer.upstream_received(liar, &lie, world.now);
        assert!(world.settle().contains(&liar), "{name}");
        let answers = world.answers(one);
        let unknown = "whether the change was made is unknown: read the entry before you try again";
        assert_eq!(
            answers,
            [format!("1 Delete 52 the connection to the server was lost; {unknown}")],
            "{name}"
        );
        world.answer(honest, other.id, ResponseOp::Delete, ResultCode::SUCCESS, "two");
        assert_eq!(world.answers(two), ["1 Delete 0 two"]);
        let number = PeerFault::NAMES.iter().position(|known| *known == name).unwrap();
        assert_eq!(world.balancer.counters().faults[number], 1, "{name}");
        assert!(world.log_lines.lock().unwrap().iter().any(|line| line.contains(name)), "{name}");
        // It is not tried again at once.
        assert_eq!(world.balancer.next_connection(world.now), None);
        world.pass(Duration::from_secs(1));
        assert!(world.balancer.next_connection(world.now).is_some());
    }
}

/// The answer says so of what may have changed something, and of nothing else.
#[test]
fn a_lost_question_is_no_change() {
    for (name, is_change) in [(oid::WHO_AM_I, false), (oid::PASSWORD_MODIFY, true), ("1.2.3", true)] {
        let mut world = World::new(&conf(1, 1, ""));
        let client = world.client();
        world.send(client, |out| client::extended(out, MessageId(1), name, None, &[]));
        let (upstream, _) = world.one_request();
        world.balancer.upstream_received(upstream, b"garbage", world.now);
        let answers = world.answers(client);
        let [answer] = answers.as_slice() else { panic!("{name}: {answers:?}") };
        assert!(answer.starts_with("1 Extended 52 the connection to the server was lost"), "{answer}");
        assert_eq!(answer.contains("whether the change was made is unknown"), is_change, "{name}");
    }
}

#[test]
fn answers_before_a_lie_are_true() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    world.search(client, 1, "dc=x");
    let (upstream, request) = world.one_request();
    let mut bytes = Vec::new();
    encode::EntryEncoder::begin(&mut bytes, MessageId(request.id), "cn=a").finish(&[]);
    bytes.extend_from_slice(b"garbage");
    world.balancer.upstream_received(upstream, &bytes, world.now);
    assert_eq!(
        world.answers(client),
        ["1 entry cn=a", "1 SearchDone 52 the connection to the server was lost"]
    );
}

#[test]
fn garbage_of_a_client_reaches_no_server() {
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], "0 Extended 2"),
        // A search whose filter has no end.
        (b"\x30\x0a\x02\x01\x01\x63\x05\x04\x00\x0a\x01\x00", "0 Extended 2"),
        // Message id 0.
        (b"\x30\x05\x02\x01\x00\x4a\x00", "0 Extended 2"),
        // Scope 9.
        (b"\x30\x1a\x02\x01\x01\x63\x15\x04\x00\x0a\x01\x09\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00\x87\x00\x30\x00", "1 SearchDone 2"),
    ] {
        let mut world = World::new(&conf(1, 1, ""));
        let client = world.client();
        world.balancer.client_received(client, bytes, world.now);
        world.settle();
        let answers = world.answers(client);
        assert!(answers.len() == 1 && answers[0].starts_with(expected), "{answers:?} {expected}");
        for pool in Pool::ALL {
            assert_eq!(world.requests(world.upstreams(pool)[0]), []);
        }
        assert_eq!(world.balancer.client_closes(client), expected.starts_with('0'));
    }
}

#[test]
fn an_answer_that_is_too_large_costs_its_own_request_alone() {
    let mut world = World::new(&conf(1, 1, "sockbuf_max_incoming_upstream 1000"));
    let (one, two) = (world.client(), world.client());
    world.search(one, 1, "dc=one");
    let (upstream, large) = world.one_request();
    world.delete(two, 1, "dc=two");
    let (_, other) = world.one_request();
    let mut bytes = Vec::new();
    let name = format!("cn={}", "x".repeat(5000));
    // What follows for it is thrown away, too.
    for _ in 0..2 {
        encode::EntryEncoder::begin(&mut bytes, MessageId(large.id), &name).finish(&[]);
    }
    encode::result(
        &mut bytes,
        MessageId(other.id),
        ResponseOp::Delete,
        &LdapResult::with(ResultCode::SUCCESS, "two"),
        &[],
    );
    bytes.chunks(3).for_each(|piece| world.receive(upstream, piece));
    let answers = world.answers(one);
    assert!(answers.len() == 1 && answers[0].starts_with("1 SearchDone 11 "), "{answers:?}");
    assert_eq!(world.answers(two), ["1 Delete 0 two"]);
    assert_eq!(world.requests(upstream)[0].what, format!("abandon {}", large.id));
}

/// A slapd takes less of the anonymous, which a balancer without an identity is.
#[test]
fn a_request_that_is_too_large_for_a_server_takes_no_other_with_it() {
    let anonymous = "disable proxyauthz\ntier roundrobin\n\
                     backend-server uri=ldap://192.0.2.0:389 numconns=1 bindconns=1\n";
    let more = format!("sockbuf_max_incoming_client 300000\n{anonymous}");
    for (settings, is_sent) in [(anonymous, false), (more.as_str(), true), (conf(1, 1, "").as_str(), true)] {
        let mut world = World::new(settings);
        let client = world.client();
        let value = vec![b'a'; larix_proto::limits::PDU_ANONYMOUS - 50];
        world.send(client, |out| client::compare(out, MessageId(1), "dc=x", "sn", &value, &[]));
        let upstream = world.upstreams(Pool::Shared)[0];
        assert_eq!(world.requests(upstream).len(), usize::from(is_sent), "{settings}");
        let answers = world.answers(client);
        assert_eq!(answers.first().is_some_and(|answer| answer.starts_with("1 Compare 11 ")), !is_sent);
    }
}

#[test]
fn an_id_that_is_under_way_is_not_used_again() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    world.delete(client, 1, "dc=x");
    world.delete(client, 1, "dc=y");
    assert!(world.answers(client)[0].starts_with("0 Extended 2 message id 1"));
    assert!(world.balancer.client_closes(client));
}

#[test]
fn circles_of_balancers_end() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    let hops =
        |count: u8| ControlBuf { oid: oid::PROXY_HOPS.into(), critical: false, value: Some(vec![count]) };
    world.send(client, |out| client::delete(out, MessageId(1), "dc=x", &[hops(7)]));
    assert_eq!(world.one_request().1.what, "delete dc=x");
    world.send(client, |out| client::delete(out, MessageId(2), "dc=x", &[hops(8)]));
    assert!(world.answers(client)[0].starts_with("2 Delete 54 "));
}

#[test]
fn servers_that_cannot_be_reached() {
    let mut world = World::unconnected(&conf(1, 1, ""));
    let client = world.client();
    // At the start a request waits for the first connection.
    let planned = world.balancer.next_connection(world.now).unwrap();
    world.delete(client, 1, "dc=x");
    assert_eq!(world.answers(client), [""; 0]);
    world.balancer.not_opened(planned, "connection refused", world.now);
    world.settle();
    let other = world.balancer.next_connection(world.now);
    if let Some(other) = other {
        world.balancer.not_opened(other, "connection refused", world.now);
    }
    world.settle();
    assert_eq!(world.answers(client), ["1 Delete 52 no server can be reached"]);
    // The pauses grow up to `retry`, and one connection tries for all.
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let begun = world.now;
        let planned = loop {
            world.now += Duration::from_millis(10);
            if let Some(planned) = world.balancer.next_connection(world.now) {
                break planned;
            }
        };
        assert_eq!(world.balancer.next_connection(world.now), None);
        pauses.push(world.now - begun);
        world.balancer.not_opened(planned, "connection refused", world.now);
    }
    assert!(pauses[0] < Duration::from_millis(400) && pauses[5] <= Duration::from_millis(1010), "{pauses:?}");
    assert!(pauses[5] > Duration::from_millis(700), "{pauses:?}");
    world.pass(Duration::from_secs(2));
    world.connect_all();
    world.delete(client, 2, "dc=x");
    assert_eq!(world.one_request().1.what, "delete dc=x");
}

#[test]
fn a_lost_connection_is_made_again_at_once_and_requests_wait_for_it() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    let upstream = world.upstreams(Pool::Shared)[0];
    world.pass(Duration::from_secs(5));
    world.balancer.lost(upstream, &PeerFault::Closed, world.now);
    world.settle();
    let planned = world.balancer.next_connection(world.now).unwrap();
    world.delete(client, 1, "dc=x");
    assert_eq!(world.answers(client), [""; 0]);
    let id = world.balancer.opened(planned, world.now).unwrap();
    let bind = world.requests(id).remove(0);
    world.answer(id, bind.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
    assert_eq!(world.one_request().1.what, "delete dc=x");
}

#[test]
fn a_server_that_hangs_costs_a_deadline() {
    let mut world = World::new(&conf(1, 1, "iotimeout 5000"));
    let client = world.client();
    world.search(client, 1, "dc=x");
    let (upstream, request) = world.one_request();
    world.pass(Duration::from_secs(20));
    // What answers may take its time again.
    world.entry(upstream, request.id, "cn=a");
    assert_eq!(world.answers(client), ["1 entry cn=a"]);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.answers(client), [""; 0]);
    world.pass(Duration::from_secs(11));
    assert_eq!(world.answers(client), ["1 SearchDone 11 the server did not answer in time"]);
    assert_eq!(world.requests(upstream)[0].what, format!("abandon {}", request.id));
    // A bind that hangs: nobody knows whose its connection is.
    world.bind(client, 2, "cn=x", "x");
    let (bind, _) = world.one_request();
    world.pass(Duration::from_secs(31));
    assert!(world.answers(client)[0].starts_with("2 Bind 52 "));
    assert!(!world.upstreams(Pool::Bind).contains(&bind));
}

/// Without `timeout` a client waits as long as it likes for its bind, but nobody waits for one that has left.
#[test]
fn a_bind_of_a_client_that_has_left_ends_without_a_timeout_too() {
    for (feature, pool) in [("", Pool::Bind), ("feature vc", Pool::Shared)] {
        let mut world = World::new(&conf(1, 1, feature).replace(" timeout=30", ""));
        let client = world.client();
        world.pass(Duration::from_secs(1));
        world.bind(client, 1, "cn=a,dc=x", "a");
        let (hanging, _) = world.one_request();
        assert_eq!(world.upstreams(pool), [hanging]);
        assert_eq!(world.balancer.unanswered_binds(world.now), [0; 0]);
        world.pass(Duration::from_secs(3600));
        assert_eq!(world.balancer.unanswered_binds(world.now), [client]);
        assert_eq!(world.answers(client), [""; 0]);
        assert_eq!(world.upstreams(pool), [hanging]);
        // What the event loop does about a closed socket.
        world.balancer.client_gone(client);
        world.pass(Duration::from_millis(250));
        world.connect_all();
        let other = world.client();
        world.bind(other, 1, "cn=b,dc=x", "b");
        let (upstream, _) = world.one_request();
        assert_ne!(upstream, hanging, "{feature}");
    }
}

/// The server is to forget an exchange, and answers nothing at all any more.
#[test]
fn an_exchange_that_is_not_forgotten_ends_without_a_timeout_too() {
    let mut world = World::new(&conf(1, 1, "").replace(" timeout=30", ""));
    let client = world.client();
    world.send(client, |out| client::sasl_bind(out, MessageId(1), "", "SCRAM-SHA-256", Some(b"x"), &[]));
    let (hanging, request) = world.one_request();
    world.answer(hanging, request.id, ResponseOp::Bind, ResultCode::SASL_BIND_IN_PROGRESS, "");
    world.balancer.client_gone(client);
    world.settle();
    assert_eq!(world.one_request().1.what, "bind ");
    world.pass(Duration::from_secs(11));
    assert!(!world.upstreams(Pool::Bind).contains(&hanging));
}

#[test]
fn a_silent_connection_is_replaced() {
    let mut world = World::new(&conf(1, 1, ""));
    let [dead] = world.upstreams(Pool::Shared)[..] else { panic!("one connection") };
    let client = world.client();
    world.pass(Duration::from_secs(1));
    world.search(client, 1, "dc=x");
    assert_eq!(world.requests(dead).len(), 1);
    world.pass(Duration::from_secs(31));
    assert_eq!(world.answers(client), ["1 SearchDone 11 the server did not answer in time"]);
    world.connect_all();
    world.search(client, 2, "dc=x");
    let (upstream, request) = world.one_request();
    assert_ne!(upstream, dead);
    world.answer(upstream, request.id, ResponseOp::SearchDone, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(client), ["2 SearchDone 0"]);
}

#[test]
fn a_client_that_does_not_read_pauses_its_connection_or_loses_its_search() {
    let dn = format!("cn={}", "a".repeat(30_000));
    let mut world = World::new(&conf(1, 1, ""));
    let (slow, other) = (world.client(), world.client());
    world.search(slow, 1, "dc=x");
    let (upstream, request) = world.one_request();
    let mut sent = 0;
    while world.balancer.upstream_reads(upstream) {
        world.entry(upstream, request.id, &dn);
        sent += 1;
        assert!(sent < 20, "nothing pauses");
    }
    // It reads again, and so does the balancer.
    assert_eq!(world.answers(slow).len(), sent);
    assert!(world.balancer.upstream_reads(upstream));
    for _ in 0..sent {
        world.entry(upstream, request.id, &dn);
    }
    assert!(!world.balancer.upstream_reads(upstream));
    // Another client needs the connection: it is read, and the slow client's search ends when too much waits.
    world.delete(other, 1, "dc=y");
    assert!(world.balancer.upstream_reads(upstream));
    let seen_other = world.requests(upstream).remove(0);
    let mut more = 0;
    while world.balancer.clients[&slow].pending.len() == 1 {
        world.entry(upstream, request.id, &dn);
        more += 1;
        assert!(more < 300, "nothing ends it");
    }
    assert_eq!(world.balancer.counters().slow_clients, 1);
    assert_eq!(world.requests(upstream)[0].what, format!("abandon {}", request.id));
    world.answer(upstream, seen_other.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(other), ["1 Delete 0"]);
    assert!(world.answers(slow).last().unwrap().starts_with("1 SearchDone 51 "));
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    world.delete(client, 1, "dc=x");
    let (upstream, request) = world.one_request();
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    world.pass(Duration::from_secs(1));
    assert!(!world.balancer.client_closes(client));
    world.pass(Duration::from_secs(11));
    assert!(world.balancer.client_closes(client));
    assert_eq!(world.balancer.clients[&client].wire.waiting(), 0);
}

#[test]
fn many_abandons_replace_the_connection() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    let upstream = world.upstreams(Pool::Shared)[0];
    for id in 1..=2 * u32::try_from(larix_client::GIVEN_UP_MAX).unwrap() {
        world.search(client, 2 * id, "dc=x");
        world.send(client, |out| client::abandon(out, MessageId(2 * id + 1), MessageId(2 * id), &[]));
        for upstream in world.upstreams(Pool::Shared) {
            world.requests(upstream);
        }
        world.connect_all();
    }
    assert_ne!(world.upstreams(Pool::Shared), [upstream]);
    assert_eq!(world.upstreams(Pool::Shared).len(), 1);
    assert_eq!(world.answers(client), [""; 0]);
}

#[test]
fn limits_of_operations() {
    let mut world = World::new(
        "bindconf bindmethod=simple\nclient_max_pending 2\ntier roundrobin\n\
         backend-server uri=ldap://192.0.2.1 numconns=2 bindconns=1 conn-max-pending=2 max-pending-ops=3",
    );
    let (one, two) = (world.client(), world.client());
    (1..=3).for_each(|id| world.delete(one, id, "dc=one"));
    assert!(world.answers(one)[0].starts_with("3 Delete 51 "));
    (1..=2).for_each(|id| world.delete(two, id, "dc=two"));
    let count = |world: &mut World| -> usize {
        world
            .upstreams(Pool::Shared)
            .into_iter()
            .map(|upstream| world.balancer.upstreams[&upstream].pending.len())
            .sum()
    };
    assert_eq!(count(&mut world), 3);
    assert!(!world.balancer.client_reads(two), "the next request waits");
    let upstream = world.upstreams(Pool::Shared)[0];
    let request = world.requests(upstream).remove(0);
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(count(&mut world), 3);
    assert!(world.balancer.client_reads(two));
}

/// A client at its limit may cancel all that it has under way, and no more than that.
#[test]
fn cancels_are_counted() {
    let mut world = World::new(&conf(1, 1, "client_max_pending 2"));
    let one = world.client();
    let upstream = world.upstreams(Pool::Shared)[0];
    world.delete(one, 1, "dc=a");
    world.delete(one, 2, "dc=b");
    for id in 3..=6 {
        let value = [0x30, 3, 2, 1, 1];
        world.send(one, |out| client::extended(out, MessageId(id), oid::CANCEL, Some(&value), &[]));
    }
    assert_eq!(world.requests(upstream).len(), 4);
    let answers = world.answers(one);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers[0].starts_with("5 Extended 51 ") && answers[1].starts_with("6 Extended 51 "));
}

#[test]
fn stopping_waits_for_answers() {
    let mut world = World::new(&conf(1, 1, ""));
    let (busy, idle) = (world.client(), world.client());
    world.delete(busy, 1, "dc=x");
    let (upstream, request) = world.one_request();
    world.balancer.stop();
    world.settle();
    assert_eq!(world.answers(idle), ["0 Extended 52 the balancer stops"]);
    world.delete(busy, 2, "dc=x");
    assert_eq!(world.answers(busy), ["2 Delete 52 the balancer stops"]);
    assert_eq!(world.balancer.close_idle(), 2);
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    world.balancer.close_idle();
    assert_eq!(world.answers(busy), ["1 Delete 0", "0 Extended 52 the balancer stops"]);
}

/// Who has to stay at a server that is lost waits until it is there again. Everybody else goes elsewhere meanwhile.
#[test]
fn a_client_that_waits_for_its_own_server_holds_nobody_up() {
    let mut world = World::new(&conf(2, 1, "write_coherence -1"));
    let (kept, other) = (world.client(), world.client());
    world.delete(kept, 1, "dc=x");
    let (upstream, request) = world.one_request();
    let backend = world.balancer.upstreams[&upstream].backend;
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    world.now += Duration::from_secs(60);
    world.balancer.lost(upstream, &PeerFault::Closed, world.now);
    world.settle();
    world.search(kept, 2, "dc=kept");
    for id in 1..=3 {
        world.search(other, id, "dc=other");
        let (elsewhere, request) = world.one_request();
        assert_eq!(request.what, "search dc=other");
        assert_ne!(world.balancer.upstreams[&elsewhere].backend, backend);
    }
    assert_eq!(world.balancer.figures().waiting, [1, 0]);
    world.connect_all();
    let (back, request) = world.one_request();
    assert_eq!((world.balancer.upstreams[&back].backend, request.what.as_str()), (backend, "search dc=kept"));
    assert_eq!(world.balancer.figures().waiting, [0, 0]);
    assert!(world.balancer.pinned.is_empty());
    // One whose server does not come back in time is answered, too.
    world.balancer.lost(back, &PeerFault::Closed, world.now + Duration::from_secs(60));
    world.settle();
    world.search(kept, 3, "dc=kept");
    world.pass(Duration::from_secs(11));
    let answers = world.answers(kept);
    assert!(answers.iter().any(|answer| answer.starts_with("3 SearchDone 51 ")), "{answers:?}");
    assert!(world.balancer.pinned.is_empty());
}
