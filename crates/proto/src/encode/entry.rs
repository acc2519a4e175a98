//! Search result entries, attribute by attribute (RFC 4511 section 4.5.2).

use std::cell::Cell;

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
    /// With a hole for each of the two lengths that depend on the values, and zeros behind it.
    octets: [u8; HEAD_ROOM],
    /// A longer description has no such head: then it is [`SHORT`].
    length: u8,
}

/// Octets of a head beside the description: four before it, two behind.
const HEAD_BESIDE: usize = 6;
/// A head is shorter than this.
const HEAD_ROOM: usize = 64;
/// An attribute whose three lengths are of one octet each is shorter than this.
const SHORT: usize = 0x80 + 2;
/// Octets that can be read where the values of an attribute stand that is [copied in steps](AttributeRun::short).
pub const VALUES_ROOM: usize = 128;
/// So many of them are copied where they are no more, as nearly always, else all that a short attribute may have.
const STEP: usize = 32;
/// Where a short attribute is written, with what is written behind its values.
const PLACE: usize = HEAD_ROOM + VALUES_ROOM;
/// Octets after which what is written goes to the output.
const FULL: usize = 4096;
const ROOM: usize = FULL + PLACE;

// The mask of a place, and the longest values of a short attribute.
const _: () = assert!(FULL.is_power_of_two() && HEAD_ROOM.is_power_of_two());
const _: () = assert!(SHORT - HEAD_BESIDE <= VALUES_ROOM && STEP <= VALUES_ROOM && HEAD_ROOM < SHORT);

thread_local! {
    /// Room that attributes are written to, for all runs of this thread.
    static KEPT: Cell<Option<Box<[u8; ROOM]>>> = const { Cell::new(None) };
}

impl AttributeHead {
    pub fn new(description: &str) -> Self {
        let mut head = Self { octets: [0; HEAD_ROOM], length: SHORT as u8 };
        let length = description.len() + HEAD_BESIDE;
        if length < HEAD_ROOM
            && let Some(octets) = head.octets.get_mut(..length)
            && let [sequence, _, string, name_length, name @ .., set, _] = octets
        {
            (*sequence, *string, *set) = (Tag::SEQUENCE.0, Tag::OCTET_STRING.0, Tag::SET.0);
            *name_length = description.len() as u8;
            name.copy_from_slice(description.as_bytes());
            head.length = length as u8;
        }
        head
    }
}

/// Writes attributes one after another: see [`EntryEncoder::run`].
#[derive(Debug)]
pub struct AttributeRun<'e> {
    out: &'e mut Vec<u8>,
    /// What is written and not in the output yet.
    room: &'e mut [u8; ROOM],
    written: usize,
}

impl AttributeRun<'_> {
    /// Adds an attribute whose values are OCTET STRING elements already: the first `length` octets of `values`. What stands behind
    /// them is not taken over. False: the attribute is too long for that, and is not added.
    #[inline(always)]
    pub fn short(&mut self, head: &AttributeHead, length: usize, values: &[u8; VALUES_ROOM]) -> bool {
        let head_length = usize::from(head.length);
        let whole = head_length + length;
        if whole >= SHORT {
            return false;
        }
        if self.written >= FULL {
            self.hand_over();
        }
        let place = self.room.get_mut(self.written % FULL..).and_then(|room| room.first_chunk_mut::<PLACE>());
        let Some(place) = place else { return false };
        if let Some(start) = place.first_chunk_mut() {
            *start = head.octets;
        }
        // All three lengths are of one octet.
        place[1] = (whole - 2) as u8;
        let last = (head_length - 1) % HEAD_ROOM;
        place[last] = length as u8;
        let Some(to) = place.get_mut(last + 1..) else { return false };
        if length <= STEP {
            if let (Some(to), Some(from)) = (to.first_chunk_mut::<STEP>(), values.first_chunk()) {
                *to = *from;
            }
        } else if let Some(to) = to.first_chunk_mut() {
            *to = *values;
        }
        self.written += whole;
        true
    }

    /// The same of any length.
    #[inline]
    pub fn long(&mut self, description: &str, values: &[u8]) {
        self.hand_over();
        put_attribute(self.out, description, values);
    }

    #[inline]
    fn hand_over(&mut self) {
        put_written(self.out, self.room, self.written);
        self.written = 0;
    }
}

/// Apart, so that the run stays in registers.
#[inline(never)]
fn put_written(out: &mut Vec<u8>, room: &[u8; ROOM], written: usize) {
    out.extend_from_slice(room.get(..written).unwrap_or_default());
}

#[inline(never)]
fn put_attribute(out: &mut Vec<u8>, description: &str, values_ber: &[u8]) {
    let content = write::element_len(description.len()) + write::element_len(values_ber.len());
    write::header(out, Tag::SEQUENCE, content);
    write::string(out, description);
    write::octets(out, Tag::SET, values_ber);
}

impl<'o> EntryEncoder<'o> {
    pub fn begin(out: &'o mut Vec<u8>, id: MessageId, dn: &str) -> Self {
        Self::begin_octets(out, id, dn.as_bytes())
    }

    /// The same where nobody has looked whether the name is text.
    pub fn begin_octets(out: &'o mut Vec<u8>, id: MessageId, dn: &[u8]) -> Self {
        let start = out.len();
        let message = Open::wide(out, Tag::SEQUENCE);
        super::message_id(out, id);
        Self::begin_operation(out, start, Some(message), dn)
    }

    /// Writes the entry without a message around it: the value of a pre-read or post-read control (RFC 4527).
    pub fn begin_value(out: &'o mut Vec<u8>, dn: &str) -> Self {
        let start = out.len();
        Self::begin_operation(out, start, None, dn.as_bytes())
    }

    fn begin_operation(out: &'o mut Vec<u8>, start: usize, message: Option<Open>, dn: &[u8]) -> Self {
        let operation = Open::wide(out, Tag::application_constructed(4));
        write::octets(out, Tag::OCTET_STRING, dn);
        let attributes = Open::wide(out, Tag::SEQUENCE);
        Self { out, start, open: Some((message, operation, attributes)), attribute: None }
    }

    /// Adds an attribute whose values are OCTET STRING elements already, one after another; none with typesOnly.
    pub fn attribute(&mut self, description: &str, values_ber: &[u8]) {
        self.end_attribute();
        put_attribute(self.out, description, values_ber);
    }

    /// As [`Self::attribute`], for attributes one after another, with the heads of their descriptions made before.
    #[inline]
    pub fn run<T>(&mut self, write: impl FnOnce(&mut AttributeRun<'_>) -> T) -> T {
        if self.attribute.is_some() {
            self.end_attribute();
        }
        let mut room = KEPT.take().unwrap_or_else(|| Box::new([0; ROOM]));
        let mut run = AttributeRun { out: self.out, room: &mut room, written: 0 };
        let result = write(&mut run);
        run.hand_over();
        KEPT.set(Some(room));
        result
    }

    /// As [`Self::attribute`], with the head of the description made before.
    #[inline]
    pub fn attribute_under(&mut self, head: &AttributeHead, description: &str, values_ber: &[u8]) {
        if self.attribute.is_some() {
            self.end_attribute();
        }
        let (at, head_length) = (self.out.len(), usize::from(head.length));
        let whole = head_length + values_ber.len();
        let Some(head) = head.octets.get(..head_length).filter(|_| whole < SHORT) else {
            return put_attribute(self.out, description, values_ber);
        };
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(values_ber);
        if let Some([_, content, .., values]) = self.out.get_mut(at..at + head_length) {
            (*content, *values) = ((whole - 2) as u8, values_ber.len() as u8);
        }
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
