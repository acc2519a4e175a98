//! TLS with the engine: who is accepted, and what is said of those who are not.

use larix_kv::{Address, KvStore, OpenError};
use larix_store::Store;
use larix_store::contract::TABLES;
use larix_testkit::postgresql::Engine;
use larix_testkit::{Authority, Issued, self_signed};
use rcgen::{BasicConstraints, IsCa, PKCS_ECDSA_P256_SHA256, date_time_ymd};

use crate::{commit, get, put, unhurried, until};

/// A file with what an authority, or a server that signs for itself, is known by.
fn trusted(folder: &tempfile::TempDir, name: &str, certificate: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, certificate).expect("a file");
    path.display().to_string()
}

fn expired(authority: &Authority) -> Issued {
    authority.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |params| {
        params.not_after = date_time_ymd(2021, 1, 1);
    })
}

/// Opens a store as a user of the engine, at a host that is loopback whatever its name.
fn open(engine: &Engine, user: &str, host: &str, parameters: &str) -> Result<KvStore, OpenError> {
    let text = format!(
        "postgresql://{user}:never-shown@{host}:{}/postgres?hostaddr=127.0.0.1&{parameters}",
        engine.port()
    );
    let opened = KvStore::open(&Address::parse(&text)?, &TABLES, &unhurried());
    if let Err(error) = &opened {
        assert!(!format!("{error} {error:?}").contains("never-shown"), "{error}");
    }
    opened
}

fn is_encrypted(engine: &Engine) -> bool {
    let text = "SELECT bool_and(ssl) AND count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                WHERE application_name LIKE 'larix%'";
    engine.sql("postgres", text).as_deref() == Some("t")
}

#[test]
fn engines_prove_who_they_are() {
    let (authority, other) = (Authority::new("Engines"), Authority::new("Others"));
    let Some(mut engine) = Engine::start_with_tls(&authority.server(), &authority) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (own, others) = (
        trusted(&folder, "own.pem", &authority.certificate()),
        trusted(&folder, "others.pem", &other.certificate()),
    );
    let missing = folder.path().join("missing.pem").display().to_string();
    let broken = trusted(&folder, "broken.pem", "no certificate");

    let far = "db.example.com";
    let good = [
        ("localhost", format!("sslrootcert={own}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={own}")),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={own}")),
        (far, format!("sslmode=verify-ca&sslrootcert={own}")),
        (far, format!("sslmode=require&sslrootcert={own}")),
        (far, "sslmode=require".to_owned()),
    ];
    for (host, parameters) in &good {
        let store =
            open(&engine, "larix", host, parameters).unwrap_or_else(|error| panic!("{parameters}: {error}"));
        commit(&store, &put(b"a", parameters.as_bytes())).expect("commit");
        assert_eq!(get(&store, b"a").as_deref(), Some(parameters.as_bytes()));
        assert!(is_encrypted(&engine), "{parameters}");
    }

    let refused = |host: &str, parameters: &str, expected: &[&str]| {
        let error = open(&engine, "larix", host, parameters).expect_err(parameters);
        assert!(matches!(error, OpenError::Tls(_)), "{parameters}: {error:?}");
        let text = error.to_string();
        for expected in expected {
            assert!(text.contains(expected), "{parameters}: {text}");
        }
    };
    let wrong_name = format!("sslmode=verify-full&sslrootcert={own}");
    refused(
        far,
        &wrong_name,
        &["is for localhost, 127.0.0.1, and not for db.example.com", "sslmode=verify-ca"],
    );
    refused(far, &format!("sslrootcert={own}"), &["not for db.example.com"]);
    for mode in ["require", "verify-ca", "verify-full"] {
        let parameters = format!("sslmode={mode}&sslrootcert={others}");
        let setting = format!("sslrootcert (now {others})");
        refused("localhost", &parameters, &["not trusted (CN=Engines", &setting]);
        refused("localhost", &format!("sslmode={mode}&sslrootcert={missing}"), &[&missing, "sslrootcert"]);
        refused(
            "localhost",
            &format!("sslmode={mode}&sslrootcert={broken}"),
            &[&broken, "no certificate (PEM)"],
        );
    }
    refused("localhost", "sslmode=verify-full", &["authorities are those that this machine trusts"]);

    // Whoever would speak in the clear is refused by this engine.
    let error = open(&engine, "larix", "localhost", "sslmode=disable").expect_err("in the clear");
    assert!(matches!(&error, OpenError::Refused(why) if why.contains("no encryption")), "{error:?}");

    // A store that is open gets its new connections with the files as they are then.
    let store = open(&engine, "larix", "localhost", &wrong_name).expect("open");
    engine.certify(&expired(&authority));
    until("the certificate has expired", || {
        let found = open(&engine, "larix", "localhost", &wrong_name);
        let text = found.err().map(|error| error.to_string()).unwrap_or_default();
        text.contains("expired on 2021-01-01 00:00:00 UTC") && text.contains("renewed")
    });
    let own_word = self_signed(|params| {
        // As the engine's documents have it made with openssl.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.subject_alt_names.clear();
    });
    engine.certify(&own_word);
    let is_refused = |parameters: &str| {
        let found = open(&engine, "larix", "localhost", parameters);
        found.err().is_some_and(|error| {
            error.to_string().contains("an authority's") || error.to_string().contains("signed by itself")
        })
    };
    until("it signs for itself", || is_refused(&wrong_name));
    std::fs::write(&own, &own_word.certificate).expect("a renewed file");
    assert!(
        open(&engine, "larix", "localhost", &wrong_name).is_ok(),
        "it is known by the certificate itself"
    );
    engine.sql(
        "postgres",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'larix%'",
    );
    until("it connects again, with the renewed file", || store.snapshot().is_ok());

    engine.crash();
    engine.setting("ssl = off");
    engine.run();
    for parameters in ["sslmode=require", &wrong_name] {
        let error = open(&engine, "larix", "localhost", parameters).expect_err("no TLS there");
        let text = error.to_string();
        assert!(matches!(error, OpenError::Tls(_)), "{text}");
        assert!(text.contains("ssl = on") && text.contains("sslmode=disable"), "{text}");
    }
}

