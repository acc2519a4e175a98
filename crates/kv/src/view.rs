//! Reading: a view of one commit, out of the cache and out of one transaction of the engine.

mod ahead;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_store::ordered::{OrderedRead, check_key};
use larix_store::table::Catalog;
use larix_store::{
    CommitError, Direction, KEY_BYTES_MAX, KeyRange, KeyValue, ReadError, TableId, TableKind, Wanted,
};

use crate::cache::{CacheLookup, Range, Record, after};
use crate::engine::{ANSWER_BYTES_MAX, Answer, EngineSnapshot, FIRSTS, Question};
use crate::error::{Fault, corrupt};
use crate::read_faults::{ReadFault, is_at_hand};
use crate::store::KvStore;

/// Ranges that a view without a transaction remembers to have read. Beyond that it has read everything.
const SEEN_MAX: usize = 256;
/// Records that a question for the next one brings along.
const AHEAD: u32 = 8;
/// Records of the first and of the longest answer of a scan.
const SCAN_FIRST: u32 = 32;
const SCAN_MOST: u32 = 512;

/// What was committed up to a moment.
#[derive(Debug)]
pub(crate) struct View<'s> {
    pub(crate) store: &'s KvStore,
    /// Nothing is asked of the engine.
    at_hand: bool,
    version: AtomicU64,
    state: Mutex<State<'s>>,
}

#[derive(Debug)]
struct State<'s> {
    /// The one that shows this very commit, once the engine was asked.
    snapshot: Option<Box<dyn EngineSnapshot + 's>>,
    /// What was read before that.
    seen: Vec<Range>,
    /// A question failed. There is no way to ask about the same moment again.
    lost: Option<ReadFault>,
}

