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
    ];
    for (text, expected) in cases {
        assert_eq!(AttributeTypeDefinition::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
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
