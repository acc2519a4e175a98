//! Filters from text (RFC 4515), and the looser forms that OpenLDAP's tools take.

use std::fmt;

use super::{
    AND, ANY, APPROX, DN_ATTRIBUTES, EQUALITY, EXTENSIBLE, FINAL, GREATER_OR_EQUAL, INITIAL, LESS_OR_EQUAL,
    MATCH_VALUE, MATCHING_RULE, NOT, OR, PRESENT, SUBSTRINGS, TYPE,
};
use crate::ber::Tag;
use crate::ber::write::{self, Open};
use crate::limits;

/// Where a filter's text is wrong, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterSyntaxError {
    /// Bytes from the start of the text.
    pub position: usize,
    pub fault: FilterFault,
}

/// What is wrong with a filter's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterFault {
    /// The text ends where something must follow.
    UnexpectedEnd,
    /// `(` must stand here.
    MissingOpen,
    /// `)` must stand here.
    MissingClose,
    /// Text after the filter's end.
    Trailing,
    /// Neither `=`, `>=`, `<=`, `~=` nor `:=` follows the attribute.
    MissingOperator,
    /// Not an attribute description or matching rule.
    BadDescription(String),
    /// A `:` part of an extensible match that is neither `dn` nor a rule.
    BadExtensible(String),
    /// `\` is not followed by two hexadecimal digits.
    BadEscape,
    /// `(` must be escaped within a value.
    UnescapedParenthesis,
    /// `*` has a meaning with `=` only.
    UnexpectedAsterisk,
    /// More than this many levels.
    TooDeep(usize),
}

/// Parses a whole filter to BER. A single item may stand without parentheses, and spaces around components are
/// skipped, as OpenLDAP does it.
pub(super) fn parse(text: &str) -> Result<Vec<u8>, FilterSyntaxError> {
    let mut parser = Parser { text, position: 0, out: Vec::with_capacity(text.len() + 16) };
    parser.skip_spaces();
    if parser.peek() == Some(b'(') {
        parser.filters()?;
    } else {
        let item = parser.rest().trim_end_matches(' ');
        parser.item(item)?;
    }
    parser.skip_spaces();
    if parser.peek().is_some() {
        return Err(parser.error(FilterFault::Trailing));
    }
    Ok(parser.out)
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    out: Vec<u8>,
}

