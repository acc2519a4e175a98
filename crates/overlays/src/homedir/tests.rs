//! Directories of accounts in a folder of their own, as the change log tells of the accounts.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use larix_store::memory::MemoryStore;

use super::{DESCRIPTOR, files, is_plain, tree};
use crate::testing::{Fixture, Followed, SUFFIX, build, directory, schema};

/// A folder with a skeleton and a place for homes and archives, and a directory whose accounts live there.
struct House {
    folder: tempfile::TempDir,
    fixture: Fixture<MemoryStore>,
    followed: Followed,
}

fn own_ids() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

impl House {
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in ["home", "archive", "skel/.config"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        fs::write(path.join("skel/.profile"), "umask 77\n").unwrap();
        fs::set_permissions(path.join("skel/.profile"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(path.join("skel"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("../gone", path.join("skel/.config/link")).unwrap();
        let lines = format!(
            "homedir-regexp ^/home/([-_/a-z0-9]+)$ {path}/home/$1\nhomedir-skeleton-path {path}/skel\n\
             homedir-archive-path {path}/archive\nhomedir-min-uidnumber {}\n{more}",
            own_ids().0,
            path = path.display()
        );
        let fixture = directory(&[(&DESCRIPTOR, &lines)]);
        fixture.apply(&format!(
            "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n"
        ));
        let followed = Followed::new(&fixture, "homedir");
        Self { folder, fixture, followed }
    }

    fn home(&self, name: &str) -> PathBuf {
        self.folder.path().join("home").join(name)
    }

    /// Carries out a change. Answers what the overlay reports.
    fn apply(&mut self, ldif: &str) -> Vec<String> {
        self.fixture.apply(ldif);
        self.followed.catch_up(None)
    }

    fn add(&mut self, name: &str, home: &str) -> Vec<String> {
        self.apply(&account(name, home, own_ids()))
    }

    /// What is in the folder of homes.
    fn homes(&self) -> Vec<String> {
        listed(&self.folder.path().join("home"))
    }
}

fn account(name: &str, home: &str, (uid, gid): (u32, u32)) -> String {
    format!(
        "dn: uid={name},{SUFFIX}\nobjectClass: account\nobjectClass: posixAccount\nuid: {name}\ncn: {name}\nuidNumber: {uid}\n\
         gidNumber: {gid}\nhomeDirectory: {home}\n"
    )
}

fn modify(name: &str, lines: &str) -> String {
    format!("dn: uid={name},{SUFFIX}\nchangetype: modify\n{lines}\n")
}

fn delete(name: &str) -> String {
    format!("dn: uid={name},{SUFFIX}\nchangetype: delete\n")
}

fn listed(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const NOTHING: [String; 0] = [];

#[test]
fn a_home_is_made_of_the_skeleton_moved_and_archived() {
    let mut house = House::new("homedir-delete-style ARCHIVE");
    assert_eq!(house.add("ann", "/home/ann"), NOTHING);
    let home = house.home("ann");
    assert_eq!(listed(&home), [".config", ".profile"]);
    assert_eq!(fs::metadata(&home).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(fs::metadata(home.join(".profile")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_link(home.join(".config/link")).unwrap(), Path::new("../gone"));
    fs::write(home.join("letter"), "x".repeat(1_000)).unwrap();
    let long = home.join("d".repeat(120)).join("e".repeat(120));
    fs::create_dir_all(&long).unwrap();
    // A name does not matter, and neither do other attributes.
    house.apply(&format!("dn: uid=ann,{SUFFIX}\nchangetype: modrdn\nnewrdn: uid=anna\ndeleteoldrdn: 1\n"));
    house.apply(&modify("anna", "replace: cn\ncn: Anna"));
    assert_eq!(house.homes(), ["ann"]);
    assert_eq!(house.apply(&modify("anna", "replace: homeDirectory\nhomeDirectory: /home/anna")), NOTHING);
    assert_eq!(house.homes(), ["anna"]);
    assert!(house.home("anna/letter").exists());
    assert_eq!(house.apply(&delete("anna")), NOTHING);
    assert_eq!(house.homes(), NOTHING);
    let archives = listed(&house.folder.path().join("archive"));
    let [archive] = archives.as_slice() else { panic!("{archives:?}") };
    assert!(archive.starts_with("anna-") && archive.ends_with("-0.tar"), "{archive}");
    let archive = house.folder.path().join("archive").join(archive);
    let metadata = fs::metadata(&archive).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.len() % 512), (0o600, 0));
    // Another program reads it.
    let out = house.folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let tar = Command::new("tar").arg("-xpf").arg(&archive).arg("-C").arg(&out).output().unwrap();
    assert!(tar.status.success() && tar.stderr.is_empty(), "{}", String::from_utf8_lossy(&tar.stderr));
    let back = out.join(house.home("anna").strip_prefix("/").unwrap());
    assert_eq!(fs::read_to_string(back.join("letter")).unwrap(), "x".repeat(1_000));
    assert!(back.join("d".repeat(120)).join("e".repeat(120)).is_dir());
    assert_eq!(fs::read_link(back.join(".config/link")).unwrap(), Path::new("../gone"));
    assert_eq!(fs::metadata(back.join(".profile")).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_crash_leaves_no_account_without_a_home() {
    let mut house = House::new("");
    house.fixture.apply(&account("ann", "/home/ann", own_ids()));
    house.fixture.apply(&account("ben", "/home/ben", own_ids()));
    // The crash came while the first of them was filled.
    fs::create_dir_all(house.home(".ann.larix-copy/half")).unwrap();
    house.followed.begin_again();
    assert_eq!(house.followed.catch_up(None), NOTHING);
    assert_eq!(house.homes(), ["ann", "ben"]);
    assert_eq!(listed(&house.home("ann")), [".config", ".profile"]);
    // What somebody has taken away stays away when the account is changed.
    fs::remove_dir_all(house.home("ann")).unwrap();
    house.followed.begin_again();
    assert_eq!(house.apply(&modify("ann", "replace: homeDirectory\nhomeDirectory: /home/ann")), NOTHING);
    assert_eq!(house.homes(), ["ben"]);
}

#[test]
fn a_home_appears_when_it_is_whole() {
    let mut house = House::new("");
    let deep = (0..=100).fold(house.folder.path().join("skel"), |path, _| path.join("d"));
    fs::create_dir_all(&deep).unwrap();
    let reports = house.add("ann", "/home/ann");
    assert!(reports.len() == 1 && reports[0].contains("more than 100 folders deep"), "{reports:?}");
    assert_eq!(house.homes(), NOTHING);
}

#[test]
fn styles_of_deletion() {
    for (style, expected) in [("", &["ann", "ben"][..]), ("homedir-delete-style DELETE", &[])] {
        let mut house = House::new(style);
        house.add("ann", "/home/ann");
        house.add("ben", "/home/ben");
        // An account that becomes none, and one that goes.
        let lines = "delete: objectClass\nobjectClass: posixAccount\n-\ndelete: uidNumber\n-\ndelete: gidNumber\n-\n\
                     delete: homeDirectory\n-\ndelete: cn";
        assert_eq!(house.apply(&modify("ann", lines)), NOTHING);
        assert_eq!(house.apply(&delete("ben")), NOTHING);
        assert_eq!(house.homes(), expected, "{style}");
        assert_eq!(listed(&house.folder.path().join("archive")), NOTHING);
    }
}

#[test]
fn who_is_left_alone() {
    let mut house = House::new("homedir-delete-style DELETE");
    let (uid, gid) = own_ids();
    for (name, home) in [
        ("a", "/home/../etc"),
        ("b", "/srv/b"),
        ("c", "home/c"),
        ("d", "/home/D"),
        ("e", "/home/"),
        ("f", "/home//x/../y"),
    ] {
        assert_eq!(house.add(name, home), NOTHING);
    }
    if uid > 0 {
        house.apply(&account("g", "/home/g", (uid - 1, gid)));
    }
    assert_eq!(house.homes(), NOTHING);
    // What is there stays as it is.
    fs::create_dir(house.home("ann")).unwrap();
    assert_eq!(house.add("ann", "/home/ann"), NOTHING);
    assert_eq!(listed(&house.home("ann")), NOTHING);
    // Two accounts with one directory; the one that stays keeps it.
    assert_eq!(house.add("ben", "/home/ann"), NOTHING);
    assert_eq!(house.apply(&delete("ben")), NOTHING);
    assert_eq!(house.homes(), ["ann"]);
    assert_eq!(house.add("cat", "/home/ann/cat"), NOTHING);
    assert_eq!(house.apply(&modify("ann", "replace: homeDirectory\nhomeDirectory: /home/other")), NOTHING);
    assert_eq!(house.homes(), ["ann", "other"]);
    house.apply(&delete("cat"));
    fs::remove_dir_all(house.home("other")).unwrap();
    house.apply(&modify("ann", "replace: homeDirectory\nhomeDirectory: /home/ann"));
    // A value that is not looked after leaves the directory.
    assert_eq!(house.apply(&modify("ann", "replace: homeDirectory\nhomeDirectory: /srv/ann")), NOTHING);
    assert_eq!(house.homes(), ["ann"]);
    assert_eq!(house.apply(&delete("ann")), NOTHING);
    assert_eq!(house.homes(), ["ann"]);
}

#[test]
fn what_cannot_be_done_is_reported() {
    let mut house = House::new("homedir-delete-style ARCHIVE");
    let reports = house.add("ann", "/home/missing/ann");
    assert!(
        reports.len() == 1 && reports[0].contains("home/missing/ann is not made: No such file"),
        "{reports:?}"
    );
    house.add("ben", "/home/ben");
    fs::create_dir(house.home("taken")).unwrap();
    let reports = house.apply(&modify("ben", "replace: homeDirectory\nhomeDirectory: /home/taken"));
    assert!(reports.len() == 1 && reports[0].contains("is not moved to"), "{reports:?}");
    assert_eq!(house.homes(), ["ben", "taken"]);
    // Without an archive nothing is deleted.
    house.add("cid", "/home/cid");
    fs::remove_dir(house.folder.path().join("archive")).unwrap();
    let reports = house.apply(&delete("cid"));
    assert!(reports.len() == 1 && reports[0].contains("is not archived, and stays"), "{reports:?}");
    assert!(house.home("cid").exists());
}

/// A home with a nested folder, a link, and a file that another time has changed.
fn furnish(home: &Path) {
    fs::create_dir_all(home.join("letters/old")).unwrap();
    fs::write(home.join("letters/old/one"), "x".repeat(100_000)).unwrap();
    fs::set_permissions(home.join("letters"), fs::Permissions::from_mode(0o2750)).unwrap();
    symlink("letters/old", home.join("link")).unwrap();
    let file = fs::File::options().write(true).open(home.join("letters/old/one")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5)).unwrap();
}

fn assert_furnished(home: &Path) {
    assert_eq!(fs::read_to_string(home.join("letters/old/one")).unwrap(), "x".repeat(100_000));
    let metadata = fs::metadata(home.join("letters/old/one")).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 5));
    assert_eq!(fs::metadata(home.join("letters")).unwrap().mode() & 0o7777, 0o2750);
    assert_eq!(fs::read_link(home.join("link")).unwrap(), Path::new("letters/old"));
}

#[test]
fn a_home_is_copied_where_it_cannot_be_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("ann"), folder.path().join("new"));
    fs::create_dir(&from).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o711)).unwrap();
    furnish(&from);
    // A copy that a crash has left.
    fs::create_dir_all(folder.path().join(".new.larix-copy/half")).unwrap();
    files::relocate_by_copy(&from, &to).unwrap();
    assert_furnished(&to);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o711);
    assert_eq!(listed(folder.path()), ["new"]);

    // What cannot be copied stays, and nothing is left of the copy.
    let deep = (0..=tree::DEPTH_MAX).fold(to.clone(), |path, _| path.join("d"));
    fs::create_dir_all(&deep).unwrap();
    let error = files::relocate_by_copy(&to, &from).unwrap_err().to_string();
    assert_eq!(error, "it is more than 200 folders deep");
    assert_furnished(&to);
    assert_eq!(listed(folder.path()), ["new"]);
}

