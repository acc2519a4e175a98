//! The first fill of an empty database while it is served: all of it, or nothing.

use std::sync::{Arc, mpsc};

use larix_engine::csn::Csn;
use larix_engine::database::ProviderSettings;
use larix_engine::load::{Fill, FillOptions, LoadError};
use larix_engine::replica::{ApplyOutcome, ReplicatedBatch, ReplicatedChange};
use larix_engine::tables::{ENTRIES, INDEX, META, TABLES, TREE, meta};
use larix_engine::time::{SeededRandom, Timestamp};
use larix_engine::write::{AttributeValues, RetiringDefinitions};
use larix_engine::{Database, log};
use larix_proto::encode::EntryEncoder;
use larix_proto::{MessageId, Response};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::{Direction, Durability, KeyRange, Snapshot, Store, Transaction, WriteSet};
use uuid::Uuid;

use crate::common::{self, Fixture, SUFFIX, assert_sound, memory, schema, settings};

const PEOPLE: usize = 700;

fn csn(number: i64) -> Csn {
    Csn { time: Timestamp(common::START.0 + number * 1_000_000), count: 0, server_id: 7, modification: 0 }
}

/// One entry as a provider sends it.
#[derive(Clone, Debug)]
struct Sent {
    uuid: Uuid,
    dn: String,
    attributes: Vec<(String, String)>,
}

fn sent(number: usize, dn: &str, class: &str, more: &[(&str, &str)]) -> Sent {
    let (name, value) = dn.split(',').next().unwrap().split_once('=').unwrap();
    let uuid = Uuid::from_u128(number as u128 + 1);
    let fixed = [
        ("objectClass", class.to_owned()),
        ("structuralObjectClass", class.to_owned()),
        (name, value.to_owned()),
        ("entryUUID", uuid.to_string()),
        ("entryCSN", csn(number as i64).to_string()),
        ("createTimestamp", "20200101000000Z".to_owned()),
        ("entryDN", dn.to_owned()),
    ];
    let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let attributes = fixed.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect();
    Sent { uuid, dn: dn.to_owned(), attributes }
}

/// A company, with one unit that comes behind those who are in it.
fn company() -> Vec<Sent> {
    let unit = |number, name: &str| sent(number, &format!("ou={name},{SUFFIX}"), "organizationalUnit", &[]);
    let mut all = vec![sent(0, SUFFIX, "domain", &[("contextCSN", "nonsense")]), unit(1, "people")];
    for number in 0..PEOPLE {
        let unit = if number % 50 == 3 { "late" } else { "people" };
        let (text, dn) = (format!("number {number}"), format!("cn=p{number},ou={unit},{SUFFIX}"));
        all.push(sent(number + 3, &dn, "person", &[("sn", "Lee"), ("description", &text)]));
    }
    all.push(unit(2, "late"));
    all
}

fn add(fill: &mut Fill, sent: &Sent) -> Result<(), LoadError> {
    let mut pdu = Vec::new();
    let mut entry = EntryEncoder::begin(&mut pdu, MessageId(1), &sent.dn);
    for (name, value) in &sent.attributes {
        entry.begin_attribute(name);
        entry.value(value.as_bytes());
    }
    entry.finish(&[]);
    let message = Response::decode_message(&pdu).unwrap();
    let Response::Entry(entry) = message.response else { panic!("no entry") };
    fill.add(sent.uuid, &entry, None)
}

fn put(sent: &Sent) -> ReplicatedChange {
    let attributes = sent
        .attributes
        .iter()
        .map(|(name, value)| AttributeValues {
            description: name.clone(),
            values: vec![value.as_bytes().to_vec()],
        })
        .collect();
    ReplicatedChange::Put { entry_uuid: sent.uuid, dn: sent.dn.clone(), attributes, state: None, place: None }
}

fn begin<S: Store>(fixture: &Fixture<S>) -> Option<Fill> {
    let options = FillOptions { scratch: std::env::temp_dir(), schema_checking: true, threads: 2 };
    fixture.directory.databases()[0].fill(options)
}

fn fill<S: Store>(fixture: &Fixture<S>, entries: &[Sent], csns: Vec<Csn>) -> Result<u64, LoadError> {
    let mut fill = begin(fixture).expect("an empty database");
    entries.iter().try_for_each(|sent| add(&mut fill, sent))?;
    fill.finish(csns)
}

