//! Records written once.

use std::cell::Cell;

use super::numbers::{put_varint, varint_length};
use super::{
    BLOB_REFERENCE, CODEC_PLAIN, DIGEST_LENGTH, Form, INLINE_VALUE_LIMIT, OCTET_STRING, RecordFlags,
    ValuesView, digest,
};
use crate::ids::{AttributeNumber, EntryId};

/// Builds a record.
#[derive(Debug)]
pub struct RecordWriter {
    out: Vec<u8>,
    outside: bool,
}

/// Room for most records: growing would copy them.
const USUAL_BYTES: usize = 2048;
/// Longer records leave no room behind.
const KEPT_BYTES: usize = 4 * USUAL_BYTES;

thread_local! {
    /// The memory of a record that was packed: nearly every record is, and the next one is about as long.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps the memory of a record that is not needed any more for the next one of this thread.
pub(crate) fn reuse(record: Vec<u8>) {
    if record.capacity() <= KEPT_BYTES {
        // While the thread ends it is freed.
        let _ = SPARE.try_with(|spare| spare.set(record));
    }
}

/// Room for a record, empty.
fn room() -> Vec<u8> {
    let mut room = SPARE.try_with(Cell::take).unwrap_or_default();
    room.clear();
    room.reserve(USUAL_BYTES);
    room
}

impl RecordWriter {
    pub fn new(parent: EntryId, rdn: &str, normal_rdn: &[u8], flags: RecordFlags) -> Self {
        Self::of_octets(parent, rdn.as_bytes(), normal_rdn, flags)
    }

    /// The same with an RDN that stood in a record.
    pub(crate) fn of_octets(parent: EntryId, rdn: &[u8], normal_rdn: &[u8], flags: RecordFlags) -> Self {
        let mut out = room();
        out.extend_from_slice(&[CODEC_PLAIN, flags.0]);
        out.extend_from_slice(&parent.to_bytes());
        put_varint(&mut out, rdn.len() as u64);
        out.extend_from_slice(rdn);
        if normal_rdn == rdn {
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

    /// An attribute as the entry's record before has it. What it has outside of the record stays there.
    pub(crate) fn unchanged_attribute(&mut self, number: AttributeNumber, stored: &ValuesView<'_>) {
        self.head(number, stored.form(), stored.count, stored.bytes.len());
        self.out.extend_from_slice(stored.bytes);
        self.outside |= stored.form() != Form::Inline;
    }

    /// Whole attributes as they stand in another record, none with anything outside of it.
    pub(crate) fn unchanged_bytes(&mut self, attributes: &[u8]) {
        self.out.extend_from_slice(attributes);
    }

    /// An attribute whose `count` values live in the table `values`.
    pub(crate) fn large_attribute(&mut self, number: AttributeNumber, count: u64) {
        self.head(number, Form::Large, count, 0);
        self.outside = true;
    }

    /// What was written so far.
    pub(crate) fn written(&self) -> &[u8] {
        &self.out
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a record before had is not in the next one.
    #[test]
    fn memory_is_used_again_empty() {
        let record = |rdn: &str, bytes: usize| {
            let mut writer = RecordWriter::new(EntryId(1), rdn, rdn.as_bytes(), RecordFlags::default());
            writer.attribute(AttributeNumber(0), std::iter::once(vec![b'x'; bytes].as_slice()), |_, _| ());
            writer.finish()
        };
        let fresh = record("cn=a", 10);
        for (bytes, is_kept) in
            [(0, false), (10, false), (USUAL_BYTES, true), (KEPT_BYTES, true), (KEPT_BYTES + 1, false)]
        {
            reuse(Vec::new());
            let spare = vec![b'y'; bytes];
            let place = spare.as_ptr();
            reuse(spare);
            let next = record("cn=a", 10);
            assert_eq!((&next, is_kept && next.as_ptr() != place), (&fresh, false), "{bytes}");
            assert!(next.capacity() >= USUAL_BYTES && next.capacity() <= KEPT_BYTES, "{bytes}");
        }
    }
}
