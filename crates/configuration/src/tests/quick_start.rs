//! The configuration of `larix serve --suffix`.

use crate::{Config, ConfigError, QuickStart, Source};

#[test]
fn quick_start_is_complete() {
    let start = QuickStart {
        suffix: "dc=example,dc=com".to_owned(),
        directory: "/nowhere".into(),
        root_password: Some(b"{SSHA}jlziJgp6OwJiI593mTsHTcxxdcTQu3aM".to_vec()),
        ..QuickStart::default()
    };
    let config = Config::quick_start(&start).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.refusals(), []);
    let warnings: Vec<_> = config.notes.iter().filter(|note| note.text.starts_with("warning")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(config.databases[1].root_dn.as_ref().unwrap().text, "cn=admin,dc=example,dc=com");
    let again =
        Config::from_entries(config.entries(), Source::QuickStart).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.databases[1].access.len(), 3);

    for (suffix, expected) in [
        ("foo=bar", ["--suffix foo=bar is not a DN", "\"foo\""]),
        ("c=Germany", ["--suffix c=Germany is not a DN: value of \"c\"", "two letters"]),
        ("dc=exämple,dc=com", ["--suffix dc=exämple,dc=com is not a DN: value of \"dc\"", "xn--"]),
        ("cn=config", ["suffix \"cn=config\" lies within", "choose another suffix"]),
    ] {
        let start = QuickStart { suffix: suffix.to_owned(), ..start.clone() };
        let refused = Config::quick_start(&start).unwrap_err().to_string();
        assert!(expected.iter().all(|text| refused.contains(text)), "{refused}");
    }
}

#[test]
fn a_quick_start_takes_lines_for_its_database() {
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        let start = QuickStart {
            suffix: "dc=example,dc=com".to_owned(),
            directory: "/nowhere".into(),
            includes: vec![file.clone()],
            ..QuickStart::default()
        };
        let text = |error: ConfigError| error.to_string().replace(file.to_str().unwrap(), "FILE");
        Config::quick_start(&start).map_err(text)
    };
    let more = "schema samba\noverlay unique\nunique_uri ldap:///?mail?sub\noverlay ppolicy\nppolicy_default cn=p,dc=example,dc=com\n\
                index sambaSID eq\naccess to attrs=mail by users write by * none\n";
    let config = start("more.conf", more).unwrap_or_else(|error| panic!("{error}"));
    let database = &config.databases[1];
    let names: Vec<&str> = database.overlays.iter().map(|overlay| overlay.name.as_str()).collect();
    assert_eq!(names, ["unique", "ppolicy"], "an overlay of the quick start comes once");
    assert_eq!(database.access.len(), 4);
    let rules = database.settings.get("olcAccess").to_vec();
    assert!(String::from_utf8_lossy(&rules[0]).contains("attrs=mail"), "rules of the file come first");
    assert!(config.schema_sections.iter().any(|section| section.name == "samba"));
    let refused = start("database.conf", "overlay memberof\ndatabase mdb\n").unwrap_err();
    assert!(refused.contains("`FILE` begins another section"), "{refused}");
    let refused = start("index.conf", "index title,UID eq\n").unwrap_err();
    assert!(refused.contains("`larix serve --suffix` indexes uid already"), "{refused}");
    let refused = start("twice.conf", "index title eq\nindex title sub\n").unwrap_err();
    assert!(refused.contains("put all kinds into one line"), "{refused}");
    for (line, flag) in [
        ("directory /nowhere/else", "--data"),
        ("suffix dc=example,dc=org", "--suffix"),
        ("rootdn cn=other,dc=example,dc=com", "cn=admin below the suffix"),
        ("rootpw secret", "--admin-password-file"),
    ] {
        let refused = start("own.conf", &format!("overlay memberof\n{line}\n")).unwrap_err();
        assert!(refused.contains("FILE:2:1") && refused.contains(flag), "{line}: {refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
    let whole = "database mdb\nsuffix dc=example,dc=org\ndirectory /nowhere/else\n";
    let refused = start("whole.conf", whole).unwrap_err();
    assert!(refused.contains("`FILE` begins another section"), "{refused}");
    let refused = start("unknown.conf", "overlay nothing\n").unwrap_err();
    assert!(refused.contains("FILE:1:9"), "{refused}");
}
