//! What replication remembers beside the entries: tombstones of deleted entries, names that entries had or should have ([`places`]), and
//! the states of entries whose conflicts are settled value by value ([`registers`], [`rows`]).
//!
//! All of it stands in the table [`REPLICA`] (`docs/disk-format.md`) and changes in the transaction of what causes it.

mod places;
pub(crate) mod registers;
pub(crate) mod rows;
pub(crate) mod wire;

use larix_schema::{AttributeDescription, NormalDn, Schema};
use larix_store::{Direction, KeyRange, PostingCursor, Snapshot, WriteSet};
use uuid::Uuid;

pub use crate::change::prepare::is_computed;
use crate::change::values;
use crate::csn::Csn;
use crate::database::View;
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::index::{self, KeyKind, Kinds};
use crate::log::EntryPlace;
use crate::record::{DIGEST_LENGTH, digest};
use crate::tables::{INDEX, REPLICA};

pub(crate) use places::stands;
pub use places::{ENTRY_PLACE_OID, EntryPlaces};
pub use wire::{ENTRY_STATE_OID, VALUE_MODE_OID, state_of};

const TOMBSTONE: u8 = b'd';
const TOMBSTONE_ORDER: u8 = b's';
const DISPLACED: u8 = b'p';
const FORMER: u8 = b'f';
const FORMER_ORDER: u8 = b'o';
const NEW_GLUE: u8 = b'g';
const PENDING_PLACE: u8 = b'e';
pub(crate) const CONFLICT: u8 = b'c';

/// No two kinds of rows begin alike.
const _: () = {
    let [state, removed] = rows::KINDS;
    let kinds = [
        TOMBSTONE,
        TOMBSTONE_ORDER,
        DISPLACED,
        FORMER,
        FORMER_ORDER,
        NEW_GLUE,
        PENDING_PLACE,
        CONFLICT,
        state,
        removed,
    ];
    let (mut seen, mut at) = (0_u128, 0);
    while at < kinds.len() {
        assert!(seen & (1 << kinds[at]) == 0, "two kinds of rows of the table replica begin alike");
        seen |= 1 << kinds[at];
        at += 1;
    }
};

/// When an entry was deleted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    /// Of the log's record of the delete: they go together.
    pub(crate) sequence: u64,
    pub(crate) csn: Csn,
}

/// The RDN of an entry whose own is another's, as it is shown and its normal form: no other entry can have it.
pub(crate) fn own_rdn(schema: &Schema, uuid: &Uuid) -> (String, String) {
    let rdn = format!("entryUUID={uuid}");
    let normal = schema.parse_dn(&rdn).map_or_else(|_| rdn.clone(), |dn| dn.as_str().to_owned());
    (rdn, normal)
}

fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + rest.len());
    key.push(kind);
    key.extend_from_slice(rest);
    key
}

const DAMAGED: Fault = Fault::Damaged { what: "a row of the table replica" };

pub(crate) fn tombstone<S: Snapshot>(snapshot: &S, uuid: &Uuid) -> Result<Option<Tombstone>, Fault> {
    let Some(row) = snapshot.get(REPLICA, &key(TOMBSTONE, uuid.as_bytes()))? else { return Ok(None) };
    let read = || {
        let (sequence, csn) = row.split_first_chunk::<8>()?;
        let csn = std::str::from_utf8(csn).ok()?.parse().ok()?;
        Some(Tombstone { sequence: u64::from_be_bytes(*sequence), csn })
    };
    read().map(Some).ok_or(DAMAGED)
}

/// The deletes that are remembered, by entryUUID, behind this one; `limit` at most.
///
/// # Errors
/// A store that cannot be read.
pub fn deletes_after<S: Snapshot>(
    snapshot: &S,
    after: Option<Uuid>,
    limit: usize,
) -> Result<Vec<(Uuid, Csn)>, Fault> {
    let prefix = [TOMBSTONE];
    let start = after.map(|uuid| key(TOMBSTONE, uuid.as_bytes()));
    let all = KeyRange::prefix(&prefix);
    let range = start.as_deref().map_or(all, |start| KeyRange::prefix(&prefix).after(start));
    let mut found = Vec::new();
    for row in snapshot.scan(REPLICA, range, Direction::Forward)?.take(limit) {
        let (row_key, _) = row?;
        let uuid = row_key.get(1..).and_then(|uuid| Uuid::from_slice(uuid).ok()).ok_or(DAMAGED)?;
        let dead = tombstone(snapshot, &uuid)?.ok_or(DAMAGED)?;
        found.push((uuid, dead.csn));
    }
    Ok(found)
}

