//! Descriptions of schema elements as text (RFC 4512 §4.1) before any name in them is looked up.

mod file;
mod lexer;

pub(crate) use file::strip_ordering_prefix;
pub use file::{Directive, DirectiveKind, directives, ldif_directives};

use std::borrow::Cow;

use crate::error::SchemaError;
use crate::model::{ClassKind, Extensions, Usage};
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
        description(text, |field, lexer| {
            match field {
                Field::Oid(oid) => definition.oid = oid,
                Field::Extension(name, values) => definition.extensions.push(name, values),
                Field::Keyword(keyword) => return definition.clause(keyword, lexer),
            }
            Ok(true)
        })?;
        Ok(definition)
    }

    fn clause(&mut self, keyword: &str, lexer: &mut Lexer<'_>) -> Result<bool, SchemaError> {
        match keyword {
            "NAME" => self.names = lexer.strings("a name")?,
            "DESC" => self.description = Some(lexer.string("a description")?),
            "OBSOLETE" => self.obsolete = true,
            "SUP" => self.superior = Some(lexer.word("an attribute type")?.to_owned()),
            "EQUALITY" => self.equality = Some(lexer.word("a matching rule")?.to_owned()),
            "ORDERING" => self.ordering = Some(lexer.word("a matching rule")?.to_owned()),
            "SUBSTR" => self.substring = Some(lexer.word("a matching rule")?.to_owned()),
            "SYNTAX" => {
                let (syntax, length) = split_length(lexer.word("a syntax")?);
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
        description(text, |field, lexer| {
            match field {
                Field::Oid(oid) => definition.oid = oid,
                Field::Extension(name, values) => definition.extensions.push(name, values),
                Field::Keyword("NAME") => definition.names = lexer.strings("a name")?,
                Field::Keyword("DESC") => definition.description = Some(lexer.string("a description")?),
                Field::Keyword("OBSOLETE") => definition.obsolete = true,
                Field::Keyword("SUP") => definition.superiors = lexer.oids("an object class")?,
                Field::Keyword("ABSTRACT") => definition.kind = ClassKind::Abstract,
                Field::Keyword("STRUCTURAL") => definition.kind = ClassKind::Structural,
                Field::Keyword("AUXILIARY") => definition.kind = ClassKind::Auxiliary,
                Field::Keyword("MUST") => definition.must = lexer.oids("an attribute type")?,
                Field::Keyword("MAY") => definition.may = lexer.oids("an attribute type")?,
                Field::Keyword(_) => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(definition)
    }
}

impl SyntaxDefinition {
    /// Parses `( oid DESC ... )`.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let mut definition = Self::default();
        description(text, |field, lexer| {
            match field {
                Field::Oid(oid) => definition.oid = oid,
                Field::Extension(name, values) => definition.extensions.push(name, values),
                Field::Keyword("NAME") => definition.names = lexer.strings("a name")?,
                Field::Keyword("DESC") => definition.description = Some(lexer.string("a description")?),
                Field::Keyword(_) => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(definition)
    }
}

impl ContentRuleDefinition {
    /// Parses `( oid NAME ... AUX ... NOT ... )`.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let mut definition = Self::default();
        description(text, |field, lexer| {
            match field {
                Field::Oid(oid) => definition.oid = oid,
                Field::Extension(name, values) => definition.extensions.push(name, values),
                Field::Keyword("NAME") => definition.names = lexer.strings("a name")?,
                Field::Keyword("DESC") => definition.description = Some(lexer.string("a description")?),
                Field::Keyword("OBSOLETE") => definition.obsolete = true,
                Field::Keyword("AUX") => definition.auxiliary = lexer.oids("an object class")?,
                Field::Keyword("MUST") => definition.must = lexer.oids("an attribute type")?,
                Field::Keyword("MAY") => definition.may = lexer.oids("an attribute type")?,
                Field::Keyword("NOT") => definition.not = lexer.oids("an attribute type")?,
                Field::Keyword(_) => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(definition)
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

enum Field<'k> {
    Oid(String),
    Keyword(&'k str),
    Extension(String, Vec<String>),
}

/// The frame that all descriptions share. `take` stores one field and answers whether it knew the keyword.
fn description(
    text: &str,
    mut take: impl FnMut(Field<'_>, &mut Lexer<'_>) -> Result<bool, SchemaError>,
) -> Result<(), SchemaError> {
    let mut lexer = Lexer::new(text);
    lexer.expect(Token::Open, "an opening parenthesis")?;
    let oid = lexer.word("an OID")?;
    take(Field::Oid(oid.to_owned()), &mut lexer)?;
    loop {
        let at = lexer.clone();
        let word = match lexer.next()? {
            Token::Close => break,
            Token::Word(word) => word,
            _ => return Err(at.error("a keyword or a closing parenthesis")),
        };
        if word.len() > 2 && word.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("X-")) {
            let values = lexer.strings("a string")?;
            take(Field::Extension(word.to_owned(), values), &mut lexer)?;
        } else if !take(Field::Keyword(&upper_case(word)), &mut lexer)? {
            return Err(at.error("a known keyword"));
        }
    }
    // OpenLDAP does not look at what follows; closing parentheses too many are the slip that occurs.
    while lexer.peek()? == Token::Close {
        lexer.next()?;
    }
    lexer.expect(Token::End, "nothing after the closing parenthesis")
}

/// Keywords are nearly always written in upper case.
fn upper_case(word: &str) -> Cow<'_, str> {
    if word.bytes().any(|b| b.is_ascii_lowercase()) {
        Cow::Owned(word.to_ascii_uppercase())
    } else {
        Cow::Borrowed(word)
    }
}

fn split_length(word: &str) -> (&str, Option<u32>) {
    let Some((syntax, rest)) = word.split_once('{') else { return (word, None) };
    (syntax, rest.strip_suffix('}').and_then(|digits| digits.parse().ok()))
}

#[cfg(test)]
mod tests;
