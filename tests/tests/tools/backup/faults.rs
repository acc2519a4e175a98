//! Damaged backups, refused commands, and tools that are ended at their work.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Site, packages, until};
use larix_tests::client::run as ask;

use super::{SUFFIX, add, administrator, churn, entries, fails_with, passes, text, tool};

#[test]
fn what_is_refused_names_the_mend() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    passes("backup", &site, &["--to", &text(&backup)]);

    fails_with("backup", &site, &["--to", &text(&backup)], "exists: a backup makes its directory");
    fails_with("backup", &site, &["--to", "/nowhere/at/all"], "cannot make /nowhere/at/all.part");
    fails_with("backup", &site, &["--verify", &text(folder.path())], "is no backup");
    for none in [folder.path().to_owned(), folder.path().join("nowhere")] {
        fails_with("backup", &site, &["--incremental", "--to", &text(&none)], "make a full backup first");
    }
    fails_with(
        "backup",
        &site,
        &["-b", "dc=elsewhere", "--to", &text(&folder.path().join("x"))],
        "no database serves",
    );
    fails_with("restore", &site, &["--from", &text(&backup)], "--replace sets it aside");
    fails_with(
        "restore",
        &site,
        &["--from", &text(&backup), "-b", "dc=elsewhere"],
        "the backup has no database",
    );
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    fails_with("restore", &site, &["--from", &text(&backup), "--replace"], "in use");
    assert!(server.stop());

    passes("restore", &site, &["--from", &text(&backup), "--replace"]);
    passes("check", &site, &[]);
    // It was the wrong backup, or another one would be better: the database of before is in no backup.
    let set_aside = || std::fs::metadata(site.path().join("data/data.mdb.replaced")).expect("kept").ino();
    let before = set_aside();
    passes("restore", &site, &["--from", &text(&backup), "--replace"]);
    assert_eq!(set_aside(), before);
    let change = site.path().join("change.ldif");
    let lines = "dn: dc=example,dc=com\nchangetype: modify\nreplace: description\ndescription: new\n";
    std::fs::write(&change, lines).expect("a change");
    passes("offline-modify", &site, &["-l", &text(&change)]);
    passes("restore", &site, &["--from", &text(&backup), "--replace"]);
    assert_ne!(set_aside(), before, "what was changed since is kept");

    let other = Site::new(Kind::Larix, "database mdb\nsuffix dc=other\ndirectory @DATA@\n");
    let elsewhere = "the configuration has no database dc=example,dc=com: name another one with -f or -F";
    fails_with("restore", &other, &["--from", &text(&backup)], elsewhere);

    // One bit of the database, then its end, then the manifest.
    let file = backup.join("database-1/data.mdb");
    let whole = std::fs::read(&file).expect("the copy");
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(&file, &changed).expect("the copy");
    fails_with("backup", &site, &["--verify", &text(&backup)], "is not what it was");
    let empty = Site::example(Kind::Larix);
    fails_with("restore", &empty, &["--from", &text(&backup)], "is not what it was");
    assert!(!empty.path().join("data/data.mdb").exists() && !empty.path().join("data/restore.tmp").exists());
    // As of a database with a damaged page. The first two are the roots, and a copy has no free ones.
    let mut damaged = whole.clone();
    damaged[3 * 4_096..3 * 4_096 + 16].fill(0);
    let digest = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("the copy");
        let summed = Command::new("sha256sum").arg(&file).output().expect("coreutils").stdout;
        String::from_utf8(summed).expect("text").split(' ').next().expect("digits").to_owned()
    };
    let manifest = std::fs::read_to_string(backup.join("backup.json")).expect("the manifest");
    let (right, wrong) = (digest(&whole), digest(&damaged));
    assert!(manifest.contains(&right), "{manifest}");
    let changed = manifest.replace(&right, &wrong);
    std::fs::write(backup.join("backup.json"), &changed).expect("the manifest");
    fails_with("restore", &empty, &["--from", &text(&backup)], "by its checksum");
    std::fs::write(backup.join("backup.json"), without_checksum(&changed)).expect("the manifest");
    fails_with("restore", &empty, &["--from", &text(&backup)], "copied of a damaged database: page 3");
    assert!(!empty.path().join("data/data.mdb").exists());
    std::fs::write(backup.join("backup.json"), manifest).expect("the manifest");
    std::fs::write(&file, &whole[..middle]).expect("the copy");
    fails_with("backup", &site, &["--verify", &text(&backup)], "it was cut or changed");
    std::fs::write(backup.join("backup.json"), "{").expect("the manifest");
    fails_with("backup", &site, &["--verify", &text(&backup)], "is damaged");
}

