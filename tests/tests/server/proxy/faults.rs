//! Targets that are gone, hang, lie, come back or lead in circles.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use larix_proto::ber::{Tag, write};
use larix_proto::control::{ControlValue as _, PersistentSearch, SessionTracking, SyncMode, SyncRequest};
use larix_proto::encode::{self, EntryEncoder};
use larix_proto::extended::{ExtendedValue as _, VerifyCredentials};
use larix_proto::{
    Authentication, Controls, FilterBuf, Frame, LdapResult, Message, MessageId, Request, ResponseOp,
    ResultCode, Scope, client, frame, limits, oid,
};
use larix_testkit::{Kind, Server, Site, accepted, until_some};
use larix_tests::client::Client;
use larix_tests::http;
use larix_tests::relay::{Passage, Relay};
use larix_tests::running::Running;

use super::{SUFFIX, proxy, proxy_with, run, target};

const ANN: &str = "search dc=example,dc=com sub (uid=ann) sn";

/// How long what another thread or process brings about may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks until the answer has this in it; a target that comes back is found within some seconds.
fn until(client: &mut Client, request: &str, wanted: &str) -> String {
    until_some(wanted, || Some(run(client, request)).filter(|answer| answer.contains(wanted)))
}

/// The log has a thread of its own.
fn until_logged(server: &Server, wanted: &str) {
    larix_testkit::until(wanted, || server.log().contains(wanted));
}

#[test]
fn a_target_that_is_gone_and_comes_back() {
    let remote = target(Kind::Larix);
    let relay = Relay::start();
    let front = proxy(relay.address, "network-timeout 5");
    let mut client = Client::connect(front.server.address);
    // Nobody is there.
    let answer = run(&mut client, ANN);
    assert!(answer.contains("=> 52"), "{answer}");
    relay.lead_to(remote.server.address);
    until(&mut client, ANN, "Archer");
    for _ in 0..3 {
        relay.set(Passage::Cut);
        for request in
            [ANN, "compare uid=ann,ou=people,dc=example,dc=com sn:archer", "delete uid=ann,dc=example,dc=com"]
        {
            let answer = run(&mut client, request);
            assert!(answer.contains("=> 52"), "{answer}");
        }
        relay.set(Passage::Open);
        until(&mut client, ANN, "Archer");
    }
}

#[test]
fn the_next_uri_is_taken() {
    let (first, second) = (target(Kind::Larix), target(Kind::Larix));
    let relay = Relay::start();
    relay.lead_to(first.server.address);
    let front = proxy_with(&format!("ldap://{} ldap://{}", relay.address, second.server.address), "", "");
    let mut client = Client::connect(front.server.address);
    until(&mut client, ANN, "Archer");
    relay.set(Passage::Cut);
    let answer = run(&mut client, ANN);
    assert!(answer.contains("Archer"), "a search is asked of the next: {answer}");
    first.server.kill();
    assert!(run(&mut client, ANN).contains("Archer"));
}

#[test]
fn a_target_that_hangs_costs_its_callers_a_deadline() {
    let remote = target(Kind::Larix);
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let beside = "database mdb\nsuffix o=local\nrootdn cn=root,o=local\nrootpw secret\ndirectory @DATA@\n";
    let front = proxy_with(&format!("ldap://{}", relay.address), "timeout 2\nnetwork-timeout 2", beside);
    let mut client = Client::connect(front.server.address);
    until(&mut client, ANN, "Archer");
    relay.set(Passage::Silent);
    let address = front.server.address;
    let waiting: Vec<_> = [
        ANN,
        "compare uid=ann,ou=people,dc=example,dc=com sn:archer",
        "delete uid=ann,dc=example,dc=com",
        "as uid=ann,ou=people,dc=example,dc=com annpw",
    ]
    .into_iter()
    .map(|request| thread::spawn(move || run(&mut Client::connect(address), request)))
    .collect();
    // Nobody else waits.
    let mut other = Client::connect(address);
    for _ in 0..100 {
        assert!(run(&mut other, "search o=local base (objectClass=*)").contains("=> 32"));
    }
    for answer in waiting {
        let answer = answer.join().unwrap();
        assert!(answer.contains("=> 11") || answer.contains("=> 52"), "{answer}");
    }
    relay.set(Passage::Open);
    until(&mut client, ANN, "Archer");
}

