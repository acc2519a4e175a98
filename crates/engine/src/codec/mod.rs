//! Records as they are stored and as they are read. Most are packed with a dictionary of the database and unpacked into
//! a buffer of the thread; heads are never packed, so that the tree is walked in place.

mod dictionaries;
mod lz4;
mod scratch;
#[cfg(test)]
mod tests;
mod train;

use std::borrow::Cow;
use std::fmt;
use std::ops::{ControlFlow, Deref, Range};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use scratch::Scratch;

use crate::ids::EntryId;
use crate::record::{
    CODEC_LZ4, CODEC_PLAIN, RDN_IN_RECORD, RecordError, head_length, put_varint, take_varint,
};
pub use dictionaries::Dictionaries;
pub(crate) use lz4::{DICTIONARY_BYTES_MAX, RECORD_BYTES_MAX};
pub(crate) use train::{SAMPLE_RECORDS, Sample, Training, train};

/// Shorter records stay plain.
pub(crate) const PACKED_BYTES_MIN: usize = 64;

/// A record to be read in place: as it lies in the store, or unpacked.
pub struct Record<'a>(Content<'a>);

enum Content<'a> {
    Stored(Cow<'a, [u8]>),
    /// With the record as it is stored.
    Unpacked(Scratch, Cow<'a, [u8]>),
}

impl Record<'_> {
    /// The record as it is stored, if it is packed.
    pub(crate) fn packed(&self) -> Option<&[u8]> {
        match &self.0 {
            Content::Stored(_) => None,
            Content::Unpacked(_, stored) => Some(stored),
        }
    }
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Stored(bytes) => bytes,
            Content::Unpacked(scratch, _) => scratch,
        }
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Record").field(&self.len()).finish()
    }
}

/// The number of the next dictionary that this process makes or reads.
static INSTANCES: AtomicU64 = AtomicU64::new(1);

