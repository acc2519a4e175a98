//! Several servers that take changes and tell each other of them, in any order and with losses: they end with the same
//! content. `LARIX_SEED=` replays one run, `LARIX_SEEDS=` says how many are tried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};

use larix_engine::access::Subject;
use larix_engine::check::check;
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey, LoggedChange};
use larix_engine::replica::{
    ApplyOutcome, EntryPlace, EntryPlaces, ReplicaRules, ReplicatedBatch, ReplicatedChange,
    ReplicatedOutcome, entry_of, state_of,
};
use larix_engine::search::synchronised::entry_csn;
use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_engine::write::{AttributeValues, Modification, Origin, WriteOperation, WriteRequest};

use larix_engine::{Database, DatabaseSettings, Directory, ServedDatabase};
use larix_proto::{LdapResult, ModifyOperation};
use larix_schema::Schema;
use larix_store::Store;
use larix_store::memory::MemoryStore;

use crate::common::{self, ROOT, SUFFIX, memory, settings};

/// What an entry looks like: DN, attributes.
type Shown = (String, BTreeMap<String, BTreeSet<String>>);

struct Node {
    directory: Directory<MemoryStore>,
    schema: Arc<Schema>,
    clock: Arc<ManualClock>,
    id: u16,
}

impl Node {
    fn new(schema: &Arc<Schema>, id: u16, seed: u64, values: bool) -> Self {
        let clock = Arc::new(ManualClock::new(common::START));
        let random = Arc::new(SeededRandom::new(seed ^ u64::from(id) << 32));
        let settings = DatabaseSettings { value_conflicts: values, ..settings(schema) };
        let database = Database::open(memory(), Arc::clone(schema), settings, &*random).unwrap();
        let environment = common::environment(Arc::clone(&clock) as _, random, id);
        let served = Arc::new(ServedDatabase::start(Arc::new(database), environment).unwrap());
        Self { directory: common::directory(schema, vec![served]), schema: Arc::clone(schema), clock, id }
    }

    fn database(&self) -> &Arc<Database<MemoryStore>> {
        self.directory.databases()[0].database()
    }

