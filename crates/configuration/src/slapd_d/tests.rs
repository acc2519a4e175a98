use larix_engine::controls::RequestControls;

use super::super::change::fixture::{TestSources, entries, operations};
use super::*;

#[test]
fn a_checksum_fits_the_lines_behind_it() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert!(checksum_fits(b"# x\n# CRC32 cbf43926\n123456789"));
    assert!(!checksum_fits(b"# x\n# CRC32 cbf43927\n123456789"));
    assert!(checksum_fits(b"dn: cn=config\n"));
}

#[test]
fn what_is_not_found_or_denied_has_help() {
    let error = read(Path::new("no-such.d")).unwrap_err().to_string();
    let expected = "cannot read `no-such.d`: No such file or directory (os error 2)\n    \
                        = help: a relative name starts at the working directory";
    assert_eq!(error, expected);
    let directory = tempfile::tempdir().unwrap();
    let owner = std::fs::metadata(directory.path()).unwrap().uid();
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let error = io_error("read", &directory.path().join("a/b"), &denied).to_string();
    let help = format!("`{}` belongs to the user {owner}: do it as that one", directory.path().display());
    assert!(error.contains(&help), "{error}");
    let error = read(&directory.path().join("none")).unwrap_err().to_string();
    assert!(!error.contains("= help"), "{error}");
}

const FILES: [(&str, &str); 3] = [
    ("cn=config.ldif", "dn: cn=config\nobjectClass: olcGlobal\ncn: config\n"),
    (
        "cn=config/olcDatabase={1}mdb.ldif",
        "dn: olcDatabase={1}mdb\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\nolcDatabase: {1}mdb\n\
             olcSuffix: cn=one\nolcDbDirectory: /tmp/larix-test/one\n",
    ),
    (
        "cn=config/olcDatabase={1}mdb/olcOverlay={0}memberof.ldif",
        "dn: olcOverlay={0}memberof\nobjectClass: olcOverlayConfig\nobjectClass: olcMemberOfConfig\n\
             olcOverlay: {0}memberof\n",
    ),
];

/// A slapd.d of these files, with lines more in each; without those that get none.
fn directory(more: [Option<&str>; 3]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for ((file, text), more) in FILES.iter().zip(more) {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some(more) = more {
            std::fs::write(path, format!("{text}{more}")).unwrap();
        }
    }
    directory
}

#[test]
fn faults_are_shown_together_with_their_files() {
    let wrong =
        [Some("olcThreads: many\nolcNoSuch: x\n"), Some("olcReadOnly: maybe\n"), Some("olcMemberOfFoo: x\n")];
    let directory = directory(wrong);
    let error = read(directory.path()).unwrap_err().to_string();
    let root = directory.path().display().to_string();
    let files: Vec<&str> =
        error.lines().filter_map(|line| line.strip_prefix("    = in ")?.strip_prefix(&root)).collect();
    let [global, database, overlay] = FILES.map(|(file, _)| format!("/{file}"));
    assert_eq!(files, [&global, &global, &database, &overlay], "{error}");
    assert!(error.contains("cn=config: olcNoSuch: no such attribute is known"), "{error}");
}

/// slapd takes none of it.
#[test]
fn what_an_earlier_version_took_is_read() {
    let global = "olcSaslRealm: a b\nolcArgsFile: \"/a b\"\nolcSizeLimit: 4294967295\n";
    let rules = "olcAccess: {0}to attrs=cn by * read\nolcAccess: {1}access  to * by * none\n\
                     olcLimits: {0}dn.exact=\"cn=3000000000,cn=one\" time.soft=5  size.hard=3000000000\n\
                     olcTimeLimit: 2147483647\n";
    let directory = directory([Some(global), Some(rules), Some("")]);
    let mut config = read(directory.path()).unwrap();
    assert_eq!(config.global.sasl.realm.as_deref(), Some("a b"));
    let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
    for expected in [
        "olcSaslRealm: has blanks and no quotes",
        "olcAccess: begins with `access`",
        "olcSizeLimit: has a limit above",
        "olcLimits: has a limit above",
    ] {
        assert!(notes.iter().any(|note| note.contains(expected)), "{notes:?}");
    }
    for right in ["olcArgsFile: has", "olcTimeLimit: has"] {
        assert!(!notes.iter().any(|note| note.contains(right)), "{notes:?}");
    }
    let entries = config.entries();
    let shown = |attribute: &str| -> Vec<String> {
        let values = entries.iter().flat_map(|entry| entry.values(attribute).to_vec());
        values.map(|value| String::from_utf8(value).unwrap()).collect()
    };
    assert_eq!(shown("olcSaslRealm"), ["\"a b\""]);
    assert_eq!(shown("olcAccess"), ["{0}to attrs=cn by * read", "{1}to * by * none"]);
    assert_eq!(shown("olcSizeLimit"), ["2147483647"]);
    let limits = "{0}dn.exact=\"cn=3000000000,cn=one\" time.soft=5  size.hard=2147483647";
    assert_eq!(shown("olcLimits"), [limits]);
    assert!(!read_again(&mut config, directory.path()).unwrap(), "the files are those that were read");
}

