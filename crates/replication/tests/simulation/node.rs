//! One server: an engine over a store in memory that outlives it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use larix_engine::access::Subject;
use larix_engine::check::check;
use larix_engine::csn::Csn;
use larix_engine::database::ProviderSettings;
use larix_engine::log::{self, LogRetention};
use larix_engine::order::CommitOrder;
use larix_engine::replica::{DeleteLimit, DeleteOutcome, ReplicatedBatch, ReplicatedOutcome, Share, UuidSet};
use larix_engine::tables::{ENTRIES, TABLES};
use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_engine::write::{Origin, WriteOperation, WriteRequest, WriterEnvironment};
use larix_engine::{Database, DatabaseSettings, Directory, EntryId, Frontend, Served, Suffix};
use larix_proto::LdapResult;
use larix_replication::digest::{DigestRequest, DigestResponse, Range, Scanner};
use larix_replication::provider::RefreshQueue;
use larix_schema::{Schema, SchemaBuilder};
use larix_store::memory::MemoryStore;
use larix_store::{Direction, KeyRange, Snapshot as _, Store};

pub(crate) const SUFFIX: &str = "dc=example,dc=com";
const ROOT: &str = "cn=Manager,dc=example,dc=com";
/// 2026-01-01T00:00:00Z
pub(crate) const START: Timestamp = Timestamp(1_767_225_600_000_000);

pub(crate) type Memory = Arc<MemoryStore>;
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
    store: Memory,
    directory: Option<Directory<Memory>>,
    keep: LogRetention,
    seed: u64,
    starts: u64,
}

/// Some go over their logs several times, others once.
fn refreshes(id: u16) -> RefreshQueue {
    if id.is_multiple_of(2) { RefreshQueue::keeping(4) } else { RefreshQueue::default() }
}

impl Node {
    pub(crate) fn new(schema: &Arc<Schema>, (id, kind): (u16, Kind), seed: u64, keep: LogRetention) -> Self {
        let mut node = Self {
            id,
            kind,
            schema: Arc::clone(schema),
            clock: Arc::new(ManualClock::new(START)),
            queue: refreshes(id),
            store: Arc::new(MemoryStore::new(&TABLES).unwrap()),
            directory: None,
            keep,
            seed,
            starts: 0,
        };
        node.start();
        node
    }

    /// Ends the server, and starts it again on what it has stored.
    pub(crate) fn start(&mut self) {
        self.directory = None;
        self.queue = refreshes(self.id);
        self.starts += 1;
        let (schema, is_member) = (&self.schema, self.kind == Kind::Member);
        let random = SeededRandom::new(self.seed ^ u64::from(self.id) << 32 ^ self.starts << 48);
        let random = Arc::new(random);
        let settings = DatabaseSettings {
            suffixes: vec![Suffix { normal: schema.parse_dn(SUFFIX).unwrap(), text: SUFFIX.to_owned() }],
            root_dn: Some(schema.parse_dn(ROOT).unwrap()),
            root_dn_text: ROOT.to_owned(),
            last_modified: true,
            log: true,
            log_retention: self.keep,
            shadow: !is_member,
            provider: Some(ProviderSettings::default()),
            ..DatabaseSettings::default()
        };
        let database = Database::open(self.store.clone(), Arc::clone(schema), settings, &*random).unwrap();
        let environment = WriterEnvironment {
            clock: Arc::clone(&self.clock) as _,
            random: random as _,
            order: Arc::new(CommitOrder::new(self.id)),
            default_referrals: Arc::from([]),
            auxiliary_needs_rule: false,
            index_watch: None,
        };
        let served = Arc::new(Served::start(Arc::new(database), environment).unwrap());
        let frontend = Frontend {
            subschema: schema.parse_dn("cn=Subschema").unwrap(),
            schema: Arc::clone(schema),
            default_search_base: None,
            referrals: Vec::new(),
        };
        self.directory = Some(Directory::new(frontend, vec![served]).unwrap());
    }

    pub(crate) fn served(&self) -> &Arc<Served<Memory>> {
        &self.directory.as_ref().unwrap().databases()[0]
    }

    pub(crate) fn database(&self) -> &Arc<Database<Memory>> {
        self.served().database()
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
        self.served().replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
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
        self.served().delete_absent(share, present, limit, done);
        receiver.recv().unwrap()
    }

    pub(crate) fn csns(&self) -> Vec<Csn> {
        log::context_csns(&self.database().store().snapshot().unwrap()).unwrap()
    }

    /// What tells whether anything was written.
    pub(crate) fn state(&self) -> (u64, Vec<Csn>) {
        let snapshot = self.database().store().snapshot().unwrap();
        let last = log::last_sequence(&snapshot, self.id).unwrap();
        (last, log::context_csns(&snapshot).unwrap())
    }

    /// All entries but glue, by entryUUID.
    pub(crate) fn content(&self) -> BTreeMap<String, Shown> {
        let snapshot = self.database().store().snapshot().unwrap();
        let view = self.database().view(&snapshot).unwrap();
        let mut all = BTreeMap::new();
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
        all
    }

    /// The digests of the whole, as `larix replica check` asks for them.
    pub(crate) fn digests(&self) -> DigestResponse {
        let request =
            DigestRequest { base: SUFFIX.to_owned(), without: Vec::new(), ranges: vec![(Range::ALL, 8)] };
        let mut scanner = Scanner::new(&request, self.schema.parse_dn(SUFFIX).unwrap());
        scanner.read(self.database(), &mut || ControlFlow::Continue(())).unwrap();
        scanner.finish()
    }

    /// What a check of the database finds.
    pub(crate) fn findings(&self) -> Vec<String> {
        let snapshot = self.database().store().snapshot().unwrap();
        let view = self.database().view(&snapshot).unwrap();
        let mut findings = Vec::new();
        check(&view, &mut |finding| findings.push(finding.to_string())).unwrap();
        findings
    }
}
