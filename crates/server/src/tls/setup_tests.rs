//! Settings and files, good and bad.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use larix_testkit::pki::version_1;
use larix_testkit::{Authority, Issued};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;

use super::*;

const TODAY: i64 = 1_800_000_000;
struct Files {
    folder: tempfile::TempDir,
    settings: TlsSettings,
}

impl Files {
    /// `server.pem` and `server.key` of a new authority, and its `ca.pem`.
    fn new() -> (Self, Authority) {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("Root");
        let mut files = Self { folder, settings: TlsSettings::default() };
        files.use_server(&authority.server());
        files.settings.ca_certificate_file = Some(files.write("ca.pem", authority.certificate()));
        (files, authority)
    }

    fn use_server(&mut self, issued: &Issued) {
        self.settings.certificate_file = Some(self.write("server.pem", &issued.certificate));
        self.settings.certificate_key_file = Some(self.write("server.key", &issued.key));
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self) -> Result<Loaded, TlsError> {
        TlsState::load(&self.settings, Timestamp::from_seconds(TODAY))
    }

    /// What is wrong, or the notes.
    fn outcome(&self) -> String {
        match self.load() {
            Ok(loaded) if loaded.state.is_none() => "no TLS".to_owned(),
            Ok(loaded) => format!("good; {}", loaded.notes.join("; ")),
            Err(error) => error.to_string(),
        }
    }
}

/// Changes good settings and looks for `expected` in what comes of it.
fn check(name: &str, change: impl FnOnce(&mut Files, &Authority), expected: &[&str]) {
    let (mut files, authority) = Files::new();
    change(&mut files, &authority);
    let outcome = files.outcome();
    for part in expected {
        assert!(outcome.contains(part), "{name}: expected {part:?}, got {outcome:?}");
    }
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn settings_that_serve() {
    check("all files", |_, _| {}, &["good; "]);
    check("nothing", |f, _| f.settings = TlsSettings::default(), &["no TLS"]);
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        check("kinds of keys", |f, a| f.use_server(&a.issue(algorithm, "localhost", |_| {})), &["good; "]);
    }
    check(
        "text around the certificate, in Latin-1",
        |f, a| {
            let text = [b"subject: M\xfcller\n", a.server().certificate.as_bytes()].concat();
            let issued = a.server();
            f.settings.certificate_file =
                Some(f.write("a.pem", [&text[..16], issued.certificate.as_bytes()].concat()));
            f.settings.certificate_key_file = Some(f.write("a.key", &issued.key));
        },
        &["good; "],
    );
    check(
        "the key in the certificate's file",
        |f, a| {
            let issued = a.server();
            f.settings.certificate_key_file = None;
            f.settings.certificate_file = Some(f.write("both.pem", issued.key + &issued.certificate));
        },
        &["good; "],
    );
    check(
        "values of cn=config",
        |f, a| {
            let issued = a.server();
            f.settings.certificate = Some(der(&issued.certificate));
            let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
            f.settings.certificate_key = Some(key.secret_der().to_vec());
            f.settings.ca_certificate = Some(der(&a.certificate()));
            (f.settings.certificate_file, f.settings.certificate_key_file) = (None, None);
        },
        &["good; "],
    );
    check(
        "an expired certificate serves, with a warning",
        |f, a| {
            f.use_server(&a.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |params| {
                params.not_after = date_time_ymd(2024, 5, 6);
            }));
        },
        &["good; ", "server.pem: the certificate expired on 2024-05-06"],
    );
    check(
        "a certificate of version 1 serves, with a warning",
        |f, _| f.use_server(&version_1()),
        &["good; ", "server.pem: the certificate is of X.509 version 1", "-extfile"],
    );
    check(
        "an extension that only others know",
        |f, a| {
            f.use_server(&a.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |params| {
                let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                extension.set_criticality(true);
                params.custom_extensions.push(extension);
            }));
        },
        &["good; "],
    );
    check(
        "byte order marks",
        |f, a| {
            let issued = a.server();
            f.settings.certificate_file = Some(f.write("a.pem", "\u{feff}".to_owned() + &issued.certificate));
            f.settings.certificate_key_file = Some(f.write("a.key", "\u{feff}".to_owned() + &issued.key));
        },
        &["good; "],
    );
    check(
        "settings without effect are noted",
        |f, _| {
            f.settings.cipher_suite = Some("HIGH:@SECLEVEL=2".to_owned());
            f.settings.protocol_min = Some("3.1".to_owned());
        },
        &["good; ", "@SECLEVEL=2", "nothing below TLS 1.2"],
    );
}

