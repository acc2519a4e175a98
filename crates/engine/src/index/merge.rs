//! Bringing pending substring keys into the index ([`super::pending`]).
//!
//! A cycle takes the rows that stand at its beginning. Attribute by attribute it gathers their keys, which then come in
//! key order: so each page of the index is changed once for all entries, whatever the cycle's slices are. A slice goes
//! into the commit of a group of changes, or into one of its own when there are none. The last one removes the rows, but
//! for those that changed meanwhile: they are taken by the next cycle. Nothing of a cycle is stored: after a crash another
//! one begins with the rows that stand.

use std::collections::{BTreeSet, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use larix_store::{
    CommitError, Direction, Durability, KeyRange, ReadError, Snapshot, Store, Transaction, WriteSet,
};

use super::KeyKind;
use super::pending::{Runs, whole_key};
use crate::entry::{AttributeNumber, EntryId};
use crate::fault::Fault;
use crate::tables::{INDEX, PENDING};

/// Rows at which a cycle begins. A search by substrings reads all rows that stand.
pub(crate) const ROWS_BEFORE_MERGE: usize = 2_048;
/// Keys brought in with a group of changes, about 5 ms of work. A group adds to it what it left pending itself, twice:
/// so a cycle ends before as many rows stand again.
pub(crate) const SLICE_KEYS: usize = 4_096;
/// Keys merged at once while there is no other work.
pub(crate) const IDLE_SLICE_KEYS: usize = 4 * SLICE_KEYS;

/// Rows that a cycle takes at most: what bounds its memory.
const CYCLE_ROWS_MAX: usize = 8 * ROWS_BEFORE_MERGE;

type Ids = HashSet<u64, FixedState>;
type AttributeIndex = (AttributeNumber, KeyKind);
/// The ids of one key, and whether it is theirs.
type Edits = Vec<(u64, bool)>;

/// The pending rows, and how far they are brought in.
#[derive(Debug, Default)]
pub struct Merger {
    rows: Ids,
    cycle: Option<Cycle>,
}

#[derive(Debug)]
struct Cycle {
    row_ids: Vec<u64>,
    /// Rows written since the cycle began.
    changed: Ids,
    parts: BTreeSet<AttributeIndex>,
    /// What is left of the part that is being brought in, in key order.
    edits: VecDeque<(Vec<u8>, Edits)>,
}

impl Merger {
    /// Learns of the rows that stand.
    pub fn new<S: Snapshot>(snapshot: &S) -> Result<Self, Fault> {
        let mut rows = Ids::default();
        for row in snapshot.scan(PENDING, KeyRange::all(), Direction::Forward)? {
            rows.insert(row_id(&row?.0)?);
        }
        Ok(Self { rows, cycle: None })
    }

    /// Whether rows stand.
    pub fn is_pending(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Takes a slice of about `keys` keys, to be committed next. Without a cycle one begins when enough rows stand, or when
    /// `now`. Should the commit fail, this merger no longer knows what stands: make another.
    pub fn slice<S: Snapshot>(&mut self, view: &S, keys: usize, now: bool) -> Result<Slice, Fault> {
        let mut slice = Slice::default();
        if self.cycle.is_none() && !self.rows.is_empty() && (now || self.rows.len() >= ROWS_BEFORE_MERGE) {
            self.cycle = Some(Cycle::begin(view)?);
        }
        let Some(cycle) = &mut self.cycle else { return Ok(slice) };
        if cycle.bring_in(view, &mut slice.edits, keys)? {
            slice.done = cycle.row_ids.iter().copied().filter(|id| !cycle.changed.contains(id)).collect();
            for id in &slice.done {
                self.rows.remove(id);
            }
            self.cycle = None;
        }
        Ok(slice)
    }

    /// Learns what rows a group writes: before its slice is made. Answers how many bytes they have.
    pub fn observe(&mut self, set: &WriteSet) -> Result<usize, Fault> {
        let mut bytes = 0;
        for (key, row) in set.records(PENDING) {
            let id = row_id(key)?;
            bytes += row.map_or(0, <[u8]>::len);
            self.rows.insert(id);
            if let Some(cycle) = &mut self.cycle {
                cycle.changed.insert(id);
            }
        }
        Ok(bytes)
    }
}

/// Keys that go into the index together.
#[derive(Debug, Default)]
pub struct Slice {
    edits: Vec<(Vec<u8>, Edits)>,
    /// Rows without any remaining key to merge.
    done: Vec<u64>,
}

impl Slice {
    pub fn write(self, set: &mut WriteSet) {
        for (key, edits) in &self.edits {
            set.edit_postings(INDEX, key, edits);
        }
        self.done.iter().for_each(|id| set.delete(PENDING, &id.to_be_bytes()));
    }
}

impl Cycle {
    fn begin<S: Snapshot>(view: &S) -> Result<Self, Fault> {
        let (mut row_ids, mut parts) = (Vec::new(), BTreeSet::new());
        for row in view.scan(PENDING, KeyRange::all(), Direction::Forward)?.take(CYCLE_ROWS_MAX) {
            let (id, bytes) = row?;
            row_ids.push(row_id(&id)?);
            for run in Runs::new(&bytes)? {
                let run = run?;
                parts.insert((run.number, run.kind));
            }
        }
        Ok(Self { row_ids, changed: Ids::default(), parts, edits: VecDeque::new() })
    }

    /// Answers whether everything is in the index with this slice.
    fn bring_in<S: Snapshot>(
        &mut self,
        view: &S,
        slice: &mut Vec<(Vec<u8>, Edits)>,
        keys: usize,
    ) -> Result<bool, Fault> {
        let mut remaining = keys;
        while remaining > 0 {
            let Some((key, edits)) = self.edits.pop_front() else {
                match self.parts.pop_first() {
                    Some(part) => self.edits = gather(view, part, &self.row_ids)?,
                    None => return Ok(true),
                }
                continue;
            };
            remaining = remaining.saturating_sub(edits.len());
            slice.push((key, edits));
        }
        Ok(self.edits.is_empty() && self.parts.is_empty())
    }
}

/// The keys of one attribute and kind in the rows taken, in order. A row between them that came since is brought in early.
fn gather<S: Snapshot>(
    view: &S,
    part: AttributeIndex,
    row_ids: &[u64],
) -> Result<VecDeque<(Vec<u8>, Edits)>, Fault> {
    let (Some(first), Some(last)) = (row_ids.first(), row_ids.last()) else { return Ok(VecDeque::new()) };
    let (first, last) = (first.to_be_bytes(), last.to_be_bytes());
    let range = KeyRange { end: KeyRange::at_most(&last).end, ..KeyRange::at_least(&first) };
    let mut head = part.0.0.to_be_bytes().to_vec();
    head.push(part.1 as u8);
    let mut gathered: HashMap<Vec<u8>, Edits, FixedState> = HashMap::default();
    for row in view.scan(PENDING, range, Direction::Forward)? {
        let (id, bytes) = row?;
        let id = row_id(&id)?;
        for run in Runs::new(&bytes)? {
            let run = run?;
            if (run.number, run.kind) != part {
                continue;
            }
            for tail in run.tails() {
                gathered.entry_ref(tail?).or_default().push((id, run.present));
            }
        }
    }
    let mut keys: Vec<(Vec<u8>, Edits)> = gathered.into_iter().collect();
    keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(keys.into_iter().map(|(tail, edits)| (whole_key(&[head.as_slice(), &tail].concat()), edits)).collect())
}

/// Brings everything into the index: what a tool does before it makes an index anew. Nothing else writes meanwhile.
pub fn drain<S: Store>(store: &S) -> Result<(), DrainError> {
    let mut merger = Merger::new(&store.snapshot()?)?;
    while merger.is_pending() {
        let transaction = store.transaction().map_err(DrainError::Commit)?;
        let mut set = WriteSet::new();
        merger.slice(&transaction, IDLE_SLICE_KEYS, true)?.write(&mut set);
        transaction.commit(&set, Durability::Sync).map_err(DrainError::Commit)?;
    }
    Ok(())
}

/// Why not everything was brought in. What was left stands.
#[derive(Debug)]
pub enum DrainError {
    Read(Fault),
    Commit(CommitError),
}

impl From<Fault> for DrainError {
    fn from(fault: Fault) -> Self {
        Self::Read(fault)
    }
}

impl From<ReadError> for DrainError {
    fn from(error: ReadError) -> Self {
        Self::Read(error.into())
    }
}

fn row_id(key: &[u8]) -> Result<u64, Fault> {
    EntryId::from_prefix(key)
        .map(|id| id.0)
        .ok_or(Fault::Damaged { what: "a key of the table of pending index keys" })
}
