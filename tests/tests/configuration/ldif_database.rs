//! `database ldif`: files that slapd wrote are served, and files that Larix wrote are served by slapd.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use larix_testkit::{Kind, Server, Site, until};

const SUFFIX: &str = "o=university,c=US";

fn configuration(kind: Kind, files: &Path) -> String {
    let module = if kind == Kind::Slapd && std::env::var("SLAPD_MODULES").as_deref() != Ok("") {
        "moduleload back_ldif\n"
    } else {
        ""
    };
    format!(
        "{module}database ldif\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\ndirectory {}\n",
        files.display()
    )
}

fn larix(words: &[&str], server: &Server, input: Option<&str>) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("input.ldif");
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    let url = format!("ldap://{}", server.address);
    let admin = format!("cn=admin,{SUFFIX}");
    command.args(words).args(["-x", "-H", &url, "-D", &admin, "-w", "secret"]).stdin(Stdio::null());
    if let Some(input) = input {
        std::fs::write(&file, input).expect("the LDIF");
        command.arg("-f").arg(&file);
    }
    command.output().expect("larix runs")
}

fn change(server: &Server, ldif: &str) {
    let output = larix(&["modify"], server, Some(ldif));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Every entry by its DN, without what each server computes for itself.
fn content(server: &Server) -> BTreeMap<String, Vec<String>> {
    let output = larix(
        &["search", "-LLL", "-o", "ldif_wrap=no", "-b", SUFFIX, "(objectClass=*)", "*", "+"],
        server,
        None,
    );
    let none = output.status.code() == Some(32);
    assert!(none || output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("LDIF is UTF-8");
    let computed = ["entryDN:", "subschemaSubentry:", "hasSubordinates:", "contextCSN:"];
    let entry = |text: &str| {
        let mut lines: Vec<String> =
            text.lines().filter(|l| !computed.iter().any(|c| l.starts_with(c))).map(str::to_owned).collect();
        let dn = if lines.is_empty() { String::new() } else { lines.remove(0) };
        lines.sort_unstable();
        (dn, lines)
    };
    text.split("\n\n").filter(|text| !text.trim().is_empty()).map(entry).collect()
}

/// The LDIF files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(here) = open.pop() {
        for child in std::fs::read_dir(here).expect("a directory") {
            let path = child.expect("a name").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ldif") {
                found.push(path.strip_prefix(directory).expect("below").to_owned());
            }
        }
    }
    found.sort();
    found
}

const BASE: &str = "dn: o=university,c=US
objectClass: organization
o: University

dn: ou=Some: People/Here.x,o=university,c=US
objectClass: organizationalUnit
ou: Some: People/Here.x

dn: cn=Ann\\, Smith+sn=Smith,ou=Some: People/Here.x,o=university,c=US
objectClass: inetOrgPerson
cn: Ann, Smith
sn: Smith
userPassword: pw
description: caf\u{e9}

dn: cn=J\u{fc}rgen Grau,ou=Some: People/Here.x,o=university,c=US
objectClass: inetOrgPerson
cn: J\u{fc}rgen Grau
sn: {1}x \\ y
";

const CHANGES: &str = "dn: cn=Ann\\, Smith+sn=Smith,ou=Some: People/Here.x,o=university,c=US
changetype: modify
add: title
title: boss
-
delete: description

dn: ou=Some: People/Here.x,o=university,c=US
changetype: modrdn
newrdn: ou=New: Place
deleteoldrdn: 1

dn: cn=a/b,ou=New: Place,o=university,c=US
changetype: add
objectClass: person
cn: a/b
sn: b

dn: cn=J\u{fc}rgen Grau,ou=New: Place,o=university,c=US
changetype: delete
";

