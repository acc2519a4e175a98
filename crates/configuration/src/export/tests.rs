//! What is exported reads back as the same configuration.

use super::super::model::{Config, Source};

/// The text of each case is read, exported, and read again: the entries under cn=config are the same.
fn check(name: &str, text: &str, expected_lines: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().display().to_string();
    std::fs::create_dir(directory.path().join("db")).unwrap();
    let read = |file: &str, text: &str| {
        let path = directory.path().join(file);
        std::fs::write(&path, text).unwrap();
        Config::from_slapd_conf(&path).unwrap_or_else(|error| panic!("{name}, {file}: {error}\n{text}"))
    };
    let first = read("first.conf", &text.replace("$D", &place));
    let exported = first.to_slapd_conf();
    assert_eq!(exported.without_form, Vec::<String>::new(), "{name}");
    let second = read("second.conf", &exported.text);
    let entries = |config: &Config| {
        let mut all = config.entries();
        // Two files, two names.
        all.iter_mut().for_each(|entry| {
            entry.attributes.retain(|a| a.description != "olcConfigFile");
        });
        all
    };
    assert_eq!(entries(&first), entries(&second), "{name}:\n{}", exported.text);
    for line in expected_lines {
        let line = line.replace("$D", &place);
        assert!(exported.text.contains(&line), "{name}: no {line:?} in\n{}", exported.text);
    }
    assert_eq!(second.to_slapd_conf(), exported, "{name}: the second export differs");
}

#[test]
fn there_and_back() {
    const MDB: &str = "schema core\ndatabase mdb\nsuffix dc=example,dc=com\ndirectory $D/db\n";
    let cases: &[(&str, String, &[&str])] = &[
        ("nothing", String::new(), &["database config\n"]),
        (
            "a balancer",
            "backend lload\nlisten \"ldap://:3890 ldaps://:6360\"\nbindconf bindmethod=simple binddn=\"cn=a b\" credentials=x\n\
             disable proxyauthz\nrestrict_exop 1.2.3 reject\niotimeout 2000\nTLSShareSlapdCTX on\ntier bestof\n\
             backend-server uri=ldap://one starttls=critical weight=3 retry=10\nbackend-server uri=ldaps://two\ntier roundrobin\n"
                .to_owned(),
            &[
                "backend lload\n",
                "listen ldap://:3890\n",
                "iotimeout 2000\n",
                "TLSShareSlapdCTX on\n",
                "tier bestof\nbackend-server uri=ldap://one numconns=10 bindconns=10 retry=10",
            ],
        ),
        // As cn=config may have it: one value after the other.
        (
            "what is required",
            "require bind strong\nrequire none\nrequire authc\n".to_owned(),
            &["require bind strong\nrequire none authc\n"],
        ),
        (
            "the usual",
            format!(
                "pidfile $D/p\nloglevel stats sync\nsizelimit size.soft=10 size.hard=unlimited\n{MDB}\
                 rootdn \"cn=Big Boss,dc=example,dc=com\"\nrootpw \"a \\\"b\\\\ c\"\nindex objectClass eq\n\
                 index cn,sn pres,eq,sub\nlimits dn.exact=\"cn=a b,dc=example,dc=com\" size=unlimited\n"
            ),
            &[
                "schema core\n",
                "rootdn \"cn=Big Boss,dc=example,dc=com\"\n",
                "rootpw \"a \\\"b\\\\ c\"\n",
                "loglevel stats sync\n",
                "index cn pres,eq,sub\n",
            ],
        ),
        (
            "access rules",
            format!(
                "{MDB}access to dn.regex=\"^cn=(.+),dc=x y\\\\.z$\" attrs=userPassword\n  by self write\n  \
                 by dn.exact,expand=\"cn=$1 q,dc=x\" read\n  by group/groupOfNames/member=\"cn=a b,dc=x\" write\n\
                 access to filter=\"(&(cn=a b)(sn=c\\\\2a))\" by * read\naccess to * by set=\"this/a & user\" write by * none\n"
            ),
            &["    by self write\n", "access to filter=\"(&(cn=a b)(sn=c\\\\2a))\"\n    by * read\n"],
        ),
        (
            "the frontend, overlays, several databases",
            format!(
                "sizelimit 7\npassword-hash {{SSHA}} {{CRYPT}}\naccess to dn.base=\"\" by * read\n{MDB}\
                 overlay ppolicy\nppolicy_default \"cn=p q,dc=example,dc=com\"\nppolicy_hash_cleartext\n\
                 database monitor\naccess to * by users read\ndatabase null\nsuffix dc=nothing\nhidden on\n"
            ),
            &["sizelimit 7\n", "overlay ppolicy\n", "database null\n", "hidden on\n"],
        ),
        (
            "own definitions",
            format!(
                "{MDB}attributetype ( 1.2.3.4 NAME 'aB' DESC 'two  blanks \"and\" quotes' SUP name )\n\
                 objectclass ( 1.2.3.5 NAME 'aC' SUP top AUXILIARY MAY ( aB $ cn ) )\n\
                 objectidentifier own 1.2.3\n"
            ),
            &["'two  blanks \"and\" quotes'", "objectidentifier own 1.2.3\n"],
        ),
        (
            "definitions of sections",
            "schema core\nobjectclass ( 1.2.3.5 NAME 'aC' SUP top AUXILIARY MAY sn )\nschema-section \"of a site\"\n\
             attributetype ( 1.2.3.4 NAME 'aB' SUP name )\nschema cosine\nobjectclass ( 1.2.3.6 NAME 'aD' SUP aC AUXILIARY MAY drink )\n"
                .to_owned(),
            &[
                "schema core\nschema-section first\nobjectclass ( 1.2.3.5 ",
                "schema-section \"of a site\"\nattributetype ( 1.2.3.4 ",
                "schema cosine\nschema-section \"of a site\"\nobjectclass ( 1.2.3.6 ",
            ],
        ),
        (
            "identities",
            format!(
                "authz-regexp \"uid=([^,]*),cn=[^,]*,cn=auth\" \"uid=$1,ou=p q,dc=example,dc=com\"\n\
                 authz-regexp ^cn=x\\\\.y$ ldap:///dc=example,dc=com??sub?(uid=$1)\n{MDB}"
            ),
            &["ou=p q,dc=example,dc=com"],
        ),
    ];
    for (name, text, lines) in cases {
        check(name, text, lines);
    }
}

/// As of a password whose line end was encoded with it.
#[test]
fn a_line_break_has_no_form() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slapd.conf");
    std::fs::write(&path, "sasl-realm realm\ndatabase config\nrootpw hidden\n").unwrap();
    let mut entries = Config::from_slapd_conf(&path).unwrap().entries();
    for attribute in entries.iter_mut().flat_map(|entry| &mut entry.attributes) {
        match attribute.description.as_str() {
            "olcRootPW" => attribute.values = vec![b"hidden\n".to_vec()].into(),
            "olcSaslRealm" => attribute.values = vec![b"\"a\nb\"".to_vec()].into(),
            _ => {}
        }
    }
    let exported = Config::from_entries(entries, Source::QuickStart).unwrap().to_slapd_conf();
    assert_eq!(exported.without_form, ["olcSaslRealm: a b", "olcRootPW: 7 bytes, not shown"]);
    assert!(!exported.text.contains("hidden"), "{}", exported.text);
    std::fs::write(&path, &exported.text).unwrap();
    Config::from_slapd_conf(&path).unwrap_or_else(|error| panic!("{error}\n{}", exported.text));
}
