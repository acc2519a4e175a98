//! Handshakes with servers of every kind, and what is said when they fail.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larix_client::{Ambient, ClientError, ConnectionOptions, Credentials, Session, TlsOptions};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_testkit::pki::version_1;
use larix_testkit::{Authority, Issued, self_signed};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, version};

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

/// A server for one handshake, which then answers nothing.
struct Peer {
    port: u16,
    thread: JoinHandle<()>,
}

impl Peer {
    fn new(serve: impl FnOnce(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = thread::spawn(move || {
            let socket = listener.accept().unwrap().0;
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            serve(socket);
        });
        Self { port, thread }
    }

    fn tls(
        issued: &Issued,
        versions: &[&'static SupportedProtocolVersion],
        clients: Option<&Authority>,
    ) -> Self {
        let chain =
            CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap())
                    .unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
                let verifier = verifier.build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        // Certificates that are not good, and those of other keys, too.
        let key = provider.key_provider.load_private_key(key).unwrap();
        let own = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let config = Arc::new(builder.with_cert_resolver(Arc::new(own)));
        Self::new(move |socket| {
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
            // What it says last has gone out when the client's end is seen.
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.flush();
            let _ = stream.sock.shutdown(std::net::Shutdown::Write);
            let _ = stream.sock.read(&mut [0; 4_096]);
        })
    }

    /// What a client with these settings says, or that it got through.
    fn ask(self, host: &str, settings: &[(&str, &str)]) -> Result<(), String> {
        let url = LdapUrl::server(UrlScheme::Ldaps, host, Some(self.port));
        let patience = Some(Duration::from_secs(60));
        let options = ConnectionOptions { connect_timeout: patience, ..ConnectionOptions::default() };
        let tls = TlsOptions::new(settings.iter().copied());
        let ambient = Ambient { random: |_| {}, end_point_binding: |_| None };
        let nobody = Credentials::Simple { dn: String::new(), password: Vec::new().into() };
        let told =
            Session::connect(&[url], &options, &tls, ambient).and_then(|mut session| session.bind(&nobody));
        // They know the socket, too.
        drop(options);
        // A client that fails before it connects (`localhost` has no address, say) leaves the server waiting: this ends that.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.thread.join().expect("the server's thread");
        match told {
            // It has nothing to say to what it could read.
            Err(ClientError::Closed) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(()) => Err("an answer".to_owned()),
        }
    }
}

/// A file in a folder of its own, to be named in a setting.
struct Trust(tempfile::TempDir);

impl Trust {
    fn new(certificates: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("trust.pem"), certificates.concat()).unwrap();
        Self(folder)
    }

    fn path(&self) -> String {
        self.0.path().join("trust.pem").display().to_string()
    }
}

