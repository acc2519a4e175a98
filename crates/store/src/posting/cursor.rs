//! Walking the ids of one key.

use std::borrow::Cow;

use super::block::{Ids, View};
use super::{block_key, own_block, storable};
use crate::error::ReadError;
use crate::ordered::OrderedRead;
use crate::store::PostingCursor;
use crate::table::{POSTING_ID_MAX, TableId};
use crate::write_set::Key;

/// A [`PostingCursor`] over blocks. It holds one block at a time and looks the next one up by its key, so that a
/// seek skips the blocks between.
pub struct BlockCursor<'a, R> {
    source: &'a R,
    table: TableId,
    key: Key,
    block: Option<Loaded<'a>>,
    current: Option<u64>,
}

/// A walk over a block, and the block's bytes.
type Loaded<'a> = (Ids, Cow<'a, [u8]>);

impl<R> std::fmt::Debug for BlockCursor<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCursor")
            .field("key", &self.key)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

impl<'a, R: OrderedRead> BlockCursor<'a, R> {
    pub(crate) fn open(source: &'a R, table: TableId, key: &[u8]) -> Result<Self, ReadError> {
        let mut cursor = Self { source, table, key: Key::from_slice(key), block: None, current: None };
        if storable(key) {
            cursor.load_from(0)?;
        }
        Ok(cursor)
    }

    /// Loads the first block whose first id is `>= first`, or none.
    fn load_from(&mut self, first: u64) -> Result<(), ReadError> {
        self.block = match self.source.first_block(self.table, &self.key, &block_key(&self.key, first))? {
            Some((found, value)) => self.own(&found, value)?,
            None => None,
        };
        Ok(())
    }

    /// Loads the block in which `id` is, if it is there.
    fn load_around(&mut self, id: u64) -> Result<(), ReadError> {
        self.block = match self.source.last_block(self.table, &self.key, &block_key(&self.key, id))? {
            Some((found, value)) => self.own(&found, value)?,
            None => None,
        };
        Ok(())
    }

    fn own(&self, found: &[u8], value: Cow<'a, [u8]>) -> Result<Option<Loaded<'a>>, ReadError> {
        match own_block(&self.key, found) {
            Some(first) if first <= POSTING_ID_MAX => {
                let view = View::parse(self.table, first, &value)?;
                Ok(Some((Ids::new(view), value)))
            }
            _ => Ok(None),
        }
    }

    fn finish(&mut self) -> Result<Option<u64>, ReadError> {
        self.block = None;
        self.current = None;
        Ok(None)
    }

    fn cut(&self) -> ReadError {
        ReadError::Corrupt { table: self.table, what: "a posting block holds less than its preface says" }
    }
}

impl<R: OrderedRead> PostingCursor for BlockCursor<'_, R> {
    fn seek(&mut self, min: u64) -> Result<Option<u64>, ReadError> {
        if let Some(current) = self.current
            && current >= min
        {
            return Ok(Some(current));
        }
        let Some((ids, value)) = &mut self.block else { return Ok(None) };
        let View { last, listed, .. } = *ids.view();
        if min <= last {
            self.current = ids.seek(value, min);
            return if self.current.is_none() { Err(self.cut()) } else { Ok(self.current) };
        }
        if !listed || min > POSTING_ID_MAX {
            return self.finish();
        }
        self.load_around(min)?;
        let after = match &self.block {
            Some((ids, _)) if ids.view().last >= min => None,
            Some((ids, _)) => Some(ids.view().last + 1),
            None => return Err(self.cut()),
        };
        if let Some(after) = after {
            self.load_from(after)?;
        }
        self.current = None;
        let Some((ids, value)) = &mut self.block else { return self.finish() };
        self.current = ids.seek(value, min);
        if self.current.is_none() { Err(self.cut()) } else { Ok(self.current) }
    }

    fn next(&mut self) -> Result<Option<u64>, ReadError> {
        let Some((ids, value)) = &mut self.block else { return Ok(None) };
        if let Some(id) = ids.next(value) {
            self.current = Some(id);
            return Ok(self.current);
        }
        let View { last, listed, .. } = *ids.view();
        if !listed {
            return self.finish();
        }
        self.load_from(last + 1)?;
        self.current = match &mut self.block {
            Some((ids, value)) => ids.next(value),
            None => None,
        };
        Ok(self.current)
    }
}
