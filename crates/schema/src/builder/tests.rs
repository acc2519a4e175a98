use std::fs;

use larix_proto::ldif::{Body, Reader};
use proptest::prelude::*;

use super::*;
use crate::bundled::BUNDLED;

const DEBIAN: &str = "/etc/ldap/schema";

/// They define the same elements as others: nis and msuser.
const RIVALS: [&str; 2] = ["rfc2307bis", "active-directory"];

/// Bundled schemas in an order in which each finds what it names.
#[test]
fn bundled_schemas_load_together_but_for_rivals() {
    let mut builder = SchemaBuilder::system();
    for name in BUNDLED.iter().filter(|name| !RIVALS.contains(name)) {
        builder.add_bundled(name).unwrap();
    }
    let before = builder.clone().build();
    for name in BUNDLED.iter().filter(|name| !RIVALS.contains(name)) {
        builder.add_bundled(name).unwrap();
    }
    let after = builder.build();
    assert_eq!(before.attributes.len(), after.attributes.len(), "a second time adds nothing");
    assert_eq!(before.fingerprint(), after.fingerprint());
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "rfc2307bis", "samba", "active-directory"] {
        builder.add_bundled(name).unwrap();
    }
    assert!(builder.add_bundled("msuser").is_err());
    // It has what its rival has, and rules by which filters find it.
    let with_rules = builder.build();
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis", "msuser"] {
        builder.add_bundled(name).unwrap();
    }
    let without = builder.build();
    for attribute in
        without.attribute_types().filter(|attribute| attribute.oid.starts_with("1.2.840.113556."))
    {
        let same = with_rules.attribute_type(&attribute.oid).unwrap();
        assert_eq!((&same.names, &same.syntax.oid), (&attribute.names, &attribute.syntax.oid));
        assert!(same.equality.is_some(), "{:?}", attribute.names);
    }
}

/// Values that slapd stored under the schema files of Samba and sudo fit. A second definition is taken if it means the same.
#[test]
fn attributes_of_samba_and_sudo_are_as_in_their_own_files() {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis", "samba", "sudo"] {
        builder.add_bundled(name).unwrap();
    }
    let (text, ia5) = ("1.3.6.1.4.1.1466.115.121.1.15", "1.3.6.1.4.1.1466.115.121.1.26");
    for (oid, name, clauses) in [
        ("7165.2.1.37", "sambaHomePath", format!("EQUALITY caseIgnoreMatch SYNTAX {text}")),
        ("7165.2.1.53", "sambaTrustFlags", format!("EQUALITY caseIgnoreIA5Match SYNTAX {ia5}")),
        ("7165.2.1.73", "sambaTrustPartner", format!("EQUALITY caseIgnoreMatch SYNTAX {text}")),
        ("7165.2.1.74", "sambaFlatName", format!("EQUALITY caseIgnoreMatch SYNTAX {text}")),
        ("7165.2.1.75", "sambaTrustAuthOutgoing", format!("EQUALITY caseExactMatch SYNTAX {text}")),
        ("7165.2.1.76", "sambaTrustAuthIncoming", format!("EQUALITY caseExactMatch SYNTAX {text}")),
        ("7165.2.1.78", "sambaTrustForestTrustInfo", format!("EQUALITY caseExactMatch SYNTAX {text}")),
        (
            "15953.9.1.1",
            "sudoUser",
            format!("EQUALITY caseExactMatch SUBSTR caseExactSubstringsMatch SYNTAX {text}"),
        ),
        ("15953.9.1.6", "sudoRunAsUser", format!("EQUALITY caseExactMatch SYNTAX {text}")),
        ("15953.9.1.7", "sudoRunAsGroup", format!("EQUALITY caseExactMatch SYNTAX {text}")),
    ] {
        let definition = format!("( 1.3.6.1.4.1.{oid} NAME '{name}' {clauses} )");
        if let Err(error) = builder.add_attribute_type(&definition) {
            panic!("{name}: {error}");
        }
    }
}

