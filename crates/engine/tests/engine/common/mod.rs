//! A directory in memory, and changes written as LDIF.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use larix_engine::access::{AccessPolicy, AccessRule, Subject};
use larix_engine::check::{CheckReport, check};
use larix_engine::controls::{OperationKind, RequestControls};
use larix_engine::log::{self, LogKey};
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::time::{Clock, ManualClock, Monotonic, RandomSource, SeededRandom, Timestamp};
use larix_engine::write::{
    AttributeValues, Modification, Origin, WriteOperation, WriteOutcome, WriteRequest, WriterEnvironment,
};
use larix_engine::writer::Reconfiguration;
use larix_engine::{Database, DatabaseSettings, Directory, Entry, Frontend, ServedDatabase, Suffix};
use larix_proto::ldif::{Body, Change, LdifAttribute, Reader, Record};
use larix_proto::{ControlBuf, Controls};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::Store;
use larix_store::memory::MemoryStore;

pub(crate) const SUFFIX: &str = "dc=example,dc=com";
pub(crate) const ROOT: &str = "cn=Manager,dc=example,dc=com";
/// 2026-01-01T00:00:00Z
pub(crate) const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// Core, cosine, inetorgperson and nis, and what a test adds.
pub(crate) fn schema(extra: &str) -> Arc<Schema> {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        builder.add_bundled(name).unwrap();
    }
    builder.add_schema_text(extra, "test").unwrap();
    Arc::new(builder.build())
}

pub(crate) fn suffix(schema: &Schema, text: &str) -> Suffix {
    Suffix { normal: schema.parse_dn(text).unwrap(), text: text.to_owned() }
}

pub(crate) fn settings(schema: &Schema) -> DatabaseSettings {
    DatabaseSettings {
        suffixes: vec![suffix(schema, SUFFIX)],
        root_dn: Some(schema.parse_dn(ROOT).unwrap()),
        root_dn_text: ROOT.to_owned(),
        root_password: Some(b"secret".to_vec()),
        last_modified: true,
        log: true,
        ..DatabaseSettings::default()
    }
}

/// Checks a database: nothing is found.
pub(crate) fn assert_sound<S: Store>(database: &Database<S>, context: &str) -> CheckReport {
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    let mut findings = Vec::new();
    let checked = check(&view, &mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{context}: {findings:#?}");
    checked
}

pub(crate) fn policy(schema: &Arc<Schema>, rules: &[&str]) -> Arc<AccessPolicy> {
    let rules: Vec<AccessRule> = rules.iter().map(|line| AccessRule::parse(line).unwrap()).collect();
    let root = Some(schema.parse_dn(ROOT).unwrap());
    Arc::new(AccessPolicy::new(Arc::clone(schema), root, &rules, &[]).unwrap())
}

/// Every look takes time, so that slices of work on indexes are as short as can be; no time passes for CSNs.
#[derive(Debug, Default)]
pub(crate) struct SteppingClock(AtomicU64);

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000)
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(300_000, Ordering::Relaxed))
    }
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Debug)]
pub(crate) struct Fixture<S: Store> {
    pub(crate) directory: Directory<S>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) subject: Arc<Subject>,
    /// Of the databases' writers.
    pub(crate) environments: Vec<WriterEnvironment>,
}

pub(crate) fn memory() -> MemoryStore {
    MemoryStore::new(&TABLES).unwrap()
}

/// A writer that leaves incomplete indexes as they are.
pub(crate) fn environment(
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    server_id: u16,
) -> WriterEnvironment {
    WriterEnvironment {
        clock,
        random,
        order: Arc::new(CommitOrder::new(server_id)),
        default_referrals: Arc::from([]),
        auxiliary_needs_rule: false,
        index_watch: None,
    }
}

pub(crate) fn directory<S: Store>(schema: &Arc<Schema>, served: Vec<Arc<ServedDatabase<S>>>) -> Directory<S> {
    let frontend = Frontend {
        subschema: schema.parse_dn("cn=Subschema").unwrap(),
        schema: Arc::clone(schema),
        default_search_base: None,
        referrals: Vec::new(),
    };
    Directory::new(frontend, served).unwrap()
}

impl Fixture<MemoryStore> {
    pub(crate) fn new() -> Self {
        let schema = schema("");
        let settings = settings(&schema);
        Self::of(schema, vec![(memory(), settings)])
    }
}

