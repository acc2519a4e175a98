//! The record of an entry: written once, read in place (`docs/disk-format.md`).
//!
//! Values stand in the record as concatenated BER octet strings, so that answering a search is copying. Reading
//! allocates nothing; a record that does not parse is a [`RecordError`], never a panic.

mod numbers;
mod view;
mod writer;

use sha2::{Digest, Sha256};

pub use crate::fault::RecordError;

pub(crate) use numbers::{put_varint, take_varint};
pub(crate) use view::{AttributeLookup, RDN_IN_RECORD, head_length, is_child};
pub use view::{AttributesIter, EntryView, StoredValue, ValuesIter, ValuesView};
pub(crate) use writer::reuse;
pub use writer::{RecordWriter, put_octet_string};

/// The record as it is.
pub const CODEC_PLAIN: u8 = 1;
/// The head as it is, the attributes packed (`codec`) with a dictionary.
pub const CODEC_LZ4: u8 = 2;
/// Values longer than this live in the table `blobs`.
pub const INLINE_VALUE_LIMIT: usize = 1024;
/// Attributes with more values than this, and with an equality rule, live in the table `values`.
pub const INLINE_COUNT_LIMIT: usize = 256;
/// Length of the digest that names a blob.
pub const DIGEST_LENGTH: usize = 16;

const OCTET_STRING: u8 = 0x04;
const BLOB_REFERENCE: u8 = 0x00;

/// OIDs of the classes whose entries are looked for beside a filter (RFC 4512 section 2.6, RFC 3296): those that
/// [`RecordFlags::ALIAS`] and [`RecordFlags::REFERRAL`] say.
pub const ALIAS_CLASS: &str = "2.5.6.1";
pub const REFERRAL_CLASS: &str = "2.16.840.1.113730.3.2.6";

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

/// The name of a blob within its entry: the first bytes of its SHA-256.
pub fn digest(value: &[u8]) -> [u8; DIGEST_LENGTH] {
    let full = Sha256::digest(value);
    let mut out = [0; DIGEST_LENGTH];
    out.iter_mut().zip(full.iter()).for_each(|(to, from)| *to = *from);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AttributeNumber, EntryId};

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
        check_look_ups(&view, attributes);
        for cut in 0..record.len() {
            let Ok(view) = EntryView::parse(EntryId(9), &record[..cut]) else { continue };
            view.attributes().for_each(|attribute| {
                let _ = attribute.map(|(_, values)| values.iter().count());
            });
            check_look_ups(&view, attributes);
        }
    }

    /// What is looked up by its number is what is met when all are gone through, errors on the way included.
    fn check_look_ups(view: &EntryView<'_>, attributes: &[(u32, &[&[u8]])]) {
        let absent = AttributeNumber(126);
        for number in attributes.iter().map(|(number, _)| AttributeNumber(*number)).chain([absent]) {
            let is_it = |item: &Result<(AttributeNumber, ValuesView<'_>), RecordError>| match item {
                Ok((own, _)) => *own == number,
                Err(_) => true,
            };
            let met = view.attributes().find(is_it).transpose();
            let met = met.map(|met| met.map(|(_, values)| values));
            assert_eq!(format!("{:?}", view.get(number)), format!("{met:?}"), "{number:?}");
            let inline = met.ok().flatten().filter(|values| values.form() == Form::Inline);
            let sought = match AttributesIter::within(view.id(), view.attribute_bytes()).seek(number) {
                AttributeLookup::Found(values) => Some(values),
                AttributeLookup::Needs(_) | AttributeLookup::Other => None,
            };
            assert_eq!(format!("{sought:?}"), format!("{inline:?}"), "{number:?}");
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
    fn attributes_are_found_among_long_ones() {
        let long = vec![b'x'; 300];
        let values = |at: u32| {
            if at % 6 == 3 { vec![long.as_slice(), b"y".as_slice()] } else { vec![b"value".as_slice(); 2] }
        };
        let list: Vec<(u32, Vec<&[u8]>)> = (0..14).map(|at| (at * 11, values(at))).collect();
        let list: Vec<(u32, &[&[u8]])> =
            list.iter().map(|(number, values)| (*number, values.as_slice())).collect();
        check("cn=a", b"cn=a", &list);
    }

    /// Whatever one byte of the attributes is instead: other numbers, longer numbers, unknown forms, other lengths.
    #[test]
    fn damaged_attributes_are_looked_up_as_they_are_met() {
        for last in [vec![b'x'; 2], vec![b'x'; 150]] {
            let attributes: [(u32, &[&[u8]]); 5] =
                [(1, &[b"", b"b"]), (2, &[]), (200, &[b"c"]), (7, &[b"d"]), (9, &[&last])];
            let mut writer = RecordWriter::new(EntryId(7), "cn=a", b"cn=a", RecordFlags::default());
            writer.large_attribute(AttributeNumber(0), 3);
            for (number, values) in attributes {
                writer.attribute(AttributeNumber(number), values.iter().copied(), |_, _| ());
            }
            let record = writer.finish();
            let places = head_length(&record).unwrap()..record.len();
            for at in places.take(32) {
                for byte in 0..=u8::MAX {
                    let mut damaged = record.clone();
                    damaged[at] = byte;
                    check_look_ups(&EntryView::parse(EntryId(9), &damaged).unwrap(), &attributes);
                }
            }
        }
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
}
