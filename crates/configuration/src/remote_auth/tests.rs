use super::*;
use crate::{Config, Source};

/// The overlay of a slapd.conf; the same by way of cn=config and of the file that is made of that.
fn read(lines: &str) -> Result<RemoteAuthSettings, String> {
    let folder = tempfile::tempdir().unwrap();
    let core = folder.path().join("core.schema");
    std::fs::write(&core, larix_schema::bundled("core").unwrap()).unwrap();
    let path = folder.path().join("slapd.conf");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let from_file = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Config::from_slapd_conf(&path).map_err(|error| error.to_string())
    };
    let config = from_file(&format!(
        "include {}\ndatabase mdb\nsuffix dc=x\ndirectory {}\noverlay remoteauth\n{lines}\n",
        core.display(),
        data.display()
    ))?;
    assert_eq!(config.refusals(), []);
    let of = |config: &Config| {
        let mut overlays = config.databases.iter().flat_map(|database| &database.overlays);
        overlays.find_map(|overlay| overlay.remote_auth(&config.schema).unwrap()).unwrap()
    };
    let entries = Config::from_entries(config.entries(), Source::QuickStart).unwrap();
    let exported = from_file(&config.to_slapd_conf().text)?;
    for again in [&entries, &exported] {
        assert_eq!(format!("{:?}", of(again)), format!("{:?}", of(&config)), "{lines}");
    }
    Ok(of(&config))
}

const HASH: &str = "Bxv3MkLoDm6gt/iDfeGNdNNqa5TTpPDdIwvZM/cIgeo=";

#[test]
fn what_is_read() {
    let settings = read("").unwrap();
    assert_eq!((settings.retries, settings.store, settings.dn_attribute), (3, false, None));
    let settings = read(&format!(
        "remoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute associatedDomain\nremoteauth_default_domain emea\n\
         remoteauth_default_realm a.example.com\nremoteauth_mapping americas file:///etc/hosts\n\
         remoteauth_mapping emea \"ldap://b ldaps://c:1636\"\nremoteauth_retry_count 0\nremoteauth_store on\n\
         remoteauth_tls starttls=yes tls_reqcert=demand tls_cacert=/ca.pem\nremoteauth_tls_peerkey_hash b sha256:{HASH}\n\
         remoteauth_tls_peerkey_hash c sha256:{HASH}"
    ))
    .unwrap();
    assert!(settings.dn_attribute.is_some() && settings.domain_attribute.is_some() && settings.store);
    assert_eq!(
        (settings.retries, settings.tls.begins, settings.tls.peer_keys.len()),
        (0, TlsBegins::Start, 2)
    );
    let texts = |realm: &Realm| match realm {
        Realm::Servers(servers) => servers.iter().map(ToString::to_string).collect(),
        Realm::File(path) => vec![path.clone()],
    };
    let all: Vec<String> = settings.mappings.iter().flat_map(|(_, realm)| texts(realm)).collect();
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.contains(&"/etc/hosts".to_owned()), "{all:?}");
    assert_eq!(settings.default_domain.as_deref(), Some("emea"));
}

#[test]
fn what_cannot_be() {
    let hash = |host: &str| format!("remoteauth_tls_peerkey_hash {host} sha256:{HASH}");
    for (lines, expected) in [
        ("remoteauth_mapping americas".to_owned(), "argument"),
        ("remoteauth_mapping americas http://a".to_owned(), "is no server"),
        ("remoteauth_mapping americas file://a".to_owned(), "no absolute path"),
        ("remoteauth_default_realm \"\"".to_owned(), "no server is named"),
        ("remoteauth_dn_attribute nosuch".to_owned(), "remoteauth_dn_attribute nosuch"),
        ("remoteauth_retry_count 1000".to_owned(), "too many"),
        ("remoteauth_tls starttls=perhaps".to_owned(), "starttls=perhaps cannot be"),
        ("remoteauth_tls bindmethod=simple".to_owned(), "no key `bindmethod`"),
        ("remoteauth_tls_peerkey_hash a md5:AAAA".to_owned(), "no hash `md5`"),
        (format!("remoteauth_default_realm a\n{}", hash("a")), "needs TLS, and ldap://a"),
        (format!("overlay remoteauth\n{}", hash("a")), "overlay remoteauth"),
    ] {
        let error = read(&lines).map(|_| String::new()).unwrap_or_else(|error| error);
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn a_file_has_one_server_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts");
    std::fs::write(&path, "a.example.com  the first\n\nldaps://b:1636\n").unwrap();
    let realm = Realm::parse(&format!("file://{}", path.display())).unwrap();
    assert_eq!(realm.read().unwrap().len(), 2);
    std::fs::write(&path, "\n").unwrap();
    assert!(realm.read().unwrap_err().contains("no server is named"));
    std::fs::remove_file(&path).unwrap();
    assert!(realm.read().unwrap_err().contains(&path.display().to_string()));
}
