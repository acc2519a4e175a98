//! `{SASL}` passwords: a real saslauthd is asked, which asks an IMAP server, which is this test.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use larix_testkit::{Kind, Server, Site, packages};
use larix_tests::raw::{Raw, bind};

const SASLAUTHD: &str = "/usr/sbin/saslauthd";
const SUFFIX: &str = "dc=example,dc=com";

/// Ended when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets `ann` in with `annpw`, whatever her realm, and nobody else.
fn imap(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let _ = stream.write_all(b"* OK [CAPABILITY IMAP4rev1] ready\r\n");
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
            let tag = line.split(' ').next().unwrap_or("*").to_owned();
            let right = line.contains("LOGIN") && line.contains("ann@example.com") && line.contains("annpw");
            let answer = match () {
                () if line.contains("LOGOUT") => "OK bye",
                () if right => "OK in",
                () => "NO out",
            };
            let _ = stream.write_all(format!("{tag} {answer}\r\n").as_bytes());
            line.clear();
        }
    }
}

fn site(settings: &str) -> Site {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "{settings}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n"
        ),
    );
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=ann,{SUFFIX}\nobjectClass: person\ncn: ann\nsn: a\nuserPassword: {{SASL}}ann@example.com\n\n\
         dn: cn=bob,{SUFFIX}\nobjectClass: person\ncn: bob\nsn: b\nuserPassword: {{sasl}}bob\n\n\
         dn: cn=both,{SUFFIX}\nobjectClass: person\ncn: both\nsn: c\nuserPassword: {{SASL}}bob\nuserPassword: own\n"
    ));
    site
}

fn ask(server: &Server, name: &str, password: &str) -> u32 {
    let mut connection = Raw::connect(server.address).unwrap();
    connection.ask(&bind(1, &format!("cn={name},{SUFFIX}"), password)).unwrap().code
}

#[test]
fn saslauthd_is_asked() {
    if packages::SASLAUTHD.is_lacking() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || imap(&listener));
    // One process: another one would go on when this one is killed.
    let mut saslauthd = Command::new(SASLAUTHD);
    saslauthd.args(["-a", "rimap", "-O", &format!("127.0.0.1/{port}"), "-n", "1", "-r", "-d", "-m"]);
    let child = saslauthd.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _daemon = Daemon(child);
    let socket = folder.path().join("mux");
    for _ in 0..1_000 {
        if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let site = site(&format!("sasl-saslauthd {}", socket.display()));
    let server = site.start().unwrap();
    for (name, password, expected) in [
        ("ann", "annpw", 0),
        ("ann", "wrong", 49),
        ("ann", "{SASL}ann@example.com", 49),
        ("bob", "annpw", 49),
        ("both", "own", 0),
        ("both", "{SASL}bob", 49),
        ("nobody", "annpw", 49),
    ] {
        assert_eq!(ask(&server, name, password), expected, "{name} {password}\n{}", server.log());
    }
    assert!(server.stop());
}

#[test]
fn without_saslauthd_nobody_is_let_in() {
    for settings in ["", "sasl-saslauthd /nowhere/mux"] {
        let site = site(settings);
        let server = site.start().unwrap();
        for (name, password, expected) in [("ann", "annpw", 49), ("ann", "", 53), ("both", "own", 0)] {
            assert_eq!(ask(&server, name, password), expected, "{settings}: {name} {password}");
        }
        assert!(server.stop());
    }
}
