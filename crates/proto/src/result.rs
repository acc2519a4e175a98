//! Results and their codes (RFC 4511 section 4.1.9, appendix A, and the RFCs that add codes).

use std::fmt;

use crate::ber::Tag;
use crate::brief::{MESSAGE_MAX, shortened};

/// The outcome of an operation, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdapResult {
    pub code: ResultCode,
    /// The last entry on the way to a missing one; empty when it does not apply.
    pub matched_dn: String,
    /// For humans; may be empty.
    pub diagnostic: String,
    /// Where else to ask; only with [`ResultCode::REFERRAL`].
    pub referrals: Vec<String>,
}

impl LdapResult {
    pub const fn new(code: ResultCode) -> Self {
        Self { code, matched_dn: String::new(), diagnostic: String::new(), referrals: Vec::new() }
    }

    /// With a text for humans. Of one with more than [`MESSAGE_MAX`] bytes the middle is left out.
    pub fn with(code: ResultCode, diagnostic: impl Into<String>) -> Self {
        Self { diagnostic: shortened(diagnostic.into(), MESSAGE_MAX), ..Self::new(code) }
    }

    pub const fn success() -> Self {
        Self::new(ResultCode::SUCCESS)
    }

    /// invalidDNSyntax, in OpenLDAP's words.
    pub fn invalid_dn() -> Self {
        Self::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN")
    }

    /// The server's own fault, of which the log says more.
    pub fn internal_error() -> Self {
        Self::with(ResultCode::OTHER, "internal error")
    }

    pub fn is_success(&self) -> bool {
        self.code == ResultCode::SUCCESS
    }

    /// Which value the text of [`ResultCode::INVALID_ATTRIBUTE_SYNTAX`] is about, in OpenLDAP's words: its attribute, and its
    /// number, from 0, among the values that the request has for it.
    pub fn invalid_value(&self) -> Option<(&str, usize)> {
        if self.code != ResultCode::INVALID_ATTRIBUTE_SYNTAX {
            return None;
        }
        let (name, rest) = self.diagnostic.split_once(": value #")?;
        Some((name, rest.split_once(' ')?.0.parse().ok()?))
    }

    /// The same for a change that another server or a program may have made, and whose answer was lost.
    #[must_use]
    pub fn with_unknown_outcome(self) -> Self {
        let why = &self.diagnostic;
        let text =
            format!("{why}; whether the change was made is unknown: read the entry before you try again");
        Self { diagnostic: text, ..self }
    }

    /// Adds the DN of the last entry that was found.
    #[must_use]
    pub fn matched(self, dn: impl Into<String>) -> Self {
        Self { matched_dn: dn.into(), ..self }
    }
}

/// `No such object (32)`, then what is known beyond the code.
impl fmt::Display for LdapResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if !self.diagnostic.is_empty() {
            write!(f, ": {}", self.diagnostic)?;
        }
        if !self.matched_dn.is_empty() {
            write!(f, ", matched \"{}\"", self.matched_dn)?;
        }
        Ok(())
    }
}

impl std::error::Error for LdapResult {}

/// A response that consists of a result: which operation it answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResponseOp {
    Bind,
    SearchDone,
    Modify,
    Add,
    Delete,
    ModifyDn,
    Compare,
    Extended,
}

impl ResponseOp {
    /// Whether the operation changes something, or may.
    pub const fn is_of_change(self) -> bool {
        matches!(self, Self::Modify | Self::Add | Self::Delete | Self::ModifyDn | Self::Extended)
    }

    /// The response that the tag of a request calls for (RFC 4511 section 4.2 and on); none for requests without one, and for what is
    /// no request.
    pub fn to_request(tag: Tag) -> Option<Self> {
        Some(match tag.0 {
            0x60 => Self::Bind,
            0x63 => Self::SearchDone,
            0x66 => Self::Modify,
            0x68 => Self::Add,
            0x4a => Self::Delete,
            0x6c => Self::ModifyDn,
            0x6e => Self::Compare,
            0x77 => Self::Extended,
            _ => return None,
        })
    }
}

/// A result code: the enumeration is open, so any number is one.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultCode(pub u32);

