use super::*;
use crate::definition::DirectiveKind;
use crate::{DescriptionError, SchemaBuilder};

fn schema() -> Schema {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        builder.add_bundled(name).unwrap();
    }
    let mut options = AttributeOptions::default();
    assert!(options.add("x-tag") && options.add("time-") && !options.add("a_b"));
    builder.set_attribute_options(options);
    builder.build()
}

#[test]
fn descriptions_resolve_or_say_why_not() {
    let schema = schema();
    let cases = [
        ("cn", Ok("cn")),
        ("2.5.4.3", Ok("cn")),
        ("COMMONNAME", Ok("cn")),
        ("cn;Lang-EN", Ok("cn;lang-en")),
        ("cn;x-tag;lang-en;lang-en", Ok("cn;lang-en;x-tag")),
        ("userCertificate;binary", Ok("userCertificate;binary")),
        ("usercertificate;x-tag;binary;lang-a", Ok("userCertificate;binary;lang-a;x-tag")),
        ("cn;time-5", Ok("cn;time-5")),
        ("cn;lang-", Ok("cn;lang-")),
        ("cn;lang-en-", Ok("cn;lang-en-")),
        ("", Err(DescriptionError::Empty)),
        ("cn ", Err(DescriptionError::Characters)),
        ("c_n", Err(DescriptionError::Characters)),
        ("nothing", Err(DescriptionError::UnknownType)),
        ("cn;", Err(DescriptionError::EmptyOption)),
        ("cn;;lang-en", Err(DescriptionError::EmptyOption)),
        ("cn;foo", Err(DescriptionError::UnknownOption)),
        ("cn;binary", Err(DescriptionError::BinaryNotSupported)),
        ("userCertificate;binary;binary", Err(DescriptionError::BinaryTwice)),
        ("entryUUID;lang-en", Err(DescriptionError::OperationalWithOptions)),
    ];
    for (text, expected) in cases {
        assert_eq!(schema.describe_octets(text.as_bytes()), schema.describe(text), "{text}");
        let found = schema.describe(text).map(|description| description.to_text(&schema));
        assert_eq!(found.as_deref(), expected.as_ref().copied(), "{text}");
    }
    let many = (0..200).map(|i| format!(";lang-{i}")).collect::<String>();
    assert_eq!(schema.describe_octets(b"cn\xff"), Err(DescriptionError::Characters));
    assert_eq!(schema.describe(&format!("cn{many}")), Err(DescriptionError::TooManyOptions));
    let long = format!("cn;lang-{}", "x".repeat(1100));
    assert_eq!(schema.describe(&long), Err(DescriptionError::TooLong));
}

#[test]
fn a_subdescription_has_a_subtype_or_more_options() {
    let schema = schema();
    let cases = [
        ("cn", "cn", true),
        ("cn", "name", true),
        ("name", "cn", false),
        ("cn;lang-en", "cn", true),
        ("cn;lang-en", "name", true),
        ("cn", "cn;lang-en", false),
        ("cn;lang-en;x-tag", "cn;x-tag", true),
        ("cn;lang-en-us", "cn;lang-en", false),
        ("cn;lang-en-us", "cn;lang-en-", true),
        ("cn;lang-en", "cn;lang-en-", true),
        ("cn;lang-english", "cn;lang-en-", false),
        ("cn;lang-de", "cn;lang-", true),
        ("cn", "cn;lang-", false),
    ];
    for (sub, sup, expected) in cases {
        let (a, b) = (schema.describe(sub).unwrap(), schema.describe(sup).unwrap());
        assert_eq!(a.is_subdescription_of(&schema, &b), expected, "{sub} {sup}");
    }
}

