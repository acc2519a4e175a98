//! SASL with the clients of others: OpenLDAP's tools with Cyrus SASL ask Larix and a real slapd, which must agree about who is
//! let in and as whom.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use larix_proto::{Frame, MessageId, Scope, client, frame};
use larix_testkit::{Authority, Kind, Server, Site, accepted, packages};
use larix_tests::raw::{Raw, bind, replace, search};

const CLIENT: &str = "/usr/bin/ldapwhoami";

const CONFIGURATION: &str = "\
authz-policy to
authz-regexp \"^uid=([^,]+),cn=[^,]+,cn=auth$\" \"ldap:///dc=example,dc=com??sub?(uid=$1)\"
sasl-host localhost
sasl-secprops none
access to attrs=userPassword,authzTo by * auth
access to * by anonymous auth by * read
database mdb
suffix dc=example,dc=com
rootdn cn=admin,dc=example,dc=com
rootpw secret
directory @DATA@
";

const ENTRIES: &str = "\
dn: dc=example,dc=com
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: uid=ann,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: A
userPassword: annpw

dn: uid=bob,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
userPassword: b,o=b\u{20ac}
authzTo: dn:uid=ann,dc=example,dc=com

dn: uid=hashed,dc=example,dc=com
objectClass: inetOrgPerson
uid: hashed
cn: Hashed
sn: H
userPassword: {SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==
";

/// A verifier of the password `secret`, made by another implementation.
const VERIFIER: &str = "
dn: uid=verified,dc=example,dc=com
objectClass: inetOrgPerson
uid: verified
cn: Verified
sn: V
userPassword: {SCRAM-SHA-256}4096:MDEyMzQ1Njc4OWFiY2RlZg==$b\
pSY5Ze9NUH+I35LC3gVq+DpBfK46iXBxvhAKqVu9pE=:VpYlBuxyzeCI1KnctrefdljpB1mk3Gp7sBI/t11+NkQ=
";

const MECHANISMS: [&str; 6] =
    ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "DIGEST-MD5", "CRAM-MD5", "PLAIN"];

fn start(kind: Kind, settings: &str) -> (Site, Server) {
    let own = match kind {
        Kind::Larix => format!("sasl-mechanisms {}\n", MECHANISMS.join(" ")),
        Kind::Slapd => String::new(),
    };
    let site = Site::new(kind, &format!("{own}{settings}{CONFIGURATION}"));
    let verifier = if kind == Kind::Larix { VERIFIER } else { "" };
    site.load(&format!("{ENTRIES}{verifier}"));
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    (site, server)
}

/// What the client says: who he is, or the code he was refused with.
fn whoami(server: &Server, mechanism: &str, user: &str, password: &str, more: &[&str]) -> String {
    let output = Command::new(CLIENT)
        .env("LDAPNOINIT", "1")
        .args(["-H", &format!("ldap://{}", server.address), "-Q", "-N", "-Y", mechanism])
        .args(["-U", user, "-w", password])
        .args(more)
        .output()
        .expect("ldapwhoami");
    match output.status.code() {
        Some(0) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Some(code) => code.to_string(),
        None => "killed".to_owned(),
    }
}

/// The same question to Larix and, where it is installed, to slapd.
struct Both {
    larix: (Site, Server),
    slapd: Option<(Site, Server)>,
}

impl Both {
    fn start(settings: &str) -> Self {
        let slapd = (!Kind::Slapd.is_lacking()).then(|| start(Kind::Slapd, settings));
        Self { larix: start(Kind::Larix, settings), slapd }
    }

    fn check(&self, mechanism: &str, user: &str, password: &str, more: &[&str], expected: &str) {
        let context = format!("{mechanism} {user} {password} {more:?}");
        if let Some((_, slapd)) = &self.slapd {
            assert_eq!(whoami(slapd, mechanism, user, password, more), expected, "slapd: {context}");
        }
        assert_eq!(whoami(&self.larix.1, mechanism, user, password, more), expected, "Larix: {context}");
    }

    fn check_larix(&self, mechanism: &str, user: &str, password: &str, more: &[&str], expected: &str) {
        let found = whoami(&self.larix.1, mechanism, user, password, more);
        assert_eq!(found, expected, "{mechanism} {user} {password} {more:?}");
    }
}