impl ResultCode {
    /// No code of the protocol: what has this result is not answered, and nothing is encoded.
    pub const UNANSWERED: Self = Self(u32::MAX);
}

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl ResultCode {
            $(pub const $name: Self = Self($number);)*

            /// The text that OpenLDAP's tools show for the code.
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($number => $text,)*
                    0x1000..=0x3fff => "Unknown (extension) error",
                    0x4000..=0xffff => "Unknown (private extension) error",
                    _ => "Unknown error",
                }
            }

            /// The constant's name.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0, "Success";
    OPERATIONS_ERROR = 1, "Operations error";
    PROTOCOL_ERROR = 2, "Protocol error";
    TIME_LIMIT_EXCEEDED = 3, "Time limit exceeded";
    SIZE_LIMIT_EXCEEDED = 4, "Size limit exceeded";
    COMPARE_FALSE = 5, "Compare False";
    COMPARE_TRUE = 6, "Compare True";
    AUTH_METHOD_NOT_SUPPORTED = 7, "Authentication method not supported";
    STRONGER_AUTH_REQUIRED = 8, "Strong(er) authentication required";
    PARTIAL_RESULTS = 9, "Partial results and referral received";
    REFERRAL = 10, "Referral";
    ADMIN_LIMIT_EXCEEDED = 11, "Administrative limit exceeded";
    UNAVAILABLE_CRITICAL_EXTENSION = 12, "Critical extension is unavailable";
    CONFIDENTIALITY_REQUIRED = 13, "Confidentiality required";
    SASL_BIND_IN_PROGRESS = 14, "SASL bind in progress";
    NO_SUCH_ATTRIBUTE = 16, "No such attribute";
    UNDEFINED_ATTRIBUTE_TYPE = 17, "Undefined attribute type";
    INAPPROPRIATE_MATCHING = 18, "Inappropriate matching";
    CONSTRAINT_VIOLATION = 19, "Constraint violation";
    ATTRIBUTE_OR_VALUE_EXISTS = 20, "Type or value exists";
    INVALID_ATTRIBUTE_SYNTAX = 21, "Invalid syntax";
    NO_SUCH_OBJECT = 32, "No such object";
    ALIAS_PROBLEM = 33, "Alias problem";
    INVALID_DN_SYNTAX = 34, "Invalid DN syntax";
    IS_LEAF = 35, "Entry is a leaf";
    ALIAS_DEREFERENCING_PROBLEM = 36, "Alias dereferencing problem";
    PROXY_AUTHORIZATION_FAILURE = 47, "Proxy Authorization Failure (X)";
    INAPPROPRIATE_AUTHENTICATION = 48, "Inappropriate authentication";
    INVALID_CREDENTIALS = 49, "Invalid credentials";
    INSUFFICIENT_ACCESS_RIGHTS = 50, "Insufficient access";
    BUSY = 51, "Server is busy";
    UNAVAILABLE = 52, "Server is unavailable";
    UNWILLING_TO_PERFORM = 53, "Server is unwilling to perform";
    LOOP_DETECT = 54, "Loop detected";
    SORT_CONTROL_MISSING = 60, "Sort control missing";
    OFFSET_RANGE_ERROR = 61, "Offset range error";
    NAMING_VIOLATION = 64, "Naming violation";
    OBJECT_CLASS_VIOLATION = 65, "Object class violation";
    NOT_ALLOWED_ON_NON_LEAF = 66, "Operation not allowed on non-leaf";
    NOT_ALLOWED_ON_RDN = 67, "Operation not allowed on RDN";
    ENTRY_ALREADY_EXISTS = 68, "Already exists";
    OBJECT_CLASS_MODS_PROHIBITED = 69, "Cannot modify object class";
    RESULTS_TOO_LARGE = 70, "Results too large";
    AFFECTS_MULTIPLE_DSAS = 71, "Operation affects multiple DSAs";
    VLV_ERROR = 76, "Virtual List View error";
    OTHER = 80, "Other (e.g., implementation specific) error";
    CUP_RESOURCES_EXHAUSTED = 113, "LCUP Resources Exhausted";
    CUP_SECURITY_VIOLATION = 114, "LCUP Security Violation";
    CUP_INVALID_DATA = 115, "LCUP Invalid Data";
    CUP_UNSUPPORTED_SCHEME = 116, "LCUP Unsupported Scheme";
    CUP_RELOAD_REQUIRED = 117, "LCUP Reload Required";
    CANCELED = 118, "Cancelled";
    NO_SUCH_OPERATION = 119, "No Operation to Cancel";
    TOO_LATE = 120, "Too Late to Cancel";
    CANNOT_CANCEL = 121, "Cannot Cancel";
    ASSERTION_FAILED = 122, "Assertion Failed";
    AUTHORIZATION_DENIED = 123, "Proxied Authorization Denied";
    SYNC_REFRESH_REQUIRED = 4096, "Content Sync Refresh Required";
    NO_OPERATION = 16654, "No Operation (X)";
    TXN_SPECIFY_OKAY = 16672, "TXN specify okay";
    TXN_ID_INVALID = 16673, "TXN ID is invalid";
}

impl fmt::Display for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

impl fmt::Debug for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({})", self.0),
            None => write!(f, "ResultCode({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |code: ResultCode, expected: &str| assert_eq!(code.to_string(), expected);
        check(ResultCode::SUCCESS, "Success (0)");
        check(ResultCode::NO_SUCH_OBJECT, "No such object (32)");
        check(ResultCode::STRONGER_AUTH_REQUIRED, "Strong(er) authentication required (8)");
        check(ResultCode(99), "Unknown error (99)");
        check(ResultCode(0x1001), "Unknown (extension) error (4097)");
        check(ResultCode(0x4999), "Unknown (private extension) error (18841)");
        assert_eq!(format!("{:?}", ResultCode::BUSY), "BUSY(51)");
        let result = LdapResult::with(ResultCode::NO_SUCH_OBJECT, "gone").matched("dc=x");
        assert_eq!(result.to_string(), "No such object (32): gone, matched \"dc=x\"");
    }
}