impl<'a> Parser<'a> {
    /// Parses one parenthesised filter with all it contains. Iterative: the input chooses the depth.
    fn filters(&mut self) -> Result<(), FilterSyntaxError> {
        // Each open AND, OR or NOT, and whether it is a NOT.
        let mut open: Vec<(Open, bool)> = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek() {
                Some(b'(') => {
                    self.position += 1;
                    self.skip_spaces();
                    let tag = match self.peek() {
                        Some(b'&') => AND,
                        Some(b'|') => OR,
                        Some(b'!') => NOT,
                        Some(_) => {
                            let item = self.item_text()?;
                            self.item(item)?;
                            self.close()?;
                            if self.finished(&mut open)? {
                                return Ok(());
                            }
                            continue;
                        }
                        None => return Err(self.error(FilterFault::UnexpectedEnd)),
                    };
                    if open.len() >= limits::FILTER_DEPTH {
                        return Err(self.error(FilterFault::TooDeep(limits::FILTER_DEPTH)));
                    }
                    self.position += 1;
                    open.push((Open::short(&mut self.out, tag), tag == NOT));
                    self.skip_spaces();
                    if tag == NOT && self.peek() != Some(b'(') {
                        return Err(self.error(FilterFault::MissingOpen));
                    }
                }
                Some(b')') => {
                    let Some((set, false)) = open.pop() else {
                        return Err(self.error(FilterFault::MissingOpen));
                    };
                    self.position += 1;
                    set.close(&mut self.out);
                    if self.finished(&mut open)? {
                        return Ok(());
                    }
                }
                Some(_) => return Err(self.error(FilterFault::MissingOpen)),
                None => return Err(self.error(FilterFault::UnexpectedEnd)),
            }
        }
    }

    /// After a filter's `)`: closes every NOT around it. True when nothing is open any more.
    fn finished(&mut self, open: &mut Vec<(Open, bool)>) -> Result<bool, FilterSyntaxError> {
        while let Some((not, _)) = open.pop_if(|(_, not)| *not) {
            self.close()?;
            not.close(&mut self.out);
        }
        Ok(open.is_empty())
    }

    fn close(&mut self) -> Result<(), FilterSyntaxError> {
        self.skip_spaces();
        match self.peek() {
            Some(b')') => {
                self.position += 1;
                Ok(())
            }
            Some(_) => Err(self.error(FilterFault::MissingClose)),
            None => Err(self.error(FilterFault::UnexpectedEnd)),
        }
    }

    /// The text of an item: up to the parenthesis that closes it.
    fn item_text(&self) -> Result<&'a str, FilterSyntaxError> {
        let rest = self.rest();
        match find_unescaped(rest, |byte| matches!(byte, b'(' | b')')) {
            Some(end) if rest.as_bytes().get(end) == Some(&b')') => Ok(rest.get(..end).unwrap_or_default()),
            Some(end) => Err(self.error_at(self.position + end, FilterFault::UnescapedParenthesis)),
            None => Err(self.error_at(self.text.len(), FilterFault::UnexpectedEnd)),
        }
    }

    /// Parses an item, which starts here, and leaves it behind.
    fn item(&mut self, item: &'a str) -> Result<(), FilterSyntaxError> {
        let Some((left, value)) = item.split_once('=') else {
            return Err(self.error_at(self.position + item.len(), FilterFault::MissingOperator));
        };
        let value_at = self.position + left.len() + 1;
        let (name, tag) = match left.as_bytes().last() {
            Some(b'>') => (left.get(..left.len() - 1), GREATER_OR_EQUAL),
            Some(b'<') => (left.get(..left.len() - 1), LESS_OR_EQUAL),
            Some(b'~') => (left.get(..left.len() - 1), APPROX),
            Some(b':') => (left.get(..left.len() - 1), EXTENSIBLE),
            _ => (Some(left), EQUALITY),
        };
        let name = name.unwrap_or_default().trim_end_matches(' ');
        if tag == EXTENSIBLE {
            self.extensible(name, value, value_at)?;
        } else {
            self.check_description(name, self.position)?;
            match tag {
                EQUALITY if value == "*" => write::octets(&mut self.out, PRESENT, name.as_bytes()),
                EQUALITY if find_unescaped(value, |byte| byte == b'*').is_some() => {
                    self.substrings(name, value, value_at)?
                }
                _ => self.assertion(tag, name, value, value_at)?,
            }
        }
        self.position += item.len();
        Ok(())
    }

    fn assertion(
        &mut self,
        tag: Tag,
        name: &str,
        value: &str,
        value_at: usize,
    ) -> Result<(), FilterSyntaxError> {
        let assertion = Open::short(&mut self.out, tag);
        write::string(&mut self.out, name);
        self.value(Tag::OCTET_STRING, value, value_at)?;
        assertion.close(&mut self.out);
        Ok(())
    }

    fn substrings(&mut self, name: &str, value: &str, value_at: usize) -> Result<(), FilterSyntaxError> {
        let filter = Open::short(&mut self.out, SUBSTRINGS);
        write::string(&mut self.out, name);
        let pieces = Open::short(&mut self.out, Tag::SEQUENCE);
        let before = self.out.len();
        let mut rest = value;
        let mut piece_at = value_at;
        let mut tag = INITIAL;
        while let Some(end) = find_unescaped(rest, |byte| byte == b'*') {
            self.piece(tag, rest.get(..end).unwrap_or_default(), piece_at)?;
            tag = ANY;
            rest = rest.get(end + 1..).unwrap_or_default();
            piece_at += end + 1;
        }
        self.piece(FINAL, rest, piece_at)?;
        if self.out.len() == before {
            return Err(self.error_at(value_at + 1, FilterFault::UnexpectedAsterisk));
        }
        pieces.close(&mut self.out);
        filter.close(&mut self.out);
        Ok(())
    }

    /// A piece between asterisks; an empty one says nothing.
    fn piece(&mut self, tag: Tag, piece: &str, piece_at: usize) -> Result<(), FilterSyntaxError> {
        if piece.is_empty() { Ok(()) } else { self.value(tag, piece, piece_at) }
    }

    /// `[attribute][:dn][:rule]`, without the `:=`.
    fn extensible(&mut self, left: &str, value: &str, value_at: usize) -> Result<(), FilterSyntaxError> {
        let mut parts = left.split(':');
        let attribute = parts.next().unwrap_or_default();
        let mut rule = None;
        let mut dn_attributes = false;
        for part in parts {
            if part.eq_ignore_ascii_case("dn") && !dn_attributes && rule.is_none() {
                dn_attributes = true;
            } else if rule.is_none() && is_description(part) && !part.contains(';') {
                rule = Some(part);
            } else {
                return Err(self.error(FilterFault::BadExtensible(part.into())));
            }
        }
        if attribute.is_empty() && rule.is_none() {
            return Err(self.error(FilterFault::BadExtensible(left.into())));
        }
        if !attribute.is_empty() {
            self.check_description(attribute, self.position)?;
        }
        let assertion = Open::short(&mut self.out, EXTENSIBLE);
        if let Some(rule) = rule {
            write::octets(&mut self.out, MATCHING_RULE, rule.as_bytes());
        }
        if !attribute.is_empty() {
            write::octets(&mut self.out, TYPE, attribute.as_bytes());
        }
        self.value(MATCH_VALUE, value, value_at)?;
        if dn_attributes {
            write::boolean(&mut self.out, DN_ATTRIBUTES, true);
        }
        assertion.close(&mut self.out);
        Ok(())
    }

    /// Appends a value, its escapes resolved.
    fn value(&mut self, tag: Tag, value: &str, value_at: usize) -> Result<(), FilterSyntaxError> {
        let element = Open::short(&mut self.out, tag);
        let mut bytes = value.bytes().enumerate();
        while let Some((offset, byte)) = bytes.next() {
            let byte = match byte {
                b'\\' => escape(&mut bytes)
                    .ok_or_else(|| self.error_at(value_at + offset, FilterFault::BadEscape))?,
                b'*' => return Err(self.error_at(value_at + offset, FilterFault::UnexpectedAsterisk)),
                b'(' | b')' => {
                    return Err(self.error_at(value_at + offset, FilterFault::UnescapedParenthesis));
                }
                other => other,
            };
            self.out.push(byte);
        }
        element.close(&mut self.out);
        Ok(())
    }

    fn check_description(&self, name: &str, at: usize) -> Result<(), FilterSyntaxError> {
        if is_description(name) {
            Ok(())
        } else {
            Err(self.error_at(at, FilterFault::BadDescription(name.into())))
        }
    }

    fn skip_spaces(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn error(&self, fault: FilterFault) -> FilterSyntaxError {
        self.error_at(self.position, fault)
    }

    fn error_at(&self, position: usize, fault: FilterFault) -> FilterSyntaxError {
        FilterSyntaxError { position, fault }
    }
}

