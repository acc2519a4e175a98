//! A server's journal: changes one after another, whatever fails, whenever the process or the machine ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use larix_engine::controls::{ControlValues, RequestControls};

use super::super::change::fixture::{TestSources, operations};
use super::super::entry::ConfigEntry;
use super::super::model::{Config, Source};
use super::commit::{FileChanges, Lock};
use super::commit_tests::{CHANGES, Failing, contents, entries, names, write};
use super::disk::Disk;
use super::journal::{JOURNAL, Keeper, RefusedJournal};
use super::read_entries;

/// All changes one after another, and the entries before the first and after each.
fn course() -> (Vec<FileChanges>, Vec<Vec<ConfigEntry>>) {
    let sorted = |mut all: Vec<ConfigEntry>| {
        all.sort_by(|one, other| one.dn.cmp(&other.dn));
        all
    };
    let start = entries();
    let mut config = Config::from_entries(start.clone(), Source::QuickStart).unwrap();
    let (mut files, mut states) = (Vec::new(), vec![sorted(start)]);
    let again = CHANGES[5].replace("30.1", "30.2").replace("more", "still");
    for ldif in CHANGES.into_iter().chain([again.as_str()]) {
        let controls = RequestControls::from(ControlValues { tree_delete: true, ..ControlValues::default() });
        let changed = TestSources::new().change(&config, operations(ldif).remove(0), controls).unwrap();
        files.push(FileChanges::between(Path::new("."), &config, &changed.config).unwrap());
        states.push(sorted(changed.config.entries()));
        config = changed.config;
    }
    (files, states)
}

/// Files below a directory, without what is left of unfinished ones.
fn files_in(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = names(directory).into_iter().map(PathBuf::from);
    let files = files.filter(|name| name.extension().is_some_and(|e| e != "new"));
    files.filter_map(|name| Some((name.clone(), std::fs::read(directory.join(&name)).ok()?))).collect()
}

fn place(directory: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (file, bytes) in files {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// As if these entries had been written into an empty directory.
fn clean(entries: &[ConfigEntry]) -> BTreeMap<PathBuf, Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), entries);
    files_in(directory.path())
}

/// The whole course with a fault at each of its steps.
fn check(ends: bool) {
    let (course, states) = course();
    let begin = clean(&states[0]);
    for step in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        place(path, &begin);
        let mut disk = Failing { left: step, ends, failed: false };
        let mut keeper = Keeper::default();
        let mut now = states[0].clone();
        for (number, files) in course.iter().enumerate() {
            let files = files.in_directory(path);
            let failed_before = disk.failed;
            let mut done = keeper.commit_on(&files, &mut disk);
            if done.is_err() {
                let after = contents(path);
                let whole = after == states[number] || (ends && after == states[number + 1]);
                assert!(whole, "step {step}, change {number}");
                now = after;
                if ends {
                    break;
                }
                done = keeper.commit_on(&files, &mut disk);
            }
            done.unwrap();
            now.clone_from(&states[number + 1]);
            if disk.failed != failed_before {
                assert!(contents(path) == now, "step {step}, change {number}");
            }
        }
        if !(ends && disk.failed) {
            if keeper.settle_on(&mut disk).is_err() && !ends {
                assert!(contents(path) == now, "step {step}");
                keeper.settle_on(&mut disk).unwrap();
            }
            assert!(ends || !path.join(JOURNAL).exists(), "step {step}");
        }
        assert!(contents(path) == now, "step {step}");
        // The next writer starts cleanly, and leaves nothing behind.
        write(path, &now[..1]);
        assert!(files_in(path) == clean(&now), "step {step}");
        if !disk.failed {
            return;
        }
    }
}

#[test]
fn a_full_disk_fails_a_change_and_none_before_it() {
    check(false);
}

#[test]
fn the_end_of_the_process_leaves_what_was_answered() {
    check(true);
}

/// What is in each file of a directory.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The directory before the course, that behind it, its journal, and where each of its records begins.
fn unsettled() -> (Files, Files, Vec<u8>, Vec<usize>) {
    let (course, states) = course();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let begin = clean(&states[0]);
    place(path, &begin);
    let mut keeper = Keeper::default();
    let length = || {
        let journal = std::fs::read(path.join(JOURNAL)).unwrap_or_default();
        journal.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    };
    let mut ends = Vec::new();
    for files in &course {
        keeper.commit(&files.in_directory(path)).unwrap();
        ends.push(length());
    }
    assert!(ends.is_sorted(), "all of them in one journal: {ends:?}");
    let mut end = files_in(path);
    let journal = end.remove(Path::new(JOURNAL)).unwrap();
    (begin, end, journal, ends)
}

