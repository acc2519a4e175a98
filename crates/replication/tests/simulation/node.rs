//! One server: an engine over stores in memory that outlive it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use larix_engine::access::Subject;
use larix_engine::check::check;
use larix_engine::csn::Csn;
use larix_engine::database::ProviderSettings;
use larix_engine::log::{self, CsnVector, LogReader, LogRetention};
use larix_engine::order::CommitOrder;
use larix_engine::replica::{DeleteLimit, DeleteOutcome, ReplicatedBatch, ReplicatedOutcome, Share, UuidSet};
use larix_engine::tables::{ENTRIES, TABLES};
use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_engine::write::{Origin, WriteOperation, WriteRequest, WriterEnvironment};
use larix_engine::{Database, DatabaseSettings, Directory, EntryId, Frontend, ServedDatabase, Suffix};
use larix_proto::LdapResult;
use larix_replication::digest::{DigestRequest, DigestResponse, Range, Scanner};
use larix_replication::provider::RefreshQueue;
use larix_schema::{NormalDn, Schema, SchemaBuilder};
use larix_store::fault::{FaultPlan, FaultStore};
use larix_store::memory::MemoryStore;
use larix_store::{Direction, KeyRange, Snapshot as _, Store as _};

use crate::log::LOG;
use crate::random::Random;
use crate::setup::Setup;

pub(crate) const SUFFIX: &str = "dc=example,dc=com";
/// What is a database of its own where databases are glued.
const GLUED: &str = "ou=b,dc=example,dc=com";
const ROOT: &str = "cn=Manager,dc=example,dc=com";
/// 2026-01-01T00:00:00Z
pub(crate) const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// What was committed and not synced is lost when the machine dies.
pub(crate) type Memory = Arc<FaultStore<MemoryStore>>;
/// What an entry looks like: DN, attributes.
pub(crate) type Shown = (String, BTreeMap<String, BTreeSet<String>>);

pub(crate) fn schema() -> Arc<Schema> {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson"] {
        builder.add_bundled(name).unwrap();
    }
    Arc::new(builder.build())
}

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It takes changes.
    Member,
    /// It has what its provider has.
    Shadow,
    /// It has a part of that.
    Part,
}

pub(crate) struct Node {
    pub(crate) id: u16,
    pub(crate) kind: Kind,
    pub(crate) schema: Arc<Schema>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) queue: RefreshQueue,
    setup: Setup,
    stores: Vec<Memory>,
    /// One for each store, that of the suffix first.
    served: Vec<Arc<ServedDatabase<Memory>>>,
    /// Store and database of the access log.
    log: Option<(Memory, Option<Arc<ServedDatabase<Memory>>>)>,
    /// The reader that follows the change log for the access log.
    pub(crate) log_reader: RefCell<Option<Arc<LogReader>>>,
    directory: Option<Directory<Memory>>,
    /// It follows access logs of others: its configuration says that it keeps states.
    follows_logs: bool,
    keep: LogRetention,
    seed: u64,
    starts: u64,
}

/// Some go over their logs several times, others once.
fn refreshes(id: u16) -> RefreshQueue {
    if id.is_multiple_of(2) { RefreshQueue::keeping(4) } else { RefreshQueue::default() }
}

fn empty() -> MemoryStore {
    MemoryStore::new(&TABLES).unwrap()
}

fn new_store() -> Memory {
    Arc::new(FaultStore::volatile(empty(), FaultPlan::new()))
}

impl Node {
    pub(crate) fn new(
        schema: &Arc<Schema>,
        (id, kind): (u16, Kind),
        setup: Setup,
        seed: u64,
        keep: LogRetention,
    ) -> Self {
        let databases = if setup.glued && kind == Kind::Member { 2 } else { 1 };
        let mut node = Self {
            id,
            kind,
            schema: Arc::clone(schema),
            clock: Arc::new(ManualClock::new(START)),
            queue: refreshes(id),
            setup,
            stores: (0..databases).map(|_| new_store()).collect(),
            served: Vec::new(),
            log: (setup.delta && kind == Kind::Member).then(|| (new_store(), None)),
            log_reader: RefCell::default(),
            directory: None,
            // Where lines differ each says it.
            follows_logs: setup.delta
                && !setup.mixed
                && (kind == Kind::Shadow || kind == Kind::Member && setup.delta_ring),
            keep,
            seed,
            starts: 0,
        };
        node.start();
        node
    }

