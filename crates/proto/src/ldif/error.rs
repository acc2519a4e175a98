//! What can be wrong with LDIF.

use std::fmt;
use std::io;

/// A fault and the line it is on.
#[derive(Debug)]
pub struct LdifError {
    /// The line, from 1: of the included file if there is one, else of the input.
    pub line: u64,
    /// The `file:` URL of the included file that the line is in.
    pub file: Option<String>,
    pub fault: LdifFault,
}

/// What is wrong with a line or a record.
#[derive(Debug)]
pub enum LdifFault {
    /// The input cannot be read on: no record follows.
    Io(io::Error),
    /// No `:` on the line.
    MissingColon,
    /// Nothing before the `:`.
    MissingName,
    /// The text before the `:`, or the name of the attribute to modify, cannot be an attribute description.
    BadName(String),
    /// A record starts with `dn:`; this one with something else.
    MissingDn(String),
    /// A `dn:` within a record.
    NoEmptyLine,
    /// A byte order mark before the first name.
    ByteOrderMark,
    /// The marks with which UTF-16 begins.
    Utf16,
    /// Not UTF-8 where only text may stand.
    NotUtf8(&'static str),
    /// Not base64 after `::` of this attribute.
    BadBase64(String),
    /// A continuation line with nothing to continue.
    StrayContinuation,
    /// A version other than 1.
    UnknownVersion(String),
    /// Not a `file:` URL.
    UnsupportedUrl(String),
    /// `:<` and `include:` read files only if the reader's options permit it.
    FilesNotAllowed(String),
    /// The file that a URL names cannot be read.
    File {
        url: String,
        error: io::Error,
    },
    /// More files nested by `include:` than this.
    TooManyIncludes(usize),
    /// A record of more bytes than this.
    TooLong(usize),
    UnknownChangeType(String),
    /// Neither `add:`, `delete:`, `replace:` nor `increment:`.
    UnknownModification(String),
    /// The attribute of a value differs from the one that the modification names.
    WrongAttribute {
        expected: String,
        found: String,
    },
    /// This line must stand here.
    Expected(&'static str),
    /// A line that has no place in the record.
    Unexpected(String),
    /// Not 0 or 1.
    BadDeleteOldRdn(String),
    /// Not an OID, then `true` or `false` or neither, then a value or none.
    BadControl(String),
}

impl LdifError {
    /// Whether reading can go on with the next record.
    pub fn is_recoverable(&self) -> bool {
        !matches!(self.fault, LdifFault::Io(_) | LdifFault::TooLong(_))
    }
}

impl fmt::Display for LdifError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(file) = &self.file {
            write!(f, " of {file}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl fmt::Display for LdifFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::MissingColon => {
                f.write_str("missing ':' (a line that continues the one before it begins with a space)")
            }
            Self::MissingName => f.write_str("nothing before the ':'"),
            Self::BadName(found) => write!(f, "{found:?} is not an attribute description"),
            Self::MissingDn(found) => write!(f, "a record starts with \"dn:\", not with \"{found}:\""),
            Self::NoEmptyLine => {
                f.write_str("a new record needs an empty line before it (a line of spaces is not empty)")
            }
            Self::ByteOrderMark => f.write_str("a byte order mark: save the file as UTF-8 without one"),
            Self::Utf16 => f.write_str("UTF-16: save the file as UTF-8 without a byte order mark"),
            Self::NotUtf8(what) => write!(f, "{what} is not UTF-8"),
            Self::BadBase64(name) => {
                write!(
                    f,
                    "the value of \"{name}\" is not base64, which \"::\" announces (before text stands \":\")"
                )
            }
            Self::StrayContinuation => f.write_str("continuation line with nothing before it to continue"),
            Self::UnknownVersion(version) => write!(f, "LDIF version \"{version}\" is not 1"),
            Self::UnsupportedUrl(url) => write!(f, "\"{url}\" is not a file: URL"),
            Self::FilesNotAllowed(url) => write!(f, "reading \"{url}\" is not allowed here"),
            Self::File { url, error } => write!(f, "cannot read {url}: {error}"),
            Self::TooManyIncludes(limit) => write!(f, "more than {limit} files included by one another"),
            Self::TooLong(limit) => write!(f, "record of more than {limit} bytes"),
            Self::UnknownChangeType(found) => {
                write!(f, "changetype \"{found}\" is not add, delete, modify, modrdn or moddn")
            }
            Self::UnknownModification(found) => {
                write!(
                    f,
                    "\"{found}\" is not add, delete, replace or increment (an entry to add has a line \"changetype: add\")"
                )
            }
            Self::WrongAttribute { expected, found } => {
                write!(
                    f,
                    "value for \"{found}\" where \"{expected}\" is modified (a line \"-\" ends a modification)"
                )
            }
            Self::Expected(what) => write!(f, "\"{what}\" expected"),
            Self::Unexpected(found) => write!(f, "\"{found}\" has no place here"),
            Self::BadDeleteOldRdn(found) => write!(f, "deleteoldrdn \"{found}\" is not 0 or 1"),
            Self::BadControl(text) => write!(f, "\"{text}\" is not a control"),
        }
    }
}

impl std::error::Error for LdifError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            LdifFault::Io(error) | LdifFault::File { error, .. } => Some(error),
            _ => None,
        }
    }
}
