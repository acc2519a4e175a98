//! Backups: taken while clients write, verified, put back; and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use larix_proto::extended::SyncInfo;
use larix_testkit::packages::MOUNT_NAMESPACE;
use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Server, SetAtEnd, Site, packages, until, until_some};
use larix_tests::client::{Client, run as ask};
use larix_tests::scripted::ScriptedProvider;

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

fn add(number: u64) -> String {
    format!("add \"uid={number},dc=example,dc=com\"\nobjectClass: account\nuid: {number}\n")
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

/// Entries as `larix cat` writes them, by name.
fn entries(site: &Site) -> BTreeMap<String, String> {
    let text = passes("cat", site, &[]);
    let blocks = text.split("\n\n").filter(|block| block.contains("dn: "));
    blocks.map(|block| (block.lines().next().unwrap_or("").to_owned(), block.trim().to_owned())).collect()
}

/// The state at a moment, and the moment.
struct Moment {
    time: String,
    entries: BTreeMap<String, String>,
}

/// What the directory is now, once no change is under way.
fn moment(site: &Site) -> Moment {
    let entries = entries(site);
    let last =
        entries.values().flat_map(|entry| entry.lines()).filter_map(|line| line.strip_prefix("entryCSN: "));
    let last = last.max().expect("an entry").to_owned();
    let time = last.split('#').next().expect("a time").to_owned();
    Moment { time, entries }
}

/// Adds, deletes, changes, renames; others for each round. The last one leaves an entry that tells its CSN.
fn churn(connection: &mut Client, round: u64) {
    let first = round * 1_000;
    for number in first..first + 30 {
        assert_eq!(ask(connection, &add(number)), "=> 0\n");
    }
    for number in first + 20..first + 25 {
        assert_eq!(ask(connection, &format!("delete \"uid={number},dc=example,dc=com\"\n")), "=> 0\n");
    }
    for number in first..first + 10 {
        let request = format!("modify \"uid={number},dc=example,dc=com\"\nadd description: {round}\n");
        assert_eq!(ask(connection, &request), "=> 0\n");
    }
    for number in first + 10..first + 15 {
        let request = format!("modrdn \"uid={number},dc=example,dc=com\" uid=r{number} delete\n");
        assert_eq!(ask(connection, &request), "=> 0\n");
    }
}

fn administrator(server: &Server) -> Client {
    let mut connection = Client::connect(server.address);
    assert_eq!(ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    connection
}

#[test]
fn a_restore_goes_back_to_any_moment_since_the_full_backup() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    let mut connection = administrator(&server);
    churn(&mut connection, 1);
    let before = moment(&site);
    churn(&mut connection, 2);
    passes("backup", &site, &["--to", &text(&backup)]);
    let mut moments = vec![moment(&site)];
    for round in 3..6 {
        churn(&mut connection, round);
        moments.push(moment(&site));
        if round % 2 == 1 {
            passes("backup", &site, &["--incremental", "--to", &text(&backup)]);
        }
    }
    // The accident, while others write.
    let safe = moment(&site);
    for number in 1_000..1_010 {
        assert_eq!(ask(&mut connection, &format!("delete \"uid={number},dc=example,dc=com\"\n")), "=> 0\n");
        assert_eq!(ask(&mut connection, &add(9_000 + number)), "=> 0\n");
    }
    moments.push(safe);
    passes("backup", &site, &["--incremental", "--to", &text(&backup)]);
    let last = entries(&site);
    assert!(server.stop());

    let verified = passes("backup", &site, &["--verify", &text(&backup), "--load"]);
    assert!(verified.contains(", 0 findings") && verified.matches("whole").count() == 4, "{verified}");
    let restored = |arguments: &[&str]| {
        let other = Site::example(Kind::Larix);
        let from = text(&backup);
        passes("restore", &other, &[&["--from", from.as_str()], arguments].concat());
        passes("check", &other, &[]);
        entries(&other)
    };
    for moment in &moments {
        assert!(restored(&["--to-time", &moment.time]) == moment.entries, "restored to {}", moment.time);
    }
    assert!(restored(&[]) == last);
    let csn = moments[1].entries.values().flat_map(|entry| entry.lines());
    let csn = csn.filter_map(|line| line.strip_prefix("entryCSN: ")).max().expect("an entry");
    assert!(restored(&["--to-csn", csn]) == moments[1].entries);

    let other = Site::example(Kind::Larix);
    let from = text(&backup);
    fails_with("restore", &other, &["--from", &from, "--to-time", &before.time], "take an older full backup");
    fails_with(
        "restore",
        &other,
        &["--from", &from, "--to-time", "2999-01-01T00:00:00Z"],
        "add an increment",
    );
    fails_with("restore", &other, &["--from", &from, "--to-time", "yesterday"], "is not a time");
    assert!(!other.path().join("data/data.mdb").exists());

    // What was restored has a history of its own: the chain of the other one does not go on with it.
    passes("restore", &other, &["--from", &from, "--to-time", &moments[1].time]);
    let server = other.start().unwrap_or_else(|error| panic!("{error}"));
    churn(&mut administrator(&server), 7);
    fails_with("backup", &other, &["--incremental", "--to", &from], "make a full backup");
    assert!(server.stop());
}

/// One thing that a writer has done, as it was answered: what an entry has from then on, or that it is not there.
struct Done {
    csn: String,
    name: String,
    descriptions: Option<Vec<String>>,
}

/// A client that adds, changes, renames and deletes, one after the other.
#[derive(Default)]
struct Worker {
    is_over: AtomicBool,
    /// From then on it leaves alone what is there.
    adds_only: AtomicBool,
    done: Mutex<Vec<Done>>,
    /// It does nothing any more.
    has_ended: AtomicBool,
}

impl Worker {
    fn work(&self, server: &Server) {
        let _ended = SetAtEnd(&self.has_ended);
        let mut connection = administrator(server);
        let mut content: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for number in 1_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let adds_only = self.adds_only.load(Ordering::Relaxed);
            let name = format!("uid={number}");
            let mut requests = vec![(add(number), vec![(name.clone(), Some(Vec::new()))])];
            // Of the older ones one is changed, and another one goes or gets another name.
            if !adds_only
                && let Some((changed, had)) = content.iter().nth(number as usize * 7 % (content.len() + 1))
            {
                let descriptions = [had.as_slice(), &[number.to_string()]].concat();
                let request = format!("modify \"{changed},dc=example,dc=com\"\nadd description: {number}\n");
                requests.push((request, vec![(changed.clone(), Some(descriptions))]));
                let other = content.iter().find(|(name, _)| *name != changed);
                if let Some((other, had)) = other.filter(|_| number % 2 == 0) {
                    let new = format!("uid=r{number}");
                    let request = format!("modrdn \"{other},dc=example,dc=com\" {new} delete\n");
                    requests.push((request, vec![(other.clone(), None), (new, Some(had.clone()))]));
                } else if let Some((other, _)) = other.filter(|_| number % 3 == 0) {
                    let request = format!("delete \"{other},dc=example,dc=com\"\n");
                    requests.push((request, vec![(other.clone(), None)]));
                }
            }
            for (request, effects) in requests {
                assert_eq!(ask(&mut connection, &request), "=> 0\n", "{request}");
                let csn = last_csn(&mut connection);
                for (name, descriptions) in effects {
                    match &descriptions {
                        Some(has) => drop(content.insert(name.clone(), has.clone())),
                        None => drop(content.remove(&name)),
                    }
                    self.done.lock().expect("no panic").push(Done { csn: csn.clone(), name, descriptions });
                }
            }
        }
    }

    /// Waits until so much more was done, and answers the last CSN.
    fn more(&self, count: usize) -> String {
        let done = || self.done.lock().expect("no panic");
        let wanted = done().len() + count;
        while done().len() < wanted {
            assert!(!self.has_ended.load(Ordering::Relaxed), "the worker has ended");
            thread::yield_now();
        }
        done().last().map(|last| last.csn.clone()).expect("something was done")
    }

    /// What is there after all changes up to this moment.
    fn until(&self, csn: &str) -> BTreeMap<String, Vec<String>> {
        let mut content = BTreeMap::new();
        for done in self.done.lock().expect("no panic").iter().filter(|done| done.csn.as_str() <= csn) {
            match &done.descriptions {
                Some(has) => drop(content.insert(done.name.clone(), has.clone())),
                None => drop(content.remove(&done.name)),
            }
        }
        content
    }
}