/// As eduPerson 202208 defines them; the substrings rules are an addition.
#[test]
fn tags_of_eduperson_differ_in_case_and_pronouns_are_one_value() {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "eduperson"] {
        builder.add_bundled(name).unwrap();
    }
    let schema = builder.build();
    let tag = schema.attribute_type("eduPersonAnalyticsTag").unwrap();
    assert_eq!(tag.equality.map(|rule| rule.oid), Some("2.5.13.5"), "caseExactMatch");
    assert!(schema.attribute_type("eduPersonDisplayPronouns").unwrap().single_value);
}

/// Adds the definitions of entries below cn=schema,cn=config, value by value as cn=config gets them.
fn add_ldif(builder: &mut SchemaBuilder, text: &str) -> Result<(), SchemaError> {
    for record in Reader::new(text.as_bytes()) {
        let Body::Content(attributes) = record.unwrap().body else { panic!("a change") };
        for attribute in attributes.iter().filter(|attribute| attribute.description.starts_with("olc")) {
            let kind = DirectiveKind::from_keyword(&attribute.description).unwrap();
            for value in &attribute.values {
                builder.add(kind, std::str::from_utf8(value).unwrap())?;
            }
        }
    }
    Ok(())
}

/// OpenLDAP's own files as Debian ships them: alone with what they need, and over the bundled definitions.
#[test]
fn files_of_openldap_load() {
    if larix_packages::SLAPD.is_lacking() {
        return;
    }
    let names = [
        "core",
        "cosine",
        "inetorgperson",
        "collective",
        "corba",
        "duaconf",
        "dyngroup",
        "java",
        "misc",
        "nis",
        "openldap",
        "pmi",
        "namedobject",
        "msuser",
        "dsee",
    ];
    for ending in ["schema", "ldif"] {
        let mut alone = SchemaBuilder::system();
        let mut over = SchemaBuilder::system();
        names.iter().for_each(|name| over.add_bundled(name).unwrap());
        let bundled = over.clone().build();
        for name in names {
            let path = format!("{DEBIAN}/{name}.{ending}");
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for builder in [&mut alone, &mut over] {
                let added = match ending {
                    "schema" => builder.add_schema_text(&text, &path),
                    _ => add_ldif(builder, &text),
                };
                if let Err(error) = added {
                    panic!("{path}: {error}");
                }
            }
        }
        let alone = alone.build();
        assert_eq!(alone.attributes.len(), bundled.attributes.len(), "{ending}");
        assert_eq!(alone.classes.len(), bundled.classes.len(), "{ending}");
        assert_eq!(alone.fingerprint(), bundled.fingerprint(), "{ending}");
        assert_eq!(over.build().fingerprint(), bundled.fingerprint(), "{ending}");
    }
}

