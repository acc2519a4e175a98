//! One change after another on the same start: what comes out, or why it is refused.

use larix_engine::controls::{ControlValues, RequestControls};

use super::super::model::{Config, Source};
use super::fixture::{TestSources, entries, operations, start};

/// The DNs of the databases and overlays with what follows them, and the values of `shown` in the changed entry.
fn outcome(ldif: &str, shown: &[&str], controls: &RequestControls) -> String {
    let sources = TestSources::new();
    let mut config = start(Source::QuickStart);
    let mut last = String::new();
    for operation in operations(ldif) {
        match sources.change(&config, operation, controls.clone()) {
            Ok(changed) => {
                last = changed.dn.clone();
                if let Some(after) = &changed.after {
                    for name in shown {
                        let values = after.values(name);
                        let text: Vec<_> = values.iter().map(|v| String::from_utf8_lossy(v)).collect();
                        last.push_str(&format!(" {name}={}", text.join("|")));
                    }
                }
                config = changed.config;
            }
            Err(refusal) => {
                let result = refusal.0;
                let matched = if result.matched_dn.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", result.matched_dn)
                };
                return format!("{}{matched} {}", result.code.0, result.diagnostic).trim_end().to_owned();
            }
        }
    }
    last
}

fn check(cases: &[(&str, &[&str], &str)]) {
    for (ldif, shown, expected) in cases {
        assert_eq!(outcome(ldif, shown, &RequestControls::default()), *expected, "{ldif}");
    }
}

fn names(config: &Config) -> Vec<String> {
    config.entries().into_iter().map(|entry| entry.dn).filter(|dn| dn.contains("olc")).collect()
}

const NEW: &str = "objectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\nolcSuffix: cn=new\n\
                   olcDbDirectory: /tmp/larix-test/new\n";

/// With a number and without one it is the same value, also within one request.
#[test]
fn a_value_comes_once() {
    let database = "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\n";
    let rule = "to attrs=cn by * read";
    let twice =
        |change: &str| format!("{database}{change}: olcAccess\nolcAccess: {{3}}{rule}\nolcAccess: {rule}\n");
    for change in ["add", "replace"] {
        let expected = format!("20 modify/{change}: olcAccess: value #1 already exists");
        check(&[(&twice(change), &[], &expected)]);
    }
}

/// The frontend comes behind cn=config, and a slapd writes olcReadOnly into both.
#[test]
fn what_the_frontend_sets_otherwise_is_warned_of() {
    let sources = TestSources::new();
    let mut config = start(Source::QuickStart);
    let set = |dn: &str, value: &str| {
        format!("dn: {dn}\nchangetype: modify\nreplace: olcReadOnly\nolcReadOnly: {value}\n")
    };
    let frontend = "olcDatabase={-1}frontend,cn=config";
    let warning = "cn=config: olcReadOnly: warning: has no effect: olcDatabase={-1}frontend,cn=config says FALSE; \
                   change it there";
    for (ldif, expected) in
        [(set(frontend, "FALSE"), 0), (set("cn=config", "TRUE"), 1), (set(frontend, "TRUE"), 0)]
    {
        let operation = operations(&ldif).remove(0);
        config = sources.change(&config, operation, RequestControls::default()).unwrap().config;
        let notes = config.notes.iter().filter(|note| note.is_warning).map(ToString::to_string);
        let warnings: Vec<String> = notes.filter(|note| note.contains("olcReadOnly")).collect();
        assert_eq!(warnings, vec![warning; expected], "{ldif}");
    }
}

/// They are served as mdb, and keep their names and their settings.
#[test]
fn databases_of_slapd_2_4_can_be_changed() {
    for (kind, class) in [("hdb", "olcHdbConfig"), ("bdb", "olcBdbConfig")] {
        let dn = format!("olcDatabase={{1}}{kind},cn=config");
        let start = format!(
            "dn: cn=config\nobjectClass: olcGlobal\ncn: config\n\n\
             dn: {dn}\nobjectClass: olcDatabaseConfig\nobjectClass: {class}\nolcDatabase: {{1}}{kind}\nolcSuffix: cn=old\n\
             olcDbDirectory: /tmp/larix-test/old\nolcDbCacheSize: 1000\nstructuralObjectClass: {class}\n"
        );
        let config = Config::from_entries(entries(&start), Source::QuickStart).unwrap();
        let change = format!("dn: {dn}\nchangetype: modify\nadd: olcReadOnly\nolcReadOnly: TRUE\n");
        let operation = operations(&change).remove(0);
        let changed = TestSources::new().change(&config, operation, RequestControls::default());
        let changed = changed.unwrap_or_else(|refusal| panic!("{kind}: {:?}", refusal.0));
        let after = changed.after.expect(kind);
        for (name, value) in
            [("olcReadOnly", "TRUE"), ("olcDbCacheSize", "1000"), ("objectClass", "olcDatabaseConfig")]
        {
            assert_eq!(
                after.values(name).first().map(Vec::as_slice),
                Some(value.as_bytes()),
                "{kind}: {name}"
            );
        }
    }
}

