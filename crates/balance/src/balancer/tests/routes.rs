//! Where requests go and who gets the answers.

use larix_proto::control::{ControlValue as _, PagedResults};
use larix_proto::{ControlBuf, oid};

use super::*;

#[test]
fn same_ids_of_two_clients_are_kept_apart() {
    let mut world = World::new(&conf(1, 1, ""));
    let (one, two) = (world.client(), world.client());
    let upstream = world.upstreams(Pool::Shared)[0];
    world.delete(one, 5, "dc=one");
    world.delete(two, 5, "dc=two");
    let requests = world.requests(upstream);
    assert_eq!(
        requests.iter().map(|request| request.what.as_str()).collect::<Vec<_>>(),
        ["delete dc=one", "delete dc=two"]
    );
    assert_ne!(requests[0].id, requests[1].id);
    world.answer(upstream, requests[1].id, ResponseOp::Delete, ResultCode::SUCCESS, "two");
    assert_eq!(world.answers(one), [""; 0]);
    assert_eq!(world.answers(two), ["5 Delete 0 two"]);
    world.answer(upstream, requests[0].id, ResponseOp::Delete, ResultCode::NO_SUCH_OBJECT, "one");
    assert_eq!(world.answers(one), ["5 Delete 32 one"]);
    assert_eq!(world.balancer.counters().forwarded, 2);
}

#[test]
fn operations_go_with_the_identity_of_their_client() {
    let cn = "cn=Ann,dc=example,dc=com";
    // The name, the password, the server's answer, and the identity of the next operation.
    for (name, password, code, expected) in [
        (cn, "x", ResultCode::SUCCESS, Some(format!("dn:{cn}"))),
        (cn, "x", ResultCode::INVALID_CREDENTIALS, Some(String::new())),
        // Success of a bind without a password is anonymous (RFC 4513 section 5.1.2).
        (cn, "", ResultCode::SUCCESS, Some(String::new())),
        ("", "", ResultCode::SUCCESS, Some(String::new())),
        (BALANCER, "x", ResultCode::SUCCESS, None),
        (BALANCER, "", ResultCode::SUCCESS, Some(String::new())),
        (BALANCER, "x", ResultCode::INVALID_CREDENTIALS, Some(String::new())),
    ] {
        let mut world = World::new(&conf(1, 1, ""));
        let client = world.client();
        world.bound(client, "cn=Before,dc=example,dc=com");
        world.bind(client, 1, name, password);
        let (upstream, request) = world.one_request();
        assert_eq!((request.what.as_str(), &request.identity), (format!("bind {name}").as_str(), &None));
        assert_eq!(world.upstreams(Pool::Bind), [upstream]);
        world.answer(upstream, request.id, ResponseOp::Bind, code, "");
        assert_eq!(world.answers(client), [format!("1 Bind {}", code.0)]);
        world.delete(client, 2, "dc=x");
        let (_, request) = world.one_request();
        assert_eq!(request.identity, expected, "{name} {password} {code}");
    }
}

#[test]
fn a_bind_that_cannot_be_read_leaves_no_identity() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    world.bound(client, "cn=Ann,dc=example,dc=com");
    // Its name is no UTF-8.
    let bad = b"\x30\x10\x02\x01\x05\x60\x0b\x02\x01\x03\x04\x03c=\xff\x80\x01x";
    world.send(client, |out| out.extend_from_slice(bad));
    let answers = world.answers(client);
    assert!(answers[0].starts_with("5 Bind 2 "), "{answers:?}");
    world.delete(client, 6, "dc=x");
    assert_eq!(world.one_request().1.identity, Some(String::new()));
}

#[test]
fn nobody_is_the_balancer_without_its_name() {
    // The balancer binds with SASL: an anonymous client has no name, as its `binddn` has none.
    let mut world = World::unconnected(
        "bindconf bindmethod=sasl saslmech=PLAIN authcid=balancer credentials=x\ntier roundrobin\nbackend-server uri=ldap://192.0.2.1",
    );
    let client = world.client();
    assert!(!world.balancer.clients[&client].is_privileged);
    // Anonymous on both sides is the same identity.
    let mut world = World::unconnected(
        "bindconf bindmethod=simple\ntier roundrobin\nbackend-server uri=ldap://192.0.2.1",
    );
    let client = world.client();
    assert!(world.balancer.clients[&client].is_privileged);
    world = World::new(&conf(1, 1, "disable proxyauthz"));
    let client = world.client();
    world.bound(client, "cn=Ann,dc=x");
    world.delete(client, 2, "dc=x");
    assert_eq!(world.one_request().1.identity, None);
}