#[test]
fn files_that_do_not() {
    let certificate = |f: &mut Files, path: &Path| f.settings.certificate_file = Some(path.to_owned());
    check(
        "no file",
        |f, _| certificate(f, Path::new("/no/such.pem")),
        &["TLSCertificateFile /no/such.pem: there is no such file"],
    );
    check("a directory", |f, _| certificate(f, Path::new("/")), &["TLSCertificateFile /: ", "directory"]);
    check(
        "empty",
        |f, _| certificate(f, &f.write("e.pem", "")),
        &["e.pem: there is no certificate (PEM) in it, but nothing at all"],
    );
    check(
        "a key instead",
        |f, a| certificate(f, &f.write("k.pem", a.server().key)),
        &["k.pem: there is no certificate (PEM) in it, but a private key"],
    );
    check(
        "DER",
        |f, a| certificate(f, &f.write("d.pem", der(&a.certificate()))),
        &["d.pem: there is no certificate (PEM) in it, but binary data", "openssl x509 -inform der"],
    );
    check(
        "damaged base64",
        |f, _| {
            certificate(f, &f.write("b.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"))
        },
        &["b.pem: its PEM is damaged"],
    );
    check(
        "not a certificate",
        |f, _| {
            certificate(
                f,
                &f.write("n.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"),
            )
        },
        &["n.pem: what stands there as a certificate is none"],
    );
    check(
        "no key",
        |f, _| f.settings.certificate_key_file = None,
        &["TLSCertificateFile is given, TLSCertificateKeyFile is not"],
    );
    check(
        "no certificate",
        |f, _| f.settings.certificate_file = None,
        &["TLSCertificateKeyFile is given, TLSCertificateFile is not"],
    );
    check(
        "another key",
        |f, a| f.settings.certificate_key_file = Some(f.write("other.key", a.server().key)),
        &["other.key: the key belongs to no certificate in", "server.pem"],
    );
    check(
        "a certificate as key",
        |f, a| f.settings.certificate_key_file = Some(f.write("c.key", a.certificate())),
        &["c.key: there is no private key (PEM) in it, but a certificate"],
    );
    for (name, header) in [
        ("ENCRYPTED PRIVATE KEY", ""),
        ("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n"),
    ] {
        check(
            "an encrypted key",
            |f, _| {
                let text = format!("-----BEGIN {name}-----\n{header}MAA=\n-----END {name}-----\n");
                f.settings.certificate_key_file = Some(f.write("enc.key", text));
            },
            &["enc.key: the key is encrypted", "openssl pkey -in"],
        );
    }
    check(
        "no authorities",
        |f, _| f.settings.ca_certificate_file = Some("/no/ca.pem".into()),
        &["TLSCACertificateFile /no/ca.pem: there is no such file"],
    );
    check(
        "no directory",
        |f, _| f.settings.ca_certificate_path = Some("/no/certs".into()),
        &["TLSCACertificatePath /no/certs: there is no such file"],
    );
    check(
        "no list",
        |f, a| f.settings.crl_file = Some(f.write("crl.pem", a.certificate())),
        &["TLSCRLFile", "crl.pem: there is no revocation list (PEM) in it"],
    );
}

