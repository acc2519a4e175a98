use super::*;

/// A slapd.conf with the core schema; its folder stands for `$D`.
fn read(lines: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slapd.conf");
    std::fs::write(folder.path().join("core.schema"), larix_schema::bundled("core").unwrap()).unwrap();
    let place = folder.path().display();
    let text = format!("include {place}/core.schema\n{lines}").replace("$D", &place.to_string());
    std::fs::write(&file, text).unwrap();
    Config::from_slapd_conf(&file).map_err(|error| error.to_string())
}

const ONE: &str = "database mdb\nsuffix dc=a\ndirectory $D/a\n";
const OTHER: &str = "database mdb\nsuffix dc=b\ndirectory $D/b\n";

#[test]
fn overlays_before_the_first_database_are_meant_for_each() {
    for (overlay, overlays, provides) in [
        ("overlay memberof\n", &["memberof"][..], false),
        ("overlay refint\nrefint_attributes member\n", &["refint"], false),
        ("overlay ppolicy\nppolicy_hash_cleartext\n", &["ppolicy"], false),
        ("overlay syncprov\nsyncprov-sessionlog 100\n", &[], true),
        ("overlay memberof\noverlay refint\nrefint_attributes member\n", &["memberof", "refint"], false),
    ] {
        let config = read(&format!("{overlay}database monitor\n{ONE}{OTHER}")).unwrap();
        assert_eq!(config.refusals(), [], "{overlay}");
        for database in config.databases.iter().filter(|database| database.kind.is_stored()) {
            let settings = config.engine_settings(database).unwrap();
            let found: Vec<_> = settings.overlays.iter().map(|overlay| overlay.name()).collect();
            assert_eq!((found.as_slice(), settings.provider.is_some()), (overlays, provides), "{overlay}");
        }
        assert_eq!(config.overlays_of(&config.databases[1]).count(), 0, "{overlay}");
    }
    // A database's own counts more.
    let own = format!("overlay ppolicy\nppolicy_hash_cleartext\n{ONE}overlay ppolicy\n");
    let config = read(&own).unwrap();
    let settings = config.engine_settings(&config.databases[1]).unwrap();
    assert_eq!(settings.overlays.len(), 1);
}

#[test]
fn what_overlays_note_is_said_of_each_kind_that_keeps_entries() {
    let notes = |kind: &str, lines: &str| {
        let config = read(&format!("database {kind}\nsuffix dc=a\ndirectory $D/a\n{lines}")).unwrap();
        config.notes.iter().map(|note| note.text.clone()).collect::<Vec<_>>().join("\n")
    };
    // Where nobody chooses indexes, none is asked for.
    for (kind, has_index_lines) in [("mdb", true), ("ldif", false)] {
        let found = notes(kind, "overlay auditlog\noverlay refint\nrefint_attributes member\n");
        assert!(found.contains("nothing is written"), "{kind}: {found}");
        assert_eq!(found.contains("without an equality index"), has_index_lines, "{kind}: {found}");
    }
}

#[test]
fn an_overlay_of_all_databases_is_noted_once() {
    let config = read(&format!("overlay auditlog\n{ONE}{OTHER}")).unwrap();
    let nothing = config.notes.iter().filter(|note| note.text.contains("nothing is written"));
    assert_eq!(nothing.count(), 1);
}

#[test]
fn overlays_that_work_in_entries_are_noted_where_there_are_none() {
    for (database, overlay, is_noted) in [
        ("ldap\nsuffix dc=a\nuri ldap://a", "constraint\nconstraint_attribute cn size 9", true),
        ("ldap\nsuffix dc=a\nuri ldap://a", "dds", true),
        ("ldap\nsuffix dc=a\nuri ldap://a", "denyop\ndenyop add", false),
        ("ldap\nsuffix dc=a\nuri ldap://a", "rwm", false),
        ("monitor", "valsort\nvalsort-attr cn dc=a alpha-ascend", true),
        ("config", "auditlog\nauditlog /a", true),
        ("config", "syncprov", false),
        ("mdb\nsuffix dc=a\ndirectory $D/a", "constraint\nconstraint_attribute cn size 9", false),
    ] {
        let config = read(&format!("database {database}\noverlay {overlay}\n")).unwrap();
        let found: Vec<&str> = config.notes.iter().map(|note| note.text.as_str()).collect();
        let noted = found.iter().any(|text| text.contains("what it does in entries has no effect"));
        assert_eq!(noted, is_noted, "{database} {overlay}: {found:?}");
    }
}

