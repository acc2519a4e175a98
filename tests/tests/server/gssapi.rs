//! Kerberos: MIT's KDC with a realm of its own, Cyrus SASL's clients, and tickets that must not be believed.
//!
//! It needs a binary that was built with `--features gssapi`. Where that, the KDC or the clients are not there, it says so and
//! tests nothing, unless `LARIX_KERBEROS=required`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use larix_proto::{Authentication, Frame, Message, MessageId, Request, client, frame};
use larix_testkit::packages::{self, Package};
use larix_testkit::process::free_port;
use larix_testkit::{Authority, Kind, Server, Site, accepted, until};
use larix_tests::client::Client;
use larix_tests::raw::Raw;
use larix_tests::scenario::Step;

const REALM: &str = "LARIX.TEST";
const KDC: &str = "/usr/sbin/krb5kdc";
const NEEDED: [&Package; 5] =
    [&packages::KDC, &packages::KADMIN, &packages::KINIT, &packages::LDAP_UTILS, &packages::SASL_GSSAPI];

/// A KDC on loopback, ended when dropped.
struct Realm {
    folder: tempfile::TempDir,
    kdc: Child,
}

impl Realm {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let path = folder.path().display();
        // A server with the least skew, so that a ticket is old as soon as its time is over.
        for (name, skew) in [("krb5.conf", 300), ("strict.conf", 1)] {
            let text = format!(
                "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
                 rdns = false\n dns_canonicalize_hostname = false\n clockskew = {skew}\n\
                 [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n  database_name = {path}/principals\n  \
                 key_stash_file = {path}/stash\n  kdc_listen = 127.0.0.1:{port}\n  \
                 kdc_tcp_listen = 127.0.0.1:{port}\n }}\n"
            );
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let start = |program: &str| environment(folder.path(), Command::new(program));
        succeed(start("/usr/sbin/kdb5_util").args(["create", "-r", REALM, "-s", "-P", "master"]));
        for query in [
            "addprinc -randkey ldap/localhost".to_owned(),
            "addprinc -randkey ldap/other".to_owned(),
            "addprinc -pw annpw ann".to_owned(),
            format!("ktadd -k {path}/server.keytab ldap/localhost"),
            format!("ktadd -k {path}/other.keytab ldap/other"),
        ] {
            succeed(start("/usr/sbin/kadmin.local").args(["-r", REALM, "-q", &query]));
        }
        let mut kdc = start(KDC);
        let kdc = kdc.args(["-n", "-r", REALM]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let realm = Self { folder, kdc };
        // It serves as soon as it gives a ticket.
        until("the KDC gives a ticket", || realm.kinit(&[]).status.success());
        realm
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn kinit(&self, arguments: &[&str]) -> Output {
        let mut command = environment(self.folder.path(), Command::new("/usr/bin/kinit"));
        let mut child = command
            .args(arguments)
            .arg("ann")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Closed when dropped; a kinit that has ended already says so by its status.
        let _ = child.stdin.take().unwrap().write_all(b"annpw\n");
        child.wait_with_output().unwrap()
    }

    fn whoami(&self, url: &str, arguments: &[&str]) -> Output {
        let mut command = environment(self.folder.path(), Command::new("/usr/bin/ldapwhoami"));
        // OpenLDAP takes "localhost" for the machine's own name, which no certificate of a test has.
        command.env("LDAPTLS_CACERT", self.path("ca.pem")).env("LDAPTLS_REQCERT", "allow");
        command.args(["-H", url, "-N", "-Y", "GSSAPI"]).args(arguments).output().unwrap()
    }

    fn larix(&self, settings: &str, keytab: &str) -> Larix {
        self.larix_with(settings, keytab, "krb5.conf")
    }

    fn larix_with(&self, settings: &str, keytab: &str, conf: &str) -> Larix {
        let authority = Authority::new("Root");
        authority.server().write(self.folder.path(), "server");
        std::fs::write(self.path("ca.pem"), authority.certificate()).unwrap();
        let path = self.folder.path().display();
        let body = format!(
            "TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\n\
             sasl-host localhost\nsasl-realm {REALM}\n{settings}\n\
             database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@\noverlay syncprov\n"
        );
        let site = Site::new(Kind::Larix, &body);
        let (keytab, conf, cache) = (self.path(keytab), self.path(conf), self.folder.path());
        let environment: [(&str, &Path); 3] =
            [("KRB5_KTNAME", &keytab), ("KRB5_CONFIG", &conf), ("KRB5RCACHEDIR", cache)];
        let urls = ["ldap://127.0.0.1:0/", "ldaps://127.0.0.1:0/"];
        let server =
            Server::start_on(Kind::Larix, &site.configuration(), &urls, &["-d", "256"], &environment)
                .unwrap_or_else(|error| panic!("{error}"));
        let [clear, secure] = server.ports[..] else { panic!("two ports: {:?}", server.ports) };
        Larix {
            server,
            clear: format!("ldap://localhost:{clear}"),
            secure: format!("ldaps://localhost:{secure}"),
            _site: site,
        }
    }

    /// What a client sends first to a server that only listens: a bind with a token of its ticket.
    fn token(&self) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ldap://localhost:{}", listener.local_addr().unwrap().port());
        let mut command = environment(self.folder.path(), Command::new("/usr/bin/ldapwhoami"));
        command.args(["-H", &url, "-N", "-Q", "-Y", "GSSAPI"]).stderr(Stdio::null());
        let mut client = command.spawn().unwrap();
        let mut socket = accepted(&listener);
        let mut input = Vec::new();
        let len = loop {
            if let Ok(Frame::Complete { len }) = frame(&input, 1 << 20) {
                break len;
            }
            let mut chunk = [0; 4096];
            let count = socket.read(&mut chunk).unwrap();
            assert!(count > 0, "the client left without a bind");
            input.extend_from_slice(&chunk[..count]);
        };
        drop(socket);
        client.wait().unwrap();
        let message = Message::decode(&input[..len]).unwrap();
        let Request::Bind(bind) = message.request else { panic!("no bind: {message:?}") };
        let Authentication::Sasl { mechanism: "GSSAPI", credentials: Some(token) } = bind.authentication
        else {
            panic!("{bind:?}")
        };
        token.to_vec()
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        let _ = self.kdc.kill();
        let _ = self.kdc.wait();
    }
}

