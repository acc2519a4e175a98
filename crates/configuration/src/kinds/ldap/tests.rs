use larix_client::{Credentials, GivingUp};
use larix_proxy::settings::{HealthCheck, IdentityRule, Kind, Mode, TlsBegins};
use std::time::Duration;

use super::LdapSettings;
use crate::Config;

/// The configuration with a section.
fn configuration(lines: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let core = folder.path().join("core.schema");
    std::fs::write(&core, larix_schema::bundled("core").unwrap()).unwrap();
    let path = folder.path().join("slapd.conf");
    let text = format!("include {}\ndatabase ldap\nsuffix o=x\n{lines}\n", core.display());
    std::fs::write(&path, text).unwrap();
    Config::from_slapd_conf(&path).map_err(|error| error.to_string())
}

/// What a section comes to, or the error without its place.
fn read(lines: &str) -> Result<LdapSettings, String> {
    let config = configuration(lines)?;
    if let Some(refusal) = config.refusals().first() {
        return Err(refusal.to_string());
    }
    // By way of cn=config it is the same.
    let again =
        Config::from_entries(config.entries(), config.source.clone()).map_err(|error| error.to_string())?;
    let of = |config: &Config| {
        config
            .databases
            .iter()
            .find_map(|database| database.kind.settings::<LdapSettings>())
            .cloned()
            .unwrap()
    };
    assert_eq!(of(&config).proxy, of(&again).proxy, "{lines}");
    Ok(of(&config))
}

#[test]
fn what_is_read() {
    let settings = read(
        "uri \"ldap://a:3890/ ldaps://b\"\nidassert-bind bindmethod=simple binddn=cn=proxy credentials=secret mode=self \
         flags=override,non-prescriptive\nidassert-authzFrom dn.subtree:o=x\nidassert-authzFrom *\nrebind-as-user\n\
         timeout 5 search=1m\nidle-timeout 1h30m\nconn-ttl 2d\nnetwork-timeout 3\nquarantine 5,10;60,+\nhealth-check 1m 3\n\
         conn-pool-max 4\ncancel exop\nnorefs yes\nnoundeffilter yes\nomit-unknown-schema yes\nsession-tracking-request yes\n\
         keepalive 240:10:30\ntcp-user-timeout 500\nchase-referrals no\nonerr stop\nprotocol-version 3\n\
         proxy-whoami yes",
    )
    .unwrap()
    .proxy;
    assert!(settings.proxies_who_am_i);
    let urls: Vec<String> =
        settings.targets.iter().map(|url| format!("{}:{:?}", url.host, url.port)).collect();
    assert_eq!(urls, ["a:Some(3890)", "b:None"]);
    let assertion = settings.assertion.as_ref().unwrap();
    assert_eq!((&assertion.mode, assertion.overrides, assertion.prescriptive), (&Mode::Itself, true, false));
    assert!(assertion.critical);
    let Some(Credentials::Simple { dn, password }) = &assertion.identity.credentials else {
        panic!("no bind")
    };
    assert_eq!((dn.as_str(), password.as_slice()), ("cn=proxy", &b"secret"[..]));
    assert!(matches!(settings.asserted.as_slice(), [IdentityRule::Subtree(_), IdentityRule::Everybody]));
    let seconds = Duration::from_secs;
    assert_eq!(settings.timeouts.of(Kind::Add), Some(seconds(5)));
    assert_eq!(settings.timeouts.of(Kind::Search), Some(seconds(60)));
    assert_eq!(settings.idle_timeout, Some(seconds(5400)));
    assert_eq!(settings.connection_ttl, Some(seconds(172_800)));
    assert_eq!(format!("{:?}", settings.quarantine), "[5,10, 60,+]");
    let health = HealthCheck { interval: seconds(60), timeout: seconds(3) };
    assert_eq!(settings.health_check, Some(health));
    assert!(settings.rebind_as_user && settings.no_references && settings.omit_unknown_schema);
    // Passwords stay out of what is shown.
    assert!(!format!("{settings:?}").contains("secret"));
}

#[test]
fn numbers_of_timeout_are_as_c_writes_them() {
    for (line, add, search) in [
        ("timeout 0x10", 16, 16),
        ("timeout 010 search=0x1F", 8, 31),
        ("timeout 5 search=010", 5, 8),
        ("timeout 1m search=08s", 60, 8),
        // These are none of them.
        ("timeout 9\nnetwork-timeout 010", 9, 9),
    ] {
        let settings = read(&format!("uri ldap://a\n{line}")).unwrap().proxy;
        let of = |kind| settings.timeouts.of(kind).map(|time| time.as_secs());
        assert_eq!((of(Kind::Add), of(Kind::Search)), (Some(add), Some(search)), "{line}");
        assert!(settings.network_timeout.is_none_or(|time| time.as_secs() == 10), "{line}");
    }
}

