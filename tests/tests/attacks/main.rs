//! Attacks against the real binary. Each shows that others are served meanwhile or that nothing is given away, and prints its
//! row of `docs/performance/attacks.md` (`cargo test -p larix-tests --test attacks -- --nocapture --test-threads=1`);
//! `ATTACKS=full` makes them ten times as large.
//! Nothing here depends on how fast the machine is: figures are printed, not judged.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]
#![expect(clippy::disallowed_methods, reason = "attacks are timed")]

mod cost;
mod tls;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{ControlBuf, FilterBuf, MessageId, ModifyOperation, Scope, oid};
use larix_testkit::{Kind, Server, SetAtEnd, Site, until, until_some};
use larix_tests::raw::{Answer, Raw, bind, read_to_end, search};

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";

fn times(count: usize) -> usize {
    if std::env::var("ATTACKS").is_ok_and(|size| size == "full") { count * 10 } else { count }
}

/// A directory with a few people; `global` comes first in its slapd.conf, `database` in its database.
fn site(global: &str, database: &str) -> (Site, Server) {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "{global}database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             index objectClass,uid,cn eq\n{database}"
        ),
    );
    let hash = Kind::Larix.tool("hash-password").args(["-h", "{ARGON2}", "-s", "right"]).output().unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: ou=hidden,{SUFFIX}\nobjectClass: organizationalUnit\nou: hidden\n\n"
    );
    for n in 0..50 {
        ldif += &format!(
            "dn: cn=user{n},{SUFFIX}\nobjectClass: person\ncn: user{n}\nsn: {n}\nuserPassword: {hash}\n\n\
             dn: cn=user{n},ou=hidden,{SUFFIX}\nobjectClass: person\ncn: user{n}\nsn: {n}\nuserPassword: {hash}\n\n"
        );
    }
    site.load(&ldif);
    let server = site.start().unwrap();
    (site, server)
}

fn connect(server: &Server) -> Raw {
    Raw::connect(server.address).unwrap()
}

fn one_entry(id: u32) -> Vec<u8> {
    search(id, &format!("cn=user7,{SUFFIX}"), Scope::Base, "(objectClass=*)")
}

/// The server answers an ordinary client.
fn assert_unharmed(server: &Server) {
    let answer = connect(server).ask(&one_entry(1)).unwrap();
    assert_eq!((answer.code, answer.entries), (0, 1));
}

