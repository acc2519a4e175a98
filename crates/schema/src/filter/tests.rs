use larix_proto::FilterBuf;

use super::*;
use crate::fixture::schema;

fn bind(schema: &Schema, text: &str) -> BoundFilter {
    schema.bind_filter(FilterBuf::parse(text).unwrap().as_filter())
}

/// Evaluates over `(description, value)` pairs, as an engine does.
fn evaluate(schema: &Schema, filter: &BoundFilter, entry: &[(&str, &str)]) -> Match {
    let scratch = &mut Scratch::default();
    let mut any = |description: Option<&AttributeDescription>,
                   test: &mut dyn FnMut(&[u8], &mut Scratch) -> Match| {
        let mut result = Match::False;
        for (name, value) in entry {
            let own = schema.describe(name).unwrap();
            if description.is_none_or(|wanted| own.is_subdescription_of(schema, wanted)) {
                result = result.or(test(value.as_bytes(), scratch));
            }
        }
        result
    };
    match filter {
        BoundFilter::True => Match::True,
        BoundFilter::False => Match::False,
        BoundFilter::Undefined => Match::Undefined,
        BoundFilter::And(all) => all.iter().fold(Match::True, |m, f| m.and(evaluate(schema, f, entry))),
        BoundFilter::Or(all) => all.iter().fold(Match::False, |m, f| m.or(evaluate(schema, f, entry))),
        BoundFilter::Not(inner) => !evaluate(schema, inner, entry),
        BoundFilter::Present(description) => any(Some(description), &mut |_, _| Match::True),
        BoundFilter::Equality(a)
        | BoundFilter::Approx(a)
        | BoundFilter::GreaterOrEqual(a)
        | BoundFilter::LessOrEqual(a) => {
            any(Some(&a.description), &mut |value, scratch| a.matches(schema, value, scratch))
        }
        BoundFilter::Substrings(s) => {
            any(Some(&s.description), &mut |value, scratch| s.matches(schema, value, scratch))
        }
        BoundFilter::Extensible(e) => {
            any(e.description.as_ref(), &mut |value, scratch| e.matches(schema, value, scratch))
        }
    }
}

const ENTRY: &[(&str, &str)] = &[
    ("objectClass", "inetOrgPerson"),
    ("objectClass", "posixAccount"),
    ("cn", "Ann  Example"),
    ("cn;lang-de", "Anne Beispiel"),
    ("sn", "Example"),
    ("mail", "Ann@Example.com"),
    ("uidNumber", "1005"),
    ("telephoneNumber", "+1 555-0100"),
    ("createTimestamp", "20240101120000Z"),
    ("seeAlso", "cn=Other,dc=example,dc=com"),
    ("member", "cn=X,ou=People,dc=example,dc=com"),
    ("userPassword", "secret"),
    ("homeDirectory", "/home/Ann"),
    ("serialNumber", "A-1"),
    ("c", "DE"),
];