/// More binds than there are connections for: those that wait for one learn at once that the target is gone, too.
#[test]
fn binds_that_wait_for_a_connection_learn_that_the_target_is_gone() {
    const CLIENTS: usize = 200;
    let remote = target(Kind::Larix);
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let front = proxy(relay.address, "");
    relay.set(Passage::Silent);
    let address = front.server.address;
    let bind = || run(&mut Client::connect(address), "as uid=ann,ou=people,dc=example,dc=com annpw");
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(bind)).collect();
        let begun = || front.server.log().matches(" BIND dn=\"uid=ann").count();
        larix_testkit::until("all binds have begun", || begun() == CLIENTS);
        relay.set(Passage::Cut);
        for answer in waiting {
            let answer = answer.join().unwrap();
            assert!(answer.contains("=> 52"), "{answer}");
        }
    });
}

#[test]
fn what_is_abandoned_is_abandoned_at_the_target() {
    let relay = Relay::recording();
    // A target that never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    relay.lead_to(listener.local_addr().unwrap());
    let front = proxy(relay.address, "");
    let mut connection = TcpStream::connect(front.server.address).unwrap();
    let filter = FilterBuf::parse("(uid=ann)").unwrap();
    let mut request = Vec::new();
    let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client::search(&mut request, MessageId(1), &search, &[]);
    connection.write_all(&request).unwrap();
    let mut target = accepted(&listener);
    target.set_read_timeout(Some(PATIENCE)).unwrap();
    answer_bind(&mut target);
    let search_bytes = next(&mut target);
    request.clear();
    client::abandon(&mut request, MessageId(2), MessageId(1), &[]);
    connection.write_all(&request).unwrap();
    let abandon = next(&mut target);
    let message = Message::decode(&abandon).unwrap();
    let search = Message::decode(&search_bytes).unwrap();
    assert_eq!(message.request, Request::Abandon(search.id));
    // A client that takes its leave abandons what it has asked.
    request.clear();
    let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client::search(&mut request, MessageId(3), &search, &[]);
    connection.write_all(&request).unwrap();
    let id = Message::decode(&next(&mut target)).unwrap().id;
    request.clear();
    client::unbind(&mut request, MessageId(4));
    connection.write_all(&request).unwrap();
    let abandon = next(&mut target);
    assert_eq!(Message::decode(&abandon).unwrap().request, Request::Abandon(id));
}

/// Elsewhere the search would have no end, and the other targets would not be asked.
#[test]
fn searches_for_changes_are_one_targets() {
    let mode = SyncMode::RefreshAndPersist;
    let controls = [
        SyncRequest { mode, cookie: None, reload_hint: false }.to_control(false),
        PersistentSearch { change_types: 15, changes_only: true, return_ecs: true }.to_control(false),
    ];
    let filter = FilterBuf::parse("(uid=ann)").unwrap();
    for (kind, below, goes_on) in [("ldap", "", true), ("meta", "/dc=example,dc=com", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let body = format!("database {kind}\nsuffix {SUFFIX}\nuri \"ldap://{address}{below}\"\n");
        let front = Running::start(Kind::Larix, &body, "");
        let mut connection = TcpStream::connect(front.server.address).unwrap();
        let mut target = None;
        for (id, control) in (1..).zip(&controls) {
            let mut request = Vec::new();
            let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
            client::search(&mut request, MessageId(id), &search, std::slice::from_ref(control));
            connection.write_all(&request).unwrap();
            let target = target.get_or_insert_with(|| {
                let mut target = accepted(&listener);
                target.set_read_timeout(Some(PATIENCE)).unwrap();
                answer_bind(&mut target);
                target
            });
            let search = next(target);
            let message = Message::decode(&search).unwrap();
            let has_gone_on = message.controls.iter().any(|sent| sent.oid == control.oid);
            assert_eq!(has_gone_on, goes_on, "{kind}: {}", control.oid);
            target.write_all(&done(message.id)).unwrap();
            next(&mut connection);
        }
    }
}

/// A proxy adds its own session behind those that came with the request (draft-wahl-ldap-session section 2.2).
#[test]
fn sessions_of_clients_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = proxy(listener.local_addr().unwrap(), "session-tracking-request yes");
    let mut connection = TcpStream::connect(front.server.address).unwrap();
    let filter = FilterBuf::parse("(uid=ann)").unwrap();
    let session = |identifier: &str| {
        SessionTracking { source_ip: "", source_name: "", format: "1.2.3", identifier }.to_control(false)
    };
    let mut request = Vec::new();
    let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client::search(&mut request, MessageId(1), &search, &[session("first"), session("second")]);
    connection.write_all(&request).unwrap();
    let mut target = accepted(&listener);
    target.set_read_timeout(Some(PATIENCE)).unwrap();
    answer_bind(&mut target);
    let search = next(&mut target);
    let controls = Message::decode(&search).unwrap().controls;
    let sessions = controls.iter().filter(|control| control.oid == oid::SESSION_TRACKING);
    let identifiers: Vec<String> =
        sessions.map(|sent| SessionTracking::decode(sent.value).unwrap().identifier.to_owned()).collect();
    assert_eq!(identifiers, ["first", "second", ""]);
}

