//! For tests: a database filled without the write path, and searches on it.

use std::sync::{Arc, OnceLock};

use larix_proto::client::{self, Search};
use larix_proto::ldif::{Body, Reader};
use larix_proto::{
    ControlBuf, DerefAliases, FilterBuf, Frame, LdapResult, Message, MessageId, Request, Response, Scope,
    SearchRequest, frame,
};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::memory::MemoryStore;
use larix_store::{Durability, Layered, Snapshot, Store, Transaction, WriteSet};

use crate::access::{AccessPolicy, AccessRule, Subject};
use crate::catalog::CatalogEdit;
use crate::change::prepare::{Change, ChangeKind, check_change};
use crate::controls::RequestControls;
use crate::database::{Database, DatabaseSettings, Limits, Suffix, View, next_instance};
use crate::entry::{Entry, EntryId, EntryReader, EntryView, Placement, encode};
use crate::index::{IndexConfig, keys};
use crate::search::direct::{self, DirectInput};
use crate::search::{Budget, SearchInput, SearchTask, Step};
use crate::tables::{META, TABLES, meta};
use crate::time::{Clock, ManualClock, SeededRandom};
use crate::tree;
use crate::write::AttributeValues;

pub(crate) const SUFFIX: &str = "dc=example,dc=com";

/// Two branches, each with a leaf of the same RDN.
pub(crate) const TWO_BRANCHES: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=a,dc=example,dc=com
objectClass: organizationalUnit
ou: a

dn: ou=b,dc=example,dc=com
objectClass: organizationalUnit
ou: b

dn: cn=x,ou=a,dc=example,dc=com
objectClass: device
cn: x

dn: cn=x,ou=b,dc=example,dc=com
objectClass: device
cn: x
";

pub(crate) fn schema() -> Arc<Schema> {
    static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
    let build = || {
        let mut builder = SchemaBuilder::system();
        for name in ["core", "cosine", "inetorgperson", "nis", "dyngroup"] {
            builder.add_bundled(name).expect(name);
        }
        Arc::new(builder.build())
    };
    Arc::clone(SCHEMA.get_or_init(build))
}

/// `add cn a b`, `delete cn`, `replace sn c`
pub(crate) fn change(text: &str) -> Change {
    let mut words = text.split(' ');
    let kind = match words.next().unwrap() {
        "add" => ChangeKind::Add,
        "delete" => ChangeKind::Delete,
        "replace" => ChangeKind::Replace,
        other => panic!("{other}"),
    };
    let description = words.next().unwrap().to_owned();
    let values = words.map(|word| word.as_bytes().to_vec()).collect();
    check_change(&schema(), kind, AttributeValues { description, values }).unwrap()
}

pub(crate) fn index(lines: &[(&str, &str)]) -> IndexConfig {
    let mut config = IndexConfig::default();
    for (attributes, kinds) in lines {
        config.add_line(&schema(), attributes, Some(kinds)).expect(attributes);
    }
    config
}

pub(crate) fn settings(suffix: &str, index: IndexConfig) -> DatabaseSettings {
    let normal = schema().parse_dn(suffix).expect(suffix);
    let suffixes = vec![Suffix { normal, text: suffix.to_owned() }];
    DatabaseSettings { suffixes, index, max_deref_depth: 15, ..DatabaseSettings::default() }
}

/// A database under test.
pub(crate) struct Fixture<S: Store> {
    pub(crate) database: Database<S>,
    pub(crate) clock: ManualClock,
    pub(crate) subject: Arc<Subject>,
    pub(crate) limits: Option<Limits>,
}

impl Fixture<MemoryStore> {
    pub(crate) fn memory(lines: &[(&str, &str)], ldif: &str) -> Self {
        let fixture = Self::new(MemoryStore::new(&TABLES).expect("a store"), SUFFIX, lines);
        fixture.load(ldif);
        fixture
    }
}

/// Runs a check on every engine.
pub(crate) fn on_every_store(lines: &[(&str, &str)], ldif: &str, check: &impl Checks) {
    check.run(&mut Fixture::memory(lines, ldif));
    let directory = tempfile::tempdir().expect("a directory");
    let options = larix_store::lmdb::LmdbOptions { map_size: 64 << 20, ..Default::default() };
    let store = larix_store::lmdb::LmdbStore::open(directory.path(), &TABLES, &options).expect("LMDB");
    let mut fixture = Fixture::new(store, SUFFIX, lines);
    fixture.load(ldif);
    check.run(&mut fixture);
}

pub(crate) trait Checks {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>);
}

