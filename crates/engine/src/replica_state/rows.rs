//! States of entries in the table [`REPLICA`] (`docs/disk-format.md`): a row of the entry, one of each attribute that was
//! changed since, one of each value. A change of one value writes two rows, whatever else the entry has.

use larix_schema::{AttributeDescription, Schema};
use larix_store::{Direction, KeyRange, Snapshot, WriteSet};
use uuid::Uuid;

use super::registers::{AttributeChange, AttributeState, EntryState, Register, ValueKey};
use crate::csn::Csn;
use crate::fault::Fault;
use crate::log::CsnVector;
use crate::record::{DIGEST_LENGTH, digest};
use crate::tables::{META, REPLICA, meta};
use crate::time::Timestamp;

const STATE: u8 = b'v';
/// Removed values in the order in which they are forgotten.
const REMOVED: u8 = b'w';
/// What the rows of this file begin with.
pub(crate) const KINDS: [u8; 2] = [STATE, REMOVED];
const UUID_LENGTH: usize = 16;
const ENTRY_KEY: usize = 1 + UUID_LENGTH;
const ATTRIBUTE_KEY: usize = ENTRY_KEY + DIGEST_LENGTH;
const VALUE_KEY: usize = ATTRIBUTE_KEY + DIGEST_LENGTH;
const SEQUENCE_LENGTH: usize = 8;
const CSN_LENGTH: usize = 8 + 4 + 2 + 4;
const DAMAGED: Fault = Fault::Damaged { what: "the state of an entry" };

pub(crate) fn put_csn(out: &mut Vec<u8>, csn: &Csn) {
    out.extend_from_slice(&csn.time.0.to_be_bytes());
    out.extend_from_slice(&csn.count.to_be_bytes());
    out.extend_from_slice(&csn.server_id.to_be_bytes());
    out.extend_from_slice(&csn.modification.to_be_bytes());
}

pub(crate) fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

pub(crate) fn take_csn(from: &mut &[u8]) -> Option<Csn> {
    Some(Csn {
        time: Timestamp(i64::from_be_bytes(take(from)?)),
        count: u32::from_be_bytes(take(from)?),
        server_id: u16::from_be_bytes(take(from)?),
        modification: u32::from_be_bytes(take(from)?),
    })
}

pub(crate) fn put_optional(out: &mut Vec<u8>, csn: Option<&Csn>) {
    out.push(u8::from(csn.is_some()));
    csn.iter().for_each(|csn| put_csn(out, csn));
}

pub(crate) fn take_optional(from: &mut &[u8]) -> Option<Option<Csn>> {
    match take(from)? {
        [0] => Some(None),
        [1] => take_csn(from).map(Some),
        _ => None,
    }
}

fn entry_key(uuid: &Uuid) -> Vec<u8> {
    let mut key = Vec::with_capacity(VALUE_KEY);
    key.push(STATE);
    key.extend_from_slice(uuid.as_bytes());
    key
}

fn attribute_key(uuid: &Uuid, text: &str) -> Vec<u8> {
    let mut key = entry_key(uuid);
    key.extend_from_slice(&digest(text.as_bytes()));
    key
}

/// The state's own row, without its attributes.
pub(crate) fn encode_head(state: &EntryState) -> Vec<u8> {
    let mut out = Vec::new();
    put_optional(&mut out, state.base.as_ref());
    put_optional(&mut out, state.named.as_ref());
    state.seen.as_slice().iter().for_each(|csn| put_csn(&mut out, csn));
    out
}

pub(crate) fn decode_head(mut from: &[u8]) -> Option<EntryState> {
    let (base, named) = (take_optional(&mut from)?, take_optional(&mut from)?);
    let mut seen = CsnVector::default();
    while !from.is_empty() {
        seen.note(take_csn(&mut from)?);
    }
    Some(EntryState { base, named, seen, attributes: Default::default() })
}

fn encode_attribute(cleared: Option<&Csn>, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + CSN_LENGTH + text.len());
    put_optional(&mut out, cleared);
    out.extend_from_slice(text.as_bytes());
    out
}

fn decode_attribute(mut from: &[u8]) -> Option<(Option<Csn>, &str)> {
    let cleared = take_optional(&mut from)?;
    Some((cleared, std::str::from_utf8(from).ok()?))
}

fn encode_register(register: &Register) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + CSN_LENGTH);
    out.push(u8::from(register.present));
    put_csn(&mut out, &register.csn);
    out
}

fn decode_register(mut from: &[u8]) -> Option<Register> {
    let [present] = take(&mut from)?;
    let csn = take_csn(&mut from)?;
    from.is_empty().then_some(Register { csn, present: present == 1 })
}

