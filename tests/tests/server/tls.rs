//! TLS against the real binary: ldap-utils, OpenSSL's and GnuTLS' clients, certificates of clients. Who attacks it is in
//! `tests/tests/attacks/tls.rs`.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use larix_proto::{MessageId, Scope, client, oid};
use larix_testkit::{Authority, Kind, Running, Server, packages, until, until_some};
use larix_tests::raw::{bind, search};
use larix_tests::secure::{PATIENCE, Secure, ask, rest, start_tls, whoami};
use rcgen::{PKCS_ECDSA_P256_SHA256, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

#[test]
fn clients_of_all_libraries() {
    let secure = Secure::start(Kind::Larix, "");
    let base = ["-x", "-LLL", "-s", "base", "-b", "", "supportedExtension"];
    for start in
        [vec!["-ZZ".to_owned(), "-H".to_owned(), secure.url()], vec!["-H".to_owned(), secure.secure_url()]]
    {
        let arguments: Vec<&str> = start.iter().map(String::as_str).chain(base).collect();
        let Some(output) = secure.tool("ldapsearch", &arguments, &[]) else { break };
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains(oid::START_TLS), "{start:?}: {output:?}");
    }
    let larix = |arguments: &[&str]| {
        let program = Kind::Larix.program().unwrap();
        let mut command = Command::new(program);
        command.env_remove("LDAPNOINIT").env("LDAPTLS_CACERT", secure.path("ca.pem"));
        command.args(arguments).output().unwrap()
    };
    for start in
        [&["whoami", "-x", "-ZZ", "-H", &secure.url()][..], &["whoami", "-x", "-H", &secure.secure_url()]]
    {
        let output = larix(start);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "anonymous\n", "{output:?}");
    }
    let output = larix(&["whoami", "-x", "-o", "tls_cacert=/etc/hostname", "-H", &secure.secure_url()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no certificate (PEM) in it"), "{output:?}");
    let port = secure.secure_port.to_string();
    let ca = secure.path("ca.pem").display().to_string();
    for (package, program, arguments, expected) in [
        (
            packages::OPENSSL,
            "openssl",
            vec!["s_client", "-tls1_3", "-brief", "-CAfile", &ca, "-connect"],
            "TLSv1.3",
        ),
        (
            packages::OPENSSL,
            "openssl",
            vec!["s_client", "-tls1_2", "-brief", "-CAfile", &ca, "-connect"],
            "TLSv1.2",
        ),
        (
            packages::GNUTLS,
            "gnutls-cli",
            vec!["--x509cafile", &ca, "--port", &port],
            "The certificate is trusted",
        ),
    ] {
        let target = if program == "openssl" { format!("127.0.0.1:{port}") } else { "127.0.0.1".to_owned() };
        if package.is_lacking() {
            continue;
        }
        let output =
            Command::new(program).args(&arguments).arg(&target).stdin(Stdio::null()).output().unwrap();
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains(expected), "{program} {arguments:?}: {shown}");
    }
    let output = larix(&[
        "search",
        "-x",
        "-LLL",
        "-ZZ",
        "-H",
        &secure.url(),
        "-s",
        "base",
        "-b",
        "cn=Established,cn=TLS,cn=Larix,cn=Monitor",
        "monitorCounter",
    ]);
    let shown = String::from_utf8_lossy(&output.stdout);
    let count = shown.lines().find_map(|line| line.strip_prefix("monitorCounter: "));
    assert!(count.is_some_and(|count| count.parse::<u64>().unwrap() >= 3), "{output:?}");
    // The log has a thread of its own.
    let line = "TLS established tls_ssf=256 ssf=256 tls_proto=TLSv1.3 tls_cipher=TLS_AES_256_GCM_SHA384";
    until(line, || secure.server.log().contains(line));
    assert!(secure.server.stop(), "a clean stop");
}