/// Resident memory of the server in KB.
fn memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// How long each of `count` requests took, sorted.
fn durations(connection: &mut Raw, count: usize, request: impl Fn(u32) -> Vec<u8>) -> Vec<Duration> {
    let mut times: Vec<Duration> = (1..=u32::try_from(count).unwrap())
        .map(|id| {
            let begin = Instant::now();
            let answer = connection.ask(&request(id)).unwrap();
            assert_eq!((answer.id, answer.code, answer.entries), (id, 0, 1));
            begin.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// Prints a row of the table.
fn figure(attack: &str, figure: std::fmt::Arguments<'_>) {
    println!("| {attack} | {figure} |");
}

fn shown(sorted: &[Duration]) -> String {
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 100];
    format!("median {:?}, 99th of a hundred {:?}, worst {:?}", at(50), at(99), at(100))
}

#[test]
fn a_bind_flood_leaves_searches_to_others() {
    let (_site, server) = site("", "");
    let mut bystander = connect(&server);
    let quiet = durations(&mut bystander, times(200), one_entry);
    let (done, judged, busy) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let flooded = std::thread::scope(|scope| {
        let _end = SetAtEnd(&done);
        for n in 0..32 {
            let (server, done, judged, busy) = (&server, &done, &judged, &busy);
            scope.spawn(move || {
                let mut attacker = connect(server);
                let guess = bind(1, &format!("cn=user{n},{SUFFIX}"), "wrong");
                while !done.load(Ordering::Relaxed) {
                    match attacker.ask(&guess).map(|answer| answer.code) {
                        Some(49) => judged.fetch_add(1, Ordering::Relaxed),
                        Some(51) => busy.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other:?}"),
                    };
                }
            });
        }
        // The flood is on when the first guesses have been judged.
        until("the first guesses are judged", || judged.load(Ordering::Relaxed) >= 4);
        durations(&mut bystander, times(200), one_entry)
    });
    figure(
        "bind flood",
        format_args!("searches of another client {}; before {}", shown(&flooded), shown(&quiet)),
    );
    figure("bind flood", format_args!("{judged:?} guesses judged, {busy:?} refused as busy"));
    assert_unharmed(&server);
}

/// It ends the connection, but nobody was guessed at.
#[test]
fn a_sasl_bind_of_version_2_is_no_guess() {
    let (_site, server) = site("allow bind_v2\nclient-limits failures.address=2/h\n", "");
    for _ in 0..4 {
        let mut old = connect(&server);
        assert!(old.send(b"\x30\x13\x02\x01\x01\x60\x0e\x02\x01\x02\x04\x00\xa3\x07\x04\x05PLAIN"));
        let notice = old.answer().expect("a notice of disconnection");
        assert_eq!((notice.id, notice.code), (0, 2), "{notice:?}");
    }
    assert_eq!(connect(&server).ask(&bind(1, &format!("cn=user1,{SUFFIX}"), "right")).unwrap().code, 0);
}

#[test]
fn spraying_from_one_address_is_judged_a_few_times() {
    let (_site, server) = site("client-limits failures.address=5/h\n", "");
    let (mut judged, mut refused) = (0, 0);
    for n in 0..times(20) {
        let mut attacker = connect(&server);
        for password in ["Winter2025", "right", "secret"] {
            match attacker.ask(&bind(1, &format!("cn=user{},{SUFFIX}", n % 50), password)).unwrap().code {
                49 => judged += 1,
                51 => refused += 1,
                // A right guess among the first is the sprayer's luck; it costs no failure.
                0 => {}
                other => panic!("{other}"),
            }
        }
    }
    figure("spraying", format_args!("{judged} guesses judged wrong, {refused} not looked at"));
    assert_eq!(judged, 5);
    assert!(refused > 0);
    let answer = connect(&server).ask(&bind(1, &format!("cn=user1,{SUFFIX}"), "right")).unwrap();
    assert_eq!(answer.code, 51, "{answer:?}");
    assert_unharmed(&server);
}

#[test]
fn a_flood_of_connections_ends_at_the_limits() {
    let (_site, server) = site("client-limits connections.address=20\n", "");
    let mut connections: Vec<Raw> = Vec::new();
    let mut refused = 0;
    for _ in 0..times(100) {
        let mut connection = connect(&server);
        match connection.ask(&one_entry(1)) {
            Some(Answer { id: 1, code: 0, .. }) => connections.push(connection),
            Some(Answer { id: 0, code: 52, text, .. }) => {
                assert_eq!(text, "more than 20 connections from this address; try again later");
                refused += 1;
            }
            // Refused before the request was read: the notice can be lost with it.
            None => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    figure("connection flood", format_args!("{} served, {refused} refused", connections.len()));
    assert_eq!(connections.len(), 20);
    for connection in &mut connections {
        assert_eq!(connection.ask(&one_entry(2)).unwrap().code, 0);
    }
    drop(connections);
    // Their ends are seen one after the other.
    until("another connection is served", || {
        connect(&server).ask(&one_entry(1)).is_some_and(|answer| answer.code == 0)
    });
}

#[test]
fn a_connection_counts_before_its_proxy_header() {
    let (site, server) = site("client-limits connections=1\n", "");
    assert!(server.stop());
    let urls = ["ldap://127.0.0.1:0/", "pldap://127.0.0.1:0/"];
    let server = Server::start_on(Kind::Larix, &site.configuration(), &urls, &[], &[]).unwrap();
    // The end of the connection that found out whether the server accepts any may still be to be seen.
    let mut first = until_some("a connection is served", || {
        let mut one = connect(&server);
        one.ask(&one_entry(1)).filter(|answer| answer.code == 0).map(|_| one)
    });
    // It sends nothing, and nothing is awaited of it.
    let mut second = Raw::connect(([127, 0, 0, 1], server.ports[1]).into()).unwrap();
    let notice = second.answer().expect("a notice of disconnection");
    assert_eq!((notice.id, notice.code), (0, 52), "{notice:?}");
    assert_eq!(first.ask(&one_entry(2)).unwrap().code, 0);
}

#[test]
fn anonymous_clients_share_a_rate_and_others_do_not() {
    let (_site, server) = site("client-limits operations.anonymous=50/h\n", "");
    let mut anonymous = connect(&server);
    let codes: Vec<u32> = (1..=100).map(|id| anonymous.ask(&one_entry(id)).unwrap().code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 50);
    assert_eq!(codes.iter().filter(|code| **code == 51).count(), 50);
    let mut user = connect(&server);
    assert_eq!(user.ask(&bind(1, &format!("cn=user1,{SUFFIX}"), "right")).unwrap().code, 0);
    assert!((2..200).all(|id| user.ask(&one_entry(id)).unwrap().code == 0));
}

#[test]
fn half_a_request_is_not_waited_for_for_ever() {
    let (_site, server) = site("client-limits request.time=1\n", "");
    let before = memory(&server);
    let mut slow: Vec<Raw> = (0..times(50)).map(|_| connect(&server)).collect();
    for connection in &mut slow {
        // A search of 200 KB, of which most never comes.
        assert!(connection.send(&[&[0x30, 0x83, 3, 0, 0, 2, 1, 1, 0x63][..], &[0; 10_000]].concat()));
    }
    let mut idle = connect(&server);
    assert_unharmed(&server);
    let begin = Instant::now();
    for connection in &slow {
        assert_eq!(read_to_end(&connection.socket), b"");
    }
    figure(
        "slow loris",
        format_args!(
            "{} connections ended after {:?}; {} KB before, {} KB now",
            slow.len(),
            begin.elapsed(),
            before,
            memory(&server)
        ),
    );
    assert_eq!(idle.ask(&one_entry(1)).unwrap().code, 0, "an idle client that owes nothing stays");
}

/// Everything that can be asked of a name.
fn probes(dn: &str) -> Vec<Vec<u8>> {
    let id = MessageId(1);
    let mut requests = vec![
        search(1, dn, Scope::Base, "(objectClass=*)"),
        search(1, dn, Scope::OneLevel, "(objectClass=*)"),
        search(1, dn, Scope::Subtree, "(cn=user1)"),
        search(1, &format!("cn=below,{dn}"), Scope::Base, "(objectClass=*)"),
    ];
    let mut push = |fill: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        fill(&mut out);
        requests.push(out);
    };
    let person: [&[u8]; 1] = [b"person"];
    let name: [&[u8]; 1] = [b"x"];
    push(&|out| client::compare(out, id, dn, "sn", b"1", &[]));
    push(&|out| client::delete(out, id, dn, &[]));
    push(&|out| client::modify_dn(out, id, dn, "cn=other", true, None, &[]));
    push(&|out| {
        let attribute = ClientAttribute { description: "description", values: &name };
        client::modify(out, id, dn, &[ClientChange { operation: ModifyOperation::Replace, attribute }], &[]);
    });
    push(&|out| {
        let list = [
            ClientAttribute { description: "objectClass", values: &person },
            ClientAttribute { description: "sn", values: &name },
        ];
        client::add(out, id, &format!("cn=below,{dn}"), &list, &[]);
    });
    push(&|out| client::simple_bind(out, id, dn, b"wrong", &[]));
    requests
}

#[test]
fn what_is_hidden_looks_like_what_is_not_there() {
    let rules = format!(
        "access to dn.subtree=\"ou=hidden,{SUFFIX}\" by * none\naccess to attrs=userPassword by * auth\n\
         access to * by users read\n"
    );
    let (_site, server) = site("", &rules);
    let there = probes(&format!("cn=user3,ou=hidden,{SUFFIX}"));
    let missing = probes(&format!("cn=nobody,ou=hidden,{SUFFIX}"));
    for user in [None, Some(format!("cn=user1,{SUFFIX}"))] {
        let ask = |request: &[u8]| {
            let mut client = connect(&server);
            if let Some(user) = &user {
                assert_eq!(client.ask(&bind(9, user, "right")).unwrap().code, 0);
            }
            client.ask(request).unwrap()
        };
        for (number, (there, missing)) in there.iter().zip(&missing).enumerate() {
            let (there, missing) = (ask(there), ask(missing));
            assert_eq!(there.what_is_told(), missing.what_is_told(), "probe {number} by {user:?}");
        }
    }
    // The same by time: medians of turns, for what is asked most.
    let mut client = connect(&server);
    let guesses = ["user3", "nobody"].map(|name| bind(1, &format!("cn={name},{SUFFIX}"), "wrong"));
    for (name, requests, count) in [
        ("searches", [&there[0], &missing[0]], 300),
        ("compares", [&there[4], &missing[4]], 300),
        ("binds", [&there[9], &missing[9]], 20),
        ("binds of users that are not hidden", [&guesses[0], &guesses[1]], 20),
    ] {
        let mut durations = [Vec::new(), Vec::new()];
        for turn in 0..times(count) * 2 {
            let request = requests[turn % 2];
            let begin = Instant::now();
            client.ask(request).unwrap();
            durations[turn % 2].push(begin.elapsed());
        }
        let medians = durations.map(|mut times| {
            times.sort();
            times[times.len() / 2]
        });
        figure(
            "probe",
            format_args!("{name}: of what is there {:?}, of what is not {:?}", medians[0], medians[1]),
        );
    }
}

#[test]
fn bombs_in_filters_and_rules_cost_what_their_length_costs() {
    // A pattern that takes exponential time where it is tried by backtracking.
    let rules = "access to dn.regex=\"^cn=(a+)+b,dc=example,dc=com$\" by * read\naccess to * by * read\n";
    let (_site, server) = site("", rules);
    let mut client = connect(&server);
    let long = "a".repeat(20_000);
    let name = "a".repeat(4_000);
    let deep = |depth: usize| format!("{}(cn=user1){}", "(!".repeat(depth), ")".repeat(depth));
    let wide = format!("(|{})", "(cn=nobody)".repeat(5_000));
    let stars = format!("(cn=*{}*)", "a*".repeat(5_000).trim_end_matches('*'));
    for (name, request) in [
        ("a name for a rule's pattern", search(1, &format!("cn={name},{SUFFIX}"), Scope::Base, "(cn=x)")),
        ("a filter 990 deep", search(1, SUFFIX, Scope::Subtree, &deep(990))),
        ("a filter of 5,000 terms", search(1, SUFFIX, Scope::Subtree, &wide)),
        ("a substring in 5,000 parts", search(1, SUFFIX, Scope::Subtree, &stars)),
        ("an assertion of 20,000 letters", search(1, SUFFIX, Scope::Subtree, &format!("(sn={long})"))),
    ] {
        let begin = Instant::now();
        let answer = client.ask(&request).unwrap();
        figure(
            "bomb",
            format_args!("{name} of {} bytes: {} after {:?}", request.len(), answer.code, begin.elapsed()),
        );
    }
    // The writer's thread looks at filters, too.
    let mut bomb = Vec::new();
    let filter = FilterBuf::parse(&deep(990)).unwrap();
    let value = Some(filter.as_filter().as_ber().to_vec());
    let assertion = ControlBuf { oid: oid::ASSERTION.into(), critical: true, value };
    assert_eq!(client.ask(&bind(2, ADMIN, "secret")).unwrap().code, 0);
    client::delete(&mut bomb, MessageId(1), &format!("cn=user9,{SUFFIX}"), &[assertion]);
    let begin = Instant::now();
    let answer = client.ask(&bomb).unwrap();
    figure(
        "bomb",
        format_args!("an assertion control 990 deep: {} after {:?}", answer.code, begin.elapsed()),
    );
    let mut bomb = Vec::new();
    let controls = vec![ControlBuf { oid: "1.2.3.4".into(), critical: false, value: None }; 10_000];
    client::delete(&mut bomb, MessageId(1), "cn=x", &controls);
    let begin = Instant::now();
    let answer = client.ask(&bomb).unwrap();
    figure("bomb", format_args!("10,000 controls: {} after {:?}", answer.code, begin.elapsed()));
    assert_unharmed(&server);
}

#[test]
fn abandoned_searches_leave_nothing() {
    let (_site, server) = site("", "");
    let mut client = connect(&server);
    let before = memory(&server);
    let mut batch = Vec::new();
    for n in 0..u32::try_from(times(2_000)).unwrap() {
        batch.extend(search(2 * n + 1, SUFFIX, Scope::Subtree, "(|(sn=*1*)(description=*))"));
        client::abandon(&mut batch, MessageId(2 * n + 2), MessageId(2 * n + 1), &[]);
    }
    let last = u32::MAX >> 1;
    batch.extend(one_entry(last));
    let mut reader = Raw::connect(server.address).unwrap();
    std::mem::swap(&mut reader, &mut client);
    let mut writer = reader.socket.try_clone().unwrap();
    let mut answered = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, &batch));
        while reader.answer().unwrap().id != last {
            answered += 1;
        }
    });
    figure(
        "abandon",
        format_args!("{answered} answered all the same; {before} KB before, {} KB after", memory(&server)),
    );
    assert_unharmed(&server);
}