/// They have no effect, and an entry may have them until somebody deletes them.
#[test]
fn settings_of_slapd_2_4_can_be_deleted() {
    for (kind, class) in [("hdb", "olcHdbConfig"), ("mdb", "olcMdbConfig")] {
        let dn = format!("olcDatabase={{1}}{kind},cn=config");
        let start = format!(
            "dn: cn=config\nobjectClass: olcGlobal\ncn: config\n\n\
             dn: {dn}\nobjectClass: olcDatabaseConfig\nobjectClass: {class}\nolcDatabase: {{1}}{kind}\nolcSuffix: cn=old\n\
             olcDbDirectory: /tmp/larix-test/old\nolcDbCacheSize: 1000\nolcDbIDLcacheSize: 3000\n\
             olcDbChecksum: FALSE\nolcDbLinearIndex: FALSE\nolcDbConfig: {{0}}set_cachesize 0 1 0\n\
             olcDbConfig: {{1}}set_lk_max_objects 1500\nstructuralObjectClass: {class}\n"
        );
        let mut config = Config::from_entries(entries(&start), Source::QuickStart).unwrap();
        let cases: &[(&str, &str, &[&str])] = &[
            ("delete: olcDbCacheSize\n", "olcDbCacheSize", &[]),
            ("delete: olcDbIDLcacheSize\nolcDbIDLcacheSize: 3000\n", "olcDbIDLcacheSize", &[]),
            ("replace: olcDbChecksum\nolcDbChecksum: TRUE\n", "olcDbChecksum", &["TRUE"]),
            ("replace: olcDbLinearIndex\n", "olcDbLinearIndex", &[]),
            ("delete: olcDbConfig\nolcDbConfig: {0}\n", "olcDbConfig", &["{0}set_lk_max_objects 1500"]),
        ];
        for (change, name, left) in cases {
            let operation = operations(&format!("dn: {dn}\nchangetype: modify\n{change}")).remove(0);
            let changed = TestSources::new().change(&config, operation, RequestControls::default());
            let changed = changed.unwrap_or_else(|refusal| panic!("{kind}, {change}: {:?}", refusal.0));
            let after = changed.after.expect(kind);
            let values: Vec<_> = after.values(name).iter().map(|v| String::from_utf8_lossy(v)).collect();
            assert_eq!(values, *left, "{kind}: {change}");
            config = changed.config;
        }
    }
}

#[test]
fn new_entries_get_their_number() {
    let database = |rdn: &str| {
        let value = rdn.strip_prefix("olcDatabase=").unwrap();
        format!("dn: {rdn},cn=config\nchangetype: add\n{NEW}olcDatabase: {value}\n")
    };
    let cases: &[(&str, &str)] = &[
        ("olcDatabase=mdb", "olcDatabase={3}mdb,cn=config olcDatabase={3}mdb"),
        ("olcDatabase={3}mdb", "olcDatabase={3}mdb,cn=config olcDatabase={3}mdb"),
        ("olcDatabase={9}mdb", "olcDatabase={3}mdb,cn=config olcDatabase={3}mdb"),
        ("olcDatabase={1}mdb", "olcDatabase={1}mdb,cn=config olcDatabase={1}mdb"),
        ("olcDatabase={0}mdb", "65 {0} is the config database: the first other one is {1}"),
        ("olcDatabase={-2}mdb", "64 the number must not be negative"),
        ("olcDatabase={x}mdb", "64 `{x}mdb`: there must be a number between the braces"),
        ("olcDatabase={}mdb", "64 `{}mdb`: there must be a number between the braces"),
    ];
    for (rdn, expected) in cases {
        let controls = RequestControls::default();
        assert_eq!(outcome(&database(rdn), &["olcDatabase"], &controls), *expected, "{rdn}");
    }
}