fn authority_of_itself(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

/// As `openssl req -x509` makes them.
#[test]
fn a_certificate_that_is_trusted_itself_is_taken() {
    let own = self_signed(authority_of_itself);
    let other = self_signed(authority_of_itself);
    for versions in [&BOTH[..1], &BOTH[1..]] {
        let lists = Authority::new("Root").revocations(&[], 2090);
        let trust = Trust::new(&[&other.certificate, &own.certificate, &lists]);
        let trusted = [("tls_cacert", trust.path())];
        let settings = |more: &[(&'static str, &'static str)]| -> Vec<(&'static str, String)> {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            trusted.iter().cloned().chain(more).collect()
        };
        let ask = |issued: &Issued, host: &str, more: &[(&'static str, &'static str)]| {
            let all = settings(more);
            let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
            Peer::tls(issued, versions, None).ask(host, &all)
        };
        assert_eq!(ask(&own, "localhost", &[]), Ok(()));
        assert_eq!(ask(&own, "127.0.0.1", &[("tls_reqsan", "demand")]), Ok(()));
        // Its name is looked at as ever ...
        let wrong =
            ask(&self_signed_elsewhere(&trust), "localhost", &[("tls_reqsan", "demand")]).unwrap_err();
        assert!(wrong.contains("is for ldap.example.com, and not for localhost"), "{wrong}");
        // ... and nobody says whether it is revoked.
        let unknown = ask(&own, "localhost", &[("tls_crlcheck", "peer")]).unwrap_err();
        assert!(unknown.contains("revoked") && unknown.contains("tls_crlfile"), "{unknown}");
    }
}

/// One with another name, which is trusted from now on.
fn self_signed_elsewhere(trust: &Trust) -> Issued {
    let issued = self_signed(|params| {
        authority_of_itself(params);
        params.subject_alt_names = vec![rcgen::SanType::DnsName("ldap.example.com".try_into().unwrap())];
    });
    let before = std::fs::read_to_string(trust.path()).unwrap();
    std::fs::write(trust.path(), before + &issued.certificate).unwrap();
    issued
}

/// Validity and use hold for a certificate that is trusted itself, too; another one with its name and key is not it.
#[test]
fn a_certificate_that_is_trusted_itself_is_judged() {
    type Change = fn(&mut CertificateParams);
    let changes: [(Change, &str); 3] = [
        (|params| params.not_after = date_time_ymd(2021, 1, 1), "expired on 2021-01-01 00:00:00 UTC"),
        (
            |params| params.not_before = date_time_ymd(2098, 1, 1),
            "is not valid before 2098-01-01 00:00:00 UTC",
        ),
        (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], "not for servers"),
    ];
    for (change, expected) in changes {
        let issued = self_signed(|params| {
            authority_of_itself(params);
            change(params);
        });
        let trust = Trust::new(&[&issued.certificate]);
        let error =
            Peer::tls(&issued, BOTH, None).ask("localhost", &[("tls_cacert", &trust.path())]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let trust = Trust::new(&[&self_signed(authority_of_itself).certificate]);
    let error = Peer::tls(&self_signed(authority_of_itself), BOTH, None);
    let error = error.ask("localhost", &[("tls_cacert", &trust.path())]).unwrap_err();
    assert!(error.contains("authority's (CN=localhost,O=Larix tests, CA:TRUE)"), "{error}");
    assert!(error.contains("name its file in tls_cacert"), "{error}");
}

/// The key of a trusted certificate that is no authority's, such as another server's, signs no servers.
#[test]
fn who_is_no_authority_signs_no_servers() {
    let authority = || IsCa::Ca(BasicConstraints::Unconstrained);
    // Whether what its key signed is taken. It is itself, in any case.
    for (is_ca, usages, expected) in [
        (IsCa::NoCa, vec![], false),
        (IsCa::ExplicitNoCa, vec![], false),
        (authority(), vec![KeyUsagePurpose::DigitalSignature], false),
        (authority(), vec![], true),
        (authority(), vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature], true),
    ] {
        let what = format!("{is_ca:?}, {usages:?}");
        let own = Authority::changed("Own", |params| {
            (params.is_ca, params.key_usages) = (is_ca, usages);
            params.subject_alt_names = vec![rcgen::SanType::DnsName("localhost".try_into().unwrap())];
        });
        for others in [String::new(), Authority::new("Other").certificate()] {
            let trust = Trust::new(&[&own.certificate(), &others]);
            let path = trust.path();
            let settings = [("tls_cacert", path.as_str())];
            assert_eq!(Peer::tls(&own.own(), BOTH, None).ask("localhost", &settings), Ok(()), "{what}");
            let signed = Peer::tls(&own.server(), BOTH, None).ask("localhost", &settings);
            assert_eq!(signed.is_ok(), expected, "{what}: {signed:?}");
            assert!(expected || signed.is_err_and(|error| error.contains("not trusted (CN=Own")), "{what}");
        }
    }
}

#[test]
fn an_expired_authority_signs_no_servers() {
    let old = Authority::changed("Old", |params| params.not_after = date_time_ymd(2021, 1, 1));
    let root = Authority::new("Root");
    // By its common name it may be localhost, which is asked only if the chain is good.
    let elsewhere = old.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("ldap.example.com".try_into().unwrap())];
    });
    let lower = old.intermediate("Lower");
    let mut below = lower.server();
    below.certificate += &lower.certificate();
    for certificates in [vec![old.certificate()], vec![old.certificate(), root.certificate()]] {
        let trust = Trust::new(&certificates.iter().map(String::as_str).collect::<Vec<_>>());
        let path = trust.path();
        let ask = |issued: &Issued| Peer::tls(issued, BOTH, None).ask("localhost", &[("tls_cacert", &path)]);
        for issued in [&old.server(), &elsewhere] {
            let error = ask(issued).unwrap_err();
            assert!(error.contains("an authority above the server's certificate has expired"), "{error}");
            assert!(error.contains("tls_cacert"), "{error}");
        }
        assert_eq!(ask(&root.server()).is_ok(), certificates.len() == 2);
    }
    let trust = Trust::new(&[&old.certificate(), &root.certificate()]);
    let error = Peer::tls(&below, BOTH, None).ask("localhost", &[("tls_cacert", &trust.path())]);
    assert!(error.is_err_and(|error| error.contains("has expired")));
}

