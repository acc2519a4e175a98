//! TLS against the real binary: ldap-utils, OpenSSL's and GnuTLS' clients, certificates of clients, and those who attack.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use larix_proto::{MessageId, Response, client, oid};
use larix_testkit::process::free_port;
use larix_testkit::{Authority, Kind, Server, Site};
use rcgen::{PKCS_ECDSA_P256_SHA256, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long an answer may take before it is missed; longer than a handshake is waited for.
const PATIENCE: Duration = Duration::from_secs(40);

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A server with a certificate of its own authority.
struct Secure {
    server: Server,
    authority: Authority,
    site: Site,
    folder: tempfile::TempDir,
    secure_port: u16,
    proxied_port: u16,
}

impl Secure {
    fn start(kind: Kind, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("Root");
        authority.server().write(folder.path(), "server");
        std::fs::write(folder.path().join("ca.pem"), authority.certificate()).unwrap();
        let path = folder.path().display();
        let body = format!(
            "TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\n\
             TLSCACertificateFile {path}/ca.pem\n{settings}\ndatabase mdb\nsuffix dc=example,dc=com\n\
             rootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\ndatabase monitor\n"
        );
        let site = Site::new(kind, &body);
        let (port, secure_port) = (free_port(), free_port());
        let proxied_port = free_port();
        let mut urls = format!("ldap://127.0.0.1:{port}/ ldaps://127.0.0.1:{secure_port}/");
        if kind == Kind::Larix {
            urls += &format!(" pldap://127.0.0.1:{proxied_port}/");
        }
        let server = Server::start_at(kind, &site.configuration(), port, &["-h", &urls, "-d", "256"])
            .unwrap_or_else(|error| panic!("{error}"));
        Self { server, authority, site, folder, secure_port, proxied_port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One of OpenLDAP's clients that believes the authority; `None` where they are not installed.
    fn tool(&self, name: &str, arguments: &[&str], environment: &[(&str, &Path)]) -> Option<Output> {
        let program = Path::new("/usr/bin").join(name);
        if !program.exists() {
            eprintln!("{name} is not installed: not tested");
            return None;
        }
        let mut command = Command::new(program);
        command.args(arguments).env("LDAPNOINIT", "").env_remove("LDAPNOINIT");
        command.env("LDAPTLS_CACERT", self.path("ca.pem")).envs(environment.iter().copied());
        Some(command.output().unwrap())
    }

    fn url(&self) -> String {
        format!("ldap://{}", self.server.address)
    }

    fn secure_url(&self) -> String {
        format!("ldaps://127.0.0.1:{}", self.secure_port)
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.server.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn connect_secure_port(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.secure_port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn handshake(&self, mut socket: TcpStream) -> TlsStream {
        let mut roots = RootCertStore::empty();
        let root = std::fs::read(self.path("ca.pem")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&root).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut session =
            ClientConnection::new(Arc::new(config), ServerName::try_from("127.0.0.1").unwrap()).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket).unwrap();
        }
        StreamOwned::new(session, socket)
    }

    fn assert_serves(&self, after: &str) {
        let mut stream = self.handshake(self.connect_secure_port());
        assert_eq!(ask(&mut stream, &whoami(1)), ["1:0"], "after {after}");
    }
}

fn start_tls(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(id), oid::START_TLS, None, &[]);
    out
}

fn whoami(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(id), oid::WHO_AM_I, None, &[]);
    out
}

/// Sends requests and reads one answer a request, or to the end: `id:code`.
fn ask(stream: &mut (impl Read + Write), requests: &[u8]) -> Vec<String> {
    stream.write_all(requests).unwrap();
    stream.flush().unwrap();
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    loop {
        while let Ok(larix_proto::Frame::Complete { len }) = larix_proto::frame(&bytes, 1 << 20) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = Response::decode_message(&pdu).unwrap();
            if let Some((_, result)) = message.response.result() {
                found.push(format!("{}:{}", message.id, result.code.0));
            }
        }
        if !found.is_empty() && bytes.is_empty() {
            return found;
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return found,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Everything up to the end of the connection.
fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes);
    bytes
}

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
        Command::new(program).args(arguments).env("LDAPTLS_CACERT", secure.path("ca.pem")).output().unwrap()
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
    for (program, arguments, expected) in [
        ("openssl", vec!["s_client", "-tls1_3", "-brief", "-CAfile", &ca, "-connect"], "TLSv1.3"),
        ("openssl", vec!["s_client", "-tls1_2", "-brief", "-CAfile", &ca, "-connect"], "TLSv1.2"),
        ("gnutls-cli", vec!["--x509cafile", &ca, "--port", &port], "The certificate is trusted"),
    ] {
        let target = if program == "openssl" { format!("127.0.0.1:{port}") } else { "127.0.0.1".to_owned() };
        let spawned = Command::new(program).args(&arguments).arg(&target).stdin(Stdio::null()).output();
        let Ok(output) = spawned else {
            eprintln!("{program} is not installed: not tested");
            continue;
        };
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
    let log = secure.server.log();
    let line = "TLS established tls_ssf=256 ssf=256 tls_proto=TLSv1.3 tls_cipher=TLS_AES_256_GCM_SHA384";
    assert!(log.contains(line), "{log}");
    assert!(secure.server.stop(), "a clean stop");
}

#[test]
fn a_balancer_says_who_the_client_is() {
    let secure = Secure::start(Kind::Larix, "");
    let connect = || {
        let socket = TcpStream::connect(("127.0.0.1", secure.proxied_port)).unwrap();
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
    assert_eq!(rest(&mut bare), b"", "nothing is said to whoever does not say who he is");
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
    let mut child = Command::new(&program)
        .args(["serve", "--suffix", "dc=example,dc=com", "-h", "ldaps://127.0.0.1:0", "--data"])
        .arg(&data)
        .arg("--port-file")
        .arg(&ports)
        .stdout(std::fs::File::create(&shown).unwrap())
        .spawn()
        .unwrap();
    let port = loop {
        if let Ok(port) = std::fs::read_to_string(&ports) {
            break port.trim().to_owned();
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    };
    let authority = format!("tls_cacert={}", data.join("server.pem").display());
    let url = format!("ldaps://127.0.0.1:{port}");
    let output =
        Command::new(&program).args(["whoami", "-x", "-o", &authority, "-H", &url]).output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "anonymous\n", "{output:?}");
    let shown = std::fs::read_to_string(shown).unwrap();
    assert!(shown.contains("signed itself") && shown.contains("server.pem"), "{shown}");
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

#[test]
fn what_is_injected_behind_start_tls_is_never_answered() {
    let secure = Secure::start(Kind::Larix, "");
    for (name, behind) in
        [("a request", whoami(2)), ("a part of one", vec![0x30]), ("garbage", vec![0xff; 70_000])]
    {
        let mut socket = secure.connect();
        let _ = socket.write_all(&[start_tls(1), behind].concat());
        let answer = rest(&mut socket);
        let mut found = Vec::new();
        let mut bytes = answer.as_slice();
        while let Ok(larix_proto::Frame::Complete { len }) = larix_proto::frame(bytes, 1 << 20) {
            found.push(Response::decode_message(&bytes[..len]).unwrap().id.0);
            bytes = &bytes[len..];
        }
        assert!(found.is_empty() || found == [1], "{name}: {found:?}");
    }
    // In a segment of its own it is taken for a handshake, and is none.
    let mut socket = secure.connect();
    assert_eq!(ask(&mut socket, &start_tls(1)), ["1:0"]);
    socket.write_all(&whoami(2)).unwrap();
    let answer = rest(&mut socket);
    assert!(answer.is_empty() || answer[0] == 21, "an alert at most: {answer:02x?}");
    secure.assert_serves("injections");
}

#[test]
fn nobody_is_talked_down() {
    // A database that demands strength gives nothing away in the clear, and all of it behind TLS.
    let secure = Secure::start(Kind::Larix, "security ssf=128");
    let mut socket = secure.connect();
    assert_eq!(ask(&mut socket, &whoami(1)), ["1:13"]);
    assert_eq!(ask(&mut socket, &start_tls(2)), ["2:0"]);
    assert_eq!(ask(&mut secure.handshake(socket), &whoami(3)), ["3:0"]);
    // A client that speaks nothing newer than TLS 1.1 is told so: alert 70, protocol version.
    let mut hello = vec![3, 2];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x2f, 0xc0, 0x2b, 1, 0]);
    let extensions =
        [&[0, 10, 0, 4, 0, 2, 0, 23][..], &[0, 11, 0, 2, 1, 0], &[0, 13, 0, 4, 0, 2, 4, 3]].concat();
    hello.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
    hello.extend_from_slice(&extensions);
    let length = u16::try_from(hello.len()).unwrap();
    let message = [&[1, 0], &length.to_be_bytes()[..], &hello].concat();
    let record = [&[22, 3, 1], &(length + 4).to_be_bytes()[..], &message].concat();
    let mut socket = secure.connect_secure_port();
    socket.write_all(&record).unwrap();
    assert_eq!(rest(&mut socket), [21, 3, 3, 0, 2, 2, 70], "fatal alert: protocol version");
    // LDAP in the clear at a port of TLS is no handshake.
    let mut socket = secure.connect_secure_port();
    socket.write_all(&whoami(1)).unwrap();
    let answer = rest(&mut socket);
    assert!(answer.is_empty() || answer[0] == 21, "{answer:02x?}");
    secure.assert_serves("attempts to talk it down");
}

#[test]
fn slow_handshakes_hold_nobody_up_and_end() {
    let secure = Secure::start(Kind::Larix, "");
    let mut slow: Vec<TcpStream> = (0..300).map(|_| secure.connect_secure_port()).collect();
    for socket in slow.iter_mut().skip(100) {
        // The beginning of a hello that never comes whole.
        socket.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]).unwrap();
    }
    for _ in 0..5 {
        secure.assert_serves("slow handshakes began");
    }
    // Each ends by the server's patience, not by the client's.
    assert_eq!(rest(&mut slow[0]), b"");
    assert_eq!(rest(&mut slow[299]), b"");
    secure.assert_serves("slow handshakes ended");
}