/// As slapd takes them: bootstraps write the number into the DN or into the value, or into neither.
#[test]
fn names_and_values_may_differ_in_their_number() {
    let conflict =
        "64 value of single-valued naming attribute 'olcDatabase' conflicts with value present in entry";
    let cases: &[(&str, &str, &str)] = &[
        ("{3}mdb", "mdb", "olcDatabase={3}mdb,cn=config olcDatabase={3}mdb"),
        ("{1}mdb", "MDB", "olcDatabase={1}mdb,cn=config olcDatabase={1}mdb"),
        ("mdb", "{3}mdb", "olcDatabase={3}mdb,cn=config olcDatabase={3}mdb"),
        ("{3}mdb", "{4}mdb", conflict),
        ("{3}mdb", "ldif", conflict),
    ];
    for (rdn, value, expected) in cases {
        let ldif = format!("dn: olcDatabase={rdn},cn=config\nchangetype: add\n{NEW}olcDatabase: {value}\n");
        let controls = RequestControls::default();
        assert_eq!(outcome(&ldif, &["olcDatabase"], &controls), *expected, "{rdn} {value}");
    }
}

#[test]
fn an_inserted_database_moves_those_behind_it_with_all_below() {
    let sources = TestSources::new();
    let config = start(Source::QuickStart);
    let ldif = format!("dn: olcDatabase={{1}}mdb,cn=config\nchangetype: add\n{NEW}olcDatabase: {{1}}mdb\n");
    let changed = sources.change(&config, operations(&ldif).remove(0), RequestControls::default()).unwrap();
    assert_eq!(
        names(&changed.config),
        [
            "olcDatabase={-1}frontend,cn=config",
            "olcDatabase={0}config,cn=config",
            "olcDatabase={1}mdb,cn=config",
            "olcDatabase={2}mdb,cn=config",
            "olcOverlay={0}seqmod,olcDatabase={2}mdb,cn=config",
            "olcOverlay={1}ppolicy,olcDatabase={2}mdb,cn=config",
            "olcOverlay={2}deref,olcDatabase={2}mdb,cn=config",
            "olcDatabase={3}mdb,cn=config",
            "olcOverlay={0}seqmod,olcDatabase={3}mdb,cn=config",
        ]
    );
    assert_eq!(changed.config.databases[1].suffixes[0].text, "cn=new");
    assert_eq!(changed.config.databases[2].suffixes[0].text, "cn=one");
    let back = "dn: olcDatabase={1}mdb,cn=config\nchangetype: delete\n";
    let back = sources.change(&changed.config, operations(back).remove(0), RequestControls::default());
    assert_eq!(names(&back.unwrap().config), names(&config));
}

/// As slapd cuts words: `384"` is 384.
#[test]
fn a_quote_at_the_end_of_a_mode_is_passed_over() {
    let sources = TestSources::new();
    let ldif = "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nreplace: olcDbMode\nolcDbMode: 416\"\n";
    let config = start(Source::QuickStart);
    let changed = sources.change(&config, operations(ldif).remove(0), RequestControls::default()).unwrap();
    let mdb = changed.config.databases[1].kind.mdb().expect("an mdb database");
    assert_eq!(mdb.mode, Some(0o640));
}