impl<S: Store> Fixture<S> {
    pub(crate) fn of(schema: Arc<Schema>, databases: Vec<(S, DatabaseSettings)>) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let random = Arc::new(SeededRandom::new(7));
        let environments: Vec<_> = databases
            .iter()
            .map(|_| environment(Arc::clone(&clock) as _, Arc::clone(&random) as _, 1))
            .collect();
        let served = databases
            .into_iter()
            .zip(&environments)
            .map(|((store, settings), environment)| {
                let database = Database::open(store, Arc::clone(&schema), settings, &*random).unwrap();
                Arc::new(ServedDatabase::start(Arc::new(database), environment.clone()).unwrap())
            })
            .collect();
        let subject = Arc::new(Subject::default().bound_as(schema.parse_dn(ROOT).unwrap(), ROOT));
        Self { directory: directory(&schema, served), schema, clock, subject, environments }
    }

    pub(crate) fn database(&self) -> &Arc<Database<S>> {
        self.directory.databases()[0].database()
    }

    /// Has the first database follow other settings, as a server does.
    pub(crate) fn reconfigure(&self, settings: DatabaseSettings) {
        let (served, schema) = (&self.directory.databases()[0], Arc::clone(&self.schema));
        served.forget_indexes(Arc::clone(&schema), settings.index.clone()).unwrap();
        served.reconfigure(Reconfiguration { schema, settings, environment: self.environments[0].clone() });
    }

    /// The server gets another ID while it runs.
    pub(crate) fn change_server_id(&mut self, server_id: u16) {
        let (clock, random) = (Arc::clone(&self.clock), Arc::new(SeededRandom::new(8)));
        self.environments[0] = environment(clock, random, server_id);
        self.reconfigure(DatabaseSettings::clone(&self.database().current_settings()));
    }

    /// The same directory, asked by somebody else; empty is anonymous.
    pub(crate) fn bind(&mut self, dn: &str) {
        let subject = Subject::default();
        self.subject = Arc::new(if dn.is_empty() {
            subject
        } else {
            subject.bound_as(self.schema.parse_dn(dn).unwrap(), dn)
        });
    }

    /// Carries out one change and waits for its answer.
    pub(crate) fn submit(&self, request: WriteRequest) -> WriteOutcome {
        let (sender, receiver) = mpsc::channel();
        self.directory.submit(request, Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv().unwrap()
    }

    pub(crate) fn request(&self, operation: WriteOperation, controls: &[ControlBuf]) -> WriteRequest {
        let kind = match operation {
            WriteOperation::Add { .. } => OperationKind::Add,
            WriteOperation::Modify { .. } => OperationKind::Modify,
            WriteOperation::Delete { .. } => OperationKind::Delete,
            WriteOperation::ModifyDn { .. } => OperationKind::ModifyDn,
        };
        let mut ber = Vec::new();
        controls.iter().for_each(|control| control.encode(&mut ber));
        let controls = RequestControls::parse(Controls::check(&ber).unwrap(), kind).unwrap();
        WriteRequest {
            operation,
            subject: Arc::clone(&self.subject),
            controls,
            origin: Origin::Client,
            passwords: None,
        }
    }

    /// Carries out change records; the answer of the last, as `68` or `65 text` or `32 <matched>`.
    pub(crate) fn change(&self, ldif: &str) -> String {
        let mut last = String::new();
        for record in records(ldif) {
            let (operation, controls) = operation(record);
            last = describe(&self.submit(self.request(operation, &controls)));
        }
        last
    }

    /// Carries out change records that must succeed.
    pub(crate) fn apply(&self, ldif: &str) {
        for record in records(ldif) {
            let dn = record.dn.clone();
            let (operation, controls) = operation(record);
            let answer = describe(&self.submit(self.request(operation, &controls)));
            assert_eq!(answer, "0", "{dn}");
        }
    }

    /// A stored entry with everything in it.
    pub(crate) fn entry(&self, dn: &str) -> Option<Entry> {
        let dn = self.schema.parse_dn(dn).unwrap();
        let database = self.directory.select(&dn)?.database();
        let snapshot = database.store().snapshot().unwrap();
        let view = database.view(&snapshot).unwrap();
        let id = view.resolve(&dn).unwrap()?.id?;
        let record = view.record(id).unwrap().unwrap();
        let reader = view.reader(id, &record).unwrap();
        Some(reader.to_owned(view.dn(&reader.view).unwrap(), true).unwrap())
    }

    /// The entry as `dn: ...` and `name: value` lines in stored order, without the attributes that each change renews.
    pub(crate) fn show(&self, dn: &str) -> String {
        const VOLATILE: [&str; 7] = [
            "structuralObjectClass",
            "entryUUID",
            "entryCSN",
            "creatorsName",
            "createTimestamp",
            "modifiersName",
            "modifyTimestamp",
        ];
        let Some(entry) = self.entry(dn) else { return "none".to_owned() };
        let mut out = format!("dn: {}\n", entry.dn);
        for attribute in &entry.attributes {
            let name = attribute.description.to_text(&self.schema);
            if VOLATILE.contains(&name.as_str()) {
                continue;
            }
            for value in &attribute.values {
                writeln!(out, "{name}: {}", String::from_utf8_lossy(value)).unwrap();
            }
        }
        out
    }

    pub(crate) fn value(&self, dn: &str, name: &str) -> Option<String> {
        let entry = self.entry(dn)?;
        let attribute = self.schema.attribute_type(name).unwrap().id;
        entry.values(attribute).first().map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

pub(crate) fn describe(outcome: &WriteOutcome) -> String {
    let result = &outcome.result;
    let mut text = result.code.0.to_string();
    if !result.diagnostic.is_empty() {
        write!(text, " {}", result.diagnostic).unwrap();
    }
    if !result.matched_dn.is_empty() {
        write!(text, " <{}>", result.matched_dn).unwrap();
    }
    if !result.referrals.is_empty() {
        write!(text, " -> {}", result.referrals.join(" ")).unwrap();
    }
    text
}

/// The records of an LDIF text whose lines may be indented as the test is.
pub(crate) fn records(ldif: &str) -> Vec<Record> {
    let text: String =
        ldif.trim_start_matches('\n').lines().map(|line| format!("{}\n", line.trim_start())).collect();
    let mut reader = Reader::new(text.as_bytes());
    let mut records = Vec::new();
    while let Some(record) = reader.read_record().unwrap() {
        records.push(record);
    }
    records
}

pub(crate) fn operation(record: Record) -> (WriteOperation, Vec<ControlBuf>) {
    let attribute = |a: LdifAttribute| AttributeValues { description: a.description, values: a.values };
    let add = |dn: String, attributes: Vec<LdifAttribute>| WriteOperation::Add {
        entry: dn,
        attributes: attributes.into_iter().map(attribute).collect(),
    };
    let (controls, change) = match record.body {
        Body::Content(attributes) => return (add(record.dn, attributes), Vec::new()),
        Body::Change { controls, change } => (controls, change),
    };
    let operation = match change {
        Change::Add(attributes) => add(record.dn, attributes),
        Change::Delete => WriteOperation::Delete { entry: record.dn },
        Change::Modify(modifications) => WriteOperation::Modify {
            object: record.dn,
            changes: modifications
                .into_iter()
                .map(|m| Modification {
                    operation: m.operation,
                    attribute: AttributeValues { description: m.description, values: m.values },
                })
                .collect(),
        },
        Change::ModifyDn { new_rdn, delete_old_rdn, new_superior } => {
            WriteOperation::ModifyDn { entry: record.dn, new_rdn, delete_old_rdn, new_superior }
        }
    };
    (operation, controls)
}

/// A small tree to change.
pub(crate) const TREE: &str = "
    dn: dc=example,dc=com
    objectClass: organization
    objectClass: dcObject
    dc: example
    o: Example

    dn: ou=People,dc=example,dc=com
    objectClass: organizationalUnit
    ou: People

    dn: ou=Groups,dc=example,dc=com
    objectClass: organizationalUnit
    ou: Groups

    dn: cn=Ann Lee,ou=People,dc=example,dc=com
    objectClass: inetOrgPerson
    cn: Ann Lee
    sn: Lee
    mail: ann@example.com

    dn: cn=Bo,ou=People,dc=example,dc=com
    objectClass: inetOrgPerson
    cn: Bo
    sn: Bo
";

/// What is logged, as it is stored.
pub(crate) fn logged(fixture: &Fixture<MemoryStore>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let snapshot = fixture.database().store().snapshot().unwrap();
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: 0 }, &mut |_, _, stored| {
        all.push(stored.to_vec());
        true
    })
    .unwrap();
    all
}