struct Larix {
    server: Server,
    clear: String,
    secure: String,
    _site: Site,
}

fn environment(folder: &Path, mut command: Command) -> Command {
    command
        .env("KRB5_CONFIG", folder.join("krb5.conf"))
        .env("KRB5_KDC_PROFILE", folder.join("krb5.conf"))
        .env("KRB5CCNAME", folder.join("cache"))
        .env("LDAPNOINIT", "")
        .env_remove("LDAPNOINIT");
    command
}

fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether the test can run; where it must, it is an error when it cannot.
fn is_possible() -> bool {
    let is_required = std::env::var_os("LARIX_KERBEROS").is_some();
    let missing = NEEDED.into_iter().filter(|package| package.is_lacking()).map(|package| package.name);
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() {
        assert!(!is_required, "{missing:?} is not installed, and Kerberos is required");
        return false;
    }
    let larix = Server::start(Kind::Larix, &Site::example(Kind::Larix).configuration()).unwrap();
    let mut command = Command::new("/usr/bin/ldapsearch");
    let url = format!("ldap://{}", larix.address);
    let output = command.args(["-xLLL", "-H", &url, "-s", "base", "supportedSASLMechanisms"]).output();
    let is_built_in = String::from_utf8_lossy(&output.unwrap().stdout).contains("GSSAPI");
    assert!(is_built_in || !is_required, "this binary has no GSSAPI, and Kerberos is required");
    if !is_built_in {
        println!("skipped: this binary has no GSSAPI: `cargo xtask kerberos` builds and tests one");
    }
    is_built_in
}

const ANN: &str = "dn:uid=ann,cn=larix.test,cn=gssapi,cn=auth";

