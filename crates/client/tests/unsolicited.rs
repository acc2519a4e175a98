//! Unsolicited notifications, which mean nothing to the blocking client.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use larix_client::{Ambient, ConnectionOptions, Session, TlsOptions};
use larix_proto::encode::{self, EntryEncoder};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{FilterBuf, LdapResult, MessageId, Response, Scope, client};

/// Who waits for so long and gets a notification has got no answer. The connection is not lost by that.
#[test]
fn a_notification_is_no_answer_to_wait_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut chunk = [0; 4_096];
        assert!(socket.read(&mut chunk).unwrap() > 0);
        let mut answers = Vec::new();
        EntryEncoder::begin(&mut answers, MessageId(1), "cn=a").finish(&[]);
        let (result, name) = (LdapResult::success(), Some("1.2.3"));
        encode::extended_result(&mut answers, MessageId(0), &result, name, None, &[]);
        socket.write_all(&answers).unwrap();
        // Behind the next request comes the next entry.
        assert!(socket.read(&mut chunk).unwrap() > 0);
        answers.clear();
        EntryEncoder::begin(&mut answers, MessageId(1), "cn=b").finish(&[]);
        socket.write_all(&answers).unwrap();
        let _ = socket.read(&mut chunk);
    });
    let url = LdapUrl::server(UrlScheme::Ldap, "127.0.0.1", Some(port));
    let ambient = Ambient { random: |_| {}, end_point_binding: |_| None };
    let options = ConnectionOptions::default();
    let mut session = Session::connect(&[url], &options, &TlsOptions::default(), ambient).unwrap();
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let search = client::Search::new("cn=x", Scope::Subtree, filter.as_filter());
    session.send(|out, id, _| client::search(out, id, &search, &[])).unwrap();
    let entry = session.connection.receive().unwrap();
    assert!(matches!(entry.response, Response::Entry(entry) if entry.dn == "cn=a"));
    // The notification is here already: it came with the entry.
    assert!(!session.connection.waits_within(Some(Duration::from_millis(10))).unwrap());
    session.send(|out, id, _| client::delete(out, id, "cn=x", &[])).unwrap();
    assert!(session.connection.waits_within(None).unwrap());
    let entry = session.connection.receive().unwrap();
    assert!(matches!(entry.response, Response::Entry(entry) if entry.dn == "cn=b"));
    drop(session);
    server.join().unwrap();
}