#[test]
fn cyrus_clients_are_let_in_as_slapd_lets_them() {
    if packages::LDAP_UTILS.is_lacking() | packages::SASL_MODULES.is_lacking() {
        return;
    }
    let both = Both::start("");
    let plain = ["-O", "none"];
    for mechanism in MECHANISMS {
        for (user, password, expected) in [
            ("ann", "annpw", "dn:uid=ann,dc=example,dc=com"),
            ("ANN", "annpw", "dn:uid=ann,dc=example,dc=com"),
            ("ann", "wrong", "49"),
            ("nobody", "annpw", "49"),
            ("bob", "b,o=b\u{20ac}", "dn:uid=bob,dc=example,dc=com"),
        ] {
            both.check(mechanism, user, password, &plain, expected);
        }
        let as_ann = ["-O", "none", "-X", "u:ann"];
        if mechanism != "CRAM-MD5" {
            both.check(mechanism, "bob", "b,o=b\u{20ac}", &as_ann, "dn:uid=ann,dc=example,dc=com");
            both.check(mechanism, "ann", "annpw", &["-O", "none", "-X", "u:bob"], "50");
            both.check(mechanism, "ann", "annpw", &["-O", "none", "-X", "nonsense"], "50");
        }
    }
    // A layer of each strength.
    for properties in ["none", "maxssf=1", "maxssf=0"] {
        both.check("DIGEST-MD5", "ann", "annpw", &["-O", properties], "dn:uid=ann,dc=example,dc=com");
    }
    both.check("DIGEST-MD5", "ann", "annpw", &["-O", "minssf=128"], "dn:uid=ann,dc=example,dc=com");
    // What slapd with Cyrus SASL cannot do: other hashes than clear passwords.
    both.check_larix("PLAIN", "hashed", "secret", &plain, "dn:uid=hashed,dc=example,dc=com");
    both.check_larix("SCRAM-SHA-256", "hashed", "secret", &plain, "49");
    // slapd takes these for patterns, and lets ann in.
    for name in ["a*", "a%2A"] {
        both.check_larix("PLAIN", name, "annpw", &plain, "49");
    }
    for (mechanism, expected) in [
        ("SCRAM-SHA-256", "dn:uid=verified,dc=example,dc=com"),
        ("SCRAM-SHA-512", "49"),
        ("PLAIN", "dn:uid=verified,dc=example,dc=com"),
        ("DIGEST-MD5", "49"),
    ] {
        both.check_larix(mechanism, "verified", "secret", &plain, expected);
    }
    assert!(both.larix.1.stop(), "Larix did not stop cleanly");
}

/// `sasl-realm` stands in the name of each user who logs in, and in that of `-X u:`; not in that of proxied authorization.
#[test]
fn a_realm_is_a_part_of_the_names_of_all_mechanisms() {
    if packages::LDAP_UTILS.is_lacking() | packages::SASL_MODULES.is_lacking() {
        return;
    }
    let ann_of_the_realm = "^uid=ann,cn=x.test,cn=[^,]+,cn=auth$";
    let both = Both::start(&format!(
        "sasl-realm X.TEST\nauthz-regexp \"{ann_of_the_realm}\" \"uid=bob,dc=example,dc=com\"\n"
    ));
    let password = "b,o=b\u{20ac}";
    let (ann, bob) = ("dn:uid=ann,dc=example,dc=com", "dn:uid=bob,dc=example,dc=com");
    for mechanism in MECHANISMS {
        // slapd finds the user of PLAIN so, and compares with the password of `uid=ann@x.test,cn=x.test,...`.
        let check = if mechanism == "PLAIN" { Both::check_larix } else { Both::check };
        check(&both, mechanism, "ann", password, &["-O", "none"], bob);
        check(&both, mechanism, "ann", "annpw", &["-O", "none"], "49");
        check(&both, mechanism, "ann", password, &["-O", "none", "-e", "!authzid=u:ann"], ann);
        if mechanism != "CRAM-MD5" {
            check(&both, mechanism, "ann", password, &["-O", "none", "-X", "u:ann"], bob);
        }
    }
    assert!(both.larix.1.stop(), "Larix did not stop cleanly");
}