/// The state without its attributes. One that does not end with the entry's present CSN says nothing: the entry was
/// changed while no state was kept, and begins anew.
pub(crate) fn head<S: Snapshot>(
    snapshot: &S,
    uuid: &Uuid,
    entry_csn: Option<Csn>,
) -> Result<(EntryState, bool), Fault> {
    let Some(row) = snapshot.get(REPLICA, &entry_key(uuid))? else {
        return Ok((EntryState::begin(entry_csn), false));
    };
    let state = decode_head(&row).ok_or(DAMAGED)?;
    match state.newest() == entry_csn {
        true => Ok((state, true)),
        false => Ok((EntryState::begin(entry_csn), false)),
    }
}

/// When an entry got its name.
pub(crate) fn named_csn<S: Snapshot>(
    snapshot: &S,
    uuid: &Uuid,
    entry_csn: Option<Csn>,
) -> Result<Option<Csn>, Fault> {
    Ok(head(snapshot, uuid, entry_csn)?.0.named)
}

/// The whole state. Attributes that the schema does not know any more are left out.
pub(crate) fn read<S: Snapshot>(
    schema: &Schema,
    snapshot: &S,
    uuid: &Uuid,
    entry_csn: Option<Csn>,
) -> Result<EntryState, Fault> {
    let (mut state, is_kept) = head(snapshot, uuid, entry_csn)?;
    if !is_kept {
        return Ok(state);
    }
    let mut at: Option<(Vec<u8>, AttributeDescription)> = None;
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&entry_key(uuid)), Direction::Forward)? {
        let (key, row) = row?;
        match key.len() {
            ENTRY_KEY => {}
            ATTRIBUTE_KEY => {
                let (cleared, text) = decode_attribute(&row).ok_or(DAMAGED)?;
                at = schema.describe(text).ok().map(|description| (key.to_vec(), description));
                if let Some((_, description)) = &at {
                    let attribute = AttributeState { cleared, ..AttributeState::default() };
                    state.attributes.insert(description.clone(), attribute);
                }
            }
            VALUE_KEY => {
                let register = decode_register(&row).ok_or(DAMAGED)?;
                let (of, value) = key.split_at_checked(ATTRIBUTE_KEY).ok_or(DAMAGED)?;
                let value: ValueKey = value.try_into().map_err(|_| DAMAGED)?;
                if let Some((_, description)) = at.as_ref().filter(|(key, _)| key == of)
                    && let Some(attribute) = state.attributes.get_mut(description)
                {
                    attribute.values.insert(value, register);
                }
            }
            _ => return Err(DAMAGED),
        }
    }
    Ok(state)
}

/// Removes all that is kept of an entry.
pub(crate) fn forget<S: Snapshot>(snapshot: &S, set: &mut WriteSet, uuid: &Uuid) -> Result<(), Fault> {
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&entry_key(uuid)), Direction::Forward)? {
        set.delete(REPLICA, &row?.0);
    }
    Ok(())
}

pub(crate) fn put_head(set: &mut WriteSet, uuid: &Uuid, state: &EntryState) {
    set.put(REPLICA, &entry_key(uuid), encode_head(state));
}

/// Writes what one request did to an attribute. `sequence`: of the log's record of it. `kept`: whether the rows that there
/// are stand for anything.
pub(crate) fn put_change<S: Snapshot>(
    snapshot: &S,
    set: &mut WriteSet,
    (uuid, text, kept): (&Uuid, &str, bool),
    (change, csn, sequence): (&AttributeChange, Csn, u64),
) -> Result<(), Fault> {
    let key = attribute_key(uuid, text);
    if change.whole {
        for row in snapshot.scan(REPLICA, KeyRange::prefix(&key), Direction::Forward)? {
            set.delete(REPLICA, &row?.0);
        }
        set.put(REPLICA, &key, encode_attribute(Some(&csn), text));
    } else if !kept || snapshot.get(REPLICA, &key)?.is_none() {
        set.put(REPLICA, &key, encode_attribute(None, text));
    }
    for (value, register) in change.registers(csn) {
        put_register(set, &key, &value, &register, sequence);
    }
    Ok(())
}

fn put_register(set: &mut WriteSet, attribute: &[u8], value: &ValueKey, register: &Register, sequence: u64) {
    let key = [attribute, value.as_slice()].concat();
    put_row(set, &key, encode_register(register), sequence);
}

/// Writes a row of a state; that of a removed value with its place among those that are forgotten.
pub(crate) fn put_row(set: &mut WriteSet, key: &[u8], row: Vec<u8>, sequence: u64) {
    if key.len() == VALUE_KEY && row.first() == Some(&u8::from(false)) {
        let mut order = vec![REMOVED];
        order.extend_from_slice(&sequence.to_be_bytes());
        order.extend_from_slice(key.get(1..).unwrap_or_default());
        set.put(REPLICA, &order, row.clone());
    }
    set.put(REPLICA, key, row);
}

