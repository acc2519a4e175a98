//! Reading elements off a slice.

use super::{DecodeError, Fault, Tag};

/// A cursor over BER elements that lie one after another. Copying it is how one looks ahead.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub const fn new(ber: &'a [u8]) -> Self {
        Self { rest: ber }
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read yet.
    #[inline]
    pub const fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    /// The next element's tag, if there is one.
    #[inline]
    pub fn peek(&self) -> Option<Tag> {
        self.rest.first().map(|&tag| Tag(tag))
    }

    /// Reads the next element, whatever it is: its tag and its contents.
    #[inline]
    pub fn element(&mut self, field: &'static str) -> Result<(Tag, &'a [u8]), DecodeError> {
        let &[tag, first, ref tail @ ..] = self.rest else { return Err(self.no_header(field)) };
        if tag & 0x1f == 0x1f {
            return Err(DecodeError::new(field, Fault::HighTagNumber));
        }
        let (length, tail) =
            if first < 0x80 { (usize::from(first), tail) } else { long_length(first, tail, field)? };
        let Some((contents, rest)) = tail.split_at_checked(length) else {
            return Err(DecodeError::new(field, Fault::Truncated { needed: length, left: tail.len() }));
        };
        self.rest = rest;
        Ok((Tag(tag), contents))
    }

    /// Reads the next element, which must have this tag: its contents.
    #[inline]
    pub fn expect(&mut self, tag: Tag, field: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.peek() {
            Some(found) if found == tag => Ok(self.element(field)?.1),
            Some(found) => Err(DecodeError::new(field, Fault::UnexpectedTag { expected: tag, found })),
            None => Err(DecodeError::new(field, Fault::Missing)),
        }
    }

    /// Reads the next element if it has this tag.
    #[inline]
    pub fn optional(&mut self, tag: Tag, field: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        if self.peek() == Some(tag) { Ok(Some(self.element(field)?.1)) } else { Ok(None) }
    }

    /// Reads the next element: all of its octets, header included.
    #[inline]
    pub fn raw(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let before = self.rest;
        self.element(field)?;
        before
            .get(..before.len() - self.rest.len())
            .ok_or_else(|| DecodeError::new(field, Fault::Truncated { needed: before.len(), left: 0 }))
    }

    #[inline]
    pub fn sequence(&mut self, field: &'static str) -> Result<Self, DecodeError> {
        Ok(Self::new(self.expect(Tag::SEQUENCE, field)?))
    }

    #[inline]
    pub fn set(&mut self, field: &'static str) -> Result<Self, DecodeError> {
        Ok(Self::new(self.expect(Tag::SET, field)?))
    }

    #[inline]
    pub fn octets(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        self.expect(Tag::OCTET_STRING, field)
    }

    /// Reads an LDAPString: an OCTET STRING that must be UTF-8.
    #[inline]
    pub fn string(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        utf8(self.octets(field)?, field)
    }

    /// Passes over an LDAPString.
    #[inline]
    pub(crate) fn text(&mut self, field: &'static str) -> Result<(), DecodeError> {
        check_text(self.octets(field)?, field)
    }

    #[inline]
    pub fn boolean(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        boolean(self.expect(Tag::BOOLEAN, field)?, field)
    }

    /// Reads a BOOLEAN with a default: absent is `false`.
    #[inline]
    pub fn boolean_or_false(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.optional(Tag::BOOLEAN, field)?.map_or(Ok(false), |contents| boolean(contents, field))
    }

    /// Reads a number of one octet that is not negative, as nearly all are; `None` says nothing.
    #[inline]
    fn small(&mut self, tag: Tag) -> Option<u8> {
        match *self.rest {
            [found, 1, number @ 0..0x80, ref rest @ ..] if found == tag.0 => {
                self.rest = rest;
                Some(number)
            }
            _ => None,
        }
    }

    #[inline]
    pub fn integer(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        if let Some(number) = self.small(Tag::INTEGER) {
            return Ok(number.into());
        }
        integer(self.expect(Tag::INTEGER, field)?, field)
    }

    /// Reads an INTEGER of the range 0 ..  maxInt (2^31 - 1, RFC 4511 section 4.1.1).
    #[inline]
    pub fn unsigned(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        if let Some(number) = self.small(Tag::INTEGER) {
            return Ok(number.into());
        }
        unsigned(self.expect(Tag::INTEGER, field)?, field)
    }

    #[inline]
    pub fn enumerated(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        if let Some(number) = self.small(Tag::ENUMERATED) {
            return Ok(number.into());
        }
        integer(self.expect(Tag::ENUMERATED, field)?, field)
    }

    /// Skips what a later specification may have added at the end of a sequence: elements that are well-formed
    /// are ignored, whatever they are (RFC 4511 section 4).
    #[inline]
    pub fn ignore_rest(mut self, field: &'static str) -> Result<(), DecodeError> {
        while !self.is_empty() {
            self.element(field)?;
        }
        Ok(())
    }

    /// Errs unless everything has been read.
    #[inline]
    pub fn finish(&self, field: &'static str) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::new(field, Fault::Trailing(self.rest.len()))) }
    }

    #[cold]
    fn no_header(&self, field: &'static str) -> DecodeError {
        match self.rest.len() {
            0 => DecodeError::new(field, Fault::Missing),
            left => DecodeError::new(field, Fault::Truncated { needed: 2, left }),
        }
    }
}