#[test]
fn nodes_prove_who_they_are() {
    let authority = Authority::new("Engines");
    let Some(engine) = Engine::start_with_tls(&authority.server(), &authority) else { return };
    engine
        .sql("postgres", "CREATE ROLE certified LOGIN; GRANT CREATE ON DATABASE postgres TO certified")
        .expect("a role");
    let folder = tempfile::tempdir().expect("a folder");
    let own = trusted(&folder, "own.pem", &authority.certificate());
    let (certificate, key) = authority.client("certified").write(folder.path(), "node");
    let (stranger, stranger_key) = authority.client("stranger").write(folder.path(), "stranger");
    let whole = |certificate: &std::path::Path, key: &std::path::Path| {
        let (certificate, key) = (certificate.display(), key.display());
        open(
            &engine,
            "certified",
            "localhost",
            &format!("sslrootcert={own}&sslcert={certificate}&sslkey={key}"),
        )
    };
    let store = whole(&certificate, &key).expect("open");
    commit(&store, &put(b"a", b"1")).expect("commit");
    drop(store);
    let error = whole(&stranger, &stranger_key).expect_err("another name").to_string();
    assert!(
        error.contains("the engine refuses") && error.contains("certificate authentication failed"),
        "{error}"
    );
    let error =
        open(&engine, "certified", "localhost", &format!("sslrootcert={own}")).expect_err("none").to_string();
    assert!(error.contains("the engine refuses") && error.contains("valid client certificate"), "{error}");
    let error = whole(&certificate, &stranger_key).expect_err("another key").to_string();
    assert!(error.contains("sslcert") && error.contains("node.pem"), "{error}");
    let error = whole(&certificate, &folder.path().join("none.key")).expect_err("no key").to_string();
    assert!(error.contains("none.key"), "{error}");
}