/// Whether this is an attribute description by its characters: a name or OID with options. Underscores are no
/// part of RFC 4512's names, but schemas in use have them.
fn is_description(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b';' | b'_'))
}

/// What a backslash stands for: two hexadecimal digits, or as in LDAPv2 the special character itself.
fn escape(rest: &mut impl Iterator<Item = (usize, u8)>) -> Option<u8> {
    match rest.next()?.1 {
        special @ (b'(' | b')' | b'*' | b'\\') => Some(special),
        high => Some(hex(high)? << 4 | hex(rest.next()?.1)?),
    }
}

/// A text as an assertion value of a filter has it (RFC 4515 section 3).
pub fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '*' => text.push_str("\\2a"),
            '(' => text.push_str("\\28"),
            ')' => text.push_str("\\29"),
            '\\' => text.push_str("\\5c"),
            '\0' => text.push_str("\\00"),
            other => text.push(other),
        }
    }
    text
}

/// Where the first such byte stands that no backslash precedes.
fn find_unescaped(text: &str, wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let found = !escaped && wanted(byte);
        escaped = !escaped && byte == b'\\';
        found
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Display for FilterSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter, column {}: ", self.position + 1)?;
        match &self.fault {
            FilterFault::UnexpectedEnd => f.write_str("')' expected, and the text ends"),
            FilterFault::MissingOpen => f.write_str("'(' expected"),
            FilterFault::MissingClose => f.write_str("')' expected"),
            FilterFault::Trailing => f.write_str("text after the end of the filter"),
            FilterFault::MissingOperator => f.write_str("'=', '>=', '<=', '~=' or ':=' expected"),
            FilterFault::BadDescription(text) => write!(f, "\"{text}\" is not an attribute description"),
            FilterFault::BadExtensible(text) => {
                write!(f, "\"{text}\" is neither \"dn\" nor a matching rule in its place")
            }
            FilterFault::BadEscape => f.write_str("'\\' must be followed by two hexadecimal digits"),
            FilterFault::UnescapedParenthesis => {
                f.write_str("a parenthesis within a value is written \\28 or \\29")
            }
            FilterFault::UnexpectedAsterisk => f.write_str("an asterisk within a value is written \\2a"),
            FilterFault::TooDeep(limit) => write!(f, "nested deeper than {limit}"),
        }
    }
}

impl std::error::Error for FilterSyntaxError {}
