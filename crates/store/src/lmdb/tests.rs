//! What only a store on disk can do wrong.

use std::fs;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, mkfifoat};

use super::open::map_within;
use super::{
    DamagedPage, DirectoryLock, LmdbOptions, LmdbStore, Old, PageEvent, RESTORING, give_to_owner,
    keep_snapshots, release_snapshots, rest_snapshots, wait_for_readers,
};
use crate::contract::{INTEGER, ORDERED, POSTINGS, TABLES};
use crate::error::{CommitError, OpenError, ReadError};
use crate::store::{Durability, Snapshot, Store, Transaction};
use crate::table::{Direction, KeyRange};
use crate::write_set::WriteSet;

const PAGE: usize = 4096;

fn open(path: &Path) -> Result<LmdbStore, OpenError> {
    LmdbStore::open(path, &TABLES, &LmdbOptions::default())
}

fn directory() -> tempfile::TempDir {
    tempfile::TempDir::new().expect("a temporary directory")
}

fn put(store: &LmdbStore, key: &[u8], value: Vec<u8>, durability: Durability) -> Result<u64, CommitError> {
    let mut set = WriteSet::new();
    set.put(ORDERED, key, value);
    set.put(INTEGER, &(key.len() as u64).to_be_bytes(), *b"v");
    set.add_posting(POSTINGS, b"k", key.len() as u64);
    Ok(store.transaction()?.commit(&set, durability)?.0)
}

fn has(store: &LmdbStore, key: &[u8]) -> bool {
    store.snapshot().expect("snapshot").get(ORDERED, key).expect("get").is_some()
}

#[test]
fn open_errors_name_the_fault() {
    let root = directory();
    let path = root.path();
    let missing = path.join("missing");
    let file = path.join("file");
    fs::write(&file, "x").expect("write");
    let empty = path.join("empty");
    fs::create_dir(&empty).expect("mkdir");
    let garbage = path.join("garbage");
    fs::create_dir(&garbage).expect("mkdir");
    fs::write(garbage.join("data.mdb"), vec![7; 3 * PAGE]).expect("write");
    let reading = LmdbOptions::for_reading();
    let no_create = LmdbOptions { create: false, ..LmdbOptions::default() };
    #[expect(clippy::type_complexity, reason = "a table of cases")]
    let cases: [(&Path, &LmdbOptions, fn(&OpenError) -> bool); 5] = [
        (&missing, &LmdbOptions::default(), |error| matches!(error, OpenError::Missing { .. })),
        (&file, &LmdbOptions::default(), |error| matches!(error, OpenError::NotADirectory { .. })),
        (&empty, &reading, |error| matches!(error, OpenError::NotAStore { .. })),
        (&empty, &no_create, |error| matches!(error, OpenError::NotAStore { .. })),
        (&garbage, &LmdbOptions::default(), |error| matches!(error, OpenError::Corrupt { .. })),
    ];
    for (path, options, expected) in cases {
        let error = LmdbStore::open(path, &TABLES, options).expect_err("refused");
        assert!(expected(&error), "{}: {error:?}", path.display());
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    }
    let mut twice = TABLES;
    twice[1].name = twice[0].name;
    let error = LmdbStore::open(&empty, &twice, &LmdbOptions::default()).expect_err("refused");
    assert!(matches!(error, OpenError::Table { .. }), "{error:?}");
}

/// No user may make files in /sys: the file is what was refused, its directory is the one to own.
#[test]
fn who_may_not_write_is_told_which_directory_to_own() {
    let error = open(Path::new("/sys")).expect_err("refused").to_string();
    assert!(error.starts_with("/sys/larix.lock: "), "{error}");
    assert!(error.ends_with("chown -R USER: /sys"), "{error}");
}

#[test]
fn one_writer_a_directory() {
    let root = directory();
    let store = open(root.path()).expect("open");
    // Another open file description conflicts as another process would.
    let error = DirectoryLock::acquire(root.path(), &LmdbOptions::default()).expect_err("locked");
    assert!(
        matches!(error, OpenError::InUse { holder: Some(pid), .. } if pid == std::process::id()),
        "{error:?}"
    );
    assert!(matches!(open(root.path()), Err(OpenError::InUse { .. })));
    // By another path: nobody is to stop the process that says so. In another container its number is that of another one.
    let text = error.to_string();
    assert!(text.contains("has the same directory") && !text.contains("kill"), "{text}");
    assert!(text.contains("of another container"), "{text}");
    drop(store);
    drop(open(root.path()).expect("free again"));
}

/// A lock file looks like something that a process has left, and is removed as such.
#[test]
fn who_removes_the_lock_file_does_not_get_a_second_writer() {
    let root = directory();
    let lock_file = root.path().join("larix.lock");
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![1], Durability::Sync).expect("commit");
    fs::remove_file(&lock_file).expect("it is there");
    for _ in 0..2 {
        let refused = DirectoryLock::acquire(root.path(), &LmdbOptions::default()).map(|_| ());
        assert!(matches!(refused, Err(OpenError::InUse { holder: None, .. })), "{refused:?}");
    }
    let refused = open(root.path()).map(|_| ());
    assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");
    put(&store, b"bb", vec![1], Durability::Sync).expect("commit");
    drop(store);
    let store = open(root.path()).expect("free again");
    assert!(has(&store, b"a") && has(&store, b"bb"));
}