#[test]
fn a_balancer_says_who_the_client_is() {
    let secure = Secure::start(Kind::Larix, "");
    let connect = || {
        let socket = TcpStream::connect(("127.0.0.1", secure.proxied_port.unwrap())).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let mut socket = connect();
    let header = b"PROXY TCP4 192.0.2.1 127.0.0.1 4711 389\r\n";
    assert_eq!(ask(&mut socket, &[&header[..], &whoami(1)].concat()), ["1:0"]);
    assert_eq!(ask(&mut socket, &start_tls(2)), ["2:0"]);
    assert_eq!(ask(&mut secure.handshake(socket), &whoami(3)), ["3:0"]);
    let mut bare = connect();
    bare.write_all(&whoami(1)).unwrap();
    assert_eq!(rest(&mut bare), b"", "a client without a PROXY header got an answer");
    let server = secure.server;
    let site = secure.site;
    assert!(server.stop(), "a clean stop");
    let log = std::fs::read_to_string(site.configuration().with_extension("Larix.log")).unwrap();
    assert!(log.contains("ACCEPT from IP=192.0.2.1:4711") && log.contains("no PROXY header"), "{log}");
}

#[test]
fn a_newcomer_gets_a_certificate_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (data, ports) = (folder.path().join("data"), folder.path().join("ports"));
    let shown = folder.path().join("shown");
    let program = Kind::Larix.program().unwrap();
    let child = Command::new(&program)
        .args(["serve", "--suffix", "dc=example,dc=com", "-h", "ldaps://127.0.0.1:0", "--data"])
        .arg(&data)
        .arg("--port-file")
        .arg(&ports)
        .stdout(std::fs::File::create(&shown).unwrap())
        .spawn()
        .unwrap();
    let mut child = Running(child);
    let port = until_some("the server's port", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::fs::read_to_string(&ports).ok()
    });
    let authority = format!("tls_cacert={}", data.join("server.pem").display());
    let url = format!("ldaps://127.0.0.1:{}", port.trim());
    let output =
        Command::new(&program).args(["whoami", "-x", "-o", &authority, "-H", &url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "anonymous\n", "{output:?}");
    // What it shows comes behind the ports, line by line.
    until("it tells of its certificate", || {
        let shown = std::fs::read_to_string(&shown).unwrap();
        shown.contains("signed itself") && shown.contains("server.pem")
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// As a key that root copied, and then gave to the server's user: nothing but that changes. The same goes for what root may read, too:
/// a key whose size, time and inode are those of what could not be used.
#[test]
fn files_that_could_not_be_used_are_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("larix.log");
    let secure = Secure::start(Kind::Larix, &format!("logfile {}", log.display()));
    let renewed = secure.authority.server();
    let key = secure.path("server.key");
    std::fs::write(secure.path("server.pem"), &renewed.certificate).unwrap();
    std::fs::write(&key, vec![b'x'; renewed.key.len()]).unwrap();
    until("the log names the key", || {
        let written = std::fs::read_to_string(&log).unwrap();
        written.lines().any(|line| line.contains("what was in use stays") && line.contains("server.key"))
    });
    let modified = std::fs::metadata(&key).unwrap().modified().unwrap();
    std::fs::write(&key, &renewed.key).unwrap();
    std::fs::File::options().write(true).open(&key).unwrap().set_modified(modified).unwrap();
    until_in_use(&secure, &renewed.certificate);
}

fn until_in_use(secure: &Secure, certificate: &str) {
    let expected = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec();
    until("the new certificate is in use", || {
        let mut stream = secure.handshake(secure.connect_secure_port());
        assert_eq!(ask(&mut stream, &whoami(1)), ["1:0"]);
        stream.conn.peer_certificates().unwrap()[0].to_vec() == expected
    });
}

/// What the server had read by then is read again.
#[test]
fn a_certificate_that_is_renewed_while_the_server_starts_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("larix.log");
    let Secure { server, authority, site, folder: files, .. } =
        Secure::start(Kind::Larix, &format!("logfile {}", log.display()));
    assert!(server.stop(), "a clean stop");
    // As a tool does that reads the database by a read-only mount: the server waits for it, and has read its files of TLS before.
    let data = std::fs::File::open(site.path().join("data/data.mdb")).unwrap();
    data.lock_shared().unwrap();
    let configuration = site.configuration();
    let urls = ["ldap://127.0.0.1:0/", "ldaps://127.0.0.1:0/"];
    let (server, renewed) = thread::scope(|scope| {
        let starts = scope.spawn(|| Server::start_on(Kind::Larix, &configuration, &urls, &[], &[]));
        until("it waits", || std::fs::read_to_string(&log).unwrap().contains("the server waits for a tool"));
        let renewed = authority.server();
        renewed.write(files.path(), "server");
        drop(data);
        (starts.join().unwrap().unwrap_or_else(|error| panic!("{error}")), renewed)
    });
    let secure =
        Secure { secure_port: server.ports[1], proxied_port: None, server, authority, site, folder: files };
    until_in_use(&secure, &renewed.certificate);
}

#[test]
fn start_tls_keeps_its_order() {
    let secure = Secure::start(Kind::Larix, "");
    let mut socket = secure.connect();
    let mut with_data = Vec::new();
    client::extended(&mut with_data, MessageId(1), oid::START_TLS, Some(b"x"), &[]);
    assert_eq!(ask(&mut socket, &with_data), ["1:2"], "it takes no data");
    assert_eq!(ask(&mut socket, &start_tls(2)), ["2:0"]);
    let mut stream = secure.handshake(socket);
    assert_eq!(ask(&mut stream, &whoami(3)), ["3:0"]);
    assert_eq!(ask(&mut stream, &start_tls(4)), ["4:1"], "TLS is there already");
    assert_eq!(ask(&mut stream, &[whoami(5), whoami(6)].concat()).first().map(String::as_str), Some("5:0"));
}

/// Who has to change a password first is somebody: a client that is anonymous again has nothing to change.
#[test]
fn start_tls_ends_what_has_to_be_changed_with_the_identity_alone() {
    for (settings, code) in [("", 0), ("disallow tls_2_anon\n", 50)] {
        let secure = Secure::start(
            Kind::Larix,
            &format!(
                "{settings}database mdb\nsuffix dc=must\nrootdn cn=admin,dc=must\ndirectory @DATA@/must\n\
                 overlay ppolicy\nppolicy_default cn=policy,dc=must\n"
            ),
        );
        secure.site.load_into(
            Some("dc=must"),
            "dn: dc=must\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: must\n\n\
             dn: cn=policy,dc=must\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
             pwdAttribute: userPassword\npwdMustChange: TRUE\n\n\
             dn: cn=ann,dc=must\nobjectClass: person\ncn: ann\nsn: a\nuserPassword: right\npwdReset: TRUE\n",
        );
        let read = |id: u32| search(id, "dc=must", Scope::Base, "(objectClass=*)");
        let mut socket = secure.connect();
        assert_eq!(ask(&mut socket, &bind(1, "cn=ann,dc=must", "right")), ["1:0"]);
        assert_eq!(ask(&mut socket, &read(2)), ["2:50"]);
        assert_eq!(ask(&mut socket, &start_tls(3)), ["3:0"]);
        assert_eq!(ask(&mut secure.handshake(socket), &read(4)), [format!("4:{code}")], "{settings}");
    }
}

/// What a client meets: `refused`, or that it is connected.
fn outcome(secure: &Secure, certificate: Option<&str>) -> Option<&'static str> {
    let (pem, key) =
        (format!("{}.pem", certificate.unwrap_or("")), format!("{}.key", certificate.unwrap_or("")));
    let (pem, key) = (secure.path(&pem), secure.path(&key));
    let environment: &[(&str, &Path)] = match certificate {
        Some(_) => &[("LDAPTLS_CERT", &pem), ("LDAPTLS_KEY", &key)],
        None => &[],
    };
    let output = secure.tool("ldapwhoami", &["-x", "-H", &secure.secure_url()], environment)?;
    Some(if output.status.success() { "connected" } else { "refused" })
}

