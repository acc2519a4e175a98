//! Changes are shown to the overlay that is in force, however late its thread runs.

use std::sync::mpsc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::database::Suffix;
use larix_engine::order::CommitOrder;
use larix_engine::overlay::committed::{Committed, CommittedBatch, NotTaken};
use larix_engine::overlay::{Interests, Overlay, Overlays};
use larix_engine::tables::TABLES;
use larix_engine::time::SeededRandom;
use larix_engine::write::{AttributeValues, Origin, WriteOperation, WriteRequest, WriterEnvironment};
use larix_engine::{Database, DatabaseSettings, Directory, Frontend};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::memory::MemoryStore;

use super::*;
use crate::clock::SystemClock;
use crate::log::{LogCall, LogSettings};

const SUFFIX: &str = "dc=a";

/// A database of this server alone.
#[derive(Clone, Debug)]
struct Host(Arc<ServedDatabase<MemoryStore>>);

impl OverlayHost for Host {
    type Store = MemoryStore;

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn served(&self) -> Option<&Arc<ServedDatabase<MemoryStore>>> {
        Some(&self.0)
    }

    fn settings(&self) -> Arc<DatabaseSettings> {
        self.0.database().settings()
    }

    fn term(&self) -> Option<u64> {
        Some(0)
    }

    fn on_change(&self, _: Box<dyn Fn() -> bool + Send>) {}
}

/// Writes down whose changes it is shown.
#[derive(Debug, Default)]
struct Witness(Mutex<Vec<String>>);

impl Witness {
    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Overlay for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn interests(&self) -> Interests {
        Interests::COMMITTED
    }

    fn committed(&self) -> Option<&dyn Committed> {
        Some(self)
    }
}

impl Committed for Witness {
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        self.0.lock().unwrap().extend(batch.changes.iter().map(|change| change.record.dn.clone()));
        Ok(())
    }
}

/// A database with a witness of its changes.
struct Scene {
    schema: Arc<Schema>,
    host: Host,
    directory: Directory<MemoryStore>,
    witness: Arc<Witness>,
    log: Log,
}

impl Scene {
    fn new() -> Self {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = Arc::new(builder.build());
        let witness = Arc::<Witness>::default();
        let overlay = Arc::clone(&witness) as Arc<dyn Overlay>;
        let settings = DatabaseSettings {
            suffixes: vec![Suffix { normal: schema.parse_dn(SUFFIX).unwrap(), text: SUFFIX.to_owned() }],
            root_dn: Some(schema.parse_dn("cn=root").unwrap()),
            root_dn_text: "cn=root".to_owned(),
            last_modified: true,
            log: true,
            overlays: Overlays::from(vec![overlay]),
            ..DatabaseSettings::default()
        };
        let random = Arc::new(SeededRandom::new(7));
        let store = MemoryStore::new(&TABLES).unwrap();
        let database = Database::open(store, Arc::clone(&schema), settings, &*random).unwrap();
        let environment = WriterEnvironment {
            clock: Arc::new(SystemClock),
            random,
            order: Arc::new(CommitOrder::new(1)),
            default_referrals: Arc::from([]),
            auxiliary_needs_rule: false,
            index_watch: None,
        };
        let served = Arc::new(ServedDatabase::start(Arc::new(database), environment).unwrap());
        let frontend = Frontend {
            subschema: schema.parse_dn("cn=Subschema").unwrap(),
            schema: Arc::clone(&schema),
            default_search_base: None,
            referrals: Vec::new(),
        };
        let directory = Directory::new(frontend, vec![Arc::clone(&served)]).unwrap();
        let call = LogCall { no_syslog: true, ..LogCall::default() };
        let log = Log::start(LogSettings::silent(), call).unwrap().0;
        Self { schema, host: Host(served), directory, witness, log }
    }

    /// The witness's thread, which does not run.
    fn thread(&self) -> Arc<OverlayThread<Host>> {
        let overlay = Arc::clone(&self.witness) as Arc<dyn Overlay>;
        OverlayThread::new(&self.host, "witness".to_owned(), (overlay, &self.writers()), &self.log)
    }

    fn writers(&self) -> Arc<Writers<MemoryStore>> {
        Arc::new(Writers::of(&[Arc::clone(&self.host.0)]))
    }

    /// Adds the entry of the suffix.
    fn add(&self) {
        let attribute = |description: &str, values: &[&str]| AttributeValues {
            description: description.to_owned(),
            values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        let attributes = vec![
            attribute("objectClass", &["dcObject", "organization"]),
            attribute("dc", &["a"]),
            attribute("o", &["a"]),
        ];
        let root = self.schema.parse_dn("cn=root").unwrap();
        let request = WriteRequest {
            operation: WriteOperation::Add { entry: SUFFIX.to_owned(), attributes },
            subject: Arc::new(Subject::default().bound_as(root, "cn=root")),
            controls: RequestControls::default(),
            origin: Origin::Client,
            passwords: None,
        };
        let (done, ended) = mpsc::channel();
        self.directory.submit(request, Box::new(move |outcome| done.send(outcome.result).unwrap()));
        let result = ended.recv().unwrap();
        assert!(result.is_success(), "{result}");
        // Requesters hear first. Behind this everything counts as answered.
        self.host.0.follow_store().unwrap();
    }
}

#[test]
fn a_new_overlay_is_shown_what_is_changed_before_its_thread_runs() {
    let scene = Scene::new();
    let thread = scene.thread();
    let mut progress = thread.settle_position();
    // A crash would not have it begin elsewhere.
    assert_eq!(scene.host.0.follower_names().unwrap(), ["witness"]);
    scene.add();
    let (overlay, ending) = thread.sleep(&progress);
    thread.work(&mut progress, &*overlay, ending);
    assert_eq!(scene.witness.seen(), [SUFFIX]);
}

#[test]
fn the_threads_are_placed_when_it_is_answered_that_they_are_there() {
    let scene = Scene::new();
    let threads = Threads::default();
    let (_, followed) = threads.follow(std::slice::from_ref(&scene.host), &scene.log);
    followed.unwrap();
    assert_eq!(scene.host.0.follower_names().unwrap(), ["witness"]);
    scene.add();
    threads.finish();
    assert_eq!(scene.witness.seen(), [SUFFIX]);
}

#[test]
fn an_overlay_that_is_exchanged_amid_a_round_takes_no_later_change() {
    let scene = Scene::new();
    let thread = scene.thread();
    let mut progress = thread.settle_position();
    // The round has begun with the one, and reads the log only when there is another.
    let (overlay, ending) = thread.sleep(&progress);
    let next = Arc::<Witness>::default();
    thread.set_overlay(Arc::clone(&next) as Arc<dyn Overlay>, &scene.writers());
    scene.add();
    thread.work(&mut progress, &*overlay, ending);
    assert_eq!((scene.witness.seen(), next.seen()), (Vec::new(), vec![SUFFIX.to_owned()]));
}