#[rustfmt::skip]
const FILTERS: &[(&str, Match)] = &[
    ("(cn=ann example)", Match::True),
    ("(2.5.4.3=ann example)", Match::True),
    ("(name=ANN EXAMPLE)", Match::True),
    ("(cn;lang-de=anne beispiel)", Match::True),
    ("(cn;lang-en=anne beispiel)", Match::False),
    ("(cn;lang-=anne beispiel)", Match::True),
    ("(cn=)", Match::Undefined),
    ("(cn=bob)", Match::False),
    ("(nothing=x)", Match::Undefined),
    ("(!(nothing=x))", Match::Undefined),
    ("(|(nothing=x)(cn=ann example))", Match::True),
    ("(&(nothing=x)(cn=bob))", Match::False),
    ("(&)", Match::True),
    ("(|)", Match::False),
    ("(!(&))", Match::False),
    ("(cn=*)", Match::True),
    ("(cn;lang-de=*)", Match::True),
    ("(title=*)", Match::False),
    ("(nothing=*)", Match::Undefined),
    // Superclasses match; unknown names and OIDs are Undefined.
    ("(objectClass=person)", Match::True),
    ("(objectClass=TOP)", Match::True),
    ("(objectClass=2.5.6.6)", Match::True),
    ("(objectClass=groupOfNames)", Match::False),
    ("(objectClass=noSuchClass)", Match::Undefined),
    ("(objectClass=1.2.3.4.5)", Match::Undefined),
    ("(uidNumber=1005)", Match::True),
    ("(uidNumber=01005)", Match::Undefined),
    ("(uidNumber>=1000)", Match::True),
    ("(uidNumber>=999)", Match::True),
    ("(uidNumber<=999)", Match::False),
    ("(uidNumber>=x)", Match::Undefined),
    ("(cn>=a)", Match::Undefined),
    ("(createTimestamp>=20240101000000Z)", Match::True),
    ("(createTimestamp<=20240101130000+0100)", Match::True),
    ("(createTimestamp<=20231231235959Z)", Match::False),
    ("(cn=ann*)", Match::True),
    ("(cn=*exam*)", Match::True),
    ("(cn=*le)", Match::True),
    ("(cn=a*n*x*e)", Match::True),
    ("(cn=ann ex*ex*)", Match::False),
    ("(cn=ann *)", Match::True),
    ("(cn=ann  example*example)", Match::False),
    ("(cn=*nn e*)", Match::True),
    ("(mail=ann@*)", Match::True),
    ("(telephoneNumber=*5550*)", Match::True),
    ("(telephoneNumber=+15550100)", Match::True),
    ("(uidNumber=1*)", Match::Undefined),
    ("(userPassword=sec*)", Match::Undefined),
    ("(userPassword=secret)", Match::True),
    ("(userPassword=Secret)", Match::False),
    ("(homeDirectory=/home/ann)", Match::False),
    ("(homeDirectory=/home/Ann)", Match::True),
    ("(seeAlso=CN=other, DC=example,DC=com)", Match::True),
    ("(seeAlso=nonsense)", Match::Undefined),
    ("(sn~=exampel)", Match::True),
    ("(sn~=bob)", Match::False),
    ("(uidNumber~=1005)", Match::True),
    ("(cn:caseExactMatch:=Ann Example)", Match::True),
    ("(cn:caseExactMatch:=ann example)", Match::False),
    ("(cn:2.5.13.5:=Ann Example)", Match::True),
    ("(cn:noSuchMatch:=x)", Match::Undefined),
    ("(cn:=ann example)", Match::True),
    ("(cn:integerBitAndMatch:=1)", Match::Undefined),
    ("(uidNumber:1.2.840.113556.1.4.803:=5)", Match::True),
    ("(uidNumber:1.2.840.113556.1.4.803:=2)", Match::False),
    ("(uidNumber:1.2.840.113556.1.4.804:=3)", Match::True),
    ("(member:dnSubtreeMatch:=dc=example,dc=com)", Match::True),
    ("(member:dnOneLevelMatch:=dc=example,dc=com)", Match::False),
    ("(member:1.2.840.113556.1.4.1941:=cn=x,ou=people,dc=example,dc=com)", Match::True),
    ("(objectClass:=person)", Match::True),
    ("(objectClass:objectIdentifierMatch:=person)", Match::True),
    // What a PrintableString or a country is compared with is a directory string (RFC 4517 section 4.2.11).
    ("(serialNumber=a-1)", Match::True),
    ("(serialNumber=a_1)", Match::False),
    ("(!(serialNumber=a_1))", Match::True),
    ("(serialNumber:=a_1)", Match::False),
    ("(serialNumber=)", Match::Undefined),
    ("(c=Germany)", Match::False),
    ("(!(c=Germany))", Match::True),
    ("(c:caseExactMatch:=de)", Match::False),
    // No assertion of the rule's syntax.
    ("(telephoneNumber=+1_555)", Match::Undefined),
    ("(!(telephoneNumber:telephoneNumberMatch:=+1_555))", Match::Undefined),
    ("(uidNumber:integerMatch:=01005)", Match::Undefined),
    ("(!(uidNumber:integerOrderingMatch:=x))", Match::Undefined),
    ("(cn:=)", Match::Undefined),
    ("(!(:caseIgnoreMatch:=))", Match::Undefined),
    ("(mail:=\\c3\\a9)", Match::Undefined),
    ("(!(uidNumber:1.2.840.113556.1.4.803:=05))", Match::Undefined),
    ("(!(uidNumber:1.2.840.113556.1.4.804:=+5))", Match::Undefined),
    ("(!(uidNumber:integerFirstComponentMatch:=05))", Match::Undefined),
    // Nor any piece of one.
    ("(!(mail=*\\c3\\a9*))", Match::Undefined),
    ("(!(mail=ann*\\c3\\a9))", Match::Undefined),
    ("(!(telephoneNumber=*5_5*))", Match::Undefined),
    ("(telephoneNumber=*5-5*)", Match::True),
    ("(!(serialNumber=*_*))", Match::True),
];

