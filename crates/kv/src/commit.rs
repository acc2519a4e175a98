//! Writing: a transaction, and what its changes come to in rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use larix_store::ordered::{OrderedRead, OrderedWrite};
use larix_store::snapshot::apply;
use larix_store::table::Catalog;
use larix_store::{
    CommitError, CommitId, Direction, Durability, KeyRange, KeyValue, ReadError, TableId, Transaction,
    WriteSet,
};

use crate::cache::{Range, Row, after};
use crate::changes;
use crate::engine::{COMMITS_KEPT, Proposal, Question, Sizes};
use crate::error::{Fault, Verdict};
use crate::store::{COMMITS_TRIMMED_EVERY, now};
use crate::view::{KvRecords, View, blocks_of};

/// Keys of one question for blocks of postings.
const BLOCKS_ASKED_MAX: usize = 4096;

/// An open transaction. It holds no lock: it commits unless another one came first.
#[derive(Debug)]
pub struct KvTransaction<'s> {
    pub(crate) view: View<'s>,
    pub(crate) epoch: u64,
}

larix_store::read_through!(KvTransaction<'s>.view, KvRecords<'a, 's>, true);

impl Transaction for KvTransaction<'_> {
    fn commit(self, changes: &WriteSet, _: Durability) -> Result<CommitId, CommitError> {
        let Self { view, epoch } = self;
        let store = view.store;
        // A reader may have taken what could not be read for what is not there.
        view.whole()?;
        read_ahead(&view, changes)?;
        let mut applied = Applied { view: &view, rows: BTreeMap::new(), bytes: 0, sizes: &store.sizes };
        apply(&mut applied, changes)?;
        let (rows, bytes) = (applied.rows, applied.bytes);
        view.whole()?;
        let version = view.version();
        if rows.is_empty() {
            confirm(&view)?;
            return Ok(CommitId(view.version()));
        }
        view.end();
        let Some(continues) = store.made_by(version) else { return Err(store.conflict()) };
        let proposal = proposal(&view, (version, continues), epoch, &rows)?;
        let attempt = proposal.attempt.clone();
        let keys = proposal.keys.as_deref().and_then(changes::decode);
        store.sends(version + 1, &attempt, keys, batch_rows(&view, rows).collect());
        let answer = store.engine.commit(proposal);
        store.answered(version + 1, &attempt, matches!(answer, Ok(true)));
        match answer {
            Ok(true) => {
                store.room.found(bytes, now());
                Ok(CommitId(version + 1))
            }
            // The row that it continues is of a later epoch, or another one's.
            Ok(false) => {
                store.fenced(epoch);
                Err(CommitError::Fenced)
            }
            Err(fault) => Err(match fault.verdict() {
                Verdict::Conflict => store.conflict(),
                Verdict::Unknown => store.unanswered(version + 1, attempt),
                verdict @ (Verdict::Full | Verdict::Failed) => {
                    if verdict == Verdict::Full {
                        store.room.lacks(bytes, now());
                    }
                    store.doubt();
                    fault.into_commit()
                }
            }),
        }
    }

    fn confirm(self) -> Result<(), CommitError> {
        confirm(&self.view)
    }
}

/// Has the engine say that what was read is what holds, if it has not been asked. Whether reads ask makes no difference: where this
/// handle was stopped for a while, another one may have changed what a change is refused for.
fn confirm(view: &View<'_>) -> Result<(), CommitError> {
    if !view.is_fixed() {
        // What comes of it is found with the others below.
        let _asked = view.ask(Vec::new());
    }
    view.whole()?;
    // Another handle may have taken over meanwhile.
    view.store.epoch().map(drop)
}

/// Rows by table and key; a removal has no value.
type Rows = BTreeMap<(TableId, Box<[u8]>), Option<Arc<[u8]>>>;

fn batch_rows(view: &View<'_>, rows: Rows) -> impl Iterator<Item = Row> {
    rows.into_iter().filter_map(|((table, key), value)| Some((view.store.number(table).ok()?, key, value)))
}

/// A row that is written: its key, and its value unless it is removed.
type Written<'a> = (&'a [u8], Option<&'a Arc<[u8]>>);