#[test]
fn a_file_is_exported_without_a_suffix_that_it_may_not_have() {
    let root = "olcSuffix: cn=a,cn=config\nolcRootDN: cn=root,cn=a,cn=config\nolcRootPW: secret\n";
    let directory = directory([Some(""), Some(root), None]);
    let exported = read(directory.path()).unwrap().to_slapd_conf();
    let left_out = [
        "suffix cn=a,cn=config, which nothing reaches",
        "rootpw, whose rootdn is below no suffix that stands here",
    ];
    assert_eq!(exported.without_form, left_out);
    let file = directory.path().join("exported.conf");
    std::fs::write(&file, &exported.text).unwrap();
    let again = Config::from_slapd_conf(&file).unwrap_or_else(|error| panic!("{error}\n{}", exported.text));
    let suffixes = again.databases.iter().flat_map(|database| &database.suffixes);
    assert_eq!(suffixes.map(ToString::to_string).collect::<Vec<_>>(), ["cn=one"]);
}

#[test]
fn a_limit_that_the_frontend_sets_too_is_warned_of() {
    let warnings = |own: &str| -> Vec<String> {
        let directory = directory([Some(own), None, None]);
        let frontend = "dn: olcDatabase={-1}frontend\nobjectClass: olcDatabaseConfig\n\
                            objectClass: olcFrontendConfig\nolcDatabase: {-1}frontend\nolcSizeLimit: 3\nolcTimeLimit: 5\n";
        std::fs::create_dir_all(directory.path().join("cn=config")).unwrap();
        std::fs::write(directory.path().join("cn=config/olcDatabase={-1}frontend.ldif"), frontend).unwrap();
        let config = read(directory.path()).unwrap();
        config.notes.iter().filter(|note| note.is_warning).map(ToString::to_string).collect()
    };
    assert_eq!(warnings(""), [""; 0]);
    assert_eq!(warnings("olcSizeLimit: 3\n"), [""; 0]);
    let expected = "cn=config: olcSizeLimit: warning: olcDatabase={-1}frontend,cn=config sets it, too, and that counts: \
                        change it there";
    assert_eq!(warnings("olcSizeLimit: 6\nolcTimeLimit: 5\n"), [expected]);
}

/// As the usual instructions for a new server have it: one after the other.
#[test]
fn a_suffix_and_a_rootdn_change_in_two_steps() {
    let root = "olcRootDN: cn=r,cn=one\nolcRootPW: secret\nstructuralObjectClass: olcMdbConfig\n";
    let directory = directory([Some(""), Some(root), None]);
    let config = read(directory.path()).unwrap();
    let warnings = |config: &Config| -> Vec<String> {
        config.notes.iter().filter(|note| note.is_warning).map(ToString::to_string).collect()
    };
    let changed = |config: &Config, change: &str| {
        let ldif = format!("dn: olcDatabase={{1}}mdb,cn=config\nchangetype: modify\n{change}\n");
        TestSources::new().change(config, operations(&ldif).remove(0), RequestControls::default())
    };
    let warning = "olcDatabase={1}mdb,cn=config: olcDatabase: warning: rootpw is of no use: the rootdn \"cn=r,cn=one\" is \
                       not below a suffix of this database (\"cn=two\"); give it another olcRootDN";
    let between = changed(&config, "replace: olcSuffix\nolcSuffix: cn=two").unwrap().config;
    assert_eq!(warnings(&between), [warning]);
    // A server starts with it, and a file has what it may have.
    let kept = Config::from_kept_entries(between.entries(), Source::QuickStart).unwrap();
    assert_eq!(warnings(&kept), [warning]);
    // What was written between the two steps can be loaded.
    let loaded = Config::from_entries(between.entries(), Source::QuickStart).unwrap();
    assert_eq!(warnings(&loaded), [warning]);
    assert_eq!(
        kept.to_slapd_conf().without_form,
        ["rootpw, whose rootdn is below no suffix that stands here"]
    );
    let after = changed(&between, "replace: olcRootDN\nolcRootDN: cn=r,cn=two").unwrap().config;
    assert_eq!(warnings(&after), [""; 0]);
    // A password that could never be used is as wrong as ever.
    let refused = changed(&between, "replace: olcRootPW\nolcRootPW: other").unwrap_err();
    assert!(refused.0.diagnostic.contains("rootpw is of no use"), "{refused}");
}