/// Who somebody is, or his client's exit code; and the strength of the layer that it told.
fn identity_and_layer(output: &Output) -> (String, Option<u32>) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let layer = stderr.lines().find_map(|line| line.strip_prefix("SASL SSF: ")?.parse().ok());
    match output.status.code() {
        Some(0) => (String::from_utf8_lossy(&output.stdout).trim().to_lowercase(), layer),
        code => (format!("{} {stderr}", code.unwrap_or(-1)), layer),
    }
}

#[test]
fn tickets_of_a_kdc() {
    if !is_possible() {
        return;
    }
    let realm = Realm::start();
    names_and_layers(&realm);
    channel_bindings(&realm);
    wrong_keytab(&realm);
    replayed_and_old_tickets(&realm);
}

fn names_and_layers(realm: &Realm) {
    let mapped =
        "authz-regexp \"^uid=([^,]+),cn=larix.test,cn=gssapi,cn=auth$\" \"uid=$1,dc=example,dc=com\"";
    for (settings, url_is_secure, arguments, expected, ssf) in [
        ("", false, &[][..], Ok(ANN), 256),
        ("", false, &["-O", "maxssf=1"], Ok(ANN), 1),
        ("", false, &["-O", "maxssf=0"], Ok(ANN), 0),
        ("", true, &[], Ok(ANN), 256),
        ("", true, &["-O", "maxssf=0"], Ok(ANN), 0),
        // Himself: the realm is a part of this name, too.
        ("", false, &["-X", "u:ann"], Ok(ANN), 256),
        (mapped, false, &[], Ok("dn:uid=ann,dc=example,dc=com"), 256),
        ("sasl-secprops minssf=56", false, &[], Ok(ANN), 256),
        ("sasl-secprops minssf=56", false, &["-O", "maxssf=1"], Err(()), 0),
        ("sasl-secprops maxssf=1", false, &[], Ok(ANN), 1),
        ("sasl-secprops maxssf=0", false, &["-O", "minssf=1"], Err(()), 0),
        ("security sasl=56", false, &[], Ok(ANN), 256),
        ("security sasl=56", false, &["-O", "maxssf=1"], Err(()), 0),
    ] {
        let larix = realm.larix(settings, "server.keytab");
        let url = if url_is_secure { &larix.secure } else { &larix.clear };
        let (found, layer) = identity_and_layer(&realm.whoami(url, arguments));
        let context = format!("{settings} {url} {arguments:?}: {found} {layer:?}\n{}", larix.server.log());
        match expected {
            Ok(name) => {
                assert_eq!(found, name, "{context}");
                assert_eq!(layer.unwrap_or(0), ssf, "{context}");
            }
            Err(()) => assert!(!found.starts_with("dn:"), "{context}"),
        }
        assert!(larix.server.stop(), "{context}");
    }
}

fn channel_bindings(realm: &Realm) {
    for (server, client, is_let_in) in [
        ("none", "none", true),
        ("none", "tls-endpoint", true),
        ("tls-endpoint", "tls-endpoint", true),
        ("tls-endpoint", "tls-unique", false),
        ("tls-exporter", "tls-endpoint", false),
        // Nobody can be bound to what is not there.
        ("tls-unique", "tls-endpoint", false),
        ("tls-unique", "tls-unique", false),
        // Who binds to nothing is nobody's man in the middle by that alone: MIT's library lets him in.
        ("tls-endpoint", "none", true),
    ] {
        let larix = realm.larix(&format!("sasl-cbinding {server}"), "server.keytab");
        for (url, start) in [(&larix.secure, &[][..]), (&larix.clear, &["-ZZ"])] {
            let binding = format!("SASL_CBINDING={client}");
            // GnuTLS knows no tls-unique of TLS 1.3.
            let version = "TLS_CIPHER_SUITE=NORMAL:-VERS-TLS1.3";
            let arguments = [start, &["-o", &binding, "-o", version]].concat();
            let (found, _) = identity_and_layer(&realm.whoami(url, &arguments));
            let context = format!("server {server}, client {client}, {url}: {found}\n{}", larix.server.log());
            assert_eq!(found == ANN, is_let_in, "{context}");
        }
        // Without TLS there is no channel: nothing is asked for.
        assert_eq!(identity_and_layer(&realm.whoami(&larix.clear, &[])).0, ANN, "{server} without TLS");
        assert!(larix.server.stop());
    }
}

