use larix_engine::time::{ManualClock, SeededRandom};

use super::*;

fn read(text: &str) -> Config {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("slapd.conf");
    std::fs::write(&file, text).expect("a file");
    Config::from_slapd_conf(&file).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn lines(config: &Config) -> SharedLines {
    let database = config.databases.iter().find(|database| database.kind.name() == "kv");
    config.shared_lines(database.expect("a kv database"))
}

#[test]
fn a_node_takes_over_what_is_shared_and_keeps_its_own() {
    let engine = "engine postgresql://two:hidden@127.0.0.1/d?sslmode=disable\nnode ldap://n2\nsuffix dc=a\n";
    let first = "schema core\nattributetype ( 1.2.3.4 NAME 'ownThing' SUP name )\nsizelimit 70\n\
            access to dn.base=\"\" by * read\ndatabase kv\n@rootdn cn=boss,dc=a\nrootpw secret\nindex cn eq\noverlay memberof\n\
            overlay dds\n\
            overlay unique\nunique_uri ldap:///?cn?sub\n";
    let shared = lines(&read(&first.replace('@', engine)));
    let joined = shared.of_node(&OwnLines {
        engine: "postgresql://two:hidden@127.0.0.1/d?sslmode=disable",
        node: "ldap://n2",
        certificate: None,
    });
    let own = format!(
        "loglevel stats\npidfile /run/two.pid\n{joined}database mdb\nsuffix dc=own\ndirectory @DATA@\n"
    );
    let folder = tempfile::tempdir().expect("a directory");
    let log = "overlay auditlog\nauditlog /var/log/two.ldif\n";
    let own = own.replace("overlay unique", &format!("{log}overlay unique"));
    let own = read(&own.replace("@DATA@", &folder.path().display().to_string()));
    assert_eq!(lines(&own), shared);
    let (clock, random) = (ManualClock::default(), SeededRandom::new(1));
    let stamp = Stamp { clock: &clock, random: &random };
    let follow = |config: &Config, lines: &SharedLines| config.with_shared_lines("dc=a", lines, &stamp);
    assert!(follow(&own, &shared).expect("the same").is_none());

    let second = first
        .replace("ownThing", "otherThing")
        .replace("sizelimit 70", "timelimit 9")
        .replace("by * read", "by * search")
        .replace("cn=boss", "cn=chief")
        .replace("index cn eq\n", "index cn,sn eq\naccess to * by * read\n")
        .replace("overlay memberof\n", "");
    let wanted = lines(&read(&second.replace('@', engine)));
    let FollowedConfig { changed, difference } = follow(&own, &wanted).expect("it fits").expect("another");
    let text = changed.config.to_slapd_conf().text;
    for kept in [
        "loglevel stats",
        "pidfile /run/two.pid",
        "suffix dc=own",
        "node ldap://n2",
        "two:hidden@",
        "two.ldif",
    ] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    for gone in ["ownThing", "sizelimit", "memberof", "cn=boss"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    assert!(text.contains("rootdn cn=chief,dc=a"), "{text}");
    assert!(text.contains("access to *\n    by dn.base=cn=chief,dc=a read"), "cn=Monitor's reader: {text}");
    assert!(!difference.to_string().contains("hidden"), "{difference}");
    assert_eq!(lines(&changed.config), wanted);
    assert!(follow(&changed.config, &wanted).expect("the same").is_none());
    let back = follow(&changed.config, &shared).expect("it fits").expect("another");
    assert_eq!(lines(&back.changed.config), shared);

    // What this node cannot take leaves everything as it is.
    let head = |more: &str| SharedLines { head: format!("{}{more}", wanted.head), ..wanted.clone() };
    let database =
        |from: &str, to: &str| SharedLines { database: wanted.database.replace(from, to), ..wanted.clone() };
    for (refused, expected) in [
        (head("pidfile /run/it.pid\n"), "olcPidFile"),
        (head("include /etc/passwd\n"), "cannot be included"),
        (head("later-word on\n"), "later-word"),
        (
            SharedLines {
                database: wanted.database.replace("dc=a", "dc=b"),
                root_dn: Some("cn=chief,dc=b".to_owned()),
                ..wanted.clone()
            },
            "have this node join anew",
        ),
        (database("suffix dc=a", "suffix dc=a\nsuffix dc=own"), "dc=own"),
        (database("overlay unique", "overlay uniques"), "uniques"),
        (database("overlay dds", "overlay auditlog\nauditlog /etc/it\noverlay dds"), "writes files"),
    ] {
        let why = follow(&own, &refused).expect_err(expected).0.diagnostic;
        assert!(why.contains(expected) && !why.contains("hidden"), "{expected}: {why}");
    }
}

#[test]
fn sections_of_the_schema_are_shared() {
    let database = "database kv\nengine postgresql://two:hidden@127.0.0.1/d?sslmode=disable\n\
                        node ldap://n2\nsuffix dc=a\n";
    let class = "schema-section site\nobjectclass ( 1.2.3.9 NAME 'ownClass' SUP top AUXILIARY MAY sn )\n";
    let wanted = lines(&read(&format!("schema core\n{class}{database}")));
    let own = read(&format!("schema core\n{database}"));
    let (clock, random) = (ManualClock::default(), SeededRandom::new(1));
    let stamp = Stamp { clock: &clock, random: &random };
    let FollowedConfig { changed, .. } =
        own.with_shared_lines("dc=a", &wanted, &stamp).expect("it fits").expect("another");
    let sections = changed.config.schema_sections.iter().map(|section| section.name.as_str());
    assert_eq!(sections.collect::<Vec<_>>(), ["core", "site"]);
}

#[test]
fn another_node_has_what_is_shared_and_its_own_lines() {
    let text = "schema core\nattributetype ( 1.2.3.4 NAME 'ownThing' SUP name )\npidfile /run/one.pid\nserverID 7\nsizelimit 70\n\
            authz-regexp ^uid=(.*),cn=auth$ cn=$1,dc=example,dc=com\naccess to dn.base=\"\" by * read\n\
            database mdb\nsuffix dc=other\ndirectory /tmp\n\
            database kv\nengine postgresql://larix:hidden@127.0.0.1/d?sslmode=disable\nnode ldap://n1\nsuffix dc=example,dc=com\nlease 7\n\
            rootdn \"cn=Big Boss,dc=example,dc=com\"\nrootpw {SSHA}AAAA\nindex cn eq\naccess to * by users read\noverlay memberof\n";
    let shared = lines(&read(text));
    let whole = format!("{}{}", shared.head, shared.database);
    for own in ["hidden", "ldap://n1", "one.pid", "serverID", "dc=other"] {
        assert!(!whole.contains(own), "{own} is the node's own: {whole}");
    }
    let certificate = Some((Path::new("/etc/two.pem"), Path::new("/etc/two.key")));
    let own =
        OwnLines { engine: "postgresql://two@127.0.0.1/d?sslmode=disable", node: "ldap://n2", certificate };
    let text = shared.of_node(&own);
    for line in [
        "schema core\n",
        "'ownThing'",
        "sizelimit 70\n",
        "authz-regexp",
        "access to dn.base=\"\"\n    by * read\n",
        "TLSCertificateFile /etc/two.pem\n",
        "database kv\nengine postgresql://two@127.0.0.1/d?sslmode=disable\nnode ldap://n2\n\
             node-configuration shared\nserver-id 7\n",
        "lease 7\n",
        "rootpw {SSHA}AAAA\n",
        "index cn eq\n",
        "overlay memberof\n",
        "database config\nrootdn \"cn=Big Boss,dc=example,dc=com\"\n",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    SharedLines::check_alone(&read(&shared.of_node(&OwnLines { certificate: None, ..own })))
        .expect("nothing else");
    for (more, expected) in [
        ("pidfile /run/it.pid\n", "olcPidFile"),
        ("database mdb\nsuffix dc=more\ndirectory /tmp\n", "mdb"),
        ("database frontend\noverlay chain\n", "overlays"),
    ] {
        let more = SharedLines { head: format!("{}{more}", shared.head), ..shared.clone() };
        let read = read(&more.of_node(&OwnLines { certificate: None, ..own }));
        let refused = SharedLines::check_alone(&read).expect_err(expected);
        assert!(refused.contains(expected), "{refused}");
    }
    let audited = "overlay auditlog\nauditlog /tmp/it\noverlay memberof";
    let audited =
        SharedLines { database: shared.database.replace("overlay memberof", audited), ..shared.clone() };
    let read_audited = read(&audited.of_node(&OwnLines { certificate: None, ..own }));
    let refused = SharedLines::check_alone(&read_audited).expect_err("it writes a file");
    assert!(refused.contains("overlay auditlog, which writes files"), "{refused}");
    // What the joined node has to share is the same.
    let without_files = shared.of_node(&OwnLines { certificate: None, ..own });
    assert_eq!(lines(&read(&without_files)), shared);
}
