//! The lines of a configuration file, with errors that show the word at fault. slapd.conf and `larix balance` read their files by this.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{ConfigError, Excerpt, Origin};
use super::line::{self, LogicalLine, UnterminatedQuote, Word};

/// Files that may include one another; more is a circle or as good as one.
pub(super) const MAX_INCLUDE_DEPTH: usize = 16;

/// One file's text, for excerpts.
pub(super) struct FileText {
    pub(super) path: Arc<PathBuf>,
    lines: Vec<String>,
}

/// What UTF-16 begins with.
const UTF_16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

impl FileText {
    /// Reads a file: its lines for excerpts, and its text. One that is included is a regular file; the first may be a pipe.
    /// `fail` makes an error of a message and its help.
    pub(super) fn read(
        path: &Path,
        is_included: bool,
        fail: &dyn Fn(String, &str) -> ConfigError,
    ) -> Result<(Self, String), ConfigError> {
        let bytes = if is_included { larix_files::read(path) } else { std::fs::read(path) };
        let bytes = bytes.map_err(|error| unreadable(path, &error, fail))?;
        // Without a mark, each letter has a NUL beside it.
        let is_utf_16 = UTF_16_MARKS.iter().any(|mark| bytes.starts_with(mark))
            || matches!(bytes.as_slice(), [0, letter, 0, ..] | [letter, 0, _, 0, ..] if letter.is_ascii_graphic());
        if is_utf_16 {
            let help = format!("save it as UTF-8, for example: iconv -f UTF-16 -t UTF-8 {}", path.display());
            return Err(fail(format!("`{}` is in UTF-16", path.display()), &help));
        }
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => without_foreign_comments(path, error.as_bytes())?,
        };
        // It is invisible where the first word is shown.
        if text.starts_with('\u{feff}') {
            let message = format!("`{}` begins with a byte order mark", path.display());
            return Err(fail(message, "save it as UTF-8 without one"));
        }
        Ok((Self::of(path, &text), text))
    }

    /// Of a text that is known.
    pub(super) fn of(path: &Path, text: &str) -> Self {
        Self { path: Arc::new(path.to_owned()), lines: text.lines().map(str::to_owned).collect() }
    }

    /// An error at a part of a logical line, shown in its physical line.
    pub(super) fn error(
        &self,
        logical: &LogicalLine,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) -> ConfigError {
        let position = logical.position(span.start);
        let text = usize::try_from(position.line)
            .ok()
            .and_then(|line| self.lines.get(line.checked_sub(1)?))
            .cloned()
            .unwrap_or_default();
        let width = logical.text.get(span).map_or(1, |word| word.chars().count());
        let width = width.min((text.chars().count() + 1).saturating_sub(position.column)).max(1);
        let origin = Origin::Line { file: Arc::clone(&self.path), line: position.line };
        let mut error =
            ConfigError::new(origin, message).with_excerpt(Excerpt { text, column: position.column, width });
        error.help = help;
        error
    }
}

/// Text whose comments alone are not UTF-8: nothing is read from them.
fn without_foreign_comments(path: &Path, bytes: &[u8]) -> Result<String, ConfigError> {
    let (mut is_comment, mut is_continued) = (false, false);
    for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1u32..) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let goes_on = is_continued || matches!(line.first(), Some(b' ' | b'\t'));
        is_comment = if goes_on { is_comment } else { line.starts_with(b"#") };
        is_continued = line.len() > 1 && line.ends_with(b"\\") && !line.ends_with(b"\\\\");
        let Err(error) = std::str::from_utf8(line) else { continue };
        if is_comment {
            continue;
        }
        let before = line.get(..error.valid_up_to()).unwrap_or_default();
        let column = String::from_utf8_lossy(before).chars().count() + 1;
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        let origin = Origin::Line { file: Arc::new(path.to_owned()), line: number };
        return Err(ConfigError::new(origin, "not UTF-8 text")
            .with_excerpt(Excerpt { text, column, width: 1 })
            .with_help(format!(
                "save it as UTF-8, for example: iconv -f ISO-8859-1 -t UTF-8 {}",
                path.display()
            )));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn unreadable(
    path: &Path,
    error: &std::io::Error,
    fail: &dyn Fn(String, &str) -> ConfigError,
) -> ConfigError {
    let name = path.display();
    match error.kind() {
        ErrorKind::NotFound => fail(format!("there is no file `{name}`"), &where_to_find(path)),
        ErrorKind::PermissionDenied => {
            fail(format!("`{name}` cannot be read: permission denied"), "let the server's user read it")
        }
        ErrorKind::IsADirectory => {
            fail(format!("`{name}` is a directory"), "name a file; a slapd.d directory is given with -F")
        }
        _ => fail(format!("`{name}` cannot be read: {error}"), "check the file"),
    }
}