/// The target may have made it before its connection ended, and the answer says so.
#[test]
fn the_outcome_of_a_change_without_an_answer_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = proxy(listener.local_addr().unwrap(), "");
    let target = thread::spawn(move || {
        let mut target = accepted(&listener);
        target.set_read_timeout(Some(PATIENCE)).unwrap();
        answer_bind(&mut target);
        let request = next(&mut target);
        matches!(Message::decode(&request).unwrap().request, Request::Delete(_))
    });
    let answer = run(&mut Client::connect(front.server.address), "delete uid=ann,dc=example,dc=com");
    assert!(target.join().unwrap(), "it has come");
    assert!(
        answer.contains("=> 52") && answer.contains("whether the change was made is unknown"),
        "{answer}"
    );
}

/// The same where its database goes while the target has it.
#[test]
fn the_outcome_of_a_change_whose_database_goes_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("ldap://{}", listener.local_addr().unwrap());
    let front = proxy_with(&uri, "", "database config\nrootpw secret\n");
    let address = front.server.address;
    thread::scope(|scope| {
        let change = "delete uid=ann,dc=example,dc=com";
        let answer = scope.spawn(move || run(&mut Client::connect(address), change));
        let mut target = accepted(&listener);
        target.set_read_timeout(Some(PATIENCE)).unwrap();
        answer_bind(&mut target);
        next(&mut target);
        let mut config = Client::connect(address);
        run(&mut config, "as cn=config secret");
        let deleted = run(&mut config, "delete olcDatabase={1}ldap,cn=config");
        assert!(deleted.starts_with("=> 0"), "{deleted}");
        let answer = answer.join().unwrap();
        assert!(
            answer.contains("=> 52") && answer.contains("whether the change was made is unknown"),
            "{answer}"
        );
    });
}

#[test]
fn the_outcome_of_a_change_that_takes_too_long_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = proxy(listener.local_addr().unwrap(), "timeout delete=1");
    let target = thread::spawn(move || {
        let mut target = accepted(&listener);
        target.set_read_timeout(Some(PATIENCE)).unwrap();
        answer_bind(&mut target);
        let request = next(&mut target);
        (matches!(Message::decode(&request).unwrap().request, Request::Delete(_)), target)
    });
    let answer = run(&mut Client::connect(front.server.address), "delete uid=ann,dc=example,dc=com");
    // Its connection ends no sooner than this.
    let (has_come, _target) = target.join().unwrap();
    assert!(has_come);
    assert!(answer.contains("=> 11") && answer.contains("whether it took effect is unknown"), "{answer}");
}

/// A connection of the anonymous begins with a bind.
fn answer_bind(target: &mut TcpStream) {
    let bind = next(target);
    let message = Message::decode(&bind).unwrap();
    assert!(matches!(&message.request, Request::Bind(bind) if bind.name.is_empty()), "{message:?}");
    target.write_all(&bound(message.id)).unwrap();
}

fn bound(id: MessageId) -> Vec<u8> {
    let mut out = Vec::new();
    encode::bind_result(&mut out, id, &LdapResult::success(), None, &[]);
    out
}

/// The next message on a connection.
fn next(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    loop {
        if let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 20) {
            assert_eq!(len, bytes.len());
            return bytes;
        }
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
}