/// Remembers a delete for as long as the log keeps its record.
pub(crate) fn bury(set: &mut WriteSet, uuid: &Uuid, tombstone: Tombstone) {
    let sequence = tombstone.sequence.to_be_bytes();
    let mut row = sequence.to_vec();
    row.extend_from_slice(tombstone.csn.text().as_bytes());
    set.put(REPLICA, &key(TOMBSTONE, uuid.as_bytes()), row);
    set.put(REPLICA, &key(TOMBSTONE_ORDER, &sequence), uuid.as_bytes().as_slice());
}

/// Removes the tombstone: a client has added the entry again on purpose.
pub(crate) fn unbury(set: &mut WriteSet, uuid: &Uuid) {
    set.delete(REPLICA, &key(TOMBSTONE, uuid.as_bytes()));
}

/// Forgets deletes whose records the log no longer has: those before the sequence `first`, `limit` at most.
pub(crate) fn trim<S: Snapshot>(
    snapshot: &S,
    set: &mut WriteSet,
    first: u64,
    limit: usize,
) -> Result<(), Fault> {
    let prefix = [TOMBSTONE_ORDER];
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&prefix), Direction::Forward)?.take(limit) {
        let (row_key, uuid) = row?;
        let sequence = row_key.get(1..).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        let (Some(sequence), Ok(uuid)) = (sequence, Uuid::from_slice(&uuid)) else { return Err(DAMAGED) };
        if sequence >= first {
            break;
        }
        // Deleted again since, it has a later one.
        if tombstone(snapshot, &uuid)?.is_some_and(|known| known.sequence == sequence) {
            set.delete(REPLICA, &key(TOMBSTONE, uuid.as_bytes()));
        }
        set.delete(REPLICA, &row_key);
    }
    trim_former(snapshot, set, first, limit)?;
    rows::trim(snapshot, set, first, limit)
}

fn trim_former<S: Snapshot>(snapshot: &S, set: &mut WriteSet, first: u64, limit: usize) -> Result<(), Fault> {
    let prefix = [FORMER_ORDER];
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&prefix), Direction::Forward)?.take(limit) {
        let (row_key, name) = row?;
        let sequence = row_key.get(1..).ok_or(DAMAGED)?;
        if *sequence >= *first.to_be_bytes().as_slice() {
            break;
        }
        let name = key(FORMER, &name);
        if snapshot.get(REPLICA, &name)?.is_some_and(|row| row.starts_with(sequence)) {
            set.delete(REPLICA, &name);
        }
        set.delete(REPLICA, &row_key);
    }
    Ok(())
}

/// Remembers which name an entry was to have that another one has.
pub(crate) fn displace(set: &mut WriteSet, id: EntryId, name: &NormalDn) {
    set.put(REPLICA, &key(DISPLACED, &id.to_bytes()), name.as_str().as_bytes());
}

pub(crate) fn forget_displaced(set: &mut WriteSet, id: EntryId) {
    set.delete(REPLICA, &key(DISPLACED, &id.to_bytes()));
}

/// The entries that have not the name that they were to have, and that name.
pub(crate) fn displaced<S: Snapshot>(snapshot: &S) -> Result<Vec<(EntryId, NormalDn)>, Fault> {
    let mut found = Vec::new();
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&[DISPLACED]), Direction::Forward)? {
        let (row_key, name) = row?;
        let id = row_key.get(1..).and_then(EntryId::from_prefix).ok_or(DAMAGED)?;
        let name = std::str::from_utf8(&name).map_err(|_| DAMAGED)?;
        found.push((id, NormalDn::from_normal(name)));
    }
    Ok(found)
}