#[test]
fn a_home_moves_to_another_file_system() {
    const ANOTHER: &str = "another file system at /dev/shm or /var/tmp";
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    let own = device(&std::env::temp_dir());
    let elsewhere =
        ["/dev/shm", "/var/tmp"].into_iter().find(|path| ![None, own].contains(&device(Path::new(path))));
    let elsewhere = elsewhere.and_then(|path| tempfile::tempdir_in(path).ok());
    let Some(elsewhere) = elsewhere else { return larix_packages::note_lack(ANOTHER) };
    let mut house = House::new(&format!("homedir-regexp ^/fast/([a-z]+)$ {}/$1", elsewhere.path().display()));
    house.add("ann", "/home/ann");
    furnish(&house.home("ann"));
    assert_eq!(house.apply(&modify("ann", "replace: homeDirectory\nhomeDirectory: /fast/ann")), NOTHING);
    assert_furnished(&elsewhere.path().join("ann"));
    assert_eq!((house.homes(), listed(elsewhere.path())), (vec![], vec!["ann".to_owned()]));
}

#[test]
fn another_owner() {
    if !rustix::process::getuid().is_root() {
        return larix_packages::note_lack(larix_packages::ROOT);
    }
    let mut house = House::new("");
    house.apply(&account("ann", "/home/ann", (7_001, 7_002)));
    let owner = |path: &Path| {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.uid(), metadata.gid())
    };
    let home = house.home("ann");
    fs::write(home.join("roots"), "x").unwrap();
    for path in [home.clone(), home.join(".profile"), home.join(".config/link")] {
        assert_eq!(owner(&path), (7_001, 7_002), "{}", path.display());
    }
    // A link leads nowhere.
    let other = house.folder.path().join("other");
    fs::write(&other, "x").unwrap();
    std::os::unix::fs::chown(&other, Some(7_001), Some(7_002)).unwrap();
    symlink(&other, home.join("away")).unwrap();
    std::os::unix::fs::lchown(home.join("away"), Some(7_001), Some(7_002)).unwrap();
    let lines = "replace: uidNumber\nuidNumber: 7003\n-\nreplace: homeDirectory\nhomeDirectory: /home/anna";
    assert_eq!(house.apply(&modify("ann", lines)), NOTHING);
    let home = house.home("anna");
    for path in [home.clone(), home.join(".profile"), home.join(".config/link"), home.join("away")] {
        assert_eq!(owner(&path), (7_003, 7_002), "{}", path.display());
    }
    assert_eq!(owner(&home.join("roots")), (0, 0));
    assert_eq!(owner(&other), (7_001, 7_002));
}

#[test]
fn settings() {
    let schema = schema("");
    for (lines, expected) in [
        (
            "homedir-delete-style SHRED",
            "homedir-delete-style \"SHRED\": there is no such style; write IGNORE",
        ),
        ("homedir-regexp ^/home/( $1", "not a regular expression"),
        ("homedir-regexp ^/home/x$ /export$1", "it names parentheses that are not there"),
        ("homedir-regexp ^/home/x$ export", "does not begin with /"),
        ("homedir-archive-path ../x", "not an absolute path without `..`"),
        ("homedir-min-uidnumber few", "homedir-min-uidnumber \"few\""),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    let notes = |lines: &str| build(&DESCRIPTOR, &schema, lines).unwrap().notes(&schema);
    assert_eq!(notes("").len(), 1);
    assert_eq!(notes("homedir-regexp ^(/home/.*)$ $1"), NOTHING);
    assert_eq!(notes("homedir-regexp ^(/home/.*)$ $1\nhomedir-delete-style archive").len(), 1);
    for (path, expected) in
        [("/a/b", true), ("/a", true), ("/", false), ("a", false), ("/a/../b", false), ("", false)]
    {
        assert_eq!(is_plain(Path::new(path)), expected, "{path}");
    }
}
