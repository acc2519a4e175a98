//! Changes as a consumer hands them over.

use std::sync::mpsc;

use larix_engine::csn::Csn;
use larix_engine::replica::{ApplyOutcome, ReplicatedBatch, ReplicatedChange, ReplicatedOutcome};
use larix_engine::time::Timestamp;
use larix_engine::write::AttributeValues;
use larix_store::memory::MemoryStore;
use uuid::Uuid;

use crate::common::{self, Fixture, TREE, assert_sound};

pub(crate) type Memory = Fixture<MemoryStore>;

/// The `number`th CSN of a server, in seconds after the fixture's clock began.
pub(crate) fn csn(server_id: u16, number: i64) -> Csn {
    Csn { time: Timestamp(common::START.0 + number * 1_000_000), count: 0, server_id, modification: 0 }
}

pub(crate) fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A put of `cn=...` as a device or `ou=...` as a unit, with `more` attributes.
pub(crate) fn put(number: u128, dn: &str, csn: Csn, more: &[(&str, &str)]) -> ReplicatedChange {
    let (name, value) = dn.split(',').next().unwrap().split_once('=').unwrap();
    let class = if name == "ou" { "organizationalUnit" } else { "device" };
    let csn = csn.to_string();
    let uuid_text = uuid(number).to_string();
    let fixed = [
        ("objectClass", class),
        ("structuralObjectClass", class),
        (name, value),
        ("entryUUID", &uuid_text),
        ("entryCSN", &csn),
        ("creatorsName", "cn=somebody"),
        ("modifiersName", "cn=else"),
        ("createTimestamp", "20200101000000Z"),
        ("modifyTimestamp", "20200101000000Z"),
    ];
    let mut attributes: Vec<AttributeValues> = Vec::new();
    for (name, value) in fixed.iter().filter(|(name, _)| !more.iter().any(|(n, _)| n == name)).chain(more) {
        match attributes.iter_mut().find(|a| a.description == *name) {
            Some(attribute) => attribute.values.push(value.as_bytes().to_vec()),
            None => attributes.push(AttributeValues {
                description: (*name).to_owned(),
                values: vec![value.as_bytes().to_vec()],
            }),
        }
    }
    ReplicatedChange::Put {
        entry_uuid: uuid(number),
        dn: dn.to_owned(),
        attributes,
        state: None,
        place: None,
    }
}

pub(crate) fn delete(number: u128, csn: Csn) -> ReplicatedChange {
    ReplicatedChange::Delete { entry_uuid: uuid(number), csn: Some(csn) }
}

pub(crate) fn batch(fixture: &Memory, batch: ReplicatedBatch) -> ReplicatedOutcome {
    let (sender, receiver) = mpsc::channel();
    let served = &fixture.directory.databases()[0];
    served.replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
    outcome
}

pub(crate) fn word(applied: &ApplyOutcome) -> String {
    match applied {
        ApplyOutcome::Done => "done".to_owned(),
        ApplyOutcome::Older => "older".to_owned(),
        ApplyOutcome::Conflict(note) => format!("{:?} {:?}", note.kind, note.kept).to_lowercase(),
        ApplyOutcome::Refused(result) => format!("{} {}", result.code.0, result.diagnostic),
    }
}

/// Carries out changes, each in a batch of its own; the answers in a row.
pub(crate) fn apply(fixture: &Memory, changes: impl IntoIterator<Item = ReplicatedChange>) -> String {
    let words: Vec<String> = changes
        .into_iter()
        .map(|change| {
            let changes = vec![change];
            let outcome = batch(fixture, ReplicatedBatch { changes, ..Default::default() });
            word(&outcome.changes[0])
        })
        .collect();
    words.join(", ")
}

/// Says that everything up to these CSNs is in.
pub(crate) fn raise(fixture: &Memory, context_csns: &[Csn]) {
    batch(fixture, ReplicatedBatch { context_csns: context_csns.to_vec(), ..Default::default() });
}

pub(crate) fn filled() -> Memory {
    let fixture = Memory::new();
    fixture.apply(TREE);
    fixture
}

pub(crate) fn find_nothing(fixture: &Memory) {
    assert_sound(fixture.database(), "what replication wrote");
}

/// All orders of so many.
pub(crate) fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let longer = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(longer).collect()
}
