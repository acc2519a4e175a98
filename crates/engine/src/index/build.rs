//! Indexes built, made anew and dropped while changes go on.
//!
//! The writer does it, in slices between and beside its groups: so a slice and the changes before it are one order, and
//! nothing has to be caught up with. Work has two phases, both over the same parts (kinds of an attribute description):
//!
//! 1. **Clearing**: what the index holds of parts that are not complete is taken out, key by key. That is all there is to do
//!    for an index that was dropped.
//! 2. **Filling**: the entries are gone through by their ids, and the keys of the parts that are wanted are added. How far
//!    that is is stored with each slice, in the same commit. Changes meanwhile keep every index that is wanted, on either
//!    side of that place: adding a posting twice, or removing one that is not there, does no harm. With the last slice the
//!    parts are marked complete, and from that commit on searches use them.
//!
//! Rows of substring keys that are not in the index yet ([`super::pending`]) override the index, so they must never tell of
//! a time when the index was not wanted, and a row that claims to have all keys of its entry must have them: the first
//! step takes the parts out of all rows, and filling corrects the rows of the entries that it passes.

use std::collections::BTreeMap;

use larix_schema::Schema;
use larix_store::{Direction, KeyRange, PostingCursor, ReadError, Snapshot, WriteSet};

use super::pending::{self, Row};
use super::status::WorkPhase;
use super::{KeyKind, Kinds, key, keys};
use crate::catalog::Catalog;
use crate::entry::{AttributeNumber, EntryId, EntryReader, EntryView};
use crate::fault::Fault;
use crate::tables::{ENTRIES, INDEX, META, PENDING, meta};
use crate::time::{Clock, Monotonic};

const VERSION: u8 = 1;
/// Version, phase, place, entries done.
const HEAD_BYTES: usize = 18;
/// Number, kinds, kinds to fill, rules.
const PART_BYTES: usize = 10;
const KINDS: [KeyKind; 6] =
    [KeyKind::Presence, KeyKind::Equality, KeyKind::Initial, KeyKind::Any, KeyKind::Final, KeyKind::Approx];
/// Steps between two looks at the clock.
const STEPS_A_LOOK: usize = 8;

/// Kinds of one attribute description that are worked on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeBuild {
    pub(crate) number: AttributeNumber,
    pub(crate) kinds: Kinds,
    /// Of these, those that are filled after they were cleared.
    fill: Kinds,
    /// What their keys are made with.
    rules: [u8; 4],
}

/// How far the work is, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) phase: WorkPhase,
    pub(crate) parts: Vec<AttributeBuild>,
    /// The last entry that was filled.
    place: u64,
    /// Entries filled.
    pub(crate) done: u64,
}

impl State {
    /// The stored state; a damaged one is none: the work begins again.
    fn read<S: Snapshot>(snapshot: &S) -> Result<Option<Self>, ReadError> {
        Ok(snapshot.get(META, meta::INDEX_WORK)?.and_then(|bytes| Self::decode(&bytes)))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, parts) = bytes.split_at_checked(HEAD_BYTES)?;
        let &[VERSION, phase, ref numbers @ ..] = head else { return None };
        let phase = match phase {
            0 => WorkPhase::Clearing,
            1 => WorkPhase::Filling,
            _ => return None,
        };
        let (place, done) = numbers.split_at_checked(8)?;
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        let (parts, []) = parts.as_chunks::<PART_BYTES>() else { return None };
        let parts = parts.iter().map(|&[a, b, c, d, kinds, fill, e, f, g, h]| AttributeBuild {
            number: AttributeNumber(u32::from_be_bytes([a, b, c, d])),
            kinds: Kinds(kinds),
            fill: Kinds(fill),
            rules: [e, f, g, h],
        });
        Some(Self { phase, parts: parts.collect(), place: number(place)?, done: number(done)? })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.phase == WorkPhase::Filling)];
        out.extend_from_slice(&self.place.to_be_bytes());
        out.extend_from_slice(&self.done.to_be_bytes());
        for part in &self.parts {
            out.extend_from_slice(&part.number.0.to_be_bytes());
            out.extend_from_slice(&[part.kinds.0, part.fill.0]);
            out.extend_from_slice(&part.rules);
        }
        out
    }

    /// What of the work goes on under this catalog; none: it has to begin anew, if there is any.
    fn settled(mut self, catalog: &Catalog) -> Option<Self> {
        let fits = |part: &AttributeBuild| {
            let row = catalog.row(part.number).filter(|row| row.rules() == part.rules)?;
            (!row.built.intersects(part.kinds)).then(|| row.wanted.and(part.kinds))
        };
        match self.phase {
            // An index that was not wanted for a while was not updated: its keys may be behind the place that clearing has reached.
            WorkPhase::Clearing => {
                self.parts.iter().all(|part| fits(part) == Some(part.fill)).then_some(self)
            }
            WorkPhase::Filling => {
                self.parts.retain_mut(|part| {
                    part.kinds = fits(part).unwrap_or_default();
                    part.fill = part.kinds;
                    !part.kinds.is_empty()
                });
                (!self.parts.is_empty()).then_some(self)
            }
        }
    }

    /// The work that there is when none is under way.
    fn needed<S: Snapshot>(snapshot: &S, catalog: &Catalog) -> Result<Option<Self>, Fault> {
        let mut parts: BTreeMap<AttributeNumber, Kinds> = BTreeMap::new();
        for (number, kind) in parts_present(snapshot)? {
            let built = catalog.row(number).map_or(Kinds::NONE, |row| row.built);
            if !built.has(kind.into()) {
                let kinds = parts.entry(number).or_default();
                *kinds = kinds.or(kind.into());
            }
        }
        for row in catalog.stale() {
            let kinds = parts.entry(row.number).or_default();
            *kinds = kinds.or(row.wanted.without(row.built));
        }
        let part = |(number, kinds): (AttributeNumber, Kinds)| {
            let row = catalog.row(number);
            let fill = row.map_or(Kinds::NONE, |row| row.wanted.and(kinds));
            AttributeBuild { number, kinds, fill, rules: row.map_or([0; 4], |row| row.rules()) }
        };
        let parts: Vec<AttributeBuild> = parts.into_iter().map(part).collect();
        let state = Self { phase: WorkPhase::Clearing, parts, place: 0, done: 0 };
        Ok((!state.parts.is_empty()).then_some(state))
    }

    fn store(&self, set: &mut WriteSet) {
        set.put(META, meta::INDEX_WORK, self.encode());
    }
}