/// The CSN of the last change there was.
fn last_csn(connection: &mut Client) -> String {
    connection.value("dc=example,dc=com", "contextCSN").expect("a provider shows its contextCSN")
}

/// The same of a directory that was restored.
fn people(site: &Site) -> BTreeMap<String, Vec<String>> {
    let mut people = BTreeMap::new();
    for (name, entry) in entries(site) {
        let Some(name) = name.strip_prefix("dn: ").and_then(|dn| dn.strip_suffix(",dc=example,dc=com"))
        else {
            continue;
        };
        let values = entry.lines().filter_map(|line| line.strip_prefix("description: "));
        let mut values: Vec<String> = values.map(str::to_owned).collect();
        values.sort_by_key(|value| value.parse::<u64>().ok());
        people.insert(name.to_owned(), values);
    }
    people
}

/// A change of a server whose clock is ahead does not cut off what was changed here behind it, and before the moment.
#[test]
fn a_restore_to_a_moment_goes_by_the_clock_of_its_server() {
    let other = ScriptedProvider::start();
    let site = Site::new(
        Kind::Larix,
        &format!(
            "serverID 1\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@\nsyncrepl rid=001 provider=ldap://{} bindmethod=simple searchbase=dc=example,dc=com \
             type=refreshAndPersist retry=\"1 +\"\nmultiprovider on\n",
            other.address
        ),
    );
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut search = other.accept();
    search.inform(&SyncInfo::RefreshDelete { cookie: None, done: true });
    let mut connection = administrator(&server);
    assert_eq!(ask(&mut connection, &add(0)), "=> 0\n");
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    passes("backup", &site, &["--to", &backup]);
    let ahead = [
        ("objectClass", "account"),
        ("structuralObjectClass", "account"),
        ("uid", "ahead"),
        ("entryCSN", "20990101000000.000000Z#000000#002#000000"),
    ];
    search.add("uid=ahead,dc=example,dc=com", [9; 16], &ahead);
    let find = "search \"uid=ahead,dc=example,dc=com\" base (objectClass=*) 1.1\n";
    until("the entry of the other server is there", || ask(&mut connection, find).contains("=> 0"));
    assert_eq!(ask(&mut connection, &add(1)), "=> 0\n");
    let entry = entries(&site).remove("dn: uid=1,dc=example,dc=com").expect("the entry");
    let csn = entry.lines().find_map(|line| line.strip_prefix("entryCSN: ")).expect("a CSN");
    let time = csn.split('#').next().expect("a time");
    assert_eq!(ask(&mut connection, &add(2)), "=> 0\n");
    passes("backup", &site, &["--incremental", "--to", &backup]);
    let restored = Site::example(Kind::Larix);
    // Nor does it say that the backup has what was changed here until then.
    let later = ["--from", &backup, "--to-time", "2050-01-01T00:00:00Z"];
    fails_with("restore", &restored, &later, "before 20500101000000.000000Z: add an increment");
    passes("restore", &restored, &["--from", &backup, "--to-time", time]);
    passes("check", &restored, &[]);
    let names: Vec<String> = entries(&restored).into_keys().collect();
    let expected = ["", "uid=0,", "uid=1,", "uid=ahead,"].map(|name| format!("dn: {name}dc=example,dc=com"));
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    assert!(server.stop());
}

