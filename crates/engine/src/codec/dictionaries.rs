//! The dictionaries of a database. They are numbered, stored with the first record that uses them, and never deleted
//! or changed: each record names its own.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};

use super::scratch::Scratch;
use super::{Content, Dictionary, Packed, Record};
use crate::fault::{DictionaryError, Fault, RecordError};
use crate::ids::EntryId;
use crate::record::{self, CODEC_LZ4, head_length};
use crate::tables::{META, meta};

/// Most dictionaries of a database. Each takes 32 KiB of memory, and some 160 more while records are packed with it.
pub(super) const DICTIONARIES_MAX: usize = 64;
/// Bytes by which a packed record seldom grows when it is changed.
const USUAL_GROWTH: usize = 64;
/// The first byte of a stored dictionary: for [`CODEC_LZ4`].
const KIND: u8 = CODEC_LZ4;

/// The dictionaries of a database by number. New records are packed with the last one.
#[derive(Clone, Debug, Default)]
pub struct Dictionaries {
    list: Vec<Arc<Dictionary>>,
    /// Those from here on are not stored yet.
    stored: usize,
}

impl Dictionaries {
    /// Reads what is stored.
    pub fn load(snapshot: &impl Snapshot) -> Result<Self, DictionaryError> {
        let mut list = Vec::new();
        for row in snapshot.scan(META, KeyRange::prefix(meta::DICTIONARY), Direction::Forward)? {
            let (key, value) = row?;
            match value.split_first() {
                Some((&KIND, bytes)) if *key == *stored_key(list.len()) => {
                    list.push(Arc::new(Dictionary::new(bytes)))
                }
                _ => return Err(DictionaryError::Damaged { key: key.into_owned() }),
            }
        }
        Ok(Self { stored: list.len(), list })
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Dictionary>> {
        self.list.iter()
    }

    /// The one that new records are packed with.
    pub fn last(&self) -> Option<&Arc<Dictionary>> {
        self.list.last()
    }

    /// The record in its stored form.
    pub fn packed(&self, plain: Vec<u8>) -> Vec<u8> {
        self.packed_over(plain, None)
    }

    /// As [`Self::packed`], for a record that replaces another: the common beginning is not packed again. With the other record comes
    /// how many bytes are known to be alike, from the RDN on.
    pub(crate) fn packed_over(&self, plain: Vec<u8>, before: Option<(&Record<'_>, usize)>) -> Vec<u8> {
        let Some((number, dictionary)) = self.list.len().checked_sub(1).zip(self.list.last()) else {
            return plain;
        };
        let packed = before.and_then(|(before, _)| before.packed());
        let room = packed.map_or(plain.len() / 2, |packed| packed.len() + USUAL_GROWTH);
        let mut out = Vec::with_capacity(room);
        if !dictionary.pack_over(number as u32, &plain, before, &mut out) {
            return plain;
        }
        record::reuse(plain);
        out
    }

    /// A stored record, ready to be read.
    pub fn unpacked<'a>(
        &self,
        snapshot: &impl Snapshot,
        id: EntryId,
        stored: Cow<'a, [u8]>,
    ) -> Result<Record<'a>, Fault> {
        if stored.first() != Some(&CODEC_LZ4) {
            return Ok(Record(Content::Stored(stored)));
        }
        let head = head_length(&stored).ok_or(RecordError::BadPacking { entry: id })?;
        self.unpacked_behind(snapshot, (id, head), stored)
    }

    /// The same where the length of its head is known.
    pub(crate) fn unpacked_behind<'a>(
        &self,
        snapshot: &impl Snapshot,
        (id, head_length): (EntryId, usize),
        stored: Cow<'a, [u8]>,
    ) -> Result<Record<'a>, Fault> {
        if stored.first() != Some(&CODEC_LZ4) {
            return Ok(Record(Content::Stored(stored)));
        }
        let packed = Packed::behind(&stored, head_length).ok_or(RecordError::BadPacking { entry: id })?;
        let scratch = match self.list.get(packed.dictionary as usize) {
            Some(dictionary) => dictionary.unpack(id, &packed)?,
            None => unpacked_with_newer(snapshot, id, &packed)?,
        };
        Ok(Record(Content::Unpacked(scratch, stored)))
    }

    /// Has `look` look at the attributes of a stored record while they are unpacked: at the beginning first, and each time at more of them,
    /// until it answers. It says how many bytes more it needs at least. `None`: there is no more, or the record cannot be unpacked here.
    pub(crate) fn look_into<T>(
        &self,
        head_length: usize,
        stored: &[u8],
        look: &mut impl FnMut(&[u8]) -> ControlFlow<T, usize>,
    ) -> Option<T> {
        if stored.first() != Some(&CODEC_LZ4) {
            return look(stored.get(head_length..)?).break_value();
        }
        let packed = Packed::behind(stored, head_length)?;
        self.list.get(packed.dictionary as usize)?.look_into(&packed, look)
    }

    /// Adds one, unless there are too many.
    pub(crate) fn add(&mut self, dictionary: Arc<Dictionary>) {
        if self.list.len() < DICTIONARIES_MAX {
            self.list.push(dictionary);
        }
    }

    pub(crate) fn all_stored(&self) -> bool {
        self.stored == self.list.len()
    }

    pub(crate) fn write_new(&self, set: &mut WriteSet) {
        for (number, dictionary) in self.list.iter().enumerate().skip(self.stored) {
            set.put(META, &stored_key(number), [&[KIND], dictionary.bytes()].concat());
        }
    }

    pub(crate) fn set_stored(&mut self) {
        self.stored = self.list.len();
    }
}

/// Another process, which writes, has added a dictionary since this one opened the database.
fn unpacked_with_newer(snapshot: &impl Snapshot, id: EntryId, packed: &Packed<'_>) -> Result<Scratch, Fault> {
    let number = packed.dictionary;
    match snapshot.get(META, &stored_key(number as usize))?.as_deref().and_then(<[u8]>::split_first) {
        Some((&KIND, bytes)) => Ok(Dictionary::new(bytes).unpack(id, packed)?),
        _ => Err(RecordError::UnknownDictionary { entry: id, number }.into()),
    }
}

/// Numbers of four hexadecimal digits: in the order of keys.
fn stored_key(number: usize) -> Vec<u8> {
    [meta::DICTIONARY, format!("{number:04x}").as_bytes()].concat()
}
