//! Configuration text -> model or exact error.

mod faults;
mod quick_start;
mod slapd_d;

use super::Config;

/// Writes files into a fresh directory (`$D` in their text stands for it), reads the first one.
fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Config, String>) {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().display().to_string();
    for (file, text) in files {
        std::fs::write(directory.path().join(file), text.replace("$D", &name)).unwrap();
    }
    let read = Config::from_slapd_conf(&directory.path().join(files[0].0));
    (directory, read.map_err(|error| error.to_string().replace(&name, "$D")))
}

const COMMON: &str = r#"# comment
include $D/core.schema
pidfile  $D/slapd.pid
argsfile $D/slapd.args
sizelimit size.soft=10 size.hard=unlimited
loglevel stats sync
database mdb
suffix "dc=example,dc=com"
rootdn "cn=Manager,dc=example,dc=com"
rootpw secret
directory $D/db
index objectClass eq
index cn,sn,uid pres,eq,sub
access to attrs=userPassword
    by self write
    by anonymous auth
access to * by * read
database monitor
"#;

#[test]
fn a_common_file() {
    let (_keep, config) =
        read(&[("slapd.conf", COMMON), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let config = config.unwrap();
    let kinds: Vec<&str> = config.databases.iter().map(|database| database.kind.name()).collect();
    assert_eq!(kinds, ["config", "mdb", "monitor"]);
    let mdb = &config.databases[1];
    assert_eq!(mdb.suffixes[0].text, "dc=example,dc=com");
    assert_eq!(mdb.root_password.as_deref(), Some(&b"secret"[..]));
    assert_eq!(mdb.access.len(), 2);
    let settings = mdb.kind.mdb().expect("mdb");
    assert_eq!(settings.index.len(), 2);
    assert_eq!(config.global.log_level.0, 0x4100);
}

#[test]
fn what_has_no_effect_is_said_once_for_each_line() {
    let text = "include $D/core.schema\ntool-threads 4\ndatabase mdb\nsuffix cn=x\ndirectory $D\nmaxentrysize 1048576\nextra_attrs cn,sn\n\
                checkpoint 512 30\nmonitoring on\nsync_use_subentry off\noverlay ppolicy\nppolicy_forward_updates\n\
                overlay memberof\nmemberof-reverse TRUE\ndatabase mdb\nsuffix cn=y\ndirectory $D/y\nmonitoring off\n\
                sync_use_subentry\n";
    let (_keep, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let config = config.unwrap();
    let notes: Vec<&str> = config
        .notes
        .iter()
        .filter_map(|note| note.text.split_once("` has no effect: "))
        .map(|(keyword, why)| {
            assert!(why.len() > 20, "{keyword}: {why}");
            keyword.trim_start_matches('`')
        })
        .collect();
    let expected = ["tool-threads", "extra_attrs", "memberof-reverse", "monitoring", "sync_use_subentry"];
    assert_eq!(notes, expected);
}

#[test]
fn modules_with_definitions_have_an_effect() {
    for (module, has_effect) in [("unique", false), ("otp", true)] {
        let text = format!("moduleload {module}\n");
        let (_keep, config) = read(&[("slapd.conf", text.as_str())]);
        let config = config.unwrap();
        let is_noted = config.notes.iter().any(|note| note.text.contains("has no effect"));
        assert_eq!(is_noted, !has_effect, "{module}");
        assert_eq!(config.schema.attribute_type("oathSecret").is_some(), has_effect, "{module}");
    }
}

#[test]
fn settings_of_databases_in_the_frontend_are_noted() {
    let (_keep, config) =
        read(&[("slapd.conf", COMMON), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let mut entries = config.unwrap().entries();
    let frontend = entries.iter_mut().find(|entry| entry.dn.starts_with("olcDatabase={-1}")).unwrap();
    // What OpenLDAP writes itself is not noted.
    for (name, value) in [
        ("olcLimits", "{0}* size=1"),
        ("olcRootPW", "secret"),
        ("olcLastMod", "TRUE"),
        ("olcSyncUseSubentry", "FALSE"),
        ("olcMonitoring", "FALSE"),
    ] {
        frontend.add(name, vec![value.as_bytes().to_vec()]);
    }
    let config = Config::from_entries(entries, super::Source::QuickStart).unwrap();
    let why = "` has no effect: it is a setting of a database, not of the frontend";
    let noted: Vec<&str> = config.notes.iter().filter_map(|note| note.text.strip_suffix(why)).collect();
    assert_eq!(noted, ["`rootpw", "`limits"]);
}

/// slapd goes on with the schemes that it knows, and stores those.
#[test]
fn an_unknown_password_scheme_beside_known_ones_is_left_out() {
    let forms = super::fixture::in_all_forms(&["core"], "password-hash {NOSUCH} {SSHA} {CRYPT}");
    let forms = forms.unwrap_or_else(|why| panic!("{why}"));
    assert!(forms[0].notes.iter().any(|note| note.text.contains("{NOSUCH}")), "{:?}", forms[0].notes);
    for config in forms {
        assert_eq!(config.frontend.password_hash, ["{SSHA}", "{CRYPT}"]);
    }
}

/// slapd takes them in silence, and nobody logs in any more.
#[test]
fn a_rootpw_that_no_password_matches_is_a_warning() {
    for (value, why) in [
        ("secret", None),
        ("{SASL}ann@EXAMPLE.COM", None),
        ("{SSHA}jlziJgp6OwJiI593mTsHTcxxdcTQu3aM", None),
        ("{SSHA}garbage", Some("the stored {SSHA} password is malformed")),
        ("{SSAH}jlziJgp6OwJiI593mTsHTcxxdcTQu3aM", Some("the stored password has an unknown scheme")),
    ] {
        let lines = format!("database null\nsuffix cn=x\nrootdn cn=x\nrootpw {value}");
        let forms = super::fixture::in_all_forms(&["core"], &lines);
        for config in forms.unwrap_or_else(|why| panic!("{value}: {why}")) {
            let warnings: Vec<_> = config.notes.iter().filter(|note| note.is_warning).collect();
            let Some(why) = why else {
                assert!(warnings.is_empty(), "{value}: {warnings:?}");
                continue;
            };
            let [warning] = warnings.as_slice() else { panic!("{value}: {warnings:?}") };
            let expected = format!(
                "warning: no password matches this rootpw: {why}; `larix hash-password` prints a value"
            );
            assert_eq!(warning.text, expected);
        }
    }
}

/// slapd.conf may have a number as C writes it, in front of overlays, too; cn=config shows it in decimal digits, as slapd does.
#[test]
fn numbers_as_c_writes_them_are_shown_in_decimal_digits() {
    let text = "include $D/core.schema\nidletimeout 0x10\nconn_max_pending 010\ndatabase mdb\nsuffix cn=x\n\
                directory $D\nmaxentrysize 0x10000\noverlay syncprov\nsyncprov-sessionlog 0x64\noverlay sssvlv\n\
                sssvlv-maxkeys 010\noverlay dds\ndds-max-dynamicObjects 0X1f\n";
    let (_keep, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let entries = config.unwrap().entries();
    let shown = |name: &str| -> Vec<String> {
        let values = entries.iter().flat_map(|entry| entry.values(name).iter());
        values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    };
    for (name, number) in [
        ("olcIdleTimeout", "16"),
        ("olcConnMaxPending", "8"),
        ("olcDbMaxEntrySize", "65536"),
        ("olcSpSessionlog", "100"),
        ("olcSssVlvMaxKeys", "8"),
        ("olcDDSmaxDynamicObjects", "31"),
    ] {
        assert_eq!(shown(name), [number], "{name}");
    }
    for (line, fault) in [
        ("idletimeout 0x\n", "`0x` is not a number"),
        ("idletimeout 08\n", "`08` is not a number"),
        (
            "database mdb\nsuffix cn=x\ndirectory $D\noverlay sssvlv\nsssvlv-maxkeys 0y1\n",
            "`0y1` is not a number",
        ),
    ] {
        let (_keep, config) = read(&[("slapd.conf", line)]);
        let why = config.unwrap_err();
        assert!(why.contains(fault), "{line}: {why}");
    }
}

/// slapd starts with each of them.
#[test]
fn numbers_that_mean_nothing_here_are_taken() {
    let forms = |database: &str| {
        let lines = format!("database mdb\nsuffix cn=x\ndirectory /tmp/larix-test/x\n{database}");
        super::fixture::in_all_forms(&["core"], &lines).unwrap_or_else(|why| panic!("{database}: {why}"))
    };
    for (mode, expected, note) in [
        ("0640", Some(0o640), None),
        ("-rw-r-----", Some(0o640), None),
        ("600", None, Some("`mode` has no effect: 600 is 01130 in octal, which is no file mode")),
    ] {
        for config in forms(&format!("mode {mode}")) {
            assert_eq!(config.databases[1].kind.mdb().expect("mdb").mode, expected, "{mode}");
            let found = config.notes.iter().find(|note| note.text.starts_with("`mode`"));
            assert_eq!(
                found.map(|found| note.is_some_and(|it| found.text.starts_with(it))),
                note.map(|_| true)
            );
        }
    }
    forms("overlay sssvlv\nsssvlv-maxkeys -1\nsssvlv-max -1");
}

#[test]
fn log_levels_are_names_or_numbers_as_c_writes_them() {
    for (words, expected) in [
        ("stats", Some(0x100)),
        ("STATS sync", Some(0x4100)),
        ("256 0x4000", Some(0x4100)),
        ("0400", Some(0x100)),
        ("-1", Some(u32::MAX)),
        ("-0x1", Some(u32::MAX)),
        ("0", Some(0)),
        ("09", None),
        ("stats,sync", None),
    ] {
        let (_keep, config) = read(&[("slapd.conf", &format!("loglevel {words}\n"))]);
        assert_eq!(config.ok().map(|config| config.global.log_level.0), expected, "{words}");
    }
}

#[test]
fn log_levels_without_lines_are_noted() {
    let (_keep, config) = read(&[("slapd.conf", "loglevel stats acl 0x22 sync any none 0\n")]);
    let config = config.unwrap();
    let notes: Vec<&str> = config.notes.iter().map(|note| note.text.as_str()).collect();
    let expected = [
        "`loglevel acl` has no effect: the server writes no such lines: `larix acl explain` says which rule decides",
        "`loglevel 0x22` has no effect: the server writes no such lines",
    ];
    assert_eq!(notes, expected);
}

/// slapd reads no comments either.
#[test]
fn comments_may_be_in_another_encoding() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slapd.conf");
    let read = |text: &[u8]| {
        std::fs::write(&path, text).unwrap();
        Config::from_slapd_conf(&path).map_err(|error| error.to_string())
    };
    let config = read(b"# f\xfcr alle\n  auch f\xfcr Gr\xfc\xdfe\nidletimeout 7\n").unwrap();
    assert_eq!(config.global.idle_timeout, 7);
    for (text, place, shown) in [
        (
            &b"idletimeout 7\nargsfile /tmp/m\xfcller\n"[..],
            ":2:16: not UTF-8 text",
            "argsfile /tmp/m\u{fffd}ller",
        ),
        (b"# f\xfcr alle\nlogfile f\xfcr\n", ":2:10: not UTF-8 text", "iconv -f ISO-8859-1"),
        // No comment, but the end of a name.
        (b"argsfile /tmp/a\\\n#\xfc\n", ":2:2: not UTF-8 text", "iconv -f ISO-8859-1"),
        (b"database mdb\nrootpw m\xfcll\n", ":2:9: not UTF-8 text", "rootpw ****\n"),
        (b"\xff\xfed\0a\0t\0a\0", "slapd.conf` is in UTF-16", "iconv -f UTF-16"),
        (b"d\0a\0t\0a\0", "slapd.conf` is in UTF-16", "iconv -f UTF-16"),
    ] {
        let error = read(text).expect_err(place);
        assert!(error.contains(place) && error.contains(shown), "{error}");
    }
}

/// What opens a pipe that nobody writes to waits for ever.
#[test]
fn a_pipe_is_not_included() {
    let directory = tempfile::tempdir().unwrap();
    let (path, pipe) = (directory.path().join("slapd.conf"), directory.path().join("pipe"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    std::fs::write(&path, format!("include {}\n", pipe.display())).unwrap();
    let error = Config::from_slapd_conf(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be read: it is not a regular file"), "{error}");
}

/// An empty word takes back an earlier line, and the numbers are those of libldap.
#[test]
fn settings_of_tls_without_a_word_and_by_number() {
    let read = |lines: &str| read(&[("slapd.conf", lines)]).1.map(|config| config.global.tls);
    let text = "TLSCACertificateFile /a\nTLSCACertificatePath /b\nTLSCertificateFile /c\nTLSCertificateKeyFile /d\n\
                TLSCRLFile /e\nTLSDHParamFile /f\nTLSCipherSuite HIGH\nTLSECName x\n";
    let taken_back: String =
        text.lines().filter_map(|line| Some(format!("{} \"\"\n", line.split_once(' ')?.0))).collect();
    let tls = read(&format!("{text}{taken_back}")).unwrap();
    let files = [
        &tls.ca_certificate_file,
        &tls.ca_certificate_path,
        &tls.certificate_file,
        &tls.certificate_key_file,
        &tls.crl_file,
        &tls.dh_param_file,
    ];
    assert!(files.iter().all(|file| file.is_none()), "{files:?}");
    assert_eq!((tls.cipher_suite, tls.ec_name), (None, None));
    let tls = read("TLSVerifyClient 4\nTLSCRLCheck 2\n").unwrap();
    assert_eq!((tls.verify_client, tls.crl_check.as_deref()), (super::values::TlsVerify::Try, Some("all")));
    assert_eq!(read("TLSVerifyClient Yes\n").unwrap().verify_client, super::values::TlsVerify::Demand);
    assert!(read("TLSVerifyClient 5\n").is_err());
}

/// What slapd 2.4 could do and nothing here does.
#[test]
fn an_encrypted_database_is_refused() {
    for line in ["cryptfile /etc/key", "cryptkey hidden"] {
        let text = format!("database hdb\n{line}\n");
        let error = read(&[("slapd.conf", text.as_str())]).1.expect_err(line);
        assert!(error.contains("slapd.conf:2:1") && error.contains("is not supported"), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
}

/// The server compares OIDs: a name that stayed a name would restrict nothing.
#[test]
fn restricted_operations_by_name_have_their_oids() {
    let (_keep, config) = read(&[("slapd.conf", "restrict extended=StartTLS Extended=1.2.3\n")]);
    let config = config.unwrap();
    let oids = &config.frontend.shared.restrictions.extended_oids;
    assert_eq!(*oids, [larix_proto::oid::START_TLS, "1.2.3"]);
}

/// Such a line would hold for nobody, or for somebody else.
#[test]
fn limits_say_for_whom() {
    let core = larix_schema::bundled("core").unwrap();
    let read = |subject: &str| {
        let text = format!(
            "include $D/core.schema\ndatabase mdb\nsuffix cn=x\ndirectory $D\nlimits {subject} size=1\n"
        );
        read(&[("slapd.conf", text.as_str()), ("core.schema", core)]).1
    };
    for (subject, expected) in [
        ("groupfoo=cn=g", "`groupfoo=cn=g` names nobody"),
        ("group.exact=cn=g", "`group.exact=cn=g` names nobody"),
        ("group/nosuch=cn=g", "object class `nosuch` is not defined"),
        ("group/groupOfNames/nosuch=cn=g", "attribute type `nosuch` is not defined"),
        ("group/groupOfNames/member/cn=cn=g", "`cn`: a class and an attribute are all"),
        ("dnattr=cn=g", "`dnattr=cn=g` names nobody"),
        ("dn.=cn=g", "no style ``"),
        ("dn.exact.subtree=cn=g", "`subtree` is a second style"),
        ("dn.this.self=cn=g", "no style `self`"),
        ("dn.exact.this=cn=g", "`this` is a second style"),
    ] {
        let error = read(subject).expect_err(subject);
        assert!(error.contains(expected) && error.contains("slapd.conf:5:8"), "{subject}: {error}");
    }
    for again in ["*", "users", "anonymous", "dn.anonymous"] {
        let first = again.trim_start_matches("dn.");
        let error = read(&format!("{first} time=5\nlimits {again}")).expect_err(again);
        assert!(error.contains(&format!("slapd.conf:6:8: `{again}` has limits already")), "{error}");
    }
    for subject in [
        "group=cn=g",
        "group/groupOfUniqueNames/uniqueMember=cn=g",
        "dn=cn=g",
        "dn.this=cn=g",
        "dn.self.subtree=cn=g",
        "cn=g",
    ] {
        let config = read(subject).unwrap_or_else(|error| panic!("{subject}: {error}"));
        assert_eq!(config.databases[1].shared.limits.len(), 1, "{subject}");
    }
}

#[test]
fn server_ids_are_of_one_server_each() {
    let read_ids = |word: &str| {
        let line = format!("serverID {word}\n");
        read(&[("slapd.conf", line.as_str())]).1.map(|config| config.global.server_ids)
    };
    let read = |lines: &str| read(&[("slapd.conf", lines)]).1.map(|config| config.global.server_ids.len());
    for (lines, expected) in [
        ("serverID 1 ldap://one:x\n", "slapd.conf:1:12: `ldap://one:x` is not an LDAP URL: "),
        ("serverID 1\nserverID 2 ldap://two\n", "slapd.conf:2:10: a server ID with a URL after one without"),
        ("serverID 2 ldap://two\nserverID 1\n", "slapd.conf:2:10: a server ID without a URL after one with"),
        ("serverID 1\nserverID 2\n", "slapd.conf:2:10: only one server ID without a URL"),
        ("serverID 1 ldap://one\nserverID 1 ldap://two\n", "server ID 1 is given twice"),
        ("serverID 1 ldap://one\nserverID 1 ldap://one\n", "server ID 1 is given twice"),
        ("serverID 1 ldap://one:3890\nserverID 1 ldap://one:3891\n", "server ID 1 is given twice"),
        ("serverID 1 ldap:///\nserverID 1 ldaps:///\n", "server ID 1 is given twice"),
    ] {
        let error = read(lines).expect_err(lines);
        assert!(error.contains(expected), "{lines}: {error}");
    }
    // Not octal.
    for (word, expected) in
        [("010", Some(10)), ("08", Some(8)), ("1f", Some(31)), ("0x10", Some(16)), ("g", None)]
    {
        let ids = read_ids(word);
        assert_eq!(ids.as_deref().ok().map(|ids| ids[0].number), expected, "{word}: {ids:?}");
    }
    // The URLs of one server.
    for (lines, expected) in [
        ("serverID 1 ldap://one:3890\nserverID 1 ldaps://One:6360\n", 2),
        ("serverID 1 ldap://one\nserverID 2 ldap://two\nserverID 3 ldap://three\n", 3),
    ] {
        assert_eq!(read(lines), Ok(expected), "{lines}");
    }
}

/// The entry is put into the URL when it is sent.
#[test]
fn referrals_name_servers() {
    const SHADOW: &str = "include $D/core.schema\ndatabase mdb\nsuffix cn=x\ndirectory $D\nupdatedn cn=y\n";
    let core = larix_schema::bundled("core").unwrap();
    for (url, fits) in [
        ("ldap://h", true),
        ("ldap://h:389/", true),
        ("ldapi://%2Frun%2Fldapi", true),
        ("ldap://h/cn=x", false),
        ("ldap://h/??sub", false),
        ("ldap://h/???(cn=a)", false),
        ("\"ldap://h/ ldap://i/\"", false),
        ("http://h/", false),
        ("ldap://h:x/", false),
        ("ldap://[::1/", false),
    ] {
        for lines in [format!("referral {url}\n"), format!("{SHADOW}updateref {url}\n")] {
            let read = read(&[("slapd.conf", lines.as_str()), ("core.schema", core)]).1;
            assert_eq!(read.is_ok(), fits, "{lines}: {read:?}");
        }
    }
}

/// As in slapd, which takes the kinds that `default` has already.
#[test]
fn index_default_may_be_repeated_without_kinds() {
    let core = larix_schema::bundled("core").unwrap();
    let lines = "include $D/core.schema\ndatabase mdb\nsuffix cn=x\ndirectory $D\nindex default eq\n";
    for again in ["index default", "index default,cn"] {
        let text = format!("{lines}{again}\n");
        let (_keep, config) = read(&[("slapd.conf", text.as_str()), ("core.schema", core)]);
        config.unwrap_or_else(|error| panic!("{again}: {error}"));
    }
}

#[test]
fn files_of_the_root_dse_are_looked_for() {
    let read = |file: &str| {
        let text = format!("rootDSE $D/{file}\n");
        read(&[("slapd.conf", text.as_str()), ("there.ldif", "dn:\no: x\n")])
    };
    let (_keep, config) = read("there.ldif");
    config.unwrap().check_root_dse_files().unwrap();
    let (_keep, config) = read("gone.ldif");
    let error = config.unwrap().check_root_dse_files().unwrap_err().to_string();
    assert!(error.contains("gone.ldif`: No such file"), "{error}");
}

#[test]
fn what_other_servers_are_asked_with_is_looked_for() {
    let mdb = "database mdb\nsuffix o=x\nrootdn o=x\ndirectory $D\n";
    let remote = "remoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute o\n";
    for (lines, expected) in [
        ("database ldap\nsuffix o=x\nuri ldap://a\ntls start tls_reqcert=maybe\n".to_owned(), Some("maybe")),
        ("database ldap\nsuffix o=x\nuri ldap://a\ntls start tls_cacert=$D/gone\n".to_owned(), Some("/gone")),
        // Nobody asks for it without TLS.
        ("database ldap\nsuffix o=x\nuri ldap://a\ntls none tls_cacert=$D/gone\n".to_owned(), None),
        (
            "database meta\nsuffix o=x\nuri ldap://a/o=x\ntls start tls_cacert=$D/gone\n".to_owned(),
            Some("/gone"),
        ),
        (
            format!("overlay chain\nchain-uri ldap://a\nchain-tls start tls_cacert=$D/gone\n{mdb}"),
            Some("/gone"),
        ),
        // Of servers that are known once a referral names them.
        (format!("overlay chain\nchain-tls start tls_cacert=$D/gone\n{mdb}"), None),
        (format!("{mdb}overlay pbind\nuri ldap://a\ntls start tls_cacert=$D/gone\n"), Some("/gone")),
        (
            format!("{mdb}overlay remoteauth\n{remote}remoteauth_default_realm file://$D/hosts\n"),
            Some("/hosts"),
        ),
        (format!("{mdb}overlay remoteauth\n{remote}remoteauth_default_realm a\n"), None),
    ] {
        let text = format!("schema core\n{lines}");
        let (_keep, config) = read(&[("slapd.conf", text.as_str())]);
        let found = config.unwrap_or_else(|error| panic!("{lines}: {error}")).unusable_targets();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let is_expected = match expected {
            Some(text) => found.len() == 1 && found[0].contains(text),
            None => found.is_empty(),
        };
        assert!(is_expected, "{lines}: {found:?}");
    }
}

/// As after the next start: entries that have them are asked for before.
#[test]
fn definitions_leave_with_what_brings_them() {
    let core = larix_schema::bundled("core").unwrap();
    for (module, stays) in [("", false), ("moduleload otp.la\n", true)] {
        let text =
            format!("{module}include $D/core.schema\ndatabase mdb\nsuffix cn=x\ndirectory $D\noverlay otp\n");
        let (_keep, config) = read(&[("slapd.conf", text.as_str()), ("core.schema", core)]);
        let config = Config::from_entries(config.unwrap().entries(), super::Source::QuickStart).unwrap();
        let class = config.schema.object_class_id("oathTOTPUser").expect("the overlay's class");
        let mut entries = config.shared_entries();
        let with = config.followed_by(entries.clone()).unwrap();
        assert_eq!(with.schema.object_class_id("oathTOTPUser"), Some(class));
        entries.retain(|entry| !entry.dn.starts_with("olcOverlay="));
        let without = config.followed_by(entries).unwrap();
        assert_eq!(without.schema.object_class_id("oathTOTPUser").is_some(), stays, "{module}");
        assert_eq!(without.schema.broken_since(&config.schema).1.contains(&class), !stays, "{module}");
    }
}

/// `slapadd -n0` reads the entries in their order.
#[test]
fn a_consumer_may_come_before_its_schema() {
    for what in ["attrs=mail,@person exattrs=uid", "type=dirsync"] {
        let text = format!(
            "schema core\nschema cosine\nschema inetorgperson\nschema nis\nschema active-directory\n\
             database mdb\nsuffix cn=x\ndirectory $D\nsyncrepl rid=1 provider=ldap://a searchbase=cn=x {what}\n"
        );
        let (_keep, config) = read(&[("slapd.conf", &text)]);
        let mut entries = config.unwrap().entries();
        entries.retain(|entry| !entry.dn.ends_with(",cn=schema,cn=config"));
        let config = Config::from_entries(entries, super::Source::QuickStart);
        assert_eq!(config.map(|config| config.databases[1].sync_replication.len()).ok(), Some(1), "{what}");
    }
}

/// An overlay's own entry says that it is not in force. Its database is.
#[test]
fn an_overlay_may_be_disabled() {
    let text = "include $D/core.schema\ndatabase mdb\nsuffix cn=x\ndirectory $D\noverlay unique\nunique_uri ldap:///?cn?sub\n";
    let (_keep, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let config = config.unwrap();
    let with = |value: &str| {
        let mut entries = config.entries();
        let overlay = entries.iter_mut().find(|entry| entry.dn.starts_with("olcOverlay=")).unwrap();
        let values = vec![value.as_bytes().to_vec()];
        overlay.attributes.push(super::entry::ConfigAttribute::new("olcDisabled", values));
        Config::from_entries(entries, super::Source::QuickStart).map_err(|error| error.to_string())
    };
    for (value, disabled) in [("TRUE", true), ("FALSE", false)] {
        let config = with(value).unwrap();
        let database = config.databases.iter().find(|database| database.kind.name() == "mdb").unwrap();
        assert!(!database.disabled, "{value}");
        let in_force = config.overlays_of(database).count();
        assert_eq!((database.overlays[0].disabled, in_force), (disabled, usize::from(!disabled)), "{value}");
        let exported = config.to_slapd_conf();
        assert_eq!(exported.text.contains("\noverlay unique\n"), !disabled, "{}", exported.text);
        assert!(!exported.text.contains("\ndisabled"), "{}", exported.text);
    }
    assert!(with("maybe").unwrap_err().contains("neither TRUE nor FALSE"));
}

/// Servers have stored such entries: they start with them all the same.
#[test]
fn an_overlay_below_an_overlay_is_read_and_has_no_effect() {
    let text = "include $D/core.schema\ndatabase mdb\nsuffix cn=x\ndirectory $D\noverlay seqmod\n";
    let (_keep, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let mut entries = config.unwrap().entries();
    let above = entries.iter().find(|entry| entry.dn.starts_with("olcOverlay=")).unwrap().dn.clone();
    let mut below =
        super::entry::ConfigEntry::new(format!("olcOverlay={{0}}deref,{above}"), &["olcOverlayConfig"]);
    below.text("olcOverlay", "{0}deref");
    entries.push(below);
    let config = Config::from_entries(entries, super::Source::QuickStart).unwrap();
    assert!(config.notes.iter().any(|note| note.text.starts_with("has no effect")));
    let names =
        config.databases.iter().flat_map(|database| &database.overlays).map(|overlay| overlay.name.as_str());
    assert!(names.eq(["seqmod"]));
}

/// slapd reads these as signed numbers, and means nothing below 0.
#[test]
fn numbers_below_0() {
    let text = "include $D/core.schema\nconcurrency -1\nmaxderefdepth -1\ndatabase mdb\nsuffix cn=x\ndirectory $D\n\
                add_content_acl\n\
                maxderefdepth -2\nsearchstack -1\noverlay lastbind\nlastbind-precision -1\n";
    let (_keep, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let config = config.unwrap();
    assert_eq!(config.databases[1].shared.max_deref_depth, 0);
    assert_eq!(config.databases[1].settings.get("olcMaxDerefDepth").to_vec(), [b"-2"]);
    assert_eq!(config.databases[1].last_bind_precision, 0);
    // A switch that says nothing is on.
    assert!(config.databases[1].shared.add_content_acl);
}

/// slapd does not start with a larger one, and no client can ask for it.
#[test]
fn limits_end_where_slapd_s_do() {
    let read = |line: &str| read(&[("slapd.conf", line)]).1.map(|_| ());
    for line in ["sizelimit 2147483647\n", "timelimit time.soft=2147483647 time.hard=unlimited\n"] {
        assert_eq!(read(line), Ok(()), "{line}");
    }
    for line in ["sizelimit 2147483648\n", "sizelimit size.hard=4294967296\n", "timelimit 2147483648\n"] {
        let error = read(line).expect_err(line);
        assert!(error.contains("is more than 2147483647; say unlimited"), "{error}");
    }
}

/// Rules that rewrite identities: from slapd.conf to entries, in OpenLDAP's form, and back.
#[test]
fn rewriting_rules_and_back() {
    let text = "authid-rewriteEngine on\nauthid-rewriteRule \"^uid=(a b),.*\" uid=x$1 :\n";
    let config = read(&[("slapd.conf", text)]).1.unwrap();
    let entries = config.entries();
    let values: Vec<String> = entries[0]
        .values("olcAuthIDRewrite")
        .iter()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .collect();
    let expected =
        ["{0}authid-rewriteEngine \"on\"", "{1}authid-rewriteRule \"^uid=(a b),.*\" \"uid=x$1\" \":\""];
    assert_eq!(values, expected);
    let again =
        Config::from_entries(entries, super::Source::QuickStart).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        again.global.authid_rewrite.apply("uid=a b,cn=auth", false, &|_, _| None).as_deref(),
        Some("uid=xa b")
    );
    let mut without = config.entries();
    without[0].attributes.retain(|attribute| attribute.description != "olcAuthIDRewrite");
    without[0].text("olcAuthIDRewrite", "{0}rewriteEngine on");
    let taken = Config::from_entries(without, super::Source::QuickStart);
    let exported = taken.unwrap_or_else(|error| panic!("{error}")).to_slapd_conf().text;
    assert!(exported.contains("\nauthid-rewriteEngine on\n"), "{exported}");
    read(&[("slapd.conf", &exported)]).1.unwrap();
}

/// `OPENLDAP_CONF`: a directory of slapd.conf files; `OPENLDAP_CONFDIR`: a slapd.d. Not part of the repository.
#[test]
#[ignore = "reads what OPENLDAP_CONF and OPENLDAP_CONFDIR name"]
fn foreign_files() {
    let is_named = |name| std::env::var_os(name).is_some();
    assert!(is_named("OPENLDAP_CONF") || is_named("OPENLDAP_CONFDIR"), "neither is set");
    if let Ok(directory) = std::env::var("OPENLDAP_CONF") {
        let mut paths: Vec<_> =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let mut failed = 0;
        for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        {
            match Config::from_slapd_conf(path) {
                Ok(config) => {
                    println!(
                        "{}: {} databases, {} refusals",
                        path.display(),
                        config.databases.len(),
                        config.refusals().len()
                    );
                    let again = Config::from_entries(config.entries(), config.source.clone());
                    if let Err(error) = again {
                        println!("AGAIN {}: {error}", path.display());
                        failed += 1;
                    }
                }
                Err(error) => {
                    println!("FAIL {error}");
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, 0);
    }
    if let Ok(directory) = std::env::var("OPENLDAP_CONFDIR") {
        let config =
            Config::from_slapd_d(std::path::Path::new(&directory)).unwrap_or_else(|error| panic!("{error}"));
        config.notes.iter().for_each(|note| println!("{note}"));
    }
}

/// What access rules say without effect, and what they leave open, is noted with its place.
#[test]
fn access_rules_are_looked_at() {
    const CLOSED: &str = "access to attrs=userPassword by self =xw by anonymous auth by * none";
    let check = |rules: &str, expected: &[&str]| {
        let text = format!(
            "include $D/core.schema\nreverse-lookup off\ndatabase mdb\nsuffix dc=a\ndirectory /nowhere\n{rules}\n"
        );
        let core = larix_schema::bundled("core").unwrap();
        let (_folder, config) = read(&[("slapd.conf", &text), ("core.schema", core)]);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert!(config.refusals().is_empty(), "{rules}: {:?}", config.refusals());
        let texts: Vec<&str> = config.notes.iter().map(|note| note.text.as_str()).collect();
        for wanted in expected {
            assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted} of {rules}: {texts:?}");
        }
        let about = |text: &&&str| text.contains("access rule") || text.starts_with("warning");
        assert_eq!(texts.iter().filter(about).count(), expected.len(), "{rules}: {texts:?}");
    };
    check("", &["warning: everybody, also without a bind, may read userPassword"]);
    check("access to * by users read", &["warning: every user may read userPassword"]);
    check(&format!("{CLOSED}\naccess to * by * read"), &[]);
    check(
        &format!("access to * by self write by * none\n{CLOSED}"),
        &["this access rule never applies: the one at"],
    );
    check(
        &format!("{CLOSED}\naccess to * by * read by users write"),
        &["`by users write` of this access rule never applies: `by * read` is for the same requesters"],
    );
    check(
        &format!("{CLOSED}\naccess to dn.subtree=dc=b by * read\naccess to * by set=\"this/\" read"),
        &["no entry of this database is there", "its set is not understood"],
    );
    check(
        &format!("{CLOSED}\naccess to attrs=telephoneNumber val.regex=\"^.49 30\" by * none"),
        &["this access rule never applies: its pattern has spaces or hyphens that no normal form"],
    );
    check(&format!("{CLOSED}\naccess to * by domain=b.c read"), &["add `reverse-lookup on`"]);
    check(&format!("{CLOSED}\naccess to * by group=cn=g,dc=b read by aci read"), &[]);
}