#[test]
fn a_pipeline_that_nobody_reads_stops_at_the_socket() {
    let (_site, server) = site("", "");
    let before = memory(&server);
    let deaf: Vec<Raw> = (0..10)
        .map(|_| {
            let mut deaf = connect(&server);
            deaf.socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let batch: Vec<u8> =
                (1..=500).flat_map(|id| search(id, SUFFIX, Scope::Subtree, "(cn=*)")).collect();
            // The server stops reading, and the writing stops in turn: far less fits into the buffers between the two.
            let mut batches = 0..1_000;
            assert!(batches.any(|_| !deaf.send(&batch)), "the server has read {} MB", batch.len() / 1_000);
            deaf
        })
        .collect();
    figure(
        "unread pipelines",
        format_args!("{} of them, {before} KB before, {} KB with them", deaf.len(), memory(&server)),
    );
    assert_unharmed(&server);
}

#[test]
fn tokens_too_large_for_sasl_are_refused() {
    let (_site, server) = site("", "");
    for (bytes, expected) in [(1_000, false), (200_000, false), (300_000, true)] {
        let mut client = connect(&server);
        let mut request = Vec::new();
        let token = vec![b'n'; bytes];
        client::sasl_bind(&mut request, MessageId(1), "", "SCRAM-SHA-256", Some(&token), &[]);
        let answer = client.ask(&request);
        let outcome = answer
            .as_ref()
            .map_or_else(|| "the end".to_owned(), |answer| format!("{} {}", answer.code, answer.text));
        figure("SASL tokens", format_args!("{bytes} bytes: {outcome}"));
        // Above sockbuf_max_incoming nothing of it is kept: a notice, or the end before it could be read.
        let cut = answer.is_none_or(|answer| answer.id == 0);
        assert_eq!(cut, expected, "{bytes}");
    }
    assert_unharmed(&server);
}