/// Whether octets are text in UTF-8. Nearly always they are of ASCII, and few: so they are looked at eight at a time first.
#[inline]
pub fn is_text(octets: &[u8]) -> bool {
    const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = octets.as_chunks::<8>();
    let mut seen = words.iter().fold(0, |seen, word| seen | u64::from_le_bytes(*word));
    match octets.last_chunk() {
        _ if rest.is_empty() => {}
        Some(last) => seen |= u64::from_le_bytes(*last),
        None => rest.iter().for_each(|octet| seen |= u64::from(*octet)),
    }
    seen & NOT_ASCII == 0 || std::str::from_utf8(octets).is_ok()
}

/// Checks the contents of an LDAPString.
#[inline]
pub(crate) fn check_text(contents: &[u8], field: &'static str) -> Result<(), DecodeError> {
    if is_text(contents) { Ok(()) } else { utf8(contents, field).map(drop) }
}

/// The contents of an LDAPString.
#[inline]
pub(crate) fn utf8<'a>(contents: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(contents)
        .map_err(|error| DecodeError::new(field, Fault::NotUtf8 { offset: error.valid_up_to() }))
}

/// The contents of a BOOLEAN: any octet but zero is true (X.690 section 8.2.2).
#[inline]
pub(crate) fn boolean(contents: &[u8], field: &'static str) -> Result<bool, DecodeError> {
    match contents {
        &[octet] => Ok(octet != 0),
        _ => Err(DecodeError::new(field, Fault::BooleanLength(contents.len()))),
    }
}

/// The contents of an INTEGER or ENUMERATED; more octets than needed are tolerated.
#[inline]
pub(crate) fn integer(contents: &[u8], field: &'static str) -> Result<i64, DecodeError> {
    let Some((&first, rest)) = contents.split_first() else {
        return Err(DecodeError::new(field, Fault::IntegerLength(0)));
    };
    // Sign-extended from the first octet; every shift below moves one more octet in.
    let mut value = i64::from(i8::from_be_bytes([first]));
    for &octet in rest {
        if !(-(1 << 55)..1 << 55).contains(&value) {
            return Err(DecodeError::new(field, Fault::IntegerLength(contents.len())));
        }
        value = (value << 8) | i64::from(octet);
    }
    Ok(value)
}

#[inline]
pub(crate) fn unsigned(contents: &[u8], field: &'static str) -> Result<u32, DecodeError> {
    const MAX: i64 = 0x7fff_ffff;
    let value = integer(contents, field)?;
    match u32::try_from(value) {
        Ok(number) if value <= MAX => Ok(number),
        _ => Err(DecodeError::new(field, Fault::OutOfRange { value, min: 0, max: MAX })),
    }
}

/// A length of the long form, leading zeros tolerated; the tail begins after it.
#[cold]
fn long_length<'a>(first: u8, tail: &'a [u8], field: &'static str) -> Result<(usize, &'a [u8]), DecodeError> {
    let octets = first & 0x7f;
    match octets {
        0 => return Err(DecodeError::new(field, Fault::IndefiniteLength)),
        1..=8 => {}
        _ => return Err(DecodeError::new(field, Fault::LengthOfLength(octets))),
    }
    let Some((length, tail)) = tail.split_at_checked(usize::from(octets)) else {
        return Err(DecodeError::new(
            field,
            Fault::Truncated { needed: usize::from(octets), left: tail.len() },
        ));
    };
    let length = length.iter().fold(0u64, |length, &octet| (length << 8) | u64::from(octet));
    let length =
        usize::try_from(length).map_err(|_| DecodeError::new(field, Fault::LengthTooLarge(length)))?;
    Ok((length, tail))
}