    /// Ends the server, and starts it again on what it has stored.
    pub(crate) fn start(&mut self) {
        self.end();
        self.queue = refreshes(self.id);
        self.starts += 1;
        let random = SeededRandom::new(self.seed ^ u64::from(self.id) << 32 ^ self.starts << 48);
        let random = Arc::new(random);
        let order = Arc::new(CommitOrder::new(self.id));
        let open = |store: &Memory, suffix: &str, order: &Arc<CommitOrder>| {
            let (schema, settings) = (Arc::clone(&self.schema), self.settings(suffix));
            let database = Database::open(Arc::clone(store), schema, settings, &*random).unwrap();
            let environment = WriterEnvironment {
                clock: Arc::clone(&self.clock) as _,
                random: Arc::clone(&random) as _,
                order: Arc::clone(order),
                default_referrals: Arc::from([]),
                auxiliary_needs_rule: false,
                index_watch: None,
            };
            Arc::new(ServedDatabase::start(Arc::new(database), environment).unwrap())
        };
        let stores = self.stores.iter().zip([SUFFIX, GLUED]);
        let served: Vec<_> = stores.map(|(store, suffix)| open(store, suffix, &order)).collect();
        let own = Arc::new(CommitOrder::new(self.id));
        let log = self.log.as_ref().map(|(store, _)| (Arc::clone(store), Some(open(store, LOG, &own))));
        (self.served, self.log) = (served, log);
        let frontend = Frontend {
            subschema: self.schema.parse_dn("cn=Subschema").unwrap(),
            schema: Arc::clone(&self.schema),
            default_search_base: None,
            referrals: Vec::new(),
        };
        self.directory = Some(Directory::new(frontend, self.served.clone()).unwrap());
        self.keep_for_log();
    }

    fn end(&mut self) {
        self.directory = None;
        self.served.clear();
        self.log.iter_mut().for_each(|(_, served)| *served = None);
    }

    pub(crate) fn access_log(&self) -> Option<&Arc<ServedDatabase<Memory>>> {
        self.log.as_ref()?.1.as_ref()
    }

    /// The machine dies and comes back. Answers how many commits it has lost.
    pub(crate) fn crash(&mut self, random: &mut Random) -> usize {
        self.end();
        let mut lost = 0;
        for store in &mut self.stores {
            let less = random.below(store.at_risk() + 1);
            *store = Arc::new(store.after_loss(less, empty()).unwrap());
            lost += less;
        }
        self.start();
        lost
    }

    fn settings(&self, suffix: &str) -> DatabaseSettings {
        let schema = &self.schema;
        DatabaseSettings {
            suffixes: vec![Suffix { normal: schema.parse_dn(suffix).unwrap(), text: suffix.to_owned() }],
            subordinate: suffix == GLUED,
            root_dn: Some(schema.parse_dn(ROOT).unwrap()),
            root_dn_text: ROOT.to_owned(),
            last_modified: true,
            log: true,
            log_retention: self.keep,
            shadow: self.kind != Kind::Member,
            value_conflicts: self.setup.values,
            merges_records: self.follows_logs && suffix != LOG,
            provider: Some(ProviderSettings::default()),
            ..DatabaseSettings::default()
        }
    }

    /// A line of its configuration is one of an access log.
    pub(crate) fn follow_logs(&mut self) {
        if !std::mem::replace(&mut self.follows_logs, true) {
            self.start();
        }
    }

    /// Whether the node follows access logs, or a provider that keeps states.
    pub(crate) fn merges_records(&self) -> bool {
        self.database().current_settings().merges_records
    }

    /// The provider keeps states of entries.
    pub(crate) fn keep_states(&self) {
        if !self.database().current_settings().keeps_states() {
            self.served.iter().for_each(|served| assert!(served.keep_states().unwrap()));
        }
    }

    /// The database that takes what is replicated.
    pub(crate) fn database(&self) -> &Arc<Database<Memory>> {
        self.served[0].database()
    }

