use crate::Config;

/// The first refusal of a configuration, or how it cannot be read.
fn fault(lines: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slapd.conf");
    let mut text = String::new();
    for schema in ["core", "dyngroup"] {
        let path = folder.path().join(format!("{schema}.schema"));
        std::fs::write(&path, larix_schema::bundled(schema).unwrap()).unwrap();
        text += &format!("include {}\n", path.display());
    }
    text += &lines.replace("@DATA@", &folder.path().display().to_string());
    std::fs::write(&file, text).unwrap();
    match Config::from_slapd_conf(&file) {
        Err(error) => Some(error.to_string()),
        Ok(config) => config.refusals().first().map(ToString::to_string),
    }
}

const WHOLE: &str = "database kv\nengine postgresql://larix:hidden@127.0.0.1/directory\n\
        node ldap://n1.example.com\nsuffix dc=a\n";

#[test]
fn what_a_kv_database_cannot_do_is_refused() {
    assert_eq!(fault(WHOLE), None);
    let below = "database mdb\nsuffix dc=b,dc=a\ndirectory @DATA@\nsubordinate\n";
    let in_engine_below = WHOLE.replace("dc=a", "dc=b,dc=a") + "subordinate\n";
    let above = "database mdb\nsuffix dc=a\ndirectory @DATA@\n";
    for glued in [format!("{below}{WHOLE}"), format!("{in_engine_below}{above}")] {
        assert_eq!(fault(&glued), None, "{glued}");
    }
    for with in [
        "multiprovider on\nsyncrepl rid=001 provider=ldap://p searchbase=dc=a\n",
        "syncrepl rid=001 provider=ldap://p searchbase=dc=a logbase=cn=log syncdata=accesslog\n",
        "overlay unique\nunique_uri ldap:///?cn?sub\n",
        "overlay refint\nrefint_attributes member\n",
        "overlay ppolicy\nppolicy_hash_cleartext\n",
        "overlay dynlist\n",
        "lastbind on\n",
        "read-consistency bounded 2\n",
        "overlay syncprov\nsyncprov-sessionlog 100\n",
        "overlay dds\ndds-interval 10\n",
        "overlay auditlog\nauditlog @DATA@/log\n",
        "server-id 4095\n",
        "node-configuration shared\n",
        "node-configuration own\n",
        "syncrepl rid=001 provider=ldap://p searchbase=dc=a\nupdateref ldap://p\n",
    ] {
        assert_eq!(fault(&format!("{WHOLE}{with}")), None, "{with}");
    }
    let missing = |line: &str| WHOLE.replace(line, "");
    for (lines, expected) in [
        (missing("engine postgresql://larix:hidden@127.0.0.1/directory\n"), "needs an `engine`"),
        (missing("node ldap://n1.example.com\n"), "needs a `node`"),
        (missing("suffix dc=a\n"), "needs a `suffix`"),
        (WHOLE.replace("directory", "directory?sslmode=prefer"), "may end in clear text"),
        (WHOLE.replace("ldap://n1.example.com", "ldapi://%2Fx"), "cannot be referred there"),
        (WHOLE.replace("ldap://n1.example.com", "ldap://0.0.0.0:1389"), "0.0.0.0 stands for all addresses"),
        (WHOLE.replace("ldap://n1.example.com", "ldaps://[::]"), ":: stands for all addresses"),
        (WHOLE.replace("ldap://n1.example.com", "ldap://n1/dc=a"), "more than a scheme, a host and a port"),
        (format!("{WHOLE}lease 0\n"), "not from 1 to 300 seconds"),
        (format!("{WHOLE}engine-schema A\n"), "cannot name a schema"),
        (format!("{WHOLE}read-consistency loose\n"), "strict, session"),
        (format!("{WHOLE}read-consistency bounded\n"), "a bound is missing"),
        (format!("{WHOLE}read-consistency bounded 0\n"), "not from 1 to 3600 seconds"),
        (format!("{WHOLE}read-consistency bounded soon\n"), "soon"),
        (format!("{WHOLE}read-consistency session 1\n"), "only `bounded` takes a number"),
        (format!("{WHOLE}directory @DATA@\n"), "directory"),
        (format!("{WHOLE}updateref ldap://p\n"), "are for a kv database that follows"),
        (format!("{WHOLE}server-id 4096\n"), "server ID 4096 is out of range"),
        (format!("{WHOLE}server-id one\n"), "one"),
        (format!("{WHOLE}node-configuration theirs\n"), "own, shared"),
        (
            format!(
                "database config\nsyncrepl rid=001 provider=ldap://p searchbase=cn=config\n\
                     {WHOLE}node-configuration shared\n"
            ),
            "cannot follow a provider",
        ),
        (format!("{WHOLE}overlay psearch\n"), "psearch does not work in a kv database: it sends changes on"),
        (format!("{WHOLE}rootdn cn=r,dc=a\noverlay autoca\n"), "it sees requests before the database does"),
        (format!("overlay memberof\n{WHOLE}"), "is left out"),
        (format!("{WHOLE}{}", WHOLE.replace("dc=a", "dc=b")), "engine-schema"),
        (
            format!("{below}{WHOLE}overlay syncprov\n"),
            "the overlay syncprov would leave out \"dc=b,dc=a\", which is glued below",
        ),
        (
            format!("{in_engine_below}{above}overlay syncprov\n"),
            "the overlay syncprov would leave out \"dc=b,dc=a\", which is glued below",
        ),
        (
            format!("{in_engine_below}{above}overlay glue\noverlay refint\nrefint_attributes member\n"),
            "the overlay refint would leave out \"dc=b,dc=a\"",
        ),
    ] {
        let found = fault(&lines).unwrap_or_default();
        assert!(found.contains(expected), "{lines}: {found}");
        assert!(!found.contains("hidden"), "{found}");
    }
}

