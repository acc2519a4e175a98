//! `cargo xtask package rpm`, on a program that answers as the binary does where it is packed, and what rpm reads of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use larix_packages::RPM;

/// Man pages and completions, as `larix` makes them.
const PROGRAM: &str = r#"#!/bin/sh
case $1 in
    manual) mkdir -p "$2/man8" "$2/man1" && echo page > "$2/man8/slapd.8" && echo page > "$2/man1/larix.1" ;;
    completions) echo "completions of $2" ;;
    *) exit 1 ;;
esac
"#;

fn rpm(arguments: &[&str], package: &Path) -> String {
    let output = Command::new("rpm").args(arguments).arg(package).output().expect("rpm starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn an_rpm_is_made_and_read() {
    if RPM.is_lacking() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("larix");
    fs::write(&program, PROGRAM).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its mode");
    let make = || {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["package", "rpm"])
            .arg(&program)
            .output()
            .expect("xtask starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let path = PathBuf::from(text.trim_end().lines().last().unwrap_or_default());
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{text}: {error}"));
        (path, bytes)
    };
    let (_, first) = make();
    let (package, second) = make();
    assert!(first == second, "the same program and commit make the same bytes");

    let files = rpm(&["-qpl"], &package);
    for file in [
        "/usr/bin/larix",
        "/usr/lib/larix/serve",
        "/usr/lib/systemd/system/larix.service",
        "/usr/share/man/man1/larix.1.gz",
        "/usr/share/zsh/site-functions/_larix",
        "/usr/share/doc/larix/changelog.gz",
        "/etc/logrotate.d/larix",
        "/etc/larix",
    ] {
        assert!(files.lines().any(|line| line == file), "{file} is not in\n{files}");
    }
    for other in ["slapd.8", "apparmor", "changelog.Debian", "build-id"] {
        assert!(!files.contains(other), "{other} is in\n{files}");
    }
    assert_eq!(rpm(&["-qp", "--configfiles"], &package).trim_end(), "/etc/logrotate.d/larix");
    let facts = rpm(&["-qp", "--queryformat", "%{NAME} %{LICENSE} %{BUILDHOST} %{FILEUSERNAME}"], &package);
    assert_eq!(facts, "larix Apache-2.0 OR MIT larix.example root");
    // No shell would run a script whose words were not set.
    let scripts = rpm(&["-qp", "--scripts"], &package);
    assert!(scripts.contains("useradd --system") && scripts.contains("s|@SUFFIX@|"), "{scripts}");
    rpm(&["--checksig", "--nosignature"], &package);
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a root");
    let root = root.display().to_string();
    rpm(&["--install", "--test", "--nodeps", "--force-debian", "--root", &root], &package);
}
