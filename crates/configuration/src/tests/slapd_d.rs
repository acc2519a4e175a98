//! A configuration that is written as slapd.d comes back as it was.

use larix_engine::time::{ManualClock, SeededRandom, Timestamp};

use super::{COMMON, read};
use crate::slapd_d::{Stamp, add_entries};
use crate::{Config, Source};

/// slapd cuts these values at blanks, and starts with no empty one.
#[test]
fn words_with_blanks_and_empty_ones_in_slapd_d() {
    let clock = ManualClock::new(Timestamp::from_seconds(1_700_000_000));
    let random = SeededRandom::new(7);
    let text = "sasl-realm \"a b\"\nsasl-host \"\"\nargsfile /nowhere/a\\\"b\nauthz-regexp (a\\\"b) cn=x\n\
                sasl-auxprops-dontusecopy \"\"\ninclude $D/core.schema\n\
                database mdb\nsuffix cn=x\ndirectory \"/nowhere/a b\"\nextra_attrs \"\" cn\n\
                overlay auditlog\nauditlog \"/nowhere/a b\"\noverlay ppolicy\nppolicy_default \"cn=a b,cn=x\"\n\
                database ldif\nsuffix cn=y\ndirectory \"/nowhere/c d\"\n";
    let (directory, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let target = directory.path().join("slapd.d");
    crate::convert(&config.unwrap(), &target, &Stamp { clock: &clock, random: &random })
        .unwrap_or_else(|error| panic!("{error}"));
    let again = Config::from_slapd_d(&target).unwrap_or_else(|error| panic!("{error}"));
    let entries = again.entries();
    let shown = |name: &str| -> Vec<String> {
        let values = entries.iter().flat_map(|entry| entry.values(name).iter());
        values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    };
    assert_eq!(shown("olcSaslRealm"), ["\"a b\""]);
    assert_eq!(shown("olcSaslHost"), Vec::<String>::new());
    assert_eq!(shown("olcArgsFile"), ["\"/nowhere/a\"\"b\""]);
    assert_eq!(shown("olcAuthzRegexp"), ["{0}\"(a\"\"b)\" cn=x"]);
    assert_eq!(shown("olcSaslAuxpropsDontUseCopy"), Vec::<String>::new());
    // slapd takes that of a database ldif as it is.
    assert_eq!(shown("olcDbDirectory"), ["\"/nowhere/a b\"", "/nowhere/c d"]);
    assert_eq!(again.databases[2].kind.directory(), Some(std::path::Path::new("/nowhere/c d")));
    assert_eq!(shown("olcExtraAttrs"), ["cn"]);
    assert_eq!(shown("olcAuditlogFile"), ["\"/nowhere/a b\""]);
    assert_eq!(shown("olcPPolicyDefault"), ["cn=a b,cn=x"]);
    assert_eq!(again.global.sasl.realm.as_deref(), Some("a b"));
    assert_eq!(again.global.args_file.as_deref(), Some(std::path::Path::new("/nowhere/a\"b")));
    let mdb = again.databases[1].kind.mdb().expect("an mdb database");
    assert_eq!(mdb.directory, std::path::Path::new("/nowhere/a b"));
}

/// An auxiliary class there would keep all changes of these entries away.
#[test]
fn servers_below_overlays_have_the_class_of_their_kind() {
    let clock = ManualClock::new(Timestamp::from_seconds(1_700_000_000));
    let random = SeededRandom::new(7);
    let text = "include $D/core.schema\noverlay chain\nchain-uri ldap://a/\ndatabase mdb\nsuffix cn=x\n\
                directory /nowhere/x\noverlay translucent\nuri ldap://b/\n";
    let (directory, config) =
        read(&[("slapd.conf", text), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let target = directory.path().join("slapd.d");
    crate::convert(&config.unwrap(), &target, &Stamp { clock: &clock, random: &random })
        .unwrap_or_else(|error| panic!("{error}"));
    let entries = Config::from_slapd_d(&target).unwrap_or_else(|error| panic!("{error}")).entries();
    let servers = entries.iter().filter(|entry| entry.dn.contains("ldap,olcOverlay="));
    let classes: Vec<&[u8]> =
        servers.flat_map(|entry| entry.values("structuralObjectClass").iter()).map(Vec::as_slice).collect();
    assert_eq!(classes, [&b"olcLDAPConfig"[..]; 3]);
}

/// In slapd.d, modules come before the schema that their definitions need, and in a slapd.conf they may.
#[test]
fn modules_come_before_the_schema_that_their_definitions_need() {
    let core = ("core.schema", larix_schema::bundled("core").unwrap());
    let orders =
        ["include $D/core.schema\nmoduleload autoca\n", "moduleload autoca\ninclude $D/core.schema\n"];
    for order in orders {
        let text = format!("{order}database null\nsuffix cn=x\n");
        let (_keep, config) = read(&[("slapd.conf", text.as_str()), core]);
        let again = Config::from_entries(config.unwrap().entries(), Source::QuickStart);
        let again = again.unwrap_or_else(|error| panic!("{error}"));
        assert!(again.schema.object_class_id("autoCA").is_some(), "{order}");
    }
    let (_keep, config) = read(&[("slapd.conf", "moduleload autoca\ndatabase null\nsuffix cn=x\n")]);
    let error = config.unwrap_err();
    assert!(error.contains("slapd.conf:1: `moduleload autoca`"), "{error}");
    assert!(error.contains("which defines pkiCA"), "{error}");
}

/// What a file defines by means of what it includes comes behind that in slapd.d. The sections keep their names in one file, so that there is no
/// difference.
#[test]
fn definitions_come_behind_those_that_they_need() {
    let clock = ManualClock::new(Timestamp::from_seconds(1_700_000_000));
    let random = SeededRandom::new(7);
    let (directory, config) = read(&[
        (
            "slapd.conf",
            "include $D/site.schema\nattributetype ( 1.2.3.4 NAME 'needle' SUP name )\n\
             objectclass ( 1.2.3.7 NAME 'own' SUP site AUXILIARY MAY needle )\ndatabase null\nsuffix cn=x\n",
        ),
        (
            "site.schema",
            "include $D/base.schema\nobjectclass ( 1.2.3.6 NAME 'site' SUP top AUXILIARY MAY larch )\n",
        ),
        ("base.schema", "attributetype ( 1.2.3.5 NAME 'larch' SUP name )\n"),
    ]);
    let target = directory.path().join("slapd.d");
    crate::convert(&config.unwrap(), &target, &Stamp { clock: &clock, random: &random })
        .unwrap_or_else(|error| panic!("{error}"));
    let converted = Config::from_slapd_d(&target).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = converted.schema_sections.iter().map(|section| section.name.as_str()).collect();
    assert_eq!(names, ["base", "site", "slapd"]);
    // What needs no section stands where slapd has it.
    assert_eq!(converted.global.settings.get("olcAttributeTypes").len(), 1);
    let file = directory.path().join("exported.conf");
    let exported = converted.to_slapd_conf().text;
    std::fs::write(&file, &exported).unwrap();
    let again = Config::from_slapd_conf(&file).unwrap_or_else(|error| panic!("{error}\n{exported}"));
    let difference = converted.difference(&again);
    assert!(difference.is_empty(), "{difference}\n{exported}");
}

/// The configuration comes back from slapd.d as it was, and entries can be added to it one after another.
#[test]
fn slapd_d_and_back() {
    let clock = ManualClock::new(Timestamp::from_seconds(1_700_000_000));
    let random = SeededRandom::new(7);
    let stamp = Stamp { clock: &clock, random: &random };
    let (directory, config) =
        read(&[("slapd.conf", COMMON), ("core.schema", larix_schema::bundled("core").unwrap())]);
    let config = config.unwrap();
    let target = directory.path().join("slapd.d");
    crate::convert(&config, &target, &stamp).unwrap_or_else(|error| panic!("{error}"));
    let again = Config::from_slapd_d(&target).unwrap_or_else(|error| panic!("{error}"));
    assert!(again.notes.iter().all(|note| !note.text.contains("checksum")), "{:?}", again.notes);
    assert_eq!(config.databases.len(), again.databases.len());
    for (before, after) in config.databases.iter().zip(&again.databases) {
        assert_eq!(before.settings.get("olcDbIndex"), after.settings.get("olcDbIndex"));
        assert_eq!(before.settings.get("olcAccess"), after.settings.get("olcAccess"));
        assert_eq!(before.root_password, after.root_password);
    }

    let entry = |text: &str| {
        let mut reader = larix_proto::ldif::Reader::new(text.as_bytes());
        let record = reader.read_record().unwrap().unwrap();
        let larix_proto::ldif::Body::Content(attributes) = record.body else { panic!("a change") };
        crate::ConfigEntry::from_ldif(record.dn, attributes)
    };
    let database = |suffix: &str| {
        entry(&format!(
            "dn: olcDatabase=mdb,cn=config\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\n\
             olcDatabase: mdb\nolcSuffix: {suffix}\nolcDbDirectory: /nowhere/{suffix}\nolcAccess: to * by * read\n\
             olcAccess: to attrs=cn by * none\n"
        ))
    };
    let more =
        add_entries(&target, vec![database("dc=one")], &stamp).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(more.databases.len(), 4);
    let more =
        add_entries(&target, vec![database("dc=two")], &stamp).unwrap_or_else(|error| panic!("{error}"));
    let last = more.entries().last().unwrap().clone();
    assert_eq!(last.dn, "olcDatabase={4}mdb,cn=config");
    assert_eq!(last.values("olcAccess").last().unwrap(), b"{1}to attrs=cn by * none");
    let twice = add_entries(&target, vec![database("dc=two")], &stamp).expect_err("the same suffix twice");
    assert!(twice.to_string().contains("already served"), "{twice}");
    assert_eq!(Config::from_slapd_d(&target).unwrap().databases.len(), 5);

    // A number that leaves a gap becomes the next one, and what is below follows.
    let gap = [
        entry(
            "dn: olcDatabase={9}mdb,cn=config\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\n\
             olcDatabase: {9}mdb\nolcSuffix: dc=gap\nolcDbDirectory: /nowhere/gap\n",
        ),
        entry(
            "dn: olcOverlay={3}syncprov,olcDatabase={9}mdb,cn=config\nobjectClass: olcOverlayConfig\n\
             objectClass: olcSyncProvConfig\nolcOverlay: {3}syncprov\n",
        ),
        entry(
            "dn: cn=module{7},cn=config\nobjectClass: olcModuleList\ncn: module{7}\nolcModuleLoad: syncprov\n",
        ),
    ];
    let more = add_entries(&target, gap.to_vec(), &stamp).unwrap_or_else(|error| panic!("{error}"));
    let added = more.entries();
    for (dn, name, value) in [
        ("olcDatabase={5}mdb,cn=config", "olcDatabase", "{5}mdb"),
        ("olcOverlay={0}syncprov,olcDatabase={5}mdb,cn=config", "olcOverlay", "{0}syncprov"),
        ("cn=module{0},cn=config", "cn", "module{0}"),
    ] {
        let entry = added.iter().find(|entry| entry.dn == dn);
        let entry =
            entry.unwrap_or_else(|| panic!("no {dn}: {:?}", added.iter().map(|e| &e.dn).collect::<Vec<_>>()));
        assert_eq!(entry.values(name).iter().collect::<Vec<_>>(), [value.as_bytes()], "{dn}");
    }
    assert_eq!(Config::from_slapd_d(&target).unwrap().databases.len(), 6);

    let fresh = directory.path().join("new").join("slapd.d");
    let global = entry("dn: cn=config\nobjectClass: olcGlobal\ncn: config\n");
    let config = add_entries(&fresh, vec![global], &stamp).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.databases.len(), 1);
    let orphan =
        entry("dn: olcOverlay=syncprov,olcDatabase={7}mdb,cn=config\nobjectClass: olcOverlayConfig\n");
    let error = add_entries(&fresh, vec![orphan], &stamp).expect_err("an orphan");
    assert!(error.to_string().contains("the entry above it is missing"), "{error}");
}

/// A section of the schema that is there already would get the next number each time.
#[test]
fn a_section_of_the_schema_is_added_once() {
    let clock = ManualClock::new(Timestamp::from_seconds(1_700_000_000));
    let random = SeededRandom::new(7);
    let stamp = Stamp { clock: &clock, random: &random };
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("slapd.d");
    let entries = |ldif: &str| -> Vec<crate::ConfigEntry> {
        let records = larix_proto::ldif::Reader::new(ldif.as_bytes()).map(Result::unwrap);
        let entry = |record: larix_proto::ldif::Record| {
            let larix_proto::ldif::Body::Content(attributes) = record.body else { panic!("a change") };
            crate::ConfigEntry::from_ldif(record.dn, attributes)
        };
        records.map(entry).collect()
    };
    let section = "dn: cn=trees,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: trees\n\
         olcAttributeTypes: ( 1.3.9999.1 NAME 'larch' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )\n\n";
    // A dump that has it twice is taken as it is.
    let twice = format!(
        "dn: cn=config\nobjectClass: olcGlobal\ncn: config\n\n\
         dn: cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: schema\n\n{section}{section}"
    );
    let config = add_entries(&target, entries(&twice), &stamp).unwrap_or_else(|error| panic!("{error}"));
    let sections = |config: &Config| {
        let entries = config.entries();
        entries.iter().filter(|entry| entry.dn.ends_with("trees,cn=schema,cn=config")).count()
    };
    assert_eq!(sections(&config), 2);
    let error = add_entries(&target, entries(section), &stamp).expect_err("the same section again");
    assert!(error.to_string().contains("Duplicate attributeType: \"1.3.9999.1\""), "{error}");
    assert_eq!(sections(&Config::from_slapd_d(&target).unwrap()), 2);
}
