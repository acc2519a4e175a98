//! Servers that record in one log by turns, or believe so: on stores without a fence, so what keeps them apart is the log alone.

use std::sync::mpsc;

use larix_configuration::Purge;
use larix_configuration::values::ConfigDn;
use larix_engine::access::Subject;
use larix_engine::audit::Operations;
use larix_engine::controls::RequestControls;
use larix_engine::csn::Csn;
use larix_engine::database::{ProviderSettings, Suffix};
use larix_engine::log;
use larix_engine::order::CommitOrder;
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange, ReplicatedOutcome};
use larix_engine::tables::TABLES;
use larix_engine::time::{Monotonic, SeededRandom};
use larix_engine::write::{AttributeValues, Origin, WriteOperation, WriteRequest, WriterEnvironment};
use larix_engine::writer::Reconfiguration;
use larix_engine::{Database, DatabaseSettings, Directory, EntrySource, Frontend, tree};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::shared::SharedStore;

use super::*;
use crate::access_log::{AccessLogSettings, new_source};
use crate::log::{LogCall, LogSettings};

const SUFFIX: &str = "dc=a";
const LOG: &str = "cn=log";

/// A database of one server.
#[derive(Clone, Debug)]
struct Host {
    served: Arc<ServedDatabase<SharedStore>>,
    /// 0: it does not write.
    term: Arc<AtomicU64>,
}

impl OverlayHost for Host {
    type Store = SharedStore;

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.served, &other.served)
    }

    fn served(&self) -> Option<&Arc<ServedDatabase<SharedStore>>> {
        Some(&self.served)
    }

    fn settings(&self) -> Arc<DatabaseSettings> {
        self.served.database().settings()
    }

    fn term(&self) -> Option<u64> {
        Some(self.term.load(Ordering::Acquire)).filter(|term| *term > 0)
    }

    fn on_change(&self, _: Box<dyn Fn() -> bool + Send>) {}
}

/// A server with the database that is recorded and the log's.
struct Machine {
    suffix: &'static str,
    database: Host,
    log: Host,
    directory: Directory<SharedStore>,
    writer: Arc<LogWriter<Host>>,
    progress: Progress,
}

fn schema() -> Arc<Schema> {
    let mut builder = SchemaBuilder::system();
    builder.add_bundled("core").unwrap();
    Arc::new(builder.build())
}

fn host(schema: &Arc<Schema>, store: SharedStore, suffix: &str) -> Host {
    let settings = DatabaseSettings {
        suffixes: vec![Suffix { normal: schema.parse_dn(suffix).unwrap(), text: suffix.to_owned() }],
        root_dn: Some(schema.parse_dn("cn=root").unwrap()),
        root_dn_text: "cn=root".to_owned(),
        last_modified: true,
        log: true,
        // Consumers may follow the access log.
        provider: (suffix == LOG).then(ProviderSettings::default),
        ..DatabaseSettings::default()
    };
    let database = Database::open(store, Arc::clone(schema), settings, &SeededRandom::new(7)).unwrap();
    let served = ServedDatabase::start(Arc::new(database), environment(1, 7)).unwrap();
    Host { served: Arc::new(served), term: Arc::default() }
}

fn environment(server_id: u16, seed: u64) -> WriterEnvironment {
    WriterEnvironment {
        clock: Arc::new(SystemClock),
        random: Arc::new(SeededRandom::new(seed)),
        order: Arc::new(CommitOrder::new(server_id)),
        default_referrals: Arc::from([]),
        auxiliary_needs_rule: false,
        index_watch: None,
    }
}

impl Machine {
    fn new(schema: &Arc<Schema>, stores: &[SharedStore; 2]) -> Self {
        Self::recording(schema, stores, Operations::WRITES)
    }

    fn recording(schema: &Arc<Schema>, stores: &[SharedStore; 2], operations: Operations) -> Self {
        Self::of(SUFFIX, schema, stores, operations)
    }

