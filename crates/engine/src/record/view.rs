//! Records read in place.

use larix_proto::ber::is_text;
use larix_proto::encode::VALUES_ROOM;

use super::numbers::{take, take_ber_length, take_varint};
use super::{
    BLOB_REFERENCE, CODEC_LZ4, CODEC_PLAIN, DIGEST_LENGTH, Form, OCTET_STRING, RecordError, RecordFlags,
};
use crate::ids::{AttributeNumber, EntryId};

/// A record read in place. The head of a packed one can be read as it is stored, its attributes only once it is
/// unpacked.
#[derive(Copy, Clone, Debug)]
pub struct EntryView<'a> {
    id: EntryId,
    packed: bool,
    flags: RecordFlags,
    parent: EntryId,
    rdn: &'a [u8],
    normal_rdn: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> EntryView<'a> {
    pub fn parse(id: EntryId, record: &'a [u8]) -> Result<Self, RecordError> {
        let truncated = RecordError::Truncated { entry: id };
        let (&[codec, flags], rest) = record.split_first_chunk::<2>().ok_or_else(|| truncated.clone())?;
        let packed = match codec {
            CODEC_PLAIN => false,
            CODEC_LZ4 => true,
            codec => return Err(RecordError::UnknownCodec { entry: id, codec }),
        };
        let (parent, mut rest) = rest.split_first_chunk::<8>().ok_or_else(|| truncated.clone())?;
        let length = take_varint(&mut rest).ok_or_else(|| truncated.clone())?;
        let rdn = take(&mut rest, length).ok_or_else(|| truncated.clone())?;
        if !is_text(rdn) {
            return Err(RecordError::NotUtf8 { entry: id });
        }
        let length = take_varint(&mut rest).ok_or_else(|| truncated.clone())?;
        let normal_rdn = match length.checked_sub(1) {
            None => rdn,
            Some(length) => take(&mut rest, length).ok_or(truncated)?,
        };
        let parent = EntryId(u64::from_be_bytes(*parent));
        Ok(Self { id, packed, flags: RecordFlags(flags), parent, rdn, normal_rdn, attributes: rest })
    }

    /// The same record once it is unpacked: what stands behind the head is another.
    pub(crate) fn unpacked(self, stored: &[u8], record: &'a [u8]) -> Self {
        let attributes = record.get(self.head_length(stored)..).unwrap_or_default();
        Self { packed: false, attributes, ..self }
    }

    /// Bytes of the record, as it is `stored`, before its attributes.
    pub(crate) fn head_length(&self, stored: &[u8]) -> usize {
        stored.len().saturating_sub(self.attributes.len())
    }

    pub fn id(&self) -> EntryId {
        self.id
    }

    pub fn flags(&self) -> RecordFlags {
        self.flags
    }

    /// The superior's id; [`EntryId::ROOT`] for a suffix.
    pub fn parent(&self) -> EntryId {
        self.parent
    }

    /// The RDN as it is shown; of a suffix, its whole DN.
    pub fn rdn(&self) -> &'a str {
        std::str::from_utf8(self.rdn).unwrap_or_default()
    }

    /// The same, which is text.
    pub(crate) fn rdn_octets(&self) -> &'a [u8] {
        self.rdn
    }

    /// The normalized RDN as it stands in the tree.
    pub fn normal_rdn(&self) -> &'a [u8] {
        self.normal_rdn
    }

    /// The attributes in the order in which they were written.
    pub fn attributes(&self) -> AttributesIter<'a> {
        AttributesIter { entry: self.id, packed: self.packed, rest: self.attributes }
    }

    /// The bytes that [`Self::attributes`] reads.
    pub(crate) fn attribute_bytes(&self) -> &'a [u8] {
        self.attributes
    }

    /// The stored values of one attribute description.
    pub fn get(&self, number: AttributeNumber) -> Result<Option<ValuesView<'a>>, RecordError> {
        let mut attributes = self.attributes();
        attributes.pass_others(number);
        match attributes.next_short() {
            Some((own, values)) if own == number => return Ok(Some(values)),
            Some(_) => {}
            None if attributes.rest.is_empty() => return Ok(None),
            None => {
                // Nearly always it is the one that is looked for, with many values.
                if !attributes.packed
                    && let AttributeLookup::Found(values) = attributes.here(number)
                {
                    return Ok(Some(values));
                }
            }
        }
        attributes.values_of(number)
    }
}

