//! What comparing a password with a stored value comes to.

use std::fmt;

use super::scheme::Scheme;

/// Longest password that is looked at, in bytes; longer ones match nothing and are refused for hashing.
pub const PASSWORD_MAX: usize = 4096;

/// The outcome of comparing a password with a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    Match,
    Mismatch,
    /// The stored value can match no password here.
    Unusable(Unusable),
}

impl Verification {
    pub const fn is_match(self) -> bool {
        matches!(self, Self::Match)
    }

    pub(super) fn of(matches: subtle::Choice) -> Self {
        if bool::from(matches) { Self::Match } else { Self::Mismatch }
    }

    pub(super) const fn malformed(scheme: Scheme) -> Self {
        Self::Unusable(Unusable::Malformed(scheme))
    }

    pub(super) const fn too_costly(scheme: Scheme) -> Self {
        Self::Unusable(Unusable::TooCostly(scheme))
    }
}

/// Why a stored value is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// `{NAME}` that is not known.
    UnknownScheme,
    /// Not what its scheme prescribes.
    Malformed(Scheme),
    /// A way of crypt(3) that is not supported.
    UnsupportedCrypt,
    /// It takes codes, which [`time_based`](super::time_based) judges.
    TimeBased(Scheme),
    /// It asks for more memory or time than allowed.
    TooCostly(Scheme),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme => f.write_str("the stored password has an unknown scheme"),
            Self::Malformed(scheme) => write!(f, "the stored {scheme} password is malformed"),
            Self::UnsupportedCrypt => f.write_str("the stored {CRYPT} password uses an unsupported method"),
            Self::TimeBased(scheme) => write!(f, "the stored {scheme} password takes codes of logins alone"),
            Self::TooCostly(scheme) => {
                write!(f, "the stored {scheme} password asks for too much memory or time")
            }
        }
    }
}