/// Answers what it is asked for the first time with a lie, and later with the truth.
fn liar(lie: fn(MessageId) -> Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let searches = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, searches) = (stream.unwrap(), Arc::clone(&searches));
            thread::spawn(move || {
                let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    bytes.extend_from_slice(&chunk[..count]);
                    while let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 20) {
                        let pdu: Vec<u8> = bytes.drain(..len).collect();
                        let Ok(message) = Message::decode(&pdu) else { return };
                        if matches!(message.request, Request::Bind(_)) {
                            stream.write_all(&bound(message.id)).unwrap();
                        }
                        if !matches!(message.request, Request::Search(_)) {
                            continue;
                        }
                        let answer = match searches.fetch_add(1, Ordering::SeqCst) {
                            0 => lie(message.id),
                            _ => [entry(message.id, "uid=ann,dc=example,dc=com"), done(message.id)].concat(),
                        };
                        if stream.write_all(&answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

fn entry(id: MessageId, dn: &str) -> Vec<u8> {
    let mut out = Vec::new();
    EntryEncoder::begin(&mut out, id, dn).finish(&[]);
    out
}

fn done(id: MessageId) -> Vec<u8> {
    let mut out = Vec::new();
    encode::result(&mut out, id, ResponseOp::SearchDone, &LdapResult::success(), &[]);
    out
}

pub(super) fn metrics(server: &Server) -> String {
    http::get(("127.0.0.1", server.ports[1]), "/metrics").2
}

/// Answers each request as a bind for which it is too busy.
fn is_busy(mut stream: TcpStream) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
        while let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 20) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let Ok(message) = Message::decode(&pdu) else { return };
            let mut out = Vec::new();
            encode::bind_result(&mut out, message.id, &LdapResult::new(ResultCode::BUSY), None, &[]);
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }
}

/// A target that is too busy for the proxy's bind is passed over, as one that does not answer is.
#[test]
fn a_target_that_is_too_busy_for_a_bind_is_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || is_busy(stream.unwrap()));
        }
    });
    let remote = target(Kind::Larix);
    let uri = format!("ldap://{busy}/ ldap://{}/", remote.server.address);
    let bind =
        format!("idassert-bind bindmethod=simple binddn={} credentials=secret mode=none", super::ADMIN);
    let front = proxy_with(&uri, &bind, "");
    let answer = run(&mut Client::connect(front.server.address), ANN);
    assert!(answer.contains("=> 0") && answer.contains("uid=ann"), "{answer}");
}

/// A wrong answer of a target ends its own connection, and nothing else.
#[test]
fn targets_that_lie() {
    type Lie = fn(MessageId) -> Vec<u8>;
    let lies: [(&str, Lie); 9] = [
        ("unknown-id", |id| entry(MessageId(id.0 + 500), "uid=ann,dc=example,dc=com")),
        ("wrong-type", |id| {
            let mut out = Vec::new();
            encode::result(&mut out, id, ResponseOp::Add, &LdapResult::success(), &[]);
            out
        }),
        ("framing", |_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("framing", |_| b"\x30\x84\x7f\xff\xff\xff\x02\x01\x01".to_vec()),
        ("garbage", |_| b"\x30\x05\x02\x01\x01\xff\x00".to_vec()),
        ("too-many-entries", |id| {
            (0..4).flat_map(|n| entry(id, &format!("uid=a{n},dc=example,dc=com"))).collect()
        }),
        ("outside the base", |id| entry(id, "uid=ann,dc=example,dc=org")),
        ("outside the base", |id| [entry(id, "uid=ann,dc=example,dc=org"), done(id)].concat()),
        ("disconnected", |_| {
            let mut out = Vec::new();
            let result = LdapResult::with(ResultCode::UNAVAILABLE, "going");
            let name = Some(oid::NOTICE_OF_DISCONNECTION);
            encode::extended_result(&mut out, MessageId(0), &result, name, None, &[]);
            out
        }),
    ];
    for (name, lie) in lies {
        let front = proxy(liar(lie), "sizelimit 2");
        let mut client = Client::connect(front.server.address);
        let answer = run(&mut client, ANN);
        let is_lie = name != "disconnected";
        let expected = match name {
            "outside the base" => "=> 80",
            // It said that it goes: the search is asked once more.
            "disconnected" => "=> 0",
            _ => "=> 52",
        };
        assert!(answer.contains(expected), "{name}: {answer}");
        let again = until(&mut client, ANN, "=> 0");
        assert!(again.contains("uid=ann"), "{name}: {again}");
        if is_lie {
            until_logged(&front.server, name);
            let fault = if name == "outside the base" { "stray-entry" } else { name };
            let counted = format!("larix_proxy_faults_total{{suffix=\"{SUFFIX}\",fault=\"{fault}\"}} 1");
            let metrics = metrics(&front.server);
            assert!(metrics.contains(&counted), "{counted}: {metrics}");
        }
    }
}

/// What a target says stands in the log, and makes no lines there.
#[test]
fn a_target_writes_no_lines_of_its_own_into_the_log() {
    let front = proxy(
        liar(|_| {
            let mut out = Vec::new();
            let text = "going\nconn=1 fd=2 ACCEPT forged";
            let result = LdapResult::with(ResultCode::UNAVAILABLE, text);
            let name = Some(oid::NOTICE_OF_DISCONNECTION);
            encode::extended_result(&mut out, MessageId(0), &result, name, None, &[]);
            out
        }),
        "",
    );
    let answer = run(&mut Client::connect(front.server.address), ANN);
    assert!(answer.contains("=> 0"), "{answer}");
    until_logged(&front.server, "going#0Aconn=1 fd=2 ACCEPT forged");
    assert!(front.server.log().lines().all(|line| !line.starts_with("conn=1 ")));
}

/// With the control that the proxy adds it is larger than a slapd takes it of the anonymous: a slapd ends the connection.
#[test]
fn a_request_that_is_too_large_for_a_target_takes_no_other_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = proxy(listener.local_addr().unwrap(), "");
    let connect = || TcpStream::connect(front.server.address).unwrap();
    let (mut patient, mut other) = (connect(), connect());
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let compare = |value: &[u8]| {
        let mut out = Vec::new();
        client::compare(&mut out, MessageId(1), SUFFIX, "sn", value, &[]);
        out
    };
    patient.write_all(&compare(b"a")).unwrap();
    let mut shared = accepted(&listener);
    shared.set_read_timeout(Some(PATIENCE)).unwrap();
    answer_bind(&mut shared);
    next(&mut shared);
    let mut value = vec![b'a'; limits::PDU_ANONYMOUS];
    while frame(&compare(&value), limits::PDU_ANONYMOUS).is_err() {
        value.pop();
    }
    other.write_all(&compare(&value)).unwrap();
    let mut own = accepted(&listener);
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    answer_bind(&mut own);
    let id = Message::decode(&next(&mut own)).unwrap().id;
    let mut answer = Vec::new();
    encode::result(&mut answer, id, ResponseOp::Compare, &LdapResult::new(ResultCode::COMPARE_TRUE), &[]);
    own.write_all(&answer).unwrap();
    assert_eq!(Message::decode(&next(&mut own)).unwrap().request, Request::Unbind);
    next(&mut other);
    // What is smaller shares a connection.
    other.write_all(&compare(b"b")).unwrap();
    next(&mut shared);
}

