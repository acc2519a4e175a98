//! Changes not committed yet, seen as if they were.

use std::borrow::Cow;
use std::fmt;

use crate::ahead::Wanted;
use crate::error::ReadError;
use crate::store::{KeyCount, KeyValue, PostingCursor, Snapshot};
use crate::table::{Direction, KeyRange, TableId};
use crate::write_set::{Key, PostingEdits, PostingRange, RecordRange, WriteSet};

/// A [`WriteSet`] over a [`Snapshot`], itself one. They stack: an operation's changes over its group's over the
/// store's.
pub struct Layered<'o, S> {
    base: &'o S,
    changes: &'o WriteSet,
}

impl<'o, S: Snapshot> Layered<'o, S> {
    /// The changes over the base. Neither is copied.
    pub fn new(base: &'o S, changes: &'o WriteSet) -> Self {
        Self { base, changes }
    }

    pub fn base(&self) -> &'o S {
        self.base
    }

    pub fn changes(&self) -> &'o WriteSet {
        self.changes
    }
}

impl<S> Clone for Layered<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Layered<'_, S> {}

impl<S> fmt::Debug for Layered<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl<S: Snapshot> Snapshot for Layered<'_, S> {
    type Scan<'a>
        = LayeredScan<'a, S>
    where
        Self: 'a;
    type Cursor<'a>
        = LayeredCursor<'a, S>
    where
        Self: 'a;
    type PostingKeys<'a>
        = LayeredKeys<'a, S>
    where
        Self: 'a;

    const IS_DISTANT: bool = S::IS_DISTANT;

    fn fetch_ahead(&self, wanted: &[Wanted]) {
        self.base.fetch_ahead(wanted);
    }

    fn commit_counter(&self) -> u64 {
        self.base.commit_counter()
    }

    fn visit_changes(&self, visit: &mut dyn FnMut(&WriteSet)) {
        self.base.visit_changes(visit);
        visit(self.changes);
    }

    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        match self.changes.get(table, key) {
            Some(change) => Ok(change.map(Cow::Borrowed)),
            None => self.base.get(table, key),
        }
    }

    fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        let changed: Vec<_> = keys.iter().map(|key| self.changes.get(table, key.as_ref())).collect();
        let unchanged = keys.iter().zip(&changed).filter(|(_, change)| change.is_none());
        let unchanged: Vec<&K> = unchanged.map(|(key, _)| key).collect();
        let mut below = self.base.get_many(table, &unchanged)?.into_iter();
        let value = |change: Option<Option<&'a [u8]>>| match change {
            Some(change) => change.map(Cow::Borrowed),
            None => below.next().flatten(),
        };
        Ok(changed.into_iter().map(value).collect())
    }

    fn scan<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Scan<'a>, ReadError> {
        let changes = Changes { range: self.changes.record_range(table, &range, direction) };
        Ok(LayeredScan {
            base: Peeked::new(self.base.scan(table, range, direction)?),
            changes: Peeked::new(changes),
            direction,
        })
    }

    fn postings<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Self::Cursor<'a>, ReadError> {
        Ok(LayeredCursor::new(self.base.postings(table, key)?, self.changes.posting_edits(table, key)))
    }

    fn posting_estimate(&self, table: TableId, key: &[u8]) -> Result<u64, ReadError> {
        let base = self.base.posting_estimate(table, key)?;
        match self.changes.posting_edits(table, key) {
            None => Ok(base),
            Some(edits) => edited_count(self.base, table, key, base, edits),
        }
    }

    fn posting_keys<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::PostingKeys<'a>, ReadError> {
        let edits = EditedKeys { range: self.changes.posting_range(table, &range), direction };
        Ok(LayeredKeys {
            source: self.base,
            table,
            base: Peeked::new(self.base.posting_keys(table, range, direction)?),
            edits: Peeked::new(edits),
            direction,
        })
    }
}

/// Up to this many edits each is looked up, so that the count is as exact as that of the layer below; above, all are
/// taken to have an effect.
const EXACT_EDITS_MAX: usize = 16;