/// What is committed to a file that has no name any more ends with the process.
#[test]
fn nothing_is_committed_to_a_file_that_was_replaced() {
    let replaced: [fn(&Path); 3] = [
        |data| fs::remove_file(data).expect("it is there"),
        |data| fs::rename(data, data.with_extension("old")).expect("it is there"),
        |data| {
            let copy = data.with_extension("copy");
            fs::copy(data, &copy).and_then(|_| fs::rename(&copy, data)).expect("a copy in its place");
        },
    ];
    for (number, replace) in replaced.into_iter().enumerate() {
        let root = directory();
        let store = open(root.path()).expect("open");
        put(&store, b"a", vec![1], Durability::Sync).expect("commit");
        assert!(store.look_after_file().is_ok() && store.refusal().is_none());
        replace(&root.path().join("data.mdb"));
        for _ in 0..2 {
            let refused = put(&store, b"bb", vec![1], Durability::Sync);
            assert!(matches!(refused, Err(CommitError::Displaced)), "{number}: {refused:?}");
        }
        assert!(matches!(store.refusal(), Some(CommitError::Displaced)) && store.is_read_only());
        assert!(has(&store, b"a") && !has(&store, b"bb"), "{number}: what was committed is read");
    }
    let root = directory();
    let store = open(root.path()).expect("open");
    fs::remove_file(root.path().join("data.mdb")).expect("it is there");
    assert!(matches!(store.look_after_file(), Err(CommitError::Displaced)), "without a commit");
    assert!(store.is_read_only());
}

/// As by `rsync --inplace`. LMDB would go on with the numbers of the file of before, on the pages of the other one.
#[test]
fn nothing_is_committed_to_a_file_that_was_written_over() {
    let root = directory();
    let path = root.path().join("data.mdb");
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![1], Durability::Sync).expect("commit");
    let before = fs::read(&path).expect("the file");
    put(&store, b"bb", vec![1], Durability::Sync).expect("commit");
    let file = fs::File::options().write(true).open(&path).expect("the file");
    std::os::unix::fs::FileExt::write_all_at(&file, &before, 0).expect("written over");
    let refused = put(&store, b"ccc", vec![1], Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Displaced)), "{refused:?}");
    drop(store);
    let store = open(root.path()).expect("the file of before");
    assert!(has(&store, b"a") && !has(&store, b"bb") && !has(&store, b"ccc"));
    put(&store, b"ccc", vec![1], Durability::Sync).expect("commit");
}

/// To write to a map of a file that has no room, on a full disk, ends the process.
#[test]
fn the_file_of_readers_has_room_on_the_disk() {
    use std::os::unix::fs::MetadataExt as _;

    let root = directory();
    let lock_file = root.path().join("lock.mdb");
    for options in [LmdbOptions::default(), LmdbOptions::for_reading()] {
        drop(LmdbStore::open(root.path(), &TABLES, &options).expect("open"));
        let found = fs::metadata(&lock_file).expect("it is there");
        assert!(found.len() > 60_000 && found.blocks() * 512 >= found.len(), "{found:?}");
        fs::remove_file(&lock_file).expect("it is there");
    }
}

#[test]
fn a_reader_on_a_read_only_mount_is_waited_for_and_no_writer() {
    let root = directory();
    drop(open(root.path()).expect("open"));
    wait_for_readers(root.path(), || panic!("nobody reads"));
    // As such a reader has it.
    let reader = fs::File::open(root.path().join("data.mdb")).expect("the data");
    flock(&reader, FlockOperation::LockShared).expect("a lock");
    let (waits, waiting) = std::sync::mpsc::channel();
    let path = root.path().to_owned();
    let waiter = std::thread::spawn(move || wait_for_readers(&path, || waits.send(()).expect("a receiver")));
    waiting.recv().expect("it waits");
    assert!(!waiter.is_finished());
    drop(reader);
    waiter.join().expect("it ends");
    let store = open(root.path()).expect("nobody reads");
    wait_for_readers(root.path(), || panic!("a writer is none"));
    drop(store);
}

/// What a copy that was broken off leaves, or a disk: an empty database in its place would be served as if it were all there is, and a
/// page beyond the end of the file ends the process by a signal.
#[test]
fn a_file_without_its_pages_is_refused() {
    let root = directory();
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![1; 4 << 20], Durability::Sync).expect("commit");
    drop(store);
    let file = fs::File::options().write(true).open(root.path().join("data.mdb")).expect("file");
    for (length, expected) in [(2 << 20, "was cut"), (20_000, "was cut"), (0, "has no bytes")] {
        file.set_len(length).expect("cut");
        for options in [LmdbOptions::default(), LmdbOptions::for_reading()] {
            let refused = LmdbStore::open(root.path(), &TABLES, &options).map(|_| ());
            let Err(OpenError::Corrupt { what, .. }) = &refused else { panic!("{length}: {refused:?}") };
            assert!(what.contains(expected), "{length}: {what}");
        }
        assert_eq!(file.metadata().expect("metadata").len(), length, "it is left as it is");
    }
}

