use super::*;
use crate::fixture::schema;
use crate::matching_rules::{ALL_RULES, find};
use crate::time::GeneralizedTime;
use proptest::prelude::*;

fn key(schema: &Schema, rule: &str, value: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let mut out = Vec::new();
    find(rule).unwrap().normalize_value(schema, value, &mut out).map(|()| out)
}

fn assertion(schema: &Schema, rule: &str, value: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let mut out = Vec::new();
    find(rule).unwrap().normalize_assertion(schema, value, &mut out).map(|()| out)
}

/// Rule, value, assertion value, whether they match; none for Undefined.
#[rustfmt::skip]
const MATCHES: &[(&str, &str, &str, Option<bool>)] = &[
    ("caseIgnoreMatch", " Foo  BAR ", "foo bar", Some(true)),
    ("caseIgnoreMatch", "foobar", "foo bar", Some(false)),
    ("caseIgnoreMatch", "Straße", "STRASSE", Some(true)),
    ("caseIgnoreMatch", "Rene\u{301}e", "RENÉE", Some(true)),
    ("caseIgnoreMatch", "ＡＢＣ", "abc", Some(true)),
    ("caseIgnoreMatch", "a\u{ad}b", "ab", Some(true)),
    ("caseIgnoreMatch", "a\u{a0}b", "a b", Some(true)),
    ("caseIgnoreMatch", "a\tb", "a b", Some(true)),
    ("caseIgnoreMatch", "ΣΑΣ", "σας", Some(true)),
    ("caseIgnoreMatch", "😀 X", "😀 x", Some(true)),
    ("caseIgnoreMatch", "  ", " ", Some(true)),
    ("caseExactMatch", "Foo  Bar", "Foo Bar", Some(true)),
    ("caseExactMatch", "Foo", "foo", Some(false)),
    ("caseExactMatch", "ﬁ", "fi", Some(true)),
    ("caseIgnoreIA5Match", "A@B.c ", "a@b.C", Some(true)),
    ("caseExactIA5Match", "A", "a", Some(false)),
    ("numericStringMatch", "12 34", "1234", Some(true)),
    ("numericStringMatch", "012", "12", Some(false)),
    ("telephoneNumberMatch", "+1 555-12", "+155512", Some(true)),
    ("telephoneNumberMatch", "+1", "1", Some(false)),
    ("caseIgnoreListMatch", "A  b $ C", "a b$c", Some(true)),
    ("caseIgnoreListMatch", "a$b", "ab", Some(false)),
    ("booleanMatch", "TRUE", "TRUE", Some(true)),
    ("booleanMatch", "TRUE", "maybe", None),
    ("integerMatch", "7", "007", Some(true)),
    ("integerMatch", "-7", "7", Some(false)),
    ("integerMatch", "12345678901234567890", "12345678901234567891", Some(false)),
    ("integerMatch", "7", "x", None),
    ("bitStringMatch", "'01'B", "'01'B", Some(true)),
    ("bitStringMatch", "'01'B", "'10'B", Some(false)),
    ("octetStringMatch", "a", "A", Some(false)),
    ("generalizedTimeMatch", "20240101120000Z", "20240101130000+0100", Some(true)),
    ("generalizedTimeMatch", "20240101120000.50Z", "202401011200Z", Some(false)),
    ("generalizedTimeMatch", "20240101120000.00Z", "2024010112Z", Some(true)),
    ("generalizedTimeMatch", "20240101120000Z", "2024010112Z", Some(true)),
    ("generalizedTimeMatch", "20240229235960Z", "20240301000000Z", Some(true)),
    ("generalizedTimeMatch", "2024010112.255Z", "20240101121518Z", Some(true)),
    ("distinguishedNameMatch", "CN=A B,DC=X", "cn = a  b , dc=x", Some(true)),
    ("distinguishedNameMatch", "cn=a,dc=x", "dc=x", Some(false)),
    ("distinguishedNameMatch", "cn=a+ou=b", "OU=B+CN=A", Some(true)),
    ("distinguishedNameMatch", "cn=a", "nonsense", None),
    ("rdnMatch", "CN=A", "cn=a", Some(true)),
    ("uniqueMemberMatch", "CN=A#'01'B", "cn=a#'01'B", Some(true)),
    ("uniqueMemberMatch", "CN=A#'01'B", "cn=a", Some(false)),
    (
        "UUIDMatch",
        "01234567-89ab-cdef-0123-456789ABCDEF",
        "01234567-89AB-cdef-0123-456789abcdef",
        Some(true),
    ),
    ("UUIDMatch", "01234567-89ab-cdef-0123-456789ABCDEF", "zz", None),
    ("UUIDMatch", "0-1234567-89ab-cdef0-123456789ABCDEF", "01234567-89ab-cdef-0123-456789abcdef", Some(true)),
    ("UUIDMatch", "01234567-89ab-cdef-0123-456789ABCDEF", "0-1234567-89ab-cdef0-123456789abcdef", None),
    ("UUIDMatch", "30313233-3435-3637-3839-616263646566", "0123456789abcdef", None),
    (
        "CSNMatch",
        "20240102030405Z#000000#01#000000",
        "20240102030405.000000Z#000000#001#000000",
        Some(true),
    ),
    ("CSNSIDMatch", "20240102030405.000000Z#000000#0AB#000000", "0ab", Some(true)),
    ("objectIdentifierMatch", "cn", "2.5.4.3", Some(true)),
    ("objectIdentifierMatch", "1.2.3", "1.2.3", Some(true)),
    ("objectIdentifierMatch", "1.2.3", "noSuchName", None),
    ("objectIdentifierFirstComponentMatch", "( 2.5.4.3 NAME 'cn' )", "2.5.4.3", Some(true)),
    ("objectIdentifierFirstComponentMatch", "( 2.5.4.3 NAME 'cn' )", "CN", Some(true)),
    ("integerFirstComponentMatch", "( 5 NAME 'x' )", "5", Some(true)),
    ("integerBitAndMatch", "7", "5", Some(true)),
    ("integerBitAndMatch", "4", "5", Some(false)),
    ("integerBitOrMatch", "4", "5", Some(true)),
    ("integerBitOrMatch", "2", "5", Some(false)),
    ("integerBitAndMatch", "-2147483646", "2147483648", Some(true)),
    ("integerBitAndMatch", "x", "5", None),
    ("dnSubtreeMatch", "cn=a,dc=x", "DC=X", Some(true)),
    ("dnSubtreeMatch", "dc=x", "dc=x", Some(true)),
    ("dnSubtreeMatch", "cn=adc=x", "dc=x", Some(false)),
    ("dnSubordinateMatch", "dc=x", "dc=x", Some(false)),
    ("dnSubordinateMatch", "cn=a,ou=b,dc=x", "dc=x", Some(true)),
    ("dnOneLevelMatch", "cn=a,dc=x", "dc=x", Some(true)),
    ("dnOneLevelMatch", "cn=a,ou=b,dc=x", "dc=x", Some(false)),
    ("dnSuperiorMatch", "dc=x", "cn=a,dc=x", Some(true)),
    ("dnSuperiorMatch", "dc=x", "dc=x", Some(false)),
    ("directoryStringApproxMatch", "Philip Smith", "filip smyth", Some(true)),
    ("directoryStringApproxMatch", "John Fitzgerald Kennedy", "john kennedy", Some(true)),
    ("directoryStringApproxMatch", "John Kennedy", "kennedy john", Some(false)),
    ("wordMatch", "The quick-brown Fox", "brown", Some(true)),
    ("wordMatch", "The quick-brown Fox", "quick-brown", Some(false)),
    ("keywordMatch", "The quick-brown, Fox", "Quick-Brown", Some(true)),
    ("keywordMatch", "foxes", "fox", Some(false)),
    ("directoryStringFirstComponentMatch", "( 'Some' x )", "some", Some(true)),
    ("directoryStringFirstComponentMatch", "some", "some", None),
    ("authzMatch", "{0}dn:CN=A B,DC=X", "dn.exact:cn=a  b, dc=x", Some(true)),
    ("authzMatch", "dn:cn=a,dc=x", "{1}cn=A,dc=x", Some(true)),
    ("authzMatch", "dn.subtree:cn=a,dc=x", "dn:cn=a,dc=x", Some(false)),
    ("authzMatch", "dn.regex:^cn=A", "dn.regex:^cn=a", Some(false)),
    ("authzMatch", "group/groupOfNames:cn=A,dc=x", "Group/GROUPOFNAMES:CN=a, dc=x", Some(true)),
    ("authzMatch", "group/nosuch/none:cn=a,dc=x", "{2}group/nosuch/none:cn=A,dc=x", Some(true)),
    ("authzMatch", "group:cn=A,dc=x", "group.exact:CN=a, dc=x", Some(true)),
    ("authzMatch", "ldap:///dc=x??sub?(cn=a)", "{0}LDAP:///DC=X??subtree?(cn=%61)", Some(true)),
    ("authzMatch", "ldap:///dc=x", "ldap:///dc=x??base", Some(true)),
    ("authzMatch", "ldap:///dc=x??sub?(cn=a)", "ldap:///dc=x??one?(cn=a)", Some(false)),
    ("authzMatch", "ldap:///dc=x??sub?(cn=a)", "ldap:///dc=x??sub?(cn=A)", Some(false)),
    ("authzMatch", "*", "{0}dn.subtree:*", Some(true)),
    ("authzMatch", "*", "dn:", Some(false)),
    ("authzMatch", "dn:cn=a,dc=x", "nonsense", None),
    ("presentationAddressMatch", "x", "x", None),
    ("certificateMatch", "x", "x", None),
];