/// What came of looking for an attribute in the beginning of a record.
pub(crate) enum AttributeLookup<'a> {
    Found(ValuesView<'a>),
    /// At least so many bytes more are needed to go on.
    Needs(usize),
    /// It takes another reader.
    Other,
}

/// Bytes behind which a record has to go on for an attribute to be read as [`ShortAttribute`]: three numbers, and what its values may have.
const SHORT_ROOM: usize = 3 + VALUES_ROOM;

/// What none of the first four bytes of an attribute has, lowest first, if its three numbers are of one byte each; and if all of its values
/// stand in the record besides.
const LONG_NUMBERS: u32 = 0x0080_8080;
const NOT_SHORT: u32 = LONG_NUMBERS | 3 << 8;

/// An attribute whose numbers are of one byte each, and whose values all stand in the record.
pub(crate) struct ShortAttribute<'a> {
    pub(crate) number: AttributeNumber,
    pub(crate) count: u64,
    pub(crate) length: usize,
    /// The record from its values on, which are the first `length` bytes.
    pub(crate) values: &'a [u8; VALUES_ROOM],
    behind: &'a [u8],
}

/// Iterator over the attributes of a record; ends after the first error.
#[derive(Clone, Debug)]
pub struct AttributesIter<'a> {
    entry: EntryId,
    packed: bool,
    rest: &'a [u8],
}

impl<'a> AttributesIter<'a> {
    /// How many bytes are still to be read.
    pub(crate) fn rest(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn read(&mut self) -> Option<Result<(AttributeNumber, ValuesView<'a>), RecordError>> {
        match self.read_short() {
            Some(found) => Some(Ok(found)),
            None => self.read_long(),
        }
    }

    /// The next attribute, if all values stand in the record and each of its numbers is of one byte, as nearly always.
    /// `None` leaves it to be read otherwise.
    #[inline(always)]
    fn read_short(&mut self) -> Option<(AttributeNumber, ValuesView<'a>)> {
        let numbers = u32::from_le_bytes(*self.rest.first_chunk()?);
        let [number, count, length, _] = numbers.to_le_bytes();
        if numbers & NOT_SHORT == 0
            && let Some((bytes, rest)) = self.rest.get(3..)?.split_at_checked(usize::from(length))
        {
            self.rest = rest;
            let count = u64::from(count >> 2);
            let values = ValuesView { entry: self.entry, form: Form::Inline, count, bytes };
            return Some((AttributeNumber(number.into()), values));
        }
        None
    }

    /// The next attribute, if it is as nearly all are; `None` says nothing. For who goes over all attributes of many records.
    #[inline(always)]
    pub(crate) fn next_short(&mut self) -> Option<(AttributeNumber, ValuesView<'a>)> {
        if self.packed { None } else { self.read_short() }
    }

    /// The next attribute, as [`read_short`](Self::read_short) does, of a record that is not packed, unless the record ends soon
    /// behind it. For who goes over all attributes of many records: it is not passed over before [`pass`](Self::pass) is called, so that the
    /// iterator itself can read it.
    #[inline(always)]
    pub(crate) fn short(&self) -> Option<ShortAttribute<'a>> {
        let whole = self.rest.first_chunk::<SHORT_ROOM>()?;
        let numbers = u32::from_le_bytes(*whole.first_chunk()?);
        if numbers & NOT_SHORT != 0 || self.packed {
            return None;
        }
        let [number, count, length, _] = numbers.to_le_bytes();
        let length = usize::from(length & 0x7f);
        let behind = self.rest.get(SHORT_ROOM - VALUES_ROOM + length..)?;
        let (number, count) = (AttributeNumber(number.into()), u64::from(count >> 2));
        Some(ShortAttribute { number, count, length, values: whole.last_chunk()?, behind })
    }

    /// Passes over what [`short`](Self::short) gave.
    #[inline(always)]
    pub(crate) fn pass(&mut self, attribute: &ShortAttribute<'a>) {
        self.rest = attribute.behind;
    }

    /// Attributes as they stand in a record that is unpacked, perhaps not to its end.
    pub(crate) fn within(entry: EntryId, bytes: &'a [u8]) -> Self {
        Self { entry, packed: false, rest: bytes }
    }