/// As of a file on a disk that is not mounted.
#[test]
fn no_store_is_made_where_a_link_leads_nowhere() {
    let root = directory();
    let elsewhere = directory();
    let (link, file) = (root.path().join("data.mdb"), elsewhere.path().join("data.mdb"));
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let opened = open(root.path()).map(|_| ());
    let locked = DirectoryLock::acquire(root.path(), &LmdbOptions::default()).map(|_| ());
    for refused in [opened, locked] {
        let Err(OpenError::Corrupt { what, .. }) = &refused else { panic!("{refused:?}") };
        assert!(what.contains("a symbolic link to a file that is not there"), "{what}");
    }
    assert!(!file.exists());
    drop(open(elsewhere.path()).expect("a store"));
    let store = open(root.path()).expect("it leads to one");
    put(&store, b"a", vec![1], Durability::Sync).expect("commit");
}

/// Who opens a pipe waits for its other end.
#[test]
fn what_is_no_file_is_refused_by_name() {
    type Make = fn(&Path);
    let kinds: [(&str, Make); 4] = [
        ("a named pipe", |path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a pipe")),
        ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).expect("a socket"))),
        ("a device", |path| std::os::unix::fs::symlink("/dev/zero", path).expect("a link")),
        ("a directory", |path| fs::create_dir(path).expect("a directory")),
    ];
    for (kind, make) in kinds {
        let root = directory();
        make(&root.path().join("data.mdb"));
        wait_for_readers(root.path(), || panic!("nobody reads {kind}"));
        let locked = DirectoryLock::acquire(root.path(), &LmdbOptions::default()).map(|_| ());
        let written = open(root.path()).map(|_| ());
        let read = LmdbStore::open(root.path(), &TABLES, &LmdbOptions::for_reading()).map(|_| ());
        for refused in [locked, written, read] {
            let Err(OpenError::Corrupt { what, .. }) = &refused else { panic!("{kind}: {refused:?}") };
            assert!(what.contains(&format!("data.mdb is {kind}")), "{what}");
        }
    }
}

/// Free pages at the end need not be in the file, and a small file may lack nearly all of its pages and no more than that.
#[test]
fn a_small_file_lacks_no_page_that_something_leads_to() {
    let root = directory();
    let path = root.path().join("data.mdb");
    let store = open(root.path()).expect("open");
    for number in 0..200 {
        put(&store, format!("key {number:0100}").as_bytes(), vec![7; 90], Durability::Sync).expect("commit");
    }
    put(&store, b"long", vec![8; 200_000], Durability::Sync).expect("commit");
    // Its pages are free then, and not used again.
    for value in [b"short", b"other"] {
        put(&store, b"long", value.to_vec(), Durability::Sync).expect("commit");
    }
    drop(store);
    let good = fs::read(&path).expect("the file");
    let pages = good.chunks(PAGE).count();
    let (mut opened, mut refused) = (0, 0);
    for length in (2..=pages).rev() {
        fs::write(&path, &good[..length * PAGE]).expect("the file");
        match LmdbStore::open(root.path(), &TABLES, &LmdbOptions::default()) {
            Ok(store) => {
                assert!(has(&store, b"long") && refused == 0, "{length} of {pages} pages");
                opened += 1;
            }
            Err(OpenError::Corrupt { what, .. }) => {
                assert!(what.contains("was cut"), "{length}: {what}");
                refused += 1;
            }
            Err(other) => panic!("{length}: {other}"),
        }
    }
    assert!(opened > 1 && refused > 1, "{opened} {refused}");
}

fn damaged_pages(path: &Path) -> Vec<DamagedPage> {
    let mut found = Vec::new();
    LmdbStore::check_pages(path, &mut |page| found.push(page)).expect("it can be opened");
    found
}

