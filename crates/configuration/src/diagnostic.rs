//! Errors that say which file, line and word, and the notes on what was accepted without effect.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;

use larix_proto::brief::shortened;

/// Bytes of a message. Whole values stand in some.
const MESSAGE_MAX: usize = 640;
/// Bytes of what may stand behind it: lists of words among it.
const HELP_MAX: usize = 2048;
/// Characters of a line that are shown around the word at fault.
const EXCERPT_MAX: usize = 160;
/// And so many of them before that word.
const EXCERPT_LEAD: usize = 40;

/// Where a setting was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a slapd.conf or of a file it includes.
    Line { file: Arc<PathBuf>, line: u32 },
    /// A value below cn=config.
    Value { dn: Arc<str>, attribute: String },
    /// A flag or a default.
    BuiltIn,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{}:{line}", file.display()),
            Self::Value { dn, attribute } => write!(f, "{dn}: {attribute}"),
            Self::BuiltIn => f.write_str("built-in default"),
        }
    }
}

/// What is wrong with a configuration, where, and how to correct it.
///
/// `Display` renders `file:line:column: message`, the line with a caret below the word, and the help; then the other faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Box<ConfigFault>);

/// What a [`ConfigError`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    pub origin: Origin,
    /// The physical line as written and the 1-based column (in characters) and width of the word at fault.
    pub excerpt: Option<Excerpt>,
    pub message: String,
    pub help: Option<String>,
    /// The `include` lines that led here, innermost first.
    pub included_from: Vec<Origin>,
    /// The file of a slapd.d with the entry at fault.
    pub file: Option<PathBuf>,
    /// What else is wrong with the configuration. These have no others themselves.
    pub others: Vec<ConfigError>,
}

/// One source line and the part of it that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    pub text: String,
    pub column: usize,
    pub width: usize,
}

impl Excerpt {
    /// The line without what is secret in it, how many characters of that stand before the word at fault, and how many the word has.
    /// Of a long line only the part around the word.
    pub(super) fn shown(&self) -> (String, usize, usize) {
        let text = without_secrets(&self.text);
        let before = self.column.saturating_sub(1);
        if text.chars().count() <= EXCERPT_MAX {
            return (text, before, self.width);
        }
        let skipped = before.saturating_sub(EXCERPT_LEAD);
        let mut rest = text.chars().skip(skipped);
        let part: String = rest.by_ref().take(EXCERPT_MAX).collect();
        let (start, end) =
            (if skipped > 0 { "..." } else { "" }, if rest.next().is_some() { "..." } else { "" });
        let lead = before.saturating_sub(skipped);
        let width = self.width.min(part.chars().count().saturating_sub(lead));
        (format!("{start}{part}{end} ({} bytes)", text.len()), start.len() + lead, width)
    }
}

impl ConfigError {
    /// Of a long message the middle is left out.
    pub fn new(origin: Origin, message: impl Into<String>) -> Self {
        Self(Box::new(ConfigFault {
            origin,
            excerpt: None,
            message: shortened(message.into(), MESSAGE_MAX),
            help: None,
            included_from: Vec::new(),
            file: None,
            others: Vec::new(),
        }))
    }

    /// One error of all that was found.
    ///
    /// # Errors
    /// The first of them, with the rest as its `others`.
    pub(super) fn together(found: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut all = found.into_iter().flat_map(Self::into_all);
        let Some(mut first) = all.next() else { return Ok(()) };
        first.others = all.collect();
        Err(first)
    }

    /// The fault and its `others`, each as an error of its own.
    pub fn into_all(mut self) -> Vec<Self> {
        let others = std::mem::take(&mut self.others);
        std::iter::once(self).chain(others).collect()
    }

    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(shortened(help.into(), HELP_MAX));
        self
    }

    pub(crate) fn with_excerpt(mut self, excerpt: Excerpt) -> Self {
        self.excerpt = Some(excerpt);
        self
    }
}

