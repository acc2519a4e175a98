//! The record of an entry: written once, read in place (`docs/disk-format.md`).
//!
//! Values stand in the record as concatenated BER octet strings, so that answering a search is copying. Reading
//! allocates nothing; a record that does not parse is a [`RecordError`], never a panic.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{AttributeNumber, EntryId};

/// The record as it is.
pub const CODEC_PLAIN: u8 = 1;
/// The head as it is, the attributes [packed](super::codec) with a dictionary.
pub const CODEC_LZ4: u8 = 2;
/// Values longer than this live in the table `blobs`.
pub const INLINE_VALUE_LIMIT: usize = 1024;
/// Attributes with more values than this, and with an equality rule, live in the table `values`.
pub const INLINE_COUNT_LIMIT: usize = 256;
/// Length of the digest that names a blob.
pub const DIGEST_LENGTH: usize = 16;

const OCTET_STRING: u8 = 0x04;
const BLOB_REFERENCE: u8 = 0x00;

/// What is known of an entry without looking at its attributes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags(pub u8);

impl RecordFlags {
    pub const ALIAS: u8 = 1;
    pub const REFERRAL: u8 = 2;
    pub const SUBENTRY: u8 = 4;
    pub const GLUE: u8 = 8;
    /// Some values live outside of the record.
    pub const OUTSIDE: u8 = 16;
    /// An attribute is collective or otherwise needs more than copying: reserved.
    pub const RESERVED: u8 = 32;
    /// Those that the object classes decide.
    pub const OF_CLASSES: u8 = Self::ALIAS | Self::REFERRAL | Self::SUBENTRY | Self::GLUE;

    pub fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.0 |= flag;
        } else {
            self.0 &= !flag;
        }
    }
}

/// How the values of one attribute are stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Concatenated BER octet strings.
    Inline,
    /// Octet strings and references to blobs.
    Mixed,
    /// In the table `values`; the record has the count alone.
    Large,
}

/// A record that cannot be read: the database is damaged or was written by a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    Truncated {
        entry: EntryId,
    },
    UnknownCodec {
        entry: EntryId,
        codec: u8,
    },
    NotUtf8 {
        entry: EntryId,
    },
    BadForm {
        entry: EntryId,
        form: u64,
    },
    BadValue {
        entry: EntryId,
    },
    /// What is packed cannot be unpacked.
    BadPacking {
        entry: EntryId,
    },
    UnknownDictionary {
        entry: EntryId,
        number: u32,
    },
    /// A packed record was not unpacked before its attributes were asked for: a bug here.
    Packed {
        entry: EntryId,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { entry } => write!(f, "record of entry {entry} is truncated"),
            Self::UnknownCodec { entry, codec } => {
                write!(f, "record of entry {entry} has the unknown codec {codec}")
            }
            Self::NotUtf8 { entry } => write!(f, "RDN of entry {entry} is not UTF-8"),
            Self::BadForm { entry, form } => write!(f, "record of entry {entry} has the unknown form {form}"),
            Self::BadValue { entry } => write!(f, "a value of entry {entry} is not an octet string"),
            Self::BadPacking { entry } => write!(f, "the compressed record of entry {entry} is damaged"),
            Self::UnknownDictionary { entry, number } => {
                write!(f, "record of entry {entry} is compressed with dictionary {number}, which is missing")
            }
            Self::Packed { entry } => write!(f, "record of entry {entry} was read before it was unpacked"),
        }
    }
}

impl std::error::Error for RecordError {}

/// A record read in place. The head of a packed one can be read as it is stored, its attributes only once it is
/// unpacked.
#[derive(Copy, Clone, Debug)]
pub struct EntryView<'a> {
    id: EntryId,
    packed: bool,
    flags: RecordFlags,
    parent: EntryId,
    rdn: &'a str,
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
        let rdn = std::str::from_utf8(rdn).map_err(|_| RecordError::NotUtf8 { entry: id })?;
        let length = take_varint(&mut rest).ok_or_else(|| truncated.clone())?;
        let normal_rdn = match length.checked_sub(1) {
            None => rdn.as_bytes(),
            Some(length) => take(&mut rest, length).ok_or(truncated)?,
        };
        let parent = EntryId(u64::from_be_bytes(*parent));
        Ok(Self { id, packed, flags: RecordFlags(flags), parent, rdn, normal_rdn, attributes: rest })
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
        for attribute in self.attributes() {
            let (found, values) = attribute?;
            if found == number {
                return Ok(Some(values));
            }
        }
        Ok(None)
    }
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
        // Nearly always all three numbers are of one byte, and all values stand here.
        if let &[number, count, length, ref rest @ ..] = self.rest
            && (number | count | length) < 0x80
            && count & 3 == 0
            && let Some((bytes, rest)) = rest.split_at_checked(usize::from(length))
        {
            self.rest = rest;
            let count = u64::from(count >> 2);
            let values = ValuesView { entry: self.entry, form: Form::Inline, count, bytes };
            return Some(Ok((AttributeNumber(number.into()), values)));
        }
        self.read_long()
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
    count: u64,
    bytes: &'a [u8],
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

