//! Values made by Debian's slappasswd 2.5.13 (with pw-sha2, pw-pbkdf2, pw-apr1 and argon2), and round trips.

use super::*;
use crate::random::SeededRandom;

/// The yescrypt values are crypt(3)'s.
const WRITTEN_BY_SLAPPASSWD: &[&str] = &[
    "{SSHA}jlziJgp6OwJiI593mTsHTcxxdcTQu3aM",
    "{ssha}jbLlohBZiqkGYEOjnGufIyy+XUWh6VWP",
    "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
    "{SMD5}+Fxfd8nMz2CRvvQBBPX4fvb4Kuo=",
    "{MD5}Xr4ilOzQ4PCOq3aQ0qbuaQ==",
    "{SHA256}K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=",
    "{SSHA256}I8GpAkXslzmQl0zrvYE9g/7BaFBAbbZm1A1kwv7p2sAAOC8pNSh2TA==",
    "{SHA384}WKd1ukESvjAFrkQHznV9iP2nHUBJe7gCbsrFTU4//HIyzo3jq1rLMK45dg/ufFPt",
    "{SSHA384}KCOVVyIHObZecg7Fr0mJbTgmrMFRa5RrcBkxdmokg/qu5lu2YmHN7YLqqFHKII28MR8ZJBO6Kus=",
    "{SHA512}vSsar3708Jvp9Szi2NWZZ02Bqp1qRCFpbcTZPdBhnWgs5WtNZKnvCXdhztmeD2cmW192CF5bDufKRpayrW/isg==",
    "{SSHA512}vWHHsYscpgopi48zQG59+LFkCcj6md3fZBm65m9oVKR9MUHh/UwIgbv7+EDIeqx6B6U8rFG2E6Ku6Zx8qxtCl0xv051RotiR",
    // With white space, which slapd skips.
    "{SSHA} jlziJgp6OwJiI593mTsHTcxxdcTQu3aM",
    "{SHA512}vSsar3708Jvp9Szi2NWZZ02Bqp1qRCFpbcTZPdBhnWgs5WtNZKnvCXdhztmeD2cm\n W192CF5bDufKRpayrW/isg==\n",
    "{APR1}iQYJQr0C7pp0kRQ7\tl3fuiEhZQkUzSmo1",
    "{ARGON2}$argon2i$v=19$m=4096,t=3,p=1$tt1GbfA9/ScYBRMidsuiUg$T4oAEos9m8ZD3xHmuj9UtPGi/LakhcoZODRPJN9ugxE",
    // As its module stores it, the terminating NUL included.
    "{ARGON2}$argon2i$v=19$m=4096,t=3,p=1$tt1GbfA9/ScYBRMidsuiUg$T4oAEos9m8ZD3xHmuj9UtPGi/LakhcoZODRPJN9ugxE\0",
    "{CRYPT}$1$53oGlcMR$mPF.vB38uTIBLNzlqp5ho.",
    "{CRYPT}$5$.HqZ2e4JGs2m8894$HN4yvsPXBCRaUGJKlrJeEnE0983/Okfe5puzLMiMlK/",
    "{CRYPT}$6$8DNGr.1PUo.K1yzF$qaYcHp/mWgoV0qA5xF2ksGPLvNP1LjYyxhQJ5QMFZ2VSEG777ZEkw6v37m8ChXJbBOwIYUEcj7H6UXzGHr7ph.",
    "{CRYPT}$6$rounds=2000$0GzvuzaLgvCroemq$u3qYwBFRnOCnmhUYvgkxe7LGrKrTdTmf2Es5uVpEd2B9npVoxZugCOBWe/OwP/SjDFhS3sAKyDSZT2U07baWt0",
    "{CRYPT}$2y$05$iaWPesFzWwvS/OGY9coUPuegEP0y6efH/JjeNQ7Msar9piAdTHWhy",
    "{PBKDF2}10000$UwAVv957MxV8ZgNJLWb2vg$4uT1/TvKdt8xrcFTG0LlFwp0IQg",
    "{PBKDF2-SHA1}10000$GO8iMcqkF7D9N1gkn5ImIA$FO8f1MkOR3/kPp/Bjlc3EjimEAI",
    "{PBKDF2-SHA256}10000$1bct5/ABpsG3JUHesdvmaA$EXk9LWa5DGxF3P/BBuTO63F7Eq98zqhPVsWEoNNDsFo",
    "{PBKDF2-SHA512}10000$ebcLC4palY.BeniDuQx6vg$s4yKI9zNAS/m8ikfnDDoNtfosH1O9JjnEvA91Lu7xb3ESQdYThcfuTx/nOlVXo4OgG5PBzKdki2tZfOPoTTm/g",
    "{CRYPT}$y$j9T$abcdefghijklmnop$3dL1LkYnZM.OVXuVdnnaKVDlLYT92dRwOzDZ5XiVCe.",
    "{CRYPT}$y$j8T$saltsalt$MXbdvaeI0rWvmFzsdotkaHLVWCX/uAFos1nl7I2PdQ9",
    "{APR1}iQYJQr0C7pp0kRQ7l3fuiEhZQkUzSmo1",
    "{BSDMD5}3YVh+4eb7LbhowrAMQchzTI0SE9HanZ5",
    // Its module makes none; a slapd with it took this one.
    "{NS-MTA-MD5}58c50b7804d5fd28e9af454ea1a291e70123456789abcdef0123456789ABCDEF",
    "{CLEARTEXT}secret",
    "secret",
];

