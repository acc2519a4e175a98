//! Directives that come from the program itself: those of flags and defaults, and those of the bundled schema files.

use std::sync::Arc;

use larix_engine::access::Quoting;

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::diagnostic::{ConfigError, Origin};
use super::super::line;
use super::super::model::SchemaSection;
use super::super::settings::Settings;
use super::by_keyword;

impl Builder {
    /// Applies a directive given by its keyword and words, as flags and defaults do.
    pub(crate) fn run(&mut self, keyword: &str, arguments: &[&str]) -> Result<(), Fault> {
        let Some(directive) = by_keyword(keyword, &self.context()) else {
            return Err(Fault::keyword("not known here"));
        };
        let text = line::join(arguments.iter().copied());
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let bytes = arguments.first().map(|word| word.as_bytes().to_vec()).unwrap_or_default();
        self.apply(&Call {
            directive,
            arguments: &arguments,
            text: &text,
            quoting: Quoting::Ldif,
            bytes: &bytes,
            origin: &Origin::BuiltIn,
        })
    }

    /// Adds a bundled schema as if its file were included.
    pub(crate) fn bundled(&mut self, name: &str) -> Result<(), ConfigError> {
        let fail =
            |message: String| ConfigError::new(Origin::BuiltIn, format!("bundled schema {name}: {message}"));
        let text =
            larix_schema::bundled(name).ok_or_else(|| fail("there is none of this name".to_owned()))?;
        let section = SchemaSection { name: name.to_owned(), settings: Settings::default() };
        self.schema_sections.push(Arc::new(section));
        let outer = self.schema_section.replace(self.schema_sections.len() - 1);
        let file = self.conf_file.take();
        let defined = self.bundled_lines(text, &fail);
        self.conf_file = file;
        self.schema_section = outer;
        defined
    }

    fn bundled_lines(&mut self, text: &str, fail: &dyn Fn(String) -> ConfigError) -> Result<(), ConfigError> {
        for line in line::logical_lines(text) {
            let (keyword, rest) = line.text.split_once([' ', '\t']).unwrap_or((&line.text, ""));
            let words: Vec<String> = line::words(rest).0.into_iter().map(|word| word.text).collect();
            let Some(directive) = by_keyword(keyword, &self.context()) else {
                return Err(fail(format!("unknown directive `{keyword}`")));
            };
            let call = Call {
                directive,
                arguments: &words,
                text: rest.trim(),
                quoting: Quoting::Configuration,
                bytes: b"",
                origin: &Origin::BuiltIn,
            };
            self.apply(&call).map_err(|fault| {
                let mut error = fail(format!("line {}: {}", line.number, fault.message));
                error.help = fault.help;
                error
            })?;
        }
        Ok(())
    }
}