#[test]
fn settings_that_do_not_go_together() {
    let text = |text: &str| Some(text.to_owned());
    check(
        "no cipher",
        |f, _| f.settings.cipher_suite = text("RC4"),
        &["TLSCipherSuite `RC4` leaves no cipher suite"],
    );
    check(
        "no version",
        |f, _| f.settings.protocol_min = text("3.9"),
        &["TLSProtocolMin `3.9`: there is no such version"],
    );
    check(
        "no group",
        |f, _| f.settings.ec_name = text("secp521r1"),
        &["TLSECName `secp521r1` names no group"],
    );
    check(
        "nobody to believe",
        |f, _| (f.settings.verify_client, f.settings.ca_certificate_file) = (TlsVerify::Demand, None),
        &["TLSVerifyClient demand needs authorities to believe"],
    );
    check(
        "no list to look at",
        |f, _| (f.settings.verify_client, f.settings.crl_check) = (TlsVerify::Try, text("peer")),
        &["TLSCRLCheck peer needs revocation lists"],
    );
}

#[test]
fn a_file_that_this_user_may_not_read_names_the_user() {
    if rustix::process::geteuid().is_root() {
        // Root reads everything: what it would be told is looked at alone.
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = TlsError::Read { directive: KEY, path: "/k".into(), source };
        assert_eq!(
            error.to_string(),
            "TLSCertificateKeyFile /k: user 0, as whom the server runs, may not read it"
        );
        return;
    }
    check(
        "no permission",
        |f, _| {
            let path = f.settings.certificate_key_file.clone().unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o0)).unwrap();
        },
        &["server.key: user ", "may not read it"],
    );
}

#[test]
fn chains_are_put_in_order_and_completed() {
    let root = Authority::new("Root");
    let (upper, lower) = (root.intermediate("Upper"), root.intermediate("Other"));
    let lowest = upper.intermediate("Lowest");
    // It names the key that signed it.
    let own = lowest.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |params| {
        params.use_authority_key_identifier_extension = true;
    });
    let (own_pem, upper_pem, lowest_pem) =
        (own.certificate.clone(), upper.certificate(), lowest.certificate());
    // Before `lowest` had a new key; and for clients that trust another root.
    let before_pem = upper.intermediate("Lowest").certificate();
    let crossed_pem = Authority::new("Abroad").crossed("Lowest", &lowest);
    for (name, file, authorities, expected) in [
        ("leaf first", vec![&own_pem, &lowest_pem, &upper_pem], "", vec![&own_pem, &lowest_pem, &upper_pem]),
        ("root first", vec![&upper_pem, &lowest_pem, &own_pem], "", vec![&own_pem, &lowest_pem, &upper_pem]),
        (
            "renewed with another key",
            vec![&own_pem, &before_pem, &lowest_pem],
            "",
            vec![&own_pem, &lowest_pem],
        ),
        (
            "renewed, among the authorities",
            vec![&own_pem],
            &*(before_pem.clone() + &lowest_pem),
            vec![&own_pem, &lowest_pem],
        ),
        (
            "signed by two",
            vec![&own_pem, &lowest_pem, &crossed_pem, &upper_pem],
            "",
            vec![&own_pem, &lowest_pem, &upper_pem, &crossed_pem],
        ),
        ("another in between", vec![&own_pem, &upper_pem], "", vec![&own_pem]),
        (
            "completed",
            vec![&own_pem],
            &*(lowest_pem.clone() + &upper_pem + &root.certificate() + &lower.certificate()),
            vec![&own_pem, &lowest_pem, &upper_pem],
        ),
    ] {
        let (mut files, _) = Files::new();
        files.settings.certificate_key_file = Some(files.write("own.key", &own.key));
        let text: String = file.into_iter().map(String::as_str).collect();
        files.settings.certificate_file = Some(files.write("own.pem", text));
        files.settings.ca_certificate_file =
            (!authorities.is_empty()).then(|| files.write("authorities.pem", authorities));
        let authorities = Authorities::load(&files.settings).unwrap();
        let (certificates, source) = own_certificates(&files.settings).unwrap().unwrap();
        let (key, key_source) = own_key(&files.settings).unwrap();
        let provider = ring::default_provider();
        let chain = certified(certificates, &source, key, &key_source, &authorities, &provider).unwrap().cert;
        let expected: Vec<Vec<u8>> = expected.into_iter().map(|pem| der(pem)).collect();
        let chain: Vec<Vec<u8>> = chain.iter().map(|certificate| certificate.to_vec()).collect();
        assert_eq!(chain, expected, "{name}");
    }
}

