//! `overlay autoca`: an authority in the suffix entry, keys and certificates made by searches; who gets them, what openssl says of them,
//! many searches at once, and the server's own certificate.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{FilterBuf, MessageId, ModifyOperation, Response, Scope, client};
use larix_testkit::{Kind, Server, Site, packages};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const ANN: &str = "cn=Ann Archer,ou=People,dc=example,dc=com";
const BOB: &str = "cn=Bob Brewer,ou=People,dc=example,dc=com";
const HOST: &str = "cn=ldap.example.com,ou=Hosts,dc=example,dc=com";
const PAIR: [&str; 2] = ["userCertificate;binary", "userPrivateKey;binary"];

const LDIF: &str = "dn: dc=example,dc=com
objectClass: organization
objectClass: dcObject
o: Example
dc: example

dn: ou=People,dc=example,dc=com
objectClass: organizationalUnit
ou: People

dn: ou=Hosts,dc=example,dc=com
objectClass: organizationalUnit
ou: Hosts

dn: cn=Ann Archer,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
cn: Ann Archer
sn: Archer
mail: ann@example.com
userPassword: annpw

dn: cn=Bob Brewer,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
cn: Bob Brewer
sn: Brewer
userPassword: bobpw

dn: cn=ldap.example.com,ou=Hosts,dc=example,dc=com
objectClass: device
objectClass: ipHost
cn: ldap.example.com
cn: a name with blanks
ipHostNumber: 127.0.0.1
ipHostNumber: ::1
";

struct Running {
    server: Server,
    site: Site,
}

fn start(lines: &str) -> Running {
    start_kind(Kind::Larix, lines).unwrap()
}

/// `None`: such a server has no overlay autoca, as Debian's slapd has none.
fn start_kind(kind: Kind, lines: &str) -> Option<Running> {
    let is_module = kind == Kind::Slapd && std::env::var("SLAPD_MODULES").as_deref() != Ok("");
    let module = if is_module { "moduleload autoca\n" } else { "" };
    let site = Site::new(
        kind,
        &format!(
            "{module}database config\nrootdn cn=config\nrootpw secret\n\
             database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             access to attrs=pKCS8PrivateKey by self read\naccess to * by * read\n\
             overlay autoca\n{lines}\n"
        ),
    );
    let test = kind.tool("test").arg("-u").arg("-f").arg(site.configuration()).output().unwrap();
    if kind == Kind::Slapd && !test.status.success() {
        return None;
    }
    site.load(LDIF);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    Some(Running { server, site })
}

fn connect(address: SocketAddr, dn: &str, password: &str) -> Client {
    let mut connection = Client::connect(address);
    let mut out = Vec::new();
    client::simple_bind(&mut out, MessageId(9), dn, password.as_bytes(), &[]);
    connection.exchange(&out);
    connection
}

/// Of each entry that is answered, the first values of the attributes; then the result's code and text.
type SearchAnswer = (Vec<(String, Vec<Option<Vec<u8>>>)>, u32, String);

fn ask(connection: &mut Client, base: &str, scope: Scope, attributes: &[&str]) -> SearchAnswer {
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let mut out = Vec::new();
    let request = client::Search { attributes, ..client::Search::new(base, scope, filter.as_filter()) };
    client::search(&mut out, MessageId(7), &request, &[]);
    let (mut entries, mut code, mut text) = (Vec::new(), u32::MAX, String::new());
    for pdu in connection.exchange(&out) {
        let message = Response::decode_message(&pdu).unwrap();
        if let Response::Entry(entry) = &message.response {
            let values = attributes.iter().map(|name| {
                let found =
                    entry.attributes.iter().find(|found| found.description.eq_ignore_ascii_case(name));
                found.and_then(|found| found.values.iter().next().map(<[u8]>::to_vec))
            });
            entries.push((entry.dn.to_owned(), values.collect()));
        }
        if let Some((_, result)) = message.response.result() {
            (code, text) = (result.code.0, result.diagnostic.to_owned());
        }
    }
    (entries, code, text)
}