#[test]
fn a_name_that_is_no_dn_is_asked_for() {
    for (answer, code, expected) in [
        ("dn:cn=ann,dc=x", ResultCode::SUCCESS, Ok("dn:cn=ann,dc=x")),
        ("", ResultCode::SUCCESS, Ok("")),
        ("dn:cn=ann,dc=x", ResultCode::PROTOCOL_ERROR, Err(80)),
    ] {
        let mut world = World::new(&conf(1, 1, ""));
        let client = world.client();
        world.bind(client, 1, "ann@example.com", "x");
        let (upstream, request) = world.one_request();
        world.answer(upstream, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
        // The client waits for it.
        assert_eq!(world.answers(client), [""; 0]);
        let (upstream, request) = world.one_request();
        assert_eq!(request.what, format!("extended {}", oid::WHO_AM_I));
        let mut bytes = Vec::new();
        let result = LdapResult::new(code);
        encode::extended_result(
            &mut bytes,
            MessageId(request.id),
            &result,
            None,
            Some(answer.as_bytes()),
            &[],
        );
        world.receive(upstream, &bytes);
        let answers = world.answers(client);
        world.delete(client, 2, "dc=x");
        let identity = world.one_request().1.identity.unwrap();
        match expected {
            Ok(expected) => assert_eq!((answers, identity.as_str()), (vec!["1 Bind 0".to_owned()], expected)),
            Err(code) => {
                assert!(answers[0].starts_with(&format!("1 Bind {code} ")), "{answers:?}");
                assert_eq!(identity, "");
            }
        }
    }
}

#[test]
fn a_client_brings_no_identity_of_its_own() {
    for oid in [oid::PROXIED_AUTHORIZATION, oid::PROXIED_AUTHORIZATION_V1] {
        let mut world = World::new(&conf(1, 1, ""));
        let client = world.client();
        let control = ControlBuf { oid: oid.into(), critical: true, value: Some(b"dn:cn=root".to_vec()) };
        world.send(client, |out| client::delete(out, MessageId(1), "dc=x", &[control]));
        assert!(world.answers(client)[0].starts_with("1 Delete 123 "));
        assert_eq!(world.requests(world.upstreams(Pool::Shared)[0]), []);
    }
}

#[test]
fn binds_wait_for_their_turn_and_what_is_behind_them_waits_too() {
    let mut world = World::new(&conf(1, 1, ""));
    let (one, two) = (world.client(), world.client());
    world.bind(one, 1, "cn=one", "x");
    world.bind(two, 1, "cn=two", "x");
    world.delete(two, 2, "dc=two");
    let (upstream, request) = world.one_request();
    assert_eq!(request.what, "bind cn=one");
    world.answer(upstream, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(one), ["1 Bind 0"]);
    let (upstream, request) = world.one_request();
    assert_eq!(request.what, "bind cn=two");
    world.answer(upstream, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
    let (_, request) = world.one_request();
    assert_eq!((request.what.as_str(), request.identity.as_deref()), ("delete dc=two", Some("dn:cn=two")));
    assert_eq!(world.answers(two), ["1 Bind 0"]);
    // One that waits for too long is told so, and the next of its requests is carried out.
    world.bind(one, 3, "cn=one", "x");
    assert_eq!(world.one_request().1.what, "bind cn=one");
    world.bind(two, 3, "cn=two", "x");
    world.pass(Duration::from_secs(11));
    let answers = world.answers(two);
    assert!(answers[0].starts_with("3 Bind 51 "), "{answers:?}");
    assert_eq!(world.balancer.counters().busy, 1);
}

#[test]
fn sasl_steps_stay_on_one_connection() {
    let mut world = World::new(&conf(1, 2, ""));
    let (client, other) = (world.client(), world.client());
    let step = |world: &mut World, client: u64, id: u32| {
        world.send(client, |out| {
            client::sasl_bind(out, MessageId(id), "", "SCRAM-SHA-256", Some(b"x"), &[]);
        });
    };
    step(&mut world, client, 1);
    let (first, request) = world.one_request();
    world.answer(first, request.id, ResponseOp::Bind, ResultCode::SASL_BIND_IN_PROGRESS, "");
    assert_eq!(world.answers(client), ["1 Bind 14"]);
    // Another bind goes elsewhere in between.
    world.bind(other, 1, "cn=other", "x");
    let (second, request) = world.one_request();
    assert_ne!(first, second);
    world.answer(second, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
    step(&mut world, client, 2);
    let (third, _) = world.one_request();
    assert_eq!(first, third);
    for mechanism in ["GSSAPI", "SCRAM-SHA-256-PLUS", "DIGEST-MD5", "EXTERNAL"] {
        let client = world.client();
        world.send(client, |out| client::sasl_bind(out, MessageId(9), "", mechanism, None, &[]));
        let answers = world.answers(client);
        assert!(answers[0].starts_with("9 Bind 7 ") || answers[0].starts_with("9 Bind 48 "), "{answers:?}");
    }
}

/// A client with one step of an exchange under way: itself, the connection, and the step as the server sees it.
fn begin_exchange(world: &mut World) -> (u64, u64, ReceivedRequest) {
    let client = world.client();
    world.send(client, |out| {
        client::sasl_bind(out, MessageId(1), "", "SCRAM-SHA-256", Some(b"x"), &[]);
    });
    let (upstream, request) = world.one_request();
    (client, upstream, request)
}

#[test]
fn the_server_forgets_an_exchange_before_anybody_else_binds_there() {
    for way in ["leaves", "leaves early", "binds otherwise", "rests"] {
        let mut world = World::new(&conf(1, 1, ""));
        let (client, upstream, request) = begin_exchange(&mut world);
        let other = world.client();
        if way == "leaves early" {
            world.balancer.client_gone(client);
            world.settle();
        }
        world.answer(upstream, request.id, ResponseOp::Bind, ResultCode::SASL_BIND_IN_PROGRESS, "");
        if way == "leaves" {
            world.balancer.client_gone(client);
            world.settle();
        }
        if way == "binds otherwise" {
            world.send(client, |out| client::sasl_bind(out, MessageId(2), "", "EXTERNAL", None, &[]));
        }
        world.bind(other, 1, "cn=other", "x");
        if way == "rests" {
            world.pass(Duration::from_millis(1100));
        }
        let (same, aborts) = world.one_request();
        assert_eq!((same, aborts.what.as_str()), (upstream, "bind "), "{way}");
        // A server that lets nobody bind anonymously forgets it, too.
        world.answer(upstream, aborts.id, ResponseOp::Bind, ResultCode::INAPPROPRIATE_AUTHENTICATION, "");
        let (same, bind) = world.one_request();
        assert_eq!((same, bind.what.as_str()), (upstream, "bind cn=other"), "{way}");
        world.answer(upstream, bind.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
        assert_eq!(world.answers(other), ["1 Bind 0"], "{way}");
    }
}

#[test]
fn a_connection_whose_exchange_cannot_be_aborted_is_replaced_at_once() {
    let mut world = World::new(&conf(1, 1, ""));
    for _ in 0..3 {
        let (client, upstream, request) = begin_exchange(&mut world);
        world.answer(upstream, request.id, ResponseOp::Bind, ResultCode::SASL_BIND_IN_PROGRESS, "");
        world.balancer.client_gone(client);
        world.settle();
        let (_, aborts) = world.one_request();
        world.answer(upstream, aborts.id, ResponseOp::Bind, ResultCode::BUSY, "");
        assert!(!world.upstreams(Pool::Bind).contains(&upstream));
        // That is no fault of the server's: no pause.
        world.connect_all();
        let other = world.client();
        world.bound(other, "cn=other");
    }
}

#[test]
fn abandon_and_cancel_name_the_servers_id() {
    let mut world = World::new(&conf(1, 1, ""));
    let (one, two) = (world.client(), world.client());
    let upstream = world.upstreams(Pool::Shared)[0];
    world.search(one, 7, "dc=one");
    world.search(two, 7, "dc=two");
    let requests = world.requests(upstream);
    world.entry(upstream, requests[0].id, "cn=a");
    world.send(one, |out| client::abandon(out, MessageId(8), MessageId(7), &[]));
    assert_eq!(world.requests(upstream)[0].what, format!("abandon {}", requests[0].id));
    // What still comes is for nobody.
    world.entry(upstream, requests[0].id, "cn=b");
    world.answer(upstream, requests[0].id, ResponseOp::SearchDone, ResultCode::SUCCESS, "");
    world.entry(upstream, requests[1].id, "cn=c");
    assert_eq!(world.answers(one), ["7 entry cn=a"]);
    assert_eq!(world.answers(two), ["7 entry cn=c"]);
    // One client does not abandon or cancel what another has.
    world.send(one, |out| client::abandon(out, MessageId(9), MessageId(7), &[]));
    let cancel = |id: u32, of: u8| {
        move |out: &mut Vec<u8>| {
            client::extended(out, MessageId(id), oid::CANCEL, Some(&[0x30, 3, 2, 1, of]), &[]);
        }
    };
    world.send(one, cancel(10, 7));
    assert_eq!(world.answers(one), ["10 Extended 119"]);
    assert_eq!(world.requests(upstream), []);
    world.send(two, cancel(10, 7));
    let sent = world.requests(upstream);
    assert_eq!(sent[0].what, format!("extended {}", oid::CANCEL));
    assert_eq!(sent[0].identity, None, "no server takes it with one");
    world.answer(upstream, requests[1].id, ResponseOp::SearchDone, ResultCode::CANCELED, "");
    world.answer(upstream, sent[0].id, ResponseOp::Extended, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(two), ["7 SearchDone 118", "10 Extended 0"]);
}

/// A control that is not heeded, and has to be, refuses the request (RFC 4511 section 4.1.11).
#[test]
fn what_the_balancer_does_itself_has_no_critical_controls() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    let upstream = world.upstreams(Pool::Shared)[0];
    world.search(client, 1, "dc=x");
    assert_eq!(world.requests(upstream).len(), 1);
    let cancel: &[u8] = &[0x30, 3, 2, 1, 1];
    for (id, name, value) in [(2, oid::CANCEL, Some(cancel)), (3, oid::START_TLS, None)] {
        let control = ControlBuf { oid: "1.2.3".into(), critical: true, value: None };
        world.send(client, |out| client::extended(out, MessageId(id), name, value, &[control]));
        assert_eq!(world.answers(client), [format!("{id} Extended 12 critical extension is unavailable")]);
    }
    assert_eq!(world.requests(upstream), []);
}

#[test]
fn a_client_that_leaves_abandons_its_operations() {
    let mut world = World::new(&conf(1, 1, ""));
    let client = world.client();
    let upstream = world.upstreams(Pool::Shared)[0];
    world.search(client, 1, "dc=x");
    let requests = world.requests(upstream);
    world.bind(client, 2, "cn=x", "x");
    // A bind ends what was under way.
    assert_eq!(world.requests(upstream)[0].what, format!("abandon {}", requests[0].id));
    let (bind, request) = world.one_request();
    world.balancer.client_gone(client);
    world.settle();
    world.answer(bind, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
    // The connection serves others.
    assert_eq!(world.upstreams(Pool::Bind), [bind]);
    let other = world.client();
    world.bound(other, "cn=other");
}

#[test]
fn servers_take_turns_and_tiers_follow_one_another() {
    let text =
        conf(2, 1, "") + "tier roundrobin\nbackend-server uri=ldap://192.0.2.9 numconns=1 bindconns=1\n";
    let mut world = World::new(&text);
    let client = world.client();
    let shared = world.upstreams(Pool::Shared);
    let mut used = Vec::new();
    for id in 1..=4 {
        world.delete(client, id, "dc=x");
        used.push(world.one_request().0);
    }
    assert_eq!(used[0], used[2]);
    assert_eq!(used[1], used[3]);
    assert_ne!(used[0], used[1]);
    assert!(!used.contains(&shared[2]));
    for upstream in [shared[0], shared[1]] {
        world.balancer.lost(upstream, &PeerFault::Closed, world.now);
    }
    let ended = world.answers(client);
    assert_eq!(ended.len(), 4);
    assert!(ended.iter().all(|answer| answer.contains(" Delete 52 ")), "{ended:?}");
    world.delete(client, 5, "dc=x");
    assert_eq!(world.one_request().0, shared[2]);
}

#[test]
fn weights_count() {
    let text = "bindconf bindmethod=simple\ntier weighted\n\
        backend-server uri=ldap://192.0.2.1 numconns=1 bindconns=1 weight=9\n\
        backend-server uri=ldap://192.0.2.2 numconns=1 bindconns=1 weight=1\n";
    let mut world = World::new(text);
    let client = world.client();
    let shared = world.upstreams(Pool::Shared);
    let mut first = 0;
    for id in 1..=1000 {
        world.delete(client, id, "dc=x");
        let (upstream, request) = world.one_request();
        first += u32::from(upstream == shared[0]);
        world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    }
    assert!((820..=960).contains(&first), "{first}");
}

#[test]
fn the_faster_of_two_is_taken() {
    let text = "bindconf bindmethod=simple\ntier bestof\n\
        backend-server uri=ldap://192.0.2.1 numconns=1 bindconns=1\n\
        backend-server uri=ldap://192.0.2.2 numconns=1 bindconns=1\n";
    let mut world = World::new(text);
    let client = world.client();
    let shared = world.upstreams(Pool::Shared);
    let mut slow = 0;
    for id in 1..=100 {
        world.delete(client, id, "dc=x");
        let (upstream, request) = world.one_request();
        slow += u32::from(upstream == shared[0]);
        world.now += if upstream == shared[0] { Duration::from_millis(50) } else { Duration::from_millis(5) };
        world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    }
    assert!((1..5).contains(&slow), "{slow}");
}

#[test]
fn writes_and_rules_hold_a_client_at_a_server() {
    let paged = |id: u32| {
        move |out: &mut Vec<u8>| {
            let control =
                ControlBuf { oid: oid::PAGED_RESULTS.into(), critical: true, value: Some(b"0".to_vec()) };
            client::delete(out, MessageId(id), "dc=x", &[control]);
        }
    };
    let places = |world: &mut World, client: u64, from: u32| -> std::collections::HashSet<usize> {
        let mut found = std::collections::HashSet::new();
        for id in from..from + 6 {
            world.search(client, id, "dc=x");
            let (upstream, request) = world.one_request();
            found.insert(world.balancer.upstreams[&upstream].backend);
            world.answer(upstream, request.id, ResponseOp::SearchDone, ResultCode::SUCCESS, "");
        }
        world.answers(client);
        found
    };
    let mut world = World::new(&conf(3, 2, "write_coherence 5"));
    let client = world.client();
    assert_eq!(places(&mut world, client, 1).len(), 3);
    world.delete(client, 50, "dc=x");
    let (upstream, request) = world.one_request();
    let backend = world.balancer.upstreams[&upstream].backend;
    world.pass(Duration::from_secs(20));
    world.answer(upstream, request.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(places(&mut world, client, 60), [backend].into());
    world.pass(Duration::from_secs(6));
    assert_eq!(places(&mut world, client, 70).len(), 3);
    // Pages of a search come from one connection.
    world.send(client, paged(80));
    let (first, _) = world.one_request();
    for id in 81..90 {
        world.search(client, id, "dc=x");
        assert_eq!(world.one_request().0, first);
    }
    // A bind begins anew.
    world.bound(client, "cn=x");
    assert_eq!(places(&mut world, client, 100).len(), 3);
    let rules = "restrict_control 1.2.840.113556.1.4.319 reject\nrestrict_exop 1.1 reject";
    let mut world = World::new(&conf(1, 1, rules));
    let client = world.client();
    world.send(client, paged(1));
    world.send(client, |out| client::extended(out, MessageId(2), "1.2.3", None, &[]));
    let answers = world.answers(client);
    assert!(
        answers[0].starts_with("1 Delete 53 ") && answers[1].starts_with("2 Extended 53 "),
        "{answers:?}"
    );
}

/// A search that has its server remember something by connection; the connection that it goes to. It is answered with this control.
fn remembered(
    world: &mut World,
    client: u64,
    id: u32,
    asked: ControlBuf,
    answered: Option<ControlBuf>,
) -> u64 {
    let filter = larix_proto::FilterBuf::parse("(objectClass=*)").unwrap();
    let search = client::Search::new("dc=x", larix_proto::Scope::Subtree, filter.as_filter());
    world.send(client, |out| client::search(out, MessageId(id), &search, &[asked]));
    let (upstream, request) = world.one_request();
    let (mut bytes, controls) = (Vec::new(), answered.into_iter().collect::<Vec<_>>());
    let op = ResponseOp::SearchDone;
    encode::result(&mut bytes, MessageId(request.id), op, &LdapResult::success(), &controls);
    world.receive(upstream, &bytes);
    assert_eq!(world.answers(client).len(), 1);
    upstream
}

fn view() -> ControlBuf {
    ControlBuf { oid: oid::VLV_REQUEST.into(), critical: true, value: Some(b"0".to_vec()) }
}

fn page(cookie: &[u8]) -> ControlBuf {
    PagedResults { size: 1, cookie }.to_control(true)
}

/// A slapd remembers one page for a connection, and five sorted answers, which it keeps of views.
#[test]
fn clients_that_a_server_remembers_have_connections_to_themselves() {
    let mut world = World::new(&conf(1, 2, ""));
    let clients = [(); 3].map(|()| world.client());
    let mut found = Vec::new();
    for client in clients {
        let first = remembered(&mut world, client, 1, view(), None);
        assert!(!found.contains(&first), "{found:?}: another client has {first}");
        found.push(first);
        // The next one has a connection that is made meanwhile; nobody waits for it.
        world.connect_all();
        for id in 2..5 {
            assert_eq!(remembered(&mut world, client, id, view(), None), first);
        }
    }
    let shared = |world: &World| world.upstreams(Pool::Shared);
    assert_eq!(shared(&world).len(), 4, "one is for the others");
    // What a client leaves behind goes with the connection: it disconnects, binds, or is disconnected.
    world.balancer.client_gone(clients[0]);
    assert!(!shared(&world).contains(&found[0]));
    world.bind(clients[1], 9, "cn=x", "secret");
    assert!(!shared(&world).contains(&found[1]));
    assert!(shared(&world).contains(&found[2]));
    world.connect_all();
    assert_eq!(shared(&world).len(), 2);
    assert_eq!(world.balancer.contexts, 1);
    world.balancer.client_gone(clients[2]);
    assert_eq!(world.balancer.contexts, 0);
}

#[test]
fn a_client_is_free_behind_the_last_page() {
    let mut world = World::new(&conf(3, 1, ""));
    let client = world.client();
    let others = |world: &mut World, from: u32| -> std::collections::HashSet<u64> {
        let search = |id| {
            world.search(client, id, "dc=x");
            let (upstream, request) = world.one_request();
            world.answer(upstream, request.id, ResponseOp::SearchDone, ResultCode::SUCCESS, "");
            assert_eq!(world.answers(client).len(), 1);
            upstream
        };
        (from..from + 6).map(search).collect()
    };
    // Two paged searches in turn.
    let first = remembered(&mut world, client, 1, page(b""), Some(page(b"one")));
    assert_eq!(others(&mut world, 10), [first].into());
    assert_eq!(remembered(&mut world, client, 2, page(b""), Some(page(b"two"))), first);
    assert_eq!(remembered(&mut world, client, 3, page(b"one"), Some(page(b""))), first);
    assert_eq!(others(&mut world, 20), [first].into());
    assert_eq!(remembered(&mut world, client, 4, page(b"two"), Some(page(b""))), first);
    assert_eq!(others(&mut world, 30).len(), 3);
    // Nothing is left there.
    assert!(world.upstreams(Pool::Shared).contains(&first));
    // A search that fails has no further page, nor has one whose pages fit into one.
    for answered in [None, Some(page(b""))] {
        remembered(&mut world, client, 5, page(b""), answered);
        assert_eq!(others(&mut world, 40).len(), 3);
    }
    assert_eq!(world.balancer.contexts, 0);
}