impl<'s> View<'s> {
    /// `asks`: the newest commit is shown; else the newest that is known here.
    pub(crate) fn open(store: &'s KvStore, asks: bool) -> Result<Self, Fault> {
        store.sound()?;
        let state = State { snapshot: None, seen: Vec::new(), lost: None };
        let version = AtomicU64::new(store.newest());
        let view = Self { store, at_hand: is_at_hand(), version, state: Mutex::new(state) };
        if asks {
            view.ask(Vec::new())?;
        }
        Ok(view)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State<'s>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the engine was asked, so that the moment is the engine's.
    pub(crate) fn is_fixed(&self) -> bool {
        self.state().snapshot.is_some()
    }

    /// Whether every question of this view was answered.
    ///
    /// # Errors
    /// One was not: what was made of the others must not be committed.
    pub(crate) fn whole(&self) -> Result<(), CommitError> {
        match self.state().lost {
            None => Ok(()),
            Some(ReadFault::Stale) => Err(self.store.conflict()),
            Some(_) => {
                let text = "the connection to the engine was lost before the changes were sent";
                Err(CommitError::Unavailable(std::io::Error::other(text)))
            }
        }
    }

    /// Counts a read by whether the cache answered it. What is missing at hand is read again, and counted then.
    fn looked_up(&self, hit: bool) {
        if hit || !self.at_hand {
            self.store.looked_up(hit);
        }
    }

    /// Gives the snapshot of the engine back.
    pub(crate) fn end(&self) {
        self.state().snapshot = None;
    }

    /// Questions in one round trip.
    pub(crate) fn ask(&self, questions: Vec<Question>) -> Result<Vec<Vec<Answer>>, Fault> {
        if self.at_hand {
            return Err(Fault::NotAtHand);
        }
        let mut state = self.state();
        if state.lost.is_some() {
            return Err(Fault::Lost);
        }
        let result = match &mut state.snapshot {
            Some(snapshot) => snapshot.ask(questions),
            None => self.begin(&mut state, questions),
        };
        if let Err(fault) = &result {
            let stale = matches!(fault, Fault::Stale);
            if !stale {
                self.store.note_trouble(fault);
            }
            state.lost = Some(if stale { ReadFault::Stale } else { ReadFault::Unavailable });
            state.snapshot = None;
        }
        result
    }

    fn begin(&self, state: &mut State<'s>, mut questions: Vec<Question>) -> Result<Vec<Vec<Answer>>, Fault> {
        let (known, attempt) = {
            let known = self.store.known();
            (known.cache.version(), known.attempt.clone())
        };
        let sent = self.store.clock();
        let own_count = questions.len();
        let beginnings = self.store.beginnings();
        questions.extend(beginnings.iter().map(|(_, range, limit)| Question::Forward {
            table: range.table,
            from: range.from.clone(),
            to: behind_all(),
            limit: *limit,
        }));
        let (snapshot, new_commits, mut answers) = self.store.engine.begin(known, questions)?;
        let newest = match self.store.take_in(new_commits, known, &attempt) {
            Err(fault @ Fault::Behind { .. }) => {
                snapshot.leave();
                return Err(fault);
            }
            taken => taken?,
        };
        self.store.note_contact(sent);
        let ahead_answers = answers.split_off(own_count.min(answers.len()));
        let version = self.version();
        if newest != version {
            let known = self.store.known();
            if newest < version || state.seen.iter().any(|range| known.cache.changed(range, version)) {
                return Err(Fault::Stale);
            }
            self.version.store(newest, Ordering::Release);
        }
        state.seen = Vec::new();
        state.snapshot = Some(snapshot);
        if !beginnings.is_empty() {
            for ((table, range, limit), answers) in beginnings.into_iter().zip(ahead_answers) {
                // What cannot be read is met again by the caller that asks for it.
                let _met = self.take_range(&range, table, Direction::Forward, limit, answers);
            }
            self.store.known_mut().cache.set_begun();
        }
        Ok(answers)
    }

    /// Notes what was read out of the cache, as long as the moment is not fixed.
    fn note(&self, range: impl FnOnce() -> Range) {
        if self.at_hand {
            return;
        }
        let mut state = self.state();
        if state.snapshot.is_none() {
            if state.seen.len() < SEEN_MAX {
                state.seen.push(range());
            } else {
                state.seen = self.everything();
            }
        }
    }

    fn everything(&self) -> Vec<Range> {
        let all = |table| Range { table, from: Vec::new(), to: None };
        let tables = self.store.catalog.specs().iter();
        tables.filter_map(|spec| self.store.number(spec.id).ok()).map(all).collect()
    }

    fn record(&self, table: TableId, answer: Answer) -> Result<Record, ReadError> {
        let kind = self.store.catalog.spec(table).map(|spec| spec.kind);
        let fits = match kind {
            Some(TableKind::Integer) => answer.key.len() == 8,
            _ => (1..=KEY_BYTES_MAX).contains(&answer.key.len()),
        };
        if !fits {
            return Err(corrupt(table, "a key has another length than the table's have"));
        }
        Ok((answer.key.into(), answer.value.into()))
    }

    fn fill(&self, range: &Range, records: &[Record]) {
        let version = self.version();
        self.store.known_mut().cache.fill(range, records, version);
    }

    fn one(&self, table: TableId, key: &[u8]) -> Result<Option<Arc<[u8]>>, ReadError> {
        let number = self.store.number(table)?;
        let found = self.store.known().cache.get(number, key, self.version());
        self.looked_up(!matches!(found, CacheLookup::Unknown));
        match found {
            CacheLookup::Unknown => {}
            found => {
                self.note(|| Range::key(number, key));
                return Ok(if let CacheLookup::Some(value) = found { Some(value) } else { None });
            }
        }
        let mut values = self.fetch_values(table, number, vec![key.to_vec()])?;
        Ok(values.pop().flatten())
    }

    fn fetch_values(
        &self,
        table: TableId,
        number: u8,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Arc<[u8]>>>, ReadError> {
        let question = Question::Values { table: number, keys: keys.clone() };
        let answers = self.ask(vec![question]).map_err(Fault::into_read)?.pop().unwrap_or_default();
        self.take_values(table, number, &keys, answers)
    }

    /// Takes the answer to a question for values into the cache.
    fn take_values(
        &self,
        table: TableId,
        number: u8,
        keys: &[Vec<u8>],
        answers: Vec<Answer>,
    ) -> Result<Vec<Option<Arc<[u8]>>>, ReadError> {
        let mut values = vec![None; keys.len()];
        for answer in answers {
            let place = answer.place;
            let (_, value) = self.record(table, answer)?;
            if let Some(slot) = values.get_mut(place) {
                *slot = Some(value);
            }
        }
        for (key, value) in keys.iter().zip(&values) {
            let record = value.as_ref().map(|value| (key.as_slice().into(), Arc::clone(value)));
            self.fill(&Range::key(number, key), record.as_slice());
        }
        Ok(values)
    }

    /// The first record of a range, or the last one. What the question brings along goes to the cache.
    fn edge(&self, range: &Range, table: TableId, direction: Direction) -> Result<Option<Record>, ReadError> {
        let known = self.known_edge(range, direction);
        self.looked_up(known.is_some());
        if let Some(found) = known {
            return Ok(found);
        }
        let (records, _) = self.fetch(range, table, direction, AHEAD)?;
        Ok(records.into_iter().next())
    }

    /// The same out of the cache, if it is known.
    pub(crate) fn known_edge(&self, range: &Range, direction: Direction) -> Option<Option<Record>> {
        let version = self.version();
        let found = match direction {
            Direction::Forward => self.store.known().cache.first(range, version),
            Direction::Backward => self.store.known().cache.last(range, version),
        };
        let record = match found {
            CacheLookup::Unknown => return None,
            CacheLookup::Nothing => None,
            CacheLookup::Some(record) => Some(record),
        };
        self.note(|| range.clone());
        Some(record)
    }

    /// Records from one end of a range on, in the order of the direction, and whether these are all.
    fn fetch(
        &self,
        range: &Range,
        table: TableId,
        direction: Direction,
        limit: u32,
    ) -> Result<(Vec<Record>, bool), ReadError> {
        let from = range.from.clone();
        let to = range.to.clone().unwrap_or_else(behind_all);
        let question = match direction {
            Direction::Forward => Question::Forward { table: range.table, from, to, limit },
            Direction::Backward => Question::Backward { table: range.table, from, to, limit },
        };
        let answers = self.ask(vec![question]).map_err(Fault::into_read)?.pop().unwrap_or_default();
        self.take_range(range, table, direction, limit, answers)
    }

    /// Takes the answer to a question for the records of a range into the cache.
    fn take_range(
        &self,
        range: &Range,
        table: TableId,
        direction: Direction,
        limit: u32,
        answers: Vec<Answer>,
    ) -> Result<(Vec<Record>, bool), ReadError> {
        let bytes: usize = answers.iter().map(|answer| answer.value.len()).sum();
        // An answer is cut off where it is long: by number, or by bytes.
        let all = answers.len() < limit as usize && bytes < ANSWER_BYTES_MAX;
        let mut records =
            answers.into_iter().map(|answer| self.record(table, answer)).collect::<Result<Vec<_>, _>>()?;
        let covered = match (all, direction, records.last()) {
            (true, _, _) | (_, _, None) => range.clone(),
            (false, Direction::Forward, Some((key, _))) => Range { to: Some(after(key)), ..range.clone() },
            (false, Direction::Backward, Some((key, _))) => Range { from: key.to_vec(), ..range.clone() },
        };
        match direction {
            Direction::Forward => self.fill(&covered, &records),
            Direction::Backward => {
                records.reverse();
                self.fill(&covered, &records);
                records.reverse();
            }
        }
        Ok((records, all))
    }

    /// Takes answers to questions for the first records of ranges, or for the last ones, into the cache.
    pub(crate) fn fill_edges(
        &self,
        table: TableId,
        number: u8,
        ranges: &[(Vec<u8>, Vec<u8>)],
        answers: Vec<Answer>,
        direction: Direction,
    ) -> Result<(), ReadError> {
        let mut found: Vec<Vec<Record>> = vec![Vec::new(); ranges.len()];
        for answer in answers {
            let place = answer.place;
            let record = self.record(table, answer)?;
            if let Some(records) = found.get_mut(place) {
                records.push(record);
            }
        }
        for ((from, to), mut records) in ranges.iter().zip(found) {
            let (mut from, mut to) = (from.clone(), to.clone());
            records.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            let all = records.len();
            match direction {
                Direction::Forward => {
                    // One beyond the range says where it ends.
                    records.retain(|(key, _)| **key < *to);
                    let may_go_on = all >= FIRSTS as usize && records.len() == all;
                    if let Some((last, _)) = records.last().filter(|_| may_go_on) {
                        to = after(last);
                    }
                }
                Direction::Backward => {
                    if let Some((first, _)) = records.first() {
                        from = first.to_vec();
                    }
                }
            }
            self.fill(&Range { table: number, from, to: Some(to) }, &records);
        }
        Ok(())
    }
}

/// Behind every key.
pub(crate) fn behind_all() -> Vec<u8> {
    vec![u8::MAX; KEY_BYTES_MAX + 1]
}

/// A range as half-open. `None` if it is empty.
fn half_open(table: u8, range: &KeyRange<'_>) -> Option<Range> {
    if range.is_empty() {
        return None;
    }
    let from = match &range.start {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) if key.is_empty() => Vec::new(),
        Bound::Excluded(key) => after(key),
    };
    let to = match &range.end {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
    };
    if to.as_ref().is_some_and(|to| *to <= from) {
        return None;
    }
    Some(Range { table, from, to })
}

impl<'s> OrderedRead for View<'s> {
    type Records<'a>
        = KvRecords<'a, 's>
    where
        Self: 'a;

