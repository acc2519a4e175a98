//! Descriptions of schema elements as text (RFC 4512 §4.1) before any name in them is looked up.

mod file;
mod lexer;

pub(crate) use file::strip_ordering_prefix;
pub use file::{Directive, DirectiveKind, directives};

use std::borrow::Cow;

use crate::clauses::Extensions;
use crate::error::SchemaError;
use crate::model::{ClassKind, Usage};
use lexer::{Lexer, Token};

/// AttributeTypeDescription, RFC 4512 §4.1.2.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AttributeTypeDefinition {
    pub oid: String,
    pub names: Vec<String>,
    pub description: Option<String>,
    pub obsolete: bool,
    pub superior: Option<String>,
    pub equality: Option<String>,
    pub ordering: Option<String>,
    pub substring: Option<String>,
    pub syntax: Option<String>,
    /// The upper bound in braces after the syntax; never enforced (RFC 4512 §4.1.2).
    pub syntax_length: Option<u32>,
    pub single_value: bool,
    pub collective: bool,
    pub no_user_modification: bool,
    pub usage: Usage,
    pub extensions: Extensions,
}

/// ObjectClassDescription, RFC 4512 §4.1.1.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObjectClassDefinition {
    pub oid: String,
    pub names: Vec<String>,
    pub description: Option<String>,
    pub obsolete: bool,
    pub superiors: Vec<String>,
    pub kind: ClassKind,
    pub must: Vec<String>,
    pub may: Vec<String>,
    pub extensions: Extensions,
}

/// SyntaxDescription, RFC 4512 §4.1.5.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SyntaxDefinition {
    pub oid: String,
    /// Not in the RFC, but in files written for OpenLDAP.
    pub names: Vec<String>,
    pub description: Option<String>,
    pub extensions: Extensions,
}

/// DITContentRuleDescription, RFC 4512 §4.1.6.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ContentRuleDefinition {
    pub oid: String,
    pub names: Vec<String>,
    pub description: Option<String>,
    pub obsolete: bool,
    pub auxiliary: Vec<String>,
    pub must: Vec<String>,
    pub may: Vec<String>,
    pub not: Vec<String>,
    pub extensions: Extensions,
}