/// Builds a record.
#[derive(Debug)]
pub struct RecordWriter {
    out: Vec<u8>,
    outside: bool,
}

/// Room for most records: growing would copy them.
const USUAL_BYTES: usize = 2048;

impl RecordWriter {
    pub fn new(parent: EntryId, rdn: &str, normal_rdn: &[u8], flags: RecordFlags) -> Self {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        out.extend_from_slice(&[CODEC_PLAIN, flags.0]);
        out.extend_from_slice(&parent.to_bytes());
        put_varint(&mut out, rdn.len() as u64);
        out.extend_from_slice(rdn.as_bytes());
        if normal_rdn == rdn.as_bytes() {
            put_varint(&mut out, 0);
        } else {
            put_varint(&mut out, normal_rdn.len() as u64 + 1);
            out.extend_from_slice(normal_rdn);
        }
        Self { out, outside: false }
    }

    /// An attribute whose values stand in the record, but for those longer than [`INLINE_VALUE_LIMIT`], which are
    /// handed to `blob` with their digest.
    pub fn attribute<'v>(
        &mut self,
        number: AttributeNumber,
        values: impl ExactSizeIterator<Item = &'v [u8]> + Clone,
        mut blob: impl FnMut([u8; DIGEST_LENGTH], &'v [u8]),
    ) {
        let mixed = values.clone().any(|v| v.len() > INLINE_VALUE_LIMIT);
        let length: usize = values.clone().map(stored_length).sum();
        self.head(number, if mixed { Form::Mixed } else { Form::Inline }, values.len() as u64, length);
        for value in values {
            if value.len() > INLINE_VALUE_LIMIT {
                let digest = digest(value);
                self.out.push(BLOB_REFERENCE);
                self.out.extend_from_slice(&digest);
                put_varint(&mut self.out, value.len() as u64);
                blob(digest, value);
            } else {
                put_octet_string(&mut self.out, value);
            }
        }
        self.outside |= mixed;
    }

    /// An attribute as another record has it, all of whose values stand there ([`Form::Inline`]).
    pub(super) fn kept_attribute(&mut self, number: AttributeNumber, stored: &ValuesView<'_>) {
        debug_assert!(stored.form == Form::Inline, "what stands outside has to be looked at");
        self.head(number, Form::Inline, stored.count, stored.bytes.len());
        self.out.extend_from_slice(stored.bytes);
    }

    /// Whole attributes as they stand in another record, none with anything outside of it.
    pub(super) fn kept_bytes(&mut self, attributes: &[u8]) {
        self.out.extend_from_slice(attributes);
    }

    /// An attribute whose `count` values live in the table `values`.
    pub fn large_attribute(&mut self, number: AttributeNumber, count: u64) {
        self.head(number, Form::Large, count, 0);
        self.outside = true;
    }

    pub fn finish(mut self) -> Vec<u8> {
        if self.outside
            && let Some(flags) = self.out.get_mut(1)
        {
            *flags |= RecordFlags::OUTSIDE;
        }
        self.out
    }

    fn head(&mut self, number: AttributeNumber, form: Form, count: u64, length: usize) {
        let form = match form {
            Form::Inline => 0,
            Form::Mixed => 1,
            Form::Large => 2,
        };
        put_varint(&mut self.out, u64::from(number.0));
        put_varint(&mut self.out, count << 2 | form);
        put_varint(&mut self.out, length as u64);
    }
}

/// The name of a blob within its entry: the first bytes of its SHA-256.
pub fn digest(value: &[u8]) -> [u8; DIGEST_LENGTH] {
    let full = Sha256::digest(value);
    let mut out = [0; DIGEST_LENGTH];
    out.iter_mut().zip(full.iter()).for_each(|(to, from)| *to = *from);
    out
}

/// Appends `value` as a BER octet string with the shortest definite length.
pub fn put_octet_string(out: &mut Vec<u8>, value: &[u8]) {
    out.push(OCTET_STRING);
    if value.len() < 0x80 {
        out.push(value.len() as u8);
    } else {
        let bytes = (value.len() as u64).to_be_bytes();
        let skip = bytes.iter().take_while(|b| **b == 0).count();
        out.push(0x80 | (bytes.len() - skip) as u8);
        out.extend(bytes.iter().skip(skip));
    }
    out.extend_from_slice(value);
}

fn stored_length(value: &[u8]) -> usize {
    let length = value.len();
    if length > INLINE_VALUE_LIMIT {
        1 + DIGEST_LENGTH + varint_length(length as u64)
    } else if length < 0x80 {
        2 + length
    } else if length < 0x100 {
        3 + length
    } else {
        4 + length
    }
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(taken)
}