#[test]
fn idle_connections_cost_little() {
    let (_site, server) = site("", "");
    let before = memory(&server);
    let connections: Vec<Raw> = (0..times(200)).map(|_| connect(&server)).collect();
    assert_unharmed(&server);
    let each = memory(&server).saturating_sub(before) * 1024 / connections.len();
    figure("idle connections", format_args!("{} open, about {each} bytes each", connections.len()));
}

#[test]
fn a_transaction_holds_no_more_than_its_limits() {
    let limits = "request-limits transaction.bytes=100000 transaction.updates=5\n";
    let (_site, server) = site(limits, "access to * by users write by * read\n");
    let bytes = "100000 bytes of a transaction's updates";
    for (value, control, expected) in
        [(10, 0, "5 updates in one transaction"), (40_000, 0, bytes), (10, 40_000, bytes)]
    {
        let mut client = connect(&server);
        assert_eq!(client.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
        let mut start = Vec::new();
        client::extended(&mut start, MessageId(2), oid::START_TRANSACTION, None, &[]);
        assert_eq!(client.ask(&start).unwrap().code, 0);
        let transaction = ControlBuf {
            oid: oid::TRANSACTION_SPECIFICATION.into(),
            critical: true,
            value: Some(Vec::new()),
        };
        let unknown = ControlBuf { oid: "1.2.3.4".into(), critical: false, value: Some(vec![0; control]) };
        let controls = [transaction, unknown];
        let refused = (3..20).find_map(|id| {
            let (mut update, value) = (Vec::new(), ["v".repeat(value)]);
            let attribute = ClientAttribute { description: "description", values: &value };
            let change = ClientChange { operation: ModifyOperation::Replace, attribute };
            client::modify(&mut update, MessageId(id), &format!("cn=user1,{SUFFIX}"), &[change], &controls);
            let answer = client.ask(&update).unwrap();
            (answer.code != 0).then_some((id, answer))
        });
        let (id, answer) = refused.expect("a limit");
        assert_eq!((answer.code, id), (11, if expected == bytes { 5 } else { 8 }), "{answer:?}");
        assert!(answer.text.starts_with(&format!("more than {expected}")), "{answer:?}");
    }
}

#[test]
fn requests_have_so_many_modifications_and_values() {
    let limits = "request-limits modifications=3 values=10\n";
    let (_site, server) = site(limits, "access to * by users write by * read\n");
    let mut client = connect(&server);
    assert_eq!(client.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let values: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    for (modifications, values, expected) in [
        (3, &values[..3], None),
        (4, &values[..1], Some("more than 3 modifications in one request (request-limits modifications=)")),
        (1, &values[..10], None),
        (1, &values[..11], Some("more than 10 values in one request (request-limits values=)")),
    ] {
        let attribute = ClientAttribute { description: "description", values };
        let change = ClientChange { operation: ModifyOperation::Replace, attribute };
        let mut request = Vec::new();
        client::modify(
            &mut request,
            MessageId(2),
            &format!("cn=user1,{SUFFIX}"),
            &vec![change; modifications],
            &[],
        );
        let answer = client.ask(&request).unwrap();
        assert_eq!(answer.code, if expected.is_some() { 11 } else { 0 }, "{answer:?}");
        assert_eq!(answer.text, expected.unwrap_or_default());
    }
}

/// A bind computes so many rounds for an account, whatever its values ask for, and users cannot store more.
#[test]
fn passwords_that_cost_too_much_are_not_compared() {
    let rules = "access to attrs=userPassword by self write by * auth\naccess to * by * read\n";
    let (site, server) = site("loglevel none\nlogfile @DATA@/log\n", rules);
    let costly: Vec<String> =
        (0..8).map(|n| format!("{{PBKDF2-SHA256}}10000000$AAAAAAAAAAAAAAAAAAAAA{n}$AAAA")).collect();
    let replace = |values: &[String]| {
        let mut out = Vec::new();
        let attribute = ClientAttribute { description: "userPassword", values };
        let change = ClientChange { operation: ModifyOperation::Replace, attribute };
        client::modify(&mut out, MessageId(2), &format!("cn=user1,{SUFFIX}"), &[change], &[]);
        out
    };
    let mut user = connect(&server);
    assert_eq!(user.ask(&bind(1, &format!("cn=user1,{SUFFIX}"), "right")).unwrap().code, 0);
    let answer = user.ask(&replace(&costly)).unwrap();
    assert_eq!(answer.code, 11, "{answer:?}");
    assert!(answer.text.contains("(request-limits hash.cost=)"), "{answer:?}");
    // The administrator may. What fits is compared all the same.
    let mut admin = connect(&server);
    assert_eq!(admin.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let with_one_more: Vec<String> = costly.iter().cloned().chain(["cheap".to_owned()]).collect();
    assert_eq!(admin.ask(&replace(&with_one_more)).unwrap().code, 0);
    for (password, expected) in [("cheap", 0), ("other", 49)] {
        let begin = Instant::now();
        let answer = connect(&server).ask(&bind(1, &format!("cn=user1,{SUFFIX}"), password)).unwrap();
        figure(
            "costly passwords",
            format_args!("a bind is answered {} after {:?}", answer.code, begin.elapsed()),
        );
        assert_eq!(answer.code, expected, "{answer:?}");
    }
    let text = format!("8 of 9 passwords of \"cn=user1,{SUFFIX}\" are not compared");
    let log = || std::fs::read_to_string(site.path().join("data/log")).unwrap_or_default();
    until(&text, || log().contains(&text));
}