/// The hooks that the overlays of each database use, one database behind the other.
fn hooks(lines: &str) -> Vec<String> {
    let config = read(lines).unwrap();
    let stored = config.databases.iter().filter(|database| database.kind.is_stored());
    let settings = stored.map(|database| config.engine_settings(database).unwrap());
    let hooks = |overlay: &Arc<dyn overlay::Overlay>| format!("{:?}", overlay.interests());
    settings.map(|settings| settings.overlays.iter().map(hooks).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn overlays_of_the_frontend_know_the_other_databases() {
    let refint = "overlay refint\nrefint_attributes member\n";
    let both = r#"{"prepare", "committed"}"#;
    assert_eq!(hooks(&format!("{refint}{ONE}{OTHER}")), [both, both]);
    // There is no other.
    assert_eq!(hooks(&format!("{refint}{ONE}")), [r#"{"prepare"}"#]);
    // One of its own is of one database.
    let own = format!("{ONE}{refint}{OTHER}{refint}");
    assert_eq!(hooks(&own), [r#"{"prepare"}"#; 2]);
    let mixed = format!("{refint}{ONE}{OTHER}{refint}");
    assert_eq!(hooks(&mixed), [r#"{"prepare"}"#; 2]);
    let third = "database mdb\nsuffix dc=c\ndirectory $D/c\noverlay memberof\n";
    let back = r#"{"back link"}"#;
    let computing = r#"{"back link", "compute"}"#;
    assert_eq!(hooks(&format!("overlay memberof\n{ONE}{OTHER}{third}")), [computing, computing, back]);
}

#[test]
fn mistakes_name_their_lines() {
    for (lines, fault) in [
        (
            "overlay refint\nrefint_attributes nosuch\n",
            "refint_attributes <nosuch>: attribute type undefined",
        ),
        ("overlay refint\nrefint_attributes membr\n", "did you mean `member`?"),
        ("overlay memberof\nmemberof-dangling maybe\n", "ignore, drop or error"),
        ("overlay ppolicy\nppolicy_default nobody\n", "ppolicy_default: \"nobody\" is not a DN"),
        ("overlay syncprov\nsyncprov-checkpoint 1\n", "not two numbers above 0"),
        (
            "overlay unique\nunique_uri ldap:///?mail?subb\nunique_uri ldap:///?cn?sub\n",
            "scope \"subb\" is not base",
        ),
    ] {
        let error = read(&format!("{ONE}{lines}")).unwrap_err();
        assert!(error.contains(fault) && error.contains("slapd.conf:6"), "{error}");
    }
    // Which of two equal ones it is cannot be told.
    let twice = "unique_uri ldap:///?mail?subb\n".repeat(2);
    let error = read(&format!("{ONE}overlay unique\n{twice}")).unwrap_err();
    assert!(error.contains("slapd.conf:5"), "{error}");
}

#[test]
fn members_are_indexed_by_themselves() {
    let config = read(&format!("{ONE}overlay memberof\n")).unwrap();
    let settings = config.engine_settings(&config.databases[1]).unwrap();
    let member = config.schema.describe("member").unwrap();
    assert!(settings.index.kinds(&config.schema, &member).has(larix_engine::index::Kinds::EQUALITY));
}

#[test]
fn words_reach_an_overlay_as_they_were_given() {
    for (line, words) in [
        (r#"constraint_attribute mail regex "^[^@]+@x\\.org$""#, ["mail", "regex", r"^[^@]+@x\.org$"]),
        (
            r"constraint_attribute mail uri ldap:///?mail?sub?(cn=\\28a)",
            ["mail", "uri", r"ldap:///?mail?sub?(cn=\28a)"],
        ),
        (r#"constraint_attribute mail set "this/mail & this/cn""#, ["mail", "set", "this/mail & this/cn"]),
    ] {
        let config = read(&format!("{ONE}overlay constraint\n{line}\n")).unwrap();
        let given = config.databases[1].overlays[0].given();
        let found: Vec<&str> = given.words("olcConstraintAttribute").collect();
        assert_eq!(found, words, "{line}");
        // The same by way of cn=config.
        let again = Config::from_entries(config.entries(), super::super::Source::QuickStart).unwrap();
        assert_eq!(again.databases[1].overlays[0].given(), given, "{line}");
    }
}

/// slapd's slapd.conf has a domain of several URIs in quotes, its cn=config has none.
#[test]
fn domains_of_unique_are_written_as_slapd_reads_them() {
    const DOMAIN: &str = "strict ldap:///?cn?sub ldap:///?sn?sub";
    for line in [format!("unique_uri \"{DOMAIN}\""), format!("unique_uri {DOMAIN}")] {
        let config = read(&format!("{ONE}overlay unique\n{line}\n")).unwrap();
        let entries = config.entries();
        let entry = entries.iter().find(|entry| entry.dn.starts_with("olcOverlay={0}unique")).unwrap();
        let values = entry.values("olcUniqueURI");
        assert!(values.iter().eq([DOMAIN.as_bytes()]), "{line}: {values:?}");
        let text = config.to_slapd_conf().text;
        assert!(text.contains(&format!("unique_uri \"{DOMAIN}\"\n")), "{text}");
    }
}

#[test]
fn an_overlay_says_what_is_to_be_known_of_its_settings() {
    for (lines, note) in [
        ("overlay refint\nrefint_attributes member owner\n", Some("add `index member,owner eq`")),
        ("index member,owner eq\noverlay refint\nrefint_attributes member owner\n", None),
        // The overlay memberof maintains memberOf, and has members indexed.
        ("overlay memberof\noverlay refint\nrefint_attributes memberOf member\n", None),
    ] {
        let config = read(&format!("{ONE}{lines}")).unwrap();
        let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
        let found = notes.iter().find(|text| text.contains("without an equality index"));
        assert_eq!(
            found.map(|text| text.contains(note.unwrap_or("nothing"))),
            note.map(|_| true),
            "{notes:?}"
        );
    }
}

/// Two glued databases; the uppermost one has these lines.
fn glued(lines: &str) -> String {
    format!("database mdb\nsuffix ou=b,dc=a\nsubordinate\ndirectory $D/b\n{ONE}{lines}")
}

fn names_of(config: &Config, suffix: &str) -> Vec<String> {
    let is_it = |database: &&Database| database.suffixes.iter().any(|own| own.text == suffix);
    let database = config.databases.iter().find(is_it).unwrap();
    config.overlays_of(database).map(|overlay| overlay.name.clone()).collect()
}

#[test]
fn overlays_over_glue_are_meant_for_glued_databases() {
    for (lines, above, below) in [
        ("overlay valsort\n", &["valsort"][..], &[][..]),
        ("overlay valsort\noverlay glue\n", &["valsort", "glue"], &[]),
        ("overlay glue\noverlay valsort\n", &["glue", "valsort"], &["valsort"]),
        ("overlay memberof\noverlay glue\noverlay syncprov\n", &["memberof", "glue", "syncprov"], &[]),
        ("overlay glue\noverlay memberof\n", &["glue", "memberof"], &["memberof"]),
    ] {
        let config = read(&glued(lines)).unwrap();
        assert_eq!(config.refusals(), [], "{lines}");
        assert_eq!((names_of(&config, "dc=a"), names_of(&config, "ou=b,dc=a")), (owned(above), owned(below)));
    }
    // Nothing is glued here.
    let config = read(&format!("{ONE}overlay glue\noverlay unique\nunique_uri ldap:///?mail?sub\n")).unwrap();
    assert_eq!(config.refusals(), []);
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn overlays_that_see_one_database_are_refused_over_glue() {
    for (lines, why) in [
        ("overlay unique\nunique_uri ldap:///?mail?sub\n", "it looks for values in one database"),
        ("overlay ppolicy\n", "binds of entries in glued databases do not pass through it"),
        ("overlay auditlog\nauditlog $D/log\n", "it follows the changes of one database"),
        ("overlay dds\n", "it sees one database alone"),
    ] {
        let config = read(&glued(&format!("overlay glue\n{lines}"))).unwrap();
        let refusals: Vec<String> = config.refusals().iter().map(ToString::to_string).collect();
        assert!(
            refusals.len() == 1
                && refusals[0].contains(why)
                && refusals[0].contains("write it before `overlay glue`"),
            "{lines}: {refusals:?}"
        );
        let config = read(&glued(&format!("{lines}overlay glue\n"))).unwrap();
        assert_eq!(config.refusals(), [], "{lines}");
    }
    let denyop = "overlay glue\noverlay denyop\ndenyop add\n";
    assert_eq!(read(&glued(denyop)).unwrap().refusals(), []);
    let proxy = "database mdb\nsuffix ou=b,dc=a\nsubordinate\ndirectory $D/b\n\
            database ldap\nsuffix dc=a\nuri ldap://127.0.0.1:9\n";
    let refusals = read(&format!("{proxy}{denyop}")).unwrap().refusals();
    assert!(refusals.len() == 1 && refusals[0].to_string().contains("the access rules"), "{refusals:?}");
}

#[test]
fn a_directive_may_say_with_other_words_what_another_one_says() {
    let classes = "attributetype ( 1.2.3.1 NAME 'memberURL' SUP labeledURI )\n\
            objectclass ( 1.2.3.2 NAME 'groupOfURLs' SUP top STRUCTURAL MUST cn MAY memberURL )\n";
    for keyword in ["dynlist-attrpair", "attrpair"] {
        let lines = format!(
            "{classes}{ONE}overlay dynlist\n{keyword} member memberURL\ndynlist-attrset groupOfURLs memberURL\n"
        );
        let config = read(&lines).unwrap();
        let overlay = config.databases.iter().flat_map(|database| &database.overlays).next().unwrap();
        let values = overlay.settings.get("olcDynListAttrSet");
        let values: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
        assert_eq!(values, ["groupOfURLs memberURL member", "groupOfURLs memberURL"], "{keyword}");
        let error = read(&format!("{classes}{ONE}overlay dynlist\n{keyword} member\n")).unwrap_err();
        assert!(error.contains("needs another argument"), "{error}");
        let error = read(&format!("{classes}{ONE}overlay dynlist\n{keyword} member cn\n")).unwrap_err();
        assert!(error.contains("no subtype of labeledURI"), "{error}");
    }
}