impl<S: Store> Fixture<S> {
    pub(crate) fn new(store: S, suffix: &str, lines: &[(&str, &str)]) -> Self {
        let settings = settings(suffix, index(lines));
        let database =
            Database::open(store, schema(), settings, &SeededRandom::new(1)).expect("an empty database");
        Self { database, clock: ManualClock::default(), subject: Arc::new(Subject::default()), limits: None }
    }

    pub(crate) fn restrict(&self, rules: &[&str]) {
        let rules: Vec<AccessRule> = rules.iter().map(|rule| AccessRule::parse(rule).expect(rule)).collect();
        let policy = AccessPolicy::new(schema(), None, &rules, &[]).expect("rules");
        let settings = DatabaseSettings::clone(&self.database.settings());
        self.reconfigure(DatabaseSettings { policy: Some(Arc::new(policy)), ..settings });
    }

    /// Other settings, published as the writer does it.
    pub(crate) fn reconfigure(&self, settings: DatabaseSettings) {
        self.reconfigure_with(self.database.schema(), settings);
    }

    /// The same with another schema, in which types and classes have the numbers that they had.
    pub(crate) fn reconfigure_with(&self, schema: Arc<Schema>, settings: DatabaseSettings) {
        self.database.settle_indexes(&schema, &settings.index).expect("a commit");
        self.database.publish_configuration(schema, settings);
    }

    pub(crate) fn load(&self, ldif: &str) {
        for record in Reader::new(ldif.as_bytes()) {
            let record = record.expect("LDIF");
            let Body::Content(attributes) = record.body else { panic!("not content: {}", record.dn) };
            let mut entry = Entry::new(record.dn);
            for attribute in attributes {
                let description = schema().describe(&attribute.description).expect(&attribute.description);
                entry.attribute_or_insert(&description).values.extend(attribute.values);
            }
            self.put(&entry);
        }
    }

    /// Stores an entry: a new one, or another form of one that is there.
    pub(crate) fn put(&self, entry: &Entry) {
        self.put_together(&[entry], &mut |_| {});
    }

    /// Stores entries in one commit; `before` sees the database with them right before.
    pub(crate) fn put_together(&self, entries: &[&Entry], before: &mut BeforeCommit<'_, S>) {
        let transaction = self.database.store().transaction().expect("a transaction");
        let (mut set, mut catalog) = (WriteSet::new(), CatalogEdit::new(self.database.catalog()));
        let instance = next_instance();
        for entry in entries {
            let over = Layered::new(&transaction, &set);
            let state = catalog.state(&self.database.state());
            let view = View::over_changes(&over, instance, state).expect("a view");
            let written = written(&view, &mut catalog, entry);
            set.merge(written);
        }
        let over = Layered::new(&transaction, &set);
        let state = catalog.state(&self.database.state());
        before(&View::over_changes(&over, instance, state).expect("a view"));
        catalog.write_new(&mut set);
        transaction.commit(&set, Durability::NoMetaSync).expect("a commit");
        if let Some(catalog) = catalog.committed() {
            self.database.publish_catalog(catalog);
        }
    }

    /// Removes an entry.
    pub(crate) fn delete(&self, dn: &str) {
        let schema = schema();
        let transaction = self.database.store().transaction().expect("a transaction");
        let view = self.database.view(&transaction).expect("a view");
        let resolved = view.resolve(&schema.parse_dn(dn).expect(dn)).expect("no fault").expect("a suffix");
        let id = resolved.id.expect(dn);
        let record = view.record(id).expect("no fault").expect("a record");
        let reader = view.reader(id, &record).expect("a record");
        let mut set = WriteSet::new();
        tree::delete(&mut set, reader.view.parent(), reader.view.normal_rdn());
        tree::bump_generation(&mut set, &transaction).expect("no fault");
        keys::changes(&schema, &view.catalog, Some(&reader), None).expect("no fault").apply(&mut set, id);
        encode::remove(&mut set, &transaction, &reader.view).expect("no fault");
        drop(view);
        transaction.commit(&set, Durability::NoMetaSync).expect("a commit");
    }

    /// An entry as it is stored.
    pub(crate) fn get(&self, dn: &str) -> Option<Entry> {
        let snapshot = self.database.store().snapshot().expect("a snapshot");
        let view = self.database.view(&snapshot).expect("a view");
        let id = view.resolve(&schema().parse_dn(dn).expect(dn)).expect("no fault")?.id?;
        let record = view.record(id).expect("no fault").expect("a record");
        let reader = view.reader(id, &record).expect("a record");
        Some(reader.to_owned(view.dn(&reader.view).expect("a DN"), true).expect("no fault"))
    }