    /// This server writes both. `operations`: of the first one, the other one's are all writes.
    fn two_of_a_log(schema: &Arc<Schema>, operations: Operations) -> [Self; 2] {
        let stores = stores();
        let other_stores = [SharedStore::new(&TABLES).unwrap(), stores[1].another()];
        let one = Self::recording(schema, &stores, operations);
        let two = Self::of("dc=b", schema, &other_stores, Operations::WRITES);
        [&one, &two].iter().for_each(|machine| machine.set_term(1));
        [one, two]
    }

    fn of(
        suffix: &'static str,
        schema: &Arc<Schema>,
        stores: &[SharedStore; 2],
        operations: Operations,
    ) -> Self {
        let (database, log) =
            (host(schema, stores[0].another(), suffix), host(schema, stores[1].another(), LOG));
        let frontend = Frontend {
            subschema: schema.parse_dn("cn=Subschema").unwrap(),
            schema: Arc::clone(schema),
            default_search_base: None,
            referrals: Vec::new(),
        };
        let directory = Directory::new(frontend, vec![Arc::clone(&database.served)]).unwrap();
        let call = LogCall { no_syslog: true, ..LogCall::default() };
        let server_log = Log::start(LogSettings::silent(), call).unwrap().0;
        let writer = LogWriter::new(log.clone(), Arc::new(SystemClock), server_log);
        let settings = AccessLogSettings {
            database: ConfigDn::parse_relaxed(schema, LOG).unwrap(),
            operations,
            bases: Vec::new(),
            success_only: true,
            old: None,
            purge: None,
        };
        let source = new_source(database.clone(), &writer);
        writer.set_recorders(vec![Arc::new(Recorder { settings, source, log: Arc::clone(&writer) })]);
        Self { suffix, database, log, directory, writer, progress: Progress::default() }
    }

    /// Records what another one records, too.
    fn records_also(&self, other: &Self) {
        let own = self.writer.lock().recorders.clone();
        let theirs = other.writer.lock().recorders.clone();
        let also = theirs.iter().map(|recorder| {
            let source = new_source(other.database.clone(), &self.writer);
            Arc::new(Recorder { settings: recorder.settings.clone(), source, log: Arc::clone(&self.writer) })
        });
        self.writer.set_recorders(own.into_iter().chain(also).collect());
    }

    /// The CSNs of all changes.
    fn changes(&self) -> Vec<Csn> {
        let mut changes = Vec::new();
        let snapshot = self.database.served.database().store().snapshot().unwrap();
        log::visit_outlines_after(&snapshot, LogKey { server_id: 1, sequence: 0 }, &mut |_, outline| {
            changes.push(outline.csn);
            true
        })
        .unwrap();
        changes
    }

    /// How far the log has come.
    fn log_contexts(&self) -> Vec<Csn> {
        log::context_csns(&self.log.served.database().store().snapshot().unwrap()).unwrap()
    }

    fn set_term(&self, term: u64) {
        [&self.database, &self.log].iter().for_each(|host| host.term.store(term, Ordering::Release));
    }

    fn round(&mut self) -> Result<bool, String> {
        self.writer.round(&mut self.progress)
    }

    /// Records what there is.
    fn record(&mut self) {
        while self.round().unwrap() {}
    }