impl Deref for ConfigError {
    type Target = ConfigFault;

    fn deref(&self) -> &ConfigFault {
        &self.0
    }
}

impl DerefMut for ConfigError {
    fn deref_mut(&mut self) -> &mut ConfigFault {
        &mut self.0
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, &self.excerpt) {
            (Origin::BuiltIn, _) => f.write_str(&self.message)?,
            (origin, Some(excerpt)) => write!(f, "{origin}:{}: {}", excerpt.column, self.message)?,
            (origin, None) => write!(f, "{origin}: {}", self.message)?,
        }
        if let Some(excerpt) = &self.excerpt {
            let (text, before, width) = excerpt.shown();
            // A tab in the text stays a tab below it, so that the caret stands under its word.
            let lead: String =
                text.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let carets = "^".repeat(width.max(1));
            write!(f, "\n    | {text}\n    | {lead}{carets}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n    = help: {help}")?;
        }
        for from in &self.included_from {
            write!(f, "\n    = included from {from}")?;
        }
        if let Some(file) = &self.file {
            write!(f, "\n    = in {}", file.display())?;
        }
        self.others.iter().try_for_each(|other| write!(f, "\n{other}"))
    }
}

impl std::error::Error for ConfigError {}

/// The text without what is secret in it, each character of that as a star.
pub(super) fn without_secrets(text: &str) -> String {
    without_passwords(&without_credentials(&without_arguments(text)))
}

/// Keywords whose argument is a password, those included that are refused: what is wrong with such a line is logged, too.
const PASSWORD_KEYWORDS: [&str; 7] =
    ["rootpw", "passphrase", "cryptkey", "bindpw", "acl-passwd", "pseudorootpw", "dbpasswd"];

/// The text with a star for each character behind such a keyword; blanks and quotes stay.
fn without_arguments(text: &str) -> String {
    let line = text.trim_start();
    let end = line.find([' ', '\t']).unwrap_or(line.len());
    let (keyword, arguments) = line.split_at_checked(end).unwrap_or((line, ""));
    if !PASSWORD_KEYWORDS.iter().any(|known| known.eq_ignore_ascii_case(keyword)) {
        return text.to_owned();
    }
    let mut shown = text.strip_suffix(arguments).unwrap_or_default().to_owned();
    shown.extend(arguments.chars().map(|c| if matches!(c, ' ' | '\t' | '"') { c } else { '*' }));
    shown
}

/// The text with a star for each character of a password in a URL (`scheme://user:password@host`): faults are logged.
fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("://") {
        shown += before;
        shown += "://";
        let authority = tail.split(['/', '?', '#', '"', ' ', '\t']).next().unwrap_or_default();
        rest = tail.get(authority.len()..).unwrap_or_default();
        match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?, host))) {
            Some(((user, password), host)) => {
                shown += &format!("{user}:{}@{host}", "*".repeat(password.chars().count()));
            }
            None => shown += authority,
        }
    }
    shown + rest
}

