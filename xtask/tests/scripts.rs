//! The functions of the packages' scripts, as the shell runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of the repository.
fn dist(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist").join(file)
}

/// The lines of a function of a script.
fn function(script: &str, name: &str) -> String {
    let text = fs::read_to_string(dist(script)).expect(script);
    let start = text.find(&format!("\n{name}() {{\n")).unwrap_or_else(|| panic!("{script} has no {name}"));
    let rest = &text[start..];
    let end = rest.find("\n}\n").expect("the end of the function");
    // A spec of rpm writes a percent sign twice.
    rest[..end + 3].replace("%%", "%")
}

fn shell(script: &str, arguments: &[&Path], suffix: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", script, "sh"])
        .args(arguments)
        .env("LARIX_SUFFIX", suffix)
        .output()
        .expect("sh starts");
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn any_suffix_comes_into_the_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = folder.path().join("settings");
    for script in ["debian/larix.postinst", "rpm/larix.spec"] {
        let functions = function(script, "suffix") + &function(script, "settings");
        let write = format!("{functions}settings \"$1\" > \"$2\"");
        for suffix in [
            "dc=example,dc=com",
            "o=Smith & Sons,c=GB",
            "o=a|b",
            r#"o="A, B",c=DE"#,
            r"o=a\, b",
            "o=$HOME `id`",
        ] {
            shell(&write, &[&dist("debian/default"), &settings], suffix);
            let read = shell(". \"$1\"; printf %s \"$LARIX_SUFFIX\"", &[&settings], "");
            assert_eq!(read, suffix, "{script}");
        }
    }
}

#[test]
fn databases_of_each_age_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let ldif = folder.path().join("config.ldif");
    let script = function("debian/slapd/common", "databases") + "databases \"$1\"";
    for (entries, expected) in [
        ("dn: cn=config\nolcPidFile: /run/slapd.pid\n", ""),
        (
            "dn: olcDatabase={1}mdb,cn=config\nolcDatabase: {1}mdb\nolcSuffix: dc=a\nolcDbDirectory: /srv/a\n",
            "1\tdc=a\t/srv/a\n",
        ),
        (
            "dn: olcDatabase={1}hdb,cn=config\nolcDbDirectory: /srv/a\nolcSuffix: dc=a\nolcSuffix: dc=b\n\n\
             dn: olcDatabase={12}bdb,cn=config\nolcSuffix: dc=c\n",
            "1\tdc=a\t/srv/a\n12\tdc=c\t/var/lib/ldap\n",
        ),
        ("dn: olcDatabase={1}ldap,cn=config\nolcSuffix: dc=a\n", ""),
        ("dn: olcOverlay={0}memberof,olcDatabase={1}mdb,cn=config\nolcOverlay: {0}memberof\n", ""),
        ("dn: olcDatabase={1}mdb,cn=config\nolcSuffix:: ZGM9w6Q=\nolcDbDirectory:: L8Ok\n", "1\t?\t?\n"),
    ] {
        fs::write(&ldif, entries).expect("an LDIF");
        assert_eq!(shell(&script, &[&ldif], ""), expected, "{entries}");
    }
}

#[test]
fn the_file_of_a_database_is_that_of_its_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = function("debian/slapd/common", "data_file") + "data_file \"$1\"";
    let mut expected = String::new();
    for file in ["", "id2entry.bdb", "data.mdb"] {
        if !file.is_empty() {
            let path = folder.path().join(file);
            fs::write(&path, "").expect(file);
            expected = format!("{}\n", path.canonicalize().expect(file).display());
        }
        assert_eq!(shell(&script, &[folder.path()], ""), expected, "{file}");
    }
}