/// Content written by one is what the other serves, before and after changes by either.
fn check(first: Kind, second: Kind) {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("files");
    std::fs::create_dir(&directory).expect("a folder");
    let site = |kind| Site::new(kind, &configuration(kind, &directory));
    let (one, other) = (site(first), site(second));

    let server = one.start().expect("the first starts");
    let adding: String = BASE.replace("\nobjectClass: ", "\nchangetype: add\nobjectClass: ");
    change(&server, &adding);
    let written = content(&server);
    assert_eq!(written.len(), 4);
    assert!(server.stop());

    let server = other.start().expect("the second starts");
    assert_eq!(content(&server), written, "{second:?} reads what {first:?} wrote");
    change(&server, CHANGES);
    let changed = content(&server);
    assert_eq!(changed.len(), 4);
    server.kill();

    let server = one.start().expect("the first starts again");
    assert_eq!(content(&server), changed, "{first:?} reads what {second:?} changed");
    assert!(server.stop());
    let top = directory.join("o=university,c=us");
    assert!(!top.join("ou=some\\3A people\\2Fhere\\2Ex").exists(), "{:?}", files(&directory));
    assert!(top.join("ou=new\\3A place/cn=a\\2Fb.ldif").exists(), "{:?}", files(&directory));
}

#[test]
fn what_slapd_wrote_is_served_and_the_other_way_round() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    check(Kind::Slapd, Kind::Larix);
    check(Kind::Larix, Kind::Slapd);
}

#[test]
fn tools_read_and_write_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::new(Kind::Larix, &configuration(Kind::Larix, folder.path()));
    site.load(BASE);
    assert_eq!(files(folder.path()).len(), 4);
    let cat = || {
        let mut command = Kind::Larix.tool("cat");
        let output = command.arg("-f").arg(site.configuration()).output().expect("cat runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("LDIF")
    };
    let whole = cat();
    assert_eq!(whole.matches("dn: ").count() + whole.matches("dn:: ").count(), 4, "{whole}");
    assert_eq!(cat(), whole, "entryUUIDs stay");
}

