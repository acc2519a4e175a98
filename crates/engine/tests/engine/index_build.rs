//! Indexes built, dropped and made anew while random changes go on, over restarts at any commit: what is used is right at
//! any time, and in the end everything that is wanted is complete and nothing else is left.
//!
//! `LARIX_MODEL_SEED` sets the first seed, `LARIX_INDEX_ROUNDS` how many there are.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::index::{IndexConfig, Kinds, parse_head};
use larix_engine::tables::{INDEX, META, TABLES, meta};
use larix_engine::time::SeededRandom;
use larix_engine::write::{IndexNotice, IndexWatch, Origin, WriteRequest, WriterEnvironment};
use larix_engine::writer::Reconfiguration;
use larix_engine::{Database, DatabaseSettings, Directory, ServedDatabase};
use larix_schema::Schema;
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::{Direction, KeyRange, Snapshot, Store};

use crate::common::{
    Dice, ROOT, SUFFIX, SteppingClock, assert_sound, directory, environment, memory, operation, records,
    schema, settings,
};

const ENTRIES: u64 = 60;
const ROUNDS: u64 = 8;
const STEPS: u64 = 120;
/// Longer than any step of a build takes on a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Watch(Mutex<Sender<IndexNotice>>);

impl IndexWatch for Watch {
    fn notice(&self, notice: IndexNotice) {
        // Nobody listens to a server that was stopped.
        let _ = self.0.lock().unwrap().send(notice);
    }
}

/// A server's engine from start to stop.
struct Run<S: Store> {
    directory: Directory<S>,
    schema: Arc<Schema>,
    environment: WriterEnvironment,
    notices: Receiver<IndexNotice>,
    subject: Arc<Subject>,
}

impl<S: Store> Run<S> {
    fn start(schema: &Arc<Schema>, store: S, settings: DatabaseSettings) -> Self {
        let (sender, notices) = mpsc::channel();
        // Each start has random bytes of its own: an entryUUID is never given twice.
        let commits = store.snapshot().unwrap().commit_counter();
        let random = Arc::new(SeededRandom::new(7 + commits));
        let database = Database::open(store, Arc::clone(schema), settings, &*random).unwrap();
        let environment = WriterEnvironment {
            index_watch: Some(Arc::new(Watch(Mutex::new(sender)))),
            ..environment(Arc::new(SteppingClock::default()), random, 1)
        };
        let served = Arc::new(ServedDatabase::start(Arc::new(database), environment.clone()).unwrap());
        let subject = Arc::new(Subject::default().bound_as(schema.parse_dn(ROOT).unwrap(), ROOT));
        let directory = directory(schema, vec![served]);
        Self { directory, schema: Arc::clone(schema), environment, notices, subject }
    }

    fn database(&self) -> &Arc<Database<S>> {
        self.directory.databases().first().unwrap().database()
    }

    /// Has the database follow other settings, as a server does.
    fn reconfigure(&self, settings: DatabaseSettings) {
        let (served, schema) = (self.directory.databases().first().unwrap(), Arc::clone(&self.schema));
        served.forget_indexes(Arc::clone(&schema), settings.index.clone()).unwrap();
        served.reconfigure(Reconfiguration { schema, settings, environment: self.environment.clone() });
    }

    /// Hands changes to the writer; `done` hears of each.
    fn submit(&self, ldif: &str, done: &Sender<u32>) -> usize {
        let records = records(ldif);
        let count = records.len();
        for record in records {
            let (operation, _) = operation(record);
            let request = WriteRequest {
                operation,
                subject: Arc::clone(&self.subject),
                controls: RequestControls::default(),
                origin: Origin::Client,
                passwords: None,
            };
            let done = done.clone();
            self.directory.submit(
                request,
                Box::new(move |outcome| {
                    // A test that has failed does not listen any more.
                    let _ = done.send(outcome.result.code.0);
                }),
            );
        }
        count
    }

    /// What searches may use is as the entries say.
    fn check(&self, context: &str) {
        assert_sound(self.database(), context);
    }

    /// Whether everything that is wanted is complete, and nothing else is left.
    fn is_settled(&self) -> bool {
        let snapshot = self.database().store().snapshot().unwrap();
        let catalog = self.database().catalog();
        let wanted = |key: &[u8]| {
            let (number, kind) = parse_head(key).unwrap();
            catalog.row(number).is_some_and(|row| row.wanted.has(Kinds::from(kind)))
        };
        catalog.stale().next().is_none()
            && snapshot.get(META, meta::INDEX_WORK).unwrap().is_none()
            && snapshot
                .posting_keys(INDEX, KeyRange::all(), Direction::Forward)
                .unwrap()
                .all(|row| wanted(&row.unwrap().0))
    }

    fn settle(&self, context: &str) {
        while !self.is_settled() {
            let notice = self.notices.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{context}: no end"));
            assert!(!matches!(notice, IndexNotice::Failed { .. }), "{context}: {notice:?}");
        }
    }
}

/// Settings with a random choice of index lines.
fn chosen(schema: &Schema, dice: &mut Dice) -> DatabaseSettings {
    let mut index = IndexConfig::default();
    for (attributes, kinds) in [
        ("cn", ["eq", "sub", "pres,eq,sub,approx"]),
        ("sn", ["eq", "subinitial", "subany,subfinal"]),
        ("description", ["pres", "sub", "eq,sub"]),
        ("title", ["eq", "approx", "sub"]),
        ("name", ["eq", "sub", "pres"]),
    ] {
        // The supertype's line says more of the others: one of them at a time is enough.
        let kind = dice.below(if attributes == "name" { 12 } else { 5 });
        if kind < 3 {
            index.add_line(schema, attributes, Some(kinds[kind as usize])).unwrap();
        }
    }
    DatabaseSettings { index, ..settings(schema) }
}