#[test]
fn clients_are_believed_or_not() {
    let (mut files, authority) = Files::new();
    let other = Authority::new("Root");
    let good = authority.client("ann");
    let revoked = authority.client("bob");
    let expired = authority
        .issue(&PKCS_ECDSA_P256_SHA256, "old", |params| params.not_after = date_time_ymd(2024, 1, 1));
    let foreign = other.client("eve");
    let directory = files.folder.path().join("authorities");
    files.write("authorities/README", "not a certificate");
    files.write("authorities/root.pem", authority.certificate());
    std::os::unix::fs::symlink("root.pem", directory.join("0a1b2c3d.0")).unwrap();
    files.settings.ca_certificate_file = None;
    files.settings.ca_certificate_path = Some(directory);
    files.write("authorities/root.r0", authority.revocations(&[&revoked], 2090));
    let stale = files.write("stale.pem", authority.revocations(&[], 2024));
    // good, revoked, expired, of another authority
    for (check, list, expected) in [
        (None, None, [true, true, false, false]),
        (Some("peer"), None, [true, false, false, false]),
        (Some("all"), None, [true, false, false, false]),
        (None, Some(&stale), [true, false, false, false]),
    ] {
        files.settings.verify_client = TlsVerify::Try;
        files.settings.crl_check = check.map(str::to_owned);
        files.settings.crl_file = list.cloned();
        let authorities = Authorities::load(&files.settings).unwrap();
        assert_eq!(authorities.certificates.len(), 1, "a link is no second certificate");
        let rules = client_rules(&files.settings, authorities, &Arc::new(ring::default_provider())).unwrap();
        let now = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(TODAY as u64));
        let found = [&good, &revoked, &expired, &foreign]
            .map(|issued| rules.believes(&[der(&issued.certificate).into()], now));
        assert_eq!(found, expected, "TLSCRLCheck {check:?}, TLSCRLFile {list:?}");
    }
}

#[test]
fn who_is_no_authority_signs_no_clients() {
    use rcgen::{BasicConstraints, IsCa, KeyUsagePurpose};
    let authority = || IsCa::Ca(BasicConstraints::Unconstrained);
    let now = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(TODAY as u64));
    // What a self-signed certificate among the authorities says that it is; whether a client is believed that shows what its key
    // signed, and one that shows it itself.
    for (name, is_ca, usages, expected) in [
        ("nothing", IsCa::NoCa, vec![], [false, true]),
        ("no authority", IsCa::ExplicitNoCa, vec![], [false, true]),
        ("with another key", authority(), vec![KeyUsagePurpose::DigitalSignature], [false, true]),
        ("an authority", authority(), vec![], [true, true]),
        // A client signs the handshake with its key.
        ("with a key for that", authority(), vec![KeyUsagePurpose::KeyCertSign], [true, false]),
        (
            "with a key for both",
            authority(),
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature],
            [true, true],
        ),
    ] {
        let own = Authority::changed("Own", |params| (params.is_ca, params.key_usages) = (is_ca, usages));
        let signed = own.client("eve").certificate;
        let own = own.certificate();
        for others in [String::new(), Authority::new("Other").certificate()] {
            let (mut files, _) = Files::new();
            files.settings.ca_certificate_file = Some(files.write("known.pem", own.clone() + &others));
            files.settings.verify_client = TlsVerify::Demand;
            let authorities = Authorities::load(&files.settings).unwrap();
            let provider = Arc::new(ring::default_provider());
            let rules = client_rules(&files.settings, authorities, &provider).unwrap();
            let found = [&signed, &own].map(|shown| rules.believes(&[der(shown).into()], now));
            assert_eq!(found, expected, "{name}, {} beside it", others.len());
        }
    }
    // One that another authority signed, and that is none.
    let (mut files, root) = Files::new();
    files.settings.ca_certificate_file = Some(files.write("known.pem", root.server().certificate));
    files.settings.verify_client = TlsVerify::Demand;
    assert!(files.outcome().contains("TLSVerifyClient demand needs authorities to believe"));
}