/// Under load, while the target is cut off and comes back: an answer is right, or says that the target cannot be used.
#[test]
fn answers_are_never_mixed_up() {
    const ENTRIES: usize = 64;
    let remote = target(Kind::Larix);
    let mut admin = Client::connect(remote.server.address);
    run(&mut admin, &format!("as {} secret", super::ADMIN));
    for number in 0..ENTRIES {
        let add = format!(
            "add cn=e{number},ou=people,dc=example,dc=com\n  objectClass: person\n  cn: e{number}\n  sn: s{number}"
        );
        assert!(run(&mut admin, &add).starts_with("=> 0"));
    }
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let front = proxy(relay.address, "conn-pool-max 2");
    let (address, right) = (front.server.address, AtomicUsize::new(0));
    let stopped = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (right, stopped) = (&right, &stopped);
        let ask = |own: usize| {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let mut number = own;
                while !stopped.load(Ordering::SeqCst) {
                    number = (number * 5 + 7) % ENTRIES;
                    let answer =
                        run(&mut client, &format!("search ou=people,{SUFFIX} sub (cn=e{number}) sn"));
                    let expected =
                        format!("-> cn=e{number},ou=people,dc=example,dc=com\n   sn: s{number}\n=> 0\n");
                    if answer == expected {
                        right.fetch_add(1, Ordering::SeqCst);
                    } else {
                        assert!(answer.starts_with("=> 52 "), "{answer}, not {expected}");
                    }
                    let answer =
                        run(&mut client, &format!("compare cn=e{number},ou=people,{SUFFIX} sn:s{number}"));
                    assert!(answer.starts_with("=> 6") || answer.starts_with("=> 52 "), "{answer}");
                }
            })
        };
        let clients: Vec<_> = (0..8).map(ask).collect();
        for _ in 0..8 {
            let before = right.load(Ordering::SeqCst);
            while right.load(Ordering::SeqCst) < before + 200 {
                if clients.iter().any(|client| client.is_finished()) {
                    // The others end, too: the scope waits for them.
                    stopped.store(true, Ordering::SeqCst);
                    panic!("a client has failed");
                }
                thread::yield_now();
            }
            relay.set(Passage::Cut);
            relay.set(Passage::Open);
        }
        stopped.store(true, Ordering::SeqCst);
    });
    assert!(right.load(Ordering::SeqCst) >= 1600);
}