fn word(dice: &mut Dice) -> String {
    (0..1 + dice.below(12)).map(|_| char::from(b'a' + dice.below(4) as u8)).collect()
}

fn change(dice: &mut Dice) -> String {
    let id = dice.below(ENTRIES);
    let dn = format!("uid=u{id},{SUFFIX}");
    let attribute = ["cn", "sn", "description", "title"][dice.below(4) as usize];
    let values: String =
        (0..1 + dice.below(3)).map(|n| format!("{attribute}: {}{n}\n", word(dice))).collect();
    match dice.below(8) {
        0 => format!("dn: {dn}\nchangetype: delete\n"),
        1 | 2 => format!(
            "dn: {dn}\nobjectClass: inetOrgPerson\nuid: u{id}\nsn: {}\ncn: {}\ndescription: {}\n",
            word(dice),
            word(dice),
            word(dice)
        ),
        3 if attribute != "cn" && attribute != "sn" => {
            format!("dn: {dn}\nchangetype: modify\ndelete: {attribute}\n")
        }
        _ => format!("dn: {dn}\nchangetype: modify\nreplace: {attribute}\n{values}"),
    }
}

fn round<S: Store>(seed: u64, store: &Arc<S>) {
    let (schema, mut dice) = (schema(""), Dice(seed));
    let open = |settings| Run::start(&schema, Arc::clone(store), settings);
    let (done, answers) = mpsc::channel();
    let mut run = open(chosen(&schema, &mut dice));
    let mut underway = run.submit(
        &format!("dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\ndc: example\no: Example\n"),
        &done,
    );
    for step in 0..STEPS {
        let context = format!("seed {seed}, step {step}");
        for _ in 0..dice.below(12) {
            underway += run.submit(&change(&mut dice), &done);
        }
        match dice.below(20) {
            0..3 => run.reconfigure(chosen(&schema, &mut dice)),
            3 => {
                // Stopped where it stands, and started with the same or other lines.
                let settings = match dice.below(2) {
                    0 => DatabaseSettings::clone(&run.database().settings()),
                    _ => chosen(&schema, &mut dice),
                };
                drop(run);
                run = open(settings);
            }
            4..6 => {
                await_all(&answers, underway);
                underway = 0;
            }
            6 => run.settle(&context),
            _ => {}
        }
        run.check(&context);
    }
    run.settle(&format!("seed {seed}"));
    await_all(&answers, underway);
    run.check(&format!("seed {seed}, at the end"));
}

fn await_all(answers: &Receiver<u32>, count: usize) {
    for _ in 0..count {
        answers.recv_timeout(PATIENCE).unwrap();
    }
}

fn rounds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("LARIX_MODEL_SEED").unwrap_or(1);
    first..first + number("LARIX_INDEX_ROUNDS").unwrap_or(ROUNDS)
}

#[test]
fn indexes_are_right_whatever_happens_while_they_are_built() {
    for seed in rounds() {
        println!("seed {seed}");
        round(seed, &Arc::new(memory()));
    }
}

#[test]
fn the_same_on_disk() {
    for seed in rounds().step_by(4) {
        println!("seed {seed}");
        let directory = tempfile::tempdir().unwrap();
        let options = LmdbOptions { map_size: 64 << 20, ..LmdbOptions::default() };
        round(seed, &Arc::new(LmdbStore::open(directory.path(), &TABLES, &options).unwrap()));
    }
}

#[test]
fn a_build_is_told_of_from_its_beginning_to_its_end() {
    let (schema, store) = (schema(""), Arc::new(memory()));
    let run = Run::start(&schema, Arc::clone(&store), settings(&schema));
    let (done, answers) = mpsc::channel();
    let root =
        format!("dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\ndc: example\no: Example\n");
    let entry =
        |n: u64| format!("\ndn: cn=e{n},{SUFFIX}\nobjectClass: device\ncn: e{n}\nserialNumber: {n}\n");
    let count = run.submit(&(root + &(0..40).map(entry).collect::<String>()), &done);
    (0..count).for_each(|_| assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), 0));
    let mut index = settings(&schema).index;
    index.add_line(&schema, "serialNumber", Some("eq,sub")).unwrap();
    let wanted = DatabaseSettings { index, ..settings(&schema) };
    run.reconfigure(wanted);
    let of = |name: &str| {
        let all = run.database().index_status();
        all.into_iter().find(|status| status.attribute == name)
    };
    let mut notices = Vec::new();
    while !run.is_settled() {
        notices.push(run.notices.recv_timeout(PATIENCE).unwrap());
    }
    notices.extend(run.notices.try_iter());
    let indexes = "serialNumber eq,sub".to_owned();
    let begun = IndexNotice::Begun { indexes: indexes.clone(), entries: 0, resumed: false };
    let complete = IndexNotice::Complete { indexes, entries: 41, seconds: 0 };
    let notices: BTreeSet<String> = notices
        .into_iter()
        .map(|notice| match notice {
            IndexNotice::Begun { indexes, resumed, .. } => {
                IndexNotice::Begun { indexes, entries: 0, resumed }
            }
            other => other,
        })
        .map(|notice| format!("{notice:?}"))
        .collect();
    assert_eq!(notices, [begun, complete].iter().map(|notice| format!("{notice:?}")).collect());
    assert!(of("serialNumber").is_some_and(|status| status.is_complete() && status.working.is_empty()));
    // Without its line it goes, and so does what it took.
    run.reconfigure(settings(&schema));
    run.settle("dropped");
    assert_eq!(of("serialNumber"), None);
    run.check("dropped");
}