/// The text with a star for each character behind `credentials=`, up to the end of the word.
fn without_credentials(text: &str) -> String {
    const KEY: &str = "credentials=";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.to_ascii_lowercase().find(KEY).map(|at| at + KEY.len()) {
        let (before, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
        // Quotes may stand around the value, or around the whole word.
        let quoted = tail.starts_with('"') || before.trim_end_matches(KEY).ends_with('"');
        let value = if quoted { tail.get(1..).unwrap_or_default() } else { tail };
        let end = value.find(if quoted { &['"'][..] } else { &[' ', '\t'][..] }).unwrap_or(value.len());
        let end = end + (tail.len() - value.len());
        let (value, tail) = tail.split_at_checked(end).unwrap_or((tail, ""));
        shown += before;
        shown.extend(value.chars().map(|c| if c == '"' { '"' } else { '*' }));
        rest = tail;
    }
    shown + rest
}

/// Something accepted that has no effect, or less than it had in OpenLDAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub origin: Origin,
    pub text: String,
    /// The log has it whatever its level.
    pub is_warning: bool,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// All notes of one configuration, in the order they came up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes(Vec<Note>);

impl Notes {
    pub fn push(&mut self, origin: Origin, text: impl Into<String>) {
        self.0.push(Note { origin, text: text.into(), is_warning: false });
    }

    /// The same of what keeps somebody out.
    pub fn warn(&mut self, origin: Origin, text: &str) {
        self.0.push(Note { origin, text: format!("warning: {text}"), is_warning: true });
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Note> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Notes {
    type Item = &'a Note;
    type IntoIter = std::slice::Iter<'a, Note>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        for (text, shown) in [
            ("bindconf credentials=hidden numcons=1", "bindconf credentials=****** numcons=1"),
            ("  CREDENTIALS=\"a b\" x=1", "  CREDENTIALS=\"***\" x=1"),
            ("x \"credentials=a b\" y", "x \"credentials=***\" y"),
            ("credentials=", "credentials="),
            ("credentials=a credentials=b", "credentials=* credentials=*"),
        ] {
            assert_eq!(without_credentials(text), shown, "{text}");
        }
    }

    #[test]
    fn of_long_values_the_begin_and_the_end_are_shown() {
        let long = "x".repeat(70_000);
        let origin = Origin::Value { dn: Arc::from("cn=config"), attribute: "olcA".to_owned() };
        let error = |lead: &str| {
            let excerpt =
                Excerpt { text: format!("{lead}{long}"), column: lead.len() + 1, width: long.len() };
            ConfigError::new(origin.clone(), format!("`{long}` is no number"))
                .with_excerpt(excerpt)
                .with_help(format!("say {long}, or 1"))
                .to_string()
        };
        for (lead, shown, carets) in [
            ("", format!("\n    | {}... (70000 bytes)\n    | ^", "x".repeat(160)), 160),
            ("a ", format!("\n    | a {}... (70002 bytes)\n    |   ^", "x".repeat(158)), 158),
            (
                &*"a ".repeat(50),
                format!(
                    "\n    | ...{}{}... (70100 bytes)\n    | {}^",
                    "a ".repeat(20),
                    "x".repeat(120),
                    " ".repeat(43)
                ),
                120,
            ),
        ] {
            let text = error(lead);
            assert!(text.contains("bytes) ...x") && text.contains("x` is no number\n"), "{text}");
            assert!(text.contains(&shown), "{text}");
            assert_eq!(text.matches('^').count(), carets, "{text}");
            assert!(text.ends_with("x, or 1") && text.len() < 3_500, "{text}");
        }
    }

    #[test]
    fn arguments_that_are_passwords_are_not_shown() {
        for (text, shown) in [
            ("rootpw hidden and more", "rootpw ****** *** ****"),
            ("\tRootPW\t\"hid den", "\tRootPW\t\"*** ***"),
            ("bindpw \u{e9}", "bindpw *"),
            ("rootpw", "rootpw"),
            ("rootdn cn=a", "rootdn cn=a"),
            ("rootpws a", "rootpws a"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }

    #[test]
    fn passwords_in_urls_are_not_shown() {
        for (text, shown) in [
            (
                "engine postgresql://larix:hidden@db1/directory",
                "engine postgresql://larix:******@db1/directory",
            ),
            ("x://u:p@ss@h y://u:p@h", "x://u:****@h y://u:*@h"),
            ("uri ldap://h/dc=a ldaps://h:636", "uri ldap://h/dc=a ldaps://h:636"),
            ("x://u@h/a:b@c", "x://u@h/a:b@c"),
            ("x://u:\u{e9}\u{e9}@h", "x://u:**@h"),
            ("://", "://"),
        ] {
            assert_eq!(without_passwords(text), shown, "{text}");
        }
    }
}