    /// Looks for the attribute with this number in what may be no more than the beginning of a record. It has passed over what
    /// [`rest`](Self::rest) no longer counts: a look at more of the record can begin behind that.
    pub(crate) fn seek(&mut self, number: AttributeNumber) -> AttributeLookup<'a> {
        self.pass_others(number);
        match self.clone().read_short() {
            Some((own, values)) if own == number => AttributeLookup::Found(values),
            _ => self.here(number),
        }
    }

    /// The next attribute, if it is the one with this number and all of its values stand in the record, which is not packed.
    #[inline]
    fn here(&self, number: AttributeNumber) -> AttributeLookup<'a> {
        let mut rest = self.rest;
        let numbers = [take_varint(&mut rest), take_varint(&mut rest), take_varint(&mut rest)];
        let [Some(own), Some(count), Some(length)] = numbers else { return AttributeLookup::Needs(1) };
        let Ok(length) = usize::try_from(length) else { return AttributeLookup::Other };
        let Some(bytes) = rest.get(..length) else { return AttributeLookup::Needs(length - rest.len()) };
        if own != u64::from(number.0) || count & 3 != 0 {
            return AttributeLookup::Other;
        }
        AttributeLookup::Found(ValuesView { entry: self.entry, form: Form::Inline, count: count >> 2, bytes })
    }

    /// The values of the next attribute with this number.
    #[inline(never)]
    fn values_of(mut self, number: AttributeNumber) -> Result<Option<ValuesView<'a>>, RecordError> {
        let found = self.next_of(number).transpose()?;
        Ok(found.map(|(_, values)| values))
    }

    /// The next attribute with this number: the others are passed over without a look at what they hold.
    #[inline]
    pub(crate) fn next_of(&mut self, number: AttributeNumber) -> Option<<Self as Iterator>::Item> {
        loop {
            self.pass_others(number);
            match self.next()? {
                Ok((own, _)) if own != number => {}
                item => return Some(item),
            }
        }
    }

    /// Passes over attributes up to the one with this number, or up to one that has to be read to tell.
    #[inline]
    fn pass_others(&mut self, number: AttributeNumber) {
        if self.packed {
            return;
        }
        // Nearly always the number is of one byte in the record. No short attribute has another.
        let short = u8::try_from(number.0).ok().filter(|short| *short < 0x80).unwrap_or(u8::MAX);
        let mut rest = self.rest;
        loop {
            while let Some(behind) = behind_another(rest, short) {
                rest = behind;
            }
            // Near the end of what is there, those that are whole.
            while let Some(behind) = behind_last(rest, short) {
                rest = behind;
            }
            // Nothing is left, or the one with this number.
            if rest.first().is_none_or(|own| *own == short && short < 0x80) {
                break;
            }
            match behind_any_other(rest, number) {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        self.rest = rest;
    }

    #[inline(never)]
    fn read_long(&mut self) -> Option<Result<(AttributeNumber, ValuesView<'a>), RecordError>> {
        let number = take_varint(&mut self.rest)?;
        let count = take_varint(&mut self.rest)?;
        let length = take_varint(&mut self.rest)?;
        let bytes = take(&mut self.rest, length)?;
        let form = match count & 3 {
            0 => Form::Inline,
            1 => Form::Mixed,
            2 => Form::Large,
            form => return Some(Err(RecordError::BadForm { entry: self.entry, form })),
        };
        let number = AttributeNumber(u32::try_from(number).ok()?);
        Some(Ok((number, ValuesView { entry: self.entry, form, count: count >> 2, bytes })))
    }
}

/// What stands behind the first of some attributes, if it is not the one with this number, its numbers are of one byte each, its values
/// stand in the record, and the record does not end soon.
#[inline(always)]
fn behind_another(attributes: &[u8], number: u8) -> Option<&[u8]> {
    let numbers = u32::from_le_bytes(*attributes.first_chunk::<SHORT_ROOM>()?.first_chunk()?);
    let [own, _, length, _] = numbers.to_le_bytes();
    if numbers & NOT_SHORT != 0 || own == number {
        return None;
    }
    attributes.get(SHORT_ROOM - VALUES_ROOM + usize::from(length & 0x7f)..)
}

/// The same, wherever the record ends: the attribute has to be whole, no more.
#[inline(always)]
fn behind_last(attributes: &[u8], number: u8) -> Option<&[u8]> {
    let [own, count, length] = *attributes.first_chunk::<3>()?;
    let numbers = u32::from_le_bytes([own, count, length, 0]);
    if numbers & NOT_SHORT != 0 || own == number {
        return None;
    }
    attributes.get(SHORT_ROOM - VALUES_ROOM + usize::from(length)..)
}

/// The same for every attribute but this one, however long its numbers are, if it is whole.
#[inline]
fn behind_any_other(attributes: &[u8], number: AttributeNumber) -> Option<&[u8]> {
    let mut rest = attributes;
    let own = u32::try_from(take_varint(&mut rest)?).ok()?;
    let count = take_varint(&mut rest)?;
    let length = take_varint(&mut rest)?;
    // One of no known form is left to who reads it: that is an error.
    if own == number.0 || count & 3 == 3 {
        return None;
    }
    take(&mut rest, length)?;
    Some(rest)
}

impl<'a> Iterator for AttributesIter<'a> {
    type Item = Result<(AttributeNumber, ValuesView<'a>), RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = match self.packed {
            true => Err(RecordError::Packed { entry: self.entry }),
            false => self.read().unwrap_or(Err(RecordError::Truncated { entry: self.entry })),
        };
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

/// The values of one attribute as the record has them.
#[derive(Copy, Clone, Debug)]
pub struct ValuesView<'a> {
    entry: EntryId,
    form: Form,
    pub(super) count: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> ValuesView<'a> {
    pub fn form(&self) -> Form {
        self.form
    }

    /// How many values, wherever they live.
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All values as concatenated octet strings, when they all stand in the record.
    pub fn as_ber(&self) -> Option<&'a [u8]> {
        (self.form == Form::Inline).then_some(self.bytes)
    }

    /// What the record has: values and references. Nothing for a large set.
    pub fn iter(&self) -> ValuesIter<'a> {
        ValuesIter { entry: self.entry, rest: self.bytes }
    }
}