    const IS_DISTANT: bool = true;

    fn catalog(&self) -> &Catalog {
        &self.store.catalog
    }

    fn version(&self) -> u64 {
        View::version(self)
    }

    fn fetch_wanted(&self, wanted: &[Wanted]) {
        self.fetch_noting(wanted);
    }

    fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        Ok(self.one(table, key)?.map(|value| Cow::Owned(value.to_vec())))
    }

    fn values<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        let number = self.store.number(table)?;
        let version = self.version();
        let mut values: Vec<Option<Cow<'a, [u8]>>> = Vec::with_capacity(keys.len());
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        for key in keys.iter().map(AsRef::as_ref) {
            values.push(None);
            if check_key(&self.store.catalog, table, key).is_err() {
                continue;
            }
            let found = self.store.known().cache.get(number, key, version);
            match found {
                CacheLookup::Unknown => {
                    places.push(values.len() - 1);
                    missing.push(key.to_vec());
                }
                found => {
                    self.note(|| Range::key(number, key));
                    if let (CacheLookup::Some(value), Some(slot)) = (found, values.last_mut()) {
                        *slot = Some(Cow::Owned(value.to_vec()));
                    }
                }
            }
        }
        if !missing.is_empty() {
            let fetched = self.fetch_values(table, number, missing)?;
            for (place, value) in places.into_iter().zip(fetched) {
                if let Some(slot) = values.get_mut(place) {
                    *slot = value.map(|value| Cow::Owned(value.to_vec()));
                }
            }
        }
        Ok(values)
    }

    fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        let range = Range { table: self.store.number(table)?, from: key.to_vec(), to: None };
        Ok(self.edge(&range, table, Direction::Forward)?.map(owned))
    }

    fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        let range = Range { table: self.store.number(table)?, from: Vec::new(), to: Some(after(key)) };
        Ok(self.edge(&range, table, Direction::Backward)?.map(owned))
    }

    fn first_block<'a>(
        &'a self,
        table: TableId,
        list: &[u8],
        key: &[u8],
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        let (from, to) = (key.to_vec(), blocks_of(list).1);
        if from >= to {
            return Ok(None);
        }
        let range = Range { table: self.store.number(table)?, from, to: Some(to) };
        Ok(self.edge(&range, table, Direction::Forward)?.map(owned))
    }

    fn last_block<'a>(
        &'a self,
        table: TableId,
        list: &[u8],
        key: &[u8],
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        let (from, to) = (blocks_of(list).0, after(key));
        if from >= to {
            return Ok(None);
        }
        let range = Range { table: self.store.number(table)?, from, to: Some(to) };
        Ok(self.edge(&range, table, Direction::Backward)?.map(owned))
    }

    fn records<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Records<'a>, ReadError> {
        let rest = half_open(self.store.number(table)?, &range);
        Ok(KvRecords { view: self, table, direction, rest, fetched: VecDeque::new(), limit: SCAN_FIRST })
    }
}