fn take_ber_length(rest: &mut &[u8]) -> Option<u64> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let bytes = take(rest, u64::from(first & 0x7f))?;
    if bytes.len() > 8 {
        return None;
    }
    Some(bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)))
}

/// Appends a number in base 128, low bits first, as short as it can be.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number that [`put_varint`] wrote: most are of one byte or two.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    match **rest {
        [low, ref after @ ..] if low < 0x80 => {
            *rest = after;
            Some(u64::from(low))
        }
        [low, high, ref after @ ..] if high < 0x80 => {
            *rest = after;
            Some(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => take_long_varint(rest),
    }
}

#[cold]
fn take_long_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    let mut shift = 0;
    loop {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

fn varint_length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rdn: &str, normal: &[u8], attributes: &[(u32, &[&[u8]])]) {
        let mut writer = RecordWriter::new(EntryId(7), rdn, normal, RecordFlags::default());
        let mut blobs = Vec::new();
        for (number, values) in attributes {
            writer.attribute(AttributeNumber(*number), values.iter().copied(), |digest, value| {
                blobs.push((digest, value.to_vec()));
            });
        }
        let record = writer.finish();
        let view = EntryView::parse(EntryId(9), &record).unwrap();
        assert_eq!((view.parent(), view.rdn(), view.normal_rdn()), (EntryId(7), rdn, normal));
        assert_eq!(view.flags().has(RecordFlags::OUTSIDE), !blobs.is_empty());
        let read: Vec<(u32, Vec<Vec<u8>>)> = view
            .attributes()
            .map(|attribute| {
                let (number, values) = attribute.unwrap();
                let values: Vec<Vec<u8>> = values
                    .iter()
                    .map(|value| match value.unwrap() {
                        StoredValue::Inline(value) => value.to_vec(),
                        StoredValue::Blob { digest, length } => {
                            let blob = blobs.iter().find(|(d, _)| d == digest).unwrap().1.clone();
                            assert_eq!(blob.len() as u64, length);
                            blob
                        }
                    })
                    .collect();
                (number.0, values)
            })
            .collect();
        let expected: Vec<(u32, Vec<Vec<u8>>)> =
            attributes.iter().map(|(n, v)| (*n, v.iter().map(|v| v.to_vec()).collect())).collect();
        assert_eq!(read, expected);
        for cut in 0..record.len() {
            let Ok(view) = EntryView::parse(EntryId(9), &record[..cut]) else { continue };
            view.attributes().for_each(|attribute| {
                let _ = attribute.map(|(_, values)| values.iter().count());
            });
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let long = vec![b'x'; 130];
        let longer = vec![b'y'; 300];
        let photo = vec![0xff; 5000];
        check("dc=example,dc=com", b"dc=example,dc=com", &[]);
        check("CN=A  B", b"cn=a b", &[(1, &[b"A  B"])]);
        check("cn=a", b"cn=a", &[(1, &[b"", b"b"]), (200, &[&long, &longer]), (70_000, &[b"c"])]);
        check("cn=a", b"cn=a", &[(3, &[b"small", &photo, b"again"]), (4, &[&photo])]);
    }

    #[test]
    fn inline_values_are_octet_strings() {
        let mut writer = RecordWriter::new(EntryId(1), "cn=a", b"cn=a", RecordFlags::default());
        writer.attribute(AttributeNumber(1), [b"ab".as_slice(), b"c"].into_iter(), |_, _| ());
        let record = writer.finish();
        let view = EntryView::parse(EntryId(2), &record).unwrap();
        let values = view.get(AttributeNumber(1)).unwrap().unwrap();
        assert_eq!(values.as_ber(), Some(b"\x04\x02ab\x04\x01c".as_slice()));
        assert!(view.get(AttributeNumber(2)).unwrap().is_none());
    }

    /// The example of docs/disk-format.md.
    #[test]
    fn documented_bytes() {
        let mut writer = RecordWriter::new(EntryId(1), "cn=A", b"cn=a", RecordFlags::default());
        writer.attribute(AttributeNumber(0), [b"person".as_slice()].into_iter(), |_, _| ());
        writer.attribute(AttributeNumber(1), [b"A".as_slice()].into_iter(), |_, _| ());
        let expected = [
            b"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x04cn=A\x05cn=a".as_slice(),
            b"\x00\x04\x08\x04\x06person\x01\x04\x03\x04\x01A",
        ];
        assert_eq!(writer.finish(), expected.concat());
    }

    #[test]
    fn varints() {
        for number in [0, 1, 127, 128, 300, 16383, 16384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            assert_eq!(out.len(), varint_length(number));
            assert_eq!(take_varint(&mut out.as_slice()), Some(number));
        }
        assert_eq!(take_varint(&mut [0x80u8; 12].as_slice()), None);
    }
}