/// What slapd of OpenLDAP 2.5 answers, but for in-chain matching and the two lines after it, which it does not know.
#[test]
fn filters_over_an_entry() {
    let schema = schema();
    for (text, expected) in FILTERS.iter().copied() {
        let filter = bind(&schema, text);
        assert_eq!(evaluate(&schema, &filter, ENTRY), expected, "{text}: {filter:?}");
    }
}

/// They come in BER alone: a filter as text has none.
#[test]
fn empty_pieces() {
    let schema = schema();
    for (attribute, tag) in [("cn", 0x80), ("cn", 0x81), ("cn", 0x82), ("telephoneNumber", 0x81)] {
        let length = u8::try_from(attribute.len()).unwrap();
        let ber =
            [&[0xa4, length + 6, 0x04, length][..], attribute.as_bytes(), &[0x30, 0x02, tag, 0x00]].concat();
        let filter = schema.bind_filter(Filter::decode(&ber, 1).unwrap());
        assert_eq!(evaluate(&schema, &filter, ENTRY), Match::Undefined, "{ber:?}");
    }
}

/// A value begins and ends with a space (RFC 4518 section 2.6.1). Between other pieces a space is one between two words, as in slapd:
/// `(cn=* *)` is not true of every value.
#[test]
fn pieces_of_spaces_alone() {
    let schema = schema();
    let cases = [
        ("(sn=exam* )", Match::True),
        ("(sn=*  )", Match::True),
        ("(sn= *ample)", Match::True),
        ("(sn=  *am* )", Match::True),
        ("(sn=x* )", Match::False),
        ("(sn= *x)", Match::False),
        ("(sn=* *)", Match::False),
        ("(cn=* *)", Match::True),
        ("(cn=* * *)", Match::False),
        ("(cn=ann* *example)", Match::True),
        ("(cn=ann* * *example)", Match::False),
        ("(cn=ann * *)", Match::False),
        ("(cn=* * example)", Match::False),
        ("(cn=* *example *)", Match::True),
        ("(cn=* ann* *)", Match::True),
        ("(sn=e* *)", Match::False),
        ("(mail=ann@* )", Match::True),
        ("(telephoneNumber=+1* )", Match::True),
    ];
    for (text, expected) in cases {
        assert_eq!(evaluate(&schema, &bind(&schema, text), ENTRY), expected, "{text}");
    }
}

