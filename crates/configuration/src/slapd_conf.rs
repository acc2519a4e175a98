//! Reading slapd.conf and what it includes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_engine::access::Quoting;

use super::builder::call::{At, Call, Fault};
use super::builder::directive::{Directive, Form, Scope};
use super::builder::{Builder, ConfFile, Section, schema_section_name};
use super::conf_file::{FileText, MAX_INCLUDE_DEPTH};
use super::diagnostic::{ConfigError, Origin};
use super::directives::{self};
use super::line::{self, LogicalLine, UnterminatedQuote, Word};
use super::model::{Config, Source};

/// So many faults of a file are shown.
const FAULTS_MAX: usize = 20;

/// Reads a file and all it includes.
///
/// # Errors
/// All faults that do not follow from another one, up to [`FAULTS_MAX`].
pub(super) fn read(path: &Path) -> Result<Config, ConfigError> {
    let mut reader = Reader::new(Builder::new(false), None);
    reader.file(path, None)?;
    ConfigError::together(reader.faults)?;
    reader.builder.define_awaited()?;
    super::validate::complete(reader.builder.finish(Source::File(path.to_owned())))
}

/// Reads lines that are in no file, and include none; `name` stands for the file in errors.
#[cfg(feature = "kv")]
pub(super) fn read_lines(name: &str, text: String) -> Result<Config, ConfigError> {
    let mut reader = Reader::new(Builder::new(false), None);
    let (path, file) = (PathBuf::from(name), FileText::of(Path::new(name), &text));
    let section_name = "shared".to_owned();
    reader.builder.conf_file = Some(ConfFile { section_name, has_sections: false, section: None });
    for logical in line::logical_lines(&text) {
        let keyword = line::words(&logical.text).0.into_iter().next();
        if let Some(keyword) = keyword.filter(|keyword| keyword.text.eq_ignore_ascii_case("include")) {
            let message = "files of this machine cannot be included here".to_owned();
            return Err(file.error(&logical, keyword.start..keyword.end, message, None));
        }
        reader.line(&file, &logical)?;
    }
    reader.builder.define_awaited()?;
    super::validate::complete(reader.builder.finish(Source::File(path)))
}

/// What `larix serve --suffix` says of its database itself, and where somebody else says it.
const OWN: [(&str, &str); 4] = [
    ("olcSuffix", "--suffix names it; a further suffix is a database added to cn=config later"),
    ("olcDbDirectory", "--data names it"),
    ("olcRootDN", "it is cn=admin below the suffix"),
    ("olcRootPW", "--admin-password-file names a file with the password"),
];

/// Reads files with lines for the database that the builder has last, such as `overlay`, `index` and `schema`.
///
/// # Errors
/// As for a whole slapd.conf; a line that begins another section, or that says what flags say.
pub(super) fn read_more(builder: Builder, files: &[PathBuf]) -> Result<Builder, ConfigError> {
    let (section, databases) = (builder.section, builder.databases.len());
    let mut reader = Reader::new(builder, Some(databases));
    for file in files {
        reader.file(file, None)?;
        ConfigError::together(std::mem::take(&mut reader.faults))?;
        let is_same = match (section, reader.builder.section) {
            (Section::Database(before), Section::Below { database, .. }) => database == Some(before),
            (before, now) => before == now,
        };
        // The file may end in a section below an overlay.
        reader.builder.section = section;
        if !is_same || reader.builder.databases.len() != databases {
            let message = format!("`{}` begins another section", file.display());
            let help = "leave lines for one database in it; a further database is added to cn=config later";
            return Err(ConfigError::new(Origin::BuiltIn, message).with_help(help));
        }
    }
    reader.builder.define_awaited()?;
    Ok(reader.builder)
}

struct Reader {
    builder: Builder,
    /// The files being read, outermost first.
    open: Vec<PathBuf>,
    /// So many databases there are where the last of them is that of `larix serve --suffix`, which has said some things of it.
    quick_start: Option<usize>,
    /// What was wrong so far.
    faults: Vec<ConfigError>,
    after: After,
}

