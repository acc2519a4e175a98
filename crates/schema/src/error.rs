//! What can be wrong with a definition or a value.

use std::fmt;

/// A schema definition that cannot be taken: where it stands and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchemaError {
    /// File name, or another name of the source that the caller gave.
    pub origin: String,
    /// Line of the definition's first character, from 1; 0 when there is no file.
    pub line: u32,
    pub kind: SchemaErrorKind,
}

/// Why a definition is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SchemaErrorKind {
    /// An element of this name is defined already, with another OID.
    Duplicate {
        element: &'static str,
        name: String,
    },
    /// An element of this OID is defined already, and differently.
    InconsistentDuplicate {
        element: &'static str,
        oid: String,
    },
    /// A name that is not letters, digits and hyphens.
    InvalidName(String),
    /// USAGE, COLLECTIVE, SINGLE-VALUE or NO-USER-MODIFICATION that contradict each other or the superior's.
    InappropriateUsage(String),
    /// A directive that a schema file cannot have.
    UnknownDirective(String),
    UnknownAttributeType(String),
    UnknownBundle(String),
    UnknownMatchingRule(String),
    UnknownObjectClass(String),
    UnknownOidMacro(String),
    UnknownSyntax(String),
    /// A rule that contradicts another part of the definition or a superior's.
    Inconsistent(&'static str),
    /// A matching rule in the wrong place, an ordering rule as EQUALITY, or not made for the attribute's syntax.
    InappropriateRule(String),
    /// The text is not a definition: byte position within it, and what was expected there.
    Text {
        position: usize,
        expected: &'static str,
        found: String,
    },
}

impl SchemaError {
    pub(crate) fn new(kind: SchemaErrorKind) -> Self {
        Self { origin: String::new(), line: 0, kind }
    }

    pub(crate) fn at(mut self, origin: &str, line: u32) -> Self {
        if self.origin.is_empty() && self.line == 0 {
            origin.clone_into(&mut self.origin);
            self.line = line;
        }
        self
    }
}

impl From<SchemaErrorKind> for SchemaError {
    fn from(kind: SchemaErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.origin.is_empty(), self.line) {
            (true, _) => {}
            (false, 0) => write!(f, "{}: ", self.origin)?,
            (false, line) => write!(f, "{}: line {line}: ", self.origin)?,
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for SchemaError {}

impl fmt::Display for SchemaErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { element, name } => write!(f, "Duplicate {element}: \"{name}\""),
            Self::UnknownDirective(word) => write!(f, "unknown schema directive \"{word}\""),
            Self::UnknownAttributeType(name) => write!(f, "AttributeType not found: \"{name}\""),
            Self::UnknownBundle(name) => write!(f, "no bundled schema is named \"{name}\""),
            Self::UnknownMatchingRule(name) => write!(f, "MatchingRule not found: \"{name}\""),
            Self::UnknownObjectClass(name) => write!(f, "ObjectClass not found: \"{name}\""),
            Self::UnknownOidMacro(name) => write!(f, "OID could not be expanded: \"{name}\""),
            Self::UnknownSyntax(name) => write!(f, "Syntax not found: \"{name}\""),
            Self::Inconsistent(what) => f.write_str(what),
            Self::InappropriateRule(rule) => {
                write!(f, "AttributeType inappropriate matching rule: \"{rule}\"")
            }
            Self::InappropriateUsage(name) => write!(f, "AttributeType inappropriate USAGE: \"{name}\""),
            Self::InconsistentDuplicate { element, oid } => {
                write!(f, "Inconsistent duplicate {element}: \"{oid}\"")
            }
            Self::InvalidName(name) => write!(f, "Invalid NAME: \"{name}\""),
            Self::Text { position, expected, found } => {
                write!(f, "expected {expected} at character {}, found {found}", position + 1)
            }
        }
    }
}

/// A value or assertion value that its syntax does not allow (LDAP result invalidAttributeSyntax).
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct InvalidValue;

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("value is invalid per its syntax")
    }
}

impl std::error::Error for InvalidValue {}