#[test]
fn certificates_are_swapped_under_load() {
    let secure = Secure::start(Kind::Larix, "");
    let mut old = secure.handshake(secure.connect_secure_port());
    let served = |stream: &TlsStream| stream.conn.peer_certificates().unwrap()[0].to_vec();
    let first = served(&old);
    // Broken files are not taken.
    std::fs::write(secure.path("server.key"), "nothing").unwrap();
    let renewed = secure.authority.server();
    let expected = CertificateDer::from_pem_slice(renewed.certificate.as_bytes()).unwrap().to_vec();
    let mut handshakes = 0;
    let mut last = first.clone();
    while last != expected {
        if handshakes == 50 {
            renewed.write(secure.folder.path(), "server");
        }
        handshakes += 1;
        let mut stream = secure.handshake(secure.connect_secure_port());
        assert_eq!(ask(&mut stream, &whoami(1)), ["1:0"], "handshake {handshakes}");
        last = served(&stream);
        assert!(last == first || last == expected);
        assert!(handshakes < 100_000, "the new certificate is never used");
    }
    assert_eq!(ask(&mut old, &whoami(9)), ["9:0"], "a connection that stands keeps standing");
    eprintln!("{handshakes} handshakes while certificates changed, none failed");
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
    let kinds = match Kind::Slapd.program() {
        Some(_) => vec![Kind::Larix, Kind::Slapd],
        None => vec![Kind::Larix],
    };
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