#[test]
fn values_keep_their_place() {
    let access = |lines: &str| format!("dn: olcDatabase={{1}}mdb,cn=config\nchangetype: modify\n{lines}\n");
    let first = "to attrs=larch by * none";
    let second = "to attrs=needle by * read";
    let third = "to * by users read";
    let cases: &[(&str, &str)] = &[
        (
            "add: olcAccess\nolcAccess: to attrs=cone by * none",
            &format!("{{0}}{first}|{{1}}{second}|{{2}}{third}|{{3}}to attrs=cone by * none"),
        ),
        (
            "add: olcAccess\nolcAccess: {1}to attrs=cone by * none",
            &format!("{{0}}{first}|{{1}}to attrs=cone by * none|{{2}}{second}|{{3}}{third}"),
        ),
        (
            "add: olcAccess\nolcAccess: {9}to attrs=cone by * none",
            &format!("{{0}}{first}|{{1}}{second}|{{2}}{third}|{{3}}to attrs=cone by * none"),
        ),
        (
            "add: olcAccess\nolcAccess: {-1}to attrs=cone by * none",
            &format!("{{0}}{first}|{{1}}{second}|{{2}}{third}|{{3}}to attrs=cone by * none"),
        ),
        ("delete: olcAccess\nolcAccess: {1}", &format!("{{0}}{first}|{{1}}{third}")),
        (&format!("delete: olcAccess\nolcAccess: {third}"), &format!("{{0}}{first}|{{1}}{second}")),
        (&format!("delete: olcAccess\nolcAccess: {{2}}{third}"), &format!("{{0}}{first}|{{1}}{second}")),
        (
            "delete: olcAccess\nolcAccess: {1}\n-\nadd: olcAccess\nolcAccess: {1}to attrs=needle by * write",
            &format!("{{0}}{first}|{{1}}to attrs=needle by * write|{{2}}{third}"),
        ),
        ("delete: olcAccess\nolcAccess: {0}\nolcAccess: {2}", &format!("{{0}}{second}")),
        ("delete: olcAccess", ""),
        (
            "replace: olcAccess\nolcAccess: {1}to * by * read\nolcAccess: {0}to attrs=cone by * none",
            "{0}to attrs=cone by * none|{1}to * by * read",
        ),
    ];
    for (lines, expected) in cases {
        let expected = format!("olcDatabase={{1}}mdb,cn=config olcAccess={expected}");
        assert_eq!(outcome(&access(lines), &["olcAccess"], &RequestControls::default()), expected, "{lines}");
    }
}

/// slapd has no class for it. Its entry has none of Larix's own, so that slapd reads it.
#[test]
fn a_database_of_a_kind_without_a_class() {
    let ldif = "dn: olcDatabase=dnssrv,cn=config\nchangetype: add\nobjectClass: olcDatabaseConfig\n\
                olcDatabase: dnssrv\nolcSuffix: cn=three\n\n\
                dn: olcDatabase={3}dnssrv,cn=config\nchangetype: modify\nadd: olcLarixDnssrvServer\n\
                olcLarixDnssrvServer: 192.0.2.1\n";
    check(&[(
        ldif,
        &["objectClass", "olcLarixDnssrvServer"],
        "olcDatabase={3}dnssrv,cn=config objectClass=olcDatabaseConfig olcLarixDnssrvServer=192.0.2.1",
    )]);
}

#[test]
fn refusals_of_a_modify() {
    let modify = |dn: &str, lines: &str| format!("dn: {dn}\nchangetype: modify\n{lines}\n");
    let mdb = "olcDatabase={1}mdb,cn=config";
    let cases: &[(&str, &str, &str)] = &[
        ("olcDatabase={7}mdb,cn=config", "delete: olcAccess", "32 [cn=config]"),
        (mdb, "delete: olcAccess\nolcAccess: {7}", "16 modify/delete: olcAccess: no such value"),
        (
            mdb,
            "delete: olcAccess\nolcAccess: {1}to * by users read",
            "16 modify/delete: olcAccess: no such value",
        ),
        (mdb, "delete: olcLimits", "16 modify/delete: olcLimits: no such attribute"),
        (
            mdb,
            "add: olcAccess\nolcAccess: to * by users read",
            "20 modify/add: olcAccess: value #0 already exists",
        ),
        (
            mdb,
            "add: olcDbIndex\nolcDbIndex: objectclass eq",
            "20 modify/add: olcDbIndex: value #0 already exists",
        ),
        (mdb, "add: nosuch\nnosuch: 1", "17 nosuch: attribute type undefined"),
        (mdb, "add: olcLogLevel\nolcLogLevel: 1", "65 attribute 'olcLogLevel' not allowed"),
        (mdb, "add: olcDbMode\nolcDbMode: 1\nolcDbMode: 2", "19 olcDbMode: multiple values provided"),
        (mdb, "replace: olcReadOnly\nolcReadOnly: maybe", "21 olcReadOnly: value #0 invalid per syntax"),
        (mdb, "replace: olcDatabase\nolcDatabase: {2}mdb", "67 Use modrdn to change the entry name"),
        (
            mdb,
            "replace: olcDbDirectory\nolcDbDirectory: /a b",
            "80 olcDatabase={1}mdb,cn=config: olcDbDirectory: one word is wanted here: blanks have to be in quotes \
             (at 1 of \"/a b\"); \"/a b\"",
        ),
        (mdb, "delete: olcDatabase", "67 Use modrdn to change the entry name"),
        (mdb, "add: objectClass\nobjectClass: olcFrontendConfig", "53 objectclass modification disallowed"),
        (mdb, "delete: olcDbDirectory", "65 object class 'olcMdbConfig' requires attribute 'olcDbDirectory'"),
        (
            mdb,
            "add: olcDbIndex\nolcDbIndex: nosuch eq",
            "80 olcDatabase={1}mdb,cn=config: olcDbIndex: index attribute \"nosuch\" undefined (at 1 of \"nosuch eq\"); include the schema that defines it",
        ),
        (
            "cn=module{0},cn=config",
            "delete: olcModuleLoad\nolcModuleLoad: {1}",
            "53 the module ppolicy is in use: olcOverlay={1}ppolicy,olcDatabase={1}mdb,cn=config",
        ),
    ];
    for (dn, lines, expected) in cases {
        let text = outcome(&modify(dn, lines), &[], &RequestControls::default());
        assert_eq!(text, *expected, "{dn}: {lines}");
    }
}