    /// Adds an entry.
    fn add(&self, schema: &Schema, number: u64) {
        let class = if number == 0 { "dcObject" } else { "device" };
        let suffix = self.suffix;
        let (name, value) = match number {
            0 => ("dc", suffix.trim_start_matches("dc=").to_owned()),
            _ => ("cn", format!("p{number}")),
        };
        let entry = if number == 0 { suffix.to_owned() } else { format!("cn={value},{suffix}") };
        let mut attributes = vec![(name, value), ("objectClass", class.to_owned())];
        if number == 0 {
            attributes.extend([("objectClass", "organization".to_owned()), ("o", "a".to_owned())]);
        }
        let mut values: Vec<AttributeValues> = Vec::new();
        for (name, value) in attributes {
            match values.iter_mut().find(|known| known.description == name) {
                Some(known) => known.values.push(value.into_bytes()),
                None => values
                    .push(AttributeValues { description: name.to_owned(), values: vec![value.into_bytes()] }),
            }
        }
        let root = schema.parse_dn("cn=root").unwrap();
        let request = WriteRequest {
            operation: WriteOperation::Add { entry, attributes: values },
            subject: Arc::new(Subject::default().bound_as(root, "cn=root")),
            controls: RequestControls::default(),
            origin: Origin::Client,
            passwords: None,
        };
        self.answered(|done| {
            self.directory.submit(request, Box::new(move |outcome| done.send(outcome.result).unwrap()));
        });
    }

    /// The server gets another ID while it runs.
    fn change_server_id(&self, schema: &Arc<Schema>, server_id: u16, seed: u64) {
        let served = &self.database.served;
        let settings = DatabaseSettings::clone(&served.database().current_settings());
        let (schema, environment) = (Arc::clone(schema), environment(server_id, seed));
        served.reconfigure(Reconfiguration { schema, settings, environment });
        while served.database().following().answered().server_id != server_id {
            std::thread::yield_now();
        }
    }

    /// Whether consumers may follow a database.
    fn provide(schema: &Arc<Schema>, served: &ServedDatabase<SharedStore>, is_provided: bool) {
        let before = DatabaseSettings::clone(&served.database().current_settings());
        let provider = is_provided.then(ProviderSettings::default);
        let settings = DatabaseSettings { provider, ..before };
        let (schema, environment) = (Arc::clone(schema), environment(1, 8));
        served.reconfigure(Reconfiguration { schema, settings, environment });
        while served.database().current_settings().provider.is_some() != is_provided {
            std::thread::yield_now();
        }
    }

    /// Adds an entry that another server has added under this CSN.
    fn replicate(&self, csn: &str) {
        let values = [
            ("objectClass", "device"),
            ("structuralObjectClass", "device"),
            ("cn", "far"),
            ("entryCSN", csn),
        ];
        let attributes = values.map(|(name, value)| AttributeValues {
            description: name.to_owned(),
            values: vec![value.as_bytes().to_vec()],
        });
        let put = ReplicatedChange::Put {
            entry_uuid: Uuid::from_u128(9),
            dn: format!("cn=far,{SUFFIX}"),
            attributes: attributes.to_vec(),
            state: None,
            place: None,
        };
        let batch = ReplicatedBatch { changes: vec![put], ..ReplicatedBatch::default() };
        self.answered(|done| {
            self.database
                .served
                .replicate(batch, Box::new(move |outcome| done.send(outcome.result).unwrap()));
        });
    }

    /// Waits until a change has succeeded.
    fn answered(&self, change: impl FnOnce(mpsc::Sender<LdapResult>)) {
        let answered = || self.database.served.database().following().answered();
        let before = answered();
        let (done, ended) = mpsc::channel();
        change(done);
        let result = ended.recv().unwrap();
        assert!(result.is_success(), "{result}");
        // The writer notes a moment later that it has answered. What is not answered is not recorded.
        while answered() == before {
            std::thread::yield_now();
        }
    }
}

/// What the log says was added, in the order of the records' names, with the CSNs.
fn recorded(machine: &Machine) -> Vec<(String, Csn)> {
    records(machine).into_iter().map(|(_, name, csn)| (name, csn)).collect()
}

