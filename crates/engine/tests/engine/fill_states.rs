//! The first fill of a database that keeps states of entries: these come beside the entries, and are then what they would be had
//! each entry been written for itself.

use std::collections::BTreeSet;
use std::sync::mpsc;

use larix_engine::DatabaseSettings;
use larix_engine::load::{Fill, FillOptions, LoadError};
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange, state_of};
use larix_engine::tables::{ENTRIES, REPLICA};
use larix_engine::write::AttributeValues;
use larix_proto::encode::EntryEncoder;
use larix_proto::{MessageId, Response};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::memory::MemoryStore;
use larix_store::{Direction, KeyRange, Snapshot, Store};
use uuid::Uuid;

use crate::common::{Fixture, SUFFIX, TREE, memory, schema, settings};
use crate::replica_records::modify;
use crate::replicated::csn;

/// The sequence in the key of a removed value's place among those that are forgotten.
const SEQUENCE: std::ops::Range<usize> = 1..9;

/// An entry as a provider that keeps states sends it.
#[derive(Clone, Debug)]
struct Sent {
    uuid: Uuid,
    dn: String,
    attributes: Vec<AttributeValues>,
    state: Option<Vec<u8>>,
}

/// `values`: with `conflict-mode value`; otherwise states are kept since records are merged.
fn keeping<S: Store>(store: S, values: bool) -> Fixture<S> {
    let schema = schema("");
    let settings = DatabaseSettings { value_conflicts: values, merges_records: !values, ..settings(&schema) };
    Fixture::of(schema, vec![(store, settings)])
}

fn provider(values: bool) -> Vec<Sent> {
    let f = keeping(memory(), values);
    f.apply(TREE);
    let dn = format!("cn=changed,{SUFFIX}");
    f.apply(&format!("dn: {dn}\nobjectClass: person\ncn: changed\nsn: c\ndescription: a\ndescription: b\n"));
    for change in [
        "add: description\ndescription: c\n-\ndelete: description\ndescription: a\n",
        "replace: telephoneNumber\ntelephoneNumber: 5\n",
        "delete: telephoneNumber\n",
    ] {
        f.apply(&format!("dn: {dn}\nchangetype: modify\n{change}-\n"));
    }
    f.apply(&format!("dn: {dn}\nchangetype: modrdn\nnewrdn: cn=renamed\ndeleteoldrdn: 1\n"));
    content(&f)
}

fn content(f: &Fixture<MemoryStore>) -> Vec<Sent> {
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    let ids = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).unwrap();
    let of = |id| {
        let stored = view.record(id).unwrap().unwrap();
        let reader = view.reader(id, &stored).unwrap();
        let entry = reader.to_owned(view.dn(&reader.view).unwrap(), true).unwrap();
        let attributes: Vec<AttributeValues> = entry
            .attributes
            .iter()
            .map(|attribute| AttributeValues {
                description: attribute.description.to_text(&f.schema),
                values: attribute.values.clone(),
            })
            .collect();
        let text = |name| {
            let found = attributes.iter().find(|attribute| attribute.description == name);
            String::from_utf8(found.unwrap().values[0].clone()).unwrap()
        };
        let uuid = text("entryUUID").parse().unwrap();
        let state = state_of(&view, &reader, &uuid, text("entryCSN").parse().ok()).unwrap();
        Sent { uuid, dn: entry.dn, attributes, state: Some(state) }
    };
    ids.map(|row| {
        of(row.unwrap().0[..].try_into().map(u64::from_be_bytes).map(larix_engine::EntryId).unwrap())
    })
    .collect()
}

fn begin<S: Store>(f: &Fixture<S>) -> Fill {
    let options = FillOptions { scratch: std::env::temp_dir(), schema_checking: true, threads: 2 };
    f.directory.databases()[0].fill(options).expect("an empty database")
}

fn fill<S: Store>(f: &Fixture<S>, entries: &[Sent]) -> Result<u64, LoadError> {
    let mut fill = begin(f);
    for sent in entries {
        let mut pdu = Vec::new();
        let mut entry = EntryEncoder::begin(&mut pdu, MessageId(1), &sent.dn);
        for attribute in &sent.attributes {
            entry.begin_attribute(&attribute.description);
            attribute.values.iter().for_each(|value| entry.value(value));
        }
        entry.finish(&[]);
        let message = Response::decode_message(&pdu).unwrap();
        let Response::Entry(entry) = message.response else { panic!("no entry") };
        fill.add(sent.uuid, &entry, sent.state.as_deref())?;
    }
    fill.finish(vec![csn(100, 1)])
}