#[test]
fn only_what_nothing_depends_on_is_deleted() {
    check(&[
        (
            "dn: olcDatabase={1}mdb,cn=config\nchangetype: delete\n",
            &[],
            "66 there are entries below it: delete them first",
        ),
        (
            "dn: olcDatabase={0}config,cn=config\nchangetype: delete\n",
            &[],
            "53 Cannot delete config or frontend database",
        ),
        (
            "dn: olcDatabase={-1}frontend,cn=config\nchangetype: delete\n",
            &[],
            "53 Cannot delete config or frontend database",
        ),
        ("dn: cn=config\nchangetype: delete\n", &[], "53 cn=config: every configuration has this entry"),
        ("dn: cn={1}two,cn=schema,cn=config\nchangetype: delete\n", &[], "cn={1}two,cn=schema,cn=config"),
        (
            "dn: cn=module{0},cn=config\nchangetype: delete\n",
            &[],
            "53 the module back_mdb is in use: olcDatabase={1}mdb,cn=config",
        ),
        (
            "dn: olcOverlay={9}x,olcDatabase={1}mdb,cn=config\nchangetype: delete\n",
            &[],
            "32 [olcDatabase={1}mdb,cn=config]",
        ),
    ]);
    let tree = RequestControls::from(ControlValues { tree_delete: true, ..ControlValues::default() });
    let ldif = "dn: olcDatabase={1}mdb,cn=config\nchangetype: delete\n\n\
                dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nadd: olcSizeLimit\nolcSizeLimit: 5\n";
    assert_eq!(outcome(ldif, &["olcSuffix"], &tree), "olcDatabase={1}mdb,cn=config olcSuffix=cn=two");
}

#[test]
fn a_rename_changes_the_place_alone() {
    let rename =
        |dn: &str, rdn: &str| format!("dn: {dn}\nchangetype: modrdn\nnewrdn: {rdn}\ndeleteoldrdn: 1\n");
    let overlay = "olcOverlay={0}seqmod,olcDatabase={1}mdb,cn=config";
    let cases: &[(&str, &str, &str)] = &[
        (overlay, "olcOverlay={2}seqmod", "olcOverlay={2}seqmod,olcDatabase={1}mdb,cn=config"),
        (overlay, "olcOverlay={9}seqmod", "olcOverlay={2}seqmod,olcDatabase={1}mdb,cn=config"),
        (overlay, "olcOverlay={0}seqmod", overlay),
        (overlay, "olcOverlay=seqmod", "64 new ordering index is required"),
        (overlay, "olcOverlay={1}deref", "53 changing database/overlay type not allowed"),
        ("olcDatabase={2}mdb,cn=config", "olcDatabase={1}mdb", "olcDatabase={1}mdb,cn=config"),
        ("olcDatabase={2}mdb,cn=config", "olcDatabase={0}mdb", "19 the config database is always {0}"),
        ("olcDatabase={0}config,cn=config", "olcDatabase={1}config", "19 the config database is always {0}"),
        ("cn={0}one,cn=schema,cn=config", "cn={0}uno", "cn={0}uno,cn=schema,cn=config"),
        ("cn={0}one,cn=schema,cn=config", "cn={1}one", "53 schema reordering not supported"),
        ("cn=schema,cn=config", "cn=scheme", "53 renaming not allowed for this entry"),
        ("cn=module{0},cn=config", "cn=module{1}", "53 renaming not supported for this entry"),
    ];
    for (dn, rdn, expected) in cases {
        assert_eq!(outcome(&rename(dn, rdn), &[], &RequestControls::default()), *expected, "{dn} -> {rdn}");
    }
    let sources = TestSources::new();
    let operation = operations(&rename(overlay, "olcOverlay={1}seqmod")).remove(0);
    let changed = sources.change(&start(Source::QuickStart), operation, RequestControls::default()).unwrap();
    let kinds: Vec<_> = changed.config.databases[1].overlays.iter().map(|o| o.name.clone()).collect();
    assert_eq!(kinds, ["ppolicy", "seqmod", "deref"]);
}