fn replicate<S: Store>(fixture: &Fixture<S>, changes: Vec<ReplicatedChange>) -> Vec<ApplyOutcome> {
    let (sender, receiver) = mpsc::channel();
    let batch = ReplicatedBatch { changes, ..ReplicatedBatch::default() };
    fixture.directory.databases()[0].replicate(batch, Box::new(move |done| sender.send(done).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
    outcome.changes
}

fn lmdb(path: &std::path::Path) -> LmdbStore {
    LmdbStore::open(path, &TABLES, &LmdbOptions::default()).unwrap()
}

fn fixture<S: Store>(store: S) -> Fixture<S> {
    let schema = schema("");
    let mut settings = settings(&schema);
    for (attributes, kinds) in [("cn,description", "eq,sub"), ("objectClass,entryUUID", "eq")] {
        settings.index.add_line(&schema, attributes, Some(kinds)).unwrap();
    }
    Fixture::of(schema, vec![(store, settings)])
}

fn rows<S: Store>(store: &S) -> [usize; 3] {
    let snapshot = store.snapshot().unwrap();
    [ENTRIES, TREE, INDEX].map(|table| match table {
        INDEX => snapshot.posting_keys(INDEX, KeyRange::all(), Direction::Forward).unwrap().count(),
        table => snapshot.scan(table, KeyRange::all(), Direction::Forward).unwrap().count(),
    })
}

fn sound<S: Store>(fixture: &Fixture<S>) {
    assert_sound(fixture.database(), "after a fill");
}

fn contexts<S: Store>(fixture: &Fixture<S>) -> Vec<Csn> {
    log::context_csns(&fixture.database().store().snapshot().unwrap()).unwrap()
}

/// What one has is what the other has, in the same order: a consumer shows an entry as its provider does.
fn like<A: Store, B: Store>(one: &Fixture<A>, other: &Fixture<B>) {
    for sent in company() {
        let (a, b) = (one.entry(&sent.dn).unwrap(), other.entry(&sent.dn).unwrap());
        assert_eq!(format!("{:?}", a.attributes), format!("{:?}", b.attributes), "{}", sent.dn);
    }
}

fn filled_is_as_replicated<S: Store>(store: S) {
    let (one, other) = (fixture(store), fixture(memory()));
    assert_eq!(fill(&one, &company(), vec![csn(5_000)]).unwrap(), company().len() as u64);
    sound(&one);
    assert_eq!(contexts(&one), [csn(5_000)]);
    replicate(&other, company().iter().map(put).collect());
    like(&one, &other);
    assert!(begin(&one).is_none(), "it is not empty any more");
    // Changes go on from there.
    let mut changed = company()[20].clone();
    changed.attributes.retain(|(name, _)| name != "entryCSN" && name != "description");
    changed.attributes.push(("entryCSN".to_owned(), csn(6_000).to_string()));
    assert_eq!(
        replicate(&one, vec![put(&company()[21]), put(&changed)]),
        [ApplyOutcome::Older, ApplyOutcome::Done]
    );
    assert_eq!(one.value(&changed.dn, "description"), None);
    one.apply(&format!("dn: cn=new,ou=people,{SUFFIX}\nobjectClass: device\ncn: new\n"));
    sound(&one);
}

#[test]
fn filled_is_as_replicated_in_memory() {
    filled_is_as_replicated(memory());
}

#[test]
fn filled_is_as_replicated_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    filled_is_as_replicated(lmdb(folder.path()));
    let again = fixture(lmdb(folder.path()));
    assert_eq!(contexts(&again).len(), 2);
    sound(&again);
}

#[test]
fn what_does_not_come_to_its_end_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let f = fixture(lmdb(folder.path()));
    let all = company();
    let refused = |name: &str, entries: Vec<Sent>, expected: &str| {
        let error = fill(&f, &entries, vec![csn(1)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!((rows(f.database().store()), contexts(&f).len()), ([0; 3], 0), "{name}");
    };
    let with = |more: Sent| all.iter().cloned().chain([more]).collect::<Vec<_>>();
    let person =
        |number, dn: &str, more: &[(&str, &str)]| sent(number, &format!("{dn},{SUFFIX}"), "person", more);
    refused(
        "no superior",
        with(person(9_000, "cn=x,ou=nowhere", &[("sn", "X")])),
        "superior entry does not exist",
    );
    refused("a name twice", with(person(9_000, "cn=P1,ou=people", &[("sn", "X")])), "exists already");
    refused("the schema", with(person(9_000, "cn=x", &[])), "requires attribute 'sn'");
    let wrong = [("sn", "X"), ("seeAlso", "no name")];
    refused("a syntax", with(person(9_000, "cn=x", &wrong)), "seeAlso: value #0 invalid per syntax");
    refused(
        "elsewhere",
        with(sent(9_000, "cn=x,dc=other", "person", &[("sn", "X")])),
        "not below any suffix",
    );
    // The provider is gone.
    let mut broken = begin(&f).unwrap();
    all.iter().take(300).for_each(|sent| add(&mut broken, sent).unwrap());
    drop(broken);
    // A change waits for its end, and finds an empty database.
    f.apply(common::TREE);
    assert_eq!(rows(f.database().store())[0], 5);
    sound(&f);
    assert!(begin(&f).is_none());
}

#[test]
fn a_change_of_the_configuration_goes_first() {
    let f = fixture(memory());
    let served = Arc::clone(&f.directory.databases()[0]);
    let mut begun = begin(&f).unwrap();
    add(&mut begun, &company()[0]).unwrap();
    served.retire_elements(RetiringDefinitions::default());
    let stopped = begun.finish(vec![csn(1)]).unwrap_err();
    assert!(matches!(stopped, LoadError::Stopped("the configuration is changing")), "{stopped:?}");
    assert_eq!(fill(&f, &company(), vec![csn(1)]).unwrap(), company().len() as u64);
    sound(&f);
}

/// The provider may have deleted entries that others still have.
#[test]
fn content_beside_which_no_deletes_are_named_proves_none() {
    for by_content in [false, true] {
        let f = fixture(memory());
        let mut begun = begin(&f).unwrap();
        company().iter().for_each(|sent| add(&mut begun, sent).unwrap());
        let filled = match by_content {
            true => begun.finish_by_content(vec![csn(1)]),
            false => begun.finish(vec![csn(1)]),
        };
        assert_eq!(filled.unwrap(), company().len() as u64);
        let unproved = log::content_csns(&f.database().store().snapshot().unwrap()).unwrap();
        let expected = if by_content { vec![csn(1)] } else { Vec::new() };
        assert_eq!(unproved.as_slice(), expected);
    }
}

/// A member that starts with content gives it a contextCSN of its own, unless it came from a provider that was going to say how
/// far it goes.
#[test]
fn content_that_is_half_told_is_not_claimed() {
    let open = |folder: &std::path::Path| {
        let schema = schema("");
        let mut settings = settings(&schema);
        settings.provider = Some(ProviderSettings::default());
        settings.index.add_line(&schema, "entryUUID", Some("eq")).unwrap();
        Fixture::of(schema, vec![(lmdb(folder), settings)])
    };
    for filled in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let f = open(folder.path());
        match filled {
            true => drop(fill(&f, &company(), Vec::new()).unwrap()),
            false => drop(replicate(&f, company().iter().map(put).collect())),
        }
        drop(f);
        let f = open(folder.path());
        assert_eq!(contexts(&f), [], "{filled}");
        let (sender, receiver) = mpsc::channel();
        let batch = ReplicatedBatch { context_csns: vec![csn(5_000)], ..ReplicatedBatch::default() };
        f.directory.databases()[0].replicate(batch, Box::new(move |done| sender.send(done).unwrap()));
        assert!(receiver.recv().unwrap().result.is_success());
        let snapshot = f.database().store().snapshot().unwrap();
        assert!(snapshot.get(META, meta::UNPROVED).unwrap().is_none());
        drop(snapshot);
        drop(f);
        assert_eq!(contexts(&open(folder.path())), [csn(5_000)]);
    }
}

#[test]
fn what_a_crash_left_is_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    let f = fixture(lmdb(folder.path()));
    f.apply(common::TREE);
    let schema = Arc::clone(&f.schema);
    drop(f);
    let store = lmdb(folder.path());
    let mut set = WriteSet::new();
    set.put(META, meta::FILLING, []);
    store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
    drop(store);
    // A process that may not write finds nothing to read.
    let options = LmdbOptions { read_only: true, ..LmdbOptions::default() };
    let store = LmdbStore::open(folder.path(), &TABLES, &options).unwrap();
    let opened = Database::open(store, Arc::clone(&schema), settings(&schema), &SeededRandom::new(1));
    assert!(opened.is_err());
    drop(opened);
    let store = lmdb(folder.path());
    let opened =
        Database::open(store, Arc::clone(&schema), settings(&schema), &SeededRandom::new(1)).unwrap();
    assert_eq!(rows(opened.store()), [0; 3]);
    let left = opened.store().snapshot().unwrap();
    assert!(left.get(META, meta::FILLING).unwrap().is_none());
}