fn wrong_keytab(realm: &Realm) {
    for (keytab, host) in [("other.keytab", "localhost"), ("other.keytab", "other"), ("nothing", "localhost")]
    {
        let larix = realm.larix(&format!("sasl-host {host}"), keytab);
        let (found, _) = identity_and_layer(&realm.whoami(&larix.clear, &[]));
        assert!(found.starts_with("49 "), "{keytab} {host}: {found}\n{}", larix.server.log());
        assert!(larix.server.stop());
    }
}

fn replayed_and_old_tickets(realm: &Realm) {
    let bind = |larix: &Larix, token: &[u8]| {
        let mut request = Vec::new();
        client::sasl_bind(&mut request, MessageId(1), "", "GSSAPI", Some(token), &[]);
        let mut connection = Raw::connect(larix.server.address).unwrap();
        let answer = connection.ask(&request).unwrap();
        (answer.code, answer.text)
    };
    let larix = realm.larix("", "server.keytab");
    let token = realm.token();
    assert_eq!(bind(&larix, &token).0, 14, "{}", larix.server.log());
    // An eavesdropper can send the same token again.
    let (code, text) = bind(&larix, &token);
    assert!(code == 49 && text.contains("replay"), "{code} {text}");
    let mut broken = token;
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(bind(&larix, &broken).0, 49);
    assert!(larix.server.stop());
    // A ticket whose time is over by the server's clock.
    let strict = realm.larix_with("", "server.keytab", "strict.conf");
    let short = realm.kinit(&["-l", "6s"]);
    assert!(short.status.success(), "{short:?}");
    let token = realm.token();
    // The ticket's time, the skew that is allowed, and what whole seconds round off.
    for _ in 0..100 {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let (code, text) = bind(&strict, &token);
    assert!(code == 49 && (text.contains("expired") || text.contains("skew")), "{code} {text}");
    assert!(strict.server.stop());
}

#[test]
fn a_consumer_binds_with_its_ticket() {
    if !is_possible() {
        return;
    }
    let realm = Realm::start();
    let admin = "authz-regexp \"uid=ann,.*\" cn=admin,dc=example,dc=com";
    let provider = realm.larix(admin, "server.keytab");
    let mut writer = Client::connect(provider.server.address);
    for request in [
        "as cn=admin,dc=example,dc=com secret",
        "add dc=example,dc=com\n  objectClass: organization\n  objectClass: dcObject\n  o: Example",
    ] {
        let answer = writer.run(&Step { request: request.to_owned(), ..Step::default() });
        assert!(answer.ends_with("=> 0\n"), "{request}: {answer}");
    }
    let consumer = |authorization: &str| {
        let body = format!(
            "database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\n\
             syncrepl rid=1 provider={} bindmethod=sasl saslmech=GSSAPI {authorization} searchbase=dc=example,dc=com \
             retry=\"1 +\" type=refreshAndPersist\n",
            provider.clear
        );
        let site = Site::new(Kind::Larix, &body);
        let (conf, cache) = (realm.path("krb5.conf"), realm.path("cache"));
        let environment: [(&str, &Path); 2] = [("KRB5_CONFIG", &conf), ("KRB5CCNAME", &cache)];
        let arguments = ["-d", "16384"];
        let server =
            Server::start_with(Kind::Larix, &site.configuration(), &arguments, &environment).unwrap();
        (site, server)
    };
    for (authorization, expected) in [("", "the refresh is complete"), ("authzid=dn:cn=nobody", "bind")] {
        let (_site, server) = consumer(authorization);
        until(expected, || server.log().contains(expected));
        let log = server.log();
        assert_eq!(log.contains("the refresh is complete"), authorization.is_empty(), "{log}");
    }
}
