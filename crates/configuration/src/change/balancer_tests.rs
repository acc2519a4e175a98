//! The balancer in cn=config: its entries, and what becomes of changes of them.

use std::time::Duration;

use larix_engine::controls::RequestControls;

use super::super::balancer::{BalanceSettings, StartTls, Strategy};
use super::super::model::{Config, Source};
use super::fixture::{START, TestSources, entries, operations};

const BALANCER: &str = "olcBackend={0}lload,cn=config";
const OWN: &str = "
dn: olcBackend={0}lload,cn=config
objectClass: olcBackendConfig
objectClass: olcBkLloadConfig
olcBackend: {0}lload
olcBkLloadBindconf: bindmethod=simple binddn=\"cn=balancer,cn=one\" credentials=secret
olcBkLloadIOThreads: 1
olcBkLloadSockbufMaxClient: 262143
olcBkLloadSockbufMaxUpstream: 4194303
olcBkLloadMaxPDUPerCycle: 10
olcBkLloadIOTimeout: 10000
olcBkLloadListen: ldap://127.0.0.1:3890/
";

fn start() -> Config {
    let all = entries(&format!("{START}{OWN}"));
    Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"))
}

fn tier(name: &str, kind: &str) -> String {
    format!(
        "dn: cn={name},{BALANCER}\nchangetype: add\nobjectClass: olcBkLloadTierConfig\nolcBkLloadTierType: {kind}\n\n"
    )
}

fn server(name: &str, tier: &str, more: &str) -> String {
    format!(
        "dn: cn={name},{tier},{BALANCER}\nchangetype: add\nobjectClass: olcBkLloadBackendConfig\n\
         olcBkLloadBackendUri: ldap://{name}.example.com/\nolcBkLloadNumconns: 3\nolcBkLloadBindconns: 2\n\
         olcBkLloadRetry: 4000\nolcBkLloadMaxPendingOps: 5\nolcBkLloadMaxPendingConns: 6\n{more}\n"
    )
}

fn modify(entry: &str, change: &str) -> String {
    format!("dn: {entry}\nchangetype: modify\n{change}\n-\n\n")
}

/// The configuration after changes, or why one is refused.
fn changed(ldif: &str) -> Result<Config, String> {
    let sources = TestSources::new();
    operations(ldif).into_iter().try_fold(start(), |config, operation| {
        let changed = sources.change(&config, operation, RequestControls::default());
        changed.map(|changed| changed.config).map_err(|refused| refused.to_string())
    })
}

fn balancer(config: &Config) -> &BalanceSettings {
    config.global.balancer.as_ref().unwrap()
}

/// Tiers with their servers, as they are tried.
fn tried(config: &Config) -> Vec<(&str, Vec<&str>)> {
    let tiers = balancer(config).tiers.iter();
    tiers
        .map(|tier| {
            (tier.name.as_str(), tier.backends.iter().map(|server| server.name.as_str()).collect::<Vec<_>>())
        })
        .collect()
}

#[test]
fn entries_are_settings() {
    let ldif = [
        tier("first", "roundrobin"),
        tier("second", "weighted"),
        server("a", "cn={0}first", "olcBkLloadStartTLS: critical\n"),
        server("b", "cn={1}second", "olcBkLloadWeight: 7\n"),
        // With a number it goes before the others.
        server("{0}c", "cn={1}second", "").replace("//{0}c.", "//c."),
    ];
    let config = changed(&ldif.concat()).unwrap();
    assert_eq!(tried(&config), [("first", vec!["a"]), ("second", vec!["c", "b"])]);
    let settings = balancer(&config);
    assert_eq!(settings.listen, ["ldap://127.0.0.1:3890/"]);
    assert_eq!(settings.tiers[1].strategy, Strategy::Weighted);
    let [a] = settings.tiers[0].backends.as_slice() else { panic!("one server") };
    assert_eq!((a.connections, a.bind_connections, a.retry), (3, 2, Duration::from_secs(4)));
    assert_eq!((a.max_pending, a.connection_max_pending, a.start_tls), (5, 6, StartTls::Critical));
    assert_eq!((a.uri.as_str(), a.url.host.as_str()), ("ldap://a.example.com/", "a.example.com"));
    assert_eq!(settings.tiers[1].backends[1].weight, 7);
    // What is changed and taken away: the numbers behind it move up.
    let more = [
        modify(
            &format!("cn={{1}}b,cn={{1}}second,{BALANCER}"),
            "replace: olcBkLloadNumconns\nolcBkLloadNumconns: 9",
        ),
        modify(&format!("cn={{1}}b,cn={{1}}second,{BALANCER}"), "delete: olcBkLloadWeight"),
        modify(BALANCER, "add: olcBkLloadRestrictExop\nolcBkLloadRestrictExop: 1.2.3 reject"),
        modify(BALANCER, "replace: olcBkLloadIOTimeout\nolcBkLloadIOTimeout: 2000"),
        modify(BALANCER, "add: olcBkLloadFeatureDisable\nolcBkLloadFeatureDisable: proxyauthz"),
        format!("dn: cn={{0}}a,cn={{0}}first,{BALANCER}\nchangetype: delete\n\n"),
        format!("dn: cn={{0}}first,{BALANCER}\nchangetype: delete\n\n"),
        format!("dn: cn={{0}}c,cn={{0}}second,{BALANCER}\nchangetype: delete\n\n"),
        tier("third", "bestof"),
        format!(
            "dn: cn={{1}}third,{BALANCER}\nchangetype: modrdn\nnewrdn: cn={{0}}third\ndeleteoldrdn: 1\n\n"
        ),
    ];
    let config = changed(&[ldif.concat(), more.concat()].concat()).unwrap();
    assert_eq!(tried(&config), [("third", vec![]), ("second", vec!["b"])]);
    let settings = balancer(&config);
    assert_eq!((settings.tiers[1].backends[0].connections, settings.tiers[1].backends[0].weight), (9, 0));
    assert_eq!(settings.io_timeout, Some(Duration::from_secs(2)));
    assert!(!settings.proxy_authorization && settings.exop_rules.contains_key("1.2.3"));
    // Without its entry there is none.
    let none = format!("dn: {BALANCER}\nchangetype: delete\n\n");
    assert!(changed(&none).unwrap().global.balancer.is_none());
    let busy = changed(&[tier("first", "bestof"), none].concat()).unwrap_err();
    assert!(busy.contains("entries below it"), "{busy}");
}

