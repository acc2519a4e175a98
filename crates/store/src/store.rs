//! The traits of an ordered key-value store, as the directory needs it.

use std::borrow::Cow;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringTreemap;

use crate::ahead::Wanted;
use crate::error::{Attempt, CommitError, ReadError};
use crate::table::{Direction, KeyRange, TableId, TableSpec, VALUE_BYTES_MAX};
use crate::write_set::WriteSet;

/// A key and its value, borrowed from the snapshot where the engine can.
pub type KeyValue<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A posting key and how many ids it has.
pub type KeyCount<'a> = (Cow<'a, [u8]>, u64);

/// An ordered key-value store with snapshots and single-commit transactions.
///
/// Every engine passes the suite of [`crate::contract`].
pub trait Store: Send + Sync + Debug + 'static {
    type Snapshot<'s>: Snapshot
    where
        Self: 's;
    type Transaction<'s>: Transaction
    where
        Self: 's;
    type Loader<'s>: Loader
    where
        Self: 's;

    /// Whether another handle, process or machine may commit to this store while it is open. If so, a caller that remembers what it read
    /// has to compare [`Snapshot::commit_counter`] before it uses that again. LMDB's lock keeps every other writer out.
    const SHARED: bool = false;

    /// The tables declared at open.
    fn tables(&self) -> &[TableSpec];

    /// The state after the last commit; it does not change while it is held. A thread may hold one snapshot of a
    /// store at a time (an open transaction of the same thread does not count); an engine may refuse a second one
    /// with [`ReadError::SnapshotHeld`].
    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError>;

    /// As [`Self::snapshot`], for a caller that is going to read `wanted`: a distant store fetches both in one round trip.
    fn snapshot_with(&self, _wanted: &[Wanted]) -> Result<Self::Snapshot<'_>, ReadError> {
        self.snapshot()
    }

    /// Opens a transaction. With an engine of one writer this waits until the transaction before has ended.
    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError>;

    /// As [`Self::snapshot_with`].
    fn transaction_with(&self, _wanted: &[Wanted]) -> Result<Self::Transaction<'_>, CommitError> {
        self.transaction()
    }

    /// A number that grows with every commit of this store; one atomic load. If it equals the snapshot's own, the
    /// snapshot shows everything that was acknowledged before the call. In a [shared](Self::SHARED) store: everything
    /// that was acknowledged through this handle.
    fn commit_counter(&self) -> u64;

    /// The first commit since which this handle knows that no commit was lost; 0: since it was opened. A [shared](Self::SHARED) store that
    /// was out of reach for long may have been replaced, with other commits of the same numbers. What a caller remembers from before this
    /// commit must not be used from it on.
    fn unbroken_since(&self) -> u64 {
        0
    }

    /// The outcome of a commit that ended with [`CommitError::OutcomeUnknown`]: its number, or `None` if it was not made and never will
    /// be.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] if that cannot be found out now.
    fn outcome(&self, _attempt: Attempt) -> Result<Option<CommitId>, ReadError> {
        // No commit of this store ends that way.
        Err(ReadError::Unavailable(io::Error::other("the store knows of no commit without an answer")))
    }

    /// Sizes for monitoring. May take time in proportion to the free list.
    fn statistics(&self) -> Result<Statistics, ReadError>;

    /// Makes every commit so far durable.
    fn sync(&self) -> Result<(), CommitError>;

    /// Starts a bulk load into empty tables: see [`Loader`]. If the machine dies before its end, the store may be lost, so this is for a
    /// store without content.
    fn loader(&self) -> Result<Self::Loader<'_>, CommitError>;

    /// As [`Self::loader`], while others read the store and it has content to keep: whatever ends the process or the machine, the store
    /// stays sound, with some of the appended records or none.
    fn live_loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        self.loader()
    }

    /// Whether commits are refused: opened for reading only, or a sync failed.
    fn is_read_only(&self) -> bool;

    /// Whether this handle has no right to commit yet, and is about to get it from another handle of this process. A transaction waits for
    /// that: who holds what the other handle needs for its last commits must not begin one.
    fn awaits_right(&self) -> bool {
        false
    }

    /// Waits for that right, until it is there or does not come in time.
    fn await_right(&self) {}

    /// The longest value that a commit may have, in bytes.
    fn value_bytes_max(&self) -> usize {
        VALUE_BYTES_MAX
    }

    /// The error text for a longer value: where the limit comes from, and how to raise it.
    fn value_limit_text(&self) -> String {
        format!("{} are the most that the store takes", self.value_bytes_max())
    }
}

/// A store of several owners, which outlives the databases that are opened on it.
impl<S: Store> Store for Arc<S> {
    type Snapshot<'s> = S::Snapshot<'s>;
    type Transaction<'s> = S::Transaction<'s>;
    type Loader<'s> = S::Loader<'s>;

