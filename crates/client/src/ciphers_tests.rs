//! Settings and what they leave.

use super::*;

fn names(choice: &Choice) -> Vec<&'static str> {
    choice.suites.iter().map(|suite| describe(*suite).0).collect()
}

/// `expected` in one letter a suite: `a` AES-256, `b` AES-128, `c` ChaCha20 of TLS 1.3; `A B C` of ECDSA, `D E F` of RSA.
fn check(text: &str, expected: &str) {
    let found = match choose(Some(text), None, None) {
        Ok(choice) => choice,
        Err(error) => {
            assert!(expected.is_empty() && error.contains(text), "{text}: {error}");
            return;
        }
    };
    let letters = names(&found).into_iter().map(|name| {
        let at = SUITES.iter().position(|suite| suite.name == name).unwrap();
        "abcABCDEF".as_bytes()[at] as char
    });
    assert_eq!(letters.collect::<String>(), expected, "{text}, notes {:?}", found.notes);
}

#[test]
fn every_suite_is_known_by_both_names() {
    assert_eq!(SUITES.len(), ALL_CIPHER_SUITES.len());
    for suite in SUITES {
        assert!(suite.supported().is_some(), "{}", suite.name);
    }
}

#[test]
fn openssl_strings() {
    for (text, expected) in [
        ("DEFAULT", "abcABCDEF"),
        ("HIGH:MEDIUM:+SSLv2", "abcABCDEF"),
        ("HIGH:!aNULL:!MD5:!RC4", "abcABCDEF"),
        ("HIGH:-SSLv3:-TLSv1.1", "abcABCDEF"),
        ("ECDHE+AESGCM", "abcABDE"),
        ("EECDH+ECDSA+AESGCM:EECDH+aRSA+AESGCM", "abcABDE"),
        ("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384", "abcED"),
        ("ecdhe-rsa-aes128-gcm-sha256", "abcE"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "abcD"),
        ("TLS_AES_256_GCM_SHA384", "a"),
        ("TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:ECDHE-RSA-AES128-GCM-SHA256", "baE"),
        ("HIGH:!CHACHA20:!AES128", "abcAD"),
        ("AES128:AES256", "abcBEAD"),
        ("!AES128:HIGH", "abcACDF"),
        ("-AES128:HIGH", "abcABCDEF"),
        ("AES128:CHACHA20:@STRENGTH", "abcCFBE"),
        ("HIGH:+AES256", "abcBCEFAD"),
        ("FIPS", "abcABDE"),
        ("HIGH:NO-SUCH-THING", "abcABCDEF"),
        ("ECDHE-RSA-AES128-SHA256:HIGH", "abcABCDEF"),
        ("RC4-MD5:3DES", ""),
        ("aNULL", ""),
        ("", ""),
        ("NO-SUCH-THING", ""),
        ("ALL:!ALL", ""),
    ] {
        check(text, expected);
    }
}

#[test]
fn gnutls_strings() {
    for (text, expected) in [
        ("NORMAL", "abcABCDEF"),
        ("SECURE256:-VERS-TLS1.2", "ac"),
        ("SECURE256", "acACDF"),
        ("SECURE128:-VERS-ALL:+VERS-TLS1.2", "ABCDEF"),
        ("NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:%SERVER_PRECEDENCE", "abcABCDEF"),
        ("SECURE:-AES-128-GCM", "acACDF"),
        ("PFS:-CHACHA20-POLY1305:-ECDHE-ECDSA", "abDE"),
        ("SUITEB192:%SERVER_PRECEDENCE", "A"),
        ("NONE:+VERS-TLS1.3:+AES-256-GCM:+AEAD:+GROUP-ALL:+SIGN-ALL:+COMP-NULL", "a"),
        ("NORMAL:-CIPHER-ALL", ""),
        ("NORMAL:-VERS-ALL", ""),
        ("-VERS-TLS1.2", "abc"),
    ] {
        check(text, expected);
    }
}

#[test]
fn what_has_no_effect_is_noted() {
    for (ciphers, min, curves, expected) in [
        ("HIGH", None, None, ""),
        ("HIGH:WHAT", None, None, "no cipher suite is called `WHAT`"),
        ("HIGH:@SECLEVEL=1", None, None, "`@SECLEVEL=1` has no meaning"),
        ("NORMAL:%COMPAT", None, None, "`%COMPAT` has no meaning"),
        ("HIGH", Some("3.1"), None, "nothing below TLS 1.2"),
        ("HIGH", Some("1.2"), None, "TLS 1.2 is written 3.3"),
        ("HIGH", Some("1.3"), None, "`1.3` is below 3.3 and changes nothing: TLS 1.3 is written 3.4"),
        ("HIGH", None, Some("secp521r1:prime256v1"), "no secp521r1 here"),
    ] {
        let notes = choose(Some(ciphers), min, curves).unwrap().notes.join("\n");
        assert!(notes.contains(expected) && notes.is_empty() == expected.is_empty(), "{ciphers}: {notes}");
    }
}

#[test]
fn versions_and_groups() {
    for (min, versions) in [(None, (true, true)), (Some("3.3"), (true, true)), (Some("3.4"), (false, true))] {
        let choice = choose(None, min, None).unwrap();
        assert_eq!((choice.tls12, choice.tls13), versions, "{min:?}");
    }
    for (curves, expected) in [
        ("auto", &[NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1][..]),
        ("P-384:x25519", &[NamedGroup::secp384r1, NamedGroup::X25519]),
        ("prime256v1", &[NamedGroup::secp256r1]),
    ] {
        let groups: Vec<_> =
            choose(None, None, Some(curves)).unwrap().groups.iter().map(|g| g.name()).collect();
        assert_eq!(groups, expected, "{curves}");
    }
    for (ciphers, min, curves, expected) in [
        (None, Some("3.5"), None, "TLSProtocolMin `3.5`"),
        (None, None, Some("sect163k1"), "TLSECName `sect163k1`"),
        (Some("NORMAL:-GROUP-ALL"), None, None, "no group for the key exchange"),
        (Some("SECURE256:-VERS-TLS1.3"), Some("3.4"), None, "leave no cipher suite together"),
    ] {
        let error = choose(ciphers, min, curves).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