/// The keys of the blocks that a posting list can have, half-open.
pub(crate) fn blocks_of(list: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let first = [list, &[0; 8]].concat();
    let last = [list, &[u8::MAX; 8]].concat();
    (first, after(&last))
}

fn owned<'a>((key, value): Record) -> KeyValue<'a> {
    (Cow::Owned(key.to_vec()), Cow::Owned(value.to_vec()))
}

/// The records of a range.
pub struct KvRecords<'a, 's> {
    view: &'a View<'s>,
    table: TableId,
    direction: Direction,
    /// What lies beyond what was fetched.
    rest: Option<Range>,
    fetched: VecDeque<Record>,
    limit: u32,
}

impl std::fmt::Debug for KvRecords<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvRecords")
            .field("rest", &self.rest)
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}

impl KvRecords<'_, '_> {
    fn advance(&mut self) -> Result<Option<Record>, ReadError> {
        if let Some(record) = self.fetched.pop_front() {
            return Ok(Some(record));
        }
        let Some(range) = self.rest.take() else { return Ok(None) };
        if let Some(found) = self.view.known_edge(&range, self.direction) {
            if let Some((key, _)) = &found {
                self.rest = beyond(range, key, self.direction);
            }
            return Ok(found);
        }
        let (records, all) = self.view.fetch(&range, self.table, self.direction, self.limit)?;
        let bytes = records.iter().map(|(_, value)| value.len()).sum();
        self.limit = next_limit(self.limit, records.len(), bytes);
        if !all && let Some((key, _)) = records.last() {
            self.rest = beyond(range, key, self.direction);
        }
        self.fetched = records.into();
        Ok(self.fetched.pop_front())
    }
}