fn replicate<S: Store>(f: &Fixture<S>, changes: Vec<ReplicatedChange>) {
    let (sender, receiver) = mpsc::channel();
    let batch = ReplicatedBatch { changes, ..ReplicatedBatch::default() };
    f.directory.databases()[0].replicate(batch, Box::new(move |done| sender.send(done).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
}

fn put(sent: &Sent) -> ReplicatedChange {
    let Sent { uuid, dn, attributes, state } = sent.clone();
    ReplicatedChange::Put { entry_uuid: uuid, dn, attributes, state, place: None }
}

/// Keys and values.
type Rows = BTreeSet<(Vec<u8>, Vec<u8>)>;

/// What is kept of entries, and the sequences under which removed values are remembered.
fn kept<S: Store>(f: &Fixture<S>) -> (Rows, BTreeSet<u64>) {
    let snapshot = f.database().store().snapshot().unwrap();
    let (mut rows, mut sequences) = (BTreeSet::new(), BTreeSet::new());
    for row in snapshot.scan(REPLICA, KeyRange::all(), Direction::Forward).unwrap() {
        let (key, row) = row.unwrap();
        let mut key = key.to_vec();
        if key[0] == b'w' {
            sequences.insert(u64::from_be_bytes(key[SEQUENCE].try_into().unwrap()));
            key.drain(SEQUENCE);
        }
        rows.insert((key, row.to_vec()));
    }
    (rows, sequences)
}

#[test]
fn states_are_as_if_each_entry_had_been_written() {
    for values in [false, true] {
        let entries = provider(values);
        let folder = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(folder.path(), &larix_engine::tables::TABLES, &LmdbOptions::default());
        let (one, other) = (keeping(store.unwrap(), values), keeping(memory(), values));
        assert_eq!(fill(&one, &entries).unwrap(), entries.len() as u64);
        replicate(&other, entries.iter().map(put).collect());
        let ((rows, sequences), (expected, _)) = (kept(&one), kept(&other));
        assert_eq!(rows, expected, "value mode {values}");
        let removed = rows.iter().filter(|(key, _)| key[0] == b'w').count();
        assert!(removed > 0, "a value was removed");
        // As long as the first record that the log will have.
        assert_eq!(sequences, BTreeSet::from([1]));
        for sent in &entries {
            assert_eq!(one.show(&sent.dn), other.show(&sent.dn));
        }
    }
}

#[test]
fn a_late_record_finds_what_was_removed() {
    let entries = provider(false);
    let f = keeping(memory(), false);
    fill(&f, &entries).unwrap();
    let changed = entries.iter().find(|sent| sent.dn.starts_with("cn=renamed")).unwrap();
    let late = |change| match change {
        ReplicatedChange::Delta { csn, change, .. } => ReplicatedChange::Delta {
            entry_uuid: Some(changed.uuid),
            dn: changed.dn.clone(),
            csn,
            change,
            place: None,
            whole: false,
        },
        other => other,
    };
    let old = larix_engine::csn::Csn { time: crate::common::START, count: 0, server_id: 9, modification: 0 };
    let add = larix_engine::log::LoggedKind::Add;
    replicate(&f, vec![late(modify(old, add, &["a"])), late(modify(csn(90, 9), add, &["d"]))]);
    let entry = f.entry(&changed.dn).unwrap();
    let description = f.schema.describe("description").unwrap();
    let values = entry.attributes.iter().find(|attribute| attribute.description == description).unwrap();
    let values: BTreeSet<&[u8]> = values.values.iter().map(Vec::as_slice).collect();
    assert_eq!(values, BTreeSet::from([&b"b"[..], b"c", b"d"]));
}

#[test]
fn a_state_that_cannot_be_taken_leaves_nothing() {
    let check = |values: bool, damage: &dyn Fn(&mut Sent), expected: &str| {
        let f = keeping(memory(), values);
        let mut entries = provider(values);
        damage(entries.last_mut().unwrap());
        let error = fill(&f, &entries).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(kept(&f), Default::default());
        let snapshot = f.database().store().snapshot().unwrap();
        let mut stored = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).unwrap();
        assert!(stored.next().is_none(), "{expected}");
    };
    let hide = |sent: &mut Sent| {
        sent.attributes.retain(|attribute| attribute.description != "description");
    };
    for values in [false, true] {
        check(values, &hide, "does not show all values of description: check its access rules");
        check(values, &|sent| sent.state = Some(vec![1, 2]), "its state cannot be read");
    }
    check(true, &|sent| sent.state = None, "it came without its state");
    let restamp = |sent: &mut Sent| {
        let stamp = sent.attributes.iter_mut().find(|attribute| attribute.description == "entryCSN");
        stamp.unwrap().values = vec![csn(99, 3).to_string().into_bytes()];
    };
    check(true, &restamp, "its state is not that of its entryCSN");
}
