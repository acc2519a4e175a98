//! `overlay remoteauth`: binds of entries without a userPassword that another server judges, a Larix and a slapd; wrong passwords, stored
//! ones, servers that are gone or silent, TLS and hashes of public keys.

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site, accepted, packages};
use larix_tests::client::Client;
use larix_tests::raw::{Answer, Raw, bind};
use larix_tests::relay::Relay;
use larix_tests::scenario::Step;
use larix_tests::secure::Secure;

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const INVALID_CREDENTIALS: u32 = 49;
const OPERATIONS_ERROR: u32 = 1;

const REMOTE: &str = "dn: dc=example,dc=com
objectClass: organization
objectClass: dcObject
o: Example
dc: example

dn: cn=ann,dc=example,dc=com
objectClass: person
cn: ann
sn: a
userPassword: annpw
";

const LOCAL: &str = "dn: dc=example,dc=com
objectClass: organization
objectClass: dcObject
o: Example
dc: example

dn: cn=policy,dc=example,dc=com
objectClass: applicationProcess
objectClass: pwdPolicy
cn: policy
pwdAttribute: userPassword
pwdLockout: TRUE
pwdMaxFailure: 3

dn: uid=ann,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: domainRelatedObject
uid: ann
cn: Ann
sn: Archer
associatedDomain: here:ann
seeAlso: cn=ann,dc=example,dc=com

dn: uid=bob,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: domainRelatedObject
uid: bob
cn: Bob
sn: Brewer
associatedDomain: here
seeAlso: cn=ann,dc=example,dc=com
userPassword: bobpw

dn: uid=eve,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: domainRelatedObject
uid: eve
cn: Eve
sn: Evans
associatedDomain: here
seeAlso:

dn: uid=dan,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: domainRelatedObject
uid: dan
cn: Dan
sn: Drake
associatedDomain: nowhere
seeAlso: cn=ann,dc=example,dc=com
";

struct Running {
    server: Server,
    site: Site,
}

fn start(kind: Kind, body: &str, ldif: &str) -> Running {
    let site = Site::new(kind, body);
    site.load(ldif);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    Running { server, site }
}

/// The server that judges.
fn remote(kind: Kind) -> Running {
    start(
        kind,
        &format!("database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n"),
        REMOTE,
    )
}

/// The server in front, with more lines behind the overlay's attributes.
fn front(kind: Kind, lines: &str, more: &str) -> Running {
    let module = if kind == Kind::Slapd { "moduleload remoteauth\n" } else { "" };
    start(
        kind,
        &format!(
            "{module}database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\noverlay remoteauth\n\
             remoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute associatedDomain\n{lines}\n{more}\n"
        ),
        // slapd knows a policy only with its overlay.
        &if more.contains("ppolicy") { LOCAL.to_owned() } else { without_policy() },
    )
}

fn without_policy() -> String {
    let (before, rest) = LOCAL.split_once("dn: cn=policy").unwrap();
    format!("{before}{}", &rest[rest.find("dn: uid=ann").unwrap()..])
}

fn login(address: SocketAddr, name: &str, password: &str) -> Answer {
    let mut connection = Raw::connect(address).unwrap();
    connection.ask(&bind(1, name, password)).unwrap()
}

fn code(address: SocketAddr, uid: &str, password: &str) -> u32 {
    login(address, &format!("uid={uid},{SUFFIX}"), password).code
}

/// Who is judged where, as slapd has it, too.
#[test]
fn the_other_server_judges_who_has_no_password_here() {
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let judge = remote(kind);
        for front_kind in [Kind::Larix, Kind::Slapd] {
            if front_kind.is_lacking() {
                continue;
            }
            let mapping =
                format!("remoteauth_mapping HERE {}\nremoteauth_tls starttls=no", judge.server.address);
            let front = front(front_kind, &mapping, "");
            let address = front.server.address;
            for (uid, password, expected) in [
                ("ann", "annpw", 0),
                ("ann", "wrong", INVALID_CREDENTIALS),
                ("ann", "annpw", 0),
                // A password of his own decides.
                ("bob", "annpw", INVALID_CREDENTIALS),
                ("bob", "bobpw", 0),
                // No servers for this domain.
                ("dan", "annpw", INVALID_CREDENTIALS),
                ("nobody", "annpw", INVALID_CREDENTIALS),
            ] {
                assert_eq!(
                    code(address, uid, password),
                    expected,
                    "{front_kind:?} before {kind:?}: {uid} {password}"
                );
            }
            assert_eq!(login(address, ADMIN, "secret").code, 0);
        }
    }
}

