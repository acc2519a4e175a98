//! Substring keys that are not in the index yet.
//!
//! An entry has dozens of substring keys, each in a page of its own: written at once they are most of what an add
//! costs. So a change writes them in one row of the table `pending`, under the entry's id, and the writer brings them
//! into the index later, many entries at a time and in key order ([`super::merge`]).
//!
//! A row says of each key in it whether the entry has it now. It overrides the index, which may hold the key or not:
//! bringing a row in twice, or an old state of it, does no harm as long as the row stands. A reader takes the entries
//! whose rows may matter as candidates, to be verified.

use std::collections::BTreeMap;

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};

use super::keys::{self, IndexChanges};
use super::{KeyKind, key};
use crate::entry::record::{put_varint, take_varint};
use crate::entry::{AttributeNumber, EntryId};
use crate::fault::Fault;
use crate::key::HEAD_LENGTH;
use crate::tables::{INDEX, META, PENDING};

/// Most keys of a row; what is beyond goes into the index at once.
pub(crate) const ROW_KEYS_MAX: usize = 2_048;

/// Room for most rows.
const USUAL_BYTES: usize = 512;

const VERSION: u8 = 1;
/// All substring keys of the entry are in the row.
const WHOLE: u8 = 1;
/// In the kind's byte of a run: the entry has these keys.
const PRESENT: u8 = 0x80;
const DAMAGED: Fault = Fault::Damaged { what: "a row of pending index keys" };

/// Whether keys of this kind are brought into the index late.
pub fn is_late(kind: KeyKind) -> bool {
    matches!(kind, KeyKind::Initial | KeyKind::Any | KeyKind::Final)
}

/// A row: each key, without what all keys end with, and whether the entry has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub whole: bool,
    pub keys: BTreeMap<Vec<u8>, bool>,
}

/// What is known of the entry whose index changes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// It is new, and cannot have a row.
    New,
    Changed,
    /// It is one of many: without a row that stands, all goes into the index at once.
    OneOfMany,
}

/// Writes the index changes of one entry: substring keys into its row, the others into the index.
pub fn apply<S: Snapshot>(
    set: &mut WriteSet,
    snapshot: &S,
    entry: EntryId,
    changes: &IndexChanges,
    writing: Writing,
) -> Result<(), Fault> {
    for number in &changes.leaving {
        let note = keys::left_keys_note(*number);
        if snapshot.get(META, &note)?.is_none() {
            set.put(META, &note, []);
        }
    }
    let added = changes.added.iter().map(|key| (key, true));
    let all = changes.removed.iter().map(|key| (key, false)).chain(added);
    let mut late: Vec<(&[u8], bool)> = Vec::with_capacity(changes.added.len() + changes.removed.len());
    for (key, present) in all {
        match late_part(key) {
            Some(part) => late.push((part, present)),
            None => put_posting(set, key, entry, present),
        }
    }
    if late.is_empty() {
        return Ok(());
    }
    let new = writing == Writing::New;
    let stored = if new { None } else { snapshot.get(PENDING, &entry.to_bytes())? };
    if stored.is_none() && writing == Writing::OneOfMany {
        late.into_iter().for_each(|(part, present)| put_posting(set, &whole_key(part), entry, present));
        return Ok(());
    }
    if stored.is_none() && late.len() <= ROW_KEYS_MAX {
        set.put(PENDING, &entry.to_bytes(), encode(new, late.into_iter()));
        return Ok(());
    }
    let mut row = stored.map(|stored| Row::decode(&stored)).transpose()?.unwrap_or_default();
    for (part, present) in late {
        let room = row.keys.len() < ROW_KEYS_MAX;
        match row.keys.get_mut(part) {
            Some(known) => *known = present,
            None if room => {
                row.keys.insert(part.to_vec(), present);
            }
            None => {
                row.whole = false;
                put_posting(set, &whole_key(part), entry, present);
            }
        }
    }
    if !row.keys.is_empty() {
        set.put(PENDING, &entry.to_bytes(), row.encode());
    }
    Ok(())
}

