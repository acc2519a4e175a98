//! What the configuration says of connections, over real sockets: how long a request may be, how long a client may be silent, and on
//! which addresses a server listens.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use larix_proto::{MessageId, Scope, client};
use larix_testkit::{Kind, Server, Site, packages, until};
use larix_tests::raw::{Answer, Raw, bind, read_to_end, search};

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";

/// A directory with one entry; `global` comes first in its slapd.conf, `database` in its database.
fn start(global: &str, database: &str, urls: &[&str]) -> (Site, Server) {
    let body = format!(
        "{global}database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n{database}"
    );
    let site = Site::new(Kind::Larix, &body);
    site.load(&format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n"));
    let server = Server::start_on(Kind::Larix, &site.configuration(), urls, &["-d", "256"], &[])
        .unwrap_or_else(|error| panic!("{error}"));
    (site, server)
}

const USUAL: [&str; 1] = ["ldap://127.0.0.1:0/"];

fn entry(address: SocketAddr) -> Answer {
    let mut connection = Raw::connect(address).unwrap();
    connection.ask(&search(1, SUFFIX, Scope::Base, "(objectClass=*)")).unwrap()
}

#[test]
fn a_request_is_as_long_as_its_client_may_send_one() {
    let (_site, server) = start("sockbuf_max_incoming 2000\nsockbuf_max_incoming_auth 6000\n", "", &USUAL);
    let compare = |id: u32, length: usize| {
        let mut request = Vec::new();
        client::compare(&mut request, MessageId(id), SUFFIX, "dc", &vec![b'x'; length], &[]);
        request
    };
    for (is_bound, fits, too_long) in [(false, 1_500, 2_500), (true, 5_500, 6_500)] {
        let mut connection = Raw::connect(server.address).unwrap();
        if is_bound {
            assert_eq!(connection.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
        }
        let answer = connection.ask(&compare(2, fits)).unwrap();
        assert_eq!((answer.id, answer.code), (2, 5), "{answer:?}");
        let notice = connection.ask(&compare(3, too_long)).unwrap();
        assert_eq!((notice.id, notice.code), (0, 2), "{notice:?}");
        assert_eq!(read_to_end(&connection.socket), b"");
    }
    assert!(server.stop());
}

#[test]
fn a_request_may_be_of_any_length_where_the_limit_is_0() {
    let (_site, server) = start("sockbuf_max_incoming 0\nsockbuf_max_incoming_auth 0\n", "", &USUAL);
    let mut connection = Raw::connect(server.address).unwrap();
    // More than an anonymous client, and then one that has bound, may send by default.
    for (is_bound, length) in [(false, 300_000), (true, 17_000_000)] {
        if is_bound {
            assert_eq!(connection.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
        }
        let mut request = Vec::new();
        client::compare(&mut request, MessageId(2), SUFFIX, "dc", &vec![b'x'; length], &[]);
        let answer = connection.ask(&request).unwrap();
        assert_eq!((answer.id, answer.code), (2, 5), "{answer:?}");
    }
    assert!(server.stop());
}

#[test]
fn a_client_that_is_silent_for_too_long_is_disconnected() {
    let (_site, server) = start("idletimeout 3\n", "", &USUAL);
    let mut idle = Raw::connect(server.address).unwrap();
    let request = search(1, SUFFIX, Scope::Base, "(objectClass=*)");
    assert_eq!(idle.ask(&request).unwrap().code, 0);
    read_to_end(&idle.socket);
    until("the log has the reason", || server.log().contains("closed (idletimeout)"));
    assert_eq!(entry(server.address).code, 0);
    assert!(server.stop());
}

#[test]
fn addresses_of_both_versions_are_listened_on_and_told_apart() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        packages::note_lack("IPv6 on loopback");
        return;
    }
    let rules = "access to * by peername.ipv6=::1 read by * none\n";
    let (_site, server) = start("", rules, &["ldap://127.0.0.1:0/", "ldap://[::1]:0/"]);
    let by_6 = entry(SocketAddr::from((Ipv6Addr::LOCALHOST, server.ports[1])));
    assert_eq!((by_6.code, by_6.entries), (0, 1), "{by_6:?}");
    let by_4 = entry(server.address);
    assert_eq!((by_4.code, by_4.entries), (32, 0), "{by_4:?}");
    until("the log has the address", || server.log().contains("ACCEPT from IP=[::1]:"));
    assert!(server.stop());
}
