//! Identifier octets.

use std::fmt;

/// One identifier octet: class, primitive or constructed, and a tag number up to 30 (LDAP uses no others).
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Tag(pub u8);

impl Tag {
    pub const BOOLEAN: Self = Self(0x01);
    pub const INTEGER: Self = Self(0x02);
    pub const OCTET_STRING: Self = Self(0x04);
    pub const NULL: Self = Self(0x05);
    pub const ENUMERATED: Self = Self(0x0a);
    pub const SEQUENCE: Self = Self(0x30);
    pub const SET: Self = Self(0x31);

    /// `[APPLICATION number]`, primitive.
    pub const fn application(number: u8) -> Self {
        assert!(number < 31);
        Self(0x40 | number)
    }

    /// `[APPLICATION number]`, constructed.
    pub const fn application_constructed(number: u8) -> Self {
        assert!(number < 31);
        Self(0x60 | number)
    }

    /// `[number]`, primitive.
    pub const fn context(number: u8) -> Self {
        assert!(number < 31);
        Self(0x80 | number)
    }

    /// `[number]`, constructed.
    pub const fn context_constructed(number: u8) -> Self {
        assert!(number < 31);
        Self(0xa0 | number)
    }

    /// The tag number, without class and form.
    pub const fn number(self) -> u8 {
        self.0 & 0x1f
    }

    /// Whether the class is context-specific.
    pub const fn is_context(self) -> bool {
        self.0 & 0xc0 == 0x80
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:#04x})", self.0)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}