#[test]
fn inheritance_is_resolved() {
    let schema = schema();
    let id = |name| schema.attribute_type(name).unwrap().id;
    let class = |name| schema.object_class(name).unwrap();
    let cn = schema.attribute_type("cn").unwrap();
    assert_eq!(cn.equality.unwrap().name, "caseIgnoreMatch");
    assert_eq!(cn.substring.unwrap().name, "caseIgnoreSubstringsMatch");
    assert_eq!(cn.syntax.oid, "1.3.6.1.4.1.1466.115.121.1.15");
    assert!(schema.subtypes(id("name")).contains(&id("sn")) && schema.subtypes(id("cn")) == [id("cn")]);
    assert!(schema.is_subtype(id("c"), id("name")) && !schema.is_subtype(id("name"), id("c")));
    let person = class("inetOrgPerson");
    assert!(schema.is_subclass(person.id, class("top").id));
    assert!(!schema.is_subclass(class("person").id, person.id));
    assert!(
        person.all_must().contains(&id("sn")) && person.allows(id("mail")) && !person.allows(id("uidNumber"))
    );
    assert!(!person.all_may().contains(&id("sn")));
    // A structural class without a superior stands below top.
    assert!(class("olcGlobal").ancestry().contains(&class("top").id));
    assert_eq!(
        schema.attribute_type("entryCSN").unwrap().to_string(),
        "( 1.3.6.1.4.1.4203.666.1.7 NAME 'entryCSN' EQUALITY CSNMatch ORDERING CSNOrderingMatch \
         SYNTAX 1.3.6.1.4.1.4203.666.11.2.1{64} SINGLE-VALUE NO-USER-MODIFICATION USAGE directoryOperation )"
    );
}

/// Definitions on top of core, in which what `earlier` has keeps its number.
fn following(earlier: &Schema, definitions: &[&str]) -> Schema {
    let mut builder = SchemaBuilder::following(earlier);
    builder.add_bundled("core").unwrap();
    for text in definitions {
        let kind = if text.contains("STRUCTURAL") || text.contains("AUXILIARY") {
            DirectiveKind::ObjectClass
        } else {
            DirectiveKind::AttributeType
        };
        builder.add(kind, text).unwrap();
    }
    builder.build()
}

/// What one schema knows by a name is not taken for what another one knows by it.
#[test]
fn names_that_come_again_lead_where_the_table_leads() {
    const LONG: &str = "a-name-of-more-octets-than-are-remembered";
    // As long as the longest that are remembered, and one octet longer.
    let (longest, longer) = (&LONG[..32], &LONG[..33]);
    let long = format!("( 1.2.3.4.3 NAME ( '{LONG}' '{longest}' '{longer}' ) SUP name )");
    let mine = ["( 1.2.3.4.1 NAME 'mine' SUP name )", "( 1.2.3.4.2 NAME 'yours' SUP name )", long.as_str()];
    let yours = ["( 1.2.3.4.1 NAME 'yours' SUP name )", "( 1.2.3.4.2 NAME 'mine' SUP name )"];
    let schemas =
        [&following(Schema::system(), &mine), &following(Schema::system(), &yours), Schema::system()];
    let [first, second, _] = schemas.map(|schema| schema.attribute_type_id("mine"));
    assert!(first.is_some() && second.is_some() && first != second);
    let others = ["MINE", "2.5.4.3", "CommonName", "cn\0", "cn;lang-en", "c", "n", ""];
    // More than a thread remembers, so that several have the same place.
    let known = schemas[0].attribute_types().flat_map(|attribute| &attribute.names);
    let names: Vec<&str> = others.into_iter().chain(known.map(String::as_str)).collect();
    assert!(names.len() > 100 && [LONG, longest, longer].iter().all(|name| names.contains(name)));
    let check = |schema: &Schema, name: &str| {
        let expected = schema.attribute_type_id(name);
        for _ in 0..2 {
            assert_eq!(schema.recent_attribute_type_id(name.as_bytes()), expected, "{name}");
        }
    };
    for name in &names {
        schemas.iter().for_each(|schema| check(schema, name));
    }
    for schema in schemas {
        names.iter().chain(&names).for_each(|name| check(schema, name));
    }
}