#[test]
fn a_store_that_serves_checks_its_pages() {
    let root = directory();
    let store = open(root.path()).expect("open");
    for number in 0..200 {
        put(&store, format!("key {number:0100}").as_bytes(), vec![7; 90], Durability::Sync).expect("commit");
    }
    let mut heard: Vec<PageEvent> = Vec::new();
    let mut check = |lasts: bool| {
        heard.clear();
        let mut on_event = |event: PageEvent| {
            heard.push(event);
            if lasts { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        store.check_last_commit(&mut on_event).expect("the roots can be read");
        heard.clone()
    };
    let whole = check(true);
    assert!(whole.iter().all(|event| matches!(event, PageEvent::Bytes(_))), "{whole:?}");
    assert!(whole.iter().filter(|event| **event == PageEvent::Bytes(PAGE as u64)).count() > 4, "{whole:?}");
    assert_eq!(check(false).len(), 1, "it ends when it is to end");

    let path = root.path().join("data.mdb");
    let mut bytes = fs::read(&path).expect("the file");
    // Not made anew: it is mapped.
    let file = fs::File::options().write(true).open(&path).expect("the file");
    for page in bytes.chunks_exact_mut(PAGE).skip(2).filter(|page| page[10] == 2) {
        page[14..16].fill(0xff);
    }
    file.write_all_at(&bytes, 0).expect("write");
    let what = |event: &PageEvent| matches!(event, PageEvent::Damaged(page) if page.what.contains("bounds"));
    assert!(check(true).iter().any(what));
}

/// What is not reported is nothing that LMDB reads.
#[test]
fn each_page_that_is_read_is_looked_at() {
    const KEYS: u64 = 400;
    let root = directory();
    let path = root.path().join("data.mdb");
    let key = |number: u64| format!("key {number:0100}").into_bytes();
    let store = open(root.path()).expect("open");
    for number in 0..KEYS {
        let mut set = WriteSet::new();
        set.put(ORDERED, &key(number), vec![7_u8; if number % 50 == 0 { 20_000 } else { 90 }]);
        set.put(INTEGER, &number.to_be_bytes(), vec![7_u8; 90]);
        set.add_posting(POSTINGS, b"k", number * 1_000 + 1);
        store.transaction().expect("begin").commit(&set, Durability::NoSync).expect("commit");
    }
    let read = |store: &LmdbStore| {
        let snapshot = store.snapshot().expect("snapshot");
        let rows = |table| snapshot.scan(table, KeyRange::all(), Direction::Forward).expect("scan");
        let count = |table| rows(table).filter(Result::is_ok).count();
        (count(ORDERED), count(INTEGER))
    };
    let whole = (KEYS as usize, KEYS as usize);
    assert_eq!(read(&store), whole);
    drop(store);
    assert!(damaged_pages(root.path()).is_empty());

    let good = fs::read(&path).expect("the file");
    let (mut harmless, mut used) = (good.clone(), Vec::new());
    // The first two are the roots.
    for (number, place) in (0..good.len()).step_by(PAGE).enumerate().skip(2) {
        let mut bytes = good.clone();
        bytes[place..place + 16].fill(0);
        fs::write(&path, &bytes).expect("write");
        let found = damaged_pages(root.path());
        match found.is_empty() {
            // A free page, or one in the midst of a long value.
            true => harmless[place..place + PAGE].fill(0),
            false => {
                assert_eq!(found[0].page, number as u64, "{found:?}");
                used.push(place);
            }
        }
    }
    assert!(used.len() > 30, "{used:?}");
    fs::write(&path, &harmless).expect("write");
    assert!(damaged_pages(root.path()).is_empty());
    let reading = LmdbStore::open(root.path(), &TABLES, &LmdbOptions::for_reading()).expect("open");
    assert_eq!(read(&reading), whole);
    drop(reading);

    // Where a record stands, how long its key is, and pages in the place of others.
    let leaf = used.into_iter().find(|at| good[at + 10] == 2 && good[at + 12] > 30);
    let leaf = leaf.expect("a leaf with several records");
    let record = leaf + usize::from(good[leaf + 16]) + 256 * usize::from(good[leaf + 17]);
    let swapped = [&good[leaf + 18..leaf + 20], &good[leaf + 16..leaf + 18]].concat();
    let other = good[leaf + PAGE..leaf + 2 * PAGE].to_vec();
    for (at, damage, what) in [
        (leaf + 16, vec![0xff, 0xff], "leads out of it"),
        (leaf + 14, vec![0xff, 0xff], "bounds"),
        (record + 6, vec![0xff, 0xff], "leads out of it"),
        (leaf + 16, swapped, "out of order"),
        (leaf + 10, vec![1], "another kind"),
        (leaf, other, "does not have its number"),
    ] {
        let mut bytes = good.clone();
        bytes[at..at + damage.len()].copy_from_slice(&damage);
        fs::write(&path, &bytes).expect("write");
        let found = damaged_pages(root.path());
        assert!(found.iter().any(|page| page.what.contains(what)), "{what}: {found:?}");
    }
}

#[test]
fn a_long_value_whose_end_was_cut_off_is_not_served() {
    let root = directory();
    let path = root.path().join("data.mdb");
    let store = open(root.path()).expect("open");
    // The pages of the first go to what is written later, but for the long value: so that stands at the end.
    for (key, bytes) in [(b"x", 400_000), (b"x", 1), (b"y", 1), (b"z", 1), (b"a", 900_000)] {
        put(&store, key, vec![9; bytes], Durability::NoSync).expect("commit");
    }
    drop(store);
    assert!(damaged_pages(root.path()).is_empty());
    let good = fs::read(&path).expect("the file");
    let first = good.chunks(PAGE).rposition(|page| {
        page[..16].iter().any(|byte| *byte != 9) && page[16..].iter().all(|byte| *byte == 9)
    });
    let first = first.expect("the value");
    let file = fs::File::options().write(true).open(&path).expect("the file");
    file.set_len(((first + 100) * PAGE) as u64).expect("cut");
    let checked = LmdbStore::check_pages(root.path(), &mut |page| panic!("{page:?}"));
    let opened = LmdbStore::open(root.path(), &TABLES, &LmdbOptions::default()).map(drop);
    for refused in [checked, opened] {
        assert!(
            matches!(&refused, Err(OpenError::Corrupt { what, .. }) if what.contains("was cut")),
            "{refused:?}"
        );
    }
}

/// Their pages may have what ours never have, such as lists of duplicates.
#[test]
fn tables_of_another_program_are_not_called_damaged() {
    let root = directory();
    let path = root.path().join("data.mdb");
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![9; 90], Durability::NoSync).expect("commit");
    drop(store);
    let mut bytes = fs::read(&path).expect("the file");
    for page in bytes.chunks_mut(PAGE) {
        if page.windows(90).any(|value| value.iter().all(|byte| *byte == 9)) {
            page[..16].fill(0);
        }
    }
    fs::write(&path, &bytes).expect("write");
    assert!(!damaged_pages(root.path()).is_empty());
    let names: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"_store")).collect();
    for at in names {
        bytes[at..at + 6].copy_from_slice(b"_other");
    }
    fs::write(&path, &bytes).expect("write");
    assert!(damaged_pages(root.path()).is_empty());
    let opened = LmdbStore::open(root.path(), &TABLES, &LmdbOptions::for_reading());
    assert!(matches!(opened, Err(OpenError::Corrupt { .. })), "{opened:?}");
}