    pub(crate) fn search(&self, spec: &SearchSpec<'_>) -> Answered {
        let mut task = match self.begin(spec) {
            Ok(task) => task,
            Err((result, controls)) => {
                assert_eq!(self.direct(spec), None, "{spec:?}");
                return Answered { result, controls, ..Answered::default() };
            }
        };
        let mut out = Vec::new();
        loop {
            if let Step::Done(result, controls) = self.step(&mut task, &mut out, spec.slice) {
                if let Some((direct, entries)) = self.direct(spec) {
                    // Whichever way a search goes, it has the same answer.
                    assert_eq!(decode(&direct).entries, decode(&out).entries, "{spec:?}");
                    assert_eq!((&result, &out), (&LdapResult::success(), &direct), "{spec:?}");
                    assert_eq!(task.entries(), entries, "{spec:?}");
                }
                return Answered { result, controls, ..decode(&out) };
            }
        }
    }

    /// What a search is answered at once, and with how many entries; `None` if it is none of that kind.
    pub(crate) fn direct(&self, spec: &SearchSpec<'_>) -> Option<(Vec<u8>, u32)> {
        let pdu = pdu(spec);
        let base = schema().parse_dn(spec.base).expect(spec.base);
        let snapshot = self.database.store().snapshot().expect("a snapshot");
        let view = self.database.view(&snapshot).expect("a view");
        let input = DirectInput {
            message: MessageId(7),
            request: &request(&pdu),
            base: &base,
            controls: &spec.controls,
            subject: &self.subject,
            limits: self.limits.as_ref(),
            bytes: usize::MAX,
            clock: &self.clock,
        };
        let mut out = Vec::new();
        let answered = direct::answer(&view, &input, &mut out);
        assert!(answered.is_some() || out.is_empty(), "{spec:?}");
        answered.map(|answered| (out, answered.entries))
    }

    /// One slice of a search, in a snapshot of its own.
    pub(crate) fn step(&self, task: &mut SearchTask, out: &mut Vec<u8>, candidates: u32) -> Step {
        let snapshot = self.database.store().snapshot().expect("a snapshot");
        let view = self.database.view(&snapshot).expect("a view");
        task.step(&view, out, Budget { candidates, bytes: usize::MAX, nanos: u64::MAX, clock: &self.clock })
    }

    pub(crate) fn begin(&self, spec: &SearchSpec<'_>) -> Result<SearchTask, (LdapResult, Vec<ControlBuf>)> {
        let pdu = pdu(spec);
        let snapshot = self.database.store().snapshot().expect("a snapshot");
        let view = self.database.view(&snapshot).expect("a view");
        let input = SearchInput {
            message: MessageId(7),
            request: request(&pdu),
            base: schema().parse_dn(spec.base).expect(spec.base),
            controls: spec.controls.clone(),
            subject: Arc::clone(&self.subject),
            limits: self.limits,
            default_referrals: None,
            cookie_secret: *self.database.cookie_secret(),
            now: self.clock.monotonic(),
        };
        SearchTask::new(&view, input)
    }
}

/// The message of a search.
fn pdu(spec: &SearchSpec<'_>) -> Vec<u8> {
    let filter = FilterBuf::parse(spec.filter).expect(spec.filter);
    let mut pdu = Vec::new();
    let search = Search {
        deref: spec.deref,
        size_limit: spec.size_limit,
        time_limit: spec.time_limit,
        types_only: spec.types_only,
        attributes: spec.attributes,
        ..Search::new(spec.base, spec.scope, filter.as_filter())
    };
    client::search(&mut pdu, MessageId(7), &search, &[]);
    pdu
}

fn request(pdu: &[u8]) -> SearchRequest<'_> {
    let Request::Search(request) = Message::decode(pdu).expect("our own message").request else {
        panic!("not a search")
    };
    request
}

/// Looks at what is about to be committed.
pub(crate) type BeforeCommit<'f, S> = dyn FnMut(&View<'_, Layered<'_, <S as Store>::Transaction<'_>>>) + 'f;