/// Who a client is by SASL EXTERNAL; empty if it is nobody.
fn identity(secure: &Secure, certificate: &str) -> String {
    let (pem, key) = (secure.path(&format!("{certificate}.pem")), secure.path(&format!("{certificate}.key")));
    let environment: &[(&str, &Path)] = &[("LDAPTLS_CERT", &pem), ("LDAPTLS_KEY", &key)];
    let output =
        secure.tool("ldapwhoami", &["-Q", "-Y", "EXTERNAL", "-H", &secure.secure_url()], environment);
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

#[test]
fn certificates_of_clients_beside_slapd() {
    let kinds = [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking());
    let kinds: Vec<Kind> = kinds.collect();
    for verify in ["never", "allow", "try", "demand"] {
        let (mut answers, mut identities) = (Vec::new(), Vec::new());
        for kind in &kinds {
            let secure = Secure::start(*kind, &format!("TLSVerifyClient {verify}"));
            let folder = secure.folder.path();
            secure.authority.client("ann").write(folder, "valid");
            Authority::new("Root").client("eve").write(folder, "foreign");
            let old = |params: &mut rcgen::CertificateParams| params.not_after = date_time_ymd(2022, 1, 1);
            secure.authority.issue(&PKCS_ECDSA_P256_SHA256, "old", old).write(folder, "expired");
            let of = |certificate| outcome(&secure, certificate);
            let found = [of(None), of(Some("valid")), of(Some("foreign")), of(Some("expired"))];
            if found[0].is_none() {
                return;
            }
            answers.push((*kind, found.map(Option::unwrap_or_default)));
            identities.push([identity(&secure, "valid"), identity(&secure, "foreign")]);
        }
        let (c, r) = ("connected", "refused");
        let expected = match verify {
            "never" | "allow" => [c, c, c, c],
            "try" => [c, c, r, r],
            _ => [r, c, r, r],
        };
        for (kind, found) in answers {
            assert_eq!(found, expected, "{kind:?}, TLSVerifyClient {verify}: none, valid, foreign, expired");
        }
        let [valid, foreign] = &identities[0];
        let known = if verify == "never" { "" } else { "dn:cn=ann,o=larix tests\n" };
        assert_eq!((valid.as_str(), foreign.as_str()), (known, ""), "Larix, TLSVerifyClient {verify}");
        if let Some([theirs, _]) = identities.get(1) {
            assert_eq!(valid, theirs, "beside slapd, TLSVerifyClient {verify}");
        }
    }
}

#[test]
fn a_server_that_cannot_have_tls_says_why_and_does_not_start() {
    let secure = Secure::start(Kind::Larix, "");
    let configuration = std::fs::read_to_string(secure.site.configuration()).unwrap();
    let program = Kind::Larix.program().unwrap();
    for (old, new, expected) in [
        ("server.key", "missing.key", "missing.key: there is no such file"),
        ("server.key", "server.pem", "server.pem: there is no private key (PEM) in it, but a certificate"),
        (
            "TLSCACertificateFile",
            "TLSCipherSuite RC4\nTLSCACertificateFile",
            "TLSCipherSuite `RC4` leaves no cipher suite",
        ),
    ] {
        let path = secure.path("bad.conf");
        std::fs::write(&path, configuration.replace(old, new)).unwrap();
        let output = Command::new(&program)
            .args(["serve", "-h", "ldap://127.0.0.1:0", "-d", "0", "-f"])
            .arg(&path)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && shown.contains(expected), "{new}: {shown}");
    }
}
