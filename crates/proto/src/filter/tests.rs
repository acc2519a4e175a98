use super::*;
use crate::ber::Fault;
use crate::limits;

#[test]
fn text_to_text() {
    let check = |text: &str, expected: &str| {
        let filter = FilterBuf::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filter.to_string(), expected, "{text}");
        let checked = Filter::decode(filter.as_ber(), limits::FILTER_DEPTH).expect("its own BER");
        assert_eq!(checked, filter.as_filter());
        assert_eq!(FilterBuf::parse(expected).as_ref(), Ok(&filter), "{expected}");
    };
    for same in [
        "(cn=Babs Jensen)",
        "(cn=)",
        "(!(cn=Tim Howes))",
        "(&(objectClass=Person)(|(sn=Jensen)(cn=Babs J*)))",
        "(o=univ*of*mich*)",
        "(seeAlso=*)",
        "(cn:caseExactMatch:=Fred Flintstone)",
        "(cn:=Betty Rubble)",
        "(sn:dn:2.4.6.8.10:=Barney Rubble)",
        "(o:dn:=Ace Industry)",
        "(:1.2.3:=Wilma Flintstone)",
        "(:dn:2.4.6.8.10:=Dino)",
        "(o=Parens R Us \\28for all your parenthetical needs\\29)",
        "(cn=*\\2A*)",
        "(filename=C:\\5CMyFile)",
        "(bin=\\00\\00\\00\\04)",
        "(sn=Lu\\C4\\8Di\\C4\\87)",
        "(cn>=a)",
        "(cn<=a)",
        "(cn~=a)",
        "(&)",
        "(|)",
        "(!(&))",
        "(!(!(!(a=b))))",
        "(&(!(&(a=b)))(|(!(c=d))))",
        "(cn;lang-de=a)",
        "(2.5.4.3=a)",
        "(a=*b)",
        "(a=b*)",
        "(a=b=c)",
        "(a= b )",
        "(x_y=1)",
    ] {
        check(same, same);
    }
    check("cn=a", "(cn=a)");
    check(" ( & ( a=b ) (c=d) ) ", "(&(a=b )(c=d))");
    check("(sn=é)", "(sn=\\C3\\A9)");
    check("(a=b**c)", "(a=b*c)");
    check("(a=\\(\\)\\*\\\\)", "(a=\\28\\29\\2A\\5C)");
    check("(a=\\28\\2a)", "(a=\\28\\2A)");
    check("(cn:DN:=x)", "(cn:dn:=x)");
}

#[test]
fn terms_are_what_nodes_are() {
    let check = |text: &str, expected: Option<(&str, Option<&str>)>| {
        let filter = FilterBuf::parse(text).expect(text);
        let term = filter.as_filter().term();
        let node = match filter.as_filter().node() {
            FilterNode::Present(name) => Some((name.as_bytes(), None)),
            FilterNode::Equality(ava) => Some((ava.attribute.as_bytes(), Some(ava.value))),
            _ => None,
        };
        assert_eq!(term, node, "{text}");
        let expected = expected.map(|(name, value)| (name.as_bytes(), value.map(str::as_bytes)));
        assert_eq!(term, expected, "{text}");
    };
    check("(cn;lang-de=a)", Some(("cn;lang-de", Some("a"))));
    check("(cn=)", Some(("cn", Some(""))));
    check("(seeAlso=*)", Some(("seeAlso", None)));
    for other in
        ["(cn=a*)", "(cn>=a)", "(cn<=a)", "(cn~=a)", "(cn:=a)", "(&(cn=a))", "(|(cn=a))", "(!(cn=a))", "(&)"]
    {
        check(other, None);
    }
}