/// A commit as it is sent.
fn proposal(
    view: &View<'_>,
    (version, continues): (u64, Vec<u8>),
    epoch: u64,
    rows: &Rows,
) -> Result<Proposal, CommitError> {
    let store = view.store;
    let mut named = Vec::with_capacity(rows.len());
    for ((table, key), value) in rows {
        named.push((store.number(*table)?, key, value));
    }
    let keys = changes::encode(named.iter().map(|(table, key, _)| (*table, &***key)));
    let (mut deletes, mut puts) = (Vec::new(), Vec::new());
    for (table, key, value) in named {
        match value {
            Some(value) => puts.push(((table, key.clone()), Arc::clone(value))),
            None => deletes.push((table, key.clone())),
        }
    }
    let trims = version.is_multiple_of(COMMITS_TRIMMED_EVERY) && version > COMMITS_KEPT;
    let trimmed = if trims { version - COMMITS_KEPT } else { 0 };
    let (continues, attempt) = (Some(continues), store.new_attempt());
    Ok(Proposal { version, continues, epoch, attempt, keys, deletes, puts, trimmed })
}

/// Asks for the blocks of all posting lists that change, in one round trip; else each list would take several. Only where one of them
/// has more blocks than the answer brings along does another trip bring those that change.
fn read_ahead(view: &View<'_>, changes: &WriteSet) -> Result<(), CommitError> {
    let block = |key: &[u8], id: u64| [key, &id.to_be_bytes()[..]].concat();
    for table in changes.tables() {
        let number = view.store.number(table)?;
        let mut firsts = Vec::new();
        for (key, _) in changes.postings(table) {
            let (from, to) = blocks_of(key);
            let range = Range { table: number, from: from.clone(), to: Some(to.clone()) };
            if view.known_edge(&range, Direction::Forward).is_none() {
                firsts.push((from, to));
            }
        }
        ask_edges(view, table, number, firsts, Direction::Forward)?;
        // Of most lists all is known by now.
        let mut lasts = Vec::new();
        for (key, edits) in changes.postings(table) {
            let from = blocks_of(key).0;
            let ids = || edits.iter().map(|(id, _)| id);
            for id in [ids().next(), ids().last(), Some(u64::MAX)].into_iter().flatten() {
                let last = (from.clone(), after(&block(key, id)));
                let range = Range { table: number, from: from.clone(), to: Some(last.1.clone()) };
                if lasts.last() != Some(&last) && view.known_edge(&range, Direction::Backward).is_none() {
                    lasts.push(last);
                }
            }
        }
        // A single one is asked for as it is read.
        if lasts.len() > 1 {
            ask_edges(view, table, number, lasts, Direction::Backward)?;
        }
    }
    Ok(())
}

/// Asks for the first blocks of lists, or for the last ones.
fn ask_edges(
    view: &View<'_>,
    table: TableId,
    number: u8,
    mut ranges: Vec<(Vec<u8>, Vec<u8>)>,
    direction: Direction,
) -> Result<(), CommitError> {
    while !ranges.is_empty() {
        let some = ranges.split_off(ranges.len().saturating_sub(BLOCKS_ASKED_MAX));
        let question = match direction {
            Direction::Forward => Question::Firsts { table: number, ranges: some.clone() },
            Direction::Backward => Question::Lasts { table: number, ranges: some.clone() },
        };
        let answers = view.ask(vec![question]).map_err(Fault::into_read)?.pop().unwrap_or_default();
        view.fill_edges(table, number, &some, answers, direction)?;
    }
    Ok(())
}

/// What the store would hold with the rows written so far.
struct Applied<'a, 's> {
    view: &'a View<'s>,
    rows: Rows,
    bytes: usize,
    sizes: &'a Sizes,
}

impl Applied<'_, '_> {
    fn set(&mut self, table: TableId, key: &[u8], value: Option<Arc<[u8]>>) -> Result<(), CommitError> {
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        let most = self.sizes.commit_bytes_max;
        if self.bytes > most {
            let text = format!("one commit changes more than the {} MB that the engine takes", most >> 20);
            return Err(CommitError::Io(std::io::Error::other(text)));
        }
        self.rows.insert((table, key.into()), value);
        Ok(())
    }