fn put_posting(set: &mut WriteSet, key: &[u8], entry: EntryId, present: bool) {
    if present {
        set.add_posting(INDEX, key, entry.0);
    } else {
        set.remove_posting(INDEX, key, entry.0);
    }
}

/// A substring key without its end, which is the same for all: their values are short.
pub(crate) fn late_part(key: &[u8]) -> Option<&[u8]> {
    let (_, kind) = key::parse_head(key)?;
    if is_late(kind) { key.strip_suffix(&key::END) } else { None }
}

/// The index key of a part.
pub(crate) fn whole_key(part: &[u8]) -> Vec<u8> {
    [part, &key::END].concat()
}

impl Row {
    pub fn encode(&self) -> Vec<u8> {
        encode(self.whole, self.keys.iter().map(|(part, present)| (part.as_slice(), *present)))
    }

    /// Whether the entry has `key`; none if the row does not tell.
    pub fn says(&self, key: &[u8]) -> Option<bool> {
        self.keys.get(late_part(key)?).copied()
    }

    /// # Errors
    /// Bytes that [`Self::encode`] did not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let mut row = Self { whole: is_whole(bytes)?, keys: BTreeMap::new() };
        for run in Runs::new(bytes)? {
            let run = run?;
            let mut head = run.number.0.to_be_bytes().to_vec();
            head.push(run.kind as u8);
            for tail in run.tails() {
                row.keys.insert([&head, tail?].concat(), run.present);
            }
        }
        Ok(row)
    }
}

/// The row of an entry, if it has one.
pub fn row<S: Snapshot>(snapshot: &S, entry: EntryId) -> Result<Option<Row>, Fault> {
    snapshot.get(PENDING, &entry.to_bytes())?.map(|bytes| Row::decode(&bytes)).transpose()
}

/// A row of parts; those of one attribute and presence ascend. Parts of one attribute and kind that are alike in length
/// and presence are a run: number, kind, length, count, then their tails.
fn encode<'k>(whole: bool, parts: impl Iterator<Item = (&'k [u8], bool)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    out.extend_from_slice(&[VERSION, if whole { WHOLE } else { 0 }]);
    let mut runs: Vec<(&[u8; HEAD_LENGTH], bool, usize, Vec<u8>)> = Vec::new();
    // Where the part before went: nearly always this one goes there, too.
    let mut last = 0;
    for (part, present) in parts {
        let Some((head, tail)) = part.split_first_chunk() else { continue };
        let alike = |run: &(&[u8; HEAD_LENGTH], bool, usize, Vec<u8>)| {
            run.0 == head && run.1 == present && run.2 == tail.len()
        };
        if !runs.get(last).is_some_and(alike) {
            let back = runs.iter().rev().take(RUNS_OF_A_KIND).position(alike);
            last = back.map_or(runs.len(), |back| runs.len() - 1 - back);
        }
        match runs.get_mut(last) {
            Some(run) => run.3.extend_from_slice(tail),
            None => runs.push((head, present, tail.len(), tail.to_vec())),
        }
    }
    for (head, present, length, tails) in runs {
        let Some((number, kind)) = head.split_first_chunk::<4>() else { continue };
        let kind = kind.first().copied().unwrap_or_default();
        put_varint(&mut out, u64::from(u32::from_be_bytes(*number)));
        out.push(kind | if present { PRESENT } else { 0 });
        put_varint(&mut out, length as u64);
        put_varint(&mut out, tails.len().checked_div(length).unwrap_or(1) as u64);
        out.extend_from_slice(&tails);
    }
    out
}

/// The row of a new entry in the making: all substring keys of the entry are in it.
#[derive(Debug)]
pub(crate) struct NewRow {
    bytes: Vec<u8>,
    keys: usize,
}

impl Default for NewRow {
    fn default() -> Self {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        bytes.extend_from_slice(&[VERSION, WHOLE]);
        Self { bytes, keys: 0 }
    }
}

