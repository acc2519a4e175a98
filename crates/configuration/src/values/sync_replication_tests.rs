//! Lines of `syncrepl`, right and wrong.

use super::*;

fn parse(line: &str) -> Result<SyncReplication, SyncFault> {
    let words: Vec<String> = line.split('|').map(str::to_owned).collect();
    SyncReplication::parse(Schema::system(), &words, false)
}

const LEAST: &str = "rid=001|provider=ldap://a:1389|searchbase=dc=Example,dc=com";

#[test]
fn the_least_line_has_slapds_defaults() {
    let line = parse(LEAST).unwrap();
    assert_eq!((line.rid, line.interval, line.scope), (1, 86_400, Scope::Subtree));
    assert_eq!(line.retry, [RetryStep { seconds: 3_600, times: None }]);
    assert_eq!(line.mode, SyncMode::RefreshOnly);
    assert_eq!(line.filter.to_string(), "(objectClass=*)");
    assert_eq!(line.delete_percent, 50);
    assert_eq!(line.local_base().text, "dc=Example,dc=com");
    assert!(!line.schema_checking && line.tls.is_empty());
}

#[test]
fn every_key() {
    let line = parse(
        "RID=12|provider=ldap://a ldaps://b|searchbase=dc=a|type=refreshAndPersist|interval=01:02:03:04|retry=5 5 300 +|\
         filter=(cn=*)|scope=one|attrs=cn,@alias +|exattrs=name|sizelimit=unlimited|timelimit=7|schemachecking=on|\
         network-timeout=3|timeout=4|tcp-user-timeout=5000|bindmethod=sasl|binddn=cn=x|credentials=a=b|saslmech=scram-sha-256|\
         authcid=u|authzid=dn:cn=y|realm=R|secprops=none|keepalive=240:10:30|starttls=yes|tls_cert=/c|tls_reqcert=never|\
         tls_crlcheck=none|suffixmassage=dc=b|syncdata=accesslog|logbase=cn=log|logfilter=(reqResult=0)|lazycommit|\
         strictrefresh|manageDSAit=1|maxdelete=80%",
    )
    .unwrap();
    assert_eq!((line.providers.len(), line.interval), (2, 93_784));
    assert_eq!(
        line.retry,
        [RetryStep { seconds: 5, times: Some(5) }, RetryStep { seconds: 300, times: None }]
    );
    assert_eq!(line.attributes[0], "cn");
    assert!(
        ["objectClass", "aliasedObjectName", "+"]
            .iter()
            .all(|name| line.attributes.iter().any(|own| own == name))
    );
    assert_eq!(line.except_attributes, ["name"]);
    assert_eq!(*line.bind.credentials, b"a=b");
    assert_eq!(line.bind.mechanism.as_deref(), Some("SCRAM-SHA-256"));
    assert_eq!(line.keep_alive, Some(KeepAlive { idle: 240, probes: 10, interval: 30 }));
    assert_eq!(line.tls.len(), 3);
    assert_eq!(line.local_base().text, "dc=b");
    assert_eq!((line.data, line.delete_percent), (SyncData::AccessLog, 80));
}

/// As slapd reads each of them.
#[test]
fn times_of_connections_may_be_written_as_c_does() {
    let line =
        parse(&format!("{LEAST}|network-timeout=0x10|timeout=010|tcp-user-timeout=0x1f4|sizelimit=010"));
    let line = line.unwrap();
    assert_eq!((line.network_timeout, line.timeout, line.user_timeout, line.size_limit), (16, 8, 500, 10));
}