#[test]
fn adds_that_are_refused() {
    check(&[
        (
            "dn: olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config\nchangetype: add\nobjectClass: olcOverlayConfig\nolcOverlay: ppolicy\n",
            &[],
            "80 olcOverlay={3}ppolicy,olcDatabase={1}mdb,cn=config: olcOverlay: overlay \"ppolicy\" already in list; a database has one of it: set what is there",
        ),
        (
            "dn: olcOverlay=seqmod,olcDatabase={5}mdb,cn=config\nchangetype: add\nobjectClass: olcOverlayConfig\nolcOverlay: seqmod\n",
            &[],
            "32 [cn=config]",
        ),
        (
            "dn: olcOverlay=seqmod,cn=config\nchangetype: add\nobjectClass: olcOverlayConfig\nolcOverlay: seqmod\n",
            &[],
            "65 olcOverlay=seqmod,cn=config: entries of this kind are not known under cn=config",
        ),
        (
            "dn: olcOverlay=deref,olcOverlay={0}seqmod,olcDatabase={1}mdb,cn=config\nchangetype: add\nobjectClass: olcOverlayConfig\nolcOverlay: deref\n",
            &[],
            "65 olcOverlay=deref,olcOverlay={0}seqmod,olcDatabase={1}mdb,cn=config: an overlay belongs below the entry of a database",
        ),
        (
            "dn: cn={0}more,cn=schema,cn=config\nchangetype: add\nobjectClass: olcSchemaConfig\ncn: {0}more\n",
            &[],
            "53 operation requires sibling renumbering",
        ),
        (
            "dn: cn={0}one,cn=schema,cn=config\nchangetype: add\nobjectClass: olcSchemaConfig\ncn: {0}one\n",
            &[],
            "68",
        ),
        (
            "dn: cn=schema,cn=config\nchangetype: add\nobjectClass: olcSchemaConfig\ncn: schema\n",
            &[],
            "cn=schema,cn=config",
        ),
        (
            "dn: cn=module{0},cn=config\nchangetype: add\nobjectClass: olcModuleList\ncn: module{0}\n",
            &[],
            "64 a list of modules comes behind the others: leave its number out",
        ),
        (
            "dn: cn=module,cn=config\nchangetype: add\nobjectClass: olcModuleList\ncn: module\nolcModuleLoad: unique\n",
            &["cn", "olcModuleLoad"],
            "cn=module{1},cn=config cn=module{1} olcModuleLoad={0}unique",
        ),
        (
            "dn: olcDatabase=config,cn=config\nchangetype: add\nobjectClass: olcDatabaseConfig\nolcDatabase: config\n",
            &[],
            "68",
        ),
        (
            "dn: olcOverlay=seqmod,olcDatabase={1}mdb,cn=config\nchangetype: add\nobjectClass: olcGlobal\nolcOverlay: seqmod\n",
            &[],
            "65 attribute 'olcOverlay' not allowed",
        ),
    ]);
}

/// The same section again, as a script adds it at each start, then with a new definition, and under another name.
#[test]
fn a_section_of_the_schema_is_added_once() {
    let section = |name: &str| {
        format!(
            "dn: cn={name},cn=schema,cn=config\nchangetype: add\nobjectClass: olcSchemaConfig\ncn: {name}\n\
             olcAttributeTypes: ( 1.3.9999.4  NAME 'cone' SUP larch )\n"
        )
    };
    let (again, other) = (section("two"), section("three"));
    let more = format!("{again}olcAttributeTypes: ( 1.3.9999.5 NAME 'bark' SUP larch )\n");
    let known = "21 olcAttributeTypes: Duplicate attributeType: \"1.3.9999.4\"; cn={1}two,cn=schema,cn=config has the same definitions";
    check(&[
        (again.as_str(), &[], known),
        (more.as_str(), &[], "cn={2}two,cn=schema,cn=config"),
        (other.as_str(), &[], "cn={2}three,cn=schema,cn=config"),
    ]);
}