/// Nothing but the journal was synced: any file may be as it was before, or be in part.
#[test]
fn a_loss_of_power_loses_nothing_that_was_answered() {
    let (_, states) = course();
    let last = states.last().unwrap();
    let (begin, end, journal, _) = unsettled();
    let all: BTreeSet<&PathBuf> = begin.keys().chain(end.keys()).collect();
    let wanted = clean(last);
    let try_with = |name: &str, is_old: &dyn Fn(&Path) -> bool| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let side = |file: &&PathBuf| if is_old(file) { begin.get(*file) } else { end.get(*file) };
        let files = all.iter().filter_map(|file| Some(((*file).clone(), side(file)?.clone())));
        place(path, &files.collect());
        std::fs::write(path.join(JOURNAL), &journal).unwrap();
        assert!(contents(path) == *last, "{name}");
        write(path, &last[..1]);
        assert!(files_in(path) == wanted, "{name}");
    };
    try_with("all old", &|_| true);
    try_with("all new", &|_| false);
    for file in begin.keys().filter(|file| end.get(*file) != begin.get(*file)) {
        try_with("one new", &|other| other != file);
        try_with("one old", &|other| other == file);
    }
    // A file that was renamed into place, and one that grew in its place, with none or half of their bytes.
    for file in end.keys().filter(|file| end.get(*file) != begin.get(*file)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        place(path, &end);
        let (old, new) = (begin.get(file), end.get(file).unwrap());
        let is_spliced = new.len() > 32_768;
        let half = match old {
            Some(old) if is_spliced => {
                [&new[..100], &old[100..], vec![0; new.len() - old.len()].as_slice()].concat()
            }
            _ => new[..new.len() / 2].to_vec(),
        };
        std::fs::write(path.join(file), half).unwrap();
        std::fs::write(path.join(JOURNAL), &journal).unwrap();
        assert!(contents(path) == *last, "{}", file.display());
    }
}

#[test]
fn a_record_that_was_being_written_has_not_happened_and_one_that_was_is_not_ignored() {
    let (_, states) = course();
    let (begin, _, journal, ends) = unsettled();
    let read = |journal: &[u8]| {
        let directory = tempfile::tempdir().unwrap();
        place(directory.path(), &begin);
        std::fs::write(directory.path().join(JOURNAL), journal).unwrap();
        read_entries(directory.path()).map(|_| contents(directory.path())).map_err(|error| error.to_string())
    };
    let [.., before, last] = ends.as_slice() else { panic!("a course of more than one change") };
    let until = states.len() - 2;
    for cut in [before + 1, before + 5, (before + last) / 2, last - 1] {
        let mut torn = journal.clone();
        torn[cut..].fill(0);
        assert!(read(&torn).unwrap() == states[until], "zeros from {cut} on");
        torn.truncate(cut);
        assert!(read(&torn).unwrap() == states[until], "cut at {cut}");
    }
    let mut damaged = journal;
    damaged[before - 3] ^= 1;
    let error = read(&damaged).unwrap_err();
    assert!(error.contains("larix.journal") && error.contains("is damaged"), "{error}");
    damaged[3] ^= 1;
    assert!(read(&damaged).unwrap_err().contains("is damaged"));
}

/// Tools that change the directory carry out what is in the journal, and take it away from the server.
#[test]
fn somebody_else_may_come_between_two_changes() {
    let (course, states) = course();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write(path, &states[0]);
    let mut keeper = Keeper::default();
    for (number, files) in course.iter().enumerate() {
        keeper.commit(&files.in_directory(path)).unwrap();
        assert!(path.join(JOURNAL).exists());
        write(path, &states[number + 1][..1]);
        assert!(!path.join(JOURNAL).exists());
        assert!(contents(path) == states[number + 1]);
    }
    keeper.settle().unwrap();
    assert!(files_in(path) == clean(states.last().unwrap()));
}

