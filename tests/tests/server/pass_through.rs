//! `{SASL}` passwords: a real saslauthd is asked, which asks an IMAP server, which is this test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::extended::{ExtendedValue, PasswordModify};
use larix_proto::{MessageId, ModifyOperation, client, oid};
use larix_testkit::{Kind, Running, Server, Site, packages, until};
use larix_tests::raw::{Raw, bind};

const SASLAUTHD: &str = "/usr/sbin/saslauthd";
const SUFFIX: &str = "dc=example,dc=com";

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
    let _daemon = Running(child);
    let socket = folder.path().join("mux");
    until("saslauthd listens", || UnixStream::connect(&socket).is_ok());
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

/// Answers as saslauthd does: `ann` is let in with `annpw`. Questions about `bob` are `held` without an answer while there is a list.
fn program(listener: &UnixListener, held: &Mutex<Option<Vec<UnixStream>>>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let parts = [(); 4].map(|()| {
            let mut count = [0; 2];
            stream.read_exact(&mut count).unwrap();
            let mut part = vec![0; usize::from(u16::from_be_bytes(count))];
            stream.read_exact(&mut part).unwrap();
            String::from_utf8(part).unwrap()
        });
        if parts[0] == "bob"
            && let Some(held) = &mut *held.lock().unwrap()
        {
            held.push(stream);
            continue;
        }
        let answer: &[u8] = if parts[..2] == ["ann", "annpw"] { b"OK" } else { b"NO" };
        let _ = stream.write_all(&[&[0, 2][..], answer].concat());
    }
}

fn password_modify(name: &str, old: Option<&str>, new: &str) -> Vec<u8> {
    let dn = format!("cn={name},{SUFFIX}");
    let request =
        PasswordModify { user: Some(dn.as_bytes()), old: old.map(str::as_bytes), new: Some(new.as_bytes()) };
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(2), oid::PASSWORD_MODIFY, request.encode().as_deref(), &[]);
    out
}

/// The old password is deleted and the new one added.
fn modify(name: &str, old: &str, new: &str) -> Vec<u8> {
    let changes = [(ModifyOperation::Delete, [old]), (ModifyOperation::Add, [new])];
    let changes: Vec<_> = changes
        .iter()
        .map(|(operation, values)| ClientChange {
            operation: *operation,
            attribute: ClientAttribute { description: "userPassword", values },
        })
        .collect();
    let mut out = Vec::new();
    client::modify(&mut out, MessageId(3), &format!("cn={name},{SUFFIX}"), &changes, &[]);
    out
}

#[test]
fn an_old_password_that_saslauthd_knows_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mux");
    let listener = UnixListener::bind(&socket).unwrap();
    let held = Arc::new(Mutex::new(Some(Vec::new())));
    let holds = Arc::clone(&held);
    std::thread::spawn(move || program(&listener, &holds));
    let site = Site::new(
        Kind::Larix,
        &format!(
            "sasl-saslauthd {}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\n\
             directory @DATA@\noverlay ppolicy\nppolicy_default cn=policy,{SUFFIX}\n\
             access to attrs=userPassword by self write by anonymous auth\naccess to * by * read\n",
            socket.display()
        ),
    );
    let person = |name: &str, password: &str| {
        format!(
            "dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: s\nuserPassword: {password}\n\n"
        )
    };
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=policy,{SUFFIX}\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 1\n\n{}{}{}{}",
        person("ann", "{SASL}ann@example.com"),
        person("amy", "{SASL}ann@example.com"),
        person("bob", "{SASL}bob"),
        person("eve", "evepw")
    ));
    let server = site.start().unwrap();
    let connect = |dn: &str, password: &str| {
        let mut connection = Raw::connect(server.address).unwrap();
        assert_eq!(connection.ask(&bind(1, dn, password)).unwrap().code, 0, "{dn}");
        connection
    };
    let admin = || connect(&format!("cn=admin,{SUFFIX}"), "secret");

    // The policy hears that it was right.
    let mut ann = connect(&format!("cn=ann,{SUFFIX}"), "annpw");
    let changed = ann.ask(&password_modify("ann", Some("annpw"), "annother")).unwrap();
    assert_eq!(changed.code, 0, "{}", changed.text);
    assert_eq!(ask(&server, "ann", "annother"), 0);

    // The same by a modify request.
    let mut amy = connect(&format!("cn=amy,{SUFFIX}"), "annpw");
    let changed = amy.ask(&modify("amy", "annpw", "amynew")).unwrap();
    assert_eq!(changed.code, 0, "{}", changed.text);
    assert_eq!(ask(&server, "amy", "amynew"), 0);

    // A program that is silent keeps nobody else waiting: more questions than there are threads that hash.
    let asked = std::thread::available_parallelism().map_or(2, usize::from) + 1;
    let waiting: Vec<_> = (0..asked)
        .map(|_| {
            let mut connection = admin();
            assert!(connection.send(&password_modify("bob", Some("bobpw"), "bobother")));
            connection
        })
        .collect();
    until("saslauthd is asked", || held.lock().unwrap().as_ref().is_some_and(|held| !held.is_empty()));
    let mut other = admin();
    other.socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let changed = other.ask(&password_modify("eve", None, "evenew"));
    assert_eq!(changed.map(|changed| changed.code), Some(0), "it waits behind saslauthd");
    *held.lock().unwrap() = None;
    drop(waiting);
    assert!(server.stop());
}