/// Bytes that the records of a database have in common.
pub struct Dictionary {
    bytes: Box<[u8]>,
    /// Tells dictionaries of this process apart; never 0.
    instance: u64,
    /// Made when the first record is packed: who only reads needs none.
    places: OnceLock<lz4::DictionaryIndex>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.bytes().len()).finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Of at most [`DICTIONARY_BYTES_MAX`] bytes; what is more is cut at the front.
    pub fn new(bytes: &[u8]) -> Self {
        let bytes = bytes.get(bytes.len().saturating_sub(DICTIONARY_BYTES_MAX)..).unwrap_or_default();
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        Self { bytes: bytes.into(), instance, places: OnceLock::new() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a plain record, packed under the number that the dictionary has. False when the record had better stay
    /// plain: then `out` is of no use.
    pub fn pack(&self, number: u32, plain: &[u8], out: &mut Vec<u8>) -> bool {
        self.pack_over(number, plain, None, out)
    }

    /// As [`Self::pack`]. What the record begins with as another one does that was packed with this dictionary is taken over
    /// from there. With the other record comes up to where both are known to be alike, from the RDN on.
    fn pack_over(
        &self,
        number: u32,
        plain: &[u8],
        before: Option<(&Record<'_>, usize)>,
        out: &mut Vec<u8>,
    ) -> bool {
        let head = head_length(plain).and_then(|length| plain.get(..length));
        let Some((head, [CODEC_PLAIN, rest_of_head @ ..])) = head.map(|head| (head, head)) else {
            return false;
        };
        if !(PACKED_BYTES_MIN..=RECORD_BYTES_MAX).contains(&plain.len()) {
            return false;
        }
        let begin = out.len();
        out.push(CODEC_LZ4);
        out.extend_from_slice(rest_of_head);
        put_varint(out, u64::from(number));
        put_varint(out, (plain.len() - head.len()) as u64);
        let places = self.places.get_or_init(|| lz4::DictionaryIndex::new(self.bytes()));
        let earlier = before.and_then(|(before, known)| {
            let packed = Packed::parse(before.packed()?).filter(|packed| packed.dictionary == number)?;
            let known = known.max(RDN_IN_RECORD);
            debug_assert_eq!(
                before.get(RDN_IN_RECORD..known),
                plain.get(RDN_IN_RECORD..known),
                "what is said to be alike"
            );
            let behind = |record| <[u8]>::get(record, known..).unwrap_or_default();
            let alike = known + lz4::equal_start(behind(before), behind(plain));
            Some(lz4::Earlier { block: packed.block, alike })
        });
        lz4::pack(self.bytes(), places, plain, RDN_IN_RECORD..head.len(), earlier, out);
        // A sixteenth is not worth unpacking.
        out.len() - begin < plain.len() - plain.len() / 16
    }

    /// A stored record that was packed with this dictionary.
    pub fn unpacked(&self, id: EntryId, stored: &[u8]) -> Result<Record<'static>, RecordError> {
        let packed = Packed::parse(stored).ok_or(RecordError::BadPacking { entry: id })?;
        let scratch = self.unpack(id, &packed)?;
        Ok(Record(Content::Unpacked(scratch, Cow::Owned(stored.to_vec()))))
    }

    /// Unpacks what stands behind the head of a record.
    fn unpack(&self, id: EntryId, packed: &Packed<'_>) -> Result<Scratch, RecordError> {
        let damaged = || RecordError::BadPacking { entry: id };
        let mut scratch = Scratch::behind(self.instance, &self.bytes).ok_or_else(damaged)?;
        let room = scratch.room_mut().ok_or_else(damaged)?;
        let place = self.put_head(room, packed).ok_or_else(damaged)?;
        let end = place.end;
        lz4::unpack(packed.block, room, place).ok_or_else(damaged)?;
        scratch.set_place(self.bytes.len()..end);
        Ok(scratch)
    }

    /// Unpacks the attributes of a record as far as `look` wants, as [`lz4::unpack_until`] says.
    fn look_into<T>(
        &self,
        packed: &Packed<'_>,
        look: &mut impl FnMut(&[u8]) -> ControlFlow<T, usize>,
    ) -> Option<T> {
        let mut scratch = Scratch::behind(self.instance, &self.bytes)?;
        let room = scratch.room_mut()?;
        let place = self.put_head(room, packed)?;
        lz4::unpack_until(packed.block, room, place, look)
    }

    /// Puts the head of a record behind the dictionary. Answers where its attributes are to stand; `None`: there is no room for them.
    fn put_head(&self, room: &mut lz4::Room, packed: &Packed<'_>) -> Option<Range<usize>> {
        if packed.head.len() + packed.length > RECORD_BYTES_MAX {
            return None;
        }
        let start = self.bytes.len();
        let behind = start + packed.head.len();
        let head = room.get_mut(start..behind)?;
        head.copy_from_slice(packed.head);
        head.iter_mut().take(1).for_each(|codec| *codec = CODEC_PLAIN);
        Some(behind..behind + packed.length)
    }
}

/// The parts of a packed record.
struct Packed<'a> {
    head: &'a [u8],
    dictionary: u32,
    /// Bytes of the attributes once they are unpacked.
    length: usize,
    block: &'a [u8],
}

impl<'a> Packed<'a> {
    fn parse(record: &'a [u8]) -> Option<Self> {
        Self::behind(record, head_length(record)?)
    }

    /// The same where the length of the head is known.
    fn behind(record: &'a [u8], head_length: usize) -> Option<Self> {
        let (head, mut rest) = record.split_at_checked(head_length)?;
        let dictionary = u32::try_from(take_varint(&mut rest)?).ok()?;
        let length =
            usize::try_from(take_varint(&mut rest)?).ok().filter(|length| *length <= RECORD_BYTES_MAX)?;
        Some(Self { head, dictionary, length, block: rest })
    }
}
