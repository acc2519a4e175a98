//! Values that live outside of the record: large sets in the table `values`, long values in `blobs`.
//!
//! A large set is a sorted tree of its own, so that one value is found, added or removed in O(log n). Its keys are
//! `entry id ++ attribute number ++ member key`; the member key is the tail of the equality index key.

use larix_schema::{InvalidValue, MatchingRule, Schema};
use larix_store::{Direction, KeyRange, Snapshot};

use super::{AttributeNumber, EntryId};
use crate::fault::Fault;
use crate::key::{self, KeyKind};
use crate::record::DIGEST_LENGTH;
use crate::tables::{BLOBS, VALUES};

/// The key of a value within its large set.
pub fn member_key(schema: &Schema, rule: &MatchingRule, value: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let mut normal = Vec::with_capacity(value.len());
    rule.normalize_value(schema, value, &mut normal)?;
    Ok(member_key_of_normal(&normal))
}

/// The key of a value that is normalized already.
pub fn member_key_of_normal(normal: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(normal.len() + key::END.len());
    member_key_of_normal_into(&mut out, normal);
    out
}

/// As [`member_key_of_normal`], behind what stands in `out`.
pub(crate) fn member_key_of_normal_into(out: &mut Vec<u8>, normal: &[u8]) {
    key::put_value(out, normal);
}

/// The equality index key of a member.
pub(crate) fn index_key_of_member(number: AttributeNumber, member: &[u8]) -> Vec<u8> {
    let mut out = number.0.to_be_bytes().to_vec();
    out.push(KeyKind::Equality as u8);
    out.extend_from_slice(member);
    out
}

/// The key in the table `values`; with an empty member, what all keys of the set begin with.
pub(crate) fn set_key(entry: EntryId, number: AttributeNumber, member: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + member.len());
    out.extend_from_slice(&entry.to_bytes());
    out.extend_from_slice(&number.0.to_be_bytes());
    out.extend_from_slice(member);
    out
}

/// The key in the table `blobs`.
pub(crate) fn blob_key(entry: EntryId, digest: &[u8; DIGEST_LENGTH]) -> [u8; 8 + DIGEST_LENGTH] {
    let mut out = [0; 8 + DIGEST_LENGTH];
    let (head, tail) = out.split_at_mut(8);
    head.copy_from_slice(&entry.to_bytes());
    tail.copy_from_slice(digest);
    out
}

/// Whether the large set has this member.
pub fn contains(
    snapshot: &impl Snapshot,
    entry: EntryId,
    number: AttributeNumber,
    member: &[u8],
) -> Result<bool, Fault> {
    Ok(snapshot.get(VALUES, &set_key(entry, number, member))?.is_some())
}

/// The value of a large set that has this member key.
pub fn get<S: Snapshot>(
    snapshot: &S,
    entry: EntryId,
    number: AttributeNumber,
    member: &[u8],
) -> Result<Option<Vec<u8>>, Fault> {
    Ok(snapshot.get(VALUES, &set_key(entry, number, member))?.map(|value| value.to_vec()))
}

/// Calls `visit` with each member key and value of a large set in key order, until it answers false.
pub fn visit(
    snapshot: &impl Snapshot,
    entry: EntryId,
    number: AttributeNumber,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), Fault> {
    let prefix = set_key(entry, number, &[]);
    for row in snapshot.scan(VALUES, KeyRange::prefix(&prefix), Direction::Forward)? {
        let (key, value) = row?;
        let member = key.get(prefix.len()..).unwrap_or_default();
        if !visit(member, &value) {
            break;
        }
    }
    Ok(())
}

/// Calls `visit` with a long value.
pub(crate) fn with_blob<T>(
    snapshot: &impl Snapshot,
    entry: EntryId,
    digest: &[u8; DIGEST_LENGTH],
    visit: impl FnOnce(&[u8]) -> T,
) -> Result<T, Fault> {
    match snapshot.get(BLOBS, &blob_key(entry, digest))? {
        Some(value) => Ok(visit(&value)),
        None => Err(Fault::Missing { entry, what: "a long value" }),
    }
}