    /// Where a search goes on, and its base there.
    pub(crate) fn parts(&self, base: &str) -> Vec<(&Arc<ServedDatabase<Memory>>, NormalDn)> {
        let dn = |base: &str| self.schema.parse_dn(base).unwrap();
        match base {
            LOG => self.access_log().into_iter().map(|served| (served, dn(LOG))).collect(),
            _ => self.served.iter().zip([SUFFIX, GLUED].map(dn)).collect(),
        }
    }

    pub(crate) fn root(&self) -> Subject {
        Subject::default().bound_as(self.schema.parse_dn(ROOT).unwrap(), ROOT)
    }

    pub(crate) fn change(&self, operation: WriteOperation) -> LdapResult {
        let request = WriteRequest {
            operation,
            subject: Arc::new(self.root()),
            controls: Default::default(),
            origin: Origin::Client,
            passwords: None,
        };
        let (sender, receiver) = mpsc::channel();
        let directory = self.directory.as_ref().unwrap();
        directory.submit(request, Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv().unwrap().result
    }

    pub(crate) fn replicate(&self, batch: ReplicatedBatch) -> ReplicatedOutcome {
        let (sender, receiver) = mpsc::channel();
        self.served[0].replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv().unwrap()
    }

    pub(crate) fn delete_absent(
        &self,
        share: &Share,
        present: &UuidSet,
        limit: DeleteLimit,
    ) -> DeleteOutcome {
        let (sender, receiver) = mpsc::channel();
        let done = Box::new(move |outcome| sender.send(outcome).unwrap());
        self.served[0].delete_absent(share, present, limit, done);
        receiver.recv().unwrap()
    }

    pub(crate) fn csns(&self) -> Vec<Csn> {
        self.state().1
    }

    /// What tells whether anything was written.
    pub(crate) fn state(&self) -> (u64, Vec<Csn>) {
        let (mut last, mut csns) = (0, CsnVector::default());
        for served in &self.served {
            let snapshot = served.database().store().snapshot().unwrap();
            last += log::last_sequence(&snapshot, self.id).unwrap();
            for csn in log::context_csns(&snapshot).unwrap() {
                csns.note(csn);
            }
        }
        (last, csns.as_slice().to_vec())
    }

    /// All entries but glue, by entryUUID.
    pub(crate) fn content(&self) -> BTreeMap<String, Shown> {
        let mut all = BTreeMap::new();
        for served in &self.served {
            self.content_of(served.database(), &mut all);
        }
        all
    }

    fn content_of(&self, database: &Database<Memory>, all: &mut BTreeMap<String, Shown>) {
        let snapshot = database.store().snapshot().unwrap();
        let view = database.view(&snapshot).unwrap();
        for row in snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).unwrap() {
            let (key, _) = row.unwrap();
            let id = EntryId(u64::from_be_bytes(key.as_ref().try_into().unwrap()));
            let record = view.record(id).unwrap().unwrap();
            let reader = view.reader(id, &record).unwrap();
            let entry = reader.to_owned(view.dn(&reader.view).unwrap(), true).unwrap();
            let mut attributes = BTreeMap::new();
            for attribute in &entry.attributes {
                let values: BTreeSet<String> =
                    attribute.values.iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
                attributes.insert(attribute.description.to_text(&self.schema), values);
            }
            let Some(uuid) = attributes.get("entryUUID").and_then(|values| values.first()).cloned() else {
                assert!(attributes["objectClass"].contains("glue"), "{entry:?}");
                continue;
            };
            assert!(all.insert(uuid, (entry.dn, attributes)).is_none());
        }
    }

    /// The digests of the whole, as `larix replica check` asks for them.
    pub(crate) fn digests(&self) -> DigestResponse {
        let request =
            DigestRequest { base: SUFFIX.to_owned(), without: Vec::new(), ranges: vec![(Range::ALL, 8)] };
        let mut scanner = Scanner::new(&request, self.schema.parse_dn(SUFFIX).unwrap(), &[]);
        for served in &self.served {
            scanner.read(served.database(), &mut || ControlFlow::Continue(())).unwrap();
        }
        scanner.finish()
    }

    /// What a check of the databases finds.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for served in &self.served {
            let snapshot = served.database().store().snapshot().unwrap();
            let view = served.database().view(&snapshot).unwrap();
            check(&view, &mut |finding| findings.push(finding.to_string())).unwrap();
        }
        findings
    }
}
