//! Two writers on one store, which answers the one that comes second with a conflict: nothing that was acknowledged is lost,
//! and nothing happens twice.
//!
//! `LARIX_MODEL_SEED` sets the first seed, `LARIX_WRITERS_ROUNDS` how many there are, `LARIX_WRITERS_STEPS` the changes of
//! each thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use larix_engine::entry::EntryId;
use larix_engine::index::IndexConfig;
use larix_engine::log::{self, LogKey, LoggedChange};
use larix_engine::tables::{META, TABLES, meta};
use larix_engine::time::SeededRandom;
use larix_engine::write::{IndexNotice, IndexWatch, WriterEnvironment};
use larix_engine::{Database, DatabaseSettings, Entry, ServedDatabase};
use larix_store::fault::{Fault, FaultPlan, FaultStore};
use larix_store::shared::SharedStore;
use larix_store::{Snapshot, Store};

use crate::common::{
    Dice, Fixture, ROOT, SUFFIX, SteppingClock, assert_sound, describe, directory, environment, operation,
    records, settings,
};

const ROUNDS: u64 = 3;
/// Changes of one thread.
const STEPS: u64 = 400;
/// Threads of each writer.
const THREADS: u64 = 3;
/// Changes that a thread has under way at once, at most.
const WINDOW: u64 = 6;
/// Entries that all threads change.
const COMMON: u64 = 4;
/// `busy` and `unavailable`: nothing was changed.
const REFUSED: [&str; 2] = ["51 ", "52 "];
const SERVER_ID: u16 = 1;

/// The reports of work on indexes.
#[derive(Debug, Default)]
struct Failures(Mutex<Vec<String>>);

impl IndexWatch for Failures {
    fn notice(&self, notice: IndexNotice) {
        if let IndexNotice::Failed { message } = notice {
            self.0.lock().unwrap().push(message);
        }
    }
}

fn indexed(schema: &larix_schema::Schema, lines: &[(&str, &str)]) -> DatabaseSettings {
    let mut index = IndexConfig::default();
    for (attributes, kinds) in lines {
        index.add_line(schema, attributes, Some(kinds)).unwrap();
    }
    DatabaseSettings { index, ..settings(schema) }
}

const FEW: [(&str, &str); 2] = [("objectClass", "eq"), ("uid", "eq")];
const MANY: [(&str, &str); 5] = [
    ("objectClass", "eq"),
    ("uid", "eq,sub"),
    ("description", "pres,eq,sub"),
    ("sn", "eq,sub,approx"),
    ("uidNumber", "eq"),
];

/// A directory with a writer of its own.
fn serve<S: Store>(store: S, settings: DatabaseSettings, seed: u64, watch: &Arc<Failures>) -> Fixture<S> {
    let schema = crate::common::schema("");
    let random = Arc::new(SeededRandom::new(seed));
    let database = Database::open(store, Arc::clone(&schema), settings, &*random).unwrap();
    let environment = WriterEnvironment {
        index_watch: Some(Arc::clone(watch) as _),
        ..environment(Arc::new(SteppingClock::default()), random, SERVER_ID)
    };
    let served = Arc::new(ServedDatabase::start(Arc::new(database), environment.clone()).unwrap());
    let clock = Arc::new(larix_engine::time::ManualClock::new(crate::common::START));
    let subject = larix_engine::access::Subject::default();
    let subject = Arc::new(subject.bound_as(schema.parse_dn(ROOT).unwrap(), ROOT));
    Fixture {
        directory: directory(&schema, vec![served]),
        schema,
        clock,
        subject,
        environments: vec![environment],
    }
}

const TREE: &str = "
    dn: dc=example,dc=com
    objectClass: organization
    objectClass: dcObject
    dc: example
    o: Example

    dn: ou=a,dc=example,dc=com
    objectClass: organizationalUnit
    ou: a

    dn: ou=b,dc=example,dc=com
    objectClass: organizationalUnit
    ou: b
";

fn common(number: u64) -> String {
    format!("uid=common{number},{SUFFIX}")
}

fn person(dn: &str, uid: &str, sn: &str) -> String {
    format!(
        "dn: {dn}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\nuid: {uid}\ncn: {uid}\nsn: {sn}\n\
         uidNumber: 0\ngidNumber: 0\nhomeDirectory: /\n"
    )
}

/// What one thread has done, as far as it was acknowledged.
#[derive(Debug, Default)]
struct Done {
    /// The thread's own entries: by uid the superior, sn and description.
    own: BTreeMap<String, (char, String, Option<String>)>,
    /// By common entry: values that were added, and what was added to its number.
    added: BTreeMap<u64, (BTreeSet<String>, u64)>,
    acknowledged: u64,
    refused: u64,
}