/// The rows of a state, but for the order in which removed values are forgotten: none of one that says nothing yet.
pub(crate) fn rows_of(schema: &Schema, uuid: &Uuid, state: &EntryState) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    if state.is_begin() {
        return rows;
    }
    rows.push((entry_key(uuid), encode_head(state)));
    for (description, attribute) in &state.attributes {
        let text = description.to_text(schema);
        let key = attribute_key(uuid, &text);
        let of_value = |(value, register): (&ValueKey, &Register)| {
            ([key.as_slice(), value.as_slice()].concat(), encode_register(register))
        };
        let values = attribute.values.iter().map(of_value).collect::<Vec<_>>();
        rows.push((key, encode_attribute(attribute.cleared.as_ref(), &text)));
        rows.extend(values);
    }
    rows
}

/// Whether anything is kept of an attribute.
pub(crate) fn has_attribute<S: Snapshot>(snapshot: &S, uuid: &Uuid, text: &str) -> Result<bool, Fault> {
    Ok(snapshot.get(REPLICA, &attribute_key(uuid, text))?.is_some())
}

/// The register of one value, if it has one.
pub(crate) fn register<S: Snapshot>(
    snapshot: &S,
    (uuid, text): (&Uuid, &str),
    value: &ValueKey,
) -> Result<Option<Register>, Fault> {
    let key = [attribute_key(uuid, text).as_slice(), value.as_slice()].concat();
    let Some(row) = snapshot.get(REPLICA, &key)? else { return Ok(None) };
    decode_register(&row).map(Some).ok_or(DAMAGED)
}

/// Makes the rows of an entry those of a state.
pub(crate) fn replace<S: Snapshot>(
    schema: &Schema,
    snapshot: &S,
    set: &mut WriteSet,
    (uuid, state): (&Uuid, &EntryState),
    sequence: u64,
) -> Result<(), Fault> {
    let mut old = std::collections::BTreeMap::new();
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&entry_key(uuid)), Direction::Forward)? {
        let (key, row) = row?;
        old.insert(key.to_vec(), row.to_vec());
    }
    for (key, row) in rows_of(schema, uuid, state) {
        if old.remove(&key).is_none_or(|old| old != row) {
            put_row(set, &key, row, sequence);
        }
    }
    old.keys().for_each(|key| set.delete(REPLICA, key));
    Ok(())
}

/// The latest removal of a value, of whatever entry, that is not remembered any more: a value that was set before that and is
/// not there may have been removed since.
pub(crate) fn forgotten<S: Snapshot>(snapshot: &S) -> Result<Option<Csn>, Fault> {
    let Some(row) = snapshot.get(META, meta::FORGOTTEN_REMOVAL)? else { return Ok(None) };
    let csn = std::str::from_utf8(&row).ok().and_then(|text| text.parse().ok());
    csn.map(Some).ok_or(Fault::Damaged { what: "the CSN of removals that are forgotten" })
}

/// Forgets removed values with the log's records of their removal: those before the sequence `first`, `limit` at most.
pub(crate) fn trim<S: Snapshot>(
    snapshot: &S,
    set: &mut WriteSet,
    first: u64,
    limit: usize,
) -> Result<(), Fault> {
    let mut latest = None;
    for row in snapshot.scan(REPLICA, KeyRange::prefix(&[REMOVED]), Direction::Forward)?.take(limit) {
        let (order, register) = row?;
        let (sequence, rest) =
            order.get(1..).and_then(|rest| rest.split_at_checked(SEQUENCE_LENGTH)).ok_or(DAMAGED)?;
        if *sequence >= *first.to_be_bytes().as_slice() {
            break;
        }
        let key = [[STATE].as_slice(), rest].concat();
        if snapshot.get(REPLICA, &key)?.is_some_and(|row| *row == *register) {
            latest = latest.max(decode_register(&register).map(|register| register.csn));
            set.delete(REPLICA, &key);
        }
        set.delete(REPLICA, &order);
    }
    if let Some(latest) = latest
        && forgotten(snapshot)? < Some(latest)
    {
        set.put(META, meta::FORGOTTEN_REMOVAL, latest.text().into_bytes());
    }
    Ok(())
}

/// What a check of the database says of a row; none that it is another's.
pub(crate) fn check_row(key: &[u8], row: &[u8]) -> Option<bool> {
    let (kind, rest) = key.split_first()?;
    Some(match (*kind, rest.len() + 1) {
        (STATE, ENTRY_KEY) => decode_head(row).is_some(),
        (STATE, ATTRIBUTE_KEY) => decode_attribute(row).is_some(),
        (STATE, VALUE_KEY) => decode_register(row).is_some(),
        (REMOVED, length) => length == VALUE_KEY + SEQUENCE_LENGTH && decode_register(row).is_some(),
        (STATE, _) => false,
        _ => return None,
    })
}
