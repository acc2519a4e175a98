//! The log as its readers find it: objects and lines in a file, which may be moved away while the server runs.

use std::path::Path;

use larix_proto::client::ClientAttribute;
use larix_proto::control::{ControlValue, ProxiedAuthorization};
use larix_proto::{MessageId, client};
use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Server, Site, until};
use larix_tests::client::{Client, run};
use larix_tests::raw::{Raw, bind, replace};
use serde_json::Value;

/// A server of an example whose log file is the first of these names, configured by these lines.
fn start(lines: &str) -> (Site, Server, std::path::PathBuf) {
    let site = Site::example(Kind::Larix);
    site.load(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n",
    );
    let path = site.path().join("larix.log");
    let text = std::fs::read_to_string(site.configuration()).expect("the configuration");
    let lines = format!("loglevel stats\nlogfile {}\nlogfile-only on\n{lines}\n", path.display());
    std::fs::write(site.configuration(), lines + &text).expect("the same");
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    (site, server, path)
}

fn compare(server: &Server, value: &[u8]) {
    let mut connection = Client::connect(server.address);
    let mut request = Vec::new();
    client::compare(&mut request, MessageId(1), "dc=example,dc=com", "dc", value, &[]);
    assert_eq!(connection.exchange(&request).len(), 1);
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn operations_are_objects_without_values() {
    let (_site, server, path) = start("log-format json\nslow-operation 3600000");
    compare(&server, b"hidden-value");
    assert!(server.stop());
    let written = read(&path);
    let objects: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    assert!(objects.iter().all(|object| object["time"].is_string() && object["severity"].is_string()));
    let operations: Vec<&Value> = objects.iter().filter(|object| object["operation"].is_string()).collect();
    let [operation] = operations.as_slice() else { panic!("{operations:?}") };
    assert_eq!(operation["operation"], "compare");
    assert_eq!(operation["dn"], "dc=example,dc=com");
    assert_eq!(operation["attribute"], "dc");
    assert_eq!(operation["result"], 5);
    assert!(operation["time_us"].is_u64() && operation["slow"].is_null(), "{operation}");
    assert!(!written.contains("hidden-value"), "{written}");
    assert!(objects.iter().any(|object| object["message"] == "slapd stopped."), "{written}");
}

/// A change is made though its client does not wait for the answer.
#[test]
fn a_request_without_an_answer_is_an_object_too() {
    const CLIENTS: usize = 20;
    let (_site, server, path) = start("log-format json");
    for _ in 0..CLIENTS {
        let mut connection = Raw::connect(server.address).expect("a connection");
        assert!(connection.send(&bind(1, "cn=admin,dc=example,dc=com", "secret")));
        assert!(connection.answer().is_some());
        let mut requests = replace(2, "dc=example,dc=com", "description", "x");
        client::unbind(&mut requests, MessageId(3));
        assert!(connection.send(&requests));
    }
    let is_change = |line: &&str| line.contains("\"operation\":\"modify\"");
    until("each change is in the log", || read(&path).lines().filter(is_change).count() == CLIENTS);
    assert!(server.stop());
}

#[test]
fn a_file_that_was_moved_is_followed_by_a_new_one() {
    let (site, server, path) = start("logfile-format syslog-utc");
    compare(&server, b"example");
    // A line is on its way for a moment when its answer is there.
    until("the result is in the log", || read(&path).contains(" RESULT "));
    let aside = site.path().join("aside.log");
    std::fs::rename(&path, &aside).expect("the log file");
    assert!(signal(server.process_id(), Signal::USR1));
    until("a new file is there", || path.exists());
    assert!(server.stop());
    let (before, after) = (read(&aside), read(&path));
    assert!(before.contains(" RESULT tag=111 err=6 "), "{before}");
    assert!(after.contains("slapd stopped.") && !before.contains("slapd stopped."), "{after}");
    let first = before.lines().next().unwrap_or_default();
    assert!(first.contains("T") && first.contains("Z ") && first.contains("]: "), "{first}");
}

/// A bind ends the identity before it, and a control names another one: who reads the log for what somebody did needs both lines of slapd.
#[test]
fn identities_that_end_or_are_assumed_have_lines() {
    let (_site, server, path) = start("");
    let mut connection = Client::connect(server.address);
    let root = "cn=admin,dc=example,dc=com";
    for (id, password) in [(1, "secret"), (2, "wrong"), (3, "secret")] {
        assert_eq!(connection.exchange(&bind(id, root, password)).len(), 1);
    }
    let other = ProxiedAuthorization { authorization_id: "dn:dc=Example,dc=com" }.to_control(true);
    let mut request = Vec::new();
    client::compare(&mut request, MessageId(4), "dc=example,dc=com", "dc", b"example", &[other]);
    assert_eq!(connection.exchange(&request).len(), 1);
    assert_eq!(connection.exchange(&bind(5, "", "")).len(), 1);
    assert!(server.stop());
    let written = read(&path);
    let lines = |text: &str| -> Vec<String> {
        let found = written.lines().filter(|line| line.contains(text));
        found.filter_map(|line| Some(line.split_once(" op=")?.1.to_owned())).collect()
    };
    let implicit = |serial: u32| format!("{serial} BIND anonymous mech=implicit bind_ssf=0 ssf=0");
    // The bind behind the one that failed finds nobody.
    assert_eq!(lines("mech=implicit"), [implicit(1), implicit(4)], "{written}");
    assert_eq!(lines("PROXYAUTHZ"), ["3 PROXYAUTHZ dn=\"dc=example,dc=com\""], "{written}");
}

#[test]
fn what_takes_long_has_a_line_of_its_own() {
    let (_site, server, path) = start("slow-operation 1");
    let mut connection = Client::connect(server.address);
    for request in [
        "as cn=admin,dc=example,dc=com secret",
        // Argon2id takes more than a millisecond on any machine.
        "passwd dc=example,dc=com new=long",
        "as dc=example,dc=com long",
    ] {
        assert_eq!(run(&mut connection, request), "=> 0\n", "{request}");
    }
    assert!(server.stop());
    let written = read(&path);
    for line in
        ["op=1 SLOW EXT oid=1.3.6.1.4.1.4203.1.11.1 err=0 ", "op=2 SLOW BIND dn=\"dc=example,dc=com\" err=0 "]
    {
        assert!(written.contains(line), "{line}: {written}");
    }
}

/// By the size that the configuration says: one file aside, and no more.
#[test]
fn a_file_that_is_large_is_put_aside() {
    const REQUESTS: u32 = 4_000;
    let (site, server, path) = start("logfile-rotate 1 1 0");
    // A line of 250 bytes and one of 100 for each.
    let name = format!("cn={},dc=example,dc=com", "x".repeat(200));
    let mut requests = Vec::new();
    (1..=REQUESTS).for_each(|id| client::compare(&mut requests, MessageId(id), &name, "dc", b"x", &[]));
    let mut connection = Raw::connect(server.address).expect("a connection");
    assert!(connection.send(&requests));
    (1..=REQUESTS).for_each(|id| assert_eq!(connection.answer().expect("an answer").id, id));
    until("the file was put aside", || site.path().join("larix.log.01").exists());
    assert!(server.stop());
    let aside = std::fs::metadata(site.path().join("larix.log.01")).expect("the file aside").len();
    assert!((1 << 19..=1 << 20).contains(&aside), "{aside} bytes");
    assert!(read(&path).contains("slapd stopped.") && !site.path().join("larix.log.02").exists());
}

/// What an overlay reports has names of entries in it: a line end in one of them makes no line.
#[test]
fn an_overlay_writes_one_line_for_each_report() {
    let (site, server, path) = start("");
    assert!(server.stop());
    // Nobody can make a folder there.
    let overlay =
        "overlay homedir\nhomedir-regexp ^/home/([a-z]+)$ /proc/nowhere/$1\nhomedir-min-uidnumber 1\n";
    std::fs::write(site.configuration(), read(&site.configuration()) + overlay).expect("the configuration");
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = Client::connect(server.address);
    let mut request = Vec::new();
    client::simple_bind(&mut request, MessageId(1), "cn=admin,dc=example,dc=com", b"secret", &[]);
    assert_eq!(connection.exchange(&request).len(), 1);
    request.clear();
    let attributes = [
        ClientAttribute { description: "objectClass", values: &["account", "posixAccount"] },
        ClientAttribute { description: "uid", values: &["a\nb"] },
        ClientAttribute { description: "cn", values: &["a"] },
        ClientAttribute { description: "uidNumber", values: &["1000"] },
        ClientAttribute { description: "gidNumber", values: &["1000"] },
        ClientAttribute { description: "homeDirectory", values: &["/home/ann"] },
    ];
    client::add(&mut request, MessageId(2), "uid=a\\0Ab,dc=example,dc=com", &attributes, &[]);
    assert_eq!(connection.exchange(&request).len(), 1);
    until("the overlay has reported", || read(&path).contains("overlay homedir: "));
    assert!(server.stop());
    let written = read(&path);
    assert!(
        written.contains("overlay homedir: \"uid=a#0Ab,dc=example,dc=com\": /proc/nowhere/ann"),
        "{written}"
    );
}
