//! Posting lists as blocks: the record `key ++ first id` (8 bytes, big-endian) holds the ids from the first one up to
//! the next block's. docs/disk-format.md draws the bytes.
//!
//! A list of one block has nothing else. A longer one is *listed*: each of its blocks carries a mark, and a header
//! record at `key ++ FF FF FF FF FF FF FF FF`, which sorts behind the last block, counts blocks and ids. So the common
//! case, a key with few ids, costs one look-up, and the size of a list is known without reading it.

mod block;
mod cursor;
mod edit;
mod keys;
mod load;

pub use cursor::BlockCursor;
pub use keys::KeyScan;

pub(crate) use edit::edit;
pub use load::BlockBuilder;

use smallvec::SmallVec;

use crate::error::ReadError;
use crate::ordered::OrderedRead;
use crate::table::{POSTING_KEY_BYTES_MAX, TableId};
use block::{Header, Ids, View};

/// The id in the key of a header record.
const HEADER_ID: u64 = u64::MAX;

/// How many ids `key` has: exact.
pub(crate) fn count<R: OrderedRead>(source: &R, table: TableId, key: &[u8]) -> Result<u64, ReadError> {
    if !storable(key) {
        return Ok(0);
    }
    let Some((found, value)) = source.first_block(table, key, &block_key(key, 0))? else { return Ok(0) };
    let Some(first) = own_block(key, &found) else { return Ok(0) };
    let view = View::parse(table, first, &value)?;
    if view.listed { Ok(header(source, table, key)?.ids) } else { Ok(view.count) }
}

/// How many ids `key` has; when they are all in one block and at most `limit`, they are appended to `out`.
pub(crate) fn head<R: OrderedRead>(
    source: &R,
    table: TableId,
    key: &[u8],
    limit: u64,
    out: &mut Vec<u64>,
) -> Result<u64, ReadError> {
    if !storable(key) {
        return Ok(0);
    }
    let found = with_block_key(key, 0, |block| source.first_block(table, key, block))?;
    let Some((found, value)) = found else { return Ok(0) };
    let Some(first) = own_block(key, &found) else { return Ok(0) };
    if value.is_empty() {
        // Nearly always, where an equality is asked for that finds anything.
        out.extend((limit > 0).then_some(first));
        return Ok(1);
    }
    let view = View::parse(table, first, &value)?;
    if view.listed {
        return Ok(header(source, table, key)?.ids);
    }
    if view.count <= limit {
        let mut ids = Ids::new(view);
        out.extend(std::iter::from_fn(|| ids.next(&value)));
    }
    Ok(view.count)
}

/// The ids of `key`, when they are all in one block and at most `limit`: `block` and `value` are the first record of the list.
pub fn ids_of_only_block(
    table: TableId,
    key: &[u8],
    (block, value): (&[u8], &[u8]),
    limit: u64,
) -> Option<Vec<u64>> {
    let view = View::parse(table, own_block(key, block)?, value).ok()?;
    if view.listed || view.count > limit {
        return None;
    }
    let mut ids = Ids::new(view);
    Some(std::iter::from_fn(|| ids.next(value)).collect())
}

fn header<R: OrderedRead>(source: &R, table: TableId, key: &[u8]) -> Result<Header, ReadError> {
    match source.value(table, &block_key(key, HEADER_ID))? {
        Some(value) => Header::parse(table, &value),
        None => Err(ReadError::Corrupt { table, what: "a posting list has blocks but no header" }),
    }
}

/// Whether any list can have this key.
fn storable(key: &[u8]) -> bool {
    (1..=POSTING_KEY_BYTES_MAX).contains(&key.len())
}

/// Room for most keys of blocks.
type BlockKey = SmallVec<[u8; 96]>;

/// Calls `ask` with the key of a block. Keys of the usual length take no list for that.
fn with_block_key<T>(key: &[u8], first: u64, ask: impl FnOnce(&[u8]) -> T) -> T {
    let mut room = [0; 96];
    let length = key.len() + 8;
    match room.get_mut(..length).and_then(<[u8]>::split_last_chunk_mut) {
        Some((start, end)) => {
            start.copy_from_slice(key);
            *end = first.to_be_bytes();
            ask(room.get(..length).unwrap_or_default())
        }
        None => ask(&block_key(key, first)),
    }
}

fn block_key(key: &[u8], first: u64) -> BlockKey {
    let mut block = BlockKey::with_capacity(key.len() + 8);
    block.extend_from_slice(key);
    block.extend_from_slice(&first.to_be_bytes());
    block
}

/// The first id of a block if it belongs to `key`.
fn own_block(key: &[u8], block: &[u8]) -> Option<u64> {
    let id = block.strip_prefix(key)?;
    Some(u64::from_be_bytes(id.try_into().ok()?))
}

/// A block's posting key and first id.
fn split_block_key(table: TableId, block: &[u8]) -> Result<(&[u8], u64), ReadError> {
    match block.split_last_chunk::<8>() {
        Some((key, first)) if !key.is_empty() => Ok((key, u64::from_be_bytes(*first))),
        _ => Err(ReadError::Corrupt { table, what: "the key of a posting block is too short" }),
    }
}