/// The same with the times that are the records' names.
fn records(machine: &Machine) -> Vec<(String, String, Csn)> {
    // What others have committed.
    machine.log.served.follow_store().unwrap();
    let database = machine.log.served.database();
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    let suffix = view.schema.parse_dn(LOG).unwrap();
    let Some(root) = view.resolve(&suffix).unwrap().and_then(|resolved| resolved.id) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    tree::visit_children(&snapshot, root, |id| {
        children.push(id);
        true
    })
    .unwrap();
    let all = children.into_iter().map(|id| {
        let record = view.record(id).unwrap().unwrap();
        let reader = view.reader(id, &record).unwrap();
        let one = |name: &str| {
            let mut found = String::new();
            let description = view.schema.describe(name).unwrap();
            reader
                .visit_description(&description, &mut |value| {
                    found = String::from_utf8_lossy(value).into_owned();
                    false
                })
                .unwrap();
            found
        };
        (one("reqStart"), one("reqDN"), one("entryCSN").parse().unwrap())
    });
    let mut all: Vec<(String, String, Csn)> = all.collect();
    // The keys of the tree are normal forms, without zeros at the end.
    all.sort();
    all
}

/// Each of these once, in the order of their CSNs.
fn check(machine: &Machine, count: u64) {
    let found = recorded(machine);
    let mut names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    let name = |number| if number == 0 { SUFFIX.to_owned() } else { format!("cn=p{number},{SUFFIX}") };
    let mut expected: Vec<String> = (0..count).map(name).collect();
    expected.sort();
    assert_eq!(names, expected);
    assert!(found.is_sorted_by(|(_, one), (_, next)| one < next), "{found:?}");
}

#[test]
fn commits_are_smaller_behind_failures_and_grow_again() {
    let mut progress = Progress::default();
    let mut check = |is_done: bool, times: u32, expected: usize| {
        (0..times).for_each(|_| progress.adapt(is_done));
        assert_eq!(progress.share(GROUP_SHARED), expected, "{is_done} {times} times");
    };
    check(true, 100, 256);
    check(false, 2, 64);
    check(true, GROWS_AFTER - 1, 64);
    check(true, 1, 128);
    check(false, 1, 64);
    check(false, 100, 1);
    check(true, 8 * GROWS_AFTER, 256);
}

/// Sequences go on under the next server ID.
#[test]
fn changes_under_several_server_ids_are_recorded() {
    let (schema, stores) = (schema(), stores());
    let mut machine = Machine::new(&schema, &stores);
    machine.set_term(1);
    machine.record();
    machine.add(&schema, 0);
    for (number, server_id, is_recorded) in [(1, 2, true), (2, 3, false), (3, 2, true)] {
        machine.change_server_id(&schema, server_id, 10 + number);
        machine.add(&schema, number);
        if is_recorded {
            machine.record();
            check(&machine, number + 1);
        }
    }
    assert!(machine.progress.extent.as_ref().is_some_and(|extent| extent.lacks.is_empty()));
}

#[test]
fn a_server_that_fails_records_all_of_it_in_smaller_commits() {
    let (schema, stores) = (schema(), stores());
    let mut one = Machine::new(&schema, &stores);
    one.set_term(1);
    (0..9).for_each(|number| one.add(&schema, number));
    one.progress.shrunk = 7;
    assert_eq!(one.round(), Ok(true), "two of nine");
    check(&one, 2);
    one.record();
    check(&one, 9);
}

/// A replica that has them asks the log for what comes behind, while the log is read up to the next one.
#[test]
fn a_log_has_come_as_far_as_changes_that_it_does_not_want() {
    let (schema, stores) = (schema(), stores());
    let mut one = Machine::recording(&schema, &stores, "delete".parse().unwrap());
    one.set_term(1);
    one.record();
    (0..3).for_each(|number| one.add(&schema, number));
    // One change in each commit.
    one.progress.shrunk = SHRUNK_MAX;
    for (change, more) in one.changes().into_iter().zip([true, true, false]) {
        assert_eq!(one.round(), Ok(more));
        assert_eq!(one.log_contexts(), [change]);
    }
    check(&one, 0);
}