/// What it takes to store an entry.
fn written<V: Snapshot>(view: &View<'_, V>, catalog: &mut CatalogEdit, entry: &Entry) -> WriteSet {
    let schema = schema();
    let dn = schema.parse_dn(&entry.dn).expect(&entry.dn);
    let resolved = view.resolve(&dn).expect("no fault").expect("within the suffix");
    let last = view.snapshot.get(META, meta::LAST_ENTRY_ID).expect("no fault");
    let last = last.and_then(|bytes| EntryId::from_prefix(&bytes)).unwrap_or(EntryId::ROOT);
    let mut set = WriteSet::new();
    let old = resolved.id.map(|id| (id, view.record(id).expect("no fault").expect("a record")));
    let old = old.as_ref().map(|(id, record)| EntryView::parse(*id, record).expect("a record"));
    let is_suffix = Some(&dn) == view.settings.suffixes.first().map(|s| &s.normal);
    let parsed = larix_proto::Dn::parse(&entry.dn).expect("a DN");
    let (text, normal) = if is_suffix {
        (entry.dn.clone(), dn.as_str().to_owned())
    } else {
        assert!(resolved.missing <= 1, "no superior of {}", entry.dn);
        let rdn = parsed.rdns().first().expect("an RDN");
        (schema.pretty_rdn(rdn).expect("an RDN"), dn.rdn().expect("an RDN").as_str().to_owned())
    };
    let id = resolved.id.unwrap_or(EntryId(last.0 + 1));
    let parent = old.map_or(resolved.nearest, |old| old.parent());
    if old.is_none() {
        tree::put(&mut set, parent, normal.as_bytes(), id);
        set.put(META, meta::LAST_ENTRY_ID, id.to_bytes());
    }
    let place = Placement { id, parent, rdn: &text, normal_rdn: normal.as_bytes() };
    encode::store(&mut set, view.snapshot, &schema, catalog, place, old.as_ref(), entry).expect("no fault");
    let reader = old.map(|old| EntryReader::new(view.snapshot, &schema, catalog.catalog(), old));
    let changes = keys::changes(&schema, catalog.catalog(), reader.as_ref(), Some(entry)).expect("no fault");
    changes.apply(&mut set, id);
    set
}

#[derive(Clone, Debug)]
pub(crate) struct SearchSpec<'a> {
    pub(crate) base: &'a str,
    pub(crate) scope: Scope,
    pub(crate) deref: DerefAliases,
    pub(crate) filter: &'a str,
    pub(crate) attributes: &'a [&'a str],
    pub(crate) types_only: bool,
    pub(crate) size_limit: u32,
    pub(crate) time_limit: u32,
    pub(crate) controls: RequestControls,
    /// Candidates a slice.
    pub(crate) slice: u32,
}

impl Default for SearchSpec<'_> {
    fn default() -> Self {
        Self {
            base: SUFFIX,
            scope: Scope::Subtree,
            deref: DerefAliases::Never,
            filter: "(objectClass=*)",
            attributes: &[],
            types_only: false,
            size_limit: 0,
            time_limit: 0,
            controls: RequestControls::default(),
            slice: 1000,
        }
    }
}

/// Descriptions and values.
pub(crate) type Attributes = Vec<(String, Vec<String>)>;

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) result: LdapResult,
    pub(crate) controls: Vec<ControlBuf>,
    pub(crate) entries: Vec<(String, Attributes)>,
    pub(crate) references: Vec<Vec<String>>,
}

impl Default for Answered {
    fn default() -> Self {
        let result = LdapResult::success();
        Self { result, controls: Vec::new(), entries: Vec::new(), references: Vec::new() }
    }
}

impl Answered {
    pub(crate) fn dns(&self) -> Vec<&str> {
        self.entries.iter().map(|(dn, _)| dn.as_str()).collect()
    }

    /// The leaf RDNs' values, for short tables.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.entries
            .iter()
            .map(|(dn, _)| dn.split([',', '+']).next().and_then(|rdn| rdn.split('=').nth(1)).unwrap_or(""))
            .collect()
    }
}

pub(crate) fn decode(mut out: &[u8]) -> Answered {
    let mut answered = Answered::default();
    while !out.is_empty() {
        let Ok(Frame::Complete { len }) = frame(out, usize::MAX) else { panic!("half a message") };
        let (pdu, rest) = out.split_at(len);
        out = rest;
        let message = Response::decode_message(pdu).expect("our own message");
        assert_eq!(message.id, MessageId(7));
        match message.response {
            Response::Entry(entry) => {
                let attributes = entry.attributes.iter().map(|attribute| {
                    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                    (attribute.description.to_owned(), attribute.values.iter().map(text).collect())
                });
                answered.entries.push((entry.dn.to_owned(), attributes.collect()));
            }
            Response::Reference(urls) => answered.references.push(urls.iter().map(str::to_owned).collect()),
            other => panic!("{other:?}"),
        }
    }
    answered
}