#[test]
fn faults_name_what_is_wrong() {
    let cases = [
        ("attributetype ( 1.2.3 NAME 'x' SUP nothing )", "AttributeType not found: \"nothing\""),
        ("attributetype ( 1.2.3 NAME 'x' SYNTAX 1.2.99 )", "Syntax not found: \"1.2.99\""),
        (
            "attributetype ( 1.2.3 NAME 'x' EQUALITY noMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )",
            "MatchingRule not found: \"noMatch\"",
        ),
        (
            "attributetype ( 1.2.3 NAME 'x' EQUALITY integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )",
            "AttributeType inappropriate matching rule: \"integerOrderingMatch\"",
        ),
        (
            "attributetype ( 1.2.3 NAME 'x' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )",
            "AttributeType inappropriate matching rule: \"integerMatch\"",
        ),
        (
            "attributetype ( 1.2.3 NAME 'x' SUP name NO-USER-MODIFICATION )",
            "AttributeType inappropriate USAGE: \"x\"",
        ),
        ("attributetype ( 1.2.3 NAME 'x_1' SUP name )", "Invalid NAME: \"x_1\""),
        ("attributetype ( 1.2.3 NAME 'x' )", "attribute type without syntax or superior"),
        ("attributetype ( 1.2.3 NAME 'cn' SUP name )", "Duplicate attributeType: \"cn\""),
        ("attributetype ( 2.5.4.3 NAME 'x' SUP name )", "Inconsistent duplicate attributeType: \"2.5.4.3\""),
        ("objectclass ( 2.5.6.1 NAME 'x' )", "Inconsistent duplicate objectClass: \"2.5.6.1\""),
        ("attributetype ( Foo:1 NAME 'x' SUP name )", "OID could not be expanded: \"Foo:1\""),
        (
            "attributetype ( 1.2.3 NAME 'x' SUP name",
            "expected a keyword or a closing parenthesis at character 26, found the end",
        ),
        ("attributetype ( 1.2.3 NAME 'x' FOO )", "expected a known keyword at character 18, found \"FOO\""),
        ("objectclass ( 1.2.3 NAME 'x' SUP none )", "ObjectClass not found: \"none\""),
        ("objectclass ( 1.2.3 NAME 'x' MAY none )", "AttributeType not found: \"none\""),
        (
            "objectclass ( 1.2.3 NAME 'x' SUP alias AUXILIARY )",
            "object class and superior are of kinds that do not go together",
        ),
        ("ditcontentrule ( 1.2.3 NAME 'x' )", "ObjectClass not found: \"1.2.3\""),
        ("database mdb", "unknown schema directive \"database\""),
    ];
    for (text, expected) in cases {
        let error = SchemaBuilder::system().add_schema_text(&format!("# x\n\n{text}\n"), "f").unwrap_err();
        assert_eq!(error.to_string(), format!("f: line 3: {expected}"), "{text}");
    }
}

#[test]
fn definitions_of_what_is_built_in_are_passed_over() {
    let mut builder = SchemaBuilder::system();
    let before = builder.clone().build();
    let text = "attributetype ( 2.5.4.3 NAME ( 'x' 'COMMONNAME' ) SUP name SINGLE-VALUE )\n\
        attributetype ( 2.5.4.3 SUP name )\nobjectclass ( 2.5.6.1 NAME 'Alias' SUP top STRUCTURAL )\n";
    builder.add_schema_text(text, "f").unwrap();
    let after = builder.build();
    assert_eq!(before.fingerprint(), after.fingerprint());
    assert!(!after.attribute_type("cn").unwrap().single_value);
}

#[test]
fn macros_prefixes_and_loose_spelling_are_taken() {
    let mut builder = SchemaBuilder::system();
    let text = "objectIdentifier Base 1.2.3\nobjectidentifier Part Base:4\n\
        attributetype ( Part:1 NAME ( 'loose' 'looser' ) DESC 'it''\n";
    assert!(builder.add_schema_text(text, "f").is_err());
    builder
        .add_schema_text(
            "attributetype (Part:1 NAME ('loose' 'looser')\n  # a comment between\n\tDESC 'x' EQUALITY caseIgnoreMatch\n  \
             SYNTAX OMsDirectoryString{12} X-ORDERED 'VALUES')\n\
             objectclass ( Part:2 NAME tight SUP top AUXILIARY MAY(loose$cn ) )",
            "f",
        )
        .unwrap();
    let ldif = "dn: cn={4}x,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: {4}x\n\
        olcAttributeTypes: {0}( Part:3 NAME 'fol\n ded' SUP name )\n\
        olcAttributeTypes:: KCBQYXJ0OjQgTkFNRSAnY29kZWQnIFNVUCBuYW1lICk=\n\
        olcLdapSyntaxes: {0}( 1.2.3.9 DESC 'own' X-SUBST '1.3.6.1.4.1.1466.115.121.1.15' )\n\
        olcDitContentRules: {0}( 2.5.6.14 NAME 'rule' NOT cn )\n\
        olcObjectClasses: {0}( 2.5.6.14 NAME 'thing' SUP top STRUCTURAL MAY cn )\n";
    // The content rule comes before its class.
    assert!(add_ldif(&mut builder.clone(), ldif).is_err());
    builder.add_schema_text("objectclass ( 2.5.6.14 NAME 'thing' SUP top STRUCTURAL MAY cn )", "g").unwrap();
    add_ldif(&mut builder, ldif).unwrap();
    let schema = builder.build();
    let loose = schema.attribute_type("LOOSER").unwrap();
    assert_eq!(
        loose.to_string(),
        "( 1.2.3.4.1 NAME ( 'loose' 'looser' ) DESC 'x' EQUALITY caseIgnoreMatch \
         SYNTAX 1.3.6.1.4.1.1466.115.121.1.15{12} X-ORDERED 'VALUES' )"
    );
    assert_eq!(
        schema.object_class("tight").unwrap().to_string(),
        "( 1.2.3.4.2 NAME 'tight' SUP top AUXILIARY MAY ( loose $ cn ) )"
    );
    let name = schema.attribute_type("name").unwrap().id;
    assert!(schema.is_subtype(schema.attribute_type("folded").unwrap().id, name));
    assert!(schema.subtypes(name).contains(&schema.attribute_type("coded").unwrap().id));
    assert_eq!(schema.syntax("1.2.3.9").unwrap().kind, SyntaxKind::DirectoryString);
    let thing = schema.object_class("thing").unwrap();
    assert_eq!(schema.content_rule(thing.id).unwrap().to_string(), "( 2.5.6.14 NAME 'rule' NOT cn )");
}

