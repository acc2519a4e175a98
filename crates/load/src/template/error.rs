//! What can be wrong with a template.

use std::fmt;

/// A line that cannot be understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TemplateError {
    /// Counted from 1.
    pub line: usize,
    pub fault: TemplateFault,
}

/// What is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TemplateFault {
    /// Neither `define`, nor `name: value`.
    NoLine(String),
    /// An attribute before the first branch or template.
    Nowhere(String),
    /// A line that only the other of branch and template has.
    Misplaced {
        line: &'static str,
        within: &'static str,
    },
    /// `[name]` without a definition.
    Undefined(String),
    /// `<`, `{` or `[` without its end.
    Unclosed {
        opening: char,
        text: String,
    },
    Tag(String),
    /// A tag's argument: the tag and what it should be.
    Argument {
        tag: String,
        expected: &'static str,
    },
    /// `{attr}` or `<ifpresent:attr>` of an attribute that does not stand above.
    Reference(String),
    /// A template that is not there, in `extends` or `subordinateTemplate`.
    UnknownTemplate(String),
    /// A second template, or definition, of this name.
    Twice(String),
    /// A template that stands below or extends itself.
    Cycle(String),
    /// A DN that is none.
    Dn {
        dn: String,
        reason: String,
    },
    /// A template without its RDN's attribute.
    Rdn {
        template: String,
        attribute: String,
    },
    /// A count that is no number.
    Count(String),
    /// A file that cannot be read or is empty.
    File {
        path: String,
        reason: String,
    },
    /// Nothing would be written.
    Empty,
    /// More entries, or more levels, than allowed.
    TooMany {
        what: &'static str,
        max: u64,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLine(text) => write!(f, "{text:?} is neither `define name=value` nor `name: value`"),
            Self::Nowhere(text) => write!(f, "{text:?} stands before the first branch or template"),
            Self::Misplaced { line, within } => write!(f, "a {within} has no {line}"),
            Self::Undefined(name) => write!(f, "[{name}] is not defined above"),
            Self::Unclosed { opening, text } => {
                write!(f, "{text:?} opens {opening:?} and does not close it; \\{opening} is the character")
            }
            Self::Tag(tag) => write!(
                f,
                "<{tag}> is unknown: first, last, dn, parentdn, rdn, sequential, random, guid, list, file, presence, \
                 ifpresent, ifabsent, static"
            ),
            Self::Argument { tag, expected } => write!(f, "<{tag}> needs {expected}"),
            Self::Reference(attribute) => write!(f, "no attribute {attribute:?} stands above this line"),
            Self::UnknownTemplate(name) => write!(f, "there is no template {name:?}"),
            Self::Twice(name) => write!(f, "{name:?} is there already"),
            Self::Cycle(name) => write!(f, "the template {name:?} leads to itself"),
            Self::Dn { dn, reason } => write!(f, "{dn:?} is no DN: {reason}"),
            Self::Rdn { template, attribute } => {
                write!(f, "the template {template:?} has no line for its RDN's attribute {attribute:?}")
            }
            Self::Count(text) => write!(f, "{text:?} is not TEMPLATE:COUNT"),
            Self::File { path, reason } => write!(f, "the file {path:?}: {reason}"),
            Self::Empty => f.write_str("there is no branch: nothing would be written"),
            Self::TooMany { what, max } => write!(f, "more than {max} {what}"),
        }
    }
}

impl std::error::Error for TemplateError {}