/// `overlay pbind`: each is judged under its own name, as slapd has it, too; whoever has a password here, as well.
#[test]
fn the_other_server_judges_all_under_their_names() {
    for kind in [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking()) {
        let relay = Relay::start();
        let module = if kind == Kind::Slapd { "moduleload back_ldap\n" } else { "" };
        let body = format!(
            "{module}database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\noverlay pbind\n\
             uri ldap://{}\nnetwork-timeout 20\n",
            relay.address
        );
        let judge = remote(Kind::Larix);
        relay.lead_to(judge.server.address);
        let local = REMOTE.replace("userPassword: annpw", "userPassword: herepw")
            + "\ndn: cn=bob,dc=example,dc=com\nobjectClass: person\ncn: bob\nsn: b\nuserPassword: bobpw\n";
        let front = start(kind, &body, &local);
        let address = front.server.address;
        let ann = format!("cn=ann,{SUFFIX}");
        for (name, password, expected) in [
            (ann.as_str(), "annpw", 0),
            (&ann, "wrong", INVALID_CREDENTIALS),
            (&ann, "herepw", INVALID_CREDENTIALS),
            // Nobody there, whatever there is here.
            (&format!("cn=bob,{SUFFIX}"), "bobpw", INVALID_CREDENTIALS),
            (&format!("cn=eve,{SUFFIX}"), "any", INVALID_CREDENTIALS),
            (ADMIN, "secret", 0),
        ] {
            assert_eq!(login(address, name, password).code, expected, "{kind:?}: {name} {password}");
        }
        judge.server.kill();
        assert_eq!(login(address, &ann, "annpw").code, 52, "{kind:?}");
        assert_eq!(login(address, ADMIN, "secret").code, 0);
    }
}

/// A name that is empty there would be an anonymous bind, which proves nothing.
#[test]
fn an_empty_name_is_nobody() {
    let judge = start(
        Kind::Larix,
        &format!(
            "allow bind_anon_cred\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n"
        ),
        REMOTE,
    );
    assert_eq!(login(judge.server.address, "", "any").code, 0, "the judge takes it");
    let front = front(Kind::Larix, &format!("remoteauth_mapping here {}", judge.server.address), "");
    assert_eq!(code(front.server.address, "eve", "any"), INVALID_CREDENTIALS);
}

/// As in slapd the policy's lock holds for who has no password here, and his wrong ones are counted by the server that judges them.
#[test]
fn an_account_that_is_locked_here() {
    let judge = remote(Kind::Larix);
    let mapping = format!("remoteauth_mapping here {}", judge.server.address);
    let policy = format!("overlay ppolicy\nppolicy_default cn=policy,{SUFFIX}");
    let front = front(Kind::Larix, &mapping, &policy);
    for _ in 0..3 {
        assert_eq!(code(front.server.address, "ann", "wrong"), INVALID_CREDENTIALS);
    }
    assert_eq!(code(front.server.address, "ann", "annpw"), 0);
    let mut admin = Client::connect(front.server.address);
    for request in [
        format!("as {ADMIN} secret"),
        format!("modify uid=ann,{SUFFIX}\n  add pwdAccountLockedTime: 000001010000Z"),
    ] {
        let answer = admin.run(&Step { request: request.clone(), ..Step::default() });
        assert!(answer.contains("=> 0"), "{request}: {answer}");
    }
    // Whatever the other server says.
    assert_eq!(code(front.server.address, "ann", "annpw"), INVALID_CREDENTIALS);
    assert_eq!(login(judge.server.address, &format!("cn=ann,{SUFFIX}"), "annpw").code, 0);
    assert!(!front.server.log().contains("annpw"), "{}", front.server.log());
}

