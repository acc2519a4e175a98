use larix_proxy::settings::TlsBegins;

use super::*;
use crate::Config;

/// The server of a database with the overlay, or the error.
fn read(lines: &str) -> Result<ProxySettings, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slapd.conf");
    let head = format!("schema core\ndatabase mdb\nsuffix o=x\ndirectory {}\n", folder.path().display());
    std::fs::write(&path, format!("{head}overlay pbind\n{lines}\n")).unwrap();
    let config = Config::from_slapd_conf(&path).map_err(|error| error.to_string())?;
    if let Some(refusal) = config.refusals().first() {
        return Err(refusal.to_string());
    }
    let overlay = config.databases.iter().flat_map(|database| &database.overlays).next().unwrap();
    overlay.bind_server().map(Option::unwrap).map_err(|error| error.to_string())
}

#[test]
fn the_server_is_as_the_lines_say() {
    let settings =
        read("uri \"ldap://a ldap://b\"\ntls start tls_cacert=/ca.pem\nnetwork-timeout 3\nquarantine 5,+")
            .unwrap();
    assert_eq!((settings.targets.len(), settings.tls.begins), (2, TlsBegins::Start));
    assert_eq!(settings.tls.options, [("tls_cacert".to_owned(), "/ca.pem".to_owned())]);
    assert_eq!((settings.network_timeout.unwrap().as_secs(), settings.quarantine.len()), (3, 1));
}

#[test]
fn what_cannot_be_is_refused() {
    for (lines, expected) in [
        ("", "overlay pbind needs a `uri`"),
        ("uri http://a", "`http://a`"),
        ("uri ldap://a\ntls sometimes", "`sometimes` is not known here"),
        ("uri ldap://a\nquarantine 5", "`5` is no pair"),
        ("uri ldap://a\nrebind-as-user yes", "rebind-as-user"),
        (
            "uri ldap://a\ndatabase null\nsuffix o=y\noverlay pbind\nuri ldap://a",
            "put it behind a `database mdb` line",
        ),
    ] {
        let error = read(lines).unwrap_err();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}