impl NewRow {
    /// Begins a run of `count` keys of one attribute and kind, whose values have `length` bytes as they stand in a key. The caller appends
    /// these to the bytes, ascending.
    pub(crate) fn begin_run(
        &mut self,
        (number, kind): (AttributeNumber, KeyKind),
        length: usize,
        count: usize,
    ) -> &mut Vec<u8> {
        put_varint(&mut self.bytes, u64::from(number.0));
        self.bytes.push(kind as u8 | PRESENT);
        put_varint(&mut self.bytes, length as u64);
        put_varint(&mut self.bytes, count as u64);
        self.bytes.reserve(length * count);
        self.keys += count;
        &mut self.bytes
    }

    /// How many keys it has.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// So many runs back one of the same kind is looked for; a run more is no harm.
const RUNS_OF_A_KIND: usize = 32;

fn is_whole(bytes: &[u8]) -> Result<bool, Fault> {
    match bytes {
        [VERSION, flags, ..] => Ok(flags & WHOLE != 0),
        _ => Err(DAMAGED),
    }
}

/// Keys of one attribute and kind, all there or all gone, of one length. The tails ascend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'r> {
    pub(crate) number: AttributeNumber,
    pub(crate) kind: KeyKind,
    pub(crate) present: bool,
    length: usize,
    tails: &'r [u8],
    count: usize,
}

impl<'r> Run<'r> {
    pub(crate) fn tails(self) -> impl Iterator<Item = Result<&'r [u8], Fault>> {
        (0..self.count).map(move |at| {
            let start = at * self.length;
            self.tails.get(start..start + self.length).ok_or(DAMAGED)
        })
    }

    /// Whether a tail is, or begins with, `wanted`.
    fn has(self, wanted: &[u8], prefix: bool) -> bool {
        if self.length < wanted.len() || (!prefix && self.length != wanted.len()) {
            return false;
        }
        let at =
            |index: usize| self.tails.get(index * self.length..).and_then(|rest| rest.get(..wanted.len()));
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match at(middle) {
                Some(tail) if tail < wanted => low = middle + 1,
                _ => high = middle,
            }
        }
        low < self.count && at(low) == Some(wanted)
    }
}

/// The runs of a row.
#[derive(Debug)]
pub(crate) struct Runs<'r>(&'r [u8]);

impl<'r> Runs<'r> {
    pub(crate) fn new(bytes: &'r [u8]) -> Result<Self, Fault> {
        is_whole(bytes)?;
        Ok(Self(bytes.get(2..).unwrap_or_default()))
    }

    fn run(&mut self) -> Option<Run<'r>> {
        let number = u32::try_from(take_varint(&mut self.0)?).ok()?;
        let (kind, rest) = self.0.split_first()?;
        self.0 = rest;
        let length = usize::try_from(take_varint(&mut self.0)?).ok()?;
        let count = usize::try_from(take_varint(&mut self.0)?).ok()?;
        // A count of empty tails is bounded by what a row may hold.
        let bytes = length.checked_mul(count).filter(|_| count <= ROW_KEYS_MAX)?;
        let (tails, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(Run {
            number: AttributeNumber(number),
            kind: KeyKind::from_byte(kind & !PRESENT)?,
            present: kind & PRESENT != 0,
            length,
            tails,
            count,
        })
    }
}

impl<'r> Iterator for Runs<'r> {
    type Item = Result<Run<'r>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let run = self.run().ok_or(DAMAGED);
        if run.is_err() {
            self.0 = &[];
        }
        Some(run)
    }
}

/// What a substring filter asks of an entry's keys.
#[derive(Clone, Debug)]
pub struct Need {
    pub kind: KeyKind,
    /// The value's bytes as they stand in a key.
    pub bytes: Vec<u8>,
    /// They may be the beginning of the key's.
    pub prefix: bool,
}

