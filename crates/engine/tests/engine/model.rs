//! Random changes against a naive directory in memory: every answer and the whole tree must be equal, and the indexes
//! consistent.
//!
//! `LARIX_MODEL_OPERATIONS` sets the number of changes, `LARIX_MODEL_SEED` the seed, which is printed.

use std::collections::BTreeMap;
use std::sync::mpsc;

use larix_engine::index::IndexConfig;
use larix_engine::tables::TABLES;
use larix_engine::time::SeededRandom;
use larix_engine::tree;
use larix_engine::write::{AttributeValues, Modification, WriteOperation, WriteOutcome};
use larix_engine::writer;
use larix_proto::{ControlBuf, ModifyOperation, oid};
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use crate::common::{Fixture, SUFFIX, assert_sound, describe, memory, schema, settings};

const OPERATIONS: usize = 3_000;
/// Changes that are under way at once: several commit together.
const WINDOW: usize = 48;
/// Changes between two comparisons of everything.
const COMPARE_EVERY: usize = 5_000;

/// Attribute name -> values in the order in which they came.
type Attributes = BTreeMap<&'static str, Vec<String>>;

/// The naive directory: normalized DN -> attributes.
#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeMap<String, Attributes>,
}

/// A change as the model understands it. DNs are lists of `ou` values, leaf first, below the suffix.
#[derive(Clone, Debug)]
enum Operation {
    Add(Vec<&'static str>, Vec<(&'static str, Vec<String>)>),
    Modify(Vec<&'static str>, Vec<(ModifyOperation, &'static str, Vec<String>)>),
    Delete(Vec<&'static str>, bool),
    Rename { dn: Vec<&'static str>, new: &'static str, delete_old: bool, superior: Option<Vec<&'static str>> },
}

/// Single values, folded as caseIgnoreMatch and distinguishedNameMatch do with the values used here.
fn fold(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

fn dn_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("ou={name},")).collect::<String>() + SUFFIX
}

fn normal_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("ou={},", fold(name))).collect::<String>() + SUFFIX
}

fn is_single(attribute: &str) -> bool {
    attribute == "uidNumber"
}

fn has_duplicates(values: &[String]) -> bool {
    let mut folded: Vec<String> = values.iter().map(|v| fold(v)).collect();
    folded.sort();
    folded.windows(2).any(|pair| pair[0] == pair[1])
}

impl Model {
    /// The result code, and the change if it is 0.
    fn apply(&mut self, operation: &Operation) -> u32 {
        match operation {
            Operation::Add(dn, attributes) => self.add(dn, attributes),
            Operation::Modify(dn, changes) => self.modify(dn, changes),
            Operation::Delete(dn, tree) => self.delete(dn, *tree),
            Operation::Rename { dn, new, delete_old, superior } => {
                self.rename(dn, new, *delete_old, superior.as_deref())
            }
        }
    }