/// The place that a version of an entry has, where the entry does not stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingPlace {
    /// Of the version: when the entry got its name.
    pub(crate) csn: Csn,
    pub(crate) place: EntryPlace,
}

impl PendingPlace {
    fn decode(row: &[u8]) -> Option<Self> {
        let (length, rest) = row.split_first()?;
        let (csn, place) = rest.split_at_checked(usize::from(*length))?;
        let csn = std::str::from_utf8(csn).ok()?.parse().ok()?;
        Some(Self { csn, place: EntryPlace::decode(place)? })
    }
}

pub(crate) fn put_pending_place(set: &mut WriteSet, id: EntryId, pending: &PendingPlace) {
    let csn = pending.csn.text();
    // A CSN has forty characters.
    let mut row = vec![u8::try_from(csn.len()).unwrap_or_default()];
    row.extend_from_slice(csn.as_bytes());
    row.extend_from_slice(&pending.place.encode());
    set.put(REPLICA, &key(PENDING_PLACE, &id.to_bytes()), row);
}

pub(crate) fn forget_pending_place(set: &mut WriteSet, id: EntryId) {
    set.delete(REPLICA, &key(PENDING_PLACE, &id.to_bytes()));
}

pub(crate) fn pending_place<S: Snapshot>(snapshot: &S, id: EntryId) -> Result<Option<PendingPlace>, Fault> {
    let Some(row) = snapshot.get(REPLICA, &key(PENDING_PLACE, &id.to_bytes()))? else { return Ok(None) };
    PendingPlace::decode(&row).map(Some).ok_or(DAMAGED)
}

/// Whether any entry stands elsewhere than its version says.
pub(crate) fn has_pending_places<S: Snapshot>(snapshot: &S) -> Result<bool, Fault> {
    let mut rows = snapshot.scan(REPLICA, KeyRange::prefix(&[PENDING_PLACE]), Direction::Forward)?;
    Ok(rows.next().transpose()?.is_some())
}

/// The entries that stand elsewhere than their versions say.
pub(crate) fn pending_places<S: Snapshot>(snapshot: &S) -> Result<Vec<(EntryId, PendingPlace)>, Fault> {
    let mut found = Vec::new();
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&[PENDING_PLACE]), Direction::Forward)? {
        let (row_key, row) = row?;
        let id = row_key.get(1..).and_then(EntryId::from_prefix).ok_or(DAMAGED)?;
        found.push((id, PendingPlace::decode(&row).ok_or(DAMAGED)?));
    }
    Ok(found)
}

/// Who had a name before.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) uuid: Uuid,
    /// Of the rename.
    pub(crate) csn: Csn,
}

/// Remembers who left a name, for as long as the log keeps the record of it.
pub(crate) fn put_former(set: &mut WriteSet, dn: &NormalDn, uuid: &Uuid, left: Tombstone) {
    let name = digest(dn.as_str().as_bytes());
    let sequence = left.sequence.to_be_bytes();
    let mut row = sequence.to_vec();
    row.extend_from_slice(uuid.as_bytes());
    row.extend_from_slice(left.csn.text().as_bytes());
    set.put(REPLICA, &key(FORMER, &name), row);
    set.put(REPLICA, &key(FORMER_ORDER, &sequence), name.as_slice());
}

pub(crate) fn former<S: Snapshot>(snapshot: &S, dn: &NormalDn) -> Result<Option<Former>, Fault> {
    let Some(row) = snapshot.get(REPLICA, &key(FORMER, &digest(dn.as_str().as_bytes())))? else {
        return Ok(None);
    };
    let read = || {
        let (uuid, csn) = row.get(8..)?.split_first_chunk::<16>()?;
        let csn = std::str::from_utf8(csn).ok()?.parse().ok()?;
        Some(Former { uuid: Uuid::from_bytes(*uuid), csn })
    };
    read().map(Some).ok_or(DAMAGED)
}

