//! Values made by `slappasswd` of either make bind at the other's server.
use larix_testkit::{Kind, Site};
use larix_tests::raw::{Raw, bind};

const SUFFIX: &str = "dc=example,dc=com";
const PASSWORD: &str = "correct h\u{f6}rse";
const SUCCESS: u32 = 0;
const INVALID_CREDENTIALS: u32 = 49;

/// Flags that both understand, and what the value begins with; without a beginning, what each makes by itself differs.
const MADE: &[(&[&str], &str)] = &[
    (&["-h", "{SSHA}"], "{SSHA}"),
    (&["-h", "{ssha}", "-u"], "{"), // the case of the name is each one's
    (&["-h", "{SHA}", "-v"], "{SHA}"),
    (&["-h", "{SMD5}"], "{SMD5}"),
    (&["-h", "{MD5}"], "{MD5}"),
    (&["-h", "{SSHA256}", "-o", "module-load=pw-sha2"], "{SSHA256}"),
    (&["-h", "{SHA256}", "-o", "module-load=pw-sha2"], "{SHA256}"),
    (&["-h", "{SSHA384}", "-o", "module-load=pw-sha2"], "{SSHA384}"),
    (&["-h", "{SHA384}", "-o", "module-load=pw-sha2.la"], "{SHA384}"),
    (&["-h", "{SSHA512}", "-o", "module-path=/usr/lib/ldap", "-o", "module-load=pw-sha2"], "{SSHA512}"),
    (&["-h", "{SHA512}", "-o", "module-load=pw-sha2"], "{SHA512}"),
    (&["-h", "{ARGON2}", "-o", "module-load=argon2 m=64 t=2 p=1"], "{ARGON2}$argon2"),
    (&["-h", "{CRYPT}"], "{CRYPT}"),
    (&["-c", "$1$%.8s"], "{CRYPT}$1$"),
    (&["-c", "$2b$05$%.22s"], "{CRYPT}$2b$05$"),
    (&["-c", "$5$%.16s"], "{CRYPT}$5$"),
    (&["-c", "$5$rounds=2000$%.16s"], "{CRYPT}$5$rounds=2000$"),
    (&["-c", "$6$%.16s"], "{CRYPT}$6$"),
    (&["-h", "{CRYPT}", "-c", "$6$%.16s"], "{CRYPT}$6$"),
    (&["-h", "{CLEARTEXT}"], PASSWORD),
];
/// What only slapd's makes: Larix verifies it.
const MADE_BY_SLAPD: &[(&[&str], &str)] = &[
    (&["-c", "%.2s"], "{CRYPT}"),
    (&["-c", "_J9..%.4s"], "{CRYPT}_J9.."),
    (&["-c", "$y$j9T$%.16s"], "{CRYPT}$y$j9T$"),
];
/// Neither makes a value.
const REFUSED: &[&[&str]] = &[
    &["-h", "{NOPE}"],
    &["-h", "SSHA"],
    &["-h", "{UNIX}"],
    &["-h", "{SASL}"],
    &["-o", "nope=1"],
    &["-o", "module-load=nope"],
    &["-T", "/nonexistent"],
    &["-c", "$6$%.16s", "-h", "{SSHA}"],
    &["operand"],
    &["-x"],
];

fn made(kind: Kind, arguments: &[&str]) -> Option<String> {
    let tool = if kind == Kind::Slapd { "passwd" } else { "hash-password" };
    let output = kind.tool(tool).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(text)
}

/// The right password binds, a wrong one does not, for each value.
fn binds(kind: Kind, modules: &str, values: &[String]) {
    let site = Site::new(
        kind,
        &format!("{modules}database mdb\nsuffix {SUFFIX}\ndirectory @DATA@\nrootdn cn=admin,{SUFFIX}\n"),
    );
    let mut ldif =
        format!("dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n");
    for (number, value) in values.iter().enumerate() {
        ldif += &format!(
            "dn: cn=user{number},{SUFFIX}\nobjectClass: person\ncn: user{number}\nsn: x\nuserPassword: {value}\n\n"
        );
    }
    site.load(&ldif);
    let server = site.start().unwrap();
    let mut connection = Raw::connect(server.address).unwrap();
    for (number, value) in values.iter().enumerate() {
        for (password, expected) in [(PASSWORD, SUCCESS), ("Correct", INVALID_CREDENTIALS)] {
            let answer = connection.ask(&bind(1, &format!("cn=user{number},{SUFFIX}"), password)).unwrap();
            assert_eq!(answer.code, expected, "{kind:?}: {value} with {password}");
        }
    }
}

#[test]
fn values_of_either_bind_at_both() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let mut values = Vec::new();
    let cases = MADE.iter().flat_map(|case| [(Kind::Larix, case), (Kind::Slapd, case)]);
    for (kind, (flags, begins)) in cases.chain(MADE_BY_SLAPD.iter().map(|case| (Kind::Slapd, case))) {
        let arguments = [&["-s", PASSWORD], *flags].concat();
        let value = made(kind, &arguments).unwrap_or_else(|| panic!("{kind:?} {flags:?}"));
        assert!(value.starts_with(begins), "{kind:?} {flags:?}: {value}");
        // -n leaves the line end away.
        let without = made(kind, &[&arguments[..], &["-n"]].concat()).unwrap();
        assert!(value.ends_with('\n') && !without.ends_with('\n'), "{kind:?} {flags:?}");
        values.push(value.trim_end().to_owned());
    }
    // The clear text is not ASCII, which LDIF wants in base 64: its output was looked at above.
    values.retain(|value| value.is_ascii());
    binds(Kind::Larix, "", &values);
    binds(Kind::Slapd, "moduleload pw-sha2\nmoduleload argon2\n", &values);
    for flags in REFUSED {
        let arguments = [&["-s", PASSWORD][..usize::from(flags[0] != "-T") * 2], *flags].concat();
        for kind in [Kind::Larix, Kind::Slapd] {
            assert_eq!(made(kind, &arguments), None, "{kind:?} {flags:?}");
        }
    }
    // A file is taken whole, and a made password is one whatever the scheme.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "line\n").unwrap();
    let digest = |kind| made(kind, &["-h", "{SHA}", "-T", file.to_str().unwrap()]).unwrap();
    assert_eq!(digest(Kind::Larix), digest(Kind::Slapd));
    for kind in [Kind::Larix, Kind::Slapd] {
        let password = made(kind, &["-g", "-h", "{SHA}"]).unwrap();
        assert!(password.trim_end().len() >= 8 && !password.contains('{'), "{kind:?}: {password}");
    }
}