/// A change, and what the thread notes of it once it is acknowledged.
type Step = (String, Box<dyn FnOnce(&mut Done)>);

struct Thread<'d> {
    name: String,
    dice: Dice,
    count: u64,
    done: &'d mut Done,
    /// Entries that a change is under way for.
    busy: BTreeSet<String>,
}

impl Thread<'_> {
    fn step(&mut self) -> Step {
        self.count += 1;
        let free: Vec<String> =
            self.done.own.keys().filter(|uid| !self.busy.contains(*uid)).cloned().collect();
        let kind = if free.is_empty() { self.dice.below(5) } else { self.dice.below(10) };
        if kind < 2 {
            return self.change_common(kind == 0);
        }
        if kind < 5 {
            return self.add();
        }
        let uid = free[self.dice.below(free.len() as u64) as usize].clone();
        self.busy.insert(uid.clone());
        self.change_own(kind, uid)
    }

    fn change_common(&mut self, number: bool) -> Step {
        let entry = self.dice.below(COMMON);
        let dn = common(entry);
        if number {
            let by = 1 + self.dice.below(9);
            let change = format!("dn: {dn}\nchangetype: modify\nincrement: uidNumber\nuidNumber: {by}\n-\n");
            return (change, Box::new(move |done| done.added.entry(entry).or_default().1 += by));
        }
        // Options make descriptions that no writer has numbered yet.
        let option = self.dice.below(60);
        let value = format!("{}x{}", self.name, self.count);
        let shown = format!("description;lang-{option}={value}");
        let change = format!(
            "dn: {dn}\nchangetype: modify\nadd: description;lang-{option}\ndescription;lang-{option}: {value}\n-\n"
        );
        (change, Box::new(move |done| _ = done.added.entry(entry).or_default().0.insert(shown)))
    }

    fn add(&mut self) -> Step {
        let uid = format!("{}n{}", self.name, self.count);
        let (ou, sn) = (if self.dice.below(2) == 0 { 'a' } else { 'b' }, self.word());
        let change = person(&format!("uid={uid},ou={ou},{SUFFIX}"), &uid, &sn);
        (change, Box::new(move |done| drop(done.own.insert(uid, (ou, sn, None)))))
    }

    fn change_own(&mut self, kind: u64, uid: String) -> Step {
        let (ou, sn, description) = self.done.own[&uid].clone();
        let dn = format!("uid={uid},ou={ou},{SUFFIX}");
        match kind {
            5 => {
                let change = format!("dn: {dn}\nchangetype: delete\n");
                (change, Box::new(move |done| drop(done.own.remove(&uid))))
            }
            6 => {
                let renamed = format!("{}r{}", self.name, self.count);
                self.busy.insert(renamed.clone());
                let other = if self.dice.below(2) == 0 { 'a' } else { 'b' };
                let change = format!(
                    "dn: {dn}\nchangetype: modrdn\nnewrdn: uid={renamed}\ndeleteoldrdn: 1\n\
                     newsuperior: ou={other},{SUFFIX}\n"
                );
                let note = move |done: &mut Done| {
                    done.own.remove(&uid);
                    done.own.insert(renamed, (other, sn, description));
                };
                (change, Box::new(note))
            }
            7 => {
                let word = self.word();
                let change =
                    format!("dn: {dn}\nchangetype: modify\nreplace: description\ndescription: {word}\n-\n");
                (change, Box::new(move |done| drop(done.own.insert(uid, (ou, sn, Some(word))))))
            }
            _ => {
                let word = self.word();
                let change = format!("dn: {dn}\nchangetype: modify\nreplace: sn\nsn: {word}\n-\n");
                (change, Box::new(move |done| drop(done.own.insert(uid, (ou, word, description)))))
            }
        }
    }

    fn word(&mut self) -> String {
        (0..1 + self.dice.below(9)).map(|_| char::from(b'a' + self.dice.below(4) as u8)).collect()
    }
}