#[test]
fn values_of_slappasswd_verify() {
    for stored in WRITTEN_BY_SLAPPASSWD {
        assert_eq!(verify(stored.as_bytes(), b"secret"), Verification::Match, "{stored}");
        assert_eq!(unusable(stored.as_bytes()), None, "{stored}");
        for wrong in ["", "Secret", "secre", "secret "] {
            assert_eq!(
                verify(stored.as_bytes(), wrong.as_bytes()),
                Verification::Mismatch,
                "{stored} / {wrong}"
            );
        }
    }
}

#[test]
fn unusable_values_match_nothing() {
    let check = |stored: &str, expected: Unusable| {
        assert_eq!(verify(stored.as_bytes(), b"secret"), Verification::Unusable(expected), "{stored}");
        let is_elsewhere = pass_through(stored.as_bytes()).is_some();
        assert_eq!(unusable(stored.as_bytes()).is_some(), !is_elsewhere, "{stored}");
    };
    let ssha = Scheme::SSHA;
    check("{FOO}secret", Unusable::UnknownScheme);
    check("{SASL}user@realm", Unusable::UnknownScheme);
    check("{SSHA}", Unusable::Malformed(ssha));
    check("{SSHA}!!!!", Unusable::Malformed(ssha));
    check("{SSHA}jlziJgp6", Unusable::Malformed(ssha));
    check("{CRYPT}$7$abc$def", Unusable::UnsupportedCrypt);
    check("{CRYPT}$y$j9T$abcd$def", Unusable::Malformed(Scheme::Crypt));
    check("{CRYPT}$1$", Unusable::Malformed(Scheme::Crypt));
    check("{CRYPT}$2y$05$tooshort", Unusable::Malformed(Scheme::Crypt));
    check(
        "{CRYPT}$2y$31$iaWPesFzWwvS/OGY9coUPuegEP0y6efH/JjeNQ7Msar9piAdTHWhy",
        Unusable::TooCostly(Scheme::Crypt),
    );
    check("{CRYPT}$6$rounds=999999999$abc$def", Unusable::TooCostly(Scheme::Crypt));
    check("{ARGON2}secret", Unusable::Malformed(Scheme::Argon2));
    check(
        "{ARGON2}$argon2id$v=19$m=4194304,t=3,p=1$tt1GbfA9/ScYBRMidsuiUg$T4oA",
        Unusable::TooCostly(Scheme::Argon2),
    );
    check("{APR1}secret", Unusable::Malformed(Scheme::Apr1));
    check("{BSDMD5}3YVh+4eb7LbhowrAMQchzQ==", Unusable::Malformed(Scheme::BsdMd5));
    check("{NS-MTA-MD5}58c50b7804d5fd28", Unusable::Malformed(Scheme::NsMtaMd5));
    check("{PBKDF2}10000$abc", Unusable::Malformed(Scheme::Pbkdf2(Algorithm::Sha1)));
    check("{PBKDF2}0$abcd$abcd", Unusable::Malformed(Scheme::Pbkdf2(Algorithm::Sha1)));
    // Braces that enclose nothing are no scheme.
    assert_eq!(verify(b"{}secret", b"{}secret"), Verification::Match);
    assert_eq!(verify(b"{secret", b"{secret"), Verification::Match);
}