/// Extending a large schema must not cost more than extending a small one: what is copied is counted.
#[test]
fn additions_cost_the_same_whatever_is_there() {
    let add = |builder: &mut SchemaBuilder, from: usize, count: usize| {
        for i in from..from + count {
            let class = format!(
                "( 1.3.6.1.4.1.99999.{i} NAME 'extra{i}' SUP top STRUCTURAL MUST cn MAY description )"
            );
            builder.add_object_class(&class).unwrap();
            let attribute = format!("( 1.3.6.1.4.1.99998.{i} NAME 'extraAttribute{i}' SUP name )");
            builder.add_attribute_type(&attribute).unwrap();
        }
    };
    let copied = |base: &Schema| {
        let mut builder = SchemaBuilder::from(base);
        add(&mut builder, 1_000_000, 100);
        let extended = builder.build();
        let new = 200; // names and OIDs
        extended.classes.unshared(&base.classes)
            + extended.class_names.unshared(&base.class_names)
            + extended.attributes.unshared(&base.attributes)
            + extended.attribute_names.unshared(&base.attribute_names)
            - new
    };
    let small = SchemaBuilder::system().build();
    let mut builder = SchemaBuilder::system();
    add(&mut builder, 0, 10_000);
    let large = builder.build();
    assert_eq!(large.object_class("extra9999").unwrap().all_must().len(), 2);
    let (at_0, at_10_000) = (copied(&small), copied(&large));
    println!("blocks copied hold {at_0} items at 0, {at_10_000} at 10,000");
    // Leaves of the name tables hold up to some twenty names more each, copied as plain words; nothing else grows.
    assert!(at_10_000 < 10_000, "{at_0} {at_10_000}");
}

proptest! {
    /// Text from outside makes an error or a schema, never a panic.
    #[test]
    fn any_text_is_survived(
        text in "(attributetype |objectclass |objectidentifier |ldapsyntax |ditcontentrule |olcAttributeTypes: |olcObjectClasses:: )?[(]? ?(1\\.2|cn|top|OLcfgAt:1|2.5.6.6)[ ('a-zA-Z0-9$){}:\n\\PC]{0,40}(NAME 'x' |SUP |MUST |SYNTAX |X-A )?[ ('$)a-z]{0,10}"
    ) {
        let mut builder = SchemaBuilder::system();
        let _ = builder.add_schema_text(&text, "f");
        for kind in [
            DirectiveKind::AttributeType, DirectiveKind::ContentRule, DirectiveKind::ObjectClass,
            DirectiveKind::ObjectIdentifier, DirectiveKind::Syntax,
        ] {
            let _ = builder.add(kind, &text);
        }
    }
}