/// Carries out random changes, several at once, and notes what was acknowledged.
fn change_much<S: Store>(fixture: &Fixture<S>, name: String, seed: u64, steps: u64) -> Done {
    let mut done = Done::default();
    let mut left = steps;
    let mut thread = Thread { name, dice: Dice(seed), count: 0, done: &mut done, busy: BTreeSet::new() };
    while left > 0 {
        let (sender, answers) = mpsc::channel();
        let mut notes = Vec::new();
        let window = 1 + thread.dice.below(WINDOW) as usize;
        for at in 0..window.min(left as usize) {
            let (ldif, note) = thread.step();
            let (operation, controls) = operation(records(&ldif).remove(0));
            let sender = sender.clone();
            let answer = Box::new(move |outcome| sender.send((at, outcome)).unwrap());
            fixture.directory.submit(fixture.request(operation, &controls), answer);
            notes.push(Some((ldif, note)));
        }
        left -= notes.len() as u64;
        drop(sender);
        for (at, outcome) in answers {
            let (ldif, note) = notes[at].take().expect("one answer");
            let answer = describe(&outcome);
            if answer == "0" {
                thread.done.acknowledged += 1;
                note(thread.done);
            } else {
                assert!(REFUSED.iter().any(|code| answer.starts_with(code)), "{answer}: {ldif}");
                thread.done.refused += 1;
            }
        }
        thread.busy.clear();
    }
    done
}