/// It is seen without a password, and without computing what takes long.
#[test]
fn values_that_no_password_matches_are_seen() {
    for (stored, expected) in [
        ("secret", false),
        ("{CLEARTEXT}secret", false),
        ("{k5key}", false),
        ("{KERBEROS}ann@EXAMPLE.COM", true),
        ("{SSHA}garbage", true),
        ("{CRYPT}abNANd1rDfiNc", false),
        ("{CRYPT}_J9..rasmz0.F/jqjWck", false),
        ("{CRYPT}*", true),
        ("{CRYPT}!$6$8DNGr.1PUo.K1yzF$qaYcHp", true),
        ("{CRYPT}$6$8DNGr.1PUo.K1yzF$qaYcHp", true),
        ("{PBKDF2-SHA256}999999999$1bct5/ABpsG3JUHesdvmaA$EXk9LWa5DGxF3P/BBuTO63F7Eq98zqhPVsWEoNNDsFo", true),
        (
            "{ARGON2}$argon2id$v=19$m=1,t=3,p=1$tt1GbfA9/ScYBRMidsuiUg$T4oAEos9m8ZD3xHmuj9UtPGi/LakhcoZODRPJN9ugxE",
            true,
        ),
        ("{ARGON2}$argon2id$v=19$m=4096,t=3,p=1$tt1G$T4oAEos9m8ZD3xHmuj9UtPGi/LakhcoZODRPJN9ugxE", true),
        ("{SCRAM-SHA-256}4096:AAAA", true),
        ("{TOTP1}MFXG4===", false),
        ("{TOTP1}1", true),
        ("{TOTP1ANDPW}MFXG4===|{SSHA}jlziJgp6OwJiI593mTsHTcxxdcTQu3aM", false),
        ("{TOTP1ANDPW}MFXG4===|{SSHA}garbage", true),
    ] {
        assert_eq!(unusable(stored.as_bytes()).is_some(), expected, "{stored}");
    }
}

#[test]
fn every_scheme_round_trips() {
    let random = SeededRandom::new(7);
    for name in Scheme::names() {
        let scheme = Scheme::from_name(name).expect(name);
        let mut hasher = Hasher::new(scheme);
        hasher.argon2 = Argon2Cost { memory_kib: 64, passes: 1, lanes: 1 };
        hasher.pbkdf2_rounds = 10;
        for crypt in ["$1$%.8s", "$2b$04$%.22s", "$5$%.16s", "$6$rounds=1000$%.16s"] {
            hasher.crypt = CryptMethod::from_salt_format(crypt).expect(crypt);
            if scheme.is_time_based() {
                continue;
            }
            let stored = hasher.hash(b"p\xc3\xa4ss", &random).expect("hashes");
            let shown = String::from_utf8_lossy(&stored).into_owned();
            assert_eq!(verify(&stored, b"p\xc3\xa4ss"), Verification::Match, "{shown}");
            assert_eq!(verify(&stored, b"pass"), Verification::Mismatch, "{shown}");
            assert_eq!(unusable(&stored), None, "{shown}");
            assert_eq!(is_hashed(&stored), scheme != Scheme::Cleartext, "{shown}");
        }
    }
}

#[test]
fn values_that_name_another_place_are_hashed_no_further() {
    for (value, expected) in [
        ("{SASL}ann@EXAMPLE.COM", true),
        ("{kerberos}ann@EXAMPLE.COM", true),
        ("{K5KEY}", true),
        ("{UNIX}ann", true),
        ("{RADIUS}ann", true),
        ("{UNIX", false),
        ("{curly}secret", false),
        ("secret", false),
    ] {
        assert_eq!(is_hashed(value.as_bytes()), expected, "{value}");
    }
}