/// A cookie of the log speaks for both: who has it is not sent what would come late.
#[test]
fn a_log_of_two_databases_has_come_as_far_as_both() {
    for operations in ["delete", "writes"] {
        let schema = schema();
        let [mut one, two] = Machine::two_of_a_log(&schema, operations.parse().unwrap());
        one.records_also(&two);
        one.record();
        (0..3).for_each(|number| two.add(&schema, number));
        (0..2).for_each(|number| one.add(&schema, number));
        let (of_two, of_one) = (two.changes(), one.changes());
        one.progress.shrunk = SHRUNK_MAX;
        let mut more = true;
        while more {
            more = one.round().unwrap();
            let known: Vec<Csn> = recorded(&one).into_iter().map(|(_, csn)| csn).collect();
            let contexts = one.log_contexts();
            let late = of_two.iter().filter(|csn| !known.contains(csn) && contexts.iter().any(|c| *csn <= c));
            assert_eq!(late.count(), 0, "{operations}: {contexts:?} beside {known:?}");
        }
        assert_eq!(one.log_contexts(), of_one[1..], "{operations}");
        let names: Vec<String> = recorded(&one).into_iter().map(|(name, _)| name).collect();
        let expected = ["dc=b", "cn=p1,dc=b", "cn=p2,dc=b", "dc=a", "cn=p1,dc=a"];
        let count = if operations == "delete" { 3 } else { 5 };
        assert_eq!(names, expected[..count], "{operations}");
    }
}

#[test]
fn databases_of_a_log_without_consumers_do_not_wait() {
    let schema = schema();
    let [mut one, two] = Machine::two_of_a_log(&schema, Operations::WRITES);
    Machine::provide(&schema, &one.log.served, false);
    one.records_also(&two);
    one.record();
    (0..2).for_each(|number| two.add(&schema, number));
    one.add(&schema, 0);
    // One change of each database in each commit.
    one.progress.shrunk = SHRUNK_MAX;
    assert_eq!(one.round(), Ok(true));
    let mut names: Vec<String> = recorded(&one).into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["dc=a", "dc=b"]);
}

/// What was changed before a database came to a log is not there.
#[test]
fn a_database_that_is_recorded_later_brings_a_gap() {
    let schema = schema();
    let [mut one, two] = Machine::two_of_a_log(&schema, Operations::WRITES);
    one.record();
    one.add(&schema, 0);
    two.add(&schema, 0);
    one.record();
    let lacks = |machine: &Machine| machine.progress.extent.as_ref().unwrap().lacks.as_slice().to_vec();
    assert_eq!(lacks(&one), []);
    one.records_also(&two);
    // This one is recorded.
    two.add(&schema, 1);
    one.record();
    assert_eq!(lacks(&one), two.changes()[..1]);
}

/// As where the overlay is away for a while: consumers of that database have the cookie of what was recorded meanwhile.
#[test]
fn a_database_that_comes_back_late_brings_a_gap_behind_all() {
    let schema = schema();
    let [mut one, two] = Machine::two_of_a_log(&schema, Operations::WRITES);
    Machine::provide(&schema, &two.database.served, true);
    one.records_also(&two);
    one.record();
    two.add(&schema, 0);
    one.record();
    let both = one.writer.lock().recorders.clone();
    one.writer.set_recorders(both[..1].to_vec());
    two.add(&schema, 1);
    one.add(&schema, 0);
    one.record();
    let told = one.log_contexts();
    one.writer.set_recorders(both);
    one.record();
    let gap = [Csn { modification: 1, ..told[0] }];
    assert_eq!(one.progress.extent.as_ref().unwrap().left_out.as_slice(), gap);
    assert_eq!(one.log_contexts(), gap);
    {
        let snapshot = two.database.served.database().store().snapshot().unwrap();
        assert_eq!(log::context_csns(&snapshot).unwrap(), gap);
        assert_eq!(log::doubted_csns(&snapshot).unwrap().as_slice(), gap);
    }
    let names: Vec<String> = recorded(&one).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["dc=b", "dc=a", "cn=p1,dc=b"]);
    // Of what comes in time nothing is doubted.
    one.progress = Progress::default();
    two.add(&schema, 2);
    one.record();
    assert_eq!(one.progress.extent.as_ref().unwrap().left_out.as_slice(), gap);
}

