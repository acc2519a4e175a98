//! Digests that are kept from question to question are those that a reading of everything makes.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use larix_engine::csn::Csn;
use larix_engine::order::CommitOrder;
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange};
use larix_engine::tables::TABLES;
use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_engine::write::{AttributeValues, WriterEnvironment};
use larix_engine::writer::Reconfiguration;
use larix_engine::{Database, DatabaseSettings, ServedDatabase, Suffix};
use larix_replication::digest::{Content, DigestRequest, DigestResponse, Range, Scanner};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::memory::MemoryStore;
use uuid::Uuid;

const SUFFIX: &str = "dc=example,dc=com";
const START: Timestamp = Timestamp(1_767_225_600_000_000);

struct Site {
    served: ServedDatabase<MemoryStore>,
    schema: Arc<Schema>,
    environment: WriterEnvironment,
    number: i64,
}

impl Site {
    fn new(log: bool) -> Self {
        let mut builder = SchemaBuilder::system();
        ["core", "cosine"].into_iter().for_each(|name| {
            builder.add_bundled(name).unwrap();
        });
        let schema = Arc::new(builder.build());
        let suffix = Suffix { normal: schema.parse_dn(SUFFIX).unwrap(), text: SUFFIX.to_owned() };
        let settings = DatabaseSettings {
            suffixes: vec![suffix],
            last_modified: true,
            log,
            ..DatabaseSettings::default()
        };
        let random = Arc::new(SeededRandom::new(3));
        let store = MemoryStore::new(&TABLES).unwrap();
        let database = Database::open(store, Arc::clone(&schema), settings, &*random).unwrap();
        let environment = WriterEnvironment {
            clock: Arc::new(ManualClock::new(START)),
            random,
            order: Arc::new(CommitOrder::new(1)),
            default_referrals: Arc::from([]),
            auxiliary_needs_rule: false,
            index_watch: None,
        };
        let served = ServedDatabase::start(Arc::new(database), environment.clone()).unwrap();
        Self { served, schema, environment, number: 0 }
    }

    /// The server gets another ID while it runs.
    fn change_server_id(&mut self, server_id: u16) {
        self.environment.order = Arc::new(CommitOrder::new(server_id));
        self.reconfigure(DatabaseSettings::clone(&self.served.database().settings()));
    }

    /// Has the database follow other settings, as a server does.
    fn reconfigure(&self, settings: DatabaseSettings) {
        let (schema, environment) = (Arc::clone(&self.schema), self.environment.clone());
        self.served.reconfigure(Reconfiguration { schema, settings, environment });
    }

    fn apply(&mut self, change: impl FnOnce(Csn) -> ReplicatedChange) {
        self.number += 1;
        let time = Timestamp(START.0 + self.number * 1_000_000);
        let changes = vec![change(Csn { time, count: 0, server_id: 7, modification: 0 })];
        let (sender, receiver) = mpsc::channel();
        let batch = ReplicatedBatch { changes, ..ReplicatedBatch::default() };
        self.served.replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
        assert!(receiver.recv().unwrap().result.is_success());
    }

    fn put(&mut self, number: u128, dn: &str, text: &str) {
        let (name, own) = dn.split(',').next().unwrap().split_once('=').unwrap();
        let class = match name {
            "dc" => "domain",
            "ou" => "organizationalUnit",
            _ => "device",
        };
        let value = |name: &str, value: &str| AttributeValues {
            description: name.to_owned(),
            values: vec![value.as_bytes().to_vec()],
        };
        self.apply(|csn| ReplicatedChange::Put {
            entry_uuid: Uuid::from_u128(number),
            dn: dn.to_owned(),
            attributes: vec![
                value("objectClass", class),
                value(name, own),
                value("description", text),
                value("entryCSN", &csn.to_string()),
            ],
            state: None,
            place: None,
        });
    }

    fn delete(&mut self, number: u128) {
        self.apply(|csn| ReplicatedChange::Delete { entry_uuid: Uuid::from_u128(number), csn: Some(csn) });
    }

    fn ask(&self, ranges: Vec<(Range, u32)>, without: &[String]) -> DigestResponse {
        let request = DigestRequest { base: SUFFIX.to_owned(), without: without.to_vec(), ranges };
        let mut scanner = Scanner::new(&request, self.schema.parse_dn(SUFFIX).unwrap(), &[]);
        scanner.read(self.served.database(), &mut || ControlFlow::Continue(())).unwrap();
        scanner.finish()
    }

    /// Asks for all, and for parts, as is kept and as it stands. Answers how many entries there are.
    fn check(&self) -> u64 {
        // What is left out makes it read everything.
        let nothing = ["noAttributeOfThisName".to_owned()];
        let parts: Vec<_> = (0..16).map(|part| (Range::ALL.part(part, 4), 2)).collect();
        let mut entries = 0;
        for ranges in [vec![(Range::ALL, 12)], parts, vec![(Range::ALL, 0)]] {
            let kept = self.ask(ranges.clone(), &[]);
            assert_eq!(kept, self.ask(ranges, &nothing));
            entries = kept.entries;
        }
        entries
    }
}

#[test]
fn kept_digests_are_those_of_what_is_there() {
    for log in [true, false] {
        let mut site = Site::new(log);
        assert_eq!(site.check(), 0);
        site.put(1, SUFFIX, "the suffix");
        for unit in ["people", "things"] {
            site.put(unit.len() as u128 * 1_000, &format!("ou={unit},{SUFFIX}"), "a unit");
        }
        for number in 0..2_300 {
            site.put(10_000 + number, &format!("cn=d{number},ou=people,{SUFFIX}"), "one");
        }
        // The units have one entryUUID: the first has become the other, and glue has no part in it.
        assert_eq!(site.check(), 2_302);
        assert!(matches!(site.ask(vec![(Range::ALL.part(3, 4), 2)], &[]).ranges[..], [Content::Listed(_)]));
        for number in 0..40 {
            site.put(10_000 + number, &format!("cn=d{number},ou=people,{SUFFIX}"), "two");
            site.delete(10_100 + number);
            site.put(10_200 + number, &format!("cn=m{number},ou=people,{SUFFIX}"), "renamed");
        }
        site.check();
        // A unit that goes away with entries below it: another one stands in its stead.
        site.delete(6_000);
        site.put(20_000, &format!("ou=people,{SUFFIX}"), "another unit");
        site.check();
        site.put(20_000, &format!("ou=folk,{SUFFIX}"), "moved with all of them");
        site.check();
    }
}

#[test]
fn more_changes_than_the_log_keeps_are_read_anew() {
    let mut site = Site::new(true);
    site.put(1, SUFFIX, "the suffix");
    site.check();
    let mut settings = DatabaseSettings::clone(&site.served.database().settings());
    // Nothing is kept: the records of the next changes end the history.
    settings.log = false;
    site.reconfigure(settings.clone());
    site.put(2, &format!("ou=people,{SUFFIX}"), "not logged");
    site.check();
    settings.log = true;
    site.reconfigure(settings);
    site.put(3, &format!("ou=things,{SUFFIX}"), "logged again");
    assert_eq!(site.check(), 3);
}

#[test]
fn what_was_changed_under_another_server_id_is_read() {
    let mut site = Site::new(true);
    site.put(1, SUFFIX, "the suffix");
    assert_eq!(site.check(), 1);
    site.change_server_id(2);
    site.put(2, &format!("ou=people,{SUFFIX}"), "under the other id");
    // Nobody asks before the server has its old ID again.
    site.change_server_id(1);
    site.put(3, &format!("ou=things,{SUFFIX}"), "under the old one");
    assert_eq!(site.check(), 3);
}
