//! One directive with its arguments, and the readers of single arguments.

use std::path::PathBuf;

use larix_engine::access::Quoting;
use larix_schema::Schema;

use super::super::diagnostic::Origin;
use super::super::line::c_integer;
use super::super::undefined::dn_remedy;
use super::super::values::ConfigDn;
use super::directive::Directive;

/// A directive as a handler sees it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) directive: &'static Directive,
    /// The arguments, without the keyword.
    pub(crate) arguments: &'a [String],
    /// What follows the keyword, as written.
    pub(crate) text: &'a str,
    /// How `text` quotes.
    pub(crate) quoting: Quoting,
    /// The value in bytes, for secrets and certificates.
    pub(crate) bytes: &'a [u8],
    pub(crate) origin: &'a Origin,
}

/// What a handler found wrong; the caller knows where that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: At,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// The part of the line that is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Keyword,
    /// The argument with this number, from 0.
    Argument(usize),
    /// A byte of [`Call::text`].
    Text(usize),
}

impl Fault {
    pub(crate) fn keyword(message: impl Into<String>) -> Self {
        Self { at: At::Keyword, message: message.into(), help: None }
    }

    pub(crate) fn argument(number: usize, message: impl Into<String>) -> Self {
        Self { at: At::Argument(number), message: message.into(), help: None }
    }

    pub(crate) fn text(offset: usize, message: impl Into<String>) -> Self {
        Self { at: At::Text(offset), message: message.into(), help: None }
    }

    /// The same of another argument.
    pub(crate) fn at(self, number: usize) -> Self {
        Self { at: At::Argument(number), ..self }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl<'a> Call<'a> {
    pub(crate) fn argument(&self, number: usize) -> Result<&'a str, Fault> {
        self.arguments
            .get(number)
            .map(String::as_str)
            .ok_or_else(|| Fault::keyword(format!("`{}` needs another argument", self.directive.keyword)))
    }

    pub(crate) fn path(&self, number: usize) -> Result<PathBuf, Fault> {
        self.argument(number).map(PathBuf::from)
    }

    /// The path of a file; none if the word is empty, which takes back an earlier line, as in slapd.
    pub(crate) fn path_or_none(&self, number: usize) -> Result<Option<PathBuf>, Fault> {
        Ok(self.text_or_none(number)?.map(PathBuf::from))
    }

    /// An argument; none if it is empty.
    pub(crate) fn text_or_none(&self, number: usize) -> Result<Option<String>, Fault> {
        let text = self.argument(number)?;
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// `on`, `true`, `yes` and their opposites. Without an argument: on.
    pub(crate) fn switch(&self) -> Result<bool, Fault> {
        let Some(word) = self.arguments.first() else { return Ok(true) };
        switch_word(word).ok_or_else(|| {
            Fault::argument(0, format!("`{word}` is neither on nor off"))
                .with_help("say on, true, yes, off, false or no")
        })
    }

    /// An integer as C reads it: decimal, 0x hexadecimal or 0 octal.
    pub(crate) fn integer(&self, number: usize) -> Result<i64, Fault> {
        let word = self.argument(number)?;
        c_integer(word).ok_or_else(|| Fault::argument(number, format!("`{word}` is not a number")))
    }

    /// A number that fits the type.
    pub(crate) fn number<T: TryFrom<i64>>(&self, number: usize) -> Result<T, Fault> {
        let value = self.integer(number)?;
        T::try_from(value).map_err(|_| Fault::argument(number, format!("{value} is out of range")))
    }

    /// What slapd takes as an `int` and means nothing below 0: such a number counts as 0, and is shown as it was given.
    pub(crate) fn int_from_zero(&self, number: usize) -> Result<u32, Fault> {
        let value: i32 = self.number(number)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// A number from 1 up.
    pub(crate) fn positive<T: TryFrom<i64>>(&self, number: usize) -> Result<T, Fault> {
        if self.integer(number)? < 1 {
            return Err(Fault::argument(number, "must be 1 or more"));
        }
        self.number(number)
    }

    pub(crate) fn dn(&self, schema: &Schema, number: usize) -> Result<ConfigDn, Fault> {
        let text = self.argument(number)?;
        let parsed = match self.quoting {
            Quoting::Configuration => ConfigDn::parse(schema, text),
            Quoting::Ldif => ConfigDn::parse_relaxed(schema, text),
        };
        parsed.map_err(|why| {
            let fault = Fault::argument(number, format!("`{text}` is not a DN: {why}"));
            match dn_remedy(text, &why) {
                Some(remedy) => fault.with_help(remedy),
                None => fault,
            }
        })
    }

    /// One of some words, matched without regard to case.
    pub(crate) fn choice<T: Copy>(&self, number: usize, choices: &[(&str, T)]) -> Result<T, Fault> {
        let word = self.argument(number)?;
        choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, value)| *value).ok_or_else(
            || {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                Fault::argument(number, format!("`{word}` is not known here"))
                    .with_help(format!("one of {}", names.join(", ")))
            },
        )
    }
}

pub(crate) fn switch_word(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" => Some(true),
        "off" | "false" | "no" => Some(false),
        _ => None,
    }
}