/// Wrong passwords that the other server judged count for their address as all do, right ones do not, and an address that has to wait
/// costs the other server nothing.
#[test]
fn clients_are_limited_by_address() {
    let judge = remote(Kind::Larix);
    let relay = Relay::recording();
    relay.lead_to(judge.server.address);
    let front = start(
        Kind::Larix,
        &format!(
            "client-limits failures.address=3/h\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\n\
             directory @DATA@\noverlay remoteauth\nremoteauth_dn_attribute seeAlso\n\
             remoteauth_domain_attribute associatedDomain\nremoteauth_mapping here {}\n",
            relay.address
        ),
        &without_policy(),
    );
    let codes = |passwords: &[&str]| -> Vec<u32> {
        passwords.iter().map(|password| code(front.server.address, "ann", password)).collect()
    };
    assert_eq!(codes(&["annpw", "annpw", "annpw", "annpw", "annpw"]), [0; 5]);
    assert_eq!(codes(&["wrong", "wrong", "wrong"]), [INVALID_CREDENTIALS; 3]);
    // 51 busy, also for the right one, and without a word to the other server.
    let answers = || relay.recorded().iter().filter(|chunk| chunk.to_client).count();
    let before = answers();
    assert_eq!(codes(&["wrong", "annpw"]), [51, 51]);
    assert_eq!(answers(), before);
}

#[test]
fn a_password_is_stored_once_it_was_right() {
    let judge = remote(Kind::Larix);
    let mapping = format!("remoteauth_mapping here {}\nremoteauth_store on", judge.server.address);
    let front = front(Kind::Larix, &mapping, "");
    let address = front.server.address;
    assert_eq!(code(address, "ann", "wrong"), INVALID_CREDENTIALS);
    // Several at once store one value.
    std::thread::scope(|scope| {
        let logins: Vec<_> = (0..4).map(|_| scope.spawn(|| code(address, "ann", "annpw"))).collect();
        for login in logins {
            assert_eq!(login.join().unwrap(), 0);
        }
    });
    judge.server.kill();
    assert_eq!(code(address, "ann", "annpw"), 0);
    assert_eq!(code(address, "ann", "wrong"), INVALID_CREDENTIALS);
    assert!(front.server.stop());
    let output = Kind::Larix.tool("cat").arg("-f").arg(front.site.configuration()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ann =
        text.split("\n\n").find(|entry| entry.starts_with("dn: uid=ann")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(ann.matches("userPassword::").count(), 1, "{ann}");
    assert!(!ann.contains("YW5ucHc="), "{ann}");
}

/// As slapd's overlay: operationsError.
#[test]
fn a_server_that_is_gone() {
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let gone = free_port();
        let mapping = format!("remoteauth_mapping here 127.0.0.1:{gone}\nremoteauth_tls starttls=no");
        let front = front(kind, &mapping, "");
        let answer = login(front.server.address, &format!("uid=ann,{SUFFIX}"), "annpw");
        let (expected, text) = (OPERATIONS_ERROR, "remoteauth_bind operations error");
        assert_eq!((answer.code, answer.text.as_str()), (expected, text), "{kind:?}");
        assert_eq!(code(front.server.address, "bob", "bobpw"), 0, "{kind:?}");
    }
}

/// The next server of a list is asked; the list stands in a file.
#[test]
fn the_next_server_of_a_file() {
    let judge = remote(Kind::Larix);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    std::fs::write(&file, format!("127.0.0.1:{}\nldap://{}\n", free_port(), judge.server.address)).unwrap();
    let front = front(Kind::Larix, &format!("remoteauth_default_realm file://{}", file.display()), "");
    assert_eq!(code(front.server.address, "ann", "annpw"), 0);
    assert_eq!(code(front.server.address, "dan", "annpw"), 0);
}

/// It costs its own binds their time, and no others.
#[test]
fn a_server_that_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mapping = format!("remoteauth_mapping here {}", silent.local_addr().unwrap());
    let front = front(Kind::Larix, &mapping, "");
    let address = front.server.address;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| login(address, &format!("uid=ann,{SUFFIX}"), "annpw"));
        let _held = accepted(&silent);
        assert_eq!(code(address, "bob", "bobpw"), 0);
        assert!(!waiting.is_finished());
        let answer = waiting.join().unwrap();
        assert_eq!(
            (answer.code, answer.text.as_str()),
            (OPERATIONS_ERROR, "remoteauth_bind operations error")
        );
    });
}