    const SHARED: bool = S::SHARED;

    fn tables(&self) -> &[TableSpec] {
        (**self).tables()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        (**self).snapshot()
    }

    fn snapshot_with(&self, wanted: &[Wanted]) -> Result<Self::Snapshot<'_>, ReadError> {
        (**self).snapshot_with(wanted)
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        (**self).transaction()
    }

    fn transaction_with(&self, wanted: &[Wanted]) -> Result<Self::Transaction<'_>, CommitError> {
        (**self).transaction_with(wanted)
    }

    fn commit_counter(&self) -> u64 {
        (**self).commit_counter()
    }

    fn unbroken_since(&self) -> u64 {
        (**self).unbroken_since()
    }

    fn outcome(&self, attempt: Attempt) -> Result<Option<CommitId>, ReadError> {
        (**self).outcome(attempt)
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        (**self).statistics()
    }

    fn sync(&self) -> Result<(), CommitError> {
        (**self).sync()
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        (**self).loader()
    }

    fn live_loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        (**self).live_loader()
    }

    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }

    fn awaits_right(&self) -> bool {
        (**self).awaits_right()
    }

    fn await_right(&self) {
        (**self).await_right();
    }

    fn value_bytes_max(&self) -> usize {
        (**self).value_bytes_max()
    }

    fn value_limit_text(&self) -> String {
        (**self).value_limit_text()
    }
}

/// A consistent view to read from.
pub trait Snapshot {
    type Scan<'a>: Iterator<Item = Result<KeyValue<'a>, ReadError>>
    where
        Self: 'a;
    type Cursor<'a>: PostingCursor
    where
        Self: 'a;
    type PostingKeys<'a>: Iterator<Item = Result<KeyCount<'a>, ReadError>>
    where
        Self: 'a;

    /// Whether a read may take a round trip to another process. If so, callers should read several records at once, with
    /// [`Self::get_many`]; otherwise that costs a list for nothing.
    const IS_DISTANT: bool = false;

    /// Fetches what is going to be read, in one round trip if the store is distant. A failure shows when it is read.
    fn fetch_ahead(&self, _wanted: &[Wanted]) {}

    /// The number of the last commit that this view shows. If a transaction shows the number of the caller's own last commit, no other
    /// writer has committed since.
    fn commit_counter(&self) -> u64;

    /// Calls `visit` with each set of changes that lies over the committed state, in their order.
    fn visit_changes(&self, _visit: &mut dyn FnMut(&WriteSet)) {}

    /// The value of `key`. A key that could not be stored (too long, say) has no value.
    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError>;

    /// The values of several keys, in the order of `keys`: one round trip if the store is distant.
    fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        keys.iter().map(|key| self.get(table, key.as_ref())).collect()
    }

    /// The records of `range` in key order or against it.
    fn scan<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Scan<'a>, ReadError>;

    /// The ids of `key`, ascending. A key without ids has an empty list.
    fn postings<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Self::Cursor<'a>, ReadError>;

    /// How many ids `key` has: exact of what is committed, an estimate under many changes that are not.
    fn posting_estimate(&self, table: TableId, key: &[u8]) -> Result<u64, ReadError>;

    /// As [`Self::posting_estimate`]; when there are at most `limit` ids, and it costs nothing more, they are appended
    /// to `out`, which is otherwise left as it is.
    fn posting_head(
        &self,
        table: TableId,
        key: &[u8],
        _limit: u64,
        _out: &mut Vec<u64>,
    ) -> Result<u64, ReadError> {
        self.posting_estimate(table, key)
    }

    /// The keys of `range` that have ids, each with its estimate.
    fn posting_keys<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::PostingKeys<'a>, ReadError>;

    /// All ids of `key` in memory.
    fn posting_set(&self, table: TableId, key: &[u8]) -> Result<RoaringTreemap, ReadError> {
        let mut cursor = self.postings(table, key)?;
        let mut set = RoaringTreemap::new();
        let mut ids = Vec::new();
        while cursor.read(POSTING_READ_IDS, &mut ids)? {
            // Ids ascend, so that appending never fails; `extend` would only be slower.
            if set.append(ids.iter().copied()).is_err() {
                return Err(ReadError::Corrupt { table, what: "posting ids do not ascend" });
            }
            ids.clear();
        }
        Ok(set)
    }

    /// Whether `id` is among the ids of `key`.
    fn posting_contains(&self, table: TableId, key: &[u8], id: u64) -> Result<bool, ReadError> {
        Ok(self.postings(table, key)?.seek(id)? == Some(id))
    }
}

