//! The parser: RFC 4514, and of the older forms what OpenLDAP takes: spaces around types, `=` and separators,
//! `;` as a separator, quoted values, options after a type (ignored).

use std::borrow::Cow;

use smallvec::{SmallVec, smallvec};

use super::{DnFault, DnSyntaxError, Rdn, RdnAva};

pub(super) fn dn(text: &str) -> Result<SmallVec<[Rdn<'_>; 4]>, DnSyntaxError> {
    let mut rdns = SmallVec::new();
    if text.is_empty() {
        return Ok(rdns);
    }
    if let Some(position) = memchr::memchr(0, text.as_bytes()) {
        return Err(DnSyntaxError { position, fault: DnFault::Nul });
    }
    let mut parser = Parser { text, position: 0 };
    loop {
        let mut rdn = Rdn { avas: smallvec![parser.ava()?] };
        while parser.peek() == Some(b'+') {
            parser.position += 1;
            rdn.avas.push(parser.ava()?);
        }
        rdns.push(rdn);
        match parser.peek() {
            None => return Ok(rdns),
            Some(b',' | b';') => parser.position += 1,
            Some(_) => return Err(parser.error(DnFault::MissingSeparator)),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn ava(&mut self) -> Result<RdnAva<'a>, DnSyntaxError> {
        self.skip_spaces();
        let attribute = self.attribute()?;
        self.skip_spaces();
        if self.peek() != Some(b'=') {
            return Err(self.error(DnFault::MissingEquals));
        }
        self.position += 1;
        self.skip_spaces();
        let (value, hex) = match self.peek() {
            Some(b'#') => (Cow::Owned(self.hex()?), true),
            Some(b'"') => (self.quoted()?, false),
            _ => (self.string()?, false),
        };
        Ok(RdnAva { attribute, value, hex })
    }

    fn attribute(&mut self) -> Result<&'a str, DnSyntaxError> {
        let start = self.position;
        match self.peek() {
            Some(b'0'..=b'9') => {
                self.skip_while(|byte| byte.is_ascii_digit() || byte == b'.');
                let oid = self.since(start);
                if oid.split('.').any(str::is_empty) {
                    return Err(DnSyntaxError { position: start, fault: DnFault::MissingType });
                }
                Ok(oid)
            }
            Some(byte) if byte.is_ascii_alphabetic() => {
                self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
                let name = self.since(start);
                if self.peek() == Some(b';') {
                    self.skip_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b';'));
                }
                Ok(name)
            }
            _ => Err(self.error(DnFault::MissingType)),
        }
    }

    /// A value in the usual form, up to a separator; unescaped spaces at its end do not belong to it.
    fn string(&mut self) -> Result<Cow<'a, [u8]>, DnSyntaxError> {
        let bytes = self.text.as_bytes();
        let start = self.position;
        // Made at the first escape; until then the value is a piece of the text.
        let mut unescaped: Option<Vec<u8>> = None;
        // The value's length up to the last byte that is not a trailing space.
        let mut kept = 0;
        while let Some(byte) = self.peek() {
            let at = self.position;
            match byte {
                b',' | b';' | b'+' => break,
                b'\\' => {
                    let value =
                        unescaped.get_or_insert_with(|| bytes.get(start..at).unwrap_or_default().to_vec());
                    let (byte, len) = escape(bytes.get(at + 1..).unwrap_or_default())
                        .ok_or(DnSyntaxError { position: at, fault: DnFault::BadEscape })?;
                    value.push(byte);
                    kept = value.len();
                    self.position += 1 + len;
                }
                b'"' | b'<' | b'>' => return Err(self.error(DnFault::Unescaped(char::from(byte)))),
                _ => {
                    self.position += 1;
                    if let Some(value) = &mut unescaped {
                        value.push(byte);
                    }
                    if !is_space(byte) {
                        kept = unescaped.as_ref().map_or(self.position - start, Vec::len);
                    }
                }
            }
        }
        Ok(match unescaped {
            Some(mut value) => {
                value.truncate(kept);
                Cow::Owned(value)
            }
            None => Cow::Borrowed(bytes.get(start..start + kept).unwrap_or_default()),
        })
    }

    /// A quoted value (RFC 1779): a backslash takes the next character literally.
    fn quoted(&mut self) -> Result<Cow<'a, [u8]>, DnSyntaxError> {
        let opening = self.position;
        let unclosed = DnSyntaxError { position: opening, fault: DnFault::UnclosedQuote };
        self.position += 1;
        let mut value = Vec::new();
        loop {
            match self.next().ok_or(unclosed)? {
                b'"' => break,
                b'\\' => value.push(self.next().ok_or(unclosed)?),
                byte => value.push(byte),
            }
        }
        self.skip_spaces();
        Ok(Cow::Owned(value))
    }

    /// `#` and pairs of hexadecimal digits.
    fn hex(&mut self) -> Result<Vec<u8>, DnSyntaxError> {
        self.position += 1;
        let start = self.position;
        self.skip_while(|byte| byte.is_ascii_hexdigit());
        let digits = self.since(start).as_bytes();
        let (pairs, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.error(DnFault::BadHex));
        }
        let value = pairs.iter().filter_map(|&[high, low]| hex_pair(high, low)).collect();
        self.skip_spaces();
        match self.peek() {
            None | Some(b',' | b';' | b'+') => Ok(value),
            Some(_) => Err(self.error(DnFault::BadHex)),
        }
    }

    fn skip_spaces(&mut self) {
        self.skip_while(is_space);
    }

    fn skip_while(&mut self, accept: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&accept) {
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }

    fn error(&self, fault: DnFault) -> DnSyntaxError {
        DnSyntaxError { position: self.position, fault }
    }
}

/// What stands after a backslash: the byte that is meant, and how many bytes it takes.
fn escape(rest: &[u8]) -> Option<(u8, usize)> {
    match *rest {
        [byte @ (b'\\' | b',' | b';' | b'+' | b'"' | b'<' | b'>' | b'=' | b'#'), ..] => Some((byte, 1)),
        [byte, ..] if is_space(byte) => Some((byte, 1)),
        [high, low, ..] => hex_pair(high, low).map(|byte| (byte, 2)),
        _ => None,
    }
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
