//! The numbers of entries and of attribute descriptions.

use std::fmt;

/// The number of an entry in its database. Never reused; 0 is the virtual root above the suffixes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

impl EntryId {
    /// The virtual root above the suffixes.
    pub const ROOT: Self = Self(0);

    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// From the first eight bytes; `None` when there are fewer.
    pub fn from_prefix(bytes: &[u8]) -> Option<Self> {
        Some(Self(u64::from_be_bytes(*bytes.first_chunk::<8>()?)))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an attribute description, options included, in its database. Never changed, never reused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeNumber(pub u32);

impl fmt::Display for AttributeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
