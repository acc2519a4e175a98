use super::*;

#[test]
fn dns_are_written_as_slapdn_does() {
    // What slapdn of OpenLDAP 2.5 gives as "pretty", attribute names and the order of AVAs apart.
    let check = |text: &str, expected: &str| {
        let dn = Dn::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(dn.to_string(), expected, "{text}");
        assert_eq!(Dn::parse(expected).map(|dn| dn.to_string()).as_deref(), Ok(expected), "{expected}");
    };
    for same in
        ["", "dc=x", "cn=a,dc=x", "cn=a+sn=b,dc=x", "2.5.4.3=x,dc=x", "cn=a  b", "cn=a#b", "cn=é", "cn="]
    {
        check(same, same);
    }
    check("cn=a=b", "cn=a\\3Db");
    check("cn=a\\=b", "cn=a\\3Db");
    check("cn=a\\,b", "cn=a\\2Cb");
    check("cn=\"a,b;c<d>\",dc=x", "cn=a\\2Cb\\3Bc\\3Cd\\3E,dc=x");
    check("cn=\"a\\\"b\" ;dc=x", "cn=a\\22b,dc=x");
    check("cn=\\ a \\ ,dc=x", "cn=\\20a \\20,dc=x");
    check("cn=\\#x#", "cn=\\23x#");
    check("cn=a\\\"b\\\\c\\+d\\;e\\<f\\>g", "cn=a\\22b\\5Cc\\2Bd\\3Be\\3Cf\\3Eg");
    check("cn = Foo ; dc=x", "cn=Foo,dc=x");
    check("  cn\t=\tFoo\n,\r dc=x", "cn=Foo,dc=x");
    check("cn=\\C3\\A9é", "cn=éé");
    check("cn=\\00a", "cn=\\00a");
    check("cn=\\0aa\\09", "cn=\\0Aa\\09");
    check("cn=a\\0db", "cn=a\rb");
    check("cn=\\20x\\20", "cn=\\20x\\20");
    check("cn;lang-en=x+sn=y", "cn=x+sn=y");
    check("cn=#0403616263,dc=x", "cn=#0403616263,dc=x");
    check("cn=#04ab ,dc=x", "cn=#04AB,dc=x");
    check("cn=\\ff", "cn=\\FF");
    check("cn=  ,dc=x", "cn=,dc=x");
    check("cn=a b ,dc=x", "cn=a b,dc=x");
}

#[test]
fn errors_of_dns_have_a_position() {
    let check = |text: &str, position: usize, fault: DnFault| {
        assert_eq!(Dn::parse(text), Err(DnSyntaxError { position, fault }), "{text}");
    };
    check(" ", 1, DnFault::MissingType);
    check("cn", 2, DnFault::MissingEquals);
    check("cn=a,", 5, DnFault::MissingType);
    check("cn=a,,dc=x", 5, DnFault::MissingType);
    check(",cn=a", 0, DnFault::MissingType);
    check("cn=a+", 5, DnFault::MissingType);
    check("=a", 0, DnFault::MissingType);
    check("cn a=b", 3, DnFault::MissingEquals);
    check("oid.2.5.4.3=x", 3, DnFault::MissingEquals);
    check("2.5..4=x", 0, DnFault::MissingType);
    check("2.5.=x", 0, DnFault::MissingType);
    check("cn=a\\", 4, DnFault::BadEscape);
    check("cn=a\\z", 4, DnFault::BadEscape);
    check("cn=a\\2", 4, DnFault::BadEscape);
    check("cn=a\"b", 4, DnFault::Unescaped('"'));
    check("cn=a<b", 4, DnFault::Unescaped('<'));
    check("cn=\"a", 3, DnFault::UnclosedQuote);
    check("cn=\"a\\", 3, DnFault::UnclosedQuote);
    check("cn=\"a\"b", 6, DnFault::MissingSeparator);
    check("cn=#0", 5, DnFault::BadHex);
    check("cn=#0g", 5, DnFault::BadHex);
    check("cn=#00 g", 7, DnFault::BadHex);
    check("cn=a\0", 4, DnFault::Nul);
    check("é=a", 0, DnFault::MissingType);
}

#[test]
fn a_dn_has_rdns_of_pairs() {
    let dn = Dn::parse("uid=a+ou=\\62,dc=x").expect("a DN");
    assert_eq!(dn.len(), 2);
    let avas: Vec<_> = dn.rdns()[0].avas().iter().map(|ava| (ava.attribute, &ava.value[..])).collect();
    assert_eq!(avas, [("uid", &b"a"[..]), ("ou", b"b")]);
    // A value without escapes is a piece of the text.
    assert!(matches!(dn.rdns()[1].avas()[0].value, Cow::Borrowed(b"x")));
    assert_eq!(Rdn::parse("cn=a").map(|rdn| rdn.to_string()).as_deref(), Ok("cn=a"));
    assert_eq!(Rdn::parse("").map_err(|error| error.fault), Err(DnFault::MissingType));
    assert_eq!(Rdn::parse("cn=a,dc=x").map_err(|error| error.fault), Err(DnFault::NotOneRdn));
}