/// Who follows one of the databases never hears of a server that changes another one.
#[test]
fn what_other_servers_changed_before_is_no_gap_for_all() {
    let schema = schema();
    let [mut one, two] = Machine::two_of_a_log(&schema, Operations::WRITES);
    one.record();
    two.add(&schema, 0);
    let theirs: Csn = "20200101000000.000000Z#000000#005#000000".parse().unwrap();
    let batch = ReplicatedBatch { context_csns: vec![theirs], ..ReplicatedBatch::default() };
    let (done, ended) = mpsc::channel();
    let tell = move |outcome: ReplicatedOutcome| done.send(outcome.result).unwrap();
    two.database.served.replicate(batch, Box::new(tell));
    assert!(ended.recv().unwrap().is_success());
    one.records_also(&two);
    one.record();
    assert_eq!(one.progress.extent.as_ref().unwrap().lacks.as_slice(), two.changes());
}

fn stores() -> [SharedStore; 2] {
    [SharedStore::new(&TABLES).unwrap(), SharedStore::new(&TABLES).unwrap()]
}

#[test]
fn the_server_that_writes_records_and_the_next_one_goes_on() {
    let (schema, stores) = (schema(), stores());
    let [mut one, mut two] = [Machine::new(&schema, &stores), Machine::new(&schema, &stores)];
    // Nobody writes yet.
    assert_eq!((one.round(), one.progress.term), (Ok(false), None));
    one.set_term(1);
    (0..3).for_each(|number| one.add(&schema, number));
    one.record();
    check(&one, 3);
    assert_eq!(one.progress.term, Some((1, 1)));
    // One right is not enough.
    one.database.term.store(0, Ordering::Release);
    one.add(&schema, 3);
    assert_eq!((one.round(), one.progress.term), (Ok(false), None));
    check(&one, 3);

    // The next one begins where the one before was.
    two.set_term(2);
    two.record();
    check(&two, 4);
    two.add(&schema, 4);
    two.record();
    check(&two, 5);
    assert_eq!(two.round(), Ok(false));
    check(&one, 5);
}

#[test]
fn one_wrong_clock_does_not_set_the_times_of_all_records() {
    let (schema, stores) = (schema(), stores());
    let mut machine = Machine::new(&schema, &stores);
    machine.set_term(1);
    machine.add(&schema, 0);
    machine.replicate("20990101000000.000000Z#000000#005#000000");
    machine.record();
    machine.add(&schema, 1);
    machine.record();
    let found = records(&machine);
    let names: Vec<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, [SUFFIX, "cn=far,dc=a", "cn=p1,dc=a"]);
    assert!(found.iter().all(|(time, ..)| time.as_str() < "2099"), "{found:?}");
    assert!(found[1].2.to_string().starts_with("2099"), "{found:?}");
}