/// Which lines behind a fault say nothing about themselves.
#[derive(Debug, Default)]
struct After {
    /// All lines up to the next `database`: it is not known what they set.
    section: bool,
    /// Lines whose keyword is not known, up to the next section or overlay.
    overlay: bool,
    /// Those that name something of the schema.
    schema: bool,
}

impl Reader {
    fn new(builder: Builder, quick_start: Option<usize>) -> Self {
        Self { builder, open: Vec::new(), quick_start, faults: Vec::new(), after: After::default() }
    }

    /// Reads one file; `from` is the word of the `include` that named it.
    fn file(&mut self, path: &Path, from: Option<ConfigError>) -> Result<(), ConfigError> {
        let fail = |message: String, help: &str| match from.clone() {
            Some(mut error) => {
                error.message = message;
                error.help = Some(help.to_owned());
                error
            }
            None => ConfigError::new(Origin::BuiltIn, message).with_help(help),
        };
        if self.open.iter().any(|open| open == path) {
            return Err(fail(format!("`{}` includes itself", path.display()), "take the circle out"));
        }
        if self.open.len() >= MAX_INCLUDE_DEPTH {
            return Err(fail(
                format!("more than {MAX_INCLUDE_DEPTH} files include one another"),
                "include fewer levels",
            ));
        }
        let (text_of, text) = FileText::read(path, !self.open.is_empty(), &fail)?;
        let section_name = schema_section_name(path);
        let own = ConfFile { section_name, has_sections: !self.open.is_empty(), section: None };
        let outer = self.builder.conf_file.replace(own);
        self.open.push(path.to_owned());
        for logical in line::logical_lines(&text) {
            if self.faults.len() >= FAULTS_MAX || !self.line_or_fault(&text_of, &logical) {
                break;
            }
        }
        self.open.pop();
        self.builder.conf_file = outer;
        Ok(())
    }