/// The database that takes the records, and the one that is recorded.
fn recorded(log: &str, more: &str) -> String {
    let of_log = WHOLE.replace("suffix dc=a\n", "suffix cn=log\nengine-schema log\n");
    format!("{of_log}{log}{WHOLE}overlay accesslog\nlogdb cn=log\n{more}")
}

#[test]
fn an_access_log_is_in_the_same_engine() {
    const CHANGES: &str = "logops writes\nlogsuccess TRUE\n";
    for (log, more) in [
        ("", ""),
        ("overlay syncprov\nlease 7\n", "logold (objectClass=*)\nlogpurge 1+00:00 01:00\noverlay syncprov\n"),
    ] {
        assert_eq!(fault(&recorded(log, &format!("{CHANGES}{more}"))), None, "{log}{more}");
    }
    assert_eq!(
        fault(&recorded("", "logops add modify|modrdn\nlogbase delete dc=b,dc=a\nlogsuccess TRUE\n")),
        None
    );
    let whole = recorded("", CHANGES);
    let of_log = |from: &str, to: &str| whole.replacen(from, to, 1);
    let mdb =
        format!("database mdb\nsuffix cn=log\ndirectory @DATA@\n{WHOLE}overlay accesslog\nlogdb cn=log\n");
    let twice = WHOLE.replace("suffix dc=a\n", "suffix dc=b\nengine-schema more\n");
    for (lines, expected, help) in [
        (format!("{WHOLE}overlay accesslog\n{CHANGES}"), "needs a database", "logdb <suffix>"),
        (
            format!("{WHOLE}overlay accesslog\nlogdb cn=log\n{CHANGES}"),
            "logdb \"cn=log\": no database has this suffix",
            "add a `database kv` with this suffix",
        ),
        (
            format!("{WHOLE}overlay accesslog\nlogdb dc=a\n{CHANGES}"),
            "cannot log to itself",
            "another database",
        ),
        (format!("{mdb}{CHANGES}"), "each node would have a part of the log", "make it a `database kv`"),
        (of_log("/directory", "/other"), "is in another engine", "the same line `engine`"),
        (of_log("ldap://n1", "ldap://n7"), "has the node ldap://n7", "the same line `node`"),
        (of_log("engine-schema", "server-id 7\nengine-schema"), "the server id 7", "the same `server-id`"),
        (
            recorded("overlay accesslog\nlogdb dc=a\nlogsuccess TRUE\n", CHANGES),
            "has an access log itself",
            "take `overlay accesslog` out",
        ),
        (
            recorded("syncrepl rid=001 provider=ldap://p searchbase=cn=log\n", CHANGES),
            "follows a provider",
            "take `syncrepl` out",
        ),
        (recorded("", "logops writes\n"), "no operations that failed", "logsuccess TRUE"),
        (recorded("", "logops all\nlogsuccess TRUE\n"), "has changes alone", "`writes`"),
        (recorded("", "logops session\nlogsuccess TRUE\n"), "has changes alone", "`writes`"),
        (recorded("", "logbase search dc=a\nlogsuccess TRUE\n"), "has changes alone", "`writes`"),
        (
            format!("{whole}{twice}overlay accesslog\nlogdb cn=log\n{CHANGES}"),
            "has the same log",
            "give each its own",
        ),
        (
            format!(
                "{}database mdb\nsuffix dc=b\ndirectory @DATA@\noverlay accesslog\nlogdb cn=log\n",
                WHOLE.replace("suffix dc=a\n", "suffix cn=log\n")
            ),
            "in an engine that several servers share, and this one is not",
            "name a `database mdb`",
        ),
    ] {
        let found = fault(&lines).unwrap_or_default();
        assert!(found.contains(expected) && found.contains(help), "{lines}: {found}");
        assert!(!found.contains("hidden"), "{found}");
    }
    // Both are each node's own: what nodes that join get has neither.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slapd.conf");
    std::fs::write(&file, format!("schema core\n{whole}")).unwrap();
    let config = Config::from_slapd_conf(&file).unwrap();
    let shared = config.shared_lines(config.in_engine("dc=a").unwrap());
    assert!(!shared.database.contains("accesslog"), "{}", shared.database);
}
