//! A change of several files is there or it is not: whatever fails, and whenever the process ends.

use std::io;
use std::path::Path;

use larix_engine::controls::RequestControls;

use super::super::change::fixture::{Ground, operations, start};
use super::super::entries::ConfigEntry;
use super::super::model::{Config, Source};
use super::commit::FileChanges;
use super::disk::Disk;
use super::read_entries;

/// Fails at one step, and if it is the end of the process at all after it.
struct Failing {
    left: usize,
    ends: bool,
    failed: bool,
}

impl Disk for Failing {
    fn step(&mut self, _: &Path) -> io::Result<()> {
        if self.failed && self.ends {
            return Err(io::Error::other("gone"));
        }
        if self.left == 0 && !self.failed {
            self.failed = true;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.left = self.left.saturating_sub(1);
        Ok(())
    }
}

const CHANGES: [&str; 5] = [
    // One file, but for contextCSN.
    "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\ndelete: olcAccess\nolcAccess: {0}\n",
    "dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: 7\n",
    // Files and directories get other names.
    "dn: olcDatabase={1}mdb,cn=config\nchangetype: add\nobjectClass: olcDatabaseConfig\n\
     objectClass: olcMdbConfig\nolcDatabase: {1}mdb\nolcSuffix: cn=new\nolcDbDirectory: /tmp/larix-test/new\n",
    "dn: olcDatabase={2}mdb,cn=config\nchangetype: modrdn\nnewrdn: olcDatabase={1}mdb\ndeleteoldrdn: 1\n",
    "dn: olcDatabase={1}mdb,cn=config\nchangetype: delete\n",
];

/// The entries of the fixture, with their operational attributes.
fn entries() -> Vec<ConfigEntry> {
    let ground = Ground::new();
    let mut entries = start(Source::QuickStart).entries();
    entries.iter_mut().for_each(|entry| ground.stamp().complete(entry));
    entries
}

fn write(directory: &Path, entries: &[ConfigEntry]) {
    FileChanges::adding(directory, entries).unwrap().commit().unwrap();
}

fn contents(directory: &Path) -> Vec<ConfigEntry> {
    let mut all = read_entries(directory).unwrap().0;
    all.sort_by(|one, other| one.dn.cmp(&other.dn));
    all
}

fn names(directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for child in std::fs::read_dir(&path).unwrap() {
            let child = child.unwrap().path();
            all.push(child.strip_prefix(directory).unwrap().display().to_string());
            if child.is_dir() {
                open.push(child);
            }
        }
    }
    all.sort();
    all
}

/// Tries the change with a fault at each of its steps.
fn check(ldif: &str, ends: bool) {
    let start = entries();
    let old = Config::from_entries(start.clone(), Source::QuickStart).unwrap();
    let controls = RequestControls { tree_delete: true, ..RequestControls::default() };
    let changed = Ground::new().change(&old, operations(ldif).remove(0), controls).unwrap();
    let files = FileChanges::between(Path::new("."), &old, &changed.config).unwrap();
    let sorted = |mut all: Vec<ConfigEntry>| {
        all.sort_by(|one, other| one.dn.cmp(&other.dn));
        all
    };
    let (before, wanted) = (sorted(start.clone()), sorted(changed.config.entries()));
    for step in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(path, &start);
        let mut disk = Failing { left: step, ends, failed: false };
        let done = files.in_directory(path).commit_on(&mut disk);
        let after = contents(path);
        match &done {
            Ok(()) => assert!(after == wanted, "{ldif} step {step}"),
            Err(_) if ends => assert!(after == before || after == wanted, "{ldif} step {step}"),
            Err(error) => {
                assert!(after == before, "{ldif} step {step}");
                let named = path.display().to_string();
                assert!(error.to_string().contains(&named), "{error}");
            }
        }
        // Whoever comes next finds its feet, and leaves nothing behind.
        write(path, &after[..1]);
        let clean = tempfile::tempdir().unwrap();
        write(clean.path(), &after);
        let found: Vec<String> = names(path).into_iter().filter(|name| !name.ends_with(".new")).collect();
        assert_eq!(found, names(clean.path()), "step {step}");
        if !disk.failed {
            return;
        }
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    CHANGES.iter().for_each(|ldif| check(ldif, false));
}

#[test]
fn the_end_of_the_process_leaves_the_old_or_the_new() {
    CHANGES.iter().for_each(|ldif| check(ldif, true));
}

#[test]
fn a_damaged_journal_is_told() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &entries());
    std::fs::write(directory.path().join("larix.journal"), "half").unwrap();
    let error = read_entries(directory.path()).unwrap_err().to_string();
    assert!(error.contains("larix.journal"), "{error}");
}