/// Proxies that lead to one another: the hops are counted.
#[test]
fn a_loop_of_proxies_ends() {
    let relay = Relay::start();
    let front = proxy(relay.address, "");
    let remote: &Server = &front.server;
    relay.lead_to(remote.address);
    let mut client = Client::connect(front.server.address);
    for request in [
        ANN,
        "compare uid=ann,dc=example,dc=com sn:x",
        "delete uid=ann,dc=example,dc=com",
        "as uid=ann,dc=example,dc=com pw",
    ] {
        let answer = run(&mut client, request);
        assert!(answer.contains("=> 54"), "{request}: {answer}");
    }
}

/// Every request that goes on to a target says how many proxies it has come through.
#[test]
fn the_ninth_proxy_refuses() {
    const ANN_DN: &str = "uid=ann,ou=people,dc=example,dc=com";
    let remote = target(Kind::Larix);
    let body = format!(
        "moduleload vc\nallow update_anon\ndatabase ldap\nsuffix {SUFFIX}\nuri ldap://{}\n",
        remote.server.address
    );
    let site = Site::new(Kind::Larix, &body);
    let server = Server::start_with(Kind::Larix, &site.configuration(), &[], &[]);
    let front = Running::with(server.unwrap_or_else(|error| panic!("{error}")), site);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    let authentication = Authentication::Simple(b"annpw");
    let controls = Controls::default();
    let credentials = VerifyCredentials { cookie: None, name: ANN_DN, authentication, controls };
    let credentials = hex(&credentials.encode().unwrap_or_default());
    let mut refresh = Vec::new();
    write::constructed(&mut refresh, Tag::SEQUENCE, |out| {
        write::octets(out, Tag::context(0), ANN_DN.as_bytes());
        write::integer(out, Tag::context(1), 60);
    });
    let mut client = Client::connect(front.server.address);
    for request in [
        format!("as {ANN_DN} annpw"),
        ANN.to_owned(),
        format!("compare {ANN_DN} sn:archer"),
        format!("delete uid=nobody,ou=people,{SUFFIX}"),
        format!("passwd {ANN_DN} new=other"),
        format!("extended {} \"{}\"", oid::REFRESH, hex(&refresh)),
        format!("extended {} \"{credentials}\"", oid::VERIFY_CREDENTIALS),
    ] {
        for hops in [8_u8, 7] {
            let counted = format!("{request} with {}={}", oid::PROXY_HOPS, char::from(hops));
            let answer = run(&mut client, &counted);
            assert_eq!(answer.contains("=> 54"), hops == 8, "{request}, {hops}: {answer}");
        }
    }
}

/// A user's connection is lost: his password binds again where the proxy may keep it, and nobody acts as somebody else where not.
#[test]
fn who_was_bound_is_bound_again_or_refused() {
    for (settings, expected) in [("rebind-as-user yes", "=> 0"), ("", "=> 52")] {
        let remote = target(Kind::Larix);
        let relay = Relay::start();
        relay.lead_to(remote.server.address);
        let front = proxy(relay.address, settings);
        let mut client = Client::connect(front.server.address);
        let ann = "uid=ann,ou=people,dc=example,dc=com";
        assert!(run(&mut client, &format!("as {ann} annpw")).contains("=> 0"));
        let change = format!("modify {ann}\n  replace description: changed");
        assert!(run(&mut client, &change).contains("=> 0"));
        relay.set(Passage::Cut);
        relay.set(Passage::Open);
        let answer = run(&mut client, ANN);
        assert!(answer.contains(expected), "{settings}: {answer}");
        if expected == "=> 0" {
            assert!(run(&mut client, &change).contains("=> 0"));
        }
        assert!(run(&mut client, &format!("as {ann} annpw")).contains("=> 0"), "{settings}");
        assert!(run(&mut client, &change).contains("=> 0"), "{settings}");
    }
}

/// A password that was changed elsewhere is tried once, and not with each request: the account would be locked for it. One that was changed
/// through the proxy is known to it.
#[test]
fn a_password_that_is_wrong_now_is_tried_once() {
    let remote = target(Kind::Larix);
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let front = proxy(relay.address, "rebind-as-user yes");
    let mut client = Client::connect(front.server.address);
    let cut = || {
        relay.set(Passage::Cut);
        relay.set(Passage::Open);
    };
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    assert!(run(&mut client, &format!("as {ann} annpw")).contains("=> 0"));
    assert!(run(&mut client, &format!("passwd {ann} old=annpw new=newpw")).contains("=> 0"));
    cut();
    assert!(run(&mut client, ANN).contains("=> 0"));
    let mut admin = Client::connect(remote.server.address);
    assert!(run(&mut admin, &format!("as {} secret", super::ADMIN)).contains("=> 0"));
    assert!(run(&mut admin, &format!("passwd {ann} new=other")).contains("=> 0"));
    cut();
    let answers = [(); 3].map(|()| run(&mut client, ANN));
    assert!(answers[0].contains("=> 49"), "{answers:?}");
    assert!(answers[1..].iter().all(|answer| answer.contains("=> 52")), "{answers:?}");
    assert!(run(&mut client, &format!("as {ann} other")).contains("=> 0"));
    assert!(run(&mut client, ANN).contains("=> 0"));
}

