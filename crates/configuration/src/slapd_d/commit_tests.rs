//! A change of several files is there or it is not: whatever fails, and whenever the process ends.

use std::io;
use std::path::Path;

use larix_engine::controls::{ControlValues, RequestControls};

use super::super::change::fixture::{TestSources, operations, start};
use super::super::entry::{ConfigAttribute, ConfigEntry};
use super::super::load::convert;
use super::super::model::{Config, Source};
use super::commit::FileChanges;
use super::disk::Disk;
use super::{exists_in, read_entries};

/// Fails at one step, and if it is the end of the process at all after it.
pub(super) struct Failing {
    pub(super) left: usize,
    pub(super) ends: bool,
    pub(super) failed: bool,
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

pub(super) const CHANGES: [&str; 6] = [
    // One file, but for contextCSN.
    "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\ndelete: olcAccess\nolcAccess: {0}\n",
    "dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: 7\n",
    // Files and directories get other names.
    "dn: olcDatabase={1}mdb,cn=config\nchangetype: add\nobjectClass: olcDatabaseConfig\n\
     objectClass: olcMdbConfig\nolcDatabase: {1}mdb\nolcSuffix: cn=new\nolcDbDirectory: /tmp/larix-test/new\n",
    "dn: olcDatabase={2}mdb,cn=config\nchangetype: modrdn\nnewrdn: olcDatabase={1}mdb\ndeleteoldrdn: 1\n",
    "dn: olcDatabase={1}mdb,cn=config\nchangetype: delete\n",
    // A large file gets what differs.
    "dn: cn={2}many,cn=schema,cn=config\nchangetype: modify\nadd: olcObjectClasses\n\
     olcObjectClasses: ( 1.3.9999.30.1 NAME 'more' SUP top AUXILIARY )\n",
];

/// A section with so many definitions that its file is a large one.
const MANY: usize = 500;

/// The entries of the fixture, with their operational attributes.
pub(super) fn entries() -> Vec<ConfigEntry> {
    let sources = TestSources::new();
    let mut entries = start(Source::QuickStart).entries();
    let mut many = ConfigEntry::new("cn={2}many,cn=schema,cn=config", &["olcSchemaConfig"]);
    many.text("cn", "{2}many");
    let class = |number| {
        format!("{{{number}}}( 1.3.9999.20.{number} NAME 'many{number}' SUP top AUXILIARY MAY larch )")
            .into_bytes()
    };
    many.attributes.push(ConfigAttribute::new("olcObjectClasses", (0..MANY).map(class).collect::<Vec<_>>()));
    entries.push(many);
    entries.iter_mut().for_each(|entry| sources.stamp().complete(entry));
    entries
}

pub(super) fn write(directory: &Path, entries: &[ConfigEntry]) {
    FileChanges::adding(directory, entries).unwrap().commit().unwrap();
}

pub(super) fn contents(directory: &Path) -> Vec<ConfigEntry> {
    let mut all = read_entries(directory).unwrap().0;
    all.sort_by(|one, other| one.dn.cmp(&other.dn));
    all
}

pub(super) fn names(directory: &Path) -> Vec<String> {
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

/// A process that is killed while it fills a directory leaves a configuration there as soon as there is its journal. What is
/// converted into that directory afterwards must not be added to it.
#[test]
fn nothing_is_converted_into_a_directory_that_a_journal_fills() {
    let all = entries();
    let sources = TestSources::new();
    let other = start(Source::QuickStart);
    let mut journals_alone = 0;
    for step in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut disk = Failing { left: step, ends: true, failed: false };
        // Whether it could be carried out is not told.
        let _ = FileChanges::adding(path, &all).unwrap().commit_on(&mut disk);
        if exists_in(path) {
            journals_alone += usize::from(!path.join("cn=config.ldif").exists());
            let refused = convert(&other, path, &sources.stamp()).unwrap_err().to_string();
            assert!(refused.contains("holds a configuration already"), "step {step}: {refused}");
            assert_eq!(contents(path).len(), all.len(), "step {step}");
        }
        if !disk.failed {
            break;
        }
    }
    assert!(journals_alone > 0);
}

/// Tries the change with a fault at each of its steps.
fn check(ldif: &str, ends: bool) {
    let start = entries();
    let old = Config::from_entries(start.clone(), Source::QuickStart).unwrap();
    let controls = RequestControls::from(ControlValues { tree_delete: true, ..ControlValues::default() });
    let changed = TestSources::new().change(&old, operations(ldif).remove(0), controls).unwrap();
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
        // The next writer starts cleanly, and leaves nothing behind.
        write(path, &after[..1]);
        let clean = tempfile::tempdir().unwrap();
        write(clean.path(), &after);
        let found: Vec<String> = names(path).into_iter().filter(|name| !name.ends_with(".new")).collect();
        assert_eq!(found, names(clean.path()), "step {step}");
        for file in found.iter().filter(|name| name.ends_with(".ldif")) {
            let read = |directory: &Path| std::fs::read(directory.join(file)).unwrap();
            assert!(read(path) == read(clean.path()), "{ldif} step {step}: {file}");
        }
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

/// A large file that was edited or removed while a change waits in the journal.
#[test]
fn a_file_edited_behind_the_journal_is_told() {
    let [.., ldif] = CHANGES;
    let start = entries();
    let old = Config::from_entries(start.clone(), Source::QuickStart).unwrap();
    let changed =
        TestSources::new().change(&old, operations(ldif).remove(0), RequestControls::default()).unwrap();
    let files = FileChanges::between(Path::new("."), &old, &changed.config).unwrap();
    let section = "cn=config/cn=schema/cn={2}many.ldif";
    let waiting = || {
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("larix.journal");
        for left in 0.. {
            write(directory.path(), &start);
            let mut disk = Failing { left, ends: true, failed: false };
            files.in_directory(directory.path()).commit_on(&mut disk).ok();
            if journal.exists() {
                break;
            }
        }
        let length = std::fs::metadata(&journal).unwrap().len();
        assert!(length < 16_384, "the journal holds {length} bytes");
        directory
    };
    let directory = waiting();
    let file = directory.path().join(section);
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replacen("larch", "", 3)).unwrap();
    for error in [
        read_entries(directory.path()).unwrap_err(),
        FileChanges::adding(directory.path(), &start[..1]).unwrap().commit().unwrap_err(),
    ] {
        let error = error.to_string();
        assert!(error.contains("edited after larix.journal") && error.contains(section), "{error}");
    }
    let directory = waiting();
    std::fs::remove_file(directory.path().join(section)).unwrap();
    assert_eq!(contents(directory.path()).len(), start.len() - 1);
    write(directory.path(), &start[..1]);
    assert!(!directory.path().join(section).exists() && !directory.path().join("larix.journal").exists());
}

/// What another program has made of a large file is written over as a whole.
#[test]
fn a_large_file_that_stands_otherwise_is_written_anew() {
    let [.., ldif] = CHANGES;
    let start = entries();
    let old = Config::from_entries(start.clone(), Source::QuickStart).unwrap();
    let changed =
        TestSources::new().change(&old, operations(ldif).remove(0), RequestControls::default()).unwrap();
    let files = FileChanges::between(Path::new("."), &old, &changed.config).unwrap();
    let (directory, clean) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(directory.path(), &start);
    write(clean.path(), &changed.config.entries());
    let section = "cn=config/cn=schema/cn={2}many.ldif";
    std::fs::write(directory.path().join(section), "dn: cn={2}many\n").unwrap();
    files.in_directory(directory.path()).commit().unwrap();
    let read = |directory: &Path| std::fs::read(directory.join(section)).unwrap();
    assert!(read(directory.path()) == read(clean.path()));
}
