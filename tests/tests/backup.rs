//! Backups: taken while clients write, verified, put back; and what is refused.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use larix_testkit::{Kind, Site};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

const SUFFIX: &str =
    "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n";

/// Runs one of Larix's tools with a site's configuration; status and both outputs.
fn tool(name: &str, site: &Site, arguments: &[&str]) -> (bool, String) {
    let mut command: Command = Kind::Larix.tool(name);
    let output =
        command.arg("-f").arg(site.configuration()).args(arguments).output().expect("the tool starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn passes(name: &str, site: &Site, arguments: &[&str]) -> String {
    let (success, text) = tool(name, site, arguments);
    assert!(success, "{name} {arguments:?}: {text}");
    text
}

fn fails_with(name: &str, site: &Site, arguments: &[&str], part: &str) {
    let (success, text) = tool(name, site, arguments);
    assert!(!success && text.contains(part), "{name} {arguments:?}, {part:?} expected: {text}");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_backup_taken_under_writes_is_a_directory_of_one_moment() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let (over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let mut before = [0; 2];
    thread::scope(|scope| {
        scope.spawn(|| write(&server, &over, &acknowledged));
        for (backup, before) in [&first, &second].into_iter().zip(&mut before) {
            while acknowledged.load(Ordering::Acquire) < *before + 50 {
                thread::yield_now();
            }
            *before = acknowledged.load(Ordering::Acquire);
            passes("backup", &site, &["--to", &text(backup)]);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(server.stop());
    let all = passes("cat", &site, &[]);

    for (backup, before) in [(&first, before[0]), (&second, before[1])] {
        let verified = passes("backup", &site, &["--verify", &text(backup)]);
        assert!(verified.contains("whole"), "{verified}");
        let other = Site::example(Kind::Larix);
        passes("restore", &other, &["--from", &text(backup)]);
        passes("check", &other, &[]);
        let restored = passes("cat", &other, &[]);
        let count = restored.matches("\ndn: uid=").count() as u64;
        assert!(count >= before, "{count} entries restored, {before} were acknowledged before the backup");
        // Entries come in the order of their making, and none was changed since: the backup is how the directory began.
        let has = |text: &str, number| text.contains(&format!("dn: uid={number},dc=example,dc=com\n"));
        assert!((1..=count).all(|number| has(&restored, number) && has(&all, number)));
        let server = other.start().unwrap_or_else(|error| panic!("{error}"));
        let mut connection = Client::connect(server.address);
        ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n");
        assert_eq!(ask(&mut connection, &add(count + 1)), "=> 0\n");
        assert!(server.stop());
    }
}

/// Adds one entry after the other.
fn write(server: &larix_testkit::Server, over: &AtomicBool, acknowledged: &AtomicU64) {
    let mut connection = Client::connect(server.address);
    assert_eq!(ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    for number in 1.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        assert_eq!(ask(&mut connection, &add(number)), "=> 0\n");
        acknowledged.store(number, Ordering::Release);
    }
}

fn add(number: u64) -> String {
    format!("add \"uid={number},dc=example,dc=com\"\nobjectClass: account\nuid: {number}\n")
}

fn ask(connection: &mut Client, request: &str) -> String {
    connection.run(&Step { request: request.to_owned(), ..Step::default() })
}

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
    assert!(site.path().join("data/data.mdb.replaced").exists());

    let other = Site::new(Kind::Larix, "database mdb\nsuffix dc=other\ndirectory @DATA@\n");
    fails_with("restore", &other, &["--from", &text(&backup)], "the configuration has no database");

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
    assert!(
        !empty.path().join("data/data.mdb").exists() && !empty.path().join("data/data.mdb.part").exists()
    );
    std::fs::write(&file, &whole[..middle]).expect("the copy");
    fails_with("backup", &site, &["--verify", &text(&backup)], "it was cut or changed");
    std::fs::write(backup.join("backup.json"), "{").expect("the manifest");
    fails_with("backup", &site, &["--verify", &text(&backup)], "is damaged");
}
