use crate::fixture::schema;

/// Arc of 1.3.6.1.4.1.1466.115.121.1 or a whole OID, valid values, invalid values.
type Row = (&'static str, &'static [&'static [u8]], &'static [&'static [u8]]);

#[rustfmt::skip]
const VALUES: &[Row] = &[
    ("5", &[b"\x30\x00"], &[b"", b"\x30"]),
    ("6", &[b"'0101'B", b"''B"], &[b"", b"'2'B", b"'01'", b"01B", b"'01'b"]),
    ("7", &[b"TRUE", b"FALSE"], &[b"true", b"", b"1", b"TRUE "]),
    ("11", &[b"DE", b"us"], &[b"D", b"DEU", b"D_", b""]),
    ("12", &[b"", b"cn=a", b"CN=A,dc=b"], &[b"cn", b"cn=a,,dc=b", b"undefinedattr=b", b"\xff"]),
    ("14", &[b"any", b"telex $ G3FAX", b"mhs$ia5", b"mhs  $  ia5"],
        &[b"", b"fax", b"any $", b"any $ $ mhs", b" any", b"any ", b"any\n", b"mhs\t$ ia5"]),
    ("15", &["Ä".as_bytes(), b" ", "😀".as_bytes()], &[b"", b"\xff", b"a\xc3"]),
    ("22", &[b"+1 555$twoDimensional", b"1"], &[b"", b"$", b"1$", b"*"]),
    ("24", &[b"20240101000000Z", b"2024010100Z", b"20240101000000.5+0100", b"2024010100.5Z"],
        &[b"20240101", b"20240101000000", b"99991231235959-0100", b"x"]),
    ("26", &[b"", b"abc"], &["ä".as_bytes(), b"\x80"]),
    ("27", &[b"0", b"-1", b"12345678901234567890123"], &[b"", b"-", b"-0", b"00", b"01", b"1 ", b"+1", b"0x1"]),
    ("28", &[b"", b"\xff\xd8"], &[]),
    ("34", &[b"cn=a", b"cn=a#'01'B", b"cn=a#b"], &[b"a#'01'B"]),
    ("36", &[b"1 2", b"0", b" "], &[b"", b"1a", b"-1", b"1\t2", b"1\n"]),
    ("38", &[b"1.2.3", b"cn", b"a-b", b"0.9"], &[b"", b"1.", b".1", b"1..2", b"01.2", b"1.2.a", b"-a", b"a_b"]),
    ("40", &[b"", b"\x00\xff"], &[]),
    ("41", &[b"a$b", b"a\\24$\\5c", b""], &[b"a\\$", b"a\\2", b"\xff"]),
    ("44", &[b"Az09 '()+,-./:?="], &[b"", b"*", b"a@b", "ä".as_bytes()]),
    ("50", &[b"+1 (555) 12-34"], &[b"", b"555#1"]),
    ("52", &[b"1$2$3"], &[b"", b"1$$3"]),
    ("53", &[b"240101000000Z", b"2401010000+0100"], &[b"20240101000000Z", b"2401", b"2401010000.5Z"]),
    ("1", &[], &[b"", b"x"]),
    ("3", &[b"( 2.5.4.3 NAME 'cn' SUP name )"], &[b"", b"cn", b"( )", b"( 1.2", b"( 1.2 ) x"]),
    ("17", &[b"( 5 FORM x )"], &[b"5"]),
    ("21", &[b"person#(sn$EQ&cn$substr)|!?true#oneLevel"], &[b"", b"person#sn$EQ", b"person#sn$EQ#all", b"#sn$EQ#oneLevel", b"a#sn$X#oneLevel"]),
    ("25", &[b"person#sn$EQ", b"sn$EQ|(cn$GE)"], &[b"", b"sn", b"(sn$EQ", b"sn$EQ)"]),
    ("51", &[b"terminal", b"t$graphic:x$misc:"], &[b"", b"t$x:y", b"t$graphic"]),
    ("58", &[b"a*", b"*", b"*a\\2A*"], &[b"", b"a", b"**", b"*\\2b"]),
    ("1.2.36.79672281.1.5.0", &[b"cn=a", b"cn=a+ou=b"], &[b"cn=a,dc=b", b"a"]),
    ("1.3.6.1.1.1.0.0", &[b"(a,b,c)", b"(,,)", b"(-,user,-)"], &[b"", b"a,b,c", b"(a,b)", b"(a,b,c,d)", b"(a b,,)"]),
    ("1.3.6.1.1.1.0.1", &[b"root=host:/path/x", b"a=b:"], &[b"", b"a", b"a=b", b"a b=c:d", b"a=b:_"]),
    ("1.3.6.1.1.16.1", &[b"01234567-89ab-cdef-0123-456789ABCDEF"],
        &[b"", b"0123456789abcdef0123456789abcdef", b"01234567-89ab-cdef-0123-456789ABCDEg", b"0123456789ab-cdef-0123-456789ABCDEF-"]),
    ("1.3.6.1.4.1.4203.666.11.2.1", &[b"20240102030405.678901Z#000000#001#000000", b"20240102030405Z#000000#00#000000"],
        &[b"", b"20240102030405.678901Z#000000#001", b"20240102030405.678901Z#000000#0001#000000", b"202401020304.5Z#000000#00#000000"]),
    ("1.3.6.1.4.1.4203.666.11.2.4", &[b"001", b"FFF"], &[b"", b"1", b"00g"]),
    ("1.3.6.1.4.1.4203.1.1.1", &[], &[b"", b"x"]),
    ("1.3.6.1.4.1.4203.666.2.7",
        &[b"dn:cn=a", b"cn=a", b"dn.regex:^cn=.*$", b"dn:*", b"dn.subtree:dc=x", b"u:me", b"u.digest-md5/realm:me", b"u:", b"u.plain:",
          b"group/groupOfNames/member:cn=g", b"ldap:///dc=x??sub?(cn=a)", b"{0}LDAP:///DC=x??One?cn=a", b"ldap:///dc=x"],
        &[b"dn:nothing", b"u", b"u/x:me", b"x:y", b"\xff", b"ldap:///dc=x?cn?sub?(cn=a)", b"ldap:///dc=x??all?(cn=a)",
          b"ldap:///dc=x??sub?(cn=", b"ldap:///nothing??sub?(cn=a)", b"ldap:///undefinedattr=x??sub?(cn=a)",
          b"{0}ldap:///dc=x??sub?(cn=a)?x", b"ldap:///dc=x??sub?(cn=a)??", b"LDAP:///%zz??sub?(cn=a)"]),
    ("1.3.6.1.1.15.1", &[b"{ serialNumber 5, issuer rdnSequence:\"cn=ca\" }", b"5$cn=ca", b"{issuer \"cn=ca\", serialNumber 05}"],
        &[b"", b"{}", b"x$cn=ca", b"{ serialNumber 5 }", b"{ serialNumber 5, issuer rdnSequence:\"cn\" }"]),
    ("1.3.6.1.1.15.5", &[b"{ issuer rdnSequence:\"cn=ca\", thisUpdate \"20240101000000Z\" }"],
        &[b"{ issuer rdnSequence:\"cn=ca\" }", b"{ issuer rdnSequence:\"cn=ca\", thisUpdate \"x\" }"]),
    ("1.2.840.113549.1.8.1.1", &[b"\x30\x08\x02\x01\x00\x30\x01\x00\x04\x00"], &[b"", b"\x30\x00"]),
];

#[test]
fn values_are_checked() {
    let schema = schema();
    for (oid, valid, invalid) in VALUES {
        let oid =
            if oid.contains('.') { (*oid).to_owned() } else { format!("1.3.6.1.4.1.1466.115.121.1.{oid}") };
        let syntax = schema.syntax(&oid).unwrap();
        for value in *valid {
            assert_eq!(syntax.validate(&schema, value), Ok(()), "{oid} {}", String::from_utf8_lossy(value));
            let pretty = syntax.pretty(&schema, value).unwrap().into_owned();
            assert_eq!(syntax.pretty(&schema, &pretty).as_deref(), Ok(&*pretty), "{oid}: not a fixed point");
        }
        for value in *invalid {
            assert!(syntax.validate(&schema, value).is_err(), "{oid} {}", String::from_utf8_lossy(value));
            assert!(syntax.pretty(&schema, value).is_err(), "{oid} {}", String::from_utf8_lossy(value));
        }
    }
}

#[test]
fn pretty_forms() {
    let schema = schema();
    let cases = [
        ("seeAlso", "CN=A ; DC=B", "cn=A,dc=B"),
        ("uniqueMember", "CN=A#'01'B", "cn=A#'01'B"),
        ("objectClass", "PERSON", "person"),
        ("objectClass", "2.5.6.6", "person"),
        ("entryUUID", "01234567-89AB-cdef-0123-456789ABCDEF", "01234567-89ab-cdef-0123-456789abcdef"),
        ("cn", " A  b ", " A  b "),
        ("authzTo", "dn.subtree:DC=X", "dn.subtree:dc=X"),
        ("authzTo", "{0}dn:CN=X", "{0}dn:cn=X"),
        ("authzTo", " {0} dn:CN=X", "{0}dn:cn=X"),
        ("authzTo", "{-1}dn:CN=X", "dn:cn=X"),
        ("authzTo", "CN=X", "dn:cn=X"),
        ("authzTo", "{12}DN.Exact: CN=X", "{12}dn:cn=X"),
        ("authzTo", "dn.children:*", "dn:*"),
        ("authzTo", "*", "dn:*"),
        ("authzTo", "dn.regex:^CN=[^,]+", "dn.regex:^CN=[^,]+"),
        ("authzTo", "u.DIGEST-MD5/Realm:Ann", "u.DIGEST-MD5/Realm:Ann"),
        ("authzTo", "group/groupOfNames:CN=X", "group/groupOfNames:cn=X"),
        ("authzTo", "Group:CN=X", "group:cn=X"),
        ("authzTo", "{0}group.exact:CN=X", "{0}group:cn=X"),
        ("authzTo", "ldap:///DC=X??sub?(cn=a)", "ldap:///DC=X??sub?(cn=a)"),
    ];
    for (attribute, value, expected) in cases {
        let syntax = &schema.attribute_type(attribute).unwrap().syntax;
        let pretty = syntax.pretty(&schema, value.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(&pretty), expected, "{attribute}");
    }
    assert!(schema.attribute_type("objectClass").unwrap().syntax.pretty(&schema, b"noSuchClass").is_err());
}