    /// Reads a line, and keeps what is wrong with it unless an earlier fault may be the cause. Answers whether the file may be
    /// read on.
    fn line_or_fault(&mut self, file: &FileText, logical: &LogicalLine) -> bool {
        let keyword = logical.text.split([' ', '\t']).find(|word| !word.is_empty()).unwrap_or_default();
        let is = |name: &str| keyword.eq_ignore_ascii_case(name);
        if is("database") {
            self.after.section = false;
        }
        if is("database") || is("overlay") {
            self.after.overlay = false;
        }
        if self.after.section {
            return true;
        }
        let Err(fault) = self.line(file, logical) else { return true };
        let directive = directives::by_keyword(keyword, &self.builder.context());
        let scope = directive.map(|directive| directive.scope);
        let follows = match scope {
            None => self.after.overlay,
            Some(Scope::Structure | Scope::Global | Scope::GlobalFirst | Scope::Module) => false,
            Some(_) => self.after.schema,
        };
        if !follows {
            self.faults.push(fault);
        }
        self.after.section |= is("database") || is("backend");
        self.after.overlay |= is("overlay");
        // A line that nobody knows may be a definition, if it is in a file of them or looks like one.
        let is_unknown = scope.is_none() && (self.open.len() > 1 || logical.text.contains('('));
        let defines = is("include") || is("schema") || is("attributeoptions") || is_unknown;
        self.after.schema |= defines || scope == Some(Scope::Schema);
        // LDIF: no other line of it is one of slapd.conf either.
        !keyword.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("dn:"))
    }

    fn line(&mut self, file: &FileText, logical: &LogicalLine) -> Result<(), ConfigError> {
        let (words, unterminated) = line::words(&logical.text);
        let all = &words;
        let Some((keyword, words)) = words.split_first() else { return Ok(()) };
        let Some(directive) = directives::by_keyword(&keyword.text, &self.builder.context()) else {
            return Err(self.unknown(file, logical, keyword));
        };
        if let Some(UnterminatedQuote(at)) = unterminated.filter(|_| !is_raw(directive)) {
            return Err(file.error(logical, at..at + 1, "a quote that does not end".to_owned(), None));
        }
        if self.quick_start == Some(self.builder.databases.len())
            && matches!(directive.scope, Scope::Database | Scope::Kind(_))
            && let Some((_, remedy)) = OWN.iter().find(|(attribute, _)| *attribute == directive.attribute)
        {
            let message = format!("`{}` is not possible here", keyword.text);
            let help = format!("take the line out: {remedy}");
            return Err(file.error(logical, keyword.start..keyword.end, message, Some(help)));
        }
        let origin = Origin::Line { file: Arc::clone(&file.path), line: logical.number };
        if directive.scope == Scope::Structure && directive.keyword == "include" {
            return self.include(file, logical, words, keyword);
        }
        if matches!(directive.keyword, "database" | "overlay" | "backend") {
            self.builder.define_awaited()?;
        }
        let words = if directive.form == Form::Command { all } else { words };
        let arguments: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
        let (text, text_start) = rest(logical, keyword);
        let bytes = arguments.first().map(|word| word.as_bytes().to_vec()).unwrap_or_default();
        let call = Call {
            directive,
            arguments: &arguments,
            text,
            quoting: Quoting::Configuration,
            bytes: &bytes,
            origin: &origin,
        };
        self.builder.apply(&call).map_err(|fault| {
            let span = match fault.at {
                At::Keyword => keyword.start..keyword.end,
                At::Argument(number) => match words.get(number) {
                    Some(word) => word.start..word.end,
                    None => keyword.start..keyword.end,
                },
                At::Text(offset) => word_at(text_start + offset, words, logical),
            };
            let Fault { message, help, .. } = fault;
            let help = continued_directive(logical, span.start, words).or(help);
            file.error(logical, span, message, help)
        })
    }

    fn include(
        &mut self,
        file: &FileText,
        logical: &LogicalLine,
        words: &[Word],
        keyword: &Word,
    ) -> Result<(), ConfigError> {
        let [name] = words else {
            let span = words.get(1).map_or(keyword.start..keyword.end, |word| word.start..word.end);
            return Err(file.error(logical, span, "`include` takes one file name".to_owned(), None));
        };
        let path = PathBuf::from(&name.text);
        if path.file_name().is_some_and(|file| file == "ppolicy.schema") && !path.exists() {
            let origin = Origin::Line { file: Arc::clone(&file.path), line: logical.number };
            self.builder.notes.push(origin, "`include ppolicy.schema` has no effect: the schema is built in");
            return Ok(());
        }
        let from = file.error(logical, name.start..name.end, String::new(), None);
        let here = Origin::Line { file: Arc::clone(&file.path), line: logical.number };
        let before = self.faults.len();
        let read = self.file(&path, Some(from)).map_err(|mut error| {
            if error.origin != here {
                error.included_from.push(here.clone());
            }
            error
        });
        self.faults.iter_mut().skip(before).for_each(|fault| fault.included_from.push(here.clone()));
        read
    }

    fn unknown(&self, file: &FileText, logical: &LogicalLine, keyword: &Word) -> ConfigError {
        let other_place =
            directives::all().find(|directive| directive.keyword.eq_ignore_ascii_case(&keyword.text));
        let (message, help) = match other_place {
            Some(directive) => (
                format!("`{}` is not possible here", keyword.text),
                Some(match directive.scope {
                    Scope::Overlay(name) => format!("it belongs after `overlay {name}`"),
                    Scope::Kind(_) => {
                        let kinds = kinds_of(&keyword.text).join("` or `database ");
                        format!("it belongs into a `database {kinds}` section")
                    }
                    Scope::Balancer(_) => "it belongs behind `backend lload`".to_owned(),
                    Scope::Backend => "it belongs into a `backend` section".to_owned(),
                    _ => "it belongs to a database kind that is not supported".to_owned(),
                }),
            ),
            None => (
                format!("unknown directive `{}`", keyword.text),
                no_line(&keyword.text, &file.path).or_else(|| removed(&keyword.text)).or_else(|| {
                    directives::suggestion(&keyword.text, false)
                        .map(|known| format!("did you mean `{known}`?"))
                }),
            ),
        };
        file.error(logical, keyword.start..keyword.end, message, help)
    }
}

