use super::*;

fn output(name: &str, arguments: &[&str]) -> Result<String, String> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let args: PasswdArgs = flags::parse(name, &arguments);
    value(name, &args).map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn made_passwords_differ() {
    let random = larix_engine::time::SeededRandom::new(1);
    let (one, other) = (generate(&random), generate(&random));
    assert_eq!(one.len(), MADE_LENGTH);
    assert_ne!(one, other);
    // As with slapd's: the scheme says nothing of it.
    assert_eq!(output("slappasswd", &["-g", "-h", "{SHA}"]).unwrap().len(), MADE_LENGTH);
}

#[test]
fn values_by_flags() {
    let argon2 = "module-load=argon2.la m=64 t=1 p=2";
    for (name, arguments, expected) in [
        ("slappasswd", &["-s", "x"][..], "{SSHA}"),
        ("larix hash-password", &["-s", "x"], "{ARGON2}$argon2id$v=19$m=19456,t=2,p=1$"),
        ("slappasswd", &["-s", "x", "-h", "{sha}", "-u", "-vv", "-n"], "{SHA}"),
        ("slappasswd", &["-s", "x", "-c", "$6$%.16s"], "{CRYPT}$6$"),
        ("slappasswd", &["-s", "x", "-c", "$5$rounds=2000$%.16s"], "{CRYPT}$5$rounds=2000$"),
        ("slappasswd", &["-s", "x", "-h", "{crypt}", "-c", "$6$%.16s"], "{CRYPT}$6$"),
        ("slappasswd", &["-s", "x", "-h", "{CLEARTEXT}"], "x"),
        ("slappasswd", &["-s", "x", "-h", "{ARGON2}", "-o", argon2], "{ARGON2}$argon2id$v=19$m=64,t=1,p=2$"),
        ("slappasswd", &["-s", "x", "-h", "{PBKDF2}", "-o", "module-load=pw-pbkdf2 20"], "{PBKDF2}20$"),
        ("slappasswd", &["-s", "x", "-o", "module-path=/lib", "-o", "Module-Load=pw-sha2"], "{SSHA}"),
    ] {
        let value = output(name, arguments).unwrap();
        assert!(value.starts_with(expected), "{arguments:?}: {value}");
    }
}

#[test]
fn what_is_refused_says_why() {
    for (arguments, expected) in [
        (&["-h", "{NOPE}"][..], "no password scheme {NOPE}: one of {SSHA}"),
        (&["-h", "SSHA"], "no password scheme SSHA"),
        (&["-c", "%.2s"], "-c %.2s: no crypt method that new passwords have: $1$"),
        (&["-c", "$y$j9T$%.16s"], "-c $y$"),
        (&["-o", "module=x"], "-o module=x: one of module-load=NAME"),
        (&["-o", "module-load=nope"], "-o module-load=nope: no password module `nope`"),
        (&["-o", "module-load=argon2 q=1"], "-o module-load=argon2 q=1: `q=1` is none of m=KIB"),
        (&["-o", "module-load=argon2 m=0"], "-o module-load=argon2 m=0: `0` is not a number from 1 up"),
        (&["-o", "module-load=argon2 m=4194304"], "-o module-load=argon2 m=4194304: at least 8 KiB"),
        (&["-h", "{SSHA}", "-c", "$6$%.16s"], "-c $6$%.16s is for {CRYPT}, and -h {SSHA} names"),
        (&["-T", "/nonexistent/file"], "/nonexistent/file: No such file"),
        (&["-T", "/dev/null"], "the password is empty"),
        (&["-s", ""], "the password is empty"),
    ] {
        let has_secret = matches!(arguments[0], "-T" | "-s");
        let secret: &[&str] = if has_secret { &[] } else { &["-s", "x"] };
        let message = output("slappasswd", &[secret, arguments].concat()).unwrap_err();
        assert!(message.starts_with(expected), "{arguments:?}: {message}");
    }
}