/// The certificate and key of one entry.
fn pair(connection: &mut Client, base: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (entries, code, text) = ask(connection, base, Scope::Base, &PAIR);
    assert_eq!((code, &*text), (0, ""), "{base}");
    let (_, values) = entries.into_iter().next()?;
    let mut values = values.into_iter();
    Some((values.next()??, values.next()??))
}

fn openssl(arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "openssl {arguments:?}: {text}");
    text
}

/// Writes a certificate as PEM.
fn pem(folder: &Path, name: &str, certificate: &[u8]) -> PathBuf {
    let path = folder.join(name);
    let text = openssl(&["x509", "-inform", "der"], certificate);
    std::fs::write(&path, text).unwrap();
    path
}

/// openssl's words about a certificate, once it was seen to fit its key and to come from the authority.
fn checked(folder: &Path, authority: &Path, (certificate, key): &(Vec<u8>, Vec<u8>)) -> String {
    let path = pem(folder, "one.pem", certificate);
    let (authority, path) = (authority.to_str().unwrap(), path.to_str().unwrap());
    assert!(openssl(&["verify", "-x509_strict", "-CAfile", authority, path], b"").contains("OK"));
    let public = openssl(&["x509", "-inform", "der", "-noout", "-pubkey"], certificate);
    assert_eq!(public, openssl(&["pkey", "-inform", "der", "-pubout"], key));
    openssl(
        &["x509", "-inform", "der", "-noout", "-subject", "-ext", "subjectAltName,keyUsage,extendedKeyUsage"],
        certificate,
    )
}