#[test]
fn reopened_it_holds_what_it_held() {
    let root = directory();
    let store = open(root.path()).expect("open");
    let last = put(&store, b"a", vec![1; 5000], Durability::Sync).expect("commit");
    put(&store, b"bb", vec![1], Durability::NoMetaSync).expect("commit");
    put(&store, b"ccc", vec![1], Durability::Sync).expect("commit");
    drop(store);
    let reader = LmdbStore::open(root.path(), &TABLES, &LmdbOptions::for_reading()).expect("open");
    assert_eq!(reader.commit_counter(), last + 2);
    assert!(reader.is_read_only());
    let refused = reader.transaction().map(|_| ());
    assert!(matches!(refused, Err(CommitError::ReadOnly { after_failed_sync: false })), "{refused:?}");
    let snapshot = reader.snapshot().expect("snapshot");
    let scan = snapshot.scan(ORDERED, KeyRange::all(), Direction::Forward).expect("scan");
    assert_eq!(scan.count(), 3);
    let second = reader.snapshot().map(|_| ());
    assert!(matches!(second, Err(ReadError::SnapshotHeld)), "{second:?}");
}

#[test]
fn a_table_that_grows_at_its_end_fills_its_pages() {
    let folder = directory();
    let store = open(folder.path()).expect("open");
    let put = |id: u64| {
        let mut set = WriteSet::new();
        set.put(INTEGER, &id.to_be_bytes(), vec![7; 400]);
        store.transaction().expect("begin").commit(&set, Durability::NoSync).expect("commit");
    };
    (0..400).for_each(put);
    let statistics = store.statistics().expect("statistics");
    let table = statistics.tables.iter().find(|table| table.name == "integer").expect("the table");
    // Nine have room in a page.
    assert!((45..48).contains(&table.leaf_pages), "{table:?}");
    // What comes in another order has its place, too.
    [1000, 500, 1000, 399].into_iter().for_each(put);
    let snapshot = store.snapshot().expect("snapshot");
    let rows = snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward).expect("scan");
    let ids = rows.map(|row| u64::from_be_bytes(row.expect("row").0.as_ref().try_into().expect("an id")));
    assert!(ids.eq((0..400).chain([500, 1000])));
}

#[test]
fn another_format_is_refused() {
    let root = directory();
    drop(open(root.path()).expect("open"));
    rewrite_format(root.path(), 99);
    for options in [LmdbOptions::default(), LmdbOptions::for_reading()] {
        let error = LmdbStore::open(root.path(), &TABLES, &options).expect_err("refused");
        assert!(matches!(error, OpenError::Format { found: 99, supported: 1, .. }), "{error:?}");
    }
}

fn rewrite_format(path: &Path, format: u64) {
    // SAFETY: no other environment of this directory is open.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(9).open(path) }.expect("open");
    let txn = env.write_txn().expect("begin");
    let table = env
        .create_databases_and_commit(txn, |opener, txn| {
            opener
                .create_database::<heed::types::Bytes, heed::types::Bytes>(txn, Some("_store"))
                .map(heed::CommitOrAbort::<_, ()>::Commit)
        })
        .expect("commit")
        .commit()
        .expect("a table");
    let mut txn = env.write_txn().expect("begin");
    table.put(&mut txn, b"format", &format.to_be_bytes()).expect("put");
    txn.commit().expect("commit");
}