/// The server starts, and the suffix can be changed while it serves; none comes in that way.
#[test]
fn a_suffix_of_another_kind_that_an_earlier_version_took_is_read() {
    let directory = directory([
        Some(""),
        Some("olcSuffix: cn=a,cn=config\nstructuralObjectClass: olcMdbConfig\n"),
        Some(""),
    ]);
    let config = read(directory.path()).unwrap();
    let warnings = |config: &Config| -> Vec<String> {
        config.notes.iter().filter(|note| note.is_warning).map(ToString::to_string).collect()
    };
    let warning = "olcDatabase={1}mdb,cn=config: olcDatabase: warning: suffix \"cn=a,cn=config\" lies within \
                       \"cn=config\", which the config database serves: nothing reaches the entries there; choose another olcSuffix";
    assert_eq!(warnings(&config), [warning]);
    let changed = |config: &Config, change: &str| {
        let ldif = format!("dn: olcDatabase={{1}}mdb,cn=config\nchangetype: modify\n{change}\n");
        TestSources::new().change(config, operations(&ldif).remove(0), RequestControls::default())
    };
    let locked = changed(&config, "replace: olcReadOnly\nolcReadOnly: TRUE").unwrap().config;
    assert_eq!(warnings(&locked), [warning]);
    let refused = changed(&locked, "add: olcSuffix\nolcSuffix: cn=b,cn=config").unwrap_err();
    assert!(refused.0.diagnostic.contains("suffix \"cn=b,cn=config\" lies within"), "{refused}");
    // Clients that read it from the server, and tools that add to the files, take it as the server does.
    let shown = Config::from_kept_entries(config.entries(), Source::QuickStart).unwrap();
    assert_eq!(warnings(&shown), [warning]);
    let add = |suffix: &str| {
        let null = format!(
            "dn: olcDatabase=null,cn=config\nobjectClass: olcDatabaseConfig\nobjectClass: olcNullConfig\n\
                 olcDatabase: null\nolcSuffix: {suffix}\n"
        );
        merge_entries(directory.path(), entries(&null), &TestSources::new().stamp())
    };
    assert_eq!(warnings(&add("cn=b").unwrap().0), [warning]);
    let refused = add("cn=b,cn=config").unwrap_err().to_string();
    assert!(refused.contains("suffix \"cn=b,cn=config\" lies within"), "{refused}");
    let refused = add("cn=a,cn=config").unwrap_err().to_string();
    assert!(refused.contains("suffix \"cn=a,cn=config\" is already served by the database at"), "{refused}");
    let mended = changed(&locked, "delete: olcSuffix\nolcSuffix: cn=a,cn=config").unwrap().config;
    assert_eq!(warnings(&mended), [""; 0]);
    let refused = changed(&mended, "add: olcSuffix\nolcSuffix: cn=a,cn=config").unwrap_err();
    assert!(refused.0.diagnostic.contains("suffix \"cn=a,cn=config\" lies within"), "{refused}");
}

#[test]
fn what_lacks_a_wrong_definition_is_not_shown() {
    let wrong = [Some("olcAttributeTypes: ( 1.2.3 NAME\n"), Some("olcDbIndex: nosuch eq\n"), Some("")];
    let error = read(directory(wrong).path()).unwrap_err();
    assert!(error.others.is_empty(), "{error}");
    assert!(error.to_string().contains("olcAttributeTypes"), "{error}");
}

#[test]
fn a_line_that_is_no_ldif_is_named() {
    let directory = directory([Some("olcThreads: 4\nolcLogLevel stats\n"), Some(""), Some("")]);
    let error = read(directory.path()).unwrap_err().to_string();
    assert!(error.contains("/cn=config.ldif:5: "), "{error}");
}

#[test]
fn entries_without_their_superior_are_noted() {
    let directory = directory([Some(""), None, Some("")]);
    let (entries, notes) = read_entries(directory.path()).unwrap();
    assert_eq!(entries.len(), 1);
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let missing = directory.path().join("cn=config/olcDatabase={1}mdb.ldif");
    let expected = format!("{}:1: warning: there is no such file: ", missing.display());
    assert!(matches!(notes.as_slice(), [note] if note.starts_with(&expected)), "{notes:?}");
    assert!(read_entries(self::directory([Some(""); 3]).path()).unwrap().1.is_empty());
}