#[test]
fn a_schema_defined_anew_keeps_numbers_and_knows_what_is_broken() {
    const ONE: &str = "( 1.3.6.1.4.1.4203.666.1.1 NAME 'one' SUP name )";
    const TWO: &str = "( 1.3.6.1.4.1.4203.666.1.2 NAME ( 'two' 'zwei' ) EQUALITY caseIgnoreMatch \
        SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )";
    const CLASS: &str = "( 1.3.6.1.4.1.4203.666.2.1 NAME 'first' SUP top AUXILIARY MAY ( two $ cn ) )";
    let before = following(Schema::system(), &[ONE, TWO, CLASS]);
    let id = |schema: &Schema, name: &str| schema.attribute_type(name).map(|attribute| attribute.id);
    let check = |definitions: &[&str], attributes: &[&str], classes: &[&str]| {
        let after = following(&before, definitions);
        let (broken, broken_classes) = after.broken_since(&before);
        let names: Vec<&str> = broken.iter().map(|id| before.attribute(*id).name()).collect();
        assert_eq!(names, attributes, "{definitions:?}");
        let names: Vec<&str> = broken_classes.iter().map(|id| before.class(*id).name()).collect();
        assert_eq!(names, classes, "{definitions:?}");
        for attribute in after.attribute_types() {
            let earlier = before.attribute_type(&attribute.oid);
            assert!(earlier.is_none_or(|earlier| earlier.id == attribute.id), "{}", attribute.name());
            assert_eq!(after.attribute(attribute.id).oid, attribute.oid);
        }
        after
    };
    check(&[ONE, TWO, CLASS], &[], &[]);
    // In another order; with more, in the middle.
    let more = "( 1.3.6.1.4.1.4203.666.1.3 NAME 'three' SUP name )";
    let after = check(&[TWO, more, CLASS, ONE], &[], &[]);
    assert_eq!(id(&after, "one"), id(&before, "one"));
    assert!(after.subtypes(id(&after, "name").unwrap()).is_sorted());
    // Gone: no name leads there, no other definition gets its number, and a holder of the number sees what it was.
    let after = check(&[TWO, CLASS], &["one"], &[]);
    assert_eq!((id(&after, "one"), id(&after, "1.3.6.1.4.1.4203.666.1.1")), (None, None));
    assert!(after.attribute_types().all(|attribute| attribute.name() != "one"));
    assert!(!after.subtypes(id(&after, "name").unwrap()).contains(&id(&before, "one").unwrap()));
    let again = following(&after, &[more, TWO, CLASS, ONE]);
    assert_eq!(id(&again, "one"), id(&before, "one"));
    assert!(id(&again, "three") > id(&before, "two"));
    check(&[ONE, TWO], &[], &["first"]);
    check(&[], &["one", "two"], &["first"]);
    // Changes that entries do not mind, and such as they do.
    check(&[ONE, TWO, &CLASS.replace("two $ cn", "two $ cn $ sn")], &[], &[]);
    check(&[ONE, TWO, &CLASS.replace("two $ cn", "two")], &[], &["first"]);
    check(&[ONE, TWO, &CLASS.replace("MAY", "MUST")], &[], &["first"]);
    check(&[ONE, &TWO.replace("'zwei' )", "'zwei' 'deux' )"), CLASS], &[], &[]);
    check(&[ONE, &TWO.replace("'zwei' ", ""), CLASS], &["two"], &[]);
    check(&[ONE, &TWO.replace("IgnoreMatch", "ExactMatch"), CLASS], &["two"], &[]);
    check(
        &[ONE, &TWO.replace(" )", " SINGLE-VALUE )").replace("'zwei' SINGLE-VALUE )", "'zwei' )"), CLASS],
        &["two"],
        &[],
    );
}