#[test]
fn equality_rules_match() {
    let schema = schema();
    for (rule, value, wanted, expected) in MATCHES.iter().copied() {
        let keys = key(&schema, rule, value.as_bytes())
            .and_then(|v| Ok((v, assertion(&schema, rule, wanted.as_bytes())?)));
        let found = match keys {
            Ok((value, wanted)) => match find(rule).unwrap().compare_keys(&schema, &value, &wanted) {
                Match::True => Some(true),
                Match::False => Some(false),
                Match::Undefined => None,
            },
            Err(InvalidValue) => None,
        };
        assert_eq!(found, expected, "{rule}: {value} / {wanted}");
    }
}

#[test]
fn keys_keep_the_order_of_values() {
    let schema = schema();
    let ascending: [(&str, &[&str]); 5] = [
        (
            "integerOrderingMatch",
            &[
                "-100000000000000000000",
                "-101",
                "-100",
                "-99",
                "-10",
                "-9",
                "-1",
                "0",
                "1",
                "9",
                "10",
                "11",
                "99",
                "100",
                "18446744073709551616",
            ],
        ),
        (
            "generalizedTimeOrderingMatch",
            &[
                "19991231235959Z",
                "20240101000000Z",
                "20240101000000.000001Z",
                "20240101000000.5Z",
                "20240101000000.51Z",
                "20240101000001Z",
            ],
        ),
        ("caseIgnoreOrderingMatch", &["a", "B", "b c", "Ba", "c"]),
        (
            "UUIDOrderingMatch",
            &[
                "00000000-0000-0000-0000-000000000001",
                "00000000-0000-0000-0000-0000000000A0",
                "10000000-0000-0000-0000-000000000000",
            ],
        ),
        (
            "CSNOrderingMatch",
            &[
                "20240102030405Z#000000#00#000000",
                "20240102030405.000001Z#000000#000#000000",
                "20240102030405.000001Z#00000A#000#000000",
                "20240102030405.000001Z#00000b#000#000000",
            ],
        ),
    ];
    for (rule, values) in ascending {
        let keys: Vec<_> = values.iter().map(|value| key(&schema, rule, value.as_bytes()).unwrap()).collect();
        for (pair, values) in keys.windows(2).zip(values.windows(2)) {
            assert!(pair[0] < pair[1], "{rule}: {values:?}");
        }
    }
    // Digits beyond the short form of the length.
    let long = |digits: usize| key(&schema, "integerMatch", "9".repeat(digits).as_bytes()).unwrap();
    assert!(long(62) < long(63) && long(63) < long(64) && long(64) < long(300));
}

