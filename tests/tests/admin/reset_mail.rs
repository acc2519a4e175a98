//! Codes for forgotten passwords by mail: to the address of the entry alone, and nobody learns whether there is one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use larix_testkit::{Authority, accepted};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::http::{Answer, Fixture, Http, start_under};

const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";
const RESET: &str = "cn=reset,dc=example,dc=com";
/// How long a mail may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The account may set the passwords of people, but not that of Carl. The policy is the overlay's default one.
const RULES: &str = "overlay ppolicy\nppolicy_default cn=policy,dc=example,dc=com\n\
    access to dn.exact=uid=carl,ou=people,dc=example,dc=com attrs=userPassword by self =xw by anonymous auth by * none\n\
    access to dn.onelevel=ou=people,dc=example,dc=com attrs=userPassword \
    by dn.exact=cn=reset,dc=example,dc=com write by self =xw by anonymous auth by * none";
const MORE: &str = "dn: cn=policy,dc=example,dc=com\nchangetype: add\nobjectClass: pwdPolicy\nobjectClass: device\ncn: policy\n\
    pwdAttribute: userPassword\npwdMinLength: 8\npwdCheckQuality: 2\n\n\
    dn: cn=reset,dc=example,dc=com\nchangetype: add\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n\
    cn: reset\nuserPassword: resetpass\n\n\
    dn: uid=carl,ou=people,dc=example,dc=com\nchangetype: add\nobjectClass: inetOrgPerson\nuid: carl\ncn: Carl\nsn: Carl\n\
    mail: carl@example.com\n\n\
    dn: uid=ann,ou=people,dc=example,dc=com\nchangetype: modify\nadd: mail\nmail: ann@example.com\n";

/// What came: the address of the envelope, and the mail.
type Mails = Receiver<(String, String)>;

/// A mail server of one connection after the other.
fn mail_server(tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Mails) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mails) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mail = match &tls {
                None => conversation(stream),
                Some(config) => {
                    conversation(StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream))
                }
            };
            if let Some(mail) = mail
                && sender.send(mail).is_err()
            {
                return;
            }
        }
    });
    (address, mails)
}

/// As much of RFC 5321 as a sender needs.
fn conversation(stream: impl Read + Write) -> Option<(String, String)> {
    let mut stream = BufReader::new(stream);
    let (mut to, mut line) = (String::new(), String::new());
    stream.get_mut().write_all(b"220 here\r\n").ok()?;
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let answer = match line.trim_end().split([' ', ':']).next()? {
            "EHLO" | "MAIL" => "250 yes",
            "RCPT" => {
                line.trim_end().clone_into(&mut to);
                "250 yes"
            }
            "DATA" => "354 go on",
            _ => "502 no",
        };
        stream.get_mut().write_all(format!("{answer}\r\n").as_bytes()).ok()?;
        if answer.starts_with("354") {
            break;
        }
    }
    let mut mail = String::new();
    while !mail.ends_with("\r\n.\r\n") {
        stream.read_line(&mut mail).ok()?;
    }
    stream.get_mut().write_all(b"250 taken\r\n").ok()?;
    // QUIT.
    stream.read_line(&mut line).ok()?;
    stream.get_mut().write_all(b"221 bye\r\n").ok()?;
    Some((to, mail))
}

/// A server that mails by this one.
fn fixture(server: &str, more: &str) -> (tempfile::TempDir, Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "resetpass\n").unwrap();
    let fixture = start_under(
        &format!(
            "admin-password-reset mail server={server} from=directory@example.com url=https://directory.example.com/ \
             binddn={RESET} passfile={} lifetime=10m {more}\nlogfile @DATA@/log",
            password.display()
        ),
        RULES,
    );
    let mut admin = Http::new(fixture.http);
    admin.log_in("admin", "secret");
    let done = admin.post("/import", &[("format", "ldif"), ("text", MORE), ("step", "run")]);
    assert_eq!(done.status, 200, "{}", done.body);
    (folder, fixture)
}

fn ask(user: &mut Http, name: &str) -> Answer {
    user.get("/reset/mail");
    user.post("/reset/mail", &[("name", name)])
}

fn code_in(mail: &str) -> String {
    let line =
        mail.lines().find_map(|line| line.strip_prefix("    ")).unwrap_or_else(|| panic!("no code: {mail}"));
    assert_eq!(line.len(), 11, "{mail}");
    line.to_owned()
}

fn set(user: &mut Http, code: &str, new: &str) -> Answer {
    user.get("/reset");
    user.post("/reset", &[("name", "ann"), ("code", code), ("new", new), ("again", new)])
}