/// One value as the record has it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    Inline(&'a [u8]),
    Blob { digest: &'a [u8; DIGEST_LENGTH], length: u64 },
}

#[derive(Clone, Debug)]
pub struct ValuesIter<'a> {
    entry: EntryId,
    rest: &'a [u8],
}

impl<'a> ValuesIter<'a> {
    fn read(&mut self) -> Option<StoredValue<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        self.rest = rest;
        match tag {
            OCTET_STRING => {
                let length = take_ber_length(&mut self.rest)?;
                take(&mut self.rest, length).map(StoredValue::Inline)
            }
            BLOB_REFERENCE => {
                let (digest, rest) = self.rest.split_first_chunk::<DIGEST_LENGTH>()?;
                self.rest = rest;
                let length = take_varint(&mut self.rest)?;
                Some(StoredValue::Blob { digest, length })
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for ValuesIter<'a> {
    type Item = Result<StoredValue<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some(value) = self.read() else {
            self.rest = &[];
            return Some(Err(RecordError::BadValue { entry: self.entry }));
        };
        Some(Ok(value))
    }
}

/// Where the RDN begins: behind codec, flags and the superior's id.
pub(crate) const RDN_IN_RECORD: usize = 10;

/// Whether the record is that of the child of `parent` with this normalized RDN.
pub(crate) fn is_child(record: &[u8], parent: EntryId, normal_rdn: &[u8]) -> bool {
    let normal = || {
        let mut rest = record.get(PARENT_IN_RECORD..)?.strip_prefix(&parent.to_bytes())?;
        let length = take_varint(&mut rest)?;
        let rdn = take(&mut rest, length)?;
        match take_varint(&mut rest)?.checked_sub(1) {
            None => Some(rdn),
            Some(length) => take(&mut rest, length),
        }
    };
    normal() == Some(normal_rdn)
}

/// Where the superior's id stands: behind codec and flags.
const PARENT_IN_RECORD: usize = 2;

/// Bytes of a record before its attributes; `None` when it is cut within.
pub(crate) fn head_length(record: &[u8]) -> Option<usize> {
    let mut rest = record.get(RDN_IN_RECORD..)?;
    let length = take_varint(&mut rest)?;
    take(&mut rest, length)?;
    if let Some(length) = take_varint(&mut rest)?.checked_sub(1) {
        take(&mut rest, length)?;
    }
    Some(record.len() - rest.len())
}