#[test]
fn object_classes_are_filed_under_their_superclasses() {
    let schema = schema();
    let rule = schema.attribute_type("objectClass").unwrap().equality.unwrap();
    let mut keys = Vec::new();
    rule.index_keys(&schema, b"OrganizationalPerson", &mut |key| {
        keys.push(String::from_utf8(key.to_vec()).unwrap())
    })
    .unwrap();
    keys.sort();
    assert_eq!(keys, ["2.5.6.0", "2.5.6.6", "2.5.6.7"]);
    assert!(rule.indexable_equality());
    assert!(!find("integerBitAndMatch").unwrap().indexable_equality());
    assert!(find("caseIgnoreOrderingMatch").unwrap().shares_keys_with(find("caseIgnoreMatch").unwrap()));
}

/// A self-signed certificate of `cn=Test CA,o=Example`, serial number 4660 (openssl req -x509).
#[test]
fn certificates_match_by_serial_number_and_issuer() {
    let schema = schema();
    let name = b"\x30\x24\x31\x10\x30\x0e\x06\x03\x55\x04\x0a\x0c\x07Example\x31\x10\x30\x0e\x06\x03\x55\x04\x03\x13\x07Test CA";
    let sequence = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        let mut out = vec![tag, 0x82, (content.len() >> 8) as u8, content.len() as u8];
        out.extend(content);
        out
    };
    let algorithm = b"\x30\x02\x06\x00";
    let validity = b"\x30\x1e\x17\x0d240101000000Z\x17\x0d250101000000Z";
    let body = sequence(
        0x30,
        &[b"\xa0\x03\x02\x01\x02", b"\x02\x02\x12\x34", algorithm, name, validity, name, b"\x30\x00"],
    );
    let certificate = sequence(0x30, &[&body, algorithm, b"\x03\x01\x00"]);
    let syntax = schema.syntax("1.3.6.1.4.1.1466.115.121.1.8").unwrap();
    assert_eq!(syntax.validate(&schema, &certificate), Ok(()));
    assert!(syntax.validate(&schema, &certificate[1..]).is_err());
    let value = key(&schema, "certificateExactMatch", &certificate).unwrap();
    let asserted = |text: &str| assertion(&schema, "certificateExactMatch", text.as_bytes()).unwrap();
    assert_eq!(value, asserted("{ serialNumber 4660, issuer rdnSequence:\"CN=test ca,O=example\" }"));
    assert_eq!(value, asserted("04660$cn=Test CA,o=Example"));
    assert_eq!(value, asserted("{ issuer \"CN=test ca,O=example\", serialNumber '1234'H }"));
    assert_ne!(value, asserted("4661$cn=Test CA,o=Example"));
    // Digits in hex are a number without a sign, however many there are.
    assert_eq!(value, asserted("{ issuer \"CN=test ca,O=example\", serialNumber '01234'H }"));
    assert_eq!(asserted("255$cn=a"), asserted("{ issuer \"CN=a\", serialNumber 'FF'H }"));
    let body = sequence(0x30, &[b"\x02\x01\x01", algorithm, name, b"\x17\x0d240101000000Z"]);
    let list = sequence(0x30, &[&body, algorithm, b"\x03\x01\x00"]);
    assert_eq!(schema.syntax("1.3.6.1.4.1.1466.115.121.1.9").unwrap().validate(&schema, &list), Ok(()));
    assert_eq!(
        key(&schema, "certificateListExactMatch", &list),
        assertion(
            &schema,
            "certificateListExactMatch",
            b"{ issuer rdnSequence:\"cn=Test CA,o=Example\", thisUpdate \"20240101000000Z\" }"
        )
    );
}

