use larix_backend::meta::{NameLifetime, OnError, Subtrees};
use larix_proxy::settings::Paging;

use super::MetaSettings;
use crate::Config;
use crate::fixture::in_all_forms;

/// The settings of a section, the same by way of cn=config and of the file that is made of that; or the error.
fn read_as(kind: &str, lines: &str) -> Result<(MetaSettings, Config), String> {
    let lines = format!("database {kind}\nsuffix o=x\n{lines}");
    let [config, entries, exported] = in_all_forms(&["core", "cosine", "inetorgperson"], &lines)?;
    let of = |config: &Config| {
        let mut all = config.databases.iter();
        all.find_map(|database| database.kind.settings::<MetaSettings>()).cloned().unwrap()
    };
    let debug_text = |settings: &MetaSettings| {
        // Places differ, and the order of what is shown.
        let mut settings = settings.clone();
        for target in &mut settings.targets {
            target.origin = crate::Origin::BuiltIn;
            target.shown = super::Settings::default();
        }
        format!("{settings:?}")
    };
    for again in [&entries, &exported] {
        assert_eq!(debug_text(&of(again)), debug_text(&of(&config)), "{lines}");
        assert!(config.difference(again).is_empty() && again.difference(&config).is_empty());
    }
    Ok((of(&config), config))
}

