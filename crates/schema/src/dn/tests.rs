use proptest::prelude::*;

use super::*;
use crate::SchemaBuilder;
use crate::fixture::schema;

/// What slapdn of OpenLDAP 2.5 says: text, normal form, pretty form.
#[test]
fn forms_are_those_of_openldap() {
    let schema = schema();
    let cases = [
        ("CN=Foo  Bar , OU=A+UID=b,dc=X", "cn=foo bar,ou=a+uid=b,dc=x", "cn=Foo  Bar,ou=A+uid=b,dc=X"),
        ("2.5.4.3=Foo", "cn=foo", "cn=Foo"),
        ("UID=b+OU=A", "ou=a+uid=b", "ou=A+uid=b"),
        (r#"cn=a\,b\+c\"d"#, r"cn=a\2Cb\2Bc\22d", r"cn=a\2Cb\2Bc\22d"),
        (r#"cn="a,b""#, r"cn=a\2Cb", r"cn=a\2Cb"),
        (r"cn=\20a\20", "cn=a", r"cn=\20a\20"),
        ("cn=Renée", "cn=renée", "cn=Renée"),
        ("uidNumber=7", "uidNumber=7", "uidNumber=7"),
        ("cn=a;dc=b", "cn=a,dc=b", "cn=a,dc=b"),
        ("cn;lang-en=foo", "cn=foo", "cn=foo"),
        ("cn=a=b", r"cn=a\3Db", r"cn=a\3Db"),
        (r"cn=\23foo", r"cn=\23foo", r"cn=\23foo"),
        ("objectClass=INETorgPerson", "objectClass=inetOrgPerson", "objectClass=inetOrgPerson"),
        (r"member=CN=Foo\2cDC=X", r"member=cn\3Dfoo\2Cdc\3Dx", r"member=cn\3DFoo\2Cdc\3DX"),
        ("cn=é\\ ", "cn=é", r"cn=é\20"),
        ("postalAddress=A $ B", "postalAddress=a$b", "postalAddress=A $ B"),
        ("commonName=x", "cn=x", "cn=x"),
        (r"cn=a\5Cb", r"cn=a\5Cb", r"cn=a\5Cb"),
        ("cn=😀Ab", "cn=😀ab", "cn=😀Ab"),
        ("mail=Foo@Bar", "mail=foo@bar", "mail=Foo@Bar"),
        ("", "", ""),
    ];
    for (text, normal, pretty) in cases {
        assert_eq!(schema.parse_dn(text).unwrap().as_str(), normal, "{text}");
        assert_eq!(schema.pretty_dn(&Dn::parse(text).unwrap()).unwrap(), pretty, "{text}");
        // Normal and pretty forms are fixed points.
        assert_eq!(schema.parse_dn(normal).unwrap().as_str(), normal, "{text}");
        assert_eq!(schema.parse_dn(pretty).unwrap().as_str(), normal, "{text}");
        assert_eq!(schema.pretty_dn(&Dn::parse(pretty).unwrap()).unwrap(), pretty, "{text}");
        for (text, shown) in
            [(text, pretty), (normal, schema.pretty_dn(&Dn::parse(normal).unwrap()).unwrap().as_str())]
        {
            let (dn, got) = schema.parse_and_show_dn(text).unwrap();
            assert_eq!((dn.as_str(), got.as_str()), (normal, shown), "{text}");
        }
    }
    for text in [
        "cn=#0403666f6f",
        "foo=bar,dc=x",
        "1.2.3.4=bar,dc=x",
        "cn= ",
        "cn=",
        "uidNumber=007",
        "cn=<a>;b",
        "cn=#foo",
        "cn=a+cn=b",
        r"userPassword=A\ffb",
        "dc=Ex,",
        ",dc=x",
        "userCertificate;binary=#3003",
        "boolean=TRUE",
        "x-y-z=1",
        "olcAccess=a",
    ] {
        assert!(schema.parse_dn(text).is_err(), "{text}");
    }
}

#[test]
fn names_know_their_parts() {
    let schema = schema();
    let name = schema.parse_dn(r"cn=a\,b,ou=c,dc=d").unwrap();
    let parent = name.parent().unwrap();
    assert_eq!(parent.as_str(), "ou=c,dc=d");
    assert_eq!(parent, schema.parse_dn("OU=C,DC=D").unwrap());
    assert_eq!(name.rdn().unwrap().as_str(), r"cn=a\2Cb");
    assert_eq!(name.rdns().map(|rdn| rdn.len()).collect::<Vec<_>>(), [8, 4, 4]);
    assert_eq!(NormalDn::join(&name.rdn().unwrap(), &parent), name);
    assert_eq!(NormalDn::from_normal(name.as_str()).depth(), 3);
    assert_eq!(name.ancestor(3), Some(NormalDn::root()));
    assert_eq!(name.ancestor(4), None);
    assert!(name.is_descendant_of(&parent) && name.is_within(&name) && !name.is_descendant_of(&name));
    assert!(name.is_descendant_of(&NormalDn::root()) && !parent.is_within(&name));
    let root = NormalDn::root();
    assert!(name.is_within(&root) && root.is_within(&root) && !root.is_within(&name));
    assert!(
        name.ancestor(name.depth()).is_some_and(|above_all| name.is_within(&above_all) && above_all == root)
    );
    assert!(!schema.parse_dn("cn=xdc=d").is_ok_and(|dn| dn.is_within(&schema.parse_dn("dc=d").unwrap())));
    assert_eq!(NormalDn::root().parent(), None);
    assert_eq!(NormalDn::join(&NormalRdn::from_normal("dc=x"), &NormalDn::root()).as_str(), "dc=x");
}

#[test]
fn plain_names_take_the_short_way() {
    let schema = schema();
    let takes = |text: &str| plain::write_plain(&schema, text, &mut String::new(), &mut SmallVec::new());
    for text in ["dc=example,dc=com", "UID=ann.b@c,ou=My People,dc=x", "homeDirectory=/Home"] {
        assert!(takes(text), "{text}");
    }
    for text in [
        "",
        "dc=a, dc=b",
        "cn=a  b",
        "cn=a ",
        "cn= a",
        "cn=a+ou=b",
        "cn=\u{e4}",
        "cn=a\\,b",
        "uidNumber=7",
        "cn=",
        "dc=x,",
    ] {
        assert!(!takes(text), "{text}");
    }
}

proptest! {
    /// Both ways to the normal form lead to the same name, or both to an error; and it is a fixed point.
    #[test]
    fn the_short_way_leads_where_the_long_one_does(
        text in "(([cC][nN]|ou|homeDirectory|uidNumber|x) ?= ?[a-bA-B0-1 .,+=\\\\#\u{e4}]{0,6},?){0,3}"
    ) {
        let schema = schema();
        let long = Dn::parse(&text).map_err(DnError::from).and_then(|dn| schema.normalize_dn(&dn));
        let short = schema.parse_dn(&text);
        prop_assert_eq!(short.is_ok(), long.is_ok(), "{:?} {:?}", short, long);
        if let (Ok(short), Ok(long)) = (short, long) {
            prop_assert_eq!(&short, &long);
            prop_assert_eq!(short.rdns().collect::<Vec<_>>(), long.rdns().collect::<Vec<_>>());
            prop_assert_eq!(schema.parse_dn(short.as_str()), Ok(long.clone()));
            let again = NormalDn::from_normal(long.as_str());
            prop_assert_eq!(again.rdns().collect::<Vec<_>>(), long.rdns().collect::<Vec<_>>());
            let pretty = schema.pretty_dn(&Dn::parse(&text).unwrap()).unwrap();
            prop_assert_eq!(schema.parse_dn(&pretty), Ok(long));
        }
    }
}

/// What one schema says of a superior is not taken for another, and each name stays its own.
#[test]
fn remembered_superiors_give_what_parsing_gives() {
    let first = schema();
    let mut builder = SchemaBuilder::from(&first);
    builder
        .add_attribute_type(
            "( 1.2.3.4.5 NAME 'exact' EQUALITY caseExactMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )",
        )
        .unwrap();
    let second = builder.build();
    let check = |schema: &Schema, text: &str| {
        let expected = schema.normalize_dn(&Dn::parse(text).unwrap()).unwrap();
        // A name is remembered from its second time on.
        for _ in 0..4 {
            let dn = schema.parse_dn(text).unwrap();
            assert_eq!(dn, expected, "{text}");
            assert!(dn.rdns().eq(expected.rdns()), "{text}");
            let parents = (0..=dn.depth()).map(|levels| dn.ancestor(levels).unwrap());
            assert!(parents.eq((0..=dn.depth()).map(|levels| expected.ancestor(levels).unwrap())), "{text}");
        }
    };
    for text in [
        "uid=A,ou=People,dc=X",
        "uid=BB,ou=People,dc=X",
        "uid=B,OU=people,dc=x",
        "cn=C,ou=Peoplf,dc=X",
        "ou=People,dc=X",
        "dc=X",
        "uid=A+cn=B,ou=People,dc=X",
        "uid=a,ou=Pe\\2Cple,dc=X",
        "",
    ] {
        check(&first, text);
        check(&second, text);
    }
    assert!(first.parse_dn("uid=a,exact=B,dc=X").is_err());
    check(&second, "uid=a,exact=B,dc=X");
    assert!(first.parse_dn("uid=a,exact=B,dc=X").is_err(), "the other schema's superior");
    assert!(Schema::system().parse_dn("cn=a,").is_err() && first.parse_dn("cn=a,").is_err());
    let long = format!("ou={},dc=X", "Y".repeat(600));
    check(&first, &format!("uid=a,{long}"));
    check(&first, &format!("uid=b,{long}"));
}