fn seconds(certificate: &[u8]) -> i64 {
    let date = |which: &str| {
        let text = openssl(&["x509", "-inform", "der", "-noout", which, "-dateopt", "iso_8601"], certificate);
        let text = text.trim().split_once('=').unwrap().1.to_owned();
        let output = Command::new("date").args(["-u", "+%s", "-d", &text]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse::<i64>().unwrap()
    };
    date("-enddate") - date("-startdate")
}

#[test]
fn certificates_come_from_the_authority_and_fit_their_keys() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let running = start("userDays 30\ncaDays 40");
    let folder = running.site.path();
    let mut root = connect(running.server.address, ADMIN, "secret");
    let (found, ..) = ask(&mut root, SUFFIX, Scope::Base, &["cACertificate;binary", "cAPrivateKey;binary"]);
    let authority = found[0].1[0].clone().expect("there is an authority once somebody asks");
    let authority_path = pem(folder, "authority.pem", &authority);
    let text =
        openssl(&["x509", "-inform", "der", "-noout", "-subject", "-ext", "basicConstraints"], &authority);
    assert!(text.contains("DC = com, DC = example") || text.contains("DC=com, DC=example"), "{text}");
    assert!(text.contains("critical") && text.contains("CA:TRUE"), "{text}");
    assert_eq!(seconds(&authority), 40 * 86_400);

    let ann = pair(&mut connect(running.server.address, ANN, "annpw"), ANN).expect("a key of her own");
    let text = checked(folder, &authority_path, &ann);
    for word in ["Ann Archer", "email:ann@example.com", "TLS Web Client Authentication", "Non Repudiation"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(seconds(&ann.0), 30 * 86_400);
    let host = pair(&mut root, HOST).expect("a key of the host");
    let text = checked(folder, &authority_path, &host);
    for word in [
        "DNS:ldap.example.com",
        "IP Address:127.0.0.1",
        "IP Address:0:0:0:0:0:0:0:1",
        "TLS Web Server Authentication",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("blanks"), "{text}");
    assert_eq!(seconds(&host.0), 1_826 * 86_400);
    // Once is enough.
    assert_eq!(pair(&mut root, HOST), Some(host));
    let classes = root.run(&step(&format!("search \"{ANN}\" base (objectClass=autoCAuser) 1.1")));
    assert!(classes.contains("Ann Archer"), "{classes}");
}

fn step(request: &str) -> Step {
    Step { request: request.to_owned(), ..Step::default() }
}

#[test]
fn who_gets_a_key() {
    let running = start("");
    let address = running.server.address;
    let has_key = || {
        let mut root = connect(address, ADMIN, "secret");
        let (found, ..) = ask(&mut root, SUFFIX, Scope::Subtree, &["userPrivateKey;binary"]);
        let with = found.into_iter().filter(|(_, values)| values[0].is_some());
        with.map(|(dn, _)| dn).collect::<Vec<_>>()
    };
    let mut bob = connect(address, BOB, "bobpw");
    let mut nobody = Client::connect(address);
    // Nobody makes one for another, or by asking for more, for less, or in another order.
    for (connection, base, attributes) in [(&mut nobody, ANN, &PAIR[..]), (&mut bob, ANN, &PAIR)] {
        let (found, code, _) = ask(connection, base, Scope::Base, attributes);
        assert_eq!((found.len(), code), (1, 0));
        assert_eq!(found[0].1, [None, None]);
    }
    for attributes in [
        &["userPrivateKey;binary", "userCertificate;binary"][..],
        &["userPrivateKey;binary"],
        &["userCertificate", "userPrivateKey"],
        &["userCertificate;binary", "userPrivateKey;binary", "cn"],
    ] {
        ask(&mut bob, BOB, Scope::Base, attributes);
    }
    assert_eq!(has_key(), Vec::<String>::new());
    // His own search of a subtree finds others, whose keys are not made.
    let (found, ..) = ask(&mut bob, SUFFIX, Scope::Subtree, &PAIR);
    let made: Vec<&str> =
        found.iter().filter(|(_, values)| values[0].is_some()).map(|(dn, _)| dn.as_str()).collect();
    assert_eq!(made, [BOB]);
    assert_eq!(has_key(), [BOB]);
    // The root DN's makes those of all users and servers.
    let mut root = connect(address, ADMIN, "secret");
    let (found, ..) = ask(&mut root, SUFFIX, Scope::Subtree, &PAIR);
    let made = found.iter().filter(|(_, values)| values.iter().all(Option::is_some)).count();
    assert_eq!(made, 3);
    // The access rules hold: nobody else reads a key.
    let (found, ..) = ask(&mut bob, ANN, Scope::Base, &PAIR);
    assert!(found[0].1[0].is_some() && found[0].1[1].is_none());
    // A certificate whose key was taken away is replaced, and the certificate with it.
    let before = pair(&mut root, ANN);
    remove(&mut root, ANN, "userPrivateKey;binary");
    let after = pair(&mut root, ANN);
    assert!(after.is_some() && before != after);
    let values = root.run(&step(&format!("search \"{ANN}\" base (objectClass=*) userCertificate;binary")));
    assert_eq!(values.matches("userCertificate").count(), 1, "{values}");
}

fn remove(connection: &mut Client, dn: &str, attribute: &str) {
    let none: [&[u8]; 0] = [];
    let change = ClientChange {
        operation: ModifyOperation::Delete,
        attribute: ClientAttribute { description: attribute, values: &none },
    };
    let mut out = Vec::new();
    client::modify(&mut out, MessageId(8), dn, &[change], &[]);
    connection.exchange(&out);
}

/// Entries of the usual classes are nothing where the configuration names others.
#[test]
fn classes_say_who_is_a_user_and_who_a_server() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let (user, server) = ("E-mail Protection", "TLS Web Server Authentication");
    let running = start("userClass ipHost\nserverClass inetOrgPerson\nuserDays 10\nserverDays 20");
    let mut root = connect(running.server.address, ADMIN, "secret");
    for (dn, days, usage, other) in [(ANN, 20, server, user), (HOST, 10, user, server)] {
        let (certificate, _) = pair(&mut root, dn).unwrap_or_else(|| panic!("{dn} has no key"));
        let text = openssl(&["x509", "-inform", "der", "-noout", "-ext", "extendedKeyUsage"], &certificate);
        assert!(text.contains(usage) && !text.contains(other), "{dn}: {text}");
        assert_eq!(seconds(&certificate), days * 86_400, "{dn}");
    }
    let running = start("userClass organizationalUnit\nserverClass organizationalUnit");
    let mut root = connect(running.server.address, ADMIN, "secret");
    assert_eq!([ANN, HOST].map(|dn| pair(&mut root, dn)), [None, None]);
}

