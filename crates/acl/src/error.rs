//! What can be wrong with an access rule.

use std::fmt;

/// A rule that does not follow the grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessSyntaxError {
    /// Where, in bytes from the start of the given text, from 1.
    pub column: usize,
    pub fault: AccessFault,
}

impl AccessSyntaxError {
    pub(crate) const fn at(column: usize, fault: AccessFault) -> Self {
        Self { column, fault }
    }

    /// What to write instead, where that can be said.
    pub const fn mend(&self) -> Option<&'static str> {
        self.fault.mend()
    }
}

impl fmt::Display for AccessSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.fault)?;
        if let Some(mend) = self.mend() {
            write!(f, "; {mend}")?;
        }
        Ok(())
    }
}

impl std::error::Error for AccessSyntaxError {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessFault {
    UnclosedQuote,
    MissingTo,
    SecondTo,
    MissingBy,
    MissingWho,
    UnexpectedWord(String),
    MissingEquals(String),
    MissingValue(String),
    UnknownWhat(String),
    UnknownWho(String),
    DnTwice,
    FilterTwice,
    ValueTwice,
    ConditionTwice(&'static str),
    UnknownStyle(String),
    StyleNotHere { style: String, keyword: &'static str },
    BadLevel(String),
    NegativeLevel(i32),
    BadFilter { filter: String, why: String },
    EmptyAttribute,
    ValueWithoutAttribute,
    ExpandWithRegex,
    ExpandWithoutDollar,
    BadDn { dn: String, why: String },
    BadRegex { pattern: String, why: String },
    BadAddress(String),
    BadMask(String),
    BadPort(String),
    BadStrengthFactor(String),
    UnknownAccess(String),
}

impl AccessFault {
    const fn mend(&self) -> Option<&'static str> {
        Some(match self {
            Self::UnclosedQuote => "close the quotation mark",
            Self::MissingTo => "write: access to <what> by <who> <access>",
            Self::MissingBy => "add at least one `by <who> <access>`, for example `by * read`",
            Self::MissingWho => {
                "name a requester: *, anonymous, users, self, dn.exact=\"...\" or group.exact=\"...\""
            }
            Self::UnexpectedWord(_) => "a clause begins with `by`",
            Self::UnknownWhat(_) | Self::MissingEquals(_) => {
                "<what> is *, dn[.<style>]=<DN>, filter=<filter> or attrs=<list> [val[.<style>]=<value>]"
            }
            Self::UnknownStyle(_) => {
                "styles are exact, base, one, subtree, children, level{n}, regex, expand, ip, ipv6 and path"
            }
            Self::ValueWithoutAttribute => "write attrs=<one attribute> before val=",
            Self::ExpandWithRegex => "regex expands already: leave `,expand` out",
            Self::ExpandWithoutDollar => "leave `,expand` out, or use $1 in the pattern",
            Self::BadStrengthFactor(_) => "a strength factor is a number from 1",
            Self::BadAddress(_) => {
                "write peername.ip=192.0.2.0%255.255.255.0 or peername.ipv6=2001:db8::%ffff:ffff::"
            }
            Self::UnknownAccess(_) | Self::UnknownWho(_) => {
                "<access> is none, disclose, auth, compare, search, read, add, delete, write or manage, or =, + or - with letters of mwazrscxd0"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for AccessFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnclosedQuote => f.write_str("a quotation mark is not closed"),
            Self::MissingTo => f.write_str("an access rule begins with `to`"),
            Self::SecondTo => f.write_str("a second `to` in one rule"),
            Self::MissingBy => f.write_str("the rule grants nothing to anyone"),
            Self::MissingWho => f.write_str("`by` without a requester"),
            Self::UnexpectedWord(word) => write!(f, "expected `by`, found `{word}`"),
            Self::MissingEquals(word) => write!(f, "`=` is missing after `{word}`"),
            Self::MissingValue(word) => write!(f, "`{word}` needs a value"),
            Self::UnknownWhat(word) => write!(f, "`{word}` names nothing that access can be granted to"),
            Self::UnknownWho(word) => write!(f, "`{word}` is neither a requester nor an access"),
            Self::DnTwice => f.write_str("a DN pattern is given twice"),
            Self::FilterTwice => f.write_str("a filter is given twice"),
            Self::ValueTwice => f.write_str("`val` is given twice"),
            Self::ConditionTwice(keyword) => write!(f, "`{keyword}` is given twice in one clause"),
            Self::UnknownStyle(style) => write!(f, "unknown style `{style}`"),
            Self::StyleNotHere { style, keyword } => {
                write!(f, "style `{style}` does not go with `{keyword}`")
            }
            Self::BadLevel(level) => write!(f, "`{level}` is not a level"),
            Self::NegativeLevel(level) => write!(f, "level {level} is negative"),
            Self::BadFilter { filter, why } => write!(f, "bad filter `{filter}`: {why}"),
            Self::EmptyAttribute => f.write_str("an empty name in the attribute list"),
            Self::ValueWithoutAttribute => f.write_str("`val` needs exactly one attribute"),
            Self::ExpandWithRegex => f.write_str("`expand` with style `regex`"),
            Self::ExpandWithoutDollar => f.write_str("`expand` on a pattern without `$`"),
            Self::BadDn { dn, why } => write!(f, "bad DN `{dn}`: {why}"),
            Self::BadRegex { pattern, why } => write!(f, "bad regular expression `{pattern}`: {why}"),
            Self::BadAddress(address) => write!(f, "`{address}` is not an address"),
            Self::BadMask(mask) => write!(f, "`{mask}` is not an address mask"),
            Self::BadPort(port) => write!(f, "`{port}` is not a port in braces"),
            Self::BadStrengthFactor(value) => write!(f, "`{value}` is not a strength factor"),
            Self::UnknownAccess(word) => write!(f, "`{word}` is not an access"),
        }
    }
}