#[test]
fn a_limited_address_space_is_shared() {
    let gigabytes = |of: u64| of << 30;
    let check = |left: u64, bytes: u64, expected: u64| {
        let wanted = usize::try_from(gigabytes(4_096)).unwrap();
        assert_eq!(map_within(left, bytes, wanted) as u64, expected, "{bytes} bytes, {left} left");
    };
    check(gigabytes(40), 0, gigabytes(8));
    // What the maps before it have taken counts.
    check(gigabytes(20), 0, gigabytes(4));
    check(gigabytes(1), 0, gigabytes(1));
    // A file has room to double.
    check(gigabytes(40), gigabytes(15), gigabytes(32));
    check(gigabytes(40), gigabytes(16), gigabytes(32));
    check(u64::MAX, 0, gigabytes(4_096));
    check(gigabytes(40), u64::MAX, gigabytes(4_096));
}

#[test]
fn full_is_survived() {
    let root = directory();
    let options = LmdbOptions { map_size: 1 << 20, ..LmdbOptions::default() };
    let store = LmdbStore::open(root.path(), &TABLES, &options).expect("open");
    put(&store, b"a", vec![1; 1000], Durability::Sync).expect("commit");
    let before = store.commit_counter();
    let got = put(&store, b"big", vec![1; 2 << 20], Durability::Sync);
    assert!(matches!(got, Err(CommitError::Full)), "{got:?}");
    assert!(!has(&store, b"big"));
    assert_eq!(store.commit_counter(), before);
    assert!(!store.is_read_only() && store.is_full());
    put(&store, b"small", vec![1], Durability::Sync).expect("commit");
    // No room on the disk mends it.
    assert_eq!(store.full_map(), Some(1 << 20));
    drop(store);
    // A larger map is all it takes.
    let store = open(root.path()).expect("open");
    put(&store, b"big", vec![1; 2 << 20], Durability::Sync).expect("commit");
    assert!(has(&store, b"a") && has(&store, b"small") && has(&store, b"big"));
}

#[test]
fn a_full_store_is_full_until_a_commit_as_large_finds_room() {
    let root = directory();
    let options = LmdbOptions { map_size: 1 << 20, ..LmdbOptions::default() };
    let store = LmdbStore::open(root.path(), &TABLES, &options).expect("open");
    let small = || put(&store, b"small", vec![1], Durability::Sync).expect("commit");
    let large = |key: &[u8]| put(&store, key, vec![1; 600 << 10], Durability::Sync);
    large(b"first").expect("commit");
    assert!(!store.is_full());
    for _ in 0..2 {
        let got = large(b"second");
        assert!(matches!(got, Err(CommitError::Full)), "{got:?}");
        small();
        assert!(store.is_full());
    }
    let mut set = WriteSet::new();
    set.delete(ORDERED, b"first");
    store.transaction().expect("begin").commit(&set, Durability::Sync).expect("commit");
    // The commit after the next one uses the pages again.
    small();
    assert!(store.is_full());
    large(b"second").expect("commit");
    assert!(!store.is_full());
    assert!(store.was_full() && !store.was_full());
}

/// It is whole when it gets this name, so somebody else or the disk has emptied it.
#[test]
fn an_empty_file_takes_no_place() {
    let root = directory();
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![1], Durability::Sync).expect("commit");
    drop(store);
    let next = root.path().join("data.mdb.next");
    fs::write(&next, "").expect("write");
    let error = open(root.path()).map(drop).expect_err("refused").to_string();
    assert!(error.contains("data.mdb.next has no bytes"), "{error}");
    fs::remove_file(&next).expect("it is there");
    assert!(has(&open(root.path()).expect("open"), b"a"));
}

/// LMDB writes the root page by a descriptor of its own. A disk that refuses that write leaves an environment that begins no transaction:
/// neither a full disk, which has room again, nor one that still reads.
#[test]
fn a_root_page_that_the_disk_refuses_ends_reads_and_writes() {
    let root = directory();
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![1], Durability::Sync).expect("commit");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("open");
    let mut descriptor = ManuallyDrop::new(descriptor_of_roots(root.path()));
    rustix::io::dup2(&full, &mut descriptor).expect("another file");
    let refused = put(&store, b"bb", vec![1], Durability::Sync);
    let Err(CommitError::Read(ReadError::Unusable { error })) = &refused else { panic!("{refused:?}") };
    assert!(error.contains("space"), "{error}");
    assert!(store.is_read_only() && !store.is_full());
    assert!(matches!(store.refusal(), Some(CommitError::Read(ReadError::Unusable { .. }))));
    let read = store.snapshot().map(drop);
    assert!(matches!(&read, Err(ReadError::Unusable { error }) if error.contains("space")), "{read:?}");
    let refused = put(&store, b"bb", vec![1], Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Read(ReadError::Unusable { .. }))), "{refused:?}");
    drop(store);
    let store = open(root.path()).expect("open");
    assert!(has(&store, b"a") && !has(&store, b"bb"));
    put(&store, b"bb", vec![1], Durability::Sync).expect("commit");
    assert!(has(&store, b"bb"));
}