#[test]
fn searches_at_once_make_one_key() {
    let running = start("");
    let address = running.server.address;
    let pairs = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    let mut root = connect(address, ADMIN, "secret");
                    [ANN, BOB, HOST].map(|dn| pair(&mut root, dn))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for own in &pairs {
        assert!(own.iter().all(Option::is_some));
        assert_eq!(own, &pairs[0]);
    }
}

#[test]
fn an_authority_of_ones_own_signs() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    for algorithm in [&["rsa:2048"][..], &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"]] {
        let running = start("");
        let folder = running.site.path();
        let (key, certificate) = (folder.join("ca.key"), folder.join("ca.pem"));
        let paths = ["-keyout", key.to_str().unwrap(), "-out", certificate.to_str().unwrap()];
        let fixed = [
            "req",
            "-x509",
            "-nodes",
            "-subj",
            "/O=Example/CN=Own CA",
            "-days",
            "9",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
            "-newkey",
        ];
        openssl(&[&fixed[..], algorithm, &paths].concat(), b"");
        let der = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).output().unwrap();
            assert!(output.status.success());
            output.stdout
        };
        let path = certificate.to_str().unwrap();
        let own = der(&["x509", "-in", path, "-outform", "der"]);
        let own_key = der(&["pkcs8", "-topk8", "-nocrypt", "-in", key.to_str().unwrap(), "-outform", "der"]);
        let mut root = connect(running.server.address, ADMIN, "secret");
        // The server's own is there first.
        ask(&mut root, SUFFIX, Scope::Base, &["1.1"]);
        let replace = |connection: &mut Client, name: &str, value: &[u8]| {
            let values = [value];
            let change = ClientChange {
                operation: ModifyOperation::Replace,
                attribute: ClientAttribute { description: name, values: &values },
            };
            let mut out = Vec::new();
            client::modify(&mut out, MessageId(8), SUFFIX, &[change], &[]);
            let answers = connection.exchange(&out);
            let message = Response::decode_message(&answers[0]).unwrap();
            assert_eq!(message.response.result().unwrap().1.code.0, 0, "{name}");
        };
        replace(&mut root, "cAPrivateKey;binary", &own_key);
        // For now they do not fit.
        let (found, code, text) = ask(&mut root, ANN, Scope::Base, &PAIR);
        assert_eq!((&found[0].1[..], code), (&[None, None][..], 0));
        assert_eq!(text, "autoca: cACertificate;binary and cAPrivateKey;binary do not belong together");
        replace(&mut root, "cACertificate;binary", &own);
        let ann = pair(&mut root, ANN).unwrap();
        checked(folder, &certificate, &ann);
    }
}

#[test]
fn the_servers_own_certificate_is_set() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let running = start(&format!("localDN {HOST}"));
    let folder = running.site.path();
    let mut root = connect(running.server.address, ADMIN, "secret");
    let (found, ..) = ask(&mut root, SUFFIX, Scope::Base, &["cACertificate;binary"]);
    let authority = pem(folder, "authority.pem", found[0].1[0].as_ref().unwrap());
    let host = pair(&mut root, HOST).expect("a key of the host");
    let mut configuration = connect(running.server.address, "cn=config", "secret");
    let names = ["olcTLSCertificate;binary", "olcTLSCACertificate;binary"];
    let (found, ..) = ask(&mut configuration, "cn=config", Scope::Base, &names);
    assert_eq!(found[0].1, [Some(host.0), found[0].1[1].clone()]);
    assert!(found[0].1[1].is_some());
    // A client that trusts the authority alone is served.
    let address = running.server.address.to_string();
    let shown = openssl(
        &[
            "s_client",
            "-connect",
            &address,
            "-starttls",
            "ldap",
            "-CAfile",
            authority.to_str().unwrap(),
            "-verify_return_error",
            "-verify_ip",
            "127.0.0.1",
        ],
        b"",
    );
    assert!(shown.contains("Verify return code: 0"), "{shown}");
}

