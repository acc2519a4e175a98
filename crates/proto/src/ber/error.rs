//! What can be wrong with a BER encoding.

use std::fmt;

use super::Tag;

/// A field that could not be decoded, and why.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The field's name in the ASN.1 of its RFC, such as `baseObject`.
    pub field: &'static str,
    pub fault: Fault,
}

/// Why a field could not be decoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The enclosing element ends before this one does. Bytes.
    Truncated { needed: usize, left: usize },
    /// Another element stands where this one must.
    UnexpectedTag { expected: Tag, found: Tag },
    /// The element is missing.
    Missing,
    /// Length octet 0x80, which RFC 4511 section 5.1 forbids.
    IndefiniteLength,
    /// A length of more octets than any machine addresses.
    LengthOfLength(u8),
    /// A length that no message can have.
    LengthTooLarge(u64),
    /// Tag numbers above 30 do not occur in LDAP.
    HighTagNumber,
    /// An INTEGER or ENUMERATED without octets, or of more than eight that matter.
    IntegerLength(usize),
    /// A number outside its range.
    OutOfRange { value: i64, min: i64, max: i64 },
    /// A BOOLEAN that is not one octet.
    BooleanLength(usize),
    /// A NULL with content.
    NullLength(usize),
    /// An LDAPString that is not UTF-8; the offset is the first bad byte's.
    NotUtf8 { offset: usize },
    /// A choice or enumeration without this member.
    UnknownChoice(i64),
    /// An element that must not be empty is.
    Empty,
    /// Elements in an order that the definition excludes.
    Order,
    /// Filters nested deeper than allowed.
    TooDeep { limit: usize },
    /// More elements than allowed.
    TooMany { limit: usize },
    /// Octets after the end of a value.
    Trailing(usize),
    /// A value that is well-formed BER but not a valid value of the field.
    Invalid(&'static str),
}

impl DecodeError {
    #[cold]
    pub const fn new(field: &'static str, fault: Fault) -> Self {
        Self { field, fault }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, left } => write!(f, "{needed} bytes announced, {left} left"),
            Self::UnexpectedTag { expected, found } => write!(f, "expected tag {expected}, found {found}"),
            Self::Missing => f.write_str("missing"),
            Self::IndefiniteLength => f.write_str("indefinite length, which LDAP does not allow"),
            Self::LengthOfLength(octets) => write!(f, "length of {octets} octets"),
            Self::LengthTooLarge(length) => write!(f, "length {length} is too large"),
            Self::HighTagNumber => f.write_str("tag number above 30"),
            Self::IntegerLength(0) => f.write_str("number without octets"),
            Self::IntegerLength(octets) => write!(f, "number of {octets} octets"),
            Self::OutOfRange { value, min, max } => write!(f, "{value} is not in {min}..={max}"),
            Self::BooleanLength(octets) => write!(f, "boolean of {octets} octets"),
            Self::NullLength(octets) => write!(f, "null with {octets} octets"),
            Self::NotUtf8 { offset } => write!(f, "not UTF-8 at byte {offset}"),
            Self::UnknownChoice(value) => write!(f, "unknown choice {value}"),
            Self::Empty => f.write_str("empty"),
            Self::Order => f.write_str("elements out of order"),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit}"),
            Self::TooMany { limit } => write!(f, "more than {limit} elements"),
            Self::Trailing(octets) => write!(f, "{octets} bytes after the end"),
            Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for DecodeError {}