/// The next start reads the definitions of an entry by their kinds, and would not find a name of a kind behind.
#[test]
fn an_oid_is_written_by_names_that_are_read_before_it() {
    let added = |attribute: &str, value: &str| {
        let ldif = format!(
            "dn: cn={{0}}one,cn=schema,cn=config\nchangetype: modify\nadd: {attribute}\n{attribute}: {value}\n"
        );
        outcome(&ldif, &[], &RequestControls::default())
    };
    let refused = [
        added("olcObjectIdentifier", "bark larch:5"),
        added("olcAttributeTypes", "( conifer:5 NAME 'bark' SUP larch )"),
    ];
    for outcome in refused {
        assert!(outcome.contains("could not be expanded"), "{outcome}");
    }
    let accepted = added("olcObjectClasses", "( larch:5 NAME 'grove' SUP top AUXILIARY )");
    assert_eq!(accepted, "cn={0}one,cn=schema,cn=config");
}

#[test]
fn several_attributes_of_one_request_are_judged_together() {
    // Rule and attribute type come with one another's help, whatever stands first.
    check(&[(
        "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nreplace: olcRootPW\nolcRootPW: x\n-\nreplace: olcRootDN\nolcRootDN: cn=admin,cn=one\n",
        &["olcRootDN"],
        "olcDatabase={1}mdb,cn=config olcRootDN=cn=admin,cn=one",
    )]);
}

#[test]
fn operational_attributes_follow() {
    let sources = TestSources::new();
    let config = start(Source::QuickStart);
    let first = "dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: 5\n";
    let one = sources.change(&config, operations(first).remove(0), RequestControls::default()).unwrap();
    let two = sources.change(&one.config, operations(first).remove(0), RequestControls::default()).unwrap();
    let (one, two) = (one.config.entries(), two.config.entries());
    for name in ["entryCSN", "contextCSN", "entryUUID", "creatorsName", "modifiersName"] {
        assert_eq!(one[0].values(name).len(), 1, "{name}");
    }
    assert!(one[0].values("entryCSN").first() < two[0].values("entryCSN").first());
    assert_eq!(two[0].values("entryCSN"), two[0].values("contextCSN"));
    assert_eq!(one[0].values("entryUUID"), two[0].values("entryUUID"));
    assert_eq!(one[1], two[1]);
}

/// slapd keeps these in an `int` without a look at it; an unsigned one reads what is below 0 as very much.
#[test]
fn numbers_below_0_are_taken_as_slapd_takes_them() {
    let sources = TestSources::new();
    let config = start(Source::QuickStart);
    let changed = |name: &str, value: &str| {
        let text = format!("dn: cn=config\nchangetype: modify\nreplace: {name}\n{name}: {value}\n");
        let changed =
            sources.change(&config, operations(&text).remove(0), RequestControls::default()).unwrap();
        assert_eq!(changed.config.entries()[0].values(name).first().unwrap(), value.as_bytes());
        changed.config.global
    };
    assert_eq!(changed("olcMaxFilterDepth", "0").max_filter_depth, 0);
    assert_eq!(changed("olcMaxFilterDepth", "7").max_filter_depth, 7);
    assert_eq!(changed("olcLocalSSF", "-4").local_ssf, u32::MAX - 3);
    assert_eq!(changed("olcLocalSSF", "256").local_ssf, 256);
}

/// slapd takes it, and answers no search from then on, not even one that would put it right.
#[test]
fn a_filter_depth_below_0_is_refused() {
    let text = "dn: cn=config\nchangetype: modify\nreplace: olcMaxFilterDepth\nolcMaxFilterDepth: -4\n";
    let config = start(Source::QuickStart);
    let changed = TestSources::new().change(&config, operations(text).remove(0), RequestControls::default());
    let refused = changed.map(|_| ()).unwrap_err().0.diagnostic;
    assert!(refused.contains("no filter") && refused.contains("1000"), "{refused}");
}