/// slapd's defaults, as `slaptest -F` of slapd 2.5 writes them into every slapd.d.
#[test]
fn the_defaults_of_slapd_are_taken() {
    const DEFAULTS: &str = "uri ldap://a\ncancel abandon\nchase-referrals yes\nconn-pool-max 16\nkeepalive 0:0:0\n\
        norefs no\nnoundeffilter no\nonerr continue\nprotocol-version 3\nproxy-whoami no\n\
        session-tracking-request no\nsingle-conn no\ntls none starttls=no\nt-f-support no\nuse-temporary-conn no";
    read(DEFAULTS).unwrap();
    let config = configuration(DEFAULTS).unwrap();
    let expected = "`onerr continue` has no effect: a search whose target is lost midway ends with the error, never as if it were whole";
    assert!(config.notes.iter().any(|note| note.text == expected), "{:?}", config.notes);
    let config = configuration("uri ldap://a\nonerr stop\nt-f-support yes").unwrap();
    assert_eq!(config.notes.iter().filter(|note| note.text.contains("no effect")).count(), 0);
}

#[test]
fn a_fixed_identity_and_tls() {
    for (lines, expected) in [
        ("authzId=u:ann", "u:ann"),
        ("authzId=dn:cn=ann,o=x", "dn:cn=ann,o=x"),
        ("authzId=cn=ann,o=x", "dn:cn=ann,o=x"),
    ] {
        let lines =
            format!("uri ldap://a\nidassert-bind bindmethod=simple binddn=cn=p credentials=s {lines}");
        let assertion = read(&lines).unwrap().proxy.assertion.unwrap();
        assert_eq!(assertion.mode, Mode::Fixed(expected.to_owned()));
    }
    let proxy =
        read("uri ldap://a\ntls start tls_cacert=/ca.pem\nacl-bind bindmethod=simple tls_cacert=/ca.pem")
            .unwrap();
    assert_eq!(proxy.proxy.tls.begins, TlsBegins::Start);
    assert_eq!(proxy.proxy.tls.options, [("tls_cacert".to_owned(), "/ca.pem".to_owned())]);
}

/// Targets are not asked whether they know the operation.
#[test]
fn to_discover_cancel_is_to_abandon() {
    for (way, expected) in [("exop", GivingUp::Cancel), ("exop-discover", GivingUp::Abandon)] {
        let settings = read(&format!("uri ldap://a\ncancel {way}")).unwrap();
        assert_eq!(settings.proxy.giving_up, expected, "{way}");
    }
}

#[test]
fn what_cannot_be() {
    for (lines, expected) in [
        ("", "needs a `uri`"),
        ("uri http://a", "http://a"),
        ("uri ldap://a/o=x", "a uri names a server and no entry"),
        ("uri ldaps://a\ntls start", "with ldaps:// TLS is there already"),
        ("uri ldap://a\ntls propagate", "clients with and without TLS"),
        ("uri ldap://a\ntls start tls_color=red", "no setting `tls_color`"),
        ("uri ldap://a\nchase-referrals perhaps", "perhaps"),
        ("uri ldap://a\nprotocol-version 2", "version 2"),
        ("uri ldap://a\ncancel perhaps", "`perhaps` is not known here"),
        ("uri ldap://a\nt-f-support perhaps", "`perhaps` is not known here"),
        ("uri ldap://a\nonerr perhaps", "`perhaps` is not known here"),
        ("uri ldap://a\ntimeout fly=1", "no operation `fly`"),
        ("uri ldap://a\ntimeout 1x", "`1x` is not a time"),
        ("uri ldap://a\nquarantine 5,+;6,1", "`+` stands before the last"),
        ("uri ldap://a\nhealth-check 0", "a time of 0"),
        ("uri ldap://a\nhealth-check soon", "`soon` is not a time"),
        ("uri ldap://a\nconn-pool-max 0", "must be 1 or more"),
        ("uri ldap://a\nconn-pool-max 1000", "are too many"),
        ("uri ldap://a\nkeepalive 1:2", "not three numbers"),
        ("uri ldap://a\nidassert-authzFrom *", "without `idassert-bind`"),
        (
            "uri ldap://a\nidassert-bind bindmethod=none\nidassert-authzFrom dn:cn=a dn:cn=b",
            "takes no more arguments",
        ),
        ("uri ldap://a\nidassert-bind mode=self", "bindmethod= is missing"),
        ("uri ldap://a\nidassert-bind bindmethod=simple binddn=cn=x", "unauthenticated bind"),
        ("uri ldap://a\nidassert-bind bindmethod=simple credentials=s", "is an anonymous bind"),
        ("uri ldap://a\nidassert-bind bindmethod=sasl", "needs saslmech="),
        ("uri ldap://a\nidassert-bind bindmethod=simple authz=native", "proxied authorization alone"),
        ("uri ldap://a\nidassert-bind bindmethod=simple flags=dn-whoami", "is not asked who the proxy is"),
        ("uri ldap://a\nidassert-bind bindmethod=simple mode=other", "no mode `other`"),
        ("uri ldap://a\nacl-bind bindmethod=simple mode=self", "no key `mode`"),
        (
            "uri ldap://a\nidassert-bind bindmethod=none\nidassert-authzFrom group:cn=x",
            "would have to be looked up",
        ),
        ("uri ldap://a\nsuffixmassage o=y", "write `overlay rwm` and `rwm-suffixmassage`"),
        ("uri ldap://a\nbinddn cn=x", "idassert-bind"),
    ] {
        let error = read(lines).map(|_| String::new()).unwrap_or_else(|error| error);
        assert!(error.contains(expected), "{lines}: {error}");
    }
}