/// Brings what is stored about indexes in line with what the lines want: to be committed before anything is changed under
/// this catalog. What is not wanted is complete no more, and no work under way counts on its being kept.
pub(crate) fn settle<S: Snapshot>(
    snapshot: &S,
    catalog: &mut Catalog,
    set: &mut WriteSet,
) -> Result<(), ReadError> {
    catalog.forget_unwanted(set);
    let Some(stored) = snapshot.get(META, meta::INDEX_WORK)? else { return Ok(()) };
    let state = State::decode(&stored).and_then(|state| state.settled(catalog));
    match state.map(|state| state.encode()) {
        Some(encoded) if *encoded == *stored => {}
        Some(encoded) => set.put(META, meta::INDEX_WORK, encoded),
        None => set.delete(META, meta::INDEX_WORK),
    }
    Ok(())
}

/// The attributes and kinds for which the index has any key: a look-up for each.
fn parts_present<S: Snapshot>(snapshot: &S) -> Result<Vec<(AttributeNumber, KeyKind)>, Fault> {
    let mut parts = Vec::new();
    let mut from = Vec::new();
    loop {
        let first = snapshot.posting_keys(INDEX, KeyRange::at_least(&from), Direction::Forward)?.next();
        let Some(first) = first.transpose()? else { return Ok(parts) };
        let head = key::parse_head(&first.0).ok_or(Fault::Damaged { what: "an index key" })?;
        parts.push(head);
        match key::after_prefix(prefix(head.0, head.1)) {
            Some(next) => from = next,
            None => return Ok(parts),
        }
    }
}

fn prefix(number: AttributeNumber, kind: KeyKind) -> Vec<u8> {
    let mut prefix = Vec::new();
    key::put_prefix(&mut prefix, number, kind, &[]);
    prefix
}

/// How much one slice may do.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SliceLimits<'c> {
    pub(crate) clock: &'c dyn Clock,
    pub(crate) until: Monotonic,
    /// Entries gone through.
    pub(crate) entries: usize,
    /// Of changes, about.
    pub(crate) bytes: usize,
}

impl SliceLimits<'_> {
    fn are_reached(&self, steps: usize, set: &WriteSet) -> bool {
        steps >= self.entries
            || set.byte_len() >= self.bytes
            || (steps.is_multiple_of(STEPS_A_LOOK) && self.clock.monotonic() >= self.until)
    }
}

/// A slice of work, to be committed.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) set: WriteSet,
    /// How far the work is then; none: it is at its end.
    state: Option<State>,
    clear_from: (usize, Vec<u8>),
    /// Rows of pending keys were changed: what is known of them elsewhere is over.
    pub(crate) purged: bool,
    /// What is complete with this slice.
    pub(crate) completed: Vec<(AttributeNumber, Kinds)>,
    /// Entries gone through.
    pub(crate) entries: u64,
}