    fn add(&mut self, dn: &[&'static str], attributes: &[(&'static str, Vec<String>)]) -> u32 {
        let mut entry = Attributes::new();
        for (name, values) in attributes {
            if is_single(name) && values.len() > 1 {
                return 19;
            }
            if has_duplicates(values) {
                return 20;
            }
            entry.insert(name, values.clone());
        }
        let naming = entry.entry("ou").or_default();
        if !naming.iter().any(|v| fold(v) == fold(dn[0])) {
            naming.push(dn[0].to_owned());
        }
        let normal = normal_of(dn);
        if self.entries.contains_key(&normal) {
            return 68;
        }
        if !self.entries.contains_key(&normal_of(&dn[1..])) {
            return 32;
        }
        self.entries.insert(normal, entry);
        0
    }

    fn modify(&mut self, dn: &[&str], changes: &[(ModifyOperation, &'static str, Vec<String>)]) -> u32 {
        for (operation, name, values) in changes {
            if is_single(name)
                && values.len() > 1
                && matches!(operation, ModifyOperation::Add | ModifyOperation::Replace)
            {
                return 19;
            }
            if *operation != ModifyOperation::Delete && has_duplicates(values) {
                return 20;
            }
        }
        let Some(entry) = self.entries.get(&normal_of(dn)) else { return 32 };
        let mut entry = entry.clone();
        for (operation, name, values) in changes {
            let code = change(&mut entry, *operation, name, values);
            if code != 0 {
                return code;
            }
        }
        let code = check(&entry, dn[0]);
        if code == 0 {
            self.entries.insert(normal_of(dn), entry);
        }
        code
    }

    fn delete(&mut self, dn: &[&str], tree: bool) -> u32 {
        let normal = normal_of(dn);
        if !self.entries.contains_key(&normal) {
            return 32;
        }
        let below = format!(",{normal}");
        if tree {
            self.entries.retain(|dn, _| *dn != normal && !dn.ends_with(&below));
            return 0;
        }
        if self.entries.keys().any(|dn| dn.ends_with(&below)) {
            return 66;
        }
        self.entries.remove(&normal);
        0
    }

    fn rename(
        &mut self,
        dn: &[&str],
        new: &'static str,
        delete_old: bool,
        superior: Option<&[&'static str]>,
    ) -> u32 {
        let old = normal_of(dn);
        let parent = superior.map_or_else(|| dn[1..].to_vec(), <[_]>::to_vec);
        let target = format!("ou={},{}", fold(new), normal_of(&parent));
        if target != old && (target.ends_with(&format!(",{old}")) || old.ends_with(&format!(",{target}"))) {
            return 53;
        }
        if !self.entries.contains_key(&normal_of(&dn[1..])) || !self.entries.contains_key(&old) {
            return 32;
        }
        if !self.entries.contains_key(&normal_of(&parent)) {
            return 32;
        }
        if target != old && self.entries.contains_key(&target) {
            return 68;
        }
        let mut entry = self.entries[&old].clone();
        if delete_old {
            let code = change(&mut entry, ModifyOperation::Delete, "ou", &[dn[0].to_owned()]);
            if code != 0 {
                return code;
            }
        }
        let naming = entry.entry("ou").or_default();
        if !naming.iter().any(|v| fold(v) == fold(new)) {
            naming.push(new.to_owned());
        }
        let code = check(&entry, new);
        if code != 0 {
            return code;
        }
        let below = format!(",{old}");
        let moved: Vec<(String, Attributes)> = self
            .entries
            .iter()
            .filter(|(dn, _)| dn.ends_with(&below))
            .map(|(dn, e)| (dn.clone(), e.clone()))
            .collect();
        self.entries.remove(&old);
        for (dn, _) in &moved {
            self.entries.remove(dn);
        }
        for (dn, attributes) in moved {
            self.entries.insert(format!("{},{target}", dn.strip_suffix(&below).unwrap()), attributes);
        }
        self.entries.insert(target, entry);
        0
    }
}

fn change(entry: &mut Attributes, operation: ModifyOperation, name: &'static str, values: &[String]) -> u32 {
    match operation {
        ModifyOperation::Replace => {
            entry.remove(name);
            if !values.is_empty() {
                entry.insert(name, values.to_vec());
            }
        }
        ModifyOperation::Add => {
            let present = entry.entry(name).or_default();
            if values.iter().any(|v| present.iter().any(|p| fold(p) == fold(v))) {
                return 20;
            }
            present.extend(values.iter().cloned());
        }
        ModifyOperation::Delete if values.is_empty() => {
            if entry.remove(name).is_none() {
                return 16;
            }
        }
        ModifyOperation::Delete => {
            let Some(present) = entry.get_mut(name) else { return 16 };
            for value in values {
                if !present.iter().any(|p| fold(p) == fold(value)) {
                    return 16;
                }
            }
            present.retain(|p| !values.iter().any(|v| fold(p) == fold(v)));
            if present.is_empty() {
                entry.remove(name);
            }
        }
        ModifyOperation::Increment => {
            let Some(present) = entry.get_mut(name) else { return 16 };
            let amount: i64 = values[0].parse().unwrap();
            for value in present {
                *value = (value.parse::<i64>().unwrap() + amount).to_string();
            }
        }
    }
    0
}

/// The schema as far as it can be broken here.
fn check(entry: &Attributes, naming: &str) -> u32 {
    if entry.get("uidNumber").is_some_and(|values| values.len() > 1) {
        return 19;
    }
    match entry.get("ou") {
        Some(values) if values.iter().any(|v| fold(v) == fold(naming)) => 0,
        _ => 64,
    }
}

/// Chooses from short lists, so that names and values meet again.
struct Chooser(SeededRandom);

impl Chooser {
    fn dn(&self) -> Vec<&'static str> {
        (0..=self.0.below(4)).map(|_| self.0.one_of(&["a", "B", "c", "F f"])).collect()
    }

    fn values(&self, attribute: &str, most: usize) -> Vec<String> {
        let most = if is_single(attribute) && self.0.below(8) > 0 { 1 } else { most };
        (0..self.0.below(most) + 1)
            .map(|_| match attribute {
                "uidNumber" => self.0.below(5).to_string(),
                "member" => format!("cn={}{},dc=x", self.0.one_of(&["m", "M"]), self.0.below(400)),
                "mail" => {
                    self.0.one_of(&["one@example.com", "Two@example.com", "two@EXAMPLE.com"]).to_owned()
                }
                _ => self
                    .0
                    .one_of(&["x", "X", "y", "z z", "Z  z", "a long value of some words", "b", "c"])
                    .to_owned(),
            })
            .collect()
    }

    fn attribute(&self) -> &'static str {
        self.0.one_of(&["cn", "description", "mail", "uidNumber", "member"])
    }

    /// Now and then as many members as no record holds.
    fn crowd(&self) -> Vec<String> {
        let from = self.0.below(100);
        (from..from + 300).map(|n| format!("cn=m{n},dc=x")).collect()
    }

    fn operation(&self) -> Operation {
        let dn = self.dn();
        match self.0.below(100) {
            0..35 => {
                let mut attributes: Vec<(&'static str, Vec<String>)> = Vec::new();
                for _ in 0..self.0.below(4) {
                    let name = self.attribute();
                    if attributes.iter().all(|(other, _)| *other != name) {
                        let crowd = name == "member" && self.0.below(10) == 0;
                        attributes.push((name, if crowd { self.crowd() } else { self.values(name, 2) }));
                    }
                }
                Operation::Add(dn, attributes)
            }
            35..80 => Operation::Modify(dn, (0..=self.0.below(3)).map(|_| self.modification()).collect()),
            80..86 => Operation::Delete(dn, false),
            86 => Operation::Delete(dn, true),
            _ => Operation::Rename {
                dn,
                new: self.0.one_of(&["a", "B", "c", "f F", "F  F", "F f"]),
                delete_old: self.0.below(3) > 0,
                superior: (self.0.below(2) == 0).then(|| self.dn()),
            },
        }
    }

    fn modification(&self) -> (ModifyOperation, &'static str, Vec<String>) {
        let name = if self.0.below(20) == 0 { "ou" } else { self.attribute() };
        match self.0.below(10) {
            0..4 if name == "member" && self.0.below(8) == 0 => (ModifyOperation::Add, name, self.crowd()),
            0..4 => (ModifyOperation::Add, name, self.values(name, 3)),
            4..7 => (ModifyOperation::Delete, name, self.values(name, 2)),
            7 => (ModifyOperation::Delete, name, Vec::new()),
            8 => (ModifyOperation::Increment, "uidNumber", vec![self.0.below(4).to_string()]),
            _ if self.0.below(3) == 0 => (ModifyOperation::Replace, name, Vec::new()),
            _ => (ModifyOperation::Replace, name, self.values(name, 3)),
        }
    }
}

fn request(operation: &Operation) -> (WriteOperation, Vec<ControlBuf>) {
    let attribute = |name: &str, values: &[String]| AttributeValues {
        description: name.to_owned(),
        values: values.iter().map(|v| v.clone().into_bytes()).collect(),
    };
    let mut controls = Vec::new();
    let operation = match operation {
        Operation::Add(dn, attributes) => {
            let classes = ["organizationalUnit".to_owned(), "extensibleObject".to_owned()];
            let mut all = vec![attribute("objectClass", &classes)];
            all.extend(attributes.iter().map(|(name, values)| attribute(name, values)));
            WriteOperation::Add { entry: dn_of(dn), attributes: all }
        }
        Operation::Modify(dn, changes) => WriteOperation::Modify {
            object: dn_of(dn),
            changes: changes
                .iter()
                .map(|(operation, name, values)| Modification {
                    operation: *operation,
                    attribute: attribute(name, values),
                })
                .collect(),
        },
        Operation::Delete(dn, tree) => {
            if *tree {
                controls.push(ControlBuf { oid: oid::TREE_DELETE.into(), critical: true, value: None });
            }
            WriteOperation::Delete { entry: dn_of(dn) }
        }
        Operation::Rename { dn, new, delete_old, superior } => WriteOperation::ModifyDn {
            entry: dn_of(dn),
            new_rdn: format!("ou={new}"),
            delete_old_rdn: *delete_old,
            new_superior: superior.as_ref().map(|superior| dn_of(superior)),
        },
    };
    (operation, controls)
}

/// All entries below the suffix entry, as the model has them.
fn stored<S: Store>(fixture: &Fixture<S>) -> BTreeMap<String, Attributes> {
    const COMPARED: [&str; 6] = ["cn", "description", "mail", "uidNumber", "member", "ou"];
    let database = fixture.database();
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    let suffix = fixture.schema.parse_dn(SUFFIX).unwrap();
    let top = view.resolve(&suffix).unwrap().unwrap().id.unwrap();
    let mut entries = BTreeMap::new();
    for id in tree::subtree(&snapshot, top, usize::MAX).unwrap() {
        let record = view.record(id).unwrap().unwrap();
        let reader = view.reader(id, &record).unwrap();
        let normal = view.names.normal_dn(&reader.view).unwrap();
        let entry = reader.to_owned(view.dn(&reader.view).unwrap(), true).unwrap();
        let mut attributes = Attributes::new();
        for name in COMPARED {
            let values = entry.values(fixture.schema.attribute_type(name).unwrap().id);
            if !values.is_empty() && id != top {
                let values = values.iter().map(|v| String::from_utf8(v.clone()).unwrap());
                attributes.insert(name, values.collect());
            }
        }
        entries.insert(normal.as_str().to_owned(), attributes);
    }
    entries
}

fn compare<S: Store>(fixture: &Fixture<S>, model: &Model, at: usize, seed: u64) {
    let sorted = |mut entries: BTreeMap<String, Attributes>| {
        entries.values_mut().flat_map(BTreeMap::values_mut).for_each(|values| values.sort());
        entries
    };
    let (found, expected) = (sorted(stored(fixture)), sorted(model.entries.clone()));
    for (dn, attributes) in &expected {
        assert_eq!(found.get(dn), Some(attributes), "{dn} after {at} changes of seed {seed}");
    }
    assert_eq!(found.len(), expected.len(), "after {at} changes of seed {seed}: {:?}", found.keys());
    assert_sound(fixture.database(), &format!("after {at} changes of seed {seed}"));
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn run<S: Store>(name: &str, store: S) {
    let seed = setting("LARIX_MODEL_SEED", 20_261_121);
    let operations = setting("LARIX_MODEL_OPERATIONS", OPERATIONS as u64) as usize;
    println!("{name}: {operations} changes of seed {seed}");
    let schema = schema("");
    let mut settings = settings(&schema);
    let mut index = IndexConfig::default();
    for (attributes, kinds) in
        [("objectClass,ou,cn", "eq"), ("description", "pres,eq,sub"), ("mail,member", "pres,eq")]
    {
        index.add_line(&schema, attributes, Some(kinds)).unwrap();
    }
    settings.index = index;
    settings.log = false;
    let fixture = Fixture::of(schema, vec![(store, settings)]);
    fixture.apply(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\ndc: example\no: x\n"
    ));
    let mut model = Model::default();
    model.entries.insert(SUFFIX.to_owned(), Attributes::new());

    let chooser = Chooser(SeededRandom::new(seed));
    let (sender, receiver) = mpsc::channel::<(usize, WriteOutcome)>();
    let mut waiting: std::collections::VecDeque<(usize, Operation)> = std::collections::VecDeque::new();
    let mut codes: BTreeMap<u32, usize> = BTreeMap::new();
    for at in 0..operations {
        let operation = chooser.operation();
        let (change, controls) = request(&operation);
        let answers = sender.clone();
        let done = Box::new(move |outcome| answers.send((at, outcome)).unwrap());
        // What needs no entry is refused on this thread, before what is still under way: expect it by number.
        waiting.push_back((at, operation));
        // Every other stretch is carried out by this thread, where the writer rests.
        writer::may_defer((at / WINDOW).is_multiple_of(2));
        fixture.directory.submit(fixture.request(change, &controls), done);
        writer::carry_out_deferred();
        let compare_now = (at + 1) % COMPARE_EVERY == 0 || at + 1 == operations;
        if waiting.len() >= WINDOW || compare_now {
            let mut answers: BTreeMap<usize, WriteOutcome> = receiver.iter().take(waiting.len()).collect();
            for (at, operation) in waiting.drain(..) {
                let expected = model.apply(&operation);
                let outcome = answers.remove(&at).unwrap();
                let answer = outcome.result.code.0;
                assert_eq!(
                    answer,
                    expected,
                    "change {at} of seed {seed}: {operation:?}: {}",
                    describe(&outcome)
                );
                *codes.entry(answer).or_default() += 1;
            }
            if compare_now {
                compare(&fixture, &model, at + 1, seed);
            }
        }
    }
    println!("{name}: answers {codes:?}, {} entries at the end", model.entries.len());
}

#[test]
fn in_memory() {
    run("memory", memory());
}

#[test]
fn in_lmdb() {
    let folder = match std::env::var_os("LARIX_MODEL_FOLDER") {
        Some(folder) => tempfile::tempdir_in(folder).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let options = LmdbOptions { create: true, map_size: 1 << 30, ..LmdbOptions::default() };
    run("lmdb", LmdbStore::open(folder.path(), &TABLES, &options).unwrap());
}
