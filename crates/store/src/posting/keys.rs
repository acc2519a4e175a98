//! Walking the keys of a table of postings.

use std::borrow::Cow;
use std::ops::Bound;

use super::block::{Header, View};
use super::{HEADER_ID, block_key, header, own_block, split_block_key, storable};
use crate::error::ReadError;
use crate::ordered::OrderedRead;
use crate::store::KeyCount;
use crate::table::{Direction, KeyRange, TableId};

/// The keys of a range with the number of their ids.
pub struct KeyScan<'a, R: OrderedRead> {
    source: &'a R,
    table: TableId,
    range: KeyRange<'static>,
    direction: Direction,
    /// None after the end or an error.
    records: Option<R::Records<'a>>,
}

impl<R: OrderedRead> std::fmt::Debug for KeyScan<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyScan").field("range", &self.range).finish_non_exhaustive()
    }
}

impl<'a, R: OrderedRead> KeyScan<'a, R> {
    pub(crate) fn open(
        source: &'a R,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self, ReadError> {
        let mut scan = Self { source, table, range: range.into_owned(), direction, records: None };
        if !scan.range.is_empty() {
            let blocks = scan.blocks()?;
            scan.records = Some(source.records(table, blocks, direction)?);
        }
        Ok(scan)
    }

    /// The block keys to walk. No block of a wanted key is outside; those of unwanted keys are passed over.
    fn blocks(&self) -> Result<KeyRange<'static>, ReadError> {
        let start = match (self.direction, &self.range.start) {
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => Bound::Included(key.clone()),
            _ => Bound::Unbounded,
        };
        let end = match (self.direction, &self.range.end) {
            (Direction::Backward, Bound::Included(key) | Bound::Excluded(key)) => {
                let last = self.prefix_in_use(key)?.unwrap_or(key);
                Bound::Included(Cow::Owned(block_key(last, HEADER_ID).to_vec()))
            }
            _ => Bound::Unbounded,
        };
        Ok(KeyRange { start, end })
    }

    /// The proper prefix of `bound` that has ids itself, if there is one: its blocks may sort behind `bound`.
    fn prefix_in_use<'k>(&self, bound: &'k [u8]) -> Result<Option<&'k [u8]>, ReadError> {
        for length in 1..bound.len() {
            let Some(prefix) = bound.get(..length).filter(|prefix| storable(prefix)) else { break };
            if let Some((found, _)) = self.source.at_least(self.table, &block_key(prefix, 0))?
                && own_block(prefix, &found).is_some()
            {
                return Ok(Some(prefix));
            }
        }
        Ok(None)
    }

    fn advance(&mut self) -> Result<Option<KeyCount<'a>>, ReadError> {
        loop {
            let Some((block, value)) = self.records.as_mut().and_then(Iterator::next).transpose()? else {
                return Ok(None);
            };
            let (key, first) = split_block_key(self.table, &block)?;
            let beyond = match self.direction {
                Direction::Forward => !self.range.ends_after(key),
                Direction::Backward => !self.range.starts_before(key),
            };
            if beyond {
                return Ok(None);
            }
            let count = if first == HEADER_ID {
                let ids = Header::parse(self.table, &value)?.ids;
                self.pass_over(key)?;
                ids
            } else {
                let view = View::parse(self.table, first, &value)?;
                if view.listed {
                    self.pass_over(key)?;
                    header(self.source, self.table, key)?.ids
                } else {
                    view.count
                }
            };
            if self.range.contains(key) {
                let key_len = key.len();
                return Ok(Some((cut(block, key_len), count)));
            }
        }
    }

    /// Goes on behind all blocks of `key`.
    fn pass_over(&mut self, key: &[u8]) -> Result<(), ReadError> {
        let edge = match self.direction {
            Direction::Forward => block_key(key, HEADER_ID),
            Direction::Backward => block_key(key, 0),
        };
        let rest = match self.direction {
            Direction::Forward => {
                KeyRange { start: Bound::Excluded(Cow::Borrowed(&edge)), end: Bound::Unbounded }
            }
            Direction::Backward => {
                KeyRange { start: Bound::Unbounded, end: Bound::Excluded(Cow::Borrowed(&edge)) }
            }
        };
        self.records = Some(self.source.records(self.table, rest, self.direction)?);
        Ok(())
    }
}

fn cut(block: Cow<'_, [u8]>, length: usize) -> Cow<'_, [u8]> {
    match block {
        Cow::Borrowed(block) => Cow::Borrowed(block.get(..length).unwrap_or(block)),
        Cow::Owned(mut block) => {
            block.truncate(length);
            Cow::Owned(block)
        }
    }
}

impl<'a, R: OrderedRead> Iterator for KeyScan<'a, R> {
    type Item = Result<KeyCount<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.records = None;
        }
        item
    }
}