fn values(entry: &Entry, schema: &larix_schema::Schema, name: &str) -> Vec<String> {
    let of = |attribute: &larix_engine::EntryAttribute| {
        attribute.description.to_text(schema).eq_ignore_ascii_case(name)
    };
    let values = entry.attributes.iter().filter(|attribute| of(attribute)).flat_map(|a| &a.values);
    values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

/// What a database shows is what all threads have noted.
fn compare<S: Store>(fixture: &Fixture<S>, all: &[Done], context: &str) {
    let schema = &fixture.schema;
    let mut entries = 0;
    for done in all {
        for (uid, (ou, sn, description)) in &done.own {
            let dn = format!("uid={uid},ou={ou},{SUFFIX}");
            let entry = fixture.entry(&dn).unwrap_or_else(|| panic!("{context}: {dn} is lost"));
            assert_eq!(values(&entry, schema, "sn"), std::slice::from_ref(sn), "{context}: {dn}");
            let described: Vec<String> = description.iter().cloned().collect();
            assert_eq!(values(&entry, schema, "description"), described, "{context}: {dn}");
            entries += 1;
        }
    }
    for number in 0..COMMON {
        let entry = fixture.entry(&common(number)).unwrap();
        let of = || all.iter().filter_map(|done| done.added.get(&number));
        let sum: u64 = of().map(|(_, by)| by).sum();
        assert_eq!(values(&entry, schema, "uidNumber"), [sum.to_string()], "{context}: {}", entry.dn);
        let mut stored = Vec::new();
        for attribute in &entry.attributes {
            let name = attribute.description.to_text(schema);
            let of =
                attribute.values.iter().map(|value| format!("{name}={}", String::from_utf8_lossy(value)));
            stored.extend(of.filter(|text| text.starts_with("description;")));
        }
        stored.sort();
        let mut wanted: Vec<String> = of().flat_map(|(values, _)| values).cloned().collect();
        wanted.sort();
        assert_eq!(stored, wanted, "{context}: {}", entry.dn);
        entries += 1;
    }
    let checked = assert_sound(fixture.database(), context);
    assert_eq!(checked.entries, entries + 3, "{context}: entries");
}

/// The log has each acknowledged change once, in the order of its CSNs, and no number twice.
fn compare_log<S: Store>(fixture: &Fixture<S>, changes: u64, context: &str) {
    let snapshot = fixture.database().store().snapshot().unwrap();
    let (mut sequences, mut csns, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let start = LogKey { server_id: SERVER_ID, sequence: 0 };
    log::visit_stored_after(&snapshot, start, &mut |key, record, _| {
        sequences.push(key.sequence);
        csns.push(record.csn);
        if matches!(record.change, LoggedChange::Add(..)) {
            ids.push(record.entry);
        }
        true
    })
    .unwrap();
    assert_eq!(sequences, (1..=changes).collect::<Vec<_>>(), "{context}: a change is lost, or there twice");
    assert!(csns.is_sorted_by(|a, b| a < b), "{context}: CSNs are not in the order of their changes");
    let unique: BTreeSet<EntryId> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "{context}: an entry id was given twice");
    let last = snapshot.get(META, meta::LAST_ENTRY_ID).unwrap().unwrap();
    assert_eq!(ids.iter().max().map(|id| id.0.to_be_bytes().to_vec()), Some(last.to_vec()), "{context}");
}

/// What the database knows of attribute descriptions.
fn catalog<S: Store>(fixture: &Fixture<S>) -> Vec<(String, u8)> {
    let database = fixture.database();
    // Looking at the latest commit brings it up to date.
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    view.catalog.rows().iter().map(|row| (row.text.to_string(), row.usable().0)).collect()
}

/// What came of a round.
#[derive(Debug)]
struct Outcome {
    acknowledged: u64,
    refused: u64,
    committed: u64,
}

/// What is said where work on indexes meets a store that a plan makes unreachable: it goes on after a pause.
const UNREACHABLE: &str = "the store cannot be reached: a fault that was planned";

/// `tolerated`: what work on indexes may say on its way.
fn round(seed: u64, steps: u64, plan: &FaultPlan, tolerated: &[&str]) -> Outcome {
    let context = format!("seed {seed}");
    let schema = crate::common::schema("");
    let first = SharedStore::new(&TABLES).unwrap();
    let (second, third) = (first.another(), first.another());
    let watch = Arc::new(Failures::default());
    {
        let fixture = serve(first.another(), indexed(&schema, &FEW), seed ^ 0xfeed, &watch);
        fixture.apply(TREE);
        for number in 0..COMMON {
            fixture.apply(&person(&common(number), &format!("common{number}"), "c"));
        }
    }
    // Other lines than before: indexes are built beside the changes, by both.
    let one = serve(FaultStore::new(first, plan.clone()), indexed(&schema, &MANY), seed, &watch);
    let other = serve(FaultStore::new(second, plan.clone()), indexed(&schema, &MANY), seed ^ 0xbeef, &watch);
    let all: Vec<Done> = std::thread::scope(|scope| {
        let threads: Vec<_> = [("a", &one), ("b", &other)]
            .into_iter()
            .flat_map(|(writer, fixture)| {
                (0..THREADS).map(move |thread| {
                    let name = format!("{writer}{thread}");
                    let seed = seed * 1_000 + thread * 10 + u64::from(writer == "b");
                    scope.spawn(move || change_much(fixture, name, seed, steps))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let committed = one.database().store().commit_counter();
    let acknowledged: u64 = all.iter().map(|done| done.acknowledged).sum();
    for (fixture, of) in [(&one, "the first writer"), (&other, "the second writer")] {
        compare(fixture, &all, &format!("{context}, {of}"));
    }
    assert_eq!(catalog(&one), catalog(&other), "{context}: catalogs");
    drop((one, other));
    let again = serve(third, indexed(&schema, &MANY), seed, &watch);
    compare(&again, &all, &format!("{context}, opened again"));
    compare_log(&again, acknowledged + 3 + COMMON, &context);
    let mut messages = std::mem::take(&mut *watch.0.lock().unwrap());
    messages.retain(|message| !tolerated.contains(&message.as_str()));
    assert_eq!(messages, Vec::<String>::new(), "{context}: work on indexes");
    Outcome { acknowledged, refused: all.iter().map(|done| done.refused).sum(), committed }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn two_writers_lose_nothing() {
    let first = number("LARIX_MODEL_SEED", 1);
    for seed in first..first + number("LARIX_WRITERS_ROUNDS", ROUNDS) {
        // Conflicts come from the other writer, and by chance besides.
        let plan = FaultPlan::new().by_chance(Fault::Conflict, 6, seed);
        let outcome = round(seed, number("LARIX_WRITERS_STEPS", STEPS), &plan, &[]);
        println!("seed {seed}: {outcome:?}, {} commits tried", plan.commits());
        let Outcome { acknowledged, refused, committed } = outcome;
        assert!(acknowledged > 10 * refused, "{acknowledged} changes, {refused} refused");
        assert!(plan.commits() > committed + committed / 10, "{committed} of {} commits", plan.commits());
    }
}

/// A directory over a store with faults, alone on it, with the tree and its common entries.
fn alone(plan: &FaultPlan) -> (Fixture<FaultStore<SharedStore>>, SharedStore) {
    let store = SharedStore::new(&TABLES).unwrap();
    let another = store.another();
    let schema = crate::common::schema("");
    let watch = Arc::new(Failures::default());
    let fixture = serve(FaultStore::new(store, plan.clone()), indexed(&schema, &FEW), 5, &watch);
    fixture.apply(TREE);
    fixture.apply(&person(&common(0), "common0", "c"));
    (fixture, another)
}

/// Each change adds to a number: what happens twice shows.
fn raise() -> String {
    format!("dn: {}\nchangetype: modify\nincrement: uidNumber\nuidNumber: 1\n-\n", common(0))
}

/// A commit whose answer was lost is answered as what it was, or as unknown: never as what it was not.
#[test]
fn a_lost_answer_is_no_success_and_no_failure() {
    const UNKNOWN: &str = "80 the store did not answer the commit: it is unknown whether the changes were made; \
                           read the entry before you try again";
    let lost = |made, silent| Fault::Lost { made, silent };
    // The answers of three changes, of which the first one's commit meets the fault, and how many there are in the end.
    for (fault, first, last) in [
        (lost(true, 0), "0", 3),
        (lost(true, 2), "0", 3),
        (lost(false, 0), "0", 3),
        (lost(false, 2), "0", 3),
        (lost(true, 3), UNKNOWN, 3),
        (lost(false, 3), UNKNOWN, 2),
        (Fault::Late, UNKNOWN, 3),
    ] {
        let plan = FaultPlan::new();
        let (fixture, _) = alone(&plan);
        plan.next(fault);
        assert_eq!(fixture.change(&raise()), first, "{fault:?}");
        assert_eq!([fixture.change(&raise()), fixture.change(&raise())], ["0", "0"], "{fault:?}");
        assert_eq!(fixture.value(&common(0), "uidNumber"), Some(last.to_string()), "{fault:?}");
        compare_log(&fixture, 4 + last, &format!("{fault:?}"));
    }
}

#[test]
fn what_cannot_be_committed_is_told_with_its_reason() {
    let (fixture, another) = alone(&FaultPlan::new());
    let plan = FaultPlan::new();
    let (offline, _) = alone(&plan);
    plan.next(Fault::Unavailable);
    let reached = "52 the store cannot be reached: a fault that was planned; nothing was changed";
    assert_eq!(offline.change(&raise()), reached);
    plan.set_offline(true);
    assert_eq!(offline.change(&raise()), reached);
    plan.set_offline(false);
    assert_eq!(offline.change(&raise()), "0");
    assert_eq!(offline.value(&common(0), "uidNumber").as_deref(), Some("1"));
    // More conflicts than there are tries.
    let plan = FaultPlan::new();
    let (busy, _) = alone(&plan);
    let tried = plan.commits();
    let always = plan.by_chance(Fault::Conflict, 1, 0);
    assert_eq!(
        busy.change(&raise()),
        "51 other servers' changes were always first: nothing was changed, try again"
    );
    assert_eq!(
        (always.commits() > tried + 8, busy.value(&common(0), "uidNumber").as_deref()),
        (true, Some("0"))
    );
    // Another one takes over.
    fixture.apply(&raise());
    let schema = crate::common::schema("");
    let leader = another.take_over().unwrap();
    let leader = serve(leader, indexed(&schema, &FEW), 6, &Arc::new(Failures::default()));
    let fenced =
        "52 another server has taken over writing to this store: nothing was changed, send the change there";
    assert_eq!(fixture.change(&raise()), fenced);
    leader.apply(&raise());
    for reader in [fixture.value(&common(0), "uidNumber"), leader.value(&common(0), "uidNumber")] {
        assert_eq!(reader.as_deref(), Some("2"), "reads go on");
    }
}

/// A commit that never comes through is not made anew for ever: all other changes wait for it.
#[test]
fn a_commit_that_is_never_made_is_given_up() {
    let plan = FaultPlan::new();
    let (fixture, _) = alone(&plan);
    let before = plan.commits();
    let lost = Fault::Lost { made: false, silent: 0 };
    let _same = (1..=40).fold(plan, |plan, commit| plan.at(before + commit, lost));
    for _ in 0..2 {
        let answer = fixture.change(&raise());
        assert!(answer.starts_with("52 ") && answer.contains("smaller parts"), "{answer}");
    }
    assert_eq!(fixture.change(&raise()), "0");
    assert_eq!(fixture.value(&common(0), "uidNumber").as_deref(), Some("1"));
    compare_log(&fixture, 5, "given up");
}

/// Lost answers of all kinds beside another writer: only those that were answered as unknown may or may not have happened.
#[test]
fn lost_answers_beside_another_writer_lose_nothing() {
    let first = number("LARIX_MODEL_SEED", 1);
    for seed in first..first + number("LARIX_WRITERS_ROUNDS", ROUNDS) {
        let plan = FaultPlan::new()
            .by_chance(Fault::Lost { made: true, silent: 0 }, 9, seed)
            .by_chance(Fault::Lost { made: false, silent: 1 }, 9, 0)
            .by_chance(Fault::Unavailable, 50, 0);
        let outcome = round(seed, number("LARIX_WRITERS_STEPS", STEPS), &plan, &[UNREACHABLE]);
        println!("seed {seed}: {outcome:?}, {} commits tried", plan.commits());
        assert!(outcome.acknowledged > 4 * outcome.refused, "{outcome:?}");
    }
}