#[test]
fn text_errors() {
    let check = |text: &str, position: usize, fault: FilterFault| {
        assert_eq!(FilterBuf::parse(text), Err(FilterSyntaxError { position, fault }), "{text}");
    };
    check("", 0, FilterFault::MissingOperator);
    check("(", 1, FilterFault::UnexpectedEnd);
    check("()", 1, FilterFault::MissingOperator);
    check("(cn=a", 5, FilterFault::UnexpectedEnd);
    check("(cn=a))", 6, FilterFault::Trailing);
    check("(cn=a)(cn=b)", 6, FilterFault::Trailing);
    check("((cn=a))", 1, FilterFault::UnescapedParenthesis);
    check("(cn)", 3, FilterFault::MissingOperator);
    check("(=a)", 1, FilterFault::BadDescription(String::new()));
    check("(c n=a)", 1, FilterFault::BadDescription("c n".into()));
    check("(&(cn=a)", 8, FilterFault::UnexpectedEnd);
    check("(&cn=a)", 2, FilterFault::MissingOpen);
    check("(!)", 2, FilterFault::MissingOpen);
    check("(!(a=b)(c=d))", 7, FilterFault::MissingClose);
    check("(cn=a\\)", 7, FilterFault::UnexpectedEnd);
    check("(cn=a\\2)", 5, FilterFault::BadEscape);
    check("(cn=\\zz)", 4, FilterFault::BadEscape);
    check("(cn=a(b)", 5, FilterFault::UnescapedParenthesis);
    check("(cn>=a*)", 6, FilterFault::UnexpectedAsterisk);
    check("(cn:=*)", 5, FilterFault::UnexpectedAsterisk);
    check("(cn=**)", 5, FilterFault::UnexpectedAsterisk);
    check("(:=a)", 1, FilterFault::BadExtensible(String::new()));
    check("(cn:a;x:=c)", 1, FilterFault::BadExtensible("a;x".into()));
    check("(cn:a:b:=c)", 1, FilterFault::BadExtensible("b".into()));
    let deep = format!("{}(a=b){}", "(!".repeat(1001), ")".repeat(1001));
    check(&deep, 2001, FilterFault::TooDeep(1000));
}

/// Nested as deep as `levels` of NOT around a presence test.
fn nested(levels: usize) -> Vec<u8> {
    let mut ber = vec![0x87, 1, b'a'];
    for _ in 0..levels {
        let mut outer = Vec::with_capacity(ber.len() + 6);
        ber::write::octets(&mut outer, NOT, &ber);
        ber = outer;
    }
    ber
}

#[test]
fn depth_is_limited_and_needs_no_stack() {
    let check = |levels, max_depth, expected: Result<(), usize>| {
        let found = Filter::decode(&nested(levels), max_depth).map(drop).map_err(|error| error.fault);
        assert_eq!(found, expected.map_err(|limit| Fault::TooDeep { limit }), "{levels} {max_depth}");
    };
    check(0, 0, Ok(()));
    check(1, 0, Err(0));
    check(1000, 1000, Ok(()));
    check(1001, 1000, Err(1000));
    check(10_000, 1000, Err(1000));
    check(10_000, usize::MAX, Err(limits::FILTER_DEPTH_CEILING));
    let deepest = nested(limits::FILTER_DEPTH_CEILING);
    let filter = Filter::decode(&deepest, usize::MAX).expect("within the ceiling");
    assert!(filter.to_string().starts_with("(!(!"));
    let text = format!("{}(a=b){}", "(!".repeat(1000), ")".repeat(1000));
    assert_eq!(FilterBuf::parse(&text).expect("within the limit").to_string(), text);
}

