//! Search result entries, attribute by attribute (RFC 4511 section 4.5.2).

use crate::ber::Tag;
use crate::ber::write::{self, Open};
use crate::control::ControlBuf;
use crate::message_id::MessageId;

/// Writes one entry at the end of a buffer. Values that are stored as BER are copied in one piece.
///
/// The message stays open until [`finish`](Self::finish); [`cancel`](Self::cancel), or dropping the encoder,
/// takes back everything that was written.
#[derive(Debug)]
#[must_use = "an entry that is not finished is taken back"]
pub struct EntryEncoder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// Message (if there is one), operation and attribute list; none once the entry is finished.
    open: Option<(Option<Open>, Open, Open)>,
    /// The attribute and its set of values, while one is written value by value.
    attribute: Option<(Open, Open)>,
}

/// How an attribute begins in an entry, up to its values: made once for a description that is answered often.
#[derive(Clone, Debug)]
pub struct AttributeHead {
    /// With a hole for each of the two lengths that depend on the values. Empty: a longer description has no such head.
    octets: Box<[u8]>,
}

/// Octets of a head beside the description: four before it, two behind.
const HEAD_BESIDE: usize = 6;

impl AttributeHead {
    pub fn new(description: &str) -> Self {
        let Some(length) = u8::try_from(description.len()).ok().filter(|length| *length < 0x80) else {
            return Self { octets: Box::default() };
        };
        let mut octets = Vec::with_capacity(description.len() + HEAD_BESIDE);
        octets.extend_from_slice(&[Tag::SEQUENCE.0, 0, Tag::OCTET_STRING.0, length]);
        octets.extend_from_slice(description.as_bytes());
        octets.extend_from_slice(&[Tag::SET.0, 0]);
        Self { octets: octets.into_boxed_slice() }
    }
}

impl<'o> EntryEncoder<'o> {
    pub fn begin(out: &'o mut Vec<u8>, id: MessageId, dn: &str) -> Self {
        let start = out.len();
        let message = Open::wide(out, Tag::SEQUENCE);
        write::integer(out, Tag::INTEGER, i64::from(id.0));
        Self::begin_operation(out, start, Some(message), dn)
    }

    /// Writes the entry without a message around it: the value of a pre-read or post-read control (RFC 4527).
    pub fn begin_value(out: &'o mut Vec<u8>, dn: &str) -> Self {
        let start = out.len();
        Self::begin_operation(out, start, None, dn)
    }

    fn begin_operation(out: &'o mut Vec<u8>, start: usize, message: Option<Open>, dn: &str) -> Self {
        let operation = Open::wide(out, Tag::application_constructed(4));
        write::string(out, dn);
        let attributes = Open::wide(out, Tag::SEQUENCE);
        Self { out, start, open: Some((message, operation, attributes)), attribute: None }
    }

    /// Adds an attribute whose values are OCTET STRING elements already, one after another; none with typesOnly.
    pub fn attribute(&mut self, description: &str, values_ber: &[u8]) {
        self.end_attribute();
        let content = write::element_len(description.len()) + write::element_len(values_ber.len());
        write::header(self.out, Tag::SEQUENCE, content);
        write::string(self.out, description);
        write::octets(self.out, Tag::SET, values_ber);
    }

    /// As [`Self::attribute`], with the head of the description made before.
    #[inline]
    pub fn attribute_under(&mut self, head: &AttributeHead, description: &str, values_ber: &[u8]) {
        if self.attribute.is_some() {
            self.end_attribute();
        }
        let head = &*head.octets;
        let length = head.len() + values_ber.len();
        // All three lengths are of one octet: the usual case, written in two pieces, in which the lengths are then filled.
        if length < 0x80 + 2 && !head.is_empty() {
            let at = self.out.len();
            self.out.reserve(length);
            self.out.extend_from_slice(head);
            self.out.extend_from_slice(values_ber);
            if let Some(written) = self.out.get_mut(at..at + head.len())
                && let [_, content, .., values] = written
            {
                *content = (length - 2) as u8;
                *values = values_ber.len() as u8;
            }
            return;
        }
        self.attribute(description, values_ber);
    }

    /// Opens an attribute whose values follow by [`value`](Self::value).
    pub fn begin_attribute(&mut self, description: &str) {
        self.end_attribute();
        let attribute = Open::short(self.out, Tag::SEQUENCE);
        write::string(self.out, description);
        self.attribute = Some((attribute, Open::short(self.out, Tag::SET)));
    }

    /// Adds a value to the attribute that [`begin_attribute`](Self::begin_attribute) opened.
    pub fn value(&mut self, value: &[u8]) {
        debug_assert!(self.attribute.is_some(), "a value outside an attribute");
        write::octets(self.out, Tag::OCTET_STRING, value);
    }

    /// Adds values that are OCTET STRING elements already to the open attribute.
    pub fn values_ber(&mut self, values_ber: &[u8]) {
        debug_assert!(self.attribute.is_some(), "values outside an attribute");
        self.out.extend_from_slice(values_ber);
    }

    /// Closes the open attribute, if there is one.
    pub fn end_attribute(&mut self) {
        if let Some((attribute, values)) = self.attribute.take() {
            values.close(self.out);
            attribute.close(self.out);
        }
    }

    /// Bytes written so far for this entry.
    #[must_use]
    pub fn written(&self) -> usize {
        self.out.len() - self.start
    }

    /// Completes the message; without one there can be no controls.
    pub fn finish(mut self, controls: &[ControlBuf]) {
        self.end_attribute();
        if let Some((message, operation, attributes)) = self.open.take() {
            attributes.close(self.out);
            operation.close(self.out);
            if let Some(message) = message {
                super::controls(self.out, controls);
                message.close(self.out);
            }
        }
    }

    /// Takes the entry back: the buffer is as it was.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for EntryEncoder<'_> {
    fn drop(&mut self) {
        if self.open.is_some() {
            self.out.truncate(self.start);
        }
    }
}