/// A server does not look at its files again: what another process changes there it would not serve, and overwrite.
#[test]
fn one_process_works_on_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = |files: &Path| Site::new(Kind::Larix, &configuration(Kind::Larix, files));
    let (one, other) = (site(folder.path()), site(folder.path()));
    one.load(BASE);
    let input = one.path().join("input.ldif");
    let tool = |name: &str, text: &str| {
        std::fs::write(&input, text).expect("the LDIF");
        let mut command = Kind::Larix.tool(name);
        let output = command.arg("-f").arg(one.configuration()).arg("-l").arg(&input).output();
        let output = output.expect("the tool runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let added = format!("dn: ou=more,{SUFFIX}\nobjectClass: organizationalUnit\nou: more\n");
    let changed = format!("dn: {SUFFIX}\nchangetype: modify\nadd: description\ndescription: x\n");
    let written = || {
        let read = |file: PathBuf| (file.clone(), std::fs::read(folder.path().join(file)).expect("a file"));
        files(folder.path()).into_iter().map(read).collect::<Vec<_>>()
    };

    let server = one.start().expect("larix starts");
    let before = written();
    let by_number = format!("is in use by process {}", server.process_id());
    for process in [&*by_number, "is in use by another process"] {
        for (name, text) in [("add", &added), ("offline-modify", &changed)] {
            let (done, report) = tool(name, text);
            assert!(!done && report.contains(process), "{name}: {report}");
        }
        let refused = other.start().expect_err("a second server is refused").to_string();
        assert!(refused.contains(process), "{refused}");
        assert_eq!(written(), before);
        // What looks like something left over is removed: the directory stays locked.
        std::fs::remove_file(folder.path().join("larix.lock")).expect("the lock file");
    }
    let mut cat = Kind::Larix.tool("cat");
    let output = cat.arg("-f").arg(one.configuration()).output().expect("cat runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // The lock goes with the process.
    server.kill();
    for (name, text) in [("add", &added), ("offline-modify", &changed)] {
        let (done, report) = tool(name, text);
        assert!(done, "{name}: {report}");
    }
    let server = other.start().expect("larix starts");
    assert_eq!(content(&server).len(), 5);
    assert!(server.stop());
}

#[test]
fn entries_written_by_hand_keep_what_the_server_gave_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "dn: o=university\nobjectClass: organization\no: university\n";
    std::fs::write(folder.path().join("o=University,c=us.ldif"), text).expect("a file");
    let site = Site::new(Kind::Larix, &configuration(Kind::Larix, folder.path()));
    let served = site.start().expect("larix starts");
    assert_eq!(content(&served).len(), 0, "its name is not the suffix's");
    assert!(served.stop());
    std::fs::rename(
        folder.path().join("o=University,c=us.ldif"),
        folder.path().join("o=university,c=us.ldif"),
    )
    .expect("a rename");
    let served = site.start().expect("larix starts");
    let first = content(&served);
    assert_eq!(first.len(), 1);
    served.kill();
    let served = site.start().expect("larix starts again");
    assert_eq!(content(&served), first);
}

#[test]
fn a_bad_file_is_named() {
    for (text, expected) in [
        ("dn: o=university\nobjectClass: organization\nnoSuchAttribute: x\n", "noSuchAttribute"),
        ("dn: o=university\nobjectClass organization\n", "o=university,c=us.ldif"),
        ("", "holds no entry"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("o=university,c=us.ldif"), text).expect("a file");
        let site = Site::new(Kind::Larix, &configuration(Kind::Larix, folder.path()));
        let refused = site.start().expect_err("a bad file is refused").to_string();
        assert!(refused.contains("o=university,c=us.ldif") && refused.contains(expected), "{refused}");
    }
}

/// What comes of a file that was copied for a new entry.
#[test]
fn two_files_of_one_entry_uuid_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::new(Kind::Larix, &configuration(Kind::Larix, folder.path()));
    site.load(BASE);
    let all = files(folder.path());
    let one = all.iter().find(|file| file.components().count() == 2).expect("a file below the suffix");
    let copy = one.with_file_name("ou=copy.ldif");
    let text = std::fs::read_to_string(folder.path().join(one)).expect("the file");
    let rdn = text.lines().find(|line| line.starts_with("dn: ")).expect("a name");
    let text = text.replace(rdn, "dn: ou=copy").replace("ou: Some: People/Here.x", "ou: copy");
    std::fs::write(folder.path().join(&copy), text).expect("the copy");
    let refused = site.start().expect_err("two entries with one entryUUID").to_string();
    for expected in [&*one.to_string_lossy(), "ou=copy.ldif", "has the entryUUID"] {
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
}

/// Images of LDIF files are as large as their databases.
#[test]
fn the_image_of_a_server_that_was_killed_is_removed_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let images = || {
        let found =
            std::fs::read_dir(&temporary).expect("a folder").map(|found| found.expect("a name").path());
        found.collect::<BTreeSet<PathBuf>>()
    };
    let start = |site: &Site| {
        Server::start_with(Kind::Larix, &site.configuration(), &["-d", "256"], &[("TMPDIR", &temporary)])
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let site = |name: &str| {
        let files = folder.path().join(name);
        std::fs::create_dir(&files).expect("a folder");
        let site = Site::new(Kind::Larix, &configuration(Kind::Larix, &files));
        site.load(BASE);
        site
    };
    let (killed, serving) = (site("killed"), site("serving"));
    let first = start(&killed);
    let left = images();
    assert_eq!(left.len(), 1);
    let second = start(&serving);
    let used: BTreeSet<_> = images().difference(&left).cloned().collect();
    assert_eq!(used.len(), 1);
    first.kill();
    assert!(images().is_superset(&left), "nobody removes them: {:?}", images());

    // Whatever it serves itself.
    let other = Site::new(Kind::Larix, "database null\nsuffix cn=null\n");
    let third = start(&other);
    assert_eq!(images(), used);
    let name = left.first().map(|image| image.display().to_string()).unwrap_or_default();
    let line = format!("{name}: removed");
    until(&line, || third.log().contains(&line));
    assert_eq!(content(&second).len(), 4);
    change(&second, CHANGES);
    assert!(third.stop());
    assert!(second.stop());
    assert_eq!(images(), BTreeSet::new());
}