/// A manifest as earlier versions made it.
fn without_checksum(manifest: &str) -> String {
    let (before, _) = manifest.rsplit_once(",\n  \"checksum\"").expect("a checksum");
    format!("{before}\n}}\n")
}

#[test]
fn a_chain_that_is_damaged_names_the_file() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    let mut connection = administrator(&server);
    passes("backup", &site, &["--to", &text(&backup)]);
    for round in 1..4 {
        churn(&mut connection, round);
        passes("backup", &site, &["--incremental", "--to", &text(&backup)]);
    }
    assert!(server.stop());
    let (first, second) = (backup.join("increment-000001"), backup.join("increment-000002"));
    let changes = second.join("database-1.changes");
    let manifest = first.join("increment.json");
    let check = |path: &Path, damage: &dyn Fn(&[u8]) -> Option<Vec<u8>>, part: &str| {
        let whole = std::fs::read(path).expect("a file of the backup");
        match damage(&whole) {
            Some(damaged) => std::fs::write(path, damaged).expect("the damaged file"),
            None => std::fs::remove_file(path).expect("the file"),
        }
        let name = path.display().to_string();
        let (success, output) = tool("backup", &site, &["--verify", &text(&backup)]);
        assert!(!success && output.contains(&name) && output.contains(part), "{name}, {part:?}: {output}");
        let other = Site::example(Kind::Larix);
        fails_with("restore", &other, &["--from", &text(&backup)], part);
        assert!(!other.path().join("data/data.mdb").exists());
        std::fs::write(path, whole).expect("the whole file");
    };
    let flip = |at: usize| {
        move |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            Some(bytes)
        }
    };
    check(&changes, &flip(300), "is not what it was");
    check(&changes, &|bytes| Some(bytes[..bytes.len() - 1].to_vec()), "it was cut or changed");
    check(&changes, &|_| None, "No such file");
    check(&manifest, &|_| None, "the chain is broken");
    check(&manifest, &|bytes| Some(bytes[..20].to_vec()), "is damaged");
    check(
        &second.join("increment.json"),
        &|bytes| {
            let manifest = without_checksum(&String::from_utf8_lossy(bytes));
            Some(manifest.replace("\"previous\": \"", "\"previous\": \"0").into_bytes())
        },
        "does not follow the backup before it",
    );
    // No manifest follows the last one, whose checksum would tell.
    check(
        &backup.join("increment-000003/increment.json"),
        &|bytes| Some(String::from_utf8_lossy(bytes).replace("dc=example,", "dc=exampld,").into_bytes()),
        "by its checksum",
    );
    passes("backup", &site, &["--verify", &text(&backup), "--load"]);
    // One that was killed leaves this; nobody minds.
    std::fs::create_dir(backup.join("increment-000004.part")).expect("a folder");
    passes("backup", &site, &["--incremental", "--to", &text(&backup)]);
    passes("backup", &site, &["--verify", &text(&backup)]);

    // What is loaded does not come by the change log.
    let ldif = folder.path().join("more.ldif");
    std::fs::write(&ldif, "dn: uid=loaded,dc=example,dc=com\nobjectClass: account\nuid: loaded\n")
        .expect("LDIF");
    passes("add", &site, &["-l", &text(&ldif)]);
    fails_with("backup", &site, &["--incremental", "--to", &text(&backup)], "make a full backup");
}

/// A file that was copied back tells the same history, and then other changes under the same numbers.
#[test]
fn an_increment_does_not_follow_a_file_that_was_put_back() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let write = |numbers: std::ops::Range<u64>| {
        let server = site.start().unwrap_or_else(|error| panic!("{error}"));
        let mut connection = administrator(&server);
        for number in numbers {
            assert_eq!(ask(&mut connection, &add(number)), "=> 0\n");
        }
        drop(connection);
        assert!(server.stop());
    };
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    let data = site.path().join("data/data.mdb");
    write(0..1);
    passes("backup", &site, &["--to", &backup]);
    let before = std::fs::read(&data).expect("the database");
    write(1..4);
    passes("backup", &site, &["--incremental", "--to", &backup]);
    std::fs::write(&data, before).expect("the database");
    // It belongs to the file that was there.
    let _ = std::fs::remove_file(site.path().join("data/lock.mdb"));
    write(11..16);
    let why = "was put back to an earlier state by other means";
    fails_with("backup", &site, &["--incremental", "--to", &backup], why);
}