/// Also where it stands beside its root among those that are trusted.
#[test]
fn a_revoked_authority_signs_no_servers() {
    let root = Authority::new("Root");
    let lower = root.intermediate("Lower");
    let (server, own) = (lower.server(), lower.own());
    for (revoked, expected) in [(vec![], true), (vec![&own], false)] {
        let lists = root.revocations(&revoked, 2090) + &lower.revocations(&[], 2090);
        let trust = Trust::new(&[&root.certificate(), &own.certificate, &lists]);
        let path = trust.path();
        let told = Peer::tls(&server, BOTH, None)
            .ask("localhost", &[("tls_cacert", &path), ("tls_crlcheck", "all")]);
        assert_eq!(told.is_ok(), expected, "{told:?}");
        assert!(expected || told.is_err_and(|error| error.contains("is revoked")));
    }
}

/// Who can do without it goes on (`-Z`, `starttls=yes`): nothing was sent.
#[test]
fn a_local_socket_has_no_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ldapi");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let url = LdapUrl::server(UrlScheme::Ldapi, path.display().to_string(), None);
    let ambient = Ambient { random: |_| {}, end_point_binding: |_| None };
    let tls = TlsOptions::default();
    let mut session = Session::connect(&[url], &ConnectionOptions::default(), &tls, ambient).unwrap();
    let refusal = session.start_tls(&tls).unwrap().unwrap().to_string();
    assert!(refusal.contains("a local socket (ldapi://) has no TLS"), "{refusal}");
}

/// Whatever the order in the file: lists are appended to it.
#[test]
fn the_newest_list_counts() {
    let root = Authority::new("Root");
    let (server, revoked) = (root.server(), root.server());
    let lists = [root.revocations_of(2021, &[], 2090), root.revocations_of(2022, &[&revoked], 2090)];
    for order in [[0, 1], [1, 0]] {
        let trust = Trust::new(&[&root.certificate(), &lists[order[0]], &lists[order[1]]]);
        let path = trust.path();
        for check in ["none", "peer", "all"] {
            let ask = |issued: &Issued| {
                Peer::tls(issued, BOTH, None)
                    .ask("localhost", &[("tls_cacert", &path), ("tls_crlcheck", check)])
            };
            assert_eq!(ask(&server), Ok(()), "{order:?} {check}");
            assert!(ask(&revoked).is_err_and(|error| error.contains("is revoked")), "{order:?} {check}");
        }
    }
}

/// Where `openssl rehash` puts them.
#[test]
fn lists_stand_in_the_directory_of_authorities() {
    let root = Authority::new("Root");
    let (server, revoked) = (root.server(), root.server());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("0a1b2c3d.0"), root.certificate()).unwrap();
    let path = folder.path().display().to_string();
    let ask = |issued: &Issued, check: &str| {
        Peer::tls(issued, BOTH, None).ask("localhost", &[("tls_cacertdir", &path), ("tls_crlcheck", check)])
    };
    for check in ["peer", "all"] {
        let error = ask(&server, check).unwrap_err();
        assert!(error.contains("no list of revoked certificates is there"), "{error}");
    }
    std::fs::write(folder.path().join("0a1b2c3d.r0"), root.revocations(&[&revoked], 2090)).unwrap();
    for check in ["peer", "all"] {
        assert_eq!(ask(&server, check), Ok(()));
        assert!(ask(&revoked, check).is_err_and(|error| error.contains("is revoked")));
    }
    assert_eq!(ask(&revoked, "none"), Ok(()));
}

/// Where nobody judges the certificate, it may say anything; that the server has its key is proven.
#[test]
fn the_key_of_any_certificate_is_proven() {
    let root = Authority::new("Root");
    let unknown = root.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |params| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    });
    let trust = Trust::new(&[&root.certificate(), &version_1().certificate]);
    let path = trust.path();
    for versions in [&BOTH[..1], &BOTH[1..]] {
        for (issued, judged) in [
            (&version_1(), "of X.509 version 1"),
            (&unknown, "an extension is marked critical that the TLS library does not know"),
        ] {
            let ask = |issued: &Issued, requires: &str| {
                let settings = [("tls_cacert", path.as_str()), ("tls_reqcert", requires)];
                Peer::tls(issued, versions, None).ask("localhost", &settings)
            };
            assert_eq!(ask(issued, "never"), Ok(()));
            assert_eq!(ask(issued, "allow"), Ok(()));
            let error = ask(issued, "demand").unwrap_err();
            assert!(error.contains(judged), "{error}");
            let mut stolen = issued.clone();
            stolen.key = root.server().key;
            assert!(ask(&stolen, "never").is_err(), "{judged}");
        }
    }
}