/// How many records the next answer of a scan may have, behind one of so many. A long answer is cut off, but etcd has sent all of it by
/// then: where the records are large, no more are asked for than one answer has.
fn next_limit(limit: u32, records: usize, bytes: usize) -> u32 {
    match bytes < ANSWER_BYTES_MAX {
        true => limit.saturating_mul(2).min(SCAN_MOST),
        false => u32::try_from(records).unwrap_or(SCAN_MOST).clamp(1, SCAN_MOST),
    }
}

fn beyond(range: Range, key: &[u8], direction: Direction) -> Option<Range> {
    let rest = match direction {
        Direction::Forward => Range { from: after(key), ..range },
        Direction::Backward => Range { to: Some(key.to_vec()), ..range },
    };
    Some(rest).filter(|rest| rest.to.as_ref().is_none_or(|to| *to > rest.from))
}

impl<'a> Iterator for KvRecords<'a, '_> {
    type Item = Result<KeyValue<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.advance();
        if record.is_err() {
            self.rest = None;
        }
        record.map(|record| record.map(owned)).transpose()
    }
}

/// What was committed up to a moment.
#[derive(Debug)]
pub struct KvSnapshot<'s> {
    pub(crate) view: View<'s>,
}

larix_store::read_through!(KvSnapshot<'s>.view, KvRecords<'a, 's>, true);