/// A simple bind stores the weaker value anew, and leaves the verifier that stands beside it.
#[test]
fn a_login_with_the_password_leaves_the_verifier() {
    let weak = "userPassword: {SSHA}VIYCYkQSpk9fzQueoeVj7oWeCOUoN8Bl1uIAJQ==";
    let overlay = "overlay ppolicy\nppolicy_default cn=p,dc=example,dc=com\n";
    let policy = "\ndn: cn=p,dc=example,dc=com\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\n\
                  objectClass: pwdHashingPolicy\ncn: p\npwdAttribute: userPassword\npwdDefaultHash: {ARGON2}\n\
                  pwdRehashOnBind: TRUE\n";
    for (settings, overlay, policy) in [
        ("password-rehash on\npassword-hash {ARGON2} {SCRAM-SHA-256}\n", "", ""),
        ("password-rehash on\n", "", ""),
        ("", overlay, policy),
    ] {
        let site = Site::new(Kind::Larix, &format!("{settings}{CONFIGURATION}{overlay}"));
        let verifier = VERIFIER.replace("userPassword:", &format!("{weak}\nuserPassword:"));
        site.load(&format!("{ENTRIES}{verifier}{policy}"));
        let server = site.start().unwrap_or_else(|error| panic!("{error}"));
        let larix = |arguments: &[&str]| {
            let output = Command::new(Kind::Larix.program().expect("a binary"))
                .args(arguments)
                .args(["-H", &format!("ldap://{}", server.address), "-w", "secret"])
                .env("LDAPNOINIT", "1")
                .output()
                .expect("larix");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let (user, admin) = ("uid=verified,dc=example,dc=com", "cn=admin,dc=example,dc=com");
        let named = format!("dn:{user}");
        assert_eq!(larix(&["whoami", "-D", user]), named, "{settings}");
        // The answer does not wait for the new value.
        let stored = weak.replace(": ", ":");
        let is_stored_anew = (0..1_000).any(|_| larix(&["compare", "-D", admin, user, &stored]) == "FALSE");
        assert!(is_stored_anew, "{settings}: the weaker value is still there");
        assert_eq!(larix(&["whoami", "-Y", "SCRAM-SHA-256", "-U", "verified"]), named, "{settings}");
        assert!(server.stop());
    }
}

/// The next message, of a peer that sends one and waits.
fn message(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut input = Vec::new();
    loop {
        if let Ok(Frame::Complete { .. }) = frame(&input, 1 << 20) {
            return Some(input);
        }
        let mut chunk = [0; 4096];
        match socket.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => input.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Logs ann in by a mechanism that challenges, and sends the administrator's request before her answer to the challenge.
fn login_around(server: &Server, mechanism: &str, request: &[u8]) -> Output {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("ldap://{}", listener.local_addr().expect("an address"));
    let client = Command::new(Kind::Larix.program().expect("a binary"))
        .args(["whoami", "-H", &url, "-Y", mechanism, "-U", "ann", "-w", "annpw"])
        .env("LDAPNOINIT", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("larix");
    let (mut near, mut far) = (accepted(&listener), TcpStream::connect(server.address).expect("the server"));
    let mut requests = 0;
    while let Some(sent) = message(&mut near) {
        requests += 1;
        if requests == 2 {
            let mut admin = Raw::connect(server.address).expect("the server");
            let bound = admin.ask(&bind(1, "cn=admin,dc=example,dc=com", "secret")).expect("an answer");
            let changed = admin.ask(request).expect("an answer");
            assert_eq!((bound.code, changed.code), (0, 0), "{changed:?}");
        }
        far.write_all(&sent).expect("the server takes it");
        let Some(answer) = message(&mut far) else { break };
        near.write_all(&answer).expect("the client takes it");
    }
    drop((near, far));
    client.wait_with_output().expect("larix")
}

/// A client may let its challenge wait: what counts is the password that the user has when the answer comes.
#[test]
fn an_answer_to_a_challenge_is_of_the_password_of_now() {
    let ann = "uid=ann,dc=example,dc=com";
    let mut delete = Vec::new();
    client::delete(&mut delete, MessageId(2), ann, &[]);
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1"] {
        for (request, is_let_in) in [
            (replace(2, ann, "description", "x"), true),
            (replace(2, ann, "userPassword", "another"), false),
            (delete.clone(), false),
        ] {
            let (_site, server) = start(Kind::Larix, "");
            let output = login_around(&server, mechanism, &request);
            assert_eq!(output.status.success(), is_let_in, "{mechanism}: {output:?}");
            let said = String::from_utf8_lossy(&output.stdout).contains(ann);
            assert_eq!(said, is_let_in, "{mechanism}: {output:?}");
        }
    }
}

/// Who has to change his password changes his own, also where he acts for somebody else.
#[test]
fn a_password_that_has_to_be_changed_is_that_of_the_login() {
    let rules = "access to attrs=userPassword by self write by * auth\n";
    let overlay = "overlay ppolicy\nppolicy_default cn=p,dc=example,dc=com\n";
    let policy = "\ndn: cn=p,dc=example,dc=com\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: p\n\
                  pwdAttribute: userPassword\npwdMustChange: TRUE\n";
    let site = Site::new(Kind::Larix, &format!("{rules}{CONFIGURATION}{overlay}"));
    site.load(&format!("{ENTRIES}{policy}"));
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let (ann, bob) = ("uid=ann,dc=example,dc=com", "uid=bob,dc=example,dc=com");
    let connect = || Raw::connect(server.address).expect("the server");
    let code = |connection: &mut Raw, request: &[u8]| connection.ask(request).expect("an answer").code;
    let look = search(2, "dc=example,dc=com", Scope::Base, "(objectClass=*)");
    let mut admin = connect();
    assert_eq!(code(&mut admin, &bind(1, "cn=admin,dc=example,dc=com", "secret")), 0);
    assert_eq!(code(&mut admin, &replace(2, bob, "pwdReset", "TRUE")), 0);
    let mut as_ann = Vec::new();
    let message = "u:ann\0bob\0b,o=b\u{20ac}";
    client::sasl_bind(&mut as_ann, MessageId(1), "", "PLAIN", Some(message.as_bytes()), &[]);
    let mut acting = connect();
    assert_eq!(code(&mut acting, &as_ann), 0);
    assert_eq!(code(&mut acting, &look), 50);
    assert_eq!(code(&mut acting, &replace(3, ann, "userPassword", "another")), 0);
    assert_eq!(code(&mut acting, &look), 50, "bob's password is still the one that was set for him");
    let mut own = connect();
    assert_eq!(code(&mut own, &bind(1, bob, "b,o=b\u{20ac}")), 0);
    assert_eq!(code(&mut own, &replace(3, bob, "userPassword", "another")), 0);
    assert_eq!(code(&mut own, &look), 0);
}

/// Larix's own client over TLS: bound to the channel, and to nothing else.
#[test]
fn own_clients_bind_to_the_channel() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Root");
    authority.server().write(folder.path(), "server");
    let path = folder.path().display();
    std::fs::write(folder.path().join("ca.pem"), authority.certificate()).expect("a file");
    let tls = format!("TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\n");
    let no_name_has_plus = "authz-regexp \"^uid=[^,]+,cn=[^,]+-plus,cn=auth$\" \"cn=nobody\"\n";
    for (configured, version, wanted) in [
        ("", "3.4", ""),
        ("", "3.3", "tls-endpoint"),
        ("sasl-cbinding tls-endpoint\n", "3.3", "tls-endpoint"),
        ("sasl-cbinding tls-exporter\n", "3.4", "tls-exporter"),
    ] {
        let site = Site::new(Kind::Larix, &format!("{tls}{configured}{no_name_has_plus}{CONFIGURATION}"));
        site.load(ENTRIES);
        let urls = ["ldaps://127.0.0.1:0/"];
        let server = Server::start_on(Kind::Larix, &site.configuration(), &urls, &[], &[])
            .unwrap_or_else(|error| panic!("{error}"));
        let url = format!("ldaps://{}/", server.address);
        let ask = |mechanism: &str, binding: &str, (user, password): (&str, &str), more: &[&str]| {
            let output = Command::new(Kind::Larix.program().expect("a binary"))
                .args(["whoami", "-H", &url, "-Y", mechanism, "-U", user, "-w", password])
                .args(more)
                .args([
                    "-o",
                    &format!("tls_cacert={path}/ca.pem"),
                    "-o",
                    &format!("tls_protocol_min={version}"),
                ])
                .args(if binding.is_empty() {
                    vec![]
                } else {
                    vec!["-o".to_owned(), format!("sasl_cbinding={binding}")]
                })
                .env("LDAPNOINIT", "1")
                .output()
                .expect("larix");
            let identity = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            (identity, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        for mechanism in ["SCRAM-SHA-1-PLUS", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-512-PLUS"] {
            let named = "dn:uid=ann,dc=example,dc=com";
            let (identity, why) = ask(mechanism, wanted, ("ann", "annpw"), &[]);
            assert_eq!(identity, named, "{configured} {mechanism} {wanted}: {why}");
            assert_eq!(ask(mechanism, wanted, ("ann", "wrong"), &[]).0, "");
            // The names of others have no -PLUS either.
            for acting in [["-X", "u:ann"], ["-e", "!authzid=u:ann"]] {
                let (identity, why) = ask(mechanism, wanted, ("bob", "b,o=b\u{20ac}"), &acting);
                assert_eq!(identity, named, "{configured} {mechanism} {acting:?}: {why}");
            }
        }
        if configured.ends_with("exporter\n") {
            let (identity, why) = ask("SCRAM-SHA-256-PLUS", "tls-endpoint", ("ann", "annpw"), &[]);
            assert!(identity.is_empty() && !why.is_empty(), "{identity} {why}");
        }
        assert!(server.stop());
    }
}
