//! What a comparison comes to.

/// Three-valued truth (RFC 4511 §4.5.1.7).
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Match {
    True,
    False,
    Undefined,
}

impl Match {
    pub fn is_true(self) -> bool {
        self == Self::True
    }

    /// False if either is false, else Undefined if either is.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::Undefined, _) | (_, Self::Undefined) => Self::Undefined,
            _ => Self::True,
        }
    }

    /// True if either is true, else Undefined if either is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::True, _) | (_, Self::True) => Self::True,
            (Self::Undefined, _) | (_, Self::Undefined) => Self::Undefined,
            _ => Self::False,
        }
    }
}

impl std::ops::Not for Match {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Undefined => Self::Undefined,
        }
    }
}

impl From<bool> for Match {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}
