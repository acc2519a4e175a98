use larix_proto::FilterBuf;

use super::*;
use crate::SchemaBuilder;

fn schema() -> Schema {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        builder.add_bundled(name).unwrap();
    }
    builder.build()
}

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
];

#[test]
fn filters_over_an_entry() {
    use Match::{False, True, Undefined};
    let schema = schema();
    let cases = [
        ("(cn=ann example)", True),
        ("(2.5.4.3=ann example)", True),
        ("(name=ANN EXAMPLE)", True),
        ("(cn;lang-de=anne beispiel)", True),
        ("(cn;lang-en=anne beispiel)", False),
        ("(cn;lang-=anne beispiel)", True),
        ("(cn=)", Undefined),
        ("(cn=bob)", False),
        ("(nothing=x)", Undefined),
        ("(!(nothing=x))", Undefined),
        ("(|(nothing=x)(cn=ann example))", True),
        ("(&(nothing=x)(cn=bob))", False),
        ("(&)", True),
        ("(|)", False),
        ("(!(&))", False),
        ("(cn=*)", True),
        ("(cn;lang-de=*)", True),
        ("(title=*)", False),
        ("(nothing=*)", Undefined),
        // Superclasses match; unknown names and OIDs are Undefined.
        ("(objectClass=person)", True),
        ("(objectClass=TOP)", True),
        ("(objectClass=2.5.6.6)", True),
        ("(objectClass=groupOfNames)", False),
        ("(objectClass=noSuchClass)", Undefined),
        ("(objectClass=1.2.3.4.5)", Undefined),
        ("(uidNumber=1005)", True),
        ("(uidNumber=01005)", Undefined),
        ("(uidNumber>=1000)", True),
        ("(uidNumber>=999)", True),
        ("(uidNumber<=999)", False),
        ("(uidNumber>=x)", Undefined),
        ("(cn>=a)", Undefined),
        ("(createTimestamp>=20240101000000Z)", True),
        ("(createTimestamp<=20240101130000+0100)", True),
        ("(createTimestamp<=20231231235959Z)", False),
        ("(cn=ann*)", True),
        ("(cn=*exam*)", True),
        ("(cn=*le)", True),
        ("(cn=a*n*x*e)", True),
        ("(cn=ann ex*ex*)", False),
        ("(cn=ann *)", True),
        ("(cn=ann  example*example)", False),
        ("(cn=*nn e*)", True),
        ("(mail=ann@*)", True),
        ("(telephoneNumber=*5550*)", True),
        ("(telephoneNumber=+15550100)", True),
        ("(uidNumber=1*)", Undefined),
        ("(userPassword=sec*)", Undefined),
        ("(userPassword=secret)", True),
        ("(userPassword=Secret)", False),
        ("(homeDirectory=/home/ann)", False),
        ("(homeDirectory=/home/Ann)", True),
        ("(seeAlso=CN=other, DC=example,DC=com)", True),
        ("(seeAlso=nonsense)", Undefined),
        ("(sn~=exampel)", True),
        ("(sn~=bob)", False),
        ("(uidNumber~=1005)", True),
        ("(cn:caseExactMatch:=Ann Example)", True),
        ("(cn:caseExactMatch:=ann example)", False),
        ("(cn:2.5.13.5:=Ann Example)", True),
        ("(cn:noSuchMatch:=x)", Undefined),
        ("(cn:=ann example)", True),
        ("(cn:integerBitAndMatch:=1)", Undefined),
        ("(uidNumber:1.2.840.113556.1.4.803:=5)", True),
        ("(uidNumber:1.2.840.113556.1.4.803:=2)", False),
        ("(uidNumber:1.2.840.113556.1.4.804:=3)", True),
        ("(member:dnSubtreeMatch:=dc=example,dc=com)", True),
        ("(member:dnOneLevelMatch:=dc=example,dc=com)", False),
        ("(member:1.2.840.113556.1.4.1941:=cn=x,ou=people,dc=example,dc=com)", True),
        ("(objectClass:=person)", True),
        ("(objectClass:objectIdentifierMatch:=person)", True),
    ];
    for (text, expected) in cases {
        let filter = bind(&schema, text);
        assert_eq!(evaluate(&schema, &filter, ENTRY), expected, "{text}: {filter:?}");
    }
}

/// Whether a value matches must not depend on the way taken: quick comparison or keys.
#[test]
fn quick_paths_agree_with_keys() {
    let schema = schema();
    let values: &[&str] = &["a", "A", " a", "a ", "a  b", "A B", "ä", "Ä", "a\u{ad}", "ab", "", " ", "a\tb"];
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