#[test]
fn what_cannot_be_is_refused_with_the_mend() {
    let first = tier("first", "roundrobin");
    let under = format!("cn={{0}}a,cn={{0}}first,{BALANCER}");
    let server_a = server("a", "cn={0}first", "");
    for (ldif, part) in [
        (tier("x", "best"), "roundrobin, weighted or bestof"),
        (tier("x", "bestof").replace("olcBkLloadTierConfig", "olcModuleList"), "not allowed"),
        (server("a", "cn={0}none", ""), "matched"),
        (server_a.replace("//a.example.com/", ""), "uri="),
        (server("a", "cn={0}first", "olcBkLloadStartTLS: yes\n").replace("ldap:", "ldaps:"), "write ldap://"),
        (server("a", "cn={0}first", "olcBkLloadWriteCoherence: 3\n"), "not allowed"),
        (modify(BALANCER, "delete: olcBkLloadBindconf"), "olcBkLloadBindconf"),
        (
            modify(BALANCER, "add: olcBkLloadFeatureEnable\nolcBkLloadFeatureEnable: vcs"),
            "unknown feature `vcs`",
        ),
        (
            modify(
                BALANCER,
                "add: olcBkLloadFeatureEnable\nolcBkLloadFeatureEnable: proxyauthz\n-\nadd: olcBkLloadFeatureDisable\n\
                 olcBkLloadFeatureDisable: proxyauthz",
            ),
            "is enabled and disabled",
        ),
        (
            modify(BALANCER, "replace: olcBkLloadSockbufMaxClient\nolcBkLloadSockbufMaxClient: 0"),
            "bytes, from 1",
        ),
        (
            modify(BALANCER, "add: olcBkLloadRestrictControl\nolcBkLloadRestrictControl: x reject"),
            "is no OID",
        ),
        (
            [server_a.clone(), modify(&under, "replace: olcBkLloadBindconns\nolcBkLloadBindconns: 0")]
                .concat(),
            "connections, from 1 to 1000",
        ),
    ] {
        let refused = changed(&[first.clone(), ldif.clone()].concat()).map(|_| ()).unwrap_err();
        assert!(refused.contains(part), "{ldif}: {refused}");
    }
}

#[test]
fn a_file_becomes_entries() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slapd.conf");
    std::fs::write(
        &path,
        "moduleload lloadd.la\nbackend lload\nlisten \"ldap://:3890 ldapi://%2Frun%2Fx\"\n\
         bindconf bindmethod=simple\n  binddn=cn=b credentials=x\nfeature proxyauthz\nio-threads 4\ntier roundrobin\n\n\
         tier weighted\nbackend-server uri=ldap://one weight=10\nbackend-server uri=ldap://two weight=1 numconns=3\n\
         backend-server uri=ldap://three\nbackend-server uri=ldap://four weight=5\ndatabase config\n",
    )
    .unwrap();
    let config = Config::from_slapd_conf(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.refusals().len(), 0);
    // In the order of their weights, as lloadd has them.
    let expected = ["server 3", "server 2", "server 4", "server 1"];
    assert_eq!(tried(&config), [("tier 1", vec![]), ("tier 2", expected.to_vec())]);
    let all = config.entries();
    let entry = |dn: &str| all.iter().find(|entry| entry.dn == dn).unwrap_or_else(|| panic!("no {dn}"));
    let own = entry(BALANCER);
    assert_eq!(own.values("olcBkLloadListen").len(), 2);
    assert_eq!(own.values("olcBkLloadFeatureEnable").first().unwrap(), b"proxyauthz");
    assert_eq!(own.values("olcBkLloadIOTimeout").first().unwrap(), b"10000");
    let two = entry(&format!("cn={{1}}server 2,cn={{1}}tier 2,{BALANCER}"));
    for (attribute, value) in [
        ("olcBkLloadBackendUri", "ldap://two"),
        ("olcBkLloadNumconns", "3"),
        ("olcBkLloadRetry", "5000"),
        ("olcBkLloadWeight", "1"),
        ("cn", "{1}server 2"),
    ] {
        assert_eq!(two.values(attribute).first().unwrap(), value.as_bytes(), "{attribute}");
    }
    // And back.
    let again = Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"));
    let without_notes = |config: &Config| BalanceSettings { notes: Vec::new(), ..balancer(config).clone() };
    assert_eq!(without_notes(&again), without_notes(&config));
    // Keywords of the server mean the server, wherever they stand.
    for (text, part) in [
        ("backend lload\nbackend-server uri=ldap://x\n", "stands below no `tier`"),
        ("backend lload\ntier roundrobin\n", "has no bindconf"),
        ("tier roundrobin\n", "behind `backend lload`"),
        ("backend mdb\nlisten ldap://:389\n", "behind `backend lload`"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Config::from_slapd_conf(&path).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