/// As `openssl req -x509` makes them. Its use and its dates count; where a list has to say that it is not revoked, none does.
#[test]
fn an_authority_that_is_its_own_client_is_judged() {
    use rcgen::KeyUsagePurpose;
    type Change = fn(&mut rcgen::CertificateParams);
    let now = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(TODAY as u64));
    let changes: [(Change, bool); 5] = [
        (|_| {}, true),
        (|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign], false),
        (|params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth], true),
        (|params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth], false),
        (|params| params.not_after = date_time_ymd(2024, 5, 6), false),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        for check in [None, Some("peer"), Some("all")] {
            let (mut files, root) = Files::new();
            let own = || {
                Authority::changed("Own", |params| {
                    params.key_usages.clear();
                    change(params);
                })
            };
            let (own, other) = (own(), own());
            let known = own.certificate() + &root.certificate() + &own.revocations(&[], 2090);
            files.settings.ca_certificate_file = Some(files.write("known.pem", known));
            files.settings.verify_client = TlsVerify::Demand;
            files.settings.crl_check = check.map(str::to_owned);
            let authorities = Authorities::load(&files.settings).unwrap();
            let provider = Arc::new(ring::default_provider());
            let rules = client_rules(&files.settings, authorities, &provider).unwrap();
            let shown: CertificateDer<'_> = der(&own.certificate()).into();
            assert_eq!(rules.believes(&[shown], now), expected && check.is_none(), "{number} {check:?}");
            // One of the same name that is not known.
            let other: CertificateDer<'_> = der(&other.certificate()).into();
            assert!(!rules.believes(&[other], now), "{number} {check:?}");
        }
    }
}

/// Files get newer lists appended.
#[test]
fn the_newest_list_counts() {
    let now = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(TODAY as u64));
    let (mut files, root) = Files::new();
    let (good, revoked) = (root.client("ann"), root.client("bob"));
    let lists = [root.revocations_of(2021, &[], 2090), root.revocations_of(2022, &[&revoked], 2090)];
    for (name, text) in
        [("newest last", lists[0].clone() + &lists[1]), ("newest first", lists[1].clone() + &lists[0])]
    {
        files.settings.crl_file = Some(files.write("lists.pem", text));
        files.settings.verify_client = TlsVerify::Demand;
        for check in [None, Some("peer"), Some("all")] {
            files.settings.crl_check = check.map(str::to_owned);
            let authorities = Authorities::load(&files.settings).unwrap();
            let provider = Arc::new(ring::default_provider());
            let rules = client_rules(&files.settings, authorities, &provider).unwrap();
            let found =
                [&good, &revoked].map(|issued| rules.believes(&[der(&issued.certificate).into()], now));
            assert_eq!(found, [true, false], "{name}, {check:?}");
        }
    }
}

/// It keeps its name, and each of its keys has a list.
#[test]
fn lists_of_an_authority_with_another_key_are_told_apart() {
    let now = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(TODAY as u64));
    let (mut files, old) = Files::new();
    let new = Authority::new("Root");
    let clients = [&old, &new].map(|root| [root.client("ann"), root.client("bob")]);
    let lists = [
        old.revocations_of(2021, &[&clients[0][1]], 2090),
        new.revocations_of(2022, &[&clients[1][1]], 2090),
    ];
    files.settings.ca_certificate_file =
        Some(files.write("known.pem", old.certificate() + &new.certificate()));
    files.settings.crl_file = Some(files.write("lists.pem", lists.concat()));
    files.settings.verify_client = TlsVerify::Demand;
    for check in [None, Some("peer"), Some("all")] {
        files.settings.crl_check = check.map(str::to_owned);
        let authorities = Authorities::load(&files.settings).unwrap();
        let rules = client_rules(&files.settings, authorities, &Arc::new(ring::default_provider())).unwrap();
        for those in &clients {
            let found =
                those.each_ref().map(|issued| rules.believes(&[der(&issued.certificate).into()], now));
            assert_eq!(found, [true, false], "{check:?}");
        }
    }
}