/// What `openssl` says of a certificate's public key.
fn key_hash(certificate: &std::path::Path) -> String {
    let pipe = |program: &mut Command, input: Vec<u8>| {
        use std::io::Write;
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&input).unwrap();
        child.wait_with_output().unwrap().stdout
    };
    let key =
        Command::new("openssl").args(["x509", "-noout", "-pubkey", "-in"]).arg(certificate).output().unwrap();
    let der = pipe(Command::new("openssl").args(["pkey", "-pubin", "-outform", "der"]), key.stdout);
    let digest = pipe(Command::new("openssl").args(["dgst", "-sha256", "-binary"]), der);
    let text = pipe(Command::new("openssl").args(["base64", "-A"]), digest);
    format!("sha256:{}", String::from_utf8(text).unwrap())
}

#[test]
fn passwords_go_by_tls_to_the_server_that_is_meant() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let secure = Secure::start(Kind::Larix, "");
    let mut admin = Raw::connect(secure.server.address).unwrap();
    assert_eq!(admin.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let right = key_hash(&secure.path("server.pem"));
    let other = larix_testkit::Authority::new("Other");
    let stranger = secure.path("stranger.pem");
    std::fs::write(&stranger, other.certificate()).unwrap();
    other.server().write(secure.folder.path(), "other");
    let wrong = key_hash(&secure.path("other.pem"));
    let ca = secure.path("ca.pem").display().to_string();
    // The remote entry is the root DN: it has a password without any entry.
    let relay = Relay::recording();
    relay.lead_to(secure.server.address);
    let at = relay.address;
    let local = LOCAL.replace("cn=ann,dc=example,dc=com", ADMIN);
    for (what, lines, expected) in [
        ("an authority", format!("remoteauth_tls starttls=yes tls_cacert={ca}"), 0),
        (
            "another authority",
            format!("remoteauth_tls starttls=yes tls_cacert={}", stranger.display()),
            OPERATIONS_ERROR,
        ),
        (
            "a key",
            format!(
                "remoteauth_tls starttls=yes tls_reqcert=never\nremoteauth_tls_peerkey_hash 127.0.0.1 {right}"
            ),
            0,
        ),
        (
            "another key",
            format!(
                "remoteauth_tls starttls=yes tls_cacert={ca}\nremoteauth_tls_peerkey_hash 127.0.0.1 {wrong}"
            ),
            OPERATIONS_ERROR,
        ),
        (
            "no key for this host",
            format!(
                "remoteauth_tls starttls=yes tls_cacert={ca}\nremoteauth_tls_peerkey_hash elsewhere {right}"
            ),
            OPERATIONS_ERROR,
        ),
    ] {
        let policy = format!("overlay ppolicy\nppolicy_default cn=policy,{SUFFIX}");
        let body = format!(
            "database mdb\nsuffix {SUFFIX}\nrootdn cn=root,{SUFFIX}\nrootpw secret\ndirectory @DATA@\noverlay remoteauth\n\
             remoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute associatedDomain\nremoteauth_mapping here {at}\n{lines}\n{policy}\n"
        );
        let front = start(Kind::Larix, &body, &local);
        assert_eq!(code(front.server.address, "ann", "secret"), expected, "{what}: {}", front.server.log());
    }
    let bytes: Vec<u8> = relay.recorded().into_iter().flat_map(|chunk| chunk.bytes).collect();
    assert!(!bytes.is_empty());
    assert!(!bytes.windows(6).any(|window| window == b"secret"), "a password in clear");
}
