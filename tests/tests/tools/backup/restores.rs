//! Restores of whole backups.

use std::os::unix::fs::MetadataExt as _;

use larix_testkit::{Kind, Site};

use super::{SUFFIX, fails_with, passes, text};

/// The note beside a restored database is for people: a disk that has no room for it does not make the restore one that failed.
#[test]
fn a_restore_needs_no_note() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    passes("backup", &site, &["--to", &text(&backup)]);
    let other = Site::example(Kind::Larix);
    // No file can be written under this name.
    std::fs::create_dir(other.path().join("data/restored.json")).expect("a folder");
    passes("restore", &other, &["--from", &text(&backup)]);
    assert!(passes("cat", &other, &[]).contains("dn: dc=example,dc=com"));
}

/// The copy of one is damaged: the other is not older than it for that.
#[test]
fn of_several_databases_all_are_restored_or_none() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\n\
         database mdb\nsuffix dc=other\ndirectory @DATA@-other\n",
    );
    site.load(SUFFIX);
    site.load_into(Some("dc=other"), "dn: dc=other\nobjectClass: domain\ndc: other\n");
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    passes("backup", &site, &["--to", &text(&backup)]);
    let copy = backup.join("database-2/data.mdb");
    let mut bytes = std::fs::read(&copy).expect("the copy");
    *bytes.last_mut().expect("a byte") ^= 1;
    std::fs::write(&copy, bytes).expect("the copy");
    let files = ["data", "data-other"].map(|name| site.path().join(name).join("data.mdb"));
    let numbers = || files.each_ref().map(|file| std::fs::metadata(file).expect("a database").ino());
    let before = numbers();
    let from = text(&backup);
    let arguments = ["--replace", "--from", &from, "-b", "dc=example,dc=com"];
    fails_with("restore", &site, &arguments[..3], "is not what it was when the backup was made");
    assert_eq!(numbers(), before);
    passes("restore", &site, &arguments);
}

/// What these tools say is news: that it cannot be written does not end a restore between two databases. What a check has found is what
/// somebody asked for.
#[test]
fn a_restore_needs_no_reader() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    let other = Site::example(Kind::Larix);
    for (name, site, arguments, status) in [
        ("backup", &site, &["--to", backup.as_str()][..], 0),
        ("backup", &site, &["--verify", backup.as_str()], 1),
        ("restore", &other, &["--from", backup.as_str()], 0),
        ("check", &other, &[], 2),
        ("check", &other, &["--json"], 2),
        ("check", &other, &["-n", "0"], 2),
    ] {
        let nowhere = std::fs::File::options().write(true).open("/dev/full").expect("the device");
        let mut command = Kind::Larix.tool(name);
        command.arg("-f").arg(site.configuration()).args(arguments).stdout(nowhere);
        let output = command.output().expect("the tool starts");
        let report = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{name}: {report}");
        assert_eq!(report.contains("cannot write to standard output"), status != 0, "{name}: {report}");
    }
    assert!(passes("cat", &other, &[]).contains("dn: dc=example,dc=com"));
}