impl Need {
    /// The need for a key whose value is, or with `prefix` begins with, `value`.
    pub fn new(kind: KeyKind, value: &[u8], prefix: bool) -> Self {
        let mut bytes = Vec::with_capacity(value.len());
        key::put_prefix(&mut bytes, AttributeNumber(0), kind, value);
        bytes.drain(..HEAD_LENGTH);
        Self { kind, bytes, prefix }
    }
}

/// The entries, ascending, that the index may lack for a filter with `needs` on an attribute: those whose rows add a key
/// of it, unless the row has all keys of the entry and lacks a needed one.
pub fn candidates<S: Snapshot>(
    snapshot: &S,
    number: AttributeNumber,
    needs: &[Need],
) -> Result<Vec<u64>, Fault> {
    let mut ids = Vec::new();
    for row in snapshot.scan(PENDING, KeyRange::all(), Direction::Forward)? {
        let (id, bytes) = row?;
        if may_match(&bytes, number, needs)? {
            ids.push(EntryId::from_prefix(&id).ok_or(DAMAGED)?.0);
        }
    }
    Ok(ids)
}

fn may_match(row: &[u8], number: AttributeNumber, needs: &[Need]) -> Result<bool, Fault> {
    let whole = is_whole(row)?;
    let mut adds = false;
    let mut met: u64 = 0;
    for run in Runs::new(row)? {
        let run = run?;
        if run.number != number || !run.present {
            continue;
        }
        if !whole {
            return Ok(true);
        }
        adds = true;
        for (at, need) in needs.iter().enumerate().take(u64::BITS as usize) {
            if need.kind == run.kind && run.has(&need.bytes, need.prefix) {
                met |= 1 << at;
            }
        }
    }
    let all = needs.len().min(u64::BITS as usize) as u32;
    Ok(adds && met.count_ones() == all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: AttributeNumber = AttributeNumber(300);

    fn keys(values: &[(KeyKind, &str)]) -> Vec<Vec<u8>> {
        values.iter().map(|(kind, value)| key::make(N, *kind, value.as_bytes())).collect()
    }

    #[test]
    fn rows_give_back_what_was_put() {
        let mut row = Row { whole: true, ..Row::default() };
        for (present, values) in [
            (true, [(KeyKind::Any, "abc"), (KeyKind::Any, "a\0c"), (KeyKind::Initial, "")]),
            (false, [(KeyKind::Any, "xyz"), (KeyKind::Final, "0123456789abcdef"), (KeyKind::Any, "bcd")]),
        ] {
            for key in keys(&values) {
                row.keys.insert(late_part(&key).unwrap().to_vec(), present);
            }
        }
        let bytes = row.encode();
        assert_eq!(Row::decode(&bytes).unwrap(), row);
        for cut in 0..bytes.len() {
            // A cut between two runs reads as a shorter row; anything else is an error, never a panic.
            let _ = Row::decode(&bytes[..cut]);
        }
        assert!(Row::decode(&[]).is_err() && Row::decode(&[9, 0]).is_err());
    }

    #[test]
    fn needs_are_met_by_whole_rows_only_if_all_keys_are_there() {
        let any = |gram: &str| Need::new(KeyKind::Any, gram.as_bytes(), false);
        let head = |text: &str| Need::new(KeyKind::Initial, text.as_bytes(), true);
        let values = [(KeyKind::Any, "bel"), (KeyKind::Any, "ell"), (KeyKind::Initial, "bell")];
        for (whole, number, needs, expected) in [
            (true, N, vec![any("bel"), any("ell")], true),
            (true, N, vec![any("bel"), any("elx")], false),
            (true, N, vec![head("be")], true),
            (true, N, vec![head("bell")], true),
            (true, N, vec![head("bells")], false),
            (true, AttributeNumber(4), vec![], false),
            (false, N, vec![any("elx")], true),
        ] {
            let mut row = Row { whole, ..Row::default() };
            for key in keys(&values) {
                row.keys.insert(late_part(&key).unwrap().to_vec(), true);
            }
            assert_eq!(may_match(&row.encode(), number, &needs).unwrap(), expected, "{whole} {needs:?}");
        }
    }
}