fn first_value(entry: &crate::ConfigEntry, attribute: &str) -> String {
    entry
        .values(attribute)
        .first()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

fn read(lines: &str) -> Result<MetaSettings, String> {
    read_as("meta", lines).map(|(settings, _)| settings)
}

#[test]
fn what_is_read() {
    let (settings, config) = read_as(
        "meta",
        "onerr report\ndncache-ttl 1h\nclient-pr 500\nnorefs yes\ntimeout 7\nquarantine 5,10;60,+\nidle-timeout 30\n\
         uri \"ldap://a:3890/ou=One Two,o=x\" ldap://b/\nsuffixmassage \"ou=One Two,o=x\" dc=one\nmap attribute title description\n\
         map objectclass *\nsubtree-exclude \"dn.children:ou=No,ou=One Two,o=x\"\nsubtree-exclude dn.regex:^cn=\nfilter [(]uid=\n\
         idassert-bind bindmethod=simple binddn=cn=p credentials=secret mode=self\nidassert-authzFrom *\n\
         limits users size=7\naccess to * by * read\n\
         uri ldaps://c/o=X\ntimeout search=9\ndefault-target\ntls ldaps tls_reqcert=allow\nsubtree-include dn:o=x\nrewriteEngine on\n\
         rewriteContext searchBase\nrewriteRule (.*)o=x$ $1o=y :@\nt-f-support yes\nclient-pr accept-unsolicited\n\
         rootdn cn=root,o=x",
    )
    .unwrap();
    let [one, two] = settings.targets.as_slice() else { panic!("{settings:?}") };
    assert_eq!((settings.on_error, settings.default_target), (OnError::Report, Some(1)));
    assert_eq!(settings.known_names, Some(NameLifetime::For(std::time::Duration::from_secs(3600))));
    for (word, lifetime) in [("disabled", None), ("0", None), ("Forever", Some(NameLifetime::Forever))] {
        let (settings, _) = read_as("meta", &format!("dncache-ttl {word}\nuri ldap://a/o=x")).unwrap();
        assert_eq!(settings.known_names, lifetime, "{word}");
    }
    assert_eq!((one.suffix.normal.as_str(), two.suffix.normal.as_str()), ("ou=one two,o=x", "o=x"));
    assert_eq!((one.proxy.targets.len(), one.proxy.targets[0].dn.as_str()), (2, ""));
    assert!(one.proxy.no_references && two.proxy.no_references && two.proxy.assertion.is_none());
    assert!(one.proxy.assertion.is_some() && one.proxy.asserted.len() == 1);
    assert_eq!((one.proxy.quarantine.len(), one.filters.len()), (2, 1));
    assert!(matches!(&one.subtrees, Subtrees::Except(rules) if rules.len() == 2));
    assert!(matches!(&two.subtrees, Subtrees::Only(rules) if rules.len() == 1));
    assert!(!one.proxy.absolute_filters && two.proxy.absolute_filters);
    assert!(matches!(one.proxy.paging, Paging::Pages(size) if size.get() == 500));
    assert_eq!(two.proxy.paging, Paging::Unsolicited);
    let database = config.databases.iter().find(|database| database.kind.name() == "meta").unwrap();
    // What is none of a target's is the database's, wherever it stands.
    assert!(database.root_dn.is_some() && database.access.len() == 1 && database.shared.limits.len() == 1);
    let entries = config.entries();
    let named = |dn: &str| entries.iter().find(|entry| entry.dn == dn).unwrap();
    let first = named("olcMetaSub={0}uri,olcDatabase={1}meta,cn=config");
    assert!(first_value(first, "olcDbURI").ends_with(" ldap://b/"));
    assert!(first_value(first, "olcDbRewrite").starts_with("{0}suffixmassage "));
    assert_eq!(first_value(first, "objectClass"), "olcMetaTargetConfig");
    assert_eq!(first_value(named("olcDatabase={1}meta,cn=config"), "olcDbDefaultTarget"), "2");
}

#[test]
fn the_other_name() {
    let (settings, config) = read_as(
        "asyncmeta",
        "max-target-conns 4\nmax-pending-ops 9\nconn-ttl 6s 7s\nuri ldap://a/ou=a,o=x\nsuffixmassage ou=a,o=x dc=a\nuri ldap://b/ou=b,o=x\n\
         suffixmassage dc=b",
    )
    .unwrap();
    assert_eq!((settings.targets.len(), settings.targets[1].proxy.pool_max), (2, 4));
    let seconds = std::time::Duration::from_secs;
    let proxy = &settings.targets[1].proxy;
    assert_eq!((proxy.connection_ttl, proxy.reset_interval), (Some(seconds(6)), Some(seconds(7))));
    assert!(proxy.outlives_notice && settings.connection_groups() == Some(4));
    assert!(settings.targets[1].mapping(&config.schema).unwrap().is_some());
    // slapd's default, which it writes into every slapd.d.
    let (unlimited, _) = read_as("asyncmeta", "max-target-conns 0\nuri ldap://a/ou=a,o=x").unwrap();
    assert_eq!(unlimited.connection_groups(), None);
    let entries = config.entries();
    let dn = "olcAsyncMetaSub={1}uri,olcDatabase={1}asyncmeta,cn=config";
    let second = entries.iter().find(|entry| entry.dn == dn).unwrap();
    assert_eq!(first_value(second, "olcDbSuffixMassage"), "dc=b");
    let error = read_as("asyncmeta", "uri ldap://a/o=x\nmap attribute cn sn").unwrap_err();
    assert!(error.contains("write `database meta`"), "{error}");
}

/// As it is between the change that adds the database under cn=config and the one that adds its first target.
#[test]
fn a_database_without_targets_can_be_exported() {
    for kind in ["meta", "asyncmeta"] {
        let (settings, config) = read_as(kind, "idle-timeout 10").unwrap();
        assert!(settings.targets.is_empty());
        let notes = config.notes.iter().filter(|note| note.text.contains("has no target"));
        assert_eq!(notes.count(), 1, "{kind}");
        let (_, config) = read_as(kind, "uri ldap://a/o=x").unwrap();
        assert!(!config.notes.iter().any(|note| note.text.contains("has no target")), "{kind}");
    }
}

#[test]
fn what_cannot_be() {
    let many = "uri ldap://a/o=x\n".repeat(65);
    for (lines, expected) in [
        ("uri ldap://a", "a target needs a name"),
        ("uri ldap://a/o=y", "not within a suffix"),
        ("uri ldap://a/o=x??base", "a whole subtree"),
        ("uri ldap://a/o=x ldap://b/o=x", "the first URL of a target has the name"),
        ("uri http://a/o=x", "not a scheme of LDAP URLs"),
        ("uri ldap://a/notadn", "is not a DN"),
        ("suffixmassage o=x o=y", "behind the `uri` line"),
        ("map attribute cn sn", "behind the `uri` line"),
        ("uri ldap://a/o=x\nonerr stop", "before the first `uri`"),
        ("onerr perhaps\nuri ldap://a/o=x", "`perhaps` is not known here"),
        ("dncache-ttl soon\nuri ldap://a/o=x", "`soon` is not a time"),
        ("uri ldap://a/o=x\ndncache-ttl forever", "before the first `uri`"),
        ("uri ldap://a/o=x\nsubtree-include dn:o=x\nsubtree-exclude dn:ou=a,o=x", "and not both"),
        ("uri ldap://a/ou=a,o=x\nsubtree-include dn:ou=b,o=x", "not within the target's name"),
        ("uri ldap://a/o=x\nsubtree-include dn.near:o=x", "no style `near`"),
        ("uri ldap://a/o=x\nfilter (", "not a regular expression"),
        ("uri ldap://a/o=x\ndefault-target 2", "there is no such target"),
        ("default-target\nuri ldap://a/o=x", "which target is meant"),
        ("uri ldap://a/o=x\nmap attribute cn sn\nmap attribute cn mail", "mapped already"),
        ("uri ldap://a/o=x\nmap syntax cn sn", "neither attribute nor objectclass"),
        ("uri ldap://a/o=x\nsuffixmassage o=x notadn", "\"notadn\" is not a DN"),
        ("uri ldap://a/o=x\nsuffixmassage o=x o=", "\"o=\" is not a DN"),
        ("uri ldap://a/o=x\nsuffixmassage o=xx o=y", "\"o=xx\" is not within a suffix"),
        ("uri ldap://a/o=x\nrewriteRule a ${>gone(x)}", "no context or map `gone`"),
        ("uri ldaps://a/o=x\ntls start", "with ldaps:// TLS is there already"),
        ("uri ldap://a/o=x\nclient-pr 0", "`0` is no number of entries"),
        ("uri ldap://a/o=x\nclient-pr often", "accept-unsolicited"),
        ("uri ldap://a/o=x\npseudorootdn cn=x", "idassert-bind"),
        ("uri ldap://a/o=x\nnosuchkeyword 1", "unknown directive `nosuchkeyword`"),
        (many.as_str(), "more than 64 targets"),
    ] {
        let error = read(lines).map(|_| String::new()).unwrap_or_else(|error| error);
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

/// Targets that go, come and change, as requests that cn=config takes.
#[test]
fn differences_of_targets() {
    let of = |lines: &str| read_as("meta", lines).unwrap().1;
    let (a, b) = ("uri ldap://a/ou=a,o=x\n", "uri ldap://b/ou=b,o=x\n");
    let one = of(a);
    let two = of(&format!("{a}timeout 3\n{b}"));
    let other = of(b);
    for (from, to, steps) in [(&one, &two, 2), (&two, &one, 2), (&one, &other, 2), (&two, &other, 3)] {
        assert_eq!(from.difference(to).steps.len(), steps);
    }
}
