use super::*;

fn read_text(text: &str) -> Result<BalanceSettings, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lloadd.conf");
    std::fs::write(&path, text).unwrap();
    read(&path).map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
}

const WHOLE: &str = "\
# OpenLDAP's example, and more
argsfile  /run/lloadd.args
pidfile   /run/lloadd.pid
io-threads 4
threads 2
listen \"ldap://127.0.0.1:3890 ldapi://%2Frun%2Fx\"
iotimeout 0
client_max_pending 10
write_coherence -1
restrict_exop 1.3.6.1.1.8 reject
restrict_exop 1.1 write
restrict_control 1.2.840.113556.1.4.319 backend
sockbuf_max_incoming_client 1000
sockbuf_max_incoming_upstream 2000
sockbuf_max_pending_client 3000
feature proxyauthz
TLSVerifyClient try
TLSCACertificateFile /etc/ca.pem

bindconf
    bindmethod=simple
    binddn=cn=test
    credentials=pass
    timeout=5
    network-timeout=3
    keepalive=240:10:30
    tls_reqcert=never

tier weighted
backend-server
    uri=ldap://ldap1.example.com
    numconns=3
    bindconns=2
    retry=4000
    max-pending-ops=5
    conn-max-pending=3
    starttls=critical
    weight=5
backend-server uri=ldaps://ldap2.example.com

tier bestof
backend-server uri=ldapi://%2Frun%2Fslapd
";

/// As lloadd reads them.
#[test]
fn numbers_may_be_written_as_c_does() {
    let text = "idletimeout 0x10\nwrite_coherence 010\nclient_max_pending 0x20\nfeature proxyauthz\n\
                bindconf bindmethod=simple binddn=cn=test credentials=pass timeout=010\n\
                tier roundrobin\nbackend-server uri=ldap://a numconns=0x3 bindconns=2 retry=010 max-pending-ops=0\n";
    let settings = read_text(text).unwrap();
    assert_eq!(settings.idle_timeout, Some(Duration::from_secs(16)));
    assert_eq!(settings.write_coherence, Coherence::For(Duration::from_secs(8)));
    assert_eq!(settings.client_max_pending, 32);
    assert_eq!(settings.bind.timeout, Some(Duration::from_secs(8)));
    assert_eq!(settings.tiers[0].backends[0].connections, 3);
    let refused = read_text(&text.replace("idletimeout 0x10", "idletimeout 08")).unwrap_err();
    assert!(refused.contains("seconds, 0 for no limit"), "{refused}");
}

#[test]
fn a_whole_file() {
    let settings = read_text(WHOLE).unwrap();
    assert_eq!(settings.listen, ["ldap://127.0.0.1:3890", "ldapi://%2Frun%2Fx"]);
    assert_eq!(settings.notes.len(), 2);
    assert_eq!((settings.io_timeout, settings.client_max_pending), (None, 10));
    assert_eq!(settings.write_coherence, Coherence::UntilBind);
    assert_eq!(settings.exop_rules["1.3.6.1.1.8"], Action::Reject);
    assert_eq!(settings.exop_default, Action::Write);
    assert_eq!(settings.control_rules["1.2.840.113556.1.4.319"], Action::Backend);
    let bytes =
        (settings.client_message_bytes, settings.upstream_message_bytes, settings.client_output_bytes);
    assert_eq!(bytes, (1000, 2000, 3000));
    assert!(
        matches!(&settings.bind.credentials, Some(larix_client::Credentials::Simple { dn, .. }) if dn == "cn=test")
    );
    assert_eq!(settings.bind.timeout, Some(Duration::from_secs(5)));
    assert_eq!(settings.bind.network_timeout, Some(Duration::from_secs(3)));
    assert_eq!(settings.bind.tls, [("tls_reqcert".to_owned(), "never".to_owned())]);
    assert_eq!(
        settings.tiers.iter().map(|tier| tier.strategy).collect::<Vec<_>>(),
        [Strategy::Weighted, Strategy::BestOf]
    );
    let [first, second] = settings.tiers[0].backends.as_slice() else { panic!("two servers") };
    assert_eq!((first.connections, first.bind_connections, first.weight), (3, 2, 5));
    assert_eq!((first.max_pending, first.connection_max_pending), (5, 3));
    assert_eq!((first.retry, first.start_tls), (Duration::from_secs(4), StartTls::Critical));
    assert_eq!((second.connections, second.bind_connections, second.weight), (10, 10, 0));
    assert_eq!(second.retry, Duration::from_secs(5));
}

#[test]
fn a_transaction_that_may_begin_may_end() {
    let end = "\nbindconf bindmethod=simple\ntier roundrobin\nbackend-server uri=ldap://h\n";
    let rules = |lines: &str| {
        let rules = read_text(&format!("{lines}{end}")).unwrap().exop_rules;
        [oid::START_TRANSACTION, oid::END_TRANSACTION].map(|name| rules.get(name).copied())
    };
    let (reject, connection) = (Some(Action::Reject), Some(Action::Connection));
    let begin = format!("restrict_exop {} connection\n", oid::START_TRANSACTION);
    assert_eq!(rules(""), [reject, reject]);
    assert_eq!(rules(&begin), [connection, None]);
    assert_eq!(rules(&format!("{begin}restrict_exop {} reject", oid::END_TRANSACTION)), [connection, reject]);
}