#[test]
fn a_mailed_code_sets_a_password_and_nobody_learns_of_accounts() {
    let (address, mails) = mail_server(None);
    let (_folder, fixture) = fixture(&format!("smtp://{address}"), "");
    let mut user = Http::new(fixture.http);
    assert!(user.get("/reset").body.contains("href=\"/reset/mail\""));

    // Nobody; Bob, who has no address; Carl, whose password the account may not set; Ann.
    let answers = ["nobody", "bob", "carl", "ann"].map(|name| ask(&mut user, name));
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (200, &answers[0].body));
    }
    let (to, mail) = mails.recv_timeout(PATIENCE).unwrap();
    assert_eq!(to, "RCPT TO:<ann@example.com>");
    for part in [
        "From: directory@example.com",
        "To: ann@example.com",
        "Auto-Submitted: auto-generated",
        "https://directory.example.com/reset within 10 minutes",
    ] {
        assert!(mail.contains(part), "{part}: {mail}");
    }
    for line in [
        "asked for from IP=127.0.0.1: no such account",
        "\"uid=bob,ou=people,dc=example,dc=com\" has no mail address",
        "may not set the password of \"uid=carl,ou=people,dc=example,dc=com\"",
        &format!("a code for a new password was mailed to \"{ANN}\""),
    ] {
        fixture.log_with(line);
    }
    assert!(mails.try_recv().is_err(), "one mail");

    // The policy holds. The code works once.
    let code = code_in(&mail);
    let short = set(&mut user, &code, "short");
    assert_eq!(short.status, 422, "{}", short.body);
    let done = set(&mut user, &code, "one long word");
    assert_eq!(done.status, 200, "{}", done.body);
    assert_eq!(Http::new(fixture.http).log_in("ann", "one long word").status, 303);
    assert_eq!(set(&mut user, &code, "another long word").status, 401);
    let line = format!("the password of \"{ANN}\" was set with a code made by \"{RESET}\"");
    let text = fixture.log_with(&line);
    assert!(!text.contains(&code) && !text.contains(&code.replace('-', "")) && !text.contains("resetpass"));

    // The fifth request of this address is the last one, whoever it names.
    user.get("/reset/mail");
    user.csrf = "0".repeat(64);
    assert_eq!(
        user.post("/reset/mail", &[("name", "ann")]).status,
        403,
        "a form of another site is not counted"
    );
    assert_eq!(ask(&mut user, "ann").status, 200);
    for name in ["ann", "nobody"] {
        let late = ask(&mut user, name);
        assert_eq!(late.status, 429, "{}", late.body);
        assert!(late.body.contains("Try again in 15 minutes."), "{}", late.body);
    }
    assert_ne!(code_in(&mails.recv_timeout(PATIENCE).unwrap().1), code);
    assert!(fixture.server.stop());
}

#[test]
fn a_mailed_code_opens_no_account_that_an_administrator_has_locked() {
    let (address, mails) = mail_server(None);
    let (_folder, fixture) = fixture(&format!("smtp://{address}"), "");
    let mut user = Http::new(fixture.http);
    assert_eq!(ask(&mut user, "ann").status, 200);
    let before = code_in(&mails.recv_timeout(PATIENCE).unwrap().1);
    let mut admin = Http::new(fixture.http);
    admin.log_in("admin", "secret");
    let mut lock = |action: &str| admin.post("/people/lock", &[("dn", ANN), ("action", action)]).status;
    assert_eq!(lock("lock"), 303);
    assert_eq!(set(&mut user, &before, "one long word").status, 401, "a code from before");
    assert_eq!(ask(&mut user, "ann").status, 200);
    fixture.log_with(&format!("\"{ANN}\" is locked"));
    assert!(mails.try_recv().is_err(), "no mail");
    assert_eq!(lock("unlock"), 303);
    assert_eq!(ask(&mut user, "ann").status, 200);
    let code = code_in(&mails.recv_timeout(PATIENCE).unwrap().1);
    assert_eq!(set(&mut user, &code, "one long word").status, 200);
    assert!(fixture.server.stop());
}

#[test]
fn a_mail_server_under_tls_has_to_have_a_certificate() {
    let authority = Authority::new("Mail");
    let issued = authority.server();
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("right.pem"), folder.path().join("wrong.pem"));
    std::fs::write(&right, authority.certificate()).unwrap();
    std::fs::write(&wrong, Authority::new("Other").certificate()).unwrap();
    for (authorities, arrives) in [(&right, true), (&wrong, false)] {
        let (address, mails) = mail_server(Some(config.clone()));
        let server = format!("smtps://localhost:{}", address.port());
        let (_folder, fixture) = fixture(&server, &format!("cacert={}", authorities.display()));
        assert_eq!(ask(&mut Http::new(fixture.http), "ann").status, 200);
        if arrives {
            code_in(&mails.recv_timeout(PATIENCE).unwrap().1);
        } else {
            fixture.log_with(&format!("no code was mailed to \"{ANN}\""));
            assert!(mails.try_recv().is_err());
        }
        assert!(fixture.server.stop());
    }
}

/// It costs the mails behind it a while, and the page nothing.
#[test]
fn a_mail_server_that_hangs_is_given_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (_folder, fixture) = fixture(&format!("smtp://{}", listener.local_addr().unwrap()), "");
    let mut user = Http::new(fixture.http);
    assert_eq!(ask(&mut user, "ann").status, 200);
    let stream = accepted(&listener);
    assert_eq!(Http::new(fixture.http).log_in("bob", "wrong").status, 401);
    fixture.log_with("the mail server did not answer within 10 s");
    drop(stream);
    assert!(fixture.server.stop());
}