/// The proxy's own bind is not tried with each request while the target refuses it, and is tried again by itself.
#[test]
fn a_refused_bind_of_the_proxy_waits_for_its_turn() {
    const REQUESTS: usize = 200;
    let remote = target(Kind::Larix);
    let relay = Relay::recording();
    relay.lead_to(remote.server.address);
    let eve = "uid=eve,ou=people,dc=example,dc=com";
    let bind = format!("idassert-bind bindmethod=simple binddn={eve} credentials=later mode=none");
    let front = proxy(relay.address, &bind);
    let mut client = Client::connect(front.server.address);
    for _ in 0..REQUESTS {
        let answer = run(&mut client, ANN);
        assert!(answer.contains("=> 52"), "{answer}");
    }
    let recorded = relay.recorded();
    let binds = recorded.iter().filter(|chunk| !chunk.to_client).count();
    assert!((1..REQUESTS / 2).contains(&binds), "{binds}");
    let mut admin = Client::connect(remote.server.address);
    assert!(run(&mut admin, &format!("as {} secret", super::ADMIN)).contains("=> 0"));
    assert!(run(&mut admin, &format!("passwd {eve} new=later")).contains("=> 0"));
    until(&mut client, ANN, "Archer");
}

/// More than any buffer holds, for a client that takes its time, beside one that does not wait.
#[test]
fn a_client_that_reads_slowly_holds_nobody_up() {
    let remote = target(Kind::Larix);
    let mut admin = Client::connect(remote.server.address);
    run(&mut admin, &format!("as {} secret", super::ADMIN));
    let long = "x".repeat(60_000);
    for number in 0..200 {
        let add = format!(
            "add cn=e{number},ou=people,dc=example,dc=com\n  objectClass: person\n  cn: e{number}\n  sn: {number}\n  description: {long}"
        );
        assert!(run(&mut admin, &add).contains("=> 0"));
    }
    let front = proxy(remote.server.address, "conn-pool-max 1\nsizelimit unlimited");
    let mut slow = TcpStream::connect(front.server.address).unwrap();
    let filter = FilterBuf::parse("(objectClass=person)").unwrap();
    let mut request = Vec::new();
    let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client::search(&mut request, MessageId(1), &search, &[]);
    slow.write_all(&request).unwrap();
    // It begins, and then it waits for its client.
    let mut first = [0; 1024];
    slow.read_exact(&mut first).unwrap();
    let mut other = Client::connect(front.server.address);
    for _ in 0..20 {
        let answer = run(&mut other, ANN);
        assert!(answer.contains("Archer"), "{answer}");
    }
    let (mut bytes, mut chunk) = (first.to_vec(), vec![0; 1 << 16]);
    let mut entries = 0;
    loop {
        while let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 24) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = larix_proto::Response::decode_message(&pdu).unwrap();
            assert_eq!(message.id, MessageId(1));
            match message.response.result() {
                None => entries += 1,
                Some((_, result)) => {
                    assert!(matches!(result.code, ResultCode::SUCCESS | ResultCode::BUSY), "{result:?}");
                    if result.code == ResultCode::SUCCESS {
                        assert!(entries >= 203, "{entries}");
                    }
                    return;
                }
            }
        }
        let count = slow.read(&mut chunk).unwrap();
        assert!(count > 0, "closed");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

/// A target of [`never_ends_what_is_slow`], and what says that it was asked for that.
fn slow_target() -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.unwrap(), sender.clone());
            thread::spawn(move || never_ends_what_is_slow(stream, &sender));
        }
    });
    (address, receiver)
}

/// Says that it was asked for `uid=slow`, or to bind it, and never answers that; everything else it does.
fn never_ends_what_is_slow(mut stream: TcpStream, sender: &Sender<()>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
        while let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 20) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = Message::decode(&pdu).unwrap();
            let answer = match message.request {
                Request::Bind(bind) if bind.name.starts_with("uid=slow") => {
                    sender.send(()).unwrap();
                    continue;
                }
                Request::Bind(_) => bound(message.id),
                Request::Search(search) if search.filter.to_string() == "(uid=slow)" => {
                    sender.send(()).unwrap();
                    continue;
                }
                Request::Search(_) => {
                    [entry(message.id, "uid=ann,dc=example,dc=com"), done(message.id)].concat()
                }
                _ => continue,
            };
            stream.write_all(&answer).unwrap();
        }
    }
}

