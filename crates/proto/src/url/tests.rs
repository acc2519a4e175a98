use super::*;

#[test]
fn there_and_back() {
    let check = |text: &str, expected: &str| {
        let url = LdapUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(url.to_string(), expected, "{text}");
        assert_eq!(LdapUrl::parse(expected).as_ref(), Ok(&url), "{expected}");
    };
    for same in [
        "pldap://[::1%2FT]/",
        "ldap:///",
        "ldap:///o=University%20of%20Michigan,c=US",
        "ldap://ldap1.example.net/o=University%20of%20Michigan,c=US",
        "ldap://ldap1.example.net/o=University%20of%20Michigan,c=US?postalAddress",
        "ldap://ldap1.example.net:6666/o=University%20of%20Michigan,c=US??sub?(cn=Babs%20Jensen)",
        "ldap:///??sub??e-bindname=cn=Manager%2Cdc=example%2Cdc=com",
        "ldap:///??sub??!e-bindname=x",
        "ldap:///dc=x?a,b;c?one",
        "ldap:///????x-mod=0700",
        "ldaps://h/",
        "ldap://[::1]:389/",
        "ldapi://%2Fvar%2Frun%2Fldapi/",
        "ldapi:///",
        "ldap:///dc=x??subordinate",
        "ldap:///cn=a%3Fb?cn",
    ] {
        check(same, same);
    }
    check("LDAP://h", "ldap://h/");
    check("URL:ldap://h:389", "ldap://h:389/");
    check("<ldap://h/>", "ldap://h/");
    check("ldap://h:", "ldap://h/");
    check("ldap://h?a", "ldap://h/?a");
    check("ldap:///dc=x?", "ldap:///dc=x");
    check("ldap:///dc=x????", "ldap:///dc=x");
    check("ldap:///??BASE", "ldap:///??base");
    check("ldap:///???cn=a", "ldap:///???(cn=a)");
    check("ldap:///dc=%C3%A9", "ldap:///dc=%C3%A9");
    check("ldap:///dc=é", "ldap:///dc=%C3%A9");
}

#[test]
fn a_url_has_its_parts() {
    let url = LdapUrl::parse("ldapi://%2Ftmp%2Fs/????x-mod=0777,!Other").expect("a URL");
    assert_eq!((url.host.as_str(), url.effective_port()), ("/tmp/s", None));
    assert_eq!(url.extension("X-Mod").and_then(|extension| extension.value.as_deref()), Some("0777"));
    assert!(url.extension("other").is_some_and(|extension| extension.critical));
    let url = LdapUrl::parse("ldaps://[2001:db8::7]/").expect("a URL");
    assert_eq!((url.host.as_str(), url.effective_port()), ("2001:db8::7", Some(636)));
}

#[test]
fn errors_of_urls_name_the_part() {
    let check = |text: &str, expected: UrlError| assert_eq!(LdapUrl::parse(text), Err(expected), "{text}");
    check("", UrlError::Scheme("".into()));
    check("http://x/", UrlError::Scheme("http".into()));
    check("x:389", UrlError::NoScheme("x:389".into()));
    check("ldap:/x", UrlError::MissingSlashes);
    check("ldap://h:x/", UrlError::Port("x".into()));
    check("ldap://h:65536/", UrlError::Port("65536".into()));
    check("ldap://h:+1/", UrlError::Port("+1".into()));
    check("ldap://[::1/", UrlError::Brackets);
    check("ldap://[::1]x/", UrlError::Brackets);
    check("ldap:///dc=%zz", UrlError::Encoding("dc=%zz".into()));
    check("ldap:///dc=%ff", UrlError::Encoding("dc=%ff".into()));
    check("ldap:///??all", UrlError::Scope("all".into()));
    check("ldap:///?????", UrlError::TooManyParts);
    check("ldap:///????!", UrlError::Extension);
    assert!(matches!(LdapUrl::parse("ldap:///???("), Err(UrlError::Filter(_))));
}

#[test]
fn a_server_has_no_empty_port() {
    for text in [
        "ldap://h",
        "ldap://h:389/",
        "ldap://[::1]",
        "ldaps://[::1]:1/dc=x",
        "<ldap://h/dc=a:?cn>",
        "ldap://",
        "ldapi://%2Frun%2Fa:",
    ] {
        assert_eq!(LdapUrl::parse_server(text), LdapUrl::parse(text), "{text}");
        assert!(LdapUrl::parse(text).is_ok(), "{text}");
    }
    for text in
        ["ldap://h:", "ldap://h:/", "ldaps://:?", "ldap://[::1]:/dc=x", "URL:ldap://h:", "<ldap://h:>"]
    {
        let error = LdapUrl::parse_server(text).unwrap_err();
        assert_eq!(error.to_string(), "no port stands behind the colon", "{text}");
    }
    assert_eq!(LdapUrl::parse_server("ldap://h:x"), Err(UrlError::Port("x".into())));
}

#[test]
fn mistyped_slashes_are_corrected() {
    for (text, meant) in [
        ("ldap:localhost:3890", "ldap://localhost:3890"),
        ("LDAP:/localhost", "ldap://localhost"),
        ("ldaps:localhost", "ldaps://localhost"),
        ("ldapi:/run/ldapi", "ldapi://%2Frun%2Fldapi"),
        ("ldap:3890", "ldap://ldap:3890"),
    ] {
        assert_eq!(with_scheme(text), meant, "{text}");
    }
    let error = LdapUrl::parse("ldap://::1:3890").expect_err("no brackets").to_string();
    assert!(error.contains("an IPv6 address stands in brackets"), "{error}");
}

#[test]
fn who_leaves_the_scheme_away_is_told_the_url() {
    for (text, meant) in [
        ("localhost", "ldap://localhost"),
        ("localhost:3890", "ldap://localhost:3890"),
        ("[::1]:3890", "ldap://[::1]:3890"),
        ("127.0.0.1:636", "ldaps://127.0.0.1:636"),
        ("/run/slapd/ldapi", "ldapi://%2Frun%2Fslapd%2Fldapi"),
        ("3890", "ldap://:3890"),
        ("636", "ldaps://:636"),
        ("ldap//localhost", "ldap://localhost"),
        ("ldapserver:3890", "ldap://ldapserver:3890"),
    ] {
        let error = LdapUrl::parse(text).expect_err(text).to_string();
        assert_eq!(error, format!("there is no scheme: did you mean \"{meant}\"?"));
        assert!(LdapUrl::parse(meant).is_ok(), "{meant}");
    }
}
