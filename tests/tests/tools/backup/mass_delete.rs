//! A restore to the second before a mass delete, while a client writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larix_testkit::{Kind, Server, SetAtEnd, Site};
use larix_tests::client::{Client, run as ask};

use super::{SUFFIX, add, administrator, entries, passes, text};

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

/// The length of a time without its fraction.
const SECOND: usize = "20261121123456".len();

/// Full backup, mass delete and increment, all while somebody writes.
#[test]
fn a_mass_delete_beside_writes_is_undone_to_the_second() {
    // A provider shows the CSN of its last change.
    let configuration = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
                         directory @DATA@\nchange-log age=1h\noverlay syncprov\n";
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