/// What a server makes for a user, a host and itself: classes, and certificates in openssl's words.
fn made(running: &Running) -> String {
    let mut root = connect(running.server.address, ADMIN, "secret");
    let (found, ..) = ask(&mut root, SUFFIX, Scope::Base, &["cACertificate;binary"]);
    let mut certificates = vec![(SUFFIX, found[0].1[0].clone().unwrap())];
    for dn in [ANN, HOST] {
        certificates.push((dn, pair(&mut root, dn).unwrap().0));
    }
    let mut text = String::new();
    for (dn, certificate) in certificates {
        let classes = root.run(&step(&format!("search \"{dn}\" base (objectClass=*) objectClass")));
        let classes: Vec<&str> =
            classes.lines().filter_map(|line| line.trim().strip_prefix("objectClass: ")).collect();
        let extensions = "basicConstraints,keyUsage,extendedKeyUsage,subjectAltName";
        let words = openssl(
            &[
                "x509", "-inform", "der", "-noout", "-subject", "-issuer", "-nameopt", "RFC2253", "-ext",
                extensions,
            ],
            &certificate,
        );
        text += &format!("{dn}: {}; {} days\n", classes.join(" "), seconds(&certificate) / 86_400);
        for line in words.lines() {
            text += &format!("  {}\n", line.trim());
        }
    }
    text
}

const MADE: &str = "\
dc=example,dc=com: organization dcObject autoCA; 40 days
  subject=DC=example,DC=com
  issuer=DC=example,DC=com
  X509v3 Basic Constraints: critical
  CA:TRUE
  X509v3 Key Usage: critical
  Digital Signature, Certificate Sign, CRL Sign
cn=Ann Archer,ou=People,dc=example,dc=com: inetOrgPerson autoCAuser; 30 days
  subject=CN=Ann Archer,OU=People,DC=example,DC=com
  issuer=DC=example,DC=com
  X509v3 Basic Constraints:
  CA:FALSE
  X509v3 Key Usage: critical
  Digital Signature, Non Repudiation
  X509v3 Extended Key Usage:
  TLS Web Client Authentication, E-mail Protection
  X509v3 Subject Alternative Name:
  email:ann@example.com
cn=ldap.example.com,ou=Hosts,dc=example,dc=com: device ipHost autoCAuser; 1826 days
  subject=CN=ldap.example.com,OU=Hosts,DC=example,DC=com
  issuer=DC=example,DC=com
  X509v3 Basic Constraints:
  CA:FALSE
  X509v3 Key Usage: critical
  Digital Signature
  X509v3 Extended Key Usage:
  TLS Web Server Authentication, TLS Web Client Authentication
  X509v3 Subject Alternative Name:
  DNS:ldap.example.com, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1
";

/// Beside a slapd that has the overlay: `SLAPD=.../slapd SLAPD_MODULES= cargo test -p larix-tests --test server autoca`.
#[test]
fn certificates_are_as_slapds_but_for_what_is_written_here() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let lines = "userDays 30\ncaDays 40";
    assert_eq!(made(&start(lines)), MADE);
    if Kind::Slapd.program().is_none() {
        return;
    }
    let Some(slapd) = start_kind(Kind::Slapd, lines) else { return };
    let certificate = made(&slapd)
        // Keys on P-256 encipher no keys; RFC 5280 wants the usage of an authority to be critical.
        .replace("X509v3 Key Usage:\n", "X509v3 Key Usage: critical\n")
        .replace(", Key Encipherment", "")
        // A user's certificate signs no code.
        .replace(", Code Signing", "")
        // Clients look for a name of the host among the alternative ones.
        .replace("  IP Address:127", "  DNS:ldap.example.com, IP Address:127");
    assert_eq!(certificate, MADE);
}