impl AttributeTypeDefinition {
    /// Parses `( oid NAME ... )`. Clauses may come in any order.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let mut definition = Self::default();
        let Heading { oid, names, description, extensions } =
            read(text, |keyword, lexer| definition.clause(keyword, lexer))?;
        Ok(Self { oid, names, description, extensions, ..definition })
    }

    fn clause(&mut self, keyword: &str, lexer: &mut Lexer<'_>) -> Result<bool, SchemaError> {
        match keyword {
            "OBSOLETE" => self.obsolete = true,
            "SUP" => self.superior = Some(lexer.word("an attribute type")?.to_owned()),
            "EQUALITY" => self.equality = Some(lexer.word("a matching rule")?.to_owned()),
            "ORDERING" => self.ordering = Some(lexer.word("a matching rule")?.to_owned()),
            "SUBSTR" => self.substring = Some(lexer.word("a matching rule")?.to_owned()),
            "SYNTAX" => {
                let at = lexer.clone();
                let (syntax, length) = split_length(lexer.word("a syntax")?)
                    .ok_or_else(|| at.error("a syntax with nothing but a number in braces behind it"))?;
                self.syntax = Some(syntax.to_owned());
                self.syntax_length = length;
            }
            "SINGLE-VALUE" => self.single_value = true,
            "COLLECTIVE" => self.collective = true,
            "NO-USER-MODIFICATION" => self.no_user_modification = true,
            "USAGE" => {
                let at = lexer.clone();
                self.usage = match lexer.word("a usage")?.to_ascii_lowercase().as_str() {
                    "userapplications" => Usage::UserApplications,
                    "directoryoperation" => Usage::DirectoryOperation,
                    "distributedoperation" => Usage::DistributedOperation,
                    "dsaoperation" => Usage::DsaOperation,
                    _ => return Err(at.error("userApplications, directoryOperation, ...")),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl ObjectClassDefinition {
    /// Parses `( oid NAME ... )`. Clauses may come in any order.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let mut definition = Self::default();
        let Heading { oid, names, description, extensions } = read(text, |keyword, lexer| {
            match keyword {
                "OBSOLETE" => definition.obsolete = true,
                "SUP" => definition.superiors = lexer.oids("an object class")?,
                "ABSTRACT" => definition.kind = ClassKind::Abstract,
                "STRUCTURAL" => definition.kind = ClassKind::Structural,
                "AUXILIARY" => definition.kind = ClassKind::Auxiliary,
                "MUST" => definition.must = lexer.oids("an attribute type")?,
                "MAY" => definition.may = lexer.oids("an attribute type")?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { oid, names, description, extensions, ..definition })
    }
}

impl SyntaxDefinition {
    /// Parses `( oid DESC ... )`.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let Heading { oid, names, description, extensions } = read(text, |_, _| Ok(false))?;
        Ok(Self { oid, names, description, extensions })
    }
}

impl ContentRuleDefinition {
    /// Parses `( oid NAME ... AUX ... NOT ... )`.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let mut definition = Self::default();
        let Heading { oid, names, description, extensions } = read(text, |keyword, lexer| {
            match keyword {
                "OBSOLETE" => definition.obsolete = true,
                "AUX" => definition.auxiliary = lexer.oids("an object class")?,
                "MUST" => definition.must = lexer.oids("an attribute type")?,
                "MAY" => definition.may = lexer.oids("an attribute type")?,
                "NOT" => definition.not = lexer.oids("an attribute type")?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { oid, names, description, extensions, ..definition })
    }
}

/// Whether the text has the frame of a description: an OID or number and words, strings and lists in parentheses.
pub(crate) fn is_description(text: &str) -> bool {
    let check = || {
        let mut lexer = Lexer::new(text);
        lexer.expect(Token::Open, "an opening parenthesis")?;
        let first = lexer.word("an OID")?;
        let mut depth = 1_usize;
        while depth > 0 {
            match lexer.next()? {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                Token::End => return Err(lexer.error("a closing parenthesis")),
                Token::Dollar | Token::Quoted(_) | Token::Word(_) => {}
            }
        }
        lexer.expect(Token::End, "nothing after the closing parenthesis")?;
        Ok::<_, SchemaError>(first.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    check().unwrap_or(false)
}

/// What every kind of description has.
#[derive(Default)]
struct Heading {
    oid: String,
    names: Vec<String>,
    description: Option<String>,
    extensions: Extensions,
}

/// Reads a description: what all kinds have goes into the heading, the rest to `take`, which answers whether it knew the
/// keyword.
fn read(
    text: &str,
    mut take: impl FnMut(&str, &mut Lexer<'_>) -> Result<bool, SchemaError>,
) -> Result<Heading, SchemaError> {
    let mut lexer = Lexer::new(text);
    lexer.expect(Token::Open, "an opening parenthesis")?;
    let mut heading = Heading { oid: lexer.oid("an OID")?.to_owned(), ..Heading::default() };
    let mut given: Vec<Cow<'_, str>> = Vec::new();
    loop {
        let at = lexer.clone();
        let word = match lexer.next()? {
            Token::Close => break,
            Token::Word(word) => word,
            _ => return Err(at.error("a keyword or a closing parenthesis")),
        };
        let keyword = upper_case(word);
        if given.iter().any(|earlier| is_same_clause(earlier, &keyword)) {
            return Err(at.error("each keyword once"));
        }
        match &*keyword {
            "NAME" => heading.names = lexer.strings("a name")?,
            "DESC" => heading.description = Some(lexer.string("a description")?),
            extension if extension.starts_with("X-") && extension.len() > 2 => {
                heading.extensions.push(word.to_owned(), lexer.strings("a string")?);
                continue;
            }
            other if take(other, &mut lexer)? => {}
            _ => return Err(at.error("a known keyword")),
        }
        given.push(keyword);
    }
    // OpenLDAP does not look at what follows; closing parentheses too many are the slip that occurs.
    while lexer.peek()? == Token::Close {
        lexer.next()?;
    }
    lexer.expect(Token::End, "nothing after the closing parenthesis")?;
    Ok(heading)
}

/// Keywords are nearly always written in upper case.
fn upper_case(word: &str) -> Cow<'_, str> {
    if word.bytes().any(|b| b.is_ascii_lowercase()) {
        Cow::Owned(word.to_ascii_uppercase())
    } else {
        Cow::Borrowed(word)
    }
}

/// Whether a description that has one keyword cannot have the other as well: none comes twice, and a class is of one kind.
fn is_same_clause(one: &str, other: &str) -> bool {
    let is_kind = |keyword: &str| matches!(keyword, "ABSTRACT" | "STRUCTURAL" | "AUXILIARY");
    one == other || (is_kind(one) && is_kind(other))
}

/// A syntax and the upper bound in braces behind it (`noidlen`, RFC 4512 §4.1.2). Empty braces are none, as in OpenLDAP, and so is a bound
/// beyond 32 bits.
fn split_length(word: &str) -> Option<(&str, Option<u32>)> {
    let Some((syntax, rest)) = word.split_once('{') else { return Some((word, None)) };
    let digits = rest.strip_suffix('}').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    Some((syntax, digits.parse().ok()))
}

#[cfg(test)]
mod tests;