/// A connection on which many searches were abandoned, and never answered, takes no more at some time. What comes then goes over another
/// one, though a search is still under way there.
#[test]
fn what_comes_to_a_connection_that_is_worn_goes_over_another_one() {
    // More than a connection may have given up (1024).
    const ABANDONED: u32 = 1_100;
    let (address, receiver) = slow_target();
    let front = proxy(address, "");
    let mut client = TcpStream::connect(front.server.address).unwrap();
    let filter = FilterBuf::parse("(uid=slow)").unwrap();
    let mut search = |id: u32, abandons: bool| {
        let mut request = Vec::new();
        let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
        client::search(&mut request, MessageId(id), &search, &[]);
        client.write_all(&request).unwrap();
        receiver.recv_timeout(PATIENCE).unwrap();
        if abandons {
            request.clear();
            client::abandon(&mut request, MessageId(id + 1), MessageId(id), &[]);
            client.write_all(&request).unwrap();
        }
    };
    search(1, false);
    for number in 1..=ABANDONED {
        search(2 * number, true);
    }
    assert!(run(&mut Client::connect(front.server.address), ANN).contains("uid=ann"));
}

/// What binds of `uid=slow` are answered, all of them too late, with a search that is answered before. Nothing where a busy machine takes
/// longer for that than the target may take for a bind.
#[expect(clippy::disallowed_methods, reason = "the proxy's time for a bind has not passed")]
fn late_binds(
    proxy: SocketAddr,
    asked: &Receiver<()>,
    (count, time): (usize, Duration),
) -> Option<Vec<String>> {
    let begun = Instant::now();
    let bind = || run(&mut Client::connect(proxy), &format!("as uid=slow,{SUFFIX} secret"));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..count).map(|_| scope.spawn(bind)).collect();
        let mut came = 0;
        larix_testkit::until("the target is asked", || {
            came += asked.try_iter().count();
            came == count || begun.elapsed() > time
        });
        let found = run(&mut Client::connect(proxy), ANN);
        let is_in_time = came == count && begun.elapsed() < time;
        let answers = waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect();
        assert!(!is_in_time || found.contains("uid=ann"), "{found}");
        is_in_time.then_some(answers)
    })
}

/// A bind that takes too long says nothing about a target that answers others meanwhile: it may ask another server about that account.
#[test]
fn a_bind_that_takes_too_long_keeps_nobody_else_from_the_target() {
    const TIME: Duration = Duration::from_secs(5);
    let answer = until_some("a bind that is late, and one that is not", || {
        let (target, asked) = slow_target();
        let front = proxy(target, &format!("timeout bind={}\nquarantine 600,+", TIME.as_secs()));
        let address = front.server.address;
        for answer in late_binds(address, &asked, (1, TIME))? {
            assert!(answer.contains("=> 11"), "{answer}");
        }
        let answer = run(&mut Client::connect(address), &format!("as uid=ann,{SUFFIX} secret"));
        // On a busy machine it is late, too.
        Some(answer).filter(|answer| !answer.contains("=> 11"))
    });
    assert!(answer.contains("=> 0"), "{answer}");
}

/// A target that answers searches and no bind is another matter: clients bind at the next one.
#[test]
fn a_target_that_answers_no_bind_gives_way_to_the_next() {
    // One more than are excused in a row.
    const LATE: usize = 9;
    const TIME: Duration = Duration::from_secs(10);
    let second = target(Kind::Larix);
    let answer = until_some("binds that are late, and one that is not", || {
        let (first, asked) = slow_target();
        let uris = format!("ldap://{first} ldap://{}", second.server.address);
        let front = proxy_with(&uris, &format!("timeout bind={}\nquarantine 600,+", TIME.as_secs()), "");
        let address = front.server.address;
        for answer in late_binds(address, &asked, (LATE, TIME))? {
            assert!(answer.contains("=> 11"), "{answer}");
        }
        let answer = run(&mut Client::connect(address), &format!("as uid=slow,{SUFFIX} secret"));
        // On a busy machine it is late, too.
        Some(answer).filter(|answer| !answer.contains("=> 11"))
    });
    assert!(answer.contains("=> 49"), "{answer}");
}