/// The kinds of databases that have the keyword.
fn kinds_of(keyword: &str) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for directive in directives::all().filter(|directive| directive.keyword.eq_ignore_ascii_case(keyword)) {
        if let Scope::Kind(kind) = directive.scope
            && !kinds.contains(&kind)
        {
            kinds.push(kind);
        }
    }
    kinds
}

/// What to do about the first word of a line that is no directive, where the word says what the line is.
fn no_line(word: &str, file: &Path) -> Option<String> {
    if word.eq_ignore_ascii_case("by") {
        return Some("begin the line with a blank: it continues the rule above".to_owned());
    }
    if !word.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("dn:")) {
        return None;
    }
    Some(if file.extension().is_some_and(|extension| extension == "ldif") {
        format!("this is LDIF: include {}", file.with_extension("schema").display())
    } else {
        "this is LDIF, and no line of slapd.conf".to_owned()
    })
}

/// What to do about a keyword that slapd had once.
fn removed(word: &str) -> Option<String> {
    const REMOVED: [(&str, &str); 6] = [
        ("schemacheck", "take the line out: entries are always checked"),
        ("defaultaccess", "write a rule in its place, such as `access to * by * read`"),
        ("suffixAlias", "take the line out, or serve the other name with `database relay`"),
        ("dbnolocking", "take the line out: a setting of the retired LDBM engine"),
        ("dbsync", "take the line out: a setting of the retired LDBM engine"),
        ("dbcachenowsync", "take the line out: a setting of the retired LDBM engine"),
    ];
    let found = REMOVED.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word));
    found.map(|(_, remedy)| (*remedy).to_owned())
}

/// What to do about an argument at the beginning of a physical line that is a comment, or the keyword of a directive.
fn continued_directive(logical: &LogicalLine, start: usize, words: &[Word]) -> Option<String> {
    let at = words.iter().position(|word| word.start == start)?;
    let word = words.get(at)?;
    let line_of = |word: &Word| logical.position(word.start).line;
    let before = at.checked_sub(1).and_then(|before| words.get(before));
    let begins_a_line =
        line_of(word) > logical.number && before.is_none_or(|before| line_of(before) < line_of(word));
    let is_directive = directives::all().any(|directive| directive.keyword.eq_ignore_ascii_case(&word.text));
    let remedy = match (word.text.starts_with('#'), is_directive) {
        (true, _) => "a comment cannot stand within a rule: put it above, without a blank before it",
        (false, true) => "a line that begins with a blank continues the one above: take the blank away",
        (false, false) => return None,
    };
    begins_a_line.then(|| remedy.to_owned())
}

/// Definitions are read as written, so a lone quote in them is no matter for the words.
fn is_raw(directive: &Directive) -> bool {
    directive.form == Form::Rest
}

/// What follows the keyword, and its offset.
fn rest<'a>(logical: &'a LogicalLine, keyword: &Word) -> (&'a str, usize) {
    let rest = logical.text.get(keyword.end..).unwrap_or_default();
    let text = rest.trim_start();
    (text.trim_end(), keyword.end + rest.len() - text.len())
}

/// The word around an offset, or the offset itself.
fn word_at(offset: usize, words: &[Word], logical: &LogicalLine) -> std::ops::Range<usize> {
    match words.iter().find(|word| word.start <= offset && offset < word.end) {
        Some(word) => offset..word.end,
        None => {
            let end = logical.text.len();
            offset.min(end)..(offset + 1).min(end)
        }
    }
}