/// It would put off the next look for as long as it was ahead.
#[test]
fn a_clock_that_was_ahead_for_a_moment_does_not_end_the_purging() {
    const HOUR: i64 = 3_600;
    let (schema, stores) = (schema(), stores());
    let mut machine = Machine::new(&schema, &stores);
    machine.set_term(1);
    machine.add(&schema, 0);
    machine.record();
    let made = SystemClock.now().seconds();
    let recorder = Arc::clone(&machine.writer.lock().recorders[0]);
    let (source, log) = (Arc::clone(&recorder.source), Arc::clone(&recorder.log));
    let purge = Some(Purge { age: 60, interval: 10, batch: 100 });
    let settings = AccessLogSettings { purge, ..recorder.settings.clone() };
    let recorders = [Arc::new(Recorder { settings, source, log })];
    let mut purging = Purging::default();
    for (today, seconds, expected) in [
        // Nothing is old at first.
        (made, 0, Some(0)),
        (made + 10_000 * HOUR, 10, Some(1)),
        (made + HOUR, 19, None),
        (made + HOUR, 20, Some(1)),
    ] {
        let times = (Timestamp::from_seconds(today), Monotonic::default().plus_seconds(seconds));
        let mut removed = Vec::new();
        let looked =
            purging.slice::<Host>(&machine.log.served, times, (&recorders, 0), &mut removed).unwrap();
        assert_eq!(looked.map(|_| removed.len()), expected, "{today} {seconds}");
    }
}

#[test]
fn a_server_that_has_stood_still_records_nothing_twice() {
    let (schema, stores) = (schema(), stores());
    let [mut one, mut two] = [Machine::new(&schema, &stores), Machine::new(&schema, &stores)];
    one.set_term(1);
    one.add(&schema, 0);
    one.record();
    two.set_term(2);
    two.record();
    (1..4).for_each(|number| two.add(&schema, number));
    two.record();
    check(&two, 4);
    // It believes to write, and sees what the other one has recorded.
    one.database.served.follow_store().unwrap();
    let why = one.round().unwrap_err();
    assert!(why.contains("another server has recorded meanwhile"), "{why}");
    assert_eq!(one.progress.term, None);
    // What failed may have been too much for the engine.
    assert_eq!(
        (one.progress.shrunk, one.progress.share(GROUP_SHARED), one.progress.share(1)),
        (1, GROUP_SHARED / 2, 1)
    );
    check(&one, 4);
    // From then on it knows.
    one.record();
    one.add(&schema, 4);
    one.record();
    check(&one, 5);
    two.database.served.follow_store().unwrap();
    assert!(two.round().is_err());
    two.record();
    check(&two, 5);
}

#[test]
fn two_that_record_at_once_record_each_change_once() {
    const CHANGES: u64 = 120;
    let (schema, stores) = (schema(), stores());
    let mut machines = [Machine::new(&schema, &stores), Machine::new(&schema, &stores)];
    machines.iter().for_each(|machine| machine.set_term(1));
    let writer = Machine::new(&schema, &stores);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for machine in &mut machines {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    // A store without a lease has no end of terms, and a commit of others may come at any time.
                    let followed = machine.database.served.follow_store();
                    let _ = followed.is_ok() && machine.round().is_ok();
                }
            });
        }
        (0..CHANGES).for_each(|number| writer.add(&schema, number));
        over.store(true, Ordering::Release);
    });
    for machine in &mut machines {
        machine.database.served.follow_store().unwrap();
        // What it knew may be old.
        let _ = machine.round();
        machine.record();
    }
    check(&machines[0], CHANGES);
}

#[test]
fn a_server_that_has_followed_less_takes_nothing_back() {
    let (schema, stores) = (schema(), stores());
    let [mut one, two] = [Machine::new(&schema, &stores), Machine::new(&schema, &stores)];
    [&one, &two].iter().for_each(|machine| machine.set_term(1));
    one.add(&schema, 0);
    two.database.served.follow_store().unwrap();
    (1..4).for_each(|number| one.add(&schema, number));
    one.record();
    let recorders = two.writer.lock().recorders.clone();
    assert!(recorders.iter().all(|recorder| recorder.source.joined(&two.writer.own).is_some()));
    let round = two.writer.gather(&mut Progress::default(), &recorders, Vec::new()).unwrap();
    let reached: Vec<LogKey> = round.positions.iter().map(|(_, position)| position.key).collect();
    let recorded: Vec<LogKey> = one.progress.positions.values().map(|position| position.key).collect();
    assert_eq!(reached, recorded);
    assert!(round.recording.records.is_empty());
}