/// Ids read at once where a whole list is wanted.
const POSTING_READ_IDS: usize = 4096;

/// A place in the ascending ids of one key.
pub trait PostingCursor {
    /// Moves forward to the first id `>= min` that has not been passed, and returns it. Seeking backwards stays
    /// where the cursor is and returns the current id.
    fn seek(&mut self, min: u64) -> Result<Option<u64>, ReadError>;

    /// The first id after the one returned last.
    fn next(&mut self) -> Result<Option<u64>, ReadError>;

    /// Appends up to `limit` next ids to `out`; false if there was none.
    fn read(&mut self, limit: usize, out: &mut Vec<u64>) -> Result<bool, ReadError> {
        let before = out.len();
        while out.len() - before < limit {
            match self.next()? {
                Some(id) => out.push(id),
                None => break,
            }
        }
        Ok(out.len() > before)
    }
}

/// A view that can be committed to.
pub trait Transaction: Snapshot {
    /// Reads a record that the change set will overwrite: an engine with optimistic transactions notes it.
    fn get_for_update<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        self.get(table, key)
    }

    /// Applies `changes` in key order and commits. After an error nothing of them is in the store, unless the error is
    /// [`CommitError::OutcomeUnknown`]. Dropping the transaction instead abandons it.
    ///
    /// The number is one above the transaction's [`Snapshot::commit_counter`] if nothing else was committed since it began; an engine need
    /// not count a commit without changes. A transaction that would read something else by now does not commit:
    /// [`CommitError::Conflict`].
    fn commit(self, changes: &WriteSet, durability: Durability) -> Result<CommitId, CommitError>
    where
        Self: Sized;

    /// Ends a transaction without changes, so that what it read may be answered. A store of several machines may check only here whether
    /// the transaction shows the newest commit.
    ///
    /// # Errors
    /// Something that it read has changed ([`CommitError::Conflict`]), or the store cannot tell.
    fn confirm(self) -> Result<(), CommitError>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// A bulk load, which fills tables in key order. Nothing is durable or surely readable before [`Loader::finish`]. After an error or a drop
/// the store's content is undefined: load into a directory that you can throw away.
pub trait Loader {
    /// Empties a table, before anything is appended to it.
    fn clear(&mut self, table: TableId) -> Result<(), CommitError>;

    /// Appends a record. `key` is above every key of the table.
    fn append(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError>;

    /// Appends one id to the posting list of `key`. The pairs (key, id) of a table come in ascending order; a pair
    /// equal to the one before is ignored.
    fn append_posting(&mut self, table: TableId, key: &[u8], id: u64) -> Result<(), CommitError>;

    /// Appends the ids of `key`, which ascend.
    fn append_postings(
        &mut self,
        table: TableId,
        key: &[u8],
        ids: &mut dyn Iterator<Item = u64>,
    ) -> Result<(), CommitError> {
        for id in ids {
            self.append_posting(table, key, id)?;
        }
        Ok(())
    }

    /// Appends ids of `key` given as runs: each a first id and how many there are from it on. They ascend.
    fn append_posting_runs(
        &mut self,
        table: TableId,
        key: &[u8],
        runs: &mut dyn Iterator<Item = (u64, u64)>,
    ) -> Result<(), CommitError> {
        self.append_postings(table, key, &mut runs.flat_map(|(start, length)| start..start + length))
    }

    /// Writes a record whatever the table holds, together with the end of the load.
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError>;

    /// Ends the load and syncs.
    fn finish(self) -> Result<CommitId, CommitError>
    where
        Self: Sized;
}

/// How durable a commit is when it returns. A crash of the process loses nothing in any case; this is about a crash of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The data are synced, the root is not: the last commits may be undone, the store stays sound.
    NoMetaSync,
    /// Nothing is synced: the store itself may be lost. For offline tools on a copy, never while serving.
    NoSync,
    /// Everything is synced and stays.
    Sync,
}

/// The number of a commit: the store's commit counter after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub u64);

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub tables: Vec<TableStatistics>,
    pub page_bytes: u64,
    /// Pages of the file up to the last one used.
    pub pages_used: u64,
    /// Pages among those that are free for use again.
    pub pages_free: u64,
    /// Size of the reserved map.
    pub map_bytes: u64,
    pub readers: u32,
    pub max_readers: u32,
    /// How long this process's oldest read transaction has been open, where the store knows.
    pub oldest_read: Option<Duration>,
    pub commit_counter: u64,
}

/// What one table holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStatistics {
    pub name: &'static str,
    /// Records; in a table of postings, blocks.
    pub records: u64,
    pub depth: u32,
    pub branch_pages: u64,
    pub leaf_pages: u64,
    pub overflow_pages: u64,
}
