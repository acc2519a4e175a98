use super::*;
use crate::Config;
use crate::Source;

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

/// The configuration of a database with the overlay, or the error.
fn read(lines: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("core.schema");
    std::fs::write(&schema, larix_schema::bundled("core").unwrap()).unwrap();
    let path = folder.path().join("slapd.conf");
    let (schema, directory) = (schema.display(), folder.path().display());
    let text = format!(
        "include {schema}\ndatabase mdb\nsuffix o=x\ndirectory {directory}\noverlay remoteauth\n{lines}\n"
    );
    std::fs::write(&path, text).unwrap();
    let config = Config::from_slapd_conf(&path).map_err(|error| error.to_string())?;
    match config.refusals().first() {
        Some(refusal) => Err(refusal.to_string()),
        None => Ok(config),
    }
}

fn settings(config: &Config) -> Result<RemoteAuthSettings, String> {
    let overlay = config.databases.iter().flat_map(|database| &database.overlays).next().unwrap();
    overlay.remote_auth(&config.schema).map_err(|error| error.to_string()).map(Option::unwrap)
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_mend() {
    let hash = format!("sha256:{}=", "A".repeat(43));
    for (lines, expected) in [
        ("remoteauth_retry_count 11", "11 more attempts are too many"),
        ("remoteauth_retry_count many", "many"),
        ("remoteauth_default_realm http://a", "`http://a` is no server"),
        ("remoteauth_default_realm file://hosts", "`file://hosts` has no absolute path"),
        ("remoteauth_mapping a", "remoteauth_mapping"),
        ("remoteauth_tls starttls", "`starttls` has no value"),
        ("remoteauth_tls starttls=perhaps", "starttls=perhaps cannot be"),
        ("remoteauth_tls tls_colour=red", "no key `tls_colour`"),
        ("remoteauth_tls_peerkey_hash a md5:AAAA", "md5"),
        ("remoteauth_tls_peerkey_hash a sha256:AAAA", "sha256"),
        ("remoteauth_dn_attribute nosuch", "nosuch"),
        (&format!("remoteauth_default_realm a\nremoteauth_tls_peerkey_hash a {hash}"), "needs TLS"),
    ] {
        let error = read(lines).and_then(|config| settings(&config)).err();
        let error = error.unwrap_or_else(|| panic!("{lines} is taken"));
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn it_is_the_same_by_way_of_cn_config() {
    for lines in [
        "remoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute description",
        "remoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute description\nremoteauth_default_domain emea\n\
         remoteauth_mapping emea \"ldap://a ldaps://b:1636\"\nremoteauth_default_realm c.example.com\n\
         remoteauth_store on\nremoteauth_retry_count 1\nremoteauth_tls starttls=yes tls_reqcert=demand",
    ] {
        let config = read(lines).unwrap();
        let debug_text = |config: &Config| format!("{:?}", settings(config).unwrap());
        let again = Config::from_entries(config.entries(), Source::QuickStart).unwrap();
        assert_eq!(debug_text(&again), debug_text(&config));
        assert!(config.difference(&again).is_empty() && again.difference(&config).is_empty());
    }
}

#[test]
fn its_entry_shows_what_openldap_shows() {
    let shown = |lines: &str| {
        let config = read(lines).unwrap();
        let entries = config.entries();
        let entry = entries.iter().find(|entry| entry.dn.starts_with("olcOverlay={0}remoteauth")).unwrap();
        ["olcRemoteAuthTLS", "olcRemoteAuthRetryCount", "olcRemoteAuthStore"].map(|attribute| {
            let values: Vec<_> = entry.values(attribute).iter().map(|v| String::from_utf8_lossy(v)).collect();
            values.join("|")
        })
    };
    assert_eq!(shown(""), ["starttls=no", "3", "FALSE"]);
    let given = "remoteauth_tls tls_reqsan=try tls_key=/k STARTTLS=Critical \"tls_cacert=/a b\"\n\
                 remoteauth_retry_count 1\nremoteauth_store on";
    let tls = "starttls=critical tls_key=\"/k\" tls_cacert=\"/a b\" tls_reqcert=demand tls_reqsan=try tls_crlcheck=none";
    assert_eq!(shown(given), [tls, "1", "TRUE"]);
    let settings = settings(&read(given).unwrap()).unwrap();
    assert_eq!(settings.tls.begins, TlsBegins::Start);
    assert!(settings.tls.options.contains(&("tls_cacert".to_owned(), "/a b".to_owned())));
}
