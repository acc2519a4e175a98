//! Writing elements at the end of a buffer, with minimal lengths.

use super::Tag;

/// Appends a header: tag and definite length of the shortest form.
#[inline]
pub fn header(out: &mut Vec<u8>, tag: Tag, length: usize) {
    if length < 0x80 {
        // Below 0x80, so the low octet is the length.
        out.extend_from_slice(&[tag.0, (length & 0x7f) as u8]);
    } else {
        long_header(out, tag, length);
    }
}

/// The same with a length of the long form, which is nearly always of one octet or two.
fn long_header(out: &mut Vec<u8>, tag: Tag, length: usize) {
    match (length as u64).to_be_bytes() {
        [0, 0, 0, 0, 0, 0, 0, low] => out.extend_from_slice(&[tag.0, 0x81, low]),
        [0, 0, 0, 0, 0, 0, high, low] => out.extend_from_slice(&[tag.0, 0x82, high, low]),
        octets => {
            let skip = (length as u64).leading_zeros() as usize / 8;
            out.extend_from_slice(&[tag.0, 0x80 | (8 - skip) as u8]);
            out.extend(octets.iter().skip(skip));
        }
    }
}

/// The octets that an element of this content length takes, header included.
#[inline]
pub const fn element_len(content: usize) -> usize {
    content + header_len(content)
}

/// The octets that [`header`] writes.
#[inline]
pub const fn header_len(content: usize) -> usize {
    if content < 0x80 { 2 } else { 2 + (8 - (content as u64).leading_zeros() as usize / 8) }
}

/// Appends a primitive element.
#[inline]
pub fn octets(out: &mut Vec<u8>, tag: Tag, contents: &[u8]) {
    header(out, tag, contents.len());
    out.extend_from_slice(contents);
}

/// An OCTET STRING under this tag, if there is one.
pub(crate) fn optional(out: &mut Vec<u8>, tag: Tag, value: Option<&[u8]>) {
    if let Some(value) = value {
        octets(out, tag, value);
    }
}

/// Appends an OCTET STRING holding text.
#[inline]
pub fn string(out: &mut Vec<u8>, text: &str) {
    octets(out, Tag::OCTET_STRING, text.as_bytes());
}

/// Appends a number of the fewest octets.
pub fn integer(out: &mut Vec<u8>, tag: Tag, value: i64) {
    let bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    // One sign bit must stay: 64 - bits + 1, rounded up to octets, is at least one and at most eight.
    let skip = ((bits.max(1) - 1) / 8).min(7) as usize;
    header(out, tag, 8 - skip);
    out.extend(value.to_be_bytes().iter().skip(skip));
}

/// Appends a BOOLEAN (true is 0xff, RFC 4511 section 5.1).
#[inline]
pub fn boolean(out: &mut Vec<u8>, tag: Tag, value: bool) {
    out.extend_from_slice(&[tag.0, 1, if value { 0xff } else { 0 }]);
}

/// Appends a constructed element whose contents `write` appends.
#[inline]
pub fn constructed(out: &mut Vec<u8>, tag: Tag, write: impl FnOnce(&mut Vec<u8>)) {
    let open = Open::short(out, tag);
    write(out);
    open.close(out);
}

/// A constructed element whose length is written when it is closed. Room for the length is guessed at the start; contents that need more are moved once.
#[derive(Debug)]
#[must_use = "an element has no length until it is closed"]
pub(crate) struct Open {
    /// Where the length starts.
    length_at: usize,
    /// Octets held free for it.
    room: usize,
}

impl Open {
    /// Room for the shortest length: for contents that are usually below 128 octets.
    #[inline]
    pub(crate) fn short(out: &mut Vec<u8>, tag: Tag) -> Self {
        out.extend_from_slice(&[tag.0, 0]);
        Self { length_at: out.len() - 1, room: 1 }
    }

    /// Room for a length of up to 64 KB: for contents that are usually long, which are then never moved.
    #[inline]
    pub(crate) fn wide(out: &mut Vec<u8>, tag: Tag) -> Self {
        out.extend_from_slice(&[tag.0, 0x82, 0, 0]);
        Self { length_at: out.len() - 3, room: 3 }
    }

    /// Writes the length of everything appended since the element was opened.
    #[inline]
    pub(crate) fn close(self, out: &mut Vec<u8>) {
        let length = out.len().saturating_sub(self.length_at + self.room);
        match (self.room, length) {
            (1, 0..0x80) => {
                if let Some(octet) = out.get_mut(self.length_at) {
                    *octet = (length & 0x7f) as u8;
                }
            }
            (3, 0..0x1_0000) => {
                if let Some(octets) = out.get_mut(self.length_at + 1..self.length_at + 3) {
                    octets.copy_from_slice(&((length & 0xffff) as u16).to_be_bytes());
                }
            }
            _ => self.move_and_close(out, length),
        }
    }

    #[cold]
    fn move_and_close(self, out: &mut Vec<u8>, length: usize) {
        let skip = (length as u64).leading_zeros() as usize / 8;
        let octets = (length as u64).to_be_bytes();
        let form = std::iter::once(0x80 | (8 - skip) as u8).chain(octets.into_iter().skip(skip));
        out.splice(self.length_at..self.length_at + self.room, form);
    }
}