fn edited_count<S: Snapshot>(
    base: &S,
    table: TableId,
    key: &[u8],
    count: u64,
    edits: &PostingEdits,
) -> Result<u64, ReadError> {
    let exact = edits.len() <= EXACT_EDITS_MAX || count <= edits.len() as u64;
    let (mut added, mut removed) = (0, 0);
    if exact {
        let mut cursor = base.postings(table, key)?;
        for (id, present) in edits.iter() {
            let there = cursor.seek(id)? == Some(id);
            added += u64::from(present && !there);
            removed += u64::from(!present && there);
        }
    } else {
        for (_, present) in edits.iter() {
            *(if present { &mut added } else { &mut removed }) += 1;
        }
    }
    let estimate = (count + added).saturating_sub(removed);
    if removed == 0 {
        return Ok(estimate);
    }
    // The count below may itself be an estimate, where changes lie over others; whether any id is left must hold all the
    // same, for a list of none is taken to be no list.
    let mut left = LayeredCursor::<S>::new(base.postings(table, key)?, Some(edits));
    Ok(if left.next()?.is_some() { estimate.max(1) } else { 0 })
}

/// An iterator with one item taken ahead; unlike `Peekable` it gives the item away from an error, too.
struct Peeked<I: Iterator> {
    inner: I,
    ahead: Option<Option<I::Item>>,
}

impl<I: Iterator> Peeked<I> {
    fn new(inner: I) -> Self {
        Self { inner, ahead: None }
    }

    fn peek(&mut self) -> Option<&I::Item> {
        self.ahead.get_or_insert_with(|| self.inner.next()).as_ref()
    }

    fn take(&mut self) -> Option<I::Item> {
        match self.ahead.take() {
            Some(item) => item,
            None => self.inner.next(),
        }
    }
}

/// Which side a merge takes from next.
enum Side {
    Base,
    Changes,
    /// The change counts and the base's item is passed over.
    Both,
}

fn side(base: Option<&[u8]>, change: Option<&[u8]>, direction: Direction) -> Option<Side> {
    let order = match (base, change) {
        (None, None) => return None,
        (Some(_), None) => return Some(Side::Base),
        (None, Some(_)) => return Some(Side::Changes),
        (Some(base), Some(change)) => base.cmp(change),
    };
    Some(match (order, direction) {
        (std::cmp::Ordering::Equal, _) => Side::Both,
        (std::cmp::Ordering::Less, Direction::Forward)
        | (std::cmp::Ordering::Greater, Direction::Backward) => Side::Base,
        _ => Side::Changes,
    })
}

struct Changes<'a> {
    range: Option<RecordRange<'a>>,
}

impl<'a> Iterator for Changes<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.range.as_mut()?.next()
    }
}

struct EditedKeys<'a> {
    range: PostingRange<'a>,
    direction: Direction,
}

impl<'a> Iterator for EditedKeys<'a> {
    type Item = (&'a Key, &'a PostingEdits);

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.range.as_mut()?;
        match self.direction {
            Direction::Forward => range.next(),
            Direction::Backward => range.next_back(),
        }
    }
}

/// The records of both layers in one order.
pub struct LayeredScan<'a, S: Snapshot + 'a> {
    base: Peeked<S::Scan<'a>>,
    changes: Peeked<Changes<'a>>,
    direction: Direction,
}

impl<'a, S: Snapshot> fmt::Debug for LayeredScan<'a, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredScan").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl<'a, S: Snapshot> Iterator for LayeredScan<'a, S> {
    type Item = Result<KeyValue<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let base = match self.base.peek() {
                Some(Err(_)) => return self.base.take(),
                Some(Ok((key, _))) => Some(key.as_ref()),
                None => None,
            };
            let change = self.changes.peek().map(|(key, _)| *key);
            let change = match side(base, change, self.direction)? {
                Side::Base => return self.base.take(),
                Side::Changes => self.changes.take(),
                Side::Both => {
                    self.base.take();
                    self.changes.take()
                }
            };
            if let Some((key, Some(value))) = change {
                return Some(Ok((Cow::Borrowed(key), Cow::Borrowed(value))));
            }
        }
    }
}

