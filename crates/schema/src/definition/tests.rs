use super::*;

#[test]
fn descriptions_are_taken_apart() {
    let attribute = AttributeTypeDefinition::parse(
        "( 2.5.4.3 NAME ( 'cn' 'commonName' ) DESC 'it\\27s' OBSOLETE SUP name EQUALITY caseIgnoreMatch \
         SYNTAX 1.2.3{64} SINGLE-VALUE USAGE dSAOperation X-ORIGIN ( 'a' 'b' ) )",
    )
    .unwrap();
    assert_eq!(attribute.names, ["cn", "commonName"]);
    assert_eq!(attribute.description.as_deref(), Some("it\\27s"));
    assert_eq!((attribute.syntax.as_deref(), attribute.syntax_length), (Some("1.2.3"), Some(64)));
    assert!(attribute.obsolete && attribute.single_value && !attribute.collective);
    assert_eq!(attribute.usage, Usage::DsaOperation);
    assert_eq!(attribute.extensions.get("x-origin").unwrap(), ["a", "b"]);

    let class =
        ObjectClassDefinition::parse("(1.2.3 NAME x SUP(a$b) AUXILIARY MUST 'c' MAY ( d $ e ))").unwrap();
    assert_eq!((class.superiors.len(), class.kind), (2, ClassKind::Auxiliary));
    // The space before the keyword went with the fold of an LDIF line.
    let folded = ObjectClassDefinition::parse("( 1.2.3NAME 'x' SUP top )").unwrap();
    assert_eq!((folded.oid.as_str(), folded.names.as_slice()), ("1.2.3", ["x".to_owned()].as_slice()));
    assert_eq!((class.must.as_slice(), class.may.len()), (["c".to_owned()].as_slice(), 2));
}

#[test]
fn errors_point_at_the_fault() {
    let cases = [
        ("", "expected an opening parenthesis at character 1, found the end"),
        ("( )", "expected an OID at character 3, found \")\""),
        ("( 1.2 NAME )", "expected a name at character 12, found \")\""),
        ("( 1.2 NAME 'x )", "expected a closing apostrophe at character 12, found \"'x\""),
        ("( 1.2 ) x", "expected nothing after the closing parenthesis at character 9, found \"x\""),
        (
            "( 1.2 USAGE none )",
            "expected userApplications, directoryOperation, ... at character 13, found \"none\"",
        ),
        ("( 1.2 NAME ( 'x'", "expected a name at character 17, found the end"),
        ("( 1.2 NAME 'x' name 'y' )", "expected each keyword once at character 16, found \"name\""),
        (
            "( 1.2 SYNTAX 1.3 X-A 'a' SYNTAX 1.4 )",
            "expected each keyword once at character 26, found \"SYNTAX\"",
        ),
        ("( 1.2 OBSOLETE OBSOLETE )", "expected each keyword once at character 16, found \"OBSOLETE\""),
        (
            "( 1.2 SYNTAX 1.3{6a} )",
            "expected a syntax with nothing but a number in braces behind it at character 14, found \"1.3{6a}\"",
        ),
        (
            "( 1.2 SYNTAX 1.3{-1} )",
            "expected a syntax with nothing but a number in braces behind it at character 14, found \"1.3{-1}\"",
        ),
        (
            "( 1.2 SYNTAX 1.3{6 )",
            "expected a syntax with nothing but a number in braces behind it at character 14, found \"1.3{6\"",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(AttributeTypeDefinition::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn a_class_has_each_clause_once() {
    for (text, expected) in [
        ("( 1.2 MUST a MUST b )", "expected each keyword once at character 14, found \"MUST\""),
        ("( 1.2 MAY a MUST b MAY c )", "expected each keyword once at character 20, found \"MAY\""),
        ("( 1.2 STRUCTURAL AUXILIARY )", "expected each keyword once at character 18, found \"AUXILIARY\""),
        (
            "( 1.2 ABSTRACT SUP top ABSTRACT )",
            "expected each keyword once at character 24, found \"ABSTRACT\"",
        ),
        ("( 1.2 DESC 'a' DESC 'b' )", "expected each keyword once at character 16, found \"DESC\""),
    ] {
        assert_eq!(ObjectClassDefinition::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
    let rule = ContentRuleDefinition::parse("( 1.2 NOT a NOT b )").unwrap_err();
    assert_eq!(rule.to_string(), "expected each keyword once at character 13, found \"NOT\"");
    // An extension may come again, and braces without a number are no bound.
    let attribute = AttributeTypeDefinition::parse("( 1.2 SYNTAX 1.3{} X-ORIGIN 'a' X-ORIGIN 'b' )").unwrap();
    assert_eq!((attribute.syntax.as_deref(), attribute.syntax_length), (Some("1.3"), None));
}

#[test]
fn files_become_directives() {
    let text = "\n# comment\nattributetype ( 1.2\n# between\n  NAME 'a' )\n\nobjectIdentifier  A\t1.2\r\nATTRIBUTE ( 1 )\n";
    let found = directives(text, "f").unwrap();
    let found: Vec<_> = found.iter().map(|d| (d.kind, d.line, d.text.as_str())).collect();
    assert_eq!(
        found,
        [
            (DirectiveKind::AttributeType, 3, "( 1.2 NAME 'a' )"),
            (DirectiveKind::ObjectIdentifier, 7, "A\t1.2"),
            (DirectiveKind::AttributeType, 8, "( 1 )"),
        ]
    );
    assert_eq!(
        directives("attributeoptions x", "f").unwrap_err().to_string(),
        "f: line 1: unknown schema directive \"attributeoptions\""
    );
}