#[test]
fn ber_errors() {
    let check = |ber: &[u8], field: &'static str, fault: Fault| {
        assert_eq!(Filter::decode(ber, 10), Err(DecodeError::new(field, fault)), "{ber:02x?}");
    };
    check(b"", "filter", Fault::Missing);
    check(b"\x87", "filter", Fault::Truncated { needed: 2, left: 1 });
    check(b"\x87\x02a", "filter", Fault::Truncated { needed: 2, left: 1 });
    check(b"\x87\x80a\0\0", "filter", Fault::IndefiniteLength);
    check(b"\x87\x01a\x87\x01b", "filter", Fault::Trailing(3));
    check(b"\x87\x01\xff", "present", Fault::NotUtf8 { offset: 0 });
    check(b"\x04\x01a", "filter", Fault::UnexpectedTag { expected: AND, found: Tag(4) });
    check(b"\xbf\x01\0", "filter", Fault::HighTagNumber);
    check(b"\xa0\x02\x87\x05", "filter", Fault::Truncated { needed: 5, left: 0 });
    check(b"\xa2\x00", "not", Fault::Missing);
    check(b"\xa2\x06\x87\x01a\x87\x01b", "not", Fault::Trailing(3));
    check(b"\xa3\x03\x04\x01a", "assertionValue", Fault::Missing);
    check(b"\xa3\x06\x04\x01\xff\x04\x01b", "attributeDesc", Fault::NotUtf8 { offset: 0 });
    check(b"\xa4\x05\x04\x01a\x30\0", "substrings", Fault::Empty);
    check(b"\xa4\x0b\x04\x01a\x30\x06\x82\x01x\x81\x01y", "substrings", Fault::Order);
    check(b"\xa4\x0b\x04\x01a\x30\x06\x81\x01x\x80\x01y", "substrings", Fault::Order);
    check(b"\xa4\x0b\x04\x01a\x30\x06\x82\x01x\x82\x01y", "substrings", Fault::Order);
    check(b"\xa4\x08\x04\x01a\x30\x03\x83\x01x", "substring", Fault::UnknownChoice(0x83));
    check(
        b"\xa9\x03\x83\x01a",
        "extensibleMatch",
        Fault::Invalid("neither matching rule nor attribute type"),
    );
    check(b"\xa9\x03\x81\x01a", "matchValue", Fault::Missing);
}

#[test]
fn filters_are_read_node_by_node() {
    let filter = FilterBuf::parse("(cn=a*b*c*d)").expect("a filter");
    let FilterNode::Substrings(substrings) = filter.as_filter().node() else { panic!("{filter}") };
    assert_eq!(substrings.attribute, "cn");
    assert_eq!(substrings.initial, Some(&b"a"[..]));
    assert_eq!(substrings.any.iter().collect::<Vec<_>>(), [b"b", b"c"]);
    assert_eq!(substrings.final_, Some(&b"d"[..]));
    let filter = FilterBuf::parse("(|(a=1)(b=2))").expect("a filter");
    let FilterNode::Or(set) = filter.as_filter().node() else { panic!("{filter}") };
    assert_eq!(set.iter().map(|member| member.to_string()).collect::<String>(), "(a=1)(b=2)");
    // A choice that RFC 4511 does not define is no error: it evaluates to Undefined.
    let unknown = Filter::decode(b"\xaa\x03\x04\x01a", 10).expect("context-specific");
    assert_eq!(unknown.node(), FilterNode::Unknown(0xaa));
    // Any octet but zero is true.
    let extensible = Filter::decode(b"\xa9\x09\x81\x01r\x83\x01v\x84\x01\x01", 10).expect("a filter");
    assert_eq!(extensible.to_string(), "(:dn:r:=v)");
}

#[test]
fn values_of_secret_attributes_are_withheld() {
    let is_secret = |name: &str| name.eq_ignore_ascii_case("pw") || name == "pw;x-a";
    for (text, expected) in [
        ("(pw=s)", "(pw=\\28withheld\\29)"),
        ("(cn=s)", "(cn=s)"),
        ("(PW=*)", "(PW=*)"),
        ("(pw=s*t*u)", "(pw=\\28withheld\\29)"),
        (
            "(&(cn=s)(|(pw>=s)(pw<=s)(!(pw;x-a~=s))))",
            "(&(cn=s)(|(pw>=\\28withheld\\29)(pw<=\\28withheld\\29)(!(pw;x-a~=\\28withheld\\29))))",
        ),
        ("(pw:dn:r:=s)", "(pw:dn:r:=\\28withheld\\29)"),
        ("(:r:=s)", "(:r:=s)"),
    ] {
        let filter = FilterBuf::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filter.as_filter().withholding(&is_secret), expected, "{text}");
    }
}

#[test]
fn escaped_values_stand_for_themselves() {
    assert_eq!(escaped("a*(b)\\\0"), "a\\2a\\28b\\29\\5c\\00");
    let filter = FilterBuf::parse(&format!("(cn={})", escaped("a*(b)\\\0"))).expect("a filter");
    let FilterNode::Equality(assertion) = filter.as_filter().node() else { panic!("{filter}") };
    assert_eq!(assertion.value, b"a*(b)\\\0");
}