/// As RFC 4518, appendix B, wants it. slapd passes over what begins and ends a value, takes no space twice, and takes none at the ends
/// of pieces of IA5 strings.
#[test]
fn pieces_that_begin_or_end_with_a_space() {
    let schema = schema();
    let cases = [
        ("(cn=ann *)", Match::True),
        ("(cn=an *)", Match::False),
        ("(cn=ann *example)", Match::True),
        ("(cn=ann* example)", Match::True),
        ("(cn=ann * example)", Match::True),
        ("(cn=ann   *   example)", Match::True),
        ("(cn=\\20ann * example\\20)", Match::True),
        ("(cn=ann * * example)", Match::False),
        ("(cn=ann * xample)", Match::False),
        ("(cn=*nn * ex*)", Match::True),
        ("(cn=*nn * x*)", Match::False),
        ("(sn=example *)", Match::True),
        ("(sn=exampl *)", Match::False),
        ("(sn= example *)", Match::True),
        ("(sn=* example)", Match::True),
        ("(sn=* xample)", Match::False),
        ("(sn=* example*)", Match::True),
        ("(sn=*example *)", Match::True),
        ("(sn=* example *)", Match::True),
        ("(sn=* exampl *)", Match::False),
        ("(sn=* *example *)", Match::False),
        ("(sn=* * example*)", Match::False),
        ("(mail=ann@example.com *)", Match::True),
        ("(mail=ann@ *)", Match::False),
        ("(mail=* ann@*)", Match::True),
        ("(telephoneNumber=+1 5 *)", Match::True),
    ];
    for (text, expected) in cases {
        let found = evaluate(&schema, &bind(&schema, text), ENTRY);
        assert_eq!(found, expected, "{text}");
    }
}

/// A name with a unique identifier is like the name alone, but not equal to it.
#[test]
fn names_with_unique_identifiers() {
    let schema = schema();
    let entry: &[(&str, &str)] = &[("uniqueMember", "dc=Example,dc=com#'1000'B"), ("uniqueMember", "#'1'B")];
    let cases = [
        ("(uniqueMember=dc=example,dc=com#'1000'B)", Match::True),
        ("(uniqueMember=dc=example,dc=com)", Match::False),
        ("(uniqueMember~=dc=example,dc=com)", Match::True),
        ("(uniqueMember~=dc=example,dc=com#'1000'B)", Match::True),
        ("(uniqueMember~=dc=example,dc=com#'1001'B)", Match::False),
        ("(uniqueMember~=dc=com)", Match::False),
        ("(uniqueMember=)", Match::False),
        ("(uniqueMember~=)", Match::True),
        ("(uniqueMember~=#'1'B)", Match::True),
        ("(uniqueMember~=#'0'B)", Match::False),
    ];
    for (text, expected) in cases {
        assert_eq!(evaluate(&schema, &bind(&schema, text), entry), expected, "{text}");
    }
}

/// Whether a value matches must not depend on the way taken: quick comparison or keys.
#[test]
fn quick_paths_agree_with_keys() {
    let schema = schema();
    let values: &[&str] =
        &["a", "A", " a", "a ", "a  b", "A B", "ä", "Ä", "a\u{ad}", "ab", "", " ", "a\tb", "ß", "ẞ"];
    let scratch = &mut Scratch::default();
    for attribute in ["cn", "homeDirectory", "mail", "gecos", "userPassword"] {
        let description = schema.describe(attribute).unwrap();
        for wanted in values {
            let Ok(assertion) = schema.bind_equality(&description, wanted.as_bytes()) else { continue };
            for value in values {
                let mut key = Vec::new();
                assertion.rule.normalize_value(&schema, value.as_bytes(), &mut key).unwrap();
                assert_eq!(
                    assertion.matches(&schema, value.as_bytes(), scratch),
                    assertion.matches_key(&schema, &key),
                    "{attribute}: {value:?} {wanted:?}"
                );
            }
        }
    }
}

#[test]
fn three_values() {
    use Match::{False, True, Undefined};
    let all = [True, False, Undefined];
    for a in all {
        for b in all {
            assert_eq!(!a.and(b), (!a).or(!b), "{a:?} {b:?}");
            assert_eq!(a.and(b), b.and(a));
            assert_eq!(a.or(b), b.or(a));
        }
    }
    assert_eq!(False.and(Undefined), False);
    assert_eq!(True.or(Undefined), True);
    assert_eq!(True.and(Undefined), Undefined);
}

#[test]
fn deep_filters_are_bound() {
    let schema = schema();
    let text = format!("{}(cn=a){}", "(!".repeat(40), ")".repeat(40));
    assert!(matches!(bind(&schema, &text), BoundFilter::Not(_)));
}
