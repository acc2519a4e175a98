//! Records in order.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{RoRange, RoRevRange, RoTxn};

use super::{LmdbStore, NativeId, Records, id_range, native_id};
use crate::error::ReadError;
use crate::store::KeyValue;
use crate::table::{Direction, KeyRange, TableId};

/// The records of a range.
pub struct LmdbRecords<'a> {
    store: &'a LmdbStore,
    walk: Walk<'a>,
}

enum Walk<'a> {
    None,
    Bytes(RoRange<'a, Bytes, Bytes>),
    BytesBackward(RoRevRange<'a, Bytes, Bytes>),
    /// The far end is checked here: the range type compares bytes.
    Integers(RoRange<'a, Bytes, Bytes>, Bound<u64>),
    IntegersBackward(RoRevRange<'a, Bytes, Bytes>, Bound<u64>),
}

impl fmt::Debug for LmdbRecords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LmdbRecords").finish_non_exhaustive()
    }
}

impl<'a> LmdbRecords<'a> {
    pub(super) fn none(store: &'a LmdbStore) -> Self {
        Self { store, walk: Walk::None }
    }

    pub(super) fn bytes(
        store: &'a LmdbStore,
        records: Records,
        txn: &'a RoTxn<'_>,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self, ReadError> {
        let start = range.start.as_ref().map(AsRef::as_ref);
        let end: Bound<&[u8]> = range.end.as_ref().map(AsRef::as_ref);
        // No key is empty, and LMDB cannot seek one.
        let start: Bound<&[u8]> = match start {
            Bound::Included([]) | Bound::Excluded([]) => Bound::Unbounded,
            start => start,
        };
        if range.is_empty() || matches!(end, Bound::Included([]) | Bound::Excluded([])) {
            return Ok(Self::none(store));
        }
        let bounds = (start, end);
        let walk = match direction {
            Direction::Forward => records.range(txn, &bounds).map(Walk::Bytes),
            Direction::Backward => records.rev_range(txn, &bounds).map(Walk::BytesBackward),
        };
        Ok(Self { store, walk: walk.map_err(|error| store.read_error(error))? })
    }

    pub(super) fn integers(
        store: &'a LmdbStore,
        records: Records,
        txn: &'a RoTxn<'_>,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self, ReadError> {
        let (start, end) = id_range(range);
        let walk = match direction {
            Direction::Forward => {
                let start = start.map(NativeId::new);
                let bounds = (start.as_ref().map(NativeId::bytes), Bound::Unbounded);
                records.range(txn, &bounds).map(|walk| Walk::Integers(walk, end))
            }
            Direction::Backward => {
                let end = end.map(NativeId::new);
                let bounds = (Bound::Unbounded, end.as_ref().map(NativeId::bytes));
                records.rev_range(txn, &bounds).map(|walk| Walk::IntegersBackward(walk, start))
            }
        };
        Ok(Self { store, walk: walk.map_err(|error| store.read_error(error))? })
    }
}

impl<'a> Iterator for LmdbRecords<'a> {
    type Item = Result<KeyValue<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (record, far) = match &mut self.walk {
            Walk::None => return None,
            Walk::Bytes(walk) => (walk.next(), None),
            Walk::BytesBackward(walk) => (walk.next(), None),
            Walk::Integers(walk, end) => (walk.next(), Some((Bound::Unbounded, *end))),
            Walk::IntegersBackward(walk, start) => (walk.next(), Some((*start, Bound::Unbounded))),
        };
        let (key, value) = match record? {
            Ok(record) => record,
            Err(error) => {
                self.walk = Walk::None;
                return Some(Err(self.store.read_error(error)));
            }
        };
        let Some(range) = far else { return Some(Ok((Cow::Borrowed(key), Cow::Borrowed(value)))) };
        let Some(id) = native_id(key) else {
            self.walk = Walk::None;
            let table = TableId(u8::MAX);
            return Some(Err(ReadError::Corrupt { table, what: "an integer key is not of 8 bytes" }));
        };
        if !std::ops::RangeBounds::contains(&range, &id) {
            self.walk = Walk::None;
            return None;
        }
        Some(Ok((Cow::Owned(id.to_be_bytes().to_vec()), Cow::Borrowed(value))))
    }
}
