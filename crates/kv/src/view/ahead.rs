//! Asking for several things at once, before they are read one after the other.

use larix_store::ahead::ID_BYTES;
use larix_store::ordered::check_key;
use larix_store::posting::ids_of_only_block;
use larix_store::{Direction, Path, ReadError, TableId, Wanted};

use super::{SCAN_FIRST, View, behind_all, blocks_of, half_open};
use crate::cache::{CacheLookup, Range, after};
use crate::engine::{Answer, Question};
use crate::error::Fault;
use crate::store::KvStore;

/// The id in the key of the record that says how long a posting list is.
const HEADER_ID: [u8; 8] = [u8::MAX; 8];

/// Lists and ids that one question guesses by, and ids of one list. With its other keys the question has to fit into a transaction of etcd
/// (32 operations at the least).
const GUESSES_MAX: usize = 12;
const GUESSED_IDS_MAX: u64 = 4;

/// A half-open range of keys.
type Bounds = (Vec<u8>, Vec<u8>);

/// What is not known here, and how the answer is to be read.
#[derive(Debug)]
enum Missing {
    /// Single keys.
    Keys(TableId, Vec<Vec<u8>>),
    /// The first blocks of posting lists.
    Blocks(TableId, Vec<Bounds>),
    Range(TableId, Range),
    Path(Path),
}

impl<'s> View<'s> {
    /// Opens a view for who is going to read `wanted`.
    pub(crate) fn open_with(store: &'s KvStore, asks: bool, wanted: &[Wanted]) -> Result<Self, Fault> {
        let view = Self::open(store, false)?;
        view.fetch_all(asks, wanted)?;
        Ok(view)
    }

    /// The same later. A fault is noted, and met again by the reader.
    pub(super) fn fetch_noting(&self, wanted: &[Wanted]) {
        if let Err(fault) = self.fetch_all(false, wanted) {
            let _noted = fault.into_read();
        }
    }