#[test]
fn wrong_lines_are_named_with_the_mend() {
    let end = "\nbindconf bindmethod=simple\ntier roundrobin\nbackend-server uri=ldap://h\n";
    for (line, place, expected) in [
        ("teir roundrobin", "FILE:1:1: unknown keyword `teir`", "did you mean `tier`?"),
        ("suffix dc=x", "FILE:1:1: unknown keyword `suffix`", "one of argsfile"),
        ("tier best", "FILE:1:6: `best` is not possible for tier", "roundrobin, weighted or bestof"),
        ("tier", "FILE:1:1: `tier` takes one value", ""),
        (
            "backend-server uri=ldap://h",
            "FILE:1:1: `backend-server` stands below no `tier`",
            "tier roundrobin",
        ),
        ("tier bestof\nbackend-server numconns=3", "FILE:2:1: backend-server needs uri=", "uri=ldap://"),
        ("tier bestof\nbackend-server uri=http://h", "FILE:2:16: uri=http://h", "ldap://"),
        (
            "tier bestof\nbackend-server uri=ldap://h\n  numcons=3",
            "FILE:3:3: backend-server: unknown key `numcons`",
            "numconns",
        ),
        (
            "tier bestof\nbackend-server uri=ldap://h numconns=0",
            "FILE:2:29: `0` is not possible for numconns",
            "from 1",
        ),
        (
            "tier roundrobin\nbackend-server uri=ldap://h weight=3",
            "FILE:2:29: `tier roundrobin` has no weights",
            "weighted",
        ),
        (
            "tier bestof\nbackend-server uri=ldaps://h starttls=yes",
            "FILE:2:1: backend-server: starttls=",
            "ldap://",
        ),
        (
            "tier bestof\nbackend-server uri=ldap://h proxyprotocol=v2",
            "FILE:2:29: proxyprotocol=v2: a header names one client",
            "proxyprotocol=local",
        ),
        (
            "tier bestof\nbackend-server uri=ldap://h proxyprotocol=on",
            "FILE:2:29: `on` is not possible for proxyprotocol",
            "no or local",
        ),
        (
            "tier bestof\nbackend-server uri=ldapi://%2Fx proxyprotocol=local",
            "FILE:2:1: backend-server: proxyprotocol=",
            "take proxyprotocol= out",
        ),
        ("bindconf binddn=cn=x", "FILE:1:1: bindconf: binddn= needs credentials=", "credentials=PASSWORD"),
        ("bindconf bindmethod=sasl", "FILE:1:1: bindconf: bindmethod=sasl needs saslmech=", "PLAIN"),
        ("bindconf bindmethod=other", "FILE:1:10: `other` is not possible for bindmethod", "simple or sasl"),
        ("restrict_exop 1.2.3 refuse", "FILE:1:21: `refuse` is no action", "reject"),
        ("restrict_control paged reject", "FILE:1:18: `paged` is no OID", "1.2.840"),
        ("feature vcs", "FILE:1:9: unknown feature `vcs`", "proxyauthz, vc"),
        ("write_coherence soon", "FILE:1:17: `soon` is not possible for write_coherence", "seconds"),
        ("iotimeout -3", "FILE:1:11: `-3` is not possible for iotimeout", "milliseconds"),
        ("sockbuf_max_incoming_client 0", "FILE:1:29: `0` is not possible", "bytes"),
        ("listen \"ldap://x", "FILE:1:8: a quote that does not end", ""),
        (
            "listen ldap://a:port",
            "FILE:1:8: listen: `ldap://a:port` is no URL to listen on: ",
            "ldap://0.0.0.0:3890",
        ),
        (
            "listen ldap:/// http://a",
            "FILE:1:17: listen: `http://a` is no URL to listen on: ",
            "pldap://127.0.0.1:3890",
        ),
        ("include /no/such/file", "FILE:1:9: there is no file `/no/such/file`", ""),
    ] {
        let error = read_text(&format!("{line}{end}")).unwrap_err();
        assert!(error.starts_with(place), "{line}: {error}");
        assert!(error.contains(expected), "{line}: {error}");
    }
    let hidden = read_text("bindconf binddn=cn=x credentials=hidden bindmethd=simple").unwrap_err();
    assert!(hidden.contains("unknown key `bindmethd`") && !hidden.contains("hidden"), "{hidden}");
    let none = read_text("bindconf bindmethod=simple\ntier roundrobin").unwrap_err();
    assert!(none.contains("names no server") && none.contains("backend-server uri="), "{none}");
    let none = read_text("tier roundrobin\nbackend-server uri=ldap://h").unwrap_err();
    assert!(none.contains("has no bindconf") && none.contains("disable proxyauthz"), "{none}");
    // As in OpenLDAP's examples: who asserts nobody needs no identity.
    let anonymous = read_text("disable proxyauthz\ntier roundrobin\nbackend-server uri=ldap://h").unwrap();
    assert!(anonymous.bind.credentials.is_none() && !anonymous.proxy_authorization);
}