/// The one by which the store in this directory writes its root pages, whose writes are synced. Not to be dropped: LMDB closes it.
fn descriptor_of_roots(path: &Path) -> OwnedFd {
    let data = fs::canonicalize(path.join("data.mdb")).expect("it is there");
    let number = fs::read_dir("/proc/self/fd").expect("descriptors").flatten().find_map(|entry| {
        let number: RawFd = entry.file_name().to_str()?.parse().ok()?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).ok()?);
        let is_of_roots = flags.contains(OFlags::DSYNC) && fs::read_link(entry.path()).ok()? == data;
        is_of_roots.then_some(number)
    });
    // SAFETY: the descriptor is open, and the caller neither closes it nor leaves it to anybody but LMDB.
    unsafe { OwnedFd::from_raw_fd(number.expect("LMDB has it open")) }
}

/// The two root pages are written in turn. With the newest one torn the store is the one before, whole; with the
/// pages of a commit that never got its root torn, nothing is missed.
#[test]
fn a_torn_write_loses_nothing_acknowledged_before_it() {
    let root = directory();
    let store = open(root.path()).expect("open");
    for length in 1..=40 {
        put(&store, &vec![b'k'; length], vec![length as u8; 2000], Durability::Sync).expect("commit");
    }
    let acknowledged = store.commit_counter();
    let image = fs::read(root.path().join("data.mdb")).expect("read");
    put(&store, b"unacknowledged", vec![9; 2000], Durability::Sync).expect("commit");
    let newer = fs::read(root.path().join("data.mdb")).expect("read");
    drop(store);
    // The crash came while the pages of the last commit were on their way: some are there, its root is not.
    for keep_pages in [0, 1, 2, 3] {
        let mut torn = newer.clone();
        torn[..2 * PAGE].copy_from_slice(&image[..2 * PAGE]);
        for (page, bytes) in torn.chunks_mut(PAGE).enumerate().skip(2) {
            let old = image.get(page * PAGE..(page + 1) * PAGE);
            if old.is_none_or(|old| old != bytes) && page % 4 >= keep_pages {
                let half = bytes.len() / 2;
                bytes[half..].fill(0xa5);
            }
        }
        check_image(&torn, acknowledged, 40);
    }
    // The root itself is torn: its transaction number is written last, so that it still reads as the old one.
    let mut torn = newer.clone();
    let slot = usize::from(image[..PAGE] == newer[..PAGE]) * PAGE;
    torn[slot..slot + PAGE].copy_from_slice(&image[slot..slot + PAGE]);
    check_image(&torn, acknowledged, 40);
    check_image(&newer, acknowledged + 1, 41);
}

fn check_image(image: &[u8], commits: u64, records: usize) {
    let root = directory();
    fs::write(root.path().join("data.mdb"), image).expect("write");
    let store = open(root.path()).expect("open");
    assert_eq!(store.commit_counter(), commits);
    {
        let snapshot = store.snapshot().expect("snapshot");
        let scan = snapshot.scan(ORDERED, KeyRange::all(), Direction::Forward).expect("scan");
        let values: Vec<_> = scan.map(|record| record.expect("record")).collect();
        assert_eq!(values.len(), records);
        assert!(
            values.iter().all(|(_, value)| value.len() == 2000 && value.iter().all(|byte| *byte == value[0]))
        );
        assert_eq!(snapshot.posting_set(POSTINGS, b"k").expect("set").len() as usize, records.min(40));
    }
    put(&store, b"goes on", vec![1], Durability::Sync).expect("commit");
}

#[test]
fn a_small_address_space_halves_the_map() {
    let root = directory();
    // More than x86-64 and AArch64 give to a process.
    let options = LmdbOptions { map_size: 1 << 52, ..LmdbOptions::default() };
    let store = LmdbStore::open(root.path(), &TABLES, &options).expect("open");
    let map = store.statistics().expect("statistics").map_bytes;
    assert!((1 << 30..1 << 52).contains(&map), "{map}");
}

#[test]
fn a_copy_is_a_store() {
    let root = directory();
    let copy = directory();
    let store = open(root.path()).expect("open");
    put(&store, b"a", vec![1; 100], Durability::Sync).expect("commit");
    for compact in [false, true] {
        let path = copy.path().join("data.mdb");
        let mut file =
            fs::File::options().write(true).read(true).create(true).truncate(true).open(path).expect("file");
        store.copy_to(&mut file, compact).expect("copy");
        drop(file);
        assert!(has(&open(copy.path()).expect("open"), b"a"));
    }
}