/// What was revoked since the next one was due stands on no list. Where nothing has to be known, an old one is better than none.
#[test]
fn a_list_that_is_past_its_time_proves_nothing() {
    let root = Authority::new("Root");
    let (server, revoked) = (root.server(), root.server());
    let trust = Trust::new(&[&root.certificate(), &root.revocations(&[&revoked], 2022)]);
    let path = trust.path();
    let ask = |issued: &Issued, check: &str| {
        Peer::tls(issued, BOTH, None).ask("localhost", &[("tls_cacert", &path), ("tls_crlcheck", check)])
    };
    for check in ["peer", "all"] {
        let error = ask(&server, check).unwrap_err();
        assert!(
            error.contains("was to be renewed on 2022-01-01") && error.contains("tls_crlfile"),
            "{error}"
        );
    }
    assert_eq!(ask(&server, "none"), Ok(()));
    assert!(ask(&revoked, "none").is_err_and(|error| error.contains("is revoked")));
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_with_the_mend() {
    let root = Authority::new("Root");
    let (ours, other) =
        (Trust::new(&[&root.certificate()]), Trust::new(&[&Authority::new("Other").certificate()]));
    let namesake = Trust::new(&[&Authority::new("Root").certificate()]);
    let issue =
        |change: fn(&mut CertificateParams)| root.issue(&PKCS_ECDSA_P256_SHA256, "ldap.example.com", change);
    let cases: [(Issued, &Trust, &[&str]); 6] = [
        (issue(|_| {}), &other, &["not trusted (CN=Root,O=Larix tests)", "tls_cacert", "TLS_CACERT"]),
        (
            issue(|_| {}),
            &namesake,
            &["CN=Root,O=Larix tests has the name of a trusted authority", "tls_cacert"],
        ),
        (self_signed(|_| {}), &other, &["signed by itself (CN=localhost,O=Larix tests)", "tls_cacert"]),
        (
            issue(|params| params.subject_alt_names.clear()),
            &ours,
            &["only the common name ldap.example.com, and not for localhost", "tls_reqsan"],
        ),
        (
            issue(|params| params.not_after = date_time_ymd(2022, 3, 4)),
            &ours,
            &["expired on 2022-03-04 00:00:00 UTC", "renewed", "clock says 20"],
        ),
        (
            issue(|params| params.not_before = date_time_ymd(2097, 3, 4)),
            &ours,
            &["not valid before 2097-03-04", "clock"],
        ),
    ];
    for (issued, trust, expected) in cases {
        let error =
            Peer::tls(&issued, BOTH, None).ask("localhost", &[("tls_cacert", &trust.path())]).unwrap_err();
        assert!(error.starts_with("no TLS with localhost: "), "{error}");
        for part in expected {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    assert_eq!(
        Peer::tls(&root.server(), BOTH, None).ask("localhost", &[("tls_cacert", &ours.path())]),
        Ok(())
    );
}

#[test]
fn what_two_sides_do_not_share_is_said_with_the_mend() {
    let (root, clients) = (Authority::new("Root"), Authority::new("Clients"));
    let trust = Trust::new(&[&root.certificate()]);
    let path = trust.path();
    let ask = |peer: Peer, more: &[(&str, &str)]| {
        let settings: Vec<_> =
            [("tls_cacert", path.as_str())].into_iter().chain(more.iter().copied()).collect();
        peer.ask("localhost", &settings).unwrap_err()
    };
    let says = |error: String, expected: &[&str]| {
        for part in expected {
            assert!(error.contains(part), "{part}: {error}");
        }
    };
    let server = root.server();
    let old = ask(Peer::tls(&server, &BOTH[..1], None), &[("tls_protocol_min", "3.4")]);
    says(old, &["none of the TLS versions", "tls_protocol_min"]);
    // With TLS 1.3 this comes once the handshake is done here.
    for versions in [&BOTH[..1], &BOTH[1..]] {
        let wanted = ask(Peer::tls(&server, versions, Some(&clients)), &[]);
        says(wanted, &["wants a certificate of the client", "tls_cert", "tls_key"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = root.client("ann").write(folder.path(), "ann");
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let stranger =
        ask(Peer::tls(&server, BOTH, Some(&clients)), &[("tls_cert", &certificate), ("tls_key", &key)]);
    says(stranger, &["does not trust the authority of our certificate", "TLSCACertificateFile"]);
    let suites = ask(Peer::tls(&server, &BOTH[1..], None), &[("tls_cipher_suite", "SECURE256:-VERS-TLS1.3")]);
    says(suites, &["none of the TLS versions"]);
    let plain = Peer::new(|mut socket| {
        let _ = socket.read(&mut [0; 4_096]);
        let _ = socket.write_all(b"0\x0c\x02\x01\x00x\x07\x0a\x01\x02\x04\x00\x04\x00");
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read(&mut [0; 4_096]);
    });
    says(ask(plain, &[]), &["is no TLS", "-ZZ"]);
    let silent = Peer::new(|mut socket| {
        let _ = socket.read(&mut [0; 4_096]);
    });
    says(ask(silent, &[]), &["closed the connection during the handshake", "its log", "ldaps://"]);
}
