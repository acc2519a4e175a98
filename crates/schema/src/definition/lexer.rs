//! Tokens of RFC 4512 §4.1 descriptions, read as liberally as OpenLDAP reads them: quotes around names and OIDs are
//! optional, and spaces may be missing or doubled.

use crate::error::{SchemaError, SchemaErrorKind};

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    Dollar,
    /// A bare word: keyword, OID, descriptor, macro.
    Word(&'a str),
    /// What stands between apostrophes, with its escapes as they are.
    Quoted(&'a str),
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, SchemaError> {
        self.skip_space();
        let rest = self.rest();
        let Some(first) = rest.bytes().next() else { return Ok(Token::End) };
        let (token, length) = match first {
            b'(' => (Token::Open, 1),
            b')' => (Token::Close, 1),
            b'$' => (Token::Dollar, 1),
            b'\'' => {
                let inner = rest.get(1..).unwrap_or_default();
                let Some(end) = inner.find('\'') else {
                    return Err(self.error("a closing apostrophe"));
                };
                (Token::Quoted(inner.get(..end).unwrap_or_default()), end + 2)
            }
            _ => {
                let end = rest.find(|c: char| c.is_ascii_whitespace() || "()$'".contains(c));
                let end = end.unwrap_or(rest.len());
                (Token::Word(rest.get(..end).unwrap_or_default()), end)
            }
        };
        self.position += length;
        Ok(token)
    }

    pub(super) fn peek(&self) -> Result<Token<'a>, SchemaError> {
        self.clone().next()
    }

    /// The error "expected ... here", here being the next token.
    pub(super) fn error(&self, expected: &'static str) -> SchemaError {
        let mut here = self.clone();
        here.skip_space();
        let found = match here.rest().split_ascii_whitespace().next() {
            Some(word) => format!("\"{}\"", word.chars().take(40).collect::<String>()),
            None => "the end".to_owned(),
        };
        SchemaErrorKind::Text { position: here.position, expected, found }.into()
    }

    pub(super) fn expect(&mut self, token: Token<'_>, name: &'static str) -> Result<(), SchemaError> {
        if self.peek()? != token {
            return Err(self.error(name));
        }
        self.next().map(|_| ())
    }

    /// A word or a quoted string.
    pub(super) fn word(&mut self, name: &'static str) -> Result<&'a str, SchemaError> {
        match self.peek()? {
            Token::Word(word) | Token::Quoted(word) if !word.is_empty() => {
                self.next()?;
                Ok(word)
            }
            _ => Err(self.error(name)),
        }
    }

    /// The OID of a description. A bare number ends where its digits and dots do, as in OpenLDAP: folded LDIF
    /// swallows the space before the next keyword (`1.2.3NAME 'x'`).
    pub(super) fn oid(&mut self, name: &'static str) -> Result<&'a str, SchemaError> {
        let start = self.clone();
        let word = self.word(name)?;
        let number = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        match word.split_at(number) {
            (number, keyword)
                if start.peek()? == Token::Word(word)
                    && !number.is_empty()
                    && keyword.starts_with(|c: char| c.is_ascii_alphabetic()) =>
            {
                self.position -= keyword.len();
                Ok(number)
            }
            _ => Ok(word),
        }
    }

    /// A quoted string, which may be empty; a bare word is taken, too.
    pub(super) fn string(&mut self, name: &'static str) -> Result<String, SchemaError> {
        match self.peek()? {
            Token::Word(word) | Token::Quoted(word) => {
                self.next()?;
                Ok(word.to_owned())
            }
            _ => Err(self.error(name)),
        }
    }

    /// qdescrs and qdstrings: one string, or several in parentheses.
    pub(super) fn strings(&mut self, name: &'static str) -> Result<Vec<String>, SchemaError> {
        if self.peek()? != Token::Open {
            return Ok(vec![self.string(name)?]);
        }
        self.next()?;
        let mut strings = Vec::new();
        while self.peek()? != Token::Close {
            strings.push(self.string(name)?);
        }
        self.next()?;
        Ok(strings)
    }

    /// oids: one OID, or several in parentheses with dollar signs between them.
    pub(super) fn oids(&mut self, name: &'static str) -> Result<Vec<String>, SchemaError> {
        if self.peek()? != Token::Open {
            return Ok(vec![self.word(name)?.to_owned()]);
        }
        self.next()?;
        let mut oids = Vec::new();
        loop {
            match self.peek()? {
                Token::Close => break,
                Token::Dollar => {
                    self.next()?;
                }
                _ => oids.push(self.word(name)?.to_owned()),
            }
        }
        self.next()?;
        Ok(oids)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_ascii_start().len();
    }
}