/// Read transactions of a thread that keeps them, by the readers that LMDB counts and by what they see.
#[test]
fn a_thread_that_keeps_snapshots_shares_one_until_a_commit() {
    let (root, other) = (directory(), directory());
    let (store, second) = (open(root.path()).expect("open"), open(other.path()).expect("open"));
    put(&store, b"a", vec![1], Durability::Sync).expect("put");
    put(&second, b"a", vec![1], Durability::Sync).expect("put");
    std::thread::scope(|scope| {
        let run = || {
            let version = |store: &LmdbStore| store.snapshot().expect("snapshot").commit_counter();
            let parked_count = || super::parked::count();
            assert!(has(&store, b"a"));
            assert_eq!((parked_count(), rest_snapshots()), (0, false), "nobody asked for it");
            keep_snapshots();
            let first = version(&store);
            assert_eq!((parked_count(), version(&store)), (1, first));
            assert_eq!(parked_count(), 1, "taken up, not begun anew");
            assert!(has(&second, b"a"));
            assert_eq!(parked_count(), 2, "one for each store");
            put(&store, b"b", vec![2], Durability::Sync).expect("put");
            assert!(has(&store, b"b"), "what was committed is seen");
            assert!(version(&store) > first);
            assert_eq!(parked_count(), 2, "the old one has ended");
            let open_snapshot = store.snapshot().expect("snapshot");
            release_snapshots();
            assert_eq!(parked_count(), 0);
            put(&store, b"c", vec![3], Durability::Sync).expect("put");
            assert!(
                open_snapshot.get(ORDERED, b"c").expect("get").is_none(),
                "a snapshot that is held stays as it was"
            );
            drop(open_snapshot);
            for used in [[&store, &second], [&second, &store], [&second, &second], [&store, &store]] {
                assert!(used.iter().all(|store| has(store, b"a")));
                assert!(rest_snapshots() && parked_count() > 0, "it rests with what is of the last commit");
                release_snapshots();
                assert_eq!((parked_count(), rest_snapshots()), (0, false), "whichever was used last");
            }
            for outdated in [&store, &second] {
                assert!(has(&store, b"a") && has(&second, b"a"));
                put(outdated, b"d", vec![4], Durability::Sync).expect("put");
                assert_eq!(
                    (rest_snapshots(), parked_count()),
                    (false, 0),
                    "an older one would keep pages that the commit freed"
                );
            }
        };
        scope.spawn(run).join().expect("the thread");
    });
}

/// A server that is another user than root opens what root's tools have made. Only root can try it.
#[test]
fn what_root_makes_belongs_to_the_owner_of_the_directory() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    if !rustix::process::geteuid().is_root() {
        return larix_packages::note_lack(larix_packages::ROOT);
    }
    let root = directory();
    let path = root.path();
    chown(path, Some(7_001), Some(7_002)).expect("chown");
    let owner = |name: &str| {
        let found = fs::symlink_metadata(path.join(name)).expect("there");
        (found.uid(), found.gid())
    };
    let lock = DirectoryLock::acquire(path, &LmdbOptions::default()).expect("lock");
    let replacement = lock.begin_replacement(RESTORING).expect("begin");
    drop(open(replacement.path()).expect("open"));
    replacement.publish(Old::Removed).expect("publish");
    drop(lock);
    for name in ["larix.lock", "data.mdb"] {
        assert_eq!(owner(name), (7_001, 7_002), "{name}");
    }
    drop(LmdbStore::open(path, &TABLES, &LmdbOptions::for_reading()).expect("open"));
    assert_eq!(owner("lock.mdb"), (7_001, 7_002), "of a reader");
    fs::remove_file(path.join("lock.mdb")).expect("remove");
    drop(open(path).expect("open"));
    assert_eq!(owner("lock.mdb"), (7_001, 7_002), "of a writer");

    // A name that leads elsewhere gives nothing away.
    let other = directory();
    let file = other.path().join("roots");
    fs::write(&file, "x").expect("write");
    fs::hard_link(&file, path.join("hard")).expect("link");
    std::os::unix::fs::symlink(&file, path.join("soft")).expect("link");
    give_to_owner(path, &["hard", "soft", "missing"]);
    assert_eq!(fs::metadata(&file).expect("there").uid(), 0);
    assert_eq!(owner("soft"), (0, 0));
}

#[test]
fn a_replacement_that_fails_says_which_store_counts() {
    for (in_the_way, expected) in
        [("data.mdb.next", "nothing was changed"), ("data.mdb", "who opens it next completes this")]
    {
        let root = directory();
        let lock = DirectoryLock::acquire(root.path(), &LmdbOptions::default()).expect("locked");
        let replacement = lock.begin_replacement(RESTORING).expect("a directory");
        drop(open(replacement.path()).expect("open"));
        // No file takes the place of a directory.
        fs::create_dir(root.path().join(in_the_way)).expect("mkdir");
        let error = replacement.publish(Old::Removed).expect_err("refused").to_string();
        assert!(error.contains(expected), "{in_the_way}: {error}");
    }
}

#[test]
fn what_cannot_be_written_says_what_has_to_change() {
    let (path, directory) = (Path::new("/db/larix.lock").to_owned(), Path::new("/db").to_owned());
    for (kind, mend) in [
        (std::io::ErrorKind::ReadOnlyFilesystem, "mount that for writing"),
        (std::io::ErrorKind::PermissionDenied, "chown -R USER: /db"),
    ] {
        let (path, directory) = (path.clone(), directory.clone());
        let text = OpenError::Permission { path, directory, error: kind.into() }.to_string();
        assert!(text.starts_with("/db/larix.lock: ") && text.ends_with(mend), "{text}");
    }
}