/// The keys with ids of both layers in one order.
pub struct LayeredKeys<'a, S: Snapshot + 'a> {
    source: &'a S,
    table: TableId,
    base: Peeked<S::PostingKeys<'a>>,
    edits: Peeked<EditedKeys<'a>>,
    direction: Direction,
}

impl<'a, S: Snapshot> fmt::Debug for LayeredKeys<'a, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredKeys").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<'a, S: Snapshot> Iterator for LayeredKeys<'a, S> {
    type Item = Result<KeyCount<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let base = match self.base.peek() {
                Some(Err(_)) => return self.base.take(),
                Some(Ok((key, _))) => Some(key.as_ref()),
                None => None,
            };
            let edited = self.edits.peek().map(|(key, _)| key.as_slice());
            let (count, edited) = match side(base, edited, self.direction)? {
                Side::Base => return self.base.take(),
                Side::Changes => (0, self.edits.take()),
                Side::Both => match self.base.take() {
                    Some(Ok((_, count))) => (count, self.edits.take()),
                    other => return other,
                },
            };
            let (key, edits) = edited?;
            match edited_count(self.source, self.table, key, count, edits) {
                Ok(0) => {}
                Ok(count) => return Some(Ok((Cow::Borrowed(key.as_slice()), count))),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The ids of both layers in one order.
pub struct LayeredCursor<'a, S: Snapshot + 'a> {
    base: S::Cursor<'a>,
    /// The base's id at or behind the position, read ahead; none when it has to be asked for.
    base_next: Option<Option<u64>>,
    edits: Option<&'a PostingEdits>,
    current: Option<u64>,
    done: bool,
}

impl<'a, S: Snapshot> fmt::Debug for LayeredCursor<'a, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredCursor").field("current", &self.current).finish_non_exhaustive()
    }
}

impl<'a, S: Snapshot> LayeredCursor<'a, S> {
    fn new(base: S::Cursor<'a>, edits: Option<&'a PostingEdits>) -> Self {
        Self { base, base_next: None, edits, current: None, done: false }
    }

    /// The first id of either layer `>= min`.
    fn find(&mut self, min: u64) -> Result<Option<u64>, ReadError> {
        let mut min = min;
        loop {
            let base = match self.base_next {
                Some(id) if id.is_none_or(|id| id >= min) => id,
                _ => {
                    let id = self.base.seek(min)?;
                    self.base_next = Some(id);
                    id
                }
            };
            let edit = self.edits.and_then(|edits| edits.range(min).next());
            let (id, present) = match (base, edit) {
                (None, None) => return Ok(None),
                (Some(id), None) => (id, true),
                (Some(id), Some((edited, _))) if id < edited => (id, true),
                (_, Some((edited, present))) => (edited, present),
            };
            if present {
                return Ok(Some(id));
            }
            match id.checked_add(1) {
                Some(next) => min = next,
                None => return Ok(None),
            }
        }
    }

    fn settle(&mut self, id: Option<u64>) -> Option<u64> {
        self.current = id;
        self.done = id.is_none();
        id
    }
}

impl<S: Snapshot> PostingCursor for LayeredCursor<'_, S> {
    fn seek(&mut self, min: u64) -> Result<Option<u64>, ReadError> {
        if self.done {
            return Ok(None);
        }
        match self.current {
            Some(current) if current >= min => return Ok(Some(current)),
            _ => {}
        }
        let id = if self.edits.is_none() { self.base.seek(min)? } else { self.find(min)? };
        Ok(self.settle(id))
    }

    fn next(&mut self) -> Result<Option<u64>, ReadError> {
        if self.done {
            return Ok(None);
        }
        if self.edits.is_none() {
            let id = self.base.next()?;
            return Ok(self.settle(id));
        }
        let min = match self.current {
            None => 0,
            Some(id) => match id.checked_add(1) {
                Some(next) => next,
                None => return Ok(self.settle(None)),
            },
        };
        let id = self.find(min)?;
        Ok(self.settle(id))
    }
}