    /// Asks for what is not known here of `wanted`; `asks`: and if it is nothing, for the newest commits.
    fn fetch_all(&self, asks: bool, wanted: &[Wanted]) -> Result<(), Fault> {
        // Who reads at hand meets by itself what is missing.
        if self.at_hand && !asks {
            return Ok(());
        }
        let mut missing = self.missing(wanted, KeyBatch { is_first: true, ..KeyBatch::default() });
        if missing.is_empty() && !asks {
            return Ok(());
        }
        // An engine that cannot follow a path itself is asked for one step of it at a time.
        let longest = wanted.iter().map(|wanted| match wanted {
            Wanted::Path(path) if !self.store.engine.walks() => path.steps.len() + 1,
            _ => 1,
        });
        for _ in 0..longest.max().unwrap_or(1) {
            let questions = missing.iter().map(|missing| self.question(missing)).collect();
            let answers = self.ask(questions)?;
            for (missing, answers) in missing.into_iter().zip(answers) {
                // What cannot be read is met again by the reader.
                let _met = self.take(missing, answers);
            }
            missing = self.missing(wanted, KeyBatch::default());
            if missing.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn question(&self, missing: &Missing) -> Question {
        let number = |table| self.store.number(table).unwrap_or_default();
        match missing {
            Missing::Keys(table, keys) => Question::Values { table: number(*table), keys: keys.clone() },
            Missing::Blocks(table, ranges) => {
                Question::Firsts { table: number(*table), ranges: ranges.clone() }
            }
            Missing::Range(_, range) => Question::Forward {
                table: range.table,
                from: range.from.clone(),
                to: range.to.clone().unwrap_or_else(behind_all),
                limit: SCAN_FIRST,
            },
            Missing::Path(path) => Question::Path {
                table: number(path.table),
                records: number(path.records),
                from: path.from.to_vec(),
                steps: path.steps.clone(),
            },
        }
    }

    fn missing(&self, wanted: &[Wanted], mut batch: KeyBatch) -> Vec<Missing> {
        for wanted in wanted {
            match wanted {
                Wanted::Record { table, key } => self.missing_key(*table, key, &mut batch),
                Wanted::List { table, key } => {
                    let Ok(number) = self.store.number(*table) else { continue };
                    let (from, to) = blocks_of(key);
                    let range = Range { table: number, from: from.clone(), to: Some(to.clone()) };
                    if !self.knows_first(&range) {
                        batch.block(*table, (from, to));
                        batch.key(*table, [key.as_slice(), &HEADER_ID].concat());
                    }
                }
                Wanted::Range { table, range } => {
                    let range = self.store.number(*table).ok().and_then(|number| half_open(number, range));
                    if let Some(range) = range.filter(|range| !self.knows_first(range)) {
                        batch.others.push(Missing::Range(*table, range));
                    }
                }
                Wanted::Path(path) => self.missing_path(path, &mut batch),
            }
        }
        batch.into_list()
    }

    fn knows_first(&self, range: &Range) -> bool {
        !matches!(self.store.known().cache.first(range, self.version()), CacheLookup::Unknown)
    }

    fn known_value(&self, table: TableId, key: &[u8]) -> Option<CacheLookup<std::sync::Arc<[u8]>>> {
        let number = self.store.number(table).ok()?;
        check_key(&self.store.catalog, table, key).ok()?;
        Some(self.store.known().cache.get(number, key, self.version()))
    }

    fn missing_key(&self, table: TableId, key: &[u8], batch: &mut KeyBatch) {
        if let Some(CacheLookup::Unknown) = self.known_value(table, key) {
            batch.key(table, key.to_vec());
        }
    }

    /// What is not known of a path, from the first step on that is not.
    fn missing_path(&self, path: &Path, batch: &mut KeyBatch) {
        let mut at = path.from;
        for (done, step) in path.steps.iter().enumerate() {
            match self.known_value(path.table, &[&at[..], step].concat()) {
                Some(CacheLookup::Some(value)) => match id(&value) {
                    Some(id) => at = id,
                    None => return,
                },
                Some(CacheLookup::Unknown) => {
                    self.missing_guesses(path, done, batch);
                    let steps = path.steps.get(done..).unwrap_or_default().to_vec();
                    batch.others.push(Missing::Path(Path { from: at, steps, ..path.clone() }));
                    return;
                }
                Some(CacheLookup::Nothing) | None => return,
            }
            self.missing_key(path.records, &at, batch);
        }
    }

    /// Where the engine does not follow a path, its steps from `unknown` on would take a round trip each. So lists that have the ids of
    /// later steps are asked for together with the next step, and then, together with the one behind it, what these ids lead to. What was
    /// guessed wrong costs bytes only: readers go by the rows.
    fn missing_guesses(&self, path: &Path, unknown: usize, batch: &mut KeyBatch) {
        let Some(lists) = path.guesses.as_deref().filter(|_| !self.store.engine.walks()) else { return };
        let steps = path.steps.get(unknown..).unwrap_or_default();
        // The answer to the question itself has the id that the last step leads to.
        if batch.is_first && steps.len() < 2 {
            return;
        }
        for (place, step) in steps.iter().enumerate() {
            if batch.guesses >= GUESSES_MAX {
                return;
            }
            let Some((table, list)) = lists.list(step) else { continue };
            let Ok(number) = self.store.number(table) else { continue };
            let (from, to) = blocks_of(&list);
            let range = Range { table: number, from: from.clone(), to: Some(to.clone()) };
            let known = self.store.known().cache.first(&range, self.version());
            match known {
                CacheLookup::Unknown if place > 0 => {
                    batch.guesses += 1;
                    batch.block(table, (from, to));
                }
                CacheLookup::Some((block, value)) => {
                    let first = (&*block, &*value);
                    let ids = ids_of_only_block(table, &list, first, GUESSED_IDS_MAX).unwrap_or_default();
                    for id in ids.into_iter().map(u64::to_be_bytes) {
                        batch.guesses += 1;
                        self.missing_key(path.records, &id, batch);
                        if let Some(next) = steps.get(place + 1) {
                            self.missing_key(path.table, &[&id[..], next].concat(), batch);
                        }
                    }
                }
                CacheLookup::Unknown | CacheLookup::Nothing => {}
            }
        }
    }

    /// Takes an answer into the cache.
    fn take(&self, missing: Missing, answers: Vec<Answer>) -> Result<(), ReadError> {
        match missing {
            Missing::Keys(table, keys) => {
                let number = self.store.number(table)?;
                self.take_values(table, number, &keys, answers).map(drop)
            }
            Missing::Blocks(table, ranges) => {
                let number = self.store.number(table)?;
                self.fill_edges(table, number, &ranges, answers, Direction::Forward)
            }
            Missing::Range(table, range) => {
                self.take_range(&range, table, Direction::Forward, SCAN_FIRST, answers).map(drop)
            }
            Missing::Path(path) => self.take_path(&path, answers),
        }
    }

    fn take_path(&self, path: &Path, answers: Vec<Answer>) -> Result<(), ReadError> {
        let (tree, records) = (self.store.number(path.table)?, self.store.number(path.records)?);
        let walked = self.store.engine.walks();
        let asked = if walked { path.steps.len() } else { 1 };
        let mut found = Vec::new();
        found.resize_with(path.steps.len() * 2, || None);
        for answer in answers {
            if let Some(slot) = found.get_mut(answer.place) {
                *slot = Some(answer);
            }
        }
        let mut at = path.from;
        for (place, step) in path.steps.iter().enumerate().take(asked) {
            let key = [&at[..], step].concat();
            let range = Range { table: tree, from: key.clone(), to: Some(after(&key)) };
            let row = found.get_mut(place).and_then(Option::take);
            let row = row.map(|answer| self.record(path.table, Answer { key, ..answer })).transpose()?;
            self.fill(&range, row.as_slice());
            let Some(next) = row.and_then(|(_, value)| id(&value)) else { return Ok(()) };
            at = next;
            if walked {
                let entry = found.get_mut(path.steps.len() + place).and_then(Option::take);
                let entry =
                    entry.map(|answer| self.record(path.records, Answer { key: at.to_vec(), ..answer }));
                self.fill(&Range::key(records, &at), entry.transpose()?.as_slice());
            }
        }
        Ok(())
    }
}

/// The id that a value begins with.
fn id(value: &[u8]) -> Option<[u8; ID_BYTES]> {
    value.first_chunk().copied()
}

/// Keys of one table in one question.
#[derive(Default)]
struct KeyBatch {
    keys: Vec<(TableId, Vec<Vec<u8>>)>,
    blocks: Vec<(TableId, Vec<Bounds>)>,
    others: Vec<Missing>,
    /// How often it was guessed.
    guesses: usize,
    /// Nothing was asked before.
    is_first: bool,
}

impl KeyBatch {
    fn key(&mut self, table: TableId, key: Vec<u8>) {
        add(&mut self.keys, table, key);
    }

    fn block(&mut self, table: TableId, range: Bounds) {
        add(&mut self.blocks, table, range);
    }

    fn into_list(self) -> Vec<Missing> {
        let keys = self.keys.into_iter().map(|(table, keys)| Missing::Keys(table, keys));
        let blocks = self.blocks.into_iter().map(|(table, ranges)| Missing::Blocks(table, ranges));
        keys.chain(blocks).chain(self.others).collect()
    }
}

fn add<T: PartialEq>(lists: &mut Vec<(TableId, Vec<T>)>, table: TableId, item: T) {
    match lists.iter_mut().find(|(known, _)| *known == table) {
        Some((_, list)) if list.contains(&item) => {}
        Some((_, list)) => list.push(item),
        None => lists.push((table, vec![item])),
    }
}
