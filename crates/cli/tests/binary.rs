//! The binary as it is called: by its own name and commands, and by each of slapd's names.
//!
//! That this package has such a test makes cargo build the binary out of the same parts as all tests: those of `larix-tests` start
//! it. `cargo xtask` runs this one by name, because its profile is another.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

const LARIX: &str = env!("CARGO_BIN_EXE_larix");
/// The command line cannot be understood.
const WRONG_USAGE: i32 = 2;
/// The same, under one of slapd's names.
const WRONG_USAGE_OF_SLAPD: i32 = 1;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn check(called: &str, output: &Output, status: i32, expected: &str) {
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{called}: {all}");
    assert!(all.contains(expected), "{called}: {expected:?} is not in {all:?}");
    assert_eq!(
        output.stdout.is_empty(),
        status != 0,
        "{called}: what is wrong goes to standard error: {all:?}"
    );
}

#[test]
fn it_says_what_it_is_and_what_it_does_not_know() {
    for (arguments, status, expected) in [
        (&["--version"][..], 0, concat!("larix ", env!("CARGO_PKG_VERSION"))),
        (&["--help"], 0, "Offline tools"),
        (&[], WRONG_USAGE, "Usage: larix"),
        (&["help"], 0, "Offline tools"),
        (&["help", "search"], 0, "Usage: larix search"),
        (&["help", "serve"], 0, "--suffix"),
        (&["help", "load", "compare"], 0, "Usage: larix load compare"),
        (&["help", "cat"], 0, "Usage: larix cat"),
        (&["help", "acl", "explain"], 0, "explain"),
        (&["help", "nonsense"], WRONG_USAGE, "'nonsense'"),
        (&["version"], 0, concat!("larix ", env!("CARGO_PKG_VERSION"), "\ncommit       ")),
        (&["nonsense"], WRONG_USAGE, "'nonsense'"),
        (&["serve", "--nonsense"], WRONG_USAGE, "'--nonsense'"),
        (&["cat", "-Q"], WRONG_USAGE, "'-Q'"),
        (&["cat", "-o", "ldif-rap=no"], WRONG_USAGE, "there is no option `ldif-rap`"),
        (&["test", "-o", "quick"], WRONG_USAGE, "there is no option `quick`"),
        (&["dn", "-o", "ssf", "-o", "x=1", "cn=y"], WRONG_USAGE, "there is no option `x`"),
        (&["load", "run", "nonsense"], WRONG_USAGE, "nonsense"),
    ] {
        let output = Command::new(LARIX).args(arguments).output().unwrap();
        check(&format!("larix {arguments:?}"), &output, status, expected);
    }
}

/// As in `larix version | true`: no report of a panic, and the status of a program that SIGPIPE has ended.
#[test]
fn a_reader_that_has_gone_away_ends_a_command_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("larix", &["version"][..]),
        ("larix", &["serve", "-VV"]),
        ("larix", &["serve", "-d", "?"]),
        ("larix", &["serve", "-t", "-f", "/dev/null"]),
        ("larix", &["cat", "-n", "0", "-f", "/dev/null"]),
        ("larix", &["hash-password", "-g"]),
        ("larix", &["completions", "bash"]),
        ("slapd", &["-VV"]),
        ("lloadd", &["-VV"]),
    ] {
        let link = folder.path().join(name);
        if !link.exists() {
            symlink(LARIX, &link).unwrap();
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            Command::new(&link).args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let found = (output.status.code(), text(&output.stderr));
        assert_eq!(found, (Some(141), String::new()), "{name} {arguments:?}");
    }
}

#[test]
fn the_version_has_commit_features_and_disk_format() {
    let output = Command::new(LARIX).arg("version").output().unwrap();
    let text = text(&output.stdout);
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).trim().to_owned()
    };
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.git");
    // Beside another commit than HEAD the binary would have been built again.
    let head = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"]).output();
    match head {
        Ok(head) if head.status.success() && std::path::Path::new(checkout).exists() => {
            assert!(String::from_utf8_lossy(&head.stdout).starts_with(&value("commit")), "{text}");
        }
        _ => assert!(!value("commit").is_empty()),
    }
    let features = value("features");
    let has = |feature: &str| features.split(' ').any(|word| word == feature);
    assert_eq!(has("gssapi"), cfg!(feature = "gssapi"), "{text}");
    // Beside the rest of the workspace the server has its engines, whatever the features of this crate are.
    for (feature, is_wanted) in
        [("postgresql", cfg!(feature = "postgresql")), ("etcd", cfg!(feature = "etcd"))]
    {
        assert!(has(feature) || !is_wanted, "{feature}: {text}");
    }
    assert_eq!(has("none"), features == "none", "{text}");
    assert!(value("disk format").starts_with(|digit: char| digit.is_ascii_digit()), "{text}");
}

#[test]
fn slapds_names_are_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "slapadd",
        "slapcat",
        "slapindex",
        "slapmodify",
        "slapdelete",
        "slappasswd",
        "slaptest",
        "slapacl",
        "slapauth",
        "slapdn",
        "slapschema",
    ] {
        let link = folder.path().join(name);
        symlink(LARIX, &link).unwrap();
        let help = Command::new(&link).arg("--help").output().unwrap();
        check(name, &help, 0, &format!("Usage: {name}"));
        let wrong = Command::new(&link).arg("--nonsense").output().unwrap();
        check(name, &wrong, WRONG_USAGE_OF_SLAPD, "'--nonsense'");
    }
    let slapd = folder.path().join("slapd");
    symlink(LARIX, &slapd).unwrap();
    let configuration = folder.path().join("slapd.conf");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/schema/core.schema");
    std::fs::write(&configuration, format!("include {schema}\n")).unwrap();
    let arguments = ["-Tdn".as_ref(), "-f".as_ref(), configuration.as_os_str(), "cn=a, dc=b".as_ref()];
    let tool = Command::new(&slapd).args(arguments).output().unwrap();
    check("slapd -Tdn", &tool, 0, "cn=a,dc=b");
    let unknown = Command::new(&slapd).arg("-Tnonsense").output().unwrap();
    check("slapd -Tnonsense", &unknown, 1, "\"nonsense\"");
}