/// Kills a tool as soon as `begun` is there; it is slowed down so that it cannot be done by then.
fn kill_in_the_middle(name: &str, site: &Site, arguments: &[&str], begun: &Path) {
    let mut command: Command = Kind::Larix.tool(name);
    command.arg("-f").arg(site.configuration()).args(arguments).args(["--throttle", "1k"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tool starts");
    while !begun.metadata().is_ok_and(|file| file.len() > 0) {
        assert!(child.try_wait().expect("its state").is_none(), "{name} ended");
        thread::yield_now();
    }
    child.kill().expect("it runs");
    child.wait().expect("its end");
}

/// What a verification restores has the hashes of passwords: where a signal ends it, nothing of that stays.
#[test]
fn a_verification_that_is_ended_removes_what_it_restored() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let (backup, temporary) = (folder.path().join("backup"), folder.path().join("temporary"));
    std::fs::create_dir(&temporary).expect("a folder");
    passes("backup", &site, &["--to", &text(&backup)]);
    let mut command: Command = Kind::Larix.tool("backup");
    command.arg("-f").arg(site.configuration()).arg("--verify").arg(&backup);
    // Slowed down, so that it is not done when it is found at work.
    command.args(["--load", "--throttle", "10k"]).env("TMPDIR", &temporary);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tool starts");
    let folders = || std::fs::read_dir(&temporary).expect("a folder").flatten();
    until("it restores", || {
        assert!(child.try_wait().expect("its state").is_none(), "it has ended");
        folders().any(|made| made.path().read_dir().is_ok_and(|mut inside| inside.next().is_some()))
    });
    assert!(signal(child.id(), Signal::TERM));
    let status = child.wait().expect("its end");
    assert_eq!((status.code(), folders().count()), (Some(143), 0));
}

#[test]
fn what_is_killed_leaves_nothing_that_looks_whole() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    let to = text(&backup);
    let mut connection = administrator(&server);
    churn(&mut connection, 1);
    let part = folder.path().join("backup.part/database-1/data.mdb");
    kill_in_the_middle("backup", &site, &["--to", &to], &part);
    assert!(!backup.exists() && part.exists());
    passes("backup", &site, &["--to", &to]);
    assert!(!folder.path().join("backup.part").exists());
    churn(&mut connection, 2);
    passes("backup", &site, &["--incremental", "--to", &to]);
    let now = entries(&site);
    assert!(server.stop());

    let other = Site::example(Kind::Larix);
    let work = other.path().join("data/restore.tmp/data.mdb");
    kill_in_the_middle("restore", &other, &["--from", &to], &work);
    assert!(!other.path().join("data/data.mdb").exists() && work.exists());
    passes("restore", &other, &["--from", &to]);
    assert!(!other.path().join("data/restore.tmp").exists());
    passes("check", &other, &[]);
    assert!(entries(&other) == now);
    // A database that is there stays until the new one is whole.
    kill_in_the_middle("restore", &other, &["--from", &to, "--replace"], &work);
    assert!(entries(&other) == now);
    let checked = passes("check", &other, &["--json"]);
    assert!(checked.contains("\"findings\":0") && checked.contains("\"change_log_records\":"), "{checked}");
}

/// The disk refuses the name of the backup, which is all there by then.
#[test]
fn a_backup_that_is_reported_as_failed_is_not_there() {
    if packages::STRACE.is_lacking() {
        return;
    }
    let strace = packages::STRACE.files().into_iter().next().expect("it was asked for");
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(strace);
    command.args(["-f", "-qq", "-o", "/dev/null", "-etrace=fsync", "-einject=fsync:error=EIO", "-P"]);
    command.arg(folder.path()).arg(Kind::Larix.program().expect("larix")).args(["backup", "-f"]);
    command.arg(site.configuration()).arg("--to").arg(folder.path().join("backup"));
    let output = command.output().expect("strace starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cannot sync"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    passes("backup", &site, &["--to", &text(&folder.path().join("backup"))]);
}

/// As by a version that does not know it: it cannot say what is in the copy, and a restore refuses it.
#[test]
fn a_database_of_a_newer_format_is_not_backed_up() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (text(&folder.path().join("first")), text(&folder.path().join("second")));
    passes("backup", &site, &["--to", &first]);
    let path = site.path().join("data/data.mdb");
    let mut bytes = std::fs::read(&path).expect("the database");
    // The row of the directory's format. That of the store's format has zeros there.
    let row = b"format\0\0\0";
    let is_row = |at: &usize| bytes[*at..].starts_with(row) && bytes[*at + row.len()] != 0;
    let places: Vec<usize> = (0..bytes.len() - row.len()).filter(is_row).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at + row.len()] = 200);
    std::fs::write(&path, bytes).expect("the database");
    for arguments in [&["--to", &second][..], &["--to", &first, "--incremental"], &["--to", "-"]] {
        fails_with("backup", &site, arguments, "disk format 200");
    }
    assert!(!Path::new(&second).exists());
}
