//! What a backup copies, where it may go, and the backups that are scheduled.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use larix_testkit::packages::MOUNT_NAMESPACE;
use larix_testkit::{Kind, Server, SetAtEnd, Site, packages, until, until_some};
use larix_tests::client::{Client, run as ask};
use larix_tests::http;

use super::{SUFFIX, add, administrator, churn, entries, fails_with, passes, text};

/// Backups go to other machines. strace has the kernel say of a directory that it is on NFS.
#[test]
fn a_backup_goes_where_no_database_may_be() {
    if packages::STRACE.is_lacking() {
        return;
    }
    let strace = packages::STRACE.files().into_iter().next().expect("it was asked for");
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let backup_with = |nfs: &Path, to: &Path| {
        let mut command = Command::new(&strace);
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=statfs", "-P"]).arg(nfs);
        // The first eight bytes of what statfs answers.
        command.args(["-e", "inject=statfs:poke_exit=@arg2=6969000000000000"]);
        command.arg(Kind::Larix.program().expect("larix")).args(["backup", "-f"]).arg(site.configuration());
        let output = command.arg("--to").arg(to).output().expect("strace starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (done, report) = backup_with(&site.path().join("data"), &folder.path().join("sunday"));
    assert!(!done && report.contains("on a network file system (NFS)"), "{report}");

    let to = folder.path().join("monday");
    let (done, report) = backup_with(&folder.path().join("monday.part/database-1"), &to);
    assert!(done, "{report}");
    passes("backup", &site, &["--verify", &text(&to)]);

    // Not all of them have locks for files.
    let to = folder.path().join("tuesday");
    let mut command = Command::new(&strace);
    command.args([
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fcntl",
        "-e",
        "inject=fcntl:error=ENOLCK",
        "-P",
    ]);
    command.arg(folder.path().join("tuesday.part/database-1/lock.mdb"));
    command.arg(Kind::Larix.program().expect("larix")).args(["backup", "-f"]).arg(site.configuration());
    let output = command.arg("--to").arg(&to).output().expect("strace starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    passes("backup", &site, &["--verify", &text(&to)]);
}

/// A server that has the directory mounted otherwise does not know of a reader here, and writes to the pages that it reads.
#[test]
fn a_read_only_mount_of_a_served_database_is_not_read() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let read_only = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg(r#"mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@""#);
        command.arg(site.path().join("data")).arg(program).args(arguments);
        let output = command.output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    if read_only(Path::new("true"), &[]).is_none_or(|(done, _)| !done) {
        packages::note_lack(MOUNT_NAMESPACE);
        return;
    }
    let configuration = text(&site.configuration());
    let cat = || read_only(&Kind::Larix.program().expect("larix"), &["cat", "-f", configuration.as_str()]);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let (done, report) = cat().expect("it starts");
    assert!(!done && report.contains("mounted read-only here"), "{report}");
    assert!(server.stop());
    let (done, report) = cat().expect("it starts");
    assert!(done && report.contains("dn: dc=example,dc=com"), "{report}");
}

#[test]
fn a_directory_may_have_a_slash_at_its_end() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    passes("backup", &site, &["--to", &format!("{}/", text(&backup))]);
    passes("backup", &site, &["--verify", &text(&backup)]);
    let names =
        std::fs::read_dir(folder.path()).expect("a folder").map(|name| name.expect("a name").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["backup"]);
}

#[test]
fn a_backup_taken_under_writes_is_a_directory_of_one_moment() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let mut before = [0; 2];
    thread::scope(|scope| {
        let _over = SetAtEnd(&is_over);
        scope.spawn(|| write(&server, &is_over, &acknowledged));
        for (backup, before) in [&first, &second].into_iter().zip(&mut before) {
            until("50 entries more", || acknowledged.load(Ordering::Acquire) >= *before + 50);
            *before = acknowledged.load(Ordering::Acquire);
            passes("backup", &site, &["--to", &text(backup)]);
        }
    });
    assert!(server.stop());
    let all = users(&passes("cat", &site, &[]));

    for (backup, before) in [(&first, before[0]), (&second, before[1])] {
        let verified = passes("backup", &site, &["--verify", &text(backup)]);
        assert!(verified.contains("whole"), "{verified}");
        let other = Site::example(Kind::Larix);
        passes("restore", &other, &["--from", &text(backup)]);
        passes("check", &other, &[]);
        let restored = users(&passes("cat", &other, &[]));
        let count = restored.len() as u64;
        assert!(count >= before, "{count} entries restored, {before} were acknowledged before the backup");
        // Entries come in the order of their making, and none was changed since: the backup is how the directory began.
        let begin = all.iter().take(restored.len());
        assert!(restored.iter().eq(begin), "{count} of {}", all.len());
        let last = format!("dn: uid={count},dc=example,dc=com");
        assert_eq!(restored.last(), Some(&last));
        let server = other.start().unwrap_or_else(|error| panic!("{error}"));
        let mut connection = Client::connect(server.address);
        ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n");
        assert_eq!(ask(&mut connection, &add(count + 1)), "=> 0\n");
        assert!(server.stop());
    }
}

/// The lines with the names of users.
fn users(ldif: &str) -> Vec<String> {
    ldif.lines().filter(|line| line.starts_with("dn: uid=")).map(str::to_owned).collect()
}

/// Adds one entry after the other.
fn write(server: &Server, is_over: &AtomicBool, acknowledged: &AtomicU64) {
    let mut connection = Client::connect(server.address);
    assert_eq!(ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        assert_eq!(ask(&mut connection, &add(number)), "=> 0\n");
        acknowledged.store(number, Ordering::Release);
    }
}

#[test]
fn a_backup_goes_through_a_pipe() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    churn(&mut administrator(&server), 1);
    let streamed = {
        let mut command: Command = Kind::Larix.tool("backup");
        let output =
            command.arg("-f").arg(site.configuration()).args(["--to", "-"]).output().expect("a stream");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert!(server.stop());
    let feed = |name: &str, site: &Site, arguments: &[&str], bytes: &[u8]| {
        let mut command: Command = Kind::Larix.tool(name);
        command.arg("-f").arg(site.configuration()).args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool starts");
        // A tool that has seen enough closes its input early.
        let _ = child.stdin.take().expect("its input").write_all(bytes);
        let output = child.wait_with_output().expect("its end");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (success, output) = feed("backup", &site, &["--verify", "-"], &streamed);
    assert!(success && output.contains("3 files"), "{output}");
    let other = Site::example(Kind::Larix);
    let (success, output) = feed("restore", &other, &["--from", "-"], &streamed);
    assert!(success, "{output}");
    assert!(entries(&other) == entries(&site));
    assert!(!other.path().join("data/restore.stream").exists());
    let mut damaged = streamed.clone();
    damaged[streamed.len() / 2] ^= 1;
    for (bytes, part) in [
        (&streamed[..streamed.len() / 2], "the stream is cut"),
        (&streamed[..streamed.len() - 1], "the stream is cut"),
        (&damaged[..], "the stream is damaged"),
        (&b"dn: dc=example,dc=com\n"[..], "the stream is no backup"),
    ] {
        let empty = Site::example(Kind::Larix);
        let (success, output) = feed("restore", &empty, &["--from", "-"], bytes);
        assert!(!success && output.contains(part), "{part}: {output}");
        assert!(!empty.path().join("data/data.mdb").exists());
    }
}

#[test]
fn the_server_makes_the_backups_that_are_scheduled() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let folder = tempfile::tempdir().expect("a folder");
    let configuration = std::fs::read_to_string(site.configuration()).expect("the configuration");
    let line = format!("backup-schedule directory={} full=1h increment=10m keep=2", text(folder.path()));
    let with = format!("http-listener http://127.0.0.1:0/\n{line}\n{configuration}");
    std::fs::write(site.configuration(), with).expect("the configuration");
    let made = || {
        let entries = std::fs::read_dir(folder.path()).expect("the folder");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    for start in 0..2 {
        let server = site.start().unwrap_or_else(|error| panic!("{error}"));
        let port = server.ports[1];
        // Told once the thread has looked into the directory.
        let figures = until_some("the last backup is told of", || {
            let text = http::get(("127.0.0.1", port), "/metrics").2;
            let done = text
                .lines()
                .find_map(|line| line.strip_prefix("larix_backup_last_success_timestamp_seconds "));
            let is_told = done.is_some_and(|time| time.parse::<f64>().is_ok_and(|time| time > 1e9));
            is_told.then_some(text)
        });
        let successes = if start == 0 { "larix_backups_made_total 1" } else { "larix_backups_made_total 0" };
        assert!(figures.contains(successes) && figures.contains("larix_backup_failed 0"), "{figures}");
        assert!(server.stop());
        let made = made();
        assert_eq!(made.len(), 1, "a restart makes no backup that is not due: {made:?}");
        passes("backup", &site, &["--verify", &text(&made[0])]);
    }
}

/// LMDB copies what stands behind the last record of a page, up to where the page says that its records end. Who reads or writes
/// no such page does not meet it.
#[test]
fn a_database_with_a_damaged_page_is_not_copied() {
    const PAGE: usize = 4_096;
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let file = site.path().join("data/data.mdb");
    let mut data = std::fs::read(&file).expect("the database");
    // The first two are the roots. Kinds 1 and 2 have records, and each page has its number in front.
    for (number, page) in data.chunks_exact_mut(PAGE).enumerate().skip(2) {
        if page[..8] == (number as u64).to_le_bytes() && (page[10] == 1 || page[10] == 2) {
            page[14..16].fill(0xff);
        }
    }
    std::fs::write(&file, data).expect("the database");
    let folder = tempfile::tempdir().expect("a folder");
    let to = text(&folder.path().join("backup"));
    fails_with("backup", &site, &["--to", &to], "has damaged bounds; `larix check`");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is left");

    let configuration = std::fs::read_to_string(site.configuration()).expect("the configuration");
    let line = format!("backup-schedule directory={} full=1h", text(folder.path()));
    std::fs::write(site.configuration(), format!("{line}\n{configuration}")).expect("the configuration");
    let server = Server::start_with(Kind::Larix, &site.configuration(), &["-d", "16384"], &[]);
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    until("the log tells of it", || server.log().contains("`larix check`"));
    assert!(server.stop(), "it goes on");
}