/// What may be meant by a file that is not there.
fn where_to_find(path: &Path) -> String {
    let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if path.to_string_lossy().contains('*') {
        return "a `*` stands for no other names here: write an `include` line for each file".to_owned();
    }
    let schema = file_name.strip_suffix(".schema").or_else(|| file_name.strip_suffix(".ldif"));
    let place =
        if path.is_relative() { "a relative name starts at the working directory" } else { "check the path" };
    match schema.filter(|name| larix_schema::bundled(name).is_some()) {
        Some(name) => format!("{place}; `schema {name}` takes the one that comes with Larix"),
        None => place.to_owned(),
    }
}

/// A line of a file, cut into words.
pub struct ConfLine<'f> {
    file: &'f FileText,
    logical: &'f LogicalLine,
    keyword: Word,
    words: Vec<Word>,
    arguments: Vec<String>,
}

impl std::fmt::Debug for ConfLine<'_> {
    /// Without its arguments: there may be passwords in them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfLine").field("keyword", &self.keyword.text).finish_non_exhaustive()
    }
}

impl ConfLine<'_> {
    /// Its first word.
    pub fn keyword(&self) -> &str {
        &self.keyword.text
    }

    /// The words behind it.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// An error at an argument, counted from 0, or at the keyword.
    pub fn error(&self, argument: Option<usize>, message: impl Into<String>, help: &str) -> ConfigError {
        let word = argument.and_then(|number| self.words.get(number)).unwrap_or(&self.keyword);
        let help = if help.is_empty() { None } else { Some(help.to_owned()) };
        self.file.error(self.logical, word.start..word.end, message.into(), help)
    }
}

/// Reads a file and the files that its `include` lines name, line by line.
///
/// # Errors
/// A file that cannot be read, a quote that does not end, and what `take` refuses.
pub fn conf_lines(
    path: &Path,
    take: &mut dyn FnMut(&ConfLine<'_>) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let fail = |message: String, help: &str| ConfigError::new(Origin::BuiltIn, message).with_help(help);
    lines_of(path, &mut Vec::new(), &fail, take)
}

fn lines_of(
    path: &Path,
    open: &mut Vec<PathBuf>,
    fail: &dyn Fn(String, &str) -> ConfigError,
    take: &mut dyn FnMut(&ConfLine<'_>) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    if open.iter().any(|open| open == path) {
        return Err(fail(format!("`{}` includes itself", path.display()), "take the circle out"));
    }
    if open.len() >= MAX_INCLUDE_DEPTH {
        let message = format!("more than {MAX_INCLUDE_DEPTH} files include one another");
        return Err(fail(message, "include fewer levels"));
    }
    let (file, text) = FileText::read(path, !open.is_empty(), fail)?;
    open.push(path.to_owned());
    for logical in &line::logical_lines(&text) {
        let (mut words, unterminated) = line::words(&logical.text);
        if words.is_empty() {
            continue;
        }
        if let Some(UnterminatedQuote(at)) = unterminated {
            return Err(file.error(logical, at..at + 1, "a quote that does not end".to_owned(), None));
        }
        let keyword = words.remove(0);
        let arguments: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
        let line = ConfLine { file: &file, logical, keyword, words, arguments };
        if !line.keyword().eq_ignore_ascii_case("include") {
            take(&line)?;
            continue;
        }
        let [name] = line.arguments() else {
            return Err(line.error(None, "`include` takes one file name", "include /etc/ldap/tiers.conf"));
        };
        let fail = |message: String, help: &str| line.error(Some(0), message, help);
        lines_of(Path::new(name), open, &fail, take)?;
    }
    open.pop();
    Ok(())
}