/// The work on a database's indexes, and how far it is.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    state: Option<State>,
    /// The state is in the store.
    stored: bool,
    /// The part that is being cleared, and from which key on.
    clear_from: (usize, Vec<u8>),
}

impl Builder {
    /// Learns the work to do.
    pub(crate) fn look<S: Snapshot>(&mut self, snapshot: &S, catalog: &Catalog) -> Result<(), Fault> {
        *self = Self::default();
        self.state = State::read(snapshot)?.and_then(|state| state.settled(catalog));
        self.stored = self.state.is_some();
        if self.state.is_none() {
            self.state = State::needed(snapshot, catalog)?;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Whether work that an earlier process began goes on.
    pub(crate) fn is_resumed(&self) -> bool {
        self.stored
    }

    /// A slice of work on what `view` shows; none when there is nothing to do. After its commit the caller calls
    /// [`Self::committed`].
    pub(crate) fn slice<S: Snapshot>(
        &self,
        view: &S,
        schema: &Schema,
        catalog: &Catalog,
        limits: &SliceLimits<'_>,
    ) -> Result<Option<Slice>, Fault> {
        let Some(state) = &self.state else { return Ok(None) };
        let mut slice = Slice {
            set: WriteSet::new(),
            state: Some(state.clone()),
            clear_from: self.clear_from.clone(),
            purged: false,
            completed: Vec::new(),
            entries: 0,
        };
        if !self.stored {
            begin(view, catalog, state, &mut slice)?;
            return Ok(Some(slice));
        }
        match state.phase {
            WorkPhase::Clearing => clear(view, state, &mut slice, limits)?,
            WorkPhase::Filling => fill(view, schema, catalog, state, &mut slice, limits)?,
        }
        Ok(Some(slice))
    }

    /// The slice was committed.
    pub(crate) fn committed(&mut self, slice: &Slice) {
        self.state.clone_from(&slice.state);
        self.clear_from.clone_from(&slice.clear_from);
        self.stored = true;
    }
}

/// Stores the state, and takes the parts out of the pending rows.
fn begin<S: Snapshot>(view: &S, catalog: &Catalog, state: &State, slice: &mut Slice) -> Result<(), Fault> {
    let set = &mut slice.set;
    slice.purged = true;
    state.store(set);
    // Under their rules of today, whatever they were made with before.
    state.parts.iter().for_each(|part| catalog.write_row(part.number, set));
    for row in view.scan(PENDING, KeyRange::all(), Direction::Forward)? {
        let (id, bytes) = row?;
        let mut row = Row::decode(&bytes)?;
        let before = row.keys.len();
        row.keys.retain(|part, _| {
            key::parse_head(part).is_none_or(|(number, kind)| part_of(&state.parts, number, kind).is_none())
        });
        if row.keys.len() == before {
            continue;
        }
        row.whole = false;
        match row.keys.is_empty() {
            true => set.delete(PENDING, &id),
            false => set.put(PENDING, &id, row.encode()),
        }
    }
    Ok(())
}

fn part_of(parts: &[AttributeBuild], number: AttributeNumber, kind: KeyKind) -> Option<&AttributeBuild> {
    parts.iter().find(|part| part.number == number && part.kinds.has(kind.into()))
}

fn clear<S: Snapshot>(
    view: &S,
    state: &State,
    slice: &mut Slice,
    limits: &SliceLimits<'_>,
) -> Result<(), Fault> {
    let (mut at, mut from) = std::mem::take(&mut slice.clear_from);
    let mut steps = 0;
    while let Some(part) = state.parts.get(at) {
        for kind in KINDS.into_iter().filter(|kind| part.kinds.has((*kind).into())) {
            let low = prefix(part.number, kind);
            let high = key::after_prefix(low.clone()).unwrap_or_default();
            if from >= high {
                continue;
            }
            let range = KeyRange::between(if from > low { &from } else { &low }, &high);
            for row in view.posting_keys(INDEX, range, Direction::Forward)? {
                let (key, _) = row?;
                let mut cursor = view.postings(INDEX, &key)?;
                while let Some(id) = cursor.next()? {
                    steps += 1;
                    slice.set.remove_posting(INDEX, &key, id);
                    // An id costs much less than an entry that is filled.
                    if limits.are_reached(steps / STEPS_A_LOOK, &slice.set) {
                        slice.clear_from = (at, key.into_owned());
                        return Ok(());
                    }
                }
            }
        }
        (at, from) = (at + 1, Vec::new());
    }
    let fill = |part: &AttributeBuild| AttributeBuild { kinds: part.fill, ..*part };
    let parts: Vec<AttributeBuild> =
        state.parts.iter().map(fill).filter(|part| !part.kinds.is_empty()).collect();
    if parts.is_empty() {
        slice.set.delete(META, meta::INDEX_WORK);
        slice.state = None;
    } else {
        let state = State { phase: WorkPhase::Filling, parts, place: 0, done: 0 };
        state.store(&mut slice.set);
        slice.state = Some(state);
    }
    Ok(())
}

fn fill<S: Snapshot>(
    view: &S,
    schema: &Schema,
    catalog: &Catalog,
    state: &State,
    slice: &mut Slice,
    limits: &SliceLimits<'_>,
) -> Result<(), Fault> {
    let mut place = state.place;
    let start = place.saturating_add(1).to_be_bytes();
    let mut steps = 0;
    for row in view.scan(ENTRIES, KeyRange::at_least(&start), Direction::Forward)? {
        let (id, record) = row?;
        let id = EntryId::from_prefix(&id).ok_or(Fault::Damaged { what: "an entry id" })?;
        let record = catalog.dictionaries().unpacked(view, id, record)?;
        let entry = EntryView::parse(id, &record).map_err(Fault::from)?;
        let reader = EntryReader::new(view, schema, catalog, entry);
        fill_entry(view, &reader, &state.parts, &mut slice.set)?;
        place = id.0;
        steps += 1;
        if limits.are_reached(steps, &slice.set) {
            slice.entries = steps as u64;
            let state = State { place, done: state.done + slice.entries, ..state.clone() };
            state.store(&mut slice.set);
            slice.state = Some(state);
            return Ok(());
        }
    }
    slice.entries = steps as u64;
    slice.state = None;
    slice.set.delete(META, meta::INDEX_WORK);
    slice.completed = state.parts.iter().map(|part| (part.number, part.kinds)).collect();
    let mut catalog = catalog.clone();
    for (number, kinds) in &slice.completed {
        catalog.add_built(*number, *kinds);
        catalog.write_row(*number, &mut slice.set);
    }
    Ok(())
}

/// Adds an entry's keys of the parts, and makes its pending row tell the truth of them.
fn fill_entry<S: Snapshot>(
    view: &S,
    reader: &EntryReader<'_, S>,
    parts: &[AttributeBuild],
    set: &mut WriteSet,
) -> Result<(), Fault> {
    let id = reader.view.id();
    let mut row: Option<Row> = None;
    if parts.iter().any(|part| part.kinds.intersects(Kinds::SUBSTRINGS)) {
        row = pending::row(view, id)?;
    }
    let before = row.clone();
    if let Some(row) = &mut row {
        for (part, present) in &mut row.keys {
            let head = key::parse_head(part);
            if head.is_some_and(|(number, kind)| part_of(parts, number, kind).is_some()) {
                // Those that the entry has are set below.
                *present = false;
            }
        }
    }
    for attribute in reader.view.attributes() {
        let (number, stored) = attribute?;
        let Some(part) = parts.iter().find(|part| part.number == number) else { continue };
        let Some(catalog_row) = reader.catalog.row(number) else { continue };
        let keys = keys::stored_attribute_keys(reader.schema, catalog_row, part.kinds, reader, &stored)?;
        for key in keys {
            let late = pending::late_part(&key).zip(row.as_mut());
            match late {
                Some((late, row)) => match row.keys.get_mut(late) {
                    Some(present) => *present = true,
                    None => {
                        row.whole = false;
                        set.add_posting(INDEX, &key, id.0);
                    }
                },
                None => set.add_posting(INDEX, &key, id.0),
            }
        }
    }
    if let Some(row) = row.filter(|row| before.as_ref() != Some(row)) {
        set.put(PENDING, &id.to_bytes(), row.encode());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let part = AttributeBuild {
            number: AttributeNumber(70_000),
            kinds: Kinds::SUBSTRINGS,
            fill: Kinds::ANY,
            rules: [1, 2, 3, 4],
        };
        for phase in [WorkPhase::Clearing, WorkPhase::Filling] {
            let state = State { phase, parts: vec![part, part], place: u64::MAX, done: 7 };
            let bytes = state.encode();
            assert_eq!(State::decode(&bytes), Some(state));
            for cut in 0..bytes.len() {
                // Whole parts fewer are another state, anything else is none.
                let whole = cut >= HEAD_BYTES && (cut - HEAD_BYTES).is_multiple_of(PART_BYTES);
                assert_eq!(State::decode(&bytes[..cut]).is_some(), whole, "{cut}");
            }
        }
        assert_eq!(State::decode(&[9; HEAD_BYTES]), None);
    }
}