/// A copy, of this moment or an earlier one, takes the directory's place: what is answered from then on is safe in it.
#[test]
fn a_directory_in_the_place_of_another_has_a_journal_of_its_own() {
    let (course, states) = course();
    for with_journal in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (path, earlier) = (folder.path().join("slapd.d"), folder.path().join("earlier"));
        std::fs::create_dir(&path).unwrap();
        write(&path, &states[0]);
        let mut keeper = Keeper::default();
        keeper.commit(&course[0].in_directory(&path)).unwrap();
        let mut copy = files_in(&path);
        if !with_journal {
            copy.remove(Path::new(JOURNAL)).unwrap();
        }
        std::fs::rename(&path, &earlier).unwrap();
        std::fs::create_dir(&path).unwrap();
        place(&path, &copy);
        let (old, new) = (files_in(&earlier), files_in(&path));

        keeper.commit(&course[1].in_directory(&path)).unwrap();
        assert!(contents(&path) == states[2]);
        assert!(files_in(&earlier) == old, "what is answered was written where nobody looks");
        // Nothing but the journal was synced.
        let journal = std::fs::read(path.join(JOURNAL)).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        place(&path, &new);
        std::fs::write(path.join(JOURNAL), journal).unwrap();
        assert!(contents(&path) == states[2], "lost with the power");
        keeper.commit(&course[2].in_directory(&path)).unwrap();
        keeper.settle().unwrap();
        assert!(files_in(&path) == clean(&states[3]));
    }
}

#[test]
fn a_full_journal_is_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut keeper = Keeper::default();
    let mut longest = 0;
    for number in 0..30_usize {
        let bytes = vec![b'a'; if number == 20 { 300_000 } else { 10_000 + number }];
        let file = PathBuf::from(format!("{}.ldif", number % 3));
        let files = BTreeMap::from([(file.clone(), Some(bytes.clone()))]);
        keeper.commit(&FileChanges::of(path, files)).unwrap();
        assert!(std::fs::read(path.join(file)).unwrap() == bytes);
        if number != 20 {
            longest = longest.max(std::fs::metadata(path.join(JOURNAL)).unwrap().len());
        }
    }
    assert_eq!(longest, 131_072, "the journal's length is that of its beginning");
    keeper.settle().unwrap();
    assert_eq!(names(path), ["0.ldif", "1.ldif", "2.ldif"]);
}

/// Refuses each step from one on, until it is repaired.
struct Broken {
    /// Steps that are still taken; none: it works.
    left: Option<usize>,
}

impl Disk for Broken {
    fn step(&mut self, _: &Path) -> io::Result<()> {
        match &mut self.left {
            None => Ok(()),
            Some(0) => Err(io::Error::other("broken")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

/// What broke the change may have kept its journal from being removed, too.
#[test]
fn a_refused_change_is_not_made_once_the_disk_is_repaired() {
    let change = |path: &Path, name: &str| {
        FileChanges::of(path, BTreeMap::from([(PathBuf::from(name), Some(b"x".to_vec()))]))
    };
    for (is_kept, before, next) in [
        (true, &["0.ldif"][..], &["2.ldif"][..]),
        (true, &["0.ldif"], &[]),
        (true, &[], &["2.ldif"]),
        (true, &[], &[]),
        (false, &["0.ldif"], &["2.ldif"]),
    ] {
        for step in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            let mut disk = Broken { left: None };
            let (mut keeper, mut refused) = (Keeper::default(), RefusedJournal::default());
            let mut commit = |disk: &mut Broken, name: &str| match is_kept {
                true => keeper.commit_on(&change(path, name), disk),
                false => change(path, name).commit_under(disk, Lock::exclusive, None, &mut refused),
            };
            for name in before {
                commit(&mut disk, name).unwrap();
            }
            disk.left = Some(step);
            let made = commit(&mut disk, "1.ldif").is_ok();
            disk.left = None;
            for name in next {
                commit(&mut disk, name).unwrap();
            }
            keeper.settle_on(&mut disk).unwrap();
            let own: &[&str] = if made { &["1.ldif"] } else { &[] };
            let expected = [before, own, next].concat();
            let found: Vec<String> = files_in(path).keys().map(|name| name.display().to_string()).collect();
            assert_eq!(found, expected, "{is_kept} {before:?} {next:?}, step {step}");
            if made {
                assert!(step > 2, "{step}");
                break;
            }
        }
    }
}

/// What a version before this one left when it was killed.
#[test]
fn a_journal_of_one_change_is_read() {
    let (course, states) = course();
    let body = course[0].to_record();
    let magic = "# Changes of this directory that are not carried out yet. Do not remove.\n";
    let mut text = format!("{magic}{:08x}\n", body.crc()).into_bytes();
    text.extend(body.to_vec());
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &states[0]);
    std::fs::write(directory.path().join(JOURNAL), text).unwrap();
    assert!(contents(directory.path()) == states[1]);
}