/// An accident is undone at once, also where another database has had no change for long: that one has nothing to wait for.
#[test]
fn a_database_is_restored_to_a_moment_beside_one_at_rest() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\n\
         database mdb\nsuffix dc=other\nrootdn cn=admin,dc=example,dc=com\ndirectory @DATA@-other\n",
    );
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = administrator(&server);
    assert_eq!(ask(&mut connection, "add \"dc=other\"\nobjectClass: domain\ndc: other\n"), "=> 0\n");
    churn(&mut connection, 1);
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    passes("backup", &site, &["--to", &backup]);
    churn(&mut connection, 2);
    let safe = moment(&site);
    for number in 1_000..1_010 {
        assert_eq!(ask(&mut connection, &format!("delete \"uid={number},dc=example,dc=com\"\n")), "=> 0\n");
    }
    passes("backup", &site, &["--incremental", "--to", &backup]);
    assert!(server.stop());
    let restored = Site::example(Kind::Larix);
    let chosen = ["--from", &backup, "-b", "dc=example,dc=com", "--to-time", &safe.time];
    passes("restore", &restored, &chosen);
    passes("check", &restored, &[]);
    assert!(entries(&restored) == safe.entries, "restored to {}", safe.time);
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

/// Full backup, mass delete and increment, all while somebody writes.
#[test]
fn a_mass_delete_beside_writes_is_undone_to_the_second() {
    // A provider shows the CSN of its last change.
    let configuration = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
                         directory @DATA@\noverlay syncprov\n";
    let site = Site::new(Kind::Larix, configuration);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    let worker = Worker::default();
    let (mut second, mut deleted) = (String::new(), BTreeSet::new());
    thread::scope(|scope| {
        let _over = SetAtEnd(&worker.is_over);
        scope.spawn(|| worker.work(&server));
        worker.more(30);
        passes("backup", &site, &["--to", &backup]);
        // Until a second has begun in which something was done.
        let begun = worker.more(1);
        let mut last = begun.clone();
        while last.get(..SECOND) <= begun.get(..SECOND) {
            last = worker.more(1);
        }
        last.truncate(SECOND);
        second = last;
        worker.more(5);
        worker.adds_only.store(true, Ordering::Relaxed);
        // The change that it had begun before.
        worker.more(6);
        let mut connection = administrator(&server);
        for name in worker.until("9").into_keys() {
            assert_eq!(ask(&mut connection, &format!("delete \"{name},dc=example,dc=com\"\n")), "=> 0\n");
            deleted.insert(name);
        }
        worker.more(10);
        passes("backup", &site, &["--incremental", "--to", &backup]);
        worker.more(10);
    });
    assert!(server.stop());
    passes("backup", &site, &["--verify", &backup, "--load"]);

    let restored = |arguments: &[&str]| {
        let other = Site::example(Kind::Larix);
        let report = passes("restore", &other, &[&["--from", backup.as_str()], arguments].concat());
        passes("check", &other, &[]);
        (people(&other), report)
    };
    let before = restored(&["--to-time", &format!("{second}Z")]).0;
    let expected = worker.until(&format!("{second}.000001Z"));
    assert!(before == expected, "restored {before:?}, expected {expected:?}");
    assert!(before.len() >= 10 && before.values().any(|values| !values.is_empty()), "{before:?}");
    // And all that the chain has.
    let (all, report) = restored(&[]);
    let last =
        report.lines().find_map(|line| line.split_once("the last change is ")).expect("a last change").1;
    let mut expected = worker.until(last);
    expected.retain(|name, _| !deleted.contains(name));
    assert!(all == expected, "restored {all:?}, expected {expected:?}");
}

/// The length of a time without its fraction.
const SECOND: usize = "20261121123456".len();

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
            let text = get(port, "/metrics");
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

fn get(port: u16, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("an HTTP connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
