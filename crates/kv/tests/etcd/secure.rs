//! TLS with etcd, and its users.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use larix_kv::KvOptions;
use larix_testkit::etcd::Etcd;
use larix_testkit::{Authority, self_signed};
use rcgen::PKCS_ECDSA_P256_SHA256;
use tempfile::TempDir;

use crate::{commit, get, in_time, open, put, unhurried};

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[test]
fn tls_proves_who_answers_and_who_asks() {
    let authority = Authority::new("engines");
    let served = authority.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |_| {});
    let clients = Authority::new("nodes");
    let Some(etcd) = Etcd::start_with_tls(&served, &clients) else { return };
    let folder = TempDir::new().expect("a folder");
    let node = clients.issue(&PKCS_ECDSA_P256_SHA256, "node", |_| {});
    let stranger = self_signed(|_| {});
    let (root, other) = (
        file(&folder, "root.pem", &authority.certificate()),
        file(&folder, "other.pem", &clients.certificate()),
    );
    let (cert, key) = (file(&folder, "node.pem", &node.certificate), file(&folder, "node.key", &node.key));
    let (bad_cert, bad_key) =
        (file(&folder, "bad.pem", &stranger.certificate), file(&folder, "bad.key", &stranger.key));
    let at = |query: &str| open(&format!("etcd://localhost:{}/p?{query}", etcd.port()), &unhurried());
    let store = at(&format!("cacert={root}&cert={cert}&key={key}")).expect("open");
    commit(&store, &put(b"a", b"1")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
    for (query, expected) in [
        (format!("cacert={other}&cert={cert}&key={key}"), "cacert (now "),
        (format!("cacert={root}"), "--trusted-ca-file"),
        (format!("cacert={root}&cert={bad_cert}&key={bad_key}"), "--trusted-ca-file"),
        (format!("cacert={root}x&cert={cert}&key={key}"), "root.pemx"),
        ("tls=off".to_owned(), "localhost"),
    ] {
        let text = at(&query).expect_err("refused").to_string();
        assert!(text.contains(expected), "{query}: {text}");
    }
}

#[test]
fn users_are_let_in_by_their_passwords() {
    let Some(etcd) = Etcd::start() else { return };
    for words in [
        &["user", "add", "root:never-shown"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "larix:never-shown"],
        &["role", "add", "directory"],
        &["role", "grant-permission", "directory", "--prefix=true", "readwrite", "/directory/"],
        &["user", "grant-role", "larix", "directory"],
        &["user", "add", "reader:never-shown"],
        &["role", "add", "reader"],
        &["role", "grant-permission", "reader", "--prefix=true", "read", "/directory/"],
        &["user", "grant-role", "reader", "reader"],
    ] {
        etcd.ctl(words).expect("users");
    }
    let at = |user: &str, prefix: &str| {
        open(&etcd.address(prefix).replace("etcd://", &format!("etcd://{user}")), &unhurried())
    };
    let text = at("larix:never-shown@", "directory").expect_err("nobody is asked").to_string();
    assert!(text.contains("take user and password out"), "{text}");
    etcd.ctl(&["auth", "enable"]).expect("enabled");
    let store = at("larix:never-shown@", "directory").expect("open");
    commit(&store, &put(b"a", b"1")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
    for (user, prefix, expected) in [
        ("larix:never-shown-either@", "directory", "the user or the password in the address is wrong"),
        ("nobody:never-shown@", "directory", "the user or the password in the address is wrong"),
        ("larix:never-shown@", "elsewhere", "grant the user's role readwrite"),
        ("", "directory", "etcd wants a user"),
    ] {
        let text = at(user, prefix).expect_err("refused").to_string();
        assert!(text.contains(expected), "{user}: {text}");
        assert!(!text.contains("never-shown"), "{text}");
    }
    let reader = at("reader:never-shown@", "directory").expect("it may read");
    let text = commit(&reader, &put(b"a", b"2")).expect_err("refused").to_string();
    assert!(text.contains("grant the user's role readwrite"), "{text}");
    assert_eq!(get(&reader, b"a").as_deref(), Some(&b"1"[..]));
}

/// How often etcd was asked for a token.
fn logins(etcd: &Etcd) -> u64 {
    let mut connection = TcpStream::connect(("127.0.0.1", etcd.port())).expect("etcd");
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asked");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("an answer");
    let of_login =
        |line: &&str| line.starts_with("grpc_server_started_total{") && line.contains("\"Authenticate\"");
    let line = text.lines().find(of_login).expect("a count");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// One member with users: it refuses requests without a password.
fn with_users() -> Option<Etcd> {
    let etcd = Etcd::start()?;
    for words in [
        &["user", "add", "root:never-shown"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(words).expect("users");
    }
    Some(etcd)
}

/// A login takes etcd longer than thousands of reads, and all threads lack a token at the same moment: as behind a restart of etcd.
#[test]
fn one_thread_logs_in_for_all() {
    const THREADS: usize = 16;
    let Some(etcd) = with_users() else { return };
    let address = etcd.address("directory").replace("etcd://", "etcd://root:never-shown@");
    let store = open(&address, &unhurried()).expect("open");
    commit(&store, &put(b"a", b"1")).expect("commit");
    etcd.ctl(&["--user", "root:never-shown", "auth", "disable"]).expect("tokens are forgotten");
    etcd.ctl(&["auth", "enable"]).expect("enabled");
    let before = logins(&etcd);
    let all = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                all.wait();
                assert_eq!(get(&store, b"a").as_deref(), Some(&b"1"[..]));
            });
        }
    });
    let asked = logins(&etcd) - before;
    assert!(asked <= 1, "{asked} logins");
}

/// One whose process has stopped, say: its connections are made all the same.
#[test]
fn a_member_that_does_not_let_in_is_passed_over() {
    let Some(etcd) = with_users() else { return };
    let stopped = TcpListener::bind("127.0.0.1:0").expect("a port");
    let first = format!("etcd://root:never-shown@{},", stopped.local_addr().expect("its address"));
    let address = etcd.address("directory").replace("etcd://", &first);
    let options = KvOptions { deadline: Duration::from_secs(6), ..unhurried() };
    let store = in_time("it opens", || open(&address, &options).ok());
    commit(&store, &put(b"a", b"1")).expect("commit");
}