    fn change(&self, operation: WriteOperation) -> LdapResult {
        let subject = Subject::default().bound_as(self.schema.parse_dn(ROOT).unwrap(), ROOT);
        let request = WriteRequest {
            operation,
            subject: Arc::new(subject),
            controls: Default::default(),
            origin: Origin::Client,
            passwords: None,
        };
        let (sender, receiver) = mpsc::channel();
        self.directory.submit(request, Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv().unwrap().result
    }

    fn replicate(&self, batch: ReplicatedBatch) -> ReplicatedOutcome {
        let (sender, receiver) = mpsc::channel();
        let served = &self.directory.databases()[0];
        served.replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
        receiver.recv().unwrap()
    }

    fn csns(&self) -> Vec<Csn> {
        log::context_csns(&self.database().store().snapshot().unwrap()).unwrap()
    }

    /// All entries but glue, by entryUUID.
    fn content(&self) -> BTreeMap<String, Shown> {
        let snapshot = self.database().store().snapshot().unwrap();
        let view = self.database().view(&snapshot).unwrap();
        let mut all = BTreeMap::new();
        let rows = larix_store::Snapshot::scan(
            &snapshot,
            larix_engine::tables::ENTRIES,
            larix_store::KeyRange::all(),
            larix_store::Direction::Forward,
        );
        for row in rows.unwrap() {
            let (key, _) = row.unwrap();
            let id = larix_engine::EntryId(u64::from_be_bytes(key.as_ref().try_into().unwrap()));
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

    /// What goes beside an entry where conflicts are settled value by value.
    fn state_of(&self, uuid: &uuid::Uuid) -> Option<Vec<u8>> {
        let snapshot = self.database().store().snapshot().unwrap();
        let view = self.database().view(&snapshot).unwrap();
        let id = view.settings.value_conflicts.then(|| entry_of(&view, uuid).unwrap().unwrap())?;
        let record = view.record(id).unwrap().unwrap();
        let csn = entry_csn(&view, id).unwrap();
        Some(state_of(&view, &view.reader(id, &record).unwrap(), uuid, csn).unwrap())
    }

    fn place_of(&self, uuid: &uuid::Uuid) -> Option<EntryPlace> {
        let snapshot = self.database().store().snapshot().unwrap();
        let view = self.database().view(&snapshot).unwrap();
        let id = entry_of(&view, uuid).unwrap().unwrap();
        let record = view.record(id).unwrap().unwrap();
        EntryPlaces::default().place_of(&view, &view.reader(id, &record).unwrap()).unwrap()
    }

    fn changes_for(&self, csns: &[Csn], after: u64) -> (Vec<ReplicatedChange>, u64) {
        let content = self.content();
        let snapshot = self.database().store().snapshot().unwrap();
        let (mut changes, mut last) = (Vec::new(), after);
        let mut sent = BTreeSet::new();
        let before = LogKey { server_id: self.id, sequence: after };
        log::visit_stored_after(&snapshot, before, &mut |key, record, _| {
            last = key.sequence;
            let known = csns.iter().find(|csn| csn.server_id == record.csn.server_id);
            if record.local || known.is_some_and(|known| record.csn <= *known) {
                return true;
            }
            let uuid = record.entry_uuid.to_string();
            match content.get(&uuid) {
                Some((dn, attributes)) if sent.insert(uuid.clone()) => {
                    changes.push(ReplicatedChange::Put {
                        entry_uuid: record.entry_uuid,
                        dn: dn.clone(),
                        attributes: attributes
                            .iter()
                            .map(|(name, values)| AttributeValues {
                                description: name.clone(),
                                values: values.iter().map(|value| value.clone().into_bytes()).collect(),
                            })
                            .collect(),
                        state: self.state_of(&record.entry_uuid),
                        place: self.place_of(&record.entry_uuid),
                    });
                }
                None if matches!(record.change, LoggedChange::Delete) => {
                    changes.push(ReplicatedChange::Delete {
                        entry_uuid: record.entry_uuid,
                        csn: Some(record.csn),
                    });
                }
                _ => {}
            }
            true
        })
        .unwrap();
        (changes, last)
    }
}

struct World {
    nodes: Vec<Node>,
    random: SeededRandom,
    trace: Vec<String>,
    created: u32,
    /// Whether containers are moved, too.
    moves: bool,
    /// Whether conflicts are settled value by value; then values are added and deleted, too.
    values: bool,
}

impl World {
    fn new(schema: &Arc<Schema>, seed: u64, (moves, values): (bool, bool)) -> Self {
        let nodes: Vec<Node> = (1..=3).map(|id| Node::new(schema, id, seed, values)).collect();
        let mut world =
            Self { nodes, random: SeededRandom::new(seed), trace: Vec::new(), created: 0, moves, values };
        for (dn, class, name) in [
            (SUFFIX, "domain", "dc"),
            ("ou=a,dc=example,dc=com", "organizationalUnit", "ou"),
            ("ou=b,dc=example,dc=com", "organizationalUnit", "ou"),
        ] {
            let value = dn.split(['=', ',']).nth(1).unwrap();
            let attributes = [("objectClass", class), (name, value)];
            let result = world.nodes[0].change(add(dn, &attributes));
            assert!(result.is_success(), "{result:?}");
        }
        world.exchange(0, 1, false);
        world.exchange(0, 2, false);
        world
    }

    fn step(&mut self) {
        let at = self.random.below(self.nodes.len());
        let ahead = [0, 1, 900, 40_000, 2_000_000][self.random.below(5)];
        let skew = self.random.below(20) == 0;
        let clock = &self.nodes[at].clock;
        if skew {
            let now = larix_engine::time::Clock::now(&**clock);
            let by = self.random.below(10_000_000) as i64 - 5_000_000;
            clock.set(Timestamp(now.0 + by));
        }
        clock.advance_micros(ahead);
        match self.random.below(10) {
            0..=5 => self.local(at),
            6..=8 => {
                let to = (at + 1 + self.random.below(self.nodes.len() - 1)) % self.nodes.len();
                let cut = self.random.below(4) == 0;
                self.exchange(at, to, cut);
            }
            _ => {}
        }
    }

    fn local(&mut self, at: usize) {
        let content: Vec<(String, bool)> = self.nodes[at]
            .content()
            .into_values()
            .map(|(dn, attributes)| (dn, attributes["objectClass"].contains("organizationalUnit")))
            .collect();
        let containers: Vec<&String> =
            content.iter().filter(|(dn, ou)| *ou || dn == SUFFIX).map(|(dn, _)| dn).collect();
        let names = ["x", "y", "z"];
        let name = self.random.one_of(&names);
        let (kind, roll) = (self.random.below(10), self.random.number());
        let superior = containers[self.random.below(containers.len())].clone();
        let (dn, is_container) = content[self.random.below(content.len())].clone();
        if dn == SUFFIX {
            return;
        }
        self.created += 1;
        let number = self.created.to_string();
        let movable = self.moves || !is_container;
        let operation = match kind {
            0..=2 => add(
                &format!("cn={name},{superior}"),
                &[("objectClass", "device"), ("cn", name), ("description", &number)],
            ),
            3 if self.moves => add(
                &format!("ou={name},{superior}"),
                &[("objectClass", "organizationalUnit"), ("ou", name), ("description", &number)],
            ),
            3..=5 => {
                let (operation, attribute) = match roll % 6 {
                    0 if self.values => (ModifyOperation::Add, values("seeAlso", &[&format!("cn={number}")])),
                    1 if self.values => (ModifyOperation::Add, values("description", &[&number])),
                    2 if self.values => (ModifyOperation::Delete, values("description", &[])),
                    3 if self.values && !is_container => {
                        (ModifyOperation::Replace, values("serialNumber", &[&number]))
                    }
                    _ => (ModifyOperation::Replace, values("description", &[&number])),
                };
                WriteOperation::Modify { object: dn, changes: vec![Modification { operation, attribute }] }
            }
            6 | 7 if movable => WriteOperation::ModifyDn {
                entry: dn,
                new_rdn: format!("{}={name}", if is_container { "ou" } else { "cn" }),
                delete_old_rdn: roll % 2 == 0,
                new_superior: (kind == 7).then_some(superior),
            },
            _ => WriteOperation::Delete { entry: dn },
        };
        let text = format!("{} {operation:?}", at + 1);
        let result = self.nodes[at].change(operation);
        self.trace.push(format!("{text}: {}", result.code.0));
    }

    /// `to` asks `from` for what it has not seen. Cut: the line breaks after some of it.
    fn exchange(&mut self, from: usize, to: usize, cut: bool) {
        let csns = self.nodes[to].csns();
        let (mut changes, _) = self.nodes[from].changes_for(&csns, 0);
        let mut context_csns = self.nodes[from].csns();
        let whole = changes.len();
        if cut {
            changes.truncate(self.random.below(changes.len() + 1));
            context_csns.clear();
        }
        if self.random.below(3) == 0 {
            // Repeated, or in several batches.
            let part = changes.len() / 2;
            let batch = ReplicatedBatch {
                changes: changes[..part].to_vec(),
                context_csns: Vec::new(),
                rules: ReplicaRules::default(),
            };
            self.accept(to, batch);
        }
        self.trace.push(format!("{} -> {}: {} of {whole}", from + 1, to + 1, changes.len()));
        for change in &changes {
            self.trace.push(match change {
                ReplicatedChange::Put { entry_uuid, dn, attributes, place, .. } => {
                    let csn = attributes.iter().find(|a| a.description == "entryCSN").unwrap();
                    let csn = String::from_utf8_lossy(&csn.values[0]);
                    let place = place.as_ref().map(|place| format!("{} in {}", place.name, place.superior));
                    format!("    put {entry_uuid} {dn} {csn} {}", place.unwrap_or_default())
                }
                ReplicatedChange::Delete { entry_uuid, csn } => {
                    format!("    delete {entry_uuid} {}", csn.unwrap())
                }
                ReplicatedChange::Delta { .. } => unreachable!(),
            });
        }
        // As a consumer asks in a refresh, and later.
        let rules = ReplicaRules { drop_covered: self.random.below(2) == 0, ..ReplicaRules::default() };
        self.accept(to, ReplicatedBatch { changes, context_csns, rules });
    }

    fn accept(&mut self, to: usize, batch: ReplicatedBatch) {
        let outcome = self.nodes[to].replicate(batch);
        assert!(outcome.result.is_success(), "{outcome:?}");
        for (at, applied) in outcome.changes.iter().enumerate() {
            assert!(!matches!(applied, ApplyOutcome::Refused(_)), "{at} {applied:?}");
            self.trace.push(format!("      {applied:?}"));
        }
    }

    /// Everybody hears everything.
    fn settle(&mut self) {
        for _ in 0..6 {
            for from in 0..self.nodes.len() {
                for to in 0..self.nodes.len() {
                    if from != to {
                        self.exchange(from, to, false);
                    }
                }
            }
        }
    }
}

fn values(name: &str, values: &[&str]) -> AttributeValues {
    AttributeValues {
        description: name.to_owned(),
        values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
    }
}

fn add(dn: &str, attributes: &[(&str, &str)]) -> WriteOperation {
    WriteOperation::Add {
        entry: dn.to_owned(),
        attributes: attributes.iter().map(|(name, value)| values(name, &[value])).collect(),
    }
}

/// How many entries there are in the end.
fn run(
    schema: &Arc<Schema>,
    seed: u64,
    steps: usize,
    (moves, values): (bool, bool),
) -> Result<usize, String> {
    let mut world = World::new(schema, seed, (moves, values));
    for _ in 0..steps {
        world.step();
    }
    world.settle();
    let failed = |what: String, world: &World| {
        Err(format!(
            "LARIX_SEED={seed} steps {steps} moves {moves} values {values}: {what}\n{}",
            world.trace.join("\n")
        ))
    };
    let contents: Vec<_> = world.nodes.iter().map(Node::content).collect();
    for (at, content) in contents.iter().enumerate().skip(1) {
        for (uuid, entry) in content {
            if contents[0].get(uuid) != Some(entry) {
                let other = contents[0].get(uuid);
                return failed(format!("{uuid}: 1 has {other:?}\n{} has {entry:?}", at + 1), &world);
            }
        }
        if let Some(uuid) = contents[0].keys().find(|uuid| !content.contains_key(*uuid)) {
            return failed(format!("{} lacks {uuid} {:?}", at + 1, contents[0][uuid]), &world);
        }
    }
    for node in &world.nodes {
        let snapshot = node.database().store().snapshot().unwrap();
        let view = node.database().view(&snapshot).unwrap();
        let mut findings = Vec::new();
        check(&view, &mut |finding| findings.push(finding.to_string())).unwrap();
        if !findings.is_empty() {
            return failed(format!("{}: {findings:?}", node.id), &world);
        }
    }
    Ok(contents[0].len())
}

fn many(kind: (bool, bool), default: u64, steps: usize) {
    let schema = common::schema("");
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("LARIX_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LARIX_SEEDS").unwrap_or(default),
    };
    let steps = number("LARIX_STEPS").map_or(steps, |steps| steps as usize);
    let (mut failures, mut entries) = (Vec::new(), 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let ran = std::panic::catch_unwind(|| run(&schema, seed, steps, kind));
        match ran {
            Ok(Ok(left)) => entries += left,
            Ok(Err(failure)) => failures.push(failure),
            Err(_) => failures.push(format!("LARIX_SEED={seed}: panicked")),
        }
    }
    for failure in &failures {
        println!("{}", failure.lines().next().unwrap_or_default());
    }
    failures.sort_by_key(String::len);
    assert!(failures.is_empty(), "{} of {count} failed; the shortest:\n{}", failures.len(), failures[0]);
    assert!(entries > 0, "no entry is left to compare");
}

#[test]
fn leaves_converge() {
    many((false, false), 200, 60);
}

#[test]
fn trees_converge() {
    many((true, false), 200, 60);
}

#[test]
fn leaves_converge_value_by_value() {
    many((false, true), 200, 60);
}

#[test]
fn trees_converge_value_by_value() {
    many((true, true), 200, 60);
}
