//! Distinguished names as text (RFC 4514), and the older forms that OpenLDAP takes.

mod display;
mod parse;

pub use display::write_escaped;

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

/// A distinguished name, taken apart but not interpreted: that needs a schema.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Dn<'a> {
    rdns: SmallVec<[Rdn<'a>; 4]>,
}

/// A relative distinguished name: one attribute value or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rdn<'a> {
    avas: SmallVec<[RdnAva<'a>; 1]>,
}

/// One attribute and its value in an RDN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdnAva<'a> {
    /// A name or OID; options are cut off, as OpenLDAP does it.
    pub attribute: &'a str,
    /// The value without escapes; with [`hex`](Self::hex), its BER.
    pub value: Cow<'a, [u8]>,
    /// Whether the value was written as `#` and hexadecimal digits.
    pub hex: bool,
}

/// Where a DN's text is wrong, and why.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DnSyntaxError {
    /// Bytes from the start of the text.
    pub position: usize,
    pub fault: DnFault,
}

/// What is wrong with a DN's text.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DnFault {
    /// An attribute type must stand here.
    MissingType,
    /// `=` must stand here.
    MissingEquals,
    /// `,` `;` or `+` must stand here.
    MissingSeparator,
    /// `\` is followed neither by a special character nor by two hexadecimal digits.
    BadEscape,
    /// This character must be escaped.
    Unescaped(char),
    /// `"` without its partner.
    UnclosedQuote,
    /// `#` is not followed by pairs of hexadecimal digits.
    BadHex,
    /// A NUL character, which must be written `\00`.
    Nul,
    /// The text of one RDN holds several.
    NotOneRdn,
}

impl<'a> Dn<'a> {
    /// Parses a DN; the empty text is the root.
    pub fn parse(text: &'a str) -> Result<Self, DnSyntaxError> {
        parse::dn(text).map(|rdns| Self { rdns })
    }

    /// The RDNs, leaf first.
    pub fn rdns(&self) -> &[Rdn<'a>] {
        &self.rdns
    }

    pub fn is_empty(&self) -> bool {
        self.rdns.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rdns.len()
    }
}

impl<'a> Rdn<'a> {
    /// Parses the text of exactly one RDN.
    pub fn parse(text: &'a str) -> Result<Self, DnSyntaxError> {
        let mut rdns = parse::dn(text)?.into_iter();
        match (rdns.next(), rdns.next()) {
            (Some(rdn), None) => Ok(rdn),
            (None, _) => Err(DnSyntaxError { position: 0, fault: DnFault::MissingType }),
            (Some(_), Some(_)) => Err(DnSyntaxError { position: text.len(), fault: DnFault::NotOneRdn }),
        }
    }

    /// At least one.
    pub fn avas(&self) -> &[RdnAva<'a>] {
        &self.avas
    }
}

impl fmt::Display for DnSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DN, column {}: ", self.position + 1)?;
        match self.fault {
            DnFault::MissingType => f.write_str("attribute type expected"),
            DnFault::MissingEquals => f.write_str("'=' expected"),
            DnFault::MissingSeparator => f.write_str("',' or '+' expected"),
            DnFault::BadEscape => {
                f.write_str("'\\' must be followed by a special character or two hexadecimal digits")
            }
            DnFault::Unescaped(character) => write!(f, "'{character}' must be escaped"),
            DnFault::UnclosedQuote => f.write_str("closing quote missing"),
            DnFault::BadHex => f.write_str("'#' must be followed by pairs of hexadecimal digits"),
            DnFault::Nul => f.write_str("NUL must be written \\00"),
            DnFault::NotOneRdn => f.write_str("one RDN expected, not several"),
        }
    }
}

impl std::error::Error for DnSyntaxError {}

#[cfg(test)]
mod tests;