#[test]
fn an_expired_authority_signs_no_clients() {
    let old = Authority::changed("Old", |params| params.not_after = date_time_ymd(2024, 5, 6));
    let (mut files, root) = Files::new();
    let known = old.certificate() + &root.certificate();
    files.settings.ca_certificate_file = Some(files.write("known.pem", known));
    files.settings.verify_client = TlsVerify::Demand;
    let authorities = Authorities::load(&files.settings).unwrap();
    let rules = client_rules(&files.settings, authorities, &Arc::new(ring::default_provider())).unwrap();
    let clients = [old.client("eve"), root.client("ann")].map(|issued| der(&issued.certificate));
    let at = |seconds| rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    for (seconds, expected) in [(1_700_000_000, [true, true]), (TODAY as u64, [false, true])] {
        let found = clients.clone().map(|client| rules.believes(&[client.into()], at(seconds)));
        assert_eq!(found, expected, "{seconds}");
    }
    let outcome = files.outcome();
    assert!(
        outcome.contains("cn=Old,o=Larix tests expired on 2024-05-06, and signs no clients"),
        "{outcome}"
    );
}

/// Where certificates must be on no list, every one of its authority is refused then.
#[test]
fn a_list_whose_time_is_over_is_named() {
    let (mut files, root) = Files::new();
    let lower = root.intermediate("Lower");
    let older = root.revocations_of(2020, &[], 2090);
    let lists = older + &root.revocations(&[], 2024) + &lower.revocations(&[], 2090);
    files.settings.crl_file = Some(files.write("lists.pem", lists));
    for (check, verify, expected) in [
        (Some("peer"), TlsVerify::Demand, 1),
        (Some("all"), TlsVerify::Try, 1),
        (None, TlsVerify::Demand, 0),
        (Some("none"), TlsVerify::Demand, 0),
        (Some("all"), TlsVerify::Never, 0),
    ] {
        files.settings.crl_check = check.map(str::to_owned);
        files.settings.verify_client = verify;
        let state = files.load().unwrap().state.unwrap();
        let over = state.lists_over(Timestamp::from_seconds(TODAY));
        assert_eq!(over.len(), expected, "{check:?} {verify:?}: {over:?}");
        assert!(
            over.iter().all(|list| list.contains("cn=Root,o=Larix tests was to be renewed by 2024")),
            "{over:?}"
        );
        let before = state.lists_over(Timestamp::from_seconds(1_600_000_000));
        assert_eq!(before, Vec::<String>::new());
    }
}

#[test]
fn a_revoked_authority_signs_no_clients() {
    let root = Authority::new("Root");
    let lower = root.intermediate("Lower");
    let (client, own) = (lower.client("ann").certificate, lower.own());
    let (root_pem, lower_pem) = (root.certificate(), lower.certificate());
    let both = root_pem.clone() + &lower_pem;
    let now = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(TODAY as u64));
    for (what, known, shown) in [
        ("the client shows it", &root_pem, vec![&client, &lower_pem]),
        ("it is known", &both, vec![&client]),
        ("both", &both, vec![&client, &lower_pem]),
    ] {
        for (revoked, expected) in [(vec![], true), (vec![&own], false)] {
            let (mut files, _) = Files::new();
            let lists = root.revocations(&revoked, 2090) + &lower.revocations(&[], 2090);
            files.settings.ca_certificate_file = Some(files.write("known.pem", known));
            files.settings.crl_file = Some(files.write("lists.pem", lists));
            files.settings.crl_check = Some("all".to_owned());
            files.settings.verify_client = TlsVerify::Demand;
            let authorities = Authorities::load(&files.settings).unwrap();
            let provider = Arc::new(ring::default_provider());
            let rules = client_rules(&files.settings, authorities, &provider).unwrap();
            let chain: Vec<CertificateDer<'_>> = shown.iter().map(|pem| der(pem).into()).collect();
            assert_eq!(rules.believes(&chain, now), expected, "{what}");
            let hints = rules.verifier(&provider).root_hint_subjects().len();
            assert_eq!(hints, known.matches("BEGIN CERTIFICATE").count(), "{what}");
        }
    }
}