#[test]
fn what_is_wrong_is_named() {
    let check = |more: &str, at: Option<usize>, expected: &str| {
        let fault = parse(&format!("{LEAST}|{more}")).unwrap_err();
        assert_eq!((fault.at, fault.message.as_str()), (at, expected));
    };
    for (more, expected) in [
        ("rid=1000", "syncrepl: rid=1000 cannot be"),
        ("type=sometimes", "syncrepl: type=sometimes cannot be"),
        ("retry=5", "syncrepl: retry=5 cannot be"),
        ("retry=5 0", "syncrepl: retry=5 0 cannot be"),
        ("interval=1:2", "syncrepl: interval=1:2 cannot be"),
        ("interval=5x", "syncrepl: interval=5x cannot be"),
        ("scope=all", "syncrepl: scope=all cannot be"),
        ("filter=(cn=", "syncrepl: filter=(cn= is not a filter: "),
        ("saslmech=MAGIC", "syncrepl: saslmech=MAGIC cannot be"),
        ("keepalive=1", "syncrepl: keepalive=1 cannot be"),
        ("maxdelete=101", "syncrepl: maxdelete=101 cannot be"),
        ("attrs=*,cn,nosuch", "syncrepl: attrs=nosuch: the schema does not know this name"),
        ("exattrs=@nosuch", "syncrepl: exattrs=@nosuch: the schema does not know this name"),
        ("exattrs=+", "syncrepl: exattrs=+: the schema does not know this name"),
        ("attrsonly", "syncrepl: attrsonly is not supported: "),
        ("manageDSAit=2", "syncrepl: managedsait=2 cannot be"),
        ("version=2", "syncrepl: version=2 cannot be"),
        ("tls_reqcert=maybe", "syncrepl: tls_reqcert=maybe cannot be"),
        ("tls_reqsan=", "syncrepl: tls_reqsan= cannot be"),
        ("tls_crlcheck=x", "syncrepl: tls_crlcheck=x cannot be"),
        ("tls_protocol_min=new", "syncrepl: tls_protocol_min=new cannot be"),
        ("colour=blue", "syncrepl: no key `colour`"),
        (
            "attrs=:include:/no/such/file",
            "syncrepl: attrs=:include:/no/such/file: /no/such/file cannot be read: ",
        ),
    ] {
        let fault = parse(&format!("{LEAST}|{more}")).unwrap_err();
        assert!(fault.at == Some(3) && fault.message.starts_with(expected), "{more}: {fault:?}");
    }
    assert!(parse(&format!("{LEAST}|tls_reqcert=Yes|tls_reqsan=on")).is_ok());
    let fault = parse(&format!("{LEAST}|binddn=ann")).unwrap_err();
    assert!(fault.message.starts_with("syncrepl: binddn=ann is not a DN: "), "{fault:?}");
    check("bindmethod=sasl", None, "syncrepl: bindmethod=sasl needs saslmech=");
    check("syncdata=accesslog", None, "syncrepl: syncdata=accesslog needs logbase=");
    assert_eq!(parse("rid=1|provider=ldap://a").unwrap_err().message, "syncrepl needs searchbase=");
}

#[test]
fn an_active_directory() {
    let mut builder = larix_schema::SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis", "msuser"] {
        builder.add_bundled(name).unwrap();
    }
    let schema = builder.build();
    let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    let parse_with =
        |more: &str| SyncReplication::parse(&schema, &words(&format!("{LEAST}|type=dirSync{more}")), false);
    let line = parse_with("").unwrap();
    assert!(line.dir_sync && line.mode == SyncMode::RefreshOnly);
    assert_eq!(
        parse_with("|syncdata=accesslog|logbase=cn=log").unwrap_err().message,
        "syncrepl: type=dirsync follows entries: an Active Directory has no access log"
    );
    // They are the other directory's names.
    assert_eq!(parse_with("|binddn=ann@example.com").unwrap().bind.dn, "ann@example.com");
    assert_eq!(parse_with("|exattrs=nosuch").unwrap().except_attributes, ["nosuch"]);
    let fault = parse(&format!("{LEAST}|type=dirsync")).unwrap_err();
    let expected = "syncrepl: type=dirsync needs the attribute objectGUID, which the schema does not know";
    assert_eq!((fault.message.as_str(), fault.help.is_some()), (expected, true));
}

#[test]
fn intervals_are_seconds_and_never_none() {
    for (text, expected) in [
        ("00:00:00:10", 10),
        ("1d", 86_400),
        ("1h30m", 5_400),
        ("17", 17),
        ("00:24:00:00", 86_400),
        ("0", 1),
        ("00:00:00:00", 1),
    ] {
        assert_eq!(interval(text).ok(), Some(expected), "{text}");
    }
    assert_eq!(retry("0 +").unwrap(), [RetryStep { seconds: 1, times: None }]);
}

#[test]
fn own_urls() {
    let resolve = |host: &str| match host {
        "a" => vec![IpAddr::from([192, 0, 2, 1])],
        "localhost" => vec![IpAddr::from([127, 0, 0, 1])],
        host => host.parse().into_iter().collect(),
    };
    for (url, listener, expected) in [
        ("ldap://a", "ldap://a:389/", true),
        ("ldap://A:390", "ldap://a:390/", true),
        ("ldap://a:390", "ldap://a:389/", false),
        ("ldaps://a", "ldap://a:636/", false),
        ("ldap://a", "ldap://192.0.2.1/", true),
        ("ldap://localhost:9011", "ldap://127.0.0.1:9011/", true),
        ("ldap://localhost:9011", "ldap://:9011/", true),
        ("ldap://localhost:9011", "ldap://0.0.0.0:9011", true),
        // No host here has an address of the documentation.
        ("ldap://a:9011", "ldap://:9011", false),
        ("ldapi://%2Frun%2Fx", "ldapi://%2Frun%2Fx", true),
    ] {
        assert_eq!(is_own_url(url, listener, &resolve), expected, "{url} {listener}");
    }
}