#[test]
fn the_default_is_argon2id() {
    let stored = Hasher::default().hash(b"secret", &SeededRandom::new(1)).expect("hashes");
    let text = String::from_utf8_lossy(&stored).into_owned();
    assert!(text.starts_with("{ARGON2}$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
    assert_eq!(cost(&stored), Cost::Heavy);
    assert_eq!(cost(b"{SSHA}jlziJgp6OwJiI593mTsHTcxxdcTQu3aM"), Cost::Light);
    assert_eq!(cost(b"secret"), Cost::Light);
}

#[test]
fn long_passwords_are_refused() {
    let long = vec![b'a'; PASSWORD_MAX + 1];
    assert_eq!(
        Hasher::default().hash(&long, &SeededRandom::new(1)),
        Err(HashError::TooLong { len: PASSWORD_MAX + 1 })
    );
    assert_eq!(verify(&long, &long), Verification::Mismatch);
}

#[test]
fn secrets_for_challenges() {
    use larix_sasl::scram::Hash;

    let stored = Hasher::new(Scheme::Scram(Hash::Sha256)).hash(b"secret", &SeededRandom::new(1)).unwrap();
    assert!(stored.starts_with(b"{SCRAM-SHA-256}10000:"));
    assert_eq!(verify(&stored, b"secret"), Verification::Match);
    assert_eq!(verify(&stored, b"other"), Verification::Mismatch);
    assert_eq!(cost(&stored), Cost::Heavy);
    let malformed = Verification::Unusable(Unusable::Malformed(Scheme::Scram(Hash::Sha1)));
    assert_eq!(verify(b"{SCRAM-SHA-1}x", b"x"), malformed);
    let is_password = |secret: Option<ScramSecret>| match secret {
        Some(ScramSecret::Password(password)) => Some(password.to_vec()),
        _ => None,
    };
    let both: [&[u8]; 3] = [b"{SSHA}x", b"plain", &stored];
    assert!(matches!(scram_secret(both, Some(Hash::Sha256)), Some(ScramSecret::Verifier(_))));
    assert_eq!(is_password(scram_secret(both, Some(Hash::Sha512))), Some(b"plain".to_vec()));
    assert_eq!(is_password(scram_secret(both, None)), Some(b"plain".to_vec()));
    for (value, expected) in [
        (&b"{CLEARTEXT}secret"[..], Some(&b"secret"[..])),
        (b"{CLEARTEXT}", None),
        (b"{}secret", Some(b"{}secret")),
        (b"{curly}secret", None),
        (b"{SASL}ann@EXAMPLE.COM", None),
        (b"{K5KEY}", None),
        (b"{SSHA}secret", None),
        (b"", None),
    ] {
        assert_eq!(is_password(scram_secret([value], None)).as_deref(), expected, "{value:?}");
    }
}

#[test]
fn secrets_of_codes_are_stored_as_pw_totp_stores_them() {
    let random = SeededRandom::new(3);
    let hash = |name: &str, given: &[u8]| {
        let stored = Hasher::new(Scheme::from_name(name).unwrap()).hash(given, &random);
        stored.map(|stored| String::from_utf8(stored.to_vec()).unwrap())
    };
    let stored = hash("{TOTP1}", b"12345678901234567890").unwrap();
    assert_eq!(stored, "{TOTP1}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
    let unusable = |stored: &str| matches!(verify(stored.as_bytes(), b"secret"), Verification::Unusable(_));
    assert!(unusable(&stored) && is_hashed(stored.as_bytes()) && cost(stored.as_bytes()) == Cost::Light);
    let both = hash("{TOTP512ANDPW}", b"12345|sec|ret").unwrap();
    assert!(both.starts_with("{TOTP512ANDPW}GEZDGNBV|{SSHA}") && unusable(&both), "{both}");
    assert!(verify(password_behind(both.as_bytes()).unwrap(), b"sec|ret").is_match());
    let secret = |name: &str| Scheme::from_name(name).unwrap();
    for (name, given, with_password) in
        [("{TOTP1}", &b""[..], false), ("{TOTP256ANDPW}", b"x", true), ("{TOTP256ANDPW}", b"|x", true)]
    {
        assert_eq!(hash(name, given), Err(HashError::Secret { scheme: secret(name), with_password }));
    }
}