proptest! {
    #[test]
    fn integer_keys_compare_like_integers(a: i128, b: i128) {
        let schema = Schema::system();
        let (x, y) = (key(schema, "integerMatch", a.to_string().as_bytes()).unwrap(), key(schema, "integerMatch", b.to_string().as_bytes()).unwrap());
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
    }

    #[test]
    fn small_integers_compare_like_integers(a in -1000_i32..1000, b in -1000_i32..1000) {
        let schema = Schema::system();
        let (x, y) = (key(schema, "integerMatch", a.to_string().as_bytes()).unwrap(), key(schema, "integerMatch", b.to_string().as_bytes()).unwrap());
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
    }

    /// Keys are fixed points, and the quick comparison never contradicts them.
    #[test]
    fn string_keys_are_stable(a in "\\PC{0,12}", b in "[ a-bA-BeE\u{e9}\u{c9}\u{301}\u{ad}]{0,5}", c in "[ a-bA-BeE\u{e9}\u{c9}\u{301}\u{ad}]{0,5}") {
        let schema = Schema::system();
        for rule in ["caseIgnoreMatch", "caseExactMatch"] {
            let once = key(schema, rule, a.as_bytes()).unwrap();
            prop_assert_eq!(&key(schema, rule, &once).unwrap(), &once);
            let (x, y) = (key(schema, rule, b.as_bytes()).unwrap(), key(schema, rule, c.as_bytes()).unwrap());
            if let Some(equal) = crate::prep::quick_equal(&x, c.as_bytes(), rule == "caseIgnoreMatch") {
                prop_assert_eq!(equal, x == y, "{} {:?} {:?}", rule, b, c);
            }
        }
    }

    /// Equal keys exactly when a naive comparison says so.
    #[test]
    fn ascii_keys_equal_when_folded_words_are(a in "[ aAbB]{0,5}", b in "[ aAbB]{0,5}") {
        let schema = Schema::system();
        let words = |text: &str| {
            let folded = text.to_lowercase();
            let words = folded.split(' ').filter(|w| !w.is_empty()).map(str::to_owned);
            (text.is_empty(), words.collect::<Vec<_>>())
        };
        let key = |text: &str| key(schema, "caseIgnoreMatch", text.as_bytes()).unwrap();
        let (x, y) = (key(&a), key(&b));
        prop_assert_eq!(x == y, words(&a) == words(&b));
    }

    #[test]
    fn times_compare_like_instants(a in 0_i64..4_000_000_000, b in 0_i64..4_000_000_000, fraction in "[0-9]{1,6}") {
        let schema = Schema::system();
        let text = |seconds| format!("{}.{fraction}Z", crate::time::format_seconds(seconds));
        let (x, y) = (text(a), text(b));
        let keys = (key(schema, "generalizedTimeMatch", x.as_bytes()).unwrap(), key(schema, "generalizedTimeMatch", y.as_bytes()).unwrap());
        prop_assert_eq!(keys.0.cmp(&keys.1), a.cmp(&b));
        prop_assert_eq!(GeneralizedTime::parse(x.as_bytes()).unwrap().seconds, a);
    }

    /// Nothing that comes from outside makes a rule or a syntax panic.
    #[test]
    fn any_octets_are_survived(value in proptest::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,30}") {
        let schema = Schema::system();
        for rule in ALL_RULES {
            for value in [value.as_slice(), text.as_bytes()] {
                let mut out = Vec::new();
                let _ = rule.normalize_value(schema, value, &mut out);
                let _ = rule.normalize_assertion(schema, value, &mut out);
                for position in [SubstringPosition::Initial, SubstringPosition::Any, SubstringPosition::Final] {
                    let _ = rule.normalize_substring(schema, value, position, &mut out);
                }
            }
        }
        for syntax in schema.syntaxes() {
            for value in [value.as_slice(), text.as_bytes()] {
                let valid = syntax.validate(schema, value).is_ok();
                prop_assert_eq!(valid, syntax.pretty(schema, value).is_ok(), "{}", &syntax.oid);
            }
        }
    }
}
