//! The small seam inside the embedded engines: ordered byte strings. The logic of posting blocks is written once on
//! it, and whatever implements it is a [`Snapshot`](crate::store::Snapshot) ([`snapshot`](crate::snapshot)).

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::ahead::Wanted;
use crate::error::{CommitError, ReadError};
use crate::store::KeyValue;
use crate::table::{Catalog, Direction, KeyRange, POSTING_KEY_BYTES_MAX, TableId, TableKind};

/// Reads of ordered byte strings. Tables of any kind are addressed alike: a table of postings by its block keys.
pub trait OrderedRead {
    type Records<'a>: Iterator<Item = Result<KeyValue<'a>, ReadError>>
    where
        Self: 'a;

    /// As [`Snapshot::IS_DISTANT`](crate::store::Snapshot::IS_DISTANT).
    const IS_DISTANT: bool = false;

    fn catalog(&self) -> &Catalog;

    fn version(&self) -> u64;

    /// As [`Snapshot::fetch_ahead`](crate::store::Snapshot::fetch_ahead).
    fn fetch_wanted(&self, _wanted: &[Wanted]) {}

    fn value<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError>;

    /// The values of several keys, in their order; no value of a key that could not be stored.
    fn values<'a, K: AsRef<[u8]>>(
        &'a self,
        table: TableId,
        keys: &[K],
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, ReadError> {
        let value = |key: &K| match check_key(self.catalog(), table, key.as_ref()) {
            Ok(()) => self.value(table, key.as_ref()),
            Err(_) => Ok(None),
        };
        keys.iter().map(value).collect()
    }

    /// The first record with a key `>= key`.
    fn at_least<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError>;

    /// The last record with a key `<= key`.
    fn at_most<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<KeyValue<'a>>, ReadError>;

    /// The first block with a key `>= key` that belongs to the posting list `list`. A block of another list may come in place of
    /// none.
    fn first_block<'a>(
        &'a self,
        table: TableId,
        _list: &[u8],
        key: &[u8],
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.at_least(table, key)
    }

    /// The last block with a key `<= key` that belongs to the posting list `list`. A block of another list may come in place of
    /// none.
    fn last_block<'a>(
        &'a self,
        table: TableId,
        _list: &[u8],
        key: &[u8],
    ) -> Result<Option<KeyValue<'a>>, ReadError> {
        self.at_most(table, key)
    }

    fn records<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Self::Records<'a>, ReadError>;
}

/// Implements [`OrderedRead`] for a type by a reader in one of its fields: `read_through!(Type<'s>.field, Records<'a, 's>, distant)`.
/// `distant` is [`OrderedRead::IS_DISTANT`].
#[macro_export]
macro_rules! read_through {
    ($type:ident<$life:lifetime>.$reader:ident, $records:ty, $distant:literal) => {
        impl<$life> $crate::ordered::OrderedRead for $type<$life> {
            type Records<'a>
                = $records
            where
                Self: 'a;

            const IS_DISTANT: bool = $distant;

            fn catalog(&self) -> &$crate::table::Catalog {
                self.$reader.catalog()
            }

            fn version(&self) -> u64 {
                self.$reader.version()
            }

            fn fetch_wanted(&self, wanted: &[$crate::Wanted]) {
                self.$reader.fetch_wanted(wanted);
            }

            fn value<'a>(
                &'a self,
                table: $crate::TableId,
                key: &[u8],
            ) -> Result<Option<::std::borrow::Cow<'a, [u8]>>, $crate::ReadError> {
                self.$reader.value(table, key)
            }

            fn values<'a, K: AsRef<[u8]>>(
                &'a self,
                table: $crate::TableId,
                keys: &[K],
            ) -> Result<Vec<Option<::std::borrow::Cow<'a, [u8]>>>, $crate::ReadError> {
                self.$reader.values(table, keys)
            }

            fn at_least<'a>(
                &'a self,
                table: $crate::TableId,
                key: &[u8],
            ) -> Result<Option<$crate::KeyValue<'a>>, $crate::ReadError> {
                self.$reader.at_least(table, key)
            }

            fn at_most<'a>(
                &'a self,
                table: $crate::TableId,
                key: &[u8],
            ) -> Result<Option<$crate::KeyValue<'a>>, $crate::ReadError> {
                self.$reader.at_most(table, key)
            }

            fn first_block<'a>(
                &'a self,
                table: $crate::TableId,
                list: &[u8],
                key: &[u8],
            ) -> Result<Option<$crate::KeyValue<'a>>, $crate::ReadError> {
                self.$reader.first_block(table, list, key)
            }

            fn last_block<'a>(
                &'a self,
                table: $crate::TableId,
                list: &[u8],
                key: &[u8],
            ) -> Result<Option<$crate::KeyValue<'a>>, $crate::ReadError> {
                self.$reader.last_block(table, list, key)
            }

            fn records<'a>(
                &'a self,
                table: $crate::TableId,
                range: $crate::KeyRange<'_>,
                direction: $crate::Direction,
            ) -> Result<Self::Records<'a>, $crate::ReadError> {
                self.$reader.records(table, range, direction)
            }
        }
    };
}

/// A record that is to be written: a block of a posting list.
#[derive(Clone, Debug)]
pub struct NewBlock {
    pub key: SmallVec<[u8; 96]>,
    pub value: SmallVec<[u8; 64]>,
}

/// Answers what is to be written where a record with this key and value was found, or none; `None`: nothing.
pub type ChangeBlock<'c> = dyn FnMut(Option<(&[u8], &[u8])>) -> Result<Option<NewBlock>, ReadError> + 'c;

/// Writes of ordered byte strings, seen by the reads of the same value.
pub trait OrderedWrite: OrderedRead {
    fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError>;

    /// Writes what `change` makes of the [first block](OrderedRead::first_block) of a posting list: an engine need not search once more
    /// for what it has found. Answers whether anything was written.
    fn change_first_block(
        &mut self,
        table: TableId,
        list: &[u8],
        key: &[u8],
        change: &mut ChangeBlock<'_>,
    ) -> Result<bool, CommitError> {
        let found = self.first_block(table, list, key)?;
        let changed = change(found.as_ref().map(|(key, value)| (key.as_ref(), value.as_ref())))?;
        drop(found);
        let Some(block) = changed else { return Ok(false) };
        self.write(table, &block.key, &block.value)?;
        Ok(true)
    }

    fn erase(&mut self, table: TableId, key: &[u8]) -> Result<(), CommitError>;
}

/// Whether a record may have this key.
pub fn check_key(catalog: &Catalog, table: TableId, key: &[u8]) -> Result<(), CommitError> {
    match catalog.spec(table).and_then(|spec| spec.kind.takes(key)) {
        Some(true) => Ok(()),
        Some(false) => Err(CommitError::KeyLength { table, bytes: key.len() }),
        None => Err(CommitError::WrongTable(table)),
    }
}

/// Whether a posting list may have this key.
pub fn check_posting_key(catalog: &Catalog, table: TableId, key: &[u8]) -> Result<(), CommitError> {
    match catalog.spec(table).map(|spec| spec.kind) {
        Some(TableKind::Postings) if (1..=POSTING_KEY_BYTES_MAX).contains(&key.len()) => Ok(()),
        Some(TableKind::Postings) => Err(CommitError::KeyLength { table, bytes: key.len() }),
        _ => Err(CommitError::WrongTable(table)),
    }
}