    /// The written row that is next to `key`, itself included.
    fn written(&self, table: TableId, key: &[u8], direction: Direction) -> Option<Written<'_>> {
        let found = match direction {
            Direction::Forward => self.rows.range((table, key.into())..).next(),
            Direction::Backward => self.rows.range(..=(table, key.into())).next_back(),
        };
        let ((found, key), value) = found?;
        (*found == table).then_some((&**key, value.as_ref()))
    }

    /// The next record from `key` on; with a `list` of posting blocks as far as these go.
    fn next<'a>(
        &'a self,
        table: TableId,
        list: Option<&[u8]>,
        key: &[u8],
        direction: Direction,
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        let mut key = key.to_vec();
        loop {
            let stored = match (direction, list) {
                (Direction::Forward, None) => self.view.at_least(table, &key)?,
                (Direction::Backward, None) => self.view.at_most(table, &key)?,
                (Direction::Forward, Some(list)) => self.view.first_block(table, list, &key)?,
                (Direction::Backward, Some(list)) => self.view.last_block(table, list, &key)?,
            };
            let Some((own, value)) = self.written(table, &key, direction) else { return Ok(stored) };
            let stored_first = stored.as_ref().is_some_and(|(stored, _)| match direction {
                Direction::Forward => **stored < *own,
                Direction::Backward => **stored > *own,
            });
            if stored_first {
                return Ok(stored);
            }
            if let Some(value) = value {
                return Ok(Some((Cow::Owned(own.to_vec()), Cow::Owned(value.to_vec()))));
            }
            // It is removed: whatever is beyond it.
            let Some(beyond) = beyond(own, direction) else { return Ok(None) };
            key = beyond;
        }
    }
}

/// The next key in a direction that a record could have: for the way back, one that no record of another length lies before.
fn beyond(key: &[u8], direction: Direction) -> Option<Vec<u8>> {
    if direction == Direction::Forward {
        return Some(after(key));
    }
    let (last, front) = key.split_last()?;
    let mut before = front.to_vec();
    if let Some(less) = last.checked_sub(1) {
        before.push(less);
        before.resize(larix_store::KEY_BYTES_MAX + 1, u8::MAX);
    }
    (!before.is_empty()).then_some(before)
}

/// Nobody walks over a table that is being changed.
type NoRecords<'a> = std::iter::Empty<Result<KeyValue<'a>, ReadError>>;

impl OrderedRead for Applied<'_, '_> {
    type Records<'a>
        = NoRecords<'a>
    where
        Self: 'a;

    const IS_DISTANT: bool = true;

    fn catalog(&self) -> &Catalog {
        self.view.catalog()
    }

    fn version(&self) -> u64 {
        self.view.version()
    }

    fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        match self.rows.get(&(table, key.into())) {
            Some(written) => Ok(written.as_ref().map(|value| Cow::Owned(value.to_vec()))),
            None => self.view.value(table, key),
        }
    }

    fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.next(table, None, key, Direction::Forward)
    }

    fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.next(table, None, key, Direction::Backward)
    }

    fn first_block<'a>(
        &'a self,
        table: TableId,
        list: &[u8],
        key: &[u8],
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.next(table, Some(list), key, Direction::Forward)
    }

    fn last_block<'a>(
        &'a self,
        table: TableId,
        list: &[u8],
        key: &[u8],
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.next(table, Some(list), key, Direction::Backward)
    }

    fn records<'a>(
        &'a self,
        _: TableId,
        _: KeyRange<'_>,
        _: Direction,
    ) -> Result<Self::Records<'a>, ReadError> {
        Err(ReadError::Io(std::io::Error::other("a scan within a commit: a bug")))
    }
}

impl OrderedWrite for Applied<'_, '_> {
    fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        self.sizes.check(value)?;
        self.set(table, key, Some(value.into()))
    }

    fn erase(&mut self, table: TableId, key: &[u8]) -> Result<(), CommitError> {
        self.set(table, key, None)
    }
}