/// Glue that may yet be filled in before it is looked for who had its name. `has_place`: it is for an entry that came with its
/// place.
pub(crate) fn note_glue(set: &mut WriteSet, id: EntryId, has_place: bool) {
    set.put(REPLICA, &key(NEW_GLUE, &id.to_bytes()), [u8::from(has_place)]);
}

pub(crate) fn forget_glue(set: &mut WriteSet, id: EntryId) {
    set.delete(REPLICA, &key(NEW_GLUE, &id.to_bytes()));
}

pub(crate) fn new_glue<S: Snapshot>(snapshot: &S) -> Result<Vec<(EntryId, bool)>, Fault> {
    let mut found = Vec::new();
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&[NEW_GLUE]), Direction::Forward)? {
        let (row_key, row) = row?;
        let id = row_key.get(1..).and_then(EntryId::from_prefix).ok_or(DAMAGED)?;
        found.push((id, row.first().is_some_and(|has_place| *has_place != 0)));
    }
    Ok(found)
}

/// What the table has, for a check of the database.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaRows {
    pub tombstones: u64,
    pub displaced: u64,
    pub conflicts: u64,
}

/// Goes through the table and reports what does not fit. `is_conflict` says whether a conflict can be read.
pub(crate) fn check<S: Snapshot>(
    snapshot: &S,
    is_conflict: &dyn Fn(&[u8]) -> bool,
    is_here: &mut dyn FnMut(&Uuid) -> Result<bool, Fault>,
    report: &mut dyn FnMut(String),
) -> Result<ReplicaRows, Fault> {
    let mut rows = ReplicaRows::default();
    for row in snapshot.scan(REPLICA, KeyRange::all(), Direction::Forward)? {
        let (row_key, value) = row?;
        let (kind, rest) = match row_key.split_first() {
            Some((kind, rest)) => (*kind, rest),
            None => continue,
        };
        match (kind, Uuid::from_slice(rest)) {
            (TOMBSTONE, Ok(uuid)) => {
                rows.tombstones += 1;
                match tombstone(snapshot, &uuid) {
                    Ok(Some(_)) if is_here(&uuid)? => {
                        report(format!("{uuid} is said to be deleted and is there"));
                    }
                    Ok(_) => {}
                    Err(_) => report(format!("the delete of {uuid} cannot be read")),
                }
            }
            (DISPLACED, _) if rest.len() == 8 && std::str::from_utf8(&value).is_ok() => rows.displaced += 1,
            (TOMBSTONE_ORDER | FORMER_ORDER, _) if rest.len() == 8 && value.len() == 16 => {}
            (FORMER, _) if rest.len() == DIGEST_LENGTH && value.len() > 24 => {}
            (NEW_GLUE, _) if rest.len() == 8 => {}
            (PENDING_PLACE, _) if rest.len() == 8 && PendingPlace::decode(&value).is_some() => {}
            (CONFLICT, _) if rest.len() == 8 => {
                rows.conflicts += 1;
                if !is_conflict(&value) {
                    report(format!("conflict {} cannot be read", rows.conflicts));
                }
            }
            _ => match rows::check_row(&row_key, &value) {
                Some(true) => {}
                Some(false) => report("a state of an entry cannot be read".to_owned()),
                None => report("a row that is none of the table's".to_owned()),
            },
        }
    }
    Ok(rows)
}

/// The entry with this entryUUID, by the index; `None` while the index is being built.
pub fn entry_of<N: Snapshot>(view: &View<'_, N>, uuid: &Uuid) -> Result<Option<EntryId>, Fault> {
    let Some(kind) = view.schema.attribute_type("entryUUID") else { return Ok(None) };
    let Some(number) = view.catalog.number(&AttributeDescription::plain(kind.id)) else { return Ok(None) };
    if !view.catalog.row(number).is_some_and(|row| row.usable().has(Kinds::EQUALITY)) {
        return Ok(None);
    }
    let normal = values::key(&view.schema, kind, uuid.to_string().as_bytes()).unwrap_or_default();
    let key = index::key::make(number, KeyKind::Equality, &normal);
    Ok(view.snapshot.postings(INDEX, &key)?.next()?.map(EntryId))
}
