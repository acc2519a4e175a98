//! Searches that go through a whole directory, beside small ones, changes, clients that leave and a server that stops.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larix_proto::client::{self, Search};
use larix_proto::{FilterBuf, Frame, MessageId, Response, Scope, frame};
use larix_testkit::{Kind, Server, SetAtEnd, Site, until};
use larix_tests::raw::{Raw, bind, search};

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// More than a worker looks at in the slices that it computes itself, which are of 128 at most.
const PEOPLE: usize = 4_000;
/// More than the buffers between server and client hold, all entries together.
const LONG: usize = 4_096;
const NOBODY: &str = "(description=*nobody*)";

fn serving() -> (Site, Server) {
    let site = Site::example(Kind::Larix);
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    let long = "x".repeat(LONG);
    for number in 0..PEOPLE {
        write!(
            ldif,
            "dn: cn=p{number},{SUFFIX}\nobjectClass: person\ncn: p{number}\nsn: {number}\ndescription: {long}\n\n"
        )
        .unwrap();
    }
    site.load(&ldif);
    let server = site.start().unwrap();
    (site, server)
}

fn connect(server: &Server) -> Raw {
    let mut raw = Raw::connect(server.address).unwrap();
    assert_eq!(raw.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    raw
}

/// Whole entries of everybody.
fn everybody(id: u32) -> Vec<u8> {
    let filter = FilterBuf::parse("(description=*)").unwrap();
    let mut out = Vec::new();
    let request = Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client::search(&mut out, MessageId(id), &request, &[]);
    out
}

/// Reads until so many searches are answered: the names of each that came, by message.
fn names(raw: &mut Raw, searches: usize) -> Vec<(u32, String)> {
    let (mut input, mut chunk) = (Vec::new(), vec![0; 1 << 20]);
    let (mut found, mut done) = (Vec::new(), 0);
    while done < searches {
        let count = raw.socket.read(&mut chunk).unwrap();
        assert!(count > 0, "closed after {} entries", found.len());
        input.extend_from_slice(&chunk[..count]);
        let mut used = 0;
        while let Ok(Frame::Complete { len }) = frame(&input[used..], 1 << 20) {
            let message = Response::decode_message(&input[used..used + len]).unwrap();
            match message.response {
                Response::Entry(entry) => {
                    let value = entry.attributes.iter().find(|a| a.description == "description").unwrap();
                    assert_eq!(value.values.iter().next().unwrap().len(), LONG, "{}", entry.dn);
                    found.push((message.id.0, entry.dn.to_owned()));
                }
                response => {
                    assert_eq!(response.result().unwrap().1.code.0, 0);
                    done += 1;
                }
            }
            used += len;
        }
        input.drain(..used);
    }
    found
}

#[test]
fn everybody_is_answered_beside_small_searches_and_changes() {
    let (_site, server) = serving();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = SetAtEnd(&is_over);
        let huge: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut raw = connect(&server);
                    // Two on one connection, and one that finds nobody.
                    let nobody = search(4, SUFFIX, Scope::Subtree, NOBODY);
                    assert!(raw.send(&[everybody(2), everybody(3), nobody].concat()));
                    names(&mut raw, 3)
                })
            })
            .collect();
        let small: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut raw = connect(&server);
                    let mut id = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        id += 1;
                        let number = id as usize % PEOPLE;
                        let request = search(id, SUFFIX, Scope::Subtree, &format!("(cn=p{number})"));
                        let answer = raw.ask(&request).unwrap();
                        assert_eq!((answer.id, answer.code, answer.entries), (id, 0, 1));
                    }
                    id
                })
            })
            .collect();
        let changes = scope.spawn(|| {
            let mut raw = connect(&server);
            let mut id = 0;
            while !is_over.load(Ordering::Relaxed) {
                id += 1;
                let mut request = Vec::new();
                let text = id.to_string();
                let change = client::ClientChange {
                    operation: larix_proto::ModifyOperation::Replace,
                    attribute: client::ClientAttribute { description: "sn", values: &[text.as_str()] },
                };
                let dn = format!("cn=p{},{SUFFIX}", id as usize % PEOPLE);
                client::modify(&mut request, MessageId(id), &dn, &[change], &[]);
                assert_eq!(raw.ask(&request).unwrap().code, 0);
            }
        });
        for huge in huge {
            let found = huge.join().unwrap();
            for id in [2, 3] {
                let names: Vec<&String> =
                    found.iter().filter(|(of, _)| *of == id).map(|(_, dn)| dn).collect();
                assert_eq!(names.len(), PEOPLE);
                assert_eq!(names.into_iter().collect::<BTreeSet<_>>().len(), PEOPLE);
            }
        }
        drop(end);
        small.into_iter().for_each(|small| assert!(small.join().unwrap() > 0));
        changes.join().unwrap();
    });
    assert!(server.stop());
}

#[test]
fn abandoned_with_a_client_that_does_not_read() {
    let (_site, server) = serving();
    let mut raw = connect(&server);
    // Its answers are more than fits anywhere: it cannot be done before it is abandoned.
    assert!(raw.send(&everybody(2)));
    // A client that reads nothing is sent no more than its first window holds.
    let mut begun = vec![0; 1 << 16];
    until("its first window is full", || raw.socket.peek(&mut begun).unwrap() == begun.len());
    let mut abandon = Vec::new();
    client::abandon(&mut abandon, MessageId(3), MessageId(2), &[]);
    assert!(raw.send(&[abandon, search(4, SUFFIX, Scope::Base, "(objectClass=*)")].concat()));
    let answer = raw.answer().unwrap();
    assert_eq!((answer.id, answer.code), (4, 0), "the abandoned one has no result");
    assert!(answer.entries < PEOPLE, "{answer:?}");
    assert!(server.stop());
}

#[test]
fn the_server_stops_with_long_searches_in_every_state() {
    let (site, server) = serving();
    let mut connections: Vec<Raw> = (0..4).map(|_| connect(&server)).collect();
    for raw in &mut connections {
        // One waits for its client to read; of the others one is away, and the rest wait for their turn.
        let nobodies: Vec<u8> = (3..40).flat_map(|id| search(id, SUFFIX, Scope::Subtree, NOBODY)).collect();
        assert!(raw.send(&[everybody(2), nobodies].concat()));
    }
    connections[1].socket.shutdown(Shutdown::Write).unwrap();
    connections[2].socket.shutdown(Shutdown::Both).unwrap();
    connections.truncate(3);
    assert!(server.stop(), "it ends by itself and says that all is well");
    let again = site.start().unwrap();
    let mut raw = connect(&again);
    assert_eq!(raw.ask(&search(2, SUFFIX, Scope::Subtree, NOBODY)).unwrap().code, 0);
}
